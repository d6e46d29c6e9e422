/* Gradients of every operation on a tape. The loss is <cotangent, output> with a fixed random
   cotangent, formed by an operation of the test's own (cmha_tape_push), so that no check leans on
   another operation of the library. */
#ifndef CMHA_DOUBLE
#define CMHA_DOUBLE
#endif
#include "grad.h"

enum { MAX_IN = 6 };

typedef struct trial {
    const char *name;
    cmha_tape tape;
    cmha_real *x[MAX_IN], *dx[MAX_IN], *cot;
    size_t shape[MAX_IN][CMHA_MAX_RANK], n[MAX_IN], n_out;
    int rank[MAX_IN], n_in, option;
    double number;
    cmha_tensor *(*build)(struct trial *t, cmha_tensor **in);
} trial;

static cmha_context context;

/* ----------------------------------- the operation that makes a loss ------------------------------------ */

static cmha_status dot_backward(cmha_tape *tape, cmha_record *record) {
    const cmha_real *cot = (const cmha_real *)record->user;
    cmha_real *g = cmha_tape_grad(tape, record->in[0]);
    size_t i;
    if (!g) return cmha_tape_status(tape);
    for (i = 0; i < record->in[0]->size; i++) g[i] += record->out->grad[0] * cot[i];
    return CMHA_OK;
}

static cmha_tensor *dot_op(cmha_tape *tape, cmha_tensor *x, cmha_real *cot) {
    size_t one = 1;
    cmha_tensor *out;
    if (!x || !(out = cmha_tensor_new(tape, 1, &one, 0))) return NULL;
    out->data[0] = (cmha_real)grad_dot(x->data, cot, x->size);
    return cmha_tape_push(tape, "dot", out, &x, 1, dot_backward, cot);
}

static cmha_tensor *trial_forward(trial *t) {
    cmha_tensor *in[MAX_IN] = {0};
    int i;
    cmha_tape_reset(&t->tape);
    t->tape.key = 77, t->tape.draws = 0; /* the same dropout masks every time */
    for (i = 0; i < t->n_in; i++)
        in[i] = cmha_tensor_wrap(&t->tape, t->rank[i], t->shape[i], t->x[i], t->dx[i]);
    return t->build(t, in);
}

static double trial_loss(void *user) {
    trial *t = (trial *)user;
    cmha_tensor *y = trial_forward(t);
    return y ? grad_dot(y->data, t->cot, y->size) : NAN;
}

static void trial_open(trial *t) {
    int i, j;
    cmha_tensor *y;
    CHECK_OK(cmha_tape_init(&t->tape, &context, 1));
    for (i = 0; i < t->n_in; i++) {
        for (t->n[i] = 1, j = 0; j < t->rank[i]; j++) t->n[i] *= t->shape[i][j];
        t->x[i] = check_array(t->n[i], 1.2), t->dx[i] = check_zeros(t->n[i]);
    }
    y = trial_forward(t);
    CHECK_THAT(y != NULL, "%s: %s", t->name, cmha_error(&context));
    t->n_out = y ? y->size : 0;
    t->cot = check_array(t->n_out, 1);
}

static void trial_close(trial *t) {
    int i;
    for (i = 0; i < t->n_in; i++) free(t->x[i]), free(t->dx[i]);
    free(t->cot);
    cmha_tape_close(&t->tape);
}

/* A backward pass with a seed of 2 and another of -1 must add up to one of 1:
   seeds scale, and gradients accumulate */
static int trial_backward(trial *t) {
    static const cmha_real seeds[2] = {2, -1};
    int i;
    for (i = 0; i < 2; i++) {
        cmha_tensor *loss = dot_op(&t->tape, trial_forward(t), t->cot);
        if (!CHECK_THAT(loss && !cmha_tape_backward(&t->tape, loss, seeds[i]), "%s: %s", t->name,
                        cmha_error(&context)))
            return 0;
    }
    return 1;
}

static void trial_check(trial *t) {
    static const char *const names[MAX_IN] = {"in0", "in1", "in2", "in3", "in4", "in5"};
    grad_input in[MAX_IN];
    char label[96];
    int i;
    snprintf(label, sizeof label, "%s (%d, %g) %zu x %zu", t->name, t->option, t->number, t->shape[0][1],
             t->shape[0][2]);
    if (!trial_backward(t)) return;
    for (i = 0; i < t->n_in; i++)
        in[i].name = names[i], in[i].x = t->x[i], in[i].grad = t->dx[i], in[i].n = t->n[i];
    grad_check(label, trial_loss, t, in, t->n_in, 24);
}

static void trial_run(trial t) {
    trial_open(&t);
    if (t.n_out) trial_check(&t);
    trial_close(&t);
}

