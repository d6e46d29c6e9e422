/* Gradients of the complex residual, the router, the experts and the load balance, the kernels and the
   operations on a tape: backward against differences of forward, that backward accumulates, and that a
   gradient does not depend on which others are wanted. The choice of experts is a step: logits are made so
   that no difference crosses one, or lie on one and are not differentiated. */
#ifndef CMHA_DOUBLE
#define CMHA_DOUBLE
#endif
#include "grad.h"

enum { MAX_IN = 8 };

/* Inputs of the experts, in this order; without biases the last two are absent */
enum { Z, LOGITS, W1, W2, B1, B2 };

/* How the logits spread the tokens */
typedef enum spread { APART, ONE_EXPERT, ONE_IDLE, TIE_INSIDE, TIE_AT_EDGE } spread;

/* A function under test, of inputs x with gradients dx (NULL = not wanted), output y and cotangent dy. `run`
   computes y, and with backward = 1 adds to dx. */
typedef struct probe {
    const char *name;
    size_t T, D, F, E, top;
    int n_in, skip; /* skip: an input that is not differentiated, -1 = none */
    size_t n[MAX_IN], ny, shape[MAX_IN][CMHA_MAX_RANK];
    int rank[MAX_IN];
    cmha_real *x[MAX_IN], *dx[MAX_IN], *y, *dy;
    const unsigned char *mask;
    void (*run)(struct probe *p, int backward);
    cmha_tensor *(*build)(struct probe *p, cmha_tape *tape, cmha_tensor **in);
} probe;

static cmha_context context;
static const unsigned char some[] = {1, 0, 1, 1, 0, 1, 1, 1, 1, 1, 0, 1, 1};

static double probe_loss(void *user) {
    probe *p = (probe *)user;
    p->run(p, 0);
    return grad_dot(p->y, p->dy, p->ny);
}

/* Runs the backward into fresh gradients, of input `only` alone, or of all (-1); `times` times over. */
static void probe_gradients(probe *p, int only, int times, cmha_real **gradients) {
    int i;
    for (i = 0; i < p->n_in; i++)
        p->dx[i] = gradients[i] = only < 0 || only == i ? check_zeros(p->n[i]) : NULL;
    for (i = 0; i < times; i++) p->run(p, 1);
    for (i = 0; i < p->n_in; i++) p->dx[i] = NULL;
}

static void probe_same(const probe *p, const char *what, int i, const cmha_real *got, const cmha_real *want,
                       double factor) {
    double worst = 0;
    size_t j;
    for (j = 0; j < p->n[i]; j++) worst = fmax(worst, fabs(got[j] - factor * want[j]));
    CHECK_THAT(worst <= 1e-12 * (1 + check_largest(got, p->n[i])), "%s: %s, input %d", p->name, what, i);
}

static void probe_check(probe *p) {
    static const char *const names[MAX_IN] = {"x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7"};
    cmha_real *all[MAX_IN], *other[MAX_IN];
    grad_input in[MAX_IN];
    char label[128];
    int i, j, n = 0;
    snprintf(label, sizeof label, "%s: T %zu, D %zu, F %zu, top %zu of %zu", p->name, p->T, p->D, p->F,
             p->top, p->E);
    probe_gradients(p, -1, 1, all);
    for (i = 0; i < p->n_in; i++) {
        if (i == p->skip) continue;
        in[n].name = names[i], in[n].x = p->x[i], in[n].grad = all[i], in[n++].n = p->n[i];
    }
    grad_check(label, probe_loss, p, in, n, 24);
    probe_gradients(p, -1, 2, other);
    for (i = 0; i < p->n_in; i++)
        probe_same(p, "does not accumulate", i, other[i], all[i], 2), free(other[i]);
    for (i = 0; i < p->n_in; i++) {
        probe_gradients(p, i, 1, other);
        probe_same(p, "is another alone", i, other[i], all[i], 1);
        for (j = 0; j < p->n_in; j++) free(other[j]);
    }
    for (i = 0; i < p->n_in; i++) free(all[i]);
}

static probe probe_of(const char *name, size_t T, size_t D, size_t F, size_t E, size_t top) {
    probe p;
    memset(&p, 0, sizeof p);
    p.name = name, p.T = T, p.D = D, p.F = F, p.E = E, p.top = top, p.skip = -1;
    return p;
}

