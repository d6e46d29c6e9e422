/* Seeing inside: cmha_model_attention against scores, probabilities and phases computed pair by pair in
   double from the weights, for every family; what holds for all models; refusals. */
#include "models.h"
#include "scores.h"

static cmha_context context;

enum { B = 2, N = 9, D = 16, V = 19, MOST = 16 };

/* ---- Queries and keys of a head of the first layer, and what is made of a pair ---- */

typedef struct looked {
    const cmha_model *model;
    const cmha_batch *batch;
    size_t head, d; /* complex numbers, or of dot real ones */
    double q[B][N][MOST][2], k[B][N][MOST][2];
    double O[B][N][N][2];
} looked;

/* Copies d numbers a token of x [B, N, *] from column `at` on, imaginary parts `imag` further (0: none). */
static void take(const cmha_tensor *x, size_t at, size_t imag, size_t d, double to[B][N][MOST][2]) {
    size_t b, n, j, width = x->shape[2];
    for (b = 0; b < B; b++)
        for (n = 0; n < N; n++)
            for (j = 0; j < d; j++) {
                const cmha_real *row = x->data + (b * N + n) * width + at + j;
                to[b][n][j][0] = (double)row[0];
                to[b][n][j][1] = imag ? (double)row[imag] : 0;
            }
}

/* Heads that a query head gives, those of plain heads, and all of a layer */
static size_t fan_of(const cmha_model_config *c) { return c->attention == CMHA_ATTENTION_ROPEPP ? 2 : 1; }
static size_t plain_of(const cmha_model_config *c) {
    return fan_of(c) * (c->n_heads - (c->family == CMHA_FAMILY_MOBIUS ? c->mobius_heads : 0));
}
static size_t heads_of(const cmha_model_config *c, size_t layer) {
    size_t mobius = c->family == CMHA_FAMILY_MOBIUS ? c->mobius_heads : 0;
    if (c->family == CMHA_FAMILY_MOBIUS && layer && layer + 1 < c->n_layers) mobius = 0;
    return fan_of(c) * (c->n_heads - mobius) + mobius;
}

/* PoPE's channels: softplus of the numbers, turned by position and, of queries, back by beta. */
static void polar(const looked *h, int is_key, double x[B][N][MOST][2]) {
    const cmha_model_config *c = &h->model->config;
    const cmha_tensor *beta = h->model->blocks[0].score[0];
    size_t i, j;
    for (i = 0; i < B * N; i++)
        for (j = 0; j < h->d; j++) {
            double *z = x[i / N][i % N][j], size = log(1 + exp(z[0]));
            double angle = (double)(i % N) * pow(c->base, -(double)j / (double)h->d);
            size_t own = (c->share == CMHA_SHARE_PER_HEAD ? h->head : 0) * h->d + j;
            if (!is_key && beta) angle -= (double)beta->data[own];
            z[0] = size * cos(angle), z[1] = size * sin(angle);
        }
}

/* Pairs of a real row, turned by position and, for cmha, by their own phase (ComplexFormer eq 1-8). */
static void rotate(const looked *h, int is_key, double x[B][N][MOST][2]) {
    const cmha_model_config *c = &h->model->config;
    const cmha_block *k = &h->model->blocks[0];
    size_t b, n, j, P = h->d / 2;
    for (b = 0; b < B; b++)
        for (n = 0; n < N; n++) {
            double raw[MOST];
            for (j = 0; j < h->d; j++) raw[j] = x[b][n][j][0], x[b][n][j][0] = 0;
            for (j = 0; j < P; j++) {
                int half = c->layout == CMHA_LAYOUT_HALF;
                double re = raw[half ? j : 2 * j], im = raw[half ? P + j : 2 * j + 1];
                double angle = (double)n * pow(c->base, -2.0 * (double)j / (double)h->d);
                double theta = atan2(im, re);
                size_t own = (c->share == CMHA_SHARE_PER_HEAD ? h->head : 0) * P + j;
                if (c->attention == CMHA_ATTENTION_CMHA && k->score[0]) {
                    theta *= (double)k->score[0]->data[own];
                    if (!is_key) theta += (double)k->score[1]->data[own];
                }
                x[b][n][j][0] = hypot(re, im) * cos(theta + angle);
                x[b][n][j][1] = hypot(re, im) * sin(theta + angle);
            }
        }
}

static void phasors(looked *h, double x[B][N][MOST][2], double eps) {
    size_t i, j;
    for (i = 0; i < B * N; i++)
        for (j = 0; j < h->d; j++) {
            double *z = x[i / N][i % N][j], size = sqrt(z[0] * z[0] + z[1] * z[1] + eps * eps);
            if (h->model->config.angle && z[0] < 0) size = -size;
            z[0] /= size, z[1] /= size;
        }
}

static double elu(double x) { return x > 0 ? x + 1 : exp(x); }

