/* tasks.c - six tasks of which everything is known: the answer is in the input, an oracle finds it, chance
   finds it rarely. So a kind of attention can learn them at a size or cannot, and seeds do not hide which.
   All kinds of a row see the same samples, drawn anew at each step; an input decides by its hash whether it
   is trained on or kept, so no held-out sample was ever seen.

   How sizes were chosen: by a few trials with seed 0 at the middle rate, mostly of RoPE alone, so that it
   solves 10 to 90 % of the samples of the trained length in 10 to 90 seconds of one core. Of indexing and
   phase_memory PoPE, ComplexFormer and others were seen as well before the sizes stood. Where RoPE learns all
   tried sizes at once, the largest stays and the part says so. The further parts change one thing of the
   first, length or width, whatever comes of it. indexing is the paper's own task, scaled down. */
#include "evidence.h"
#include "tasks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const size_t task_factors[TASK_FACTORS] = {1, 2, 4};

/* ---- The tasks ---- */

static int32_t one_of(cmha_rng *rng, size_t n) { return (int32_t)cmha_rng_below(rng, n); }

/* Draws n different numbers below `symbols`. */
static void draw_distinct(cmha_rng *rng, size_t symbols, size_t n, int32_t *out) {
    for (size_t i = 0; i < n; i++) {
        size_t j;
        out[i] = one_of(rng, symbols);
        for (j = 0; j < i && out[j] != out[i]; j++) {}
        i -= j < i; /* again */
    }
}

/* x1 .. xn | x1 .. xn: say it again. Symbols may repeat. */
static size_t draw_copy(const task_size *size, size_t n, cmha_rng *rng, int32_t *ids, int32_t *targets) {
    for (size_t i = 0; i < n; i++) ids[i] = targets[n + i] = one_of(rng, size->symbols);
    ids[n] = (int32_t)size->symbols;
    memcpy(ids + n + 1, ids, (n - 1) * sizeof *ids);
    return 2 * n;
}

/* Multi-query associative recall (Arora et al. 2023, arXiv 2312.04927): n keys, each followed by its value;
   then every key once more in one of 2 n slots, two tokens apart, near slots likelier by their power law,
   slot^(0.01 - 1). There its value has to be said. Elsewhere stands a token for nothing. */
static size_t draw_recall(const task_size *size, size_t n, cmha_rng *rng, int32_t *ids, int32_t *targets) {
    size_t slots = 2 * n, tokens = 2 * n + 2 * slots;
    int32_t nothing = (int32_t)(2 * size->symbols);
    draw_distinct(rng, size->symbols, n, ids + 2 * n); /* the keys, until they have their place */
    for (size_t i = 0; i < n; i++) ids[2 * i] = ids[2 * n + i];
    for (size_t t = 2 * n; t < tokens; t++) ids[t] = nothing;
    for (size_t i = 0; i < n; i++) {
        double free = 0, at;
        size_t slot = 0, last = 0;
        for (size_t s = 0; s < slots; s++)
            if (ids[2 * n + 2 * s] == nothing) free += pow((double)(s + 1), 0.01 - 1);
        at = free * cmha_rng_uniform(rng);
        for (; slot < slots && at >= 0; slot++)
            if (ids[2 * n + 2 * slot] == nothing) at -= pow((double)(slot + 1), 0.01 - 1), last = slot;
        ids[2 * i + 1] = (int32_t)size->symbols + one_of(rng, size->symbols);
        ids[2 * n + 2 * last] = ids[2 * i];
        targets[2 * n + 2 * last] = ids[2 * i + 1];
    }
    return tokens;
}

/* Indirect indexing (PoPE, arXiv 2509.10534, section 4 and appendix A.1): n different letters, a comma, one
   of them, a comma, a shift with its sign, a comma; the letter that stands so far to the right of it (+) or
   to the left (-) has to be said, and nothing else. The paper: 20 to 40 of 52 letters, shifts of up to 15.
   Ours: a shift is drawn evenly from those that stay within the string; 0 is one and written +0. */
