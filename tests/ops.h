/* Every operation of the tape as a row of one table, on inputs of a chosen kind: small random numbers,
   zeros, denormal numbers, huge ones. What tests of all operations share: memory failures, bad tapes,
   numbers at the ends of their range. */
#ifndef CHECK_OPS_H
#define CHECK_OPS_H

#include "check.h"

/* What the inputs hold. `data` flows through a network, `weights` are its parameters. */
typedef enum ops_fill {
    OPS_PLAIN,     /* random in [-1, 1) */
    OPS_ZERO,      /* zeros, some of them negative */
    OPS_DENORMAL,  /* random numbers below the smallest normal one */
    OPS_HUGE_DATA, /* data +- 1e30, weights plain */
    OPS_HUGE,      /* everything +- 1e30 */
    OPS_MIXED,     /* one of these at a time: 0, denormal, 1e-30, 1, 1e30 */
    OPS_FILLS
} ops_fill;

static inline const char *ops_fill_name(ops_fill fill) {
    static const char *const names[OPS_FILLS] = {"plain", "zero", "denormal", "huge data", "huge", "mixed"};
    return names[fill];
}

enum { OPS_MAX_INPUTS = 8, OPS_B = 2, OPS_N = 5, OPS_H = 2, OPS_D = 4 };

/* The inputs of one operation, made on a tape that need not be the operation's own. */
typedef struct ops_inputs {
    cmha_tape *tape;
    ops_fill fill;
    cmha_tensor *made[OPS_MAX_INPUTS];
    int n;
} ops_inputs;

static inline cmha_real ops_value(ops_fill fill, int is_weight) {
    static const double ends[5] = {0, 1, 1e-30, 1, 1e30};
    double x = check_random();
    size_t which;
    switch (fill) {
    case OPS_PLAIN: return (cmha_real)x;
    case OPS_ZERO: return x < 0 ? -(cmha_real)0 : 0;
    case OPS_DENORMAL: return (cmha_real)(x * 1e-39);
    case OPS_HUGE_DATA: return (cmha_real)(is_weight ? x : x < 0 ? -1e30 : 1e30);
    case OPS_HUGE: return (cmha_real)(x < 0 ? -1e30 : 1e30);
    default: break;
    }
    which = check_below(5);
    return which == 1 ? (cmha_real)(x * 1e-39) : (cmha_real)((x < 0 ? -1 : 1) * ends[which]);
}

static inline cmha_tensor *ops_input(ops_inputs *s, int is_weight, int rank, size_t a, size_t b, size_t c,
                                     size_t d) {
    size_t shape[4], i;
    cmha_tensor *t;
    shape[0] = a, shape[1] = b, shape[2] = c, shape[3] = d;
    t = cmha_tensor_new(s->tape, rank, shape, 1);
    for (i = 0; t && i < t->size; i++) t->data[i] = ops_value(s->fill, is_weight);
    if (t) s->made[s->n++] = t;
    return t;
}

#define OPS_X1(a) ops_input(s, 0, 1, a, 0, 0, 0)
#define OPS_X2(a, b) ops_input(s, 0, 2, a, b, 0, 0)
#define OPS_X3(a, b, c) ops_input(s, 0, 3, a, b, c, 0)
#define OPS_X4(a, b, c, d) ops_input(s, 0, 4, a, b, c, d)
#define OPS_W1(a) ops_input(s, 1, 1, a, 0, 0, 0)
#define OPS_W2(a, b) ops_input(s, 1, 2, a, b, 0, 0)
#define OPS_W3(a, b, c) ops_input(s, 1, 3, a, b, c, 0)

static const int32_t ops_ids[10] = {0, 3, 1, 3, 2, 0, 0, 1, 3, 2};
static const unsigned char ops_none[10] = {0}, ops_padded[10] = {1, 1, 1, 0, 0, 1, 1, 1, 1, 0};
static const cmha_real ops_alibi[2] = {(cmha_real)0.5, (cmha_real)0.25},
                       ops_weights[4] = {1, 2, (cmha_real)0.5, 3};
static const cmha_real ops_targets[8] = {1, -1, 2, 0, (cmha_real)0.5, 3, -2, 1};
static const size_t ops_rows[3] = {2, 0, 2};

/* Attention's options */
enum {
    OPS_CAUSAL = 1,
    OPS_MASKED = 2, /* no key at all */
    OPS_PADDED = 4,
    OPS_ALIBI = 8,
    OPS_GROUPED = 16,
    OPS_DROPPED = 32,
    OPS_WINDOW = 64,
    OPS_ONE = 128, /* a single token */
    OPS_FUSED = 256,
    OPS_BILINEAR = 512,
    OPS_SHARED = 1024,
    OPS_FIXED = 2048,
    OPS_LONG = 4096, /* more than one tile of keys */
    OPS_COMPLEX_V = 8192
};

static inline void ops_attention_options(cmha_attention_args *a, int options) {
    memset(a, 0, sizeof *a);
    a->heads = OPS_H, a->kv_heads = options & OPS_GROUPED ? 1 : OPS_H;
    a->scale = (cmha_real)0.5, a->eps = (cmha_real)1e-6;
    a->causal = (options & OPS_CAUSAL) != 0;
    a->window = options & OPS_WINDOW ? 2 : 0;
    a->key_mask = options & OPS_MASKED ? ops_none : options & OPS_PADDED ? ops_padded : NULL;
    a->alibi = options & OPS_ALIBI ? ops_alibi : NULL;
    a->dropout = (cmha_real)(options & OPS_DROPPED ? 0.3 : 0);
    a->bilinear = (options & OPS_BILINEAR) != 0;
    a->complex_v = (options & OPS_COMPLEX_V) != 0;
    a->share = options & OPS_SHARED  ? CMHA_SHARE_SHARED
               : options & OPS_FIXED ? CMHA_SHARE_FIXED
                                     : CMHA_SHARE_PER_HEAD;
}

