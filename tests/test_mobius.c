/* What must hold of the complex quotient, the Möbius map, its geometry and CoPE's
   table, whatever the code looks like. */
#include "check.h"
#include "../examples/tools/mobius_geometry.h"

static cmha_context context;

/* ------------------------------------ complex numbers, for checking ------------------------------------- */

typedef struct z {
    double re, im;
} z;

static z make(double re, double im) {
    z x;
    x.re = re, x.im = im;
    return x;
}
static z times(z a, z b) { return make(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re); }
static z plus(z a, z b) { return make(a.re + b.re, a.im + b.im); }
static z minus(z a, z b) { return make(a.re - b.re, a.im - b.im); }
static z over(z a, z b) {
    double s = b.re * b.re + b.im * b.im;
    return make((a.re * b.re + a.im * b.im) / s, (a.im * b.re - a.re * b.im) / s);
}
static double size_of(z a) { return hypot(a.re, a.im); }
static z random_z(void) {
    double re = check_random();
    return make(re, check_random());
}

typedef struct map {
    z a, b, c, d;
} map;

static map make_map(z a, z b, z c, z d) {
    map m;
    m.a = a, m.b = b, m.c = c, m.d = d;
    return m;
}

/* Channel j of abcd [4, 2, D] */
static void store(map m, cmha_real *abcd, size_t D, size_t j) {
    z part[4];
    size_t i;
    part[0] = m.a, part[1] = m.b, part[2] = m.c, part[3] = m.d;
    for (i = 0; i < 4; i++)
        abcd[2 * i * D + j] = (cmha_real)part[i].re, abcd[(2 * i + 1) * D + j] = (cmha_real)part[i].im;
}

static map load(const cmha_real *abcd, size_t D, size_t j) {
    z part[4];
    size_t i;
    for (i = 0; i < 4; i++) part[i] = make((double)abcd[2 * i * D + j], (double)abcd[(2 * i + 1) * D + j]);
    return make_map(part[0], part[1], part[2], part[3]);
}

static map compose(map m, map n) { /* first n, then m: the product of their matrices */
    return make_map(plus(times(m.a, n.a), times(m.b, n.c)), plus(times(m.a, n.b), times(m.b, n.d)),
                    plus(times(m.c, n.a), times(m.d, n.c)), plus(times(m.c, n.b), times(m.d, n.d)));
}

static map inverse(map m) { return make_map(m.d, make(-m.b.re, -m.b.im), make(-m.c.re, -m.c.im), m.a); }

static mobius_class classify(map m, double tol) {
    cmha_real abcd[8];
    mobius_class class_of;
    store(m, abcd, 1, 0);
    mobius_classify(abcd, 1, tol, &class_of);
    return class_of;
}

/* ------------------------- the map; identity 11: an affine map, a common factor ------------------------- */

enum { ROWS = 7, WIDTH = 600 }; /* more than two blocks of columns */

static void is_a_product_without_denominator(void) {
    cmha_real *rho = check_array(2 * ROWS * WIDTH, 2), *abcd = check_zeros(8 * WIDTH),
              *y = check_zeros(2 * ROWS * WIDTH);
    cmha_real *want = check_zeros(2 * ROWS * WIDTH);
    size_t j;
    int kind;
    check_fill(abcd, 2 * WIDTH, 2);
    for (j = 0; j < WIDTH; j++) abcd[6 * WIDTH + j] = 1; /* d = 1 */
    cmha_elementwise_complex_forward(rho, abcd, ROWS, WIDTH, want);
    for (kind = 0; kind < 3; kind++) {
        cmha_mobius_forward(rho, abcd, ROWS, WIDTH, (cmha_quotient_kind)kind, 0, y);
        CHECK_THAT(check_distance(y, want, 2 * ROWS * WIDTH) <= check_tolerance(1e-14, 2e-6),
                   "kind %d is no product", kind);
    }
    for (j = 0; j < WIDTH; j++) { /* the product itself */
        z p = times(make((double)rho[2 * WIDTH + j], (double)rho[3 * WIDTH + j]),
                    make((double)abcd[j], (double)abcd[WIDTH + j]));
        CHECK_NEAR(hypot((double)want[2 * WIDTH + j] - p.re, (double)want[3 * WIDTH + j] - p.im), 0,
                   check_tolerance(1e-14, 2e-6));
    }
    free(rho), free(abcd), free(y), free(want);
}

