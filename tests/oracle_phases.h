/* Attention of complex queries and keys (CoPE, MöbiusAttention, CRAT's angular attention) as the definitions
   print it: whole rows of scores, in double, no tiles and no tables of signs, with the gradients written out.
   And the problems that tests run through it. */
#ifndef ORACLE_PHASES_H
#define ORACLE_PHASES_H

#include "oracle.h"

/* What is done with O and the values: one row of the matrix of options */
typedef struct phase_form {
    const char *name;
    int cope; /* -1, or the score that cmha_cope_set_args turns into args */
    cmha_norm_max norm_max;
    cmha_attention_kind kind;
    cmha_softmax_kind softmax;
    int bilinear, complex_v;
    double magnitude, cosine, eps;
    int repo_scale;
} phase_form;

#define PHASE_COMPLEX CMHA_ATTENTION_COMPLEX
#define PHASE_ANGULAR CMHA_ATTENTION_ANGULAR
static const phase_form phase_forms[] = {
    {"ri_product", -1, CMHA_NORM_MAX_NONE, PHASE_COMPLEX, CMHA_SOFTMAX_RI_PRODUCT, 0, 1, 0, 0, 0, 0},
    {"ri_product bilinear", -1, CMHA_NORM_MAX_NONE, PHASE_COMPLEX, CMHA_SOFTMAX_RI_PRODUCT, 1, 1, 0, 0, 0, 0},
    {"real", -1, CMHA_NORM_MAX_NONE, PHASE_COMPLEX, CMHA_SOFTMAX_REAL, 0, 1, 0, 0, 0, 0},
    {"real bilinear", -1, CMHA_NORM_MAX_NONE, PHASE_COMPLEX, CMHA_SOFTMAX_REAL, 1, 1, 0, 0, 0, 0},
    {"ri_split", -1, CMHA_NORM_MAX_NONE, PHASE_COMPLEX, CMHA_SOFTMAX_RI_SPLIT, 0, 1, 0, 0, 0, 0},
    {"ri_split bilinear", -1, CMHA_NORM_MAX_NONE, PHASE_COMPLEX, CMHA_SOFTMAX_RI_SPLIT, 1, 1, 0, 0, 0, 0},
    {"yang8", -1, CMHA_NORM_MAX_NONE, PHASE_COMPLEX, CMHA_SOFTMAX_YANG8, 0, 1, 0, 0, 0, 0},
    {"yang8 bilinear", -1, CMHA_NORM_MAX_NONE, PHASE_COMPLEX, CMHA_SOFTMAX_YANG8, 1, 1, 0, 0, 0, 0},
    {"magnitude", -1, CMHA_NORM_MAX_NONE, PHASE_COMPLEX, CMHA_SOFTMAX_SCORE, 0, 1, 1, 0, 0, 0},
    {"magnitude bilinear", -1, CMHA_NORM_MAX_NONE, PHASE_COMPLEX, CMHA_SOFTMAX_SCORE, 1, 1, 1.5, 0, 0, 0},
    {"cosine", -1, CMHA_NORM_MAX_NONE, PHASE_COMPLEX, CMHA_SOFTMAX_SCORE, 0, 1, 0, 1.3, 0.1, 0},
    {"cosine bilinear", -1, CMHA_NORM_MAX_NONE, PHASE_COMPLEX, CMHA_SOFTMAX_SCORE, 1, 1, 0, 2, 0.1, 0},
    {"both", -1, CMHA_NORM_MAX_NONE, PHASE_COMPLEX, CMHA_SOFTMAX_SCORE, 0, 1, 0.7, 0.9, 0.2, 0},
    {"both bilinear", -1, CMHA_NORM_MAX_ROW, PHASE_COMPLEX, CMHA_SOFTMAX_SCORE, 1, 1, 1.3, 0.4, 0.2, 0},
    {"both bilinear, real values", -1, CMHA_NORM_MAX_GLOBAL, PHASE_COMPLEX, CMHA_SOFTMAX_SCORE,
     1, 0, 2, -0.8, 0.2, 0},
    {"cope phase", CMHA_COPE_SCORE_PHASE, CMHA_NORM_MAX_NONE, PHASE_COMPLEX, CMHA_SOFTMAX_REAL,
     0, 0, 0, 0, 0.1, 0},
    {"cope magnitude", CMHA_COPE_SCORE_MAGNITUDE, CMHA_NORM_MAX_NONE, PHASE_COMPLEX, CMHA_SOFTMAX_REAL,
     0, 0, 0, 0, 0.1, 0},
    {"cope magnitude, repo", CMHA_COPE_SCORE_MAGNITUDE, CMHA_NORM_MAX_NONE, PHASE_COMPLEX, CMHA_SOFTMAX_REAL,
     0, 0, 0, 0, 0.1, 1},
    {"cope real", CMHA_COPE_SCORE_REAL, CMHA_NORM_MAX_NONE, PHASE_COMPLEX, CMHA_SOFTMAX_REAL,
     0, 0, 0, 0, 0.1, 0},
    {"cope real, repo", CMHA_COPE_SCORE_REAL, CMHA_NORM_MAX_NONE, PHASE_COMPLEX, CMHA_SOFTMAX_REAL,
     0, 0, 0, 0, 0.1, 1},
    {"cope hybrid", CMHA_COPE_SCORE_HYBRID, CMHA_NORM_MAX_NONE, PHASE_COMPLEX, CMHA_SOFTMAX_REAL,
     0, 0, 0, 0, 0.1, 0},
    {"cope hybrid, repo", CMHA_COPE_SCORE_HYBRID, CMHA_NORM_MAX_NONE, PHASE_COMPLEX, CMHA_SOFTMAX_REAL,
     0, 0, 0, 0, 0.1, 1},
    {"cope hybrid_norm, no maximum", CMHA_COPE_SCORE_HYBRID_NORM, CMHA_NORM_MAX_NONE, PHASE_COMPLEX,
     CMHA_SOFTMAX_REAL, 0, 0, 0, 0, 0.1, 0},
    {"cope hybrid_norm row", CMHA_COPE_SCORE_HYBRID_NORM, CMHA_NORM_MAX_ROW, PHASE_COMPLEX, CMHA_SOFTMAX_REAL,
     0, 0, 0, 0, 0.1, 0},
    {"cope hybrid_norm head", CMHA_COPE_SCORE_HYBRID_NORM, CMHA_NORM_MAX_HEAD, PHASE_COMPLEX,
     CMHA_SOFTMAX_REAL, 0, 0, 0, 0, 0.1, 0},
    {"cope hybrid_norm global", CMHA_COPE_SCORE_HYBRID_NORM, CMHA_NORM_MAX_GLOBAL, PHASE_COMPLEX,
     CMHA_SOFTMAX_REAL, 0, 0, 0, 0, 0.1, 1},
    {"angular", -1, CMHA_NORM_MAX_NONE, PHASE_ANGULAR, CMHA_SOFTMAX_REAL, 0, 1, 0, 0, 1e-6, 0},
    {"angular, eps 0.3", -1, CMHA_NORM_MAX_NONE, PHASE_ANGULAR, CMHA_SOFTMAX_REAL, 0, 1, 0, 0, 0.3, 0},
    {"angular, real values", -1, CMHA_NORM_MAX_NONE, PHASE_ANGULAR, CMHA_SOFTMAX_REAL, 0, 0, 0, 0, 1e-6, 0},
    {"angular ri_product", -1, CMHA_NORM_MAX_NONE, PHASE_ANGULAR, CMHA_SOFTMAX_RI_PRODUCT,
     1, 1, 0, 0, 0.3, 0},
    {"arctan", -1, CMHA_NORM_MAX_NONE, PHASE_ANGULAR, CMHA_SOFTMAX_REAL, 0, 1, 0, 0, 1e-6, 0},
    {"arctan, real values", -1, CMHA_NORM_MAX_NONE, PHASE_ANGULAR, CMHA_SOFTMAX_REAL, 0, 0, 0, 0, 0.3, 0},
    {"angular score", -1, CMHA_NORM_MAX_NONE, PHASE_ANGULAR, CMHA_SOFTMAX_SCORE, 0, 1, 0.8, 0.5, 0.3, 0},
};
enum { PHASE_FORMS = sizeof phase_forms / sizeof *phase_forms };

