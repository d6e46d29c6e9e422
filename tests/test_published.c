/* Models as other people publish them, BERT, Qwen2, Llama 3.1, GPT-NeoX's heads, YaRN, against their
   definitions, computed naively in double with no function of the library; what options of theirs are equal
   to; and which of them are refused. */
#include "models.h"

enum { B = 2, N = 11, V = 19, MOST = 64 };

static cmha_context context;
static cmha_model model;
static int32_t ids[B * N], types[B * N];

/* ---- The naive model: rows of doubles ---- */

/* Numbers of a parameter, NULL if the model has none */
static const cmha_real *numbers(const char *format, size_t layer, const char *what) {
    char name[64];
    const cmha_parameter *p;
    snprintf(name, sizeof name, format, layer, what);
    p = cmha_parameters_find(&model.parameters, name);
    return p ? p->tensor.data : NULL;
}

static const cmha_real *of_model(const char *name) { return numbers("%.0zu%s", 0, name); }
static const cmha_real *of_block(size_t i, const char *name) { return numbers("blocks.%zu.%s", i, name); }

/* y [O] = W x + b */
static void naive_linear(const cmha_real *W, const cmha_real *b, const double *x, size_t I, size_t O,
                         double *y) {
    size_t i, o;
    for (o = 0; o < O; o++) {
        y[o] = b ? (double)b[o] : 0;
        for (i = 0; i < I; i++) y[o] += (double)W[o * I + i] * x[i];
    }
}

static void naive_norm(const cmha_real *gain, const cmha_real *offset, const double *x, double *y) {
    const cmha_model_config *c = &model.config;
    double mean = 0, square = 0, d = (double)c->d_model;
    size_t i;
    for (i = 0; i < c->d_model; i++) mean += x[i] / d;
    if (c->norm == CMHA_NORM_RMS) mean = 0;
    for (i = 0; i < c->d_model; i++) square += (x[i] - mean) * (x[i] - mean) / d;
    for (i = 0; i < c->d_model; i++) {
        y[i] = (x[i] - mean) / sqrt(square + c->norm_eps) * (double)gain[i];
        if (offset) y[i] += (double)offset[i];
    }
}

static double naive_gelu(double x) { return x / 2 * (1 + erf(x / sqrt(2))); }

/* The frequency of pair j of n, with the score's factor: the reference implementations' formulas */
static double naive_omega(size_t j, size_t n, double *factor) {
    const cmha_model_config *c = &model.config;
    const double turn = 2 * acos(-1.0);
    double w = pow(c->base, -(double)j / (double)n), f = c->rope_factor, L = (double)c->rope_length;
    *factor = 1;
    if (c->rope_scaling == CMHA_ROPE_SCALING_LINEAR) return w / f;
    if (c->rope_scaling == CMHA_ROPE_SCALING_LLAMA3) {
        double wave = turn / w, low = L / c->rope_slow, high = L / c->rope_fast, smooth;
        smooth = (L / wave - c->rope_slow) / (c->rope_fast - c->rope_slow);
        return wave > low ? w / f : wave < high ? w : (1 - smooth) * w / f + smooth * w;
    }
    if (c->rope_scaling == CMHA_ROPE_SCALING_YARN) {
        double low = floor((double)n * log(L / (c->rope_fast * turn)) / log(c->base)), ramp;
        double high = ceil((double)n * log(L / (c->rope_slow * turn)) / log(c->base));
        low = low < 0 ? 0 : low, high = high > 2 * (double)n - 1 ? 2 * (double)n - 1 : high;
        ramp = ((double)j - low) / (high - low);
        ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
        *factor = pow(0.1 * log(f) + 1, 2);
        return w / f * ramp + w * (1 - ramp);
    }
    return w;
}

/* Turns the first rotary_dims numbers of a head at position t, the first half of them against the second */
static void naive_rotate(double *x, size_t width, size_t t) {
    size_t n = (model.config.rotary_dims ? model.config.rotary_dims : width) / 2, j;
    double factor;
    if (model.config.attention == CMHA_ATTENTION_DOT) return;
    for (j = 0; j < n; j++) {
        double a = (double)t * naive_omega(j, n, &factor), re = x[j], im = x[j + n];
        x[j] = re * cos(a) - im * sin(a), x[j + n] = im * cos(a) + re * sin(a);
    }
}

