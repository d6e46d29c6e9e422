/* Measures this machine: matrix products, the CMHA feature map, attention, training, memory; `bench kinds` instead holds all kinds of
   attention against each other, `bench retrieval` the search of a knowledge base against the product it contains, `bench experts` the
   mixture of experts against a dense feed-forward. Medians of up to five runs after one that does not count; everything compared within
   one call, because clocks and neighbours differ from one call to the next. */
#define CMHA_IMPLEMENTATION
#include "cmha.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

enum { RUNS = 5, HEADS = 8, DK = 64 };

static cmha_context ctx;
static double machine; /* GFLOP/s of the fastest matrix product on all threads: what the rest is held against */

static double seconds(void) {
    struct timeval t;
    gettimeofday(&t, NULL);
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

static void check(cmha_status status) {
    if (!status) return;
    fprintf(stderr, "bench: %s\n", cmha_error(&ctx));
    exit(1);
}

static cmha_real *array(size_t n, cmha_rng *rng) {
    cmha_real *x = malloc((n ? n : 1) * sizeof *x);
    if (!x) fputs("bench: no memory\n", stderr), exit(1);
    for (size_t i = 0; i < n; i++) x[i] = rng ? (cmha_real)cmha_rng_normal(rng) : 0;
    return x;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *times, int n) {
    qsort(times, (size_t)n, sizeof *times, ascending);
    return n % 2 ? times[n / 2] : (times[n / 2 - 1] + times[n / 2]) / 2;
}

typedef void (*work_fn)(void *work);

/* Median seconds of one call, each timing made of as many calls as fill 20 ms. */
static double measure(work_fn run, void *work) {
    double times[RUNS], begin = seconds();
    int calls = 1;
    run(work);
    while (seconds() - begin < 0.02) run(work), calls++;
    for (int r = 0; r < RUNS; r++) {
        begin = seconds();
        for (int i = 0; i < calls; i++) run(work);
        times[r] = (seconds() - begin) / calls;
    }
    return median(times, RUNS);
}

/* ---- Matrix products: y [T, O] = x [T, I] w^T, rows split over the threads as the library splits them ---- */

typedef struct product {
    size_t T, I, O;
    cmha_real *x, *w, *y;
    int threads;
} product;

static void run_product(void *work) {
    product *p = work;
    int part, parts = p->threads;
#ifdef _OPENMP
#pragma omp parallel for num_threads(parts)
#endif
    for (part = 0; part < parts; part++) {
        size_t begin = p->T * (size_t)part / (size_t)parts, end = p->T * (size_t)(part + 1) / (size_t)parts;
        cmha_gemm(0, 1, end - begin, p->O, p->I, 1, p->x + begin * p->I, p->I, p->w, p->I, 0, p->y + begin * p->O, p->O);
    }
}

static void bench_products(void) {
    static const struct { const char *name; size_t T, I, O; } shapes[] = {
        {"q, k, v", 4096, 512, 1536},         {"attention output", 4096, 512, 512}, {"feed-forward in", 4096, 512, 1024},
        {"feed-forward out", 4096, 1024, 512}, {"logits", 4096, 512, 256},          {"attention tile", 64, 64, 64}};
    cmha_rng rng = cmha_rng_make(1, 0);
    printf("\nMatrix products of the paper preset, y [T, O] = x [T, I] w^T        GFLOP/s: 1 thread  %d threads\n", ctx.threads);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        product p = {shapes[i].T, shapes[i].I, shapes[i].O, NULL, NULL, NULL, 1};
        double flops = 2e-9 * (double)(p.T * p.I * p.O), one, all;
        p.x = array(p.T * p.I, &rng), p.w = array(p.O * p.I, &rng), p.y = array(p.T * p.O, NULL);
        one = flops / measure(run_product, &p);
        p.threads = p.T < 1024 ? 1 : ctx.threads;
        all = p.threads == 1 ? one : flops / measure(run_product, &p);
        if (all > machine && p.T >= 1024) machine = all;
        printf("  %-18s T %4zu  I %4zu  O %4zu %30.0f", shapes[i].name, p.T, p.I, p.O, one);
        if (p.threads > 1) printf(" %10.0f", all);
        putchar('\n');
        free(p.x), free(p.w), free(p.y);
    }
    printf("  fastest: %.0f GFLOP/s, 100 %% in what follows\n", machine);
}

