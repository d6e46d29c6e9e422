/* Crashes: whatever kills a run, and whenever, a checkpoint can be loaded that is at most one save interval
   old, and the resumed run ends bit for bit as one that was never killed. A full or failing disk costs the
   save, never the old checkpoint.

   CMHA_TEST_KILLS=N kills (100), CMHA_TEST_SEED=N for another schedule of them. The runs to be killed are
   this program again, by exec, so that they have their own OpenMP. */
#define _GNU_SOURCE /* unshare */
#define _DARWIN_C_SOURCE
#include "models.h"
#include "system.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sched.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#endif

enum { STEPS = 60, EVERY = 3 }; /* of a run; steps between its saves */

static char folder[64] = "/tmp/cmha-crash-XXXXXX";
static const char *program;

static const char *path_of(const char *name) {
    static char path[4][128];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static int there(const char *path) { return access(path, F_OK) == 0; }

/* The bytes of a file; NULL where there is none */
static unsigned char *contents(const char *path, size_t *n) {
    FILE *file = fopen(path, "rb");
    unsigned char *bytes;
    long size;
    *n = 0;
    if (!file) return NULL;
    fseek(file, 0, SEEK_END);
    size = ftell(file);
    rewind(file);
    bytes = (unsigned char *)check_alloc((size_t)size, 1);
    *n = fread(bytes, 1, (size_t)size, file);
    fclose(file);
    return bytes;
}

static void put(const char *path, const void *bytes, size_t n) {
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(bytes, 1, n, file) != n || fclose(file)) exit(3);
}

