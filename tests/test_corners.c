/* Corners that readers of the code doubted: one tensor in several roles, scores of a program's own whose
   options mean nothing, keys that a group shares, sizes that nobody reads, the half of 0, no rows at all. */
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
        CHECK_THAT(!cmha_tape_backward(&tape, loss, 1), "%s", cmha_error(&context));
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

/* x W^T + bias where x is the weight or the bias as well: its gradient is the sum of both. */
static void map_of_itself(int as_weight, int is_complex) {
    enum { N = 4 };
    const size_t matrix[2] = {N, N}, weights[3] = {2, N / 2, N / 2};
    const int rank = as_weight ? 2 : 1;
    cmha_tape tape;
    cmha_real gradient[2][N * N];
    for (int apart = 0; apart < 2; apart++) { /* once more with copies, whose gradients are added here */
        CHECK_OK(cmha_tape_init(&tape, &context, 1));
        cmha_tensor *x = cmha_tensor_new(&tape, rank, matrix, 1);
        cmha_tensor *too = apart ? cmha_tensor_new(&tape, rank, matrix, 1) : x;
        cmha_tensor *w = is_complex ? cmha_tensor_new(&tape, 3, weights, 1)
                                    : cmha_tensor_new(&tape, 2, matrix, 1);
        if (!CHECK(x && too && w)) return;
        check_seed = 11;
        check_fill(x->data, x->size, 1), check_fill(w->data, w->size, 1);
        memcpy(too->data, x->data, x->size * sizeof *x->data);
        cmha_tensor *bias = as_weight ? NULL : too;
        cmha_tensor *y = is_complex ? cmha_complex_linear(&tape, x, w, bias)
                                    : cmha_linear(&tape, x, as_weight ? too : w, bias);
        cmha_tensor *loss = cmha_squared_error(&tape, y, y ? zeros : NULL);
        CHECK_THAT(!cmha_tape_backward(&tape, loss, 1), "%s", cmha_error(&context));
        for (size_t i = 0; i < x->size; i++) gradient[apart][i] = x->grad[i] + (apart ? too->grad[i] : 0);
        for (size_t i = 0; apart && i < x->size; i++)
            CHECK_NEAR(gradient[0][i], gradient[1][i], check_tolerance(1e-14, 1e-6));
        cmha_tape_close(&tape);
    }
}

/* The loss by logits x x^T of more rows than are held at a time. */
static void loss_of_itself(void) {
    enum { V = 2100, D = 3 };
    static cmha_real gradient[2][V * D];
    static int32_t targets[V];
    const size_t shape[2] = {V, D};
    for (int i = 0; i < V; i++) targets[i] = (int32_t)(i * 7 % V);
    for (int apart = 0; apart < 2; apart++) {
        cmha_tape tape;
        CHECK_OK(cmha_tape_init(&tape, &context, 1));
        cmha_tensor *x = cmha_tensor_new(&tape, 2, shape, 1);
        cmha_tensor *w = apart ? cmha_tensor_new(&tape, 2, shape, 1) : x;
        if (!CHECK(x && w)) return;
        check_seed = 13;
        check_fill(x->data, x->size, 1);
        memcpy(w->data, x->data, x->size * sizeof *x->data);
        cmha_tensor *loss = cmha_linear_cross_entropy(&tape, x, w, NULL, targets, -1, NULL);
        CHECK_THAT(!cmha_tape_backward(&tape, loss, 1), "%s", cmha_error(&context));
        for (size_t i = 0; i < x->size; i++) gradient[apart][i] = x->grad[i] + (apart ? w->grad[i] : 0);
        cmha_tape_close(&tape);
    }
    double largest = check_largest(gradient[1], V * D);
    CHECK(largest > 0);
    CHECK_NEAR(check_distance(gradient[0], gradient[1], V * D), 0, largest * check_tolerance(1e-12, 1e-4));
}

