/* Identities of semantics.md section 7: what must hold whatever the code looks
   like. Built in float and in double. */
#include "oracle.h"

#include "positions.h"

static cmha_context context;

/* -------------------------- 1: the separable score is the n^2 P sum of cosines -------------------------- */

static double against_oracle(problem *p) {
    double *y = (double *)check_alloc(p->ny, sizeof *y), *lse = (double *)check_alloc(p->nl, sizeof *lse),
           worst = 0, d;
    size_t i;
    problem_forward(p);
    oracle_attention(&p->args, p->omega, p->q, p->k, p->v, y, lse);
    for (i = 0; i < p->ny; i++) d = fabs(y[i] - p->y[i]), worst = d <= worst ? worst : d == d ? d : HUGE_VAL;
    for (i = 0; i < p->nl; i++)
        d = fabs(lse[i] - p->lse[i]) / (1 + fabs(lse[i])), worst = d <= worst ? worst : d == d ? d : HUGE_VAL;
    free(y), free(lse);
    return worst;
}

static void oracle_case(const shape *s) {
    problem p;
    double worst;
    problem_open(&p, s);
    if (s->kind != CMHA_ATTENTION_DOT && check_below(3) == 0) {
        cmha_rope_options options;
        memset(&options, 0, sizeof options);
        p.args.rotary_dims = (s->kind == CMHA_ATTENTION_POPE ? 1 : 2) * (1 + check_below(p.P));
        options.rotary_dims = s->kind == CMHA_ATTENTION_POPE ? 2 * p.args.rotary_dims : p.args.rotary_dims;
        cmha_frequencies(CMHA_FREQUENCY_ROPE, 100, p.P, &options, p.omega);
        problem_rotation(&p);
    }
    if (check_below(3) == 0) problem_heat(&p);
    worst = against_oracle(&p);
    /* an angle of 10^6 rad is rounded by 10^-10 in double, whoever forms it */
    CHECK_THAT(worst <= check_tolerance(1e-12 + 1e-15 * (double)s->pos0, 2e-5),
               "kind %d layout %d share %d temperature %d B%zu H%zu/%zu n%zu/%zu d%zu causal %d mask %d "
               "alibi %d window %zu pos0 %ld rotary %zu: %.3g off the definition",
               (int)s->kind, (int)s->layout, (int)s->share, p.args.temperature, s->B, s->H, s->Hkv, s->n_q,
               s->n_k, s->d_k, s->causal, s->mask, s->alibi, s->window, (long)s->pos0, p.args.rotary_dims,
               worst);
    problem_close(&p);
}

/* Random combinations of everything, sizes that straddle the tile of 64 included */
static void definition(void) {
    static const size_t sizes[] = {1, 2, 5, 17, 63, 64, 65, 128, 130, 200},
                        widths[] = {2, 4, 6, 16, 34, 64, 128};
    int i, count = check_quick() ? 60 : 300;
    for (i = 0; i < count; i++) {
        shape s;
        memset(&s, 0, sizeof s);
        s.Hkv = 1 + check_below(2), s.H = s.Hkv * (1 + check_below(3)), s.B = 1 + check_below(2);
        s.n_q = sizes[check_below(10)], s.n_k = s.n_q;
        if (check_below(3) == 0) s.n_k += sizes[check_below(10)];
        if (check_below(8) == 0 && s.n_q > 3)
            s.n_k = s.n_q - (check_below(2) ? 2 : 1 + check_below(s.n_q - 1));
        s.d_k = widths[check_below(7)], s.d_v = check_below(3) ? s.d_k : 1 + check_below(40);
        s.kind = (cmha_attention_kind)check_below(ORACLE_KINDS), s.layout = (cmha_layout)check_below(2),
        s.share = (cmha_share)check_below(3);
        if (s.kind == CMHA_ATTENTION_POPE) s.d_k -= check_below(2);
        s.causal = check_below(3) > 0, s.mask = check_below(3) == 0, s.alibi = check_below(4) == 0;
        if (s.alibi) s.alibi += (int)check_below(2); /* 2: slopes of both signs */
        s.window = check_below(3) == 0 ? 1 + check_below(100) : 0;
        if (s.window > 90) s.window = SIZE_MAX - check_below(3);
        s.pos0 = check_below(3) == 0 ? (ptrdiff_t)check_below(1000000) : (ptrdiff_t)s.n_k - (ptrdiff_t)s.n_q;
        s.threads = 1 + (int)check_below(2);
        oracle_case(&s);
    }
}

/* ------------------------------------- 2: delta = 1, b = 0 is RoPE -------------------------------------- */

static void rope_is_a_special_case(cmha_layout layout) {
    shape s = {2, 4, 2, 70, 70, 16, 16, CMHA_ATTENTION_CMHA, CMHA_LAYOUT_INTERLEAVED, CMHA_SHARE_PER_HEAD,
               1, 0, 0, 0,  0,  11, 2};
    problem p;
    cmha_real *rope, *fixed;
    size_t i;
    s.layout = layout;
    problem_open(&p, &s);
    rope = check_zeros(p.ny), fixed = check_zeros(p.ny);
    for (i = 0; i < p.nd; i++) p.delta[i] = 1, p.b[i] = 0;
    p.args.kind = CMHA_ATTENTION_ROPE;
    problem_forward(&p), memcpy(rope, p.y, p.ny * sizeof *rope);
    p.args.kind = CMHA_ATTENTION_CMHA;
    problem_forward(&p);
    CHECK_NEAR(check_distance(rope, p.y, p.ny), 0, check_tolerance(1e-14, 2e-6));
    p.args.share = CMHA_SHARE_FIXED;
    problem_forward(&p);
    CHECK_NEAR(check_distance(rope, p.y, p.ny), 0, 0);
    for (i = 0; i < p.nd; i++) p.delta[i] = 2;
    p.args.share = CMHA_SHARE_PER_HEAD;
    problem_forward(&p);
    CHECK(check_distance(rope, p.y, p.ny) > 1e-2); /* and delta does something */
    free(rope), free(fixed);
    problem_close(&p);
}

/* ----------------------- 3: only differences of positions matter, at 10^6 as at 0 ----------------------- */

static void shift_invariance(cmha_attention_kind kind, ptrdiff_t shift) {
    shape s = {1, 2, 2, 40, 40, 32, 32, CMHA_ATTENTION_CMHA, CMHA_LAYOUT_INTERLEAVED, CMHA_SHARE_PER_HEAD,
               1, 0, 0, 0,  0,  0,  1};
    problem p;
    cmha_real *y, *lse;
    s.kind = kind;
    problem_open(&p, &s);
    cmha_frequencies(CMHA_FREQUENCY_ROPE, 10000, p.P, NULL, p.omega);
    problem_rotation(&p);
    y = check_zeros(p.ny), lse = check_zeros(p.nl);
    problem_forward(&p);
    memcpy(y, p.y, p.ny * sizeof *y), memcpy(lse, p.lse, p.nl * sizeof *lse);
    p.pos0 = shift;
    problem_rotation(&p);
    problem_forward(&p);
    CHECK_THAT(check_distance(y, p.y, p.ny) < check_tolerance(1e-9, 1e-5), "shift by %ld: y off by %.3g",
               (long)shift, check_distance(y, p.y, p.ny));
    CHECK_THAT(check_distance(lse, p.lse, p.nl) < check_tolerance(1e-9, 2e-5), "shift by %ld: lse off",
               (long)shift);
    free(y), free(lse);
    problem_close(&p);
}

