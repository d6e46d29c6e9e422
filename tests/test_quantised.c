/* Packed weights and caches: rows against floats, every kind of attention with them against itself without
   them, prompts against single tokens, packed files and models, sharing, refusals. */
#include "models.h"

enum { V = 23, N = 24 };

static cmha_context context;
static check_heap heap;
static cmha_buffer files[] = {
    {"numbers", NULL, 0, NULL, NULL, 0},
    {"packed", NULL, 0, NULL, NULL, 0},
    {"twice", NULL, 0, NULL, NULL, 0},
    {NULL, NULL, 0, NULL, NULL, 0}};

static double half_ulp(cmha_storage storage, double weight, double scale) {
    return storage == CMHA_STORAGE_INT8 ? scale / 2 : fabs(weight) / 256;
}

static cmha_packed packed_of(const cmha_real *weight, size_t O, size_t I, cmha_storage storage) {
    cmha_packed p;
    memset(&p, 0, sizeof p);
    p.storage = storage, p.n_out = O, p.n_in = I;
    p.words = (uint32_t *)check_alloc(cmha_packed_words(storage, O, I), sizeof *p.words);
    p.scales = storage == CMHA_STORAGE_INT8 ? check_zeros(O) : NULL;
    cmha_pack(&p, weight);
    return p;
}

static void free_packed(cmha_packed *p) { free(p->words), free(p->scales); }

/* ------------------------------------------------- rows ------------------------------------------------- */

/* The sum of squared errors of what is held as `back` or, NULL, as the nearest codes of a scale. */
static double error_of_32(const cmha_real *x, size_t n, const cmha_real *back, double scale) {
    double sum = 0;
    for (size_t j = 0; j < n; j++) {
        double one = (double)x[j], code = back ? 0 : fmax(-8, fmin(floor(one / scale + 0.5), 7));
        double off = one - (back ? (double)back[j] : scale * code);
        sum += off * off;
    }
    return sum;
}

/* 32 weights as INT4: no scale in steps of 0.4 % has a smaller error. */
static void least_error(const cmha_real *x, size_t n, const cmha_real *back) {
    const double most = (double)check_largest(x, n), error = error_of_32(x, n, back, 0);
    double least = error;
    if (!(most > 0)) return;
    for (double scale = most * 1.1; scale > most / 16; scale *= 0.996) {
        least = fmin(least, error_of_32(x, n, NULL, scale));
        least = fmin(least, error_of_32(x, n, NULL, -scale));
    }
    CHECK_THAT(error <= least * 1.001 + 1e-6 * most * most, "%zu weights: error %g, %g is possible", n,
               error, least);
}

/* 32 weights as Q4_K: of scales and minima on a grid, without the steps that these have, none has an error
   much smaller. */
static void near_least(const cmha_real *x, size_t n, const cmha_real *back) {
    double low = 0, high = (double)x[0], error = error_of_32(x, n, back, 0), least = error;
    for (size_t j = 0; j < n; j++) low = fmin(low, (double)x[j]), high = fmax(high, (double)x[j]);
    for (double scale = (high - low) / 22; scale < (high - low) / 14.5; scale *= 1.02)
        for (double below = -low; below > -low - 3 * scale && below >= 0; below -= scale / 8) {
            double some = 0;
            for (size_t j = 0; j < n; j++) {
                double code = fmax(0, fmin(floor(((double)x[j] + below) / scale + 0.5), 15));
                some += (scale * code - below - (double)x[j]) * (scale * code - below - (double)x[j]);
            }
            least = fmin(least, some);
        }
    CHECK_THAT(n < 8 || error <= least * 1.4, "%zu weights: error %g, %g is possible", n, error, least);
}

/* Rounded rows against the sums in double of what was rounded: of a factor's half times the weights at most;
   few rows, many, and any part of the matrix are the same function. */
static void rounded_rows(const cmha_packed *p, const cmha_real *back) {
    enum { T = 11, FEW = 3 };
    const size_t O = p->n_out, I = p->n_in, words = 32 * ((I + 63) / 64), lo = O / 3, hi = O - O / 4;
    cmha_real *x = check_array(T * I, 2), *y = check_zeros(T * O), *few = check_zeros(FEW * O),
              *part = check_zeros(T * O), factors[T];
    cmha_rounded r = {T, (uint32_t *)check_alloc(T * words + 1, sizeof(uint32_t)), factors};
    double off = 0, apart = 0, sum, size;
    size_t o, i, t;
    for (i = 0; i < I; i++) x[I + i] = 0; /* a row of zeros */
    if (I > 3) x[2 * I + 3] = 1000;
    cmha_round_rows(p, x, 0, T / 2, &r), cmha_round_rows(p, x, T / 2, T, &r);
    cmha_rounded_forward(p, &r, 0, O, y, O);
    for (o = 0; o < O; o++)
        for (t = 0; t < T; t++) {
            for (sum = size = 0, i = 0; i < I; i++) {
                sum += (double)back[o * I + i] * (double)x[t * I + i];
                size += fabs((double)back[o * I + i]) *
                        ((double)factors[t] * 0.505 + 2e-6 * fabs((double)x[t * I + i]));
            }
            off = fmax(off, fabs(sum - (double)y[t * O + o]) - size);
        }
    CHECK_THAT(off <= 1e-12, "%zu x %zu, storage %d: rounded products are %.3g beyond", O, I, p->storage,
               off);
    for (o = 0; o < O; o++) CHECK(!(y[O + o] < 0 || y[O + o] > 0));
    r.T = FEW;
    cmha_rounded_forward(p, &r, 0, O, few, O);
    apart = check_distance(few, y, FEW * O) / (check_largest(y, FEW * O) + 1e-9);
    CHECK_THAT(apart <= (p->scales ? 0 : check_tolerance(1e-13, 1e-6)), "few are %.3g from many", apart);
    r.T = T;
    cmha_rounded_forward(p, &r, lo, hi, part, O);
    for (t = 0; t < T; t++) CHECK(!memcmp(part + t * O, y + t * O + lo, (hi - lo) * sizeof *y));
    if (I > 3) x[2 * I + 3] = (cmha_real)INFINITY;
    x[0] = (cmha_real)NAN;
    cmha_round_rows(p, x, 0, T, &r);
    cmha_rounded_forward(p, &r, 0, O, part, O);
    CHECK(part[0] != part[0] && check_finite(part + O, O) && check_finite(part + 3 * O, O));
    CHECK(I < 4 || part[2 * O] != part[2 * O]);
    free(x), free(y), free(few), free(part), free(r.words);
}

