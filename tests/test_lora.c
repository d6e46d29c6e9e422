/* Adapters (LoRA) beside the matrices of every kind of block: what begins, learns, and takes memory; that
   they are merged into their weights to rounding (in double, as grad_lora: to 1e-12), decode, are packed
   beside, resume bit for bit, and stand in a file of their own that fits one base alone; that new parameters
   go above an older checkpoint (a RoPE model is a ComplexFormer). `test_lora FOLDER` writes a curve of losses
   for lora.py to compare. */
#define _POSIX_C_SOURCE 200809L
#define _DARWIN_C_SOURCE
#include "models.h"
#include "system.h"

enum { BATCH = 2, LENGTH = 12, VOCABULARY = 19 };

static cmha_context context;
static int32_t ids[BATCH * LENGTH], targets[BATCH * LENGTH];
static unsigned char text[3000];
static cmha_tokens stream;

static const char *const forms[] = {
    "lora_rank=3 lora_on=* attention_bias=1 n_kv_heads=2 dropout=0.2",
    "lora_rank=2 lora_alpha=5",
    "lora_rank=4 lora_alpha=1 lora_on=wk,w3,wo,w2 activation=swiglu norm=rmsnorm attention=rope tied=0",
    "lora_rank=2 lora_on=* placement=post residual_scale=0.5 attention=dot position=learned",
    "family=cope attention=dot cope_score=hybrid lora_rank=2 lora_on=* output_bias=1",
    "family=mobius mobius_heads=1 attention=rope position=learned placement=post lora_rank=2 lora_on=*",
    "family=mobius mobius_heads=4 mobius_mode=full attention=dot position=learned placement=post "
    "lora_rank=3 lora_on=*,w1_imag",
    "family=mobius mobius_heads=2 mobius_mode=literal attention=dot position=learned placement=post "
    "lora_rank=1 lora_on=*",
    "family=crat real_heads=1 imag_heads=1 lora_rank=2 lora_on=* lora_alpha=3",
    "family=crat real_heads=2 experts=2 lora_rank=2 lora_on=wqkv,wo",
    "family=crat low_rank=2 irw_layers=1 lora_rank=2 lora_on=w1,w2",
};
enum { FORMS = sizeof forms / sizeof *forms };

/* A folder of its own: sanitized and in double this test runs beside itself. */
static char folder[64] = "/tmp/cmha-lora-XXXXXX";

