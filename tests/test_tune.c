/* Some parameters and not others: frozen ones keep every bit and have neither gradient nor moments, the
   others learn as ever, for every kind of model and where one product serves several; rates and decay of
   their own; what of that files keep. And lists of parameters without a model: start, step, files, failures;
   and the check of gradients by differences, right and wrong. */
#define _POSIX_C_SOURCE 200809L
#define _DARWIN_C_SOURCE
#include "models.h"
#include "system.h"

enum { BATCH = 2, LENGTH = 12, VOCABULARY = 19 };

static cmha_context context;
static int32_t ids[BATCH * LENGTH], targets[BATCH * LENGTH];
static cmha_real labels[BATCH] = {2, 1};
static unsigned char text[3000];
static cmha_tokens stream;

/* A folder of its own: sanitized this test runs beside itself. */
static char folder[64] = "/tmp/cmha-tune-XXXXXX";

static const char *path_of(const char *name) {
    static char path[2][128];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static cmha_batch batch_of(void) {
    cmha_batch batch;
    memset(&batch, 0, sizeof batch);
    batch.ids = ids, batch.targets = targets, batch.batch = BATCH, batch.length = LENGTH;
    return batch;
}

static void freeze(cmha_model *model, const char *pattern, int frozen) {
    CHECK_THAT(!cmha_parameters_tune(&model->parameters, pattern, CMHA_TUNE_FROZEN, frozen, NULL), "%s",
               cmha_error(&context));
}

/* ---------------------------------------------- every kind ---------------------------------------------- */

static const char *const forms[] = {
    "attention_bias=1 activation=swiglu ffn_bias=1 tied=0 head_bias=1 dropout=0.1 attention_dropout=0.1",
    "attention=rope n_kv_heads=2 activation=swiglu norm=rmsnorm residual_scale=0.5",
    "pcl_weight=0.1 placement=post attention_bias=1 dropout=0.1",
    "attention=dot position=learned embedding_scale=1 activation=relu",
    "qkv_bias=1 d_head=12 layout=half rotary_dims=8 embedding_norm=1 head_transform=1 head_bias=1",
    "family=cope attention=dot cope_score=hybrid cope_imag=learned",
    "family=mobius attention=dot position=learned placement=post mobius_wiring=alternating n_layers=4",
    "family=mobius attention=rope position=sinusoidal placement=post mobius_heads=4 mobius_mode=full",
    "family=crat real_heads=1 imag_heads=1 phase_reg=0.1 mag_reg=0.1 dropout=0.1",
    "family=crat experts=3 balance=0.1 complex_residual=free complex_norm=whiten low_rank=2",
};

/* Which are frozen: by a pattern that stays free, or by a draw. */
static const char *const free_only[] = {"blocks.*.attn.*",
                                        "blocks.1.*",
                                        "*weight",
                                        "*bias",
                                        "tok_emb*",
                                        "*2*",
                                        "*wk*",
                                        "*wv*",
                                        "*w1*",
                                        "*w3*",
                                        "*ln*", "*pcl_w", NULL,
                                        NULL,
                                        NULL};

/* The gradients of what learns are those of the whole model to the bit; what is frozen has none. */
static void same_gradients(cmha_model_config config, const cmha_batch *batch, const char *label) {
    cmha_model whole, part;
    double loss[2];
    size_t which, i, learning, n_free = sizeof free_only / sizeof *free_only;
    if (!CHECK_THAT(!cmha_model_init(&whole, &context, &config), "%s: %s", label, cmha_error(&context)))
        return;
    CHECK_THAT(!cmha_model_gradient(&whole, batch, 1, 3, &loss[0]), "%s: %s", label, cmha_error(&context));
    for (which = 0; which < n_free; which++) {
        config.recompute = which % 2;
        CHECK_OK(cmha_model_init(&part, &context, &config));
        freeze(&part, "*", 1);
        if (free_only[which] &&
            cmha_parameters_tune(&part.parameters, free_only[which], CMHA_TUNE_FROZEN, 0, NULL)) {
            cmha_model_close(&part);
            continue;
        }
        for (i = 0; !free_only[which] && i < part.parameters.count; i++)
            if (check_random() > 0) freeze(&part, part.parameters.list[i].name, 0);
        CHECK_THAT(!cmha_model_gradient(&part, batch, 1, 3, &loss[1]), "%s: %s", label, cmha_error(&context));
        CHECK_THAT(loss[0] == loss[1], "%s: loss %g, and %g with frozen parameters", label, loss[0], loss[1]);
        for (i = learning = 0; i < part.parameters.count; i++) {
            const cmha_parameter *p = &part.parameters.list[i], *q = &whole.parameters.list[i];
            if (p->frozen) {
                CHECK(p->tensor.grad == NULL);
                continue;
            }
            CHECK_THAT(!memcmp(p->tensor.grad, q->tensor.grad, p->tensor.size * sizeof(cmha_real)),
                       "%s, free %s: the gradient of %s is off by %g of %g", label,
                       free_only[which] ? free_only[which] : "at random", p->name,
                       check_distance(p->tensor.grad, q->tensor.grad, p->tensor.size),
                       check_largest(q->tensor.grad, p->tensor.size));
            learning += p->tensor.size;
        }
        CHECK(part.parameters.learning == learning && part.parameters.size == whole.parameters.size);
        cmha_model_close(&part);
    }
    cmha_model_close(&whole);
}

static void of_a_form(cmha_model_config config, const char *label) {
    cmha_batch batch = batch_of();
    char name[256];
    if (config.causal) same_gradients(config, &batch, label);
    if (config.window) return;
    snprintf(name, sizeof name, "%s causal=0", label);
    config.causal = 0, config.classes = 3;
    same_gradients(config, &batch, name);
    batch.labels = labels;
    same_gradients(config, &batch, name);
}

static void every_form(void) {
    const char *name;
    cmha_model_config config;
    size_t i;
    for (i = 0; (name = cmha_kind_name(i, NULL)) != NULL; i++) {
        config = check_model_config();
        CHECK_OK(cmha_kind(&context, name, &config));
        of_a_form(config, name);
    }
    for (i = 0; i < sizeof forms / sizeof *forms; i++) {
        config = check_model_config();
        models_set(&context, &config, forms[i]);
        of_a_form(config, forms[i]);
    }
}

/* Every subset of q, k, v and of gate and up, weights and biases, over two passes added up. */
static void fused(void) {
    static const char *const part[] = {"*wq*", "*wk*", "*wv*", "*w1*", "*w3*"};
    cmha_model_config config = check_model_config();
    cmha_batch batch = batch_of();
    cmha_model whole, some;
    double loss;
    size_t i;
    int subset, pass, k;
    models_set(&context, &config, "attention_bias=1 activation=swiglu n_kv_heads=2");
    CHECK_OK(cmha_model_init(&whole, &context, &config));
    for (pass = 0; pass < 2; pass++) CHECK_OK(cmha_model_gradient(&whole, &batch, 1, 3, &loss));
    for (subset = 0; subset < 32; subset++) {
        CHECK_OK(cmha_model_init(&some, &context, &config));
        for (k = 0; k < 5; k++)
            if (subset >> k & 1) freeze(&some, part[k], 1);
        for (pass = 0; pass < 2; pass++) CHECK_OK(cmha_model_gradient(&some, &batch, 1, 3, &loss));
        for (i = 0; i < some.parameters.count; i++) {
            const cmha_tensor *a = &some.parameters.list[i].tensor, *b = &whole.parameters.list[i].tensor;
            if (!some.parameters.list[i].frozen)
                CHECK_THAT(check_distance(a->grad, b->grad, a->size) <=
                               check_tolerance(1e-14, 1e-6) * check_largest(b->grad, a->size),
                           "subset %d: %s", subset, some.parameters.list[i].name);
        }
        cmha_model_close(&some);
    }
    cmha_model_close(&whole);
}

/* ------------------------------------------------ steps ------------------------------------------------- */

static cmha_trainer_config training(void) {
    cmha_trainer_config t;
    cmha_config_defaults(cmha_trainer_table(), &t);
    t.batch = BATCH, t.length = LENGTH, t.steps = 40, t.lr = 1e-2, t.weight_decay = 0.1, t.eval_tokens = 100;
    return t;
}

static void steps(void) {
    cmha_model_config config = check_model_config();
    cmha_trainer_config t = training();
    cmha_model model, twin;
    cmha_trainer trainer, other;
    cmha_batch batch = batch_of();
    cmha_real *kept;
    double loss, norm, sum = 0;
    size_t i, clip;
    config.vocabulary = 256;
    for (clip = 0; clip <= CMHA_CLIP_VALUE;
         clip++) { /* one step of what learns is the whole model's, unclipped */
        t.clip_mode = (int)clip, t.clip = clip ? 1e-3 : 0;
        CHECK_OK(cmha_model_init(&model, &context, &config));
        CHECK_OK(cmha_model_init(&twin, &context, &config));
        freeze(&model, "*wk*", 1), freeze(&model, "tok_emb*", 1), freeze(&model, "*.b", 1);
        CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
        CHECK_OK(cmha_trainer_init(&other, &twin, &t));
        kept = check_zeros(model.parameters.size);
        memcpy(kept, model.parameters.data, model.parameters.size * sizeof *kept);
        CHECK_OK(cmha_trainer_step(&trainer, &stream, &loss));
        CHECK_OK(cmha_trainer_step(&other, &stream, &loss));
        for (i = 0; !clip && i < model.parameters.count; i++) {
            const cmha_parameter *p = &model.parameters.list[i];
            if (!p->frozen)
                CHECK_THAT(!memcmp(p->tensor.data, twin.parameters.list[i].tensor.data,
                                   p->tensor.size * sizeof *kept),
                           "%s moves otherwise", p->name);
        }
        for (i = 0; i < 3; i++) CHECK_OK(cmha_trainer_step(&trainer, &stream, &loss));
        for (i = 0; i < 3; i++) CHECK_OK(cmha_trainer_step_batch(&trainer, &batch, &loss));
        cmha_parameters_zero_grad(&model.parameters);
        CHECK_OK(cmha_model_gradient(&model, &batch, 1, 0, &loss));
        for (i = 0, sum = 0; i < model.parameters.count; i++)
            if (!model.parameters.list[i].frozen)
                sum += cmha_sum_squares(model.parameters.list[i].tensor.grad,
                                        model.parameters.list[i].tensor.size);
        CHECK_OK(cmha_trainer_apply(&trainer, &norm));
        CHECK_NEAR(norm, sqrt(sum), 1e-5 * sqrt(sum));
        for (i = 0; i < model.parameters.count; i++) {
            const cmha_parameter *p = &model.parameters.list[i];
            int same = !memcmp(p->tensor.data, kept + (p->tensor.data - model.parameters.data),
                               p->tensor.size * sizeof *kept);
            CHECK_THAT(same == p->frozen, "%s %s", p->name, same ? "did not move" : "was frozen and moved");
        }
        free(kept);
        cmha_trainer_close(&trainer), cmha_trainer_close(&other), cmha_model_close(&model),
            cmha_model_close(&twin);
    }
}

/* Rate and decay of one parameter against AdamW by hand. */
static void rates(void) {
    cmha_model_config config = check_model_config();
    cmha_trainer_config t = training();
    cmha_model model, twin;
    cmha_trainer trainer, other;
    cmha_batch batch = batch_of();
    double loss;
    size_t i, n, k;
    t.clip = 0, t.warmup = 0, t.schedule = CMHA_SCHEDULE_CONSTANT;
    CHECK_OK(cmha_model_init(&model, &context, &config));
    CHECK_OK(cmha_model_init(&twin, &context, &config));
    CHECK_OK(cmha_parameters_tune(&model.parameters, "*wo*", CMHA_TUNE_RATE, 0.25, &n));
    CHECK(n == 2);
    CHECK_OK(cmha_parameters_tune(&model.parameters, "*w2.weight", CMHA_TUNE_DECAY, 0, NULL));
    CHECK_OK(cmha_parameters_tune(&model.parameters, "*delta", CMHA_TUNE_DECAY, 0.5, NULL));
    CHECK_OK(cmha_parameters_tune(&model.parameters, "*ln1.weight", CMHA_TUNE_RATE, 0, NULL));
    CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    CHECK_OK(cmha_trainer_init(&other, &twin, &t));
    cmha_real *start = check_zeros(model.parameters.size);
    memcpy(start, model.parameters.data, model.parameters.size * sizeof *start);
    CHECK_OK(cmha_trainer_step_batch(&trainer, &batch, &loss));
    CHECK_OK(cmha_trainer_step_batch(&other, &batch, &loss));
    for (i = 0; i < model.parameters.count; i++) {
        const cmha_parameter *p = &model.parameters.list[i], *q = &twin.parameters.list[i];
        double rate = strstr(p->name, "wo") ? 0.25 : strstr(p->name, "ln1.weight") ? 0 : 1;
        double decay = strstr(p->name, "delta") ? 0.5 : strstr(p->name, "w2.weight") ? 0 : q->decay;
        for (k = 0; k < p->tensor.size; k++) {
            double x = (double)start[p->tensor.data - model.parameters.data + (ptrdiff_t)k];
            double step = (double)q->tensor.data[k] - (x - t.lr * t.weight_decay * q->decay * x);
            double want = x - rate * t.lr * t.weight_decay * decay * x + rate * step;
            if (!CHECK_THAT(fabs((double)p->tensor.data[k] - want) < check_tolerance(1e-14, 1e-6),
                            "%s[%zu]: %.9g, expected %.9g", p->name, k, (double)p->tensor.data[k], want))
                break;
        }
    }
    free(start);
    cmha_trainer_close(&trainer), cmha_trainer_close(&other), cmha_model_close(&model),
        cmha_model_close(&twin);
}

static void exact_memory(const char *options, const char *pattern) {
    check_heap heap;
    cmha_context_config heaped = check_heap_config(&heap);
    cmha_model_config config = check_model_config();
    cmha_trainer_config t = training();
    cmha_context c;
    cmha_model model;
    cmha_trainer trainer;
    size_t said = 0, whole = 0, calls, base;
    double loss;
    int i;
    models_set(&context, &config, options);
    config.vocabulary = 256;
    CHECK_OK(cmha_context_init(&c, &heaped));
    CHECK_OK(cmha_model_memory(&c, &config, BATCH, LENGTH, NULL, &whole));
    base = heap.bytes;
    CHECK_OK(cmha_model_init(&model, &c, &config));
    CHECK_OK(cmha_model_training_memory(&model, BATCH, LENGTH, &said));
    CHECK_THAT(said == whole, "%s: %zu bytes, %zu by its configuration", options, said, whole);
    CHECK_OK(cmha_parameters_tune(&model.parameters, pattern, CMHA_TUNE_FROZEN, 1, NULL));
    CHECK_OK(cmha_model_training_memory(&model, BATCH, LENGTH, &said));
    CHECK(said < whole);
    CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    CHECK_THAT(heap.bytes - base == said, "%s, frozen %s: said %zu bytes, training holds %zu", options,
               pattern, said, heap.bytes - base);
    calls = heap.calls;
    for (i = 0; i < 3; i++) CHECK_OK(cmha_trainer_step(&trainer, &stream, &loss));
    CHECK_OK(cmha_trainer_evaluate(&trainer, &stream, &loss));
    CHECK_THAT(heap.calls == calls, "%s, frozen %s: steps allocate", options, pattern);
    cmha_trainer_close(&trainer), cmha_model_close(&model), cmha_context_close(&c);
    CHECK(check_heap_empty(&heap));
}

/* ------------------------------------------ patterns and states ----------------------------------------- */

static void patterns(void) {
    static const struct {
        const char *pattern;
        size_t matches;
    } rows[] = {{"blocks.*.attn.delta", 2}, {"blocks.0.attn.delta", 1}, {"*.delta", 2},  {"*delta*", 2},
                {"**.del**ta**", 2},        {"blocks.*.attn.d", 0},     {"delta", 0},    {"", 0},
                {"blocks.*.ln1.*", 4},      {"*ln_f*", 2},              {"blocks.2*", 0}, {"*ta", 2}};
    cmha_model_config config = check_model_config();
    cmha_trainer_config t = training();
    cmha_model model;
    cmha_trainer trainer, later;
    double loss;
    size_t i, n;
    cmha_real kept;
    config.vocabulary = 256;
    CHECK_OK(cmha_model_init(&model, &context, &config));
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        n = 99;
        CHECK_THAT(cmha_parameters_tune(&model.parameters, rows[i].pattern, CMHA_TUNE_RATE, 2, &n) ==
                           (rows[i].matches ? CMHA_OK : CMHA_ERR_NOT_FOUND) &&
                       n == rows[i].matches,
                   "\"%s\" matches %zu", rows[i].pattern, n);
    }
    CHECK_IS(cmha_parameters_tune(&model.parameters, "*q.weight", CMHA_TUNE_FROZEN, 1, NULL), CMHA_OK);
    CHECK_IS(cmha_parameters_tune(&model.parameters, "nothing*", CMHA_TUNE_FROZEN, 1, NULL),
             CMHA_ERR_NOT_FOUND);
    CHECK(strstr(cmha_error(&context), "nothing*"));
    CHECK_IS(cmha_parameters_tune(&model.parameters, "*", CMHA_TUNE_FROZEN, 0.5, NULL), CMHA_ERR_ARGUMENT);
    CHECK_IS(cmha_parameters_tune(&model.parameters, "*", CMHA_TUNE_RATE, -1, NULL), CMHA_ERR_ARGUMENT);
    CHECK_IS(cmha_parameters_tune(&model.parameters, "*", CMHA_TUNE_RATE, (double)NAN, NULL),
             CMHA_ERR_ARGUMENT);
    CHECK_IS(cmha_parameters_tune(&model.parameters, "*", CMHA_TUNE_DECAY, 2e6, NULL), CMHA_ERR_ARGUMENT);
    CHECK_IS(cmha_parameters_tune(&model.parameters, "*", (cmha_tuning)7, 1, NULL), CMHA_ERR_ARGUMENT);
    CHECK_IS(cmha_parameters_tune(&model.parameters, NULL, CMHA_TUNE_RATE, 1, NULL), CMHA_ERR_ARGUMENT);
    for (i = n = 0; i < model.parameters.count; i++) n += (size_t)model.parameters.list[i].frozen;
    CHECK(n == 2 && model.parameters.list[0].lr_scale == 1); /* failures change nothing */
    CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    CHECK_OK(cmha_trainer_step(&trainer, &stream, &loss));
    CHECK_OK(cmha_parameters_tune(&model.parameters, "*q.weight", CMHA_TUNE_FROZEN, 1, NULL)); /* no news */
    CHECK_OK(cmha_parameters_tune(&model.parameters, "*q.weight", CMHA_TUNE_RATE, 3, NULL));
    CHECK_OK(cmha_trainer_step(&trainer, &stream, &loss));
    n = model.parameters.learning;
    freeze(&model, "*k.weight", 1); /* the trainer goes on: the moments of the others stay */
    CHECK(model.parameters.learning < n && model.parameters.moments[0] != 0);
    kept = model.parameters.moments[0];
    CHECK_OK(cmha_trainer_evaluate(&trainer, &stream, &loss));
    CHECK_OK(cmha_trainer_step(&trainer, &stream, &loss));
    CHECK(model.parameters.moments[0] != kept);
    CHECK_OK(cmha_trainer_init(&later, &model, &t)); /* another begins with zeros and ends the first */
    CHECK(check_largest(model.parameters.moments, 2 * model.parameters.learning) == 0);
    CHECK_IS(cmha_trainer_step(&trainer, &stream, &loss), CMHA_ERR_STATE);
    CHECK_IS(cmha_trainer_save(&trainer, path_of("older")), CMHA_ERR_STATE);
    cmha_trainer_close(&trainer);
    CHECK_OK(cmha_trainer_step(&later, &stream, &loss));
    cmha_trainer_close(&later);
    CHECK(!model.parameters.moments);
    freeze(&model, "*", 1); /* all: a loss, but no step */
    CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    CHECK_OK(cmha_trainer_evaluate(&trainer, &stream, &loss));
    CHECK_IS(cmha_trainer_step(&trainer, &stream, &loss), CMHA_ERR_STATE);
    CHECK_THAT(strstr(cmha_error(&context), "frozen") && trainer.step == 0, "%s", cmha_error(&context));
    cmha_trainer_close(&trainer);
    freeze(&model, "*", 0);
    CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    CHECK_OK(cmha_trainer_step(&trainer, &stream, &loss));
    cmha_trainer_close(&trainer), cmha_model_close(&model);
    CHECK_IS(cmha_parameters_tune(&model.parameters, "*", CMHA_TUNE_RATE, 1, NULL), CMHA_ERR_STATE);
}

