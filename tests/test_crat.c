/* The whole of CRAT: windows into a knowledge base, experts, residuals, and the rows of the paper's ablation,
   in models that train, decode, are saved and go on. */
#define _POSIX_C_SOURCE 200809L
#define _DARWIN_C_SOURCE
#include "models.h"

#include <unistd.h>

enum { V = 19, DOCS = 40, WIDTH = 6, B = 2, N = 12, STEPS = 6 };

#define WHOLE                                                                                                \
    "family=crat experts=3 complex_residual=free irw_layers=1 irw_width=6 irw_top=4 irw_tau=0.2 "            \
    "phase_reg=1e-2 mag_reg=1e-2 "                                                                           \
    "balance=0.01 real_heads=1 imag_heads=1"

static cmha_context context;
static cmha_knowledge base, other, empty;
static int32_t ids[2 * B * N];
static char folder[64] = "/tmp/cmha-crat-XXXXXX";

static cmha_model_config with(const char *options) {
    cmha_model_config config = check_model_config();
    models_set(&context, &config, WHOLE);
    models_set(&context, &config, options);
    return config;
}

static cmha_batch batch_of(size_t length) {
    cmha_batch batch;
    memset(&batch, 0, sizeof batch);
    batch.ids = ids, batch.targets = ids + B * N, batch.batch = B, batch.length = length;
    return batch;
}

static int open_model(cmha_model *model, const char *options, const cmha_knowledge *knowledge) {
    cmha_model_config config = with(options);
    size_t i;
    if (!CHECK_THAT(!cmha_model_init(model, &context, &config), "%s: %s", options, cmha_error(&context)))
        return 0;
    for (i = 0; i < model->parameters.size; i++)
        model->parameters.data[i] += (cmha_real)(0.05 * check_random());
    return !knowledge || CHECK_OK(cmha_model_set_knowledge(model, knowledge));
}

static void logits_of(cmha_model *model, cmha_real *logits) {
    cmha_batch batch = batch_of(N);
    CHECK_THAT(!cmha_model_logits(model, &batch, logits), "%s", cmha_error(&context));
    CHECK(check_finite(logits, B * N * V));
}

/* Identity 19: without a base, with an empty one and with one that is too far from every query, a
   window changes no bit. Another base changes the answer, taking it away brings the first one
   back, and nobody else's is touched. */
static void exchanged(const char *options) {
    cmha_real *alone = check_zeros(3 * B * N * V), *got = alone + B * N * V, *swapped = got + B * N * V;
    cmha_model model;
    if (!open_model(&model, options, NULL)) return;
    logits_of(&model, alone);
    CHECK_OK(cmha_model_set_knowledge(&model, &empty));
    logits_of(&model, got);
    CHECK_THAT(!memcmp(alone, got, B * N * V * sizeof *got), "%s: an empty base changes the model", options);
    CHECK_OK(cmha_model_set_knowledge(&model, &base));
    CHECK(model.knowledge_identity == base.identity && base.identity != 0);
    logits_of(&model, got);
    CHECK_THAT(check_distance(alone, got, B * N * V) > 1e-4, "%s: a base changes nothing", options);
    CHECK_OK(cmha_model_set_knowledge(&model, &other));
    logits_of(&model, swapped);
    CHECK_THAT(check_distance(swapped, got, B * N * V) > 1e-4, "%s: another base changes nothing", options);
    CHECK_OK(cmha_model_set_knowledge(&model, &base));
    logits_of(&model, swapped);
    CHECK_THAT(!memcmp(swapped, got, B * N * V * sizeof *got), "%s: the first base is not itself any more",
               options);
    CHECK_OK(cmha_model_set_knowledge(&model, NULL));
    logits_of(&model, got);
    CHECK(!memcmp(alone, got, B * N * V * sizeof *got) && model.knowledge_identity == 0);
    cmha_model_close(&model), free(alone);
}

static void too_far(void) {
    cmha_real *alone = check_zeros(2 * B * N * V), *got = alone + B * N * V;
    cmha_model model;
    if (!open_model(&model, "irw_threshold=1", NULL)) return;
    logits_of(&model, alone);
    CHECK_OK(cmha_model_set_knowledge(&model, &base));
    logits_of(&model, got);
    CHECK(!memcmp(alone, got, B * N * V * sizeof *got));
    cmha_model_close(&model), free(alone);
}

