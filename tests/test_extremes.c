/* Numbers at the ends of their range: zeros, denormal numbers, 1e30, and mixtures, through every operation
   and through whole models of every kind, forward and backward. From finite inputs no result is NaN, and
   none is infinite unless its true value is beyond the range of the type. tests/ops.h says of which
   operations that is expected and why; this program built in double, whose range little here leaves, is
   the judge of it. And a long training: no drift between two runs of one seed. */
#include "ops.h"

enum { ROUNDS = 12, VOCABULARY = 7, TOKENS = 6 };

static int is_double(void) { return sizeof(cmha_real) == sizeof(double); }

/* What was seen of some numbers. */
typedef struct sight {
    int nan, inf;
    double top; /* the largest finite one */
} sight;

static double largest(const sight *s) { return s->inf ? HUGE_VAL : s->top; }

static void look(sight *s, const cmha_real *x, size_t n) {
    size_t i;
    for (i = 0; i < n; i++) {
        double size = fabs((double)x[i]);
        if (size != size) s->nan = 1;
        else if (size > DBL_MAX) s->inf = 1;
        else if (size > s->top) s->top = size;
    }
}

static int allowed(const sight *s, ops_range range) {
    if (range == OPS_BEYOND) return !s->nan;
    if (is_double() || range == OPS_FINITE) return !s->nan && !s->inf;
    return range == OPS_CANCEL || !s->nan;
}

/* What the double build must have seen to believe that a range is needed. */
static double reach(ops_range range) { return range == OPS_BEYOND ? DBL_MAX : (double)FLT_MAX; }

/* ---------------------------------------------- operations ---------------------------------------------- */

static void operation(cmha_tape *tape, const ops_row *row, ops_fill fill, sight *result, sight *gradients) {
    ops_inputs s;
    cmha_tensor *y, *loss;
    int round, i;
    memset(result, 0, sizeof *result), memset(gradients, 0, sizeof *gradients);
    for (round = 0; round < ROUNDS; round++) {
        cmha_tape_reset(tape);
        tape->key = (uint64_t)round, check_seed = 5 + (uint64_t)round * 977;
        s.tape = tape, s.fill = fill;
        loss = ops_loss(row, tape, &s, &y);
        if (!CHECK_THAT(loss && !cmha_tape_backward(tape, loss, 1), "%s: %s", row->name,
                        cmha_error(tape->context)))
            return;
        look(result, y->data, y->size);
        for (i = 0; i < s.n; i++)
            if (s.made[i]->grad) look(gradients, s.made[i]->grad, s.made[i]->size);
    }
}

static void operations(void) {
    cmha_context context;
    cmha_tape tape;
    size_t i;
    int fill;
    check_context(&context, 1, 1);
    CHECK_OK(cmha_tape_init(&tape, &context, 1));
    for (i = 0; i < OPS_COUNT; i++) {
        const ops_row *row = &ops_all[i];
        const ops_limits *limits = row->limits;
        double top = 0, top_gradient = 0;
        for (fill = 0; fill < OPS_FILLS; fill++) {
            sight y, g;
            int extreme = fill >= OPS_HUGE_DATA;
            operation(&tape, row, (ops_fill)fill, &y, &g);
            CHECK_THAT(allowed(&y, extreme ? limits->forward : OPS_FINITE), "%s of %s inputs: %s", row->name,
                       ops_fill_name((ops_fill)fill), y.nan ? "NaN" : "an infinite result");
            CHECK_THAT(allowed(&g, extreme || limits == &ops_singular ? limits->backward : OPS_FINITE),
                       "%s of %s inputs: %s", row->name, ops_fill_name((ops_fill)fill),
                       g.nan ? "NaN in a gradient" : "an infinite gradient");
            top = largest(&y) > top ? largest(&y) : top;
            top_gradient = largest(&g) > top_gradient ? largest(&g) : top_gradient;
        }
        if (!is_double() || limits->inner) continue;
        CHECK_THAT(!limits->forward || top > reach(limits->forward),
                   "%s may overflow, but its largest result is %g", row->name, top);
        CHECK_THAT(!limits->backward || top_gradient > reach(limits->backward),
                   "%s's gradients may overflow, but the largest is %g", row->name, top_gradient);
    }
    cmha_tape_close(&tape), cmha_context_close(&context);
}

