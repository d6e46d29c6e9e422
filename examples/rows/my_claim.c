/* A claim of one's own, about the rows of my_rows.c (bench/evidence/OWN.md says what its lines mean):
       make evidence CLAIM=examples/rows/my_claim.c ROWS=examples/rows/my_rows.c */
#include "bench/evidence/evidence.h"

static const evidence_part parts[] = {
    {"header", "cmha.h, bytes",
     "text.file=cmha.h n_layers=1 d_model=32 n_heads=2 d_ff=64 trainer.steps=150 trainer.batch=8 "
     "trainer.length=64 trainer.eval_tokens=8192"}};
static const evidence_variant variants[] = {
    {"rope", "RoPE", "kind=rope"},
    {"re-tanh", "Re A tanh of the modulus", "kind=rope score=re-tanh"},
    {"gated", "gated layers", "kind=rope score=gated"},
    FLOOR("rope", "RoPE")};
const evidence_claim evidence_claim_my_claim = {
    "my_claim", "Is my score better than RoPE?", "Ours: re-tanh lowers the loss of a small model.",
    parts, LENGTH(parts), variants, LENGTH(variants), "loss", "nats a byte", 0, 5, {1.5e-3, 3e-3, 6e-3},
    evidence_text_run, 0.05, 1, NULL, 0, 0, 0, 0};

const evidence_question evidence_questions[] = {
    {"Is re-tanh better than RoPE?", "my_claim", "header", "re-tanh", 0, 0, 0}, {"", "", "", "", 0, 0, 0}};
const evidence_chance evidence_chances[] = {{NULL, "", 0, "", 0, 0, ""}};
