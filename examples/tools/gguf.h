/* gguf.h - reads and writes GGUF files, format versions 2 and 3: named values, then named tensors of numbers.
   Static functions that need nothing but C's library; C99 and C++11. Those that can fail return 1 for
   success, or 0 and one line in `error`, GGUF_ERROR bytes. A file is checked whole before anything of it is
   believed: every size against the bytes that are there, every name against the others. */
#ifndef GGUF_H
#define GGUF_H

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "regular.h"

enum { GGUF_ERROR = 512, GGUF_RANK = 4, GGUF_ALIGNMENT = 32, GGUF_BLOCK = 32 };

/* What a value is, as the file numbers it. */
enum { GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL, GGUF_TEXT, GGUF_ARRAY,
       GGUF_U64, GGUF_I64, GGUF_F64, GGUF_TYPES };

/* How the numbers of a tensor are stored, as the file numbers it. Q8_0: blocks of 32, an F16 factor each; the
   others of few bits are read alone: gguf_kinds has their blocks. */
enum { GGUF_AS_F32 = 0, GGUF_AS_F16 = 1, GGUF_AS_Q4_0 = 2, GGUF_AS_Q4_1 = 3, GGUF_AS_Q5_0 = 6,
       GGUF_AS_Q5_1 = 7, GGUF_AS_Q8_0 = 8, GGUF_AS_Q4_K = 12, GGUF_AS_Q5_K = 13,
       GGUF_AS_Q6_K = 14, GGUF_AS_BF16 = 30 };

typedef struct gguf_value {
    const char *key;
    uint32_t type, of;       /* of: type of an array's elements */
    uint64_t count;          /* bytes of a text, elements of an array, else 1 */
    const unsigned char *at; /* as in the file; an array's texts have 8 bytes of length each: gguf_next */
    size_t bytes;            /* from `at` on */
} gguf_value;

typedef struct gguf_tensor {
    const char *name;
    uint32_t as;
    int rank;
    uint64_t shape[GGUF_RANK]; /* last index fastest: the file has them the other way round */
    uint64_t count;            /* of numbers */
    uint64_t begin, bytes;     /* from the first byte of data on; bytes = 0: a storage unknown here */
} gguf_tensor;

typedef struct gguf_file {
    gguf_value *values;   /* in the order of their keys */
    gguf_tensor *tensors; /* in the order of their names */
    size_t n_values, n_tensors;
    uint64_t data, size; /* where tensors begin, in bytes; of the whole file */
    const unsigned char *bytes;
    size_t n_bytes; /* of `bytes`, which has at least what stands before the tensors */
    unsigned char *own;
    char *names;
    FILE *file; /* NULL: read from memory */
} gguf_file;

static inline int gguf_fail(char *error, const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(error, GGUF_ERROR, format, list);
    va_end(list);
    for (; *error; error++)
        if ((unsigned char)*error < 32 || (unsigned char)*error > 126) *error = '?';
    return 0;
}

static inline void gguf_close(gguf_file *g) {
    if (g->file) fclose(g->file);
    free(g->values), free(g->tensors), free(g->names), free(g->own);
    memset(g, 0, sizeof *g);
}

/* ---- Numbers ---- */

static inline uint64_t gguf_bits(const unsigned char *at, int n) {
    uint64_t bits = 0;
    while (n--) bits = bits << 8 | at[n];
    return bits;
}

static inline float gguf_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

static inline float gguf_from_half(uint32_t half) {
    uint32_t sign = (half & 0x8000) << 16, e = half >> 10 & 31, m = half & 0x3FF;
    if (!e) return gguf_float(sign | 0x3F800000) * (float)m * (1.0f / 16777216);
    return gguf_float(sign | (e == 31 ? 0x7F800000 : (e + 112) << 23) | m << 13);
}

/* The nearest number of 5 bits of exponent and 10 of fraction, of two the even one. */
static inline uint32_t gguf_to_half(float x) {
    uint32_t bits, sign, m, half, rest, middle;
    int e, shift = 13;
    memcpy(&bits, &x, 4);
    sign = bits >> 16 & 0x8000, m = bits & 0x7FFFFF, e = (int)(bits >> 23 & 255) - 112;
    if (e == 143) return sign | 0x7C00 | (m ? 0x200 | m >> 13 : 0);
    if (e > 30) return sign | 0x7C00;
    if (e < -10) return sign;
    if (e <= 0) m |= 0x800000, shift = 14 - e, e = 0;
    half = (uint32_t)e << 10 | m >> shift, rest = m & ((1u << shift) - 1), middle = 1u << (shift - 1);
    return sign | (half + (rest > middle || (rest == middle && (half & 1))));
}

