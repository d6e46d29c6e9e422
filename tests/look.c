/* What tests/look.sh needs beside build/look:
       look make FILE "FIELDS" [HOW]        a model of these fields, untrained. wild: with maps, delta and b
                                            of all kinds; odd: with NaN, infinity, huge weights; int8: packed
       look base FILE WIDTH                 a knowledge base whose passages are awkward texts
       look see CHECKPOINT LAYER HEAD TEXT  cmha_model_attention of a text of bytes (of an encoder between 257
                                            and 258): a line for each query */
#define CMHA_IMPLEMENTATION
#include "cmha.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cmha_context ctx;

static int check(cmha_status status) {
    if (!status) return 0;
    puts(cmha_error(&ctx));
    exit(1);
}

static void change(cmha_model *model, const char *how) {
    const cmha_real odd[4] = {(cmha_real)NAN, (cmha_real)INFINITY, (cmha_real)-1e38, (cmha_real)1e-38};
    cmha_rng rng = cmha_rng_make(1, 7);
    for (size_t i = 0; i < model->parameters.count; i++) {
        const cmha_parameter *p = &model->parameters.list[i];
        int drawn = strstr(p->name, ".mobius") || strstr(p->name, ".delta") || strstr(p->name, "attn.b");
        for (size_t j = 0; j < p->tensor.size; j++) {
            if (!strcmp(how, "wild") && drawn) p->tensor.data[j] = (cmha_real)cmha_rng_normal(&rng);
            if (!strcmp(how, "odd") && j % 5 == 0) p->tensor.data[j] = odd[j / 5 % 4];
        }
    }
}

static void make(const char *file, const char *fields, const char *how) {
    cmha_model_config c;
    cmha_model model;
    cmha_config_defaults(cmha_model_table(), &c);
    check(cmha_config_set_all(&ctx, cmha_model_table(), &c, fields));
    check(cmha_model_init(&model, &ctx, &c));
    change(&model, how);
    if (!strcmp(how, "int8")) check(cmha_model_pack(&model, CMHA_STORAGE_INT8));
    check(cmha_model_save(&model, file));
    cmha_model_close(&model);
}

static void make_base(const char *file, size_t width) {
    static const char *const passages[5] = {
        "</script><script>window.hacked=1</script>",
        "a \"quoted\" 'one' & <img src=x onerror='window.hacked=1'>",
        "bytes \xff\xfe that are no UTF-8, \x01 and \x1b[31m",
        "\xe2\x80\xa8 a line's end \\ \\u003c", "the last"};
    char texts[512] = "";
    uint64_t begin[6] = {0};
    cmha_rng rng = cmha_rng_make(3, 4);
    cmha_knowledge base;
    for (size_t i = 0; i < 5; i++) begin[i + 1] = begin[i] + strlen(strcpy(texts + begin[i], passages[i]));
    cmha_real *vectors = (cmha_real *)calloc(5 * 2 * width, sizeof *vectors);
    for (size_t i = 0; vectors && i < 10 * width; i++) vectors[i] = (cmha_real)cmha_rng_normal(&rng);
    check(cmha_knowledge_init(&base, &ctx, 5, width, vectors, NULL, texts, begin));
    check(cmha_knowledge_save(&base, file));
    cmha_knowledge_close(&base);
    free(vectors);
}

static void see(const char *file, size_t layer, size_t head, const char *text) {
    cmha_model model;
    int32_t ids[512];
    size_t n = 0;
    check(cmha_model_open(&model, &ctx, file));
    if (!model.config.causal) ids[n++] = 257;
    for (; *text && n < 500; text++) ids[n++] = (unsigned char)*text;
    if (!model.config.causal) ids[n++] = 258;
    cmha_batch batch;
    memset(&batch, 0, sizeof batch);
    batch.ids = ids, batch.batch = 1, batch.length = n;
    cmha_real *weights = (cmha_real *)calloc(n * n + 1, sizeof *weights);
    check(cmha_model_attention(&model, &batch, layer, head, CMHA_SEE_PROBABILITIES, weights));
    for (size_t i = 0; weights && i < n * n; i++)
        printf((i + 1) % n ? "%.9g " : "%.9g\n", (double)weights[i]);
    free(weights);
    cmha_model_close(&model);
}

int main(int argc, char **argv) {
    check(cmha_context_init(&ctx, NULL));
    if (argc >= 4 && !strcmp(argv[1], "make")) make(argv[2], argv[3], argc > 4 ? argv[4] : "");
    else if (argc == 4 && !strcmp(argv[1], "base")) make_base(argv[2], (size_t)atoi(argv[3]));
    else if (argc == 6 && !strcmp(argv[1], "see"))
        see(argv[2], (size_t)atoi(argv[3]), (size_t)atoi(argv[4]), argv[5]);
    else return puts("see the first lines of tests/look.c"), 2;
    cmha_context_close(&ctx);
    return 0;
}
