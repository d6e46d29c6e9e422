/* text.h - reading matter for programs: tab-separated tables, labels, files that replace others.

   Everything is a static function; there are no globals. Functions that can fail return 1 for success and 0
   for failure, and then `error` (TEXT_ERROR bytes of the caller's) holds one line; a call that failed leaves
   nothing allocated. Closing twice is fine. */
#ifndef TEXT_H
#define TEXT_H

#include "streams.h"

#include <math.h>
#include <sys/stat.h>

enum { TEXT_COLUMNS = 8 }; /* most columns of a table */

/* Some bytes of a text that lives elsewhere; no NUL at the end, and NULs inside are allowed. */
typedef struct text_slice {
    const char *at;
    size_t n;
} text_slice;

static inline int text_same(text_slice a, text_slice b) {
    return a.n == b.n && (!a.n || !memcmp(a.at, b.at, a.n));
}

static inline text_slice text_of(const char *s) {
    text_slice slice;
    slice.at = s, slice.n = strlen(s);
    return slice;
}

/* The slice as a number, blanks around it allowed; 0 where it is none. */
static inline int text_number(text_slice s, double *value) {
    char digits[64], *end;
    if (!s.n || s.n >= sizeof digits) return 0;
    memcpy(digits, s.at, s.n), digits[s.n] = 0;
    *value = strtod(digits, &end);
    return end != digits && end[strspn(end, " \t")] == 0 && end + strspn(end, " \t") == digits + s.n;
}

/* ---- Tables ---- */

/* A file of at most `limit` bytes in memory of malloc; "-" is the standard input. Other pipes are refused: to
   open one could mean to wait for ever. */
static inline int text_read(const char *path, size_t limit, char **text, size_t *bytes, char *error) {
    int standard = !strcmp(path, "-"), failed;
    FILE *file = standard ? stdin : regular_open(path);
    size_t room = 65536, got;
    char *more;
    *text = NULL, *bytes = 0;
    if (!file && *regular_fault(path))
        return text_fail(error, "cannot read %s%s (the standard input is -)", path, regular_fault(path));
    if (!file) return text_fail(error, "cannot open %s", path);
    *text = (char *)malloc(room);
    while (*text && (got = fread(*text + *bytes, 1, room - *bytes, file)) > 0) {
        *bytes += got;
        if (*bytes > limit) break;
        if (*bytes < room) continue;
        more = (char *)text_memory(*text, room, 2, 1);
        room *= 2;
        if (!more) free(*text);
        *text = more;
    }
    failed = ferror(file);
    if (!standard) fclose(file);
    if (*text && !failed && *bytes <= limit) return 1;
    failed = failed ? text_fail(error, "cannot read %s", path)
           : *text  ? text_fail(error, "%s is larger than %.0f MB", path, (double)limit / 1e6)
                    : text_fail(error, "no memory for %s", path);
    free(*text), *text = NULL;
    return failed;
}

/* The wanted columns of a file whose rows are lines and whose columns are separated by tabs. Quotation marks
   are like letters (the GLUE files hold unbalanced ones). A byte order mark and the CR of a CRLF are dropped;
   lines may be of any length. */
typedef struct text_table {
    char *text;
    text_slice *cells;               /* [rows, columns], into text */
    size_t *lines;                   /* [rows]: the line each row stood on, from 1 */
    size_t rows, columns;
    /* lines without all wanted columns make no row: how many, the first; of empty ones apart */
    size_t skipped, first_skipped, empty, first_empty;
} text_table;

static inline void text_table_close(text_table *t) {
    free(t->text), free(t->cells), free(t->lines);
    memset(t, 0, sizeof *t);
}

static inline text_slice text_cell(const text_table *t, size_t row, size_t column) {
    return t->cells[row * t->columns + column];
}

/* Where the lines of a text begin: behind a byte order mark; NULL where there is none. */
static inline const char *text_lines(const char *text, size_t bytes) {
    size_t mark = bytes >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3) ? 3 : 0;
    return bytes > mark ? text + mark : NULL;
}

