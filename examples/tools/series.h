/* series.h - time series: a CSV of many channels. In the manner of text.h: static functions without globals,
   1 for success and 0 for failure with one line in `error`. */
#ifndef SERIES_H
#define SERIES_H

#include "text.h"

#include <math.h>

/* The columns of numbers of a CSV: the first line has their names, every other line is a step of time. */
typedef struct series {
    char *text;
    text_slice *names; /* [channels], into text; quotation marks around a name are left out */
    size_t *want;      /* [channels]: the column in the file, from 1, in rising order if none were named */
    double *x;         /* [steps, channels], all finite */
    size_t steps, channels, columns;
} series;

static inline void series_close(series *s) {
    free(s->text);
    free(s->names);
    free(s->want);
    free(s->x);
    memset(s, 0, sizeof *s);
}

/* Cuts the first cell off a line; 0 if it was the last one. Commas between quotation marks part nothing. */
static inline int series_cut(text_slice *line, text_slice *cell) {
    size_t n = 0;
    int quoted = 0;
    *cell = *line;
    while (n < line->n) {
        if (line->at[n] == '"') quoted = !quoted;
        if (line->at[n] == ',' && !quoted) break;
        n++;
    }
    if (n == line->n) return 0;
    cell->n = n;
    line->at += n + 1;
    line->n -= n + 1;
    return 1;
}

/* A cell without blanks and one pair of quotation marks around it. */
static inline text_slice series_bare(text_slice cell) {
    while (cell.n && (*cell.at == ' ' || *cell.at == '\t')) {
        cell.at++;
        cell.n--;
    }
    while (cell.n && (cell.at[cell.n - 1] == ' ' || cell.at[cell.n - 1] == '\t')) cell.n--;
    if (cell.n < 2 || *cell.at != '"' || cell.at[cell.n - 1] != '"') return cell;
    cell.at++;
    cell.n -= 2;
    return cell;
}

static inline size_t series_columns(text_slice line) {
    text_slice cell;
    size_t n = 1;
    while (series_cut(&line, &cell)) n++;
    return n;
}

/* Notes that channel number `channel` is column `column` (from 1). */
static inline void series_take(series *s, size_t channel, size_t column, text_slice name) {
    s->want[channel] = column;
    s->names[channel] = name;
}

/* Takes the columns whose first number is one, or empty, which is a fault that the reading then tells. */
static inline void series_choose(series *s, text_slice header, text_slice first) {
    text_slice name, cell;
    double number;
    for (size_t column = 1; column <= s->columns; column++) {
        series_cut(&header, &name);
        series_cut(&first, &cell);
        cell = series_bare(cell);
        if (!cell.n || text_number(cell, &number)) series_take(s, s->channels++, column, series_bare(name));
    }
}

/* A name in the first line, and is its column one of those that are taken? */
typedef struct series_name { text_slice name; int taken; } series_name;

static inline int series_order(const void *a, const void *b) {
    const text_slice x = ((const series_name *)a)->name, y = ((const series_name *)b)->name;
    size_t n = x.n < y.n ? x.n : y.n;
    int order = n ? memcmp(x.at, y.at, n) : 0;
    return order ? order : (x.n > y.n) - (x.n < y.n);
}

/* Is every column that was taken the only one of its name? By that it is looked for in another file. */
static inline int series_single(const series *s, text_slice header, char *error) {
    series_name *all = (series_name *)text_memory(NULL, s->columns, 1, sizeof *all);
    size_t taken = 0, i;
    int fine = 1;
    if (!all) return text_fail(error, "no memory for %zu columns", s->columns);
    for (i = 0; i < s->columns; i++) {
        series_cut(&header, &all[i].name);
        all[i].name = series_bare(all[i].name);
        all[i].taken = taken < s->channels && s->want[taken] == i + 1;
        taken += (size_t)all[i].taken;
    }
    qsort(all, s->columns, sizeof *all, series_order);
    for (i = 1; fine && i < s->columns; i++) {
        text_slice name = all[i].name;
        if (!all[i].taken && !all[i - 1].taken) continue;
        if (!text_same(name, all[i - 1].name)) continue;
        fine = text_fail(error, "the first line has two columns \"%.*s\"", name.n < 200 ? (int)name.n : 200,
                         name.at);
    }
    free(all);
    return fine;
}

enum { SERIES_NAMED = 4096 }; /* columns that may be named: each is looked for in the whole header */

/* Takes the columns called `names`, in that order. */
static inline int series_find(series *s, text_slice header, const text_slice *names, size_t n, char *error) {
    if (n > SERIES_NAMED) return text_fail(error, "%zu columns are named, %d may be", n, (int)SERIES_NAMED);
    for (size_t i = 0; i < n; i++) {
        text_slice rest = header, name;
        size_t column = 0, found = 0;
        int more = 1, shown = (int)(names[i].n < 200 ? names[i].n : 200);
        while (more) {
            more = series_cut(&rest, &name);
            column++;
            if (!text_same(series_bare(name), names[i])) continue;
            if (found)
                return text_fail(error, "the first line has two columns \"%.*s\"", shown, names[i].at);
            found = column;
            series_take(s, i, column, series_bare(name));
        }
        if (!found) return text_fail(error, "the first line has no column \"%.*s\"", shown, names[i].at);
    }
    s->channels = n;
    return 1;
}