/* -------------------------------------------- the operations -------------------------------------------- */

static cmha_tensor *build_add(trial *t, cmha_tensor **in) { return cmha_add(&t->tape, in[0], in[1]); }
static cmha_tensor *build_double(trial *t, cmha_tensor **in) {
    return cmha_add(&t->tape, in[0], in[0]);
} /* one tensor, used twice */
static cmha_tensor *build_square(trial *t, cmha_tensor **in) { return cmha_mul(&t->tape, in[0], in[0]); }
static cmha_tensor *build_mul(trial *t, cmha_tensor **in) { return cmha_mul(&t->tape, in[0], in[1]); }
static cmha_tensor *build_softcap(trial *t, cmha_tensor **in) { return cmha_softcap(&t->tape, in[0], 0.6); }
static cmha_tensor *build_exponential(trial *t, cmha_tensor **in) {
    return cmha_exponential(&t->tape, in[0]);
}
static cmha_tensor *build_transpose(trial *t, cmha_tensor **in) {
    return cmha_transpose(&t->tape, in[0], t->option / 4, t->option % 4);
}
static unsigned char seen_keys[2 * 6] = {1, 0, 1, 1, 0, 1, 0, 0, 1, 1, 1, 1};
/* option: bit 0: causal, bit 1: a mask */
static cmha_tensor *build_softmax(trial *t, cmha_tensor **in) {
    return cmha_softmax_rows(&t->tape, in[0], t->option & 1, t->option & 2 ? seen_keys : NULL);
}
static cmha_tensor *build_scale(trial *t, cmha_tensor **in) { return cmha_scale(&t->tape, in[0], -1.7); }
static cmha_tensor *build_sum(trial *t, cmha_tensor **in) { return cmha_sum(&t->tape, in[0]); }
static cmha_tensor *build_matmul(trial *t, cmha_tensor **in) {
    return cmha_matmul(&t->tape, in[0], in[1], t->option);
}
static cmha_tensor *build_concat(trial *t, cmha_tensor **in) {
    return cmha_concat(&t->tape, in[0], in[1], t->option);
}
static cmha_tensor *build_slice(trial *t, cmha_tensor **in) {
    return cmha_slice(&t->tape, in[0], t->option, 1, 3);
}
static cmha_tensor *build_linear(trial *t, cmha_tensor **in) {
    return cmha_linear(&t->tape, in[0], in[1], t->n_in > 2 ? in[2] : NULL);
}
static cmha_tensor *build_layernorm(trial *t, cmha_tensor **in) {
    return cmha_layernorm(&t->tape, in[0], in[1], in[2], 1e-3);
}
static cmha_tensor *build_rmsnorm(trial *t, cmha_tensor **in) {
    return cmha_rmsnorm(&t->tape, in[0], in[1], 1e-3);
}
static cmha_tensor *build_activate(trial *t, cmha_tensor **in) {
    return cmha_activate(&t->tape, in[0], (cmha_activation)t->option);
}
static cmha_tensor *build_dropout(trial *t, cmha_tensor **in) { return cmha_dropout(&t->tape, in[0], 0.4); }

/* used on both sides, so that two consumers share the data */
static cmha_tensor *build_reshape(trial *t, cmha_tensor **in) {
    size_t shape[2] = {8, 3};
    cmha_tensor *r = cmha_reshape(&t->tape, in[0], 2, shape);
    return cmha_mul(&t->tape, r, r);
}

/* x + gelu(x W^T + b): a fan-out, as in every block */
static cmha_tensor *build_residual(trial *t, cmha_tensor **in) {
    cmha_tensor *h =
        cmha_activate(&t->tape, cmha_linear(&t->tape, in[0], in[1], in[2]), CMHA_ACTIVATION_GELU_ERF);
    return cmha_add(&t->tape, in[0], h);
}

/* option bit 0: bias, bit 1: residual; number: dropout; the activation in bits 2-3, less one */
static cmha_tensor *build_sublayer(trial *t, cmha_tensor **in) {
    cmha_tensor *bias = t->option & 1 ? in[2] : NULL,
                *residual = t->option & 2 ? in[t->option & 1 ? 3 : 2] : NULL;
    return cmha_sublayer(&t->tape, in[0], (t->option >> 2) - 1, in[1], bias, residual, 0.7, t->number);
}

static int32_t ids[6] = {4, 1, 4, 0, 4, 2}, targets[6] = {0, 3, -1, 4, 4, -1};
static cmha_tensor *build_embedding(trial *t, cmha_tensor **in) {
    return cmha_embedding(&t->tape, in[0], ids, 2, 3);
}
static cmha_tensor *build_entropy(trial *t, cmha_tensor **in) {
    return cmha_cross_entropy(&t->tape, in[0], targets, -1, NULL);
}