/* A packed matrix without rows, and the scale of weights that are all 0. */
static void nothing_packed(void) {
    const size_t rows[2] = {5, 4}, none[2] = {0, 4};
    cmha_packed packed;
    cmha_tape tape;
    memset(&packed, 0, sizeof packed);
    packed.storage = CMHA_STORAGE_INT8, packed.n_in = 4;
    CHECK_OK(cmha_tape_init(&tape, &context, 0));
    cmha_tensor *x = cmha_tensor_new(&tape, 2, rows, 0), *w = cmha_tensor_new(&tape, 2, none, 0);
    if (CHECK(x && w)) w->packed = &packed;
    cmha_tensor *y = cmha_linear(&tape, x, w, NULL);
    CHECK_THAT(y && y->size == 0, "%s", cmha_error(&context));
    cmha_tape_close(&tape);
    static const cmha_storage storages[] = {CMHA_STORAGE_INT4, CMHA_STORAGE_Q4_K};
    for (int k = 0; k < 2; k++) { /* of zeros no scale is 0.25, a half of 0x3400 */
        memset(&packed, 0, sizeof packed);
        packed.storage = storages[k], packed.n_out = 4, packed.n_in = 256;
        size_t n = cmha_packed_words(storages[k], 4, 256);
        packed.words = (uint32_t *)check_alloc(n, sizeof *packed.words);
        cmha_pack(&packed, zeros);
        for (size_t i = 0; i < n; i++)
            CHECK((packed.words[i] & 0xffff) != 0x3400 && packed.words[i] >> 16 != 0x3400);
        free(packed.words);
    }
}

/* A row of small numbers has a norm, in double too. */
static void norm_of_small_rows(void) {
    const double small = sizeof(cmha_real) == 8 ? 1e-40 : 1e-15;
    const cmha_real one = (cmha_real)small, x[4] = {one, 2 * one, -one, 3 * one};
    const cmha_norm_args args = {CMHA_NORM_RMS, 1, 4, 0};
    const cmha_real ones[4] = {1, 1, 1, 1};
    cmha_real y[4], stats[2];
    cmha_norm_forward(&args, x, ones, NULL, y, stats);
    for (int i = 0; i < 4; i++)
        CHECK_NEAR(y[i], (double)x[i] / small / sqrt(15.0 / 4), check_tolerance(1e-14, 1e-5));
}

/* One document is what every query finds: their weights change nothing, and have gradient 0 to the last
   bit. */
static void one_document(void) {
    enum { T = 5, M = 3, W = 4 };
    size_t shape[2] = {T, M * W}, weights = M;
    cmha_real gradient[M] = {0}, found[W], q[T * M * W], logits[M];
    cmha_retrieve_args args;
    cmha_knowledge base;
    cmha_tape tape;
    for (int round = 0; round < 20; round++) {
        check_fill(found, W, 1), check_fill(q, T * M * W, 1), check_fill(logits, M, 2);
        memset(&args, 0, sizeof args);
        args.queries = M, args.top = 1, args.tau = args.eps = 1, args.threshold = -1;
        CHECK_OK(cmha_knowledge_init(&base, &context, 1, W / 2, found, NULL, NULL, NULL));
        CHECK_OK(cmha_tape_init(&tape, &context, 1));
        cmha_tensor *learns = cmha_tensor_wrap(&tape, 1, &weights, logits, gradient);
        cmha_tensor *asked = cmha_tensor_wrap(&tape, 2, shape, q, NULL);
        cmha_tensor *y = cmha_retrieve(&tape, &base, &args, asked, learns, NULL);
        CHECK_OK(cmha_tape_backward(&tape, cmha_sum(&tape, y), 1));
        CHECK(gradient[0] == 0 && gradient[1] == 0 && gradient[2] == 0);
        cmha_tape_close(&tape), cmha_knowledge_close(&base);
    }
}

