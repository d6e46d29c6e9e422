/* The harness of the tests: checks that count, numbers that do not come from the library under test, an
   allocator that counts and fails on request. Every test program is one file that includes this one, and its
   exit status is its verdict. */
#ifndef CHECK_H
#define CHECK_H

/* header.sh links the library as an object of its own, to compile it once for many programs. */
#ifndef CMHA_TEST_LINKED
#define CMHA_IMPLEMENTATION
#endif
#include "cmha.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHECK_SHOWN = 20 }; /* failures printed in full; a broken kernel would fill the screen otherwise */

static int check_passed, check_failed;

#if CMHA_VERSION >= 700
/* CMHA_INSTRUCTIONS=sse2|avx2|avx512 forces the paths of that instruction set; a machine without it fails. */
__attribute__((constructor)) static void check_instructions(void) {
    const char *name = getenv("CMHA_INSTRUCTIONS");
    if (name && !cmha_instructions(name)) {
        printf("FAIL: no instructions %s here\n", name);
        exit(1);
    }
}
#endif

static inline int check_that(int ok, const char *file, int line, const char *format, ...) {
    va_list list;
    if (ok) {
        check_passed++;
        return 1;
    }
    if (check_failed++ < CHECK_SHOWN) {
        printf("FAIL %s:%d: ", file, line);
        va_start(list, format);
        vprintf(format, list);
        va_end(list);
        printf("\n");
        fflush(stdout);
    }
    return 0;
}