static void frequencies(void) {
    double omega[8];
    size_t j;
    cmha_frequencies(CMHA_FREQUENCY_ROPE, 10000, 8, NULL, omega);
    for (j = 0; j < 8; j++) CHECK_NEAR(omega[j], pow(10000, -2.0 * (double)j / 16), 1e-15);
    cmha_frequencies(CMHA_FREQUENCY_LITERAL, 500, 8, NULL, omega);
    for (j = 0; j < 8; j++) CHECK_NEAR(omega[j], pow(500, -4.0 * (double)j / 16), 1e-15);
}

/* ------------------------------------- 22 and 23: PoPE and its beta ------------------------------------- */

static double softplus_of(cmha_real x) { return log(1 + exp((double)x)); }

/* Attention of features written down here: ordinary dot products of rows twice as wide */
static void pope_is_a_sum_of_cosines(void) {
    shape s = {2, 4, 2, 70, 90, 7, 5, CMHA_ATTENTION_POPE, CMHA_LAYOUT_INTERLEAVED, CMHA_SHARE_FIXED,
               1, 0, 0, 40, 0,  20, 2};
    problem p, wide;
    size_t r, c;
    problem_open(&p, &s);
    problem_forward(&p);
    s.kind = CMHA_ATTENTION_DOT, s.d_k = 14;
    problem_open(&wide, &s);
    wide.args.scale = p.args.scale;
    memcpy(wide.v, p.v, p.nv * sizeof *p.v);
    for (r = 0; r < p.nq / 7; r++)
        for (c = 0; c < 7; c++) {
            double t = (double)(r % 70 + 20) * p.omega[c], size = softplus_of(p.q[r * 7 + c]);
            wide.q[r * 14 + c] = (cmha_real)(size * cos(t));
            wide.q[r * 14 + 7 + c] = (cmha_real)(size * sin(t));
        }
    for (r = 0; r < p.nkk / 7; r++)
        for (c = 0; c < 7; c++) {
            double t = (double)(r % 90) * p.omega[c], size = softplus_of(p.k[r * 7 + c]);
            wide.k[r * 14 + c] = (cmha_real)(size * cos(t));
            wide.k[r * 14 + 7 + c] = (cmha_real)(size * sin(t));
        }
    problem_forward(&wide);
    CHECK_NEAR(check_distance(p.y, wide.y, p.ny), 0, check_tolerance(1e-13, 1e-5));
    CHECK_NEAR(check_distance(p.lse, wide.lse, p.nl), 0, check_tolerance(1e-13, 2e-5));
    problem_close(&p), problem_close(&wide);
}

/* The authors' code adds beta to the key's phase; on the query it is subtracted */
static void beta_of_the_query_or_key(void) {
    cmha_real q[5], k[5], beta[5], turn_q[10], turn_k[10], fq[10], fq0[10], fk[10];
    double omega[5], by_query = 0, by_key = 0, sum = 0;
    cmha_rotate_args args;
    size_t c;
    memset(&args, 0, sizeof args);
    for (c = 0; c < 5; c++) {
        q[c] = (cmha_real)(3 * check_random()), k[c] = (cmha_real)(3 * check_random());
        beta[c] = (cmha_real)(-3 + 3 * check_random()), omega[c] = pow(100, -(double)c / 5);
    }
    cmha_rotation_table(omega, 5, 1, 17, turn_q), cmha_rotation_table(omega, 5, 1, 4, turn_k);
    args.P = 5, args.polar = 1;
    args.rotation = turn_k, cmha_rotate_forward(&args, k, 5, 1, fk, 10);
    args.rotation = turn_q, cmha_rotate_forward(&args, q, 5, 1, fq0, 10);
    args.b = beta, cmha_rotate_forward(&args, q, 5, 1, fq, 10);
    for (c = 0; c < 5; c++) {
        double co = cos((double)beta[c]), si = sin((double)beta[c]);
        double re = (double)fk[c], im = (double)fk[5 + c];
        by_query += (double)fq[c] * re + (double)fq[5 + c] * im;
        by_key += (double)fq0[c] * (re * co - im * si) + (double)fq0[5 + c] * (re * si + im * co);
        sum += softplus_of(q[c]) * softplus_of(k[c]) * cos(13 * omega[c] - (double)beta[c]);
    }
    CHECK_NEAR(by_query, by_key, check_tolerance(1e-14, 2e-6));
    CHECK_NEAR(by_query, sum, check_tolerance(1e-14, 2e-6));
}

/* Rows of few pairs turn together: each gets the bits that it gets alone, forward and backward. Without pairs
   there is nothing to do. */
static void rows_that_turn_together(void) {
    enum { P = 3, N = 45 };
    cmha_real x[N * 2 * P], g[N * 2 * P], y[N * 2 * P], alone[N * 2 * P], table[N * 2 * P], delta[P], b[P];
    cmha_real dx[N * 2 * P] = {0}, dx_alone[N * 2 * P] = {0};
    double omega[P] = {1, 0.5, 0.25}, ddelta[P] = {0}, ddelta_alone[P] = {0}, db[P] = {0}, db_alone[P] = {0};
    cmha_rotate_args args;
    size_t i;
    memset(&args, 0, sizeof args);
    for (i = 0; i < N * 2 * P; i++) x[i] = (cmha_real)check_random(), g[i] = (cmha_real)check_random();
    for (i = 0; i < P; i++) delta[i] = (cmha_real)check_random(), b[i] = (cmha_real)check_random();
    cmha_rotation_table(omega, P, N, 11, table);
    args.P = P, args.delta = delta, args.b = b, args.rotation = table;
    cmha_rotate_forward(&args, x, 2 * P, N, y, 2 * P);
    cmha_rotate_backward(&args, x, 2 * P, N, g, 2 * P, dx, ddelta, db);
    for (i = 0; i < N * 2 * P; i += 2 * P) {
        args.rotation = table + i;
        cmha_rotate_forward(&args, x + i, 2 * P, 1, alone + i, 2 * P);
        cmha_rotate_backward(&args, x + i, 2 * P, 1, g + i, 2 * P, dx_alone + i, ddelta_alone, db_alone);
    }
    CHECK(!memcmp(y, alone, sizeof y) && !memcmp(dx, dx_alone, sizeof dx));
    CHECK(!memcmp(ddelta, ddelta_alone, sizeof ddelta) && !memcmp(db, db_alone, sizeof db));
    CHECK(ddelta[0] != 0 && db[0] != 0 && dx[0] != 0);
    args.P = 0;
    cmha_rotate_forward(&args, x, 2 * P, N, y, 2 * P);
    cmha_rotate_backward(&args, x, 2 * P, N, g, 2 * P, dx, ddelta, db);
    CHECK(!memcmp(y, alone, sizeof y) && !memcmp(dx, dx_alone, sizeof dx));
}

/* A clamp whose ends pass, or beta would never leave its first value, 0 */
static void beta_at_its_bounds(void) {
    shape s = {1, 1, 1, 9, 9, 6, 6, CMHA_ATTENTION_POPE, CMHA_LAYOUT_INTERLEAVED, CMHA_SHARE_PER_HEAD,
               1, 0, 0, 0, 0, 0, 1};
    const cmha_real turn = (cmha_real)6.283185307179586, tiny = (cmha_real)1e-30;
    cmha_real at_0, *y;
    problem p;
    problem_open(&p, &s);
    y = check_zeros(p.ny);
    p.delta[0] = 0, p.delta[1] = -turn, p.delta[2] = (cmha_real)0.5, p.delta[3] = (cmha_real)-6.5;
    p.delta[4] = -1, p.delta[5] = tiny;
    problem_forward(&p), problem_backward(&p);
    memcpy(y, p.y, p.ny * sizeof *y), at_0 = p.ddelta[0];
    CHECK(p.ddelta[2] == 0 && p.ddelta[3] == 0 && p.ddelta[5] == 0);
    CHECK(fabs((double)at_0) > 1e-4 && fabs((double)p.ddelta[1]) > 1e-4 && fabs((double)p.ddelta[4]) > 1e-4);
    p.delta[0] = -tiny, p.delta[2] = p.delta[5] = 0, p.delta[3] = -turn;
    memset(p.ddelta, 0, p.nd * sizeof *p.ddelta);
    problem_forward(&p), problem_backward(&p);
    CHECK(check_distance(y, p.y, p.ny) == 0); /* outside it counts as the bound */
    CHECK(p.ddelta[0] == at_0 && p.ddelta[2] != 0 && p.ddelta[3] != 0 && p.ddelta[5] != 0);
    free(y);
    problem_close(&p);
}

