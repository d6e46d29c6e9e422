/* Every family of models, as decoders and as encoders: decoding, causality, padding, training,
   files, memory, refusals, presets. */
#define _POSIX_C_SOURCE 200809L
#define _DARWIN_C_SOURCE
#include "models.h"
#include "system.h"

#include <float.h>

static cmha_context context;
static char folder[64] = "/tmp/cmha-families-XXXXXX";
static unsigned char text[4000];
static cmha_tokens stream;

/* What a configuration can be: a decoder, an encoder, and whether padding leaves the
   other tokens alone (identity 21). */
enum { DECODER = 1, ENCODER = 2, PADS = 4, BOTH = DECODER | ENCODER | PADS };
enum { LAG = ENCODER | PADS };

#define COPE "family=cope attention=dot "
#define MOBIUS "family=mobius attention=dot position=learned placement=post "
#define CRAT "family=crat "

static const struct kind {
    int can;
    const char *options;
} kinds[] = {
    {BOTH, "attention=cmha"},
    {BOTH, "attention=rope layout=half norm=rmsnorm activation=swiglu n_kv_heads=2 tied=0 head_bias=1"},
    {BOTH, "attention=dot position=learned token_types=2 placement=post attention_bias=1"},
    {BOTH, "attention=dot position=sinusoidal residual_scale=0.7"},
    {BOTH, "attention=dot position=alibi n_kv_heads=1"},
    {DECODER | PADS, "attention=rope window=5"},
    {BOTH, "attention=dot position=multifreq pe_terms=2"},
    {BOTH, "attention=rope qk_norm=rms_gain score_softcap=0.7 logit_softcap=3 norm=rmsnorm_one_plus"},
    {DECODER | PADS, "attention=cmha qk_norm=rms window=3 sinks=2 activation=relu2 n_kv_heads=2"},
    {BOTH, "attention=rope layout=half norm=rmsnorm activation=swiglu n_kv_heads=2 qkv_bias=1 d_head=12 "
           "rotary_dims=8 rope_scaling=yarn rope_factor=4 rope_length=512 base=100"},
    {BOTH, "attention=cmha layout=half d_head=6 rotary_dims=4 rope_scaling=llama3 rope_factor=4 "
           "rope_length=64 rope_fast=4 base=30 embedding_norm=1 head_transform=1 pooler=1"},
    {DECODER | PADS, "attention=cmha window=5 rotary_dims=4 rope_scaling=ntk rope_factor=3 d_head=10 "
                     "n_kv_heads=1 position=learned embedding_norm=1 placement=post head_transform=1 tied=0"},
    {BOTH, "attention=rope parallel=norms value_residual=1 residual_mix=1 n_kv_heads=2 n_layers=3"},
    {BOTH, "attention=cmha parallel=norm norm=rmsnorm activation=swiglu attention_bias=1"},
    {BOTH, "attention=rope parallel=norm first_norm=0 embedding_norm=1 n_layers=3"},
    {BOTH, "attention=rope placement=sandwich norm=rmsnorm_one_plus activation=geglu_tanh layer_kinds=lg "
           "window=4 local_base=50 qk_norm=rms_one_plus embedding_scale=1 n_layers=3"},
    {BOTH, "attention=cmha placement=after qk_norm=rms_whole n_kv_heads=2 layer_kinds=gn head_scale=0.3 "
           "embedding_factor=3"},
    {BOTH, "attention=rope norm=layernorm_gain activation=geglu_erf layer_kinds=gll window=3 n_layers=3"},
    {BOTH, "attention=rope layout=half norm=layernorm_gain activation=geglu_erf ffn_bias=0 embedding_norm=1 "
           "first_norm=0 head_transform=1 head_bias=1 layer_kinds=gl window=3 local_base=50"},
    /* CoPE: every score, imaginary part and maximum */
    {BOTH, COPE "cope_score=phase placement=post activation=relu output_bias=1 token_types=2"},
    {BOTH, COPE "cope_score=magnitude cope_imag=sin_cos"},
    {BOTH, COPE "cope_score=hybrid qk_norm=rms_gain score_softcap=0.7"},
    {BOTH, COPE "cope_score=real cope_imag=learned cope_gamma=0.7 attention=rope"},
    {BOTH,
     COPE "cope_score=hybrid cope_alpha=0.6 cope_repo_scale=1 attention=cmha cope_scale=2 frequency=table"},
    {BOTH, COPE "cope_score=hybrid_norm cope_scale=3"},
    {DECODER | PADS, COPE "cope_score=hybrid_norm cope_max_grad=1 window=5 n_layers=1"},
    {ENCODER | PADS, COPE "cope_score=hybrid_norm cope_max=head cope_scale=3"},
    {ENCODER | PADS,
     COPE "cope_score=hybrid_norm cope_max=head cope_max_grad=1 cope_alpha=0.7 token_types=2 pool=mean"},
    /* by definition the largest of the whole batch, padding included: the one form for
       which identity 21 cannot hold */
    {ENCODER, COPE "cope_score=hybrid_norm cope_max=global cope_scale=3"},
    {BOTH, COPE "cope_score=linear cope_imag=sin_cos"},
    {BOTH, COPE "cope_score=linear cope_imag=learned placement=post n_layers=1"},
    /* MöbiusAttention: every mode, softmax, wiring and quotient, mixed and alone, beside every plain head */
    {BOTH, MOBIUS "attention_bias=1 token_types=2"},
    {BOTH, MOBIUS "attention=rope qkv_bias=1 layout=half rotary_dims=4 rope_scaling=linear rope_factor=3 "
           "head_transform=1 pooler=1"},
    {BOTH, MOBIUS "mobius_heads=4 mobius_softmax=real mobius_hermitian=1"},
    {BOTH, MOBIUS
     "attention=rope position=sinusoidal mobius_mode=full mobius_softmax=ri_split n_layers=3 norm=rmsnorm"},
    {BOTH, MOBIUS "attention=cmha mobius_mode=literal mobius_softmax=yang8 mobius_wiring=top"},
    {BOTH,
     MOBIUS "mobius_softmax=abs mobius_quotient=unit mobius_wiring=stacked n_layers=3 mobius_init=ortho"},
    {BOTH, MOBIUS "mobius_heads=4 mobius_mode=literal mobius_wiring=alternating n_layers=4"},
    {BOTH,
     MOBIUS "mobius_heads=4 mobius_mode=full mobius_softmax=yang8 activation=swiglu mobius_wiring=stacked"},
    {BOTH, MOBIUS "mobius_heads=1 mobius_softmax=ri_split mobius_quotient=exact n_layers=1"},
    {DECODER | PADS, MOBIUS "mobius_heads=2 window=5 attention=rope frequency=table"},
    /* CRAT: every kernel, norm, group of heads and rank */
    {BOTH, CRAT "phase_reg=0.3 mag_reg=0.2"},
    {BOTH, CRAT "real_heads=1 imag_heads=1 complex_norm=crms score_scale=0.9"},
    {BOTH, CRAT "real_heads=4 complex_norm=split low_rank=2 pe_terms=1 state_gelu=1 tied=0"},
    {BOTH, CRAT "imag_heads=3 complex_norm=whiten state_rotation=0 residual_scale=0.5 ffn_bias=0"},
    {BOTH, CRAT "crat_attention=linear real_heads=1 imag_heads=2 token_types=2"},
    {BOTH, CRAT "crat_attention=linear low_rank=3 complex_norm=crms n_layers=1"},
    {BOTH, CRAT "crat_attention=dot real_heads=1 complex_residual=unit position=multifreq"},
    {BOTH, CRAT "complex_residual=free experts=3 balance=0.1 mag_reg=0.2"},
    {BOTH, CRAT "experts=4 experts_top=4 ffn_bias=0 crat_attention=linear low_rank=2"},
    /* no knowledge base: the window is closed */
    {BOTH, CRAT "experts=2 experts_top=1 irw_layers=1 irw_width=3 complex_residual=free"},
    {LAG, CRAT "crat_attention=lag real_heads=1 imag_heads=1"},
    {LAG, CRAT "crat_attention=lag lag_temp=3 lag_topk=4 low_rank=2"},
};
enum { KINDS = sizeof kinds / sizeof *kinds, V = 19 };

static cmha_model_config kind_config(const char *options, int as) {
    cmha_model_config config = check_model_config();
    models_set(&context, &config, options);
    config.causal = as == DECODER;
    return config;
}

