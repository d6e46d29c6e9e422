/* Kinds of attention by name, options as text, where parameters start, and clipping by parts: what programs
   use, and papers only name. */
#include "models.h"

/* A batch of `rows` x 12 tokens that every family can be trained on: next tokens, or those of an encoder */
enum { ROWS = 2, LENGTH = 12 };
static int32_t ids[ROWS * LENGTH], targets[ROWS * LENGTH];

static cmha_batch some_batch(void) {
    cmha_batch batch;
    size_t i;
    for (i = 0; i < ROWS * LENGTH; i++)
        ids[i] = (int32_t)check_below(19), targets[i] = (int32_t)check_below(19);
    memset(&batch, 0, sizeof batch);
    batch.ids = ids, batch.targets = targets, batch.batch = ROWS, batch.length = LENGTH;
    return batch;
}

static cmha_trainer_config some_trainer(void) {
    cmha_trainer_config t;
    cmha_config_defaults(cmha_trainer_table(), &t);
    t.batch = ROWS, t.length = LENGTH, t.steps = 10, t.lr = 1e-2, t.warmup = 0;
    return t;
}

/* ------------------------------------------------ kinds ------------------------------------------------- */

/* Are the options of "name=value name=value" what the configuration has? */
static void has_options(const cmha_model_config *config, const char *fields, const char *kind) {
    cmha_table table = cmha_model_table();
    char text[512], value[32], *at;
    size_t i;
    snprintf(text, sizeof text, "%s", fields);
    for (at = strtok(text, " "); at; at = strtok(NULL, " ")) {
        char *want = strchr(at, '=');
        if (!CHECK(want != NULL)) continue;
        *want++ = 0;
        for (i = 0; i < table.count && strcmp(table.fields[i].name, at) != 0; i++) continue;
        if (!CHECK_THAT(i < table.count, "%s: there is no option %s", kind, at)) continue;
        cmha_config_get(table, config, table.fields[i].name, value, sizeof value);
        /* 1e-4 is 0.0001 */
        CHECK_THAT(!strcmp(value, want) ||
                       (strtod(want, NULL) != 0 && strtod(value, NULL) == strtod(want, NULL)),
                   "%s: %s is %s, not %s", kind, at, value, want);
    }
}

/* Every kind has a name of its own, sets what it says, and makes a model whose loss goes down on one
   batch. */
static void every_kind(void) {
    const char *kind, *fields, *other;
    size_t n, i, step;
    for (n = 0; (kind = cmha_kind_name(n, &fields)) != NULL; n++) {
        cmha_context c;
        cmha_model model;
        cmha_trainer trainer;
        cmha_model_config m = check_model_config();
        cmha_trainer_config t = some_trainer();
        cmha_batch batch = some_batch();
        double first = 0, loss = 0;
        for (i = 0; i < n; i++)
            CHECK_THAT((other = cmha_kind_name(i, NULL)) != NULL && strcmp(other, kind), "%s comes twice",
                       kind);
        check_context(&c, 2, 3);
        CHECK_THAT(!cmha_kind(&c, kind, &m), "%s: %s", kind, cmha_error(&c));
        has_options(&m, fields, kind);
        if (CHECK_THAT(!cmha_model_init(&model, &c, &m), "%s: %s", kind, cmha_error(&c))) {
            CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
            for (step = 0; step < 10; step++) {
                CHECK_THAT(!cmha_trainer_step_batch(&trainer, &batch, &loss), "%s: %s", kind, cmha_error(&c));
                if (!step) first = loss;
            }
            CHECK_THAT(loss < first, "%s: the loss went from %.4f to %.4f", kind, first, loss);
            cmha_trainer_close(&trainer);
        }
        cmha_model_close(&model), cmha_context_close(&c);
    }
    CHECK(n >= 19 && cmha_kind_name(n + 1, &fields) == NULL);
}

