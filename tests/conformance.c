/* conformance [--strict] FILE|DIR...: runs cases in the format of FORMAT.md. One line a case:

       PASS|FAIL|SKIP  name  worst error as a fraction of the tolerance, and the tensor it belongs to

   An op is one function and one row of the table at the end. Inputs reach the library as cmha_real;
   the expected values are read as doubles from the file, so that a float build is judged by the
   reference and not by its rounding. */
#define _POSIX_C_SOURCE 200809L
#define _DARWIN_C_SOURCE
#include "check.h"
#include "system.h"

#include <dirent.h>
#include <setjmp.h>

enum { MAX_POOL = 4096, MAX_TENSORS = 1024 };

typedef struct kase {
    cmha_context *context;
    cmha_archive file;
    const char *path;
    cmha_model model;
    void *pool[MAX_POOL]; /* freed when the case ends, however it ends */
    size_t n_pool;
    char compared[MAX_TENSORS];
    double rtol, atol, worst;
    char worst_name[128], reason[256];
    jmp_buf out;
} kase;

enum { CASE_FAIL = 1, CASE_SKIP = 2 };

#if defined(__MINGW32__)
__attribute__((noreturn, format(gnu_printf, 3, 4)))
#elif defined(__GNUC__)
__attribute__((noreturn, format(printf, 3, 4)))
#endif
static void
leave(kase *k, int how, const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(k->reason, sizeof k->reason, format, list);
    va_end(list);
    longjmp(k->out, how);
}

/* -------------------------------------------- reading a case -------------------------------------------- */

static void *take(kase *k, size_t count, size_t size) {
    if (k->n_pool == MAX_POOL) leave(k, CASE_FAIL, "the case needs too many arrays");
    return k->pool[k->n_pool++] = check_alloc(count, size);
}

static cmha_real *zeros(kase *k, size_t n) { return (cmha_real *)take(k, n, sizeof(cmha_real)); }

static const cmha_archive_tensor *find(kase *k, const char *name) {
    return cmha_archive_find(&k->file, name);
}

static const cmha_archive_tensor *need(kase *k, const char *name) {
    const cmha_archive_tensor *t = find(k, name);
    if (!t) leave(k, CASE_FAIL, "malformed: no tensor %s", name);
    return t;
}

/* Size of axis i; negative i counts from the end */
static size_t axis(kase *k, const char *name, int i) {
    const cmha_archive_tensor *t = need(k, name);
    if (i < 0) i += t->rank;
    if (i < 0 || i >= t->rank) leave(k, CASE_FAIL, "malformed: %s has rank %d", name, t->rank);
    return t->shape[i];
}

static const cmha_archive_tensor *sized(kase *k, const char *name, size_t count, const char *dtype) {
    const cmha_archive_tensor *t = need(k, name);
    if (t->count != count)
        leave(k, CASE_FAIL, "malformed: %s has %zu elements, expected %zu", name, t->count, count);
    if (strcmp(t->dtype, dtype))
        leave(k, CASE_FAIL, "malformed: %s is %s, expected %s", name, t->dtype, dtype);
    return t;
}

static cmha_real *reals(kase *k, const char *name, size_t count) {
    cmha_real *x = zeros(k, count);
    if (cmha_archive_read(&k->file, sized(k, name, count, "F64"), x))
        leave(k, CASE_FAIL, "%s", cmha_error(k->context));
    return x;
}

static int64_t *integers(kase *k, const char *name, size_t count) {
    int64_t *x = (int64_t *)take(k, count, sizeof *x);
    if (cmha_archive_read_i64(&k->file, sized(k, name, count, "I64"), x))
        leave(k, CASE_FAIL, "%s", cmha_error(k->context));
    return x;
}

static int32_t *tokens(kase *k, const char *name, size_t count) {
    int64_t *wide = integers(k, name, count);
    int32_t *x = (int32_t *)take(k, count, sizeof *x);
    size_t i;
    for (i = 0; i < count; i++) x[i] = (int32_t)wide[i];
    return x;
}

static unsigned char *bits(kase *k, const char *name, size_t count) {
    int64_t *wide = integers(k, name, count);
    unsigned char *x = (unsigned char *)take(k, count, 1);
    size_t i;
    for (i = 0; i < count; i++) x[i] = (unsigned char)(wide[i] != 0);
    return x;
}

/* The expected values at full precision, straight from the bytes of the file */
static double *doubles(kase *k, const cmha_archive_tensor *t) {
    double *x = (double *)take(k, t->count, sizeof *x);
    FILE *file = fopen(k->path, "rb");
    int ok = file && !fseek(file, (long)(k->file.data_begin + t->begin), SEEK_SET) &&
             fread(x, sizeof *x, t->count, file) == t->count;
    if (file) fclose(file);
    if (!ok) leave(k, CASE_FAIL, "cannot read %s", t->name);
    system_little_endian(x, t->count, sizeof *x);
    return x;
}

/* A complex tensor, <name>_re and <name>_im, as rows [Re (D) | Im (D)]: how the kernels hold complex
   numbers */
static cmha_real *join(kase *k, const cmha_real *re, const cmha_real *im, size_t T, size_t D) {
    cmha_real *z = zeros(k, 2 * T * D);
    size_t t, j;
    for (t = 0; t < T; t++)
        for (j = 0; j < D; j++) z[2 * t * D + j] = re[t * D + j], z[2 * t * D + D + j] = im[t * D + j];
    return z;
}

static const char *part_name(char *buffer, size_t size, const char *name, const char *part) {
    snprintf(buffer, size, "%s_%s", name, part);
    return buffer;
}

static cmha_real *planes(kase *k, const char *name, size_t T, size_t D) {
    char re[96], im[96];
    part_name(re, sizeof re, name, "re"), part_name(im, sizeof im, name, "im");
    return join(k, reals(k, re, T * D), reals(k, im, T * D), T, D);
}

/* The cotangent of an output; zeros if it has none */
static cmha_real *cotangent(kase *k, const char *name, size_t count) {
    return find(k, name) ? reals(k, name, count) : zeros(k, count);
}

static const char *text(kase *k, const char *key) {
    const char *value = cmha_archive_metadata(&k->file, key);
    if (!value) leave(k, CASE_FAIL, "malformed: no %s", key);
    return value;
}