typedef void kind_test(const char *label, const cmha_model_config *config, int can);

/* Every decoder or encoder of the table, every `step`-th under the sanitizers */
static void for_kinds(kind_test *test, int as, size_t step) {
    char label[256];
    size_t i;
    for (i = 0; i < KINDS; i++) {
        cmha_model_config config;
        if (!(kinds[i].can & as) || (check_quick() && i % step != 1)) continue;
        config = kind_config(kinds[i].options, as);
        snprintf(label, sizeof label, "%s%s", as == DECODER ? "" : "causal=0 ", kinds[i].options);
        test(label, &config, kinds[i].can);
    }
}

static int32_t *random_ids(size_t n, size_t vocabulary) {
    int32_t *ids = (int32_t *)check_alloc(n, sizeof *ids);
    size_t i;
    for (i = 0; i < n; i++) ids[i] = (int32_t)check_below(vocabulary);
    return ids;
}

static cmha_batch batch_of(const int32_t *ids, size_t batch, size_t length) {
    cmha_batch b;
    memset(&b, 0, sizeof b);
    b.ids = ids, b.batch = batch, b.length = length;
    return b;
}

static int open_model(cmha_model *model, const cmha_model_config *config, const char *label) {
    return CHECK_THAT(!cmha_model_init(model, &context, config), "%s: %s", label, cmha_error(&context));
}

/* Biases and Möbius maps off their start, and frequencies of every head's own, so that all of them matter */
static void disturb(cmha_model *model) {
    double omega[64];
    size_t i;
    for (i = 0; i < model->parameters.size; i++)
        model->parameters.data[i] += (cmha_real)(0.05 * check_random());
    for (i = 0; i < 64; i++) omega[i] = 0.3 * check_random();
    if (model->config.frequency == CMHA_FREQUENCY_TABLE) CHECK_OK(cmha_model_set_frequencies(model, omega));
}

/* ----------------------------------------------- decoding ----------------------------------------------- */

/* The largest error of the logits after each chunk of `chunk` tokens */
static double chunks_against(cmha_cache *cache, const int32_t *ids, size_t length, size_t chunk,
                             const cmha_real *full) {
    size_t batch = cache->batch, at, n, b;
    cmha_real *logits = check_zeros(batch * V);
    int32_t *part = (int32_t *)check_alloc(batch * chunk, sizeof *part);
    double worst = 0;
    for (at = 0; at < length; at += n) {
        n = chunk < length - at ? chunk : length - at;
        for (b = 0; b < batch; b++) memcpy(part + b * n, ids + b * length + at, n * sizeof *part);
        if (!CHECK_THAT(!cmha_cache_append(cache, part, n, logits), "%s", cmha_error(&context))) break;
        for (b = 0; b < batch; b++)
            worst = fmax(worst, check_distance(logits + b * V, full + (b * length + at + n - 1) * V, V));
    }
    free(logits), free(part);
    return worst;
}

/* How far the logits move when every weight moves by its last bit: what rounding alone may
   do, near the pole of a Möbius map */
static double rounding(cmha_model *model, const cmha_batch *batch, const cmha_real *full, size_t n) {
    cmha_real *kept = check_zeros(model->parameters.size), *moved = check_zeros(n);
    double off;
    size_t i;
    memcpy(kept, model->parameters.data, model->parameters.size * sizeof *kept);
    for (i = 0; i < model->parameters.size; i++)
        model->parameters.data[i] *= 1 +
                                     (cmha_real)check_tolerance(DBL_EPSILON, FLT_EPSILON) * (i % 2 ? 1 : -1);
    CHECK_OK(cmha_model_logits(model, batch, moved));
    off = check_distance(moved, full, n);
    memcpy(model->parameters.data, kept, model->parameters.size * sizeof *kept);
    free(kept), free(moved);
    return off;
}

static void decodes(const char *label, const cmha_model_config *config, int can) {
    enum { N = 70 };
    static const size_t chunks[] = {1, 3, N / 2, N};
    cmha_model model;
    cmha_cache cache;
    int32_t *ids = random_ids(2 * N, V);
    cmha_real *full = check_zeros(2 * N * V);
    cmha_batch whole = batch_of(ids, 2, N);
    size_t i;
    double off, again, tolerance;
    (void)can;
    if (!open_model(&model, config, label)) return;
    disturb(&model);
    CHECK_OK(cmha_model_logits(&model, &whole, full));
    CHECK(check_finite(full, 2 * N * V) && check_largest(full, 2 * N * V) > 0.1);
    /* a stacked Möbius model moves by a third of it from chunk to chunk with AVX-512 */
    tolerance = fmax(check_tolerance(1e-11, 3e-4), rounding(&model, &whole, full, 2 * N * V) / 2);
    CHECK_OK(cmha_cache_init(&cache, &model, 2, N, 0, NULL));
    for (i = 0; i < 4; i++) {
        off = chunks_against(&cache, ids, N, chunks[i], full);
        CHECK(cache.length == N);
        cmha_cache_reset(&cache);
        again = chunks_against(&cache, ids, N, chunks[i], full); /* after a reset the past is forgotten */
        CHECK_THAT(off < tolerance && again == off,
                   "%s: chunks of %zu are off by %.3g, after a reset by %.3g", label, chunks[i], off, again);
        cmha_cache_reset(&cache);
    }
    cmha_cache_close(&cache), cmha_model_close(&model);
    free(ids), free(full);
}

/* A cache that slides against a fresh one that is given the tokens it still holds; tests/test_streams.c looks
   at those that go on without an end */
static double slide_against_fresh(cmha_cache *cache, cmha_cache *fresh, const int32_t *ids, size_t length,
                                  const cmha_real *logits) {
    size_t b, n = cache->length;
    int32_t *kept = (int32_t *)check_alloc(cache->batch * n, sizeof *kept);
    cmha_real *want = check_zeros(cache->batch * V);
    double off;
    for (b = 0; b < cache->batch; b++)
        memcpy(kept + b * n, ids + b * length + cache->first, n * sizeof *kept);
    cmha_cache_reset(fresh);
    CHECK_OK(cmha_cache_append(fresh, kept, n, want));
    off = check_distance(want, logits, cache->batch * V);
    free(kept), free(want);
    return off;
}

static void slides(const char *label, const cmha_model_config *config, int can) {
    enum { N = 60, CAPACITY = 20 };
    cmha_model model;
    cmha_cache cache, fresh;
    int32_t *ids = random_ids(2 * N, V), two[14];
    cmha_real logits[2 * V];
    size_t at, n, i;
    double worst = 0;
    (void)can;
    if (!open_model(&model, config, label)) return;
    disturb(&model);
    CHECK_OK(cmha_cache_init(&cache, &model, 2, CAPACITY, 1, NULL));
    CHECK_OK(cmha_cache_init(&fresh, &model, 2, CAPACITY, 0, NULL));
    for (at = 0; at < N; at += n) { /* a prompt, single tokens, and one more prompt */
        n = at == 0 || at == 35 ? 7 : 1;
        for (i = 0; i < 2 * n; i++) two[i] = ids[i / n * N + at + i % n];
        if (!CHECK_THAT(!cmha_cache_append(&cache, two, n, logits), "%s: %s", label, cmha_error(&context)))
            break;
        CHECK(cache.length <= CAPACITY && cache.first + cache.length == at + n);
        if (!cache.endless && (at % 3 == 0 || at + n == N))
            worst = fmax(worst, slide_against_fresh(&cache, &fresh, ids, N, logits));
    }
    CHECK(cache.first > 0);
    CHECK_THAT(worst < check_tolerance(1e-11, 3e-4), "%s: a sliding cache is off by %.3g", label, worst);
    cmha_cache_close(&cache), cmha_cache_close(&fresh), cmha_model_close(&model);
    free(ids);
}

/* ---------------------------------------------- causality ----------------------------------------------- */

/* Token T changes no logits before T, and those from T on; a recording pass computes
   the same as one that does not record */
