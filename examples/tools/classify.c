/* Trains an encoder on labelled texts, or lets one label texts; the files are tab-separated:
       cc -O3 -march=native -fopenmp -I. examples/tools/classify.c -o build/classify -lopenblas -lm
       build/classify [OPTION...] --train FILE --dev FILE
       build/classify [OPTION...] --predict FILE --model CHECKPOINT        (--help lists everything) */
#define CMHA_IMPLEMENTATION
#include "cmha.h"

#define PROGRAM "classify"
#include "options.h"
#include "labelled.h"

#include <math.h>
#include <signal.h>
#include <time.h>

enum {
    TASK, TRAIN, DEV, PREDICT, MODEL, COLUMNS, TOKENIZER, VOCAB, PRESET, ATTENTION, METRIC, WEIGHTS, FROM,
    TEXT, MLM, EPOCHS, TAKE, SEED, THREADS, BATCH, LENGTH, LR, OUT, QUIET, HELP, FREEZE, RATE, SET, N_OPTIONS
};
static setting option[N_OPTIONS] = {
    {"--task", NULL,
     "sst2 | cola | mrpc | rte | qnli | stsb: columns and metric of that part of GLUE; else give --columns"},
    {"--train", NULL, "a file of labelled texts"},
    {"--dev", NULL, "another, on which every epoch is measured"},
    {"--predict", NULL,
     "a file (- = standard input) to label: prints label and probability, or the value, of every line"},
    {"--model", "classify.safetensors", "the checkpoint to label with; its CHECKPOINT.labels lies beside it"},
    {"--columns", NULL,
     "LABEL,TEXT[,TEXT] by name or number; with --predict TEXT[,TEXT]. A name makes the first line a header"},
    {"--tokenizer", NULL,
     "the texts' tokenizer, such as BERT's vocab.txt; else the tokens are bytes, or the model's own with "
     "--predict"},
    {"--vocab", NULL, "the same"},
    {"--preset", "encoder",
     "encoder | cope | mobiusbert | mobroformer | crat | ...: where the fields start, see cmha.h"},
    {"--attention", NULL, "a kind of the list below; else the preset's"},
    {"--metric", NULL,
     "accuracy | f1 (of the second class) | matthews | spearman | pearson; the last two make it a "
     "regression"},
    {"--class-weights", NULL, "balanced, or a weight for each class: 1,2.5"},
    {"--from", NULL,
     "CHECKPOINT: an encoder, such as convert's, whose weights and configuration are where training begins; "
     "its\n"
     "                     class head is new where it has none"},
    {"--text", NULL,
     "a text whose hidden tokens --mlm learns instead of those of the training texts; without --train this "
     "is all"},
    {"--mlm", "0", "steps of guessing hidden tokens of the training texts, before their labels are learnt"},
    {"--epochs", "3", "passes over the training rows"},
    {"--take", "0", "train on so many rows, chosen by the seed; 0 = all"},
    {"--seed", "1", "of the weights, the order of the rows and the dropout"},
    {"--threads", "0", "0 = every core"},
    {"--batch", NULL, "texts per step; else the preset's, as for the next two"},
    {"--length", NULL, "most tokens of a text, or of two together"},
    {"--lr", NULL, "peak learning rate"},
    {"--out", "classify.safetensors",
     "the best checkpoint by the metric; the names of the classes go to OUT.labels"},
    {"--quiet", NULL, "no progress, only the best value"},
    {"--help", NULL, "this page"},
    {"--freeze", NULL,
     "PATTERN: parameters that stay as they are while labels are learnt, as in 'blocks.0.*'; may be "
     "repeated"},
    {"--rate", NULL, "PATTERN=X: parameters that then learn X times as fast; may be repeated"},
    {"--set", NULL,
     "NAME=VALUE for any field of the model or the training (train_tiny --help lists them); may be "
     "repeated"}};
static cmha_model_config mc;
static cmha_trainer_config tc;
static codec words;
static text_labels labels;
static char columns[3][256];
static const char *class_names; /* for numbered classes, "zero,one" */
static int n_columns, metric;
static volatile sig_atomic_t stop; /* the signal that asked to stop */
static labelled_room room;
static struct { /* of a batch too */
    int32_t *targets;
    unsigned char *may_hide;
    cmha_real *weights; /* of the classes */
} more;

static void on_signal(int sig) {
    stop = sig;
    signal(sig, SIG_DFL); /* a second Ctrl-C does not wait */
}

