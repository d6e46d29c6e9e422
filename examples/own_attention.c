/* An attention of one's own as a language model: the score of a query and a key is Re A tanh|A|, A = <q, k>.
   Checks its gradients, trains it on a text, saves, loads and samples it.
       cc -O3 -march=native -fopenmp -I. examples/own_attention.c -o own_attention -lopenblas -lm
       ./own_attention [TEXT] */
#define CMHA_IMPLEMENTATION
#include "cmha.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* s = scale Re A tanh|A| of a query with 64 keys. */
static void score(const cmha_score_call *call, const cmha_real *re, const cmha_real *im, cmha_real *s) {
    cmha_real t[64];
    cmha_modulus(64, re, im, t);
    cmha_tanh(64, t, t);
    for (int j = 0; j < 64; j++) s[j] = call->args->scale * re[j] * t[j];
}

/* Re A and Im A become ds times the derivatives by them: with t = tanh|A| and u = scale Re A (1 - t^2) / |A|
   these are scale t + u Re A and u Im A. */
static void score_back(const cmha_score_call *call, const cmha_real *ds, cmha_real *re, cmha_real *im) {
    cmha_real size[64], t[64];
    cmha_modulus(64, re, im, size);
    cmha_tanh(64, size, t);
    for (int j = 0; j < 64; j++) {
        cmha_real g = call->args->scale * ds[j], some = size[j] > 0 ? size[j] : 1;
        cmha_real along = g * re[j] * (1 - t[j] * t[j]) / some;
        re[j] = g * t[j] + along * re[j];
        im[j] = along * im[j];
    }
}

/* Heads are complex numbers, turned by position as in RoPE. That is all the library has to know. */
static const cmha_score row = {.name = "re-tanh", .planes = 2, .rotates = 1, .forward = score,
                               .backward = score_back};

static cmha_context ctx;
static cmha_model model;
static void must(cmha_status status) {
    if (status) fprintf(stderr, "own_attention: %s\n", cmha_error(&ctx)), exit(1);
}

static cmha_status loss_of(void *batch, double *loss) { return cmha_model_loss(&model, batch, loss); }
static int print(void *user, const int32_t *token, size_t batch) {
    return (void)user, (void)batch, putchar(*token), 0;
}

int main(int argc, char **argv) {
    cmha_context_config config = {.scores = &row, .n_scores = 1, .seed = 1};
    cmha_model_config mc;
    cmha_trainer_config tc;
    cmha_trainer trainer;
    cmha_tokens text, train, held_out;
    cmha_cache cache;
    double loss, error;
    int help = argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"));
    if (help) puts("own_attention [TEXT]: learns TEXT (cmha.h), writes own_attention.safetensors");
    if (help) return fclose(stdout) ? perror("own_attention"), 1 : 0;
    if (argc > 2) return fputs("own_attention: one text is enough; see --help\n", stderr), 2;
    cmha_blas_restart(argv);
    must(cmha_context_init(&ctx, &config));
    must(cmha_tokens_open(&text, &ctx, argc > 1 ? argv[1] : "cmha.h", 1));
    must(cmha_preset(&ctx, "tiny", &mc, &tc));
    must(cmha_config_set_all(&ctx, cmha_model_table(), &mc, "score=re-tanh init_std=0.1"));
    must(cmha_config_set_all(&ctx, cmha_trainer_table(), &tc, "steps=300 batch=8"));
    must(cmha_model_init(&model, &ctx, &mc));

    int32_t ids[] = {'R', 'e', ' ', 'A', ' ', 't', 'a', 'n', 'h', '|', 'A', '|'};
    cmha_batch batch = {.ids = ids, .targets = ids + 1, .batch = 1, .length = 11};
    must(cmha_model_gradient(&model, &batch, 1, 0, &loss));
    must(cmha_gradient_check(&model.parameters, loss_of, &batch, &error));
    printf("gradients: within %.0e of differences\n", error); /* -DCMHA_DOUBLE: 1e-9 */

    must(cmha_trainer_init(&trainer, &model, &tc));
    cmha_trainer_split(&trainer, &text, &train, &held_out);
    for (int step = 1; step <= 300; step++) {
        must(cmha_trainer_step(&trainer, &train, &loss));
        if (step % 100 == 0) printf("step %d: %.3f nats per byte\n", step, loss);
    }
    must(cmha_trainer_evaluate(&trainer, &held_out, &loss));
    printf("held out: %.3f nats per byte\n", loss);
    must(cmha_model_save(&model, "own_attention.safetensors"));
    cmha_trainer_close(&trainer), cmha_model_close(&model);

    must(cmha_model_open(&model, &ctx, "own_attention.safetensors")); /* by its name, "re-tanh" */
    must(cmha_cache_init(&cache, &model, 1, 256, 1, NULL));
    must(cmha_generate(&cache, ids, 2, 200, NULL, 1, print, NULL));
    cmha_cache_close(&cache), cmha_model_close(&model), cmha_tokens_close(&text), cmha_context_close(&ctx);
    return puts(""), fclose(stdout) != 0;
}
