/* Threads of the caller's: two contexts in two threads at once, and one model that several caches in
   several threads read. What comes out must be what one thread computes alone, to the bit; likewise in a
   child of fork(). `make tsan` runs it under ThreadSanitizer, without OpenMP and OpenBLAS, whose own
   threads that tool does not understand. */
#include "check.h"

#if defined(_WIN32) || defined(__EMSCRIPTEN__)

int main(void) {
    printf("SKIP this test needs POSIX threads\n0 passed, 0 failed, 1 skipped\n");
    return 0;
}

#else

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORKERS = 4, STEPS = 12, TOKENS = 24, VOCABULARY = 19, STREAM = 200 };

static int32_t stream[STREAM];
static const char *const kinds[] = {"cmha",           "cope-hybrid_norm", "mobius+rope", "angular",
                                    "angular-linear", "alibi",            "pope",        "ropepp"};
enum { KINDS = sizeof kinds / sizeof *kinds };

static cmha_model_config config_of(cmha_context *context, const char *kind) {
    cmha_model_config m = check_model_config();
    m.max_positions = 64, m.dropout = 0.1;
    if (cmha_kind(context, kind, &m)) m.n_layers = 0; /* refused by cmha_model_init */
    return m;
}

/* A life of its own: context, model, training and decoding. What it computed, as
   one number; 0 if anything failed. */
typedef struct life {
    const char *kind;
    int threads;
    uint64_t seed, digest;
    char line[256];
} life;

static uint64_t digest(uint64_t d, const void *data, size_t bytes) {
    const unsigned char *at = (const unsigned char *)data;
    while (bytes-- > 0) d = (d ^ *at++) * 0x100000001b3u;
    return d;
}

static cmha_status learn(life *l, cmha_model *model) {
    cmha_trainer_config t;
    cmha_trainer trainer;
    cmha_tokens tokens;
    cmha_status status;
    double loss = 0;
    int i;
    cmha_config_defaults(cmha_trainer_table(), &t);
    memset(&tokens, 0, sizeof tokens);
    tokens.data = stream, tokens.count = STREAM, tokens.width = 4;
    t.batch = 2, t.length = 16, t.lr = 0.01, t.steps = STEPS;
    status = cmha_trainer_init(&trainer, model, &t);
    for (i = 0; !status && i < STEPS; i++) {
        status = cmha_trainer_step(&trainer, &tokens, &loss);
        l->digest = digest(l->digest, &loss, sizeof loss);
    }
    if (!status) status = cmha_trainer_evaluate(&trainer, &tokens, &loss);
    l->digest = digest(digest(l->digest, &loss, sizeof loss), model->parameters.data,
                       model->parameters.size * sizeof *model->parameters.data);
    cmha_trainer_close(&trainer);
    return status;
}

static cmha_status decode(life *l, cmha_model *model) {
    cmha_cache cache;
    cmha_status status = cmha_cache_init(&cache, model, 1, 20, 1, NULL);
    if (!status) status = cmha_generate(&cache, stream, 3, TOKENS, NULL, l->seed, NULL, NULL);
    if (!status) l->digest = digest(l->digest, cache.ids, cache.length * sizeof *cache.ids);
    cmha_cache_close(&cache);
    return status;
}

static void *live(void *at) {
    life *l = (life *)at;
    cmha_context context;
    cmha_context_config config;
    cmha_model_config m;
    cmha_model model;
    cmha_status status;
    memset(&config, 0, sizeof config);
    config.threads = l->threads, config.seed = l->seed;
    config.keep_blas_threads = 1; /* main's context has set it */
    l->digest = 0xcbf29ce484222325u, l->line[0] = 0;
    status = cmha_context_init(&context, &config);
    m = config_of(&context, l->kind);
    if (!status) status = cmha_model_init(&model, &context, &m);
    if (status) {
        snprintf(l->line, sizeof l->line, "%s", cmha_error(&context)), l->digest = 0;
        return NULL;
    }
    status = learn(l, &model);
    if (!status) status = decode(l, &model);
    if (status) snprintf(l->line, sizeof l->line, "%s", cmha_error(&context)), l->digest = 0;
    cmha_model_close(&model), cmha_context_close(&context);
    return NULL;
}

/* Lives of different kinds at once, after each alone. */
static void contexts_at_once(void) {
    life alone[WORKERS], together[WORKERS];
    pthread_t threads[WORKERS];
    size_t first, i;
    for (first = 0; first + WORKERS <= KINDS + 1; first += WORKERS - 1) {
        for (i = 0; i < WORKERS; i++) {
            alone[i].kind = kinds[(first + i) % KINDS], alone[i].seed = 5 + i, alone[i].threads = 1;
            live(&alone[i]);
            CHECK_THAT(alone[i].digest != 0, "%s alone: %s", alone[i].kind, alone[i].line);
            together[i] = alone[i];
        }
        for (i = 0; i < WORKERS; i++)
            if (pthread_create(&threads[i], NULL, live, &together[i]))
                CHECK_THAT(0, "thread %zu does not start", i);
        for (i = 0; i < WORKERS; i++) pthread_join(threads[i], NULL);
        for (i = 0; i < WORKERS; i++)
            CHECK_THAT(together[i].digest == alone[i].digest, "%s, seed %zu: other numbers in company (%s)",
                       alone[i].kind, (size_t)alone[i].seed, together[i].line);
    }
}

