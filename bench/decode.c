/* Decoding, one token at a time, with weights and caches of every storage, interleaved; medians:
       decode [THREADS [CONTEXT [TOKENS ["FIELD=VALUE ..."]]]]        the paper preset, 512 tokens held, 8 more, unless told
   otherwise */
#define CMHA_IMPLEMENTATION
#include "cmha.h"
#include <stdio.h>
#include <time.h>

enum { VARIANTS = 5, ROUNDS = 15 };
static cmha_context ctx;

static double seconds(void) {
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check(cmha_status status) {
    if (!status) return;
    fprintf(stderr, "decode: %s\n", cmha_error(&ctx));
    exit(1);
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

int main(int argc, char **argv) {
    static const char *const names[VARIANTS] = {"f32", "bf16", "int8", "f32, cache bf16", "int8, cache bf16"};
    static const cmha_storage weights[VARIANTS] = {CMHA_STORAGE_FLOAT, CMHA_STORAGE_BF16, CMHA_STORAGE_INT8, CMHA_STORAGE_FLOAT,
                                                   CMHA_STORAGE_INT8};
    size_t context = argc > 2 ? (size_t)atoi(argv[2]) : 512, n = argc > 3 ? (size_t)atoi(argv[3]) : 8, i;
    cmha_context_config cc = {.threads = argc > 1 ? atoi(argv[1]) : 1};
    cmha_model_config mc;
    cmha_model model;
    cmha_quantised quantised[VARIANTS];
    cmha_cache cache[VARIANTS];
    double time[VARIANTS][ROUNDS];
    cmha_blas_restart(argv);
    check(cmha_context_init(&ctx, &cc));
    cmha_preset("paper", &mc, NULL);
    if (argc > 4) check(cmha_config_set_all(&ctx, cmha_model_table(), &mc, argv[4]));
    check(cmha_model_init(&model, &ctx, &mc));
    int32_t *ids = calloc(context + n, sizeof *ids);
    cmha_real *logits = calloc(mc.vocabulary, sizeof *logits);
    for (i = 0; i < context + n; i++) ids[i] = (int32_t)(i * 7919 % mc.vocabulary);
    memset(quantised, 0, sizeof quantised);
    for (int v = 0; v < VARIANTS; v++) {
        cmha_cache_options o = {NULL, v >= 3 ? CMHA_STORAGE_BF16 : CMHA_STORAGE_FLOAT};
        if (weights[v]) check(cmha_quantise(&quantised[v], &model, weights[v])), o.weights = &quantised[v];
        check(cmha_cache_init_with(&cache[v], &model, 1, context + n * (ROUNDS + 1), 0, &o));
        check(cmha_cache_append(&cache[v], ids, context, logits));
    }
    for (int r = -1; r < ROUNDS; r++)
        for (int v = 0; v < VARIANTS; v++) {
            double start = seconds();
            for (i = 0; i < n; i++) check(cmha_cache_append(&cache[v], ids + i, 1, logits));
            if (r >= 0) time[v][r] = (seconds() - start) / (double)n;
        }
    printf("%zu parameters, %d threads, %zu tokens held\n", model.size, ctx.threads, context);
    for (int v = 0; v < VARIANTS; v++) {
        qsort(time[v], ROUNDS, sizeof **time, by_size);
        double t = time[v][ROUNDS / 2], bytes = (double)(weights[v] ? quantised[v].bytes : model.size * sizeof(cmha_real));
        printf("%-18s %7.1f tokens/s, %.2f x f32; best %7.1f, %.2f x f32; weights %.1f MB\n", names[v], 1 / t,
               time[0][ROUNDS / 2] / t, 1 / time[v][0], time[0][0] / time[v][0], 1e-6 * bytes);
    }
    return 0;
}
