/* Models that read numbers: what they learn, decode, refuse, save and count; frames of samples; dtype C64. */
#include "models.h"
#include "system.h"

enum { F = 2, Y = 2, V = 7, CAPACITY = 12, LONGEST = 40 };

static cmha_context context;
static char folder[] = "/tmp/cmha-features-XXXXXX";

static const char *const families[] = {
    "family=real attention=rope", "family=cope attention=dot",
    "family=mobius mobius_heads=2 attention=dot position=sinusoidal placement=post", "family=crat"};
enum { FAMILIES = sizeof families / sizeof *families };

static const char *path_of(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static cmha_model_config with(const char *family, const char *options) {
    cmha_model_config config = check_model_config();
    config.vocabulary = V, config.features = F, config.init_std = 0.1;
    models_set(&context, &config, family);
    models_set(&context, &config, options);
    return config;
}

/* Features, ids, targets and values of a batch for a configuration, drawn anew; freed by drop_batch. */
static cmha_batch draw_batch(const cmha_model_config *c, size_t batch, size_t length) {
    size_t W = c->features * (c->complex_features ? 2 : 1), n = batch * length, i;
    int32_t *ids = (int32_t *)check_alloc(2 * n, sizeof *ids);
    cmha_real *values = check_array(n * (c->values + 1), 1), *labels = check_zeros(batch);
    cmha_batch b;
    memset(&b, 0, sizeof b);
    for (i = 0; i < 2 * n; i++) ids[i] = (int32_t)check_below(V);
    for (i = 0; i < n * c->values; i++)
        if (i % 5 == 3) values[i] = (cmha_real)NAN;
    for (i = 0; i < batch; i++) labels[i] = (cmha_real)(i % 2);
    b.ids = c->tokens ? ids : NULL, b.targets = ids + n, b.batch = batch, b.length = length;
    b.features = check_array(n * W, 1);
    b.values = values, b.labels = labels;
    return b;
}

static void drop_batch(cmha_batch *b) {
    size_t n = b->batch * b->length;
    free((void *)(uintptr_t)(b->targets - n)), free((void *)(uintptr_t)b->features);
    free((void *)(uintptr_t)b->values), free((void *)(uintptr_t)b->labels);
}

/* Keeps of a batch what one objective takes. */
static cmha_batch only(cmha_batch b, int labels, int values) {
    if (!labels) b.labels = NULL;
    if (!values) b.values = NULL;
    return b;
}

static cmha_real *predicted(cmha_model *model, const cmha_batch *b, int logits) {
    const cmha_model_config *c = &model->config;
    size_t width = logits ? c->vocabulary : c->values * (c->gaussian ? 2 : 1);
    cmha_real *y = check_zeros(b->batch * b->length * width);
    if (logits) CHECK_THAT(!cmha_model_logits(model, b, y), "%s", cmha_error(&context));
    else CHECK_THAT(!cmha_model_predict(model, b, y), "%s", cmha_error(&context));
    return y;
}

/* ---- what they learn ---- */

/* Signals that turn left or right at a random phase, by frames of two samples. */
static void tell_apart(const char *family, int is_complex, double most) {
    enum { B = 16, N = 12, STEPS = 120 };
    cmha_model_config m = with(family, "causal=0 tokens=0 vocabulary=0 classes=2 pool=mean d_model=32 "
                                       "feature_norm=frame n_heads=4 d_ff=64");
    cmha_trainer_config t;
    cmha_model model;
    cmha_trainer trainer;
    cmha_batch b;
    cmha_real samples[4 * N], scores[2 * B], labels[B], *x = check_zeros(B * N * 2 * F);
    size_t i, j, right = 0;
    int step;
    double loss = 0;
    m.complex_features = is_complex, m.features = is_complex ? F : 2 * F;
    cmha_config_defaults(cmha_trainer_table(), &t);
    t.batch = B, t.length = N, t.lr = 3e-3, t.steps = STEPS;
    memset(&b, 0, sizeof b);
    b.features = x, b.labels = labels, b.batch = B, b.length = N;
    CHECK_OK(cmha_model_init(&model, &context, &m)), CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    for (step = 0; step <= STEPS; step++) {
        for (i = 0; i < B; i++) {
            double phase = 3 * check_random(), turn = 0.3 + 0.2 * check_random();
            labels[i] = (cmha_real)(i % 2);
            for (j = 0; j < 2 * N; j++) {
                double angle = phase + (i % 2 ? turn : -turn) * (double)j;
                samples[j] = (cmha_real)(cos(angle) + 0.1 * check_random());
                samples[2 * N + j] = (cmha_real)(sin(angle) + 0.1 * check_random());
            }
            CHECK(cmha_frames(samples, 2 * N, 2, F, F, x + i * N * 2 * F) == N);
        }
        if (step < STEPS) CHECK_OK(cmha_trainer_step_batch(&trainer, &b, &loss));
    }
    CHECK_OK(cmha_model_classify(&model, &b, scores));
    for (i = 0; i < B; i++) right += (scores[2 * i + 1] > scores[2 * i]) == (i % 2 != 0);
    CHECK_THAT(right + 1 >= B && loss < most, "%s complex=%d: %zu of %d new signals right, loss %.3f", family,
               is_complex, right, B, loss);
    cmha_trainer_close(&trainer), cmha_model_close(&model), free(x);
}

/* A causal model foretells the next sample of a turning phasor, whose speed it has to see, and how well. */
static void foretell(const char *family) {
    enum { B = 8, N = 16, STEPS = 150 };
    cmha_model_config m = with(family, "tokens=0 vocabulary=0 features=1 complex_features=1 values=2 "
                                       "gaussian=1 d_model=32 n_heads=4 d_ff=64");
    cmha_trainer_config t;
    cmha_model model;
    cmha_trainer trainer;
    cmha_batch b;
    cmha_real *x = check_zeros(B * N * 2), *next = check_zeros(B * N * 2), *y;
    double loss = 0, ours = 0, last = 0, spread = 0;
    size_t i, j, part;
    int step;
    cmha_config_defaults(cmha_trainer_table(), &t);
    t.batch = B, t.length = N, t.lr = 3e-3, t.steps = STEPS;
    memset(&b, 0, sizeof b);
    b.features = x, b.values = next, b.batch = B, b.length = N;
    CHECK_OK(cmha_model_init(&model, &context, &m)), CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    for (step = 0; step <= STEPS; step++) {
        for (i = 0; i < B; i++) {
            double phase = 3 * check_random(), turn = 0.6 + 0.3 * check_random();
            for (j = 0; j <= N; j++)
                for (part = 0; part < 2; part++) {
                    double angle = phase + turn * (double)j, z = part ? sin(angle) : cos(angle);
                    if (j < N) x[(i * N + j) * 2 + part] = (cmha_real)z;
                    if (j) next[(i * N + j - 1) * 2 + part] = (cmha_real)(j < N ? z : NAN);
                }
        }
        if (step < STEPS)
            CHECK_THAT(!cmha_trainer_step_batch(&trainer, &b, &loss), "%s", cmha_error(&context));
    }
    y = predicted(&model, &b, 0);
    for (i = 0; i < B; i++)
        for (j = 2; j + 1 < N; j++) /* by then the speed can be known */
            for (part = 0; part < 2; part++) {
                size_t at = i * N + j;
                ours += pow((double)(y[at * 4 + part] - next[at * 2 + part]), 2);
                last += pow((double)(x[at * 2 + part] - next[at * 2 + part]), 2);
                spread += exp((double)y[at * 4 + 2 + part]);
            }
    CHECK_THAT(ours < 0.25 * last, "%s: squared error %.3f, of the last sample repeated %.3f", family, ours,
               last);
    CHECK_THAT(spread > ours / 5 && spread < ours * 5, "%s: squared errors sum to %.3f, variances to %.3f",
               family, ours, spread);
    free(x), free(next), free(y);
    cmha_trainer_close(&trainer), cmha_model_close(&model);
}

/* ---- losses ---- */

/* The loss of values from what is predicted, by the formulas; NaN do not count, all NaN are no loss. */
static void loss_of_values(void) {
    int gaussian;
    for (gaussian = 0; gaussian < 2; gaussian++) {
        cmha_model_config m = with(families[3], "tokens=0 values=2 complex_features=1");
        cmha_model model;
        cmha_batch b, one;
        cmha_real *y, *none;
        double want = 0, got = 0;
        size_t i, counted = 0;
        m.gaussian = gaussian;
        CHECK_OK(cmha_model_init(&model, &context, &m));
        check_fill(cmha_parameters_find(&model.parameters, "value.bias")->tensor.data, gaussian ? 4 : 2, 20);
        b = draw_batch(&m, 2, 6), one = only(b, 0, 1);
        y = predicted(&model, &one, 0);
        for (i = 0; i < 2 * 6 * Y; i++) {
            double mean = (double)y[gaussian ? i / Y * 2 * Y + i % Y : i], target = (double)b.values[i];
            double s = gaussian ? (double)y[i / Y * 2 * Y + Y + i % Y] : 0;
            if (target != target) continue;
            counted++;
            CHECK(fabs(s) <= 16);
            if (gaussian) want += 0.5 * (s + pow(target - mean, 2) / exp(s) + log(2 * acos(-1.0)));
            else want += pow(target - mean, 2);
        }
        CHECK(counted == 19);
        CHECK_OK(cmha_model_loss(&model, &one, &got));
        CHECK_NEAR(got, want / (double)counted, 1e-4 * (1 + fabs(want)));
        none = check_zeros(2 * 6 * Y);
        for (i = 0; i < 2 * 6 * Y; i++) none[i] = (cmha_real)NAN;
        one.values = none;
        CHECK_OK(cmha_model_loss(&model, &one, &got));
        CHECK(got == 0);
        CHECK_OK(cmha_model_gradient(&model, &one, 1, 0, &got));
        CHECK(got == 0 && check_largest(model.parameters.grad, model.parameters.size) == 0);
        free(none), free(y), drop_batch(&b), cmha_model_close(&model);
    }
}

/* ---- norms, padding, phases ---- */

/* Under a norm factors do not matter, from the smallest to the largest number; zeros stay zeros. */
static void norms(void) {
    static const double factors[3] = {3.7, 1e-30, 1e30};
    int norm, f, is_complex;
    for (norm = CMHA_FEATURE_NORM_FRAME; norm <= CMHA_FEATURE_NORM_SEQUENCE; norm++)
        for (f = 0; f < 3; f++)
            for (is_complex = 0; is_complex < 2; is_complex++) {
                cmha_model_config m = with(families[f], "tokens=0 values=2 causal=0");
                cmha_model model;
                cmha_batch all, b;
                cmha_real *x, *y, *z, mean = 0, *drawn;
                size_t i, W = is_complex ? 2 * F : F, n = 2 * 6 * W;
                m.feature_norm = norm, m.complex_features = is_complex;
                CHECK_OK(cmha_model_init(&model, &context, &m));
                all = draw_batch(&m, 2, 6), b = only(all, 0, 0);
                x = (cmha_real *)(uintptr_t)b.features;
                for (i = 0; i < W; i++) x[i] = 0;
                drawn = check_zeros(n), memcpy(drawn, x, n * sizeof *x);
                y = predicted(&model, &b, 0);
                for (i = 0; i < n; i++)
                    x[i] *= norm == CMHA_FEATURE_NORM_FRAME && i / W % 2 ? 1 : (cmha_real)factors[f];
                z = predicted(&model, &b, 0);
                CHECK_THAT(check_distance(y, z, 2 * 6 * Y) < check_tolerance(1e-12, 1e-4),
                           "norm %d, factor %g: off by %g", norm, factors[f], check_distance(y, z, 24));
                free(z);
                /* by hand, and then no norm, the same */
                memcpy(x, drawn, n * sizeof *x), free(drawn);
                for (i = 0; i < n; i++) {
                    size_t span = norm == CMHA_FEATURE_NORM_FRAME ? W : 6 * W, j;
                    double sum = 0;
                    if (i % span) continue;
                    for (j = i; j < i + span; j++) sum += (double)x[j] * (double)x[j];
                    mean = (cmha_real)sqrt(sum / (double)(span / (is_complex ? 2 : 1)));
                    for (j = i; mean > 0 && j < i + span; j++) x[j] /= mean;
                }
                model.config.feature_norm = CMHA_FEATURE_NORM_NONE;
                z = predicted(&model, &b, 0);
                CHECK_NEAR(check_distance(y, z, 2 * 6 * Y), 0, check_tolerance(1e-12, 1e-4));
                free(z), free(y), drop_batch(&all), cmha_model_close(&model);
            }
}

/* What padding holds, NaN too, changes no bit; elsewhere it is refused and changes nothing. */
static void padding(const char *family) {
    enum { N = 6 };
    static const unsigned char mask[2 * N] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0};
    cmha_model_config m = with(family, "tokens=0 values=2 classes=2 causal=0 complex_features=1 "
                                       "feature_norm=sequence pool=mean");
    cmha_trainer_config t;
    cmha_model model;
    cmha_trainer trainer;
    cmha_batch b, one;
    cmha_real *x, *y, *z, *before, scores[8], kept;
    double loss = 0;
    size_t i, W = 2 * F, bad;
    static const double wrong[2] = {NAN, INFINITY};
    cmha_config_defaults(cmha_trainer_table(), &t);
    t.batch = 2, t.length = N;
    CHECK_OK(cmha_model_init(&model, &context, &m)), CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    b = draw_batch(&m, 2, N), b.key_mask = mask;
    one = only(b, 0, 0);
    x = (cmha_real *)(uintptr_t)b.features;
    y = predicted(&model, &one, 0);
    CHECK_OK(cmha_model_classify(&model, &one, scores));
    for (i = 9 * W; i < 12 * W; i++) x[i] = (cmha_real)(i % 2 ? NAN : 1e30);
    z = predicted(&model, &one, 0);
    CHECK_OK(cmha_model_classify(&model, &one, scores + 4));
    CHECK(memcmp(y, z, 9 * Y * sizeof *y) == 0 && memcmp(scores, scores + 4, 4 * sizeof *scores) == 0);
    one.features += N * W, one.batch = 1, one.length = 3, one.key_mask = NULL; /* and alone it is the same */
    CHECK_OK(cmha_model_predict(&model, &one, z));
    CHECK_NEAR(check_distance(y + N * Y, z, 3 * Y), 0, check_tolerance(1e-12, 1e-5));
    one = only(b, 1, 0);
    CHECK_THAT(!cmha_trainer_step_batch(&trainer, &one, &loss) && isfinite(loss), "%s", cmha_error(&context));
    CHECK(check_finite(model.parameters.data, model.parameters.size));
    before = check_zeros(3 * model.parameters.size);
    memcpy(before, model.parameters.data, model.parameters.size * sizeof *before);
    memcpy(before + model.parameters.size, model.parameters.moments,
           2 * model.parameters.size * sizeof *before);
    for (bad = 0; bad < 2; bad++) {
        size_t step = trainer.step;
        kept = x[7 * W + 3], x[7 * W + 3] = (cmha_real)wrong[bad];
        CHECK_IS(cmha_model_predict(&model, &one, z), CMHA_ERR_NOT_FINITE);
        CHECK_THAT(strstr(cmha_error(&context), "number 3 of position 7") != NULL, "%s",
                   cmha_error(&context));
        CHECK_IS(cmha_trainer_step_batch(&trainer, &one, &loss), CMHA_ERR_NOT_FINITE);
        CHECK(trainer.step == step + 1);
        CHECK(memcmp(before, model.parameters.data, model.parameters.size * sizeof *before) == 0);
        CHECK(memcmp(before + model.parameters.size, model.parameters.moments,
                     2 * model.parameters.size * sizeof *before) == 0);
        x[7 * W + 3] = kept;
    }
    CHECK_OK(cmha_trainer_step_batch(&trainer, &one, &loss));
    free(before), free(y), free(z), drop_batch(&b);
    cmha_trainer_close(&trainer), cmha_model_close(&model);
}

