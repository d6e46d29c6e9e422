/* Rows of one's own for every program here (examples/README.md, "Own rows"):

       make own ROWS=examples/rows/my_rows.c
       build/own/train_tiny --attention re-tanh

   re-tanh is the score of examples/own_attention.c, s = scale Re A tanh|A| of a complex product A = <q, k>;
   "gated" is a whole layer, softmax(q k^T) v * sigmoid(h W^T + c); "signed" is an optimiser that steps by the
   sign of a running mean of the gradients. */
#include "cmha.h"

#include "examples/tools/own_rows.h"

static void score(const cmha_score_call *call, const cmha_real *re, const cmha_real *im, cmha_real *s) {
    cmha_real t[64];
    cmha_modulus(64, re, im, t);
    cmha_tanh(64, t, t);
    for (int j = 0; j < 64; j++) s[j] = call->args->scale * re[j] * t[j];
}

/* Re A and Im A become ds times the derivatives by them. */
static void score_back(const cmha_score_call *call, const cmha_real *ds, cmha_real *re, cmha_real *im) {
    cmha_real size[64], t[64];
    cmha_modulus(64, re, im, size);
    cmha_tanh(64, size, t);
    for (int j = 0; j < 64; j++) {
        cmha_real g = call->args->scale * ds[j], some = size[j] > 0 ? size[j] : 1;
        cmha_real along = g * re[j] * (1 - t[j] * t[j]) / some;
        re[j] = g * t[j] + along * re[j];
        im[j] = along * im[j];
    }
}

/* The layer's parameters, [rows, columns]: a spread of -1 begins as weight matrices do. */
static const cmha_score_parameter gated[] = {
    {"query", {CMHA_AXIS_MODEL, CMHA_AXIS_MODEL, 0}, 0, -1, 1},
    {"key", {CMHA_AXIS_KEYS, CMHA_AXIS_MODEL, 0}, 0, -1, 1},
    {"value", {CMHA_AXIS_KEYS, CMHA_AXIS_MODEL, 0}, 0, -1, 1},
    {"gate", {CMHA_AXIS_MODEL, CMHA_AXIS_MODEL, 0}, 0, -1, 1},
    {"gate_bias", {CMHA_AXIS_MODEL, 0, 0}, 1, 0, 0}};

static cmha_tensor *layer(const cmha_layer *at, cmha_tensor *h) {
    cmha_tape *tape = at->tape;
    cmha_tensor *const *p = at->parameters;
    cmha_tensor *q = cmha_linear(tape, h, p[0], NULL), *k = cmha_linear(tape, h, p[1], NULL);
    cmha_tensor *v = cmha_linear(tape, h, p[2], NULL);
    cmha_tensor *y = cmha_layer_attention(at, &at->args, q, k, v, NULL);
    return cmha_mul(tape, y, cmha_sigmoid(tape, cmha_linear(tape, h, p[3], p[4])));
}

/* With g = grad_scale times the gradient: m <- beta1 m + (1 - beta1) g, p -= lr (weight_decay p + sign m). */
static void update(const cmha_optimiser *optimiser, const cmha_update *u) {
    const cmha_adamw_args *a = u->args;
    (void)optimiser;
    for (size_t i = 0; i < u->n; i++) {
        double g = a->grad_scale * (double)u->g[i];
        double m = a->beta1 * (double)u->m[i] + (1 - a->beta1) * g;
        double sign = (double)((m > 0) - (m < 0));
        u->m[i] = (cmha_real)m;
        u->p[i] -= (cmha_real)(a->lr * (a->weight_decay * (double)u->p[i] + sign));
    }
}

static const cmha_score scores[] = {
    {.name = "re-tanh", .planes = 2, .rotates = 1, .forward = score, .backward = score_back},
    {.name = "gated", .parameters = gated, .n_parameters = 5, .attend = layer}};
static const cmha_optimiser optimisers[] = {{.name = "signed", .moments = 1, .update = update}};

OWN_ROWS(scores, sizeof scores / sizeof *scores, optimisers, sizeof optimisers / sizeof *optimisers)
