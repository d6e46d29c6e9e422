/* Blocks that run again in the backward (recompute = 1): gradients, losses and counts are those of the plain
   run to the bit, for every kind of attention, decoder and encoder, with everything that draws random numbers
   or adds losses; and training takes less memory, exactly as much as cmha_model_memory says. Likewise the
   cross-entropy that goes through the vocabulary in chunks. */
#include "models.h"

enum { BATCH = 3, LENGTH = 24, VOCABULARY = 19, DOCUMENTS = 9, FEATURES = 5 };

static cmha_context context;
static cmha_knowledge base;
static int32_t ids[BATCH * LENGTH], targets[BATCH * LENGTH];
static unsigned char mask[BATCH * LENGTH], text[4000];
static cmha_real labels[BATCH] = {0, 2, 1}, vectors[DOCUMENTS * 2 * FEATURES];
static cmha_tokens stream;

static const char *const forms[] = {
    "dropout=0.2 attention_dropout=0.1",
    "pcl_weight=0.1 pcl_learn=0 dropout=0.1",
    "pcl_weight=0.1 placement=post attention_bias=1",
    "attention=rope n_kv_heads=2 activation=swiglu norm=rmsnorm tied=0 head_bias=1 residual_scale=0.5",
    "attention=dot position=learned window=7 n_layers=1",
    "attention=cmha layout=half d_head=12 rotary_dims=8 qkv_bias=1 embedding_norm=1 head_transform=1 "
    "pooler=1",
    "family=cope attention=dot cope_score=hybrid_norm cope_imag=learned cope_gamma=0.5 dropout=0.1",
    "family=cope attention=rope cope_score=linear placement=post",
    "family=mobius attention=dot position=learned placement=post mobius_wiring=alternating n_layers=4 "
    "dropout=0.1",
    "family=mobius attention=rope position=sinusoidal placement=post mobius_heads=4 mobius_mode=full "
    "mobius_wiring=stacked",
    "family=mobius attention=cmha position=learned placement=post mobius_mode=literal dropout=0.1",
    "family=crat real_heads=1 imag_heads=1 phase_reg=0.1 mag_reg=0.1 dropout=0.1",
    "family=crat experts=3 balance=0.1 complex_residual=free mag_reg=0.1 n_layers=3",
    "family=crat experts=4 experts_top=1 complex_residual=unit low_rank=2 complex_norm=whiten",
    "family=crat d_model=16 irw_layers=2 irw_from=1 irw_width=5 irw_queries=2 irw_top=3 irw_tau=0.1 "
    "experts=3 balance=0.01",
    "family=crat crat_attention=linear state_gelu=1",
    "qk_norm=rms_gain score_softcap=2 logit_softcap=5 window=6 sinks=1 attention_dropout=0.1",
    "parallel=norms residual_mix=1 n_layers=3 dropout=0.1",
    "placement=sandwich layer_kinds=lgn window=6 local_base=20 n_layers=3 dropout=0.1 qk_norm=rms_whole",
};

typedef struct run {
    cmha_model model;
    double loss[2];
    uint64_t use[64];
} run;

/* Two passes, with gradients added up, of other weights and dropout keys. */
static int gradients(run *r, const cmha_model_config *config, const cmha_batch *batch, const char *label) {
    int i;
    if (!CHECK_THAT(!cmha_model_init(&r->model, &context, config), "%s: %s", label, cmha_error(&context)))
        return 0;
    if (config->irw_layers) CHECK_OK(cmha_model_set_knowledge(&r->model, &base));
    for (i = 0; i < 2; i++)
        if (!CHECK_THAT(!cmha_model_gradient(&r->model, batch, i ? 0.7 : 1, 3 + (uint64_t)i, &r->loss[i]),
                        "%s: %s", label, cmha_error(&context)))
            return 0;
    if (r->model.expert_use)
        memcpy(r->use, r->model.expert_use, config->n_layers * config->experts * sizeof *r->use);
    return CHECK_THAT(check_largest(r->model.parameters.grad, r->model.parameters.size) > 0,
                      "%s: no gradient", label);
}

