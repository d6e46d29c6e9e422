/* What the complex residual, the router, the experts and the load balance must satisfy whatever their
   numbers are: against naive loops, permutations, numbers of threads, memory, and the edges (ties,
   NaN, huge numbers, nothing at all). */
#include "check.h"

enum { PARTS = 7 }; /* of a layer: z, router, its bias, w1, b1, w2, b2 */

typedef struct layer {
    size_t T, D, F, E, top, n[PARTS], all;
    cmha_real *x[PARTS], *dy, *forced; /* forced [T, E]: logits that take the router's place; NULL = none */
} layer;

/* What a pass over a layer gives: y, the gradient of every part one after another, the
   counts, the tape's largest extent */
typedef struct outcome {
    cmha_real *y, *grad, *logits;
    uint64_t *use;
    size_t peak;
} outcome;

static cmha_context context;

static layer layer_new(size_t T, size_t D, size_t F, size_t E, size_t top) {
    const size_t n[PARTS] = {2 * T * D, 2 * E * D, E, 2 * E * F * D, 2 * E * F, 2 * E * D * F, 2 * E * D};
    layer l;
    int i;
    memset(&l, 0, sizeof l);
    l.T = T, l.D = D, l.F = F, l.E = E, l.top = top;
    for (i = 0; i < PARTS; i++) l.n[i] = n[i], l.all += n[i], l.x[i] = check_array(n[i], i < 3 ? 1 : 0.4);
    l.dy = check_array(2 * T * D, 1);
    return l;
}

static void layer_free(layer *l) {
    int i;
    for (i = 0; i < PARTS; i++) free(l->x[i]);
    free(l->dy), free(l->forced);
}

static outcome outcome_new(const layer *l) {
    outcome o;
    memset(&o, 0, sizeof o);
    o.y = check_zeros(2 * l->T * l->D), o.grad = check_zeros(l->all), o.logits = check_zeros(l->T * l->E);
    o.use = (uint64_t *)check_alloc(l->E, sizeof *o.use);
    return o;
}

static void outcome_free(outcome *o) { free(o->y), free(o->grad), free(o->logits), free(o->use); }

/* Parts as tensors; with gradients in `grad` where it is not NULL */
static void layer_tensors(const layer *l, cmha_tape *tape, cmha_real *grad, cmha_tensor **in) {
    const size_t T = l->T, D = l->D, F = l->F, E = l->E;
    const size_t shape[PARTS][4] = {{T, 2 * D}, {2, E, D},    {E},      {2, E, F, D},
                                    {2, E, F},  {2, E, D, F}, {2, E, D}};
    static const int rank[PARTS] = {2, 3, 1, 4, 3, 4, 3};
    int i;
    for (i = 0; i < PARTS; i++) {
        in[i] = cmha_tensor_wrap(tape, rank[i], shape[i], l->x[i], grad);
        if (grad) grad += l->n[i];
    }
}

static cmha_tensor *layer_logits(const layer *l, cmha_tape *tape, cmha_tensor **in) {
    size_t shape[2];
    shape[0] = l->T, shape[1] = l->E;
    return l->forced ? cmha_tensor_wrap(tape, 2, shape, l->forced, NULL)
                     : cmha_router(tape, in[0], in[1], in[2]);
}

static cmha_tensor *layer_experts(const layer *l, cmha_tape *tape, cmha_tensor **in, cmha_tensor *logits,
                                  uint64_t *use) {
    const cmha_experts_tensors weights = {in[3], in[4], in[5], in[6]};
    const cmha_experts_options options = {l->top, NULL, use};
    return cmha_experts(tape, in[0], logits, &weights, &options);
}

/* One pass forward and backward on a tape of a context of its own. */
static outcome layer_run(const layer *l, int threads, int dry) {
    outcome o = outcome_new(l);
    cmha_tensor *in[PARTS], *logits, *y, *loss;
    cmha_context own;
    cmha_tape tape;
    check_context(&own, threads, 3);
    CHECK_OK(cmha_tape_init(&tape, &own, 1));
    tape.memory.measuring = dry;
    layer_tensors(l, &tape, o.grad, in);
    logits = layer_logits(l, &tape, in);
    y = layer_experts(l, &tape, in, logits, o.use);
    CHECK_THAT(y != NULL, "%s", cmha_error(&own));
    if (y && !dry)
        memcpy(o.y, y->data, y->size * sizeof *o.y),
            memcpy(o.logits, logits->data, logits->size * sizeof *o.y);
    loss = cmha_sum(&tape, cmha_mul(&tape, y, cmha_tensor_wrap(&tape, 2, in[0]->shape, l->dy, NULL)));
    CHECK_OK(cmha_tape_backward(&tape, cmha_add(&tape, loss, cmha_balance(&tape, logits, l->top, NULL)), 1));
    o.peak = tape.memory.peak;
    cmha_tape_close(&tape);
    cmha_context_close(&own);
    return o;
}

