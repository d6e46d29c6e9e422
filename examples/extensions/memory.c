/* A memory of complex slots that outlives the window (CRAT 7.4). CRAT eq 32 writes each step's z_t
   into M, m slots of D complex numbers,

       M <- (1 - eta) M + eta z_t

   Corrected: read literally all slots get the same z_t; their differences shrink by 1 - eta a step,
   and m slots hold what one does. Here writes and reads have addresses, by the angular similarity of
   eq 18 that the paper wants for reads:

       a_i = softmax_i( beta/D sum_j cos(arg z_j - arg M_ij) ),   M_i <- (1 - eta a_i) M_i + eta a_i z_t,
       read(q) = sum a_i(q) M_i

   Decided: beta 12, eta = sigmoid(a parameter), M_0 a parameter. The equation as
   printed has a_i = 1 in the write.

   Tried on recall: six pairs (key, value) of eight each are written one after another, then a key is asked
   for. Keys and values are learnt complex vectors, z_t is their sum. Baseline: the literal equation. */
#include "extension.h"

enum { BATCH = 32, PAIRS = 6, KINDS = 8, D = 16, SLOTS = 8 };

static const cmha_real eps = (cmha_real)1e-3, beta = 12;

typedef struct access { /* of one write or read, what its backward needs */
    size_t batch, slots, d, write, literal;
    cmha_real *a, *uz, *um; /* addresses [B, m]; phasors of z and of M */
} access;

