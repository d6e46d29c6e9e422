/* Memory that runs out. Every call that allocates is run with an allocator that refuses its k-th request,
        for every k until the call
   succeeds, in two ways: that request alone, and all from it on. Each time the call must say MEMORY in one
   line, give back what it took, and leave objects that close without a leak or, tried again with memory, give
   the numbers they give without a failure, to the bit. */
#include "ops.h"
#include "system.h"

enum { BATCH = 2, LENGTH = 20, CAPACITY = 12, VOCABULARY = 19, IDS = 120 };

static char folder[64] = "/tmp/cmha-memory-XXXXXX";
static char weights_path[128], packed_path[128], state_path[128], text_path[128], out_path[128];
static int32_t ids[IDS];
static const cmha_real labels[BATCH] = {0, 2};

/* A model of each family, decoders and encoders */
typedef struct family {
    const char *name, *fields;
} family;

static const family families[] = {
    {"real", "pcl_weight=0.1 dropout=0.1 attention_dropout=0.1"},
    {"real, grouped",
     "n_kv_heads=2 activation=swiglu norm=rmsnorm tied=0 head_bias=1 position=alibi window=3"},
    {"real, post-norm, learned", "attention=rope placement=post position=learned attention_bias=1"},
    {"real, frequencies", "frequency=table attention=rope"},
    {"real, of today", "qk_norm=rms_gain score_softcap=2 logit_softcap=5 n_kv_heads=2 window=4 sinks=1 "
                       "norm=rmsnorm_one_plus activation=relu2 tied=0"},
    {"real, mixed", "parallel=norms value_residual=1 residual_mix=1 n_kv_heads=2 n_layers=3 dropout=0.1 "
                    "z_loss=1e-3"},
    {"real, layers of kinds", "placement=sandwich activation=geglu_tanh layer_kinds=lgn window=4 "
                              "local_base=9 n_layers=3 qk_norm=rms_whole n_kv_heads=2 head_scale=0.5 "
                              "embedding_factor=2"},
    {"real, encoder of kinds", "placement=after causal=0 layer_kinds=gl window=4 norm=layernorm_gain "
                               "activation=geglu_erf head_scale=0.5 head_transform=0 dropout=0.1"},
    {"real, first layer without a norm", "causal=0 first_norm=0 embedding_norm=1 head_transform=1 "
                                         "activation=geglu_erf ffn_bias=0 n_layers=3 dropout=0.1"},
    {"real, encoder", "causal=0 classes=3 token_types=2 position=sinusoidal dropout=0.1"},
    {"real, heads of their own",
     "attention=rope layout=half d_head=12 rotary_dims=8 qkv_bias=1 rope_scaling=linear rope_factor=2"},
    {"real, BERT", "attention=dot causal=0 classes=3 token_types=2 position=learned placement=post "
                   "attention_bias=1 head_bias=1 embedding_norm=1 head_transform=1 pooler=1 dropout=0.1"},
    {"cope", "family=cope attention=dot cope_score=hybrid_norm cope_imag=learned cope_gamma=0.5"},
    {"cope, linear", "family=cope attention=dot cope_score=linear"},
    {"cope, of today", "family=cope attention=dot cope_score=real qk_norm=rms_gain score_softcap=2"},
    {"cope, encoder",
     "family=cope attention=dot cope_score=phase causal=0 classes=1 label_range=5 pool=mean placement=post"},
    {"mobius", "family=mobius attention=dot position=learned placement=post mobius_init=ortho n_layers=2"},
    {"mobius, alone",
     "family=mobius attention=dot position=sinusoidal placement=post mobius_heads=4 mobius_mode=full"},
    {"mobius, encoder",
     "family=mobius attention=rope position=learned placement=post mobius_mode=literal causal=0"},
    {"crat", "family=crat real_heads=1 imag_heads=1 phase_reg=0.1 mag_reg=0.1 embedding_scale=1"},
    {"real, adapters", "lora_rank=2 lora_on=* activation=swiglu dropout=0.1"},
    {"crat, adapters", "family=crat real_heads=1 lora_rank=2 lora_on=* recompute=1"},
    {"crat, low rank", "family=crat low_rank=2 real_heads=1 complex_norm=whiten dropout=0.1"},
    {"crat, experts", "family=crat experts=3 complex_residual=free imag_heads=2"},
    {"crat, linear", "family=crat crat_attention=linear"},
    {"crat, encoder", "family=crat crat_attention=lag causal=0 classes=3 complex_norm=split"},
};

