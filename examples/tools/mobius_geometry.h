/* mobius_geometry.h - what the Möbius maps of a model do to the plane: parabolic, circular, elliptic,
   hyperbolic or loxodromic (MöbiusAttention eq 1-4 and Table 1). Static functions for programs that look at
   weights; include cmha.h first.

       mobius_class classes[D];
       mobius_classify(abcd, D, 0.01, classes);   abcd [4, 2, D], such as a checkpoint's blocks.0.attn.mobius
       puts(mobius_name(classes[0].kind)); */
#ifndef MOBIUS_GEOMETRY_H
#define MOBIUS_GEOMETRY_H

#include <float.h>
#include <math.h>
#include <string.h>

/* What a Möbius map does to the sphere, by sigma = (a + d)^2 / (ad - bc) (MöbiusAttention Table 1, whose
   conditions presuppose ad - bc = 1, and whose circular maps have two fixed points, not one). */
typedef enum mobius_geometry {
    MOBIUS_PARABOLIC,  /* sigma = 4: a translation, one fixed point; also every multiple of the identity */
    MOBIUS_CIRCULAR,   /* sigma = 0: a half turn, the elliptic map of multiplier -1 */
    MOBIUS_ELLIPTIC,   /* 0 < sigma < 4: a rotation */
    MOBIUS_HYPERBOLIC, /* sigma > 4: a dilation */
    MOBIUS_LOXODROMIC, /* everything else: both at once */
    MOBIUS_GEOMETRIES
} mobius_geometry;

/* One map, in double. Complex numbers are (re, im). */
typedef struct mobius_class {
    mobius_geometry kind;
    double sigma[2], determinant[2];
    double multiplier[2]; /* k with k + 1/k = sigma - 2 and |k| >= 1: the map is z -> k z seen from its fixed
                             points. |k| is the dilation and arg k the rotation (the paper's text has them the
                             other way round) */
    double fixed[2][2]; /* fixed points, without a tolerance, the one nearer to 0 first; (INFINITY, 0) is the
                           one at infinity */
    int n_fixed; /* 2; 1 where they coincide, fixed[1] being a copy; 0 where every point is fixed (multiples
                    of 1) */
} mobius_class;

/* "parabolic" and so on; "?" for other numbers. */
static inline const char *mobius_name(mobius_geometry geometry) {
    static const char *const names[MOBIUS_GEOMETRIES] = {"parabolic", "circular", "elliptic", "hyperbolic",
                                                         "loxodromic"};
    return (unsigned)geometry < MOBIUS_GEOMETRIES ? names[geometry] : "?";
}

/* Complex numbers one at a time, in double: for looking at maps, not for layers. */
typedef struct mobius_z {
    double re, im;
} mobius_z;

static inline mobius_z mobius_z_of(double re, double im) {
    mobius_z z;
    z.re = re, z.im = im;
    return z;
}
static inline mobius_z mobius_z_add(mobius_z x, mobius_z y) { return mobius_z_of(x.re + y.re, x.im + y.im); }
static inline mobius_z mobius_z_sub(mobius_z x, mobius_z y) { return mobius_z_of(x.re - y.re, x.im - y.im); }
static inline mobius_z mobius_z_mul(mobius_z x, mobius_z y) {
    return mobius_z_of(x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re);
}
static inline mobius_z mobius_z_scaled(mobius_z x, double factor) {
    return mobius_z_of(x.re * factor, x.im * factor);
}
static inline double mobius_z_abs(mobius_z x) { return hypot(x.re, x.im); }
static inline int mobius_z_zero(mobius_z x) { return x.re == 0 && x.im == 0; }

/* x / y on the sphere: (INFINITY, 0) where it is not finite. */
static inline mobius_z mobius_z_div(mobius_z x, mobius_z y) {
    double m = fabs(y.re) > fabs(y.im) ? fabs(y.re) : fabs(y.im);
    mobius_z p = mobius_z_of(y.re / m, -y.im / m), q;
    if (mobius_z_zero(y)) return mobius_z_of(INFINITY, 0);
    q = mobius_z_scaled(mobius_z_mul(x, p), 1 / (p.re * p.re + p.im * p.im));
    q = mobius_z_of(q.re / m, q.im / m);
    return mobius_z_abs(q) > DBL_MAX ? mobius_z_of(INFINITY, 0) : q;
}