static void refused(void) {
    cmha_model model;
    cmha_knowledge wide, narrow;
    cmha_real *vectors = check_array(4 * 14, 1);
    CHECK_OK(cmha_knowledge_init(&wide, &context, 4, 7, vectors, NULL, NULL, NULL));
    CHECK_OK(cmha_knowledge_init(&narrow, &context, 4, 5, vectors, NULL, NULL, NULL));
    if (open_model(&model, "", &base)) {
        CHECK_IS(cmha_model_set_knowledge(&model, &narrow), CMHA_ERR_SHAPE);
        CHECK_IS(cmha_model_set_knowledge(&model, &wide), CMHA_ERR_SHAPE);
        CHECK(strstr(cmha_error(&context), "7") && strstr(cmha_error(&context), "6") &&
              model.knowledge == &base);
        cmha_model_close(&model);
    }
    CHECK_IS(cmha_model_set_knowledge(&model, &base), CMHA_ERR_STATE); /* it is closed */
    CHECK_IS(cmha_model_set_knowledge(NULL, &base), CMHA_ERR_STATE);
    if (open_model(&model, "irw_layers=0", NULL)) {
        CHECK_IS(cmha_model_set_knowledge(&model, &base), CMHA_ERR_STATE);
        CHECK_OK(cmha_model_set_knowledge(&model, NULL));
        cmha_model_close(&model);
    }
    cmha_knowledge_close(&wide), cmha_knowledge_close(&narrow), free(vectors);
}

/* Token by token and in pieces, the window answers as it does for the whole text; no token sees a later
   one. */
static void decoded(const char *options) {
    static const size_t chunks[] = {1, 5, N};
    cmha_real *full = check_zeros(B * N * V), *again = check_zeros(B * N * V), last[B * V];
    cmha_model model;
    cmha_cache cache;
    size_t i, at, n, b;
    double off = 0;
    if (!open_model(&model, options, &base)) return;
    logits_of(&model, full);
    CHECK_OK(cmha_cache_init(&cache, &model, B, N, 0, NULL));
    for (i = 0; i < 3; i++, cmha_cache_reset(&cache))
        for (at = 0; at < N; at += n) {
            int32_t part[B * N];
            n = chunks[i] < N - at ? chunks[i] : N - at;
            for (b = 0; b < B; b++) memcpy(part + b * n, ids + b * N + at, n * sizeof *part);
            if (!CHECK_THAT(!cmha_cache_append(&cache, part, n, last), "%s", cmha_error(&context))) break;
            for (b = 0; b < B; b++)
                off = fmax(off, check_distance(last + b * V, full + (b * N + at + n - 1) * V, V));
        }
    CHECK_THAT(off < check_tolerance(1e-11, 2e-4), "%s: decoding is off by %.3g", options, off);
    ids[N - 1] = (ids[N - 1] + 1) % V;
    logits_of(&model, again);
    CHECK_THAT(check_distance(full, again, (N - 1) * V) < check_tolerance(1e-12, 2e-5),
               "%s: a token sees a later one", options);
    CHECK(check_distance(full + (N - 1) * V, again + (N - 1) * V, V) > 1e-4);
    cmha_cache_close(&cache), cmha_model_close(&model), free(full), free(again);
}

/* ----------------------------------------------- training ----------------------------------------------- */

static cmha_trainer_config trainer_config(void) {
    cmha_trainer_config t;
    cmha_config_defaults(cmha_trainer_table(), &t);
    t.steps = 100, t.batch = B, t.length = N, t.lr = 1e-2, t.adam_eps = 1e-8, t.warmup = 0;
    t.clip_mode = CMHA_CLIP_NORM;
    return t;
}

