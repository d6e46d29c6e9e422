/* Whatever a table names, tested because it stands there: every word of every enumerated field, every flag,
   every kind, every score of the program's own, every optimiser. A word is set on the first small models on
   which it changes something; then the model's gradient is compared with differences of its loss, decoding by
   a cache with the whole pass, and a saved model with the one that it was. A new row needs no line here. */
#ifndef CMHA_DOUBLE
#define CMHA_DOUBLE
#endif
#include "grad.h"
#include "models.h"
#include "scores.h"

enum { B = 2, N = 6, VOCABULARY = 9, FEATURES = 3, OUTPUTS = 3 };
static cmha_context context;
static cmha_buffer buffers[] = {{"model", NULL, 0, NULL, NULL, 0}, {NULL, NULL, 0, NULL, NULL, 0}};
static cmha_knowledge base; /* what the windows of a CRAT look into */
static int32_t ids[B * N], targets[B * N];
static cmha_real features[B * N * 2 * FEATURES], values[B * N * OUTPUTS];

/* ------------------------------------------ optimisers of our own ----------------------------------------
 */

static void plain(const cmha_optimiser *row, const cmha_update *u) {
    CHECK(!strcmp(row->name, "plain") && !u->m && !u->v);
    for (size_t i = 0; i < u->n; i++) u->p[i] -= u->args->lr * u->args->grad_scale * u->g[i];
}

static void heavy_ball(const cmha_optimiser *row, const cmha_update *u) {
    CHECK(row->moments == 1 && u->m && !u->v);
    for (size_t i = 0; i < u->n; i++) {
        u->m[i] = u->args->beta1 * u->m[i] + u->args->grad_scale * u->g[i];
        u->p[i] -= u->args->lr * u->m[i];
    }
}

static int is_matrix(const cmha_optimiser *row, const cmha_parameter *p) {
    return row && p->tensor.rank == 2 && !strncmp(p->name, "blocks.", 7);
}

/* heavy-matrices leaves what is no matrix to AdamW, which keeps two moments of it */
static const cmha_optimiser own_optimisers[] = {
    {"plain", 0, NULL, plain, NULL, NULL, NULL},
    {"heavy-ball", 1, NULL, heavy_ball, NULL, NULL, NULL},
    {"heavy-matrices", 1, is_matrix, heavy_ball, NULL, NULL, NULL}};

/* ------------------------------------------------ subjects -----------------------------------------------
 */

typedef struct subject {
    cmha_model model;
    cmha_batch batch;
    cmha_tape tape;
    const char *label;
} subject;

/* A sum over random signs, of as many numbers as there are: what it weighs differs from number to number. */
static cmha_tensor *weighed(cmha_tape *tape, cmha_tensor *x, cmha_tensor *sum) {
    if (!x) return NULL;
    cmha_tensor *c = cmha_tensor_new(tape, x->rank, x->shape, 0);
    cmha_rng rng = cmha_rng_make(5, x->size);
    if (!c) return NULL;
    for (size_t i = 0; i < c->size; i++) c->data[i] = cmha_rng_normal(&rng);
    x = cmha_sum(tape, cmha_mul(tape, x, c));
    return sum ? cmha_add(tape, sum, x) : x;
}

/* All that a model gives, weighed, and its extra losses with it. */
static cmha_tensor *objective(subject *s) {
    const cmha_model_config *c = &s->model.config;
    cmha_tensor *extra = NULL, *sum = NULL, *x;
    cmha_tape_reset(&s->tape);
    s->tape.key = 77, s->tape.draws = 0;
    if (c->vocabulary)
        sum = weighed(&s->tape, cmha_model_forward(&s->model, &s->tape, &s->batch, &extra), NULL);
    if (extra) sum = cmha_add(&s->tape, sum, extra);
    if (!c->classes && !c->values) return sum;
    s->tape.key = 78, s->tape.draws = 0;
    x = cmha_model_states(&s->model, &s->tape, &s->batch, &extra);
    if (c->classes) sum = weighed(&s->tape, cmha_model_scores(&s->model, &s->tape, x, NULL), sum);
    if (c->values) sum = weighed(&s->tape, cmha_model_values(&s->model, &s->tape, x), sum);
    return sum;
}

static double objective_value(void *user) {
    cmha_tensor *loss = objective((subject *)user);
    return loss ? (double)loss->data[0] : NAN;
}

