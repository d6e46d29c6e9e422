/* sequences.h - labelled sequences of numbers and the encoders that learn them: what signal.c and spoken.c
   share. Include it after cmha.h and options.h. */
#ifndef SEQUENCES_H
#define SEQUENCES_H

#include <math.h>

typedef struct sequences {
    size_t n, width;  /* sequences; numbers of a position, complex ones if is_complex */
    int is_complex;
    size_t *begin;    /* [n + 1]: sequence i are the positions from begin[i] to begin[i + 1] */
    cmha_real *x;     /* [begin[n], width], or planes [begin[n], 2 width]: [Re | Im] of each position */
    cmha_real *label; /* [n] classes */
    size_t longest;   /* in positions */
} sequences;

static cmha_model_config mc;
static cmha_trainer_config tc;
static struct { /* of a batch, and the order of an epoch */
    cmha_real *x, *labels;
    unsigned char *mask;
    size_t *order;
} room;

static inline void close_sequences(sequences *s) {
    free(s->begin), free(s->x), free(s->label);
    memset(s, 0, sizeof *s);
}

/* How many real numbers a position has. */
static inline size_t row_of(const sequences *s) { return s->width * (s->is_complex ? 2 : 1); }

/* ---- Batches ---- */

/* Takes the memory of batches from any of these sequences. */
static inline void make_room(size_t most, size_t longest, size_t row) {
    room.x = take(times(times(tc.batch, longest), row), sizeof *room.x);
    room.mask = take(times(tc.batch, longest), 1), room.labels = take(tc.batch, sizeof *room.labels);
    room.order = take(most, sizeof *room.order);
}

static inline void close_room(void) {
    free(room.x), free(room.mask), free(room.labels), free(room.order);
    memset(&room, 0, sizeof room);
}

/* Orders all sequences at random. Where lengths differ, those of sixteen batches at a time are sorted by
   length, so that a batch is padded little. */
static inline void arrange(const sequences *s, uint64_t epoch) {
    cmha_rng rng = cmha_rng_make(ctx.config.seed, epoch);
    size_t *order = room.order, i, j, swap, part = 16 * tc.batch;
    for (i = 0; i < s->n; i++) order[i] = i;
    for (i = s->n; i > 1; i--)
        j = (size_t)cmha_rng_below(&rng, i), swap = order[j], order[j] = order[i - 1], order[i - 1] = swap;
    for (i = 1; i < s->n && s->begin[s->n] < s->n * s->longest; i++)
        for (j = i; j % part; j--) {
            size_t a = order[j - 1], b = order[j];
            if (s->begin[a + 1] - s->begin[a] <= s->begin[b + 1] - s->begin[b]) break;
            order[j - 1] = b, order[j] = a;
        }
}

/* Lays out the sequences from `first` on, a batch of them at most, padded to the longest. With `turn` each is
   multiplied by an e^(i phi) of its own. */
static inline cmha_batch lay_out(const sequences *s, size_t first, cmha_rng *turn) {
    cmha_batch b = {.features = room.x, .labels = room.labels};
    size_t row = row_of(s), i, j, t, length;
    b.batch = s->n - first < tc.batch ? s->n - first : tc.batch;
    for (i = 0; i < b.batch; i++) {
        length = s->begin[room.order[first + i] + 1] - s->begin[room.order[first + i]];
        b.length = length > b.length ? length : b.length;
    }
    if (s->begin[s->n] < s->n * s->longest) b.key_mask = room.mask;
    memset(room.x, 0, b.batch * b.length * row * sizeof *room.x), memset(room.mask, 0, b.batch * b.length);
    for (i = 0; i < b.batch; i++) {
        size_t which = room.order[first + i];
        const cmha_real *from = s->x + s->begin[which] * row;
        cmha_real *to = room.x + i * b.length * row;
        length = s->begin[which + 1] - s->begin[which];
        memcpy(to, from, length * row * sizeof *to), memset(room.mask + i * b.length, 1, length);
        room.labels[i] = s->label[which];
        double phi = turn && s->is_complex ? 6.283185307179586 * cmha_rng_uniform(turn) : 0;
        cmha_real c = (cmha_real)cos(phi), sine = (cmha_real)sin(phi);
        for (t = 0; phi != 0 && t < length; t++)
            for (j = 0; j < s->width; j++) {
                const cmha_real *re = from + t * row + j, *im = re + s->width;
                to[t * row + j] = c * *re - sine * *im, to[t * row + s->width + j] = sine * *re + c * *im;
            }
    }
    return b;
}

/* ---- Learning ---- */

static inline size_t count_parameters(void) {
    cmha_model model;
    check(cmha_model_init(&model, &ctx, &mc));
    size_t n = model.parameters.size;
    cmha_model_close(&model);
    return n;
}

/* Sets d_ff, to an even number, so that the model has as many parameters as possible but no more than
   `most`; ends the program where even the least d_ff makes more. */
static inline void match_parameters(const char *kind, size_t most) {
    size_t low = 1, high = 4096;
    char line[200];
    mc.d_ff = 2 * low;
    snprintf(line, sizeof line, "%.60s has %zu parameters at least, with d_ff = %zu, and %zu are asked for",
             kind, count_parameters(), mc.d_ff, most);
    if (count_parameters() > most) complain(2, line, "");
    while (high - low > 1) {
        mc.d_ff = low + high; /* twice the middle */
        mc.d_ff -= mc.d_ff % 2;
        if (count_parameters() <= most) low = mc.d_ff / 2;
        else high = mc.d_ff / 2;
    }
    mc.d_ff = 2 * low;
}

/* Gives a kind that is configured no more parameters than `first`, those of the first kind, or, if it is the
   first itself (0), than an option asks for; returns how many it has. */
