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

#ifndef WITH_MPI

static const cmha_ranks ranks = {0, 1, NULL, NULL, NULL, NULL};

static inline void ranks_start(void (*on_signal)(int)) { (void)on_signal; }
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
    (void)trainer, (void)(overlap->value && whole_of(overlap, 0, 1));
}
static inline double ranks_spent(void) { return 0; }

#else

#include <mpi.h>
#ifdef _OPENMP
#include <omp.h>
#endif
#ifdef __linux__
#include <sys/syscall.h>
#endif

#define RANKS_REAL (sizeof(cmha_real) == 8 ? MPI_DOUBLE : MPI_FLOAT)
enum { RANKS_PIECE = 1 << 20, RANKS_BEGUN = 4096 }; /* bytes of a message; sums under way at once */

static cmha_ranks ranks = {0, 1, NULL, NULL, NULL, NULL}; /* alone, until ranks_start */
static char ranks_host[MPI_MAX_PROCESSOR_NAME];
static int ranks_apart;      /* the ranks are on more than one machine */
static int ranks_over;       /* 1: all know that this is the end; 2: MPI has failed */
static int ranks_echo;       /* this rank fails only because another one does */
static double ranks_seconds; /* spent in sums of the library */
static MPI_Request ranks_begun[RANKS_BEGUN];
static MPI_Status ranks_statuses[RANKS_BEGUN];
static int ranks_n_begun;

/* ---- Agreements ---- */

