/* Gradients of whole models: a random subset of every parameter, over the configurations
   that change what a block computes. */
#ifndef CMHA_DOUBLE
#define CMHA_DOUBLE
#endif
#include "grad.h"
#include "models.h"
#include "scores.h"

typedef struct subject {
    cmha_model model;
    cmha_batch batch;
    cmha_tape tape; /* the losses include what cmha_model_gradient adds to the cross-entropy */
    uint64_t key;
} subject;

static cmha_context context;
static cmha_knowledge base; /* what the windows of a CRAT look into */

/* The whole training loss: cross-entropy and weighted PCL, on a tape of the test's own
   whose dropout key is that of the pass */
static double subject_loss(void *user) {
    subject *s = (subject *)user;
    cmha_tensor *logits, *extra = NULL, *loss;
    cmha_tape_reset(&s->tape);
    s->tape.key = s->key, s->tape.draws = 0;
    logits = cmha_model_forward(&s->model, &s->tape, &s->batch, &extra);
    loss = cmha_cross_entropy(&s->tape, logits, s->batch.targets, -1, NULL);
    if (!loss) return NAN;
    return (double)loss->data[0] + (extra ? (double)extra->data[0] : 0);
}

/* Analytic gradient of that same loss */
static int subject_gradient(subject *s) {
    cmha_tensor *logits, *extra = NULL, *loss;
    double ignored;
    /* once through the public call, so that the gradient block exists; then cleared and taken on
       the test's tape, with its key */
    if (!CHECK_THAT(!cmha_model_gradient(&s->model, &s->batch, 1, s->key, &ignored), "%s",
                    cmha_error(&context)))
        return 0;
    cmha_parameters_zero_grad(&s->model.parameters);
    cmha_tape_reset(&s->tape);
    s->tape.key = s->key, s->tape.draws = 0;
    logits = cmha_model_forward(&s->model, &s->tape, &s->batch, &extra);
    loss = cmha_cross_entropy(&s->tape, logits, s->batch.targets, -1, NULL);
    if (extra) loss = cmha_add(&s->tape, loss, extra);
    return CHECK_THAT(loss && !cmha_tape_backward(&s->tape, loss, 1), "%s", cmha_error(&context));
}

/* Rows that are never used have no gradient; everything else is checked */
static void subject_parameters(subject *s, const char *label) {
    size_t i;
    char name[128];
    for (i = 0; i < s->model.parameters.count; i++) {
        cmha_parameter *p = &s->model.parameters.list[i];
        grad_input in;
        in.name = p->name, in.x = p->tensor.data, in.grad = p->tensor.grad, in.n = p->tensor.size;
        snprintf(name, sizeof name, "%s", label);
        if (strstr(p->name, "k.bias") && check_largest(p->tensor.grad, p->tensor.size) < 1e-12) {
            /* a bias on keys that are not rotated moves all scores of a row alike: its true gradient is 0 */
            CHECK_THAT(fabs(grad_difference(subject_loss, s, p->tensor.data, p->tensor.size, NULL, 0, 2e-4)) <
                           1e-9,
                       "%s: the gradient of %s should not be 0", label, p->name);
            continue;
        }
        if (CHECK_THAT(p->tensor.grad != NULL, "%s: no gradient for %s", label, p->name))
            grad_check(name, subject_loss, s, &in, 1, 3);
    }
}

/* cmha_model_gradient agrees with the tape: weight scales, gradients accumulate,
   the loss is the cross-entropy alone */
