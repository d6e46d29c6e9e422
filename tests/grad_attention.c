/* Gradients of the attention core: every option that changes its path, at sizes around its tile of 64. */
#ifndef CMHA_DOUBLE
#define CMHA_DOUBLE
#endif
#include "grad.h"
#include "oracle.h"

static double problem_loss(void *user) {
    problem *p = (problem *)user;
    problem_forward(p);
    return grad_dot(p->y, p->dy, p->ny) + (p->dlse ? grad_dot(p->lse, p->dlse, p->nl) : 0);
}

/* A change of delta or q moves the features by themselves, but the rotation table is fixed:
   nothing to refresh between calls. */
static void problem_check(problem *p, const char *label, size_t samples) {
    grad_input in[6];
    int n = 0;
    problem_forward(p);
    problem_backward(p);
    in[n].name = "q", in[n].x = p->q, in[n].grad = p->dq, in[n++].n = p->nq;
    in[n].name = "k", in[n].x = p->k, in[n].grad = p->dk, in[n++].n = p->nkk;
    if (p->nv) in[n].name = "v", in[n].x = p->v, in[n].grad = p->dv, in[n++].n = p->nv;
    if (p->nd) in[n].name = p->nb ? "delta" : "beta", in[n].x = p->delta;
    if (p->nd) in[n].grad = p->ddelta, in[n++].n = p->nd;
    if (p->nb) in[n].name = "b", in[n].x = p->b, in[n].grad = p->db, in[n++].n = p->nb;
    if (p->args.temperature)
        in[n].name = "log_temp", in[n].x = p->log_temp, in[n].grad = p->dlog_temp, in[n++].n = p->args.heads;
    grad_check(label, problem_loss, p, in, n, samples);
}

static void twice_is_twice(problem *p, const char *label, cmha_real *grad, size_t n, const cmha_real *once) {
    size_t i;
    double worst = 0;
    for (i = 0; i < n; i++) worst = fmax(worst, fabs((double)grad[i] - 2 * (double)once[i]));
    CHECK_THAT(worst <= 1e-11 * (1 + check_largest(once, n)), "%s: the backward does not accumulate", label);
    (void)p;
}

static void problem_accumulates(problem *p, const char *label) {
    cmha_real *grad[6], *once[6];
    size_t n[6], i;
    grad[0] = p->dq, grad[1] = p->dk, grad[2] = p->dv, grad[3] = p->ddelta, grad[4] = p->db;
    grad[5] = p->dlog_temp;
    n[0] = p->nq, n[1] = p->nkk, n[2] = p->nv, n[3] = p->nd, n[4] = p->nb, n[5] = p->args.heads;
    for (i = 0; i < 6; i++) once[i] = check_zeros(n[i]), memcpy(once[i], grad[i], n[i] * sizeof(cmha_real));
    problem_forward(p);
    problem_backward(p);
    for (i = 0; i < 6; i++) twice_is_twice(p, label, grad[i], n[i], once[i]), free(once[i]);
}

/* Every other problem has temperatures */
static void run(const shape *s, size_t samples) {
    static int runs;
    static const char *const kinds[ORACLE_KINDS] = {"cmha", "rope", "dot", "pope", "ropepp"};
    static const char *const shares[] = {"per_head", "shared", "fixed"};
    char label[160];
    problem p;
    int hot = runs++ % 2;
    snprintf(label, sizeof label,
             "%s%s %s %s B%zu H%zu/%zu n%zu/%zu d%zu/%zu%s%s%s window %zu dropout %g pos0 %ld",
             hot ? "hot " : "", kinds[s->kind],
             shares[s->share], s->layout ? "half" : "interleaved", s->B, s->H, s->Hkv, s->n_q, s->n_k, s->d_k,
             s->d_v, s->causal ? " causal" : "", s->mask ? " mask" : "", s->alibi ? " alibi" : "", s->window,
             s->dropout, (long)s->pos0);
    problem_open(&p, s);
    if (hot) problem_heat(&p);
    p.mask[0] = p.mask[p.args.n_k - 1] = 1; /* someone sees something */
    problem_check(&p, label, samples);
    problem_accumulates(&p, label);
    problem_close(&p);
}

