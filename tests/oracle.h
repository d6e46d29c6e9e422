/* Attention as the paper prints it: n^2 P cosines, in double, no factorisation, no tiles.
   What the fast kernels are held against. */
#ifndef ORACLE_H
#define ORACLE_H

#include "check.h"

/* Pair j of a head vector under the layout, which holds within the rotating numbers and within the rest */
static inline void oracle_pair(const cmha_attention_args *a, const cmha_real *x, size_t j, double *modulus,
                               double *phase) {
    size_t P = a->d_k / 2, n = a->rotary_dims ? a->rotary_dims / 2 : P;
    const cmha_real *part = j < n ? x : x + 2 * n;
    size_t i = j < n ? j : j - n, half = j < n ? n : P - n;
    double re = a->layout == CMHA_LAYOUT_HALF ? part[i] : part[2 * i],
           im = a->layout == CMHA_LAYOUT_HALF ? part[i + half] : part[2 * i + 1];
    *modulus = sqrt(re * re + im * im);
    *phase = *modulus == 0 ? 0 : atan2(im, re);
}

enum { ORACLE_KINDS = CMHA_ATTENTION_ROPEPP + 1 };

/* PoPE's sum, beta clamped as its authors do it */
static inline double oracle_pope(const cmha_attention_args *a, size_t head, const cmha_real *q,
                                 const cmha_real *k, const double *omega, double distance) {
    const double turn = 2 * acos(-1);
    size_t n = a->rotary_dims ? a->rotary_dims : a->d_k, c;
    size_t row = a->share == CMHA_SHARE_PER_HEAD ? head * n : 0;
    double sum = 0;
    for (c = 0; c < a->d_k; c++) {
        double beta = a->share == CMHA_SHARE_FIXED || c >= n ? 0 : (double)a->parameters[0][row + c];
        double size = log(1 + exp((double)q[c])) * log(1 + exp((double)k[c]));
        beta = beta < -turn ? -turn : beta > 0 ? 0 : beta;
        sum += c < n ? size * cos(distance * omega[c] - beta) : (double)q[c] * (double)k[c];
    }
    return sum;
}

/* Which parameter of a call is log_temp: the one behind the score's own */
static inline size_t oracle_temperature(const cmha_attention_args *a) {
    return a->kind == CMHA_ATTENTION_CMHA ? 2 : a->kind == CMHA_ATTENTION_POPE;
}

/* The score of one query with one key: eq 8 of ComplexFormer for CMHA, and what it degenerates to for the
   others; of RoPE++ the odd heads have the imaginary part. distance = m - n. */
static inline double oracle_score(const cmha_attention_args *a, size_t head, const cmha_real *q,
                                  const cmha_real *k, const double *omega, double distance) {
    size_t j, P = a->d_k / 2, row = a->share == CMHA_SHARE_PER_HEAD ? head * P : 0;
    double sum = 0, mq, tq, mk, tk, delta, b;
    if (a->kind == CMHA_ATTENTION_DOT) {
        for (j = 0; j < a->d_k; j++) sum += (double)q[j] * k[j];
    } else if (a->kind == CMHA_ATTENTION_POPE) {
        sum = oracle_pope(a, head, q, k, omega, distance);
    } else {
        for (j = 0; j < P; j++) {
            int adaptive = a->kind == CMHA_ATTENTION_CMHA && a->share != CMHA_SHARE_FIXED;
            delta = adaptive ? (double)a->parameters[0][row + j] : 1;
            b = adaptive ? (double)a->parameters[1][row + j] : 0;
            if (a->kind == CMHA_ATTENTION_ROPEPP && head % 2) b = -acos(0); /* sin x = cos(x - pi/2) */
            oracle_pair(a, q, j, &mq, &tq);
            oracle_pair(a, k, j, &mk, &tk);
            sum += mq * mk * cos(delta * (tq - tk) + b + distance * omega[j]);
        }
    }
    sum *= a->scale;
    if (a->alibi) sum -= a->alibi[head] * fabs(distance);
    return a->temperature ? sum / exp((double)a->parameters[oracle_temperature(a)][head]) : sum;
}