/* The root with a real part >= 0. */
static inline mobius_z mobius_z_sqrt(mobius_z x) {
    double m = mobius_z_abs(x), big = sqrt(m / 2 + fabs(x.re) / 2), small = big > 0 ? x.im / (2 * big) : 0;
    return x.re < 0 ? mobius_z_of(fabs(small), x.im < 0 ? -big : big) : mobius_z_of(big, small);
}

/* Of x and -x the one that adds to z instead of cancelling. */
static inline mobius_z mobius_z_along(mobius_z x, mobius_z z) {
    return x.re * z.re + x.im * z.im < 0 ? mobius_z_scaled(x, -1) : x;
}

/* a, b, c, d of channel j over a power of two (returned) that brings the largest to about 1: their products
   cannot overflow. */
static inline double mobius_of(const cmha_real *abcd, size_t D, size_t j, mobius_z map[4]) {
    double largest = 0, unit, x;
    for (size_t i = 0; i < 8; i++) {
        x = fabs((double)abcd[i * D + j]);
        if (x > largest) largest = x;
    }
    unit = largest > 0 && largest <= DBL_MAX ? ldexp(1, ilogb(largest)) : 1;
    for (size_t i = 0; i < 4; i++)
        map[i] = mobius_z_of((double)abcd[2 * i * D + j] / unit, (double)abcd[(2 * i + 1) * D + j] / unit);
    return unit;
}

static inline mobius_z mobius_det(const mobius_z map[4]) {
    return mobius_z_sub(mobius_z_mul(map[0], map[3]), mobius_z_mul(map[1], map[2]));
}

static inline mobius_geometry mobius_geometry_of(mobius_z sigma, double tol) {
    if (!(fabs(sigma.im) <= tol * (1 + mobius_z_abs(sigma)))) return MOBIUS_LOXODROMIC; /* NaN too */
    if (mobius_z_abs(mobius_z_of(sigma.re - 4, sigma.im)) <= tol) return MOBIUS_PARABOLIC;
    if (mobius_z_abs(sigma) <= tol) return MOBIUS_CIRCULAR;
    if (sigma.re < 0) return MOBIUS_LOXODROMIC;
    return sigma.re < 4 ? MOBIUS_ELLIPTIC : MOBIUS_HYPERBOLIC;
}

/* k + 1/k = sigma - 2: with h = (sigma - 2)/2, k = h +- sqrt(h^2 - 1), and h^2 - 1 = sigma (sigma - 4)/4
   loses nothing near 4. */
static inline mobius_z mobius_multiplier(mobius_z sigma) {
    mobius_z h = mobius_z_scaled(mobius_z_of(sigma.re - 2, sigma.im), 0.5);
    mobius_z root = mobius_z_mul(mobius_z_sqrt(sigma), mobius_z_sqrt(mobius_z_of(sigma.re - 4, sigma.im)));
    return mobius_z_add(h, mobius_z_along(mobius_z_scaled(root, 0.5), h));
}

/* The roots of c z^2 + (d - a) z - b: the farther one z1 = (a - d +- root)/2c with the sign that adds, the
   other -b/(c z1). */
static inline int mobius_fixed_points(const mobius_z map[4], mobius_z fixed[2]) {
    mobius_z middle = mobius_z_sub(map[0], map[3]), square = mobius_z_mul(middle, middle),
             product = mobius_z_mul(map[1], map[2]), q;
    mobius_z root2 = mobius_z_add(square, mobius_z_scaled(product, 4));
    fixed[0] = fixed[1] = mobius_z_of(0, 0);
    if (mobius_z_zero(map[1]) && mobius_z_zero(map[2]) && mobius_z_zero(middle)) return 0;
    if (mobius_z_abs(root2) <=
        16 * DBL_EPSILON * (mobius_z_abs(square) + 4 * mobius_z_abs(product))) { /* 0 but for rounding */
        if (!mobius_z_zero(middle) || mobius_z_zero(map[2]))
            fixed[0] = mobius_z_div(middle, mobius_z_scaled(map[2], 2));
        fixed[1] = fixed[0];
        return 1;
    }
    q = mobius_z_add(middle, mobius_z_along(mobius_z_sqrt(root2), middle));
    fixed[0] = mobius_z_div(mobius_z_scaled(map[1], -2), q);
    fixed[1] = mobius_z_div(q, mobius_z_scaled(map[2], 2));
    return 2;
}

