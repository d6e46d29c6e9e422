/* Bad arguments: one row each. A row opens everything anew (a decoder, an encoder, their trainer, caches, a
   tape), does one wrong thing, and then checks the status, the line that explains it, that everything still
   works and gives the same numbers as if nothing had happened, and that nothing leaks. A plain row states
   what holds of a function that refuses nothing. Every function of tests/symbols.txt has a row of either
   kind, or the test fails. */
#include "ops.h"
#include "system.h"

enum { VOCABULARY = 19, LENGTH = 4, CAPACITY = 8 };

#define TOP (SIZE_MAX / 4 + 1) /* 2^62 where sizes have 64 bits; rows about sizes need these */
/* What no allocator has, and 32 bits cannot say */
#define TOO_LARGE (sizeof(size_t) > 4 ? CMHA_ERR_MEMORY : CMHA_ERR_OVERFLOW)
#define TOO_LARGE_WORD (sizeof(size_t) > 4 ? "memory" : "overflow")

static char folder[64] = "/tmp/cmha-arguments-XXXXXX";
static char weights_path[128], state_path[128], text_path[128], missing_path[128];
static const int32_t stream_ids[40] = {1, 5, 2, 7, 3, 18, 0, 4, 9, 9, 11, 2, 3, 5, 8, 13, 1, 4, 9, 16,
                                       2, 3, 5, 7, 11, 13, 17, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
static const int32_t good_ids[8] = {1, 2, 3, 4, 5, 6, 7, 8}, high_ids[8] = {1, 2, VOCABULARY, 4, 5, 6, 7, 8},
                     low_ids[8] = {1, 2, 3, -1, 5, 6, 7, 8}, type_ids[8] = {0, 1, 0, 1, 2, 0, 0, 0};
static const cmha_real good_labels[2] = {0, 2}, high_labels[2] = {0, 3}, half_labels[2] = {0, (cmha_real)1.5};
static cmha_real nan_labels[2];

typedef struct fixture {
    check_heap heap;
    cmha_context ctx, other;      /* other: for rows about opening one */
    cmha_context *said;           /* whose line is checked */
    cmha_model decoder, encoder, spare;
    cmha_trainer trainer, spare_trainer;
    cmha_cache cache, sliding, linear, spare_cache;
    cmha_model linear_model;
    cmha_tape tape, spare_tape;
    cmha_tokens tokens, spare_tokens;
    cmha_archive archive, spare_archive;
    cmha_model_config mc;
    cmha_trainer_config tc;
    cmha_sampler_config sc;
    cmha_batch batch;
    cmha_parameters list;
    cmha_attention_args attention;
    cmha_linear_attention_args linear_args;
    cmha_lag_args lag_args;
    cmha_pcl_options pcl;
    cmha_real logits[2 * LENGTH * VOCABULARY], number;
    double loss;
    size_t bytes;
    cmha_retrieve_args query;
    cmha_tensor *x, *w, *b, *planes, *cw, *rows;
} fixture;

/* --------------------------------------------- the fixture ---------------------------------------------- */

static cmha_model_config decoder_config(void) {
    cmha_model_config m = check_model_config();
    m.n_layers = 1;
    return m;
}

static cmha_model_config encoder_config(void) {
    cmha_model_config m = check_model_config();
    m.n_layers = 1, m.causal = 0, m.classes = 3, m.token_types = 2, m.position = CMHA_POSITION_LEARNED,
    m.max_positions = 16;
    return m;
}

static cmha_trainer_config trainer_config(void) {
    cmha_trainer_config t;
    cmha_config_defaults(cmha_trainer_table(), &t);
    t.batch = 2, t.length = LENGTH, t.eval_tokens = 16, t.lr = 1e-2, t.warmup = 0;
    return t;
}

static cmha_batch good_batch(void) {
    cmha_batch batch;
    memset(&batch, 0, sizeof batch);
    batch.ids = batch.targets = good_ids, batch.batch = 2, batch.length = LENGTH;
    return batch;
}

static void open_tensors(fixture *f) {
    size_t shape[4] = {2, 3, 8, 0}, i;
    cmha_tensor **all[6];
    int n;
    all[0] = &f->x, all[1] = &f->w, all[2] = &f->b, all[3] = &f->planes, all[4] = &f->cw, all[5] = &f->rows;
    check_seed = 77;
    f->x = cmha_tensor_new(&f->tape, 3, shape, 1);
    f->planes = cmha_tensor_new(&f->tape, 3, shape, 1);
    f->rows = cmha_tensor_new(&f->tape, 2, shape + 1, 1);
    shape[0] = 5, shape[1] = 8;
    f->w = cmha_tensor_new(&f->tape, 2, shape, 1);
    f->b = cmha_tensor_new(&f->tape, 1, shape, 1);
    shape[0] = 2, shape[1] = 5, shape[2] = 4;
    f->cw = cmha_tensor_new(&f->tape, 3, shape, 1);
    for (n = 0; n < 6; n++)
        for (i = 0; *all[n] && i < (*all[n])->size; i++) (*all[n])->data[i] = (cmha_real)check_random();
}

static void open_fixture(fixture *f) {
    cmha_context_config config;
    cmha_model_config m = decoder_config(), e = encoder_config(), l = decoder_config();
    cmha_trainer_config t = trainer_config();
    memset(f, 0, sizeof *f);
    config = check_heap_config(&f->heap);
    config.threads = 1, f->heap.most = (size_t)1 << 26; /* so that a size of 2^31 is refused and not taken */
    l.family = CMHA_FAMILY_COPE, l.cope_score = CMHA_COPE_SCORE_LINEAR, l.attention = CMHA_ATTENTION_DOT;
    f->said = &f->ctx;
    CHECK_OK(cmha_context_init(&f->ctx, &config));
    CHECK_OK(cmha_model_init(&f->decoder, &f->ctx, &m));
    CHECK_OK(cmha_model_init(&f->encoder, &f->ctx, &e));
    CHECK_OK(cmha_model_init(&f->linear_model, &f->ctx, &l));
    CHECK_OK(cmha_trainer_init(&f->trainer, &f->decoder, &t));
    CHECK_OK(cmha_cache_init(&f->cache, &f->decoder, 1, CAPACITY, 0, NULL));
    CHECK_OK(cmha_cache_init(&f->sliding, &f->decoder, 2, CAPACITY, 1, NULL));
    CHECK_OK(cmha_cache_init(&f->linear, &f->linear_model, 1, CAPACITY, 0, NULL));
    CHECK_OK(cmha_tape_init(&f->tape, &f->ctx, 1));
    if (weights_path[0] && !f->archive.context && access(weights_path, R_OK) == 0)
        CHECK_OK(cmha_archive_open(&f->archive, &f->ctx, weights_path));
    f->tokens.data = stream_ids, f->tokens.count = 40, f->tokens.width = 4;
    f->batch = good_batch(), f->mc = m, f->tc = t;
    cmha_config_defaults(cmha_sampler_table(), &f->sc);
    f->attention.heads = f->attention.kv_heads = 2, f->attention.kind = CMHA_ATTENTION_DOT,
    f->attention.scale = 1;
    f->linear_args.heads = 2, f->linear_args.kind = CMHA_LINEAR_ANGULAR, f->linear_args.eps = (cmha_real)1e-6;
    f->lag_args.heads = 2, f->lag_args.temp = 1, f->lag_args.eps = (cmha_real)1e-6;
    f->query.queries = f->query.top = 1, f->query.tau = 1, f->query.threshold = -1;
    f->pcl.tau = (cmha_real)0.1, f->pcl.mask_rate = (cmha_real)0.5;
    open_tensors(f);
}

static void close_fixture(fixture *f) {
    int twice;
    for (twice = 0; twice < 2; twice++) {
        cmha_archive_close(&f->archive), cmha_archive_close(&f->spare_archive);
        cmha_tokens_close(&f->tokens), cmha_tokens_close(&f->spare_tokens);
        cmha_tape_close(&f->tape), cmha_tape_close(&f->spare_tape);
        cmha_cache_close(&f->cache), cmha_cache_close(&f->sliding), cmha_cache_close(&f->linear),
            cmha_cache_close(&f->spare_cache);
        cmha_trainer_close(&f->trainer), cmha_trainer_close(&f->spare_trainer);
        cmha_model_close(&f->decoder), cmha_model_close(&f->encoder), cmha_model_close(&f->linear_model);
        cmha_model_close(&f->spare);
        cmha_context_close(&f->other), cmha_context_close(&f->ctx);
    }
}

static uint64_t digest(uint64_t seed, const void *data, size_t bytes) {
    const unsigned char *at = (const unsigned char *)data;
    while (bytes-- > 0) seed = (seed ^ *at++) * 0x100000001b3u;
    return seed;
}

/* Uses everything as it is meant to be used; what comes out, as one number. 0 if anything fails. */
static uint64_t healthy(fixture *f, const char *row) {
    uint64_t d = 0xcbf29ce484222325u;
    cmha_batch batch = good_batch();
    cmha_tensor *y;
    cmha_real out[2 * LENGTH * VOCABULARY];
    double loss = 0;
    int ok = 1;
    cmha_tape_reset(&f->tape);
    open_tensors(f);
    y = cmha_sum(&f->tape, cmha_linear(&f->tape, f->x, f->w, NULL));
    ok = ok && y && !cmha_tape_backward(&f->tape, y, 1);
    if (ok) d = digest(digest(d, f->w->grad, f->w->size * sizeof(cmha_real)), y->data, sizeof(cmha_real));
    ok = ok && !cmha_model_loss(&f->decoder, &batch, &loss);
    d = digest(d, &loss, sizeof loss);
    ok = ok && !cmha_model_logits(&f->decoder, &batch, out);
    d = digest(d, out, sizeof out);
    batch.labels = good_labels;
    ok = ok && !cmha_model_loss(&f->encoder, &batch, &loss);
    d = digest(d, &loss, sizeof loss);
    cmha_cache_reset(&f->cache), cmha_cache_reset(&f->sliding), cmha_cache_reset(&f->linear);
    ok = ok && !cmha_cache_append(&f->cache, good_ids, 3, out) &&
         !cmha_cache_append(&f->cache, good_ids + 3, 1, out);
    d = digest(d, out, VOCABULARY * sizeof *out);
    ok = ok && !cmha_cache_append(&f->linear, good_ids, 3, out) &&
         !cmha_cache_append(&f->linear, good_ids + 3, 1, out);
    d = digest(d, out, VOCABULARY * sizeof *out);
    ok = ok && !cmha_generate(&f->sliding, good_ids, 4, 6, NULL, 3, NULL, NULL);
    d = digest(d, f->sliding.ids, f->sliding.length * sizeof(int32_t));
    ok = ok && !cmha_trainer_step(&f->trainer, &f->tokens, &loss);
    d = digest(digest(d, &loss, sizeof loss), f->decoder.parameters.data,
               f->decoder.parameters.size * sizeof(cmha_real));
    CHECK_THAT(ok, "%s: something no longer works: %s", row, cmha_error(&f->ctx));
    return ok ? d : 0;
}

/* -------------------------------------- what the rows are made of --------------------------------------- */

/* The decoder's configuration with one member set, unchecked, to anything. */
static const cmha_model_config *model_with(fixture *f, const char *field, double value) {
    cmha_table table = cmha_model_table();
    size_t i;
    for (i = 0; i < table.count; i++) {
        char *member = (char *)&f->mc + table.fields[i].offset;
        if (strcmp(table.fields[i].name, field) != 0) continue;
        if (table.fields[i].type == CMHA_FIELD_SIZE) {
            size_t whole = (size_t)value;
            memcpy(member, &whole, sizeof whole);
        } else if (table.fields[i].type == CMHA_FIELD_REAL) {
            memcpy(member, &value, sizeof value);
        } else {
            int choice = (int)value;
            memcpy(member, &choice, sizeof choice);
        }
        return &f->mc;
    }
    CHECK_THAT(0, "no field %s", field);
    return &f->mc;
}

/* The same from text. */
static const cmha_model_config *model_as(fixture *f, const char *options) {
    CHECK_THAT(!cmha_config_set_all(&f->ctx, cmha_model_table(), &f->mc, options), "%s", cmha_error(&f->ctx));
    return &f->mc;
}

static cmha_status opens(fixture *f, const cmha_model_config *m) {
    return cmha_model_init(&f->spare, &f->ctx, m);
}

/* A failed init leaves an object that says STATE to every use. */
static cmha_status unusable_model(fixture *f) {
    cmha_batch batch = good_batch();
    CHECK(opens(f, model_with(f, "n_heads", 3)) != CMHA_OK);
    CHECK_IS(cmha_model_logits(&f->spare, &batch, f->logits), CMHA_ERR_STATE);
    CHECK_IS(cmha_model_classify(&f->spare, &batch, f->logits), CMHA_ERR_STATE);
    CHECK_IS(cmha_model_gradient(&f->spare, &batch, 1, 0, &f->loss), CMHA_ERR_STATE);
    CHECK_IS(cmha_model_save(&f->spare, weights_path), CMHA_ERR_STATE);
    CHECK_IS(cmha_model_set_frequencies(&f->spare, &f->loss), CMHA_ERR_STATE);
    CHECK_IS(cmha_trainer_init(&f->spare_trainer, &f->spare, NULL), CMHA_ERR_STATE);
    CHECK_IS(cmha_cache_init(&f->spare_cache, &f->spare, 1, 4, 0, NULL), CMHA_ERR_STATE);
    CHECK(!cmha_parameters_find(&f->spare.parameters, "tok_emb.weight"));
    cmha_parameters_zero_grad(&f->spare.parameters), cmha_model_close(&f->spare);
    return cmha_model_loss(&f->spare, &batch, &f->loss);
}

static cmha_status unusable_trainer(fixture *f) {
    f->tc.batch = 0;
    CHECK_IS(cmha_trainer_init(&f->spare_trainer, &f->decoder, &f->tc), CMHA_ERR_ARGUMENT);
    CHECK_IS(cmha_trainer_step_batch(&f->spare_trainer, &f->batch, &f->loss), CMHA_ERR_STATE);
    CHECK_IS(cmha_trainer_evaluate(&f->spare_trainer, &f->tokens, &f->loss), CMHA_ERR_STATE);
    CHECK_IS(cmha_trainer_save(&f->spare_trainer, state_path), CMHA_ERR_STATE);
    CHECK_IS(cmha_trainer_read(&f->spare_trainer, state_path), CMHA_ERR_STATE);
    cmha_trainer_close(&f->spare_trainer);
    return cmha_trainer_step(&f->spare_trainer, &f->tokens, &f->loss);
}

static cmha_status unusable_cache(fixture *f) {
    CHECK_IS(cmha_cache_init(&f->spare_cache, &f->encoder, 1, 4, 0, NULL), CMHA_ERR_STATE);
    CHECK_IS(cmha_generate(&f->spare_cache, good_ids, 1, 1, NULL, 0, NULL, NULL), CMHA_ERR_STATE);
    cmha_cache_reset(&f->spare_cache), cmha_cache_close(&f->spare_cache);
    return cmha_cache_append(&f->spare_cache, good_ids, 1, NULL);
}

static cmha_status unusable_archive(fixture *f) {
    CHECK_IS(cmha_archive_open(&f->spare_archive, &f->ctx, missing_path), CMHA_ERR_NOT_FOUND);
    CHECK(!cmha_archive_find(&f->spare_archive, "x") && !cmha_archive_metadata(&f->spare_archive, "x"));
    CHECK_IS(cmha_archive_read_i64(&f->spare_archive, NULL, NULL), CMHA_ERR_STATE);
    cmha_archive_close(&f->spare_archive);
    return cmha_archive_read(&f->spare_archive, NULL, NULL);
}

/* A context whose init failed, or that is closed: nothing opens with it. */
static cmha_status unusable_context(fixture *f) {
    cmha_context_config config;
    memset(&config, 0, sizeof config);
    config.threads = -1;
    CHECK_IS(cmha_context_init(&f->other, &config), CMHA_ERR_ARGUMENT);
    CHECK_IS(cmha_tape_init(&f->spare_tape, &f->other, 1), CMHA_ERR_STATE);
    CHECK_IS(cmha_model_memory(&f->other, NULL, 1, 1, NULL, NULL), CMHA_ERR_STATE);
    CHECK_IS(cmha_model_open(&f->spare, &f->other, weights_path), CMHA_ERR_STATE);
    CHECK_IS(cmha_archive_open(&f->spare_archive, &f->other, weights_path), CMHA_ERR_STATE);
    CHECK_IS(cmha_archive_write(&f->other, missing_path, NULL, 0, NULL, 0), CMHA_ERR_STATE);
    CHECK_IS(cmha_tokens_open(&f->spare_tokens, &f->other, text_path, 1), CMHA_ERR_STATE);
    return cmha_model_init(&f->spare, &f->other, NULL);
}

/* All that was opened on the spare model, which is another one now or none. */
static void orphaned(fixture *f) {
    CHECK_IS(cmha_trainer_step(&f->spare_trainer, &f->tokens, &f->loss), CMHA_ERR_STATE);
    CHECK_IS(cmha_trainer_step_batch(&f->spare_trainer, &f->batch, &f->loss), CMHA_ERR_STATE);
    CHECK_IS(cmha_trainer_apply(&f->spare_trainer, NULL), CMHA_ERR_STATE);
    CHECK_IS(cmha_trainer_evaluate(&f->spare_trainer, &f->tokens, &f->loss), CMHA_ERR_STATE);
    CHECK_IS(cmha_trainer_save(&f->spare_trainer, missing_path), CMHA_ERR_STATE);
    CHECK_IS(cmha_trainer_read(&f->spare_trainer, state_path), CMHA_ERR_STATE);
    CHECK_IS(cmha_generate(&f->spare_cache, good_ids, 1, 1, NULL, 0, NULL, NULL), CMHA_ERR_STATE);
    CHECK_IS(cmha_cache_append(&f->spare_cache, good_ids, 1, f->logits), CMHA_ERR_STATE);
}

/* The model goes first, and comes again with the same size and with others. */
static cmha_status orphans(fixture *f) {
    static const char *const sizes[3] = {"d_ff=24", "d_ff=12 n_layers=3", "d_model=40 vocabulary=7"};
    cmha_trainer_config t = trainer_config();
    cmha_model_config m = decoder_config();
    size_t i;
    CHECK_OK(cmha_model_init(&f->spare, &f->ctx, &m));
    CHECK_OK(cmha_trainer_init(&f->spare_trainer, &f->spare, &t));
    CHECK_OK(cmha_cache_init(&f->spare_cache, &f->spare, 1, 4, 0, NULL));
    CHECK_OK(cmha_cache_append(&f->spare_cache, good_ids, 2, NULL));
    for (i = 0; i < 3; i++) {
        cmha_model_close(&f->spare);
        orphaned(f);
        CHECK_OK(cmha_config_set_all(&f->ctx, cmha_model_table(), &m, sizes[i]));
        CHECK_OK(cmha_model_init(&f->spare, &f->ctx, &m));
        orphaned(f);
    }
    CHECK_OK(cmha_model_pack(&f->spare, CMHA_STORAGE_INT8));
    orphaned(f);
    return cmha_cache_append(&f->spare_cache, good_ids, 1, NULL);
}

/* The context goes first: nothing works any more, and all that is closed after it gives back what it took. */
static cmha_status context_first(fixture *f) {
    cmha_knowledge base;
    cmha_tokens tokens;
    cmha_real numbers[4] = {1, 2, 3, 4};
    int64_t index;
    CHECK_OK(cmha_knowledge_init(&base, &f->ctx, 1, 2, numbers, NULL, NULL, NULL));
    CHECK_OK(cmha_tokens_open(&tokens, &f->ctx, text_path, 1));
    cmha_context_close(&f->ctx);
    CHECK_IS(cmha_knowledge_search(&base, numbers, 1, 1, -1, &index, numbers), CMHA_ERR_STATE);
    CHECK_IS(cmha_knowledge_save(&base, missing_path), CMHA_ERR_STATE);
    CHECK_IS(cmha_model_loss(&f->decoder, &f->batch, &f->loss), CMHA_ERR_STATE);
    CHECK_IS(cmha_model_save(&f->decoder, missing_path), CMHA_ERR_STATE);
    CHECK_IS(cmha_model_read(&f->decoder, weights_path, 1, NULL), CMHA_ERR_STATE);
    CHECK_IS(cmha_trainer_step(&f->trainer, &f->tokens, &f->loss), CMHA_ERR_STATE);
    CHECK_IS(cmha_trainer_apply(&f->trainer, NULL), CMHA_ERR_STATE);
    CHECK_IS(cmha_trainer_read(&f->trainer, state_path), CMHA_ERR_STATE);
    CHECK_IS(cmha_cache_append(&f->sliding, good_ids, 1, NULL), CMHA_ERR_STATE);
    CHECK_IS(cmha_cache_init(&f->spare_cache, &f->decoder, 1, 4, 0, NULL), CMHA_ERR_STATE);
    CHECK_IS(cmha_archive_open(&f->spare_archive, &f->ctx, weights_path), CMHA_ERR_STATE);
    CHECK_IS(cmha_archive_read(&f->archive, f->archive.tensors, f->logits), CMHA_ERR_STATE);
    CHECK(!cmha_add(&f->tape, f->x, f->x) && !cmha_model_forward(&f->decoder, &f->tape, &f->batch, NULL));
    cmha_knowledge_close(&base), cmha_tokens_close(&tokens);
    return cmha_tape_status(&f->tape);
}

static cmha_tensor *tensor(fixture *f, int rank, size_t a, size_t b, size_t c) {
    size_t shape[4];
    shape[0] = a, shape[1] = b, shape[2] = c, shape[3] = 1;
    return cmha_tensor_new(&f->tape, rank, shape, 1);
}

/* The status of an operation: NULL must go with a failure. */
static cmha_status op(fixture *f, const cmha_tensor *y) {
    cmha_status status = cmha_tape_status(&f->tape);
    CHECK_THAT(!y == (status != CMHA_OK), "a result with \"%s\"", cmha_status_string(status));
    return status;
}

/* An operation that works on unusual sizes, backward included; the gradients must be finite. */
static cmha_status fine(fixture *f, cmha_tensor *y) {
    cmha_status status = cmha_tape_backward(&f->tape, cmha_sum(&f->tape, y), 1);
    CHECK(status || !f->x->grad || check_finite(f->x->grad, f->x->size));
    return status;
}

/* Set one member of a struct of arguments, then do something. */
#define WITH(set, value) ((void)(set), value)
#define OP(...) op(f, __VA_ARGS__)
#define TAPE (&f->tape)
#define MODEL_OF(field, value) opens(f, model_with(f, field, value))
#define MODEL_AS(options) opens(f, model_as(f, options))

static cmha_status config_set(fixture *f, const char *name, const char *value) {
    return cmha_config_set(&f->ctx, cmha_model_table(), &f->mc, name, value);
}
static cmha_status config_all(fixture *f, const char *text) {
    return cmha_config_set_all(&f->ctx, cmha_model_table(), &f->mc, text);
}
static cmha_status trainer_with(fixture *f) {
    return cmha_trainer_init(&f->spare_trainer, &f->decoder, &f->tc);
}
static cmha_status generate_with(fixture *f) {
    return cmha_generate(&f->sliding, good_ids, 2, 2, &f->sc, 1, NULL, NULL);
}
static cmha_status step_with(fixture *f) { return cmha_trainer_step(&f->trainer, &f->tokens, &f->loss); }
static cmha_status loss_of(fixture *f, cmha_model *model) {
    return cmha_model_loss(model, &f->batch, &f->loss);
}
static cmha_status memory_of(fixture *f, size_t batch, size_t length) {
    return cmha_model_memory(&f->ctx, NULL, batch, length, NULL, &f->bytes);
}
static cmha_status cache_of(fixture *f, size_t batch, size_t capacity) {
    return cmha_cache_init(&f->spare_cache, &f->decoder, batch, capacity, 0, NULL);
}
static cmha_status write_item(fixture *f, const char *name, int rank, const size_t *shape,
                              const cmha_real *data) {
    cmha_archive_item item;
    memset(&item, 0, sizeof item);
    item.name = name, item.rank = rank, item.shape = shape, item.data = data;
    return cmha_archive_write(&f->ctx, missing_path, &item, 1, NULL, 0);
}

static const char *const no_utf8[2] = {"key", "\xff"};

static cmha_status write_twice(fixture *f) {
    cmha_archive_item items[2];
    memset(items, 0, sizeof items);
    items[0].name = items[1].name = "x", items[0].rank = items[1].rank = 1;
    items[0].shape = items[1].shape = f->x->shape, items[0].data = items[1].data = f->x->data;
    return cmha_archive_write(&f->ctx, missing_path, items, 2, NULL, 0);
}

/* A tape in the failed state: everything is NULL, the first failure stays. */
static cmha_status failed_tape(fixture *f) {
    ops_inputs s;
    cmha_tensor *y;
    int i;
    CHECK(!cmha_slice(TAPE, f->x, 9, 0, 1));
    CHECK_IS(cmha_tape_init(&f->spare_tape, &f->ctx, 1), CMHA_OK);
    for (i = 0; i < OPS_COUNT; i++) {
        cmha_tape_reset(&f->spare_tape);
        s.tape = &f->spare_tape, s.fill = OPS_PLAIN;
        CHECK_THAT(!ops_loss(&ops_all[i], TAPE, &s, &y) && !y, "%s on a failed tape gives a result",
                   ops_all[i].name);
        CHECK_THAT(cmha_tape_status(TAPE) == CMHA_ERR_SHAPE, "%s overwrites the first failure",
                   ops_all[i].name);
    }
    CHECK(!cmha_tensor_new(TAPE, 1, f->x->shape, 0) && !cmha_tape_alloc(TAPE, 8) &&
          !cmha_tape_push(TAPE, "p", f->x, &f->x, 1, NULL, NULL));
    return cmha_tape_backward(TAPE, f->x, 1);
}

/* No tape, a zeroed tape, a closed one: every operation gives NULL, and a tape
   that was never opened says STATE. */
static cmha_status no_tape(fixture *f, cmha_tape *tape) {
    ops_inputs s;
    cmha_tensor *y;
    int i;
    for (i = 0; i < OPS_COUNT; i++) {
        cmha_tape_reset(TAPE);
        s.tape = TAPE, s.fill = OPS_PLAIN;
        CHECK_THAT(!ops_loss(&ops_all[i], tape, &s, &y) && !y, "%s without an open tape gives a result",
                   ops_all[i].name);
    }
    open_tensors(f);
    f->batch.ids = good_ids;
    CHECK(!cmha_tensor_new(tape, 1, f->x->shape, 0) && !cmha_tape_alloc(tape, 8) &&
          !cmha_tape_grad(tape, f->x));
    CHECK(!cmha_tensor_wrap(tape, 1, f->x->shape, f->x->data, NULL));
    CHECK(!cmha_tape_push(tape, "p", f->x, &f->x, 1, NULL, NULL));
    CHECK(!cmha_model_forward(&f->decoder, tape, &f->batch, NULL) &&
          !cmha_model_states(&f->decoder, tape, &f->batch, NULL));
    CHECK(!cmha_model_scores(&f->encoder, tape, f->x, NULL));
    CHECK_IS(cmha_tape_backward(tape, f->x, 1), tape ? CMHA_ERR_STATE : CMHA_ERR_ARGUMENT);
    cmha_tape_reset(tape);
    return cmha_tape_status(tape);
}

static cmha_status closed_tape(fixture *f) {
    CHECK_OK(cmha_tape_init(&f->spare_tape, &f->ctx, 1));
    cmha_tape_close(&f->spare_tape);
    return no_tape(f, &f->spare_tape);
}

static cmha_status unopened_tape(fixture *f) {
    CHECK_IS(cmha_tape_init(&f->spare_tape, NULL, 1), CMHA_ERR_STATE);
    return no_tape(f, &f->spare_tape);
}

/* Parameters, data and gradients that are not finite: reported, and nothing is learnt from them. */
static cmha_status poisoned(fixture *f, double poison, cmha_status (*act)(fixture *f)) {
    cmha_parameter *one = cmha_parameters_find(&f->decoder.parameters, "blocks.0.attn.wv.weight");
    cmha_real *at = one->tensor.data + 3, good = *at;
    size_t step = f->trainer.step;
    cmha_status status;
    *at = (cmha_real)poison;
    status = act(f);
    *at = good, f->trainer.step = step;
    return status;
}

static cmha_status act_gradient(fixture *f) {
    return cmha_model_gradient(&f->decoder, &f->batch, 1, 0, &f->loss);
}
static cmha_status act_generate(fixture *f) {
    return cmha_generate(&f->cache, good_ids, 2, 2, NULL, 1, NULL, NULL);
}
static cmha_status some_sum(void *user, cmha_real *values, size_t n) {
    return user && values && n ? CMHA_OK : CMHA_ERR_IO;
}
static const cmha_ranks two_ranks = {0, 2, some_sum, NULL, NULL, NULL},
                        half_begun = {0, 2, some_sum, some_sum, NULL, NULL};
static cmha_status share_with(fixture *f, size_t rank, size_t ranks,
                              cmha_status (*sum)(void *, cmha_real *, size_t)) {
    cmha_ranks r = two_ranks;
    r.rank = rank, r.ranks = ranks, r.reduce = sum;
    return cmha_trainer_share(&f->trainer, &r);
}
static cmha_status act_fit(fixture *f) { return cmha_trainer_step_batch(&f->trainer, &f->batch, &f->loss); }

static cmha_status overrun(fixture *f, size_t n) {
    size_t length;
    cmha_status status;
    cmha_cache_reset(&f->cache);
    CHECK_OK(cmha_cache_append(&f->cache, good_ids, 5, NULL));
    length = f->cache.length;
    status = cmha_cache_append(&f->cache, good_ids, n, f->logits);
    CHECK_THAT(f->cache.length == length, "%zu tokens after a refused append, %zu before", f->cache.length,
               length);
    return status;
}

static cmha_status double_close(fixture *f) { return close_fixture(f), CMHA_OK; }

/* Never opened but by a row that fails to be refused. */
static cmha_knowledge spare_base;
static const uint64_t descending[3] = {0, 3, 2};

/* A knowledge base of n documents whose numbers are the fixture's logits, and a search in one of two. */
static cmha_status base_of(fixture *f, size_t n, size_t d_r, const char *texts, const uint64_t *begin) {
    cmha_knowledge base;
    cmha_status status = cmha_knowledge_init(&base, &f->ctx, n, d_r, f->logits, NULL, texts, begin);
    cmha_knowledge_close(&base);
    return status;
}

static cmha_status search_of(fixture *f, size_t n, const cmha_real *queries, size_t Q, size_t k,
                             double threshold) {
    cmha_knowledge base;
    cmha_status status;
    int64_t index[4];
    CHECK_OK(cmha_knowledge_init(&base, &f->ctx, n, 2, f->logits, NULL, NULL, NULL));
    status = cmha_knowledge_search(&base, queries, Q, k, (cmha_real)threshold, index, f->logits + 8);
    cmha_knowledge_close(&base);
    return status;
}

static cmha_status cache_with(fixture *f, int storage) {
    cmha_cache_options options = {CMHA_STORAGE_FLOAT, 0, NULL, 0, 0};
    options.storage = (cmha_storage)storage;
    return cmha_cache_init(&f->spare_cache, &f->decoder, 1, 4, 0, &options);
}

/* Four experts of one choice of sizes, on f->x. */
static cmha_tensor *experts_of(fixture *f, size_t width, size_t top) {
    size_t one[4] = {2, 4, 3, 0}, two[4] = {2, 4, 0, 3};
    one[3] = two[2] = width;
    const cmha_experts_tensors weights = {cmha_tensor_new(TAPE, 4, one, 1), NULL,
                                          cmha_tensor_new(TAPE, 4, two, 1), NULL};
    const cmha_experts_options options = {top, NULL, NULL};
    return cmha_experts(TAPE, f->x, tensor(f, 3, 2, 3, 4), &weights, &options);
}

/* A window into a base of one document. */
static const cmha_irw_weights no_weights;
static cmha_status window_of(fixture *f, const cmha_retrieve_args *args) {
    cmha_irw_weights weights;
    cmha_knowledge base;
    cmha_tensor *y;
    memset(&weights, 0, sizeof weights);
    CHECK_OK(cmha_knowledge_init(&base, &f->ctx, 1, 2, f->logits, NULL, NULL, NULL));
    weights.wm = tensor(f, 3, 2, 2, 4), weights.w_logits = tensor(f, 1, 1, 1, 1);
    weights.wv = tensor(f, 3, 2, 4, 2), weights.wg = tensor(f, 2, 4, 12, 1);
    y = cmha_irw(&f->tape, &base, args, 1, CMHA_FUSION_CONVEX, f->x, &weights);
    cmha_knowledge_close(&base);
    return op(f, y);
}

static cmha_tensor *tensor4(fixture *f, size_t a, size_t b, size_t c, size_t d) {
    size_t shape[4];
    shape[0] = a, shape[1] = b, shape[2] = c, shape[3] = d;
    return cmha_tensor_new(&f->tape, 4, shape, 1);
}

/* Every weight of a window is there, but wm of one number. */
static cmha_status window_with(fixture *f) {
    cmha_irw_weights weights;
    cmha_knowledge base;
    cmha_tensor *y;
    memset(&weights, 0, sizeof weights);
    CHECK_OK(cmha_knowledge_init(&base, &f->ctx, 1, 2, f->logits, NULL, NULL, NULL));
    weights.wm = weights.w_logits = weights.wv = weights.wg = tensor(f, 1, 1, 1, 1);
    y = cmha_irw(&f->tape, &base, &f->query, 1, CMHA_FUSION_CONVEX, f->x, &weights);
    cmha_knowledge_close(&base);
    return op(f, y);
}

static const cmha_parameter_row no_row;
static cmha_status no_loss(void *user, double *loss) { return user && loss ? CMHA_OK : CMHA_ERR_STATE; }

static cmha_status save_part(cmha_model *model) { return cmha_model_save_part(model, missing_path); }

/* What is refused of a model with adapters that is packed. */
static cmha_status packed_lora(fixture *f, cmha_status (*act)(cmha_model *model)) {
    CHECK_OK(MODEL_AS("lora_rank=2"));
    CHECK_OK(cmha_model_pack(&f->spare, CMHA_STORAGE_INT8));
    return act(&f->spare);
}

static cmha_status frequencies_with(fixture *f, double first) {
    double omega[64];
    size_t i;
    for (i = 0; i < 64; i++) omega[i] = i ? 1 : first;
    CHECK_OK(MODEL_AS("frequency=table"));
    return cmha_model_set_frequencies(&f->spare, omega);
}

static cmha_tensor *one_weight(fixture *f) { return tensor(f, 1, 1, 1, 1); }

static cmha_tape *closed(fixture *f) {
    CHECK_OK(cmha_tape_init(&f->spare_tape, &f->ctx, 1));
    cmha_tape_close(&f->spare_tape);
    return &f->spare_tape;
}

/* A long name, one with control characters and one with percent signs: the line
   stays one line of its buffer's size. */
static const char *ugly_name(void) {
    static char name[600];
    memset(name, 'y', sizeof name - 1);
    memcpy(name, "a\nb\rc\x1b[31m%s%n%d", 16);
    return name;
}

/* ROW(name, status, a word of its line or NULL, what is done) */
#define ROWS_OPENING(ROW)                                                                                    \
    ROW(context_null, CMHA_ERR_ARGUMENT, NULL, cmha_context_init(NULL, NULL))                                \
    ROW(context_unusable, CMHA_ERR_STATE, NULL, unusable_context(f))                                         \
    ROW(everything_closed_twice, CMHA_OK, NULL, double_close(f))                                             \
    ROW(model_null, CMHA_ERR_ARGUMENT, NULL, cmha_model_init(NULL, &f->ctx, NULL))                           \
    ROW(model_no_context, CMHA_ERR_STATE, NULL, cmha_model_init(&f->spare, NULL, NULL))                      \
    ROW(model_unusable, CMHA_ERR_STATE, NULL, unusable_model(f))                                             \
    ROW(model_heads_do_not_divide, CMHA_ERR_SHAPE, "model: d_model 16 is not divisible by n_heads 3",        \
        MODEL_OF("n_heads", 3))                                                                              \
    ROW(model_kv_heads_do_not_divide, CMHA_ERR_SHAPE, "n_kv_heads", MODEL_OF("n_kv_heads", 3))               \
    ROW(model_odd_head_cmha, CMHA_ERR_SHAPE, "complex pairs", MODEL_AS("d_model=12 n_heads=4"))              \
    ROW(model_odd_head_rope, CMHA_ERR_SHAPE, "complex pairs", MODEL_AS("attention=rope d_model=20"))         \
    ROW(model_odd_head_pcl, CMHA_ERR_SHAPE, "complex pairs",                                                 \
        MODEL_AS("attention=dot d_model=20 pcl_weight=1"))                                                   \
    ROW(model_odd_sinusoidal, CMHA_ERR_SHAPE, "even",                                                        \
        MODEL_AS("attention=dot position=sinusoidal d_model=15 n_heads=3"))                                  \
    ROW(model_odd_dot, CMHA_OK, NULL, MODEL_AS("attention=dot d_model=15 n_heads=3"))                        \
    ROW(model_of_one, CMHA_OK, NULL, MODEL_AS("attention=dot d_model=1 n_heads=1 d_ff=1 vocabulary=1"))      \
    ROW(model_layers_0, CMHA_ERR_ARGUMENT, "model: n_layers", MODEL_OF("n_layers", 0))                       \
    ROW(model_width_0, CMHA_ERR_ARGUMENT, "d_model", MODEL_OF("d_model", 0))                                 \
    ROW(model_heads_0, CMHA_ERR_ARGUMENT, "n_heads", MODEL_OF("n_heads", 0))                                 \
    ROW(model_vocabulary_0, CMHA_ERR_ARGUMENT, "vocabulary", MODEL_OF("vocabulary", 0))                      \
    ROW(model_vocabulary_2_31, CMHA_ERR_ARGUMENT, "vocabulary", MODEL_OF("vocabulary", 2147483648.0))        \
    ROW(model_vocabulary_large, TOO_LARGE, "model", MODEL_OF("vocabulary", 2147483647.0))                    \
    ROW(model_width_2_31, CMHA_ERR_ARGUMENT, "d_model", MODEL_OF("d_model", 2147483648.0))                   \
    ROW(model_width_2_62, CMHA_ERR_ARGUMENT, "d_model", MODEL_OF("d_model", 4611686018427387904.0))          \
    ROW(model_layers_2_62, CMHA_ERR_ARGUMENT, "n_layers", MODEL_OF("n_layers", 4611686018427387904.0))       \
    ROW(model_position_all, TOO_LARGE, "model",                                                              \
        MODEL_AS("attention=dot position=learned max_positions=16777216"))                                   \
    ROW(model_family_99, CMHA_ERR_ARGUMENT, "family", MODEL_OF("family", 99))                                \
    ROW(model_family_negative, CMHA_ERR_ARGUMENT, "family", MODEL_OF("family", -1))                          \
    ROW(model_dropout_nan, CMHA_ERR_ARGUMENT, "dropout", MODEL_OF("dropout", (double)NAN))                   \
    ROW(model_base_inf, CMHA_ERR_ARGUMENT, "base", MODEL_OF("base", HUGE_VAL))                               \
    ROW(model_cope_position, CMHA_ERR_ARGUMENT, "cope",                                                      \
        MODEL_AS("family=cope attention=dot position=learned"))                                              \
    ROW(model_mobius_bare, CMHA_ERR_ARGUMENT, "mobius",                                                      \
        MODEL_AS("family=mobius attention=dot placement=post"))                                              \
    ROW(model_mobius_heads, CMHA_ERR_ARGUMENT, "mobius_heads",                                               \
        MODEL_AS("family=mobius attention=dot placement=post position=learned mobius_heads=5"))              \
    ROW(model_crat_odd, CMHA_ERR_ARGUMENT, "n_heads must divide",                                            \
        MODEL_AS("family=crat d_model=12 attention=dot"))                                                    \
    ROW(model_crat_heads, CMHA_ERR_ARGUMENT, "real_heads",                                                   \
        MODEL_AS("family=crat real_heads=3 imag_heads=2"))                                                   \
    ROW(model_crat_heads_wrap, CMHA_ERR_ARGUMENT, "real_heads",                                              \
        MODEL_AS("family=crat real_heads=1024 imag_heads=1024"))                                             \
    ROW(model_crat_activation, CMHA_ERR_ARGUMENT, "gelu_erf", MODEL_AS("family=crat activation=relu"))       \
    ROW(model_crat_lag_causal, CMHA_ERR_ARGUMENT, "lag", MODEL_AS("family=crat crat_attention=lag"))         \
    ROW(memory_no_context, CMHA_ERR_STATE, NULL, cmha_model_memory(NULL, NULL, 1, 1, NULL, NULL))            \
    ROW(memory_bad_model, CMHA_ERR_SHAPE, "model",                                                           \
        cmha_model_memory(&f->ctx, model_with(f, "n_heads", 3), 1, 1, NULL, NULL))                           \
    ROW(memory_nothing_wanted, CMHA_OK, NULL, cmha_model_memory(&f->ctx, NULL, 1, 1, NULL, NULL))            \
    ROW(memory_batch_0, CMHA_OK, NULL, memory_of(f, 0, 1))                                                   \
    ROW(memory_length_0, CMHA_OK, NULL, memory_of(f, 1, 0))                                                  \
    ROW(memory_batch_2_31, CMHA_OK, NULL, memory_of(f, (size_t)1 << 31, 1))                                  \
    ROW(memory_batch_2_62, CMHA_ERR_OVERFLOW, "overflow", memory_of(f, TOP, 1))                              \
    ROW(memory_length_2_62, CMHA_ERR_OVERFLOW, "overflow", memory_of(f, 1, TOP))                             \
    ROW(memory_length_max, CMHA_ERR_OVERFLOW, "overflow", memory_of(f, 1, SIZE_MAX))                         \
    ROW(memory_both_2_31, CMHA_ERR_OVERFLOW, "overflow", memory_of(f, (size_t)1 << 31, (size_t)1 << 31))     \
    ROW(memory_both_2_62, CMHA_ERR_OVERFLOW, "overflow", memory_of(f, TOP, TOP))                             \
    ROW(trainer_null, CMHA_ERR_ARGUMENT, "trainer is NULL", cmha_trainer_init(NULL, &f->decoder, NULL))      \
    ROW(trainer_no_model, CMHA_ERR_STATE, NULL, cmha_trainer_init(&f->spare_trainer, NULL, NULL))            \
    ROW(trainer_unusable, CMHA_ERR_STATE, NULL, unusable_trainer(f))                                         \
    ROW(trainer_length_0, CMHA_ERR_ARGUMENT, "trainer: length", WITH(f->tc.length = 0, trainer_with(f)))     \
    ROW(trainer_length_2_31, CMHA_ERR_ARGUMENT, "length",                                                    \
        WITH(f->tc.length = (size_t)1 << 31, trainer_with(f)))                                               \
    ROW(trainer_batch_2_62, CMHA_ERR_ARGUMENT, "batch", WITH(f->tc.batch = TOP, trainer_with(f)))            \
    ROW(trainer_too_large, TOO_LARGE, TOO_LARGE_WORD, WITH(f->tc.batch = 1048576, trainer_with(f)))          \
    ROW(trainer_lr_nan, CMHA_ERR_ARGUMENT, "lr", WITH(f->tc.lr = (double)NAN, trainer_with(f)))              \
    ROW(trainer_clip_mode, CMHA_ERR_ARGUMENT, "clip_mode", WITH(f->tc.clip_mode = 77, trainer_with(f)))      \
    ROW(trainer_mask_token, CMHA_ERR_TOKEN, "mask_token",                                                    \
        WITH(f->tc.mask_token = VOCABULARY, cmha_trainer_init(&f->spare_trainer, &f->encoder, &f->tc)))      \
    ROW(cache_null, CMHA_ERR_ARGUMENT, "cache is NULL", cmha_cache_init(NULL, &f->decoder, 1, 4, 0, NULL))   \
    ROW(cache_no_model, CMHA_ERR_STATE, NULL, cmha_cache_init(&f->spare_cache, NULL, 1, 4, 0, NULL))         \
    ROW(cache_unusable, CMHA_ERR_STATE, NULL, unusable_cache(f))                                             \
    ROW(cache_memory_null, CMHA_ERR_ARGUMENT, "bytes is NULL",                                               \
        cmha_cache_memory(&f->decoder, 1, 4, 0, NULL, NULL))                                                 \
    ROW(cache_memory_no_model, CMHA_ERR_STATE, NULL, cmha_cache_memory(NULL, 1, 4, 0, NULL, &f->bytes))      \
    ROW(cache_memory_batch_0, CMHA_ERR_ARGUMENT, "cache",                                                    \
        cmha_cache_memory(&f->decoder, 0, 4, 0, NULL, &f->bytes))                                            \
    ROW(cache_memory_2_62, CMHA_ERR_OVERFLOW, "cache",                                                       \
        cmha_cache_memory(&f->decoder, 1, TOP, 0, NULL, &f->bytes))                                          \
    ROW(cache_memory_encoder, CMHA_ERR_STATE, "bidirectional",                                               \
        cmha_cache_memory(&f->encoder, 1, 4, 0, NULL, &f->bytes))                                            \
    ROW(cache_batch_0, CMHA_ERR_ARGUMENT, "cache", cache_of(f, 0, 4))                                        \
    ROW(cache_capacity_0, CMHA_ERR_ARGUMENT, "cache", cache_of(f, 1, 0))                                     \
    ROW(cache_capacity_2_31, CMHA_ERR_MEMORY, "cache", cache_of(f, 1, (size_t)1 << 31))                      \
    ROW(cache_capacity_2_62, CMHA_ERR_OVERFLOW, "cache", cache_of(f, 1, TOP))                                \
    ROW(cache_capacity_max, CMHA_ERR_OVERFLOW, "cache", cache_of(f, 1, SIZE_MAX))                            \
    ROW(cache_batch_2_62, CMHA_ERR_OVERFLOW, "cache", cache_of(f, TOP, 1))                                   \
    ROW(cache_both_2_31, CMHA_ERR_OVERFLOW, "cache", cache_of(f, (size_t)1 << 31, (size_t)1 << 31))          \
    ROW(orphans, CMHA_ERR_STATE, NULL, orphans(f))

#define ROWS_CONFIG(ROW)                                                                                     \
    ROW(config_null, CMHA_ERR_ARGUMENT, "config",                                                            \
        cmha_config_set(&f->ctx, cmha_model_table(), NULL, "n_layers", "1"))                                 \
    ROW(config_no_name, CMHA_ERR_ARGUMENT, "config", config_set(f, NULL, "1"))                               \
    ROW(config_no_value, CMHA_ERR_ARGUMENT, "config", config_set(f, "n_layers", NULL))                       \
    ROW(config_no_context, CMHA_ERR_NOT_FOUND, NULL,                                                         \
        cmha_config_set(NULL, cmha_model_table(), &f->mc, "nothing", "1"))                                   \
    ROW(config_unknown, CMHA_ERR_NOT_FOUND, "nothing", config_set(f, "nothing", "1"))                        \
    ROW(config_ugly_name, CMHA_ERR_NOT_FOUND, "model", config_set(f, ugly_name(), "1"))                      \
    ROW(config_ugly_value, CMHA_ERR_ARGUMENT, "n_layers", config_set(f, "n_layers", ugly_name()))            \
    ROW(config_ugly_choice, CMHA_ERR_ARGUMENT, "family", config_set(f, "family", ugly_name()))               \
    ROW(config_empty_value, CMHA_ERR_ARGUMENT, "n_layers", config_set(f, "n_layers", ""))                    \
    ROW(config_empty_choice, CMHA_ERR_ARGUMENT, "family", config_set(f, "family", ""))                       \
    ROW(config_size_negative, CMHA_ERR_ARGUMENT, "n_layers", config_set(f, "n_layers", "-1"))                \
    ROW(config_size_2_64, CMHA_ERR_ARGUMENT, "n_layers", config_set(f, "n_layers", "18446744073709551617"))  \
    ROW(config_size_fraction, CMHA_ERR_ARGUMENT, "n_layers", config_set(f, "n_layers", "1.5"))               \
    ROW(config_size_hex, CMHA_ERR_ARGUMENT, "n_layers", config_set(f, "n_layers", "0x2"))                    \
    ROW(config_real_nan, CMHA_ERR_ARGUMENT, "dropout", config_set(f, "dropout", "nan"))                      \
    ROW(config_real_inf, CMHA_ERR_ARGUMENT, "dropout", config_set(f, "dropout", "inf"))                      \
    ROW(config_real_huge, CMHA_ERR_ARGUMENT, "dropout", config_set(f, "dropout", "1e999"))                   \
    ROW(config_flag, CMHA_ERR_ARGUMENT, "causal", config_set(f, "causal", "2"))                              \
    ROW(config_choice_part, CMHA_ERR_ARGUMENT, "family", config_set(f, "family", "rea"))                     \
    ROW(config_choice_bar, CMHA_ERR_ARGUMENT, "family", config_set(f, "family", "real|cope"))                \
    ROW(config_all_null, CMHA_ERR_ARGUMENT, "config: text is NULL", config_all(f, NULL))                     \
    ROW(config_all_no_config, CMHA_ERR_ARGUMENT, "config: config is NULL",                                   \
        cmha_config_set_all(&f->ctx, cmha_model_table(), NULL, " "))                                         \
    ROW(config_all_blank, CMHA_OK, NULL, config_all(f, "   "))                                               \
    ROW(config_all_no_sign, CMHA_ERR_ARGUMENT, "n_layers", config_all(f, "n_layers"))                        \
    ROW(config_all_no_name, CMHA_ERR_NOT_FOUND, "option", config_all(f, "=3"))                               \
    ROW(config_all_ugly, CMHA_ERR_ARGUMENT, "option", config_all(f, ugly_name()))                            \
    ROW(config_all_long_value, CMHA_ERR_ARGUMENT, "longer",                                                  \
        config_all(f, "base=0000000000000000000000000000000000000000000000000"                               \
                      "00000000000000000000000000000000000000000000000000010"))                              \
    ROW(config_check_null, CMHA_ERR_ARGUMENT, "config: config is NULL",                                      \
        cmha_config_check(&f->ctx, cmha_model_table(), NULL))                                                \
    ROW(config_check_bad, CMHA_ERR_ARGUMENT, "pool",                                                         \
        cmha_config_check(&f->ctx, cmha_model_table(), model_with(f, "pool", 9)))                            \
    ROW(preset_null, CMHA_ERR_ARGUMENT, NULL, cmha_preset(NULL, NULL, &f->mc, NULL))                         \
    ROW(preset_unknown, CMHA_ERR_NOT_FOUND, NULL, cmha_preset(NULL, "nothing", &f->mc, NULL))                \
    ROW(preset_nothing_wanted, CMHA_OK, NULL, cmha_preset(NULL, "tiny", NULL, NULL))                         \
    ROW(kind_null, CMHA_ERR_ARGUMENT, "kind", cmha_kind(&f->ctx, NULL, &f->mc))                              \
    ROW(kind_unknown, CMHA_ERR_NOT_FOUND, "kind", cmha_kind(&f->ctx, ugly_name(), &f->mc))                   \
    ROW(kind_no_model, CMHA_ERR_ARGUMENT, "config", cmha_kind(&f->ctx, "cmha", NULL))

#define ROWS_USING(ROW)                                                                                      \
    ROW(loss_no_model, CMHA_ERR_STATE, NULL, cmha_model_loss(NULL, &f->batch, &f->loss))                     \
    ROW(loss_no_batch, CMHA_ERR_ARGUMENT, "loss: batch is NULL",                                             \
        cmha_model_loss(&f->decoder, NULL, &f->loss))                                                        \
    ROW(loss_no_result, CMHA_ERR_ARGUMENT, "loss: the result is NULL",                                       \
        cmha_model_loss(&f->decoder, &f->batch, NULL))                                                       \
    ROW(loss_no_ids, CMHA_ERR_ARGUMENT, "ids", WITH(f->batch.ids = NULL, loss_of(f, &f->decoder)))           \
    ROW(loss_no_targets, CMHA_ERR_ARGUMENT, "batch->targets, labels and values are NULL",                    \
        WITH(f->batch.targets = NULL, loss_of(f, &f->decoder)))                                              \
    ROW(loss_high_token, CMHA_ERR_TOKEN, "token 19", WITH(f->batch.ids = high_ids, loss_of(f, &f->decoder))) \
    ROW(loss_negative_token, CMHA_ERR_TOKEN, "token -1",                                                     \
        WITH(f->batch.ids = low_ids, loss_of(f, &f->decoder)))                                               \
    ROW(loss_high_target, CMHA_ERR_TOKEN, "target 19",                                                       \
        WITH(f->batch.targets = high_ids, loss_of(f, &f->decoder)))                                          \
    ROW(loss_batch_0, CMHA_OK, NULL, WITH(f->batch.batch = 0, loss_of(f, &f->decoder)))                      \
    ROW(loss_length_0, CMHA_OK, NULL, WITH(f->batch.length = 0, loss_of(f, &f->decoder)))                    \
    ROW(loss_batch_2_31, CMHA_ERR_MEMORY, "memory",                                                          \
        WITH(f->batch.batch = (size_t)1 << 31, loss_of(f, &f->decoder)))                                     \
    ROW(loss_batch_2_62, CMHA_ERR_OVERFLOW, "overflow", WITH(f->batch.batch = TOP, loss_of(f, &f->decoder))) \
    ROW(loss_length_2_31, CMHA_ERR_MEMORY, "memory",                                                         \
        WITH(f->batch.length = (size_t)1 << 31, loss_of(f, &f->decoder)))                                    \
    ROW(loss_length_2_62, CMHA_ERR_OVERFLOW, "overflow",                                                     \
        WITH(f->batch.length = TOP, loss_of(f, &f->decoder)))                                                \
    ROW(loss_length_2_61, CMHA_ERR_OVERFLOW, "overflow",                                                     \
        WITH(f->batch.length = TOP / 2, loss_of(f, &f->decoder)))                                            \
    ROW(loss_length_max, CMHA_ERR_OVERFLOW, "overflow",                                                      \
        WITH(f->batch.length = SIZE_MAX, loss_of(f, &f->decoder)))                                           \
    ROW(loss_encoder_length_2_62, CMHA_ERR_OVERFLOW, "overflow",                                             \
        WITH(f->batch.length = TOP, loss_of(f, &f->encoder)))                                                \
    ROW(loss_linear_length_2_62, CMHA_ERR_OVERFLOW, "overflow",                                              \
        WITH(f->batch.length = TOP, loss_of(f, &f->linear_model)))                                           \
    ROW(loss_too_long, CMHA_ERR_SHAPE, "17 positions", WITH((f->batch.length = 17, f->batch.batch = 1,       \
        f->batch.ids = f->batch.targets = stream_ids), loss_of(f, &f->encoder)))                             \
    ROW(loss_types, CMHA_ERR_TOKEN, "token 2", WITH(f->batch.types = type_ids, loss_of(f, &f->encoder)))     \
    ROW(loss_labels_without_head, CMHA_ERR_STATE, "class",                                                   \
        WITH(f->batch.labels = good_labels, loss_of(f, &f->decoder)))                                        \
    ROW(loss_high_label, CMHA_ERR_TOKEN, "3", WITH(f->batch.labels = high_labels, loss_of(f, &f->encoder)))  \
    ROW(loss_half_label, CMHA_ERR_TOKEN, "label 1.5",                                                        \
        WITH(f->batch.labels = half_labels, loss_of(f, &f->encoder)))                                        \
    ROW(loss_nan_label, CMHA_ERR_TOKEN, "label nan",                                                         \
        WITH(f->batch.labels = nan_labels, loss_of(f, &f->encoder)))                                         \
    ROW(logits_no_model, CMHA_ERR_STATE, NULL, cmha_model_logits(NULL, &f->batch, f->logits))                \
    ROW(logits_no_batch, CMHA_ERR_ARGUMENT, "logits: batch is NULL",                                         \
        cmha_model_logits(&f->decoder, NULL, f->logits))                                                     \
    ROW(logits_no_result, CMHA_ERR_ARGUMENT, "logits", cmha_model_logits(&f->decoder, &f->batch, NULL))      \
    ROW(classify_no_result, CMHA_ERR_ARGUMENT, "classify: the result is NULL",                               \
        cmha_model_classify(&f->encoder, &f->batch, NULL))                                                   \
    ROW(classify_no_batch, CMHA_ERR_ARGUMENT, "classify", cmha_model_classify(&f->encoder, NULL, f->logits)) \
    ROW(classify_no_head, CMHA_ERR_STATE, "class", cmha_model_classify(&f->decoder, &f->batch, f->logits))   \
    ROW(classify_nothing, CMHA_ERR_SHAPE, "token",                                                           \
        WITH(f->batch.length = 0, cmha_model_classify(&f->encoder, &f->batch, f->logits)))                   \
    ROW(predict_no_model, CMHA_ERR_STATE, NULL, cmha_model_predict(NULL, &f->batch, f->logits))              \
    ROW(predict_no_batch, CMHA_ERR_ARGUMENT, "predict", cmha_model_predict(&f->decoder, NULL, f->logits))    \
    ROW(predict_no_head, CMHA_ERR_STATE, "values", cmha_model_predict(&f->decoder, &f->batch, f->logits))    \
    ROW(values_no_head, CMHA_ERR_STATE, "values = 0", OP(cmha_model_values(&f->decoder, TAPE, f->x)))        \
    ROW(values_no_model, CMHA_ERR_ARGUMENT, "values: model is NULL", OP(cmha_model_values(NULL, TAPE, f->x)))\
    ROW(values_closed, CMHA_ERR_ARGUMENT, "values: model is closed",                                         \
        OP(cmha_model_values(&f->spare, TAPE, f->x)))                                                        \
    ROW(values_of_tokens, CMHA_ERR_STATE, "values = 0",                                                      \
        WITH(f->batch.values = good_labels, loss_of(f, &f->decoder)))                                        \
    ROW(features_of_tokens, CMHA_ERR_ARGUMENT, "0 features a position, batch->features is not NULL",         \
        WITH(f->batch.features = good_labels, loss_of(f, &f->decoder)))                                      \
    ROW(append_features_no_cache, CMHA_ERR_STATE, NULL,                                                      \
        cmha_cache_append_features(NULL, good_ids, good_labels, 1, NULL))                                    \
    ROW(append_features_of_tokens, CMHA_ERR_ARGUMENT, "0 features",                                          \
        cmha_cache_append_features(&f->cache, good_ids, good_labels, 1, NULL))                               \
    ROW(see_no_model, CMHA_ERR_STATE, NULL, cmha_model_attention(NULL, &f->batch, 0, 0, 0, f->logits))       \
    ROW(see_no_batch, CMHA_ERR_ARGUMENT, "model attention",                                                  \
        cmha_model_attention(&f->decoder, NULL, 0, 0, 0, f->logits))                                         \
    ROW(see_no_result, CMHA_ERR_ARGUMENT, "model attention",                                                 \
        cmha_model_attention(&f->decoder, &f->batch, 0, 0, 0, NULL))                                         \
    ROW(see_layer, CMHA_ERR_ARGUMENT, "layer 1000",                                                          \
        cmha_model_attention(&f->decoder, &f->batch, 1000, 0, 0, f->logits))                                 \
    ROW(see_head, CMHA_ERR_ARGUMENT, "head 1000",                                                            \
        cmha_model_attention(&f->decoder, &f->batch, 0, 1000, 0, f->logits))                                 \
    ROW(see_what, CMHA_ERR_ARGUMENT, "what = 12",                                                            \
        cmha_model_attention(&f->decoder, &f->batch, 0, 0, 12, f->logits))                                   \
    ROW(see_next, CMHA_ERR_STATE, "softmax 1",                                                               \
        cmha_model_attention(&f->decoder, &f->batch, 0, 0, CMHA_SEE_NEXT, f->logits))                        \
    ROW(see_tokens, CMHA_ERR_TOKEN, "token",                                                                 \
        WITH(f->batch.ids = low_ids, cmha_model_attention(&f->decoder, &f->batch, 0, 0, 0, f->logits)))      \
    ROW(gradient_no_batch, CMHA_ERR_ARGUMENT, "gradient",                                                    \
        cmha_model_gradient(&f->decoder, NULL, 1, 0, &f->loss))                                              \
    ROW(training_loss_no_model, CMHA_ERR_STATE, NULL,                                                        \
        cmha_model_training_loss(NULL, &f->batch, 0, &f->loss))                                              \
    ROW(training_loss_no_batch, CMHA_ERR_ARGUMENT, "training loss",                                          \
        cmha_model_training_loss(&f->decoder, NULL, 0, &f->loss))                                            \
    ROW(training_loss_no_result, CMHA_ERR_ARGUMENT, "training loss",                                         \
        cmha_model_training_loss(&f->decoder, &f->batch, 0, NULL))                                           \
    ROW(gradient_no_result, CMHA_ERR_ARGUMENT, "gradient",                                                   \
        cmha_model_gradient(&f->decoder, &f->batch, 1, 0, NULL))                                             \
    ROW(gradient_token, CMHA_ERR_TOKEN, "token", WITH(f->batch.ids = low_ids, act_gradient(f)))              \
    ROW(gradient_weights, CMHA_ERR_ARGUMENT, "class_weights are of labels", /* valgrind reads along */       \
        WITH(f->batch.class_weights = f->logits, act_gradient(f)))                                           \
    ROW(gradient_nan, CMHA_ERR_NOT_FINITE, "gradient", poisoned(f, (double)NAN, act_gradient))               \
    ROW(gradient_inf, CMHA_ERR_NOT_FINITE, "gradient", poisoned(f, HUGE_VAL, act_gradient))                  \
    ROW(forward_no_model, CMHA_ERR_ARGUMENT, "model: model is NULL",                                         \
        OP(cmha_model_forward(NULL, TAPE, &f->batch, NULL)))                                                 \
    ROW(forward_no_batch, CMHA_ERR_ARGUMENT, "model: batch is NULL",                                         \
        OP(cmha_model_forward(&f->decoder, TAPE, NULL, NULL)))                                               \
    ROW(forward_closed_model, CMHA_ERR_STATE, "model",                                                       \
        OP(cmha_model_forward(&f->spare, TAPE, &f->batch, NULL)))                                            \
    ROW(scores_no_head, CMHA_ERR_STATE, "class", OP(cmha_model_scores(&f->decoder, TAPE, f->x, NULL)))       \
    ROW(scores_rank, CMHA_ERR_SHAPE, "scores: no token in states of rank 2",                                 \
        OP(cmha_model_scores(&f->encoder, TAPE, f->w, NULL)))                                                \
    ROW(scores_width, CMHA_ERR_SHAPE, "width", OP(cmha_model_scores(&f->encoder, TAPE, f->x, NULL)))         \
    ROW(scores_no_model, CMHA_ERR_ARGUMENT, "scores: model is NULL",                                         \
        OP(cmha_model_scores(NULL, TAPE, f->x, NULL)))                                                       \
    ROW(frequencies_no_model, CMHA_ERR_STATE, NULL, cmha_model_set_frequencies(NULL, &f->loss))              \
    ROW(frequencies_null, CMHA_ERR_ARGUMENT, "omega", cmha_model_set_frequencies(&f->decoder, NULL))         \
    ROW(frequencies_kind, CMHA_ERR_STATE, "frequency", cmha_model_set_frequencies(&f->decoder, &f->loss))    \
    ROW(step_no_trainer, CMHA_ERR_STATE, NULL, cmha_trainer_step(NULL, &f->tokens, &f->loss))                \
    ROW(step_no_tokens, CMHA_ERR_ARGUMENT, "step: tokens has 0 of width 0, it takes",                        \
        cmha_trainer_step(&f->trainer, NULL, &f->loss))                                                      \
    ROW(step_no_data, CMHA_ERR_ARGUMENT, "step", cmha_trainer_step(&f->trainer, &f->spare_tokens, &f->loss)) \
    ROW(step_data_null, CMHA_ERR_ARGUMENT, "step", (f->spare_tokens = f->tokens,                             \
        f->spare_tokens.data = NULL, cmha_trainer_step(&f->trainer, &f->spare_tokens, &f->loss)))            \
    ROW(step_width_0, CMHA_ERR_ARGUMENT, "step", (f->spare_tokens = f->tokens, f->spare_tokens.width = 0,    \
        cmha_trainer_step(&f->trainer, &f->spare_tokens, &f->loss)))                                         \
    ROW(step_width_8, CMHA_ERR_ARGUMENT, "tokens has 40 of width 8",                                         \
        (f->spare_tokens = f->tokens, f->spare_tokens.width = 8,                                             \
        cmha_trainer_step(&f->trainer, &f->spare_tokens, &f->loss)))                                         \
    ROW(step_few_tokens, CMHA_ERR_ARGUMENT, "step: tokens has 4 of width 4, it takes 5",                     \
        (f->spare_tokens = cmha_tokens_part(&f->tokens, 0,                                                   \
        LENGTH), cmha_trainer_step(&f->trainer, &f->spare_tokens, &f->loss)))                                \
    ROW(step_high_token, CMHA_ERR_TOKEN, "token",                                                            \
        (f->spare_tokens = f->tokens, f->spare_tokens.data = high_ids, f->spare_tokens.count = 5,            \
        cmha_trainer_step(&f->trainer, &f->spare_tokens, &f->loss)))                                         \
    ROW(step_nan, CMHA_ERR_NOT_FINITE, "gradient", poisoned(f, (double)NAN, step_with))                      \
    ROW(step_inf, CMHA_ERR_NOT_FINITE, "gradient", poisoned(f, -HUGE_VAL, step_with))                        \
    ROW(fit_no_trainer, CMHA_ERR_STATE, NULL, cmha_trainer_step_batch(NULL, &f->batch, &f->loss))            \
    ROW(fit_no_batch, CMHA_ERR_ARGUMENT, "gradient", cmha_trainer_step_batch(&f->trainer, NULL, &f->loss))   \
    ROW(fit_token, CMHA_ERR_TOKEN, "token", WITH(f->batch.ids = high_ids, act_fit(f)))                       \
    ROW(fit_nan, CMHA_ERR_NOT_FINITE, "gradient", poisoned(f, (double)NAN, act_fit))                         \
    ROW(fit_length_2_62, CMHA_ERR_OVERFLOW, "overflow", WITH(f->batch.length = TOP, act_fit(f)))             \
    ROW(evaluate_no_trainer, CMHA_ERR_STATE, NULL, cmha_trainer_evaluate(NULL, &f->tokens, &f->loss))        \
    ROW(evaluate_no_tokens, CMHA_ERR_ARGUMENT, "evaluate",                                                   \
        cmha_trainer_evaluate(&f->trainer, NULL, &f->loss))                                                  \
    ROW(evaluate_no_result, CMHA_ERR_ARGUMENT, "evaluate",                                                   \
        cmha_trainer_evaluate(&f->trainer, &f->tokens, NULL))                                                \
    ROW(evaluate_one_token, CMHA_ERR_ARGUMENT, "evaluate: tokens has 1 of width 4, it takes 2",              \
        (f->spare_tokens = cmha_tokens_part(&f->tokens,                                                      \
        0, 1), cmha_trainer_evaluate(&f->trainer, &f->spare_tokens, &f->loss)))                              \
    ROW(evaluate_data_null, CMHA_ERR_ARGUMENT, "evaluate", (f->spare_tokens = f->tokens,                     \
        f->spare_tokens.data = NULL, cmha_trainer_evaluate(&f->trainer, &f->spare_tokens, &f->loss)))        \
    ROW(append_no_cache, CMHA_ERR_STATE, NULL, cmha_cache_append(NULL, good_ids, 1, NULL))                   \
    ROW(append_no_ids, CMHA_ERR_ARGUMENT, "append: ids is NULL", cmha_cache_append(&f->cache, NULL, 1, NULL))\
    ROW(append_nothing, CMHA_ERR_ARGUMENT, "append: n = 0", cmha_cache_append(&f->cache, good_ids, 0, NULL)) \
    ROW(append_high_token, CMHA_ERR_TOKEN, "token 19", cmha_cache_append(&f->cache, high_ids, 4, f->logits)) \
    ROW(append_negative_token, CMHA_ERR_TOKEN, "token -1",                                                   \
        cmha_cache_append(&f->sliding, low_ids, 4, f->logits))                                               \
    ROW(append_linear_token, CMHA_ERR_TOKEN, "token -1",                                                     \
        cmha_cache_append(&f->linear, low_ids, 4, f->logits))                                                \
    ROW(append_overrun, CMHA_ERR_FULL, "5 tokens held of 8, no room for 4", overrun(f, 4))                   \
    ROW(append_overrun_2_31, CMHA_ERR_FULL, "cache", overrun(f, (size_t)1 << 31))                            \
    ROW(append_overrun_2_62, CMHA_ERR_FULL, "cache", overrun(f, TOP))                                        \
    ROW(append_overrun_max, CMHA_ERR_FULL, "cache", overrun(f, SIZE_MAX))                                    \
    ROW(append_sliding_2_63, CMHA_ERR_OVERFLOW, "append",                                                    \
        cmha_cache_append(&f->sliding, good_ids, (2 * TOP), NULL))                                           \
    ROW(generate_no_cache, CMHA_ERR_STATE, NULL, cmha_generate(NULL, good_ids, 1, 1, NULL, 0, NULL, NULL))   \
    ROW(generate_no_prompt, CMHA_ERR_ARGUMENT, "append",                                                     \
        cmha_generate(&f->cache, NULL, 1, 1, NULL, 0, NULL, NULL))                                           \
    ROW(generate_empty_prompt, CMHA_ERR_ARGUMENT, "append",                                                  \
        cmha_generate(&f->cache, good_ids, 0, 1, NULL, 0, NULL, NULL))                                       \
    ROW(generate_token, CMHA_ERR_TOKEN, "token",                                                             \
        cmha_generate(&f->cache, high_ids, 4, 1, NULL, 0, NULL, NULL))                                       \
    ROW(generate_full, CMHA_ERR_FULL, "cache",                                                               \
        cmha_generate(&f->cache, good_ids, 4, 9, NULL, 0, NULL, NULL))                                       \
    ROW(generate_nan, CMHA_ERR_NOT_FINITE, "generate", poisoned(f, (double)NAN, act_generate))               \
    ROW(generate_temperature, CMHA_ERR_ARGUMENT, "temperature",                                              \
        WITH(f->sc.temperature = -1, generate_with(f)))                                                      \
    ROW(generate_temperature_nan, CMHA_ERR_ARGUMENT, "temperature",                                          \
        WITH(f->sc.temperature = (double)NAN, generate_with(f)))                                             \
    ROW(generate_window, CMHA_ERR_ARGUMENT, "penalty_window",                                                \
        WITH(f->sc.penalty_window = TOP, generate_with(f)))

#define ROWS_TAPE(ROW)                                                                                       \
    ROW(tape_null, CMHA_ERR_ARGUMENT, NULL, cmha_tape_init(NULL, &f->ctx, 1))                                \
    ROW(tape_no_context, CMHA_ERR_STATE, NULL, cmha_tape_init(&f->spare_tape, NULL, 1))                      \
    ROW(tape_failed, CMHA_ERR_SHAPE, "do not fit axis 9 of x [2, 3, 8]", failed_tape(f))                     \
    ROW(tape_missing, CMHA_ERR_ARGUMENT, NULL, no_tape(f, NULL))                                             \
    ROW(tape_closed, CMHA_ERR_STATE, NULL, closed_tape(f))                                                   \
    ROW(tape_unopened, CMHA_ERR_STATE, NULL, unopened_tape(f))                                               \
    ROW(tape_zeroed, CMHA_ERR_STATE, NULL, no_tape(f, &f->spare_tape))                                       \
    ROW(tape_alloc_max, CMHA_ERR_OVERFLOW, "more overflow",                                                  \
        (cmha_tape_alloc(TAPE, SIZE_MAX), cmha_tape_status(TAPE)))                                           \
    ROW(tape_alloc_2_62, CMHA_ERR_MEMORY, "memory", (cmha_tape_alloc(TAPE, TOP), cmha_tape_status(TAPE)))    \
    ROW(tensor_no_shape, CMHA_ERR_ARGUMENT, "tensor: shape is NULL", OP(cmha_tensor_new(TAPE, 2, NULL, 0)))  \
    ROW(tensor_rank_0, CMHA_ERR_SHAPE, "rank = 0 is not 1 to 4", OP(tensor(f, 0, 1, 1, 1)))                  \
    ROW(tensor_rank_5, CMHA_ERR_SHAPE, "rank", OP(tensor(f, 5, 1, 1, 1)))                                    \
    ROW(tensor_rank_negative, CMHA_ERR_SHAPE, "rank", OP(tensor(f, -3, 1, 1, 1)))                            \
    ROW(tensor_2_31, CMHA_ERR_MEMORY, "memory", OP(tensor(f, 1, (size_t)1 << 31, 1, 1)))                     \
    ROW(tensor_2_62, CMHA_ERR_OVERFLOW, "axis 0 of", OP(tensor(f, 1, TOP, 1, 1)))                            \
    ROW(tensor_2_31_squared, CMHA_ERR_OVERFLOW, "axis 1 of 2147483648",                                      \
        OP(tensor(f, 2, (size_t)1 << 31, (size_t)1 << 31, 1)))                                               \
    ROW(tensor_wrapping, CMHA_ERR_OVERFLOW, "tensor", OP(tensor(f, 2, TOP, 4, 1)))                           \
    ROW(tensor_0_by_2_62, CMHA_ERR_OVERFLOW, "axis 1 of", OP(tensor(f, 2, 0, TOP, 1)))                       \
    ROW(tensor_2_62_by_0, CMHA_ERR_OVERFLOW, "tensor", OP(tensor(f, 2, TOP, 0, 1)))                          \
    ROW(tensor_0, CMHA_OK, NULL, OP(tensor(f, 2, 0, 3, 1)))                                                  \
    ROW(wrap_no_data, CMHA_ERR_ARGUMENT, "tensor: data is NULL",                                             \
        OP(cmha_tensor_wrap(TAPE, 3, f->x->shape, NULL, NULL)))                                              \
    ROW(wrap_no_shape, CMHA_ERR_ARGUMENT, "tensor: shape is NULL",                                           \
        OP(cmha_tensor_wrap(TAPE, 3, NULL, f->x->data, NULL)))                                               \
    ROW(push_too_many, CMHA_ERR_ARGUMENT, "n_in = 10 of 0 to 9",                                             \
        OP(cmha_tape_push(TAPE, "p", f->x, &f->x, CMHA_MAX_INPUTS + 1, NULL, NULL)))                         \
    ROW(push_negative, CMHA_ERR_ARGUMENT, "n_in = -1 of 0 to",                                               \
        OP(cmha_tape_push(TAPE, "p", f->x, &f->x, -1, NULL, NULL)))                                          \
    ROW(push_no_inputs, CMHA_ERR_ARGUMENT, "n_in = 1 of 0 to 9, in is NULL",                                 \
        OP(cmha_tape_push(TAPE, "p", f->x, NULL, 1, NULL, NULL)))                                            \
    ROW(backward_null, CMHA_ERR_SHAPE, "backward: loss is NULL", cmha_tape_backward(TAPE, NULL, 1))          \
    ROW(backward_large, CMHA_ERR_SHAPE, "loss has 48 numbers, not 1", cmha_tape_backward(TAPE, f->x, 1))     \
    ROW(rotation_no_omega, CMHA_ERR_ARGUMENT, "rotation",                                                    \
        (cmha_rotation(TAPE, NULL, 1, 2, 3, 0), cmha_tape_status(TAPE)))                                     \
    ROW(rotation_2_62, CMHA_ERR_OVERFLOW, "1 tables of",                                                     \
        (cmha_rotation(TAPE, &f->loss, 1, 2, TOP, 0), cmha_tape_status(TAPE)))

#define ROWS_OPS(ROW)                                                                                        \
    ROW(matmul_transposed, CMHA_ERR_SHAPE, "a [2, 3, 8] does not fit transposed b [5, 7]",                   \
        OP(cmha_matmul(TAPE, f->x, tensor(f, 2, 5, 7, 1), 1)))                                               \
    ROW(reflect_values, CMHA_ERR_SHAPE, "v [5, 8] differs in shape from z [2, 3, 8]",                        \
        OP(cmha_reflect(TAPE, f->planes, f->w, f->x, 1, CMHA_FUSION_CONVEX, NULL)))                          \
    ROW(reflect_tau, CMHA_ERR_ARGUMENT, "reflect: tau = 0 must be above 0",                                  \
        OP(cmha_reflect(TAPE, f->planes, f->planes, f->x, 0, CMHA_FUSION_CONVEX, NULL)))                     \
    ROW(reflect_fusion, CMHA_ERR_ARGUMENT, "reflect",                                                        \
        OP(cmha_reflect(TAPE, f->planes, f->planes, f->x, 1, (cmha_fusion)7, NULL)))                         \
    ROW(add_shapes, CMHA_ERR_SHAPE, "add: an input [5, 8] differs in shape from [2, 3, 8]",\
        OP(cmha_add(TAPE, f->x, f->w)))                                                                      \
    ROW(mul_shapes, CMHA_ERR_SHAPE, "mul: b [3] does not repeat to a [2, 3, 8]",                             \
        OP(cmha_mul(TAPE, f->x, tensor(f, 1, 3, 1, 1))))                                                     \
    ROW(mul_rank, CMHA_ERR_SHAPE, "mul: b [2, 3, 8] does not repeat to a [5]",                               \
        OP(cmha_mul(TAPE, f->b, f->x)))                                                                      \
    ROW(softmax_rank, CMHA_ERR_SHAPE, "softmax", OP(cmha_softmax_rows(TAPE, f->b, 0, NULL)))                 \
    ROW(transpose_axis, CMHA_ERR_SHAPE, "axes 0 and 3, x has rank 3",                              \
        OP(cmha_transpose(TAPE, f->x, 0, 3)))                                                                \
    ROW(transpose_axis_negative, CMHA_ERR_SHAPE, "axes 0 and -1, x has rank 3",                              \
        OP(cmha_transpose(TAPE, f->x, -1, 0)))                                                               \
    ROW(transpose_axes_negative, CMHA_ERR_SHAPE, "axes -1 and -1",                                 \
        OP(cmha_transpose(TAPE, f->x, -1, -1)))                                                              \
    ROW(matmul_inner, CMHA_ERR_SHAPE, "matmul: a [2, 3, 8] does not fit b [5, 8]",                           \
        OP(cmha_matmul(TAPE, f->x, f->w, 0)))                                                                \
    ROW(matmul_rank, CMHA_ERR_SHAPE, "matmul: a [2, 3, 8] does not fit b [5]",                               \
        OP(cmha_matmul(TAPE, f->x, f->b, 0)))                                                                \
    ROW(matmul_batches, CMHA_ERR_SHAPE, "matmul: a [2, 3, 8] does not fit b [3, 8, 2]",                      \
        OP(cmha_matmul(TAPE, f->x, tensor(f, 3, 3, 8, 2), 0)))                                               \
    ROW(reshape_size, CMHA_ERR_SHAPE, "x of 48, shape of 40", OP(cmha_reshape(TAPE, f->x, 2, f->w->shape)))  \
    ROW(reshape_rank, CMHA_ERR_SHAPE, "rank = 9", OP(cmha_reshape(TAPE, f->x, 9, f->w->shape)))              \
    ROW(reshape_no_shape, CMHA_ERR_ARGUMENT, "shape is NULL", OP(cmha_reshape(TAPE, f->x, 2, NULL)))         \
    ROW(concat_axis, CMHA_ERR_SHAPE, "axis = 3, a has rank 3, b 3", OP(cmha_concat(TAPE, f->x, f->x, 3)))    \
    ROW(concat_axis_negative, CMHA_ERR_SHAPE, "axis = -1", OP(cmha_concat(TAPE, f->x, f->x, -1)))            \
    ROW(concat_ranks, CMHA_ERR_SHAPE, "a has rank 3, b 2", OP(cmha_concat(TAPE, f->x, f->w, 0)))             \
    ROW(concat_sizes, CMHA_ERR_SHAPE, "b [2, 4, 8] differs on another axis from a [2, 3, 8]",                \
        OP(cmha_concat(TAPE, f->x, tensor(f, 3, 2, 4, 8), 0)))                                               \
    ROW(slice_axis, CMHA_ERR_SHAPE, "do not fit axis -1 of x [2, 3, 8]",                                     \
        OP(cmha_slice(TAPE, f->x, -1, 0, 1)))                                                                \
    ROW(slice_reversed, CMHA_ERR_SHAPE, "begin 2, end 1 do not fit axis 1 of x [2, 3, 8]",                   \
        OP(cmha_slice(TAPE, f->x, 1, 2, 1)))                                                                 \
    ROW(slice_end, CMHA_ERR_SHAPE, "do not fit axis 1 of x [2, 3, 8]", OP(cmha_slice(TAPE, f->x, 1, 0, TOP)))\
    ROW(slice_empty, CMHA_OK, NULL, fine(f, cmha_slice(TAPE, f->x, 1, 2, 2)))                                \
    ROW(embedding_no_ids, CMHA_ERR_ARGUMENT, "embedding", OP(cmha_embedding(TAPE, f->w, NULL, 1, 2)))        \
    ROW(embedding_rank, CMHA_ERR_SHAPE, "weight must be [V, D], not of rank 3",                              \
        OP(cmha_embedding(TAPE, f->x, good_ids, 1, 2)))                                                      \
    ROW(embedding_token, CMHA_ERR_TOKEN, "token 5", OP(cmha_embedding(TAPE, f->w, good_ids, 1, 8)))          \
    ROW(embedding_2_62, CMHA_ERR_OVERFLOW, "tensor", OP(cmha_embedding(TAPE, f->w, good_ids, TOP, 1)))       \
    ROW(embedding_width_0, CMHA_OK, NULL,                                                                    \
        fine(f, cmha_embedding(TAPE, tensor(f, 2, 9, 0, 1), good_ids, 1, 8)))                                \
    ROW(embedding_none, CMHA_OK, NULL, fine(f, cmha_embedding(TAPE, f->w, good_ids, 0, 8)))                  \
    ROW(linear_width, CMHA_ERR_SHAPE, "linear: x has a width of 8, weight needs 7",                          \
        OP(cmha_linear(TAPE, f->x, tensor(f, 2, 5, 7, 1), NULL)))                                            \
    ROW(linear_bias, CMHA_ERR_SHAPE, "linear: bias has 6 numbers, weight needs 5",                           \
        OP(cmha_linear(TAPE, f->x, f->w, tensor(f, 1, 6, 1, 1))))                                            \
    ROW(linear_rank, CMHA_ERR_SHAPE, "weight must be [O, I], not of rank 3",                                 \
        OP(cmha_linear(TAPE, f->x, f->x, NULL)))                                                             \
    ROW(linear_out_0, CMHA_OK, NULL, fine(f, cmha_linear(TAPE, f->x, tensor(f, 2, 0, 8, 1), NULL)))          \
    ROW(linear_in_0, CMHA_OK, NULL,                                                                          \
        fine(f, cmha_linear(TAPE, tensor(f, 2, 3, 0, 1), tensor(f, 2, 5, 0, 1), f->b)))                      \
    ROW(sublayer_residual, CMHA_ERR_SHAPE, "residual has 6 rows of 8, the result 6 of 5",                    \
        OP(cmha_sublayer(TAPE, f->x, CMHA_ACTIVATION_NONE, f->w, f->b, f->x, 1, 0))) \
    ROW(sublayer_dropout_1, CMHA_ERR_ARGUMENT, "p = 1 is not in [0, 1)",                                     \
        OP(cmha_sublayer(TAPE, f->x, CMHA_ACTIVATION_NONE, f->w, f->b, NULL, 1, 1))) \
    ROW(sublayer_dropout_nan, CMHA_ERR_ARGUMENT, "dropout",                                                  \
        OP(cmha_sublayer(TAPE, f->x, CMHA_ACTIVATION_NONE, f->w, f->b, NULL, 1, (cmha_real)NAN))) \
    ROW(reflect_sizes, CMHA_ERR_SHAPE, "reflect: gate [2, 3, 8] has no number for each pair of z [2, 3, 8]", \
        OP(cmha_reflect(TAPE, f->planes, f->planes, f->x, 1, CMHA_FUSION_CONVEX, NULL)))                     \
    ROW(sublayer_act, CMHA_ERR_ARGUMENT, "act = 17 is no activation",                                        \
        OP(cmha_sublayer(TAPE, f->x, 17, f->w, f->b, NULL, 1, 0)))                                           \
    ROW(sublayer_act_below, CMHA_ERR_ARGUMENT, "act = -2 is no activation",                                  \
        OP(cmha_sublayer(TAPE, f->x, -2, f->w, f->b, NULL, 1, 0)))                                           \
    ROW(layernorm_weight, CMHA_ERR_SHAPE, "input 1 has 40 numbers, rows of 8 need 8",                        \
        OP(cmha_layernorm(TAPE, f->x, f->w, NULL, 0)))                                                       \
    ROW(layernorm_bias, CMHA_ERR_SHAPE, "input 2 has 40 numbers, rows of 5 need 5",                          \
        OP(cmha_layernorm(TAPE, tensor(f, 2, 4, 5, 1), f->b, f->w, 0)))                                      \
    ROW(layernorm_eps, CMHA_ERR_ARGUMENT, "eps = -1 must be at least 0",                                     \
        OP(cmha_layernorm(TAPE, tensor(f, 2, 4, 5, 1), f->b, f->b, -1)))                                     \
    ROW(layernorm_width_0, CMHA_OK, NULL,                                                                    \
        fine(f, cmha_layernorm(TAPE, tensor(f, 2, 4, 0, 1), tensor(f, 1, 0, 1, 1), NULL, 0)))                \
    ROW(rmsnorm_eps_nan, CMHA_ERR_ARGUMENT, "eps",                                                           \
        OP(cmha_rmsnorm(TAPE, tensor(f, 2, 4, 5, 1), f->b, (cmha_real)NAN)))                                 \
    ROW(rmsnorm_width_0, CMHA_OK, NULL,                                                                      \
        fine(f, cmha_rmsnorm(TAPE, tensor(f, 2, 4, 0, 1), tensor(f, 1, 0, 1, 1), 0)))                        \
    ROW(activate_odd, CMHA_ERR_SHAPE, "activate",                                                            \
        OP(cmha_activate(TAPE, tensor(f, 2, 2, 3, 1), CMHA_ACTIVATION_SWIGLU)))                              \
    ROW(activate_kind, CMHA_ERR_ARGUMENT, "there is no kind 9",                                              \
        OP(cmha_activate(TAPE, f->x, (cmha_activation)9)))                                                   \
    ROW(dropout_1, CMHA_ERR_ARGUMENT, "p = 1 is not in [0, 1)", OP(cmha_dropout(TAPE, f->x, 1)))             \
    ROW(dropout_negative, CMHA_ERR_ARGUMENT, "p = -0.1", OP(cmha_dropout(TAPE, f->x, (cmha_real)-0.1)))      \
    ROW(dropout_nan, CMHA_ERR_ARGUMENT, "dropout", OP(cmha_dropout(TAPE, f->x, (cmha_real)NAN)))             \
    ROW(quotient_odd, CMHA_ERR_SHAPE, "quotient", OP(cmha_quotient(TAPE, f->b, f->b, CMHA_QUOTIENT_REG, 1))) \
    ROW(quotient_shape, CMHA_ERR_SHAPE, "[5, 8]",                                           \
        OP(cmha_quotient(TAPE, f->x, f->w, CMHA_QUOTIENT_REG, 1)))                                           \
    ROW(quotient_eps, CMHA_ERR_ARGUMENT, "eps", OP(cmha_quotient(TAPE, f->x, f->x, CMHA_QUOTIENT_REG, -1)))  \
    ROW(quotient_kind, CMHA_ERR_ARGUMENT, "there is no kind 7",                                              \
        OP(cmha_quotient(TAPE, f->x, f->x, (cmha_quotient_kind)7, 0)))                                       \
    ROW(mobius_shape, CMHA_ERR_SHAPE, "input 1 has 40 numbers",                                              \
        OP(cmha_mobius(TAPE, f->x, f->w, CMHA_QUOTIENT_REG, 1)))                                             \
    ROW(mobius_eps, CMHA_ERR_ARGUMENT, "eps",                                                                \
        OP(cmha_mobius(TAPE, f->x, tensor(f, 3, 4, 2, 4), CMHA_QUOTIENT_REG, (cmha_real)NAN)))               \
    ROW(mobius_kind, CMHA_ERR_ARGUMENT, "there is no kind -1",                                               \
        OP(cmha_mobius(TAPE, f->x, tensor(f, 3, 4, 2, 4), (cmha_quotient_kind)-1, 1)))                       \
    ROW(elementwise_shape, CMHA_ERR_SHAPE, "input 1 has 40 numbers",                                         \
        OP(cmha_elementwise_complex(TAPE, f->x, f->w)))                                                      \
    ROW(join_shapes, CMHA_ERR_SHAPE, "a has rank 3, b 2", OP(cmha_complex_join(TAPE, f->x, f->w)))           \
    ROW(join_widths, CMHA_ERR_SHAPE, "complex join: re 8 wide, im 6",                                        \
        OP(cmha_complex_join(TAPE, f->x, tensor(f, 3, 2, 3, 6))))                                            \
    ROW(real_part_odd, CMHA_ERR_SHAPE, "odd", OP(cmha_complex_part(TAPE, f->b, 0)))                          \
    ROW(imag_part_odd, CMHA_ERR_SHAPE, "odd", OP(cmha_complex_part(TAPE, f->b, 1)))                          \
    ROW(complex_linear_odd, CMHA_ERR_SHAPE, "odd", OP(cmha_complex_linear(TAPE, f->b, f->cw, NULL)))         \
    ROW(complex_linear_weight, CMHA_ERR_SHAPE, "weight [5, 8] does not fit x [2, 3, 8]",                     \
        OP(cmha_complex_linear(TAPE, f->x, f->w, NULL)))                                                     \
    ROW(complex_linear_width, CMHA_ERR_SHAPE, "weight [2, 5, 4] does not fit x [6]",                         \
        OP(cmha_complex_linear(TAPE, tensor(f, 1, 6, 1, 1), f->cw, NULL)))                                   \
    ROW(complex_linear_bias, CMHA_ERR_SHAPE, "complex linear",                                               \
        OP(cmha_complex_linear(TAPE, f->x, f->cw, f->b)))                                                    \
    ROW(complex_linear_out_0, CMHA_OK, NULL,                                                                 \
        fine(f, cmha_complex_linear(TAPE, f->x, tensor(f, 3, 2, 0, 4), NULL)))                               \
    ROW(lowrank_rank, CMHA_ERR_SHAPE, "does not fit x",                                                      \
        OP(cmha_complex_lowrank(TAPE, f->x, f->cw, tensor(f, 3, 2, 4, 3), NULL)))                            \
    ROW(lowrank_0, CMHA_OK, NULL,                                                                            \
        fine(f, cmha_complex_lowrank(TAPE, f->x, tensor(f, 3, 2, 3, 0), tensor(f, 3, 2, 4, 0), NULL)))       \
    ROW(rotate_shape, CMHA_ERR_SHAPE, "theta [5, 8] has no angle for each pair of z [2, 3, 8]",              \
        OP(cmha_complex_rotate(TAPE, f->x, f->w)))                                                           \
    ROW(complex_norm_gamma, CMHA_ERR_SHAPE, "complex_norm: input 1 has 40 numbers",                          \
        OP(cmha_complex_norm(TAPE, f->x, CMHA_COMPLEX_NORM_CLN, f->w, NULL, 1)))                             \
    ROW(complex_norm_beta, CMHA_ERR_SHAPE, "complex_norm: input 2 has 40 numbers",                           \
        OP(cmha_complex_norm(TAPE, f->x, CMHA_COMPLEX_NORM_CLN, NULL, f->w, 1)))                             \
    ROW(complex_norm_eps, CMHA_ERR_ARGUMENT, "eps",                                                          \
        OP(cmha_complex_norm(TAPE, f->x, CMHA_COMPLEX_NORM_CLN, NULL, NULL, -1)))                            \
    ROW(complex_norm_kind, CMHA_ERR_ARGUMENT, "complex_norm: there is no kind 9",                            \
        OP(cmha_complex_norm(TAPE, f->x, (cmha_complex_norm_kind)9, NULL, NULL, 1)))                         \
    ROW(complex_norm_0, CMHA_OK, NULL,                                                                       \
        fine(f, cmha_complex_norm(TAPE, tensor(f, 2, 3, 0, 1), CMHA_COMPLEX_NORM_CLN, NULL, NULL, 0)))       \
    ROW(phasor_odd, CMHA_ERR_SHAPE, "phasor", OP(cmha_phasor(TAPE, f->b, 1)))                                \
    ROW(phasor_eps, CMHA_ERR_ARGUMENT, "eps", OP(cmha_phasor(TAPE, f->x, (cmha_real)NAN)))                   \
    ROW(multifreq_rank, CMHA_ERR_SHAPE, "delta [2, 3, 8] must be [K, d], as omega [2, 3, 8]",                \
        OP(cmha_multifreq(TAPE, f->x, f->x, 2, 0)))                                                          \
    ROW(multifreq_shapes, CMHA_ERR_SHAPE, "delta [3, 8] must be [K, d], as omega [5, 8]",                    \
        OP(cmha_multifreq(TAPE, f->w, f->rows, 2, 0)))                                                       \
    ROW(multifreq_2_62, CMHA_ERR_OVERFLOW, "tensor", OP(cmha_multifreq(TAPE, f->w, f->w, TOP, 0)))           \
    ROW(multifreq_no_terms, CMHA_OK, NULL,                                                                   \
        fine(f, cmha_multifreq(TAPE, tensor(f, 2, 0, 8, 1), tensor(f, 2, 0, 8, 1), 2, 0)))                   \
    ROW(add_rows_shape, CMHA_ERR_SHAPE, "rows [5, 8] must be [N, D] of x [2, 3, 8]",                         \
        OP(cmha_add_rows(TAPE, f->x, f->w)))                                                                 \
    ROW(phase_reg_odd, CMHA_ERR_SHAPE, "phase_reg", OP(cmha_phase_reg(TAPE, f->b, NULL, 1, 1)))              \
    ROW(phase_reg_eps, CMHA_ERR_ARGUMENT, "phase_reg: eps = -1",                                             \
        OP(cmha_phase_reg(TAPE, tensor(f, 3, 2, 3, 8), NULL, 1, -1)))                                        \
    ROW(phase_reg_eps_nan, CMHA_ERR_ARGUMENT, "phase_reg: eps",                                              \
        OP(cmha_phase_reg(TAPE, tensor(f, 3, 2, 3, 8), NULL, 1, (cmha_real)NAN)))                            \
    ROW(mag_reg_odd, CMHA_ERR_SHAPE, "mag_reg", OP(cmha_mag_reg(TAPE, f->b, NULL, 1)))                       \
    ROW(gather_row, CMHA_ERR_ARGUMENT, "gather: index[", OP(cmha_gather(TAPE, f->b, ops_rows, 3)))           \
    ROW(gather_no_index, CMHA_ERR_ARGUMENT, "gather", OP(cmha_gather(TAPE, f->x, NULL, 3)))                  \
    ROW(gather_2_62, CMHA_ERR_OVERFLOW, "tensor", OP(cmha_gather(TAPE, f->x, ops_rows, TOP)))                \
    ROW(gather_none, CMHA_OK, NULL, fine(f, cmha_gather(TAPE, f->x, NULL, 0)))                               \
    ROW(mean_rank, CMHA_ERR_SHAPE, "x must be [B, N, D], not of rank 2",                                     \
        OP(cmha_mean_tokens(TAPE, f->w, NULL)))                                                              \
    ROW(mean_of_0, CMHA_OK, NULL, fine(f, cmha_mean_tokens(TAPE, tensor(f, 3, 2, 0, 3), NULL)))              \
    ROW(entropy_no_targets, CMHA_ERR_ARGUMENT, "cross-entropy",                                              \
        OP(cmha_cross_entropy(TAPE, f->x, NULL, -1, NULL)))                                                  \
    ROW(entropy_target, CMHA_ERR_TOKEN, "target 8",                                                          \
        OP(cmha_cross_entropy(TAPE, tensor(f, 2, 8, 8, 1), good_ids, -1, NULL)))                             \
    ROW(entropy_0_classes, CMHA_ERR_TOKEN, "target",                                                         \
        OP(cmha_cross_entropy(TAPE, tensor(f, 2, 2, 0, 1), good_ids, -1, NULL)))                             \
    ROW(entropy_no_rows, CMHA_OK, NULL,                                                                      \
        fine(f, cmha_cross_entropy(TAPE, tensor(f, 2, 0, 4, 1), good_ids, -1, NULL)))                        \
    ROW(projection_no_targets, CMHA_ERR_ARGUMENT, "cross-entropy",                                           \
        OP(cmha_linear_cross_entropy(TAPE, f->x, f->x, NULL, NULL, -1, NULL)))                               \
    ROW(projection_rank, CMHA_ERR_SHAPE, "weight must be [O, I], not of rank 1",                             \
        OP(cmha_linear_cross_entropy(TAPE, f->x, f->b, NULL, good_ids, -1, NULL)))                           \
    ROW(projection_width, CMHA_ERR_SHAPE, "x has a width of 3, weight needs 5",                              \
        OP(cmha_linear_cross_entropy(TAPE,                                                                   \
        tensor(f, 2, 2, 3, 1), tensor(f, 2, 4, 5, 1), NULL, good_ids, -1, NULL)))                            \
    ROW(projection_bias, CMHA_ERR_SHAPE, "bias has 3 numbers, weight needs 4",                               \
        OP(cmha_linear_cross_entropy(TAPE,                                                                   \
        tensor(f, 2, 2, 3, 1), tensor(f, 2, 4, 3, 1), tensor(f, 1, 3, 1, 1), good_ids, -1, NULL)))           \
    ROW(projection_target, CMHA_ERR_TOKEN, "target", OP(cmha_linear_cross_entropy(TAPE,                      \
        tensor(f, 2, 8, 3, 1), tensor(f, 2, 1, 3, 1), NULL, good_ids, -1, NULL)))                            \
    ROW(projection_no_rows, CMHA_OK, NULL, fine(f, cmha_linear_cross_entropy(TAPE, tensor(f, 2, 0, 3, 1),    \
        tensor(f, 2, 4, 3, 1), NULL, good_ids, -1, NULL)))                                                   \
    ROW(squared_no_targets, CMHA_ERR_ARGUMENT, "squared", OP(cmha_squared_error(TAPE, f->x, NULL)))          \
    ROW(squared_nothing, CMHA_OK, NULL,                                                                      \
        fine(f, cmha_squared_error(TAPE, tensor(f, 1, 0, 1, 1), good_labels)))

#define ATTEND(...) WITH((__VA_ARGS__), OP(cmha_attention(TAPE, &f->attention, f->x, f->x, f->x, NULL)))
#define ROWS_ATTENTION(ROW)                                                                                  \
    ROW(attention_fine, CMHA_OK, NULL,                                                                       \
        fine(f, cmha_attention(TAPE, &f->attention, f->x, f->x, f->x, NULL)))                                \
    ROW(attention_no_args, CMHA_ERR_ARGUMENT, "attention",                                                   \
        OP(cmha_attention(TAPE, NULL, f->x, f->x, f->x, NULL)))                                              \
    ROW(attention_heads_0, CMHA_ERR_SHAPE, "0 heads cannot share 2 kv_heads", ATTEND(f->attention.heads = 0))\
    ROW(attention_kv_heads_0, CMHA_ERR_SHAPE, "2 heads cannot share 0 kv_heads",                             \
        ATTEND(f->attention.kv_heads = 0))                                                                   \
    ROW(attention_heads_3, CMHA_ERR_SHAPE, "q of rank 3, width 8 must be [B, N, D], D divisible by 3",       \
        ATTEND(f->attention.heads = f->attention.kv_heads = 3))                                              \
    ROW(attention_grouped, CMHA_ERR_SHAPE, "4 heads cannot share 3 kv_heads",                                \
        ATTEND(f->attention.heads = 4, f->attention.kv_heads = 3))                                           \
    ROW(attention_heads_2_62, CMHA_ERR_SHAPE, "attention",                                                   \
        ATTEND(f->attention.heads = f->attention.kv_heads = TOP))                                            \
    ROW(attention_heads_2_63, CMHA_ERR_SHAPE, "attention",                                                   \
        ATTEND((f->attention.heads = f->attention.kv_heads = (2 * TOP),                                      \
        f->attention.kind = CMHA_ATTENTION_COMPLEX)))                                                        \
    ROW(attention_fused_wrap, CMHA_ERR_SHAPE, "attention",                                                   \
        WITH((f->attention.heads = (2 * TOP), f->attention.kv_heads = TOP),                                  \
        OP(cmha_attention(TAPE, &f->attention, f->x, NULL, NULL, NULL))))                                    \
    ROW(attention_rank, CMHA_ERR_SHAPE, "q of rank 2",                                                       \
        OP(cmha_attention(TAPE, &f->attention, f->w, f->w, f->w, NULL)))                                     \
    ROW(attention_no_values, CMHA_ERR_SHAPE, "k has rank 3, v 0",                                            \
        OP(cmha_attention(TAPE, &f->attention, f->x, f->x, NULL, NULL)))                                     \
    ROW(attention_tokens, CMHA_ERR_SHAPE, "k [2, 3, 8] must be [2, N, 8], v [2, 4, 8] [.., N, 2 d]",         \
        OP(cmha_attention(TAPE, &f->attention, f->x, f->x, tensor(f, 3, 2, 4, 8), NULL)))                    \
    ROW(attention_odd, CMHA_ERR_SHAPE, "odd",                                                                \
        ATTEND((f->attention.heads = f->attention.kv_heads = 8, f->attention.kind = CMHA_ATTENTION_ROPE)))   \
    ROW(attention_no_rotation, CMHA_ERR_ARGUMENT, "rotation",                                                \
        ATTEND(f->attention.kind = CMHA_ATTENTION_ROPE))                                                     \
    ROW(attention_no_delta, CMHA_ERR_SHAPE, "delta", ATTEND(f->attention.kind = CMHA_ATTENTION_CMHA))        \
    ROW(attention_no_temperatures, CMHA_ERR_SHAPE, "log_temp", ATTEND(f->attention.temperature = 1))         \
    ROW(attention_softcap_nan, CMHA_ERR_ARGUMENT, "softcap", ATTEND(f->attention.softcap = (cmha_real)NAN))  \
    ROW(attention_softcap_below, CMHA_ERR_ARGUMENT, "softcap", ATTEND(f->attention.softcap = -1))            \
    ROW(attention_real_values, CMHA_ERR_ARGUMENT, "complex_v",                                               \
        ATTEND(f->attention.kind = CMHA_ATTENTION_COMPLEX))                                                  \
    ROW(attention_kind, CMHA_ERR_ARGUMENT, "attention", ATTEND(f->attention.kind = (cmha_attention_kind)42)) \
    ROW(attention_layout, CMHA_ERR_ARGUMENT, "layout", ATTEND(f->attention.layout = (cmha_layout)2))         \
    ROW(attention_norm_max, CMHA_ERR_ARGUMENT, "norm_max",                                                   \
        ATTEND(f->attention.norm_max = (cmha_norm_max)-1))                                                   \
    ROW(attention_softmax, CMHA_ERR_ARGUMENT, "attention",                                                   \
        ATTEND((f->attention.kind = CMHA_ATTENTION_COMPLEX, f->attention.complex_v = 1,                      \
        f->attention.softmax = (cmha_softmax_kind)42)))                                                      \
    ROW(attention_phasor_max, CMHA_ERR_ARGUMENT, "norm_max",                                                 \
        ATTEND((f->attention.kind = CMHA_ATTENTION_ANGULAR, f->attention.softmax = CMHA_SOFTMAX_SCORE,       \
        f->attention.norm_max = CMHA_NORM_MAX_ROW, f->attention.complex_v = 1)))                             \
    ROW(attention_dropout_1, CMHA_ERR_ARGUMENT, "dropout", ATTEND(f->attention.dropout = 1))                 \
    ROW(attention_dropout_nan, CMHA_ERR_ARGUMENT, "dropout", ATTEND(f->attention.dropout = (cmha_real)NAN))  \
    ROW(attention_no_batch, CMHA_OK, NULL, fine(f, cmha_attention(TAPE, &f->attention,                       \
        tensor(f, 3, 0, 4, 8), tensor(f, 3, 0, 4, 8), tensor(f, 3, 0, 4, 8), NULL)))                         \
    ROW(attention_no_queries, CMHA_OK, NULL,                                                                 \
        fine(f, cmha_attention(TAPE, &f->attention, tensor(f, 3, 2, 0, 8), f->x, f->x, NULL)))               \
    ROW(attention_no_keys, CMHA_OK, NULL, fine(f, cmha_attention(TAPE, &f->attention, f->x,                  \
        tensor(f, 3, 2, 0, 8), tensor(f, 3, 2, 0, 8), NULL)))                                                \
    ROW(attention_width_0, CMHA_ERR_SHAPE, "attention", OP(cmha_attention(TAPE, &f->attention,               \
        tensor(f, 3, 2, 3, 0), tensor(f, 3, 2, 3, 0), tensor(f, 3, 2, 3, 0), NULL)))                         \
    ROW(linear_attention_fine, CMHA_OK, NULL,                                                                \
        fine(f, cmha_linear_attention(TAPE, &f->linear_args, f->x, f->x, f->x)))                             \
    ROW(linear_attention_no_args, CMHA_ERR_ARGUMENT, "attention",                                            \
        OP(cmha_linear_attention(TAPE, NULL, f->x, f->x, f->x)))                                             \
    ROW(linear_attention_heads_0, CMHA_ERR_SHAPE, "attention",                                               \
        WITH(f->linear_args.heads = 0, OP(cmha_linear_attention(TAPE, &f->linear_args, f->x, f->x, f->x))))  \
    ROW(linear_attention_2_63, CMHA_ERR_SHAPE, "attention", WITH(f->linear_args.heads = (2 * TOP),           \
        OP(cmha_linear_attention(TAPE, &f->linear_args, f->x, f->x, f->x))))                                 \
    ROW(linear_attention_kind, CMHA_ERR_ARGUMENT, "kind = 9 or output = 0",                                  \
        WITH(f->linear_args.kind = (cmha_linear_kind)9,                                                      \
        OP(cmha_linear_attention(TAPE, &f->linear_args, f->x, f->x, f->x))))                                 \
    ROW(linear_attention_output, CMHA_ERR_ARGUMENT, "output = 9",                                            \
        WITH((f->linear_args.kind = CMHA_LINEAR_COPE, f->linear_args.output = (cmha_cope_output)9),          \
        OP(cmha_linear_attention(TAPE, &f->linear_args, f->x, f->x, f->x))))                                 \
    ROW(linear_attention_no_values, CMHA_ERR_SHAPE, "k has rank 3, v 0",                                     \
        OP(cmha_linear_attention(TAPE, &f->linear_args, f->x, f->x, NULL)))                                  \
    ROW(linear_attention_empty, CMHA_OK, NULL, fine(f, cmha_linear_attention(TAPE, &f->linear_args,          \
        tensor(f, 3, 2, 0, 8), tensor(f, 3, 2, 0, 8), tensor(f, 3, 2, 0, 8))))                               \
    ROW(lag_fine, CMHA_OK, NULL, fine(f, cmha_lag_attention(TAPE, &f->lag_args, f->x, f->x, f->x)))          \
    ROW(lag_no_args, CMHA_ERR_ARGUMENT, "attention", OP(cmha_lag_attention(TAPE, NULL, f->x, f->x, f->x)))   \
    ROW(lag_heads_3, CMHA_ERR_SHAPE, "attention",                                                            \
        WITH(f->lag_args.heads = 3, OP(cmha_lag_attention(TAPE, &f->lag_args, f->x, f->x, f->x))))           \
    ROW(lag_values, CMHA_ERR_SHAPE, "v has 1 numbers a head, q 2",                                           \
        OP(cmha_lag_attention(TAPE, &f->lag_args, f->x, f->x, tensor(f, 3, 2, 3, 4))))                       \
    ROW(lag_empty, CMHA_OK, NULL, fine(f, cmha_lag_attention(TAPE, &f->lag_args, tensor(f, 3, 2, 0, 8),      \
        tensor(f, 3, 2, 0, 8), tensor(f, 3, 2, 0, 8))))                                                      \
    ROW(pcl_no_args, CMHA_ERR_ARGUMENT, "pcl: args is NULL",                                                 \
        OP(cmha_pcl(TAPE, NULL, tensor(f, 3, 2, 3, 24), NULL, NULL, f->b, &f->pcl)))                         \
    ROW(pcl_no_options, CMHA_ERR_ARGUMENT, "pcl: options is NULL",                                           \
        OP(cmha_pcl(TAPE, &f->attention, tensor(f, 3, 2, 3, 24), NULL, NULL, f->b, NULL)))                   \
    ROW(pcl_mask_rate, CMHA_ERR_ARGUMENT, "pcl: mask_rate must be 0 to 1",                                   \
        WITH(f->pcl.mask_rate = (cmha_real)NAN, OP(cmha_pcl(TAPE, &f->attention, tensor(f, 3, 2, 3, 24),     \
            NULL, NULL, f->b, &f->pcl))))                                                                    \
    ROW(pcl_weights, CMHA_ERR_SHAPE, "pcl",                                                                  \
        OP(cmha_pcl(TAPE, &f->attention, tensor(f, 3, 2, 3, 24), NULL, NULL, f->b, &f->pcl)))                \
    ROW(pcl_tau_0, CMHA_ERR_ARGUMENT, "tau", WITH(f->pcl.tau = 0, OP(cmha_pcl(TAPE, &f->attention,           \
        tensor(f, 3, 2, 3, 24), NULL, NULL, tensor(f, 1, 2, 1, 1), &f->pcl))))                               \
    ROW(pcl_complex, CMHA_ERR_ARGUMENT, "pcl",                                                               \
        WITH((f->attention.kind = CMHA_ATTENTION_COMPLEX, f->attention.complex_v = 1), OP(cmha_pcl(TAPE,     \
        &f->attention, tensor(f, 3, 2, 3, 24), NULL, NULL, tensor(f, 1, 1, 1, 1), &f->pcl))))                \
    ROW(pcl_no_rotation, CMHA_ERR_ARGUMENT, "rotation",                                                      \
        WITH((f->attention.kind = CMHA_ATTENTION_ROPE, f->pcl.adapted = 1), OP(cmha_pcl(TAPE, &f->attention, \
        tensor(f, 3, 2, 3, 24), NULL, NULL, tensor(f, 1, 2, 1, 1), &f->pcl))))

#define ROWS_FILES(ROW)                                                                                      \
    ROW(list_save_none, CMHA_ERR_STATE, NULL, cmha_parameters_save(NULL, missing_path, 0))                   \
    ROW(list_save_no_path, CMHA_ERR_ARGUMENT, "archive",                                                     \
        cmha_parameters_save(&f->decoder.parameters, NULL, 0))                                               \
    ROW(list_read_none, CMHA_ERR_STATE, NULL, cmha_parameters_read(NULL, weights_path, 0))                   \
    ROW(list_read_no_path, CMHA_ERR_ARGUMENT, "archive",                                                     \
        cmha_parameters_read(&f->decoder.parameters, NULL, 0))                                               \
    ROW(list_read_missing, CMHA_ERR_NOT_FOUND, "opened",                                                     \
        cmha_parameters_read(&f->decoder.parameters, missing_path, 1))                                       \
    ROW(list_read_weights, CMHA_ERR_FORMAT, "no training state",                                             \
        cmha_parameters_read(&f->decoder.parameters, weights_path, 1))                                       \
    ROW(list_read_other, CMHA_ERR_FORMAT, "missing",                                                         \
        cmha_parameters_read(&f->encoder.parameters, weights_path, 0))                                       \
    ROW(list_no_rows, CMHA_ERR_ARGUMENT, "parameters: rows is NULL",                                         \
        cmha_parameters_init(&f->list, &f->ctx, NULL, 1))                                                    \
    ROW(list_null, CMHA_ERR_ARGUMENT, NULL, cmha_parameters_init(NULL, &f->ctx, NULL, 1))                    \
    ROW(list_no_context, CMHA_ERR_STATE, NULL, cmha_parameters_init(&f->list, NULL, NULL, 1))                \
    ROW(tune_none, CMHA_ERR_STATE, NULL, cmha_parameters_tune(NULL, "*", CMHA_TUNE_RATE, 1, NULL))           \
    ROW(tune_no_pattern, CMHA_ERR_ARGUMENT, "tune: pattern is NULL; value = 1, what = ",                     \
        cmha_parameters_tune(&f->decoder.parameters, NULL, CMHA_TUNE_RATE, 1, NULL))                         \
    ROW(tune_nothing, CMHA_ERR_NOT_FOUND, "no parameter matches x",                                          \
        cmha_parameters_tune(&f->decoder.parameters, "x", CMHA_TUNE_RATE, 1, NULL))                          \
    ROW(tune_half, CMHA_ERR_ARGUMENT, "out of range; value = 0.5",                                           \
        cmha_parameters_tune(&f->decoder.parameters, "*", CMHA_TUNE_FROZEN, 0.5, NULL))                      \
    ROW(step_list_none, CMHA_ERR_STATE, NULL, cmha_parameters_step(NULL, NULL, CMHA_CLIP_WHOLE, 0, NULL))    \
    ROW(step_list_no_args, CMHA_ERR_ARGUMENT, "step: args is NULL",                                          \
        cmha_parameters_step(&f->decoder.parameters, NULL, CMHA_CLIP_WHOLE, 0, NULL))                        \
    ROW(step_mode, CMHA_ERR_ARGUMENT, "grad_scale = 1 or mode = 9",                                          \
        cmha_parameters_step(&f->decoder.parameters, &(cmha_adamw_args){.grad_scale = 1},                    \
                             (cmha_clip_mode)9, 0, NULL))                                                    \
    ROW(optimiser_none, CMHA_ERR_STATE, NULL, cmha_parameters_optimiser(NULL, NULL))                         \
    ROW(optimiser_unknown, CMHA_ERR_NOT_FOUND, "no-such",                                                    \
        cmha_parameters_optimiser(&f->decoder.parameters, "no-such"))                                        \
    ROW(check_none, CMHA_ERR_STATE, NULL, cmha_gradient_check(NULL, NULL, NULL, &f->loss))                   \
    ROW(check_no_loss, CMHA_ERR_ARGUMENT, "gradient check: loss is NULL",                                    \
        cmha_gradient_check(&f->decoder.parameters, NULL, NULL, &f->loss))                                   \
    ROW(training_memory_none, CMHA_ERR_STATE, NULL, cmha_model_training_memory(NULL, 1, 1, &f->bytes))       \
    ROW(training_memory_no_result, CMHA_ERR_ARGUMENT, "need is NULL",                                        \
        cmha_model_training_memory(&f->decoder, 1, 1, NULL))                                                 \
    ROW(training_memory_huge, CMHA_ERR_OVERFLOW, "overflows",                                                \
        cmha_model_training_memory(&f->decoder, SIZE_MAX / 4, 2, &f->bytes))                                 \
    ROW(memory_huge_without_heads, CMHA_ERR_OVERFLOW, "overflow",                                            \
        WITH(model_as(f, "vocabulary=0 tokens=0 features=3"),                                                \
             cmha_model_memory(&f->ctx, &f->mc, SIZE_MAX / 8 + 1, 1, NULL, &f->bytes)))                      \
    ROW(save_no_model, CMHA_ERR_STATE, NULL, cmha_model_save(NULL, missing_path))                            \
    ROW(save_no_path, CMHA_ERR_ARGUMENT, "archive", cmha_model_save(&f->decoder, NULL))                      \
    ROW(save_empty_path, CMHA_ERR_IO, "", cmha_model_save(&f->decoder, ""))                                  \
    ROW(save_folder, CMHA_ERR_IO, "regular", cmha_model_save(&f->decoder, folder))                           \
    ROW(save_nowhere, CMHA_ERR_IO, "writing", cmha_model_save(&f->decoder, "/nowhere/at/all"))               \
    ROW(cache_save_null, CMHA_ERR_STATE, NULL, cmha_cache_save(NULL, missing_path))                          \
    ROW(cache_save_no_path, CMHA_ERR_ARGUMENT, "archive", cmha_cache_save(&f->cache, NULL))                  \
    ROW(cache_save_nowhere, CMHA_ERR_IO, "writing", cmha_cache_save(&f->cache, "/nowhere/at/all"))           \
    ROW(cache_read_null, CMHA_ERR_STATE, NULL, cmha_cache_read(NULL, missing_path))                          \
    ROW(cache_read_no_path, CMHA_ERR_ARGUMENT, "archive", cmha_cache_read(&f->cache, NULL))                  \
    ROW(cache_read_empty_path, CMHA_ERR_NOT_FOUND, "", cmha_cache_read(&f->cache, ""))                       \
    ROW(save_ugly_path, CMHA_ERR_IO, "yyy", cmha_model_save(&f->decoder, ugly_name()))                       \
    ROW(trainer_save_no_path, CMHA_ERR_ARGUMENT, "archive", cmha_trainer_save(&f->trainer, NULL))            \
    ROW(trainer_save_none, CMHA_ERR_STATE, NULL, cmha_trainer_save(NULL, missing_path))                      \
    ROW(load_null, CMHA_ERR_ARGUMENT, "model load", cmha_model_open(NULL, &f->ctx, weights_path))            \
    ROW(load_no_context, CMHA_ERR_ARGUMENT, NULL, cmha_model_open(&f->spare, NULL, weights_path))            \
    ROW(load_no_path, CMHA_ERR_ARGUMENT, "archive", cmha_model_open(&f->spare, &f->ctx, NULL))               \
    ROW(load_missing, CMHA_ERR_NOT_FOUND, "opened", cmha_model_open(&f->spare, &f->ctx, missing_path))       \
    ROW(load_folder, CMHA_ERR_IO, "regular", cmha_model_open(&f->spare, &f->ctx, folder))                    \
    ROW(load_text, CMHA_ERR_FORMAT, "safetensors", cmha_model_open(&f->spare, &f->ctx, text_path))           \
    ROW(trainer_load_none, CMHA_ERR_STATE, NULL, cmha_trainer_read(NULL, state_path))                        \
    ROW(trainer_load_no_path, CMHA_ERR_ARGUMENT, "archive", cmha_trainer_read(&f->trainer, NULL))            \
    ROW(trainer_load_weights, CMHA_ERR_FORMAT, "state", cmha_trainer_read(&f->trainer, weights_path))        \
    ROW(trainer_load_other, CMHA_ERR_FORMAT, "model",                                                        \
        (opens(f, model_as(f, "d_ff=12")), cmha_trainer_init(&f->spare_trainer, &f->spare, NULL),            \
        cmha_trainer_read(&f->spare_trainer, state_path)))                                                   \
    ROW(config_read_no_path, CMHA_ERR_ARGUMENT, "archive", cmha_config_read(&f->ctx, NULL, NULL, NULL))      \
    ROW(config_read_no_context, CMHA_ERR_ARGUMENT, NULL, cmha_config_read(NULL, state_path, NULL, NULL))     \
    ROW(config_read_missing, CMHA_ERR_NOT_FOUND, "missing",                                                  \
        cmha_config_read(&f->ctx, missing_path, NULL, NULL))                                                 \
    ROW(config_read_text, CMHA_ERR_FORMAT, "safetensors",                                                    \
        cmha_config_read(&f->ctx, text_path, NULL, NULL))                                                    \
    ROW(archive_null, CMHA_ERR_ARGUMENT, "archive open: archive is NULL",                                    \
        cmha_archive_open(NULL, &f->ctx, weights_path))                                                      \
    ROW(archive_no_context, CMHA_ERR_ARGUMENT, NULL,                                                         \
        cmha_archive_open(&f->spare_archive, NULL, weights_path))                                            \
    ROW(archive_no_path, CMHA_ERR_ARGUMENT, "archive open: path is NULL",                                    \
        cmha_archive_open(&f->spare_archive, &f->ctx, NULL))                                                 \
    ROW(archive_unusable, CMHA_ERR_STATE, NULL, unusable_archive(f))                                         \
    ROW(archive_read_nothing, CMHA_ERR_ARGUMENT, "archive read: tensor is NULL",                             \
        cmha_archive_read(&f->archive, NULL, f->logits))                                                     \
    ROW(archive_read_no_out, CMHA_ERR_ARGUMENT, "archive read: out is NULL",                                 \
        cmha_archive_read(&f->archive, f->archive.tensors, NULL))                                            \
    ROW(archive_read_other, CMHA_ERR_FORMAT, "I64",                                                          \
        cmha_archive_read_i64(&f->archive, f->archive.tensors, (int64_t *)(void *)&f->loss))                 \
    ROW(archive_find_nothing, CMHA_OK, NULL,                                                                 \
        cmha_archive_find(&f->archive, NULL) || cmha_archive_find(NULL, "x") || cmha_archive_metadata(NULL,  \
        "x") || cmha_archive_metadata(&f->archive, NULL) ? CMHA_ERR_STATE : CMHA_OK)                         \
    ROW(write_no_context, CMHA_ERR_ARGUMENT, NULL, cmha_archive_write(NULL, missing_path, NULL, 0, NULL, 0)) \
    ROW(write_no_path, CMHA_ERR_ARGUMENT, "archive write: path is NULL",                                     \
        cmha_archive_write(&f->ctx, NULL, NULL, 0, NULL, 0))                                                 \
    ROW(write_twice, CMHA_ERR_ARGUMENT, "comes twice", write_twice(f))                                       \
    ROW(write_no_utf8, CMHA_ERR_ARGUMENT, "metadata[1] is not UTF-8",                                        \
        cmha_archive_write(&f->ctx, missing_path, NULL, 0, no_utf8, 1))                                      \
    ROW(write_no_items, CMHA_ERR_ARGUMENT, "archive write: items is NULL",                                   \
        cmha_archive_write(&f->ctx, missing_path, NULL, 3, NULL, 0))                                         \
    ROW(write_no_metadata, CMHA_ERR_ARGUMENT, "archive write: metadata is NULL",                             \
        cmha_archive_write(&f->ctx, missing_path, NULL, 0, NULL, 3))                                         \
    ROW(write_no_name, CMHA_ERR_ARGUMENT, "archive write", write_item(f, NULL, 1, f->x->shape, f->x->data))  \
    ROW(write_no_shape, CMHA_ERR_ARGUMENT, "archive write", write_item(f, "x", 1, NULL, f->x->data))         \
    ROW(write_no_data, CMHA_ERR_ARGUMENT, "archive write", write_item(f, "x", 1, f->x->shape, NULL))         \
    ROW(write_rank_9, CMHA_ERR_ARGUMENT, "archive write", write_item(f, "x", 9, f->x->shape, f->x->data))    \
    ROW(tokens_null, CMHA_ERR_ARGUMENT, "tokens load: tokens is NULL",                                       \
        cmha_tokens_open(NULL, &f->ctx, text_path, 1))                                                       \
    ROW(tokens_no_context, CMHA_ERR_ARGUMENT, NULL, cmha_tokens_open(&f->spare_tokens, NULL, text_path, 1))  \
    ROW(tokens_no_path, CMHA_ERR_ARGUMENT, "tokens load: path is NULL",                                      \
        cmha_tokens_open(&f->spare_tokens, &f->ctx, NULL, 1))                                                \
    ROW(tokens_width_0, CMHA_ERR_ARGUMENT, "width 0",                                                        \
        cmha_tokens_open(&f->spare_tokens, &f->ctx, text_path, 0))                                           \
    ROW(tokens_width_3, CMHA_ERR_ARGUMENT, "width 3",                                                        \
        cmha_tokens_open(&f->spare_tokens, &f->ctx, text_path, 3))                                           \
    ROW(tokens_odd, CMHA_ERR_FORMAT, "multiple of 2",                                                        \
        cmha_tokens_open(&f->spare_tokens, &f->ctx, text_path, 2))                                           \
    ROW(tokens_missing, CMHA_ERR_NOT_FOUND, "opened",                                                        \
        cmha_tokens_open(&f->spare_tokens, &f->ctx, missing_path, 1))                                        \
    ROW(tokens_folder, CMHA_ERR_IO, "regular", cmha_tokens_open(&f->spare_tokens, &f->ctx, folder, 1))

#define ROWS_OBJECTS(ROW)                                                                                    \
    ROW(context_first, CMHA_ERR_STATE, NULL, context_first(f))                                               \
    ROW(swap_none, CMHA_ERR_STATE, NULL, cmha_trainer_swap(NULL))                                            \
    ROW(residual_alpha, CMHA_ERR_SHAPE, "complex residual: alpha has 5 numbers, it needs 1",                 \
        OP(cmha_complex_residual(TAPE, f->x, f->planes, f->b, one_weight(f))))                               \
    ROW(residual_beta, CMHA_ERR_SHAPE, "complex residual: beta has 5 numbers, it needs 1",                   \
        OP(cmha_complex_residual(TAPE, f->x, f->planes, one_weight(f), f->b)))                               \
    ROW(experts_logits, CMHA_ERR_SHAPE, "logits [2, 3, 8] needs the rows of z and E of w1 [2, 4, 3, 4]",     \
        OP(cmha_experts(TAPE, f->x, f->planes,                                                               \
            &(cmha_experts_tensors){tensor4(f, 2, 4, 3, 4), NULL, tensor4(f, 2, 4, 4, 3), NULL},             \
            &(cmha_experts_options){1, NULL, NULL})))                                                        \
    ROW(retrieve_queries, CMHA_ERR_ARGUMENT, "retrieve: queries is 0 or huge",                               \
        WITH(f->query.queries = 0, OP(cmha_retrieve(TAPE, NULL, &f->query, f->x, one_weight(f), NULL))))     \
    ROW(retrieve_tau, CMHA_ERR_ARGUMENT, "retrieve: tau 0, eps 0 or threshold -1",                           \
        WITH(f->query.tau = 0, OP(cmha_retrieve(TAPE, NULL, &f->query, f->x, one_weight(f), NULL))))         \
    ROW(retrieve_width, CMHA_ERR_SHAPE, "retrieve: q has rows of 8 numbers for queries = 3 of d_r = 0",      \
        WITH(f->query.queries = 3, OP(cmha_retrieve(TAPE, NULL, &f->query, f->x, one_weight(f), NULL))))     \
    ROW(window_wm, CMHA_ERR_SHAPE, "irw: weights->wm must be [2, M d_r, D], not [1, ..] of rank 1",          \
        window_with(f))                                                                                      \
    ROW(rotary_odd, CMHA_ERR_SHAPE, "rotary_dims 3 of 4", WITH((f->attention.rotary_dims = 3,                \
        f->attention.kind = CMHA_ATTENTION_ROPE),                                                            \
        OP(cmha_attention(TAPE, &f->attention, f->x, f->x, f->x, NULL))))                                    \
    ROW(step_scale, CMHA_ERR_ARGUMENT, "step: grad_scale = 0 or mode = 0",                                   \
        cmha_parameters_step(&f->decoder.parameters, &(cmha_adamw_args){.t = 1}, CMHA_CLIP_WHOLE, 0, NULL))  \
    ROW(step_momentum, CMHA_ERR_ARGUMENT, "weight_decay 0, limit 0 or momentum nan",                         \
        cmha_parameters_step(&f->decoder.parameters, &(cmha_adamw_args){.grad_scale = 1, .momentum = NAN},   \
        CMHA_CLIP_WHOLE, 0, NULL))                                                                           \
    ROW(step_beta, CMHA_ERR_ARGUMENT, "step: wrong lr 0, betas 2, 0, eps 0, weight_decay 0, limit 0",        \
        cmha_parameters_step(&f->decoder.parameters, &(cmha_adamw_args){.grad_scale = 1, .beta1 = 2},        \
        CMHA_CLIP_WHOLE, 0, NULL))                                                                           \
    ROW(check_no_error, CMHA_ERR_ARGUMENT, "gradient check: error is NULL",                                  \
        cmha_gradient_check(&f->decoder.parameters, no_loss, NULL, NULL))                                    \
    ROW(list_no_count, CMHA_ERR_ARGUMENT, "parameters: count = 0",                                           \
        cmha_parameters_init(&f->list, &f->ctx, &no_row, 0))                                                 \
    ROW(merge_packed, CMHA_ERR_STATE, "model merge: it is packed", packed_lora(f, cmha_model_merge))         \
    ROW(part_packed, CMHA_ERR_STATE, "model save: it is packed", packed_lora(f, save_part))                  \
    ROW(frequencies_nan, CMHA_ERR_ARGUMENT, "omega[0] = ", frequencies_with(f, (double)NAN))                 \
    ROW(frequencies_inf, CMHA_ERR_ARGUMENT, "omega[0] = ", frequencies_with(f, -(double)INFINITY))           \
    ROW(linear_keys, CMHA_ERR_SHAPE, "attention: k [2, 3, 4] must be [2, N, 8], v [2, 3, 8] [.., N, 4 d]",   \
        OP(cmha_linear_attention(TAPE, &f->linear_args, f->x, tensor(f, 3, 2, 3, 4), f->x)))                 \
    ROW(apply_none, CMHA_ERR_STATE, NULL, cmha_trainer_apply(NULL, NULL))                                    \
    ROW(apply_closed, CMHA_ERR_STATE, NULL, cmha_trainer_apply(&f->spare_trainer, &f->loss))                 \
    ROW(share_none, CMHA_ERR_STATE, NULL, cmha_trainer_share(NULL, NULL))                                    \
    ROW(share_closed, CMHA_ERR_STATE, NULL, cmha_trainer_share(&f->spare_trainer, &two_ranks))               \
    ROW(share_third_of_two, CMHA_ERR_ARGUMENT, "rank 2 of 2 with 2 sequences", share_with(f, 2, 2, some_sum))\
    ROW(share_none_of_none, CMHA_ERR_ARGUMENT, "share", share_with(f, 0, 0, some_sum))                       \
    ROW(share_2_62_ranks, CMHA_ERR_ARGUMENT, "share", share_with(f, 0, TOP, some_sum))                       \
    ROW(share_beyond_a_batch, CMHA_ERR_ARGUMENT, "of 524289", share_with(f, 0, 524289, some_sum))            \
    ROW(share_no_reduce, CMHA_ERR_ARGUMENT, "or no reduce", share_with(f, 0, 2, NULL))                       \
    ROW(share_half_a_begin, CMHA_ERR_ARGUMENT, "or wait", cmha_trainer_share(&f->trainer, &half_begun))      \
    ROW(states_no_model, CMHA_ERR_ARGUMENT, "model: model is NULL",                                          \
        OP(cmha_model_states(NULL, TAPE, &f->batch, NULL)))                                                  \
    ROW(states_closed, CMHA_ERR_STATE, "model", OP(cmha_model_states(&f->spare, TAPE, &f->batch, NULL)))     \
    ROW(vectors_no_model, CMHA_ERR_STATE, NULL, cmha_model_vectors(NULL, &f->batch, f->logits))              \
    ROW(vectors_no_batch, CMHA_ERR_ARGUMENT, "vectors", cmha_model_vectors(&f->encoder, NULL, f->logits))    \
    ROW(vectors_no_result, CMHA_ERR_ARGUMENT, "vectors", cmha_model_vectors(&f->encoder, &f->batch, NULL))   \
    ROW(vectors_2_62, CMHA_ERR_OVERFLOW, "overflow",                                                         \
        WITH(f->batch.length = TOP, cmha_model_vectors(&f->encoder, &f->batch, f->logits)))                  \
    ROW(classify_2_62, CMHA_ERR_OVERFLOW, "overflow",                                                        \
        WITH(f->batch.batch = TOP, cmha_model_classify(&f->encoder, &f->batch, f->logits)))                  \
    ROW(read_no_model, CMHA_ERR_STATE, NULL, cmha_model_read(NULL, weights_path, 1, NULL))                   \
    ROW(read_closed, CMHA_ERR_STATE, NULL, cmha_model_read(&f->spare, weights_path, 1, NULL))                \
    ROW(read_no_path, CMHA_ERR_ARGUMENT, "archive", cmha_model_read(&f->decoder, NULL, 1, NULL))             \
    ROW(read_missing, CMHA_ERR_NOT_FOUND, "opened",                                                          \
        cmha_model_read(&f->decoder, missing_path, 0, &f->bytes))                                            \
    ROW(read_text, CMHA_ERR_FORMAT, "safetensors", cmha_model_read(&f->decoder, text_path, 0, &f->bytes))    \
    ROW(pack_no_model, CMHA_ERR_STATE, NULL, cmha_model_pack(NULL, CMHA_STORAGE_INT8))                       \
    ROW(pack_closed, CMHA_ERR_STATE, NULL, cmha_model_pack(&f->spare, CMHA_STORAGE_INT8))                    \
    ROW(pack_float, CMHA_ERR_ARGUMENT, "storage = 0 is not BF16, INT8, INT4 or Q4_K",                        \
        cmha_model_pack(&f->decoder, CMHA_STORAGE_FLOAT))                                                    \
    ROW(pack_storage, CMHA_ERR_ARGUMENT, "storage = 77", cmha_model_pack(&f->decoder, (cmha_storage)77))     \
    ROW(round_no_model, CMHA_ERR_STATE, NULL, cmha_model_round(NULL, 1))                                     \
    ROW(round_floats, CMHA_ERR_STATE, "model round: it is not packed in 8 or 4 bits",                        \
        cmha_model_round(&f->decoder, 1))                                                                    \
    ROW(merge_no_model, CMHA_ERR_STATE, NULL, cmha_model_merge(NULL))                                        \
    ROW(merge_closed, CMHA_ERR_STATE, NULL, cmha_model_merge(&f->spare))                                     \
    ROW(merge_nothing, CMHA_ERR_STATE, "has no adapters (lora_rank = 0)", cmha_model_merge(&f->decoder))     \
    ROW(part_no_model, CMHA_ERR_STATE, NULL, cmha_model_save_part(NULL, missing_path))                       \
    ROW(part_closed, CMHA_ERR_STATE, NULL, cmha_model_save_part(&f->spare, missing_path))                    \
    ROW(part_no_path, CMHA_ERR_ARGUMENT, "archive", cmha_model_save_part(&f->decoder, NULL))                 \
    ROW(part_nowhere, CMHA_ERR_IO, "writing", cmha_model_save_part(&f->decoder, "/nowhere/at/all"))          \
    ROW(cache_with_null, CMHA_ERR_ARGUMENT, NULL, cmha_cache_init(NULL, &f->decoder, 1, 4, 0, NULL))         \
    ROW(cache_with_storage, CMHA_ERR_ARGUMENT, "storage must be FLOAT or BF16",                              \
        cache_with(f, CMHA_STORAGE_INT8))                                                                    \
    ROW(set_knowledge_no_model, CMHA_ERR_STATE, NULL, cmha_model_set_knowledge(NULL, NULL))                  \
    ROW(set_knowledge_no_window, CMHA_ERR_STATE, "window",                                                   \
        cmha_model_set_knowledge(&f->decoder, &spare_base))                                                  \
    ROW(knowledge_null, CMHA_ERR_ARGUMENT, "knowledge: knowledge is NULL",                                   \
        cmha_knowledge_init(NULL, &f->ctx, 1, 2, f->logits, NULL, NULL, NULL))                               \
    ROW(knowledge_no_context, CMHA_ERR_STATE, NULL,                                                          \
        cmha_knowledge_init(&spare_base, NULL, 1, 2, f->logits, NULL, NULL, NULL))                           \
    ROW(knowledge_no_vectors, CMHA_ERR_ARGUMENT, "1 documents without vectors",                              \
        cmha_knowledge_init(&spare_base, &f->ctx, 1, 2, NULL, NULL, NULL, NULL))                             \
    ROW(knowledge_no_width, CMHA_ERR_ARGUMENT, "1 documents without d_r", base_of(f, 1, 0, NULL, NULL))      \
    ROW(knowledge_texts_alone, CMHA_ERR_ARGUMENT, "only text_begin is NULL", base_of(f, 1, 2, "x", NULL))    \
    ROW(knowledge_texts_order, CMHA_ERR_ARGUMENT, "ascend", base_of(f, 2, 2, "xyz", descending))             \
    ROW(knowledge_2_62, CMHA_ERR_OVERFLOW, "overflow", base_of(f, TOP, 1, NULL, NULL))                       \
    ROW(knowledge_2_62_texts, CMHA_ERR_OVERFLOW, "overflow", base_of(f, TOP, 1, "x", descending))            \
    ROW(knowledge_max, CMHA_ERR_OVERFLOW, "overflow", base_of(f, SIZE_MAX, 1, NULL, NULL))                   \
    ROW(knowledge_max_texts, CMHA_ERR_OVERFLOW, "overflow", base_of(f, SIZE_MAX, 1, "x", descending))        \
    ROW(knowledge_width_2_62, CMHA_ERR_OVERFLOW, "overflow", base_of(f, 1, TOP, NULL, NULL))                 \
    ROW(knowledge_width_max, CMHA_ERR_OVERFLOW, "d_r = ", base_of(f, 1, SIZE_MAX, NULL, NULL))               \
    ROW(knowledge_large, CMHA_ERR_MEMORY, "memory", base_of(f, SIZE_MAX / 64, 2, NULL, NULL))                \
    ROW(search_no_base, CMHA_ERR_STATE, NULL,                                                                \
        cmha_knowledge_search(NULL, f->logits, 1, 1, -1, NULL, f->logits))                                   \
    ROW(search_no_queries, CMHA_ERR_ARGUMENT, "search: queries, index or similarity is NULL",                \
        search_of(f, 2, NULL, 1, 1, -1))                                                                     \
    ROW(search_threshold, CMHA_ERR_ARGUMENT, "threshold is NaN",                                             \
        search_of(f, 2, f->logits, 1, 1, (double)NAN))                                                       \
    ROW(search_Q_2_62, CMHA_ERR_OVERFLOW, "search", search_of(f, 2, f->logits, TOP, 1, -1))                  \
    ROW(search_Q_max, CMHA_ERR_OVERFLOW, "search", search_of(f, 2, f->logits, SIZE_MAX, 1, -1))              \
    ROW(search_k_2_62, CMHA_ERR_OVERFLOW, "search", search_of(f, 2, f->logits, 1, TOP, -1))                  \
    ROW(search_both_2_31, CMHA_ERR_OVERFLOW, "search",                                                       \
        search_of(f, 2, f->logits, (size_t)1 << 31, (size_t)1 << 31, -1))                                    \
    ROW(search_empty_2_62, CMHA_ERR_OVERFLOW, "search", search_of(f, 0, f->logits, TOP, 4, -1))              \
    ROW(base_save_none, CMHA_ERR_STATE, NULL, cmha_knowledge_save(NULL, missing_path))                       \
    ROW(base_load_null, CMHA_ERR_ARGUMENT, "knowledge", cmha_knowledge_open(NULL, &f->ctx, weights_path, 0)) \
    ROW(base_load_no_context, CMHA_ERR_ARGUMENT, NULL,                                                       \
        cmha_knowledge_open(&spare_base, NULL, weights_path, 0))                                             \
    ROW(base_load_no_path, CMHA_ERR_ARGUMENT, "archive", cmha_knowledge_open(&spare_base, &f->ctx, NULL, 1)) \
    ROW(base_load_missing, CMHA_ERR_NOT_FOUND, "opened",                                                     \
        cmha_knowledge_open(&spare_base, &f->ctx, missing_path, 1))                                          \
    ROW(base_load_weights, CMHA_ERR_FORMAT, "vectors",                                                       \
        cmha_knowledge_open(&spare_base, &f->ctx, weights_path, 1))                                          \
    ROW(scale_closed, CMHA_ERR_STATE, NULL, (cmha_scale(closed(f), f->x, 2), f->spare_tape.status))          \
    ROW(sigmoid_closed, CMHA_ERR_STATE, NULL, (cmha_sigmoid(closed(f), f->x), f->spare_tape.status))         \
    ROW(sum_closed, CMHA_ERR_STATE, NULL, (cmha_sum(closed(f), f->x), f->spare_tape.status))                 \
    ROW(softcap_0, CMHA_ERR_ARGUMENT, "cap = 0 is out of range", OP(cmha_softcap(TAPE, f->x, 0)))            \
    ROW(softcap_nan, CMHA_ERR_ARGUMENT, "softcap", OP(cmha_softcap(TAPE, f->x, (cmha_real)NAN)))             \
    ROW(softcap_infinite, CMHA_ERR_ARGUMENT, "softcap",                                                      \
        OP(cmha_softcap(TAPE, f->x, (cmha_real)INFINITY)))                                                   \
    ROW(softcap_closed, CMHA_ERR_STATE, NULL,                                                                \
        (cmha_softcap(closed(f), f->x, 2), f->spare_tape.status))                                            \
    ROW(exponential_closed, CMHA_ERR_STATE, NULL,                                                            \
        (cmha_exponential(closed(f), f->x), f->spare_tape.status))                                           \
    ROW(fail_without_reason, CMHA_ERR_STATE, NULL,                                                           \
        (cmha_tape_fail(TAPE, CMHA_OK, NULL), cmha_tape_status(TAPE)))                                       \
    ROW(balance_top_0, CMHA_ERR_ARGUMENT, "top = 0 is not 1 to 8 experts",                                   \
        OP(cmha_balance(TAPE, f->x, 0, NULL)))                                                               \
    ROW(balance_top_9, CMHA_ERR_ARGUMENT, "top = 9 is not 1 to 8 experts",                                   \
        OP(cmha_balance(TAPE, f->x, 9, NULL)))                                                               \
    ROW(complex_residual_shapes, CMHA_ERR_SHAPE, "[5, 8]",                                  \
        OP(cmha_complex_residual(TAPE, f->x, f->w, f->b, f->b)))                                             \
    ROW(router_weight, CMHA_ERR_SHAPE, "router [5, 8] must be [2, E, D] for a width of 2 D of z [2, 3, 8]",  \
        OP(cmha_router(TAPE, f->x, f->w, NULL)))                                                             \
    ROW(experts_ranks, CMHA_ERR_SHAPE, "w1 [5, 8] must be [2, E, F, D], w2 [2, E, D, F], not [5, 8]",        \
        OP(cmha_experts(TAPE, f->x, f->x, &(cmha_experts_tensors){f->w, NULL, f->w, NULL},                   \
            &(cmha_experts_options){1, NULL, NULL})))                                                        \
    ROW(experts_no_weights, CMHA_ERR_ARGUMENT, "experts",                                                    \
        OP(cmha_experts(TAPE, f->x, f->x, NULL, &(cmha_experts_options){1, NULL, NULL})))                    \
    ROW(experts_no_options, CMHA_ERR_ARGUMENT, "experts",                                                    \
        OP(cmha_experts(TAPE, f->x, f->x, &(cmha_experts_tensors){f->w, NULL, f->w, NULL}, NULL)))           \
    ROW(experts_width, CMHA_ERR_SHAPE,                                                                       \
        "w1 [2, 4, 3, 5] must be [2, E, F, D] for a width of 2 D of z [2, 3, 8]",                            \
        OP(experts_of(f, 5, 1)))                                                                             \
    ROW(experts_top_0, CMHA_ERR_ARGUMENT, "top = 0 is not 1 to 4 experts", OP(experts_of(f, 4, 0)))          \
    ROW(experts_top_max, CMHA_ERR_ARGUMENT, "experts", OP(experts_of(f, 4, SIZE_MAX)))                       \
    ROW(experts_fine, CMHA_OK, NULL, fine(f, experts_of(f, 4, 4)))                                           \
    ROW(retrieve_no_args, CMHA_ERR_ARGUMENT, "retrieve: args is NULL",                                       \
        OP(cmha_retrieve(TAPE, NULL, NULL, f->x, f->b, NULL)))                                               \
    ROW(retrieve_weights, CMHA_ERR_SHAPE, "retrieve",                                                        \
        OP(cmha_retrieve(TAPE, NULL, &f->query, f->x, f->w, NULL)))                                          \
    ROW(retrieve_top_2_62, CMHA_ERR_OVERFLOW, "retrieve",                                                    \
        WITH(f->query.top = TOP, OP(cmha_retrieve(TAPE, NULL, &f->query, f->x, one_weight(f), NULL))))       \
    ROW(window_no_args, CMHA_ERR_ARGUMENT, "retrieve: args is NULL", window_of(f, NULL))                     \
    ROW(window_weights_null, CMHA_ERR_ARGUMENT, "irw: weights is NULL",                                      \
        OP(cmha_irw(TAPE, NULL, &f->query, 1, CMHA_FUSION_CONVEX, f->x, NULL)))                              \
    ROW(window_no_weights, CMHA_ERR_ARGUMENT, "irw: weights without wm w_logits wv wg",                      \
        OP(cmha_irw(TAPE, NULL, &f->query, 1, CMHA_FUSION_CONVEX, f->x, &no_weights)))

/* What plain rows are about: nothing, or sizes that wrap. Zeroed but for what plain_open sets. */
typedef struct plain {
    cmha_attention_views nothing;
    cmha_attention_args attention, wide;
    cmha_linear_attention_args linear, wide_linear;
    cmha_lag_args lag, wide_lag;
    cmha_pcl_args pcl, wide_pcl;
    cmha_complex_linear_args map;
    cmha_complex_norm_args norm;
    cmha_norm_args layernorm, rmsnorm;
    cmha_grads no_grads;
    cmha_cross_entropy_args entropy;
    cmha_euler_args euler;
    cmha_complex_residual_args residual;
    cmha_route_args route;
    cmha_mask_args mask;
    cmha_experts_args experts, wide_experts;
    cmha_experts_weights weights;
    cmha_experts_grads grads;
    cmha_cope_options cope;
    cmha_adamw_args adamw;
    cmha_packed packed;
    cmha_rounded rounded;
    cmha_rng last;
    cmha_sampler_config sampler;
    cmha_context context;
    cmha_tape tape;
    cmha_model model;
    cmha_trainer trainer;
    cmha_cache cache;
    cmha_knowledge base;
    cmha_archive archive;
    cmha_tokens tokens, empty, four;
    cmha_real number[16];
    double doubles[16];
    size_t count, plan[16];
    cmha_rotate_args rotate;
    char text[4];
} plain;

static void plain_open(plain *p) {
    memset(p, 0, sizeof *p);
    p->attention.heads = p->attention.kv_heads = 2, p->attention.d_k = p->attention.d_v = 8;
    p->attention.kind = CMHA_ATTENTION_DOT;
    p->wide = p->attention, p->wide.batch = 1, p->wide.n_q = p->wide.n_k = TOP;
    p->linear.heads = 2, p->linear.d = 4, p->linear.n = 3;
    p->wide_linear = p->linear, p->wide_linear.batch = p->wide_linear.d = TOP;
    p->lag.heads = 2, p->lag.d = 4, p->lag.n = 3;
    p->wide_lag = p->lag, p->wide_lag.batch = 1, p->wide_lag.n = TOP + 1;
    p->pcl.P = 4, p->pcl.tau = 1, p->wide_pcl = p->pcl, p->wide_pcl.N = TOP;
    p->map.n_in = p->map.n_out = 4, p->norm.kind = CMHA_COMPLEX_NORM_WHITEN, p->norm.D = 4;
    p->layernorm.kind = CMHA_NORM_LAYER, p->rmsnorm.kind = CMHA_NORM_RMS, p->layernorm.D = p->rmsnorm.D = 8;
    p->entropy.V = 8, p->entropy.ignore = -1, p->euler.P = 4, p->euler.layout = CMHA_LAYOUT_HALF;
    p->residual.D = 4, p->residual.alpha = 1, p->mask.rate = 1;
    p->route.D = 4, p->route.E = p->route.top = 1, p->route.threads = 1;
    p->experts.D = p->experts.F = 4, p->experts.E = p->experts.top = 1, p->experts.plan = p->plan;
    p->wide_experts = p->experts, p->wide_experts.T = TOP;
    p->adamw.t = 1, p->packed.storage = CMHA_STORAGE_INT8, p->last.counter = UINT64_MAX;
    cmha_config_defaults(cmha_sampler_table(), &p->sampler);
    p->four.data = good_ids, p->four.count = 4, p->four.width = 4, p->trainer.config.held_out = 0.1;
}

#define EQUAL(got, want) CHECK((long long)(got) == (long long)(want))
#define SAME(got, want) CHECK_NEAR(got, want, 0)

/* ROW(function, what holds): of sizes of zero, with NULL for every array, mostly that nothing is touched;
   lengths that cannot be counted are SIZE_MAX; closing what is not open does nothing. */
#define ROWS_PLAIN(ROW)                                                                                      \
    ROW(cmha_buffers, CHECK(cmha_buffers(NULL).size && !cmha_buffers(NULL).user))                            \
    ROW(cmha_exp, cmha_exp(0, NULL, NULL))                                                                   \
    ROW(cmha_tanh, cmha_tanh(0, NULL, NULL))                                                                 \
    ROW(cmha_softcap_forward, cmha_softcap_forward(NULL, 0, 1, NULL, NULL))                                  \
    ROW(cmha_modulus, cmha_modulus(0, NULL, NULL, NULL))                                                     \
    ROW(cmha_tape_measures, EQUAL(cmha_tape_measures(NULL), 0))                                              \
    ROW(cmha_layer_attention,                                                                                \
        CHECK(!cmha_layer_attention(NULL, &p->attention, NULL, NULL, NULL, NULL)))                           \
    ROW(cmha_gemm, cmha_gemm(0, 0, 0, 8, 8, 1, NULL, 8, NULL, 8, 0, NULL, 8),                                \
        cmha_gemm(1, 1, 8, 0, 8, 1, NULL, 8, NULL, 8, 1, NULL, 8))                                           \
    ROW(cmha_embedding_forward, cmha_embedding_forward(NULL, NULL, 0, 8, NULL))                              \
    ROW(cmha_embedding_backward, cmha_embedding_backward(NULL, NULL, 0, 8, NULL))                            \
    ROW(cmha_norm_forward, cmha_norm_forward(&p->layernorm, NULL, NULL, NULL, NULL, NULL),                   \
        cmha_norm_forward(&p->rmsnorm, NULL, NULL, NULL, NULL, NULL))                                        \
    ROW(cmha_norm_backward, cmha_norm_backward(&p->layernorm, NULL, NULL, NULL, NULL, &p->no_grads),         \
        cmha_norm_backward(&p->rmsnorm, NULL, NULL, NULL, NULL, &p->no_grads))                               \
    ROW(cmha_activation_forward, cmha_activation_forward(NULL, 0, CMHA_ACTIVATION_RELU, NULL))               \
    ROW(cmha_activation_backward, cmha_activation_backward(NULL, NULL, 0, CMHA_ACTIVATION_GELU_ERF, NULL))   \
    ROW(cmha_gated_forward, cmha_gated_forward(NULL, NULL, 0, CMHA_ACTIVATION_SWIGLU, NULL))                 \
    ROW(cmha_gated_backward,                                                                                 \
        cmha_gated_backward(NULL, NULL, NULL, 0, CMHA_ACTIVATION_SWIGLU, NULL, NULL))                        \
    ROW(cmha_dropout_forward, cmha_dropout_forward(NULL, 0, (cmha_real)0.5, 1, SIZE_MAX, NULL))              \
    ROW(cmha_cross_entropy_forward,                                                                          \
        SAME(cmha_cross_entropy_forward(&p->entropy, NULL, NULL, &p->count), 0), EQUAL(p->count, 0))         \
    ROW(cmha_cross_entropy_gradient, SAME(cmha_cross_entropy_gradient(&p->entropy, NULL, 1), 0))             \
    ROW(cmha_cross_entropy_backward, cmha_cross_entropy_backward(&p->entropy, NULL, NULL, 1, NULL))          \
    ROW(cmha_euler_forward, cmha_euler_forward(&p->euler, NULL, NULL, NULL))                                 \
    ROW(cmha_euler_backward, cmha_euler_backward(&p->euler, NULL, NULL, NULL, NULL))                         \
    ROW(cmha_frequencies, cmha_frequencies(CMHA_FREQUENCY_ROPE, 1e4, 0, NULL, NULL))                         \
    ROW(cmha_rotation_table, cmha_rotation_table(NULL, 0, 9, 0, NULL),                                       \
        cmha_rotation_table(NULL, 4, 0, PTRDIFF_MIN, NULL))                                                  \
    ROW(cmha_rotate_forward, cmha_rotate_forward(&p->rotate, NULL, 8, 0, NULL, 8))                           \
    ROW(cmha_rotate_backward, cmha_rotate_backward(&p->rotate, NULL, 8, 0, NULL, 8, NULL, NULL, NULL))       \
    ROW(cmha_quotient_forward, cmha_quotient_forward(NULL, NULL, 0, 4, CMHA_QUOTIENT_EXACT, 0, NULL))        \
    ROW(cmha_quotient_backward,                                                                              \
        cmha_quotient_backward(NULL, NULL, NULL, 0, 4, CMHA_QUOTIENT_EXACT, 0, NULL, NULL))                  \
    ROW(cmha_elementwise_complex_forward, cmha_elementwise_complex_forward(NULL, NULL, 0, 4, NULL))          \
    ROW(cmha_elementwise_complex_backward,                                                                   \
        cmha_elementwise_complex_backward(NULL, NULL, NULL, 0, 4, NULL, NULL))                               \
    ROW(cmha_mobius_forward, cmha_mobius_forward(NULL, NULL, 0, 4, CMHA_QUOTIENT_UNIT, 0, NULL))             \
    ROW(cmha_mobius_backward,                                                                                \
        cmha_mobius_backward(NULL, NULL, NULL, 0, 4, CMHA_QUOTIENT_UNIT, 0, NULL, NULL))                     \
    ROW(cmha_cope_table, cmha_cope_table(CMHA_COPE_IMAG_LEARNED, 0, 7, 1e4, 0, NULL))                        \
    ROW(cmha_heads_by_head, EQUAL(cmha_heads_by_head(NULL, 2, 3, 4, 1).batch, 48))                           \
    ROW(cmha_heads_by_token, EQUAL(cmha_heads_by_token(NULL, 3, 16, 4, 8).imag, 8))                          \
    ROW(cmha_cope_set_args, p->cope.score = (cmha_cope_score)99,                                             \
        cmha_cope_set_args(&p->attention, &p->cope), EQUAL(p->attention.kind, CMHA_ATTENTION_COMPLEX))       \
    ROW(cmha_alibi_slopes, cmha_alibi_slopes(0, NULL))                                                       \
    ROW(cmha_attention_scratch, EQUAL(cmha_attention_scratch(&p->wide, 0), SIZE_MAX),                        \
        EQUAL(cmha_attention_scratch(&p->wide, 1), SIZE_MAX))                                                \
    ROW(cmha_attention_forward, cmha_attention_forward(&p->attention, &p->nothing, NULL, p->number))         \
    ROW(cmha_attention_backward,                                                                             \
        cmha_attention_backward(&p->attention, &p->nothing, NULL, NULL, NULL, p->number))                    \
    ROW(cmha_linear_attention_scratch, EQUAL(cmha_linear_attention_scratch(&p->wide_linear, 1), SIZE_MAX))   \
    ROW(cmha_linear_attention_saved, EQUAL(cmha_linear_attention_saved(&p->wide_linear), SIZE_MAX))          \
    ROW(cmha_linear_attention_state, EQUAL(cmha_linear_attention_state(&p->wide_linear), SIZE_MAX))          \
    ROW(cmha_linear_attention_forward,                                                                       \
        cmha_linear_attention_forward(&p->linear, &p->nothing, NULL, p->number))                             \
    ROW(cmha_linear_attention_append,                                                                        \
        cmha_linear_attention_append(&p->linear, &p->nothing, NULL, p->number))                              \
    ROW(cmha_linear_attention_backward,                                                                      \
        cmha_linear_attention_backward(&p->linear, &p->nothing, NULL, p->number))                            \
    ROW(cmha_lag_attention_scratch, EQUAL(cmha_lag_attention_scratch(&p->wide_lag), SIZE_MAX))               \
    ROW(cmha_lag_attention_forward, cmha_lag_attention_forward(&p->lag, &p->nothing, NULL, p->number))       \
    ROW(cmha_lag_attention_backward, cmha_lag_attention_backward(&p->lag, &p->nothing, NULL, p->number))     \
    ROW(cmha_pcl_scratch, EQUAL(cmha_pcl_scratch(&p->wide_pcl), SIZE_MAX))                                   \
    ROW(cmha_pcl_forward, SAME(cmha_pcl_forward(&p->pcl, NULL, NULL, p->number), 0))                         \
    ROW(cmha_pcl_backward, cmha_pcl_backward(&p->pcl, NULL, NULL, 1, NULL, NULL, p->number))                 \
    ROW(cmha_complex_linear_forward, cmha_complex_linear_forward(&p->map, NULL, NULL, NULL, NULL, NULL))     \
    ROW(cmha_complex_linear_backward,                                                                        \
        cmha_complex_linear_backward(&p->map, NULL, NULL, NULL, &p->no_grads, NULL))                         \
    ROW(cmha_complex_rotate_forward, cmha_complex_rotate_forward(NULL, NULL, 0, 4, NULL))                    \
    ROW(cmha_complex_rotate_backward, cmha_complex_rotate_backward(NULL, NULL, NULL, 0, 4, NULL, NULL))      \
    ROW(cmha_complex_norm_forward, cmha_complex_norm_forward(&p->norm, NULL, NULL, NULL, NULL, NULL))        \
    ROW(cmha_complex_norm_backward,                                                                          \
        cmha_complex_norm_backward(&p->norm, NULL, NULL, NULL, NULL, &p->no_grads))                          \
    ROW(cmha_phasor_forward, cmha_phasor_forward(NULL, 0, 4, 0, NULL))                                       \
    ROW(cmha_phasor_backward, cmha_phasor_backward(NULL, NULL, 0, 4, 0, NULL))                               \
    ROW(cmha_multifreq_waves, cmha_multifreq_waves(0, 4, 1e4, NULL, NULL))                             \
    ROW(cmha_sizeof, SAME(cmha_sizeof(NULL), 0))                                                             \
    ROW(cmha_sum_squares, SAME(cmha_sum_squares(NULL, 0), 0))                                                \
    ROW(cmha_componentwise_clip, cmha_componentwise_clip(CMHA_CLIP_GLOBAL, 1, NULL, 0))                      \
    ROW(cmha_complex_residual_forward, cmha_complex_residual_forward(&p->residual, NULL, NULL, NULL))        \
    ROW(cmha_complex_residual_backward,                                                                      \
        cmha_complex_residual_backward(&p->residual, NULL, NULL, NULL, NULL, NULL))                          \
    ROW(cmha_router_forward, cmha_router_forward(&p->route, NULL, NULL, NULL, NULL))                         \
    ROW(cmha_router_backward, cmha_router_backward(&p->route, NULL, NULL, NULL, &p->no_grads))               \
    ROW(cmha_route_size, EQUAL(cmha_route_size(TOP, 4, 4), SIZE_MAX),                                        \
        EQUAL(cmha_route_size(0, SIZE_MAX, 1), SIZE_MAX))                                                    \
    ROW(cmha_route_forward, cmha_route_forward(&p->route, NULL, p->plan, NULL), EQUAL(p->plan[0], 0))        \
    ROW(cmha_route_backward, cmha_route_backward(&p->route, NULL, NULL, NULL, NULL))                         \
    ROW(cmha_experts_scratch, EQUAL(cmha_experts_scratch(&p->wide_experts, 0), SIZE_MAX),                    \
        EQUAL(cmha_experts_scratch(&p->wide_experts, 1), SIZE_MAX))                                          \
    ROW(cmha_experts_forward, cmha_experts_forward(&p->experts, &p->weights, NULL, NULL, p->number))         \
    ROW(cmha_experts_backward,                                                                               \
        cmha_experts_backward(&p->experts, &p->weights, NULL, NULL, &p->grads, p->number))                   \
    ROW(cmha_balance_forward, SAME(cmha_balance_forward(&p->route, NULL, p->doubles), 0))                    \
    ROW(cmha_balance_backward, cmha_balance_backward(&p->route, NULL, p->doubles, 1, NULL))                  \
    ROW(cmha_adamw, cmha_adamw(&p->adamw, 0, NULL, NULL, NULL, NULL))                                        \
    ROW(cmha_learning_rate,                                                                                  \
        SAME(cmha_learning_rate(&(cmha_rate){CMHA_SCHEDULE_COSINE, 1, 0.5, 0, 0, 0}, SIZE_MAX), 0.5),        \
        SAME(cmha_learning_rate(&(cmha_rate){CMHA_SCHEDULE_LINEAR, 1, 0, 0, 0, 0}, 0), 1))                   \
    ROW(cmha_lion, cmha_lion(&p->adamw, 0, NULL, NULL, NULL))                                                \
    ROW(cmha_ema, cmha_ema(0.9, 0, NULL, NULL))                                                              \
    ROW(cmha_momentum, cmha_momentum(&p->adamw, 0, NULL, NULL, NULL))                                        \
    ROW(cmha_descend, cmha_descend(&p->adamw, 0, NULL, NULL))                                                \
    ROW(cmha_muon, cmha_muon(CMHA_UPDATE_RMS, &(cmha_matrix){NULL, 0, 5, 0}, NULL))                          \
    ROW(cmha_muon_scratch, EQUAL(cmha_muon_scratch(TOP, TOP, 1), SIZE_MAX))                                  \
    ROW(cmha_packed_words, EQUAL(cmha_packed_words(CMHA_STORAGE_BF16, TOP, TOP), SIZE_MAX),                  \
        EQUAL(cmha_packed_words(CMHA_STORAGE_INT8, 0, 9), 0))                                                \
    ROW(cmha_pack, cmha_pack(&p->packed, NULL))                                                              \
    ROW(cmha_unpack, cmha_unpack(&p->packed, 0, 0, NULL))                                                    \
    ROW(cmha_packed_forward, cmha_packed_forward(&p->packed, NULL, 0, 0, 0, NULL, 0))                        \
    ROW(cmha_round_rows, cmha_round_rows(&p->packed, NULL, 0, 0, &p->rounded))                               \
    ROW(cmha_rounded_forward, cmha_rounded_forward(&p->packed, &p->rounded, 0, 0, NULL, 0))                  \
    ROW(cmha_rng_make, EQUAL(cmha_rng_make(UINT64_MAX, UINT64_MAX).counter, 0))                              \
    ROW(cmha_rng_next, EQUAL(cmha_rng_next(&p->last) == cmha_rng_next(&p->last), 0))                         \
    ROW(cmha_rng_uniform, EQUAL(cmha_rng_uniform(&p->last) < 1, 1))                                          \
    ROW(cmha_rng_normal, EQUAL(fabs(cmha_rng_normal(&p->last)) < 99, 1))                                     \
    ROW(cmha_rng_below, EQUAL(cmha_rng_below(&p->last, 0), 0), EQUAL(cmha_rng_below(&p->last, 1), 0))        \
    ROW(cmha_frames, CHECK(cmha_frames(NULL, 0, 1, 3, 1, NULL) == 0 &&                                       \
        cmha_frames(NULL, 7, 2, 3, 2, NULL) == 3))                                                           \
    ROW(cmha_mask_tokens, cmha_mask_tokens(&p->mask, NULL, NULL, &p->last))                                  \
    ROW(cmha_sample, EQUAL(cmha_sample(&p->sampler, NULL, 0, NULL, 0, &p->last, NULL), -1))                  \
    ROW(cmha_status_string, EQUAL(cmha_status_string((cmha_status)-7)[0], 'a'),                              \
        EQUAL(cmha_status_string((cmha_status)99)[0], 'a'))                                                  \
    ROW(cmha_error, EQUAL(cmha_error(NULL)[0], 0))                                                           \
    ROW(cmha_instructions, EQUAL(cmha_instructions("mmx") || cmha_instructions(""), 0))                      \
    ROW(cmha_blas_name, EQUAL(cmha_blas_name(NULL, 9)[0], 0), EQUAL(cmha_blas_name(p->text, 0)[0], 0))       \
    ROW(cmha_blas_restart, cmha_blas_restart(NULL))                                                          \
    ROW(cmha_preset_name, EQUAL(cmha_preset_name(SIZE_MAX) != NULL, 0))                                      \
    ROW(cmha_kind_name, EQUAL(cmha_kind_name(SIZE_MAX, NULL) != NULL, 0))                                    \
    ROW(cmha_optimiser_name, EQUAL(cmha_optimiser_name(NULL, 0) != NULL, 0))                                 \
    ROW(cmha_config_defaults, cmha_config_defaults(cmha_model_table(), NULL))                                \
    ROW(cmha_config_get, cmha_config_get(cmha_model_table(), NULL, "nothing", NULL, 9),                      \
        cmha_config_get(cmha_model_table(), NULL, cmha_model_table().fields[0].name, p->text, 0))            \
    ROW(cmha_parameters_close, cmha_parameters_close(NULL), cmha_parameters_close(&p->model.parameters))     \
    ROW(cmha_parameters_find, EQUAL(cmha_parameters_find(NULL, "x") != NULL, 0),                             \
        EQUAL(cmha_parameters_find(&p->model.parameters, NULL) != NULL, 0))                                  \
    ROW(cmha_parameters_zero_grad, cmha_parameters_zero_grad(NULL),                                          \
        cmha_parameters_zero_grad(&p->model.parameters))                                                     \
    ROW(cmha_knowledge_text, p->count = 1, EQUAL(cmha_knowledge_text(NULL, 0, &p->count) ||                  \
        cmha_knowledge_text(&p->base, SIZE_MAX, NULL), 0), EQUAL(p->count, 0))                               \
    ROW(cmha_trainer_split, cmha_trainer_split(NULL, NULL, &p->tokens, NULL), EQUAL(p->tokens.count, 0),     \
        cmha_trainer_split(&p->trainer, &p->four, NULL, &p->tokens), EQUAL(p->tokens.count, 0),              \
        cmha_trainer_split(NULL, &p->four, &p->tokens, NULL), EQUAL(p->tokens.count, 4))                     \
    ROW(cmha_tokens_at, EQUAL(cmha_tokens_at(NULL, 0), -1), EQUAL(cmha_tokens_at(&p->empty, 0), -1),         \
        EQUAL(cmha_tokens_at(&p->four, 4), -1), EQUAL(cmha_tokens_at(&p->four, SIZE_MAX), -1))               \
    ROW(cmha_tokens_part, EQUAL(cmha_tokens_part(NULL, 0, 9).count, 0), EQUAL(cmha_tokens_part(&p->four, 3,  \
        SIZE_MAX).count, 1), EQUAL(cmha_tokens_part(&p->four, SIZE_MAX, 2).count, 0))                        \
    ROW(cmha_tape_grad, EQUAL(cmha_tape_grad(NULL, NULL) != NULL, 0))                                        \
    ROW(cmha_tape_reset, cmha_tape_reset(NULL), cmha_tape_reset(&p->tape))                                   \
    ROW(cmha_cache_reset, cmha_cache_reset(NULL), cmha_cache_reset(&p->cache))                               \
    ROW(cmha_context_close, cmha_context_close(NULL), cmha_context_close(&p->context))                       \
    ROW(cmha_tape_close, cmha_tape_close(NULL), cmha_tape_close(&p->tape))                                   \
    ROW(cmha_model_close, cmha_model_close(NULL), cmha_model_close(&p->model))                               \
    ROW(cmha_trainer_close, cmha_trainer_close(NULL), cmha_trainer_close(&p->trainer))                       \
    ROW(cmha_cache_close, cmha_cache_close(NULL), cmha_cache_close(&p->cache))                               \
    ROW(cmha_knowledge_close, cmha_knowledge_close(NULL), cmha_knowledge_close(&p->base))                    \
    ROW(cmha_archive_find, EQUAL(cmha_archive_find(NULL, "x") || cmha_archive_find(&p->archive, "x"), 0))    \
    ROW(cmha_archive_metadata,                                                                               \
        EQUAL(cmha_archive_metadata(NULL, "x") || cmha_archive_metadata(&p->archive, NULL), 0))              \
    ROW(cmha_archive_close, cmha_archive_close(NULL), cmha_archive_close(&p->archive))                       \
    ROW(cmha_tokens_close, cmha_tokens_close(NULL), cmha_tokens_close(&p->empty))

#define ROWS(ROW) \
    ROWS_OPENING(ROW) ROWS_CONFIG(ROW) ROWS_USING(ROW) ROWS_TAPE(ROW) ROWS_OPS(ROW) ROWS_ATTENTION(ROW) \
    ROWS_FILES(ROW) ROWS_OBJECTS(ROW)

typedef struct row {
    const char *name, *word, *text; /* its name, of its line, what it does */
    cmha_status want;
    cmha_status (*act)(fixture *f);
} row;

#define ROW_FUNCTION(name, want, word, ...) \
    static cmha_status row_##name(fixture *f) { return (void)f, __VA_ARGS__; }
ROWS(ROW_FUNCTION)
#define ROW_ENTRY(name, want, word, ...) {#name, word, #__VA_ARGS__, want, row_##name},
static const row rows[] = {ROWS(ROW_ENTRY)};

#define PLAIN_FUNCTION(name, ...) \
    static void plain_##name(plain *p) { (void)p, __VA_ARGS__; }
ROWS_PLAIN(PLAIN_FUNCTION)
#define PLAIN_ENTRY(name, ...) {#name, #__VA_ARGS__, plain_##name},
static const struct {
    const char *name, *text;
    void (*act)(plain *p);
} plain_rows[] = {ROWS_PLAIN(PLAIN_ENTRY)};

/* --------------------------------------------- running them --------------------------------------------- */

/* One line, not cut off, naming what it is about. */
static void check_line(const char *name, const cmha_context *context, const char *word) {
    const char *line = cmha_error(context);
    size_t length = strlen(line);
    CHECK_THAT(length > 0 && length < sizeof context->detail, "%s: a line of %zu characters", name, length);
    CHECK_THAT(!strpbrk(line, "\n\r\t\x1b"), "%s: not one line: %s", name, line);
    CHECK_THAT(strstr(line, word) != NULL, "%s: \"%s\" does not say \"%s\"", name, line, word);
}

static void run(const row *r, uint64_t reference) {
    fixture f;
    cmha_status got;
    uint64_t now;
    open_fixture(&f);
    got = r->act(&f);
    CHECK_THAT(got == r->want, "%s: \"%s\", expected \"%s\" (%s)", r->name, cmha_status_string(got),
               cmha_status_string(r->want), cmha_error(&f.ctx));
    if (r->want && r->word) check_line(r->name, f.said, r->word);
    if (f.ctx.open) {
        now = healthy(&f, r->name);
        CHECK_THAT(now == reference, "%s: afterwards other numbers come out", r->name);
    }
    close_fixture(&f);
    CHECK_THAT(check_heap_empty(&f.heap), "%s: %zu bytes leak, %d sizes are wrong", r->name, f.heap.bytes,
               f.heap.mismatch);
}

static void run_plain(void) {
    plain p;
    size_t i;
    for (i = 0; i < sizeof plain_rows / sizeof *plain_rows; i++) {
        if (getenv("CMHA_TEST_LOUD")) printf("%s\n", plain_rows[i].name), fflush(stdout);
        plain_open(&p);
        plain_rows[i].act(&p);
        check_passed++; /* it came back */
    }
}

/* Does this text call the function? */
static int calls(const char *text, const char *function) {
    size_t n = strlen(function);
    const char *at;
    for (at = strstr(text, function); at; at = strstr(at + n, function))
        if (at[n] == '(') return 1;
    return 0;
}

/* Every public function has a row in which it is refused or a plain row, but for those that take nothing. */
static void every_function(void) {
    static const char *const take_nothing[] = {"cmha_version", "cmha_blas_remedy", "cmha_model_table",
                                               "cmha_trainer_table", "cmha_sampler_table"};
    FILE *symbols = fopen("tests/symbols.txt", "r");
    char kind[16], name[96];
    size_t functions = 0, i;
    CHECK_THAT(symbols != NULL, "tests/symbols.txt cannot be read: this test runs in the folder above it");
    while (symbols && fscanf(symbols, "%15s %95s", kind, name) == 2) {
        int found = 0;
        if (strcmp(kind, "function") != 0) continue;
        for (i = 0; i < sizeof rows / sizeof *rows; i++) found |= rows[i].want && calls(rows[i].text, name);
        for (i = 0; i < sizeof plain_rows / sizeof *plain_rows; i++)
            found |= !strcmp(plain_rows[i].name, name) && calls(plain_rows[i].text, name);
        for (i = 0; i < sizeof take_nothing / sizeof *take_nothing; i++)
            found |= !strcmp(take_nothing[i], name);
        CHECK_THAT(found, "%s has no row of bad arguments", name);
        functions++;
    }
    CHECK(functions > 200);
    if (symbols) fclose(symbols);
}

/* Every field of every configuration, below and above its range, and what is no number. */
static void every_field(cmha_table table, void *config, const char *of) {
    static const char *const no_names[] = {" ", "a b", "a=b", "a\nb", "\xff", "\"",
                                           "longer than any of our names may be",
                                           "01234567890123456789012345678901"};
    static const double wild[] = {-1e300, -1, 4611686018427387904.0, 18446744073709551616.0, 1e300};
    static const char *const texts[] = {"",    " ", "-", "1e", "nan", "0x10", "1 ", "99999999999999999999999",
                                        "\xff"};
    cmha_context c;
    char kept[32], text[32];
    size_t i, j;
    check_context(&c, 1, 1);
    for (i = 0; i < table.count; i++) {
        const cmha_field *field = &table.fields[i];
        cmha_config_defaults(table, config);
        cmha_config_get(table, config, table.fields[i].name, kept, sizeof kept);
        int is_name = field->type == CMHA_FIELD_NAME;
        const char *const *bad = is_name ? no_names : texts;
        for (j = 0; j < (is_name ? sizeof no_names : sizeof texts) / sizeof *texts; j++) {
            CHECK_THAT(cmha_config_set(&c, table, config, field->name, bad[j]) == CMHA_ERR_ARGUMENT,
                       "%s takes \"%s\"", field->name, bad[j]);
            check_line(field->name, &c, field->name);
        }
        for (j = 0; !is_name && j < sizeof wild / sizeof *wild; j++) {
            if (wild[j] >= field->minimum && wild[j] <= field->maximum) continue;
            snprintf(text, sizeof text, "%.17g", wild[j]);
            CHECK_THAT(cmha_config_set(&c, table, config, field->name, text) == CMHA_ERR_ARGUMENT,
                       "%s takes %s", field->name, text);
        }
        cmha_config_get(table, config, table.fields[i].name, text, sizeof text);
        CHECK_THAT(!strcmp(text, kept), "%s: refused values have changed it", field->name);
        CHECK_THAT(!cmha_config_check(&c, table, config), "%s: %s", of, cmha_error(&c));
        if (field->type == CMHA_FIELD_SIZE && field->minimum > 0) {
            memset((char *)config + field->offset, 0, sizeof(size_t));
            CHECK_THAT(cmha_config_check(&c, table, config) == CMHA_ERR_ARGUMENT, "%s may be 0", field->name);
        }
        memset((char *)config + field->offset, 0xff, field->type == CMHA_FIELD_SIZE   ? sizeof(size_t)
                                                     : field->type == CMHA_FIELD_REAL ? sizeof(double)
                                                                                      : sizeof(int));
        CHECK_THAT(cmha_config_check(&c, table, config) == CMHA_ERR_ARGUMENT, "%s may be anything",
                   field->name);
        check_line(field->name, &c, field->name);
    }
    cmha_config_get(table, config, "nothing", text, sizeof text);
    CHECK(text[0] == 0); /* there is no such field */
    cmha_context_close(&c);
}

/* The files that some rows read. */
static void write_files(void) {
    fixture f;
    FILE *file;
    snprintf(weights_path, sizeof weights_path, "%s/weights.safetensors", folder);
    snprintf(state_path, sizeof state_path, "%s/state.safetensors", folder);
    snprintf(text_path, sizeof text_path, "%s/text", folder);
    snprintf(missing_path, sizeof missing_path, "%s/missing", folder);
    open_fixture(&f);
    CHECK_OK(cmha_model_save(&f.decoder, weights_path));
    CHECK_OK(cmha_trainer_save(&f.trainer, state_path));
    close_fixture(&f);
    file = fopen(text_path, "wb");
    if (file) fputs("an odd number of bytes here", file), fclose(file);
}

int main(int argc, char **argv) {
    static cmha_model_config m;
    static cmha_trainer_config t;
    static cmha_sampler_config s;
    fixture f;
    uint64_t reference;
    size_t i;
    cmha_blas_restart(argv);
    nan_labels[0] = nan_labels[1] = (cmha_real)NAN;
    if (!system_folder(folder)) return perror(folder), 2;
    write_files();
    open_fixture(&f);
    reference = healthy(&f, "nothing wrong");
    close_fixture(&f);
    CHECK(check_heap_empty(&f.heap));
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (argc > 1 && strcmp(argv[1], rows[i].name) != 0) continue;
        if (sizeof(size_t) < 8 && (strstr(rows[i].name, "_2_") || strstr(rows[i].name, "_max"))) continue;
        if (getenv("CMHA_TEST_LOUD")) printf("%s\n", rows[i].name), fflush(stdout);
        run(&rows[i], reference);
    }
    if (argc < 2) run_plain(), every_function();
    every_field(cmha_model_table(), &m, "model"), every_field(cmha_trainer_table(), &t, "trainer"),
        every_field(cmha_sampler_table(), &s, "sampler");
    CHECK(access(missing_path, F_OK) != 0); /* nothing was written where writing was refused */
    remove(weights_path), remove(state_path), remove(text_path), remove(folder);
    return check_end();
}