typedef struct world {
    check_heap heap;
    const family *family;
    cmha_context ctx;
    cmha_model_config mc;
    cmha_trainer_config tc;
    cmha_model model, spare;
    cmha_trainer trainer;
    cmha_cache cache;
    cmha_tape tape;
    cmha_tokens tokens, spare_tokens;
    cmha_archive archive;
    cmha_batch batch;
    cmha_real number;
    uint64_t digest;
    size_t at;                 /* of the tape's operations: which */
    size_t used[2], before[2]; /* bytes it takes of the tape's two arenas, and that are taken before it */
} world;

static void digest(world *w, const void *data, size_t bytes) {
    const unsigned char *from = (const unsigned char *)data;
    while (bytes-- > 0) w->digest = (w->digest ^ *from++) * 0x100000001b3u;
}

static void digest_model(world *w, const cmha_model *model) {
    digest(w, model->parameters.data, model->parameters.size * sizeof *model->parameters.data);
}

/* -------------------------------------------- what may fail --------------------------------------------- */

static cmha_status init_model(world *w) {
    cmha_status s = cmha_model_init(&w->spare, &w->ctx, &w->mc);
    if (!s) digest_model(w, &w->spare), cmha_model_close(&w->spare);
    return s;
}

static cmha_status model_memory(world *w) {
    size_t parameters = 0, training = 0;
    cmha_status s = cmha_model_memory(&w->ctx, &w->mc, BATCH, LENGTH, &parameters, &training);
    digest(w, &parameters, sizeof parameters), digest(w, &training, sizeof training);
    return s;
}

static cmha_status loss(world *w) {
    double value = 0;
    cmha_status s = cmha_model_loss(&w->model, &w->batch, &value);
    digest(w, &value, sizeof value);
    return s;
}

static cmha_status logits(world *w) {
    static cmha_real out[BATCH * LENGTH * VOCABULARY];
    cmha_status s = cmha_model_logits(&w->model, &w->batch, out);
    digest(w, out, sizeof out);
    return s;
}

static cmha_status classify(world *w) {
    cmha_real out[BATCH * 3] = {0};
    cmha_status s = w->mc.classes ? cmha_model_classify(&w->model, &w->batch, out) : CMHA_OK;
    digest(w, out, sizeof out);
    return s;
}

static cmha_status attention(world *w) {
    static cmha_real out[BATCH * LENGTH * LENGTH];
    cmha_status s = cmha_model_attention(&w->model, &w->batch, 0, 0, CMHA_SEE_PROBABILITIES, out);
    digest(w, out, sizeof out);
    return s;
}

static cmha_status gradient(world *w) {
    double value = 0;
    cmha_status s;
    cmha_parameters_zero_grad(&w->model.parameters);
    s = cmha_model_gradient(&w->model, &w->batch, 0.5, 3, &value);
    digest(w, &value, sizeof value);
    if (!s) digest(w, w->model.parameters.grad, w->model.parameters.learning * sizeof(cmha_real));
    return s;
}

static cmha_status label_gradient(world *w) {
    if (!w->mc.classes) return CMHA_OK;
    w->batch.labels = labels;
    return gradient(w);
}

/* An objective of one's own on a tape of one's own. */
static cmha_status own_tape(world *w) {
    static const cmha_real targets[BATCH * LENGTH] = {1, -1, 2};
    cmha_tensor *y, *extra;
    cmha_parameters_zero_grad(&w->model.parameters);
    cmha_tape_reset(&w->tape);
    w->tape.key = 5;
    y = cmha_model_forward(&w->model, &w->tape, &w->batch, &extra);
    y = cmha_squared_error(&w->tape, cmha_slice(&w->tape, y, 2, 0, 1), targets);
    if (extra) y = cmha_add(&w->tape, y, extra);
    if (cmha_tape_backward(&w->tape, y, 1)) return cmha_tape_status(&w->tape);
    digest(w, w->model.parameters.grad, w->model.parameters.learning * sizeof(cmha_real));
    return CMHA_OK;
}

static cmha_status init_trainer(world *w) {
    cmha_status s = cmha_trainer_init(&w->trainer, &w->model, &w->tc);
    digest(w, &w->trainer.seed, sizeof w->trainer.seed);
    if (!s) cmha_trainer_close(&w->trainer);
    return s;
}

