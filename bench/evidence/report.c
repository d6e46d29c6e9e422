/* report.c - the pages: README.md, METHOD.md and results/CLAIM.md, each between two marks. */
#include "program.h"

#include <math.h>
#include <stdarg.h>

static const char mark_begin[] = "<!-- rows: begin; written by build/evidence report -->\n";
static const char mark_end[] = "<!-- rows: end -->\n";

/* ---- Numbers and lines ---- */

/* How many digits behind the point show `digits` digits of a number of that size. */
static int decimals(double size, int digits) {
    if (!(size > 0) || !isfinite(size)) return 0;
    int n = digits - 1 - (int)floor(log10(size));
    if (n > 6) n = 6;
    return n > 0 ? n : 0;
}

/* A mean and its standard deviation, to two digits of the latter. */
static void put_mean(FILE *out, double mean, double deviation) {
    int n = deviation > 0 ? decimals(deviation, 2) : decimals(fabs(mean), 3);
    if (n > 4) n = 4;
    if (!isfinite(mean)) fputs("–", out);
    else fprintf(out, "%.*f (%.*f)", n, mean, n, deviation);
}

/* A difference with its interval, to three digits of the larger of the difference and half the interval. */
static void put_difference(FILE *out, const statistics_pairs *pairs) {
    double half = isnan(pairs->half) ? 0 : pairs->half;
    double size = fabs(pairs->mean) > half ? fabs(pairs->mean) : half;
    int n = decimals(size, 3);
    if (isnan(pairs->mean)) fputs("–", out);
    else fprintf(out, size > 0 ? "%+.*f" : "%.*f", n, pairs->mean);
    if (isnan(pairs->half)) return;
    fprintf(out, size > 0 ? " (%+.*f to %+.*f)" : " (%.*f to %.*f)", n, pairs->mean - half, n,
            pairs->mean + half);
}

static void put_p(FILE *out, double p) {
    if (isnan(p)) fputs("–", out);
    else if (p < 0.001) fputs("<0.001", out);
    else fprintf(out, "%.3f", p);
}

/* Writes a paragraph in lines of at most 110 columns, with an empty line behind it. */
#ifdef __GNUC__
__attribute__((format(printf, 2, 3)))
#endif
static void put_paragraph(FILE *out, const char *format, ...) {
    char text[4096];
    size_t column = 0;
    va_list words;
    va_start(words, format);
    vsnprintf(text, sizeof text, format, words);
    va_end(words);
    for (const char *at = text; *at;) {
        size_t bytes = strcspn(at, " "), wide = 0;
        for (size_t i = 0; i < bytes; i++) wide += ((unsigned char)at[i] & 0xC0) != 0x80;
        int fits = column + 1 + wide <= 110;
        if (column) putc(fits ? ' ' : '\n', out);
        column = column && fits ? column + 1 + wide : wide;
        fwrite(at, 1, bytes, out);
        at += bytes + (at[bytes] == ' ');
    }
    fputs("\n\n", out);
}

/* ---- Questions ---- */

static void put_answer(FILE *out, const evidence_question *q, const evidence_answer *a) {
    static const char *const words[] = {"not tested", "not measured yet", "baseline failed", "**holds**",
                                        "**does not hold**", "cannot be told"};
    int noise = a->verdict == ANSWER_HOLDS && a->kind->noise;
    fprintf(out, "| %s | %s | ", q->ask, noise ? "holds within noise: not shown" : words[a->verdict]);
    if (a->verdict == ANSWER_UNTESTED || a->verdict == ANSWER_UNMEASURED) {
        fputs("– | 0 | – | – |", out);
        return;
    }
    const finding *f = a->kind;
    if (strchr(q->variants, ',')) fprintf(out, "%s: ", f->variant->label);
    put_difference(out, &f->pairs);
    if (q->second) fprintf(out, " `%s`; baseline %.3g", a->all->measure, a->all->of[0].mean);
    else fprintf(out, " %s", a->all->claim->unit);
    const char *baseline = a->all->of[0].variant->label;
    if (strcmp(baseline, "RoPE") != 0) fprintf(out, ", against %s", baseline);
    if (q->claimed < 0 || q->claimed > 0)
        fprintf(out, ", claimed %+.3g", a->all->of[0].mean * q->claimed / 100);
    fprintf(out, " | %zu | ", f->n);
    int told = !a->all->failed && (f->verdict == FOUND_BETTER || f->verdict == FOUND_WORSE);
    if (!told) fputs("–", out);
    else if (q->second) fputs("not counted", out);
    else fputs(f->over_all < 0.05 ? "yes" : "no", out);
    fprintf(out, " | %s%s", a->edge ? "edge" : "", a->edge && told && f->noise ? ", " : "");
    fprintf(out, "%s |", told && f->noise ? "noise" : "");
}