/* What a child of this process computes, 0 if it does not come back. */
static uint64_t digest_of_child(life *l) {
    uint64_t got = 0;
    int ends[2];
    pid_t child;
    if (pipe(ends)) return 0;
    fflush(stdout);
    child = fork();
    if (!child) {
        alarm(30);
        live(l);
        _exit(write(ends[1], &l->digest, sizeof got) != (ssize_t)sizeof got);
    }
    close(ends[1]);
    if (child < 0 || read(ends[0], &got, sizeof got) != (ssize_t)sizeof got) got = 0;
    close(ends[0]);
    if (child > 0) (void)waitpid(child, NULL, 0);
    return got;
}

/* What the manual says of fork(): threads work in a child of a process without any, one thread in all. */
static void forks(void) {
    life one = {"cmha", 1, 3, 0, ""}, two = {"cmha", 2, 3, 0, ""};
    uint64_t before = digest_of_child(&two), after;
    live(&two);
    CHECK_THAT(before == two.digest && before, "a child that begins the threads: other numbers");
    after = digest_of_child(&one);
    live(&one);
    CHECK_THAT(after == one.digest && after, "a child of threads that has one: other numbers");
}

/* A reader of a model that others read at the same time, through a cache of its own. */
typedef struct reader {
    cmha_model *model;
    uint64_t seed, digest;
    cmha_status status;
} reader;

static void *read_model(void *at) {
    reader *r = (reader *)at;
    cmha_cache cache;
    cmha_real logits[VOCABULARY];
    int i;
    r->digest = 0xcbf29ce484222325u;
    r->status = cmha_cache_init(&cache, r->model, 1, TOKENS, 0, NULL);
    for (i = 0; !r->status && i < TOKENS; i++) {
        r->status = cmha_cache_append(&cache, stream + r->seed + (size_t)i, 1, logits);
        r->digest = digest(r->digest, logits, sizeof logits);
    }
    cmha_cache_close(&cache);
    return NULL;
}

/* One model, trained a little, then read by several caches in several threads. */
static void shared_model(const char *kind) {
    cmha_context context;
    cmha_model_config m;
    cmha_model model;
    life l;
    reader alone[WORKERS], together[WORKERS];
    pthread_t threads[WORKERS];
    size_t i;
    check_context(&context, 1, 3);
    m = config_of(&context, kind);
    if (!CHECK_THAT(!cmha_model_init(&model, &context, &m), "%s: %s", kind, cmha_error(&context))) return;
    l.digest = 1;
    CHECK_OK(learn(&l, &model));
    for (i = 0; i < WORKERS; i++) {
        alone[i].seed = i * 7;
        alone[i].model = &model;
        read_model(&alone[i]);
        CHECK_OK(alone[i].status);
        together[i] = alone[i];
    }
    CHECK(alone[0].digest != alone[1].digest);
    for (i = 0; i < WORKERS; i++)
        if (pthread_create(&threads[i], NULL, read_model, &together[i]))
            CHECK_THAT(0, "thread %zu does not start", i);
    for (i = 0; i < WORKERS; i++) pthread_join(threads[i], NULL);
    for (i = 0; i < WORKERS; i++) {
        CHECK_OK(together[i].status);
        CHECK_THAT(together[i].digest == alone[i].digest, "%s: reader %zu sees other numbers in company",
                   kind, i);
    }
    cmha_model_close(&model), cmha_context_close(&context);
}

/* Losses and logits of a model whose passes have four chunks and 1 .. 4 threads in turn, or as many as they
   like. */
static uint64_t digest_of_teams(const char *kind, int in_turn) {
    uint64_t d = 0xcbf29ce484222325u;
    cmha_context context;
    cmha_model_config m;
    cmha_model model;
    cmha_cache cache;
    cmha_real logits[VOCABULARY];
    cmha_batch batch = {stream, stream + 1, NULL, 3, 16, NULL, NULL, NULL, NULL, NULL};
    double loss = 0;
    check_context(&context, 4, 3);
    m = config_of(&context, kind);
    if (!CHECK_THAT(!cmha_model_init(&model, &context, &m), "%s: %s", kind, cmha_error(&context))) return 0;
    for (int i = 0; i < 8; i++) {
        if (in_turn) model.tape.team.threads = 1 + i % 4;
        CHECK_OK(cmha_model_gradient(&model, &batch, 1, 7, &loss));
        d = digest(d, &loss, sizeof loss);
        d = digest(d, model.parameters.grad, model.parameters.learning * sizeof *model.parameters.grad);
    }
    CHECK_OK(cmha_cache_init(&cache, &model, 1, TOKENS, 0, NULL));
    for (int i = 0; i < TOKENS; i++) {
        if (in_turn) cache.tape.team.threads = 1 + i % 4;
        CHECK_OK(cmha_cache_append(&cache, stream + i, 1, logits));
        d = digest(d, logits, sizeof logits);
    }
    cmha_cache_close(&cache), cmha_model_close(&model), cmha_context_close(&context);
    return d;
}