/* A softmax of scores that no float can hold: the key that fits best gets all the weight, to the last bit. */
static void huge_scores(void) {
    cmha_attention_args a;
    cmha_real q[4] = {(cmha_real)1e30, 0, (cmha_real)-1e30, 0},
              k[6] = {1, (cmha_real)1e25, (cmha_real)2e30, 0, (cmha_real)1e30, 5};
    cmha_real v[3] = {3, 4, 5}, y[2] = {0}, dy[2] = {1, 1}, dq[4] = {0}, dk[6] = {0}, dv[3] = {0}, *scratch;
    cmha_lse lse[2];
    cmha_attention_views x;
    x.q = cmha_heads_by_head(q, 1, 2, 2, 0), x.k = cmha_heads_by_head(k, 1, 3, 2, 0),
    x.v = cmha_heads_by_head(v, 1, 3, 1, 0);
    x.dq = cmha_heads_by_head(dq, 1, 2, 2, 0), x.dk = cmha_heads_by_head(dk, 1, 3, 2, 0),
    x.dv = cmha_heads_by_head(dv, 1, 3, 1, 0);
    x.y = cmha_heads_by_head(y, 1, 2, 1, 0), x.dy = cmha_heads_by_head(dy, 1, 2, 1, 0);
    memset(&a, 0, sizeof a);
    a.batch = a.heads = a.kv_heads = 1, a.n_q = 2, a.n_k = 3, a.d_k = 2, a.d_v = 1, a.scale = 1,
    a.kind = CMHA_ATTENTION_DOT;
    scratch = check_zeros(cmha_attention_scratch(&a, 1));
    cmha_attention_forward(&a, &x, lse, scratch);
    CHECK_NEAR(y[0], 4, 0); /* scores 1e30, 2e60, 1e60 */
    CHECK_NEAR(y[1], 3, 0); /* and their negatives */
    cmha_attention_backward(&a, &x, lse, NULL, NULL, scratch);
    CHECK(dv[0] == 1 && dv[1] == 1 && dv[2] == 0);
    CHECK(check_largest(dq, 4) == 0 && check_largest(dk, 6) == 0);
    free(scratch);
}

/* Likewise complex products, of every phase. */
static void huge_products(void) {
    const cmha_real h = (cmha_real)(is_double() ? 1e160 : 1e30);
    const cmha_cope_options cope = {CMHA_COPE_SCORE_HYBRID, (cmha_real)0.2, (cmha_real)1e-6, 0, 0, 0};
    for (int turn = 0; turn < 8; turn++) {
        cmha_real q[2] = {h, 0}, v[2] = {3, 4}, y[1];
        cmha_real k[4] = {0, 0, h * (cmha_real)cos(turn * 0.7), h * (cmha_real)sin(turn * 0.7)};
        cmha_attention_args a;
        cmha_attention_views x;
        memset(&a, 0, sizeof a), memset(&x, 0, sizeof x);
        a.batch = a.heads = a.kv_heads = a.n_q = a.d_k = a.d_v = 1, a.n_k = 2;
        cmha_cope_set_args(&a, &cope);
        x.q = cmha_heads_by_head(q, 1, 1, 1, 1), x.k = cmha_heads_by_head(k, 1, 2, 1, 1);
        x.v = cmha_heads_by_head(v, 1, 2, 1, 0), x.y = cmha_heads_by_head(y, 1, 1, 1, 0);
        cmha_real *scratch = check_zeros(cmha_attention_scratch(&a, 0));
        cmha_attention_forward(&a, &x, NULL, scratch);
        CHECK_NEAR(y[0], 4, 0);
        free(scratch);
    }
}

/* The phase contrastive loss in double, from sums without the positive, which log1p keeps however small they
   are; dtheta and dw get the gradient. */