/* Features whose product is imaginary are positions moved by as much: gamma p + v, of tokens that stay. */
static void imaginary(const char *family, double gamma) {
    enum { N = 6, D = 16 };
    cmha_model_config m = with(family, "complex_features=1 values=2");
    cmha_model model;
    cmha_batch b;
    cmha_real *y[3], *x, *c, *p;
    size_t i, j, W = 2 * F;
    CHECK_OK(cmha_model_init(&model, &context, &m));
    c = cmha_parameters_find(&model.parameters, "feature.weight")->tensor.data; /* [2, D, F] */
    p = cmha_parameters_find(&model.parameters, "pos_emb.weight")->tensor.data;
    memset(c, 0, D * F * sizeof *c);
    b = draw_batch(&m, 1, N), x = (cmha_real *)(uintptr_t)b.features;
    for (i = 0; i < N * W; i++) x[i] = i % W < F ? x[i % W] : 0;
    y[0] = predicted(&model, &b, 0);
    for (i = 0; i < N; i++)
        for (j = 0; j < D * F; j++)
            p[i * D + j / F] += (cmha_real)((double)(c[D * F + j] * x[j % F]) / gamma);
    memset(x, 0, N * W * sizeof *x);
    y[1] = predicted(&model, &b, 0);
    for (i = 0; i < N; i++)
        for (j = 0; j < D / 2; j++) p[i * D + j] *= -1; /* of all a norm would make nothing */
    y[2] = predicted(&model, &b, 0);
    CHECK_NEAR(check_distance(y[0], y[1], N * Y), 0, check_tolerance(1e-12, 1e-5));
    CHECK(check_distance(y[0], y[2], N * Y) > 1e-3);
    free(y[0]), free(y[1]), free(y[2]), drop_batch(&b), cmha_model_close(&model);
}