static inline uint32_t gguf_to_brain(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if ((bits & 0x7FFFFFFF) > 0x7F800000) return bits >> 16 | 0x40;
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

/* ---- Blocks of few bits ---- */

static inline float gguf_half_at(const unsigned char *at) {
    return gguf_from_half((uint32_t)gguf_bits(at, 2));
}

/* 32 numbers of 4 or 5 bits: a factor, of some kinds the least number, of 5 bits the 32 upper ones, and 16
   bytes: the lower halves are the first 16 numbers. */
static inline void gguf_legacy_block(int bits, int least, const unsigned char *at, float *x) {
    const float factor = gguf_half_at(at), low = least ? gguf_half_at(at + 2) : 0;
    const int middle = least ? 0 : 1 << (bits - 1);
    uint32_t upper = 0;
    at += least ? 4 : 2;
    if (bits == 5) upper = (uint32_t)gguf_bits(at, 4), at += 4;
    for (int i = 0; i < 32; i++) {
        int code = (at[i % 16] >> i / 16 * 4 & 15) | (int)(upper >> i & 1) << 4;
        x[i] = factor * (float)(code - middle) + low;
    }
}

static inline void gguf_q4_0_block(const unsigned char *at, float *x) { gguf_legacy_block(4, 0, at, x); }
static inline void gguf_q4_1_block(const unsigned char *at, float *x) { gguf_legacy_block(4, 1, at, x); }
static inline void gguf_q5_0_block(const unsigned char *at, float *x) { gguf_legacy_block(5, 0, at, x); }
static inline void gguf_q5_1_block(const unsigned char *at, float *x) { gguf_legacy_block(5, 1, at, x); }

static inline void gguf_q8_0_block(const unsigned char *at, float *x) {
    const float factor = gguf_half_at(at);
    for (int i = 0; i < 32; i++) x[i] = factor * (float)(at[2 + i] < 128 ? at[2 + i] : at[2 + i] - 256);
}

/* The factor of 6 bits of one of 8 pieces, and above it the least number: of the first four bytes 0 - 3 and
   4 - 7, whose upper two bits complete those of the others, in bytes 8 - 11. */
static inline uint32_t gguf_k_six(const unsigned char *six, int piece) {
    const int j = piece % 4;
    if (piece < 4) return (six[j] & 63u) | (six[j + 4] & 63u) << 6;
    return (six[j + 8] & 15u) | six[j] >> 6 << 4 | (six[j + 8] >> 4 | (uint32_t)six[j + 4] >> 6 << 4) << 6;
}

/* 256 numbers of 4 or 5 bits in 8 pieces. */
static inline void gguf_k_block(int bits, const unsigned char *at, float *x) {
    const float factor = gguf_half_at(at), least = gguf_half_at(at + 2);
    const unsigned char *upper = at + 16, *codes = upper + (bits == 5 ? 32 : 0);
    for (int piece = 0; piece < 8; piece++) {
        int six = (int)gguf_k_six(at + 4, piece), scale = six & 63, low = six >> 6;
        for (int i = 0; i < 32; i++) {
            int code = codes[piece / 2 * 32 + i] >> piece % 2 * 4 & 15;
            if (bits == 5) code |= (upper[i] >> piece & 1) << 4;
            x[piece * 32 + i] = factor * (float)scale * (float)code - least * (float)low;
        }
    }
}

static inline void gguf_q4_k_block(const unsigned char *at, float *x) { gguf_k_block(4, at, x); }
static inline void gguf_q5_k_block(const unsigned char *at, float *x) { gguf_k_block(5, at, x); }

/* 256 numbers of 6 bits: 128 bytes of four of them, 64 of the upper two, 16 factors of 8 bits, one of F16. */
static inline void gguf_q6_k_block(const unsigned char *at, float *x) {
    const float factor = gguf_half_at(at + 208);
    for (int i = 0; i < 256; i++) {
        int half = i / 128, part = i % 128 / 32, l = i % 32, scale = at[192 + i / 16];
        int low = at[half * 64 + part % 2 * 32 + l] >> part / 2 * 4 & 15;
        int high = at[128 + half * 32 + l] >> 2 * part & 3;
        x[i] = factor * (float)(scale < 128 ? scale : scale - 256) * (float)((low | high << 4) - 32);
    }
}

/* A storage: numbers and bytes of a block, 0 of those that are known by name alone; who reads one (NULL: one
   number a block). */
typedef struct gguf_kind {
    uint32_t as;
    const char *name;
    unsigned numbers, bytes;
    void (*block)(const unsigned char *at, float *x);
} gguf_kind;

static inline const gguf_kind *gguf_kind_of(uint32_t as) {
    static const gguf_kind kinds[] = {
        {GGUF_AS_F32, "F32", 1, 4, NULL}, {GGUF_AS_F16, "F16", 1, 2, NULL},
        {GGUF_AS_BF16, "BF16", 1, 2, NULL},
        {GGUF_AS_Q4_0, "Q4_0", 32, 18, gguf_q4_0_block}, {GGUF_AS_Q4_1, "Q4_1", 32, 20, gguf_q4_1_block},
        {GGUF_AS_Q5_0, "Q5_0", 32, 22, gguf_q5_0_block}, {GGUF_AS_Q5_1, "Q5_1", 32, 24, gguf_q5_1_block},
        {GGUF_AS_Q8_0, "Q8_0", 32, 34, gguf_q8_0_block}, {GGUF_AS_Q4_K, "Q4_K", 256, 144, gguf_q4_k_block},
        {GGUF_AS_Q5_K, "Q5_K", 256, 176, gguf_q5_k_block}, {GGUF_AS_Q6_K, "Q6_K", 256, 210, gguf_q6_k_block},
        {9, "Q8_1", 0, 0, NULL}, {10, "Q2_K", 0, 0, NULL}, {11, "Q3_K", 0, 0, NULL}, {15, "Q8_K", 0, 0, NULL},
        {16, "IQ2_XXS", 0, 0, NULL}, {17, "IQ2_XS", 0, 0, NULL}, {18, "IQ3_XXS", 0, 0, NULL},
        {19, "IQ1_S", 0, 0, NULL}, {20, "IQ4_NL", 0, 0, NULL}, {21, "IQ3_S", 0, 0, NULL},
        {22, "IQ2_S", 0, 0, NULL}, {23, "IQ4_XS", 0, 0, NULL}, {24, "I8", 0, 0, NULL},
        {25, "I16", 0, 0, NULL}, {26, "I32", 0, 0, NULL}, {27, "I64", 0, 0, NULL},
        {28, "F64", 0, 0, NULL}, {29, "IQ1_M", 0, 0, NULL},
        {34, "TQ1_0", 0, 0, NULL}, {35, "TQ2_0", 0, 0, NULL}, {39, "MXFP4", 0, 0, NULL}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].as == as) return &kinds[i];
    return NULL;
}

