/* What was measured: as tables while it is measured, and at the end as JSON and as a chart. */
#include "examples/tools/drawing.h" /* before bench.h, whose types have short names */

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
    const char *section, *n_is;
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
        *r = (record){table.section, table.n_is ? table.n_is : "n", &table.columns[i], "", n, cells[i]};
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

static int write_json(FILE *f, const void *unused) {
    (void)unused;
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
    return !ferror(f);
}

void report_json(const char *path) {
    char error[TEXT_ERROR];
    if (!draw_save(path, write_json, NULL, error)) die(1, error, "");
}

/* ---- the chart: a line for each name over n ---- */

enum { MOST_LINES = 32 };

typedef struct lines {
    const char *section;
    const record *last[MOST_LINES]; /* the last record of each name */
    chart_series series[MOST_LINES];
    size_t n;
} lines;

/* A name with one n alone makes no line. */
static int is_drawn(const lines *l, const record *r) {
    if (!r->column->chart || !(r->cell.value > 0) || strcmp(l->section, r->section) != 0) return 0;
    for (const record *other = records; other < records + n_records; other++)
        if (other->column == r->column && other->n != r->n && !strcmp(other->name, r->name)) return 1;
    return 0;
}

/* Which names there are. Attention goes before other sections. */
static void find_lines(lines *l) {
    l->section = "";
    for (const record *r = records; r < records + n_records; r++)
        if (r->column->chart && (!*l->section || !strcmp(r->section, "attention"))) l->section = r->section;
    for (const record *r = records; r < records + n_records; r++) {
        size_t i = 0;
        if (!is_drawn(l, r)) continue;
        while (i < l->n && strcmp(l->last[i]->name, r->name) != 0) i++;
        if (i < MOST_LINES) l->last[i] = r, l->n += i == l->n;
    }
    if (!l->n) die(1, "nothing was measured that a chart could show", "");
}

/* Line number i: n and what was measured there, in memory that is the caller's to free. */
static double *fill_line(const lines *l, size_t i, chart_series *s) {
    double *numbers = take(2 * n_records * sizeof *numbers);
    memset(s, 0, sizeof *s);
    s->name = l->last[i]->name, s->at = numbers, s->values = numbers + n_records;
    s->bold = !strcmp(s->name, "cmha") || !strcmp(s->name, "rope");
    for (const record *r = records; r <= l->last[i]; r++)
        if (is_drawn(l, r) && !strcmp(r->name, s->name))
            numbers[s->n] = (double)r->n, numbers[n_records + s->n++] = r->cell.value;
    return numbers;
}

void report_svg(const char *path) {
    static lines l;
    double *numbers[MOST_LINES];
    char blas[64], title[80], subtitle[160], unit[40], error[TEXT_ERROR];
    chart c;
    memset(&c, 0, sizeof c), memset(&l, 0, sizeof l);
    find_lines(&l);
    for (size_t i = 0; i < l.n; i++) numbers[i] = fill_line(&l, i, &l.series[i]);
    snprintf(title, sizeof title, "%s, forward and backward", l.section);
    snprintf(subtitle, sizeof subtitle, "cmha %s, %d thread%s, %s", cmha_version(), ctx.threads,
             ctx.threads > 1 ? "s" : "", cmha_blas_name(blas, sizeof blas));
    snprintf(unit, sizeof unit, "time (%s)", l.last[0]->column->unit);
    c.title = title, c.subtitle = subtitle, c.series = l.series, c.n = l.n, c.high = 480;
    c.x.label = strcmp(l.last[0]->n_is, "n") != 0 ? l.last[0]->n_is : "n (tokens)", c.x.log = 2;
    c.y.label = unit, c.y.log = 10;
    if (!chart_save(path, &c, error)) die(1, error, "");
    for (size_t i = 0; i < l.n; i++) free(numbers[i]);
}