/* Features turned by e^(i phi) turn the state of crat: the whole attention sublayer, whose probabilities then
   have not changed. The feed-forward layer is off, the last norm keeps phases. */
static void turned(const char *options, int turns) {
    enum { N = 9, D = 16 };
    cmha_model_config m = with("family=crat n_layers=1 tokens=0 vocabulary=0 causal=0 complex_features=1 "
                               "norm=rmsnorm values=1",
                               options);
    cmha_model model;
    cmha_tape tape;
    cmha_batch b;
    cmha_tensor *s[2] = {NULL, NULL};
    cmha_parameter *p;
    cmha_real *x, c = (cmha_real)cos(1.1), d = (cmha_real)sin(1.1), seen[2][N * N];
    double off = 0, size = 0;
    size_t i, k;
    CHECK_OK(cmha_model_init(&model, &context, &m)), CHECK_OK(cmha_tape_init(&tape, &context, 0));
    if ((p = cmha_parameters_find(&model.parameters, "blocks.0.ffn.w2.weight")) != NULL)
        memset(p->tensor.data, 0, p->tensor.size * sizeof(cmha_real));
    for (i = 0; i < model.parameters.count; i++) /* or a start near 0 would hide what they do */
        if (strstr(model.parameters.list[i].name, "wqkv") || strstr(model.parameters.list[i].name, "theta"))
            check_fill(model.parameters.list[i].tensor.data, model.parameters.list[i].tensor.size, 0.8);
    b = draw_batch(&m, 1, N);
    x = (cmha_real *)(uintptr_t)b.features;
    for (k = 0; k < 2; k++) {
        cmha_tensor *y = cmha_model_states(&model, &tape, &b, NULL);
        if (!CHECK_THAT(y != NULL, "%s", cmha_error(&context))) return;
        s[k] = cmha_tensor_new(&tape, 3, y->shape, 0);
        memcpy(s[k]->data, y->data, y->size * sizeof *y->data);
        CHECK_THAT(!cmha_model_attention(&model, &b, 0, 1, CMHA_SEE_PROBABILITIES, seen[k]), "%s",
                   cmha_error(&context));
        for (i = 0; i < N * F; i++) {
            cmha_real *re = x + i / F * 2 * F + i % F, z = *re;
            *re = c * z - d * re[F], re[F] = d * z + c * re[F];
        }
    }
    for (i = 0; i < N * D / 2; i++) {
        const cmha_real *z = s[0]->data + i / (D / 2) * D + i % (D / 2);
        const cmha_real *w = s[1]->data + i / (D / 2) * D + i % (D / 2);
        off += fabs((double)(c * z[0] - d * z[D / 2] - w[0]));
        off += fabs((double)(d * z[0] + c * z[D / 2] - w[D / 2]));
        size += fabs((double)z[0]) + fabs((double)z[D / 2]);
    }
    CHECK_THAT((off < check_tolerance(1e-12, 1e-5) * size) == turns, "%s: the state is off by %g of %g",
               options, off, size);
    off = check_distance(seen[0], seen[1], N * N);
    CHECK_THAT((off < check_tolerance(1e-12, 1e-5)) == turns, "%s: probabilities are off by %g", options,
               off);
    for (off = 0, i = 1; i < N; i++) off += fabs((double)(seen[0][i] - seen[0][0]));
    CHECK_THAT(off > 1e-2, "%s: the probabilities are all alike", options);
    drop_batch(&b), cmha_tape_close(&tape), cmha_model_close(&model);
}