static inline const phase_form *phase_find(const char *name) {
    size_t i;
    for (i = 0; i < PHASE_FORMS; i++)
        if (!strcmp(phase_forms[i].name, name)) return &phase_forms[i];
    CHECK_THAT(0, "no form is called %s", name);
    return phase_forms;
}

/* What varies between problems; zero is the plainest choice */
typedef struct phase_shape {
    size_t B, H, Hkv, n_q, n_k, d_k, d_v;
    int tokens;              /* token-major views with gaps between the planes and the rows */
    int causal, mask, alibi; /* mask 2: of the last sequence no key is left */
    size_t window;
    double dropout;
    int threads;
} phase_shape;

typedef struct phase_problem {
    cmha_attention_args args;
    int tokens, several; /* several softmaxes: no lse */
    size_t nq, nkk, nv, ny, nl;
    /* lse [nl] is the sum of the pairs */
    cmha_real *q, *k, *v, *y, *lse, *scratch, *dy, *dlse, *dq, *dk, *dv;
    cmha_lse *pairs;
    unsigned char *mask;
    cmha_real slopes[16], log_temp[16], dlog_temp[16]; /* see phase_heat */
} phase_problem;

enum { PHASE_Q, PHASE_K, PHASE_V, PHASE_Y };

/* y before a forward, and what lies in its gaps after it */
static const cmha_real phase_untouched = (cmha_real)0.0625;

