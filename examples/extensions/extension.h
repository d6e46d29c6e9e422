/* What the programs of this folder share: a network of parameters, the check of an operation's gradient, and
   the verdict.

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

static inline void stop(const char *line) {
    fprintf(stderr, "%s\n", line);
    exit(1);
}

typedef struct network {
    cmha_context context;
    cmha_tape tape;
    cmha_parameters parameters;
    cmha_rng rng; /* of the data */
} network;

/* Two arguments: rows {name, {shape}, mean, spread, decay, is_complex}, and how many. */
#define ROWS(...)                       \
    (cmha_parameter_row[]){__VA_ARGS__}, \
        sizeof((cmha_parameter_row[]){__VA_ARGS__}) / sizeof(cmha_parameter_row)

static inline void network_open(network *net, uint64_t seed, const cmha_parameter_row *rows, size_t count) {
    cmha_context_config config;
    memset(&config, 0, sizeof config);
    config.threads = 1; /* these sizes are too small to be shared */
    config.seed = seed;
    net->rng = cmha_rng_make(seed, UINT64_MAX);
    if (cmha_context_init(&net->context, &config) || cmha_tape_init(&net->tape, &net->context, 1) ||
        cmha_parameters_init(&net->parameters, &net->context, rows, count))
        stop(cmha_error(&net->context));
}

static inline void network_close(network *net) {
    cmha_parameters_close(&net->parameters);
    cmha_tape_close(&net->tape);
    cmha_context_close(&net->context);
}

/* The parameter of that name. */
static inline cmha_tensor *of(network *net, const char *name) {
    cmha_parameter *p = cmha_parameters_find(&net->parameters, name);
    if (!p) stop(name);
    return &p->tensor;
}

/* Two arguments: rank, shape. */
#define SHAPE(...) (int)(sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t)), (size_t[]){__VA_ARGS__}

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
    cmha_adamw_args args = {.lr = learning_rate, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .grad_scale = 1};
    double value = loss ? (double)loss->data[0] : 0;
    if (cmha_tape_backward(&net->tape, loss, 1) ||
        cmha_parameters_step(&net->parameters, &args, CMHA_CLIP_WHOLE, 0, NULL))
        stop(cmha_error(&net->context));
    cmha_tape_reset(&net->tape);
    return value;
}

/* An operation of a network's parameters, and a random weighting of its results. */
typedef struct subject {
    network *net;
    cmha_tensor *(*op)(network *net, const void *user);
    const void *user;
    cmha_real *weight;
} subject;

/* <weight, op(parameters)>, summed in double. */
static inline cmha_status weighted(void *user, double *loss) {
    const subject *s = (const subject *)user;
    cmha_tensor *y = s->op(s->net, s->user);
    *loss = 0;
    for (size_t i = 0; y && i < y->size; i++) *loss += (double)s->weight[i] * (double)y->data[i];
    cmha_status status = cmha_tape_status(&s->net->tape);
    cmha_tape_reset(&s->net->tape);
    return status;
}

/* The gradient of that weighting, walked back twice (with seeds 2 and -1, so that a backward which overwrites
   instead of adding is found), against differences. Prints the largest error and closes the network; returns
   1 if it is more than the build's precision allows. */
static inline int check_gradient(network *net, const char *name,
                                 cmha_tensor *(*op)(network *net, const void *user), const void *user) {
    const double allowed = sizeof(cmha_real) == 8 ? 1e-7 : 2e-3;
    subject s = {net, op, user, NULL};
    double worst = 0;
    for (int pass = 0; pass < 2; pass++) {
        cmha_tensor *y = op(net, user);
        if (y && !s.weight && !(s.weight = (cmha_real *)malloc(y->size * sizeof *s.weight)))
            stop("no memory");
        for (size_t i = 0; y && !pass && i < y->size; i++)
            s.weight[i] = (cmha_real)cmha_rng_normal(&net->rng);
        y = y ? cmha_sum(&net->tape, cmha_mul(&net->tape, y, constant(net, s.weight, y->rank, y->shape)))
              : NULL;
        if (cmha_tape_backward(&net->tape, y, pass ? -1 : 2)) stop(cmha_error(&net->context));
        cmha_tape_reset(&net->tape);
    }
    if (cmha_gradient_check(&net->parameters, weighted, &s, &worst)) stop(cmha_error(&net->context));
    printf("%-20s gradient against differences: largest error %.1e of %.0e allowed%s\n", name, worst, allowed,
           worst <= allowed ? "" : ", WRONG");
    free(s.weight);
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
