/* Fields that a model does not read: a walk over all kinds and fields. cmha_model_init names what is set just
   where no value changes the model, its parameters, losses and gradients. So does a trainer. */
#include "models.h"

enum { ROWS = 2, LENGTH = 12 };
static cmha_context context;
static char said[4096];
static int lines;

static void on_log(void *user, cmha_log_level level, const char *line) {
    (void)user, (void)level;
    size_t n = strlen(said);
    snprintf(said + n, sizeof said - n, "%s", line);
    lines++;
}

/* What shows elsewhere than in parameters, losses and gradients, and where */
static const char *const elsewhere[][2] = {{"score", "a program's own"},
                                           {"tokenizer", "in files"},
                                           {"recompute", "in the memory"},
                                           {"n_kv_heads", "cope takes n_heads alone"},
                                           {"complex_eps", "in cmha_model_vectors"},
                                           {"max_positions", "in programs and files of others"},
                                           {"position", "crat may say what it has anyway"}};

static int shows_elsewhere(const char *name) {
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        if (!strcmp(elsewhere[i][0], name)) return 1;
    return 0;
}

/* Kinds that do not read a field and say nothing: its words are too few to tell them apart */
static const char *const untold[][2] = {{"cmha-fixed", "delta_std"},
                                        {"cope-phase", "cope_repo_scale"},
                                        {"cope-hybrid_norm", "cope_repo_scale"},
                                        {"cope-linear", "cope_repo_scale"},
                                        {"cope-linear", "cope_scale"},
                                        {"cope-linear", "rope_factor"},
                                        {"angular-linear", "rope_factor"}};

static int is_untold(const char *kind, const char *name) {
    for (size_t i = 0; i < sizeof untold / sizeof *untold; i++)
        if (!strcmp(untold[i][0], kind) && !strcmp(untold[i][1], name)) return 1;
    return 0;
}

/* FNV-1a */
static uint64_t mixed(uint64_t hash, const void *data, size_t bytes) {
    const unsigned char *at = (const unsigned char *)data;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ at[i]) * 1099511628211u;
    return hash;
}

/* A number for all that a model of this configuration is and computes; 0 where it is refused. */
static uint64_t outcome(const cmha_model_config *config) {
    int32_t ids[ROWS * LENGTH], targets[ROWS * LENGTH];
    cmha_real labels[ROWS] = {0, 0};
    cmha_model model;
    cmha_batch batch;
    uint64_t hash = 14695981039346656037u;
    double loss = 0;
    memset(&batch, 0, sizeof batch);
    check_seed = 5;
    for (size_t i = 0; i < ROWS * LENGTH; i++)
        ids[i] = (int32_t)check_below(19), targets[i] = (int32_t)check_below(19);
    batch.ids = ids, batch.batch = ROWS, batch.length = LENGTH;
    lines = 0, said[0] = 0;
    if (cmha_model_init(&model, &context, config)) return 0;
    for (int labelled = 0; labelled < (config->classes ? 2 : 1); labelled++) {
        batch.targets = labelled ? NULL : targets, batch.labels = labelled ? labels : NULL;
        cmha_status status[2]; /* a token may be too large */
        status[0] = cmha_model_loss(&model, &batch, &loss);
        hash = mixed(hash, &loss, sizeof loss);
        status[1] = cmha_model_gradient(&model, &batch, 1, 7, &loss);
        hash = mixed(mixed(hash, &loss, sizeof loss), status, sizeof status);
    }
    for (size_t i = 0; i < model.parameters.count; i++) {
        cmha_parameter *p = &model.parameters.list[i];
        hash = mixed(hash, p->name, strlen(p->name));
        hash = mixed(hash, p->tensor.shape, sizeof p->tensor.shape);
        hash = mixed(hash, &p->frozen, sizeof p->frozen);
    }
    if (model.parameters.grad)
        hash = mixed(hash, model.parameters.grad, model.parameters.learning * sizeof(cmha_real));
    cmha_model_close(&model);
    return hash;
}