static void causal(const char *label, const cmha_model_config *config, int can) {
    enum { N = 20, T = 9 };
    cmha_model model;
    cmha_tape tape;
    cmha_tensor *recorded;
    int32_t *ids = random_ids(N, V);
    cmha_real *a = check_zeros(N * V), *b = check_zeros(N * V);
    cmha_batch batch = batch_of(ids, 1, N);
    (void)can;
    if (!open_model(&model, config, label)) return;
    disturb(&model);
    CHECK_OK(cmha_model_logits(&model, &batch, a));
    CHECK_OK(cmha_tape_init(&tape, &context, 1));
    recorded = cmha_model_forward(&model, &tape, &batch, NULL);
    if (CHECK_THAT(recorded != NULL, "%s: %s", label, cmha_error(&context)))
        CHECK_THAT(check_distance(recorded->data, a, N * V) == 0, "%s: a recording computes something else",
                   label);
    cmha_tape_close(&tape);
    ids[T] = (ids[T] + 1) % V;
    CHECK_OK(cmha_model_logits(&model, &batch, b));
    if (config->causal)
        CHECK_THAT(check_distance(a, b, T * V) == 0, "%s: a later token changes the logits by %.3g", label,
                   check_distance(a, b, T * V));
    else CHECK_THAT(check_distance(a, b, T * V) > 1e-7, "%s: an encoder does not look ahead", label);
    CHECK_THAT(check_distance(a + T * V, b + T * V, V) > 1e-3, "%s: a token does not change its own logits",
               label);
    CHECK_THAT(check_distance(a + (T + 2) * V, b + (T + 2) * V, V) > 1e-7, "%s: the past does not matter",
               label);
    cmha_model_close(&model);
    free(ids), free(a), free(b);
}

/* ----------------------------------------------- padding ------------------------------------------------ */

enum { LONG = 14, SHORT = 9, CLASSES = 3 };

/* Logits, class scores and the gradient of one batch by targets */
typedef struct seen {
    cmha_real *logits, *scores, *grad;
} seen;

static seen look(cmha_model *model, const cmha_batch *batch) {
    seen s;
    double loss = 0;
    s.logits = check_zeros(batch->batch * batch->length * V), s.scores = check_zeros(batch->batch * CLASSES);
    s.grad = check_zeros(model->parameters.size);
    CHECK_OK(cmha_model_logits(model, batch, s.logits));
    CHECK_OK(cmha_model_classify(model, batch, s.scores));
    cmha_parameters_zero_grad(&model->parameters);
    CHECK_THAT(!cmha_model_gradient(model, batch, 1, 0, &loss), "%s", cmha_error(model->context));
    if (model->parameters.grad)
        memcpy(s.grad, model->parameters.grad, model->parameters.size * sizeof *s.grad);
    return s;
}

static void forget(seen *s) { free(s->logits), free(s->scores), free(s->grad); }

/* Two sequences of LONG and SHORT tokens in one batch, the first one
   optionally absent: each is what it is alone */
static void padded_pair(const char *label, cmha_model *model, const int32_t *ids, const int32_t *targets,
                        int nothing_first) {
    unsigned char mask[2 * LONG];
    int32_t all[2 * LONG], wanted[2 * LONG];
    cmha_batch pair = batch_of(all, 2, LONG), alone = batch_of(ids + LONG, 1, SHORT);
    seen together, apart;
    double off[3];
    size_t i;
    for (i = 0; i < 2 * LONG; i++) {
        mask[i] = (unsigned char)(i < LONG ? !nothing_first : i < LONG + SHORT);
        all[i] = ids[i], wanted[i] = mask[i] && i >= LONG ? targets[i] : -1;
    }
    pair.key_mask = mask, pair.targets = wanted, alone.targets = targets + LONG;
    together = look(model, &pair), apart = look(model, &alone);
    off[0] = check_distance(apart.logits, together.logits + LONG * V, SHORT * V);
    off[1] = check_distance(apart.scores, together.scores + CLASSES, CLASSES);
    /* else its mate is in the regularisers */
    off[2] = nothing_first ? check_distance(apart.grad, together.grad, model->parameters.size) : 0;
    CHECK_THAT(off[0] < check_tolerance(1e-11, 1e-4) && off[1] < check_tolerance(1e-11, 1e-4),
               "%s: padding changes the logits by %.3g, the scores by %.3g", label, off[0], off[1]);
    CHECK_THAT(off[2] <
                   check_tolerance(1e-10, 1e-3) * (1 + check_largest(apart.grad, model->parameters.size)),
               "%s: padding changes the gradient by %.3g", label, off[2]);
    CHECK_THAT(check_finite(together.logits, 2 * LONG * V) && check_finite(together.scores, 2 * CLASSES) &&
                   check_finite(together.grad, model->parameters.size), "%s: padding is not finite", label);
    forget(&together), forget(&apart);
}

static void pads(const char *label, const cmha_model_config *config, int can) {
    cmha_model_config c = *config;
    cmha_model model;
    int32_t *ids, *targets;
    int pool, round;
    if (!(can & PADS)) return;
    c.classes = CLASSES;
    for (pool = 0; pool < 2; pool++) {
        c.pool = pool;
        if (!open_model(&model, &c, label)) return;
        disturb(&model);
        for (round = 0; round < 3; round++) { /* what the padding holds must not matter */
            ids = random_ids(2 * LONG, V), targets = random_ids(2 * LONG, V);
            padded_pair(label, &model, ids, targets, round == 1);
            free(ids), free(targets);
        }
        cmha_model_close(&model);
    }
}

enum { ROWS = 4, COLUMNS = 45 };

/* The largest change of logits and scores, when the tokens from first[b] on of sequence b hold something
   else, of the tokens before those. */
static double change_of(cmha_model *model, const cmha_batch *batch, int32_t *ids, const size_t *first) {
    static cmha_real logits[2][ROWS * COLUMNS * V], scores[2][ROWS * CLASSES];
    double worst = 0;
    size_t b, n, i;
    for (i = 0; i < 2; i++) {
        for (b = 0; b < ROWS; b++)
            for (n = first[b]; n < COLUMNS; n++) ids[b * COLUMNS + n] = (int32_t)check_below(V);
        CHECK_OK(cmha_model_logits(model, batch, logits[i]));
        CHECK_OK(cmha_model_classify(model, batch, scores[i]));
    }
    for (b = 0; b < ROWS; b++) {
        i = b * COLUMNS * V;
        worst = fmax(worst, check_distance(logits[0] + i, logits[1] + i, first[b] * V));
    }
    if (batch->key_mask) worst = fmax(worst, check_distance(scores[0], scores[1], ROWS * CLASSES));
    return worst / (1 + check_largest(logits[0], ROWS * COLUMNS * V));
}

/* What padding holds changes no bit of the rest, and in a decoder what later tokens hold no bit of those
   before; but with experts a BLAS sums a row in an order that depends on how many tokens share one. */
static void contents(const char *label, const cmha_model_config *config, int can) {
    static const size_t lengths[ROWS] = {COLUMNS, 17, 1, 30}, begins[ROWS] = {9, 40, 23, 1};
    unsigned char mask[ROWS * COLUMNS];
    cmha_model_config c = *config;
    cmha_model model;
    int32_t *ids = random_ids(ROWS * COLUMNS, V);
    cmha_batch batch = batch_of(ids, ROWS, COLUMNS);
    int blas = !strstr(cmha_version(), "built-in");
    double later = 0, padding = 0;
    size_t i, round;
    c.d_model = 32, c.d_ff = 40, c.classes = CLASSES, c.max_positions = 64;
    if (c.experts) c.experts *= 16, c.d_model = 64, c.d_ff = 520; /* sizes whose orders differ in OpenBLAS */
    for (i = 0; i < ROWS * COLUMNS; i++) mask[i] = i % COLUMNS < lengths[i / COLUMNS];
    if (!open_model(&model, &c, label)) return;
    disturb(&model);
    for (round = 0; round < 3; round++) {
        batch.key_mask = NULL;
        if (c.causal) later = fmax(later, change_of(&model, &batch, ids, begins));
        batch.key_mask = mask;
        if (can & PADS) padding = fmax(padding, change_of(&model, &batch, ids, lengths));
    }
    CHECK_THAT(later <= (c.experts && blas ? check_tolerance(1e-14, 1e-6) : 0),
               "%s: what later tokens hold changes the logits by %.3g", label, later);
    CHECK_THAT(padding <= 0, "%s: what padding holds changes the logits or scores by %.3g", label, padding);
    cmha_model_close(&model);
    free(ids);
}