/* The line at *at without its end, which is stepped over; *at becomes NULL behind the last one. */
static inline text_slice text_line(const char **at, const char *end) {
    text_slice line;
    const char *stop = (const char *)memchr(*at, '\n', (size_t)(end - *at));
    line.at = *at, line.n = (size_t)((stop ? stop : end) - *at);
    *at = stop && stop + 1 < end ? stop + 1 : NULL;
    if (line.n && line.at[line.n - 1] == '\r') line.n--;
    return line;
}

/* Cuts the first cell off a line; 0 if it was the last one. */
static inline int text_cut_cell(text_slice *line, text_slice *cell) {
    const char *tab = (const char *)memchr(line->at, '\t', line->n);
    *cell = *line;
    if (!tab) return 0;
    cell->n = (size_t)(tab - line->at);
    line->at += cell->n + 1, line->n -= cell->n + 1;
    return 1;
}

/* Cells number want[c] (from 1) of a line; 0 if one is not there. */
static inline int text_cut(text_slice line, const size_t *want, size_t columns, text_slice *cells) {
    size_t number = 1, found = 0, c;
    text_slice cell;
    int more;
    do {
        more = text_cut_cell(&line, &cell);
        for (c = 0; c < columns; c++)
            if (want[c] == number) cells[c] = cell, found++;
    } while (number++, more);
    return found == columns;
}

/* What to say of a line without the columns that are wanted: nothing, unless it has no tab. */
static inline const char *text_parted(text_slice line) {
    if (line.n && memchr(line.at, '\t', line.n)) return "";
    if (line.n && memchr(line.at, ',', line.n)) return "; tabs part columns, and it has none, but commas";
    if (line.n && memchr(line.at, ' ', line.n)) return "; tabs part columns, and it has none, but blanks";
    return "; tabs part columns, and it has none";
}

/* Which columns the names mean. A name of digits is a column's number from 1; any other name is looked for in
   the first line, which is then a header and has it once. *header tells. */
static inline int text_header(text_slice line, const char *const *names, size_t columns, size_t *want,
                              int *header, char *error) {
    size_t c, number;
    text_slice rest, cell;
    int more;
    *header = 0;
    for (c = 0; c < columns; c++) {
        want[c] = 0;
        if (names[c][0] && !names[c][strspn(names[c], "0123456789")]) {
            want[c] = (size_t)strtoul(names[c], NULL, 10);
            if (!want[c]) return text_fail(error, "columns are counted from 1");
            continue;
        }
        *header = 1;
        for (rest = line, number = 1, more = 1; more; number++) {
            more = text_cut_cell(&rest, &cell);
            if (!text_same(cell, text_of(names[c]))) continue;
            if (want[c]) return text_fail(error, "the first line has two columns \"%s\"", names[c]);
            want[c] = number;
        }
        if (!want[c])
            return text_fail(error, "the first line has no column \"%s\"%s", names[c], text_parted(line));
    }
    return 1;
}

/* The columns called names[columns] of a text of malloc, which the table owns from now on, whatever happens.
   `path` is for the error line. */
static inline int text_table_parse(text_table *t, char *text, size_t bytes, const char *path,
                                   const char *const *names, size_t columns, char *error) {
    size_t want[TEXT_COLUMNS] = {0}, rows = 1, line, i;
    const char *at = text_lines(text, bytes), *end = text + bytes;
    int header;
    char why[TEXT_ERROR - 80];
    text_slice skipped = {NULL, 0};
    memset(t, 0, sizeof *t);
    t->text = text;
    if (!columns || columns > TEXT_COLUMNS)
        return text_table_close(t),
               text_fail(error, "%s: %zu columns: 1 to %d can be read", path, columns, TEXT_COLUMNS);
    for (i = 0; i < bytes; i++) rows += t->text[i] == '\n';
    t->cells = (text_slice *)text_memory(NULL, rows, columns, sizeof *t->cells);
    t->lines = (size_t *)text_memory(NULL, rows, 1, sizeof *t->lines);
    t->columns = columns;
    if (!t->cells || !t->lines) return text_table_close(t), text_fail(error, "no memory for %s", path);
    for (line = 1; at; line++) {
        text_slice row = text_line(&at, end);
        if (line == 1) {
            if (!text_header(row, names, columns, want, &header, error)) {
                snprintf(why, sizeof why, "%.*s", (int)sizeof why - 1, error);
                return text_table_close(t),
                       text_fail(error, "%s: %s", path + (strlen(path) > 70 ? strlen(path) - 70 : 0), why);
            }
            if (header) continue;
        }
        if (text_cut(row, want, columns, t->cells + t->rows * columns)) t->lines[t->rows++] = line;
        else if (!row.n && !t->empty++) t->first_empty = line;
        else if (row.n && !t->skipped++) t->first_skipped = line, skipped = row;
    }
    if (t->rows || !t->skipped || !*text_parted(skipped)) return 1;
    snprintf(why, sizeof why, "line %zu has not %zu columns%s", t->first_skipped, columns,
             text_parted(skipped));
    return text_table_close(t),
           text_fail(error, "%s: %s", path + (strlen(path) > 70 ? strlen(path) - 70 : 0), why);
}