static inline const char *gguf_storage(uint32_t as) {
    const gguf_kind *kind = gguf_kind_of(as);
    return kind ? kind->name : "";
}

/* Bytes of n numbers; 0 where they cannot be stored so, are none, or too many. */
static inline uint64_t gguf_size(uint32_t as, uint64_t n) {
    const gguf_kind *kind = gguf_kind_of(as);
    if (!kind || !kind->numbers || n > UINT64_MAX / 8 || n % kind->numbers) return 0;
    return n / kind->numbers * kind->bytes;
}

/* Of whole blocks. */
static inline void gguf_decode(uint32_t as, const unsigned char *at, size_t n, float *x) {
    const gguf_kind *kind = gguf_kind_of(as);
    for (size_t i = 0; i < n; i += kind->numbers, at += kind->bytes) {
        if (kind->block) kind->block(at, x + i);
        else if (as == GGUF_AS_F32) x[i] = gguf_float((uint32_t)gguf_bits(at, 4));
        else if (as == GGUF_AS_F16) x[i] = gguf_half_at(at);
        else x[i] = gguf_float((uint32_t)gguf_bits(at, 2) << 16);
    }
}

static inline unsigned char *gguf_store(unsigned char *at, uint64_t bits, int n) {
    for (; n--; bits >>= 8) *at++ = (unsigned char)bits;
    return at;
}