/* No token, no sequence, one token: nothing crashes, and what there is is finite */
static void little(const char *label, const cmha_model_config *config, int can) {
    static const size_t sizes[][2] = {{0, 5}, {2, 0}, {0, 0}, {3, 1}, {1, 2}};
    cmha_model_config c = *config;
    cmha_model model;
    int32_t *ids = random_ids(10, V);
    cmha_real logits[10 * V], scores[10];
    double loss;
    size_t i;
    (void)can;
    c.classes = 2, c.pool = CMHA_POOL_MEAN;
    if (!open_model(&model, &c, label)) return;
    for (i = 0; i < 5; i++) {
        cmha_batch batch = batch_of(ids, sizes[i][0], sizes[i][1]);
        size_t n = sizes[i][0] * sizes[i][1];
        batch.targets = ids, loss = NAN;
        CHECK_THAT(!cmha_model_logits(&model, &batch, logits) && check_finite(logits, n * V),
                   "%s: %zu tokens: %s", label, n, cmha_error(&context));
        if (n) CHECK(!cmha_model_classify(&model, &batch, scores) && check_finite(scores, 2 * sizes[i][0]));
        CHECK_THAT(!cmha_model_gradient(&model, &batch, 1, 0, &loss) && isfinite(loss) &&
                       check_finite(model.parameters.grad, model.parameters.size),
                   "%s: %zu tokens: loss %g, %s", label, n, loss, cmha_error(&context));
        cmha_parameters_zero_grad(&model.parameters);
    }
    cmha_model_close(&model);
    free(ids);
}

/* ----------------------------------------------- training ----------------------------------------------- */

enum { BATCH = 4, LENGTH = 24, STEPS = 30 };

static cmha_trainer_config trainer_config(void) {
    cmha_trainer_config t;
    cmha_config_defaults(cmha_trainer_table(), &t);
    t.steps = STEPS, t.batch = BATCH, t.length = LENGTH, t.lr = 1e-2, t.eval_tokens = 200, t.mask_rate = 0.4,
    t.mask_token = 1;
    return t;
}

static cmha_model_config trained_config(const cmha_model_config *config) {
    cmha_model_config c = *config;
    c.vocabulary = 128, c.init_std = 0.1, c.dropout = c.attention_dropout = 0.05;
    return c;
}

/* Sequences whose label is what their first letters say: the class of a letter, or a number between 0 and
   4 */
typedef struct labelled {
    int32_t ids[BATCH * LENGTH];
    unsigned char mask[BATCH * LENGTH];
    cmha_real labels[BATCH];
    cmha_batch batch;
} labelled;

static void labelled_open(labelled *l, size_t classes) {
    size_t i;
    memset(l, 0, sizeof *l);
    l->batch = batch_of(l->ids, BATCH, LENGTH);
    l->batch.labels = l->labels, l->batch.key_mask = l->mask;
    for (i = 0; i < BATCH * LENGTH; i++)
        l->ids[i] = (int32_t)('a' + check_below(26)), l->mask[i] = i < BATCH * LENGTH - 5;
    for (i = 0; i < BATCH; i++) {
        l->labels[i] = (cmha_real)(classes > 1 ? i % classes : 4 * i / BATCH);
        l->ids[i * LENGTH] = l->ids[i * LENGTH + 1] = (int32_t)('A' + i);
    }
}

/* Steps on the labelled batch or, if there is none, on the stream; the mean loss
   of the first and of the last five */
static void advance(cmha_trainer *trainer, const cmha_batch *batch, size_t steps, double *first, double *last,
                    const char *label) {
    size_t i;
    double loss = 0;
    *first = *last = 0;
    for (i = 0; i < steps; i++) {
        if (!CHECK_THAT(!(batch ? cmha_trainer_step_batch(trainer, batch, &loss)
                                : cmha_trainer_step(trainer, &stream, &loss)),
                        "%s: %s", label, cmha_error(trainer->model->context)))
            return;
        if (i < 5) *first += loss / 5;
        if (i + 5 >= steps) *last += loss / 5;
    }
}

static const char *path_of(const char *name) {
    static char path[2][128];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

/* A run from its beginning; saves itself after half of the steps. Its parameters
   [model.parameters.size] are the caller's to free. */
static cmha_real *whole_run(const cmha_model_config *c, const cmha_batch *batch, const char *label,
                            const char *half, const char *end) {
    cmha_context own;
    cmha_model model;
    cmha_trainer trainer;
    cmha_trainer_config t = trainer_config();
    cmha_real *data = NULL;
    double first, last, ignored;
    check_context(&own, 2, 5);
    if (CHECK_THAT(!cmha_model_init(&model, &own, c), "%s: %s", label, cmha_error(&own)) &&
        CHECK_OK(cmha_trainer_init(&trainer, &model, &t))) {
        advance(&trainer, batch, STEPS / 2, &first, &ignored, label);
        if (half) CHECK_OK(cmha_trainer_save(&trainer, half));
        advance(&trainer, batch, STEPS / 2, &ignored, &last, label);
        if (end) CHECK_OK(cmha_model_save(&model, end));
        if (half) CHECK_THAT(last < 0.97 * first, "%s: the loss goes from %.3f to %.3f", label, first, last);
        data = check_zeros(model.parameters.size);
        memcpy(data, model.parameters.data, model.parameters.size * sizeof *data);
        cmha_trainer_close(&trainer);
    }
    cmha_model_close(&model), cmha_context_close(&own);
    return data;
}

/* The second half of that run, in a model and trainer of another seed that already went elsewhere */
static void resumed_run(const cmha_model_config *c, const cmha_batch *batch, const char *label,
                        const cmha_real *want) {
    cmha_context own;
    cmha_model model;
    cmha_trainer trainer;
    cmha_trainer_config t = trainer_config();
    double first, last;
    check_context(&own, 2, 6);
    CHECK_OK(cmha_model_init(&model, &own, c));
    CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    advance(&trainer, batch, 1, &first, &last, label);
    CHECK_THAT(!cmha_trainer_read(&trainer, path_of("half.safetensors")), "%s: %s", label, cmha_error(&own));
    advance(&trainer, batch, STEPS / 2, &first, &last, label);
    CHECK_THAT(!memcmp(want, model.parameters.data, model.parameters.size * sizeof *want),
               "%s: resuming gives other parameters", label);
    cmha_trainer_close(&trainer), cmha_model_close(&model), cmha_context_close(&own);
}

static int same_config(const cmha_model_config *a, const cmha_model_config *b) {
    cmha_table table = cmha_model_table();
    char x[32], y[32];
    size_t i, differ = 0;
    for (i = 0; i < table.count; i++) {
        cmha_config_get(table, a, table.fields[i].name, x, sizeof x),
            cmha_config_get(table, b, table.fields[i].name, y, sizeof y);
        differ += strcmp(x, y) != 0;
    }
    return differ == 0;
}

/* A loaded model is the saved one, bit for bit, in whatever a batch shows of it */
static void loaded(const cmha_model_config *c, const char *label, const cmha_real *want) {
    cmha_model twin;
    labelled l;
    cmha_real *a = check_zeros(BATCH * LENGTH * 128), *b = check_zeros(BATCH * LENGTH * 128);
    labelled_open(&l, 3);
    if (CHECK_THAT(!cmha_model_open(&twin, &context, path_of("end.safetensors")), "%s: %s", label,
                   cmha_error(&context))) {
        cmha_model model;
        CHECK(same_config(&twin.config, c) &&
              !memcmp(want, twin.parameters.data, twin.parameters.size * sizeof *want));
        if (open_model(&model, c, label)) {
            memcpy(model.parameters.data, want, model.parameters.size * sizeof *want);
            CHECK_OK(cmha_model_logits(&model, &l.batch, a));
            CHECK_OK(cmha_model_logits(&twin, &l.batch, b));
            CHECK_THAT(check_distance(a, b, BATCH * LENGTH * 128) == 0,
                       "%s: the loaded model computes something else", label);
            cmha_model_close(&model);
        }
        cmha_model_close(&twin);
    }
    free(a), free(b);
}

static void one_training(const char *label, const cmha_model_config *c, const cmha_batch *batch) {
    cmha_real *a = whole_run(c, batch, label, path_of("half.safetensors"), path_of("end.safetensors")), *b;
    static int turn;
    if (!a) return;
    resumed_run(c, batch, label, a);
    loaded(c, label, a);
    if (turn++ % 3 == 0) { /* and from the beginning; resuming has already done the same steps twice */
        cmha_model model;
        b = whole_run(c, batch, label, NULL, NULL);
        CHECK_OK(cmha_model_init(&model, &context, c));
        CHECK_THAT(b && !memcmp(a, b, model.parameters.size * sizeof *a),
                   "%s: the same seed gives another run", label);
        cmha_model_close(&model);
        free(b);
    }
    free(a);
}

/* Next tokens of a decoder, hidden ones of an encoder */
static void trains(const char *label, const cmha_model_config *config, int can) {
    cmha_model_config c = trained_config(config);
    (void)can;
    one_training(label, &c, NULL);
}

/* Weights that no mean can be made with are refused by every call that has them; a batch whose labels weigh
   nothing is no batch. */
static void wrong_weights(cmha_model *model, cmha_batch *batch) {
    static const struct { double weights[3]; cmha_status status; const char *says; } rows[] = {
        {{1, (double)NAN, 1}, CMHA_ERR_NOT_FINITE, "class_weights[1] is"},
        {{1, 1, (double)INFINITY}, CMHA_ERR_NOT_FINITE, "class_weights[2] is inf"},
        {{-1, 1, 1}, CMHA_ERR_ARGUMENT, "class_weights[0] is -1"},
        {{0, 0, 0}, CMHA_ERR_ARGUMENT, "sum to 0"}};
    const cmha_real *before = batch->class_weights;
    cmha_real weights[3];
    double loss = 7;
    batch->class_weights = weights;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int k = 0; k < 3; k++) weights[k] = (cmha_real)rows[i].weights[k];
        CHECK_IS(cmha_model_loss(model, batch, &loss), rows[i].status);
        CHECK_THAT(strstr(cmha_error(&context), rows[i].says) != NULL, "%s", cmha_error(&context));
        CHECK_IS(cmha_model_gradient(model, batch, 1, 0, &loss), rows[i].status);
    }
    batch->class_weights = before;
}

