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
    TEXT, MLM, EPOCHS, PATIENCE, TAKE, SEED, THREADS, BATCH, LENGTH, LR, OUT, RESUME, QUIET, HELP, FREEZE,
    RATE, SET, N_OPTIONS
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
    {"--class-weights", NULL,
     "balanced, or a weight for each class, in the order of their names, numbers by value: 1,2.5"},
    {"--from", NULL,
     "CHECKPOINT: an encoder, such as convert's, whose weights and configuration are where training begins; "
     "its\n"
     "                     class head is new where it has none of as many classes"},
    {"--text", NULL,
     "a text whose hidden tokens --mlm learns instead of those of the training texts; without --train this "
     "is all"},
    {"--mlm", "0", "steps of guessing hidden tokens of the training texts, before their labels are learnt"},
    {"--epochs", "3", "passes over the training rows"},
    {"--patience", "0", "stop after so many epochs without a better one; 0: never"},
    {"--take", "0", "train on so many rows, chosen by the seed; 0 = all"},
    {"--seed", "1", "of the weights, the order of the rows and the dropout"},
    {"--threads", "0", "0 = every core"},
    {"--batch", NULL, "texts per step; else the preset's, as for the next two"},
    {"--length", NULL, "most tokens of a text, or of two together"},
    {"--lr", NULL, "peak learning rate"},
    {"--out", "classify.safetensors",
     "the best checkpoint by the metric; the names of the classes go to OUT.labels, the state after each "
     "epoch\n"
     "                     to OUT.last and OUT.last.run"},
    {"--resume", NULL, "continue exactly where OUT.last stopped; with the same options and files again"},
    {"--quiet", NULL, "no progress, only what classes are taken for and the best value"},
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
static size_t head_of_from;     /* classes of --from */
static int n_columns, metric;
static volatile sig_atomic_t stop; /* the signal that asked to stop */
static labelled_room room;
static struct { /* of a batch too */
    int32_t *targets;
    unsigned char *may_hide;
    cmha_real *weights; /* of the classes */
} more;

enum { MOST_SHOWN = 20 }; /* classes, of which there is a table of what is taken for what */
#define MOST_TEXT ((size_t)1 << 31) /* bytes of --text */
typedef struct progress { /* of the training on labels */
    size_t done, best; /* epochs; which was the best, 0: none */
    double value;      /* of the best */
} progress;
/* What a run has in common with the one that it continues, beside the configurations: numbers, or what stands
   for all that was read. */
enum { CHOSEN_SEED, CHOSEN_METRIC, CHOSEN_MLM, CHOSEN_WEIGHTS, TUNED, TRAIN_ROWS, DEV_ROWS, HIDDEN_TEXT,
       FACTS };
static struct { const char *name; uint64_t value; } fact[FACTS] = {
    {"--seed", 0}, {"--metric", 0}, {"--mlm", 0}, {"--class-weights", 0}, {"--freeze or --rate", 0},
    {"--train, --columns or --take", 0}, {"--dev", 0}, {"--text", 0}};
static char last[4096], last_run[4096]; /* where the state after an epoch is kept */

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

static void refuse_numbers(const char *path) {
    if (!mc.tokens || mc.features) complain(1, path, ": a model of numbers, which reads no text");
}

/* Takes the configuration of an encoder over. */
static void begin_from(const char *path) {
    cmha_model model; /* opened to be checked, and for what is said of files of others */
    if (option[ATTENTION].value || strcmp(option[PRESET].value, "encoder"))
        complain(2, "--from has its own fields; take no --attention or --preset beside it", "");
    open_checkpoint(&model, path);
    mc = model.config, head_of_from = mc.classes;
    cmha_model_close(&model);
    refuse_numbers(path);
    if (mc.causal) complain(1, path, ": no encoder (causal = 1)");
}

/* Where the state of the training on labels is, which is all that --resume continues. */
static void settle_state(void) {
    if (snprintf(last_run, sizeof last_run, "%s.last.run", option[OUT].value) >= (int)sizeof last_run)
        complain(2, "too long a path: ", option[OUT].value);
    snprintf(last, sizeof last, "%s.last", option[OUT].value);
    if (option[RESUME].value && (option[PREDICT].value || !option[TRAIN].value))
        complain(2, "only training on labels, with --train, knows ", "--resume");
}