/* Presets are what their names say. */
static void names(void) {
    static const char *const presets[][2] = {
        {"fast", "attention=cmha qk_norm=rms n_layers=4 d_model=128 d_ff=512"},
        {"encoder", "causal=0 attention=rope classes=2 pool=mean n_layers=4 d_model=128"},
        {"cope", "family=cope causal=0 placement=post activation=relu init=xavier n_layers=6 d_model=256"},
        {"mobiusbert", "family=mobius attention=dot mobius_heads=6 n_layers=11 position=learned d_model=768"},
        {"mobroformer", "family=mobius attention=rope mobius_heads=6 n_layers=12 position=learned"},
        {"crat", "family=crat position=multifreq experts=8 experts_top=2 irw_layers=1 real_heads=2"}};
    cmha_context c;
    cmha_model_config m;
    size_t i;
    check_context(&c, 1, 3);
    for (i = 0; i < sizeof presets / sizeof *presets; i++) {
        CHECK_OK(cmha_preset(NULL, presets[i][0], &m, NULL));
        has_options(&m, presets[i][1], presets[i][0]);
    }
    cmha_context_close(&c);
}

static void no_kind(void) {
    cmha_context c;
    cmha_model_config m, before;
    memset(&m, 0, sizeof m); /* between the fields as well: memcmp looks there */
    cmha_config_defaults(cmha_model_table(), &m);
    memcpy(&before, &m, sizeof m);
    check_context(&c, 1, 3);
    CHECK_IS(cmha_kind(&c, "telepathy", &m), CMHA_ERR_NOT_FOUND);
    CHECK(strstr(cmha_error(&c), "telepathy") != NULL);
    CHECK_IS(cmha_kind(&c, NULL, &m), CMHA_ERR_ARGUMENT);
    CHECK_IS(cmha_kind(&c, "", &m), CMHA_ERR_NOT_FOUND);
    CHECK(!memcmp(&m, &before, sizeof m));
    cmha_context_close(&c);
}

/* ------------------------------------------- options as text -------------------------------------------- */

static void options(void) {
    cmha_context c;
    cmha_model_config m = check_model_config();
    cmha_trainer_config t = some_trainer();
    cmha_sampler_config s;
    char text[200];
    check_context(&c, 1, 3);
    cmha_config_defaults(cmha_sampler_table(), &s);
    CHECK_OK(cmha_config_set_all(&c, cmha_model_table(), &m,
                                 "  d_model=24   d_ff=7 dropout=0.25 attention=rope "));
    CHECK(m.d_model == 24 && m.d_ff == 7 && m.dropout == 0.25 && m.attention == CMHA_ATTENTION_ROPE);
    CHECK_OK(cmha_config_set_all(&c, cmha_model_table(), &m, ""));
    CHECK_OK(cmha_config_set_all(&c, cmha_model_table(), &m, "   "));
    CHECK_IS(cmha_config_set_all(&c, cmha_model_table(), &m, NULL), CMHA_ERR_ARGUMENT);
    CHECK_IS(cmha_config_set_all(&c, cmha_model_table(), &m, "d_ff=9 wings=2 d_model=8"), CMHA_ERR_NOT_FOUND);
    CHECK(strstr(cmha_error(&c), "wings") && m.d_ff == 9 && m.d_model == 24); /* those before it are set */
    CHECK_IS(cmha_config_set_all(&c, cmha_model_table(), &m, "d_ff"), CMHA_ERR_ARGUMENT);
    CHECK_IS(cmha_config_set_all(&c, cmha_model_table(), &m, "d_ff="), CMHA_ERR_ARGUMENT);
    CHECK_IS(cmha_config_set_all(&c, cmha_model_table(), &m, "=3"), CMHA_ERR_NOT_FOUND);
    CHECK_IS(cmha_config_set_all(&c, cmha_model_table(), &m, "d_ff==3"), CMHA_ERR_ARGUMENT);
    /* a value that is too long must not be taken for its beginning */
    snprintf(text, sizeof text, "lr=%0100d", 7);
    CHECK_IS(cmha_config_set_all(&c, cmha_trainer_table(), &t, text), CMHA_ERR_ARGUMENT);
    CHECK(t.lr == 1e-2 && strlen(cmha_error(&c)) > 0);
    memset(text, 'x', 150), text[150] = 0;
    CHECK(cmha_config_set_all(&c, cmha_trainer_table(), &t, text) != CMHA_OK);
    /* the line says whose option it is */
    CHECK_IS(cmha_config_set(&c, cmha_trainer_table(), &t, "wings", "2"), CMHA_ERR_NOT_FOUND);
    CHECK(strstr(cmha_error(&c), "trainer") != NULL);
    CHECK_IS(cmha_config_set(&c, cmha_sampler_table(), &s, "wings", "2"), CMHA_ERR_NOT_FOUND);
    CHECK(strstr(cmha_error(&c), "sampler") != NULL);
    cmha_context_close(&c);
}

