/* Sections of the machine and of single kernels: hardware, maps, attention. */
#include "bench/bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- hardware ---- */

static void bench_products(void) {
    static const struct { const char *name; size_t T, I, O;
    } shapes[] = {{"q, k, v", 4096, 512, 1536},         {"attention output", 4096, 512, 512},
                  {"feed-forward in", 4096, 512, 1024}, {"feed-forward out", 4096, 1024, 512},
                  {"logits", 4096, 512, 256},           {"attention tile", 64, 64, 64}};
    static const column columns[] = {{"one thread", "GFLOP/s", {NULL, NULL}, 0},
                                     {"all threads", "GFLOP/s", {"gemm", NULL}, 0}};
    enum { SHAPES = sizeof shapes / sizeof *shapes };
    product p[SHAPES][2];
    job jobs[2 * SHAPES + 1];
    report_table(
        "hardware",
        "matrix products of the paper preset; q, k, v (512 to 1,536) on all threads is \"GEMM\" below", "T",
        columns, 2);
    for (size_t i = 0; i < SHAPES; i++)
        for (int k = 0; k < 2; k++) {
            product_open(&p[i][k], shapes[i].T, shapes[i].I, shapes[i].O, k ? ctx.threads : 1);
            jobs[2 * i + (size_t)k] = (job){run_product, &p[i][k], 0, 0};
        }
    jobs[2 * SHAPES] = gemm_job();
    compare(jobs, 2 * SHAPES + 1);
    for (size_t i = 0; i < SHAPES; i++) {
        double flops = product_flops(&p[i][0]), all = flops / jobs[2 * i + 1].time;
        cell cells[2] = {{flops / jobs[2 * i].time, {NAN, NAN}},
                         {all, {all / gemm_rate(&jobs[2 * SHAPES]), NAN}}};
        if (p[i][0].T < 1024) cells[1].value = cells[1].of[0] = NAN; /* a thread has tiles of its own */
        report_row(shapes[i].name, shapes[i].T, cells);
        product_close(&p[i][0]), product_close(&p[i][1]);
    }
}

static void bench_bandwidth(void) {
    static const column columns[] = {{"read", "GB/s", {NULL, NULL}, 0}, {"copy", "GB/s", {NULL, NULL}, 0},
                                     {"triad", "GB/s", {NULL, NULL}, 0}};
    report_table(
        "hardware",
        "memory, all threads, by the size of each array; copy and triad count what they read and write",
        "MiB", columns, 3);
    for (size_t size = 1; size <= (quick ? 64 : 512); size *= 8) {
        size_t n = (size << 20) / sizeof(cmha_real);
        double bytes = 1e-9 * (double)(n * sizeof(cmha_real));
        memory_work m = {n, array(n, NULL), array(n, NULL), array(n, NULL), 0};
        int calls = 2 + (int)(512 / size); /* enough that what fits into a cache is found there */
        job jobs[] = {{run_read, &m, calls, 0}, {run_copy, &m, calls, 0}, {run_triad, &m, calls, 0}};
        cell cells[3];
        compare(jobs, 3);
        for (int i = 0; i < 3; i++) cells[i] = (cell){(i + 1) * bytes / jobs[i].time, {NAN, NAN}};
        report_row("memory", size, cells);
        free(m.a), free(m.b), free(m.c);
    }
}

void bench_hardware(void) {
    bench_products();
    bench_bandwidth();
}

/* ---- feature maps on one thread ---- */

enum { PAIRS = 32, HEADS = 8 };

typedef enum map_kind { MAP_ROPE, MAP_CMHA, MAP_EULER, MAP_PHASOR, MAP_TURN, MAP_SCALE, MAP_MOBIUS } map_kind;
enum { MAPS = MAP_MOBIUS + 3 }; /* one for each kind of quotient */