static void check_arithmetic(void) {
    int i;
    trial_run((trial){
        .name = "add", .n_in = 2, .rank = {3, 3}, .shape = {{2, 3, 4}, {2, 3, 4}}, .build = build_add});
    trial_run(
        (trial){.name = "add to itself", .n_in = 1, .rank = {1}, .shape = {{5}}, .build = build_double});
    trial_run((trial){.name = "square", .n_in = 1, .rank = {2}, .shape = {{5, 3}}, .build = build_square});
    trial_run((trial){
        .name = "mul", .n_in = 2, .rank = {4, 4}, .shape = {{2, 3, 2, 2}, {2, 3, 2, 2}}, .build = build_mul});
    static const struct {
        int rank;
        size_t shape[CMHA_MAX_RANK];
    } repeated[] = {{1, {3}}, {1, {1}}, {2, {4, 3}}, {2, {4, 1}}, {3, {5, 1, 3}}, {4, {2, 1, 4, 1}}};
    for (i = 0; i < 6; i++) {
        trial m = {.name = "mul, repeated",
                   .n_in = 2,
                   .rank = {4, repeated[i].rank},
                   .shape = {{2, 5, 4, 3}},
                   .build = build_mul};
        memcpy(m.shape[1], repeated[i].shape, sizeof repeated[i].shape);
        trial_run(m);
    }
    trial_run((trial){
        .name = "exponential", .n_in = 1, .rank = {2}, .shape = {{5, 3}}, .build = build_exponential});
    trial_run((trial){
        .name = "softcap", .n_in = 1, .rank = {2}, .shape = {{150, 3}}, .build = build_softcap});
    for (i = 0; i < 12; i++)
        trial_run((trial){.name = "transpose", .n_in = 1, .rank = {4}, .shape = {{2, 3, 4, 5}}, .option = i,
                          .build = build_transpose});
    for (i = 0; i < 4; i++) {
        trial_run((trial){.name = "softmax", .n_in = 1, .rank = {3}, .shape = {{2, 4, 6}}, .option = i,
                          .build = build_softmax});
        trial_run((trial){.name = "softmax", .n_in = 1, .rank = {4}, .shape = {{2, 3, 7, 6}}, .option = i,
                          .build = build_softmax});
        trial_run((trial){.name = "softmax", .n_in = 1, .rank = {2}, .shape = {{1, 6}}, .option = i,
                          .build = build_softmax});
    }
    trial_run((trial){.name = "scale", .n_in = 1, .rank = {1}, .shape = {{1}}, .build = build_scale});
    trial_run((trial){.name = "sum", .n_in = 1, .rank = {3}, .shape = {{3, 2, 5}}, .build = build_sum});
    trial_run(
        (trial){.name = "reshape", .n_in = 1, .rank = {3}, .shape = {{2, 3, 4}}, .build = build_reshape});
    for (i = 0; i < 3; i++) {
        trial c = {.name = "concat",
                   .n_in = 2,
                   .rank = {3, 3}, .shape = {{2, 3, 4}, {2, 3, 4}}, .option = i,
                   .build = build_concat};
        c.shape[1][i] = 5;
        trial_run(c);
        trial_run((trial){.name = "slice", .n_in = 1, .rank = {3}, .shape = {{4, 3, 5}}, .option = i,
                          .build = build_slice});
    }
    for (i = 0; i < 2; i++) {
        trial m = {.name = "matmul, shared b",
                   .n_in = 2,
                   .rank = {3, 2},
                   .shape = {{2, 3, 4}, {4, 5}},
                   .option = i,
                   .build = build_matmul};
        trial b = {.name = "matmul, batch",
                   .n_in = 2,
                   .rank = {4, 4},
                   .shape = {{2, 3, 2, 4}, {2, 3, 4, 5}},
                   .option = i,
                   .build = build_matmul};
        if (i) m.shape[1][0] = 5, m.shape[1][1] = 4, b.shape[1][2] = 5, b.shape[1][3] = 4;
        trial_run(m), trial_run(b);
    }
}

/* Attention made of a product, a softmax of rows and a product is cmha_attention, masked rows included; keys
   are transposed by the one operation or the other. */
