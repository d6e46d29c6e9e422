/* metrics.h - scores of predictions over n examples, as GLUE defines them. All are 0 for n = 0; nothing is
   allocated. Needs nothing of cmha.h. */
#ifndef METRICS_H
#define METRICS_H

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static inline double metrics_agreements(const int32_t *predicted, const int32_t *wanted, size_t n) {
    size_t right = 0;
    for (size_t i = 0; i < n; i++) right += predicted[i] == wanted[i];
    return (double)right;
}

/* The share of the predicted classes that are the wanted ones. */
static inline double metrics_accuracy(const int32_t *predicted, const int32_t *wanted, size_t n) {
    return n ? metrics_agreements(predicted, wanted, n) / (double)n : 0;
}

/* F1 of one class against all others, 2 TP / (2 TP + FP + FN); 0 where it is neither predicted nor wanted. */
static inline double metrics_f1(const int32_t *predicted, const int32_t *wanted, size_t n, int32_t positive) {
    size_t both = 0, either = 0; /* TP; 2 TP + FP + FN */
    for (size_t i = 0; i < n; i++) {
        both += predicted[i] == positive && wanted[i] == positive;
        either += (size_t)(predicted[i] == positive) + (size_t)(wanted[i] == positive);
    }
    return either ? 2 * (double)both / (double)either : 0;
}

/* Of class k: the share of what was called so that is right (precision), the share of what it is that was
   called so (recall), F1 as above; each 0 where there is nothing. counts [classes, classes]: how often a
   class (row) was called another (column). */
typedef struct metrics_class {
    double precision, recall, f1;
    size_t wanted, predicted;
} metrics_class;

static inline metrics_class metrics_of_class(const size_t *counts, size_t classes, size_t k) {
    metrics_class m = {0, 0, 0, 0, 0};
    size_t both = counts[k * classes + k];
    for (size_t c = 0; c < classes; c++) {
        m.wanted += counts[k * classes + c];
        m.predicted += counts[c * classes + k];
    }
    if (m.predicted) m.precision = (double)both / (double)m.predicted;
    if (m.wanted) m.recall = (double)both / (double)m.wanted;
    if (m.wanted + m.predicted) m.f1 = 2 * (double)both / (double)(m.wanted + m.predicted);
    return m;
}

/* Prints the first `width` characters of a name in UTF-8, filled up with blanks: before it if `right`. */
static inline void print_name(FILE *to, const char *name, int width, int right) {
    int bytes = 0, characters = 0, blanks;
    for (; name[bytes] && (characters < width || (name[bytes] & 0xC0) == 0x80); bytes++)
        characters += (name[bytes] & 0xC0) != 0x80;
    blanks = width - characters;
    fprintf(to, "%*s%.*s%*s", right ? blanks : 0, "", bytes, name, right ? 0 : blanks, "");
}

/* Prints how often a class (a line) was called another (a column), counts [classes, classes], and precision,
   recall and F1 of each; their means are those of the classes that there are. */
static inline void print_report(FILE *to, const char *const *class_name, size_t n, const size_t *counts) {
    size_t c, k, all = 0, right = 0;
    double precision = 0, recall = 0, f1 = 0, there = 0;
    fprintf(to, "%-10s", "");
    for (c = 0; c < n; c++) {
        fputc(' ', to);
        print_name(to, class_name[c], 6, 1);
    }
    fprintf(to, "  precision recall     F1\n");
    for (k = 0; k < n; k++) {
        metrics_class m = metrics_of_class(counts, n, k);
        print_name(to, class_name[k], 10, 0);
        for (c = 0; c < n; c++) fprintf(to, " %6zu", counts[k * n + c]);
        fprintf(to, "  %9.3f %6.3f %6.3f\n", m.precision, m.recall, m.f1);
        all += m.wanted;
        right += counts[k * n + k];
        there += m.wanted + m.predicted > 0;
        precision += m.precision;
        recall += m.recall;
        f1 += m.f1;
    }
    if (!(there > 0)) there = 1;
    fprintf(to, "%-10s%*s  %9.3f %6.3f %6.3f\n", "mean", 7 * (int)n, "", precision / there, recall / there,
            f1 / there);
    fprintf(to, "%zu of %zu right\n", right, all);
}