static const char *const map_names[MAPS] =
    {"rope",           "cmha",        "Euler transform", "phasor",      "rotation by theta",
     "complex factor", "mobius, reg", "mobius, exact",   "mobius, unit"};

typedef struct map {
    map_kind kind;
    size_t n;
    cmha_real *x, *y, *dy, *dx, *rotation, *delta, *b, *theta, *weight, *dweight;
    double *ddelta;
} map;

static void run_map_forward(void *work) {
    const map *m = work;
    const cmha_real *delta = m->kind == MAP_CMHA ? m->delta : NULL;
    cmha_rotate_args rotate = {PAIRS, CMHA_LAYOUT_INTERLEAVED, m->rotation, delta, delta ? m->b : NULL, 0,
                               0};
    cmha_quotient_kind quotient = (cmha_quotient_kind)(m->kind - MAP_MOBIUS);
    switch (m->kind) {
    case MAP_ROPE:
    case MAP_CMHA:
        cmha_rotate_forward(&rotate, m->x, 2 * PAIRS, m->n, m->y, 2 * PAIRS);
        break;
    case MAP_PHASOR: cmha_phasor_forward(m->x, m->n, PAIRS, (cmha_real)1e-6, m->y); break;
    case MAP_TURN: cmha_complex_rotate_forward(m->x, m->theta, m->n, PAIRS, m->y); break;
    case MAP_SCALE: cmha_elementwise_complex_forward(m->x, m->weight, m->n, PAIRS, m->y); break;
    default: cmha_mobius_forward(m->x, m->weight, m->n, PAIRS, quotient, (cmha_real)1e-3, m->y);
    }
}

static void run_map_backward(void *work) {
    const map *m = work;
    const cmha_real *delta = m->kind == MAP_CMHA ? m->delta : NULL;
    cmha_rotate_args rotate = {PAIRS, CMHA_LAYOUT_INTERLEAVED, m->rotation, delta, delta ? m->b : NULL, 0,
                               0};
    const cmha_euler_args euler = {m->n, PAIRS, CMHA_LAYOUT_INTERLEAVED};
    cmha_quotient_kind quotient = (cmha_quotient_kind)(m->kind - MAP_MOBIUS);
    double *ddelta = delta ? m->ddelta : NULL, *db = delta ? m->ddelta + PAIRS : NULL;
    switch (m->kind) {
    case MAP_ROPE:
    case MAP_CMHA:
        cmha_rotate_backward(&rotate, m->x, 2 * PAIRS, m->n, m->dy, 2 * PAIRS, m->dx, ddelta, db);
        break;
    case MAP_EULER:
        cmha_euler_backward(&euler, m->x, m->dy, m->dy + m->n * PAIRS, m->dx);
        break;
    case MAP_PHASOR: cmha_phasor_backward(m->x, m->dy, m->n, PAIRS, (cmha_real)1e-6, m->dx); break;
    case MAP_TURN: cmha_complex_rotate_backward(m->x, m->theta, m->dy, m->n, PAIRS, m->dx, m->dweight); break;
    case MAP_SCALE:
        cmha_elementwise_complex_backward(m->x, m->weight, m->dy, m->n, PAIRS, m->dx, m->dweight);
        break;
    default:
        cmha_mobius_backward(m->x, m->weight, m->dy, m->n, PAIRS, quotient, (cmha_real)1e-3, m->dx,
                             m->dweight);
    }
}

static void map_open(map *m, size_t n) {
    cmha_rng rng = cmha_rng_make(2, 0);
    double omega[PAIRS];
    size_t size = 2 * PAIRS * n;
    *m = (map){MAP_ROPE, n, array(size, &rng), array(size, NULL), array(size, &rng), array(size, NULL),
               array(size, NULL), array(PAIRS, &rng), array(PAIRS, &rng), array(size / 2, &rng),
               array(8 * PAIRS, &rng), array(size, NULL), take(2 * PAIRS * sizeof(double))};
    cmha_frequencies(CMHA_FREQUENCY_ROPE, 10000, PAIRS, NULL, omega);
    cmha_rotation_table(omega, PAIRS, n, 0, m->rotation);
}

