/* text_metrics.h - how varied and how repetitive generated texts are: Dist-1, Dist-2 and Rep-4 of tokens.
   Static functions without globals. */
#ifndef TEXT_METRICS_H
#define TEXT_METRICS_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_GRAM = 4 }; /* tokens of the longest n-gram counted */

typedef struct text_metrics {
    size_t total[2], distinct[2]; /* 1-grams and 2-grams of all rows; how many different ones */
    size_t fours, repeated;       /* 4-grams of all rows; those equal to an earlier one of their row */
    size_t rows;                  /* those with a 4-gram */
    double shares;                /* sum over these rows of the share repeated */
} text_metrics;

/* Copies a row of tokens without what is no text: ends at the first eos, then drops every pad, wherever it
   stands; -1: there is none. out may be ids. Returns the tokens that are left. */
static inline size_t text_metrics_cut(const int32_t *ids, size_t n, int32_t eos, int32_t pad, int32_t *out) {
    size_t left = 0;
    for (size_t i = 0; i < n && (eos < 0 || ids[i] != eos); i++)
        if (pad < 0 || ids[i] != pad) out[left++] = ids[i];
    return left;
}

static inline int text_metrics_order(const void *a, const void *b) {
    return memcmp(a, b, TEXT_GRAM * sizeof(int32_t));
}

/* Appends the n-grams of a row to grams, unused places 0; returns how many. */
static inline size_t text_metrics_grams(const int32_t *row, size_t length, size_t n,
                                        int32_t (*grams)[TEXT_GRAM]) {
    size_t count = length < n ? 0 : length - n + 1;
    for (size_t i = 0; i < count; i++) {
        memset(grams[i], 0, sizeof grams[i]);
        memcpy(grams[i], row + i, n * sizeof *row);
    }
    return count;
}

/* How many of `count` n-grams differ; sorts them. */
static inline size_t text_metrics_distinct(int32_t (*grams)[TEXT_GRAM], size_t count) {
    size_t different = count > 0;
    if (count) qsort(grams, count, sizeof *grams, text_metrics_order);
    for (size_t i = 1; i < count; i++) different += text_metrics_order(grams[i - 1], grams[i]) != 0;
    return different;
}

/* Counts the n-grams of rows, row i being ids[begin[i] .. begin[i + 1]), cut; they do not cross rows.
   repeated [rows] (or NULL) gets each row's own. Returns 0 where there is no memory. */
static inline int text_metrics_count(text_metrics *m, const int32_t *ids, const size_t *begin, size_t rows,
                                     size_t *repeated) {
    size_t all = begin[rows] - begin[0];
    int32_t(*grams)[TEXT_GRAM] = NULL;
    memset(m, 0, sizeof *m);
    if (all < SIZE_MAX / sizeof *grams)
        grams = (int32_t(*)[TEXT_GRAM])malloc((all + 1) * sizeof *grams);
    if (!grams) return 0;
    for (size_t n = 1; n <= 2; n++) {
        for (size_t i = 0; i < rows; i++)
            m->total[n - 1] +=
                text_metrics_grams(ids + begin[i], begin[i + 1] - begin[i], n, grams + m->total[n - 1]);
        m->distinct[n - 1] = text_metrics_distinct(grams, m->total[n - 1]);
    }
    for (size_t i = 0; i < rows; i++) {
        size_t fours = text_metrics_grams(ids + begin[i], begin[i + 1] - begin[i], 4, grams);
        size_t again = fours - text_metrics_distinct(grams, fours);
        if (repeated) repeated[i] = again;
        m->fours += fours, m->repeated += again, m->rows += fours > 0;
        if (fours) m->shares += (double)again / (double)fours;
    }
    free(grams);
    return 1;
}

static inline double text_metrics_share(double part, size_t of) { return of ? part / (double)of : 0; }

/* Dist-n (n = 1, 2): different n-grams by all n-grams, or by all tokens; 0 where there are none. It falls
   with the amount of text: compare only as many samples of the same length. */
static inline double text_metrics_dist(const text_metrics *m, int n, int over_tokens) {
    return text_metrics_share((double)m->distinct[n - 1], m->total[over_tokens ? 0 : n - 1]);
}

/* Rep-4: the share of a row's 4-grams that equal an earlier one of it, the mean over rows of four tokens or
   more, or of all these rows' 4-grams together; 0 where there are none. */
static inline double text_metrics_rep4(const text_metrics *m, int pooled) {
    return pooled ? text_metrics_share((double)m->repeated, m->fours)
                  : text_metrics_share(m->shares, m->rows);
}

#endif