static size_t draw_indexing(const task_size *size, size_t n, cmha_rng *rng, int32_t *ids, int32_t *targets) {
    int32_t comma = (int32_t)size->symbols, plus = comma + 1, minus = comma + 2, zero = comma + 3;
    size_t source = (size_t)cmha_rng_below(rng, n), left = source, right = n - 1 - source, far, t = n;
    if (left > size->reach) left = size->reach;
    if (right > size->reach) right = size->reach;
    far = (size_t)cmha_rng_below(rng, left + right + 1); /* the target's place, from the leftmost on */
    draw_distinct(rng, size->symbols, n, ids);
    ids[t++] = comma, ids[t++] = ids[source], ids[t++] = comma;
    ids[t++] = far < left ? minus : plus;
    int32_t shift = (int32_t)(far < left ? left - far : far - left);
    if (shift > 9) ids[t++] = zero + shift / 10;
    ids[t++] = zero + shift % 10, ids[t++] = comma;
    targets[t - 1] = ids[source - left + far];
    return t;
}

/* A start, then bits; at each one whether the ones so far are odd. Without the start, kinds that know
   distances alone would give 1, 11 and 111 the same state. */
static size_t draw_parity(const task_size *size, size_t n, cmha_rng *rng, int32_t *ids, int32_t *targets) {
    int32_t odd = 0;
    (void)size;
    ids[0] = 2;
    for (size_t i = 1; i <= n; i++) ids[i] = one_of(rng, 2), targets[i] = odd ^= ids[i];
    return n + 1;
}

static int by_value(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* x1 .. xn | the same in rising order. Numbers may repeat. */
static size_t draw_sorting(const task_size *size, size_t n, cmha_rng *rng, int32_t *ids, int32_t *targets) {
    for (size_t i = 0; i < n; i++) ids[i] = targets[n + i] = one_of(rng, size->symbols);
    qsort(targets + n, n, sizeof *targets, by_value);
    ids[n] = (int32_t)size->symbols;
    memcpy(ids + n + 1, targets + n, (n - 1) * sizeof *ids);
    return 2 * n;
}

/* Does an earlier item of `ids`, now at t, wait for the number `at`? See draw_phase. */
static int is_taken(const task_size *size, const int32_t *ids, size_t t, int64_t at) {
    int32_t items = (int32_t)(size->symbols * size->phases);
    for (size_t s = t; s-- > 0 && (int64_t)s >= at;)
        if (ids[s] < items && (int64_t)s - ids[s] / (int32_t)size->symbols == at) return 1;
    return 0;
}

/* Phase memory, which is ours. An item is one token, a symbol with a phase a = 0 .. phases - 1; from then on
   its phase grows by one a token, as a hand turns. A query, one token as well, names a phase r = 1 .. reach:
   the symbol of the item whose phase has become r has to be said; there is exactly one. So what is found is
   where three phases cancel, the query's, the key's and that of the distance, as in e^(i (delta theta + b + m
   w)) of ComplexFormer: content has to move position, the very thing that indexing suffers from. A token is a
   query with probability 1/2 where something can be asked for; the last one always is. */
static size_t draw_phase(const task_size *size, size_t n, cmha_rng *rng, int32_t *ids, int32_t *targets) {
    int32_t symbols = (int32_t)size->symbols, items = symbols * (int32_t)size->phases;
    for (size_t t = 0; t < n; t++) {
        size_t choices = 0, choice;
        int query = cmha_rng_below(rng, 2) || t + 1 == n;
        for (size_t r = 1; query && r <= size->reach; r++)
            choices += (size_t)is_taken(size, ids, t, (int64_t)t - (int64_t)r);
        query = choices > 0;
        for (size_t a = 0; !query && a < size->phases; a++)
            choices += !is_taken(size, ids, t, (int64_t)t - (int64_t)a);
        choice = (size_t)cmha_rng_below(rng, choices);
        for (size_t r = query ? 1 : 0;; r++) {
            if (is_taken(size, ids, t, (int64_t)t - (int64_t)r) != query || choice--) continue;
            ids[t] = query ? items + (int32_t)r - 1 : one_of(rng, size->symbols) + symbols * (int32_t)r;
            for (size_t s = t; query && s-- > 0;)
                if (ids[s] < items && s + r == t + (size_t)(ids[s] / symbols)) targets[t] = ids[s] % symbols;
            break;
        }
    }
    return n;
}

static const task tasks[] = { /* name, vocabulary, tokens, smallest, distinct */
    {"copy", 1, 0, 1, 2, 0, 1, 0, draw_copy},
    {"recall", 2, 0, 1, 6, 0, 1, 1, draw_recall},
    {"indexing", 1, 0, 13, 1, 7, 1, 1, draw_indexing},
    {"parity", 0, 0, 3, 1, 1, 1, 0, draw_parity},
    {"sorting", 1, 0, 1, 2, 0, 1, 0, draw_sorting},
    {"phase_memory", 1, 1, 0, 1, 0, 2, 0, draw_phase}};

const task *task_named(const char *name) {
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++)
        if (!strcmp(tasks[i].name, name)) return &tasks[i];
    return NULL;
}