/* Labels: classes, and a number with classes = 1. Weights of the classes change what is learnt. */
static void fits(const char *label, const cmha_model_config *config, int can) {
    static const cmha_real weights[3] = {1, 5, (cmha_real)0.2};
    static int turn;
    cmha_model_config c = trained_config(config);
    cmha_model model;
    labelled l;
    double plain = 0, weighted = 0;
    (void)can;
    c.classes = turn % 2 ? 1 : 3, c.pool = turn / 2 % 2, c.label_range = turn / 4 % 2 ? 5 : 0, turn++;
    labelled_open(&l, c.classes);
    one_training(label, &c, &l.batch);
    if (c.classes == 1 || !open_model(&model, &c, label)) return;
    CHECK_OK(cmha_model_gradient(&model, &l.batch, -1, 3, &plain));
    l.batch.class_weights = weights;
    CHECK_OK(cmha_model_gradient(&model, &l.batch, 1, 3, &weighted));
    CHECK_THAT(plain != weighted && check_largest(model.parameters.grad, model.parameters.size) > 1e-6,
               "%s: class weights change nothing", label);
    wrong_weights(&model, &l.batch);
    cmha_model_close(&model);
}

/* Where all logits are alike, every hidden token costs log V; windows in which none is
   hidden are no reason to report less */
static void evaluates(const char *label, const cmha_model_config *config, int can) {
    cmha_model_config c = trained_config(config);
    cmha_model model;
    cmha_trainer trainer;
    cmha_trainer_config t = trainer_config();
    double loss = 0;
    (void)can;
    t.batch = 1, t.length = 8, t.mask_rate = 0.05;
    if (!open_model(&model, &c, label)) return;
    memset(model.parameters.data, 0, model.parameters.size * sizeof *model.parameters.data);
    CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    CHECK_OK(cmha_trainer_evaluate(&trainer, &stream, &loss));
    CHECK_THAT(fabs(loss - log(128)) < 1e-5, "%s: evaluation says %.4f, log V is %.4f", label, loss,
               log(128));
    cmha_trainer_close(&trainer), cmha_model_close(&model);
}

/* ------------------------------------------------ memory ------------------------------------------------ */

static void exact_memory(const char *label, const cmha_model_config *config, int can) {
    static int turn;
    cmha_model_config c = trained_config(config);
    cmha_trainer_config t = trainer_config();
    labelled l;
    (void)can;
    if (turn % 5 == 0) c.d_model = c.vocabulary; /* then logits are as large as states */
    if (turn % 2) c.dropout = c.attention_dropout = 0;
    t.accumulate = 1 + (size_t)turn % 2, t.mask_rate = turn % 3 ? 0.15 : 0.95;
    models_steps_allocate_nothing(&c, &t, &stream, NULL, label);
    c.classes = turn % 2 ? 3 : 1, c.pool = turn / 2 % 2, c.label_range = turn % 3 ? 5 : 0, turn++;
    labelled_open(&l, c.classes);
    models_steps_allocate_nothing(&c, &t, &stream, &l.batch, label);
}

/* A batch smaller than the trainer's fits into its memory as well */
static void smaller_batches(const char *label, const cmha_model_config *config, int can) {
    check_heap heap;
    cmha_context_config counting = check_heap_config(&heap);
    cmha_context own;
    cmha_model model;
    cmha_trainer trainer;
    cmha_trainer_config t = trainer_config();
    int32_t *ids = random_ids(BATCH * LENGTH, V), *targets = random_ids(BATCH * LENGTH, V);
    size_t calls, b, n, i;
    double loss, hidden = 1;
    (void)can;
    CHECK_OK(cmha_context_init(&own, &counting));
    CHECK_OK(cmha_model_init(&model, &own, config));
    CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    calls = heap.calls;
    for (b = 1; b <= BATCH; b++)
        for (n = 1; n <= LENGTH; n += 1 + n / 2) {
            cmha_batch batch = batch_of(ids, b, n);
            batch.targets = targets;
            for (i = 0; i < b * n; i++) targets[i] = check_random() < hidden ? (int32_t)check_below(V) : -1;
            hidden = check_random();
            CHECK_OK(cmha_trainer_step_batch(&trainer, &batch, &loss));
            CHECK_THAT(heap.calls == calls, "%s: %zu x %zu tokens allocate where %d x %d are reserved", label,
                       b, n, BATCH, LENGTH);
            calls = heap.calls;
        }
    cmha_trainer_close(&trainer), cmha_model_close(&model), cmha_context_close(&own);
    CHECK(check_heap_empty(&heap));
    free(ids), free(targets);
}

/* Bytes that the forward and backward pass of one attention takes, by a dry run: nothing is computed */
enum { MEASURED_HEADS = 2, MEASURED_WIDTH = 16 };

typedef cmha_tensor *measured_attention(cmha_tape *tape, cmha_tensor *q, cmha_tensor *k, cmha_tensor *v,
                                        int variant);

static size_t peak_of(measured_attention *attention, int variant, size_t planes, size_t value_planes,
                      size_t n) {
    cmha_tape tape;
    cmha_tensor *q, *k, *v, *y;
    size_t shape[3], peak;
    CHECK_OK(cmha_tape_init(&tape, &context, 1));
    tape.memory.measuring = 1;
    shape[0] = 1, shape[1] = n, shape[2] = MEASURED_HEADS * MEASURED_WIDTH * planes;
    q = cmha_tensor_new(&tape, 3, shape, 1), k = cmha_tensor_new(&tape, 3, shape, 1);
    shape[2] = MEASURED_HEADS * MEASURED_WIDTH * value_planes;
    v = cmha_tensor_new(&tape, 3, shape, 1);
    y = cmha_sum(&tape, attention(&tape, q, k, v, variant));
    CHECK_THAT(y && !cmha_tape_backward(&tape, y, 1), "%s", cmha_error(&context));
    peak = tape.memory.peak;
    cmha_tape_close(&tape);
    return peak;
}

static cmha_tensor *measured_real(cmha_tape *tape, cmha_tensor *q, cmha_tensor *k, cmha_tensor *v,
                                  int variant) {
    static const double omega[MEASURED_WIDTH / 2] = {1};
    cmha_attention_args a;
    memset(&a, 0, sizeof a);
    a.heads = a.kv_heads = MEASURED_HEADS, a.scale = 1, a.kind = (cmha_attention_kind)variant,
    a.share = CMHA_SHARE_FIXED;
    a.threads = context.threads;
    if (variant != CMHA_ATTENTION_DOT)
        a.rotation = cmha_rotation(tape, omega, 1, MEASURED_WIDTH / 2, q->shape[1], 0);
    return cmha_attention(tape, &a, q, k, v, NULL);
}

