/* Angular attention on a graph (CRAT 7.6). CRAT eq 34 lets a node u look at its neighbours N(u) only,

       alpha_uv = softmax over v in N(u) of 1/sqrt(d) sum_j cos(phi_uj - phi_vj),
       y_u = sum_v alpha_uv W z_v

   Corrected: the paper has directed influence in mind, but before the softmax this score is the same for u, v
   and v, u. And with one z for both sides nothing that all nodes share can change it: the difference of two
   equal phases is 0. Each kind of edge therefore gets learnt offsets, cos(phi_uj - phi_vj + beta_kj) with k =
   0 where the edge is u -> v, 1 where it is v -> u; beta = 0 is the equation as printed.

   Tried on a random directed graph. Every node has one of four symbols; its class is the most frequent symbol
   among the nodes it points to. Neighbours on both ends of edges are seen. Baselines: the equation as
   printed, and the mean of the neighbours. */
#include "extension.h"

enum { NODES = 300, OUT = 3, EDGES = 2 * OUT * NODES, SYMBOLS = 4, D = 8 };

typedef struct edge {
    size_t from, to; /* `from` looks at `to` */
    size_t kind;
} edge;

typedef struct graph {
    size_t nodes, edges;
    const edge *edge; /* sorted by `from` */
    cmha_real *alpha; /* [edges], of one forward pass */
} graph;

static double score(const cmha_real *u, const cmha_real *v, const cmha_real *beta, size_t d, size_t j,
                    double *slope) {
    /* u conj(v) */
    double re = (double)(u[j] * v[j] + u[d + j] * v[d + j]), im = (double)(u[d + j] * v[j] - u[j] * v[d + j]);
    double c = cos((double)beta[j]), s = sin((double)beta[j]);
    /* by the angle: the cosine's derivative is minus the sine */
    *slope = -(re * s + im * c) / sqrt((double)d);
    return (re * c - im * s) / sqrt((double)d);
}

/* in: unit phasors u [V, 2D] of the phases, values [V, C], beta [kinds, D]. out [V, C]. */
static cmha_status look_backward(cmha_tape *tape, cmha_record *record) {
    const graph *g = (const graph *)record->user;
    const cmha_tensor *u = record->in[0], *x = record->in[1], *beta = record->in[2], *y = record->out;
    size_t d = beta->shape[1], w = x->shape[1];
    cmha_real *du = cmha_tape_grad(tape, record->in[0]), *dx = cmha_tape_grad(tape, record->in[1]),
              *dbeta = cmha_tape_grad(tape, record->in[2]);
    if (cmha_tape_status(tape)) return cmha_tape_status(tape);
    for (size_t e = 0; e < g->edges; e++) {
        size_t a = g->edge[e].from, b = g->edge[e].to, k = g->edge[e].kind * d;
        const cmha_real *ua = u->data + a * 2 * d, *ub = u->data + b * 2 * d, *dy = y->grad + a * w;
        double dalpha = 0, ds, slope;
        for (size_t i = 0; i < w; i++) {
            /* minus the mean */
            dalpha += (double)dy[i] * ((double)x->data[b * w + i] - (double)y->data[a * w + i]);
            if (dx) dx[b * w + i] += g->alpha[e] * dy[i];
        }
        ds = (double)g->alpha[e] * dalpha;
        for (size_t j = 0; j < d; j++) { /* by u: s = Re(u_a conj(u_b) e^{i beta}) / sqrt(d) */
            double turn = (double)beta->data[k + j], c = ds * cos(turn) / sqrt((double)d),
                   s = ds * sin(turn) / sqrt((double)d);
            score(ua, ub, beta->data + k, d, j, &slope);
            if (dbeta) dbeta[k + j] += (cmha_real)(ds * slope);
            if (!du) continue;
            du[a * 2 * d + j] += (cmha_real)(c * (double)ub[j] + s * (double)ub[d + j]);
            du[a * 2 * d + d + j] += (cmha_real)(c * (double)ub[d + j] - s * (double)ub[j]);
            du[b * 2 * d + j] += (cmha_real)(c * (double)ua[j] - s * (double)ua[d + j]);
            du[b * 2 * d + d + j] += (cmha_real)(c * (double)ua[d + j] + s * (double)ua[j]);
        }
    }
    return CMHA_OK;
}

static cmha_tensor *look(cmha_tape *tape, cmha_tensor *u, cmha_tensor *x, cmha_tensor *beta,
                         const graph *given) {
    cmha_tensor *in[3] = {u, x, beta}, *y = u && x && beta ? cmha_tensor_new(tape, 2, x->shape, 0) : NULL;
    graph *g = cmha_tape_alloc(tape, sizeof *g);
    cmha_real *alpha = cmha_tape_alloc(tape, given->edges * sizeof *alpha);
    if (!y || !g || !alpha) return NULL;
    *g = *given, g->alpha = alpha;
    /* the edges of one node; |score| <= sqrt(d) cannot overflow exp */
    for (size_t e = 0, end = 0; e < g->edges; e = end) {
        size_t a = g->edge[e].from, d = beta->shape[1], w = x->shape[1];
        double total = 0, slope;
        for (end = e; end < g->edges && g->edge[end].from == a; end++) {
            double s = 0;
            for (size_t j = 0; j < d; j++)
                s += score(u->data + a * 2 * d, u->data + g->edge[end].to * 2 * d,
                           beta->data + g->edge[end].kind * d, d, j, &slope);
            total += exp(s), alpha[end] = (cmha_real)exp(s);
        }
        for (size_t n = e; n < end; n++) {
            alpha[n] /= (cmha_real)total;
            for (size_t i = 0; i < w; i++) y->data[a * w + i] += alpha[n] * x->data[g->edge[n].to * w + i];
        }
    }
    return cmha_tape_push(tape, "graph attention", y, in, 3, look_backward, g);
}