static void check_composed(int causal, const unsigned char *mask, size_t n_q) {
    size_t q_shape[3] = {2, n_q, 4}, k_shape[3] = {2, 6, 4}, row[1] = {4};
    cmha_real *q = check_array(2 * n_q * 4, 2), *k = check_array(48, 2), *v = check_array(48, 1), scale[4];
    cmha_attention_args a;
    cmha_tape tape;
    double worst = 0;
    for (int i = 0; i < 4; i++) scale[i] = 0.6;
    memset(&a, 0, sizeof a);
    a.heads = a.kv_heads = 1, a.scale = 0.6, a.causal = causal, a.kind = CMHA_ATTENTION_DOT;
    a.key_mask = mask;
    CHECK_OK(cmha_tape_init(&tape, &context, 0));
    cmha_tensor *Q = cmha_tensor_wrap(&tape, 3, q_shape, q, NULL);
    cmha_tensor *K = cmha_tensor_wrap(&tape, 3, k_shape, k, NULL);
    cmha_tensor *V = cmha_tensor_wrap(&tape, 3, k_shape, v, NULL);
    cmha_tensor *Qs = cmha_mul(&tape, Q, cmha_tensor_wrap(&tape, 1, row, scale, NULL));
    cmha_tensor *s = cmha_matmul(&tape, Qs, cmha_transpose(&tape, K, 1, 2), 0);
    cmha_tensor *y = cmha_matmul(&tape, cmha_softmax_rows(&tape, s, causal, mask), V, 0);
    cmha_tensor *whole = cmha_attention(&tape, &a, Q, K, V, NULL);
    if (CHECK_THAT(y && whole && y->size == whole->size, "%s", cmha_error(&context)))
        for (size_t i = 0; i < y->size; i++)
            worst = fmax(worst, fabs((double)y->data[i] - (double)whole->data[i]));
    CHECK_THAT(worst <= 1e-14, "causal %d, %zu queries: %g apart", causal, n_q, worst);
    cmha_tape_close(&tape);
    free(q), free(k), free(v);
}

static void check_softmax(void) {
    static const unsigned char none[12] = {1, 1, 0, 0, 0, 0};
    static const size_t queries[] = {1, 4, 6, 9};
    for (int i = 0; i < 4; i++)
        for (int causal = 0; causal < 2; causal++) {
            check_composed(causal, NULL, queries[i]);
            check_composed(causal, seen_keys, queries[i]);
            check_composed(causal, none, queries[i]);
        }
    size_t shape[2] = {3, 4};
    cmha_real x[12] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY, 1e308, -1e308, 1e308, 0, 1, NAN, 2, 3};
    cmha_tape tape;
    CHECK_OK(cmha_tape_init(&tape, &context, 0));
    cmha_tensor *y = cmha_softmax_rows(&tape, cmha_tensor_wrap(&tape, 2, shape, x, NULL), 0, NULL);
    if (CHECK(y)) {
        CHECK(y->data[0] == 0 && y->data[3] == 0); /* nothing but -infinity */
        CHECK(y->data[4] == 0.5 && y->data[5] == 0 && y->data[6] == 0.5);
        CHECK(y->data[8] != y->data[8]); /* NaN stays */
    }
    cmha_tape_close(&tape);
}

static void check_layers(void) {
    int i;
    trial_run((trial){.name = "linear", .n_in = 3, .rank = {3, 2, 1}, .shape = {{2, 3, 5}, {4, 5}, {4}},
                      .build = build_linear});
    trial_run((trial){.name = "linear without bias",
                      .n_in = 2,
                      .rank = {2, 2}, .shape = {{1, 33}, {17, 33}}, .build = build_linear});
    trial_run((trial){.name = "linear of many rows", .n_in = 3, .rank = {3, 2, 1},
                      .shape = {{2, 150, 7}, {9, 7}, {9}}, .build = build_linear});
    trial_run((trial){.name = "layernorm", .n_in = 3, .rank = {3, 1, 1}, .shape = {{2, 70, 7}, {7}, {7}},
                      .build = build_layernorm});
    trial_run((
        trial){.name = "rmsnorm", .n_in = 2, .rank = {2, 1}, .shape = {{5, 9}, {9}}, .build = build_rmsnorm});
    for (i = 0; i < 3; i++)
        trial_run((trial){.name = "activate", .n_in = 1, .rank = {3}, .shape = {{2, 3, 10}}, .option = i,
                          .build = build_activate});
    trial_run((trial){.name = "dropout", .n_in = 1, .rank = {2}, .shape = {{9, 11}}, .build = build_dropout});
    trial_run((trial){.name = "residual block", .n_in = 3, .rank = {2, 2, 1}, .shape = {{6, 5}, {5, 5}, {5}},
                      .build = build_residual});
    trial_run(
        (trial){.name = "embedding", .n_in = 1, .rank = {2}, .shape = {{5, 3}}, .build = build_embedding});
    trial_run((trial){
        .name = "cross entropy", .n_in = 1, .rank = {3}, .shape = {{2, 3, 5}}, .build = build_entropy});
}

