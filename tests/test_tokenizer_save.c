/* Tokenizers of every kind: written as tokenizer.json and read again they are the same. The files are the
   seeds of the fuzzer, one of each kind, what is trained here, and those of ../shared where it is. */
#include "check.h"
#include "system.h"

#include "../examples/tools/bpe.h"


static char error[TOKENIZER_ERROR], folder[] = "/tmp/cmha-save-XXXXXX", path[64];
static const char text[] = "Hello hello WORLD's 12345 abab  ba aab\t\xC3\xA4\xE4\xBD\xA0\xF0\x9F\x98\x80 "
                           "<e>[MASK]</s>\r\n\n ab \xFF\xE2\x96\x81.";

static const char plain[] = "hello a baabab hell\nabc";

static char *load(const char *name, size_t *n) {
    FILE *file = fopen(name, "rb");
    char *bytes = (char *)check_alloc(1 << 16, 1);
    *n = file ? fread(bytes, 1, 1 << 16, file) : 0;
    if (file) fclose(file);
    return bytes;
}

static int same_ids(const tokenizer_ids *a, const tokenizer_ids *b) {
    return a->n == b->n && (!a->n || !memcmp(a->at, b->at, a->n * sizeof *a->at));
}

/* Saves and reads; then everything is as it was. */
static void again(const tokenizer *t, const char *name) {
    tokenizer other;
    tokenizer_ids a = {NULL, 0, 0}, b = {NULL, 0, 0};
    struct stat about;
    size_t n;
    char *bytes;
    if (!CHECK_THAT(tokenizer_save(t, path, error), "%s: %s", name, error)) return;
    if (!CHECK_THAT(tokenizer_open(&other, path, error), "%s: %s", name, error)) return;
    CHECK_THAT(!strcmp(t->identity, other.identity), "%s: %s became %s", name, t->identity, other.identity);
    CHECK(t->size == other.size && t->longest == other.longest);
    CHECK(t->kind == other.kind && t->ties == other.ties);
    CHECK_THAT(t->bos == other.bos && t->eos == other.eos && t->pad == other.pad && t->unk == other.unk &&
               t->cls == other.cls && t->sep == other.sep && t->mask == other.mask,
               "%s: other special tokens", name);
    for (int i = 0; i < 8; i++) { /* some have no token for some bytes of the first text */
        const char *s = i & 4 ? plain : text;
        size_t length = i & 4 ? sizeof plain - 1 : sizeof text;
        int first, second;
        a.n = b.n = 0;
        first = tokenizer_encode(t, s, length, i & 3, &a, error);
        second = tokenizer_encode(&other, s, length, i & 3, &b, error);
        CHECK_THAT(first == second && (first || i < 4), "%s: %d and then %d: %s", name, first, second, error);
        CHECK_THAT(!first || (same_ids(&a, &b) && a.n), "%s: other ids", name);
    }
    for (int32_t id = 0; (size_t)id < t->size; id++) {
        tokenizer_decoder x, y;
        char *p = (char *)check_alloc(t->longest + 8, 1), *q = (char *)check_alloc(t->longest + 8, 1);
        memset(&x, 0, sizeof x), memset(&y, 0, sizeof y);
        n = tokenizer_decode(t, &x, id, p);
        if (n != tokenizer_decode(&other, &y, id, q) || memcmp(p, q, n))
            CHECK_THAT(0, "%s: token %ld has another text", name, (long)id);
        free(p), free(q);
    }
    /* saved once more it is the same file, which keeps its permissions */
    bytes = load(path, &n);
    CHECK(chmod(path, 0640) == 0 && tokenizer_save(&other, path, error));
    CHECK(stat(path, &about) == 0 && (about.st_mode & 0777) == 0640);
    if (n < 1 << 16) {
        size_t m;
        char *twice = load(path, &m);
        CHECK_THAT(n == m && !memcmp(bytes, twice, n), "%s: another file", name);
        free(twice);
    }
    free(bytes), tokenizer_ids_free(&a), tokenizer_ids_free(&b), tokenizer_close(&other);
}

