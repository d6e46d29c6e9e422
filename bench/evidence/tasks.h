/* tasks.h - small tasks whose gaps seeds cannot hide: how samples are drawn. tasks.c says what they are. */
#ifndef TASKS_H
#define TASKS_H

#include "cmha.h"

enum { TASK_FACTORS = 3, TASK_HELD_OUT = 8 }; /* one input of TASK_HELD_OUT is kept from training */
extern const size_t task_factors[TASK_FACTORS]; /* 1, 2, 4: held-out samples are so many times longer */

/* How large samples are. What a size counts is the task's: symbols, pairs, letters, bits, tokens. */
typedef struct task_size {
    size_t least, most; /* of a training sample, drawn evenly, both included */
    size_t tested;      /* of a held-out one, f times longer: drawn from f * tested to f * most */
    size_t symbols;     /* that there are */
    size_t reach;       /* the largest shift or phase asked for, of tasks that have one */
    size_t phases;      /* of an item, 0: it has none */
} task_size;

/* A row a task. */
typedef struct task {
    const char *name;                         /* that of its claim */
    size_t per_symbol, per_reach, more;       /* vocabulary = per_symbol symbols + per_reach reach + more */
    size_t per_size, ends;                    /* a sample of size n has at most per_size n + ends tokens */
    size_t smallest;                          /* size */
    int distinct;                             /* 1: a sample has no symbol twice, so size <= symbols */
    /* Draws a sample of size n into ids and targets, -1 before; returns its tokens. targets[t] is what has
       to be said at t, having seen ids[0 .. t]; it stays -1 where nothing is asked. */
    size_t (*draw)(const task_size *size, size_t n, cmha_rng *rng, int32_t *ids, int32_t *targets);
} task;

const task *task_named(const char *name); /* NULL: there is none */
size_t task_vocabulary(const task *t, const task_size *size);
size_t task_tokens(const task *t, size_t n); /* room for a sample of size n */
/* Says what is wrong with a size, for samples of f times the length (1: training too); NULL: nothing. */
const char *task_wrong(const task *t, const task_size *size, size_t f);
/* Draws sample `index` of a seed: f = 0 for training, else a held-out one of f times the length. The input
   decides which of the two it may be, so that none is ever both. Returns its tokens, 0: too few inputs. */
size_t task_sample(const task *t, const task_size *size, uint64_t seed, size_t f, uint64_t index,
                   int32_t *ids, int32_t *targets);
/* Draws samples first .. first + rows - 1 as a batch: fills ids, targets and mask [rows, length], of the
   longest, which is returned; they need room for rows * task_tokens of the largest. 0: as above. */
size_t task_batch(const task *t, const task_size *size, uint64_t seed, size_t f, uint64_t first, size_t rows,
                  int32_t *ids, int32_t *targets, unsigned char *mask);

#endif