/* The array as args see it; of data NULL, only its strides. *size: numbers in the whole array. */
static inline cmha_heads phase_view(const phase_problem *p, int which, cmha_real *data, size_t *size) {
    const cmha_attention_args *a = &p->args;
    int is_key = which == PHASE_K || which == PHASE_V, pair = which < PHASE_V || a->complex_v;
    size_t H = is_key ? a->kv_heads : a->heads, N = is_key ? a->n_k : a->n_q,
           d = which < PHASE_V ? a->d_k : a->d_v, row = H * d + 2;
    if (pair) row += H * d + 1;
    if (size) *size = p->tokens ? a->batch * N * row : a->batch * H * N * d * (pair ? 2 : 1);
    if (!p->tokens) return pair ? cmha_heads_by_head(data, H, N, d, 1) : cmha_heads_by_head(data, H, N, d, 0);
    return pair ? cmha_heads_by_token(data, N, row, d, H * d + 1) : cmha_heads_by_token(data, N, row, d, 0);
}

static inline size_t phase_at(cmha_heads view, size_t b, size_t h, size_t n) {
    return b * view.batch + h * view.head + n * view.token;
}

static inline void phase_args(cmha_attention_args *a, const phase_form *f) {
    cmha_cope_options o;
    a->scale = (cmha_real)(1 / sqrt((double)(a->d_k ? a->d_k : 1)));
    a->kind = f->kind, a->softmax = f->softmax, a->bilinear = f->bilinear, a->complex_v = f->complex_v;
    a->magnitude = (cmha_real)f->magnitude, a->cosine = (cmha_real)f->cosine, a->eps = (cmha_real)f->eps;
    a->angle = !strncmp(f->name, "arctan", 6);
    a->norm_max = f->norm_max;
    a->norm_max_grad = f->norm_max != CMHA_NORM_MAX_NONE;
    if (f->cope < 0) return;
    memset(&o, 0, sizeof o);
    o.score = (cmha_cope_score)f->cope, o.alpha = (cmha_real)0.8, o.eps = (cmha_real)f->eps;
    o.repo_scale = f->repo_scale, o.norm_max = f->norm_max, o.norm_max_grad = 1;
    cmha_cope_set_args(a, &o);
}

/* Numbers near zero have no phase that differences could follow */
static inline void phase_off_zero(cmha_real *x, size_t n) {
    size_t i;
    for (i = 0; i < n; i++) x[i] += (cmha_real)(x[i] < 0 ? -0.2 : 0.2);
}

static inline void phase_arrays(phase_problem *p) {
    phase_view(p, PHASE_Q, NULL, &p->nq), phase_view(p, PHASE_K, NULL, &p->nkk);
    phase_view(p, PHASE_V, NULL, &p->nv), phase_view(p, PHASE_Y, NULL, &p->ny);
    p->nl = p->args.batch * p->args.heads * p->args.n_q;
    p->q = check_array(p->nq, 1.3), p->k = check_array(p->nkk, 1.3), p->v = check_array(p->nv, 1);
    phase_off_zero(p->q, p->nq), phase_off_zero(p->k, p->nkk);
    p->y = check_zeros(p->ny), p->lse = check_zeros(p->nl),
    p->pairs = (cmha_lse *)check_alloc(p->nl, sizeof *p->pairs);
    p->dy = check_array(p->ny, 1), p->dlse = check_array(p->nl, 1);
    p->dq = check_zeros(p->nq), p->dk = check_zeros(p->nkk), p->dv = check_zeros(p->nv);
}

/* Every third key or so is masked, the first too: under a causal mask row 0 sees nothing.
   The last two are there: someone chooses */
static inline void phase_masks(phase_problem *p, const phase_shape *s) {
    cmha_attention_args *a = &p->args;
    size_t i;
    p->mask = (unsigned char *)check_alloc(a->batch * a->n_k, 1);
    for (i = 0; i < a->batch * a->n_k; i++) {
        p->mask[i] = (unsigned char)(check_random() < 0.4 || i % a->n_k + 2 >= a->n_k);
        if (i % a->n_k == 0 && a->n_k > 1) p->mask[i] = 0;
        if (s->mask == 2 && i >= (a->batch - 1) * a->n_k) p->mask[i] = 0;
    }
    if (s->mask) a->key_mask = p->mask;
    if (a->heads) cmha_alibi_slopes(a->heads, p->slopes);
    if (s->alibi) a->alibi = p->slopes;
}

