/* Caches without an end: rings of keys and states against the whole sequence at once, forgetting with sinks,
   positions far out, memory after the opening, saved states. */
#define _POSIX_C_SOURCE 200809L
#define _DARWIN_C_SOURCE
#include "models.h"
#include "system.h"

#include <float.h>

static cmha_context context;

enum { V = 19, B = 2, W = 3 };

#define COPE "family=cope attention=dot "
#define MOBIUS "family=mobius attention=dot position=sinusoidal placement=post "
#define FEATURES "tokens=0 vocabulary=0 features=3 values=2 "

/* What a stream can be read by: every feature map, position and core that has no end */
static const char *const kinds[] = {
    "attention=cmha",
    "attention=rope layout=half norm=rmsnorm activation=swiglu n_kv_heads=2",
    "attention=pope",
    "attention=ropepp",
    "attention=dot position=alibi n_kv_heads=1",
    "attention=dot position=sinusoidal",
    "attention=dot position=multifreq pe_terms=2",
    "attention=rope qk_norm=rms_gain score_softcap=0.7 head_temperature=1 n_layers=3",
    "attention=rope parallel=norms value_residual=1 residual_mix=1 n_kv_heads=2 n_layers=3",
    FEATURES "attention=rope",
    FEATURES "attention=cmha d_head=6 rotary_dims=4",
    COPE "cope_score=phase cope_imag=sin_cos",
    COPE "cope_score=hybrid_norm cope_scale=3 attention=rope",
    COPE "cope_score=real cope_imag=sin_cos attention=cmha frequency=table",
    MOBIUS "attention=rope mobius_mode=full mobius_softmax=ri_split n_layers=3 norm=rmsnorm",
    MOBIUS "mobius_heads=4 mobius_softmax=real mobius_hermitian=1",
};
/* These keep a state and no keys */
static const char *const states[] = {
    COPE "cope_score=linear cope_imag=sin_cos n_layers=1",
    "family=crat crat_attention=linear real_heads=1 imag_heads=2",
    "family=crat crat_attention=linear low_rank=3 complex_norm=crms n_layers=1",
};
enum { KINDS = sizeof kinds / sizeof *kinds, STATES = sizeof states / sizeof *states };

/* A model, what it reads and how much it says of a position */
typedef struct {
    cmha_model model;
    char label[200];
    size_t n, says;
    int32_t *ids;         /* [B, n] */
    cmha_real *features;  /* [B, n, W] or NULL */
    cmha_real *full;      /* [B, n, says] */
} stream;

static int open_stream(stream *s, const char *options, const char *more, size_t n) {
    cmha_model_config config = check_model_config();
    double omega[64];
    size_t i;
    memset(s, 0, sizeof *s);
    snprintf(s->label, sizeof s->label, "%s %s", options, more);
    models_set(&context, &config, options), models_set(&context, &config, more);
    config.causal = 1;
    if (!CHECK_THAT(!cmha_model_init(&s->model, &context, &config), "%s: %s", s->label, cmha_error(&context)))
        return 0;
    for (i = 0; i < s->model.parameters.size; i++)
        s->model.parameters.data[i] += (cmha_real)(0.05 * check_random());
    for (i = 0; i < 64; i++) omega[i] = 0.3 * check_random();
    if (config.frequency == CMHA_FREQUENCY_TABLE) CHECK_OK(cmha_model_set_frequencies(&s->model, omega));
    s->n = n, s->says = config.values ? config.values : config.vocabulary;
    s->ids = (int32_t *)check_alloc(B * n, sizeof *s->ids);
    for (i = 0; i < B * n; i++) s->ids[i] = (int32_t)check_below(V);
    if (config.features) s->features = check_array(B * n * W, 1);
    return 1;
}

static void close_stream(stream *s) {
    cmha_model_close(&s->model);
    free(s->ids), free(s->features), free(s->full);
}

/* What the model says of all positions at once */
static void read_whole(stream *s) {
    cmha_batch b;
    memset(&b, 0, sizeof b);
    b.batch = B, b.length = s->n, b.features = s->features;
    if (!s->features) b.ids = s->ids;
    s->full = check_zeros(B * s->n * s->says);
    CHECK_OK(s->features ? cmha_model_predict(&s->model, &b, s->full) : cmha_model_logits(&s->model, &b, s->full));
    CHECK(check_finite(s->full, B * s->n * s->says) && check_largest(s->full, B * s->n * s->says) > 0.1);
}

/* Reads positions at .. at + n - 1 */
static cmha_status feed(cmha_cache *cache, const stream *s, size_t at, size_t n, cmha_real *out) {
    int32_t *ids = (int32_t *)check_alloc(B * n, sizeof *ids);
    cmha_real *x = check_zeros(B * n * W);
    cmha_status status;
    size_t b;
    for (b = 0; b < B; b++) {
        memcpy(ids + b * n, s->ids + b * s->n + at, n * sizeof *ids);
        if (s->features) memcpy(x + b * n * W, s->features + (b * s->n + at) * W, n * W * sizeof *x);
    }
    status = s->features ? cmha_cache_append_features(cache, NULL, x, n, out)
                         : cmha_cache_append(cache, ids, n, out);
    free(ids), free(x);
    return status;
}

