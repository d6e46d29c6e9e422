/* questions.c - what README.md asks of the rows, and what a model that has learned nothing would reach. */
#include "evidence.h"

#define NEAR0 "cmha-near-0"
#define ANY "learned,alibi,cmha,cmha-0,pope,ropepp,angular,cope-phase,cope-magnitude,mobius"
#define COPE_SCORES "phase,magnitude,real,hybrid,hybrid_norm,linear"
#define COMPLEX_KINDS "cope-real,cope-phase,cope-magnitude,mobius-rope,angular,lag,crat"

const evidence_question evidence_questions[] = {
    /* ComplexFormer */
    {"Does ComplexFormer, δ from near 0, lead after 400 steps with 0.1 million parameters (Tiny "
     "Shakespeare)?",
     "text_quick", "shakespeare", NEAR0, 0, 0, 0},
    {"Does ComplexFormer, δ from near 0, lead after 300 steps (Tiny Shakespeare)?",
     "generation", "shakespeare", NEAR0, 0, 0, 0},
    {"Does ComplexFormer, δ from near 0, lead after 200 steps (WikiText-2)?",
     "generation", "wikitext2", NEAR0, 0, 0, 0},
    {"Does ComplexFormer, δ from near 0, lead after 1,500 steps (Tiny Shakespeare)?",
     "steps", "shakespeare", NEAR0, 0, 0, 0},
    {"Does ComplexFormer, δ from near 0, lead after 250 steps of AdamW with 0.1 million parameters?",
     "optimisers", "adamw-250", NEAR0, 0, 0, 0},
    {"Does ComplexFormer, δ from near 0, lead after 250 steps of Muon with 0.1 million parameters?",
     "optimisers", "muon-250", NEAR0, 0, 0, 0},
    {"Does ComplexFormer, δ from near 0, lead after 600 steps of Muon with 0.1 million parameters?",
     "optimisers", "muon-600", NEAR0, 0, 0, 0},
    {"Does ComplexFormer, δ from 1, lead after 300 steps (Tiny Shakespeare)?",
     "generation", "shakespeare", "cmha", 0, 0, 0},
    {"Does ComplexFormer, δ from 1, lead after 200 steps (WikiText-2)?",
     "generation", "wikitext2", "cmha", 0, 0, 0},
    {"Does ComplexFormer, δ from 1, lead after 1,500 steps (Tiny Shakespeare)?",
     "steps", "shakespeare", "cmha", 0, 0, 0},
    {"Is the perplexity of ComplexFormer's text 6.3 % lower, as in the paper (Tiny Shakespeare)?",
     "generation", "shakespeare", NEAR0, 1, 0, -6.3},
    {"Is the perplexity of ComplexFormer's text 6.3 % lower, as in the paper (WikiText-2)?",
     "generation", "wikitext2", NEAR0, 1, 0, -6.3},
    {"Is ComplexFormer worse with δ and b shared or fixed, or without its contrastive loss?",
     "ablation", "shakespeare", "shared,fixed,without-pcl", 0, 1, 0},
    {"Does ComplexFormer, δ from near 0, predict programs better (MBPP's answers)?",
     "answers", "code", NEAR0, 0, 0, 0},
    {"Does ComplexFormer, δ from near 0, predict worked answers better (GSM8K's)?",
     "answers", "math", NEAR0, 0, 0, 0},
    {"Does ComplexFormer, δ from near 0, give more right answers (GSM8K)?",
     "answers", "math", NEAR0, 1, 0, 0},
    {"Does ComplexFormer, δ from near 0, predict chorales better?",
     "music", "jsb", NEAR0, 0, 0, 0},
    {"Does fine-tuning a RoPE model gain by learning δ and b too?",
     "finetune", "stories", "all-delta", 0, 0, 0},
    /* PoPE, ALiBi */
    {"Is PoPE better at 4 to 8 times the trained length?",
     "longer", "wikitext2", "pope", 0, 0, 0},
    {"Is ALiBi better at 4 to 8 times the trained length?",
     "longer", "wikitext2", "alibi", 0, 0, 0},
    {"Does PoPE lead after 300 steps (Tiny Shakespeare)?",
     "generation", "shakespeare", "pope", 0, 0, 0},
    {"Does PoPE lead after 200 steps (WikiText-2)?",
     "generation", "wikitext2", "pope", 0, 0, 0},
    {"Does PoPE predict chorales better?",
     "music", "jsb", "pope", 0, 0, 0},
    {"Is PoPE better at indirect indexing?",
     "indexing", "10", "pope", 0, 0, 0},
    /* tasks */
    {"Do PoPE, RoPE++ or ComplexFormer, δ from near 0, learn to copy as well as RoPE?",
     "copy", "24", "pope,ropepp,cmha-0", 0, 0, 0},
    {"Is any of ten other kinds better than RoPE at associative recall?",
     "recall", "4", ANY, 0, 0, 0},
    {"Do Möbius heads learn parity as well as RoPE?",
     "parity", "16", "mobius", 0, 0, 0},
    {"Is any of ten other kinds better than RoPE at sorting?",
     "sorting", "16", ANY, 0, 0, 0},
    {"Is ComplexFormer better where content has to move position (phase memory)?",
     "phase_memory", "64", "cmha,cmha-0", 0, 0, 0},
    /* CoPE */
    {"Are CoPE's phase scores 1.5 % better on SST-2, as in the paper?",
     "cope_sst2", "sst2", "phase", 0, 0, 1.55},
    {"Are CoPE's phase scores better on MRPC?",
     "cope_glue", "mrpc", "phase", 0, 0, 0},
    {"Is CoPE, with positions in the first layer alone, as good a language model, with any of its scores?",
     "cope_text", "shakespeare", COPE_SCORES, 0, 0, 0},
    /* MöbiusAttention */
    {"Is framed MöbiusAttention a better language model than BERT's attention?",
     "mobius_text", "shakespeare", "framed", 0, 0, 0},
    {"Is MobiusBERT better than BERT on CoLA?",
     "mobius_glue", "cola", "mobiusbert", 0, 0, 0},
    {"Is MobiusBERT better than BERT on MRPC?",
     "mobius_glue", "mrpc", "mobiusbert", 0, 0, 0},
    {"Is MobiusBERT better than BERT on RTE?",
     "mobius_glue", "rte", "mobiusbert", 0, 0, 0},
    /* CRAT */
    {"Is CRAT worse with real states, at two thirds of the parameters?",
     "crat", "cranfield", "real", 0, 1, 0},
    {"Is CRAT worse without its rotation?",
     "crat", "cranfield", "no-rotation", 0, 1, 0},
    {"Is CRAT worse without another of its parts?",
     "crat", "cranfield", "dot,no-window,one-frequency,arctan,plain-norm,dense", 0, 1, 0},
    {"Is CRAT with atan2 ahead of CRAT with arctan (Tiny Shakespeare, 600 steps)?",
     "angle", "crat", "atan2", 0, 0, 0},
    {"Does it reach 2.5 nats sooner (in the paper by 8 % of the steps)?",
     "angle", "crat", "atan2", 1, 0, -8},
    {"Does BM25 find passages better than CRAT's encoder (Cranfield)?",
     "retrieval", "cranfield", "bm25", 0, 0, 0},
    {"Does BM25 find passages better than CRAT's encoder (SQuAD)?",
     "retrieval", "squad", "bm25", 0, 0, 0},
    /* complex signals */
    {"Is any complex model better on radio signals?",
     "modulation", "any-phase", COMPLEX_KINDS, 0, 0, 0},
    {"Is any complex model better on radio signals whose test frames have other phases?",
     "modulation", "any-phase", COMPLEX_KINDS, 1, 0, 0},
    {"Is any complex model better on spoken digits, spectra with phases?",
     "spoken", "complex", COMPLEX_KINDS, 0, 0, 0},
    {"Is any complex model better on spoken digits, spectra without phases?",
     "spoken", "magnitude", COMPLEX_KINDS, 0, 0, 0},
    {"", "", "", "", 0, 0, 0}};