/* h [N, d] -> y [N, d], the attention of a block with its output projection */
static void naive_attention(size_t layer, const double *h, double *y) {
    const cmha_model_config *c = &model.config;
    size_t H = c->n_heads, K = c->n_kv_heads ? c->n_kv_heads : H, d = c->d_model, t, s, g, i;
    size_t w = c->d_head ? c->d_head : d / H;
    double *q = (double *)check_alloc(N * H * w, sizeof *q), *k = (double *)check_alloc(N * K * w, sizeof *k);
    double *v = (double *)check_alloc(N * K * w, sizeof *v), *o = (double *)check_alloc(H * w, sizeof *o);
    double score[N], sum, factor = 1;
    if (c->attention != CMHA_ATTENTION_DOT) naive_omega(0, 1, &factor);
    for (t = 0; t < N; t++) {
        naive_linear(of_block(layer, "attn.wq.weight"), of_block(layer, "attn.wq.bias"), h + t * d, d, H * w,
                     q + t * H * w);
        naive_linear(of_block(layer, "attn.wk.weight"), of_block(layer, "attn.wk.bias"), h + t * d, d, K * w,
                     k + t * K * w);
        naive_linear(of_block(layer, "attn.wv.weight"), of_block(layer, "attn.wv.bias"), h + t * d, d, K * w,
                     v + t * K * w);
        for (g = 0; g < H; g++) naive_rotate(q + (t * H + g) * w, w, t);
        for (g = 0; g < K; g++) naive_rotate(k + (t * K + g) * w, w, t);
    }
    for (t = 0; t < N; t++) {
        size_t seen = c->causal ? t + 1 : N;
        for (g = 0; g < H; g++) {
            size_t kv = g / (H / K);
            for (s = 0, sum = 0; s < seen; sum += score[s++]) {
                for (i = 0, score[s] = 0; i < w; i++)
                    score[s] += q[(t * H + g) * w + i] * k[(s * K + kv) * w + i];
                score[s] = exp(score[s] * factor / sqrt((double)w));
            }
            for (i = 0; i < w; i++)
                for (s = 0, o[g * w + i] = 0; s < seen; s++)
                    o[g * w + i] += score[s] / sum * v[(s * K + kv) * w + i];
        }
        naive_linear(of_block(layer, "attn.wo.weight"), of_block(layer, "attn.wo.bias"), o, H * w, d,
                     y + t * d);
    }
    free(q), free(k), free(v), free(o);
}

static void naive_ffn(size_t layer, const double *h, double *y) {
    const cmha_model_config *c = &model.config;
    double *gate = (double *)check_alloc(c->d_ff, sizeof *gate);
    double *up = (double *)check_alloc(c->d_ff, sizeof *up);
    size_t i;
    naive_linear(of_block(layer, "ffn.w1.weight"), of_block(layer, "ffn.w1.bias"), h, c->d_model, c->d_ff,
                 gate);
    if (c->activation == CMHA_ACTIVATION_SWIGLU) {
        naive_linear(of_block(layer, "ffn.w3.weight"), of_block(layer, "ffn.w3.bias"), h, c->d_model, c->d_ff,
                     up);
        for (i = 0; i < c->d_ff; i++) gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
    } else {
        for (i = 0; i < c->d_ff; i++) gate[i] = naive_gelu(gate[i]);
    }
    naive_linear(of_block(layer, "ffn.w2.weight"), of_block(layer, "ffn.w2.bias"), gate, c->d_ff, c->d_model,
                 y);
    free(gate), free(up);
}

/* One norm of a block on all rows, in place or not */
static void naive_ln(size_t layer, const char *gain, const char *offset, const double *x, double *y) {
    size_t t, d = model.config.d_model;
    for (t = 0; t < N; t++)
        naive_norm(of_block(layer, gain), of_block(layer, offset), x + t * d, y + t * d);
}

