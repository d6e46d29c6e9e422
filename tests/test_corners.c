/* Corners of attention that a reader of the code doubted: one tensor in several roles by several threads, scores
   of a program's own whose options mean nothing, keys that a group shares, sizes that nobody reads. */
#include "check.h"

enum { MOST = 350 * 24 };
static cmha_context context;
static const cmha_real zeros[MOST];

static cmha_tensor *random_tensor(cmha_tape *tape, size_t B, size_t N, size_t D) {
    const size_t shape[3] = {B, N, D};
    cmha_tensor *t = cmha_tensor_new(tape, 3, shape, 1);
    if (!t) return NULL;
    check_seed = 7;
    check_fill(t->data, t->size, 1);
    return t;
}

/* The gradient of x by an attention whose queries, keys and values it is. */
static void of_itself(int linear, int threads, cmha_real *gradient) {
    enum { H = 4, D = 3, N = 350 };
    cmha_attention_args args;
    cmha_linear_attention_args kernel;
    cmha_tape tape;
    memset(&args, 0, sizeof args), memset(&kernel, 0, sizeof kernel);
    args.heads = args.kv_heads = kernel.heads = H, args.kind = CMHA_ATTENTION_COMPLEX, args.scale = 1;
    args.softmax = CMHA_SOFTMAX_REAL, args.causal = kernel.causal = 1, kernel.kind = CMHA_LINEAR_COPE;
    context.threads = threads;
    CHECK_OK(cmha_tape_init(&tape, &context, 1));
    cmha_tensor *x = random_tensor(&tape, 1, N, 2 * H * D);
    cmha_tensor *y = linear ? cmha_linear_attention(&tape, &kernel, x, x, x)
                            : cmha_attention(&tape, &args, x, x, x, NULL);
    cmha_tensor *loss = cmha_squared_error(&tape, y, y ? zeros : NULL);
    CHECK_THAT(!cmha_tape_backward(&tape, loss, 1000), "%s", cmha_error(&context));
    for (size_t i = 0; x && i < x->size; i++) gradient[i] = x->grad ? x->grad[i] : 0;
    cmha_tape_close(&tape);
    context.threads = 1;
}

static void one_tensor_in_three_roles(void) {
    static cmha_real one[MOST], several[MOST];
    for (int linear = 0; linear < 2; linear++)
        for (int turn = 0; turn < 4; turn++) {
            memset(one, 0, sizeof one), memset(several, 0, sizeof several);
            of_itself(linear, 1, one), of_itself(linear, 4, several);
            CHECK_THAT(!memcmp(one, several, sizeof one), "linear %d: threads change gradients", linear);
            CHECK(check_largest(one, MOST) > 0);
        }
}

static void score_of_re(const cmha_score_call *call, const cmha_real *re, const cmha_real *im, cmha_real *s) {
    (void)im;
    for (int i = 0; i < 64; i++) s[i] = call->args->scale * re[i];
}

/* A function of O gives one real score, whatever the softmax of complex ones is set to. */
static void own_score(cmha_softmax_kind softmax, int own, cmha_real *y) {
    enum { N = 5, D = 4 };
    cmha_score row;
    cmha_attention_args args;
    cmha_attention_views views;
    cmha_real q[2 * N * D], k[2 * N * D], v[N * D];
    cmha_lse lse[N];
    memset(&row, 0, sizeof row), memset(&args, 0, sizeof args), memset(&views, 0, sizeof views);
    row.name = "re", row.planes = 2, row.forward = score_of_re;
    args.batch = args.heads = args.kv_heads = 1, args.n_q = args.n_k = N, args.d_k = args.d_v = D;
    args.scale = 1, args.causal = 1, args.softmax = softmax, args.kind = CMHA_ATTENTION_COMPLEX;
    if (own) args.score = &row;
    check_seed = 3;
    check_fill(q, 2 * N * D, 1), check_fill(k, 2 * N * D, 1), check_fill(v, N * D, 1);
    views.q = cmha_heads_by_head(q, 1, N, D, 1), views.k = cmha_heads_by_head(k, 1, N, D, 1);
    views.v = cmha_heads_by_head(v, 1, N, D, 0), views.y = cmha_heads_by_head(y, 1, N, D, 0);
    cmha_real *scratch = check_zeros(cmha_attention_scratch(&args, 0));
    cmha_attention_forward(&args, &views, lse, scratch);
    free(scratch);
}

static void softmax_of_an_own_score(void) {
    cmha_real want[20], y[20];
    own_score(CMHA_SOFTMAX_REAL, 0, want);
    for (int softmax = 0; softmax < CMHA_SOFTMAX_COUNT; softmax++) {
        own_score((cmha_softmax_kind)softmax, 1, y);
        for (int i = 0; i < 20; i++) CHECK_NEAR(y[i], want[i], check_tolerance(1e-14, 1e-6));
    }
}

/* Keys times 1 + the number of the head for which they are mapped. */
static cmha_real head_factor(const cmha_score_call *call) {
    return call->is_key ? 1 + (cmha_real)call->head : 1;
}
static void by_head(const cmha_score_call *call, cmha_rows x, size_t n, cmha_real *y) {
    for (size_t i = 0; i < n * 2; i++) y[i] = head_factor(call) * x.data[i / 2 * x.ld + i % 2];
}
static void by_head_back(const cmha_score_call *call, cmha_rows x, size_t n, const cmha_real *dy,
                         cmha_rows dx) {
    (void)x;
    for (size_t i = 0; dx.data && i < n * 2; i++)
        dx.data[i / 2 * dx.ld + i % 2] += head_factor(call) * dy[i];
}