/* Every weight within half a step, products those of the unpacked weights, for any part of the rows */
static void rows(size_t O, size_t I, cmha_storage storage) {
    enum { T = 3 };
    cmha_real *w = check_array(O * I, 3), *back = check_zeros(O * I), *x = check_array(T * I, 2),
              *y = check_zeros(T * O);
    cmha_real *part = check_zeros(O * I + T * O), *before = check_zeros(T * O);
    cmha_packed p;
    double worst = 0, off = 0, sum, size;
    size_t o, i, t, lo = O / 3, hi = O - O / 4;
    if (O > 2)
        for (i = 0; i < I; i++) w[2 * I + i] = 0;
    p = packed_of(w, O, I, storage);
    CHECK(p.source == w);
    cmha_unpack(&p, 0, O, back);
    for (o = 0; o < O; o++)
        for (i = 0; i < I; i++) {
            double scale = p.scales ? (double)p.scales[o] : 0,
                   allowed = half_ulp(storage, (double)w[o * I + i], scale) * (1 + 1e-5);
            if (storage >= CMHA_STORAGE_INT4) {
                size_t at = o * I + i, n = I - i < 32 ? I - i : 32;
                if (i % 32) continue;
                if (storage == CMHA_STORAGE_INT4) least_error(w + at, n, back + at);
                else near_least(w + at, n, back + at);
                continue;
            }
            worst = fmax(worst, fabs((double)w[o * I + i] - (double)back[o * I + i]) - allowed);
        }
    CHECK_THAT(worst <= 0, "%zu x %zu, storage %d: %.3g beyond half a step", O, I, storage, worst);
    CHECK(O * I < 8 || check_distance(w, back, O * I) > 1e-4);
    if (O > 2 && I) CHECK(check_largest(back + 2 * I, I) == 0);
    cmha_unpack(&p, lo, hi, part);
    CHECK(!memcmp(part, back + lo * I, (hi - lo) * I * sizeof *part));
    cmha_packed_forward(&p, x, T, 0, O, y, O);
    for (o = 0; o < O; o++)
        for (t = 0; t < T; t++) {
            for (sum = size = 0, i = 0; i < I; i++) {
                sum += (double)back[o * I + i] * (double)x[t * I + i];
                size += fabs((double)back[o * I + i] * (double)x[t * I + i]);
            }
            off = fmax(off, fabs(sum - (double)y[t * O + o]) / (size + 1e-3));
        }
    CHECK_THAT(off < check_tolerance(1e-13, 1e-5), "%zu x %zu, storage %d: products are off by %.3g", O, I,
               storage, off);
    check_fill(part, T * O, 1);
    memcpy(before, part, T * O * sizeof *part);
    cmha_packed_forward(&p, x, T, lo, hi, part + lo, O);
    for (t = 0; t < T; t++) {
        CHECK(!memcmp(part + t * O + lo, y + t * O + lo, (hi - lo) * sizeof *y));
        CHECK(!memcmp(part + t * O, before + t * O, lo * sizeof *part)); /* nothing else was written */
        CHECK(!memcmp(part + t * O + hi, before + t * O + hi, (O - hi) * sizeof *part));
    }
    if (storage != CMHA_STORAGE_BF16 && I) rounded_rows(&p, back);
    free_packed(&p), free(w), free(back), free(x), free(y), free(part), free(before);
}

static void all_rows(void) {
    static const size_t sizes[][2] = {{1, 1},   {3, 5},    {4, 64},  {5, 63},   {7, 65},
                                      {8, 128}, {13, 200}, {33, 17}, {16, 1000}, {7, 1300}};
    size_t i;
    for (i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        rows(sizes[i][0], sizes[i][1], CMHA_STORAGE_INT8);
        rows(sizes[i][0], sizes[i][1], CMHA_STORAGE_BF16);
        rows(sizes[i][0], sizes[i][1], CMHA_STORAGE_INT4);
        rows(sizes[i][0], sizes[i][1], CMHA_STORAGE_Q4_K);
    }
}

/* Weights on the grid come back as they were, and products of whole numbers are exact. */
static void on_the_grid(void) {
    enum { O = 5, I = 150 };
    cmha_real w[O * I], back[O * I], x[I], y[O];
    cmha_packed p;
    double want;
    size_t o, i;
    for (o = 0; o < O; o++)
        for (i = 0; i < I; i++)
            w[o * I + i] =
                (cmha_real)(ldexp(1, (int)o - 2) * (i == 3 ? 127 : (double)check_below(255) - 127));
    for (i = 0; i < I; i++) x[i] = (cmha_real)((double)check_below(9) - 4);
    p = packed_of(w, O, I, CMHA_STORAGE_INT8);
    cmha_unpack(&p, 0, O, back);
    CHECK(!memcmp(w, back, sizeof w));
    cmha_packed_forward(&p, x, 1, 0, O, y, O);
    for (o = 0; o < O; o++) {
        for (want = 0, i = 0; i < I; i++) want += (double)w[o * I + i] * (double)x[i];
        CHECK((double)y[o] == want);
    }
    free_packed(&p);
    p = packed_of(w, O, I, CMHA_STORAGE_BF16); /* 8 bits hold -127 .. 127 */
    cmha_unpack(&p, 0, O, back);
    CHECK(!memcmp(w, back, sizeof w));
    free_packed(&p);
}

/* What has 16 steps of one size comes back as it was, whatever its codes, so that packing twice changes
   nothing. A NaN stays with its 32. */
static void four_bits(void) {
    enum { O = 6, I = 100 };
    static const double scales[O] = {0.0078125,             -0.3330078125,   1000,
                                     5.9604644775390625e-8, -6.103515625e-5, 65504};
    cmha_real w[O * I], back[O * I], x[I], y[O];
    cmha_packed p;
    size_t o, i;
    for (size_t codes = 2; codes <= 16; codes++) { /* how many different ones there are at most */
        for (o = 0; o < O; o++)
            for (i = 0; i < I; i++) {
                size_t code = (i * i * 31 + i * codes + o * 17) % 97 % codes;
                w[o * I + i] = (cmha_real)(scales[o] * ((double)code - (double)(codes / 2)));
            }
        p = packed_of(w, O, I, CMHA_STORAGE_INT4);
        cmha_unpack(&p, 0, O, back);
        CHECK_THAT(check_distance(w, back, O * I) <= 0, "%zu codes: %g off", codes,
                   check_distance(w, back, O * I));
        free_packed(&p);
    }
    for (o = 0; o < O; o++) /* as the usual quantiser has them: the largest gets code -8 */
        for (i = 0; i < I; i++)
            w[o * I + i] = (cmha_real)(scales[o] * (i % 32 == 3 ? -8 : (double)check_below(16) - 8));
    w[40] = (cmha_real)NAN, w[I + 99] = (cmha_real)INFINITY, w[2 * I] = 600000;
    p = packed_of(w, O, I, CMHA_STORAGE_INT4);
    cmha_unpack(&p, 0, O, back);
    CHECK(check_distance(w, back, 32) <= 0 && check_distance(w + 64, back + 64, 36) <= 0);
    for (i = 32; i < 64; i++) CHECK(back[i] != back[i]);
    CHECK(back[I + 95] == w[I + 95] && back[I + 96] != back[I + 96] && back[2 * I + 31] != back[2 * I + 31]);
    for (i = 0; i < I; i++) x[i] = i ? 0 : (cmha_real)1;
    cmha_packed_forward(&p, x, 1, 0, O, y, O);
    CHECK(y[0] != y[0] && y[1] != y[1] && y[2] != y[2] && y[3] == w[3 * I] && y[5] == w[5 * I]);
    free_packed(&p);
}

