/* ranks.h - several processes that train one model (cmha_trainer_share), as mpirun starts them. With WITH_MPI
   they talk by MPI; without it there is one process, and every function here does the nothing that it needs.
   Include it after codec.h.

   How they end: who fails (complain) meets the others where these agree next, the lowest of those that failed
   says its line, and all leave with its status. Hence an agreement goes before all that the ranks do
   together, but for what the library does: there the same call fails on all of them. */
#ifndef RANKS_H
#define RANKS_H

#include "codec.h"
#include "options.h"

#include <limits.h>

/* Is rank the first of its program? counts: the ranks of each program, "2 1", or NULL, unknown. */
static inline int ranks_is_first(int rank, const char *counts) {
    int begin = 0;
    if (!counts) return 1;
    for (;;) {
        char *end;
        long n = strtol(counts, &end, 10);
        if (end == counts || begin > rank) return 0;
        if (begin == rank) return 1;
        begin += (int)n;
        counts = end;
    }
}

/* How many ranks mpirun has started, as its environment says; NULL: fewer than two. *rank: this one.
   *first: it is the first of its program, or that is unknown, as with mpich. */
static inline const char *ranks_asked_for(int *rank, int *first) {
    static const char *const names[2][2] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
                                            {"PMI_SIZE", "PMI_RANK"}};
    for (int i = 0; i < 2; i++) {
        const char *size = getenv(names[i][0]), *number = getenv(names[i][1]);
        if (!size || !number || atoi(size) < 2) continue;
        *rank = atoi(number);
        *first = ranks_is_first(*rank, getenv("OMPI_APP_CTX_NUM_PROCS"));
        return size;
    }
    return NULL;
}

/* Ends a process that mpirun has started for nothing; one of them says why. */
static inline void ranks_refuse(int says, const char *why, const char *size) {
    if (says) complain(1, why, size);
    sleep(1); /* else mpirun may end that one before it has spoken */
    exit(1);
}

#ifndef WITH_MPI

static const cmha_ranks ranks = {0, 1, NULL, NULL, NULL, NULL};

/* Under mpirun every process would take itself for the only one, and all would write the same files. */
static inline void ranks_start(void (*on_signal)(int)) {
    int rank, first;
    const char *size = ranks_asked_for(&rank, &first);
    (void)on_signal;
    if (size)
        ranks_refuse(first, "built without MPI, it is no rank of several; start train_mpi (make mpi); ranks "
                            "asked for: ", size);
}
static inline void ranks_patience(const setting *timeout, int (*keeps)(cmha_trainer *, int)) {
    (void)keeps;
    if (timeout->value) complain(2, "--timeout is for train_mpi (make mpi)", "");
}
static inline void ranks_savable(cmha_trainer *trainer) { (void)trainer; }
static inline int ranks_stop(volatile sig_atomic_t *stop) { return *stop; }
static inline void ranks_check(cmha_status status) { check(status); }
static inline void ranks_same_options(const setting *options, int n, uint32_t own) {
    (void)options, (void)n, (void)own;
}
static inline void ranks_same_start(const cmha_trainer *trainer, const cmha_tokens *text) {
    (void)trainer, (void)text;
}
static inline void ranks_same_weights(const cmha_trainer *trainer) { (void)trainer; }
static inline void ranks_bring(const char *path) { (void)path; }
static inline void ranks_speak(codec *words) { (void)words; }
static inline int ranks_lack(size_t turn, const char *path) { return (void)turn, (void)path, 1; }
static inline double ranks_mean(double x) { return x; }
static inline void ranks_share(cmha_trainer *trainer, const setting *overlap) {
    (void)trainer;
    if (overlap->value) complain(2, "--overlap is for train_mpi (make mpi)", "");
}
static inline double ranks_spent(void) { return 0; }

#else

#include <errno.h>
#include <mpi.h>
#include <sched.h>
#ifdef _OPENMP
#include <omp.h>
#endif
#ifdef __linux__
#include <sys/syscall.h>
#endif

#define RANKS_REAL (sizeof(cmha_real) == 8 ? MPI_DOUBLE : MPI_FLOAT)
enum {
    RANKS_PIECE = 1 << 20, /* bytes of a broadcast or of a sum, if the ranks are few */
    RANKS_PART = 1 << 16,  /* bytes of a sum that a ring sends at once, at least */
    RANKS_FEW = 1 << 10,   /* where all there is would make less, a sum goes along a tree */
    RANKS_BEGUN = 4096     /* sums under way at once */
};