static inline cmha_tensor *ops_real_attention(cmha_tape *tape, ops_inputs *s, cmha_attention_kind kind,
                                              int options) {
    static const double omega[4] = {1, 0.01, 0.3, 0.1};
    cmha_attention_args a;
    size_t N = options & OPS_ONE ? 1 : options & OPS_LONG ? 70 : OPS_N, D = OPS_D, kv;
    size_t P = kind == CMHA_ATTENTION_POPE ? D : D / 2;
    cmha_tensor *q, *k, *v, *turns[2] = {NULL, NULL};
    ops_attention_options(&a, options);
    kv = a.kv_heads * D;
    a.kind = kind;
    if (kind == CMHA_ATTENTION_ROPEPP) a.heads *= 2;
    if (kind != CMHA_ATTENTION_DOT) a.rotation = cmha_rotation(tape, omega, 1, P, N, 0);
    q = OPS_X3(OPS_B, N, OPS_H * D + (options & OPS_FUSED ? 2 * kv : 0));
    k = options & OPS_FUSED ? NULL : OPS_X3(OPS_B, N, kv);
    v = options & OPS_FUSED ? NULL : OPS_X3(OPS_B, N, kv);
    if (kind == CMHA_ATTENTION_CMHA && a.share != CMHA_SHARE_FIXED) {
        turns[0] = OPS_W2(a.share == CMHA_SHARE_SHARED ? 1 : OPS_H, D / 2);
        turns[1] = OPS_W2(a.share == CMHA_SHARE_SHARED ? 1 : OPS_H, D / 2);
    }
    if (kind == CMHA_ATTENTION_POPE && a.share != CMHA_SHARE_FIXED)
        turns[0] = OPS_W2(a.share == CMHA_SHARE_SHARED ? 1 : OPS_H, P);
    return cmha_attention(tape, &a, q, k, v, turns);
}

static inline cmha_tensor *ops_complex_attention(cmha_tape *tape, ops_inputs *s, cmha_attention_kind kind,
                                                 cmha_softmax_kind softmax, cmha_norm_max norm_max,
                                                         int options) {
    cmha_attention_args a;
    size_t N = options & OPS_ONE ? 1 : options & OPS_LONG ? 70 : OPS_N, D = OPS_D;
    cmha_tensor *q, *k, *v;
    ops_attention_options(&a, options);
    a.kind = kind, a.softmax = softmax, a.norm_max = norm_max,
    a.norm_max_grad = norm_max != CMHA_NORM_MAX_NONE;
    a.magnitude = 1, a.cosine = (cmha_real)0.2;
    q = OPS_X3(OPS_B, N, 2 * OPS_H * D * (options & OPS_FUSED ? 3 : 1));
    k = options & OPS_FUSED ? NULL : OPS_X3(OPS_B, N, 2 * OPS_H * D);
    v = options & OPS_FUSED ? NULL : OPS_X3(OPS_B, N, OPS_H * D * (a.complex_v ? 2 : 1));
    return cmha_attention(tape, &a, q, k, v, NULL);
}

static inline cmha_tensor *ops_linear_attention(cmha_tape *tape, ops_inputs *s, cmha_linear_kind kind,
                                                cmha_cope_output output, int options) {
    cmha_linear_attention_args a;
    size_t N = options & OPS_ONE ? 1 : OPS_N, width = 2 * OPS_H * OPS_D, real = kind == CMHA_LINEAR_COPE;
    cmha_tensor *q, *k, *v;
    memset(&a, 0, sizeof a);
    a.heads = OPS_H, a.kind = kind, a.output = output, a.causal = (options & OPS_CAUSAL) != 0;
    a.alpha = (cmha_real)0.2, a.eps = a.den_eps = (cmha_real)1e-6;
    a.key_mask = options & OPS_MASKED ? ops_none : options & OPS_PADDED ? ops_padded : NULL;
    q = OPS_X3(OPS_B, N, width * (options & OPS_FUSED ? 3 : 1));
    k = options & OPS_FUSED ? NULL : OPS_X3(OPS_B, N, width);
    v = options & OPS_FUSED ? NULL : OPS_X3(OPS_B, N, real ? width / 2 : width);
    return cmha_linear_attention(tape, &a, q, k, v);
}

static inline cmha_tensor *ops_lag_attention(cmha_tape *tape, ops_inputs *s, size_t topk, int options) {
    cmha_lag_args a;
    size_t N = options & OPS_ONE ? 1 : OPS_N, width = 2 * OPS_H * OPS_D;
    cmha_tensor *q, *k, *v;
    memset(&a, 0, sizeof a);
    a.heads = OPS_H, a.temp = 1, a.topk = topk, a.eps = (cmha_real)1e-6;
    a.key_mask = options & OPS_MASKED ? ops_none : options & OPS_PADDED ? ops_padded : NULL;
    q = OPS_X3(OPS_B, N, width), k = OPS_X3(OPS_B, N, width), v = OPS_X3(OPS_B, N, width);
    return cmha_lag_attention(tape, &a, q, k, v);
}

