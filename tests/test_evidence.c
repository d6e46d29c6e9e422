/* The statistics of bench/evidence: Student's t against its finite sums, intervals, pairs and Holm's
   correction worked out by hand, and what has no spread, no pairs or no number. */
#include "check.h"
#include "../bench/evidence/statistics.c"

/* P(|T| <= t) of n degrees of freedom by the sums of Abramowitz & Stegun 26.7.3 and 26.7.4 */
static double inside(double t, int n) {
    double angle = atan(t / sqrt((double)n)), c = cos(angle), s = sin(angle), sum = 0, term = n % 2 ? c : 1;
    for (int k = n % 2 ? 1 : 0; k <= n - 2; k += 2) {
        sum += term;
        term *= c * c * (k + 1) / (k + 2);
    }
    return n % 2 ? 2 / acos(-1.0) * (angle + s * sum) : s * sum;
}

static void student(void) {
    static const double ts[] = {0, 1e-7, 0.01, 0.5, 1, 2.306, 5, 40, 1000};
    for (int n = 1; n <= 40; n++)
        for (size_t i = 0; i < sizeof ts / sizeof *ts; i++) {
            CHECK_NEAR(statistics_t_tail(ts[i], n), 1 - inside(ts[i], n), 1e-12);
            CHECK_NEAR(statistics_t_tail(-ts[i], n), statistics_t_tail(ts[i], n), 0);
        }
    /* far out, where 1 - inside has no digits: by the series of arc tangent and square root */
    CHECK_NEAR(statistics_t_tail(1e9, 1) * acos(-1.0) / 2 * 1e9, 1, 1e-12);
    CHECK_NEAR(statistics_t_tail(1e6, 2) * 1e12, 1, 1e-11);
    CHECK_NEAR(statistics_t_tail((double)INFINITY, 5), 0, 0);
    CHECK_NEAR(statistics_t_quantile(0.05, 1), 1 / tan(acos(-1.0) * 0.025), 1e-11);
    CHECK_NEAR(statistics_t_quantile(0.05, 2), 0.95 * sqrt(2 / (1 - 0.95 * 0.95)), 1e-12);
    for (int n = 1; n <= 40; n++)
        CHECK_NEAR(inside(statistics_t_quantile(0.05, n), n), 0.95, 1e-13);
}

static void pairs(void) {
    static const double x[] = {3, 5, 4, 9}, base[] = {1, 4, 4, 4}, same[] = {2, 5, 5, 5};
    CHECK_NEAR(statistics_mean(x, 4), 5.25, 1e-15);
    CHECK_NEAR(statistics_deviation(x, 4), sqrt((2.25 * 2.25 + 0.25 * 0.25 + 1.25 * 1.25 + 3.75 * 3.75) / 3),
               1e-15);
    CHECK_NEAR(statistics_deviation(x, 1), 0, 0);
    CHECK(isnan(statistics_mean(x, 0)));
    statistics_pairs p = statistics_paired(x, base, 4); /* differences 2, 1, 0, 5: mean 2, variance 14 / 3 */
    double error = sqrt(14.0 / 3 / 4);
    CHECK_NEAR(p.mean, 2, 1e-15);
    CHECK_NEAR(p.p, 1 - inside(2 / error, 3), 1e-14);
    CHECK_NEAR(inside(p.half / error, 3), 0.95, 1e-13);
    p = statistics_paired(same, base, 4); /* the same difference each time */
    CHECK(p.p <= 0 && p.half <= 0 && p.mean > 0.99);
    p = statistics_paired(x, x, 4);
    CHECK(p.p >= 1 && p.half <= 0);
    p = statistics_paired(x, base, 1);
    CHECK(p.p >= 1 && isnan(p.half) && p.mean > 1.99);
    p = statistics_paired(x, base, 0);
    CHECK(p.p >= 1 && isnan(p.half) && isnan(p.mean));
}

static void noise(void) {
    statistics_pairs floor = {5, -0.02, 0.03, 0.2}, none = {1, 0.5, NAN, 1}, d = {5, 0.049, 0.01, 0.01};
    CHECK(statistics_within(&d, &floor)); /* as far as 0.05 the baseline lies from itself */
    d.mean = -0.049;
    CHECK(statistics_within(&d, &floor));
    d.mean = 0.051;
    CHECK(!statistics_within(&d, &floor));
    CHECK(!statistics_within(&d, &none)); /* one pair says nothing */
    d.mean = NAN;
    CHECK(!statistics_within(&d, &floor));
}

static void holm(void) {
    double p[] = {0.04, 0.001, 0.03, 0.02}, q[] = {0.9, 0.8, 0.02}, one[] = {0.04};
    static const double p_want[] = {0.06, 0.004, 0.06, 0.06}, q_want[] = {1, 1, 0.06};
    statistics_holm(p, 4), statistics_holm(q, 3), statistics_holm(one, 1), statistics_holm(one, 0);
    for (int i = 0; i < 4; i++) CHECK_NEAR(p[i], p_want[i], 1e-15);
    for (int i = 0; i < 3; i++) CHECK_NEAR(q[i], q_want[i], 1e-15);
    CHECK_NEAR(one[0], 0.04, 0);
}

int main(void) {
    student();
    pairs();
    noise();
    holm();
    return check_end();
}
