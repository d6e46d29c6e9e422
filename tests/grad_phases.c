/* Gradients of the attention of complex queries and keys: every form of it with every option that changes its
   path, at sizes around the tile of 64, as a kernel and on a tape. */
#ifndef CMHA_DOUBLE
#define CMHA_DOUBLE
#endif
#include "grad.h"
#include "oracle_phases.h"

static cmha_context context;

static double problem_loss(void *user) {
    phase_problem *p = (phase_problem *)user;
    phase_forward(p);
    return grad_dot(p->y, p->dy, p->ny) + (p->several ? 0 : grad_dot(p->lse, p->dlse, p->nl));
}

/* A single key takes all the weight: then only lse tells of q and k, and forms of several softmaxes have
   none */
static int scores_matter(const phase_problem *p) {
    return !p->several || (p->args.n_k > 1 && !(p->args.causal && p->args.window == 1));
}

static void problem_check(phase_problem *p, const char *label, size_t samples) {
    grad_input in[4];
    int n = 0;
    phase_forward(p);
    phase_backward(p, p->dq, p->dk, p->dv);
    in[n].name = "v", in[n].x = p->v, in[n].grad = p->dv, in[n++].n = p->nv;
    if (scores_matter(p)) {
        in[n].name = "q", in[n].x = p->q, in[n].grad = p->dq, in[n++].n = p->nq;
        in[n].name = "k", in[n].x = p->k, in[n].grad = p->dk, in[n++].n = p->nkk;
        if (p->args.temperature)
            in[n].name = "log_temp", in[n].x = p->log_temp, in[n].grad = p->dlog_temp,
            in[n++].n = p->args.heads;
    } else {
        CHECK_THAT(check_largest(p->dq, p->nq) < 1e-12 && check_largest(p->dk, p->nkk) < 1e-12,
                   "%s: a score without effect", label);
    }
    grad_check(label, problem_loss, p, in, n, samples);
}

/* A second pass doubles the gradients, and each alone is the one among all */
static void problem_accumulates(phase_problem *p, const char *label) {
    cmha_real *sum[3], *once[3], *only[3];
    size_t n[3], j;
    int i, k;
    sum[0] = p->dq, sum[1] = p->dk, sum[2] = p->dv;
    n[0] = p->nq, n[1] = p->nkk, n[2] = p->nv;
    for (i = 0; i < 3; i++) once[i] = check_zeros(n[i]), memcpy(once[i], sum[i], n[i] * sizeof(cmha_real));
    phase_forward(p);
    phase_backward(p, p->dq, p->dk, p->dv);
    for (i = 0; i < 3; i++) {
        double bound = 1e-12 * (1 + check_largest(once[i], n[i]));
        for (k = 0; k < 3; k++) only[k] = k == i ? check_zeros(n[i]) : NULL;
        phase_backward(p, only[0], only[1], only[2]);
        CHECK_THAT(check_distance(only[i], once[i], n[i]) <= bound,
                   "%s: the gradient of input %d alone is another", label, i);
        for (j = 0; j < n[i]; j++) only[i][j] *= 2;
        CHECK_THAT(check_distance(only[i], sum[i], n[i]) <= 2 * bound, "%s: input %d does not accumulate",
                   label, i);
        free(only[i]);
    }
    phase_backward(p, NULL, NULL, NULL);
    for (i = 0; i < 3; i++) free(once[i]);
}

/* Every other problem has temperatures */
static void run(const phase_form *f, const phase_shape *s, size_t samples) {
    static int runs;
    phase_problem p;
    char label[160];
    phase_label(f, s, label, sizeof label);
    phase_open(&p, f, s);
    if (runs++ % 2) phase_heat(&p);
    problem_check(&p, label, samples);
    problem_accumulates(&p, label);
    phase_close(&p);
}