/* NULL for a configuration is the defaults. */
static void defaults(void) {
    cmha_context c;
    cmha_model model;
    cmha_trainer trainer;
    cmha_model_config m = check_model_config();
    cmha_trainer_config t;
    size_t i;
    check_context(&c, 1, 3);
    CHECK_OK(cmha_model_init(&model, &c, NULL));
    cmha_config_defaults(cmha_model_table(), &m);
    for (i = 0; i < cmha_model_table().count; i++) {
        char got[32], want[32];
        cmha_config_get(cmha_model_table(), &model.config, cmha_model_table().fields[i].name, got,
                        sizeof got);
        cmha_config_get(cmha_model_table(), &m, cmha_model_table().fields[i].name, want, sizeof want);
        CHECK_THAT(!strcmp(got, want), "%s is %s, not %s", cmha_model_table().fields[i].name, got, want);
    }
    cmha_model_close(&model);
    m = check_model_config();
    m.n_layers = 1, m.d_model = 8, m.n_heads = 1, m.d_ff = 8;
    CHECK_OK(cmha_model_init(&model, &c, &m));
    CHECK_OK(cmha_trainer_init(&trainer, &model, NULL));
    cmha_config_defaults(cmha_trainer_table(), &t);
    CHECK(trainer.config.batch == t.batch && trainer.config.length == t.length && trainer.config.lr == t.lr);
    cmha_trainer_close(&trainer), cmha_model_close(&model), cmha_context_close(&c);
}

/* -------------------------------------------- the beginning --------------------------------------------- */

/* Glorot and Bengio 2010: uniform within sqrt(6 / (in + out)), embeddings within
   0.1; what has no decay is as ever. */
static void xavier(const char *kind) {
    cmha_context c;
    cmha_model model, other;
    cmha_model_config m = check_model_config();
    size_t i, j, drawn = 0;
    check_context(&c, 1, 3);
    CHECK_OK(cmha_kind(&c, kind, &m));
    m.init = CMHA_INIT_XAVIER, m.d_model = 32, m.d_ff = 48;
    CHECK_OK(cmha_model_init(&model, &c, &m));
    m.init = CMHA_INIT_NORMAL;
    CHECK_OK(cmha_model_init(&other, &c, &m));
    for (i = 0; i < model.parameters.count; i++) {
        const cmha_parameter *p = &model.parameters.list[i];
        size_t rank = (size_t)p->tensor.rank;
        double mean = 0, bound;
        if (p->decay <= 0 || rank < 2) {
            CHECK_THAT(!memcmp(p->tensor.data, other.parameters.list[i].tensor.data,
                               p->tensor.size * sizeof(cmha_real)),
                       "%s: %s depends on init", kind, p->name);
            continue;
        }
        bound = strstr(p->name, "emb")
                    ? 0.1
                    : sqrt(6.0 / (double)(p->tensor.shape[rank - 1] + p->tensor.shape[rank - 2]));
        for (j = 0; j < p->tensor.size; j++) mean += (double)p->tensor.data[j] / (double)p->tensor.size;
        CHECK_THAT(check_largest(p->tensor.data, p->tensor.size) <= bound * (1 + 1e-6) &&
                       check_largest(p->tensor.data, p->tensor.size) > 0.9 * bound &&
                       fabs(mean) < 0.1 * bound,
                   "%s: %s reaches %g with a mean of %g, bound %g", kind, p->name,
                   check_largest(p->tensor.data, p->tensor.size), mean, bound);
        drawn++;
    }
    CHECK(drawn >= 4);
    cmha_model_close(&model), cmha_model_close(&other), cmha_context_close(&c);
}