static double number(kase *k, const char *key) {
    char *end;
    const char *value = text(k, key);
    double x = strtod(value, &end);
    if (end == value || *end) leave(k, CASE_FAIL, "malformed: %s is \"%s\"", key, value);
    return x;
}

static double number_or(kase *k, const char *key, double otherwise) {
    return cmha_archive_metadata(&k->file, key) ? number(k, key) : otherwise;
}

static size_t whole(kase *k, const char *key) {
    double x = number(k, key);
    if (x < 0 || x != floor(x)) leave(k, CASE_FAIL, "malformed: %s is \"%s\"", key, text(k, key));
    return (size_t)x;
}

static size_t whole_or(kase *k, const char *key, size_t otherwise) {
    return cmha_archive_metadata(&k->file, key) ? whole(k, key) : otherwise;
}

/* Index of the value among choices "a|b|c"; a choice we do not know is a reason to skip */
static int choice(kase *k, const char *key, const char *choices) {
    const char *value = text(k, key), *at = choices;
    size_t n = strlen(value), m;
    int i;
    for (i = 0; *at; i++) {
        m = strcspn(at, "|");
        if (m == n && !memcmp(at, value, n)) return i;
        at += m + (at[m] == '|');
    }
    leave(k, CASE_SKIP, "%s = %s is not supported", key, value);
}

static int gradients_wanted(kase *k) { return whole(k, "cfg.grad") == 1; }

/* ---------------------------------------------- comparing ----------------------------------------------- */

static void compare(kase *k, const char *name, const cmha_real *got, size_t count) {
    const cmha_archive_tensor *t = sized(k, name, count, "F64");
    double *want = doubles(k, t), largest = 0, worst = 0, error;
    size_t i;
    for (i = 0; i < count; i++) largest = fabs(want[i]) > largest ? fabs(want[i]) : largest;
    for (i = 0; i < count; i++) {
        error = fabs((double)got[i] - want[i]);
        /* NaN and infinity are failures */
        if (!(error <= worst)) worst = error <= DBL_MAX ? error : HUGE_VAL;
    }
    worst = worst == 0 ? 0 : worst / (k->atol + k->rtol * largest);
    k->compared[t - k->file.tensors] = 1;
    if (worst > k->worst || !k->worst_name[0]) {
        k->worst = worst;
        snprintf(k->worst_name, sizeof k->worst_name, "%s", name);
    }
}

/* A gradient is compared if the file has it; what a file lists and no op compares is found by finish() */
static void compare_gradient(kase *k, const char *name, const cmha_real *got, size_t count) {
    if (find(k, name)) compare(k, name, got, count);
}

/* The two halves of got [T, 2D] against <name>_re and <name>_im */
static void compare_planes(kase *k, const char *name, const cmha_real *got, size_t T, size_t D,
                           int only_if_there) {
    static const char *const parts[2] = {"re", "im"};
    char full[96];
    size_t t, h;
    for (h = 0; h < 2; h++) {
        cmha_real *half = zeros(k, T * D);
        part_name(full, sizeof full, name, parts[h]);
        if (only_if_there && !find(k, full)) continue;
        for (t = 0; t < T; t++) memcpy(half + t * D, got + (2 * t + h) * D, D * sizeof *half);
        compare(k, full, half, T * D);
    }
}

/* The cotangent of a complex output; zeros if it has none */
static cmha_real *planes_cotangent(kase *k, const char *name, size_t T, size_t D) {
    char re[96], im[96];
    part_name(re, sizeof re, name, "re"), part_name(im, sizeof im, name, "im");
    return join(k, cotangent(k, re, T * D), cotangent(k, im, T * D), T, D);
}

static void finish(kase *k) {
    size_t i, n = 0;
    for (i = 0; i < k->file.n_tensors; i++) {
        const char *name = k->file.tensors[i].name;
        if (strncmp(name, "out.", 4) && strncmp(name, "grad.", 5)) continue;
        if (!k->compared[i]) leave(k, CASE_FAIL, "not compared: %s", name);
        n++;
    }
    if (!n) leave(k, CASE_FAIL, "malformed: nothing to compare");
}

/* ---------------------------------------------- operations ---------------------------------------------- */

/* Rows of a tensor whose last axis is D */
static size_t rows(kase *k, const char *name) {
    const cmha_archive_tensor *t = need(k, name);
    size_t n = 1;
    for (int d = 0; d + 1 < t->rank; d++) n *= t->shape[d];
    return n;
}

static void op_layernorm(kase *k) {
    size_t T = rows(k, "in.x"), D = axis(k, "in.x", -1);
    cmha_real *x = reals(k, "in.x", T * D), *w = reals(k, "param.weight", D), *b = reals(k, "param.bias", D),
              *y = zeros(k, T * D);
    cmha_real *dx = zeros(k, T * D), *dw = zeros(k, D), *db = zeros(k, D), *stats = zeros(k, 2 * T);
    const cmha_norm_args args = {CMHA_NORM_LAYER, T, D, (cmha_real)number(k, "cfg.eps")};
    const cmha_grads grads = {dx, dw, db};
    cmha_norm_forward(&args, x, w, b, y, stats);
    compare(k, "out.y", y, T * D);
    if (!gradients_wanted(k)) return;
    cmha_norm_backward(&args, x, w, stats, cotangent(k, "cot.y", T * D), &grads);
    compare_gradient(k, "grad.in.x", dx, T * D);
    compare_gradient(k, "grad.param.weight", dw, D);
    compare_gradient(k, "grad.param.bias", db, D);
}

static void rmsnorm(kase *k, cmha_norm kind) {
    size_t T = rows(k, "in.x"), D = axis(k, "in.x", -1);
    cmha_real *x = reals(k, "in.x", T * D), *w = reals(k, "param.weight", D), *y = zeros(k, T * D),
              *stats = zeros(k, T);
    cmha_real *dx = zeros(k, T * D), *dw = zeros(k, D);
    const cmha_norm_args args = {kind, T, D, (cmha_real)number(k, "cfg.eps")};
    const cmha_grads grads = {dx, dw, NULL};
    cmha_norm_forward(&args, x, w, NULL, y, stats);
    compare(k, "out.y", y, T * D);
    if (!gradients_wanted(k)) return;
    cmha_norm_backward(&args, x, w, stats, cotangent(k, "cot.y", T * D), &grads);
    compare_gradient(k, "grad.in.x", dx, T * D);
    compare_gradient(k, "grad.param.weight", dw, D);
}
static void op_rmsnorm(kase *k) { rmsnorm(k, CMHA_NORM_RMS); }
static void op_rmsnorm_one_plus(kase *k) { rmsnorm(k, CMHA_NORM_RMS_ONE_PLUS); }