static void check_sublayers(void) {
    int act, flags;
    for (act = -1; act < 3; act++)
        for (flags = 0; flags < 8; flags++) {
            trial t = {.name = "sublayer",
                       .n_in = 2,
                       .rank = {3, 2},
                       .shape = {{2, 35, 6}, {4, 6}},
                       .build = build_sublayer};
            if (act == CMHA_ACTIVATION_SWIGLU) t.shape[1][1] = 3;
            t.option = (flags & 3) | (act + 1) << 2;
            t.number = flags & 4 ? 0.3 : 0;
            if (flags & 1) t.rank[t.n_in] = 1, t.shape[t.n_in++][0] = 4;
            if (flags & 2)
                t.rank[t.n_in] = 3, t.shape[t.n_in][0] = 2, t.shape[t.n_in][1] = 35, t.shape[t.n_in++][2] = 4;
            trial_run(t);
        }
    for (flags = 0; flags < 2; flags++) /* weights that are packed for all rows: whole, and in pieces */
        trial_run((trial){.name = "wide sublayer",
                          .n_in = 2,
                          .rank = {3, 2},
                          .shape = {{2, 35, flags ? 1000 : 140}, {37, flags ? 1000 : 140}},
                          .build = build_sublayer});
}

/* ----------------------------------------- attention on a tape ------------------------------------------ */

typedef struct attention_case {
    cmha_attention_kind kind;
    cmha_layout layout;
    cmha_share share;
    size_t H, Hkv, Nq, Nk, d, window;
    int causal, mask, alibi, fused, frozen; /* frozen: k, v and b are constants */
    double dropout;
} attention_case;

static attention_case at;
static unsigned char key_mask[2 * 200];
static cmha_real slopes[8];

static void attention_args(trial *t, cmha_attention_args *a) {
    double omega[16];
    memset(a, 0, sizeof *a);
    a->heads = at.H, a->kv_heads = at.Hkv, a->scale = 0.6, a->causal = at.causal, a->window = at.window;
    a->kind = at.kind, a->layout = at.layout, a->share = at.share, a->dropout = at.dropout;
    a->key_mask = at.mask ? key_mask : NULL, a->alibi = at.alibi ? slopes : NULL;
    cmha_frequencies(CMHA_FREQUENCY_ROPE, 100, at.d / 2, NULL, omega);
    if (at.kind != CMHA_ATTENTION_DOT)
        a->rotation =
            cmha_rotation(&t->tape, omega, 1, at.d / 2, at.Nk, 3 + (ptrdiff_t)at.Nq - (ptrdiff_t)at.Nk);
}

static cmha_tensor *build_attention(trial *t, cmha_tensor **in) {
    cmha_attention_args a;
    int n = at.fused ? 1 : 3;
    attention_args(t, &a);
    return cmha_attention(&t->tape, &a, in[0], at.fused ? NULL : in[1], at.fused ? NULL : in[2],
                          t->n_in > n ? in + n : NULL);
}

static void three(trial *t, size_t a, size_t b, size_t c) {
    t->rank[t->n_in] = 3, t->shape[t->n_in][0] = a, t->shape[t->n_in][1] = b, t->shape[t->n_in++][2] = c;
}

static void adaptive(trial *t) {
    size_t rows = at.share == CMHA_SHARE_SHARED ? 1 : at.H;
    int i;
    if (at.kind != CMHA_ATTENTION_CMHA || at.share == CMHA_SHARE_FIXED) return;
    for (i = 0; i < 2; i++)
        t->rank[t->n_in] = 2, t->shape[t->n_in][0] = rows, t->shape[t->n_in++][1] = at.d / 2;
}

static void run_attention(void) {
    trial t = {.name = at.fused ? "attention, fused" : "attention", .build = build_attention};
    t.option = (int)at.kind * 100 + (int)at.share * 10 + (int)at.layout;
    if (at.fused) three(&t, 2, at.Nq, (at.H + 2 * at.Hkv) * at.d);
    else
        three(&t, 2, at.Nq, at.H * at.d), three(&t, 2, at.Nk, at.Hkv * at.d),
            three(&t, 2, at.Nk, at.Hkv * (at.d + 1));
    adaptive(&t);
    trial_run(t);
}

