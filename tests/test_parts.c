/* Parts of today's models: soft caps on scores and logits, attention sinks, normalised queries and keys,
   gains of 1 + w, squared ReLU, averaged weights. Each against formulas of this file's own, and where one
   of them changes nothing. Gradients: tests/grad_model.c, tests/grad_words.c. */
#define _POSIX_C_SOURCE 200809L
#define _DARWIN_C_SOURCE
#include "models.h"
#include "system.h"

enum { VOCABULARY = 19, LENGTH = 9, ROWS = 2 };
static cmha_context context;
static char folder[64] = "/tmp/cmha-parts-XXXXXX", mean_path[128]; /* not sanitized's, which runs beside it */

/* ---- Kernels ---- */

static void soft_caps(void) {
    enum { N = 4000 };
    cmha_real *x = check_array(N, 1), *y = check_zeros(N), *slope = check_zeros(N);
    const double caps[] = {1e-3, 0.7, 30, 1e6};
    for (size_t k = 0; k < sizeof caps / sizeof *caps; k++) {
        double worst = 0, worst_slope = 0;
        for (size_t i = 0; i < N; i++) x[i] = (cmha_real)((double)x[i] * pow(10, (double)(i % 9) - 4));
        x[0] = 0;
        cmha_softcap_forward(x, N, (cmha_real)caps[k], y, slope);
        for (size_t i = 0; i < N; i++) {
            double cap = (double)(cmha_real)caps[k], t = (double)x[i] / cap, e = exp(-2 * fabs(t));
            worst = fmax(worst, fabs((double)y[i] - cap * tanh(t)) / fmax(fabs(cap * tanh(t)), 1e-30));
            worst_slope = fmax(worst_slope, fabs((double)slope[i] - 4 * e / (1 + e) / (1 + e)));
        }
        CHECK_THAT(worst < check_tolerance(1e-14, 2e-6), "cap %g: %g off", caps[k], worst);
        CHECK_THAT(worst_slope < check_tolerance(1e-14, 1e-6), "cap %g: a slope is %g off", caps[k],
                   worst_slope);
        memcpy(slope, x, N * sizeof *x);
        cmha_softcap_forward(slope, N, (cmha_real)caps[k], slope, NULL);
        CHECK(!memcmp(slope, y, N * sizeof *y)); /* in place, and without a slope */
    }
    cmha_real ends[3] = {(cmha_real)INFINITY, -(cmha_real)INFINITY, (cmha_real)NAN}, steep[3];
    cmha_softcap_forward(ends, 3, 5, ends, steep);
    CHECK(ends[0] == 5 && ends[1] == -5 && ends[2] != ends[2]);
    CHECK(steep[0] == 0 && steep[1] == 0 && steep[2] != steep[2]);
    cmha_softcap_forward(NULL, 0, 5, NULL, NULL);
    free(x), free(y), free(slope);
}

static void squared_relu(void) {
    cmha_real x[4] = {-2, 0, 3, (cmha_real)NAN}, dy[4] = {1, 1, 2, 1}, y[4], dx[4] = {1, 1, 1, 1};
    cmha_activation_forward(x, 4, CMHA_ACTIVATION_RELU2, y);
    cmha_activation_backward(x, dy, 3, CMHA_ACTIVATION_RELU2, dx);
    CHECK(y[0] == 0 && y[1] == 0 && y[2] == 9 && y[3] != y[3]);
    CHECK(dx[0] == 1 && dx[1] == 1 && dx[2] == 13);
}

static void averages(void) {
    cmha_real e[3] = {1, -2, 4}, w[3] = {3, 0, 4};
    cmha_ema(0.75, 3, e, w);
    CHECK_NEAR(e[0], 1.5, 1e-6);
    CHECK_NEAR(e[1], -1.5, 1e-6);
    CHECK_NEAR(e[2], 4, 1e-6);
}

/* A gain of 1 + w is the gain g where w = g - 1, forward and backward, and where squares leave the type. */
static void gains(double size, double cotangent) {
    enum { T = 5, D = 300 };
    cmha_real *x = check_array(T * D, size), *g = check_array(D, 1), *w = check_zeros(D);
    cmha_real *dy = check_array(T * D, cotangent), *out[2], *dx[2], *dw[2], *stats = check_zeros(T);
    for (size_t i = 0; i < D; i++) g[i] = (cmha_real)(1 + floor(64 * (double)g[i]) / 64), w[i] = g[i] - 1;
    for (int k = 0; k < 2; k++) {
        out[k] = check_zeros(T * D), dx[k] = check_zeros(T * D), dw[k] = check_zeros(D);
        const cmha_norm_args args = {k ? CMHA_NORM_RMS_ONE_PLUS : CMHA_NORM_RMS, T, D, (cmha_real)1e-6};
        const cmha_grads grads = {dx[k], dw[k], NULL};
        cmha_norm_forward(&args, x, k ? w : g, NULL, out[k], stats);
        cmha_norm_backward(&args, x, k ? w : g, stats, dy, &grads);
    }
    CHECK(!memcmp(out[0], out[1], T * D * sizeof **out) && check_largest(out[0], T * D) > 0.1);
    CHECK(!memcmp(dx[0], dx[1], T * D * sizeof **dx) && !memcmp(dw[0], dw[1], D * sizeof **dw));
    CHECK(check_finite(dx[1], T * D) && check_largest(dw[1], D) > 0.1);
    for (int k = 0; k < 2; k++) free(out[k]), free(dx[k]), free(dw[k]);
    free(x), free(g), free(w), free(dy), free(stats);
}

/* ---- Attention against its definition: scale, cap, ALiBi, temperature, mask ---- */

typedef struct call {
    size_t n_q, n_k, window, sinks;
    double cap, size;
    int alibi, temperature, masks;
} call;

static int seen(const call *c, const unsigned char *mask, size_t i, size_t j) {
    size_t own = i + c->n_k - c->n_q;
    if (j > own || (mask && !mask[j])) return 0;
    return !c->window || own - j < c->window || j < c->sinks;
}

