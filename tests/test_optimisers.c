/* Muon, Lion and SGD: against references of this file's own, what Muon does to singular values, whom it is
   for, what is kept of it. tests/grad_words.c has steps of every optimiser, tests/ranks.h those of ranks. */
#define _POSIX_C_SOURCE 200809L
#define _DARWIN_C_SOURCE
#include "check.h"
#include "system.h"

static cmha_context context;

/* ---- A reference: complex matrices, numbers by numbers ---- */

typedef struct ref { size_t R, C; double *re, *im; } ref;

static ref ref_new(size_t R, size_t C) {
    ref m = {R, C, NULL, NULL};
    m.re = (double *)check_alloc(R * C + 1, sizeof(double));
    m.im = (double *)check_alloc(R * C + 1, sizeof(double));
    return m;
}
static void ref_free(ref m) { free(m.re), free(m.im); }

/* op(a) op(b), adjoint where asked. */
static ref ref_product(ref a, int adjoint_a, ref b, int adjoint_b) {
    size_t K = adjoint_a ? a.R : a.C;
    ref c = ref_new(adjoint_a ? a.C : a.R, adjoint_b ? b.R : b.C);
    for (size_t i = 0; i < c.R; i++)
        for (size_t j = 0; j < c.C; j++)
            for (size_t k = 0; k < K; k++) {
                size_t x = adjoint_a ? k * a.C + i : i * a.C + k, y = adjoint_b ? j * b.C + k : k * b.C + j;
                double ai = adjoint_a ? -a.im[x] : a.im[x], bi = adjoint_b ? -b.im[y] : b.im[y];
                c.re[i * c.C + j] += a.re[x] * b.re[y] - ai * bi;
                c.im[i * c.C + j] += a.re[x] * bi + ai * b.re[y];
            }
    return c;
}

static ref ref_random(size_t R, size_t C, int is_complex) {
    ref m = ref_new(R, C);
    for (size_t i = 0; i < R * C; i++) {
        m.re[i] = check_random();
        if (is_complex) m.im[i] = check_random();
    }
    return m;
}

/* Columns made orthonormal by Gram and Schmidt, twice. */
static ref ref_orthonormal(size_t R, size_t C, int is_complex) {
    ref q = ref_random(R, C, is_complex);
    for (size_t j = 0; j < C; j++)
        for (int again = 0; again < 2; again++) {
            double norm = 0;
            for (size_t k = 0; k < j; k++) {
                double re = 0, im = 0;
                for (size_t i = 0; i < R; i++) {
                    size_t x = i * C + j, y = i * C + k;
                    re += q.re[y] * q.re[x] + q.im[y] * q.im[x];
                    im += q.re[y] * q.im[x] - q.im[y] * q.re[x];
                }
                for (size_t i = 0; i < R; i++) {
                    size_t x = i * C + j, y = i * C + k;
                    q.re[x] -= re * q.re[y] - im * q.im[y];
                    q.im[x] -= re * q.im[y] + im * q.re[y];
                }
            }
            for (size_t i = 0; i < R; i++)
                norm += q.re[i * C + j] * q.re[i * C + j] + q.im[i * C + j] * q.im[i * C + j];
            for (size_t i = 0; i < R; i++) {
                q.re[i * C + j] /= sqrt(norm);
                q.im[i * C + j] /= sqrt(norm);
            }
        }
    return q;
}

static double ref_size(ref m) {
    double sum = 0;
    for (size_t i = 0; i < m.R * m.C; i++) sum += m.re[i] * m.re[i] + m.im[i] * m.im[i];
    return sqrt(sum);
}

static double polynomial(double x) {
    for (int i = 0; i < 5; i++) x = 3.4445 * x - 4.7750 * x * x * x + 2.0315 * x * x * x * x * x;
    return x;
}

/* P diag(s) Q^H, or with p five times of s over its norm + 1e-7. */
static ref ref_of_singular(ref P, const double *s, ref Q, int muon) {
    ref scaled = ref_new(P.R, P.C);
    double norm = 0;
    for (size_t k = 0; k < P.C; k++) norm += s[k] * s[k];
    for (size_t i = 0; i < P.R; i++)
        for (size_t k = 0; k < P.C; k++) {
            double factor = muon ? polynomial(s[k] / (sqrt(norm) + 1e-7)) : s[k];
            scaled.re[i * P.C + k] = P.re[i * P.C + k] * factor;
            scaled.im[i * P.C + k] = P.im[i * P.C + k] * factor;
        }
    ref m = ref_product(scaled, 0, Q, 1);
    ref_free(scaled);
    return m;
}