static void is_what_eq_5_says(void) {
    cmha_real *rho = check_array(2 * ROWS * WIDTH, 2), *abcd = check_array(8 * WIDTH, 1),
              *y = check_zeros(2 * ROWS * WIDTH);
    cmha_real *scaled = check_zeros(8 * WIDTH), *same = check_zeros(2 * ROWS * WIDTH);
    size_t t, j;
    z factor = make(-0.7, 1.9);
    for (j = 0; j < WIDTH; j++) {
        map m = load(abcd, WIDTH, j);
        store(make_map(times(m.a, factor), times(m.b, factor), times(m.c, factor), times(m.d, factor)),
              scaled, WIDTH, j);
    }
    cmha_mobius_forward(rho, abcd, ROWS, WIDTH, CMHA_QUOTIENT_EXACT, 3, y); /* eps is not read */
    cmha_mobius_forward(rho, scaled, ROWS, WIDTH, CMHA_QUOTIENT_EXACT, 0, same);
    for (t = 0; t < ROWS; t++)
        for (j = 0; j < WIDTH; j++) {
            size_t at = 2 * t * WIDTH + j;
            map m = load(abcd, WIDTH, j);
            z x = make((double)rho[at], (double)rho[at + WIDTH]), w = plus(times(m.c, x), m.d),
              u = plus(times(m.a, x), m.b);
            /* w is rounded */
            double near = check_tolerance(1e-13, 1e-5) * (1 + 1 / size_of(w)) * (1 + size_of(u) / size_of(w));
            z want = over(u, w);
            CHECK_NEAR(hypot((double)y[at] - want.re, (double)y[at + WIDTH] - want.im), 0, near);
            CHECK_NEAR(hypot((double)same[at] - want.re, (double)same[at + WIDTH] - want.im), 0, near);
        }
    free(rho), free(abcd), free(y), free(scaled), free(same);
}

/* Of one quotient: y, du, dw for dy = 1 */
static void quotient(z u, z w, cmha_quotient_kind kind, double eps, cmha_real out[6]) {
    cmha_real a[2], b[2], g[2] = {1, 0};
    a[0] = (cmha_real)u.re, a[1] = (cmha_real)u.im, b[0] = (cmha_real)w.re, b[1] = (cmha_real)w.im;
    memset(out, 0, 6 * sizeof *out);
    cmha_quotient_forward(a, b, 1, 1, kind, (cmha_real)eps, out);
    cmha_quotient_backward(a, b, g, 1, 1, kind, (cmha_real)eps, out + 2, out + 4);
}

static void quotients_at_the_ends(void) {
    static const double sizes[] = {1e-30, 1e-19, 1e-3, 1, 1e19, 3e38};
    cmha_real q[6];
    size_t i;
    int kind, part;
    for (i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        double s = sizes[i];
        quotient(make(s, 0), make(0, s), CMHA_QUOTIENT_EXACT, 0, q); /* 1/i = -i */
        CHECK_NEAR(q[0], 0, 1e-6), CHECK_NEAR(q[1], -1, 1e-6);
        quotient(make(s, s), make(s, s), CMHA_QUOTIENT_REG, 0, q);
        CHECK_NEAR(q[0], 1, 1e-6), CHECK_NEAR(q[1], 0, 1e-6);
        quotient(make(1, 0), make(s, 0), CMHA_QUOTIENT_UNIT, 0, q);
        CHECK_NEAR(q[0], 1, 1e-6), CHECK_NEAR(q[2], 1, 1e-6);
        quotient(make(s, 0), make(s, 0), CMHA_QUOTIENT_REG, s, q); /* s^2 / 2 s^2 */
        CHECK_NEAR(q[0], 0.5, 1e-6), CHECK_NEAR((double)q[2] * s, 0.5, 1e-6);
        quotient(make(s, 0), make(s, 0), CMHA_QUOTIENT_UNIT, s, q);
        CHECK_NEAR((double)q[0] / s, sqrt(0.5), 1e-6);
    }
    for (kind = 0; kind < 3; kind++) {
        for (part = 0; part < 2; part++) {
            quotient(make(2, 3), make(part ? NAN : 0, part ? 0 : NAN), (cmha_quotient_kind)kind, part * 0.1,
                     q);
            CHECK_THAT(q[0] != q[0] && q[2] != q[2] && q[4] != q[4], "kind %d: NaN is lost", kind);
            quotient(make(NAN, 0), make(1, 1), (cmha_quotient_kind)kind, 0.1, q);
            CHECK(q[0] != q[0] && q[4] != q[4]);
        }
        quotient(make(2, 3), make(0, 0), (cmha_quotient_kind)kind, 0, q);
        CHECK_THAT(check_largest(q, 6) == 0, "kind %d: a pole without eps must give 0", kind);
        /* 0 in float, tiny in double */
        quotient(make(2, 3), make(-0.0, 1e-310), (cmha_quotient_kind)kind, 0, q);
        CHECK(check_largest(q, 6) == 0);
    }
    quotient(make(2, 3), make(0, 0), CMHA_QUOTIENT_REG, 1e-3, q); /* dw = u/eps^2 */
    CHECK(q[0] == 0 && q[1] == 0 && q[2] == 0);
    CHECK_NEAR(q[4], 2e6, 2), CHECK_NEAR(q[5], 3e6, 2);
}