#define CHECK(condition) check_that((condition) ? 1 : 0, __FILE__, __LINE__, "%s", #condition)
#define CHECK_THAT(condition, ...) check_that((condition) ? 1 : 0, __FILE__, __LINE__, __VA_ARGS__)
#define CHECK_OK(call) CHECK_IS(call, CMHA_OK)
#define CHECK_IS(call, want) check_status((call), (want), __FILE__, __LINE__, #call)
/* |got - want| <= tolerance; false for NaN */
#define CHECK_NEAR(got, want, tolerance)                                                                     \
    check_near((double)(got), (double)(want), (double)(tolerance), __FILE__, __LINE__, #got)

static inline int check_status(cmha_status got, cmha_status want, const char *file, int line,
                               const char *call) {
    return check_that(got == want, file, line, "%s: \"%s\", expected \"%s\"", call, cmha_status_string(got),
                      cmha_status_string(want));
}

static inline int check_near(double got, double want, double tolerance, const char *file, int line,
                             const char *what) {
    return check_that(fabs(got - want) <= tolerance, file, line, "%s: %.17g, expected %.17g within %.3g",
                      what, got, want, tolerance);
}

/* The last line of every test program; returns the exit status. Nothing checked is a failure too. */
static inline int check_end(void) {
    printf("%d passed, %d failed\n", check_passed, check_failed);
    return check_failed != 0 || check_passed == 0;
}

/* 1 when CMHA_TEST_QUICK is set: sanitizer runs, which cost ten times as much */
static inline int check_quick(void) {
    const char *quick = getenv("CMHA_TEST_QUICK");
    return quick && quick[0] && quick[0] != '0';
}

/* A tolerance in the double and in the float build */
static inline double check_tolerance(double for_double, double for_float) {
    return sizeof(cmha_real) == sizeof(double) ? for_double : for_float;
}

/* Numbers of the tests' own (an LCG with a finaliser), so that a broken cmha_rng cannot hide anything */
static uint64_t check_seed = 1;

static inline double check_random(void) { /* uniform in [-1, 1) */
    uint64_t x;
    check_seed = check_seed * 6364136223846793005u + 1442695040888963407u;
    x = check_seed;
    x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdu;
    x ^= x >> 33;
    return (double)(x >> 11) / 4503599627370496.0 - 1;
}

static inline size_t check_below(size_t n) { return (size_t)((check_random() + 1) / 2 * (double)n) % n; }

static inline void *check_alloc(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    if (!memory) {
        fprintf(stderr, "the test is out of memory\n");
        exit(3);
    }
    return memory;
}

static inline cmha_real *check_zeros(size_t n) { return (cmha_real *)check_alloc(n, sizeof(cmha_real)); }

static inline void check_fill(cmha_real *x, size_t n, double scale) {
    size_t i;
    for (i = 0; i < n; i++) x[i] = (cmha_real)(scale * check_random());
}

static inline cmha_real *check_array(size_t n, double scale) {
    cmha_real *x = check_zeros(n);
    check_fill(x, n, scale);
    return x;
}

/* max |a - b|, infinite as soon as one of them is NaN */
static inline double check_distance(const cmha_real *a, const cmha_real *b, size_t n) {
    double worst = 0, d;
    size_t i;
    for (i = 0; i < n; i++) {
        d = fabs((double)a[i] - (double)b[i]);
        if (!(d <= worst)) worst = d == d ? d : HUGE_VAL;
    }
    return worst;
}

static inline double check_largest(const cmha_real *a, size_t n) {
    double worst = 0;
    size_t i;
    for (i = 0; i < n; i++)
        if (!(fabs((double)a[i]) <= worst)) worst = a[i] == a[i] ? fabs((double)a[i]) : HUGE_VAL;
    return worst;
}

static inline int check_finite(const cmha_real *a, size_t n) {
    size_t i;
    for (i = 0; i < n; i++)
        if (!(fabs((double)a[i]) <= DBL_MAX)) return 0;
    return 1;
}

/* An allocator that knows what is out, and refuses the call number fail_at (counted from 1; 0 = never) and,
   unless `once` is set, all after it; and any request for more than `most` bytes (0 = no limit). */
typedef struct check_heap {
    size_t calls, bytes, peak, blocks, fail_at, most;
    int once;
    int mismatch; /* a release with another size than was asked for */
} check_heap;

enum { CHECK_HEADER = 64 }; /* before each block, its size; 64 keeps malloc's alignment */

static inline void *check_heap_allocate(void *user, size_t bytes) {
    check_heap *heap = (check_heap *)user;
    unsigned char *block;
    heap->calls++;
    if (heap->fail_at && (heap->once ? heap->calls == heap->fail_at : heap->calls >= heap->fail_at))
        return NULL;
    if (heap->most && bytes > heap->most) return NULL;
    block = (unsigned char *)malloc(bytes + CHECK_HEADER);
    if (!block) return NULL;
    memcpy(block, &bytes, sizeof bytes);
    memset(block + CHECK_HEADER, 0xA5, bytes < 4096 ? bytes : 4096); /* nobody may count on zeros */
    heap->bytes += bytes;
    heap->blocks++;
    if (heap->bytes > heap->peak) heap->peak = heap->bytes;
    return block + CHECK_HEADER;
}

static inline void check_heap_release(void *user, void *memory, size_t bytes) {
    check_heap *heap = (check_heap *)user;
    unsigned char *block = (unsigned char *)memory;
    size_t asked;
    if (!memory) return;
    memcpy(&asked, block - CHECK_HEADER, sizeof asked);
    if (asked != bytes) heap->mismatch++;
    heap->bytes -= asked;
    heap->blocks--;
    free(block - CHECK_HEADER);
}

static inline cmha_context_config check_heap_config(check_heap *heap) {
    cmha_context_config config;
    memset(&config, 0, sizeof config);
    memset(heap, 0, sizeof *heap);
    config.threads = 2;
    config.seed = 7;
    config.allocator.allocate = check_heap_allocate;
    config.allocator.release = check_heap_release;
    config.allocator.user = heap;
    return config;
}

static inline int check_heap_empty(const check_heap *heap) {
    return heap->bytes == 0 && heap->blocks == 0 && heap->mismatch == 0;
}

/* A context with defaults that the tests can rely on */
static inline void check_context(cmha_context *context, int threads, uint64_t seed) {
    cmha_context_config config;
    memset(&config, 0, sizeof config);
    config.threads = threads;
    config.seed = seed;
    CHECK_OK(cmha_context_init(context, &config));
}

/* A small model configuration: one that exercises everything and still runs in microseconds */
static inline cmha_model_config check_model_config(void) {
    cmha_model_config config;
    cmha_config_defaults(cmha_model_table(), &config);
    config.n_layers = 2;
    config.d_model = 16;
    config.n_heads = 4;
    config.d_ff = 24;
    config.vocabulary = 19;
    config.max_positions = 200;
    config.init_std = 0.3;
    config.delta_init = CMHA_DELTA_INIT_ROPE_START;
    config.delta_std = 0.4;
    return config;
}

#endif