/* ---- decoding ---- */

/* Frame by frame, or in pieces, a cache says what the forward pass says of the last position; when it slides,
   what a pass over those it still holds says. */
static void decoding(const char *family, const char *options, int logits) {
    enum { N = 17, B = 2 };
    static const size_t pieces[] = {1, 1, 3, 1, 5, 1, 1, 4};
    cmha_model_config m = with(family, options);
    cmha_model model;
    cmha_cache cache;
    cmha_batch b, part;
    size_t W, width, at = 0, i, row, slides;
    cmha_real *want, *got, *x;
    int32_t *ids;
    if (!CHECK_THAT(!cmha_model_init(&model, &context, &m), "%s: %s", options, cmha_error(&context))) return;
    W = m.features * (m.complex_features ? 2 : 1), width = logits ? V : m.values * (m.gaussian ? 2 : 1);
    b = draw_batch(&m, B, N), part = b;
    got = check_zeros(B * width), x = check_zeros(B * N * W);
    ids = (int32_t *)check_alloc(B * N, sizeof *ids);
    for (slides = 0; slides < 2; slides++) {
        CHECK_THAT(!cmha_cache_init(&cache, &model, B, slides ? CAPACITY : N, slides != 0, NULL), "%s",
                   cmha_error(&context));
        for (i = 0, at = 0; i < sizeof pieces / sizeof *pieces; i++) {
            size_t n = pieces[i], from;
            for (row = 0; row < B; row++) {
                memcpy(x + row * n * W, b.features + (row * N + at) * W, n * W * sizeof *x);
                if (b.ids) memcpy(ids + row * n, b.ids + row * N + at, n * sizeof *ids);
            }
            CHECK_THAT(!cmha_cache_append_features(&cache, b.ids ? ids : NULL, x, n, got), "%s",
                       cmha_error(&context));
            at += n, from = cache.endless ? 0 : cache.first; /* without an end it knows them all */
            CHECK(cache.first + cache.length == at && (!slides) <= (from == 0));
            part.length = at - from;
            for (row = 0; row < B; row++) {
                memcpy(x + row * part.length * W, b.features + (row * N + from) * W,
                       part.length * W * sizeof *x);
                if (b.ids) memcpy(ids + row * part.length, b.ids + row * N + from, part.length * sizeof *ids);
            }
            part.features = x, part.ids = b.ids ? ids : NULL;
            want = predicted(&model, &part, logits);
            for (row = 0; row < B; row++)
                CHECK_THAT(check_distance(want + ((row + 1) * part.length - 1) * width, got + row * width,
                                          width) < check_tolerance(1e-10, 2e-4),
                           "%s %s: position %zu of row %zu differs by %g", family, options, at, row,
                           check_distance(want + ((row + 1) * part.length - 1) * width, got + row * width,
                                          width));
            free(want);
        }
        CHECK(!slides == (cache.first == 0));
        cmha_cache_close(&cache);
    }
    free(got), free(x), free(ids), drop_batch(&b), cmha_model_close(&model);
}

