/* A complex recurrent layer (CRAT 7.5). CRAT eq 33, after Wolter & Yao 2018, with
   complex matrices and z, h in C^d:

       u = csigmoid(W_u z + U_u h),   r = csigmoid(W_r z + U_r h),   h~ = ctanh(W z + U (r * h)),
       h <- (1 - u) * h + u * h~

   Decided: csigmoid acts on real and imaginary parts apart, as the paper says, so a gate is two reals a
   channel; then so do ctanh (which the paper does not define; the complex tanh has poles) and '*', real times
   real, imaginary times imaginary. What is complex are the six matrices alone: the layer is a GRU of 2d reals
   whose matrices have the form [Wr -Wi; Wi Wr], with half the parameters of a real GRU of that state.

   Tried on adding: of 16 numbers two are marked, and their sum is wanted; the answer 1 would have an error of
   1/6. Baselines: the real GRU of the same state, and the one of as many parameters. Both operations below
   serve them all, being componentwise. */
#include "extension.h"

enum { BATCH = 16, TIME = 16, D = 16, MOST = 2 * D, SEEDS = 2, STEPS = 500 };

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static cmha_status reset_backward(cmha_tape *tape, cmha_record *record) {
    const cmha_real *g = record->out->grad;
    cmha_real *dr = cmha_tape_grad(tape, record->in[0]), *dh = cmha_tape_grad(tape, record->in[1]);
    for (size_t i = 0; i < record->out->size; i++) {
        double gate = sigmoid((double)record->in[0]->data[i]);
        if (dr) dr[i] += (cmha_real)((double)g[i] * (double)record->in[1]->data[i] * gate * (1 - gate));
        if (dh) dh[i] += (cmha_real)((double)g[i] * gate);
    }
    return cmha_tape_status(tape);
}

/* csigmoid(r) * h */
static cmha_tensor *reset(cmha_tape *tape, cmha_tensor *r, cmha_tensor *h) {
    cmha_tensor *in[2] = {r, h}, *y = r && h ? cmha_tensor_new(tape, h->rank, h->shape, 0) : NULL;
    if (!y) return NULL;
    for (size_t i = 0; i < y->size; i++)
        y->data[i] = (cmha_real)(sigmoid((double)r->data[i]) * (double)h->data[i]);
    return cmha_tape_push(tape, "reset", y, in, 2, reset_backward, NULL);
}

static cmha_status update_backward(cmha_tape *tape, cmha_record *record) {
    const cmha_real *g = record->out->grad;
    cmha_real *du = cmha_tape_grad(tape, record->in[0]), *dc = cmha_tape_grad(tape, record->in[1]),
              *dh = cmha_tape_grad(tape, record->in[2]);
    for (size_t i = 0; i < record->out->size; i++) {
        double gate = sigmoid((double)record->in[0]->data[i]), fresh = tanh((double)record->in[1]->data[i]);
        if (du)
            du[i] += (cmha_real)((double)g[i] * (fresh - (double)record->in[2]->data[i]) * gate * (1 - gate));
        if (dc) dc[i] += (cmha_real)((double)g[i] * gate * (1 - fresh * fresh));
        if (dh) dh[i] += (cmha_real)((double)g[i] * (1 - gate));
    }
    return cmha_tape_status(tape);
}

/* (1 - csigmoid(u)) * h + csigmoid(u) * ctanh(c) */
static cmha_tensor *update(cmha_tape *tape, cmha_tensor *u, cmha_tensor *c, cmha_tensor *h) {
    cmha_tensor *in[3] = {u, c, h}, *y = u && c && h ? cmha_tensor_new(tape, h->rank, h->shape, 0) : NULL;
    if (!y) return NULL;
    for (size_t i = 0; i < y->size; i++) {
        double gate = sigmoid((double)u->data[i]);
        y->data[i] = (cmha_real)((1 - gate) * (double)h->data[i] + gate * tanh((double)c->data[i]));
    }
    return cmha_tape_push(tape, "update", y, in, 3, update_backward, NULL);
}

static cmha_tensor *op(network *net, const void *user) {
    cmha_tensor *h = of(net, "h");
    (void)user;
    return update(&net->tape, of(net, "u"), reset(&net->tape, of(net, "r"), h), h);
}

/* Sequences of (number, mark), as rows [number 0 | mark 0] of two complex numbers or, as
   a real GRU reads them, four reals. */