/* N(0, init_std^2), less by sqrt(2 n_layers) before a sum; norms 1, biases 0; delta by delta_init. */
static void normal(int delta_init, double delta_mean) {
    cmha_context c;
    cmha_model model;
    cmha_model_config m = check_model_config();
    size_t i, j;
    check_context(&c, 1, 3);
    m.d_model = 32, m.d_ff = 48, m.attention_bias = 1;
    m.delta_init = delta_init, m.delta_value = 0.7, m.delta_std = 0.2;
    CHECK_OK(cmha_model_init(&model, &c, &m));
    for (i = 0; i < model.parameters.count; i++) {
        const cmha_tensor *t = &model.parameters.list[i].tensor;
        const char *name = model.parameters.list[i].name;
        int delta = strstr(name, "delta") != NULL, norm = strstr(name, "ln") && strstr(name, "weight");
        double mean = 0, spread = 0, n = (double)t->size, wanted = delta ? delta_mean : norm ? 1 : 0, std = 0;
        if (strstr(name, "wo.weight") || strstr(name, "w2.weight")) std = m.init_std / 2; /* two layers */
        else if (model.parameters.list[i].decay > 0) std = m.init_std;
        else if (delta && delta_init != CMHA_DELTA_INIT_CONST) std = m.delta_std;
        for (j = 0; j < t->size; j++) mean += (double)t->data[j] / n;
        for (j = 0; j < t->size; j++) spread += ((double)t->data[j] - mean) * ((double)t->data[j] - mean) / n;
        CHECK_THAT(fabs(mean - wanted) < 5 * std / sqrt(n) + 1e-6, "%s: mean %g, not %g", name, mean, wanted);
        spread = sqrt(spread);
        CHECK_THAT(fabs(spread - std) < 4 * std / sqrt(2 * n) + 1e-6, "%s: spread %g, not %g", name, spread,
                   std);
    }
    cmha_model_close(&model), cmha_context_close(&c);
}

/* What else begins otherwise: its mean and spread, of uniform numbers their largest times 1/sqrt(3). */
static void beginnings(void) {
#define WINDOWS "family=crat attention=dot irw_layers=1 irw_from=2 irw_queries=4 irw_width=6 "
    static const struct { const char *options, *name; double mean, spread; } rows[] = {
        {"features=50 tokens=0 values=1", "feature.weight", 0, 0.14142135623730951},
        {"family=crat attention=dot features=25 complex_features=1 values=1", "feature.weight", 0, 0.2},
        {"lora_rank=6 lora_on=w2", "blocks.0.ffn.w2.lora_a", 0, 0.11785113019775793}, /* 24 inputs */
        {"lora_rank=6 lora_on=w2", "blocks.0.ffn.w2.lora_b", 0, 0},
        {"residual_zero=1", "blocks.1.ffn.w2.weight", 0, 0},
        {"residual_zero=1 init=xavier", "blocks.1.attn.wo.weight", 0, 0},
        {"family=crat attention=dot low_rank=16 init_std=0.1", "blocks.1.attn.wo.u", 0, 0.1},
        {"family=crat attention=dot low_rank=16 residual_zero=1", "blocks.1.attn.wo.u", 0, 0},
        {"family=crat attention=dot low_rank=16 init_std=0.1 residual_zero=1", "blocks.1.attn.wo.v", 0, 0.1},
        {"value_residual=1", "blocks.1.attn.value_own", 0.5, 0},
        {"value_residual=1", "blocks.0.attn.value_first", 0.5, 0},
        {"residual_mix=1", "blocks.1.mix.own", 1, 0}, {"residual_mix=1", "blocks.1.mix.first", 0, 0},
        {"family=cope attention=dot cope_gamma=0.3 cope_gamma_learned=1", "cope.gamma", 0.3, 0},
        {WINDOWS, "blocks.1.irw.gate.bias", -2, 0}, {WINDOWS, "blocks.1.irw.mix", 0, 0},
        {WINDOWS "irw_raw=1", "blocks.1.irw.mix", 0.25, 0},
        {"family=crat attention=dot complex_residual=free", "blocks.0.res1.alpha", 1, 0},
        {"family=crat attention=dot complex_residual=unit", "blocks.0.res1.psi", 0, 0},
        {"family=crat attention=dot complex_norm=crms", "blocks.0.ln1.weight", 1, 0},
        /* of [2, D] or [3, D] the diagonal is sqrt(1/2), which leaves each part the variance 1/2, or 1 */
        {"family=crat attention=dot complex_norm=whiten", "blocks.0.ln1.weight", 0.47140452, 1 / 3.0},
        {"family=crat attention=dot complex_norm=cln", "blocks.0.ln1.weight", 0.5, 0.5}};
    cmha_context c;
    check_context(&c, 1, 3);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cmha_model model;
        cmha_model_config m = check_model_config();
        double mean = 0, square = 0;
        CHECK_OK(cmha_config_set_all(&c, cmha_model_table(), &m, rows[i].options));
        if (!CHECK_THAT(!cmha_model_init(&model, &c, &m), "%s: %s", rows[i].options, cmha_error(&c)))
            continue;
        const cmha_parameter *p = cmha_parameters_find(&model.parameters, rows[i].name);
        if (CHECK_THAT(p != NULL, "%s: no %s", rows[i].options, rows[i].name)) {
            const cmha_tensor *t = &p->tensor;
            const double n = (double)t->size, spread = rows[i].spread;
            const double drawn = strstr(rows[i].name, ".ln1.") ? 0 : spread; /* gains are what they are */
            for (size_t k = 0; k < t->size; k++) mean += (double)t->data[k] / n;
            for (size_t k = 0; k < t->size; k++) square += pow((double)t->data[k] - mean, 2) / n;
            CHECK_THAT(fabs(mean - rows[i].mean) <= 5 * drawn / sqrt(n) + 1e-6 &&
                           fabs(sqrt(square) - spread) <= 4 * drawn / sqrt(2 * n) + 1e-6,
                       "%s, %s: %g, spread %g", rows[i].options, rows[i].name, mean, sqrt(square));
        }
        cmha_model_close(&model);
    }
    cmha_context_close(&c);
}

