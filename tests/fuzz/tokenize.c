/* Any bytes through tokenizers that stand: one byte chooses which and where the stream cuts, the rest is the
   text. A byte-level one gives every text back; all encode piece by piece as at once. A second text, of the
   same bytes, trains one that must do the same. */
#include "fuzz.h"

#include "examples/tools/bpe.h"

enum { STANDING = 5 };
static tokenizer standing[STANDING];
static const char *const splits[STANDING] = {"gpt2", "llama3", "qwen2", "o200k", "none"};

static void train(tokenizer *t, const char *split, const char *text, size_t n, size_t size) {
    static const char *const special[] = {"<|endoftext|>", " x\n"};
    bpe_options o = {0, 1, NULL, special, 2};
    char error[TOKENIZER_ERROR];
    bpe_trainer b;
    o.size = size, o.split = split;
    NEED(bpe_open(&b, &o, error) && bpe_put(&b, text, n, error) && bpe_end(&b, error));
    if (!bpe_finish(&b, t, error)) fprintf(stderr, "%s\n", error), abort();
    bpe_close(&b);
}

static void check(const tokenizer *t, const char *text, size_t n, size_t cut, int back) {
    char error[TOKENIZER_ERROR], *out = (char *)malloc(t->longest + 8);
    tokenizer_ids whole, parts;
    tokenizer_bytes decoded;
    tokenizer_decoder state;
    tokenizer_stream s;
    size_t i;
    memset(&whole, 0, sizeof whole), memset(&parts, 0, sizeof parts), memset(&decoded, 0, sizeof decoded);
    memset(&state, 0, sizeof state);
    NEED(tokenizer_encode(t, text, n, 0, &whole, error));
    tokenizer_stream_open(&s, t, 0);
    s.wait = 1 + cut % 97; /* looks for places to cut far earlier than it would */
    for (i = 0; i < n; i += cut) {
        if (cut > n - i) cut = n - i;
        NEED(tokenizer_stream_put(&s, text + i, cut, &parts, error));
        if (s.wait > 64) s.wait = 64;
    }
    NEED(tokenizer_stream_end(&s, &parts, error));
    NEED(whole.n == parts.n && (!whole.n || !memcmp(whole.at, parts.at, whole.n * sizeof *whole.at)));
    for (i = 0; i < whole.n; i++)
        NEED(tokenizer_put(&decoded, out, tokenizer_decode(t, &state, whole.at[i], out)));
    NEED(tokenizer_put(&decoded, out, tokenizer_decode_end(&state, out)));
    NEED(!back || (decoded.n == n && (!n || !memcmp(decoded.at, text, n))));
    free(out), free(decoded.at);
    tokenizer_ids_free(&whole), tokenizer_ids_free(&parts), tokenizer_stream_close(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char words[] = "the and ing tion hello world's 12 345 \n\n don't I'LL Caf\xC3\xA9 "
                                "\xE6\x97\xA5\xE6\x9C\xAC";
    tokenizer own;
    size_t cut;
    unsigned which;
    char *text;
    if (!size) return 0;
    if (!standing[0].size)
        for (which = 0; which < STANDING; which++)
            train(&standing[which], splits[which], words, sizeof words, 300);
    which = data[0] % STANDING, cut = 1 + data[0] / STANDING % 50u * 3;
    text = (char *)malloc(size);
    memcpy(text, data + 1, size - 1);
    check(&standing[which], text, size - 1, cut, which != 2); /* qwen2 composes characters */
    train(&own, splits[which], text, size - 1, 258 + size % 64);
    check(&own, text, size - 1, cut, which != 2);
    tokenizer_close(&own);
    free(text);
    return 0;
}