static cmha_tensor *measured_cope(cmha_tape *tape, cmha_tensor *q, cmha_tensor *k, cmha_tensor *v,
                                  int variant) {
    cmha_attention_args a;
    cmha_cope_options o;
    memset(&a, 0, sizeof a), memset(&o, 0, sizeof o);
    o.score =
        (cmha_cope_score)(variant < CMHA_COPE_SCORE_HYBRID_NORM ? variant : CMHA_COPE_SCORE_HYBRID_NORM),
    o.alpha = 1, o.eps = 1;
    o.norm_max = (cmha_norm_max)(variant < CMHA_COPE_SCORE_HYBRID_NORM
                                     ? CMHA_NORM_MAX_NONE
                                     : CMHA_NORM_MAX_ROW + variant - CMHA_COPE_SCORE_HYBRID_NORM),
    o.norm_max_grad = 1;
    a.d_k = MEASURED_WIDTH;
    cmha_cope_set_args(&a, &o);
    a.heads = a.kv_heads = MEASURED_HEADS, a.threads = context.threads;
    return cmha_attention(tape, &a, q, k, v, NULL);
}

static cmha_tensor *measured_complex(cmha_tape *tape, cmha_tensor *q, cmha_tensor *k, cmha_tensor *v,
                                     int variant) {
    cmha_attention_args a;
    memset(&a, 0, sizeof a);
    a.heads = a.kv_heads = MEASURED_HEADS, a.scale = 1, a.kind = CMHA_ATTENTION_COMPLEX, a.complex_v = 1,
    a.bilinear = 1;
    a.softmax = (cmha_softmax_kind)variant, a.magnitude = 1, a.threads = context.threads;
    if (variant > CMHA_SOFTMAX_SCORE)
        a.kind = CMHA_ATTENTION_ANGULAR, a.softmax = CMHA_SOFTMAX_REAL, a.bilinear = 0;
    return cmha_attention(tape, &a, q, k, v, NULL);
}

static cmha_tensor *measured_linear(cmha_tape *tape, cmha_tensor *q, cmha_tensor *k, cmha_tensor *v,
                                    int variant) {
    cmha_linear_attention_args a;
    memset(&a, 0, sizeof a);
    a.heads = MEASURED_HEADS, a.kind = variant / 2 ? CMHA_LINEAR_ANGULAR : CMHA_LINEAR_COPE,
    a.causal = variant % 2, a.eps = 1;
    return cmha_linear_attention(tape, &a, q, k, v);
}

static cmha_tensor *measured_lag(cmha_tape *tape, cmha_tensor *q, cmha_tensor *k, cmha_tensor *v,
                                 int variant) {
    cmha_lag_args a;
    memset(&a, 0, sizeof a);
    a.heads = MEASURED_HEADS, a.temp = 1, a.topk = variant ? 5 : 0, a.eps = 1;
    return cmha_lag_attention(tape, &a, q, k, v);
}

/* No n x n matrix anywhere: twice the tokens, twice the bytes. From 1024 tokens on, where
   few heads are worked on in pieces. */
static void linear_memory(const char *label, measured_attention *attention, int variants, size_t planes,
                          size_t value_planes) {
    int variant;
    for (variant = 0; variant < variants; variant++) {
        /* linear attention: real values of CoPE */
        size_t v_planes = value_planes ? value_planes : 1 + (size_t)variant / 2;
        double at[3], ratio;
        at[0] = (double)peak_of(attention, variant, planes, v_planes, 1024);
        at[1] = (double)peak_of(attention, variant, planes, v_planes, 2048);
        at[2] = (double)peak_of(attention, variant, planes, v_planes, 4096);
        ratio = (at[2] - at[1]) / (at[1] - at[0]);
        CHECK_THAT(at[0] > 0 && fabs(ratio - 2) < 0.1,
                   "%s %d: %.0f, %.0f and %.0f bytes for 1024, 2048 and 4096 tokens", label, variant, at[0],
                   at[1], at[2]);
    }
}

static void memory_is_linear(void) {
    linear_memory("real attention", measured_real, 3, 1, 1);
    linear_memory("CoPE attention", measured_cope, 7, 2, 1);
    linear_memory("complex attention", measured_complex, 6, 2, 2);
    linear_memory("linear attention", measured_linear, 4, 2, 0);
    linear_memory("mixing by lag", measured_lag, 2, 2, 2);
}

/* -------------------------------------------- bad arguments --------------------------------------------- */

static int one_line(const char *line) { return line[0] && !strchr(line, '\n'); }

static void refused_configurations(void) {
    static const struct {
        const char *options;
        cmha_status status;
    } bad[] = {
        {"family=cope attention=dot n_kv_heads=2", CMHA_ERR_ARGUMENT},
        {"family=crat n_kv_heads=1", CMHA_ERR_ARGUMENT},
        {MOBIUS "n_kv_heads=2", CMHA_ERR_ARGUMENT},
        {COPE "pcl_weight=0.1", CMHA_ERR_ARGUMENT},
        {COPE "position=learned", CMHA_ERR_ARGUMENT},
        {COPE "position=alibi", CMHA_ERR_ARGUMENT},
        {COPE "cope_score=hybrid_norm cope_max=head", CMHA_ERR_ARGUMENT},
        {COPE "cope_score=hybrid_norm cope_max=global", CMHA_ERR_ARGUMENT},
        {"family=mobius attention=dot placement=post", CMHA_ERR_ARGUMENT},
        {"family=mobius attention=dot placement=post position=alibi", CMHA_ERR_ARGUMENT},
        {MOBIUS "mobius_heads=5", CMHA_ERR_ARGUMENT},
        {MOBIUS "placement=pre", CMHA_ERR_ARGUMENT},
        {MOBIUS "pcl_weight=0.1", CMHA_ERR_ARGUMENT},
        {CRAT "attention=dot d_model=12", CMHA_ERR_ARGUMENT}, /* six complex numbers for four heads */
        {CRAT "d_model=18", CMHA_ERR_SHAPE},
        {CRAT "d_ff=25", CMHA_ERR_ARGUMENT},
        {CRAT "real_heads=5", CMHA_ERR_ARGUMENT},
        {CRAT "imag_heads=5", CMHA_ERR_ARGUMENT},
        {CRAT "real_heads=3 imag_heads=2", CMHA_ERR_ARGUMENT},
        {CRAT "real_heads=1024 imag_heads=1024", CMHA_ERR_ARGUMENT},
        {CRAT "position=learned", CMHA_ERR_ARGUMENT},
        {CRAT "crat_attention=lag", CMHA_ERR_ARGUMENT},
        {CRAT "window=3", CMHA_ERR_ARGUMENT},
        {CRAT "placement=post", CMHA_ERR_ARGUMENT},
        {CRAT "attention_bias=1", CMHA_ERR_ARGUMENT},
        {CRAT "output_bias=1", CMHA_ERR_ARGUMENT},
        {CRAT "experts=3 experts_top=4", CMHA_ERR_ARGUMENT},
        {CRAT "experts=1", CMHA_ERR_ARGUMENT},    /* a token goes through two */
        {CRAT "irw_layers=2", CMHA_ERR_ARGUMENT}, /* of two layers the middle is the second */
        {CRAT "irw_layers=1 irw_from=3", CMHA_ERR_ARGUMENT},
        {CRAT "irw_layers=1024 irw_from=1024", CMHA_ERR_ARGUMENT},
        {"layer_kinds=gl", CMHA_ERR_ARGUMENT},
        {COPE "d_model=20 attention=rope", CMHA_ERR_SHAPE},
        {"family=mobius attention=dot placement=post position=sinusoidal n_heads=1 d_model=15",
         CMHA_ERR_SHAPE},
    };
    cmha_model model;
    cmha_status status;
    size_t i, bytes;
    for (i = 0; i < sizeof bad / sizeof *bad; i++) {
        cmha_model_config config = check_model_config();
        models_set(&context, &config, bad[i].options);
        context.detail[0] = 0;
        status = cmha_model_init(&model, &context, &config);
        CHECK_THAT(status == bad[i].status && one_line(cmha_error(&context)), "%s: %s: \"%s\"",
                   bad[i].options, cmha_status_string(status), cmha_error(&context));
        context.detail[0] = 0;
        status = cmha_model_memory(&context, &config, 1, 8, &bytes, &bytes);
        CHECK_THAT(status == bad[i].status && one_line(cmha_error(&context)), "%s, memory: %s",
                   bad[i].options, cmha_status_string(status));
        cmha_model_close(&model); /* closing what was not opened does nothing */
    }
}

