/* Quaternions in place of complex numbers (CRAT 7.1). CRAT eq 28 scores a query t and a key s, each of d
   quaternions, by three angles:

       s_ts = 1/sqrt(d) sum_j sum over a = i, j, k of cos(phi^a_q - phi^a_k),    phi^a = atan2(q_a, q_0)

   Decided: as everywhere in CRAT an angle enters by its cosine and sine, u_a = (q_0, q_a)/sqrt(q_0^2 + q_a^2
   + eps^2), so the score is the dot product of 6 features a quaternion; the operation below maps 4 reals to
   these 6. An angle of 0/0 counts nothing.

   Corrected: the paper says that, the Hamilton product being non-commutative, such scores are intrinsically
   asymmetric. They are not: the cosine of a difference is symmetric, and so is the real part of q conj(k);
   only the vector part of that product is antisymmetric. What is asymmetric are different projections for
   queries and keys, with quaternions as with reals.

   Tried on a relation that is as asymmetric as can be: of n items on a ring each one beats the n/2 after it.
   From some of the pairs the others are to be told. Baseline: the complex angular score, eq 12, of as many
   reals and the same largest score. */
#include "extension.h"

enum { ITEMS = 25, WIDTH = 12, QUATERNIONS = 3, REALS = 4 * QUATERNIONS, PAIRS = ITEMS * ITEMS };

static const cmha_real eps = (cmha_real)1e-6;

/* q, dy and so on: rows [q_0 (d) | q_i (d) | q_j (d) | q_k (d)] to rows [cos of the
   3 angles (3d) | their sines (3d)]. */
static cmha_status angles_backward(cmha_tape *tape, cmha_record *record) {
    const cmha_tensor *q = record->in[0], *y = record->out;
    size_t width = q->shape[q->rank - 1], d = width / 4, rows = q->size / width;
    cmha_real *dq = cmha_tape_grad(tape, record->in[0]);
    if (!dq) return cmha_tape_status(tape);
    for (size_t t = 0; t < rows; t++)
        for (size_t j = 0; j < 3 * d; j++) {
            const cmha_real *u = y->data + t * 6 * d, *du = y->grad + t * 6 * d,
                            q0 = q->data[t * width + j % d];
            cmha_real qa = q->data[t * width + d + j],
                      r = (cmha_real)sqrt((double)(q0 * q0 + qa * qa + eps * eps));
            /* what lies along u changes nothing */
            cmha_real radial = u[j] * du[j] + u[3 * d + j] * du[3 * d + j];
            dq[t * width + j % d] += (du[j] - u[j] * radial) / r;           /* q_0 has a part in all three */
            dq[t * width + d + j] += (du[3 * d + j] - u[3 * d + j] * radial) / r;
        }
    return CMHA_OK;
}

static cmha_tensor *angles(cmha_tape *tape, cmha_tensor *q) {
    size_t width = q ? q->shape[q->rank - 1] : 0, d = width / 4, shape[2];
    cmha_tensor *y;
    if (!q) return NULL;
    if (width % 4) return cmha_tape_fail(tape, CMHA_ERR_SHAPE, "angles: a row must be quaternions");
    shape[0] = q->size / width, shape[1] = 6 * d;
    if (!(y = cmha_tensor_new(tape, 2, shape, 0))) return NULL;
    for (size_t t = 0; t < shape[0]; t++)
        for (size_t j = 0; j < 3 * d; j++) {
            cmha_real q0 = q->data[t * width + j % d], qa = q->data[t * width + d + j];
            cmha_real r = (cmha_real)sqrt((double)(q0 * q0 + qa * qa + eps * eps));
            y->data[t * 6 * d + j] = q0 / r;
            y->data[t * 6 * d + 3 * d + j] = qa / r;
        }
    return cmha_tape_push(tape, "quaternion angles", y, &q, 1, angles_backward, NULL);
}

static cmha_tensor *op(network *net, const void *user) {
    (void)user;
    return angles(&net->tape, of(net, "q"));
}