static void subject_public(subject *s, const char *label) {
    cmha_real *want = check_zeros(s->model.parameters.size);
    double loss, loss2, evaluated = 0;
    size_t i;
    memcpy(want, s->model.parameters.grad, s->model.parameters.size * sizeof *want);
    cmha_parameters_zero_grad(&s->model.parameters);
    CHECK(check_largest(s->model.parameters.grad, s->model.parameters.size) == 0);
    CHECK_OK(cmha_model_gradient(&s->model, &s->batch, 1, s->key, &loss));
    CHECK_THAT(check_distance(want, s->model.parameters.grad, s->model.parameters.size) <
                   1e-11 * (1 + check_largest(want, s->model.parameters.size)),
               "%s: cmha_model_gradient is not the gradient of cmha_model_forward", label);
    memcpy(want, s->model.parameters.grad, s->model.parameters.size * sizeof *want);
    CHECK_OK(cmha_model_gradient(&s->model, &s->batch, -0.25, s->key, &loss2));
    for (i = 0; i < s->model.parameters.size; i++) want[i] *= 0.75;
    CHECK_THAT(check_distance(want, s->model.parameters.grad, s->model.parameters.size) <
                   1e-11 * (1 + check_largest(want, s->model.parameters.size)),
               "%s: gradients do not accumulate by weight", label);
    CHECK_THAT(loss == loss2, "%s: the same key gives another loss", label);
    if (s->model.config.dropout == 0 && s->model.config.attention_dropout == 0) {
        CHECK_OK(cmha_model_loss(&s->model, &s->batch, &evaluated));
        CHECK_THAT(fabs(evaluated - loss) < 1e-12, "%s: evaluated loss %.15g, trained %.15g", label,
                   evaluated, loss);
    } else {
        CHECK_OK(cmha_model_gradient(&s->model, &s->batch, 1, s->key + 1, &loss2));
        CHECK_THAT(loss != loss2, "%s: another key gives the same loss", label);
    }
    free(want);
}

static void run(const char *label, const cmha_model_config *config, size_t batch, size_t length,
                const unsigned char *mask) {
    subject s;
    size_t i;
    int32_t *ids = (int32_t *)check_alloc(2 * batch * length, sizeof *ids);
    memset(&s, 0, sizeof s);
    for (i = 0; i < 2 * batch * length; i++) ids[i] = (int32_t)check_below(config->vocabulary);
    if (batch * length > 3) ids[batch * length + 1] = -1;
    s.batch.ids = ids, s.batch.targets = ids + batch * length, s.batch.batch = batch, s.batch.length = length,
    s.batch.key_mask = mask;
    s.key = 4242;
    if (CHECK_THAT(!cmha_model_init(&s.model, &context, config), "%s: %s", label, cmha_error(&context))) {
        /* biases and b off their zeros */
        for (i = 0; i < s.model.parameters.size; i++) s.model.parameters.data[i] += 0.05 * check_random();
        CHECK_OK(cmha_parameters_tune(&s.model.parameters, "*", CMHA_TUNE_FROZEN, 0, NULL));
        if (config->irw_layers) CHECK_OK(cmha_model_set_knowledge(&s.model, &base));
        CHECK_OK(cmha_tape_init(&s.tape, &context, 1));
        if (subject_gradient(&s)) {
            if (length == 1)
                CHECK_THAT(isfinite(subject_loss(&s)) &&
                               check_finite(s.model.parameters.grad, s.model.parameters.size),
                           "%s", label);
            else subject_parameters(&s, label);
        }
        subject_public(&s, label);
        cmha_tape_close(&s.tape);
    }
    cmha_model_close(&s.model);
    free(ids);
}

static cmha_model_config with(const char *options) {
    cmha_model_config config = check_model_config();
    config.d_model = 8, config.n_heads = 2, config.d_ff = 10, config.vocabulary = 7,
    config.max_positions = 16;
    models_set(&context, &config, options);
    return config;
}

static void run_options(const char *options, size_t batch, size_t length, const unsigned char *mask) {
    cmha_model_config config = with(options);
    run(options[0] ? options : "defaults", &config, batch, length, mask);
}

/* What states alone do not have: the z-loss is beside a loss of tokens. */
static cmha_status training_loss(void *user, double *loss) {
    subject *s = (subject *)user;
    return cmha_model_training_loss(&s->model, &s->batch, s->key, loss);
}