static void activation(kase *k, cmha_activation kind) {
    size_t n = need(k, "in.x")->count;
    cmha_real *x = reals(k, "in.x", n), *y = zeros(k, n), *dx = zeros(k, n);
    cmha_activation_forward(x, n, kind, y);
    compare(k, "out.y", y, n);
    if (!gradients_wanted(k)) return;
    cmha_activation_backward(x, cotangent(k, "cot.y", n), n, kind, dx);
    compare_gradient(k, "grad.in.x", dx, n);
}
static void op_gelu(kase *k) {
    int tanh_form = choice(k, "cfg.approx", "none|tanh");
    activation(k, tanh_form ? CMHA_ACTIVATION_GELU_TANH : CMHA_ACTIVATION_GELU_ERF);
}
static void op_relu2(kase *k) { activation(k, CMHA_ACTIVATION_RELU2); }

static void op_swiglu(kase *k) {
    size_t n = need(k, "in.gate")->count;
    cmha_real *gate = reals(k, "in.gate", n), *up = reals(k, "in.up", n), *y = zeros(k, n),
              *dgate = zeros(k, n), *dup = zeros(k, n);
    cmha_gated_forward(gate, up, n, CMHA_ACTIVATION_SWIGLU, y);
    compare(k, "out.y", y, n);
    if (!gradients_wanted(k)) return;
    cmha_gated_backward(gate, up, cotangent(k, "cot.y", n), n, CMHA_ACTIVATION_SWIGLU, dgate, dup);
    compare_gradient(k, "grad.in.gate", dgate, n);
    compare_gradient(k, "grad.in.up", dup, n);
}

static void op_cross_entropy(kase *k) {
    size_t T = axis(k, "in.logits", 0), V = axis(k, "in.logits", 1), counted = 0;
    const double ignored = number(k, "cfg.ignore_index"); /* may lie beyond what a token can be */
    const int64_t *wide = integers(k, "in.targets", T);
    int32_t ignore = -1, *targets = (int32_t *)take(k, T, sizeof *targets);
    cmha_real *logits = reals(k, "in.logits", T * V), *lse = zeros(k, 2 * T), *d = zeros(k, T * V), loss, cot;
    double sum;
    cmha_real *slope = zeros(k, T * V), cap = (cmha_real)number_or(k, "cfg.softcap", 0);
    if (number(k, "cfg.label_smoothing") != 0) leave(k, CASE_SKIP, "label smoothing is not supported");
    for (size_t i = 0; i < T; i++) targets[i] = (double)wide[i] == ignored ? ignore : (int32_t)wide[i];
    if (cap > 0) cmha_softcap_forward(logits, T * V, cap, logits, slope);
    const cmha_cross_entropy_args args = {T, V, targets, ignore};
    sum = cmha_cross_entropy_forward(&args, logits, lse, &counted);
    loss = (cmha_real)(counted ? sum / (double)counted : 0);
    compare(k, "out.loss", &loss, 1);
    if (!gradients_wanted(k)) return;
    cot = *cotangent(k, "cot.loss", 1);
    cmha_cross_entropy_backward(&args, logits, lse, counted ? cot / (cmha_real)counted : 0, d);
    for (size_t i = 0; cap > 0 && i < T * V; i++) d[i] *= slope[i];
    compare_gradient(k, "grad.in.logits", d, T * V);
}

static void op_embedding(kase *k) {
    size_t T = need(k, "in.ids")->count, V = axis(k, "param.weight", 0), D = axis(k, "param.weight", 1), i;
    int32_t *ids = tokens(k, "in.ids", T);
    cmha_real *w = reals(k, "param.weight", V * D), *y = zeros(k, T * D), *dw = zeros(k, V * D);
    for (i = 0; i < T; i++)
        if (ids[i] < 0 || (size_t)ids[i] >= V) leave(k, CASE_FAIL, "malformed: id %d of %zu", (int)ids[i], V);
    cmha_embedding_forward(w, ids, T, D, y);
    compare(k, "out.y", y, T * D);
    if (!gradients_wanted(k)) return;
    cmha_embedding_backward(cotangent(k, "cot.y", T * D), ids, T, D, dw);
    compare_gradient(k, "grad.param.weight", dw, V * D);
}

static void op_sinusoidal_table(kase *k) {
    size_t n = whole(k, "cfg.N"), d = whole(k, "cfg.d");
    cmha_real *y = zeros(k, n * d);
    cmha_cope_table(CMHA_COPE_IMAG_SIN_COS, n, d, number(k, "cfg.base"), whole(k, "cfg.pos0"), y);
    compare(k, "out.y", y, n * d);
}

/* Fills omega [P] as cfg says, and the rotating numbers of a head, of which `pair` have one frequency;
   returns the factor on the score */
static double frequencies(kase *k, size_t P, size_t pair, double *omega, size_t *rotary_dims) {
    cmha_rope_options o;
    double factor;
    memset(&o, 0, sizeof o);
    *rotary_dims = whole_or(k, "cfg.rotary_dims", 0);
    o.rotary_dims = *rotary_dims * 2 / pair;
    if (cmha_archive_metadata(&k->file, "cfg.rope_scaling"))
        o.scaling = (cmha_rope_scaling)choice(k, "cfg.rope_scaling", "none|linear|ntk|yarn|llama3");
    o.factor = number_or(k, "cfg.factor", 1), o.length = number_or(k, "cfg.original_length", 0);
    o.fast = number_or(k, "cfg.beta_fast", 32), o.slow = number_or(k, "cfg.beta_slow", 1);
    if (cmha_archive_metadata(&k->file, "cfg.yarn_ramp"))
        o.ramp = (cmha_rope_ramp)choice(k, "cfg.yarn_ramp", "index|rotations");
    factor = cmha_frequencies(pair == 2 && choice(k, "cfg.freq", "rope|literal") ? CMHA_FREQUENCY_LITERAL
                                                                                : CMHA_FREQUENCY_ROPE,
                              number(k, "cfg.base"), P, &o, omega);
    if (!(factor > 0)) leave(k, CASE_FAIL, "the frequencies are refused");
    return factor;
}

