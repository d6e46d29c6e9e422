/* report.c - what the rows say: the tables of README.md between two marks, and the figures. */
#include "program.h"

#include "../../examples/tools/drawing.h"

#include <math.h>

static const char mark_begin[] = "<!-- rows: begin; written by build/evidence report -->\n";
static const char mark_end[] = "<!-- rows: end -->\n";

enum { MOST_VARIANTS = 64, MOST_SEEDS = 64 };

/* ---- What a part's rows say of a variant ---- */

typedef struct finding {
    const evidence_variant *variant;
    int floor;                  /* it only shows how far runs of the same kind lie apart */
    double rate;                /* 0: not chosen yet */
    size_t n, diverged;         /* seeds measured; those without a finite number */
    double mean, deviation;     /* of the measure */
    statistics_pairs pairs;     /* with the baseline, of the seeds that both have */
    double p;                   /* corrected */
    enum { NOTHING, BASELINE, FLOOR, BETTER, WORSE, ALIKE, DIVERGED } verdict;
    const evidence_row *rows[MOST_SEEDS]; /* of seed i + 1, or NULL */
} finding;

typedef struct findings {
    const evidence_claim *claim;
    const evidence_part *part;
    const char *measure;        /* the claim's, or the second one */
    int higher;
    size_t n, compared;         /* variants; p-values that were corrected together */
    finding of[MOST_VARIANTS];
} findings;

