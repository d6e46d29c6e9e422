/* Memory runs out at every single request of reading, encoding, writing and training, one after another: the
   call says so in one line, nothing is lost, nothing leaks, and with memory it works. */
#include "check.h"
#include "system.h"

#include <cjson/cJSON.h>

static size_t requests, fail_at, live; /* the request of this number fails, from 1; 0: none does */

static int fails(void) { return ++requests == fail_at; }

static void *test_malloc(size_t n) {
    void *memory = fails() ? NULL : malloc(n);
    live += memory != NULL;
    return memory;
}

static void *test_calloc(size_t n, size_t size) {
    void *memory = fails() ? NULL : calloc(n, size);
    live += memory != NULL;
    return memory;
}

static void *test_realloc(void *old, size_t n) {
    void *memory = fails() ? NULL : realloc(old, n);
    live += memory && !old;
    return memory;
}

static void test_free(void *memory) {
    live -= memory != NULL;
    free(memory);
}

#ifndef _WIN32
static char *test_realpath(const char *path, char *resolved) {
    char *memory = fails() ? NULL : realpath(path, resolved);
    live += memory != NULL;
    return memory;
}
#define realpath test_realpath
#endif
#define malloc test_malloc
#define calloc test_calloc
#define realloc test_realloc
#define free test_free
#include "../examples/tools/bpe.h"
#undef malloc
#undef calloc
#undef realloc
#undef free

static char error[TOKENIZER_ERROR], folder[] = "/tmp/cmha-tokens-XXXXXX", path[64];
static const char text[] = "hello a baabab hell\nabc \xC3\xA9\xC3\xA9 abab";
static unsigned char file[1 << 16];
static size_t n_file;
static tokenizer tok;

/* What is tried: returns 1 for success, and must leave nothing where it does not. */
static int reads(void) { return tokenizer_read(&tok, file, n_file, "seed", error); }

static int encodes(void) {
    tokenizer_ids ids = {NULL, 0, 0};
    tokenizer_stream s;
    int done = tokenizer_encode(&tok, text, 19, 1, &ids, error); /* all seeds have these letters */
    tokenizer_stream_open(&s, &tok, 0);
    s.wait = 8;
    done = done && tokenizer_stream_put(&s, text, 19, &ids, error) && tokenizer_stream_end(&s, &ids, error);
    tokenizer_stream_close(&s), tokenizer_ids_free(&ids);
    return done;
}

static int writes(void) { return tokenizer_save(&tok, path, error); }

static int trains(void) {
    static const char *const special[] = {"<|endoftext|>"};
    static const char *const splits[] = {"gpt2", "llama3", "qwen2", "none"};
    int done = 1;
    for (int i = 0; done && i < 4; i++) {
        bpe_options o = {270, 1, splits[i], special, 1};
        bpe_trainer b;
        done = bpe_open(&b, &o, error) && bpe_put(&b, text, sizeof text, error) &&
               bpe_finish(&b, &tok, error);
        bpe_close(&b);
        if (done) tokenizer_close(&tok);
    }
    return done;
}

/* Fails every request in turn. `keeps`: what it leaves when it works */
static void every_request(const char *name, int (*what)(void), int keeps) {
    size_t before = live, tries, most = check_quick() ? 300 : 100000;
    int done = 0;
    for (tries = 1; !done && tries < most; tries++) {
        requests = 0, fail_at = tries, *error = 0;
        done = what();
        if (done && requests >= tries) { /* it worked without what it did not get, the cache of words */
            if (keeps) tokenizer_close(&tok);
            done = 0;
        } else if (!done) CHECK_THAT(*error && !strchr(error, '\n'), "%s, request %zu: no line", name, tries);
        if (!done && !CHECK_THAT(live == before, "%s, request %zu: %zu left", name, tries, live - before))
            break;
    }
    fail_at = 0;
    if (!done) done = what();
    CHECK_THAT(done, "%s: %s", name, error);
}

static void seed(const char *name) {
    char whole[80];
    FILE *in;
    size_t n;
    snprintf(whole, sizeof whole, "tests/fuzz/corpus/tokenizer/%s", name);
    if (!CHECK_THAT((in = fopen(whole, "rb")) != NULL, "%s is not there", whole)) return;
    n = fread(file, 1, sizeof file, in);
    fclose(in);
    n_file = file[1] | (size_t)file[2] << 8;
    if (!CHECK(n >= 3 + n_file)) return;
    memmove(file, file + 3, n_file);
    every_request(name, reads, 1);
    if (!CHECK_THAT(tok.size, "%s: %s", name, error)) return;
    every_request(name, encodes, 0), every_request(name, writes, 0);
    tokenizer_close(&tok);
}

int main(void) {
    static const char *const names[] = {"bpe", "llama3", "wordpiece", "vocab.txt", "unigram", "llama",
                                        "gguf-llama", "gguf-gpt2", "gguf-bert", "llama2c"};
    cJSON_Hooks hooks;
    hooks.malloc_fn = test_malloc, hooks.free_fn = test_free;
    cJSON_InitHooks(&hooks);
    if (!system_folder(folder)) return printf("cannot make %s\n", folder), 1;
    snprintf(path, sizeof path, "%s/t.json", folder);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) seed(names[i]);
    every_request("training", trains, 0);
    CHECK(live == 0);
    CHECK(remove(path) == 0 && rmdir(folder) == 0); /* no temporary file is left */
    return check_end();
}
