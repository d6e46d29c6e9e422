/* Gradients of CRAT's reflection window: the operations retrieve, reflect and irw against differences
   of their forward. Which documents are found is not differentiated: bases and thresholds here leave
   the choice alone under the steps. */
#ifndef CMHA_DOUBLE
#define CMHA_DOUBLE
#endif
#include "grad.h"

enum { MAX_IN = 7 };

static cmha_context context;

/* A function under test: inputs x, gradients dx, output y and its cotangent */
typedef struct trial {
    const char *name;
    int n_in;
    size_t n[MAX_IN], n_out, shape[MAX_IN][CMHA_MAX_RANK];
    int rank[MAX_IN];
    cmha_real *x[MAX_IN], *dx[MAX_IN], *y, *cot;
    size_t T, M, k, d_r, D;
    cmha_fusion fusion;
    cmha_real tau;
    const unsigned char *found;
    cmha_tape tape;
    const cmha_knowledge *base;
    cmha_retrieve_args args;
    void (*forward)(struct trial *t);
    void (*backward)(struct trial *t);
    cmha_tensor *(*build)(struct trial *t, cmha_tensor **in);
} trial;

static double trial_loss(void *user) {
    trial *t = (trial *)user;
    t->forward(t);
    return grad_dot(t->y, t->cot, t->n_out);
}

static void trial_open(trial *t) {
    int i;
    for (i = 0; i < t->n_in; i++) {
        if (!t->x[i]) t->x[i] = check_array(t->n[i], 1.2);
        t->dx[i] = check_zeros(t->n[i]);
    }
    t->y = check_zeros(t->n_out), t->cot = check_array(t->n_out, 1);
}

static void trial_close(trial *t) {
    int i;
    for (i = 0; i < t->n_in; i++) free(t->x[i]), free(t->dx[i]);
    free(t->y), free(t->cot);
}

/* Two passes must add up to twice one: the backward accumulates */
static void trial_accumulates(trial *t) {
    cmha_real *once[MAX_IN];
    size_t j;
    int i;
    for (i = 0; i < t->n_in; i++) {
        once[i] = check_zeros(t->n[i]);
        memcpy(once[i], t->dx[i], t->n[i] * sizeof *once[i]);
    }
    t->forward(t), t->backward(t);
    for (i = 0; i < t->n_in; i++) {
        double worst = 0;
        for (j = 0; j < t->n[i]; j++) worst = fmax(worst, fabs(t->dx[i][j] - 2 * once[i][j]));
        CHECK_THAT(worst <= 1e-12 * (1 + check_largest(once[i], t->n[i])), "%s: input %d does not accumulate",
                   t->name, i);
        memcpy(t->dx[i], once[i], t->n[i] * sizeof *once[i]);
        free(once[i]);
    }
}

/* Each gradient alone must be what it is among all of them */
static void trial_alone(trial *t) {
    cmha_real *kept[MAX_IN];
    int i, j;
    memcpy(kept, t->dx, sizeof kept);
    for (i = 0; i < t->n_in; i++) {
        cmha_real *alone = check_zeros(t->n[i]);
        for (j = 0; j < t->n_in; j++) t->dx[j] = i == j ? alone : NULL;
        t->backward(t);
        CHECK_THAT(check_distance(alone, kept[i], t->n[i]) <= 1e-14 * (1 + check_largest(alone, t->n[i])),
                   "%s: input %d alone", t->name, i);
        free(alone);
    }
    memcpy(t->dx, kept, sizeof kept);
}

static void trial_run(trial *t) {
    static const char *const names[MAX_IN] = {"in0", "in1", "in2", "in3", "in4", "in5", "in6"};
    grad_input in[MAX_IN];
    int i;
    t->forward(t), t->backward(t);
    trial_accumulates(t);
    for (i = 0; i < t->n_in; i++)
        in[i].name = names[i], in[i].x = t->x[i], in[i].grad = t->dx[i], in[i].n = t->n[i];
    grad_check(t->name, trial_loss, t, in, t->n_in, 24);
}