/* ---- Samples and batches ---- */

size_t task_vocabulary(const task *t, const task_size *size) {
    size_t items = size->symbols * (size->phases ? size->phases : 1);
    return t->per_symbol * items + t->per_reach * size->reach + t->more;
}

size_t task_tokens(const task *t, size_t n) { return t->per_size * n + t->ends; }

const char *task_wrong(const task *t, const task_size *size, size_t f) {
    enum { LARGEST = 1 << 16 };
    int digits = t->draw == draw_indexing;
    if (size->most > LARGEST || size->symbols > LARGEST || size->reach > LARGEST ||
        size->phases > LARGEST / (size->symbols ? size->symbols : 1)) return "a size is too large";
    if (size->least < t->smallest || size->tested < t->smallest) return "a size is too small";
    if (size->least > size->most || size->tested > size->most) return "task.most is less than another size";
    if (t->per_symbol && !size->symbols) return "task.symbols is 0";
    if (t->per_reach && (!size->phases || size->reach < size->phases))
        return "task.phases is 0 or more than task.reach";
    if (digits && size->reach > 99) return "task.reach has more than two digits";
    return t->distinct && f * size->most > size->symbols ? "task.symbols are too few" : NULL;
}

/* Is this input kept from training? FNV-1a over its numbers. */
static int is_held_out(const int32_t *ids, size_t n) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) hash = (hash ^ (uint64_t)(uint32_t)ids[i]) * 0x100000001b3u;
    return (hash ^ hash >> 32) % TASK_HELD_OUT == 0;
}

size_t task_sample(const task *t, const task_size *size, uint64_t seed, size_t f, uint64_t index,
                   int32_t *ids, int32_t *targets) {
    size_t least = f ? f * size->tested : size->least, most = f ? f * size->most : size->most;
    cmha_rng rng = cmha_rng_make(seed ^ 0x7461736b73u, index * 8 + f);
    for (int tries = 0; tries < 1000; tries++) {
        size_t n = least + (size_t)cmha_rng_below(&rng, most - least + 1), tokens;
        for (size_t i = 0; i < task_tokens(t, n); i++) targets[i] = -1;
        tokens = t->draw(size, n, &rng, ids, targets);
        if (is_held_out(ids, tokens) == (f > 0)) return tokens;
    }
    return 0;
}

size_t task_batch(const task *t, const task_size *size, uint64_t seed, size_t f, uint64_t first, size_t rows,
                  int32_t *ids, int32_t *targets, unsigned char *mask) {
    size_t room = task_tokens(t, (f ? f : 1) * size->most), length = 0;
    for (size_t row = 0; row < rows; row++) {
        size_t tokens = task_sample(t, size, seed, f, first + row, ids + row * room, targets + row * room);
        if (!tokens) return 0;
        for (size_t i = 0; i < room; i++) mask[row * room + i] = i < tokens;
        for (size_t i = tokens; i < room; i++) ids[row * room + i] = 0, targets[row * room + i] = -1;
        if (tokens > length) length = tokens;
    }
    for (size_t row = 0; row < rows; row++) { /* closer together, in place */
        memmove(ids + row * length, ids + row * room, length * sizeof *ids);
        memmove(targets + row * length, targets + row * room, length * sizeof *targets);
        memmove(mask + row * length, mask + row * room, length);
    }
    return length;
}

/* ---- Training and measuring ---- */

/* What a run has open. Zeroed, then closed whole by close_all, wherever it ended. */
typedef struct trial {
    const evidence_run *run;
    const task *task;
    task_size size;
    cmha_context ctx;
    cmha_model_config config;
    cmha_trainer_config schedule;
    cmha_model model;
    cmha_trainer trainer;
    size_t samples; /* of each test */
    double paired;  /* share of the numbers that start as the baseline's */
    int32_t *ids, *targets;
    unsigned char *mask;
    cmha_real *logits;
} trial;

static void close_all(trial *t) {
    cmha_trainer_close(&t->trainer);
    cmha_model_close(&t->model);
    cmha_context_close(&t->ctx);
    free(t->ids), free(t->targets), free(t->mask), free(t->logits);
}

