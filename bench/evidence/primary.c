/* primary.c - the second round: four questions whose claims, design and power were written down before any of
   their rows was made. questions.c has the hypotheses, results/primary_*.md the power. */
#include "language.h"

/* Each with AdamW and with today's recipe, whose rates are four times as high. `choose=loss`: the rate is
   chosen at the trained length. */
#define PRIMARY_TEXT "choose=loss text.set=wikitext2-bytes trainer.batch=8 trainer.length=256 trainer.steps="
#define PRIMARY_PARTS(name, steps) \
    static const evidence_part name[] = { \
        {"adamw", "AdamW, WikiText-2, bytes", PRIMARY_TEXT #steps}, \
        {"fast", "preset `fast`, WikiText-2, bytes", "preset=fast rate.times=4 " PRIMARY_TEXT #steps}}
/* Rates by the square root of two. */
#define PRIMARY_DESIGN 0, 12, {2.121e-3, 3e-3, 4.243e-3}
#define PRIMARY_REST 0, NULL, 0, 0, 1, 2

static const evidence_variant phase_variants[] = {
    {"rope", "RoPE", "kind=rope"},
    {"cmha-near-0", "ComplexFormer, δ from near 0", "kind=cmha delta_init=paper"}};

PRIMARY_PARTS(early_parts, 300);
const evidence_claim evidence_claim_primary_early = {
    "primary_early", "Primary: does ComplexFormer learn faster early?",
    "Ours, before any row: ComplexFormer with δ from near 0 is ahead of RoPE after 300 steps.", early_parts,
    LENGTH(early_parts), phase_variants, LENGTH(phase_variants), "loss", "nats a byte", PRIMARY_DESIGN,
    evidence_text_run, 0.5, PRIMARY_REST};

PRIMARY_PARTS(late_parts, 6000);
const evidence_claim evidence_claim_primary_late = {
    "primary_late", "Primary: what is left of it after 6,000 steps?",
    "Ours, before any row: after 6,000 steps, decayed fully, ComplexFormer with δ from near 0 is ahead of "
    "RoPE, or at most 0.01 nats behind.", late_parts,
    LENGTH(late_parts), phase_variants, LENGTH(phase_variants), "loss", "nats a byte", PRIMARY_DESIGN,
    evidence_text_run, 8, PRIMARY_REST};

PRIMARY_PARTS(far_parts, 1500);
static const evidence_variant far_variants[] = {
    {"rope-yarn", "RoPE with YaRN", "kind=rope long.scaling=yarn"}, {"pope", "PoPE", "kind=pope"}};
const evidence_claim evidence_claim_primary_far = {
    "primary_far", "Primary: does PoPE extrapolate better than RoPE with YaRN?",
    "Ours, before any row: trained at 256, PoPE is ahead of RoPE with YaRN's frequencies (set after "
    "training) in contexts of 8 times that length.", far_parts,
    LENGTH(far_parts), far_variants, LENGTH(far_variants), "far", "bits a byte at positions 1,024 to 2,047",
    PRIMARY_DESIGN, language_longer_run, 2.5, PRIMARY_REST};

PRIMARY_PARTS(crat_parts, 1500);
static const evidence_variant crat_variants[] = {
    {"rope", "RoPE", "kind=rope"},
    {"crat", "CRAT", "kind=crat text.equal=1"},
    {"angular", "CRAT's angular attention alone", "kind=angular text.equal=1"}};
const evidence_claim evidence_claim_primary_crat = {
    "primary_crat", "Primary: is CRAT a better language model at equal numbers?",
    "CRAT claims a perplexity of 20.4 against RoPE's 22.8 at equal size. Before any row: with as many "
    "numbers and tokens CRAT is ahead of RoPE, and so is its attention alone.", crat_parts,
    LENGTH(crat_parts), crat_variants, LENGTH(crat_variants), "loss", "nats a byte", PRIMARY_DESIGN,
    evidence_text_run, 3, PRIMARY_REST};