/* ---------------------------------------------- operations ---------------------------------------------- */

static cmha_status dot_backward(cmha_tape *tape, cmha_record *record) {
    const cmha_real *cot = (const cmha_real *)record->user;
    cmha_real *g = cmha_tape_grad(tape, record->in[0]);
    size_t i;
    for (i = 0; g && i < record->in[0]->size; i++) g[i] += record->out->grad[0] * cot[i];
    return cmha_tape_status(tape);
}

static cmha_tensor *tape_result(trial *t) {
    cmha_tensor *in[MAX_IN] = {0}, *y;
    int i;
    cmha_tape_reset(&t->tape);
    for (i = 0; i < t->n_in; i++)
        in[i] = cmha_tensor_wrap(&t->tape, t->rank[i], t->shape[i], t->x[i], t->dx[i]);
    y = t->build(t, in);
    CHECK_THAT(y && y->size == t->n_out, "%s: %s", t->name, cmha_error(&context));
    return y;
}

static void tape_forward(trial *t) {
    cmha_tensor *y = tape_result(t);
    if (y) memcpy(t->y, y->data, t->n_out * sizeof *t->y);
}

static void tape_backward(trial *t) {
    size_t one = 1;
    cmha_tensor *y = tape_result(t), *loss = cmha_tensor_new(&t->tape, 1, &one, 0);
    loss = cmha_tape_push(&t->tape, "dot", loss, &y, 1, dot_backward, t->cot);
    CHECK_OK(cmha_tape_backward(&t->tape, loss, 1));
}

static cmha_tensor *build_retrieve(trial *t, cmha_tensor **in) {
    return cmha_retrieve(&t->tape, t->base, &t->args, in[0], in[1], NULL);
}

static cmha_tensor *build_reflect(trial *t, cmha_tensor **in) {
    return cmha_reflect(&t->tape, in[0], in[1], in[2], t->tau, t->fusion, t->found);
}

static cmha_tensor *build_irw(trial *t, cmha_tensor **in) {
    cmha_irw_weights w;
    w.wm = in[1], w.w_logits = in[2], w.wv = in[3], w.wg = in[4];
    w.bm = t->n_in > 5 ? in[5] : NULL, w.bg = t->n_in > 5 ? in[6] : NULL;
    return cmha_irw(&t->tape, t->base, &t->args, t->tau, t->fusion, in[0], &w);
}

static void shape_of(trial *t, int i, size_t a, size_t b, size_t c) {
    t->shape[i][0] = a, t->shape[i][1] = b, t->shape[i][2] = c;
    t->rank[i] = c ? 3 : b ? 2 : 1;
    t->n[i] = a * (b ? b : 1) * (c ? c : 1);
}

static trial tape_trial(const char *name, const cmha_knowledge *base, size_t M, size_t k, double tau,
                        double threshold, int raw) {
    trial t;
    memset(&t, 0, sizeof t);
    t.name = name, t.base = base, t.M = M, t.k = k, t.d_r = base ? base->d_r : 3, t.tau = 0.7;
    t.args.queries = M, t.args.top = k, t.args.tau = (cmha_real)tau, t.args.threshold = (cmha_real)threshold;
    t.args.eps = (cmha_real)0.1, t.args.raw_weights = raw;
    t.forward = tape_forward, t.backward = tape_backward;
    return t;
}

/* zero: of one row of queries this many features are 0; all, where a choice
   between equal documents cannot turn over */
static void tape_run(trial *t, size_t zero) {
    size_t half = t->M * t->d_r, row = 4 * half;
    CHECK_OK(cmha_tape_init(&t->tape, &context, 1));
    trial_open(t);
    memset(t->x[0] + row, 0, zero * sizeof *t->x[0]);
    memset(t->x[0] + row + half, 0, zero * sizeof *t->x[0]);
    trial_run(t);
    trial_alone(t);
    trial_close(t);
    cmha_tape_close(&t->tape);
}

