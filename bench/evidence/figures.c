/* figures.c - a claim's figure: differences, loss by step, and what is measured over lengths or levels. */
#include "program.h"

#include "../../examples/tools/drawing.h"

#include <math.h>

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

/* By step, how far a variant's curves lie from the baseline's of the same seeds, with 95 % intervals. */
typedef struct lead {
    size_t n;
    double at[EVIDENCE_POINTS], mean[EVIDENCE_POINTS], low[EVIDENCE_POINTS], high[EVIDENCE_POINTS];
} lead;
static void find_lead(const finding *f, const finding *base, lead *to) {
    const evidence_row *first = NULL;
    for (size_t s = 0; s < MOST_SEEDS && !first; s++) first = f->rows[s];
    for (size_t i = 0; first && i < first->result.points; i++) {
        double x[MOST_SEEDS], y[MOST_SEEDS];
        size_t step = first->result.curve[i].step, n = 0;
        for (size_t s = 0; s < MOST_SEEDS; s++) {
            const evidence_row *own = f->rows[s], *other = base->rows[s];
            if (!own || !other || i >= own->result.points || i >= other->result.points) continue;
            if (own->result.curve[i].step != step || other->result.curve[i].step != step) continue;
            x[n] = own->result.curve[i].loss, y[n++] = other->result.curve[i].loss;
        }
        statistics_pairs pairs = statistics_paired(x, y, n);
        if (!isfinite(pairs.half)) continue;
        to->at[to->n] = (double)step, to->mean[to->n] = pairs.mean;
        to->low[to->n] = pairs.mean - pairs.half, to->high[to->n] = pairs.mean + pairs.half, to->n++;
    }
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
        size_t n = isnan(at) ? 0 : findings_values(f, NULL, name, x, y);
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
    lead leads[MOST_VARIANTS];
    chart_series ahead[MOST_VARIANTS];
    char lead_label[160];
    chart charts[4];
} picture;

/* Draws the leads of all kinds, and of the baseline's other seeds: their curves are of held-out text. */
static size_t draw_leads(picture *p, const findings *all, chart *c) {
    if (strcmp(all->measure, "loss") != 0) return 0;
    for (size_t v = 1; v < all->n; v++) {
        lead *of = &p->leads[v];
        chart_series *line = &p->ahead[c->n];
        find_lead(&all->of[v], &all->of[0], of);
        if (of->n < 2) continue;
        line->name = all->of[v].variant->label, line->n = of->n, line->at = of->at, line->values = of->mean;
        line->low = of->low, line->high = of->high, line->look = (int)v + 1, c->n++;
    }
    snprintf(p->lead_label, sizeof p->lead_label, "difference from %s (nats a prediction)",
             all->of[0].variant->label);
    c->title = all->part->label, c->subtitle = "paired differences by step, 95 % intervals";
    c->x.label = "step", c->y.label = p->lead_label, c->series = p->ahead;
    c->rules = &p->zero, c->n_rules = 1, c->whole = 1;
    return c->n > 0;
}

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
    drawn += draw_leads(p, all, &p->charts[drawn]);
    return drawn + draw_ladder(p, all, &p->charts[drawn]);
}

/* Writes a figure, or compares it with the one that is there. */
static int put_figure(const char *path, const figure *f, int compare, char *error) {
    char *now = NULL, *before = NULL;
    size_t n_now = 0, n_before = 0;
    if (!compare) return figure_save(path, f, error);
    FILE *file = open_memstream(&now, &n_now);
    int done = file && figure_write(file, f);
    if (file) done &= !fclose(file);
    if (!done) evidence_fail(error, "no memory for a figure");
    done = done && text_read(path, (size_t)1 << 26, &before, &n_before, error);
    if (done && (n_now != n_before || memcmp(now, before, n_now) != 0))
        done = evidence_fail(error, "%s is not what the rows say; build/evidence report draws it", path);
    free(now), free(before);
    return done;
}

/* The pictures of the project's first page: the last chart of a claim, alone, with some of its series. */
static const struct front { const char *claim, *name, *title, *subtitle, *only[2]; } fronts[] = {
    {"longer", "front", "Loss by position, trained on 256 bytes at a time",
     "WikiText-2, means of five seeds, 95 % intervals", {NULL, NULL}},
    {"steps", "lead", "What is left of a lead over RoPE: below 0 is ahead",
     "Tiny Shakespeare, 1,500 steps of AdamW, means of eight seeds, 95 % intervals",
     {"ComplexFormer, δ from near 0", "RoPE, other seeds"}}};

static int put_front(const struct front *f, const char *folder, const chart *c, int compare, char *error) {
    char path[1100];
    chart alone = *c;
    chart_series some[2];
    figure front;
    memset(&front, 0, sizeof front);
    if (f->only[0]) alone.series = some, alone.n = 0;
    for (size_t i = 0; f->only[0] && i < c->n; i++)
        for (size_t k = 0; k < LENGTH(some); k++)
            if (!strcmp(c->series[i].name, f->only[k])) some[alone.n++] = c->series[i];
    alone.title = f->title;
    alone.subtitle = f->subtitle;
    front.charts = &alone, front.n = 1, front.wide = 860;
    snprintf(path, sizeof path, "%s/figures/%s.svg", folder, f->name);
    return put_figure(path, &front, compare, error);
}

int figures_put(const evidence_claim *claim, const findings *parts, const char *folder, int compare,
                int *there, char *error) {
    char path[1100];
    picture *pictures = (picture *)calloc(claim->n_parts, sizeof *pictures);
    chart *charts = (chart *)calloc(4 * claim->n_parts, sizeof *charts);
    figure whole;
    size_t n = 0;
    int done = pictures && charts ? 1 : evidence_fail(error, "no memory for a figure");
    for (size_t i = 0; done && i < claim->n_parts; i++) {
        size_t more = draw_part(&pictures[i], &parts[i]);
        memcpy(charts + n, pictures[i].charts, more * sizeof *charts), n += more;
    }
    memset(&whole, 0, sizeof whole);
    whole.title = claim->title, whole.charts = charts, whole.n = n, *there = n > 0;
    whole.wide = 1060; /* beside names of kinds on both sides */
    snprintf(path, sizeof path, "%s/figures/%s.svg", folder, claim->name);
    if (done && n) done = put_figure(path, &whole, compare, error);
    for (size_t i = 0; done && n && i < LENGTH(fronts); i++)
        if (!strcmp(claim->name, fronts[i].claim))
            done = put_front(&fronts[i], folder, &charts[n - 1], compare, error);
    free(pictures), free(charts);
    return done;
}
