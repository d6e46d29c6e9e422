/* Sections of whole models: kinds, train, decode, memory; and work for
   programs that take turns with this one. */
#include "bench/bench.h"
#include "examples/tools/rows.h"

#include <math.h>

static const double MIB = 1048576, KIB = 1024;

/* 10^9 FLOPs of a pass over batch x length tokens: 2 a weight and token in matrices and causal
   attention's two half products a layer; a backward takes 4 and five half products more. The lookup
   of an embedding multiplies nothing. */
static double pass_flops(const cmha_model *model, size_t batch, size_t length, int backward) {
    const cmha_model_config *c = &model->config;
    double tokens = (double)(batch * length), weights = 0;
    for (size_t i = 0; i < model->parameters.count; i++) {
        const cmha_parameter *p = &model->parameters.list[i];
        if (p->tensor.rank == 2 && p->decay > 0 && &p->tensor != model->position_weight)
            weights += (double)p->tensor.size;
    }
    if (!c->tied) weights -= (double)(c->vocabulary * c->d_model);
    return 1e-9 * tokens *
           ((backward ? 6 : 2) * weights + (backward ? 7 : 2) * (double)(c->n_layers * length * c->d_model));
}

/* ---- training ---- */

/* "KIND,FIELD=VALUE,..", the fields those of the model or of the trainer (which may be NULL) */
static void configure(const char *kind, cmha_model_config *mc, cmha_trainer_config *tc) {
    char text[128], *field, *value;
    snprintf(text, sizeof text, "%s", kind);
    field = strtok(text, ",");
    if (!own_rows_kind(&ctx, field, mc)) check(cmha_kind(&ctx, field, mc));
    while ((field = strtok(NULL, ",")) != NULL) {
        if (!(value = strchr(field, '='))) die(2, "not FIELD=VALUE: ", field);
        *value++ = '\0';
        cmha_status status = CMHA_ERR_NOT_FOUND;
        if (tc) status = cmha_config_set(&ctx, cmha_trainer_table(), tc, field, value);
        if (status == CMHA_ERR_NOT_FOUND)
            status = cmha_config_set(&ctx, cmha_model_table(), mc, field, value);
        check(status);
    }
}

void training_open(training *t, const char *preset, const char *kind, size_t batch) {
    enum { BYTES = 1 << 16 };
    cmha_rng rng = cmha_rng_make(4, 0);
    cmha_model_config mc;
    cmha_trainer_config tc;
    memset(t, 0, sizeof *t);
    t->bytes = take(BYTES);
    for (size_t i = 0; i < BYTES; i++) t->bytes[i] = (unsigned char)(' ' + cmha_rng_below(&rng, 64));
    t->text = (cmha_tokens){.data = t->bytes, .count = BYTES, .width = 1};
    if (cmha_preset(NULL, preset, &mc, &tc)) die(2, "no such preset: ", preset);
    configure(kind, &mc, &tc);
    if (batch) tc.batch = batch;
    check(cmha_model_init(&t->model, &ctx, &mc));
    check(cmha_trainer_init(&t->trainer, &t->model, &tc));
}

void training_close(training *t) {
    cmha_trainer_close(&t->trainer), cmha_model_close(&t->model), free(t->bytes);
}

double training_flops(const training *t) {
    return pass_flops(&t->model, t->trainer.config.batch, t->trainer.config.length, 1);
}

void run_training(void *work) {
    training *t = work;
    double loss;
    check(cmha_trainer_step(&t->trainer, &t->text, &loss));
}

static void bench_steps(const char *preset, size_t batch) {
    static const char *const kinds[2] = {"rope", "cmha"};
    training t[2];
    job jobs[3] = {{run_training, &t[0], 0, 0}, {run_training, &t[1], 0, 0}, gemm_job()};
    for (int k = 0; k < 2; k++) training_open(&t[k], preset, kinds[k], batch);
    compare(jobs, 3);
    for (int k = 0; k < 2; k++) {
        const cmha_trainer_config *tc = &t[k].trainer.config;
        double time = jobs[k].time, rate = training_flops(&t[k]) / time;
        size_t memory;
        cell cells[2];
        char name[40];
        check(cmha_model_memory(&ctx, &t[k].model.config, tc->batch, tc->length, NULL, &memory));
        cells[0] = (cell){(double)(tc->batch * tc->length) / time,
                          {rate / gemm_rate(&jobs[2]), time / jobs[0].time}};
        cells[1] = (cell){(double)memory / MIB, {NAN, NAN}};
        snprintf(name, sizeof name, "%s, %s", preset, kinds[k]);
        report_row(name, tc->batch, cells);
        training_close(&t[k]);
    }
}