/* The rows of a claim's questions, or of all with a link each. */
static int put_questions(FILE *out, const evidence_findings *e, const evidence_claim *claim, char *error) {
    fputs("| question | answer | difference (95 % interval) | seeds | over all | care |", out);
    fputs(claim ? "\n" : " page |\n", out);
    fprintf(out, "|---|---|---|---|---|---|%s\n", claim ? "" : "---|");
    for (const evidence_question *q = evidence_questions; *q->ask; q++) {
        evidence_answer a;
        if (claim && strcmp(q->claim, claim->name) != 0) continue;
        if (!findings_answer(e, q, &a, error)) return 0;
        put_answer(out, q, &a);
        if (!claim) fprintf(out, " [%s](results/%s.md) |", q->claim, q->claim);
        putc('\n', out);
    }
    putc('\n', out);
    return 1;
}

/* What stands over all tables. */
static void put_tally(FILE *out, const evidence_findings *e) {
    const tally *good = &e->count[0], *bad = &e->count[1];
    size_t compared = good->compared + bad->compared;
    put_paragraph(out, "*Over all tables:* %zu comparisons in %zu tables. Set aside, because their baseline "
                  "failed: %zu tables with %zu comparisons. Of the other %zu comparisons %zu are significant "
                  "within their table, %zu after Holm's correction over all %zu. In %zu of %zu choices of "
                  "a learning rate the best was the lowest or the highest tried.",
                  compared, good->tables + bad->tables, bad->tables, bad->compared, good->compared,
                  good->told, good->survive, compared, e->edges, e->tuned);
}

/* The rows of a claim's hypotheses, or of all with a link each. */
static void put_hypotheses(FILE *out, const evidence_findings *e, const evidence_claim *claim) {
    static const char *const words[] = {"cannot be told", "**holds**", "**does not hold**", "baseline failed",
                                        "diverged", "not measured yet"};
    fputs("| hypothesis | answer | difference (95 % interval) | p | seeds |", out);
    fputs(claim ? "\n" : " page |\n", out);
    fprintf(out, "|---|---|---|---|---|%s\n", claim ? "" : "---|");
    for (const hypothesis *h = e->primary; h < e->primary + e->n_primary; h++) {
        if (claim && strcmp(h->asked->claim, claim->name) != 0) continue;
        fprintf(out, "| %s | %s | ", h->asked->hypothesis, words[h->verdict]);
        if (!(h->kind->pairs.n > 1)) fputs("– | – | ", out);
        else {
            put_difference(out, &h->kind->pairs), fprintf(out, " %s | ", h->all->claim->unit);
            put_p(out, h->p), fputs(" | ", out);
        }
        fprintf(out, "%zu of %zu |", h->kind->n, h->all->claim->seeds);
        if (!claim) fprintf(out, " [%s](results/%s.md) |", h->asked->claim, h->asked->claim);
        putc('\n', out);
    }
    putc('\n', out);
}

/* The primary family, with a correction of its own. */
static void put_primaries(FILE *out, const evidence_findings *e) {
    if (!e->n_primary) return;
    put_paragraph(out, "**Primary:** %zu hypotheses, written down with their design before any of their "
                  "rows. p is corrected by Holm over all of them.", e->n_primary);
    put_hypotheses(out, e, NULL);
    put_paragraph(out, "**Exploratory:** everything else, asked with the rows in hand or with rates chosen "
                  "on the data that judge.");
}