static int opens(subject *s, const cmha_model_config *c) {
    memset(s, 0, sizeof *s);
    if (cmha_model_init(&s->model, &context, c)) return 0;
    if (c->irw_layers) (void)cmha_model_set_knowledge(&s->model, &base);
    s->batch.ids = c->tokens ? ids : NULL, s->batch.targets = targets;
    s->batch.batch = B, s->batch.length = N;
    s->batch.features = c->features ? features : NULL, s->batch.values = c->values ? values : NULL;
    if (c->frequency == CMHA_FREQUENCY_TABLE) {
        double omega[64];
        for (size_t i = 0; i < 64; i++) omega[i] = 1 / (1.0 + (double)i);
        CHECK(s->model.n_omega * s->model.P <= 64);
        CHECK_OK(cmha_model_set_frequencies(&s->model, omega));
    }
    CHECK_OK(cmha_tape_init(&s->tape, &context, 1));
    return 1;
}

static void closes(subject *s) {
    cmha_tape_close(&s->tape);
    cmha_model_close(&s->model);
}

/* What a model is at first: its parameters' names, shapes and numbers, and what it computes. */
static uint64_t identity(const cmha_model_config *c) {
    subject s;
    uint64_t print = 14695981039346656037u;
    if (!opens(&s, c)) return 0;
    double loss = objective_value(&s);
    const unsigned char *bytes[2] = {(const unsigned char *)s.model.parameters.data,
                                     (const unsigned char *)&loss};
    size_t sizes[2] = {s.model.parameters.size * sizeof(cmha_real), sizeof loss};
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < sizes[k]; i++) print = (print ^ bytes[k][i]) * 1099511628211u;
    for (size_t i = 0; i < s.model.parameters.count; i++)
        for (const char *at = s.model.parameters.list[i].name; *at; at++)
            print = (print ^ (unsigned char)*at) * 1099511628211u;
    closes(&s);
    return print ? print : 1;
}

static int same_config(const cmha_model_config *a, const cmha_model_config *b) {
    cmha_table table = cmha_model_table();
    int same = 1;
    for (size_t i = 0; i < table.count; i++) {
        char one[32], two[32];
        cmha_config_get(table, a, table.fields[i].name, one, sizeof one);
        cmha_config_get(table, b, table.fields[i].name, two, sizeof two);
        same &= !strcmp(one, two);
    }
    return same;
}

/* -------------------------------------------- what is tested of one --------------------------------------
 */

static void gradients(subject *s) {
    cmha_parameters *p = &s->model.parameters;
    cmha_tensor *loss;
    size_t zeros = 0;
    cmha_parameters_zero_grad(p);
    loss = objective(s);
    if (!CHECK_THAT(loss && !cmha_tape_backward(&s->tape, loss, 1), "%s: %s", s->label, cmha_error(&context)))
        return;
    for (size_t i = 0; i < p->count; i++) {
        cmha_parameter *one = &p->list[i];
        grad_input in = {one->name, one->tensor.data, one->tensor.grad, one->tensor.size};
        if (!CHECK_THAT(in.grad != NULL, "%s: no gradient for %s", s->label, in.name)) continue;
        if (check_largest(in.grad, in.n) <
            1e-12) { /* of what the batch does not reach: then differences say so */
            zeros++;
            CHECK_THAT(fabs(grad_difference(objective_value, s, in.x, in.n, NULL, 0, 2e-4)) < 1e-9,
                       "%s: the gradient of %s is not 0", s->label, in.name);
        } else
            grad_check(s->label, objective_value, s, &in, 1, 1);
    }
    CHECK_THAT(zeros * 4 < p->count, "%s: %zu of %zu gradients are 0", s->label, zeros, p->count);
}

/* Tokens one after another through a cache give the logits of the whole pass. */
static void caching(subject *s) {
    const cmha_model_config *c = &s->model.config;
    cmha_real out[B * VOCABULARY];
    cmha_cache cache;
    if (!c->causal || !c->tokens || c->features || (s->model.score && s->model.score->whole)) return;
    if (!CHECK_THAT(!cmha_cache_init(&cache, &s->model, B, N, 0, NULL), "%s: %s", s->label,
                    cmha_error(&context)))
        return;
    cmha_tape_reset(&s->tape);
    cmha_tensor *logits = cmha_model_forward(&s->model, &s->tape, &s->batch, NULL);
    for (size_t t = 0; logits && t < N; t++) {
        int32_t next[B];
        for (size_t b = 0; b < B; b++) next[b] = ids[b * N + t];
        CHECK_OK(cmha_cache_append(&cache, next, 1, out));
        for (size_t b = 0; b < B; b++)
            CHECK_THAT(check_distance(out + b * VOCABULARY, logits->data + (b * N + t) * VOCABULARY,
                                      VOCABULARY) < 1e-10 * (1 + check_largest(logits->data, logits->size)),
                       "%s: token %zu through the cache differs", s->label, t);
    }
    CHECK(logits != NULL);
    cmha_cache_close(&cache);
}