void bench_train(void) {
    static const column columns[] = {{"training", "tokens/s", {"gemm", "rope"}, 0},
                                     {"memory", "MiB", {NULL, NULL}, 0}};
    report_table("train", "forward, backward, clipping and AdamW; sequences of 128 (tiny) and 512 (paper)",
                 "batch", columns, 2);
    bench_steps("tiny", 0);
    bench_steps("paper", quick ? 1 : 0);
}

/* ---- reading and writing ---- */

static int decoders_round; /* their products round what packed weights multiply */

/* Ends the program where a file's model has other fields than the one that was asked for. Files of others say
   n_kv_heads, which here may be 0. */
static void must_be(cmha_model_config is, cmha_model_config asked) {
    const cmha_table table = cmha_model_table();
    char its[64], wanted[64];
    if (!is.n_kv_heads) is.n_kv_heads = is.n_heads;
    if (!asked.n_kv_heads) asked.n_kv_heads = asked.n_heads;
    for (size_t i = 0; i < table.count; i++) {
        cmha_config_get(table, &is, table.fields[i].name, its, sizeof its);
        cmha_config_get(table, &asked, table.fields[i].name, wanted, sizeof wanted);
        if (strcmp(its, wanted) != 0)
            die(2, "--model is another than that of --serve, by its ", table.fields[i].name);
    }
}

void decoder_open(decoder *d, const char *kind, const char *file, size_t context, cmha_storage weights,
                  cmha_storage cache) {
    cmha_model_config mc;
    cmha_cache_options options;
    memset(&options, 0, sizeof options);
    options.storage = cache;
    memset(d, 0, sizeof *d);
    check(cmha_preset(NULL, "paper", &mc, NULL));
    mc.dropout = mc.attention_dropout = 0;
    configure(kind, &mc, NULL);
    check(file ? cmha_model_open(&d->model, &ctx, file) : cmha_model_init(&d->model, &ctx, &mc));
    if (file) must_be(d->model.config, mc);
    if (weights) check(cmha_model_pack(&d->model, weights));
    if (decoders_round) check(cmha_model_round(&d->model, 1));
    check(cmha_cache_init(&d->cache, &d->model, 1, context + DECODED, 0, &options));
    d->logits = array(d->model.config.vocabulary, NULL);
    d->context = context, d->ids = take(context * sizeof *d->ids);
    for (size_t i = 0; i < context; i++) d->ids[i] = (int32_t)(i * 31 % 256);
    run_prefill(d);
}

void decoder_close(decoder *d) {
    cmha_cache_close(&d->cache), cmha_model_close(&d->model);
    free(d->ids), free(d->logits);
}

void run_prefill(void *work) {
    decoder *d = work;
    cmha_cache_reset(&d->cache);
    check(cmha_cache_append(&d->cache, d->ids, d->context, d->logits));
}

void run_decode(void *work) {
    decoder *d = work;
    d->cache.length = d->context - DECODED / 2; /* the tokens after these are overwritten */
    for (size_t i = 0; i < DECODED; i++) check(cmha_cache_append(&d->cache, d->ids + i, 1, d->logits));
}

double prefill_flops(const decoder *d) { return pass_flops(&d->model, 1, d->context, 0); }

double decode_bytes(const decoder *d) {
    double cache = (double)d->cache.size * (double)d->context / (double)d->cache.capacity;
    return ((double)d->model.parameters.size + cache) * (double)sizeof(cmha_real) +
           (double)d->model.packed.bytes;
}

