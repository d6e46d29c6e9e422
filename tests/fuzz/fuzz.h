/* What the fuzzers share. The library under test is compiled once, in files.c, with the system's file calls
   replaced by files in memory, so that an execution costs microseconds and a disk can fail at any byte.
   Whatever must hold is checked with NEED, which ends the program, as a fuzzer expects. */
#ifndef FUZZ_H
#define FUZZ_H

#include "cmha.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NEED(condition) ((condition) ? (void)0 : fuzz_stop(__FILE__, __LINE__, #condition))

static inline void fuzz_stop(const char *file, int line, const char *what) {
    fprintf(stderr, "%s:%d: %s does not hold\n", file, line, what);
    abort();
}

/* The one file there is, FUZZ_PATH; writing replaces it by `written`. */
#define FUZZ_PATH "the/file"

typedef struct fuzz_disk {
    const unsigned char *bytes;
    size_t size;
    /* a read beyond this many bytes fails, with EIO or, if `shrinks`, as the end of the file */
    size_t readable;
    int shrinks;
    size_t piece;             /* most bytes of one read, 0 = no limit */
    unsigned char *written;   /* malloc'd; what the last writing left, NULL = nothing */
    size_t n_written;
} fuzz_disk;

extern fuzz_disk fuzz_the_disk;

static inline void fuzz_put(const unsigned char *bytes, size_t size) {
    fuzz_the_disk.bytes = bytes, fuzz_the_disk.size = fuzz_the_disk.readable = size;
    fuzz_the_disk.shrinks = 0, fuzz_the_disk.piece = 0;
}

/* A disk that fails at the place that `how` (a byte of the input) names; 0 = it does not. */
static inline void fuzz_fail(unsigned how) {
    if (!how) return;
    fuzz_the_disk.readable = fuzz_the_disk.size * (how >> 1) / 127, fuzz_the_disk.shrinks = (int)(how & 1);
    fuzz_the_disk.piece = 1 + how % 7;
}

/* A safetensors file out of an input of at least two bytes: one that says how the disk
   fails (fuzz_fail), one of flags, then
     flags & 1 = 0:  the file
     flags & 1 = 1:  its header up to the first NUL, then its data; the length before the header is made here
   The caller frees what it returns after the file has been read. */
static inline unsigned char *fuzz_put_archive(const uint8_t *data, size_t size) {
    unsigned char *file = (unsigned char *)malloc(size + 8);
    const uint8_t *end = data[1] & 1 ? (const uint8_t *)memchr(data + 2, 0, size - 2) : NULL;
    size_t header = end ? (size_t)(end - data) - 2 : size - 2, i;
    if (data[1] & 1) {
        for (i = 0; i < 8; i++) file[i] = (unsigned char)((uint64_t)header >> (8 * i));
        memcpy(file + 8, data + 2, header);
        if (end) memcpy(file + 8 + header, end + 1, size - 3 - header);
        fuzz_put(file, end ? size + 5 : size + 6);
    } else memcpy(file, data + 2, size - 2), fuzz_put(file, size - 2);
    fuzz_fail(data[0]);
    return file;
}

/* A context whose memory is counted and limited. */
extern cmha_context fuzz_context;
extern size_t fuzz_memory, fuzz_peak;  /* bytes out, and the most since it was last set */
enum { FUZZ_MEMORY = 256 << 20 };
void fuzz_open_context(void);

/* What an input may cost: a bound that follows from its bytes, so that a small file that asks for much is
   found. fuzz_cost_begin starts to count the memory of malloc and the processor's time, fuzz_cost_end checks
   both. */
int __sanitizer_install_malloc_and_free_hooks(void (*taken)(const volatile void *, size_t),
                                              void (*freed)(const volatile void *));
size_t __sanitizer_get_allocated_size(const volatile void *memory);

typedef struct fuzz_cost { int64_t memory, peak; double seconds; int counts; } fuzz_cost;
static fuzz_cost fuzz_the_cost;

static inline void fuzz_taken(const volatile void *memory, size_t bytes) {
    (void)memory;
    fuzz_the_cost.memory += (int64_t)bytes;
    if (fuzz_the_cost.memory > fuzz_the_cost.peak) fuzz_the_cost.peak = fuzz_the_cost.memory;
}

static inline void fuzz_freed(const volatile void *memory) {
    if (memory) fuzz_the_cost.memory -= (int64_t)__sanitizer_get_allocated_size(memory);
}

static inline double fuzz_seconds(void) {
    struct timespec now;
    NEED(!clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now));
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static inline void fuzz_cost_begin(void) {
    if (!fuzz_the_cost.counts) NEED(__sanitizer_install_malloc_and_free_hooks(fuzz_taken, fuzz_freed) > 0);
    fuzz_the_cost.counts = 1;
    fuzz_the_cost.memory = fuzz_the_cost.peak = 0;
    fuzz_the_cost.seconds = fuzz_seconds();
}

/* At most `base` MiB and 1 s, and for each byte `each` bytes and 20 microseconds */
static inline void fuzz_cost_end(const char *what, size_t bytes, size_t base, size_t each) {
    double seconds = fuzz_seconds() - fuzz_the_cost.seconds;
    int64_t most = (int64_t)(base << 20) + (int64_t)(bytes * each);
    if (fuzz_the_cost.peak <= most && seconds <= 1 + 20e-6 * (double)bytes) return;
    fprintf(stderr, "%s of %zu bytes: %.1f MiB, %.2f s\n", what, bytes,
            (double)fuzz_the_cost.peak / 1048576, seconds);
    fuzz_stop(__FILE__, __LINE__, "a cost within bounds");
}

/* FNV-1a of an input: what an input without flags of its own is done with */
static inline uint64_t fuzz_hash(const uint8_t *data, size_t size) {
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < size; i++) hash = (hash ^ data[i]) * 0x100000001B3u;
    return hash ^ hash >> 32;
}

/* One line that names the file, nothing in it that a terminal would obey. */
static inline void fuzz_check_line(const char *line) {
    const unsigned char *at = (const unsigned char *)line;
    NEED(*at && strstr(line, FUZZ_PATH));
    for (; *at; at++) NEED(*at >= 32 && *at != 127);
}

#endif
