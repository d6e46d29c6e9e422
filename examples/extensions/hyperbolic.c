/* A hyperbolic part of the state for hierarchies (CRAT 7.2). CRAT eq 29 puts two embeddings side by side,

       e = [exp_o(W_h h) ; z],    exp_o(v) = tanh(sqrt(c) |v|) v / (sqrt(c) |v|)

   exp_o taking a tangent vector at the origin into the Poincare ball of curvature -c. z is CRAT's complex
   state as it stands: only the first half is new. Decided: exp_o(0) = 0, and the map's series around it. The
   paper names no distance; here it is the ball's, d(x, y) = 2/sqrt(c) arsinh sqrt(c |x-y|^2 / ((1 - c
   |x|^2)(1 - c |y|^2))), equal to the usual arcosh without its cancellation for near points. d(0, exp_o(v)) =
   2 |v|: the ball's metric at the origin is twice the plane's. Being symmetric, a distance cannot say which
   of two nodes is the parent; the paper leaves direction to z.

   Tried on a binary tree of depth 6: from a drawing in sectors nodes are moved until distances agree with the
   numbers of edges between them. Baseline: the same in the Euclidean plane, and in four Euclidean
   dimensions. */
#include "extension.h"

enum { DEPTH = 6, NODES = (1 << (DEPTH + 1)) - 1, PAIRS = NODES * (NODES - 1) / 2, STEPS = 500 };

typedef struct plan { /* of one operation: which rows are compared, and in which geometry */
    const size_t (*pair)[2];
    size_t count;
    cmha_real c; /* minus the curvature; 0: Euclidean */
} plan;

static cmha_status ball_backward(cmha_tape *tape, cmha_record *record) {
    const double c = (double)((const plan *)record->user)->c;
    const cmha_tensor *v = record->in[0], *x = record->out;
    size_t d = v->shape[1];
    cmha_real *dv = cmha_tape_grad(tape, record->in[0]);
    if (!dv) return cmha_tape_status(tape);
    for (size_t t = 0; t < v->shape[0]; t++) { /* x = m v: dv = m g + (dm/dr)/r (v . g) v, r = |v| */
        double rr = 0, along = 0;
        for (size_t i = t * d; i < (t + 1) * d; i++)
            rr += (double)v->data[i] * (double)v->data[i], along += (double)v->data[i] * (double)x->grad[i];
        double a = sqrt(c * rr), m = a > 0 ? tanh(a) / a : 1, sech = 1 / cosh(a);
        double bend = a > 0.01 ? (sech * sech - m) / rr : c * (-2. / 3 + 8. / 15 * a * a);
        for (size_t i = t * d; i < (t + 1) * d; i++)
            dv[i] += (cmha_real)(m * (double)x->grad[i] + bend * along * (double)v->data[i]);
    }
    return CMHA_OK;
}

/* exp_o of the rows of v [n, d]. */
static cmha_tensor *ball(cmha_tape *tape, cmha_tensor *v, const plan *p) {
    cmha_tensor *x = v ? cmha_tensor_new(tape, v->rank, v->shape, 0) : NULL;
    for (size_t t = 0; x && t < v->shape[0]; t++) {
        size_t d = v->shape[1];
        double rr = 0, a;
        for (size_t i = t * d; i < (t + 1) * d; i++) rr += (double)v->data[i] * (double)v->data[i];
        a = sqrt((double)p->c * rr);
        for (size_t i = t * d; i < (t + 1) * d; i++)
            x->data[i] = (cmha_real)((a > 0 ? tanh(a) / a : 1) * (double)v->data[i]);
    }
    return cmha_tape_push(tape, "exp_o", x, &v, 1, ball_backward, (void *)(size_t)p);
}

typedef struct gap {
    /* |x-y|^2, 1 - c |x|^2, 1 - c |y|^2, the distance, its derivative by p = c |x-y|^2/(A B) */
    double apart, A, B, d, slope;
} gap;
/* c = 0: d = |x-y| and p = |x-y|^2. */
static gap distance(const cmha_real *x, const cmha_real *y, size_t n, double c) {
    gap g = {1e-12, 1, 1, 0, 0}; /* the 1e-12: where points are equal the root has no derivative */
    for (size_t i = 0; i < n; i++) {
        g.apart += pow((double)x[i] - (double)y[i], 2);
        g.A -= c * (double)x[i] * (double)x[i], g.B -= c * (double)y[i] * (double)y[i];
    }
    double p = c * g.apart / (g.A * g.B);
    g.d = c > 0 ? 2 / sqrt(c) * asinh(sqrt(p)) : sqrt(g.apart);
    g.slope = c > 0 ? 1 / sqrt(c * p * (1 + p)) : 0.5 / g.d;
    return g;
}