static const struct {
    const char *label, *kind;
    cmha_storage weights, cache;
} decoded[] = {{"rope", "rope", CMHA_STORAGE_FLOAT, CMHA_STORAGE_FLOAT},
               {"cmha", "cmha", CMHA_STORAGE_FLOAT, CMHA_STORAGE_FLOAT},
               {"dot", "dot", CMHA_STORAGE_FLOAT, CMHA_STORAGE_FLOAT},
               {"cmha, weights bf16", "cmha", CMHA_STORAGE_BF16, CMHA_STORAGE_FLOAT},
               {"cmha, weights int8", "cmha", CMHA_STORAGE_INT8, CMHA_STORAGE_FLOAT},
               {"cmha, cache bf16", "cmha", CMHA_STORAGE_FLOAT, CMHA_STORAGE_BF16},
               {"cmha, int8 and bf16", "cmha", CMHA_STORAGE_INT8, CMHA_STORAGE_BF16}};
enum { DECODERS = sizeof decoded / sizeof *decoded };

static void bench_context(size_t n) {
    decoder d[DECODERS];
    memory_work reads[DECODERS];
    job jobs[3 * DECODERS + 1], *gemm = jobs + 3 * DECODERS;
    for (size_t k = 0; k < DECODERS; k++) {
        job *j = jobs + 3 * k;
        decoder_open(&d[k], decoded[k].kind, NULL, n, decoded[k].weights, decoded[k].cache);
        read_open(&reads[k], decode_bytes(&d[k]));
        /* reading alone: by the same threads, as often as tokens, so that caches help it as much */
        j[0] = (job){run_prefill, &d[k], 0, 0}, j[1] = (job){run_decode, &d[k], 0, 0};
        j[2] = (job){run_read, &reads[k], DECODED, 0};
    }
    *gemm = gemm_job();
    compare(jobs, 3 * DECODERS + 1);
    for (size_t k = 0; k < DECODERS; k++) {
        double prefill = jobs[3 * k].time, write = jobs[3 * k + 1].time, read = jobs[3 * k + 2].time;
        cell cells[3] = {{(double)n / prefill,
                          {prefill_flops(&d[k]) / prefill / gemm_rate(gemm), prefill / jobs[0].time}},
                         {DECODED / write, {DECODED * read / write, write / jobs[1].time}},
                         {decode_bytes(&d[k]) / MIB, {NAN, NAN}}};
        report_row(decoded[k].label, n, cells);
    }
    for (size_t k = 0; k < DECODERS; k++) decoder_close(&d[k]), free(reads[k].a);
}

void bench_decode(void) {
    static const column columns[] = {{"prompt", "tokens/s", {"gemm", "rope"}, 0},
                                     {"one by one", "tokens/s", {"bandwidth", "rope"}, 0},
                                     {"a token reads", "MiB", {NULL, NULL}, 0}};
    report_table(
        "decode",
        "paper preset, one sequence: a prompt of n tokens, then one by one; \"of read\": of reading the same "
        "bytes",
        "n", columns, 3);
    bench_context(512);
    if (!quick) bench_context(2048);
}

/* ---- memory ---- */

static double training_bytes(const cmha_model_config *mc, size_t batch, size_t length) {
    size_t bytes;
    check(cmha_model_memory(&ctx, mc, batch, length, NULL, &bytes));
    return (double)bytes;
}

/* What a token more adds in a layer more: the second difference, so that
   parameters, logits and scratch drop out. */
static double layer_bytes(cmha_model_config mc, size_t batch, size_t length) {
    double deep = training_bytes(&mc, 2 * batch, length) - training_bytes(&mc, batch, length);
    mc.n_layers -= 1;
    return (deep - (training_bytes(&mc, 2 * batch, length) - training_bytes(&mc, batch, length))) /
           (double)(batch * length);
}