/* The next input, [a, b, c, d] without trailing zeros */
static void probe_input(probe *p, size_t a, size_t b, size_t c, size_t d) {
    const size_t shape[CMHA_MAX_RANK] = {a, b, c, d};
    int i = p->n_in++;
    p->n[i] = 1;
    for (p->rank[i] = 0; p->rank[i] < CMHA_MAX_RANK && shape[p->rank[i]]; p->rank[i]++) {
        p->shape[i][p->rank[i]] = shape[p->rank[i]];
        p->n[i] *= shape[p->rank[i]];
    }
    p->x[i] = check_array(p->n[i], 0.9);
}

static void probe_output(probe *p, size_t n) {
    p->ny = n;
    p->y = check_zeros(n), p->dy = check_array(n, 1);
}

static void probe_free(probe *p) {
    int i;
    for (i = 0; i < p->n_in; i++) free(p->x[i]);
    free(p->y), free(p->dy);
}

/* The same on a tape */
static void run_tape(probe *p, int backward) {
    cmha_tensor *in[MAX_IN] = {NULL}, *y, *loss;
    cmha_tape tape;
    int i;
    CHECK_OK(cmha_tape_init(&tape, &context, 1));
    for (i = 0; i < p->n_in; i++)
        in[i] = cmha_tensor_wrap(&tape, p->rank[i], p->shape[i], p->x[i], backward ? p->dx[i] : NULL);
    y = p->build(p, &tape, in);
    if (!y || y->size != p->ny) {
        CHECK_THAT(0, "%s: %s", p->name, cmha_error(&context));
    } else {
        memcpy(p->y, y->data, p->ny * sizeof *p->y);
        loss = cmha_sum(&tape, cmha_mul(&tape, y, cmha_tensor_wrap(&tape, y->rank, y->shape, p->dy, NULL)));
        if (backward) CHECK_OK(cmha_tape_backward(&tape, loss, 1));
    }
    cmha_tape_close(&tape);
}

/* ----------------------------------------------- residual ----------------------------------------------- */

static void run_residual(probe *p, int backward) {
    const cmha_complex_residual_args args = {p->T, p->D, *p->x[2], *p->x[3]};
    size_t i;
    if (!backward) cmha_complex_residual_forward(&args, p->x[0], p->x[1], p->y);
    else {
        for (i = 0; p->dx[1] && i < p->ny; i++) p->dx[1][i] += p->dy[i]; /* which is the caller's to add */
        cmha_complex_residual_backward(&args, p->x[0], p->dy, p->dx[0], p->dx[2], p->dx[3]);
    }
}

static cmha_tensor *build_residual(probe *p, cmha_tape *tape, cmha_tensor **in) {
    (void)p;
    return cmha_complex_residual(tape, in[0], in[1], in[2], in[3]);
}

/* z + f where f is z: its gradient comes from two sides */
static cmha_tensor *build_residual_twice(probe *p, cmha_tape *tape, cmha_tensor **in) {
    cmha_tensor *z = cmha_scale(tape, in[0], 2);
    (void)p;
    return cmha_complex_residual(tape, z, cmha_complex_residual(tape, z, z, in[1], NULL), in[1], NULL);
}

static void check_residual(size_t T, size_t D) {
    probe p = probe_of("residual", T, D, 0, 0, 0), twice = probe_of("residual, twice", T, D, 0, 0, 0);
    probe_input(&p, T, 2 * D, 0, 0), probe_input(&p, T, 2 * D, 0, 0);
    probe_input(&p, 1, 0, 0, 0), probe_input(&p, 1, 0, 0, 0), probe_output(&p, 2 * T * D);
    p.run = run_residual;
    probe_check(&p);
    p.run = run_tape, p.build = build_residual, p.name = "residual on a tape";
    probe_check(&p);
    free(p.x[--p.n_in]);
    p.name = "residual by its angle";
    probe_check(&p);
    probe_free(&p);
    probe_input(&twice, T, 2 * D, 0, 0), probe_input(&twice, 1, 0, 0, 0), probe_output(&twice, 2 * T * D);
    twice.run = run_tape, twice.build = build_residual_twice;
    probe_check(&twice);
    probe_free(&twice);
}