/* ---- The feature map on one thread ---- */

typedef struct feature_map {
    const cmha_real *x, *rotation, *delta, *b;
    cmha_real *y, *dx;
    double *ddelta;
    size_t n;
    int backward;
} feature_map;

static void run_map(void *work) {
    feature_map *m = work;
    if (m->backward)
        cmha_rotate_backward(m->x, DK, m->n, DK / 2, CMHA_LAYOUT_INTERLEAVED, m->rotation, m->delta, m->b, m->y, DK, m->dx,
                             m->delta ? m->ddelta : NULL, m->delta ? m->ddelta + DK / 2 : NULL);
    else cmha_rotate_forward(m->x, DK, m->n, DK / 2, CMHA_LAYOUT_INTERLEAVED, m->rotation, m->delta, m->b, m->y, DK);
}

static void bench_map(void) {
    cmha_rng rng = cmha_rng_make(2, 0);
    double omega[DK / 2], ddelta[DK] = {0};
    feature_map m = {NULL, NULL, NULL, NULL, NULL, NULL, ddelta, 512, 0};
    cmha_real *x = array(m.n * DK, &rng), *rotation = array(m.n * DK, NULL), *delta = array(DK, &rng);
    cmha_frequencies(CMHA_FREQ_ROPE, 10000, DK / 2, omega);
    cmha_rotation_table(omega, DK / 2, m.n, 0, rotation);
    m.x = x, m.rotation = rotation, m.y = array(m.n * DK, NULL), m.dx = array(m.n * DK, NULL);
    puts("\nFeature map, 512 rows of 32 pairs, one thread                        ns a pair:  forward   backward");
    for (int cmha = 1; cmha >= 0; cmha--) {
        double time[2];
        m.delta = cmha ? delta : NULL, m.b = cmha ? delta + DK / 2 : NULL;
        for (m.backward = 0; m.backward < 2; m.backward++)
            time[m.backward] = 1e9 * measure(run_map, &m) / (double)(m.n * DK / 2);
        printf("  %-76s %9.2f %10.2f\n", cmha ? "CMHA" : "RoPE", time[0], time[1]);
    }
    free(x), free(rotation), free(delta), free(m.y), free(m.dx);
}

/* ---- Attention on all threads ---- */

typedef struct attention {
    cmha_attention_args args;
    cmha_heads q, k, v, y, dy, dq, dk, dv;
    cmha_real *lse, *ddelta, *db, *scratch;
    int backward;
} attention;

static void run_attention(void *work) {
    attention *a = work;
    if (a->backward)
        cmha_attention_backward(&a->args, a->q, a->k, a->v, a->y, a->lse, a->dy, NULL, a->dq, a->dk, a->dv, a->ddelta, a->db,
                                a->scratch);
    else cmha_attention_forward(&a->args, a->q, a->k, a->v, a->y, a->lse, a->scratch);
}