static void positive(looked *h, double x[B][N][MOST][2]) {
    size_t i, j;
    for (i = 0; i < B * N; i++)
        for (j = 0; j < 2 * h->d; j++) x[i / N][i % N][j / 2][j % 2] = elu(x[i / N][i % N][j / 2][j % 2]);
}

/* The first layer's input, by the operations, whose own tests are elsewhere. */
static void open_head(looked *h, cmha_model *m, const cmha_batch *batch, size_t which) {
    const cmha_model_config *c = &m->config;
    const cmha_block *k = &m->blocks[0];
    size_t width = c->d_model / c->n_heads, kv = c->n_kv_heads ? c->n_kv_heads : c->n_heads, i, j;
    size_t mobius = c->family == CMHA_FAMILY_MOBIUS ? c->mobius_heads : 0, plain = c->n_heads - mobius;
    size_t given = plain_of(c), query = which / fan_of(c);
    cmha_real eps = (cmha_real)c->norm_eps;
    cmha_tape tape;
    cmha_tensor *x, *im, *z, *q, *key;
    memset(h, 0, sizeof *h);
    h->model = m, h->batch = batch, h->head = which, h->d = width;
    CHECK_OK(cmha_tape_init(&tape, &context, 0));
    x = cmha_embedding(&tape, m->token_weight, batch->ids, B, N);
    im = cmha_tensor_new(&tape, 3, x->shape, 0);
    for (i = 0; m->position_weight && i < B * N * D; i++)
        im->data[i] = (cmha_real)(c->family == CMHA_FAMILY_COPE ? c->cope_gamma : 1) *
                      m->position_weight->data[i % (N * D)];
    if (c->family == CMHA_FAMILY_CRAT) {
        cmha_tensor *e = cmha_add_rows(&tape, x, cmha_multifreq(&tape, m->pe_omega, m->pe_delta, N, 0));
        size_t heads[3] = {c->real_heads, c->imag_heads, c->n_heads - c->real_heads - c->imag_heads}, g = 0;
        z = cmha_linear(&tape, e, m->state_weight, m->state_bias);
        z = cmha_complex_rotate(&tape, z, cmha_linear(&tape, e, m->theta_weight, m->theta_bias));
        z = cmha_complex_norm(&tape, z, (cmha_complex_norm_kind)c->complex_norm, k->ln1_weight, k->ln1_bias,
                              eps);
        while (which >= heads[g]) which -= heads[g++];
        h->d = width = D / 2 / c->n_heads;
        q = g == 2 ? cmha_complex_linear(&tape, z, k->group[2].weight, NULL)
                   : cmha_linear(&tape, cmha_complex_part(&tape, z, (int)g), k->group[g].weight, NULL);
        take(q, which * width, 3 * heads[g] * width, width, h->q);
        take(q, (heads[g] + which) * width, 3 * heads[g] * width, width, h->k);
        if (c->crat_attention != CMHA_CRAT_ATTENTION_DOT)
            phasors(h, h->q, c->complex_eps), phasors(h, h->k, c->complex_eps);
    } else if (c->family == CMHA_FAMILY_COPE) {
        z = cmha_complex_join(&tape, cmha_layernorm(&tape, x, k->ln1_weight, k->ln1_bias, eps), im);
        take(cmha_complex_linear(&tape, z, k->zq_weight, NULL), which * width, D, width, h->q);
        take(cmha_complex_linear(&tape, z, k->zk_weight, NULL), which * width, D, width, h->k);
        if (c->cope_score == CMHA_COPE_SCORE_LINEAR) positive(h, h->q), positive(h, h->k);
    } else {
        if (c->family == CMHA_FAMILY_REAL && c->position == CMHA_POSITION_LEARNED) x = cmha_add(&tape, x, im);
        x = cmha_layernorm(&tape, x, k->ln1_weight, k->ln1_bias, eps);
        if (mobius) im = cmha_layernorm(&tape, im, k->ln1_weight, k->ln1_bias, eps);
        z = cmha_complex_join(&tape, x, im);
        if (which >= given) {
            q = cmha_mobius(&tape, cmha_complex_linear(&tape, z, k->zq_weight, k->zq_bias), k->mobius,
                            (cmha_quotient_kind)c->mobius_quotient, (cmha_real)c->mobius_eps);
            key = cmha_complex_linear(&tape, z, k->zk_weight, k->zk_bias);
            take(q, (which - given) * width, mobius * width, width, h->q);
            take(key, (which - given) * width, mobius * width, width, h->k);
        } else {
            if (mobius) kv = plain, x = cmha_add(&tape, x, im);
            q = cmha_linear(&tape, x, k->qkv_weight, k->qkv_bias);
            take(q, query * width, 0, width, h->q);
            take(q, (plain + query / (plain / kv)) * width, 0, width, h->k);
            if (c->attention == CMHA_ATTENTION_POPE) polar(h, 0, h->q), polar(h, 1, h->k);
            else if (c->attention != CMHA_ATTENTION_DOT) rotate(h, 0, h->q), rotate(h, 1, h->k);
        }
    }
    CHECK_OK(cmha_tape_status(&tape));
    for (i = 0; i < B * N * N; i++) {
        double *o = h->O[i / N / N][i / N % N][i % N];
        int bilinear = mobius && h->head >= given && !c->mobius_hermitian;
        for (j = 0; j < h->d; j++) {
            const double *a = h->q[i / N / N][i / N % N][j], *b = h->k[i / N / N][i % N][j];
            double sign = bilinear ? -1 : 1;
            o[0] += a[0] * b[0] + sign * a[1] * b[1];
            o[1] += sign * (sign * a[1] * b[0] - a[0] * b[1]);
        }
    }
    for (i = 0; fan_of(c) == 2 && which < given && which % 2 && i < B * N * N; i++) { /* times -i */
        double *o = h->O[i / N / N][i / N % N][i % N], re = o[0];
        o[0] = o[1], o[1] = -re;
    }
    cmha_tape_close(&tape);
}