/* The values of a measure for seeds that the variant and, if it is given, the other have. */
static size_t values_of(const finding *f, const finding *other, const char *measure, double *x, double *y) {
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

/* Collects a variant's rows at its chosen rate. */
static void collect(finding *f, const findings *all, const evidence_table *table,
                    const evidence_variant *variant) {
    double x[MOST_SEEDS];
    memset(f, 0, sizeof *f);
    f->variant = variant, f->floor = evidence_like(all->claim, variant) != variant;
    f->rate = rows_rate(table, all->claim, all->part, variant);
    for (size_t i = 0; f->rate > 0 && i < MOST_SEEDS; i++) {
        f->rows[i] = rows_find(table, all->part, variant, i + 1, f->rate);
        f->n += f->rows[i] != NULL;
    }
    size_t finite = values_of(f, NULL, all->measure, x, NULL);
    f->diverged = f->n - finite;
    f->mean = statistics_mean(x, finite), f->deviation = statistics_deviation(x, finite);
}

/* Compares with the baseline, corrects, and judges: by the measure that decides, or by the claim's second. */
static void find_out(findings *all, const evidence_table *table, const evidence_claim *claim,
                     const evidence_part *part, int second) {
    double x[MOST_SEEDS], y[MOST_SEEDS], p[MOST_VARIANTS];
    size_t who[MOST_VARIANTS];
    memset(all, 0, sizeof *all);
    all->claim = claim, all->part = part;
    all->measure = second ? claim->also : claim->measure;
    all->higher = second ? claim->also_higher : claim->higher;
    for (size_t v = 0; v < claim->n_variants && v < MOST_VARIANTS; v++)
        collect(&all->of[all->n++], all, table, &claim->variants[v]);
    for (size_t v = 0; v < all->n; v++) {
        finding *f = &all->of[v];
        f->verdict = !f->n ? NOTHING : v == 0 ? BASELINE : f->floor ? FLOOR : f->diverged ? DIVERGED : ALIKE;
        size_t n = v ? values_of(f, &all->of[0], all->measure, x, y) : 0;
        f->pairs = statistics_paired(x, y, n), f->p = NAN;
        if (f->verdict == ALIKE && n > 1) p[all->compared] = f->pairs.p, who[all->compared++] = v;
    }
    statistics_holm(p, all->compared);
    for (size_t i = 0; i < all->compared; i++) {
        finding *f = &all->of[who[i]];
        f->p = p[i];
        if (p[i] < 0.05) f->verdict = (f->pairs.mean > 0) == all->higher ? BETTER : WORSE;
    }
}

/* ---- Numbers ---- */

/* Four digits behind the point, of large numbers fewer: what tests/evidence.py reads again. */
static void put_value(FILE *out, double value, int sign) {
    int digits = fabs(value) < 100 ? 4 : fabs(value) < 10000 ? 2 : 0;
    if (!isfinite(value)) fputs("–", out);
    else fprintf(out, sign ? "%+.*f" : "%.*f", digits, value);
}

static void put_p(FILE *out, double p) {
    if (isnan(p)) fputs("–", out);
    else if (p < 0.0001) fputs("<0.0001", out);
    else fprintf(out, "%.4f", p);
}

/* ---- A part's table ---- */

/* Seeds that solve: of tasks that go all or nothing they say more than a mean. */
static size_t solved(const finding *f, const findings *all) {
    double x[MOST_SEEDS];
    size_t n = 0;
    for (size_t i = values_of(f, NULL, all->measure, x, NULL); i-- > 0;) n += x[i] >= all->claim->solved;
    return n;
}

static void put_verdict(FILE *out, const findings *all, const finding *f) {
    static const char *const words[] = {"not measured yet", "baseline", "noise floor", "**better**",
                                        "**worse**", "not told apart", "diverged"};
    fputs(words[f->verdict], out);
    if (f->diverged) fprintf(out, ", %zu of %zu without a finite loss", f->diverged, f->n);
    if (f->n && f->n < all->claim->seeds) fprintf(out, "; %zu of %zu seeds so far", f->n, all->claim->seeds);
    if (f->n && all->claim->solved > 0)
        fprintf(out, "; %zu of %zu at %g or more", solved(f, all), f->n, all->claim->solved);
}

static void put_row(FILE *out, const findings *all, const finding *f) {
    const evidence_row *any = NULL;
    for (size_t i = 0; i < MOST_SEEDS && !any; i++) any = f->rows[i];
    fprintf(out, "| %s (`%s`) | ", f->variant->label, f->variant->name);
    if (!any) {
        fputs("– | – | 0 | – | – | – | – | – | ", out);
        put_verdict(out, all, f), fputs(" |\n", out);
        return;
    }
    fprintf(out, "%zu | %g | %zu | ", any->result.parameters, f->rate, f->n);
    put_value(out, f->mean, 0), fputs(" | ", out), put_value(out, f->deviation, 0), fputs(" | ", out);
    if (f->verdict == BASELINE) fputs("– | – | – | ", out);
    else {
        put_value(out, f->pairs.mean, 1), fputs(" | ", out);
        if (isnan(f->pairs.half)) fputs("–", out);
        else {
            put_value(out, f->pairs.mean - f->pairs.half, 1), fputs(" to ", out);
            put_value(out, f->pairs.mean + f->pairs.half, 1);
        }
        fputs(" | ", out), put_p(out, f->p), fputs(" | ", out);
    }
    put_verdict(out, all, f), fputs(" |\n", out);
}

static void put_table(FILE *out, const findings *all) {
    fprintf(out, "| | numbers that learn | rate | seeds | mean of `%s` (%s) | standard deviation | "
            "difference | 95 %% interval | p | |\n|---|---|---|---|---|---|---|---|---|---|\n",
            all->claim->measure, all->claim->unit);
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
    fputs("<details><summary>What else was measured: mean (standard deviation)</summary>\n\n| |", out);
    for (size_t v = 0; v < all->n; v++)
        if (all->of[v].n) fprintf(out, " `%s` |", all->of[v].variant->name);
    fputs("\n|---|", out);
    for (size_t v = 0; v < all->n; v++)
        if (all->of[v].n) fputs("---|", out);
    for (size_t i = 0; i < n; i++) {
        fprintf(out, "\n| %s |", names[i]);
        for (size_t v = 0; v < all->n; v++) {
            if (!all->of[v].n) continue;
            size_t count = values_of(&all->of[v], NULL, names[i], x, NULL);
            putc(' ', out), put_value(out, statistics_mean(x, count), 0);
            if (count) fputs(" (", out), put_value(out, statistics_deviation(x, count), 0), putc(')', out);
            fputs(" |", out);
        }
    }
    fputs("\n\n</details>\n\n", out);
}

/* ---- What was found, in a sentence ---- */

/* Lists the kinds of a verdict with their differences. */
static void put_list(FILE *out, const findings *all, int verdict, const char *before, int intervals) {
    size_t n = 0;
    for (size_t v = 0; v < all->n; v++) {
        const finding *f = &all->of[v];
        if ((int)f->verdict != verdict) continue;
        fprintf(out, "%s%s", n++ ? ", " : before, f->variant->label);
        if (!intervals || isnan(f->pairs.half)) continue;
        fputs(" (", out), put_value(out, f->pairs.mean, 1);
        fputs(" ± ", out), put_value(out, f->pairs.half, 0), putc(')', out);
    }
}

/* Lists the kinds that chose the lowest or the highest rate, beyond which a better one may lie. */
static void put_edges(FILE *out, const findings *all) {
    const double *rates = all->claim->rates;
    size_t n = 0;
    for (size_t v = 0; v < all->n; v++) {
        const finding *f = &all->of[v];
        if (f->floor || !f->n || !(rates[1] > 0) || (f->rate > rates[0] && f->rate < rates[2])) continue;
        fprintf(out, "%s%s", n++ ? ", " : "; rate at the edge of the three: ", f->variant->label);
    }
}

/* Lists the kinds of each verdict, with what the sentence begins with already written. */
static void put_verdicts(FILE *out, const findings *all, const char *unit) {
    const finding *base = &all->of[0];
    fprintf(out, "against %s (", base->variant->label);
    put_value(out, base->mean, 0), fprintf(out, "%s%s)", *unit ? " " : "", unit);
    put_list(out, all, BETTER, "; better: ", 1);
    put_list(out, all, WORSE, "; worse: ", 1);
    put_list(out, all, ALIKE, "; not told apart: ", 1);
    put_list(out, all, DIVERGED, "; diverged: ", 0);
    put_list(out, all, NOTHING, "; not measured yet: ", 0);
    fprintf(out, ". *How sure:* %zu seeds, p corrected for %zu comparisons", base->n, all->compared);
    put_list(out, all, FLOOR, "; the same kind against itself: ", 1);
}

static void put_sentence(FILE *out, const findings *all) {
    size_t measured = 0;
    for (size_t v = 0; v < all->n; v++) measured += all->of[v].n > 0;
    fprintf(out, "*Found, %s:* ", all->part->label);
    if (!measured || !all->of[0].n) {
        fputs("not measured yet.\n\n", out);
        return;
    }
    put_verdicts(out, all, all->claim->unit), put_edges(out, all), fputs(".\n\n", out);
}

/* The same by the second measure, at the rates that the first one chose; nothing where no row has it. */
static void put_second(FILE *out, const findings *all) {
    if (all->of[0].n == all->of[0].diverged) return;
    fprintf(out, "*By `%s`, %s (%s is better):* ", all->measure, all->part->label,
            all->higher ? "more" : "less");
    put_verdicts(out, all, ""), fputs(".\n\n", out);
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
            for (int r = 0; own && r < 3 && claim->rates[r] > 0; r++)
                c.asked++, c.rows += rows_find(table, &claim->parts[p], variant, 0, claim->rates[r]) != NULL;
        }
    c.hours = c.minutes * (double)c.asked / 60;
    return c;
}