/* ------------------------------------------------- files ------------------------------------------------ */

/* Freezing and thawing while a trainer is open, in any order: f and t all, w and v a matrix, s a step, o a
   state saved and read. A step is refused where nothing learns, and what learns moves. */
static void thawed(const char *order) {
    cmha_trainer_config t = training();
    cmha_trainer trainer;
    cmha_model model;
    cmha_model_config config;
    double loss = 0;
    cmha_config_defaults(cmha_model_table(), &config);
    CHECK_OK(cmha_config_set_all(&context, cmha_model_table(), &config,
                                 "vocabulary=256 n_layers=1 d_model=16 n_heads=2 d_ff=16"));
    CHECK_OK(cmha_model_init(&model, &context, &config));
    if (*order == 'f') freeze(&model, "*", 1), order++;
    CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    for (; *order; order++) {
        cmha_parameters *p = &model.parameters;
        if (*order == 'f' || *order == 't') freeze(&model, "*", *order == 'f');
        if (*order == 'w' || *order == 'v') freeze(&model, *order == 'w' ? "*.wq.weight" : "*.w1.weight", 0);
        if (*order == 'o') {
            CHECK_OK(cmha_trainer_save(&trainer, path_of("thawed")));
            CHECK_OK(cmha_trainer_read(&trainer, path_of("thawed")));
        }
        CHECK_THAT(!p->learning == !p->moments && (!p->learning || p->grad), "at %s", order);
        if (*order != 's') continue;
        cmha_status status = cmha_trainer_step(&trainer, &stream, &loss);
        CHECK_THAT(status == (p->learning ? CMHA_OK : CMHA_ERR_STATE), "at %s: %s", order,
                   cmha_error(&context));
        CHECK(!p->learning || check_largest(p->moments, 2 * p->learning) > 0);
    }
    cmha_trainer_close(&trainer);
    CHECK(!model.parameters.moments);
    cmha_model_close(&model);
}

