/* sentences.h - sentences as a model reads them, and the vectors that it makes of them. Include it after
   options.h; functions end the program with one line where they fail. */
#ifndef SENTENCES_H
#define SENTENCES_H

#include "batches.h"

#include <math.h>

typedef enum sentences_pool { SENTENCES_MEAN, SENTENCES_CLS, SENTENCES_LAST } sentences_pool;
static const char *const sentences_pools[] = {"mean", "cls", "last"}; /* in the order of the enumeration */

static inline sentences_pool sentences_pool_named(const char *name) {
    for (int i = 0; i < 3; i++)
        if (!strcmp(name, sentences_pools[i])) return (sentences_pool)i;
    no_such("there is no --pool", name, sentences_pools, 3);
    return SENTENCES_MEAN;
}

/* A model and what it speaks. */
typedef struct sentences {
    cmha_model model;
    codec words;
    size_t length;  /* most tokens of a sentence */
    size_t cut;     /* sentences that had more */
    float *weights; /* of tokens in a mean [vocabulary]; NULL: all alike */
    float *centre;  /* what is taken off a vector [d_model], or NULL */
} sentences;

/* Opens the model at `path` and its tokenizer, or the one given; of an encoder with [CLS], [SEP], [MASK]. */
static inline void sentences_open(sentences *s, const char *path, const char *given) {
    memset(s, 0, sizeof *s);
    open_checkpoint(&s->model, path);
    const cmha_model_config *c = &s->model.config;
    if (!c->tokens) complain(1, path, ": a model of numbers, which reads no text");
    must(codec_may_be(given, path, c, failure) &&
         codec_open(&s->words, given, path, c->tokenizer, 0, failure));
    if (!c->causal) codec_add_specials(&s->words);
    if (s->words.kind == CODEC_BYTES && s->words.size < c->vocabulary)
        complain(1, path, ": its tokens are numbers, and no tokenizer tells what they stand for");
    if (s->words.size > c->vocabulary)
        complain(1, "see --tokenizer: there are more tokens than in the vocabulary of ", path);
    s->length = trained_length(path);
    if ((c->position == CMHA_POSITION_LEARNED || !c->causal) && s->length > c->max_positions)
        s->length = c->max_positions; /* of an encoder classify says so how long its texts were */
}

static inline void sentences_close(sentences *s) {
    codec_close(&s->words), cmha_model_close(&s->model);
    free(s->weights), free(s->centre);
}

/* Appends a sentence as the model reads it, [CLS] .. [SEP] or as texts begin, in at most s->length tokens. */
static inline void sentences_put(sentences *s, text_slice text, codec_ids *ids) {
    size_t first = ids->n, n;
    int encoder = !s->model.config.causal;
    if (encoder) must(text_example(&s->words, &text, NULL, (size_t)1 << 30, ids, &n, failure));
    else must(codec_encode(&s->words, text.at, text.n, 1, ids, failure));
    if (ids->n == first) complain(1, "an empty line gives no tokens, so no vector", "");
    if (ids->n - first <= s->length) return;
    ids->n = first + s->length, s->cut++;
    if (encoder) ids->at[ids->n - 1] = s->words.sep;
}

/* Prints a line where sentences had more tokens than are read, and counts anew. */
static inline void sentences_tell_cut(sentences *s, const char *what, const char *advice) {
    char line[160];
    snprintf(line, sizeof line, "%zu %s are longer than %zu tokens, of which only these are read", s->cut,
             what, s->length);
    if (s->cut) complain(0, line, advice);
    s->cut = 0;
}

/* Weighs tokens by how few of the lines of a text they are in: the logarithm of (1 + lines) / (1 + those). */
static inline void sentences_weigh(sentences *s, const char *path) {
    const size_t vocabulary = s->model.config.vocabulary;
    size_t bytes, lines = 0;
    char *text;
    codec_ids ids = {NULL, 0, 0};
    size_t *last = (size_t *)take(vocabulary, sizeof *last);
    size_t *count = (size_t *)take(vocabulary, sizeof *count); /* lines that have a token */
    s->weights = (float *)take(vocabulary, sizeof *s->weights);
    must(text_read(path, (size_t)1 << 31, &text, &bytes, failure));
    for (const char *at = text_lines(text, bytes); at;) {
        text_slice line = text_line(&at, text + bytes);
        if (!line.n) continue;
        lines++, ids.n = 0, sentences_put(s, line, &ids);
        for (size_t i = 0; i < ids.n; i++) {
            size_t id = (size_t)ids.at[i];
            if (last[id] != lines) last[id] = lines, count[id]++;
        }
    }
    if (!lines) complain(1, path, " has no line to weigh tokens by");
    for (size_t id = 0; id < vocabulary; id++)
        s->weights[id] = (float)log((1 + (double)lines) / (1 + (double)count[id]));
    codec_ids_free(&ids), free(last), free(count), free(text);
}

