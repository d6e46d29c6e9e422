/* Complex diffusion (CRAT 7.7). CRAT eq 35 noises a complex z_0 in one step,

       z_t = sqrt(abar_t) z_0 + sqrt(1 - abar_t) eps,    Re eps and Im eps independent

   Decided: eps is circular with E|eps|^2 = 1, N(0, 1/2) a component, and E|z_0|^2 = 1, so that E|z_t|^2 stays
   1; with N(0, 1) a component noise would have twice the power of the data. abar = sigmoid(gamma), 50 steps
   of the cosine schedule. Corrected: the phase is no freedom that real diffusion lacks. Noise being circular,
   diffusion in C is diffusion in R^2, number for number. What can differ is the denoiser: complex matrices
   turn and scale, and modReLU, relu(|a| + b) a/|a|, keeps phases; cGELU does not.

   Tried on a ring of 8 blurred points: how well is eps predicted, where do samples fall? Baselines: cGELU in
   modReLU's place, and a real network of as many parameters. */
#include "extension.h"

enum {
    STEPS = 50, BATCH = 128, SAMPLES = 1000, TIMES = 4, IN = 1 + TIMES, WIDTH = 24, REAL_WIDTH = 32,
    SEEDS = 2, TRAIN = 1600
};
enum { MODRELU, CGELU, REAL }; /* kinds of denoiser */
static double abar[STEPS + 1], pi = 3.14159265358979, blur = 0.12;

static cmha_status noising_backward(cmha_tape *tape, cmha_record *record) {
    const cmha_real *eps = record->user, *g = record->out->grad, *z = record->in[0]->data;
    cmha_real *dz = cmha_tape_grad(tape, record->in[0]), *dgamma = cmha_tape_grad(tape, record->in[1]);
    for (size_t i = 0; i < record->out->size; i++) { /* d sqrt(s) = sqrt(s) (1 - s)/2 for s = sigmoid */
        double s = 1 / (1 + exp(-(double)record->in[1]->data[i / 2])), a = sqrt(s), b = sqrt(1 - s);
        if (dz) dz[i] += (cmha_real)(a * (double)g[i]);
        if (dgamma)
            dgamma[i / 2] +=
                (cmha_real)((double)g[i] * (a * (1 - s) * (double)z[i] - b * s * (double)eps[i]) / 2);
    }
    return cmha_tape_status(tape);
}

/* z_0 [T, 2], gamma [T], eps [T, 2]. Its gradients are for learnt embeddings or
   schedules; the training below needs none. */
static cmha_tensor *noising(cmha_tape *tape, cmha_tensor *z0, cmha_tensor *gamma, const cmha_real *eps) {
    cmha_tensor *in[2] = {z0, gamma}, *y = z0 && gamma ? cmha_tensor_new(tape, 2, z0->shape, 0) : NULL;
    for (size_t i = 0; y && i < y->size; i++) {
        double s = 1 / (1 + exp(-(double)gamma->data[i / 2]));
        y->data[i] = (cmha_real)(sqrt(s) * (double)z0->data[i] + sqrt(1 - s) * (double)eps[i]);
    }
    return cmha_tape_push(tape, "noising", y, in, 2, noising_backward, (void *)(size_t)eps);
}

static cmha_status modrelu_backward(cmha_tape *tape, cmha_record *record) {
    const cmha_tensor *z = record->in[0], *b = record->in[1];
    cmha_real *dz = cmha_tape_grad(tape, record->in[0]), *db = cmha_tape_grad(tape, record->in[1]);
    /* y = z + b z/|z|: b's part passes what is across z, divided by |z| */
    for (size_t i = 0, d = b->size; i < z->size / 2; i++) {
        size_t at = i / d * 2 * d + i % d;
        double re = (double)z->data[at], im = (double)z->data[at + d], r = hypot(re, im),
               bias = (double)b->data[i % d];
        double gr = (double)record->out->grad[at], gi = (double)record->out->grad[at + d];
        double across = bias * (re * gi - im * gr) / (r * r * r);
        if (!(r > 0 && r + bias > 0)) continue;
        if (dz) dz[at] += (cmha_real)(gr - across * im), dz[at + d] += (cmha_real)(gi + across * re);
        if (db) db[i % d] += (cmha_real)((re * gr + im * gi) / r);
    }
    return cmha_tape_status(tape);
}