/* More frames than a sliding cache holds: the last are read. A full one, NaN and strangers change nothing. */
static void caches(void) {
    cmha_model_config m = with(families[0], "tokens=0 vocabulary=0 values=2");
    cmha_model model, plain;
    cmha_cache cache, other;
    cmha_batch b;
    cmha_real got[2 * Y], again[Y], *x, *want;
    CHECK_OK(cmha_model_init(&model, &context, &m));
    b = draw_batch(&m, 1, LONGEST), x = (cmha_real *)(uintptr_t)b.features;
    CHECK_OK(cmha_cache_init(&cache, &model, 1, CAPACITY, 1, NULL));
    CHECK_OK(cmha_cache_append_features(&cache, NULL, x, LONGEST, got));
    CHECK(cache.first + cache.length == LONGEST && cache.length == CAPACITY);
    b.features = x + (LONGEST - CAPACITY) * F, b.length = CAPACITY;
    want = predicted(&model, &b, 0);
    CHECK_NEAR(check_distance(want + (CAPACITY - 1) * Y, got, Y), 0, check_tolerance(1e-12, 1e-5));
    b.features = x, b.length = LONGEST;
    cmha_cache_close(&cache), free(want);

    CHECK_OK(cmha_cache_init(&cache, &model, 1, CAPACITY, 0, NULL));
    CHECK_OK(cmha_cache_init(&other, &model, 1, CAPACITY, 0, NULL));
    CHECK_OK(cmha_cache_append_features(&cache, NULL, x, 5, got));
    CHECK_OK(cmha_cache_append_features(&other, NULL, x, 5, NULL));
    CHECK_IS(cmha_cache_append_features(&other, NULL, x, 8, got), CMHA_ERR_FULL);
    x[5 * F + 1] = (cmha_real)NAN;
    CHECK_IS(cmha_cache_append_features(&other, NULL, x + 5 * F, 1, got), CMHA_ERR_NOT_FINITE);
    x[5 * F + 1] = 1;
    CHECK_IS(cmha_cache_append_features(&other, NULL, NULL, 1, got), CMHA_ERR_ARGUMENT);
    CHECK_IS(cmha_cache_append_features(&other, NULL, x, 0, got), CMHA_ERR_ARGUMENT);
    CHECK_IS(cmha_cache_append(&other, b.targets, 1, got), CMHA_ERR_ARGUMENT);
    CHECK_THAT(strstr(cmha_error(&context), "cmha_cache_append_features") != NULL, "%s",
               cmha_error(&context));
    CHECK_IS(cmha_generate(&other, b.targets, 1, 1, NULL, 1, NULL, NULL), CMHA_ERR_ARGUMENT);
    CHECK(other.length == 5);
    CHECK_OK(cmha_cache_append_features(&cache, NULL, x + 5 * F, 1, got));
    CHECK_OK(cmha_cache_append_features(&other, NULL, x + 5 * F, 1, again));
    CHECK(memcmp(got, again, sizeof again) == 0);
    cmha_cache_close(&cache), cmha_cache_close(&other);

    m = with(families[0], "features=0");
    CHECK_OK(cmha_model_init(&plain, &context, &m)), CHECK_OK(cmha_cache_init(&cache, &plain, 1, 4, 0, NULL));
    CHECK_IS(cmha_cache_append_features(&cache, b.targets, x, 1, NULL), CMHA_ERR_ARGUMENT);
    CHECK(cache.length == 0);
    cmha_cache_close(&cache), cmha_model_close(&plain);
    m = with(families[0], "features=2");
    CHECK_OK(cmha_model_init(&plain, &context, &m)), CHECK_OK(cmha_cache_init(&cache, &plain, 1, 4, 0, NULL));
    CHECK_IS(cmha_cache_append_features(&cache, NULL, x, 1, NULL), CMHA_ERR_ARGUMENT);
    CHECK_IS(cmha_cache_append(&cache, b.targets, 1, NULL), CMHA_ERR_ARGUMENT);
    CHECK_OK(cmha_cache_append_features(&cache, b.targets, x, 1, NULL));
    cmha_cache_close(&cache), cmha_model_close(&plain);
    m = with(families[0], "tokens=0 vocabulary=0 classes=2");
    CHECK_OK(cmha_model_init(&plain, &context, &m));
    CHECK_IS(cmha_cache_init(&cache, &plain, 1, 4, 0, NULL), CMHA_ERR_STATE); /* no head of positions */
    cmha_model_close(&plain);
    drop_batch(&b), cmha_model_close(&model);
}

/* Packed weights serve models without a vocabulary, and their value head is packed too. */
static void packed(const char *family) {
    cmha_model_config m = with(family, "tokens=0 vocabulary=0 values=2 complex_features=1 d_model=32");
    cmha_model model;
    cmha_cache cache[2];
    cmha_batch b;
    cmha_real y[2 * Y];
    size_t i;
    CHECK_OK(cmha_model_init(&model, &context, &m));
    b = draw_batch(&m, 1, 7);
    for (i = 0; i < 2; i++) {
        if (i) CHECK_THAT(!cmha_model_pack(&model, CMHA_STORAGE_INT8), "%s", cmha_error(&context));
        CHECK_OK(cmha_cache_init(&cache[i], &model, 1, 8, 0, NULL));
        CHECK_OK(cmha_cache_append_features(&cache[i], NULL, b.features, 7, y + i * Y));
        cmha_cache_close(&cache[i]);
    }
    CHECK(check_distance(y, y + Y, Y) < 0.05 && check_distance(y, y + Y, Y) > 0);
    CHECK(model.value_weight->packed && !model.value_weight->data);
    drop_batch(&b), cmha_model_close(&model);
}