static int failed(const trial *t) { return evidence_fail(t->run->error, "%s", cmha_error(&t->ctx)); }

/* Reads a word task.NAME of the settings, a whole number. */
static int size_word(const evidence_run *run, const char *name, size_t otherwise, size_t *value) {
    double number = evidence_number(run, name, (double)otherwise);
    *value = number >= 0 && number <= 1e9 ? (size_t)number : 0;
    return (number >= 0 && number <= 1e9 && floor(number) >= number) ||
           evidence_fail(run->error, "%s is no whole number", name);
}

static int find_size(trial *t) {
    const evidence_run *run = t->run;
    task_size *s = &t->size;
    const char *wrong;
    if (!size_word(run, "task.most", 0, &s->most) || !size_word(run, "task.least", s->most, &s->least) ||
        !size_word(run, "task.tested", s->most, &s->tested) || !size_word(run, "task.reach", 0, &s->reach) ||
        !size_word(run, "task.symbols", 0, &s->symbols) || !size_word(run, "task.phases", 0, &s->phases))
        return 0;
    if (!size_word(run, "task.samples", 512, &t->samples)) return 0;
    wrong = !t->samples ? "task.samples is 0" : task_wrong(t->task, s, 1);
    return !wrong || evidence_fail(run->error, "%s/%s: %s", run->claim->name, run->part->name, wrong);
}

/* Counts a model's numbers without a table of positions, whose length is that of the longest test. */
static double numbers_of(trial *t, cmha_model_config config) {
    size_t bytes = 0;
    config.max_positions = 1;
    cmha_model_memory(&t->ctx, &config, 1, 1, &bytes, NULL);
    return (double)(bytes / sizeof(cmha_real));
}

/* Kinds with more numbers in their attention get a narrower feed-forward layer, those with fewer (CRAT's) a
   wider one, so that all have as many as the baseline; differences of less than 2 % stay. One that has too
   many even so (Möbius heads in one layer) keeps its width: the column `parameters` shows it. */
static int equal_numbers(trial *t) {
    evidence_run base = *t->run;
    cmha_model_config c, wider = t->config;
    double have = numbers_of(t, t->config), want, width;
    base.variant = &t->run->claim->variants[0];
    if (!evidence_configure(&base, &t->ctx, &c, NULL)) return 0;
    c.vocabulary = t->config.vocabulary;
    want = numbers_of(t, c);
    wider.d_ff += 64;
    width = (double)t->config.d_ff + 64 * (want - have) / (numbers_of(t, wider) - have);
    if (!(have > 0) || !(want > 0)) return failed(t);
    if (fabs(have - want) < 0.02 * want) return 1;
    if (width >= 2 && width <= 1048576)
        t->config.d_ff = 2 * (size_t)(width / 2 + 0.5); /* complex layers have half as many */
    return 1;
}

/* Takes room for the longest batch, of training or of the tests. */
static int take_room(trial *t) {
    size_t n = t->schedule.batch * task_tokens(t->task, task_factors[TASK_FACTORS - 1] * t->size.most);
    t->ids = malloc(n * sizeof *t->ids), t->targets = malloc(n * sizeof *t->targets), t->mask = malloc(n);
    t->logits = malloc(n * t->config.vocabulary * sizeof *t->logits);
    return (t->ids && t->targets && t->mask && t->logits) || evidence_fail(t->run->error, "no memory");
}

static int open_all(trial *t) {
    if (!t->task) return evidence_fail(t->run->error, "%s is no task", t->run->claim->name);
    if (!evidence_open(t->run, &t->ctx) || !evidence_configure(t->run, &t->ctx, &t->config, &t->schedule) ||
        !find_size(t)) return 0;
    t->config.vocabulary = task_vocabulary(t->task, &t->size);
    t->config.max_positions = task_tokens(t->task, task_factors[TASK_FACTORS - 1] * t->size.most);
    t->schedule.length = task_tokens(t->task, t->size.most);
    if (!equal_numbers(t) || !take_room(t) ||
        !evidence_start(t->run, &t->ctx, &t->config, &t->model, &t->paired)) return 0;
    return !cmha_trainer_init(&t->trainer, &t->model, &t->schedule) || failed(t);
}

