/* statistics.c - paired differences by Student's t, Holm's correction. */
#include "program.h"

#include <math.h>

double statistics_mean(const double *x, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += x[i];
    return n ? sum / (double)n : NAN;
}

double statistics_deviation(const double *x, size_t n) {
    double mean = statistics_mean(x, n), sum = 0;
    for (size_t i = 0; i < n; i++) sum += (x[i] - mean) * (x[i] - mean);
    return n > 1 ? sqrt(sum / (double)(n - 1)) : 0;
}

/* The regularised incomplete beta function by its continued fraction (Lentz), x < (a + 1) / (a + b + 2). */
static double beta_fraction(double a, double b, double x) {
    const double tiny = 1e-300;
    double c = 1, d = 1 - (a + b) * x / (a + 1), f;
    f = d = 1 / (fabs(d) < tiny ? tiny : d);
    for (int m = 1; m < 1000; m++) {
        for (int odd = 0; odd < 2; odd++) {
            double term = odd ? -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
                              : m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
            d = 1 + term * d, c = 1 + term / c;
            d = 1 / (fabs(d) < tiny ? tiny : d), c = fabs(c) < tiny ? tiny : c;
            f *= c * d;
        }
        if (fabs(c * d - 1) < 1e-16) break;
    }
    return f;
}

/* That function of x, given with y = 1 - x, so that both are exact near 0. */
static double beta(double a, double b, double x, double y) {
    if (x <= 0 || y <= 0) return x > 0;
    double front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(y));
    return x < (a + 1) / (a + b + 2) ? front * beta_fraction(a, b, x) / a
                                     : 1 - front * beta_fraction(b, a, y) / b;
}

double statistics_t_tail(double t, double freedom) {
    double all = freedom + t * t;
    return isinf(all) ? 0 : beta(freedom / 2, 0.5, freedom / all, t * t / all);
}

double statistics_t_quantile(double two_sided, double freedom) {
    double low = 0, high = 1;
    while (statistics_t_tail(high, freedom) > two_sided && high < 1e300) high *= 2;
    for (int i = 0; i < 200; i++) {
        double middle = (low + high) / 2;
        if (statistics_t_tail(middle, freedom) > two_sided) low = middle;
        else high = middle;
    }
    return (low + high) / 2;
}

statistics_pairs statistics_paired(const double *x, const double *base, size_t n) {
    statistics_pairs pairs = {n, NAN, NAN, 1};
    double *d = (double *)malloc((n + 1) * sizeof *d);
    for (size_t i = 0; d && i < n; i++) d[i] = x[i] - base[i];
    if (d) pairs.mean = statistics_mean(d, n);
    if (d && n > 1) {
        double error = statistics_deviation(d, n) / sqrt((double)n), freedom = (double)n - 1;
        pairs.half = error * statistics_t_quantile(0.05, freedom);
        pairs.p = error > 0 ? statistics_t_tail(pairs.mean / error, freedom) : !(fabs(pairs.mean) > 0);
    }
    free(d);
    return pairs;
}

int statistics_within(const statistics_pairs *pairs, const statistics_pairs *floor) {
    return !isnan(floor->half) && fabs(pairs->mean) <= fabs(floor->mean) + floor->half;
}

void statistics_holm(double *p, size_t n) {
    /* The k-th smallest of n is multiplied by n - k + 1; none may fall below one before it. */
    unsigned char *done = (unsigned char *)calloc(n + 1, 1);
    double least = 0;
    for (size_t k = 0; done && k < n; k++) {
        size_t next = n;
        for (size_t i = 0; i < n; i++)
            if (!done[i] && (next == n || p[i] < p[next])) next = i;
        double corrected = p[next] * (double)(n - k);
        if (corrected > 1) corrected = 1;
        if (corrected < least) corrected = least;
        p[next] = least = corrected, done[next] = 1;
    }
    free(done);
}