static cmha_ranks ranks = {0, 1, NULL, NULL, NULL, NULL}; /* alone, until ranks_start */
static char ranks_host[MPI_MAX_PROCESSOR_NAME];
static int ranks_apart;      /* the ranks are on more than one machine */
static int ranks_over;       /* 1: all know that this is the end; 2: there is no more agreeing */
static int ranks_echo;       /* this rank fails only because another one does */
static double ranks_seconds; /* spent in sums of the library */
static MPI_Request ranks_begun[RANKS_BEGUN];
static MPI_Status ranks_statuses[RANKS_BEGUN];
static int ranks_n_begun;
static cmha_real *ranks_held; /* values that wait for more to be summed with */
static size_t ranks_n_held;

/* ---- Waiting ---- */

/* MPI waits without a word, for ever, where a link, a machine or a process is dead. So all waits are here:
   they ask again and again whether it is over, and look at the clock. After some seconds rank 0, or a rank
   that it does not ask, asks all which wait they are in: those that do not answer or have not got so far are
   waited for. */
enum { RANKS_ASK, RANKS_ANSWER };
typedef struct ranks_place {
    char host[64];
    int machine;             /* the lowest rank there */
    long process;
    MPI_Request sent;        /* the last word to it */
    unsigned long long word; /* that word */
    unsigned long long wait; /* that it was in when it answered last */
} ranks_place;

static const unsigned long long RANKS_LAST_WORD = ULLONG_MAX; /* who gets that ends without a line */
static ranks_place *ranks_places;
static MPI_Comm ranks_words;
static unsigned long long ranks_waits = 1; /* that have begun here, and one */
static unsigned long long ranks_asked; /* the wait in which rank 0 has asked last */
static double ranks_first = 30;        /* seconds without a line, if CMHA_PATIENCE does not say otherwise */
static double ranks_limit = 1e9;       /* of a wait in seconds */
static double ranks_due;               /* seconds of this wait until it is time to ask or to speak */
static int ranks_asks, ranks_said;     /* in this wait */
static int ranks_lost;                 /* a sum of the library has not ended within the limit */
static cmha_trainer *ranks_trainer;    /* whose state a wait that takes too long saves, or NULL */
static int (*ranks_keeps)(cmha_trainer *, int); /* saves that, if it is one; how often has it saved? */

static inline void ranks_send(ranks_place *to, unsigned long long word, int tag) {
    int sent = 0;
    if (MPI_Test(&to->sent, &sent, MPI_STATUS_IGNORE) || !sent) return; /* the last one is still there */
    to->word = word;
    MPI_Isend(&to->word, 1, MPI_UNSIGNED_LONG_LONG, (int)(to - ranks_places), tag, ranks_words,
              &to->sent);
}

static inline void ranks_ask(unsigned long long word) {
    for (ranks_place *to = ranks_places; to < ranks_places + ranks.ranks; to++)
        if (to != ranks_places + ranks.rank) ranks_send(to, word, RANKS_ASK);
}

/* Ends all processes that can be reached, the others without a line. MPI_Abort itself may wait for what a
   dead link does not bring. */
static inline void ranks_abort(void) {
    double since = MPI_Wtime();
    int there;
    ranks_over = 2;
    fflush(NULL);
    if (ranks_places) {
        ranks_ask(RANKS_LAST_WORD);
        while (MPI_Wtime() - since < 0.2)
            MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, ranks_words, &there, MPI_STATUS_IGNORE);
    }
    signal(SIGALRM, SIG_DFL);
    alarm(10);
    MPI_Abort(MPI_COMM_WORLD, 1);
    _exit(1);
}

/* Where MPI itself fails there is nothing left to agree on. */
static inline void ranks_must(int code) {
    char why[MPI_MAX_ERROR_STRING];
    int n;
    if (code == MPI_SUCCESS) return;
    MPI_Error_string(code, why, &n);
    fprintf(stderr, PROGRAM ": rank %zu on %s: %s\n", ranks.rank, ranks_host, why);
    ranks_abort();
}

/* Prints one line about this rank. */
static inline void ranks_say(const char *format, ...) {
    char line[TEXT_ERROR];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    fprintf(stderr, PROGRAM ": rank %zu on %s %s\n", ranks.rank, ranks_host, line);
    ranks_said = 1;
}

