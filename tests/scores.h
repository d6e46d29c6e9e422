/* Scores of a program's own, as tests give them to contexts: feature maps, functions of the complex score and
   whole layers, with parameters of all kinds. */
#ifndef SCORES_H
#define SCORES_H

#include "check.h"

/* RoPE once more, as a map of the program's. */
static inline cmha_rotate_args scores_turns(const cmha_score_call *c) {
    cmha_rotate_args turns;
    memset(&turns, 0, sizeof turns);
    turns.P = c->args->d_k / 2, turns.layout = c->args->layout, turns.rotation = c->rotation;
    turns.delta = turns.b = NULL, turns.rotary = c->args->rotary_dims / 2;
    return turns;
}

static inline void scores_rope(const cmha_score_call *c, cmha_rows x, size_t n, cmha_real *y) {
    cmha_rotate_args turns = scores_turns(c);
    cmha_rotate_forward(&turns, x.data, x.ld, n, y, c->args->d_k);
}

static inline void scores_rope_back(const cmha_score_call *c, cmha_rows x, size_t n, const cmha_real *dy,
                                    cmha_rows dx) {
    cmha_rotate_args turns = scores_turns(c);
    cmha_rotate_backward(&turns, x.data, x.ld, n, dy, c->args->d_k, dx.data, NULL, NULL);
}

/* PoPE once more, without beta */
static inline void scores_polar(const cmha_score_call *c, cmha_rows x, size_t n, cmha_real *y) {
    cmha_rotate_args turns = scores_turns(c);
    turns.P = c->args->d_k, turns.polar = 1, turns.rotary = c->args->rotary_dims;
    cmha_rotate_forward(&turns, x.data, x.ld, n, y, 2 * c->args->d_k);
}

static inline void scores_polar_back(const cmha_score_call *c, cmha_rows x, size_t n, const cmha_real *dy,
                                     cmha_rows dx) {
    cmha_rotate_args turns = scores_turns(c);
    turns.P = c->args->d_k, turns.polar = 1, turns.rotary = c->args->rotary_dims;
    cmha_rotate_backward(&turns, x.data, x.ld, n, dy, 2 * c->args->d_k, dx.data, NULL, NULL);
}

/* Four features of each number, a x, x^2, 1 / (1 + x^2) and x, a [H, 1]; the second half is imaginary. */
static inline void scores_squares(const cmha_score_call *c, cmha_rows x, size_t n, cmha_real *y) {
    size_t i, j, d = c->args->d_k;
    for (i = 0; i < n; i++, y += 4 * d)
        for (j = 0; j < d; j++) {
            cmha_real u = x.data[i * x.ld + j];
            y[j] = c->parameters[0][0] * u, y[d + j] = u * u;
            y[2 * d + j] = 1 / (1 + u * u), y[3 * d + j] = u;
        }
}

static inline void scores_squares_back(const cmha_score_call *c, cmha_rows x, size_t n, const cmha_real *dy,
                                       cmha_rows dx) {
    size_t i, j, d = c->args->d_k;
    for (i = 0; i < n; i++, dy += 4 * d)
        for (j = 0; j < d; j++) {
            cmha_real u = x.data[i * x.ld + j], s = 1 / (1 + u * u);
            if (c->gradients[0]) c->gradients[0][0] += (double)(dy[j] * u);
            if (dx.data)
                dx.data[i * dx.ld + j] += c->parameters[0][0] * dy[j] + 2 * u * dy[d + j] -
                                          2 * u * s * s * dy[2 * d + j] + dy[3 * d + j];
        }
}

/* y = gain x + offset of queries, gain x of keys; gain [H, d_k], offset [1]. */
static inline void scores_gain(const cmha_score_call *c, cmha_rows x, size_t n, cmha_real *y) {
    size_t i, j, d = c->args->d_k;
    for (i = 0; i < n; i++)
        for (j = 0; j < d; j++)
            y[i * d + j] = c->parameters[0][j] * x.data[i * x.ld + j] + (c->is_key ? 0 : c->parameters[1][0]);
}