/* Draws a batch into the trial's room. */
static int draw(trial *t, size_t f, uint64_t first, size_t rows, cmha_batch *batch) {
    memset(batch, 0, sizeof *batch);
    batch->length = task_batch(t->task, &t->size, t->run->seed, f, first, rows, t->ids, t->targets, t->mask);
    batch->ids = t->ids, batch->targets = t->targets, batch->key_mask = t->mask, batch->batch = rows;
    return batch->length || evidence_fail(t->run->error, "%s/%s: there are too few different inputs",
                                          t->run->claim->name, t->run->part->name);
}

/* Trains; the curve has the mean training loss between its points. A run that diverges (ten steps in a row
   not finite) ends there, with the parameters it had. */
static int train(trial *t, evidence_result *result) {
    size_t steps = t->schedule.steps, rows = t->schedule.batch, every = (steps + 31) / 32, bad = 0, sums = 0;
    double loss, sum = 0;
    for (size_t step = 0; step < steps && bad < 10; step++) {
        cmha_batch batch;
        if (!draw(t, 0, step * rows, rows, &batch)) return 0;
        cmha_status status = cmha_trainer_step_batch(&t->trainer, &batch, &loss);
        bad = status == CMHA_ERR_NOT_FINITE ? bad + 1 : 0;
        if (status && !bad) return failed(t);
        for (size_t i = 0; i < rows * batch.length; i++) result->tokens += t->mask[i];
        if (!bad) sum += loss, sums++;
        if (((step + 1) % every && step + 1 < steps) || !sums) continue;
        evidence_point(result, step + 1, sum / (double)sums);
        if (step + 1 == steps) evidence_add(result, "loss", sum / (double)sums);
        sum = 0, sums = 0;
    }
    evidence_add(result, "steps", (double)(t->trainer.step - bad));
    evidence_add(result, "paired", t->paired);
    result->parameters = t->model.parameters.learning;
    return 1;
}

static int32_t likeliest(const cmha_real *logits, size_t n) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return (int32_t)best;
}

/* Counts answers and right ones, of a row's tokens. */
static void mark_row(const trial *t, size_t row, size_t length, size_t *asked, size_t *right) {
    size_t V = t->config.vocabulary;
    *asked = *right = 0;
    for (size_t i = row * length; i < (row + 1) * length; i++)
        if (t->targets[i] >= 0) ++*asked, *right += likeliest(t->logits + i * V, V) == t->targets[i];
}

/* Measures held-out samples of f times the length: exact.f, the share of which every answer is right, and
   right.f, the share of right answers. Each is asked for after the right ones before it, so exact is what
   greedy decoding would reach. */
static int test(trial *t, size_t f, evidence_result *result) {
    size_t rows = t->schedule.batch, samples = (t->samples + rows - 1) / rows * rows; /* whole batches */
    size_t asked = 0, right = 0, exact = 0, a, r;
    char name[32];
    if (task_wrong(t->task, &t->size, f)) return 1; /* no symbols for such lengths */
    for (size_t first = 0; first < samples; first += rows) {
        cmha_batch batch;
        if (!draw(t, f, first, rows, &batch)) return 0;
        if (cmha_model_logits(&t->model, &batch, t->logits)) return failed(t);
        for (size_t row = 0; row < rows; row++)
            mark_row(t, row, batch.length, &a, &r), asked += a, right += r, exact += a == r;
    }
    snprintf(name, sizeof name, "exact.%zu", f), evidence_add(result, name, (double)exact / (double)samples);
    snprintf(name, sizeof name, "right.%zu", f), evidence_add(result, name, (double)right / (double)asked);
    return 1;
}

static int run_task(const evidence_run *run, evidence_result *result) {
    trial t;
    memset(&t, 0, sizeof t);
    t.run = run, t.task = task_named(run->claim->name);
    int ok = open_all(&t) && train(&t, result);
    for (size_t i = 0; i < TASK_FACTORS && ok; i++) ok = test(&t, task_factors[i], result);
    close_all(&t);
    return ok;
}

/* ---- Claims ---- */

static const evidence_variant kinds[] = {
    {"rope", "RoPE", "kind=rope"},
    FLOOR("rope", "RoPE"),
    {"learned", "learned positions", "kind=dot+learned"},
    {"alibi", "ALiBi", "kind=alibi"},
    {"cmha", "ComplexFormer, δ from 1", "kind=cmha delta_init=rope_start"},
    {"cmha-0", "ComplexFormer, δ from near 0", "kind=cmha delta_init=paper"},
    {"pope", "PoPE", "kind=pope"},
    {"ropepp", "RoPE++", "kind=ropepp"},
    {"angular", "CRAT's angular attention", "kind=angular"},
    {"cope-phase", "CoPE, phase", "kind=cope-phase"},
    {"cope-magnitude", "CoPE, magnitude", "kind=cope-magnitude"},
    {"mobius", "MöbiusAttention in half of the heads", "kind=mobius"}};