/* Gets to know where the others are. machine: the lowest rank of this one */
static inline void ranks_meet(int machine) {
    ranks_place mine;
    memset(&mine, 0, sizeof mine);
    snprintf(mine.host, sizeof mine.host, "%.63s", ranks_host);
    mine.machine = machine;
    mine.process = (long)getpid();
    ranks_must(MPI_Comm_dup(MPI_COMM_WORLD, &ranks_words));
    ranks_place *all = (ranks_place *)take(ranks.ranks, sizeof mine);
    ranks_must(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, MPI_COMM_WORLD));
    for (ranks_place *p = all; p < all + ranks.ranks; p++) p->sent = MPI_REQUEST_NULL;
    ranks_places = all;
}

/* Ends the job where a process of this machine has died; the first that is left here says whose it was. */
static inline void ranks_mourn(void) {
    const ranks_place *mine = ranks_places + ranks.rank, *first = NULL, *dead = NULL;
    for (const ranks_place *p = ranks_places; p < ranks_places + ranks.ranks; p++) {
        if (p->machine != mine->machine) continue;
        if (kill((pid_t)p->process, 0) && errno == ESRCH) dead = p;
        else if (!first) first = p;
    }
    if (!dead || first != mine) return;
    ranks_say("ends: rank %d on %s has died", (int)(dead - ranks_places), dead->host);
    ranks_abort();
}

/* Reads the words that have come, and answers. */
static inline void ranks_listen(void) {
    for (;;) {
        unsigned long long word;
        int there;
        MPI_Status from;
        ranks_must(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, ranks_words, &there, &from));
        if (!there) return;
        int source = from.MPI_SOURCE, tag = from.MPI_TAG;
        ranks_must(MPI_Recv(&word, 1, MPI_UNSIGNED_LONG_LONG, source, tag, ranks_words, MPI_STATUS_IGNORE));
        if (word == RANKS_LAST_WORD) {
            fflush(NULL);
            _exit(1);
        }
        if (tag == RANKS_ASK) ranks_send(ranks_places + source, ranks_waits, RANKS_ANSWER);
        if (tag == RANKS_ASK && !source) ranks_asked = word;
        if (tag == RANKS_ANSWER) ranks_places[source].wait = word;
    }
}

/* Whom this rank waits for. A rank may be in the next wait already when this one is not over for all. */
static inline const char *ranks_whom(void) {
    static char text[320];
    size_t n = 0;
    if (!ranks_asks) return "for the others";
    for (size_t r = 0; r < ranks.ranks; r++) {
        const ranks_place *p = ranks_places + r;
        size_t used = n ? strlen(text) : 0;
        if (r == ranks.rank || p->wait + 1 >= ranks_waits) continue;
        if (n < 3)
            snprintf(text + used, sizeof text - used, "%s rank %zu on %s", n ? "," : "for", r, p->host);
        n++;
    }
    if (!n) return "for all others, which wait too: a link between two of them may be dead";
    if (n > 3) snprintf(strchr(text, 0), 40, " and %zu more", n - 3);
    return text;
}

/* Is this rank to ask who waits? Only rank 0, if that one asks; else one of a machine will do. */
static inline int ranks_may_ask(void) {
    size_t r = ranks.rank;
    if (!r) return 1;
    if (ranks_asked + 1 >= ranks_waits) return 0;
    for (const ranks_place *p = ranks_places + 1; p < ranks_places + r; p++)
        if (p->machine == ranks_places[r].machine) return 0;
    return 1;
}

/* Seconds of a wait without a line */
static inline double ranks_silence(void) {
    return ranks_first < ranks_limit / 2 ? ranks_first : ranks_limit / 2;
}

/* Looks around in a wait of so many seconds. */
static inline void ranks_watch(double waited) {
    ranks_listen();
    ranks_mourn();
    if (ranks_said || waited < ranks_due || !ranks_may_ask()) return;
    if (ranks_asks) {
        ranks_say("has waited %.0f s %s", waited, ranks_whom());
        return;
    }
    ranks_ask(ranks_waits);
    ranks_asks = 1;
    ranks_due = waited + ranks_silence() / 10;
}

/* Waits until requests are over; returns 0 where that takes longer than the limit. Only rank 0 has something
   to save, so the others leave it as long again for that. */