/* ------------------------------------------------ router ------------------------------------------------ */

static cmha_route_args route_of(const probe *p) {
    cmha_route_args route = {p->T, p->D, p->E, p->top, p->mask, 1};
    return route;
}

static void run_router(probe *p, int backward) {
    const cmha_route_args route = route_of(p);
    const cmha_grads grads = {p->dx[0], p->dx[1], p->n_in > 2 ? p->dx[2] : NULL};
    if (!backward) cmha_router_forward(&route, p->x[0], p->x[1], p->n_in > 2 ? p->x[2] : NULL, p->y);
    else cmha_router_backward(&route, p->x[0], p->x[1], p->dy, &grads);
}

static cmha_tensor *build_router(probe *p, cmha_tape *tape, cmha_tensor **in) {
    return cmha_router(tape, in[0], in[1], p->n_in > 2 ? in[2] : NULL);
}

static void check_router(size_t T, size_t D, size_t E) {
    probe p = probe_of("router", T, D, 0, E, 0);
    probe_input(&p, T, 2 * D, 0, 0), probe_input(&p, 2, E, D, 0), probe_input(&p, E, 0, 0, 0),
        probe_output(&p, T * E);
    p.run = run_router;
    probe_check(&p);
    p.run = run_tape, p.build = build_router, p.name = "router on a tape";
    probe_check(&p);
    free(p.x[--p.n_in]);
    p.name = "router on a tape, no bias";
    probe_check(&p);
    p.run = run_router, p.name = "router, no bias";
    probe_check(&p);
    probe_free(&p);
}

/* ----------------------------------------------- experts ------------------------------------------------ */

/* Every row holds E levels 0.4 apart with a little noise, in an order of its own; see spread for the rest. */
static void spread_logits(cmha_real *logits, size_t T, size_t E, size_t top, spread how) {
    size_t t, e, other;
    for (t = 0; t < T; t++, logits += E) {
        for (e = 0; e < E; e++) logits[e] = -0.4 * (double)e + 0.1 * check_random();
        if (how == TIE_INSIDE && top > 1) logits[top - 1] = logits[top - 2];
        if (how == TIE_AT_EDGE && top < E) logits[top] = logits[top - 1];
        /* shuffled, all but the lowest where one is to be idle */
        for (e = E; e-- > 1 && how != ONE_EXPERT;) {
            cmha_real kept = logits[e];
            if (how == ONE_IDLE && e == E - 1) continue;
            other = check_below(e + 1);
            logits[e] = logits[other], logits[other] = kept;
        }
    }
}

static void run_experts(probe *p, int backward) {
    const cmha_route_args route = route_of(p);
    cmha_experts_args a;
    cmha_experts_weights w;
    cmha_experts_grads d;
    size_t pairs = p->T * p->top,
           *plan = (size_t *)check_alloc(cmha_route_size(p->T, p->E, p->top), sizeof *plan);
    cmha_real *gate = check_zeros(pairs), *hidden = check_zeros(pairs * 2 * p->F),
              *dgate = check_zeros(pairs), *scratch;
    memset(&a, 0, sizeof a);
    a.T = p->T, a.D = p->D, a.F = p->F, a.E = p->E, a.top = p->top, a.threads = 2;
    a.plan = plan, a.gate = gate, a.hidden = backward ? hidden : NULL;
    w.w1 = p->x[W1], w.w2 = p->x[W2], w.b1 = p->n_in > B1 ? p->x[B1] : NULL,
    w.b2 = p->n_in > B1 ? p->x[B2] : NULL;
    d.z = p->dx[Z], d.gate = p->dx[LOGITS] ? dgate : NULL;
    d.w1 = p->dx[W1], d.w2 = p->dx[W2], d.b1 = p->dx[B1], d.b2 = p->dx[B2];
    scratch = check_zeros(cmha_experts_scratch(&a, backward) + cmha_experts_scratch(&a, 0));
    cmha_route_forward(&route, p->x[LOGITS], plan, gate);
    cmha_experts_forward(&a, &w, p->x[Z], p->y, scratch);
    if (backward) {
        cmha_experts_backward(&a, &w, p->x[Z], p->dy, &d, scratch);
        cmha_route_backward(&route, plan, gate, dgate, p->dx[LOGITS]);
    }
    free(plan), free(gate), free(hidden), free(dgate), free(scratch);
}

