/* The cross-entropy of a linear map, whose logits exist some rows at a time: its kernel against the two that
   keep them, its loss and gradients against cmha_linear and cmha_cross_entropy and against differences, in
   one chunk and in several, with ignored rows, weights of the classes and a bias; and that a model's
   gradient, which is passed on in the forward, is what a tape gives. */
#ifndef CMHA_DOUBLE
#define CMHA_DOUBLE
#endif
#include "grad.h"

enum { CHUNKED = 20000 }; /* a vocabulary so large that 256 rows are a chunk */

static cmha_context context;

static void check_kernel(void) {
    static const int32_t targets[] = {3, 0, 18, -1, 7, 0};
    enum { T = 6, V = 19 };
    const cmha_cross_entropy_args args = {T, V, targets, -1}, none = {0, V, targets, -1};
    const cmha_cross_entropy_args one = {1, 3, targets + 1, -1};
    int huge;
    for (huge = 0; huge < 2; huge++) {
        cmha_real *logits = check_array(T * V, huge ? 3e300 : 2), *want = check_zeros(T * V), lse[2 * T];
        double loss = cmha_cross_entropy_forward(&args, logits, lse, NULL), got;
        cmha_cross_entropy_backward(&args, logits, lse, (cmha_real)-0.3, want);
        got = cmha_cross_entropy_gradient(&args, logits, (cmha_real)-0.3);
        CHECK_NEAR(got, loss, 1e-12 * fabs(loss));
        CHECK(check_largest(want, T * V) > 0.01);
        CHECK_NEAR(check_distance(logits, want, T * V), 0, 1e-15);
        free(logits), free(want);
    }
    CHECK(cmha_cross_entropy_gradient(&none, NULL, 1) == 0);
    {
        cmha_real bad[3] = {1, (cmha_real)NAN, 2};
        double loss = cmha_cross_entropy_gradient(&one, bad, 1);
        CHECK(loss != loss && bad[0] != bad[0]);
    }
}

typedef struct trial {
    cmha_tape tape;
    size_t T, V, I;
    cmha_real *x[3], *dx[3], *weights; /* x, weight, bias or NULL */
    int32_t *targets;
    int fused;
    double cotangent;
} trial;

static cmha_tensor *forward(trial *t) {
    size_t sx[3], sw[2];
    cmha_tensor *x, *w, *b, *y;
    cmha_tape_reset(&t->tape);
    sx[0] = 1, sx[1] = t->T, sx[2] = t->I, sw[0] = t->V, sw[1] = t->I;
    x = cmha_tensor_wrap(&t->tape, 3, sx, t->x[0], t->dx[0]);
    w = cmha_tensor_wrap(&t->tape, 2, sw, t->x[1], t->dx[1]);
    b = t->x[2] ? cmha_tensor_wrap(&t->tape, 1, sw, t->x[2], t->dx[2]) : NULL;
    x = cmha_scale(&t->tape, x, (cmha_real)0.5); /* a gradient that is made and recycled, as in a model */
    y = t->fused ? cmha_linear_cross_entropy(&t->tape, x, w, b, t->targets, -1, t->weights)
                 : cmha_cross_entropy(&t->tape, cmha_linear(&t->tape, x, w, b), t->targets, -1, t->weights);
    return cmha_scale(&t->tape, y, (cmha_real)t->cotangent);
}

static double value(void *user) {
    cmha_tensor *y = forward((trial *)user);
    return y ? (double)y->data[0] : (double)NAN;
}

static const size_t *sizes(const trial *t) {
    static size_t n[3];
    n[0] = t->T * t->I, n[1] = t->V * t->I, n[2] = t->x[2] ? t->V : 0;
    return n;
}

/* Two backwards add up to two gradients. */
static void gradients(trial *t, int fused, cmha_real **out) {
    const size_t *n = sizes(t);
    int i, pass;
    t->fused = fused;
    for (i = 0; i < 3; i++)
        if (n[i]) memset(t->dx[i], 0, n[i] * sizeof(cmha_real));
    for (pass = 0; pass < 2; pass++)
        CHECK_THAT(!cmha_tape_backward(&t->tape, forward(t), 1), "%s", cmha_error(&context));
    for (i = 0; i < 3; i++) {
        size_t j;
        for (j = 0; j < n[i]; j++) out[i][j] = t->dx[i][j] / 2;
    }
}