static void thawing(void) {
    static const char *const orders[] = {"ft",    "fts",       "ftst",   "fws",     "fswsvs", "ststfs",
                                         "sfsts", "fwvsofsto", "fowsos", "sfwsvos", "ffttss", "fsotos"};
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) thawed(orders[i]);
}

static void tune_some(cmha_model *model) {
    freeze(model, "blocks.0.*", 1), freeze(model, "*delta", 0);
    CHECK_OK(cmha_parameters_tune(&model->parameters, "*delta", CMHA_TUNE_RATE, 0.1, NULL));
    CHECK_OK(cmha_parameters_tune(&model->parameters, "*wo.weight", CMHA_TUNE_DECAY, 0.5, NULL));
}

static void same_tuning(const cmha_model *a, const cmha_model *b) {
    size_t i;
    CHECK(a->parameters.learning == b->parameters.learning);
    for (i = 0; i < a->parameters.count; i++) {
        const cmha_parameter *p = &a->parameters.list[i], *q = &b->parameters.list[i];
        CHECK_THAT(p->frozen == q->frozen && p->lr_scale == q->lr_scale && p->decay == q->decay, "%s",
                   p->name);
    }
}

static void files(void) {
    cmha_model_config config = check_model_config();
    cmha_trainer_config t = training();
    cmha_model model, fresh, other;
    cmha_trainer trainer, resumed;
    cmha_archive archive;
    cmha_archive_item item;
    double loss;
    size_t i, k;
    config.vocabulary = 256, config.dropout = 0.1;
    CHECK_OK(cmha_model_init(&model, &context, &config));
    CHECK_OK(cmha_model_save(&model, path_of("plain")));
    CHECK_OK(cmha_archive_open(&archive, &context, path_of("plain")));
    for (i = 0; i < archive.n_metadata; i++) CHECK(strncmp(archive.metadata[2 * i], "tune.", 5) != 0);
    cmha_archive_close(&archive);
    tune_some(&model);
    CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    for (i = 0; i < 4; i++) CHECK_OK(cmha_trainer_step(&trainer, &stream, &loss));
    CHECK_OK(cmha_trainer_save(&trainer, path_of("state")));
    CHECK_OK(cmha_model_save(&model, path_of("model")));
    CHECK_OK(cmha_archive_open(&archive, &context, path_of("state")));
    CHECK(!cmha_archive_find(&archive, "optim.m.blocks.0.ln1.weight"));
    CHECK(cmha_archive_find(&archive, "optim.v.blocks.1.ln1.weight") != NULL);
    CHECK(cmha_archive_metadata(&archive, "tune.frozen.blocks.0.ln1.weight") != NULL);
    cmha_archive_close(&archive);
    for (k = 0; k < 3; k++) { /* a trainer of an untuned model; of the same; of one tuned otherwise */
        CHECK_OK(cmha_model_init(&fresh, &context, &config));
        if (k == 1) tune_some(&fresh);
        if (k == 2) freeze(&fresh, "tok*", 1);
        CHECK_OK(cmha_trainer_init(&resumed, &fresh, &t));
        if (k == 0) CHECK_OK(cmha_trainer_step(&resumed, &stream, &loss)); /* which is forgotten */
        CHECK_THAT(!cmha_trainer_read(&resumed, path_of("state")), "%s", cmha_error(&context));
        same_tuning(&model, &fresh);
        CHECK(!memcmp(model.parameters.moments, fresh.parameters.moments,
                      2 * model.parameters.learning * sizeof(cmha_real)));
        if (k == 2) break;
        for (i = 0; i < 3; i++) CHECK_OK(cmha_trainer_step(&resumed, &stream, &loss));
        cmha_trainer_close(&resumed), cmha_model_close(&fresh);
    }
    for (i = 0; i < 3; i++) CHECK_OK(cmha_trainer_step(&trainer, &stream, &loss));
    for (i = 0; i < 3; i++) CHECK_OK(cmha_trainer_step(&resumed, &stream, &loss));
    CHECK(!memcmp(model.parameters.data, fresh.parameters.data, model.parameters.size * sizeof(cmha_real)));
    CHECK(!memcmp(model.parameters.moments, fresh.parameters.moments,
                  2 * model.parameters.learning * sizeof(cmha_real)));
    CHECK_OK(cmha_model_open(&other, &context, path_of("model")));
    same_tuning(&model, &other);
    cmha_model_close(&other);
    CHECK_OK(cmha_model_open(&other, &context, path_of("state")));
    same_tuning(&model, &other);
    freeze(&other, "*", 0);
    CHECK_OK(cmha_model_read(&other, path_of("model"), 1, NULL)); /* weights alone */
    CHECK(other.parameters.learning == other.parameters.size);
    cmha_model_close(&other), cmha_trainer_close(&resumed), cmha_model_close(&fresh);
    memset(&item, 0, sizeof item); /* a tuning of nothing, and of no value */
    item.name = "w", item.data = labels, item.shape = &i, item.rank = 1, i = BATCH;
    for (k = 0; k < 4; k++) {
        static const char *const bad[4][2] = {
            {"tune.frozen.v", "1"}, {"tune.rate.w", "-1"}, {"tune.decay.w", "x"}, {"tune.speed.w", "1"}};
        cmha_parameter_row row = {"w", {BATCH}, 0, 0, 0, 0};
        const char *pairs[4] = {"state.step", "3", bad[k][0], bad[k][1]};
        cmha_real data[3][BATCH] = {{1, 2}, {3, 4}, {5, 6}};
        cmha_archive_item items[3];
        cmha_parameters p;
        static const char *const names[] = {"w", "optim.m.w", "optim.v.w"};
        int j;
        for (j = 0; j < 3; j++) items[j] = item, items[j].name = names[j], items[j].data = data[j];
        CHECK_OK(cmha_parameters_init(&p, &context, &row, 1));
        CHECK_OK(cmha_archive_write(&context, path_of("bad"), items, 3, pairs, 2));
        CHECK_THAT(cmha_parameters_read(&p, path_of("bad"), 1) == CMHA_ERR_FORMAT, "%s", bad[k][0]);
        CHECK(p.step == 0 && check_largest(p.data, BATCH) == 0 && !p.moments && p.grad &&
              p.list[0].lr_scale == 1);
        CHECK_OK(cmha_parameters_read(&p, path_of("bad"), 0)); /* which reads no metadata */
        CHECK(p.data[1] == 2);
        CHECK_OK(cmha_archive_write(&context, path_of("bad"), items, 3, pairs, 1));
        CHECK_OK(cmha_parameters_read(&p, path_of("bad"), 1));
        CHECK(p.step == 3 && p.moments && p.moments[1] == 4 && p.moments[2] == 5);
        CHECK_OK(cmha_archive_write(&context, path_of("bad"), items, 2, pairs, 1));
        CHECK_IS(cmha_parameters_read(&p, path_of("bad"), 1), CMHA_ERR_FORMAT);
        CHECK(p.moments && p.moments[2] == 5);
        cmha_parameters_close(&p);
    }
    cmha_trainer_close(&trainer), cmha_model_close(&model);
    remove(path_of("plain")), remove(path_of("state")), remove(path_of("model")), remove(path_of("bad"));
}