static void bench_attention(size_t n, cmha_attention_kind kind) {
    size_t batch = 4096 / n, size = batch * HEADS * n * DK, need;
    cmha_rng rng = cmha_rng_make(3, 0);
    double omega[DK / 2], rate[2];
    cmha_real *memory = array(8 * size, &rng), *rotation = array(n * DK, NULL), *turn = array(2 * HEADS * DK, &rng);
    attention a;
    cmha_heads *const arrays[] = {&a.q, &a.k, &a.v, &a.y, &a.dy, &a.dq, &a.dk, &a.dv};
    memset(&a, 0, sizeof a);
    for (size_t i = 0; i < 8; i++) *arrays[i] = cmha_heads_major(memory + i * size, HEADS, n, DK);
    cmha_frequencies(CMHA_FREQ_ROPE, 10000, DK / 2, omega);
    cmha_rotation_table(omega, DK / 2, n, 0, rotation);
    a.args = (cmha_attention_args){.batch = batch, .heads = HEADS, .kv_heads = HEADS, .n_q = n, .n_k = n, .d_k = DK, .d_v = DK,
                                   .scale = (cmha_real)0.125, .causal = 1, .kind = kind, .rotation = rotation,
                                   .threads = ctx.threads};
    if (kind == CMHA_ATTENTION_CMHA) {
        a.args.delta = turn, a.args.b = turn + HEADS * DK / 2;
        a.ddelta = turn + HEADS * DK, a.db = turn + 3 * HEADS * DK / 2;
    }
    need = cmha_attention_scratch(&a.args, 0);
    if (cmha_attention_scratch(&a.args, 1) > need) need = cmha_attention_scratch(&a.args, 1);
    a.scratch = array(need, NULL), a.lse = array(2 * batch * HEADS * n, NULL);
    for (a.backward = 0; a.backward < 2; a.backward++) {
        /* causal: half of two products forward, of five backward, n^2 d multiply-adds each */
        double flops = 1e-9 * (a.backward ? 5 : 2) * (double)(batch * HEADS * n) * (double)(n * DK);
        rate[a.backward] = flops / measure(run_attention, &a);
    }
    printf("  %-5s n %4zu x %zu sequences %38.0f %4.0f %% %9.0f %4.0f %%\n", kind == CMHA_ATTENTION_CMHA ? "CMHA" : "dot", n, batch,
           rate[0], 100 * rate[0] / machine, rate[1], 100 * rate[1] / machine);
    free(memory), free(rotation), free(turn), free(a.scratch), free(a.lse);
}

/* ---- Training ---- */

/* FLOPs of a step: 6 a weight and token in matrices, and causal attention's 2 + 5 half products a layer. */
static double step_flops(const cmha_model *model, const cmha_trainer_config *tc) {
    const cmha_model_config *c = &model->config;
    double tokens = (double)(tc->batch * tc->length * tc->accumulate), weights = 0;
    for (size_t i = 0; i < model->n_parameters; i++) {
        const cmha_parameter *p = &model->parameters[i];
        if (p->tensor.rank == 2 && p->decay && &p->tensor != model->position_weight) weights += (double)p->tensor.size;
    }
    if (!c->tied) weights -= (double)(c->vocabulary * c->d_model); /* the lookup multiplies nothing */
    return tokens * (6 * weights + 7 * (double)(c->n_layers * tc->length * c->d_model));
}

/* Steps with CMHA and with RoPE in turns, so that both see the same machine; no more of them than `budget` seconds allow. */
static void bench_training(const char *preset, double budget) {
    static unsigned char text[1 << 16];
    cmha_tokens tokens = {text, sizeof text, 1, NULL, 0};
    cmha_model model[2];
    cmha_trainer trainer[2];
    cmha_model_config mc;
    cmha_trainer_config tc;
    cmha_rng rng = cmha_rng_make(4, 0);
    double times[2][RUNS], speed[2], loss, begin = seconds();
    int runs = 0;
    for (size_t i = 0; i < sizeof text; i++) text[i] = (unsigned char)(' ' + cmha_rng_below(&rng, 64));
    for (int k = 0; k < 2; k++) {
        check(cmha_preset(preset, &mc, &tc));
        mc.attention = k ? CMHA_ATTENTION_ROPE : CMHA_ATTENTION_CMHA;
        check(cmha_model_init(&model[k], &ctx, &mc));
        check(cmha_trainer_init(&trainer[k], &model[k], &tc));
        check(cmha_trainer_step(&trainer[k], &tokens, &loss));
    }
    for (; runs < RUNS && (!runs || seconds() - begin < budget); runs++)
        for (int k = 0; k < 2; k++) {
            double start = seconds();
            check(cmha_trainer_step(&trainer[k], &tokens, &loss));
            times[k][runs] = seconds() - start;
        }
    for (int k = 0; k < 2; k++) {
        double time = median(times[k], runs);
        speed[k] = (double)(tc.batch * tc.length * tc.accumulate) / time;
        printf("  %-5s %-5s %5.1f M parameters, %2zu x %4zu, median of %d %15.0f %5.0f %%", preset, k ? "RoPE" : "CMHA",
               1e-6 * (double)model[k].size, tc.batch, tc.length, runs, speed[k],
               100 * 1e-9 * step_flops(&model[k], &tc) / time / machine);
        if (k) printf("   CMHA / RoPE %.2f", speed[0] / speed[1]);
        putchar('\n');
    }
    for (int k = 0; k < 2; k++) cmha_trainer_close(&trainer[k]), cmha_model_close(&model[k]);
}