static const char *path_of(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* Steps on one batch; returns the last loss. */
static double learn(cmha_trainer *trainer, size_t steps, const char *label) {
    cmha_batch batch = batch_of(N);
    double loss = HUGE_VAL;
    size_t i;
    for (i = 0; i < steps; i++)
        CHECK_THAT(!cmha_trainer_step_batch(trainer, &batch, &loss), "%s: %s", label, cmha_error(&context));
    return loss;
}

/* Every row of the paper's Table 6 that its text defines is one option; each one
   learns, and none is the whole model. */
static void ablation(void) {
    static const char *const rows[] = {"",
                                       "family=real",
                                       "crat_attention=dot",
                                       "irw_layers=0",
                                       "pe_terms=1",
                                       "state_rotation=0",
                                       "complex_norm=split",
                                       "experts=0",
                                       "complex_residual=none",
                                       "complex_residual=unit",
                                       "irw_fusion=additive irw_raw=1",
                                       "phase_reg=0",
                                       "mag_reg=0"};
    double first, last, whole = 0;
    size_t i;
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        cmha_trainer_config t = trainer_config();
        cmha_model_config config;
        cmha_model model;
        cmha_trainer trainer;
        CHECK_OK(cmha_preset(NULL, "crat", &config, NULL));
        models_set(
            &context, &config,
            "n_layers=2 d_model=16 n_heads=4 d_ff=24 vocabulary=19 real_heads=1 imag_heads=1 dropout=0 "
            "irw_width=6 init_std=0.2");
        models_set(&context, &config, rows[i]);
        if (!CHECK_THAT(!cmha_model_init(&model, &context, &config), "%s: %s", rows[i], cmha_error(&context)))
            continue;
        if (config.family == CMHA_FAMILY_CRAT && config.irw_layers)
            CHECK_OK(cmha_model_set_knowledge(&model, &base));
        CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
        first = learn(&trainer, 1, rows[i]), last = learn(&trainer, 30, rows[i]);
        CHECK_THAT(last < 0.8 * first, "%s: the loss goes from %.3f to %.3f", rows[i], first, last);
        if (i) CHECK_THAT(fabs(last - whole) > 1e-9, "%s: it is the whole model", rows[i]);
        else whole = last;
        cmha_trainer_close(&trainer), cmha_model_close(&model);
    }
}

/* What the windows learn: with a base their parameters get a gradient, without one none. */
static void window_gradients(void) {
    static const char *const names[] = {"irw.query.weight", "irw.query.bias",  "irw.mix",
                                        "irw.value.weight", "irw.gate.weight", "irw.gate.bias"};
    cmha_batch batch = batch_of(N);
    cmha_model model;
    char name[64];
    double loss;
    size_t i;
    int with_base;
    if (!open_model(&model, "", NULL)) return;
    for (with_base = 0; with_base < 2; with_base++) {
        CHECK_OK(cmha_model_set_knowledge(&model, with_base ? &base : NULL));
        cmha_parameters_zero_grad(&model.parameters);
        CHECK_OK(cmha_model_gradient(&model, &batch, 1, 1, &loss));
        for (i = 0; i < sizeof names / sizeof *names; i++) {
            cmha_parameter *p;
            snprintf(name, sizeof name, "blocks.1.%s", names[i]);
            p = cmha_parameters_find(&model.parameters, name);
            if (!CHECK_THAT(p != NULL, "no parameter %s", name)) continue;
            CHECK_THAT((check_largest(p->tensor.grad, p->tensor.size) > 0) == with_base, "%s %s a base", name,
                       with_base ? "has no gradient with" : "has a gradient without");
        }
    }
    cmha_model_close(&model);
}

/* Half a run, saved, and taken up by another model with the same base, equals the whole run bit for bit;
   another base is refused. */