static double contrast(const cmha_pcl_args *a, const cmha_real *theta, double *dtheta, double *dw) {
    size_t i, j, r, N = a->N, P = a->P;
    double *logit = (double *)check_alloc(N, sizeof *logit), loss = 0;
    for (i = 0; i < N; i++) {
        double others = 0, top = 0, g;
        for (j = 0; j < N; j++)
            for (logit[j] = 0, r = 0; r < P; r++)
                logit[j] += (double)a->w[r] / ((double)P * (double)a->tau) *
                            cos((double)theta[i * P + r] - a->keep[j * P + r] * (double)theta[j * P + r]);
        for (g = logit[i], j = 0; j < N; j++) logit[j] -= g, top = logit[j] > top ? logit[j] : top;
        for (j = 0; j < N; j++) others += j == i ? 0 : exp(logit[j] - top);
        loss += top + (top > 0 ? log(exp(-top) + others) : log1p(others));
        for (j = 0; j < N; j++)
            for (r = 0; r < P; r++) {
                double angle = (double)theta[i * P + r] - a->keep[j * P + r] * (double)theta[j * P + r];
                g = (j == i ? -others : exp(logit[j] - top)) / (exp(-top) + others);
                g /= (double)(N * P) * (double)a->tau;
                dw[r] += g * cos(angle);
                dtheta[i * P + r] -= g * (double)a->w[r] * sin(angle);
                dtheta[j * P + r] += a->keep[j * P + r] * g * (double)a->w[r] * sin(angle);
            }
    }
    free(logit);
    return loss / (double)N;
}

/* max |a - b| over max |b|, both of which may be tiny */
static double away(const cmha_real *a, const double *b, size_t n) {
    double worst = 0, top = 1e-30;
    size_t i;
    for (i = 0; i < n; i++) worst = fmax(worst, fabs((double)a[i] - b[i])), top = fmax(top, fabs(b[i]));
    return check_finite(a, n) ? worst / top : HUGE_VAL;
}

/* The gradient of attention's queries in double: the sum over keys of p (dP - sum p dP) k, dP less that of
   the best key, so that nothing large cancels. */
static void gradient_of_queries(const cmha_attention_args *a, const cmha_attention_views *x, double *dq) {
    size_t n_k = a->n_k, d = a->d_k;
    double *p = (double *)check_alloc(2 * n_k, sizeof *p), *dp = p + n_k;
    for (size_t i = 0; i < a->n_q; i++) {
        const cmha_real *q = x->q.data + i * d, *dy = x->dy.data + i * d;
        double sum = 0, mean = 0;
        size_t best = 0;
        for (size_t j = 0; j < n_k; j++) {
            p[j] = dp[j] = 0;
            for (size_t c = 0; c < d; c++) {
                p[j] += (double)a->scale * (double)q[c] * (double)x->k.data[j * d + c];
                dp[j] += (double)dy[c] * (double)x->v.data[j * d + c];
            }
            if (p[j] > p[best]) best = j;
        }
        double top = p[best], its = dp[best];
        for (size_t j = 0; j < n_k; j++) sum += p[j] = exp(p[j] - top);
        for (size_t j = 0; j < n_k; j++) mean += p[j] / sum * (dp[j] -= its);
        for (size_t j = 0; j < n_k; j++)
            for (size_t c = 0; c < d; c++)
                dq[i * d + c] +=
                    (double)a->scale * p[j] / sum * (dp[j] - mean) * (double)x->k.data[j * d + c];
    }
    free(p);
}

/* Where one key has almost all the weight, its slope p (dP - D) is a small difference of large numbers. */
static void saturated_scores(void) {
    enum { D = 16, N = 40, Q = 8 };
    cmha_attention_args a;
    cmha_attention_views x;
    cmha_lse lse[Q];
    double expected[Q * D] = {0};
    cmha_real *q = check_array(Q * D, 3), *k = check_array(N * D, 3), *v = check_array(N * D, 1);
    cmha_real *dy = check_array(Q * D, 1), *y = check_zeros(Q * D), *dq = check_zeros(Q * D), *scratch;
    memset(&x, 0, sizeof x), memset(&a, 0, sizeof a);
    x.q = cmha_heads_by_head(q, 1, Q, D, 0), x.k = cmha_heads_by_head(k, 1, N, D, 0);
    x.v = cmha_heads_by_head(v, 1, N, D, 0), x.dq = cmha_heads_by_head(dq, 1, Q, D, 0);
    x.y = cmha_heads_by_head(y, 1, Q, D, 0), x.dy = cmha_heads_by_head(dy, 1, Q, D, 0);
    a.batch = a.heads = a.kv_heads = 1, a.n_q = Q, a.n_k = N, a.d_k = a.d_v = D, a.scale = 1;
    a.kind = CMHA_ATTENTION_DOT;
    scratch = check_zeros(cmha_attention_scratch(&a, 1));
    cmha_attention_forward(&a, &x, lse, scratch);
    cmha_attention_backward(&a, &x, lse, NULL, NULL, scratch);
    gradient_of_queries(&a, &x, expected);
    for (size_t i = 0; i < Q * D; i += D)
        CHECK_NEAR(away(dq + i, expected + i, D), 0, check_tolerance(1e-12, 3e-5));
    free(q), free(k), free(v), free(dy), free(y), free(dq), free(scratch);
}