static void op_frequencies(kase *k) {
    size_t pair = choice(k, "cfg.kind", "rope|cmha|pope") == 2 ? 1 : 2, P = whole(k, "cfg.dk") / pair, i;
    double *omega = (double *)take(k, P, sizeof *omega);
    cmha_real factor = (cmha_real)frequencies(k, P, pair, omega, &i), *got = zeros(k, P);
    for (i = 0; i < P; i++) got[i] = (cmha_real)omega[i];
    compare(k, "out.omega", got, P);
    compare(k, "out.score_factor", &factor, 1);
}

/* What cfg says about the score and its frequencies */
static void attention_kind(kase *k, cmha_attention_args *a) {
    static const cmha_attention_kind kinds[] = {CMHA_ATTENTION_DOT,    CMHA_ATTENTION_DOT,
                                                CMHA_ATTENTION_ROPE,   CMHA_ATTENTION_CMHA,
                                                CMHA_ATTENTION_POPE,   CMHA_ATTENTION_ROPEPP,
                                                CMHA_ATTENTION_ANGULAR};
    int kind = choice(k, "cfg.kind", "dot|alibi|rope|cmha|pope|ropepp|angular");
    size_t pair = kinds[kind] == CMHA_ATTENTION_POPE ? 1 : 2, P = a->d_k / pair;
    size_t n = a->n_q > a->n_k ? a->n_q : a->n_k;
    double *omega = (double *)take(k, P, sizeof *omega);
    cmha_real *values;
    a->kind = kinds[kind];
    if (kind == 1) {
        cmha_alibi_slopes(a->heads, values = zeros(k, a->heads));
        a->alibi = values;
    }
    if (kind < 2) return;
    if (a->d_k % pair) leave(k, CASE_FAIL, "malformed: dk is odd");
    if (pair == 2)
        a->layout = choice(k, "cfg.layout", "interleaved|half") ? CMHA_LAYOUT_HALF : CMHA_LAYOUT_INTERLEAVED;
    if (a->kind == CMHA_ATTENTION_ANGULAR) { /* its numbers are [Re | Im], see apart() */
        a->d_k = P, a->softmax = CMHA_SOFTMAX_REAL;
        a->eps = (cmha_real)number(k, "cfg.eps"), a->angle = choice(k, "cfg.phase", "atan2|atan");
        return;
    }
    a->scale *= (cmha_real)frequencies(k, P, pair, omega, &a->rotary_dims);
    const double pos0 = number(k, "cfg.pos0");
    if (pos0 != floor(pos0)) leave(k, CASE_FAIL, "malformed: cfg.pos0 is \"%s\"", text(k, "cfg.pos0"));
    cmha_rotation_table(omega, P, n, (ptrdiff_t)pos0 + (ptrdiff_t)a->n_q - (ptrdiff_t)n,
                        values = zeros(k, n * 2 * P));
    a->rotation = values;
}

/* The parameters of the score, names[..] until NULL, as cfg.share has them; returns the numbers of each */
static size_t attention_parameters(kase *k, cmha_attention_args *a, const char *names[3]) {
    static const char *const turned[3] = {"delta", "b", NULL}, *const shifted[3] = {"beta", NULL, NULL};
    int pope = a->kind == CMHA_ATTENTION_POPE;
    size_t own = pope ? a->rotary_dims ? a->rotary_dims : a->d_k : a->d_k / 2, i;
    char key[32];
    names[0] = NULL;
    if (!pope && a->kind != CMHA_ATTENTION_CMHA) return 0;
    a->share = (cmha_share)choice(k, "cfg.share", "per_head|shared|fixed");
    if (a->share == CMHA_SHARE_FIXED) return 0;
    memcpy(names, pope ? shifted : turned, sizeof turned);
    if (a->share == CMHA_SHARE_PER_HEAD) own *= a->heads;
    for (i = 0; names[i]; i++) {
        snprintf(key, sizeof key, "param.%s", names[i]);
        a->parameters[i] = reals(k, key, own);
    }
    return own;
}

/* Which parameter of a call is log_temp: the one behind the score's own */
static size_t temperature_of(const cmha_attention_args *a) {
    return a->kind == CMHA_ATTENTION_CMHA ? 2 : a->kind == CMHA_ATTENTION_POPE;
}

/* Rows of interleaved pairs of an angular head become rows [Re (d) | Im (d)], or back */
static void apart(kase *k, const cmha_attention_args *a, cmha_real *x, size_t n, int back) {
    size_t d = a->d_k, i, j;
    cmha_real *row = zeros(k, 2 * d);
    if (a->kind != CMHA_ATTENTION_ANGULAR || a->layout != CMHA_LAYOUT_INTERLEAVED) return;
    for (i = 0; i < n; i += 2 * d) {
        for (j = 0; j < 2 * d; j++) row[back ? 2 * (j % d) + j / d : j % 2 * d + j / 2] = x[i + j];
        memcpy(x + i, row, 2 * d * sizeof *row);
    }
}

static void attention_sizes(kase *k, cmha_attention_args *a) {
    memset(a, 0, sizeof *a);
    a->batch = axis(k, "in.q", 0), a->heads = axis(k, "in.q", 1), a->n_q = axis(k, "in.q", 2),
    a->d_k = axis(k, "in.q", 3);
    a->kv_heads = axis(k, "in.k", 1), a->n_k = axis(k, "in.k", 2), a->d_v = axis(k, "in.v", 3);
    if (!a->kv_heads || a->heads % a->kv_heads)
        leave(k, CASE_FAIL, "malformed: %zu heads, %zu kv heads", a->heads, a->kv_heads);
    a->scale = (cmha_real)number(k, "cfg.scale");
    a->causal = whole(k, "cfg.causal") != 0;
    if (a->causal) a->window = whole_or(k, "cfg.window", 0), a->sinks = whole_or(k, "cfg.sinks", 0);
    a->softcap = (cmha_real)number_or(k, "cfg.softcap", 0);
    if (number(k, "cfg.key_pos0") != number(k, "cfg.pos0") + (double)a->n_q - (double)a->n_k)
        leave(k, CASE_SKIP, "key_pos0 is not pos0 + Nq - Nk");
    if (find(k, "in.key_mask")) a->key_mask = bits(k, "in.key_mask", a->batch * a->n_k);
    a->threads = k->context->threads;
    attention_kind(k, a);
}