static cmha_tensor *experts_on(const probe *p, cmha_tape *tape, cmha_tensor **in, cmha_tensor *logits) {
    const cmha_experts_tensors weights = {in[W1], in[B1], in[W2], in[B2]};
    const cmha_experts_options options = {p->top, p->mask, NULL};
    return cmha_experts(tape, in[Z], logits, &weights, &options);
}

static cmha_tensor *build_experts(probe *p, cmha_tape *tape, cmha_tensor **in) {
    return experts_on(p, tape, in, in[LOGITS]);
}

static void check_experts(size_t T, size_t D, size_t F, size_t E, size_t top, spread how) {
    probe p = probe_of("experts", T, D, F, E, top);
    probe_input(&p, T, 2 * D, 0, 0), probe_input(&p, T, E, 0, 0);
    probe_input(&p, 2, E, F, D), probe_input(&p, 2, E, D, F), probe_input(&p, 2, E, F, 0),
        probe_input(&p, 2, E, D, 0);
    probe_output(&p, 2 * T * D);
    spread_logits(p.x[LOGITS], T, E, top, how);
    /* a gate that is 1 has no gradient; on an edge there is none */
    if (top == 1 || how == TIE_AT_EDGE) p.skip = LOGITS;
    p.run = run_experts;
    probe_check(&p);
    p.run = run_tape, p.build = build_experts, p.name = "experts on a tape";
    probe_check(&p);
    while (p.n_in > B1) free(p.x[--p.n_in]);
    p.name = "experts on a tape, no biases";
    probe_check(&p);
    p.run = run_experts, p.name = "experts, no biases";
    probe_check(&p);
    p.mask = T <= sizeof some ? some : NULL, p.name = "experts, masked"; /* absent tokens: no logit matters */
    probe_check(&p);
    p.run = run_tape, p.name = "experts on a tape, masked";
    probe_check(&p);
    probe_free(&p);
}

/* With top = 1 the logits get a gradient of exactly 0, and so do the weights of an expert without tokens. */
static void check_nothing_flows(void) {
    enum { T = 5, D = 3, F = 4, E = 3 };
    probe p = probe_of("experts", T, D, F, E, 1);
    cmha_real *d[MAX_IN];
    size_t part;
    int i;
    probe_input(&p, T, 2 * D, 0, 0), probe_input(&p, T, E, 0, 0);
    probe_input(&p, 2, E, F, D), probe_input(&p, 2, E, D, F), probe_input(&p, 2, E, F, 0),
        probe_input(&p, 2, E, D, 0);
    probe_output(&p, 2 * T * D);
    spread_logits(p.x[LOGITS], T, E, 1, ONE_IDLE);
    p.run = run_experts;
    probe_gradients(&p, -1, 1, d);
    CHECK(check_largest(d[LOGITS], T * E) == 0 && check_largest(d[Z], 2 * T * D) > 0);
    for (i = W1; i <= B2; i++)
        for (part = 0; part < 2; part++) {
            size_t one = p.n[i] / (2 * E);
            CHECK(check_largest(d[i] + (part * E + E - 1) * one, one) == 0);
        }
    for (i = 0; i < p.n_in; i++) free(d[i]);
    probe_free(&p);
}

/* ----------------------------------------------- balance ------------------------------------------------ */

static void run_balance(probe *p, int backward) {
    const cmha_route_args route = route_of(p);
    double *share = (double *)check_alloc(2 * p->E + 1, sizeof *share);
    p->y[0] = cmha_balance_forward(&route, p->x[0], share);
    if (backward) cmha_balance_backward(&route, p->x[0], share, p->dy[0], p->dx[0]);
    free(share);
}

static cmha_tensor *build_balance(probe *p, cmha_tape *tape, cmha_tensor **in) {
    return cmha_balance(tape, in[0], p->top, p->mask);
}