/* --------------------------------------- 27: RoPE++ is RoPE twice --------------------------------------- */

static void ropepp_is_rope_twice(cmha_layout layout, size_t rotary) {
    const double apart = check_tolerance(1e-14, 1e-6); /* 0 but for what -ffast-math makes of the library */
    shape s = {2, 4, 2, 70, 90, 8, 5, CMHA_ATTENTION_ROPEPP, CMHA_LAYOUT_INTERLEAVED, CMHA_SHARE_PER_HEAD,
               1, 1, 0, 40, 0,  20, 2};
    problem twice, once;
    size_t pass, b, h, r, j, part = 70 * 5;
    s.layout = layout;
    problem_open(&twice, &s);
    s.kind = CMHA_ATTENTION_ROPE;
    problem_open(&once, &s);
    twice.args.rotary_dims = once.args.rotary_dims = rotary;
    memcpy(once.q, twice.q, once.nq * sizeof *once.q), memcpy(once.k, twice.k, once.nkk * sizeof *once.k);
    memcpy(once.v, twice.v, once.nv * sizeof *once.v), memcpy(once.mask, twice.mask, 2 * 90);
    problem_forward(&twice);
    for (pass = 0; pass < 2; pass++) {
        double worst = 0;
        problem_forward(&once);
        for (b = 0; b < 2; b++)
            for (h = 0; h < 4; h++)
                worst = fmax(worst, check_distance(twice.y + (b * 8 + 2 * h + pass) * part,
                                                   once.y + (b * 4 + h) * part, part));
        CHECK_THAT(worst <= apart && check_largest(once.y, once.ny) > 0.1, "pass %zu: %.3g apart", pass,
                   worst);
        for (r = 0; r < once.nq / 8; r++) /* (re, im) becomes (im, -re), where the layout has them */
            for (j = 0; j < 4; j++) {
                size_t n = rotary ? rotary / 2 : 4, at = j < n ? 0 : 2 * n, half = j < n ? n : 4 - n;
                cmha_real *x = once.q + r * 8 + at + (layout ? j - at / 2 : 2 * (j - at / 2));
                cmha_real *im = x + (layout ? half : 1), re = *x;
                *x = *im, *im = -re;
            }
    }
    problem_close(&twice), problem_close(&once);
}

/* ------------------------------------ 5: the layout is a permutation ------------------------------------ */

static void permute(const cmha_real *x, cmha_real *y, size_t rows, size_t d) { /* interleaved -> half */
    size_t r, j;
    for (r = 0; r < rows; r++)
        for (j = 0; j < d / 2; j++)
            y[r * d + j] = x[r * d + 2 * j], y[r * d + j + d / 2] = x[r * d + 2 * j + 1];
}

static void layout_is_a_permutation(cmha_attention_kind kind, cmha_share share) {
    shape s = {2, 2, 1, 67, 67, 10, 10, CMHA_ATTENTION_CMHA, CMHA_LAYOUT_INTERLEAVED, CMHA_SHARE_PER_HEAD,
               1, 1, 0, 0,  0,  5,  1};
    problem p;
    cmha_real *y, *q, *k;
    s.kind = kind, s.share = share;
    problem_open(&p, &s);
    y = check_zeros(p.ny), q = check_zeros(p.nq), k = check_zeros(p.nkk);
    problem_forward(&p), memcpy(y, p.y, p.ny * sizeof *y);
    permute(p.q, q, p.nq / 10, 10), permute(p.k, k, p.nkk / 10, 10);
    memcpy(p.q, q, p.nq * sizeof *q), memcpy(p.k, k, p.nkk * sizeof *k);
    p.args.layout = CMHA_LAYOUT_HALF;
    problem_forward(&p);
    CHECK_NEAR(check_distance(y, p.y, p.ny), 0, check_tolerance(1e-14, 1e-6));
    free(y), free(q), free(k);
    problem_close(&p);
}

/* The same on a model: permuting the rows of wq and wk turns an interleaved checkpoint into a half-split
   one */
static void permute_rows(const cmha_tensor *from, cmha_tensor *to, size_t dk) {
    size_t head, j, d = from->shape[1];
    for (head = 0; head < from->shape[0] / dk; head++)
        for (j = 0; j < dk; j++) {
            size_t target = j % 2 ? dk / 2 + j / 2 : j / 2;
            memcpy(to->data + (head * dk + target) * d, from->data + (head * dk + j) * d,
                   d * sizeof(cmha_real));
        }
}

static void layout_of_a_model(void) {
    cmha_model_config config = check_model_config();
    cmha_model a, b;
    int32_t ids[24];
    cmha_real *la = check_zeros(24 * 19), *lb = check_zeros(24 * 19);
    cmha_batch batch = {ids, NULL, NULL, 2, 12, NULL, NULL, NULL, NULL, NULL};
    size_t i;
    for (i = 0; i < 24; i++) ids[i] = (int32_t)check_below(19);
    CHECK_OK(cmha_model_init(&a, &context, &config));
    config.layout = CMHA_LAYOUT_HALF;
    CHECK_OK(cmha_model_init(&b, &context, &config));
    CHECK(a.parameters.size == b.parameters.size);
    memcpy(b.parameters.data, a.parameters.data, a.parameters.size * sizeof(cmha_real));
    CHECK_OK(cmha_model_logits(&a, &batch, la));
    CHECK_OK(cmha_model_logits(&b, &batch, lb));
    CHECK(check_distance(la, lb, 24 * 19) > 1e-3); /* the flag means something */
    for (i = 0; i < a.parameters.count; i++)
        if (strstr(a.parameters.list[i].name, "wq.weight") || strstr(a.parameters.list[i].name, "wk.weight"))
            permute_rows(&a.parameters.list[i].tensor, &b.parameters.list[i].tensor, 4);
    CHECK_OK(cmha_model_logits(&b, &batch, lb));
    CHECK_NEAR(check_distance(la, lb, 24 * 19), 0, check_tolerance(1e-12, 2e-5));
    cmha_model_close(&a), cmha_model_close(&b);
    free(la), free(lb);
}

/* --------------------------------- 6: cached decode is the full forward --------------------------------- */

/* Feeds `length` tokens to a cache in chunks and compares the logits after each chunk with the full
   forward's */
