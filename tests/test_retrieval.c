/* Retrieval: exact search against a double loop, the caller's own search, knowledge bases in files, and what
   the reflection window must satisfy whatever its numbers are. */
#define _POSIX_C_SOURCE 200809L
#define _DARWIN_C_SOURCE
#include "check.h"

#include <sys/stat.h>
#include <unistd.h>

enum { SMALL_N = 40, SMALL_D = 3 };

static cmha_context context;
static char folder[64], path[128];

static const char *path_of(const char *name) {
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static cmha_knowledge base_of(cmha_context *ctx, size_t n, size_t d_r, const cmha_real *vectors) {
    cmha_knowledge base;
    CHECK_OK(cmha_knowledge_init(&base, ctx, n, d_r, vectors, NULL, NULL, NULL));
    return base;
}

/* ------------------------------------------------ search ------------------------------------------------ */

static double similarity_of(const cmha_real *q, const cmha_real *r, size_t d) {
    double sum = 0;
    size_t j;
    for (j = 0; j < d; j++) {
        double a = (double)q[j], b = (double)q[d + j], x = (double)r[j], y = (double)r[d + j];
        sum += (a * x + b * y) / (sqrt(a * a + b * b + 1e-12) * sqrt(x * x + y * y + 1e-12));
    }
    return sum / (double)d;
}

/* The k best of one query by looking at each document: place by place, ties to the lower index */
static void brute_force(const cmha_real *q, const cmha_real *vectors, size_t n, size_t d, size_t k,
                        double threshold, int64_t *index, double *similarity) {
    double *all = (double *)check_alloc(n, sizeof *all);
    size_t i, p;
    for (i = 0; i < n; i++) all[i] = similarity_of(q, vectors + i * 2 * d, d);
    for (p = 0; p < k; p++) {
        size_t best = n;
        for (i = 0; i < n; i++)
            if (all[i] >= threshold && all[i] > -3 && (best == n || all[i] > all[best])) best = i;
        index[p] = best < n ? (int64_t)best : -1;
        similarity[p] = best < n ? all[best] : 0;
        if (best < n) all[best] = -4;
    }
    free(all);
}

/* Wrong places of one query. Documents nearer to each other than rounding may change places. */
static size_t wrong_places(const cmha_real *q, const cmha_real *vectors, size_t n, size_t d, size_t k,
                           double threshold, const int64_t *index, const cmha_real *similarity) {
    const double tolerance = check_tolerance(1e-12, 3e-6);
    int64_t *want = (int64_t *)check_alloc(k, sizeof *want);
    double *s = (double *)check_alloc(k, sizeof *s);
    size_t p, wrong = 0;
    brute_force(q, vectors, n, d, k, threshold, want, s);
    for (p = 0; p < k; p++) {
        int near = fabs((double)similarity[p] - s[p]) <= tolerance;
        if (index[p] < 0 || want[p] < 0) {
            double edge = fabs((index[p] < 0 ? s[p] : (double)similarity[p]) - threshold);
            wrong += (index[p] != want[p] && edge > tolerance) ||
                     (index[p] < 0 && (similarity[p] < 0 || similarity[p] > 0));
        } else if (index[p] != want[p]) {
            double own = similarity_of(q, vectors + (size_t)index[p] * 2 * d, d);
            wrong += !near || fabs(own - s[p]) > tolerance || (size_t)index[p] >= n;
        } else wrong += !near;
        if (p && index[p] >= 0) wrong += similarity[p] > similarity[p - 1] || index[p] == index[p - 1];
    }
    free(want), free(s);
    return wrong;
}

static void exact_search(size_t Q, size_t n, size_t d, size_t k, double threshold) {
    cmha_real *vectors = check_array(n * 2 * d, 1), *q = check_array(Q * 2 * d, 1), *s = check_zeros(Q * k);
    int64_t *index = (int64_t *)check_alloc(Q * k, sizeof *index);
    cmha_knowledge base = base_of(&context, n, d, vectors);
    size_t i, wrong = 0;
    CHECK_OK(cmha_knowledge_search(&base, q, Q, k, (cmha_real)threshold, index, s));
    for (i = 0; i < Q; i++)
        wrong += wrong_places(q + i * 2 * d, vectors, n, d, k, threshold <= -1 ? -2 : threshold,
                              index + i * k, s + i * k);
    CHECK_THAT(!wrong, "search of %zu in %zu x %zu, top %zu from %g: %zu places are wrong", Q, n, d, k,
               threshold, wrong);
    cmha_knowledge_close(&base);
    free(vectors), free(q), free(s), free(index);
}

static void searches(void) {
    static const size_t n[] = {0, 1, 2, 63, 64, 65, 511, 512, 513, 1025, 2100}, Q[] = {0, 1, 3, 7, 129},
                        k[] = {1, 5, 17};
    size_t a, b, c;
    for (a = 0; a < sizeof n / sizeof *n; a++)
        for (b = 0; b < sizeof Q / sizeof *Q; b++)
            for (c = 0; c < 3; c++) {
                if (check_quick() && n[a] * Q[b] > 20000) continue;
                exact_search(Q[b], n[a], 1 + (a + b + c) % 4 * 3, k[c], -1);
            }
    exact_search(5, 700, 37, 3, 0.05), exact_search(9, 700, 1, 4, 0.9), exact_search(4, 100, 2, 100, 0.2);
    exact_search(3, 20, 5, 33, -1), exact_search(2, 600, 130, 600, -1), exact_search(6, 90, 3, 5, 2),
        exact_search(4, 9, 2, 0, -1);
    exact_search(2, 3000, 2, 2, -0.5);
}

/* Equal documents tie to the bit wherever they lie: the lowest indices, in order */
static void ties(size_t Q, size_t n, size_t d) {
    enum { K = 4 };
    cmha_real *one = check_array(5 * 2 * d, 1), *vectors = check_zeros(n * 2 * d),
              *q = check_array(Q * 2 * d, 1);
    cmha_real *s = check_zeros(Q * K);
    int64_t *index = (int64_t *)check_alloc(Q * K, sizeof *index);
    cmha_knowledge base;
    size_t i, p, wrong = 0;
    for (i = 0; i < n; i++) memcpy(vectors + i * 2 * d, one + i % 5 * 2 * d, 2 * d * sizeof *one);
    base = base_of(&context, n, d, vectors);
    CHECK_OK(cmha_knowledge_search(&base, q, Q, K, -1, index, s));
    for (i = 0; i < Q; i++)
        for (p = 0; p < K; p++) {
            /* the best of the five, again and again */
            wrong += index[i * K + p] != index[i * K] % 5 + 5 * (int64_t)p;
            wrong += p && (s[i * K + p] < s[i * K] || s[i * K + p] > s[i * K]);
        }
    CHECK_THAT(!wrong, "ties of %zu x %zu: %zu places are wrong", n, d, wrong);
    memset(q, 0, Q * 2 * d * sizeof *q); /* a query of zeros is as similar to all: 0 */
    CHECK_OK(cmha_knowledge_search(&base, q, Q, K, -1, index, s));
    for (wrong = 0, i = 0; i < Q * K; i++) wrong += index[i] != (int64_t)(i % K) || s[i] > 0 || s[i] < 0;
    CHECK_THAT(!wrong, "zero queries in %zu x %zu: %zu places are wrong", n, d, wrong);
    cmha_knowledge_close(&base);
    free(one), free(vectors), free(q), free(s), free(index);
}

static void same_bits(size_t Q, size_t n, size_t d, size_t k) {
    cmha_real *vectors = check_array(n * 2 * d, 1), *q = check_array(Q * 2 * d, 1), *s[3];
    int64_t *index[3];
    int t;
    for (t = 0; t < 3; t++) {
        cmha_context own;
        cmha_knowledge base;
        s[t] = check_array(Q * k, 1), index[t] = (int64_t *)check_alloc(Q * k, sizeof **index);
        check_context(&own, t + 1, 1);
        base = base_of(&own, n, d, vectors);
        CHECK_OK(cmha_knowledge_search(&base, q, Q, k, (cmha_real)-0.3, index[t], s[t]));
        cmha_knowledge_close(&base);
        cmha_context_close(&own);
    }
    for (t = 1; t < 3; t++)
        CHECK_THAT(!memcmp(index[0], index[t], Q * k * sizeof **index) &&
                       !memcmp(s[0], s[t], Q * k * sizeof **s),
                   "search of %zu in %zu x %zu: the bits of %d threads are not those of one", Q, n, d, t + 1);
    for (t = 0; t < 3; t++) free(s[t]), free(index[t]);
    free(vectors), free(q);
}

static void odd_queries(void) {
    cmha_real *vectors = check_array(SMALL_N * 2 * SMALL_D, 1), q[4][2 * SMALL_D], s[4 * 2];
    cmha_real huge = (cmha_real)check_tolerance(1e300, 1e30);
    int64_t index[4 * 2];
    cmha_knowledge base = base_of(&context, SMALL_N, SMALL_D, vectors);
    size_t j;
    check_fill(q[0], 2 * SMALL_D, 1);
    for (j = 0; j < 2 * SMALL_D; j++) q[1][j] = q[0][j] * huge, q[2][j] = q[0][j];
    memcpy(q[3], q[0], sizeof q[0]);
    q[2][1] = (cmha_real)NAN, q[3][2] = (cmha_real)INFINITY;
    CHECK_OK(cmha_knowledge_search(&base, q[0], 4, 2, -1, index, s));
    CHECK(index[0] >= 0 && index[0] == index[2] && index[1] == index[3]); /* only phases count */
    CHECK_NEAR(s[0], s[2], 1e-5);
    CHECK(index[4] == -1 && index[5] == -1 && s[4] != s[4] && s[5] != s[5]);
    CHECK(index[6] >= -1 && index[6] < SMALL_N);
    CHECK_OK(cmha_knowledge_search(&base, q[0], 1, 1, s[0], index + 1, s + 1)); /* at the threshold: found */
    CHECK(index[1] == index[0] && s[1] == s[0]);
    CHECK_OK(cmha_knowledge_search(&base, q[0], 1, 1, s[0] * (cmha_real)(1 + FLT_EPSILON), index + 1, s + 1));
    CHECK(index[1] == -1);
    CHECK_IS(cmha_knowledge_search(&base, NULL, 1, 1, -1, index, s), CMHA_ERR_ARGUMENT);
    CHECK_IS(cmha_knowledge_search(&base, q[0], 1, 1, (cmha_real)NAN, index, s), CMHA_ERR_ARGUMENT);
    CHECK_IS(cmha_knowledge_search(&base, q[0], 1, (size_t)-1 / 8, -1, index, s), CMHA_ERR_OVERFLOW);
    CHECK_IS(cmha_knowledge_search(NULL, q[0], 1, 1, -1, index, s), CMHA_ERR_STATE);
    cmha_knowledge_close(&base);
    base = base_of(&context, 0, SMALL_D, NULL); /* without documents a NaN shows too */
    CHECK_OK(cmha_knowledge_search(&base, q[1], 2, 2, -1, index, s));
    for (j = 0; j < 4; j++) CHECK(index[j] == -1 && (j < 2 ? s[j] == 0 : s[j] != s[j]));
    cmha_knowledge_close(&base);
    base = base_of(&context, 0, 0, NULL);
    CHECK_OK(cmha_knowledge_search(&base, q[0], 1, 1, -1, index, s));
    CHECK(index[0] == -1 && s[0] == 0);
    cmha_knowledge_close(&base);
    free(vectors);
}

/* --------------------------------------- the caller's own search ---------------------------------------- */

typedef struct finder {
    cmha_knowledge *base;
    cmha_status status;
    int64_t extra; /* what is put into the first place, -2 = nothing */
    int backwards;
    size_t calls;
} finder;

/* The exact search of a copy, worst first */
static cmha_status find_backwards(void *user, const cmha_real *features, size_t Q, size_t k, int64_t *index) {
    finder *f = (finder *)user;
    cmha_real *s = check_zeros(Q * k);
    size_t q, i;
    f->calls++;
    if (f->status) return free(s), f->status;
    CHECK_OK(cmha_knowledge_search(f->base, features, Q, k, -1, index, s));
    for (q = 0; f->backwards && q < Q; q++)
        for (i = 0; i < k / 2; i++) {
            int64_t kept = index[q * k + i];
            index[q * k + i] = index[q * k + k - 1 - i], index[q * k + k - 1 - i] = kept;
        }
    if (f->extra > -2) index[0] = f->extra;
    free(s);
    return CMHA_OK;
}

static void own_search(void) {
    enum { Q = 7, K = 5 };
    cmha_real *vectors = check_array(SMALL_N * 2 * SMALL_D, 1), *q = check_array(Q * 2 * SMALL_D, 1),
              s[2][Q * K];
    int64_t index[2][Q * K];
    cmha_knowledge base = base_of(&context, SMALL_N, SMALL_D, vectors), own = base;
    finder f = {NULL, CMHA_OK, -2, 1, 0};
    f.base = &base, own.search = find_backwards, own.search_user = &f;
    CHECK_OK(cmha_knowledge_search(&base, q, Q, K, 0, index[0], s[0]));
    CHECK_OK(cmha_knowledge_search(&own, q, Q, K, 0, index[1], s[1]));
    CHECK(f.calls == 1 && !memcmp(index[0], index[1], sizeof index[0]));
    CHECK(check_distance(s[0], s[1], Q * K) < 1e-6);
    f.extra = -1; /* fewer are found than asked for */
    CHECK_OK(cmha_knowledge_search(&own, q, Q, K, -1, index[1], s[1]));
    CHECK(index[1][K - 1] == -1 && index[1][K - 2] >= 0 && index[1][K] >= 0);
    f.extra = SMALL_N;
    CHECK_IS(cmha_knowledge_search(&own, q, Q, K, -1, index[1], s[1]), CMHA_ERR_ARGUMENT);
    f.extra = -2, f.status = CMHA_STOPPED;
    CHECK_IS(cmha_knowledge_search(&own, q, Q, K, -1, index[1], s[1]), CMHA_STOPPED);
    CHECK(strstr(cmha_error(&context), "search") != NULL);
    cmha_knowledge_close(&base);
    free(vectors), free(q);
}

/* ---------------------------------------------- the window ---------------------------------------------- */

typedef struct window {
    size_t B, N, D, d_r, M;
    cmha_real *z, *wm, *bm, *w_logits, *wv, *wg, *bg;
    cmha_retrieve_args args;
    cmha_fusion fusion;
} window;

static void window_open(window *w, size_t M, size_t k, cmha_fusion fusion) {
    memset(w, 0, sizeof *w);
    w->B = 2, w->N = 4, w->D = 5, w->d_r = SMALL_D, w->M = M, w->fusion = fusion;
    w->z = check_array(8 * 10, 1), w->wm = check_array(2 * M * SMALL_D * 5, 1),
    w->bm = check_array(2 * M * SMALL_D, 1);
    w->w_logits = check_array(M, 1), w->wv = check_array(2 * 5 * SMALL_D, 1),
    w->wg = check_array(5 * (10 + 2 * SMALL_D), 1);
    w->bg = check_array(5, 1);
    w->args.queries = M, w->args.top = k, w->args.tau = (cmha_real)0.5, w->args.threshold = -1,
    w->args.eps = (cmha_real)1e-6;
}

static void window_close(window *w) {
    free(w->z), free(w->wm), free(w->bm), free(w->w_logits), free(w->wv), free(w->wg), free(w->bg);
}

static cmha_tensor *wrap(cmha_tape *tape, cmha_real *data, size_t a, size_t b, size_t c) {
    size_t shape[3];
    shape[0] = a, shape[1] = b, shape[2] = c;
    return cmha_tensor_wrap(tape, c ? 3 : b ? 2 : 1, shape, data, NULL);
}

static cmha_tensor *window_build(cmha_tape *tape, const window *w, const cmha_knowledge *base) {
    size_t D = w->D, d = w->d_r;
    cmha_irw_weights p;
    p.wm = wrap(tape, w->wm, 2, w->M * d, D), p.bm = wrap(tape, w->bm, 2, w->M * d, 0);
    p.w_logits = wrap(tape, w->w_logits, w->M, 0, 0);
    p.wv = wrap(tape, w->wv, 2, D, d), p.wg = wrap(tape, w->wg, D, 2 * D + 2 * d, 0),
    p.bg = wrap(tape, w->bg, D, 0, 0);
    return cmha_irw(tape, base, &w->args, (cmha_real)0.8, w->fusion, wrap(tape, w->z, w->B, w->N, 2 * D), &p);
}

/* y [B N, 2D], or the status of the failure */
static cmha_status window_run(const window *w, const cmha_knowledge *base, cmha_real *y) {
    cmha_tape tape;
    cmha_tensor *t;
    cmha_status status;
    CHECK_OK(cmha_tape_init(&tape, &context, 0));
    t = window_build(&tape, w, base);
    if (t) memcpy(y, t->data, t->size * sizeof *y);
    status = cmha_tape_status(&tape);
    cmha_tape_close(&tape);
    return status;
}

/* Identity 19: IRW with empty KB == identity, to the bit; so it is when nothing reaches the threshold */
static void identity_19_irw_with_empty_kb_is_identity(cmha_fusion fusion) {
    window w;
    cmha_real y[80], *vectors = check_array(SMALL_N * 2 * SMALL_D, 1);
    cmha_knowledge empty = base_of(&context, 0, SMALL_D, NULL),
                   base = base_of(&context, SMALL_N, SMALL_D, vectors);
    window_open(&w, 3, 5, fusion);
    w.z[3] = -0.0f;
    CHECK_OK(window_run(&w, &empty, y));
    CHECK(!memcmp(y, w.z, sizeof y));
    CHECK_OK(window_run(&w, NULL, y));
    CHECK(!memcmp(y, w.z, sizeof y));
    w.args.threshold = (cmha_real)1.5;
    CHECK_OK(window_run(&w, &base, y));
    CHECK(!memcmp(y, w.z, sizeof y));
    w.args.threshold = -1;
    CHECK_OK(window_run(&w, &base, y));
    CHECK(memcmp(y, w.z, sizeof y) && check_finite(y, 80));
    cmha_knowledge_close(&empty), cmha_knowledge_close(&base);
    free(vectors), window_close(&w);
}

/* Another base, then the first again: results are those of the base alone; and a
   copy of a base is as good as the base */
static void hot_swap(void) {
    window w;
    cmha_real y[4][80], *vectors[2];
    cmha_knowledge base[2], copy;
    int i;
    for (i = 0; i < 2; i++) vectors[i] = check_array((SMALL_N + 600 * (size_t)i) * 2 * SMALL_D, 1);
    for (i = 0; i < 2; i++) base[i] = base_of(&context, SMALL_N + 600 * (size_t)i, SMALL_D, vectors[i]);
    copy = base_of(&context, SMALL_N, SMALL_D, vectors[0]);
    window_open(&w, 2, 3, CMHA_FUSION_CONVEX);
    for (i = 0; i < 3; i++) CHECK_OK(window_run(&w, &base[i % 2], y[i]));
    CHECK_OK(window_run(&w, &copy, y[3]));
    CHECK(memcmp(y[0], y[1], sizeof y[0]) && !memcmp(y[0], y[2], sizeof y[0]) &&
          !memcmp(y[0], y[3], sizeof y[0]));
    CHECK(base[0].identity == copy.identity && base[0].identity != base[1].identity);
    cmha_knowledge_close(&copy);
    vectors[0][5] *= (cmha_real)(1 + FLT_EPSILON); /* the last bit of one number: another base */
    copy = base_of(&context, SMALL_N, SMALL_D, vectors[0]);
    CHECK(base[0].identity != copy.identity);
    for (i = 0; i < 2; i++) cmha_knowledge_close(&base[i]), free(vectors[i]);
    cmha_knowledge_close(&copy);
    window_close(&w);
}

/* One document and a closed gate's opposite: y is W_v r where g = 1, z where g = 0 */
static void gate_limits(void) {
    window w;
    cmha_real y[80], *r = check_array(2 * SMALL_D, 1);
    cmha_knowledge base = base_of(&context, 1, SMALL_D, r);
    size_t t, o, j;
    double worst = 0;
    window_open(&w, 3, 5, CMHA_FUSION_CONVEX);
    memset(w.wg, 0, 5 * (10 + 2 * SMALL_D) * sizeof *w.wg);
    for (j = 0; j < 5; j++) w.bg[j] = 1000;
    CHECK_OK(window_run(&w, &base, y));
    for (t = 0; t < 8; t++)
        for (o = 0; o < 5; o++) {
            double re = 0, im = 0;
            for (j = 0; j < SMALL_D; j++) {
                double a = (double)w.wv[o * SMALL_D + j], b = (double)w.wv[(5 + o) * SMALL_D + j];
                re += a * (double)r[j] - b * (double)r[SMALL_D + j],
                    im += a * (double)r[SMALL_D + j] + b * (double)r[j];
            }
            worst = fmax(worst, fabs((double)y[t * 10 + o] - re) + fabs((double)y[t * 10 + 5 + o] - im));
        }
    CHECK_NEAR(worst, 0, check_tolerance(1e-13, 1e-5));
    for (j = 0; j < 5; j++) w.bg[j] = -1000;
    CHECK_OK(window_run(&w, &base, y));
    CHECK(check_distance(y, w.z, 80) == 0);
    cmha_knowledge_close(&base);
    free(r), window_close(&w);
}

/* found: rows of which any query reached the threshold, one by one */
static void found_rows(void) {
    enum { T = 30, M = 2 };
    cmha_real *vectors = check_array(SMALL_N * 2 * SMALL_D, 1), *q = check_array(T * 2 * M * SMALL_D, 1),
              one[2 * SMALL_D], s[1];
    cmha_knowledge base = base_of(&context, SMALL_N, SMALL_D, vectors);
    cmha_retrieve_args args;
    const unsigned char *found = NULL;
    cmha_real logits[M] = {0.3f, -1};
    cmha_tape tape;
    cmha_tensor *y;
    size_t t, m, wrong = 0, none = 0;
    memset(&args, 0, sizeof args);
    args.queries = M, args.top = 3, args.tau = 1, args.threshold = (cmha_real)0.9, args.eps = (cmha_real)1e-6;
    CHECK_OK(cmha_tape_init(&tape, &context, 0));
    y = cmha_retrieve(&tape, &base, &args, wrap(&tape, q, T, 2 * M * SMALL_D, 0),
                      wrap(&tape, logits, M, 0, 0), &found);
    for (t = 0; y && t < T; t++) {
        int any = 0;
        for (m = 0; m < M; m++) {
            int64_t index;
            memcpy(one, q + t * 2 * M * SMALL_D + m * SMALL_D, SMALL_D * sizeof *one);
            memcpy(one + SMALL_D, q + t * 2 * M * SMALL_D + (M + m) * SMALL_D, SMALL_D * sizeof *one);
            CHECK_OK(cmha_knowledge_search(&base, one, 1, 1, (cmha_real)0.9, &index, s));
            any |= index >= 0;
        }
        wrong += found[t] != any || (check_largest(y->data + t * 2 * SMALL_D, 2 * SMALL_D) > 0) != any;
        none += !any;
    }
    CHECK_THAT(y && !wrong && none > 0 && none < T, "found: %zu rows are wrong, %zu found nothing", wrong,
               none);
    cmha_tape_close(&tape);
    cmha_knowledge_close(&base);
    free(vectors), free(q);
}

/* What a window with a NaN, an infinity or a huge number in one row gives: that row's own trouble alone */
static void window_edges(void) {
    window w;
    cmha_real y[2][80], *vectors = check_array(SMALL_N * 2 * SMALL_D, 1), kept;
    cmha_knowledge base = base_of(&context, SMALL_N, SMALL_D, vectors);
    window_open(&w, 3, 5, CMHA_FUSION_CONVEX);
    CHECK_OK(window_run(&w, &base, y[0]));
    kept = w.z[7], w.z[7] = (cmha_real)NAN;
    CHECK_OK(window_run(&w, &base, y[1]));
    CHECK(!check_finite(y[1], 10) && !memcmp(y[0] + 10, y[1] + 10, 70 * sizeof **y));
    w.z[7] = (cmha_real)INFINITY;
    CHECK_OK(window_run(&w, &base, y[1]));
    CHECK(!check_finite(y[1], 10) && !memcmp(y[0] + 10, y[1] + 10, 70 * sizeof **y));
    w.z[7] = kept, kept = w.bm[0], w.bm[0] = (cmha_real)NAN; /* a NaN of the parameters must show */
    CHECK_OK(window_run(&w, &base, y[1]));
    CHECK(y[1][0] != y[1][0]);
    w.bm[0] = kept;
    /* queries of zeros */
    memset(w.wm, 0, 2 * 3 * SMALL_D * 5 * sizeof *w.wm), memset(w.bm, 0, 2 * 3 * SMALL_D * sizeof *w.bm);
    CHECK_OK(window_run(&w, &base, y[1]));
    CHECK(check_finite(y[1], 80));
    w.args.top = 0; /* nothing is asked for */
    CHECK_OK(window_run(&w, &base, y[1]));
    CHECK(!memcmp(y[1], w.z, sizeof y[1]));
    cmha_knowledge_close(&base);
    free(vectors), window_close(&w);
}

static void window_errors(void) {
    window w;
    cmha_real y[80], *vectors = check_array(SMALL_N * 2 * SMALL_D, 1);
    cmha_knowledge base = base_of(&context, SMALL_N, SMALL_D, vectors),
                   other = base_of(&context, SMALL_N, SMALL_D - 1, vectors);
    finder f = {NULL, CMHA_ERR_IO, -2, 0, 0};
    window_open(&w, 3, 5, CMHA_FUSION_CONVEX);
    CHECK_IS(window_run(&w, &other, y), CMHA_ERR_SHAPE);
    w.args.queries = 2;
    CHECK_IS(window_run(&w, &base, y), CMHA_ERR_SHAPE);
    w.args.queries = 3, w.args.tau = 0;
    CHECK_IS(window_run(&w, &base, y), CMHA_ERR_ARGUMENT);
    w.args.tau = 1, w.args.eps = -1;
    CHECK_IS(window_run(&w, &base, y), CMHA_ERR_ARGUMENT);
    w.args.eps = 0, w.args.threshold = (cmha_real)NAN;
    CHECK_IS(window_run(&w, &base, y), CMHA_ERR_ARGUMENT);
    w.args.threshold = -1;
    CHECK_OK(window_run(&w, &base, y));
    base.search = find_backwards, base.search_user = &f, f.base = &base;
    CHECK_IS(window_run(&w, &base, y), CMHA_ERR_IO);
    CHECK(strstr(cmha_error(&context), "search") != NULL);
    base.search = NULL;
    cmha_knowledge_close(&base), cmha_knowledge_close(&other);
    free(vectors), window_close(&w);
}

/* A dry run takes what a real one takes, whatever the base: nothing here depends on n */
static void window_memory(void) {
    window w;
    size_t peak[3], i, n[3] = {0, 4, 3000};
    cmha_real *vectors = check_array(3000 * 2 * SMALL_D, 1);
    window_open(&w, 3, 5, CMHA_FUSION_CONVEX);
    for (i = 0; i < 3; i++) {
        cmha_knowledge base = base_of(&context, n[i], SMALL_D, vectors);
        cmha_tape tape;
        CHECK_OK(cmha_tape_init(&tape, &context, 1));
        tape.memory.measuring = !i;
        CHECK(window_build(&tape, &w, i ? &base : NULL) != NULL);
        peak[i] = tape.memory.peak;
        cmha_tape_close(&tape);
        cmha_knowledge_close(&base);
    }
    CHECK(peak[0] == peak[1] && peak[1] == peak[2]);
    free(vectors), window_close(&w);
}

/* ------------------------------------------- bases and files -------------------------------------------- */

static void opening(void) {
    static const uint64_t begin[4] = {0, 2, 2, 5}, bad[3][4] = {{1, 2, 2, 5}, {0, 3, 2, 5}, {0, 9, 9, 8}};
    cmha_real vectors[3 * 4] = {1, 2, 3, 4, 0, 0, 0, 0, -1, -2, -3, -4};
    cmha_knowledge base;
    size_t length, i;
    CHECK_OK(cmha_knowledge_init(&base, &context, 3, 2, vectors, NULL, "abcde", begin));
    CHECK(cmha_knowledge_text(&base, 0, &length) == base.texts && length == 2);
    CHECK(cmha_knowledge_text(&base, 1, &length) != NULL && length == 0);
    CHECK(!memcmp(cmha_knowledge_text(&base, 2, NULL), "cde", 3));
    CHECK(cmha_knowledge_text(&base, 3, &length) == NULL && length == 0);
    CHECK_NEAR(base.features[0], 1 / sqrt(10.0), 1e-6);
    CHECK(base.features[4] == 0 && base.features[5] == 0);
    cmha_knowledge_close(&base), cmha_knowledge_close(&base);
    CHECK(cmha_knowledge_text(&base, 0, &length) == NULL && cmha_knowledge_text(NULL, 0, NULL) == NULL);
    for (i = 0; i < 3; i++)
        CHECK_IS(cmha_knowledge_init(&base, &context, 3, 2, vectors, NULL, "abcde", bad[i]),
                 CMHA_ERR_ARGUMENT);
    CHECK_IS(cmha_knowledge_init(&base, &context, 3, 2, NULL, NULL, NULL, NULL), CMHA_ERR_ARGUMENT);
    CHECK_IS(cmha_knowledge_init(&base, &context, 3, 0, vectors, NULL, NULL, NULL), CMHA_ERR_ARGUMENT);
    CHECK_IS(cmha_knowledge_init(&base, &context, 3, 2, vectors, NULL, "x", NULL), CMHA_ERR_ARGUMENT);
    CHECK_IS(cmha_knowledge_init(&base, NULL, 3, 2, vectors, NULL, NULL, NULL), CMHA_ERR_STATE);
    CHECK_IS(cmha_knowledge_init(NULL, &context, 3, 2, vectors, NULL, NULL, NULL), CMHA_ERR_ARGUMENT);
    CHECK_IS(cmha_knowledge_init(&base, &context, 0, (size_t)-1, vectors, NULL, NULL, NULL),
             CMHA_ERR_OVERFLOW);
    vectors[7] = (cmha_real)NAN;
    CHECK_IS(cmha_knowledge_init(&base, &context, 3, 2, vectors, NULL, NULL, NULL), CMHA_ERR_NOT_FINITE);
    vectors[7] = -(cmha_real)INFINITY;
    CHECK_IS(cmha_knowledge_init(&base, &context, 3, 2, vectors, NULL, NULL, NULL), CMHA_ERR_NOT_FINITE);
    CHECK(base.context == NULL);
    cmha_knowledge_close(&base), cmha_knowledge_close(NULL);
}

static cmha_real *kept_vectors;
static int64_t kept_ids[SMALL_N];
static uint64_t kept_begin[SMALL_N + 1];
static char kept_texts[SMALL_N * SMALL_N];

/* Document i has id 1000 - 7 i and a text of i letters */
static cmha_knowledge described_base(cmha_context *ctx) {
    cmha_knowledge base;
    size_t i;
    for (i = 0; i < SMALL_N; i++) {
        kept_ids[i] = 1000 - 7 * (int64_t)i * (i == 9 ? INT64_C(1000000000000) : 1);
        kept_begin[i + 1] = kept_begin[i] + i;
        memset(kept_texts + kept_begin[i], (int)('A' + i), i);
    }
    CHECK_OK(
        cmha_knowledge_init(&base, ctx, SMALL_N, SMALL_D, kept_vectors, kept_ids, kept_texts, kept_begin));
    return base;
}

static int same_base(const cmha_knowledge *a, const cmha_knowledge *b) {
    size_t i, n[2], numbers = a->n * 2 * a->d_r * sizeof *a->vectors;
    if (a->n != b->n || a->d_r != b->d_r || a->identity != b->identity || !a->ids != !b->ids ||
        !a->texts != !b->texts)
        return 0;
    if (numbers && (memcmp(a->vectors, b->vectors, numbers) || memcmp(a->features, b->features, numbers)))
        return 0;
    if (a->ids && memcmp(a->ids, b->ids, a->n * sizeof *a->ids)) return 0;
    for (i = 0; i < a->n; i++) {
        const char *x = cmha_knowledge_text(a, i, &n[0]), *y = cmha_knowledge_text(b, i, &n[1]);
        if (n[0] != n[1] || (n[0] && memcmp(x, y, n[0]))) return 0;
    }
    return 1;
}

static void round_trip(void) {
    cmha_knowledge base[3], loaded;
    int64_t index[2][10];
    cmha_real s[2][10], *q = check_array(2 * 2 * 5, 1); /* two queries of the widest base */
    int i, map;
    base[0] = described_base(&context);
    base[1] = base_of(&context, SMALL_N - 1, SMALL_D, kept_vectors), base[2] = base_of(&context, 0, 5, NULL);
    for (i = 0; i < 3; i++)
        for (map = 0; map < 2; map++) {
            CHECK_OK(cmha_knowledge_save(&base[i], path_of("base")));
            CHECK_OK(cmha_knowledge_open(&loaded, &context, path_of("base"), map));
            CHECK_THAT(same_base(&base[i], &loaded), "base %d, map %d: it is another after loading", i, map);
#ifndef _WIN32
            CHECK((loaded.mapping != NULL) == (map && base[i].n));
#endif
            CHECK_OK(cmha_knowledge_search(&base[i], q, 2, 5, -1, index[0], s[0]));
            CHECK_OK(cmha_knowledge_search(&loaded, q, 2, 5, -1, index[1], s[1]));
            CHECK(!memcmp(index[0], index[1], sizeof index[0]) && !memcmp(s[0], s[1], sizeof s[0]));
            /* a base from a file can be saved too */
            CHECK_OK(cmha_knowledge_save(&loaded, path_of("again")));
            cmha_knowledge_close(&loaded);
            CHECK_OK(cmha_knowledge_open(&loaded, &context, path_of("again"), map));
            CHECK(same_base(&base[i], &loaded));
            cmha_knowledge_close(&loaded);
        }
    for (i = 0; i < 3; i++) cmha_knowledge_close(&base[i]);
    free(q);
}

/* What a hostile file may change; index of an item, or -1 */
typedef struct change {
    const char *name; /* NULL: the good file */
    cmha_status status;
    int drop, rename, retype, flatten, shorten, spoil;
    const char *identity;
} change;

static void write_changed(const change *c, const cmha_knowledge *base) {
    static const char *const names[5] = {"vectors", "features", "ids", "text_begin", "texts"};
    static const char *const types[5] = {NULL, NULL, "I64", "I64", "U8"};
    size_t shape[5][2] = {{SMALL_N, 2 * SMALL_D},
                          {SMALL_N, 2 * SMALL_D},
                          {SMALL_N, 0},
                          {SMALL_N + 1, 0},
                          {0, 0}};
    size_t sizes[5] = {0}, i, n = 0;
    unsigned char *data[5];
    const void *from[5];
    cmha_archive_item items[5];
    char number[24];
    const char *metadata[2] = {"identity", NULL};
    from[0] = base->vectors, from[1] = base->features, from[2] = base->ids, from[3] = base->text_begin,
    from[4] = base->texts;
    shape[4][0] = (size_t)base->text_begin[SMALL_N];
    for (i = 0; i < 5; i++) {
        sizes[i] = shape[i][0] * (i < 2 ? 2 * SMALL_D * sizeof(cmha_real) : i < 4 ? 8 : 1);
        data[i] = (unsigned char *)check_alloc(sizes[i] + 64, 1);
        memcpy(data[i], from[i], sizes[i]);
        if (c->spoil == (int)i) data[i][sizes[i] / 2 + 7 - sizes[i] / 2 % 8] ^= 0x15;
        if (c->shorten == (int)i) shape[i][0]--;
        if (c->flatten == (int)i) shape[i][i < 2] = i < 2 ? 2 * SMALL_D - 1 : shape[i][0];
        if (c->drop == (int)i) continue;
        items[n].name = c->rename == (int)i ? "other" : names[i], items[n].dtype = types[i];
        if (c->retype == (int)i)
            items[n].dtype = i < 2 ? "U8" : NULL, shape[i][0] /= i == 4 ? sizeof(cmha_real) : 1;
        items[n].data = (const cmha_real *)(const void *)data[i], items[n].shape = shape[i],
        items[n].rank = i < 2 ? 2 : 1;
        n++;
    }
    snprintf(number, sizeof number, "%llu", (unsigned long long)base->identity);
    metadata[1] = c->identity ? c->identity : number;
    CHECK_OK(cmha_archive_write(&context, path_of("changed"), items, n, metadata, 1));
    for (i = 0; i < 5; i++) free(data[i]);
}

static void hostile_files(void) {
    static const change changes[] = {
        {"as it should be", CMHA_OK, -1, -1, -1, -1, -1, -1, NULL},
        {"without vectors", CMHA_ERR_FORMAT, 0, -1, -1, -1, -1, -1, NULL},
        {"without features", CMHA_OK, 1, -1, -1, -1, -1, -1, NULL},
        {"without ids", CMHA_OK, 2, -1, -1, -1, -1, -1, NULL},
        {"texts without begins", CMHA_ERR_FORMAT, 3, -1, -1, -1, -1, -1, NULL},
        {"begins without texts", CMHA_ERR_FORMAT, 4, -1, -1, -1, -1, -1, NULL},
        {"a stranger for ids", CMHA_ERR_FORMAT, -1, 2, -1, -1, -1, -1, NULL},
        {"vectors of bytes", CMHA_ERR_FORMAT, -1, -1, 0, -1, -1, -1, NULL},
        {"features of bytes", CMHA_ERR_FORMAT, -1, -1, 1, -1, -1, -1, NULL},
        {"real ids", CMHA_ERR_FORMAT, -1, -1, 2, -1, -1, -1, NULL},
        {"real begins", CMHA_ERR_FORMAT, -1, -1, 3, -1, -1, -1, NULL},
        {"real texts", CMHA_ERR_FORMAT, -1, -1, 4, -1, -1, -1, NULL},
        {"vectors of odd width", CMHA_ERR_FORMAT, -1, -1, -1, 0, -1, -1, NULL},
        {"features of odd width", CMHA_ERR_FORMAT, -1, -1, -1, 1, -1, -1, NULL},
        {"one vector too few", CMHA_ERR_FORMAT, -1, -1, -1, -1, 0, -1, NULL},
        {"one feature too few", CMHA_ERR_FORMAT, -1, -1, -1, -1, 1, -1, NULL},
        {"one id too few", CMHA_ERR_FORMAT, -1, -1, -1, -1, 2, -1, NULL},
        {"one begin too few", CMHA_ERR_FORMAT, -1, -1, -1, -1, 3, -1, NULL},
        {"one letter too few", CMHA_ERR_FORMAT, -1, -1, -1, -1, 4, -1, NULL},
        {"another vector", CMHA_ERR_FORMAT, -1, -1, -1, -1, -1, 0, NULL},
        {"another feature", CMHA_ERR_FORMAT, -1, -1, -1, -1, -1, 1, NULL},
        {"another begin", CMHA_ERR_FORMAT, -1, -1, -1, -1, -1, 3, NULL},
        {"another letter", CMHA_OK, -1, -1, -1, -1, -1, 4, NULL},
        {"another identity", CMHA_ERR_FORMAT, -1, -1, -1, -1, -1, -1, "12345"},
        {"an identity that is none", CMHA_ERR_FORMAT, -1, -1, -1, -1, -1, -1, "ten"},
    };
    cmha_knowledge base = described_base(&context), loaded;
    size_t i;
    int map;
    for (i = 0; i < sizeof changes / sizeof *changes; i++) {
        write_changed(&changes[i], &base);
        for (map = 0; map < 2; map++) {
            cmha_status got = cmha_knowledge_open(&loaded, &context, path_of("changed"), map);
            CHECK_THAT(got == changes[i].status, "%s, map %d: \"%s\" (%s)", changes[i].name, map,
                       cmha_status_string(got), cmha_error(&context));
            if (got) CHECK(strstr(cmha_error(&context), "changed: ") && !loaded.context);
            cmha_knowledge_close(&loaded);
        }
    }
    CHECK_IS(cmha_knowledge_open(&loaded, &context, path_of("absent"), 1), CMHA_ERR_NOT_FOUND);
    CHECK_IS(cmha_knowledge_open(NULL, &context, path_of("changed"), 1), CMHA_ERR_ARGUMENT);
    CHECK_IS(cmha_knowledge_open(&loaded, NULL, path_of("changed"), 1), CMHA_ERR_ARGUMENT);
    CHECK_IS(cmha_knowledge_save(&base, path_of("no/folder")), CMHA_ERR_IO);
    CHECK_IS(cmha_knowledge_save(NULL, path_of("x")), CMHA_ERR_STATE);
    cmha_knowledge_close(&base);
}

/* A file from elsewhere: vectors alone, of which one may be NaN; and one that ends early, at every length */
static void foreign_files(void) {
    size_t shape[2] = {SMALL_N, 2 * SMALL_D}, n, cut;
    cmha_archive_item item = {"vectors", NULL, NULL, 2, NULL};
    cmha_knowledge base = base_of(&context, SMALL_N, SMALL_D, kept_vectors), loaded;
    cmha_real *spoilt = check_array(SMALL_N * 2 * SMALL_D, 1);
    unsigned char bytes[4096];
    FILE *file;
    item.data = kept_vectors, item.shape = shape;
    CHECK_OK(cmha_archive_write(&context, path_of("plain"), &item, 1, NULL, 0));
    CHECK_OK(cmha_knowledge_open(&loaded, &context, path_of("plain"), 1));
    CHECK(same_base(&base, &loaded));
    cmha_knowledge_close(&loaded);
    spoilt[77] = (cmha_real)NAN, item.data = spoilt;
    CHECK_OK(cmha_archive_write(&context, path_of("plain"), &item, 1, NULL, 0));
    CHECK_IS(cmha_knowledge_open(&loaded, &context, path_of("plain"), 0), CMHA_ERR_NOT_FINITE);
    item.dtype = "F16";
    CHECK_IS(cmha_archive_write(&context, path_of("plain"), &item, 1, NULL, 0), CMHA_ERR_ARGUMENT);
    CHECK_OK(cmha_knowledge_save(&base, path_of("plain")));
    file = fopen(path_of("plain"), "rb");
    n = file ? fread(bytes, 1, sizeof bytes, file) : 0;
    if (file) fclose(file);
    for (cut = 0; cut < n && n < sizeof bytes; cut += 41) {
        file = fopen(path_of("cut"), "wb");
        CHECK(file && fwrite(bytes, 1, cut, file) == cut);
        if (file) fclose(file);
        CHECK_IS(cmha_knowledge_open(&loaded, &context, path_of("cut"), (int)(cut & 1)), CMHA_ERR_FORMAT);
    }
    cmha_knowledge_close(&base);
    free(spoilt);
}

/* Whichever call of the allocator fails: MEMORY, and nothing is left behind */
static void failing_memory(void) {
    cmha_context own;
    check_heap heap;
    cmha_context_config config = check_heap_config(&heap);
    cmha_knowledge base;
    cmha_real *q = check_array(3 * 2 * SMALL_D, 1), s[6];
    int64_t index[6];
    size_t fail;
    cmha_status status = CMHA_ERR_MEMORY;
    CHECK_OK(cmha_context_init(&own, &config));
    for (fail = 1; fail < 60 && status; fail++) {
        heap.calls = 0, heap.fail_at = fail;
        status = cmha_knowledge_init(&base, &own, SMALL_N, SMALL_D, kept_vectors, NULL, NULL, NULL);
        if (!status) status = cmha_knowledge_search(&base, q, 3, 2, -1, index, s);
        if (!status) status = cmha_knowledge_save(&base, path_of("memory"));
        cmha_knowledge_close(&base);
        if (!status) status = cmha_knowledge_open(&base, &own, path_of("memory"), 0);
        cmha_knowledge_close(&base);
        if (status) CHECK_IS(status, CMHA_ERR_MEMORY);
        CHECK(check_heap_empty(&heap));
    }
    CHECK_OK(status);
    CHECK(fail > 6);
    cmha_context_close(&own);
    free(q);
}

/* -------------------------------------- caches and failed searches -------------------------------------- */

enum { HELD = 8, VOCABULARY = 19, PAIR = 2 };

/* A caller's search that fails when its time has come: with a status, or by a document that is not there. */
typedef struct failing {
    size_t calls, fail_at; /* 0 = never */
    cmha_status status;
} failing;

static cmha_status find_or_fail(void *user, const cmha_real *features, size_t Q, size_t k, int64_t *index) {
    failing *f = (failing *)user;
    size_t i;
    (void)features;
    for (i = 0; i < Q * k; i++) index[i] = (int64_t)(i % SMALL_N);
    if (++f->calls != f->fail_at) return CMHA_OK;
    if (!f->status) index[0] = SMALL_N;
    return f->status;
}

typedef struct appending {
    const char *label;
    check_heap heap;
    cmha_context ctx;
    cmha_model model;
    cmha_cache tried, calm; /* of the same tokens: one meets every failure, the other none */
    cmha_cache before;      /* a copy of the first, with arrays of its own */
    failing search;
} appending;

/* Checks the status, and that the cache is as it was: its numbers, its tokens and, where keys may have been
   overwritten, all its memory. What is kept beyond the tokens held is nobody's. */
static void refused(appending *a, cmha_status got, cmha_status want, const char *why) {
    const cmha_cache *now = &a->tried, *old = &a->before;
    size_t b;
    int same = now->length == old->length && now->first == old->first;
    for (b = 0; same && b < PAIR; b++)
        same = !memcmp(now->ids + b * HELD, old->ids + b * HELD, old->length * sizeof *old->ids);
    if (now->length == HELD || now->has_state)
        same = same && !memcmp(now->memory, old->memory, old->size * sizeof *old->memory);
    CHECK_THAT(got == want, "%s, %s: \"%s\", expected \"%s\"", a->label, why, cmha_status_string(got),
               cmha_status_string(want));
    CHECK_THAT(same, "%s, %s: the cache of %zu tokens is not as before", a->label, why, old->length);
}

static void keep(appending *a) {
    cmha_cache *now = &a->tried, *old = &a->before;
    old->length = now->length, old->first = now->first;
    memcpy(old->memory, now->memory, now->size * sizeof *now->memory);
    memcpy(old->ids, now->ids, PAIR * HELD * sizeof *now->ids);
}

/* n tokens with every failure there is, and at last with none. */
static void append_with_failures(appending *a, int32_t *ids, size_t n) {
    static const cmha_status statuses[3] = {CMHA_STOPPED, CMHA_ERR_IO, CMHA_OK};
    cmha_real got[PAIR * VOCABULARY], want[PAIR * VOCABULARY];
    cmha_cache *tried = &a->tried;
    cmha_status status = CMHA_OK;
    size_t i, calls;
    keep(a);
    a->search.calls = a->search.fail_at = 0;
    CHECK_OK(cmha_cache_append(&a->calm, ids, n, want));
    for (calls = a->search.calls, i = 0; i < 3 * calls; i++) {
        a->search.calls = 0, a->search.fail_at = i / 3 + 1, a->search.status = statuses[i % 3];
        status = cmha_cache_append(tried, ids, n, got);
        refused(a, status, statuses[i % 3] ? statuses[i % 3] : CMHA_ERR_ARGUMENT, "a failed search");
    }
    CHECK(calls > 0);
    a->search.fail_at = 0;
    for (i = 0; i < 2; i++) { /* a bad token among those that are read, and among those that are too many */
        size_t at = i ? PAIR * n - 1 : 0;
        int32_t good = ids[at];
        ids[at] = i ? VOCABULARY : -1;
        refused(a, cmha_cache_append(tried, ids, n, got), CMHA_ERR_TOKEN, "a bad token");
        ids[at] = good;
    }
    refused(a, cmha_cache_append(tried, NULL, n, got), CMHA_ERR_ARGUMENT, "ids is NULL");
    for (a->heap.once = 1, a->heap.fail_at = 1; a->heap.fail_at < 100; a->heap.fail_at++) {
        a->heap.calls = 0;
        if (!(status = cmha_cache_append(tried, ids, n, got))) break;
        refused(a, status, CMHA_ERR_MEMORY, "no memory");
    }
    a->heap.fail_at = 0;
    CHECK_THAT(!status && !memcmp(got, want, sizeof got), "%s: other bits after failures", a->label);
}

static void failed_appends(const char *kind, int slide, cmha_storage storage) {
    static const size_t sizes[] = {5, 1, 2, 1, 1, 1, 3, 1, 20, 1, 1};
    cmha_real *vectors = check_array(SMALL_N * 16, 1);
    cmha_context_config config;
    cmha_model_config m = check_model_config();
    cmha_cache_options options = {CMHA_STORAGE_FLOAT, 0, NULL, 0, 0};
    cmha_knowledge base;
    appending a;
    int32_t ids[PAIR * 20];
    size_t i, j, held;
    memset(&a, 0, sizeof a);
    a.label = kind, options.storage = storage;
    config = check_heap_config(&a.heap);
    CHECK_OK(cmha_context_init(&a.ctx, &config));
    CHECK_OK(cmha_kind(&a.ctx, kind, &m));
    m.irw_layers = 2, m.irw_from = 1;
    CHECK_OK(cmha_model_init(&a.model, &a.ctx, &m));
    base = base_of(&a.ctx, SMALL_N, 8, vectors);
    base.search = find_or_fail, base.search_user = &a.search;
    CHECK_OK(cmha_model_set_knowledge(&a.model, &base));
    CHECK_OK(cmha_cache_init(&a.tried, &a.model, PAIR, HELD, slide, &options));
    CHECK_OK(cmha_cache_init(&a.calm, &a.model, PAIR, HELD, slide, &options));
    CHECK_OK(cmha_cache_init(&a.before, &a.model, PAIR, HELD, slide, &options));
    for (i = held = 0; i < sizeof sizes / sizeof *sizes; held += sizes[i++]) {
        if (!slide && held + sizes[i] > HELD) break;
        for (j = 0; j < PAIR * sizes[i]; j++) ids[j] = (int32_t)check_below(VOCABULARY);
        append_with_failures(&a, ids, sizes[i]);
    }
    keep(&a);
    if (slide) CHECK(a.tried.first > 20);
    else refused(&a, cmha_cache_append(&a.tried, ids, 1, NULL), CMHA_ERR_FULL, "full");
    cmha_cache_close(&a.tried), cmha_cache_close(&a.calm), cmha_cache_close(&a.before);
    cmha_knowledge_close(&base), cmha_model_close(&a.model), cmha_context_close(&a.ctx);
    CHECK(check_heap_empty(&a.heap));
    free(vectors);
}

/* ------------------------------------------ vectors of a model ------------------------------------------ */

static void model_vectors(void) {
    enum { B = 3, N = 6, W = 16 };
    static const unsigned char mask[B * N] = {1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0};
    cmha_model_config config = check_model_config();
    cmha_model model;
    cmha_batch batch;
    cmha_tape tape;
    cmha_tensor *states;
    int32_t ids[B * N];
    cmha_real got[B * W];
    size_t b, n, j;
    double worst = 0;
    config.causal = 0;
    CHECK_OK(cmha_model_init(&model, &context, &config));
    memset(&batch, 0, sizeof batch);
    for (j = 0; j < B * N; j++) ids[j] = (int32_t)check_below(19);
    batch.ids = ids, batch.batch = B, batch.length = N, batch.key_mask = mask;
    CHECK_OK(cmha_model_vectors(&model, &batch, got));
    CHECK_OK(cmha_tape_init(&tape, &context, 0));
    states = cmha_model_states(&model, &tape, &batch, NULL);
    for (b = 0; states && b < B; b++)
        for (j = 0; j < W / 2; j++) {
            double re = 0, im = 0, count = 0;
            for (n = 0; n < N; n++) {
                const cmha_real *z = states->data + (b * N + n) * W;
                double r = hypot(hypot((double)z[j], (double)z[W / 2 + j]), 1e-6);
                if (!mask[b * N + n]) continue;
                re += (double)z[j] / r, im += (double)z[W / 2 + j] / r, count++;
            }
            if (count > 0) re /= count, im /= count;
            worst =
                fmax(worst, fabs((double)got[b * W + j] - re) + fabs((double)got[b * W + W / 2 + j] - im));
        }
    CHECK(states != NULL);
    CHECK_NEAR(worst, 0, check_tolerance(1e-13, 2e-6));
    CHECK_IS(cmha_model_vectors(&model, NULL, got), CMHA_ERR_ARGUMENT);
    CHECK_IS(cmha_model_vectors(&model, &batch, NULL), CMHA_ERR_ARGUMENT);
    cmha_tape_close(&tape);
    cmha_model_close(&model);
}

int main(int argc, char **argv) {
    int slide;
    (void)argc;
    cmha_blas_restart(argv);
    strcpy(folder, "/tmp/cmha-retrieval-XXXXXX");
    if (!mkdtemp(folder)) return puts("no folder for the test"), 3;
    check_context(&context, 2, 1);
    kept_vectors = check_array(SMALL_N * 2 * SMALL_D, 1);
    searches();
    ties(1, 1300, 7), ties(3, 1300, 33), ties(5, 521, 200), ties(130, 77, 3), ties(9, 40, 300);
    same_bits(1, 5000, 5, 3), same_bits(3, 2600, 16, 5), same_bits(7, 3000, 9, 4), same_bits(150, 1900, 9, 5);
    same_bits(1700, 300, 4, 2), same_bits(1100, 2600, 4, 2);
    odd_queries();
    own_search();
    identity_19_irw_with_empty_kb_is_identity(CMHA_FUSION_CONVEX),
        identity_19_irw_with_empty_kb_is_identity(CMHA_FUSION_ADDITIVE);
    hot_swap();
    gate_limits();
    found_rows();
    window_edges();
    window_errors();
    window_memory();
    opening();
    round_trip();
    hostile_files();
    foreign_files();
    failing_memory();
    model_vectors();
    for (slide = 0; slide < 2; slide++) {
        failed_appends("angular", slide, CMHA_STORAGE_FLOAT);
        failed_appends("angular-linear", slide, CMHA_STORAGE_FLOAT);
        failed_appends("crat", slide, CMHA_STORAGE_BF16);
    }
    free(kept_vectors);
    cmha_context_close(&context);
    {
        static const char *const files[] = {"base", "again", "changed", "plain", "cut", "memory"};
        size_t i;
        for (i = 0; i < sizeof files / sizeof *files; i++) (void)remove(path_of(files[i]));
        (void)rmdir(folder);
    }
    return check_end();
}