static inline void phase_open(phase_problem *p, const phase_form *f, const phase_shape *s) {
    cmha_attention_args *a = &p->args;
    size_t forward, backward;
    memset(p, 0, sizeof *p);
    a->batch = s->B, a->heads = s->H, a->kv_heads = s->Hkv, a->n_q = s->n_q, a->n_k = s->n_k, a->d_k = s->d_k,
    a->d_v = s->d_v;
    a->causal = s->causal, a->window = s->window, a->dropout = (cmha_real)s->dropout, a->key = 4321,
    a->threads = s->threads;
    p->tokens = s->tokens;
    phase_args(a, f);
    p->several = a->softmax != CMHA_SOFTMAX_REAL && a->softmax != CMHA_SOFTMAX_SCORE;
    phase_masks(p, s);
    phase_arrays(p);
    forward = cmha_attention_scratch(a, 0), backward = cmha_attention_scratch(a, 1);
    p->scratch = check_array(forward > backward ? forward : backward, 1e30); /* nobody may count on zeros */
}

/* Gives every head a temperature of its own */
static inline void phase_heat(phase_problem *p) {
    cmha_attention_args *a = &p->args;
    a->temperature = 1, a->parameters[0] = p->log_temp;
    check_fill(p->log_temp, a->heads, 0.7), free(p->scratch);
    p->scratch = check_array(cmha_attention_scratch(a, 0) + cmha_attention_scratch(a, 1), 1e30);
}

static inline void phase_close(phase_problem *p) {
    free(p->q), free(p->k), free(p->v), free(p->y), free(p->lse), free(p->pairs), free(p->scratch);
    free(p->dy), free(p->dlse), free(p->dq), free(p->dk), free(p->dv), free(p->mask);
}

/* All arrays but the gradients */
static inline cmha_attention_views phase_views(const phase_problem *p) {
    cmha_attention_views x;
    memset(&x, 0, sizeof x);
    x.q = phase_view(p, PHASE_Q, p->q, NULL), x.k = phase_view(p, PHASE_K, p->k, NULL),
    x.v = phase_view(p, PHASE_V, p->v, NULL);
    x.y = phase_view(p, PHASE_Y, p->y, NULL), x.dy = phase_view(p, PHASE_Y, p->dy, NULL);
    return x;
}

static inline void phase_forward(phase_problem *p) {
    cmha_attention_views x = phase_views(p);
    size_t i;
    for (i = 0; i < p->ny; i++) p->y[i] = phase_untouched;
    cmha_attention_forward(&p->args, &x, p->several ? NULL : p->pairs, p->scratch);
    for (i = 0; i < p->nl; i++) p->lse[i] = p->pairs[i].largest + p->pairs[i].log_sum;
}

/* The larger difference of two rows' parts, and the largest part */
static inline double phase_lse_distance(const cmha_lse *a, const cmha_lse *b, size_t n) {
    double most = 0;
    for (size_t i = 0; i < n; i++) {
        double d =
            fmax(fabs((double)(a[i].largest - b[i].largest)), fabs((double)(a[i].log_sum - b[i].log_sum)));
        most = d <= most ? most : d == d && a[i].in_double == b[i].in_double ? d : HUGE_VAL;
    }
    return most;
}

static inline double phase_lse_size(const cmha_lse *a, size_t n) {
    double most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fmax(fabs((double)a[i].largest), fabs((double)a[i].log_sum)));
    return most;
}

/* Adds to dq, dk and dv, each of which may be NULL */
static inline void phase_backward(phase_problem *p, cmha_real *dq, cmha_real *dk, cmha_real *dv) {
    cmha_attention_views x = phase_views(p);
    cmha_real *dlog_temp = p->dlog_temp;
    x.dq = phase_view(p, PHASE_Q, dq, NULL), x.dk = phase_view(p, PHASE_K, dk, NULL),
    x.dv = phase_view(p, PHASE_V, dv, NULL);
    cmha_attention_backward(&p->args, &x, p->several ? NULL : p->pairs, p->several ? NULL : p->dlse,
                            p->args.temperature ? &dlog_temp : NULL, p->scratch);
}

static inline void phase_label(const phase_form *f, const phase_shape *s, char *label, size_t size) {
    snprintf(label, size, "%s%s B%zu H%zu/%zu n%zu/%zu d%zu/%zu%s%s%s window %zu dropout %g", f->name,
             s->tokens ? " tokens" : "", s->B, s->H, s->Hkv, s->n_q, s->n_k, s->d_k, s->d_v,
             s->causal ? " causal" : "",
             s->mask == 2 ? " masked out"
             : s->mask    ? " mask"
                          : "",
             s->alibi ? " alibi" : "", s->window, s->dropout);
}

/* ------------------------------------------- the definitions -------------------------------------------- */

/* Everything in double. X [rows, n_k, 4] are the products Re q Re k, Re q Im k, Im q Re k, Im q Im k of every
   pair, G their gradients; the rows are those of lse. */
typedef struct phase_oracle {
    double *y, *lse, *dq, *dk, *dv; /* laid out as the problem's */
    double *uq, *uk;                /* [rows, 2d]: what enters the products */
    double *X, *G, *divisor, *kept; /* kept [rows, n_k]: dropout's factors */
    double *P, *score;              /* of one row: [4, n_k] each */
    double dlog_temp[16];
} phase_oracle;

static inline double *phase_doubles(size_t n) { return (double *)check_alloc(n, sizeof(double)); }

