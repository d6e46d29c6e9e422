/* predict.h - what signal.c and spoken.c share where a trained model says something of new files: the file
   beside a checkpoint, what is said, as CSV or JSON. Include it after sequences.h. */
#ifndef PREDICT_H
#define PREDICT_H

#include "metrics.h"
#include "text.h"

enum { MOST_KNOWN = 8 };
/* A number that a model's program has to know of its input, such as the samples of a frame */
typedef struct known { const char *name; uint64_t value; } known;

/* What was said of the files, in the order of their frames */
static struct {
    size_t n, room, classes;
    struct { const char *file; size_t frame; } *rows;
    double *shares; /* [n, classes]: probabilities */
    const char *const *names;
} told;

/* ---- The command line ---- */

static inline int is_predict(const char *argument) {
    return !strncmp(argument, "--predict", 9) && (!argument[9] || argument[9] == '=');
}

/* Takes the files behind --predict out of the arguments but for the first, which is the option's value:
   *files gets them all, and the number of arguments that are left is returned. */
static inline int take_files(int argc, char **argv, const char ***files, size_t *n_files) {
    int at = 1, to;
    *files = (const char **)take((size_t)argc + 1, sizeof **files);
    *n_files = 0;
    while (at < argc && !is_predict(argv[at])) at++;
    if (at >= argc) return argc;
    if (argv[at][9]) (*files)[(*n_files)++] = argv[at] + 10;
    to = at + 1;
    for (at++; at < argc; at++) {
        if (argv[at][0] == '-' && argv[at][1]) break;
        if (!(*n_files)++) to++; /* the value */
        (*files)[*n_files - 1] = argv[at];
    }
    if (!*n_files) complain(2, "a value is missing after ", "--predict");
    for (; at < argc; at++) {
        if (is_predict(argv[at])) complain(2, "one --predict is enough, behind which all files stand", "");
        argv[to++] = argv[at];
    }
    return to;
}

/* Ends the program where one of n options is given that only --predict reads. */
static inline void check_unused(const setting *options, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (options[i].value) complain(2, "only for --predict is ", options[i].name);
}

/* Ends the program where one of n options is given that --predict does not read: it reads those whose bits
   are in `read`. */
static inline void check_untrained(const setting *options, size_t n, uint64_t read) {
    uint64_t all = (UINT64_C(1) << n) - 1;
    refuse_given(options, all & ~read, " is for a training, not for --predict");
}

/* Ends the program where --patience is given and --validate holds nothing out, by which epochs are judged. */
static inline void refuse_patience(const setting *options, int patience, const setting *validate) {
    if (number_of(validate, 0, 1) > 0) return;
    refuse_given(options, UINT64_C(1) << patience, " needs what says which epoch is better: more than "
                 "--validate 0");
}

/* ---- The file beside a checkpoint ---- */

static inline void known_path(const char *model, char path[4096]) {
    if (snprintf(path, 4096, "%s.classes", model) >= 4096) complain(1, "too long a path: ", model);
}

/* Ends the program, before the training, where --save names a model that cannot be saved with the file beside
   it, or where one of them or the kept state of the training (epochs.h) would replace the file `in`. */
static inline void may_save_known(const char *model, const char *in) {
    static const char *const ends[] = {"", ".classes", ".last", ".run"};
    char path[4096];
    known_path(model, path); /* its end is the longest */
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        snprintf(path, sizeof path, "%s%s", model, ends[i]);
        refuse_replacing("--save", path, &in, 1);
    }
    known_path(model, path);
    must(text_may_save(model, failure) && text_may_save(path, failure));
}

/* Writes the program's name, what it has to know of the input, and the classes, a line each. */
static inline void save_known(const char *model, const known *k, size_t n, const char *const *names,
                              size_t classes) {
    text_labels lines;
    char path[4096], *text = (char *)take(n + classes + 1, 1100);
    memset(&lines, 0, sizeof lines);
    lines.n = n + classes + 1;
    lines.names = (text_slice *)take(lines.n, sizeof *lines.names);
    for (size_t i = 0; i < lines.n; i++) {
        char *line = text + i * 1100;
        if (!i) snprintf(line, 1100, "program\t" PROGRAM);
        else if (i <= n)
            snprintf(line, 1100, "%s\t%llu", k[i - 1].name, (unsigned long long)k[i - 1].value);
        else snprintf(line, 1100, "class\t%.1024s", names[i - 1 - n]);
        lines.names[i] = text_of(line);
    }
    known_path(model, path);
    must(text_labels_save(&lines, path, failure));
    free(text);
    text_labels_close(&lines);
}