/* The vector of a sentence from its states [n, width], scaled to length 1 unless `raw`. Its tokens count
   alike in a mean, or by their weights. */
static inline void sentences_pooled(const sentences *s, const cmha_real *states, const int32_t *ids, size_t n,
                                    sentences_pool pool, int raw, float *vector) {
    const size_t width = s->model.config.d_model;
    size_t from = pool == SENTENCES_LAST ? n - 1 : 0, to = pool == SENTENCES_CLS ? 1 : n;
    double square = 0, all = 0;
    for (size_t i = from; i < to; i++) all += s->weights ? (double)s->weights[ids[i]] : 1;
    for (size_t j = 0; j < width; j++) {
        double sum = 0;
        for (size_t i = from; i < to; i++)
            sum += (double)states[i * width + j] * (s->weights ? (double)s->weights[ids[i]] : 1);
        sum = sum / (all > 0 ? all : 1) - (s->centre ? (double)s->centre[j] : 0);
        square += sum * sum, vector[j] = (float)sum;
    }
    if (!isfinite(square)) complain(1, "what the model says of a text is no number", "");
    for (size_t j = 0; !raw && square > 0 && j < width; j++) vector[j] = (float)(vector[j] / sqrt(square));
}

/* Room for the tokens of so many texts */
typedef struct sentences_room {
    int32_t *ids;
    unsigned char *mask;
    size_t *n; /* tokens of each text */
} sentences_room;

static inline sentences_room sentences_make_room(const sentences *s, size_t texts) {
    sentences_room r;
    size_t most = times(texts, s->length);
    r.ids = (int32_t *)take(most, sizeof *r.ids), r.mask = (unsigned char *)take(most, 1);
    r.n = (size_t *)take(texts, sizeof *r.n);
    return r;
}

static inline void sentences_free_room(sentences_room *r) { free(r->ids), free(r->mask), free(r->n); }

/* Lays texts out as a batch, padded to the longest. */
static inline cmha_batch sentences_batch(sentences *s, const text_slice *texts, size_t rows,
                                         sentences_room *room) {
    codec_ids all = {NULL, 0, 0};
    cmha_batch b;
    size_t at = 0;
    memset(&b, 0, sizeof b);
    for (size_t r = 0; r < rows; r++) {
        size_t before = all.n;
        sentences_put(s, texts[r], &all), room->n[r] = all.n - before;
        if (room->n[r] > b.length) b.length = room->n[r];
    }
    for (size_t r = 0; r < rows; at += room->n[r++])
        for (size_t i = 0; i < b.length; i++) {
            int there = i < room->n[r];
            room->ids[r * b.length + i] = there ? all.at[at + i] : s->words.pad < 0 ? 0 : s->words.pad;
            room->mask[r * b.length + i] = (unsigned char)there;
        }
    b.ids = room->ids, b.key_mask = room->mask, b.batch = rows;
    codec_ids_free(&all);
    return b;
}

/* Vectors [n, d_model] of n texts, `batch` at a time. */
static inline void sentences_vectors(sentences *s, const text_slice *texts, size_t n, size_t batch,
                                     sentences_pool pool, int raw, float *vectors) {
    size_t width = s->model.config.d_model;
    sentences_room room = sentences_make_room(s, n < batch ? n : batch);
    cmha_tape tape;
    check(cmha_tape_init(&tape, &ctx, 0));
    for (size_t first = 0, rows; first < n; first += rows) {
        rows = n - first < batch ? n - first : batch;
        cmha_batch b = sentences_batch(s, texts + first, rows, &room);
        cmha_tensor *states = cmha_model_states(&s->model, &tape, &b, NULL);
        if (!states) check(tape.status);
        for (size_t r = 0; r < rows; r++)
            sentences_pooled(s, states->data + r * b.length * width, room.ids + r * b.length, room.n[r], pool,
                             raw, vectors + (first + r) * width);
        cmha_tape_reset(&tape);
    }
    cmha_tape_close(&tape), sentences_free_room(&room);
}

/* Takes from now on the mean vector of the first lines of a text off every vector: what all have in common
   says nothing of one. */
static inline void sentences_center(sentences *s, const char *path, size_t batch) {
    enum { MOST = 10000 };
    const size_t width = s->model.config.d_model;
    size_t bytes, n = 0;
    char *text;
    text_slice *texts = (text_slice *)take(MOST, sizeof *texts);
    float *centre = (float *)take(width, sizeof *centre), *x;
    must(text_read(path, (size_t)1 << 31, &text, &bytes, failure));
    for (const char *at = text_lines(text, bytes); at && n < MOST;) {
        texts[n] = text_line(&at, text + bytes);
        n += texts[n].n > 0;
    }
    x = (float *)take(times(n, width), sizeof *x);
    sentences_vectors(s, texts, n, batch, SENTENCES_MEAN, 1, x);
    for (size_t i = 0; i < n * width; i++) centre[i % width] += x[i] / (float)n;
    s->centre = centre;
    free(texts), free(text), free(x);
}

#endif