/* Reads all, `chunk` positions a call and now and then one -> the largest distance from what is wanted of
   the last of each: full or (NULL) what another cache says */
static double read_against(cmha_cache *cache, const stream *s, size_t chunk, cmha_cache *other) {
    cmha_real *out = check_zeros(B * s->says), *want = check_zeros(B * s->says);
    double worst = 0;
    size_t at, n, b, turn = 0;
    for (at = 0; at < s->n; at += n, turn++) {
        n = turn % 3 == 1 ? 1 : chunk < s->n - at ? chunk : s->n - at;
        if (!CHECK_THAT(!feed(cache, s, at, n, out), "%s: %s", s->label, cmha_error(&context))) break;
        if (other && !CHECK_THAT(!feed(other, s, at, n, want), "%s: %s", s->label, cmha_error(&context)))
            break;
        for (b = 0; b < B && !other; b++)
            memcpy(want + b * s->says, s->full + (b * s->n + at + n - 1) * s->says, s->says * sizeof *want);
        worst = fmax(worst, check_distance(out, want, B * s->says));
        CHECK(cache->first + cache->length == at + n && cache->length <= cache->capacity);
    }
    free(out), free(want);
    return worst;
}

/* ------------------------------------------- rings and states ------------------------------------------- */

static const struct {
    size_t window, sinks, capacity, prompt, chunk;
} shapes[] = {{5, 0, 5, 0, 1}, {1, 0, 30, 3, 7}, {65, 0, 65, 1, 3}, {64, 0, 300, 64, 64}, {63, 0, 63, 9, 100},
              {3, 2, 5, 5, 11}, {70, 66, 200, 20, 33}, {2, 64, 66, 1, 1}};
enum { SHAPES = sizeof shapes / sizeof *shapes, LONG = 450 };

/* A ring says what the whole sequence does, by the window alone; BF16: what such a cache without an end to
   reach does. After a reset it says so again */
static void ring(const char *options, size_t shape) {
    char more[64];
    cmha_cache cache, other;
    cmha_cache_options o;
    stream s;
    double off, again, tolerance;
    int halves;
    snprintf(more, sizeof more, "window=%zu sinks=%zu", shapes[shape].window, shapes[shape].sinks);
    if (!open_stream(&s, options, more, LONG)) return;
    read_whole(&s);
    for (halves = 0; halves < 2; halves++) {
        memset(&o, 0, sizeof o);
        o.prompt = shapes[shape].prompt, o.storage = halves ? CMHA_STORAGE_BF16 : CMHA_STORAGE_FLOAT;
        CHECK_THAT(!cmha_cache_init(&cache, &s.model, B, shapes[shape].capacity, CMHA_SLIDE, &o), "%s: %s",
                   s.label, cmha_error(&context));
        CHECK_OK(cmha_cache_init(&other, &s.model, B, LONG, CMHA_SLIDE_NOT, &o));
        CHECK_THAT(cache.endless && cache.exact && cache.capacity == shapes[shape].window + shapes[shape].sinks,
                   "%s: no ring", s.label);
        off = read_against(&cache, &s, shapes[shape].chunk, halves ? &other : NULL);
        cmha_cache_reset(&cache), cmha_cache_reset(&other);
        again = read_against(&cache, &s, shapes[shape].chunk, halves ? &other : NULL);
        tolerance = halves ? 4e-3 : check_tolerance(1e-10, 3e-4); /* BF16: a sum's last bit may move a number's */
        CHECK_THAT(off < tolerance && again == off, "%s: a ring (%s) is off by %.3g, after a reset by %.3g",
                   s.label, halves ? "BF16" : "numbers", off, again);
        cmha_cache_close(&cache), cmha_cache_close(&other);
    }
    close_stream(&s);
}

static void state(const char *options) {
    cmha_cache cache;
    stream s;
    double off;
    if (!open_stream(&s, options, "", LONG)) return;
    read_whole(&s);
    CHECK_OK(cmha_cache_init(&cache, &s.model, B, 3, CMHA_SLIDE, NULL));
    CHECK(cache.endless && cache.exact && !cache.window && !cache.ring);
    off = read_against(&cache, &s, 5, NULL);
    CHECK_THAT(off < check_tolerance(1e-10, 3e-4), "%s: a state is off by %.3g", s.label, off);
    cmha_cache_close(&cache), close_stream(&s);
}

int main(int argc, char **argv) {
    size_t i, j;
    (void)argc;
    cmha_blas_restart(argv);
    check_context(&context, 1, 17);
    for (i = 0; i < KINDS; i++)
        for (j = 0; j < SHAPES; j++)
            if ((i + j) % (check_quick() ? 8 : 3) == 0) ring(kinds[i], j);
    for (i = 0; i < STATES; i++) state(states[i]);
    cmha_context_close(&context);
    return check_end();
}