static cmha_real dot(const cmha_real *x, const cmha_real *y, size_t n) {
    cmha_real sum = 0;
    for (size_t i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

static void address(const access *s, size_t b) { /* the softmax of sequence b */
    cmha_real *a = s->a + b * s->slots, top = 0, total = 0;
    for (size_t i = 0; i < s->slots; i++) {
        a[i] = beta / (cmha_real)s->d *
               dot(s->uz + b * 2 * s->d, s->um + (b * s->slots + i) * 2 * s->d, 2 * s->d);
        if (!i || a[i] > top) top = a[i];
    }
    for (size_t i = 0; i < s->slots; i++) total += a[i] = (cmha_real)exp((double)(a[i] - top));
    for (size_t i = 0; i < s->slots; i++) a[i] = s->literal && s->write ? 1 : a[i] / total;
}

static cmha_status access_backward(cmha_tape *tape, cmha_record *record) {
    const access *s = (const access *)record->user;
    const cmha_real *M = record->in[0]->data, *z = record->in[1]->data, *g = record->out->grad;
    size_t m = s->slots, w = 2 * s->d;
    cmha_real *dM = cmha_tape_grad(tape, record->in[0]), *dz = cmha_tape_grad(tape, record->in[1]);
    cmha_real *deta = s->write ? cmha_tape_grad(tape, record->in[2]) : NULL,
              eta = s->write ? record->in[2]->data[0] : 0;
    cmha_real *da = cmha_tape_alloc(tape, m * sizeof *da), *du = cmha_tape_alloc(tape, w * sizeof *du);
    cmha_real *duz = cmha_tape_alloc(tape, w * sizeof *duz);
    if (!dM || !dz || !duz) return cmha_tape_status(tape); /* both come from parameters here */
    for (size_t b = 0; b < s->batch; b++) {
        const cmha_real *a = s->a + b * m, *zb = z + b * w;
        cmha_real mean = 0;
        for (size_t i = 0; i < m; i++) {
            const cmha_real *Mi = M + (b * m + i) * w, *gi = s->write ? g + (b * m + i) * w : g + b * w;
            cmha_real share = s->write ? eta * a[i] : a[i],
                      gain = s->write ? dot(gi, zb, w) - dot(gi, Mi, w) : dot(gi, Mi, w);
            for (size_t k = 0; k < w; k++) {
                dM[(b * m + i) * w + k] += (s->write ? 1 - share : share) * gi[k];
                if (s->write) dz[b * w + k] += share * gi[k];
            }
            if (deta) deta[0] += a[i] * gain;
            mean += a[i] * (da[i] = s->write ? eta * gain : gain);
        }
        if (s->literal && s->write) continue;
        memset(duz, 0, w * sizeof *duz);
        for (size_t i = 0; i < m; i++) { /* through the softmax, then the phasors */
            cmha_real slope = a[i] * (da[i] - mean) * beta / (cmha_real)s->d;
            for (size_t k = 0; k < w; k++)
                du[k] = slope * s->uz[b * w + k], duz[k] += slope * s->um[(b * m + i) * w + k];
            cmha_phasor_backward(M + (b * m + i) * w, du, 1, s->d, eps, dM + (b * m + i) * w);
        }
        cmha_phasor_backward(zb, duz, 1, s->d, eps, dz + b * w);
    }
    return CMHA_OK;
}

/* M [B, m, 2D], z [B, 1, 2D]. A write (with eta [1]) returns the new M, a read (eta
   NULL) what was read, shaped like z. */
static cmha_tensor *memory(cmha_tape *tape, cmha_tensor *M, cmha_tensor *z, cmha_tensor *eta, int literal) {
    cmha_tensor *in[3] = {M, z, eta},
                *y = M && z ? cmha_tensor_new(tape, 3, eta ? M->shape : z->shape, 0) : NULL;
    access *s = cmha_tape_alloc(tape, sizeof *s);
    if (!y || !s) return NULL;
    s->write = eta != NULL, s->literal = literal != 0, s->batch = M->shape[0], s->slots = M->shape[1],
    s->d = M->shape[2] / 2;
    s->a = cmha_tape_alloc(tape, s->batch * s->slots * sizeof *s->a);
    s->uz = cmha_tape_alloc(tape, z->size * sizeof *s->uz),
    s->um = cmha_tape_alloc(tape, M->size * sizeof *s->um);
    if (!s->um) return NULL;
    cmha_phasor_forward(z->data, s->batch, s->d, eps, s->uz);
    cmha_phasor_forward(M->data, s->batch * s->slots, s->d, eps, s->um);
    for (size_t b = 0, w = 2 * s->d; b < s->batch; b++) {
        address(s, b);
        for (size_t i = 0; i < s->slots; i++)
            for (size_t k = 0; k < w; k++) {
                cmha_real a = s->a[b * s->slots + i], old = M->data[(b * s->slots + i) * w + k];
                if (eta)
                    y->data[(b * s->slots + i) * w + k] = old + eta->data[0] * a * (z->data[b * w + k] - old);
                else y->data[b * w + k] += a * old;
            }
    }
    return cmha_tape_push(tape, eta ? "memory write" : "memory read", y, in, eta ? 3 : 2, access_backward, s);
}

/* a write, and a read by another vector */
static cmha_tensor *op(network *net, const void *user) {
    cmha_tensor *M = memory(&net->tape, of(net, "M"), of(net, "z"), of(net, "eta"), user != NULL);
    return memory(&net->tape, M, of(net, "asked"), NULL, user != NULL);
}

static double recall(const char *name, int literal) {
    static int32_t key[PAIRS + 1][BATCH], value[PAIRS + 1][BATCH];
    static size_t first[BATCH]; /* M_0 for every sequence */
    double loss = 0, right = 0, apart = 0;
    network net;
    network_open(&net, 2,
                 ROWS({"keys", {KINDS, 2 * D}, 0, 1, 0, 0}, {"values", {KINDS, 2 * D}, 0, 1, 0, 0},
                      {"start", {1, SLOTS * 2 * D}, 0, 1, 0, 0}, {"rate", {1}, 0, 0, 0, 0},
                      {"out", {KINDS, 2 * D}, 0, 0.2, 0, 0}));
    cmha_tensor *keys = of(&net, "keys"), *values = of(&net, "values"), *start = of(&net, "start"),
                *rate = of(&net, "rate"), *out = of(&net, "out");
    for (int step = 0; step < 600; step++) {
        cmha_tape *tape = &net.tape;
        for (size_t b = 0; b < BATCH; b++) { /* different keys, then one of them again */
            size_t start_at = cmha_rng_below(&net.rng, KINDS),
                   stride = 1 + 2 * cmha_rng_below(&net.rng, KINDS / 2);
            for (size_t p = 0; p < PAIRS; p++)
                key[p][b] = (int32_t)((start_at + p * stride) % KINDS),
                value[p][b] = (int32_t)cmha_rng_below(&net.rng, KINDS);
            size_t p = cmha_rng_below(&net.rng, PAIRS);
            key[PAIRS][b] = key[p][b], value[PAIRS][b] = value[p][b];
        }
        cmha_tensor *M =
            cmha_reshape(tape, cmha_gather(tape, start, first, BATCH), SHAPE(BATCH, SLOTS, 2 * D));
        cmha_tensor *eta = cmha_sigmoid(tape, rate), *z;
        for (size_t p = 0; p < PAIRS; p++) {
            z = cmha_add(tape, cmha_embedding(tape, keys, key[p], BATCH, 1),
                         cmha_embedding(tape, values, value[p], BATCH, 1));
            M = memory(tape, M, z, eta, literal);
        }
        z = cmha_embedding(tape, keys, key[PAIRS], BATCH, 1);
        cmha_tensor *logits = cmha_linear(tape, memory(tape, M, z, NULL, literal), out, NULL);
        for (size_t b = 0; step >= 550 && logits && b < BATCH; b++) {
            right += largest(logits->data + b * KINDS, KINDS) == value[PAIRS][b];
            for (size_t k = 0, slot = b * SLOTS * 2 * D; k < 2 * D; k++)
                apart = fmax(apart, fabs((double)M->data[slot + k] - (double)M->data[slot + 2 * D + k]));
        }
        loss = descend(&net, cmha_cross_entropy(tape, logits, value[PAIRS], -1, NULL), 0.01);
    }
    printf(
        "%-20s loss %.3f, recalled %5.1f %%, eta %.2f, slots 0 and 1 differ by up to %.1f after %d writes\n",
        name, loss, 100 * right / (50 * BATCH), 1 / (1 + exp(-(double)rate->data[0])), apart, PAIRS);
    network_close(&net);
    return 100 * right / (50 * BATCH);
}

int main(void) {
    network net;
    network_open(&net, 3,
                 ROWS({"M", {2, 3, 4}, 0.5, 1, 0, 0}, {"z", {2, 1, 4}, 0, 1, 0, 0},
                      {"eta", {1}, 0.5, 0.1, 0, 0}, {"asked", {2, 1, 4}, 0, 1, 0, 0}));
    int wrong = check_gradient(&net, "memory", op, NULL);
    double addressed = recall("addressed", 0), printed = recall("eq 32 as printed", 1);
    verdict("an address (% recalled)", addressed, printed, 3);
    return wrong;
}