/* ---- The command line ---- */

/* Most steps, epochs and rows: products of two are whole numbers of 64 bits. */
static size_t whole(int o) { return (size_t)whole_of(&option[o], o == EPOCHS, 1000000000); }

static void set_columns(const char *list, int skip) {
    if (!labelled_columns(list, skip, columns, &n_columns, failure)) complain(2, failure, "");
}

static void no_task(const char *name) {
    const char *names[sizeof labelled_tasks / sizeof *labelled_tasks];
    size_t n = 0;
    for (; n < sizeof names / sizeof *names; n++) names[n] = labelled_tasks[n].name;
    no_such("there is no task", name, names, n);
}

/* Takes the configuration of an encoder over. */
static void begin_from(const char *path) {
    cmha_model model; /* opened to be checked, and for what is said of files of others */
    if (option[ATTENTION].value || strcmp(option[PRESET].value, "encoder"))
        complain(2, "--from has its own fields; take no --attention or --preset beside it", "");
    open_checkpoint(&model, path);
    mc = model.config;
    cmha_model_close(&model);
    if (mc.causal) complain(1, path, ": no encoder (causal = 1)");
}

static void configure(int argc, char **argv) {
    const settable both[2] = {{cmha_model_table(), &mc}, {cmha_trainer_table(), &tc}};
    int n_set = 0, o;
    const char *rest = read_options(option, N_OPTIONS, 1u << QUIET | 1u << HELP, argc, argv, &n_set);
    if (rest) complain(2, "see --help; what is ", rest);
    for (o = MLM; o <= TAKE; o++) whole(o);
    open_context(&option[SEED], &option[THREADS], option[HELP].value != NULL);
    set_preset(option[PRESET].value, &mc, &tc);
    if (option[ATTENTION].value) set_kind(option[ATTENTION].value, &mc);
    for (o = BATCH; o <= LR; o++)
        if (option[o].value) set_field(both, 2, option[o].name + 2, option[o].value);
    mc.causal = 0, mc.token_types = 2;
    if (option[FROM].value) begin_from(option[FROM].value);
    for (int i = 1; i <= n_set; i++) set_field(both, 2, argv[i], cut_value(argv[i]));
    if (!option[FROM].value) mc.max_positions = tc.length;
    else if (mc.position == CMHA_POSITION_LEARNED && tc.length > mc.max_positions)
        complain(2, "--length is beyond the positions of ", option[FROM].value);
    if (option[TASK].value) {
        const labelled_task *task = labelled_task_named(option[TASK].value);
        if (!task) no_task(option[TASK].value);
        else set_columns(task->columns, option[PREDICT].value != NULL), class_names = task->classes;
        if (task && !option[METRIC].value) option[METRIC].value = task->metric;
    }
    if (option[COLUMNS].value) set_columns(option[COLUMNS].value, 0);
    if (!option[METRIC].value) option[METRIC].value = "accuracy";
    metric = labelled_metric_named(option[METRIC].value);
    if (metric == LABELLED_METRICS) no_such("there is no metric", option[METRIC].value, labelled_metrics,
                                            LABELLED_METRICS);
}

static int help(void) {
    const char *kind;
    puts("classify [OPTION...] --train FILE --dev FILE: trains an encoder on labelled texts\n"
         "classify [OPTION...] --mlm N --text FILE: trains an encoder on hidden tokens of a text alone\n"
         "classify [OPTION...] --predict FILE --model CHECKPOINT: labels texts\n");
    print_options(option, N_OPTIONS, 16, 21);
    printf("\nKinds of attention:");
    for (size_t i = 0; (kind = cmha_kind_name(i, NULL)) != NULL; i++) printf(" %s", kind);
    puts("");
    return end_help("build/classify --task sst2 --train train.tsv --dev dev.tsv --out sst2.safetensors");
}

/* ---- Rows and batches ---- */

/* What turns texts into tokens: the tokenizer of the command line, that of a model, or bytes. */
static void open_words(const char *model, const char *identity) {
    const char *given = option[TOKENIZER].value ? option[TOKENIZER].value : option[VOCAB].value;
    must(codec_open(&words, given, model, identity, 0, failure));
    codec_add_specials(&words);
}

