/* findings.c - what the rows say: verdicts of kinds, of questions, and over all tables together. */
#include "program.h"

#include <math.h>

size_t findings_values(const finding *f, const finding *other, const char *measure, double *x, double *y) {
    size_t n = 0;
    for (size_t i = 0; i < MOST_SEEDS; i++) {
        if (!f->rows[i] || (other && !other->rows[i])) continue;
        double value = rows_measure(f->rows[i], measure);
        double beside = other ? rows_measure(other->rows[i], measure) : 0;
        if (!isfinite(value) || !isfinite(beside)) continue;
        x[n] = value;
        if (other) y[n] = beside;
        n++;
    }
    return n;
}

/* ---- A part's kinds ---- */

/* Collects a variant's rows at its chosen rate. */
static void collect(finding *f, const findings *all, const evidence_table *table,
                    const evidence_variant *variant) {
    double x[MOST_SEEDS];
    size_t most = findings_primary(all) ? all->claim->seeds : MOST_SEEDS; /* it was asked of so many */
    f->variant = variant, f->floor = evidence_like(all->claim, variant) != variant;
    f->rate = rows_rate(table, all->claim, all->part, variant);
    for (size_t i = 0; f->rate > 0 && i < most; i++) {
        f->rows[i] = rows_find(table, all->part, variant, i + 1, f->rate);
        f->n += f->rows[i] != NULL;
    }
    int edge = f->n ? rows_edge(table, all->claim, all->part, variant) : -1;
    f->tuned = edge >= 0, f->edge = edge > 0;
    size_t finite = findings_values(f, NULL, all->measure, x, NULL);
    f->diverged = f->n - finite;
    f->mean = statistics_mean(x, finite), f->deviation = statistics_deviation(x, finite);
}

/* Compares with the baseline, corrects within the table, and judges. */
static void judge(findings *all) {
    double x[MOST_SEEDS], y[MOST_SEEDS], p[MOST_VARIANTS];
    size_t who[MOST_VARIANTS];
    size_t least = findings_primary(all) ? all->claim->seeds : 0; /* a look before has no p */
    for (size_t v = 0; v < all->n; v++) {
        finding *f = &all->of[v];
        f->verdict = f->n < least || all->of[0].n < least ? FOUND_INTERIM : FOUND_ALIKE;
        if (f->diverged) f->verdict = FOUND_DIVERGED;
        if (f->floor) f->verdict = FOUND_FLOOR;
        if (v == 0) f->verdict = FOUND_BASELINE;
        if (!f->n) f->verdict = FOUND_NOTHING;
        size_t n = v ? findings_values(f, &all->of[0], all->measure, x, y) : 0;
        f->pairs = statistics_paired(x, y, n), f->p = f->over_all = NAN;
        if (f->verdict == FOUND_ALIKE && n > 1) p[all->compared] = f->pairs.p, who[all->compared++] = v;
    }
    statistics_holm(p, all->compared);
    for (size_t i = 0; i < all->compared; i++) {
        finding *f = &all->of[who[i]];
        f->p = p[i];
        if (p[i] < 0.05) f->verdict = (f->pairs.mean > 0) == all->higher ? FOUND_BETTER : FOUND_WORSE;
    }
}

/* Is a kind's difference no larger than one that the baseline has from itself? */
static void find_noise(findings *all) {
    for (size_t v = 1; v < all->n; v++)
        for (size_t w = 1; w < all->n; w++)
            if (all->of[w].floor && statistics_within(&all->of[v].pairs, &all->of[w].pairs))
                all->of[v].noise = !all->of[v].floor;
}

/* ---- Baselines that failed ---- */

/* A baseline failed that is at chance on average at the rate that it chose, or at two of its three rates. In
   a grid that goes on, rates where nothing is learned are only its ends. */
static void find_failure(findings *all, const evidence_table *table) {
    const evidence_claim *claim = all->claim;
    double x[MOST_SEEDS];
    const evidence_chance *c = rows_chance(claim, all->part, all->second);
    all->chance = c;
    if (!c) return;
    for (size_t slot = 0; slot < rows_slots(claim); slot++) {
        double rate = rows_trial(table, claim, all->part, claim->variants, slot);
        uint64_t seed = rows_trial_seed(claim, slot);
        const evidence_row *row = rate > 0 ? rows_find(table, all->part, claim->variants, seed, rate) : NULL;
        all->trials += row != NULL;
        if (row && rows_at_chance(c, rows_measure(row, c->measure))) all->trials_at_chance++;
    }
    size_t n = findings_values(&all->of[0], NULL, c->measure, x, NULL);
    int nowhere = !claim->inside && all->trials_at_chance > 1;
    all->failed = n && (nowhere || rows_at_chance(c, statistics_mean(x, n)));
}