/* ------------------------------------------------ naive ------------------------------------------------- */

static double naive_gelu(double x) { return x / 2 * erfc(-x / sqrt(2.0)); }

/* y [2 O] = W x + b of expert e; w [2, E, O, I], b [2, E, O], in double */
static void naive_linear(const cmha_real *w, const cmha_real *b, size_t E, size_t O, size_t I, size_t e,
                         const double *x, double *y) {
    size_t o, i;
    for (o = 0; o < O; o++) {
        double re = (double)b[e * O + o], im = (double)b[(E + e) * O + o];
        for (i = 0; i < I; i++) {
            double wr = (double)w[(e * O + o) * I + i], wi = (double)w[((E + e) * O + o) * I + i];
            re += wr * x[i] - wi * x[I + i];
            im += wr * x[I + i] + wi * x[i];
        }
        y[o] = re, y[O + o] = im;
    }
}

/* y [2 D] of token t: experts in the order of their logits, ties to the lower index, one after another */
static void naive_token(const layer *l, const cmha_real *logits, size_t t, double *y, uint64_t *use) {
    size_t D = l->D, F = l->F, c, e, j;
    double *x = (double *)check_alloc(2 * D, sizeof *x), *h = (double *)check_alloc(2 * F, sizeof *h);
    double *out = (double *)check_alloc(2 * D, sizeof *out), sum = 0, top = 0;
    unsigned char *taken = (unsigned char *)check_alloc(l->E, 1);
    for (j = 0; j < 2 * D; j++) x[j] = (double)l->x[0][2 * t * D + j], y[j] = 0;
    for (c = 0; c < l->top; c++) {
        size_t best = l->E;
        double weight;
        for (e = 0; e < l->E; e++)
            if (!taken[e] && (best == l->E || logits[e] > logits[best])) best = e;
        taken[best] = 1;
        use[best]++;
        if (c == 0) top = (double)logits[best];
        sum += weight = exp((double)logits[best] - top);
        naive_linear(l->x[3], l->x[4], l->E, F, D, best, x, h);
        for (j = 0; j < 2 * F; j++) h[j] = naive_gelu(h[j]);
        naive_linear(l->x[5], l->x[6], l->E, D, F, best, h, out);
        for (j = 0; j < 2 * D; j++) y[j] += weight * out[j];
    }
    for (j = 0; j < 2 * D; j++) y[j] /= sum;
    free(x), free(h), free(out), free(taken);
}

static void against_naive(size_t T, size_t D, size_t F, size_t E, size_t top) {
    layer l = layer_new(T, D, F, E, top);
    outcome o = layer_run(&l, 2, 0);
    uint64_t *use = (uint64_t *)check_alloc(E, sizeof *use), total = 0;
    double *want = (double *)check_alloc(2 * D, sizeof *want), worst = 0, largest = 1e-3;
    size_t t, j, e;
    for (t = 0; t < T; t++) {
        naive_token(&l, o.logits + t * E, t, want, use);
        for (j = 0; j < 2 * D; j++) {
            worst = fmax(worst, fabs((double)o.y[2 * t * D + j] - want[j]));
            largest = fmax(largest, fabs(want[j]));
        }
    }
    CHECK_THAT(worst <= check_tolerance(1e-13, 2e-5) * largest, "T %zu D %zu F %zu top %zu of %zu: off by %g",
               T, D, F, top, E, worst);
    for (e = 0; e < E; e++) CHECK(use[e] == o.use[e]), total += o.use[e];
    CHECK(total == T * top);
    free(use), free(want);
    outcome_free(&o), layer_free(&l);
}

/* ----------------------------------------------- routing ------------------------------------------------ */