/* u = z, or its phasor */
static inline void phase_features(const phase_problem *p, int which, const cmha_real *x, double *u) {
    const cmha_attention_args *a = &p->args;
    cmha_heads view = phase_view(p, which, NULL, NULL);
    size_t H = which == PHASE_K ? a->kv_heads : a->heads, N = which == PHASE_K ? a->n_k : a->n_q, b, h, n, j;
    for (b = 0; b < a->batch; b++)
        for (h = 0; h < H; h++)
            for (n = 0; n < N; n++, u += 2 * a->d_k)
                for (j = 0; j < a->d_k; j++) {
                    double re = (double)x[phase_at(view, b, h, n) + j],
                           im = (double)x[phase_at(view, b, h, n) + view.imag + j], r = 1;
                    if (a->kind == PHASE_ANGULAR)
                        r = sqrt(re * re + im * im + (double)a->eps * (double)a->eps);
                    if (a->angle && re < 0) re = -re, im = -im; /* arctan: z and -z alike */
                    u[j] = r > 0 ? re / r : 0, u[a->d_k + j] = r > 0 ? im / r : 0;
                }
}

/* Feature gradients g back to z: g / r - z Re(conj(z) g) / r^3 for phasors */
static inline void phase_features_back(const phase_problem *p, int which, const cmha_real *x, const double *g,
                                       double *dx) {
    const cmha_attention_args *a = &p->args;
    cmha_heads view = phase_view(p, which, NULL, NULL);
    size_t H = which == PHASE_K ? a->kv_heads : a->heads, N = which == PHASE_K ? a->n_k : a->n_q, b, h, n, j;
    for (b = 0; b < a->batch; b++)
        for (h = 0; h < H; h++)
            for (n = 0; n < N; n++, g += 2 * a->d_k)
                for (j = 0; j < a->d_k; j++) {
                    size_t at = phase_at(view, b, h, n) + j;
                    double re = (double)x[at], im = (double)x[at + view.imag], r = 1, along = 0;
                    double sign = a->angle && re < 0 ? -1 : 1;
                    if (a->kind == PHASE_ANGULAR) {
                        r = sqrt(re * re + im * im + (double)a->eps * (double)a->eps);
                        along = (re * g[j] + im * g[a->d_k + j]) / (r * r * r);
                    }
                    dx[at] += sign * (g[j] / r - re * along);
                    dx[at + view.imag] += sign * (g[a->d_k + j] / r - im * along);
                }
}

/* The row of keys that row r of the queries belongs to */
static inline size_t phase_keys(const cmha_attention_args *a, size_t r) {
    size_t b = r / a->n_q / a->heads, h = r / a->n_q % a->heads;
    return (b * a->kv_heads + h / (a->heads / a->kv_heads)) * a->n_k;
}

static inline int phase_sees(const cmha_attention_args *a, size_t r, size_t n) {
    double distance = (double)(r % a->n_q) + (double)a->n_k - (double)a->n_q - (double)n;
    return oracle_permitted(a, r / a->n_q / a->heads, r % a->n_q, n, distance);
}

/* O before the scale, from the four products */
static inline void phase_O(const cmha_attention_args *a, const double *X, double *re, double *im) {
    *re = a->bilinear ? X[0] - X[3] : X[0] + X[3];
    *im = a->bilinear ? X[1] + X[2] : X[2] - X[1];
}

static inline void phase_O_back(const cmha_attention_args *a, double re, double im, double *G) {
    G[0] += re, G[3] += a->bilinear ? -re : re;
    G[1] += a->bilinear ? im : -im, G[2] += im;
}

static inline void phase_products(const cmha_attention_args *a, const double *uq, const double *uk,
                                  double *X) {
    size_t rows = a->batch * a->heads * a->n_q, d = a->d_k, r, n, j;
    for (r = 0; r < rows; r++)
        for (n = 0; n < a->n_k; n++, X += 4) {
            const double *q = uq + r * 2 * d, *k = uk + (phase_keys(a, r) + n) * 2 * d;
            for (j = 0; j < d; j++) {
                X[0] += q[j] * k[j], X[1] += q[j] * k[d + j];
                X[2] += q[d + j] * k[j], X[3] += q[d + j] * k[d + j];
            }
        }
}

/* Where the largest |O| of rows [begin, end) is, rows * n_k if nowhere; masked pairs count for GLOBAL */
static inline size_t phase_highest(const cmha_attention_args *a, const double *X, size_t begin, size_t end,
                                   double *most) {
    size_t best = end * a->n_k, r, n;
    double re, im;
    *most = 0;
    for (r = begin; r < end; r++)
        for (n = 0; n < a->n_k; n++) {
            if (a->norm_max != CMHA_NORM_MAX_GLOBAL && !phase_sees(a, r, n)) continue;
            phase_O(a, X + (r * a->n_k + n) * 4, &re, &im);
            if (best == end * a->n_k || hypot(re, im) > *most) best = r * a->n_k + n, *most = hypot(re, im);
        }
    return best;
}