/* A map of rank 0 gives its bias, and writes nowhere else. */
static void map_of_no_rank(void) {
    enum { T = 300, D = 8 };
    size_t x_shape[2] = {T, 2 * D}, u_shape[3] = {2, D / 2, 0}, v_shape[3] = {2, D, 0};
    size_t bias_shape[2] = {2, D / 2};
    cmha_real *x = check_array(T * 2 * D, 1), *bias = check_array(D, 1), none[1];
    cmha_tape tape;
    CHECK_OK(cmha_tape_init(&tape, &context, 1));
    cmha_tensor *u = cmha_tensor_wrap(&tape, 3, u_shape, none, NULL);
    cmha_tensor *v = cmha_tensor_wrap(&tape, 3, v_shape, none, NULL);
    cmha_tensor *y = cmha_complex_lowrank(&tape, cmha_tensor_wrap(&tape, 2, x_shape, x, NULL), u, v,
                                          cmha_tensor_wrap(&tape, 2, bias_shape, bias, NULL));
    if (CHECK(y && y->size == T * D))
        for (size_t i = 0; i < T * D; i++) CHECK_NEAR(y->data[i], bias[i % D], 0);
    cmha_tape_close(&tape);
    free(x), free(bias);
}

/* Exchanging an axis with itself returns x, but not after a failure. */
static void axis_with_itself(void) {
    cmha_tape tape;
    CHECK_OK(cmha_tape_init(&tape, &context, 1));
    cmha_tensor *x = random_tensor(&tape, 2, 3, 4);
    CHECK(x && cmha_transpose(&tape, x, 1, 1) == x && !cmha_transpose(NULL, x, 1, 1));
    CHECK(!cmha_tape_fail(&tape, CMHA_ERR_STATE, "test: stopped") && !cmha_transpose(&tape, x, 1, 1));
    cmha_tape_close(&tape);
}

/* A tape of steps of a size takes memory in the first two alone. */
static void memory_of_steps(void) {
    enum { STEPS = 5 };
    check_heap heap;
    cmha_context own;
    cmha_context_config config = check_heap_config(&heap);
    cmha_tape tape;
    CHECK_OK(cmha_context_init(&own, &config));
    CHECK_OK(cmha_tape_init(&tape, &own, 1));
    for (int step = 0; step < STEPS; step++) {
        size_t before = heap.calls;
        cmha_tensor *x = random_tensor(&tape, 64, 30, 10);
        for (int i = 0; i < 6; i++) x = cmha_scale(&tape, x, 1);
        CHECK_OK(cmha_tape_backward(&tape, cmha_sum(&tape, x), 1));
        CHECK(step < 2 || heap.calls == before);
        cmha_tape_reset(&tape);
    }
    cmha_tape_close(&tape);
    cmha_context_close(&own);
}

/* What a later or masked key's value or score overflows to reaches no gradient. */
static void huge_beyond_a_mask(int masked, double cap) {
    enum { N = 3, D = 2 };
    const double large = sizeof(cmha_real) == 8 ? 1e160 : 1e20, most = sizeof(cmha_real) == 8 ? 1e308 : 3e38;
    const unsigned char mask[N] = {1, 1, 0};
    size_t shape[3] = {1, N, D};
    cmha_attention_args args;
    cmha_tape tape;
    cmha_real q[N * D], k[N * D], v[N * D], w[N * D] = {1, 2, -1, 1, 0, 0}, dq[N * D] = {0}, dk[N * D] = {0};
    check_fill(q, N * D, 1), check_fill(k, N * D, 1), check_fill(v, N * D, 1);
    if (cap > 0) q[0] = q[1] = k[4] = (cmha_real)large, k[5] = (cmha_real)-large;
    if (cap > 0) k[0] = k[1] = 0;
    else v[4] = v[5] = (cmha_real)most;
    memset(&args, 0, sizeof args);
    args.heads = args.kv_heads = 1, args.scale = 1, args.causal = !masked, args.kind = CMHA_ATTENTION_DOT;
    args.softcap = (cmha_real)cap, args.key_mask = masked ? mask : NULL;
    CHECK_OK(cmha_tape_init(&tape, &context, 1));
    cmha_tensor *y = cmha_attention(&tape, &args, cmha_tensor_wrap(&tape, 3, shape, q, dq),
                                    cmha_tensor_wrap(&tape, 3, shape, k, dk),
                                    cmha_tensor_wrap(&tape, 3, shape, v, NULL), NULL);
    cmha_tensor *weighed = cmha_mul(&tape, y, cmha_tensor_wrap(&tape, 3, shape, w, NULL));
    CHECK_OK(cmha_tape_backward(&tape, cmha_sum(&tape, weighed), 1));
    CHECK(check_finite(dq, 2 * D) && check_finite(dk, N * D) && dk[4] == 0 && dk[5] == 0);
    cmha_tape_close(&tape);
}