/* Ends the program where an option is given that what it is called for does not read. */
static void refuse_unread(void) {
    const uint64_t on_labels = 1u << DEV | 1u << METRIC | 1u << WEIGHTS | 1u << EPOCHS | 1u << PATIENCE |
                               1u << TAKE | 1u << FREEZE | 1u << RATE;
    const uint64_t training = on_labels | 1u << TRAIN | 1u << PRESET | 1u << ATTENTION | 1u << FROM |
                              1u << TEXT | 1u << MLM | 1u << SEED | 1u << LR | 1u << OUT | 1u << SET;
    if (option[TOKENIZER].value) refuse_given(option, 1u << VOCAB, " is --tokenizer, and one is enough");
    if (option[PREDICT].value) {
        refuse_given(option, training, " is for a training, not for --predict");
        return;
    }
    if (options_given >> MODEL & 1) complain(2, "only for --predict is ", option[MODEL].name);
    if (option[TEXT].value && !option[TRAIN].value)
        refuse_given(option, on_labels | 1u << TASK | 1u << COLUMNS, " is for labels, which need --train");
    if (option[TRAIN].value && option[TEXT].value && !strcmp(option[TEXT].value, "-"))
        complain(2, "--text beside --train is read twice: it cannot be the standard input", "");
    if (option[TRAIN].value && !whole(MLM))
        refuse_given(option, 1u << TEXT, " beside --train is what the steps of --mlm read");
}

/* Ends the program where --set names a field that follows from the data and the options. */
static void refuse_settled(char *const *settings, int n_set) {
    static const own_field own[] = {{"steps", "--epochs and --mlm decide it"},
                                    {"classes", "the labels decide it"},
                                    {"tokenizer", "--tokenizer decides it"},
                                    {"mask_token", "the tokenizer decides it"},
                                    {"eval_every", "each epoch is measured"},
                                    {"eval_tokens", "all of --dev is measured"},
                                    {"held_out", "--dev is what is held out"},
                                    {"vocabulary", "the tokenizer decides it"},
                                    {"max_positions", "--length decides it"}};
    const int all = (int)(sizeof own / sizeof *own);
    refuse_own(own, option[FROM].value ? all - 2 : all, settings, n_set); /* --from keeps its last two */
}

static void configure(int argc, char **argv) {
    const settable both[2] = {{cmha_model_table(), &mc}, {cmha_trainer_table(), &tc}};
    int n_set = 0, o;
    const uint32_t flags = 1u << RESUME | 1u << QUIET | 1u << HELP;
    const char *rest = read_options(option, N_OPTIONS, flags, argc, argv, &n_set);
    if (rest) complain(2, "see --help; what is ", rest);
    settle_state();
    refuse_unread();
    refuse_settled(argv + 1, n_set);
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
    if (option[PREDICT].value && n_columns > 2)
        complain(2, "--columns are TEXT or TEXT,TEXT with --predict, not ", option[COLUMNS].value);
    if (!option[METRIC].value) option[METRIC].value = "accuracy";
    metric = labelled_metric_named(option[METRIC].value);
    if (metric == LABELLED_METRICS) no_such("there is no metric", option[METRIC].value, labelled_metrics,
                                            LABELLED_METRICS);
    if (option[WEIGHTS].value && metric >= LABELLED_SPEARMAN)
        complain(2, "--class-weights is for classes, not for --metric ", option[METRIC].value);
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
    must((!model || codec_may_be(given, model, &mc, failure)) &&
         codec_open(&words, given, model, identity, 0, failure));
    codec_add_specials(&words);
}