static inline cmha_tensor *ops_pcl(cmha_tape *tape, ops_inputs *s, int adapted, int options) {
    static const double omega[2] = {1, 0.01};
    cmha_attention_args a;
    cmha_pcl_options pcl;
    size_t N = options & OPS_ONE ? 1 : OPS_N;
    cmha_tensor *qkv, *delta, *b, *w;
    ops_attention_options(&a, options);
    a.rotation = cmha_rotation(tape, omega, 1, OPS_D / 2, N, 0);
    pcl.tau = (cmha_real)0.1, pcl.mask_rate = (cmha_real)0.5, pcl.adapted = adapted;
    qkv = OPS_X3(OPS_B, N, 3 * OPS_H * OPS_D), delta = OPS_W2(OPS_H, OPS_D / 2), b = OPS_W2(OPS_H, OPS_D / 2);
    w = OPS_W1(OPS_D / 2);
    return cmha_pcl(tape, &a, qkv, delta, b, w, &pcl);
}

static inline cmha_tensor *ops_sublayer(cmha_tape *tape, ops_inputs *s, int act, int residual,
                                        double dropout) {
    cmha_tensor *x = OPS_X3(2, 3, act == CMHA_ACTIVATION_SWIGLU ? 12 : 6), *w = OPS_W2(4, 6), *b = OPS_W1(4);
    return cmha_sublayer(tape, x, act, w, b, residual ? OPS_X3(2, 3, 4) : NULL, (cmha_real)0.7,
                         (cmha_real)dropout);
}

static inline cmha_tensor *ops_reshaped(cmha_tape *tape, ops_inputs *s) {
    static const size_t shape[2] = {6, 4};
    return cmha_reshape(tape, OPS_X3(2, 3, 4), 2, shape);
}

/* Two inputs in a fixed order: arguments of one call may be evaluated in any. */
#define OPS_TWO(call, first, second)                    \
    do {                                                \
        cmha_tensor *a = first, *b = second;            \
        (void)a, (void)b;                               \
        return call;                                    \
    } while (0)
#define OPS_THREE(call, first, second, third)           \
    do {                                                \
        cmha_tensor *a = first, *b = second, *c = third; \
        (void)a, (void)b, (void)c;                      \
        return call;                                    \
    } while (0)

/* CRAT's experts and its window into a base of three documents. */
static inline cmha_tensor *ops_experts(cmha_tape *tape, ops_inputs *s, size_t top) {
    cmha_tensor *z = OPS_X2(5, 8), *logits = OPS_X2(5, 3), *w1 = ops_input(s, 1, 4, 2, 3, 3, 4),
                *b1 = OPS_W3(2, 3, 3);
    cmha_tensor *w2 = ops_input(s, 1, 4, 2, 3, 4, 3), *b2 = OPS_W3(2, 3, 4);
    const cmha_experts_tensors weights = {w1, b1, w2, b2};
    const cmha_experts_options options = {top, NULL, NULL};
    return cmha_experts(tape, z, logits, &weights, &options);
}

static inline cmha_tensor *ops_retrieve(cmha_tape *tape, ops_inputs *s, size_t documents) {
    static const cmha_real vectors[12] = {1, 2, -1, 0, 3, (cmha_real)0.5, -2, 1, 0, 0, 1, 0},
                           features[12] = {(cmha_real)0.6, 1, (cmha_real)-0.8, 0, 1, 0, 0, 1, 0, 1, 1, 0};
    static cmha_knowledge base;
    cmha_retrieve_args args;
    memset(&base, 0, sizeof base), memset(&args, 0, sizeof args);
    base.context = s->tape->context, base.n = documents, base.d_r = 2, base.vectors = vectors,
    base.features = features;
    args.queries = 2, args.top = 2, args.tau = 1, args.threshold = -1, args.eps = (cmha_real)1e-6;
    OPS_TWO(cmha_retrieve(tape, &base, &args, a, b, NULL), OPS_X2(5, 8), OPS_W1(2));
}

/* The value head of a model that has nothing else: means and log variances. */
static inline cmha_tensor *ops_values(cmha_tape *tape, cmha_tensor *x, cmha_tensor *w, cmha_tensor *b) {
    cmha_model model;
    memset(&model, 0, sizeof model);
    model.context = tape ? tape->context : NULL, model.config.gaussian = 1;
    model.value_weight = w, model.value_bias = b;
    return cmha_model_values(&model, tape, x);
}

/* The class head of a model that has nothing else, with a pooler of the same matrix: w [D, D] */
static inline cmha_tensor *ops_pooled(cmha_tape *tape, cmha_tensor *x, cmha_tensor *w, cmha_tensor *b) {
    cmha_model model;
    memset(&model, 0, sizeof model);
    model.context = tape ? tape->context : NULL, model.config.classes = 4;
    model.pool_weight = model.class_weight = w, model.pool_bias = model.class_bias = b;
    return cmha_model_scores(&model, tape, x, NULL);
}

/* What huge inputs (1e30) may do to an operation's result and to the gradients of its inputs. Where `inner`
   is 0 the double build must show that the true values are beyond the range of float: see test_extremes.c. */
typedef enum ops_range {
    OPS_FINITE,   /* always finite */
    OPS_OVERFLOW, /* may be infinite in float */
    OPS_BEYOND,   /* is infinite in double, too */
    OPS_CANCEL    /* may be infinite, and NaN where two infinite terms of a sum have opposite signs */
} ops_range;

typedef struct ops_limits {
    ops_range forward, backward;
    int inner; /* the result may be of ordinary size, but not what it is made of */
    const char *why;
} ops_limits;