/* README.md: the questions, and how to read their answers. */
static int put_overview(FILE *out, const evidence_findings *e, char *error) {
    put_primaries(out, e);
    if (!put_questions(out, e, NULL, error)) return 0;
    put_tally(out, e);
    return 1;
}

/* ---- A claim's page ---- */

/* Seeds that solve: of tasks that go all or nothing they say more than a mean. */
static size_t solved(const finding *f, const findings *all) {
    double x[MOST_SEEDS];
    size_t n = 0;
    size_t finite = findings_values(f, NULL, all->measure, x, NULL);
    for (size_t i = 0; i < finite; i++) n += x[i] >= all->claim->solved;
    return n;
}

static void put_verdict(FILE *out, const findings *all, const finding *f) {
    static const char *const words[] = {"not measured yet", "baseline", "noise floor", "**better**",
                                        "**worse**", "not told apart", "diverged", "interim"};
    int compared = f->verdict == FOUND_BETTER || f->verdict == FOUND_WORSE || f->verdict == FOUND_ALIKE;
    fputs(compared && all->failed ? "baseline failed" : words[f->verdict], out);
    if (f->noise && compared && !all->failed && f->verdict != FOUND_ALIKE) fputs("; noise", out);
    if (f->diverged) fprintf(out, ", %zu of %zu without a finite loss", f->diverged, f->n);
    if (f->n && f->n < all->claim->seeds) fprintf(out, "; %zu of %zu seeds so far", f->n, all->claim->seeds);
    if (f->n && !all->second && all->claim->solved > 0)
        fprintf(out, "; %zu of %zu at %g or more", solved(f, all), f->n, all->claim->solved);
}

static void put_row(FILE *out, const findings *all, const finding *f) {
    const evidence_row *any = NULL;
    for (size_t i = 0; i < MOST_SEEDS && !any; i++) any = f->rows[i];
    fprintf(out, "| %s (`%s`) | ", f->variant->label, f->variant->name);
    if (!any) fputs("– | – | 0 | – | – | – | – | ", out);
    else {
        fprintf(out, "%zu | %g%s | %zu | ", any->result.parameters, f->rate, f->edge ? ", edge" : "", f->n);
        put_mean(out, f->mean, f->deviation), fputs(" | ", out);
        if (f->verdict == FOUND_BASELINE) fputs("–", out);
        else put_difference(out, &f->pairs);
        fputs(" | ", out), put_p(out, f->p), fputs(" | ", out), put_p(out, f->over_all), fputs(" | ", out);
    }
    put_verdict(out, all, f), fputs(" |\n", out);
}

/* The kinds by the measure that decides, or by the second one at the same rates. */
static void put_table(FILE *out, const findings *all) {
    fprintf(out, "| | numbers | rate | seeds | `%s`", all->measure);
    if (!all->second) fprintf(out, ", %s", all->claim->unit);
    fputs(": mean (deviation) | difference (95 % interval) | p | p over all | |\n", out);
    fputs("|---|---|---|---|---|---|---|---|---|\n", out);
    for (size_t v = 0; v < all->n; v++) put_row(out, all, &all->of[v]);
    putc('\n', out);
}

/* All other measures: a line each, means and standard deviations of the kinds. */
static void put_others(FILE *out, const findings *all) {
    double x[MOST_SEEDS];
    const char *names[EVIDENCE_MEASURES * 2];
    size_t n = 0;
    for (size_t v = 0; v < all->n; v++)
        for (size_t s = 0; s < MOST_SEEDS; s++)
            for (size_t m = 0; all->of[v].rows[s] && m < all->of[v].rows[s]->result.n; m++) {
                const char *name = all->of[v].rows[s]->result.measures[m].name;
                size_t i = 0;
                while (i < n && strcmp(names[i], name) != 0) i++;
                if (i == n && n < sizeof names / sizeof *names && strcmp(name, all->claim->measure) != 0)
                    names[n++] = name;
            }
    if (!n) return;
    fputs("<details><summary>What else was measured: mean (deviation)</summary>\n\n| |", out);
    for (size_t v = 0; v < all->n; v++)
        if (all->of[v].n) fprintf(out, " `%s` |", all->of[v].variant->name);
    fputs("\n|---|", out);
    for (size_t v = 0; v < all->n; v++)
        if (all->of[v].n) fputs("---|", out);
    for (size_t i = 0; i < n; i++) {
        fprintf(out, "\n| %s |", names[i]);
        for (size_t v = 0; v < all->n; v++) {
            if (!all->of[v].n) continue;
            size_t count = findings_values(&all->of[v], NULL, names[i], x, NULL);
            putc(' ', out), put_mean(out, statistics_mean(x, count), statistics_deviation(x, count));
            fputs(" |", out);
        }
    }
    fputs("\n\n</details>\n\n", out);
}

