/* Scores of a program's own: rows that say what built-in kinds say, rows that learn, whole layers; training,
   threads, files, caches, memory, and rows that contradict themselves. */
#define _POSIX_C_SOURCE 200809L
#define _DARWIN_C_SOURCE
#include "models.h"
#include "scores.h"
#include "system.h"

enum { LENGTH = 40, BATCH = 3, STEPS = 4 };
static unsigned char text[6000];

static cmha_model_config small(cmha_context *c, const char *options) {
    cmha_model_config m = check_model_config();
    m.vocabulary = 128, m.init_std = 0.1, m.attention = CMHA_ATTENTION_DOT;
    models_set(c, &m, options);
    return m;
}

static cmha_trainer_config steps(void) {
    cmha_trainer_config t;
    cmha_config_defaults(cmha_trainer_table(), &t);
    t.steps = STEPS, t.batch = BATCH, t.length = LENGTH, t.lr = 3e-3;
    return t;
}

static cmha_tokens corpus(void) {
    cmha_tokens all;
    memset(&all, 0, sizeof all);
    all.data = text, all.count = models_text(text, sizeof text), all.width = 1;
    return all;
}

/* What a model makes of its text before and after some steps: logits, losses and weights. */
typedef struct trained {
    cmha_context context;
    cmha_model model;
    cmha_trainer trainer;
    double loss[STEPS];
    cmha_real *before, *logits;
    int open;
} trained;

static cmha_real *logits_of(cmha_model *model) {
    cmha_real *logits = check_zeros(2 * LENGTH * 128);
    int32_t ids[2 * LENGTH];
    cmha_batch batch;
    size_t i;
    memset(&batch, 0, sizeof batch);
    for (i = 0; i < 2 * LENGTH; i++) ids[i] = text[100 + i];
    batch.ids = ids, batch.batch = 2, batch.length = LENGTH;
    CHECK_THAT(!cmha_model_logits(model, &batch, logits), "%s", cmha_error(model->context));
    return logits;
}

static int train(trained *t, const char *options, int threads) {
    cmha_model_config m;
    cmha_trainer_config c = steps();
    cmha_tokens all = corpus();
    size_t i;
    memset(t, 0, sizeof *t);
    scores_context(&t->context, threads, 5);
    m = small(&t->context, options);
    t->open = CHECK_THAT(!cmha_model_init(&t->model, &t->context, &m) &&
                             !cmha_trainer_init(&t->trainer, &t->model, &c),
                         "%s: %s", options, cmha_error(&t->context));
    if (!t->open) return 0;
    t->before = logits_of(&t->model);
    for (i = 0; i < STEPS; i++)
        CHECK_THAT(!cmha_trainer_step(&t->trainer, &all, &t->loss[i]), "%s: %s", options,
                   cmha_error(&t->context));
    t->logits = logits_of(&t->model);
    return 1;
}

static void finish(trained *t) {
    free(t->before), free(t->logits);
    cmha_trainer_close(&t->trainer), cmha_model_close(&t->model), cmha_context_close(&t->context);
}

/* Two configurations that say the same train alike: to the bit, or closely. */
static void same(const char *ours, const char *built_in, double tolerance) {
    trained a, b;
    if (train(&a, ours, 2) && train(&b, built_in, 2)) {
        size_t n = 2 * LENGTH * 128;
        CHECK_THAT(a.model.parameters.size == b.model.parameters.size, "%s: %zu numbers, %s has %zu", ours,
                   a.model.parameters.size, built_in, b.model.parameters.size);
        CHECK_THAT(check_distance(a.before, b.before, n) <= tolerance, "%s is not %s: %g before training",
                   ours, built_in, check_distance(a.before, b.before, n));
        CHECK_THAT(check_distance(a.logits, b.logits, n) <= 30 * tolerance, "%s is not %s: %g after it", ours,
                   built_in, check_distance(a.logits, b.logits, n));
        CHECK(check_distance(a.before, a.logits, n) > 1e-3);
        finish(&b);
    }
    finish(&a);
}

static void built_in(void) {
    same("score=my-rope n_kv_heads=2 window=9", "attention=rope n_kv_heads=2 window=9", 0);
    same("score=turned layout=half attention_dropout=0.2", "attention=rope layout=half attention_dropout=0.2",
         0);
    same("score=my-dot position=alibi", "attention=dot position=alibi", 0);
    same("score=polar n_kv_heads=2 window=9 rotary_dims=3",
         "attention=pope share=fixed n_kv_heads=2 window=9 rotary_dims=3", 0);
    same("score=twice n_kv_heads=2 layout=half position=alibi",
         "attention=ropepp n_kv_heads=2 layout=half position=alibi", 0);
    same("score=turned-planes n_kv_heads=1", "attention=rope layout=half n_kv_heads=1", 2e-5);
    same("score=size family=cope cope_scale=3", "family=cope cope_score=magnitude cope_scale=3", 2e-5);
    same("score=twist family=cope", "score=twist family=cope cope_score=real", 0);
}

