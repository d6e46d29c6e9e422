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
    if (s->features) CHECK_OK(cmha_model_predict(&s->model, &b, s->full));
    else CHECK_OK(cmha_model_logits(&s->model, &b, s->full));
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
    size_t holds = shapes[shape].window + shapes[shape].sinks;
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
        CHECK_THAT(cache.endless && cache.exact && cache.capacity == holds, "%s: no ring", s.label);
        off = read_against(&cache, &s, shapes[shape].chunk, halves ? &other : NULL);
        cmha_cache_reset(&cache), cmha_cache_reset(&other);
        again = read_against(&cache, &s, shapes[shape].chunk, halves ? &other : NULL);
        tolerance = halves ? 4e-3 : check_tolerance(1e-10, 3e-4); /* BF16: by a sum's last bit */
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

/* ---------------------------------------- forgetting by approximation ----------------------------------- */

/* What forgets token by token is, without sinks, the model with that window */
static void forgets(const char *options) {
    enum { CAPACITY = 70 };
    cmha_cache cache;
    stream s, windowed;
    double off;
    if (!open_stream(&s, options, "", LONG) || !open_stream(&windowed, options, "window=70", LONG)) return;
    CHECK(s.model.parameters.size == windowed.model.parameters.size);
    memcpy(windowed.model.parameters.data, s.model.parameters.data,
           s.model.parameters.size * sizeof(cmha_real));
    if (s.model.omega && windowed.model.omega)
        memcpy(windowed.model.omega, s.model.omega, s.model.n_omega * s.model.P * sizeof *s.model.omega);
    memcpy(windowed.ids, s.ids, B * LONG * sizeof *s.ids);
    if (s.features) memcpy(windowed.features, s.features, B * LONG * W * sizeof *s.features);
    read_whole(&windowed);
    s.full = windowed.full;
    CHECK_THAT(!cmha_cache_init(&cache, &s.model, B, CAPACITY, CMHA_SLIDE_FORGET, NULL), "%s", s.label);
    CHECK(cache.endless && !cache.exact && cache.window == CAPACITY);
    off = read_against(&cache, &s, 9, NULL);
    CHECK_THAT(off < check_tolerance(1e-10, 3e-4), "%s: forgetting is off by %.3g", s.label, off);
    s.full = NULL;
    cmha_cache_close(&cache), close_stream(&s), close_stream(&windowed);
}

/* Reads what a cache holds after token `at` of each sequence [B, n], the first `sinks` and the newest ones,
   into an empty cache: logits into want. */
static void read_held(cmha_cache *fresh, const int32_t *ids, size_t n, size_t at, size_t sinks,
                      cmha_real *want) {
    size_t capacity = fresh->capacity, newest = capacity - sinks;
    int32_t *held = (int32_t *)check_alloc(B * capacity, sizeof *held);
    for (size_t b = 0; b < B; b++) {
        memcpy(held + b * capacity, ids + b * n, sinks * sizeof *held);
        memcpy(held + b * capacity + sinks, ids + b * n + at + 1 - newest, newest * sizeof *held);
    }
    cmha_cache_reset(fresh);
    CHECK_OK(cmha_cache_append(fresh, held, capacity, want));
    free(held);
}

/* With sinks, in one layer of relative positions, it says what the model says of the tokens held alone:
   sinks stay as near as they are in the cache */