/* One class is a regression: a number, or with label_range = 5 one from 0 to 5. */
static void ranged(void) {
    cmha_context c;
    cmha_model model;
    cmha_model_config m = check_model_config();
    cmha_real logit[ROWS], value[ROWS];
    cmha_batch batch = some_batch();
    check_context(&c, 1, 3);
    CHECK_OK(cmha_config_set_all(&c, cmha_model_table(), &m, "causal=0 classes=1 pool=mean init_std=1"));
    CHECK_OK(cmha_model_init(&model, &c, &m));
    CHECK_OK(cmha_model_classify(&model, &batch, logit));
    model.config.label_range = 5;
    CHECK_OK(cmha_model_classify(&model, &batch, value));
    for (int i = 0; i < ROWS; i++)
        CHECK_NEAR(value[i], 5 / (1 + exp(-(double)logit[i])), check_tolerance(1e-13, 1e-5));
    CHECK(check_distance(logit, value, ROWS) > 0.1);
    cmha_model_close(&model), cmha_context_close(&c);
}

/* mobius_init = identity: maps [4, 2, channels] of a, b, c, d lie near a = d = 1, b = c = 0. */
static void near_identity(void) {
    cmha_context c;
    cmha_model model;
    cmha_model_config m = check_model_config();
    double square = 0;
    check_context(&c, 1, 3);
    CHECK_OK(cmha_kind(&c, "mobius", &m));
    CHECK_OK(cmha_model_init(&model, &c, &m));
    const cmha_parameter *p = cmha_parameters_find(&model.parameters, "blocks.0.attn.mobius");
    if (CHECK(p && p->tensor.size == 64))
        for (size_t i = 0; i < 64; i++) {
            int one = i / 8 == 0 || i / 8 == 6; /* the real parts of a and d */
            square += pow((double)p->tensor.data[i] - one, 2) / 64;
        }
    CHECK_THAT(fabs(sqrt(square) - 0.02) < 0.006, "%g from the identity", sqrt(square));
    cmha_model_close(&model), cmha_context_close(&c);
}

/* mobius_init = ortho: the rows of both planes are orthonormal. */
static void orthogonal(void) {
    cmha_context c;
    cmha_model model;
    cmha_model_config m = check_model_config();
    const cmha_parameter *p;
    size_t i, j, k, rows, plane;
    double worst = 0;
    check_context(&c, 1, 3);
    CHECK_OK(cmha_kind(&c, "mobius", &m));
    CHECK_OK(cmha_config_set_all(&c, cmha_model_table(), &m, "mobius_init=ortho mobius_heads=2"));
    CHECK_OK(cmha_model_init(&model, &c, &m));
    p = cmha_parameters_find(&model.parameters, "blocks.0.attn.mobius_k.weight");
    if (!CHECK(p && p->tensor.rank == 3 && p->tensor.shape[1] == 8 && p->tensor.shape[2] == 16)) return;
    for (plane = 0, rows = 8; plane < 2; plane++)
        for (i = 0; i < rows; i++)
            for (j = 0; j <= i; j++) {
                const cmha_real *a = p->tensor.data + (plane * rows + i) * 16, *b = a - 16 * (i - j);
                double dot = 0;
                for (k = 0; k < 16; k++) dot += (double)a[k] * (double)b[k];
                worst = fmax(worst, fabs(dot - (i == j)));
            }
    CHECK_THAT(worst < check_tolerance(1e-13, 1e-5), "off by %g", worst);
    cmha_model_close(&model), cmha_context_close(&c);
}