void bench_memory(void) {
    static const column columns[] = {{"parameters", "MiB", {NULL, NULL}, 0},
                                     {"training", "MiB", {"rope", NULL}, 0},
                                     {"a token, a layer", "KiB", {"rope", NULL}, 0}};
    static const struct { const char *name, *preset; size_t batch, length;
    } rows[] = {{"tiny, 16 x 128", "tiny", 16, 128},
                {"paper, 8 x 512", "paper", 8, 512},
                {"paper, 2 x 2048", "paper", 2, 2048},
                {"paper, 1 x 8192", "paper", 1, 8192},
                {"crat, 4 x 512", "crat", 4, 512}};
    report_table("memory", "of CMHA as the library asks for it, to the byte (cmha_model_memory)", "length",
                 columns, 3);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cmha_model_config mc, rope;
        size_t parameters, b = rows[i].batch, n = rows[i].length;
        cell cells[3];
        check(cmha_preset(NULL, rows[i].preset, &mc, NULL));
        rope = mc, rope.attention = CMHA_ATTENTION_ROPE;
        check(cmha_model_memory(&ctx, &mc, b, n, &parameters, NULL));
        cells[0] = (cell){(double)parameters / MIB, {NAN, NAN}};
        cells[1] = (cell){training_bytes(&mc, b, n) / MIB,
                          {training_bytes(&mc, b, n) / training_bytes(&rope, b, n), NAN}};
        cells[2] =
            (cell){layer_bytes(mc, b, n) / KIB, {layer_bytes(mc, b, n) / layer_bytes(rope, b, n), NAN}};
        if (mc.family == CMHA_FAMILY_CRAT) cells[1].of[0] = cells[2].of[0] = NAN;
        report_row(rows[i].name, n, cells);
    }
}

/* ---- kinds: one layer of the paper preset each ---- */

typedef struct layer {
    cmha_model model;
    cmha_model_config config;
    cmha_batch batch;
} layer;

static void run_layer_forward(void *work) {
    layer *l = work;
    double loss;
    check(cmha_model_loss(&l->model, &l->batch, &loss));
}

static void run_layer(void *work) {
    layer *l = work;
    double loss;
    check(cmha_model_gradient(&l->model, &l->batch, 1, 0, &loss));
}

static void layer_open(layer *l, const char *name, size_t n) {
    static int32_t ids[4096];
    memset(l, 0, sizeof *l);
    check(cmha_preset(NULL, "paper", &l->config, NULL));
    l->config.n_layers = 1, l->config.dropout = l->config.attention_dropout = 0,
    l->config.max_positions = 16384;
    if (!own_rows_kind(&ctx, name, &l->config)) check(cmha_kind(&ctx, name, &l->config));
    check(cmha_model_init(&l->model, &ctx, &l->config));
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)(i * 31 % 256);
    l->batch.ids = l->batch.targets = ids, l->batch.batch = 1, l->batch.length = n;
}

/* KiB that a token adds to a cache, and what does not depend on the length; NAN: no cache. */
static void cache_size(layer *l, double *a_token, double *constant) {
    double size[2];
    *a_token = *constant = NAN;
    for (int i = 0; i < 2; i++) {
        cmha_cache cache;
        if (cmha_cache_init(&cache, &l->model, 1, (size_t)1024 << i, 0, NULL)) return;
        size[i] = (double)(cache.size * sizeof(cmha_real)) / KIB;
        cmha_cache_close(&cache);
    }
    *a_token = (size[1] - size[0]) / 1024, *constant = 2 * size[0] - size[1];
}

static void bench_kind(const char *name, layer *rope, size_t n) {
    layer l;
    job jobs[] = {{run_layer_forward, &l, 0, 0},
                  {run_layer, &l, 0, 0},
                  {run_layer_forward, rope, 0, 0},
                  {run_layer, rope, 0, 0}};
    double us = 1e6 / (double)n;
    cell cells[7];
    layer_open(&l, name, n);
    compare(jobs, 4);
    cells[0] = (cell){us * jobs[0].time, {jobs[0].time / jobs[2].time, NAN}};
    cells[1] = (cell){us * jobs[1].time, {jobs[1].time / jobs[3].time, NAN}};
    for (size_t i = 0; i < 3; i++)
        cells[2 + i] = (cell){training_bytes(&l.config, 1, (size_t)2048 << i) / MIB, {NAN, NAN}};
    cache_size(&l, &cells[5].value, &cells[6].value);
    for (int i = 5; i < 7; i++) cells[i].of[0] = cells[i].of[1] = NAN;
    report_row(name, n, cells);
    cmha_model_close(&l.model);
}