static void digest_trainer(world *w) {
    digest_model(w, &w->model);
    digest(w, w->model.parameters.moments, 2 * w->model.parameters.learning * sizeof(cmha_real));
    digest(w, &w->trainer.step, sizeof w->trainer.step);
}

static cmha_status step(world *w) {
    double value = 0;
    cmha_status s = cmha_trainer_step(&w->trainer, &w->tokens, &value);
    digest(w, &value, sizeof value);
    if (!s) digest_trainer(w);
    return s;
}

/* More tokens than the trainer was opened for: the tape grows. */
static cmha_status fit(world *w) {
    double value = 0;
    cmha_status s;
    w->batch.batch = 3, w->batch.length = 33;
    s = cmha_trainer_step_batch(&w->trainer, &w->batch, &value);
    digest(w, &value, sizeof value);
    if (!s) digest_trainer(w);
    return s;
}

static cmha_status evaluate(world *w) {
    double value = 0;
    cmha_status s = cmha_trainer_evaluate(&w->trainer, &w->tokens, &value);
    digest(w, &value, sizeof value);
    return s;
}

static cmha_status init_cache(world *w) {
    cmha_status s;
    if (!w->mc.causal) return CMHA_OK;
    s = cmha_cache_init(&w->cache, &w->model, BATCH, CAPACITY, 1, NULL);
    digest(w, &w->cache.size, sizeof w->cache.size);
    if (!s) cmha_cache_close(&w->cache);
    return s;
}

/* The tokens after those that are held already: refused, the cache is as before. */
static cmha_status append_more(world *w, size_t n) {
    static cmha_real out[VOCABULARY];
    cmha_cache *cache = &w->cache;
    size_t held = cache->length, first = cache->first;
    cmha_status s = cmha_cache_append(cache, ids + 6, n, out);
    CHECK_THAT(!s || (cache->length == held && cache->first == first), "%s: %zu tokens held, %zu before",
               w->family->name, cache->length, held);
    digest(w, out, sizeof out);
    digest(w, cache->ids, cache->length * sizeof(int32_t));
    return s;
}

static cmha_status append(world *w) { return w->mc.causal ? append_more(w, 5) : CMHA_OK; }
static cmha_status slide(world *w) { return w->mc.causal ? append_more(w, 10) : CMHA_OK; }
static cmha_status overflow(world *w) { return w->mc.causal ? append_more(w, 30) : CMHA_OK; }

/* Token after token, over the place where the cache slides; a refused one is tried again by itself. */
static cmha_status token_by_token(world *w) {
    static cmha_real out[VOCABULARY];
    cmha_status s = CMHA_OK;
    if (!w->mc.causal) return s;
    for (; !s && w->at < 20; w->at += !s) s = cmha_cache_append(&w->cache, ids + w->at, 1, out);
    digest(w, out, sizeof out), digest(w, w->cache.ids, w->cache.length * sizeof(int32_t));
    return s;
}

static cmha_status generate(world *w) {
    cmha_status s;
    if (!w->mc.causal) return CMHA_OK;
    cmha_cache_reset(&w->cache);
    s = cmha_generate(&w->cache, ids, 4, 12, NULL, 9, NULL, NULL); /* slides */
    digest(w, w->cache.ids, w->cache.length * sizeof(int32_t));
    return s;
}

static cmha_status pack(world *w) {
    cmha_status s = cmha_model_pack(&w->model, CMHA_STORAGE_INT8);
    digest(w, &w->model.packed.storage, sizeof w->model.packed.storage);
    if (!s) digest(w, w->model.packed.matrices[0].words, 64);
    return s;
}

static cmha_status merge(world *w) {
    size_t before = w->model.parameters.size;
    cmha_status s = w->mc.lora_rank ? cmha_model_merge(&w->model) : CMHA_OK;
    CHECK(s || !w->mc.lora_rank || w->model.parameters.size < before);
    digest_model(w, &w->model);
    return s;
}
static cmha_status save_part(world *w) { return cmha_model_save_part(&w->model, out_path); }
static cmha_status read_part(world *w) { return cmha_model_read(&w->model, weights_path, 2, NULL); }
static cmha_status save_model(world *w) { return cmha_model_save(&w->model, out_path); }
static cmha_status save_trainer(world *w) { return cmha_trainer_save(&w->trainer, out_path); }