/* ---- memory ---- */

static void memory(const char *family) {
    static const struct { const char *options; int labels, values; } kinds[] = {
        {"tokens=0 vocabulary=0 classes=2 causal=0 feature_norm=sequence", 1, 0},
        {"tokens=0 vocabulary=0 values=2 gaussian=1 complex_features=1", 0, 1},
        {"values=2 complex_features=1 recompute=1 dropout=0.1", 0, 1},
        {"tokens=0 causal=0 complex_features=1", 0, 0},
        {"causal=1 token_types=2", 0, 0}};
    size_t i;
    for (i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        cmha_model_config m = with(family, kinds[i].options);
        cmha_trainer_config t;
        cmha_batch b = draw_batch(&m, 3, 10), one = only(b, kinds[i].labels, kinds[i].values);
        cmha_config_defaults(cmha_trainer_table(), &t);
        t.batch = 3, t.length = 10;
        models_steps_allocate_nothing(&m, &t, NULL, &one, kinds[i].options);
        drop_batch(&b);
    }
}

/* A cache allocates nothing more once its first append has gone through, and a failure of any allocation
   leaves it, and all else, to be closed. */
static void allocations(void) {
    cmha_model_config m = with(families[3], "tokens=0 vocabulary=0 values=2 gaussian=1 complex_features=1");
    check_heap heap;
    cmha_context_config config = check_heap_config(&heap);
    cmha_batch b = draw_batch(&m, 1, LONGEST), one = only(b, 0, 1);
    size_t at, calls, t;
    int done = 0;
    one.length = 8;
    for (at = 0; !done && at < 200; at++) { /* 0: none fails */
        cmha_context c;
        cmha_model model;
        cmha_trainer trainer;
        cmha_cache cache;
        cmha_trainer_config tc;
        cmha_real out[4];
        cmha_status status;
        double loss;
        config = check_heap_config(&heap), heap.fail_at = at;
        memset(&model, 0, sizeof model), memset(&trainer, 0, sizeof trainer), memset(&cache, 0, sizeof cache);
        cmha_config_defaults(cmha_trainer_table(), &tc), tc.batch = 1, tc.length = 8;
        CHECK_OK(cmha_context_init(&c, &config));
        status = cmha_model_init(&model, &c, &m);
        if (!status) status = cmha_trainer_init(&trainer, &model, &tc);
        if (!status) status = cmha_trainer_step_batch(&trainer, &one, &loss);
        if (!status) status = cmha_cache_init(&cache, &model, 1, CAPACITY, 1, NULL);
        if (!status) status = cmha_cache_append_features(&cache, NULL, b.features, CAPACITY, out);
        for (t = CAPACITY, calls = heap.calls; !status && t < LONGEST; t++)
            status = cmha_cache_append_features(&cache, NULL, b.features + t * 2 * F, 1, out);
        CHECK_THAT(status || heap.calls == calls, "decoding allocated %zu times", heap.calls - calls);
        CHECK(at ? status == CMHA_ERR_MEMORY || (done = status == CMHA_OK) : !status);
        cmha_cache_close(&cache), cmha_trainer_close(&trainer), cmha_model_close(&model);
        cmha_context_close(&c);
        CHECK(check_heap_empty(&heap));
    }
    CHECK(done);
    drop_batch(&b);
}

/* ---- refusals ---- */

static void refusals(void) {
    static const struct { const char *options, *line; } wrong[] = {
        {"tokens=0 features=0", "tokens = 0 needs features"},
        {"vocabulary=0", "vocabulary = 0 needs tokens = 0"},
        {"features=0 complex_features=1", "need features"},
        {"features=0 feature_norm=frame", "need features"},
        {"feature_norm=sequence", "sees the future"},
        {"gaussian=1", "gaussian needs values"},
        {"family=crat tokens=0 complex_features=1 state_rotation=0", "state_rotation"}};
    cmha_model_config m;
    cmha_model model;
    cmha_batch b, bad;
    cmha_trainer trainer;
    cmha_tokens tokens;
    cmha_real y[64];
    double loss;
    size_t i, bytes;
    for (i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        m = with("", wrong[i].options);
        CHECK_IS(cmha_model_init(&model, &context, &m), CMHA_ERR_ARGUMENT);
        CHECK_THAT(strstr(cmha_error(&context), wrong[i].line) != NULL, "%s: %s", wrong[i].options,
                   cmha_error(&context));
        CHECK_IS(cmha_model_memory(&context, &m, 1, 1, &bytes, &bytes), CMHA_ERR_ARGUMENT);
    }
    m = with("", "tokens=0 vocabulary=0 classes=2 causal=0");
    CHECK_OK(cmha_model_init(&model, &context, &m));
    b = draw_batch(&m, 1, 4);
    bad = only(b, 1, 0), bad.features = NULL;
    CHECK_IS(cmha_model_classify(&model, &bad, y), CMHA_ERR_ARGUMENT);
    CHECK_THAT(strstr(cmha_error(&context), "reads 2 features") != NULL, "%s", cmha_error(&context));
    bad = only(b, 0, 0);
    CHECK_IS(cmha_model_loss(&model, &bad, &loss), CMHA_ERR_STATE); /* targets, but no vocabulary */
    CHECK_IS(cmha_model_logits(&model, &bad, y), CMHA_ERR_STATE);
    CHECK_IS(cmha_model_predict(&model, &bad, y), CMHA_ERR_STATE);
    CHECK_THAT(strstr(cmha_error(&context), "values = 0") != NULL, "%s", cmha_error(&context));
    bad = only(b, 0, 1);
    CHECK_IS(cmha_model_loss(&model, &bad, &loss), CMHA_ERR_STATE);
    CHECK_OK(cmha_trainer_init(&trainer, &model, NULL));
    memset(&tokens, 0, sizeof tokens);
    tokens.data = b.targets, tokens.count = 4, tokens.width = 4;
    CHECK_IS(cmha_trainer_step(&trainer, &tokens, &loss), CMHA_ERR_STATE);
    CHECK_IS(cmha_trainer_evaluate(&trainer, &tokens, &loss), CMHA_ERR_STATE);
    CHECK(trainer.step == 0);
    cmha_trainer_close(&trainer), cmha_model_close(&model);
    m = with("", "features=0");
    CHECK_OK(cmha_model_init(&model, &context, &m));
    bad = only(b, 0, 0), bad.ids = b.targets;
    CHECK_IS(cmha_model_logits(&model, &bad, y), CMHA_ERR_ARGUMENT);
    CHECK_THAT(strstr(cmha_error(&context), "reads 0 features") != NULL, "%s", cmha_error(&context));
    bad.features = NULL;
    CHECK_OK(cmha_model_logits(&model, &bad, y));
    drop_batch(&b), cmha_model_close(&model);
}