static void decode_in_chunks(cmha_model *model, const int32_t *ids, size_t batch, size_t length,
                             const cmha_real *full, size_t first, size_t chunk, const char *label) {
    cmha_cache cache;
    size_t V = model->config.vocabulary, at, n, b;
    cmha_real *logits = check_zeros(batch * V), worst = 0;
    int32_t *part = (int32_t *)check_alloc(batch * length, sizeof *part);
    CHECK_OK(cmha_cache_init(&cache, model, batch, length, 0, NULL));
    for (at = 0; at < length; at += n) {
        n = at ? chunk : first;
        if (n > length - at) n = length - at;
        for (b = 0; b < batch; b++) memcpy(part + b * n, ids + b * length + at, n * sizeof *part);
        if (!CHECK_THAT(!cmha_cache_append(&cache, part, n, logits), "%s: %s", label, cmha_error(&context)))
            break;
        for (b = 0; b < batch; b++)
            worst = (cmha_real)fmax((double)worst,
                                    check_distance(logits + b * V, full + (b * length + at + n - 1) * V, V));
    }
    CHECK_THAT(worst < (cmha_real)check_tolerance(1e-11, 3e-4),
               "%s, chunks of %zu then %zu: logits off by %.3g", label, first, chunk, (double)worst);
    CHECK(cache.length == length);
    cmha_cache_close(&cache);
    free(logits), free(part);
}

static void decode(const char *label, const cmha_model_config *config, size_t length) {
    cmha_model model;
    size_t batch = 2, i, V = config->vocabulary;
    int32_t *ids = (int32_t *)check_alloc(batch * length, sizeof *ids);
    cmha_real *full = check_zeros(batch * length * V);
    cmha_batch whole = {ids, NULL, NULL, batch, length, NULL, NULL, NULL, NULL, NULL};
    for (i = 0; i < batch * length; i++) ids[i] = (int32_t)check_below(V);
    if (!CHECK_THAT(!cmha_model_init(&model, &context, config), "%s: %s", label, cmha_error(&context)))
        return;
    for (i = 0; i < model.parameters.count; i++) /* which start where they change nothing */
        if (strstr(model.parameters.list[i].name, "log_temp"))
            check_fill(model.parameters.list[i].tensor.data, model.parameters.list[i].tensor.size, 1);
    CHECK_OK(cmha_model_logits(&model, &whole, full));
    CHECK(check_finite(full, batch * length * V));
    decode_in_chunks(&model, ids, batch, length, full, length, 1, label);
    decode_in_chunks(&model, ids, batch, length, full, 1, 1, label);
    decode_in_chunks(&model, ids, batch, length, full, length / 2 + 1, 1, label);
    decode_in_chunks(&model, ids, batch, length, full, 3, 5, label);
    cmha_model_close(&model);
    free(ids), free(full);
}

static void decode_all(void) {
    static const size_t kv[] = {0, 2, 1}, windows[] = {0, 5, 66};
    int attention, position, share, layout;
    size_t g, w;
    char label[96];
    for (attention = 0; attention < ORACLE_KINDS; attention++)
        for (position = 0; position < 4; position++)
            for (share = 0; share < (attention && attention != CMHA_ATTENTION_POPE ? 1 : 3); share++)
                for (g = 0; g < 3; g++)
                    for (w = 0; w < 3; w++) {
                        cmha_model_config c = check_model_config();
                        layout = (int)(g + w) % 2;
                        c.attention = attention, c.position = position, c.share = share, c.n_kv_heads = kv[g],
                        c.window = windows[w];
                        c.layout = layout, c.head_temperature = (int)g % 2;
                        c.placement = (attention + position) % 2, c.norm = position % 2,
                        c.activation = (int)w;
                        c.attention_bias = share == 1, c.tied = g != 1, c.head_bias = g == 2,
                        c.n_layers = 1 + (w == 1);
                        snprintf(label, sizeof label,
                                 "decode attention %d position %d share %d kv %zu window %zu", attention,
                                 position, share, kv[g], windows[w]);
                        if (check_quick() && (attention + position + share + (int)g + (int)w) % 4) continue;
                        decode(label, &c, w == 1 ? 14 : 70);
                    }
}

/* Temperatures, gamma and arctan in the caches of the other families */
static void decode_families(void) {
    static const char *const options[] = {
        "family=cope attention=dot cope_score=phase", "family=cope attention=dot cope_score=hybrid window=5",
        "family=cope attention=rope cope_score=hybrid_norm", "family=cope attention=dot cope_score=linear",
        "family=mobius attention=rope position=learned placement=post mobius_heads=2",
        "family=mobius attention=dot position=learned placement=post mobius_heads=1 mobius_softmax=yang8",
        "family=mobius attention=dot position=sinusoidal placement=post mobius_heads=4 mobius_softmax=abs",
        "family=crat angle=atan real_heads=1", "family=crat crat_attention=dot imag_heads=2",
        "qk_norm=rms_gain score_softcap=0.7 window=6 sinks=2 n_kv_heads=2",
        "attention=rope qk_norm=rms logit_softcap=3 norm=rmsnorm_one_plus activation=relu2 window=4 sinks=9",
        ("family=cope attention=rope cope_score=hybrid_norm qk_norm=rms_gain score_softcap=0.6 window=5 "
         "sinks=1"),
        "parallel=norms value_residual=1 residual_mix=1 n_kv_heads=2 qk_norm=rms n_layers=3",
        "attention=rope parallel=norm value_residual=1 window=5 attention_bias=1",
        "family=mobius attention=rope position=learned placement=post mobius_heads=2 residual_mix=1",
        "family=crat residual_mix=1 n_layers=3",
        ("attention=rope placement=sandwich layer_kinds=lln window=5 local_base=50 n_layers=4 "
         "qk_norm=rms_one_plus rope_scaling=yarn rope_factor=4 rope_length=64"),
        "placement=after qk_norm=rms_whole n_kv_heads=2 layer_kinds=gl window=3 sinks=1 head_scale=2"};
    size_t i;
    for (i = 0; i < sizeof options / sizeof *options; i++) {
        cmha_model_config c = check_model_config();
        c.head_temperature = c.cope_gamma_learned = 1, c.cope_gamma = 0.7;
        CHECK_OK(cmha_config_set_all(&context, cmha_model_table(), &c, options[i]));
        decode(options[i], &c, 20);
    }
}

/* Temperatures of 1 and a gamma that is learned, at their start, change no bit */
static void at_the_start(const char *options) {
    enum { N = 20 };
    cmha_model_config c = check_model_config();
    cmha_model plain, learned;
    int32_t ids[2 * N];
    cmha_real *want = check_zeros(2 * N * 19), *got = check_zeros(2 * N * 19);
    cmha_batch batch = {ids, NULL, NULL, 2, N, NULL, NULL, NULL, NULL, NULL};
    size_t i, more = 0;
    for (i = 0; i < 2 * N; i++) ids[i] = (int32_t)check_below(19);
    c.cope_gamma = 0.7;
    CHECK_OK(cmha_config_set_all(&context, cmha_model_table(), &c, options));
    CHECK_OK(cmha_model_init(&plain, &context, &c));
    c.head_temperature = c.cope_gamma_learned = 1;
    CHECK_OK(cmha_model_init(&learned, &context, &c));
    for (i = 0; i < learned.parameters.count; i++) {
        cmha_parameter *p = &learned.parameters.list[i];
        cmha_parameter *q = cmha_parameters_find(&plain.parameters, p->name);
        if (q) memcpy(p->tensor.data, q->tensor.data, p->tensor.size * sizeof(cmha_real));
        else CHECK(p->decay == 0), more++;
    }
    CHECK(more > 0);
    CHECK_OK(cmha_model_logits(&plain, &batch, want));
    CHECK_OK(cmha_model_logits(&learned, &batch, got));
    CHECK_THAT(!memcmp(want, got, 2 * N * 19 * sizeof *got), "%s: off by %g", options,
               check_distance(want, got, 2 * N * 19));
    cmha_model_close(&plain), cmha_model_close(&learned);
    free(want), free(got);
}

