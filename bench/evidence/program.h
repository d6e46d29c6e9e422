/* program.h - what the parts of the program share beside evidence.h. evidence.c: the command line, and runs
   in processes of their own. runs.c: settings, starting, training. rows.c: the CSV files. statistics.c:
   paired differences. findings.c: verdicts. questions.c: what README.md asks. report.c, figures.c: pages and
   figures, and whether they say what the rows say. */
#ifndef EVIDENCE_PROGRAM_H
#define EVIDENCE_PROGRAM_H

#include "../../examples/tools/text.h"
#include "evidence.h"

/* ---- runs.c ---- */

int evidence_name(const char *name); /* is it one, of a measure, claim, part or variant? */
int evidence_reads(const char *name); /* is it a setting of the program itself, as like= is? */
const evidence_variant *evidence_like(const evidence_claim *claim, const evidence_variant *variant);
/* Seconds that processors have spent on this process and on the programs that it ran and waited for. What
   else the machine does, or a pause, hardly changes them. */
double evidence_seconds(void);
void evidence_forget(const evidence_run *run); /* the state that a long run kept */

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
/* The loss at the end of a row's curve: what tells rates apart that solve nothing, or all. INFINITY where it
   is no number, or not there. */
double rows_last_loss(const evidence_row *row);
/* The trials of a rate: slots of a kind, below rows_slots. The first of them are of the claim's three rates,
   the others of rates beyond; slot % rows_tuners is the seed's number. */
size_t rows_tuners(const evidence_claim *claim); /* 1 or more */
size_t rows_slots(const evidence_claim *claim);
uint64_t rows_trial_seed(const evidence_claim *claim, size_t slot); /* 0, 901, 902, .. */
/* The rate of a slot; 0: the kind has no such trial, or does not need it by what the others found. */
double rows_trial(const evidence_table *table, const evidence_claim *claim, const evidence_part *part,
                  const evidence_variant *variant, size_t slot);
/* The rate that the trials choose, 0 while some are missing. The best finite measure has it (the mean where
   several seeds try), of equals the one whose curve ends lowest, then the middle one, then the lowest. */
double rows_rate(const evidence_table *table, const evidence_claim *claim, const evidence_part *part,
                 const evidence_variant *variant);
/* Is that rate the lowest or the highest of those that were tried? -1: none was chosen, as where nothing
   learns and all rates give the same. */
int rows_edge(const evidence_table *table, const evidence_claim *claim, const evidence_part *part,
              const evidence_variant *variant);
/* What is known of chance in a table, NULL: nothing; and did a run with that value learn nothing? */
const evidence_chance *rows_chance(const evidence_claim *claim, const evidence_part *part, int second);
int rows_at_chance(const evidence_chance *c, double value);
/* Does every row that the claim asks for, for this part and variant, stand there? */
size_t rows_seeds(const evidence_table *table, const evidence_claim *claim, const evidence_part *part,
                  const evidence_variant *variant);

const char *rows_compiler(void); /* of this program, as rows name theirs */
/* Are the row's settings those that the claim has now? */
int rows_current(const evidence_row *row, const evidence_claim *claim);

/* Writes the cells from `settings` to `compiler`: what a run's digits depend on. 0: no memory. */
int rows_origin(FILE *file, const evidence_run *run);

