/* The tasks of bench/evidence: an oracle that reads the input alone finds every answer, equal seeds give
   equal batches, no input is both trained on and held out, every kind runs, and what is easy is learned. */
#include "check.h"

#include "../bench/evidence/runs.c"
#include "../bench/evidence/tasks.c"

/* No run keeps its state here. */
int rows_origin(FILE *file, const evidence_run *run) { return (void)file, (void)run, 0; }

enum { ROOM = 1024 };

/* ---- Oracles: what has to be said at t, of ids[0 .. t] alone; -1: nothing ---- */

static int32_t say_copy(const task_size *size, const int32_t *ids, size_t t) {
    for (size_t n = 0; n <= t; n++)
        if (ids[n] == (int32_t)size->symbols) return ids[t - n];
    return -1;
}

static int32_t say_recall(const task_size *size, const int32_t *ids, size_t t) {
    int32_t symbols = (int32_t)size->symbols;
    if (ids[t] >= symbols) return -1;
    for (size_t i = 0; i + 1 < t; i++)
        if (ids[i] == ids[t] && ids[i + 1] >= symbols && ids[i + 1] < 2 * symbols) return ids[i + 1];
    return -1;
}

static int32_t say_indexing(const task_size *size, const int32_t *ids, size_t t) {
    int32_t comma = (int32_t)size->symbols;
    size_t n = 0, at = 0, commas = 0, shift = 0;
    for (size_t i = 0; i <= t; i++) commas += ids[i] == comma;
    if (commas < 3 || ids[t] != comma) return -1;
    while (ids[n] != comma) n++;
    while (ids[at] != ids[n + 1]) at++;
    for (size_t i = n + 4; i < t; i++) shift = shift * 10 + (size_t)(ids[i] - comma - 3);
    if (!CHECK(shift <= size->reach && (ids[n + 3] == comma + 1 ? at + shift < n : shift && at >= shift)))
        return -1;
    return ids[ids[n + 3] == comma + 1 ? at + shift : at - shift];
}

static int32_t say_parity(const task_size *size, const int32_t *ids, size_t t) {
    int32_t ones = 0;
    (void)size;
    if (!t) return -1;
    for (size_t i = 1; i <= t; i++) ones += ids[i];
    return ones % 2;
}

/* The k-th smallest: as many are less than it as k, or fewer, and as many are not more as k + 1, or more. */
static int32_t say_sorting(const task_size *size, const int32_t *ids, size_t t) {
    size_t n = 0;
    while (n <= t && ids[n] != (int32_t)size->symbols) n++;
    for (int32_t x = 0; n <= t && x < (int32_t)size->symbols; x++) {
        size_t upto = 0;
        for (size_t i = 0; i < n; i++) upto += ids[i] <= x;
        if (upto > t - n) return x;
    }
    return -1;
}

static int32_t say_phase(const task_size *size, const int32_t *ids, size_t t) {
    int32_t items = (int32_t)(size->symbols * size->phases), answer = -1, found = 0;
    if (ids[t] < items) return -1;
    for (size_t s = 0; s < t; s++) {
        int32_t phase = ids[s] / (int32_t)size->symbols + (int32_t)(t - s);
        if (ids[s] < items && phase == ids[t] - items + 1) answer = ids[s] % (int32_t)size->symbols, found++;
    }
    CHECK_THAT(found == 1, "%d items have that phase", (int)found);
    return answer;
}

static const struct {
    const char *name;
    task_size size, edge; /* a usual one, the smallest */
    int32_t (*say)(const task_size *size, const int32_t *ids, size_t t);
} rows[] = {
    {"copy", {1, 9, 9, 5, 0, 0}, {1, 1, 1, 1, 0, 0}, say_copy},
    {"recall", {1, 5, 5, 20, 0, 0}, {1, 1, 1, 1, 0, 0}, say_recall},
    {"indexing", {6, 13, 6, 52, 12, 0}, {1, 1, 1, 1, 0, 0}, say_indexing},
    {"parity", {2, 24, 24, 0, 0, 0}, {1, 1, 1, 0, 0, 0}, say_parity},
    {"sorting", {1, 9, 9, 7, 0, 0}, {1, 1, 1, 1, 0, 0}, say_sorting},
    {"phase_memory", {2, 30, 30, 4, 12, 5}, {2, 2, 2, 1, 1, 1}, say_phase}};