/* The widths around a block of columns, and each channel alone, give the same */
static void blocks_do_not_matter(void) {
    static const size_t widths[] = {1, 255, 256, 257, 513};
    size_t i, D, j, t, p;
    for (i = 0; i < sizeof widths / sizeof *widths; i++) {
        cmha_real *rho, *abcd, *dy, *y, *drho, *dabcd;
        double worst = 0, d;
        D = widths[i];
        rho = check_array(6 * D, 1), abcd = check_array(8 * D, 1), dy = check_array(6 * D, 1);
        y = check_zeros(6 * D), drho = check_zeros(6 * D), dabcd = check_zeros(8 * D);
        cmha_mobius_forward(rho, abcd, 3, D, CMHA_QUOTIENT_REG, (cmha_real)0.5, y);
        cmha_mobius_backward(rho, abcd, dy, 3, D, CMHA_QUOTIENT_REG, (cmha_real)0.5, drho, dabcd);
        for (j = 0; j < D; j++) {
            cmha_real r[6], m[8], g[6], one[6], dr[6] = {0}, dm[8] = {0};
            for (t = 0; t < 6; t++) r[t] = rho[t * D + j], g[t] = dy[t * D + j];
            for (p = 0; p < 8; p++) m[p] = abcd[p * D + j];
            cmha_mobius_forward(r, m, 3, 1, CMHA_QUOTIENT_REG, (cmha_real)0.5, one);
            cmha_mobius_backward(r, m, g, 3, 1, CMHA_QUOTIENT_REG, (cmha_real)0.5, dr, dm);
            for (t = 0; t < 6; t++) {
                d = fabs((double)one[t] - (double)y[t * D + j]) +
                    fabs((double)dr[t] - (double)drho[t * D + j]);
                if (!(d <= worst)) worst = d;
            }
            for (p = 0; p < 8; p++)
                if (!((d = fabs((double)dm[p] - (double)dabcd[p * D + j])) <= worst)) worst = d;
        }
        CHECK_THAT(worst <= check_tolerance(1e-13, 3e-5), "width %zu: %.3g off", D, worst);
        free(rho), free(abcd), free(dy), free(y), free(drho), free(dabcd);
    }
}

/* db and dd of many rows: float sums of float would have lost four digits */
static void long_sums_stay_exact(void) {
    size_t T = 300000, t;
    cmha_real abcd[8] = {1, 0, 0, 0, 0, 0, 1, 0}, dabcd[8] = {0}, dw[2] = {0}, *rho = check_zeros(2 * T),
              *dy = check_zeros(2 * T);
    for (t = 0; t < T; t++) rho[2 * t] = 1, dy[2 * t] = (cmha_real)0.1;
    cmha_mobius_backward(rho, abcd, dy, T, 1, CMHA_QUOTIENT_EXACT, 0, NULL, dabcd);
    cmha_elementwise_complex_backward(rho, abcd, dy, T, 1, NULL, dw);
    CHECK_NEAR(dabcd[0], 30000, 0.01), CHECK_NEAR(dabcd[2], 30000, 0.01);
    CHECK_NEAR(dabcd[6], -30000, 0.01), CHECK_NEAR(dw[0], 30000, 0.01);
    free(rho), free(dy);
}

