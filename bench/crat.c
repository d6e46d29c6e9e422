/* Sections of what CRAT adds: retrieval, experts. */
#include "bench/bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the search of a knowledge base against the matrix product it contains ---- */

typedef struct retrieval {
    cmha_knowledge base;
    size_t Q, k;
    cmha_real *queries, *similarity, *scores;
    int64_t *index;
} retrieval;

static void run_search(void *work) {
    retrieval *r = work;
    check(cmha_knowledge_search(&r->base, r->queries, r->Q, r->k, -1, r->index, r->similarity));
}

/* scores [Q, n] = queries features^T, documents split over the threads */
static void run_scores(void *work) {
    retrieval *r = work;
    size_t W = 2 * r->base.d_r;
    int part, parts = ctx.threads;
#ifdef _OPENMP
#pragma omp parallel for num_threads(parts)
#endif
    for (part = 0; part < parts; part++) {
        size_t begin = r->base.n * (size_t)part / (size_t)parts,
               end = r->base.n * (size_t)(part + 1) / (size_t)parts;
        cmha_gemm(0, 1, r->Q, end - begin, W, 1, r->queries, W, r->base.features + begin * W, W, 0,
                  r->scores + begin, r->base.n);
    }
}

static void bench_search(retrieval *r, size_t Q, const char *name) {
    job jobs[] = {{run_search, r, 0, 0}, {run_scores, r, 0, 0}, gemm_job()};
    double flops = 2e-9 * (double)(Q * r->base.n * 2 * r->base.d_r), rate;
    cell cells[2];
    r->Q = Q;
    compare(jobs, 3);
    rate = flops / jobs[0].time;
    cells[0] = (cell){1e3 * jobs[0].time, {rate / gemm_rate(&jobs[2]), jobs[0].time / jobs[1].time}};
    cells[1] = (cell){1e3 * jobs[1].time, {NAN, NAN}};
    report_row(name, Q, cells);
}

void bench_retrieval(void) {
    static const column columns[] = {{"search", "ms", {"gemm", "product"}, 0},
                                     {"product", "ms", {NULL, NULL}, 0}};
    const size_t n = quick ? 20000 : 100000, d_r = 128, most = 512;
    cmha_rng rng = cmha_rng_make(5, 0);
    cmha_real *vectors = array(n * 2 * d_r, &rng);
    char title[160];
    retrieval r;
    memset(&r, 0, sizeof r);
    check(cmha_knowledge_init(&r.base, &ctx, n, d_r, vectors, NULL, NULL, NULL));
    snprintf(title, sizeof title,
             "exact top 5 among %zu documents of %zu complex features, and the one product in it", n, d_r);
    report_table("retrieval", title, "n", columns, 2);
    r.k = 5;
    r.queries = array(most * 2 * d_r, &rng), r.similarity = array(most * r.k, NULL),
    r.scores = array(most * n, NULL);
    r.index = take(most * r.k * sizeof *r.index);
    bench_search(&r, most, "queries at once");
    bench_search(&r, 3, "queries of a token");
    bench_search(&r, 1, "one query");
    cmha_knowledge_close(&r.base);
    free(vectors), free(r.queries), free(r.similarity), free(r.scores), free(r.index);
}

/* a mixture of experts against one dense complex feed-forward, as wide as the experts a token goes to */

enum { EXPERT_TOKENS = 2048, EXPERT_WIDTH = 128, EXPERT_HIDDEN = 256, EXPERT_PARTS = 7 };

/* z, w1, b1, w2, b2, router and its bias, and their gradients; dense (E = 0):
   the first five, of hidden width F */
typedef struct mixture {
    size_t E, F, top;
    cmha_tape tape;
    cmha_real *x[EXPERT_PARTS], *dx[EXPERT_PARTS];
} mixture;

static int mixture_shape(const mixture *m, int part, size_t *shape) {
    const size_t T = EXPERT_TOKENS, D = EXPERT_WIDTH, F = m->F, E = m->E;
    const size_t of_experts[EXPERT_PARTS][4] = {{T, 2 * D}, {2, E, F, D}, {2, E, F}, {2, E, D, F},
                                                {2, E, D},  {2, E, D},    {E}};
    const size_t of_dense[5][4] = {{T, 2 * D}, {2, F, D}, {2, F}, {2, D, F}, {2, D}};
    int rank = 0;
    memcpy(shape, E ? of_experts[part] : of_dense[part], 4 * sizeof *shape);
    while (rank < 4 && shape[rank]) rank++;
    return rank;
}