/* Gates sum to 1, fall with their rank, and go to distinct experts (identity 20) */
static void gates(size_t T, size_t E, size_t top) {
    cmha_real *logits = check_array(T * E, 8), *gate = check_zeros(T * top);
    size_t *plan = (size_t *)check_alloc(cmha_route_size(T, E, top), sizeof *plan), t, c, d;
    const cmha_route_args route = {T, 0, E, top, NULL, 1};
    cmha_route_forward(&route, logits, plan, gate);
    for (t = 0; t < T; t++) {
        double sum = 0;
        for (c = 0; c < top; c++) {
            sum += (double)gate[t * top + c];
            CHECK(plan[t * top + c] < E && (!c || gate[t * top + c] <= gate[t * top + c - 1]));
            for (d = 0; d < c; d++) CHECK(plan[t * top + c] != plan[t * top + d]);
        }
        CHECK_NEAR(sum, 1, check_tolerance(1e-15, 1e-6));
    }
    free(logits), free(gate), free(plan);
}

/* The order of a row by hand: NaN, then larger, then lower index */
static void order(void) {
    enum { E = 6, ROWS = 5 };
    const cmha_real inf = (cmha_real)INFINITY, nan = (cmha_real)NAN;
    const cmha_real logits[ROWS][E] = {{1, 3, 2, 3, 3, 0}, {0, 0, 0, 0, 0, 0}, {1, nan, 5, nan, 2, 9},
                                       {-inf, -inf, 1, -inf, 2, -inf}, {0, -0.0f, 0, 1, 1, -0.0f}};
    static const size_t want[ROWS][E] = {{1, 3, 4, 2, 0, 5},
                                         {0, 1, 2, 3, 4, 5},
                                         {1, 3, 5, 2, 4, 0},
                                         {4, 2, 0, 1, 3, 5},
                                         {3, 4, 0, 1, 2, 5}};
    size_t plan[64 * ROWS], top, t, c;
    cmha_real gate[ROWS * E];
    for (top = 1; top <= E; top++) {
        CHECK(cmha_route_size(ROWS, E, top) <= 64 * ROWS);
        const cmha_route_args route = {ROWS, 0, E, top, NULL, 1};
        cmha_route_forward(&route, logits[0], plan, gate);
        for (t = 0; t < ROWS; t++)
            for (c = 0; c < top; c++) CHECK(plan[t * top + c] == want[t][c]);
        for (c = 0; c < top; c++) CHECK_NEAR(gate[top + c], 1.0 / (double)top, 1e-6);
        CHECK(gate[2 * top] != gate[2 * top]); /* a NaN shows */
    }
}

/* What a permutation does to the parts that belong to experts: part i is [planes, E, size] */
static void permute(layer *l, const size_t *to) {
    static const size_t planes[PARTS] = {0, 2, 1, 2, 2, 2, 2};
    size_t plane, e;
    int i;
    for (i = 1; i < PARTS; i++) {
        size_t size = l->n[i] / planes[i] / l->E;
        cmha_real *moved = check_zeros(l->n[i]);
        for (plane = 0; plane < planes[i]; plane++)
            for (e = 0; e < l->E; e++)
                memcpy(moved + (plane * l->E + to[e]) * size, l->x[i] + (plane * l->E + e) * size,
                       size * sizeof *moved);
        free(l->x[i]);
        l->x[i] = moved;
    }
}

static void permutation(void) {
    static const size_t to[5] = {3, 0, 4, 1, 2};
    layer l = layer_new(150, 9, 13, 5, 2);
    outcome a = layer_run(&l, 2, 0), b;
    size_t e;
    permute(&l, to);
    b = layer_run(&l, 2, 0);
    CHECK_NEAR(check_distance(a.y, b.y, l.n[0]), 0,
               check_tolerance(1e-14, 1e-6) * check_largest(a.y, l.n[0]));
    CHECK_NEAR(check_distance(a.grad, b.grad, l.n[0]), 0,
               check_tolerance(1e-13, 5e-6) * check_largest(a.grad, l.n[0]));
    for (e = 0; e < 5; e++) CHECK(a.use[e] > 0 && a.use[e] == b.use[to[e]]);
    outcome_free(&a), outcome_free(&b), layer_free(&l);
}

/* --------------------------------------------- determinism ---------------------------------------------- */