static inline int ranks_await(MPI_Request *requests, int n) {
    double since = MPI_Wtime(), look = 0.1, limit = ranks_limit * (ranks.rank ? 2 : 1);
    int done;
    ranks_due = ranks_silence() * (ranks.rank ? 1.5 : 0.9); /* rank 0 leaves the others a tenth to answer */
    ranks_waits++;
    ranks_asks = ranks_said = 0;
    for (;;) {
        ranks_must(MPI_Testall(n, requests, &done, ranks_statuses));
        if (done) return 1;
        double waited = MPI_Wtime() - since;
        if (waited >= limit) return 0;
        sched_yield();
        if (waited < look) continue;
        ranks_watch(waited);
        look = waited + 0.05;
    }
}

/* Ends the job where waiting has taken too long; rank 0 saves the state. */
static inline void ranks_give_up(void) {
    const char *what = "";
    double limit = ranks_limit * (ranks.rank ? 2 : 1);
    ranks_over = 2;
    if (!ranks.rank)
        what = ranks_keeps(ranks_trainer, 0) ? "; --resume continues" : "; nothing was saved yet";
    ranks_say("has given up after %g s of waiting %s%s", limit, ranks_whom(), what);
    ranks_abort();
}

/* Gives all ranks n bytes of rank 0. */
static inline void ranks_tell(void *bytes, size_t n) {
    MPI_Request request;
    ranks_must(MPI_Ibcast(bytes, (int)n, MPI_BYTE, 0, MPI_COMM_WORLD, &request));
    if (!ranks_await(&request, 1)) ranks_give_up();
}

/* Gives all ranks the sum of few values, or what `op` is, along a tree; returns whether that was possible
   within the limit. */
static inline int ranks_combine(void *values, int n, MPI_Datatype type, MPI_Op op) {
    MPI_Request request;
    const void *mine = ranks.rank ? values : MPI_IN_PLACE;
    ranks_must(MPI_Ireduce(mine, values, n, type, op, 0, MPI_COMM_WORLD, &request));
    if (!ranks_await(&request, 1)) return 0;
    ranks_must(MPI_Ibcast(values, n, type, 0, MPI_COMM_WORLD, &request));
    return ranks_await(&request, 1);
}

/* timeout: an option, the seconds after which a wait ends the job. keeps: ranks_keeps */
static inline void ranks_patience(const setting *timeout, int (*keeps)(cmha_trainer *, int)) {
    ranks_keeps = keeps;
    if (timeout->value) ranks_limit = number_of(timeout, 1, 1e6);
}

/* From here on there is a state to save. */
static inline void ranks_savable(cmha_trainer *trainer) { ranks_trainer = trainer; }

/* ---- Agreements ---- */

/* Tells the others whether this rank fails, and with which status; who fails of itself goes before who only
   echoes, and lower ranks before higher ones. Returns whether this rank is the one to say why; *status
   becomes that one's, 0 if none fails, and *stop the largest. */
static inline int ranks_settle(int *status, int *stop) {
    long long n = (long long)ranks.ranks, after = n - 1 - (long long)ranks.rank;
    long long mine = *status ? ((ranks_echo ? 0 : n) + after) * 256 + *status : 0, news[2] = {mine, *stop};
    if (!ranks_combine(news, 2, MPI_LONG_LONG, MPI_MAX)) ranks_give_up();
    *status = (int)(news[0] % 256), *stop = (int)news[1];
    ranks_over = *status != 0;
    return *status && news[0] == mine;
}

/* Goes on with all ranks or ends with them; returns the signal that asked one of them to stop, or 0. */
static inline int ranks_agree(int stop) {
    int status = 0;
    if (ranks_lost) ranks_give_up();
    ranks_settle(&status, &stop);
    if (status) exit(status);
    return stop;
}

static inline int ranks_stop(volatile sig_atomic_t *stop) {
    int agreed = ranks_agree(*stop);
    if (agreed) *stop = agreed;
    return agreed;
}

/* What complain asks before it prints. */
static inline int ranks_speaks(int *status, char line[TEXT_ERROR]) {
    int stop = 0, first = *status && !ranks_over ? ranks_settle(status, &stop) : !ranks.rank;
    if (*status && ranks.rank) {
        char why[TEXT_ERROR];
        memcpy(why, line, sizeof why);
        text_fail(line, "rank %zu on %.60s: %.400s", ranks.rank, ranks_host, why);
    }
    return first;
}

/* Ends the program on a status of the library, which has told the other ranks: they have STATE, or a line
   that says so. */