/* ---- files ---- */

/* A model of features comes back bit for bit; a model without has the file it always had. */
static void saving(const char *family) {
    cmha_model_config m = with(family, "tokens=0 vocabulary=0 values=2 gaussian=1 complex_features=1 "
                                       "feature_norm=frame");
    cmha_model model, again;
    cmha_archive a;
    cmha_batch b;
    cmha_real *y, *z;
    CHECK_OK(cmha_model_init(&model, &context, &m));
    b = draw_batch(&m, 2, 5);
    y = predicted(&model, &b, 0);
    CHECK_OK(cmha_model_save(&model, path_of("model")));
    CHECK_THAT(!cmha_model_open(&again, &context, path_of("model")), "%s", cmha_error(&context));
    CHECK(!again.token_weight && !again.head_weight && again.feature_weight && again.value_weight);
    z = predicted(&again, &b, 0);
    CHECK(memcmp(y, z, 2 * 5 * 2 * Y * sizeof *y) == 0);
    cmha_model_close(&again), cmha_model_close(&model), free(y), free(z), drop_batch(&b);
    CHECK_OK(cmha_archive_open(&a, &context, path_of("model")));
    CHECK(cmha_archive_metadata(&a, "cfg.tokens") && cmha_archive_metadata(&a, "cfg.features"));
    cmha_archive_close(&a);
    m = with(families[0], "features=0");
    CHECK_OK(cmha_model_init(&model, &context, &m)), CHECK_OK(cmha_model_save(&model, path_of("model")));
    CHECK_OK(cmha_archive_open(&a, &context, path_of("model")));
    CHECK(!cmha_archive_metadata(&a, "cfg.tokens") && !cmha_archive_metadata(&a, "cfg.gaussian") &&
          cmha_archive_metadata(&a, "cfg.recompute"));
    cmha_archive_close(&a), cmha_model_close(&model);
    remove(path_of("model"));
}

static size_t file_bytes(const char *path, unsigned char *to, size_t room) {
    FILE *file = fopen(path, "rb");
    size_t n = file ? fread(to, 1, room, file) : 0;
    if (file) fclose(file);
    return n;
}

/* C64: pairs of floats in the file, planes over the last axis in memory, of any rank, also empty. */
static void complex_numbers(void) {
    static const size_t shapes[4][3] = {{2, 3, 4}, {5}, {0}, {3, 0}};
    static const int ranks[5] = {3, 1, 0, 2, 2};
    static const size_t large[2] = {2, 700};
    enum { ITEMS = 5 };
    static const char *const names[ITEMS] = {"a", "b", "scalar", "none", "large"};
    static const size_t counts[ITEMS] = {24, 5, 1, 0, 1400}, rows[ITEMS] = {4, 5, 1, 1, 700};
    static unsigned char bytes[16384];
    cmha_archive_item items[ITEMS];
    cmha_real *data[ITEMS], read[2800];
    cmha_archive a;
    int64_t whole[48];
    size_t i, j, n;
    for (i = 0; i < ITEMS; i++) {
        data[i] = check_array(2 * counts[i] + 1, 4);
        for (j = 0; j < 2 * counts[i]; j++) data[i][j] = (cmha_real)(float)data[i][j];
        items[i].name = names[i], items[i].data = data[i], items[i].dtype = "C64";
        items[i].shape = i == 4 ? large : shapes[i], items[i].rank = ranks[i];
    }
    CHECK_THAT(!cmha_archive_write(&context, path_of("c64"), items, ITEMS, NULL, 0), "%s",
               cmha_error(&context));
    n = file_bytes(path_of("c64"), bytes, sizeof bytes);
    CHECK_OK(cmha_archive_open(&a, &context, path_of("c64")));
    for (i = 0; i < ITEMS; i++) {
        const cmha_archive_tensor *t = cmha_archive_find(&a, names[i]);
        if (!CHECK(t && t->count == 2 * counts[i] && strcmp(t->dtype, "C64") == 0)) continue;
        CHECK(t->rank == ranks[i] && t->end - t->begin == 8 * counts[i]);
        CHECK_OK(cmha_archive_read(&a, t, read));
        CHECK(memcmp(read, data[i], 2 * counts[i] * sizeof *read) == 0);
        for (j = 0; j < counts[i]; j++) { /* the file, by the format's definition */
            float pair[2];
            size_t at = j / rows[i] * 2 * rows[i] + j % rows[i];
            CHECK(a.data_begin + t->begin + 8 * (j + 1) <= n);
            memcpy(pair, bytes + a.data_begin + t->begin + 8 * j, 8);
            system_little_endian(pair, 2, 4);
            CHECK((cmha_real)pair[0] == data[i][at] && (cmha_real)pair[1] == data[i][at + rows[i]]);
        }
        CHECK_IS(cmha_archive_read_i64(&a, t, whole), CMHA_ERR_FORMAT);
    }
    cmha_archive_close(&a);
    items[0].dtype = "C128";
    CHECK_IS(cmha_archive_write(&context, path_of("c64"), items, 1, NULL, 0), CMHA_ERR_ARGUMENT);
    items[0].dtype = "F16";
    CHECK_IS(cmha_archive_write(&context, path_of("c64"), items, 1, NULL, 0), CMHA_ERR_ARGUMENT);
    for (i = 0; i < ITEMS; i++) free(data[i]);
    remove(path_of("c64"));
}