/* Judges a part by the measure that decides, or by the claim's second. */
static void find_out(findings *all, const evidence_table *table, const evidence_claim *claim,
                     const evidence_part *part, int second) {
    memset(all, 0, sizeof *all);
    all->claim = claim, all->part = part, all->second = second;
    all->measure = second ? claim->also : claim->measure;
    all->higher = second ? claim->also_higher : claim->higher;
    for (size_t v = 0; v < claim->n_variants && v < MOST_VARIANTS; v++)
        collect(&all->of[all->n++], all, table, &claim->variants[v]);
    judge(all);
    find_noise(all);
    find_failure(all, table);
}

/* ---- All tables together ---- */

int findings_primary(const findings *all) {
    for (const evidence_primary *q = evidence_primaries; *q->hypothesis; q++)
        if (!strcmp(q->claim, all->claim->name)) return 1;
    return 0;
}

/* Corrects the p of every comparison by Holm over all tables, and counts. */
static int find_over_all(evidence_findings *e) {
    size_t n = 0;
    for (size_t t = 0; t < e->n; t++) n += findings_primary(&e->first[t]) ? 0 : e->first[t].compared;
    double *p = (double *)malloc((n + 1) * sizeof *p);
    if (!p) return 0;
    for (size_t t = 0, i = 0; t < e->n; t++)
        for (size_t v = 0; !findings_primary(&e->first[t]) && v < e->first[t].n; v++)
            if (!isnan(e->first[t].of[v].p)) p[i++] = e->first[t].of[v].pairs.p;
    statistics_holm(p, n);
    for (size_t t = 0, i = 0; t < e->n; t++)
        for (size_t v = 0; !findings_primary(&e->first[t]) && v < e->first[t].n; v++) {
            finding *f = &e->first[t].of[v];
            if (!isnan(f->p)) f->over_all = p[i++];
        }
    free(p);
    return 1;
}

static void count_findings(evidence_findings *e) {
    for (size_t t = 0; t < e->n; t++) {
        const findings *all = &e->first[t];
        if (findings_primary(all)) continue;
        tally *c = &e->count[all->failed];
        c->tables += all->compared > 0;
        for (size_t v = 0; v < all->n; v++) {
            const finding *f = &all->of[v];
            if (f->floor) continue;
            e->tuned += f->tuned != 0;
            e->edges += f->edge != 0;
            if (isnan(f->p)) continue;
            c->compared++;
            if (f->verdict != FOUND_ALIKE) c->told++;
            if (f->over_all < 0.05) c->survive++;
        }
    }
}

void findings_close(evidence_findings *e) { free(e->first), free(e->second), memset(e, 0, sizeof *e); }

/* ---- The primary family ---- */

static const finding *kind_named(const findings *all, const char *name, size_t n) {
    for (size_t v = 0; v < all->n; v++) {
        const char *its = all->of[v].variant->name;
        if (strlen(its) == n && !strncmp(its, name, n)) return &all->of[v];
    }
    return NULL;
}

/* Is every seed there, of the kind and of its baseline? */
static int is_whole(const hypothesis *h) {
    return h->kind->n == h->all->claim->seeds && h->all->of[0].n == h->all->claim->seeds;
}

/* p that a kind is not ahead, of two sides; with a margin that it is further behind, of one side. */
static double primary_p(const hypothesis *h) {
    const statistics_pairs *pairs = &h->kind->pairs;
    double behind = h->all->higher ? -pairs->mean : pairs->mean, margin = h->asked->margin;
    if (!(margin > 0)) return pairs->p;
    if (!(pairs->half > 0)) return behind < margin ? 0 : 1;
    double freedom = (double)pairs->n - 1, error = pairs->half / statistics_t_quantile(0.05, freedom);
    double beyond = statistics_t_tail((behind - margin) / error, freedom) / 2;
    return behind < margin ? beyond : 1 - beyond;
}

static void judge_primary(hypothesis *h) {
    const statistics_pairs *pairs = &h->kind->pairs;
    double behind = h->all->higher ? -pairs->mean : pairs->mean, margin = h->asked->margin;
    h->verdict = PRIMARY_OPEN;
    if (!is_whole(h)) h->verdict = PRIMARY_UNMEASURED;
    else if (h->all->failed) h->verdict = PRIMARY_FAILED;
    else if (pairs->n < h->all->claim->seeds) h->verdict = PRIMARY_DIVERGED;
    else if (behind < margin && h->p < 0.05) h->verdict = PRIMARY_HOLDS;
    else if (behind - pairs->half > margin) h->verdict = PRIMARY_NOT;
}