static inline void ranks_check(cmha_status status) {
    if (ranks_lost) ranks_give_up();
    ranks_echo = status == CMHA_ERR_STATE || !strncmp(cmha_error(&ctx), "ranks: another", 14);
    check(status);
}

/* ---- What has to be equal ---- */

typedef struct ranks_facts {
    char host[MPI_MAX_PROCESSOR_NAME];
    size_t n;
    char text[32000]; /* lines, each with its NUL */
} ranks_facts;

static inline void ranks_fact(ranks_facts *f, const char *format, ...) {
    va_list list;
    va_start(list, format);
    int n = vsnprintf(f->text + f->n, sizeof f->text - f->n, format, list);
    va_end(list);
    if (n < 0 || (size_t)n >= sizeof f->text - f->n) complain(2, "too long options for several ranks", "");
    f->n += (size_t)n + 1;
}

/* Ends the program unless all ranks have the lines of rank 0; what differs first is said. Frees `mine`. */
static inline void ranks_compare(ranks_facts *mine) {
    ranks_facts *first = (ranks_facts *)take(1, sizeof *first);
    const char *a = mine->text, *b = first->text;
    char line[TEXT_ERROR];
    memcpy(mine->host, ranks_host, sizeof ranks_host);
    *first = *mine;
    ranks_agree(0);
    ranks_tell(first, sizeof *first);
    while (*a && !strcmp(a, b)) a += strlen(a) + 1, b += strlen(b) + 1;
    if (*a || *b) {
        snprintf(line, sizeof line, "%.170s, but %.170s on rank 0 (%.60s)", a, b, first->host);
        complain(1, line, "");
    }
    ranks_agree(0);
    free(first), free(mine);
}

static inline ranks_facts *ranks_no_facts(void) { return (ranks_facts *)take(1, sizeof(ranks_facts)); }

/* Mixes bytes into a hash, eight at a time. */
static inline uint64_t ranks_hash(uint64_t hash, const void *data, size_t bytes) {
    const unsigned char *at = (const unsigned char *)data;
    for (size_t some; bytes; at += some, bytes -= some) {
        uint64_t word = 0;
        some = bytes < sizeof word ? bytes : sizeof word;
        if (some == sizeof word) memcpy(&word, at, sizeof word);
        else memcpy(&word, at, some);
        hash = (hash ^ word) * 0x9E3779B97F4A7C15u, hash ^= hash >> 32;
    }
    return hash;
}

static inline void ranks_fact_hash(ranks_facts *f, const char *what, const void *data, size_t bytes) {
    ranks_fact(f, "%s with the hash %016llx", what, (unsigned long long)ranks_hash(bytes, data, bytes));
}

/* Options that all ranks need alike; not those of the bits of `own`. */
static inline void ranks_same_options(const setting *options, int n, uint32_t own) {
    ranks_facts *f = ranks_no_facts();
    for (const setting *o = options; o < options + n; o++)
        if (!(own >> (o - options) & 1))
            ranks_fact(f, "%s %s", o->value ? o->name : "no", o->value ? o->value : o->name);
    ranks_compare(f);
}

/* Everything that decides about what is learnt, before the first step. */
static inline void ranks_same_start(const cmha_trainer *trainer, const cmha_tokens *text) {
    const cmha_parameters *p = &trainer->model->parameters;
    const cmha_table tables[2] = {cmha_model_table(), cmha_trainer_table()};
    const void *configs[2] = {&trainer->model->config, &trainer->config};
    uint64_t tuned_how = 0;
    if (ranks.ranks == 1) return;
    ranks_facts *f = ranks_no_facts();
    for (int t = 0; t < 2; t++)
        for (size_t i = 0; i < tables[t].count; i++) {
            char value[32];
            cmha_config_get(tables[t], configs[t], tables[t].fields[i].name, value, sizeof value);
            ranks_fact(f, "%s=%s", tables[t].fields[i].name, value);
        }
    for (size_t i = 0; i < ctx.config.n_scores; i++) ranks_fact(f, "own score %s", ctx.config.scores[i].name);
    for (size_t i = 0; i < ctx.config.n_optimisers; i++)
        ranks_fact(f, "own optimiser %s", ctx.config.optimisers[i].name);
    ranks_fact(f, "seed %llu", (unsigned long long)trainer->seed);
    ranks_fact(f, "sums %s the backward", ranks.begin ? "during" : "after");
    ranks_fact(f, "a text of %zu tokens", text->count);
    ranks_fact_hash(f, "a text", text->data, text->count * (size_t)text->width);
    ranks_fact(f, "%zu parameters that learn", p->learning);
    for (const cmha_parameter *one = p->list; one < p->list + p->count; one++) {
        const double how[4] = {one->frozen, one->lr_scale, one->decay, one->chosen};
        tuned_how = ranks_hash(tuned_how, how, sizeof how);
    }
    ranks_fact_hash(f, "rates at which parameters learn", &tuned_how, sizeof tuned_how);
    ranks_fact(f, "step %zu, best loss %.17g", trainer->step, trainer->best);
    ranks_fact_hash(f, "weights", p->data, p->size * sizeof *p->data);
    ranks_fact_hash(f, "moments", p->moments, p->moments ? p->work * sizeof *p->moments : 0);
    ranks_compare(f);
}