static void draw(cmha_rng *rng, cmha_real x[TIME][BATCH * 4], cmha_real *sum) {
    for (size_t b = 0; b < BATCH; b++) {
        size_t first = cmha_rng_below(rng, TIME / 2), second = TIME / 2 + cmha_rng_below(rng, TIME / 2);
        for (size_t t = 0; t < TIME; t++) {
            x[t][4 * b] = (cmha_real)cmha_rng_uniform(rng), x[t][4 * b + 1] = t == first || t == second;
            x[t][4 * b + 2] = x[t][4 * b + 3] = 0;
        }
        sum[b] = x[first][4 * b] + x[second][4 * b];
    }
}

/* A matrix, or with columns = 0 a vector; real, or of half as many complex numbers. */
static cmha_parameter_row row(const char *name, int cplx, double mean, double spread, size_t rows,
                              size_t columns) {
    cmha_parameter_row real = {name, {rows, columns}, mean, spread, 0, 0},
                       both = {name, {2, rows / 2, columns / 2}, mean, spread, 0, 1};
    return cplx ? both : real;
}

static cmha_tensor *linear(network *net, int cplx, cmha_tensor *x, cmha_tensor *w, cmha_tensor *bias) {
    return cplx ? cmha_complex_linear(&net->tape, x, w, bias) : cmha_linear(&net->tape, x, w, bias);
}

/* A GRU of `state` reals, or of state/2 complex numbers. */
static double adding(const char *name, size_t state, int cplx) {
    static const char *const names[3][3] = {{"update.input", "update.state", "update.bias"},
                                            {"reset.input", "reset.state", "reset.bias"},
                                            {"fresh.input", "fresh.state", "fresh.bias"}};
    static cmha_real x[TIME][BATCH * 4], sum[BATCH], zero[BATCH * MOST];
    double error = 0, spread = 1 / sqrt((double)state);
    size_t parameters = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        network net;
        cmha_parameter_row rows[11] = {{"out", {1, state}, 0, spread, 0, 0}, {"offset", {1}, 1, 0, 0, 0}};
        for (int k = 0; k < 3; k++) { /* update, reset, candidate: by the input, by the state */
            rows[2 + k] = row(names[k][0], cplx, 0, 0.5, state, 4);
            rows[5 + k] = row(names[k][1], cplx, 0, spread, state, state);
            rows[8 + k] = row(names[k][2], cplx, k ? 0 : -1, 0, state, 0);
        }
        network_open(&net, seed, rows, 11);
        for (int step = 0; step < STEPS; step++) {
            cmha_tensor *h = constant(&net, zero, SHAPE(BATCH, state));
            draw(&net.rng, x, sum);
            for (size_t t = 0; t < TIME; t++) {
                cmha_tensor *in = constant(&net, x[t], SHAPE(BATCH, 4)), *gate[3];
                for (int k = 0; k < 3; k++) {
                    cmha_tensor *from = k < 2 ? h : reset(&net.tape, gate[1], h);
                    gate[k] = cmha_add(&net.tape,
                                       linear(&net, cplx, in, of(&net, names[k][0]), of(&net, names[k][2])),
                                       linear(&net, cplx, from, of(&net, names[k][1]), NULL));
                }
                h = update(&net.tape, gate[0], gate[2], h);
            }
            h = cmha_linear(&net.tape, h, of(&net, "out"), of(&net, "offset"));
            double loss = descend(&net, cmha_squared_error(&net.tape, h, sum), 0.01);
            if (step >= STEPS - 50) error += loss / 50 / SEEDS;
        }
        parameters = net.parameters.size;
        network_close(&net);
    }
    printf("%-34s %5zu parameters, mean squared error %.4f\n", name, parameters, error);
    return error;
}

int main(void) {
    network net;
    network_open(&net, 1,
                 ROWS({"r", {3, 4}, 0, 1, 0, 0}, {"u", {3, 4}, 0, 1, 0, 0}, {"h", {3, 4}, 0, 1, 0, 0}));
    int wrong = check_gradient(&net, "gates", op, NULL);
    double complex_error = adding("complex, 16 complex numbers", MOST, 1);
    adding("real, 32 reals", MOST, 0);
    verdict("a complex state (-error)", -complex_error, -adding("real, as many parameters: 22 reals", 22, 0),
            5e-4);
    return wrong;
}