/* ---- How soon a loss is reached ---- */

/* Of a kind and the baseline, [0] and [1]: what a run takes until the loss at which the worst run of both
   ends. 0: there are no pairs, or some of them diverged. */
typedef struct sooner {
    double loss;
    size_t n;
    double tokens[2][MOST_SEEDS], seconds[2][MOST_SEEDS];
} sooner;
static int find_sooner(const finding *kind, const finding *base, sooner *s) {
    s->loss = -INFINITY, s->n = 0;
    for (size_t i = 0; i < MOST_SEEDS; i++) {
        if (!kind->rows[i] || !base->rows[i]) continue;
        double own = rows_last_loss(kind->rows[i]), other = rows_last_loss(base->rows[i]);
        if (!isfinite(own) || !isfinite(other)) return 0;
        s->loss = fmax(s->loss, fmax(own, other));
    }
    for (size_t i = 0; i < MOST_SEEDS; i++) {
        if (!kind->rows[i] || !base->rows[i]) continue;
        for (size_t k = 0; k < 2; k++) {
            const evidence_row *row = k ? base->rows[i] : kind->rows[i];
            const evidence_result *r = &row->result;
            double share = evidence_step_at(r, s->loss) / (double)r->curve[r->points - 1].step;
            s->tokens[k][s->n] = share * r->tokens;
            s->seconds[k][s->n] = share * row->seconds;
        }
        s->n++;
    }
    return s->n > 1;
}

/* The ratio of pairs, by their logarithms. */
static void put_ratio(FILE *out, const double *of, const double *to, size_t n) {
    double x[MOST_SEEDS], y[MOST_SEEDS];
    for (size_t i = 0; i < n; i++) x[i] = log(of[i]), y[i] = log(to[i]);
    statistics_pairs pairs = statistics_paired(x, y, n);
    fprintf(out, "%.3f (%.3f to %.3f)", exp(pairs.mean), exp(pairs.mean - pairs.half),
            exp(pairs.mean + pairs.half));
}

/* Do the runs of a kind, which all do the same, say what it takes? Not where other work got in between. */
static int same_speed(const finding *f) {
    double least = INFINITY, most = 0;
    for (size_t i = 0; i < MOST_SEEDS; i++) {
        if (!f->rows[i]) continue;
        least = fmin(least, f->rows[i]->seconds);
        most = fmax(most, f->rows[i]->seconds);
    }
    return most <= 1.25 * least;
}

static void put_sooner(FILE *out, const findings *all) {
    int begun = 0;
    for (size_t v = 1; v < all->n; v++) {
        sooner s;
        if (all->of[v].floor || !find_sooner(&all->of[v], &all->of[0], &s)) continue;
        if (!begun++) {
            put_paragraph(out, "How soon (exploratory): what the runs take, in this schedule, to the loss at "
                          "which the worst run of the kind and of the baseline ends. Curves are of an eighth "
                          "of the text; ratios are to the baseline, of pairs, not corrected. Seconds stand "
                          "here if those of equal runs lie within a quarter.");
            fputs("| | loss, nats | million tokens: mean (deviation) | the baseline's | tokens: ratio "
                  "(95 % interval) | seconds: ratio (95 % interval) |\n|---|---|---|---|---|---|\n", out);
        }
        fprintf(out, "| %s (`%s`) | %.3f | ", all->of[v].variant->label, all->of[v].variant->name, s.loss);
        for (size_t k = 0; k < 2; k++) {
            double millions[MOST_SEEDS];
            for (size_t i = 0; i < s.n; i++) millions[i] = 1e-6 * s.tokens[k][i];
            put_mean(out, statistics_mean(millions, s.n), statistics_deviation(millions, s.n));
            fputs(" | ", out);
        }
        put_ratio(out, s.tokens[0], s.tokens[1], s.n), fputs(" | ", out);
        if (same_speed(&all->of[v]) && same_speed(&all->of[0]))
            put_ratio(out, s.seconds[0], s.seconds[1], s.n);
        else fputs("–", out);
        fputs(" |\n", out);
    }
    if (begun) putc('\n', out);
}