/* -------------------------- geometry; identity 12: the normal forms of Table 1 -------------------------- */

static const struct {
    double a[2], b[2], c[2], d[2], sigma[2];
    mobius_geometry kind;
} normal_forms[] = {
    {{1, 0}, {3, 0}, {0, 0}, {1, 0}, {4, 0}, MOBIUS_PARABOLIC},                 /* z + 3 */
    {{0, 1}, {0, 0}, {0, 0}, {0, -1}, {0, 0}, MOBIUS_CIRCULAR},                 /* -z */
    {{0, 0}, {1, 0}, {1, 0}, {0, 0}, {0, 0}, MOBIUS_CIRCULAR},                  /* 1/z */
    {{0.8, 0.6}, {0, 0}, {0, 0}, {0.8, -0.6}, {2.56, 0}, MOBIUS_ELLIPTIC},      /* exp(i t) z */
    {{2, 0}, {0, 0}, {0, 0}, {0.5, 0}, {6.25, 0}, MOBIUS_HYPERBOLIC},           /* 4 z */
    {{2, 0}, {0, 0}, {0, 0}, {-0.5, 0}, {-2.25, 0}, MOBIUS_LOXODROMIC},         /* -4 z */
    {{1, 1}, {0, 0}, {0, 0}, {0.5, -0.5}, {2, 1.5}, MOBIUS_LOXODROMIC},         /* 2i z, determinant 1 */
};

enum { FORMS = sizeof normal_forms / sizeof *normal_forms };

static map form(size_t i) {
    return make_map(make(normal_forms[i].a[0], normal_forms[i].a[1]),
                    make(normal_forms[i].b[0], normal_forms[i].b[1]),
                    make(normal_forms[i].c[0], normal_forms[i].c[1]),
                    make(normal_forms[i].d[0], normal_forms[i].d[1]));
}

static double apart(const double x[2], z y) { return hypot(x[0] - y.re, x[1] - y.im); }

/* Everything but the fixed points; the multiplier through k + 1/k, since k and 1/k are one map's */
static void check_class(const char *label, size_t i, mobius_class c, double near) {
    z sigma = make(normal_forms[i].sigma[0], normal_forms[i].sigma[1]),
      k = make(c.multiplier[0], c.multiplier[1]);
    CHECK_THAT(c.kind == normal_forms[i].kind, "%s %zu: %s", label, i, mobius_name(c.kind));
    CHECK_THAT(apart(c.sigma, sigma) <= near * (1 + size_of(sigma)), "%s %zu: sigma %g %+g i", label, i,
               c.sigma[0], c.sigma[1]);
    CHECK_THAT(size_of(k) >= 1 - 1e-9, "%s %zu: the multiplier is inside the unit circle", label, i);
    CHECK_THAT(size_of(minus(plus(k, over(make(1, 0), k)), make(sigma.re - 2, sigma.im))) <=
                   2 * near * (1 + size_of(sigma)),
               "%s %zu: multiplier %g %+g i", label, i, k.re, k.im);
}

/* The map leaves its fixed points where they are: a f + b = f (c f + d), and c = 0 for a fixed point at
   infinity */
static void check_fixed(const char *label, size_t i, map m, mobius_class c, double near) {
    int p;
    for (p = 0; p < c.n_fixed; p++) {
        z f = make(c.fixed[p][0], c.fixed[p][1]);
        double norm = size_of(m.a) + size_of(m.b) + size_of(m.c) + size_of(m.d);
        if (f.re > DBL_MAX)
            CHECK_THAT(size_of(m.c) <= near * norm && f.im == 0, "%s %zu: infinity is not fixed", label, i);
        else
            CHECK_THAT(size_of(minus(plus(times(m.a, f), m.b), times(f, plus(times(m.c, f), m.d)))) <=
                           near * norm * (1 + size_of(f)) * (1 + size_of(f)),
                       "%s %zu: %g %+g i is not fixed", label, i, f.re, f.im);
    }
}