/* A status, its line, and parameters that stay as they were */
#define CHECK_REFUSED(trainer, batch, want) check_refused(trainer, batch, want, __LINE__)
static void check_refused(cmha_trainer *trainer, const cmha_batch *batch, cmha_status want, int line) {
    cmha_model *model = trainer->model;
    cmha_real *kept = check_zeros(model->parameters.size);
    double loss;
    cmha_status status;
    memcpy(kept, model->parameters.data, model->parameters.size * sizeof *kept);
    model->context->detail[0] = 0;
    status = cmha_trainer_step_batch(trainer, batch, &loss);
    CHECK_THAT(status == want && one_line(cmha_error(model->context)), "line %d: %s: \"%s\"", line,
               cmha_status_string(status), cmha_error(model->context));
    CHECK_THAT(!memcmp(kept, model->parameters.data, model->parameters.size * sizeof *kept),
               "line %d: a refused batch changed the parameters", line);
    free(kept);
}

static void refused_labels(const char *options, size_t classes) {
    cmha_model_config c = kind_config(options, ENCODER);
    cmha_model model;
    cmha_trainer trainer;
    cmha_trainer_config t = trainer_config();
    labelled l;
    double loss;
    cmha_real scores[BATCH * 3];
    c.vocabulary = 128, c.classes = classes;
    labelled_open(&l, classes);
    if (!open_model(&model, &c, options)) return;
    CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    if (classes) CHECK_OK(cmha_trainer_step_batch(&trainer, &l.batch, &loss));
    if (classes > 1) {
        l.labels[2] = (cmha_real)classes, CHECK_REFUSED(&trainer, &l.batch, CMHA_ERR_TOKEN);
        l.labels[2] = -1, CHECK_REFUSED(&trainer, &l.batch, CMHA_ERR_TOKEN);
        l.labels[2] = (cmha_real)1e30, CHECK_REFUSED(&trainer, &l.batch, CMHA_ERR_TOKEN);
        l.labels[2] = (cmha_real)NAN, CHECK_REFUSED(&trainer, &l.batch, CMHA_ERR_TOKEN);
        CHECK_IS(cmha_model_loss(&model, &l.batch, &loss), CMHA_ERR_TOKEN);
    } else if (classes == 1) {
        l.labels[2] = (cmha_real)NAN, CHECK_REFUSED(&trainer, &l.batch, CMHA_ERR_NOT_FINITE);
        l.labels[2] = (cmha_real)INFINITY, CHECK_REFUSED(&trainer, &l.batch, CMHA_ERR_NOT_FINITE);
    } else {
        CHECK_REFUSED(&trainer, &l.batch, CMHA_ERR_STATE);
        CHECK_IS(cmha_model_classify(&model, &l.batch, scores), CMHA_ERR_STATE);
        CHECK_IS(cmha_model_loss(&model, &l.batch, &loss), CMHA_ERR_STATE);
    }
    l.batch.labels = NULL;
    CHECK_REFUSED(&trainer, &l.batch, CMHA_ERR_ARGUMENT); /* nor are there targets */
    cmha_trainer_close(&trainer), cmha_model_close(&model);
}

static void refused_types(const char *options) {
    cmha_model_config c = kind_config(options, ENCODER);
    cmha_model model;
    int32_t ids[6] = {1, 2, 3, 4, 5, 6}, types[6] = {0, 1, 1, 0, 1, 0};
    cmha_real a[6 * V], b[6 * V];
    cmha_batch batch = batch_of(ids, 2, 3);
    c.token_types = 2;
    if (!open_model(&model, &c, options)) return;
    CHECK_OK(cmha_model_logits(&model, &batch, a));
    batch.types = types;
    CHECK_OK(cmha_model_logits(&model, &batch, b));
    CHECK_THAT(check_distance(a, b, 6 * V) > 1e-3, "%s: token types change nothing", options);
    types[5] = 2;
    CHECK_IS(cmha_model_logits(&model, &batch, b), CMHA_ERR_TOKEN);
    CHECK(one_line(cmha_error(&context)));
    types[5] = -1;
    CHECK_IS(cmha_model_logits(&model, &batch, b), CMHA_ERR_TOKEN);
    types[5] = 0, ids[5] = V;
    CHECK_IS(cmha_model_logits(&model, &batch, b), CMHA_ERR_TOKEN);
    cmha_model_close(&model);
}

static void refusals(void) {
    static const char *const families[] = {"attention=rope", COPE "cope_score=hybrid",
                                           MOBIUS "mobius_heads=2", CRAT "real_heads=1"};
    cmha_model model;
    cmha_cache cache;
    size_t i, classes;
    refused_configurations();
    for (i = 0; i < 4; i++) {
        cmha_model_config c = kind_config(families[i], ENCODER);
        for (classes = 0; classes < 4; classes += 1 + classes) refused_labels(families[i], classes);
        refused_types(families[i]);
        CHECK_OK(cmha_model_init(&model, &context, &c));
        /* an encoder cannot go on */
        CHECK_IS(cmha_cache_init(&cache, &model, 1, 8, 0, NULL), CMHA_ERR_STATE);
        cmha_model_close(&model);
    }
}

/* ----------------------------------------------- presets ------------------------------------------------ */

static double millions(const char *name) {
    cmha_model_config m;
    cmha_trainer_config t;
    size_t parameters = 0, training = 0;
    cmha_status status;
    CHECK_OK(cmha_preset(NULL, name, &m, &t));
    CHECK_OK(cmha_config_check(&context, cmha_trainer_table(), &t));
    status = cmha_model_memory(&context, &m, t.batch, t.length, &parameters, &training);
    /* more than 32 bits can count, and said so */
    if (status == CMHA_ERR_OVERFLOW && sizeof(size_t) == 4) training = SIZE_MAX;
    else CHECK_THAT(!status, "%s: %s", name, cmha_error(&context));
    CHECK_THAT(training > 4 * parameters, "%s: %zu bytes of parameters, %zu of training", name, parameters,
               training);
    return (double)parameters / sizeof(cmha_real) / 1e6;
}

static void near_millions(const char *name, double want, double tolerance) {
    double got = millions(name);
    CHECK_THAT(fabs(got / want - 1) < tolerance, "%s: %.2f million parameters, expected %.2f", name, got,
               want);
}

static void presets(void) {
    static const char *const names[] = {"tiny", "encoder", "paper", "repo", "eulerformer", "crat"};
    const double d = 256, norms = 4 * d, ffn = 2 * d * 1024 + 1024 + d, embeddings = (30522 + 2) * d,
                 head = 2 * d + 2;
    /* complex queries and keys; real ones */
    const double first = 6 * d * d + d + norms + ffn, plain = 4 * d * d + d + norms + ffn;
    size_t i;
    for (i = 0; i < sizeof names / sizeof *names; i++) CHECK(millions(names[i]) > 0.1);
    near_millions("cope", (embeddings + first + 5 * plain + head) / 1e6, 0.005);
    near_millions("mobiusbert", 104.2, 0.02);   /* semantics.md 3.2, "H&T" */
    /* one plain layer of 7.09 million more, 111 to 112.5 by the same table */
    near_millions("mobroformer", 111.25, 0.02);
    CHECK_IS(cmha_preset(NULL, "nothing", NULL, NULL), CMHA_ERR_NOT_FOUND);
}

/* ----------------------------------- models built by hand, of layers ------------------------------------ */

/* x + gain * f(x), f the attention or (second) the feed-forward layer, normed before or after */
static cmha_tensor *half_block(cmha_model *m, cmha_tape *tape, const cmha_block *k, cmha_tensor *x,
                               int second) {
    const cmha_real eps = (cmha_real)m->config.norm_eps, gain = (cmha_real)m->config.residual_scale;
    int post = m->config.placement == CMHA_PLACEMENT_POST;
    cmha_tensor *weight = second ? k->ln2_weight : k->ln1_weight, *bias = second ? k->ln2_bias : k->ln1_bias;
    cmha_tensor *h = post ? x : cmha_layernorm(tape, x, weight, bias, eps);
    cmha_attention_args args;
    memset(&args, 0, sizeof args);
    args.heads = args.kv_heads = m->config.n_heads, args.kind = CMHA_ATTENTION_DOT, args.causal = 1;
    args.scale = (cmha_real)(1 / sqrt((double)(m->config.d_model / m->config.n_heads)));
    h = second ? cmha_linear(tape, h, k->w1_weight, k->w1_bias)
               : cmha_linear(tape, h, k->qkv_weight, k->qkv_bias);
    if (!second) h = cmha_attention(tape, &args, h, NULL, NULL, NULL);
    x = second ? cmha_sublayer(tape, h, CMHA_ACTIVATION_GELU_ERF, k->w2_weight, k->w2_bias, x, gain, 0)
               : cmha_sublayer(tape, h, CMHA_ACTIVATION_NONE, k->wo_weight, k->wo_bias, x, gain, 0);
    return post ? cmha_layernorm(tape, x, weight, bias, eps) : x;
}