/* What is left out of a table as a line in `left`; 0 where that is nothing. */
static inline int text_table_left(const text_table *t, const char *path, char *left) {
    if (t->skipped)
        text_fail(left, "%.200s has %zu lines without all columns, the first is line %zu", path, t->skipped,
                  t->first_skipped);
    return t->skipped > 0;
}

/* Loads the columns called names[columns] of a file of at most `limit` bytes.
   A file without rows is no failure. */
static inline int text_table_load(text_table *t, const char *path, size_t limit, const char *const *names,
                                  size_t columns, char *error) {
    size_t bytes;
    char *text;
    memset(t, 0, sizeof *t);
    return text_read(path, limit, &text, &bytes, error) &&
           text_table_parse(t, text, bytes, path, names, columns, error);
}

/* ---- Files that replace others ---- */

/* rename that replaces an old file everywhere: Windows' own refuses to. */
static inline int text_replace(const char *from, const char *to) {
#ifdef _WIN32
    (void)remove(to);
#endif
    return rename(from, to) == 0;
}

/* Are these paths one file or folder that is there? */
static inline int text_same_file(const char *a, const char *b) {
    struct stat x, y;
    return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino &&
           x.st_ino; /* 0: a system without such numbers */
}

/* The length of a path's folder, its slash included. */
static inline size_t text_folder(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

/* Would two paths name one file, whether it is there already or not? */
static inline int text_same_place(const char *a, const char *b) {
    size_t n = text_folder(a), m = text_folder(b);
    char folder[2][4200];
    if (!strcmp(a, b) || text_same_file(a, b)) return 1;
    snprintf(folder[0], sizeof folder[0], "./%.*s", (int)n, a);
    snprintf(folder[1], sizeof folder[1], "./%.*s", (int)m, b);
    return !strcmp(a + n, b + m) && text_same_file(*a == '/' ? folder[0] + 2 : folder[0],
                                                   *b == '/' ? folder[1] + 2 : folder[1]);
}

/* What a save to `path` replaces, to be freed: the path, or the file that a link there names. NULL where that
   is no regular file. *mode gets the permissions of an old file, 0 of a new one. */
static inline char *text_replaced(const char *path, int *mode) {
    size_t size = strlen(path) + 1;
    struct stat about;
    char *copy;
    *mode = 0;
#ifndef _WIN32
    if ((copy = realpath(path, NULL)) != NULL || (lstat(path, &about) == 0 && S_ISLNK(about.st_mode))) {
        if (copy && stat(copy, &about) == 0 && S_ISREG(about.st_mode))
            return *mode = about.st_mode & 0777, copy;
        return free(copy), NULL;
    }
#else
    if (stat(path, &about) == 0 && !S_ISREG(about.st_mode)) return NULL;
#endif
    copy = (char *)malloc(size);
    return copy ? (char *)memcpy(copy, path, size) : NULL;
}

/* May a file be saved to `path` later? To find out before the work that is to be kept. */
static inline int text_may_save(const char *path, char *error) {
    int mode;
    char *target = text_replaced(path, &mode), *slash = target ? strrchr(target, '/') : NULL;
    if (slash) slash[1] = 0;
    int may = *path && target && !access(slash ? target : ".", W_OK);
    free(target);
    return may || text_fail(error, "cannot write %s", path);
}

/* Opens a file that nothing else has, beside the one that it is to replace; `name` gets its path. */
static inline FILE *text_own_file(const char *path, char *name, size_t size, int mode) {
    FILE *file = NULL;
    int fd = -1, tries;
    for (tries = 0; fd < 0 && tries < 1000; tries++) {
        snprintf(name, size, "%s.%lx.%d.tmp", path, (unsigned long)getpid(), tries);
        fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0666);
    }
#ifdef _WIN32
    (void)mode;
#else
    if (fd >= 0 && mode) (void)!fchmod(fd, (mode_t)mode);
#endif
    if (fd >= 0 && !(file = fdopen(fd, "wb"))) close(fd), (void)remove(name);
    return file;
}