static void same_gradients(const cmha_model_config *config, const cmha_batch *batch, const char *label) {
    cmha_model_config again = *config;
    run plain, kept;
    again.recompute = 1;
    memset(&plain, 0, sizeof plain), memset(&kept, 0, sizeof kept);
    if (gradients(&plain, config, batch, label) && gradients(&kept, &again, batch, label)) {
        CHECK_THAT(!memcmp(plain.model.parameters.grad, kept.model.parameters.grad,
                           plain.model.parameters.size * sizeof *plain.model.parameters.grad),
                   "%s: gradients differ by %g", label,
                   check_distance(plain.model.parameters.grad, kept.model.parameters.grad,
                                  plain.model.parameters.size));
        CHECK_THAT(!memcmp(plain.loss, kept.loss, sizeof plain.loss), "%s: losses differ", label);
        CHECK_THAT(!memcmp(plain.use, kept.use, sizeof plain.use),
                   "%s: the experts' tokens are counted otherwise", label);
    }
    cmha_model_close(&plain.model), cmha_model_close(&kept.model);
}

/* Memory of many short blocks: what is kept of a block is its input. */
static void less_memory(const cmha_model_config *config, const char *label) {
    cmha_model_config c = *config;
    size_t plain = 0, kept = 0, parameters = 0;
    c.n_layers = c.n_layers < 4 ? 6 : c.n_layers;
    CHECK_OK(cmha_model_memory(&context, &c, BATCH, LENGTH, &parameters, &plain));
    c.recompute = 1;
    CHECK_OK(cmha_model_memory(&context, &c, BATCH, LENGTH, NULL, &kept));
    CHECK_THAT(kept < plain, "%s: %zu bytes, and %zu without recomputing", label, kept, plain);
}

static void of_a_form(cmha_model_config config, const char *label, int may_encode) {
    cmha_batch batch;
    char name[256];
    memset(&batch, 0, sizeof batch);
    batch.ids = ids, batch.targets = targets, batch.batch = BATCH, batch.length = LENGTH;
    if (config.causal) {
        same_gradients(&config, &batch, label);
        less_memory(&config, label);
    }
    if (!may_encode) return;
    snprintf(name, sizeof name, "%s causal=0", label);
    config.causal = 0, config.classes = 3;
    batch.key_mask = mask;
    same_gradients(&config, &batch, name);
    batch.labels = labels;
    same_gradients(&config, &batch, name);
}

static void every_form(void) {
    const char *name, *fields;
    cmha_model_config config;
    size_t i;
    for (i = 0; (name = cmha_kind_name(i, &fields)) != NULL; i++) {
        config = check_model_config();
        CHECK_OK(cmha_kind(&context, name, &config));
        config.n_layers = 3, config.dropout = 0.1;
        of_a_form(config, name, 1);
    }
    for (i = 0; i < sizeof forms / sizeof *forms; i++) {
        config = check_model_config();
        models_set(&context, &config, forms[i]);
        of_a_form(config, forms[i], !config.window);
    }
}

static void exact_memory(void) {
    cmha_trainer_config t;
    cmha_model_config config;
    char label[256];
    size_t i;
    cmha_config_defaults(cmha_trainer_table(), &t);
    t.batch = BATCH, t.length = LENGTH, t.steps = 10, t.eval_tokens = 200;
    for (i = 0; i < sizeof forms / sizeof *forms; i++) {
        config = check_model_config();
        models_set(&context, &config, forms[i]);
        if (config.irw_layers) continue; /* its models here have no knowledge base and take less */
        config.recompute = 1, config.vocabulary = 256;
        snprintf(label, sizeof label, "recompute=1 %s", forms[i]);
        models_steps_allocate_nothing(&config, &t, &stream, NULL, label);
        if (config.window) continue;
        config.causal = 0;
        models_steps_allocate_nothing(&config, &t, &stream, NULL, label);
    }
}

/* An objective of the caller's own, whose batch is gone by the time of the backward: of the logits with the
   losses beside, of the latter alone, and of a state that is to keep its gradient. */