static void naive_block(size_t layer, double *x) {
    size_t d = model.config.d_model, i;
    int post = model.config.placement == CMHA_PLACEMENT_POST;
    double h[N * MOST], y[N * MOST];
    memcpy(h, x, N * d * sizeof *h);
    if (!post) naive_ln(layer, "ln1.weight", "ln1.bias", x, h);
    naive_attention(layer, h, y);
    for (i = 0; i < N * d; i++) x[i] += y[i];
    if (post) naive_ln(layer, "ln1.weight", "ln1.bias", x, x);
    memcpy(h, x, N * d * sizeof *h);
    if (!post) naive_ln(layer, "ln2.weight", "ln2.bias", x, h);
    for (i = 0; i < N; i++) naive_ffn(layer, h + i * d, y + i * d);
    for (i = 0; i < N * d; i++) x[i] += y[i];
    if (post) naive_ln(layer, "ln2.weight", "ln2.bias", x, x);
}

/* The states of one sequence */
static void naive_states(const int32_t *id, const int32_t *type, double *x) {
    const cmha_real *tok = of_model("tok_emb.weight"), *pos = of_model("pos_emb.weight");
    const cmha_real *kinds = of_model("type_emb.weight"), *gain = of_model("emb_norm.weight");
    size_t d = model.config.d_model, t, i;
    for (t = 0; t < N; t++) {
        for (i = 0; i < d; i++) {
            x[t * d + i] = (double)tok[(size_t)id[t] * d + i];
            if (pos) x[t * d + i] += (double)pos[t * d + i];
            if (kinds) x[t * d + i] += (double)kinds[(size_t)type[t] * d + i];
        }
        if (gain) naive_norm(gain, of_model("emb_norm.bias"), x + t * d, x + t * d);
    }
    for (i = 0; i < model.config.n_layers; i++) naive_block(i, x);
    for (t = 0; t < N && of_model("ln_f.weight"); t++)
        naive_norm(of_model("ln_f.weight"), of_model("ln_f.bias"), x + t * d, x + t * d);
}

static void naive_logits(const double *state, double *logits) {
    const cmha_real *head = of_model("head.weight"), *dense = of_model("head_dense.weight");
    size_t d = model.config.d_model, i;
    double h[MOST];
    memcpy(h, state, d * sizeof *h);
    if (dense) {
        naive_linear(dense, of_model("head_dense.bias"), state, d, d, h);
        for (i = 0; i < d; i++) h[i] = naive_gelu(h[i]);
        naive_norm(of_model("head_norm.weight"), of_model("head_norm.bias"), h, h);
    }
    naive_linear(head ? head : of_model("tok_emb.weight"), of_model("head.bias"), h, d, V, logits);
}

/* ---- Models ---- */

static int open_model(const char *options, size_t layers) {
    cmha_model_config c = check_model_config();
    size_t i;
    c.n_layers = layers;
    models_set(&context, &c, options);
    if (!CHECK_THAT(!cmha_model_init(&model, &context, &c), "%s: %s", options, cmha_error(&context)))
        return 0;
    for (i = 0; i < model.parameters.size; i++) /* biases off their zeros */
        model.parameters.data[i] += (cmha_real)(0.05 * check_random());
    return 1;
}

static cmha_batch batch_of(void) {
    cmha_batch b;
    memset(&b, 0, sizeof b);
    b.ids = ids, b.batch = B, b.length = N;
    if (model.config.token_types) b.types = types;
    return b;
}

static void against_definition(const char *options) {
    cmha_real logits[B * N * V], scores[B * 3];
    double states[N * MOST], want[MOST], pooled[MOST], worst = 0, most = 0;
    cmha_batch batch;
    size_t b, t, i;
    if (!open_model(options, 3)) return;
    batch = batch_of();
    CHECK_THAT(!cmha_model_logits(&model, &batch, logits), "%s: %s", options, cmha_error(&context));
    if (model.config.classes)
        CHECK_THAT(!cmha_model_classify(&model, &batch, scores), "%s: %s", options, cmha_error(&context));
    for (b = 0; b < B; b++) {
        naive_states(ids + b * N, types + b * N, states);
        for (t = 0; t < N; t++) {
            naive_logits(states + t * model.config.d_model, want);
            for (i = 0; i < V; i++) {
                worst = fmax(worst, fabs(want[i] - (double)logits[(b * N + t) * V + i]));
                most = fmax(most, fabs(want[i]));
            }
        }
        if (!model.config.classes) continue;
        naive_linear(of_model("pool.weight"), of_model("pool.bias"), states, model.config.d_model,
                     model.config.d_model, pooled);
        for (i = 0; i < model.config.d_model; i++) pooled[i] = tanh(pooled[i]);
        naive_linear(of_model("class.weight"), of_model("class.bias"), pooled, model.config.d_model, 3, want);
        for (i = 0; i < 3; i++) worst = fmax(worst, fabs(want[i] - (double)scores[b * 3 + i]));
    }
    CHECK_THAT(worst < check_tolerance(1e-12, 1e-5) * (1 + most) && most > 0.1,
               "%s: logits up to %g are off by %g", options, most, worst);
    cmha_model_close(&model);
}