static void check_balance(size_t T, size_t E, size_t top) {
    probe p = probe_of("balance", T, 0, 0, E, top);
    probe_input(&p, T, E, 0, 0), probe_output(&p, 1);
    spread_logits(p.x[0], T, E, top, ONE_IDLE);
    for (p.mask = NULL;; p.mask = some) {
        p.run = run_balance, p.name = p.mask ? "balance, masked" : "balance";
        probe_check(&p);
        p.run = run_tape, p.build = build_balance, p.name = "balance on a tape";
        probe_check(&p);
        if (p.mask) break;
    }
    probe_free(&p);
}

/* ------------------------------------------------ layer ------------------------------------------------- */

enum { ROUTER = 1, ROUTER_BIAS = 6 };

/* A layer as CRAT has it: y = (1 + i0) z + experts(z), and the balance beside it */
static cmha_tensor *build_layer(probe *p, cmha_tape *tape, cmha_tensor **in) {
    size_t flat[1];
    cmha_tensor *logits = cmha_router(tape, in[Z], in[ROUTER], in[ROUTER_BIAS]);
    cmha_tensor *f = experts_on(p, tape, in, logits);
    cmha_tensor *y = cmha_complex_residual(tape, in[Z], f, in[7], NULL);
    flat[0] = y ? y->size : 0;
    return cmha_concat(tape, cmha_reshape(tape, y, 1, flat), cmha_balance(tape, logits, p->top, NULL), 0);
}

/* The distance from the last logit that is chosen to the first that is not, over all tokens */
static double edge_of(const probe *p) {
    double edge = HUGE_VAL;
    size_t t, e, f;
    cmha_real *logits = check_zeros(p->T * p->E);
    const cmha_route_args route = route_of(p);
    cmha_router_forward(&route, p->x[Z], p->x[ROUTER], p->x[ROUTER_BIAS], logits);
    for (t = 0; t < p->T; t++)
        for (e = 0; e < p->E; e++) { /* e is the last chosen one if it has top - 1 larger ones */
            const cmha_real *row = logits + t * p->E;
            size_t larger = 0;
            double below = HUGE_VAL;
            for (f = 0; f < p->E; f++) {
                larger += row[f] > row[e];
                if (row[f] < row[e]) below = fmin(below, row[e] - row[f]);
            }
            if (larger == p->top - 1) edge = fmin(edge, below);
        }
    free(logits);
    return edge;
}

static void check_layer(size_t T, size_t D, size_t F, size_t E, size_t top) {
    probe p = probe_of("layer on a tape", T, D, F, E, top);
    int tries;
    probe_input(&p, T, 2 * D, 0, 0), probe_input(&p, 2, E, D, 0), probe_input(&p, 2, E, F, D),
        probe_input(&p, 2, E, D, F);
    probe_input(&p, 2, E, F, 0), probe_input(&p, 2, E, D, 0), probe_input(&p, E, 0, 0, 0),
        probe_input(&p, 1, 0, 0, 0);
    probe_output(&p, 2 * T * D + 1);
    for (tries = 0; tries < 1000 && edge_of(&p) < 0.05; tries++) check_fill(p.x[Z], p.n[Z], 0.9);
    CHECK(edge_of(&p) >= 0.05);
    p.run = run_tape, p.build = build_layer;
    probe_check(&p);
    probe_free(&p);
}

int main(int argc, char **argv) {
    int how;
    (void)argc;
    cmha_blas_restart(argv);
    check_context(&context, 2, 1);
    check_residual(1, 1), check_residual(3, 5), check_residual(70, 9);
    check_router(1, 1, 1), check_router(5, 3, 4), check_router(66, 70, 3);
    for (how = APART; how <= TIE_AT_EDGE; how++) {
        check_experts(7, 3, 5, 4, 1, (spread)how);
        check_experts(7, 3, 5, 4, 2, (spread)how);
        check_experts(4, 2, 3, 3, 3, (spread)how);
    }
    check_experts(1, 1, 1, 1, 1, APART), check_experts(1, 3, 4, 5, 2, APART);
    check_experts(70, 2, 3, 2, 1, ONE_EXPERT), check_experts(70, 66, 65, 3, 2, APART);
    check_nothing_flows();
    check_balance(1, 3, 1), check_balance(13, 4, 2), check_balance(13, 5, 1);
    check_layer(5, 3, 4, 4, 2), check_layer(3, 2, 3, 3, 1);
    cmha_context_close(&context);
    return check_end();
}