/* ---- rows that learn: threads, files, decoding, memory ---- */

static const char *const rows[] = {"score=gain n_kv_heads=2",
                                   "score=gain position=alibi window=7 dropout=0.1",
                                   "score=twist n_kv_heads=1",
                                   "score=power-turned attention_dropout=0.1 n_kv_heads=2",
                                   "score=squares n_kv_heads=2 window=9 dropout=0.1",
                                   "score=power family=cope dropout=0.1",
                                   "score=twist family=cope cope_score=hybrid_norm",
                                   "score=power recompute=1 position=learned",
                                   "score=gated n_kv_heads=2 dropout=0.1",
                                   "score=gated recompute=1 init=xavier"};
enum { ROWS = sizeof rows / sizeof *rows };

/* The bits do not depend on the number of threads beyond what the whole library promises: attention's and its
   parameters' gradients are the same. */
static void threads(void) {
    enum { B = 2, N = 70, H = 4, D = 6 };
    cmha_real *grad[2][6];
    size_t shape[3], i, s;
    for (s = SCORES_GAIN; s <= SCORES_ALL; s++) {
        const cmha_score *row = &scores_rows[s];
        size_t sizes[6] = {0}, n = 3 + row->n_parameters;
        int t;
        for (t = 0; t < 2; t++) {
            cmha_context c;
            cmha_tape tape;
            cmha_tensor *in[6] = {NULL}, *y;
            cmha_attention_args a;
            double omega[D] = {1, 0.3, 0.1, 0.03, 0.01, 0};
            check_seed = 11;
            scores_context(&c, t + 1, 1), cmha_tape_init(&tape, &c, 1);
            memset(&a, 0, sizeof a);
            a.heads = H, a.kv_heads = 2, a.scale = 1, a.causal = 1, a.score = row,
            a.softmax = CMHA_SOFTMAX_REAL, a.halves = 1;
            a.rotation = cmha_rotation(&tape, omega, 1, row->planes == 2 ? D : D / 2, N, 0);
            for (i = 0; i < n; i++) {
                size_t width = (size_t)(i ? 2 : H) * D * (size_t)(i < 2 ? row->planes : 1);
                shape[0] = B, shape[1] = N, shape[2] = width;
                if (i == 3) shape[0] = H, shape[1] = s == SCORES_GAIN || s == SCORES_TWIST ? D : 1;
                if (i == 4) shape[0] = s == SCORES_GAIN ? 1 : 2;
                in[i] = cmha_tensor_new(&tape, i < 3 ? 3 : i == 3 ? 2 : 1, shape, 1);
                check_fill(in[i]->data, in[i]->size, 1), sizes[i] = in[i]->size;
            }
            y = cmha_attention(&tape, &a, in[0], in[1], in[2], in + 3);
            y = cmha_sum(&tape, cmha_mul(&tape, y, y));
            CHECK_THAT(y && !cmha_tape_backward(&tape, y, 1), "%s: %s", row->name, cmha_error(&c));
            for (i = 0; i < n; i++) {
                grad[t][i] = check_zeros(sizes[i]);
                if (in[i]->grad) memcpy(grad[t][i], in[i]->grad, sizes[i] * sizeof(cmha_real));
                CHECK_THAT(check_largest(grad[t][i], sizes[i]) > 1e-6, "%s: no gradient of input %zu",
                           row->name, i);
            }
            cmha_tape_close(&tape), cmha_context_close(&c);
        }
        for (i = 0; i < n; i++) {
            CHECK_THAT(!memcmp(grad[0][i], grad[1][i], sizes[i] * sizeof(cmha_real)),
                       "%s: gradient %zu depends on the threads", row->name, i);
            free(grad[0][i]), free(grad[1][i]);
        }
    }
}