/* The same bits for any number of threads, in y and in every gradient */
static void threads(size_t T, size_t D, size_t F, size_t E, size_t top) {
    layer l = layer_new(T, D, F, E, top);
    outcome one = layer_run(&l, 1, 0), many;
    int n;
    CHECK(check_finite(one.grad, l.all) && check_largest(one.grad, l.n[0]) > 1e-3);
    for (n = 2; n <= 5; n += 3) {
        many = layer_run(&l, n, 0);
        CHECK(!memcmp(one.y, many.y, l.n[0] * sizeof *one.y));
        CHECK(!memcmp(one.grad, many.grad, l.all * sizeof *one.grad));
        CHECK(!memcmp(one.use, many.use, E * sizeof *one.use));
        outcome_free(&many);
    }
    outcome_free(&one), layer_free(&l);
}

static void force(layer *l, size_t favourite, size_t modulus) {
    size_t t, e;
    free(l->forced);
    l->forced = check_array(l->T * l->E, 1);
    for (t = 0; modulus && t < l->T; t++)
        for (e = 0; e < l->E; e++) l->forced[t * l->E + e] += (e + t % modulus) % l->E == favourite ? 5 : 0;
}

/* A dry run counts what every routing takes: scattered, all tokens with one expert, spread evenly */
static void memory(void) {
    layer l = layer_new(130, 8, 12, 4, 2);
    size_t wanted = 0, how;
    outcome o;
    for (how = 0; how < 4; how++) {
        force(&l, 1, how == 2 ? 1 : how == 3 ? l.E : 0);
        o = layer_run(&l, 2, how == 0);
        if (how == 0) wanted = o.peak;
        else CHECK_THAT(o.peak == wanted, "%zu bytes, in a dry run %zu", o.peak, wanted);
        if (how == 2) CHECK(o.use[1] == l.T);
        if (how == 0) CHECK(o.use[0] + o.use[1] + o.use[2] + o.use[3] == 0); /* nothing was routed */
        outcome_free(&o);
    }
    layer_free(&l);
}

/* Without a recording the same numbers, and the counts add up over passes */
static void inference(void) {
    layer l = layer_new(70, 6, 7, 3, 2);
    outcome o = layer_run(&l, 2, 0);
    cmha_tensor *in[PARTS], *y;
    cmha_tape tape;
    size_t e;
    CHECK_OK(cmha_tape_init(&tape, &context, 0));
    layer_tensors(&l, &tape, NULL, in);
    y = layer_experts(&l, &tape, in, layer_logits(&l, &tape, in), o.use);
    CHECK(y && !memcmp(y->data, o.y, l.n[0] * sizeof *o.y));
    for (e = 0; e < l.E; e++) CHECK(o.use[e] % 2 == 0);
    CHECK(o.use[0] + o.use[1] + o.use[2] == 2 * l.T * l.top);
    cmha_tape_close(&tape);
    outcome_free(&o), layer_free(&l);
}

/* Frozen experts: the gradients of what is in front of them are what they were */
static void frozen(void) {
    layer l = layer_new(40, 5, 6, 4, 2);
    outcome o = layer_run(&l, 2, 0);
    cmha_real *grad = check_zeros(l.all), *dz = check_zeros(l.n[0]);
    cmha_tensor *in[PARTS], *logits, *loss;
    cmha_tape tape;
    int i;
    CHECK_OK(cmha_tape_init(&tape, &context, 1));
    layer_tensors(&l, &tape, grad, in);
    for (i = 1; i < PARTS; i++) in[i]->grad = NULL, in[i]->needs_grad = 0;
    in[0]->grad = dz;
    logits = layer_logits(&l, &tape, in);
    loss = cmha_mul(&tape, layer_experts(&l, &tape, in, logits, NULL),
                    cmha_tensor_wrap(&tape, 2, in[0]->shape, l.dy, NULL));
    CHECK_OK(cmha_tape_backward(&tape,
                           cmha_add(&tape, cmha_sum(&tape, loss), cmha_balance(&tape, logits, l.top, NULL)),
                           1));
    CHECK_NEAR(check_distance(dz, o.grad, l.n[0]), 0,
               check_tolerance(1e-13, 1e-5) * check_largest(dz, l.n[0]));
    cmha_tape_close(&tape);
    free(grad), free(dz);
    outcome_free(&o), layer_free(&l);
}

/* ------------------------------------------------ edges ------------------------------------------------- */