/* The same of softmax_rows, of scores as far apart. */
static void saturated_rows(void) {
    enum { M = 12, K = 33 };
    size_t shape[2] = {M, K};
    cmha_context context;
    cmha_tape tape;
    cmha_real *x = check_array(M * K, 150), *dy = check_array(M * K, 1), *dx = check_zeros(M * K);
    check_context(&context, 1, 1);
    CHECK_OK(cmha_tape_init(&tape, &context, 1));
    cmha_tensor *scores = cmha_tensor_wrap(&tape, 2, shape, x, dx);
    cmha_tensor *y = cmha_softmax_rows(&tape, scores, 0, NULL);
    cmha_tensor *weighed = cmha_mul(&tape, y, cmha_tensor_wrap(&tape, 2, shape, dy, NULL));
    CHECK_OK(cmha_tape_backward(&tape, cmha_sum(&tape, weighed), 1));
    for (size_t i = 0; i < M * K; i += K) {
        double expected[K], p[K], sum = 0, mean = 0;
        size_t best = 0;
        for (size_t j = 1; j < K; j++)
            if (x[i + j] > x[i + best]) best = j;
        for (size_t j = 0; j < K; j++) sum += p[j] = exp((double)x[i + j] - (double)x[i + best]);
        for (size_t j = 0; j < K; j++) mean += p[j] / sum * ((double)dy[i + j] - (double)dy[i + best]);
        for (size_t j = 0; j < K; j++)
            expected[j] = p[j] / sum * ((double)dy[i + j] - (double)dy[i + best] - mean);
        CHECK_NEAR(away(dx + i, expected, K), 0, check_tolerance(1e-12, 3e-6));
    }
    cmha_tape_close(&tape), cmha_context_close(&context);
    free(x), free(dy), free(dx);
}

/* Cold phases: the loss is a logarithm of almost 1, down to 1e-200 where tokens differ. It is never negative,
   and as exact as the differences of large logits are. */
static void contrastive_loss(double tau, double spread, double masked) {
    enum { N = 70, P = 16 };
    cmha_pcl_args a;
    cmha_real *theta = check_array(N * P, spread), *dtheta = check_zeros(N * P), *scratch;
    cmha_real w[P], dw[P] = {0}, lse[2 * N];
    double *true_dtheta = (double *)check_alloc(N * P, sizeof *true_dtheta), true_dw[P] = {0}, loss, want, d;
    double bound = (is_double() ? 1e-13 : 1e-5) * (1 + 0.3 / tau);
    unsigned char keep[N * P];
    char label[80];
    size_t i;
    memset(&a, 0, sizeof a);
    for (i = 0; i < P; i++) w[i] = (cmha_real)(1 + check_random() / 4);
    for (i = 0; i < N * P; i++) keep[i] = (unsigned char)(check_random() > 2 * masked - 1);
    a.N = N, a.P = P, a.tau = (cmha_real)tau, a.w = w, a.keep = keep;
    scratch = check_zeros(cmha_pcl_scratch(&a));
    loss = cmha_pcl_forward(&a, theta, lse, scratch);
    cmha_pcl_backward(&a, theta, lse, 1, dtheta, dw, scratch);
    want = contrast(&a, theta, true_dtheta, true_dw);
    snprintf(label, sizeof label, "pcl, tau %g, phases to %g, %g masked", tau, spread, masked);
    CHECK_THAT(loss >= 0 && fabs(loss - want) <= bound * want + 1e-30, "%s: %.9g, not %.9g", label, loss,
               want);
    d = away(dtheta, true_dtheta, N * P);
    CHECK_THAT(d <= bound, "%s: dtheta is %.3g off", label, d);
    d = away(dw, true_dw, P);
    CHECK_THAT(d <= bound, "%s: dw is %.3g off", label, d);
    free(theta), free(dtheta), free(true_dtheta), free(scratch);
}