static void bench_memory(const char *preset, size_t batch, size_t length) {
    cmha_model_config mc;
    cmha_trainer_config tc;
    size_t parameters, training;
    check(cmha_preset(preset, &mc, &tc));
    if (!batch) batch = tc.batch, length = tc.length;
    check(cmha_model_memory(&ctx, &mc, batch, length, &parameters, &training));
    printf("  %-6s %2zu x %4zu %63.1f %10.1f\n", preset, batch, length, (double)parameters / 1048576, (double)training / 1048576);
}

/* ---- Kinds of attention: one layer of the paper preset each ---- */

typedef struct layer {
    cmha_model model;
    cmha_batch batch;
    int backward;
} layer;

static void run_layer(void *work) {
    layer *l = work;
    double loss;
    check(l->backward ? cmha_model_gradient(&l->model, &l->batch, 1, 0, &loss) : cmha_model_loss(&l->model, &l->batch, &loss));
}

/* Bytes a token adds to a cache; -1: no cache. *constant gets what does not depend on the length. */
static double decode_bytes(cmha_model *model, double *constant) {
    cmha_cache cache;
    size_t size[2];
    for (int i = 0; i < 2; i++) {
        if (cmha_cache_init(&cache, model, 1, (size_t)1024 << i, 0)) return -1;
        size[i] = cache.size * sizeof(cmha_real);
        cmha_cache_close(&cache);
    }
    *constant = (double)(2 * size[0] - size[1]);
    return (double)(size[1] - size[0]) / 1024;
}

static void open_layer(layer *l, cmha_model_config *mc, const char *name, size_t n) {
    static int32_t ids[4096];
    check(cmha_preset("paper", mc, NULL));
    mc->n_layers = 1, mc->dropout = mc->attention_dropout = 0, mc->max_positions = 16384;
    check(cmha_kind(&ctx, name, mc));
    memset(l, 0, sizeof *l);
    check(cmha_model_init(&l->model, &ctx, mc));
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)(i * 31 % 256);
    l->batch.ids = l->batch.targets = ids, l->batch.batch = 1, l->batch.length = n;
}

/* A kind and RoPE in turns, so that both see the same machine: median seconds of the kind, and their ratio. */
static double against(layer *l, layer *rope, int backward, double *ratio) {
    double times[2][RUNS];
    l->backward = rope->backward = backward;
    for (int r = -1; r < RUNS; r++)
        for (int k = 0; k < 2; k++) {
            double begin = seconds();
            run_layer(k ? rope : l);
            if (r >= 0) times[k][r] = seconds() - begin;
        }
    *ratio = median(times[0], RUNS) / median(times[1], RUNS);
    return median(times[0], RUNS);
}

static void bench_kind(const char *name, layer *rope, size_t n) {
    cmha_model_config mc;
    layer l;
    size_t memory[3];
    double time[2], ratio[2], constant = 0, per_token;
    open_layer(&l, &mc, name, n);
    for (int backward = 0; backward < 2; backward++) time[backward] = 1e6 * against(&l, rope, backward, &ratio[backward]) / (double)n;
    for (size_t i = 0; i < 3; i++) check(cmha_model_memory(&ctx, &mc, 1, (size_t)2048 << i, NULL, &memory[i]));
    per_token = decode_bytes(&l.model, &constant);
    printf("  %-17s %8.2f %6.2f x %8.2f %6.2f x %9.1f %8.1f %8.1f", name, time[0], ratio[0], time[1], ratio[1],
           (double)memory[0] / 1048576, (double)memory[1] / 1048576, (double)memory[2] / 1048576);
    if (per_token < 0) puts("  encoder only");
    else printf(constant > 0 ? " %8.1f + %.0f\n" : " %8.1f\n", per_token / 1024, constant / 1024);
    fflush(stdout);
    cmha_model_close(&l.model);
}