/* Files that lie about complex numbers, and a model's weights that are complex, are refused. */
static void hostile(void) {
    static const char *const headers[] = {
        "{\"a\":{\"dtype\":\"C64\",\"shape\":[3],\"data_offsets\":[0,16]}}",
        "{\"a\":{\"dtype\":\"C64\",\"shape\":[4],\"data_offsets\":[0,16]}}",
        "{\"a\":{\"dtype\":\"C64\",\"shape\":[2305843009213693954],\"data_offsets\":[0,16]}}",
        "{\"a\":{\"dtype\":\"C64\",\"shape\":[4611686018427387905,2],\"data_offsets\":[0,16]}}"};
    unsigned char data[16] = {0};
    size_t i, j;
    for (i = 0; i < sizeof headers / sizeof *headers; i++) {
        FILE *file = fopen(path_of("bad"), "wb");
        size_t length = strlen(headers[i]);
        cmha_archive a;
        if (!CHECK(file != NULL)) return;
        for (j = 0; j < 8; j++) fputc((int)(length >> 8 * j & 255), file);
        fwrite(headers[i], 1, length, file), fwrite(data, 1, 16, file), fclose(file);
        CHECK_IS(cmha_archive_open(&a, &context, path_of("bad")), CMHA_ERR_FORMAT);
    }
    remove(path_of("bad"));
}

/* ---- frames ---- */

static void frames(void) {
    size_t n, width, hop, f, i, planes, plane, count;
    cmha_real x[2 * 13], y[13 * 2 * 6];
    check_fill(x, 26, 1);
    for (planes = 1; planes <= 2; planes++)
        for (n = 0; n <= 13; n++)
            for (width = 0; width <= 6; width++)
                for (hop = 0; hop <= 7; hop++) {
                    size_t reached = 0, before = 0, wrong = 0;
                    count = cmha_frames(x, n, planes, width, hop, NULL);
                    if (!n || !width || !hop) {
                        CHECK(count == 0);
                        continue;
                    }
                    CHECK(cmha_frames(x, n, planes, width, hop, y) == count);
                    for (f = 0; f < count; f++) { /* each reaches a sample that none before it has */
                        reached = f * hop + width < n ? f * hop + width : n;
                        if (f) CHECK(f * hop < n && reached > before);
                        before = reached;
                        for (plane = 0; plane < planes; plane++)
                            for (i = 0; i < width; i++) {
                                size_t at = f * hop + i;
                                cmha_real want = at >= n ? 0 : x[plane * n + at];
                                cmha_real got = y[(f * planes + plane) * width + i];
                                wrong += got < want || got > want;
                            }
                    }
                    CHECK_THAT(!wrong && (count * hop >= n || reached == n),
                               "%zu planes, %zu samples, width %zu, hop %zu: %zu frames, %zu wrong",
                               planes, n, width, hop, count, wrong);
                }
}

/* A cache of a model that reads ids alone says logits, also where the model has a head for values. */
static void ids_and_values(void) {
    enum { N = 5 };
    cmha_model_config m = with(families[0], "values=2");
    cmha_model model;
    cmha_cache cache;
    cmha_real want[N * V], got[V + 1];
    m.features = 0;
    CHECK_OK(cmha_model_init(&model, &context, &m));
    cmha_batch b = draw_batch(&m, 1, N);
    free((void *)(uintptr_t)b.features);
    b.features = NULL, got[V] = 7;
    CHECK_OK(cmha_model_logits(&model, &b, want));
    CHECK_OK(cmha_cache_init(&cache, &model, 1, N, CMHA_SLIDE_NOT, NULL));
    CHECK_OK(cmha_cache_append_features(&cache, b.ids, NULL, N, got));
    CHECK(check_distance(want + (N - 1) * V, got, V) < check_tolerance(1e-12, 1e-5) && got[V] == 7);
    cmha_cache_close(&cache), cmha_model_close(&model), drop_batch(&b);
}

int main(int argc, char **argv) {
    size_t f;
    (void)argc;
    cmha_blas_restart(argv);
    if (!system_folder(folder)) return perror(folder), 2;
    check_context(&context, 1, 3);
    frames(), complex_numbers(), hostile(), refusals(), caches(), loss_of_values(), norms(), allocations();
    ids_and_values();
    imaginary("family=cope attention=dot cope_imag=learned cope_gamma=0.7", 0.7);
    imaginary("family=mobius mobius_heads=2 attention=dot position=learned placement=post", 1);
    turned("complex_norm=crms", 1);
    turned("complex_norm=cln crat_attention=dot", 1);
    turned("complex_norm=crms crat_attention=linear", 1);
    turned("complex_norm=crms state_gelu=1", 0);
    turned("complex_norm=split", 0);
    for (f = 0; f < FAMILIES; f++) {
        padding(families[f]), memory(families[f]), packed(families[f]), saving(families[f]);
        decoding(families[f], "tokens=0 vocabulary=0 values=2 complex_features=1 feature_norm=frame", 0);
        decoding(families[f], "values=2 gaussian=1 complex_features=1", 0);
        decoding(families[f], "tokens=0 feature_norm=frame", 1);
        decoding(families[f], "token_types=2", 1);
        tell_apart(families[f], 1, 0.3);
        if (!check_quick()) foretell(families[f]);
    }
    tell_apart(families[0], 0, 0.5);
    decoding("family=crat crat_attention=linear", "tokens=0 values=2 complex_features=1", 0);
    decoding("family=real attention=dot position=learned max_positions=17", "tokens=0 values=2", 0);
    cmha_context_close(&context);
    remove(folder);
    return check_end();
}
