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

double rows_last_loss(const evidence_row *row) {
    double loss = row->result.points ? row->result.curve[row->result.points - 1].loss : INFINITY;
    return isfinite(loss) ? loss : INFINITY;
}

/* ---- Rates ---- */

enum { BEYOND = 12, NOTHING = 3, TUNER_SEEDS = 900 }; /* most rates beyond an end; where none learned */

size_t rows_tuners(const evidence_claim *claim) { return claim->tuners ? claim->tuners : 1; }

size_t rows_slots(const evidence_claim *claim) {
    return rows_tuners(claim) * (claim->inside ? 3 + 2 * BEYOND : 3);
}

uint64_t rows_trial_seed(const evidence_claim *claim, size_t slot) {
    size_t tuner = slot % rows_tuners(claim);
    return tuner ? TUNER_SEEDS + tuner : 0;
}

/* The place of a slot in the grid, where 0 to 2 are the claim's own rates: 0, 1, 2, 3, -1, 4, -2, .. */
static int place_of(const evidence_claim *claim, size_t slot) {
    int i = (int)(slot / rows_tuners(claim));
    if (i < 3) return i;
    return i % 2 ? 3 + (i - 3) / 2 : 1 - i / 2;
}

/* The rate of a place, of four digits, as a row has them; 0: there is none. */
static double rate_at(const evidence_claim *claim, int place) {
    char text[32];
    const double *rates = claim->rates;
    if (place >= 0 && place < 3) return rates[place];
    double factor = rates[1] / rates[0];
    double rate = place < 0 ? rates[0] * pow(factor, place) : rates[2] * pow(factor, place - 2);
    snprintf(text, sizeof text, "%.4g", rate);
    return strtod(text, NULL);
}

/* A kind's trials, and by what they are judged. */
typedef struct trials {
    const evidence_table *table;
    const evidence_claim *claim;
    const evidence_part *part;
    const evidence_variant *like;
    char by[64];
    int least;       /* less of it is better, whatever the claim says of its own measure */
    int differ;      /* the rates do not all give the same */
    int missing;     /* some of the claim's three rates is */
    int low, high;   /* places that were tried, without a gap */
    int found, best; /* 0: all diverged; the place of the best */
    double value, loss;
} trials;

/* Finds the mean of a place's trials; 0: some are missing. */
static int try_place(const trials *t, int place, double *value, double *loss) {
    size_t tuners = rows_tuners(t->claim);
    double rate = rate_at(t->claim, place);
    *value = *loss = 0;
    for (size_t i = 0; i < tuners; i++) {
        uint64_t seed = rows_trial_seed(t->claim, i);
        const evidence_row *row = rows_find(t->table, t->part, t->like, seed, rate);
        if (!row) return 0;
        *value += rows_measure(row, t->by) / (double)tuners;
        *loss += rows_last_loss(row) / (double)tuners;
    }
    return 1;
}

/* Takes the place if it is better than the best so far. */
static void take_place(trials *t, int place) {
    double value, loss;
    if (!(rate_at(t->claim, place) > 0)) return; /* 0 would find any row */
    if (!try_place(t, place, &value, &loss)) {
        t->missing = 1;
        return;
    }
    int higher = t->claim->higher && !t->least;
    t->differ |= t->found && (value < t->value || value > t->value || loss < t->loss || loss > t->loss);
    if (isnan(value) || (t->found && (higher ? value < t->value : value > t->value))) return;
    int tied = t->found && !(higher ? value > t->value : value < t->value);
    if (tied && !(loss < t->loss)) return;
    t->found = 1, t->best = place, t->value = value, t->loss = loss;
}

static trials find_trials(const evidence_table *table, const evidence_claim *claim, const evidence_part *part,
                          const evidence_variant *variant) {
    trials t;
    char line[EVIDENCE_ERROR];
    double value, loss;
    evidence_run run;
    memset(&t, 0, sizeof t), memset(&run, 0, sizeof run);
    t.table = table, t.claim = claim, t.part = part, t.like = evidence_like(claim, variant);
    t.high = claim->rates[2] > 0 ? 2 : 1, t.missing = !t.like;
    if (t.missing) return t;
    run.claim = claim, run.part = part, run.variant = variant, run.error = line;
    if (!evidence_word(&run, "choose", t.by)) snprintf(t.by, sizeof t.by, "%s", claim->measure);
    t.least = *t.by == '-';
    if (t.least) memmove(t.by, t.by + 1, strlen(t.by));
    if (claim->inside) {
        while (t.low > -BEYOND && try_place(&t, t.low - 1, &value, &loss)) t.low--;
        while (t.high < 2 + BEYOND && try_place(&t, t.high + 1, &value, &loss)) t.high++;
    }
    take_place(&t, 1); /* of equals the middle one counts, then the lowest */
    for (int place = t.low; place <= t.high; place++)
        if (place != 1) take_place(&t, place);
    return t;
}