static const char *path_of(const char *name) {
    static char path[4][128];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static void remove_files(void) {
    static const char *const names[] = {"merged", "part", "packed", "base", "state", "rope"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) remove(path_of(names[i]));
    CHECK(!rmdir(folder)); /* and nothing else is in it */
}

static cmha_batch batch_of(void) {
    cmha_batch batch;
    memset(&batch, 0, sizeof batch);
    batch.ids = ids, batch.targets = targets, batch.batch = BATCH, batch.length = LENGTH;
    return batch;
}

static cmha_model_config config_of(const char *form) {
    cmha_model_config config = check_model_config();
    models_set(&context, &config, form);
    return config;
}

static cmha_model_config without(cmha_model_config config) {
    config.lora_rank = 0, config.lora_alpha = 0, memset(config.lora_on, 0, sizeof config.lora_on);
    return config;
}

static int is_adapter(const char *name) { return strstr(name, ".lora_a") || strstr(name, ".lora_b"); }

/* Moves all adapters, so that each adds something. */
static void disturb(cmha_model *model) {
    size_t i, k;
    for (i = 0; i < model->parameters.count; i++) {
        const cmha_parameter *p = &model->parameters.list[i];
        for (k = 0; is_adapter(p->name) && k < p->tensor.size; k++)
            p->tensor.data[k] += (cmha_real)(0.3 * check_random());
    }
}

static int open_form(cmha_model *model, const cmha_model_config *config, const char *label) {
    return CHECK_THAT(!cmha_model_init(model, &context, config), "%s: %s", label, cmha_error(&context));
}

static cmha_trainer_config training(void) {
    cmha_trainer_config t;
    cmha_config_defaults(cmha_trainer_table(), &t);
    t.steps = 30, t.batch = BATCH, t.length = LENGTH, t.lr = 0.02, t.warmup = 0, t.eval_tokens = 200;
    return t;
}

static double logits_off(cmha_model *model, const cmha_real *want) {
    cmha_real *got = check_zeros(BATCH * LENGTH * VOCABULARY);
    cmha_batch batch = batch_of();
    double off;
    CHECK_THAT(!cmha_model_logits(model, &batch, got), "%s", cmha_error(&context));
    off = check_distance(got, want, BATCH * LENGTH * VOCABULARY);
    free(got);
    return off;
}

/* ------------------------------------------ what a model begins as -------------------------------------- */

static const cmha_parameter *base_of(const cmha_model *model, const char *adapter) {
    char name[64];
    snprintf(name, sizeof name, "%.*s.weight", (int)(strlen(adapter) - 7), adapter);
    return cmha_parameters_find(&model->parameters, name);
}

/* The base is that of the same seed without adapters, and so are the logits; adapters have the shapes that
   belong to their matrix, A begins uniform and B with zeros, and only they learn. */
static void begins(const char *form) {
    cmha_model_config config = config_of(form), plain = without(config);
    cmha_model model, base;
    cmha_real *want = check_zeros(BATCH * LENGTH * VOCABULARY);
    cmha_batch batch = batch_of();
    size_t i, adapters = 0, learning = 0;
    if (!open_form(&model, &config, form) || !open_form(&base, &plain, form)) return;
    CHECK_OK(cmha_model_logits(&base, &batch, want));
    CHECK_THAT(logits_off(&model, want) == 0, "%s: adapters change something from the start", form);
    for (i = 0; i < model.parameters.count; i++) {
        const cmha_parameter *p = &model.parameters.list[i], *q, *of;
        const cmha_tensor *t = &p->tensor;
        int a = strstr(p->name, ".lora_a") != NULL;
        if (!is_adapter(p->name)) {
            q = &base.parameters.list[i];
            CHECK_THAT(!strcmp(p->name, q->name) && p->frozen && !q->frozen &&
                           !memcmp(t->data, q->tensor.data, t->size * sizeof *t->data),
                       "%s: %s is not that of the base, or learns", form, p->name);
            continue;
        }
        of = base_of(&model, p->name), adapters++, learning += t->size;
        if (!CHECK_THAT(of != NULL, "%s: %s has no matrix", form, p->name)) continue;
        CHECK_THAT(!p->frozen && p->is_complex == of->is_complex && t->rank == of->tensor.rank &&
                       t->shape[t->rank - 2] == (a ? config.lora_rank : of->tensor.shape[t->rank - 2]) &&
                       t->shape[t->rank - 1] == (a ? of->tensor.shape[t->rank - 1] : config.lora_rank) &&
                       p->decay == 1,
                   "%s: %s does not fit its matrix", form, p->name);
        CHECK_THAT(a ? check_largest(t->data, t->size) > 0.3 / sqrt((double)t->shape[t->rank - 1]) &&
                           check_largest(t->data, t->size) <= 1 / sqrt((double)t->shape[t->rank - 1])
                     : check_largest(t->data, t->size) == 0,
                   "%s: %s starts at %g", form, p->name, check_largest(t->data, t->size));
    }
    CHECK_THAT(adapters >= 2 && adapters % 2 == 0 &&
                   base.parameters.count + adapters == model.parameters.count,
               "%s: %zu adapters", form, adapters);
    CHECK(model.parameters.learning == learning);
    cmha_model_close(&model), cmha_model_close(&base);
    free(want);
}

/* --------------------------------------- merging, packing, decoding ------------------------------------- */

/* Feeds a cache in chunks; returns how far its logits are from the whole pass's. */
static double decode_off(cmha_model *model, const cmha_real *full, size_t chunk) {
    cmha_cache cache;
    cmha_real out[VOCABULARY];
    double off = 0;
    size_t at;
    CHECK_THAT(!cmha_cache_init(&cache, model, 1, LENGTH, 0, NULL), "%s", cmha_error(&context));
    for (at = 0; at < LENGTH; at += chunk) {
        CHECK_OK(cmha_cache_append(&cache, ids + at, chunk, out));
        off = fmax(off, check_distance(out, full + (at + chunk - 1) * VOCABULARY, VOCABULARY));
    }
    cmha_cache_close(&cache);
    return off;
}

static void merges(const char *form) {
    cmha_model_config config = config_of(form), plain = without(config);
    cmha_model model, base, again;
    cmha_trainer trainer;
    cmha_trainer_config t = training();
    cmha_batch batch = batch_of();
    double tolerance = check_tolerance(1e-12, 2e-4), loss, before;
    cmha_real *full = check_zeros(BATCH * LENGTH * VOCABULARY);
    size_t i, bytes;
    if (!open_form(&model, &config, form) || !open_form(&base, &plain, form)) return;
    disturb(&model);
    CHECK_OK(cmha_model_logits(&model, &batch, full));
    CHECK_THAT(logits_off(&base, full) > 1e-3, "%s: adapters add nothing", form);
    CHECK_THAT(decode_off(&model, full, 1) < tolerance && decode_off(&model, full, 4) < tolerance,
               "%s: decoded logits are off by %g and %g", form, decode_off(&model, full, 1),
               decode_off(&model, full, 4));
    CHECK_OK(cmha_model_training_loss(&model, &batch, 7, &before)); /* adapters add before the dropout */
    CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    CHECK_THAT(!cmha_model_merge(&model), "%s: %s", form, cmha_error(&context));
    CHECK_IS(cmha_trainer_step_batch(&trainer, &batch, &loss), CMHA_ERR_STATE);
    cmha_trainer_close(&trainer);
    CHECK_THAT(logits_off(&model, full) < tolerance, "%s: merged logits are off by %g", form,
               logits_off(&model, full));
    CHECK_OK(cmha_model_training_loss(&model, &batch, 7, &loss));
    CHECK_THAT(fabs(loss - before) < tolerance, "%s: merged, the training loss is off by %g", form,
               loss - before);
    CHECK(model.parameters.count == base.parameters.count && model.parameters.size == base.parameters.size);
    CHECK(model.parameters.learning == model.parameters.size);
    CHECK(!memcmp(&model.config, &plain, sizeof plain));
    for (i = 0; i < base.parameters.count; i++) {
        CHECK(!strcmp(model.parameters.list[i].name, base.parameters.list[i].name));
        CHECK(!model.parameters.list[i].frozen && !model.parameters.list[i].usual_frozen);
    }
    CHECK_IS(cmha_model_merge(&model), CMHA_ERR_STATE);
    /* it is a model as any: learns, saves, opens, packs */
    CHECK_OK(cmha_model_training_memory(&model, BATCH, LENGTH, &bytes));
    CHECK_OK(cmha_model_save(&model, path_of("merged")));
    CHECK_THAT(!cmha_model_open(&again, &context, path_of("merged")), "%s", cmha_error(&context));
    CHECK(!memcmp(again.parameters.data, model.parameters.data, again.parameters.size * sizeof(cmha_real)));
    CHECK_OK(cmha_model_pack(&again, CMHA_STORAGE_BF16));
    CHECK(logits_off(&again, full) < 0.5);
    CHECK_OK(cmha_model_gradient(&model, &batch, 1, 3, &loss));
    CHECK(check_largest(model.parameters.grad, model.parameters.learning) > 0);
    cmha_model_close(&model), cmha_model_close(&base), cmha_model_close(&again);
    free(full);
}

/* Beside packed matrices adapters stay numbers, and what they add is what it was. */
static void packs(const char *form) {
    cmha_model_config config = config_of(form), plain = without(config);
    cmha_model model, base;
    cmha_real *full = check_zeros(BATCH * LENGTH * VOCABULARY);
    double with, alone;
    cmha_batch batch = batch_of();
    size_t i;
    if (!open_form(&model, &config, form) || !open_form(&base, &plain, form)) return;
    CHECK_OK(cmha_model_logits(&base, &batch, full));
    CHECK_OK(cmha_model_pack(&base, CMHA_STORAGE_INT8));
    alone = logits_off(&base, full);
    CHECK_OK(cmha_model_pack(&model, CMHA_STORAGE_INT8));
    CHECK_THAT(logits_off(&model, full) <= alone * 1.0001 + 1e-6, "%s: packed, off by %g", form, alone);
    cmha_model_close(&model), CHECK(open_form(&model, &config, form));
    disturb(&model);
    CHECK_OK(cmha_model_logits(&model, &batch, full));
    CHECK_OK(cmha_model_pack(&model, CMHA_STORAGE_INT8));
    with = logits_off(&model, full);
    CHECK_THAT(with < 3 * alone + 0.2, "%s: packed with adapters, off by %g, without by %g", form, with,
               alone);
    for (i = 0; i < model.parameters.count; i++)
        CHECK(!is_adapter(model.parameters.list[i].name) || model.parameters.list[i].tensor.data);
    CHECK_IS(cmha_model_merge(&model), CMHA_ERR_STATE);
    CHECK_IS(cmha_model_save_part(&model, path_of("part")), CMHA_ERR_STATE);
    CHECK_OK(cmha_model_save(&model, path_of("packed")));
    cmha_model_close(&base);
    CHECK_THAT(!cmha_model_open(&base, &context, path_of("packed")), "%s", cmha_error(&context));
    CHECK(logits_off(&base, full) == with);
    cmha_model_close(&model), cmha_model_close(&base);
    free(full);
}

/* ------------------------------------------------ training ---------------------------------------------- */

static double train(cmha_trainer *trainer, size_t until) {
    double loss = 0;
    while (trainer->step < until)
        if (cmha_trainer_step(trainer, &stream, &loss)) {
            CHECK_THAT(0, "%s", cmha_error(&context));
            break;
        }
    return loss;
}

/* Adapters learn and the base keeps every bit; a run that stops, is saved and resumed is the uninterrupted
   one; its part, read onto the base, is the model. */
static void learns(const char *form) {
    cmha_model_config config = config_of(form), plain = without(config), told;
    cmha_trainer_config t = training();
    cmha_model model, base, again;
    cmha_trainer trainer, resumed;
    cmha_archive archive;
    size_t i, taken, tensors = 0, size;
    double first = 0, last = 0;
    config.dropout = plain.dropout = 0.1;
    config.vocabulary = plain.vocabulary = 128;
    if (!open_form(&model, &config, form) || !open_form(&base, &plain, form)) return;
    CHECK_OK(cmha_model_save(&base, path_of("base")));
    CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    CHECK_OK(cmha_trainer_evaluate(&trainer, &stream, &first));
    train(&trainer, 15);
    CHECK_OK(cmha_trainer_save(&trainer, path_of("state")));
    train(&trainer, 30);
    CHECK_OK(cmha_trainer_evaluate(&trainer, &stream, &last));
    CHECK_THAT(last < first - 0.02, "%s: adapters bring the loss from %g to %g", form, first, last);
    for (i = 0; i < model.parameters.count; i++) {
        const cmha_parameter *p = &model.parameters.list[i], *q = base.parameters.list + i;
        if (is_adapter(p->name)) tensors++;
        else
            CHECK_THAT(!memcmp(p->tensor.data, q->tensor.data, p->tensor.size * sizeof(cmha_real)),
                       "%s: %s has moved", form, p->name);
    }
    CHECK_OK(cmha_config_read(&context, path_of("state"), &told, NULL));
    CHECK_OK(cmha_model_init(&again, &context, &told));
    CHECK_OK(cmha_trainer_init(&resumed, &again, &t));
    CHECK_THAT(!cmha_trainer_read(&resumed, path_of("state")), "%s", cmha_error(&context));
    train(&resumed, 30);
    size = model.parameters.size * sizeof(cmha_real);
    CHECK_THAT(again.parameters.size == model.parameters.size &&
                   !memcmp(again.parameters.data, model.parameters.data, size),
               "%s: a resumed run is another", form);
    cmha_trainer_close(&trainer), cmha_trainer_close(&resumed), cmha_model_close(&again);

    CHECK_THAT(!cmha_model_save_part(&model, path_of("part")), "%s", cmha_error(&context));
    CHECK_OK(cmha_archive_open(&archive, &context, path_of("part")));
    CHECK_THAT(archive.n_tensors == tensors, "%s: the part has %zu tensors, not %zu", form, archive.n_tensors,
               tensors);
    cmha_archive_close(&archive);
    CHECK_IS(cmha_model_open(&again, &context, path_of("part")), CMHA_ERR_FORMAT);
    CHECK_THAT(strstr(cmha_error(&context), "onto the rest") != NULL, "%s", cmha_error(&context));
    CHECK_OK(cmha_config_read(&context, path_of("part"), &told, NULL));
    context.config.seed++; /* another start, of which nothing may stay */
    CHECK_OK(cmha_model_init(&again, &context, &told));
    context.config.seed--;
    CHECK_IS(cmha_model_read(&again, path_of("part"), 2, NULL), CMHA_ERR_FORMAT);
    CHECK_THAT(strstr(cmha_error(&context), "in the rest") != NULL, "%s", cmha_error(&context));
    CHECK_IS(cmha_model_read(&again, path_of("part"), 1, NULL), CMHA_ERR_FORMAT);
    CHECK_THAT(!cmha_model_read(&again, path_of("base"), 2, &taken), "%s", cmha_error(&context));
    CHECK(taken == base.parameters.count);
    CHECK_THAT(!cmha_model_read(&again, path_of("part"), 2, &taken), "%s", cmha_error(&context));
    CHECK_THAT(taken == tensors && !memcmp(again.parameters.data, model.parameters.data, size),
               "%s: base and part are not the model", form);
    again.parameters.data[0] += 1;
    CHECK_IS(cmha_model_read(&again, path_of("part"), 2, NULL), CMHA_ERR_FORMAT);
    CHECK_IS(cmha_model_read(&base, path_of("part"), 2, NULL), CMHA_ERR_FORMAT); /* no such tensors */
    cmha_model_close(&model), cmha_model_close(&base), cmha_model_close(&again);
}

/* ------------------------------------------------- memory ----------------------------------------------- */

/* What is said is taken; gradients and moments are those of the adapters alone, and an interface that trains
   nothing else saves what they would have had. */
static void memory(const char *form) {
    cmha_model_config config = config_of(form), plain;
    cmha_trainer_config t = training();
    cmha_model model;
    size_t parameters, adapted, whole, thawed;
    config.vocabulary = 128, plain = without(config);
    models_steps_allocate_nothing(&config, &t, &stream, NULL, form);
    CHECK_OK(cmha_model_memory(&context, &config, BATCH, LENGTH, &parameters, &adapted));
    CHECK_OK(cmha_model_memory(&context, &plain, BATCH, LENGTH, &parameters, &whole));
    if (!open_form(&model, &config, form)) return;
    CHECK_OK(cmha_parameters_tune(&model.parameters, "*", CMHA_TUNE_FROZEN, 0, NULL));
    CHECK_OK(cmha_model_training_memory(&model, BATCH, LENGTH, &thawed));
    CHECK_THAT(adapted < whole && adapted < thawed, "%s: %zu bytes, without adapters %zu, thawed %zu", form,
               adapted, whole, thawed);
    cmha_model_close(&model);
}

/* ------------------------------------------------ refusals ---------------------------------------------- */

static void refusals(void) {
    static const char *const wrong[][2] = {
        {"lora_rank=2 lora_on=wq,wx", "\"wx\""},
        {"lora_rank=2 lora_on=w3", "\"w3\""}, /* the activation has none */
        {"lora_rank=2 lora_on=tok_emb", "\"tok_emb\""},
        {"lora_rank=2 lora_on=wq,,wv", "\"\""},
        {"lora_rank=2 lora_on=delta", "\"delta\""},
        {"lora_rank=2 lora_on=wq.weight", "\"wq.weight\""},
        {"family=crat experts=2 lora_rank=2 lora_on=wqkv,w1", "\"w1\""},
        {"family=crat experts=2 lora_rank=2 lora_on=router", "\"router\""},
        {"family=crat low_rank=2 lora_rank=2 lora_on=wo", "\"wo\""},
        {"family=crat irw_layers=1 lora_rank=2 lora_on=gate", "\"gate\""},
        {"family=crat lora_rank=2 lora_on=wq", "\"wq\""},
    };
    cmha_model_config config;
    cmha_model model;
    size_t i, n;
    for (i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        config = config_of(wrong[i][0]);
        CHECK_IS(cmha_model_init(&model, &context, &config), CMHA_ERR_ARGUMENT);
        CHECK_THAT(strstr(cmha_error(&context), wrong[i][1]) != NULL, "%s: %s", wrong[i][0],
                   cmha_error(&context));
        CHECK_IS(cmha_model_memory(&context, &config, 1, 1, &n, NULL), CMHA_ERR_ARGUMENT);
    }
    config = check_model_config();
    CHECK_IS(cmha_config_set(&context, cmha_model_table(), &config, "lora_rank", "-1"), CMHA_ERR_ARGUMENT);
    CHECK_IS(cmha_config_set(&context, cmha_model_table(), &config, "lora_on", "w q"), CMHA_ERR_ARGUMENT);
    CHECK_OK(cmha_model_init(&model, &context, &config));
    CHECK_IS(cmha_model_merge(&model), CMHA_ERR_STATE);
    CHECK_OK(cmha_parameters_tune(&model.parameters, "*", CMHA_TUNE_FROZEN, 1, NULL));
    CHECK_IS(cmha_model_save_part(&model, path_of("part")), CMHA_ERR_STATE);
    cmha_model_close(&model);
}

/* Several patterns at once, with commas between. */
static void patterns(void) {
    static const struct { const char *pattern; size_t matched; } rows[] = {
        {"*.delta,*.b", 4}, {"*.b", 2}, {"*.delta,*.delta", 2}, {"nothing,*.b", 2}, {"*.delta*,x", 2},
        {"blocks.0.attn.delta,blocks.1.attn.b", 2}, {",", 0}, {"", 0}, {"*.delta,", 2}, {"delta", 0}};
    cmha_model_config config = check_model_config();
    cmha_model model;
    size_t i, n;
    CHECK_OK(cmha_model_init(&model, &context, &config));
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        cmha_status status =
            cmha_parameters_tune(&model.parameters, rows[i].pattern, CMHA_TUNE_FROZEN, 1, &n);
        CHECK_THAT(status == (rows[i].matched ? CMHA_OK : CMHA_ERR_NOT_FOUND) && n == rows[i].matched,
                   "%s matches %zu", rows[i].pattern, n);
    }
    cmha_model_close(&model);
}