static void saving(subject *s) {
    subject again;
    const cmha_parameters *p = &s->model.parameters, *q = &again.model.parameters;
    memset(&again, 0, sizeof again);
    again.batch = s->batch, again.label = s->label;
    CHECK_THAT(!cmha_model_save(&s->model, "model"), "%s: %s", s->label, cmha_error(&context));
    if (CHECK_THAT(!cmha_model_open(&again.model, &context, "model"), "%s: %s", s->label,
                   cmha_error(&context))) {
        if (s->model.knowledge) CHECK_OK(cmha_model_set_knowledge(&again.model, &base));
        CHECK_OK(cmha_tape_init(&again.tape, &context, 1));
        CHECK_THAT(same_config(&s->model.config, &again.model.config) && p->count == q->count &&
                       p->size == q->size && !memcmp(p->data, q->data, p->size * sizeof *p->data),
                   "%s: another model was opened than saved", s->label);
        double first = objective_value(s), second = objective_value(&again);
        CHECK_THAT(first == second, "%s: the saved model computes %.17g, it was %.17g", s->label, second,
                   first);
        closes(&again);
    }
    free(buffers[0].taken);
    buffers[0].taken = NULL, buffers[0].data = NULL, buffers[0].size = 0;
}

static void whole(const char *label, const cmha_model_config *c) {
    subject s;
    if (!CHECK_THAT(opens(&s, c), "%s: %s", label, cmha_error(&context))) return;
    cmha_parameters *p = &s.model.parameters;
    s.label = label;
    check_seed = 1; /* and the label: another word anywhere changes nothing that is drawn here */
    for (const char *at = label; *at; at++) check_seed = (check_seed ^ (unsigned char)*at) * 1099511628211u;
    for (size_t i = 0; i < p->size; i++) p->data[i] += 0.05 * check_random();
    for (size_t i = 0; i < p->count; i++) /* PoPE's beta counts as 0 above it, where its slope is 0 */
        if (strstr(p->list[i].name, "attn.beta"))
            for (size_t j = 0; j < p->list[i].tensor.size; j++)
                p->list[i].tensor.data[j] = -1 + 0.5 * check_random();
    CHECK_OK(cmha_parameters_tune(p, "*", CMHA_TUNE_FROZEN, 0, NULL));
    double ignored;
    s.batch.targets = targets;
    (void)cmha_model_gradient(&s.model, &s.batch, 1, 1, &ignored); /* takes the gradients' memory */
    if (!p->grad) cmha_tape_reset(&s.tape);
    gradients(&s);
    caching(&s);
    saving(&s);
    closes(&s);
}

/* ------------------------------------------------- the walk ----------------------------------------------
 */

/* What fields need beside them to change anything; each is tried on each kind, the first that shows a word
 * counts. */
static const char *const beside[] = {"",
                                     "causal=0",
                                     "classes=3",
                                     "features=3",
                                     "features=3 causal=0",
                                     "rope_scaling=yarn",
                                     "pcl_weight=0.3",
                                     "values=3",
                                     "mobius_heads=2",
                                     "placement=post",
                                     "features=3 complex_features=1",
                                     "head_transform=1",
                                     "frequency=table"};
/* Flags that change memory, or gradients (of a maximum that counts as a constant) which differences do not
 * show */
static const char *const silent[] = {"recompute", "cope_max_grad"};
enum { BESIDE = sizeof beside / sizeof *beside };

