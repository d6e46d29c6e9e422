/* labelled.h - labelled texts for an encoder: GLUE's tasks, a file's rows as batches, what a model says of
   them, and how well. In the manner of text.h: static functions without globals, 1 for success and 0 for
   failure with one line in `error`. Include it after cmha.h. */
#ifndef LABELLED_H
#define LABELLED_H

#include "batches.h"
#include "metrics.h"

/* The last two are of regressions. */
enum { LABELLED_ACCURACY, LABELLED_F1, LABELLED_MATTHEWS, LABELLED_SPEARMAN, LABELLED_PEARSON,
       LABELLED_METRICS };
static const char *const labelled_metrics[LABELLED_METRICS] = {"accuracy", "f1", "matthews", "spearman",
                                                               "pearson"};
/* A part of GLUE: its columns, label first; its metric; names of the classes where the file has numbers. */
typedef struct labelled_task { const char *name, *columns, *metric, *classes; } labelled_task;
static const labelled_task labelled_tasks[] = {
    {"sst2", "label,sentence", "accuracy", "negative,positive"},
    {"cola", "2,4", "matthews", "unacceptable,acceptable"},
    {"mrpc", "Quality,#1 String,#2 String", "f1", "different,equivalent"},
    {"rte", "label,sentence1,sentence2", "accuracy", NULL},
    {"qnli", "label,question,sentence", "accuracy", NULL},
    {"stsb", "score,sentence1,sentence2", "spearman", NULL}};

/* The task of that name, or NULL. */
static inline const labelled_task *labelled_task_named(const char *name) {
    for (size_t i = 0; i < sizeof labelled_tasks / sizeof *labelled_tasks; i++)
        if (!strcmp(labelled_tasks[i].name, name)) return &labelled_tasks[i];
    return NULL;
}

/* The number of a metric's name; LABELLED_METRICS where there is none. */
static inline int labelled_metric_named(const char *name) {
    int metric = 0;
    while (metric < LABELLED_METRICS && strcmp(labelled_metrics[metric], name)) metric++;
    return metric;
}

typedef struct labelled { /* the rows of a file */
    text_table table;
    text_examples examples;
    size_t n, batches, *order, *turn; /* rows and batches in use; the order of the rows, and of the batches */
    double *label;                    /* [table.rows] class or value of each; zeros until text_values */
} labelled;

/* Arrays for a batch of up to batch x length tokens */
typedef struct labelled_room {
    size_t batch, length;
    int32_t *ids, *types, pad;
    unsigned char *mask;
    cmha_real *labels, *scores; /* [batch], [batch, classes] */
} labelled_room;

static inline void labelled_close(labelled *l) {
    text_table_close(&l->table), text_examples_close(&l->examples);
    free(l->order), free(l->turn), free(l->label);
    memset(l, 0, sizeof *l);
}

static inline void labelled_room_close(labelled_room *r) {
    free(r->ids), free(r->types), free(r->mask), free(r->labels), free(r->scores);
    memset(r, 0, sizeof *r);
}

static inline int labelled_room_init(labelled_room *r, size_t batch, size_t length, size_t classes,
                                     int32_t pad, char *error) {
    r->batch = batch, r->length = length, r->pad = pad;
    r->ids = (int32_t *)text_memory(NULL, batch, length, sizeof *r->ids);
    r->types = (int32_t *)text_memory(NULL, batch, length, sizeof *r->types);
    r->mask = (unsigned char *)text_memory(NULL, batch, length, 1);
    r->labels = (cmha_real *)text_memory(NULL, batch, 1, sizeof *r->labels);
    r->scores = (cmha_real *)text_memory(NULL, batch, classes, sizeof *r->scores);
    if (r->ids && r->types && r->mask && r->labels && r->scores) return 1;
    labelled_room_close(r);
    return text_fail(error, "no memory for batches of %zu x %zu tokens", batch, length);
}

/* Cuts "a,b,c" into at most three columns, leaving out the first `skip`. */
static inline int labelled_columns(const char *list, int skip, char columns[3][256], int *n, char *error) {
    size_t length;
    for (*n = 0; list; list = list[length] ? list + length + 1 : NULL) {
        length = strcspn(list, ",");
        if (skip-- > 0) continue;
        if (*n == 3 || length >= sizeof *columns)
            return text_fail(error, "see --help; too much for columns: %s", list);
        snprintf(columns[(*n)++], sizeof *columns, "%.*s", (int)length, list);
    }
    return 1;
}