/* A single weight of 32 is its scale, or less it: the nearest half, of two that are as near the even one. */
static void ties_of_halves(void) {
    static const double in[] = {1 + 1.0 / 2048,  1 + 3.0 / 2048,    -1 - 1.0 / 2048,
                                -1 - 3.0 / 2048, 2.5 / (1 << 24),   3.5 / (1 << 24),
                                0.5 / (1 << 24), 2047.5 / (1 << 24)};
    static const double out[] = {1, 1 + 4.0 / 2048, -1, -1 - 4.0 / 2048, 2.0 / (1 << 24), 4.0 / (1 << 24),
                                 0, 2048.0 / (1 << 24)};
    enum { O = sizeof in / sizeof *in, I = 32 };
    cmha_real w[O * I] = {0}, back[O * I];
    size_t o;
    for (o = 0; o < O; o++) w[o * I + o] = (cmha_real)in[o];
    cmha_packed p = packed_of(w, O, I, CMHA_STORAGE_INT4);
    cmha_unpack(&p, 0, O, back);
    for (o = 0; o < O; o++) CHECK_NEAR(back[o * I + o], out[o], 0);
    free_packed(&p);
}

/* Steps below the smallest normal half give the numbers' products, also where the CPU takes denormal floats
   for 0, as programs linked with -ffast-math let it. */
static void small_steps(cmha_storage storage) {
    enum { O = 5, I = 150, T = 7 };
    cmha_real w[O * I], back[O * I], x[T * I], y[T * O], factors[T];
    cmha_rounded rounded = {T, (uint32_t *)check_alloc(T * 32 * 3, sizeof(uint32_t)), factors};
    size_t i;
#ifdef __SSE2__
    const unsigned mode = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(mode | 0x8040);
#endif
    for (i = 0; i < O * I; i++) w[i] = (cmha_real)(2e-5 * check_random());
    for (i = 0; i < T * I; i++) x[i] = (cmha_real)(1.5 + check_random());
    cmha_packed p = packed_of(w, O, I, storage);
    cmha_unpack(&p, 0, O, back);
    cmha_round_rows(&p, x, 0, T, &rounded);
    for (int how = 0; how < 3; how++) { /* as they are; a few rounded; many */
        double off = 0;
        rounded.T = how == 1 ? 2 : T;
        if (how) cmha_rounded_forward(&p, &rounded, 0, O, y, O);
        else cmha_packed_forward(&p, x, T, 0, O, y, O);
        for (size_t at = 0; at < rounded.T * O; at++) {
            double sum = 0;
            for (i = 0; i < I; i++) sum += (double)back[at % O * I + i] * (double)x[at / O * I + i];
            off = fmax(off, fabs(sum - (double)y[at]));
        }
        CHECK_THAT(off < 2e-7 && check_largest(back, O * I) > 1e-5, "storage %d, %d: %.3g off", storage, how,
                   off);
    }
#ifdef __SSE2__
    __builtin_ia32_ldmxcsr(mode);
#endif
    free_packed(&p), free(rounded.words);
}

/* Uniform weights of a range of 6: 6 / 15 / sqrt(12) = 0.115 off without any search, 0.0936 with the steps
   that are nearest to what was found, 0.0949 if minima are not fitted. */
static void few_errors(void) {
    enum { O = 64, I = 1000 };
    cmha_real *w = check_array(O * I, 3), *back = check_zeros(O * I);
    cmha_packed p = packed_of(w, O, I, CMHA_STORAGE_Q4_K);
    double off = 0;
    cmha_unpack(&p, 0, O, back);
    for (size_t i = 0; i < O * I; i++) off += pow((double)w[i] - (double)back[i], 2);
    off = sqrt(off / (O * I));
    CHECK_THAT(off > 0.0915 && off < 0.0931, "%.4f off", off);
    free_packed(&p), free(w), free(back);
}

/* What is beyond Q4_K makes NaN of its 256, in numbers and products of few and many rows; a constant, small
   numbers and positive ones are near. A factor that is NaN, as a file may have it, likewise. */
static void four_bits_and_least(void) {
    enum { O = 9, I = 530, T = 7 };
    cmha_real w[O * I], back[O * I], x[T * I], y[T * O], factors[T];
    cmha_rounded rounded = {T, (uint32_t *)check_alloc(T * 32 * 9, sizeof(uint32_t)), factors};
    cmha_packed p;
    size_t o, i, t;
    for (o = 0; o < O; o++)
        for (i = 0; i < I; i++) w[o * I + i] = (cmha_real)(check_random() + 1.5);
    for (i = 0; i < I; i++) {
        w[3 * I + i] = (cmha_real)-0.7;
        w[4 * I + i] *= (cmha_real)1e-9;
        w[5 * I + i] = (cmha_real)(3e6 * check_random());
    }
    w[300] = (cmha_real)NAN, w[I + 529] = (cmha_real)INFINITY, w[2 * I + 2] = (cmha_real)-5e6;
    p = packed_of(w, O, I, CMHA_STORAGE_Q4_K);
    cmha_unpack(&p, 0, O, back);
    for (o = 0; o < 3; o++)
        for (i = 0; i < I; i++) CHECK((back[o * I + i] != back[o * I + i]) == (i / 256 == (o + 1) % 3));
    CHECK(check_distance(w + 3 * I, back + 3 * I, I) < 4e-4);
    CHECK(check_distance(w + 4 * I, back + 4 * I, I) < 6e-8);
    CHECK(check_distance(w + 5 * I, back + 5 * I, I) < 3e5);
    CHECK(check_distance(w + 6 * I, back + 6 * I, 3 * I) < 0.13);
    for (i = 0; i < T * I; i++) x[i] = (cmha_real)check_random();
    for (o = 6; o < O; o += 2) /* the upper 8 bits of the scales' factor of columns 256 to 511 */
        p.words[o / 4 * cmha_packed_words(p.storage, 4, I) + 5 * 36 + 32 + o % 4] |= 0x7000f000u;
    cmha_unpack(&p, 0, O, back);
    for (i = 0; i < I; i++)
        CHECK((back[6 * I + i] - back[6 * I + i] < 1) == (i / 256 != 1) && check_finite(back + 7 * I + i, 1));
    cmha_round_rows(&p, x, 0, T, &rounded);
    for (t = 0; t < 3; t++) {
        if (!t) cmha_packed_forward(&p, x, T, 0, O, y, O);
        rounded.T = t > 1 ? T : 2;
        if (t) cmha_rounded_forward(&p, &rounded, 0, O, y, O);
        for (o = 0; o < O; o++) CHECK(check_finite(y + o, 1) == (o > 2 && o != 6 && o != 8));
    }
    free_packed(&p), free(rounded.words);
}

