/* look CHECKPOINT LAYER HEAD TEXT: what cmha_model_attention says of a head over a text of bytes (an encoder's
   [CLS] and [SEP] are 257 and 258), a line for each query: what build/look's page has to show. */
#define CMHA_IMPLEMENTATION
#include "cmha.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    cmha_context ctx;
    cmha_model model;
    int32_t ids[512];
    size_t n = 0, bytes;
    if (argc != 5 || (bytes = strlen(argv[4])) > 500) return puts("look CHECKPOINT LAYER HEAD TEXT"), 2;
    if (cmha_context_init(&ctx, NULL) || cmha_model_open(&model, &ctx, argv[1])) return puts(cmha_error(&ctx)), 1;
    if (!model.config.causal) ids[n++] = 257;
    for (size_t i = 0; i < bytes; i++) ids[n++] = (unsigned char)argv[4][i];
    if (!model.config.causal) ids[n++] = 258;
    cmha_batch batch;
    memset(&batch, 0, sizeof batch);
    batch.ids = ids, batch.batch = 1, batch.length = n;
    cmha_real *weights = (cmha_real *)calloc(n * n, sizeof *weights);
    if (!weights || cmha_model_attention(&model, &batch, (size_t)atoi(argv[2]), (size_t)atoi(argv[3]),
                                         CMHA_SEE_PROBABILITIES, weights))
        return puts(cmha_error(&ctx)), 1;
    for (size_t i = 0; i < n * n; i++) printf((i + 1) % n ? "%.9g " : "%.9g\n", (double)weights[i]);
    free(weights);
    cmha_model_close(&model), cmha_context_close(&ctx);
    return 0;
}