static int sees(const looked *h, size_t b, size_t t, size_t s) {
    const cmha_model_config *c = &h->model->config;
    int lag = c->family == CMHA_FAMILY_CRAT && c->crat_attention == CMHA_CRAT_ATTENTION_LAG;
    const unsigned char *mask = h->batch->key_mask;
    if (mask && (!mask[b * N + s] || (lag && !mask[b * N + t]))) return 0;
    return s <= t ? !c->window || t - s < c->window || s < c->sinks : !c->causal && !lag;
}

/* The largest |O| that divides row t of sequence b (CoPE hybrid_norm). */
static double largest(const looked *h, size_t b, size_t t) {
    double most = 0;
    int max = h->model->config.cope_max;
    size_t i, j;
    for (i = 0; i < N; i++)
        for (j = 0; j < N; j++)
            if ((max != CMHA_NORM_MAX_ROW || i == t) && sees(h, b, i, j) &&
                (max != CMHA_NORM_MAX_HEAD || !h->batch->key_mask || h->batch->key_mask[b * N + i]))
                most = fmax(most, hypot(h->O[b][i][j][0], h->O[b][i][j][1]));
    return most + 1e-12;
}

/* CRAT eq 14 from its definition; which lags are among the topk. */
static double lag_score(const looked *h, size_t b, size_t lag) {
    const cmha_model_config *c = &h->model->config;
    double R[N], pairs[N];
    size_t tau, t, better = 0;
    for (tau = 0; tau < N; tau++) {
        R[tau] = pairs[tau] = 0;
        for (t = tau; t < N; t++)
            if (sees(h, b, t, t - tau)) R[tau] += h->O[b][t][t - tau][0], pairs[tau]++;
        if (pairs[tau] > 0) R[tau] /= sqrt((double)h->d) * pairs[tau];
    }
    for (tau = 0; tau < N; tau++) better += pairs[tau] > 0 && R[tau] > R[lag];
    return c->lag_topk && better >= c->lag_topk ? -HUGE_VAL : c->lag_temp * R[lag];
}

/* The head's temperature */
static double temperature(const looked *h) {
    const cmha_model_config *c = &h->model->config;
    const cmha_block *k = &h->model->blocks[0];
    size_t heads[3] = {c->real_heads, c->imag_heads, c->n_heads}, plain = c->n_heads - c->mobius_heads, g = 0;
    size_t head = h->head, own = c->family != CMHA_FAMILY_COPE && c->attention == CMHA_ATTENTION_CMHA ? 2 : 0;
    if (!c->head_temperature || (c->family == CMHA_FAMILY_COPE && c->cope_score == CMHA_COPE_SCORE_LINEAR))
        return 1;
    if (c->family == CMHA_FAMILY_CRAT) {
        while (head >= heads[g]) head -= heads[g++];
        return exp((double)k->group[g].temp->data[head]);
    }
    if (c->family == CMHA_FAMILY_MOBIUS && head >= plain)
        return exp((double)k->mobius_temp->data[head - plain]);
    return exp((double)k->score[own]->data[head]);
}