static void check_attention(void) {
    static const attention_case cases[] = {
        {CMHA_ATTENTION_CMHA, CMHA_LAYOUT_INTERLEAVED, CMHA_SHARE_PER_HEAD,
         4, 2, 7, 7, 4, 0, 1, 0, 0, 1, 0, 0},
        {CMHA_ATTENTION_CMHA, CMHA_LAYOUT_HALF, CMHA_SHARE_SHARED, 2, 2, 5, 9, 6, 0, 1, 1, 0, 0, 0, 0.3},
        {CMHA_ATTENTION_CMHA, CMHA_LAYOUT_INTERLEAVED, CMHA_SHARE_FIXED,
         2, 1, 66, 66, 4, 9, 1, 0, 0, 1, 0, 0},
        {CMHA_ATTENTION_CMHA, CMHA_LAYOUT_HALF, CMHA_SHARE_PER_HEAD, 2, 1, 66, 66, 4, 0, 1, 0, 1, 1, 0, 0.2},
        {CMHA_ATTENTION_ROPE, CMHA_LAYOUT_HALF, CMHA_SHARE_PER_HEAD, 4, 1, 7, 7, 4, 3, 1, 1, 0, 1, 0, 0},
        {CMHA_ATTENTION_ROPE, CMHA_LAYOUT_INTERLEAVED, CMHA_SHARE_PER_HEAD,
         2, 2, 1, 8, 4, 0, 1, 0, 0, 0, 0, 0},
        {CMHA_ATTENTION_DOT, CMHA_LAYOUT_INTERLEAVED, CMHA_SHARE_PER_HEAD,
         3, 1, 6, 6, 5, 0, 0, 1, 1, 1, 0, 0},
        {CMHA_ATTENTION_DOT, CMHA_LAYOUT_INTERLEAVED, CMHA_SHARE_PER_HEAD,
         2, 2, 65, 67, 3, 0, 0, 0, 0, 0, 0, 0.1},
    };
    size_t i;
    cmha_alibi_slopes(3, slopes);
    for (i = 0; i < sizeof cases / sizeof *cases; i++) at = cases[i], run_attention();
}

/* Constant keys, values and bias: the queries' gradient must not change, nor the call fail */
static cmha_tensor *build_frozen(trial *t, cmha_tensor **in) {
    static cmha_real k[2 * 5 * 4], v[2 * 5 * 4], delta[2] = {0.7, 1.2}, b[2] = {0.1, -0.4};
    static const size_t shape[3] = {2, 5, 4}, two[2] = {1, 2};
    cmha_attention_args a;
    cmha_tensor *turns[2];
    uint64_t seed = check_seed;
    check_seed = 5;
    check_fill(k, 40, 1), check_fill(v, 40, 1);
    check_seed = seed;
    attention_args(t, &a);
    turns[0] = cmha_tensor_wrap(&t->tape, 2, two, delta, NULL);
    turns[1] = cmha_tensor_wrap(&t->tape, 2, two, b, NULL);
    return cmha_attention(&t->tape, &a, in[0],
                          t->option == 1 ? in[1] : cmha_tensor_wrap(&t->tape, 3, shape, k, NULL),
                          t->option == 2 ? in[1] : cmha_tensor_wrap(&t->tape, 3, shape, v, NULL),
                          turns);
}

static void check_frozen(void) {
    int i;
    at = (attention_case){
        CMHA_ATTENTION_CMHA, CMHA_LAYOUT_INTERLEAVED, CMHA_SHARE_SHARED, 2, 1, 5, 5, 4, 0, 1, 0, 0, 0, 1, 0};
    for (i = 0; i < 3; i++) {
        trial t = {.name = "attention with constants", .option = i, .build = build_frozen};
        three(&t, 2, 5, 8);
        if (i) three(&t, 2, 5, 4);
        trial_run(t);
    }
}

/* ------------------------------------------------- PCL -------------------------------------------------- */

static cmha_tensor *build_pcl(trial *t, cmha_tensor **in) {
    cmha_attention_args a;
    cmha_pcl_options o;
    o.tau = 0.4, o.mask_rate = t->number, o.adapted = t->option;
    attention_args(t, &a);
    return cmha_pcl(&t->tape, &a, in[0], t->n_in > 2 ? in[2] : NULL, t->n_in > 2 ? in[3] : NULL, in[1], &o);
}

static void run_pcl(int adapted, double mask_rate, cmha_attention_kind kind, cmha_share share, size_t Hkv,
                    int mask, size_t N) {
    trial t = {.name = "pcl", .build = build_pcl};
    at = (attention_case){.kind = kind,
                          .share = share,
                          .layout = CMHA_LAYOUT_HALF,
                          .H = 4,
                          .Hkv = Hkv,
                          .Nq = N,
                          .Nk = N,
                          .d = 4,
                          .causal = 1,
                          .mask = mask};
    t.option = adapted, t.number = mask_rate;
    three(&t, 2, N, (4 + 2 * Hkv) * 4);
    t.rank[1] = 1, t.shape[1][0] = 2, t.n_in = 2;
    if (adapted) adaptive(&t); /* of the raw phases delta and b change nothing */
    trial_run(t);
}