static const ops_limits ops_fine = {OPS_FINITE, OPS_FINITE, 0, ""};
static const ops_limits ops_product = {OPS_OVERFLOW, OPS_FINITE, 0, "a product or square of inputs"};
static const ops_limits ops_square = {OPS_OVERFLOW, OPS_FINITE, 0, "a square of inputs"};
static const ops_limits ops_exponential = {OPS_BEYOND, OPS_BEYOND, 0, "e to the power of 1e30"};
static const ops_limits ops_sums = {OPS_CANCEL, OPS_FINITE, 0,
                                    "a sum of products, by the BLAS: 1e60 - 1e60 is inf - inf"};
static const ops_limits ops_sums_twice = {OPS_CANCEL, OPS_CANCEL, 0, "sums of products of such sums"};
static const ops_limits ops_scores = {OPS_FINITE, OPS_CANCEL, 0,
                                      "the gradient of a query is a sum of value x cotangent x key"};
static const ops_limits ops_pole = {OPS_OVERFLOW, OPS_CANCEL, 0, "1 / w^2 of a w of 1e-30"};
static const ops_limits ops_steep = {OPS_FINITE, OPS_OVERFLOW, 0,
                                     "the slope of a phasor at 0 is 1 / eps, times 1e30"};
static const ops_limits ops_singular = {OPS_OVERFLOW, OPS_OVERFLOW, 0,
                                        "rounding of 1e30 over the root of a singular covariance"};
static const ops_limits ops_ratio = {OPS_CANCEL, OPS_CANCEL, 1,
                                     "numerator and denominator are sums of products of 1e30 x 1e30"};
static const ops_limits ops_logits = {OPS_CANCEL, OPS_CANCEL, 1,
                                      "logits inside that are sums of products, by the BLAS"};
static const ops_limits ops_chain = {OPS_FINITE, OPS_CANCEL, 1,
                                     "the gradient of an angle is delta x w of 1e30 x 1e30"};
static const ops_limits ops_slope = {OPS_FINITE, OPS_CANCEL, 1,
                                     "softplus has the slope 0 at -1e30, times value x cotangent x key"};

