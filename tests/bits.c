/* Prints a fingerprint of what every kind of model computes: the losses and weights of
   training, an evaluation, decoded tokens with their logits; on one thread and on two. For
   changes of the header that must keep results:
       make bits AGAINST=OLD.h      OLD.h is the header before the change
   builds this program with both headers, in float and in double, and compares what they print. */
#include "models.h"

/* CMHA_TEST_QUICK: 6 steps, and 104 tokens, with which a cache slides */
#define STEPS (check_quick() ? 6u : 50u)
#define DECODED (check_quick() ? 104u : 200u)
enum { LENGTH = 40, CAPACITY = 96, VOCABULARY = 128 };

/* The fields that differ from a small model, one row a fingerprint; the first word is a kind */
static const char *const rows[] = {
    "cmha dropout=0.1 attention_dropout=0.1",
    "cmha n_kv_heads=2 window=9 norm=rmsnorm activation=swiglu attention_bias=1 tied=0 head_bias=1",
    "cmha layout=half frequency=literal score_scale=0.3 placement=post residual_scale=0.5 activation=relu",
    "cmha delta_init=paper pcl_weight=0.01 activation=gelu_tanh",
    "cmha-shared pcl_weight=0.01 pcl_adapted=1 init=xavier",
    "cmha recompute=1 dropout=0.1 embedding_scale=1",
    "rope n_kv_heads=1 output_bias=1 ffn_bias=0",
    "alibi n_kv_heads=2 window=17",
    "dot position=multifreq",
    "pope n_kv_heads=1 share=shared beta_uniform=1 rotary_dims=3 window=17 dropout=0.1",
    "ropepp n_kv_heads=2 layout=half window=17 attention_dropout=0.1",
    "mobius+rope attention=ropepp rope_scaling=linear rope_factor=2",
    "rope causal=0 token_types=2",
    "cope-phase cope_repo_scale=1 cope_imag=learned placement=post",
    "cope-hybrid cope_imag=sin_cos cope_gamma=0.5 cope_scale=3",
    "cope-hybrid_norm cope_max_grad=1 dropout=0.1",
    "cope-hybrid_norm causal=0 cope_max=head",
    "cope-hybrid_norm causal=0 cope_max=global cope_max_grad=1",
    "cope-linear causal=0",
    "mobius mobius_mode=full mobius_softmax=real mobius_wiring=stacked mobius_init=ortho",
    "mobius mobius_mode=literal mobius_softmax=yang8 mobius_quotient=unit",
    "mobius mobius_heads=4 mobius_softmax=ri_split mobius_hermitian=1 mobius_wiring=alternating",
    "mobius+rope mobius_softmax=abs mobius_wiring=top mobius_eps=0.1",
    "mobius causal=0 recompute=1 dropout=0.1",
    "angular real_heads=1 imag_heads=1 complex_norm=crms low_rank=3 complex_residual=unit",
    "angular complex_norm=whiten state_gelu=1 attention_dropout=0.1",
    "angular crat_attention=dot complex_norm=split state_rotation=0 phase_reg=1e-2 mag_reg=1e-2",
    "angular-linear complex_residual=free experts=3 experts_top=1 balance=0.01 dropout=0.1",
    "crat balance=0.01 recompute=1",
    "alibi head_temperature=1 n_kv_heads=2",
    "cope-phase head_temperature=1 cope_gamma_learned=1",
    "mobius mobius_softmax=abs head_temperature=1",
    "angular-atan head_temperature=1 real_heads=1 imag_heads=1",
    "crat irw_layers=1 irw_queries=2 irw_top=3 irw_fusion=additive",
    "crat irw_layers=2 irw_from=1 irw_queries=2 irw_top=3 irw_raw=1 irw_width=6 irw_threshold=0.1",
    "lag lag_topk=5 lag_temp=0.7",
};

static uint64_t fingerprint(uint64_t seed, const void *data, size_t bytes) { /* FNV-1a */
    const unsigned char *at = (const unsigned char *)data;
    for (size_t i = 0; i < bytes; i++) seed = (seed ^ at[i]) * 1099511628211u;
    return seed;
}