/* ---- A part of a claim's page ---- */

/* What a model reaches that has learned nothing, and whether the baseline is one. */
static void put_chance(FILE *out, const findings *all) {
    const evidence_chance *c = all->chance;
    if (!c) return;
    char of[32] = "three rates";
    if (all->claim->inside) snprintf(of, sizeof of, "%zu trials", all->trials);
    put_paragraph(out, "Chance: `%s` %.4g (%s). The baseline is no better at %zu of its %s.%s",
                  c->measure, c->value, c->what, all->trials_at_chance, of,
                  all->failed ? " **The baseline failed**: the verdicts of this table count nowhere." : "");
}

static void put_part(FILE *out, const findings *first, const findings *second) {
    const double *rates = first->claim->rates;
    size_t rows = 0;
    for (size_t v = 0; v < first->n; v++) rows += first->of[v].n;
    fprintf(out, "## %s\n\n", first->part->label);
    if (!rows) {
        fprintf(out, "Part `%s`: not measured yet.\n\n", first->part->name);
        return;
    }
    if (first->claim->inside)
        put_paragraph(out, "Part `%s`: %s is better; each kind chose a rate, of %g, %g, %g and as many "
                      "beyond as it takes until the best has a worse one on both sides%s.", first->part->name,
                      first->higher ? "more" : "less", rates[0], rates[1], rates[2],
                      first->claim->tuners ? ", on other held-out text than below" : "");
    else if (rates[1] > 0)
        put_paragraph(out, "Part `%s`: %s is better; each kind chose one of the rates %g, %g and %g.",
                      first->part->name, first->higher ? "more" : "less", rates[0], rates[1], rates[2]);
    else
        put_paragraph(out, "Part `%s`: %s is better; rate %g.", first->part->name,
                      first->higher ? "more" : "less", rates[0]);
    if (strstr(first->part->settings, "rate.times="))
        put_paragraph(out, "The models learn at a multiple of these rates, `rate.times` of the settings.");
    put_chance(out, first), put_table(out, first);
    if (findings_primary(first) && !strcmp(first->measure, "loss")) put_sooner(out, first);
    if (second->claim && second->of[0].n != second->of[0].diverged) {
        put_paragraph(out, "By `%s` (%s is better), at the same rates:", second->measure,
                      second->higher ? "more" : "less");
        put_chance(out, second), put_table(out, second);
    }
    put_others(out, first);
    put_paragraph(out, "Settings: `%s`", first->part->settings);
}

static int put_claim(FILE *out, const evidence_findings *e, const evidence_claim *claim, int has_rows,
                     int has_figure, char *error) {
    fprintf(out, "# %s\n\n", claim->title);
    put_paragraph(out, "*Claimed:* %s", claim->claimed);
    if (claim->n_parts && findings_primary(findings_of(e, claim->name, claim->parts[0].name, 0))) {
        put_hypotheses(out, e, claim);
        put_paragraph(out, "Here p is corrected over all %zu hypotheses of the primary family, verdict too; "
                      "below both are of one table.", e->n_primary);
    } else if (!put_questions(out, e, claim, error)) return 0;
    fputs("[All questions](../README.md), [how it is measured](../METHOD.md), [remarks](#remarks).\n\n", out);
    for (size_t i = 0; i < claim->n_parts; i++) {
        const char *part = claim->parts[i].name;
        put_part(out, findings_of(e, claim->name, part, 0), findings_of(e, claim->name, part, 1));
    }
    if (has_figure) fprintf(out, "![%s](../figures/%s.svg)\n\n", claim->title, claim->name);
    if (has_rows) fprintf(out, "Rows: [%s.csv](%s.csv). ", claim->name, claim->name);
    fprintf(out, "`%s run %s` makes those that are missing.\n\n", evidence_command, claim->name);
    return 1;
}