static void attention(const call *c, int threads) {
    enum { H = 2, D = 4 };
    size_t nq = H * c->n_q * D, nk = H * c->n_k * D;
    cmha_real *q = check_array(nq, c->size), *k = check_array(nk, c->size), *v = check_array(nk, 1);
    cmha_real *y = check_zeros(nq), slopes[H] = {(cmha_real)0.25, (cmha_real)0.0625};
    cmha_real temps[H] = {(cmha_real)-0.5, (cmha_real)0.75};
    unsigned char *mask = (unsigned char *)check_alloc(c->n_k, 1);
    cmha_attention_args a;
    cmha_attention_views x;
    double worst = 0;
    for (size_t j = 0; j < c->n_k; j++) mask[j] = j % 5 != 2;
    memset(&a, 0, sizeof a), memset(&x, 0, sizeof x);
    a.batch = 1, a.heads = a.kv_heads = H, a.n_q = c->n_q, a.n_k = c->n_k, a.d_k = a.d_v = D;
    a.scale = (cmha_real)0.5, a.causal = 1, a.window = c->window, a.sinks = c->sinks;
    a.softcap = (cmha_real)c->cap, a.temperature = c->temperature, a.threads = threads;
    a.kind = CMHA_ATTENTION_DOT, a.parameters[0] = temps;
    if (c->alibi) a.alibi = slopes;
    if (c->masks) a.key_mask = mask;
    x.q = cmha_heads_by_head(q, H, c->n_q, D, 0), x.k = cmha_heads_by_head(k, H, c->n_k, D, 0);
    x.v = cmha_heads_by_head(v, H, c->n_k, D, 0), x.y = cmha_heads_by_head(y, H, c->n_q, D, 0);
    cmha_real *scratch = check_zeros(cmha_attention_scratch(&a, 0));
    cmha_attention_forward(&a, &x, NULL, scratch);
    for (size_t row = 0; row < H * c->n_q; row++) {
        size_t h = row / c->n_q, i = row % c->n_q;
        double sum = 0, top = -HUGE_VAL, out[D] = {0}, *s = (double *)check_alloc(c->n_k, sizeof *s);
        for (size_t j = 0; j < c->n_k; j++) {
            for (size_t d = 0; d < D; d++)
                s[j] += 0.5 * (double)q[row * D + d] * (double)k[(h * c->n_k + j) * D + d];
            if (c->cap > 0) s[j] = c->cap * tanh(s[j] / c->cap);
            if (c->alibi) s[j] -= (double)slopes[h] * fabs((double)(i + c->n_k - c->n_q) - (double)j);
            if (c->temperature) s[j] /= exp((double)temps[h]);
            if (seen(c, a.key_mask, i, j)) top = fmax(top, s[j]);
        }
        for (size_t j = 0; j < c->n_k; j++) {
            double p = seen(c, a.key_mask, i, j) ? exp(s[j] - top) : 0;
            sum += p;
            for (size_t d = 0; d < D; d++) out[d] += p * (double)v[(h * c->n_k + j) * D + d];
        }
        for (size_t d = 0; d < D; d++)
            worst = fmax(worst, fabs((double)y[row * D + d] - (sum > 0 ? out[d] / sum : 0)));
        free(s);
    }
    CHECK_THAT(worst < check_tolerance(1e-12, 2e-5),
               "%zu of %zu keys, window %zu, %zu sinks, cap %g, alibi %d, temperature %d: %g off", c->n_q,
               c->n_k, c->window, c->sinks, c->cap, c->alibi, c->temperature, worst);
    free(q), free(k), free(v), free(y), free(mask), free(scratch);
}

static void attentions(void) {
    static const size_t lengths[][2] = {{1, 1}, {1, 130}, {63, 64}, {64, 64}, {65, 200}, {300, 300}};
    static const size_t sees[][2] = {{0, 0}, {1, 1}, {7, 3}, {70, 66}, {9, 1000}, {2, 64}};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (size_t w = 0; w < sizeof sees / sizeof *sees; w++)
            for (int bits = 0; bits < 16; bits++) {
                call c = {lengths[i][0], lengths[i][1], sees[w][0], sees[w][1], bits & 1 ? 0.8 : 0, 2,
                          bits >> 1 & 1, bits >> 2 & 1, bits >> 3 & 1};
                attention(&c, 1 + (int)(w % 2));
            }
    call far_away = {40, 40, 0, 0, 1e6, 1, 1, 0, 0}, none = {40, 40, 0, 0, 0, 1, 1, 0, 0};
    attention(&far_away, 1), attention(&none, 1);
}

/* One query's gradients under a window with sinks are those under a mask of keys that says the same. */
static void sinks_backward(void) {
    enum { N = 140, D = 4, WINDOW = 5, SINKS = 2 };
    cmha_real *q = check_array(D, 1), *k = check_array(N * D, 1), *v = check_array(N * D, 1), y[D];
    cmha_real *dy = check_array(D, 1), *got[2][3];
    unsigned char mask[N];
    for (size_t j = 0; j < N; j++) mask[j] = j < SINKS || N - 1 - j < WINDOW;
    for (int masked = 0; masked < 2; masked++) {
        cmha_attention_args a;
        cmha_attention_views x;
        cmha_lse lse[1];
        for (int i = 0; i < 3; i++) got[masked][i] = check_zeros(i ? N * D : D);
        memset(&a, 0, sizeof a), memset(&x, 0, sizeof x);
        a.batch = a.heads = a.kv_heads = a.n_q = 1, a.n_k = N, a.d_k = a.d_v = D, a.scale = 1, a.causal = 1;
        a.kind = CMHA_ATTENTION_DOT;
        if (masked) a.key_mask = mask;
        else a.window = WINDOW, a.sinks = SINKS;
        x.q = cmha_heads_by_head(q, 1, 1, D, 0), x.k = cmha_heads_by_head(k, 1, N, D, 0);
        x.v = cmha_heads_by_head(v, 1, N, D, 0), x.y = cmha_heads_by_head(y, 1, 1, D, 0);
        x.dy = cmha_heads_by_head(dy, 1, 1, D, 0), x.dq = cmha_heads_by_head(got[masked][0], 1, 1, D, 0);
        x.dk = cmha_heads_by_head(got[masked][1], 1, N, D, 0);
        x.dv = cmha_heads_by_head(got[masked][2], 1, N, D, 0);
        cmha_real *scratch = check_zeros(cmha_attention_scratch(&a, 1));
        cmha_attention_forward(&a, &x, lse, scratch);
        cmha_attention_backward(&a, &x, lse, NULL, NULL, scratch);
        free(scratch);
    }
    for (int i = 0; i < 3; i++) {
        double off = check_distance(got[0][i], got[1][i], i ? N * D : D);
        CHECK_THAT(off < check_tolerance(1e-14, 1e-6), "gradient %d is %g off", i, off);
        CHECK(check_largest(got[0][i], D) > 1e-4); /* the first key is a sink */
        free(got[0][i]), free(got[1][i]);
    }
    free(q), free(k), free(v), free(dy);
}