/* A token of NaN or of huge numbers harms no other one, and comes out the same every time */
static void bad_numbers(void) {
    const cmha_real values[4] = {(cmha_real)NAN, (cmha_real)1e30, (cmha_real)INFINITY, (cmha_real)-1e30};
    layer l = layer_new(20, 4, 5, 3, 2);
    outcome good = layer_run(&l, 2, 0), a, b;
    size_t t, j, W = 2 * l.D;
    int i;
    for (i = 0; i < 4; i++) {
        for (j = 0; j < W; j++) l.x[0][7 * W + j] = values[i];
        a = layer_run(&l, 1, 0), b = layer_run(&l, 2, 0);
        for (t = 0; t < l.T; t++)
            for (j = t * W; j < (t + 1) * W; j++) {
                int same = a.y[j] == b.y[j] || (a.y[j] != a.y[j] && b.y[j] != b.y[j]);
                CHECK_THAT(same && (t == 7 || fabs((double)(a.y[j] - good.y[j])) < 1e-5),
                           "value %d, token %zu", i, t);
            }
        if (i == 0) CHECK(a.y[7 * W] != a.y[7 * W]);
        if (i == 1) CHECK(check_finite(a.y, l.n[0]) || sizeof(cmha_real) == sizeof(float));
        outcome_free(&a), outcome_free(&b);
    }
    outcome_free(&good), layer_free(&l);
}

/* Logits far apart and beyond the range of exp: the gate is 1, as with the one expert alone */
static void huge_logits(void) {
    layer l = layer_new(9, 3, 4, 3, 2);
    outcome two, one;
    size_t t;
    l.forced = check_zeros(l.T * l.E);
    for (t = 0; t < l.T; t++) {
        l.forced[t * l.E] = (cmha_real)(t % 2 ? 1e30 : -1e30);
        l.forced[t * l.E + 1] = t % 3 ? 0 : -(cmha_real)INFINITY;
        l.forced[t * l.E + 2] = (cmha_real)(t % 2 ? -1e30 : 1e30);
    }
    two = layer_run(&l, 2, 0);
    l.top = 1;
    one = layer_run(&l, 2, 0);
    CHECK(check_finite(two.y, l.n[0]) && check_finite(two.grad, l.all) && check_largest(two.y, l.n[0]) > 0);
    CHECK_NEAR(check_distance(one.y, two.y, l.n[0]), 0, 1e-6);
    outcome_free(&one), outcome_free(&two), layer_free(&l);
}

/* No tokens, no width, no hidden units (then the biases are all) */
static void nothing(void) {
    static const size_t sizes[3][3] = {{0, 3, 4}, {3, 0, 4}, {3, 2, 0}};
    size_t i, j, t;
    for (i = 0; i < 3; i++) {
        layer l = layer_new(sizes[i][0], sizes[i][1], sizes[i][2], 3, 2);
        outcome o = layer_run(&l, 2, 0);
        CHECK(check_finite(o.grad, l.all) && o.use[0] + o.use[1] + o.use[2] == 2 * l.T);
        for (t = 0; i == 2 && t < l.T; t++)
            for (j = 0; j < 2; j++) { /* a mean of the second biases */
                const cmha_real *b = l.x[6] + j;
                double low = fmin((double)b[0], fmin((double)b[2], (double)b[4])),
                       y = (double)o.y[2 * t * l.D + j];
                double high = fmax((double)b[0], fmax((double)b[2], (double)b[4]));
                CHECK(y > low - 1e-6 && y < high + 1e-6);
            }
        outcome_free(&o), layer_free(&l);
    }
}

static cmha_tensor *shaped(cmha_tape *tape, int rank, size_t a, size_t b, size_t c, size_t d) {
    size_t shape[4];
    shape[0] = a, shape[1] = b, shape[2] = c, shape[3] = d;
    return cmha_tensor_new(tape, rank, shape, 0);
}

#define REFUSED(call, why)                                               \
    do {                                                                 \
        CHECK((call) == NULL);                                           \
        CHECK_IS(cmha_tape_status(&tape), why);                          \
        CHECK(strlen(cmha_error(&context)) > 10);                        \
        cmha_tape_reset(&tape);                                          \
    } while (0)
#define SHAPED(rank, a, b, c, d) shaped(&tape, rank, a, b, c, d)
#define EXPERTS(z, logits, top, w1, b1, w2, b2)                                  \
    cmha_experts(&tape, z, logits, &(const cmha_experts_tensors){w1, b1, w2, b2}, \
                 &(const cmha_experts_options){top, NULL, NULL})

