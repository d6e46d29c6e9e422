/* losses.h - the losses of a training: its CSV, what is kept as the best, and a picture that is renewed while
   it goes on, losses by step above, the learning rate below. Include it after options.h. */
#ifndef LOSSES_H
#define LOSSES_H

#include "drawing.h"
#include "lessons.h"

enum { LOSSES_POINTS = 300 }; /* about so many show; of longer runs each is the mean of some steps */

typedef struct losses_row { double step, loss, held_out, rate; } losses_row; /* held_out NAN: not measured */

/* Path and texts are the caller's and stay. */
typedef struct losses {
    const char *path;             /* of the SVG; NULL: all functions do nothing */
    const char *text;             /* what is learned, for the title */
    size_t steps;                 /* of the whole run */
    double bytes;                 /* of a held-out token; 0: not known */
    losses_row *rows;
    size_t n, room;
} losses;

/* Keeps a row; those that an interrupted run had already done from its step on are no longer true. */
static inline void losses_keep(losses *l, losses_row row) {
    while (l->n && l->rows[l->n - 1].step >= row.step) l->n--;
    if (l->n == l->room) {
        losses_row *more = (losses_row *)text_memory(l->rows, l->room ? 2 * l->room : 1024, 1, sizeof *more);
        if (!more) complain(1, "no memory for the rows of ", l->path);
        l->rows = more, l->room = l->room ? 2 * l->room : 1024;
    }
    l->rows[l->n++] = row;
}

/* Reads the rows of a CSV as train_tiny writes it up to a step; lines that are none are left out. */
static inline void losses_read(losses *l, const char *csv, size_t step) {
    char *text, unread[TEXT_ERROR];
    size_t bytes;
    if (!step || !text_read(csv, (size_t)1 << 31, &text, &bytes, unread)) return;
    for (const char *at = bytes ? text : NULL, *end = text + bytes; at;) {
        text_slice line = text_line(&at, end);
        char copy[256], *rest = copy, *begin;
        double x[4];
        int n = 0;
        snprintf(copy, sizeof copy, "%.*s", line.n < sizeof copy ? (int)line.n : 0, line.at);
        for (; n < 4; n++, rest++) {
            x[n] = strtod(begin = rest, &rest);
            if (rest == begin) x[n] = NAN;
            if (*rest != ',') break;
        }
        if (n < 4 || !(x[0] >= 1 && x[0] <= (double)step) || isnan(x[1])) continue;
        losses_row row = {x[0], x[1], x[2], x[3]};
        losses_keep(l, row);
    }
    free(text);
}

/* The training losses and rates as `points` means of `each` rows: arrays of that many at `numbers`. */
static inline void losses_mean(const losses *l, size_t points, size_t each, double *numbers) {
    double *step = numbers, *loss = step + points, *low = loss + points, *high = low + points;
    for (size_t p = 0; p < points; p++) {
        double sum = 0, n = 0;
        low[p] = INFINITY, high[p] = -INFINITY;
        for (size_t i = p * each; i < (p + 1) * each && i < l->n; i++) {
            const losses_row *r = &l->rows[i];
            sum += r->loss, n++, low[p] = fmin(low[p], r->loss), high[p] = fmax(high[p], r->loss);
            step[p] = r->step, high[points + p] = r->rate;
        }
        loss[p] = sum / n;
    }
}

/* Says where the run is; of validations the last one and the best. */
static inline void losses_say(const losses *l, char *line, size_t size) {
    double best = INFINITY, last = NAN, at = 0;
    for (const losses_row *r = l->rows; r < l->rows + l->n; r++) {
        if (!isfinite(r->held_out)) continue;
        last = r->held_out;
        if (last < best) best = last, at = r->step;
    }
    if (!l->n) snprintf(line, size, "before the first of %zu steps", l->steps);
    else if (isnan(last)) snprintf(line, size, "step %.0f of %zu", l->rows[l->n - 1].step, l->steps);
    else
        snprintf(line, size, "step %.0f of %zu: validation %.4f nats a token, the best %.4f at step %.0f",
                 l->rows[l->n - 1].step, l->steps, last, best, at);
    if (l->n && l->bytes > 0 && !isnan(last))
        snprintf(line + strlen(line), size - strlen(line), " (%.4f bits a byte)", best / log(2.0) / l->bytes);
}