static void forgets_with_sinks(const char *options, size_t sinks, size_t capacity) {
    enum { N = 260 };
    cmha_cache cache, fresh;
    cmha_cache_options o;
    stream s;
    cmha_real got[B * V], want[B * V];
    double off = 0;
    size_t at;
    memset(&o, 0, sizeof o);
    o.sinks = sinks, o.prompt = 4;
    if (!open_stream(&s, options, "n_layers=1", N)) return;
    CHECK_THAT(!cmha_cache_init(&cache, &s.model, B, capacity, CMHA_SLIDE_FORGET, &o), "%s: %s", s.label,
               cmha_error(&context));
    CHECK_OK(cmha_cache_init(&fresh, &s.model, B, capacity, CMHA_SLIDE_NOT, NULL));
    for (at = 0; at < N; at++) {
        if (at < 40 && at % 4 == 0) at += 3, CHECK_OK(feed(&cache, &s, at - 3, 4, got));
        else CHECK_OK(feed(&cache, &s, at, 1, got));
        if (at < capacity || at % 3) continue;
        read_held(&fresh, s.ids, N, at, sinks, want);
        off = fmax(off, check_distance(got, want, B * V));
    }
    CHECK(cache.first == N - capacity && cache.length == capacity);
    CHECK_THAT(off < check_tolerance(1e-10, 3e-4), "%s, %zu sinks of %zu: off by %.3g", s.label, sinks,
               capacity, off);
    cmha_cache_close(&cache), cmha_cache_close(&fresh), close_stream(&s);
}

/* ---------------------------------------- layers of different kinds ------------------------------------- */

#define LAYERS "attention=rope placement=sandwich n_layers=3 local_base=50 "

/* Where some layers see all, CMHA_SLIDE is no ring: a full cache forgets a quarter and says what the rest
   says from position 0 on */
static void mixed_reads_again(const char *options) {
    enum { CAPACITY = 16, N = 90 };
    cmha_cache cache, fresh;
    cmha_real got[B * V], want[B * V];
    int32_t *held = (int32_t *)check_alloc(B * CAPACITY, sizeof *held);
    double off = 0;
    size_t at, b;
    stream s;
    if (!open_stream(&s, options, "window=5", N)) return;
    CHECK_OK(cmha_cache_init(&cache, &s.model, B, CAPACITY, CMHA_SLIDE, NULL));
    CHECK_OK(cmha_cache_init(&fresh, &s.model, B, CAPACITY, CMHA_SLIDE_NOT, NULL));
    CHECK_THAT(!cache.endless && !cache.exact, "%s: it is a ring", s.label);
    for (at = 0; at < N; at++) {
        CHECK_OK(feed(&cache, &s, at, 1, got));
        for (b = 0; b < B; b++)
            memcpy(held + b * cache.length, s.ids + b * N + cache.first, cache.length * sizeof *held);
        cmha_cache_reset(&fresh);
        CHECK_OK(cmha_cache_append(&fresh, held, cache.length, want));
        off = fmax(off, check_distance(got, want, B * V));
    }
    CHECK(cache.first > 0 && cache.first + cache.length == N);
    CHECK_THAT(off < check_tolerance(1e-10, 3e-4), "%s: reading again is off by %.3g", s.label, off);
    free(held), cmha_cache_close(&cache), cmha_cache_close(&fresh), close_stream(&s);
}

/* One layer alone looks at other tokens, what the others' attention says is times 0: forgetting with sinks
   says what the model says of the tokens held, in layers of every letter */
static void mixed_forgets(const char *options, size_t active, size_t sinks, size_t capacity) {
    enum { N = 260 };
    cmha_cache cache, fresh;
    cmha_cache_options o;
    cmha_real got[B * V], want[B * V];
    double off = 0;
    size_t at, i;
    stream s;
    memset(&o, 0, sizeof o);
    o.sinks = sinks, o.prompt = 4;
    if (!open_stream(&s, options, "window=5", N)) return;
    for (i = 0; i < s.model.config.n_layers; i++) {
        cmha_tensor *last = s.model.blocks[i].wo_weight;
        if (i != active) memset(last->data, 0, last->size * sizeof *last->data);
    }
    CHECK_THAT(!cmha_cache_init(&cache, &s.model, B, capacity, CMHA_SLIDE_FORGET, &o), "%s: %s", s.label,
               cmha_error(&context));
    CHECK_OK(cmha_cache_init(&fresh, &s.model, B, capacity, CMHA_SLIDE_NOT, NULL));
    CHECK(cache.endless && !cache.exact && cache.sinks == sinks && cache.window == capacity - sinks);
    for (at = 0; at < N; at++) {
        CHECK_OK(feed(&cache, &s, at, 1, got));
        if (at < capacity || at % 3) continue;
        read_held(&fresh, s.ids, N, at, sinks, want);
        off = fmax(off, check_distance(got, want, B * V));
    }
    CHECK_THAT(off < check_tolerance(1e-10, 3e-4), "%s, layer %zu, %zu sinks of %zu: off by %.3g", s.label,
               active, sinks, capacity, off);
    cmha_cache_close(&cache), cmha_cache_close(&fresh), close_stream(&s);
}