static void resumed(void) {
    cmha_trainer_config t = trainer_config();
    cmha_model_config config = with("dropout=0.1");
    cmha_model model, twin, loaded;
    cmha_trainer trainer, second;
    char half[128];
    snprintf(half, sizeof half, "%s", path_of("half.safetensors"));
    CHECK_OK(cmha_model_init(&model, &context, &config));
    CHECK_OK(cmha_model_set_knowledge(&model, &base));
    CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    learn(&trainer, STEPS, "first half");
    CHECK_OK(cmha_trainer_save(&trainer, half));
    learn(&trainer, STEPS, "second half");
    CHECK_OK(cmha_model_init(&twin, &context, &config));
    CHECK_OK(cmha_model_set_knowledge(&twin, &other));
    CHECK_OK(cmha_trainer_init(&second, &twin, &t));
    CHECK_IS(cmha_trainer_read(&second, half), CMHA_ERR_FORMAT);
    CHECK(strstr(cmha_error(&context), "knowledge base") && second.step == 0);
    CHECK_OK(cmha_model_set_knowledge(&twin, NULL));
    CHECK_THAT(!cmha_trainer_read(&second, half), "%s", cmha_error(&context));
    CHECK(twin.knowledge_identity == base.identity); /* what the program is to look for */
    CHECK_OK(cmha_model_set_knowledge(&twin, &base));
    learn(&second, STEPS, "resumed");
    CHECK_THAT(!memcmp(model.parameters.data, twin.parameters.data,
                       model.parameters.size * sizeof *model.parameters.data),
               "resuming gives other parameters");
    if (CHECK_OK(cmha_model_open(&loaded, &context, half))) {
        CHECK(loaded.knowledge_identity == base.identity && !loaded.knowledge);
        cmha_model_close(&loaded);
    }
    cmha_trainer_close(&trainer), cmha_trainer_close(&second), cmha_model_close(&model),
        cmha_model_close(&twin);
    remove(half);
}

/* Statistics of use: every token of every training pass goes to `experts_top` experts of
   each layer; no other pass is counted. */
static void used(void) {
    cmha_batch batch = batch_of(N);
    cmha_model model;
    uint64_t sum = 0;
    double loss;
    size_t i, n;
    if (!open_model(&model, "experts_top=2", &base)) return;
    n = model.config.n_layers * model.config.experts;
    CHECK_OK(cmha_model_loss(&model, &batch, &loss));
    for (i = 0; i < n; i++) sum += model.expert_use[i];
    CHECK(sum == 0);
    CHECK_OK(cmha_model_gradient(&model, &batch, 1, 1, &loss));
    CHECK_OK(cmha_model_gradient(&model, &batch, 1, 2, &loss));
    for (i = 0; i < n; i++) sum += model.expert_use[i];
    CHECK_THAT(sum == 2 * 2 * B * N * model.config.n_layers, "%lu choices", (unsigned long)sum);
    cmha_model_close(&model);
}

/* The load balance loss evens the use out. */
static void balanced(void) {
    double spread[2];
    int on;
    for (on = 0; on < 2; on++) {
        cmha_trainer_config t = trainer_config();
        cmha_model_config config =
            with(on ? "experts=4 experts_top=1 balance=1" : "experts=4 experts_top=1 balance=0");
        cmha_model model;
        cmha_trainer trainer;
        cmha_parameter *bias;
        uint64_t most = 0, sum = 0;
        size_t i;
        CHECK_OK(cmha_model_init(&model, &context, &config));
        CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
        bias = cmha_parameters_find(&model.parameters, "blocks.0.ffn.router.bias");
        if (bias) bias->tensor.data[2] = 1; /* a favourite */
        learn(&trainer, 60, "balance");
        memset(model.expert_use, 0, 8 * sizeof *model.expert_use);
        learn(&trainer, 10, "balance");
        for (i = 0; i < 4; i++) {
            sum += model.expert_use[i];
            if (model.expert_use[i] > most) most = model.expert_use[i];
        }
        spread[on] = (double)most / (double)sum;
        cmha_trainer_close(&trainer), cmha_model_close(&model);
    }
    CHECK_THAT(spread[1] < spread[0] && spread[1] < 0.5,
               "the favourite gets %.2f of the tokens, balanced %.2f", spread[0], spread[1]);
}

/* Training holds what cmha_model_memory says, whether the base comes before or after,
   and decoding allocates nothing new. */