/* Small problems: every form meets every view, the groupings and layouts in turn */
static void sweep_small(void) {
    static const phase_shape views[] = {
        /* B  H Hkv n_q n_k d_k d_v tokens causal mask alibi window dropout threads */
        {2, 4, 4, 5, 5, 3, 3, 0, 0, 0, 0, 0, 0, 1},   {2, 4, 2, 5, 5, 3, 4, 1, 1, 0, 0, 0, 0, 2},
        {2, 4, 2, 4, 7, 3, 2, 0, 1, 1, 0, 0, 0, 1},   {1, 4, 1, 5, 5, 2, 1, 1, 1, 0, 0, 3, 0, 1},
        {2, 4, 2, 6, 5, 4, 3, 1, 0, 2, 1, 0, 0, 2},   {1, 2, 2, 5, 5, 3, 5, 0, 0, 0, 0, 0, 0.4, 1},
        {2, 4, 2, 5, 6, 3, 3, 0, 1, 2, 1, 3, 0.3, 2}, {2, 2, 1, 7, 4, 3, 3, 1, 1, 0, 0, 0, 0, 1},
    };
    size_t i, v;
    for (i = 0; i < PHASE_FORMS; i++)
        for (v = 0; v < sizeof views / sizeof *views; v++)
            if (!check_quick() || (i + v) % 5 == 0) run(&phase_forms[i], &views[v], 5);
}

/* One token, one query with many keys, one key: the edges of a tile */
static void sweep_single(void) {
    static const phase_shape shapes[] = {
        {2, 2, 2, 1, 1, 3, 2, 0, 0, 0, 0, 0, 0, 1},
        {2, 4, 2, 5, 1, 1, 1, 1, 0, 0, 0, 0, 0, 1},
        {1, 2, 1, 1, 65, 2, 3, 0, 1, 1, 0, 0, 0, 1},
    };
    size_t i, s;
    for (i = 0; i < PHASE_FORMS; i++)
        for (s = 0; s < 3; s++)
            if (!check_quick() || (i + s) % 4 == 0) run(&phase_forms[i], &shapes[s], 6);
}

/* Around the tile. Every form meets some of these, and each of these every path of the code */
static void sweep_large(void) {
    static const phase_shape shapes[] = {
        /* B  H Hkv n_q n_k d_k d_v tokens causal mask alibi window dropout threads */
        {1, 2, 1, 64, 64, 3, 2, 0, 0, 0, 0, 0, 0, 1},   {1, 2, 2, 65, 65, 3, 3, 1, 1, 0, 0, 0, 0, 2},
        {1, 4, 2, 70, 70, 2, 3, 1, 1, 1, 0, 20, 0, 2},  {2, 2, 1, 65, 70, 2, 1, 0, 0, 2, 1, 0, 0.2, 2},
        {1, 2, 1, 5, 130, 3, 3, 1, 1, 1, 0, 0, 0.3, 1}, {1, 1, 1, 130, 130, 2, 2, 0, 1, 0, 1, 66, 0, 1},
        {1, 1, 1, 130, 65, 2, 2, 1, 1, 1, 0, 0, 0, 1},  {1, 1, 1, 70, 5, 3, 2, 0, 0, 1, 0, 0, 0, 1},
        {1, 1, 1, 64, 130, 2, 66, 0, 0, 0, 0, 0, 0, 1}, {1, 2, 2, 65, 130, 70, 3, 1, 1, 0, 0, 65, 0.1, 2},
    };
    size_t count = sizeof shapes / sizeof *shapes, i, s;
    for (i = 0; i < PHASE_FORMS; i++)
        for (s = 0; s < count; s++) {
            if ((i + s) % 3 && phase_forms[i].norm_max == CMHA_NORM_MAX_NONE) continue;
            if (check_quick() && (i + s) % 11) continue;
            run(&phase_forms[i], &shapes[s], 3);
        }
}

/* Without values: what is left is lse */
static void without_values(void) {
    static const char *const names[] = {"real", "cope hybrid", "cope hybrid_norm head",
                                        "angular, real values", "angular score"};
    phase_shape s = {2, 2, 1, 6, 66, 3, 0, 0, 1, 1, 0, 0, 0, 1};
    grad_input in[3];
    phase_problem p;
    size_t i;
    for (i = 0; i < 5; i++) {
        phase_open(&p, phase_find(names[i]), &s), phase_heat(&p);
        phase_forward(&p);
        phase_backward(&p, p.dq, p.dk, NULL);
        in[0].name = "q", in[0].x = p.q, in[0].grad = p.dq, in[0].n = p.nq;
        in[1].name = "k", in[1].x = p.k, in[1].grad = p.dk, in[1].n = p.nkk;
        in[2].name = "log_temp", in[2].x = p.log_temp, in[2].grad = p.dlog_temp, in[2].n = 2;
        grad_check(names[i], problem_loss, &p, in, 3, 10);
        phase_close(&p);
    }
}