/* cfg.qk_norm of queries or keys: what it makes of them, and what the backward needs */
typedef struct head_norm {
    const char *gain_name;
    cmha_real *x, *gain, *stats;
    size_t rows, d;
    cmha_real eps;
} head_norm;

/* Returns the n numbers of heads of d normalised, or as they are */
static cmha_real *normed(kase *k, head_norm *s, const char *gain_name, cmha_real *x, size_t n, size_t d) {
    memset(s, 0, sizeof *s);
    if (!whole_or(k, "cfg.qk_norm", 0)) return x;
    s->gain_name = gain_name, s->x = x, s->rows = d ? n / d : 0, s->d = d;
    s->eps = (cmha_real)number(k, "cfg.qk_eps"), s->stats = zeros(k, s->rows);
    cmha_real *y = zeros(k, n);
    if (whole_or(k, "cfg.qk_gain", 0)) s->gain = reals(k, gain_name, d);
    else {
        s->gain_name = NULL, s->gain = zeros(k, d);
        for (size_t i = 0; i < d; i++) s->gain[i] = 1;
    }
    const cmha_norm_args args = {CMHA_NORM_RMS, s->rows, d, s->eps};
    cmha_norm_forward(&args, x, s->gain, NULL, y, s->stats);
    return y;
}

/* Returns the gradient of what was normalised, and compares that of the gain */
static cmha_real *normed_back(kase *k, const head_norm *s, cmha_real *dy) {
    char name[48];
    if (!s->x) return dy;
    cmha_real *dx = zeros(k, s->rows * s->d), *dgain = zeros(k, s->d);
    const cmha_norm_args args = {CMHA_NORM_RMS, s->rows, s->d, s->eps};
    const cmha_grads grads = {dx, dgain, NULL};
    cmha_norm_backward(&args, s->x, s->gain, s->stats, dy, &grads);
    if (s->gain_name) {
        snprintf(name, sizeof name, "grad.%s", s->gain_name);
        compare_gradient(k, name, dgain, s->d);
    }
    return dx;
}

static void op_attention(kase *k) {
    cmha_attention_args a;
    head_norm q_norm, k_norm;
    size_t queries, nq, nk, nv, ny, nd, width, i;
    cmha_real *q, *key, *dq, *dk, *dv, *y, *scratch, *turns[CMHA_MAX_SCORE_PARAMETERS] = {0};
    const char *names[3];
    char gradient[32];
    int is_complex;
    cmha_lse *lse;
    cmha_attention_views x;
    attention_sizes(k, &a);
    nd = attention_parameters(k, &a, names);
    queries = a.heads;
    if (a.kind == CMHA_ATTENTION_ROPEPP) a.heads *= 2;
    a.temperature = find(k, "param.log_temp") != NULL;
    if (a.temperature) a.parameters[temperature_of(&a)] = reals(k, "param.log_temp", a.heads);
    is_complex = a.kind == CMHA_ATTENTION_ANGULAR, width = is_complex ? 2 * a.d_k : a.d_k;
    nq = a.batch * queries * a.n_q * width, nk = a.batch * a.kv_heads * a.n_k * width;
    nv = a.batch * a.kv_heads * a.n_k * a.d_v, ny = a.batch * a.heads * a.n_q * a.d_v;
    y = zeros(k, ny), lse = (cmha_lse *)take(k, a.batch * a.heads * a.n_q, sizeof *lse);
    scratch = zeros(k, cmha_attention_scratch(&a, 0));
    memset(&x, 0, sizeof x);
    q = normed(k, &q_norm, "param.g_q", reals(k, "in.q", nq), nq, width);
    key = normed(k, &k_norm, "param.g_k", reals(k, "in.k", nk), nk, width);
    apart(k, &a, q, nq, 0), apart(k, &a, key, nk, 0);
    x.q = cmha_heads_by_head(q, queries, a.n_q, a.d_k, is_complex);
    x.k = cmha_heads_by_head(key, a.kv_heads, a.n_k, a.d_k, is_complex);
    x.v = cmha_heads_by_head(reals(k, "in.v", nv), a.kv_heads, a.n_k, a.d_v, 0);
    x.y = cmha_heads_by_head(y, a.heads, a.n_q, a.d_v, 0);
    cmha_attention_forward(&a, &x, lse, scratch);
    compare(k, "out.y", y, ny);
    if (!gradients_wanted(k)) return;
    dq = zeros(k, nq), dk = zeros(k, nk), dv = zeros(k, nv);
    for (i = 0; names[i]; i++) turns[i] = zeros(k, nd);
    scratch = zeros(k, cmha_attention_scratch(&a, 1));
    x.dy = cmha_heads_by_head(cotangent(k, "cot.y", ny), a.heads, a.n_q, a.d_v, 0);
    x.dq = cmha_heads_by_head(dq, queries, a.n_q, a.d_k, is_complex),
    x.dk = cmha_heads_by_head(dk, a.kv_heads, a.n_k, a.d_k, is_complex);
    x.dv = cmha_heads_by_head(dv, a.kv_heads, a.n_k, a.d_v, 0);
    if (a.temperature) turns[temperature_of(&a)] = zeros(k, a.heads);
    cmha_attention_backward(&a, &x, lse, NULL, turns, scratch);
    if (a.temperature) compare_gradient(k, "grad.param.log_temp", turns[temperature_of(&a)], a.heads);
    apart(k, &a, dq, nq, 1), apart(k, &a, dk, nk, 1);
    dq = normed_back(k, &q_norm, dq), dk = normed_back(k, &k_norm, dk);
    compare_gradient(k, "grad.in.q", dq, nq);
    compare_gradient(k, "grad.in.k", dk, nk);
    compare_gradient(k, "grad.in.v", dv, nv);
    for (i = 0; names[i]; i++) {
        snprintf(gradient, sizeof gradient, "grad.param.%s", names[i]);
        compare_gradient(k, gradient, turns[i], nd);
    }
}