/* Without `causal` sinks are seen from before them, too: values [N, N] = 1 give the weights, whose gradient
   goes to the same keys. */
static void sinks_of_encoders(void) {
    enum { N = 140, D = 4, WINDOW = 3, SINKS = 70 };
    cmha_real *q = check_array(N * D, 1), *k = check_array(N * D, 1), *dy = check_array(N * N, 1);
    cmha_real *v = check_zeros(N * N), *y = check_zeros(N * N), *dv = check_zeros(N * N);
    cmha_real *dq = check_zeros(N * D), *dk = check_zeros(N * D);
    cmha_attention_args a;
    cmha_attention_views x;
    cmha_lse lse[N];
    size_t wrong = 0;
    double off = 0;
    for (size_t j = 0; j < N; j++) v[j * N + j] = 1;
    memset(&a, 0, sizeof a), memset(&x, 0, sizeof x);
    a.batch = a.heads = a.kv_heads = 1, a.n_q = a.n_k = a.d_v = N, a.d_k = D, a.scale = 1;
    a.kind = CMHA_ATTENTION_DOT, a.window = WINDOW, a.sinks = SINKS;
    x.q = cmha_heads_by_head(q, 1, N, D, 0), x.k = cmha_heads_by_head(k, 1, N, D, 0);
    x.dq = cmha_heads_by_head(dq, 1, N, D, 0), x.dk = cmha_heads_by_head(dk, 1, N, D, 0);
    x.v = cmha_heads_by_head(v, 1, N, N, 0), x.y = cmha_heads_by_head(y, 1, N, N, 0);
    x.dv = cmha_heads_by_head(dv, 1, N, N, 0), x.dy = cmha_heads_by_head(dy, 1, N, N, 0);
    cmha_real *scratch = check_zeros(cmha_attention_scratch(&a, 1));
    cmha_attention_forward(&a, &x, lse, scratch);
    cmha_attention_backward(&a, &x, lse, NULL, NULL, scratch);
    for (size_t i = 0; i < N; i++)
        for (size_t j = 0; j < N; j++) {
            int sees = j < SINKS || (j < i + WINDOW && i < j + WINDOW);
            double sum = (double)-dv[i * N + j];
            for (size_t t = 0; t < N; t++) sum += (double)y[t * N + i] * (double)dy[t * N + j];
            wrong += (y[i * N + j] > 0) != sees;
            off = fmax(off, fabs(sum));
        }
    CHECK_THAT(wrong == 0, "%zu pairs are seen or hidden wrongly", wrong);
    CHECK_THAT(off < check_tolerance(1e-12, 1e-4), "dv is %g off", off);
    free(q), free(k), free(v), free(y), free(dy), free(dq), free(dk), free(dv), free(scratch);
}

/* Scores beyond the type, and of infinite terms that cancel, are capped, too: with c = 1 the weights are e
   against 1 against 1 / e. */
static void huge_scores(void) {
    const cmha_real h = (cmha_real)(sizeof(cmha_real) == sizeof(double) ? 1e200 : 1e30);
    cmha_real q[2], k[6], v[3] = {1, 0, 0}, y[1] = {0}, dy[1] = {1}, dq[2] = {0}, dk[6] = {0}, dv[3] = {0};
    cmha_attention_args a;
    cmha_attention_views x;
    cmha_lse lse[1];
    memset(&a, 0, sizeof a), memset(&x, 0, sizeof x), memset(k, 0, sizeof k);
    q[0] = q[1] = k[0] = k[2] = h, k[3] = k[4] = -h;
    a.batch = a.heads = a.kv_heads = a.n_q = a.d_v = 1, a.d_k = 2, a.n_k = 3, a.scale = a.softcap = 1;
    a.kind = CMHA_ATTENTION_DOT;
    x.q = cmha_heads_by_head(q, 1, 1, 2, 0), x.k = cmha_heads_by_head(k, 1, 3, 2, 0);
    x.v = cmha_heads_by_head(v, 1, 3, 1, 0), x.y = cmha_heads_by_head(y, 1, 1, 1, 0);
    x.dq = cmha_heads_by_head(dq, 1, 1, 2, 0), x.dk = cmha_heads_by_head(dk, 1, 3, 2, 0);
    x.dv = cmha_heads_by_head(dv, 1, 3, 1, 0), x.dy = cmha_heads_by_head(dy, 1, 1, 1, 0);
    cmha_real *scratch = check_zeros(cmha_attention_scratch(&a, 1));
    cmha_attention_forward(&a, &x, lse, scratch);
    const double want = exp(1) / (exp(1) + 1 + exp(-1)), second = 1 / (exp(1) + 1 + exp(-1));
    CHECK_NEAR(y[0], want, 1e-6);
    cmha_attention_backward(&a, &x, lse, NULL, NULL, scratch);
    CHECK_NEAR(dv[0], want, 1e-6);
    for (int i = 0; i < 6; i++) { /* flat but for the second key, whose score is 0 */
        double expected = i / 2 == 1 ? -second * want : 0;
        CHECK_NEAR((double)dk[i] / (double)h, expected, 1e-6);
    }
    free(scratch);
}

/* ---- Models ---- */

static int32_t ids[ROWS * LENGTH], targets[ROWS * LENGTH];

static void open_model(cmha_model *model, const char *options) {
    cmha_model_config c = check_model_config();
    CHECK_OK(cmha_config_set_all(&context, cmha_model_table(), &c, options));
    CHECK_THAT(!cmha_model_init(model, &context, &c), "%s: %s", options, cmha_error(&context));
}