/* Where MPI itself fails there is nothing left to agree on. */
static inline void ranks_must(int code) {
    char why[MPI_MAX_ERROR_STRING];
    int n;
    if (code == MPI_SUCCESS) return;
    MPI_Error_string(code, why, &n);
    fprintf(stderr, PROGRAM ": rank %zu on %s: %s\n", ranks.rank, ranks_host, why);
    ranks_over = 2;
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Tells the others whether this rank fails, and with which status; who fails of itself goes before who only
   echoes, and lower ranks before higher ones. Returns whether this rank is the one to say why; *status
   becomes that one's, 0 if none fails, and *stop the largest. */
static inline int ranks_settle(int *status, int *stop) {
    long long n = (long long)ranks.ranks, after = n - 1 - (long long)ranks.rank;
    long long mine = *status ? ((ranks_echo ? 0 : n) + after) * 256 + *status : 0, news[2] = {mine, *stop};
    ranks_must(MPI_Allreduce(MPI_IN_PLACE, news, 2, MPI_LONG_LONG, MPI_MAX, MPI_COMM_WORLD));
    *status = (int)(news[0] % 256), *stop = (int)news[1];
    ranks_over = *status != 0;
    return *status && news[0] == mine;
}

/* Goes on with all ranks or ends with them; returns the signal that asked one of them to stop, or 0. */
static inline int ranks_agree(int stop) {
    int status = 0;
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
    ranks_must(MPI_Bcast(first, (int)sizeof *first, MPI_BYTE, 0, MPI_COMM_WORLD));
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
    ranks_fact(f, "seed %llu", (unsigned long long)trainer->seed);
    ranks_fact(f, "sums %s the backward", ranks.begin ? "during" : "after");
    ranks_fact(f, "a text of %zu tokens", text->count);
    ranks_fact_hash(f, "a text", text->data, text->count * (size_t)text->width);
    ranks_fact(f, "%zu parameters that learn", p->learning);
    for (const cmha_parameter *one = p->list; one < p->list + p->count; one++) {
        const double how[3] = {one->frozen, one->lr_scale, one->decay};
        tuned_how = ranks_hash(tuned_how, how, sizeof how);
    }
    ranks_fact_hash(f, "rates at which parameters learn", &tuned_how, sizeof tuned_how);
    ranks_fact(f, "step %zu, best loss %.17g", trainer->step, trainer->best);
    ranks_fact_hash(f, "weights", p->data, p->size * sizeof *p->data);
    ranks_fact_hash(f, "moments", p->moments, p->moments ? 2 * p->learning * sizeof *p->moments : 0);
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
    ranks_must(MPI_Bcast(&size, 1, MPI_UNSIGNED_LONG_LONG, 0, MPI_COMM_WORLD));
    if (ranks.rank) *n = (size_t)size, *bytes = (char *)take(*n, 1);
    ranks_agree(0);
    for (size_t at = 0, some; at < *n; at += some) {
        some = *n - at < RANKS_PIECE ? *n - at : RANKS_PIECE;
        ranks_must(MPI_Bcast(*bytes + at, (int)some, MPI_BYTE, 0, MPI_COMM_WORLD));
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
    if (turn == 1) ranks_must(MPI_Bcast(&made, 1, MPI_UNSIGNED_LONG_LONG, 0, MPI_COMM_WORLD));
    return mine && (!turn || hash != made);
}

/* ---- Sums ---- */

/* In pieces that stay in caches and of which a ring sends one part for each rank. */
static inline cmha_status ranks_reduce(void *user, cmha_real *values, size_t n) {
    const size_t piece = RANKS_PIECE / sizeof *values * (ranks.ranks < 256 ? ranks.ranks : 256);
    double before = MPI_Wtime();
    (void)user;
    for (size_t at = 0, some; at < n; at += some) {
        some = n - at < piece ? n - at : piece;
        ranks_must(MPI_Allreduce(MPI_IN_PLACE, values + at, (int)some, RANKS_REAL, MPI_SUM, MPI_COMM_WORLD));
    }
    ranks_seconds += MPI_Wtime() - before;
    return CMHA_OK;
}

static inline cmha_status ranks_wait(void *user, int all) {
    double before = MPI_Wtime();
    int done;
    (void)user;
    if (all) ranks_must(MPI_Waitall(ranks_n_begun, ranks_begun, ranks_statuses));
    else ranks_must(MPI_Testall(ranks_n_begun, ranks_begun, &done, ranks_statuses));
    if (all) ranks_n_begun = 0;
    ranks_seconds += MPI_Wtime() - before;
    return CMHA_OK;
}

static inline cmha_status ranks_begin(void *user, cmha_real *values, size_t n) {
    const size_t piece = RANKS_PIECE / sizeof *values;
    for (size_t at = 0, some; at < n; at += some) {
        some = n - at < piece ? n - at : piece;
        if (ranks_n_begun == RANKS_BEGUN) ranks_wait(user, 1);
        ranks_must(MPI_Iallreduce(MPI_IN_PLACE, values + at, (int)some, RANKS_REAL, MPI_SUM, MPI_COMM_WORLD,
                                  &ranks_begun[ranks_n_begun++]));
    }
    return CMHA_OK;
}

/* The mean of x over the ranks. */
static inline double ranks_mean(double x) {
    ranks_must(MPI_Allreduce(MPI_IN_PLACE, &x, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    return x / (double)ranks.ranks;
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

/* Looks who else is on this machine. */
static inline void ranks_look_around(void) {
    MPI_Comm machine;
    int here;
    ranks_must(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine));
    ranks_must(MPI_Comm_size(machine, &here));
    ranks_apart = (size_t)here < ranks.ranks;
    if (here > 1) ranks_part_cores(machine);
    ranks_must(MPI_Comm_free(&machine));
}

/* A program of one MPI under the mpirun of another would run several times, each time as the only rank. */
static inline void ranks_check_start(void) {
    static const char *const names[2][2] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
                                            {"PMI_SIZE", "PMI_RANK"}};
    for (int i = 0; i < 2 && ranks.ranks == 1; i++) {
        const char *size = getenv(names[i][0]), *rank = getenv(names[i][1]);
        if (!size || !rank || atoi(size) < 2) continue;
        if (atoi(rank)) exit(1);
        complain(1, "this mpirun is not that of the MPI which the program was built with; ranks asked for: ",
                 size);
    }
}

/* The last thing of a process, however it ends */
static void ranks_end(void) {
    int status = 0, stop = 0;
    fflush(NULL);
    if (!ranks_over) ranks_settle(&status, &stop);
    if (ranks_over != 2) MPI_Finalize();
    if (status) _exit(status);
}

/* Has Open MPI, unless the user says otherwise, send both ways over a TCP link at its full rate, and begin
   sums in a ring, which sends half of what its tree does. */
static inline void ranks_tune(void) {
    setenv("OMPI_MCA_btl_tcp_flags", "send", 0);
    setenv("OMPI_MCA_coll_libnbc_iallreduce_algorithm", "ring", 0);
}

/* Meets the other ranks, after start_program, which may execute the program again. Only rank 0 keeps its
   standard output. SIGUSR1, which mpirun hands on, asks to stop as well. */
static inline void ranks_start(void (*on_signal)(int)) {
    int rank, n, level;
    ranks_facts *f;
    ranks_tune();
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
    f = ranks_no_facts();
    ranks_fact(f, "cmha %d.%d.%d with numbers of %zu bytes", CMHA_VERSION_MAJOR, CMHA_VERSION_MINOR,
               CMHA_VERSION_PATCH, sizeof(cmha_real));
    ranks_compare(f);
    ranks_look_around();
}

#endif
#endif