/* A map of determinant 0: everything goes to a/c, which is b/d. */
static inline int mobius_constant_map(const mobius_z map[4], mobius_z fixed[2]) {
    int by_c = mobius_z_abs(map[0]) + mobius_z_abs(map[2]) >= mobius_z_abs(map[1]) + mobius_z_abs(map[3]);
    fixed[0] = fixed[1] = mobius_z_of(0, 0);
    if (mobius_z_zero(map[by_c ? 0 : 1]) && mobius_z_zero(map[by_c ? 2 : 3])) return 0;
    fixed[0] = fixed[1] = mobius_z_div(map[by_c ? 0 : 1], map[by_c ? 2 : 3]);
    return 1;
}

static inline void mobius_classify_one(const mobius_z map[4], double unit, double tol, mobius_class *out) {
    mobius_z det = mobius_det(map), trace = mobius_z_add(map[0], map[3]), sigma = mobius_z_of(INFINITY, 0),
             k = sigma, fixed[2];
    int finite = mobius_z_abs(det) <= DBL_MAX, singular = mobius_z_zero(det);
    if (!singular) {
        sigma = finite ? mobius_z_div(mobius_z_mul(trace, trace), det) : mobius_z_of(NAN, NAN);
        k = mobius_multiplier(sigma);
    }
    fixed[0] = fixed[1] = mobius_z_of(NAN, NAN);
    out->n_fixed = singular ? mobius_constant_map(map, fixed) : finite ? mobius_fixed_points(map, fixed) : 0;
    out->kind = singular ? MOBIUS_LOXODROMIC : mobius_geometry_of(sigma, tol);
    out->sigma[0] = sigma.re, out->sigma[1] = sigma.im;
    out->multiplier[0] = k.re, out->multiplier[1] = k.im;
    out->determinant[0] = det.re * unit * unit, out->determinant[1] = det.im * unit * unit;
    out->fixed[0][0] = fixed[0].re, out->fixed[0][1] = fixed[0].im;
    out->fixed[1][0] = fixed[1].re, out->fixed[1][1] = fixed[1].im;
}

/* Classifies the D maps of abcd [4, 2, D]. Generic complex maps are all loxodromic, so the answer depends on
   tol (the paper counted by eye; 0.01 is a usual choice). In this order: |Im sigma| > tol (1 + |sigma|)
   loxodromic; |sigma - 4| <= tol parabolic; |sigma| <= tol circular; Re sigma < 0 loxodromic; Re sigma < 4
   elliptic; else hyperbolic. A map of determinant 0 is constant: loxodromic, sigma and multiplier (INFINITY,
   0), its value as the only fixed point (none if a = b = c = d = 0). NaN: loxodromic, n_fixed 0. */
static inline void mobius_classify(const cmha_real *abcd, size_t D, double tol, mobius_class *classes) {
    mobius_z map[4];
    for (size_t j = 0; j < D; j++) {
        double unit = mobius_of(abcd, D, j, map);
        mobius_classify_one(map, unit, tol, classes + j);
    }
}

/* counts[g] = number of maps of geometry g among n. */
static inline void mobius_count(const mobius_class *classes, size_t n, size_t counts[MOBIUS_GEOMETRIES]) {
    memset(counts, 0, MOBIUS_GEOMETRIES * sizeof *counts);
    for (size_t i = 0; i < n; i++) counts[classes[i].kind]++;
}

/* Divides each (a, b, c, d) by sqrt(ad - bc): then ad - bc = 1, and the exact map is the same (REG's and
   UNIT's is another, since eps and |w| do not scale along). Maps of determinant 0 stay as they are. */
static inline void mobius_normalize(cmha_real *abcd, size_t D) {
    mobius_z map[4], det;
    for (size_t j = 0; j < D; j++) {
        mobius_of(abcd, D, j, map);
        det = mobius_det(map);
        if (!(mobius_z_abs(det) > 0 && mobius_z_abs(det) <= DBL_MAX)) continue;
        for (size_t i = 0; i < 4; i++) {
            mobius_z x = mobius_z_div(map[i], mobius_z_sqrt(det));
            abcd[2 * i * D + j] = (cmha_real)x.re;
            abcd[(2 * i + 1) * D + j] = (cmha_real)x.im;
        }
    }
}

#endif