#define LLAMA "attention=rope layout=half norm=rmsnorm activation=swiglu ffn_bias=0 "
static void definitions(void) {
    static const char *const published[] = {
        LLAMA "n_kv_heads=2 base=1000000 qkv_bias=1", /* Qwen2 */
        LLAMA "n_kv_heads=2 d_head=6 tied=0",         /* Mistral Nemo's heads */
        LLAMA "n_kv_heads=1 d_head=12 base=50 rope_scaling=llama3 rope_factor=8 rope_length=40 rope_fast=4",
        LLAMA "d_head=16 base=30 rope_scaling=yarn rope_factor=16 rope_length=100 rope_fast=8 qkv_bias=1",
        LLAMA "rope_scaling=linear rope_factor=4",
        "attention=rope layout=half d_head=10 rotary_dims=4 attention_bias=1 tied=0", /* GPT-NeoX */
        "attention=dot position=learned attention_bias=1",                            /* GPT-2 */
        ("attention=dot position=learned placement=post causal=0 token_types=2 attention_bias=1 head_bias=1 "
         "embedding_norm=1 head_transform=1 classes=3 pooler=1 norm_eps=1e-12")}; /* BERT */
    size_t i;
    for (i = 0; i < sizeof published / sizeof *published; i++) against_definition(published[i]);
}

/* ---- What options are equal to ---- */

/* The largest difference of the logits of two models with the same weights */
static double difference(const char *one, const char *other) {
    cmha_real logits[2][B * N * V];
    uint64_t seed = check_seed;
    int i;
    for (i = 0; i < 2; i++) {
        cmha_batch batch;
        check_seed = seed;
        if (!open_model(i ? other : one, 2)) return HUGE_VAL;
        batch = batch_of();
        CHECK_OK(cmha_model_logits(&model, &batch, logits[i]));
        cmha_model_close(&model);
    }
    return check_distance(logits[0], logits[1], B * N * V);
}

static void equals(void) {
    static const char *const plain[] = {"attention=rope", "attention=cmha layout=half",
                                        "attention=cmha pcl_weight=0.1", "family=cope attention=rope",
                                        "family=mobius attention=rope position=learned placement=post"};
    static const char *const same[] = {"rotary_dims=4", "rope_scaling=linear", "rope_scaling=ntk",
                                       "d_head=0 rope_scaling=llama3 rope_length=64",
                                       "rope_fast=8 rope_length=9"};
    char options[256], other[256];
    size_t i, j;
    for (i = 0; i < sizeof plain / sizeof *plain; i++)
        for (j = 0; j < sizeof same / sizeof *same; j++) {
            if (j == 0 && i == 1) continue; /* below */
            snprintf(options, sizeof options, "%s %s", plain[i], same[j]);
            CHECK_THAT(difference(plain[i], options) <= 0, "%s is not %s", options, plain[i]);
        }
    CHECK(difference("attention=rope layout=half", "attention=rope layout=half rotary_dims=4 d_head=4") <= 0);
    CHECK(difference("attention=dot", "attention=dot rope_scaling=yarn rope_factor=8 rope_length=512") <= 0);
    CHECK(difference("attention=rope", "attention=rope rope_scaling=linear rope_factor=2") > 1e-3);
    /* the last of n frequencies divided by f is base f^(n/(n-1)); n = 2 */
    snprintf(other, sizeof other, "attention=cmha base=%.17g", 10000 * pow(3, 2));
    CHECK(difference("attention=cmha rope_scaling=ntk rope_factor=3", other) < check_tolerance(1e-12, 1e-5));
    /* without its factor on the score yarn by turns is llama3 */
    snprintf(other, sizeof other, "attention=rope base=40 rope_scaling=llama3 rope_factor=5 rope_length=90 "
                                  "rope_fast=9 score_scale=%.17g", pow(0.1 * log(5) + 1, 2) / 2);
    CHECK(difference("attention=rope base=40 rope_scaling=yarn rope_ramp=rotations rope_factor=5 "
                     "rope_length=90 rope_fast=9", other) < check_tolerance(1e-12, 1e-5));
}