/* Text of the i-th value to try; 0: there are no more. */
static int value_of(const cmha_field *field, size_t i, char *text, size_t room) {
    static const char *const sizes[] = {"1", "2", "3", "4", "8"}, *const reals[] = {"0.5", "2", "0.01", "0"};
    if (field->type == CMHA_FIELD_NAME) return i ? 0 : snprintf(text, room, "wo");
    if (field->type == CMHA_FIELD_SIZE) return i < 5 ? snprintf(text, room, "%s", sizes[i]) : 0;
    if (field->type == CMHA_FIELD_REAL) return i < 4 ? snprintf(text, room, "%s", reals[i]) : 0;
    if (field->type == CMHA_FIELD_FLAG) return i < 2 ? snprintf(text, room, "%d", (int)i) : 0;
    const char *word = field->choices;
    for (; i && word; i--) word = strchr(word, '|') ? strchr(word, '|') + 1 : NULL;
    return word ? snprintf(text, room, "%.*s", (int)strcspn(word, "|"), word) : 0;
}

/* Is that what a preset, or the default, has? */
static int is_usual(const char *name, const char *value) {
    cmha_model_config c;
    char text[32];
    const char *preset;
    cmha_config_defaults(cmha_model_table(), &c);
    cmha_config_get(cmha_model_table(), &c, name, text, sizeof text);
    int usual = !strcmp(text, value);
    for (size_t i = 0; (preset = cmha_preset_name(i)) != NULL; i++) {
        CHECK_OK(cmha_preset(&context, preset, &c, NULL));
        cmha_config_get(cmha_model_table(), &c, name, text, sizeof text);
        usual |= !strcmp(text, value);
    }
    return usual;
}

/* Tries every value of a field in one configuration: it is named just where none changes anything. */
static void walk_field(const cmha_model_config *base, uint64_t before, const cmha_field *field,
                       const char *kind) {
    char value[32], line[64];
    int changes = 0, named = 0, unusual = 0;
    snprintf(line, sizeof line, "nothing reads %s;", field->name);
    for (size_t i = 0; value_of(field, i, value, sizeof value); i++) {
        cmha_model_config c = *base;
        if (cmha_config_set(&context, cmha_model_table(), &c, field->name, value)) continue;
        if (!strcmp(field->name, "rope_scaling")) c.rope_factor = 2;
        uint64_t after = outcome(&c);
        if (!after) continue;
        changes += after != before;
        unusual += !is_usual(field->name, value);
        named += strstr(said, line) != NULL;
    }
    if (shows_elsewhere(field->name)) changes = 1;
    if (is_untold(kind, field->name)) unusual = 0;
    CHECK_THAT(named == (changes ? 0 : unusual), "%s: %s: %d values change the model, %d of %d are named",
               kind, field->name, changes, named, unusual);
}

static void walk_kinds(void) {
    const char *kind;
    for (size_t k = 0; (kind = cmha_kind_name(k, NULL)) != NULL; k += check_quick() ? 5 : 1) {
        cmha_model_config base = check_model_config();
        base.delta_init = CMHA_DELTA_INIT_PAPER, base.delta_std = base.init_std = 0.02;
        CHECK_OK(cmha_kind(&context, kind, &base));
        uint64_t before = outcome(&base);
        if (!before) continue;
        CHECK_THAT(lines == 0, "%s: %s", kind, said);
        for (size_t f = 0; f < cmha_model_table().count; f++)
            walk_field(&base, before, &cmha_model_table().fields[f], kind);
    }
}

/* Neither a preset nor a kind upon it causes a line. */
static void walk_presets(void) {
    const char *preset, *kind;
    for (size_t p = 0; (preset = cmha_preset_name(p)) != NULL; p++)
        for (size_t k = 0; k == 0 || cmha_kind_name(k - 1, NULL); k++) {
            cmha_model_config c;
            kind = k ? cmha_kind_name(k - 1, NULL) : NULL;
            CHECK_OK(cmha_preset(&context, preset, &c, NULL));
            if (kind) CHECK_OK(cmha_kind(&context, kind, &c));
            models_set(&context, &c, "n_layers=2 d_model=32 n_heads=8 d_ff=24 vocabulary=19");
            outcome(&c);
            CHECK_THAT(lines == 0, "%s, %s: %s", preset, kind ? kind : "as it is", said);
        }
}