/* The score of a pair in the head's softmax number `next`, before the temperature. */
static double warm_score(const looked *h, size_t b, size_t t, size_t s, int next) {
    const cmha_model_config *c = &h->model->config;
    size_t plain = plain_of(c);
    double re = h->O[b][t][s][0], im = h->O[b][t][s][1], size = hypot(re, im), eps = c->complex_eps;
    double root = 1 / sqrt((double)h->d), cosine = re / sqrt(size * size + eps * eps), sum = 0;
    double scale = c->score_scale > 0 ? c->score_scale : root, twice = c->cope_repo_scale ? root : 1;
    if (!sees(h, b, t, s)) return -HUGE_VAL;
    if (c->family == CMHA_FAMILY_CRAT) {
        if (c->crat_attention == CMHA_CRAT_ATTENTION_LAG) return lag_score(h, b, t - s);
        return c->crat_attention == CMHA_CRAT_ATTENTION_LINEAR ? 1 + re / (double)h->d : scale * re;
    }
    if (c->family == CMHA_FAMILY_COPE) {
        switch (c->cope_score) {
        case CMHA_COPE_SCORE_LINEAR: return re;
        case CMHA_COPE_SCORE_PHASE: return c->cope_scale * root * cosine;
        case CMHA_COPE_SCORE_MAGNITUDE: return c->cope_scale * root * twice * size;
        case CMHA_COPE_SCORE_REAL: return c->cope_scale * root * twice * re;
        case CMHA_COPE_SCORE_HYBRID: return c->cope_scale * root * (twice * size + c->cope_alpha * cosine);
        default: return c->cope_scale * root * (size / largest(h, b, t) + c->cope_alpha * cosine);
        }
    }
    if (c->family == CMHA_FAMILY_MOBIUS && h->head >= plain) {
        for (size_t j = 0; j < h->d; j++) sum += h->q[b][t][j][next / 2] * h->k[b][s][j][next % 2];
        if (c->mobius_softmax == CMHA_SOFTMAX_YANG8) return scale * sum;
        if (c->mobius_softmax == CMHA_SOFTMAX_SCORE) return scale * size;
        return scale * (next ? im : re);
    }
    double score = scale * re, cap = c->score_softcap;
    if (cap > 0) score = cap * tanh(score / cap);
    if (c->position == CMHA_POSITION_ALIBI)
        score -= pow(2, -8.0 * (double)(h->head + 1) / (double)plain) * fabs((double)t - (double)s);
    return score;
}

static double score_of(const looked *h, size_t b, size_t t, size_t s, int next) {
    return warm_score(h, b, t, s, next) / temperature(h);
}

/* ---- The checks ---- */

/* The larger of two distances; a NaN is the largest. */
static double worse(double a, double b) { return b <= a ? a : b == b ? b : HUGE_VAL; }

static const int32_t *ids_of(size_t n) {
    static int32_t ids[B * N];
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)check_below(V);
    return ids;
}

static cmha_batch batch_of(size_t length, const unsigned char *mask) {
    cmha_batch b;
    memset(&b, 0, sizeof b);
    b.ids = ids_of(B * length), b.batch = B, b.length = length, b.key_mask = mask;
    return b;
}

static int open_model(cmha_model *model, const char *options) {
    cmha_model_config config = check_model_config();
    models_set(&context, &config, options);
    if (!CHECK_THAT(!cmha_model_init(model, &context, &config), "%s: %s", options, cmha_error(&context)))
        return 0;
    for (size_t i = 0; i < model->parameters.count; i++) /* which start at 0 */
        if (strstr(model->parameters.list[i].name, "log_temp"))
            check_fill(model->parameters.list[i].tensor.data, model->parameters.list[i].tensor.size, 1);
    return 1;
}

static int linear_kernel(const cmha_model_config *c, size_t layer) {
    return (c->family == CMHA_FAMILY_COPE && layer == 0 && c->cope_score == CMHA_COPE_SCORE_LINEAR) ||
           (c->family == CMHA_FAMILY_CRAT && c->crat_attention == CMHA_CRAT_ATTENTION_LINEAR);
}

static int softmaxes(const cmha_model_config *c, size_t head) {
    if (c->family != CMHA_FAMILY_MOBIUS || head < plain_of(c)) return 1;
    if (c->mobius_softmax == CMHA_SOFTMAX_YANG8) return 4;
    return c->mobius_softmax == CMHA_SOFTMAX_RI_PRODUCT || c->mobius_softmax == CMHA_SOFTMAX_RI_SPLIT ? 2 : 1;
}