static void refusals(void) {
    cmha_tape tape;
    CHECK_OK(cmha_tape_init(&tape, &context, 1));
#define Z_ SHAPED(2, 4, 6, 0, 0)
#define L_ SHAPED(2, 4, 5, 0, 0)
#define W1_ SHAPED(4, 2, 5, 7, 3)
#define W2_ SHAPED(4, 2, 5, 3, 7)
    CHECK(EXPERTS(Z_, L_, 2, W1_, NULL, W2_, NULL) != NULL);
    REFUSED(EXPERTS(SHAPED(2, 4, 7, 0, 0), L_, 2, W1_, NULL, W2_, NULL), CMHA_ERR_SHAPE);
    REFUSED(EXPERTS(SHAPED(2, 4, 8, 0, 0), L_, 2, W1_, NULL, W2_, NULL), CMHA_ERR_SHAPE);
    REFUSED(EXPERTS(Z_, SHAPED(2, 4, 4, 0, 0), 2, W1_, NULL, W2_, NULL), CMHA_ERR_SHAPE);
    REFUSED(EXPERTS(Z_, SHAPED(2, 3, 5, 0, 0), 2, W1_, NULL, W2_, NULL), CMHA_ERR_SHAPE);
    REFUSED(EXPERTS(Z_, L_, 2, SHAPED(3, 2, 35, 3, 0), NULL, W2_, NULL), CMHA_ERR_SHAPE);
    REFUSED(EXPERTS(Z_, L_, 2, W1_, NULL, SHAPED(4, 2, 5, 7, 3), NULL), CMHA_ERR_SHAPE);
    REFUSED(EXPERTS(Z_, L_, 2, W1_, SHAPED(3, 2, 5, 3, 0), W2_, NULL), CMHA_ERR_SHAPE);
    REFUSED(EXPERTS(Z_, L_, 2, W1_, NULL, W2_, SHAPED(3, 2, 5, 7, 0)), CMHA_ERR_SHAPE);
    REFUSED(EXPERTS(Z_, L_, 0, W1_, NULL, W2_, NULL), CMHA_ERR_ARGUMENT);
    REFUSED(EXPERTS(Z_, L_, 6, W1_, NULL, W2_, NULL), CMHA_ERR_ARGUMENT);
    REFUSED(cmha_router(&tape, Z_, SHAPED(3, 2, 5, 4, 0), NULL), CMHA_ERR_SHAPE);
    REFUSED(cmha_router(&tape, Z_, SHAPED(2, 2, 15, 0, 0), NULL), CMHA_ERR_SHAPE);
    REFUSED(cmha_router(&tape, Z_, SHAPED(3, 2, 5, 3, 0), SHAPED(1, 3, 0, 0, 0)), CMHA_ERR_SHAPE);
    REFUSED(cmha_router(&tape, SHAPED(2, 4, 7, 0, 0), SHAPED(3, 2, 5, 3, 0), NULL), CMHA_ERR_SHAPE);
    REFUSED(cmha_balance(&tape, L_, 0, NULL), CMHA_ERR_ARGUMENT);
    REFUSED(cmha_balance(&tape, L_, 6, NULL), CMHA_ERR_ARGUMENT);
    REFUSED(cmha_complex_residual(&tape, Z_, L_, SHAPED(1, 1, 0, 0, 0), NULL), CMHA_ERR_SHAPE);
    REFUSED(cmha_complex_residual(&tape, Z_, Z_, SHAPED(1, 2, 0, 0, 0), NULL), CMHA_ERR_SHAPE);
    REFUSED(cmha_complex_residual(&tape, Z_, Z_, SHAPED(1, 1, 0, 0, 0), SHAPED(1, 0, 0, 0, 0)),
            CMHA_ERR_SHAPE);
    REFUSED(cmha_complex_residual(&tape, L_, L_, SHAPED(1, 1, 0, 0, 0), NULL), CMHA_ERR_SHAPE);
    CHECK(!EXPERTS(NULL, NULL, 1, NULL, NULL, NULL, NULL) && !cmha_router(&tape, NULL, NULL, NULL));
    CHECK(!cmha_balance(&tape, NULL, 1, NULL) && !cmha_complex_residual(&tape, NULL, NULL, NULL, NULL));
    CHECK_OK(cmha_tape_status(&tape));
    cmha_tape_close(&tape);
}

