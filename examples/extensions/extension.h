/* What the programs of this folder share: parameters with an optimiser, the
   check of a gradient, and the verdict.

   An idea becomes an operation on the tape by two functions of its own: a forward that ends in
   cmha_tape_push, and a backward that adds to cmha_tape_grad. Each program has one or two such operations,
   checks them, and trains something small with and without the idea.

   They include the header without defining CMHA_IMPLEMENTATION, so that make links all
   of them with one object. By hand:
       cc -O3 -DCMHA_IMPLEMENTATION -I. examples/extensions/gru.c -lopenblas -lm
   and with -DCMHA_DOUBLE gradients are checked to seven digits. */
#ifndef EXTENSION_H
#define EXTENSION_H

#include "cmha.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PARAMETERS = 24, MOST_NUMBERS = 1 << 15 };

static inline void stop(const char *line) {
    fprintf(stderr, "%s\n", line);
    exit(1);
}

/* A tensor outlives its tape if the program owns it. These do; values and gradients are
   one array each: AdamW is one call. */
typedef struct network {
    cmha_context context;
    cmha_tape tape;
    cmha_rng rng;
    cmha_tensor parameter[MOST_PARAMETERS];
    cmha_real *data, *grad, *m, *v; /* [MOST_NUMBERS] each; m and v are AdamW's moments */
    size_t count, used, steps;
} network;

static inline void network_open(network *net, uint64_t seed) {
    cmha_context_config config;
    memset(net, 0, sizeof *net);
    memset(&config, 0, sizeof config);
    config.threads = 1; /* these sizes are too small to be shared */
    config.seed = seed;
    if (cmha_context_init(&net->context, &config) || cmha_tape_init(&net->tape, &net->context, 1))
        stop(cmha_error(&net->context));
    net->rng = cmha_rng_make(seed, 0);
    net->data = (cmha_real *)calloc(4 * (size_t)MOST_NUMBERS, sizeof *net->data);
    if (!net->data) stop("no memory");
    net->grad = net->data + MOST_NUMBERS, net->m = net->grad + MOST_NUMBERS, net->v = net->m + MOST_NUMBERS;
}

static inline void network_close(network *net) {
    free(net->data);
    cmha_tape_close(&net->tape);
    cmha_context_close(&net->context);
}

/* Two arguments: rank, shape. */
#define SHAPE(...) (int)(sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t)), (size_t[]){__VA_ARGS__}

/* A parameter of N(mean, spread^2). */
static inline cmha_tensor *parameter(network *net, double mean, double spread, int rank,
                                     const size_t *shape) {
    cmha_tensor *t = &net->parameter[net->count];
    if (net->count++ == MOST_PARAMETERS) stop("too many parameters");
    t->rank = rank, t->size = 1, t->needs_grad = 1;
    for (int i = 0; i < rank; i++) t->size *= t->shape[i] = shape[i];
    t->data = net->data + net->used, t->grad = net->grad + net->used;
    if ((net->used += t->size) > MOST_NUMBERS) stop("the parameters need more room");
    for (size_t i = 0; i < t->size; i++) t->data[i] = (cmha_real)(mean + spread * cmha_rng_normal(&net->rng));
    return t;
}

/* A tensor over the caller's numbers, which nothing is learnt about. */
static inline cmha_tensor *constant(network *net, cmha_real *data, int rank, const size_t *shape) {
    return cmha_tensor_wrap(&net->tape, rank, shape, data, NULL);
}

/* Where the largest of n numbers is: the answer that logits give. */
static inline int32_t largest(const cmha_real *row, size_t n) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (row[i] > row[best]) best = i;
    return (int32_t)best;
}

/* One step of AdamW down the gradient of `loss`; the tape is free again afterwards. Returns the loss. */
static inline double descend(network *net, cmha_tensor *loss, double learning_rate) {
    cmha_adamw_args args = {learning_rate, 0.9, 0.99, 1e-8, 0, 1, ++net->steps};
    double value = loss ? (double)loss->data[0] : 0;
    if (cmha_tape_backward(&net->tape, loss, 1)) stop(cmha_error(&net->context));
    cmha_adamw(&args, net->used, net->data, net->grad, net->m, net->v);
    memset(net->grad, 0, net->used * sizeof *net->grad);
    cmha_tape_reset(&net->tape);
    return value;
}