/* Ties, the ends of the range, and what is no number */
static void odd_numbers(void) {
    static const double in[] = {1 + 1.0 / 256, 1 + 3.0 / 256, -1 - 1.0 / 256, 1 + 1.0 / 256 + 1e-6,
                                1e-40,         -0.0,          3.38e38,        0};
    static const double out[] = {1, 1 + 4.0 / 256, -1, 1 + 2.0 / 256, 1e-40, -0.0, 3.38e38, 0};
    enum { I = sizeof in / sizeof *in };
    cmha_real w[4 * I], back[4 * I], x[I], y[4], nan = (cmha_real)NAN;
    cmha_packed p;
    size_t i;
    for (i = 0; i < 4 * I; i++) w[i] = (cmha_real)in[i % I];
    p = packed_of(w, 4, I, CMHA_STORAGE_BF16);
    cmha_unpack(&p, 0, 4, back);
    for (i = 0; i < I; i++)
        CHECK_NEAR(back[i], out[i], fabs(out[i]) > 1e38 ? 1.5e36 : fabs(out[i]) < 1e-38 ? 1e-40 : 0);
    free_packed(&p);
    w[1] = nan, w[I + 2] = (cmha_real)INFINITY, w[2 * I + 6] = (cmha_real)-1;
    w[2 * I + 4] = (cmha_real)0;
    for (i = 0; i < I; i++) w[3 * I + i] = i ? 0 : (cmha_real)2;
    w[2 * I + 6] = 1;
    p = packed_of(w, 4, I, CMHA_STORAGE_BF16);
    cmha_unpack(&p, 0, 4, back);
    CHECK(back[1] != back[1] && back[0] == 1 && !(fabs((double)back[I + 2]) <= DBL_MAX) && back[I + 2] > 0);
    free_packed(&p);
#ifndef CMHA_DOUBLE
    const uint32_t signalling = 0x7f800001; /* a NaN by its lowest bit alone, which BF16 does not have */
    memcpy(&w[1], &signalling, sizeof signalling);
    p = packed_of(w, 4, I, CMHA_STORAGE_BF16);
    cmha_unpack(&p, 0, 4, back);
    CHECK(back[1] != back[1]);
    w[1] = nan;
    free_packed(&p);
#endif
    p = packed_of(w, 4, I, CMHA_STORAGE_INT8);
    for (i = 0; i < I; i++) x[i] = 1;
    cmha_packed_forward(&p, x, 1, 0, 4, y, 4);
    /* a row with one is all NaN, and only that one */
    CHECK(y[0] != y[0] && y[1] != y[1] && check_finite(y + 2, 2) && y[3] == 2);
    x[0] = nan;
    cmha_packed_forward(&p, x, 1, 0, 4, y, 4);
    CHECK(y[3] != y[3] && y[2] != y[2]);
    free_packed(&p);
    memset(w, 0, sizeof w);
    p = packed_of(w, 4, I, CMHA_STORAGE_INT8);
    x[0] = 1;
    cmha_packed_forward(&p, x, 1, 0, 4, y, 4);
    CHECK(check_largest(y, 4) == 0);
    free_packed(&p);
}

/* ------------------------------------------------ models ------------------------------------------------ */

static void open_model(cmha_model *model, const char *options) {
    cmha_model_config config = check_model_config();
    size_t i;
    config.vocabulary = V, config.max_positions = N;
    models_set(&context, &config, options);
    CHECK_THAT(!cmha_model_init(model, &context, &config), "%s: %s", options, cmha_error(&context));
    for (i = 0; i < model->parameters.size; i++)
        model->parameters.data[i] += (cmha_real)(0.05 * check_random());
}

/* logits [n / chunk, 2, V] after every chunk of tokens */
static void read_chunks(cmha_cache *cache, const int32_t *ids, size_t chunk, cmha_real *logits) {
    int32_t part[2 * N];
    size_t at, i;
    cmha_cache_reset(cache);
    for (at = 0; at + chunk <= N; at += chunk, logits += 2 * V) {
        for (i = 0; i < 2 * chunk; i++) part[i] = ids[i / chunk * N + at + i % chunk];
        CHECK_THAT(!cmha_cache_append(cache, part, chunk, logits), "%s", cmha_error(&context));
    }
}

/* Of each kind how many matrices the products of a pass read, and their numbers in all */
static const struct {
    const char *options;
    size_t matrices, numbers;
} kinds[] = {
    {"attention=cmha", 9, 3952},
    {"attention=rope layout=half norm=rmsnorm activation=swiglu n_kv_heads=2 tied=0 head_bias=1", 10, 4576},
    {"attention=cmha n_kv_heads=2 frequency=table", 9, 3440},
    {"attention=dot position=learned placement=post attention_bias=1", 10, 4336},
    {"attention=dot position=alibi n_kv_heads=1", 9, 3184},
    {"attention=rope d_head=12 rotary_dims=8 layout=half qkv_bias=1 head_transform=1 embedding_norm=1", 10,
     8304},
    {"attention=rope window=5", 9, 3952},
    /* an odd number of codes of 4 bits */
    {"d_model=15 n_heads=3 d_head=4 attention=dot", 9, 3225},
    /* wider than the registers hold at a time */
    {"d_model=96 n_heads=1 attention=cmha init_std=0.05", 9, 85152},
    {"d_model=160 n_heads=2 attention=rope init_std=0.05", 9, 223840},
    {"family=cope attention=dot cope_score=phase", 11, 4464},
    {"family=cope attention=dot cope_score=real cope_imag=learned", 12, 4848},
    {"family=cope attention=dot cope_score=hybrid_norm", 11, 4464},
    {"family=cope attention=dot cope_score=linear", 11, 4464},
    {"family=mobius attention=dot position=learned placement=post", 16, 5104},
    {"family=mobius attention=cmha position=learned placement=post mobius_mode=literal mobius_softmax=yang8 "
     "mobius_wiring=top", 10, 3952},
    {"family=mobius attention=dot position=sinusoidal placement=post mobius_heads=4 mobius_mode=full "
     "mobius_softmax=ri_split", 21, 8560},
    {"family=mobius attention=dot position=learned placement=post mobius_softmax=abs window=5", 16, 5104},
    {"family=crat real_heads=1 imag_heads=1", 15, 2544},
    {"family=crat crat_attention=dot complex_norm=whiten", 11, 2544},
    {"family=crat low_rank=2 real_heads=1", 35, 2224},
    {"family=crat crat_attention=linear", 11, 2544},
    {"family=crat experts=3 complex_residual=free", 11, 4080},
    /* rows of an expert that begin within a group and reach over blocks */
    {"family=crat experts=3 d_model=136 d_ff=10", 11, 113016},
    {"family=crat irw_layers=1 irw_width=4", 14, 2992},
};