/* ---- Time ---- */

typedef struct cost { size_t rows, asked; double minutes, hours; int measured; } cost;

static cost cost_of(const evidence_table *table, const evidence_claim *claim) {
    cost c = {0, 0, claim->minutes, 0, 0};
    double sum = 0;
    for (size_t i = 0; i < table->n; i++) sum += table->rows[i].seconds;
    if (table->n) c.minutes = sum / (double)table->n / 60, c.measured = 1;
    for (size_t p = 0; p < claim->n_parts; p++)
        for (size_t v = 0; v < claim->n_variants; v++) {
            const evidence_variant *variant = &claim->variants[v];
            int own = evidence_like(claim, variant) == variant && claim->rates[1] > 0;
            c.rows += rows_seeds(table, claim, &claim->parts[p], variant), c.asked += claim->seeds;
            for (size_t slot = 0; own && slot < rows_slots(claim); slot++) {
                double rate = rows_trial(table, claim, &claim->parts[p], variant, slot);
                uint64_t seed = rows_trial_seed(claim, slot);
                if (!(rate > 0)) continue;
                c.asked++, c.rows += rows_find(table, &claim->parts[p], variant, seed, rate) != NULL;
            }
        }
    c.hours = c.minutes * (double)c.asked / 60;
    return c;
}

/* METHOD.md: rows, time and verdicts of every claim. */
static void put_counts(FILE *out, const evidence_findings *e, const evidence_claim *claim) {
    static const int asked[] = {FOUND_BETTER, FOUND_WORSE, FOUND_ALIKE, FOUND_DIVERGED, FOUND_NOTHING};
    size_t counts[5] = {0}, failed = 0;
    for (size_t i = 0; i < claim->n_parts; i++) {
        const findings *all = findings_of(e, claim->name, claim->parts[i].name, 0);
        if (all->failed) failed += all->compared;
        for (size_t v = 1; v < all->n; v++) {
            if (all->of[v].floor) continue;
            for (size_t k = all->failed ? 3 : 0; k < 5; k++) counts[k] += (int)all->of[v].verdict == asked[k];
        }
    }
    for (size_t k = 0; k < 5; k++) fprintf(out, " %zu |", counts[k]);
    fprintf(out, " %zu |\n", failed);
}

static void put_costs(FILE *out, const evidence_findings *e, const evidence_table *tables) {
    double hours = 0;
    fputs("| claim | rows | minutes a run | hours for all, one core | better | worse |", out);
    fputs(" not told apart | diverged | not measured yet | baseline failed |\n", out);
    fputs("|---|---|---|---|---|---|---|---|---|---|\n", out);
    for (size_t i = 0; evidence_claims[i]; i++) {
        const evidence_claim *claim = evidence_claims[i];
        cost c = cost_of(&tables[i], claim);
        fprintf(out, "| [%s](results/%s.md): %s%s | %zu of %zu | %.1f%s | %.1f |", claim->name, claim->name,
                claim->title, claim->quick ? " (quick)" : "", c.rows, c.asked, c.minutes,
                c.measured ? "" : " (a guess)", c.hours);
        put_counts(out, e, claim);
        hours += c.hours;
    }
    putc('\n', out);
    put_paragraph(out, "`make evidence-all` takes about %.0f hours of one core for all of them, with "
                  "`JOBS=2` half as long on two.", hours);
}

/* ---- Pages ---- */

/* Finds what stands between the marks of a page. */
static int between(char *text, const char *path, char **begin, char **end, char *error) {
    *begin = strstr(text, mark_begin);
    *end = *begin ? strstr(*begin, mark_end) : NULL;
    if (!*end) return evidence_fail(error, "%s lacks the marks of its tables: %.40s", path, mark_begin);
    *begin += sizeof mark_begin - 1;
    return 1;
}