static cmha_batch batch_of(void) {
    cmha_batch b;
    memset(&b, 0, sizeof b);
    b.ids = ids, b.targets = targets, b.batch = ROWS, b.length = LENGTH;
    return b;
}

static void logits_of(cmha_model *model, cmha_real *logits) {
    cmha_batch b = batch_of();
    CHECK_OK(cmha_model_logits(model, &b, logits));
}

/* Two models of the same parameters, of the other's options */
static double between(const char *one, const char *other) {
    enum { N = ROWS * LENGTH * VOCABULARY };
    cmha_model a, b;
    cmha_real *x = check_zeros(N), *y = check_zeros(N);
    open_model(&a, one), open_model(&b, other);
    CHECK(a.parameters.size == b.parameters.size);
    check_fill(a.parameters.data, a.parameters.size, 0.5);
    memcpy(b.parameters.data, a.parameters.data, a.parameters.size * sizeof *x);
    logits_of(&a, x), logits_of(&b, y);
    double off = check_distance(x, y, N);
    cmha_model_close(&a), cmha_model_close(&b);
    free(x), free(y);
    return off;
}

static void nothing_changes(void) {
    const double near = check_tolerance(1e-9, 1e-4);
    double off = between("attention=rope score_softcap=1e6 logit_softcap=1e6", "attention=rope");
    CHECK_THAT(off < near, "caps far away: %g", off);
    off = between("attention=rope window=3 sinks=64", "attention=rope");
    CHECK_THAT(off < near, "sinks everywhere: %g", off);
    off = between("attention=rope window=3 sinks=2", "attention=rope window=3");
    CHECK_THAT(off > 1e-3, "sinks change nothing");
    off = between("attention=rope qk_norm=rms", "attention=rope");
    CHECK_THAT(off > 1e-3, "QK-norm changes nothing");
    off = between("score_softcap=0.1", "attention=cmha");
    CHECK_THAT(off > 1e-3, "a cap of scores changes nothing");
}

/* What a layer sees and turns by is what a model whose layers are all of that kind does. */
static void kinds_of_layers(void) {
    static const char *const same[][2] = {
        {"attention=rope layer_kinds=g window=3", "attention=rope"},
        {"attention=rope layer_kinds=l window=3", "attention=rope window=3"},
        {"attention=rope layer_kinds=n window=3", "attention=dot"},
        {"layer_kinds=n window=3", "frequency=literal base=1e12 layer_kinds=n"},
        {"attention=rope layer_kinds=l window=64 local_base=500 rope_scaling=linear rope_factor=4",
         "attention=rope base=500"},
        {"attention=rope layer_kinds=l window=64 local_base=500 rope_scaling=yarn rope_factor=4 "
         "rope_length=9", "attention=rope base=500"},
        {"attention=rope layer_kinds=gllll n_layers=1 window=3 local_base=500", "attention=rope n_layers=1"},
        {"attention=rope causal=0 window=64", "attention=rope causal=0"},
        {"attention=rope causal=0 window=1", "attention=rope window=1"},
        {"embedding_factor=4", "embedding_scale=1"}}; /* of 16 */
    static const char *const others[][2] = {
        {"attention=rope layer_kinds=gl window=3", "attention=rope window=3"},
        {"attention=rope layer_kinds=gl window=3", "attention=rope layer_kinds=lg window=3"},
        {"attention=rope layer_kinds=gn", "attention=rope"},
        {"attention=rope layer_kinds=gl window=64 local_base=500", "attention=rope"},
        {"attention=rope causal=0 window=2", "attention=rope causal=0"},
        {"attention=rope causal=0 window=2", "attention=rope window=2"},
        {"embedding_factor=4", "embedding_factor=3"},
        {"head_scale=4", "head_scale=3"},
        {"activation=geglu_erf", "activation=swiglu"},
        {"qk_norm=rms_gain", "qk_norm=rms_one_plus"},
        {"norm=layernorm_gain", "norm=rmsnorm"}};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        double off = between(same[i][0], same[i][1]);
        CHECK_THAT(off < check_tolerance(1e-9, 1e-4), "%s: %g", same[i][0], off);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        double off = between(others[i][0], others[i][1]);
        CHECK_THAT(off > 1e-4, "%s is %s", others[i][0], others[i][1]);
    }
}

/* With QK-norm, the lengths of queries and keys are nothing, whoever they are; nor are gains of 1. */
static void lengths(const char *options, const char *matrix) {
    enum { N = ROWS * LENGTH * VOCABULARY };
    cmha_model a, b;
    cmha_real *x = check_zeros(N), *y = check_zeros(N);
    char both[256];
    snprintf(both, sizeof both, "%s qk_norm=rms norm_eps=1e-12", options);
    open_model(&a, both);
    snprintf(both, sizeof both, "%s qk_norm=rms_gain norm_eps=1e-12", options);
    open_model(&b, both);
    for (size_t i = 0; i < a.parameters.count; i++) {
        cmha_parameter *p = &a.parameters.list[i], *to = cmha_parameters_find(&b.parameters, p->name);
        if (!CHECK_THAT(to && to->tensor.size == p->tensor.size, "%s", p->name)) continue;
        if (strstr(p->name, ".attn.w")) check_fill(p->tensor.data, p->tensor.size, 0.5);
        memcpy(to->tensor.data, p->tensor.data, p->tensor.size * sizeof *x);
    }
    logits_of(&a, x), logits_of(&b, y);
    CHECK_THAT(!memcmp(x, y, N * sizeof *x), "%s: gains of 1 are no gains", options);
    cmha_parameter *q = cmha_parameters_find(&b.parameters, matrix);
    if (CHECK_THAT(q != NULL, "%s: no %s", options, matrix))
        for (size_t i = 0; i < q->tensor.size; i++) q->tensor.data[i] *= 3;
    logits_of(&b, y);
    double off = check_distance(x, y, N);
    CHECK_THAT(off < check_tolerance(1e-9, 1e-4), "%s: of three times the length, %g", options, off);
    cmha_parameter *gain = cmha_parameters_find(&b.parameters, "blocks.0.attn.q_norm.weight");
    if (CHECK(gain != NULL)) gain->tensor.data[0] = 5;
    logits_of(&b, y);
    CHECK_THAT(check_distance(x, y, N) > 1e-4, "%s: a gain changes nothing", options);
    cmha_model_close(&a), cmha_model_close(&b);
    free(x), free(y);
}

