/* One ComplexFormer block built by hand from layers: forward, backward, shapes and the norm of the gradient. */
#define CMHA_IMPLEMENTATION
#include "cmha.h"

#include <math.h>
#include <stdio.h>

enum { B = 2, N = 16, D = 64, H = 4, P = D / H / 2, FF = 128 }; /* sequences, tokens, width, heads, pairs a head, inner width */

/* A tensor of N(mean, spread^2) whose gradient is wanted. */
static cmha_tensor *normal(cmha_tape *tape, cmha_rng *rng, int rank, const size_t *shape, double mean, double spread) {
    cmha_tensor *t = cmha_tensor_new(tape, rank, shape, 1);
    for (size_t i = 0; t && i < t->size; i++) t->data[i] = (cmha_real)(mean + spread * cmha_rng_normal(rng));
    return t;
}

int main(int argc, char **argv) {
    cmha_context ctx;
    cmha_tape tape;
    cmha_rng rng = cmha_rng_make(1, 0);
    double omega[P], norm = 0;
    (void)argc;

    cmha_blas_restart(argv); /* an OpenBLAS older than this CPU: start again with the right kernel */
    if (cmha_context_init(&ctx, NULL) || cmha_tape_init(&tape, &ctx, 1)) return puts(cmha_error(&ctx)), 1;

    cmha_tensor *x = normal(&tape, &rng, 3, (size_t[]){B, N, D}, 0, 1);
    cmha_tensor *ln1 = normal(&tape, &rng, 1, (size_t[]){D}, 1, 0), *ln2 = normal(&tape, &rng, 1, (size_t[]){D}, 1, 0);
    cmha_tensor *qkv = normal(&tape, &rng, 2, (size_t[]){3 * D, D}, 0, 0.1);
    cmha_tensor *wo = normal(&tape, &rng, 2, (size_t[]){D, D}, 0, 0.1);
    cmha_tensor *w1 = normal(&tape, &rng, 2, (size_t[]){FF, D}, 0, 0.1), *b1 = normal(&tape, &rng, 1, (size_t[]){FF}, 0, 0);
    cmha_tensor *w2 = normal(&tape, &rng, 2, (size_t[]){D, FF}, 0, 0.1), *b2 = normal(&tape, &rng, 1, (size_t[]){D}, 0, 0);
    cmha_tensor *delta = normal(&tape, &rng, 2, (size_t[]){H, P}, 1, 0.02); /* how far each head turns by the phases */
    cmha_tensor *b = normal(&tape, &rng, 2, (size_t[]){H, P}, 0, 0);        /* and a constant turn of its queries */

    cmha_frequencies(CMHA_FREQ_ROPE, 10000, P, omega);
    cmha_attention_args args = {.heads = H, .kv_heads = H, .causal = 1, .scale = (cmha_real)(1 / sqrt(2.0 * P)),
                                .kind = CMHA_ATTENTION_CMHA, .rotation = cmha_rotation(&tape, omega, 1, P, N, 0)};

    cmha_tensor *projected = cmha_linear(&tape, cmha_layernorm(&tape, x, ln1, NULL, (cmha_real)1e-5), qkv, NULL); /* [B, N, 3D] */
    cmha_tensor *heads = cmha_attention(&tape, &args, projected, NULL, NULL, delta, b);                         /* [B, N, D] */
    cmha_tensor *h = cmha_sublayer(&tape, heads, -1, wo, NULL, x, 1, 0);                  /* x + heads wo^T */
    cmha_tensor *inner = cmha_linear(&tape, cmha_layernorm(&tape, h, ln2, NULL, (cmha_real)1e-5), w1, b1);
    cmha_tensor *y = cmha_sublayer(&tape, inner, CMHA_GELU_ERF, w2, b2, h, 1, 0);         /* h + gelu(inner) w2^T + b2 */
    cmha_tensor *loss = cmha_sum(&tape, cmha_mul(&tape, y, y));
    if (cmha_backward(&tape, loss, 1)) return puts(cmha_error(&ctx)), 1;

    cmha_tensor *wanted[] = {x, ln1, qkv, delta, b, wo, ln2, w1, b1, w2, b2};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        for (size_t j = 0; j < wanted[i]->size; j++) norm += (double)wanted[i]->grad[j] * (double)wanted[i]->grad[j];
    printf("x [%zu, %zu, %zu] -> q, k, v [%zu, %zu, %zu] -> y [%zu, %zu, %zu]\n", x->shape[0], x->shape[1], x->shape[2],
           projected->shape[0], projected->shape[1], projected->shape[2], y->shape[0], y->shape[1], y->shape[2]);
    printf("loss %.4f, norm of the gradient %.4f\n", (double)loss->data[0], sqrt(norm));
    cmha_tape_close(&tape);
    cmha_context_close(&ctx);
    if (fclose(stdout)) return perror("block"), 1;
    return 0;
}