static double pcl_of(cmha_model *model, const cmha_batch *batch) {
    cmha_tape tape;
    cmha_tensor *extra = NULL;
    double loss = -1;
    CHECK_OK(cmha_tape_init(&tape, model->context, 1));
    CHECK(cmha_model_forward(model, &tape, batch, &extra) != NULL);
    if (CHECK(extra != NULL)) loss = (double)extra->data[0];
    cmha_tape_close(&tape);
    return loss;
}

/* pcl_learn = 0: weights of 1 that are no parameters; the same loss as that of parameters that are 1 */
static void fixed_pcl(void) {
    cmha_context c;
    cmha_model fixed, learned;
    cmha_model_config m = check_model_config();
    cmha_batch batch = some_batch();
    double want, got;
    size_t i, j, own = 0;
    m.pcl_weight = 0.5, m.pcl_mask = 0;
    check_context(&c, 1, 3);
    m.pcl_learn = 0;
    CHECK_OK(cmha_model_init(&fixed, &c, &m));
    m.pcl_learn = 1;
    CHECK_OK(cmha_model_init(&learned, &c, &m));
    for (i = 0; i < learned.parameters.count; i++) {
        cmha_tensor *to = &learned.parameters.list[i].tensor;
        cmha_parameter *from = cmha_parameters_find(&fixed.parameters, learned.parameters.list[i].name);
        if (from) memcpy(to->data, from->tensor.data, to->size * sizeof *to->data);
        for (j = 0; !from && j < to->size; j++) to->data[j] = 1;
        own += !from;
    }
    CHECK(own == m.n_layers);
    want = pcl_of(&learned, &batch), got = pcl_of(&fixed, &batch);
    CHECK_THAT(want > 0 && fabs(got - want) < 1e-6 * want, "fixed weights %g, learned ones %g", got, want);
    cmha_model_close(&fixed), cmha_model_close(&learned), cmha_context_close(&c);
}

/* ------------------------------------ clipping by parts (CRAT eq 22) ------------------------------------ */

/* Clips the parts of a gradient by the textbook */
static void clip_by_hand(cmha_model *twin, cmha_clip_mode mode, double limit) {
    double all[2] = {0, 0};
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < twin->parameters.count; i++) {
            const cmha_parameter *p = &twin->parameters.list[i];
            size_t parts = p->is_complex ? 2 : 1, n = p->tensor.size / parts, part, j;
            for (part = 0; part < parts; part++) {
                cmha_real *g = p->tensor.grad + part * n;
                double own = 0, norm;
                for (j = 0; j < n; j++) own += (double)g[j] * (double)g[j];
                if (!round) all[part] += own;
                norm = sqrt(mode == CMHA_CLIP_GLOBAL ? all[part] : own);
                for (j = 0; round && j < n; j++) {
                    if (mode == CMHA_CLIP_VALUE) g[j] = (cmha_real)fmax(-limit, fmin(limit, (double)g[j]));
                    else if (norm > limit) g[j] = (cmha_real)((double)g[j] * limit / norm);
                }
            }
        }
}

/* Three steps of the trainer against the same by hand; the limit is chosen so that
   some of it is cut and some is not */