static void bench_kinds(void) {
    const size_t n = 2048;
    const char *name;
    cmha_model_config mc;
    layer rope;
    open_layer(&rope, &mc, "rope", n);
    printf("\nOne layer of d 512, 8 heads, d_ff 1024 at 1 x %zu           microseconds a token        training, MiB at n        cache, KiB\n", n);
    puts("  kind               forward (to rope)  + backward (to rope)      2048     4096     8192    a token + constant");
    for (size_t i = 0; (name = cmha_kind_name(i, NULL)) != NULL; i++) bench_kind(name, &rope, n);
    cmha_model_close(&rope.model);
}

/* ---- Retrieval: the search of a knowledge base against the matrix product it contains ---- */

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
        size_t begin = r->base.n * (size_t)part / (size_t)parts, end = r->base.n * (size_t)(part + 1) / (size_t)parts;
        cmha_gemm(0, 1, r->Q, end - begin, W, 1, r->queries, W, r->base.features + begin * W, W, 0, r->scores + begin, r->base.n);
    }
}

/* Search and product in turns, so that both see the same machine: medians. */
static void bench_search(retrieval *r, size_t Q, const char *label) {
    double times[2][RUNS], ratios[RUNS];
    r->Q = Q;
    for (int i = -1; i < RUNS; i++) {
        for (int what = 0; what < 2; what++) {
            double begin = seconds();
            what ? run_scores(r) : run_search(r);
            if (i >= 0) times[what][i] = seconds() - begin;
        }
        if (i >= 0) ratios[i] = times[0][i] / times[1][i];
    }
    printf("  %-22s %9.2f ms %9.2f ms %8.2f x %9.1f\n", label, 1e3 * median(times[0], RUNS), 1e3 * median(times[1], RUNS),
           median(ratios, RUNS), 2e-9 * (double)(Q * r->base.n * 2 * r->base.d_r) / median(times[0], RUNS));
    fflush(stdout);
}

static void bench_retrieval(void) {
    const size_t n = 100000, d_r = 128, most = 512;
    cmha_rng rng = cmha_rng_make(5, 0);
    cmha_real *vectors = array(n * 2 * d_r, &rng);
    retrieval r;
    double begin = seconds();
    memset(&r, 0, sizeof r);
    check(cmha_knowledge_init(&r.base, &ctx, n, d_r, vectors, NULL, NULL, NULL));
    printf("\nExact top 5 among %zu documents of %zu complex features (opened in %.2f s)\n", n, d_r, seconds() - begin);
    puts("                               search  one product    ratio   GFLOP/s");
    r.k = 5;
    r.queries = array(most * 2 * d_r, &rng), r.similarity = array(most * r.k, NULL), r.scores = array(most * n, NULL);
    r.index = malloc(most * r.k * sizeof *r.index);
    if (!r.index) fputs("bench: no memory\n", stderr), exit(1);
    bench_search(&r, most, "512 queries");
    bench_search(&r, 3, "3 queries (a token)");
    bench_search(&r, 1, "1 query");
    cmha_knowledge_close(&r.base);
    free(vectors), free(r.queries), free(r.similarity), free(r.scores), free(r.index);
}

/* ---- Mixture of experts against one dense complex feed-forward that is as wide as the experts a token goes to ---- */

enum { EXPERT_TOKENS = 2048, EXPERT_WIDTH = 128, EXPERT_HIDDEN = 256, EXPERT_PARTS = 7 };

/* z, w1, b1, w2, b2, router and its bias, and their gradients; dense (E = 0): the first five, of hidden width F */
typedef struct mixture {
    size_t E, F, top;
    cmha_tape tape;
    cmha_real *x[EXPERT_PARTS], *dx[EXPERT_PARTS];
} mixture;