static void check_pcl(void) {
    size_t i;
    for (i = 0; i < sizeof key_mask; i++) key_mask[i] = (unsigned char)(i % 7 != 3);
    run_pcl(0, 0, CMHA_ATTENTION_CMHA, CMHA_SHARE_FIXED, 4, 0, 5);
    run_pcl(0, 0.5, CMHA_ATTENTION_CMHA, CMHA_SHARE_FIXED, 2, 1, 6);
    run_pcl(1, 0.4, CMHA_ATTENTION_CMHA, CMHA_SHARE_PER_HEAD, 4, 0, 5); /* unmasked, b would cancel */
    run_pcl(1, 0.5, CMHA_ATTENTION_CMHA, CMHA_SHARE_PER_HEAD, 2, 1, 6);
    run_pcl(1, 0.5, CMHA_ATTENTION_CMHA, CMHA_SHARE_SHARED, 1, 0, 67);
    run_pcl(1, 0.3, CMHA_ATTENTION_CMHA, CMHA_SHARE_FIXED, 2, 0, 5);
}

/* ------------------------------------------- the tape itself -------------------------------------------- */

static cmha_status failing_backward(cmha_tape *tape, cmha_record *record) {
    (void)tape, (void)record;
    return CMHA_ERR_STATE;
}

/* One that says why */
static cmha_status explaining_backward(cmha_tape *tape, cmha_record *record) {
    (void)record;
    cmha_tape_fail(tape, CMHA_ERR_TOKEN, "mine: its own words");
    return CMHA_ERR_STATE;
}

static void check_failures(void) {
    cmha_tape tape;
    size_t ab[2] = {2, 3}, ba[2] = {3, 2}, one = 1;
    cmha_tensor *a, *b, *y;
    int32_t bad[1] = {9};
    CHECK_OK(cmha_tape_init(&tape, &context, 1));
    a = cmha_tensor_new(&tape, 2, ab, 1), b = cmha_tensor_new(&tape, 2, ba, 1);
    CHECK(a && b && a->size == 6 && check_largest(a->data, 6) == 0);
    CHECK(cmha_add(&tape, a, b) == NULL);
    CHECK_IS(cmha_tape_status(&tape), CMHA_ERR_SHAPE);
    CHECK(cmha_scale(&tape, cmha_add(&tape, NULL, a), 2) == NULL); /* NULL goes through */
    CHECK(cmha_embedding(&tape, b, bad, 1, 1) == NULL);
    CHECK_IS(cmha_tape_status(&tape), CMHA_ERR_SHAPE); /* the first failure stays */
    CHECK(strlen(cmha_error(&context)) > 0);
    cmha_tape_reset(&tape);
    CHECK_OK(cmha_tape_status(&tape));
    b = cmha_tensor_new(&tape, 2, ba, 1);
    CHECK(cmha_embedding(&tape, b, bad, 1, 1) == NULL);
    CHECK_IS(cmha_tape_status(&tape), CMHA_ERR_TOKEN);
    cmha_tape_reset(&tape);
    b = cmha_tensor_new(&tape, 2, ba, 1);
    bad[0] = 3;
    /* the first of three targets lies outside of two classes */
    CHECK(cmha_cross_entropy(&tape, b, bad, -1, NULL) == NULL);
    CHECK_IS(cmha_tape_status(&tape), CMHA_ERR_TOKEN);
    CHECK(cmha_tape_backward(&tape, NULL, 1) != CMHA_OK);
    cmha_tape_reset(&tape);
    a = cmha_tensor_new(&tape, 2, ab, 1);
    y = cmha_tape_push(&tape, "mine", cmha_tensor_new(&tape, 1, &one, 0), &a, 1, failing_backward, NULL);
    CHECK_IS(cmha_tape_backward(&tape, y, 1), CMHA_ERR_STATE);
    CHECK(strstr(cmha_error(&context), "backward of mine: ") != NULL); /* it gave no line, so it gets one */
    cmha_tape_reset(&tape);
    a = cmha_tensor_new(&tape, 2, ab, 1);
    y = cmha_tape_push(&tape, "mine", cmha_tensor_new(&tape, 1, &one, 0), &a, 1, explaining_backward, NULL);
    CHECK_IS(cmha_tape_backward(&tape, y, 1), CMHA_ERR_TOKEN);
    CHECK(!strcmp(cmha_error(&context), "mine: its own words"));
    cmha_tape_reset(&tape);
    CHECK(cmha_tape_fail(&tape, CMHA_ERR_SHAPE, "mine: first") == NULL);
    CHECK(cmha_tape_fail(&tape, CMHA_ERR_ARGUMENT, "mine: second") == NULL);
    CHECK_IS(cmha_tape_status(&tape), CMHA_ERR_SHAPE); /* the first failure is kept, with its line */
    CHECK(!strcmp(cmha_error(&context), "mine: first"));
    CHECK(cmha_tensor_new(&tape, 2, ab, 1) == NULL);
    cmha_tape_reset(&tape);
    /* a failure is one, whatever status was given */
    CHECK(cmha_tape_fail(&tape, CMHA_OK, "mine: no status") == NULL);
    CHECK(cmha_tape_status(&tape) != CMHA_OK);
    CHECK(cmha_tape_fail(NULL, CMHA_ERR_SHAPE, "no tape") == NULL);
    cmha_tape_reset(&tape);
    a = cmha_tensor_new(&tape, 2, ab, 1);
    CHECK(cmha_tape_backward(&tape, a, 1) != CMHA_OK); /* six elements are no loss */
    cmha_tape_close(&tape);
    cmha_tape_close(&tape);
}