/* All tasks: weights start with a spread of 0.1, near 1 / sqrt(width); the usual 0.02, of wider models, keeps
   recall on its first plateau. Batches of 32; the rate falls along a cosine. */
#define TWO_LAYERS \
    "n_layers=2 n_heads=4 d_model=64 d_ff=128 init_std=0.1 trainer.batch=32 trainer.weight_decay=0.01 "
#define CLAIM(name, title, claimed, parts, minutes, inside) \
    const evidence_claim evidence_claim_##name = { \
        #name, title, claimed, parts, LENGTH(parts), kinds, LENGTH(kinds), "exact.1", "of samples solved", \
        1, 5, {1e-3, 3e-3, 1e-2}, run_task, minutes, 0, "right.2", 1, 0.5, inside, 0};

static const evidence_part copy_parts[] = {
    {"24", "1 to 24 of 26 symbols, width 64",
     TWO_LAYERS "trainer.steps=800 task.symbols=26 task.least=1 task.most=24"},
    {"24-narrow", "1 to 24 symbols, width 32",
     TWO_LAYERS "d_model=32 d_ff=64 trainer.steps=800 task.symbols=26 task.least=1 task.most=24"}};
CLAIM(copy, "Copy", "Ours: says a string again. Trained on every length up to the one named, tested there, "
      "at twice and at four times that.", copy_parts, 0.2, 1)

static const evidence_part recall_parts[] = {
    {"4", "4 pairs, 16 keys and 16 values, width 64",
     TWO_LAYERS "trainer.steps=3000 task.symbols=16 task.most=4"}};
CLAIM(recall, "Multi-query associative recall", "Arora et al. 2023 (arXiv 2312.04927): attention of two "
      "layers solves it at every width they tried, gated convolutions need more width for longer "
      "texts.", recall_parts, 0.4, 1)

static const evidence_part indexing_parts[] = {
    {"10", "6 to 10 of 40 letters, shifts to 3, width 64",
     TWO_LAYERS "n_layers=3 trainer.steps=5000 task.symbols=40 task.least=6 task.tested=6 task.most=10 "
                "task.reach=3"}};
CLAIM(indexing, "Indirect indexing", "PoPE (arXiv 2509.10534, table 1): 94.82 % for PoPE, 11.16 % for RoPE, "
      "with 20 to 40 letters, shifts to 15, 8 layers of width 512, 100,000 steps of 64; here scaled down.",
      indexing_parts, 0.6, 0)

static const evidence_part parity_parts[] = {
    {"16", "16 bits, width 64", TWO_LAYERS "trainer.steps=2000 task.most=16"},
    {"16-narrow", "16 bits, width 32", TWO_LAYERS "d_model=32 d_ff=64 trainer.steps=2000 task.most=16"}};
CLAIM(parity, "Parity", "Ours: at every bit after a start, whether the ones so far are odd.", parity_parts,
      0.2, 1)

static const evidence_part sorting_parts[] = {
    {"16", "1 to 16 numbers below 32, width 64",
     TWO_LAYERS "trainer.steps=1500 task.symbols=32 task.least=1 task.most=16"},
    {"16-narrow", "1 to 16 numbers, width 32",
     TWO_LAYERS "d_model=32 d_ff=64 trainer.steps=1500 task.symbols=32 task.least=1 task.most=16"}};
CLAIM(sorting, "Sorting", "Ours: says numbers again in rising order; they may repeat.", sorting_parts, 0.2,
      1)

static const evidence_part phase_memory_parts[] = {
    {"64", "64 tokens, 32 phases, 64 asked for, one layer of width 16",
     "n_layers=1 n_heads=2 d_model=16 d_ff=32 init_std=0.1 trainer.batch=32 trainer.weight_decay=0.01 "
     "trainer.steps=1000 task.symbols=8 task.phases=32 task.reach=64 task.most=64"}};
CLAIM(phase_memory, "Phase memory", "Ours, for what ComplexFormer's eq 7 adds up: content moves position. "
      "An item's phase grows by one a token; asked for is the item whose phase is now the one named.",
      phase_memory_parts, 0.2, 1)