/* ---------------------------------------- lists without a model ----------------------------------------- */

enum { IN = 3, OUT = 70 };
static const cmha_parameter_row rows[] = {{"w", {OUT, IN}, 0, 0.5, 1, 0},
                                          {"bias", {OUT}, 0.25, 0, 0, 0},
                                          {"z", {2, IN}, 0, 1, 0, 1}};
static cmha_real input[4 * IN], wanted[4 * OUT];

/* (x + wanted Re u(z)^T) w^T + bias against numbers, u the phasor */
static cmha_tensor *loss_of(cmha_parameters *p, cmha_tape *tape) {
    size_t shape[] = {4, IN}, six[] = {1, 2 * IN};
    cmha_tensor *x = cmha_tensor_wrap(tape, 2, shape, input, NULL),
                *z = cmha_reshape(tape, &p->list[2].tensor, 2, six);
    z = cmha_phasor(tape, z, (cmha_real)0.1);
    z = cmha_reshape(tape, cmha_complex_part(tape, z, 0), 1, &shape[1]);
    x = cmha_reshape(tape, x, 2, shape);
    x = cmha_linear(tape,
                    cmha_add_rows(tape, cmha_reshape(tape, x, 3, (size_t[]){1, 4, IN}),
                                  cmha_matmul(tape, cmha_tensor_wrap(tape, 2, (size_t[]){4, 1}, wanted, NULL),
                                              cmha_reshape(tape, z, 2, (size_t[]){1, IN}), 0)),
                    &p->list[0].tensor, &p->list[1].tensor);
    return cmha_squared_error(tape, x, wanted);
}