static void five_normal_forms(void) {
    size_t i;
    for (i = 0; i < FORMS; i++) {
        mobius_class c = classify(form(i), 1e-2);
        check_class("normal form", i, c, check_tolerance(1e-14, 1e-6));
        check_fixed("normal form", i, form(i), c, check_tolerance(1e-14, 1e-6));
        CHECK_THAT(c.n_fixed == (normal_forms[i].kind == MOBIUS_PARABOLIC ? 1 : 2),
                   "form %zu: %d fixed points", i, c.n_fixed);
    }
    CHECK(classify(form(0), 0.01).fixed[0][0] > DBL_MAX);          /* a translation fixes infinity alone */
    CHECK(classify(form(4), 0.01).fixed[0][0] == 0 && classify(form(4), 0.01).fixed[1][0] > DBL_MAX);
    CHECK_NEAR(classify(form(4), 0.01).multiplier[0], 4, 1e-6);    /* 4 z */
    CHECK_NEAR(classify(form(5), 0.01).multiplier[0], -4, 1e-6);   /* -4 z */
    CHECK_NEAR(classify(form(6), 0.01).multiplier[1], 2, 1e-6);    /* 2i z */
    CHECK_NEAR(classify(form(1), 0.01).multiplier[0], -1, 1e-6);
    /* 1 and -1 */
    CHECK_NEAR(classify(form(2), 0.01).fixed[0][0] * classify(form(2), 0.01).fixed[1][0], -1, 1e-6);
}

/* A factor, and a change of coordinates: sigma, kind and multiplier stay; the fixed points move along */
static void invariance(void) {
    size_t i, tries;
    double near = check_tolerance(1e-11, 1e-4);
    for (i = 0; i < FORMS; i++)
        for (tries = 0; tries < 20; tries++) {
            z t = random_z();
            map n = make_map(random_z(), random_z(), random_z(), random_z()), m = form(i), moved;
            mobius_class c;
            if (size_of(t) < 0.1 || size_of(minus(times(n.a, n.d), times(n.b, n.c))) < 0.3)
                continue; /* rounding would rule */
            check_class("factor", i,
                        classify(make_map(times(m.a, t), times(m.b, t), times(m.c, t), times(m.d, t)), 1e-2),
                        near);
            moved = compose(compose(n, m), inverse(n));
            c = classify(moved, 1e-2);
            check_class("conjugate", i, c, near);
            check_fixed("conjugate", i, moved, c, near);
        }
}

static void scale_map(map *m, double factor) {
    z f = make(factor, 0);
    *m = make_map(times(m->a, f), times(m->b, f), times(m->c, f), times(m->d, f));
}

static void odd_maps(void) {
    z zero = make(0, 0), one = make(1, 0), two = make(2, 0), i = make(0, 1);
    mobius_class c = classify(make_map(i, zero, zero, i), 0.01); /* the identity */
    map m;
    CHECK(c.kind == MOBIUS_PARABOLIC && c.n_fixed == 0 && c.sigma[0] == 4 && c.multiplier[0] == 1 &&
          c.determinant[0] == -1);
    c = classify(make_map(two, one, make(4, 0), two), 0.01); /* constant 1/2 */
    CHECK(c.kind == MOBIUS_LOXODROMIC && c.n_fixed == 1 && c.fixed[0][0] == 0.5 && c.determinant[0] == 0);
    CHECK(c.sigma[0] > DBL_MAX && c.sigma[1] == 0 && c.multiplier[0] > DBL_MAX && c.multiplier[1] == 0);
    c = classify(make_map(zero, two, zero, one), 0.01); /* constant 2, from b/d */
    CHECK(c.n_fixed == 1 && c.fixed[0][0] == 2 && c.fixed[1][0] == 2);
    c = classify(make_map(zero, two, zero, zero), 0.01); /* constant infinity */
    CHECK(c.kind == MOBIUS_LOXODROMIC && c.n_fixed == 1 && c.fixed[0][0] > DBL_MAX);
    c = classify(make_map(zero, zero, zero, zero), 0.01);
    CHECK(c.kind == MOBIUS_LOXODROMIC && c.n_fixed == 0);
    c = classify(make_map(make(NAN, 0), one, zero, one), 0.01);
    CHECK(c.kind == MOBIUS_LOXODROMIC && c.n_fixed == 0 && c.sigma[0] != c.sigma[0]);
    c = classify(make_map(make(HUGE_VAL, 0), one, zero, one), 0.01);
    CHECK(c.kind == MOBIUS_LOXODROMIC && c.n_fixed == 0);
    c = classify(make_map(one, zero, i, one), 0.01); /* z / (i z + 1): one fixed point, 0 */
    CHECK(c.kind == MOBIUS_PARABOLIC && c.n_fixed == 1 && c.fixed[0][0] == 0 && c.fixed[0][1] == 0);
    m = form(6), scale_map(&m, sizeof(cmha_real) == 4 ? 1e37 : 1e300); /* squares of these overflow */
    check_class("huge", 6, classify(m, 0.01), 1e-5);
    m = form(6), scale_map(&m, sizeof(cmha_real) == 4 ? 1e-37 : 1e-300);
    check_class("tiny", 6, classify(m, 0.01), 1e-5);
}