/* Queries and keys far below sqrt(norm_eps) = 1 are divided by that alone: as if there were no QK-norm. */
static void small_queries(const char *options, const char *norm) {
    enum { N = ROWS * LENGTH * VOCABULARY };
    cmha_model m[3];
    cmha_real *x[3];
    for (int k = 0; k < 3; k++) { /* the last one's scores are a tenth: scores matter */
        char all[256];
        snprintf(all, sizeof all, "%s norm_eps=1 %s=%g qk_norm=%s", options,
                 strstr(options, "cope") ? "cope_scale" : "score_scale", k == 2 ? 1e3 : 1e4,
                 k ? "none" : norm);
        open_model(&m[k], all);
        for (size_t i = 0; i < m[k].parameters.count; i++) {
            cmha_parameter *p = &m[k].parameters.list[i];
            const cmha_parameter *from = cmha_parameters_find(&m[0].parameters, p->name);
            if (!CHECK_THAT(from != NULL, "%s", p->name)) continue;
            if (!k && strstr(p->name, ".attn.w")) check_fill(p->tensor.data, p->tensor.size, 0.5);
            if (!k && (strstr(p->name, ".wq.") || strstr(p->name, ".wk.")))
                check_fill(p->tensor.data, p->tensor.size, 5e-3);
            if (k) memcpy(p->tensor.data, from->tensor.data, p->tensor.size * sizeof *p->tensor.data);
        }
        x[k] = check_zeros(N), logits_of(&m[k], x[k]);
    }
    CHECK_THAT(check_distance(x[0], x[1], N) < 5e-3 && check_distance(x[0], x[2], N) > 5e-2,
               "%s, %s: %g from those without, %g from others", options, norm, check_distance(x[0], x[1], N),
               check_distance(x[0], x[2], N));
    for (int k = 0; k < 3; k++) cmha_model_close(&m[k]), free(x[k]);
}

/* Logits with a cap are those without it, capped, and the loss is theirs. */
static void capped_logits(const char *more) {
    enum { N = ROWS * LENGTH * VOCABULARY };
    cmha_model a, b;
    cmha_real *x = check_zeros(N), *y = check_zeros(N);
    char both[256];
    double loss = 0, want = 0, sure = 0;
    cmha_batch batch = batch_of();
    open_model(&a, more);
    snprintf(both, sizeof both, "%s logit_softcap=0.8", more);
    open_model(&b, both);
    memcpy(b.parameters.data, a.parameters.data, a.parameters.size * sizeof *x);
    for (size_t i = 0; i < a.parameters.size; i++) a.parameters.data[i] *= 4, b.parameters.data[i] *= 4;
    logits_of(&a, x), logits_of(&b, y);
    for (size_t i = 0; i < N; i++) {
        double capped = 0.8 * tanh((double)x[i] / 0.8);
        sure = fmax(sure, fabs((double)x[i]));
        CHECK_THAT(fabs((double)y[i] - capped) < check_tolerance(1e-9, 1e-5), "logit %zu is %g, not %g", i,
                   (double)y[i], capped);
    }
    CHECK(sure > 0.8);
    for (size_t t = 0; t < ROWS * LENGTH; t++) {
        double sum = 0;
        for (size_t v = 0; v < VOCABULARY; v++) sum += exp((double)y[t * VOCABULARY + v]);
        want += (log(sum) - (double)y[t * VOCABULARY + (size_t)targets[t]]) / (ROWS * LENGTH);
    }
    CHECK_OK(cmha_model_loss(&b, &batch, &loss));
    CHECK_NEAR(loss, want, check_tolerance(1e-9, 1e-5));
    CHECK_OK(cmha_model_gradient(&b, &batch, 1, 0, &loss));
    CHECK_NEAR(loss, want, check_tolerance(1e-9, 1e-5));
    cmha_model_close(&a), cmha_model_close(&b);
    free(x), free(y);
}

static void gains_at_first(void) {
    const char *const options[2] = {"norm=rmsnorm", "norm=rmsnorm_one_plus"};
    for (int k = 0; k < 2; k++) {
        cmha_model model;
        open_model(&model, options[k]);
        const cmha_parameter *gain = cmha_parameters_find(&model.parameters, "blocks.0.ln1.weight");
        CHECK(gain && gain->decay <= 0);
        for (size_t i = 0; gain && i < gain->tensor.size; i++) CHECK_NEAR(gain->tensor.data[i], 1 - k, 0);
        cmha_model_close(&model);
    }
}

/* The matrices before a residual sum begin with zeros, and learn. */
static void zero_start(const char *options) {
    char both[256];
    cmha_model model;
    cmha_trainer trainer;
    cmha_trainer_config t;
    cmha_batch batch = batch_of();
    snprintf(both, sizeof both, "%s residual_zero=1", options);
    open_model(&model, both);
    cmha_config_defaults(cmha_trainer_table(), &t);
    t.batch = ROWS, t.length = LENGTH, t.warmup = 0;
    CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    for (int learned = 0; learned < 2; learned++) {
        if (learned)
            for (int step = 0; step < 3; step++) CHECK_OK(cmha_trainer_step_batch(&trainer, &batch, NULL));
        for (size_t i = 0; i < model.parameters.count; i++) {
            const cmha_parameter *p = &model.parameters.list[i];
            int zero = strstr(p->name, ".wo.weight") || strstr(p->name, ".w2.weight") ||
                       strstr(p->name, ".wo.u");
            if (p->decay > 0)
                CHECK_THAT((check_largest(p->tensor.data, p->tensor.size) <= 0) == (zero && !learned),
                           "%s: %s, learned %d", options, p->name, learned);
        }
    }
    cmha_trainer_close(&trainer), cmha_model_close(&model);
}

/* Sets every number of a parameter. */
static void put(cmha_model *model, const char *name, double value) {
    cmha_parameter *p = cmha_parameters_find(&model->parameters, name);
    if (!CHECK_THAT(p != NULL, "no %s", name)) return;
    for (size_t i = 0; i < p->tensor.size; i++) p->tensor.data[i] = (cmha_real)value;
}