/* All layers at once: what a plain cache says until the capacity is reached, each sequence for itself, and
   then finite numbers that no longer are the whole sequence's */
static void mixed_together(const char *options, size_t sinks, size_t capacity) {
    enum { N = 200 };
    cmha_cache two, one, plain;
    cmha_cache_options o;
    cmha_real a[B * V], b[V], c[B * V];
    double early = 0, alone = 0, late = 0;
    size_t at;
    stream s;
    memset(&o, 0, sizeof o);
    o.sinks = sinks;
    if (!open_stream(&s, options, "window=5", N)) return;
    CHECK_OK(cmha_cache_init(&two, &s.model, B, capacity, CMHA_SLIDE_FORGET, &o));
    CHECK_OK(cmha_cache_init(&one, &s.model, 1, capacity, CMHA_SLIDE_FORGET, &o));
    CHECK_OK(cmha_cache_init(&plain, &s.model, B, N, CMHA_SLIDE_NOT, NULL));
    for (at = 0; at < N; at++) {
        CHECK_OK(feed(&two, &s, at, 1, a)), CHECK_OK(feed(&plain, &s, at, 1, c));
        CHECK_OK(cmha_cache_append(&one, s.ids + N + at, 1, b)); /* the second sequence */
        CHECK(check_finite(a, B * V));
        alone = fmax(alone, check_distance(a + V, b, V));
        if (at < capacity) early = fmax(early, check_distance(a, c, B * V));
        else late = fmax(late, check_distance(a, c, B * V));
    }
    CHECK_THAT(early < check_tolerance(1e-10, 3e-4), "%s: before it is full off by %.3g", s.label, early);
    CHECK_THAT(alone < check_tolerance(1e-10, 3e-4), "%s: one sequence is off by %.3g", s.label, alone);
    CHECK_THAT(late > 1e-3, "%s: it forgets nothing (%.3g)", s.label, late);
    cmha_cache_close(&two), cmha_cache_close(&one), cmha_cache_close(&plain), close_stream(&s);
}

static void mixed(void) {
    static const char *const layers[] = {LAYERS "layer_kinds=gln", LAYERS "layer_kinds=nlg n_kv_heads=2",
                                         "attention=pope n_layers=3 layer_kinds=lgn local_base=20"};
    size_t i, active;
    for (i = 0; i < SHAPES; i++) ring(LAYERS "layer_kinds=l", i);
    mixed_reads_again(LAYERS "layer_kinds=gl"), mixed_reads_again(LAYERS "layer_kinds=ln");
    for (i = 0; i < sizeof layers / sizeof *layers; i++) {
        for (active = 0; active < 3; active++)
            mixed_forgets(layers[i], active, 4, 40), mixed_forgets(layers[i], active, 65, 130);
        mixed_together(layers[i], 3, 70);
    }
}

/* ----------------------------------------------- far out ------------------------------------------------ */