/* The gradient of keys that two heads share is that of their features, which the first head has made. */
static void keys_of_a_group(void) {
    enum { H = 4, KV = 2, N = 3, D = 2, NQ = H * N * D, NK = KV * N * D };
    cmha_score row;
    cmha_attention_args args;
    cmha_attention_views views;
    cmha_real x[8][NQ], before;
    cmha_lse lse[H * N];
    const double step = sizeof(cmha_real) == 8 ? 1e-5 : 1e-2;
    memset(&row, 0, sizeof row), memset(&args, 0, sizeof args), memset(&views, 0, sizeof views);
    memset(x, 0, sizeof x);
    row.name = "by-head", row.planes = 1, row.shared_keys = 1, row.map = by_head, row.map_back = by_head_back;
    args.batch = 1, args.heads = H, args.kv_heads = KV, args.n_q = args.n_k = N, args.d_k = args.d_v = D;
    args.scale = 1, args.score = &row;
    check_seed = 5;
    for (int i = 0; i < 5; i++)
        if (i != 3) check_fill(x[i], NQ, 1);
    cmha_heads *const of[8] = {&views.q, &views.k, &views.v, &views.y, &views.dy, &views.dq, &views.dk,
                               &views.dv};
    for (int i = 0; i < 8; i++) {
        int is_key = i == 1 || i == 2 || i > 5;
        *of[i] = cmha_heads_by_head(x[i], is_key ? KV : H, N, D, 0);
    }
    size_t need = cmha_attention_scratch(&args, 0), more = cmha_attention_scratch(&args, 1);
    cmha_real *scratch = check_zeros(need > more ? need : more);
    cmha_attention_forward(&args, &views, lse, scratch);
    cmha_attention_backward(&args, &views, lse, NULL, NULL, scratch);
    for (int i = 0; i < NK; i++) {
        double sum[2] = {0, 0};
        before = x[1][i];
        for (int side = 0; side < 2; side++) {
            x[1][i] = before + (cmha_real)(side ? step : -step);
            cmha_attention_forward(&args, &views, lse, scratch);
            for (int j = 0; j < NQ; j++) sum[side] += (double)(x[3][j] * x[4][j]);
        }
        x[1][i] = before;
        CHECK_NEAR(x[6][i], (sum[1] - sum[0]) / (2 * step), check_tolerance(1e-8, 2e-3));
    }
    free(scratch);
}

/* delta and b of a size that the kind does not read get no gradient, and nothing beyond them. */
static void pcl_without_delta(void) {
    static const cmha_attention_kind kinds[] = {CMHA_ATTENTION_ROPE, CMHA_ATTENTION_DOT, CMHA_ATTENTION_CMHA};
    for (int i = 0; i < 3; i++) {
        enum { P = 4 };
        const size_t few[1] = {1}, pairs[1] = {P};
        cmha_attention_args args;
        cmha_pcl_options options = {1, 0, 0};
        cmha_tape tape;
        memset(&args, 0, sizeof args);
        args.heads = args.kv_heads = 2, args.kind = kinds[i], args.share = CMHA_SHARE_FIXED;
        CHECK_OK(cmha_tape_init(&tape, &context, 1));
        cmha_tensor *qkv = random_tensor(&tape, 2, 5, 6 * 2 * P);
        cmha_tensor *delta = cmha_tensor_new(&tape, 1, few, 1), *b = cmha_tensor_new(&tape, 1, few, 1);
        cmha_tensor *guard = cmha_tensor_new(&tape, 1, pairs, 0), *w = cmha_tensor_new(&tape, 1, pairs, 1);
        for (int j = 0; w && j < P; j++) w->data[j] = 1;
        if (delta && b) delta->data[0] = b->data[0] = 1;
        cmha_tensor *loss = cmha_pcl(&tape, &args, qkv, delta, b, w, &options);
        if (CHECK_THAT(loss != NULL, "%s", cmha_error(&context))) CHECK_OK(cmha_tape_backward(&tape, loss, 1));
        if (delta && delta->grad) CHECK_NEAR(delta->grad[0], 0, 0);
        for (int j = 0; guard && j < P; j++) CHECK_NEAR(guard->data[j], 0, 0);
        cmha_tape_close(&tape);
    }
}

/* A phase of NaN is NaN, where the vector code works it out too. */
static void phase_of_nan(void) {
    enum { P = 33 };
    cmha_real x[2 * P], modulus[P], phase[P];
    const cmha_euler_args args = {1, P, CMHA_LAYOUT_INTERLEAVED};
    for (int i = 0; i < P; i++) {
        x[2 * i] = i % 3 == 0 ? (cmha_real)NAN : (cmha_real)0.5;
        x[2 * i + 1] = i % 3 == 1 ? (cmha_real)NAN : (cmha_real)0.5;
    }
    cmha_euler_forward(&args, x, modulus, phase);
    for (int i = 0; i < P; i++) CHECK((phase[i] != phase[i]) == (i % 3 != 2));
}

int main(void) {
    CHECK_OK(cmha_context_init(&context, NULL));
    one_tensor_in_three_roles(), softmax_of_an_own_score(), keys_of_a_group(), pcl_without_delta();
    phase_of_nan();
    cmha_context_close(&context);
    return check_end();
}