/* The library's direction of a matrix, without its scale by the shape. */
static ref muon_of(ref m, int is_complex) {
    size_t n = m.R * m.C;
    cmha_real *data = check_zeros(2 * n), *scratch = check_zeros(cmha_muon_scratch(m.R, m.C, is_complex));
    const cmha_matrix view = {data, m.R, m.C, is_complex ? n : 0};
    double factor = m.R > m.C ? sqrt((double)m.R / (double)m.C) : 1;
    ref x = ref_new(m.R, m.C);
    for (size_t i = 0; i < n; i++) data[i] = (cmha_real)m.re[i], data[n + i] = (cmha_real)m.im[i];
    cmha_muon(CMHA_UPDATE_SHAPE, &view, scratch);
    for (size_t i = 0; i < n; i++) {
        x.re[i] = (double)data[i] / factor;
        if (is_complex) x.im[i] = (double)data[n + i] / factor;
    }
    free(data), free(scratch);
    return x;
}

static double apart(ref a, ref b) {
    double worst = 0;
    for (size_t i = 0; i < a.R * a.C; i++)
        worst = fmax(worst, hypot(a.re[i] - b.re[i], a.im[i] - b.im[i]));
    return worst;
}

static const size_t shapes[][2] = {{1, 1},   {1, 7},   {7, 1},    {2, 2},   {5, 9},
                                   {9, 5}, {16, 16}, {64, 65}, {130, 40}, {70, 200}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Singular values become p(p(p(p(p(s / norm))))), singular vectors stay; those of at least a hundredth of the
   norm end within [0.68, 1.14]. */
static void singular_values(size_t R, size_t C, int is_complex) {
    size_t m = R < C ? R : C;
    double *s = (double *)check_alloc(m, sizeof *s);
    ref P = ref_orthonormal(R, m, is_complex), Q = ref_orthonormal(C, m, is_complex);
    for (size_t k = 0; k < m; k++) s[k] = 3e-4 * pow(10, -1.2 * (check_random() + 1));
    double norm = 0, least = INFINITY, most = 0;
    for (size_t k = 0; k < m; k++) norm += s[k] * s[k];
    for (size_t k = 0; k < m; k++) {
        double x = s[k] / sqrt(norm), y = polynomial(x);
        if (x < 0.01) continue;
        least = fmin(least, y), most = fmax(most, y);
    }
    CHECK_THAT(least >= 0.68 && most <= 1.14, "[%g, %g]", least, most);
    ref U = ref_of_singular(P, s, Q, 0), want = ref_of_singular(P, s, Q, 1), got = muon_of(U, is_complex);
    double off = apart(got, want);
    CHECK_THAT(off <= check_tolerance(1e-12, 2e-4), "%zu x %zu, complex %d: %g apart", R, C, is_complex, off);
    ref_free(P), ref_free(Q), ref_free(U), ref_free(want), ref_free(got), free(s);
}

/* V1 U V2^H gives V1 X V2^H, by orthogonal or unitary V; the size of U does not matter. */
static void invariance(size_t R, size_t C, int is_complex) {
    ref U = ref_random(R, C, is_complex), X = muon_of(U, is_complex);
    ref V1 = ref_orthonormal(R, R, is_complex), V2 = ref_orthonormal(C, C, is_complex);
    ref half = ref_product(V1, 0, U, 0), turned = ref_product(half, 0, V2, 1);
    ref half_X = ref_product(V1, 0, X, 0), want = ref_product(half_X, 0, V2, 1);
    ref got = muon_of(turned, is_complex);
    double off = apart(got, want);
    CHECK_THAT(off <= check_tolerance(1e-11, 2e-3), "%zu x %zu, complex %d: %g apart", R, C, is_complex, off);
    for (size_t i = 0; i < R * C; i++) U.re[i] *= 4096, U.im[i] *= 4096;
    ref larger = muon_of(U, is_complex);
    off = apart(larger, X);
    CHECK_THAT(off <= check_tolerance(1e-4, 2e-3), "blind to size: %g apart", off); /* less the 1e-7 */
    ref_free(U), ref_free(X), ref_free(V1), ref_free(V2), ref_free(half), ref_free(turned), ref_free(half_X);
    ref_free(want), ref_free(got), ref_free(larger);
}

static void zeros_and_ranks(void) {
    for (int is_complex = 0; is_complex < 2; is_complex++) {
        ref zero = ref_new(5, 3), X = muon_of(zero, is_complex);
        CHECK(ref_size(X) <= 0);
        ref_free(zero), ref_free(X);
        ref a = ref_random(6, 1, is_complex), b = ref_random(9, 1, is_complex);
        ref one = ref_product(a, 0, b, 1);
        X = muon_of(one, is_complex);
        double want = polynomial(1), got = ref_size(X); /* one singular value, 1 */
        CHECK_NEAR(got, want, check_tolerance(1e-6, 1e-3));
        ref_free(a), ref_free(b), ref_free(one), ref_free(X);
    }
}

/* Where the sum of moment and gradient is 0, Lion's sign is 0. */
static void lion_at_rest(void) {
    cmha_real p[2] = {3, 3}, m[2] = {0, 0};
    const cmha_real g[2] = {0, 1};
    cmha_adamw_args args;
    memset(&args, 0, sizeof args);
    args.lr = 0.5, args.beta1 = 0.9, args.beta2 = 0.99, args.grad_scale = 1;
    cmha_lion(&args, 2, p, g, m);
    CHECK(p[0] == 3 && m[0] == 0 && p[1] == (cmha_real)2.5 && m[1] > 0);
}

/* A complex matrix without imaginary part gives the real one's direction; by the scale RMS numbers are near
   0.2, whichever side is the longer one. */
static void real_in_complex(void) {
    ref U = ref_random(24, 40, 0), X = muon_of(U, 0), Z = muon_of(U, 1);
    CHECK_THAT(apart(X, Z) <= check_tolerance(1e-13, 1e-4), "%g apart", apart(X, Z));
    for (int turn = 0; turn < 4; turn++) {
        const size_t n = 40 * 24, planes = turn % 2 ? 2 : 1, R = turn / 2 ? 24 : 40;
        cmha_real *data = check_array(2 * n, 1), *scratch = check_zeros(cmha_muon_scratch(R, n / R, 1));
        const cmha_matrix view = {data, R, n / R, planes == 2 ? n : 0};
        double sum = 0;
        cmha_muon(CMHA_UPDATE_RMS, &view, scratch);
        for (size_t i = 0; i < planes * n; i++) sum += (double)data[i] * (double)data[i];
        double rms = sqrt(sum / (double)(planes * n));
        CHECK_THAT(rms > 0.15 && rms < 0.22, "%zu rows, planes %zu: root mean square %g", R, planes, rms);
        free(data), free(scratch);
    }
    ref_free(U), ref_free(X), ref_free(Z);
}

/* ---- On parameters ---- */

static cmha_adamw_args usual_args(void) {
    cmha_adamw_args a;
    memset(&a, 0, sizeof a);
    a.lr = 0.05, a.beta1 = 0.9, a.beta2 = 0.99, a.eps = 1e-8, a.weight_decay = 0.1, a.grad_scale = 1;
    a.momentum = 0.95, a.nesterov = 1;
    return a;
}

/* Steps of all optimisers on a vector against the formulas, with clipping, rates, and gradients of zero. */
static void formulas(const char *name, int nesterov) {
    enum { LENGTH = 37 };
    const cmha_parameter_row row = {"p", {LENGTH, 0, 0, 0}, 0, 1, 1, 0};
    cmha_adamw_args a = usual_args();
    cmha_parameters p;
    double want[LENGTH], m[LENGTH] = {0}, worst = 0;
    a.nesterov = nesterov;
    CHECK_OK(cmha_parameters_init(&p, &context, &row, 1));
    CHECK_OK(cmha_parameters_optimiser(&p, name));
    CHECK_OK(cmha_parameters_tune(&p, "p", CMHA_TUNE_RATE, 0.5, NULL));
    CHECK(p.kept == LENGTH); /* one moment */
    for (size_t i = 0; i < LENGTH; i++) want[i] = p.data[i];
    for (int t = 0; t < 6; t++) {
        double norm = 0, limit = 2;
        for (size_t i = 0; i < LENGTH; i++) p.grad[i] = t == 3 ? 0 : (cmha_real)check_random();
        for (size_t i = 0; i < LENGTH; i++) norm += (double)p.grad[i] * (double)p.grad[i];
        double scale = sqrt(norm) > limit ? limit / sqrt(norm) : 1, lr = 0.5 * a.lr;
        for (size_t i = 0; i < LENGTH; i++) {
            double g = scale * (double)p.grad[i], c = a.beta1 * m[i] + (1 - a.beta1) * g, d;
            if (!strcmp(name, "lion")) {
                d = (double)((c > 0) - (c < 0));
                m[i] = a.beta2 * m[i] + (1 - a.beta2) * g;
            } else {
                m[i] = a.momentum * m[i] + g;
                d = nesterov ? g + a.momentum * m[i] : m[i];
            }
            want[i] -= lr * (d + a.weight_decay * want[i]);
        }
        CHECK_OK(cmha_parameters_step(&p, &a, CMHA_CLIP_WHOLE, limit, NULL));
    }
    for (size_t i = 0; i < LENGTH; i++) worst = fmax(worst, fabs(want[i] - (double)p.data[i]));
    CHECK_THAT(worst <= check_tolerance(1e-14, 3e-6), "%s: %g apart", name, worst);
    p.grad[3] = (cmha_real)NAN;
    CHECK_IS(cmha_parameters_step(&p, &a, CMHA_CLIP_WHOLE, 1, NULL), CMHA_ERR_NOT_FINITE);
    cmha_parameters_close(&p);
}

/* Gradients of four times the size with a quarter as their scale are the same step to the bit, whichever norm
   is clipped. A list that takes another optimiser counts its steps anew. */
static void scaled(void) {
    const cmha_parameter_row rows[] = {{"a", {6, 5, 0, 0}, 0, 1, 1, 0}, {"b", {2, 7, 0, 0}, 0, 1, 0, 1}};
    for (int mode = 0; mode < CMHA_CLIP_COUNT; mode++) {
        cmha_parameters p[2];
        double norm[2] = {0, 1}, least = 1;
        for (int k = 0; k < 2; k++) {
            cmha_adamw_args a = usual_args();
            a.grad_scale = k ? 0.25 : 1;
            CHECK_OK(cmha_parameters_init(&p[k], &context, rows, 2));
            for (int t = 0; t < 3; t++) {
                check_seed = 40 + (uint64_t)t;
                check_fill(p[k].grad, p[k].size, k ? 4 : 1);
                CHECK_OK(cmha_parameters_step(&p[k], &a, (cmha_clip_mode)mode, 0.5, &norm[k]));
                least = fmin(least, norm[k]);
            }
        }
        CHECK_THAT(norm[0] == norm[1] && least > 0.5, "mode %d: norms %g, %g", mode, norm[0], norm[1]);
        CHECK_THAT(!memcmp(p[0].data, p[1].data, p[0].size * sizeof *p[0].data), "mode %d", mode);
        CHECK(p[0].step == 3);
        CHECK_OK(cmha_parameters_optimiser(&p[0], "lion"));
        CHECK(p[0].step == 0);
        for (int k = 0; k < 2; k++) cmha_parameters_close(&p[k]);
    }
}

/* Fused rows, experts and both in planes are steps of the matrices that they are made of; threads change no
   bit. */
static void fused(int is_complex, size_t experts, int parts) {
    enum { R = 6, C = 5, STEPS = 3 };
    const size_t planes = is_complex ? 2 : 1, rows = (size_t)parts * R, n = experts * rows * C;
    cmha_parameter_row whole = {"whole", {0}, 0, 1, 1, is_complex}, one = {"one", {0}, 0, 1, 1, is_complex};
    size_t rank = 0, at = 0;
    if (is_complex) whole.shape[rank++] = 2, one.shape[at++] = 2;
    if (experts > 1) whole.shape[rank++] = experts;
    whole.shape[rank++] = rows, whole.shape[rank++] = C;
    one.shape[at++] = R, one.shape[at++] = C;
    cmha_adamw_args a = usual_args();
    cmha_parameters all, single;
    cmha_real *g = check_array(STEPS * planes * n, 1), *start = check_zeros(planes * n);
    double worst = 0;
    CHECK_OK(cmha_parameters_init(&all, &context, &whole, 1));
    all.list->matrices = parts;
    CHECK_OK(cmha_parameters_optimiser(&all, "muon"));
    memcpy(start, all.data, planes * n * sizeof *start);
    for (size_t t = 0; t < STEPS; t++) {
        memcpy(all.grad, g + t * planes * n, planes * n * sizeof *g);
        CHECK_OK(cmha_parameters_step(&all, &a, CMHA_CLIP_WHOLE, 0, NULL));
    }
    for (size_t k = 0; k < experts * (size_t)parts; k++) {
        CHECK_OK(cmha_parameters_init(&single, &context, &one, 1));
        CHECK_OK(cmha_parameters_optimiser(&single, "muon"));
        for (size_t z = 0; z < planes; z++)
            memcpy(single.data + z * R * C, start + z * n + k * R * C, R * C * sizeof *start);
        for (size_t t = 0; t < STEPS; t++) {
            for (size_t z = 0; z < planes; z++)
                memcpy(single.grad + z * R * C, g + (t * planes + z) * n + k * R * C, R * C * sizeof *g);
            CHECK_OK(cmha_parameters_step(&single, &a, CMHA_CLIP_WHOLE, 0, NULL));
        }
        for (size_t z = 0; z < planes; z++)
            worst = fmax(worst, check_distance(single.data + z * R * C, all.data + z * n + k * R * C, R * C));
        cmha_parameters_close(&single);
    }
    CHECK_THAT(worst <= 0, "complex %d, %zu experts of %d: %g apart", is_complex, experts, parts, worst);
    cmha_parameters_close(&all);
    free(g), free(start);
}

/* Whom Muon is for: in every kind, the matrices of the blocks; embeddings, heads, vectors, maps and what a
   score declares keep two moments. A pattern says otherwise, and files keep that. */
static void served(void) {
    const char *kind;
    for (size_t i = 0; (kind = cmha_kind_name(i, NULL)) != NULL; i++) {
        cmha_model_config c;
        cmha_model model;
        size_t some = 0, other = 0;
        cmha_config_defaults(cmha_model_table(), &c);
        CHECK_OK(cmha_config_set_all(&context, cmha_model_table(), &c,
                                     "n_layers=2 d_model=16 n_heads=2 d_ff=24 vocabulary=11 "
                                     "max_positions=8"));
        CHECK_OK(cmha_kind(&context, kind, &c));
        if (!CHECK_THAT(!cmha_model_init(&model, &context, &c), "%s", cmha_error(&context))) continue;
        cmha_parameters *p = &model.parameters;
        CHECK_OK(cmha_parameters_optimiser(p, "muon"));
        for (size_t k = 0; k < p->count; k++) {
            const cmha_parameter *one = &p->list[k];
            int in_block = !strncmp(one->name, "blocks.", 7), weight = strstr(one->name, ".weight") != NULL;
            int wide = one->tensor.rank - one->is_complex >= 2, muon = one->kept[1] == SIZE_MAX;
            CHECK_THAT(!muon || (in_block && wide), "%s: %s is Muon's", kind, one->name);
            CHECK_THAT(muon || !in_block || !wide || !weight, "%s: %s is AdamW's", kind, one->name);
            some += (size_t)muon, other += (size_t)!muon;
        }
        CHECK_THAT(some && other, "%s: %zu and %zu", kind, some, other);
        cmha_model_close(&model);
    }
}

static void chosen(void) {
    cmha_model_config c;
    cmha_trainer_config t;
    cmha_model model;
    cmha_trainer trainer;
    cmha_config_defaults(cmha_model_table(), &c);
    cmha_config_defaults(cmha_trainer_table(), &t);
    CHECK_OK(cmha_config_set_all(&context, cmha_model_table(), &c,
                                 "n_layers=1 d_model=16 n_heads=2 d_ff=24 vocabulary=11 max_positions=8"));
    CHECK_OK(cmha_config_set_all(&context, cmha_trainer_table(), &t, "optimiser=muon batch=2 length=4"));
    CHECK_OK(cmha_model_init(&model, &context, &c));
    cmha_parameters *p = &model.parameters;
    size_t n = 0, before, memory[2];
    CHECK_IS(cmha_parameters_tune(p, "*", CMHA_TUNE_OPTIMISER, 3, NULL), CMHA_ERR_ARGUMENT);
    CHECK_IS(cmha_parameters_tune(p, "*", CMHA_TUNE_OPTIMISER, 0.5, NULL), CMHA_ERR_ARGUMENT);
    CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    before = p->kept;
    CHECK_OK(cmha_model_training_memory(&model, 2, 4, &memory[0]));
    CHECK_OK(cmha_parameters_tune(p, "blocks.0.ffn.w1.weight", CMHA_TUNE_OPTIMISER, 1, &n));
    CHECK(n == 1 && p->kept == before + 16 * 24);
    CHECK_OK(cmha_model_training_memory(&model, 2, 4, &memory[1]));
    CHECK(memory[1] - memory[0] == 16 * 24 * sizeof(cmha_real));
    CHECK_OK(cmha_parameters_tune(p, "*.ln1.weight,tok_emb.weight", CMHA_TUNE_OPTIMISER, 2, &n));
    CHECK(n == 2 && cmha_parameters_find(p, "tok_emb.weight")->kept[1] == SIZE_MAX);
    CHECK(cmha_parameters_find(p, "blocks.0.ln1.weight")->kept[1] != SIZE_MAX); /* it is no matrix */
    char folder[64] = "/tmp/cmha-optimisers-XXXXXX", path[128];
    if (!CHECK(system_folder(folder))) return;
    snprintf(path, sizeof path, "%s/state", folder);
    CHECK_OK(cmha_trainer_save(&trainer, path));
    CHECK_OK(cmha_parameters_tune(p, "*", CMHA_TUNE_OPTIMISER, 0, NULL));
    CHECK_OK(cmha_trainer_read(&trainer, path));
    CHECK(cmha_parameters_find(p, "tok_emb.weight")->chosen == 2);
    CHECK(cmha_parameters_find(p, "blocks.0.ffn.w1.weight")->chosen == 1);
    cmha_trainer_close(&trainer), cmha_model_close(&model);
    CHECK(!remove(path) && !rmdir(folder));
}

/* A number of own optimisers without an array is none, as it is of scores. */
static void own_without_an_array(void) {
    cmha_context_config config;
    cmha_context own;
    memset(&config, 0, sizeof config);
    config.n_optimisers = 3;
    CHECK_OK(cmha_context_init(&own, &config));
    for (size_t i = 4; i < 8; i++) CHECK(!cmha_optimiser_name(&own, i));
    cmha_context_close(&own);
}

/* Threads change no bit of a step, matrices being dealt whole. */
static void threads(void) {
    cmha_real *result[2] = {NULL, NULL};
    size_t n = 0;
    for (int k = 0; k < 2; k++) {
        cmha_context_config config;
        cmha_context own;
        cmha_parameters p;
        const cmha_parameter_row rows[] = {{"a", {70, 30, 0, 0}, 0, 1, 1, 0},
                                           {"b", {2, 9, 40, 0}, 0, 1, 1, 1},
                                           {"c", {3, 8, 8, 0}, 0, 1, 1, 0},
                                           {"d", {50, 0, 0, 0}, 0, 1, 0, 0}};
        cmha_adamw_args a = usual_args();
        memset(&config, 0, sizeof config);
        config.threads = 1 + 2 * k, config.seed = 5;
        CHECK_OK(cmha_context_init(&own, &config));
        CHECK_OK(cmha_parameters_init(&p, &own, rows, 4));
        CHECK_OK(cmha_parameters_optimiser(&p, "muon"));
        check_seed = 77;
        for (int t = 0; t < 3; t++) {
            check_fill(p.grad, p.size, 1);
            CHECK_OK(cmha_parameters_step(&p, &a, CMHA_CLIP_WHOLE, 0, NULL));
        }
        n = p.size;
        result[k] = check_zeros(n);
        memcpy(result[k], p.data, n * sizeof **result);
        cmha_parameters_close(&p), cmha_context_close(&own);
    }
    CHECK(!memcmp(result[0], result[1], n * sizeof **result));
    free(result[0]), free(result[1]);
}

int main(void) {
    CHECK_OK(cmha_context_init(&context, NULL));
    for (size_t i = 0; i < SHAPES; i++)
        for (int is_complex = 0; is_complex < 2; is_complex++) {
            singular_values(shapes[i][0], shapes[i][1], is_complex);
            invariance(shapes[i][0], shapes[i][1], is_complex);
        }
    zeros_and_ranks();
    lion_at_rest();
    real_in_complex();
    formulas("lion", 0);
    formulas("sgd", 0);
    formulas("sgd", 1);
    scaled();
    for (int is_complex = 0; is_complex < 2; is_complex++) {
        fused(is_complex, 1, 1);
        fused(is_complex, 1, 3);
        fused(is_complex, 4, 1);
    }
    served();
    chosen();
    own_without_an_array();
    threads();
    cmha_context_close(&context);
    return check_end();
}