/* Fingerprints 200 decoded tokens, each the likeliest by the last logits, and these; the cache slides. */
static uint64_t decoded(cmha_model *model, uint64_t print) {
    static cmha_real logits[2 * VOCABULARY];
    int32_t ids[2] = {'t', 's'};
    cmha_cache cache;
    CHECK_OK(cmha_cache_init(&cache, model, 2, CAPACITY, 1, NULL));
    for (size_t n = 0; n < DECODED; n++) {
        CHECK_OK(cmha_cache_append(&cache, ids, 1, logits));
        print = fingerprint(print, logits, sizeof logits);
        for (size_t b = 0; b < 2; b++) {
            ids[b] = 0;
            for (int32_t v = 1; v < VOCABULARY; v++)
                if (logits[b * VOCABULARY + (size_t)v] > logits[b * VOCABULARY + (size_t)ids[b]]) ids[b] = v;
        }
        print = fingerprint(print, ids, sizeof ids);
    }
    cmha_cache_close(&cache);
    return print;
}

static void row(const char *text, int threads) {
    static unsigned char corpus[8192];
    cmha_context c;
    cmha_model model;
    cmha_trainer trainer;
    cmha_knowledge base;
    cmha_tokens all = {0}, train, held_out;
    cmha_model_config m = check_model_config();
    cmha_trainer_config t;
    char kind[32];
    uint64_t print = 14695981039346656037u;
    double loss = 0;
    size_t fields = strcspn(text, " ");
    cmha_real *vectors = NULL;
    snprintf(kind, sizeof kind, "%.*s", (int)fields, text);
    check_context(&c, threads, 5);
    m.d_model = 32, m.d_ff = 40, m.vocabulary = VOCABULARY, m.init_std = 0.1;
    cmha_config_defaults(cmha_trainer_table(), &t);
    t.steps = STEPS, t.batch = 3, t.length = LENGTH, t.accumulate = 2, t.lr = 3e-3, t.eval_tokens = 300;
    all.data = corpus;
    all.width = 1;
    all.count = models_text(corpus, sizeof corpus);
    CHECK_OK(cmha_kind(&c, kind, &m));
    CHECK_OK(cmha_config_set_all(&c, cmha_model_table(), &m, text + fields));
    if (CHECK_THAT(!cmha_model_init(&model, &c, &m) && !cmha_trainer_init(&trainer, &model, &t), "%s: %s",
                   text, cmha_error(&c))) {
        memset(&base, 0, sizeof base);
        if (m.irw_layers) {
            size_t width = 2 * (m.irw_width ? m.irw_width : m.d_model / 2);
            check_seed = 7, vectors = check_array(50 * width, 1);
            CHECK_OK(cmha_knowledge_init(&base, &c, 50, width / 2, vectors, NULL, NULL, NULL));
            CHECK_OK(cmha_model_set_knowledge(&model, &base));
        }
        cmha_trainer_split(&trainer, &all, &train, &held_out);
        for (size_t step = 0; step < STEPS; step++) {
            CHECK_THAT(!cmha_trainer_step(&trainer, &train, &loss), "%s: %s", text, cmha_error(&c));
            print = fingerprint(print, &loss, sizeof loss);
        }
        print = fingerprint(print, model.parameters.data,
                            model.parameters.size * sizeof *model.parameters.data);
        CHECK_OK(cmha_trainer_evaluate(&trainer, &held_out, &loss));
        print = fingerprint(print, &loss, sizeof loss);
        printf("threads %d  trained %016llx  loss %.4f  ", threads, (unsigned long long)print, loss);
        if (m.causal) printf("decoded %016llx  ", (unsigned long long)decoded(&model, print));
        printf("%s\n", text);
        cmha_trainer_close(&trainer), cmha_model_close(&model), cmha_knowledge_close(&base);
        free(vectors);
    }
    cmha_context_close(&c);
}

int main(int argc, char **argv) {
    const char *kind;
    if (argc > 1) return strcmp(argv[1], "0") != 0; /* is the instruction set there? */
    for (int threads = 1; threads <= 2; threads++) {
        for (size_t i = 0; (kind = cmha_kind_name(i, NULL)) != NULL; i++) row(kind, threads);
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) row(rows[i], threads);
    }
    return check_end();
}