static void map_close(map *m) {
    free(m->x), free(m->y), free(m->dy), free(m->dx), free(m->rotation), free(m->delta), free(m->b),
        free(m->theta);
    free(m->weight), free(m->dweight), free(m->ddelta);
}

void bench_maps(void) {
    static const column columns[] = {{"forward", "ns a pair", {"rope", NULL}, 0},
                                     {"backward", "ns a pair", {"rope", NULL}, 0},
                                     {"both", "us", {NULL, NULL}, 1}};
    report_table("maps", "feature maps, rows of 32 pairs, one thread", "rows", columns, 3);
    for (size_t n = 64; n <= (quick ? 512 : 32768); n *= 8) {
        map shared, maps[MAPS];
        job jobs[2 * MAPS];
        map_open(&shared, n);
        for (size_t i = 0; i < MAPS; i++) {
            maps[i] = shared, maps[i].kind = (map_kind)i;
            jobs[2 * i] = (job){run_map_forward, &maps[i], 0, 0},
                     jobs[2 * i + 1] = (job){run_map_backward, &maps[i], 0, 0};
        }
        compare(jobs, 2 * MAPS);
        for (size_t i = 0; i < MAPS; i++) {
            double pairs = (double)(n * PAIRS), f = jobs[2 * i].time, b = jobs[2 * i + 1].time;
            cell cells[3] = {{1e9 * f / pairs, {f / jobs[0].time, NAN}},
                             {1e9 * b / pairs, {b / jobs[1].time, NAN}},
                             {1e6 * (f + b), {NAN, NAN}}};
            report_row(map_names[i], n, cells);
        }
        map_close(&shared);
    }
}

/* ---- attention: one core at a time, 8 heads, causal, one sequence, all threads ---- */

typedef enum core_family { SOFTMAX, LINEAR, LAG } core_family;
enum { PLAIN = -1, ALIBI = -2, OWN = -3 };

/* Re A tanh|A|, as in examples/own_attention.c: what a score of a program's own costs. */
static void own_score(const cmha_score_call *call, const cmha_real *re, const cmha_real *im, cmha_real *s) {
    cmha_real t[64];
    cmha_modulus(64, re, im, t);
    cmha_tanh(64, t, t);
    for (int j = 0; j < 64; j++) s[j] = call->args->scale * re[j] * t[j];
}

