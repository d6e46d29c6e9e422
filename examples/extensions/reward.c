/* A reward by phases (CRAT 7.3). CRAT eq 30 judges an answer by the angles of its final state h in
   C^d, and CRAT eq 31 adds that to the loss:

       R = f_reward(arg h),     L = L_RLHF - lambda R

   Corrected: arg jumps by 2 pi at the negative real axis, where a continuous f of it cannot follow. f gets
   the angle's cosine and sine: R = 1/d sum_j (a_j cos phi_j + b_j sin phi_j), with (cos, sin) = h/sqrt(|h|^2
   + eps^2). Decided: f is linear, its weights come from preferences (Bradley & Terry), and it stays fixed
   while the policy is trained.

   Tried on a policy that answers with one of six classes and learns from 60 known answers. Its states for
   prompts it then gets right and wrong make pairs, from which f learns to prefer: does f tell right from
   wrong, better than a function linear in the angles? And does -lambda R, on 1000 prompts without answers,
   help? Baseline: lambda = 0. What eq 31 cannot see is that h is the policy's own, which may turn its phases
   without changing one answer. */
#include "extension.h"

enum { IN = 6, D = 8, HIDDEN = 24, CLASSES = 6, PAIRS = 2000 };
/* in this order in x and answer */
enum { KNOWN = 60, PROMPTS = 1000, TEST = 2000, ALL = KNOWN + PROMPTS + TEST };

static const cmha_real eps = (cmha_real)1e-3;
static cmha_real x[ALL * IN];
static int32_t answer[ALL];

static cmha_status reward_backward(cmha_tape *tape, cmha_record *record) {
    const cmha_tensor *h = record->in[0], *w = record->in[1];
    size_t d = h->shape[1] / 2;
    cmha_real *dh = cmha_tape_grad(tape, record->in[0]), *dw = cmha_tape_grad(tape, record->in[1]);
    for (size_t t = 0; t < h->shape[0]; t++)
        /* a turn of h_j changes R, a change of |h_j| does not (but for eps) */
        for (size_t j = 0; j < d; j++) {
            size_t at = t * 2 * d + j;
            double re = (double)h->data[at], im = (double)h->data[at + d],
                   r = sqrt(re * re + im * im + (double)(eps * eps));
            double a = (double)w->data[j], b = (double)w->data[d + j],
                   g = (double)record->out->grad[t] / (double)d;
            double radial = (a * re + b * im) / (r * r);
            if (dh)
                dh[at] += (cmha_real)(g * (a - re * radial) / r),
                    dh[at + d] += (cmha_real)(g * (b - im * radial) / r);
            if (dw) dw[j] += (cmha_real)(g * re / r), dw[d + j] += (cmha_real)(g * im / r);
        }
    return cmha_tape_status(tape);
}

/* h [T, 2D], w = [a; b] [2, D] -> R [T] */
static cmha_tensor *reward(cmha_tape *tape, cmha_tensor *h, cmha_tensor *w) {
    cmha_tensor *in[2] = {h, w}, *y = h && w ? cmha_tensor_new(tape, 1, h->shape, 0) : NULL;
    for (size_t i = 0; y && i < h->size / 2; i++) {
        size_t d = h->shape[1] / 2, t = i / d, j = i % d;
        double re = (double)h->data[t * 2 * d + j], im = (double)h->data[t * 2 * d + d + j];
        double r = sqrt(re * re + im * im + (double)(eps * eps)) * (double)d;
        y->data[t] += (cmha_real)(((double)w->data[j] * re + (double)w->data[d + j] * im) / r);
    }
    return cmha_tape_push(tape, "phase reward", y, in, 2, reward_backward, NULL);
}

static cmha_tensor *op(network *net, const void *user) {
    (void)user;
    return reward(&net->tape, of(net, "h"), of(net, "w"));
}

/* h of prompts begin .. begin + n, and by *logits what is answered. */
static cmha_tensor *policy(network *net, size_t begin, size_t n, cmha_tensor **logits) {
    cmha_tensor *h = constant(net, x + begin * IN, SHAPE(n, IN));
    h = cmha_linear(&net->tape, h, of(net, "w1"), of(net, "b1"));
    h = cmha_linear(&net->tape, cmha_activate(&net->tape, h, CMHA_ACTIVATION_GELU_ERF), of(net, "w2"), NULL);
    if (logits) *logits = cmha_linear(&net->tape, h, of(net, "head"), NULL);
    return h;
}

/* 200 steps down the cross-entropy of the known answers - lambda mean R of the
   prompts; w NULL: without the reward. */
static void improve(network *net, cmha_real *w, double lambda) {
    for (int step = 0; step < 200; step++) {
        cmha_tensor *logits, *loss;
        policy(net, 0, KNOWN, &logits);
        loss = cmha_cross_entropy(&net->tape, logits, answer, -1, NULL);
        if (w) {
            cmha_tensor *r = policy(net, KNOWN, PROMPTS, NULL);
            r = cmha_sum(&net->tape, reward(&net->tape, r, constant(net, w, SHAPE(2, D))));
            loss = cmha_add(&net->tape, loss, cmha_scale(&net->tape, r, (cmha_real)(-lambda / PROMPTS)));
        }
        descend(net, loss, 0.005);
    }
}