#define WITH_BOTH(hypothesis, claim, variant, margin) \
    {hypothesis ", with AdamW", claim, "adamw", variant, margin}, \
    {hypothesis ", with the recipe `fast`", claim, "fast", variant, margin}
const evidence_primary evidence_primaries[] = {
    WITH_BOTH("ComplexFormer, δ from near 0, is ahead of RoPE after 300 steps", "primary_early", NEAR0, 0),
    WITH_BOTH("It is ahead, or at most 0.01 nats behind, after 6,000 steps", "primary_late", NEAR0, 0.01),
    WITH_BOTH("PoPE is ahead of RoPE with YaRN at 8 times the trained length", "primary_far", "pope", 0),
    WITH_BOTH("CRAT is ahead of RoPE at equal numbers and tokens", "primary_crat", "crat", 0),
    WITH_BOTH("CRAT's angular attention alone is", "primary_crat", "angular", 0),
    {"", "", "", "", 0}};

/* Bytes of Tiny Shakespeare's last tenth, by how often each is in the rest: 3.348 nats. GLUE: the answer that
   most rows of dev.tsv have. */
#define BYTES 0, 3.348, "frequencies of bytes"
#define ONE_ANSWER(part, value) part, 0, "score", 1, value, "one answer for all"
const evidence_chance evidence_chances[] = {
    {"text_quick", "", 0, "loss", BYTES},
    {"generation", "shakespeare", 0, "loss", BYTES},
    {"steps", "", 0, "loss", BYTES},
    {"optimisers", "", 0, "loss", BYTES},
    {"ablation", "", 0, "loss", BYTES},
    {"cope_text", "", 0, "val", BYTES},
    {"mobius_text", "", 0, "val", BYTES},
    {"angle", "", 0, "loss", BYTES},
    {"answers", "", 1, "exact", 1, 0, "no right answer"},
    {"copy", "", 0, "loss", 0, 3.2581, "any of 26 symbols"},
    {"recall", "", 0, "loss", 0, 2.7726, "any of 16 values"},
    {"indexing", "", 0, "exact.1", 1, 0.33333, "a guess that knows letter and sign, but not how far"},
    {"indexing", "", 1, "right.2", 1, 0.33333, "a guess that knows letter and sign, but not how far"},
    {"parity", "", 0, "loss", 0, 0.69315, "odd or even by chance"},
    {"sorting", "", 0, "loss", 0, 3.4657, "any of 32 numbers"},
    {"phase_memory", "", 0, "loss", 0, 2.0794, "any of 8 items"},
    {"cope_sst2", ONE_ANSWER("sst2", 50.917)},
    {"cope_glue", ONE_ANSWER("cola", 0)},
    {"cope_glue", ONE_ANSWER("mrpc", 81.223)},
    {"cope_glue", ONE_ANSWER("stsb", 0)},
    {"cope_glue", ONE_ANSWER("rte", 52.708)},
    {"mobius_glue", ONE_ANSWER("cola", 0)},
    {"mobius_glue", ONE_ANSWER("mrpc", 81.223)},
    {"mobius_glue", ONE_ANSWER("rte", 52.708)},
    {"modulation", "any-phase", 0, "accuracy", 1, 7.6923, "one of 13 by chance"},
    {"modulation", "one-phase", 0, "accuracy", 1, 7.6923, "one of 13 by chance"},
    {"modulation", "plain", 0, "accuracy", 1, 25, "one of 4 by chance"},
    {"spoken", "", 0, "accuracy", 1, 10, "one of 10 by chance"},
    {NULL, "", 0, "", 0, 0, ""}};