/* Corrects by Holm over the family; what is not measured yet counts as p = 1. */
static int find_primaries(evidence_findings *e, char *error) {
    double p[MOST_PRIMARY];
    for (const evidence_primary *q = evidence_primaries; *q->hypothesis; q++) {
        if (e->n_primary == MOST_PRIMARY) return evidence_fail(error, "too many primary hypotheses");
        hypothesis *h = &e->primary[e->n_primary];
        h->asked = q, h->all = findings_of(e, q->claim, q->part, 0);
        h->kind = h->all ? kind_named(h->all, q->variant, strlen(q->variant)) : NULL;
        if (!h->kind) return evidence_fail(error, "no table has %s %s %s", q->claim, q->part, q->variant);
        int whole = is_whole(h) && h->kind->pairs.n == h->all->claim->seeds;
        p[e->n_primary++] = whole && !h->all->failed ? primary_p(h) : 1;
    }
    statistics_holm(p, e->n_primary);
    for (size_t i = 0; i < e->n_primary; i++) {
        hypothesis *h = &e->primary[i];
        int whole = is_whole(h) && h->kind->pairs.n == h->all->claim->seeds;
        h->p = whole && !h->all->failed ? p[i] : NAN;
        judge_primary(h);
    }
    return 1;
}

int findings_open(evidence_findings *e, const evidence_table *tables, char *error) {
    size_t n = 0, t = 0;
    memset(e, 0, sizeof *e);
    for (size_t i = 0; evidence_claims[i]; i++) n += evidence_claims[i]->n_parts;
    e->first = (findings *)calloc(n + 1, sizeof *e->first);
    e->second = (findings *)calloc(n + 1, sizeof *e->second);
    if (!e->first || !e->second) {
        findings_close(e);
        return evidence_fail(error, "no memory for the report");
    }
    for (size_t i = 0; evidence_claims[i]; i++)
        for (size_t k = 0; k < evidence_claims[i]->n_parts; k++, t++) {
            const evidence_claim *claim = evidence_claims[i];
            find_out(&e->first[t], &tables[i], claim, &claim->parts[k], 0);
            if (claim->also) find_out(&e->second[t], &tables[i], claim, &claim->parts[k], 1);
        }
    e->n = n;
    if (!find_over_all(e)) {
        findings_close(e);
        return evidence_fail(error, "no memory for the report");
    }
    count_findings(e);
    if (find_primaries(e, error)) return 1;
    findings_close(e);
    return 0;
}

const findings *findings_of(const evidence_findings *e, const char *claim, const char *part, int second) {
    for (size_t t = 0; t < e->n; t++)
        if (!strcmp(e->first[t].claim->name, claim) && !strcmp(e->first[t].part->name, part))
            return second ? &e->second[t] : &e->first[t];
    return NULL;
}

/* ---- Questions ---- */

/* Of the kinds that a question names the one that is farthest ahead in the direction that is asked for. */
static int choose_kind(const evidence_question *q, evidence_answer *a, char *error) {
    int up = q->worse ? !a->all->higher : a->all->higher;
    for (const char *at = q->variants; *at; at += *at == ',') {
        size_t n = strcspn(at, ",");
        const finding *f = kind_named(a->all, at, n);
        if (!f)
            return evidence_fail(error, "%s has no kind %.*s: \"%s\"", q->claim, (int)n, at, q->ask);
        double ahead = a->kind ? f->pairs.mean - a->kind->pairs.mean : 1;
        if (!a->kind || (up ? ahead > 0 : ahead < 0)) a->kind = f;
        at += n;
    }
    return 1;
}

int findings_answer(const evidence_findings *e, const evidence_question *q, evidence_answer *a, char *error) {
    memset(a, 0, sizeof *a);
    a->verdict = ANSWER_UNTESTED;
    if (!*q->variants) return 1;
    a->all = findings_of(e, q->claim, q->part, q->second);
    if (!a->all) return evidence_fail(error, "\"%s\" asks for no table: %s %s", q->ask, q->claim, q->part);
    if (!choose_kind(q, a, error)) return 0;
    const finding *f = a->kind, *base = &a->all->of[0];
    double claimed = q->claimed / 100 * base->mean;
    a->outside = q->claimed < 0 || q->claimed > 0;
    if (a->outside) a->outside = fabs(claimed - f->pairs.mean) > f->pairs.half;
    a->edge = f->edge || base->edge;
    if (!f->n || !base->n) a->verdict = ANSWER_UNMEASURED;
    else if (a->all->failed) a->verdict = ANSWER_BASE_FAILED;
    else if (f->verdict == (q->worse ? FOUND_WORSE : FOUND_BETTER)) a->verdict = ANSWER_HOLDS;
    else if (f->verdict != FOUND_ALIKE || a->outside) a->verdict = ANSWER_NOT;
    else a->verdict = ANSWER_OPEN;
    return 1;
}