/* ROW(name, limits, statements with `tape` and `s`) */
#define OPS_TABLE(ROW)                                                                                       \
    ROW(add, ops_fine, OPS_TWO(cmha_add(tape, a, b), OPS_X2(3, 4), OPS_X2(3, 4));)                           \
    ROW(mul, ops_product, OPS_TWO(cmha_mul(tape, a, b), OPS_X2(3, 4), OPS_X2(3, 4));)                        \
    ROW(mul_row, ops_product, OPS_TWO(cmha_mul(tape, a, b), OPS_X3(2, 3, 4), OPS_W1(4));)                    \
    ROW(mul_column, ops_product, OPS_TWO(cmha_mul(tape, a, b), OPS_X3(2, 3, 4), OPS_W2(3, 1));)              \
    ROW(exponential, ops_exponential, return cmha_exponential(tape, OPS_X2(3, 8));)                          \
    ROW(softmax, ops_fine, return cmha_softmax_rows(tape, OPS_X3(2, 3, 4), 0, NULL);)                        \
    ROW(softmax_causal, ops_fine, return cmha_softmax_rows(tape, OPS_X3(2, 5, 4), 1, NULL);)                 \
    ROW(transpose, ops_fine, return cmha_transpose(tape, OPS_X3(2, 3, 4), 0, 2);)                            \
    ROW(scale, ops_fine, return cmha_scale(tape, OPS_X2(3, 4), (cmha_real)-0.3);)                            \
    ROW(matmul, ops_sums, OPS_TWO(cmha_matmul(tape, a, b, 0), OPS_X3(2, 3, 4), OPS_W2(4, 5));)               \
    ROW(matmul_transposed, ops_sums, OPS_TWO(cmha_matmul(tape, a, b, 1), OPS_X2(3, 4), OPS_W2(5, 4));)       \
    ROW(matmul_batched, ops_sums, OPS_TWO(cmha_matmul(tape, a, b, 0), OPS_X3(2, 3, 4), OPS_X3(2, 4, 5));)    \
    ROW(matmul_row, ops_sums, OPS_TWO(cmha_matmul(tape, a, b, 1), OPS_X2(1, 4), OPS_W2(5, 4));)              \
    ROW(reshape, ops_fine, return ops_reshaped(tape, s);)                                                    \
    ROW(concat, ops_fine, OPS_TWO(cmha_concat(tape, a, b, 1), OPS_X3(2, 3, 4), OPS_X3(2, 1, 4));)            \
    ROW(slice, ops_fine, return cmha_slice(tape, OPS_X3(2, 5, 4), 1, 1, 3);)                                 \
    ROW(sum, ops_fine, return cmha_sum(tape, OPS_X2(3, 4));)                                                 \
    ROW(embedding, ops_fine, return cmha_embedding(tape, OPS_W2(4, 3), ops_ids, 2, 5);)                      \
    ROW(linear, ops_sums, OPS_THREE(cmha_linear(tape, a, b, c), OPS_X3(2, 3, 4), OPS_W2(5, 4), OPS_W1(5));)  \
    ROW(sublayer, ops_sums, return ops_sublayer(tape, s, -1, 1, 0.3);)                                       \
    ROW(sublayer_gelu, ops_sums, return ops_sublayer(tape, s, CMHA_ACTIVATION_GELU_ERF, 1, 0);)              \
    ROW(sublayer_tanh, ops_sums, return ops_sublayer(tape, s, CMHA_ACTIVATION_GELU_TANH, 0, 0.3);)           \
    ROW(sublayer_swiglu, ops_sums_twice, return ops_sublayer(tape, s, CMHA_ACTIVATION_SWIGLU, 1, 0.3);)      \
    ROW(sublayer_relu, ops_sums, return ops_sublayer(tape, s, CMHA_ACTIVATION_RELU, 0, 0);)                  \
    ROW(layernorm, ops_fine,                                                                                 \
        OPS_THREE(cmha_layernorm(tape, a, b, c, (cmha_real)1e-5), OPS_X3(2, 3, 8), OPS_W1(8), OPS_W1(8));)   \
    ROW(layernorm_one, ops_fine,                                                                             \
        OPS_TWO(cmha_layernorm(tape, a, b, NULL, (cmha_real)1e-5), OPS_X3(2, 3, 1), OPS_W1(1));)             \
    ROW(layernorm_eps0, ops_fine, OPS_TWO(cmha_layernorm(tape, a, b, NULL, 0), OPS_X3(2, 3, 8), OPS_W1(8));) \
    ROW(rmsnorm, ops_fine, OPS_TWO(cmha_rmsnorm(tape, a, b, (cmha_real)1e-5), OPS_X3(2, 3, 8), OPS_W1(8));)  \
    ROW(rmsnorm_eps0, ops_fine, OPS_TWO(cmha_rmsnorm(tape, a, b, 0), OPS_X3(2, 3, 8), OPS_W1(8));)           \
    ROW(gelu_erf, ops_fine, return cmha_activate(tape, OPS_X2(3, 8), CMHA_ACTIVATION_GELU_ERF);)             \
    ROW(gelu_tanh, ops_fine, return cmha_activate(tape, OPS_X2(3, 8), CMHA_ACTIVATION_GELU_TANH);)           \
    ROW(swiglu, ops_product, return cmha_activate(tape, OPS_X2(3, 8), CMHA_ACTIVATION_SWIGLU);)              \
    ROW(relu, ops_fine, return cmha_activate(tape, OPS_X2(3, 8), CMHA_ACTIVATION_RELU);)                     \
    ROW(relu2, ops_square, return cmha_activate(tape, OPS_X2(3, 8), CMHA_ACTIVATION_RELU2);)                 \
    ROW(softcap, ops_fine, return cmha_softcap(tape, OPS_X2(3, 8), (cmha_real)0.7);)                         \
    ROW(dropout, ops_fine, return cmha_dropout(tape, OPS_X2(3, 8), (cmha_real)0.4);)                         \
    ROW(sigmoid, ops_fine, return cmha_sigmoid(tape, OPS_X2(3, 8));)                                         \
    ROW(quotient_reg, ops_fine, OPS_TWO(cmha_quotient(tape, a, b, CMHA_QUOTIENT_REG, (cmha_real)1e-3),       \
        OPS_X2(3, 8), OPS_X2(3, 8));)                                                                        \
    ROW(quotient_exact, ops_pole,                                                                            \
        OPS_TWO(cmha_quotient(tape, a, b, CMHA_QUOTIENT_EXACT, 0), OPS_X2(3, 8), OPS_X2(3, 8));)             \
    ROW(quotient_unit, ops_fine, OPS_TWO(cmha_quotient(tape, a, b, CMHA_QUOTIENT_UNIT, (cmha_real)1e-3),     \
        OPS_X2(3, 8), OPS_X2(3, 8));)                                                                        \
    ROW(mobius_reg, ops_ratio, OPS_TWO(cmha_mobius(tape, a, b, CMHA_QUOTIENT_REG, (cmha_real)1e-3),          \
        OPS_X2(3, 8), OPS_W3(4, 2, 4));)                                                                     \
    ROW(mobius_exact, ops_ratio,                                                                             \
        OPS_TWO(cmha_mobius(tape, a, b, CMHA_QUOTIENT_EXACT, 0), OPS_X2(3, 8), OPS_W3(4, 2, 4));)            \
    ROW(mobius_unit, ops_ratio, OPS_TWO(cmha_mobius(tape, a, b, CMHA_QUOTIENT_UNIT, (cmha_real)1e-3),        \
        OPS_X2(3, 8), OPS_W3(4, 2, 4));)                                                                     \
    ROW(elementwise_complex, ops_sums,                                                                       \
        OPS_TWO(cmha_elementwise_complex(tape, a, b), OPS_X2(3, 8), OPS_W2(2, 4));)                          \
    ROW(cmha, ops_scores, return ops_real_attention(tape, s, CMHA_ATTENTION_CMHA, OPS_FUSED | OPS_CAUSAL);)  \
    ROW(cmha_shared, ops_scores,                                                                             \
        return ops_real_attention(tape, s, CMHA_ATTENTION_CMHA, OPS_SHARED | OPS_PADDED | OPS_DROPPED);)     \
    ROW(cmha_fixed, ops_scores,                                                                              \
        return ops_real_attention(tape, s, CMHA_ATTENTION_CMHA, OPS_FIXED | OPS_GROUPED | OPS_CAUSAL);)      \
    ROW(cmha_long, ops_scores,                                                                               \
        return ops_real_attention(tape, s, CMHA_ATTENTION_CMHA, OPS_FUSED | OPS_CAUSAL | OPS_LONG);)         \
    ROW(rope, ops_scores,                                                                                    \
        return ops_real_attention(tape, s, CMHA_ATTENTION_ROPE, OPS_FUSED | OPS_CAUSAL | OPS_WINDOW);)       \
    ROW(pope, ops_slope,                                                                                     \
        return ops_real_attention(tape, s, CMHA_ATTENTION_POPE, OPS_FUSED | OPS_CAUSAL | OPS_WINDOW);)       \
    ROW(pope_grouped, ops_scores,                                                                            \
        return ops_real_attention(tape, s, CMHA_ATTENTION_POPE, OPS_SHARED | OPS_GROUPED | OPS_PADDED);)     \
    ROW(ropepp, ops_scores,                                                                                  \
        return ops_real_attention(tape, s, CMHA_ATTENTION_ROPEPP, OPS_FUSED | OPS_CAUSAL | OPS_WINDOW);)     \
    ROW(ropepp_grouped, ops_scores,                                                                          \
        return ops_real_attention(tape, s, CMHA_ATTENTION_ROPEPP, OPS_GROUPED | OPS_PADDED | OPS_DROPPED);)  \
    ROW(dot, ops_scores, return ops_real_attention(tape, s, CMHA_ATTENTION_DOT, OPS_GROUPED);)               \
    ROW(dot_alibi, ops_scores,                                                                               \
        return ops_real_attention(tape, s, CMHA_ATTENTION_DOT, OPS_ALIBI | OPS_CAUSAL | OPS_FUSED);)         \
    ROW(dot_masked, ops_fine, return ops_real_attention(tape, s, CMHA_ATTENTION_DOT, OPS_MASKED);)           \
    ROW(cmha_masked, ops_fine,                                                                               \
        return ops_real_attention(tape, s, CMHA_ATTENTION_CMHA, OPS_MASKED | OPS_CAUSAL);)                   \
    ROW(cmha_one, ops_fine, return ops_real_attention(tape, s, CMHA_ATTENTION_CMHA, OPS_ONE | OPS_CAUSAL);)  \
    ROW(complex_product, ops_scores, return ops_complex_attention(tape, s, CMHA_ATTENTION_COMPLEX,           \
        CMHA_SOFTMAX_RI_PRODUCT, CMHA_NORM_MAX_NONE, OPS_COMPLEX_V | OPS_FUSED | OPS_BILINEAR);)             \
    ROW(complex_real, ops_scores, return ops_complex_attention(tape, s, CMHA_ATTENTION_COMPLEX,              \
        CMHA_SOFTMAX_REAL, CMHA_NORM_MAX_NONE, OPS_CAUSAL);)                                                 \
    ROW(complex_split, ops_scores, return ops_complex_attention(tape, s, CMHA_ATTENTION_COMPLEX,             \
        CMHA_SOFTMAX_RI_SPLIT, CMHA_NORM_MAX_NONE, OPS_COMPLEX_V | OPS_CAUSAL);)                             \
    ROW(complex_yang8, ops_scores, return ops_complex_attention(tape, s, CMHA_ATTENTION_COMPLEX,             \
        CMHA_SOFTMAX_YANG8, CMHA_NORM_MAX_NONE, OPS_COMPLEX_V | OPS_BILINEAR | OPS_PADDED);)                 \
    ROW(score, ops_scores, return ops_complex_attention(tape, s, CMHA_ATTENTION_COMPLEX, CMHA_SOFTMAX_SCORE, \
        CMHA_NORM_MAX_NONE, OPS_PADDED);)                                                                    \
    ROW(score_row, ops_scores, return ops_complex_attention(tape, s, CMHA_ATTENTION_COMPLEX,                 \
        CMHA_SOFTMAX_SCORE, CMHA_NORM_MAX_ROW, OPS_CAUSAL);)                                                 \
    ROW(score_head, ops_scores, return ops_complex_attention(tape, s, CMHA_ATTENTION_COMPLEX,                \
        CMHA_SOFTMAX_SCORE, CMHA_NORM_MAX_HEAD, OPS_PADDED);)                                                \
    ROW(score_global, ops_scores, return ops_complex_attention(tape, s, CMHA_ATTENTION_COMPLEX,              \
        CMHA_SOFTMAX_SCORE, CMHA_NORM_MAX_GLOBAL, OPS_COMPLEX_V);)                                           \
    ROW(score_masked, ops_fine, return ops_complex_attention(tape, s, CMHA_ATTENTION_COMPLEX,                \
        CMHA_SOFTMAX_SCORE, CMHA_NORM_MAX_HEAD, OPS_MASKED);)                                                \
    ROW(angular, ops_fine, return ops_complex_attention(tape, s, CMHA_ATTENTION_ANGULAR, CMHA_SOFTMAX_REAL,  \
        CMHA_NORM_MAX_NONE, OPS_COMPLEX_V | OPS_FUSED | OPS_CAUSAL);)                                        \
    ROW(angular_product, ops_fine, return ops_complex_attention(tape, s, CMHA_ATTENTION_ANGULAR,             \
        CMHA_SOFTMAX_RI_PRODUCT, CMHA_NORM_MAX_NONE, OPS_COMPLEX_V | OPS_LONG);)                             \
    ROW(angular_score, ops_steep, return ops_complex_attention(tape, s, CMHA_ATTENTION_ANGULAR,              \
        CMHA_SOFTMAX_SCORE, CMHA_NORM_MAX_NONE, OPS_CAUSAL);)                                                \
    ROW(linear_cope, ops_ratio,                                                                              \
        return ops_linear_attention(tape, s, CMHA_LINEAR_COPE, CMHA_COPE_OUTPUT_REAL, OPS_CAUSAL);)          \
    ROW(linear_cope_all, ops_ratio,                                                                          \
        return ops_linear_attention(tape, s, CMHA_LINEAR_COPE, CMHA_COPE_OUTPUT_REAL, OPS_PADDED);)          \
    ROW(linear_magnitude, ops_ratio,                                                                         \
        return ops_linear_attention(tape, s, CMHA_LINEAR_COPE, CMHA_COPE_OUTPUT_MAGNITUDE, 0);)              \
    ROW(linear_phase, ops_ratio,                                                                             \
        return ops_linear_attention(tape, s, CMHA_LINEAR_COPE, CMHA_COPE_OUTPUT_PHASE, OPS_CAUSAL);)         \
    ROW(linear_hybrid, ops_fine,                                                                             \
        return ops_linear_attention(tape, s, CMHA_LINEAR_COPE, CMHA_COPE_OUTPUT_HYBRID, OPS_MASKED);)        \
    ROW(linear_angular, ops_fine, return ops_linear_attention(tape, s, CMHA_LINEAR_ANGULAR,                  \
        CMHA_COPE_OUTPUT_REAL, OPS_CAUSAL | OPS_FUSED);)                                                     \
    ROW(linear_one, ops_fine,                                                                                \
        return ops_linear_attention(tape, s, CMHA_LINEAR_ANGULAR, CMHA_COPE_OUTPUT_REAL, OPS_ONE);)          \
    ROW(lag, ops_fine, return ops_lag_attention(tape, s, 0, 0);)                                             \
    ROW(lag_few, ops_fine, return ops_lag_attention(tape, s, 2, OPS_PADDED);)                                \
    ROW(lag_masked, ops_fine, return ops_lag_attention(tape, s, 0, OPS_MASKED);)                             \
    ROW(lag_one, ops_fine, return ops_lag_attention(tape, s, 0, OPS_ONE);)                                   \
    ROW(pcl, ops_fine, return ops_pcl(tape, s, 0, 0);)                                                       \
    ROW(pcl_adapted, ops_chain, return ops_pcl(tape, s, 1, OPS_PADDED);)                                     \
    ROW(pcl_masked, ops_fine, return ops_pcl(tape, s, 1, OPS_MASKED);)                                       \
    ROW(complex_join, ops_fine, OPS_TWO(cmha_complex_join(tape, a, b), OPS_X2(3, 4), OPS_X2(3, 4));)         \
    ROW(complex_join_real, ops_fine, return cmha_complex_join(tape, OPS_X2(3, 4), NULL);)                    \
    ROW(complex_real_part, ops_fine, return cmha_complex_part(tape, OPS_X2(3, 4), 0);)                       \
    ROW(complex_imag_part, ops_fine, return cmha_complex_part(tape, OPS_X2(3, 4), 1);)                       \
    ROW(complex_linear, ops_sums,                                                                            \
        OPS_THREE(cmha_complex_linear(tape, a, b, c), OPS_X2(3, 8), OPS_W3(2, 5, 4), OPS_W2(2, 5));)         \
    ROW(complex_lowrank, ops_sums_twice, OPS_THREE(cmha_complex_lowrank(tape, a, b, c, NULL), OPS_X2(3, 8),  \
        OPS_W3(2, 5, 2), OPS_W3(2, 4, 2));)                                                                  \
    ROW(complex_rotate, ops_fine, OPS_TWO(cmha_complex_rotate(tape, a, b), OPS_X2(3, 8), OPS_X2(3, 4));)     \
    ROW(norm_cln, ops_fine, OPS_THREE(cmha_complex_norm(tape, a, CMHA_COMPLEX_NORM_CLN, b, c,                \
        (cmha_real)1e-5), OPS_X2(3, 8), OPS_W2(2, 4), OPS_W2(2, 4));)                                        \
    ROW(norm_crms, ops_fine, OPS_TWO(cmha_complex_norm(tape, a, CMHA_COMPLEX_NORM_CRMS, b, NULL,             \
        (cmha_real)1e-5), OPS_X2(3, 8), OPS_W1(4));)                                                         \
    ROW(norm_split, ops_fine, OPS_THREE(cmha_complex_norm(tape, a, CMHA_COMPLEX_NORM_SPLIT, b, c,            \
        (cmha_real)1e-5), OPS_X2(3, 8), OPS_W2(2, 4), OPS_W2(2, 4));)                                        \
    ROW(norm_whiten, ops_singular, OPS_THREE(cmha_complex_norm(tape, a, CMHA_COMPLEX_NORM_WHITEN, b, c,      \
        (cmha_real)1e-5), OPS_X2(3, 8), OPS_W2(3, 4), OPS_W2(2, 4));)                                        \
    ROW(norm_whiten_eps0, ops_singular,                                                                      \
        return cmha_complex_norm(tape, OPS_X2(3, 8), CMHA_COMPLEX_NORM_WHITEN, NULL, NULL, 0);)              \
    ROW(norm_cln_eps0, ops_fine,                                                                             \
        return cmha_complex_norm(tape, OPS_X2(3, 2), CMHA_COMPLEX_NORM_CLN, NULL, NULL, 0);)                 \
    ROW(phasor, ops_fine, return cmha_phasor(tape, OPS_X2(3, 8), (cmha_real)1e-6);)                          \
    ROW(phasor_eps0, ops_fine, return cmha_phasor(tape, OPS_X2(3, 8), 0);)                                   \
    ROW(multifreq, ops_fine, OPS_TWO(cmha_multifreq(tape, a, b, 3, 7), OPS_W2(2, 4), OPS_W2(2, 4));)         \
    ROW(add_rows, ops_fine, OPS_TWO(cmha_add_rows(tape, a, b), OPS_X3(2, 3, 4), OPS_X2(3, 4));)              \
    ROW(phase_reg, ops_fine,                                                                                 \
        return cmha_phase_reg(tape, OPS_X3(2, 5, 8), ops_padded, (cmha_real)0.1, (cmha_real)1e-6);)          \
    ROW(phase_reg_none, ops_fine,                                                                            \
        return cmha_phase_reg(tape, OPS_X3(2, 5, 8), ops_none, (cmha_real)0.1, (cmha_real)1e-6);)            \
    ROW(mag_reg, ops_product, return cmha_mag_reg(tape, OPS_X3(2, 5, 8), NULL, (cmha_real)0.1);)             \
    ROW(gather, ops_fine, return cmha_gather(tape, OPS_X2(3, 4), ops_rows, 3);)                              \
    ROW(mean_tokens, ops_fine, return cmha_mean_tokens(tape, OPS_X3(2, 5, 4), ops_padded);)                  \
    ROW(mean_of_none, ops_fine, return cmha_mean_tokens(tape, OPS_X3(2, 5, 4), ops_none);)                   \
    ROW(complex_residual, ops_fine,                                                                          \
        OPS_THREE(cmha_complex_residual(tape, a, b, c, NULL), OPS_X2(3, 8), OPS_X2(3, 8), OPS_W1(1));)       \
    ROW(residual_free, ops_sums,                                                                             \
        OPS_THREE(cmha_complex_residual(tape, a, b, c, c), OPS_X2(3, 8), OPS_X2(3, 8), OPS_W1(1));)          \
    ROW(router, ops_sums, OPS_THREE(cmha_router(tape, a, b, c), OPS_X2(5, 8), OPS_W3(2, 3, 4), OPS_W1(3));)  \
    ROW(experts, ops_sums_twice, return ops_experts(tape, s, 2);)                                            \
    ROW(experts_one, ops_sums_twice, return ops_experts(tape, s, 1);)                                        \
    ROW(balance, ops_fine, return cmha_balance(tape, OPS_X2(10, 3), 2, ops_padded);)                         \
    ROW(balance_none, ops_fine, return cmha_balance(tape, OPS_X2(10, 3), 1, ops_none);)                      \
    ROW(reflect, ops_fine, OPS_THREE(cmha_reflect(tape, a, b, c, 1, CMHA_FUSION_CONVEX, NULL),               \
        OPS_X2(10, 8), OPS_X2(10, 8), OPS_X2(10, 4));)                                                       \
    ROW(reflect_some, ops_fine, OPS_THREE(cmha_reflect(tape, a, b, c, 1, CMHA_FUSION_ADDITIVE, ops_padded),  \
        OPS_X2(10, 8), OPS_X2(10, 8), OPS_X2(10, 4));)                                                       \
    ROW(retrieve, ops_fine, return ops_retrieve(tape, s, 3);)                                                \
    ROW(retrieve_nothing, ops_fine, return ops_retrieve(tape, s, 0);)                                        \
    ROW(cross_entropy, ops_fine, return cmha_cross_entropy(tape, OPS_X3(2, 5, 4), ops_ids, 3, NULL);)        \
    ROW(cross_entropy_weights, ops_fine,                                                                     \
        return cmha_cross_entropy(tape, OPS_X3(2, 5, 4), ops_ids, -1, ops_weights);)                         \
    ROW(cross_entropy_one, ops_fine, return cmha_cross_entropy(tape, OPS_X2(1, 1), ops_ids, -1, NULL);)      \
    ROW(linear_cross_entropy, ops_logits, OPS_THREE(cmha_linear_cross_entropy(tape, a, b, c, ops_ids, 3,     \
        NULL), OPS_X3(2, 5, 8), OPS_W2(4, 8), OPS_W1(4));)                                                   \
    ROW(linear_cross_entropy_weights, ops_logits, OPS_TWO(cmha_linear_cross_entropy(tape, a, b, NULL,        \
        ops_ids, -1, ops_weights), OPS_X2(10, 8), OPS_W2(4, 8));)                                            \
    ROW(squared_error, ops_product, return cmha_squared_error(tape, OPS_X2(2, 4), ops_targets);)             \
    ROW(pooled, ops_logits, OPS_THREE(ops_pooled(tape, a, b, c), OPS_X3(2, 3, 4), OPS_W2(4, 4), OPS_W1(4));) \
    ROW(values, ops_logits, return ops_values(tape, OPS_X3(2, 3, 4), OPS_W2(6, 4), OPS_W1(6));)