/* z [T, 2D], b [D] */
static cmha_tensor *modrelu(cmha_tape *tape, cmha_tensor *z, cmha_tensor *b) {
    cmha_tensor *in[2] = {z, b}, *y = z && b ? cmha_tensor_new(tape, 2, z->shape, 0) : NULL;
    for (size_t i = 0; y && i < z->size / 2; i++) {
        size_t d = b->size, at = i / d * 2 * d + i % d;
        double re = (double)z->data[at], im = (double)z->data[at + d], r = hypot(re, im),
               bias = (double)b->data[i % d];
        double factor = r > 0 && r + bias > 0 ? 1 + bias / r : 0;
        y->data[at] = (cmha_real)(factor * re), y->data[at + d] = (cmha_real)(factor * im);
    }
    return cmha_tape_push(tape, "modReLU", y, in, 2, modrelu_backward, NULL);
}

static cmha_tensor *op(network *net, const void *eps) {
    return modrelu(&net->tape, noising(&net->tape, of(net, "z0"), of(net, "gamma"), eps), of(net, "bias"));
}

/* eps from z [n, 2] at step t[i] of row i. What enters is z and e^{i k pi t/STEPS}, in planes. */
static cmha_tensor *predict(network *net, int kind, cmha_tensor *z, const size_t *t, size_t n) {
    cmha_tensor *x = cmha_tensor_new(&net->tape, SHAPE(n, 2 * IN), 0);
    cmha_parameter *p = net->parameters.list; /* weight, bias, modReLU's bias of each layer */
    if (!x || !z) stop(cmha_error(&net->context));
    for (size_t i = 0; i < n; i++) {
        cmha_real *row = x->data + i * 2 * IN;
        row[0] = z->data[2 * i], row[IN] = z->data[2 * i + 1];
        for (size_t k = 1; k <= TIMES; k++)
            row[k] = (cmha_real)cos(pi / STEPS * (double)(k * t[i])),
            row[IN + k] = (cmha_real)sin(pi / STEPS * (double)(k * t[i]));
    }
    for (int layer = 0; layer < 3; layer++, p += 3) {
        x = kind == REAL ? cmha_linear(&net->tape, x, &p[0].tensor, &p[1].tensor)
                         : cmha_complex_linear(&net->tape, x, &p[0].tensor, &p[1].tensor);
        if (layer < 2)
            x = kind == MODRELU ? modrelu(&net->tape, x, &p[2].tensor)
                                : cmha_activate(&net->tape, x, CMHA_ACTIVATION_GELU_ERF);
    }
    return x;
}

static void circular(cmha_rng *rng, cmha_real *z, size_t n, double spread) {
    for (size_t i = 0; i < 2 * n; i++) z[i] = (cmha_real)(sqrt(0.5) * spread * cmha_rng_normal(rng));
}

/* Trains and samples. Adds to result: the error of eps, samples within two blurs of a
   point, points with half their share. */