static void contrastive_losses(void) {
    static const double tau[] = {1, 0.3, 0.1, 0.03, 0.01, 0.005, 0.002, 0.001}, spread[] = {0.2, 0.4, 3};
    size_t i, j;
    for (i = 0; i < sizeof tau / sizeof *tau; i++)
        for (j = 0; j < sizeof spread / sizeof *spread; j++)
            contrastive_loss(tau[i], spread[j], 0), contrastive_loss(tau[i], spread[j], 0.5);
}

/* Norms of rows whose squares are beyond the range: the numbers are still those of the row over its size. */
static void huge_norms(void) {
    enum { D = 37 };
    cmha_real x[D], small[D], w[D], y[D], want[D], dy[D], dx[D], dw[D], stats[2];
    const cmha_grads grads = {dx, dw, NULL};
    cmha_norm_args args = {CMHA_NORM_LAYER, 1, D, 0};
    int kind, i;
    check_seed = 8;
    check_fill(small, D, 1), check_fill(w, D, 1), check_fill(dy, D, 1);
    for (i = 0; i < D; i++) x[i] = (cmha_real)(small[i] * (cmha_real)1e30);
    for (kind = CMHA_NORM_LAYER; kind < CMHA_NORM_COUNT; kind++) {
        args.kind = (cmha_norm)kind;
        memset(dx, 0, sizeof dx), memset(dw, 0, sizeof dw);
        cmha_norm_forward(&args, small, w, NULL, want, stats);
        cmha_norm_forward(&args, x, w, NULL, y, stats);
        CHECK_THAT(check_distance(y, want, D) < check_tolerance(1e-13, 1e-5), "norm of 1e30: off by %g",
                   check_distance(y, want, D));
        cmha_norm_backward(&args, x, w, stats, dy, &grads);
        CHECK(check_finite(dx, D) && check_finite(dw, D) && check_largest(dw, D) > 0);
    }
}

/* ------------------------------------------------ models ------------------------------------------------ */

/* What the parameters hold. */
typedef enum state { PLAIN, ZERO, DENORMAL, HUGE_EMBEDDING, HUGE_ALL, STATES } state;

static void set_parameters(cmha_model *model, state s) {
    size_t i, j;
    check_seed = 31;
    for (i = 0; i < model->parameters.count; i++) {
        cmha_parameter *p = &model->parameters.list[i];
        int huge = s == HUGE_ALL || (s == HUGE_EMBEDDING && strstr(p->name, "_emb.") != NULL);
        for (j = 0; j < p->tensor.size && (s == ZERO || s == DENORMAL || huge); j++)
            p->tensor.data[j] = ops_value(huge ? OPS_HUGE : s == ZERO ? OPS_ZERO : OPS_DENORMAL, 0);
    }
}

/* Loss, logits and gradients are finite; of parameters of 1e30 throughout it is enough
   that it is said when they are not. */
static void one_model(const char *kind, const cmha_model_config *m, state s, const unsigned char *mask,
                      size_t length) {
    static const int32_t ids[2 * TOKENS] = {0, 1, 2, 3, 4, 5, 6, 0, 1, 1, 0, 3}, zeros[2 * TOKENS] = {0};
    static cmha_real logits[2 * TOKENS * VOCABULARY];
    cmha_context context;
    cmha_model model;
    cmha_batch batch;
    cmha_status status;
    double loss = 0;
    size_t n = 2 * length * m->vocabulary;
    check_context(&context, 1, 2);
    memset(&batch, 0, sizeof batch);
    batch.ids = batch.targets = m->vocabulary == 1 ? zeros : ids, batch.batch = 2, batch.length = length,
    batch.key_mask = mask;
    if (!CHECK_THAT(!cmha_model_init(&model, &context, m), "%s: %s", kind, cmha_error(&context))) return;
    set_parameters(&model, s);
    CHECK_OK(cmha_model_logits(&model, &batch, logits));
    CHECK_THAT(s == HUGE_ALL || check_finite(logits, n),
               "%s, parameters %d, %zu tokens: logits are not finite", kind, (int)s, length);
    status = cmha_model_gradient(&model, &batch, 1, 3, &loss);
    CHECK_THAT(status == CMHA_OK || (s == HUGE_ALL && status == CMHA_ERR_NOT_FINITE),
               "%s, parameters %d, %zu tokens: %s", kind, (int)s, length, cmha_error(&context));
    if (s != HUGE_ALL && status == CMHA_OK)
        CHECK_THAT(check_finite(model.parameters.grad, model.parameters.size) && fabs(loss) <= DBL_MAX,
                   "%s, parameters %d, %zu tokens: not finite", kind, (int)s, length);
    cmha_model_close(&model), cmha_context_close(&context);
}