enum { ROWS = sizeof rows / sizeof *rows };

/* Draws samples and lets the oracle answer; returns how many there were. */
static size_t solve(const task *t, const task_size *size, size_t row, size_t f) {
    int32_t ids[ROOM], targets[ROOM];
    size_t least = f ? f * size->tested : size->least, most = f ? f * size->most : size->most, drawn = 0;
    size_t shortest = ROOM, longest = 0;
    for (uint64_t index = 0; index < 300; index++) {
        size_t tokens = task_sample(t, size, 7, f, index, ids, targets), asked = 0;
        drawn += tokens > 0;
        if (tokens && tokens < shortest) shortest = tokens;
        if (tokens > longest) longest = tokens;
        for (size_t i = 0; i < tokens; i++) {
            CHECK(ids[i] >= 0 && (size_t)ids[i] < task_vocabulary(t, size));
            CHECK_THAT(targets[i] == rows[row].say(size, ids, i), "%s x %zu, sample %zu: at %zu of %zu",
                       t->name, f, (size_t)index, i, tokens);
            asked += targets[i] >= 0;
        }
        CHECK(!tokens || asked);
    }
    if (drawn == 300)
        CHECK_THAT(longest <= task_tokens(t, most) && longest + t->ends >= task_tokens(t, most) &&
                   shortest <= task_tokens(t, least), "%s x %zu has %zu to %zu tokens", t->name, f, shortest,
                   longest);
    return drawn;
}

static void solved(void) {
    for (size_t row = 0; row < ROWS; row++) {
        const task *t = task_named(rows[row].name);
        if (!CHECK(t != NULL)) continue;
        for (size_t f = 0; f <= 4; f += f ? f : 1) {
            CHECK(!task_wrong(t, &rows[row].size, f ? f : 1));
            CHECK(solve(t, &rows[row].size, row, f) == 300);
            if (!task_wrong(t, &rows[row].edge, f ? f : 1)) solve(t, &rows[row].edge, row, f);
        }
    }
    CHECK(!task_named("nothing"));
}

/* No input is on both sides, of a task with few enough of them that free draws would meet at once. */
static void disjoint(void) {
    enum { DRAWS = 400 };
    static const task_size six = {6, 6, 6, 0, 0, 0};
    static int32_t ids[2][DRAWS][8], targets[8];
    const task *t = task_named("parity");
    size_t both = 0, again = 0;
    for (size_t i = 0; i < DRAWS; i++)
        for (size_t f = 0; f < 2; f++) CHECK(task_sample(t, &six, 3, f, i, ids[f][i], targets) == 7);
    for (size_t i = 0; i < DRAWS; i++)
        for (size_t j = 0; j < DRAWS; j++) {
            both += !memcmp(ids[0][i], ids[1][j], 7 * sizeof **ids[0]);
            again += i != j && !memcmp(ids[0][i], ids[0][j], 7 * sizeof **ids[0]);
        }
    CHECK(both == 0 && again > 0);
    static const task_size one = {1, 1, 1, 0, 0, 0}; /* two inputs: each is of one side */
    for (size_t f = 0; f < 2; f++)
        for (size_t i = 0; i < 20; i++)
            if (task_sample(t, &one, 3, f, i, ids[f][0], targets))
                CHECK(is_held_out(ids[f][0], 2) == (f > 0));
}