/* A file that appears under its name when it is whole: the old one or the new one is there, and of several at
   once the last one's stays. Links and permissions of an old one stay. */
typedef struct text_file { FILE *file; char *target, *name; const char *path; } text_file;

static inline int text_begin(text_file *f, const char *path, char *error) {
    int mode;
    size_t size;
    memset(f, 0, sizeof *f), f->path = path;
    f->target = text_replaced(path, &mode), size = f->target ? strlen(f->target) + 40 : 0;
    f->name = (char *)malloc(size + 1);
    if (f->target && f->name) f->file = text_own_file(f->target, f->name, size, mode);
    if (f->file) return 1;
    free(f->target), free(f->name), memset(f, 0, sizeof *f);
    return text_fail(error, "cannot write %s", path);
}

/* Closes it: whole = 1 puts it in its place if every write to it went well; 0 removes it, `error` stays. */
static inline int text_end(text_file *f, int whole, char *error) {
    int bad;
    if (!f->file) return whole;
    bad = fflush(f->file) != 0 || ferror(f->file);
#ifndef _WIN32
    bad = bad || (whole && fsync(fileno(f->file)) != 0);
#endif
    bad |= fclose(f->file) != 0;
    bad = bad || (whole && !text_replace(f->name, f->target));
    if (bad || !whole) (void)remove(f->name);
    if (bad && whole) text_fail(error, "cannot write %s", f->path);
    free(f->target), free(f->name), memset(f, 0, sizeof *f);
    return whole && !bad;
}

/* Copies a file in place of another. */
static inline int text_copy_file(const char *from, const char *to, char *error) {
    char block[4096];
    text_file copy;
    FILE *source = regular_open(from);
    int done = source && text_begin(&copy, to, error);
    size_t n;
    if (done) {
        while ((n = fread(block, 1, sizeof block, source)) > 0)
            if (fwrite(block, 1, n, copy.file) != n) break;
        done = text_end(&copy, !ferror(source), error);
    }
    if (source) fclose(source);
    return done || text_fail(error, "cannot copy %.200s to %.200s", from, to);
}

/* ---- Labels ---- */

/* The names of the classes, in the order of their numbers; they point into a table. */
typedef struct text_labels {
    text_slice *names;
    size_t n;
    text_table table; /* of text_labels_load; zeroed otherwise */
} text_labels;

static inline void text_labels_close(text_labels *l) {
    text_table_close(&l->table), free(l->names);
    memset(l, 0, sizeof *l);
}

/* The class of a name; -1 if there is none. */
static inline int32_t text_label(const text_labels *l, text_slice name) {
    size_t i;
    for (i = 0; i < l->n; i++)
        if (text_same(l->names[i], name)) return (int32_t)i;
    return -1;
}

/* Numbers before other names, by value; other names by their bytes */
static inline int text_before(text_slice a, text_slice b) {
    double x = 0, y = 0;
    int p = text_number(a, &x), q = text_number(b, &y), order;
    if (p != q) return p;
    if (p && (x < y || x > y)) return x < y;
    order = memcmp(a.at, b.at, a.n < b.n ? a.n : b.n);
    return order ? order < 0 : a.n < b.n;
}

/* The different names in a column of a table, which must stay; sorted, so that they do
   not depend on the order of the rows. */