/* The symmetry of the three candidates at random quaternions: largest |f(q, k) -+ f(k, q)|. */
static void symmetry(void) {
    cmha_rng rng = cmha_rng_make(3, 0);
    double cosine = 0, real = 0, vector = 0;
    for (int trial = 0; trial < 1000; trial++) {
        double q[4], k[4], qk[4], kq[4], forth = 0, back = 0;
        for (int a = 0; a < 4; a++) q[a] = cmha_rng_normal(&rng), k[a] = cmha_rng_normal(&rng);
        for (int a = 1; a < 4; a++) {
            double turn = atan2(q[a], q[0]) - atan2(k[a], k[0]);
            int b = a % 3 + 1, c = b % 3 + 1;
            forth += cos(turn), back += cos(-turn);
            qk[a] = q[a] * k[0] - q[0] * k[a] - q[b] * k[c] + q[c] * k[b]; /* of q conj(k) */
            kq[a] = k[a] * q[0] - k[0] * q[a] - k[b] * q[c] + k[c] * q[b];
            vector = fmax(vector, fabs(qk[a] + kq[a]));
        }
        qk[0] = q[0] * k[0] + q[1] * k[1] + q[2] * k[2] + q[3] * k[3];
        kq[0] = k[0] * q[0] + k[1] * q[1] + k[2] * q[2] + k[3] * q[3];
        cosine = fmax(cosine, fabs(forth - back)), real = fmax(real, fabs(qk[0] - kq[0]));
    }
    printf("eq 28: symmetric to %.0e;  Re q conj(k): symmetric to %.0e;  vector part of q conj(k): "
           "antisymmetric to %.0e\n",
           cosine, real, vector);
}

/* Learns the ring from 3 pairs of 5, eight times. Returns how many of the others come out right; how
   asymmetric are the scores? */
static double ring(const char *name, int quaternions, int shared) {
    static cmha_real zeros[PAIRS];
    static int32_t seen[PAIRS], wanted[PAIRS];
    const cmha_real most = 5; /* the largest possible score, the same for all */
    double right = 0, asked = 0, odd = 0, all = 0, loss = 0;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        network net;
        network_open(&net, seed,
                     ROWS({"item", {ITEMS, WIDTH}, 0, 1, 0, 0}, {"wq", {REALS, WIDTH}, 0, 0.4, 0, 0},
                          {"wk", {REALS, WIDTH}, 0, 0.4, 0, 0}));
        cmha_tensor *item = of(&net, "item"), *wq = of(&net, "wq"), *wk = shared ? wq : of(&net, "wk");
        cmha_tensor *score = NULL;
        for (size_t a = 0; a < ITEMS; a++)
            for (size_t b = a; b < ITEMS; b++) { /* a pair is seen both ways round or not at all */
                size_t ab = a * ITEMS + b, ba = b * ITEMS + a;
                int see = a != b && cmha_rng_uniform(&net.rng) < 0.6;
                wanted[ab] = b - a <= ITEMS / 2, wanted[ba] = !wanted[ab];
                seen[ab] = see ? wanted[ab] : -1, seen[ba] = see ? wanted[ba] : -1;
            }
        for (int step = 0; step < 600; step++) {
            cmha_tensor *q = cmha_linear(&net.tape, item, wq, NULL),
                        *k = cmha_linear(&net.tape, item, wk, NULL), *logits;
            q = quaternions ? angles(&net.tape, q) : cmha_phasor(&net.tape, q, eps);
            k = quaternions ? angles(&net.tape, k) : cmha_phasor(&net.tape, k, eps);
            score = cmha_scale(&net.tape, cmha_matmul(&net.tape, q, k, 1),
                               most / (quaternions ? 3 * QUATERNIONS : REALS / 2));
            score = cmha_reshape(&net.tape, score, SHAPE(PAIRS, 1));
            logits = cmha_concat(&net.tape, constant(&net, zeros, SHAPE(PAIRS, 1)), score, 1);
            for (size_t i = 0; step == 599 && logits && i < PAIRS; i++) {
                double s = (double)score->data[i], back = (double)score->data[i % ITEMS * ITEMS + i / ITEMS];
                odd += (s - back) * (s - back) / 4, all += s * s;
                if (i / ITEMS != i % ITEMS && seen[i] < 0) asked += 1, right += (s > 0) == wanted[i];
            }
            loss = descend(&net, cmha_cross_entropy(&net.tape, logits, seen, -1, NULL), 0.01);
        }
        network_close(&net);
    }
    printf("%-37s loss %.3f, right on pairs not seen %5.1f %%, antisymmetric part of the scores %5.1f %%\n",
           name, loss, 100 * right / asked, 100 * sqrt(odd / all));
    return 100 * right / asked;
}

int main(void) {
    network net;
    network_open(&net, 1, ROWS({"q", {3, 8}, 1, 1, 0, 0}));
    int wrong = check_gradient(&net, "quaternion angles", op, NULL);
    symmetry();
    ring("quaternion, W_Q = W_K", 1, 1);
    double quaternion = ring("quaternion, W_Q and W_K", 1, 0),
           two = ring("complex (eq 12), W_Q and W_K", 0, 0);
    verdict("a quaternion in place of two complex numbers", quaternion, two, 1.5);
    return wrong;
}