static void z_losses(const char *options, double weight) {
    int32_t ids[2 * 12];
    cmha_model_config config = with(options);
    double loss, error = INFINITY;
    subject s;
    memset(&s, 0, sizeof s);
    for (size_t i = 0; i < 24; i++) ids[i] = (int32_t)check_below(config.vocabulary);
    ids[13] = -1;
    s.batch.ids = ids, s.batch.targets = ids + 12, s.batch.batch = 2, s.batch.length = 6, s.key = 99;
    CHECK_OK(cmha_model_init(&s.model, &context, &config));
    for (size_t i = 0; i < s.model.parameters.size; i++)
        s.model.parameters.data[i] += 0.2 * check_random();
    CHECK_OK(cmha_model_gradient(&s.model, &s.batch, weight, s.key, &loss));
    for (size_t i = 0; i < s.model.parameters.learning; i++) s.model.parameters.grad[i] /= weight;
    CHECK_OK(cmha_gradient_check(&s.model.parameters, training_loss, &s, &error));
    CHECK_THAT(error < 1e-7, "%s: %g, %s", options, error, cmha_error(&context));
    cmha_model_close(&s.model);
}

int main(int argc, char **argv) {
    static const char *const options[] = {
        "tied=1",
        "tied=0 head_bias=1 attention_bias=1",
        "tied=1 head_bias=1 placement=post",
        "norm=rmsnorm activation=swiglu ffn_bias=0 tied=0",
        "norm=rmsnorm activation=swiglu ffn_bias=1 placement=post attention_bias=1",
        "activation=gelu_tanh residual_scale=0.3 n_kv_heads=1 d_model=12",
        "n_heads=4 n_kv_heads=2 window=3 layout=half share=shared",
        "attention=rope frequency=literal base=50 score_scale=0.9",
        "attention=dot position=learned ffn_bias=0",
        "attention=dot position=sinusoidal base=100",
        "attention=dot position=alibi window=4 n_heads=4 n_kv_heads=2",
        "attention=cmha position=alibi share=fixed causal=0",
        "pcl_weight=0.3 pcl_tau=0.5",
        "pcl_weight=0.3 pcl_tau=0.5 pcl_adapted=1 n_heads=4 n_kv_heads=2 share=shared",
        "dropout=0.2 attention_dropout=0.3 pcl_weight=0.1 attention_bias=1",
        "dropout=0.2 attention_dropout=0.1 placement=post activation=swiglu norm=rmsnorm",
        "activation=relu output_bias=1 token_types=2 causal=0",
        /* what other people's models need */
        "attention=rope qkv_bias=1 n_kv_heads=1 norm=rmsnorm activation=swiglu ffn_bias=0 d_head=6 "
        "layout=half rope_scaling=llama3 rope_factor=4 rope_length=64 rope_fast=4 base=30",
        "d_head=10 rotary_dims=6 layout=half rope_scaling=yarn rope_factor=8 rope_length=90 base=20",
        "d_head=8 rotary_dims=4 pcl_weight=0.2 pcl_adapted=1 rope_scaling=ntk rope_factor=3 recompute=1",
        "score=twist d_head=8 layout=half rotary_dims=4 rope_scaling=linear rope_factor=2",
        "attention=dot position=learned placement=post causal=0 token_types=2 attention_bias=1 head_bias=1 "
        "embedding_norm=1 head_transform=1 activation=gelu_tanh dropout=0.1",
        "causal=0 embedding_norm=1 norm=rmsnorm",
        "head_transform=1 embedding_norm=1 tied=0 placement=post",
        /* CoPE: every score, position, maximum and placement */
        "family=cope attention=dot placement=post activation=relu output_bias=1 cope_score=phase",
        "family=cope attention=dot cope_score=magnitude cope_imag=sin_cos",
        "family=cope attention=rope cope_score=real cope_imag=learned cope_gamma=0.7",
        "family=cope attention=cmha cope_score=hybrid cope_alpha=0.6 cope_repo_scale=1 causal=0",
        "family=cope attention=dot cope_score=hybrid_norm cope_max_grad=1 window=4",
        "family=cope attention=dot cope_score=hybrid_norm cope_max=head cope_max_grad=1 causal=0 "
        "cope_scale=1.5",
        "family=cope attention=dot cope_score=hybrid_norm cope_max=global cope_max_grad=1 causal=0",
        "family=cope attention=dot cope_score=linear",
        "family=cope attention=dot cope_score=linear causal=0 dropout=0.2 attention_dropout=0.1",
        /* Möbius: every mode, softmax, quotient and wiring, mixed and alone */
        "family=mobius mobius_heads=1 attention=dot position=learned placement=post attention_bias=1",
        "family=mobius mobius_heads=0 attention=dot position=learned placement=post",
        "family=mobius attention=dot position=learned placement=post mobius_heads=2 mobius_softmax=real "
        "mobius_hermitian=1",
        "family=mobius mobius_heads=1 attention=rope position=sinusoidal placement=post mobius_mode=full "
        "mobius_softmax=ri_split n_layers=3",
        "family=mobius mobius_heads=1 attention=cmha position=learned placement=post mobius_mode=literal "
        "mobius_softmax=yang8 mobius_wiring=top",
        "family=mobius mobius_heads=1 attention=dot position=learned placement=post mobius_softmax=abs "
        "mobius_quotient=unit mobius_wiring=stacked",
        "family=mobius attention=dot position=learned placement=post mobius_heads=2 mobius_mode=literal "
        "mobius_wiring=alternating",
        ("family=mobius attention=dot position=learned placement=post causal=0 dropout=0.2 "
         "attention_dropout=0.2 activation=swiglu "
         "mobius_heads=2 mobius_quotient=exact"),
        /* CRAT: every kernel, norm, group of heads and option of the state */
        "family=crat d_model=16 score_scale=0.9",
        "family=crat d_model=16 n_heads=4 real_heads=1 imag_heads=1 complex_norm=crms phase_reg=0.3 "
        "mag_reg=0.2",
        "family=crat d_model=16 low_rank=2 real_heads=1 complex_norm=split pe_terms=1 state_gelu=1 tied=0",
        "family=crat d_model=16 complex_norm=whiten state_rotation=0 residual_scale=0.5 dropout=0.2 "
        "attention_dropout=0.2",
        "family=crat d_model=16 crat_attention=linear imag_heads=2 ffn_bias=0",
        "family=crat d_model=16 crat_attention=linear causal=0 low_rank=3 imag_heads=1",
        "family=crat d_model=16 crat_attention=lag causal=0 real_heads=1 lag_temp=3 lag_topk=4",
        /* its experts, complex residuals and reflection windows, alone and together */
        "attention=dot position=multifreq pe_terms=3",
        "family=crat d_model=16 crat_attention=dot imag_heads=1 complex_residual=unit",
        "family=crat d_model=16 experts=3 balance=0.2 complex_residual=free",
        "family=crat d_model=16 experts=4 experts_top=1 balance=0.3 ffn_bias=0 dropout=0.2",
        "family=crat d_model=16 irw_layers=1 irw_width=5 irw_queries=2 irw_top=3 irw_tau=0.1",
        "family=crat d_model=16 irw_layers=2 irw_from=1 irw_width=5 irw_top=2 irw_fusion=additive irw_raw=1 "
        "irw_gate_tau=0.5 "
        "irw_threshold=0.1 complex_residual=free experts=2 experts_top=2 phase_reg=0.1",
        /* PoPE and RoPE++, in all their places */
        "attention=pope beta_uniform=1 n_kv_heads=1 window=3 placement=post",
        "attention=pope beta_uniform=1 share=shared rotary_dims=3 head_temperature=1 recompute=1",
        "attention=ropepp n_heads=4 n_kv_heads=2 position=alibi head_temperature=1",
        "attention=ropepp layout=half attention_dropout=0.2 lora_rank=2 lora_on=*",
        "family=cope attention=pope cope_score=hybrid",
        "family=mobius mobius_heads=1 attention=ropepp position=learned placement=post",
        /* temperatures of all softmaxes, a learned gamma, arctan */
        "head_temperature=1 position=alibi n_heads=4 n_kv_heads=2 recompute=1",
        "head_temperature=1 share=fixed window=3 layout=half",
        "head_temperature=1 share=shared attention_dropout=0.2 pcl_weight=0.2",
        "head_temperature=1 score=gain n_kv_heads=1", "head_temperature=1 score=power family=cope",
        "family=cope attention=cmha cope_score=phase head_temperature=1 cope_gamma_learned=1 cope_gamma=0.7",
        "family=cope attention=dot cope_score=hybrid_norm cope_max_grad=1 head_temperature=1 dropout=0.2 "
        "cope_imag=learned cope_gamma_learned=1",
        "family=cope attention=dot cope_score=linear head_temperature=1 cope_gamma_learned=1",
        "family=mobius mobius_heads=1 attention=rope position=learned placement=post head_temperature=1",
        "family=mobius mobius_heads=2 attention=dot position=learned placement=post head_temperature=1 "
        "mobius_softmax=yang8",
        "family=crat d_model=16 n_heads=4 real_heads=1 imag_heads=1 head_temperature=1 angle=atan",
        "family=crat d_model=16 crat_attention=dot low_rank=2 imag_heads=1 head_temperature=1",
        /* adapters beside every matrix that can have one, and of some that share a product */
        "lora_rank=2 lora_alpha=6 lora_on=* attention_bias=1 n_kv_heads=1 residual_scale=0.3",
        "lora_rank=3 lora_on=wk,w3,wo,w2 activation=swiglu norm=rmsnorm dropout=0.2 placement=post",
        "lora_rank=1 lora_alpha=2 dropout=0.3 attention_dropout=0.1 recompute=1 pcl_weight=0.2",
        "family=cope attention=dot cope_score=hybrid lora_rank=2 lora_alpha=3 lora_on=* output_bias=1",
        "family=mobius mobius_heads=1 attention=rope position=learned placement=post lora_rank=2 lora_on=* "
        "lora_alpha=5",
        "family=mobius mobius_heads=2 attention=dot position=learned placement=post mobius_mode=full "
        "lora_rank=2 lora_on=* dropout=0.1",
        "family=crat d_model=16 n_heads=4 real_heads=1 imag_heads=1 lora_rank=2 lora_on=* lora_alpha=7",
        "family=crat d_model=16 experts=2 irw_layers=1 irw_width=5 lora_rank=2 lora_on=* recompute=1",
        /* scores of a program's own */
        "score=power-turned n_kv_heads=2 lora_rank=2 lora_on=wq,wk,wv",
        "score=my-rope", "score=turned-planes n_heads=2 n_kv_heads=1 window=3",
        "score=gain position=alibi attention_dropout=0.2", "score=gain n_kv_heads=1 d_model=16",
        "score=twist n_kv_heads=1 layout=half", "score=power-turned n_kv_heads=2",
        "score=power window=4 position=alibi attention_dropout=0.2 attention_bias=1 recompute=1",
        "score=power family=cope cope_imag=learned", "score=gated n_kv_heads=1 dropout=0.2 recompute=1",
        "score=mean causal=0",
        /* QK-norm, soft caps, sinks, squared ReLU, gains of 1 + w */
        "qk_norm=rms_gain n_heads=4 n_kv_heads=2 share=shared score_softcap=0.7 window=3 sinks=1",
        "attention=rope qk_norm=rms layout=half rotary_dims=4 d_head=8 logit_softcap=0.9 activation=relu2",
        "attention=pope qk_norm=rms_gain score_softcap=0.5 head_temperature=1 recompute=1 sinks=2 window=2",
        "attention=dot position=alibi score_softcap=0.4 head_temperature=1 norm=rmsnorm_one_plus dropout=0.2",
        "attention=ropepp qk_norm=rms_gain n_heads=4 n_kv_heads=2 attention_dropout=0.2 lora_rank=2",
        "qk_norm=rms_gain pcl_weight=0.2 pcl_adapted=1 logit_softcap=2 tied=0 head_bias=1 placement=post",
        "family=cope attention=dot cope_score=hybrid_norm cope_max_grad=1 qk_norm=rms_gain score_softcap=0.6",
        "family=cope attention=rope cope_score=linear qk_norm=rms score_softcap=1 norm=rmsnorm_one_plus",
        "family=mobius mobius_heads=1 attention=dot position=learned placement=post qk_norm=rms_gain "
        "score_softcap=0.5 mobius_softmax=yang8",
        "family=crat d_model=16 n_heads=4 real_heads=1 imag_heads=1 score_softcap=0.3 norm=rmsnorm_one_plus",
        "score=gain qk_norm=rms_gain score_softcap=0.8 head_temperature=1",
        "score=power score_softcap=0.5 window=2 sinks=3",
        /* parallel residual sums, value residuals, layers that read the first one's input */
        "parallel=norms attention_bias=1 dropout=0.2",
        "attention=rope parallel=norm norm=rmsnorm lora_rank=2",
        "family=cope attention=rope cope_score=hybrid parallel=norm recompute=1 residual_mix=1",
        "value_residual=1 residual_mix=1 n_heads=4 n_kv_heads=2 qk_norm=rms_gain attention_bias=1 n_layers=3",
        "score=power-turned value_residual=1 n_kv_heads=2 parallel=norms",
        "attention=ropepp n_heads=4 n_kv_heads=2 value_residual=1 dropout=0.2 placement=post residual_mix=1",
        "family=crat d_model=16 n_heads=4 real_heads=1 imag_heads=1 residual_mix=1 recompute=1",
        /* norms behind sublayers, layers of several kinds, gated GELU, factors, norms of all heads */
        "attention=rope placement=sandwich norm=rmsnorm_one_plus activation=geglu_tanh qk_norm=rms_one_plus "
        "layer_kinds=lg window=3 local_base=50 rope_scaling=linear rope_factor=2 embedding_factor=1.7",
        "placement=after n_heads=4 n_kv_heads=2 qk_norm=rms_whole layer_kinds=gn dropout=0.2 lora_rank=2 "
        "lora_on=wo,w2,wq",
        "attention=rope layer_kinds=gl causal=0 window=2 norm=layernorm_gain activation=geglu_erf "
        "recompute=1 n_layers=3 head_scale=0.3 residual_scale=0.4",
        "family=cope attention=rope cope_score=hybrid placement=sandwich parallel=norms head_scale=2",
        "attention=pope placement=sandwich parallel=norm layer_kinds=nl window=2 local_base=7 recompute=1",
        "family=mobius mobius_heads=1 attention=rope position=learned placement=post qk_norm=rms_whole",
        "score=my-rope placement=after layer_kinds=ln window=2 norm=layernorm_gain head_scale=3 tied=0",
        "attention=rope causal=0 first_norm=0 embedding_norm=1 head_transform=1 activation=geglu_erf "
        "ffn_bias=0",
        "first_norm=0 parallel=norms head_transform=1 activation=geglu_tanh value_residual=1 residual_mix=1",
    };
    static const unsigned char mask[12] = {1, 1, 1, 1, 1, 0, 1, 1, 1, 0, 0, 0};
    size_t i, n = sizeof options / sizeof *options;
    cmha_real *documents = check_array(9 * 10, 1);
    (void)argc;
    cmha_blas_restart(argv);
    scores_context(&context, 2, 3);
    CHECK_OK(cmha_knowledge_init(&base, &context, 9, 5, documents, NULL, NULL, NULL));
    for (i = 0; i < n; i++)
        if (!check_quick() || i % 5 == 1 || i == n - 2) run_options(options[i], 2, 6, NULL);
    run_options("causal=0 pcl_weight=0.2", 2, 6, mask);
    run_options("n_heads=2 n_kv_heads=1", 2, 6, mask);
    run_options("family=cope attention=dot cope_score=hybrid_norm cope_max=head cope_max_grad=1 causal=0", 2,
                6, mask);
    run_options("family=crat d_model=16 crat_attention=lag causal=0 lag_temp=3 lag_topk=2", 2, 6, mask);
    run_options("tied=1", 1, 1, NULL);
    z_losses("attention=rope z_loss=0.3", 1), z_losses("attention=rope z_loss=0", 1);
    z_losses("attention=rope z_loss=0.2 logit_softcap=2 tied=0 head_bias=1", 0.25);
    z_losses("attention=dot z_loss=0.1 causal=0 head_transform=1", 1);
    if (!check_quick()) run_options("window=66 max_positions=80 layout=half", 1, 70, NULL);
    cmha_knowledge_close(&base), free(documents);
    cmha_context_close(&context);
    return check_end();
}
