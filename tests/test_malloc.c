/* All memory comes from the caller's allocator: malloc and its relatives are defined here and note each call.
   No public call may reach them, be it through the C library. What OpenMP and OpenBLAS take for themselves is
   not the library's and is told by the caller's address; their threads start before anything is noted. */
#define _GNU_SOURCE
#include "check.h"
#include "system.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED
#endif
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED
#endif

#if !defined(__GLIBC__) || !defined(__linux__) || defined(SANITIZED)

int main(void) {
    printf("SKIP this test needs glibc, and malloc to itself\n0 passed, 0 failed, 1 skipped\n");
    return 0;
}

#else

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

/* -------------------------------------- the C library's allocator -------------------------------------- */

/* Weak: a static program has none and is not tested. */
extern void *__libc_malloc(size_t) __attribute__((weak));
extern void *__libc_calloc(size_t, size_t) __attribute__((weak));
extern void *__libc_realloc(void *, size_t) __attribute__((weak));
extern void *__libc_memalign(size_t, size_t) __attribute__((weak));
extern void __libc_free(void *) __attribute__((weak));

typedef struct region {
    uintptr_t begin, end;
} region;

enum { REGIONS = 64 };
static region others[REGIONS]; /* where libgomp, libomp and OpenBLAS lie */
static int n_others;
static volatile int noting; /* compilers hold that malloc looks at nobody's variables */
static volatile size_t noted;
static void *culprit; /* who called last */

static void note(void *caller) {
    uintptr_t at = (uintptr_t)caller;
    int i;
    if (!noting) return;
    for (i = 0; i < n_others; i++)
        if (at >= others[i].begin && at < others[i].end) return;
    __atomic_fetch_add(&noted, 1, __ATOMIC_RELAXED);
    culprit = caller;
}

/* For a static program, until it ends. */
static void *scrap(size_t bytes) {
    static _Alignas(64) unsigned char memory[1 << 20];
    static size_t used;
    void *part = memory + used;
    if (bytes > sizeof memory - used - 64) return NULL;
    used += (bytes + 63) / 64 * 64;
    return part;
}

void *malloc(size_t bytes) {
    note(__builtin_return_address(0));
    return __libc_malloc ? __libc_malloc(bytes) : scrap(bytes);
}
void *calloc(size_t n, size_t bytes) {
    note(__builtin_return_address(0));
    return __libc_calloc ? __libc_calloc(n, bytes) : scrap(n * bytes);
}
void *realloc(void *old, size_t bytes) {
    note(__builtin_return_address(0));
    return __libc_realloc ? __libc_realloc(old, bytes) : NULL;
}
void *memalign(size_t alignment, size_t bytes);
void *memalign(size_t alignment, size_t bytes) {
    note(__builtin_return_address(0));
    return __libc_memalign ? __libc_memalign(alignment, bytes) : NULL;
}
void *aligned_alloc(size_t alignment, size_t bytes) {
    note(__builtin_return_address(0));
    return __libc_memalign ? __libc_memalign(alignment, bytes) : NULL;
}
int posix_memalign(void **out, size_t alignment, size_t bytes) {
    note(__builtin_return_address(0));
    *out = __libc_memalign ? __libc_memalign(alignment, bytes) : NULL;
    return *out ? 0 : ENOMEM;
}
void free(void *memory) {
    if (__libc_free) __libc_free(memory);
}

/* Finds the others in the list of what is mapped. */
static void find_others(void) {
    static char maps[1 << 18];
    size_t used = 0;
    ssize_t got;
    char *line, *next;
    int fd = open("/proc/self/maps", O_RDONLY);
    while (fd >= 0 && used < sizeof maps - 1 && (got = read(fd, maps + used, sizeof maps - 1 - used)) > 0)
        used += (size_t)got;
    if (fd >= 0) close(fd);
    for (line = maps; *line && n_others < REGIONS; line = next) {
        unsigned long begin, end;
        next = strchr(line, '\n');
        if (!next) break;
        *next++ = 0;
        if (!strstr(line, "libgomp") && !strstr(line, "libomp") && !strstr(line, "blas")) continue;
        if (sscanf(line, "%lx-%lx", &begin, &end) != 2) continue;
        others[n_others].begin = begin, others[n_others++].end = end;
    }
}

/* ---------------------------------------- the caller's allocator ---------------------------------------- */

static void *take(void *user, size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    (void)user;
    return memory == MAP_FAILED ? NULL : memory;
}

static void give(void *user, void *memory, size_t bytes) {
    (void)user;
    munmap(memory, bytes);
}

/* -------------------------------------------- what is called -------------------------------------------- */

enum { V = 19, STREAM = 300, DOCUMENTS = 700, PATH = 96 };

static char folder[64] = "/tmp/cmha-malloc-XXXXXX", path[PATH], packed_path[PATH], text_path[PATH];
static char cache_path[PATH];
static int32_t stream[STREAM];
static cmha_real numbers[DOCUMENTS * 16], out[16 * V], similarity[64];
static int64_t found[64];
static cmha_context context;
static cmha_knowledge base;

#define OK(call) \
    if ((status = (call)) != CMHA_OK) return status