/* Encodes the texts of l->table, which has been loaded, and orders them in batches. The first column is the
   label's if has_label; after it come one or two texts. */
static inline int labelled_encode(labelled *l, const codec *words, int has_label, size_t length, size_t batch,
                                  uint64_t seed, char *error) {
    int second = (int)l->table.columns - has_label == 2 ? has_label + 1 : -1;
    if (!text_examples_encode(&l->examples, words, &l->table, has_label, second, length, error)) return 0;
    l->n = l->table.rows;
    l->order = (size_t *)text_memory(NULL, l->n, 1, sizeof *l->order);
    l->turn = (size_t *)text_memory(NULL, l->n, 1, sizeof *l->turn);
    l->label = (double *)text_memory(NULL, l->n, 1, sizeof *l->label);
    if (!l->order || !l->turn || !l->label) return text_fail(error, "no memory for %zu rows", l->n);
    for (size_t i = 0; i < l->n; i++) l->order[i] = i, l->label[i] = 0;
    l->batches = text_arrange(&l->examples, l->order, l->n, batch, seed, l->turn);
    return 1;
}

/* Batch number `which`, in the room's arrays; room->labels are filled in, and given to nobody. */
static inline cmha_batch labelled_batch(const labelled *l, size_t which, labelled_room *room) {
    const size_t *order = l->order + which * room->batch, left = l->n - which * room->batch;
    cmha_batch b;
    memset(&b, 0, sizeof b);
    b.ids = room->ids, b.types = room->types, b.key_mask = room->mask;
    b.batch = left < room->batch ? left : room->batch;
    b.length = text_batch(&l->examples, order, b.batch, 8, room->length, room->pad, room->ids, room->types,
                          room->mask);
    for (size_t i = 0; i < b.batch; i++) room->labels[i] = (cmha_real)l->label[order[i]];
    return b;
}

/* Of every row what the model says: the likeliest class and its probability, or the value. */
static inline cmha_status labelled_judge(cmha_model *model, const labelled *l, labelled_room *room,
                                         int32_t *choice, double *value) {
    cmha_status status = CMHA_OK;
    for (size_t which = 0, C = model->config.classes; !status && which < l->batches; which++) {
        cmha_batch b = labelled_batch(l, which, room);
        if (!model->config.token_types) b.types = NULL;
        status = cmha_model_classify(model, &b, room->scores);
        for (size_t i = 0; !status && i < b.batch; i++) {
            const cmha_real *s = room->scores + i * C;
            size_t row = l->order[which * room->batch + i], best = 0, c;
            double sum = 0;
            for (c = 1; c < C; c++) best = s[c] > s[best] ? c : best;
            for (c = 0; c < C; c++) sum += exp((double)(s[c] - s[best]));
            choice[row] = (int32_t)best, value[row] = C == 1 ? (double)s[0] : 1 / sum;
        }
    }
    return status;
}

/* A metric of what labelled_judge said, NaN without memory. */
static inline double labelled_metric(int metric, const labelled *l, size_t classes, const int32_t *choice,
                                     const double *value) {
    int32_t *wanted = (int32_t *)text_memory(NULL, l->n, 1, sizeof *wanted);
    double *scratch = (double *)text_memory(NULL, l->n, 4, sizeof *scratch), result = (double)NAN;
    for (size_t i = 0; wanted && i < l->n; i++) wanted[i] = classes > 1 ? (int32_t)l->label[i] : 0;
    if (wanted && scratch)
        result = metric == LABELLED_F1         ? metrics_f1(choice, wanted, l->n, 1)
                 : metric == LABELLED_MATTHEWS ? metrics_matthews(choice, wanted, l->n, classes)
                 : metric == LABELLED_SPEARMAN ? metrics_spearman(value, l->label, l->n, scratch)
                 : metric == LABELLED_PEARSON  ? metrics_pearson(value, l->label, l->n)
                                               : metrics_accuracy(choice, wanted, l->n);
    free(wanted), free(scratch);
    return result;
}

#endif