static inline size_t settle_parameters(const setting *option, const char *kind, size_t first) {
    if (first) match_parameters(kind, first);
    else if (option->value) match_parameters(kind, (size_t)whole_of(option, 1, SIZE_MAX));
    return count_parameters();
}

/* Ends the program where --set names what follows from the data and the options, or what such a training does
   not read. `steps` says what decides these; `parameters` is the option that asks for a number of them (or
   NULL). */
static inline void refuse_settled(const char *steps, const setting *parameters, char *const *settings,
                                  int n_set) {
    const own_field own[] = {{"steps", steps},
                             {"length", "the data decide it"},
                             {"max_positions", "the data decide it"},
                             {"vocabulary", "there are no tokens"},
                             {"accumulate", "a step has one batch"},
                             {"ema", "no mean of the weights is kept"},
                             {"eval_every", "the program says when it measures"},
                             {"eval_tokens", "all that is held out is measured"},
                             {"held_out", "the data say what is held out"},
                             {"mask_rate", "there are no tokens to hide"},
                             {"mask_token", "there are no tokens to hide"},
                             {"d_ff", "--parameters decides it"}};
    int all = (int)(sizeof own / sizeof *own);
    refuse_own(own, parameters && parameters->value ? all : all - 1, settings, n_set);
}

/* Takes a step on every batch of an epoch, counted from 1; returns the mean loss. */
static inline double learn(cmha_trainer *trainer, const sequences *s, uint64_t epoch) {
    double sum = 0, loss;
    size_t first, steps = 0;
    int bad = 0;
    arrange(s, epoch);
    for (first = 0; first < s->n; first += tc.batch) {
        cmha_batch b = lay_out(s, first, NULL);
        cmha_status status = cmha_trainer_step_batch(trainer, &b, &loss);
        bad = status == CMHA_ERR_NOT_FINITE ? bad + 1 : 0;
        if (bad && bad < 10) complain(0, "step skipped: ", cmha_error(&ctx));
        else check(status), sum += loss, steps++;
    }
    return sum / (double)(steps ? steps : 1);
}

/* Writes the class scores of all sequences, scores [n, classes]. */
static inline void judge(cmha_model *model, const sequences *s, cmha_rng *turn, cmha_real *scores) {
    for (size_t first = 0, i = 0; first < s->n; first += tc.batch) {
        for (i = first; i < s->n && i < first + tc.batch; i++) room.order[i] = i;
        cmha_batch b = lay_out(s, first, turn);
        check(cmha_model_classify(model, &b, scores + first * model->config.classes));
    }
}

/* ---- The best epoch ---- */

/* The weights of the epoch with the least loss on sequences that are not learnt from */
typedef struct best_epoch {
    cmha_real *weights;
    double loss;
    uint64_t epoch; /* 0: none yet */
} best_epoch;

/* The mean loss of sequences, -log of the share that the model gives to what they are. */
static inline double loss_of(cmha_model *model, const sequences *s) {
    size_t classes_of = model->config.classes;
    cmha_real *scores = (cmha_real *)take(times(s->n, classes_of), sizeof *scores);
    double loss = 0;
    judge(model, s, NULL, scores);
    for (size_t i = 0; i < s->n; i++) {
        const cmha_real *x = scores + i * classes_of;
        double most = (double)x[0], sum = 0;
        for (size_t c = 1; c < classes_of; c++) most = fmax(most, (double)x[c]);
        for (size_t c = 0; c < classes_of; c++) sum += exp((double)x[c] - most);
        loss += (log(fmax(sum, 1)) + most - (double)x[(size_t)s->label[i]]) / (double)s->n;
    }
    free(scores);
    return loss;
}

/* Keeps the weights if they are the best so far. */
static inline void keep_best(best_epoch *best, cmha_model *model, const sequences *held_out,
                             uint64_t epoch) {
    size_t n = model->parameters.size;
    double loss = loss_of(model, held_out);
    if (!best->weights) best->weights = (cmha_real *)take(n, sizeof *best->weights);
    if (isfinite(loss) && (!best->epoch || loss < best->loss)) {
        memcpy(best->weights, model->parameters.data, n * sizeof *best->weights);
        best->loss = loss;
        best->epoch = epoch;
    }
}

/* Gives these weights to the model, and says of which epoch they are. */
static inline void take_best(best_epoch *best, cmha_model *model, const setting *quiet, uint64_t done) {
    if (best->epoch) {
        memcpy(model->parameters.data, best->weights, model->parameters.size * sizeof *best->weights);
        if (!quiet->value)
            printf("%sepoch %llu of %llu is kept: validation loss %.4f\n", line_open ? "\n" : "",
                   (unsigned long long)best->epoch, (unsigned long long)done, best->loss);
        if (!quiet->value) line_open = 0;
    }
    free(best->weights);
    memset(best, 0, sizeof *best);
}

/* Prints a line, on a terminal over the last one, unless there is --quiet. */
static inline void show_progress(const setting *quiet, const char *kind, const char *what, uint64_t epoch,
                                 uint64_t epochs, double loss, double start) {
    int terminal = isatty(1), over = terminal && epoch < epochs;
    if (quiet->value) return;
    printf("%s%s, seed %llu%s: epoch %llu/%llu  loss %.4f  %.0f s  %s", terminal ? "\r" : "", kind,
           (unsigned long long)ctx.config.seed, what, (unsigned long long)epoch, (unsigned long long)epochs,
           loss, seconds() - start, over ? "" : "\n");
    fflush(stdout), line_open = over;
}

static inline size_t best_of(const cmha_real *scores, size_t classes) {
    size_t best = 0;
    for (size_t c = 1; c < classes; c++) best = scores[c] > scores[best] ? c : best;
    return best;
}

#endif