void bench_kinds(void) {
    static const column columns[] = {{"forward", "us a token", {"rope", NULL}, 0},
                                     {"with backward", "us a token", {"rope", NULL}, 0},
                                     {"n 2048", "MiB", {NULL, NULL}, 0},
                                     {"n 4096", "MiB", {NULL, NULL}, 0},
                                     {"n 8192", "MiB", {NULL, NULL}, 0},
                                     {"cache", "KiB/token", {NULL, NULL}, 0},
                                     {"constant", "KiB", {NULL, NULL}, 0}};
    const size_t n = quick ? 128 : 2048;
    const char *name;
    layer rope;
    layer_open(&rope, "rope", n);
    report_table("kinds",
                 "one layer: d 512, 8 heads, d_ff 1024, one sequence; memory of training and of a cache", "n",
                 columns, 7);
    for (size_t i = 0; (name = cmha_kind_name(i, NULL)) != NULL; i++) bench_kind(name, &rope, n);
    for (size_t i = 0; i < ctx.config.n_scores; i++) bench_kind(ctx.config.scores[i].name, &rope, n);
    cmha_model_close(&rope.model);
}

/* ---- taking turns with other programs ---- */

/* A turn comes after a rest: what is shorter than TURN seconds runs once for nothing, so that threads are
   awake and caches warm, as they are in the peers' loops, and then as often as fill it. */
static const double TURN = 0.1;

static void serve(const char *unit, void (*run)(void *), void *work, double share) {
    char line[256];
    run(work);
    tell_weak_kernel(1);
    printf("ready: seconds %s\n", unit);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        double begin = seconds(), time;
        int calls = 1;
        run(work);
        if ((time = seconds() - begin) < TURN) {
            begin = seconds(), calls = 0;
            do run(work), calls++;
            while ((time = seconds() - begin) < TURN);
        }
        printf("%.9f\n", time / calls * share);
        fflush(stdout);
    }
}

static void run_both(void *work) { run_core_forward(work), run_core_backward(work); }

static cmha_storage storage_of(const char *word) {
    static const char *const words[] = {"float", "bf16", "int8", "int4", "q4_k"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(words[i], word)) return (cmha_storage)i;
    die(2, "none of float, bf16, int8, int4, q4_k (the last three with r: rounded rows): ", word);
}

void bench_serve(const char *what, const char *model, const char *save) {
    char work[16], first[24], kind[128], weights[8] = "float", cache[8] = "float", rest, *aligned;
    uint64_t length;
    size_t n;
    int parts = sscanf(what, "%15[^/]/%23[^/]/%127[^/]/%7[^/]/%7[^/]%c", work, first, kind, weights, cache,
                       &rest);
    if (parts < 3 || parts > 5 || (parts > 3 && *work != 'p' && *work != 'd'))
        die(2, "--serve wants WORK/SIZE/KIND, not ", what);
    if (strlen(kind) == sizeof kind - 1) die(2, "a KIND with its fields is of at most 126 bytes: ", what);
    if (!strcmp(work, "train")) {
        training t;
        training_open(&t, first, kind, 0);
        serve("a step", run_training, &t, 1);
        training_close(&t);
        return;
    }
    if (!text_whole(first, &length) || length < DECODED || length > 1 << 20 || length > SIZE_MAX >> 17)
        die(2, "not a length from 16 to a million that this machine has room for: ", first);
    n = (size_t)length;
    if (!strcmp(work, "attention")) {
        core *c;
        if ((aligned = strstr(kind, ",aligned")) != NULL && !aligned[8]) *aligned = '\0';
        else aligned = NULL;
        c = core_open(kind, 64, n, aligned ? ALIGNED : AS_MALLOC, NULL);
        serve("a forward and a backward", run_both, c, 1);
        core_close(c);
    } else if (!strcmp(work, "prefill") || !strcmp(work, "decode")) {
        decoder d;
        size_t end = strlen(weights) - 1;
        if (strchr("iq", *weights) && weights[end] == 'r') weights[end] = '\0', decoders_round = 1;
        decoder_open(&d, kind, model, n, storage_of(weights), storage_of(cache));
        if (save) check(cmha_model_save(&d.model, save));
        if (*work == 'p') serve("a prompt", run_prefill, &d, 1);
        else serve("a token", run_decode, &d, 1.0 / DECODED);
        decoder_close(&d);
    } else die(2, "no such work, see --help: ", work);
}