/* A table of frequencies of one's own, a different one per head */
static void decode_with_table(void) {
    cmha_model_config c = check_model_config();
    cmha_model model;
    double omega[8];
    int32_t ids[60];
    cmha_real *full = check_zeros(60 * 19), *other = check_zeros(60 * 19);
    cmha_batch whole = {ids, NULL, NULL, 2, 30, NULL, NULL, NULL, NULL, NULL};
    size_t i;
    c.frequency = CMHA_FREQUENCY_TABLE, c.n_kv_heads = 2;
    for (i = 0; i < 60; i++) ids[i] = (int32_t)check_below(19);
    for (i = 0; i < 8; i++) omega[i] = 0.01 + 0.2 * (double)i;
    CHECK_OK(cmha_model_init(&model, &context, &c));
    CHECK_OK(cmha_model_set_frequencies(&model, omega));
    CHECK_OK(cmha_model_logits(&model, &whole, full));
    decode_in_chunks(&model, ids, 2, 30, full, 7, 1, "per-head frequencies");
    omega[7] = 0.3;
    CHECK_OK(cmha_model_set_frequencies(&model, omega));
    CHECK_OK(cmha_model_logits(&model, &whole, other));
    CHECK(check_distance(full, other, 60 * 19) > 1e-6);
    cmha_model_close(&model);
    free(full), free(other);
}

/* ------------------------------------- 21: padding changes nothing -------------------------------------- */

static void padding_of_keys(cmha_attention_kind kind) {
    shape s = {1, 2, 1, 70, 70, 8, 8, CMHA_ATTENTION_CMHA, CMHA_LAYOUT_INTERLEAVED, CMHA_SHARE_PER_HEAD,
               0, 1, 0, 0,  0,  0, 1};
    problem p;
    cmha_real *y;
    size_t i;
    s.kind = kind;
    problem_open(&p, &s);
    y = check_zeros(p.ny);
    problem_forward(&p), memcpy(y, p.y, p.ny * sizeof *y);
    for (i = 0; i < 70; i++) /* whatever a masked key holds */
        if (!p.mask[i]) p.k[i * 8] = 30000, p.k[i * 8 + 3] = -20000, p.v[i * 8] = 1e6, p.v[i * 8 + 1] = -1000;
    problem_forward(&p);
    CHECK_THAT(check_distance(y, p.y, p.ny) == 0, "kind %d: a masked key changes the output by %.3g",
               (int)kind, check_distance(y, p.y, p.ny));
    problem_backward(&p);
    CHECK_THAT(check_finite(p.dq, p.nq) && check_finite(p.dk, p.nkk) && check_finite(p.dv, p.nv),
               "kind %d: masked keys spoil the gradients", (int)kind);
    free(y);
    problem_close(&p);
}

static void padded_batch(int causal, int lag) {
    cmha_model_config c = check_model_config();
    cmha_model model;
    enum { N = 9, M = 14, V = 19 };
    int32_t ids[N], padded[2 * M], targets[2 * M], own[N];
    unsigned char mask[2 * M];
    cmha_real *a = check_zeros(N * V), *b = check_zeros(2 * M * V);
    cmha_batch plain = {ids, own, NULL, 1, N, NULL, NULL, NULL, NULL, NULL},
               batch = {padded, targets, mask, 2, M, NULL, NULL, NULL, NULL, NULL};
    double alone = 0, together = 0;
    size_t i;
    c.causal = causal;
    if (lag) c.family = CMHA_FAMILY_CRAT, c.crat_attention = CMHA_CRAT_ATTENTION_LAG, c.lag_temp = 5;
    CHECK_OK(cmha_model_init(&model, &context, &c));
    for (i = 0; i < N; i++) ids[i] = (int32_t)check_below(V), own[i] = (int32_t)check_below(V);
    for (i = 0; i < 2 * M; i++) {
        padded[i] = i < N ? ids[i] : (int32_t)check_below(V);
        mask[i] = (unsigned char)(i < N || i >= M), targets[i] = i < N ? own[i] : -1;
    }
    CHECK_OK(cmha_model_logits(&model, &plain, a));
    CHECK_OK(cmha_model_logits(&model, &batch, b));
    CHECK_NEAR(check_distance(a, b, N * V), 0, check_tolerance(1e-12, 2e-5));
    CHECK_OK(cmha_model_loss(&model, &plain, &alone));
    CHECK_OK(cmha_model_loss(&model, &batch, &together));
    CHECK_NEAR(alone, together, check_tolerance(1e-12, 1e-5));
    cmha_model_close(&model);
    free(a), free(b);
}

/* A later token changes nothing before it; with a window neither does a token that has left it */
static void causality(size_t window) {
    cmha_model_config c = check_model_config();
    cmha_model model;
    enum { N = 30, V = 19 };
    int32_t ids[N];
    cmha_real *a = check_zeros(N * V), *b = check_zeros(N * V);
    cmha_batch batch = {ids, NULL, NULL, 1, N, NULL, NULL, NULL, NULL, NULL};
    size_t i;
    c.n_layers = 1, c.window = window;
    CHECK_OK(cmha_model_init(&model, &context, &c));
    for (i = 0; i < N; i++) ids[i] = (int32_t)check_below(V);
    CHECK_OK(cmha_model_logits(&model, &batch, a));
    ids[10] = (ids[10] + 1) % V;
    CHECK_OK(cmha_model_logits(&model, &batch, b));
    CHECK(check_distance(a, b, 10 * V) == 0);
    CHECK(check_distance(a + 10 * V, b + 10 * V, V) > 1e-4);
    CHECK(check_distance(a + 12 * V, b + 12 * V, V) > 1e-6);
    if (window)
        CHECK(check_distance(a + (10 + window) * V, b + (10 + window) * V, (N - 10 - window) * V) == 0);
    else CHECK(check_distance(a + 29 * V, b + 29 * V, V) > 1e-7);
    cmha_model_close(&model);
    free(a), free(b);
}

/* ---------------------------------- masked rows, huge scores, dropout ----------------------------------- */

static void masked_rows(cmha_attention_kind kind, int causal) {
    shape s = {2, 2, 1, 66, 66, 4, 4, CMHA_ATTENTION_CMHA, CMHA_LAYOUT_INTERLEAVED, CMHA_SHARE_PER_HEAD,
               0, 1, 0, 0,  0,  0, 2};
    problem p;
    size_t i, h;
    s.kind = kind, s.causal = causal;
    problem_open(&p, &s);
    for (i = 0; i < 66; i++) p.mask[i] = 0; /* the first sequence sees nothing at all */
    for (i = 66; i < 132; i++) p.mask[i] = (unsigned char)(i > 76);
    problem_forward(&p), problem_backward(&p);
    CHECK(check_finite(p.y, p.ny) && check_finite(p.dq, p.nq) && check_finite(p.dk, p.nkk) &&
          check_finite(p.dv, p.nv));
    CHECK(check_largest(p.y, p.ny / 2) == 0 && check_largest(p.lse, p.nl / 2) == 0);
    CHECK(check_largest(p.dq, p.nq / 2) == 0 && check_largest(p.dk, p.nkk / 2) == 0 &&
          check_largest(p.dv, p.nv / 2) == 0);
    CHECK(check_largest(p.dq + p.nq / 2, p.nq / 2) > 0 && check_largest(p.dk + p.nkk / 2 + 12 * 4, 4) > 0);
    for (h = p.args.heads; causal && h < 2 * p.args.heads; h++)
        CHECK(check_largest(p.y + h * 66 * 4, 11 * 4) == 0 && check_largest(p.y + (h * 66 + 11) * 4, 4) > 0);
    problem_close(&p);
}