static inline int oracle_permitted(const cmha_attention_args *a, size_t batch, size_t m, size_t n,
                                   double distance) {
    (void)m;
    if (a->key_mask && !a->key_mask[batch * a->n_k + n]) return 0;
    if (a->causal && distance < 0) return 0;
    if (a->window && fabs(distance) >= (double)a->window) return 0;
    return 1;
}

/* One row: y [d_v] and its log sum exp. score is scratch [n_k]. */
static inline void oracle_row(const cmha_attention_args *a, const double *omega, size_t batch, size_t head,
                              size_t m, const cmha_real *q, const cmha_real *k, const cmha_real *v,
                              double *score, double *y, double *lse) {
    double top = -HUGE_VAL, total = 0, distance;
    size_t n, i, seen = 0;
    for (i = 0; i < a->d_v; i++) y[i] = 0;
    for (n = 0; n < a->n_k; n++) {
        distance = (double)m + (double)a->n_k - (double)a->n_q - (double)n;
        score[n] = -HUGE_VAL;
        if (!oracle_permitted(a, batch, m, n, distance)) continue;
        score[n] = oracle_score(a, head, q, k + n * a->d_k, omega, distance);
        if (!seen++ || score[n] > top) top = score[n];
    }
    *lse = 0;
    if (!seen) return;
    for (n = 0; n < a->n_k; n++) total += score[n] == -HUGE_VAL ? 0 : exp(score[n] - top);
    for (n = 0; n < a->n_k; n++)
        for (i = 0; score[n] != -HUGE_VAL && i < a->d_v; i++)
            y[i] += exp(score[n] - top) / total * v[n * a->d_v + i];
    *lse = top + log(total);
}

/* All arrays head-major and dense; y [B, H, n_q, d_v], lse [B, H, n_q]. */
static inline void oracle_attention(const cmha_attention_args *a, const double *omega, const cmha_real *q,
                                    const cmha_real *k, const cmha_real *v, double *y, double *lse) {
    size_t b, h, m, kv, row, query, fan = a->kind == CMHA_ATTENTION_ROPEPP ? 2 : 1;
    double *score = (double *)check_alloc(a->n_k, sizeof *score);
    for (b = 0; b < a->batch; b++)
        for (h = 0; h < a->heads; h++)
            for (m = 0; m < a->n_q; m++) {
                kv = b * a->kv_heads + h / (a->heads / a->kv_heads);
                row = (b * a->heads + h) * a->n_q + m;
                query = (b * (a->heads / fan) + h / fan) * a->n_q + m;
                oracle_row(a, omega, b, h, m, q + query * a->d_k, k + kv * a->n_k * a->d_k,
                           v + kv * a->n_k * a->d_v, score, y + row * a->d_v, lse + row);
            }
    free(score);
}

/* One attention problem with its arrays: filled at random, run through the kernels. */
typedef struct problem {
    cmha_attention_args args;
    double omega[128];
    ptrdiff_t pos0; /* of the first query */
    size_t P, queries, nq, nkk, nv, ny, nl, nd, nb; /* queries: heads of q; beta is delta [nd] */
    cmha_real *q, *k, *v, *y, *lse, *delta, *b, *rotation, *scratch;
    cmha_lse *pairs; /* whose sums are lse */
    cmha_real *dy, *dlse, *dq, *dk, *dv, *ddelta, *db;
    unsigned char *mask;
    cmha_real slopes[128], log_temp[128], dlog_temp[128];
} problem;

/* What varies between attention tests; zero is the plainest choice */
typedef struct shape {
    size_t B, H /* of queries */, Hkv, n_q, n_k, d_k, d_v;
    cmha_attention_kind kind;
    cmha_layout layout;
    cmha_share share;
    int causal, mask, alibi;
    size_t window;
    double dropout;
    ptrdiff_t pos0;
    int threads;
} shape;

/* Pairs on the negative real axis would make finite differences cross the cut of
   theta, where y jumps: turn them away */