static void memory_is_exact(void) {
    unsigned char text[3000];
    cmha_tokens stream;
    cmha_trainer_config t = trainer_config();
    cmha_model_config config = with("vocabulary=128");
    cmha_batch batch = batch_of(N);
    check_heap heap;
    cmha_context_config cc = check_heap_config(&heap);
    cmha_context own;
    cmha_model model;
    cmha_trainer trainer;
    size_t training, before, calls, i;
    double loss;
    memset(&stream, 0, sizeof stream);
    stream.data = text, stream.count = models_text(text, sizeof text), stream.width = 1;
    models_steps_allocate_nothing(&config, &t, &stream, NULL, "no base");
    CHECK_OK(cmha_context_init(&own, &cc));
    before = heap.bytes;
    CHECK_OK(cmha_model_memory(&own, &config, t.batch, t.length, NULL, &training));
    CHECK_OK(cmha_model_init(&model, &own, &config));
    CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    CHECK_OK(cmha_model_set_knowledge(&model, &base));
    CHECK_THAT(heap.bytes - before == training, "%zu bytes said, %zu held", training, heap.bytes - before);
    calls = heap.calls;
    for (i = 0; i < 3; i++) CHECK_OK(cmha_trainer_step_batch(&trainer, &batch, &loss));
    CHECK_THAT(heap.calls == calls, "steps with a base allocated %zu times", heap.calls - calls);
    cmha_trainer_close(&trainer), cmha_model_close(&model), cmha_context_close(&own);
    CHECK(check_heap_empty(&heap));
}

/* What is learned besides does not look at padding, and a sequence of padding alone has a vector of zeros. */
static void padded(void) {
    enum { W = 16 };
    static unsigned char mask[B * N];
    static int32_t targets[B * N];
    cmha_model model;
    cmha_real vectors[B * W];
    double loss[2] = {0, 0}, all = 0;
    cmha_batch batch = batch_of(N);
    if (!open_model(&model, "irw_layers=0 experts=0 balance=0 phase_reg=3 mag_reg=3", NULL)) return;
    CHECK_OK(cmha_model_training_loss(&model, &batch, 3, &all));
    for (int i = 0; i < B * N; i++) mask[i] = i % N < N - 4;
    batch.key_mask = mask;
    for (int i = 0; i < B * N; i++) targets[i] = mask[i] ? ids[B * N + i] : -1;
    batch.targets = targets;
    for (int k = 0; k < 2; k++) {
        CHECK_OK(cmha_model_training_loss(&model, &batch, 3, &loss[k]));
        for (int i = 0; i < B * N; i++) ids[i] = mask[i] ? ids[i] : (ids[i] + 7) % V;
    }
    CHECK_THAT(loss[0] == loss[1] && loss[0] != all, "%g, %g of other padding", loss[0], loss[1]);
    memset(mask, 0, N);
    CHECK_OK(cmha_model_vectors(&model, &batch, vectors));
    CHECK(check_finite(vectors, B * W) && !(check_largest(vectors, W) > 0) &&
          check_largest(vectors + W, W) > 0.01);
    cmha_model_close(&model);
}

int main(int argc, char **argv) {
    static const char *const forms[] = {"", "irw_fusion=additive irw_raw=1 irw_from=1 irw_layers=2",
                                        "experts=0 complex_residual=unit",
                                        "crat_attention=linear irw_queries=1 irw_top=100 experts_top=3"};
    cmha_real *a = check_array(DOCS * 2 * WIDTH, 1), *b = check_array(DOCS * 2 * WIDTH, 1);
    size_t i;
    (void)argc;
    cmha_blas_restart(argv);
    check_context(&context, 2, 3);
    CHECK(mkdtemp(folder) != NULL);
    for (i = 0; i < 2 * B * N; i++) ids[i] = (int32_t)check_below(V);
    CHECK_OK(cmha_knowledge_init(&base, &context, DOCS, WIDTH, a, NULL, NULL, NULL));
    CHECK_OK(cmha_knowledge_init(&other, &context, DOCS / 2, WIDTH, b, NULL, NULL, NULL));
    CHECK_OK(cmha_knowledge_init(&empty, &context, 0, WIDTH, NULL, NULL, NULL, NULL));
    for (i = 0; i < sizeof forms / sizeof *forms; i++) exchanged(forms[i]), decoded(forms[i]);
    too_far(), refused();
    window_gradients(), ablation(), resumed();
    used(), balanced(), padded(), memory_is_exact();
    cmha_knowledge_close(&base), cmha_knowledge_close(&other), cmha_knowledge_close(&empty);
    free(a), free(b), rmdir(folder);
    cmha_context_close(&context);
    return check_end();
}
