/* A token file. Input: a byte that says how the disk fails (fuzz_fail), a byte with the width, then the
   file. */
#include "fuzz.h"

static int32_t expected(const uint8_t *at, int width) {
    uint32_t x = 0;
    int i;
    for (i = 0; i < width; i++) x |= (uint32_t)at[i] << (8 * i);
    return (int32_t)x;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cmha_tokens tokens, part;
    int width;
    size_t i;
    if (!fuzz_context.open) fuzz_open_context();
    if (size < 2) return 0;
    width = data[1] & 7;
    fuzz_put(data + 2, size - 2), fuzz_fail(data[0]);
    if (cmha_tokens_open(&tokens, &fuzz_context, FUZZ_PATH, width)) {
        NEED(cmha_error(&fuzz_context)[0] && !tokens.data && !tokens.count);
        if (width == 1 || width == 2 || width == 4) fuzz_check_line(cmha_error(&fuzz_context));
    } else {
        NEED(tokens.count * (size_t)width == size - 2);
        for (i = 0; i < tokens.count; i++)
            NEED(cmha_tokens_at(&tokens, i) == expected(data + 2 + i * (size_t)width, width));
        part = cmha_tokens_part(&tokens, data[1] >> 3, (size_t)data[1] * data[0]);
        for (i = 0; i < part.count; i++)
            NEED(cmha_tokens_at(&part, i) == cmha_tokens_at(&tokens, i + (data[1] >> 3)));
        cmha_tokens_close(&part), cmha_tokens_close(&tokens);
    }
    NEED(fuzz_memory == 0);
    return 0;
}