/* Relative positions: at 10^7 a ring says what it says at 0. (The tokens before `first` never were.) */
static void far_out(const char *options) {
    enum { FAR = 10000000, SKIP = 40 };
    cmha_cache near, far;
    cmha_real a[B * V], b[B * V];
    double off = 0;
    stream s;
    size_t at;
    if (!open_stream(&s, options, "window=9 n_layers=2", 200)) return;
    CHECK_OK(cmha_cache_init(&near, &s.model, B, 9, CMHA_SLIDE, NULL));
    CHECK_OK(cmha_cache_init(&far, &s.model, B, 9, CMHA_SLIDE, NULL));
    far.first = FAR;
    for (at = 0; at < s.n; at++) {
        CHECK_OK(feed(&near, &s, at, 1, a)), CHECK_OK(feed(&far, &s, at, 1, b));
        if (at >= SKIP) off = fmax(off, check_distance(a, b, B * s.says));
    }
    CHECK(far.first + far.length == FAR + s.n);
    CHECK_THAT(off < check_tolerance(1e-7, 3e-4), "%s: at position 10^7 it is off by %.3g", s.label, off);
    cmha_cache_close(&near), cmha_cache_close(&far), close_stream(&s);
}

/* --------------------------------------------- saved states --------------------------------------------- */

static char folder[64] = "/tmp/cmha-streams-XXXXXX";