/* The number of threads follows the time of passes: what was faster twice stays, then it is tried rarely. */
static void teams(void) {
    cmha_context context;
    cmha_model_config m;
    cmha_model model;
    cmha_cache cache;
    cmha_team *team = &cache.tape.team;
    for (size_t i = 0; i < KINDS; i++)
        CHECK_THAT(digest_of_teams(kinds[i], 1) == digest_of_teams(kinds[i], 0), "%s: bits", kinds[i]);
    check_context(&context, 4, 3);
    m = config_of(&context, "cmha");
    CHECK_OK(cmha_model_init(&model, &context, &m));
    CHECK_OK(cmha_cache_init(&cache, &model, 1, 64, 0, NULL));
    CHECK_OK(cmha_cache_append(&cache, stream, 1, NULL));
    if (context.threads == 4) {
        const int fall[] = {4, 2, 2, 1}, rise[] = {1, 2, 2, 4};
        CHECK(team->rows == 1 && team->threads == 4 && team->mean > 0 && team->left == 7 && team->pause == 8);
        for (int i = 0; i < 4; i++) { /* whatever is tried is faster than a pass of 1,000 s */
            team->left = 0, team->mean = 1000, team->grows = 0;
            CHECK_OK(cmha_cache_append(&cache, stream, 1, NULL));
            CHECK_THAT(team->threads == fall[i], "fall %d: %d threads", i, team->threads);
        }
        for (int i = 0; i < 4; i++) {
            team->left = 0, team->mean = 1000, team->grows = 1;
            CHECK_OK(cmha_cache_append(&cache, stream, 1, NULL));
            CHECK_THAT(team->threads == rise[i], "rise %d: %d threads", i, team->threads);
        }
        for (int i = 0; i < 5; i++) { /* none is faster than one of no time */
            team->left = 0, team->mean = 0;
            CHECK_OK(cmha_cache_append(&cache, stream, 1, NULL));
            CHECK_THAT(team->threads == 4 && team->left == team->pause, "%d threads", team->threads);
            CHECK_THAT(team->pause == (i < 3 ? (size_t)32 << 2 * i : 512), "pause %zu", team->pause);
        }
        /* other passes begin anew; prompts change nothing */
        CHECK_OK(cmha_cache_append(&cache, stream, 2, NULL));
        CHECK(team->rows == 2 && team->pause == 8);
        CHECK_OK(cmha_cache_append(&cache, stream, 9, NULL));
        CHECK(team->rows == 2 && team->threads == 4);
    } else printf("SKIP teams: no OpenMP\n");
    cmha_cache_close(&cache), cmha_model_close(&model), cmha_context_close(&context);
}

/* The threads that this program, started anew with an OpenMP setting, sees after its restart. */
static int threads_under(const char *program, const char *setting) {
    char command[1000];
    int length = snprintf(command, sizeof command, "env -u GOMP_SPINCOUNT -u OMP_NUM_THREADS %s '%s' count",
                          setting, program);
    int status = length < (int)sizeof command ? system(command) : -1;
    return status != -1 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* A thread that OpenMP has bound to one core before main leaves the restarted program all of them. */
static void restarts_unbound(const char *program) {
    int threads = threads_under(program, "OMP_PROC_BIND=false");
    CHECK_THAT(threads > 0, "the program counts %d threads", threads);
    if (threads == 1) printf("SKIP restarts of a bound thread: there is one core\n");
    CHECK_THAT(threads_under(program, "OMP_PROC_BIND=true") == threads, "bound, it has fewer threads");
    CHECK_THAT(threads_under(program, "OMP_PLACES=cores") == threads, "in places, it has fewer threads");
}

int main(int argc, char **argv) {
    cmha_context first; /* holds the BLAS at one thread for as long as the others run */
    size_t i;
    cmha_blas_restart(argv);
    if (argc > 1) {
        check_context(&first, 0, 1);
        return first.threads < 100 ? first.threads : 100;
    }
    restarts_unbound(argv[0]);
    check_seed = 12;
    for (i = 0; i < STREAM; i++) stream[i] = (int32_t)check_below(VOCABULARY);
    check_context(&first, 1, 1);
    forks(); /* first, before any other thread */
    contexts_at_once();
    for (i = 0; i < KINDS; i++) shared_model(kinds[i]);
    teams();
    cmha_context_close(&first);
    return check_end();
}

#endif