/* Rows of probabilities are those of the scores and sum to 1 over what they see, in every layer and head. */
static void rows(cmha_model *model, const cmha_batch *batch, const char *label) {
    const cmha_model_config *c = &model->config;
    size_t n = batch->length, i, j, layer, head, bad = 0, seen = 0;
    const double smallest = sizeof(cmha_real) == 8 ? DBL_MIN : (double)FLT_MIN; /* that a sum divides by */
    cmha_real *p = check_zeros(B * n * n), *s = check_zeros(B * n * n);
    for (layer = 0; layer < c->n_layers; layer++)
        for (head = 0; head < heads_of(c, layer); head++) {
            CHECK_OK(cmha_model_attention(model, batch, layer, head, CMHA_SEE_PROBABILITIES, p));
            CHECK_OK(cmha_model_attention(model, batch, layer, head, CMHA_SEE_SCORES, s));
            for (i = 0; i < B * n; i++) {
                double sum = 0, whole = 0, top = -HUGE_VAL, total = 0, extra = 0;
                for (j = 0; j < n; j++) top = fmax(top, (double)s[i * n + j]);
                for (j = 0; j < n; j++) {
                    double x = (double)s[i * n + j];
                    whole += (double)p[i * n + j];
                    total += linear_kernel(c, layer) ? fmax(x, 0) : x > -HUGE_VAL ? exp(x - top) : 0;
                }
                if (total < smallest) total = 0;
                if (linear_kernel(c, layer) && total > 0 && c->family == CMHA_FAMILY_CRAT) extra = 1e-6;
                double den = total + extra > 0 ? total + extra : 1; /* no weights: 0 */
                for (j = 0; j < n; j++) {
                    double x = (double)s[i * n + j];
                    double want = linear_kernel(c, layer) ? fmax(x, 0) : exp(x - top);
                    if (!(x > -HUGE_VAL)) bad += p[i * n + j] != 0;
                    else seen++, sum += !(fabs((double)p[i * n + j] - want / den) <= 2e-6);
                    if (c->causal && j > i % n) bad += p[i * n + j] != 0;
                    if (batch->key_mask && !batch->key_mask[i / n * n + j]) bad += p[i * n + j] != 0;
                    if (c->window && j >= c->sinks && i % n >= j + c->window) bad += p[i * n + j] != 0;
                }
                bad += sum > 0 || (total > 0 ? !(fabs(whole - total / den) <= 2e-6) : whole != 0);
            }
        }
    CHECK_THAT(bad == 0, "%s: %d numbers do not fit together", label, (int)bad);
    CHECK_THAT(seen > 0 || n == 0, "%s: nothing seen", label);
    free(p), free(s);
}

/* Scores and phases of the first layer against the definition. */
static void definition(cmha_model *model, const cmha_batch *batch, const char *label) {
    const cmha_model_config *c = &model->config;
    static looked h;
    cmha_real out[B * N * N];
    size_t which, i;
    for (which = 0; which < heads_of(c, 0); which++) {
        double worst = 0;
        int real = c->family == CMHA_FAMILY_REAL, next;
        if (c->family == CMHA_FAMILY_MOBIUS) real = which < plain_of(c);
        open_head(&h, model, batch, which);
        for (next = 0; next < softmaxes(c, which); next++) {
            int what = CMHA_SEE_SCORES + next * CMHA_SEE_NEXT;
            CHECK_OK(cmha_model_attention(model, batch, 0, which, what, out));
            for (i = 0; i < B * N * N; i++) {
                double want = score_of(&h, i / N / N, i / N % N, i % N, next), got = (double)out[i];
                if (want <= -HUGE_VAL || got <= -HUGE_VAL) worst = want >= got && got >= want ? worst : 1;
                else worst = worse(worst, fabs(got - want) / (1 + fabs(want)));
            }
            CHECK_THAT(worst < 2e-5, "%s: score %d of head %d is off by %g", label, next, (int)which, worst);
        }
        CHECK_IS(cmha_model_attention(model, batch, 0, which, CMHA_SEE_SCORES + next * CMHA_SEE_NEXT, out),
                 next < 4 ? CMHA_ERR_STATE : CMHA_ERR_ARGUMENT);
        if (real && c->attention == CMHA_ATTENTION_DOT) {
            CHECK_IS(cmha_model_attention(model, batch, 0, which, CMHA_SEE_PHASES, out), CMHA_ERR_STATE);
            CHECK_THAT(strstr(cmha_error(&context), "phases") != NULL, "%s", cmha_error(&context));
            continue;
        }
        CHECK_OK(cmha_model_attention(model, batch, 0, which, CMHA_SEE_PHASES, out));
        for (worst = 0, i = 0; i < B * N * N; i++) {
            const double *o = h.O[i / N / N][i / N % N][i % N];
            double size = hypot(o[0], o[1]), got = (double)out[i];
            if (!sees(&h, i / N / N, i / N % N, i % N)) worst = got <= -HUGE_VAL ? worst : 1;
            else worst = worse(worst, hypot(size * cos(got) - o[0], size * sin(got) - o[1]) / (1 + size));
        }
        CHECK_THAT(worst < 2e-5, "%s: a phase of head %d is off by %g", label, (int)which, worst);
    }
}

#define COPE "family=cope attention=dot cope_imag=learned cope_gamma=0.7 n_layers=2 "
#define MOBIUS "family=mobius attention=rope position=learned placement=post "
#define CRAT "family=crat d_model=16 real_heads=1 imag_heads=1 "