/* Token by token through a cache: the logits of the forward, also after sliding, and in pieces. */
static void decoding(trained *t, const char *options) {
    cmha_cache cache;
    cmha_real row[2 * 128];
    int32_t ids[2];
    double worst = 0;
    size_t i, b, n;
    CHECK_THAT(!cmha_cache_init(&cache, &t->model, 2, LENGTH, 0, NULL), "%s: %s", options,
               cmha_error(&t->context));
    for (i = 0; i < LENGTH; i += n) {
        int32_t piece[2 * 5];
        n = i % 3 == 0 && i + 5 <= LENGTH ? 5 : 1;
        for (b = 0; b < 2; b++)
            for (size_t j = 0; j < n; j++) piece[b * n + j] = text[100 + b * LENGTH + i + j];
        CHECK_THAT(!cmha_cache_append(&cache, piece, n, row), "%s: %s", options, cmha_error(&t->context));
        for (b = 0; b < 2; b++) {
            double d = check_distance(row + b * 128, t->logits + (b * LENGTH + i + n - 1) * 128, 128);
            if (d > worst) worst = d;
        }
    }
    CHECK_THAT(worst < 2e-5 * (1 + check_largest(t->logits, 2 * LENGTH * 128)),
               "%s: decoding differs from the forward by %g", options, worst);
    ids[0] = ids[1] = 'a';
    CHECK_IS(cmha_cache_append(&cache, ids, 1, row), CMHA_ERR_FULL);
    cmha_cache_close(&cache);
}

/* Saved, a model comes back to the bit where its row is, and is refused by name where it is not. */
static void files(trained *t, const char *options) {
    char folder[64] = "/tmp/cmha-test_scores-XXXXXX", path[128];
    cmha_context other;
    cmha_model again;
    cmha_trainer trainer;
    cmha_trainer_config config = steps();
    cmha_tokens all = corpus();
    cmha_real *logits;
    double first, second;
    if (!CHECK(system_folder(folder))) return;
    snprintf(path, sizeof path, "%s/state", folder);
    CHECK_OK(cmha_trainer_save(&t->trainer, path));
    CHECK_THAT(!cmha_model_open(&again, &t->context, path), "%s: %s", options, cmha_error(&t->context));
    CHECK(!strcmp(again.config.score, t->model.config.score) && again.score == t->model.score);
    logits = logits_of(&again);
    CHECK_THAT(check_distance(logits, t->logits, 2 * LENGTH * 128) <= 0, "%s: a file changes it", options);
    CHECK_OK(cmha_trainer_init(&trainer, &again, &config));
    CHECK_OK(cmha_trainer_read(&trainer, path));
    CHECK_OK(cmha_trainer_step(&trainer, &all, &first));
    CHECK_OK(cmha_trainer_step(&t->trainer, &all, &second));
    CHECK_THAT(first == second && !memcmp(again.parameters.data, t->model.parameters.data,
                                          again.parameters.size * sizeof *again.parameters.data),
               "%s: a resumed run differs", options);
    cmha_trainer_close(&trainer), cmha_model_close(&again);
    free(logits);
    check_context(&other, 1, 1);
    CHECK_IS(cmha_model_open(&again, &other, path), CMHA_ERR_NOT_FOUND);
    CHECK_THAT(strstr(cmha_error(&other), t->model.config.score) && strstr(cmha_error(&other), "test_scores"),
               "%s: a program without the row says \"%s\"", options, cmha_error(&other));
    cmha_context_close(&other);
    CHECK(!remove(path) && !rmdir(folder));
}

/* cmha_model_memory counts the row's parameters and all that its passes take. */
static void memory(const char *options) {
    check_heap heap;
    cmha_context_config config = check_heap_config(&heap);
    cmha_context c;
    cmha_model model;
    cmha_model_config m;
    cmha_trainer trainer;
    cmha_trainer_config t = steps();
    cmha_tokens all = corpus();
    size_t base, calls, training;
    double loss;
    config.scores = scores_rows, config.n_scores = SCORES_COUNT;
    CHECK_OK(cmha_context_init(&c, &config));
    m = small(&c, options);
    CHECK_THAT(!cmha_model_memory(&c, &m, BATCH, LENGTH, NULL, &training), "%s: %s", options, cmha_error(&c));
    base = heap.bytes;
    CHECK_OK(cmha_model_init(&model, &c, &m));
    CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    CHECK_THAT(heap.bytes - base == training, "%s: cmha_model_memory said %zu, training holds %zu", options,
               training, heap.bytes - base);
    calls = heap.calls;
    if (m.causal) CHECK_OK(cmha_trainer_step(&trainer, &all, &loss));
    CHECK_THAT(heap.calls == calls, "%s: a step allocates", options);
    cmha_trainer_close(&trainer), cmha_model_close(&model), cmha_context_close(&c);
    CHECK_THAT(check_heap_empty(&heap), "%s leaks", options);
}