static inline size_t phase_group(const cmha_attention_args *a) {
    return a->norm_max == CMHA_NORM_MAX_ROW    ? 1
           : a->norm_max == CMHA_NORM_MAX_HEAD ? a->n_q
                                          : a->batch * a->heads * a->n_q;
}

static inline void phase_divisors(const cmha_attention_args *a, phase_oracle *o) {
    size_t rows = a->batch * a->heads * a->n_q, begin, r;
    double most;
    for (r = 0; r < rows; r++) o->divisor[r] = 1;
    if (a->norm_max == CMHA_NORM_MAX_NONE || a->softmax != CMHA_SOFTMAX_SCORE) return;
    for (begin = 0; begin < rows; begin += phase_group(a)) {
        phase_highest(a, o->X, begin, begin + phase_group(a), &most);
        for (r = begin; r < begin + phase_group(a); r++) o->divisor[r] = most + 1e-12;
    }
}

/* Dropout's factors, as ordinary attention with the identity as values shows them */
static inline void phase_kept(const phase_problem *p, double *kept) {
    cmha_attention_args a = p->args;
    size_t rows = a.batch * a.heads * a.n_q, i;
    cmha_real *zero, *one, *P, *scratch;
    cmha_attention_views x;
    for (i = 0; i < rows * a.n_k; i++) kept[i] = 1;
    if (!(a.dropout > 0)) return;
    a.kind = CMHA_ATTENTION_DOT, a.kv_heads = a.heads, a.d_k = 1, a.d_v = a.n_k, a.temperature = 0;
    a.causal = 0, a.key_mask = NULL, a.alibi = NULL, a.complex_v = 0;
    zero = check_zeros(a.batch * a.heads * (a.n_q + a.n_k)),
    one = check_zeros(a.batch * a.heads * a.n_k * a.n_k);
    for (i = 0; i < a.batch * a.heads * a.n_k; i++) one[i * a.n_k + i % a.n_k] = 1;
    P = check_zeros(rows * a.n_k), scratch = check_zeros(cmha_attention_scratch(&a, 0));
    memset(&x, 0, sizeof x);
    x.q = cmha_heads_by_head(zero, a.heads, a.n_q, 1, 0), x.k = cmha_heads_by_head(zero, a.heads, a.n_k, 1,
        0);
    x.v = cmha_heads_by_head(one, a.heads, a.n_k, a.n_k, 0),
    x.y = cmha_heads_by_head(P, a.heads, a.n_q, a.n_k, 0);
    cmha_attention_forward(&a, &x, NULL, scratch);
    for (i = 0; i < rows * a.n_k; i++) kept[i] = P[i] > 0 ? 1 / (1 - (double)a.dropout) : 0;
    free(zero), free(one), free(P), free(scratch);
}

/* Number of softmaxes; how value (re, im) enters the sum of softmax t, and the transpose of that */
static inline int phase_terms(const cmha_attention_args *a) {
    if (a->softmax == CMHA_SOFTMAX_YANG8) return 4;
    return a->softmax == CMHA_SOFTMAX_RI_PRODUCT || a->softmax == CMHA_SOFTMAX_RI_SPLIT ? 2 : 1;
}

static inline void phase_mix(const cmha_attention_args *a, int t, int transposed, double *re, double *im) {
    double x = *re, y = *im;
    if (a->softmax == CMHA_SOFTMAX_RI_SPLIT) *re = t == 0 ? x : 0, *im = t == 1 ? y : 0;
    else if (t == 3) *re = -x, *im = -y;
    else if (t > 0) *re = transposed ? y : -y, *im = transposed ? -x : x;
}

static inline double phase_cold(const cmha_attention_args *a, size_t r) {
    return a->temperature ? exp(-(double)a->parameters[0][r / a->n_q % a->heads]) : 1;
}

/* The score of pair (r, n) in softmax t, before the head's temperature */
static inline double phase_warm(const cmha_attention_args *a, const phase_oracle *o, size_t r, size_t n,
                                 int t) {
    const double *X = o->X + (r * a->n_k + n) * 4;
    double re, im, e = (double)a->eps, s = (double)a->scale, distance, bias = 0;
    phase_O(a, X, &re, &im);
    distance = (double)(r % a->n_q) + (double)a->n_k - (double)a->n_q - (double)n;
    if (a->alibi) bias = -(double)a->alibi[r / a->n_q % a->heads] * fabs(distance);
    if (a->softmax == CMHA_SOFTMAX_YANG8) return s * X[t] + bias;
    if (a->softmax != CMHA_SOFTMAX_SCORE) return s * (t ? im : re) + bias;
    e = hypot(hypot(re, im), e);
    return s * ((double)a->magnitude * hypot(re, im) / o->divisor[r] +
                (e > 0 ? (double)a->cosine * re / e : 0)) +
           bias;
}