typedef struct subject {
    cmha_parameters *p;
    cmha_tape *tape;
    cmha_status fail;
    int spoil;
} subject;

static cmha_status list_loss(void *user, double *loss) {
    subject *s = (subject *)user;
    cmha_tensor *y;
    cmha_tape_reset(s->tape);
    y = loss_of(s->p, s->tape);
    if (y) *loss = s->spoil ? (double)NAN : (double)y->data[0];
    if (s->p->grad) s->p->grad[0] += 1; /* a callback may do so: nothing is lost */
    return s->fail ? s->fail : cmha_tape_status(s->tape);
}

static void list_gradient(cmha_parameters *p, cmha_tape *tape) {
    cmha_tape_reset(tape);
    CHECK_THAT(!cmha_tape_backward(tape, loss_of(p, tape), 1), "%s", cmha_error(&context));
    cmha_tape_reset(tape);
}

static void lists(void) {
    cmha_parameters p, q;
    cmha_tape tape;
    cmha_adamw_args args = {1e-2, 0.9, 0.99, 1e-8, 0.1, 1, 0, 0, 0, CMHA_UPDATE_RMS};
    cmha_real *kept, *m, *v;
    double norm, before = 0, after = 0;
    size_t i, size = OUT * IN + OUT + 2 * IN, step;
    int k;
    subject s = {&p, &tape, CMHA_OK, 0};
    CHECK_OK(cmha_tape_init(&tape, &context, 1));
    CHECK_THAT(!cmha_parameters_init(&p, &context, rows, 3), "%s", cmha_error(&context));
    CHECK(p.count == 3 && p.size == size && p.learning == size && p.grad && !p.moments && p.step == 0);
    CHECK(p.list[2].is_complex && p.list[0].decay == 1 && p.list[1].decay == 0 && p.list[1].lr_scale == 1);
    CHECK(cmha_parameters_find(&p, "bias") == &p.list[1] && !cmha_parameters_find(&p, "b"));
    for (i = 0; i < OUT; i++) CHECK(p.list[1].tensor.data[i] == (cmha_real)0.25);
    norm = sqrt(cmha_sum_squares(p.data, OUT * IN) / (OUT * IN));
    CHECK(norm > 0.4 && norm < 0.6 && check_largest(p.grad, size) == 0);
    m = check_zeros(size), v = check_zeros(size), kept = check_zeros(size);
    for (step = 1; step <= 5; step++) { /* against the kernel, a parameter at a time */
        list_gradient(&p, &tape);
        memcpy(kept, p.data, size * sizeof *kept);
        before = before > 0 ? before : (list_loss(&s, &norm), p.grad[0] -= 1, norm);
        for (k = 0; k < 3; k++) {
            const cmha_tensor *t = &p.list[k].tensor;
            size_t at = (size_t)(t->data - p.data);
            cmha_adamw_args one = args;
            one.t = step, one.weight_decay *= p.list[k].decay;
            cmha_adamw(&one, t->size, kept + at, t->grad, m + at, v + at);
        }
        CHECK_OK(cmha_parameters_step(&p, &args, CMHA_CLIP_WHOLE, 0, &norm));
        CHECK(norm > 0 && p.step == step && check_largest(p.grad, size) == 0);
        CHECK_THAT(!memcmp(kept, p.data, size * sizeof *kept), "step %zu: off by %g", step,
                   check_distance(kept, p.data, size));
        CHECK(!memcmp(m, p.moments, size * sizeof *m) && !memcmp(v, p.moments + size, size * sizeof *m));
    }
    list_loss(&s, &after), p.grad[0] = 0;
    CHECK_THAT(after < before, "loss %g, then %g", before, after);
    CHECK_OK(cmha_parameters_tune(&p, "bias", CMHA_TUNE_FROZEN, 1, NULL)); /* moments of the others stay */
    CHECK(p.learning == size - OUT && !memcmp(p.moments, m, OUT * IN * sizeof *m) && !p.list[1].tensor.grad);
    CHECK(!memcmp(p.moments + OUT * IN, m + OUT * IN + OUT, 2 * IN * sizeof *m));
    CHECK(!memcmp(p.moments + p.learning, v, OUT * IN * sizeof *m));
    CHECK_OK(cmha_parameters_tune(&p, "z", CMHA_TUNE_RATE, 0.5, NULL));
    CHECK_OK(cmha_parameters_save(&p, path_of("list"), 1));
    CHECK_OK(cmha_parameters_init(&q, &context, rows, 3));
    CHECK_OK(cmha_parameters_read(&q, path_of("list"), 1));
    CHECK(q.step == 5 && q.list[1].frozen && q.list[2].lr_scale == 0.5 && q.learning == p.learning);
    for (step = 0; step < 3; step++) {
        list_gradient(&p, &tape), list_gradient(&q, &tape);
        CHECK_OK(cmha_parameters_step(&p, &args, CMHA_CLIP_NORM, 0.01, NULL));
        CHECK_OK(cmha_parameters_step(&q, &args, CMHA_CLIP_NORM, 0.01, NULL));
    }
    CHECK(!memcmp(p.data, q.data, size * sizeof *kept));
    CHECK(!memcmp(p.moments, q.moments, 2 * p.learning * sizeof *kept));
    CHECK_OK(cmha_parameters_tune(&p, "*", CMHA_TUNE_FROZEN, 1, NULL));
    CHECK_IS(cmha_parameters_step(&p, &args, CMHA_CLIP_WHOLE, 1, &norm), CMHA_ERR_STATE);
    CHECK_OK(cmha_parameters_tune(&p, "*", CMHA_TUNE_FROZEN, 0, NULL));
    CHECK(p.learning == size && p.grad && check_largest(p.grad, size) == 0);
    list_gradient(&p, &tape);
    CHECK_OK(cmha_parameters_step(&p, &args, CMHA_CLIP_WHOLE, 1, &norm));
    p.grad[1] = (cmha_real)NAN;
    memcpy(kept, p.data, size * sizeof *kept);
    CHECK_IS(cmha_parameters_step(&p, &args, CMHA_CLIP_WHOLE, 1, &norm), CMHA_ERR_NOT_FINITE);
    CHECK(!memcmp(kept, p.data, size * sizeof *kept) && p.step == 9);
    args.grad_scale = 0;
    CHECK_IS(cmha_parameters_step(&p, &args, CMHA_CLIP_WHOLE, 1, &norm), CMHA_ERR_ARGUMENT);
    CHECK_OK(cmha_parameters_save(&p, path_of("weights"), 0));
    CHECK_IS(cmha_parameters_read(&q, path_of("weights"), 1), CMHA_ERR_FORMAT);
    CHECK_OK(cmha_parameters_read(&q, path_of("weights"), 0));
    CHECK(!memcmp(p.data, q.data, size * sizeof *kept) && q.step == 8);
    free(kept), free(m), free(v);
    cmha_parameters_close(&p), cmha_parameters_close(&q), cmha_parameters_close(&q), cmha_tape_close(&tape);
    remove(path_of("weights"));
}