/* A page as it is, ended by a 0; where there is none and `make` is set, the marks alone. */
static char *load_page(const char *path, int make, char *error) {
    char *text;
    size_t n;
    if (make && access(path, F_OK)) {
        size_t room = sizeof mark_begin + sizeof mark_end;
        text = (char *)malloc(room);
        if (text) snprintf(text, room, "%s%s", mark_begin, mark_end);
        else evidence_fail(error, "no memory for %s", path);
        return text;
    }
    if (!text_read(path, (size_t)1 << 26, &text, &n, error)) return NULL;
    char *ended = (char *)realloc(text, n + 1);
    if (!ended) return free(text), evidence_fail(error, "no memory for %s", path), NULL;
    ended[n] = 0;
    return ended;
}

static int save_page(const char *path, const char *before, size_t n_before, const char *report, size_t bytes,
                     const char *after, char *error) {
    int mode, bad;
    char name[1200], *target = text_replaced(path, &mode);
    FILE *file = target ? text_own_file(target, name, sizeof name, mode) : NULL;
    bad = !file;
    if (file) {
        bad |= fwrite(before, 1, n_before, file) != n_before || fwrite(report, 1, bytes, file) != bytes;
        bad |= fputs(after, file) < 0;
        bad |= fclose(file) != 0;
        bad = bad || !text_replace(name, target);
        if (bad) (void)remove(name);
    }
    free(target);
    return bad ? evidence_fail(error, "cannot write %s", path) : 1;
}

/* The number of the line where two texts part. */
static size_t line_apart(const char *a, size_t n, const char *b, size_t m) {
    size_t line = 1;
    for (size_t i = 0; i < n && i < m && a[i] == b[i]; i++) line += a[i] == '\n';
    return line;
}

/* Puts a text between the marks of a page, or compares it with the one that is there. */
static int put_page(const char *path, const char *report, size_t bytes, int compare, char *error) {
    char *begin, *end, *page = load_page(path, !compare, error);
    int done = page && between(page, path, &begin, &end, error);
    if (done && compare && ((size_t)(end - begin) != bytes || memcmp(begin, report, bytes) != 0)) {
        size_t above = 1;
        for (const char *s = page; s < begin; s++) above += *s == '\n';
        above += line_apart(begin, (size_t)(end - begin), report, bytes) - 1;
        done = evidence_fail(error, "%s, line %zu is not what the rows say; build/evidence report writes it",
                             path, above);
    }
    if (done && !compare) done = save_page(path, page, (size_t)(begin - page), report, bytes, end, error);
    free(page);
    return done;
}

/* What a page is written from: of README.md and METHOD.md no claim. */
typedef struct report_page { const evidence_claim *claim; int method, has_rows, has_figure; } report_page;

static int write_page(const report_page *page, const evidence_findings *e, const evidence_table *tables,
                      const char *path, int compare, char *error) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    int done = out ? 1 : evidence_fail(error, "no memory for the report");
    if (done && page->claim) done = put_claim(out, e, page->claim, page->has_rows, page->has_figure, error);
    else if (done && page->method) put_costs(out, e, tables);
    else if (done) done = put_overview(out, e, error);
    if (out && fclose(out) && done) done = evidence_fail(error, "no memory for the report");
    done = done && put_page(path, text, bytes, compare, error);
    free(text);
    return done;
}

int report_write(const evidence_table *tables, const char *folder, int compare, char *error) {
    static const report_page overview = {NULL, 0, 0, 0}, method = {NULL, 1, 0, 0};
    char path[1100];
    evidence_findings e;
    if (!findings_open(&e, tables, error)) return 0;
    snprintf(path, sizeof path, "%s/README.md", folder);
    int done = write_page(&overview, &e, tables, path, compare, error);
    snprintf(path, sizeof path, "%s/METHOD.md", folder);
    done = done && write_page(&method, &e, tables, path, compare, error);
    for (size_t i = 0; done && evidence_claims[i]; i++) {
        report_page page = {evidence_claims[i], 0, tables[i].n > 0, 0};
        const findings *parts = findings_of(&e, page.claim->name, page.claim->parts->name, 0);
        snprintf(path, sizeof path, "%s/results/%s.md", folder, page.claim->name);
        done = figures_put(page.claim, parts, folder, compare, &page.has_figure, error) &&
               write_page(&page, &e, tables, path, compare, error);
    }
    findings_close(&e);
    return done;
}