static inline double phase_score(const cmha_attention_args *a, const phase_oracle *o, size_t r, size_t n,
                                 int t) {
    return phase_warm(a, o, r, n, t) * phase_cold(a, r);
}

/* Adds to G what gradient g of that score gives; returns the gradient of the row's divisor */
static inline double phase_score_back(const cmha_attention_args *a, const phase_oracle *o, size_t r, size_t n,
                                      int t, double g) {
    const double *X = o->X + (r * a->n_k + n) * 4;
    double *G = o->G + (r * a->n_k + n) * 4, re, im, e = (double)a->eps, size, smooth, radial;
    g *= (double)a->scale * phase_cold(a, r);
    phase_O(a, X, &re, &im);
    if (a->softmax == CMHA_SOFTMAX_YANG8) G[t] += g;
    else if (a->softmax != CMHA_SOFTMAX_SCORE) phase_O_back(a, t ? 0 : g, t ? g : 0, G);
    if (a->softmax != CMHA_SOFTMAX_SCORE) return 0;
    size = hypot(re, im), smooth = hypot(size, e);
    radial = size > 0 ? g * (double)a->magnitude / o->divisor[r] / size : 0;
    phase_O_back(a, radial * re, radial * im, G);
    g *= (double)a->cosine;
    if (smooth > 0)
        phase_O_back(a, g * (im * im + e * e) / smooth / smooth / smooth,
                     -g * re * im / smooth / smooth / smooth, G);
    return -radial * size * size / o->divisor[r];
}

/* o->P[t] = softmax t of row r; returns its log sum exp, 0 where no key is seen */
static inline double phase_softmax(const cmha_attention_args *a, const phase_oracle *o, size_t r, int t) {
    double *P = o->P + (size_t)t * a->n_k, top = -HUGE_VAL, total = 0;
    size_t n;
    for (n = 0; n < a->n_k; n++) {
        P[n] = phase_sees(a, r, n) ? phase_score(a, o, r, n, t) : -HUGE_VAL;
        if (P[n] > top) top = P[n];
    }
    for (n = 0; n < a->n_k; n++) {
        P[n] = P[n] > -HUGE_VAL ? exp(P[n] - top) : 0;
        total += P[n];
    }
    for (n = 0; n < a->n_k && total > 0; n++) P[n] /= total;
    return total > 0 ? top + log(total) : 0;
}

/* y of row r, whose P are ready */
static inline void phase_row(const phase_problem *p, const phase_oracle *o, size_t r) {
    const cmha_attention_args *a = &p->args;
    cmha_heads view = phase_view(p, PHASE_V, NULL, NULL), to = phase_view(p, PHASE_Y, NULL, NULL);
    size_t b = r / a->n_q / a->heads, h = r / a->n_q % a->heads, kv = h / (a->heads / a->kv_heads), n, i;
    double *y = o->y + phase_at(to, b, h, r % a->n_q);
    int t;
    for (i = 0; i < a->d_v; i++) {
        double sum[2] = {0, 0};
        for (t = 0; t < phase_terms(a); t++)
            for (n = 0; n < a->n_k; n++) {
                const cmha_real *v = p->v + phase_at(view, b, kv, n) + i;
                double re = (double)v[0], im = a->complex_v ? (double)v[view.imag] : 0,
                       w = o->P[(size_t)t * a->n_k + n];
                phase_mix(a, t, 0, &re, &im);
                w *= o->kept[r * a->n_k + n];
                sum[0] += w * re, sum[1] += w * im;
            }
        y[i] = sum[0];
        if (a->complex_v) y[to.imag + i] = sum[1];
    }
}

/* The gradients of row r into dv and G, the rest of them from there; returns that of its divisor */
static inline double phase_row_back(const phase_problem *p, phase_oracle *o, size_t r, int t) {
    const cmha_attention_args *a = &p->args;
    cmha_heads view = phase_view(p, PHASE_V, NULL, NULL), to = phase_view(p, PHASE_Y, NULL, NULL);
    size_t b = r / a->n_q / a->heads, h = r / a->n_q % a->heads, kv = h / (a->heads / a->kv_heads), n, i;
    const cmha_real *dy = p->dy + phase_at(to, b, h, r % a->n_q);
    double *P = o->P + (size_t)t * a->n_k, *dP = o->score, mean = 0, divisor = 0;
    for (n = 0; n < a->n_k; n++) {
        size_t at = phase_at(view, b, kv, n);
        double kept = o->kept[r * a->n_k + n];
        dP[n] = 0;
        for (i = 0; i < a->d_v; i++) {
            double re = (double)dy[i], im = a->complex_v ? (double)dy[to.imag + i] : 0;
            phase_mix(a, t, 1, &re, &im);
            dP[n] += kept *
                     (re * (double)p->v[at + i] + (a->complex_v ? im * (double)p->v[at + view.imag + i] : 0));
            o->dv[at + i] += kept * P[n] * re;
            if (a->complex_v) o->dv[at + view.imag + i] += kept * P[n] * im;
        }
        mean += P[n] * dP[n];
    }
    if (!p->several) mean -= (double)p->dlse[r];
    for (n = 0; n < a->n_k; n++) {
        if (!(P[n] > 0)) continue;
        o->dlog_temp[h] -= phase_score(a, o, r, n, t) * P[n] * (dP[n] - mean);
        divisor += phase_score_back(a, o, r, n, t, P[n] * (dP[n] - mean));
    }
    return divisor;
}

