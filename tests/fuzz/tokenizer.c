/* A tokenizer's file and a text for it. Input: a byte of flags (1: with what the template adds; the others
   choose where the stream cuts the text), two bytes with the size of the file, the file, the text. Whatever
   is read must encode and decode any text, piece by piece as at once, and come back the same when it is
   saved. */
#include "fuzz.h"

#include "examples/tokenizer.h"

static unsigned char *copy(const uint8_t *from, size_t n) { /* of exactly this size, for AddressSanitizer */
    unsigned char *to = (unsigned char *)malloc(n + !n);
    if (n) memcpy(to, from, n);
    return to;
}

static int32_t *exact(const tokenizer_ids *ids) { return (int32_t *)copy((uint8_t *)ids->at, ids->n * 4); }

static void decode(const tokenizer *t, const tokenizer_ids *ids) {
    tokenizer_decoder state;
    size_t i, n;
    char *rest;
    memset(&state, 0, sizeof state);
    for (i = 0; i < ids->n; i++) {
        char *out = (char *)malloc(t->longest + 8);
        n = tokenizer_decode(t, &state, ids->at[i], out);
        NEED(n <= t->longest + 8);
        free(out);
    }
    rest = (char *)malloc(8);
    NEED(tokenizer_decode_end(&state, rest) <= 8);
    free(rest);
}

static void encode(const tokenizer *t, const unsigned char *text, size_t n, unsigned flags) {
    char error[TOKENIZER_ERROR];
    tokenizer_ids whole, parts;
    tokenizer_stream s;
    size_t i, at = 0, cut, fine;
    int32_t *ids;
    memset(&whole, 0, sizeof whole), memset(&parts, 0, sizeof parts);
    fine = (size_t)tokenizer_encode(t, (const char *)text, n, (int)flags & 1, &whole, error);
    if (!fine) NEED(*error && !strchr(error, '\n'));
    for (i = 0; i < whole.n; i++) NEED(whole.at[i] >= 0 && (size_t)whole.at[i] < t->size);
    if (fine) {
        decode(t, &whole);
        tokenizer_stream_open(&s, t, 0);
        if (flags & 1) NEED(tokenizer_put_ids(&parts, &t->before));
        for (i = 1; at < n; at += cut, i++) {
            unsigned char *piece;
            cut = 1 + (flags >> 1) * i * 7 % 61;
            if (cut > n - at) cut = n - at;
            piece = copy(text + at, cut);
            NEED(tokenizer_stream_put(&s, (char *)piece, cut, &parts, error));
            free(piece);
        }
        NEED(tokenizer_stream_end(&s, &parts, error));
        if (flags & 1) NEED(tokenizer_put_ids(&parts, &t->after));
        tokenizer_stream_close(&s);
        ids = exact(&whole);
        NEED(parts.n == whole.n && (!whole.n || !memcmp(ids, parts.at, whole.n * sizeof *ids)));
        free(ids);
    }
    tokenizer_ids_free(&whole), tokenizer_ids_free(&parts);
}

/* What is saved reads back as the same. The text that would be in the file is enough. */
static void save(const tokenizer *t, const unsigned char *text, size_t n) {
    char error[TOKENIZER_ERROR];
    tokenizer again;
    tokenizer_bytes json;
    tokenizer_ids a, b;
    int fine;
    memset(&json, 0, sizeof json), memset(&a, 0, sizeof a), memset(&b, 0, sizeof b);
    if (tokenizer_write(t, &json, error)) {
        if (!tokenizer_read(&again, json.at, json.n, FUZZ_PATH, error)) {
            fprintf(stderr, "%s\n%.*s\n", error, (int)json.n, json.at);
            abort();
        }
        NEED(!strcmp(t->identity, again.identity) && t->size == again.size && t->longest == again.longest);
        NEED(t->bos == again.bos && t->eos == again.eos && t->pad == again.pad && t->unk == again.unk);
        NEED(t->cls == again.cls && t->sep == again.sep && t->mask == again.mask);
        fine = tokenizer_encode(t, (const char *)text, n, 1, &a, error);
        NEED(fine == tokenizer_encode(&again, (const char *)text, n, 1, &b, error));
        NEED(!fine || (a.n == b.n && (!a.n || !memcmp(a.at, b.at, a.n * sizeof *a.at))));
        tokenizer_close(&again);
    } else NEED(*error && !strchr(error, '\n'));
    free(json.at), tokenizer_ids_free(&a), tokenizer_ids_free(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char error[TOKENIZER_ERROR] = "";
    unsigned char *file, *text;
    size_t n, rest;
    tokenizer t;
    if (size < 3) return 0;
    n = data[1] | (size_t)data[2] << 8;
    if (n > size - 3) n = size - 3;
    rest = size - 3 - n;
    file = copy(data + 3, n), text = copy(data + 3 + n, rest);
    if (tokenizer_read(&t, file, n, FUZZ_PATH, error)) {
        memset(file, 0xAA, n), free(file); /* nothing of the file is needed any more */
        encode(&t, text, rest, data[0]);
        save(&t, text, rest);
        tokenizer_close(&t);
    } else fuzz_check_line(error), free(file);
    tokenizer_close(&t);
    free(text);
    return 0;
}
