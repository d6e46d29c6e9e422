/* ComplexFormer's attention on plain arrays: no tape, no context, no allocation inside the library.
       cc -O3 -march=native -fopenmp -I. examples/plain_kernels.c -o plain_kernels -lopenblas -lm

   Eq 8 of the paper scores a query m and a key n by n^2 P cosines,

       S[m, n] = scale sum_j |q_mj| |k_nj| cos(delta_j (arg q_mj - arg k_nj) + b_j + (m - n) omega_j),

   computed here as written, in double. The library maps every query and every key to a feature of the same
   size and takes dot products: the same numbers from n P cosines. */
#define CMHA_IMPLEMENTATION
#include "cmha.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { H = 4, N = 96, DK = 32, P = DK / 2 }; /* heads, tokens, width of a head, complex pairs of a head */

static cmha_real q[H * N * DK], k[H * N * DK], v[H * N * DK], y[H * N * DK]; /* [H, N, DK] */
static cmha_real delta[H * P], b[H * P], rotation[N * DK], query[N * DK], key[N * DK];

static void fill(cmha_rng *rng, cmha_real *x, size_t n, double mean, double spread) {
    for (size_t i = 0; i < n; i++) x[i] = (cmha_real)(mean + spread * cmha_rng_normal(rng));
}

/* Eq 8 for one pair of tokens, term by term. */
static double cosine_sum(size_t h, size_t m, size_t n, const double *omega, double scale) {
    const cmha_real *a = q + (h * N + m) * DK, *c = k + (h * N + n) * DK;
    double sum = 0;
    for (size_t j = 0; j < P; j++) {
        double qx = (double)a[2 * j], qy = (double)a[2 * j + 1], kx = (double)c[2 * j],
               ky = (double)c[2 * j + 1];
        double turn = (double)delta[h * P + j] * (atan2(qy, qx) - atan2(ky, kx)) + (double)b[h * P + j];
        sum += hypot(qx, qy) * hypot(kx, ky) * cos(turn + ((double)m - (double)n) * omega[j]);
    }
    return scale * sum;
}

int main(int argc, char **argv) {
    int help = argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"));
    if (argc > 1) {
        fputs("plain_kernels: attention on plain arrays, against eq 8; no options\n", help ? stdout : stderr);
        return fclose(help ? stdout : stderr) ? perror("plain_kernels"), 1 : help ? 0 : 2;
    }
    cmha_rng rng = cmha_rng_make(7, 0);
    double omega[P], scale = 1 / sqrt((double)DK), worst_score = 0, worst_output = 0;
    fill(&rng, q, H * N * DK, 0, 1), fill(&rng, k, H * N * DK, 0, 1), fill(&rng, v, H * N * DK, 0, 1);
    fill(&rng, delta, H * P, 0.7, 0.3), fill(&rng, b, H * P, 0, 0.5);
    cmha_frequencies(CMHA_FREQUENCY_ROPE, 10000, P, NULL, omega);
    /* cos and sin of every position and frequency, shared by the heads */
    cmha_rotation_table(omega, P, N, 0, rotation);

    /* The whole attention, in tiles and without n^2 memory. */
    cmha_attention_args args = {.batch = 1, .heads = H, .kv_heads = H, .n_q = N, .n_k = N, .d_k = DK,
                                .d_v = DK, .causal = 1, .scale = (cmha_real)scale, .rotation = rotation,
                                .parameters = {delta, b}};
    cmha_real *scratch = malloc(cmha_attention_scratch(&args, 0) * sizeof *scratch);
    if (!scratch) return puts("no memory"), 1;
    cmha_attention_views views = {.q = cmha_heads_by_head(q, H, N, DK, 0),
                                  .k = cmha_heads_by_head(k, H, N, DK, 0),
                                  .v = cmha_heads_by_head(v, H, N, DK, 0),
                                  .y = cmha_heads_by_head(y, H, N, DK, 0)};
    cmha_attention_forward(&args, &views, NULL, scratch);
    free(scratch);

    for (size_t h = 0; h < H; h++) {
        /* The feature map alone: scores are dot products of `query` and `key` rows. b turns the queries only.
         */
        cmha_rotate_args map = {P, CMHA_LAYOUT_INTERLEAVED, rotation, delta + h * P, b + h * P, P, 0};
        cmha_rotate_forward(&map, q + h * N * DK, DK, N, query, DK);
        map.b = NULL;
        cmha_rotate_forward(&map, k + h * N * DK, DK, N, key, DK);
        for (size_t m = 0; m < N; m++) {
            double weight[N], total = 0;
            for (size_t n = 0; n <= m; n++) {
                double score = cosine_sum(h, m, n, omega, scale), dot = 0;
                for (size_t i = 0; i < DK; i++) dot += (double)query[m * DK + i] * (double)key[n * DK + i];
                worst_score = fmax(worst_score, fabs(scale * dot - score));
                total += weight[n] = exp(score);
            }
            for (size_t i = 0; i < DK; i++) {
                double mean = 0;
                for (size_t n = 0; n <= m; n++) mean += weight[n] / total * (double)v[(h * N + n) * DK + i];
                worst_output = fmax(worst_output, fabs((double)y[(h * N + m) * DK + i] - mean));
            }
        }
    }
    printf("%d heads, %d tokens, %d pairs: largest difference to eq 8 written out\n", H, N, P);
    printf("  scores  %.1e\n  outputs %.1e\n", worst_score, worst_output);
    if (fclose(stdout)) return perror("plain_kernels"), 1;
    return !(worst_score < 1e-4 && worst_output < 1e-4);
}