/* Matthews correlation of classes 0 .. classes - 1, in the form for any number of them (Gorodkin 2004), which
   for two is (TP TN - FP FN) / sqrt((TP + FP) (TP + FN) (TN + FP) (TN + FN)); 0 where a factor is 0. A class
   outside that range gives NaN. With p_k and t_k how often class k is predicted and wanted, and c how often
   they agree, it is (c n - sum p_k t_k) / sqrt((n^2 - sum p_k^2) (n^2 - sum t_k^2)). Counts one class at a
   time: that needs no memory. */
static inline double metrics_matthews(const int32_t *predicted, const int32_t *wanted, size_t n,
                                      size_t classes) {
    double all = (double)n, right = metrics_agreements(predicted, wanted, n);
    double pt = 0, pp = 0, tt = 0, p_all = 0, t_all = 0;
    for (size_t k = 0; k < classes && (p_all < all || t_all < all); k++) { /* until all are counted */
        size_t p = 0, t = 0;
        for (size_t i = 0; i < n; i++) {
            p += predicted[i] >= 0 && (size_t)predicted[i] == k;
            t += wanted[i] >= 0 && (size_t)wanted[i] == k;
        }
        pt += (double)p * (double)t, pp += (double)p * (double)p, tt += (double)t * (double)t;
        p_all += (double)p, t_all += (double)t;
    }
    if (p_all < all || t_all < all) return (double)NAN;
    if (pp >= all * all || tt >= all * all) return 0;
    return (right * all - pt) / (sqrt(all * all - pp) * sqrt(all * all - tt));
}

/* Mean and spread of x / scale, scale the largest |x|: nothing overflows, and a constant x has a spread of
   exactly 0. Returns 0 where x is not finite. */
static inline int metrics_spread(const double *x, size_t n, double *scale, double *mean, double *spread) {
    *scale = *mean = *spread = 0;
    for (size_t i = 0; i < n; i++) {
        if (!(fabs(x[i]) <= DBL_MAX)) return 0;
        if (fabs(x[i]) > *scale) *scale = fabs(x[i]);
    }
    if (!(*scale > 0)) *scale = 1;
    for (size_t i = 0; i < n; i++) *mean += x[i] / *scale;
    if (n) *mean /= (double)n;
    for (size_t i = 0; i < n; i++) *spread += (x[i] / *scale - *mean) * (x[i] / *scale - *mean);
    *spread = sqrt(*spread);
    return 1;
}

/* Pearson correlation, in [-1, 1]; 0 where x or y is constant (there is none then, and a model that predicts
   a constant has earned nothing). A NaN or an infinity in x or y gives NaN. */
static inline double metrics_pearson(const double *x, const double *y, size_t n) {
    double x_scale, x_mean, x_spread, y_scale, y_mean, y_spread, r = 0;
    if (!metrics_spread(x, n, &x_scale, &x_mean, &x_spread) ||
        !metrics_spread(y, n, &y_scale, &y_mean, &y_spread))
        return (double)NAN;
    if (!(x_spread > 0 && y_spread > 0)) return 0;
    for (size_t i = 0; i < n; i++)
        r += (x[i] / x_scale - x_mean) / x_spread * ((y[i] / y_scale - y_mean) / y_spread);
    return r < -1 ? -1 : r > 1 ? 1 : r;
}

static inline int metrics_compare(const void *a, const void *b) {
    double x = **(const double *const *)a, y = **(const double *const *)b;
    return x < y ? -1 : x > y;
}

/* rank [n]: the place of each x in their order, counted from 1, equal ones at the average of
   theirs. Returns 0 where one is NaN. */
static inline int metrics_ranks(const double *x, size_t n, double *rank, const double **order) {
    size_t same;
    for (size_t i = 0; i < n; i++) {
        if (x[i] != x[i]) return 0;
        order[i] = x + i;
    }
    if (n) qsort((void *)order, n, sizeof *order, metrics_compare);
    for (size_t i = 0; i < n; i = same) {
        for (same = i + 1; same < n && !metrics_compare(&order[i], &order[same]);) same++;
        for (size_t j = i; j < same; j++) rank[order[j] - x] = 0.5 * (double)(i + 1 + same);
    }
    return 1;
}

/* Pearson correlation of the ranks; equal values share the average of their ranks, so infinities are welcome.
   A NaN gives NaN. scratch [4 n]. */
static inline double metrics_spearman(const double *x, const double *y, size_t n, double *scratch) {
    /* n pointers are at most 2 n doubles */
    const double **order = (const double **)(void *)(scratch + 2 * n);
    if (!metrics_ranks(x, n, scratch, order) || !metrics_ranks(y, n, scratch + n, order)) return (double)NAN;
    return metrics_pearson(scratch, scratch + n, n);
}

#endif
