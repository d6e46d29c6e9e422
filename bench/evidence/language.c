/* language.c - claims about language models: ComplexFormer (arXiv 2505.10222), longer contexts. */
#include "program.h"

#include <math.h>

static int quick_run(const evidence_run *run, evidence_result *result) {
    cmha_context ctx;
    cmha_model model;
    cmha_trainer trainer;
    cmha_tokens text, train, held_out;
    cmha_model_config mc;
    cmha_trainer_config tc;
    char path[1024];
    double loss = NAN, paired = 0;
    int done;
    memset(&model, 0, sizeof model), memset(&trainer, 0, sizeof trainer), memset(&text, 0, sizeof text);
    if (!evidence_data(run, "books/tinyshakespeare.txt", path) || !evidence_open(run, &ctx)) return 0;
    done = evidence_configure(run, &ctx, &mc, &tc) && evidence_start(run, &ctx, &mc, &model, &paired);
    if (done && (cmha_tokens_open(&text, &ctx, path, 1) || cmha_trainer_init(&trainer, &model, &tc)))
        done = evidence_fail(run->error, "%s", cmha_error(&ctx));
    if (done) cmha_trainer_split(&trainer, &text, &train, &held_out);
    done = done && evidence_train(run, &trainer, &train, &held_out, result, &loss);
    if (done) evidence_add(result, "loss", loss), evidence_add(result, "paired", paired);
    cmha_trainer_close(&trainer), cmha_model_close(&model), cmha_tokens_close(&text), cmha_context_close(&ctx);
    return done;
}

static const evidence_part quick_parts[] = {
    {"shakespeare", "Tiny Shakespeare, bytes",
     "n_layers=2 d_model=64 n_heads=2 d_ff=256 trainer.steps=400 trainer.batch=8 trainer.length=128 "
     "trainer.eval_tokens=32768"}};
static const evidence_variant quick_variants[] = {
    {"rope", "RoPE", "kind=rope"},
    {"rope-again", "RoPE, other seeds", "like=rope reseed=1000"},
    {"rope-rounding", "RoPE, two threads", "like=rope threads=2"},
    {"cmha", "ComplexFormer, δ from 1", "kind=cmha delta_init=rope_start"},
    {"cmha-near-0", "ComplexFormer, δ from near 0", "kind=cmha delta_init=paper"},
    {"alibi", "ALiBi", "kind=alibi"}};
const evidence_claim evidence_claim_text_quick = {
    "text_quick", "ComplexFormer on a small text", "ComplexFormer's Table 1 claims a lower perplexity than RoPE.",
    quick_parts, 1, quick_variants, 6, "loss", "nats a byte", 0, 5, {3e-3, 1e-2, 3e-2}, quick_run, 0.2, 1};