/* The dry run of a loss by a packed matrix promises what the real one takes. */
static void promise_of_a_packed_head(void) {
    enum { T = 65, V = 16, I = 300 };
    size_t shape[2] = {T, I}, peak[2];
    cmha_real *x = check_array(T * I, 1), *w = check_array(V * I, 1), scales[V];
    int32_t targets[T] = {0};
    cmha_packed packed;
    cmha_tensor weight;
    memset(&packed, 0, sizeof packed), memset(&weight, 0, sizeof weight);
    packed.storage = CMHA_STORAGE_INT8, packed.n_out = V, packed.n_in = I, packed.scales = scales;
    packed.words = (uint32_t *)check_alloc(cmha_packed_words(packed.storage, V, I), sizeof *packed.words);
    cmha_pack(&packed, w);
    weight.rank = 2, weight.shape[0] = V, weight.shape[1] = I, weight.size = V * I, weight.packed = &packed;
    for (int dry = 0; dry < 2; dry++) {
        cmha_tape tape;
        CHECK_OK(cmha_tape_init(&tape, &context, 0));
        tape.memory.measuring = dry;
        cmha_tensor *rows = cmha_tensor_wrap(&tape, 2, shape, x, NULL);
        CHECK(cmha_linear_cross_entropy(&tape, rows, &weight, NULL, targets, -1, NULL));
        peak[dry] = tape.memory.peak;
        cmha_tape_close(&tape);
    }
    CHECK_THAT(peak[0] == peak[1], "%zu, dry %zu", peak[0], peak[1]);
    free(x), free(w), free(packed.words);
}

/* A loss that is a leaf has a gradient of its own, to which the pass adds; a record may have no name. */
static void loss_that_has_a_gradient(void) {
    size_t one = 1;
    cmha_real x = 3, gradient = 5;
    cmha_packed packed;
    cmha_tape tape;
    CHECK_OK(cmha_tape_init(&tape, &context, 1));
    cmha_tensor *leaf = cmha_tensor_wrap(&tape, 1, &one, &x, &gradient);
    CHECK_OK(cmha_tape_backward(&tape, leaf, 1));
    CHECK_NEAR(gradient, 6, 0);
    memset(&packed, 0, sizeof packed);
    leaf->packed = &packed;
    CHECK(!cmha_tape_push(&tape, NULL, leaf, &leaf, 1, NULL, NULL) && tape.status == CMHA_ERR_STATE);
    cmha_tape_close(&tape);
}

int main(void) {
    CHECK_OK(cmha_context_init(&context, NULL));
    one_tensor_in_three_roles(), softmax_of_an_own_score(), keys_of_a_group(), pcl_without_delta();
    phase_of_nan(), map_of_itself(1, 0), map_of_itself(0, 0), map_of_itself(0, 1), loss_of_itself();
    nothing_packed(), norm_of_small_rows(), one_document(), map_of_no_rank();
    axis_with_itself(), memory_of_steps();
    huge_beyond_a_mask(0, 0), huge_beyond_a_mask(1, 0), huge_beyond_a_mask(0, 5), huge_beyond_a_mask(1, 5);
    promise_of_a_packed_head(), loss_that_has_a_gradient();
    cmha_context_close(&context);
    return check_end();
}