/* ------------------------------------- a RoPE model as a ComplexFormer ---------------------------------- */

/* delta = 1 and b = 0 above a RoPE checkpoint are the same model; then these alone learn, and are its
   part. */
static void rope(void) {
    cmha_model_config config = config_of("attention=rope norm=rmsnorm vocabulary=128"), fixed = config;
    cmha_trainer_config t = training();
    cmha_model model, base, again;
    cmha_trainer trainer;
    cmha_batch batch = batch_of();
    size_t n = BATCH * LENGTH * 128, taken, i;
    cmha_real *want = check_zeros(n), *got = check_zeros(n);
    double first, last;
    CHECK_OK(cmha_model_init(&base, &context, &config));
    CHECK_OK(cmha_model_save(&base, path_of("rope")));
    CHECK_OK(cmha_kind(&context, "cmha-fixed", &fixed));
    context.config.seed++;
    CHECK_OK(cmha_model_init(&model, &context, &fixed));
    CHECK_OK(cmha_model_read(&model, path_of("rope"), 1, NULL));
    CHECK_OK(cmha_model_logits(&model, &batch, want));
    cmha_model_close(&model);
    CHECK_OK(cmha_kind(&context, "cmha", &config));
    models_set(&context, &config, "delta_init=const");
    CHECK_OK(cmha_model_init(&model, &context, &config));
    context.config.seed--;
    CHECK_IS(cmha_model_read(&model, path_of("rope"), 1, NULL), CMHA_ERR_FORMAT); /* delta, b are missing */
    CHECK_OK(cmha_model_read(&model, path_of("rope"), 2, &taken));
    CHECK(taken == base.parameters.count && taken + 4 == model.parameters.count);
    CHECK_OK(cmha_model_logits(&model, &batch, got));
    CHECK(check_distance(got, want, n) == 0);
    CHECK_OK(cmha_model_logits(&base, &batch, want));
    CHECK(check_distance(got, want, n) < check_tolerance(1e-12, 1e-4));
    CHECK_OK(cmha_parameters_tune(&model.parameters, "*", CMHA_TUNE_FROZEN, 1, NULL));
    CHECK_OK(cmha_parameters_tune(&model.parameters, "*.delta,*.b", CMHA_TUNE_FROZEN, 0, NULL));
    CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    CHECK_OK(cmha_trainer_evaluate(&trainer, &stream, &first));
    train(&trainer, 30);
    CHECK_OK(cmha_trainer_evaluate(&trainer, &stream, &last));
    CHECK_THAT(last < first, "delta and b alone bring the loss from %g to %g", first, last);
    for (i = 0; i < base.parameters.count; i++) {
        const cmha_parameter *q = &base.parameters.list[i];
        const cmha_parameter *p = cmha_parameters_find(&model.parameters, q->name);
        CHECK(!memcmp(p->tensor.data, q->tensor.data, q->tensor.size * sizeof(cmha_real)));
    }
    CHECK_OK(cmha_model_save_part(&model, path_of("part")));
    CHECK_OK(cmha_config_read(&context, path_of("part"), &config, NULL));
    CHECK_OK(cmha_model_init(&again, &context, &config));
    CHECK_OK(cmha_model_read(&again, path_of("rope"), 2, NULL));
    CHECK_OK(cmha_model_read(&again, path_of("part"), 2, &taken));
    CHECK(taken == 4 && !memcmp(again.parameters.data, model.parameters.data,
                                model.parameters.size * sizeof(cmha_real)));
    cmha_trainer_close(&trainer);
    cmha_model_close(&model), cmha_model_close(&base), cmha_model_close(&again);
    free(want), free(got);
}