/* The window's base: a few documents */
static void set_base(cmha_model *model, cmha_knowledge *knowledge, cmha_real *vectors, size_t n) {
    memset(knowledge, 0, sizeof *knowledge);
    if (!model->config.irw_layers) return;
    check_fill(vectors, n * 8, 1);
    CHECK_OK(cmha_knowledge_init(knowledge, &context, n, 4, vectors, NULL, NULL, NULL));
    CHECK_OK(cmha_model_set_knowledge(model, knowledge));
}

/* A packed copy of the model, by way of a file */
static void pack_copy(cmha_model *small, const cmha_model *model, cmha_storage storage) {
    CHECK_OK(cmha_model_save((cmha_model *)(uintptr_t)model, "numbers"));
    CHECK_OK(cmha_model_open(small, &context, "numbers"));
    CHECK_OK(cmha_model_pack(small, storage));
    if (model->knowledge) CHECK_OK(cmha_model_set_knowledge(small, model->knowledge));
}

/* A packed model takes `took` bytes and holds no numbers of what is packed. */
static void holds_little(const cmha_model *small, size_t took) {
    size_t i, packed = 0, lines = 3 * 64; /* three blocks, each on a line of cache */
    size_t least =
        small->table_bytes + small->packed.bytes + small->parameters.size * sizeof(cmha_real) + lines;
    CHECK_THAT(took == least, "%zu bytes instead of %zu", took, least);
    for (i = 0; i < small->parameters.count; i++) {
        const cmha_parameter *p = &small->parameters.list[i];
        CHECK(!p->tensor.packed == (p->tensor.data != NULL));
        packed += p->tensor.packed ? p->tensor.size : 0;
        CHECK_THAT(p->tensor.packed || p->tensor.size <= 4 * 2 * 160 || strstr(p->name, "omega"),
                   "%s is not packed", p->name);
    }
    CHECK(packed * sizeof(cmha_real) == small->packed.saved);
}

/* A model of the small file that a packed one saves is as small, saves the same file, and says bit for bit
   the same. */
static void small_file(cmha_model *packed, const int32_t *ids, const cmha_real *want, int rounds) {
    cmha_model small;
    cmha_cache cache;
    cmha_real *got = check_zeros(N * 2 * V);
    size_t before;
    CHECK_OK(cmha_model_save(packed, "packed"));
    before = heap.bytes;
    CHECK_THAT(!cmha_model_open(&small, &context, "packed"), "%s", cmha_error(&context));
    holds_little(&small, heap.bytes - before);
    CHECK(small.packed.n_matrices == packed->packed.n_matrices);
    CHECK(small.packed.storage == packed->packed.storage && small.packed.saved == packed->packed.saved);
    if (packed->knowledge) CHECK_OK(cmha_model_set_knowledge(&small, packed->knowledge));
    if (rounds) CHECK_OK(cmha_model_round(&small, 1));
    CHECK_OK(cmha_cache_init(&cache, &small, 2, N, 0, NULL));
    read_chunks(&cache, ids, 1, got);
    CHECK(!memcmp(got, want, N * 2 * V * sizeof *got));
    cmha_cache_close(&cache);
    CHECK_OK(cmha_model_save(&small, "twice"));
    CHECK(files[1].size == files[2].size && !memcmp(files[1].data, files[2].data, files[1].size));
    cmha_model_close(&small), free(got);
}