/* A pair at position f t turned by its frequency over f is where the plain one is at t. */
static void positions_divided(void) {
    cmha_rope_options o;
    double omega[8], slow[8];
    size_t j;
    memset(&o, 0, sizeof o);
    o.scaling = CMHA_ROPE_SCALING_LINEAR, o.factor = 4;
    CHECK(cmha_frequencies(CMHA_FREQUENCY_ROPE, 10000, 8, NULL, omega) == 1);
    CHECK(cmha_frequencies(CMHA_FREQUENCY_ROPE, 10000, 8, &o, slow) == 1);
    for (j = 0; j < 8; j++) CHECK(4 * slow[j] == omega[j]);
    o.rotary_dims = 6;
    CHECK(cmha_frequencies(CMHA_FREQUENCY_ROPE, 10000, 8, &o, slow) == 1);
    for (j = 0; j < 8; j++) CHECK_NEAR(4 * slow[j], j < 3 ? pow(10000, -(double)j / 3) : 0, 1e-15);
    o.scaling = CMHA_ROPE_SCALING_NTK; /* of what turns the last is divided by the factor, the first stays */
    CHECK(cmha_frequencies(CMHA_FREQUENCY_ROPE, 10000, 8, &o, slow) == 1);
    for (j = 0; j < 8; j++)
        CHECK_NEAR(slow[j], j < 3 ? pow(10000, -(double)j / 3) * pow(2, -(double)j) : 0, 1e-15);
    o.rotary_dims = 2; /* which is both */
    CHECK(cmha_frequencies(CMHA_FREQUENCY_ROPE, 10000, 8, &o, slow) == 1);
    CHECK(slow[0] == 1 && slow[1] == 0);
    o.scaling = CMHA_ROPE_SCALING_LINEAR;
    o.rotary_dims = 1000; /* more than there are */
    CHECK(cmha_frequencies(CMHA_FREQUENCY_ROPE, 10000, 8, &o, slow) == 1);
    for (j = 0; j < 8; j++) CHECK(4 * slow[j] == omega[j]);
}

/* YaRN's ramp by index, its ends rounded outwards, has a width where fast = slow; that by turns has none. */
static void ramp_of_one_turn(void) {
    cmha_rope_options o = {0, CMHA_ROPE_SCALING_YARN, 4, 500, 8, 8, CMHA_ROPE_RAMP_INDEX};
    const double at = 8 * log(500 / (8 * 2 * acos(-1))) / log(10000), low = floor(at), high = ceil(at);
    double omega[8];
    size_t j;
    CHECK_NEAR(cmha_frequencies(CMHA_FREQUENCY_ROPE, 10000, 8, &o, omega), pow(0.1 * log(4) + 1, 2), 1e-15);
    for (j = 0; j < 8; j++) {
        double kept = 1 - fmax(0, fmin(1, ((double)j - low) / (high - low)));
        CHECK_NEAR(omega[j], pow(10000, -(double)j / 8) * (kept + (1 - kept) / 4), 1e-15);
    }
    o.ramp = CMHA_ROPE_RAMP_ROTATIONS;
    CHECK(cmha_frequencies(CMHA_FREQUENCY_ROPE, 10000, 8, &o, omega) == 0);
    o.ramp = CMHA_ROPE_RAMP_INDEX, o.slow = NAN;
    CHECK(cmha_frequencies(CMHA_FREQUENCY_ROPE, 10000, 8, &o, omega) == 0);
    o.slow = 9;
    CHECK(cmha_frequencies(CMHA_FREQUENCY_ROPE, 10000, 8, &o, omega) == 0);
}