/* Gives a file's notes another key of as many letters. */
static void rename_note(const char *path, const char *from, const char *to) {
    static char bytes[1 << 20];
    FILE *file = fopen(path, "rb");
    size_t n = file ? fread(bytes, 1, sizeof bytes, file) : 0, found = 0;
    for (size_t i = 0; i + strlen(from) <= n; i++) {
        if (memcmp(bytes + i, from, strlen(from)) != 0) continue;
        memcpy(bytes + i, to, strlen(to));
        found++;
    }
    if (file) fclose(file);
    file = fopen(path, "wb");
    CHECK(found == 1 && n < sizeof bytes && file && fwrite(bytes, 1, n, file) == n && !fclose(file));
}

/* Frequencies of the file's own come with a base that is read below adapters. */
static void frequencies(void) {
    cmha_model_config config = config_of("attention=rope frequency=table");
    double omega[8] = {0.9, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05, 0.02};
    cmha_model model, base;
    CHECK_OK(cmha_model_init(&base, &context, &config));
    CHECK_OK(cmha_model_set_frequencies(&base, omega));
    CHECK_OK(cmha_model_save(&base, path_of("base")));
    config.lora_rank = 2;
    CHECK_OK(cmha_model_init(&model, &context, &config));
    CHECK_OK(cmha_model_read(&model, path_of("base"), 2, NULL));
    CHECK(!memcmp(model.omega, omega, sizeof omega));
    cmha_model_close(&model);
    /* a state goes on with the frequencies that it learned by, and with no others */
    cmha_trainer_config t = training();
    cmha_trainer trainer;
    CHECK_OK(cmha_trainer_init(&trainer, &base, &t));
    CHECK_OK(cmha_trainer_save(&trainer, path_of("state")));
    CHECK_OK(cmha_trainer_read(&trainer, path_of("state")));
    omega[3] += 1e-12;
    CHECK_OK(cmha_model_set_frequencies(&base, omega));
    CHECK_IS(cmha_trainer_read(&trainer, path_of("state")), CMHA_ERR_FORMAT);
    CHECK_THAT(strstr(cmha_error(&context), "omega is another") != NULL, "%s", cmha_error(&context));
    omega[3] -= 1e-12;
    CHECK_OK(cmha_model_set_frequencies(&base, omega));
    rename_note(path_of("state"), "\"omega\"", "\"omegb\""); /* nor with a file that has none */
    CHECK_IS(cmha_trainer_read(&trainer, path_of("state")), CMHA_ERR_FORMAT);
    CHECK_THAT(strstr(cmha_error(&context), "omega is another") != NULL, "%s", cmha_error(&context));
    cmha_trainer_close(&trainer), cmha_model_close(&base);
}