static void huge_scores(cmha_attention_kind kind) {
    shape s = {1, 2, 2, 80, 80, 8, 8, CMHA_ATTENTION_CMHA, CMHA_LAYOUT_INTERLEAVED, CMHA_SHARE_PER_HEAD,
               1, 0, 0, 0,  0,  0, 1};
    problem p;
    size_t i;
    s.kind = kind;
    problem_open(&p, &s);
    for (i = 0; i < p.nq; i++) p.q[i] *= 1000;
    for (i = 0; i < p.nkk; i++) p.k[i] *= 1000;
    problem_forward(&p), problem_backward(&p);
    CHECK(check_finite(p.y, p.ny) && check_finite(p.lse, p.nl) && check_largest(p.y, p.ny) <= 1.0001 &&
          check_largest(p.lse, p.nl) > 1e5);
    CHECK(check_finite(p.dq, p.nq) && check_finite(p.dk, p.nkk) && check_finite(p.dv, p.nv) &&
          check_finite(p.ddelta, p.nd));
    for (i = 0; i < p.nq; i++) p.q[i] = -1000; /* very negative ones alike: rows still sum to one */
    for (i = 0; i < p.nkk; i++) p.k[i] = 1000;
    for (i = 0; i < p.nv; i++) p.v[i] = 1;
    p.args.kind = CMHA_ATTENTION_DOT, p.args.heads = p.queries;
    problem_forward(&p);
    for (i = 0; i < p.queries * 80 * 8; i++)
        if (fabs((double)p.y[i] - 1) > 1e-5) break;
    CHECK(i == p.queries * 80 * 8);
    problem_close(&p);
}

/* lam = 0 everywhere: uniform attention, finite gradients */
static void zero_moduli(void) {
    shape s = {1, 1, 1, 5, 5, 4, 4, CMHA_ATTENTION_CMHA, CMHA_LAYOUT_INTERLEAVED, CMHA_SHARE_PER_HEAD,
               0, 0, 0, 0, 0, 0, 1};
    problem p;
    size_t i;
    problem_open(&p, &s);
    memset(p.q, 0, p.nq * sizeof *p.q), memset(p.k, 0, p.nkk * sizeof *p.k);
    for (i = 0; i < p.nq; i += 2) p.q[i] = (cmha_real)-0.0; /* a signed zero has a phase of pi in atan2 */
    problem_forward(&p), problem_backward(&p);
    CHECK_NEAR(p.lse[0], log(5), 1e-6);
    CHECK(check_largest(p.dq, p.nq) == 0 && check_largest(p.dk, p.nkk) == 0 &&
          check_largest(p.ddelta, p.nd) == 0);
    CHECK(check_finite(p.y, p.ny));
    problem_close(&p);
}

/* Probabilities are dropped and the kept ones scaled: mean one, the right variance, the
   same key the same mask, tiles or not */
static void dropout_statistics(void) {
    shape s = {1, 8, 8, 128, 128,  4, 1, CMHA_ATTENTION_DOT, CMHA_LAYOUT_INTERLEAVED, CMHA_SHARE_PER_HEAD,
               0, 0, 0, 0,   0.25, 0, 2};
    problem p;
    cmha_real *again;
    double sum = 0, squares = 0, n;
    size_t i;
    problem_open(&p, &s);
    memset(p.q, 0, p.nq * sizeof *p.q); /* every probability 1/128 */
    for (i = 0; i < p.nv; i++) p.v[i] = 1;
    again = check_zeros(p.ny), n = (double)p.ny;
    problem_forward(&p);
    memcpy(again, p.y, p.ny * sizeof *again);
    for (i = 0; i < p.ny; i++) sum += p.y[i], squares += ((double)p.y[i] - 1) * ((double)p.y[i] - 1);
    CHECK_NEAR(sum / n, 1, 0.01);
    CHECK_NEAR(squares / n * 128, 0.25 / 0.75, 0.05);
    p.args.threads = 1;
    problem_forward(&p);
    CHECK(check_distance(again, p.y, p.ny) == 0);
    p.args.key++;
    problem_forward(&p);
    CHECK(check_distance(again, p.y, p.ny) > 1e-3);
    free(again);
    problem_close(&p);
}

/* Every dropout of a pass and every pass of a tape has its own mask; a tape opened anew draws them again. */
static void dropout_draws(void) {
    enum { N = 200, MASKS = 6 };
    static cmha_real masks[MASKS][N];
    const size_t n = N;
    cmha_tape tape;
    cmha_tensor *x, *y;
    size_t i, j, pass, same;
    for (i = 0; i < MASKS; i++) {
        pass = i % 4 / 2; /* two dropouts in each of two passes, then the first two once more */
        if (i % 4 == 0) CHECK_OK(cmha_tape_init(&tape, &context, 1));
        if (i % 2 == 0 && pass) cmha_tape_reset(&tape);
        x = cmha_tensor_new(&tape, 1, &n, 1);
        for (j = 0; x && j < N; j++) x->data[j] = 1;
        y = cmha_dropout(&tape, x, (cmha_real)0.5);
        if (CHECK(y != NULL)) memcpy(masks[i], y->data, sizeof masks[i]);
        if (i % 4 == 3 || i + 1 == MASKS) cmha_tape_close(&tape);
        for (j = 0; j < i; j++) {
            same = !memcmp(masks[i], masks[j], sizeof masks[i]);
            CHECK_THAT(same == (i == j + 4), "mask %zu is%s mask %zu", i, same ? "" : " not", j);
        }
    }
}

/* Token-major strided views and head-major arrays are the same thing; threads
   change no bit, forward or backward */
static void views_and_threads(void) {
    shape s = {2, 4, 2, 70, 70,  6, 6, CMHA_ATTENTION_CMHA, CMHA_LAYOUT_INTERLEAVED, CMHA_SHARE_PER_HEAD,
               1, 1, 0, 20, 0.2, 0, 1};
    problem p, r;
    uint64_t seed = check_seed;
    cmha_real *row = check_zeros(2 * 70 * 24);
    cmha_attention_views x;
    size_t b, h, n, i;
    problem_open(&p, &s);
    check_seed = seed, s.threads = 2;
    problem_open(&r, &s);
    problem_forward(&p), problem_backward(&p), problem_forward(&r), problem_backward(&r);
    CHECK(check_distance(p.q, r.q, p.nq) == 0 && check_distance(p.y, r.y, p.ny) == 0 &&
          check_distance(p.dq, r.dq, p.nq) == 0);
    CHECK(check_distance(p.dk, r.dk, p.nkk) == 0 && check_distance(p.dv, r.dv, p.nv) == 0 &&
          check_distance(p.ddelta, r.ddelta, p.nd) == 0);
    for (b = 0; b < 2; b++)
        for (h = 0; h < 4; h++)
            for (n = 0; n < 70; n++)
                for (i = 0; i < 6; i++)
                    row[(b * 70 + n) * 24 + h * 6 + i] = p.q[((b * 4 + h) * 70 + n) * 6 + i];
    x = problem_views(&p), x.q = cmha_heads_by_token(row, 70, 24, 6, 0), x.y.data = r.y;
    cmha_attention_forward(&p.args, &x, r.pairs, p.scratch);
    CHECK(check_distance(p.y, r.y, p.ny) == 0);
    problem_close(&p), problem_close(&r);
    free(row);
}

/* -------------------------------------- phase contrastive learning -------------------------------------- */

enum { PB = 2, PN = 5, PH = 3, PP = 2 }; /* sequences, tokens, heads, pairs */

/* The phases of head h of the projection's `heads`, queries before keys before values, for the kernel: raw,
   or adapted by a row of delta and (of a query) b */