static cmha_status load_packed(world *w) {
    cmha_status s = cmha_model_open(&w->spare, &w->ctx, packed_path);
    if (!s) digest(w, w->spare.packed.matrices[0].words, 64), digest_model(w, &w->spare);
    if (!s) s = cmha_model_save(&w->spare, out_path);
    cmha_model_close(&w->spare);
    return s;
}

static cmha_status load_model(world *w) {
    cmha_status s = cmha_model_open(&w->spare, &w->ctx, weights_path);
    if (!s) digest_model(w, &w->spare), cmha_model_close(&w->spare);
    return s;
}

static cmha_status load_trainer(world *w) {
    cmha_status s = cmha_trainer_read(&w->trainer, state_path);
    digest_trainer(w);
    return s;
}

static cmha_status load_tokens(world *w) {
    cmha_status s = cmha_tokens_open(&w->spare_tokens, &w->ctx, text_path, 2);
    digest(w, w->spare_tokens.data, w->spare_tokens.bytes);
    cmha_tokens_close(&w->spare_tokens);
    return s;
}

static cmha_status open_archive(world *w) {
    cmha_status s = cmha_archive_open(&w->archive, &w->ctx, state_path);
    size_t i;
    for (i = 0; i < w->archive.n_tensors; i++)
        digest(w, w->archive.tensors[i].name, strlen(w->archive.tensors[i].name));
    if (!s) cmha_archive_close(&w->archive);
    return s;
}

static cmha_status write_archive(world *w) {
    static const size_t shape[2] = {2, 2};
    static const char *const metadata[2] = {"key", "value"};
    cmha_archive_item item;
    memset(&item, 0, sizeof item);
    item.name = "x", item.data = ops_targets, item.shape = shape, item.rank = 2;
    return cmha_archive_write(&w->ctx, out_path, &item, 1, metadata, 1);
}

/* None of these takes any memory. */
static cmha_status open_nothing(world *w) {
    cmha_context other;
    cmha_tape tape;
    char text[32];
    size_t calls = w->heap.calls;
    CHECK_OK(cmha_context_init(&other, &w->ctx.config));
    CHECK_OK(cmha_config_set_all(&other, cmha_model_table(), &w->mc, "n_layers=2  d_ff=12"));
    CHECK_IS(cmha_config_set(&other, cmha_model_table(), &w->mc, "n_layers", "none"), CMHA_ERR_ARGUMENT);
    CHECK_OK(cmha_config_check(&other, cmha_model_table(), &w->mc));
    CHECK_OK(cmha_kind(&other, "cmha", &w->mc));
    cmha_config_get(cmha_model_table(), &w->mc, cmha_model_table().fields[0].name, text, sizeof text);
    CHECK_OK(cmha_tape_init(&tape, &other, 1));
    CHECK(cmha_parameters_find(&w->model.parameters, "tok_emb.weight") != NULL);
    cmha_tape_close(&tape), cmha_context_close(&other);
    CHECK(w->heap.calls == calls);
    return CMHA_OK;
}

/* One operation, forward and backward, after some memory of the tape is gone. */
static cmha_status one_operation(world *w) {
    size_t one = 1;
    ops_inputs s;
    cmha_tensor *y, *total;
    int i;
    s.tape = &w->tape, s.fill = OPS_PLAIN;
    cmha_tape_reset(&w->tape);
    w->tape.key = 7, check_seed = 1234;
    if (w->before[0]) cmha_tape_alloc(&w->tape, w->before[0]);
    while (w->tape.records.used < w->before[1] && cmha_tensor_wrap(&w->tape, 1, &one, &w->number, NULL)) {}
    total = ops_loss(&ops_all[w->at], &w->tape, &s, &y);
    if (cmha_tape_backward(&w->tape, total, 1)) return cmha_tape_status(&w->tape);
    w->used[0] = w->tape.memory.used, w->used[1] = w->tape.records.used;
    digest(w, y->data, y->size * sizeof *y->data);
    for (i = 0; i < s.n; i++)
        if (s.made[i]->grad) digest(w, s.made[i]->grad, s.made[i]->size * sizeof *y->data);
    return CMHA_OK;
}

/* ------------------------------------------------ worlds ------------------------------------------------ */