static cmha_tensor *op(network *net, const void *user) {
    return look(&net->tape, of(net, "u"), of(net, "x"), of(net, "beta"), user);
}

static int by_from(const void *a, const void *b) {
    const edge *x = a, *y = b;
    size_t i = (x->from * NODES + x->to) * 2 + x->kind, j = (y->from * NODES + y->to) * 2 + y->kind;
    return (i > j) - (i < j);
}

/* offsets 1: beta is learnt; 0: it stays 0. phases 0: no attention, the mean of the neighbours. */
static double classify(const char *name, int phases, int offsets) {
    static edge all[EDGES];
    static int32_t symbol[NODES], class_of[NODES], train[NODES];
    graph g = {NODES, EDGES, all, NULL};
    double right = 0, asked = 0, learnt = 0, loss = 0;
    network net;
    network_open(&net, 8,
                 ROWS({"z", {SYMBOLS, 2 * D}, 0, phases ? 1 : 0, 0, 0}, {"x", {SYMBOLS, D}, 0, 1, 0, 0},
                      {"w", {SYMBOLS, D}, 0, 0.3, 0, 0}, {"bias", {SYMBOLS}, 0, 0, 0, 0},
                      {"beta", {2, D}, 0, offsets ? 0.3 : 0, 0, 0}));
    cmha_tensor *z = of(&net, "z"), *x = of(&net, "x"), *w = of(&net, "w"), *bias = of(&net, "bias");
    cmha_parameters_tune(&net.parameters, "beta", CMHA_TUNE_FROZEN, !offsets, NULL);
    cmha_parameters_tune(&net.parameters, "z", CMHA_TUNE_FROZEN, !phases, NULL); /* zeros: all scores 0 */
    for (size_t a = 0; a < NODES; a++) symbol[a] = (int32_t)cmha_rng_below(&net.rng, SYMBOLS);
    for (size_t a = 0; a < NODES; a++) {
        cmha_real count[SYMBOLS] = {0};
        for (size_t i = 0; i < OUT; i++) {
            size_t b = cmha_rng_below(&net.rng, NODES);
            count[symbol[b]]++;
            all[2 * (a * OUT + i)] = (edge){a, b, 0}, all[2 * (a * OUT + i) + 1] = (edge){b, a, 1};
        }
        class_of[a] = largest(count, SYMBOLS);
        train[a] = cmha_rng_uniform(&net.rng) < 0.6 ? class_of[a] : -1;
    }
    qsort(all, EDGES, sizeof *all, by_from);
    for (int step = 0; step <= 300; step++) {
        cmha_tensor *u =
            cmha_phasor(&net.tape, cmha_embedding(&net.tape, z, symbol, 1, NODES), (cmha_real)1e-3);
        cmha_tensor *values =
            cmha_reshape(&net.tape, cmha_embedding(&net.tape, x, symbol, 1, NODES), SHAPE(NODES, D));
        values = look(&net.tape, u, values, of(&net, "beta"), &g);
        cmha_tensor *logits = cmha_linear(&net.tape, values, w, bias);
        for (size_t a = 0; step == 300 && logits && a < NODES; a++) {
            int good = largest(logits->data + a * SYMBOLS, SYMBOLS) == class_of[a];
            if (train[a] < 0) asked += 1, right += good;
            else learnt += good;
        }
        loss = descend(&net, cmha_cross_entropy(&net.tape, logits, train, -1, NULL), 0.02);
    }
    printf("%-28s loss %.3f, right on the nodes trained on %5.1f %%, on the others %5.1f %%\n", name, loss,
           100 * learnt / (NODES - asked), 100 * right / asked);
    network_close(&net);
    return 100 * right / asked;
}

int main(void) {
    static const edge few[5] = {{0, 1, 0}, {0, 2, 1}, {1, 2, 0}, {2, 0, 1}, {2, 2, 0}};
    const graph g = {4, 5, few, NULL}; /* node 3 has no neighbour */
    network net;
    network_open(&net, 2,
                 ROWS({"u", {4, 6}, 0, 1, 0, 0}, {"x", {4, 2}, 0, 1, 0, 0}, {"beta", {2, 3}, 0, 1, 0, 0}));
    int wrong = check_gradient(&net, "graph attention", op, &g);
    double offsets = classify("with offsets by direction", 1, 1),
           printed = classify("eq 34 as printed", 1, 0);
    double mean = classify("mean of the neighbours", 0, 0);
    verdict("an offset by direction", offsets, printed, 4),
        verdict("eq 34 as printed, against a mean,", printed, mean, 4);
    return wrong;
}
