/* The score that the evidence brings along, in double: its features against the formula, its gradients
   against differences of a model's loss. */
#ifndef CMHA_DOUBLE
#define CMHA_DOUBLE
#endif
#include "check.h"

#include "papers.h"

static cmha_context ctx;
static cmha_model model;

static cmha_status loss_of(void *batch, double *loss) { return cmha_model_loss(&model, batch, loss); }

static void features(size_t d) {
    enum { N = 5, FIRST = 7 };
    cmha_real x[N * 12], y[N * 12], table[N * 12];
    double omega[6], want[12], from[12];
    cmha_attention_args args;
    cmha_score_call call;
    cmha_rows rows = {x, d, 0};
    memset(&args, 0, sizeof args), memset(&call, 0, sizeof call);
    args.d_k = d, call.args = &args, call.rotation = table;
    cmha_frequencies(CMHA_FREQUENCY_ROPE, 10000, d / 2, NULL, omega);
    cmha_rotation_table(omega, d / 2, N, FIRST, table);
    for (size_t i = 0; i < N * d; i++) x[i] = (cmha_real)sin(1.0 + (double)(i * i));
    mixed_map(&call, rows, N, y);
    for (size_t i = 0; i < N; i++) {
        for (size_t c = 0; c < d; c++) from[c] = (double)x[i * d + c];
        literal_mixed(from, d, FIRST + i, want);
        for (size_t c = 0; c < d; c++) CHECK_NEAR(y[i * d + c], want[c], 1e-12);
    }
}

static void gradients(size_t d_head, int causal) {
    static const int32_t ids[] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8};
    static const int32_t targets[] = {1, 4, -1, 5, 9, 2, 6, 5, 3, 5, 8, 9};
    cmha_context_config config;
    cmha_model_config mc;
    cmha_batch batch;
    double loss, error = 1;
    memset(&config, 0, sizeof config), memset(&batch, 0, sizeof batch);
    config.seed = 3, config.scores = &mixed_rope, config.n_scores = 1, config.threads = 1;
    CHECK_OK(cmha_context_init(&ctx, &config));
    CHECK_OK(cmha_preset(&ctx, "tiny", &mc, NULL));
    CHECK_OK(cmha_config_set_all(&ctx, cmha_model_table(), &mc, "attention=rope score=rope-mixed n_layers=2 "
                                 "n_heads=2 n_kv_heads=1 d_ff=8 vocabulary=11 init_std=0.4"));
    mc.d_model = 2 * d_head, mc.causal = causal;
    CHECK_OK(cmha_model_init(&model, &ctx, &mc));
    batch.ids = ids, batch.targets = targets, batch.batch = 2, batch.length = 6;
    CHECK_OK(cmha_model_gradient(&model, &batch, 1, 0, &loss));
    CHECK_OK(cmha_gradient_check(&model.parameters, loss_of, &batch, &error));
    CHECK_THAT(error < 1e-8, "heads of %zu: %g", d_head, error);
    cmha_model_close(&model), cmha_context_close(&ctx);
}

int main(void) {
    for (size_t d = 2; d <= 12; d += 2) features(d);
    gradients(4, 1), gradients(6, 0);
    return check_end();
}