static void phases_of(const cmha_real *qkv, size_t heads, size_t b, size_t h, const cmha_real *delta,
                      const cmha_real *bias, const double *omega, ptrdiff_t pos0, cmha_real *theta) {
    const cmha_euler_args one = {1, PP, CMHA_LAYOUT_INTERLEAVED};
    size_t n, j, row = heads * 2 * PP;
    for (n = 0; n < PN; n++) {
        const cmha_real *x = qkv + (b * PN + n) * row + h * 2 * PP;
        cmha_real *phase = theta + n * PP;
        cmha_euler_forward(&one, x, NULL, phase);
        for (j = 0; delta && j < PP; j++)
            phase[j] = (cmha_real)((double)delta[j] * (double)phase[j] + (bias ? (double)bias[j] : 0) +
                                   ((double)pos0 + (double)n) * omega[j]);
    }
}

/* cmha_pcl is the mean over sequences and all heads of queries and keys alike of the kernel's loss */
static void pcl_is_a_mean(int adapted, size_t kv) {
    size_t heads = PH + 2 * kv, row = heads * 2 * PP, b, h;
    size_t sizes[3] = {PB, PN, row}, pairs[2] = {PH, PP}, width[1] = {PP};
    cmha_real *qkv = check_array(PB * PN * row, 1), delta[PH * PP], bias[PH * PP], w[PP];
    cmha_real theta[PN * PP], lse[2 * PN], *scratch;
    double omega[PP] = {0.7, 0.1}, want = 0;
    cmha_attention_args a;
    cmha_pcl_args k;
    cmha_pcl_options o = {(cmha_real)0.5, 0, 0};
    cmha_tape tape;
    cmha_tensor *loss;
    check_fill(delta, PH * PP, 1), check_fill(bias, PH * PP, 1), check_fill(w, PP, 1);
    memset(&a, 0, sizeof a), memset(&k, 0, sizeof k);
    o.adapted = adapted;
    CHECK_OK(cmha_tape_init(&tape, &context, 1));
    a.heads = PH, a.kv_heads = kv, a.scale = 1, a.causal = 1;
    a.rotation = cmha_rotation(&tape, omega, 1, PP, PN, 4);
    loss = cmha_pcl(&tape, &a, cmha_tensor_wrap(&tape, 3, sizes, qkv, NULL),
                    cmha_tensor_wrap(&tape, 2, pairs, delta, NULL),
                    cmha_tensor_wrap(&tape, 2, pairs, bias, NULL), cmha_tensor_wrap(&tape, 1, width, w, NULL),
                    &o);
    k.N = PN, k.P = PP, k.tau = o.tau, k.w = w;
    scratch = check_zeros(cmha_pcl_scratch(&k));
    for (b = 0; b < PB; b++)
        for (h = 0; h < PH + kv; h++) {
            size_t at = (h < PH ? h : (h - PH) * (PH / kv)) * PP; /* a key head: its first query head's */
            phases_of(qkv, heads, b, h, adapted ? delta + at : NULL, h < PH ? bias + at : NULL, omega, 4,
                      theta);
            want += cmha_pcl_forward(&k, theta, lse, scratch) / (double)(PB * (PH + kv));
        }
    if (CHECK_THAT(loss != NULL, "%s", cmha_error(&context)))
        CHECK_NEAR(loss->data[0], want, check_tolerance(1e-12, 1e-5));
    cmha_tape_close(&tape);
    free(qkv), free(scratch);
}

/* The model's extra loss is the mean over layers, times the weight: two layers that
   leave x alone cost what one costs */
static double extra_loss(size_t layers, double weight) {
    cmha_model_config c = check_model_config();
    cmha_model model;
    cmha_tape tape;
    cmha_tensor *extra = NULL;
    int32_t ids[6] = {1, 5, 2, 9, 9, 3};
    cmha_batch batch = {ids, ids, NULL, 1, 6, NULL, NULL, NULL, NULL, NULL};
    double value = NAN;
    size_t i;
    c.n_layers = layers, c.pcl_weight = weight, c.pcl_mask = 0;
    CHECK_OK(cmha_model_init(&model, &context, &c));
    for (i = 0; i < model.parameters.count; i++) {
        cmha_tensor *t = &model.parameters.list[i].tensor;
        size_t j;
        check_seed = 1234; /* every layer gets the same numbers */
        for (j = 0; j < t->size; j++)
            t->data[j] = (cmha_real)(strstr(model.parameters.list[i].name, "wo.weight") ||
                                             strstr(model.parameters.list[i].name, "ffn.w2")
                                         ? 0
                                         : check_random());
    }
    CHECK_OK(cmha_tape_init(&tape, &context, 1));
    CHECK(cmha_model_forward(&model, &tape, &batch, &extra) != NULL);
    if (CHECK(extra != NULL)) value = (double)extra->data[0];
    cmha_tape_close(&tape), cmha_model_close(&model);
    return value;
}

static void pcl_of_a_model(void) {
    double one = extra_loss(1, 0.1);
    CHECK(one > 1e-3);
    CHECK_NEAR(extra_loss(2, 0.1), one, check_tolerance(1e-13, 1e-6));
    CHECK_NEAR(extra_loss(1, 0.3), 3 * one, check_tolerance(1e-13, 1e-5));
}

static void alibi(void) {
    cmha_real slopes[12];
    size_t h;
    cmha_alibi_slopes(8, slopes);
    for (h = 0; h < 8; h++) CHECK_NEAR(slopes[h], pow(0.5, (double)h + 1), 1e-7);
    cmha_alibi_slopes(12, slopes);
    for (h = 0; h < 12; h++) CHECK_NEAR(slopes[h], pow(2, -8 * ((double)h + 1) / 12), 1e-7);
}

/* The arrays of an attention call, heads-major: `copies` times the same sequence. Each is
   filled by seed, each gradient is zero. */
typedef struct long_call {
    cmha_attention_args args;
    cmha_real *x[8], *dturn[3], *dlse, *scratch; /* q, k, v, y, dy, dq, dk, dv; of delta, b, log_temp */
    cmha_lse *lse;
    size_t n[8];                                   /* of one sequence */
} long_call;

static void long_open(long_call *c, const cmha_attention_args *args, size_t copies, const cmha_real *turn) {
    size_t nq = args->heads * args->n_q * args->d_k, nk = args->kv_heads * args->n_k * args->d_k, sizes[8], i,
           j, need, pairs = args->heads * args->d_k / 2, rows = args->heads * args->n_q;
    c->args = *args, c->args.batch = copies;
    sizes[0] = sizes[3] = sizes[4] = sizes[5] = nq, sizes[1] = sizes[2] = sizes[6] = sizes[7] = nk;
    for (i = 0; i < 8; i++) {
        c->x[i] = check_zeros(copies * sizes[i]), c->n[i] = sizes[i];
        check_seed = 77 + i;
        if (i < 3 || i == 4) check_fill(c->x[i], sizes[i], 1);
        for (j = 1; j < copies; j++) memcpy(c->x[i] + j * sizes[i], c->x[i], sizes[i] * sizeof *c->x[i]);
    }
    need = cmha_attention_scratch(&c->args, 0);
    if (cmha_attention_scratch(&c->args, 1) > need) need = cmha_attention_scratch(&c->args, 1);
    c->lse = (cmha_lse *)check_alloc(copies * rows, sizeof *c->lse), c->scratch = check_zeros(need);
    c->dlse = check_zeros(copies * rows), check_seed = 99, check_fill(c->dlse, rows, 1);
    for (j = 1; j < copies; j++) memcpy(c->dlse + j * rows, c->dlse, rows * sizeof *c->dlse);
    for (i = 0; i < 3; i++) c->dturn[i] = check_zeros(pairs), c->args.parameters[i] = turn + i * pairs;
}