static void check_operation(size_t T, size_t V, size_t I, int bias, int weighted, int differences) {
    static const char *const names[] = {"x", "weight", "bias"};
    trial t;
    cmha_real *plain[3], *fused[3];
    grad_input in[3];
    char label[128];
    size_t j, i;
    double plain_loss;
    memset(&t, 0, sizeof t);
    CHECK_OK(cmha_tape_init(&t.tape, &context, 1));
    t.T = T, t.V = V, t.I = I, t.cotangent = -1.7;
    t.x[0] = check_array(T * I, 1), t.x[1] = check_array(V * I, 1), t.x[2] = bias ? check_array(V, 1) : NULL;
    t.targets = (int32_t *)check_alloc(T, sizeof *t.targets);
    for (j = 0; j < T; j++) t.targets[j] = j % 3 == 1 ? -1 : (int32_t)check_below(V);
    t.weights = weighted ? check_array(V, 1) : NULL;
    for (j = 0; weighted && j < V; j++) t.weights[j] = (cmha_real)1.5 + t.weights[j];
    for (i = 0; i < 3; i++) {
        size_t n = sizes(&t)[i];
        t.dx[i] = check_zeros(n), plain[i] = check_zeros(n), fused[i] = check_zeros(n);
        in[i].name = names[i], in[i].x = t.x[i], in[i].grad = fused[i], in[i].n = n;
    }
    snprintf(label, sizeof label, "%zu rows, vocabulary %zu, bias %d, weights %d", T, V, bias, weighted);
    gradients(&t, 0, plain);
    plain_loss = value(&t);
    gradients(&t, 1, fused);
    CHECK_NEAR(value(&t), plain_loss, 1e-12 * fabs(plain_loss));
    for (i = 0; i < 3; i++)
        CHECK_THAT(check_distance(plain[i], fused[i], sizes(&t)[i]) <=
                       1e-12 * (1 + check_largest(plain[i], sizes(&t)[i])),
                   "%s: the gradient of %s is off by %g", label, names[i],
                   check_distance(plain[i], fused[i], sizes(&t)[i]));
    if (differences) grad_check(label, value, &t, in, bias ? 3 : 2, 6);
    for (i = 0; i < 3; i++) free(t.x[i]), free(t.dx[i]), free(plain[i]), free(fused[i]);
    free(t.targets), free(t.weights), cmha_tape_close(&t.tape);
}

/* No logits of all rows at once: 256 rows at a time, and nothing of that size beside. */
static void check_memory(void) {
    size_t shape[2] = {1024, 8}, weight[2] = {CHUNKED, 8}, before;
    int32_t *targets = (int32_t *)check_alloc(1024, sizeof *targets);
    cmha_tape tape;
    cmha_tensor *x, *w, *y;
    CHECK_OK(cmha_tape_init(&tape, &context, 1));
    x = cmha_tensor_new(&tape, 2, shape, 1), w = cmha_tensor_new(&tape, 2, weight, 1);
    before = tape.memory.used;
    y = cmha_linear_cross_entropy(&tape, x, w, NULL, targets, -1, NULL);
    CHECK_NEAR(y ? (double)y->data[0] : 0, log((double)CHUNKED), 1e-9);
    CHECK_OK(cmha_tape_backward(&tape, y, 1));
    CHECK(tape.memory.peak - before < (300 * CHUNKED + 10 * CHUNKED) * sizeof(cmha_real));
    cmha_tape_close(&tape), free(targets);
}

/* cmha_model_gradient passes the gradients on in the forward; the same objective
   on a tape does so in the backward. */
static void check_model(int tied) {
    enum { N = 40 };
    int32_t ids[N], targets[N];
    cmha_model_config config = check_model_config();
    cmha_model model;
    cmha_batch batch;
    cmha_tensor *y, *head;
    cmha_tape tape;
    cmha_real *own;
    double loss = 0;
    int i;
    memset(&batch, 0, sizeof batch);
    for (i = 0; i < N; i++)
        ids[i] = (int32_t)check_below(19), targets[i] = i % 7 ? (int32_t)check_below(19) : -1;
    batch.ids = ids, batch.targets = targets, batch.batch = 2, batch.length = N / 2;
    config.tied = tied, config.head_bias = !tied;
    CHECK_OK(cmha_model_init(&model, &context, &config));
    CHECK_OK(cmha_tape_init(&tape, &context, 1));
    CHECK_OK(cmha_model_gradient(&model, &batch, -0.3, 1, &loss));
    own = check_zeros(model.parameters.size);
    memcpy(own, model.parameters.grad, model.parameters.size * sizeof *own);
    cmha_parameters_zero_grad(&model.parameters);
    y = cmha_model_states(&model, &tape, &batch, NULL);
    head = tied ? model.token_weight : model.head_weight;
    y = cmha_linear_cross_entropy(&tape, y, head, model.head_bias, targets, -1, NULL);
    CHECK_NEAR(y ? (double)y->data[0] : 0, loss, 1e-13);
    CHECK(check_largest(model.parameters.grad, model.parameters.size) ==
          0); /* nothing is passed on before the backward */
    CHECK_OK(cmha_tape_backward(&tape, y, (cmha_real)-0.3));
    CHECK_NEAR(check_distance(own, model.parameters.grad, model.parameters.size), 0, 1e-14);
    free(own), cmha_tape_close(&tape), cmha_model_close(&model);
}

int main(void) {
    int flags;
    check_context(&context, 2, 3);
    check_kernel();
    for (flags = 0; flags < 4; flags++) {
        check_operation(7, 11, 5, flags & 1, flags >> 1, 1);
        check_operation(1, 2, 1, flags & 1, flags >> 1, 0);
        check_operation(600, CHUNKED, 3, flags & 1, flags >> 1, 0);
    }
    check_operation(300, CHUNKED, 3, 1, 0, !check_quick());
    check_memory();
    check_model(0), check_model(1);
    cmha_context_close(&context);
    return check_end();
}
