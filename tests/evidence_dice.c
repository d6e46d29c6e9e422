/* evidence_dice.c - a claim for tests/evidence.sh, in the place of those of bench/evidence: its runs train
   nothing, take a few milliseconds and leave numbers that depend on seed, rate and variant alone. */
#include "../bench/evidence/evidence.h"

#include <math.h>
#include <string.h>
#include <time.h>

static int dice_run(const evidence_run *run, evidence_result *result) {
    double gain = evidence_number(run, "dice.gain", 0);
    double spread = evidence_number(run, "dice.spread", 0.01);
    double ms = evidence_number(run, "dice.ms", 4), bad = evidence_number(run, "dice.bad", 0);
    cmha_rng shared = cmha_rng_make(run->seed, 0);
    cmha_rng own = cmha_rng_make(run->seed, 1 + (uint64_t)(1e6 * fabs(gain)));
    struct timespec pause = {0, (long)(1e6 * ms)};
    nanosleep(&pause, NULL);
    if (evidence_number(run, "dice.fails", 0) > 0) return evidence_fail(run->error, "the dice are lost");
    double far = log(run->rate / evidence_number(run, "dice.best", 3e-3));
    double value = 1.5 + 0.02 * cmha_rng_normal(&shared) + gain + 0.1 * far * far;
    value += spread * cmha_rng_normal(&own) + 1e-4 * (run->threads - 1);
    if (bad > 0 && run->seed == (uint64_t)bad) value = NAN;
    if (run->rate > evidence_number(run, "dice.most", 1e9)) value = NAN;
    if (run->rate > evidence_number(run, "dice.idle", 1e9)) value = 4 - run->rate;
    if (run->trial) value += evidence_number(run, "dice.trial", 0);
    /* of no rate better than of another, but for the loss */
    int flat = evidence_number(run, "dice.flat", 0) > 0;
    if (flat) value = run->seed ? value - 0.1 * far * far : 1.5;
    far = flat ? -far : 0;
    for (size_t step = 10; step <= 50; step += 10)
        evidence_point(result, step, value + 2.0 / (double)step + 0.1 * far);
    result->parameters = 1000, result->tokens = 12345;
    return evidence_add(result, "value", value) && evidence_add(result, "twice.value", 2 * value);
}

static const evidence_part parts[] = {
    {"small", "small dice", "dice.ms=3"},
    {"large", "large, \"heavy\" dice, with a comma", "dice.spread=0.001"}};
static const evidence_variant variants[] = {
    {"even", "even dice", "kind=rope"},
    {"even-again", "even dice, other seeds", "like=even reseed=1000"},
    {"even-threads", "even dice, two threads", "like=even threads=2"},
    {"heavy", "heavy dice", "kind=cmha dice.gain=0.05"},
    {"light", "light dice", "kind=cmha dice.gain=-0.05"},
    {"alike", "dice with a mark", "kind=alibi dice.gain=0.0001 dice.mark=red,blue"},
    {"flat", "flat dice", "kind=pope dice.flat=1"},
    {"broken", "broken dice", "kind=dot dice.gain=0.002 dice.bad=3"}};
const evidence_claim evidence_claim_dice = {
    "dice", "Dice", "Dice are claimed to be even.", parts, 2, variants, 8, "value", "points", 0, 6,
    {1e-3, 3e-3, 1e-2}, dice_run, 0.0001, 1, "twice.value", 0, 1.5, 0, 0};

/* Rates that go on until the best has a worse one on both sides; trials are of a text of their own. */
static const evidence_part grid_parts[] = {{"grid", "dice of many rates", "dice.spread=0.001 dice.trial=1"}};
static const evidence_variant grid_variants[] = {
    {"middle", "best in the middle", "kind=rope dice.best=2e-3"},
    {"lower", "best four rates lower", "kind=cmha dice.best=2e-4"},
    {"higher", "best three rates higher", "kind=alibi dice.best=3.3e-2 dice.gain=-0.01"},
    {"falls", "falls at all three rates", "kind=pope dice.best=1e-3 dice.most=6e-4"},
    {"idle", "learns nothing at all three rates", "kind=dot dice.best=5e-4 dice.idle=7e-4"},
    {"never", "learns nothing at any rate", "kind=dot dice.idle=1e-9"},
    {"again", "middle, other seeds", "like=middle reseed=1000"}};