/* ------------------------------------------- a curve for lora.py ---------------------------------------- */

/* Writes a model, the batches that it sees and the losses of 50 steps of its adapters. */
static int write_curve(const char *to) {
    enum { STEPS = 50, B = 4, N = 16 };
    cmha_model_config config =
        config_of("n_layers=2 d_model=32 n_heads=4 d_ff=48 vocabulary=128 attention=rope "
                  "norm=rmsnorm activation=swiglu ffn_bias=0 tied=0 init_std=0.1 "
                  "lora_rank=4 lora_alpha=8 lora_on=wq,wv");
    cmha_trainer_config t = training();
    static int64_t seen[STEPS * B * (N + 1)];
    static cmha_real losses[STEPS];
    static int32_t in[B * N], out[B * N];
    size_t shape[3] = {STEPS, B, N + 1};
    cmha_archive_item items[2] = {{"ids", (const cmha_real *)(const void *)seen, shape, 3, "I64"},
                                  {"losses", losses, shape, 1, NULL}};
    cmha_batch batch;
    cmha_model model;
    cmha_trainer trainer;
    size_t step, i;
    char path[512];
    t.steps = STEPS, t.batch = B, t.length = N, t.lr = 0.02, t.min_lr = 1e-3, t.warmup = 0.1, t.clip = 0.5;
    CHECK_OK(cmha_model_init(&model, &context, &config));
    CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    snprintf(path, sizeof path, "%s/model.safetensors", to);
    CHECK_THAT(!cmha_trainer_save(&trainer, path), "%s", cmha_error(&context));
    memset(&batch, 0, sizeof batch);
    batch.ids = in, batch.targets = out, batch.batch = B, batch.length = N;
    for (step = 0; step < STEPS; step++) {
        double loss = 0;
        for (i = 0; i < B * N; i++) {
            size_t from = i % N ? 0 : check_below(stream.count - N),
                   at = step * B * (N + 1) + i / N * (N + 1);
            for (; i % N == 0 && from && at < step * B * (N + 1) + (i / N + 1) * (N + 1); at++, from++)
                seen[at] = text[from];
            at = step * B * (N + 1) + i / N * (N + 1) + i % N;
            in[i] = (int32_t)seen[at], out[i] = (int32_t)seen[at + 1];
        }
        CHECK_OK(cmha_trainer_step_batch(&trainer, &batch, &loss));
        losses[step] = (cmha_real)loss;
    }
    CHECK(losses[STEPS - 1] < losses[0]);
    snprintf(path, sizeof path, "%s/curve.safetensors", to);
    CHECK_THAT(!cmha_archive_write(&context, path, items, 2, NULL, 0), "%s", cmha_error(&context));
    cmha_trainer_close(&trainer), cmha_model_close(&model);
    return check_end();
}