static void batches(void) {
    static int32_t ids[3][4 * ROOM], targets[3][4 * ROOM], row_ids[ROOM], row_targets[ROOM];
    static unsigned char mask[3][4 * ROOM];
    for (size_t row = 0; row < ROWS; row++) {
        const task *t = task_named(rows[row].name);
        size_t n[3];
        for (uint64_t i = 0; i < 3; i++)
            n[i] = task_batch(t, &rows[row].size, 5 + i / 2, 0, 8, 4, ids[i], targets[i], mask[i]);
        CHECK(n[0] && n[0] == n[1] && !memcmp(mask[0], mask[1], 4 * n[0]));
        CHECK(!memcmp(ids[0], ids[1], 4 * n[0] * sizeof **ids));
        CHECK(!memcmp(targets[0], targets[1], 4 * n[0] * sizeof **targets));
        CHECK(n[2] != n[0] || memcmp(ids[0], ids[2], 4 * n[0] * sizeof **ids) != 0);
        for (size_t b = 0; b < 4; b++) { /* a batch's rows are the samples of their numbers */
            size_t tokens = task_sample(t, &rows[row].size, 5, 0, 8 + b, row_ids, row_targets);
            for (size_t i = 0; i < n[0]; i++) {
                CHECK(mask[0][b * n[0] + i] == (i < tokens));
                CHECK(ids[0][b * n[0] + i] == (i < tokens ? row_ids[i] : 0));
                CHECK(targets[0][b * n[0] + i] == (i < tokens ? row_targets[i] : -1));
            }
        }
    }
}