static void one_kind(const char *options, size_t matrices, size_t numbers) {
    static const cmha_storage weights[] = {CMHA_STORAGE_FLOAT, CMHA_STORAGE_BF16, CMHA_STORAGE_INT8,
                                           CMHA_STORAGE_INT4,  CMHA_STORAGE_Q4_K, CMHA_STORAGE_INT8,
                                           CMHA_STORAGE_INT4,  CMHA_STORAGE_Q4_K};
    /* of the largest logit: BF16 caches, BF16, INT8, INT4, Q4_K weights, the last three with rounded rows */
    static const double near[] = {0.02, 0.06, 0.25, 1.5, 1.5, 0.25, 1.5, 1.5};
    cmha_model model, small, *reads;
    cmha_cache cache;
    cmha_knowledge base;
    cmha_real vectors[5 * 8], *want = check_zeros(N * 2 * V), *got = check_zeros(N * 2 * V),
                              *whole = check_zeros(N * 2 * V);
    int32_t ids[2 * N];
    double size, off, apart;
    int w, half;
    size_t i, before;
    for (i = 0; i < 2 * N; i++) ids[i] = (int32_t)check_below(V);
    open_model(&model, options);
    set_base(&model, &base, vectors, 5);
    CHECK_OK(cmha_cache_init(&cache, &model, 2, N, 0, NULL));
    read_chunks(&cache, ids, 1, want);
    cmha_cache_close(&cache);
    size = check_largest(want, N * 2 * V);
    for (w = 0; w < 8; w++) {
        memset(&small, 0, sizeof small), reads = w ? &small : &model, before = heap.bytes;
        if (w) {
            CHECK_OK(cmha_model_save(&model, "numbers"));
            before = heap.bytes;
            pack_copy(&small, &model, weights[w]);
            holds_little(&small, heap.bytes - before);
            if (w > 4) CHECK_OK(cmha_model_round(&small, 1));
            for (i = 0; i < matrices; i++) CHECK(small.packed.matrices[i].rounds == (w > 4));
            CHECK_THAT(small.packed.n_matrices == matrices &&
                           small.packed.saved == numbers * sizeof(cmha_real),
                       "%s: %zu matrices of %zu numbers", options, small.packed.n_matrices,
                       small.packed.saved / sizeof(cmha_real));
        }
        for (half = 0; half < 2; half++) {
            cmha_cache_options o = {half ? CMHA_STORAGE_BF16 : CMHA_STORAGE_FLOAT, 0, NULL, 0, 0};
            CHECK_OK(cmha_cache_init(&cache, reads, 2, N, 0, &o));
            read_chunks(&cache, ids, 1, got);
            off = check_distance(got, want, N * 2 * V) / size;
            CHECK_THAT(off < near[w] * (strstr(options, "=full") ? 3 : 1), /* a quotient's pole magnifies */
                       "%s, weights %d, cache %d: off by %.3g", options, weights[w], half, off);
            CHECK_THAT(w || half ? off > 1e-5 || strstr(options, "linear") : off == 0,
                       "%s, weights %d, cache %d: off by only %.3g", options, weights[w], half, off);
            if (w && !half) small_file(&small, ids, got, w > 4);
            read_chunks(&cache, ids, N, whole); /* a prompt: the same function */
            apart = check_distance(whole, got + (N - 1) * 2 * V, 2 * V) / size;
            CHECK_THAT(apart < (half || w > 4 ? 0.02 : check_tolerance(1e-10, 1e-3)),
                       "%s, weights %d, cache %d: a prompt is off by %.3g", options, weights[w], half, apart);
            read_chunks(&cache, ids, N / 3, whole);
            apart = check_distance(whole + 2 * 2 * V, got + (N - 1) * 2 * V, 2 * V) / size;
            CHECK_THAT(apart < (half || w > 4 ? 0.02 : check_tolerance(1e-10, 1e-3)),
                       "%s, weights %d, cache %d: chunks are off by %.3g", options, weights[w], half, apart);
            cmha_cache_close(&cache);
        }
        cmha_model_close(&small);
    }
    cmha_model_close(&model), cmha_knowledge_close(&base);
    free(want), free(got), free(whole);
}

/* The model's matrices are all there, once, and in a quarter or half of the bytes; Q4_K has 4.5 bits a weight
   in whole 256, and of other rows no more than a half for each 32 that lack to them. */
static void bytes(void) {
    cmha_model model;
    cmha_storage storage;
    CHECK(cmha_packed_words(CMHA_STORAGE_Q4_K, 8, 1024) == 8 * 1024 / 64 * 9);
    CHECK(cmha_packed_words(CMHA_STORAGE_Q4_K, 3, 65) == 2 * 36 + 2 * 4);
    for (storage = CMHA_STORAGE_BF16; storage <= CMHA_STORAGE_Q4_K; storage = (cmha_storage)(storage + 1)) {
        int single = sizeof(cmha_real) == 4;
        double limit = single ? 0.3 : 0.17;
        if (storage >= CMHA_STORAGE_INT4) limit = single ? 0.16 : 0.09;
        if (storage == CMHA_STORAGE_BF16) limit = single ? 0.55 : 0.3;
        open_model(&model, "d_model=128 n_heads=4 d_ff=256");
        CHECK_OK(cmha_model_pack(&model, storage));
        CHECK(model.packed.n_matrices == 1 + 4 * model.config.n_layers);
        CHECK(model.packed.saved ==
              (V * 128 + model.config.n_layers * (4 * 128 * 128 + 2 * 128 * 256)) * sizeof(cmha_real));
        CHECK((double)model.packed.bytes < (double)model.packed.saved * limit);
        cmha_model_close(&model);
    }
}

/* Two caches read one packed model in turn, one of them slides; each gives what it gives alone. Threads do
   not matter. */
static void shared(void) {
    enum { STEPS = 30, CAPACITY = 10 };
    cmha_model model;
    cmha_cache a, b;
    cmha_cache_options o = {CMHA_STORAGE_BF16, 0, NULL, 0, 0};
    cmha_real alone[STEPS * V], out[V], other[2 * V];
    int32_t two[2];
    int i, threads = context.threads;
    open_model(&model, "d_model=256 n_heads=4 d_ff=512");
    CHECK_OK(cmha_model_pack(&model, CMHA_STORAGE_INT8));
    CHECK_OK(cmha_cache_init(&a, &model, 1, CAPACITY, 1, &o));
    for (i = 0; i < STEPS; i++) {
        two[0] = i * 7 % V;
        CHECK_OK(cmha_cache_append(&a, two, 1, alone + i * V));
    }
    CHECK(a.first > 0);
    cmha_cache_close(&a);
    context.threads = threads > 1 ? 1 : 2;
    CHECK_OK(cmha_cache_init(&a, &model, 1, CAPACITY, 1, &o));
    CHECK_OK(cmha_cache_init(&b, &model, 2, STEPS, 0, &o));
    for (i = 0; i < STEPS; i++) {
        two[0] = i * 7 % V, two[1] = i % V;
        CHECK_OK(cmha_cache_append(&b, two, 1, other));
        CHECK_OK(cmha_cache_append(&a, two, 1, out));
        CHECK(!memcmp(out, alone + i * V, sizeof out));
    }
    context.threads = threads;
    cmha_cache_close(&a), cmha_cache_close(&b), cmha_model_close(&model);
}

/* NaN in the past stays NaN, in a BF16 cache too, and does not outlive a reset. */
static void not_a_number(void) {
    cmha_model model;
    cmha_cache cache;
    cmha_cache_options o = {CMHA_STORAGE_BF16, 0, NULL, 0, 0};
    cmha_real out[V], kept;
    int32_t id = 3;
    open_model(&model, "attention=rope tied=0");
    CHECK_OK(cmha_cache_init(&cache, &model, 1, N, 0, &o));
    kept = model.token_weight->data[3 * model.config.d_model];
    model.token_weight->data[3 * model.config.d_model] = (cmha_real)NAN;
    CHECK_OK(cmha_cache_append(&cache, &id, 1, out));
    id = 4;
    CHECK_OK(cmha_cache_append(&cache, &id, 1, out));
    CHECK(out[0] != out[0]);
    model.token_weight->data[3 * model.config.d_model] = kept;
    cmha_cache_reset(&cache);
    CHECK_OK(cmha_cache_append(&cache, &id, 1, out));
    CHECK(check_finite(out, V));
    cmha_cache_close(&cache), cmha_model_close(&model);
}