/* However many allocations succeed, the pass ends with a status and everything is given back */
static void out_of_memory(void) {
    layer l = layer_new(33, 16, 24, 4, 2);
    cmha_real *grad = check_zeros(l.all);
    size_t fail, refused = 0;
    for (fail = 1; fail < 40; fail++) {
        cmha_tensor *in[PARTS], *y;
        check_heap heap;
        cmha_context_config config = check_heap_config(&heap);
        cmha_context own;
        cmha_tape tape;
        heap.fail_at = fail;
        CHECK_OK(cmha_context_init(&own, &config));
        CHECK_OK(cmha_tape_init(&tape, &own, 1));
        layer_tensors(&l, &tape, grad, in);
        y = cmha_router(&tape, in[0], in[1], in[2]);
        y = layer_experts(&l, &tape, in, y, NULL);
        cmha_tape_backward(&tape, cmha_sum(&tape, y), 1);
        if (cmha_tape_status(&tape)) refused++, CHECK_IS(cmha_tape_status(&tape), CMHA_ERR_MEMORY);
        cmha_tape_close(&tape);
        cmha_context_close(&own);
        CHECK(check_heap_empty(&heap));
    }
    CHECK(refused > 2 && refused < 38);
    free(grad), layer_free(&l);
}

/* ----------------------------------------------- balance ------------------------------------------------ */

static void balance(void) {
    enum { T = 12, E = 4 };
    cmha_real logits[T * E] = {0}, d[T * E] = {0};
    unsigned char mask[T] = {0};
    double share[2 * E + 1], sum = 0;
    size_t t, e;
    cmha_route_args all = {T, 0, E, 2, NULL, 1}, some = {T, 0, E, 2, mask, 1};
    /* even probabilities, whatever the shares */
    CHECK_NEAR(cmha_balance_forward(&all, logits, share), 1, 1e-6);
    CHECK(share[0] == 0.5 && share[1] == 0.5 && share[2] == 0 && share[E] > 0.2499 && share[E] < 0.2501);
    CHECK(cmha_balance_forward(&some, logits, share) == 0);
    cmha_balance_backward(&some, logits, share, 1, d);
    CHECK(check_largest(d, T * E) == 0);
    for (t = 0; t < T; t++) logits[t * E + t % E] = 50, mask[t] = t % E == 1;
    all.top = some.top = 1;
    CHECK_NEAR(cmha_balance_forward(&all, logits, share), 1, 1e-6);
    /* all counted tokens with one expert */
    CHECK_NEAR(cmha_balance_forward(&some, logits, share), E, 1e-5);
    all.top = E;
    CHECK_NEAR(cmha_balance_forward(&all, logits, share), 1, 1e-6);
    logits[3] = (cmha_real)NAN, all.top = 2;
    sum = cmha_balance_forward(&all, logits, share);
    CHECK(sum != sum);
    CHECK_NEAR(cmha_balance_forward(&some, logits, share), E, 1e-5); /* a token that is not counted */
    for (e = 0, sum = 0; e < E; e++) sum += share[e];
    CHECK_NEAR(sum, 1, 1e-12);
    all.T = 0;
    CHECK(cmha_balance_forward(&all, logits, share) == 0);
}

/* ----------------------------------------------- residual ----------------------------------------------- */

static void residual(void) {
    enum { T = 7, D = 5, N = 2 * T * D };
    cmha_real *z = check_array(N, 2), *f = check_array(N, 2), *none = check_zeros(N), y[N], turned[N];
    size_t i, shape[2] = {T, 2 * D}, one = 1;
    cmha_real psi = (cmha_real)0.7, worst = 0;
    double a = 0, b = 0;
    cmha_tensor *out, *tz;
    cmha_tape tape;
    const cmha_complex_residual_args sum = {T, D, 1, 0};
    const cmha_complex_residual_args turn = {T, D, (cmha_real)cos(0.7), (cmha_real)sin(0.7)};
    const cmha_complex_residual_args both = {T, D, 2, -3}, no_rows = {0, D, 2, -3};
    cmha_complex_residual_forward(&sum, z, f, y);
    for (i = 0; i < N; i++) CHECK(y[i] == z[i] + f[i]);
    CHECK_OK(cmha_tape_init(&tape, &context, 0));
    tz = cmha_tensor_wrap(&tape, 2, shape, z, NULL);
    out = cmha_complex_residual(&tape, tz, cmha_tensor_wrap(&tape, 2, shape, none, NULL),
                                cmha_tensor_wrap(&tape, 1, &one, &psi, NULL), NULL);
    CHECK(out != NULL);
    cmha_complex_residual_forward(&turn, z, none, turned);
    for (i = 0; out && i < T * D; i++) { /* the angle's form keeps every modulus */
        size_t re = i / D * 2 * D + i % D, im = re + D;
        double before = hypot((double)z[re], (double)z[im]),
               after = hypot((double)out->data[re], (double)out->data[im]);
        worst = (cmha_real)fmax((double)worst, fabs(after - before));
    }
    CHECK_NEAR(worst, 0, check_tolerance(1e-15, 1e-6));
    CHECK(out && check_distance(out->data, turned, N) < 1e-6);
    memcpy(y, f, sizeof y);
    cmha_complex_residual_forward(&both, z, f, turned);
    cmha_complex_residual_forward(&both, z, y, y); /* in place of f */
    CHECK(!memcmp(y, turned, sizeof y));
    z[3] = (cmha_real)NAN;
    cmha_complex_residual_forward(&both, z, f, y);
    CHECK(y[3] != y[3] && y[3 + D] != y[3 + D] && y[2] == turned[2] && y[4] == turned[4]);
    cmha_complex_residual_backward(&no_rows, z, f, NULL, &a, &b);
    CHECK(a == 0 && b == 0);
    cmha_tape_close(&tape);
    free(z), free(f), free(none);
}