/* Draws what there is; returns whether it could be written, else `failure` says why not. */
static inline int losses_draw(const losses *l) {
    size_t each = (l->n + LOSSES_POINTS - 1) / LOSSES_POINTS, points = each ? (l->n + each - 1) / each : 0, i;
    double *numbers = (double *)take(5 * points + 2 * l->n, sizeof *numbers), *held = numbers + 5 * points;
    char training[64], title[256], line[200];
    int done;
    chart_series s[3] = {{training, points, numbers, numbers + points, NULL, NULL, CHART_LINES, 1, 0},
                         {"validation", 0, held, held + l->n, NULL, NULL, CHART_LINES, 2, 0},
                         {"", points, numbers, numbers + 4 * points, NULL, NULL, CHART_LINES, 3, 0}};
    chart charts[2];
    figure f = {title, line, NULL, charts, 2, 1, 860, 0, 0, 0};
    snprintf(title, sizeof title, "Training on %.200s", l->text);
    losses_mean(l, points, each, numbers), losses_say(l, line, sizeof line);
    snprintf(training, sizeof training, each > 1 ? "training, mean of %zu steps" : "training", each);
    if (each > 1) s[0].low = numbers + 2 * points, s[0].high = numbers + 3 * points;
    for (i = 0; i < l->n; i++)
        if (isfinite(l->rows[i].held_out))
            held[s[1].n] = l->rows[i].step, held[l->n + s[1].n++] = l->rows[i].held_out;
    memset(charts, 0, sizeof charts);
    charts[0].x.label = charts[1].x.label = "step", charts[0].series = s, charts[0].n = 2;
    charts[0].y.label = "loss (nats a token)", charts[1].y.label = "learning rate (of a step)";
    if (l->bytes > 0) charts[0].y.also = "loss (bits a byte)", charts[0].y.factor = 1 / log(2.0) / l->bytes;
    charts[1].series = &s[2], charts[1].n = 1, charts[1].high = 100;
    done = figure_save(l->path, &f, failure);
    free(numbers);
    return done;
}

/* Ends the program where two of the files that it writes are one, or one of them is a file that it reads.
   written: the options --out, --csv, --plot and, which is read, --resume, in this order. */
static inline void losses_spare(const codec *words, const char *text, const setting *written,
                                const setting *from, const setting *spoken, const char *last) {
    enum { READ, FROM_IS, STATE, SPOKEN, OUT_IS, LAST_STATE, IDS_ARE, KEPT, SHAPE, CSV_IS, PLOT_IS, PATHS };
    static const char *const names[PATHS] = {"the text", "--from", "--resume", "--tokenizer", "--out",
                                             "the last state", "the ids", "the kept tokenizer",
                                             "the template", "--csv", "--plot"};
    static const char *const beside[] = {".ids", ".tokenizer.json", ".template"};
    /* what may lie in place of what: ids are read where they are, and the others written anew */
    static const int may[][2] = {{IDS_ARE, READ}, {OUT_IS, FROM_IS}, {LAST_STATE, STATE}, {KEPT, SPOKEN}};
    const char *paths[PATHS] = {text, from->value, written[3].value, spoken->value, written->value, last};
    char path[3][4096], line[100];
    for (int i = 0; i < 3; i++) /* the first two of a tokenizer alone */
        if (i < 2 && words->kind != CODEC_TOKENIZER) continue;
        else if (codec_beside(written->value, beside[i], path[i], sizeof path[i]))
            paths[IDS_ARE + i] = path[i];
    paths[CSV_IS] = written[1].value, paths[PLOT_IS] = written[2].value;
    for (int i = OUT_IS; i < PATHS; i++)
        for (int k = 0; paths[i] && k < i; k++) {
            int fine = !paths[k] || !*paths[k] || !text_same_place(paths[i], paths[k]);
            for (int m = 0; m < 4; m++) fine |= may[m][0] == i && may[m][1] == k;
            if (fine) continue;
            snprintf(line, sizeof line, "%s would replace %s: ", names[i], names[k]);
            complain(2, line, paths[k]);
        }
}

/* Does a file end within a line, as one does that met a full disk? */
static inline int losses_cut(const char *path) {
    FILE *file = regular_open(path);
    int last = file && !fseek(file, -1, SEEK_END) ? getc(file) : '\n';
    if (file) fclose(file);
    return last != '\n';
}

/* Opens the CSV of a run, to go on behind the rows that it has if the run is resumed. */
static inline FILE *losses_csv(const char *path, int resumed) {
    int cut = resumed && losses_cut(path);
    FILE *csv = fopen(path, resumed ? "a" : "w");
    if (!csv) complain(1, "cannot write ", path);
    if (cut) fputc('\n', csv);
    if (!resumed || (!fseek(csv, 0, SEEK_END) && !ftell(csv)))
        fputs("step,loss,val_loss,lr,grad_norm,tokens_per_s,bits_per_byte,val_bits_per_byte\n", csv);
    if (fflush(csv)) complain(1, "cannot write ", path);
    return csv;
}