static inline char *text_copy(text_slice s) {
    char *copy = (char *)take(s.n + 1, 1);
    memcpy(copy, s.at, s.n);
    return text_shown(copy);
}

/* Opens a checkpoint of this program: fills in the values of k by their names, and the classes' names, which
   stay as long as the program runs. */
static inline void open_known(cmha_model *model, const char *path, known *k, size_t n) {
    static const char *const columns[2] = {"1", "2"};
    char beside[4096], *program, **names;
    size_t found = 0, i;
    text_table t;
    if (!path) complain(2, "--predict needs a model that was saved with --save; name it by ", "--model");
    path = path ? path : ""; /* for what does not know that complain ends the program */
    check(cmha_model_open(model, &ctx, path));
    known_path(path, beside);
    if (!text_table_load(&t, beside, 1u << 20, columns, 2, failure))
        complain(1, PROGRAM " --save leaves a file beside a model: ", failure);
    program = t.rows ? text_copy(text_cell(&t, 0, 1)) : NULL;
    if (!program || !text_same(text_cell(&t, 0, 0), text_of("program")))
        complain(1, "not what " PROGRAM " --save leaves: ", beside);
    else if (strcmp(program, PROGRAM)) complain(1, "not a model of " PROGRAM " but of ", program);
    names = (char **)take(t.rows, sizeof *names);
    for (size_t row = 1; row < t.rows; row++) {
        text_slice name = text_cell(&t, row, 0);
        char *value = text_copy(text_cell(&t, row, 1));
        for (i = 0; i < n; i++)
            if (text_same(name, text_of(k[i].name)) && text_whole(value, &k[i].value)) found++;
        if (!text_same(name, text_of("class"))) {
            free(value);
            continue;
        }
        if (!*value) complain(1, "a class without a name in ", beside);
        for (i = 0; i < told.classes; i++)
            if (!strcmp(names[i], value)) complain(1, "a class that is named twice in ", beside);
        names[told.classes++] = value;
    }
    if (found != n || told.classes < 2) complain(1, "not what " PROGRAM " --save leaves: ", beside);
    told.names = (const char *const *)names;
    mc = model->config;
    if (mc.tokens || mc.classes != told.classes) complain(1, "another model than that of ", beside);
    free(program);
    text_table_close(&t);
}

/* ---- What a model says ---- */

/* Keeps what is told of n frames of a file, from `frame` on: scores [n, classes], logits. */
static inline void say_scores(const cmha_real *scores, size_t n, const char *file, size_t frame) {
    size_t C = told.classes, i, c;
    if (told.n + n > told.room) {
        told.room = 2 * told.n + n;
        told.rows = text_memory(told.rows, told.room, 1, sizeof *told.rows);
        told.shares = (double *)text_memory(told.shares, told.room, C, sizeof *told.shares);
        if (!told.rows || !told.shares) complain(1, "no memory for so much", "");
    }
    for (i = 0; i < n; i++) {
        const cmha_real *from = scores + i * C;
        double *to = told.shares + told.n * C, sum = 0;
        size_t best = best_of(from, C);
        for (c = 0; c < C; c++) sum += to[c] = exp((double)(from[c] - from[best]));
        for (c = 0; c < C; c++) to[c] /= sum;
        if (!(sum < 2 * (double)C)) complain(1, "what the model says is no number, of ", file);
        told.rows[told.n].file = file;
        told.rows[told.n++].frame = frame + i;
    }
}

/* Judges these sequences, the frames of a file from `frame` on, and keeps what is told. */
static inline void say_of(cmha_model *model, const sequences *s, const char *file, size_t frame) {
    cmha_real *scores = (cmha_real *)take(times(s->n, told.classes), sizeof *scores);
    judge(model, s, NULL, scores);
    say_scores(scores, s->n, file, frame);
    free(scores);
}

/* Where it is needed a text in a CSV stands in quotation marks. */
static inline void print_cell(const char *text) {
    if (!text[strcspn(text, ",\"\r\n")]) {
        text_show(text, strlen(text), 1);
        return;
    }
    putchar('"');
    for (size_t n; *text; text += n) {
        n = strcspn(text, "\"");
        text_show(text, n, 1);
        if (text[n] == '"') printf("\"\"");
        n += text[n] == '"';
    }
    putchar('"');
}