/* A constant maximum is one whose gradient goes nowhere: differences that hold the divisors say the same */
static double held_loss(void *user) {
    phase_problem *p = (phase_problem *)user, still = *p;
    phase_oracle o;
    double loss = 0;
    size_t i;
    still.args.norm_max = CMHA_NORM_MAX_NONE; /* magnitude is already divided */
    phase_oracle_run(&still, &o);
    for (i = 0; i < p->ny; i++) loss += o.y[i] * p->dy[i];
    for (i = 0; i < p->nl; i++) loss += o.lse[i] * p->dlse[i];
    phase_oracle_close(&o);
    return loss;
}

static void constant_maximum(void) {
    phase_shape s = {2, 2, 1, 5, 6, 3, 3, 0, 0, 1, 0, 0, 0, 1};
    grad_input in[3];
    phase_problem p;
    phase_oracle o;
    cmha_real magnitude;
    phase_open(&p, phase_find("cope hybrid_norm global"), &s); /* one divisor for all rows */
    p.args.norm_max_grad = 0;
    phase_forward(&p);
    phase_backward(&p, p.dq, p.dk, p.dv);
    phase_oracle_run(&p, &o);
    magnitude = p.args.magnitude;
    p.args.magnitude /= (cmha_real)o.divisor[0];
    in[0].name = "q", in[0].x = p.q, in[0].grad = p.dq, in[0].n = p.nq;
    in[1].name = "k", in[1].x = p.k, in[1].grad = p.dk, in[1].n = p.nkk;
    in[2].name = "v", in[2].x = p.v, in[2].grad = p.dv, in[2].n = p.nv;
    grad_check("a constant maximum", held_loss, &p, in, 3, 20);
    p.args.magnitude = magnitude;
    phase_oracle_close(&o);
    phase_close(&p);
}

/* ---------------------------------------------- on a tape ----------------------------------------------- */

typedef struct trial {
    const phase_form *form;
    int fused, n_in, causal;
    double dropout;
    cmha_tape tape;
    cmha_real *x[3], *dx[3], *cot;
    size_t shape[3][3], n[3];
    size_t H, Hkv;
} trial;

static cmha_tensor *trial_forward(trial *t) {
    cmha_tensor *in[3] = {0};
    cmha_attention_args a;
    int i;
    memset(&a, 0, sizeof a);
    a.d_k = 3, a.heads = t->H, a.kv_heads = t->Hkv, a.causal = t->causal, a.dropout = t->dropout;
    phase_args(&a, t->form);
    cmha_tape_reset(&t->tape);
    t->tape.key = 77, t->tape.draws = 0; /* the same dropout every time */
    for (i = 0; i < t->n_in; i++) in[i] = cmha_tensor_wrap(&t->tape, 3, t->shape[i], t->x[i], t->dx[i]);
    return cmha_attention(&t->tape, &a, in[0], in[1], in[2], NULL);
}

static double trial_loss(void *user) {
    trial *t = (trial *)user;
    cmha_tensor *y = trial_forward(t);
    return y ? grad_dot(y->data, t->cot, y->size) : HUGE_VAL;
}

static void trial_run(trial *t) {
    static const char *const names[3] = {"q", "k", "v"};
    char label[96];
    grad_input in[3];
    cmha_tensor *y, *loss, *cot;
    int i;
    CHECK_OK(cmha_tape_init(&t->tape, &context, 1));
    for (i = 0; i < t->n_in; i++) {
        t->n[i] = t->shape[i][0] * t->shape[i][1] * t->shape[i][2];
        t->x[i] = check_array(t->n[i], 1.3), t->dx[i] = check_zeros(t->n[i]);
        phase_off_zero(t->x[i], t->n[i]);
        in[i].name = t->fused ? "qkv" : names[i], in[i].x = t->x[i], in[i].grad = t->dx[i], in[i].n = t->n[i];
    }
    snprintf(label, sizeof label, "tape %s%s n %zu", t->form->name, t->fused ? " fused" : "", t->shape[0][1]);
    y = trial_forward(t);
    CHECK_THAT(y != NULL, "%s: %s", label, cmha_error(&context));
    if (!y) return;
    t->cot = check_array(y->size, 1);
    cot = cmha_tensor_wrap(&t->tape, y->rank, y->shape, t->cot, NULL);
    loss = cmha_sum(&t->tape, cmha_mul(&t->tape, y, cot));
    CHECK_OK(cmha_tape_backward(&t->tape, loss, 1));
    grad_check(label, trial_loss, t, in, t->n_in, 12);
    for (i = 0; i < t->n_in; i++) free(t->x[i]), free(t->dx[i]);
    free(t->cot);
    cmha_tape_close(&t->tape);
}