const evidence_chance *rows_chance(const evidence_claim *claim, const evidence_part *part, int second) {
    for (const evidence_chance *c = evidence_chances; c->claim; c++)
        if (!strcmp(c->claim, claim->name) && c->second == second &&
            (!*c->part || !strcmp(c->part, part->name))) return c;
    return NULL;
}

int rows_at_chance(const evidence_chance *c, double value) {
    return c->higher ? !(value > 1.01 * c->value) : !(value < 0.99 * c->value);
}

/* Is a place beyond the ends needed next, since the best is at that end? Where no rate learned anything it
   is a lower one, a few times: rates that are too high do not differ, and many a model never learns. */
static int next_place(const trials *t, int *place) {
    if (t->missing || !t->claim->inside) return 0;
    const evidence_chance *c = rows_chance(t->claim, t->part, 0);
    int nothing = !t->found || (c && !strcmp(c->measure, t->by) && rows_at_chance(c, t->value));
    *place = nothing || t->best == t->low ? t->low - 1 : t->high + 1;
    if (nothing) return *place >= -NOTHING;
    if (t->best != t->low && t->best != t->high) return 0;
    return *place >= -BEYOND && *place <= 2 + BEYOND;
}

double rows_trial(const evidence_table *table, const evidence_claim *claim, const evidence_part *part,
                  const evidence_variant *variant, size_t slot) {
    int next, place = place_of(claim, slot);
    if (!(claim->rates[1] > 0)) return 0;
    if (place >= 0 && place < 3) return claim->rates[place];
    trials t = find_trials(table, claim, part, variant);
    int there = place >= t.low && place <= t.high;
    return there || (next_place(&t, &next) && next == place) ? rate_at(claim, place) : 0;
}

double rows_rate(const evidence_table *table, const evidence_claim *claim, const evidence_part *part,
                 const evidence_variant *variant) {
    int next;
    if (!evidence_like(claim, variant)) return 0;
    if (!(claim->rates[1] > 0)) return claim->rates[0];
    trials t = find_trials(table, claim, part, variant);
    if (t.missing || next_place(&t, &next)) return 0;
    return t.found ? rate_at(claim, t.best) : claim->rates[1];
}

int rows_edge(const evidence_table *table, const evidence_claim *claim, const evidence_part *part,
              const evidence_variant *variant) {
    if (!(claim->rates[1] > 0)) return -1;
    trials t = find_trials(table, claim, part, variant);
    if (!t.found || !t.differ) return -1;
    return t.best == t.low || t.best == t.high;
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

const char *rows_compiler(void) {
#ifdef __VERSION__
    return __VERSION__;
#else
    return "unknown";
#endif
}

int rows_origin(FILE *file, const evidence_run *run) {
    char *settings = settings_text(run), blas[64];
    if (settings) put_cell(file, settings, 0);
    put_cell(file, cmha_version(), 0), put_cell(file, EVIDENCE_COMMIT, 0);
    put_cell(file, cmha_blas_name(blas, sizeof blas), 0), put_cell(file, cmha_instructions(NULL), 0);
    put_cell(file, rows_compiler(), 0);
    free(settings);
    return settings != NULL;
}

static int put_row(FILE *file, const evidence_about *about, const evidence_result *result) {
    const evidence_run *run = about->run;
    char line[1024];
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
    int whole = rows_origin(file, run);
    const char *rows = evidence_rows_path;
    snprintf(line, sizeof line, "%.200s row %s %s %s %llu %.9g%s%.400s", evidence_command,
             run->claim->name, run->part->name, run->variant->name, (unsigned long long)about->seed,
             run->rate, rows ? " --rows " : "", rows ? rows : "");
    put_cell(file, line, 1);
    return whole;
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