static void own_gradient(cmha_model *model, int which, cmha_real *states) {
    cmha_tape tape;
    cmha_tensor *y, *extra, *total;
    cmha_batch *batch = (cmha_batch *)check_alloc(1, sizeof *batch);
    batch->ids = ids, batch->batch = BATCH, batch->length = LENGTH;
    CHECK_OK(cmha_tape_init(&tape, &context, 1));
    tape.key = 11;
    y = cmha_model_states(model, &tape, batch, &extra);
    memset(batch, 0, sizeof *batch);
    free(batch);
    if (y && which == 2) y->needs_grad = 1;
    total = cmha_sum(&tape, cmha_mul(&tape, y, y));
    total = which == 1 ? extra : cmha_add(&tape, total, extra);
    tape.recording = 0;
    CHECK_THAT(!cmha_tape_backward(&tape, total, (cmha_real)0.3), "%s", cmha_error(&context));
    CHECK(tape.recording == 0);
    memset(states, 0, BATCH * LENGTH * 16 * sizeof *states);
    if (which == 2 && CHECK(y && y->grad)) memcpy(states, y->grad, y->size * sizeof *states);
    cmha_tape_close(&tape);
}

static void own_objectives(void) {
    static cmha_real states[2][BATCH * LENGTH * 16];
    cmha_model_config config = check_model_config();
    cmha_model model;
    cmha_real *plain;
    int which;
    models_set(&context, &config, "pcl_weight=0.1 dropout=0.1 n_layers=3 placement=post");
    CHECK_OK(cmha_model_init(&model, &context, &config));
    plain = check_zeros(model.parameters.size);
    for (which = 0; which < 3; which++) {
        model.config.recompute = 0;
        cmha_parameters_zero_grad(&model.parameters);
        own_gradient(&model, which, states[0]);
        if (!CHECK(model.parameters.grad != NULL)) break;
        memcpy(plain, model.parameters.grad, model.parameters.size * sizeof *plain);
        CHECK(check_largest(plain, model.parameters.size) > 0);
        model.config.recompute = 1;
        cmha_parameters_zero_grad(&model.parameters);
        own_gradient(&model, which, states[1]);
        CHECK_THAT(check_distance(plain, model.parameters.grad, model.parameters.size) <= 0,
                   "objective %d: gradients differ by %g", which,
                   check_distance(plain, model.parameters.grad, model.parameters.size));
        CHECK(!memcmp(states[0], states[1], sizeof states[0]));
    }
    free(plain), cmha_model_close(&model);
}

/* Steps with and without give the same parameters. */
static void same_training(void) {
    cmha_model_config config = check_model_config();
    cmha_trainer_config t;
    cmha_model model[2];
    cmha_trainer trainer;
    double loss[2] = {0, 0};
    int i, step;
    cmha_config_defaults(cmha_trainer_table(), &t);
    t.batch = BATCH, t.length = LENGTH, t.accumulate = 2, t.lr = 1e-2;
    config.vocabulary = 256, config.dropout = 0.2, config.experts = 3, config.family = CMHA_FAMILY_CRAT;
    for (i = 0; i < 2; i++) {
        config.recompute = i;
        CHECK_OK(cmha_model_init(&model[i], &context, &config));
        CHECK_OK(cmha_trainer_init(&trainer, &model[i], &t));
        for (step = 0; step < 5; step++) CHECK_OK(cmha_trainer_step(&trainer, &stream, &loss[i]));
        cmha_trainer_close(&trainer);
    }
    CHECK(!memcmp(&loss[0], &loss[1], sizeof loss[0]) && loss[0] > 0);
    CHECK(!memcmp(model[0].parameters.data, model[1].parameters.data,
                  model[0].parameters.size * sizeof *model[0].parameters.data));
    cmha_model_close(&model[0]), cmha_model_close(&model[1]);
}

int main(void) {
    size_t i;
    check_context(&context, 2, 5);
    check_fill(vectors, DOCUMENTS * 2 * FEATURES, 1);
    CHECK_OK(cmha_knowledge_init(&base, &context, DOCUMENTS, FEATURES, vectors, NULL, NULL, NULL));
    for (i = 0; i < BATCH * LENGTH; i++) {
        ids[i] = (int32_t)check_below(VOCABULARY);
        targets[i] = i % 5 ? (int32_t)check_below(VOCABULARY) : -1;
        mask[i] = i % LENGTH < LENGTH - 5 * (i / LENGTH);
    }
    memset(&stream, 0, sizeof stream);
    stream.data = text, stream.width = 1, stream.count = models_text(text, sizeof text);
    every_form();
    exact_memory();
    own_objectives();
    same_training();
    cmha_knowledge_close(&base), cmha_context_close(&context);
    return check_end();
}
