/* batches.h - encoded texts for encoders, and batches of them. In the manner of text.h: static functions
   without globals, 1 for success and 0 for failure with one line in `error`, and a failed call leaves nothing
   allocated. Include it after cmha.h. */
#ifndef BATCHES_H
#define BATCHES_H

#include "codec.h"

/* The encoded rows of a table, one after another */
typedef struct text_examples {
    int32_t *ids;
    size_t *start, *first; /* [n + 1]: where each begins; [n]: how many of its tokens are of type 0 */
    size_t n, cut;         /* examples; those of them that were too long */
} text_examples;

static inline void text_examples_close(text_examples *e) {
    free(e->ids), free(e->start), free(e->first);
    memset(e, 0, sizeof *e);
}

/* Appends [CLS] a [SEP], or with b (NULL: none) [CLS] a [SEP] b [SEP] (of RoBERTa's kind [SEP] [SEP] between
   them), in at most `length` tokens, 4 or more: while it is too long, the longer of the two loses its last
   token, and 2 is returned. *first: how many tokens are of type 0. */
static inline int text_example(const codec *c, const text_slice *a, const text_slice *b, size_t length,
                               codec_ids *ids, size_t *first, char *error) {
    size_t seps = b ? 1 + (size_t)c->more_seps : 1, room, begin = ids->n + 1, n, m, middle;
    int done = 1;
    if (length < 1 + seps + (b != NULL)) return text_fail(error, "%zu tokens are too few for a pair", length);
    room = length - 1 - seps - (b != NULL);
    if (!codec_append(ids, &c->cls, 1, error) || !codec_encode(c, a->at, a->n, 0, ids, error)) return 0;
    n = ids->n - begin;
    for (size_t i = 0; i < seps; i++)
        if (!codec_append(ids, &c->sep, 1, error)) return 0;
    middle = ids->n;
    if (b && !codec_encode(c, b->at, b->n, 0, ids, error)) return 0;
    m = ids->n - middle;
    if (n + m > room) done = 2;
    while (n + m > room) *(n > m ? &n : &m) -= 1;
    for (size_t i = 0; i < seps; i++) ids->at[begin + n + i] = c->sep;
    memmove(ids->at + begin + n + seps, ids->at + middle, m * sizeof *ids->at);
    ids->n = begin + n + seps + m;
    if (b && !codec_append(ids, &c->sep, 1, error)) return 0;
    *first = b && c->one_type ? ids->n - begin + 1 : n + 1 + seps;
    return done;
}

/* Encodes the column a, or the pair of columns a and b (b < 0: none), of every row. */
static inline int text_examples_encode(text_examples *e, const codec *c, const text_table *t, int a, int b,
                                       size_t length, char *error) {
    codec_ids ids = {NULL, 0, 0};
    int done = 1;
    memset(e, 0, sizeof *e);
    if (length < 4) return text_fail(error, "a length of %zu tokens is too short, 4 is the least", length);
    e->n = t->rows;
    e->start = (size_t *)text_memory(NULL, e->n + 1, 1, sizeof *e->start);
    e->first = (size_t *)text_memory(NULL, e->n + 1, 1, sizeof *e->first);
    if (!e->start || !e->first) done = text_fail(error, "no memory for %zu examples", t->rows);
    for (size_t row = 0; done && row < e->n; row++) {
        text_slice one = text_cell(t, row, (size_t)a), two = b < 0 ? one : text_cell(t, row, (size_t)b);
        e->start[row] = ids.n;
        done = text_example(c, &one, b < 0 ? NULL : &two, length, &ids, e->first + row, error);
        e->cut += done == 2;
    }
    e->ids = ids.at;
    if (!done) return text_examples_close(e), 0;
    return e->start[e->n] = ids.n, 1;
}

/* Lays out the examples order[0 .. n) as a batch: ids, types and mask [n, N], padded with `pad` to the
   longest, N rounded up to a multiple of `unit` (but never beyond `most`, which no example is). Returns N. */
static inline size_t text_batch(const text_examples *e, const size_t *order, size_t n, size_t unit,
                                size_t most, int32_t pad, int32_t *ids, int32_t *types, unsigned char *mask) {
    size_t longest = 1, length, r, i;
    for (r = 0; r < n; r++) {
        length = e->start[order[r] + 1] - e->start[order[r]];
        if (length > longest) longest = length;
    }
    longest = (longest + unit - 1) / unit * unit;
    if (longest > most) longest = most;
    for (r = 0; r < n; r++, ids += longest, types += longest, mask += longest) {
        length = e->start[order[r] + 1] - e->start[order[r]];
        for (i = 0; i < longest; i++) {
            ids[i] = i < length ? e->ids[e->start[order[r]] + i] : pad;
            types[i] = i < length && i >= e->first[order[r]];
            mask[i] = i < length;
        }
    }
    return longest;
}

/* Uniform bits; the state is a counter that goes through the finaliser of SplitMix64. */
static inline uint64_t text_random(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u, z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static inline void text_shuffle(size_t *x, size_t n, uint64_t seed) {
    for (; n > 1; n--) {
        size_t other = (size_t)(text_random(&seed) % n), moved = x[n - 1];
        x[n - 1] = x[other], x[other] = moved;
    }
}

/* An order to go through n examples in batches: shuffles order[n], then sorts it by length within pools of 16
   batches, as padding costs time; turn [n / batch, rounded up] gets the numbers of the batches, shuffled.
   Returns how many batches there are. */
static inline size_t text_arrange(const text_examples *e, size_t *order, size_t n, size_t batch,
                                  uint64_t seed, size_t *turn) {
    size_t batches = n / batch + (n % batch != 0), i, j;
    text_shuffle(order, n, seed);
    for (i = 0; i < n; i++) {
        size_t moved = order[i], length = e->start[moved + 1] - e->start[moved];
        for (j = i; j % (16 * batch) && e->start[order[j - 1] + 1] - e->start[order[j - 1]] > length; j--)
            order[j] = order[j - 1];
        order[j] = moved;
    }
    for (i = 0; i < batches; i++) turn[i] = i;
    text_shuffle(turn, batches, ~seed);
    return batches;
}

#endif