static void long_run(long_call *c) {
    cmha_heads v[8];
    cmha_attention_views x;
    size_t i, H;
    for (i = 0; i < 8; i++) {
        H = c->n[i] == c->n[0] && i != 1 && i != 2 && i < 6 ? c->args.heads : c->args.kv_heads;
        v[i] = cmha_heads_by_head(c->x[i], H, i == 1 || i == 2 || i > 5 ? c->args.n_k : c->args.n_q,
                                c->args.d_k, 0);
    }
    x.q = v[0], x.k = v[1], x.v = v[2], x.y = v[3], x.dy = v[4], x.dq = v[5], x.dk = v[6], x.dv = v[7];
    cmha_attention_forward(&c->args, &x, c->lse, c->scratch);
    cmha_attention_backward(&c->args, &x, c->lse, c->dlse, c->dturn, c->scratch);
}

static void long_close(long_call *c) {
    size_t i;
    for (i = 0; i < 8; i++) free(c->x[i]);
    for (i = 0; i < 3; i++) free(c->dturn[i]);
    free(c->lse), free(c->dlse), free(c->scratch);
}

/* How many times the scratch of one thread three take: more than once only where a head is in pieces. */
static double scratch_of_threads(const long_call *one, const long_call *three) {
    return (double)cmha_attention_scratch(&three->args, 1) / (double)cmha_attention_scratch(&one->args, 1);
}

/* Few long heads are worked on in pieces, eight sequences are not: both give the same,
   and one thread the bits of three. */
static void long_heads(size_t heads, size_t kv_heads, size_t n_q, size_t n_k, size_t window,
                       int temperature) {
    cmha_attention_args a;
    long_call one, three, eight;
    cmha_real *rotation = check_zeros((n_q > n_k ? n_q : n_k) * 16), *turn = check_zeros(heads * 24);
    double omega[8], tolerance = check_tolerance(1e-13, 2e-5);
    size_t i, t;
    memset(&a, 0, sizeof a);
    a.temperature = temperature;
    a.heads = heads, a.kv_heads = kv_heads, a.n_q = n_q, a.n_k = n_k, a.d_k = a.d_v = 16,
    a.scale = (cmha_real)0.25;
    a.causal = 1, a.window = window, a.kind = CMHA_ATTENTION_CMHA, a.share = CMHA_SHARE_PER_HEAD,
    a.threads = 1;
    cmha_frequencies(CMHA_FREQUENCY_ROPE, 10000, 8, NULL, omega);
    cmha_rotation_table(omega, 8, n_q > n_k ? n_q : n_k, 0, rotation);
    a.rotation = rotation;
    check_fill(turn, heads * 24, 1);
    long_open(&one, &a, 1, turn), long_open(&eight, &a, 8, turn);
    a.threads = 3;
    long_open(&three, &a, 1, turn);
    long_run(&one), long_run(&three), long_run(&eight);
    CHECK_THAT(heads > 1 || scratch_of_threads(&one, &three) > 1.02,
               "a head is one thread's, temperature %d", temperature);
    for (i = 3; i < 8; i++) {
        CHECK_THAT(!memcmp(one.x[i], three.x[i], one.n[i] * sizeof(cmha_real)),
                   "array %zu depends on the threads", i);
        CHECK_THAT(check_largest(one.x[i], one.n[i]) > 1e-3 &&
                       check_distance(one.x[i], eight.x[i], one.n[i]) <=
                           tolerance * check_largest(one.x[i], one.n[i]),
                   "array %zu of a head in pieces is off by %g", i,
                   check_distance(one.x[i], eight.x[i], one.n[i]));
    }
    for (t = 0; t < (temperature ? 3 : 2); t++) {
        double most = check_largest(one.dturn[t], heads * 8);
        CHECK_THAT(!memcmp(one.dturn[t], three.dturn[t], heads * 8 * sizeof(cmha_real)),
                   "parameter %d depends on the threads", (int)t);
        CHECK(most > 1e-3);
        for (i = 0; i < heads * 8; i++) CHECK_NEAR(eight.dturn[t][i] / 8, one.dturn[t][i], tolerance * most);
    }
    long_close(&one), long_close(&three), long_close(&eight);
    free(rotation), free(turn);
}

/* Scratch is O(n): 16 times the tokens may not cost more than 16 times the scratch (and a constant) */
static void memory_is_linear(void) {
    cmha_attention_args a;
    size_t small, large;
    int backward;
    memset(&a, 0, sizeof a);
    a.batch = a.heads = a.kv_heads = 1, a.d_k = a.d_v = 64, a.kind = CMHA_ATTENTION_CMHA,
    a.share = CMHA_SHARE_FIXED;
    for (backward = 0; backward < 2; backward++) {
        a.n_q = a.n_k = 1024, small = cmha_attention_scratch(&a, backward);
        a.n_q = a.n_k = 16384, large = cmha_attention_scratch(&a, backward);
        CHECK_THAT(large <= 17 * small && large < 16384u * 1024u, "scratch grows from %zu to %zu", small,
                   large);
    }
}

int main(int argc, char **argv) {
    int i;
    (void)argc;
    cmha_blas_restart(argv);
    check_context(&context, 2, 11);
    definition();
    for (i = 0; i < 2; i++) rope_is_a_special_case((cmha_layout)i);
    for (i = 0; i < 2; i++)
        shift_invariance((cmha_attention_kind)i, 1), shift_invariance((cmha_attention_kind)i, 1000003);
    shift_invariance(CMHA_ATTENTION_POPE, 1000003), shift_invariance(CMHA_ATTENTION_ROPEPP, 1000003);
    CHECK_NEAR(positions_apart(), 0, check_tolerance(1e-15, 6.1e-8));
    frequencies();
    for (i = 0; i < 3; i++) layout_is_a_permutation(CMHA_ATTENTION_CMHA, (cmha_share)i);
    layout_is_a_permutation(CMHA_ATTENTION_ROPE, CMHA_SHARE_FIXED);
    layout_is_a_permutation(CMHA_ATTENTION_ROPEPP, CMHA_SHARE_FIXED);
    pope_is_a_sum_of_cosines(), beta_of_the_query_or_key(), rows_that_turn_together(), beta_at_its_bounds();
    ropepp_is_rope_twice(CMHA_LAYOUT_INTERLEAVED, 0), ropepp_is_rope_twice(CMHA_LAYOUT_HALF, 6);
    layout_of_a_model();
    decode_all(), decode_families(), decode_with_table();
    at_the_start("position=alibi"), at_the_start("family=cope attention=dot"), at_the_start("family=crat");
    at_the_start("family=cope attention=dot cope_imag=learned cope_score=hybrid");
    at_the_start("family=mobius attention=dot position=learned placement=post");
    for (i = 0; i < ORACLE_KINDS; i++) padding_of_keys((cmha_attention_kind)i);
    padded_batch(1, 0), padded_batch(0, 1), padded_batch(0, 0);
    causality(0), causality(4);
    for (i = 0; i < ORACLE_KINDS; i++)
        masked_rows((cmha_attention_kind)i, 0), masked_rows((cmha_attention_kind)i, 1),
            huge_scores((cmha_attention_kind)i);
    zero_moduli();
    dropout_statistics(), dropout_draws();
    views_and_threads();
    for (i = 0; i < 2; i++) {
        long_heads(1, 1, 1100, 1100, 0, i);
        long_heads(2, 1, 1030, 1090, 200, i);
        long_heads(3, 3, 1024, 1024, 0, i);
    }
    pcl_is_a_mean(0, PH), pcl_is_a_mean(1, PH), pcl_is_a_mean(0, 1), pcl_is_a_mean(1, 1), pcl_of_a_model();
    alibi();
    memory_is_linear();
    cmha_context_close(&context);
    return check_end();
}