static int same_files(const char *a, const char *b) {
    size_t n, m;
    unsigned char *x = contents(a, &n), *y = contents(b, &m);
    int same = x && y && n == m && !memcmp(x, y, n);
    free(x), free(y);
    return same;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void pause_for(double seconds) {
    struct timespec t;
    t.tv_sec = (time_t)seconds;
    t.tv_nsec = (long)(1e9 * (seconds - (double)t.tv_sec));
    nanosleep(&t, NULL);
}

/* -------------------------------------- the system calls of a save -------------------------------------- */

/* This program has its own write, fsync, linkat, rename and close, which do as the system's do unless a fault
   is set: then the call number `at` (counted from 1) fails with `error`, or the process dies in it, a write
   being half done. */
enum { NO_FAULT, COUNT, FAIL, DIE, INTERRUPT };
static struct { int mode, at, error, calls; char trace[1024]; } fault;
/* It has its own open too: without files that have no name, and where somebody puts a link under the next
   names. */
static struct { int named, planted; } place;

#ifdef __linux__
/* Notes a call; 1 = it shall not go through */
static int struck(char name, size_t bytes) {
    (void)bytes;
    if (!fault.mode) return 0;
    if (fault.calls < (int)sizeof fault.trace - 1)
        fault.trace[fault.calls] = name, fault.trace[fault.calls + 1] = 0;
    fault.calls++;
    if (fault.mode == INTERRUPT) errno = EINTR;
    else errno = fault.error;
    if (fault.mode == DIE && fault.calls == fault.at && name != 'w') raise(SIGKILL);
    return (fault.mode == INTERRUPT && name == 'w' && fault.calls % 2) ||
           (fault.mode == FAIL && fault.calls == fault.at);
}

ssize_t write(int fd, const void *from, size_t n) {
    struct iovec piece;
    ssize_t put;
    if (struck('w', n)) return fault.error == 0 && fault.mode == FAIL ? 0 : -1;
    piece.iov_base = (void *)(uintptr_t)from;
    piece.iov_len = n;
    if (fault.mode == DIE && fault.calls == fault.at) piece.iov_len = n / 2;
    if (fault.mode == INTERRUPT) piece.iov_len = n / 3 + 1; /* and the others write less than was asked for */
    put = writev(fd, &piece, 1);
    if (fault.mode == DIE && fault.calls == fault.at) raise(SIGKILL);
    return put;
}

/* What is in the way of a save: a link to a file of somebody's */
static void plant(const char *path) {
    if (place.planted > 0 && strstr(path, "/cmha-") && !symlink("victim", path)) place.planted--;
}

int open(const char *path, int flags, ...) {
    int nameless = (flags & O_TMPFILE) == O_TMPFILE;
    mode_t mode = 0;
    va_list list;
    va_start(list, flags);
    if (flags & O_CREAT || nameless) mode = (mode_t)va_arg(list, int);
    va_end(list);
    if (nameless && place.named) return errno = EOPNOTSUPP, -1;
    if (flags & O_CREAT) plant(path);
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
    plant(to);
    return struck('l', 0) ? -1 : (int)syscall(SYS_linkat, from_folder, from, to_folder, to, flags);
}

int fsync(int fd) {
    struct stat about;
    if (struck(fstat(fd, &about) == 0 && S_ISDIR(about.st_mode) ? 'd' : 's', 0)) return -1;
    return fdatasync(fd);
}

int rename(const char *from, const char *to) {
    return struck('r', 0) ? -1 : renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int close(int fd) {
    int result = (int)syscall(SYS_close, fd);
    return struck('c', 0) ? -1 : result;
}
#endif

static void set_fault(int mode, int at, int error) {
    memset(&fault, 0, sizeof fault);
    fault.mode = mode, fault.at = at, fault.error = error;
}

/* ------------------------------------------------- runs ------------------------------------------------- */

typedef struct run {
    cmha_context context;
    cmha_model model;
    cmha_trainer trainer;
} run;

static unsigned char text[8000];
static cmha_tokens stream;

static void run_open(run *r) {
    cmha_model_config m = check_model_config();
    cmha_trainer_config t;
    m.vocabulary = 256, m.init_std = 0.05, m.d_model = 32, m.d_ff = 64, m.dropout = 0.1;
    cmha_config_defaults(cmha_trainer_table(), &t);
    t.steps = STEPS, t.batch = 2, t.length = 16, t.lr = 3e-3;
    check_context(&r->context, 2, 11);
    CHECK_OK(cmha_model_init(&r->model, &r->context, &m));
    CHECK_OK(cmha_trainer_init(&r->trainer, &r->model, &t));
}

static void run_close(run *r) {
    cmha_trainer_close(&r->trainer), cmha_model_close(&r->model), cmha_context_close(&r->context);
}

static void run_steps(run *r, size_t steps) {
    double loss;
    for (; steps; steps--)
        CHECK_THAT(!cmha_trainer_step(&r->trainer, &stream, &loss), "%s", cmha_error(&r->context));
}

/* A number for weights and moments, down to the last bit */
static uint64_t state_hash(const run *r) {
    const cmha_real *part[2];
    size_t size[2], i, k;
    uint64_t hash = 14695981039346656037u;
    part[0] = r->model.parameters.data, size[0] = r->model.parameters.size * sizeof(cmha_real);
    part[1] = r->model.parameters.moments, size[1] = 2 * size[0];
    for (k = 0; k < 2; k++)
        for (i = 0; i < size[k]; i++) hash = (hash ^ ((const unsigned char *)part[k])[i]) * 1099511628211u;
    return hash;
}

/* What a run says of itself, through a pipe: it has done `step` steps, or it
   begins or has ended the save after them */
enum { STEP, BEGIN, END };
typedef struct message {
    int32_t kind, step;
    double time;
} message;

static void say(int fd, int kind, size_t step) {
    message m;
    m.kind = kind, m.step = (int32_t)step, m.time = now();
    if (write(fd, &m, sizeof m) != (ssize_t)sizeof m) _exit(5);
}

/* The program that is killed: trains from `path`, where that exists, and saves there every few steps.
   fault_at > 0: it dies in that system call of its first save. named = 1: what it writes has a name from the
   start. */
static int train(const char *path, int fd, int fault_at, int named) {
    run r;
    place.named = named;
    run_open(&r);
    if (there(path) && !CHECK_OK(cmha_trainer_read(&r.trainer, path))) return 4;
    while (r.trainer.step < STEPS) {
        run_steps(&r, 1);
        say(fd, STEP, r.trainer.step);
        if (r.trainer.step % EVERY) continue;
        say(fd, BEGIN, r.trainer.step);
        if (fault_at) set_fault(DIE, fault_at, 0);
        CHECK_THAT(!cmha_trainer_save(&r.trainer, path), "%s", cmha_error(&r.context));
        if (fault_at) return 0;
        say(fd, END, r.trainer.step);
    }
    run_close(&r);
    return check_failed ? 4 : 0;
}

/* Starts this program as a run; its messages come out of *fd. */
static pid_t start(const char *path, int fault_at, int named, int *fd) {
    char out[16], at[16];
    int ends[2];
    pid_t child;
    fflush(stdout);
    if (pipe(ends)) exit(3);
    snprintf(out, sizeof out, "%d", ends[1]);
    snprintf(at, sizeof at, "%d", fault_at);
    child = fork();
    if (child < 0) exit(3);
    if (child == 0) {
        close(ends[0]);
        execlp(program, program, "train", path, out, at, named ? "1" : "0", (char *)NULL);
        _exit(6);
    }
    close(ends[1]);
    *fd = ends[0];
    return child;
}

static int listen_to(int fd, message *m) { return read(fd, m, sizeof *m) == (ssize_t)sizeof *m; }

/* ---------------------------------------------- the kills ----------------------------------------------- */

static int nameless;                       /* 1 = the system has files without a name, and names them late */
static uint64_t hashes[STEPS / EVERY + 1]; /* of the states a run that nobody kills has at its saves */
static double run_time, save_time;         /* what a run and a save take, roughly */

/* The run that is never killed, twice: here for the states on its way, and as a
   process for its last file and its times */
static void reference(run *r) {
    message m;
    double begin = now(), at = begin;
    int fd, status = 0, saves = 0;
    pid_t child;
    hashes[0] = state_hash(r);
    while (r->trainer.step < STEPS) run_steps(r, EVERY), hashes[r->trainer.step / EVERY] = state_hash(r);
    CHECK_OK(cmha_trainer_save(&r->trainer, path_of("here")));
    child = start(path_of("whole"), 0, 0, &fd);
    for (begin = now(); listen_to(fd, &m); at = m.time)
        if (m.kind == END) save_time += m.time - at, saves++;
    run_time = now() - begin;
    close(fd);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(saves == STEPS / EVERY);
    save_time /= saves ? saves : 1;
    CHECK_THAT(same_files(path_of("here"), path_of("whole")), "two undisturbed runs end in different files");
}

/* A run from nothing to its end, through as many lives as it takes */
typedef struct chain {
    int kills, inside, beside, lives; /* kills; those inside a save, and those that left a file beside */
    int named;                        /* what is being written has a name; changes from life to life */
    size_t done, saved;               /* steps and saves that this run has told of */
    size_t worst;                     /* most steps that a kill has cost */
} chain;

/* Waits until the run shall be killed: some time from its start, or some
   time after one of its saves has begun */
static void wait_for_the_moment(int fd, chain *c, message *last) {
    size_t saves = 0, wanted = check_below(4);
    if (check_random() < 0) {
        pause_for((check_random() + 1) / 2 * run_time * 0.6);
        return;
    }
    while (listen_to(fd, last)) {
        if (last->kind == STEP) c->done = (size_t)last->step;
        if (last->kind == END) c->saved = (size_t)last->step;
        if (last->kind == BEGIN && saves++ == wanted) break;
    }
    pause_for((check_random() + 1) / 2 * save_time);
}

/* Removes the files that saves have left, and counts them. A file that got its name late (named = 0) is
   whole. */
static int swept(run *r, int named) {
    char left[400];
    int n = 0;
    for (; system_left(folder, left, sizeof left); n++) {
        CHECK_THAT(named || !cmha_trainer_read(&r->trainer, left), "a file is left that is not whole: %s",
                   cmha_error(&r->context));
        if (!CHECK(!remove(left))) break;
    }
    return n;
}

/* After a kill: what lies there, and is it what it has to be? */
static void inspect(run *r, chain *c) {
    const char *path = path_of("killed");
    size_t step = 0;
    c->beside += swept(r, c->named);
    if (there(path)) {
        if (!CHECK_THAT(!cmha_trainer_read(&r->trainer, path), "after kill %d: %s", c->kills,
                        cmha_error(&r->context)))
            return;
        step = r->trainer.step;
        CHECK_THAT(step % EVERY == 0 && step <= STEPS && state_hash(r) == hashes[step / EVERY],
                   "after kill %d: the checkpoint of step %zu is not the state after %zu steps", c->kills,
                   step, step);
    }
    CHECK_THAT(step >= c->saved, "after kill %d: step %zu was saved, the checkpoint is of step %zu", c->kills,
               c->saved, step);
    CHECK_THAT(c->done <= step + EVERY, "after kill %d: %zu steps done, the checkpoint is of step %zu",
               c->kills, c->done, step);
    if (c->done > step && c->done - step > c->worst) c->worst = c->done - step;
}

/* One life of the run. Returns 1 when it has reached its end. */
static int live(run *r, chain *c, int kill_it) {
    message last;
    int fd, status = 0;
    pid_t child = start(path_of("killed"), 0, c->named, &fd);
    memset(&last, 0, sizeof last);
    c->lives++;
    if (kill_it) wait_for_the_moment(fd, c, &last), kill(child, SIGKILL);
    while (listen_to(fd, &last)) {
        if (last.kind == STEP) c->done = (size_t)last.step;
        if (last.kind == END) c->saved = (size_t)last.step;
    }
    close(fd);
    CHECK(waitpid(child, &status, 0) == child);
    if (WIFSIGNALED(status)) {
        CHECK(WTERMSIG(status) == SIGKILL);
        c->kills++;
        c->inside += last.kind == BEGIN;
        inspect(r, c);
        c->done = 0, c->named = !c->named && nameless != 0;
        return 0;
    }
    CHECK_THAT(status == 0, "a resumed run ended with status %d", status);
    CHECK_THAT(same_files(path_of("whole"), path_of("killed")),
               "a run of %d lives ends in another file than one of one", c->lives);
    CHECK(!swept(r, c->named));
    remove(path_of("killed"));
    c->lives = 0, c->done = c->saved = 0;
    return 1;
}

static int from_environment(const char *name, int otherwise) {
    const char *value = getenv(name);
    return value && value[0] ? atoi(value) : otherwise;
}

static void kills(run *r) {
    chain c;
    int wanted = from_environment("CMHA_TEST_KILLS", check_quick() ? 12 : 100), runs = 0,
        failed = check_failed;
    memset(&c, 0, sizeof c);
    c.named = !nameless;
    while (c.kills < wanted && check_failed < failed + 5) runs += live(r, &c, 1);
    while (check_failed < failed + 5 && !live(r, &c, 0)) continue;
    printf("%d kills over %d runs: %d inside a save, %d left a file; at most %zu steps are lost\n", c.kills,
           runs + 1, c.inside, c.beside, c.worst);
    CHECK_THAT(c.inside * 20 >= wanted - 20, "only %d of %d kills fell inside a save", c.inside, c.kills);
}

/* ---------------------------------------- a death in every call ----------------------------------------- */

static cmha_status save_to(run *r, const char *name, int mode, int at, int error) {
    cmha_status status;
    set_fault(mode, at, error);
    status = cmha_trainer_save(&r->trainer, path_of(name));
    fault.mode = NO_FAULT;
    return status;
}

#ifdef __linux__
/* A save is writes, one fsync, the name if it is given late, close, rename, fsync and close of the folder, so
   that not even a loss of power finds the name without the data; interrupted and partial writes go on.
   Returns the number of calls. */
static int order(run *r) {
    char *at = fault.trace;
    int calls;
    CHECK_OK(save_to(r, "calls", COUNT, 0, 0));
    calls = fault.calls;
    at += strspn(at, "w");
    CHECK_THAT(at > fault.trace && !strcmp(at, place.named ? "scrdc" : "slcrdc"), "a save calls %s",
               fault.trace);
    CHECK_OK(save_to(r, "interrupted", INTERRUPT, 0, 0));
    CHECK(fault.calls > calls && same_files(path_of("calls"), path_of("interrupted")));
    return calls;
}

/* Dies in the save after step EVERY with the checkpoint of another state there already: it holds until the
   rename, the new one from then on. What is left is the file that had a name. */
static void death_in_every_call(run *r, int calls) {
    int at, fd, status, step = check_quick() || place.named ? 7 : 1;
    int renamed = calls - 2, named = place.named ? 0 : calls - 4;
    message m;
    size_t n, found;
    unsigned char *old;
    run fresh;
    run_open(&fresh);
    CHECK_OK(cmha_trainer_save(&fresh.trainer, path_of("first")));
    old = contents(path_of("first"), &n);
    for (at = 1; at <= calls && check_failed < 20; at += at + step < renamed - 3 ? step : 1) {
        pid_t child;
        put(path_of("dying"), old, n);
        child = start(path_of("dying"), at, place.named, &fd);
        while (listen_to(fd, &m)) continue;
        close(fd);
        CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        CHECK_THAT(swept(r, place.named) == (at > named && at <= renamed),
                   "dead in call %d of %d: what is left", at, calls);
        if (!CHECK_THAT(!cmha_trainer_read(&r->trainer, path_of("dying")), "dead in call %d of %d: %s", at,
                        calls, cmha_error(&r->context)))
            continue;
        found = r->trainer.step;
        CHECK_THAT(found == (at < renamed + 1 ? 0 : EVERY) && state_hash(r) == hashes[found / EVERY],
                   "dead in call %d of %d, the checkpoint is of step %zu", at, calls, found);
    }
    free(old);
    run_close(&fresh);
}

/* The same calls fail instead: the save says so in one line, the old checkpoint stays, nothing is left beside
   it. A name that is refused is no failure: the file is written again, under a name from the start. */
static void failure_in_every_call(run *r, int calls) {
    /* 0: a write that takes nothing and gives no reason */
    static const int reasons[4] = {ENOSPC, EIO, EDQUOT, 0};
    int at, i;
    size_t n;
    unsigned char *old = contents(path_of("interrupted"), &n);
    run_steps(r, 1);
    CHECK_OK(save_to(r, "after", NO_FAULT, 0, 0));
    for (at = 1; at <= calls; at++) {
        int late = !place.named && at == calls - 4, harmless = late || at > calls - 2;
        int writing = at < calls - 4 - !place.named; /* the folder's fsync is a favour of some systems */
        for (i = 0; i < (place.named && nameless ? 1 : writing ? 4 : 3); i++) {
            cmha_status status;
            put(path_of("calls"), old, n);
            status = save_to(r, "calls", FAIL, at, reasons[i]);
            if (harmless) CHECK_OK(status);
            else if (CHECK_THAT(status == CMHA_ERR_IO, "call %d of %d fails, the save says \"%s\"", at, calls,
                                cmha_status_string(status)))
                CHECK(strstr(cmha_error(&r->context), "calls") && !strchr(cmha_error(&r->context), '\n'));
            CHECK(!swept(r, 1));
            CHECK_THAT(same_files(path_of("calls"), path_of(harmless ? "after" : "interrupted")),
                       "call %d of %d: the file", at, calls);
        }
    }
    free(old);
}

/* Links that somebody puts under the names a save would take: it takes others, and writes through none. */
static void links_in_the_way(run *r) {
    char path[400];
    int n;
    put(path_of("victim"), "precious", 8);
    place.planted = 5;
    CHECK_THAT(!save_to(r, "calls", NO_FAULT, 0, 0) && !place.planted, "%s", cmha_error(&r->context));
    CHECK_OK(cmha_trainer_read(&r->trainer, path_of("calls")));
    for (n = 0; system_left(folder, path, sizeof path); n++) {
        struct stat about;
        CHECK_THAT(!lstat(path, &about) && S_ISLNK(about.st_mode), "%s is no link", path);
        if (!CHECK(!remove(path))) break;
    }
    CHECK_THAT(n == 5, "%d of 5 links are there", n);
    put(path_of("calls"), "precious", 8);
    CHECK_THAT(same_files(path_of("calls"), path_of("victim")), "a save writes through a link");
    remove(path_of("victim"));
}

/* All of it, with files that get their name late (named = 0) and with files that have it from the start */
static void system_calls(run *r, int named) {
    int calls;
    if (!named && !nameless) {
        printf("SKIP there are no files without a name in %s\n", folder);
        return;
    }
    place.named = named;
    calls = order(r);
    death_in_every_call(r, calls);
    CHECK_OK(cmha_trainer_read(&r->trainer, path_of("interrupted")));
    failure_in_every_call(r, calls);
    links_in_the_way(r);
    place.named = 0;
}

/* Are there files without a name in the folder, and can they be given one? */
static int has_nameless(void) {
    char self[32];
    int fd = open(folder, O_TMPFILE | O_WRONLY, 0600), has;
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    has = fd >= 0 && !linkat(AT_FDCWD, self, AT_FDCWD, path_of("first"), AT_SYMLINK_FOLLOW);
    if (fd >= 0) close(fd);
    return has && !remove(path_of("first"));
}
#endif

/* ---------------------------------------- two writers, one path ---------------------------------------- */

/* The program that saves a checkpoint of one number, over and over for a second. Its exit status is 0 if
   every save was done. */
static int write_often(const char *path, const char *number) {
    double end = now() + (check_quick() ? 0.4 : 1);
    size_t i;
    run r;
    run_open(&r);
    for (i = 0; i < r.model.parameters.size; i++) r.model.parameters.data[i] = (cmha_real)atoi(number);
    for (i = 0; i < 2 * r.model.parameters.size; i++) r.model.parameters.moments[i] = (cmha_real)atoi(number);
    r.trainer.step = (size_t)atoi(number);
    do CHECK_THAT(!cmha_trainer_save(&r.trainer, path), "writer %s: %s", number, cmha_error(&r.context));
    while (now() < end && !check_failed);
    run_close(&r);
    return check_failed ? 4 : 0;
}

/* Is everything that was loaded this one number? */
static int is_all(const run *r, int number) {
    size_t i, other = r->trainer.step != (size_t)number;
    for (i = 0; i < r->model.parameters.size; i++)
        other += !(r->model.parameters.data[i] == (cmha_real)number);
    for (i = 0; i < 2 * r->model.parameters.size; i++)
        other += !(r->model.parameters.moments[i] == (cmha_real)number);
    return other == 0;
}

/* Two processes save to one path, and whoever reads there finds the whole file of one of them, at any moment.
   */
static void two_writers(run *r) {
    const char *path = path_of("shared"), *const numbers[2] = {"1", "2"};
    pid_t child[2];
    int i, running = 2, status, loads = 0, of[3] = {0, 0, 0};
    CHECK_OK(cmha_trainer_read(&r->trainer, path_of("here")));
    CHECK_OK(cmha_trainer_save(&r->trainer, path));
    fflush(stdout);
    for (i = 0; i < 2; i++) {
        child[i] = fork();
        if (child[i] < 0) exit(3);
        if (child[i] == 0) {
            execlp(program, program, "write", path, numbers[i], (char *)NULL);
            _exit(6);
        }
    }
    while (running && check_failed < 20) {
        if (!CHECK_THAT(!cmha_trainer_read(&r->trainer, path), "load %d: %s", loads, cmha_error(&r->context)))
            continue;
        loads++;
        i = is_all(r, 1) ? 1 : is_all(r, 2) ? 2 : 0;
        of[i]++;
        CHECK_THAT(i || (!of[1] && !of[2] && state_hash(r) == hashes[STEPS / EVERY]),
                   "load %d has numbers of two writers", loads);
        while (running && waitpid(-1, &status, WNOHANG) > 0)
            running--, CHECK_THAT(status == 0, "a writer could not save");
    }
    while (running-- && wait(&status) > 0) continue;
    CHECK_OK(cmha_trainer_read(&r->trainer, path));
    CHECK_THAT(is_all(r, 1) || is_all(r, 2), "the last file is not whole");
    CHECK(!swept(r, 1));
    printf("%d loads while two wrote: %d of the first, %d of the second, all whole\n", loads, of[1], of[2]);
    CHECK_OK(cmha_trainer_read(&r->trainer, path_of("here"))); /* and who writes last wins */
    CHECK(!cmha_trainer_save(&r->trainer, path) && same_files(path, path_of("here")));
    remove(path);
}

/* --------------------------------------------- a full disk ---------------------------------------------- */

/* The largest file that the process may write grows step by step to that of a checkpoint. No save brings
   about the signal that would end the process. */
static void file_size_limit(run *r) {
    struct rlimit limit, before;
    size_t n, at[7], i;
    unsigned char *old;
    CHECK_OK(cmha_trainer_save(&r->trainer, path_of("limit")));
    old = contents(path_of("limit"), &n);
    run_steps(r, 1);
    at[0] = 0, at[1] = 1, at[2] = 8, at[3] = 5000, at[4] = n / 2, at[5] = n - 1, at[6] = n;
    signal(SIGXFSZ, SIG_DFL);
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
    for (i = 0; i < 7; i++) {
        cmha_status status;
        size_t m;
        unsigned char *kept;
        limit = before;
        limit.rlim_cur = (rlim_t)at[i];
        CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
        status = cmha_trainer_save(&r->trainer, path_of("limit"));
        CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
        CHECK_IS(status, at[i] < n ? CMHA_ERR_IO : CMHA_OK);
        if (status) CHECK(strstr(cmha_error(&r->context), strerror(EFBIG)) != NULL);
        kept = contents(path_of("limit"), &m);
        CHECK_THAT(kept && m == n && !memcmp(kept, old, n) == (at[i] < n),
                   "no room beyond %zu bytes: the old checkpoint", at[i]);
        CHECK(!swept(r, 1));
        free(kept);
    }
    CHECK_OK(cmha_trainer_save(&r->trainer, path_of("limit"))); /* with room it goes on */
    CHECK_OK(cmha_trainer_read(&r->trainer, path_of("limit")));
    free(old);
}

/* A disk with room for one checkpoint and a half, where root may mount one; in a name space of its own, so
   that it ends with the test */
static void small_disk(run *r) {
#ifdef __linux__
    char options[64], path[128];
    size_t n;
    unsigned char *old = contents(path_of("limit"), &n), *kept;
    int placed = old && !mkdir(path_of("disk"), 0700) && !unshare(CLONE_NEWNS) &&
                 !mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL);
    free(old);
    snprintf(options, sizeof options, "size=%zu", n + n / 2);
    if (!placed || mount("tmpfs", path_of("disk"), "tmpfs", 0, options)) {
        printf("SKIP there is no right to mount a small disk\n");
        rmdir(path_of("disk"));
        return;
    }
    snprintf(path, sizeof path, "%s/checkpoint", path_of("disk"));
    CHECK_OK(cmha_trainer_save(&r->trainer, path));
    old = contents(path, &n);
    run_steps(r, 1);
    CHECK_IS(cmha_trainer_save(&r->trainer, path), CMHA_ERR_IO);
    CHECK_THAT(strstr(cmha_error(&r->context), strerror(ENOSPC)) != NULL, "a full disk is called \"%s\"",
               cmha_error(&r->context));
    kept = contents(path, &n);
    CHECK_THAT(old && kept && !memcmp(old, kept, n), "the disk is full and the old checkpoint gone");
    CHECK_OK(cmha_trainer_read(&r->trainer, path));
    free(old), free(kept);
    CHECK(umount(path_of("disk")) == 0 && rmdir(path_of("disk")) == 0);
#else
    (void)r;
#endif
}

static void clean_up(void) {
    static const char *const names[] = {"here",  "whole", "first",       "dying",
                                        "calls", "after", "interrupted", "limit"};
    size_t i;
    for (i = 0; i < sizeof names / sizeof *names; i++) remove(path_of(names[i]));
    CHECK_THAT(!rmdir(folder), "something was left behind in %s", folder);
}

int main(int argc, char **argv) {
    run r;
    cmha_blas_restart(argv);
    program = argv[0];
    memset(&stream, 0, sizeof stream);
    stream.data = text, stream.count = models_text(text, sizeof text), stream.width = 1;
    if (argc == 6 && !strcmp(argv[1], "train"))
        return train(argv[2], atoi(argv[3]), atoi(argv[4]), atoi(argv[5]));
    if (argc == 4 && !strcmp(argv[1], "write")) return write_often(argv[2], argv[3]);
    if (!mkdtemp(folder)) return 3;
    check_seed = (uint64_t)from_environment("CMHA_TEST_SEED", 1);
    run_open(&r);
#ifdef __linux__
    nameless = has_nameless();
#endif
    reference(&r);
    kills(&r);
#ifdef __linux__
    system_calls(&r, 0), system_calls(&r, 1);
#endif
    two_writers(&r);
    file_size_limit(&r);
    small_disk(&r);
    run_close(&r);
    clean_up();
    return check_end();
}