static void learning(void) {
    size_t i;
    for (i = 0; i < ROWS; i++) {
        trained one, two;
        if (check_quick() && i % 2) continue;
        if (!train(&two, rows[i], 2)) return;
        if (two.model.score->n_parameters > 1) { /* the row says what decays; gates start at its start */
            const cmha_score_parameter *p = two.model.score->parameters + 1;
            char name[48];
            snprintf(name, sizeof name, "blocks.0.attn.%s", p->name);
            cmha_parameter *again = cmha_parameters_find(&two.model.parameters, name);
            CHECK(again && again->decay == p->decay);
        }
        train(&one, rows[i], 1);
        CHECK_THAT(two.loss[STEPS - 1] < two.loss[0], "%s does not learn", rows[i]);
        CHECK_THAT(check_distance(one.logits, two.logits, 2 * LENGTH * 128) < 1e-4,
                   "%s: one thread trains to other logits", rows[i]);
        decoding(&two, rows[i]);
        files(&two, rows[i]);
        finish(&one), finish(&two);
        memory(rows[i]);
    }
    memory("score=mean causal=0");
}

/* Muon keeps one moment of a matrix, AdamW two of the rest: does it serve this parameter? */
static void is_muons(const char *options, const char *name, int serves) {
    cmha_context c;
    cmha_model model;
    scores_context(&c, 1, 5);
    cmha_model_config m = small(&c, options);
    CHECK_OK(cmha_model_init(&model, &c, &m));
    CHECK_OK(cmha_parameters_optimiser(&model.parameters, "muon"));
    const cmha_parameter *one = cmha_parameters_find(&model.parameters, name);
    CHECK_THAT(one && one->kept[0] != SIZE_MAX && (one->kept[1] == SIZE_MAX) == serves, "%s: %s", options,
               name);
    CHECK_THAT(one && one->matrices == serves, "%s: %s", options, name);
    cmha_model_close(&model), cmha_context_close(&c);
}

/* What begins as weight matrices do is one for an optimiser of matrices, too. */
static void matrices(void) {
    is_muons("score=gated", "blocks.0.attn.query", 1);
    is_muons("score=gated", "blocks.0.attn.gate", 1);
    is_muons("score=gated", "blocks.0.attn.gate_bias", 0);
    is_muons("score=gated", "blocks.0.attn.wo.weight", 1);
    is_muons("score=gain", "blocks.0.attn.gain", 0);
}

/* ---- edges: padding, rows that see nothing, huge logits ---- */

static void edges(void) {
    enum { N = 6 };
    size_t s, i, j;
    for (s = SCORES_GAIN; s <= SCORES_ALL; s++) {
        const cmha_score *row = &scores_rows[s];
        unsigned char mask[N] = {1, 0, 1, 1, 0, 0};
        static const double omega[4] = {1, 0.5, 0.1, 0.01}, sizes[3] = {1, 1e15, 1e25};
        size_t shape[3] = {1, N, 0}, d = 4, k;
        for (k = 0; k < 3 + 2;
             k++) { /* huge logits; then nothing is visible; then padding holds other numbers */
            cmha_context c;
            cmha_tape tape;
            cmha_tensor *in[5] = {NULL}, *y = NULL;
            cmha_real kept[N * 8];
            cmha_attention_args a;
            int again;
            scores_context(&c, 1, 1);
            CHECK_OK(cmha_tape_init(&tape, &c, 1));
            for (again = 0; again < (k == 4 ? 2 : 1); again++) {
                check_seed = 3;
                memset(&a, 0, sizeof a);
                a.heads = 2, a.kv_heads = 1, a.scale = 1, a.halves = 1;
                a.score = row, a.softmax = CMHA_SOFTMAX_REAL;
                a.rotation = cmha_rotation(&tape, omega, 1, row->planes == 2 ? d : d / 2, N, 0);
                if (k > 2) a.key_mask = mask;
                if (k == 3) memset(mask, 0, sizeof mask);
                for (i = 0; i < 3 + row->n_parameters; i++) {
                    shape[0] = 1, shape[1] = N,
                    shape[2] = (i ? 1 : 2) * d * (size_t)(i < 2 ? row->planes : 1);
                    if (i == 3) shape[0] = 2, shape[1] = s == SCORES_GAIN || s == SCORES_TWIST ? d : 1;
                    if (i == 4) shape[0] = s == SCORES_GAIN ? 1 : 2;
                    in[i] = cmha_tensor_new(&tape, i < 3 ? 3 : i == 3 ? 2 : 1, shape, 1);
                    check_fill(in[i]->data, in[i]->size, k < 3 && i < 2 ? sizes[k] : 1);
                }
                for (j = 0; again && j < in[1]->size; j++)
                    if (!mask[j / (in[1]->size / N)]) in[1]->data[j] = (cmha_real)1e3;
                y = cmha_attention(&tape, &a, in[0], in[1], in[2], in + 3);
                if (!CHECK_THAT(y != NULL, "%s: %s", row->name, cmha_error(&c))) break;
                CHECK_THAT(check_finite(y->data, y->size), "%s: numbers of %g give no output", row->name,
                           k < 3 ? sizes[k] : 1);
                if (k == 3) CHECK(check_largest(y->data, y->size) == 0);
                if (k == 3) mask[0] = mask[2] = mask[3] = 1;
                if (again) CHECK_THAT(!memcmp(kept, y->data, sizeof kept), "%s sees padding", row->name);
                memcpy(kept, y->data, sizeof kept);
            }
            if (y && k != 3 && k != 2) {
                y = cmha_sum(&tape, cmha_mul(&tape, y, y));
                CHECK_OK(cmha_tape_backward(&tape, y, 1));
                for (i = 0; k != 1 && i < 3 + row->n_parameters; i++)
                    CHECK_THAT(check_finite(in[i]->grad, in[i]->size), "%s: gradient %zu", row->name, i);
            }
            cmha_tape_close(&tape), cmha_context_close(&c);
        }
    }
}

