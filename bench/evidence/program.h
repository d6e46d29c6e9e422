/* program.h - what the parts of the program share beside evidence.h. evidence.c: the command line, and runs
   in processes of their own. runs.c: settings, starting, training. rows.c: the CSV files. statistics.c:
   paired differences. report.c: README.md, figures, and whether they say what the files say. */
#ifndef EVIDENCE_PROGRAM_H
#define EVIDENCE_PROGRAM_H

#include "../../examples/tools/text.h"
#include "evidence.h"

/* ---- runs.c ---- */

int evidence_name(const char *name); /* is it one, of a measure, claim, part or variant? */
int evidence_reads(const char *name); /* is it a setting of the program itself, as like= is? */
const evidence_variant *evidence_like(const evidence_claim *claim, const evidence_variant *variant);

/* ---- rows.c ---- */

/* The columns of results/CLAIM.csv, in this order. */
#define EVIDENCE_COLUMNS(X) \
    X(claim) X(part) X(variant) X(seed) X(rate) X(chosen) X(threads) X(parameters) X(tokens) X(seconds) \
    X(measures) X(curve) X(settings) X(version) X(commit) X(blas) X(instructions) X(compiler) X(command)
#define EVIDENCE_COLUMN(name) COLUMN_##name,
enum { EVIDENCE_COLUMNS(EVIDENCE_COLUMN) COLUMNS };
#undef EVIDENCE_COLUMN

typedef struct evidence_row {
    const char *cell[COLUMNS]; /* into the table's text */
    size_t line;
    uint64_t seed;
    double rate, seconds;
    int chosen; /* 1: a row that counts; 0: a trial of a rate with seed 0 */
    evidence_result result;
} evidence_row;

typedef struct evidence_table {
    char *text;
    evidence_row *rows;
    size_t n;
} evidence_table;

/* Reads results/CLAIM.csv; without the file there are no rows. A file that is not whole, or holds what the
   claim does not know, is refused with a line that names the row. */
int rows_load(evidence_table *table, const char *results, const evidence_claim *claim, char *error);
void rows_close(evidence_table *table);
/* The row of these, NULL where there is none; rate 0: any. */
const evidence_row *rows_find(const evidence_table *table, const evidence_part *part,
                              const evidence_variant *variant, uint64_t seed, double rate);
/* The value of a measure; NAN where there is none. */
double rows_measure(const evidence_row *row, const char *name);
/* The rate that the trials with seed 0 choose, 0 while some are missing. The best finite measure has it, of
   equals the one whose curve ends lowest, then the middle one, then the lowest. */
double rows_rate(const evidence_table *table, const evidence_claim *claim, const evidence_part *part,
                 const evidence_variant *variant);
/* Does every row that the claim asks for, for this part and variant, stand there? */
size_t rows_seeds(const evidence_table *table, const evidence_claim *claim, const evidence_part *part,
                  const evidence_variant *variant);

/* Are the row's settings those that the claim has now? */
int rows_current(const evidence_row *row, const evidence_claim *claim);

/* What is written of a run beside its result. */
typedef struct evidence_about {
    const evidence_run *run;
    uint64_t seed; /* of the row, without reseed */
    int chosen;
    double seconds;
} evidence_about;
/* Appends a row, under a lock, by a file that is written beside and renamed; a row that is there stays. */
int rows_append(const char *results, const evidence_about *about, const evidence_result *result, char *error);

/* Locks that other processes see, and that end with the process: of the run number `job` of a claim.
   1: it is ours (*fd is to be closed), 0: somebody else has it, -1: an error. */
int rows_lock(const char *results, const evidence_claim *claim, size_t job, int *fd, char *error);

/* ---- statistics.c ---- */

double statistics_mean(const double *x, size_t n);
double statistics_deviation(const double *x, size_t n); /* of n - 1; 0 of one */
/* P(|T| > |t|) and the t that is exceeded with that probability, of Student's t. */
double statistics_t_tail(double t, double freedom);
double statistics_t_quantile(double two_sided, double freedom);
/* A difference of pairs: its mean, half of the 95 % interval, p of no difference. Equal differences have p 0,
   all zeros p 1; fewer than two pairs have no interval (NAN) and p 1. */
typedef struct statistics_pairs { size_t n; double mean, half, p; } statistics_pairs;
statistics_pairs statistics_paired(const double *x, const double *base, size_t n);
/* Holm's correction of n p-values, in place. */
void statistics_holm(double *p, size_t n);

/* ---- report.c ---- */

/* Writes FOLDER/README.md's tables and FOLDER/figures/, tables[i] being those of evidence_claims[i]; or says
   (compare) whether both are what the rows say. */
int report_write(const evidence_table *tables, const char *folder, int compare, char *error);

#endif