/* The kernel does one head of one sequence; the op is the mean over all of them */
static void op_pcl(kase *k) {
    size_t heads = axis(k, "in.theta", 0) * axis(k, "in.theta", 1), N = axis(k, "in.theta", 2),
           P = axis(k, "in.theta", 3), NP = N * P, h;
    cmha_real *theta = reals(k, "in.theta", heads * NP), *w = reals(k, "param.w", P),
              *cot = cotangent(k, "cot.loss", 1), loss;
    cmha_real *dtheta = zeros(k, heads * NP), *dw = zeros(k, P), *lse = zeros(k, 2 * N), *scratch;
    unsigned char *keep = bits(k, "in.mask01", heads * NP);
    cmha_pcl_args a;
    double sum = 0;
    memset(&a, 0, sizeof a);
    a.N = N, a.P = P, a.tau = (cmha_real)number(k, "cfg.tau"), a.w = w;
    a.keep = keep;
    scratch = zeros(k, cmha_pcl_scratch(&a));
    for (h = 0; h < heads; h++) {
        a.keep = keep + h * NP;
        sum += cmha_pcl_forward(&a, theta + h * NP, lse, scratch);
        cmha_pcl_backward(&a, theta + h * NP, lse, *cot / (cmha_real)heads, dtheta + h * NP, dw, scratch);
    }
    loss = (cmha_real)(sum / (double)heads);
    compare(k, "out.loss", &loss, 1);
    compare_gradient(k, "grad.in.theta", dtheta, heads * NP);
    compare_gradient(k, "grad.param.w", dw, P);
}

static void op_adamw(kase *k) {
    size_t n = need(k, "in.p")->count, steps = whole(k, "cfg.steps");
    cmha_real *p = reals(k, "in.p", n), *g = reals(k, "in.g", steps * n), *m = zeros(k, n), *v = zeros(k, n);
    cmha_adamw_args a;
    memset(&a, 0, sizeof a);
    a.lr = number(k, "cfg.lr"), a.beta1 = number(k, "cfg.beta1"), a.beta2 = number(k, "cfg.beta2"),
    a.eps = number(k, "cfg.eps");
    a.weight_decay = number(k, "cfg.wd"), a.grad_scale = 1;
    for (a.t = 1; a.t <= steps; a.t++) cmha_adamw(&a, n, p, g + (a.t - 1) * n, m, v);
    compare(k, "out.p", p, n);
    compare(k, "out.m", m, n);
    compare(k, "out.v", v, n);
}

/* T steps of an optimiser on one parameter of a network built by hand, whose moments follow it. */
static void optimise(kase *k, const char *name, const cmha_parameter_row *row, const cmha_real *start,
                     const cmha_real *g, cmha_real *end, cmha_real *buf) {
    const int scaled = cmha_archive_metadata(&k->file, "cfg.scale_by") != NULL;
    cmha_adamw_args a;
    cmha_parameters p;
    memset(&a, 0, sizeof a);
    a.lr = number(k, "cfg.lr"), a.weight_decay = number(k, "cfg.wd"), a.grad_scale = 1;
    a.beta1 = number_or(k, "cfg.beta1", 0), a.beta2 = number_or(k, "cfg.beta2", 0);
    a.momentum = number_or(k, "cfg.momentum", 0), a.nesterov = number_or(k, "cfg.nesterov", 0) > 0;
    if (scaled) a.scale = (cmha_update_scale)choice(k, "cfg.scale_by", "rms|shape");
    if (cmha_parameters_init(&p, k->context, row, 1)) leave(k, CASE_FAIL, "%s", cmha_error(k->context));
    size_t n = p.size, steps = whole(k, "cfg.steps");
    cmha_status status = cmha_parameters_optimiser(&p, name);
    memcpy(p.data, start, n * sizeof *start);
    for (size_t t = 0; t < steps && !status; t++) {
        memcpy(p.grad, g + t * n, n * sizeof *g);
        status = cmha_parameters_step(&p, &a, CMHA_CLIP_WHOLE, 0, NULL);
    }
    memcpy(end, p.data, n * sizeof *end);
    memcpy(buf, p.moments + p.list->kept[0], n * sizeof *buf);
    cmha_parameters_close(&p);
    if (status) leave(k, CASE_FAIL, "%s: %s", name, cmha_error(k->context));
}

static void vector_steps(kase *k, const char *name, const char *buf_name) {
    size_t n = need(k, "in.p")->count, steps = whole(k, "cfg.steps");
    cmha_parameter_row row = {"p", {n, 0, 0, 0}, 0, 0, 1, 0};
    cmha_real *p = reals(k, "in.p", n), *g = reals(k, "in.g", steps * n), *buf = zeros(k, n);
    optimise(k, name, &row, p, g, p, buf);
    compare(k, "out.p", p, n);
    compare(k, buf_name, buf, n);
}
static void op_lion(kase *k) { vector_steps(k, "lion", "out.m"); }
static void op_sgd(kase *k) { vector_steps(k, "sgd", "out.buf"); }

static void op_ema(kase *k) {
    size_t n = need(k, "in.e")->count, steps = whole(k, "cfg.steps");
    cmha_real *e = reals(k, "in.e", n), *w = reals(k, "in.w", steps * n);
    for (size_t t = 0; t < steps; t++) cmha_ema(number(k, "cfg.beta"), n, e, w + t * n);
    compare(k, "out.e", e, n);
}

static void op_muon(kase *k) {
    const int complex = cmha_archive_find(&k->file, "in.w_re") != NULL;
    size_t R = axis(k, complex ? "in.w_re" : "in.w", 0), C = axis(k, complex ? "in.w_re" : "in.w", 1);
    size_t n = R * C, steps = whole(k, "cfg.steps"), all = complex ? 2 * n : n;
    cmha_parameter_row real = {"w", {R, C, 0, 0}, 0, 0, 1, 0}, planes = {"w", {2, R, C, 0}, 0, 0, 1, 1};
    cmha_real *w = zeros(k, all), *g = zeros(k, steps * all), *buf = zeros(k, all);
    static const char *const suffix[2] = {"_re", "_im"};
    char in[16], of[16], out_w[16], out_buf[16];
    for (int plane = 0; plane <= complex; plane++) {
        const char *end = complex ? suffix[plane] : "";
        size_t at = (size_t)plane * n;
        snprintf(in, sizeof in, "in.w%s", end), snprintf(of, sizeof of, "in.g%s", end);
        memcpy(w + at, reals(k, in, n), n * sizeof *w);
        const cmha_real *from = reals(k, of, steps * n);
        for (size_t t = 0; t < steps; t++) memcpy(g + t * all + at, from + t * n, n * sizeof *g);
    }
    optimise(k, "muon", complex ? &planes : &real, w, g, w, buf);
    for (int plane = 0; plane <= complex; plane++) {
        const char *end = complex ? suffix[plane] : "";
        snprintf(out_w, sizeof out_w, "out.w%s", end), snprintf(out_buf, sizeof out_buf, "out.buf%s", end);
        compare(k, out_w, w + (size_t)plane * n, n);
        compare(k, out_buf, buf + (size_t)plane * n, n);
    }
}