static void generate(int kind, uint64_t seed, double *result) {
    static cmha_real z[2 * SAMPLES], noise[2 * SAMPLES], gamma[BATCH];
    static size_t t[SAMPLES];
    double at[8] = {0}, ring = sqrt(1 - 2 * blur * blur); /* E|z|^2 = 1 */
    network net;
    cmha_parameter_row rows[9];
    for (size_t layer = 0; layer < 3; layer++) {
        static const char *const names[] = {"w1", "b1", "relu1", "w2", "b2", "relu2", "w3", "b3", "relu3"};
        cmha_parameter_row *row = rows + 3 * layer;
        size_t in = layer ? WIDTH : IN, out = layer < 2 ? WIDTH : 1;
        if (kind == REAL) in = layer ? REAL_WIDTH : 2 * IN, out = layer < 2 ? REAL_WIDTH : 2;
        row[0] = (cmha_parameter_row){names[3 * layer], {2, out, in}, 0, 1 / sqrt(2 * (double)in), 0, 1};
        row[1] = (cmha_parameter_row){names[3 * layer + 1], {2, out}, 0, 0.1, 0, 1};
        row[2] = (cmha_parameter_row){names[3 * layer + 2], {out}, 0, 0, 0, 0};
        if (kind != REAL) continue;
        row[0] = (cmha_parameter_row){names[3 * layer], {out, in}, 0, 1 / sqrt((double)in), 0, 0};
        row[1] = (cmha_parameter_row){names[3 * layer + 1], {out}, 0, 0.1, 0, 0};
    }
    network_open(&net, seed, rows, 9);
    for (int step = 0; step < TRAIN; step++) {
        circular(&net.rng, z, BATCH, sqrt(2) * blur), circular(&net.rng, noise, BATCH, 1);
        for (size_t i = 0; i < BATCH; i++) {
            z[2 * i] += (cmha_real)(ring * cos(pi / 4 * (double)i)),
                z[2 * i + 1] += (cmha_real)(ring * sin(pi / 4 * (double)i));
            t[i] = 1 + cmha_rng_below(&net.rng, STEPS),
            gamma[i] = (cmha_real)log(abar[t[i]] / (1 - abar[t[i]]));
        }
        cmha_tensor *zt = noising(&net.tape, constant(&net, z, SHAPE(BATCH, 2)),
                                  constant(&net, gamma, SHAPE(BATCH)), noise);
        cmha_tensor *loss = cmha_squared_error(&net.tape, predict(&net, kind, zt, t, BATCH), noise);
        result[0] +=
            descend(&net, loss, 0.01 * (1 - (double)step / TRAIN)) * (step >= TRAIN / 2) / (TRAIN / 2);
    }
    circular(&net.rng, z, SAMPLES, 1);
    for (size_t s = STEPS; s > 0; s--) { /* DDPM's sampler (Ho et al. 2020), its noise circular */
        double alpha = abar[s] / abar[s - 1], share = (1 - alpha) / sqrt(1 - abar[s]);
        for (size_t i = 0; i < SAMPLES; i++) t[i] = s;
        cmha_tensor *e = predict(&net, kind, constant(&net, z, SHAPE(SAMPLES, 2)), t, SAMPLES);
        circular(&net.rng, noise, SAMPLES, sqrt((1 - alpha) * (1 - abar[s - 1]) / (1 - abar[s])));
        for (size_t i = 0; e && i < 2 * SAMPLES; i++)
            z[i] = (cmha_real)(((double)z[i] - share * (double)e->data[i]) / sqrt(alpha) + (double)noise[i]);
        cmha_tape_reset(&net.tape);
    }
    for (size_t i = 0; i < SAMPLES; i++) {
        double re = (double)z[2 * i], im = (double)z[2 * i + 1],
               point = floor(0.5 + atan2(im, re) / (pi / 4));
        at[((int)point + 8) % 8] += 1. / SAMPLES;
        result[1] += (hypot(re - cos(pi / 4 * point), im - sin(pi / 4 * point)) < 2 * blur) * 1. / SAMPLES;
    }
    for (int k = 0; k < 8; k++) result[2] += at[k] > 0.0625;
    network_close(&net);
}

int main(void) {
    static const cmha_real eps[6] = {1, -1, (cmha_real)0.5, 2, (cmha_real)-0.3, (cmha_real)0.7};
    static const char *const names[] = {"complex, modReLU", "complex, cGELU", "real, as many parameters"};
    double mean[3][3] = {{0}};
    network net;
    for (int s = 0; s <= STEPS; s++) abar[s] = s < STEPS ? pow(cos(pi / 2 * s / STEPS), 2) : 1e-4;
    network_open(&net, 1,
                 ROWS({"z0", {3, 2}, 0, 1, 0, 0}, {"gamma", {3}, 0, 1, 0, 0}, {"bias", {1}, 0.5, 0.1, 0, 0}));
    int wrong = check_gradient(&net, "noising, modReLU", op, eps);
    for (int kind = 0; kind < 3; kind++) {
        for (uint64_t seed = 1; seed <= SEEDS; seed++) generate(kind, seed, mean[kind]);
        printf(
            "%-25s error of eps %.3f, samples at a point %.1f %% (data: 86.5 %%), %.1f of 8 points reached\n",
            names[kind], mean[kind][0] / SEEDS, 100 * mean[kind][1] / SEEDS, mean[kind][2] / SEEDS);
    }
    verdict("a complex denoiser (-error of eps)", -mean[CGELU][0] / SEEDS, -mean[REAL][0] / SEEDS, 0.005);
    return wrong;
}