/* Small problems: kinds x shares x layouts x masks x grouping. Every option meets every feature map. */
static void sweep_small(void) {
    static const struct {
        cmha_attention_kind kind;
        cmha_share share;
    } maps[] = {{CMHA_ATTENTION_CMHA, CMHA_SHARE_PER_HEAD},
                {CMHA_ATTENTION_CMHA, CMHA_SHARE_SHARED},
                {CMHA_ATTENTION_CMHA, CMHA_SHARE_FIXED},
                {CMHA_ATTENTION_ROPE, CMHA_SHARE_PER_HEAD},
                {CMHA_ATTENTION_DOT, CMHA_SHARE_PER_HEAD},
                {CMHA_ATTENTION_POPE, CMHA_SHARE_PER_HEAD},
                {CMHA_ATTENTION_POPE, CMHA_SHARE_SHARED},
                {CMHA_ATTENTION_POPE, CMHA_SHARE_FIXED},
                {CMHA_ATTENTION_ROPEPP, CMHA_SHARE_PER_HEAD}};
    static const struct {
        int causal, mask, alibi;
        size_t window;
        double dropout;
    } views[] = {{0, 0, 0, 0, 0}, {1, 0, 0, 0, 0},   {1, 0, 0, 3, 0},  {1, 1, 0, 0, 0},
                 {0, 1, 1, 0, 0}, {1, 1, 1, 2, 0.3}, {0, 0, 0, 0, 0.5}};
    size_t m, v, grouping, layout;
    for (m = 0; m < sizeof maps / sizeof *maps; m++)
        for (layout = 0; layout < 2; layout++)
            for (v = 0; v < sizeof views / sizeof *views; v++)
                for (grouping = 0; grouping < 3; grouping++) {
                    shape s = {2, 4, 4, 4, 6, 6, 5, CMHA_ATTENTION_CMHA, CMHA_LAYOUT_INTERLEAVED,
                               CMHA_SHARE_PER_HEAD, 0, 0, 0, 0, 0, 3, 1};
                    s.Hkv = (size_t)4 >> grouping;
                    s.kind = maps[m].kind, s.share = maps[m].share, s.layout = (cmha_layout)layout;
                    s.causal = views[v].causal, s.mask = views[v].mask, s.alibi = views[v].alibi;
                    s.window = views[v].window, s.dropout = views[v].dropout;
                    if (check_quick() && (m + v + grouping + layout) % 5) continue;
                    run(&s, 6);
                }
}