/* ---- Figures ---- */

/* The mean curve of a variant's runs, of the steps that all of them have. */
static size_t mean_curve(const finding *f, double *at, double *values) {
    const evidence_row *first = NULL;
    size_t n = 0;
    for (size_t s = 0; s < MOST_SEEDS && !first; s++) first = f->rows[s];
    for (size_t i = 0; first && i < first->result.points; i++) {
        double sum = 0;
        size_t count = 0;
        for (size_t s = 0; s < MOST_SEEDS; s++) {
            const evidence_row *row = f->rows[s];
            if (row && i < row->result.points && row->result.curve[i].step == first->result.curve[i].step)
                sum += row->result.curve[i].loss, count++;
        }
        if (count != f->n || !isfinite(sum)) continue;
        at[n] = (double)first->result.curve[i].step, values[n++] = sum / (double)count;
    }
    return n;
}

/* Measures whose names end in a number: what that counts, and what is measured over it. */
static const struct ladder { const char *prefix, *over, *what; } ladders[] = {
    {"right.", "length (times the trained one)", "answers that are right (share)"},
    {"p", "position up to (tokens)", "loss (bits a byte)"},
    {"snr_", "signal over noise (dB)", "accuracy (%)"}};
enum { LADDERS = sizeof ladders / sizeof *ladders };

typedef struct rungs {
    size_t n;
    double at[EVIDENCE_MEASURES], mean[EVIDENCE_MEASURES], low[EVIDENCE_MEASURES], high[EVIDENCE_MEASURES];
} rungs;

