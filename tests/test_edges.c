/* Edges of models and files that a reader of the code doubted: what is kept after a merge, what an optimiser
   of a program's own is told, a file that promises much, names that no file can hold. */
#include "check.h"

#include "system.h"

#include <time.h>

static char folder[64] = "/tmp/cmha-edges-XXXXXX", path[128];
static cmha_context context;

static const char *at(const char *name) {
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* A file that is there, to be changed and put elsewhere; [*bytes]. */
static unsigned char *contents(const char *name, size_t *bytes) {
    static unsigned char all[1 << 20];
    FILE *file = fopen(at(name), "rb");
    *bytes = file ? fread(all, 1, sizeof all, file) : 0;
    if (file) fclose(file);
    return all;
}

static void put(const char *name, const void *data, size_t bytes) {
    FILE *file = fopen(at(name), "wb");
    CHECK(file && fwrite(data, 1, bytes, file) == bytes);
    if (file) fclose(file);
}

/* Tuning after adapters are merged, or a model is packed, moves no moments: there are none. */
static void tuned_after_a_merge(int packs) {
    cmha_model_config c = check_model_config();
    cmha_model model;
    cmha_trainer trainer;
    if (!packs) c.lora_rank = 2;
    CHECK_OK(cmha_model_init(&model, &context, &c));
    CHECK_OK(cmha_trainer_init(&trainer, &model, NULL));
    CHECK_OK(packs ? cmha_model_pack(&model, CMHA_STORAGE_INT8) : cmha_model_merge(&model));
    cmha_trainer_close(&trainer);
    cmha_status status = cmha_parameters_tune(&model.parameters, "*bias", CMHA_TUNE_FROZEN, 1, NULL);
    CHECK_OK(status);
    cmha_model_close(&model);
}

static double told_lr, told_decay;
static void no_update(const cmha_optimiser *row, const cmha_update *u) { (void)row, (void)u; }
static void hears(const cmha_optimiser *row, const cmha_adamw_args *args, const cmha_matrix *direction,
                  cmha_real *scratch) {
    (void)row, (void)direction, (void)scratch;
    told_lr = args->lr, told_decay = args->weight_decay;
}
static size_t no_scratch(size_t R, size_t C, int is_complex) { return (void)R, (void)C, (void)is_complex, 0; }
static size_t much_scratch(size_t R, size_t C, int is_complex) {
    return (void)R, (void)C, (void)is_complex, SIZE_MAX;
}
static int matrices(const cmha_optimiser *row, const cmha_parameter *p) {
    (void)row;
    return p->tensor.rank > 1;
}

/* `direct` is told its parameter's rate and decay, not those of the last one. */
static void told_to_direct(void) {
    static const cmha_optimiser row = {"hears", 0, matrices, no_update, NULL, hears, no_scratch};
    static const cmha_optimiser huge = {"huge", 0, matrices, no_update, NULL, hears, much_scratch};
    static const cmha_parameter_row rows[] = {{"w", {3, 4, 0, 0}, 0, 1, 1, 0},
                                              {"b", {4, 0, 0, 0}, 0, 1, 0, 0}};
    const cmha_optimiser own[] = {row, huge};
    cmha_context_config config;
    cmha_context ctx;
    cmha_parameters p;
    cmha_adamw_args args;
    memset(&config, 0, sizeof config), memset(&args, 0, sizeof args);
    config.optimisers = own, config.n_optimisers = 2;
    args.lr = 0.01, args.weight_decay = 0.1, args.beta1 = 0.9, args.beta2 = 0.99, args.eps = 1e-8;
    args.grad_scale = 1, args.t = 1;
    CHECK_OK(cmha_context_init(&ctx, &config));
    CHECK_OK(cmha_parameters_init(&p, &ctx, rows, 2));
    CHECK_OK(cmha_parameters_tune(&p, "b", CMHA_TUNE_RATE, 10, NULL));
    CHECK_OK(cmha_parameters_optimiser(&p, "hears"));
    for (size_t i = 0; i < p.learning; i++) p.grad[i] = 1;
    CHECK_OK(cmha_parameters_step(&p, &args, CMHA_CLIP_WHOLE, 0, NULL));
    CHECK_NEAR(told_lr, 0.01, 0);
    CHECK_NEAR(told_decay, 0.1, 0);
    CHECK(cmha_parameters_optimiser(&p, "huge") != CMHA_OK);
    CHECK_OK(cmha_parameters_step(&p, &args, CMHA_CLIP_WHOLE, 0, NULL));
    cmha_parameters_close(&p);
    CHECK_OK(cmha_parameters_init(&p, &ctx, rows, 1)); /* where nothing has moments or scratch, too */
    CHECK_OK(cmha_parameters_optimiser(&p, "hears"));
    told_lr = 0;
    for (size_t i = 0; i < p.learning; i++) p.grad[i] = 1;
    CHECK_OK(cmha_parameters_step(&p, &args, CMHA_CLIP_WHOLE, 0, NULL));
    CHECK_NEAR(told_lr, 0.01, 0);
    cmha_parameters_close(&p), cmha_context_close(&ctx);
}

/* Frequencies stay those of the model if the file's tensors are refused. */
static void frequencies_of_a_refused_file(void) {
    cmha_model_config c = check_model_config();
    cmha_model one, two;
    c.attention = CMHA_ATTENTION_ROPE, c.frequency = CMHA_FREQUENCY_TABLE;
    CHECK_OK(cmha_model_init(&one, &context, &c));
    c.d_ff += 8;
    CHECK_OK(cmha_model_init(&two, &context, &c));
    size_t n = one.n_omega * one.P;
    for (size_t i = 0; i < n; i++) one.omega[i] = 1 + (double)i, two.omega[i] = 100 + (double)i;
    CHECK_OK(cmha_model_save(&one, at("one")));
    CHECK(cmha_model_read(&two, at("one"), 1, NULL) != CMHA_OK);
    for (size_t i = 0; i < n; i++) CHECK_NEAR(two.omega[i], 100 + (double)i, 0);
    cmha_model_close(&one), cmha_model_close(&two);
}

/* A small file whose configuration is of a huge model takes little memory, and little time. */
static void promises(const char *settings, size_t most) {
    check_heap heap;
    cmha_context_config config = check_heap_config(&heap);
    cmha_context ctx;
    cmha_model model;
    char header[512];
    unsigned char file[640] = {0};
    int n = snprintf(header, sizeof header, "{\"__metadata__\":{\"format\":\"cmha\",%s}}", settings);
    file[0] = (unsigned char)n, file[1] = (unsigned char)(n >> 8);
    memcpy(file + 8, header, (size_t)n);
    put("small", file, 8 + (size_t)n);
    CHECK_OK(cmha_context_init(&ctx, &config));
    CHECK(cmha_model_open(&model, &ctx, at("small")) != CMHA_OK);
    CHECK_THAT(heap.peak < most, "%s: %zu bytes at once", cmha_error(&ctx), heap.peak);
    cmha_context_close(&ctx);
    CHECK(check_heap_empty(&heap));
}

/* Many entries in the header of a file, put in behind one of its words, are looked up in no time that grows
   with their square, or with their number times that of parameters. */
static void many_entries(const char *behind, const char *entry, int count, cmha_status status) {
    cmha_model_config c = check_model_config();
    cmha_model model;
    size_t bytes;
    c.d_model = 4, c.n_heads = 1, c.d_ff = 4, c.n_layers = 300;
    CHECK_OK(cmha_model_init(&model, &context, &c));
    CHECK_OK(cmha_model_save(&model, at("deep")));
    cmha_model_close(&model);
    unsigned char *old = contents("deep", &bytes);
    size_t length = (size_t)old[0] | (size_t)old[1] << 8 | (size_t)old[2] << 16, n = 0;
    size_t room = bytes + (size_t)count * 64;
    char *text = (char *)check_alloc(room, 1);
    char *place = strstr((char *)old + 8, behind);
    if (!CHECK(place && bytes < 1 << 20)) return;
    size_t before = (size_t)(place - (char *)old) + strlen(behind);
    memcpy(text, old, before), n = before;
    for (int i = 0; i < count; i++) n += (size_t)snprintf(text + n, 64, "\"n%d\":%s,", i, entry);
    memcpy(text + n, old + before, bytes - before);
    length += n - before;
    for (int i = 0; i < 4; i++) text[i] = (char)(length >> 8 * i);
    put("noted", text, n + bytes - before);
    clock_t start = clock();
    CHECK_IS(cmha_model_open(&model, &context, at("noted")), status);
    CHECK((double)(clock() - start) / CLOCKS_PER_SEC < 5);
    cmha_model_close(&model);
    free(text);
}

static void names_for_files(void) {
    static const char *const wrong[] = {("gr\xf6\xdf" "e"), "optim.m.w", "__metadata__", ""};
    for (size_t i = 0; i < 4; i++) {
        const cmha_parameter_row row = {wrong[i], {3, 0, 0, 0}, 0, 1, 1, 0};
        cmha_parameters p;
        CHECK_IS(cmha_parameters_init(&p, &context, &row, 1), CMHA_ERR_ARGUMENT);
    }
    const size_t shape[3] = {SIZE_MAX / 2, SIZE_MAX / 2, 0};
    const cmha_archive_item item = {"x", NULL, shape, 3, NULL};
    CHECK_IS(cmha_archive_write(&context, at("axes"), &item, 1, NULL, 0), CMHA_ERR_OVERFLOW);
}

/* A limit that clips nothing does not lift the bound on the norm, whose square must be a number. */
static void limit_of_everything(void) {
    static const cmha_parameter_row row = {"w", {4, 0, 0, 0}, 0, 1, 0, 0};
    cmha_parameters p;
    cmha_adamw_args args;
    memset(&args, 0, sizeof args);
    args.lr = 0.01, args.beta1 = 0.9, args.beta2 = 0.99, args.eps = 1e-8, args.grad_scale = 1, args.t = 1;
    CHECK_OK(cmha_parameters_init(&p, &context, &row, 1));
    for (size_t i = 0; i < p.learning; i++) p.grad[i] = (cmha_real)1e25;
    CHECK_IS(cmha_parameters_step(&p, &args, CMHA_CLIP_WHOLE, 1e30, NULL),
             sizeof(cmha_real) == 8 ? CMHA_OK : CMHA_ERR_NOT_FINITE);
    cmha_parameters_close(&p);
}

/* A layer of a program's own that looks at no other token, and so takes no place in a cache. */
static cmha_tensor *alone(const cmha_layer *layer, cmha_tensor *h) { return cmha_scale(layer->tape, h, 1); }

static void cache_without_slots(void) {
    cmha_score row;
    cmha_context_config config;
    cmha_context ctx;
    cmha_model model;
    cmha_cache cache;
    memset(&row, 0, sizeof row), memset(&config, 0, sizeof config);
    row.name = "alone", row.attend = alone;
    config.scores = &row, config.n_scores = 1;
    CHECK_OK(cmha_context_init(&ctx, &config));
    cmha_model_config c = check_model_config();
    snprintf(c.score, sizeof c.score, "alone");
    if (!CHECK_THAT(!cmha_model_init(&model, &ctx, &c), "%s", cmha_error(&ctx))) return;
    enum { B = 3 };
    cmha_real logits[B * 19], one[19];
    int32_t ids[B] = {3, 7, 11};
    for (int i = 0; i < B * 19; i++) logits[i] = -77;
    CHECK_OK(cmha_cache_init(&cache, &model, B, 8, 0, NULL));
    CHECK_THAT(!cmha_cache_append(&cache, ids, 1, logits), "%s", cmha_error(&ctx));
    cmha_cache_close(&cache);
    for (int b = 0; b < B; b++) {
        CHECK_OK(cmha_cache_init(&cache, &model, 1, 8, 0, NULL));
        CHECK_OK(cmha_cache_append(&cache, &ids[b], 1, one));
        for (int i = 0; i < 19; i++) CHECK_NEAR(logits[b * 19 + i], one[i], 1e-6);
        cmha_cache_close(&cache);
    }
    cmha_model_close(&model), cmha_context_close(&ctx);
}

enum { WORDS = 19 }; /* of check_model_config */

/* How far the logits of two caches lie apart when both read the same token. */
static double apart(cmha_cache *a, cmha_cache *b, int32_t token) {
    cmha_real one[WORDS], two[WORDS];
    CHECK_OK(cmha_cache_append(a, &token, 1, one));
    CHECK_OK(cmha_cache_append(b, &token, 1, two));
    return check_distance(one, two, WORDS);
}

/* Sinks of windows in some layers are seen by a cache that forgets nothing yet. */
static void sinks_of_some_layers(void) {
    cmha_model_config c = check_model_config();
    cmha_model model;
    cmha_cache whole, forgets;
    int32_t ids[12];
    for (int i = 0; i < 12; i++) ids[i] = i * i % WORDS;
    snprintf(c.layer_kinds, sizeof c.layer_kinds, "gl");
    c.window = 3, c.sinks = 2, c.attention = CMHA_ATTENTION_ROPE;
    CHECK_OK(cmha_model_init(&model, &context, &c));
    CHECK_OK(cmha_cache_init(&whole, &model, 1, 64, CMHA_SLIDE_NOT, NULL));
    CHECK_OK(cmha_cache_init(&forgets, &model, 1, 64, CMHA_SLIDE_FORGET, NULL));
    CHECK_OK(cmha_cache_append(&whole, ids, 12, NULL));
    CHECK_OK(cmha_cache_append(&forgets, ids, 12, NULL));
    CHECK_NEAR(apart(&whole, &forgets, 5), 0, check_tolerance(1e-12, 1e-4));
    cmha_cache_close(&whole), cmha_cache_close(&forgets), cmha_model_close(&model);
}

static size_t fails_from; /* the place of a token; 0: nothing fails */
static cmha_tensor *may_fail(const cmha_layer *layer, cmha_tensor *h) {
    if (fails_from && layer->index == 1 && layer->first + layer->length >= fails_from)
        return cmha_tape_fail(layer->tape, CMHA_ERR_IO, "it fails");
    return cmha_layer_attention(layer, &layer->args, h, h, h, NULL);
}

/* A layer of a program's own that fails leaves a cache as it was, also while that moves its tokens. */
static void layer_that_fails(int slide) {
    enum { MOST = 400 };
    cmha_score row;
    cmha_context_config config;
    cmha_context ctx;
    cmha_model model;
    cmha_cache tried, other;
    memset(&row, 0, sizeof row), memset(&config, 0, sizeof config);
    row.name = "may-fail", row.planes = 1, row.attend = may_fail;
    config.scores = &row, config.n_scores = 1;
    CHECK_OK(cmha_context_init(&ctx, &config));
    cmha_model_config c = check_model_config();
    c.n_heads = 1;
    snprintf(c.score, sizeof c.score, "may-fail");
    if (!CHECK_THAT(!cmha_model_init(&model, &ctx, &c), "%s", cmha_error(&ctx))) return;
    int32_t ids[MOST];
    for (int i = 0; i < MOST; i++) ids[i] = i * i % WORDS;
    const size_t capacity = slide == CMHA_SLIDE ? 16 : 100, held = slide == CMHA_SLIDE ? 10 : 200;
    const size_t more = slide == CMHA_SLIDE ? 7 : 150;
    CHECK_OK(cmha_cache_init(&tried, &model, 1, capacity, slide, NULL));
    CHECK_OK(cmha_cache_init(&other, &model, 1, capacity, slide, NULL));
    CHECK_OK(cmha_cache_append(&tried, ids, held, NULL));
    CHECK_OK(cmha_cache_append(&other, ids, held, NULL));
    fails_from = slide == CMHA_SLIDE ? 3 : 340;
    CHECK_IS(cmha_cache_append(&tried, ids + held, more, NULL), CMHA_ERR_IO);
    fails_from = 0;
    CHECK_NEAR(apart(&tried, &other, 5), 0, 0);
    cmha_cache_close(&tried), cmha_cache_close(&other), cmha_model_close(&model), cmha_context_close(&ctx);
}

/* Divides CoPE's magnitudes by their maximum, which of more than a row a cache does not know. */
static cmha_norm_max divided_by;
static cmha_tensor *divides(const cmha_layer *layer, cmha_tensor *h) {
    const cmha_cope_options cope = {CMHA_COPE_SCORE_HYBRID_NORM, (cmha_real)0.2, (cmha_real)1e-6, 0,
                                    divided_by, 0};
    cmha_attention_args a = layer->args;
    cmha_tensor *z = cmha_concat(layer->tape, h, h, 2);
    cmha_cope_set_args(&a, &cope);
    return cmha_layer_attention(layer, &a, z, z, h, NULL);
}

static void maxima_of_caches(void) {
    cmha_score row;
    cmha_context_config config;
    cmha_context ctx;
    cmha_model model;
    cmha_cache cache;
    static const int32_t ids[5] = {1, 2, 3, 4, 5};
    const cmha_batch batch = {.ids = ids, .batch = 1, .length = 5};
    cmha_real whole[5 * WORDS], last[WORDS];
    memset(&row, 0, sizeof row), memset(&config, 0, sizeof config);
    row.name = "divides", row.planes = 1, row.attend = divides;
    config.scores = &row, config.n_scores = 1;
    CHECK_OK(cmha_context_init(&ctx, &config));
    cmha_model_config c = check_model_config();
    snprintf(c.score, sizeof c.score, "divides");
    for (int max = CMHA_NORM_MAX_ROW; max <= CMHA_NORM_MAX_GLOBAL; max++) {
        divided_by = (cmha_norm_max)max;
        if (!CHECK_THAT(!cmha_model_init(&model, &ctx, &c), "%s", cmha_error(&ctx))) return;
        CHECK_OK(cmha_model_logits(&model, &batch, whole));
        if (max > CMHA_NORM_MAX_ROW) {
            CHECK_IS(cmha_cache_init(&cache, &model, 1, 8, CMHA_SLIDE_NOT, NULL), CMHA_ERR_SHAPE);
            CHECK_THAT(strstr(cmha_error(&ctx), "row maxima"), "%s", cmha_error(&ctx));
        } else {
            CHECK_OK(cmha_cache_init(&cache, &model, 1, 8, CMHA_SLIDE_NOT, NULL));
            CHECK_OK(cmha_cache_append(&cache, ids, 5, last));
            CHECK_NEAR(check_distance(whole + 4 * WORDS, last, WORDS), 0, check_tolerance(1e-12, 1e-5));
            cmha_cache_close(&cache);
        }
        cmha_model_close(&model);
    }
    cmha_context_close(&ctx);
}

/* A saved cache is of its model alone: not of one with other layers, nor with rows rounded otherwise. */
static void cache_of_another(int rounds) {
    cmha_model_config c = check_model_config();
    cmha_model model, other;
    cmha_cache cache;
    const int32_t id = 7;
    c.window = 3;
    snprintf(c.layer_kinds, sizeof c.layer_kinds, "gl");
    CHECK_OK(cmha_model_init(&model, &context, &c));
    if (!rounds) snprintf(c.layer_kinds, sizeof c.layer_kinds, "lg");
    CHECK_OK(cmha_model_init(&other, &context, &c));
    if (rounds) CHECK_OK(cmha_model_pack(&model, CMHA_STORAGE_INT8));
    if (rounds) CHECK_OK(cmha_model_pack(&other, CMHA_STORAGE_INT8));
    if (rounds) CHECK_OK(cmha_model_round(&other, 1));
    CHECK_OK(cmha_cache_init(&cache, &model, 1, 8, CMHA_SLIDE_NOT, NULL));
    CHECK_OK(cmha_cache_append(&cache, &id, 1, NULL));
    CHECK_OK(cmha_cache_save(&cache, at("cache")));
    CHECK_OK(cmha_cache_read(&cache, at("cache")));
    cmha_cache_close(&cache);
    CHECK_OK(cmha_cache_init(&cache, &model, 1, 8, CMHA_SLIDE, NULL)); /* which goes on otherwise */
    CHECK_IS(cmha_cache_read(&cache, at("cache")), CMHA_ERR_FORMAT);
    cmha_cache_close(&cache);
    CHECK_OK(cmha_cache_init(&cache, &other, 1, 8, CMHA_SLIDE_NOT, NULL));
    CHECK_IS(cmha_cache_read(&cache, at("cache")), CMHA_ERR_FORMAT);
    cmha_cache_close(&cache), cmha_model_close(&model), cmha_model_close(&other);
}

/* A step whose moments begin anew is a first one: of a new model (0), after a trainer (1), a merge (2). */
static void first_step(int how) {
    cmha_model_config c = check_model_config();
    cmha_model model;
    cmha_trainer trainer;
    cmha_adamw_args args;
    int32_t ids[4] = {1, 2, 3, 4};
    cmha_batch batch;
    double loss;
    if (how == 2) c.lora_rank = 2;
    memset(&args, 0, sizeof args), memset(&batch, 0, sizeof batch);
    args.lr = 0.001, args.beta1 = 0.9, args.beta2 = 0.999, args.eps = 1e-8, args.grad_scale = 1;
    batch.ids = batch.targets = ids, batch.batch = 1, batch.length = 4;
    CHECK_OK(cmha_model_init(&model, &context, &c));
    cmha_parameters *p = &model.parameters;
    for (int i = 0; how && i < 50; i++) {
        CHECK_OK(cmha_model_gradient(&model, &batch, 1, 0, &loss));
        CHECK_OK(cmha_parameters_step(p, &args, CMHA_CLIP_WHOLE, 0, NULL));
    }
    if (how == 1) CHECK_OK(cmha_trainer_init(&trainer, &model, NULL));
    if (how == 1) cmha_trainer_close(&trainer);
    if (how == 2) CHECK_OK(cmha_model_merge(&model));
    CHECK_OK(cmha_model_gradient(&model, &batch, 1, 0, &loss));
    for (size_t i = 0; i < p->learning; i++) p->grad[i] = 1;
    const double was = (double)p->data[0];
    CHECK_OK(cmha_parameters_step(p, &args, CMHA_CLIP_WHOLE, 0, NULL));
    CHECK_NEAR((was - (double)p->data[0]) / args.lr, 1, check_tolerance(1e-6, 1e-3));
    cmha_model_close(&model);
}

/* A model has no gradients before its first pass: there is nothing to clip. */
static void clip_of_no_gradients(void) {
    cmha_model_config c = check_model_config();
    cmha_model model;
    CHECK_OK(cmha_model_init(&model, &context, &c));
    cmha_componentwise_clip(CMHA_CLIP_NORM, 1, model.parameters.list, model.parameters.count);
    cmha_model_close(&model);
}

/* Frequencies that a model was given are read with its weights: its file strictly read is the model. */
static void frequencies_of_a_file(int strict) {
    cmha_model_config c = check_model_config();
    cmha_model model, other;
    double omega[64];
    for (int j = 0; j < 64; j++) omega[j] = 0.1 * (j + 1);
    c.frequency = CMHA_FREQUENCY_TABLE;
    CHECK_OK(cmha_model_init(&model, &context, &c));
    CHECK_OK(cmha_model_set_frequencies(&model, omega));
    CHECK_OK(cmha_model_save(&model, at("one")));
    CHECK_OK(cmha_model_init(&other, &context, &c));
    CHECK(other.omega[1] != omega[1]);
    CHECK_OK(cmha_model_read(&other, at("one"), strict, NULL));
    CHECK(other.omega[1] == omega[1]);
    cmha_model_close(&other);
    c.frequency = CMHA_FREQUENCY_ROPE;
    CHECK_OK(cmha_model_init(&other, &context, &c));
    CHECK_IS(cmha_model_read(&other, at("one"), strict, NULL), CMHA_ERR_FORMAT);
    for (int none = -1; none <= 3; none += 4) {
        CHECK_IS(cmha_model_read(&other, at("one"), none, NULL), CMHA_ERR_ARGUMENT);
        CHECK(strstr(cmha_error(&context), "strict"));
    }
    cmha_model_close(&other);
    cmha_model_close(&model);
}

/* A strict reader knows scales of packed parameters alone: beside floats they are strange. */
static void scales_of_floats(void) {
    cmha_model_config c = check_model_config();
    cmha_model model;
    cmha_archive_item items[128];
    size_t n = 0, taken;
    CHECK_OK(cmha_model_init(&model, &context, &c));
    for (; n < model.parameters.count && n < 127; n++) {
        const cmha_parameter *p = &model.parameters.list[n];
        const cmha_archive_item item = {p->name, p->tensor.data, p->tensor.shape, p->tensor.rank, NULL};
        items[n] = item;
    }
    CHECK(n == model.parameters.count);
    items[n] = items[n - 1];
    for (int strange = 0; strange < 2; strange++) {
        items[n].name = strange ? "scale.tok_emb.weight" : "optim.m.tok_emb.weight";
        CHECK_OK(cmha_archive_write(&context, at("one"), items, n + 1, NULL, 0));
        CHECK_IS(cmha_model_read(&model, at("one"), 1, NULL), strange ? CMHA_ERR_FORMAT : CMHA_OK);
        CHECK(!strange || strstr(cmha_error(&context), "unknown to the model: scale.tok_emb.weight"));
        CHECK_OK(cmha_model_read(&model, at("one"), 0, &taken));
        CHECK(taken == n);
    }
    CHECK_OK(cmha_model_pack(&model, CMHA_STORAGE_INT8));
    CHECK_OK(cmha_model_save(&model, at("one")));
    cmha_model_close(&model);
    CHECK_OK(cmha_model_open(&model, &context, at("one")));
    cmha_model_close(&model);
}

/* Objects that are not their model's any more say so, where a line can be had. */
static void outdated(void) {
    cmha_model_config c = check_model_config();
    cmha_model model;
    cmha_trainer older, newer;
    cmha_cache cache;
    int32_t id = 1;
    cmha_real logits[256];
    CHECK(c.vocabulary <= 256);
    CHECK_OK(cmha_model_init(&model, &context, &c));
    CHECK_OK(cmha_trainer_init(&older, &model, NULL));
    CHECK_OK(cmha_trainer_init(&newer, &model, NULL));
    CHECK_IS(cmha_trainer_apply(&older, NULL), CMHA_ERR_STATE);
    CHECK(strstr(cmha_error(&context), "trainer: "));
    cmha_trainer_close(&newer), cmha_trainer_close(&older);
    CHECK_OK(cmha_cache_init(&cache, &model, 1, 8, 0, NULL));
    CHECK_OK(cmha_model_pack(&model, CMHA_STORAGE_INT8));
    CHECK_IS(cmha_cache_append(&cache, &id, 1, logits), CMHA_ERR_STATE);
    CHECK(strstr(cmha_error(&context), "cache: "));
    cmha_cache_close(&cache);
    cmha_model_close(&model);
}

/* What a batch has and the model does not read is refused, as features are; so in a cache. */
static void unread_words(void) {
    cmha_model_config c = check_model_config();
    cmha_cache cache;
    cmha_model model;
    cmha_batch batch;
    int32_t ids[4] = {1, 0, 1, 0};
    cmha_real features[8] = {0};
    double loss;
    memset(&batch, 0, sizeof batch);
    batch.ids = batch.targets = batch.types = ids, batch.batch = 1, batch.length = 4;
    CHECK_OK(cmha_model_init(&model, &context, &c));
    CHECK_IS(cmha_model_loss(&model, &batch, &loss), CMHA_ERR_ARGUMENT);
    CHECK(strstr(cmha_error(&context), "types"));
    batch.types = NULL;
    CHECK_OK(cmha_model_loss(&model, &batch, &loss));
    cmha_model_close(&model);
    c.tokens = 0, c.features = 2;
    CHECK_OK(cmha_model_init(&model, &context, &c));
    batch.features = features;
    CHECK_IS(cmha_model_loss(&model, &batch, &loss), CMHA_ERR_ARGUMENT);
    CHECK(strstr(cmha_error(&context), "ids"));
    batch.ids = NULL, batch.types = ids;
    CHECK_IS(cmha_model_loss(&model, &batch, &loss), CMHA_ERR_ARGUMENT);
    CHECK(strstr(cmha_error(&context), "reads no types"));
    batch.types = NULL;
    CHECK_OK(cmha_model_loss(&model, &batch, &loss));
    CHECK_OK(cmha_cache_init(&cache, &model, 1, 4, 0, NULL));
    CHECK_IS(cmha_cache_append_features(&cache, ids, features, 4, NULL), CMHA_ERR_ARGUMENT);
    CHECK(strstr(cmha_error(&context), "ids is not NULL"));
    CHECK_OK(cmha_cache_append_features(&cache, NULL, features, 4, NULL));
    cmha_cache_close(&cache);
    cmha_model_close(&model);
}

/* The largest number of a generator: the sampler's target is then almost the sum of all shares. */
static cmha_rng last_of_all(void) {
    uint64_t z = UINT64_MAX;
    z ^= z >> 31 ^ z >> 62, z *= UINT64_C(0x319642b2d24d8ec3);
    z ^= z >> 27 ^ z >> 54, z *= UINT64_C(0x96de1b173f119089);
    z ^= z >> 30 ^ z >> 60;
    cmha_rng rng = {z, 0}, copy = rng;
    if (cmha_rng_next(&copy) != UINT64_MAX) rng.key -= UINT64_C(0x9e3779b97f4a7c15);
    return rng;
}

/* What rounding leaves over of the shares does not go to a token that a mask forbids. */
static void masked_token(void) {
    enum { V = 3000 };
    static cmha_real logits[V], scratch[2 * V];
    cmha_sampler_config c;
    cmha_rng numbers = cmha_rng_make(4, 4), copy = last_of_all();
    const cmha_rng last = copy;
    int drawn = 0;
    CHECK(cmha_rng_next(&copy) == UINT64_MAX);
    cmha_config_defaults(cmha_sampler_table(), &c);
    c.temperature = c.top_p = 1;
    for (int turn = 0; turn < 300; turn++) {
        size_t n = 2 + (size_t)cmha_rng_below(&numbers, V - 2);
        for (size_t i = 0; i + 1 < n; i++) logits[i] = (cmha_real)(20 * cmha_rng_normal(&numbers));
        logits[n - 1] = -(cmha_real)INFINITY;
        copy = last;
        drawn += cmha_sample(&c, logits, n, NULL, 0, &copy, scratch) == (int32_t)n - 1;
    }
    CHECK_THAT(drawn == 0, "a token of no share, drawn %d times", drawn);
    c.temperature = (double)NAN; /* no range was checked, and no share is a number */
    for (size_t n = 1; n < 4; n++) {
        const int32_t token = cmha_sample(&c, logits, n, NULL, 0, &copy, scratch);
        CHECK(token >= 0 && token < (int32_t)n);
    }
}

/* A name without "=" is no empty value; the name of a kind that is NULL is an argument that is missing. */
static void names_without_values(void) {
    cmha_model_config c = check_model_config();
    snprintf(c.lora_on, sizeof c.lora_on, "wq");
    CHECK_IS(cmha_config_set_all(&context, cmha_model_table(), &c, "n_layers=3 lora_on"), CMHA_ERR_ARGUMENT);
    CHECK(strstr(cmha_error(&context), "lora_on") && !strcmp(c.lora_on, "wq") && c.n_layers == 3);
    CHECK_IS(cmha_config_set_all(&context, cmha_model_table(), &c, "lora_an"), CMHA_ERR_NOT_FOUND);
    CHECK_OK(cmha_config_set_all(&context, cmha_model_table(), &c, "lora_on= n_layers=2"));
    CHECK(!*c.lora_on && c.n_layers == 2);
    CHECK_IS(cmha_kind(&context, NULL, &c), CMHA_ERR_ARGUMENT);
    CHECK(strstr(cmha_error(&context), "NULL"));
}

/* A label that is no class is named as the caller wrote it; weights that no label reads are refused. */
static void labels_of_no_class(void) {
    cmha_model_config c = check_model_config();
    cmha_model model;
    cmha_batch batch;
    int32_t ids[4] = {1, 0, 1, 0};
    cmha_real labels[2] = {1, (cmha_real)0.5}, weights[3] = {1, 2, 3};
    double loss;
    c.causal = 0;
    for (c.classes = 1; c.classes < 4; c.classes += 2) {
        memset(&batch, 0, sizeof batch);
        batch.ids = batch.targets = ids, batch.batch = batch.length = 2, batch.class_weights = weights;
        CHECK_OK(cmha_model_init(&model, &context, &c));
        CHECK_IS(cmha_model_loss(&model, &batch, &loss), CMHA_ERR_ARGUMENT);
        CHECK(strstr(cmha_error(&context), "class_weights"));
        batch.labels = labels;
        CHECK_IS(cmha_model_loss(&model, &batch, &loss), c.classes > 1 ? CMHA_ERR_TOKEN : CMHA_ERR_ARGUMENT);
        CHECK(strstr(cmha_error(&context), c.classes > 1 ? "label 0.5 of sequence 1" : "class_weights"));
        batch.class_weights = NULL;
        CHECK_IS(cmha_model_loss(&model, &batch, &loss), c.classes > 1 ? CMHA_ERR_TOKEN : CMHA_OK);
        labels[1] = (cmha_real)NAN;
        CHECK_IS(cmha_model_loss(&model, &batch, &loss),
                 c.classes > 1 ? CMHA_ERR_TOKEN : CMHA_ERR_NOT_FINITE);
        CHECK(strstr(cmha_error(&context), c.classes > 1 ? "label nan" : "labels: number 0 of position 1"));
        labels[1] = (cmha_real)0.5;
        cmha_model_close(&model);
    }
}

static cmha_status no_loss(void *user, double *loss) {
    *loss = 1;
    return --*(int *)user < 0 ? CMHA_ERR_IO : CMHA_OK;
}

/* A loss that fails without a word ends a gradient check with a line of the check's, not of what it found. */
static void loss_that_fails(void) {
    static const cmha_parameter_row row = {"w", {3, 0, 0, 0}, 0, 1, 0, 0};
    cmha_parameters p;
    double error;
    int left = 6;
    CHECK_OK(cmha_parameters_init(&p, &context, &row, 1));
    CHECK_IS(cmha_gradient_check(&p, no_loss, &left, &error), CMHA_ERR_IO);
    CHECK_THAT(strstr(cmha_error(&context), "the loss ended with"), "%s", cmha_error(&context));
    CHECK(cmha_kind(&context, "no such kind", NULL) != CMHA_OK);
    left = 0; /* the first loss: an older line is not this failure's */
    CHECK_IS(cmha_gradient_check(&p, no_loss, &left, &error), CMHA_ERR_IO);
    CHECK_THAT(strstr(cmha_error(&context), "the loss ended with"), "%s", cmha_error(&context));
    cmha_parameters_close(&p);
}

static int stops(void *user, const int32_t *tokens, size_t n) { return (void)user, (void)tokens, (void)n, 1; }

/* Calls that end early, or that miss the object they open, say so in the context's line. */
static void lines_of_their_own(void) {
    static const cmha_parameter_row row = {"w", {2, 0, 0, 0}, 0, 1, 0, 0};
    static const cmha_parameter_row far = {"w", {2, 0, 0, 0}, 1e300, 0, 0, 0};
    cmha_model_config c = check_model_config();
    cmha_model model;
    cmha_cache cache;
    cmha_parameters p;
    int32_t id = 1;
    CHECK_OK(cmha_model_init(&model, &context, &c));
    CHECK_OK(cmha_cache_init(&cache, &model, 1, 8, 0, NULL));
    CHECK_IS(cmha_generate(&cache, &id, 1, 3, NULL, 1, stops, NULL), CMHA_STOPPED);
    CHECK(strstr(cmha_error(&context), "on_token"));
    cmha_cache_close(&cache), cmha_model_close(&model);
    CHECK_IS(cmha_model_init(NULL, &context, &c), CMHA_ERR_ARGUMENT);
    CHECK(strstr(cmha_error(&context), "model is NULL"));
    CHECK_IS(cmha_parameters_init(NULL, &context, &row, 1), CMHA_ERR_ARGUMENT);
    CHECK(strstr(cmha_error(&context), "p is NULL"));
    CHECK_IS(cmha_tape_init(NULL, &context, 0), CMHA_ERR_ARGUMENT);
    CHECK(strstr(cmha_error(&context), "tape is NULL"));
    CHECK_IS(cmha_parameters_init(&p, &context, &far, 1), CMHA_ERR_ARGUMENT);
}

/* Complex numbers have two parts, 0 and 1. */
static void third_part(void) {
    cmha_tape tape;
    const size_t shape[2] = {3, 4};
    CHECK_OK(cmha_tape_init(&tape, &context, 1));
    cmha_tensor *z = cmha_tensor_new(&tape, 2, shape, 0);
    CHECK(cmha_complex_part(&tape, z, 0) && cmha_complex_part(&tape, z, 1));
    for (int part = -1; part < 3; part += 3) {
        CHECK(!cmha_complex_part(&tape, z, part));
        CHECK_IS(cmha_tape_status(&tape), CMHA_ERR_ARGUMENT);
        CHECK(strstr(cmha_error(&context), "part"));
        cmha_tape_reset(&tape);
        z = cmha_tensor_new(&tape, 2, shape, 0);
    }
    cmha_tape_close(&tape);
}

int main(void) {
    static const char *const files[] = {"one", "small", "deep", "noted", "axes", "cache"};
    if (!system_folder(folder)) return 3;
    CHECK_OK(cmha_context_init(&context, NULL));
    tuned_after_a_merge(0), tuned_after_a_merge(1), told_to_direct(), frequencies_of_a_refused_file();
    promises("\"cfg.family\":\"crat\",\"cfg.n_layers\":\"1024\",\"cfg.experts\":\"65536\","
             "\"cfg.d_model\":\"2\",\"cfg.n_heads\":\"1\",\"cfg.vocabulary\":\"2\"", 1 << 20);
    promises("\"cfg.frequency\":\"table\",\"cfg.attention\":\"pope\",\"cfg.n_heads\":\"1024\","
             "\"cfg.d_head\":\"65536\"", 1 << 20);
    many_entries("\"__metadata__\":{", "\"\"", 60000, CMHA_OK);
    many_entries("{", "{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}", 400000,
                 CMHA_ERR_FORMAT);
    names_for_files(), limit_of_everything(), cache_without_slots(), sinks_of_some_layers();
    for (int slide = CMHA_SLIDE; slide <= CMHA_SLIDE_FORGET; slide++) layer_that_fails(slide);
    maxima_of_caches();
    cache_of_another(0), cache_of_another(1);
    for (int how = 0; how < 3; how++) first_step(how);
    clip_of_no_gradients(), frequencies_of_a_file(1), frequencies_of_a_file(2), outdated(), unread_words();
    scales_of_floats();
    masked_token(), names_without_values(), labels_of_no_class(), lines_of_their_own(), third_part();
    loss_that_fails();
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) (void)remove(at(files[i]));
    CHECK(rmdir(folder) == 0);
    cmha_context_close(&context);
    return check_end();
}
