/* lessons.h - what a training learns from: the tokens of a text, or pairs of prompt and answer (pairs.h).
   Include it after options.h and codec.h. */
#ifndef LESSONS_H
#define LESSONS_H

#include "pairs.h"

typedef struct lessons {
    cmha_tokens text, train, held_out; /* of pairs `text` has the tokens of all, the others are empty */
    pairs rows;                        /* rows.n = 0: there is a text */
    size_t n_train;                    /* pairs that are learned from; those behind them are held out */
    int32_t *ids, *targets;            /* [batch, length]: of a batch of pairs */
    unsigned char *mask;
    size_t length;                     /* tokens of each sequence of the last step */
} lessons;

/* Settles the template of a training with --pairs: the one given, or that of the state at `origin` (NULL:
   none), or the usual one. Without pairs there is none to give. */
static inline void lessons_template(pairs_template *t, const char *given, int pairs_given,
                                    const char *origin) {
    static const char usual[] = "{prompt}\n{answer}";
    memset(t, 0, sizeof *t);
    if (given && !pairs_given) complain(2, "--template is for --pairs", "");
    if (!pairs_given) return;
    if (given) {
        char *text = strcpy((char *)take(strlen(given) + 1, 1), given);
        int done = pairs_template_read(t, text, unescape(text), 1, failure);
        free(text);
        if (!done) complain(2, failure, "");
    } else if (origin) must(pairs_template_find(t, origin, failure));
    if (!t->text) must(pairs_template_read(t, usual, sizeof usual - 1, 1, failure));
}

/* Reads a file of pairs as tokens; what is left out or cut off gets a line. */
static inline void lessons_read(lessons *l, const char *path, const codec *words, const pairs_template *t,
                                size_t length) {
    pairs_file f;
    char line[200];
    memset(l, 0, sizeof *l);
    if (words->kind == CODEC_NUMBERS)
        complain(2, "--pairs: texts need a vocabulary of 256 bytes or a --tokenizer", "");
    must(pairs_file_load(&f, path, failure));
    snprintf(line, sizeof line, "%zu lines without two columns are left out, the first is line %zu of ",
             f.skipped, f.first_skipped);
    if (f.skipped) complain(0, line, path);
    snprintf(line, sizeof line, "%zu lines have more columns, which nothing reads, the first is line %zu of ",
             f.wider, f.first_wider);
    if (f.wider) complain(0, line, path);
    snprintf(line, sizeof line, "nothing reads the field %s of ", f.unread);
    if (*f.unread) complain(0, line, path);
    if (!pairs_encode(&l->rows, words, t, &f, length, failure)) complain(1, failure, "");
    snprintf(line, sizeof line, "%zu of %zu pairs have more than %zu tokens and are cut (see --seq): ",
             l->rows.cut, l->rows.n, length + 1);
    if (l->rows.cut) complain(0, line, path);
    if (pairs_end(words) < 0) complain(0, "no answer will have an end, as the tokenizer has none", "");
    l->text.data = l->rows.ids.at, l->text.count = l->rows.ids.n, l->text.width = 4;
    pairs_file_close(&f);
}

/* Parts what is learned from what is held out; where that is nothing, validation is on what is learned, and a
   line says so. Ends the program where nothing could be learned. */
static inline void lessons_split(lessons *l, const cmha_trainer *trainer, const char *path) {
    static const char alike[] = "nothing is held out, so validation is on what is learned";
    const cmha_trainer_config *c = &trainer->config;
    if (l->rows.n) {
        size_t tokens = times(c->batch, c->length), held = (size_t)((double)l->rows.n * c->held_out);
        if (c->accumulate > 1) complain(2, "--pairs: take a larger --batch instead of accumulate", "");
        if (!held) complain(0, alike, "");
        l->n_train = l->rows.n - held;
        l->ids = (int32_t *)take(tokens, sizeof *l->ids), l->mask = (unsigned char *)take(tokens, 1);
        l->targets = (int32_t *)take(tokens, sizeof *l->targets);
        return;
    }
    cmha_trainer_split(trainer, &l->text, &l->train, &l->held_out);
    if (l->train.count <= c->length)
        complain(1, "not even one sequence to learn from (see --seq) in ", path);
    if (l->held_out.count >= 2) return;
    complain(0, alike, "");
    l->held_out = l->train;
}

