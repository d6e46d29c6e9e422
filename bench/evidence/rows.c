/* rows.c - a claim's rows as a CSV file (RFC 4180, a line a row), locks between processes. */
#include "program.h"

#include <errno.h>
#include <math.h>

#ifndef EVIDENCE_COMMIT
#define EVIDENCE_COMMIT "unknown"
#endif

enum { LIMIT = 1 << 28 }; /* bytes of a CSV */

#define NAME_OF(name) #name,
static const char *const column_names[] = {EVIDENCE_COLUMNS(NAME_OF)};
#undef NAME_OF

static int path_of(char path[1024], const char *results, const evidence_claim *claim, const char *ending,
                   char *error) {
    int n = snprintf(path, 1024, "%s/%s%s", results, claim->name, ending);
    return (n > 0 && n < 1024) || evidence_fail(error, "too long a path: %.100s", results);
}

/* ---- Reading ---- */

/* Cuts the next line into cells, unquoted in place. Returns how many, -1 where the line is cut or quotation
   marks do not match. */
static int cut_line(char **at, const char *end, const char *cell[COLUMNS + 1]) {
    char *s = *at, *out;
    int n = 0, more = 1;
    for (; more; s++) {
        int quoted = s < end && *s == '"';
        if (n == COLUMNS + 1) return -1;
        cell[n++] = out = s, s += quoted;
        for (;; s++) {
            if (s >= end || !*s || (!quoted && *s == '"')) return -1;
            if (quoted && *s == '"' && s[1] == '"') s++;
            else if (quoted ? *s == '"' : *s == ',' || *s == '\n' || *s == '\r') break;
            *out++ = *s;
        }
        s += quoted;
        if (s < end && *s == '\r' && s[1] == '\n') s++;
        if (s >= end || (*s != ',' && *s != '\n')) return -1;
        more = *s == ',', *out = 0;
    }
    *at = s;
    return n;
}

static int read_number(const char *s, double *value) {
    char *end;
    *value = strtod(s, &end);
    return *s && !*end;
}

/* Reads "name=value;name=value". */
static int read_measures(const char *s, evidence_result *r) {
    char name[32], number[64];
    for (; *s; s += *s == ';') {
        size_t n = strcspn(s, "="), m;
        if (n > 31 || s[n] != '=') return 0;
        memcpy(name, s, n), name[n] = 0, s += n + 1, m = strcspn(s, ";");
        if (m > 63) return 0;
        memcpy(number, s, m), number[m] = 0, s += m;
        double value;
        if (!read_number(number, &value) || !evidence_add(r, name, value)) return 0;
    }
    return 1;
}

/* Reads "step:loss;step:loss". */
static int read_curve(const char *s, evidence_result *r) {
    char *end;
    for (; *s; s += *s == ';') {
        double step = strtod(s, &end);
        if (end == s || *end != ':' || !(step >= 0 && step < 1e15)) return 0;
        double loss = strtod(s = end + 1, &end);
        if (end == s || (*end && *end != ';') || !evidence_point(r, (size_t)step, loss)) return 0;
        s = end;
    }
    return 1;
}

static int known_part(const evidence_claim *claim, const char *name) {
    for (size_t i = 0; i < claim->n_parts; i++)
        if (!strcmp(claim->parts[i].name, name)) return 1;
    return 0;
}

static int known_variant(const evidence_claim *claim, const char *name) {
    for (size_t i = 0; i < claim->n_variants; i++)
        if (!strcmp(claim->variants[i].name, name)) return 1;
    return 0;
}

static int has_measure(const evidence_result *r, const char *name) {
    for (size_t i = 0; i < r->n; i++)
        if (!strcmp(r->measures[i].name, name)) return 1;
    return 0;
}

/* What a row says in numbers; NULL, or the column that is wrong. */
static const char *read_row(evidence_row *row, const evidence_claim *claim) {
    double parameters;
    if (strcmp(row->cell[COLUMN_claim], claim->name) != 0) return "claim";
    if (!known_part(claim, row->cell[COLUMN_part])) return "part";
    if (!known_variant(claim, row->cell[COLUMN_variant])) return "variant";
    if (!text_whole(row->cell[COLUMN_seed], &row->seed)) return "seed";
    if (!read_number(row->cell[COLUMN_rate], &row->rate) || !(row->rate > 0)) return "rate";
    if (strcmp(row->cell[COLUMN_chosen], "0") != 0 && strcmp(row->cell[COLUMN_chosen], "1") != 0)
        return "chosen";
    row->chosen = *row->cell[COLUMN_chosen] == '1';
    if (!read_number(row->cell[COLUMN_seconds], &row->seconds) || !(row->seconds >= 0)) return "seconds";
    if (!read_number(row->cell[COLUMN_parameters], &parameters) || !(parameters >= 0)) return "parameters";
    if (!read_number(row->cell[COLUMN_tokens], &row->result.tokens)) return "tokens";
    row->result.parameters = (size_t)parameters;
    if (!read_measures(row->cell[COLUMN_measures], &row->result)) return "measures";
    if (!has_measure(&row->result, claim->measure)) return "measures";
    return read_curve(row->cell[COLUMN_curve], &row->result) ? NULL : "curve";
}

