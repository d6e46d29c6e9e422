/* Gradients of models that read numbers: every family, real and complex features, with tokens and without,
   each head and norm, with padding whose features are NaN. */
#ifndef CMHA_DOUBLE
#define CMHA_DOUBLE
#endif
#include "grad.h"
#include "models.h"

enum { B = 2, N = 6, F = 3, V = 7, Y = 2 };

typedef struct subject {
    cmha_model model;
    cmha_batch batch;
} subject;

static cmha_context context;
static int32_t ids[B * N], targets[B * N];
static cmha_real features[B * N * 2 * F], values[B * N * Y], labels[B];
static const unsigned char mask[B * N] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0};

static const struct head {
    const char *options;
    int labels, values; /* what the batch has; else targets */
} heads[] = {{"causal=0 classes=3 pool=mean feature_norm=sequence", 1, 0},
             {"causal=0 classes=1 label_range=2 feature_norm=none", 1, 0},
             {"causal=0 classes=3 pooler=1 feature_norm=none", 1, 0},
             {"causal=0 feature_norm=frame head_bias=1", 0, 0},
             {"causal=1 values=2 feature_norm=frame recompute=1", 0, 1},
             {"causal=0 values=2 gaussian=1 feature_norm=sequence", 0, 1},
             {"causal=1 values=2 gaussian=1", 0, 1}};

static double loss_of(void *user) {
    subject *s = (subject *)user;
    double loss = NAN;
    CHECK_THAT(!cmha_model_loss(&s->model, &s->batch, &loss), "%s", cmha_error(&context));
    return loss;
}

static void run(const char *family, int is_complex, int tokens, const struct head *head) {
    cmha_model_config config = check_model_config();
    subject s;
    char label[256];
    double loss = 0, small = 0;
    size_t i;
    snprintf(label, sizeof label, "%s complex_features=%d tokens=%d %s", family, is_complex, tokens,
             head->options);
    config.n_layers = 1, config.d_model = 8, config.n_heads = 2, config.d_ff = 10, config.max_positions = N;
    config.features = F, config.complex_features = is_complex, config.tokens = tokens;
    config.vocabulary = tokens || !(head->labels || head->values) ? V : 0;
    models_set(&context, &config, family);
    models_set(&context, &config, head->options);
    memset(&s, 0, sizeof s);
    s.batch.ids = tokens ? ids : NULL, s.batch.features = features, s.batch.batch = B, s.batch.length = N;
    s.batch.key_mask = mask;
    s.batch.labels = head->labels ? labels : NULL, s.batch.values = head->values ? values : NULL;
    s.batch.targets = targets;
    if (!CHECK_THAT(!cmha_model_init(&s.model, &context, &config), "%s: %s", label, cmha_error(&context)))
        return;
    for (i = 0; i < s.model.parameters.size; i++) /* biases off their zeros */
        s.model.parameters.data[i] += 0.05 * check_random();
    CHECK_THAT(!cmha_model_gradient(&s.model, &s.batch, 1, 0, &loss), "%s: %s", label, cmha_error(&context));
    CHECK_NEAR(loss_of(&s), loss, 1e-12);
    /* what is fed by features or feeds values one by one, and all parameters along one direction */
    for (i = 0; i <= s.model.parameters.count; i++) {
        const cmha_parameter *p = &s.model.parameters.list[i < s.model.parameters.count ? i : 0];
        grad_input in = {p->name, p->tensor.data, p->tensor.grad, p->tensor.size};
        if (i == s.model.parameters.count)
            in.name = "all", in.x = s.model.parameters.data, in.grad = s.model.parameters.grad,
            in.n = s.model.parameters.size;
        else if (strncmp(p->name, "blocks.", 7) == 0) continue;
        grad_check(label, loss_of, &s, &in, 1, 2);
    }
    /* a scale of the cotangent goes into every gradient */
    loss = (double)s.model.parameters.grad[s.model.parameters.size / 2];
    cmha_parameters_zero_grad(&s.model.parameters);
    CHECK_OK(cmha_model_gradient(&s.model, &s.batch, -0.25, 0, &small));
    CHECK_NEAR(s.model.parameters.grad[s.model.parameters.size / 2], -0.25 * loss, 1e-12);
    cmha_model_close(&s.model);
}

int main(int argc, char **argv) {
    static const char *const families[] = {
        "family=real attention=rope embedding_scale=1 token_types=2",
        "family=real attention=dot position=learned placement=post norm=rmsnorm",
        "family=cope attention=dot cope_score=phase token_types=2",
        "family=cope attention=dot cope_score=hybrid cope_imag=learned cope_gamma=0.7",
        "family=cope attention=dot cope_score=hybrid cope_gamma_learned=1 cope_gamma=0.7",
        "family=mobius mobius_heads=1 attention=dot position=learned placement=post",
        "family=mobius mobius_heads=2 attention=dot position=sinusoidal placement=post",
        "family=crat complex_norm=crms token_types=2",
        "family=crat crat_attention=linear state_gelu=1 phase_reg=0"};
    size_t f, h, n_heads = sizeof heads / sizeof *heads, i;
    (void)argc;
    cmha_blas_restart(argv);
    check_context(&context, 1, 5);
    for (i = 0; i < B * N; i++) {
        ids[i] = (int32_t)check_below(V), targets[i] = i % 4 == 2 ? -1 : (int32_t)check_below(V);
    }
    for (i = 0; i < B * N * Y; i++) values[i] = i % 5 == 3 ? (cmha_real)NAN : (cmha_real)check_random();
    labels[0] = 0, labels[1] = 2;
    for (f = 0; f < sizeof families / sizeof *families; f++)
        for (i = 0; i < 4; i++) {
            size_t W = i % 2 ? 2 * F : F, j;
            for (j = 0; j < B * N * W; j++)
                features[j] = mask[j / W] ? (cmha_real)check_random() : (cmha_real)NAN;
            for (h = 0; h < n_heads; h++)
                if (!check_quick() || (f + i + h) % 8 == 0) run(families[f], i % 2 != 0, i > 1, &heads[h]);
        }
    cmha_context_close(&context);
    return check_end();
}