/* How far the logits of two models are apart, the first with the weights of the second where they have equal
   names, both prepared (k = 0, 1). Those of the second must be some. */
static double logits_apart(const char *first, const char *second, void (*prepare)(cmha_model *model, int k)) {
    const char *const options[2] = {first, second};
    cmha_model model[2];
    cmha_batch batch = batch_of();
    cmha_real *out[2];
    double off = 0;
    for (int k = 0; k < 2; k++) open_model(&model[k], options[k]);
    for (size_t i = 0; i < model[1].parameters.count; i++) {
        const cmha_parameter *p = &model[1].parameters.list[i];
        const cmha_parameter *q = cmha_parameters_find(&model[0].parameters, p->name);
        if (q) memcpy(q->tensor.data, p->tensor.data, p->tensor.size * sizeof *p->tensor.data);
    }
    for (int k = 0; k < 2; k++) {
        prepare(&model[k], k);
        out[k] = check_zeros(ROWS * LENGTH * VOCABULARY);
        CHECK_OK(cmha_model_logits(&model[k], &batch, out[k]));
    }
    for (size_t i = 0; i < ROWS * LENGTH * VOCABULARY; i++)
        off = fmax(off, fabs((double)out[0][i] - (double)out[1][i]));
    CHECK(check_largest(out[1], ROWS * LENGTH * VOCABULARY) > 1e-3);
    for (int k = 0; k < 2; k++) free(out[k]), cmha_model_close(&model[k]);
    return off;
}

static void as_it_is(cmha_model *model, int k) { (void)model, (void)k; }
static void own_values(cmha_model *model, int k) {
    if (k) return;
    put(model, "blocks.0.attn.value_own", 1), put(model, "blocks.0.attn.value_first", 0);
    put(model, "blocks.1.attn.value_own", 1), put(model, "blocks.1.attn.value_first", 0);
}
/* The first layer adds nothing. */
static void silent_layer(cmha_model *model) {
    put(model, "blocks.0.attn.wo.weight", 0), put(model, "blocks.0.ffn.w2.weight", 0);
}
/* Then the second reads what the first has read: the first one's values are those of its projection there. */
static void first_values(cmha_model *model, int k) {
    silent_layer(model);
    if (!k) {
        put(model, "blocks.0.attn.value_own", 1), put(model, "blocks.0.attn.value_first", 0);
        put(model, "blocks.1.attn.value_own", 0), put(model, "blocks.1.attn.value_first", 1);
        return;
    }
    const cmha_parameter *from = cmha_parameters_find(&model->parameters, "blocks.0.attn.wv.weight");
    cmha_parameter *to = cmha_parameters_find(&model->parameters, "blocks.1.attn.wv.weight");
    if (CHECK(from && to))
        memcpy(to->tensor.data, from->tensor.data, to->tensor.size * sizeof *to->tensor.data);
}
static void first_input(cmha_model *model, int k) {
    if (k) silent_layer(model);
    else put(model, "blocks.1.mix.own", 0), put(model, "blocks.1.mix.first", 1);
}
static void silent_attention(cmha_model *model, int k) {
    (void)k;
    put(model, "blocks.0.attn.wo.weight", 0), put(model, "blocks.1.attn.wo.weight", 0);
}
static void silent_ffn(cmha_model *model, int k) {
    (void)k;
    put(model, "blocks.0.ffn.w2.weight", 0), put(model, "blocks.1.ffn.w2.weight", 0);
}

/* What the sublayers write adds nothing: by the gains of norms behind them, or by their matrices. */
static void silent_outputs(cmha_model *model, int k) {
    static const char *const gains[] = {"blocks.0.ln1_out.weight", "blocks.0.ln2_out.weight",
                                        "blocks.1.ln1_out.weight", "blocks.1.ln2_out.weight"};
    int behind = cmha_parameters_find(&model->parameters, gains[0]) != NULL;
    for (int i = 0; i < 4 && behind; i++) put(model, gains[i], 0);
    if (!behind) silent_attention(model, k), silent_ffn(model, k);
}
static void gains_of_two(cmha_model *model, int k) {
    static const char *const gains[] = {"blocks.0.attn.q_norm.weight", "blocks.0.attn.k_norm.weight",
                                        "blocks.1.attn.q_norm.weight", "blocks.1.attn.k_norm.weight"};
    for (int i = 0; i < 4; i++) put(model, gains[i], 1 + k);
}
static void quarter_head(cmha_model *model, int k) {
    cmha_parameter *head = cmha_parameters_find(&model->parameters, "head.weight");
    if (!k || !CHECK(head)) return;
    for (size_t i = 0; i < head->tensor.size; i++) head->tensor.data[i] /= 4;
}

/* Identities of what a layer reads and of its values, each with one that does not hold. */
static void residuals(void) {
    const double near = sizeof(cmha_real) == 8 ? 1e-12 : 1e-5, far = 1e-4;
    CHECK(logits_apart("value_residual=1", "attention=cmha", own_values) < near);
    CHECK(logits_apart("value_residual=1 n_layers=1", "n_layers=1", as_it_is) < near); /* v / 2 + v / 2 */
    CHECK(logits_apart("value_residual=1", "attention=cmha", as_it_is) > far);
    CHECK(logits_apart("value_residual=1 n_kv_heads=2", "n_kv_heads=2", first_values) < near);
    CHECK(logits_apart("residual_mix=1", "attention=cmha", as_it_is) < near); /* 1 and 0 */
    CHECK(logits_apart("residual_mix=1", "attention=cmha", first_input) < near);
    CHECK(logits_apart("residual_mix=1 family=crat", "family=crat", as_it_is) < near);
    CHECK(logits_apart("parallel=norms", "attention=cmha", as_it_is) > far);
    CHECK(logits_apart("parallel=norms", "attention=cmha", silent_attention) < near);
    CHECK(logits_apart("parallel=norms", "attention=cmha", silent_ffn) < near);
    CHECK(logits_apart("parallel=norm", "parallel=norms", as_it_is) < near); /* gains are all 1 */
    /* embeddings that have a norm of gain 1 do not change in another one */
    CHECK(logits_apart("first_norm=0 embedding_norm=1 norm_eps=1e-12",
                       "embedding_norm=1 norm_eps=1e-12", as_it_is) < (sizeof(cmha_real) == 8 ? 1e-9 : near));
    CHECK(logits_apart("first_norm=0 parallel=norm embedding_norm=1 norm_eps=1e-12",
                       "parallel=norm embedding_norm=1 norm_eps=1e-12",
                       as_it_is) < (sizeof(cmha_real) == 8 ? 1e-9 : near));
    CHECK(logits_apart("first_norm=0", "attention=cmha", as_it_is) > far);
    CHECK(logits_apart("placement=sandwich", "attention=cmha", silent_outputs) < near);
    CHECK(logits_apart("placement=after", "attention=cmha", silent_outputs) < near);
    CHECK(logits_apart("placement=sandwich", "placement=after", silent_outputs) < near);
    CHECK(logits_apart("placement=sandwich", "attention=cmha", as_it_is) > far);
    CHECK(logits_apart("placement=after", "placement=sandwich", as_it_is) > far);
    CHECK(logits_apart("head_scale=0.25 tied=0", "tied=0", quarter_head) < near);
    CHECK(logits_apart("qk_norm=rms_one_plus", "qk_norm=rms_gain", gains_of_two) < near); /* 1 + 1 */
    CHECK(logits_apart("qk_norm=rms_whole n_heads=1", "qk_norm=rms_gain n_heads=1", as_it_is) < near);
    CHECK(logits_apart("qk_norm=rms_whole", "qk_norm=rms_gain", as_it_is) > far);
}

