/* GGUF files. What gguf.h accepts has values and tensors inside of the file, in order and with names of their
   own, reads without an error, and comes back the same after it was written. */
#include "mutate.h"
#include "examples/tools/gguf.h"

static const char *const nothing[] = {NULL};
static const char *const words[] = {
    "general.architecture", "general.alignment", "llama.block_count", "tokenizer.ggml.tokens",
    "token_embd.weight", "output_norm.weight", "blk.0.attn_q.weight", "blk.0.ffn_down.weight", NULL};

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
    static const mutate_language language = {nothing, words, NULL};
    return mutate_whole(data, size, most, seed, &language);
}

#define NEED(condition) ((condition) ? (void)0 : abort())

/* Writes what is in the file again, and reads it. */
static void again(gguf_file *g) {
    char error[GGUF_ERROR];
    gguf_writer w;
    gguf_file other;
    char *bytes = NULL;
    size_t n = 0;
    FILE *file = open_memstream(&bytes, &n);
    memset(&w, 0, sizeof w);
    NEED(file);
    for (size_t i = 0; i < g->n_values; i++)
        if (strcmp(g->values[i].key, "general.alignment")) gguf_put_value(&w, &g->values[i]);
    NEED(gguf_put_head(&w, file) && !fclose(file));
    NEED(gguf_read(&other, bytes, n, error));
    for (size_t i = 0; i < other.n_values; i++) {
        const gguf_value *v = &other.values[i], *old = gguf_find(g, v->key);
        NEED(old && old->type == v->type && old->of == v->of && old->count == v->count);
        NEED(old->bytes == v->bytes && (!v->bytes || !memcmp(old->at, v->at, v->bytes)));
    }
    gguf_close(&other), free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char error[GGUF_ERROR] = "";
    gguf_file g;
    double sum = 0, x;
    if (!gguf_read(&g, data, size, error)) {
        NEED(*error && strlen(error) < GGUF_ERROR && !strchr(error, '\n') && !g.values && !g.tensors);
        return 0;
    }
    for (size_t i = 0; i < g.n_values; i++) {
        const gguf_value *v = &g.values[i];
        const unsigned char *at = v->at;
        NEED(gguf_find(&g, v->key) == v && (!i || strcmp(g.values[i - 1].key, v->key) < 0));
        for (uint64_t j = 0; j < v->count && v->type != GGUF_TEXT; j++)
            if (v->of == GGUF_TEXT) {
                size_t length;
                const char *text = gguf_next(&at, &length);
                NEED(text + length <= (const char *)data + size);
            } else if (gguf_element(v, j, &x)) sum += x;
    }
    for (size_t i = 0; i < g.n_tensors; i++) {
        const gguf_tensor *t = &g.tensors[i];
        float *numbers;
        NEED(gguf_find_tensor(&g, t->name) == t && t->bytes <= size);
        if (!t->bytes) continue;
        numbers = (float *)malloc((size_t)t->count * sizeof *numbers);
        NEED(numbers && gguf_read_tensor(&g, t, numbers, error));
        free(numbers);
    }
    again(&g);
    gguf_close(&g);
    return sum > 1e300;
}