/* The number in the name of a measure of that ladder; NAN for other names. */
static double rung_of(const struct ladder *l, const char *name) {
    size_t n = strlen(l->prefix);
    char *end;
    if (strncmp(name, l->prefix, n) != 0 || !name[n]) return NAN;
    double value = strtod(name + n, &end);
    return *end ? NAN : value;
}

/* The means of a variant's seeds on a ladder, with their 95 % intervals where there are several seeds. */
static void climb(const finding *f, const struct ladder *l, rungs *r) {
    const evidence_row *first = NULL;
    double x[MOST_SEEDS], y[MOST_SEEDS];
    for (size_t s = 0; s < MOST_SEEDS && !first; s++) first = f->rows[s];
    for (size_t i = 0; first && i < first->result.n; i++) {
        const char *name = first->result.measures[i].name;
        double at = rung_of(l, name), half = NAN;
        size_t n = isnan(at) ? 0 : values_of(f, NULL, name, x, y);
        if (!n) continue;
        if (n > 1)
            half = statistics_t_quantile(0.05, (double)n - 1) * statistics_deviation(x, n) / sqrt((double)n);
        r->at[r->n] = at, r->mean[r->n] = statistics_mean(x, n);
        r->low[r->n] = r->mean[r->n] - half, r->high[r->n] = r->mean[r->n] + half, r->n++;
    }
}

typedef struct picture {
    double position[MOST_VARIANTS], value[MOST_VARIANTS], low[MOST_VARIANTS], high[MOST_VARIANTS];
    const char *names[MOST_VARIANTS];
    double at[MOST_VARIANTS][EVIDENCE_POINTS], loss[MOST_VARIANTS][EVIDENCE_POINTS];
    chart_series points, lines[MOST_VARIANTS];
    chart_rule zero;
    char label[160];
    size_t n, n_lines;
    rungs rungs[MOST_VARIANTS];
    chart_series climbs[MOST_VARIANTS];
    chart charts[3];
} picture;

/* Draws the first ladder that the rows of a part have; returns whether there is one. */
static size_t draw_ladder(picture *p, const findings *all, chart *c) {
    for (size_t k = 0; k < LADDERS && !c->n; k++)
        for (size_t v = 0; v < all->n; v++) {
            rungs *r = &p->rungs[c->n];
            chart_series *line = &p->climbs[c->n];
            if (all->of[v].floor) continue;
            memset(r, 0, sizeof *r), climb(&all->of[v], &ladders[k], r);
            if (r->n < 2) continue;
            line->name = all->of[v].variant->label, line->n = r->n, line->at = r->at, line->values = r->mean;
            line->low = r->low, line->high = r->high, line->look = (int)v + 1, c->n++;
            c->x.label = ladders[k].over, c->y.label = ladders[k].what;
        }
    c->title = all->part->label, c->subtitle = "means over the seeds, 95 % intervals";
    c->series = p->climbs, c->whole = 1;
    return c->n > 0;
}

/* Draws a part: differences with their intervals, and the mean loss by step. Nothing to draw: 0 charts. */
static size_t draw_part(picture *p, const findings *all) {
    chart *differences = &p->charts[0], *curves = &p->charts[1];
    memset(p, 0, sizeof *p);
    for (size_t v = 0; v < all->n; v++) {
        const finding *f = &all->of[v];
        chart_series *line = &p->lines[p->n_lines];
        line->n = mean_curve(f, p->at[p->n_lines], p->loss[p->n_lines]);
        line->name = f->variant->label, line->at = p->at[p->n_lines], line->values = p->loss[p->n_lines];
        line->look = (int)v + 1;
        if (line->n && !f->floor) p->n_lines++;
        if (!v || isnan(f->pairs.half)) continue;
        p->position[p->n] = (double)p->n, p->value[p->n] = f->pairs.mean, p->names[p->n] = f->variant->label;
        p->low[p->n] = f->pairs.mean - f->pairs.half, p->high[p->n] = f->pairs.mean + f->pairs.half;
        p->n++;
    }
    if (!p->n) return 0;
    snprintf(p->label, sizeof p->label, "difference from %s (%s)", all->of[0].variant->label,
             all->claim->unit);
    p->points.n = p->n, p->points.at = p->position, p->points.values = p->value;
    p->points.mark = CHART_POINTS, p->points.low = p->low, p->points.high = p->high;
    differences->title = all->part->label, differences->subtitle = "paired differences, 95 % intervals";
    differences->flat = 1, differences->x.names = p->names, differences->x.n_names = p->n;
    differences->y.label = p->label, differences->series = &p->points, differences->n = 1;
    differences->rules = &p->zero, differences->n_rules = 1, differences->whole = 1;
    curves->title = all->part->label, curves->subtitle = "means over the seeds";
    curves->x.label = "step", curves->y.label = "loss (nats a prediction)", curves->series = p->lines;
    curves->n = p->n_lines, curves->whole = 1;
    size_t drawn = p->n_lines ? 2 : 1;
    return drawn + draw_ladder(p, all, &p->charts[drawn]);
}

