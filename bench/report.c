/* What was measured: as tables while it is measured, and at the end as JSON and as a chart. */
#include "bench/bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef __unix__
#include <unistd.h>
#endif

typedef struct record {
    const char *section;
    const column *column;
    char name[40];
    size_t n;
    cell cell;
} record;

static record *records;
static size_t n_records, room;
static struct { const char *section, *n_is; const column *columns; size_t n; int names; } table;

/* ---- tables ---- */

static int is_share(const char *of) {
    return !strcmp(of, "gemm") || !strcmp(of, "bandwidth") || !strcmp(of, "whole");
}

static const char *heading(const char *of) {
    static char text[20];
    if (!strcmp(of, "gemm")) return "of GEMM";
    if (!strcmp(of, "bandwidth")) return "of read";
    if (!strcmp(of, "whole")) return "of whole";
    snprintf(text, sizeof text, "/ %s", !strcmp(of, "rope") ? "RoPE" : of);
    return text;
}

static int width_of(const column *c) {
    int width = (int)strlen(c->what) + 2, least = strlen(c->unit) > 8 ? (int)strlen(c->unit) + 2 : 10;
    for (int i = 0; i < 2; i++) least += c->of[i] ? 10 : 0;
    return width > least ? width : least;
}

void report_table(const char *section, const char *title, const char *n_is, const column *columns,
                  size_t n_columns) {
    int width;
    table.names = n_columns > 1 ? 21 : 38; /* where there is one column the names are sentences */
    table.section = section, table.n_is = n_is, table.columns = columns, table.n = n_columns;
    printf("\n%s: %s\n  %-*s %6s", section, title, table.names, "", "");
    for (size_t i = 0; i < n_columns; i++) printf("%*s", width_of(&columns[i]), columns[i].what);
    printf("\n  %-*s %6s", table.names, "", n_is ? n_is : "");
    for (size_t i = 0; i < n_columns; i++) {
        width = width_of(&columns[i]);
        for (int k = 0; k < 2; k++) width -= columns[i].of[k] ? 10 : 0;
        printf("%*s", width, columns[i].unit);
        for (int k = 0; k < 2; k++)
            if (columns[i].of[k]) printf("%10s", heading(columns[i].of[k]));
    }
    putchar('\n');
    fflush(stdout);
}

static void show(const column *c, const cell *x) {
    int width = width_of(c);
    for (int k = 0; k < 2; k++) width -= c->of[k] ? 10 : 0;
    if (isnan(x->value)) printf("%*s", width, "-");
    else printf("%*.*f", width, fabs(x->value) >= 1000 ? 0 : fabs(x->value) >= 100 ? 1 : 2, x->value);
    for (int k = 0; k < 2; k++) {
        if (!c->of[k]) continue;
        if (isnan(x->of[k])) printf("%10s", "");
        else if (is_share(c->of[k])) printf("%8.0f %%", 100 * x->of[k]);
        else printf("%8.2f x", x->of[k]);
    }
}

void report_row(const char *name, size_t n, const cell *cells) {
    printf("  %-*s ", table.names, name);
    if (table.n_is) printf("%6zu", n);
    else printf("%6s", "");
    for (size_t i = 0; i < table.n; i++) {
        record *r, *more;
        show(&table.columns[i], &cells[i]);
        if (n_records == room) {
            room = room ? 2 * room : 256;
            if (!(more = realloc(records, room * sizeof *records))) die(1, "no memory", "");
            records = more;
        }
        r = &records[n_records++];
        *r = (record){table.section, &table.columns[i], "", n, cells[i]};
        snprintf(r->name, sizeof r->name, "%s", name);
    }
    putchar('\n');
    fflush(stdout);
}

/* ---- JSON ---- */

/* The model name of the processor as Linux tells it, without what would need escaping. */
static void processor(char *name, size_t size) {
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[256], *colon;
    snprintf(name, size, "unknown");
    if (!f) return;
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, "model name", 10) && (colon = strchr(line, ':')) != NULL) {
            snprintf(name, size, "%s", colon + 2);
            break;
        }
    fclose(f);
    name[strcspn(name, "\n")] = '\0';
    while ((colon = strpbrk(name, "\"\\\t")) != NULL) *colon = ' ';
}

static FILE *create(const char *path) {
    FILE *f = fopen(path, "w");
    if (!f) die(1, "cannot write ", path);
    return f;
}

static void finish(FILE *f, const char *path) {
    int bad = ferror(f);
    if (fclose(f) || bad) die(1, "cannot write ", path);
}

static void number(FILE *f, const char *key, double x) {
    if (isfinite(x)) fprintf(f, "\"%s\": %.6g", key, x);
    else fprintf(f, "\"%s\": null", key);
}