/* ---- rows that contradict themselves, and configurations that do not fit ---- */

static void refused(const cmha_score *row, const char *options, cmha_status status, const char *says) {
    cmha_context_config config;
    cmha_context c;
    cmha_model model;
    cmha_model_config m = check_model_config();
    memset(&config, 0, sizeof config);
    config.threads = 1, config.scores = row, config.n_scores = row ? 1 : 0;
    CHECK_OK(cmha_context_init(&c, &config));
    models_set(&c, &m, options);
    CHECK_IS(cmha_model_init(&model, &c, &m), status);
    CHECK_THAT(strstr(cmha_error(&c), says) && !strchr(cmha_error(&c), '\n'), "%s: \"%s\" does not say %s",
               options, cmha_error(&c), says);
    CHECK(!model.context && !model.parameters.list);
    cmha_model_close(&model), cmha_context_close(&c);
}

static cmha_tensor *returns_nothing(const cmha_layer *layer, cmha_tensor *h) {
    return (void)layer, (void)h, NULL;
}
static cmha_tensor *returns_half(const cmha_layer *layer, cmha_tensor *h) {
    return cmha_slice(layer->tape, h, 2, 0, h->shape[2] / 2);
}
/* Makes a call more in every pass but the first. */
static cmha_tensor *makes_more(const cmha_layer *layer, cmha_tensor *h) {
    if (!cmha_tape_measures(layer->tape)) h = cmha_layer_attention(layer, &layer->args, h, h, h, NULL);
    return cmha_layer_attention(layer, &layer->args, h, h, h, NULL);
}

static cmha_tensor *makes_another(const cmha_layer *layer, cmha_tensor *h) {
    cmha_attention_args a = layer->args;
    if (!cmha_tape_measures(layer->tape)) a.heads = a.kv_heads = 1;
    return cmha_layer_attention(layer, &a, h, h, h, NULL);
}

/* Keys or values are of half the width in every pass but the first. */
static cmha_tensor *narrows_keys(const cmha_layer *layer, cmha_tensor *h) {
    cmha_attention_args a = layer->args;
    cmha_tensor *q = h;
    if (!cmha_tape_measures(layer->tape)) {
        q = cmha_slice(layer->tape, h, 2, 0, h->shape[2] / 2);
        a.d_k /= 2;
    }
    return cmha_layer_attention(layer, &a, q, q, h, NULL);
}

static cmha_tensor *narrows_values(const cmha_layer *layer, cmha_tensor *h) {
    cmha_attention_args a = layer->args;
    if (cmha_tape_measures(layer->tape)) return cmha_layer_attention(layer, &a, h, h, h, NULL);
    a.d_v /= 2;
    cmha_tensor *v = cmha_slice(layer->tape, h, 2, 0, h->shape[2] / 2);
    v = cmha_layer_attention(layer, &a, h, h, v, NULL);
    return v ? cmha_concat(layer->tape, v, v, 2) : NULL;
}

