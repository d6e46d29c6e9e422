/* Training, inference and memory: learning, determinism, resuming, what is allocated when, and what happens
   when something fails. */
#define _POSIX_C_SOURCE 200809L
#define _DARWIN_C_SOURCE
#include "models.h"
#include "system.h"

static char folder[64] = "/tmp/cmha-training-XXXXXX";

static const char *path_of(const char *name) {
    static char path[4][128];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

/* ------------------------------------------------ a text ------------------------------------------------ */

static double unigram_entropy(const unsigned char *text, size_t n) {
    double count[256] = {0}, h = 0;
    size_t i;
    for (i = 0; i < n; i++) count[text[i]]++;
    for (i = 0; i < 256; i++) h -= count[i] > 0 ? count[i] / (double)n * log(count[i] / (double)n) : 0;
    return h;
}

static unsigned char text[20000];
static cmha_tokens stream;

static cmha_trainer_config trainer_config(void) {
    cmha_trainer_config t;
    cmha_config_defaults(cmha_trainer_table(), &t);
    t.steps = 40, t.batch = 4, t.length = 24, t.lr = 3e-3, t.eval_tokens = 500;
    return t;
}

static cmha_model_config byte_model(void) {
    cmha_model_config m = check_model_config();
    m.vocabulary = 256, m.init_std = 0.05, m.d_model = 32, m.d_ff = 48;
    return m;
}

/* ---------------------------------------- learning, determinism ----------------------------------------- */

static void learns(int attention) {
    cmha_context c;
    cmha_model model;
    cmha_trainer trainer;
    cmha_model_config m = byte_model();
    cmha_trainer_config t = trainer_config();
    cmha_tokens train, held;
    double loss = 0, before = 0, after = 0, entropy = unigram_entropy(text, stream.count);
    size_t i;
    m.attention = attention, m.d_model = 48, m.d_ff = 96, m.max_positions = 64;
    m.position = attention == CMHA_ATTENTION_DOT ? CMHA_POSITION_LEARNED : CMHA_POSITION_NONE;
    t.steps = check_quick() ? 60 : 150, t.batch = 8, t.length = 48, t.lr = 5e-3;
    check_context(&c, 2, 1);
    CHECK_OK(cmha_model_init(&model, &c, &m));
    CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    cmha_trainer_split(&trainer, &stream, &train, &held);
    CHECK(train.count + held.count == stream.count &&
          fabs((double)held.count / (double)stream.count - t.held_out) < 0.01);
    CHECK(train.data == stream.data && held.data == (const void *)(text + train.count));
    CHECK_OK(cmha_trainer_evaluate(&trainer, &held, &before));
    CHECK(before > entropy); /* it knows nothing yet */
    for (i = 0; i < t.steps; i++)
        if (!CHECK_THAT(!cmha_trainer_step(&trainer, &train, &loss), "%s", cmha_error(&c))) break;
    CHECK(trainer.step == t.steps && trainer.grad_norm > 0 && trainer.lr >= 0);
    CHECK_OK(cmha_trainer_evaluate(&trainer, &held, &after));
    CHECK_THAT(after < (check_quick() ? 0.8 : 0.5) * entropy,
               "attention %d: held-out loss %.3f against an entropy of %.3f", attention, after, entropy);
    cmha_trainer_close(&trainer), cmha_model_close(&model), cmha_context_close(&c);
}

/* Losses and final parameters of a run; dropout and accumulation on, so that every
   stream of random numbers is in play */
static void trajectory(uint64_t seed, int threads, double *losses, size_t steps, cmha_real **parameters,
                       size_t *size) {
    cmha_context c;
    cmha_model model;
    cmha_trainer trainer;
    cmha_model_config m = byte_model();
    cmha_trainer_config t = trainer_config();
    size_t i;
    m.dropout = 0.1, m.attention_dropout = 0.1, t.accumulate = 2;
    check_context(&c, threads, seed);
    CHECK_OK(cmha_model_init(&model, &c, &m));
    CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    for (i = 0; i < steps; i++) CHECK_OK(cmha_trainer_step(&trainer, &stream, &losses[i]));
    *size = model.parameters.size;
    *parameters = check_zeros(model.parameters.size);
    memcpy(*parameters, model.parameters.data, model.parameters.size * sizeof(cmha_real));
    cmha_trainer_close(&trainer), cmha_model_close(&model), cmha_context_close(&c);
}

static void deterministic(void) {
    double a[8], b[8], c[8];
    cmha_real *pa, *pb, *pc;
    size_t n, i, differ = 0;
    trajectory(5, 2, a, 8, &pa, &n), trajectory(5, 2, b, 8, &pb, &n), trajectory(6, 2, c, 8, &pc, &n);
    CHECK(!memcmp(a, b, sizeof a) && !memcmp(pa, pb, n * sizeof *pa));
    for (i = 0; i < 8; i++) differ += a[i] != c[i];
    CHECK(differ == 8 && memcmp(pa, pc, n * sizeof *pa));
    free(pa), free(pb), free(pc);
}

/* ----------------------------------------------- resuming ----------------------------------------------- */

static void resumes(uint64_t other_seed) {
    cmha_context c, d;
    cmha_model whole, fresh;
    cmha_trainer a, b;
    cmha_model_config m = byte_model();
    cmha_trainer_config t = trainer_config();
    const char *path = path_of("resume.safetensors");
    double la, lb;
    size_t i;
    m.dropout = 0.2, m.attention_dropout = 0.1, m.pcl_weight = 0.01, t.accumulate = 2, t.steps = 12;
    check_context(&c, 2, 21), check_context(&d, 2, other_seed);
    CHECK_OK(cmha_model_init(&whole, &c, &m));
    CHECK_OK(cmha_trainer_init(&a, &whole, &t));
    for (i = 0; i < 5; i++) CHECK_OK(cmha_trainer_step(&a, &stream, &la));
    a.best = 1.25;
    if (!CHECK_THAT(!cmha_trainer_save(&a, path), "%s", cmha_error(&c))) return;
    CHECK_OK(cmha_model_init(&fresh, &d, &m));
    CHECK_OK(cmha_trainer_init(&b, &fresh, &t));
    CHECK_OK(cmha_trainer_step(&b, &stream, &lb)); /* whatever it did before is forgotten */
    CHECK_THAT(!cmha_trainer_read(&b, path), "%s", cmha_error(&d));
    CHECK(b.step == 5 && b.best == 1.25 && b.seed == a.seed);
    CHECK(!memcmp(whole.parameters.data, fresh.parameters.data, whole.parameters.size * sizeof(cmha_real)));
    for (i = 0; i < 5; i++) {
        CHECK_OK(cmha_trainer_step(&a, &stream, &la));
        CHECK_OK(cmha_trainer_step(&b, &stream, &lb));
        CHECK_THAT(la == lb, "step %zu after resuming: loss %.9g against %.9g", i, lb, la);
    }
    CHECK(!memcmp(whole.parameters.data, fresh.parameters.data, whole.parameters.size * sizeof(cmha_real)));
    CHECK(!memcmp(whole.parameters.moments, fresh.parameters.moments,
                  2 * whole.parameters.size * sizeof(cmha_real)));
    cmha_trainer_close(&a), cmha_trainer_close(&b), cmha_model_close(&whole), cmha_model_close(&fresh);
    cmha_context_close(&c), cmha_context_close(&d);
}

/* ------------------------------------------------ memory ------------------------------------------------ */

static void steps_allocate_nothing(const cmha_model_config *m, const char *label) {
    cmha_trainer_config t = trainer_config();
    t.accumulate = 2;
    models_steps_allocate_nothing(m, &t, &stream, NULL, label);
}

static void memory(void) {
    cmha_model_config m = byte_model();
    steps_allocate_nothing(&m, "cmha");
    m.dropout = 0.1, m.attention_dropout = 0.1, m.activation = CMHA_ACTIVATION_SWIGLU, m.norm = CMHA_NORM_RMS,
    m.tied = 0, m.head_bias = 1;
    steps_allocate_nothing(&m, "cmha, dropout, swiglu");
    m.placement = CMHA_PLACEMENT_POST, m.pcl_weight = 0.1, m.n_kv_heads = 2, m.attention_bias = 1,
    m.pcl_adapted = 1;
    steps_allocate_nothing(&m, "cmha, post-norm, pcl");
    m = byte_model(), m.attention = CMHA_ATTENTION_DOT, m.position = CMHA_POSITION_ALIBI, m.window = 9;
    steps_allocate_nothing(&m, "alibi, window");
}

/* One life of everything that allocates; stops at the first failure, closes all, and reports the status */
static cmha_status one_life(const cmha_context_config *config, const cmha_model_config *m,
                            const cmha_trainer_config *t) {
    cmha_context c;
    cmha_model model, second;
    cmha_trainer trainer;
    cmha_cache cache;
    cmha_tape tape;
    int32_t prompt[3] = {1, 2, 3};
    size_t shape = 5;
    double loss;
    cmha_status s;
    memset(&c, 0, sizeof c), memset(&model, 0, sizeof model), memset(&second, 0, sizeof second),
        memset(&trainer, 0, sizeof trainer);
    memset(&cache, 0, sizeof cache), memset(&tape, 0, sizeof tape);
    s = cmha_context_init(&c, config);
    if (!s) s = cmha_model_memory(&c, m, 2, 8, NULL, NULL);
    if (!s) s = cmha_model_init(&model, &c, m);
    if (!s) s = cmha_trainer_init(&trainer, &model, t);
    if (!s) s = cmha_trainer_step(&trainer, &stream, &loss);
    if (!s) s = cmha_trainer_evaluate(&trainer, &stream, &loss);
    if (!s) s = cmha_cache_init(&cache, &model, 1, 16, 0, NULL);
    if (!s) s = cmha_generate(&cache, prompt, 3, 4, NULL, 1, NULL, NULL);
    if (!s) s = cmha_trainer_save(&trainer, path_of("life.safetensors"));
    if (!s) s = cmha_trainer_read(&trainer, path_of("life.safetensors"));
    if (!s) s = cmha_model_open(&second, &c, path_of("life.safetensors"));
    if (!s) s = cmha_tape_init(&tape, &c, 1);
    if (!s) cmha_sum(&tape, cmha_tensor_new(&tape, 1, &shape, 1)), s = cmha_tape_status(&tape);
    cmha_tape_close(&tape), cmha_cache_close(&cache), cmha_trainer_close(&trainer);
    cmha_model_close(&second), cmha_model_close(&model), cmha_context_close(&c);
    return s;
}

static void allocation_failures(void) {
    check_heap heap;
    cmha_context_config config = check_heap_config(&heap);
    cmha_model_config m = check_model_config();
    cmha_trainer_config t = trainer_config();
    size_t calls, k;
    m.vocabulary = 256, m.d_model = 8, m.n_heads = 2, m.d_ff = 8, m.pcl_weight = 0.1;
    t.batch = 1, t.length = 8, t.eval_tokens = 16;
    config.threads = 1;
    CHECK_IS(one_life(&config, &m, &t), CMHA_OK);
    CHECK_THAT(check_heap_empty(&heap), "%zu bytes leak", heap.bytes);
    calls = heap.calls;
    for (k = 1; k <= calls; k++) {
        cmha_status s;
        memset(&heap, 0, sizeof heap);
        heap.fail_at = k;
        s = one_life(&config, &m, &t);
        CHECK_THAT(s == CMHA_ERR_MEMORY, "allocation %zu of %zu fails: \"%s\"", k, calls,
                   cmha_status_string(s));
        CHECK_THAT(check_heap_empty(&heap), "allocation %zu of %zu fails: %zu bytes leak", k, calls,
                   heap.bytes);
    }
    CHECK(calls > 10);
}

/* --------------------------------------------- bad numbers ---------------------------------------------- */

static void not_finite(double poison) {
    cmha_context c;
    cmha_model model;
    cmha_trainer trainer;
    cmha_model_config m = byte_model();
    cmha_trainer_config t = trainer_config();
    cmha_real *kept, *moments, good;
    double loss;
    check_context(&c, 2, 1);
    CHECK_OK(cmha_model_init(&model, &c, &m));
    CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    CHECK_OK(cmha_trainer_step(&trainer, &stream, &loss));
    kept = check_zeros(model.parameters.size), moments = check_zeros(2 * model.parameters.size);
    good = cmha_parameters_find(&model.parameters, "blocks.0.attn.wv.weight")->tensor.data[3];
    cmha_parameters_find(&model.parameters, "blocks.0.attn.wv.weight")->tensor.data[3] = (cmha_real)poison;
    memcpy(kept, model.parameters.data, model.parameters.size * sizeof *kept),
        memcpy(moments, model.parameters.moments, 2 * model.parameters.size * sizeof *moments);
    CHECK_IS(cmha_trainer_step(&trainer, &stream, &loss), CMHA_ERR_NOT_FINITE);
    CHECK(!memcmp(kept, model.parameters.data, model.parameters.size * sizeof *kept) &&
          !memcmp(moments, model.parameters.moments, 2 * model.parameters.size * sizeof *moments));
    CHECK(trainer.step == 2);
    cmha_parameters_find(&model.parameters, "blocks.0.attn.wv.weight")->tensor.data[3] = good;
    CHECK_OK(cmha_trainer_step(&trainer, &stream, &loss)); /* and life goes on */
    CHECK(check_finite(model.parameters.data, model.parameters.size) && isfinite(loss));
    free(kept), free(moments);
    cmha_trainer_close(&trainer), cmha_model_close(&model), cmha_context_close(&c);
}

static void bad_tokens(void) {
    cmha_context c;
    cmha_model model;
    cmha_trainer trainer;
    cmha_cache cache;
    cmha_model_config m = check_model_config(); /* 19 tokens */
    cmha_trainer_config t = trainer_config();
    cmha_tokens little = cmha_tokens_part(&stream, 0, t.length);
    int32_t ids[4] = {1, 2, 19, 3}, fine[4] = {1, 2, 3, 4}, targets[4] = {-1, -1, -1, -1};
    cmha_batch batch = {ids, fine, NULL, 1, 4, NULL, NULL, NULL, NULL, NULL};
    cmha_real logits[4 * 19];
    double loss;
    check_context(&c, 1, 1);
    CHECK_OK(cmha_model_init(&model, &c, &m));
    CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    CHECK_OK(cmha_cache_init(&cache, &model, 1, 8, 0, NULL));
    CHECK_IS(cmha_trainer_step(&trainer, &stream, &loss), CMHA_ERR_TOKEN);
    CHECK_IS(cmha_trainer_step(&trainer, &little, &loss), CMHA_ERR_ARGUMENT);
    CHECK_IS(cmha_model_loss(&model, &batch, &loss), CMHA_ERR_TOKEN);
    CHECK_IS(cmha_model_logits(&model, &batch, logits), CMHA_ERR_TOKEN);
    CHECK_IS(cmha_model_gradient(&model, &batch, 1, 0, &loss), CMHA_ERR_TOKEN);
    CHECK_IS(cmha_cache_append(&cache, ids, 4, logits), CMHA_ERR_TOKEN);
    CHECK(cache.length == 0);
    ids[2] = -1;
    CHECK_IS(cmha_cache_append(&cache, ids, 4, logits), CMHA_ERR_TOKEN);
    batch.ids = fine, batch.targets = ids, ids[2] = 19;
    CHECK_IS(cmha_model_loss(&model, &batch, &loss), CMHA_ERR_TOKEN);
    batch.targets = targets; /* no target at all: loss 0, gradient 0 */
    loss = 5;
    CHECK_OK(cmha_model_loss(&model, &batch, &loss));
    CHECK(loss == 0);
    cmha_parameters_zero_grad(&model.parameters);
    CHECK_OK(cmha_model_gradient(&model, &batch, 1, 0, &loss));
    CHECK(loss == 0 && check_largest(model.parameters.grad, model.parameters.size) == 0);
    cmha_cache_close(&cache), cmha_trainer_close(&trainer), cmha_model_close(&model), cmha_context_close(&c);
}

static void bad_models(void) {
    static const char *const bad[][2] = {{"n_heads", "3"}, {"n_kv_heads", "3"}, {"d_model", "20"}};
    cmha_context c;
    cmha_model model;
    cmha_model_config m;
    size_t i, p, t;
    check_context(&c, 1, 1);
    for (i = 0; i < 3; i++) {
        m = check_model_config();
        /* 20 / 4 = 5 is odd: no pairs */
        CHECK_OK(cmha_config_set(&c, cmha_model_table(), &m, bad[i][0], bad[i][1]));
        CHECK_IS(cmha_model_init(&model, &c, &m), CMHA_ERR_SHAPE);
        CHECK(strlen(cmha_error(&c)) > 0);
        CHECK(cmha_model_memory(&c, &m, 1, 1, &p, &t) == CMHA_ERR_SHAPE);
    }
    m = check_model_config(), m.dropout = 2;
    CHECK_IS(cmha_model_init(&model, &c, &m), CMHA_ERR_ARGUMENT);
    m = check_model_config(), m.vocabulary = 2147483647, m.d_model = 65536, m.n_layers = 1024,
    m.d_ff = 1048576;
    /* huge, but no wrap-around */
    CHECK(cmha_model_memory(&c, &m, 1u << 20, 1u << 24, &p, &t) != CMHA_OK || t > p);
    m = check_model_config(), m.position = CMHA_POSITION_LEARNED, m.max_positions = 4;
    CHECK_OK(cmha_model_init(&model, &c, &m));
    {
        int32_t ids[5] = {1, 2, 3, 4, 5};
        cmha_batch batch = {ids, ids, NULL, 1, 5, NULL, NULL, NULL, NULL, NULL};
        double loss;
        CHECK_IS(cmha_model_loss(&model, &batch, &loss), CMHA_ERR_SHAPE);
        batch.length = 4;
        CHECK_OK(cmha_model_loss(&model, &batch, &loss));
    }
    cmha_model_close(&model), cmha_model_close(&model), cmha_context_close(&c);
}

/* ---------------------------------------------- the cache ----------------------------------------------- */

static void cache_full(void) {
    cmha_context c;
    cmha_model model;
    cmha_cache cache;
    cmha_model_config m = check_model_config();
    int32_t ids[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    cmha_real a[19], b[19];
    check_context(&c, 1, 1);
    CHECK_OK(cmha_model_init(&model, &c, &m));
    /* in tiles */
    CHECK_IS(cmha_cache_init(&cache, &model, (size_t)-1 / 64 + 1, 1, 0, NULL), CMHA_ERR_OVERFLOW);
    CHECK_OK(cmha_cache_init(&cache, &model, 1, 8, 0, NULL));
    CHECK_OK(cmha_cache_append(&cache, ids, 6, a));
    CHECK_IS(cmha_cache_append(&cache, ids, 3, a), CMHA_ERR_FULL);
    CHECK(cache.length == 6);
    CHECK_OK(cmha_cache_append(&cache, ids + 6, 2, a));
    CHECK_IS(cmha_cache_append(&cache, ids, 1, NULL), CMHA_ERR_FULL);
    cmha_cache_reset(&cache);
    CHECK(cache.length == 0);
    CHECK_OK(cmha_cache_append(&cache, ids, 8, b));
    CHECK_NEAR(check_distance(a, b, 19), 0, check_tolerance(1e-12, 1e-4));
    cmha_cache_close(&cache), cmha_cache_close(&cache), cmha_model_close(&model), cmha_context_close(&c);
}

/* A cache that dropped its oldest tokens is the forward pass over the tokens it
   still holds, however it came by them */
static void cache_slides(int attention, size_t kv_heads, int position, size_t prompt) {
    enum { N = 300, CAPACITY = 80, V = 19 };
    cmha_context c;
    cmha_model model;
    cmha_cache cache;
    cmha_model_config m = check_model_config();
    int32_t ids[N];
    cmha_real got[V], *want = check_zeros(N * V);
    cmha_batch rest = {ids, NULL, NULL, 1, 0, NULL, NULL, NULL, NULL, NULL};
    double worst = 0;
    size_t i;
    m.n_layers = 2, m.attention = attention, m.n_kv_heads = kv_heads, m.position = position,
    m.max_positions = CAPACITY;
    check_context(&c, 2, 1);
    CHECK_OK(cmha_model_init(&model, &c, &m));
    CHECK_OK(cmha_cache_init(&cache, &model, 1, CAPACITY, 1, NULL));
    for (i = 0; i < N; i++) ids[i] = (int32_t)check_below(V);
    CHECK_OK(cmha_cache_append(&cache, ids, prompt, got));
    for (i = prompt; i < N; i++) {
        size_t first = cache.first;
        if (!CHECK_THAT(!cmha_cache_append(&cache, ids + i, 1, got), "%s", cmha_error(&c))) break;
        CHECK(cache.first == first || cache.length == CAPACITY - CAPACITY / 4); /* three quarters are held */
        if (!CHECK(cache.length <= CAPACITY && cache.first + cache.length == i + 1)) break;
        if (i % 23 && i != N - 1) continue;
        rest.ids = ids + cache.first, rest.length = cache.length;
        CHECK_OK(cmha_model_logits(&model, &rest, want));
        worst = fmax(worst, check_distance(got, want + (cache.length - 1) * V, V));
    }
    CHECK(cache.first > 0 && cache.length > CAPACITY / 2);
    CHECK_THAT(worst < check_tolerance(1e-10, 3e-4), "sliding cache, attention %d: off by %.3g", attention,
               worst);
    cmha_cache_close(&cache), cmha_model_close(&model), cmha_context_close(&c);
    free(want);
}

/* An objective of one's own: the forward pass on the caller's tape attaches the model's gradients by
   itself */
static void own_objective(void) {
    cmha_context c;
    cmha_model model;
    cmha_tape tape;
    cmha_model_config m = check_model_config();
    int32_t ids[4] = {1, 2, 3, 4}, targets[4] = {2, 3, 4, 5};
    cmha_batch batch = {ids, targets, NULL, 1, 4, NULL, NULL, NULL, NULL, NULL};
    cmha_tensor *loss;
    double direct, norm = 0;
    size_t i;
    check_context(&c, 1, 1);
    CHECK_OK(cmha_model_init(&model, &c, &m));
    CHECK_OK(cmha_tape_init(&tape, &c, 1));
    loss = cmha_cross_entropy(&tape, cmha_model_forward(&model, &tape, &batch, NULL), targets, -1, NULL);
    CHECK_OK(cmha_tape_backward(&tape, loss, 1));
    if (!CHECK(model.parameters.grad != NULL)) return;
    for (i = 0; i < model.parameters.size; i++) norm += fabs((double)model.parameters.grad[i]);
    CHECK(norm > 0);
    CHECK_OK(cmha_model_gradient(&model, &batch, -1, 0, &direct)); /* adds the opposite */
    CHECK_NEAR((double)loss->data[0], direct, check_tolerance(1e-12, 1e-5));
    CHECK(check_largest(model.parameters.grad, model.parameters.size) < check_tolerance(1e-12, 1e-6));
    cmha_tape_close(&tape), cmha_model_close(&model), cmha_context_close(&c);
}

/* AdamW without epsilon leaves a parameter that never had a gradient where it was */
static void adamw_without_epsilon(void) {
    cmha_real p[2] = {1, 1}, g[2] = {0, 1}, moments[4] = {0};
    cmha_adamw_args a = {0.1, 0.9, 0.99, 0, 0, 1, 1, 0, 0, CMHA_UPDATE_RMS};
    cmha_adamw(&a, 2, p, g, moments, moments + 2);
    CHECK(p[0] == 1);
    CHECK_NEAR((double)p[1], 0.9, 1e-6);
}

/* ----------------------------------------------- sampling ----------------------------------------------- */

static cmha_sampler_config sampler(double temperature, size_t k, double p) {
    cmha_sampler_config s;
    cmha_config_defaults(cmha_sampler_table(), &s);
    s.temperature = temperature, s.top_k = k, s.top_p = p;
    return s;
}

static void draw(const cmha_sampler_config *s, const cmha_real *logits, size_t V, const int32_t *recent,
                 size_t n_recent, double *share) {
    cmha_rng rng = cmha_rng_make(3, 4);
    cmha_real scratch[32];
    int i, n = 20000, outside = 0;
    for (i = 0; i < (int)V; i++) share[i] = 0;
    for (i = 0; i < n; i++) {
        int32_t token = cmha_sample(s, logits, V, recent, n_recent, &rng, scratch);
        if (token < 0 || (size_t)token >= V) outside++;
        else share[token] += 1.0 / n;
    }
    CHECK_THAT(outside == 0, "%d samples lie outside of %zu tokens", outside, V);
}

static void sampling(void) {
    cmha_real logits[5] = {(cmha_real)log(0.1), (cmha_real)log(0.4), (cmha_real)log(0.05),
                           (cmha_real)log(0.3), (cmha_real)log(0.15)};
    cmha_real bad[4] = {1, (cmha_real)NAN, 2, -(cmha_real)INFINITY}, even[4] = {1, 1, 1, 1};
    cmha_sampler_config s = sampler(0, 0, 1);
    int32_t recent[3] = {1, 1, 1};
    double share[5];
    draw(&s, logits, 5, NULL, 0, share);
    CHECK_NEAR(share[1], 1, 1e-9);
    s = sampler(1, 1, 1), draw(&s, logits, 5, NULL, 0, share);
    CHECK_NEAR(share[1], 1, 1e-9);
    s = sampler(1, 0, 1), draw(&s, logits, 5, NULL, 0, share);
    CHECK_NEAR(share[0], 0.1, 0.015);
    CHECK_NEAR(share[1], 0.4, 0.02);
    CHECK_NEAR(share[2], 0.05, 0.01);
    s = sampler(1, 2, 1), draw(&s, logits, 5, NULL, 0, share);
    CHECK_NEAR(share[1], 4 / 7.0, 0.02);
    CHECK_NEAR(share[3], 3 / 7.0, 0.02);
    s = sampler(1, 0, 0.65), draw(&s, logits, 5, NULL, 0, share); /* .4 + .3 is the first that reaches .65 */
    CHECK_NEAR(share[1] + share[3], 1, 1e-9);
    CHECK_NEAR(share[1], 4 / 7.0, 0.02);
    s = sampler(1, 0, 0), draw(&s, logits, 5, NULL, 0, share); /* at least one */
    CHECK_NEAR(share[1], 1, 1e-9);
    s = sampler(1, 0, 0.5), draw(&s, even, 4, NULL, 0, share); /* two quarters are a half: no third */
    CHECK(share[0] > 0.4 && share[1] > 0.4 && share[2] == 0 && share[3] == 0);
    s = sampler(0.5, 0, 1), draw(&s, logits, 5, NULL, 0, share);
    CHECK_NEAR(share[1], 0.16 / 0.285, 0.02);
    s = sampler(1, 0, 1), s.repetition_penalty = 2; /* a token counts once: .4 becomes .4^2 */
    draw(&s, logits, 5, recent, 3, share);
    CHECK_NEAR(share[1], 0.16 / 0.76, 0.02);
    s = sampler(0, 0, 1), s.repetition_penalty = 2; /* log .4 = -.92 becomes -1.83 < log .3 */
    draw(&s, logits, 5, recent, 3, share);
    CHECK_NEAR(share[3], 1, 1e-9);
    s.penalty_window = 0, draw(&s, logits, 5, recent, 3, share);
    CHECK_NEAR(share[1], 1, 1e-9);
    logits[1] = 3, logits[3] = 2, s.penalty_window = 64; /* a positive logit is divided: 3 / 2 < 2 */
    draw(&s, logits, 5, recent, 3, share);
    CHECK_NEAR(share[3], 1, 1e-9);
    recent[0] = 3, recent[1] = 3, recent[2] = 1, s.penalty_window = 1; /* the newest one is the last */
    draw(&s, logits, 5, recent, 3, share);
    CHECK_NEAR(share[3], 1, 1e-9);
    recent[0] = 1, recent[1] = 1, recent[2] = 3;
    draw(&s, logits, 5, recent, 3, share);
    CHECK_NEAR(share[1], 1, 1e-9);
    s = sampler(1, 0, 1), draw(&s, bad, 4, NULL, 0, share);
    CHECK(share[1] == 0 && share[3] == 0 && share[0] > 0.2 && share[2] > 0.6);
    s = sampler(0, 0, 1), draw(&s, bad, 4, NULL, 0, share);
    CHECK_NEAR(share[2], 1, 1e-9);
}

typedef struct listener {
    int32_t heard[2 * 40];
    size_t n, stop_at;
} listener;

static int listen(void *user, const int32_t *tokens, size_t batch) {
    listener *l = (listener *)user;
    memcpy(l->heard + l->n * batch, tokens, batch * sizeof *tokens);
    return ++l->n == l->stop_at;
}

static void generation(void) {
    cmha_context c;
    cmha_model model;
    cmha_cache cache;
    cmha_model_config m = check_model_config();
    cmha_sampler_config greedy = sampler(0, 0, 1), warm = sampler(1.5, 0, 1);
    listener a = {{0}, 0, 0}, b = {{0}, 0, 0}, d = {{0}, 0, 7};
    int32_t prompt[6] = {1, 2, 3, 4, 5, 6}, twice[4] = {1, 2, 1, 2}, row[40], best;
    cmha_real *logits = check_zeros(40 * 19);
    cmha_batch whole = {row, NULL, NULL, 1, 0, NULL, NULL, NULL, NULL, NULL};
    size_t i, j, wrong = 0;
    check_context(&c, 2, 8);
    CHECK_OK(cmha_model_init(&model, &c, &m));
    CHECK_OK(cmha_cache_init(&cache, &model, 2, 40, 0, NULL));
    /* two sequences of three tokens */
    CHECK_OK(cmha_generate(&cache, prompt, 3, 20, &greedy, 1, listen, &a));
    /* the last one was not appended */
    CHECK(a.n == 20 && cache.length == 22);
    memcpy(row, prompt, 3 * sizeof *row);
    for (i = 0; i < 20; i++) { /* greedy is the argmax of the full forward pass */
        whole.length = 3 + i;
        CHECK_OK(cmha_model_logits(&model, &whole, logits));
        for (best = 0, j = 1; j < 19; j++)
            if (logits[(2 + i) * 19 + j] > logits[(2 + i) * 19 + (size_t)best]) best = (int32_t)j;
        wrong += best != a.heard[2 * i], row[3 + i] = best;
    }
    CHECK(wrong == 0);
    memset(&a, 0, sizeof a);
    cmha_cache_reset(&cache);
    CHECK_OK(cmha_generate(&cache, prompt, 3, 20, &warm, 5, listen, &a));
    cmha_cache_reset(&cache);
    CHECK_OK(cmha_generate(&cache, prompt, 3, 20, &warm, 5, listen, &b));
    CHECK(!memcmp(a.heard, b.heard, sizeof a.heard)); /* the same seed says the same */
    cmha_cache_reset(&cache), memset(&b, 0, sizeof b);
    CHECK_OK(cmha_generate(&cache, prompt, 3, 20, &warm, 6, listen, &b));
    CHECK(memcmp(a.heard, b.heard, sizeof a.heard));
    cmha_cache_reset(&cache);
    CHECK_IS(cmha_generate(&cache, prompt, 3, 20, &warm, 5, listen, &d), CMHA_STOPPED);
    CHECK(d.n == 7 && !memcmp(a.heard, d.heard, 14 * sizeof(int32_t)));
    cmha_cache_reset(&cache), memset(&b, 0, sizeof b);
    /* one beginning, two ways to go on */
    CHECK_OK(cmha_generate(&cache, twice, 2, 20, &warm, 6, listen, &b));
    for (i = 0; i < 20; i++) wrong += b.heard[2 * i] == b.heard[2 * i + 1];
    CHECK_THAT(wrong < 20, "sequences of a batch draw alike");
    cmha_cache_reset(&cache);
    CHECK_IS(cmha_generate(&cache, prompt, 3, 60, &warm, 5, NULL, NULL), CMHA_ERR_FULL);
    cmha_cache_close(&cache), cmha_model_close(&model), cmha_context_close(&c);
    free(logits);
}

/* --------------------------------------------- the trainer ---------------------------------------------- */

/* What a step does, done by hand: clip, schedule, AdamW with decay where it applies. One batch of the whole
   stream, so that there is nothing to draw. */
static void step_by_hand(double clip) {
    cmha_context c;
    cmha_model model, twin;
    cmha_trainer trainer;
    cmha_model_config m = byte_model();
    cmha_trainer_config t = trainer_config();
    cmha_tokens little = cmha_tokens_part(&stream, 0, 25);
    int32_t ids[25];
    cmha_batch batch = {ids, ids + 1, NULL, 1, 24, NULL, NULL, NULL, NULL, NULL};
    cmha_real *mo, *ve;
    double loss, want, norm = 0, lr;
    size_t i, step;
    t.batch = 1, t.clip = clip, t.weight_decay = 0.3, t.steps = 10, t.warmup = 0.2;
    for (i = 0; i < 25; i++) ids[i] = cmha_tokens_at(&little, i);
    check_context(&c, 2, 8);
    CHECK_OK(cmha_model_init(&model, &c, &m));
    CHECK_OK(cmha_model_init(&twin, &c, &m));
    CHECK(!memcmp(model.parameters.data, twin.parameters.data,
                  model.parameters.size * sizeof *model.parameters.data));
    CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    mo = check_zeros(model.parameters.size), ve = check_zeros(model.parameters.size);
    for (step = 0; step < 4; step++) {
        CHECK_OK(cmha_trainer_step(&trainer, &little, &loss));
        cmha_parameters_zero_grad(&twin.parameters);
        CHECK_OK(cmha_model_gradient(&twin, &batch, 1, 0, &want));
        CHECK_NEAR(loss, want, check_tolerance(1e-10, 1e-4));
        for (norm = 0, i = 0; i < twin.parameters.size; i++)
            norm += (double)twin.parameters.grad[i] * twin.parameters.grad[i];
        norm = sqrt(norm);
        CHECK_NEAR(trainer.grad_norm / norm, 1, check_tolerance(1e-9, 1e-3));
        lr = trainer.lr;
        /* never 0 */
        const cmha_rate rate = {CMHA_SCHEDULE_COSINE, t.lr, t.min_lr, 2, 10, 0};
        CHECK_NEAR(lr, cmha_learning_rate(&rate, step + 1), 1e-15);
        for (i = 0; i < twin.parameters.count; i++) {
            cmha_parameter *p = &twin.parameters.list[i];
            size_t at = (size_t)(p->tensor.data - twin.parameters.data);
            cmha_adamw_args a = {.t = 0};
            a.lr = lr, a.beta1 = t.beta1, a.beta2 = t.beta2, a.eps = t.adam_eps, a.t = step + 1;
            a.weight_decay = p->decay > 0 ? t.weight_decay : 0;
            a.grad_scale = clip > 0 && norm > clip ? clip / norm : 1;
            cmha_adamw(&a, p->tensor.size, p->tensor.data, p->tensor.grad, mo + at, ve + at);
        }
    }
    CHECK_THAT(check_distance(model.parameters.data, twin.parameters.data, model.parameters.size) <
                   check_tolerance(1e-9, 2e-3),
               "clip %g: off by %.3g", clip,
               check_distance(model.parameters.data, twin.parameters.data, model.parameters.size));
    free(mo), free(ve);
    cmha_trainer_close(&trainer), cmha_model_close(&model), cmha_model_close(&twin), cmha_context_close(&c);
}

/* Two passes of two sequences a step draw what one pass of four does: losses, norms and, by them, weights. */
static void accumulation(void) {
    cmha_context c;
    cmha_model model, twin;
    cmha_trainer parts, whole;
    cmha_model_config m = byte_model();
    cmha_trainer_config t = trainer_config();
    double some, all;
    size_t step;
    check_context(&c, 2, 8);
    CHECK_OK(cmha_model_init(&model, &c, &m)), CHECK_OK(cmha_model_init(&twin, &c, &m));
    t.batch = 4, t.clip = 0.01;
    CHECK_OK(cmha_trainer_init(&whole, &twin, &t));
    t.batch = 2, t.accumulate = 2;
    CHECK_OK(cmha_trainer_init(&parts, &model, &t));
    for (step = 0; step < 3; step++) {
        CHECK_OK(cmha_trainer_step(&parts, &stream, &some));
        CHECK_OK(cmha_trainer_step(&whole, &stream, &all));
        CHECK_NEAR(some, all, check_tolerance(1e-10, 1e-4));
        CHECK_NEAR(parts.grad_norm / whole.grad_norm, 1, check_tolerance(1e-9, 1e-3));
    }
    cmha_trainer_close(&parts), cmha_trainer_close(&whole);
    cmha_model_close(&model), cmha_model_close(&twin), cmha_context_close(&c);
}

static cmha_tensor *language_loss(cmha_model *model, cmha_tape *tape, const cmha_batch *batch) {
    cmha_tensor *head = model->head_weight ? model->head_weight : model->token_weight;
    cmha_tensor *states = cmha_model_states(model, tape, batch, NULL);
    return cmha_linear_cross_entropy(tape, states, head, model->head_bias, batch->targets, -1, NULL);
}

/* Gradients of an objective of one's own, on a tape of one's own, then cmha_trainer_apply:
   what cmha_trainer_step_batch does, bit for bit. A gradient that is not finite changes nothing, and
   is not in the way of the next one. */
static void applied_by_hand(void) {
    cmha_context c;
    cmha_model model, twin;
    cmha_trainer trainer, own;
    cmha_tape tape;
    cmha_model_config m = byte_model();
    cmha_trainer_config t = trainer_config();
    int32_t ids[25];
    cmha_batch batch = {ids, ids + 1, NULL, 1, 24, NULL, NULL, NULL, NULL, NULL};
    cmha_tensor *objective;
    double loss, norm = 0;
    size_t i, step;
    for (i = 0; i < 25; i++) ids[i] = cmha_tokens_at(&stream, i);
    check_context(&c, 2, 8);
    CHECK_OK(cmha_model_init(&model, &c, &m)), CHECK_OK(cmha_model_init(&twin, &c, &m));
    CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    t.batch = t.length = 1; /* the activations lie on the tape below */
    CHECK_OK(cmha_trainer_init(&own, &twin, &t)), CHECK_OK(cmha_tape_init(&tape, &c, 1));
    for (step = 0; step < 4; step++) {
        size_t reserved = twin.tape.memory.reserved;
        CHECK_OK(cmha_trainer_step_batch(&trainer, &batch, &loss));
        cmha_tape_reset(&tape);
        objective = language_loss(&twin, &tape, &batch);
        CHECK_OK(cmha_tape_backward(&tape, objective, 1));
        if (step == 2) {
            cmha_real *before = check_zeros(twin.parameters.size);
            memcpy(before, twin.parameters.data, twin.parameters.size * sizeof *before);
            twin.parameters.grad[7] = (cmha_real)NAN;
            CHECK_IS(cmha_trainer_apply(&own, &norm), CMHA_ERR_NOT_FINITE);
            CHECK(norm != norm && own.step == 3 &&
                  check_largest(twin.parameters.grad, twin.parameters.size) == 0);
            CHECK(!memcmp(before, twin.parameters.data, twin.parameters.size * sizeof *before));
            free(before), own.step = 2; /* as if it had not been */
            cmha_tape_reset(&tape);
            objective = language_loss(&twin, &tape, &batch);
            CHECK_OK(cmha_tape_backward(&tape, objective, 1));
        }
        CHECK_OK(cmha_trainer_apply(&own, step ? &norm : NULL));
        CHECK(own.step == step + 1 && (!step || norm == trainer.grad_norm) &&
              own.grad_norm == trainer.grad_norm);
        CHECK(check_largest(twin.parameters.grad, twin.parameters.size) == 0 &&
              twin.tape.memory.reserved == reserved);
        CHECK(!memcmp(model.parameters.data, twin.parameters.data,
                      twin.parameters.size * sizeof *twin.parameters.data));
    }
    cmha_trainer_close(&trainer), cmha_trainer_close(&own);
    CHECK_IS(cmha_trainer_apply(&own, NULL), CMHA_ERR_STATE);
    CHECK_IS(cmha_trainer_apply(NULL, NULL), CMHA_ERR_STATE);
    cmha_tape_close(&tape), cmha_model_close(&model), cmha_model_close(&twin), cmha_context_close(&c);
}

/* No decay on norms, biases, delta and b */
static void decay_flags(void) {
    cmha_context c;
    cmha_model model;
    cmha_model_config m = check_model_config();
    size_t i, none = 0;
    m.attention_bias = 1, m.tied = 0, m.head_bias = 1, m.position = CMHA_POSITION_LEARNED;
    check_context(&c, 1, 8);
    CHECK_OK(cmha_model_init(&model, &c, &m));
    for (i = 0; i < model.parameters.count; i++) {
        const char *n = model.parameters.list[i].name;
        int plain =
            !strstr(n, "bias") && !strstr(n, "ln") && !strstr(n, "delta") && strcmp(n + strlen(n) - 2, ".b");
        CHECK_THAT(model.parameters.list[i].decay == plain, "%s: decay is %d", n,
                   model.parameters.list[i].decay);
        none += !plain;
        CHECK(cmha_parameters_find(&model.parameters, n) == &model.parameters.list[i]);
    }
    CHECK(none > 10 && cmha_parameters_find(&model.parameters, "nothing") == NULL &&
          cmha_parameters_find(&model.parameters, "blocks.1.attn.delta") != NULL);
    cmha_model_close(&model), cmha_context_close(&c);
}

/* Evaluation is the mean over all windows, the short last one included: the same as
   one forward pass per window by hand */
static void evaluation(void) {
    cmha_context c;
    cmha_model model;
    cmha_trainer trainer;
    cmha_model_config m = byte_model();
    cmha_trainer_config t = trainer_config();
    /* 127 targets: five windows of 24 and one of 7 */
    cmha_tokens part = cmha_tokens_part(&stream, 100, 100 + 24 * 5 + 8);
    int32_t ids[200];
    double loss = 0, one = 0, sum = 0;
    size_t i, n;
    check_context(&c, 2, 8);
    CHECK_OK(cmha_model_init(&model, &c, &m));
    CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    CHECK_OK(cmha_trainer_evaluate(&trainer, &part, &loss));
    for (i = 0; i < part.count; i++) ids[i] = cmha_tokens_at(&part, i);
    for (i = 0; i + 1 < part.count; i += n) {
        cmha_batch batch = {ids, ids, NULL, 1, 24, NULL, NULL, NULL, NULL, NULL};
        n = part.count - 1 - i < 24 ? part.count - 1 - i : 24;
        batch.ids = ids + i, batch.targets = ids + i + 1, batch.length = n;
        CHECK_OK(cmha_model_loss(&model, &batch, &one));
        sum += one * (double)n;
    }
    CHECK_NEAR(loss, sum / (double)(part.count - 1), check_tolerance(1e-11, 1e-5));
    cmha_trainer_close(&trainer), cmha_model_close(&model), cmha_context_close(&c);
}

/* The share of steps with a rising rate is rounded: 0.05 of 30 are two steps. */
static void warm_up(void) {
    cmha_context c;
    cmha_model model;
    cmha_trainer trainer;
    cmha_model_config m = byte_model();
    cmha_trainer_config t = trainer_config();
    t.steps = 30, t.warmup = 0.05, t.schedule = CMHA_SCHEDULE_CONSTANT, t.batch = 1;
    check_context(&c, 1, 8);
    CHECK_OK(cmha_model_init(&model, &c, &m));
    CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    for (int step = 0; step < 3; step++) {
        CHECK_OK(cmha_trainer_step(&trainer, &stream, NULL));
        CHECK_NEAR(trainer.lr, step ? t.lr : t.lr / 2, 1e-15);
    }
    cmha_trainer_close(&trainer), cmha_model_close(&model), cmha_context_close(&c);
}

/* Weights that stay and a batch that is always the same, the caller's or of a text of one letter: then a
   step's loss is another by its dropout alone, which is drawn by seed and step, and by each pass of one. */
static void dropout_by_step(void) {
    enum { LENGTH = 24, BATCH = 2 };
    static unsigned char letters[200];
    static const cmha_tokens all = {letters, sizeof letters, 1, NULL, 0, 0};
    int32_t ids[BATCH * LENGTH] = {0};
    cmha_batch batch = {ids, ids, NULL, BATCH, LENGTH, NULL, NULL, NULL, NULL, NULL};
    cmha_context c;
    cmha_model model;
    cmha_trainer trainer;
    cmha_model_config m = byte_model();
    cmha_trainer_config t = trainer_config();
    double loss[2][3] = {{0}}, of_one = 0;
    m.dropout = 0.3, t.lr = 0, t.length = LENGTH, t.batch = BATCH;
    check_context(&c, 1, 8);
    CHECK_OK(cmha_model_init(&model, &c, &m));
    for (int turn = 0; turn < 3; turn++) {
        CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
        for (int step = 0; step < 2; step++) {
            double *own = &loss[step][turn];
            if (turn == 1) CHECK_OK(cmha_trainer_step(&trainer, &all, own));
            else CHECK_OK(cmha_trainer_step_batch(&trainer, &batch, own));
        }
        cmha_trainer_close(&trainer);
    }
    for (int turn = 0; turn < 2; turn++) CHECK(fabs(loss[0][turn] - loss[1][turn]) > 1e-6);
    CHECK(loss[0][0] == loss[0][2] && loss[1][0] == loss[1][2]);
    of_one = loss[0][1], t.accumulate = 2;
    CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    CHECK_OK(cmha_trainer_step(&trainer, &all, &loss[0][1]));
    CHECK(fabs(loss[0][1] - of_one) > 1e-6);
    cmha_trainer_close(&trainer), cmha_model_close(&model), cmha_context_close(&c);
}

/* An encoder's windows hide tokens each in its own way, the same ones in every evaluation: of a text that
   repeats itself some windows differ from one. And the mean is one of hidden tokens: where few are, windows
   without any count for nothing. */
static void hidden_evaluation(void) {
    enum { LENGTH = 24, WINDOWS = 6 };
    static unsigned char same[LENGTH * WINDOWS + 1];
    const cmha_tokens all = {same, sizeof same, 1, NULL, 0, 0}, one = {same, LENGTH + 1, 1, NULL, 0, 0};
    cmha_context c;
    cmha_model model;
    cmha_trainer trainer;
    cmha_model_config m = byte_model();
    cmha_trainer_config t = trainer_config();
    double loss = 0, again = 0, of_one = 0;
    for (size_t i = 0; i < sizeof same; i++) same[i] = text[i % LENGTH];
    m.causal = 0, t.length = LENGTH, t.mask_rate = 0.4, t.batch = 2;
    check_context(&c, 1, 8);
    CHECK_OK(cmha_model_init(&model, &c, &m));
    CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    CHECK_OK(cmha_trainer_evaluate(&trainer, &all, &loss));
    CHECK_OK(cmha_trainer_evaluate(&trainer, &all, &again));
    CHECK_OK(cmha_trainer_evaluate(&trainer, &one, &of_one));
    CHECK(loss == again && fabs(loss - of_one) > 1e-4);
    cmha_trainer_close(&trainer);
    memset(model.parameters.data, 0, model.parameters.size * sizeof *model.parameters.data);
    t.mask_rate = 0.02; /* all logits are alike: a hidden token costs log V, wherever it is */
    CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    CHECK_OK(cmha_trainer_evaluate(&trainer, &all, &loss));
    CHECK_NEAR(loss, log(256), 1e-4);
    cmha_trainer_close(&trainer), cmha_model_close(&model), cmha_context_close(&c);
}

/* Of the tokens chosen 8 in 10 are hidden, 1 is replaced by any token and 1 stays. */
static void hidden_tokens(void) {
    enum { N = 40000, V = 10, HIDDEN = 9 };
    static int32_t ids[N], targets[N];
    static unsigned char keep[N];
    const cmha_mask_args mask = {N, V, keep, HIDDEN, 0.3};
    cmha_rng rng = cmha_rng_make(1, 2);
    double chosen = 0, hidden = 0, kept = 0, wrong = 0;
    size_t i;
    for (i = 0; i < N; i++) ids[i] = 3, keep[i] = i % 2;
    cmha_mask_tokens(&mask, ids, targets, &rng);
    for (i = 0; i < N; i++) {
        wrong += targets[i] != -1 ? targets[i] != 3 || !keep[i] : ids[i] != 3;
        if (targets[i] != -1) chosen++, hidden += ids[i] == HIDDEN, kept += ids[i] == 3;
    }
    CHECK(wrong == 0);
    CHECK_NEAR(chosen / N, 0.15, 0.01);
    CHECK_NEAR(hidden / chosen, 0.81, 0.02); /* any token may be the hidden one, or the old */
    CHECK_NEAR(kept / chosen, 0.11, 0.02);
}

static void wide_tokens(void) {
    static const uint16_t two[3] = {1, 65535, 258};
    static const uint32_t four[2] = {70000, 5};
    cmha_tokens a = {two, 3, 2, NULL, 6, 0}, b = {four, 2, 4, NULL, 8, 0}, p = cmha_tokens_part(&a, 1, 3);
    CHECK(cmha_tokens_at(&a, 1) == 65535 && cmha_tokens_at(&b, 0) == 70000 && p.count == 2 &&
          cmha_tokens_at(&p, 1) == 258);
}

int main(int argc, char **argv) {
    (void)argc;
    cmha_blas_restart(argv);
    if (!system_folder(folder)) return 3;
    stream.data = text, stream.count = stream.bytes = models_text(text, sizeof text), stream.width = 1;
    learns(CMHA_ATTENTION_CMHA);
    if (!check_quick()) learns(CMHA_ATTENTION_ROPE), learns(CMHA_ATTENTION_DOT);
    deterministic();
    memory();
    not_finite(INFINITY), not_finite(NAN);
    bad_tokens(), bad_models();
    own_objective(), adamw_without_epsilon();
    cache_full();
    cache_slides(CMHA_ATTENTION_CMHA, 0, CMHA_POSITION_NONE, 1),
        cache_slides(CMHA_ATTENTION_CMHA, 2, CMHA_POSITION_ALIBI, 70);
    cache_slides(CMHA_ATTENTION_ROPE, 1, CMHA_POSITION_NONE, 200),
        cache_slides(CMHA_ATTENTION_DOT, 0, CMHA_POSITION_LEARNED, 90);
    sampling(), generation();
    step_by_hand(0), step_by_hand(0.01), accumulation(), applied_by_hand();
    decay_flags(), evaluation(), warm_up(), dropout_by_step();
    hidden_evaluation(), hidden_tokens(), wide_tokens();
    resumes(21), resumes(22);
    allocation_failures();
    remove(path_of("resume.safetensors")), remove(path_of("life.safetensors")), rmdir(folder);
    return check_end();
}