/* Is the first line the columns' names? */
static int read_head(char **at, const char *end) {
    const char *cell[COLUMNS + 1];
    if (cut_line(at, end, cell) != COLUMNS) return 0;
    for (int i = 0; i < COLUMNS; i++)
        if (strcmp(cell[i], column_names[i]) != 0) return 0;
    return 1;
}

static int read_rows(evidence_table *table, size_t bytes, const char *path, const evidence_claim *claim,
                     char *error) {
    char *at = table->text;
    const char *end = at + bytes, *wrong;
    size_t room = 0, line = 2;
    if (!read_head(&at, end)) return evidence_fail(error, "%s: line 1 does not name the columns", path);
    for (; at < end; line++) {
        if (table->n == room) {
            void *more = text_memory(table->rows, room = 2 * room + 16, 1, sizeof *table->rows);
            if (!more) return evidence_fail(error, "no memory for %s", path);
            table->rows = (evidence_row *)more;
        }
        evidence_row *row = &table->rows[table->n++];
        const char *cell[COLUMNS + 1];
        memset(row, 0, sizeof *row);
        if (cut_line(&at, end, cell) != COLUMNS)
            return evidence_fail(error, "%s: line %zu is cut or broken", path, line);
        memcpy(row->cell, cell, sizeof row->cell), row->line = line;
        if ((wrong = read_row(row, claim)) != NULL)
            return evidence_fail(error, "%s: line %zu has no valid %s", path, line, wrong);
        for (const evidence_row *other = table->rows; other < row; other++)
            if (other->seed == row->seed && !(other->rate < row->rate) && !(other->rate > row->rate) &&
                !strcmp(other->cell[COLUMN_part], row->cell[COLUMN_part]) &&
                !strcmp(other->cell[COLUMN_variant], row->cell[COLUMN_variant]))
                return evidence_fail(error, "%s: line %zu repeats the run of line %zu", path, line,
                                     other->line);
    }
    return 1;
}

int rows_load(evidence_table *table, const char *results, const evidence_claim *claim, char *error) {
    char path[1024];
    size_t bytes;
    memset(table, 0, sizeof *table);
    if (!path_of(path, results, claim, ".csv", error)) return 0;
    if (access(path, F_OK) && errno == ENOENT) return 1;
    if (!text_read(path, LIMIT, &table->text, &bytes, error)) return 0;
    if (read_rows(table, bytes, path, claim, error)) return 1;
    rows_close(table);
    return 0;
}

void rows_close(evidence_table *table) {
    free(table->text), free(table->rows);
    memset(table, 0, sizeof *table);
}

const evidence_row *rows_find(const evidence_table *table, const evidence_part *part,
                              const evidence_variant *variant, uint64_t seed, double rate) {
    for (const evidence_row *row = table->rows; row < table->rows + table->n; row++)
        if (row->seed == seed && (!(rate > 0) || fabs(row->rate - rate) <= 1e-8 * rate) &&
            !strcmp(row->cell[COLUMN_part], part->name) && !strcmp(row->cell[COLUMN_variant], variant->name))
            return row;
    return NULL;
}

double rows_measure(const evidence_row *row, const char *name) {
    for (size_t i = 0; i < row->result.n; i++)
        if (!strcmp(row->result.measures[i].name, name)) return row->result.measures[i].value;
    return NAN;
}

/* The loss at the end of a row's curve: what tells rates apart that solve nothing, or all. */
static double last_loss(const evidence_row *row) {
    double loss = row->result.points ? row->result.curve[row->result.points - 1].loss : INFINITY;
    return isfinite(loss) ? loss : INFINITY;
}