static void json_machine(FILE *f) {
    char text[160];
    const char *coretype = getenv("OPENBLAS_CORETYPE");
    elsewhere busy = work_since(work_before);
    time_t now = time(NULL);
    processor(text, sizeof text);
    fprintf(f, "{\n \"machine\": {\"processor\": \"%s\", ", text);
#ifdef _SC_NPROCESSORS_ONLN
    fprintf(f, "\"cores\": %ld, ", sysconf(_SC_NPROCESSORS_ONLN));
#endif
#if defined(_SC_PHYS_PAGES) && defined(_SC_PAGESIZE)
    fprintf(f, "\"memory_MiB\": %.0f, ",
            (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / 1048576);
#endif
    fprintf(f, "\"load_before\": %.2f, \"threads\": %d, \"blas\": \"%s\", ", load_before, ctx.threads,
            cmha_blas_name(text, sizeof text));
    fprintf(f, "\"blas_corrected_from\": \"%s\", \"blas_remedy\": \"%s\", ", blas_before,
            cmha_blas_remedy() ? cmha_blas_remedy() : "");
    fprintf(f, "\"OPENBLAS_CORETYPE\": \"%.*s\", ", coretype ? (int)strcspn(coretype, "\"\\\n\t") : 0,
            coretype ? coretype : "");
    number(f, "others_cpus", busy.others), fputs(", ", f);
    number(f, "stolen_cpus", busy.stolen), fputs(", ", f);
#ifdef __VERSION__
    fprintf(f, "\"compiler\": \"%s\", ", __VERSION__);
#endif
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
    fprintf(f, "\"cmha\": \"%s\", \"time\": \"%s\", \"quick\": %s, \"runs\": %d},\n \"results\": [",
            cmha_version(), text, quick ? "true" : "false", RUNS);
}

void report_json(const char *path) {
    FILE *f = create(path);
    json_machine(f);
    for (const record *r = records; r < records + n_records; r++) {
        const column *c = r->column;
        fprintf(f, "%s\n  {\"section\": \"%s\", \"name\": \"%s\", ", r == records ? "" : ",", r->section,
                r->name);
        fprintf(f, "\"what\": \"%s\", \"n\": %zu, \"unit\": \"%s\", ", c->what, r->n, c->unit);
        number(f, "value", r->cell.value);
        fputs(", \"ratio\": {", f);
        for (int k = 0; k < 2 && c->of[k]; k++) {
            if (k) fputs(", ", f);
            number(f, c->of[k], r->cell.of[k]);
        }
        fputs("}}", f);
    }
    fputs("\n ]\n}\n", f);
    finish(f, path);
}

/* ---- the chart: logarithmic axes, one line a name, a legend in the order of the lines' right ends ---- */

enum {
    LEFT = 70, TOP = 46, PLOT_X = 620, PLOT_Y = 480, LEGEND = 190, BOTTOM = 50, MOST_LINES = 32, LINE = 18
};

/* Colours that both a light and a dark page show; after seven lines the next are dashed, then dotted. */
static const char *const colour[7] = {"#1f77d0", "#e0662a", "#139c72", "#c2609c",
                                      "#b98a00", "#7d6fe0", "#7a7f87"};
static const char *const dash[4] = {"none", "7 4", "2 4", "9 3 2 3"};
static const char style[] =
    "<style>text{fill:#222}.grid{stroke:#ddd}.axis{stroke:#888}.page{fill:#fff}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.grid{stroke:#3a3d42}.page{fill:#16181c}}</style>\n";

typedef struct chart {
    FILE *f;
    const record *lines[MOST_LINES]; /* the last record of each name */
    size_t n;
    double x0, x1, y0, y1; /* logarithms of the axes' ends */
    const char *section;
} chart;

/* A name with one n alone makes no line. */
static int is_drawn(const chart *c, const record *r) {
    if (!r->column->chart || !(r->cell.value > 0) || strcmp(c->section, r->section) != 0) return 0;
    for (const record *other = records; other < records + n_records; other++)
        if (other->column == r->column && other->n != r->n && !strcmp(other->name, r->name)) return 1;
    return 0;
}

static double chart_x(const chart *c, double n) { return LEFT + PLOT_X * (log(n) - c->x0) / (c->x1 - c->x0); }
static double chart_y(const chart *c, double v) { return TOP + PLOT_Y * (c->y1 - log(v)) / (c->y1 - c->y0); }

static int by_end(const void *a, const void *b) {
    double x = (*(const record *const *)a)->cell.value, y = (*(const record *const *)b)->cell.value;
    return (x < y) - (x > y);
}

/* Which names there are, and between which powers of two and of ten they lie.
   Attention goes before other sections. */
static void chart_scan(chart *c) {
    double n0 = HUGE_VAL, n1 = 0, v0 = HUGE_VAL, v1 = 0;
    for (const record *r = records; r < records + n_records; r++)
        if (r->column->chart && (!*c->section || !strcmp(r->section, "attention"))) c->section = r->section;
    for (const record *r = records; r < records + n_records; r++) {
        size_t i = 0;
        if (!is_drawn(c, r)) continue;
        while (i < c->n && strcmp(c->lines[i]->name, r->name) != 0) i++;
        if (i == MOST_LINES) continue;
        c->lines[i] = r, c->n += i == c->n;
        n0 = fmin(n0, (double)r->n), n1 = fmax(n1, (double)r->n);
        v0 = fmin(v0, r->cell.value), v1 = fmax(v1, r->cell.value);
    }
    if (!c->n) die(1, "nothing was measured that a chart could show", "");
    c->x0 = log(n0) - 0.1, c->x1 = log(n1) + 0.1, c->y0 = log(v0) - 0.2, c->y1 = log(v1) + 0.2;
    qsort(c->lines, c->n, sizeof *c->lines, by_end);
}

static void chart_axes(const chart *c) {
    static const double steps[3] = {1, 2, 5};
    for (int e = -9; e < 9; e++)
        for (int s = 0; s < 3; s++) {
            double v = steps[s] * pow(10, e), y = chart_y(c, v);
            if (log(v) < c->y0 || log(v) > c->y1) continue;
            fprintf(c->f, "<path class='grid' d='M%d %.1fh%d'/>", LEFT, y, PLOT_X);
            fprintf(c->f, "<text x='%d' y='%.1f' text-anchor='end'>%g</text>\n", LEFT - 7, y + 4, v);
        }
    for (double n = 1; log(n) < c->x1; n *= 2) {
        double x = chart_x(c, n);
        if (log(n) < c->x0) continue;
        fprintf(c->f, "<path class='grid' d='M%.1f %dv%d'/>", x, TOP, PLOT_Y);
        fprintf(c->f, "<text x='%.1f' y='%d' text-anchor='middle'>%g</text>\n", x, TOP + PLOT_Y + 18, n);
    }
    fprintf(c->f, "<rect class='axis' fill='none' x='%d' y='%d' width='%d' height='%d'/>\n", LEFT, TOP,
            PLOT_X, PLOT_Y);
    fprintf(c->f, "<text x='%d' y='%d' text-anchor='middle'>n</text>\n", LEFT + PLOT_X / 2,
            TOP + PLOT_Y + 38);
}

static void chart_line(const chart *c, size_t i) {
    const record *last = c->lines[i];
    int bold = !strcmp(last->name, "cmha") || !strcmp(last->name, "rope");
    double y = TOP + 6 + LINE * (double)i;
    fprintf(c->f, "<g stroke='%s' stroke-width='%g' stroke-dasharray='%s'>", colour[i % 7], bold ? 3.5 : 1.6,
            dash[bold ? 0 : i / 7 % 4]);
    fprintf(c->f, "<polyline fill='none' points='");
    for (const record *r = records; r <= last; r++)
        if (is_drawn(c, r) && !strcmp(r->name, last->name))
            fprintf(c->f, "%.1f,%.1f ", chart_x(c, (double)r->n), chart_y(c, r->cell.value));
    fprintf(c->f, "'/><path d='M%d %.1fh26'/></g>", LEFT + PLOT_X + 14, y);
    fprintf(c->f, "<text x='%d' y='%.1f'%s>%s</text>\n", LEFT + PLOT_X + 46, y + 4,
            bold ? " font-weight='bold'" : "", last->name);
    for (const record *r = records; r <= last; r++)
        if (is_drawn(c, r) && !strcmp(r->name, last->name))
            fprintf(c->f, "<circle r='2.6' fill='%s' cx='%.1f' cy='%.1f'/>", colour[i % 7],
                    chart_x(c, (double)r->n), chart_y(c, r->cell.value));
    fputc('\n', c->f);
}

void report_svg(const char *path) {
    chart c;
    char blas[64];
    int wide = LEFT + PLOT_X + LEGEND, high = TOP + PLOT_Y + BOTTOM;
    memset(&c, 0, sizeof c);
    c.section = "";
    chart_scan(&c);
    c.f = create(path);
    fprintf(c.f,
            "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %d' width='%d' height='%d' "
            "font-family='sans-serif' "
            "font-size='12px'>\n%s<rect class='page' width='100%%' height='100%%'/>\n",
            wide, high, wide, high, style);
    fprintf(c.f, "<text x='%d' y='20' font-size='15px'>%s, forward and backward: %s over n</text>\n", LEFT,
            c.section, c.lines[0]->column->unit);
    fprintf(c.f, "<text x='%d' y='37'>%d threads, %s</text>\n", LEFT, ctx.threads,
            cmha_blas_name(blas, sizeof blas));
    chart_axes(&c);
    for (size_t i = 0; i < c.n; i++) chart_line(&c, i);
    fputs("</svg>\n", c.f);
    finish(c.f, path);
}