/* Sets a kind and what stands beside it; 0 if that does not go. */
static int base_config(const char *kind, const char *options, cmha_model_config *c) {
    cmha_context quiet = context;
    *c = check_model_config();
    models_set(&context, c,
               "d_model=8 n_heads=2 d_ff=6 vocabulary=9 max_positions=16 base=30 mobius_heads=1 "
               "rope_factor=4 rope_length=32 rope_fast=4 irw_layers=1 irw_width=3 irw_queries=2 "
               "irw_top=7 complex_eps=0.01 cope_max_grad=1"); /* without, the maximum is a constant */
    c->classes = 0;
    if (cmha_kind(&quiet, kind, c)) return 0;
    return !cmha_config_set_all(&quiet, cmha_model_table(), c, options);
}

static int *field_of(const cmha_field *f, cmha_model_config *c) {
    return (int *)(void *)((char *)c + f->offset);
}

/* Does value w of a field make another model of this base than some other value does? */
static int shows(const cmha_field *f, int w, const cmha_model_config *c) {
    cmha_model_config own = *c;
    *field_of(f, &own) = w;
    uint64_t mine = identity(&own);
    if (!mine) return 0;
    for (int other = (int)f->minimum; other <= (int)f->maximum; other++) {
        *field_of(f, &own) = other;
        if (other != w && identity(&own) != mine) return 1;
    }
    return 0;
}

/* Tests a value on the first base of each family that shows it, or of one. */
static void word(const cmha_field *f, int w, int once) {
    int seen[16] = {0}, found = 0;
    const char *kind;
    for (size_t i = 0; i < BESIDE && !found; i++)
        for (size_t k = 0; (kind = cmha_kind_name(k, NULL)) != NULL; k++) {
            cmha_model_config c;
            char label[160], text[32];
            if (!base_config(kind, beside[i], &c)) continue;
            *field_of(f, &c) = w;
            if (seen[c.family] || !shows(f, w, &c)) continue;
            cmha_config_get(cmha_model_table(), &c, f->name, text, sizeof text);
            snprintf(label, sizeof label, "%s %s %s=%s", kind, beside[i], f->name, text);
            whole(label, &c);
            seen[c.family] = found = 1;
            if (once || check_quick()) break;
        }
    for (size_t i = 0; i < sizeof silent / sizeof *silent; i++) {
        cmha_model_config c;
        if (strcmp(silent[i], f->name) != 0 || !CHECK(base_config("cope-hybrid_norm", "", &c))) continue;
        if (w) *field_of(f, &c) = w, whole(f->name, &c);
        found = 1;
    }
    CHECK_THAT(found, "%s = %d of %s changes no model: say in `beside` what it needs", f->name, w,
               f->choices ? f->choices : "0|1");
}

static void words(void) {
    cmha_table table = cmha_model_table();
    for (size_t i = 0; i < table.count; i++) {
        const cmha_field *f = &table.fields[i];
        if (f->type == CMHA_FIELD_ENUM)
            for (int w = (int)f->minimum; w <= (int)f->maximum; w++) word(f, w, 0);
        else if (f->type == CMHA_FIELD_FLAG)
            word(f, !(int)f->initial, 1);
    }
}

static void kinds_and_scores(void) {
    const char *kind;
    cmha_model_config c;
    for (size_t k = 0; (kind = cmha_kind_name(k, NULL)) != NULL; k++)
        if (CHECK(base_config(kind, "irw_layers=0", &c))) whole(kind, &c);
    for (size_t i = 0; i < SCORES_COUNT; i++) {
        int opened = 0;
        for (size_t family = 0; family < 2; family++) {
            char options[64];
            subject s;
            snprintf(options, sizeof options, "score=%s", scores_rows[i].name);
            if (!CHECK(base_config(family ? "cope-real" : "rope", options, &c))) continue;
            if (!opens(&s, &c)) continue;
            closes(&s);
            whole(options, &c);
            opened = 1;
        }
        CHECK_THAT(opened, "score %s opens no model: %s", scores_rows[i].name, cmha_error(&context));
    }
}

/* ----------------------------------------------- optimisers ----------------------------------------------
 */

static cmha_trainer_config small_steps(void) {
    cmha_trainer_config t;
    cmha_config_defaults(cmha_trainer_table(), &t);
    t.batch = B, t.length = N, t.lr = t.min_lr = 1e-4, t.warmup = 0, t.weight_decay = 0, t.steps = 20,
    t.clip = 0.5;
    return t;
}