static inline void problem_off_cut(cmha_real *x, size_t n, size_t d, cmha_layout layout) {
    size_t r, j, P = d / 2;
    for (r = 0; r < n; r++)
        for (j = 0; j < P; j++) {
            cmha_real *re = x + r * d + (layout == CMHA_LAYOUT_HALF ? j : 2 * j),
                      *im = re + (layout == CMHA_LAYOUT_HALF ? P : 1);
            if (*re < (cmha_real)0.1 && fabs((double)*im) < 0.1) *im = (cmha_real)(*im < 0 ? -0.3 : 0.3);
        }
}

static inline void problem_rotation(problem *p) {
    size_t n = p->args.n_q > p->args.n_k ? p->args.n_q : p->args.n_k;
    ptrdiff_t first = p->pos0 + (ptrdiff_t)p->args.n_q - (ptrdiff_t)n;
    if (p->args.kind == CMHA_ATTENTION_DOT) return;
    free(p->rotation);
    p->rotation = check_zeros(n * 2 * p->P);
    cmha_rotation_table(p->omega, p->P, n, first, p->rotation);
    p->args.rotation = p->rotation;
}

static inline void problem_args(problem *p, const shape *s) {
    cmha_attention_args *a = &p->args;
    memset(p, 0, sizeof *p);
    a->batch = s->B, a->heads = p->queries = s->H, a->kv_heads = s->Hkv ? s->Hkv : s->H;
    if (s->kind == CMHA_ATTENTION_ROPEPP) a->heads *= 2;
    a->n_q = s->n_q, a->n_k = s->n_k ? s->n_k : s->n_q;
    a->d_k = s->d_k, a->d_v = s->d_v ? s->d_v : s->d_k;
    a->scale = (cmha_real)(1 / sqrt((double)s->d_k));
    a->causal = s->causal, a->window = s->window;
    a->kind = s->kind, a->layout = s->layout, a->share = s->share;
    a->dropout = (cmha_real)s->dropout, a->key = 12345;
    a->threads = s->threads;
    p->P = s->kind == CMHA_ATTENTION_POPE ? s->d_k : s->d_k / 2, p->pos0 = s->pos0;
    p->nq = a->batch * p->queries * a->n_q * a->d_k;
    p->nkk = a->batch * a->kv_heads * a->n_k * a->d_k;
    p->nv = a->batch * a->kv_heads * a->n_k * a->d_v;
    p->nl = a->batch * a->heads * a->n_q;
    p->ny = p->nl * a->d_v;
    if ((a->kind == CMHA_ATTENTION_CMHA || a->kind == CMHA_ATTENTION_POPE) && a->share != CMHA_SHARE_FIXED)
        p->nd = (a->share == CMHA_SHARE_SHARED ? 1 : a->heads) * p->P;
    p->nb = a->kind == CMHA_ATTENTION_CMHA ? p->nd : 0;
}