static void nothing(world *w) { (void)w; }
static void with_model(world *w) {
    CHECK_OK(cmha_model_init(&w->model, &w->ctx, &w->mc));
    CHECK_OK(cmha_tape_init(&w->tape, &w->ctx, 1));
}
static void with_trainer(world *w) {
    with_model(w);
    CHECK_OK(cmha_trainer_init(&w->trainer, &w->model, &w->tc));
}
static void with_cache(world *w) {
    with_model(w);
    if (w->mc.causal) CHECK_OK(cmha_cache_init(&w->cache, &w->model, 1, CAPACITY, 1, NULL));
    if (w->mc.causal) CHECK_OK(cmha_cache_append(&w->cache, ids, 3, NULL));
}

static void with_packed_cache(world *w) {
    cmha_cache_options o = {CMHA_STORAGE_BF16, 0, NULL, 0, 0};
    with_model(w);
    CHECK_OK(cmha_model_pack(&w->model, CMHA_STORAGE_INT8));
    if (w->mc.causal) CHECK_OK(cmha_cache_init(&w->cache, &w->model, 1, CAPACITY, 1, &o));
    if (w->mc.causal) CHECK_OK(cmha_cache_append(&w->cache, ids, 3, NULL));
}
static void with_tape(world *w) { CHECK_OK(cmha_tape_init(&w->tape, &w->ctx, 1)); }

typedef struct story {
    const char *name;
    void (*before)(world *w);
    cmha_status (*act)(world *w);
} story;

static const story stories[] = {
    {"cmha_model_init", nothing, init_model},
    {"cmha_model_memory", nothing, model_memory},
    {"cmha_model_loss", with_model, loss},
    {"cmha_model_logits", with_model, logits},
    {"cmha_model_classify", with_model, classify},
    {"cmha_model_attention", with_model, attention},
    {"cmha_model_gradient", with_model, gradient},
    {"cmha_model_gradient of labels", with_model, label_gradient},
    {"cmha_model_forward", with_model, own_tape},
    {"cmha_trainer_init", with_model, init_trainer},
    {"cmha_trainer_step", with_trainer, step},
    {"cmha_trainer_step_batch", with_trainer, fit},
    {"cmha_trainer_evaluate", with_trainer, evaluate},
    {"cmha_cache_init", with_model, init_cache},
    {"cmha_cache_append", with_cache, append},
    {"cmha_cache_append that slides", with_cache, slide},
    {"cmha_cache_append of more than fits", with_cache, overflow},
    {"cmha_cache_append token by token", with_cache, token_by_token},
    {"cmha_generate", with_cache, generate},
    {"cmha_model_pack", with_model, pack},
    {"cmha_cache_append that slides, INT8 weights and BF16 cache", with_packed_cache, slide},
    {"cmha_generate, INT8 weights and BF16 cache", with_packed_cache, generate},
    {"cmha_model_merge", with_model, merge},
    {"cmha_model_save", with_model, save_model},
    {"cmha_model_save_part", with_model, save_part},
    {"cmha_model_read of a part", with_model, read_part},
    {"cmha_trainer_save", with_trainer, save_trainer},
    {"cmha_model_open", nothing, load_model},
    {"cmha_model_open of a packed file", nothing, load_packed},
    {"cmha_trainer_read", with_trainer, load_trainer},
    {"cmha_tokens_open", nothing, load_tokens},
    {"cmha_archive_open", nothing, open_archive},
    {"cmha_archive_write", nothing, write_archive},
    {"configurations", with_model, open_nothing},
};
static const story operation = {"an operation", with_tape, one_operation};

static void open_world(world *w, const family *of) {
    cmha_context_config config;
    memset(w, 0, sizeof *w);
    config = check_heap_config(&w->heap);
    config.threads = 1;
    CHECK_OK(cmha_context_init(&w->ctx, &config));
    w->family = of, w->mc = check_model_config();
    w->mc.n_layers = 1, w->mc.max_positions = 64;
    CHECK_THAT(!cmha_config_set_all(&w->ctx, cmha_model_table(), &w->mc, of->fields), "%s: %s", of->name,
               cmha_error(&w->ctx));
    cmha_config_defaults(cmha_trainer_table(), &w->tc);
    w->tc.batch = BATCH, w->tc.length = LENGTH, w->tc.eval_tokens = 50, w->tc.lr = 0.01, w->tc.warmup = 0,
    w->tc.mask_rate = 0.5;
    w->tokens.data = ids, w->tokens.count = IDS, w->tokens.width = 4;
    w->batch.ids = w->batch.targets = ids, w->batch.batch = BATCH, w->batch.length = LENGTH;
}