static void tape_retrieve(const char *name, const cmha_knowledge *base, size_t M, size_t k, double tau,
                          double threshold, int raw) {
    trial t = tape_trial(name, base, M, k, tau, threshold, raw);
    t.n_in = 2, t.build = build_retrieve;
    shape_of(&t, 0, 2, 5, 2 * M * t.d_r), shape_of(&t, 1, M, 0, 0);
    t.n_out = 10 * 2 * t.d_r;
    tape_run(&t, base->n <= k ? M * t.d_r : 1);
}

static void tape_irw(const char *name, const cmha_knowledge *base, size_t M, size_t k, double tau,
                     double threshold, int raw, cmha_fusion fusion, int biases) {
    trial t = tape_trial(name, base, M, k, tau, threshold, raw);
    size_t D = 5, d = t.d_r;
    t.n_in = biases ? 7 : 5, t.build = build_irw, t.fusion = fusion;
    shape_of(&t, 0, 2, 4, 2 * D), shape_of(&t, 1, 2, M * d, D), shape_of(&t, 2, M, 0, 0),
        shape_of(&t, 3, 2, D, d);
    shape_of(&t, 4, D, 2 * D + 2 * d, 0), shape_of(&t, 5, 2, M * d, 0), shape_of(&t, 6, D, 0, 0);
    t.n_out = 8 * 2 * D;
    tape_run(&t, 0);
}

static void tape_reflect(const char *name, cmha_fusion fusion, const unsigned char *found) {
    trial t = tape_trial(name, NULL, 1, 1, 1, -1, 0);
    int i;
    t.n_in = 3, t.build = build_reflect, t.fusion = fusion, t.found = found;
    shape_of(&t, 0, 2, 3, 14), shape_of(&t, 1, 2, 3, 14), shape_of(&t, 2, 2, 3, 7);
    t.n_out = 84;
    CHECK_OK(cmha_tape_init(&t.tape, &context, 1));
    trial_open(&t);
    trial_run(&t);
    for (i = 0; found && i < 6; i++) { /* nothing found: z to the bit, and no gradient for v and the gate */
        if (found[i]) continue;
        CHECK(check_largest(t.dx[1] + i * 14, 14) == 0 && check_largest(t.dx[2] + i * 7, 7) == 0);
        CHECK(check_distance(t.dx[0] + i * 14, t.cot + i * 14, 14) == 0 &&
              check_distance(t.y + i * 14, t.x[0] + i * 14, 14) == 0);
    }
    trial_alone(&t);
    trial_close(&t);
    cmha_tape_close(&t.tape);
}

/* An empty base: the identity, whose gradient is the cotangent, and none for the parameters */
static void tape_empty(const cmha_knowledge *empty, int whole) {
    trial t = tape_trial("empty base", empty, 2, 3, 1, -1, 0);
    size_t D = 4, d = 3;
    int i;
    t.d_r = d, t.n_in = whole ? 7 : 2, t.build = whole ? build_irw : build_retrieve;
    shape_of(&t, 0, 2, 4, whole ? 2 * D : 4 * d), shape_of(&t, whole ? 2 : 1, 2, 0, 0);
    if (whole) {
        shape_of(&t, 1, 2, 2 * d, D), shape_of(&t, 3, 2, D, d), shape_of(&t, 4, D, 2 * D + 2 * d, 0);
        shape_of(&t, 5, 2, 2 * d, 0), shape_of(&t, 6, D, 0, 0);
    }
    t.n_out = whole ? 8 * 2 * D : 8 * 2 * d;
    CHECK_OK(cmha_tape_init(&t.tape, &context, 1));
    trial_open(&t);
    t.forward(&t), t.backward(&t);
    for (i = whole; i < t.n_in; i++) CHECK(check_largest(t.dx[i], t.n[i]) == 0);
    if (whole)
        CHECK(check_distance(t.dx[0], t.cot, t.n_out) == 0 && check_distance(t.y, t.x[0], t.n_out) == 0);
    else CHECK(check_largest(t.y, t.n_out) == 0);
    trial_close(&t);
    cmha_tape_close(&t.tape);
}