static inline void problem_open(problem *p, const shape *s) {
    cmha_attention_args *a = &p->args;
    size_t i, size;
    problem_args(p, s);
    p->q = check_array(p->nq, 1.5), p->k = check_array(p->nkk, 1.5), p->v = check_array(p->nv, 1);
    p->y = check_zeros(p->ny), p->lse = check_zeros(p->nl),
    p->pairs = (cmha_lse *)check_alloc(p->nl, sizeof *p->pairs);
    p->dy = check_array(p->ny, 1), p->dlse = check_array(p->nl, 1);
    p->dq = check_zeros(p->nq), p->dk = check_zeros(p->nkk), p->dv = check_zeros(p->nv);
    p->ddelta = check_zeros(p->nd), p->db = check_zeros(p->nb);
    p->delta = check_array(p->nd, 0.7), p->b = check_array(p->nb, 1);
    for (i = 0; i < p->nb; i++) p->delta[i] += (cmha_real)0.8;
    for (i = 0; i < p->nd && !p->nb; i++) /* a third of beta is clamped, none is where the clamp begins */
        p->delta[i] = (cmha_real)((double)p->delta[i] - (i % 3 ? 3 : i % 2 ? -1 : 7.5));
    if (p->nd) a->parameters[0] = p->delta;
    if (p->nb) a->parameters[1] = p->b;
    cmha_frequencies(CMHA_FREQUENCY_ROPE, 100, p->P, NULL, p->omega);
    problem_rotation(p);
    problem_off_cut(p->q, p->nq / a->d_k, a->d_k, a->layout);
    problem_off_cut(p->k, p->nkk / a->d_k, a->d_k, a->layout);
    p->mask = (unsigned char *)check_alloc(a->batch * a->n_k, 1);
    for (i = 0; i < a->batch * a->n_k; i++) p->mask[i] = (unsigned char)(check_random() < 0.4);
    if (s->mask) a->key_mask = p->mask;
    cmha_alibi_slopes(a->heads, p->slopes);
    if (s->alibi) a->alibi = p->slopes;
    for (i = 1; s->alibi > 1 && i < a->heads; i += 2) p->slopes[i] = -p->slopes[i];
    size = cmha_attention_scratch(a, 1) > cmha_attention_scratch(a, 0) ? cmha_attention_scratch(a, 1)
                                                                       : cmha_attention_scratch(a, 0);
    p->scratch = check_zeros(size);
}

/* Gives every head a temperature of its own */
static inline void problem_heat(problem *p) {
    cmha_attention_args *a = &p->args;
    a->temperature = 1, a->parameters[oracle_temperature(a)] = p->log_temp;
    check_fill(p->log_temp, a->heads, 0.7), free(p->scratch);
    p->scratch = check_zeros(cmha_attention_scratch(a, 0) + cmha_attention_scratch(a, 1));
}

static inline void problem_close(problem *p) {
    free(p->q), free(p->k), free(p->v), free(p->y), free(p->lse), free(p->pairs), free(p->delta), free(p->b),
        free(p->rotation), free(p->scratch);
    free(p->dy), free(p->dlse), free(p->dq), free(p->dk), free(p->dv), free(p->ddelta), free(p->db),
        free(p->mask);
}

static inline cmha_attention_views problem_views(const problem *p) {
    const cmha_attention_args *a = &p->args;
    cmha_attention_views x;
    x.q = cmha_heads_by_head(p->q, p->queries, a->n_q, a->d_k, 0),
    x.dq = cmha_heads_by_head(p->dq, p->queries, a->n_q, a->d_k, 0);
    x.k = cmha_heads_by_head(p->k, a->kv_heads, a->n_k, a->d_k, 0),
    x.dk = cmha_heads_by_head(p->dk, a->kv_heads, a->n_k, a->d_k, 0);
    x.v = cmha_heads_by_head(p->v, a->kv_heads, a->n_k, a->d_v, 0),
    x.dv = cmha_heads_by_head(p->dv, a->kv_heads, a->n_k, a->d_v, 0);
    x.y = cmha_heads_by_head(p->y, a->heads, a->n_q, a->d_v, 0),
    x.dy = cmha_heads_by_head(p->dy, a->heads, a->n_q, a->d_v, 0);
    return x;
}

/* The kernel keeps (largest score, log of the rest); lse gets their sum */
static inline void problem_forward(problem *p) {
    cmha_attention_views x = problem_views(p);
    size_t i;
    cmha_attention_forward(&p->args, &x, p->pairs, p->scratch);
    for (i = 0; i < p->nl; i++) p->lse[i] = p->pairs[i].largest + p->pairs[i].log_sum;
}

static inline void problem_backward(problem *p) {
    cmha_attention_views x = problem_views(p);
    cmha_real *turns[3] = {NULL, NULL, NULL};
    if (p->nd) turns[0] = p->ddelta;
    if (p->nb) turns[1] = p->db;
    if (p->args.temperature) turns[oracle_temperature(&p->args)] = p->dlog_temp;
    cmha_attention_backward(&p->args, &x, p->pairs, p->dlse, p->nd || p->args.temperature ? turns : NULL,
                            p->scratch);
}

#endif