/* The gradient of a maximum goes into the pair it was taken from */
static inline void phase_peak_back(const cmha_attention_args *a, const phase_oracle *o, size_t begin,
                                   double g) {
    double re, im, most;
    size_t end = begin + phase_group(a), best = phase_highest(a, o->X, begin, end, &most);
    if (best == end * a->n_k || !(most > 0)) return;
    phase_O(a, o->X + best * 4, &re, &im);
    phase_O_back(a, g * re / most, g * im / most, o->G + best * 4);
}

static inline void phase_products_back(const phase_problem *p, const phase_oracle *o) {
    const cmha_attention_args *a = &p->args;
    size_t rows = a->batch * a->heads * a->n_q, keys = a->batch * a->kv_heads * a->n_k, d = a->d_k, r, n, j;
    double *gq = phase_doubles(rows * 2 * d), *gk = phase_doubles(keys * 2 * d);
    const double *G = o->G;
    for (r = 0; r < rows; r++)
        for (n = 0; n < a->n_k; n++, G += 4) {
            size_t at = (phase_keys(a, r) + n) * 2 * d;
            const double *q = o->uq + r * 2 * d, *k = o->uk + at;
            for (j = 0; j < d; j++) {
                gq[r * 2 * d + j] += G[0] * k[j] + G[1] * k[d + j],
                    gq[r * 2 * d + d + j] += G[2] * k[j] + G[3] * k[d + j];
                gk[at + j] += G[0] * q[j] + G[2] * q[d + j], gk[at + d + j] += G[1] * q[j] + G[3] * q[d + j];
            }
        }
    phase_features_back(p, PHASE_Q, p->q, gq, o->dq), phase_features_back(p, PHASE_K, p->k, gk, o->dk);
    free(gq), free(gk);
}

static inline void phase_oracle_open(const phase_problem *p, phase_oracle *o) {
    const cmha_attention_args *a = &p->args;
    size_t rows = a->batch * a->heads * a->n_q, keys = a->batch * a->kv_heads * a->n_k, i;
    memset(o->dlog_temp, 0, sizeof o->dlog_temp);
    o->y = phase_doubles(p->ny), o->lse = phase_doubles(rows);
    o->dq = phase_doubles(p->nq), o->dk = phase_doubles(p->nkk), o->dv = phase_doubles(p->nv);
    o->uq = phase_doubles(rows * 2 * a->d_k), o->uk = phase_doubles(keys * 2 * a->d_k);
    o->X = phase_doubles(rows * a->n_k * 4), o->G = phase_doubles(rows * a->n_k * 4);
    o->divisor = phase_doubles(rows), o->kept = phase_doubles(rows * a->n_k);
    o->P = phase_doubles(4 * a->n_k), o->score = phase_doubles(a->n_k);
    for (i = 0; i < p->ny; i++) o->y[i] = (double)phase_untouched;
}

static inline void phase_oracle_close(phase_oracle *o) {
    free(o->y), free(o->lse), free(o->dq), free(o->dk), free(o->dv), free(o->uq), free(o->uk), free(o->X),
        free(o->G);
    free(o->divisor), free(o->kept), free(o->P), free(o->score);
}

/* y, lse and all gradients of the problem */
static inline void phase_oracle_run(const phase_problem *p, phase_oracle *o) {
    const cmha_attention_args *a = &p->args;
    size_t rows = a->batch * a->heads * a->n_q, group = phase_group(a), r;
    double g = 0;
    int t;
    phase_oracle_open(p, o);
    phase_features(p, PHASE_Q, p->q, o->uq), phase_features(p, PHASE_K, p->k, o->uk);
    phase_products(a, o->uq, o->uk, o->X);
    phase_divisors(a, o);
    phase_kept(p, o->kept);
    for (r = 0; r < rows; r++) {
        for (t = 0; t < phase_terms(a); t++) o->lse[r] = phase_softmax(a, o, r, t);
        phase_row(p, o, r);
        for (t = 0; t < phase_terms(a); t++) g += phase_row_back(p, o, r, t);
        if ((r + 1) % group) continue;
        if (a->norm_max != CMHA_NORM_MAX_NONE && a->norm_max_grad) phase_peak_back(a, o, r + 1 - group, g);
        g = 0;
    }
    phase_products_back(p, o);
}

#endif