static void counting(void) {
    mobius_class c[FORMS];
    size_t i, counts[MOBIUS_GEOMETRIES];
    for (i = 0; i < FORMS; i++) c[i] = classify(form(i), 0.01);
    mobius_count(c, FORMS, counts);
    CHECK(counts[MOBIUS_PARABOLIC] == 1 && counts[MOBIUS_CIRCULAR] == 2 && counts[MOBIUS_ELLIPTIC] == 1 &&
          counts[MOBIUS_HYPERBOLIC] == 1 && counts[MOBIUS_LOXODROMIC] == 2);
    mobius_count(c, 0, counts);
    CHECK(!counts[0] && !counts[MOBIUS_LOXODROMIC]);
    CHECK(!strcmp(mobius_name(MOBIUS_ELLIPTIC), "elliptic") && !strcmp(mobius_name(MOBIUS_GEOMETRIES), "?"));
}

static void normalizing(void) {
    enum { D = 40 };
    cmha_real *abcd = check_array(8 * D, 3), before[8 * D], rho[2 * D], y[2 * D], again[2 * D];
    mobius_class c[D];
    double near = check_tolerance(1e-12, 1e-5);
    size_t j;
    check_fill(rho, 2 * D, 1);
    store(make_map(make(2, 0), make(1, 0), make(4, 0), make(2, 0)), abcd, D, 5); /* determinant 0 */
    store(make_map(make(1e-18, 0), make(0, 0), make(0, 0), make(1e-18, 1e-18)), abcd, D, 6);
    memcpy(before, abcd, sizeof before);
    cmha_mobius_forward(rho, abcd, 1, D, CMHA_QUOTIENT_EXACT, 0, y);
    mobius_normalize(abcd, D);
    cmha_mobius_forward(rho, abcd, 1, D, CMHA_QUOTIENT_EXACT, 0, again);
    mobius_classify(abcd, D, 0.01, c);
    for (j = 0; j < D; j++) {
        map m = load(abcd, D, j);
        double large = size_of(m.a) * size_of(m.d) + size_of(m.b) * size_of(m.c),
               size = hypot((double)y[j], (double)y[D + j]);
        if (j == 5) CHECK(abcd[5] == before[5] && c[5].determinant[0] == 0 && c[5].determinant[1] == 0);
        else CHECK_NEAR(hypot(c[j].determinant[0] - 1, c[j].determinant[1]), 0, near * (1 + large));
        CHECK_NEAR(hypot((double)(y[j] - again[j]), (double)(y[D + j] - again[D + j])), 0,
                   10 * near * (1 + size * size));
    }
    free(abcd);
}

/* ------------------------------------------------- CoPE ------------------------------------------------- */