static void bad_rows(void) {
    static const cmha_score_parameter none = {"p", {0, 0, 0}, 0, 0, 0},
                                      late = {"p", {2, CMHA_AXIS_HEADS, 0}, 0, 0, 0},
                                      odd = {"p", {-9, 0, 0}, 0, 0, 0}, gap = {"p", {2, 0, 2}, 0, 0, 0},
                                      huge = {"p", {100000, 100000, 0}, 0, 0, 0},
                                      model = {"p", {CMHA_AXIS_MODEL, 0, 0}, 0, 0, 0},
                                      taken = {"wo.weight", {2, 0, 0}, 0, 0, 0},
                                      adapter = {"wq.lora_a", {2, 0, 0}, 0, 0, 0},
                                      wild = {"p", {2, 0, 0}, NAN, 0, 0},
                                      nameless = {NULL, {2, 0, 0}, 0, 0, 0},
                                      wordy = {"a parameter", {2, 0, 0}, 0, 0, 0},
                                      starred = {"p*", {2, 0, 0}, 0, 0, 0},
                                      twins[2] = {{"p", {2, 0, 0}, 0, 0, 0}, {"p", {3, 0, 0}, 0, 0, 0}};
    static const struct {
        const cmha_score_parameter *parameter;
        size_t n;
        const char *says;
    } parameters[] = {{NULL, 1, "NULL"},      {&none, 1, "axes"},         {&late, 1, "axes"},
                      {&odd, 1, "axes"},      {&gap, 1, "axes"},          {&huge, 1, "range"},
                      {&model, 1, "axes"},    {&taken, 1, "layer's own"}, {&adapter, 1, "layer's own"},
                      {&wild, 1, "range"},    {&nameless, 1, "name"},     {&wordy, 1, "1 to 23 letters"},
                      {twins, 2, "one name"}, {&none, 6, "too many"},     {&starred, 1, "1 to 23 letters"}};
    cmha_score row = scores_rows[SCORES_GAIN];
    size_t i;
    row.name = "gain";
    row.map_back = NULL, refused(&row, "score=gain", CMHA_ERR_ARGUMENT, "score gain: a backward");
    row = scores_rows[SCORES_SIZE], row.backward = NULL, row.name = "s";
    refused(&row, "score=s", CMHA_ERR_ARGUMENT, "score s: a backward");
    row = scores_rows[SCORES_SIZE], row.planes = 1,
    refused(&row, "score=size", CMHA_ERR_ARGUMENT, "for a forward, 2");
    row.planes = 0, refused(&row, "score=size", CMHA_ERR_ARGUMENT, "planes must be");
    row = scores_rows[SCORES_GATED], row.map = scores_gain, row.map_back = scores_gain_back;
    refused(&row, "score=gated", CMHA_ERR_ARGUMENT, "attend replaces");
    row = scores_rows[SCORES_POLAR], row.features = 65;
    refused(&row, "score=polar", CMHA_ERR_ARGUMENT, "features must be 0 to 64");
    row.features = -1, refused(&row, "score=polar", CMHA_ERR_ARGUMENT, "features must be 0 to 64");
    row.features = 2, row.map = NULL, row.map_back = NULL;
    refused(&row, "score=polar", CMHA_ERR_ARGUMENT, "features must be 0 to 64");
    row = scores_rows[SCORES_TWICE], row.rotates = 0;
    refused(&row, "score=twice", CMHA_ERR_ARGUMENT, "imaginary heads");
    row = scores_rows[SCORES_PLANES], row.imaginary = 1;
    refused(&row, "score=turned-planes", CMHA_ERR_ARGUMENT, "imaginary heads");
    row = scores_rows[SCORES_DOT], row.name = NULL;
    refused(&row, "score=my-dot", CMHA_ERR_NOT_FOUND, "there is no score my-dot");
    refused(NULL, "score=my-dot", CMHA_ERR_NOT_FOUND, "there is no score my-dot");
    row.name = "my,dot", refused(&row, "score=my,dot", CMHA_ERR_ARGUMENT, "1 to 31 letters");
    row = scores_rows[SCORES_DOT];
    for (i = 0; i < sizeof parameters / sizeof *parameters; i++) {
        row.parameters = parameters[i].parameter, row.n_parameters = parameters[i].n;
        refused(&row, "score=my-dot", CMHA_ERR_ARGUMENT, parameters[i].says);
    }
    row = scores_rows[SCORES_DOT];
    refused(&row, "score=my-dot family=crat position=none", CMHA_ERR_ARGUMENT, "family");
    refused(&row, "score=my-dot family=mobius position=learned placement=post", CMHA_ERR_ARGUMENT, "family");
    refused(&row, "score=my-dot family=cope", CMHA_ERR_ARGUMENT, "planes = 2");
    refused(&row, "score=my-dot pcl_weight=0.1", CMHA_ERR_ARGUMENT, "phase contrastive");
    refused(&scores_rows[SCORES_GATED], "score=gated head_temperature=1", CMHA_ERR_ARGUMENT, "attend");
    refused(NULL, "family=crat crat_attention=linear head_temperature=1", CMHA_ERR_ARGUMENT, "softmax");
    refused(NULL, "family=crat crat_attention=lag causal=0 head_temperature=1", CMHA_ERR_ARGUMENT, "softmax");
    refused(NULL, "family=crat crat_attention=dot angle=atan", CMHA_ERR_ARGUMENT, "angle");
    refused(&scores_rows[SCORES_PLANES], "score=turned-planes family=cope", CMHA_ERR_ARGUMENT,
            "no rotation");
    row = scores_rows[SCORES_SIZE], row.map = scores_gain, row.map_back = scores_gain_back;
    refused(&row, "score=size family=cope cope_score=hybrid_norm", CMHA_ERR_ARGUMENT, "hybrid_norm");
    row = scores_rows[SCORES_DOT], row.parameters = scores_twist_parameters, row.n_parameters = 1;
    refused(&row, "score=my-dot d_model=12", CMHA_ERR_ARGUMENT, "even width");
    refused(&scores_rows[SCORES_SIZE], "score=size d_model=12", CMHA_ERR_ARGUMENT, "even width");
    refused(&scores_rows[SCORES_TURNED], "score=turned d_model=12", CMHA_ERR_SHAPE, "complex pairs");
    row = scores_rows[SCORES_SQUARES], row.features = 3;
    refused(&row, "score=squares d_model=12", CMHA_ERR_SHAPE, "complex pairs");
}