static int mixture_parts(const mixture *m) { return m->E ? EXPERT_PARTS : 5; }

static size_t mixture_size(const mixture *m, int part) {
    size_t shape[4], n = 1;
    for (int i = 0, rank = mixture_shape(m, part, shape); i < rank; i++) n *= shape[i];
    return n;
}

static void mixture_open(mixture *m, size_t E, size_t F, size_t top) {
    cmha_rng rng = cmha_rng_make(5, 0);
    memset(m, 0, sizeof *m);
    m->E = E, m->F = F, m->top = top;
    check(cmha_tape_init(&m->tape, &ctx, 1));
    for (int i = 0; i < mixture_parts(m); i++) {
        size_t n = mixture_size(m, i);
        m->x[i] = array(n, &rng), m->dx[i] = array(n, NULL);
        for (size_t j = 0; i && j < n; j++) m->x[i][j] *= (cmha_real)0.05;
    }
}

static void mixture_close(mixture *m) {
    cmha_tape_close(&m->tape);
    for (int i = 0; i < mixture_parts(m); i++) free(m->x[i]), free(m->dx[i]);
}

static cmha_tensor *mixture_pass(mixture *m) {
    cmha_tape *tape = &m->tape;
    cmha_tensor *in[EXPERT_PARTS], *h;
    size_t shape[4];
    cmha_tape_reset(tape);
    for (int i = 0; i < mixture_parts(m); i++) {
        int rank = mixture_shape(m, i, shape);
        in[i] = cmha_tensor_wrap(tape, rank, shape, m->x[i], m->dx[i]);
    }
    h = m->E ? cmha_router(tape, in[0], in[5], in[6]) : cmha_complex_linear(tape, in[0], in[1], in[2]);
    const cmha_experts_tensors weights = {in[1], in[2], in[3], in[4]};
    const cmha_experts_options options = {m->top, NULL, NULL};
    if (m->E) return cmha_experts(tape, in[0], h, &weights, &options);
    return cmha_complex_linear(tape, cmha_activate(tape, h, CMHA_ACTIVATION_GELU_ERF), in[3], in[4]);
}

static void run_mixture_forward(void *work) {
    if (!mixture_pass(work)) die(1, cmha_error(&ctx), "");
}

static void run_mixture(void *work) {
    mixture *m = work;
    check(cmha_tape_backward(&m->tape, cmha_sum(&m->tape, mixture_pass(m)), 1));
}

static void bench_mixture(size_t E, size_t top) {
    mixture m, dense;
    job jobs[] = {{run_mixture_forward, &m, 0, 0}, {run_mixture, &m, 0, 0},
                  {run_mixture_forward, &dense, 0, 0}, {run_mixture, &dense, 0, 0}};
    cell cells[2];
    char name[40];
    mixture_open(&m, E, EXPERT_HIDDEN, top), mixture_open(&dense, 0, top * EXPERT_HIDDEN, 0);
    compare(jobs, 4);
    for (int i = 0; i < 2; i++) cells[i] = (cell){1e3 * jobs[i].time, {jobs[i].time / jobs[2 + i].time, NAN}};
    snprintf(name, sizeof name, "%zu experts, %zu each", E, top);
    report_row(name, E, cells);
    mixture_close(&m), mixture_close(&dense);
}

void bench_experts(void) {
    static const column columns[] = {{"forward", "ms", {"dense", NULL}, 0},
                                     {"with backward", "ms", {"dense", NULL}, 0}};
    char title[200];
    snprintf(title, sizeof title,
             "complex experts of width %d, %d hidden, %d tokens, with their router; dense: top x %d hidden",
             EXPERT_WIDTH, EXPERT_HIDDEN, EXPERT_TOKENS, EXPERT_HIDDEN);
    report_table("experts", title, "E", columns, 2);
    for (size_t E = 2; E <= (quick ? 4 : 32); E *= 2) bench_mixture(E, 2);
    for (size_t top = 1; top <= (quick ? 1 : 4); top *= 2) bench_mixture(8, top);
}