static void models(void) {
    static const unsigned char none[2 * TOKENS] = {0};
    const char *kind, *fields;
    size_t i;
    int s, encoder, vocabulary;
    for (i = 0; (kind = cmha_kind_name(i, &fields)) != NULL; i++)
        for (encoder = 0; encoder < 2; encoder++)
            for (vocabulary = 0; vocabulary < 2; vocabulary++) {
                cmha_model_config m = check_model_config();
                if (cmha_kind(NULL, kind, &m)) CHECK_THAT(0, "kind %s", kind);
                if (encoder || strstr(kind, "lag")) m.causal = 0;
                m.n_layers = 2, m.vocabulary = vocabulary ? 1 : VOCABULARY, m.max_positions = TOKENS,
                m.dropout = 0.1;
                if (m.family == CMHA_FAMILY_CRAT) m.phase_reg = m.mag_reg = 1e-3;
                for (s = 0; s < STATES; s++) {
                    /* 1e60 otherwise */
                    if (s == HUGE_EMBEDDING) m.mag_reg = 0, m.tied = m.family != CMHA_FAMILY_CRAT;
                    one_model(kind, &m, (state)s, NULL, TOKENS), one_model(kind, &m, (state)s, NULL, 1);
                    one_model(kind, &m, (state)s, none, TOKENS);
                }
            }
}

/* ------------------------------------------- a long training -------------------------------------------- */

static void long_training(void) {
    enum { STEPS = 20000, STREAM = 64 };
    static int32_t ids[STREAM];
    cmha_context context;
    cmha_model_config m = check_model_config();
    cmha_trainer_config t;
    cmha_model model[2];
    cmha_trainer trainer[2];
    cmha_tokens tokens;
    double loss[2], sum = 0;
    size_t i, steps = check_quick() ? STEPS / 20 : STEPS;
    int run, finite = 1, same = 1;
    check_seed = 77;
    for (i = 0; i < STREAM; i++) ids[i] = (int32_t)check_below(5);
    memset(&tokens, 0, sizeof tokens);
    tokens.data = ids, tokens.count = STREAM, tokens.width = 4;
    m.n_layers = 1, m.d_model = 4, m.n_heads = 1, m.d_ff = 4, m.vocabulary = 5, m.dropout = 0.1;
    cmha_config_defaults(cmha_trainer_table(), &t);
    t.batch = 1, t.length = 4, t.steps = steps, t.lr = 0.02;
    check_context(&context, 1, 6);
    for (run = 0; run < 2; run++) {
        CHECK_OK(cmha_model_init(&model[run], &context, &m));
        CHECK_OK(cmha_trainer_init(&trainer[run], &model[run], &t));
    }
    for (i = 0; i < steps; i++) {
        for (run = 0; run < 2; run++)
            if (cmha_trainer_step(&trainer[run], &tokens, &loss[run])) finite = 0;
        finite = finite && fabs(loss[0]) <= DBL_MAX;
        same = same && loss[0] == loss[1];
        if (i >= steps - 100) sum += loss[0] / 100;
    }
    CHECK_THAT(finite, "a loss of %zu steps is not finite", steps);
    CHECK_THAT(
        same &&
            !memcmp(model[0].parameters.data, model[1].parameters.data,
                    model[0].parameters.size * sizeof(cmha_real)) &&
            !memcmp(model[0].parameters.moments, model[1].parameters.moments,
                    2 * model[0].parameters.size * sizeof(cmha_real)),
        "two runs of one seed differ after %zu steps", steps);
    CHECK(check_finite(model[0].parameters.data, model[0].parameters.size) && sum < log(5.0));
    for (run = 0; run < 2; run++) cmha_trainer_close(&trainer[run]), cmha_model_close(&model[run]);
    cmha_context_close(&context);
}