static void read_rows(labelled *r, const char *path, int has_label) {
    const char *const names[3] = {columns[0], columns[1], columns[2]};
    memset(r, 0, sizeof *r);
    must(text_table_load(&r->table, path, (size_t)1 << 31, names, (size_t)n_columns, failure));
    if (r->table.skipped) {
        int rest = has_label && r->table.rows;
        snprintf(failure, sizeof failure, "%.200s has %zu lines without all columns, the first is line %zu",
                 path, r->table.skipped, r->table.first_skipped);
        complain(!rest, rest ? "warning, left out: " : "", failure);
    }
    if (has_label && !r->table.rows) complain(1, "there are no rows in ", path);
    must(labelled_encode(r, &words, has_label, tc.length, tc.batch, ctx.config.seed, failure));
    if (!has_label) return;
    int classes = metric < LABELLED_SPEARMAN;
    if (classes && !labels.n) must(text_labels_collect(&labels, &r->table, 0, 1000, failure));
    must(text_values(&r->table, 0, classes ? &labels : NULL, path, r->label, failure));
}

/* Cuts a text into rows without labels, [CLS] .. [SEP], of as many tokens as there may be. */
static void read_text(labelled *r, const char *path) {
    codec_ids all = {NULL, 0, 0};
    size_t bytes, room_of = tc.length - 2, at = 0;
    char *text;
    memset(r, 0, sizeof *r);
    if (tc.length < 4) complain(2, "--length is 4 at least, for [CLS] and [SEP] too", "");
    must(text_read(path, (size_t)1 << 31, &text, &bytes, failure));
    must(codec_encode(&words, text, bytes, 0, &all, failure));
    if (!all.n) complain(1, "there are no tokens in ", path);
    size_t n = r->n = r->examples.n = (all.n - 1) / room_of + 1;
    r->examples.ids = take(all.n + times(n, 2), sizeof *r->examples.ids);
    r->examples.start = take(n + 1, sizeof *r->examples.start);
    r->examples.first = take(n, sizeof *r->examples.first);
    r->order = take(n, sizeof *r->order), r->turn = take(n, sizeof *r->turn);
    r->label = take(n, sizeof *r->label);
    for (size_t i = 0; i < n; i++) {
        size_t taken = i * room_of, some = all.n - taken < room_of ? all.n - taken : room_of;
        r->examples.start[i] = at, r->examples.first[i] = some + 2, r->order[i] = i;
        r->examples.ids[at++] = words.cls;
        memcpy(r->examples.ids + at, all.at + taken, some * sizeof *all.at);
        at += some, r->examples.ids[at++] = words.sep;
    }
    r->examples.start[n] = at, r->batches = n / tc.batch + (n % tc.batch != 0);
    free(text), codec_ids_free(&all);
}

static void make_room(void) {
    must(labelled_room_init(&room, tc.batch, tc.length, mc.classes + 1, words.pad, failure));
    more.targets = take(times(tc.batch, tc.length), sizeof *more.targets);
    more.may_hide = take(times(tc.batch, tc.length), 1);
}

static double measure(cmha_model *model, const labelled *r) {
    int32_t *choice = take(r->n, sizeof *choice);
    double *value = take(r->n, sizeof *value);
    check(labelled_judge(model, r, &room, choice, value));
    double result = labelled_metric(metric, r, mc.classes, choice, value);
    free(choice), free(value);
    return result;
}

/* ---- Training ---- */

/* Hides tokens of the batch, [CLS] and [SEP] apart: the objective of --mlm. */
static void hide(cmha_batch *b, size_t step) {
    size_t n = b->batch * b->length, i;
    const cmha_mask_args mask = {n, words.size, more.may_hide, words.mask, tc.mask_rate};
    cmha_rng rng = cmha_rng_make(ctx.config.seed, step);
    for (i = 0; i < n; i++)
        more.may_hide[i] = room.mask[i] && room.ids[i] != words.cls && room.ids[i] != words.sep;
    cmha_mask_tokens(&mask, room.ids, more.targets, &rng);
    b->targets = more.targets;
}

static void save(cmha_model *model) {
    char path[4096];
    check(cmha_model_save(model, option[OUT].value));
    must(codec_save(&words, option[OUT].value, failure));
    snprintf(path, sizeof path, "%s.labels", option[OUT].value);
    must(text_labels_save(&labels, path, failure));
}