/* Calls of attention and layers that go wrong while they run. */
static void bad_calls(void) {
    static const char *const words[] = {"score=nothing", "score=half", "score=more",
                                        "score=another", "score=keys", "score=values"};
    cmha_score layers[6];
    cmha_context_config config;
    cmha_context c;
    cmha_model model;
    cmha_model_config m = check_model_config();
    cmha_cache cache;
    cmha_batch batch;
    cmha_tape tape;
    cmha_attention_args a;
    cmha_tensor *x;
    int32_t ids[4] = {1, 2, 3, 4};
    size_t i, shape[3] = {1, 4, 16};
    cmha_real logits[4 * 19];
    memset(layers, 0, sizeof layers), memset(&config, 0, sizeof config), memset(&batch, 0, sizeof batch);
    layers[0].name = "nothing", layers[0].attend = returns_nothing;
    layers[1].name = "half", layers[1].attend = returns_half;
    layers[2].name = "more", layers[2].attend = makes_more;
    layers[3].name = "another", layers[3].attend = makes_another;
    layers[4].name = "keys", layers[4].attend = narrows_keys;
    layers[5].name = "values", layers[5].attend = narrows_values;
    config.threads = 1, config.scores = layers, config.n_scores = 6;
    CHECK_OK(cmha_context_init(&c, &config));
    batch.ids = ids, batch.batch = 1, batch.length = 4;
    for (i = 0; i < 6; i++) {
        models_set(&c, &m, words[i]);
        CHECK_OK(cmha_model_init(&model, &c, &m));
        if (i < 2) {
            CHECK_IS(cmha_model_logits(&model, &batch, logits), CMHA_ERR_SHAPE);
            CHECK(strstr(cmha_error(&c), layers[i].name) && strstr(cmha_error(&c), "[1, 4, 16]"));
        } else {
            CHECK_OK(cmha_cache_init(&cache, &model, 1, 8, 0, NULL));
            CHECK_IS(cmha_cache_append(&cache, ids, 1, logits), CMHA_ERR_STATE);
            CHECK_THAT(strstr(cmha_error(&c), "is another than when measured") != NULL, "%s", cmha_error(&c));
            cmha_cache_close(&cache);
        }
        cmha_model_close(&model);
    }
    cmha_context_close(&c);
    scores_context(&c, 1, 1);
    models_set(&c, &m, "score=mean");
    CHECK_OK(cmha_model_init(&model, &c, &m));
    CHECK_IS(cmha_cache_init(&cache, &model, 1, 8, 0, NULL), CMHA_ERR_STATE);
    CHECK(strstr(cmha_error(&c), "score mean") != NULL);
    cmha_model_close(&model);
    memset(&a, 0, sizeof a);
    a.heads = a.kv_heads = 2, a.scale = 1;
    for (i = 0; i < 4; i++) {
        cmha_score row = scores_rows[i == 0   ? SCORES_GAIN
                                     : i == 1 ? SCORES_TURNED
                                     : i == 2 ? SCORES_GATED
                                              : SCORES_GAIN];
        if (i == 3) row.map_back = NULL;
        a.score = &row;
        CHECK_OK(cmha_tape_init(&tape, &c, 1));
        x = cmha_tensor_new(&tape, 3, shape, 1);
        CHECK(!cmha_attention(&tape, &a, x, x, x, NULL));
        CHECK_IS(cmha_tape_status(&tape), i == 0 ? CMHA_ERR_SHAPE : CMHA_ERR_ARGUMENT);
        CHECK_THAT(strstr(cmha_error(&c), i == 0 ? "gain needs 16 numbers" : row.name), "\"%s\"",
                   cmha_error(&c));
        cmha_tape_close(&tape);
    }
    cmha_score lacks = scores_rows[SCORES_GAIN];
    cmha_pcl_options options = {1, 0, 0};
    lacks.parameters = NULL, a.score = &lacks, a.kv_heads = 1;
    CHECK_OK(cmha_tape_init(&tape, &c, 1));
    x = cmha_tensor_new(&tape, 3, shape, 1);
    CHECK(!cmha_pcl(&tape, &a, x, NULL, NULL, x, &options));
    CHECK_IS(cmha_tape_status(&tape), CMHA_ERR_ARGUMENT);
    cmha_tape_close(&tape);
    cmha_context_close(&c);
}