typedef cmha_tensor *(*ops_build)(cmha_tape *tape, ops_inputs *s);

typedef struct ops_row {
    const char *name;
    const ops_limits *limits;
    ops_build build;
} ops_row;

#define OPS_FUNCTION(name, limits, ...) \
    static cmha_tensor *ops_op_##name(cmha_tape *tape, ops_inputs *s) { __VA_ARGS__ }
OPS_TABLE(OPS_FUNCTION)
#define OPS_ROW(name, limits, ...) {#name, &limits, ops_op_##name},
static const ops_row ops_all[] = {OPS_TABLE(OPS_ROW)};
enum { OPS_COUNT = sizeof ops_all / sizeof *ops_all };

/* Inputs, the operation, and a loss that depends on all of its result with
   random weights; NULL after a failure. */
static inline cmha_tensor *ops_loss(const ops_row *row, cmha_tape *tape, ops_inputs *s,
                                    cmha_tensor **result) {
    cmha_tensor *y, *weights;
    size_t i;
    s->n = 0;
    y = *result = row->build(tape, s);
    weights = y ? cmha_tensor_new(tape, y->rank, y->shape, 0) : NULL;
    for (i = 0; weights && i < weights->size; i++) weights->data[i] = (cmha_real)check_random();
    return cmha_sum(tape, cmha_mul(tape, y, weights));
}

#endif