/* A block's factor is its largest modulus over 127, which no finite F16 holds beyond 65504 * 127. */
static inline void gguf_encode(uint32_t as, const float *x, size_t n, unsigned char *at) {
    float largest, inverse = 0;
    uint32_t bits;
    for (size_t i = 0; i < n; i++) {
        if (as == GGUF_AS_Q8_0 && i % GGUF_BLOCK == 0) {
            largest = 0;
            for (size_t j = i; j < i + GGUF_BLOCK; j++)
                if (fabsf(x[j]) > largest) largest = fabsf(x[j]);
            inverse = largest > 1e-30f ? 1 / (largest / 127) : 0; /* else beyond floats; the factor is 0 */
            at = gguf_store(at, gguf_to_half(largest / 127), 2);
        }
        memcpy(&bits, &x[i], 4);
        if (as == GGUF_AS_Q8_0) *at++ = (unsigned char)(int)roundf(x[i] * inverse);
        else if (as == GGUF_AS_F32) at = gguf_store(at, bits, 4);
        else at = gguf_store(at, as == GGUF_AS_F16 ? gguf_to_half(x[i]) : gguf_to_brain(x[i]), 2);
    }
}

/* ---- Values ---- */

/* Bytes of a value whose size is fixed, 0 of others. */
static inline int gguf_width(uint32_t type) {
    static const unsigned char widths[GGUF_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < GGUF_TYPES ? widths[type] : 0;
}

static inline double gguf_number(uint32_t type, const unsigned char *at) {
    uint64_t bits = gguf_bits(at, gguf_width(type)), sign;
    double x;
    if (type == GGUF_F32) return (double)gguf_float((uint32_t)bits);
    if (type == GGUF_F64) return memcpy(&x, &bits, 8), x;
    if (type != GGUF_I8 && type != GGUF_I16 && type != GGUF_I32 && type != GGUF_I64) return (double)bits;
    sign = (uint64_t)1 << (8 * gguf_width(type) - 1);
    return (double)(bits & (sign - 1)) - (bits & sign ? (double)sign : 0);
}

/* A number or truth value, element i of an array of these (else i = 0); 0 where it is none. */
static inline int gguf_element(const gguf_value *v, uint64_t i, double *x) {
    uint32_t type = !v ? (uint32_t)GGUF_TEXT : v->type == GGUF_ARRAY ? v->of : v->type;
    if (!gguf_width(type) || i >= v->count) return 0;
    *x = gguf_number(type, v->at + i * (uint64_t)gguf_width(type));
    return 1;
}

/* Steps through an array of texts: returns where the one at *at begins, *n its bytes; moves *at behind it. */
static inline const char *gguf_next(const unsigned char **at, size_t *n) {
    const char *text = (const char *)*at + 8;
    *n = (size_t)gguf_bits(*at, 8), *at += 8 + *n;
    return text;
}

static inline int gguf_by_key(const void *a, const void *b) {
    return strcmp(((const gguf_value *)a)->key, ((const gguf_value *)b)->key);
}

static inline int gguf_by_name(const void *a, const void *b) {
    return strcmp(((const gguf_tensor *)a)->name, ((const gguf_tensor *)b)->name);
}

static inline int gguf_by_place(const void *a, const void *b) {
    const gguf_tensor *x = (const gguf_tensor *)a, *y = (const gguf_tensor *)b;
    if (x->begin != y->begin) return x->begin > y->begin ? 1 : -1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static inline const gguf_value *gguf_find(const gguf_file *g, const char *key) {
    gguf_value wanted;
    memset(&wanted, 0, sizeof wanted), wanted.key = key;
    if (!g->n_values) return NULL;
    return (const gguf_value *)bsearch(&wanted, g->values, g->n_values, sizeof wanted, gguf_by_key);
}

static inline const gguf_tensor *gguf_find_tensor(const gguf_file *g, const char *name) {
    gguf_tensor wanted;
    memset(&wanted, 0, sizeof wanted), wanted.name = name;
    if (!g->n_tensors) return NULL;
    return (const gguf_tensor *)bsearch(&wanted, g->tensors, g->n_tensors, sizeof wanted, gguf_by_name);
}

/* ---- Reading ---- */

/* Where the reader stands. What is asked beyond the bytes in memory is `cut`: more may be in the file. */
typedef struct gguf_cursor {
    gguf_file *file;
    size_t at, named; /* named: bytes of file->names in use */
    int cut;
    char *error;
} gguf_cursor;

static inline const unsigned char *gguf_take(gguf_cursor *c, uint64_t n) {
    const unsigned char *at = c->file->bytes + c->at;
    int cut = n > c->file->n_bytes - c->at;
    if (n > c->file->size - c->at) gguf_fail(c->error, "the file is cut off or says wrong sizes");
    else if (cut) c->cut = 1;
    if (cut) return NULL;
    c->at += (size_t)n;
    return at;
}

static inline int gguf_take_number(gguf_cursor *c, int width, uint64_t *n) {
    const unsigned char *at = gguf_take(c, (uint64_t)width);
    return at ? *n = gguf_bits(at, width), 1 : 0;
}

/* How many things follow, which take `least` bytes or more each. */
static inline int gguf_take_count(gguf_cursor *c, uint64_t least, uint64_t *n) {
    if (!gguf_take_number(c, 8, n)) return 0;
    if (*n <= (c->file->size - c->at) / least) return 1;
    return gguf_fail(c->error, "it says it has %llu things, which its %llu bytes cannot hold",
                     (unsigned long long)*n, (unsigned long long)c->file->size);
}

/* A name, copied with an end of its own. */
static inline const char *gguf_take_name(gguf_cursor *c) {
    char *name = c->file->names + c->named;
    const unsigned char *at;
    uint64_t n;
    if (!gguf_take_count(c, 1, &n) || !(at = gguf_take(c, n))) return NULL;
    memcpy(name, at, (size_t)n), name[n] = 0, c->named += (size_t)n + 1;
    if (n && !memchr(at, 0, (size_t)n)) return name;
    gguf_fail(c->error, "a name is empty or has a zero in it");
    return NULL;
}

static inline int gguf_take_value(gguf_cursor *c, gguf_value *v) {
    uint64_t type, least, n, i;
    size_t begin;
    if (!(v->key = gguf_take_name(c)) || !gguf_take_number(c, 4, &type)) return 0;
    v->type = v->of = (uint32_t)type, v->count = 1;
    if (type == GGUF_ARRAY) {
        if (!gguf_take_number(c, 4, &n)) return 0;
        v->of = (uint32_t)n;
    }
    if (v->of >= GGUF_TYPES || v->of == GGUF_ARRAY)
        return gguf_fail(c->error, "%.80s has an unknown type, %lu", v->key, (unsigned long)v->of);
    least = v->of != GGUF_TEXT ? (uint64_t)gguf_width(v->of) : v->type == GGUF_ARRAY ? 8 : 1;
    if ((v->type == GGUF_ARRAY || v->type == GGUF_TEXT) && !gguf_take_count(c, least, &v->count)) return 0;
    begin = c->at, v->at = c->file->bytes + begin;
    if (v->type == GGUF_TEXT && !gguf_take(c, v->count)) return 0;
    if (v->of != GGUF_TEXT && !gguf_take(c, v->count * (uint64_t)gguf_width(v->of))) return 0;
    for (i = 0; v->type == GGUF_ARRAY && v->of == GGUF_TEXT && i < v->count; i++)
        if (!gguf_take_count(c, 1, &n) || !gguf_take(c, n)) return 0;
    v->bytes = c->at - begin;
    return 1;
}

static inline int gguf_take_tensor(gguf_cursor *c, gguf_tensor *t) {
    const gguf_kind *kind;
    uint64_t n, rank;
    if (!(t->name = gguf_take_name(c)) || !gguf_take_number(c, 4, &rank)) return 0;
    if (rank > GGUF_RANK) return gguf_fail(c->error, "%.80s has %lu axes", t->name, (unsigned long)rank);
    for (t->rank = (int)rank, t->count = 1; rank--;) {
        if (!gguf_take_number(c, 8, &n)) return 0;
        t->shape[rank] = n;
        if (n && t->count > UINT64_MAX / 8 / n) return gguf_fail(c->error, "%.80s is too large", t->name);
        t->count *= n;
    }
    if (!gguf_take_number(c, 4, &n) || !gguf_take_number(c, 8, &t->begin)) return 0;
    t->as = (uint32_t)n, t->bytes = gguf_size(t->as, t->count);
    kind = gguf_kind_of(t->as);
    if (kind && kind->numbers > 1 && (!t->rank || t->shape[t->rank - 1] % kind->numbers))
        return gguf_fail(c->error, "%.80s has rows of %s that are no multiple of %u", t->name, kind->name,
                         kind->numbers);
    return 1;
}

/* Tensors lie inside of the file, aligned and apart; no name comes twice. */
static inline int gguf_check(gguf_file *g, size_t header, char *error) {
    const gguf_value *v;
    double alignment = GGUF_ALIGNMENT;
    uint64_t room, step, end = 0;
    size_t i;
    if (g->n_values) qsort(g->values, g->n_values, sizeof *g->values, gguf_by_key);
    for (i = 1; i < g->n_values; i++)
        if (!gguf_by_key(&g->values[i - 1], &g->values[i]))
            return gguf_fail(error, "%.80s comes twice", g->values[i].key);
    v = gguf_find(g, "general.alignment");
    if (v && (v->type != GGUF_U32 || !gguf_element(v, 0, &alignment))) alignment = 0;
    step = alignment <= 1048576 ? (uint64_t)alignment : 0;
    if (!step || (step & (step - 1))) return gguf_fail(error, "general.alignment is no power of two");
    g->data = ((uint64_t)header + step - 1) / step * step;
    room = g->size > g->data ? g->size - g->data : 0;
    if (g->n_tensors) qsort(g->tensors, g->n_tensors, sizeof *g->tensors, gguf_by_place);
    for (i = 0; i < g->n_tensors; i++) {
        const gguf_tensor *t = &g->tensors[i];
        if (t->begin > room || t->bytes > room - t->begin)
            return gguf_fail(error, "%.80s ends beyond the file", t->name);
        if (t->begin % step || t->begin < end)
            return gguf_fail(error, "%.80s is not where it can be", t->name);
        end = t->begin + t->bytes;
    }
    if (g->n_tensors) qsort(g->tensors, g->n_tensors, sizeof *g->tensors, gguf_by_name);
    for (i = 1; i < g->n_tensors; i++)
        if (!gguf_by_name(&g->tensors[i - 1], &g->tensors[i]))
            return gguf_fail(error, "%.80s comes twice", g->tensors[i].name);
    return 1;
}

/* Reads all that stands before the tensors from g->bytes; -1: there are not enough of them. */
static inline int gguf_parse(gguf_file *g, char *error) {
    gguf_cursor c;
    uint64_t magic = 0, version = 0, n_tensors, n_values, i;
    memset(&c, 0, sizeof c), c.file = g, c.error = error;
    free(g->values), free(g->tensors), free(g->names);
    g->values = NULL, g->tensors = NULL, g->names = NULL, g->n_values = g->n_tensors = 0;
    if (g->size < 24) return gguf_fail(error, "too short for a GGUF file");
    if (gguf_take_number(&c, 4, &magic) && magic != 0x46554747) return gguf_fail(error, "no GGUF file");
    if (gguf_take_number(&c, 4, &version) && version != 2 && version != 3)
        return gguf_fail(error,
                         version & 0xFFFF ? "version %lu of GGUF is unknown" : "a big-endian GGUF file",
                         (unsigned long)version);
    if (!gguf_take_count(&c, 24, &n_tensors) || !gguf_take_count(&c, 13, &n_values)) return c.cut ? -1 : 0;
    /* a name takes its bytes and 8 more in the file, and 1 here */
    if (n_values <= g->n_bytes / 13 && n_tensors <= g->n_bytes / 24) {
        g->values = (gguf_value *)calloc((size_t)n_values + 1, sizeof *g->values);
        g->tensors = (gguf_tensor *)calloc((size_t)n_tensors + 1, sizeof *g->tensors);
        g->names = (char *)malloc(g->n_bytes);
        if (!g->values || !g->tensors || !g->names) return gguf_fail(error, "no memory for its header");
    } else return -1; /* of a file: gguf_take_count has compared them with its size */
    for (i = 0; i < n_values; i++)
        if (!gguf_take_value(&c, &g->values[g->n_values])) return c.cut ? -1 : 0;
        else g->n_values++;
    for (i = 0; i < n_tensors; i++)
        if (!gguf_take_tensor(&c, &g->tensors[g->n_tensors])) return c.cut ? -1 : 0;
        else g->n_tensors++;
    return gguf_check(g, c.at, error);
}

/* Reads a file in memory, which must stay until gguf_close. */
static inline int gguf_read(gguf_file *g, const void *bytes, size_t n, char *error) {
    memset(g, 0, sizeof *g);
    g->bytes = (const unsigned char *)bytes, g->n_bytes = n, g->size = n;
    if (gguf_parse(g, error) == 1) return 1;
    return gguf_close(g), 0;
}

/* Files beyond 2 GiB, also where a long has 32 bits */
static inline int gguf_seek(FILE *file, int64_t at, int from) {
#ifdef _WIN32
    return _fseeki64(file, at, from);
#else
    return fseeko(file, (off_t)at, from);
#endif
}

static inline int64_t gguf_tell(FILE *file) {
#ifdef _WIN32
    return _ftelli64(file);
#else
    return ftello(file);
#endif
}

/* Opens a file; tensors are read when they are asked for. The line says nothing of the path. */
static inline int gguf_open(gguf_file *g, const char *path, char *error) {
    size_t room = (size_t)1 << 16;
    int64_t end;
    int done = -1;
    memset(g, 0, sizeof *g);
    if (!(g->file = regular_open(path))) return gguf_fail(error, "cannot open it%s", regular_fault(path));
    if (gguf_seek(g->file, 0, SEEK_END) || (end = gguf_tell(g->file)) < 0)
        return gguf_close(g), gguf_fail(error, "cannot read it");
    for (g->size = (uint64_t)end; done < 0; room *= 4) {
        size_t n = room < g->size ? room : (size_t)g->size;
        unsigned char *bytes = (unsigned char *)realloc(g->own, n + 1);
        if (!bytes) return gguf_close(g), gguf_fail(error, "no memory for its header");
        g->own = bytes, g->bytes = bytes, g->n_bytes = n;
        if (gguf_seek(g->file, 0, SEEK_SET) || fread(bytes, 1, n, g->file) != n)
            return gguf_close(g), gguf_fail(error, "cannot read it");
        done = gguf_parse(g, error);
    }
    return done ? 1 : (gguf_close(g), 0);
}

/* Reads the bytes of a tensor as they are. */
static inline int gguf_read_bytes(gguf_file *g, const gguf_tensor *t, void *bytes, char *error) {
    const uint64_t at = g->data + t->begin, n = t->bytes;
    int done = g->file ? !gguf_seek(g->file, (int64_t)at, SEEK_SET) && fread(bytes, 1, n, g->file) == n
                       : at + n <= g->n_bytes;
    if (done && !g->file) memcpy(bytes, g->bytes + at, n);
    return done ? 1 : gguf_fail(error, "cannot read %.80s", t->name);
}

/* Reads all numbers of a tensor into x [count]. */
static inline int gguf_read_tensor(gguf_file *g, const gguf_tensor *t, float *x, char *error) {
    enum { PIECE = 32768 };
    unsigned char piece[PIECE * 4];
    uint64_t at = g->data + t->begin;
    size_t i, n, bytes;
    if (!t->bytes && t->count)
        return gguf_fail(error, "%.80s is stored as %s (type %lu), not as F32, F16, BF16, Q8_0, Q4_0, Q4_1, "
                         "Q5_0, Q5_1, Q4_K, Q5_K or Q6_K", t->name,
                         gguf_kind_of(t->as) ? gguf_storage(t->as) : "what is unknown here",
                         (unsigned long)t->as);
    if (g->file && gguf_seek(g->file, (int64_t)at, SEEK_SET))
        return gguf_fail(error, "cannot read %.80s", t->name);
    for (i = 0; i < t->count; i += n, at += bytes) {
        n = (size_t)t->count - i;
        if (n > PIECE) n = PIECE;
        bytes = (size_t)gguf_size(t->as, n);
        if (g->file ? fread(piece, 1, bytes, g->file) != bytes : at + bytes > g->n_bytes)
            return gguf_fail(error, "cannot read %.80s", t->name);
        gguf_decode(t->as, g->file ? piece : g->bytes + at, n, x + i);
    }
    return 1;
}

/* ---- Writing ---- */

typedef struct gguf_buffer { unsigned char *at; size_t n, room; } gguf_buffer;

/* Collects what stands before the tensors: values, then tensors, then gguf_put_head; their numbers follow in
   the same order, filled up to 32 bytes each (gguf_padding). A failure for memory stays and is told last. */
typedef struct gguf_writer {
    gguf_buffer values, tensors;
    uint64_t n_values, n_tensors, data; /* data: bytes of the tensors so far */
    int failed;
} gguf_writer;

static inline void gguf_put_bytes(gguf_writer *w, gguf_buffer *b, const void *bytes, size_t n) {
    if (w->failed || n > SIZE_MAX / 4 - b->n) { w->failed = 1; return; }
    if (b->n + n > b->room) {
        size_t room = 2 * (b->n + n) + 256;
        unsigned char *at = (unsigned char *)realloc(b->at, room);
        if (!at) { w->failed = 1; return; }
        b->at = at, b->room = room;
    }
    if (n) memcpy(b->at + b->n, bytes, n);
    b->n += n;
}

static inline void gguf_put_number(gguf_writer *w, gguf_buffer *b, uint64_t bits, int width) {
    unsigned char bytes[8];
    gguf_store(bytes, bits, width);
    gguf_put_bytes(w, b, bytes, (size_t)width);
}

static inline void gguf_put_string(gguf_writer *w, gguf_buffer *b, const char *text, size_t n) {
    gguf_put_number(w, b, n, 8);
    gguf_put_bytes(w, b, text, n);
}

/* Begins a value; what it is follows by gguf_put_number or gguf_put_string into &w->values. */
static inline void gguf_put_key(gguf_writer *w, const char *key, uint32_t type) {
    gguf_put_string(w, &w->values, key, strlen(key));
    gguf_put_number(w, &w->values, type, 4);
    w->n_values++;
}

static inline void gguf_put_text(gguf_writer *w, const char *key, const char *text, size_t n) {
    gguf_put_key(w, key, GGUF_TEXT);
    gguf_put_string(w, &w->values, text, n);
}

static inline void gguf_put_whole(gguf_writer *w, const char *key, uint32_t n) {
    gguf_put_key(w, key, GGUF_U32);
    gguf_put_number(w, &w->values, n, 4);
}

static inline void gguf_put_real(gguf_writer *w, const char *key, float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    gguf_put_key(w, key, GGUF_F32);
    gguf_put_number(w, &w->values, bits, 4);
}

static inline void gguf_put_flag(gguf_writer *w, const char *key, int set) {
    gguf_put_key(w, key, GGUF_BOOL);
    gguf_put_number(w, &w->values, set != 0, 1);
}

/* Begins an array; its elements follow. */
static inline void gguf_put_array(gguf_writer *w, const char *key, uint32_t of, uint64_t count) {
    gguf_put_key(w, key, GGUF_ARRAY);
    gguf_put_number(w, &w->values, of, 4);
    gguf_put_number(w, &w->values, count, 8);
}

/* A value of a file, as it is there. */
static inline void gguf_put_value(gguf_writer *w, const gguf_value *v) {
    if (v->type == GGUF_ARRAY) gguf_put_array(w, v->key, v->of, v->count);
    else gguf_put_key(w, v->key, v->type);
    if (v->type == GGUF_TEXT) gguf_put_number(w, &w->values, v->count, 8);
    gguf_put_bytes(w, &w->values, v->at, v->bytes);
}

static inline size_t gguf_padding(uint64_t bytes) { return (size_t)(-bytes % GGUF_ALIGNMENT); }

static inline void gguf_put_tensor(gguf_writer *w, const char *name, const size_t *shape, int rank,
                                   uint32_t as) {
    uint64_t count = 1, bytes;
    gguf_put_string(w, &w->tensors, name, strlen(name));
    gguf_put_number(w, &w->tensors, (uint64_t)rank, 4);
    while (rank--) gguf_put_number(w, &w->tensors, shape[rank], 8), count *= shape[rank];
    gguf_put_number(w, &w->tensors, as, 4);
    gguf_put_number(w, &w->tensors, w->data, 8);
    bytes = gguf_size(as, count), w->data += bytes + gguf_padding(bytes), w->n_tensors++;
}

/* Writes the head, filled up to 32 bytes, and frees it. */
static inline int gguf_put_head(gguf_writer *w, FILE *file) {
    static const unsigned char zeros[GGUF_ALIGNMENT] = {0};
    unsigned char head[24];
    uint64_t size = sizeof head + w->values.n + w->tensors.n;
    gguf_store(head, 0x46554747, 4), gguf_store(head + 4, 3, 4);
    gguf_store(head + 8, w->n_tensors, 8), gguf_store(head + 16, w->n_values, 8);
    if (!w->failed)
        w->failed = fwrite(head, 1, sizeof head, file) != sizeof head ||
                    fwrite(w->values.at, 1, w->values.n, file) != w->values.n ||
                    fwrite(w->tensors.at, 1, w->tensors.n, file) != w->tensors.n ||
                    fwrite(zeros, 1, gguf_padding(size), file) != gguf_padding(size);
    free(w->values.at), free(w->tensors.at);
    memset(&w->values, 0, sizeof w->values), memset(&w->tensors, 0, sizeof w->tensors);
    return !w->failed;
}

#endif