static void wrong_rows(void) {
    static const cmha_parameter_row wrong[][2] = {
        {{"a", {2}, 0, 0, 0, 0}, {"a", {2}, 0, 0, 0, 0}},
        {{"a", {2}, 0, 0, 0, 0}, {"", {2}, 0, 0, 0, 0}},
        {{"a", {2}, 0, 0, 0, 0}, {NULL, {2}, 0, 0, 0, 0}},
        {{"a", {2}, 0, 0, 0, 0}, {"012345678901234567890123456789012345678901234567", {2}, 0, 0, 0, 0}},
        {{"a", {2}, 0, 0, 0, 0}, {"b", {0}, 0, 0, 0, 0}},
        {{"a", {2}, 0, 0, 0, 0}, {"b", {3, 2}, 0, 0, 0, 1}},
        {{"a", {2}, 0, 0, 0, 0}, {"b", {2}, (double)INFINITY, 0, 0, 0}},
        {{"a", {2}, 0, 0, 0, 0}, {"b", {2}, 0, 0, -1, 0}},
        {{"a", {2}, 0, 0, 0, 0}, {"b", {SIZE_MAX / 2, 3}, 0, 0, 0, 0}},
        {{"a", {SIZE_MAX / sizeof(cmha_real) / 12}, 0, 0, 0, 0},
         {"b", {SIZE_MAX / sizeof(cmha_real) / 12}, 0, 0, 0, 0}}};
    cmha_parameters p;
    size_t i;
    for (i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_THAT(cmha_parameters_init(&p, &context, wrong[i], 2) == CMHA_ERR_ARGUMENT, "row %zu", i);
        CHECK_THAT(strstr(cmha_error(&context), "row 1") && !p.context, "%s", cmha_error(&context));
    }
    CHECK_IS(cmha_parameters_init(&p, &context, NULL, 2), CMHA_ERR_ARGUMENT);
    CHECK_IS(cmha_parameters_init(&p, &context, rows, 0), CMHA_ERR_ARGUMENT);
    CHECK_IS(cmha_parameters_init(&p, NULL, rows, 3), CMHA_ERR_STATE);
    CHECK_IS(cmha_parameters_save(&p, path_of("none"), 0), CMHA_ERR_STATE);
    CHECK_IS(cmha_parameters_init(&p, &context, rows, SIZE_MAX / 8), CMHA_ERR_OVERFLOW);
}

/* A gradient whose norm is a number although its squares are none in float: the step is that of the same
   direction, and clips to the same length. */
static void large_gradients(void) {
    static const double sizes[] = {1e3, 1e19, 1e22, 1e30};
    cmha_adamw_args args = {1e-2, 0.9, 0.99, 1e-8, 0, 1, 0, 0, 0, CMHA_UPDATE_RMS};
    cmha_real first[OUT * IN];
    double norm;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        cmha_parameters p;
        CHECK_OK(cmha_parameters_init(&p, &context, rows, 3));
        for (size_t k = 0; k < p.size; k++) p.grad[k] = (cmha_real)((k % 3 ? 1 : -0.5) * sizes[i]);
        CHECK_OK(cmha_parameters_step(&p, &args, CMHA_CLIP_WHOLE, 1, &norm));
        CHECK_THAT(norm > sizes[i] && norm < 100 * sizes[i], "%g for %g", norm, sizes[i]);
        if (!i) memcpy(first, p.data, sizeof first);
        CHECK(check_distance(p.data, first, OUT * IN) < 1e-6);
        for (size_t k = 0; k < p.size; k++) p.grad[k] = (cmha_real)sizes[i];
        if (sizeof(cmha_real) == 4 && sizes[i] > 1e18) /* whose second moments would be infinite */
            CHECK_IS(cmha_parameters_step(&p, &args, CMHA_CLIP_WHOLE, 0, &norm), CMHA_ERR_NOT_FINITE);
        cmha_parameters_close(&p);
    }
}