static void read_rows(labelled *r, const char *path, int has_label) {
    const char *const names[3] = {columns[0], columns[1], columns[2]};
    memset(r, 0, sizeof *r);
    must(text_table_load(&r->table, path, (size_t)1 << 31, names, (size_t)n_columns, failure));
    if (!has_label && r->table.empty) { /* what is labelled has an answer for each line */
        snprintf(failure, sizeof failure, "%.200s has %zu empty lines, without all columns, the first is "
                 "line %zu", path, r->table.empty, r->table.first_empty);
        complain(1, failure, "");
    }
    if (text_table_left(&r->table, path, failure)) {
        int rest = has_label && r->table.rows;
        complain(!rest, rest ? "warning, left out: " : "", failure);
    }
    if (has_label && !r->table.rows) complain(1, "there are no rows in ", path);
    must(labelled_encode(r, &words, has_label, tc.length, tc.batch, ctx.config.seed, failure));
    snprintf(failure, sizeof failure, "%zu of %zu rows have more than %zu tokens and are cut (--length): ",
             r->examples.cut, r->n, tc.length);
    if (r->examples.cut) complain(0, failure, path);
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
    must(text_read(path, MOST_TEXT, &text, &bytes, failure));
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

/* How good the model is; counts [classes, classes] or NULL: how often a class (row) was called another. */
static double measure(cmha_model *model, const labelled *r, size_t *counts) {
    int32_t *choice = take(r->n, sizeof *choice);
    double *value = take(r->n, sizeof *value);
    check(labelled_judge(model, r, &room, choice, value));
    double result = labelled_metric(metric, r, mc.classes, choice, value);
    for (size_t i = 0; counts && i < r->n; i++)
        counts[(size_t)r->label[i] * mc.classes + (size_t)choice[i]]++;
    free(choice), free(value);
    return result;
}

/* ---- The state after an epoch ---- */

static uint64_t fingerprint_of_rows(const labelled *r) {
    const text_examples *e = &r->examples;
    uint64_t hash = fingerprint(1, &r->n, sizeof r->n);
    for (size_t i = 0; i < r->n; i++) {
        size_t row = r->order[i], begin = e->start[row], tokens = e->start[row + 1] - begin;
        hash = fingerprint(hash, &r->label[row], sizeof r->label[row]);
        hash = fingerprint(hash, &e->first[row], sizeof e->first[row]);
        hash = fingerprint(hash, &tokens, sizeof tokens);
        hash = fingerprint(hash, e->ids + begin, tokens * sizeof *e->ids);
    }
    return hash;
}

/* Finds the facts of this run; before `tune`, which cuts the patterns. */
static void find_facts(const labelled *train, const labelled *dev) {
    uint64_t *weights = &fact[CHOSEN_WEIGHTS].value, *patterns = &fact[TUNED].value;
    fact[CHOSEN_SEED].value = ctx.config.seed;
    fact[CHOSEN_METRIC].value = (uint64_t)metric;
    fact[CHOSEN_MLM].value = whole(MLM);
    if (more.weights) *weights = fingerprint(1, more.weights, mc.classes * sizeof *more.weights);
    for (int i = 0; i < n_tuned; i++) {
        *patterns = fingerprint(*patterns, &tuned[i].option, 1);
        *patterns = fingerprint(*patterns, tuned[i].pattern, strlen(tuned[i].pattern) + 1);
    }
    fact[DEV_ROWS].value = fingerprint_of_rows(dev);
    if (whole(MLM) && option[TEXT].value) {
        char *text;
        size_t bytes;
        must(text_read(option[TEXT].value, MOST_TEXT, &text, &bytes, failure));
        fact[HIDDEN_TEXT].value = fingerprint(1, text, bytes);
        free(text);
    }
    uint64_t hash = fingerprint_of_rows(train);
    for (size_t i = 0; i < labels.n; i++) {
        hash = fingerprint(hash, &labels.names[i].n, sizeof labels.names[i].n);
        hash = fingerprint(hash, labels.names[i].at, labels.names[i].n);
    }
    fact[TRAIN_ROWS].value = hash;
}

/* Keeps the state after an epoch: what the trainer does not know first, of the epoch before too, so that
   either state finds its own if the program ends between the two. */
static void keep(cmha_trainer *trainer, const progress *before, const progress *now) {
    const progress *both[2] = {before, now};
    const char *pairs[2 * (FACTS + 2)];
    char value[FACTS + 2][64], key[2][32];
    for (size_t i = 0; i < FACTS + 2; i++) {
        const progress *p = both[i < FACTS ? 0 : i - FACTS];
        pairs[2 * i] = i < FACTS ? fact[i].name : key[i - FACTS];
        pairs[2 * i + 1] = value[i];
        if (i < FACTS) snprintf(value[i], sizeof *value, "%llu", (unsigned long long)fact[i].value);
        else snprintf(value[i], sizeof *value, "%zu %.17g", p->best, p->value);
        if (i >= FACTS) snprintf(key[i - FACTS], sizeof *key, "epoch.%zu", p->done);
    }
    check(cmha_archive_write(&ctx, last_run, NULL, 0, pairs, FACTS + 2));
    check(cmha_trainer_save(trainer, last));
}

/* What the file beside the state says of it: is it of this run, and how good were its epochs? */
static progress read_run(size_t done) {
    progress p = {done, 0, 0};
    cmha_archive a;
    char key[32], value[32], line[128], *end = NULL;
    check(cmha_archive_open(&a, &ctx, last_run));
    for (size_t i = 0; i < FACTS; i++) {
        const char *theirs = cmha_archive_metadata(&a, fact[i].name);
        snprintf(value, sizeof value, "%llu", (unsigned long long)fact[i].value);
        snprintf(line, sizeof line, "another %s than that of ", fact[i].name);
        if (!theirs || strcmp(theirs, value)) complain(1, line, last);
    }
    snprintf(key, sizeof key, "epoch.%zu", done);
    const char *at = cmha_archive_metadata(&a, key);
    if (at) p.best = (size_t)strtoull(at, &end, 10), p.value = strtod(end, &end);
    if (!at || *end || p.best > done) complain(1, "not what lies beside this state: ", last_run);
    cmha_archive_close(&a);
    return p;
}

/* Goes on after the epoch whose state is kept. */
static progress go_on(cmha_trainer *trainer, size_t batches) {
    cmha_archive best;
    check(cmha_trainer_read(trainer, last));
    check_training(&trainer->config, last);
    if (!trainer->step || trainer->step % batches) complain(1, "not the state after an epoch: ", last);
    progress p = read_run(trainer->step / batches);
    if (p.best) { /* the best epoch is read at the end: it has to be there */
        check(cmha_archive_open(&best, &ctx, option[OUT].value));
        cmha_archive_close(&best);
    }
    if (!option[QUIET].value) printf("epoch %zu was the last, as %s says\n", p.done, last);
    return p;
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

/* One step on batch number `which` of the order; adds its loss, and 1 to the steps that had one. */
static void step_on(cmha_trainer *trainer, const labelled *train, size_t which, int hidden, double sum[2]) {
    static int bad; /* steps in a row that came to nothing */
    double loss = 0;
    cmha_batch b = labelled_batch(train, which, &room);
    if (!mc.token_types) b.types = NULL;
    if (hidden) hide(&b, trainer->step);
    else b.labels = room.labels, b.class_weights = more.weights;
    cmha_status status = cmha_trainer_step_batch(trainer, &b, &loss);
    bad = status == CMHA_ERR_NOT_FINITE ? bad + 1 : 0;
    if (bad && bad < 10) complain(0, "step skipped: ", cmha_error(&ctx));
    else check(status), sum[0] += loss, sum[1]++;
}

/* The order of an epoch, which the rows, the seed and its number alone decide: a resumed run has it too. */
static void arrange(labelled *train, const size_t *rows, size_t epoch) {
    memcpy(train->order, rows, train->n * sizeof *rows);
    text_arrange(&train->examples, train->order, train->n, tc.batch, (ctx.config.seed << 32) + epoch,
                 train->turn);
}

/* Says how far the training is; it began behind step number `first`. sum: of losses, and of how many. */
static void tell_step(const cmha_trainer *t, const char *what, size_t first, size_t batches,
                      const double sum[2], time_t start) {
    size_t steps = tc.steps, at = (t->step - 1) % batches + 1;
    int terminal = isatty(1);
    if (option[QUIET].value) return;
    if (!(terminal || at == batches || t->step % 50 == 0 || t->step == steps)) return;
    double each = difftime(time(NULL), start) / (double)(t->step - first);
    int eta = (int)fmin(each * (double)(steps - t->step), 1e9);
    printf("%s%s: step %zu/%zu  mean loss %.4f  ETA %d:%02d:%02d  %s", terminal ? "\r" : "", what, t->step,
           steps, sum[0] / sum[1], eta / 3600, eta / 60 % 60, eta % 60, terminal ? "" : "\n");
    fflush(stdout), line_open = terminal;
}

/* Measures an epoch that is over, saves the model if it is the best, and keeps the state. */
static void end_epoch(cmha_trainer *trainer, const labelled *dev, progress *now) {
    const progress before = *now;
    double value = measure(trainer->model, dev, NULL);
    int better = value > before.value;
    now->done++;
    if (!option[QUIET].value)
        printf("%sepoch %zu: %s %.4f%s\n", line_open ? "\n" : "", now->done, labelled_metrics[metric], value,
               better ? ", saved" : "");
    line_open = 0, fflush(stdout);
    if (!before.done) remove(last); /* another run's, whose best epoch is now replaced */
    if (better) {
        now->best = now->done;
        now->value = value;
        save(trainer->model);
    }
    keep(trainer, &before, now);
}

/* So many steps. With `dev` the labels are learnt and the best epoch is saved; without, hidden tokens are. */
static progress fit(cmha_model *model, size_t steps, labelled *train, const labelled *dev) {
    cmha_trainer t;
    progress now = {0, 0, -2};
    size_t patience = whole(PATIENCE), first, *rows = take(train->n, sizeof *rows);
    double sum[2] = {0, 0};
    time_t start = time(NULL);
    tc.steps = steps;
    memcpy(rows, train->order, train->n * sizeof *rows);
    check(cmha_trainer_init(&t, model, &tc));
    if (dev && option[RESUME].value) now = go_on(&t, train->batches);
    first = t.step;
    while (t.step < steps && !stop && (!patience || now.done - now.best < patience)) {
        size_t at = t.step % train->batches;
        if (!at) arrange(train, rows, t.step / train->batches + 1), sum[0] = sum[1] = 0;
        step_on(&t, train, train->turn[at], !dev, sum);
        const char *what = dev ? "labels" : "hidden tokens";
        if (sum[1] > 0) tell_step(&t, what, first, train->batches, sum, start);
        if (dev && t.step % train->batches == 0) end_epoch(&t, dev, &now);
    }
    if (line_open) putchar('\n'), line_open = 0;
    if (dev && !now.best) { /* stopped within the first epoch, or nothing but NaN */
        if (!now.done) remove(last);
        save(model);
    }
    memcpy(train->order, rows, train->n * sizeof *rows), free(rows);
    cmha_trainer_close(&t);
    return now;
}

/* The first characters of a class's name; those that steer a terminal become question marks. */
static const char *plain_name(text_slice name, char to[48]) {
    size_t at = 0, out = 0, n;
    for (uint32_t c; at < name.n && out + 4 < 48; at += n) {
        n = text_decode(name.at + at, name.n - at, &c);
        if (text_steers(c)) to[out++] = '?';
        else {
            memcpy(to + out, name.at + at, n);
            out += n;
        }
    }
    to[out] = 0;
    return to;
}

/* Says which epoch is kept and, of classes, which it takes for which. */
static void report(cmha_model *model, const labelled *dev, const progress *p) {
    char name[MOST_SHOWN][48];
    const char *names[MOST_SHOWN];
    if (p->best && !option[QUIET].value)
        printf("epoch %zu of %zu is kept: %s %.4f\n", p->best, p->done, labelled_metrics[metric], p->value);
    if (metric >= LABELLED_SPEARMAN) return;
    if (mc.classes > MOST_SHOWN) {
        printf("%zu classes: no table of what they are taken for, as of up to %d\n", mc.classes, MOST_SHOWN);
        return;
    }
    size_t *counts = take(times(mc.classes, mc.classes), sizeof *counts);
    for (size_t i = 0; i < mc.classes; i++) names[i] = plain_name(labels.names[i], name[i]);
    check(cmha_model_read(model, option[OUT].value, 2, NULL));
    measure(model, dev, counts);
    puts("labels of --dev (lines) and what was said");
    print_report(stdout, names, mc.classes, counts);
    free(counts);
}

/* Reads the weights of --from. A head of another number of classes stays behind. */
static void read_from(cmha_model *model, const char *from) {
    const cmha_context_config usual = ctx.config;
    char line[100];
    int other = head_of_from && head_of_from != mc.classes;
    snprintf(line, sizeof line, "the head of %zu classes is left out%s: ", head_of_from,
             mc.classes ? ", and begins anew" : "");
    if (other) complain(0, line, from), ctx.config.log = NULL; /* which would say it again */
    check(cmha_model_read(model, from, other ? 0 : 2, NULL));
    ctx.config.log = usual.log;
}

/* Opens the model that is trained, whose vocabulary is the tokenizer's or that of --from. */
static void open_model(cmha_model *model) {
    const char *from = option[FROM].value;
    if (!from) mc.vocabulary = words.size;
    else if (words.size > mc.vocabulary)
        complain(1, "see --tokenizer: there are more tokens than in the vocabulary of ", from);
    memcpy(mc.tokenizer, words.identity, sizeof mc.tokenizer);
    check(cmha_model_init(model, &ctx, &mc));
    if (from) read_from(model, from);
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

/* Ends the program, before it has learned for hours, where OUT cannot be or would replace what it reads. */
static void spare(void) {
    const char *in[] = {option[TRAIN].value, option[DEV].value, option[TEXT].value, option[TOKENIZER].value,
                        option[VOCAB].value};
    char names[4096];
    snprintf(names, sizeof names, "%s.labels", option[OUT].value);
    const char *out[] = {option[OUT].value, names, last, last_run};
    for (size_t i = 0; i < sizeof out / sizeof *out; i++)
        refuse_replacing(option[OUT].name, out[i], in, sizeof in / sizeof *in);
    must(text_may_save(option[OUT].value, failure));
    if (tc.ema > 0 || tc.accumulate > 1)
        complain(2, "see --set; classify knows no ema and no accumulate, but a larger --batch", "");
}

/* Training on a text alone. */
static int train_hidden(void) {
    cmha_model model;
    if (!whole(MLM)) complain(2, "see --help; --text needs --mlm, or --train", "");
    mc.classes = 0;
    spare(), make_room(), open_model(&model);
    if (!option[QUIET].value) printf("%zu parameters; %d threads\n", model.parameters.size, ctx.threads);
    fit_text(&model);
    check(cmha_model_save(&model, option[OUT].value));
    must(codec_save(&words, option[OUT].value, failure));
    if (stop) complain(128 + stop, "stopped; the model so far is in ", option[OUT].value);
    cmha_model_close(&model);
    return 0;
}

static void weigh_classes(const labelled *train) {
    double *weights = take(mc.classes, sizeof *weights);
    must(text_weights(option[WEIGHTS].value, train->label, train->order, train->n, mc.classes, weights,
                      failure));
    more.weights = take(mc.classes, sizeof *more.weights);
    for (size_t c = 0; c < mc.classes; c++) more.weights[c] = (cmha_real)weights[c];
    free(weights);
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
    double number; /* GLUE's files have numbers, in their order; other names stay what they are */
    if (class_names && labels.n == 2 && text_number(labels.names[0], &number) &&
        text_number(labels.names[1], &number)) {
        names[0].at = class_names, names[0].n = strcspn(class_names, ","),
        names[1] = text_of(class_names + names[0].n + 1);
        memcpy(labels.names, names, sizeof names);
    }
    mc.classes = metric < LABELLED_SPEARMAN ? labels.n : 1;
    spare();
    text_shuffle(train.order, train.n, ctx.config.seed);
    if (whole(TAKE) && whole(TAKE) < train.n) train.n = whole(TAKE);
    train.batches = train.n / tc.batch + (train.n % tc.batch != 0);
    make_room();
    if (option[WEIGHTS].value) weigh_classes(&train);
    find_facts(&train, &dev);
    open_model(&model);
    if (!option[QUIET].value)
        printf("%zu rows to learn, %zu to measure; %zu parameters; %d threads\n", train.n, dev.n,
               model.parameters.size, ctx.threads);
    size_t hidden = option[RESUME].value ? 0 : whole(MLM);
    if (hidden && option[TEXT].value) fit_text(&model);
    else if (hidden) fit(&model, hidden, &train, NULL);
    tune(&model, tc.optimiser);
    progress all = fit(&model, times(train.batches, whole(EPOCHS)), &train, &dev);
    if (stop)
        complain(128 + stop, all.done ? "stopped; --resume continues, and the best model so far is in "
                                      : "stopped; the model so far is in ", option[OUT].value);
    if (!all.best)
        complain(1, "what the model says of --dev was never a number; it is in ", option[OUT].value);
    report(&model, &dev, &all);
    printf("best %s %.4f, in %s\n", option[METRIC].value, all.value, option[OUT].value);
    labelled_close(&train), labelled_close(&dev), cmha_model_close(&model);
    return 0;
}

/* ---- Prediction ---- */

static int predict(void) {
    labelled r;
    cmha_model model;
    char path[4096];
    open_checkpoint(&model, option[MODEL].value);
    mc = model.config;
    refuse_numbers(option[MODEL].value);
    size_t most = mc.max_positions < 4096 ? mc.max_positions : 4096;
    if (!option[LENGTH].value) tc.length = most;
    if (tc.length > mc.max_positions)
        complain(2, "--length is beyond the positions of ", option[MODEL].value);
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
    for (size_t i = 0; i < r.n; i++)
        if (!isfinite(value[i])) complain(1, "what the model says is no number, of ", option[PREDICT].value);
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