/* Without recording nothing is kept, dropout is the identity, and the numbers are the same */
static void check_silent(void) {
    cmha_tape tape;
    size_t shape[2] = {3, 4};
    cmha_real x[12], w[16];
    cmha_tensor *y;
    CHECK_OK(cmha_tape_init(&tape, &context, 0));
    check_fill(x, 12, 1), check_fill(w, 16, 1);
    y = cmha_dropout(&tape, cmha_tensor_wrap(&tape, 2, shape, x, NULL), 0.5);
    CHECK(y && check_distance(y->data, x, 12) == 0);
    CHECK(tape.last == NULL);
    cmha_tape_close(&tape);
}

/* A chain of constants costs no records; a gradient kept by needs_grad = 1 is readable */
static void check_kept(void) {
    cmha_tape tape;
    size_t shape[1] = {3};
    cmha_real x[3] = {1, 2, 3}, g[3] = {0, 0, 0}, k[3] = {4, 5, 6};
    cmha_tensor *in, *mid, *constant;
    CHECK_OK(cmha_tape_init(&tape, &context, 1));
    constant = cmha_tensor_wrap(&tape, 1, shape, k, NULL);
    CHECK(cmha_scale(&tape, constant, 2) && tape.last == NULL);
    in = cmha_tensor_wrap(&tape, 1, shape, x, g);
    mid = cmha_mul(&tape, in, constant);
    CHECK(mid != NULL);
    if (mid) mid->needs_grad = 1;
    CHECK_OK(cmha_tape_backward(&tape, cmha_sum(&tape, cmha_mul(&tape, mid, mid)), 1));
    CHECK(mid && mid->grad && mid->grad[1] == 20 && g[0] == 32 && g[2] == 216);
    cmha_tape_close(&tape);
}

/* A tensor of the caller's own struct is a parameter: two passes accumulate into its gradient, and it
   outlives them. A backward may take memory of the tape. */
static cmha_status borrowing_backward(cmha_tape *tape, cmha_record *record) {
    cmha_real *g = cmha_tape_grad(tape, record->in[0]),
              *scratch = (cmha_real *)cmha_tape_alloc(tape, 3 * sizeof *scratch);
    size_t i;
    if (!g || !scratch) return cmha_tape_status(tape);
    for (i = 0; i < 3; i++) scratch[i] = 2 * record->in[0]->data[i] * record->out->grad[0];
    for (i = 0; i < 3; i++) g[i] += scratch[i];
    return CMHA_OK;
}

static void check_own_struct(void) {
    cmha_tape tape;
    cmha_tensor own, *in = &own, *out;
    cmha_real x[3] = {1, -2, 3}, g[3] = {0, 0, 0};
    size_t one = 1;
    int pass;
    memset(&own, 0, sizeof own);
    own.data = x, own.grad = g, own.shape[0] = 3, own.rank = 1, own.size = 3, own.needs_grad = 1;
    CHECK_OK(cmha_tape_init(&tape, &context, 1));
    for (pass = 0; pass < 2; pass++) {
        out = cmha_tensor_new(&tape, 1, &one, 0);
        if (CHECK(out != NULL)) out->data[0] = (cmha_real)grad_dot(x, x, 3);
        CHECK_OK(cmha_tape_backward(&tape,
                                    cmha_tape_push(&tape, "squares", out, &in, 1, borrowing_backward, NULL),
                                    1));
        cmha_tape_reset(&tape);
    }
    CHECK(own.grad == g && own.needs_grad == 1 && g[0] == 4 && g[1] == -8 && g[2] == 12);
    cmha_tape_close(&tape);
}

int main(int argc, char **argv) {
    (void)argc;
    cmha_blas_restart(argv);
    check_context(&context, 2, 1);
    check_arithmetic();
    check_softmax();
    check_layers();
    check_sublayers();
    check_failures();
    check_silent();
    check_kept();
    check_own_struct();
    check_pcl();
    check_attention();
    check_frozen();
    cmha_context_close(&context);
    return check_end();
}