/* Keys that a group of heads shares are kept once, also where each head has a temperature. */
static void shared_keys(void) {
    size_t size[2];
    int hot;
    for (hot = 0; hot < 2; hot++) {
        cmha_context c;
        cmha_model model;
        cmha_cache cache;
        cmha_model_config m = check_model_config();
        scores_context(&c, 1, 1);
        models_set(&c, &m, "score=my-rope n_kv_heads=1");
        m.head_temperature = hot;
        CHECK_OK(cmha_model_init(&model, &c, &m));
        CHECK_OK(cmha_cache_init(&cache, &model, 1, 40, 0, NULL));
        size[hot] = cache.size;
        cmha_cache_close(&cache), cmha_model_close(&model), cmha_context_close(&c);
    }
    CHECK(size[1] == size[0]);
}

/* ---- the arrays of numbers ---- */

static void numbers(void) {
    enum { MANY = 4001 };
    static cmha_real x[MANY], e[MANY], t[MANY], r[MANY];
    double worst[3] = {0, 0, 0}, unit = sizeof(cmha_real) == 8 ? 2.2e-16 : 1.2e-7;
    size_t i;
    for (i = 0; i < MANY; i++) x[i] = (cmha_real)(((double)i - 2000) / 100 * (i % 3 ? 1 : 1e-3));
    cmha_exp(MANY, x, e), cmha_tanh(MANY, x, t), cmha_modulus(MANY, x, t, r);
    for (i = 0; i < MANY; i++) {
        double want[3], got[3];
        int k;
        want[0] = exp((double)x[i]), want[1] = tanh((double)x[i]),
        want[2] = hypot((double)x[i], (double)t[i]);
        got[0] = (double)e[i], got[1] = (double)t[i], got[2] = (double)r[i];
        for (k = 0; k < 3; k++)
            if (want[k] != 0) worst[k] = fmax(worst[k], fabs(got[k] / want[k] - 1));
    }
    for (i = 0; i < 3; i++) CHECK_THAT(worst[i] < 4 * unit, "function %zu is off by %g", i, worst[i]);
    x[0] = NAN, x[1] = (cmha_real)INFINITY, x[2] = -x[1], x[3] = 0;
    cmha_exp(4, x, e), cmha_tanh(4, x, t), cmha_modulus(4, x, x, x);
    CHECK(e[0] != e[0] && e[1] > 1e30 && e[2] == 0 && e[3] == 1);
    CHECK(t[0] != t[0] && t[1] == 1 && t[2] == -1 && t[3] == 0);
    CHECK(x[1] > 1e30 && x[2] > 1e30 && x[3] == 0);
}

int main(int argc, char **argv) {
    (void)argc;
    cmha_blas_restart(argv);
    corpus();
    built_in();
    learning();
    threads();
    matrices();
    edges();
    bad_rows();
    bad_calls();
    shared_keys();
    numbers();
    return check_end();
}