static inline int text_labels_collect(text_labels *l, const text_table *t, size_t column, size_t most,
                                      char *error) {
    size_t row, i;
    memset(l, 0, sizeof *l);
    l->names = (text_slice *)text_memory(NULL, most + 1, 1, sizeof *l->names);
    if (!l->names) return text_fail(error, "no memory for %zu labels", most);
    for (row = 0; row < t->rows; row++) {
        text_slice name = text_cell(t, row, column);
        if (text_label(l, name) >= 0) continue;
        if (name.n && name.at[name.n - 1] == '\r') /* text_labels_load would take it for a line's end */
            return text_labels_close(l),
                   text_fail(error, "line %zu: a label ends in a carriage return", t->lines[row]);
        if (l->n == most)
            return text_labels_close(l), text_fail(error, "there are more than %zu different labels", most);
        for (i = l->n++; i > 0 && text_before(name, l->names[i - 1]); i--) l->names[i] = l->names[i - 1];
        l->names[i] = name;
    }
    return 1;
}

/* Class numbers, or where l is NULL the numbers themselves, all finite, of a column: values
   [rows]. `path` is for the error line. */
static inline int text_values(const text_table *t, size_t column, const text_labels *l, const char *path,
                              double *values, char *error) {
    size_t row;
    for (row = 0; row < t->rows; row++) {
        text_slice cell = text_cell(t, row, column);
        if (l ? (values[row] = text_label(l, cell)) >= 0
              : text_number(cell, values + row) && isfinite(values[row])) continue;
        return text_fail(error, "%.200s, line %zu: \"%.*s\" is no %s", path, t->lines[row],
                         cell.n < 60 ? (int)cell.n : 60, cell.at,
                         l ? "label that the model knows" : "number");
    }
    return 1;
}

/* Weights of the classes from "balanced" (n / (classes * count), over values[order[0 ..
   n)]) or "1,2.5,..", one for each. */
static inline int text_weights(const char *list, const double *values, const size_t *order, size_t n,
                               size_t classes, double *weights, char *error) {
    const char *at = list;
    size_t i;
    for (i = 0; i < classes; i++) weights[i] = 0;
    if (!strcmp(list, "balanced")) {
        for (i = 0; i < n; i++) weights[(size_t)values[order[i]]]++;
        for (i = 0; i < classes; i++)
            weights[i] = (double)n / ((double)classes * (weights[i] > 0 ? weights[i] : 1));
        return 1;
    }
    for (i = 0; i < classes; i++, at++) {
        char *end;
        weights[i] = strtod(at, &end);
        if (end == at || !(weights[i] >= 0 && weights[i] < 1e30) || *end != (i + 1 < classes ? ',' : 0))
            break;
        at = end;
    }
    return i == classes ? 1 : text_fail(error, "not a weight for each of %zu classes: %.100s", classes, list);
}

/* Writes a line for each name. */
static inline int text_labels_save(const text_labels *l, const char *path, char *error) {
    text_file f;
    size_t i;
    if (!text_begin(&f, path, error)) return 0;
    for (i = 0; i < l->n; i++) {
        fwrite(l->names[i].at, 1, l->names[i].n, f.file);
        putc('\n', f.file);
    }
    return text_end(&f, 1, error);
}

/* What text_labels_save wrote: no name comes twice. */
static inline int text_labels_load(text_labels *l, const char *path, char *error) {
    static const char *const first = "1";
    size_t i;
    memset(l, 0, sizeof *l);
    if (!text_table_load(&l->table, path, (size_t)1 << 24, &first, 1, error)) return 0;
    l->names = (text_slice *)text_memory(NULL, l->table.rows + 1, 1, sizeof *l->names);
    if (!l->names) return text_labels_close(l), text_fail(error, "no memory for %s", path);
    for (i = 0; i < l->table.rows; i++) {
        text_slice name = text_cell(&l->table, i, 0);
        if (text_label(l, name) >= 0) {
            text_fail(error, "%.200s, line %zu: this class stands above", path, l->table.lines[i]);
            text_labels_close(l);
            return 0;
        }
        l->names[l->n++] = name;
    }
    return 1;
}

#endif