static inline void scores_gain_back(const cmha_score_call *c, cmha_rows x, size_t n, const cmha_real *dy,
                                    cmha_rows dx) {
    size_t i, j, d = c->args->d_k;
    for (i = 0; i < n; i++)
        for (j = 0; j < d; j++) {
            double g = (double)dy[i * d + j];
            if (dx.data) dx.data[i * dx.ld + j] += c->parameters[0][j] * dy[i * d + j];
            if (c->gradients[0]) c->gradients[0][j] += g * (double)x.data[i * x.ld + j];
            if (c->gradients[1] && !c->is_key) c->gradients[1][0] += g;
        }
}

/* y = z e^{i t}, t [H, pairs]: in two planes, of queries and keys the other way round, so that it matters. */
static inline void scores_twist(const cmha_score_call *c, cmha_rows x, size_t n, cmha_real *y) {
    size_t i, j, d = c->args->d_k;
    for (i = 0; i < n; i++)
        for (j = 0; j < d; j++) {
            double t = (c->is_key ? -1 : 1) * (double)c->parameters[0][j];
            double re = (double)x.data[i * x.ld + j], im = (double)x.data[i * x.ld + x.imag + j];
            y[i * 2 * d + j] = (cmha_real)(re * cos(t) - im * sin(t));
            y[i * 2 * d + d + j] = (cmha_real)(re * sin(t) + im * cos(t));
        }
}

static inline void scores_twist_back(const cmha_score_call *c, cmha_rows x, size_t n, const cmha_real *dy,
                                     cmha_rows dx) {
    size_t i, j, d = c->args->d_k;
    for (i = 0; i < n; i++)
        for (j = 0; j < d; j++) {
            double sign = c->is_key ? -1 : 1, t = sign * (double)c->parameters[0][j];
            double re = (double)x.data[i * x.ld + j], im = (double)x.data[i * x.ld + x.imag + j];
            double gr = (double)dy[i * 2 * d + j], gi = (double)dy[i * 2 * d + d + j];
            double zr = re * cos(t) - im * sin(t), zi = re * sin(t) + im * cos(t);
            if (c->gradients[0]) c->gradients[0][j] += sign * (gi * zr - gr * zi);
            if (!dx.data) continue;
            dx.data[i * dx.ld + j] += (cmha_real)(gr * cos(t) + gi * sin(t));
            dx.data[i * dx.ld + dx.imag + j] += (cmha_real)(gi * cos(t) - gr * sin(t));
        }
}

/* s = scale |O| / divisor, CoPE's magnitude. */
static inline void scores_size(const cmha_score_call *c, const cmha_real *re, const cmha_real *im,
                               cmha_real *s) {
    size_t j;
    cmha_modulus(64, re, im, s);
    for (j = 0; j < 64; j++) s[j] *= c->args->scale / c->divisor;
}

static inline void scores_size_back(const cmha_score_call *c, const cmha_real *ds, cmha_real *re,
                                    cmha_real *im) {
    cmha_real size[64], factor = c->args->scale / c->divisor;
    double sum = 0;
    size_t j;
    cmha_modulus(64, re, im, size);
    for (j = 0; j < 64; j++) {
        cmha_real some = size[j] > 0 ? size[j] : 1;
        sum += (double)(ds[j] * size[j] * factor);
        re[j] = ds[j] * factor * (re[j] / some);
        im[j] = ds[j] * factor * (im[j] / some);
    }
    if (c->ddivisor) *c->ddivisor -= sum / (double)c->divisor;
}

/* s = scale t (Re O tanh(p |O|) + u Im O); t [H, 1], (p, u) [2] shared: all that can be learned. */
static inline void scores_power(const cmha_score_call *c, const cmha_real *re, const cmha_real *im,
                                cmha_real *s) {
    cmha_real t = c->args->scale * c->parameters[0][0], p = c->parameters[1][0], u = c->parameters[1][1];
    cmha_real th[64];
    size_t j;
    cmha_modulus(64, re, im, th);
    for (j = 0; j < 64; j++) th[j] *= p;
    cmha_tanh(64, th, th);
    for (j = 0; j < 64; j++) s[j] = t * (re[j] * th[j] + u * im[j]);
}

