/* For tests/peers.js and peers.py: encodes and decodes many texts with one tokenizer, of which the program
   tokens would do one a run. peers TOKENIZER [SAVED]: reads texts (4 bytes with the length, little-endian,
   then the text) and writes for each the number of ids (4 bytes), the ids (4 bytes each), the bytes of what
   they decode to (4), those bytes. With SAVED the tokenizer is saved there first, and what was saved is
   used. */
#include "examples/tokenizer.h"

static void put(uint32_t n) {
    for (int i = 0; i < 4; i++) putchar((int)(n >> 8 * i & 255));
}

static int stop(const char *line) {
    fprintf(stderr, "%s\n", line);
    return 1;
}

static int text(const tokenizer *t, const char *s, size_t n, char *error) {
    tokenizer_ids ids = {NULL, 0, 0};
    tokenizer_bytes all = {NULL, 0, 0};
    tokenizer_decoder state;
    char *out = (char *)malloc(t->longest + 8);
    int done = out && tokenizer_encode(t, s, n, 0, &ids, error) && tokenizer_put(&all, "", 0);
    memset(&state, 0, sizeof state);
    for (size_t i = 0; done && i < ids.n; i++)
        done = tokenizer_put(&all, out, tokenizer_decode(t, &state, ids.at[i], out));
    done = done && tokenizer_put(&all, out, tokenizer_decode_end(&state, out));
    if (done) {
        put((uint32_t)ids.n);
        for (size_t i = 0; i < ids.n; i++) put((uint32_t)ids.at[i]);
        put((uint32_t)all.n), fwrite(all.at, 1, all.n, stdout);
    }
    free(out), free(all.at), tokenizer_ids_free(&ids);
    return done;
}

int main(int argc, char **argv) {
    char error[TOKENIZER_ERROR] = "", identity[32];
    unsigned char size[4];
    tokenizer t;
    if (argc < 2) return stop("peers TOKENIZER [SAVED] < texts");
    if (!tokenizer_open(&t, argv[1], error)) return stop(error);
    if (argc > 2) {
        memcpy(identity, t.identity, sizeof identity);
        if (!tokenizer_save(&t, argv[2], error)) return stop(error);
        tokenizer_close(&t);
        if (!tokenizer_open(&t, argv[2], error)) return stop(error);
        if (strcmp(identity, t.identity)) return stop("what was saved has another identity");
    }
    while (fread(size, 1, 4, stdin) == 4) {
        size_t n = size[0] | (size_t)size[1] << 8 | (size_t)size[2] << 16 | (size_t)size[3] << 24;
        char *s = (char *)malloc(n + 1);
        if (!s || fread(s, 1, n, stdin) != n || !text(&t, s, n, error)) return stop(error);
        free(s);
    }
    tokenizer_close(&t);
    return fflush(stdout) != 0;
}