/* One step on batch number `which` of the order; adds its loss. */
static void step_on(cmha_trainer *trainer, const labelled *train, size_t which, int hidden, double *sum) {
    static int bad; /* steps in a row that came to nothing */
    double loss = 0;
    cmha_batch b = labelled_batch(train, which, &room);
    if (!mc.token_types) b.types = NULL;
    if (hidden) hide(&b, trainer->step);
    else b.labels = room.labels, b.class_weights = more.weights;
    cmha_status status = cmha_trainer_fit(trainer, &b, &loss);
    bad = status == CMHA_ERR_NOT_FINITE ? bad + 1 : 0;
    if (bad && bad < 10) complain(0, "step skipped: ", cmha_error(&ctx));
    else check(status), *sum += loss;
}

/* So many steps. With `dev` the labels are learnt, the best epoch is saved and its value
   returned; without, hidden tokens are. */
static double fit(cmha_model *model, size_t steps, labelled *train, const labelled *dev) {
    cmha_trainer t;
    const char *what = dev ? "labels" : "hidden tokens";
    int terminal = isatty(1), quiet = option[QUIET].value != NULL;
    double sum = 0, best = -2, value;
    time_t start = time(NULL);
    tc.steps = steps;
    check(cmha_trainer_init(&t, model, &tc));
    while (t.step < steps && !stop) {
        size_t at = t.step % train->batches, epoch = t.step / train->batches + 1;
        uint64_t seed = (ctx.config.seed << 32) + epoch;
        if (!at) text_arrange(&train->examples, train->order, train->n, tc.batch, seed, train->turn), sum = 0;
        step_on(&t, train, train->turn[at], !dev, &sum);
        if (!quiet && (terminal || at + 1 == train->batches || t.step % 50 == 0 || t.step == steps)) {
            int eta = (int)(difftime(time(NULL), start) / (double)t.step * (double)(steps - t.step));
            printf("%s%s: step %zu/%zu  mean loss %.4f  ETA %d:%02d:%02d  %s", terminal ? "\r" : "", what,
                   t.step, steps, sum / (double)(at + 1), eta / 3600, eta / 60 % 60, eta % 60,
                   terminal ? "" : "\n");
            fflush(stdout), line_open = terminal;
        }
        if (!dev || at + 1 < train->batches) continue;
        value = measure(model, dev);
        if (!quiet)
            printf("%sepoch %zu: %s %.4f%s\n", line_open ? "\n" : "", epoch, labelled_metrics[metric], value,
                   value > best ? ", saved" : "");
        line_open = 0, fflush(stdout);
        if (value > best) best = value, save(model);
    }
    if (line_open) putchar('\n'), line_open = 0;
    if (dev && best < -1) save(model); /* stopped within the first epoch, or nothing but NaN */
    cmha_trainer_close(&t);
    return best;
}

/* Opens the model that is trained, whose vocabulary is the tokenizer's or that of --from. */
static void open_model(cmha_model *model) {
    const char *from = option[FROM].value;
    if (!from) mc.vocabulary = words.size;
    else if (words.size > mc.vocabulary)
        complain(1, "see --tokenizer: there are more tokens than in the vocabulary of ", from);
    memcpy(mc.tokenizer, words.identity, sizeof mc.tokenizer);
    check(cmha_model_init(model, &ctx, &mc));
    if (from) check(cmha_model_read(model, from, 2, NULL));
    signal(SIGINT, on_signal), signal(SIGTERM, on_signal);
}

/* Hidden tokens of --text. */
static void fit_text(cmha_model *model) {
    labelled rows;
    read_text(&rows, option[TEXT].value);
    if (!option[QUIET].value) printf("%zu rows of hidden tokens\n", rows.n);
    fit(model, whole(MLM), &rows, NULL);
    labelled_close(&rows);
}

/* Training on a text alone. */
static int train_hidden(void) {
    cmha_model model;
    if (!whole(MLM)) complain(2, "see --help; --text needs --mlm, or --train", "");
    mc.classes = 0;
    make_room(), open_model(&model);
    if (!option[QUIET].value) printf("%zu parameters; %d threads\n", model.parameters.size, ctx.threads);
    fit_text(&model);
    check(cmha_model_save(&model, option[OUT].value));
    must(codec_save(&words, option[OUT].value, failure));
    if (stop) complain(128 + stop, "stopped; the model so far is in ", option[OUT].value);
    cmha_model_close(&model);
    return 0;
}