static void cope_tables(void) {
    enum { N = 5 };
    static const size_t widths[] = {0, 1, 2, 7, 8};
    cmha_real y[N * 8];
    size_t i, d, r, c, pos0 = 1000000;
    for (i = 0; i < sizeof widths / sizeof *widths; i++) {
        d = widths[i];
        cmha_cope_table(CMHA_COPE_IMAG_SIN_DUP, N, d, 10000, pos0, y);
        for (r = 0; r < N; r++)
            for (c = 0; c < d; c++)
                CHECK_NEAR(y[r * d + c],
                           sin((double)(pos0 + r) * pow(10000, -2.0 * (double)(c / 2) / (double)d)), 1e-7);
        cmha_cope_table(CMHA_COPE_IMAG_SIN_COS, N, d, 100, 3, y);
        for (r = 0; r < N; r++)
            for (c = 0; c < d; c++) {
                double angle = (double)(3 + r) * pow(100, -2.0 * (double)(c / 2) / (double)d);
                CHECK_NEAR(y[r * d + c], c % 2 ? cos(angle) : sin(angle), 1e-7);
            }
        cmha_cope_table(CMHA_COPE_IMAG_SIN_DUP, 1, d, 100, 0, y);
        CHECK(check_largest(y, d) == 0); /* the first token has no position */
        cmha_cope_table(CMHA_COPE_IMAG_LEARNED, N, d, 100, 3, y);
        CHECK(check_largest(y, N * d) == 0);
    }
    cmha_cope_table(CMHA_COPE_IMAG_SIN_DUP, 0, 8, 100, 0, NULL);
}

/* ----------------------------------------------- the tape ----------------------------------------------- */

/* Output and gradients with that many threads, one after another */
static size_t on_a_tape(int threads, const cmha_real *x, const cmha_real *w, size_t T, size_t D,
                        cmha_real *out) {
    size_t shape[2], weight[3], n = 2 * T * D;
    cmha_context own;
    cmha_tape tape;
    cmha_tensor *rho, *abcd, *y;
    shape[0] = T, shape[1] = 2 * D, weight[0] = 4, weight[1] = 2, weight[2] = D;
    check_context(&own, threads, 1);
    CHECK_OK(cmha_tape_init(&tape, &own, 1));
    rho = cmha_tensor_new(&tape, 2, shape, 1), abcd = cmha_tensor_new(&tape, 3, weight, 1);
    memcpy(rho->data, x, n * sizeof *x), memcpy(abcd->data, w, 8 * D * sizeof *w);
    y = cmha_mobius(&tape, rho, abcd, CMHA_QUOTIENT_REG, (cmha_real)0.3);
    CHECK_OK(cmha_tape_backward(&tape,
                           cmha_sum(&tape, cmha_quotient(&tape, rho, y, CMHA_QUOTIENT_UNIT, (cmha_real)0.2)),
                           1));
    memcpy(out, y->data, n * sizeof *out), memcpy(out + n, rho->grad, n * sizeof *out);
    memcpy(out + 2 * n, abcd->grad, 8 * D * sizeof *out);
    cmha_tape_close(&tape);
    cmha_context_close(&own);
    return 2 * n + 8 * D;
}

static void threads_do_not_matter(void) {
    enum { T = 37, D = 9, ALL = 4 * T * D + 8 * D };
    cmha_real *x = check_array(2 * T * D, 1), *w = check_array(8 * D, 1), one[ALL], three[ALL], again[ALL];
    CHECK(on_a_tape(1, x, w, T, D, one) == ALL && on_a_tape(3, x, w, T, D, three) == ALL &&
          on_a_tape(3, x, w, T, D, again) == ALL);
    CHECK(!memcmp(one, three, 4 * T * D * sizeof *one)); /* the same sums; of the parameters' another order */
    CHECK(check_distance(one, three, ALL) <= check_tolerance(1e-12, 1e-4) * (1 + check_largest(one, ALL)));
    CHECK(!memcmp(three, again, sizeof three));
    free(x), free(w);
}

static cmha_tensor *tensor(cmha_tape *tape, size_t a, size_t b) {
    size_t shape[2];
    shape[0] = a, shape[1] = b;
    return cmha_tensor_new(tape, 2, shape, 1);
}

static void misfit(cmha_tape *tape, cmha_tensor *result, cmha_status want) {
    CHECK(result == NULL);
    CHECK_IS(cmha_tape_status(tape), want);
    CHECK(strlen(cmha_error(&context)) > 0 && !strchr(cmha_error(&context), '\n'));
    cmha_tape_reset(tape);
}