/* The sums over all numbers: the same bits on a tape with any number of threads, and true in double */
static void residual_sums(void) {
    enum { T = 300, D = 21, N = 2 * T * D };
    cmha_real *z = check_array(N, 1), *g = check_array(N, 1), *dz = check_zeros(N), alpha = 1, beta = 0,
              sums[4] = {0};
    size_t shape[2] = {T, 2 * D}, one = 1, t, j;
    double re = 0, im = 0, kernel[2] = {0, 0};
    int threads;
    for (t = 0; t < T; t++)
        for (j = 2 * t * D; j < (2 * t + 1) * D; j++) {
            re += (double)z[j] * (double)g[j] + (double)z[j + D] * (double)g[j + D];
            im += (double)z[j] * (double)g[j + D] - (double)z[j + D] * (double)g[j];
        }
    for (threads = 1; threads <= 2; threads++) {
        cmha_context own;
        cmha_tape tape;
        cmha_tensor *y;
        check_context(&own, threads, 1);
        CHECK_OK(cmha_tape_init(&tape, &own, 1));
        y = cmha_complex_residual(&tape, cmha_tensor_wrap(&tape, 2, shape, z, NULL),
                                  cmha_tensor_wrap(&tape, 2, shape, z, NULL),
                                  cmha_tensor_wrap(&tape, 1, &one, &alpha, sums + 2 * threads - 2),
                                  cmha_tensor_wrap(&tape, 1, &one, &beta, sums + 2 * threads - 1));
        y = cmha_sum(&tape, cmha_mul(&tape, y, cmha_tensor_wrap(&tape, 2, shape, g, NULL)));
        CHECK_OK(cmha_tape_backward(&tape, y, 1));
        cmha_tape_close(&tape);
        cmha_context_close(&own);
    }
    const cmha_complex_residual_args args = {T, D, alpha, beta};
    cmha_complex_residual_backward(&args, z, g, dz, kernel, kernel + 1);
    CHECK(sums[0] == sums[2] && sums[1] == sums[3]);
    CHECK_NEAR(sums[0], re, check_tolerance(1e-11, 1e-5));
    CHECK_NEAR(sums[1], im, check_tolerance(1e-11, 1e-5));
    CHECK_NEAR(kernel[0], re, 1e-11);
    CHECK_NEAR(kernel[1], im, 1e-11);
    CHECK(!memcmp(dz, g, N * sizeof *g));
    free(z), free(g), free(dz);
}

int main(int argc, char **argv) {
    (void)argc;
    cmha_blas_restart(argv);
    check_context(&context, 2, 1);
    against_naive(37, 9, 14, 5, 2), against_naive(1, 9, 14, 5, 2), against_naive(150, 7, 5, 3, 1),
        against_naive(70, 5, 6, 4, 4);
    against_naive(3, 1, 1, 1, 1), against_naive(5, 2, 70, 9, 3);
    gates(20, 6, 1), gates(20, 6, 2), gates(20, 6, 6), gates(3, 1, 1);
    order(), permutation();
    threads(300, 34, 70, 5, 2), threads(3, 5, 6, 7, 2), threads(130, 66, 65, 2, 1);
    memory(), inference(), frozen();
    bad_numbers(), huge_logits(), nothing(), refusals(), out_of_memory();
    balance();
    residual(), residual_sums();
    cmha_context_close(&context);
    return check_end();
}