static int train_model(void) {
    labelled train, dev;
    cmha_model model;
    text_slice names[2];
    if (!option[TRAIN].value || !option[DEV].value || n_columns < 2)
        complain(2, "see --help; training needs --train, --dev, and --task or --columns LABEL,TEXT", "");
    read_rows(&train, option[TRAIN].value, 1), read_rows(&dev, option[DEV].value, 1);
    if (metric < LABELLED_SPEARMAN && labels.n < 2)
        complain(1, "there is only one label in ", option[TRAIN].value);
    if (metric == LABELLED_F1 && labels.n != 2) complain(2, "f1 is for two classes", "");
    if (class_names && labels.n == 2) {
        names[0].at = class_names, names[0].n = strcspn(class_names, ","),
        names[1] = text_of(class_names + names[0].n + 1);
        memcpy(labels.names, names, sizeof names);
    }
    mc.classes = metric < LABELLED_SPEARMAN ? labels.n : 1;
    text_shuffle(train.order, train.n, ctx.config.seed);
    if (whole(TAKE) && whole(TAKE) < train.n) train.n = whole(TAKE);
    train.batches = train.n / tc.batch + (train.n % tc.batch != 0);
    make_room();
    if (option[WEIGHTS].value && mc.classes > 1) {
        double *weights = take(mc.classes, sizeof *weights);
        must(text_weights(option[WEIGHTS].value, train.label, train.order, train.n, mc.classes, weights,
                          failure));
        more.weights = take(mc.classes, sizeof *more.weights);
        for (size_t c = 0; c < mc.classes; c++) more.weights[c] = (cmha_real)weights[c];
        free(weights);
    }
    open_model(&model);
    if (!option[QUIET].value)
        printf("%zu rows to learn, %zu to measure; %zu parameters; %d threads\n", train.n, dev.n,
               model.parameters.size, ctx.threads);
    if (whole(MLM) && option[TEXT].value) fit_text(&model);
    else if (whole(MLM)) fit(&model, whole(MLM), &train, NULL);
    tune(&model, tc.optimiser);
    double best = fit(&model, times(train.batches, whole(EPOCHS)), &train, &dev);
    if (stop) complain(128 + stop, "stopped; the best model so far is in ", option[OUT].value);
    printf("best %s %.4f, in %s\n", option[METRIC].value, best, option[OUT].value);
    labelled_close(&train), labelled_close(&dev), cmha_model_close(&model);
    return 0;
}

/* ---- Prediction ---- */

static int predict(void) {
    labelled r;
    cmha_model model;
    char path[4096];
    open_checkpoint(&model, option[MODEL].value);
    mc = model.config, tc.length = mc.max_positions < 4096 ? mc.max_positions : 4096;
    open_words(option[MODEL].value, mc.tokenizer);
    if (mc.vocabulary != words.size || !mc.classes)
        complain(1, mc.classes ? "see --tokenizer: this is not that of " : "there are no classes in ",
                 option[MODEL].value);
    snprintf(path, sizeof path, "%s.labels", option[MODEL].value);
    must(mc.classes == 1 || text_labels_load(&labels, path, failure));
    if (mc.classes > 1 && labels.n != mc.classes) complain(1, "not the names of the model's classes: ", path);
    if (!n_columns) set_columns("1", 0);
    read_rows(&r, option[PREDICT].value, 0);
    make_room();
    int32_t *choice = take(r.n, sizeof *choice);
    double *value = take(r.n, sizeof *value);
    check(labelled_judge(&model, &r, &room, choice, value));
    for (size_t i = 0; i < r.n; i++) {
        text_slice name = mc.classes > 1 ? labels.names[choice[i]] : text_of("");
        text_show(name.at, name.n, 1);
        printf("%s%.4f\n", mc.classes > 1 ? "\t" : "", value[i]);
    }
    free(choice), free(value), labelled_close(&r), cmha_model_close(&model);
    return 0;
}

int main(int argc, char **argv) {
    start_program(argv);
    configure(argc, argv);
    if (option[HELP].value) return help();
    if (!option[PREDICT].value) open_words(option[FROM].value, option[FROM].value ? mc.tokenizer : "");
    int only_text = option[TEXT].value && !option[TRAIN].value;
    int status = option[PREDICT].value ? predict() : only_text ? train_hidden() : train_model();
    labelled_room_close(&room), free(more.targets), free(more.may_hide), free(more.weights);
    text_labels_close(&labels), codec_close(&words), cmha_context_close(&ctx);
    return end_program(status);
}