static const char *const kinds[] = {
    "attention=cmha",
    "attention=cmha share=shared layout=half n_kv_heads=2",
    "attention=cmha causal=0 share=fixed",
    "attention=rope n_kv_heads=2 window=4",
    "attention=rope n_kv_heads=2 window=3 sinks=2 score_softcap=0.3",
    "attention=cmha position=alibi head_temperature=1 score_softcap=0.5",
    "attention=rope layout=half causal=0 score_scale=0.7 attention_bias=1",
    "attention=dot position=learned n_kv_heads=1",
    "attention=dot position=alibi",
    "attention=rope position=alibi",
    "attention=pope n_kv_heads=2 beta_uniform=1",
    "attention=pope share=shared beta_uniform=1 causal=0 position=alibi",
    "attention=ropepp n_kv_heads=2 window=4",
    "attention=ropepp layout=half causal=0 position=alibi",
    MOBIUS "mobius_heads=1 attention=ropepp mobius_softmax=yang8",
    MOBIUS "mobius_heads=2 attention=pope beta_uniform=1",
    "attention=dot position=alibi causal=0",
    COPE "cope_score=phase",
    COPE "cope_score=magnitude cope_repo_scale=1",
    COPE "cope_score=real cope_scale=2 causal=0",
    COPE "cope_score=hybrid cope_alpha=0.6 window=3",
    COPE "cope_score=hybrid_norm cope_scale=3",
    COPE "cope_score=hybrid_norm cope_max=head causal=0",
    COPE "cope_score=linear",
    COPE "cope_score=linear causal=0",
    MOBIUS "mobius_heads=2",
    MOBIUS "mobius_heads=1 mobius_softmax=yang8 recompute=1",
    MOBIUS "mobius_heads=3 mobius_softmax=real attention=dot",
    MOBIUS "mobius_heads=4 mobius_softmax=ri_split causal=0",
    MOBIUS "mobius_heads=2 mobius_softmax=abs attention=cmha",
    CRAT "",
    CRAT "causal=0 complex_norm=crms",
    CRAT "crat_attention=dot score_scale=0.9",
    CRAT "crat_attention=linear",
    CRAT "crat_attention=linear causal=0",
    CRAT "crat_attention=lag causal=0",
    CRAT "crat_attention=lag causal=0 lag_topk=4 lag_temp=3",
    "attention=cmha position=alibi head_temperature=1",
    COPE "cope_score=phase head_temperature=1",
    MOBIUS "mobius_heads=2 mobius_softmax=abs attention=cmha head_temperature=1",
    CRAT "head_temperature=1 angle=atan",
};

static void test_kinds(void) {
    static const unsigned char mask[B * N] = {1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 1, 0, 1, 1, 1, 1, 1};
    size_t i, length;
    for (i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        cmha_model model;
        cmha_batch batch = batch_of(N, NULL);
        if (!open_model(&model, kinds[i])) continue;
        definition(&model, &batch, kinds[i]);
        rows(&model, &batch, kinds[i]);
        batch.key_mask = mask;
        definition(&model, &batch, kinds[i]);
        rows(&model, &batch, kinds[i]);
        batch.key_mask = NULL;
        for (length = 0; length < 2; length++) {
            batch.length = length;
            rows(&model, &batch, kinds[i]);
        }
        cmha_model_close(&model);
    }
}

/* Gives every token of a CoPE model queries and keys whose channels are near `size` (elu + 1 near e^size):
   ln1 gives rows of sum D, which each channel multiplies by size / D. */
static void level_queries(cmha_model *model, double size) {
    for (size_t i = 0; i < model->parameters.count; i++) {
        cmha_parameter *p = &model->parameters.list[i];
        cmha_real to = strstr(p->name, "ln1.bias") ? 1 : (cmha_real)(size / D);
        if (!strstr(p->name, "blocks.0.")) continue;
        if (!strstr(p->name, "ln1.bias") && !strstr(p->name, ".wq.") && !strstr(p->name, ".wk.")) continue;
        for (size_t j = 0; j < p->tensor.size; j++) p->tensor.data[j] = to;
    }
}

/* Weights of keys that are all nearly nothing, or nothing (in float from e^-104 on, in double from e^-745),
   are those that the model uses. */
static void test_tiny(void) {
    static const double sizes[] = {-4, -8, -16, -30, -60, -400};
    const double nothing = check_tolerance(-370, -50);
    cmha_batch batch = batch_of(N, NULL);
    cmha_real p[B * N * N];
    for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
        cmha_model model;
        double worst = 0, size = sizes[i / 2], want = size > nothing ? 1 : 0;
        if (!open_model(&model, i % 2 ? COPE "cope_score=linear causal=0" : COPE "cope_score=linear")) return;
        level_queries(&model, size);
        rows(&model, &batch, "cope-linear, tiny weights");
        CHECK_OK(cmha_model_attention(&model, &batch, 0, 1, CMHA_SEE_PROBABILITIES, p));
        for (size_t row = 0; row < B * N; row++) {
            double sum = 0;
            for (size_t j = 0; j < N; j++) sum += (double)p[row * N + j];
            worst = worse(worst, fabs(sum - want));
        }
        CHECK_THAT(worst < 1e-5, "weights near e^%g: a row's sum is off by %g", 2 * size, worst);
        cmha_model_close(&model);
    }
}