static void seeds(void) {
    static const char *const names[] = {"bpe", "llama3", "wordpiece", "vocab.txt", "unigram", "llama",
                                        "gguf-llama", "gguf-gpt2", "gguf-bert", "llama2c"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[80];
        size_t n, length;
        char *bytes;
        tokenizer t;
        snprintf(name, sizeof name, "tests/fuzz/corpus/tokenizer/%s", names[i]);
        bytes = load(name, &n);
        length = n > 3 ? (unsigned char)bytes[1] | (size_t)(unsigned char)bytes[2] << 8 : 0;
        if (!CHECK_THAT(n > 3 && 3 + length <= n, "%s is not there", name)) continue;
        if (CHECK_THAT(tokenizer_read(&t, bytes + 3, length, names[i], error), "%s", error))
            again(&t, names[i]);
        tokenizer_close(&t), free(bytes);
    }
}

static void opened(const char *name) {
    tokenizer t;
    FILE *file = fopen(name, "rb");
    if (!file) return; /* no ../shared */
    fclose(file);
    if (CHECK_THAT(tokenizer_open(&t, name, error), "%s", error)) again(&t, name);
    tokenizer_close(&t);
}

static void trained(void) {
    static const char *const special[] = {"<|endoftext|>", "two words", "\xC3\x9Cx"}, *const splits[] =
        {"gpt2", "llama3", "qwen2", "o200k", "none"};
    for (int i = 0; i < 5; i++) {
        bpe_options o = {320, 2, splits[i], special, 3};
        bpe_trainer b;
        tokenizer t;
        CHECK(bpe_open(&b, &o, error) && bpe_put(&b, text, sizeof text, error));
        CHECK(bpe_put(&b, text, sizeof text, error));
        if (CHECK_THAT(bpe_finish(&b, &t, error), "%s", error)) again(&t, splits[i]), tokenizer_close(&t);
        bpe_close(&b);
    }
}

/* What cannot be written leaves the old file; nothing lies about. */
static void refused(void) {
    static const char odd[] = "{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"a\","
                              "\"vocab\":{\"a\":0,\"b\xFF\":1}}}";
    char other[80];
    size_t n, m;
    char *before = load(path, &n), *after;
    tokenizer t;
    if (CHECK_THAT(tokenizer_read(&t, odd, sizeof odd - 1, "odd", error), "%s", error)) {
        CHECK(!tokenizer_save(&t, path, error));
        CHECK(strstr(error, "token 1") && strstr(error, path) && !strchr(error, '\n'));
        after = load(path, &m);
        CHECK(n == m && n && !memcmp(before, after, n));
        free(after);
    }
    tokenizer_close(&t);
    CHECK(tokenizer_open(&t, path, error));
    CHECK(!tokenizer_save(&t, folder, error) && strstr(error, folder));
    snprintf(other, sizeof other, "%s/nowhere/t.json", folder);
    CHECK(!tokenizer_save(&t, other, error) && strstr(error, "nowhere"));
    snprintf(other, sizeof other, "%s/link", folder);
    CHECK(symlink("t.json", other) == 0 && tokenizer_save(&t, other, error));
    CHECK(remove(other) == 0 && remove(path) == 0);
    CHECK(symlink("t.json", other) == 0 && !tokenizer_save(&t, other, error)); /* it names nothing */
    CHECK(remove(other) == 0);
    free(before), tokenizer_close(&t);
}

int main(void) {
    if (!system_folder(folder)) return printf("cannot make %s\n", folder), 1;
    snprintf(path, sizeof path, "%s/t.json", folder);
    seeds();
    trained();
    opened("../shared/data/tokenizers/gpt2/encoder.json"), opened("../shared/data/tokenizers/bert/vocab.txt");
    opened("../shared/data/weights/stories260k/tok512.bin");
    refused();
    CHECK(rmdir(folder) == 0); /* no temporary file is left */
    return check_end();
}
