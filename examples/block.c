/* One ComplexFormer block built by hand from layers: forward, backward, shapes and the gradient's norm.
       cc -O3 -march=native -fopenmp -I. examples/block.c -o block -lopenblas -lm */
#define CMHA_IMPLEMENTATION
#include "cmha.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Sequences, tokens, width, heads, pairs a head, inner width. */
enum { B = 2, N = 16, D = 64, H = 4, P = D / H / 2, FF = 128 };
static cmha_tape tape;
static cmha_rng rng;

/* Makes a tensor of N(mean, spread^2) whose gradient is wanted. */
static cmha_tensor *normal(int rank, const size_t *shape, double mean, double spread) {
    cmha_tensor *t = cmha_tensor_new(&tape, rank, shape, 1);
    for (size_t i = 0; t && i < t->size; i++) t->data[i] = (cmha_real)(mean + spread * cmha_rng_normal(&rng));
    return t;
}

int main(int argc, char **argv) {
    cmha_context ctx;
    double omega[P], norm = 0;
    int help = argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"));
    if (argc > 1) fputs("block: a block, forward and backward; takes no options\n", help ? stdout : stderr);
    if (argc > 1) return fclose(help ? stdout : stderr) ? perror("block"), 1 : help ? 0 : 2;
    cmha_blas_restart(argv); /* an OpenBLAS older than this CPU: start again with the right kernel */
    if (cmha_context_init(&ctx, NULL) || cmha_tape_init(&tape, &ctx, 1)) return puts(cmha_error(&ctx)), 1;
    rng = cmha_rng_make(1, 0);
    cmha_tensor *x = normal(3, (size_t[]){B, N, D}, 0, 1);
    cmha_tensor *ln1 = normal(1, (size_t[]){D}, 1, 0), *ln2 = normal(1, (size_t[]){D}, 1, 0);
    cmha_tensor *qkv = normal(2, (size_t[]){3 * D, D}, 0, 0.1), *wo = normal(2, (size_t[]){D, D}, 0, 0.1);
    cmha_tensor *w1 = normal(2, (size_t[]){FF, D}, 0, 0.1), *b1 = normal(1, (size_t[]){FF}, 0, 0);
    cmha_tensor *w2 = normal(2, (size_t[]){D, FF}, 0, 0.1), *b2 = normal(1, (size_t[]){D}, 0, 0);
    cmha_tensor *delta = normal(2, (size_t[]){H, P}, 1, 0.02); /* how far each head turns by the phases */
    cmha_tensor *b = normal(2, (size_t[]){H, P}, 0, 0), *turns[] = {delta, b}; /* and turns its queries */

    cmha_frequencies(CMHA_FREQUENCY_ROPE, 10000, P, NULL, omega);
    cmha_attention_args args = {.heads = H, .kv_heads = H, .kind = CMHA_ATTENTION_CMHA, .causal = 1,
                                .scale = (cmha_real)(1 / sqrt(2.0 * P)),
                                .rotation = cmha_rotation(&tape, omega, 1, P, N, 0)};

    cmha_tensor *normed = cmha_layernorm(&tape, x, ln1, NULL, (cmha_real)1e-5);
    cmha_tensor *projected = cmha_linear(&tape, normed, qkv, NULL);                     /* [B, N, 3D] */
    cmha_tensor *heads = cmha_attention(&tape, &args, projected, NULL, NULL, turns);   /* [B, N, D] */
    cmha_tensor *h = cmha_sublayer(&tape, heads, CMHA_ACTIVATION_NONE, wo, NULL, x, 1, 0); /* + x */
    cmha_tensor *inner = cmha_linear(&tape, cmha_layernorm(&tape, h, ln2, NULL, (cmha_real)1e-5), w1, b1);
    cmha_tensor *y = cmha_sublayer(&tape, inner, CMHA_ACTIVATION_GELU_ERF, w2, b2, h, 1, 0); /* h + .. */
    cmha_tensor *loss = cmha_sum(&tape, cmha_mul(&tape, y, y));
    if (cmha_tape_backward(&tape, loss, 1)) return puts(cmha_error(&ctx)), 1;

    cmha_tensor *wanted[] = {x, ln1, qkv, delta, b, wo, ln2, w1, b1, w2, b2};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        for (size_t j = 0; j < wanted[i]->size; j++) norm += pow((double)wanted[i]->grad[j], 2);
    printf("x [%d, %d, %d] -> q, k, v [%zu, %zu, %zu] -> y [%zu, %zu, %zu]\n", B, N, D, projected->shape[0],
           projected->shape[1], projected->shape[2], y->shape[0], y->shape[1], y->shape[2]);
    printf("loss %.4f, norm of the gradient %.4f\n", (double)loss->data[0], sqrt(norm));
    cmha_tape_close(&tape), cmha_context_close(&ctx);
    return fclose(stdout) ? perror("block"), 1 : 0;
}