/* Takes steps on the batch; returns the loss before them, and that after them. */
static double steps(const cmha_trainer_config *t, int n, const char *save_at_2, cmha_real *result,
                    double *after) {
    cmha_model_config c;
    cmha_model model;
    cmha_trainer trainer;
    cmha_batch batch;
    double first = NAN, loss = NAN;
    memset(&batch, 0, sizeof batch);
    batch.ids = ids, batch.targets = targets, batch.batch = B, batch.length = N;
    CHECK(base_config("cmha", "", &c));
    CHECK_OK(cmha_model_init(&model, &context, &c));
    if (CHECK_THAT(!cmha_trainer_init(&trainer, &model, t), "%s", cmha_error(&context))) {
        CHECK_OK(cmha_model_loss(&model, &batch, &first));
        if (save_at_2 && !*save_at_2) CHECK_OK(cmha_trainer_read(&trainer, "model"));
        for (size_t i = trainer.step; i < (size_t)n; i++) {
            CHECK_OK(cmha_trainer_step_batch(&trainer, &batch, &loss));
            if (save_at_2 && *save_at_2 && i == 1) CHECK_OK(cmha_trainer_save(&trainer, "model"));
        }
        CHECK_OK(cmha_model_loss(&model, &batch, after));
        if (result) memcpy(result, model.parameters.data, model.parameters.size * sizeof *result);
        cmha_trainer_close(&trainer);
    }
    cmha_model_close(&model);
    return first;
}

static size_t numbers(void) {
    cmha_model_config c;
    cmha_model model;
    CHECK(base_config("cmha", "", &c));
    CHECK_OK(cmha_model_init(&model, &context, &c));
    size_t n = model.parameters.size;
    cmha_model_close(&model);
    return n;
}

/* Each optimiser: each step lowers the loss, a resumed run has the bits of one that was not stopped, and the
   moments are as many as its row says. */
static void optimisers(void) {
    const char *name;
    size_t n = numbers();
    cmha_real *through = check_zeros(n), *resumed = check_zeros(n);
    for (size_t i = 0; (name = cmha_optimiser_name(&context, i)) != NULL; i++) {
        cmha_trainer_config t = small_steps();
        double after = NAN, before, last = INFINITY;
        snprintf(t.optimiser, sizeof t.optimiser, "%s", name);
        for (int k = 1; k <= 4; k++) {
            before = steps(&t, k, NULL, NULL, &after);
            CHECK_THAT(after < before && after < last, "%s: %d steps lead from %.12g to %.12g", name, k,
                       before, after);
            last = after;
        }
        steps(&t, 5, "save", through, &after);
        steps(&t, 5, "", resumed, &after);
        CHECK_THAT(!memcmp(through, resumed, n * sizeof *through), "%s: a resumed run has other bits", name);
        if (i) { /* a state is for its own optimiser alone */
            cmha_model_config c;
            cmha_model model;
            cmha_trainer trainer;
            t.optimiser[0] = 0;
            CHECK(base_config("cmha", "", &c));
            CHECK_OK(cmha_model_init(&model, &context, &c));
            CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
            CHECK_IS(cmha_trainer_read(&trainer, "model"), CMHA_ERR_FORMAT);
            CHECK(strstr(cmha_error(&context), name) != NULL);
            cmha_trainer_close(&trainer), cmha_model_close(&model);
        }
        free(buffers[0].taken);
        buffers[0].taken = NULL, buffers[0].data = NULL, buffers[0].size = 0;
    }
    free(through), free(resumed);
}