static cmha_status distances_backward(cmha_tape *tape, cmha_record *record) {
    const plan *p = record->user;
    const cmha_tensor *points = record->in[0];
    double c = (double)p->c;
    cmha_real *grad = cmha_tape_grad(tape, record->in[0]);
    if (!grad) return cmha_tape_status(tape);
    for (size_t k = 0, n = points->shape[1]; k < p->count; k++) {
        const cmha_real *x = points->data + p->pair[k][0] * n, *y = points->data + p->pair[k][1] * n;
        cmha_real *dx = grad + p->pair[k][0] * n, *dy = grad + p->pair[k][1] * n;
        gap g = distance(x, y, n, c);
        double factor = 2 * g.slope * (double)record->out->grad[k] * (c > 0 ? c / (g.A * g.B) : 1);
        for (size_t i = 0; i < n; i++) { /* p depends on |x-y|^2, and on A and B */
            double difference = (double)x[i] - (double)y[i];
            dx[i] += (cmha_real)(factor * (difference + c * g.apart / g.A * (double)x[i]));
            dy[i] += (cmha_real)(factor * (-difference + c * g.apart / g.B * (double)y[i]));
        }
    }
    return CMHA_OK;
}

/* points [n, d] -> the distances of the plan's pairs [count]. */
static cmha_tensor *distances(cmha_tape *tape, cmha_tensor *points, const plan *p) {
    cmha_tensor *y = points ? cmha_tensor_new(tape, 1, &p->count, 0) : NULL;
    for (size_t k = 0; y && k < p->count; k++) {
        size_t n = points->shape[1];
        y->data[k] = (cmha_real)distance(points->data + p->pair[k][0] * n, points->data + p->pair[k][1] * n,
                                         n, (double)p->c)
                         .d;
    }
    return cmha_tape_push(tape, "distances", y, &points, 1, distances_backward, (void *)(size_t)p);
}

static cmha_tensor *op(network *net, const void *p) {
    return distances(&net->tape, ball(&net->tape, of(net, "v"), p), p);
}

static cmha_real edges(size_t a, size_t b) { /* the root is 0, the children of a are 2a + 1 and 2a + 2 */
    cmha_real count = 0;
    for (; a != b; count++) *(a > b ? &a : &b) = ((a > b ? a : b) - 1) / 2;
    return count;
}

/* Places the tree, down the mean of (distance - edges)^2 over all pairs; returns how
   far off ratios are, up to a factor. */
static double place(const char *name, size_t dimensions, cmha_real c) {
    static size_t pair[PAIRS][2];
    static cmha_real wanted[PAIRS];
    double mean = 0, off = 0;
    network net;
    network_open(&net, 4, ROWS({"v", {NODES, dimensions}, 0, 0.1, 0, 0}));
    cmha_tensor *v = of(&net, "v");
    plan all = {(const size_t(*)[2])pair, 0, c};
    for (size_t a = 0, depth = 0; a < NODES; a++) {
        for (size_t b = 0; b < a; b++)
            pair[all.count][0] = a, pair[all.count][1] = b, wanted[all.count++] = edges(a, b);
        while (a + 1 >= (size_t)2 << depth) depth++; /* a starts at its depth, in the middle of its sector */
        double sectors = (double)((size_t)1 << depth),
               turn = 6.283185307 * ((double)(a + 1) - sectors + 0.5) / sectors;
        v->data[a * dimensions] += (cmha_real)((double)depth / 2 * cos(turn));
        v->data[a * dimensions + 1] += (cmha_real)((double)depth / 2 * sin(turn));
    }
    for (int step = 0; step <= STEPS; step++) {
        cmha_tensor *y = distances(&net.tape, c > 0 ? ball(&net.tape, v, &all) : v, &all);
        /* first the mean ratio, then what differs from it */
        for (size_t k = 0; step == STEPS && y && k < 2 * PAIRS; k++) {
            double ratio = (double)(y->data[k % PAIRS] / wanted[k % PAIRS]);
            if (k < PAIRS) mean += ratio / PAIRS;
            else off += fabs(ratio / mean - 1) / PAIRS;
        }
        descend(&net, cmha_squared_error(&net.tape, y, wanted), 0.05 * (1 - (double)step / STEPS));
    }
    printf("%-25s distances off by %4.1f %% on average\n", name, 100 * off);
    network_close(&net);
    return 100 * off;
}

int main(void) {
    static const size_t pair[3][2] = {{0, 1}, {1, 2}, {3, 0}};
    plan p = {pair, 3, (cmha_real)0.7};
    network net;
    network_open(&net, 1, ROWS({"v", {4, 3}, 0, 0.6, 0, 0}));
    int wrong = check_gradient(&net, "exp_o and distance", op, &p);
    double hyperbolic = place("hyperbolic plane, c = 1", 2, 1), plane = place("Euclidean plane", 2, 0);
    place("Euclidean, 4 dimensions", 4, 0);
    verdict("the hyperbolic distance (-% off)", -hyperbolic, -plane, 1);
    return wrong;
}