static void wrong(void) {
    static const struct {
        const char *name;
        task_size size;
        size_t f;
    } bad[] = {
        {"copy", {0, 3, 3, 5, 0, 0}, 1}, {"copy", {1, 3, 0, 5, 0, 0}, 1}, {"copy", {4, 3, 3, 5, 0, 0}, 1},
        {"copy", {1, 3, 4, 5, 0, 0}, 1}, {"copy", {1, 3, 3, 0, 0, 0}, 1}, {"recall", {1, 6, 6, 5, 0, 0}, 1},
        {"recall", {1, 5, 5, 9, 0, 0}, 2}, {"indexing", {1, 5, 5, 9, 100, 0}, 1},
        {"phase_memory", {1, 5, 5, 2, 4, 2}, 1}, {"phase_memory", {2, 5, 5, 2, 4, 5}, 1},
        {"phase_memory", {2, 5, 5, 2, 4, 0}, 1}, {"phase_memory", {2, 5, 5, 65536, 65536, 65536}, 1},
        {"copy", {1, 1 << 20, 1, 5, 0, 0}, 1}, {"parity", {0, 0, 0, 0, 0, 0}, 1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_THAT(task_wrong(task_named(bad[i].name), &bad[i].size, bad[i].f) != NULL, "%s, row %zu",
                   bad[i].name, i);
}

/* ---- Runs ---- */

static char line[EVIDENCE_ERROR];

static int perform(const evidence_claim *claim, const char *settings, const char *variant, double rate,
                   evidence_result *result) {
    evidence_part part = {"small", "", settings};
    evidence_claim small = *claim;
    evidence_run run;
    memset(&run, 0, sizeof run), memset(result, 0, sizeof *result);
    small.parts = &part, small.n_parts = 1;
    run.claim = &small, run.part = &part, run.variant = claim->variants, run.error = line;
    while (strcmp(run.variant->name, variant) != 0) run.variant++;
    run.seed = 1, run.rate = rate, run.threads = 1;
    return claim->run(&run, result);
}

static double value_of(const evidence_result *result, const char *name) {
    for (size_t i = 0; i < result->n; i++)
        if (!strcmp(result->measures[i].name, name)) return result->measures[i].value;
    return NAN;
}

#define SMALL "n_layers=2 d_model=32 n_heads=4 d_ff=64 trainer.steps=4 trainer.batch=3 task.samples=6 "
static const struct { const evidence_claim *claim; const char *size; int longer; } small[] = {
    {&evidence_claim_copy, SMALL "task.symbols=5 task.least=1 task.most=3", 1},
    {&evidence_claim_recall, SMALL "task.symbols=8 task.most=2", 1},
    {&evidence_claim_indexing, SMALL "task.symbols=9 task.least=3 task.most=4 task.tested=3 task.reach=2", 0},
    {&evidence_claim_parity, SMALL "task.most=12", 1},
    {&evidence_claim_sorting, SMALL "task.symbols=5 task.least=1 task.most=3", 1},
    {&evidence_claim_phase_memory, SMALL "task.symbols=3 task.phases=2 task.reach=4 task.most=6", 1}};

/* What must hold of any run, beside the baseline's. */
static void sound(const char *name, const evidence_result *result, const evidence_result *base, int longer) {
    double exact = value_of(result, "exact.1"), right = value_of(result, "right.1");
    double share = (double)result->parameters / (double)base->parameters;
    CHECK_THAT(exact >= 0 && exact <= right && right <= 1, "%s: %g, %g", name, exact, right);
    CHECK(isfinite(value_of(result, "loss")) && value_of(result, "steps") > 3 && result->points == 4);
    CHECK(isfinite(value_of(result, "exact.2")) && longer == !!isfinite(value_of(result, "right.4")));
    CHECK(result->tokens >= base->tokens && result->tokens <= base->tokens); /* the same samples */
    /* these two have tables of positions */
    CHECK_THAT((share > 0.97 && share < 1.03) || !strcmp(name, "learned") || !strcmp(name, "mobius"),
               "%s: %zu parameters, %zu", name, result->parameters, base->parameters);
}

static void every_kind(void) {
    evidence_result result, base;
    for (size_t c = 0; c < sizeof small / sizeof *small; c++)
        for (size_t v = 0; v < small[c].claim->n_variants; v++) {
            const char *name = small[c].claim->variants[v].name;
            int done = perform(small[c].claim, small[c].size, name, 1e-3, &result);
            if (!CHECK_THAT(done, "%s %s: %s", small[c].claim->name, name, line)) continue;
            if (!v) base = result;
            sound(name, &result, &base, small[c].longer);
        }
}

/* What is easy is learned, and not without learning; the same run gives the same numbers. */
static void learned(void) {
    static const char *const easy = "n_layers=1 d_model=32 n_heads=2 d_ff=32 init_std=0.1 trainer.batch=32 "
                                    "trainer.steps=300 task.samples=64 task.symbols=4 task.phases=2 "
                                    "task.reach=4 task.most=12";
    evidence_result a, b;
    CHECK(perform(&evidence_claim_phase_memory, easy, "rope", 1e-2, &a) && value_of(&a, "exact.1") > 0.9);
    CHECK(a.curve[a.points - 1].loss < 0.2 && a.curve[a.points - 1].step == 300);
    CHECK(perform(&evidence_claim_phase_memory, easy, "rope", 1e-2, &b) && !memcmp(&a, &b, sizeof a));
    CHECK(perform(&evidence_claim_phase_memory, easy, "rope", 0, &a) && value_of(&a, "exact.1") < 0.1);
}

static void refused(void) {
    evidence_result result;
    CHECK(!perform(&evidence_claim_copy, SMALL "task.symbols=5", "rope", 1e-3, &result) &&
          strstr(line, "small"));
    CHECK(!perform(&evidence_claim_copy, SMALL "task.symbols=5 task.most=1.5", "rope", 1e-3, &result) &&
          strstr(line, "task.most"));
    CHECK(!perform(&evidence_claim_copy, SMALL "task.symbols=5 task.most=-1", "rope", 1e-3, &result));
    CHECK(!perform(&evidence_claim_copy, SMALL "task.symbols=5 task.most=3 no=1", "rope", 1e-3, &result));
    CHECK(!perform(&evidence_claim_copy, SMALL "task.symbols=5 task.most=3 task.samples=0", "rope", 1e-3,
                   &result) && strstr(line, "task.samples"));
    /* no room to make its layer narrower: it runs as it is */
    CHECK(perform(&evidence_claim_copy, SMALL "task.symbols=5 task.most=3 d_ff=2", "ropepp", 1e-3, &result));
    CHECK(!perform(&evidence_claim_recall, SMALL "task.symbols=3 task.most=4", "rope", 1e-3, &result));
    CHECK(!perform(&evidence_claim_recall, SMALL "task.symbols=1 task.most=1", "rope", 1e-3, &result) &&
          strstr(line, "too few"));
}

int main(void) {
    solved();
    disjoint();
    batches();
    wrong();
    every_kind();
    learned();
    refused();
    return check_end();
}