/* ---- What is refused ---- */

static void refuses(void) {
    static const struct {
        const char *options, *line; /* part of the line */
        cmha_status status;
    } wrong[] = {
        {"rotary_dims=3", "rotary_dims is odd", CMHA_ERR_ARGUMENT},
        {"rotary_dims=6", "larger than a head", CMHA_ERR_ARGUMENT},
        {"d_head=8 rotary_dims=10", "larger than a head", CMHA_ERR_ARGUMENT},
        {"d_head=7", "a head of 7", CMHA_ERR_SHAPE},
        {"rope_scaling=yarn rope_factor=4", "rope_length = 0", CMHA_ERR_ARGUMENT},
        {"rope_scaling=llama3 rope_factor=4", "rope_length = 0", CMHA_ERR_ARGUMENT},
        {"rope_scaling=llama3 rope_length=64 rope_fast=1", "rope_fast = 1", CMHA_ERR_ARGUMENT},
        {"rope_scaling=yarn rope_length=64 rope_fast=1 rope_slow=4", "rope_slow = 4", CMHA_ERR_ARGUMENT},
        {"rope_scaling=yarn rope_length=1 d_head=16", "rope_length = 1", CMHA_ERR_ARGUMENT},
        {"rope_scaling=yarn rope_length=100000 base=1.5 d_head=4", "base 1.5", CMHA_ERR_ARGUMENT},
        {"rope_scaling=yarn rope_length=100000 base=1", "base 1 ", CMHA_ERR_ARGUMENT},
        {"layout=half rotary_dims=4 pcl_weight=0.1", "phase contrastive loss", CMHA_ERR_ARGUMENT},
        {"head_transform=1 activation=swiglu", "head_transform", CMHA_ERR_ARGUMENT},
        {"family=cope attention=dot d_head=6", "d_head", CMHA_ERR_ARGUMENT},
        {"family=mobius attention=dot position=learned placement=post embedding_norm=1", "embedding_norm",
         CMHA_ERR_ARGUMENT},
        {"family=crat qkv_bias=1", "no biases", CMHA_ERR_ARGUMENT}};
    cmha_rope_options o = {0, CMHA_ROPE_SCALING_YARN, 0.5, 4096, 32, 1, CMHA_ROPE_RAMP_INDEX};
    cmha_model_config c;
    double omega[8];
    size_t i;
    for (i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        c = check_model_config();
        models_set(&context, &c, wrong[i].options);
        CHECK_THAT(cmha_model_init(&model, &context, &c) == wrong[i].status &&
                       strstr(cmha_error(&context), wrong[i].line) && !strchr(cmha_error(&context), '\n'),
                   "%s: %s", wrong[i].options, cmha_error(&context));
        cmha_model_close(&model);
    }
    c = check_model_config();
    CHECK(cmha_config_set(&context, cmha_model_table(), &c, "rope_factor", "0.5") != CMHA_OK);
    CHECK(cmha_config_set(&context, cmha_model_table(), &c, "rope_scaling", "dynamic") != CMHA_OK);
    CHECK(cmha_frequencies(CMHA_FREQUENCY_ROPE, 10000, 8, &o, omega) == 0);
    o.factor = NAN;
    CHECK(cmha_frequencies(CMHA_FREQUENCY_ROPE, 10000, 8, &o, omega) == 0);
    o.factor = 2;
    CHECK(cmha_frequencies(CMHA_FREQUENCY_ROPE, 10000, 8, &o, omega) > 1);
    o.length = NAN;
    CHECK(cmha_frequencies(CMHA_FREQUENCY_ROPE, 10000, 8, &o, omega) == 0);
}

int main(int argc, char **argv) {
    size_t i;
    (void)argc;
    cmha_blas_restart(argv);
    if (cmha_context_init(&context, NULL)) return 3;
    for (i = 0; i < B * N; i++) ids[i] = (int32_t)check_below(V), types[i] = (int32_t)check_below(2);
    definitions();
    equals();
    positions_divided();
    ramp_of_one_turn();
    refuses();
    cmha_context_close(&context);
    return check_end();
}