static void errors_and_empty_sizes(void) {
    cmha_tape t;
    cmha_real none[1];
    cmha_tensor *y;
    CHECK_OK(cmha_tape_init(&t, &context, 1));
    misfit(&t, cmha_mobius(&t, tensor(&t, 3, 4), tensor(&t, 8, 3), CMHA_QUOTIENT_REG, 0), CMHA_ERR_SHAPE);
    misfit(&t, cmha_mobius(&t, tensor(&t, 3, 5), tensor(&t, 8, 2), CMHA_QUOTIENT_REG, 0), CMHA_ERR_SHAPE);
    misfit(&t, cmha_mobius(&t, tensor(&t, 3, 4), tensor(&t, 8, 2), CMHA_QUOTIENT_REG, -1), CMHA_ERR_ARGUMENT);
    misfit(&t, cmha_quotient(&t, tensor(&t, 3, 4), tensor(&t, 4, 3), CMHA_QUOTIENT_REG, 0), CMHA_ERR_SHAPE);
    misfit(&t, cmha_quotient(&t, tensor(&t, 3, 5), tensor(&t, 3, 5), CMHA_QUOTIENT_REG, 0), CMHA_ERR_SHAPE);
    misfit(&t, cmha_quotient(&t, tensor(&t, 3, 4), tensor(&t, 3, 4), CMHA_QUOTIENT_UNIT, (cmha_real)NAN),
           CMHA_ERR_ARGUMENT);
    misfit(&t, cmha_elementwise_complex(&t, tensor(&t, 3, 4), tensor(&t, 1, 3)), CMHA_ERR_SHAPE);
    CHECK(!cmha_mobius(&t, NULL, NULL, CMHA_QUOTIENT_REG, 0) &&
          !cmha_quotient(&t, NULL, NULL, CMHA_QUOTIENT_REG, 0));
    CHECK_OK(cmha_tape_status(&t));
    y = cmha_mobius(&t, tensor(&t, 0, 4), tensor(&t, 8, 2), CMHA_QUOTIENT_REG, 0);
    CHECK_OK(cmha_tape_backward(&t, cmha_sum(&t, cmha_quotient(&t, y, y, CMHA_QUOTIENT_REG, 0)), 1));
    y = cmha_elementwise_complex(&t, tensor(&t, 3, 0), tensor(&t, 2, 0));
    CHECK_OK(
        cmha_tape_backward(&t, cmha_sum(&t, cmha_mobius(&t, y, tensor(&t, 8, 0), CMHA_QUOTIENT_REG, 0)), 1));
    cmha_mobius_backward(none, none, none, 5, 0, CMHA_QUOTIENT_REG, 0, none, none);
    mobius_classify(none, 0, 0.01, NULL);
    mobius_normalize(none, 0);
    cmha_tape_close(&t);
}

/* A dry run (how cmha_model_memory counts) must ask for what a real one takes */
static void dry_runs_take_the_same_memory(void) {
    size_t peak[2];
    int dry;
    for (dry = 0; dry < 2; dry++) {
        cmha_tape t;
        cmha_tensor *x, *y;
        CHECK_OK(cmha_tape_init(&t, &context, 1));
        t.memory.measuring = dry;
        x = tensor(&t, 30, 34);
        y = cmha_mobius(&t, cmha_elementwise_complex(&t, x, tensor(&t, 2, 17)), tensor(&t, 8, 17),
                        CMHA_QUOTIENT_UNIT, 1);
        CHECK_OK(cmha_tape_backward(&t, cmha_sum(&t, cmha_quotient(&t, y, x, CMHA_QUOTIENT_REG, 1)), 1));
        peak[dry] = t.memory.peak;
        cmha_tape_close(&t);
    }
    CHECK_THAT(peak[0] == peak[1], "%zu bytes, dry %zu", peak[0], peak[1]);
}

int main(void) {
    check_context(&context, 2, 1);
    is_a_product_without_denominator();
    is_what_eq_5_says();
    quotients_at_the_ends();
    blocks_do_not_matter();
    long_sums_stay_exact();
    five_normal_forms();
    invariance();
    odd_maps();
    counting();
    normalizing();
    cope_tables();
    threads_do_not_matter();
    errors_and_empty_sizes();
    dry_runs_take_the_same_memory();
    cmha_context_close(&context);
    return check_end();
}