static void op_lr_schedule(kase *k) {
    cmha_rate rate = {CMHA_SCHEDULE_COSINE, number(k, "cfg.base_lr"), number(k, "cfg.min_lr"),
                      whole(k, "cfg.warmup"), whole(k, "cfg.total"), number_or(k, "cfg.share", 0)};
    if (cmha_archive_metadata(&k->file, "cfg.schedule") && choice(k, "cfg.schedule", "cosine|wsd"))
        rate.schedule = CMHA_SCHEDULE_WSD;
    size_t n = need(k, "in.step")->count, i;
    int64_t *step = integers(k, "in.step", n);
    cmha_real *lr = zeros(k, n);
    for (i = 0; i < n; i++)
        lr[i] = (cmha_real)cmha_learning_rate(&rate, (size_t)step[i]);
    compare(k, "out.lr", lr, n);
}

static void model_option(kase *k, cmha_model_config *config, const char *key, const char *field) {
    const char *value = text(k, key);
    if (cmha_config_set(k->context, cmha_model_table(), config, field, value))
        leave(k, CASE_SKIP, "%s = %s is not supported: %s", key, value, cmha_error(k->context));
}

static void model_config(kase *k, cmha_model_config *config) {
    static const char *const options[][2] = {
        {"cfg.n_layers", "n_layers"}, {"cfg.d_model", "d_model"},  {"cfg.n_heads", "n_heads"},
        {"cfg.d_ff", "d_ff"},         {"cfg.vocab", "vocabulary"}, {"cfg.max_pos", "max_positions"},
        {"cfg.attn", "attention"},    {"cfg.pos", "position"},     {"cfg.share", "share"},
        {"cfg.layout", "layout"},     {"cfg.freq", "frequency"},   {"cfg.base", "base"},
        {"cfg.scale", "score_scale"}, {"cfg.tied", "tied"},        {"cfg.ln_eps", "norm_eps"},
        {"cfg.act", "activation"}};
    size_t i;
    cmha_config_defaults(cmha_model_table(), config);
    for (i = 0; i < sizeof options / sizeof *options; i++)
        model_option(k, config, options[i][0], options[i][1]);
    choice(k, "cfg.norm", "pre_ln");
    if (!(number(k, "cfg.scale") > 0)) leave(k, CASE_SKIP, "a score_scale of 0 means 1/sqrt(d_k)");
}

/* Every param. tensor is a parameter of the model of the same name and shape,
   and every parameter is in the file */
static void model_parameters(kase *k) {
    size_t i, j, n = 0;
    for (i = 0; i < k->file.n_tensors; i++) {
        const cmha_archive_tensor *t = &k->file.tensors[i];
        cmha_parameter *p;
        if (strncmp(t->name, "param.", 6)) continue;
        p = cmha_parameters_find(&k->model.parameters, t->name + 6);
        if (!p) leave(k, CASE_FAIL, "the model has no parameter %s", t->name + 6);
        if (p->tensor.rank != t->rank)
            leave(k, CASE_FAIL, "%s: rank %d, the model's is %d", t->name, t->rank, p->tensor.rank);
        for (j = 0; j < (size_t)t->rank; j++)
            if (p->tensor.shape[j] != t->shape[j])
                leave(k, CASE_FAIL, "%s: the model's shape is another", t->name);
        if (cmha_archive_read(&k->file, t, p->tensor.data)) leave(k, CASE_FAIL, "%s", cmha_error(k->context));
        n++;
    }
    if (n != k->model.parameters.count)
        leave(k, CASE_FAIL, "the file has %zu parameters, the model %zu", n, k->model.parameters.count);
}

static void model_gradients(kase *k, const cmha_batch *batch) {
    char name[96];
    double loss = 0;
    cmha_real value;
    size_t i;
    if (cmha_model_gradient(&k->model, batch, (double)*cotangent(k, "cot.loss", 1), 1, &loss))
        leave(k, CASE_FAIL, "%s", cmha_error(k->context));
    value = (cmha_real)loss;
    compare(k, "out.loss", &value, 1);
    for (i = 0; i < k->model.parameters.count; i++) {
        cmha_parameter *p = &k->model.parameters.list[i];
        snprintf(name, sizeof name, "grad.param.%s", p->name);
        if (p->tensor.grad) compare_gradient(k, name, p->tensor.grad, p->tensor.size);
    }
}

static void op_model(kase *k) {
    size_t B = axis(k, "in.ids", 0), N = axis(k, "in.ids", 1), V = whole(k, "cfg.vocab");
    cmha_real *logits = zeros(k, B * N * V), value;
    cmha_model_config config;
    cmha_batch batch;
    double loss = 0;
    model_config(k, &config);
    if (cmha_model_init(&k->model, k->context, &config)) leave(k, CASE_FAIL, "%s", cmha_error(k->context));
    model_parameters(k);
    memset(&batch, 0, sizeof batch);
    batch.ids = tokens(k, "in.ids", B * N), batch.targets = tokens(k, "in.targets", B * N), batch.batch = B,
    batch.length = N;
    if (cmha_model_logits(&k->model, &batch, logits) || cmha_model_loss(&k->model, &batch, &loss))
        leave(k, CASE_FAIL, "%s", cmha_error(k->context));
    value = (cmha_real)loss;
    compare(k, "out.logits", logits, B * N * V);
    compare(k, "out.loss", &value, 1);
    if (gradients_wanted(k)) model_gradients(k, &batch);
}