/* What a packed model's file says to another program: codes and factors under the names of the parameters */
static void format(void) {
    cmha_model model, small;
    cmha_archive archive;
    size_t o, i, n;
    open_model(&model, "family=crat low_rank=3 real_heads=1");
    pack_copy(&small, &model, CMHA_STORAGE_INT8);
    CHECK_OK(cmha_model_save(&small, "packed"));
    cmha_model_close(&small);
    CHECK_OK(cmha_archive_open(&archive, &context, "packed"));
    CHECK(!strcmp(cmha_archive_metadata(&archive, "packed"), "int8"));
    for (n = 0; n < model.parameters.count; n++) {
        const cmha_parameter *p = &model.parameters.list[n];
        const cmha_archive_tensor *t = cmha_archive_find(&archive, p->name), *s;
        const signed char *codes;
        cmha_real scales[64];
        char name[64];
        size_t rank = (size_t)p->tensor.rank, I = p->tensor.shape[rank - 1];
        int turned = strstr(p->name, ".v") == p->name + strlen(p->name) - 2;
        if (!CHECK(t && t->rank == p->tensor.rank && !memcmp(t->shape, p->tensor.shape, rank * sizeof I)) ||
            strcmp(t->dtype, "I8") != 0)
            continue;
        snprintf(name, sizeof name, "scale.%s", p->name);
        s = cmha_archive_find(&archive, name);
        if (!CHECK(s && s->rank == 1 && s->count <= 64)) continue;
        CHECK(s->count * (turned ? t->shape[1] : I) == t->count);
        CHECK_OK(cmha_archive_read(&archive, s, scales));
        codes = (const signed char *)files[1].data + archive.data_begin + t->begin;
        for (i = 0; i < t->count; i++) {
            o = turned ? i / (t->shape[1] * I) * I + i % I : i / I;
            CHECK_NEAR((double)codes[i] * (double)scales[o], p->tensor.data[i],
                       (double)scales[o] / 2 * (1 + 1e-5));
        }
    }
    cmha_archive_close(&archive), cmha_model_close(&model);
}

static void refused(cmha_tape *tape, const cmha_tensor *y, const char *line) {
    CHECK_THAT(!y && strstr(cmha_error(&context), line), "not '%s' but '%s'", line, cmha_error(&context));
    CHECK_IS(cmha_tape_status(tape), CMHA_ERR_STATE);
    cmha_tape_reset(tape);
}

static cmha_tensor *zeros_of(cmha_tape *tape, size_t a, size_t b, size_t c) {
    const size_t shape[3] = {a, b, c};
    return cmha_tensor_new(tape, a ? 3 : 2, a ? shape : shape + 1, 0);
}

/* Operations take a packed matrix as it was packed, where they read weights; it has no numbers for others. */
static void packed_places(void) {
    const size_t planes[3] = {2, 4, 16}, apart[2] = {32, 4};
    const int32_t ids[8] = {0};
    cmha_real *numbers = check_array(8 * 16, 1);
    cmha_packed p = packed_of(numbers, 8, 16, CMHA_STORAGE_INT8);
    cmha_tensor whole, part, *w = &whole;
    cmha_tape tape, *t = &tape;
    memset(&whole, 0, sizeof whole);
    whole.rank = 2, whole.shape[0] = 8, whole.shape[1] = 16, whole.size = 8 * 16, whole.packed = &p;
    part = whole;
    part.shape[0] = 4, part.size = 4 * 16;
    CHECK_OK(cmha_tape_init(t, &context, 0));
    CHECK(cmha_linear(t, zeros_of(t, 0, 3, 16), w, NULL) && cmha_embedding(t, w, ids, 1, 1));
    CHECK(cmha_complex_linear(t, zeros_of(t, 0, 3, 32), cmha_reshape(t, w, 3, planes), NULL));
    refused(t, cmha_linear(t, w, zeros_of(t, 0, 3, 16), NULL), "linear: input 0 is packed");
    refused(t, cmha_linear(t, zeros_of(t, 0, 3, 4), cmha_reshape(t, w, 2, apart), NULL), "input 1 is packed");
    refused(t, cmha_linear(t, zeros_of(t, 0, 3, 16), &part, NULL), "linear: input 1 is packed");
    refused(t, cmha_sublayer(t, zeros_of(t, 0, 8, 5), -1, zeros_of(t, 0, 16, 5), NULL, w, 1, 0),
            "input 3 is packed");
    refused(t, cmha_linear_cross_entropy(t, w, zeros_of(t, 0, 3, 16), NULL, ids, -1, NULL),
            "cross-entropy: input 0 is packed");
    refused(t, cmha_embedding(t, cmha_reshape(t, w, 2, apart), ids, 1, 1), "embedding: input 0 is packed");
    refused(t, cmha_complex_linear(t, w, zeros_of(t, 2, 5, 8), NULL), "complex linear: input 0 is packed");
    w = cmha_reshape(t, w, 3, planes);
    refused(t, cmha_complex_lowrank(t, zeros_of(t, 0, 3, 8), zeros_of(t, 2, 5, 16), w, NULL),
            "complex linear: input 1 is packed");
    cmha_tape_close(t), free_packed(&p), free(numbers);
}

/* A packed model computes what its copy of numbers computes, and refuses what needs numbers. */
static void packed_model(void) {
    cmha_model model, small;
    cmha_trainer trainer;
    cmha_tape tape;
    cmha_batch batch;
    cmha_real logits[2 * V];
    double loss = 0, want = 0;
    int32_t ids[2] = {3, 5}, targets[2] = {5, 1};
    size_t counted;
    open_model(&model, "attention=cmha position=learned classes=3");
    pack_copy(&small, &model, CMHA_STORAGE_INT8);
    CHECK_OK(cmha_model_save(&small, "packed"));
    memset(&batch, 0, sizeof batch);
    batch.ids = ids, batch.targets = targets, batch.batch = 1, batch.length = 2;
    CHECK_OK(cmha_model_logits(&small, &batch, logits));
    CHECK_OK(cmha_model_loss(&small, &batch, &loss));
    const cmha_cross_entropy_args both = {2, V, targets, -1};
    want = cmha_cross_entropy_forward(&both, logits, NULL, &counted);
    CHECK_NEAR(loss, want / 2, check_tolerance(1e-12, 1e-5));
    CHECK_IS(cmha_model_pack(&small, CMHA_STORAGE_BF16), CMHA_ERR_STATE);
    CHECK(strstr(cmha_error(&context), "packed already, as int8") != NULL);
    CHECK_IS(cmha_trainer_init(&trainer, &small, NULL), CMHA_ERR_STATE);
    CHECK(strstr(cmha_error(&context), "tok_emb.weight is packed") != NULL);
    CHECK_IS(cmha_model_gradient(&small, &batch, 1, 0, &loss), CMHA_ERR_STATE);
    CHECK_IS(cmha_model_read(&small, "numbers", 1, NULL), CMHA_ERR_STATE);
    CHECK_IS(cmha_model_read(&model, "packed", 1, NULL), CMHA_ERR_FORMAT);
    CHECK_IS(cmha_parameters_read(&small.parameters, "numbers", 0), CMHA_ERR_STATE);
    CHECK_IS(cmha_parameters_save(&small.parameters, "twice", 0), CMHA_ERR_STATE);
    CHECK_IS(cmha_model_training_memory(&small, 1, 2, &counted), CMHA_ERR_STATE);
    CHECK_OK(cmha_tape_init(&tape, &context, 1));
    CHECK(!cmha_model_forward(&small, &tape, &batch, NULL));
    CHECK_IS(cmha_tape_status(&tape), CMHA_ERR_STATE);
    cmha_tape_reset(&tape);
    CHECK(!cmha_scale(&tape, small.token_weight, 2));
    CHECK_IS(cmha_tape_status(&tape), CMHA_ERR_STATE);
    CHECK(strstr(cmha_error(&context), "scale: ") != NULL);
    cmha_tape_reset(&tape);
    CHECK(!cmha_embedding(&tape, small.token_weight, ids, 1, 2));
    CHECK_IS(cmha_tape_status(&tape), CMHA_ERR_STATE);
    cmha_tape_close(&tape), cmha_model_close(&small), cmha_model_close(&model);
}