/* Begins the picture, of a run that is resumed at `step` with the rows of its CSV. Ends the program where it
   cannot be written. */
static inline void losses_open(losses *l, const char *csv, size_t step) {
    if (l->path) losses_read(l, csv, step), must(losses_draw(l));
}

/* Adds a step, with the held-out loss where it was measured: then everything is drawn anew. Where that fails
   the training goes on. */
static inline void losses_add(losses *l, size_t step, double loss, const double *held_out, double rate) {
    losses_row row = {(double)step, loss, held_out ? *held_out : NAN, rate};
    if (!l->path) return;
    losses_keep(l, row);
    if (held_out && !losses_draw(l)) complain(0, failure, "");
}

/* Draws a run that ends between two validations, or has none. */
static inline void losses_close(losses *l) {
    if (l->path && l->n && !losses_draw(l)) complain(0, failure, "");
    free(l->rows), l->rows = NULL, l->n = l->room = 0;
}

/* Writes a loss in bits a byte; nothing where it is not known how many bytes there are a token. */
static inline void losses_bits(char text[24], const char *format, double loss, double bytes) {
    *text = 0;
    if (bytes > 0) snprintf(text, 24, format, loss / log(2.0) / bytes);
}

/* The loss of a model or, where its trainer keeps a mean of the weights (`ema`), of that. */
static inline cmha_status losses_judge(cmha_trainer *trainer, lessons *from, double *loss) {
    int swaps = trainer->config.ema > 0;
    cmha_status status = swaps ? cmha_trainer_swap(trainer) : CMHA_OK;
    if (status) return status;
    status = lessons_loss(from, trainer, loss);
    if (swaps) cmha_trainer_swap(trainer); /* as before it cannot fail */
    return status;
}

/* Saves what was judged: adapters alone, the mean, or the whole state. */
static inline cmha_status losses_save(cmha_trainer *trainer, const char *path) {
    cmha_model *model = trainer->model;
    int swaps = trainer->config.ema > 0;
    cmha_status status = swaps ? cmha_trainer_swap(trainer) : CMHA_OK;
    if (status) return status;
    if (model->config.lora_rank) status = cmha_model_save_part(model, path);
    else status = swaps ? cmha_model_save(model, path) : cmha_trainer_save(trainer, path);
    if (swaps) cmha_trainer_swap(trainer);
    return status;
}

/* Keeps what speaks for a run beside OUT where that is the run's own; where it is still another model, which
   its tokenizer and template must stay with, beside the state OUT.last alone. */
static inline void losses_speak(const codec *words, const pairs_template *shape, const char *out,
                                const char *last, int own) {
    static const char *const kept[2] = {".tokenizer.json", ".template"};
    char apart[4200], path[4200];
    own = own || access(out, F_OK); /* or there is no model */
    snprintf(apart, sizeof apart, "%s.last", last); /* of which codec_beside leaves OUT.last */
    must(codec_save(words, own ? out : apart, failure) &&
         pairs_template_save(shape, own ? out : apart, failure));
    for (int i = 0; i < 2 && own; i++)
        if (codec_own(last, kept[i], path, sizeof path)) (void)remove(path);
}

/* Of a run that goes on from the state PATH.last: makes PATH, the best before the stop, that of `out`. Are
   its weights there? */
static inline int losses_bring(const cmha_trainer *trainer, const char *state, const char *out) {
    char best[4096];
    size_t n = strlen(state);
    if (!isfinite(trainer->best) || n < 6 || n >= sizeof best) return 0;
    if (strcmp(state + n - 5, ".last")) return 0;
    snprintf(best, sizeof best, "%.*s", (int)(n - 5), state);
    if (access(best, R_OK)) return 0;
    if (!text_same_place(best, out)) must(text_copy_file(best, out, failure));
    return 1;
}

/* Gives a model the best weights, those of `best`; without them (NULL) a run that went on from `state` says
   why it has the last ones. */
static inline void losses_take(cmha_model *model, const char *best, const char *state) {
    if (best) check(cmha_model_read(model, best, 2, NULL));
    else if (state)
        complain(0, "nothing is kept as the best: no loss since is better, nor are weights beside ", state);
}

#endif