static void check_tape(const phase_form *form, int fused, size_t n, double dropout) {
    trial t;
    size_t v = form->complex_v ? 2 : 1;
    memset(&t, 0, sizeof t);
    t.form = form, t.fused = fused, t.n_in = fused ? 1 : 3, t.H = 4, t.Hkv = 2, t.causal = n % 2 == 0,
    t.dropout = dropout;
    t.shape[0][0] = t.shape[1][0] = t.shape[2][0] = 2;
    t.shape[0][1] = n, t.shape[1][1] = t.shape[2][1] = n + 2;
    t.shape[0][2] = fused ? 2 * (4 + 2 * 2) * 3 : 2 * 4 * 3, t.shape[1][2] = 2 * 2 * 3,
    t.shape[2][2] = v * 2 * 5;
    trial_run(&t);
}

/* One clear line for what does not go together */
static void refused(const char *say, cmha_status status, const char *form, size_t width, size_t v_width) {
    cmha_attention_args a;
    cmha_tape tape;
    cmha_tensor *q, *k = NULL, *v = NULL;
    size_t dims[3] = {2, 3, 0};
    memset(&a, 0, sizeof a);
    a.d_k = 3, a.heads = a.kv_heads = 2;
    phase_args(&a, phase_find(form));
    if (!strcmp(say, "needs complex_v")) a.complex_v = 0;
    if (!strcmp(say, "not for phasors")) a.norm_max = CMHA_NORM_MAX_ROW;
    CHECK_OK(cmha_tape_init(&tape, &context, 1));
    dims[2] = width, q = cmha_tensor_new(&tape, 3, dims, 1);
    if (v_width)
        k = cmha_tensor_new(&tape, 3, dims, 1), dims[2] = v_width, v = cmha_tensor_new(&tape, 3, dims, 1);
    CHECK_THAT(cmha_attention(&tape, &a, q, k, v, NULL) == NULL, "%s was not refused", say);
    CHECK_IS(cmha_tape_status(&tape), status);
    CHECK_THAT(strstr(cmha_error(&context), say) && !strchr(cmha_error(&context), '\n'), "%s: said \"%s\"",
               say, cmha_error(&context));
    cmha_tape_close(&tape);
}

static void check_refusals(void) {
    refused("needs complex_v", CMHA_ERR_ARGUMENT, "ri_product", 12, 6);
    refused("needs complex_v", CMHA_ERR_ARGUMENT, "ri_split", 12, 6);
    refused("needs complex_v", CMHA_ERR_ARGUMENT, "yang8", 12, 6);
    refused("needs complex_v", CMHA_ERR_ARGUMENT, "angular ri_product", 12, 6);
    refused("not for phasors", CMHA_ERR_ARGUMENT, "angular score", 12, 12);
    refused("cannot be fused", CMHA_ERR_SHAPE, "cope hybrid", 36, 0);
    refused("cannot be fused", CMHA_ERR_SHAPE, "angular, real values", 36, 0);
    refused("D divisible by 12", CMHA_ERR_SHAPE, "real", 30, 0);
    refused("D divisible by 4", CMHA_ERR_SHAPE, "real", 10, 12);
    refused("v [2, 3, 7] [.., N, 4 d]", CMHA_ERR_SHAPE, "real", 12, 6 + 1);
}

int main(int argc, char **argv) {
    size_t i;
    (void)argc;
    cmha_blas_restart(argv);
    check_context(&context, 2, 1);
    sweep_small();
    sweep_single();
    sweep_large();
    without_values();
    constant_maximum();
    for (i = 0; i < PHASE_FORMS; i++) {
        if (check_quick() && i % 4) continue;
        check_tape(&phase_forms[i], 0, i % 3 == 0 ? 65 : 4 + i % 2, i % 2 ? 0.3 : 0);
        if (phase_forms[i].complex_v)
            check_tape(&phase_forms[i], 1, i % 3 == 1 ? 66 : 4 + i % 2, i % 2 ? 0 : 0.3);
    }
    check_refusals();
    cmha_context_close(&context);
    return check_end();
}