static void log_line(void *user, cmha_log_level level, const char *line) {
    (void)user, (void)level, (void)line;
}

static cmha_status open_context(void) {
    cmha_context_config c;
    memset(&c, 0, sizeof c);
    c.threads = 2, c.allocator.allocate = take, c.allocator.release = give, c.log = log_line;
    return cmha_context_init(&context, &c);
}

static cmha_status train(cmha_model *model) {
    cmha_trainer_config c;
    cmha_trainer trainer;
    cmha_tokens tokens, part;
    cmha_batch batch;
    cmha_real labels[2] = {0, 1};
    cmha_status status;
    double loss = 0;
    memset(&tokens, 0, sizeof tokens), memset(&batch, 0, sizeof batch);
    tokens.data = stream, tokens.count = STREAM, tokens.width = 4;
    batch.ids = batch.targets = stream, batch.batch = 2, batch.length = 8;
    cmha_config_defaults(cmha_trainer_table(), &c);
    c.batch = 2, c.length = 16, c.accumulate = 2, c.clip_mode = 1, c.eval_tokens = 40;
    OK(cmha_trainer_init(&trainer, model, &c));
    cmha_trainer_split(&trainer, &tokens, &part, NULL);
    OK(cmha_trainer_step(&trainer, &part, &loss));
    OK(cmha_trainer_step(&trainer, &part, &loss));
    OK(cmha_trainer_evaluate(&trainer, &tokens, &loss));
    OK(cmha_trainer_step_batch(&trainer, &batch, &loss));
    if (model->config.classes) {
        batch.labels = labels;
        OK(cmha_trainer_step_batch(&trainer, &batch, &loss));
        OK(cmha_model_classify(model, &batch, out));
        batch.labels = NULL;
    }
    OK(cmha_model_gradient(model, &batch, 1, 1, &loss));
    OK(cmha_trainer_apply(&trainer, NULL));
    OK(cmha_model_logits(model, &batch, out));
    OK(cmha_model_vectors(model, &batch, out));
    OK(cmha_model_attention(model, &batch, 0, 0, CMHA_SEE_PROBABILITIES, out));
    OK(cmha_trainer_save(&trainer, path));
    OK(cmha_trainer_read(&trainer, path));
    cmha_trainer_close(&trainer);
    return CMHA_OK;
}

static cmha_status decode(cmha_model *model, const cmha_cache_options *options) {
    cmha_cache cache;
    cmha_status status;
    if (!model->config.causal) return CMHA_OK;
    OK(cmha_cache_init(&cache, model, 1, 12, 1, options));
    OK(cmha_cache_append(&cache, stream, 5, out));
    OK(cmha_generate(&cache, stream, 3, 20, NULL, 1, NULL, NULL));
    OK(cmha_cache_save(&cache, cache_path));
    OK(cmha_cache_read(&cache, cache_path));
    OK(cmha_cache_append(&cache, stream, 1, out));
    cmha_cache_close(&cache);
    return CMHA_OK;
}

/* A model of a kind: trained, decoded with (its cache saved and read), packed, saved and loaded. */
static cmha_status live(const char *kind, const char *fields) {
    cmha_model_config m = check_model_config();
    cmha_model model, again;
    cmha_cache_options options = {CMHA_STORAGE_BF16, 0, NULL, 0, 0};
    cmha_storage storage;
    cmha_status status;
    size_t bytes;
    OK(cmha_kind(&context, kind, &m));
    OK(cmha_config_set_all(&context, cmha_model_table(), &m, fields));
    OK(cmha_model_memory(&context, &m, 2, 16, &bytes, &bytes));
    OK(cmha_model_init(&model, &context, &m));
    if (m.irw_layers) OK(cmha_model_set_knowledge(&model, &base));
    OK(train(&model));
    OK(decode(&model, NULL));
    OK(cmha_model_save(&model, path));
    OK(cmha_model_open(&again, &context, path));
    OK(cmha_model_read(&again, path, 0, NULL));
    cmha_model_close(&again);
    for (storage = CMHA_STORAGE_BF16; storage <= CMHA_STORAGE_Q4_K; storage = (cmha_storage)(storage + 1)) {
        OK(cmha_model_pack(&model, storage));
        OK(decode(&model, &options));
        OK(cmha_model_save(&model, packed_path));
        cmha_model_close(&model);
        OK(cmha_model_open(&model, &context, packed_path));
        cmha_model_close(&model);
        OK(cmha_model_open(&model, &context, path));
        if (m.irw_layers) OK(cmha_model_set_knowledge(&model, &base));
    }
    cmha_model_close(&model);
    return CMHA_OK;
}

static cmha_status know(void) {
    static const uint64_t begin[DOCUMENTS + 1] = {0};
    cmha_knowledge loaded;
    cmha_status status;
    int map;
    OK(cmha_knowledge_init(&base, &context, DOCUMENTS, 8, numbers, NULL, "", begin));
    OK(cmha_knowledge_search(&base, numbers, 9, 5, -1, found, similarity));
    OK(cmha_knowledge_search(&base, numbers, 1, 5, -1, found, similarity));
    OK(cmha_knowledge_save(&base, path));
    for (map = 0; map < 2; map++) {
        OK(cmha_knowledge_open(&loaded, &context, path, map));
        cmha_knowledge_close(&loaded);
    }
    return CMHA_OK;
}