/* Rows of every kind whose queries and keys are a hundred times as large: what a softmax saturates. */
static void test_large(void) {
    const char *name;
    cmha_batch batch = batch_of(N, NULL);
    for (size_t i = 0; (name = cmha_kind_name(i, NULL)) != NULL; i++) {
        cmha_model model;
        cmha_model_config config = check_model_config();
        CHECK_OK(cmha_kind(&context, name, &config));
        if (!CHECK_OK(cmha_model_init(&model, &context, &config))) continue;
        for (size_t j = 0; j < model.parameters.count; j++) {
            cmha_tensor *t = &model.parameters.list[j].tensor;
            if (!strstr(model.parameters.list[j].name, ".attn.") || t->rank < 2) continue;
            for (size_t k = 0; k < t->size; k++) t->data[k] *= 100;
        }
        rows(&model, &batch, name);
        cmha_model_close(&model);
    }
}

/* The numbers are those of the forward: states = norm(x + sum over the heads of P V Wo^T), without an ffn. */
static void test_output(void) {
    cmha_model model;
    cmha_batch batch = batch_of(N, NULL);
    cmha_real p[4][B * N * N], x[D], v[B * N * D], y[D], heads[D];
    size_t i, j, head;
    double worst = 0;
    if (!open_model(&model, "attention=cmha n_layers=1 norm=rmsnorm")) return;
    memset(model.blocks[0].w2_weight->data, 0, model.blocks[0].w2_weight->size * sizeof *p[0]);
    for (head = 0; head < 4; head++)
        CHECK_OK(cmha_model_attention(&model, &batch, 0, head, CMHA_SEE_PROBABILITIES, p[head]));
    cmha_tape tape;
    CHECK_OK(cmha_tape_init(&tape, &context, 0));
    cmha_tensor *states = cmha_model_states(&model, &tape, &batch, NULL);
    cmha_real eps = (cmha_real)model.config.norm_eps;
    cmha_tensor *e = cmha_embedding(&tape, model.token_weight, batch.ids, B, N);
    cmha_tensor *h = cmha_rmsnorm(&tape, e, model.blocks[0].ln1_weight, eps);
    cmha_tensor *qkv = cmha_linear(&tape, h, model.blocks[0].qkv_weight, NULL);
    CHECK_OK(cmha_tape_status(&tape));
    for (i = 0; i < B * N; i++) memcpy(v + i * D, qkv->data + i * 3 * D + 2 * D, D * sizeof *v);
    for (i = 0; i < B * N; i++) {
        double square = 0;
        for (j = 0; j < D; j++) {
            double sum = 0;
            for (size_t t = 0; t < N; t++)
                sum += (double)p[j / 4][i * N + t] * (double)v[(i / N * N + t) * D + j];
            heads[j] = (cmha_real)sum;
        }
        for (j = 0; j < D; j++) {
            x[j] = e->data[i * D + j];
            for (size_t l = 0; l < D; l++) x[j] += heads[l] * model.blocks[0].wo_weight->data[j * D + l];
            square += (double)x[j] * (double)x[j];
        }
        for (j = 0; j < D; j++) y[j] = (cmha_real)((double)x[j] / sqrt(square / D + (double)eps));
        worst = worse(worst, check_distance(y, states->data + i * D, D));
    }
    CHECK_THAT(worst < 1e-5, "probabilities times values are off by %g", worst);
    cmha_tape_close(&tape);
    cmha_model_close(&model);
}

/* Longer than a tile, on threads, in pieces, beyond the range of float: the same numbers, in rows that sum
   to 1. Both threads have whole tiles: a BLAS may sum a row by its place in the last few of a product. */
static void test_long(void) {
    enum { LONG = 1152 };
    static const char *const some[] = {"attention=rope", "attention=cmha window=70 n_kv_heads=2",
                                       "attention=cmha init_std=9", CRAT "", COPE "cope_score=magnitude"};
    size_t n = check_quick() ? 192 : LONG, i, j, t;
    int32_t *ids = (int32_t *)check_alloc(n, sizeof *ids);
    cmha_real *p = check_zeros(n * n), *again = check_zeros(n * n);
    cmha_context one;
    check_context(&one, 1, 7);
    for (i = 0; i < n; i++) ids[i] = (int32_t)check_below(V);
    for (i = 0; i < sizeof some / sizeof *some; i++) {
        cmha_model_config config = check_model_config();
        cmha_model model, single;
        cmha_batch batch;
        double worst = 0;
        memset(&batch, 0, sizeof batch);
        batch.ids = ids, batch.batch = 1, batch.length = n;
        config.max_positions = LONG;
        models_set(&context, &config, some[i]);
        CHECK_OK(cmha_model_init(&model, &context, &config));
        CHECK_OK(cmha_model_init(&single, &one, &config));
        for (j = 0; i == 2 && j < model.blocks[1].qkv_weight->size; j++) { /* scores beyond float's range */
            model.blocks[1].qkv_weight->data[j] *= (cmha_real)1e19;
            single.blocks[1].qkv_weight->data[j] *= (cmha_real)1e19;
        }
        CHECK_OK(cmha_model_attention(&model, &batch, 1, 3, CMHA_SEE_PROBABILITIES, p));
        CHECK_OK(cmha_model_attention(&single, &batch, 1, 3, CMHA_SEE_PROBABILITIES, again));
        CHECK(memcmp(p, again, n * n * sizeof *p) == 0);
        for (t = 0; t < n; t++) {
            double sum = 0;
            for (j = 0; j < n; j++) sum += (double)p[t * n + j];
            worst = worse(worst, fabs(sum - 1));
        }
        CHECK_THAT(worst < 1e-5, "%s: a row's sum is off by %g", some[i], worst);
        cmha_model_close(&model), cmha_model_close(&single);
    }
    cmha_context_close(&one);
    free(ids), free(p), free(again);
}