/* The z-loss is z times the mean of (log sum exp logits)^2 over the targets, beside the loss, not in it. */
static void z_loss(const char *options) {
    const double z = 0.05;
    double all[2], told[2], squares = 0;
    size_t counted = 0;
    cmha_real *logits = check_zeros(ROWS * LENGTH * VOCABULARY);
    cmha_batch batch = batch_of();
    for (int k = 0; k < 2; k++) {
        char both[256];
        cmha_model model;
        snprintf(both, sizeof both, "%s init_std=0.3 z_loss=%g", options, k * z);
        open_model(&model, both);
        CHECK_OK(cmha_model_training_loss(&model, &batch, 1, &all[k]));
        CHECK_OK(cmha_model_gradient(&model, &batch, 1, 1, &told[k]));
        CHECK_OK(cmha_model_logits(&model, &batch, logits));
        cmha_model_close(&model);
    }
    for (size_t t = 0; t < ROWS * LENGTH; t++) {
        double sum = 0;
        if (batch.targets[t] == -1) continue;
        for (size_t i = 0; i < VOCABULARY; i++) sum += exp((double)logits[t * VOCABULARY + i]);
        squares += log(sum) * log(sum), counted++;
    }
    double near = (sizeof(cmha_real) == 8 ? 1e-12 : 1e-5) * squares / (double)counted;
    CHECK_NEAR(all[1] - all[0], z * squares / (double)counted, near);
    CHECK_NEAR(told[1], told[0], 1e-12);
    CHECK(z * squares / (double)counted > 0.1);
    free(logits);
}

/* ---- The mean of the weights: cmha_trainer_config.ema ---- */

static void open_mean(cmha_model *model, cmha_trainer *trainer, double ema) {
    cmha_trainer_config t;
    cmha_config_defaults(cmha_trainer_table(), &t);
    t.batch = ROWS, t.length = LENGTH, t.warmup = 0, t.lr = 1e-2, t.ema = ema;
    open_model(model, "attention=cmha");
    CHECK_OK(cmha_trainer_init(trainer, model, &t));
}

/* Is the mean, for the moment, `mean` (of the numbers from `from` on)? */
static void is_mean(cmha_trainer *trainer, const double *mean, const char *label) {
    const cmha_parameters *p = &trainer->model->parameters;
    double off = 0;
    CHECK_OK(cmha_trainer_swap(trainer));
    for (size_t i = 0; i < p->size; i++) off = fmax(off, fabs((double)p->data[i] - mean[i]));
    CHECK_THAT(off < (sizeof(cmha_real) == 8 ? 1e-15 : 1e-6), "%s: off by %g", label, off);
    CHECK_IS(cmha_trainer_apply(trainer, NULL), CMHA_ERR_STATE);
    CHECK_IS(cmha_trainer_save(trainer, mean_path), CMHA_ERR_STATE);
    CHECK_IS(cmha_trainer_read(trainer, mean_path), CMHA_ERR_STATE);
    CHECK_OK(cmha_trainer_swap(trainer));
}

