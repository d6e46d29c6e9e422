/* A tokenizer's file and a text for it. Input: a byte of flags (1: with what the template adds; the others
   choose where the stream cuts the text), two bytes with the size of the file, the file, the text. Whatever is
   read must encode and decode any text, piece by piece as at once, and come back the same when it is saved. */
#include "fuzz.h"

#include "examples/tokenizer.h"

enum { GROWN = 1 << 16 }; /* templates repeat nothing, so texts do not grow without bound */

static unsigned char *copy(const uint8_t *from, size_t n) { /* of exactly this size, for AddressSanitizer */
    unsigned char *to = (unsigned char *)malloc(n + !n);
    if (n) memcpy(to, from, n);
    return to;
}

static int32_t *exact(const tokenizer_ids *ids) { return (int32_t *)copy((uint8_t *)ids->at, ids->n * 4); }

static void decode(const tokenizer *t, const tokenizer_ids *ids) {
    tokenizer_decoder state;
    size_t i, n;
    memset(&state, 0, sizeof state);
    for (i = 0; i < ids->n; i++) {
        char *out = (char *)malloc(t->longest + 8);
        n = tokenizer_decode(t, &state, ids->at[i], out);
        NEED(n <= t->longest + 8);
        free(out);
    }
    char *rest = (char *)malloc(t->longest + 8);
    NEED(tokenizer_decode_end(t, &state, rest) <= t->longest + 8);
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
        NEED(tokenizer_stream_open(&s, t, (int)flags & 1, error));
        for (i = 1; at < n; at += cut, i++) {
            unsigned char *piece;
            cut = 1 + (flags >> 1) * i * 7 % 61;
            if (cut > n - at) cut = n - at;
            piece = copy(text + at, cut);
            NEED(tokenizer_stream_put(&s, (char *)piece, cut, &parts, error));
            free(piece);
        }
        NEED(tokenizer_stream_end(&s, &parts, error));
        tokenizer_stream_close(&s);
        ids = exact(&whole);
        NEED(parts.n == whole.n && (!whole.n || !memcmp(ids, parts.at, whole.n * sizeof *ids)));
        free(ids);
    }
    tokenizer_ids_free(&whole), tokenizer_ids_free(&parts);
}