/* Packing after training: what was opened before is stale, what is frozen or tuned stays so, gradients go. */
static void stale(void) {
    cmha_model model;
    cmha_trainer trainer;
    cmha_cache before, after;
    cmha_batch batch;
    cmha_real out[V];
    double loss;
    int32_t ids[2] = {3, 5}, targets[2] = {5, 1};
    size_t bytes;
    open_model(&model, "attention=cmha");
    memset(&batch, 0, sizeof batch);
    batch.ids = ids, batch.targets = targets, batch.batch = 1, batch.length = 2;
    CHECK_OK(cmha_parameters_tune(&model.parameters, "*.b", CMHA_TUNE_FROZEN, 1, NULL));
    CHECK_OK(cmha_parameters_tune(&model.parameters, "ln_f*", CMHA_TUNE_RATE, 0.5, NULL));
    CHECK_OK(cmha_model_gradient(&model, &batch, 1, 0, &loss));
    CHECK_OK(cmha_trainer_init(&trainer, &model, NULL));
    CHECK_OK(cmha_cache_init(&before, &model, 1, N, 0, NULL));
    bytes = heap.bytes - (model.parameters.size + 3 * model.parameters.learning) * sizeof *out; /* moments */
    bytes -= 64;                                        /* of their block, to lie on a line of the cache */
    CHECK_OK(cmha_model_pack(&model, CMHA_STORAGE_INT8));
    CHECK(heap.bytes == bytes + model.packed.bytes + model.parameters.size * sizeof *out);
    CHECK_IS(cmha_trainer_step_batch(&trainer, &batch, &loss), CMHA_ERR_STATE);
    CHECK_IS(cmha_cache_append(&before, ids, 2, out), CMHA_ERR_STATE);
    cmha_cache_close(&before), cmha_trainer_close(&trainer);
    CHECK(!model.parameters.grad && !model.token_weight->grad && !model.token_weight->data);
    CHECK(cmha_parameters_find(&model.parameters, "blocks.0.attn.b")->frozen);
    CHECK(cmha_parameters_find(&model.parameters, "ln_f.weight")->lr_scale == 0.5);
    CHECK_OK(cmha_cache_init(&after, &model, 1, N, 0, NULL));
    CHECK_OK(cmha_cache_append(&after, ids, 2, out));
    cmha_cache_close(&after), cmha_model_close(&model);
}

static void refusals(void) {
    cmha_model model, closed;
    cmha_cache cache;
    cmha_cache_options o = {CMHA_STORAGE_INT8, 0, NULL, 0, 0};
    int32_t id = 3;
    size_t bytes;
    memset(&closed, 0, sizeof closed);
    open_model(&model, "attention=dot");
    CHECK_IS(cmha_model_pack(NULL, CMHA_STORAGE_INT8), CMHA_ERR_STATE);
    CHECK_IS(cmha_model_pack(&closed, CMHA_STORAGE_INT8), CMHA_ERR_STATE);
    CHECK_IS(cmha_model_pack(&model, CMHA_STORAGE_FLOAT), CMHA_ERR_ARGUMENT);
    CHECK(strstr(cmha_error(&context), "model pack: ") != NULL);
    CHECK_IS(cmha_model_pack(&model, (cmha_storage)7), CMHA_ERR_ARGUMENT);
    CHECK_IS(cmha_cache_init(&cache, &model, 1, N, 0, &o), CMHA_ERR_ARGUMENT);
    cmha_cache_close(&cache);
    CHECK_OK(cmha_cache_init(&cache, &model, 1, N, 0, NULL));
    bytes = heap.bytes;
    for (heap.fail_at = 1; heap.fail_at < 3; heap.fail_at++) { /* the model stays as it is */
        heap.calls = 0;
        CHECK_IS(cmha_model_pack(&model, CMHA_STORAGE_INT8), CMHA_ERR_MEMORY);
        CHECK(heap.bytes == bytes && !model.packed.storage && model.token_weight->data);
    }
    heap.fail_at = 0;
    CHECK_OK(cmha_cache_append(&cache, &id, 1, NULL));
    cmha_cache_close(&cache), cmha_model_close(&model);
}

int main(void) {
    size_t i;
    cmha_context_config config = check_heap_config(&heap);
    config.threads = 2, config.seed = 3, config.files = cmha_buffers(files);
    CHECK_OK(cmha_context_init(&context, &config));
    all_rows();
    on_the_grid();
    four_bits();
    ties_of_halves();
    four_bits_and_least();
    small_steps(CMHA_STORAGE_INT4);
    small_steps(CMHA_STORAGE_Q4_K);
    few_errors();
    odd_numbers();
    for (i = 0; i < sizeof kinds / sizeof *kinds; i++)
        one_kind(kinds[i].options, kinds[i].matrices, kinds[i].numbers);
    bytes();
    shared();
    not_a_number();
    format();
    packed_places();
    packed_model();
    stale();
    refusals();
    for (i = 0; i < 3; i++) check_heap_release(&heap, files[i].taken, files[i].size);
    cmha_context_close(&context);
    CHECK_THAT(check_heap_empty(&heap), "%zu bytes leak, %d sizes are wrong", heap.bytes, heap.mismatch);
    return check_end();
}