const evidence_claim evidence_claim_grid = {
    "grid", "Dice of many rates", "Dice are claimed to like their rates.", grid_parts, 1, grid_variants, 7,
    "value", "points", 0, 4, {1e-3, 2e-3, 4e-3}, dice_run, 0.0001, 1, NULL, 0, 0, 1, 2};

/* A run that calls itself a long one, though it trains, twice, for a tenth of a second. */
static int train_run(const evidence_run *run, evidence_result *result) {
    enum { BYTES = 4096 };
    static uint8_t bytes[BYTES];
    cmha_context ctx;
    cmha_model model;
    cmha_trainer trainer;
    cmha_model_config m;
    cmha_trainer_config t;
    double loss = NAN, paired;
    memset(&ctx, 0, sizeof ctx), memset(&model, 0, sizeof model), memset(&trainer, 0, sizeof trainer);
    for (size_t i = 0; i < BYTES; i++) bytes[i] = (uint8_t)(i * i % 251);
    cmha_tokens text = {0};
    text.data = bytes, text.count = BYTES, text.width = 1;
    int done = evidence_open(run, &ctx) && evidence_configure(run, &ctx, &m, &t) &&
               evidence_start(run, &ctx, &m, &model, &paired) && !cmha_trainer_init(&trainer, &model, &t) &&
               evidence_train(run, &trainer, &text, &text, result, &loss) &&
               evidence_add(result, "first", loss);
    cmha_trainer_close(&trainer), t.steps = 100;
    done = done && !cmha_trainer_init(&trainer, &model, &t) &&
           evidence_train(run, &trainer, &text, &text, result, &loss) && evidence_add(result, "value", loss);
    cmha_trainer_close(&trainer), cmha_model_close(&model), cmha_context_close(&ctx);
    return done;
}
static const evidence_part long_parts[] = {
    {"long", "a long run",
     "n_layers=1 d_model=16 n_heads=2 d_ff=32 trainer.batch=2 trainer.length=16 trainer.steps=800 "
     "trainer.eval_tokens=512"}};
static const evidence_variant long_variants[] = {
    {"rope", "RoPE", "kind=rope"}, {"cmha", "ComplexFormer", "kind=cmha delta_init=rope_start"}};
const evidence_claim evidence_claim_long = {
    "long", "A long run", "Runs are claimed to go on.", long_parts, 1, long_variants, 2, "value", "nats", 0,
    3, {3e-3}, train_run, EVIDENCE_LONG, 0, NULL, 0, 0, 0, 0};

const evidence_question evidence_questions[] = {
    {"Are light dice light?", "dice", "large", "light", 0, 0, 0},
    {"Are heavy dice light?", "dice", "small", "heavy", 0, 0, 0},
    {"Are heavy dice heavy?", "dice", "small", "heavy", 0, 1, 0},
    {"Are heavy dice heavier by a hundredth?", "dice", "small", "heavy", 1, 1, 1},
    {"Is any kind lighter?", "dice", "small", "alike,heavy,light", 0, 0, 0},
    {"Are dice with a mark lighter?", "dice", "small", "alike", 0, 0, 0},
    {"Are dice with a mark lighter by half?", "dice", "small", "alike", 1, 0, -50},
    {"Do broken dice fall?", "dice", "small", "broken", 0, 0, 0},
    {"Are square dice even?", "dice", "small", "", 0, 0, 0},
    {"", "", "", "", 0, 0, 0}};
const evidence_primary evidence_primaries[] = {
    {"Higher rates are lower", "grid", "grid", "higher", 0},
    {"Low rates are lower", "grid", "grid", "lower", 0},
    {"Low rates are at most a hundredth higher", "grid", "grid", "lower", 0.01},
    {"Dice that fell are at most a hundredth higher", "grid", "grid", "falls", 0.01},
    {"Idle dice are lower", "grid", "grid", "idle", 0},
    {"", "", "", "", 0}};
/* Even dice fall 1.5 on average: by these numbers they fail in one part and not in the other. */
const evidence_chance evidence_chances[] = {
    {"dice", "small", 0, "value", 0, 5, "dice that nobody throws"},
    {"dice", "large", 0, "value", 0, 1.5, "even dice"},
    {"grid", "", 0, "value", 0, 4, "dice that learn nothing"},
    {NULL, "", 0, "", 0, 0, ""}};