static void close_world(world *w) {
    cmha_archive_close(&w->archive), cmha_tokens_close(&w->spare_tokens), cmha_tape_close(&w->tape),
        cmha_cache_close(&w->cache);
    cmha_trainer_close(&w->trainer), cmha_model_close(&w->spare), cmha_model_close(&w->model),
        cmha_context_close(&w->ctx);
}

static void start(world *w, const family *of, const story *s, size_t at) {
    open_world(w, of);
    w->at = at;
    s->before(w);
    w->digest = 0xcbf29ce484222325u, w->heap.calls = 0;
}

static cmha_status act(world *w, const story *s) {
    w->digest = 0xcbf29ce484222325u;
    return s->act(w);
}

/* Request k is refused: the status, its line, then another try or the end. */
static void fail_once(const family *of, const story *s, size_t at, size_t k, int once, int retry,
                      uint64_t want) {
    const char *op = s == &operation ? ops_all[at].name : s->name, *line;
    world w;
    cmha_status status;
    start(&w, of, s, at);
    w.heap.fail_at = k, w.heap.once = once;
    status = act(&w, s);
    line = cmha_error(&w.ctx);
    CHECK_THAT(status == CMHA_ERR_MEMORY, "%s, %s, request %zu %s refused: \"%s\"", of->name, op, k,
            once ? "alone" : "and all later",
               cmha_status_string(status));
    CHECK_THAT(strstr(line, "memory") && !strchr(line, '\n'), "%s, %s, request %zu refused: \"%s\"", of->name,
               op, k, line);
    w.heap.fail_at = 0;
    if (retry) {
        status = act(&w, s);
        CHECK_THAT(status == CMHA_OK, "%s, %s, request %zu refused, then tried again: \"%s\" (%s)", of->name,
                   op, k, cmha_status_string(status), cmha_error(&w.ctx));
        CHECK_THAT(w.digest == want, "%s, %s, request %zu refused, then tried again: other numbers", of->name,
                   op, k);
    }
    close_world(&w);
    CHECK_THAT(check_heap_empty(&w.heap), "%s, %s, request %zu refused: %zu bytes leak, %d sizes are wrong",
               of->name, op, k, w.heap.bytes, w.heap.mismatch);
}

static size_t run(const family *of, const story *s, size_t at) {
    world w;
    cmha_status status;
    uint64_t want;
    size_t calls, k;
    int mode;
    start(&w, of, s, at);
    status = act(&w, s);
    want = w.digest, calls = w.heap.calls;
    CHECK_THAT(status == CMHA_OK, "%s, %s: \"%s\" (%s)", of->name, s->name, cmha_status_string(status),
               cmha_error(&w.ctx));
    close_world(&w);
    CHECK_THAT(check_heap_empty(&w.heap), "%s, %s: %zu bytes leak", of->name, s->name, w.heap.bytes);
    for (k = 1; k <= calls; k++)
        for (mode = 0; mode < 4; mode += check_quick() ? 3 : 1)
            fail_once(of, s, at, k, mode & 1, mode >> 1, want);
    return calls;
}

/* A tape takes blocks of at least BLOCK bytes. Filled up before the operation to every possible place,
        it runs out of memory between
   any two steps of the operation, forward or backward. */
static void every_place(const family *of, size_t op) {
    enum { BLOCK = 16384, STEP = 64 };
    world w;
    uint64_t want;
    size_t used[2], left;
    int arena;
    start(&w, of, &operation, op);
    CHECK_OK(act(&w, &operation));
    want = w.digest, used[0] = w.used[0], used[1] = w.used[1];
    close_world(&w);
    for (arena = 0; arena < 2; arena++)
        for (left = 0; left < used[arena] && left < BLOCK; left += check_quick() ? 8 * STEP : STEP) {
            start(&w, of, &operation, op);
            w.before[arena] = BLOCK - left;
            w.heap.fail_at = 3; /* the two first blocks are there */
            CHECK_THAT(act(&w, &operation) == CMHA_ERR_MEMORY, "%s, %zu bytes left: \"%s\"", ops_all[op].name,
                       left, cmha_status_string(cmha_tape_status(&w.tape)));
            w.heap.fail_at = 0;
            CHECK_THAT(act(&w, &operation) == CMHA_OK && w.digest == want,
                       "%s, %zu bytes left, again: other numbers", ops_all[op].name, left);
            close_world(&w);
            CHECK_THAT(check_heap_empty(&w.heap), "%s, %zu bytes left: %zu bytes leak", ops_all[op].name,
                       left, w.heap.bytes);
        }
}