double rows_rate(const evidence_table *table, const evidence_claim *claim, const evidence_part *part,
                 const evidence_variant *variant) {
    const evidence_variant *like = evidence_like(claim, variant);
    char line[EVIDENCE_ERROR], by[64];
    evidence_run run;
    static const int order[] = {1, 0, 2}; /* of equals the middle one counts, then the lowest */
    double best = NAN, loss = NAN, rate = 0;
    if (!like) return 0;
    if (!(claim->rates[1] > 0)) return claim->rates[0];
    memset(&run, 0, sizeof run);
    run.claim = claim, run.part = part, run.variant = variant, run.error = line;
    if (!evidence_word(&run, "choose", by)) snprintf(by, sizeof by, "%s", claim->measure);
    for (int i = 0; i < 3; i++) {
        double one = claim->rates[order[i]];
        if (!(one > 0)) continue; /* 0 would find any row */
        const evidence_row *row = rows_find(table, part, like, 0, one);
        if (!row) return 0;
        double value = rows_measure(row, by), last = last_loss(row);
        if (isnan(value) || (!isnan(best) && (claim->higher ? value < best : value > best))) continue;
        int tied = !isnan(best) && !(claim->higher ? value > best : value < best);
        if (tied && !(last < loss)) continue;
        best = value, loss = last, rate = one;
    }
    return rate > 0 ? rate : claim->rates[1];
}

size_t rows_seeds(const evidence_table *table, const evidence_claim *claim, const evidence_part *part,
                  const evidence_variant *variant) {
    size_t n = 0;
    double rate = rows_rate(table, claim, part, variant);
    for (uint64_t seed = 1; rate > 0 && seed <= claim->seeds; seed++)
        n += rows_find(table, part, variant, seed, rate) != NULL;
    return n;
}

/* ---- Writing ---- */

/* Writes a cell, quoted where it has to be; line ends become blanks, so that a row stays a line. */
static void put_cell(FILE *file, const char *s, int last) {
    int quote = s[strcspn(s, ",\"\r\n")] != 0;
    if (quote) putc('"', file);
    for (; *s; s++) {
        if (*s == '"') putc('"', file);
        putc(*s == '\n' || *s == '\r' ? ' ' : *s, file);
    }
    if (quote) putc('"', file);
    putc(last ? '\n' : ',', file);
}

static void put_number(FILE *file, double value) { fprintf(file, "%.9g,", value); }

/* Appends words NAME=VALUE of the fields that are not as the table has them. */
static void put_fields(FILE *file, cmha_table table, const void *config, const void *initial,
                       const char *before) {
    char value[64], usual[64];
    for (size_t i = 0; i < table.count; i++) {
        cmha_config_get(table, config, table.fields[i].name, value, sizeof value);
        cmha_config_get(table, initial, table.fields[i].name, usual, sizeof usual);
        if (strcmp(value, usual) != 0) fprintf(file, "%s%s=%s ", before, table.fields[i].name, value);
    }
}

/* Every setting that is not a default, and the words that are the claim's or the program's own; the caller
   frees them. NULL: no memory. */
static char *settings_text(const evidence_run *run) {
    char *text = NULL, program[64];
    size_t n;
    cmha_model_config model, model0;
    cmha_trainer_config trainer, trainer0;
    cmha_config_defaults(cmha_model_table(), &model0);
    cmha_config_defaults(cmha_trainer_table(), &trainer0);
    FILE *file = open_memstream(&text, &n);
    if (!file) return NULL;
    if (evidence_word(run, "program", program)) fprintf(file, "lr=%.9g ", run->rate);
    else if (evidence_configure(run, NULL, &model, &trainer)) {
        put_fields(file, cmha_model_table(), &model, &model0, "");
        put_fields(file, cmha_trainer_table(), &trainer, &trainer0, "trainer.");
    }
    fprintf(file, "; %s; %s", run->part->settings, run->variant->settings);
    if (!fclose(file)) return text;
    return free(text), NULL;
}

int rows_current(const evidence_row *row, const evidence_claim *claim) {
    char line[EVIDENCE_ERROR];
    evidence_run run;
    memset(&run, 0, sizeof run);
    run.claim = claim, run.rate = row->rate, run.error = line;
    for (size_t i = 0; i < claim->n_parts; i++)
        if (!strcmp(claim->parts[i].name, row->cell[COLUMN_part])) run.part = &claim->parts[i];
    for (size_t i = 0; i < claim->n_variants; i++)
        if (!strcmp(claim->variants[i].name, row->cell[COLUMN_variant])) run.variant = &claim->variants[i];
    char *now = settings_text(&run);
    int same = !now || !strcmp(now, row->cell[COLUMN_settings]);
    free(now);
    return same;
}