static cmha_status files(void) {
    size_t i;
    cmha_archive archive;
    cmha_tokens tokens;
    cmha_status status;
    cmha_trainer_config c;
    char value[32];
    OK(cmha_archive_open(&archive, &context, path));
    if (!cmha_archive_metadata(&archive, "identity")) return CMHA_ERR_FORMAT;
    OK(cmha_archive_read(&archive, cmha_archive_find(&archive, "vectors"), numbers));
    cmha_archive_close(&archive);
    OK(cmha_tokens_open(&tokens, &context, text_path, 1));
    cmha_tokens_close(&tokens);
    cmha_config_defaults(cmha_trainer_table(), &c);
    for (i = 0; i < cmha_trainer_table().count; i++)
        cmha_config_get(cmha_trainer_table(), &c, cmha_trainer_table().fields[i].name, value, sizeof value);
    return CMHA_OK;
}

/* Returns how often the C library asks for memory to name an error: glibc 2.41 does so, 2.36 does not. */
static size_t naming(void) {
    size_t before = noted, took;
    (void)strerror(ENOENT);
    took = noted - before;
    noted = before;
    return took;
}

static cmha_status fail(void) {
    cmha_archive archive;
    cmha_model model;
    size_t named = naming();
    if (cmha_archive_open(&archive, &context, "/nowhere/at/all") == CMHA_OK) return CMHA_ERR_STATE;
    noted -= noted < named ? noted : named;
    if (cmha_model_open(&model, &context, text_path) == CMHA_OK) return CMHA_ERR_STATE;
    return cmha_error(&context)[0] ? CMHA_OK : CMHA_ERR_STATE;
}

/* Large enough for threads, which start with the first, and for a qsort of its matrices to ask for memory. */
static cmha_status wide(void) { return live("cmha", "d_model=64 d_ff=128 n_heads=8 n_layers=24"); }

/* ------------------------------------------------ noting ------------------------------------------------ */

static void check_quiet(const char *name, cmha_status status) {
    noting = 0;
    CHECK_THAT(!status, "%s: %s (%s)", name, cmha_status_string(status), cmha_error(&context));
    CHECK_THAT(!noted, "%s: %zu calls of malloc or its like, the last from %p", name, noted, culprit);
    noted = 0;
    noting = 1;
}

/* Can the test see what it is for? A call of malloc, and one from within the C library. */
static int sees(void) {
    void *volatile memory[2];
    size_t calls;
    noting = 1;
    memory[0] = malloc(1);
    memory[1] = strdup(path);
    noting = 0;
    calls = noted, noted = 0;
    free(memory[0]), free(memory[1]);
    return calls == 2;
}

int main(int argc, char **argv) {
    static char buffer[4096];
    const char *name, *fields;
    FILE *file;
    size_t i;
    (void)argc;
    cmha_blas_restart(argv);
    setvbuf(stdout, buffer, _IOLBF, sizeof buffer);
    find_others();
    if (!__libc_malloc || (getenv("LD_PRELOAD") && strstr(getenv("LD_PRELOAD"), "vgpreload")))
        return puts("SKIP malloc is another program's\n0 passed, 0 failed, 1 skipped"), 0;
    if (!system_folder(folder)) return perror(folder), 2;
    snprintf(packed_path, sizeof packed_path, "%s/packed", folder);
    snprintf(path, sizeof path, "%s/file", folder), snprintf(text_path, sizeof text_path, "%s/text", folder);
    snprintf(cache_path, sizeof cache_path, "%s/cache", folder);
    file = fopen(text_path, "wb");
    if (file) fputs("a text", file), fclose(file);
    check_fill(numbers, DOCUMENTS * 16, 1);
    for (i = 0; i < STREAM; i++) stream[i] = (int32_t)check_below(V);
    CHECK(sees());
    CHECK_OK(open_context());
    CHECK_OK(wide());
    cmha_context_close(&context);

    noting = 1;
    check_quiet("context", open_context());
    check_quiet("a wide model", wide());
    check_quiet("knowledge base", know());
    check_quiet("files", files());
    check_quiet("failures", fail());
    for (i = 0; (name = cmha_kind_name(i, &fields)) != NULL; i++) {
        check_quiet(name, live(name, "dropout=0.1"));
        if (strstr(name, "lag")) continue;
        check_quiet(name, live(name, "causal=0 classes=2 token_types=2 recompute=1"));
    }
    check_quiet("contrastive loss", live("cmha", "pcl_weight=0.1 activation=swiglu norm=rmsnorm"));
    check_quiet("window", live("crat", "irw_layers=2 irw_from=1 low_rank=2"));
    cmha_knowledge_close(&base), cmha_context_close(&context);
    check_quiet("closing", CMHA_OK);
    noting = 0;
    remove(path), remove(packed_path), remove(text_path), remove(cache_path), remove(folder);
    return check_end();
}

#endif