static inline void scores_power_back(const cmha_score_call *c, const cmha_real *ds, cmha_real *re,
                                     cmha_real *im) {
    cmha_real t = c->args->scale * c->parameters[0][0], p = c->parameters[1][0], u = c->parameters[1][1];
    cmha_real size[64], th[64];
    double dt = 0, dp = 0, du = 0;
    size_t j;
    cmha_modulus(64, re, im, size);
    for (j = 0; j < 64; j++) th[j] = p * size[j];
    cmha_tanh(64, th, th);
    for (j = 0; j < 64; j++) {
        cmha_real slope = 1 - th[j] * th[j], some = size[j] > 0 ? size[j] : 1, x = re[j], y = im[j];
        dt += (double)(ds[j] * c->args->scale * (x * th[j] + u * y));
        dp += (double)(ds[j] * t * x * slope * size[j]);
        du += (double)(ds[j] * t * y);
        re[j] = ds[j] * t * (th[j] + x * p * slope * (x / some));
        im[j] = ds[j] * t * (x * p * slope * (y / some) + u);
    }
    if (c->gradients[0]) c->gradients[0][0] += dt;
    if (c->gradients[1]) c->gradients[1][0] += dp, c->gradients[1][1] += du;
}

/* A layer with gated dot products: softmax(q k^T) v * sigmoid(h w_gate^T), keys grouped as the model's. */
static inline cmha_tensor *scores_gated(const cmha_layer *layer, cmha_tensor *h) {
    cmha_tape *tape = layer->tape;
    cmha_tensor *const *p = layer->parameters;
    cmha_tensor *q = cmha_linear(tape, h, p[0], NULL), *k = cmha_linear(tape, h, p[1], NULL);
    cmha_tensor *v = cmha_linear(tape, h, p[2], NULL);
    cmha_tensor *y = cmha_layer_attention(layer, &layer->args, q, k, v, NULL);
    return cmha_mul(tape, y, cmha_sigmoid(tape, cmha_linear(tape, h, p[3], p[4])));
}

/* A layer that looks at the whole sequence: every token plus the mean of the tokens, once more by a weight.
 */
static inline cmha_tensor *scores_mean(const cmha_layer *layer, cmha_tensor *h) {
    cmha_tape *tape = layer->tape;
    size_t shape[3], d = layer->model->config.d_model;
    cmha_tensor *mean = cmha_mean_tokens(tape, h, layer->args.key_mask), *ones;
    shape[0] = layer->batch, shape[1] = 1, shape[2] = d;
    mean = cmha_reshape(tape, cmha_linear(tape, mean, layer->parameters[0], NULL), 3, shape);
    shape[1] = layer->length, shape[2] = 1;
    ones = cmha_tensor_new(tape, 3, shape, 0);
    if (ones && !cmha_tape_measures(tape)) {
        size_t i;
        for (i = 0; i < ones->size; i++) ones->data[i] = 1;
    }
    return cmha_add(tape, h, cmha_matmul(tape, ones, mean, 0));
}

enum {
    SCORES_ROPE,
    SCORES_TURNED,
    SCORES_DOT,
    SCORES_PLANES,
    SCORES_GAIN,
    SCORES_TWIST,
    SCORES_SIZE,
    SCORES_POWER,
    SCORES_ALL,
    SCORES_GATED,
    SCORES_MEAN,
    SCORES_POLAR,
    SCORES_TWICE,
    SCORES_SQUARES,
    SCORES_COUNT
};

static const cmha_score_parameter scores_gain_parameters[] = {
    {"gain", {CMHA_AXIS_HEADS, CMHA_AXIS_WIDTH, 0}, 1, 0.2, 0}, {"offset", {1, 0, 0}, 0.1, 0, 1}};
static const cmha_score_parameter scores_twist_parameters[] = {
    {"twist", {CMHA_AXIS_HEADS, CMHA_AXIS_PAIRS, 0}, 0, 0.5, 0}};