static void means(void) {
    const char *const path = mean_path;
    cmha_model model, other;
    cmha_trainer trainer, resumed;
    cmha_batch batch = batch_of();
    open_mean(&model, &trainer, 0.8);
    const size_t n = model.parameters.size, bytes = n * sizeof(cmha_real);
    double *mean = (double *)check_alloc(n, sizeof *mean), moved = 0;
    cmha_real *weights = check_zeros(n);
    for (size_t i = 0; i < n; i++) mean[i] = (double)model.parameters.data[i]; /* begins with the weights */
    is_mean(&trainer, mean, "at first");
    for (int step = 0; step < 6; step++) {
        if (step == 3) CHECK_OK(cmha_trainer_save(&trainer, path));
        CHECK_OK(cmha_trainer_step_batch(&trainer, &batch, NULL));
        for (size_t i = 0; i < n; i++) mean[i] = 0.8 * mean[i] + 0.2 * (double)model.parameters.data[i];
    }
    for (size_t i = 0; i < n; i++) moved = fmax(moved, fabs((double)model.parameters.data[i] - mean[i]));
    CHECK(moved > 1e-3);
    memcpy(weights, model.parameters.data, bytes);
    is_mean(&trainer, mean, "after six steps");
    CHECK(!memcmp(weights, model.parameters.data, bytes));
    /* a resumed run has the same bits, mean included */
    open_mean(&other, &resumed, 0.8);
    CHECK_OK(cmha_trainer_read(&resumed, path));
    for (int step = 3; step < 6; step++) CHECK_OK(cmha_trainer_step_batch(&resumed, &batch, NULL));
    CHECK(!memcmp(weights, other.parameters.data, bytes));
    CHECK_OK(cmha_trainer_swap(&trainer)), CHECK_OK(cmha_trainer_swap(&resumed));
    CHECK(!memcmp(model.parameters.data, other.parameters.data, bytes));
    CHECK_OK(cmha_trainer_swap(&trainer)), CHECK_OK(cmha_trainer_swap(&resumed));
    /* what is frozen has none; thawed, its mean begins with what it is; the others' go on */
    CHECK_OK(cmha_parameters_tune(&model.parameters, "blocks.0.*", CMHA_TUNE_FROZEN, 1, NULL));
    CHECK_OK(cmha_trainer_step_batch(&trainer, &batch, NULL));
    CHECK_OK(cmha_parameters_tune(&model.parameters, "blocks.0.*", CMHA_TUNE_FROZEN, 0, NULL));
    for (size_t k = 0; k < model.parameters.count; k++) {
        const cmha_parameter *p = &model.parameters.list[k];
        for (size_t i = 0; i < p->tensor.size; i++) {
            double now = (double)p->tensor.data[i], *to = mean + (p->tensor.data + i - model.parameters.data);
            *to = strncmp(p->name, "blocks.0.", 9) ? 0.8 * *to + 0.2 * now : now;
        }
    }
    is_mean(&trainer, mean, "thawed");
    cmha_trainer_close(&resumed), cmha_model_close(&other);
    /* nothing of a file is dropped without a word, and no trainer has a mean that it does not keep */
    open_mean(&other, &resumed, 0);
    CHECK_IS(cmha_trainer_read(&resumed, path), CMHA_ERR_FORMAT);
    CHECK(strstr(cmha_error(&context), "ema") != NULL);
    CHECK_IS(cmha_trainer_swap(&resumed), CMHA_ERR_STATE);
    CHECK_OK(cmha_trainer_save(&resumed, path));
    CHECK_IS(cmha_trainer_read(&trainer, path), CMHA_ERR_FORMAT);
    CHECK(strstr(cmha_error(&context), "optim.mean.") != NULL);
    cmha_trainer_close(&resumed), cmha_model_close(&other);
    cmha_trainer_close(&trainer), cmha_model_close(&model);
    free(mean), free(weights);
    CHECK(!remove(path) && !rmdir(folder));
}

static void refused(const char *options, const char *word) {
    cmha_model_config c = check_model_config();
    cmha_model model;
    CHECK_OK(cmha_config_set_all(&context, cmha_model_table(), &c, options));
    CHECK_IS(cmha_model_init(&model, &context, &c), CMHA_ERR_ARGUMENT);
    CHECK_THAT(strstr(cmha_error(&context), word) != NULL, "%s: %s", options, cmha_error(&context));
}

/* A configuration that is zeroed, and set by a program that does not know these factors, gets a line. */
static void zeroed_factor(double *factor, const cmha_model_config *c, const char *name) {
    cmha_model model;
    *factor = 0;
    CHECK_IS(cmha_model_init(&model, &context, c), CMHA_ERR_ARGUMENT);
    CHECK_THAT(strstr(cmha_error(&context), name) != NULL, "%s: %s", name, cmha_error(&context));
    *factor = 1;
}
static void zeroed_factors(void) {
    cmha_model_config c = check_model_config();
    zeroed_factor(&c.embedding_factor, &c, "embedding_factor");
    zeroed_factor(&c.head_scale, &c, "head_scale");
}

int main(int argc, char **argv) {
    (void)argc;
    cmha_blas_restart(argv);
    if (!system_folder(folder)) return 3;
    snprintf(mean_path, sizeof mean_path, "%s/mean", folder);
    check_context(&context, 2, 3);
    for (size_t i = 0; i < ROWS * LENGTH; i++)
        ids[i] = (int32_t)check_below(VOCABULARY), targets[i] = (int32_t)check_below(VOCABULARY);
    soft_caps(), squared_relu(), averages();
    gains(1, 1), gains(1e25, 1), gains(1e25, 1e20);
    if (sizeof(cmha_real) == sizeof(double)) gains(1e160, 1e160);
    gains_at_first();
    attentions(), sinks_backward(), sinks_of_encoders(), huge_scores();
    nothing_changes(), kinds_of_layers();
    small_queries("attention=rope n_kv_heads=2", "rms"), small_queries("attention=dot", "rms_gain");
    small_queries("attention=rope", "rms_whole");
    small_queries("family=cope attention=dot cope_score=real n_layers=1", "rms");
    lengths("attention=rope layout=half n_kv_heads=2", "blocks.0.attn.wk.weight");
    lengths("attention=cmha", "blocks.0.attn.wq.weight");
    lengths("attention=pope n_kv_heads=1 position=alibi n_layers=1", "blocks.0.attn.wk.weight");
    lengths("family=cope attention=rope cope_score=real", "blocks.0.attn.wk.weight");
    capped_logits("attention=rope"), capped_logits("attention=rope tied=0 head_bias=1 norm=rmsnorm_one_plus");
    zero_start("attention=rope"), zero_start("init=xavier activation=swiglu"), zero_start("family=crat");
    zero_start("family=crat low_rank=3");
    residuals(), means();
    z_loss("attention=rope"), z_loss("tied=0 head_bias=1 logit_softcap=3"), z_loss("pcl_weight=0.1 causal=0");
    zeroed_factors();
    refused("parallel=norms placement=post", "parallel");
    refused("parallel=norm placement=after", "parallel");
    refused("layer_kinds=gx", "besides g, l and n"), refused("layer_kinds=gl", "need a window");
    refused("layer_kinds=l window=2 local_base=0.5", "local_base");
    refused("first_norm=0 placement=post", "first_norm = 0 needs placement = pre");
    refused("first_norm=0 placement=sandwich", "first_norm");
    refused("family=cope attention=rope first_norm=0", "first_norm");
    refused("family=cope attention=rope qk_norm=rms_whole", "qk_norm");
    refused("family=crat layer_kinds=g", "layer_kinds"), refused("family=crat placement=after", "placement");
    refused("value_residual=1 recompute=1", "recompute");
    refused("family=cope attention=rope value_residual=1", "value_residual");
    refused("family=crat qk_norm=rms", "qk_norm");
    refused("family=crat crat_attention=linear score_softcap=1", "score_softcap");
    cmha_context_close(&context);
    return check_end();
}