/* A text in JSON: bytes that are no UTF-8 become U+FFFD. */
static inline void print_string(const char *text) {
    size_t left = strlen(text), n;
    uint32_t c;
    putchar('"');
    for (; left; text += n, left -= n) {
        n = text_decode(text, left, &c);
        if (!c) printf("\\ufffd");
        else if (text_steers(c)) printf("\\u%04x", (unsigned)c);
        else printf("%s%.*s", c == '"' || c == '\\' ? "\\" : "", (int)n, text);
    }
    putchar('"');
}

static inline size_t best_share(size_t row) {
    const double *share = told.shares + row * told.classes;
    size_t best = 0;
    for (size_t c = 1; c < told.classes; c++) best = share[c] > share[best] ? c : best;
    return best;
}

static inline void print_json(size_t row) {
    printf("{\"file\":");
    print_string(told.rows[row].file);
    printf(",\"frame\":%zu,\"label\":", told.rows[row].frame);
    print_string(told.names[best_share(row)]);
    printf(",\"probability\":{");
    for (size_t c = 0; c < told.classes; c++) {
        if (c) putchar(',');
        print_string(told.names[c]);
        printf(":%.6f", told.shares[row * told.classes + c]);
    }
    puts("}}");
}

static inline void print_names(void) {
    printf("file,frame,label");
    for (size_t c = 0; c < told.classes; c++) {
        putchar(',');
        print_cell(told.names[c]);
    }
    putchar('\n');
}

static inline void print_row_of(size_t row) {
    print_cell(told.rows[row].file);
    printf(",%zu,", told.rows[row].frame);
    print_cell(told.names[best_share(row)]);
    for (size_t c = 0; c < told.classes; c++) printf(",%.6f", told.shares[row * told.classes + c]);
    putchar('\n');
}

/* Prints a line for every frame: JSON, or CSV behind a line of names. */
static inline void print_said(int json) {
    if (!json) print_names();
    for (size_t row = 0; row < told.n; row++)
        if (json) print_json(row);
        else print_row_of(row);
}

/* ---- How well ---- */

/* The class that a file's name begins with, as in qpsk_3.cf32; the longest of those that fit. */
static inline size_t class_of_name(const char *path) {
    const char *base = path + text_folder(path);
    size_t best = told.classes, longest_name = 0;
    for (size_t c = 0; c < told.classes; c++) {
        size_t n = strlen(told.names[c]);
        if (n <= longest_name || strncmp(base, told.names[c], n) || !strchr("_.-", base[n])) continue;
        best = c;
        longest_name = n;
    }
    if (best == told.classes) complain(1, "its name begins with no class, as --labelled needs: ", path);
    return best;
}

/* The same of what was said of files whose names begin with their classes; not among the rows. */
static inline void print_labelled(void) {
    size_t C = told.classes, *counts = (size_t *)take(times(C, C), sizeof *counts);
    for (size_t row = 0; row < told.n; row++)
        counts[class_of_name(told.rows[row].file) * C + best_share(row)]++;
    print_report(stderr, told.names, C, counts);
    free(counts);
}

static inline void close_said(void) {
    for (size_t c = 0; c < told.classes; c++) free((void *)(uintptr_t)told.names[c]);
    free((void *)(uintptr_t)told.names);
    free(told.rows);
    free(told.shares);
    memset(&told, 0, sizeof told);
}

/* Prints what was said of all files and ends the program. asked: the options --model, --json, --labelled, in
   this order. */
static inline int end_predict(cmha_model *model, const setting *asked) {
    print_said(asked[1].value != NULL);
    if (asked[2].value) print_labelled();
    close_said();
    close_room();
    cmha_model_close(model);
    cmha_context_close(&ctx);
    return end_program(0);
}

/* Judges each of n files by `judge_file`, prints what was said when all are judged, and ends the program. */
static inline int predict_files(cmha_model *model, const char *const *files, size_t n,
                                void (*judge_file)(cmha_model *, const char *), const setting *asked) {
    for (size_t i = 0; i < n; i++) {
        if (asked[2].value) class_of_name(files[i]);
        judge_file(model, files[i]);
    }
    return end_predict(model, asked);
}

#endif