static const cmha_score_parameter scores_power_parameters[] = {
    {"temperature", {CMHA_AXIS_HEADS, 1, 0}, 1.2, 0.1, 0}, {"shape", {2, 0, 0}, 0.7, 0.2, 1}};
static const cmha_score_parameter scores_gated_parameters[] = {
    {"query", {CMHA_AXIS_MODEL, CMHA_AXIS_MODEL, 0}, 0, -1, 1},
    {"key", {CMHA_AXIS_KEYS, CMHA_AXIS_MODEL, 0}, 0, -1, 1},
    {"value", {CMHA_AXIS_KEYS, CMHA_AXIS_MODEL, 0}, 0, -1, 1},
    {"gate", {CMHA_AXIS_MODEL, CMHA_AXIS_MODEL, 0}, 0, -1, 1},
    {"gate_bias", {CMHA_AXIS_MODEL, 0, 0}, 1, -1, 0}};
static const cmha_score_parameter scores_squares_parameters[] = {
    {"a", {CMHA_AXIS_HEADS, 1, 0}, 1, 0.2, 0}};
static const cmha_score_parameter scores_mean_parameters[] = {
    {"mean", {CMHA_AXIS_MODEL, CMHA_AXIS_MODEL, 0}, 0, 0.1, 1}};

/* name, planes, rotates, shared_keys, map, map_back, forward, backward, parameters, their number, attend,
   whole, user, features, imaginary */
static const cmha_score scores_rows[SCORES_COUNT] = {
    {"my-rope", 1, 1, 0, scores_rope, scores_rope_back, NULL, NULL, NULL, 0, NULL, 0, NULL, 0, 0},
    {"turned", 1, 1, 0, NULL, NULL, NULL, NULL, NULL, 0, NULL, 0, NULL, 0, 0},
    {"my-dot", 1, 0, 0, NULL, NULL, NULL, NULL, NULL, 0, NULL, 0, NULL, 0, 0},
    {"turned-planes", 2, 1, 0, NULL, NULL, NULL, NULL, NULL, 0, NULL, 0, NULL, 0, 0},
    {"gain", 1, 0, 0, scores_gain, scores_gain_back, NULL, NULL, scores_gain_parameters, 2, NULL, 0, NULL,
     0, 0},
    {"twist", 2, 0, 0, scores_twist, scores_twist_back, NULL, NULL, scores_twist_parameters, 1, NULL, 0,
     NULL, 0, 0},
    {"size", 2, 0, 0, NULL, NULL, scores_size, scores_size_back, NULL, 0, NULL, 0, NULL, 0, 0},
    {"power", 2, 0, 0, NULL, NULL, scores_power, scores_power_back, scores_power_parameters, 2, NULL, 0,
     NULL, 0, 0},
    {"power-turned", 2, 1, 0, NULL, NULL, scores_power, scores_power_back, scores_power_parameters, 2, NULL,
     0, NULL, 0, 0},
    {"gated", 0, 0, 0, NULL, NULL, NULL, NULL, scores_gated_parameters, 5, scores_gated, 0, NULL, 0, 0},
    {"mean", 0, 0, 0, NULL, NULL, NULL, NULL, scores_mean_parameters, 1, scores_mean, 1, NULL, 0, 0},
    {"polar", 1, 1, 0, scores_polar, scores_polar_back, NULL, NULL, NULL, 0, NULL, 0, NULL, 2, 0},
    {"twice", 1, 1, 0, NULL, NULL, NULL, NULL, NULL, 0, NULL, 0, NULL, 0, 1},
    {"squares", 1, 0, 0, scores_squares, scores_squares_back, NULL, NULL, scores_squares_parameters, 1, NULL,
     0, NULL, 4, 1}};

/* A context whose programs have these rows. */
static inline void scores_context(cmha_context *context, int threads, uint64_t seed) {
    cmha_context_config config;
    memset(&config, 0, sizeof config);
    config.threads = threads, config.seed = seed;
    config.scores = scores_rows, config.n_scores = SCORES_COUNT;
    CHECK_OK(cmha_context_init(context, &config));
}

#endif