/* Without lora_on every kind of model has adapters somewhere, which alone learn. */
static void by_default(void) {
    const char *kind;
    for (size_t i = 0; (kind = cmha_kind_name(i, NULL)) != NULL; i++) {
        cmha_model_config config;
        cmha_model model;
        size_t adapters = 0;
        cmha_config_defaults(cmha_model_table(), &config);
        CHECK_OK(cmha_kind(&context, kind, &config));
        CHECK_OK(cmha_config_set_all(&context, cmha_model_table(), &config,
                                     "d_model=16 n_heads=2 d_ff=16 n_layers=2 lora_rank=2"));
        cmha_status status = cmha_model_init(&model, &context, &config);
        if (!CHECK_THAT(!status, "%s: %s", kind, cmha_error(&context))) continue;
        for (size_t k = 0; k < model.parameters.count; k++)
            adapters += strstr(model.parameters.list[k].name, ".lora_") != NULL;
        CHECK_THAT(adapters >= 2 && model.parameters.learning > 0, "%s has %zu adapters", kind, adapters);
        cmha_model_close(&model);
    }
}

int main(int argc, char **argv) {
    size_t i;
    cmha_blas_restart(argv);
    check_context(&context, 2, 7);
    memset(&stream, 0, sizeof stream);
    stream.data = text, stream.count = models_text(text, sizeof text), stream.width = 1;
    if (argc > 1) return write_curve(argv[1]);
    if (!system_folder(folder)) return 3;
    for (i = 0; i < BATCH * LENGTH; i++)
        ids[i] = (int32_t)check_below(VOCABULARY), targets[i] = (int32_t)check_below(VOCABULARY);
    for (i = 0; i < FORMS; i++) {
        begins(forms[i]);
        merges(forms[i]);
        packs(forms[i]);
        learns(forms[i]);
        memory(forms[i]);
    }
    refusals();
    by_default();
    patterns();
    rope();
    frequencies();
    remove_files();
    cmha_context_close(&context);
    return check_end();
}