/* An operation of all parameters of a network, in the order they were made. */
typedef cmha_tensor *(*operation)(cmha_tape *tape, cmha_tensor *in, const void *user);

/* <weight, op(parameters)>, summed in double. */
static inline double weighted(network *net, operation op, const void *user, const cmha_real *weight) {
    cmha_tensor *y = op(&net->tape, net->parameter, user);
    double sum = 0;
    if (!y) stop(cmha_error(&net->context));
    for (size_t i = 0; i < y->size; i++) sum += (double)weight[i] * (double)y->data[i];
    cmha_tape_reset(&net->tape);
    return sum;
}

/* The gradient of a random weighting of the results, walked back twice (with seeds 2 and -1, so that a
   backward which overwrites instead of adding is found), against differences of fourth order. Errors are
   relative to a parameter's largest derivative. Prints the largest and closes the network; returns 1 if it is
   more than the build's precision allows, or if all was zero. */
static inline int check_gradient(network *net, const char *name, operation op, const void *user) {
    const double h = sizeof(cmha_real) == 8 ? 1e-4 : 4e-3, allowed = sizeof(cmha_real) == 8 ? 1e-7 : 2e-3;
    const double at[4] = {-2, -1, 1, 2}, factor[4] = {1 / 12., -8 / 12., 8 / 12., -1 / 12.};
    double worst = 0;
    cmha_real *weight = NULL;
    for (int pass = 0; pass < 2; pass++) {
        cmha_tensor *y = op(&net->tape, net->parameter, user);
        if (y && !weight && !(weight = (cmha_real *)malloc(y->size * sizeof *weight))) stop("no memory");
        for (size_t i = 0; y && !pass && i < y->size; i++) weight[i] = (cmha_real)cmha_rng_normal(&net->rng);
        y = y ? cmha_sum(&net->tape, cmha_mul(&net->tape, y, constant(net, weight, y->rank, y->shape)))
              : NULL;
        if (cmha_tape_backward(&net->tape, y, pass ? -1 : 2)) stop(cmha_error(&net->context));
        cmha_tape_reset(&net->tape);
    }
    for (size_t k = 0; k < net->count; k++) {
        const cmha_tensor *p = &net->parameter[k];
        double steepest = 0, error = 0;
        for (size_t i = 0; i < p->size; i++) {
            const cmha_real kept = p->data[i];
            double slope = 0;
            for (int s = 0; s < 4; s++) {
                p->data[i] = kept + (cmha_real)(at[s] * h);
                slope += factor[s] / h * weighted(net, op, user, weight);
            }
            p->data[i] = kept;
            steepest = fmax(steepest, fabs((double)p->grad[i]));
            error = fmax(error, fabs(slope - (double)p->grad[i]));
        }
        /* NaN counts as wrong */
        worst = steepest > 0 && error / steepest < 1e9 ? fmax(worst, error / steepest) : 1e9;
    }
    printf("%-20s gradient against differences: largest error %.1e of %.0e allowed%s\n", name, worst, allowed,
           worst <= allowed ? "" : ", WRONG");
    free(weight);
    network_close(net);
    return !(worst <= allowed);
}

/* The last line of each program: a score with the idea and one without, more being better;
   less than `noise` is no difference. */
static inline void verdict(const char *idea, double with, double without, double noise) {
    const char *word = with > without + noise   ? "helps"
                       : with < without - noise ? "does harm"
                                                : "makes no difference";
    printf("Verdict: %s %s here (%.4g against %.4g, the noise being about %.2g).\n", idea, word, with,
           without, noise);
    if (fflush(stdout) || ferror(stdout)) stop("cannot write to the standard output");
}

#endif