/* What the rows say of moments is what memory has, and a row that is none is refused. */
static void moments(void) {
    static const cmha_optimiser wrong[] = {{"none", 1, NULL, NULL, NULL, NULL, NULL},
                                            {"three", 3, NULL, plain, NULL, NULL, NULL},
                                            {"a*b", 1, NULL, plain, NULL, NULL, NULL}};
    cmha_context bad;
    cmha_context_config config;
    cmha_model_config c;
    cmha_model model;
    cmha_parameters *p = &model.parameters;
    size_t need[2] = {0, 0}, matrices = 0;
    CHECK(base_config("cmha", "", &c));
    CHECK_OK(cmha_model_init(&model, &context, &c));
    for (size_t i = 0; i < p->count; i++)
        matrices += is_matrix(own_optimisers, &p->list[i]) ? p->list[i].tensor.size : 0;
    CHECK(p->kept == 2 * p->size);
    CHECK_OK(cmha_model_training_memory(&model, B, N, &need[0]));
    CHECK_OK(cmha_parameters_optimiser(p, "heavy-ball"));
    CHECK_OK(cmha_model_training_memory(&model, B, N, &need[1]));
    CHECK(p->kept == p->size && need[0] - need[1] == p->size * sizeof(cmha_real));
    CHECK_OK(cmha_parameters_optimiser(p, "heavy-matrices"));
    CHECK(matrices > 0 && p->kept == 2 * p->size - matrices);
    CHECK_OK(cmha_parameters_optimiser(p, "plain"));
    CHECK(!p->kept && !p->moments);
    CHECK_IS(cmha_parameters_optimiser(p, "no-such"), CMHA_ERR_NOT_FOUND);
    CHECK(strstr(cmha_error(&context), "no-such") != NULL);
    CHECK_OK(cmha_parameters_optimiser(p, NULL));
    CHECK(p->kept == 2 * p->size && p->moments);
    cmha_model_close(&model);
    memset(&config, 0, sizeof config);
    config.optimisers = wrong, config.n_optimisers = 3;
    CHECK_OK(cmha_context_init(&bad, &config));
    CHECK_OK(cmha_model_init(&model, &bad, &c));
    CHECK_IS(cmha_parameters_optimiser(p, "none"), CMHA_ERR_ARGUMENT);
    CHECK_IS(cmha_parameters_optimiser(p, "three"), CMHA_ERR_ARGUMENT);
    CHECK_IS(cmha_parameters_optimiser(p, "a*b"), CMHA_ERR_ARGUMENT);
    CHECK(p->kept == 2 * p->size);
    cmha_model_close(&model), cmha_context_close(&bad);
}

/* Each word of the trainer's fields: its steps lower the loss, and end elsewhere than some other word's. */
static void trainer_words(void) {
    cmha_table table = cmha_trainer_table();
    size_t n = numbers();
    cmha_real *own = check_zeros(n), *other = check_zeros(n);
    for (size_t i = 0; i < table.count; i++) {
        const cmha_field *f = &table.fields[i];
        if (f->type != CMHA_FIELD_ENUM) continue;
        for (int w = (int)f->minimum; w <= (int)f->maximum; w++) {
            cmha_trainer_config t = small_steps();
            double after = NAN;
            int differs = 0;
            int muons = !strncmp(f->help, "muon", 4); /* nothing else reads it */
            snprintf(t.optimiser, sizeof t.optimiser, muons ? "muon" : "plain"), t.clip = 1e-2;
            t.lr = muons ? 1e-4 : 1e-2;
            for (int v = w; !differs; v = v == (int)f->maximum ? (int)f->minimum : v + 1) {
                *(int *)(void *)((char *)&t + f->offset) = v;
                double before = steps(&t, 8, NULL, v == w ? own : other, &after);
                CHECK_THAT(after < before, "%s = %d: %.12g to %.12g", f->name, v, before, after);
                differs = v != w && memcmp(own, other, n * sizeof *own) != 0;
                if (v != w && v == (w == (int)f->minimum ? (int)f->maximum : w - 1)) break;
            }
            CHECK_THAT(differs, "%s: word %d of %s changes nothing", f->name, w, f->choices);
        }
    }
    free(own), free(other);
}

int main(int argc, char **argv) {
    cmha_context_config config;
    cmha_real *documents = check_array(7 * 2 * 3, 1);
    (void)argc;
    cmha_blas_restart(argv);
    memset(&config, 0, sizeof config);
    config.threads = 1, config.seed = 3;
    config.scores = scores_rows, config.n_scores = SCORES_COUNT;
    config.optimisers = own_optimisers, config.n_optimisers = sizeof own_optimisers / sizeof *own_optimisers;
    config.files = cmha_buffers(buffers);
    CHECK_OK(cmha_context_init(&context, &config));
    CHECK_OK(cmha_knowledge_init(&base, &context, 7, 3, documents, NULL, NULL, NULL));
    for (size_t i = 0; i < B * N; i++)
        ids[i] = (int32_t)check_below(VOCABULARY), targets[i] = (int32_t)check_below(VOCABULARY);
    check_fill(features, sizeof features / sizeof *features, 1);
    check_fill(values, sizeof values / sizeof *values, 1);
    optimisers();
    moments();
    trainer_words();
    kinds_and_scores();
    words();
    cmha_knowledge_close(&base), free(documents);
    cmha_context_close(&context);
    return check_end();
}