/* Writes a claim's figure, or compares it with the one that is there. *there: does the claim have one? */
static int put_figure(const evidence_claim *claim, const evidence_table *table, const char *folder,
                      int compare, int *there, char *error) {
    char path[1100];
    picture *pictures = (picture *)calloc(claim->n_parts, sizeof *pictures);
    findings *all = (findings *)malloc(sizeof *all);
    chart *charts = (chart *)calloc(3 * claim->n_parts, sizeof *charts);
    figure whole;
    size_t n = 0;
    int done = pictures && all && charts ? 1 : evidence_fail(error, "no memory for a figure");
    for (size_t i = 0; done && i < claim->n_parts; i++) {
        find_out(all, table, claim, &claim->parts[i], 0);
        size_t more = draw_part(&pictures[i], all);
        memcpy(charts + n, pictures[i].charts, more * sizeof *charts), n += more;
    }
    memset(&whole, 0, sizeof whole);
    whole.title = claim->title, whole.charts = charts, whole.n = n, *there = n > 0;
    whole.wide = 1060; /* beside names of kinds on both sides */
    snprintf(path, sizeof path, "%s/figures/%s.svg", folder, claim->name);
    if (done && n && !compare) done = figure_save(path, &whole, error);
    if (done && n && compare) {
        char *now = NULL, *before = NULL;
        size_t n_now = 0, n_before = 0;
        FILE *file = open_memstream(&now, &n_now);
        done = file && figure_write(file, &whole);
        if (file) done &= !fclose(file);
        if (!done) evidence_fail(error, "no memory for a figure");
        done = done && text_read(path, (size_t)1 << 26, &before, &n_before, error);
        if (done && (n_now != n_before || memcmp(now, before, n_now) != 0))
            done = evidence_fail(error, "%s is not what the rows say; build/evidence report draws it", path);
        free(now), free(before);
    }
    free(pictures), free(all), free(charts);
    return done;
}

/* ---- The report ---- */

static void put_rates(FILE *out, const evidence_claim *claim) {
    for (int r = 0; r < 3 && claim->rates[r] > 0; r++)
        fprintf(out, "%s%g", !r ? "" : r < 2 ? ", " : " or ", claim->rates[r]);
    fputs("\n\n", out);
}

static void put_claim(FILE *out, const evidence_claim *claim, const evidence_table *table, int has_figure,
                      findings *all) {
    fprintf(out, "### %s\n\n*Claimed:* %s\n\n", claim->title, claim->claimed);
    for (size_t i = 0; i < claim->n_parts; i++) {
        find_out(all, table, claim, &claim->parts[i], 0), put_sentence(out, all);
        if (!claim->also) continue;
        find_out(all, table, claim, &claim->parts[i], 1), put_second(out, all);
    }
    for (size_t i = 0; i < claim->n_parts; i++) {
        find_out(all, table, claim, &claim->parts[i], 0);
        size_t rows = 0;
        for (size_t v = 0; v < all->n; v++) rows += all->of[v].n;
        if (!rows) continue;
        fprintf(out, "**%s** (`%s`; %s is better)\n\n", claim->parts[i].label, claim->parts[i].name,
                claim->higher ? "more" : "less");
        fprintf(out, "Settings: `%s`; rate ", claim->parts[i].settings), put_rates(out, claim);
        put_table(out, all), put_others(out, all);
    }
    if (has_figure) fprintf(out, "![%s](figures/%s.svg)\n\n", claim->title, claim->name);
    fprintf(out, "`build/evidence run %s` makes ", claim->name);
    if (!table->n) fputs("its rows.\n\n", out);
    else fprintf(out, "the rows that [results/%s.csv](results/%s.csv) lacks.\n\n", claim->name, claim->name);
}