static void own_back(const cmha_score_call *call, const cmha_real *ds, cmha_real *re, cmha_real *im) {
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

static const cmha_score own_row = {.name = "re-tanh", .planes = 2, .forward = own_score,
                                   .backward = own_back};

/* forward, backward: how many n x n x d products of real matrices its formulas take; a
   backward computes the scores again. */
typedef struct core_kind {
    const char *name;
    core_family family;
    cmha_attention_kind kind;
    /* numbers a feature of q and k: 2 where a head of d numbers has d complex features */
    int parts;
    int complex_v;
    int cope;                  /* score of CoPE, or PLAIN, ALIBI, OWN */
    cmha_softmax_kind softmax;
    double forward, backward;
} core_kind;

/* As the layers have them: cope and mobius of d complex features, angular and lag of d/2. */
static const core_kind core_kinds[] = {
    {"rope", SOFTMAX, CMHA_ATTENTION_ROPE, 1, 0, PLAIN, CMHA_SOFTMAX_REAL, 2, 5},
    {"cmha", SOFTMAX, CMHA_ATTENTION_CMHA, 1, 0, PLAIN, CMHA_SOFTMAX_REAL, 2, 5},
    {"dot", SOFTMAX, CMHA_ATTENTION_DOT, 1, 0, PLAIN, CMHA_SOFTMAX_REAL, 2, 5},
    {"alibi", SOFTMAX, CMHA_ATTENTION_DOT, 1, 0, ALIBI, CMHA_SOFTMAX_REAL, 2, 5},
    {"cope-real", SOFTMAX, CMHA_ATTENTION_COMPLEX, 2, 0, CMHA_COPE_SCORE_REAL, CMHA_SOFTMAX_REAL, 3, 8},
    {"cope-phase", SOFTMAX, CMHA_ATTENTION_COMPLEX, 2, 0, CMHA_COPE_SCORE_PHASE, CMHA_SOFTMAX_SCORE, 5, 14},
    {"cope-magnitude", SOFTMAX, CMHA_ATTENTION_COMPLEX, 2, 0, CMHA_COPE_SCORE_MAGNITUDE, CMHA_SOFTMAX_SCORE,
     5, 14},
    {"re-tanh, a program's", SOFTMAX, CMHA_ATTENTION_COMPLEX, 2, 0, OWN, CMHA_SOFTMAX_SCORE, 5, 14},
    {"cope-hybrid", SOFTMAX, CMHA_ATTENTION_COMPLEX, 2, 0, CMHA_COPE_SCORE_HYBRID, CMHA_SOFTMAX_SCORE, 5, 14},
    {"cope-hybrid_norm", SOFTMAX, CMHA_ATTENTION_COMPLEX, 2, 0, CMHA_COPE_SCORE_HYBRID_NORM,
     CMHA_SOFTMAX_SCORE, 5, 14},
    {"cope-linear", LINEAR, CMHA_ATTENTION_COMPLEX, 2, 0, PLAIN, CMHA_SOFTMAX_REAL, NAN, NAN},
    {"mobius", SOFTMAX, CMHA_ATTENTION_COMPLEX, 2, 1, PLAIN, CMHA_SOFTMAX_RI_PRODUCT, 8, 20},
    {"mobius, ri_split", SOFTMAX, CMHA_ATTENTION_COMPLEX, 2, 1, PLAIN, CMHA_SOFTMAX_RI_SPLIT, 6, 16},
    {"mobius, yang8", SOFTMAX, CMHA_ATTENTION_COMPLEX, 2, 1, PLAIN, CMHA_SOFTMAX_YANG8, 12, 28},
    {"angular", SOFTMAX, CMHA_ATTENTION_ANGULAR, 1, 1, PLAIN, CMHA_SOFTMAX_REAL, 2, 5},
    {"angular-linear", LINEAR, CMHA_ATTENTION_ANGULAR, 1, 1, PLAIN, CMHA_SOFTMAX_REAL, NAN, NAN},
    {"lag", LAG, CMHA_ATTENTION_ANGULAR, 1, 1, PLAIN, CMHA_SOFTMAX_REAL, NAN, NAN}};
enum { CORES = sizeof core_kinds / sizeof *core_kinds };

struct core {
    const core_kind *kind;
    cmha_attention_args args;
    cmha_linear_attention_args linear;
    cmha_lag_args lag;
    cmha_attention_views x;
    cmha_lse *lse;
    cmha_real *rotation, *turn, *saved, *scratch, slopes[HEADS];
    void *blocks[6];
    int n_blocks;
};

void run_core_forward(void *work) {
    core *c = work;
    switch (c->kind->family) {
    case SOFTMAX: cmha_attention_forward(&c->args, &c->x, c->lse, c->scratch); break;
    case LINEAR: cmha_linear_attention_forward(&c->linear, &c->x, c->saved, c->scratch); break;
    default: cmha_lag_attention_forward(&c->lag, &c->x, c->saved, c->scratch);
    }
}

/* After a forward, whose output and saved numbers it reads. */
void run_core_backward(void *work) {
    core *c = work;
    size_t d = c->args.d_k;
    cmha_real *turns[2] = {c->turn + HEADS * d, c->turn + HEADS * d + HEADS * d / 2};
    switch (c->kind->family) {
    case SOFTMAX: cmha_attention_backward(&c->args, &c->x, c->lse, NULL, turns, c->scratch); break;
    case LINEAR: cmha_linear_attention_backward(&c->linear, &c->x, c->saved, c->scratch); break;
    default: cmha_lag_attention_backward(&c->lag, &c->x, c->saved, c->scratch);
    }
}

/* Arguments for d numbers a head and token, complex features counted as one where the kind counts them so. */
static void core_arguments(core *c, size_t d, size_t n) {
    const core_kind *k = c->kind;
    int complex_q = k->kind == CMHA_ATTENTION_COMPLEX || k->kind == CMHA_ATTENTION_ANGULAR;
    size_t d_k = complex_q ? d * (size_t)k->parts / 2 : d, d_v = k->complex_v ? d * (size_t)k->parts / 2 : d;
    c->args = (cmha_attention_args){.batch = 1, .heads = HEADS, .kv_heads = HEADS, .n_q = n, .n_k = n,
                                    .d_k = d_k, .d_v = d_v, .scale = (cmha_real)(1 / sqrt((double)d_k)),
                                    .causal = 1, .kind = k->kind, .softmax = k->softmax,
                                    .complex_v = k->complex_v, .eps = (cmha_real)1e-6, .threads = ctx.threads,
                                    .bilinear = k->complex_v && k->kind == CMHA_ATTENTION_COMPLEX};
    if (k->kind == CMHA_ATTENTION_CMHA)
        c->args.parameters[0] = c->turn, c->args.parameters[1] = c->turn + HEADS * d / 2;
    if (k->kind == CMHA_ATTENTION_CMHA || k->kind == CMHA_ATTENTION_ROPE) c->args.rotation = c->rotation;
    if (k->cope == ALIBI) c->args.alibi = c->slopes;
    if (k->cope == OWN) c->args.score = &own_row;
    if (k->cope >= 0) {
        cmha_cope_options options =
            {(cmha_cope_score)k->cope, (cmha_real)0.2, (cmha_real)1e-6, 0, CMHA_NORM_MAX_ROW, 0};
        cmha_cope_set_args(&c->args, &options);
    }
    c->linear = (cmha_linear_attention_args){.batch = 1, .heads = HEADS, .n = n, .d = d_k, .d_v = d_v,
                                   .causal = 1, .eps = (cmha_real)1e-6,
                                   .kind = k->complex_v ? CMHA_LINEAR_ANGULAR : CMHA_LINEAR_COPE,
                                   .den_eps = (cmha_real)1e-6, .threads = ctx.threads};
    c->lag = (cmha_lag_args){.batch = 1, .heads = HEADS, .n = n, .d = d_k, .temp = 1, .eps = (cmha_real)1e-6,
                             .threads = ctx.threads};
}

/* The eight arrays, `stride` apart. */
static void core_views(core *c, cmha_real *memory, size_t stride) {
    cmha_heads *const views[8] = {&c->x.q, &c->x.k, &c->x.dq, &c->x.dk, &c->x.v, &c->x.y, &c->x.dy, &c->x.dv};
    int complex_q = c->kind->kind == CMHA_ATTENTION_COMPLEX || c->kind->kind == CMHA_ATTENTION_ANGULAR;
    for (size_t i = 0; i < 8; i++, memory += stride) {
        int is_complex = i < 4 ? complex_q : c->kind->complex_v;
        size_t n = c->args.n_q, features = i < 4 ? c->args.d_k : c->args.d_v;
        if (is_complex) *views[i] = cmha_heads_by_head(memory, HEADS, n, features, 1);
        else *views[i] = cmha_heads_by_head(memory, HEADS, n, features, 0);
    }
}

static size_t core_scratch(const core *c) {
    size_t most = 0, need;
    for (int backward = 0; backward < 2; backward++) {
        switch (c->kind->family) {
        case SOFTMAX: need = cmha_attention_scratch(&c->args, backward); break;
        case LINEAR: need = cmha_linear_attention_scratch(&c->linear, backward); break;
        default: need = cmha_lag_attention_scratch(&c->lag);
        }
        if (need > most) most = need;
    }
    return most;
}

cmha_real *core_memory(size_t d, size_t n, size_t offset, void **block) {
    cmha_rng rng = cmha_rng_make(3, 0);
    return array_at(offset, 8 * HEADS * n * 2 * d, &rng, block);
}

static cmha_real *core_array(core *c, size_t offset, size_t n, cmha_rng *rng) {
    return array_at(offset, n, rng, &c->blocks[c->n_blocks++]);
}

core *core_open(const char *name, size_t d, size_t n, size_t offset, cmha_real *memory) {
    cmha_rng rng = cmha_rng_make(4, 0);
    core *c;
    size_t i = 0;
    double *omega;
    while (i < CORES && strcmp(core_kinds[i].name, name) != 0) i++;
    if (i == CORES) die(2, "no such kind: ", name);
    c = take(sizeof *c);
    c->kind = &core_kinds[i];
    if (!memory) memory = core_memory(d, n, offset, &c->blocks[c->n_blocks++]);
    c->rotation = core_array(c, offset, n * d, NULL), c->turn = core_array(c, offset, 2 * HEADS * d, &rng);
    omega = take(d * sizeof *omega);
    cmha_frequencies(CMHA_FREQUENCY_ROPE, 10000, d / 2, NULL, omega);
    cmha_rotation_table(omega, d / 2, n, 0, c->rotation);
    free(omega);
    cmha_alibi_slopes(HEADS, c->slopes);
    core_arguments(c, d, n);
    core_views(c, memory, 2 * HEADS * n * d);
    c->lse = take(HEADS * n * sizeof *c->lse);
    c->saved = core_array(c, offset, 2 * HEADS * n, NULL);
    c->scratch = core_array(c, offset, core_scratch(c), NULL);
    return c;
}

void core_close(core *c) {
    while (c->n_blocks) free(c->blocks[--c->n_blocks]);
    free(c->lse), free(c);
}

static void core_row(const char *label, const core *c, const job *jobs, const job *rope, double gemm,
                     size_t d) {
    double flops = 1e-9 * HEADS * (double)d * (double)c->args.n_q * (double)c->args.n_q, f = jobs[0].time,
           b = jobs[1].time;
    double rate_f = c->kind->forward * flops / f, rate_b = c->kind->backward * flops / b;
    cell cells[5] = {{1e3 * f, {f / rope[0].time, NAN}},
                     {rate_f, {rate_f / gemm, NAN}},
                     {1e3 * b, {b / rope[1].time, NAN}},
                     {rate_b, {rate_b / gemm, NAN}},
                     {1e3 * (f + b), {(f + b) / (rope[0].time + rope[1].time), NAN}}};
    report_row(label, c->args.n_q, cells);
}

/* Cores on arrays 16 bytes off a cache line, as malloc gives large ones, and at the end those of `twice`
   again on arrays that begin with one. */
static void bench_cores(size_t n) {
    static const char *const twice[] = {"rope", "cmha", "dot", "cope-magnitude", "mobius"};
    enum { TWICE = sizeof twice / sizeof *twice, ALL = CORES + TWICE };
    core *cores[ALL];
    job jobs[2 * ALL + 1];
    /* a backward directly follows the forward whose output it reads: all may share it */
    void *blocks[2];
    cmha_real *off = core_memory(64, n, AS_MALLOC, &blocks[0]);
    cmha_real *aligned = core_memory(64, n, ALIGNED, &blocks[1]);
    for (size_t i = 0; i < ALL; i++) {
        int calls = n >= 4096; /* long enough, and warm from the shorter ones */
        if (i < CORES) cores[i] = core_open(core_kinds[i].name, 64, n, AS_MALLOC, off);
        else cores[i] = core_open(twice[i - CORES], 64, n, ALIGNED, aligned);
        jobs[2 * i] = (job){run_core_forward, cores[i], calls, 0},
                 jobs[2 * i + 1] = (job){run_core_backward, cores[i], calls, 0};
    }
    jobs[2 * ALL] = gemm_job();
    compare(jobs, 2 * ALL + 1);
    for (size_t i = 0; i < ALL; i++) {
        char label[40];
        snprintf(label, sizeof label, "%s%s", cores[i]->kind->name, i < CORES ? "" : ", aligned");
        core_row(label, cores[i], jobs + 2 * i, jobs + (i < CORES ? 0 : 2 * CORES),
                 gemm_rate(&jobs[2 * ALL]), 64);
    }
    for (size_t i = 0; i < ALL; i++) core_close(cores[i]);
    free(blocks[0]), free(blocks[1]);
}

/* Other widths of a head. */
static void bench_widths(size_t n) {
    static const struct { const char *name, *label; size_t d, offset; } rows[] = {
        {"rope", "rope, d_k 32", 32, AS_MALLOC},       {"cmha", "cmha, d_k 32", 32, AS_MALLOC},
        {"dot", "dot, d_k 32", 32, AS_MALLOC},         {"cmha", "cmha, 32, aligned", 32, ALIGNED},
        {"rope", "rope, d_k 128", 128, AS_MALLOC},     {"cmha", "cmha, d_k 128", 128, AS_MALLOC},
        {"dot", "dot, d_k 128", 128, AS_MALLOC},       {"cmha", "cmha, 128, aligned", 128, ALIGNED}};
    enum { ROWS = sizeof rows / sizeof *rows };
    core *cores[ROWS];
    job jobs[2 * ROWS + 1];
    for (size_t i = 0; i < ROWS; i++) {
        cores[i] = core_open(rows[i].name, rows[i].d, n, rows[i].offset, NULL);
        jobs[2 * i] = (job){run_core_forward, cores[i], 0, 0},
                 jobs[2 * i + 1] = (job){run_core_backward, cores[i], 0, 0};
    }
    jobs[2 * ROWS] = gemm_job();
    compare(jobs, 2 * ROWS + 1);
    for (size_t i = 0; i < ROWS; i++)
        core_row(rows[i].label, cores[i], jobs + 2 * i, jobs + i / 4 * 8, gemm_rate(&jobs[2 * ROWS]),
                 rows[i].d);
    for (size_t i = 0; i < ROWS; i++) core_close(cores[i]);
}

/* ---- what a core's time is made of ---- */

/* A core's work on tiles of 64 x 64 numbers that lie in a cache at hand, each thread with its own. */
typedef struct tiles {
    cmha_real *x[3];
    void *blocks[3];
    size_t each; /* tiles of a thread */
} tiles;

enum { TILE = 64 * 64 };

static void run_tile_products(void *work) {
    const tiles *t = work;
    int part, parts = ctx.threads;
#ifdef _OPENMP
#pragma omp parallel for num_threads(parts)
#endif
    for (part = 0; part < parts; part++) {
        const cmha_real *a = t->x[0] + (size_t)part * TILE, *b = t->x[1] + (size_t)part * TILE;
        cmha_real *c = t->x[2] + (size_t)part * TILE;
        for (size_t i = 0; i < t->each; i++) cmha_gemm(0, 0, 64, 64, 64, 1, a, 64, b, 64, i % 2 > 0, c, 64);
    }
}

static void run_tile_exponentials(void *work) {
    const tiles *t = work;
    int part, parts = ctx.threads;
#ifdef _OPENMP
#pragma omp parallel for num_threads(parts)
#endif
    for (part = 0; part < parts; part++)
        for (size_t i = 0; i < t->each; i++)
            cmha_exp(TILE, t->x[0] + (size_t)part * TILE, t->x[2] + (size_t)part * TILE);
}

/* How much of a core is products, how much exponentials, if each were done alone at the best place. The rest
   is what a better core could save: maxima and folds, moving tiles, features, a product slower than this. */
static void bench_limits(size_t n) {
    static const column columns[] = {{"whole", "ms", {NULL, NULL}, 0},
                                     {"products", "ms", {"whole", NULL}, 0},
                                     {"exponentials", "ms", {"whole", NULL}, 0},
                                     {"the rest", "ms", {"whole", NULL}, 0}};
    static const struct { const char *name; size_t offset; } rows[] = {
        {"dot", AS_MALLOC}, {"dot", ALIGNED}, {"cmha", AS_MALLOC}, {"cmha", ALIGNED}};
    enum { ROWS = sizeof rows / sizeof *rows };
    core *cores[ROWS];
    tiles t;
    job jobs[2 * ROWS + 2], *products = jobs + 2 * ROWS, *exponentials = products + 1;
    size_t strips = (n + 63) / 64;
    cmha_rng rng = cmha_rng_make(5, 0);
    report_table("attention",
                 "what its time is made of: as many products of tiles of 64 by cmha_gemm and exponentials by "
                 "cmha_exp, each alone",
                 "n", columns, 4);
    for (int i = 0; i < 3; i++) t.x[i] = array_at(ALIGNED, (size_t)ctx.threads * TILE, &rng, &t.blocks[i]);
    t.each = (HEADS * strips * (strips + 1) / 2 + (size_t)ctx.threads - 1) / (size_t)ctx.threads;
    *products = (job){run_tile_products, &t, 0, 0}, *exponentials = (job){run_tile_exponentials, &t, 0, 0};
    for (size_t i = 0; i < ROWS; i++) {
        cores[i] = core_open(rows[i].name, 64, n, rows[i].offset, NULL);
        jobs[2 * i] = (job){run_core_forward, cores[i], 0, 0},
                 jobs[2 * i + 1] = (job){run_core_backward, cores[i], 0, 0};
    }
    compare(jobs, 2 * ROWS + 2);
    for (size_t i = 0; i < 2 * ROWS; i++) {
        const core_kind *k = cores[i / 2]->kind;
        double part[4] = {jobs[i].time, products->time * (i % 2 ? k->backward : k->forward),
                          exponentials->time};
        char label[40];
        cell cells[4];
        part[3] = part[0] - part[1] - part[2];
        for (int j = 0; j < 4; j++) cells[j] = (cell){1e3 * part[j], {part[j] / part[0], NAN}};
        snprintf(label, sizeof label, "%s %s%s", k->name, i % 2 ? "back" : "forward",
                 rows[i / 2].offset ? "" : ", aligned");
        report_row(label, n, cells);
    }
    for (size_t i = 0; i < ROWS; i++) core_close(cores[i]);
    for (int i = 0; i < 3; i++) free(t.blocks[i]);
}

void bench_attention(void) {
    static const column columns[] = {{"forward", "ms", {"rope", NULL}, 0},
                                     {"forward", "GFLOP/s", {"gemm", NULL}, 0},
                                     {"backward", "ms", {"rope", NULL}, 0},
                                     {"backward", "GFLOP/s", {"gemm", NULL}, 0},
                                     {"both", "ms", {"rope", NULL}, 1}};
    report_table("attention",
                 "one core, 8 heads of 64, causal (lag: not), one sequence, all threads; arrays and "
                 "scratch 16 bytes off a cache\n  line, as malloc gives them, or on one (\"aligned\")",
                 "n", columns, 5);
    for (size_t n = 512; n <= (quick ? 1024 : 4096); n *= 2) bench_cores(n);
    bench_widths(quick ? 1024 : 2048);
    bench_limits(quick ? 1024 : 2048);
}