/* The share of right answers in the test, by *mean its mean reward; states of
   prompts and test, and which are right. */
static double examine(network *net, cmha_real *w, cmha_real *state, int *right, double *mean) {
    cmha_tensor *logits, *h = policy(net, KNOWN, PROMPTS + TEST, &logits);
    cmha_tensor *r = reward(&net->tape, h, constant(net, w, SHAPE(2, D)));
    double count = *mean = 0;
    if (!r || !logits) stop(cmha_error(&net->context));
    for (size_t i = 0; i < PROMPTS + TEST; i++) {
        right[i] = largest(logits->data + i * CLASSES, CLASSES) == answer[KNOWN + i];
        if (i >= PROMPTS) count += right[i], *mean += (double)r->data[i] / TEST;
    }
    memcpy(state, h->data, h->size * sizeof *state);
    cmha_tape_reset(&net->tape);
    return 100 * count / TEST;
}

/* Learns to prefer right states to wrong ones, among the prompts; returns how
   often it does in the test, in percent. */
static double judge(network *net, int by_angles, const cmha_real *state, const int *right) {
    static cmha_real pair[2 * PAIRS * 2 * D], phase[2 * PAIRS * D];
    static int32_t first[PAIRS];
    const cmha_euler_args pairs = {2 * PAIRS, D, CMHA_LAYOUT_HALF};
    double won = 0;
    network_open(net, 5, ROWS({"w", {2, D}, 0, 0, 0, 0}, {"a", {1, D}, 0, 0, 0, 0}));
    cmha_tensor *w = of(net, "w"), *a = of(net, "a"), *r;
    for (int step = 0; step <= 300; step++) {
        /* in every pair a right one, then a wrong one */
        for (size_t k = 0; k < 2 * PAIRS && step % 300 == 0; k++) {
            size_t i;
            do
                i = step < 300 ? cmha_rng_below(&net->rng, PROMPTS)
                               : PROMPTS + cmha_rng_below(&net->rng, TEST);
            while (right[i] != (k % 2 == 0));
            memcpy(pair + k * 2 * D, state + i * 2 * D, 2 * D * sizeof *pair);
        }
        cmha_euler_forward(&pairs, pair, NULL, phase);
        if (by_angles) r = cmha_linear(&net->tape, constant(net, phase, SHAPE(2 * PAIRS, D)), a, NULL);
        else r = reward(&net->tape, constant(net, pair, SHAPE(2 * PAIRS, 2 * D)), w);
        r = cmha_reshape(&net->tape, r, SHAPE(PAIRS, 2));
        for (size_t k = 0; step == 300 && r && k < PAIRS; k++) won += r->data[2 * k] > r->data[2 * k + 1];
        if (step < 300) descend(net, cmha_cross_entropy(&net->tape, r, first, -1, NULL), 0.03);
    }
    return 100 * won / PAIRS;
}

int main(void) {
    static cmha_real state[(PROMPTS + TEST) * 2 * D], none[2 * D];
    static int right[PROMPTS + TEST];
    const double lambdas[] = {0, 0.1, 1, 10};
    double share, mean, end[4];
    network net, f, g;
    network_open(&net, 1, ROWS({"h", {3, 8}, 0.5, 1, 0, 0}, {"w", {2, 4}, 0, 1, 0, 0}));
    int wrong = check_gradient(&net, "phase reward", op, NULL);
    for (int k = 0; k < 4; k++) {
        cmha_tensor *logits;
        /* of a teacher who knows the answers */
        network_open(&net, 4,
                     ROWS({"w1", {HIDDEN, IN}, 0, 0.6, 0, 0}, {"b1", {HIDDEN}, 0, 0.3, 0, 0},
                          {"w2", {2 * D, HIDDEN}, 0, 0.4, 0, 0}, {"head", {CLASSES, 2 * D}, 0, 0.3, 0, 0}));
        for (size_t i = 0; i < ALL * IN; i++) x[i] = (cmha_real)cmha_rng_normal(&net.rng);
        policy(&net, 0, ALL, &logits);
        for (size_t i = 0; logits && i < ALL; i++) answer[i] = largest(logits->data + i * CLASSES, CLASSES);
        cmha_tape_reset(&net.tape);
        /* of one who does not */
        for (size_t i = 0; i < net.parameters.size; i++)
            net.parameters.data[i] = (cmha_real)(0.3 * cmha_rng_normal(&net.rng));
        improve(&net, NULL, 0);
        examine(&net, none, state, right, &mean);
        share = judge(&f, 0, state, right);
        if (!k) printf("right states preferred to wrong ones: eq 30 by cosine and sine %.1f %%", share);
        if (!k) printf(", linear in the angles %.1f %%\n", judge(&g, 1, state, right)), network_close(&g);
        share = examine(&net, of(&f, "w")->data, state, right, &mean);
        printf("lambda %4g: R %5.2f, %.1f %% right", lambdas[k], mean, share);
        improve(&net, of(&f, "w")->data, lambdas[k]);
        end[k] = examine(&net, of(&f, "w")->data, state, right, &mean);
        printf(" -> R %5.2f, %.1f %% right\n", mean, end[k]);
        network_close(&f), network_close(&net);
    }
    verdict("the phase reward with lambda 0.1 (% right)", end[1], end[0], 1);
    return wrong;
}
