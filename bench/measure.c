/* Time, memory and the work that everything else is held against. */
#include "bench/bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#ifdef __linux__
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#endif

double seconds(void) {
    struct timeval t;
    gettimeofday(&t, NULL);
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

double machine_load(void) {
    double load = 0;
#if defined(__linux__) || defined(__APPLE__) || defined(__FreeBSD__)
    if (getloadavg(&load, 1) != 1) load = 0;
#endif
    return load;
}

#ifdef __linux__
static double spent(int who) {
    struct rusage u;
    if (getrusage(who, &u)) return 0;
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}
#endif

elsewhere work_elsewhere(void) {
    elsewhere e = {seconds(), NAN, NAN};
#ifdef __linux__
    FILE *f = fopen("/proc/stat", "r");
    double tick = 1.0 / (double)sysconf(_SC_CLK_TCK), user, nice, system, idle, disks, interrupts[2], stolen;
    if (!f) return e;
    if (fscanf(f, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &user, &nice, &system, &idle, &disks, interrupts,
               interrupts + 1, &stolen) == 8) {
        e.others = tick * (user + nice + system + interrupts[0] + interrupts[1]) - spent(RUSAGE_SELF) -
                   spent(RUSAGE_CHILDREN);
        e.stolen = tick * stolen;
    }
    fclose(f);
#endif
    return e;
}

elsewhere work_since(elsewhere begin) {
    elsewhere now = work_elsewhere();
    double wall = fmax(now.at - begin.at, 1e-3);
    return (elsewhere){wall, fmax(now.others - begin.others, 0) / wall,
                       fmax(now.stolen - begin.stolen, 0) / wall};
}

void die(int status, const char *what, const char *detail) {
    fflush(stdout);
    fprintf(stderr, "bench: %s%s\n", what, detail);
    exit(status);
}

void check(cmha_status status) {
    if (status) die(1, *cmha_error(&ctx) ? cmha_error(&ctx) : cmha_status_string(status), "");
}

void *take(size_t bytes) {
    char *memory = calloc(bytes ? bytes : 1, 1);
    if (!memory) die(1, "no memory", "");
#ifdef MADV_HUGEPAGE
    size_t skip = (65536 - (uintptr_t)memory % 65536) % 65536; /* large pages, as the library's memory has */
    if (bytes >= 4 << 20) (void)madvise(memory + skip, bytes - skip, MADV_HUGEPAGE);
#endif
    return memory;
}

/* A page that nobody has written is one page of zeros for all, and reading it takes no time. */
static cmha_real *fill(cmha_real *x, size_t n, cmha_rng *rng) {
    volatile cmha_real *page = x;
    for (size_t i = 0; i < n; i += 1024) page[i] = 0;
    for (size_t i = 0; rng && i < n; i++) x[i] = (cmha_real)cmha_rng_normal(rng);
    return x;
}

cmha_real *array(size_t n, cmha_rng *rng) { return fill(take(n * sizeof(cmha_real)), n, rng); }

cmha_real *array_at(size_t offset, size_t n, cmha_rng *rng, void **block) {
    char *memory = *block = take(n * sizeof(cmha_real) + 128);
    return fill((void *)(memory + (64 - (uintptr_t)memory % 64) + offset), n, rng);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, ascending);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

int rounds_repeated;

/* Times all jobs once, into times [n, RUNS] at r. Returns how many CPUs others kept busy meanwhile. */
static double time_round(job *jobs, size_t n, double (*times)[RUNS], int r) {
    elsewhere before = work_elsewhere(), busy;
    double cpus;
    for (size_t i = 0; i < n; i++) {
        double begin = seconds();
        for (int c = 0; c < jobs[i].calls; c++) jobs[i].run(jobs[i].work);
        times[i][r] = (seconds() - begin) / jobs[i].calls;
    }
    busy = work_since(before);
    cpus = busy.others + busy.stolen;
    return busy.at * cpus < 0.03 ? 0 : cpus; /* the system counts in hundredths of a second */
}

/* Repeats the most disturbed round, at most RUNS times, while others keep more than DISTURBED CPUs busy, and
   keeps the quieter of the two. */
static void repeat_rounds(job *jobs, size_t n, double (*times)[RUNS], double *busy) {
    double(*again)[RUNS] = take(n * sizeof *again), now;
    for (int left = RUNS; left > 0; left--) {
        int worst = 0;
        for (int r = 1; r < RUNS; r++)
            if (busy[r] > busy[worst]) worst = r;
        if (!(busy[worst] > DISTURBED)) break; /* NAN: nobody knows */
        rounds_repeated++;
        now = time_round(jobs, n, again, worst);
        if (!(now < busy[worst])) continue;
        busy[worst] = now;
        for (size_t i = 0; i < n; i++) times[i][worst] = again[i][worst];
    }
    free(again);
}

void compare(job *jobs, size_t n) {
    double(*times)[RUNS] = take(n * sizeof *times), begin, busy[RUNS];
    for (size_t i = 0; i < n; i++) {
        if (jobs[i].calls) continue;
        jobs[i].run(jobs[i].work);
        begin = seconds();
        do jobs[i].run(jobs[i].work), jobs[i].calls++;
        while (seconds() - begin < 0.01);
    }
    for (int r = 0; r < RUNS; r++) busy[r] = time_round(jobs, n, times, r);
    repeat_rounds(jobs, n, times, busy);
    for (size_t i = 0; i < n; i++) jobs[i].time = median(times[i], RUNS);
    free(times);
}

/* ---- matrix products ---- */

void product_open(product *p, size_t T, size_t I, size_t O, int threads) {
    cmha_rng rng = cmha_rng_make(1, 0);
    *p = (product){T, I, O, array(T * I, &rng), array(O * I, &rng), array(T * O, NULL), threads};
}

void product_close(product *p) { free(p->x), free(p->w), free(p->y); }

double product_flops(const product *p) { return 2e-9 * (double)p->T * (double)p->I * (double)p->O; }

void run_product(void *work) {
    product *p = work;
    int part, parts = p->threads;
#ifdef _OPENMP
#pragma omp parallel for num_threads(parts)
#endif
    for (part = 0; part < parts; part++) {
        size_t begin = p->T * (size_t)part / (size_t)parts, end = p->T * (size_t)(part + 1) / (size_t)parts;
        cmha_gemm(0, 1, end - begin, p->O, p->I, 1, p->x + begin * p->I, p->I, p->w, p->I, 0,
                  p->y + begin * p->O, p->O);
    }
}

static product reference;

job gemm_job(void) {
    if (!reference.x) product_open(&reference, 4096, 512, 1536, ctx.threads);
    return (job){run_product, &reference, 0, 0};
}

double gemm_rate(const job *gemm) { return product_flops(&reference) / gemm->time; }

/* ---- memory ---- */

/* Sums side by side, which the compiler may then turn into vectors. Streams: a decoder reads several rows at
   once, and a core that follows one stream alone reads half as fast. */
enum { LANES = 64, STREAMS = 4 };

static double read_part(const cmha_real *x, size_t n) {
    cmha_real lanes[LANES] = {0}, sum = 0;
    const size_t each = n / STREAMS;
    for (size_t i = 0; i + LANES <= each; i += LANES)
        for (size_t s = 0; s < STREAMS; s++) {
            const cmha_real *at = x + s * each + i;
            for (size_t j = 0; j < LANES; j++) lanes[j] += at[j];
        }
    for (size_t j = 0; j < LANES; j++) sum += lanes[j];
    return (double)sum;
}

void read_open(memory_work *m, double bytes) {
    size_t n = (size_t)(bytes / (double)sizeof(cmha_real));
    *m = (memory_work){n, array(n, NULL), NULL, NULL, 0};
}

void run_read(void *work) {
    memory_work *m = work;
    double sum = 0;
    int part, parts = ctx.threads;
#ifdef _OPENMP
#pragma omp parallel for num_threads(parts) reduction(+ : sum)
#endif
    for (part = 0; part < parts; part++) {
        size_t begin = m->n * (size_t)part / (size_t)parts, end = m->n * (size_t)(part + 1) / (size_t)parts;
        sum += read_part(m->a + begin, end - begin);
    }
    m->sum = sum;
}

/* Every thread its part of the arrays. */
static void in_parts(const memory_work *m, void (*work)(const memory_work *, size_t begin, size_t n)) {
    int part, parts = ctx.threads;
#ifdef _OPENMP
#pragma omp parallel for num_threads(parts)
#endif
    for (part = 0; part < parts; part++) {
        size_t begin = m->n * (size_t)part / (size_t)parts, end = m->n * (size_t)(part + 1) / (size_t)parts;
        work(m, begin, end - begin);
    }
}

static void copy_part(const memory_work *m, size_t begin, size_t n) {
    memcpy(m->b + begin, m->a + begin, n * sizeof *m->a);
}

void run_copy(void *work) { in_parts(work, copy_part); }

static void triad_part(const memory_work *m, size_t begin, size_t n) {
    const cmha_real *a = m->a + begin, *b = m->b + begin;
    cmha_real *c = m->c + begin;
    for (size_t i = 0; i < n; i++) c[i] = a[i] + (cmha_real)0.5 * b[i];
}

void run_triad(void *work) { in_parts(work, triad_part); }