/* Counts the kinds of a verdict over the parts of a claim. */
static void put_counts(FILE *out, const evidence_claim *claim, const evidence_table *table, findings *all) {
    static const int asked[] = {BETTER, WORSE, ALIKE, DIVERGED, NOTHING};
    size_t counts[5] = {0};
    for (size_t i = 0; i < claim->n_parts; i++) {
        find_out(all, table, claim, &claim->parts[i], 0);
        for (size_t v = 1; v < all->n; v++)
            for (size_t k = 0; k < 5 && !all->of[v].floor; k++)
                counts[k] += (int)all->of[v].verdict == asked[k];
    }
    for (size_t k = 0; k < 5; k++) fprintf(out, " %zu |", counts[k]);
    putc('\n', out);
}

static void put_overview(FILE *out, const evidence_table *tables, findings *all) {
    double hours = 0;
    fputs("| claim | rows | minutes a run | hours for all, one core | better | worse | not told apart "
          "| diverged | not measured yet |\n|---|---|---|---|---|---|---|---|---|\n", out);
    for (size_t i = 0; evidence_claims[i]; i++) {
        cost c = cost_of(&tables[i], evidence_claims[i]);
        fprintf(out, "| %s: %s%s | %zu of %zu | %.1f%s | %.1f |", evidence_claims[i]->name,
                evidence_claims[i]->title, evidence_claims[i]->quick ? " (quick)" : "", c.rows, c.asked,
                c.minutes, c.measured ? "" : " (a guess)", c.hours);
        put_counts(out, evidence_claims[i], &tables[i], all);
        hours += c.hours;
    }
    fprintf(out, "\n`make evidence-all` takes about %.0f hours of one core for all of them, with "
            "`JOBS=2` half as long on two.\n\n", hours);
}

/* The text between the marks, of malloc; *bytes long. Writes or compares the figures by the way. */
static char *write_report(const evidence_table *tables, const char *folder, int compare, size_t *bytes,
                          char *error) {
    char *text = NULL;
    FILE *out = open_memstream(&text, bytes);
    findings *all = (findings *)malloc(sizeof *all);
    int done = out && all ? 1 : evidence_fail(error, "no memory for the report");
    if (done) put_overview(out, tables, all);
    for (size_t i = 0; done && evidence_claims[i]; i++) {
        int there = 0;
        done = put_figure(evidence_claims[i], &tables[i], folder, compare, &there, error);
        if (done) put_claim(out, evidence_claims[i], &tables[i], there, all);
    }
    free(all);
    if (out && fclose(out) && done) done = evidence_fail(error, "no memory for the report");
    if (!done) free(text), text = NULL;
    return text;
}

/* Finds what stands between the marks of README.md. */
static int between(char *text, const char *path, char **begin, char **end, char *error) {
    *begin = strstr(text, mark_begin);
    *end = *begin ? strstr(*begin, mark_end) : NULL;
    if (!*end) return evidence_fail(error, "%s lacks the marks of its tables: %.40s", path, mark_begin);
    *begin += sizeof mark_begin - 1;
    return 1;
}

/* README.md as it is, ended by a 0; where there is none and `make` is set, the marks alone. */
static char *load_readme(const char *path, int make, char *error) {
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

static int save_readme(const char *path, const char *before, size_t n_before, const char *report,
                       size_t bytes, const char *after, char *error) {
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

int report_write(const evidence_table *tables, const char *folder, int compare, char *error) {
    char path[1100], *begin, *end;
    size_t bytes = 0;
    snprintf(path, sizeof path, "%s/README.md", folder);
    char *readme = load_readme(path, !compare, error), *report = NULL;
    int done = readme && between(readme, path, &begin, &end, error);
    if (done) done = (report = write_report(tables, folder, compare, &bytes, error)) != NULL;
    if (done && compare && ((size_t)(end - begin) != bytes || memcmp(begin, report, bytes) != 0)) {
        size_t above = 1;
        for (const char *s = readme; s < begin; s++) above += *s == '\n';
        above += line_apart(begin, (size_t)(end - begin), report, bytes) - 1;
        done = evidence_fail(error, "%s, line %zu is not what the rows say; build/evidence report writes it",
                             path, above);
    }
    if (done && !compare)
        done = save_readme(path, readme, (size_t)(begin - readme), report, bytes, end, error);
    free(readme), free(report);
    return done;
}