/* Scores of the program's own are seen like the library's; a whole layer where it calls cmha_attention. */
static void test_own_scores(void) {
    static const struct own {
        const char *options;
        cmha_status weights, phases;
    } own[] = {{"score=gain n_kv_heads=2 window=5", CMHA_OK, CMHA_ERR_STATE},
               {"score=turned n_kv_heads=2", CMHA_OK, CMHA_OK},
               {"score=twist n_kv_heads=1 causal=0", CMHA_OK, CMHA_OK},
               {"score=power-turned position=alibi", CMHA_OK, CMHA_OK},
               {"score=power family=cope", CMHA_OK, CMHA_OK},
               {"score=mean causal=0", CMHA_ERR_STATE, CMHA_ERR_STATE}};
    size_t i;
    for (i = 0; i < sizeof own / sizeof *own; i++) {
        cmha_context_config config;
        cmha_model_config mc = check_model_config();
        cmha_context ctx;
        cmha_model model;
        cmha_batch batch = batch_of(N, NULL);
        cmha_real out[B * N * N];
        memset(&config, 0, sizeof config);
        config.scores = scores_rows, config.n_scores = SCORES_COUNT;
        CHECK_OK(cmha_context_init(&ctx, &config));
        models_set(&ctx, &mc, own[i].options);
        if (!CHECK_THAT(!cmha_model_init(&model, &ctx, &mc), "%s", cmha_error(&ctx))) continue;
        if (!own[i].weights) rows(&model, &batch, own[i].options);
        CHECK_IS(cmha_model_attention(&model, &batch, 0, 3, CMHA_SEE_PROBABILITIES, out), own[i].weights);
        CHECK_IS(cmha_model_attention(&model, &batch, 0, 3, CMHA_SEE_PHASES, out), own[i].phases);
        cmha_model_close(&model), cmha_context_close(&ctx);
    }
}

/* What is refused changes nothing, and looking does not change what the model computes. */
static void test_refusals(void) {
    cmha_model model;
    cmha_batch batch = batch_of(N, NULL), wrong = batch;
    cmha_real out[B * N * N], before[B * N * V], after[B * N * V];
    const int32_t high[B * N] = {V};
    size_t i;
    if (!open_model(&model, "attention=rope recompute=1")) return;
    for (i = 0; i < B * N * N; i++) out[i] = 7;
    wrong.ids = high;
    CHECK_OK(cmha_model_logits(&model, &batch, before));
    CHECK_IS(cmha_model_attention(&model, &batch, 2, 0, 0, out), CMHA_ERR_ARGUMENT);
    CHECK(strstr(cmha_error(&context), "layer 2") != NULL);
    CHECK_IS(cmha_model_attention(&model, &batch, 0, 4, 0, out), CMHA_ERR_ARGUMENT);
    CHECK(strstr(cmha_error(&context), "head 4") != NULL);
    CHECK_IS(cmha_model_attention(&model, &batch, 0, 0, -1, out), CMHA_ERR_ARGUMENT);
    CHECK_IS(cmha_model_attention(&model, &batch, 0, 0, 4 * CMHA_SEE_NEXT, out), CMHA_ERR_ARGUMENT);
    CHECK_IS(cmha_model_attention(&model, &batch, 0, 0, CMHA_SEE_NEXT, out), CMHA_ERR_STATE);
    CHECK_IS(cmha_model_attention(&model, &batch, 0, 0, CMHA_SEE_PHASES + CMHA_SEE_NEXT, out),
             CMHA_ERR_STATE);
    CHECK_IS(cmha_model_attention(&model, &wrong, 0, 0, 0, out), CMHA_ERR_TOKEN);
    for (i = 0; i < B * N * N; i++) CHECK(!(out[i] < 7) && !(out[i] > 7));
    CHECK_OK(cmha_model_attention(&model, &batch, 1, 3, CMHA_SEE_PHASES, out));
    CHECK_OK(cmha_model_logits(&model, &batch, after));
    CHECK(memcmp(before, after, sizeof before) == 0);
    cmha_model_close(&model);
}

int main(void) {
    check_context(&context, 2, 7);
    test_kinds();
    test_tiny();
    test_large();
    test_output();
    test_long();
    test_own_scores();
    test_refusals();
    cmha_context_close(&context);
    return check_end();
}