/* That the ranks have stayed equal */
static inline void ranks_same_weights(const cmha_trainer *trainer) {
    const cmha_parameters *p = &trainer->model->parameters;
    if (ranks.ranks == 1) return;
    ranks_facts *f = ranks_no_facts();
    ranks_fact(f, "step %zu", trainer->step);
    ranks_fact_hash(f, "weights", p->data, p->size * sizeof *p->data);
    ranks_compare(f);
}

/* ---- What rank 0 alone has ---- */

/* Gives all ranks the n bytes of rank 0, in memory of malloc. */
static inline void ranks_give(char **bytes, size_t *n) {
    unsigned long long size = *n;
    ranks_agree(0);
    ranks_tell(&size, sizeof size);
    if (ranks.rank) *n = (size_t)size, *bytes = (char *)take(*n, 1);
    ranks_agree(0);
    for (size_t at = 0, some; at < *n; at += some) {
        some = *n - at < RANKS_PIECE ? *n - at : RANKS_PIECE;
        ranks_tell(*bytes + at, some);
    }
}

/* Lets all ranks find at `path` what rank 0 finds there, for machines do not always share their files; NULL:
   that was it. */
static inline void ranks_bring(const char *path) {
    static cmha_buffer files[2];
    static char *bytes;
    free(bytes), bytes = NULL;
    memset(files, 0, sizeof files), memset(&ctx.config.files, 0, sizeof ctx.config.files);
    if (!path || ranks.ranks == 1) return;
    if (!ranks.rank) must(text_read(path, SIZE_MAX, &bytes, &files[0].size, failure));
    ranks_give(&bytes, &files[0].size);
    files[0].name = path, files[0].data = bytes;
    ctx.config.files = cmha_buffers(files);
}

/* Gives all ranks the tokenizer that rank 0 has opened. */
static inline void ranks_speak(codec *words) {
    char *text = NULL;
    size_t n = 0;
    if (ranks.ranks == 1) return;
    if (!ranks.rank) must(codec_written(words, &text, &n, failure));
    ranks_give(&text, &n);
    if (ranks.rank && n) must(codec_read(words, text, n, "the tokenizer of rank 0", failure));
    free(text);
}

/* Is it this rank's turn to make the file `path`, and does it not see there what rank 0, whose turn comes
   first, has made? So each of those file systems that machines share gets it once. */
static inline int ranks_lack(size_t turn, const char *path) {
    static unsigned long long made;
    int mine = turn == ranks.rank, made_now = turn == 1 && !ranks.rank;
    cmha_tokens seen;
    unsigned long long hash = 0;
    ranks_agree(0);
    if (((mine && turn) || made_now) && !cmha_tokens_open(&seen, &ctx, path, 2)) {
        hash = ranks_hash(seen.count, seen.data, seen.count * 2);
        cmha_tokens_close(&seen);
    }
    if (made_now) made = hash;
    if (turn == 1) ranks_tell(&made, sizeof made);
    return mine && (!turn || hash != made);
}

/* ---- Sums ---- */

/* Values of a sum, which a ring parts among the ranks: more for many, for messages not to shrink */
static inline size_t ranks_piece(void) {
    size_t parts = (ranks.ranks < 8192 ? ranks.ranks : 8192) * RANKS_PART;
    return (parts > RANKS_PIECE ? parts : RANKS_PIECE) / sizeof(cmha_real);
}

