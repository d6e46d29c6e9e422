/* Files in memory: whatever takes a path reads and saves by callbacks, buffers among them, to the same bytes
   as on the disk; cut buffers, lying sizes and callbacks that fail leave everything as it was. And caches in
   memory of the caller's: exact, and enough for every token that follows. */
#include "check.h"
#include "models.h"
#include "system.h"

static char folder[] = "/tmp/cmha-buffers-XXXXXX", path[256];

static const char *path_of(const char *name) {
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* The bytes of a file */
static unsigned char *bytes_of(const char *name, size_t *size) {
    FILE *file = fopen(name, "rb");
    unsigned char *bytes = (unsigned char *)check_alloc(1 << 20, 1);
    *size = file ? fread(bytes, 1, 1 << 20, file) : 0;
    if (file) fclose(file);
    return bytes;
}

static cmha_model_config small(void) {
    cmha_model_config m = check_model_config();
    m.n_layers = 1, m.d_model = 8, m.n_heads = 2, m.d_ff = 8, m.vocabulary = 11, m.max_positions = 16;
    return m;
}

/* What the callbacks of the tests' own do: those of buffers, but call number `fail_at` answers `with` */
typedef struct teller {
    cmha_files files;
    int calls, fail_at, ends, kept, lies;
    cmha_status with;
    uint64_t lie;
} teller;

static int fails(teller *t) { return ++t->calls == t->fail_at; }

static cmha_status tell_size(void *user, cmha_context *c, const char *name, uint64_t *bytes) {
    teller *t = (teller *)user;
    cmha_status status = t->files.size(t->files.user, c, name, bytes);
    if (!status && t->lies) *bytes = t->lie;
    return fails(t) ? t->with : status;
}

static cmha_status tell_read(void *user, cmha_context *c, const char *name, uint64_t offset, void *to,
                             size_t bytes) {
    teller *t = (teller *)user;
    return fails(t) ? t->with : t->files.read(t->files.user, c, name, offset, to, bytes);
}

static cmha_status tell_write(void *user, cmha_context *c, const char *name, uint64_t offset,
                              const void *from, size_t bytes, uint64_t total) {
    teller *t = (teller *)user;
    return fails(t) ? t->with : t->files.write(t->files.user, c, name, offset, from, bytes, total);
}

static cmha_status tell_finish(void *user, cmha_context *c, const char *name, int whole) {
    teller *t = (teller *)user;
    int fail = fails(t);
    t->ends++, t->kept += whole;
    if (fail) whole = 0;
    (void)!t->files.finish(t->files.user, c, name, whole);
    return fail ? t->with : CMHA_OK;
}

static cmha_files tells(teller *t, cmha_buffer *list) {
    cmha_files files = {tell_size, tell_read, tell_write, tell_finish, 1, t};
    memset(t, 0, sizeof *t);
    t->files = cmha_buffers(list), t->with = CMHA_STOPPED;
    return files;
}

enum { MODEL, RUN, BASE, ARCHIVE, TEXT, BUFFERS };
static cmha_buffer buffers[BUFFERS + 1];
static const unsigned char text[] = "to be or not to be, that is the question: whether 'tis nobler";

/* Opens a context whose files are the buffers, empty but for the text */
static void open_buffers(cmha_context *c, check_heap *heap, teller *t) {
    static const char *const names[BUFFERS] = {"model", "run", "base", "archive", "text"};
    cmha_context_config config = check_heap_config(heap);
    int i;
    config.threads = 1;
    memset(buffers, 0, sizeof buffers);
    for (i = 0; i < BUFFERS; i++) buffers[i].name = names[i];
    buffers[TEXT].data = text, buffers[TEXT].size = sizeof text - 1;
    config.files = t ? tells(t, buffers) : cmha_buffers(buffers);
    CHECK_OK(cmha_context_init(c, &config));
}

static void close_buffers(cmha_context *c, check_heap *heap) {
    int i;
    for (i = 0; i < BUFFERS; i++)
        if (buffers[i].taken) check_heap_release(heap, buffers[i].taken, buffers[i].size);
    cmha_context_close(c);
    CHECK_THAT(check_heap_empty(heap), "%zu bytes leak, %d sizes are wrong", heap->bytes, heap->mismatch);
}

/* Every save and every reading in memory, against the disk */
static void round_trips(void) {
    static const cmha_real vectors[12] = {1, 2, 3, 4, 5, 6, 7, 8, -1, -2, -3, -4};
    static const char *const notes[2] = {"key", "value"};
    const size_t shape[2] = {3, 4};
    cmha_archive_item item = {"x", vectors, shape, 2, NULL};
    cmha_context c, disk;
    cmha_model model, again, elsewhere;
    cmha_trainer trainer, other;
    cmha_trainer_config tc, tc2;
    cmha_model_config mc = small(), mc2;
    cmha_knowledge kb, kb2;
    cmha_archive archive;
    cmha_tokens tokens;
    cmha_real read[12];
    check_heap heap;
    size_t size, i, taken;
    unsigned char *file;
    double loss, loss2;
    const void *before;
    open_buffers(&c, &heap, NULL);
    check_context(&disk, 1, 7);
    cmha_config_defaults(cmha_trainer_table(), &tc);
    tc.batch = 2, tc.length = 8, tc.lr = 0.0123;
    CHECK_OK(cmha_tokens_open(&tokens, &c, "text", 1));
    CHECK(tokens.count == sizeof text - 1 && !memcmp(tokens.data, text, tokens.count));
    for (i = 0; i < tokens.count; i++) ((unsigned char *)(uintptr_t)tokens.data)[i] %= 11;
    CHECK_OK(cmha_model_init(&model, &c, &mc));
    CHECK_OK(cmha_trainer_init(&trainer, &model, &tc));
    CHECK_OK(cmha_trainer_step(&trainer, &tokens, &loss));
    CHECK_OK(cmha_model_save(&model, "model"));
    CHECK_OK(cmha_trainer_save(&trainer, "run"));
    CHECK_OK(cmha_model_save(&model, path_of("model"))); /* leads on to the system's files */
    file = bytes_of(path, &size);
    CHECK(size && size == buffers[MODEL].size && !memcmp(file, buffers[MODEL].data, size));
    free(file);
    CHECK_OK(cmha_model_open(&elsewhere, &disk, path));
    CHECK_OK(cmha_model_open(&again, &c, "model"));
    CHECK(!memcmp(again.parameters.data, model.parameters.data, model.parameters.size * sizeof(cmha_real)));
    size = model.parameters.size * sizeof(cmha_real);
    CHECK(!memcmp(elsewhere.parameters.data, model.parameters.data, size));
    CHECK_OK(cmha_model_read(&again, "run", 1, &taken));
    CHECK(taken == model.parameters.count);
    CHECK_OK(cmha_trainer_init(&other, &again, &tc));
    CHECK_OK(cmha_trainer_read(&other, "run"));
    CHECK_OK(cmha_trainer_step(&trainer, &tokens, &loss));
    CHECK_OK(cmha_trainer_step(&other, &tokens, &loss2));
    CHECK(!memcmp(&loss, &loss2, sizeof loss));
    CHECK(!memcmp(again.parameters.data, model.parameters.data, model.parameters.size * sizeof(cmha_real)));
    /* configurations alone */
    memset(&mc2, 1, sizeof mc2), memset(&tc2, 1, sizeof tc2);
    CHECK_OK(cmha_config_read(&c, "run", &mc2, &tc2));
    CHECK(mc2.d_model == 8 && mc2.vocabulary == 11 && mc2.init_std == 0.3);
    CHECK(tc2.lr == 0.0123 && tc2.batch == 2);
    CHECK_OK(cmha_config_read(&c, "model", NULL, &tc2));
    CHECK(tc2.batch == 8 && tc2.lr == 1e-4);
    CHECK_OK(cmha_config_read(&c, path, &mc2, NULL));
    CHECK_OK(cmha_config_read(&c, "model", NULL, NULL));
    /* archives and bases */
    CHECK_OK(cmha_archive_write(&c, "archive", &item, 1, notes, 1));
    CHECK_OK(cmha_archive_open(&archive, &c, "archive"));
    CHECK(archive.n_tensors == 1 && !strcmp(cmha_archive_metadata(&archive, "key"), "value"));
    CHECK_OK(cmha_archive_read(&archive, archive.tensors, read));
    CHECK(!memcmp(read, vectors, sizeof read));
    before = buffers[ARCHIVE].data;
    CHECK_OK(cmha_archive_write(&c, "archive", NULL, 0, NULL, 0)); /* replaced while it is open */
    CHECK(buffers[ARCHIVE].data != before && buffers[ARCHIVE].size < 100);
    CHECK_IS(cmha_archive_read(&archive, archive.tensors, read), CMHA_ERR_IO);
    CHECK_THAT(!strncmp(cmha_error(&c), "archive: reading failed", 23), "%s", cmha_error(&c));
    cmha_archive_close(&archive);
    mc2 = mc;
    CHECK_IS(cmha_config_read(&c, "archive", &mc2, &tc2), CMHA_ERR_FORMAT);
    CHECK(!memcmp(&mc, &mc2, sizeof mc));
    CHECK_OK(cmha_knowledge_init(&kb, &c, 3, 2, vectors, NULL, NULL, NULL));
    CHECK_OK(cmha_knowledge_save(&kb, "base"));
    CHECK_OK(cmha_knowledge_open(&kb2, &c, "base", 1));
    CHECK(!kb2.mapping && kb2.identity == kb.identity && !memcmp(kb2.vectors, vectors, sizeof vectors));
    cmha_knowledge_close(&kb), cmha_knowledge_close(&kb2);
    /* names that lead nowhere */
    cmha_model_close(&elsewhere);
    CHECK_IS(cmha_model_open(&elsewhere, &c, path_of("nowhere")), CMHA_ERR_NOT_FOUND);
    c.config.files.system_too = 0;
    CHECK_IS(cmha_config_read(&c, path_of("model"), NULL, NULL), CMHA_ERR_NOT_FOUND);
    CHECK_IS(cmha_model_save(&model, path), CMHA_ERR_NOT_FOUND);
    CHECK_THAT(!strncmp(cmha_error(&c), path, strlen(path)), "%s", cmha_error(&c));
    cmha_trainer_close(&trainer), cmha_trainer_close(&other);
    cmha_model_close(&model), cmha_model_close(&again), cmha_model_close(&elsewhere);
    cmha_tokens_close(&tokens);
    close_buffers(&c, &heap);
    cmha_context_close(&disk);
}

/* What reads: a model, its configuration, a training state, tokens, a base */
static cmha_status reads(int what, cmha_context *c, cmha_trainer *t) {
    cmha_model model;
    cmha_model_config config;
    cmha_tokens tokens;
    cmha_knowledge kb;
    cmha_status status = CMHA_OK;
    if (what == 0) status = cmha_model_open(&model, c, "model"), cmha_model_close(&model);
    if (what == 1) status = cmha_config_read(c, "model", &config, NULL);
    if (what == 2) status = cmha_trainer_read(t, "run");
    if (what == 3) status = cmha_tokens_open(&tokens, c, "text", 1), cmha_tokens_close(&tokens);
    if (what == 4) status = cmha_knowledge_open(&kb, c, "base", 1), cmha_knowledge_close(&kb);
    return status;
}

static const int read_from[5] = {MODEL, MODEL, RUN, TEXT, BASE};

/* Cut buffers, sizes that lie, callbacks and allocations that fail, at each place there is */
static void failures(void) {
    cmha_context c;
    check_heap heap;
    teller t;
    cmha_model model;
    cmha_model_config mc = small();
    cmha_trainer trainer;
    cmha_trainer_config tc;
    cmha_knowledge kb;
    cmha_real *kept, vectors[8];
    size_t n, i, step = check_quick() ? 37 : 1, held;
    int what, k;
    open_buffers(&c, &heap, &t);
    heap.most = 1 << 28; /* what lies may not take */
    cmha_config_defaults(cmha_trainer_table(), &tc);
    tc.batch = 1, tc.length = 4;
    check_fill(vectors, 8, 1);
    CHECK_OK(cmha_model_init(&model, &c, &mc));
    CHECK_OK(cmha_trainer_init(&trainer, &model, &tc));
    CHECK_OK(cmha_knowledge_init(&kb, &c, 2, 2, vectors, NULL, NULL, NULL));
    CHECK_OK(cmha_model_save(&model, "model"));
    CHECK_OK(cmha_trainer_save(&trainer, "run"));
    CHECK_OK(cmha_knowledge_save(&kb, "base"));
    CHECK(t.ends == 3 && t.kept == 3);
    n = model.parameters.size;
    kept = check_zeros(n);
    check_fill(model.parameters.data, n, 1);
    memcpy(kept, model.parameters.data, n * sizeof *kept);
    for (what = 0; what < 5; what++) {
        cmha_buffer *b = &buffers[read_from[what]];
        const void *whole = b->data;
        size_t size = b->size;
        static const uint64_t lies[] = {0, 1, 7, UINT64_C(1) << 40, UINT64_MAX};
        char prefix[32];
        snprintf(prefix, sizeof prefix, "%s: ", b->name);
        held = heap.bytes;
        for (i = 0; i < size; i += i < 4096 ? step : 61) { /* cut: its data end with the array */
            cmha_status status;
            b->data = memcpy(check_alloc(i ? i : 1, 1), whole, i), b->size = i;
            status = reads(what, &c, &trainer);
            if (what == 3) CHECK(!status == (i > 0));
            else CHECK_THAT(status == CMHA_ERR_FORMAT && !strncmp(cmha_error(&c), prefix, strlen(prefix)),
                            "%d cut at %zu: %s", what, i, cmha_error(&c));
            free((void *)(uintptr_t)b->data);
            if (heap.bytes != held) CHECK_THAT(0, "%d cut at %zu leaks", what, i);
        }
        b->data = whole, b->size = size;
        for (i = 0; i < 5 + 2; i++) { /* lies, and off by one */
            t.lies = 1, t.lie = i < 5 ? lies[i] : i == 5 ? size - 1 : size + 1;
            if (what == 3 && (i == 1 || i == 2 || i == 5)) continue; /* a shorter text */
            CHECK_THAT(reads(what, &c, &trainer) && !strncmp(cmha_error(&c), prefix, strlen(prefix)),
                       "%d, a size of %g: %s", what, (double)t.lie, cmha_error(&c));
        }
        t.lies = 0;
        CHECK(!memcmp(kept, model.parameters.data, n * sizeof *kept));
        for (k = 1, t.with = CMHA_STOPPED; k < 200; k++) { /* each call fails in turn */
            cmha_status status;
            t.calls = 0, t.fail_at = k;
            t.with = k % 3 == 0 ? CMHA_ERR_ARGUMENT : k % 3 == 1 ? CMHA_STOPPED : CMHA_ERR_IO;
            status = reads(what, &c, &trainer);
            if (t.calls < k) break;
            CHECK(!memcmp(kept, model.parameters.data, n * sizeof *kept));
            CHECK_THAT(status == t.with && !strncmp(cmha_error(&c), prefix, strlen(prefix)),
                       "%d, call %d: %s", what, k, cmha_error(&c));
        }
        CHECK_THAT(k > 2 && heap.bytes == held, "%d: %d calls, %zu bytes", what, k, heap.bytes - held);
        t.fail_at = 0;
        CHECK_OK(reads(what, &c, &trainer));
        memcpy(model.parameters.data, kept, n * sizeof *kept);
    }
    for (what = 0; what < 3; what++) { /* saves: a callback that fails, an allocator that does */
        cmha_buffer *b = &buffers[what];
        const void *old = b->data;
        size_t size = b->size, calls;
        unsigned char *copy = (unsigned char *)memcpy(check_alloc(size, 1), old, size);
        int done = 0;
        for (k = 1; !done && k < 500; k++) {
            cmha_status status;
            int memory = k % 2;
            held = heap.bytes, calls = heap.calls;
            t.calls = t.ends = t.kept = 0, t.fail_at = memory ? 0 : k / 2, t.with = CMHA_STOPPED;
            heap.fail_at = memory ? heap.calls + (size_t)(k / 2) + 1 : 0;
            status = what == 0   ? cmha_model_save(&model, b->name)
                     : what == 1 ? cmha_trainer_save(&trainer, b->name)
                                 : cmha_knowledge_save(&kb, b->name);
            done = memory ? 0 : t.calls < k / 2;
            if (memory && heap.calls < heap.fail_at) status = CMHA_OK; /* none left to refuse */
            heap.fail_at = 0;
            if (!status || done) {
                old = b->data, size = b->size, free(copy), copy = (unsigned char *)check_alloc(size, 1);
                memcpy(copy, old, size);
                continue;
            }
            CHECK_THAT(status == (memory ? CMHA_ERR_MEMORY : CMHA_STOPPED), "save %d, %d: %s", what, k,
                       cmha_error(&c));
            CHECK_THAT(b->data == old && b->size == size && !memcmp(copy, old, size) && !b->saving,
                       "save %d, %d: the old file is another", what, k);
            CHECK_THAT(heap.bytes == held && heap.calls >= calls, "save %d, %d leaks", what, k);
            if (!memory) CHECK_THAT(t.ends == 1, "save %d, %d: %d ends", what, k, t.ends);
            CHECK_THAT(!strncmp(cmha_error(&c), b->name, strlen(b->name)), "%s", cmha_error(&c));
        }
        CHECK_THAT(done && k > 6, "save %d: %d calls", what, k);
        free(copy);
    }
    free(kept);
    cmha_trainer_close(&trainer), cmha_model_close(&model), cmha_knowledge_close(&kb);
    close_buffers(&c, &heap);
}

static void halves(void) {
    cmha_context c;
    cmha_context_config config;
    memset(&config, 0, sizeof config);
    config.files.size = tell_size;
    CHECK_IS(cmha_context_init(&c, &config), CMHA_ERR_ARGUMENT);
    CHECK(strstr(cmha_error(&c), "size and read") != NULL);
    config.files.read = tell_read, config.files.finish = tell_finish;
    CHECK_IS(cmha_context_init(&c, &config), CMHA_ERR_ARGUMENT);
    CHECK(strstr(cmha_error(&c), "write and finish") != NULL);
    config.files = cmha_buffers(NULL);
    CHECK_OK(cmha_context_init(&c, &config));
    CHECK_IS(cmha_config_read(&c, path_of("nothing"), NULL, NULL), CMHA_ERR_NOT_FOUND);
    cmha_context_close(&c);
}

/* ------------------------------------------------ caches ------------------------------------------------ */

enum { CAPACITY = 12, PROMPT = 5, TOKENS = 40 };

/* Reads a prompt and tokens, the logits of each into out */
static cmha_status decode(cmha_cache *cache, const int32_t *ids, size_t batch, size_t V, int slide,
                          cmha_real *out) {
    size_t i, n = slide ? TOKENS : CAPACITY;
    cmha_status status = cmha_cache_append(cache, ids, PROMPT, out);
    for (i = PROMPT; i < n && !status; i++, out += batch * V)
        status = cmha_cache_append(cache, ids + i * batch, 1, out + batch * V);
    return status;
}

/* A cache in a block of the caller's, or of the allocator's with room for its prompts, takes what it was said
   to take and never more, and says what another says */
static void cache_of(const char *label, const cmha_model_config *mc, size_t batch, int slide, int packed,
                     const cmha_knowledge *kb, cmha_context *c, check_heap *heap) {
    cmha_model model;
    cmha_cache plain, own, kept;
    cmha_cache_options o;
    size_t V = mc->vocabulary, bytes = 0, calls, before, i, n = TOKENS * batch * V;
    cmha_real *want = check_zeros(n), *got = check_zeros(n);
    int32_t *ids = (int32_t *)check_alloc(TOKENS * batch, sizeof *ids);
    unsigned char *memory;
    double worst = check_tolerance(1e-9, 2e-3);
    memset(&o, 0, sizeof o);
    for (i = 0; i < TOKENS * batch; i++) ids[i] = (int32_t)check_below(V);
    if (!CHECK_THAT(!cmha_model_init(&model, c, mc), "%s: %s", label, cmha_error(c))) return;
    if (kb) CHECK_OK(cmha_model_set_knowledge(&model, kb));
    if (packed) CHECK_OK(cmha_model_pack(&model, CMHA_STORAGE_INT8));
    if (packed) o.storage = CMHA_STORAGE_BF16, worst = 0.05;
    CHECK_OK(cmha_cache_init(&plain, &model, batch, CAPACITY, slide, &o));
    CHECK_THAT(!decode(&plain, ids, batch, V, slide, want), "%s: %s", label, cmha_error(c));
    /* room for every pass: no call at all */
    o.prompt = CAPACITY;
    before = heap->bytes;
    CHECK_OK(cmha_cache_memory(&model, batch, CAPACITY, slide, &o, &bytes));
    CHECK(heap->bytes == before);
    o.memory = (unsigned char *)ids + 1; /* which a count does not read */
    CHECK_OK(cmha_cache_memory(&model, batch, CAPACITY, slide, &o, &calls));
    CHECK(calls == bytes);
    o.memory = NULL;
    CHECK_OK(cmha_cache_init(&kept, &model, batch, CAPACITY, slide, &o));
    CHECK_THAT(heap->bytes == before + bytes, "%s: said %zu bytes, takes %zu", label, bytes,
               heap->bytes - before);
    calls = heap->calls;
    CHECK_THAT(!decode(&kept, ids, batch, V, slide, got), "%s: %s", label, cmha_error(c));
    CHECK_THAT(heap->calls == calls, "%s: %zu allocations", label, heap->calls - calls);
    CHECK_THAT(check_distance(want, got, n) <= (plain.endless ? worst : 0), "%s: other logits", label);
    cmha_cache_close(&kept); /* without an end `prompt` at a time are read */
    /* the caller's memory, passes of three tokens */
    o.prompt = 3;
    CHECK_OK(cmha_cache_memory(&model, batch, CAPACITY, slide, &o, &bytes));
    memory = (unsigned char *)check_alloc(bytes + 64, 1);
    memset(memory, 0xA5, bytes + 64);
    o.memory = memory, o.bytes = bytes - 1;
    CHECK_IS(cmha_cache_init(&own, &model, batch, CAPACITY, slide, &o), CMHA_ERR_MEMORY);
    CHECK_THAT(strstr(cmha_error(c), "cache: it takes") != NULL, "%s", cmha_error(c));
    o.bytes = bytes;
    before = heap->bytes;
    CHECK_OK(cmha_cache_init(&own, &model, batch, CAPACITY, slide, &o));
    CHECK(heap->bytes == before);
    calls = heap->calls;
    memset(got, 0, n * sizeof *got);
    heap->fail_at = 1;
    CHECK_THAT(!decode(&own, ids, batch, V, slide, got), "%s: %s", label, cmha_error(c));
    if (!slide) CHECK_IS(cmha_cache_append(&own, ids, 1, NULL), CMHA_ERR_FULL);
    cmha_cache_reset(&own);
    CHECK_OK(cmha_cache_append(&own, ids, 1, got + n - batch * V));
    heap->fail_at = 0;
    memcpy(got + n - batch * V, want + n - batch * V, batch * V * sizeof *got);
    CHECK_THAT(heap->calls == calls, "%s: %zu allocations", label, heap->calls - calls);
    CHECK_THAT(check_distance(want, got, n) <= worst * (1 + check_largest(want, n)),
               "%s: logits differ by %g", label, check_distance(want, got, n));
    cmha_cache_close(&own);
    CHECK(heap->bytes == before);
    for (i = 0; i < 64; i++)
        if (memory[bytes + i] != 0xA5) CHECK_THAT(0, "%s: wrote behind its memory", label);
    o.memory = memory + 1;
    CHECK_IS(cmha_cache_init(&own, &model, batch, CAPACITY, slide, &o), CMHA_ERR_ARGUMENT);
    cmha_cache_close(&plain);
    cmha_model_close(&model);
    free(memory), free(want), free(got), free(ids);
}

static void caches(void) {
    cmha_context c;
    check_heap heap;
    cmha_context_config config = check_heap_config(&heap);
    cmha_knowledge kb;
    cmha_real vectors[5 * 16];
    const char *name;
    size_t i, batch;
    int slide, packed;
    config.threads = 1;
    CHECK_OK(cmha_context_init(&c, &config));
    check_fill(vectors, 80, 1);
    CHECK_OK(cmha_knowledge_init(&kb, &c, 5, 8, vectors, NULL, NULL, NULL));
    for (i = 0; (name = cmha_kind_name(i, NULL)) != NULL; i++)
        for (slide = 0; slide < 2; slide++)
            for (packed = 0; packed < 2; packed++) {
                cmha_model_config m = check_model_config();
                char label[80];
                if (cmha_kind(&c, name, &m)) continue;
                if (!m.causal || m.crat_attention == CMHA_CRAT_ATTENTION_LAG) continue;
                m.causal = 1;
                batch = slide == packed ? 1 : 2;
                snprintf(label, sizeof label, "%s slide=%d packed=%d", name, slide, packed);
                cache_of(label, &m, batch, slide, packed, NULL, &c, &heap);
                if (m.family != CMHA_FAMILY_CRAT) continue;
                m.irw_layers = 1, m.irw_from = 1;
                cache_of(label, &m, batch, slide, packed, &kb, &c, &heap);
            }
    CHECK(i > 8);
    cmha_knowledge_close(&kb), cmha_context_close(&c);
    CHECK_THAT(check_heap_empty(&heap), "%zu bytes leak", heap.bytes);
}

/* Reads a prompt of n tokens, `part` at a time, into an empty cache of the context's memory: logits into out.
   Returns the most that its passes took beside the cache. */
static size_t prompt_memory(cmha_model *model, check_heap *heap, const int32_t *ids, size_t n, size_t part,
                            cmha_real *out) {
    cmha_cache cache;
    size_t before;
    CHECK_OK(cmha_cache_init(&cache, model, 1, n, 0, NULL));
    before = heap->peak = heap->bytes;
    for (size_t i = 0; i < n; i += part)
        CHECK_OK(cmha_cache_append(&cache, ids + i, part < n - i ? part : n - i, out));
    cmha_cache_close(&cache);
    return heap->peak - before;
}

/* A long prompt takes no more memory than one of 512 tokens, and has the logits of its pieces. */
static void long_prompts(void) {
    cmha_context c;
    check_heap heap;
    cmha_context_config config = check_heap_config(&heap);
    cmha_model_config m = check_model_config();
    cmha_model model;
    enum { MOST = 1500 };
    int32_t ids[MOST];
    config.threads = 1;
    CHECK_OK(cmha_context_init(&c, &config));
    CHECK_OK(cmha_model_init(&model, &c, &m));
    size_t V = m.vocabulary, short_one, long_one;
    cmha_real *whole = check_zeros(V), *parts = check_zeros(V);
    for (size_t i = 0; i < MOST; i++) ids[i] = (int32_t)check_below(V);
    short_one = prompt_memory(&model, &heap, ids, 512, 512, parts);
    long_one = prompt_memory(&model, &heap, ids, MOST, MOST, whole);
    CHECK_THAT(short_one && long_one <= short_one + short_one / 8, "%zu bytes for 512 tokens, %zu for %d",
               short_one, long_one, (int)MOST);
    prompt_memory(&model, &heap, ids, MOST, 100, parts);
    CHECK_THAT(check_distance(whole, parts, V) <= check_tolerance(1e-9, 2e-3) * (1 + check_largest(parts, V)),
               "logits differ by %g", check_distance(whole, parts, V));
    free(whole), free(parts);
    cmha_model_close(&model), cmha_context_close(&c);
    CHECK_THAT(check_heap_empty(&heap), "%zu bytes leak", heap.bytes);
}

int main(void) {
    if (!CHECK(system_folder(folder))) return check_end();
    round_trips(), failures(), halves(), caches(), long_prompts();
    remove(path_of("model"));
    rmdir(folder);
    return check_end();
}