static void real_model(const char *options) {
    enum { N = 70 };
    static int32_t ids[N], at[N];
    cmha_model_config config = check_model_config();
    cmha_model model;
    cmha_tape tape;
    cmha_batch batch = batch_of(ids, 1, N);
    cmha_tensor *want, *got;
    size_t i;
    models_set(&context, &config, "attention=dot position=learned embedding_scale=1 residual_scale=0.7");
    models_set(&context, &config, options);
    for (i = 0; i < N; i++) ids[i] = (int32_t)check_below(config.vocabulary), at[i] = (int32_t)i;
    if (!open_model(&model, &config, options)) return;
    disturb(&model);
    CHECK_OK(cmha_tape_init(&tape, &context, 0));
    got = cmha_model_states(&model, &tape, &batch, NULL);
    want = cmha_scale(&tape, cmha_embedding(&tape, model.token_weight, ids, 1, N), 4); /* sqrt(16) */
    want = cmha_add(&tape, want, cmha_embedding(&tape, model.position_weight, at, 1, N));
    for (i = 0; i < 2 * config.n_layers; i++)
        want = half_block(&model, &tape, &model.blocks[i / 2], want, i % 2 == 1);
    if (model.final_weight)
        want = cmha_layernorm(&tape, want, model.final_weight, model.final_bias, (cmha_real)config.norm_eps);
    if (CHECK(got && want && got->size == want->size && check_largest(want->data, want->size) > 0.1))
        CHECK_THAT(check_distance(got->data, want->data, want->size) <= check_tolerance(1e-12, 2e-5),
                   "%s: off by %g", options, check_distance(got->data, want->data, want->size));
    cmha_tape_close(&tape), cmha_model_close(&model);
}

/* ------------------------------ 13: without Möbius heads, a vanilla block ------------------------------ */

/* A Möbius block by hand: I' = LN1(x) + i LN1(imag), attention on Re I' + Im I', residual Re I' */
static cmha_tensor *vanilla_block(cmha_model *m, cmha_tape *tape, size_t layer, cmha_tensor *x,
                                  cmha_tensor *imag) {
    const cmha_block *k = &m->blocks[layer];
    const cmha_real eps = (cmha_real)m->config.norm_eps;
    cmha_attention_args args;
    cmha_tensor *re, *im, *a, *y;
    memset(&args, 0, sizeof args);
    args.heads = args.kv_heads = m->config.n_heads, args.kind = CMHA_ATTENTION_DOT, args.causal = 1;
    args.scale = (cmha_real)(1 / sqrt((double)(m->config.d_model / m->config.n_heads)));
    re = cmha_layernorm(tape, x, k->ln1_weight, k->ln1_bias, eps);
    im = cmha_layernorm(tape, imag, k->ln1_weight, k->ln1_bias, eps);
    a = cmha_attention(tape, &args, cmha_linear(tape, cmha_add(tape, re, im), k->qkv_weight, NULL), NULL,
                       NULL, NULL);
    y = cmha_sublayer(tape, a, CMHA_ACTIVATION_NONE, k->wo_weight, NULL, re, 1, 0);
    y = cmha_layernorm(tape, y, k->ln2_weight, k->ln2_bias, eps);
    y = cmha_sublayer(tape, cmha_linear(tape, y, k->w1_weight, k->w1_bias), CMHA_ACTIVATION_GELU_ERF,
                      k->w2_weight, k->w2_bias, y, 1, 0);
    return cmha_layernorm(tape, y, k->ln3_weight, k->ln3_bias, eps);
}

/* The first layer's imaginary channel is the positions, the second's the token embeddings. */
static void without_mobius_heads(void) {
    enum { N = 70 };
    static int32_t ids[N], at[N];
    cmha_model_config config = check_model_config();
    cmha_model model;
    cmha_tape tape;
    cmha_batch batch;
    cmha_tensor *want, *got, *tokens;
    size_t i;
    models_set(&context, &config, MOBIUS "mobius_heads=0 n_layers=2");
    for (i = 0; i < N; i++) ids[i] = (int32_t)check_below(config.vocabulary), at[i] = (int32_t)i;
    memset(&batch, 0, sizeof batch);
    batch.ids = ids, batch.batch = 1, batch.length = N;
    CHECK_OK(cmha_model_init(&model, &context, &config));
    for (i = 0; i < model.parameters.size; i++)
        model.parameters.data[i] += (cmha_real)(0.05 * check_random());
    CHECK_OK(cmha_tape_init(&tape, &context, 0));
    got = cmha_model_states(&model, &tape, &batch, NULL);
    tokens = cmha_embedding(&tape, model.token_weight, ids, 1, N);
    want = vanilla_block(&model, &tape, 0, tokens, cmha_embedding(&tape, model.position_weight, at, 1, N));
    want = vanilla_block(&model, &tape, 1, want, tokens);
    if (CHECK(got && want && got->size == want->size && check_largest(want->data, want->size) > 0.1))
        CHECK_THAT(check_distance(got->data, want->data, want->size) <= check_tolerance(1e-12, 1e-5),
                   "off by %g", check_distance(got->data, want->data, want->size));
    cmha_tape_close(&tape), cmha_model_close(&model);
}

/* Which of six layers have Möbius heads */
static void mobius_wirings(void) {
    static const char *const wirings[4][2] = {
        {"top", "100000"}, {"framed", "100001"}, {"stacked", "110000"}, {"alternating", "100100"}};
    cmha_model_config config = check_model_config();
    cmha_model model;
    char options[128], name[48];
    size_t w, i;
    for (w = 0; w < 4; w++) {
        snprintf(options, sizeof options, MOBIUS "n_layers=6 mobius_wiring=%s", wirings[w][0]);
        models_set(&context, &config, options);
        if (!open_model(&model, &config, options)) continue;
        for (i = 0; i < 6; i++) {
            snprintf(name, sizeof name, "blocks.%zu.attn.mobius_k.weight", i);
            int has = cmha_parameters_find(&model.parameters, name) != NULL;
            CHECK_THAT(has == (wirings[w][1][i] == '1'), "%s: layer %zu", wirings[w][0], i);
        }
        cmha_model_close(&model);
    }
}

int main(int argc, char **argv) {
    (void)argc;
    cmha_blas_restart(argv);
    if (!system_folder(folder)) return 3;
    check_context(&context, 2, 17);
    stream.data = text, stream.count = stream.bytes = models_text(text, sizeof text), stream.width = 1;
    for_kinds(decodes, DECODER, 3), for_kinds(slides, DECODER, 4);
    for_kinds(causal, DECODER, 2), for_kinds(causal, ENCODER, 2);
    for_kinds(pads, DECODER, 2), for_kinds(pads, ENCODER, 2);
    for_kinds(contents, DECODER, 3), for_kinds(contents, ENCODER, 3);
    for_kinds(little, DECODER, 3), for_kinds(little, ENCODER, 3);
    for_kinds(trains, DECODER, 5), for_kinds(trains, ENCODER, 5), for_kinds(fits, ENCODER, 4);
    for_kinds(evaluates, DECODER, 8), for_kinds(evaluates, ENCODER, 8);
    for_kinds(exact_memory, DECODER, 4), for_kinds(exact_memory, ENCODER, 4);
    for_kinds(smaller_batches, DECODER, 4), for_kinds(smaller_batches, ENCODER, 4);
    memory_is_linear();
    refusals();
    presets();
    remove(path_of("half.safetensors")), remove(path_of("end.safetensors")), rmdir(folder);
    real_model("placement=pre attention_bias=1"), real_model("placement=post");
    without_mobius_heads(), mobius_wirings();
    cmha_context_close(&context);
    return check_end();
}