#include "conformance_attention.h"
#include "conformance_complex.h"
#include "conformance_mobius.h"
#include "conformance_cores.h"
#include "conformance_retrieval.h"
#include "conformance_experts.h"
#include "conformance_text.h"

static const struct {
    const char *name;
    void (*run)(kase *k);
} operations[] = {
    {"linear", op_linear},       {"layernorm", op_layernorm},
    {"rmsnorm", op_rmsnorm},     {"gelu", op_gelu},
    {"swiglu", op_swiglu},       {"cross_entropy", op_cross_entropy},
    {"embedding", op_embedding}, {"sinusoidal_table", op_sinusoidal_table},
    {"attention", op_attention}, {"pcl", op_pcl},
    {"adamw", op_adamw},         {"lr_schedule", op_lr_schedule},
    {"muon", op_muon},           {"lion", op_lion},
    {"ema", op_ema},             {"relu2", op_relu2},
    {"rmsnorm_one_plus", op_rmsnorm_one_plus},
    {"sgd", op_sgd},
    {"model", op_model},         {"cope_attention", op_cope_attention},
    {"mobius_attention", op_mobius_attention}, {"angular_attention", op_angular_attention},
    {"mobius_map", op_mobius_map}, {"mobius_classify", op_mobius_classify},
    {"cope_embed", op_cope_embed},
    {"complex_linear", op_complex_linear}, {"lowrank_complex_linear", op_lowrank_complex_linear},
    {"complex_rotate", op_complex_rotate}, {"cgelu", op_cgelu},
    {"cln", op_cln},             {"crms", op_crms},
    {"complex_whiten", op_complex_whiten}, {"phase_reg", op_phase_reg},
    {"mag_reg", op_mag_reg},     {"componentwise_clip", op_componentwise_clip},
    {"multifreq_pe", op_multifreq_pe},
    {"frequencies", op_frequencies}, {"cope_linear", op_cope_linear},
    {"angular_linear", op_angular_linear}, {"lag_fft", op_lag_fft},
    {"irw_fuse", op_irw_fuse},
    {"complex_residual", op_complex_residual}, {"cmoe", op_cmoe},
    {"text_metrics", op_text_metrics},
};

/* ----------------------------------------------- running ------------------------------------------------ */

typedef struct totals {
    int passed, failed, skipped, strict;
} totals;

static void run_operation(kase *k) {
    int is_double = sizeof(cmha_real) == sizeof(double);
    const char *op = text(k, "op");
    size_t i;
    text(k, "case");
    k->rtol = number(k, is_double ? "rtol_f64" : "rtol_f32");
    k->atol = number(k, is_double ? "atol_f64" : "atol_f32");
    if (k->file.n_tensors > MAX_TENSORS) leave(k, CASE_FAIL, "%zu tensors are too many", k->file.n_tensors);
    for (i = 0; i < sizeof operations / sizeof *operations; i++) {
        if (strcmp(operations[i].name, op)) continue;
        operations[i].run(k);
        finish(k);
        return;
    }
    leave(k, CASE_SKIP, "op %s is not implemented", op);
}

static void report(totals *t, kase *k, int how) {
    const char *base = strrchr(k->path, '/');
    char name[128];
    snprintf(name, sizeof name, "%s", base ? base + 1 : k->path);
    if (strstr(name, ".safetensors")) *strstr(name, ".safetensors") = 0;
    if (how == CASE_SKIP && t->strict) how = CASE_FAIL;
    if (!how && k->worst > 1) {
        how = CASE_FAIL;
        snprintf(k->reason, sizeof k->reason, "%.3g of the tolerance, %s", k->worst, k->worst_name);
    }
    if (!how) printf("PASS %-36s %8.5f %s\n", name, k->worst, k->worst_name);
    else printf("%s %-36s %s\n", how == CASE_SKIP ? "SKIP" : "FAIL", name, k->reason);
    t->passed += !how, t->failed += how == CASE_FAIL, t->skipped += how == CASE_SKIP;
}

static void run_file(totals *t, cmha_context *context, const char *path) {
    kase *k = (kase *)check_alloc(1, sizeof *k);
    int how;
    k->context = context, k->path = path;
    how = setjmp(k->out);
    if (!how) {
        if (cmha_archive_open(&k->file, context, path)) leave(k, CASE_FAIL, "%s", cmha_error(context));
        run_operation(k);
    }
    report(t, k, how);
    cmha_model_close(&k->model);
    cmha_archive_close(&k->file);
    while (k->n_pool) free(k->pool[--k->n_pool]);
    free(k);
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void run_directory(totals *t, cmha_context *context, const char *path, DIR *directory) {
    char **names = NULL;
    size_t n = 0, i, length;
    struct dirent *entry;
    while ((entry = readdir(directory)) != NULL) {
        length = strlen(entry->d_name);
        if (length < 12 || strcmp(entry->d_name + length - 12, ".safetensors")) continue;
        names = (char **)realloc(names, (n + 1) * sizeof *names);
        if (!names) exit(3);
        names[n] = (char *)check_alloc(strlen(path) + length + 2, 1);
        sprintf(names[n++], "%s/%s", path, entry->d_name);
    }
    if (!n) printf("FAIL %s: no case in it\n", path), t->failed++;
    if (n) qsort(names, n, sizeof *names, by_name);
    for (i = 0; i < n; i++) run_file(t, context, names[i]), free(names[i]);
    free(names);
}

int main(int argc, char **argv) {
    totals t;
    cmha_context context;
    DIR *directory;
    int i, given = 0;
    cmha_blas_restart(argv);
    memset(&t, 0, sizeof t);
    if (cmha_context_init(&context, NULL)) return 3;
    for (i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--strict")) t.strict = 1;
    for (i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--strict")) continue;
        given = 1;
        directory = opendir(argv[i]);
        if (directory) run_directory(&t, &context, argv[i], directory), closedir(directory);
        else run_file(&t, &context, argv[i]);
        fflush(stdout);
    }
    cmha_context_close(&context);
    if (!given) return fprintf(stderr, "usage: %s [--strict] FILE|DIR...\n", argv[0]), 2;
    printf("%d passed, %d failed, %d skipped\n", t.passed, t.failed, t.skipped);
    return t.failed != 0;
}