static void clipping(const char *kind, cmha_clip_mode mode, double limit) {
    cmha_context c;
    cmha_model model, twin;
    cmha_trainer trainer;
    cmha_model_config m = check_model_config();
    cmha_trainer_config t = some_trainer();
    cmha_batch batch = (check_seed = 4, some_batch());
    cmha_real *mo, *ve;
    double loss, cut = 0;
    size_t i, step;
    check_context(&c, 1, 3);
    CHECK_OK(cmha_kind(&c, kind, &m));
    t.clip = limit, t.clip_mode = (int)mode, t.schedule = CMHA_SCHEDULE_CONSTANT;
    CHECK_OK(cmha_model_init(&model, &c, &m));
    CHECK_OK(cmha_model_init(&twin, &c, &m));
    CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    mo = check_zeros(model.parameters.size), ve = check_zeros(model.parameters.size);
    for (step = 0; step < 3; step++) {
        cmha_real *raw;
        cmha_adamw_args a = {.t = 0};
        CHECK_OK(cmha_trainer_step_batch(&trainer, &batch, &loss));
        cmha_parameters_zero_grad(&twin.parameters);
        CHECK_OK(cmha_model_gradient(&twin, &batch, 1, 0, &loss));
        raw = check_zeros(twin.parameters.size);
        memcpy(raw, twin.parameters.grad, twin.parameters.size * sizeof *raw);
        clip_by_hand(&twin, mode, limit);
        for (i = 0; i < twin.parameters.size; i++) cut += raw[i] != twin.parameters.grad[i];
        free(raw);
        a.lr = trainer.lr, a.beta1 = t.beta1, a.beta2 = t.beta2, a.eps = t.adam_eps, a.t = step + 1,
        a.grad_scale = 1;
        for (i = 0; i < twin.parameters.count; i++) {
            cmha_tensor *p = &twin.parameters.list[i].tensor;
            size_t at = (size_t)(p->data - twin.parameters.data);
            a.weight_decay = twin.parameters.list[i].decay > 0 ? t.weight_decay : 0;
            cmha_adamw(&a, p->size, p->data, p->grad, mo + at, ve + at);
        }
    }
    CHECK_THAT(cut > 0 && (mode == CMHA_CLIP_GLOBAL || cut < 3 * (double)twin.parameters.size),
               "%s, mode %d: %g numbers were clipped", kind, (int)mode, cut);
    CHECK_THAT(check_distance(model.parameters.data, twin.parameters.data, model.parameters.size) <
                   check_tolerance(1e-12, 1e-5),
               "%s, mode %d: off by %.3g", kind, (int)mode,
               check_distance(model.parameters.data, twin.parameters.data, model.parameters.size));
    free(mo), free(ve);
    cmha_trainer_close(&trainer), cmha_model_close(&model), cmha_model_close(&twin), cmha_context_close(&c);
}

/* In one layer the last token's logits depend on the order of the tokens before it, but of kind dot. */
static void order(void) {
    const char *kind, *fields;
    size_t n;
    for (n = 0; (kind = cmha_kind_name(n, &fields)) != NULL; n++) {
        static cmha_real logits[2][ROWS * LENGTH * 19];
        cmha_context c;
        cmha_model model;
        cmha_model_config m = check_model_config();
        cmha_batch batch = some_batch();
        int32_t first;
        double off;
        CHECK_OK(cmha_context_init(&c, NULL));
        CHECK_OK(cmha_kind(&c, kind, &m));
        m.n_layers = 1, m.vocabulary = 19;
        CHECK_OK(cmha_model_init(&model, &c, &m));
        batch.batch = 1, ids[0] = 3, ids[1] = 5;
        CHECK_OK(cmha_model_logits(&model, &batch, logits[0]));
        first = ids[0], ids[0] = ids[1], ids[1] = first;
        CHECK_OK(cmha_model_logits(&model, &batch, logits[1]));
        off = check_distance(logits[0] + (LENGTH - 1) * 19, logits[1] + (LENGTH - 1) * 19, 19);
        CHECK_THAT((off > 1e-5) == (strcmp(kind, "dot") != 0), "%s: %g", kind, off);
        cmha_model_close(&model), cmha_context_close(&c);
    }
}

int main(int argc, char **argv) {
    (void)argc;
    cmha_blas_restart(argv);
    order(), every_kind(), names(), no_kind(), options(), defaults();
    xavier("cmha"), xavier("pope"), xavier("ropepp"), xavier("cope-phase"), xavier("angular"), fixed_pcl();
    normal(CMHA_DELTA_INIT_PAPER, 0), normal(CMHA_DELTA_INIT_ROPE_START, 1),
        normal(CMHA_DELTA_INIT_CONST, 0.7);
    beginnings(), ranged(), near_identity(), orthogonal();
    clipping("angular", CMHA_CLIP_NORM, 0.05), clipping("angular", CMHA_CLIP_GLOBAL, 0.05),
        clipping("angular", CMHA_CLIP_VALUE, 0.003);
    clipping("rope", CMHA_CLIP_NORM, 0.05), clipping("rope", CMHA_CLIP_GLOBAL, 0.05),
        clipping("rope", CMHA_CLIP_VALUE, 0.003);
    return check_end();
}