/* The files that loading reads. */
static void write_files(const family *of) {
    world w;
    FILE *file;
    open_world(&w, of);
    with_trainer(&w);
    CHECK_OK(step(&w));
    CHECK_OK(cmha_model_save(&w.model, weights_path));
    CHECK_OK(cmha_trainer_save(&w.trainer, state_path));
    CHECK_OK(cmha_model_pack(&w.model, CMHA_STORAGE_INT8));
    CHECK_OK(cmha_model_save(&w.model, packed_path));
    close_world(&w);
    file = fopen(text_path, "wb");
    if (file) fputs("an even number of bytes", file), fputc(0, file), fclose(file);
}

/* What is measured with every token hidden is enough where two are not. */
static void most_hidden(void) {
    cmha_context ctx;
    cmha_model model;
    cmha_batch batch;
    cmha_model_config c = check_model_config();
    int32_t ids_[2 * 24], targets[2 * 24];
    double loss_;
    cmha_trainer trainer;
    cmha_trainer_config t;
    size_t room, i;
    memset(&batch, 0, sizeof batch);
    for (i = 0; i < 48; i++) ids_[i] = (int32_t)(i % 7), targets[i] = i > 1 ? 3 : -1;
    batch.ids = ids_, batch.targets = targets, batch.batch = 2, batch.length = 24;
    CHECK_OK(cmha_context_init(&ctx, NULL));
    CHECK_OK(cmha_config_set_all(&ctx, cmha_model_table(), &c,
                                 "causal=0 head_transform=1 attention=dot d_model=64 d_ff=16 n_layers=1"));
    CHECK_OK(cmha_model_init(&model, &ctx, &c));
    cmha_config_defaults(cmha_trainer_table(), &t);
    t.batch = 2, t.length = 24;
    CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    room = model.tape.memory.reserved;
    CHECK(room > 0);
    CHECK_OK(cmha_model_gradient(&model, &batch, 1, 0, &loss_));
    CHECK_THAT(model.tape.memory.peak <= room, "%zu bytes were measured, %zu taken", room,
               model.tape.memory.peak);
    cmha_trainer_close(&trainer), cmha_model_close(&model), cmha_context_close(&ctx);
}

int main(int argc, char **argv) {
    size_t f, s, total = 0;
    cmha_blas_restart(argv);
    if (!system_folder(folder)) return perror(folder), 2;
    check_seed = 4;
    for (s = 0; s < IDS; s++) ids[s] = (int32_t)check_below(VOCABULARY);
    snprintf(weights_path, sizeof weights_path, "%s/weights", folder),
        snprintf(packed_path, sizeof packed_path, "%s/packed", folder),
        snprintf(state_path, sizeof state_path, "%s/state", folder);
    snprintf(text_path, sizeof text_path, "%s/text", folder),
        snprintf(out_path, sizeof out_path, "%s/out", folder);
    for (f = 0; f < sizeof families / sizeof *families; f++) {
        if (argc > 1 && strcmp(argv[1], families[f].name) != 0) continue;
        write_files(&families[f]);
        for (s = 0; s < sizeof stories / sizeof *stories; s++) {
            size_t calls = run(&families[f], &stories[s], 0);
            if (getenv("CMHA_TEST_LOUD"))
                printf("%-28s %-32s %zu requests\n", families[f].name, stories[s].name, calls);
            total += calls;
        }
    }
    most_hidden();
    for (s = 0; s < OPS_COUNT && argc < 2; s++)
        total += run(&families[0], &operation, s), every_place(&families[0], s);
    CHECK_THAT(total > 1000, "only %zu requests were refused", total);
    remove(weights_path), remove(packed_path), remove(state_path), remove(text_path), remove(out_path);
    remove(folder);
    return check_end();
}