static cmha_knowledge base_of(size_t n, size_t d_r, cmha_real **vectors) {
    cmha_knowledge base;
    *vectors = check_array(n * 2 * d_r, 1);
    CHECK_OK(cmha_knowledge_init(&base, &context, n, d_r, *vectors, NULL, NULL, NULL));
    return base;
}

/* Equal documents: whichever of them is found, the mix and its gradients are the same */
static void check_ties(void) {
    cmha_real *vectors;
    cmha_knowledge base = base_of(11, 3, &vectors);
    size_t i;
    for (i = 1; i < 11; i += 2) memcpy(vectors + i * 6, vectors, 6 * sizeof *vectors);
    cmha_knowledge_close(&base);
    CHECK_OK(cmha_knowledge_init(&base, &context, 11, 3, vectors, NULL, NULL, NULL));
    tape_retrieve("retrieve, ties", &base, 2, 4, 0.5, -1, 0);
    tape_irw("irw, ties", &base, 2, 4, 0.5, -1, 0, CMHA_FUSION_CONVEX, 1);
    cmha_knowledge_close(&base);
    free(vectors);
}

static void check_tape(void) {
    static const unsigned char found[6] = {0, 1, 1, 0, 1, 1};
    cmha_real *vectors[5];
    cmha_knowledge base = base_of(23, 4, &vectors[0]), few = base_of(2, 1, &vectors[1]),
                   empty = base_of(0, 3, &vectors[2]);
    cmha_knowledge one = base_of(4, 1, &vectors[3]), wide = base_of(6, 37, &vectors[4]);
    int i;
    tape_retrieve("retrieve", &base, 3, 5, 1, -1, 0);
    tape_retrieve("retrieve, one query, top 1", &base, 1, 2, 0.3, -1, 1);
    tape_retrieve("retrieve, raw weights", &base, 3, 5, 0.5, -1, 1);
    tape_retrieve("retrieve, threshold", &base, 2, 5, 0.5, 0.55, 0);
    tape_retrieve("retrieve, fewer documents than k", &few, 3, 5, 1, -1, 0);
    tape_retrieve("retrieve, one feature", &one, 2, 4, 1, -1, 0);
    tape_retrieve("retrieve, wide", &wide, 2, 5, 0.2, -1, 0);
    tape_reflect("reflect, convex", CMHA_FUSION_CONVEX, NULL);
    tape_reflect("reflect, additive", CMHA_FUSION_ADDITIVE, NULL);
    tape_reflect("reflect, convex, some found", CMHA_FUSION_CONVEX, found);
    tape_reflect("reflect, additive, some found", CMHA_FUSION_ADDITIVE, found);
    tape_irw("irw, convex", &base, 3, 5, 1, -1, 0, CMHA_FUSION_CONVEX, 1);
    tape_irw("irw, additive", &base, 3, 5, 0.4, -1, 0, CMHA_FUSION_ADDITIVE, 1);
    tape_irw("irw, raw weights, no biases", &base, 3, 5, 0.4, -1, 1, CMHA_FUSION_CONVEX, 0);
    tape_irw("irw, one query, threshold", &base, 1, 3, 0.5, 0.55, 1, CMHA_FUSION_CONVEX, 1);
    tape_irw("irw, few documents", &few, 2, 5, 1, -1, 0, CMHA_FUSION_ADDITIVE, 1);
    tape_empty(&empty, 0), tape_empty(&empty, 1), tape_empty(NULL, 0), tape_empty(NULL, 1);
    cmha_knowledge_close(&base), cmha_knowledge_close(&few), cmha_knowledge_close(&empty);
    cmha_knowledge_close(&one), cmha_knowledge_close(&wide);
    for (i = 0; i < 5; i++) free(vectors[i]);
}

int main(int argc, char **argv) {
    (void)argc;
    cmha_blas_restart(argv);
    check_context(&context, 2, 1);
    check_tape();
    check_ties();
    cmha_context_close(&context);
    return check_end();
}
