/* What the parts of the bench share. bench.c: options and the list of sections. measure.c: time, and work
   whose time is compared. report.c: tables, JSON, the chart. Each other file: a few sections. */
#ifndef BENCH_H
#define BENCH_H

#include "cmha.h"

enum { RUNS = 5 }; /* every number is the median of so many timings */

extern cmha_context ctx;
extern int quick;         /* smaller sizes */
extern double load_before; /* machine_load before the first section */
/* the kernel the BLAS takes by itself where the program has put that right, or "" */
extern char blas_before[64];
/* Returns whether somebody has set OPENBLAS_CORETYPE to a kernel below what the CPU can do, and says it in
   letters that nobody overlooks: no number is this CPU's then. */
int tell_weak_kernel(int on_stderr);

/* ---- measure.c ---- */

double seconds(void);
double machine_load(void); /* of the last minute, as uptime says it; 0 where nobody knows */

/* Seconds of CPU time that others have had until `at`: other programs of this machine, and where it is a
   virtual one, other machines of its host. NAN where nobody counts them (only Linux does). */
typedef struct elsewhere {
    double at, others, stolen;
} elsewhere;

extern elsewhere work_before; /* before the first section */
elsewhere work_elsewhere(void);
elsewhere work_since(elsewhere begin); /* CPUs that others kept busy, in the mean over `at` seconds */

#ifdef __GNUC__
__attribute__((noreturn))
#endif
void die(int status, const char *what, const char *detail); /* one line on stderr */
void check(cmha_status status);                              /* dies with cmha_error */
void *take(size_t bytes);                                    /* zeroed memory */
cmha_real *array(size_t n, cmha_rng *rng);                   /* normal numbers, or with NULL zeros */
/* The same, `offset` bytes (0 to 63) behind the beginning of a cache line; *block is to be freed. */
cmha_real *array_at(size_t offset, size_t n, cmha_rng *rng, void **block);
double median(double *values, int n);                        /* sorts them */

/* Work whose time is wanted. */
typedef struct job {
    void (*run)(void *work);
    void *work;
    int calls;   /* of a timing; 0: as many as fill 10 ms, found by a round that does not count */
    double time; /* median seconds of one call */
} job;

/* Times all jobs in turns, RUNS rounds, so that they see the same machine. Where others kept more than
   DISTURBED CPUs busy, repeats as many rounds at most and keeps the quieter ones. */
void compare(job *jobs, size_t n);
extern int rounds_repeated; /* so far */
#define DISTURBED 0.1 /* CPUs; what is above it is told */

/* y [T, O] = x [T, I] w^T, rows split over the threads as the library splits them */
typedef struct product {
    size_t T, I, O;
    cmha_real *x, *w, *y;
    int threads;
} product;

void product_open(product *p, size_t T, size_t I, size_t O, int threads);
void product_close(product *p);
void run_product(void *work);
double product_flops(const product *p); /* in 10^9 */

/* The product that GFLOP/s are held against: the queries, keys and values of the paper preset, on all
   threads. A section that reports a share of it has it among its own jobs. */
job gemm_job(void);
double gemm_rate(const job *gemm); /* GFLOP/s */

/* Reads n numbers of memory on all threads; run_copy and run_triad write as well. */
typedef struct memory_work {
    size_t n; /* numbers in each array */
    cmha_real *a, *b, *c;
    double sum;
} memory_work;

void read_open(memory_work *m, double bytes); /* a alone */
void run_read(void *work);
void run_copy(void *work);
void run_triad(void *work);

/* ---- report.c ---- */

/* A column of a table: what was measured, in what unit, and against what it is held as well: "gemm" and
   "bandwidth" are shares of a rate, "whole" one of a time, the others quotients of two times, above 1 where
   this one is slower. */
typedef struct column {
    const char *what, *unit, *of[2];
    int chart; /* the chart draws it over n */
} column;

typedef struct cell {
    double value, of[2]; /* NAN: not there */
} cell;

/* Begins a table; its rows follow as they are measured. n_is: what the column n holds, NULL = there is
   none. */
void report_table(const char *section, const char *title, const char *n_is, const column *columns,
                  size_t n_columns);
void report_row(const char *name, size_t n, const cell *cells);
void report_json(const char *path);
void report_svg(const char *path);

/* ---- the sections ---- */

void bench_hardware(void);
void bench_maps(void);
void bench_attention(void);
void bench_kinds(void);
void bench_train(void);
void bench_decode(void);
void bench_memory(void);
void bench_retrieval(void);
void bench_experts(void);
void bench_floors(void);

/* ---- what sections and bench_serve share ---- */

/* One call of an attention core: 8 heads, causal, one sequence. */
typedef struct core core;
enum { ALIGNED = 0, AS_MALLOC = 16 }; /* where arrays begin: bytes behind a cache line */
/* Arrays for any kind, d numbers a head and token; *block is to be freed. */
cmha_real *core_memory(size_t d, size_t n, size_t offset, void **block);
/* memory NULL: its own. Everything the core reads and writes lies at that offset. */
core *core_open(const char *name, size_t d, size_t n, size_t offset, cmha_real *memory);
void core_close(core *c);
void run_core_forward(void *work);
void run_core_backward(void *work);

/* A model in training. */
typedef struct training {
    cmha_model model;
    cmha_trainer trainer;
    cmha_tokens text;
    unsigned char *bytes;
} training;
/* batch 0: the preset's */
void training_open(training *t, const char *preset, const char *kind, size_t batch);
void training_close(training *t);
void run_training(void *work); /* a step */
double training_flops(const training *t); /* of a step, in 10^9 */

/* A model that reads and writes. */
enum { DECODED = 16 }; /* tokens of one timing, so that a short one is not lost in the clock */
typedef struct decoder {
    cmha_model model;
    cmha_cache cache;
    size_t context;
    int32_t *ids;
    cmha_real *logits;
} decoder;
/* file: the model's, or NULL for a new one of the paper preset */
void decoder_open(decoder *d, const char *kind, const char *file, size_t context, cmha_storage weights,
                  cmha_storage cache);
void decoder_close(decoder *d);
void run_prefill(void *work); /* `context` tokens into an empty cache */
void run_decode(void *work);  /* DECODED tokens around that context, one after another */
double prefill_flops(const decoder *d); /* in 10^9 */
/* Bytes that a token reads, as they are stored: weights, and the keys and values of the tokens before it */
double decode_bytes(const decoder *d);

/* Does one piece of work, named as in --help, for every line on standard input and prints its seconds: a
   program that is to be compared with this one can take turns with it. Work of a decoder may come from a file
   `model` and leave its model in `save`; NULL: neither. */
void bench_serve(const char *what, const char *model, const char *save);

#endif