/* Waits for all sums that are under way. */
static inline cmha_status ranks_wait_begun(void) {
    if (!ranks_lost) ranks_lost = !ranks_await(ranks_begun, ranks_n_begun);
    ranks_n_begun = 0;
    return ranks_lost ? CMHA_ERR_IO : CMHA_OK;
}

/* Begins to sum the last n of the values that are held back. */
static inline cmha_status ranks_sum_held(size_t n) {
    if (ranks_n_begun == RANKS_BEGUN) ranks_wait_begun();
    if (ranks_lost) return CMHA_ERR_IO;
    ranks_n_held -= n;
    ranks_must(MPI_Iallreduce(MPI_IN_PLACE, ranks_held + ranks_n_held, (int)n, RANKS_REAL, MPI_SUM,
                              MPI_COMM_WORLD, &ranks_begun[ranks_n_begun++]));
    return CMHA_OK;
}

/* Values that lie just before those of the last call, as the library begins them, are summed together. */
static inline cmha_status ranks_begin(void *user, cmha_real *values, size_t n) {
    cmha_status status = CMHA_OK;
    (void)user;
    if (ranks_n_held && values + n != ranks_held) status = ranks_sum_held(ranks_n_held);
    ranks_held = values;
    ranks_n_held += n;
    while (ranks_n_held >= ranks_piece()) {
        if (status) return status;
        status = ranks_sum_held(ranks_piece());
    }
    return status;
}

static inline cmha_status ranks_wait(void *user, int all) {
    double before = MPI_Wtime();
    cmha_status status = CMHA_OK;
    int done;
    (void)user;
    if (ranks_lost) return CMHA_ERR_IO;
    if (!all) ranks_must(MPI_Testall(ranks_n_begun, ranks_begun, &done, ranks_statuses));
    if (all && ranks_n_held) status = ranks_sum_held(ranks_n_held);
    if (all && !status) status = ranks_wait_begun();
    ranks_seconds += MPI_Wtime() - before;
    return status;
}

static inline cmha_status ranks_reduce(void *user, cmha_real *values, size_t n) {
    double before = MPI_Wtime();
    if (ranks_lost) return CMHA_ERR_IO;
    if (n * sizeof *values > RANKS_FEW * ranks.ranks)
        return ranks_begin(user, values, n) ? CMHA_ERR_IO : ranks_wait(user, 1);
    ranks_lost = !ranks_combine(values, (int)n, RANKS_REAL, MPI_SUM);
    ranks_seconds += MPI_Wtime() - before;
    return ranks_lost ? CMHA_ERR_IO : CMHA_OK;
}

/* The mean of x over the ranks; 0 where a wait takes too long, which the next wait tells. */
static inline double ranks_mean(double x) {
    if (!ranks_lost) ranks_lost = !ranks_combine(&x, 1, MPI_DOUBLE, MPI_SUM);
    return ranks_lost ? 0 : x / (double)ranks.ranks;
}

static inline double ranks_spent(void) { return ranks_seconds; }

/* Joins the ranks' trainers. overlap: an option, 1: gradients are summed while the backward goes on. Without
   a value they are where there are several machines; on one there is little to wait for. */
static inline void ranks_share(cmha_trainer *trainer, const setting *overlap) {
    int begins = overlap->value ? (int)whole_of(overlap, 0, 1) : ranks_apart;
    ranks.reduce = ranks_reduce;
    if (begins) ranks.begin = ranks_begin, ranks.wait = ranks_wait;
    check(cmha_trainer_share(trainer, &ranks));
}

/* ---- From start to end ---- */

/* Ranks that may run on the same cores of a machine, as mpich starts them, get equal parts of these as their
   threads; not where OMP_NUM_THREADS or --threads says how many. */
static inline void ranks_part_cores(MPI_Comm machine) {
#if defined(_OPENMP) && defined(__linux__)
    enum { CORES = 4096, WORD = 8 * sizeof(long) };
    static unsigned long allowed[CORES / WORD];
    static int mine[CORES], all[CORES];
    double part = 1e-6;
    (void)syscall(SYS_sched_getaffinity, 0, sizeof allowed, allowed);
    for (int i = 0; i < CORES; i++) mine[i] = allowed[i / WORD] >> i % WORD & 1;
    ranks_must(MPI_Allreduce(mine, all, CORES, MPI_INT, MPI_SUM, machine));
    for (int i = 0; i < CORES; i++)
        if (mine[i]) part += 1.0 / all[i];
    if (part < omp_get_max_threads() && !getenv("OMP_NUM_THREADS"))
        omp_set_num_threads(part < 1 ? 1 : (int)part);
#else
    (void)machine;
#endif
}