/* Arguments that would make parameters NaN, or learn nothing without a word. */
static void wrong_steps(void) {
    const cmha_adamw_args right = {1e-2, 0.9, 0.99, 1e-8, 0.1, 1, 0, 0, 0, CMHA_UPDATE_RMS};
    cmha_parameters p;
    CHECK_OK(cmha_parameters_init(&p, &context, rows, 3));
    for (int i = 0; i < 12; i++) {
        cmha_adamw_args args = right;
        double *const members[] = {&args.lr,  &args.beta1,        &args.beta2,
                                   &args.eps, &args.weight_decay, &args.grad_scale};
        *members[i % 6] = i < 6 ? (double)NAN : i == 10 ? (double)INFINITY : -1;
        CHECK_IS(cmha_parameters_step(&p, &args, CMHA_CLIP_WHOLE, 1, NULL), CMHA_ERR_ARGUMENT);
    }
    CHECK_IS(cmha_parameters_step(&p, &right, CMHA_CLIP_WHOLE, (double)NAN, NULL), CMHA_ERR_ARGUMENT);
    CHECK_IS(cmha_parameters_step(&p, &right, CMHA_CLIP_WHOLE, -1, NULL), CMHA_ERR_ARGUMENT);
    CHECK(p.step == 0);
    cmha_parameters_close(&p);
}

/* Everything at every allocation that fails: a status, nothing lost, nothing changed. */
static void failures(void) {
    check_heap heap;
    cmha_context_config config = check_heap_config(&heap);
    cmha_context c;
    cmha_parameters p;
    cmha_adamw_args args = {1e-2, 0.9, 0.99, 1e-8, 0.1, 1, 0, 0, 0, CMHA_UPDATE_RMS};
    cmha_real before[OUT * IN + OUT + 2 * IN];
    cmha_status status = CMHA_ERR_MEMORY;
    size_t at, k, refused = 0;
    config.threads = 1;
    CHECK_OK(cmha_context_init(&c, &config));
    for (at = 1; status; at++) {
        heap.calls = 0, heap.fail_at = at;
        status = cmha_parameters_init(&p, &c, rows, 3);
        CHECK(!status || (status == CMHA_ERR_MEMORY && !p.context));
        refused += status != CMHA_OK;
    }
    CHECK(refused == 3);
    heap.fail_at = 0;
    CHECK_OK(cmha_parameters_step(&p, &args, CMHA_CLIP_WHOLE, 1, NULL));
    for (k = 0; k < 4; k++) {
        memcpy(before, p.data, sizeof before);
        for (at = 1, status = CMHA_ERR_MEMORY; status; at++) {
            double error;
            subject s = {&p, NULL, CMHA_STOPPED, 0};
            cmha_tape tape;
            cmha_tape_init(&tape, &c, 1);
            s.tape = &tape;
            heap.calls = 0, heap.fail_at = at;
            if (k < 2) status = cmha_parameters_tune(&p, "w", CMHA_TUNE_FROZEN, k == 0, NULL);
            else if (k == 2) status = cmha_parameters_read(&p, path_of("list"), 1);
            else
                status = cmha_gradient_check(&p, list_loss, &s, &error) == CMHA_STOPPED ? CMHA_OK
                                                                                        : CMHA_ERR_MEMORY;
            heap.fail_at = 0;
            cmha_tape_close(&tape);
            if (!CHECK_THAT(!status || status == CMHA_ERR_MEMORY, "%zu, %zu: %s", k, at, cmha_error(&c)))
                break;
            if (status) CHECK(!memcmp(before, p.data, sizeof before) && p.list[0].frozen == (k == 1));
            if (status) CHECK((p.list[0].tensor.grad == NULL) == (k == 1) && p.moments && p.grad);
        }
    }
    cmha_parameters_close(&p), cmha_context_close(&c);
    CHECK(check_heap_empty(&heap));
    remove(path_of("list"));
}

/* ------------------------------------------- the gradient check ----------------------------------------- */

static cmha_status model_loss(void *user, double *loss) {
    cmha_batch batch = batch_of();
    return cmha_model_loss((cmha_model *)user, &batch, loss);
}

static void checks(void) {
    cmha_model_config config = check_model_config();
    cmha_model model;
    cmha_parameters p;
    cmha_tape tape;
    cmha_batch batch = batch_of();
    cmha_real *kept;
    cmha_parameter *one;
    double error = -1, loss;
    size_t bytes;
    subject s = {&p, &tape, CMHA_OK, 0};
    CHECK_OK(cmha_tape_init(&tape, &context, 1));
    CHECK_OK(cmha_parameters_init(&p, &context, rows, 3));
    CHECK_OK(cmha_gradient_check(&p, list_loss, &s, &error));
    CHECK_THAT(!(error < 1e9), "zeros are taken for a gradient: %g", error);
    list_gradient(&p, &tape);
    CHECK_OK(cmha_gradient_check(&p, list_loss, &s, &error));
    CHECK_THAT(error < check_tolerance(1e-8, 2e-2), "%g: %s", error, cmha_error(&context));
    p.list[2].tensor.grad[1] *= (cmha_real)1.2; /* a wrong number of a short one, of a long one */
    CHECK_OK(cmha_gradient_check(&p, list_loss, &s, &error));
    CHECK_THAT(error > 0.01 && strstr(cmha_error(&context), ": z:"), "%g: %s", error, cmha_error(&context));
    p.list[2].tensor.grad[1] /= (cmha_real)1.2, p.list[0].tensor.grad[5] += (cmha_real)0.3;
    CHECK_OK(cmha_gradient_check(&p, list_loss, &s, &error));
    CHECK_THAT(error > 0.01 && strstr(cmha_error(&context), ": w"), "%g: %s", error, cmha_error(&context));
    p.list[0].tensor.grad[5] = (cmha_real)NAN;
    CHECK_OK(cmha_gradient_check(&p, list_loss, &s, &error));
    CHECK(!(error < 1e9) && error > 0);
    list_gradient(&p, &tape), s.spoil = 1;
    CHECK_OK(cmha_gradient_check(&p, list_loss, &s, &error));
    CHECK(!(error < 1e9) && error > 0);
    s.fail = CMHA_ERR_TOKEN, error = 5;
    CHECK_IS(cmha_gradient_check(&p, list_loss, &s, &error), CMHA_ERR_TOKEN);
    CHECK(error == 5);
    CHECK_IS(cmha_gradient_check(&p, NULL, &s, &error), CMHA_ERR_ARGUMENT);
    cmha_parameters_close(&p), cmha_tape_close(&tape);
    config.attention = CMHA_ATTENTION_ROPE; /* cmha jumps where a phase crosses the negative axis */
    CHECK_OK(cmha_model_init(&model, &context, &config));
    CHECK_IS(cmha_gradient_check(&model.parameters, model_loss, &model, &error), CMHA_ERR_STATE);
    freeze(&model, "*wk*", 1), freeze(&model, "blocks.1.ln2*", 1);
    CHECK_OK(cmha_model_gradient(&model, &batch, 1, 0, &loss));
    bytes = (model.parameters.size + model.parameters.learning) * sizeof *kept;
    kept = (cmha_real *)check_alloc(1, bytes);
    memcpy(kept, model.parameters.data, model.parameters.size * sizeof *kept);
    memcpy(kept + model.parameters.size, model.parameters.grad, model.parameters.learning * sizeof *kept);
    CHECK_OK(cmha_gradient_check(&model.parameters, model_loss, &model, &error));
    CHECK_THAT(error < check_tolerance(1e-6, 1e-2) && error >= 0, "%g: %s", error, cmha_error(&context));
    CHECK(!memcmp(kept, model.parameters.data, model.parameters.size * sizeof *kept));
    CHECK(!memcmp(kept + model.parameters.size, model.parameters.grad,
                  model.parameters.learning * sizeof *kept));
    one = cmha_parameters_find(&model.parameters, "blocks.0.ln1.weight");
    if (CHECK(one != NULL))
        one->tensor.grad[0] += (cmha_real)(10 * check_largest(one->tensor.grad, one->tensor.size));
    CHECK_OK(cmha_gradient_check(&model.parameters, model_loss, &model, &error));
    CHECK_THAT(error > 0.5 && strstr(cmha_error(&context), "blocks.0.ln1.weight"), "%s",
               cmha_error(&context));
    free(kept), cmha_model_close(&model);
}