static int mixture_shape(const mixture *m, int part, size_t *shape) {
    const size_t T = EXPERT_TOKENS, D = EXPERT_WIDTH, F = m->F, E = m->E;
    const size_t of_experts[EXPERT_PARTS][4] = {{T, 2 * D}, {2, E, F, D}, {2, E, F}, {2, E, D, F}, {2, E, D}, {2, E, D}, {E}};
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

/* Seconds of one pass forward and of one backward. */
static void mixture_pass(mixture *m, double *time) {
    cmha_tape *tape = &m->tape;
    cmha_tensor *in[EXPERT_PARTS], *h, *y;
    size_t shape[4];
    double begin;
    cmha_tape_reset(tape);
    for (int i = 0; i < mixture_parts(m); i++) {
        int rank = mixture_shape(m, i, shape);
        memset(m->dx[i], 0, mixture_size(m, i) * sizeof *m->dx[i]);
        in[i] = cmha_tensor_wrap(tape, rank, shape, m->x[i], m->dx[i]);
    }
    begin = seconds();
    h = m->E ? cmha_router(tape, in[0], in[5], in[6]) : cmha_complex_linear(tape, in[0], in[1], in[2]);
    if (m->E) y = cmha_experts(tape, in[0], h, m->top, in[1], in[2], in[3], in[4], NULL);
    else y = cmha_complex_linear(tape, cmha_activate(tape, h, CMHA_GELU_ERF), in[3], in[4]);
    time[0] = seconds() - begin;
    y = cmha_sum(tape, y);
    begin = seconds();
    check(cmha_backward(tape, y, 1));
    time[1] = seconds() - begin;
}

/* Experts and the dense feed-forward in turns, so that both see the same machine. */
static void bench_mixture(size_t E, size_t top) {
    mixture m[2];
    double times[2][2][RUNS], ms[2], ratio[2];
    mixture_open(&m[0], E, EXPERT_HIDDEN, top);
    mixture_open(&m[1], 0, top * EXPERT_HIDDEN, 0);
    for (int r = -2; r < RUNS; r++) /* the first two find the tape's memory */
        for (int k = 0; k < 2; k++) {
            double time[2];
            mixture_pass(&m[k], time);
            if (r >= 0) times[k][0][r] = time[0], times[k][1][r] = time[1];
        }
    for (int back = 0; back < 2; back++) {
        ms[back] = 1e3 * median(times[0][back], RUNS);
        ratio[back] = ms[back] / (1e3 * median(times[1][back], RUNS));
    }
    printf("  %7zu %9zu %22.1f %6.2f x %18.1f %6.2f x\n", E, top, ms[0], ratio[0], ms[1], ratio[1]);
    fflush(stdout);
    mixture_close(&m[0]), mixture_close(&m[1]);
}

static void bench_experts(void) {
    printf("\nComplex experts of width %d, %d hidden, %d tokens, with their router; to one dense feed-forward of top x %d hidden\n",
           EXPERT_WIDTH, EXPERT_HIDDEN, EXPERT_TOKENS, EXPERT_HIDDEN);
    puts("  experts  a token       ms: forward (to dense)        backward (to dense)");
    for (size_t E = 2; E <= 32; E *= 2) bench_mixture(E, 2);
    for (size_t top = 1; top <= 4; top *= 2) bench_mixture(8, top);
}

int main(int argc, char **argv) {
    char name[64];
    const char *core = getenv("OPENBLAS_CORETYPE"), *remedy;
    cmha_blas_restart(argv);
    check(cmha_context_init(&ctx, NULL));
    remedy = cmha_blas_remedy();
    printf("cmha.h %s; %s, %d threads\n", cmha_version(), cmha_blas_name(name, sizeof name), ctx.threads);
    if (remedy) printf("this BLAS runs below what the CPU can do: set %s\n", remedy);
    else if (core) printf("kernel chosen by OPENBLAS_CORETYPE=%s\n", core);
    if (argc > 1) {
        if (!strcmp(argv[1], "kinds")) bench_kinds();
        else if (!strcmp(argv[1], "retrieval")) bench_retrieval();
        else if (!strcmp(argv[1], "experts")) bench_experts();
        else return fputs("usage: bench [kinds|retrieval|experts]\n", stderr), 2;
        return 0;
    }
    bench_products();
    bench_map();
    puts("\nAttention, 8 heads of 64, causal                            GFLOP/s: forward         backward");
    for (size_t n = 512; n <= 2048; n *= 4) bench_attention(n, CMHA_ATTENTION_DOT), bench_attention(n, CMHA_ATTENTION_CMHA);
    puts("\nTraining steps                                                    tokens/s  of the peak");
    bench_training("tiny", 15);
    bench_training("paper", 45);
    puts("\nMemory, MiB                                                           parameters   training");
    bench_memory("tiny", 0, 0), bench_memory("paper", 8, 512), bench_memory("paper", 2, 2048);
    cmha_context_close(&ctx);
    return 0;
}