/* The names of the operations that the table records, one after another, each between two blanks. */
static void recorded_names(char *names, size_t room) {
    cmha_context context;
    cmha_tape tape;
    ops_inputs s;
    size_t used = 1;
    memset(&s, 0, sizeof s);
    names[0] = ' ', names[1] = 0;
    check_context(&context, 1, 1), CHECK_OK(cmha_tape_init(&tape, &context, 1));
    s.tape = &tape;
    for (size_t i = 0; i < OPS_COUNT; i++) {
        cmha_tensor *y;
        CHECK_THAT(ops_loss(&ops_all[i], &tape, &s, &y) != NULL, "%s: %s", ops_all[i].name,
                   cmha_error(&context));
        for (const cmha_record *r = tape.last; r; r = r->previous) {
            size_t n = strlen(r->name);
            if (used + n + 2 > room) continue;
            memcpy(names + used, r->name, n), memcpy(names + used + n, " ", 2), used += n + 1;
        }
        cmha_tape_reset(&tape);
    }
    cmha_tape_close(&tape), cmha_context_close(&context);
}

/* Every operation that the library describes by a row, "static const cmha__op .. = {"name", ..", or by a
   macro that makes one, stands in the table too. */
static void rows_of_the_library(void) {
    static const char *const kinds[] = {"static const cmha__op ", "CMHA__OP(", "CMHA__CALL(", "CMHA__RUNS("};
    static char text[1 << 21], names[1 << 16];
    size_t rows = 0, kind;
    FILE *file = fopen("cmha.h", "rb");
    if (!file) {
        printf("there is no cmha.h: its rows of operations are not checked\n");
        return;
    }
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    recorded_names(names, sizeof names);
    for (kind = 0; kind < sizeof kinds / sizeof *kinds; kind++)
        for (const char *at = text; (at = strstr(at, kinds[kind])) != NULL; at++) {
            const char *begin = strchr(at, '"'), *end = begin ? strchr(begin + 1, '"') : NULL;
            char name[64];
            if (begin && begin > strchr(at, ';')) continue; /* rows of a list: tests/grad_words.c walks it */
            if (!CHECK(end && end - begin < 60)) return;
            name[0] = ' ', memcpy(name + 1, begin + 1, (size_t)(end - begin) - 1),
            memcpy(name + (end - begin), " ", 2);
            CHECK_THAT(strstr(names, name) != NULL, "no row of tests/ops.h records%s", name);
            rows++;
        }
    CHECK_THAT(rows > 30, "%zu rows were found", rows);
}

/* The gradient of a rotation does not depend on |z|, not even where the inverse of that is denormal and the
   CPU takes such numbers for 0, as programs linked with -ffast-math let it. */
static void huge_rotations(void) {
    enum { P = 20 };
    const double huge = check_tolerance(1.5e308, 3e38);
    cmha_real x[2 * P], one[2 * P], table[2 * P], delta[P], dy[2 * P], dx[2 * P] = {0}, want[2 * P] = {0};
    double omega[P];
    cmha_rotate_args args;
    for (size_t j = 0; j < 2 * P; j++) {
        one[j] = (cmha_real)((0.5 + (double)(j % 3) / 6) * (j % 5 < 2 ? -1 : 1));
        x[j] = (cmha_real)(huge * (double)one[j]);
        dy[j] = (cmha_real)(0.1 * (double)j - 1);
        delta[j / 2] = (cmha_real)(0.1 * (double)j), omega[j / 2] = (double)j;
    }
    memset(&args, 0, sizeof args);
    args.P = P, args.rotation = table, args.delta = delta;
    cmha_rotation_table(omega, P, 1, 3, table);
    cmha_rotate_backward(&args, one, 2 * P, 1, dy, 2 * P, want, NULL, NULL);
#ifdef __SSE2__
    const unsigned mode = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(mode | 0x8040);
#endif
    cmha_rotate_backward(&args, x, 2 * P, 1, dy, 2 * P, dx, NULL, NULL);
#ifdef __SSE2__
    __builtin_ia32_ldmxcsr(mode);
#endif
    const double off = check_distance(dx, want, 2 * P);
    CHECK_THAT(off < check_tolerance(1e-13, 1e-5), "%g: gradients are %.3g off", huge, off);
}

int main(int argc, char **argv) {
    (void)argc;
    cmha_blas_restart(argv);
    rows_of_the_library();
    operations(), huge_scores(), huge_products(), saturated_scores(), saturated_rows();
    contrastive_losses(), huge_norms(), huge_rotations();
    models();
    long_training();
    return check_end();
}