/* Looks who else is on this machine; returns the lowest rank. */
static inline int ranks_look_around(void) {
    MPI_Comm machine;
    int here, lowest = (int)ranks.rank;
    ranks_must(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine));
    ranks_must(MPI_Comm_size(machine, &here));
    ranks_apart = (size_t)here < ranks.ranks;
    if (here > 1) ranks_part_cores(machine);
    ranks_must(MPI_Allreduce(MPI_IN_PLACE, &lowest, 1, MPI_INT, MPI_MIN, machine));
    ranks_must(MPI_Comm_free(&machine));
    return lowest;
}

/* A program of one MPI under the mpirun of another would run several times, each time as the only rank. */
static inline void ranks_check_start(void) {
    int rank, first;
    const char *size = ranks_asked_for(&rank, &first);
    if (ranks.ranks == 1 && size)
        ranks_refuse(!rank, "this mpirun is not that of the MPI which the program was built with; ranks "
                            "asked for: ", size);
}

/* The last thing of a process, however it ends */
static void ranks_end(void) {
    int status = 0, stop = 0;
    fflush(NULL);
    if (ranks.rank) ranks_limit = 1e9; /* rank 0 may still be at its sample */
    if (ranks.rank) ranks_first = 1e9;
    if (!ranks_over) ranks_settle(&status, &stop);
    if (ranks_over != 2) MPI_Finalize();
    if (status) _exit(status);
}

/* Has Open MPI, unless the user says otherwise, send both ways over a TCP link at its full rate, and sum
   in a ring, where each of R ranks sends 2 (R - 1) / R of the values. Its other ways have some ranks send up
   to 3 times the values. */
static inline void ranks_tune(void) {
    setenv("OMPI_MCA_btl_tcp_flags", "send", 0);
    setenv("OMPI_MCA_coll_libnbc_iallreduce_algorithm", "ring", 0);
}

static void ranks_no_start(int number) {
    static const char line[] = PROGRAM ": still waits for the other ranks to start: does every program of "
                                       "this job use MPI, and do the machines reach each other?\n";
    (void)number;
    if (write(2, line, sizeof line - 1) < 0) _exit(1);
}

/* Lets the first rank of a program say so once after some seconds of a start, in which MPI alone waits; 0: it
   has ended. */
static inline void ranks_watch_start(int s) {
    struct sigaction action;
    int rank, first;
    memset(&action, 0, sizeof action);
    action.sa_handler = ranks_no_start, action.sa_flags = SA_RESTART;
    if (!ranks_asked_for(&rank, &first) || !first) return;
    sigaction(SIGALRM, &action, NULL);
    alarm((unsigned)s);
}

/* Meets the other ranks, after start_program, which may execute the program again. Only rank 0 keeps its
   standard output. SIGUSR1, which mpirun hands on, asks to stop as well. */
static inline void ranks_start(void (*on_signal)(int)) {
    int rank, n, level;
    ranks_facts *f;
    const setting patience = {"CMHA_PATIENCE", getenv("CMHA_PATIENCE"), NULL};
    ranks_tune();
    ranks_watch_start(patience.value ? atoi(patience.value) : 30);
    ranks_must(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level));
    atexit(ranks_end);
    ranks_must(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    ranks_must(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    ranks_must(MPI_Comm_size(MPI_COMM_WORLD, &n));
    ranks_must(MPI_Get_processor_name(ranks_host, &level));
    ranks.rank = (size_t)rank, ranks.ranks = (size_t)n, speaks = ranks_speaks;
    signal(SIGUSR1, on_signal);
    ranks_check_start();
    if (rank && !freopen("/dev/null", "w", stdout)) complain(1, "cannot open /dev/null", "");
    ranks_meet(ranks_look_around());
    ranks_watch_start(0);
    if (patience.value) ranks_first = number_of(&patience, 1, 1e6);
    f = ranks_no_facts();
    ranks_fact(f, "cmha %d.%d.%d with numbers of %zu bytes", CMHA_VERSION_MAJOR, CMHA_VERSION_MINOR,
               CMHA_VERSION_PATCH, sizeof(cmha_real));
    ranks_compare(f);
}

#endif
#endif