static void sweep_large(void) {
    static const shape shapes[] = {
        /* B, H, Hkv, n_q, n_k, d_k, d_v, kind, layout, share,
           causal, mask, alibi, window, dropout, pos0, threads */
        {1, 2, 2, 65, 65, 8, 8, CMHA_ATTENTION_CMHA, CMHA_LAYOUT_INTERLEAVED, CMHA_SHARE_PER_HEAD,
         1, 0, 0, 0, 0, 0, 2},
        {1, 2, 1, 65, 65, 6, 6, CMHA_ATTENTION_CMHA, CMHA_LAYOUT_HALF, CMHA_SHARE_PER_HEAD,
         1, 1, 0, 0, 0.2, 0, 2},
        {1, 1, 1, 64, 64, 4, 4, CMHA_ATTENTION_CMHA, CMHA_LAYOUT_INTERLEAVED, CMHA_SHARE_SHARED,
         0, 0, 0, 0, 0, 0, 1},
        {1, 2, 1, 130, 130, 6, 7, CMHA_ATTENTION_CMHA, CMHA_LAYOUT_INTERLEAVED, CMHA_SHARE_SHARED,
         1, 0, 0, 70, 0, 1000, 2},
        {1, 2, 2, 130, 130, 4, 4, CMHA_ATTENTION_ROPE, CMHA_LAYOUT_HALF, CMHA_SHARE_PER_HEAD,
         1, 0, 1, 5, 0, 0, 2},
        {1, 2, 2, 130, 130, 3, 3, CMHA_ATTENTION_DOT, CMHA_LAYOUT_INTERLEAVED, CMHA_SHARE_PER_HEAD,
         0, 1, 1, 0, 0.1, 0, 2},
        {2, 2, 2, 130, 130, 2, 3, CMHA_ATTENTION_DOT, CMHA_LAYOUT_INTERLEAVED, CMHA_SHARE_PER_HEAD,
         1, 1, 0, 64, 0, 0, 2},
        {1, 2, 1, 3, 130, 6, 6, CMHA_ATTENTION_CMHA, CMHA_LAYOUT_INTERLEAVED, CMHA_SHARE_PER_HEAD,
         1, 0, 0, 0, 0, 127, 2},
        {1, 4, 2, 1, 129, 4, 4, CMHA_ATTENTION_CMHA, CMHA_LAYOUT_HALF, CMHA_SHARE_PER_HEAD,
         1, 0, 0, 66, 0, 128, 1},
        {1, 2, 1, 66, 131, 4, 4, CMHA_ATTENTION_ROPE, CMHA_LAYOUT_INTERLEAVED, CMHA_SHARE_PER_HEAD,
         1, 1, 0, 0, 0.25, 65, 2},
        {1, 2, 2, 67, 66, 4, 4, CMHA_ATTENTION_CMHA, CMHA_LAYOUT_INTERLEAVED, CMHA_SHARE_FIXED,
         0, 0, 0, 0, 0, 0, 1},
        {1, 1, 1, 65, 65, 130, 70, CMHA_ATTENTION_CMHA, CMHA_LAYOUT_INTERLEAVED, CMHA_SHARE_PER_HEAD,
         1, 0, 0, 0, 0, 0, 1},
        {1, 4, 2, 66, 131, 5, 4, CMHA_ATTENTION_POPE, CMHA_LAYOUT_INTERLEAVED, CMHA_SHARE_PER_HEAD,
         1, 1, 0, 70, 0.25, 65, 2},
        {1, 2, 1, 65, 65, 3, 5, CMHA_ATTENTION_POPE, CMHA_LAYOUT_INTERLEAVED, CMHA_SHARE_SHARED,
         0, 1, 1, 0, 0, 0, 2},
        {1, 4, 2, 66, 131, 6, 4, CMHA_ATTENTION_ROPEPP, CMHA_LAYOUT_HALF, CMHA_SHARE_PER_HEAD,
         1, 1, 1, 70, 0.25, 65, 2},
        {2, 1, 1, 65, 65, 4, 5, CMHA_ATTENTION_ROPEPP, CMHA_LAYOUT_INTERLEAVED, CMHA_SHARE_PER_HEAD,
         0, 0, 0, 0, 0, 0, 2},
    };
    size_t i;
    for (i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (!check_quick() || i % 4 == 1 || shapes[i].window == 64) run(&shapes[i], 8);
}

/* One token: with itself alone the output is v, so q and k matter through lse only */
static void single_tokens(void) {
    int kind, layout;
    for (kind = 0; kind < ORACLE_KINDS; kind++)
        for (layout = 0; layout < 2; layout++) {
            shape s = {2, 2, 1, 1, 1, 2, 3, CMHA_ATTENTION_CMHA, CMHA_LAYOUT_INTERLEAVED, CMHA_SHARE_PER_HEAD,
                       1, 0, 0, 0, 0, 9, 1};
            s.kind = (cmha_attention_kind)kind, s.layout = (cmha_layout)layout;
            run(&s, 20);
        }
}

/* Without a cotangent of lse, and without values */
static void partial_problems(void) {
    shape s = {1, 2, 1, 7, 9, 4, 4, CMHA_ATTENTION_CMHA, CMHA_LAYOUT_INTERLEAVED, CMHA_SHARE_PER_HEAD,
               1, 0, 0, 0, 0, 2, 1};
    problem p;
    cmha_real *kept;
    problem_open(&p, &s), problem_heat(&p);
    kept = p.dlse;
    p.dlse = NULL;
    problem_check(&p, "cmha without dlse", 20);
    p.dlse = kept;
    problem_close(&p);
    problem_open(&p, &s), problem_heat(&p);
    free(p.scratch);
    p.args.d_v = 0, p.nv = p.ny = 0;
    p.scratch = check_zeros(cmha_attention_scratch(&p.args, 0) + cmha_attention_scratch(&p.args, 1));
    problem_check(&p, "cmha without values", 20);
    problem_close(&p);
}

/* Gradients that nobody wants are not written, and the others do not depend on it */
static void unwanted_gradients(void) {
    shape s = {1, 2, 1, 70, 70, 4, 4, CMHA_ATTENTION_CMHA, CMHA_LAYOUT_INTERLEAVED, CMHA_SHARE_PER_HEAD,
               1, 0, 0, 0,  0,  0, 2};
    problem p;
    cmha_real *dq, *dk;
    const cmha_attention_args *a = &p.args;
    cmha_attention_views x;
    problem_open(&p, &s);
    problem_forward(&p), problem_backward(&p);
    dq = check_zeros(p.nq), dk = check_zeros(p.nkk);
    x = problem_views(&p);
    x.dq.data = x.dv.data = NULL, x.dk.data = dk;
    cmha_attention_backward(a, &x, p.pairs, p.dlse, NULL, p.scratch);
    CHECK(check_distance(dk, p.dk, p.nkk) < 1e-12);
    x.dk.data = NULL, x.dq.data = dq;
    cmha_attention_backward(a, &x, p.pairs, p.dlse, NULL, p.scratch);
    CHECK(check_distance(dq, p.dq, p.nq) < 1e-12);
    free(dq), free(dk);
    problem_close(&p);
}

/* lambda = 0: differences are meaningless at the singular point, but the factorised gradient at (0, 0) is the
   limit of the regular one at (epsilon, 0), where theta = 0 as well. */
static void zero_pair_limit(cmha_layout layout, size_t Hkv, cmha_share share) {
    shape s = {1, 2, 2, 5, 5, 4, 4, CMHA_ATTENTION_CMHA, CMHA_LAYOUT_INTERLEAVED, CMHA_SHARE_PER_HEAD,
               1, 0, 0, 0, 0, 0, 1};
    problem p;
    cmha_real *dq, *dk, *dd;
    size_t im;
    s.layout = layout, s.Hkv = Hkv, s.share = share;
    problem_open(&p, &s);
    im = layout == CMHA_LAYOUT_HALF ? 2 : 1; /* pair 0 of query row 1 and key row 0 */
    p.q[4] = 1e-9, p.q[4 + im] = 0, p.k[0] = 1e-9, p.k[im] = 0;
    problem_forward(&p), problem_backward(&p);
    dq = p.dq, dk = p.dk, dd = p.ddelta;
    p.dq = check_zeros(p.nq), p.dk = check_zeros(p.nkk), p.ddelta = check_zeros(p.nd);
    p.q[4] = 0, p.k[0] = 0;
    problem_forward(&p), problem_backward(&p);
    CHECK(check_finite(p.dq, p.nq) && check_finite(p.dk, p.nkk) && check_finite(p.ddelta, p.nd));
    CHECK(fabs(p.dq[4]) > 1e-6 && fabs(p.dk[0]) > 1e-6 && fabs(p.dk[im]) > 1e-6);
    CHECK_THAT(check_distance(dq, p.dq, p.nq) < 1e-7, "zero pairs: dq is %.3g off the limit",
               check_distance(dq, p.dq, p.nq));
    CHECK_THAT(check_distance(dk, p.dk, p.nkk) < 1e-7, "zero pairs: dk is %.3g off the limit",
               check_distance(dk, p.dk, p.nkk));
    CHECK_THAT(check_distance(dd, p.ddelta, p.nd) < 1e-7, "zero pairs: ddelta is off the limit");
    free(dq), free(dk), free(dd);
    problem_close(&p);
}

/* All of q zero: scores are zero, gradients of k vanish, those of q do not */
static void zero_queries(void) {
    shape s = {1, 2, 1, 4, 4, 4, 4, CMHA_ATTENTION_CMHA, CMHA_LAYOUT_INTERLEAVED, CMHA_SHARE_PER_HEAD,
               1, 0, 0, 0, 0, 0, 1};
    problem p;
    problem_open(&p, &s);
    memset(p.q, 0, p.nq * sizeof *p.q);
    problem_forward(&p), problem_backward(&p);
    CHECK(check_finite(p.y, p.ny) && check_finite(p.dq, p.nq));
    CHECK(check_largest(p.dq, p.nq) > 1e-3 && check_largest(p.dk, p.nkk) == 0);
    CHECK_NEAR(p.lse[3], log(4), 1e-14);
    problem_close(&p);
}

int main(int argc, char **argv) {
    (void)argc;
    cmha_blas_restart(argv);
    sweep_small();
    sweep_large();
    single_tokens();
    partial_problems();
    zero_pair_limit(CMHA_LAYOUT_INTERLEAVED, 2, CMHA_SHARE_PER_HEAD);
    zero_pair_limit(CMHA_LAYOUT_HALF, 1, CMHA_SHARE_PER_HEAD);
    zero_pair_limit(CMHA_LAYOUT_INTERLEAVED, 1, CMHA_SHARE_SHARED);
    zero_queries();
    unwanted_gradients();
    return check_end();
}