static int put_row(FILE *file, const evidence_about *about, const evidence_result *result) {
    const evidence_run *run = about->run;
    char *settings = settings_text(run), line[1024], blas[64];
    const char *compiler =
#ifdef __VERSION__
        __VERSION__;
#else
        "unknown";
#endif
    fprintf(file, "%s,%s,%s,%llu,", run->claim->name, run->part->name, run->variant->name,
            (unsigned long long)about->seed);
    put_number(file, run->rate);
    fprintf(file, "%d,%d,%zu,", about->chosen, run->threads, result->parameters);
    put_number(file, result->tokens), fprintf(file, "%.1f,", about->seconds);
    for (size_t i = 0; i < result->n; i++)
        fprintf(file, "%s%s=%.9g", i ? ";" : "", result->measures[i].name, result->measures[i].value);
    putc(',', file);
    for (size_t i = 0; i < result->points; i++)
        fprintf(file, "%s%zu:%.9g", i ? ";" : "", result->curve[i].step, result->curve[i].loss);
    putc(',', file);
    if (settings) put_cell(file, settings, 0);
    put_cell(file, cmha_version(), 0), put_cell(file, EVIDENCE_COMMIT, 0);
    put_cell(file, cmha_blas_name(blas, sizeof blas), 0), put_cell(file, cmha_instructions(NULL), 0);
    put_cell(file, compiler, 0);
    const char *rows = evidence_rows_path;
    snprintf(line, sizeof line, "%.200s row %s %s %s %llu %.9g%s%.400s", evidence_command,
             run->claim->name, run->part->name, run->variant->name, (unsigned long long)about->seed,
             run->rate, rows ? " --rows " : "", rows ? rows : "");
    put_cell(file, line, 1);
    free(settings);
    return settings != NULL;
}

/* Takes the lock on byte `at` of results/CLAIM.lock. */
static int lock_byte(const char *results, const evidence_claim *claim, size_t at, int wait, int *fd,
                     char *error) {
    char path[1024];
    struct flock lock;
    int got;
    if (!path_of(path, results, claim, ".lock", error)) return -1;
    if ((*fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666)) < 0)
        return evidence_fail(error, "cannot write %s", path), -1;
    memset(&lock, 0, sizeof lock);
    lock.l_type = F_WRLCK, lock.l_whence = SEEK_SET, lock.l_start = (off_t)at, lock.l_len = 1;
    while ((got = fcntl(*fd, wait ? F_SETLKW : F_SETLK, &lock)) < 0 && errno == EINTR) continue;
    if (got == 0) return 1;
    got = errno == EAGAIN || errno == EACCES ? 0 : -1;
    close(*fd), *fd = -1;
    if (got < 0) evidence_fail(error, "cannot lock %s", path);
    return got;
}

int rows_lock(const char *results, const evidence_claim *claim, size_t job, int *fd, char *error) {
    return lock_byte(results, claim, job + 1, 0, fd, error);
}

/* Writes the old file's text and the row into a file beside, which takes its place. */
static int replace_with(const char *path, const char *text, size_t bytes, const evidence_about *about,
                        const evidence_result *result, char *error) {
    int mode, bad;
    char name[1100], *target = text_replaced(path, &mode);
    FILE *file = target ? text_own_file(target, name, sizeof name, mode) : NULL;
    if (file && text) fwrite(text, 1, bytes, file);
    if (file && !text)
        for (int i = 0; i < COLUMNS; i++) put_cell(file, column_names[i], i + 1 == COLUMNS);
    bad = !file || !put_row(file, about, result) || ferror(file);
    if (file) {
        bad |= fclose(file) != 0;
        bad = bad || !text_replace(name, target);
        if (bad) (void)remove(name);
    }
    free(target);
    return bad ? evidence_fail(error, "cannot write %s", path) : 1;
}

int rows_append(const char *results, const evidence_about *about, const evidence_result *result,
                char *error) {
    const evidence_run *run = about->run;
    evidence_table table;
    char path[1024], *text = NULL;
    size_t bytes = 0;
    int fd, done;
    if (!path_of(path, results, run->claim, ".csv", error)) return 0;
    /* The run's own lock goes with the first close of that file (POSIX), which is when the row is there. */
    if (lock_byte(results, run->claim, 0, 1, &fd, error) < 1) return 0;
    done = rows_load(&table, results, run->claim, error);
    int there = done && rows_find(&table, run->part, run->variant, about->seed, run->rate);
    rows_close(&table);
    if (done && !there && !access(path, F_OK)) done = text_read(path, LIMIT, &text, &bytes, error);
    if (done && !there) done = replace_with(path, text, bytes, about, result, error);
    free(text), close(fd);
    return done;
}