/* What is written of a run beside its result. */
typedef struct evidence_about {
    const evidence_run *run;
    uint64_t seed; /* of the row, without reseed */
    int chosen;
    double seconds; /* of processors */
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

/* Is the difference no larger than one that the baseline has from itself, |mean| + half of the interval? */
int statistics_within(const statistics_pairs *pairs, const statistics_pairs *floor);

/* ---- findings.c ---- */

enum { MOST_VARIANTS = 64, MOST_SEEDS = 64, MOST_PRIMARY = 32 };

/* What a part's rows say of a variant. */
typedef struct finding {
    const evidence_variant *variant;
    int floor;           /* it only shows how far runs of the same kind lie apart */
    int noise;           /* its difference is no larger than one of those */
    int tuned, edge;     /* it chose a rate; the lowest or the highest */
    double rate;         /* 0: not chosen yet */
    size_t n, diverged;  /* seeds measured; those without a finite number */
    double mean, deviation; /* of the measure */
    statistics_pairs pairs; /* with the baseline, of the seeds that both have */
    double p, over_all;  /* corrected within the table, and over all tables; NAN: not compared */
    enum {
        FOUND_NOTHING, FOUND_BASELINE, FOUND_FLOOR, FOUND_BETTER, FOUND_WORSE, FOUND_ALIKE, FOUND_DIVERGED,
        FOUND_INTERIM /* a primary hypothesis was asked of more seeds than are there */
    } verdict;
    const evidence_row *rows[MOST_SEEDS]; /* of seed i + 1, or NULL */
} finding;

typedef struct findings {
    const evidence_claim *claim;
    const evidence_part *part;
    int second;          /* by the claim's second measure */
    const char *measure;
    int higher;
    const evidence_chance *chance; /* NULL: not known */
    size_t trials, trials_at_chance; /* of the baseline's rates */
    int failed;                    /* the baseline learned nothing, so the verdicts count nowhere */
    size_t n, compared;  /* variants; p-values that were corrected together */
    finding of[MOST_VARIANTS];
} findings;

/* The values of a measure for seeds that the variant and, if it is given, the other have. */
size_t findings_values(const finding *f, const finding *other, const char *measure, double *x, double *y);

/* Tables, comparisons, those that are better or worse in their table, those after Holm over all tables. */
typedef struct tally { size_t tables, compared, told, survive; } tally;

/* A hypothesis of the primary family. */
typedef struct hypothesis {
    const evidence_primary *asked;
    const findings *all;
    const finding *kind;
    double p; /* corrected over the family; NAN: not all seeds are there */
    enum {
        PRIMARY_OPEN, PRIMARY_HOLDS, PRIMARY_NOT, PRIMARY_FAILED, PRIMARY_DIVERGED, PRIMARY_UNMEASURED
    } verdict;
} hypothesis;

/* All tables, and counts over them by the measures that decide. */
typedef struct evidence_findings {
    findings *first, *second; /* [n]; of the second measure, empty where the claim has none */
    size_t n;
    hypothesis primary[MOST_PRIMARY];
    size_t n_primary;
    tally count[2];           /* [1]: of tables whose baseline failed; [0]: of the others */
    size_t tuned, edges;      /* kinds that chose a rate; those at an edge */
} evidence_findings;

int findings_open(evidence_findings *e, const evidence_table *tables, char *error);
void findings_close(evidence_findings *e);
/* Is the table one of the primary family, which has a correction of its own? */
int findings_primary(const findings *all);
const findings *findings_of(const evidence_findings *e, const char *claim, const char *part, int second);

typedef struct evidence_answer {
    enum {
        ANSWER_UNTESTED, ANSWER_UNMEASURED, ANSWER_BASE_FAILED, ANSWER_HOLDS, ANSWER_NOT, ANSWER_OPEN
    } verdict;
    const findings *all;
    const finding *kind; /* that answers */
    int edge;            /* its rate or the baseline's is at the edge */
    int outside;         /* the paper's number lies outside the interval */
} evidence_answer;

/* Answers a question; 0 and a line where it names what no claim has. */
int findings_answer(const evidence_findings *e, const evidence_question *q, evidence_answer *a, char *error);

/* ---- figures.c ---- */

/* Writes a claim's figure, or compares it with the one that is there. *there: does the claim have one? */
int figures_put(const evidence_claim *claim, const findings *parts, const char *folder, int compare,
                int *there, char *error);

/* ---- report.c ---- */

/* Writes FOLDER/README.md, METHOD.md, results/CLAIM.md and figures/, tables[i] being those of
   evidence_claims[i]; or says (compare) whether all of them are what the rows say. */
int report_write(const evidence_table *tables, const char *folder, int compare, char *error);

#endif
