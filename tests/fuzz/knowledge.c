/* A knowledge base: opened, searched, saved, and then it must come back the
   same. Input: see fuzz_put_archive. */
#include "fuzz.h"
#include "mutate.h"

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
    return mutate_archive(data, size, most, seed, 2, size > 2 && data[1] & 1);
}

/* Every text within the texts, every document its own nearest (or one that
   ties) unless it is nothing but zeros. */
static void use(const cmha_knowledge *base) {
    int64_t index[2];
    cmha_real similarity[2];
    size_t i, length;
    NEED(base->n == 0 || (base->d_r > 0 && base->vectors && base->features));
    for (i = 0; i < base->n && i < 4; i++) {
        const char *text = cmha_knowledge_text(base, i, &length);
        NEED(!length || text[0] == text[0]);
        NEED(!length || text[length - 1] == text[length - 1]);
        NEED(cmha_knowledge_search(base, base->vectors + i * 2 * base->d_r, 1, 2, -1, index, similarity) ==
             CMHA_OK);
        NEED(index[0] < (int64_t)base->n && similarity[0] <= (cmha_real)1.01 &&
             similarity[0] >= (cmha_real)-1.01);
    }
}

static void again(cmha_knowledge *base) {
    uint64_t identity = base->identity;
    size_t n = base->n, d_r = base->d_r;
    NEED(cmha_knowledge_save(base, FUZZ_PATH) == CMHA_OK);
    cmha_knowledge_close(base);
    fuzz_put(fuzz_the_disk.written, fuzz_the_disk.n_written);
    NEED(cmha_knowledge_open(base, &fuzz_context, FUZZ_PATH, 0) == CMHA_OK);
    NEED(base->identity == identity && base->n == n && base->d_r == d_r);
    cmha_knowledge_close(base);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    unsigned char *file;
    cmha_knowledge base;
    if (!fuzz_context.open) fuzz_open_context();
    if (size < 2) return 0;
    file = fuzz_put_archive(data, size);
    if (cmha_knowledge_open(&base, &fuzz_context, FUZZ_PATH, 0)) {
        fuzz_check_line(cmha_error(&fuzz_context));
        NEED(!base.vectors && !base.n);
    } else use(&base), again(&base);
    NEED(fuzz_memory == 0);
    free(file);
    return 0;
}