/* Held-out tokens that an evaluation scores, and the bytes that each stands for; 0: not known. */
static inline double lessons_bytes(const lessons *l, const codec *words, const cmha_trainer *trainer) {
    size_t most = trainer->config.eval_tokens, n = l->held_out.count;
    if (l->rows.n) return 0;
    n = n - 1 < most ? n - 1 : most;
    return codec_bytes(words, &l->held_out, 1, 1 + n) / (double)n;
}

/* Lays out so many pairs, long enough for all of them and for `longest`. */
static inline cmha_batch lessons_batch(lessons *l, const size_t *which, size_t n, size_t longest,
                                       size_t most) {
    cmha_batch b;
    size_t length = (longest + 6) / 8 * 8; /* one token less than the pair: the last is a target alone */
    memset(&b, 0, sizeof b);
    if (length > most) length = most;
    b.batch = n, b.length = length, b.ids = l->ids, b.targets = l->targets, b.key_mask = l->mask;
    for (size_t i = 0; i < n; i++)
        pairs_row(&l->rows, which[i], length, l->ids + i * length, l->targets + i * length,
                  l->mask + i * length);
    return b;
}

static inline size_t lessons_longer(const lessons *l, size_t pair, size_t longest) {
    size_t n = l->rows.start[pair + 1] - l->rows.start[pair];
    return n > longest ? n : longest;
}

/* Takes a step, of pairs on those that are next; ranks take theirs of a batch that is as long for all. */
static inline cmha_status lessons_step(lessons *l, cmha_trainer *trainer, const cmha_ranks *all,
                                       double *loss) {
    const size_t batch = trainer->config.batch, rows = all->ranks * batch, first = all->rank * batch;
    size_t *which, longest = 2;
    l->length = trainer->config.length;
    if (!l->rows.n) return cmha_trainer_step(trainer, &l->train, loss);
    which = (size_t *)take(batch, sizeof *which);
    for (size_t i = 0; i < rows; i++) {
        size_t pair = pairs_drawn(&l->rows, l->n_train, (uint64_t)trainer->step * rows + i, trainer->seed);
        longest = lessons_longer(l, pair, longest);
        if (i >= first && i - first < batch) which[i - first] = pair;
    }
    cmha_batch b = lessons_batch(l, which, batch, longest, trainer->config.length);
    free(which);
    l->length = b.length;
    return cmha_trainer_step_batch(trainer, &b, loss);
}

/* The mean loss of held-out tokens; of pairs of those of the answers, of eval_tokens or a few more. Ranks all
   reckon the same. */
static inline cmha_status lessons_loss(lessons *l, cmha_trainer *trainer, double *loss) {
    const cmha_trainer_config *c = &trainer->config;
    size_t from = l->n_train < l->rows.n ? l->n_train : 0, n, longest, at;
    double sums[2] = {0, 0}; /* of losses, of targets */
    cmha_status status = CMHA_OK;
    if (!l->rows.n) return cmha_trainer_evaluate(trainer, &l->held_out, loss);
    for (at = from; at < l->rows.n && sums[1] < (double)c->eval_tokens && !status; at += n) {
        size_t which[16];
        double mean = 0, targets = 0;
        for (n = 0, longest = 2; n < 16 && n < c->batch && at + n < l->rows.n; n++)
            which[n] = at + n, longest = lessons_longer(l, at + n, longest);
        cmha_batch b = lessons_batch(l, which, n, longest, c->length);
        status = cmha_model_loss(trainer->model, &b, &mean);
        for (size_t i = 0; i < n * b.length; i++) targets += b.targets[i] != -1;
        sums[0] += mean * targets, sums[1] += targets;
    }
    *loss = sums[0] / sums[1];
    return status;
}

/* The tokens that begin a sample: of a held-out pair what asks, else one that texts begin with. */
static inline codec_ids lessons_begin(const lessons *l, int32_t otherwise) {
    size_t pair = l->n_train < l->rows.n ? l->n_train : 0;
    codec_ids begin = {NULL, 0, 0};
    if (!l->rows.n) must(codec_append(&begin, &otherwise, 1, failure));
    else
        must(codec_append(&begin, l->rows.ids.at + l->rows.start[pair],
                          l->rows.answer[pair] - l->rows.start[pair], failure));
    return begin;
}

static inline void lessons_close(lessons *l) {
    if (!l->rows.n) cmha_tokens_close(&l->text);
    pairs_close(&l->rows);
    free(l->ids), free(l->targets), free(l->mask);
    memset(l, 0, sizeof *l);
}

#endif