/* Both quotients with an epsilon read it. */
static void epsilons(void) {
    static const char *const quotients[] = {"reg", "unit", "exact"};
    for (int i = 0; i < 3; i++) {
        cmha_model_config c = check_model_config();
        CHECK_OK(cmha_kind(&context, "mobius", &c));
        CHECK_OK(cmha_config_set(&context, cmha_model_table(), &c, "mobius_quotient", quotients[i]));
        c.mobius_eps = 0.5;
        CHECK(outcome(&c) != 0);
        CHECK_THAT((strstr(said, "mobius_eps") != NULL) == (i == 2), "%s: %s", quotients[i], said);
    }
}

/* A number for what a short training makes of a model; 0 where it is refused. */
static uint64_t trained(const cmha_trainer_config *config) {
    int32_t ids[4 * LENGTH];
    cmha_model_config c = check_model_config();
    cmha_tokens tokens;
    cmha_model model;
    cmha_trainer trainer;
    uint64_t hash = 14695981039346656037u;
    check_seed = 5;
    for (size_t i = 0; i < 4 * LENGTH; i++) ids[i] = (int32_t)check_below((uint64_t)c.vocabulary);
    memset(&tokens, 0, sizeof tokens);
    tokens.data = ids, tokens.count = 4 * LENGTH, tokens.width = 4;
    lines = 0, said[0] = 0;
    CHECK_OK(cmha_model_init(&model, &context, &c));
    if (cmha_trainer_init(&trainer, &model, config)) return cmha_model_close(&model), 0;
    for (int step = 0; step < 4; step++) CHECK_OK(cmha_trainer_step(&trainer, &tokens, NULL));
    for (size_t i = 0; i < model.parameters.count; i++) {
        const cmha_tensor *t = &model.parameters.list[i].tensor;
        hash = mixed(hash, t->data, t->size * sizeof *t->data);
    }
    cmha_trainer_close(&trainer), cmha_model_close(&model);
    return hash;
}

/* A trainer names a field that it was given just where that does not change what it makes of a model. */
static void walk_trainers(void) {
    static const char *const set[][2] = {{"momentum", "0.5"}, {"nesterov", "0"}, {"update_scale", "shape"},
                                         {"decay_share", "0.6"}, {"min_lr", "0.00003"}};
    static const char *const schedules[] = {"cosine", "linear", "constant", "wsd"};
    const cmha_table table = cmha_trainer_table();
    const char *optimiser;
    int named = 0, unnamed = 0;
    for (size_t k = 0; (optimiser = cmha_optimiser_name(&context, k)) != NULL; k++)
        for (size_t s = 0; s < sizeof schedules / sizeof *schedules; s++) {
            cmha_trainer_config base;
            cmha_config_defaults(table, &base);
            base.batch = ROWS, base.length = LENGTH, base.steps = 4;
            CHECK_OK(cmha_config_set(&context, table, &base, "optimiser", optimiser));
            CHECK_OK(cmha_config_set(&context, table, &base, "schedule", schedules[s]));
            uint64_t before = trained(&base);
            CHECK_THAT(before && lines == 0, "%s, %s: %s", optimiser, schedules[s], said);
            for (size_t f = 0; f < sizeof set / sizeof *set; f++) {
                char line[64];
                cmha_trainer_config c = base;
                snprintf(line, sizeof line, "trainer: nothing reads %s;", set[f][0]);
                CHECK_OK(cmha_config_set(&context, table, &c, set[f][0], set[f][1]));
                int changes = trained(&c) != before, told = strstr(said, line) != NULL;
                CHECK_THAT(told != changes, "%s, %s: %s %s and %s named", optimiser, schedules[s], set[f][0],
                           changes ? "changes the model" : "changes nothing", told ? "is" : "is not");
                named += told, unnamed += changes;
            }
        }
    CHECK(named > 0 && unnamed > 0);
}

int main(void) {
    cmha_context_config config;
    memset(&config, 0, sizeof config);
    config.seed = 3, config.threads = 1, config.log = on_log;
    CHECK_OK(cmha_context_init(&context, &config));
    walk_kinds();
    walk_presets();
    epsilons();
    walk_trainers();
    cmha_context_close(&context);
    return check_end();
}