/* Reads the numbers of a line, cells [columns] being scratch. */
static inline int series_row(const series *s, text_slice row, size_t line, text_slice *cells, char *error) {
    size_t found = series_columns(row), c;
    if (found != s->columns)
        return text_fail(error, "line %zu has %zu columns, the first line %zu", line, found, s->columns);
    for (c = 0; c < found; c++) series_cut(&row, &cells[c]);
    for (c = 0; c < s->channels; c++) {
        text_slice cell = series_bare(cells[s->want[c] - 1]), name = s->names[c];
        double *x = &s->x[s->steps * s->channels + c];
        int shown = (int)(name.n < 100 ? name.n : 100), cut = (int)(cell.n < 40 ? cell.n : 40);
        if (!text_number(cell, x))
            return text_fail(error, "line %zu, column %.*s: \"%.*s\" is not a number", line, shown, name.at,
                             cut, cell.at);
        if (!isfinite(*x))
            return text_fail(error, "line %zu, column %.*s: %.*s is not finite", line, shown, name.at, cut,
                             cell.at);
    }
    return 1;
}

/* Reads header and rows of s->text; memory is there for `lines` lines. */
static inline int series_rows(series *s, const char *at, const char *end, const text_slice *names, size_t n,
                              char *error) {
    size_t lines = 1, line = 1, rows, most;
    text_slice header, first = {NULL, 0}, *cells;
    const char *next;
    int fine = 1;
    for (next = at; next < end; next++) lines += *next == '\n';
    next = at;
    header = text_line(&next, end);
    at = next;
    if (next) first = text_line(&next, end);
    s->columns = series_columns(header);
    if (first.n && series_columns(first) != s->columns)
        return text_fail(error, "line 2 has %zu columns, the first line %zu", series_columns(first),
                         s->columns);
    most = n > s->columns ? n : s->columns;
    s->names = (text_slice *)text_memory(NULL, most, 1, sizeof *s->names);
    s->want = (size_t *)text_memory(NULL, most, 1, sizeof *s->want);
    if (!s->names || !s->want) return text_fail(error, "no memory for %zu columns", most);
    if (!first.n) return text_fail(error, "there are no rows below the first line");
    if (!names) series_choose(s, header, first);
    else if (!series_find(s, header, names, n, error)) return 0;
    if (!s->channels) return text_fail(error, "no column has numbers; line 2 tells which do");
    rows = (size_t)(end - at) / s->columns + 1; /* a row has a byte for each column, but maybe for the last */
    rows = lines < rows ? lines : rows;
    s->x = (double *)text_memory(NULL, rows, s->channels, sizeof *s->x);
    cells = (text_slice *)text_memory(NULL, s->columns, 1, sizeof *cells);
    if (!s->x || !cells) fine = text_fail(error, "no memory for %zu rows", rows);
    while (fine && at) {
        text_slice row = text_line(&at, end);
        line++;
        if (!row.n && !at) break; /* an empty line at the end */
        fine = series_row(s, row, line, cells, error);
        s->steps += (size_t)fine;
    }
    free(cells);
    if (fine && !names) fine = series_single(s, header, error);
    return fine;
}

/* Reads a CSV out of a text of malloc, which the series owns from now on, whatever happens: the columns
   called names[n], or without names (NULL) those that have a number in the second line, each the only one of
   its name. Every line needs as
   many columns as the first, every wanted cell a finite number. `path` is for the error line. Memory is
   bounded by a multiple of the text's size where no name comes twice. */
static inline int series_parse(series *s, char *text, size_t bytes, const char *path, const text_slice *names,
                               size_t n, char *error) {
    char why[TEXT_ERROR - 80];
    const char *at = text;
    memset(s, 0, sizeof *s);
    s->text = text;
    if (bytes >= 3 && !memcmp(at, "\xEF\xBB\xBF", 3)) at += 3;
    if (at == text + bytes) text_fail(error, "there is nothing in it");
    else if (series_rows(s, at, text + bytes, names, n, error)) return 1;
    series_close(s);
    snprintf(why, sizeof why, "%.*s", (int)sizeof why - 1, error);
    return text_fail(error, "%s: %s", path + (strlen(path) > 70 ? strlen(path) - 70 : 0), why);
}

/* Loads a CSV of at most `limit` bytes. */
static inline int series_load(series *s, const char *path, size_t limit, const text_slice *names, size_t n,
                              char *error) {
    size_t bytes;
    char *text;
    memset(s, 0, sizeof *s);
    return text_read(path, limit, &text, &bytes, error) &&
           series_parse(s, text, bytes, path, names, n, error);
}

#endif