static const char *path_of(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static size_t with_wrong_tokens; /* caches that were saved so */

/* A stream that is saved in its middle and read into a new cache goes on bit for bit; at every fault the
   cache stays as it was */
static void saved(const char *options, const char *more, int slide, int storage) {
    enum { N = 160, HALF = 77, CAPACITY = 40 };
    cmha_cache one, two;
    cmha_cache_options o;
    stream s;
    cmha_real a[B * V], b[B * V];
    size_t at, i, size = 0;
    unsigned char *bytes;
    FILE *file;
    memset(&o, 0, sizeof o);
    o.storage = storage ? CMHA_STORAGE_BF16 : CMHA_STORAGE_FLOAT, o.prompt = 3;
    if (slide == CMHA_SLIDE_FORGET) o.sinks = 2;
    if (!open_stream(&s, options, more, N)) return;
    CHECK_OK(cmha_cache_init(&one, &s.model, B, slide ? CAPACITY : N, slide, &o));
    CHECK_OK(cmha_cache_init(&two, &s.model, B, slide ? CAPACITY : N, slide, &o));
    for (at = 0; at < HALF; at++) CHECK_OK(feed(&one, &s, at, 1, a));
    CHECK_OK(cmha_cache_save(&one, path_of("cache")));
    CHECK_THAT(!cmha_cache_read(&two, path_of("cache")), "%s: %s", s.label, cmha_error(&context));
    CHECK(two.length == one.length && two.first == one.first);
    for (; at < N; at++) {
        CHECK_OK(feed(&one, &s, at, 1, a)), CHECK_OK(feed(&two, &s, at, 1, b));
        if (!CHECK_THAT(!memcmp(a, b, B * s.says * sizeof *a), "%s: token %zu differs", s.label, at)) break;
    }
    file = fopen(path_of("cache"), "rb"), bytes = (unsigned char *)check_alloc(1 << 24, 1);
    if (CHECK(file != NULL)) size = fread(bytes, 1, 1 << 24, file), fclose(file);
    for (i = 0; i < 400; i++) { /* cut off, or one bit changed: in the header everywhere */
        size_t cut = i % 8 ? size : size * (i + 1) / 401, place = i % 2 ? size * i / 401 : 8 + 9 * i / 2;
        if (place >= size) continue;
        cmha_status status;
        bytes[place] ^= 16;
        file = fopen(path_of("bad"), "wb"), fwrite(bytes, 1, cut, file), fclose(file);
        bytes[place] ^= 16;
        at = one.length;
        status = cmha_cache_read(&two, path_of("bad"));
        CHECK_THAT(status == CMHA_ERR_FORMAT || status == CMHA_ERR_TOKEN, "%s: fault %zu: %s", s.label, i,
                   cmha_status_string(status));
        CHECK(strchr(cmha_error(&context), 10) == NULL && strstr(cmha_error(&context), "bad") != NULL);
    }
    if (!s.features && !one.endless) { /* a file that is whole, with a token that the model does not have */
        const int32_t held = one.ids[3];
        one.ids[3] = V;
        CHECK_OK(cmha_cache_save(&one, path_of("bad")));
        one.ids[3] = held;
        CHECK_IS(cmha_cache_read(&two, path_of("bad")), CMHA_ERR_TOKEN);
        with_wrong_tokens++;
    }
    if (slide) {
        CHECK_OK(feed(&one, &s, 5, 1, a)), CHECK_OK(feed(&two, &s, 5, 1, b));
        CHECK_THAT(!memcmp(a, b, B * s.says * sizeof *a), "%s: a fault changes the cache", s.label);
    }
    cmha_cache_close(&two);
    CHECK_OK(cmha_cache_init(&two, &s.model, 1, slide ? CAPACITY : N, slide, &o));
    CHECK_IS(cmha_cache_read(&two, path_of("cache")), CMHA_ERR_FORMAT);
    CHECK(strstr(cmha_error(&context), "cache.batch is 2 in the file, here 1") != NULL);
    cmha_cache_close(&two);
    CHECK_IS(cmha_cache_read(&two, path_of("cache")), CMHA_ERR_STATE);
    CHECK_IS(cmha_cache_save(&two, path_of("cache")), CMHA_ERR_STATE);
    s.model.parameters.data[0] += 1;
    CHECK_IS(cmha_cache_read(&one, path_of("cache")), CMHA_ERR_FORMAT);
    CHECK(strstr(cmha_error(&context), "another model") != NULL);
    CHECK_OK(cmha_model_save(&s.model, path_of("cache")));
    CHECK_IS(cmha_cache_read(&one, path_of("cache")), CMHA_ERR_FORMAT);
    CHECK(strstr(cmha_error(&context), "holds no cache") != NULL);
    CHECK_IS(cmha_cache_read(&one, path_of("none")), CMHA_ERR_NOT_FOUND);
    remove(path_of("cache")), remove(path_of("bad"));
    free(bytes), cmha_cache_close(&one), close_stream(&s);
}

/* -------------------------------------- memory, refusals, overflow -------------------------------------- */

/* A cache without an end allocates nothing after its opening, whatever it is given */
static void allocates_nothing(const char *options, const char *more, int slide) {
    check_heap heap;
    cmha_context_config config = check_heap_config(&heap);
    cmha_context c, kept = context;
    cmha_cache cache;
    stream s;
    size_t calls, bytes = 0, before, i;
    CHECK_OK(cmha_context_init(&c, &config));
    context = c;
    if (open_stream(&s, options, more, 300)) {
        CHECK_OK(cmha_cache_memory(&s.model, B, 33, slide, NULL, &bytes));
        before = heap.bytes;
        CHECK_OK(cmha_cache_init(&cache, &s.model, B, 33, slide, NULL));
        CHECK(heap.bytes == before + bytes);
        calls = heap.calls;
        for (i = 0; i < 3; i++) CHECK_OK(feed(&cache, &s, 0, s.n, NULL));
        for (i = 0; i < s.n; i++) CHECK_OK(feed(&cache, &s, i, 1, NULL));
        CHECK_THAT(heap.calls == calls, "%s: %zu allocations", s.label, heap.calls - calls);
        CHECK(cache.first + cache.length == 4 * s.n);
        cmha_cache_close(&cache), close_stream(&s);
    }
    context = kept;
    cmha_context_close(&c);
    CHECK(check_heap_empty(&heap));
}

static void refuses(const char *options, size_t capacity, int slide, size_t sinks, cmha_status want,
                    const char *line) {
    cmha_cache cache;
    cmha_cache_options o;
    stream s;
    memset(&o, 0, sizeof o);
    o.sinks = sinks;
    if (!open_stream(&s, options, "", 1)) return;
    CHECK_IS(cmha_cache_init(&cache, &s.model, 1, capacity, slide, &o), want);
    CHECK_THAT(strstr(cmha_error(&context), line) != NULL, "%s", cmha_error(&context));
    close_stream(&s);
}

static void refusals(void) {
    cmha_cache cache;
    stream s;
    refuses("attention=rope position=learned", 9, CMHA_SLIDE_FORGET, 0, CMHA_ERR_STATE, "are learned");
    refuses("attention=rope", 9, CMHA_SLIDE_FORGET, 9, CMHA_ERR_ARGUMENT, "sinks 9");
    refuses("attention=rope", 9, CMHA_SLIDE, 2, CMHA_ERR_ARGUMENT, "sinks 2");
    refuses("attention=rope window=4", 9, CMHA_SLIDE_FORGET, 2, CMHA_ERR_ARGUMENT, "sinks 2");
    refuses("attention=rope window=4 sinks=9", 9, CMHA_SLIDE_FORGET, 0, CMHA_ERR_ARGUMENT, "model's sinks");
    refuses(states[1], 9, CMHA_SLIDE_FORGET, 1, CMHA_ERR_ARGUMENT, "sinks 1");
    refuses("attention=rope", 9, 3, 0, CMHA_ERR_ARGUMENT, "slide");
    if (!open_stream(&s, "attention=rope window=10", "", 20)) return;
    CHECK_OK(cmha_cache_init(&cache, &s.model, B, 9, CMHA_SLIDE, NULL)); /* too small: it reads again */
    CHECK(!cache.endless);
    cmha_cache_close(&cache);
    CHECK_OK(cmha_cache_init(&cache, &s.model, B, 9, CMHA_SLIDE_FORGET, NULL));
    CHECK(cache.endless && !cache.exact && cache.window == 9);
    cache.first = SIZE_MAX / 2;
    CHECK_IS(feed(&cache, &s, 0, 1, NULL), CMHA_ERR_OVERFLOW);
    cmha_cache_close(&cache), close_stream(&s);
}

int main(int argc, char **argv) {
    size_t i, j;
    (void)argc;
    cmha_blas_restart(argv);
    if (!system_folder(folder)) return 3;
    check_context(&context, 1, 17);
    for (i = 0; i < KINDS; i++)
        for (j = 0; j < SHAPES; j++)
            if ((i + j) % (check_quick() ? 8 : 3) == 0) ring(kinds[i], j);
    for (i = 0; i < STATES; i++) state(states[i]);
    for (i = 0; i < KINDS; i++)
        if (!check_quick() || i % 4 == 0) forgets(kinds[i]);
    for (i = 0; i < 4; i++) far_out(kinds[i]);
    for (i = 0; i < 5; i++) {
        forgets_with_sinks(kinds[i], 4, 40);
        if (!check_quick()) forgets_with_sinks(kinds[i], 1, 9), forgets_with_sinks(kinds[i], 65, 130);
    }
    forgets_with_sinks(kinds[7], 3, 100);
    mixed();
    for (j = 0; j < 2; j++) {
        saved(kinds[1], "window=9", CMHA_SLIDE, (int)j), saved(kinds[0], "", CMHA_SLIDE_FORGET, (int)j);
        saved(kinds[4], "", CMHA_SLIDE, (int)j), saved(kinds[9], "", CMHA_SLIDE_NOT, (int)j);
        saved(states[1], "", CMHA_SLIDE, (int)j), saved(kinds[10], "", CMHA_SLIDE, (int)j);
    }
    CHECK(with_wrong_tokens > 1);
    allocates_nothing(kinds[0], "window=8", CMHA_SLIDE), allocates_nothing(states[1], "", CMHA_SLIDE);
    allocates_nothing(kinds[4], "", CMHA_SLIDE_FORGET), allocates_nothing(kinds[9], "", CMHA_SLIDE_FORGET);
    refusals();
    rmdir(folder);
    cmha_context_close(&context);
    return check_end();
}