/* A parameter that the loss does not read has a gradient of zeros, which is right: it is measured by the
   largest of all, not by its own. */
static void unread_parameters(void) {
    cmha_parameter_row more[] = {rows[0], rows[1], rows[2], {"idle", {5, 0, 0, 0}, 0, 1, 0, 0}};
    cmha_parameters p;
    cmha_tape tape;
    subject s = {&p, &tape, CMHA_OK, 0};
    double error = -1;
    CHECK_OK(cmha_tape_init(&tape, &context, 1));
    CHECK_OK(cmha_parameters_init(&p, &context, more, 4));
    list_gradient(&p, &tape);
    CHECK_OK(cmha_gradient_check(&p, list_loss, &s, &error));
    CHECK_THAT(error < check_tolerance(1e-8, 2e-2), "%g: %s", error, cmha_error(&context));
    cmha_parameters_close(&p), cmha_tape_close(&tape);
}

/* A sequence of five tokens: a check computes thousands of losses. */
static cmha_batch five_tokens(void) {
    cmha_batch batch = batch_of();
    batch.batch = 1, batch.length = 5;
    return batch;
}

static cmha_status training_loss(void *user, double *loss) {
    cmha_batch batch = five_tokens();
    return cmha_model_training_loss((cmha_model *)user, &batch, 3, loss);
}

/* The check holds for every kind, extra losses included; what jumps or bends within a step is left out with
   its reason. */
static void every_kind(void) {
    static const char *const leaps[][2] = {
        {"cmha", "delta theta jumps where a phase passes pi"}, {"cmha-shared", "the same"},
        {"cope-phase", "A / |A| turns fast where |A| is small"}, {"cope-hybrid", "the same"},
        {"cope-hybrid_norm", "the maximum counts as a constant"},
        {"pope", "beta starts at the end of its range"},
        {"angular-atan", "the arctan's phase jumps"}};
    /* phases of small numbers */
    static const char *const bends[] = {"angular", "angular-linear", "crat", "lag"};
    cmha_batch batch = five_tokens();
    const char *kind;
    for (size_t i = 0, k; (kind = cmha_kind_name(i, NULL)) != NULL; i++) {
        cmha_model_config config;
        cmha_model model;
        double loss, error = -1;
        for (k = 0; k < sizeof leaps / sizeof *leaps; k++)
            if (!strcmp(kind, leaps[k][0])) break;
        if (k < sizeof leaps / sizeof *leaps) continue;
        for (k = 0; k < sizeof bends / sizeof *bends; k++)
            if (!strcmp(kind, bends[k])) break;
        if (sizeof(cmha_real) == 4 && k < sizeof bends / sizeof *bends) continue;
        cmha_config_defaults(cmha_model_table(), &config);
        CHECK_OK(cmha_kind(&context, kind, &config));
        CHECK_OK(cmha_config_set_all(&context, cmha_model_table(), &config,
                                     "d_model=32 d_ff=8 n_heads=2 n_layers=1 max_positions=16"));
        config.vocabulary = VOCABULARY;
        if (config.experts > 1) config.experts_top = config.experts = 2; /* a choice of them jumps */
        CHECK_OK(cmha_model_init(&model, &context, &config));
        freeze(&model, "*", 1), freeze(&model, "blocks.0.attn*", 0); /* for the time it takes */
        if (config.experts) freeze(&model, "*router*", 0);
        CHECK_OK(cmha_model_gradient(&model, &batch, 1, 3, &loss));
        CHECK_OK(cmha_gradient_check(&model.parameters, training_loss, &model, &error));
        CHECK_THAT(error < check_tolerance(1e-3, 1e-2), "%s: %g: %s", kind, error, cmha_error(&context));
        cmha_model_close(&model);
    }
}

int main(void) {
    size_t i;
    if (!system_folder(folder)) return 3;
    check_context(&context, 2, 5);
    for (i = 0; i < BATCH * LENGTH; i++) {
        ids[i] = (int32_t)check_below(VOCABULARY);
        targets[i] = i % 5 ? (int32_t)check_below(VOCABULARY) : -1;
    }
    check_fill(input, 4 * IN, 1), check_fill(wanted, 4 * OUT, 1);
    memset(&stream, 0, sizeof stream);
    stream.data = text, stream.width = 1, stream.count = models_text(text, sizeof text);
    every_form();
    fused();
    steps();
    rates();
    exact_memory("activation=swiglu", "*wk*");
    exact_memory("", "*weight");
    exact_memory("recompute=1 pcl_weight=0.1", "tok_emb*");
    exact_memory("causal=0", "blocks.0.*");
    exact_memory("family=crat experts=2", "*experts*");
    patterns();
    thawing();
    files();
    lists();
    wrong_rows();
    large_gradients();
    wrong_steps();
    failures();
    checks();
    unread_parameters();
    every_kind();
    cmha_context_close(&context);
    remove(path_of("thawed"));
    CHECK(!rmdir(folder)); /* nothing else is left */
    return check_end();
}
