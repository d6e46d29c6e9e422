/* Learns to tell radio signals apart, with each kind of attention in turn if you like:
       cc -O3 -march=native -fopenmp -I. examples/signal.c -o build/signal -lopenblas -lm
       build/signal [OPTION...] FILE                                      (--help lists everything)
       build/signal [OPTION...] --model CHECKPOINT --predict RECORDING...
   FILE is what examples/signal_data.c writes, or --synthetic. The samples go into the model as they are, some
   of them a position: complex families get complex numbers, the others their two parts as channels. */
#define CMHA_IMPLEMENTATION
#include "cmha.h"

#define PROGRAM "signal"
#include "tools/options.h"
#include "tools/drawing.h"
#include "tools/sequences.h"
#include "tools/iq.h"
#include "tools/predict.h"
#include "tools/epochs.h"
#include "tools/signals.h"

enum {
    ATTENTION, COMPARE, PARAMETERS, FRAME, HOP, TAKE, EPOCHS, SEED, SEEDS, THREADS, BATCH, LR, SVG, CSV, SAVE,
    RESUME, PREDICT, MODEL, JSON, LABELLED, VALIDATE, PATIENCE, SYNTHETIC, QUIET, HELP, SET, N_OPTIONS
};
static setting option[N_OPTIONS] = {
    {"--attention", "rope", "a kind of the list below"},
    {"--compare", NULL, "many kinds, each with as many parameters as the first: --compare=KIND,KIND..."},
    {"--parameters", NULL, "at most so many, by the width d_ff; with --compare those of the first kind"},
    {"--frame", "8", "complex samples of a position"},
    {"--hop", NULL, "from a position to the next; as many by default"},
    {"--take", "0", "train on so many frames, the first; 0 = all"},
    {"--epochs", "12", "passes over the training frames"},
    {"--seed", "1", "of the weights and the order of the frames"},
    {"--seeds", "1", "repeat with so many seeds, from --seed on"},
    {"--threads", "0", "0 = every core"},
    {"--batch", NULL, "frames per step, 64"},
    {"--lr", NULL, "peak learning rate, 2e-3"},
    {"--svg", NULL, "draw accuracy by level, and the confusion of classes of the last kind"},
    {"--csv", NULL, "a row for every kind, seed and level"},
    {"--save", NULL,
     "a checkpoint of the last kind, trained with the last seed; what --predict has to know lies in "
     "SAVE.classes"},
    {"--resume", NULL,
     "go on with a training of the same options that was stopped: --save keeps its state after each epoch"},
    {"--predict", NULL,
     "recordings to label, .cf32, .npy, .csv, .wav or .sigmf-meta: prints label and probabilities of every "
     "frame"},
    {"--model", NULL, "the checkpoint to label with"},
    {"--json", NULL, "lines of JSON instead of CSV"},
    {"--labelled", NULL,
     "names of recordings begin with their class, as in qpsk_3.cf32: says on stderr how many are right"},
    {"--validate", "1",
     "share of the file's validation frames that says which epoch is best and kept; 0: the last is"},
    {"--patience", "8", "stop after so many epochs without a better one"},
    {"--synthetic", NULL, "write a small set of plain signals to FILE first, without liquid-dsp"},
    {"--quiet", NULL, "no progress, only the table"},
    {"--help", NULL, "this page"},
    {"--set", NULL,
     "NAME=VALUE for any field of the model or the training (train_tiny --help lists them); may be "
     "repeated"}};
static const char all[] = "rope,cmha,dot+learned,cope-real,cope-magnitude,cope-phase,cope-hybrid,mobius+rope,"
                          "angular,angular-linear,lag,crat";

enum { MOST_KINDS = 32, MOST_SEEDS = 16 };

typedef struct result { /* of a kind with a seed; shares of 1 */
    double by_level[MOST_LEVELS], all, high, turned, change, seconds;
} result;
static struct { const char *kind; size_t parameters; result r[MOST_SEEDS]; } row[MOST_KINDS];
static size_t n_rows, n_seeds, confusion[MOST_CLASSES][MOST_CLASSES]; /* true, said; of the last kind */

static known about[3] = {{"frame", 0}, {"hop", 0}, {"samples", 0}};

/* ---- A kind of attention ---- */

static void print_heading(void) {
    printf("Accuracy in %% by level of signal over noise in dB%s\n",
           n_seeds > 1 ? "; means of the seeds, and largest less least" : "");
    printf("%-15s %10s %7s", "", "parameters", "seconds");
    for (size_t l = 0; l < n_levels; l++) printf(" %5.4g", level[l]);
    printf("  %12s %12s %12s %9s\n", ">= 0 dB", "all", "turned", "change");
    fflush(stdout);
}

/* Judges the test frames, as they are and turned. */
static void test_model(cmha_model *model, result *r) {
    const sequences *s = &part[2];
    size_t n = s->n, count[MOST_LEVELS] = {0}, high = 0, right, i, l;
    cmha_real *scores = take(times(2 * n, classes), sizeof *scores), *turned = scores + n * classes;
    cmha_rng rng = cmha_rng_make(ctx.config.seed, 1u << 30);
    judge(model, s, NULL, scores), judge(model, s, &rng, turned);
    memset(confusion, 0, sizeof confusion);
    for (i = 0; i < n; i++) {
        size_t said = best_of(scores + i * classes, classes);
        for (l = 0; level[l] < (double)levels[i];) l++;
        right = said == (size_t)s->label[i];
        confusion[(size_t)s->label[i]][said]++, count[l]++;
        r->by_level[l] += (double)right, r->all += (double)right;
        if (level[l] >= 0) high++, r->high += (double)right;
        r->turned += best_of(turned + i * classes, classes) == (size_t)s->label[i];
    }
    for (i = 0; i < n * classes; i++) r->change = fmax(r->change, fabs((double)(turned[i] - scores[i])));
    for (l = 0; l < n_levels; l++) r->by_level[l] /= (double)count[l];
    r->all /= (double)n, r->turned /= (double)n, r->high /= high ? (double)high : 1;
    free(scores);
}

static void save(cmha_model *model) {
    for (int i = FRAME; i <= HOP; i++) about[i - FRAME].value = whole_of(&option[i], 1, 4096);
    about[2].value = frame_samples;
    check(cmha_model_save(model, option[SAVE].value));
    save_known(option[SAVE].value, about, 3, (const char *const *)class_names, classes);
}

static const char *several_asked(void) {
    return several_of(&option[ATTENTION], &option[COMPARE], &option[SEEDS]);
}

/* A training, which only where it is the one of its run keeps its state. */
static epochs open_run(void) {
    epochs run = {.path = several_asked() ? NULL : option[SAVE].value, .options = option, .data = 1};
    static const int own[] = {FRAME, HOP, TAKE, EPOCHS, SEED, VALIDATE, PATIENCE};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) run.own |= UINT64_C(1) << own[i];
    for (size_t p = 0; run.path && p < 3; p++) {
        const sequences *s = &part[p];
        run.data = fingerprint(run.data, s->label, s->n * sizeof *s->label);
        run.data = fingerprint(run.data, s->x, s->begin[s->n] * row_of(s) * sizeof *s->x);
    }
    run.data = fingerprint(run.data, names, sizeof names);
    return run;
}

static void train_kind(size_t which, size_t seed, uint64_t most, uint64_t patience) {
    cmha_model model;
    cmha_trainer trainer;
    result *r = &row[which].r[seed];
    double start = seconds(), loss = 0;
    epochs run = open_run();
    sequences held_out = part[1];
    held_out.n = (size_t)ceil(number_of(&option[VALIDATE], 0, 1) * (double)part[1].n);
    check(cmha_model_init(&model, &ctx, &mc)), check(cmha_trainer_init(&trainer, &model, &tc));
    begin_epochs(&run, &trainer, option[RESUME].value != NULL, &option[QUIET]);
    if (!which && !seed) print_heading(); /* not before a line that refuses to go on */
    while (!epochs_over(&run, most, held_out.n ? patience : 0)) {
        uint64_t e = run.now.epoch + 1;
        loss = learn(&trainer, &part[0], e);
        show_progress(&option[QUIET], row[which].kind, "", e, most, loss, start);
        end_epoch(&run, &trainer, &held_out);
    }
    take_best(&run.best, &model, &option[QUIET], run.now.epoch);
    r->seconds = seconds() - start;
    test_model(&model, r);
    if (option[SAVE].value && which + 1 == n_rows && seed + 1 == n_seeds) save(&model);
    drop_epochs(&run);
    cmha_trainer_close(&trainer), cmha_model_close(&model);
}

/* ---- What came out ---- */

/* The mean of a member over the seeds; *spread (or NULL) gets largest - least. */
static double mean_of(size_t which, size_t offset, double *spread) {
    double sum = 0, least = INFINITY, most = -INFINITY, value;
    for (size_t s = 0; s < n_seeds; s++) {
        memcpy(&value, (const char *)&row[which].r[s] + offset, sizeof value);
        sum += value, least = fmin(least, value), most = fmax(most, value);
    }
    if (spread) *spread = most - least;
    return sum / (double)n_seeds;
}
#define MEAN(which, member, spread) mean_of(which, offsetof(result, member), spread)

static void print_row(size_t k) {
    double spread;
    printf("%-15s %10zu %7.0f", row[k].kind, row[k].parameters, MEAN(k, seconds, NULL));
    for (size_t l = 0; l < n_levels; l++)
        printf(" %5.1f", 100 * mean_of(k, offsetof(result, by_level) + l * sizeof(double), NULL));
    if (level[n_levels - 1] < 0) printf("  %6s %5s", "-", "-"); /* there is no such frame */
    else printf("  %6.2f", 100 * MEAN(k, high, &spread)), printf(" %5.2f", 100 * spread);
    printf(" %6.2f", 100 * MEAN(k, all, &spread)), printf(" %5.2f", 100 * spread);
    printf(" %6.2f", 100 * MEAN(k, turned, &spread)), printf(" %5.2f", 100 * spread);
    printf(" %9.2g\n", MEAN(k, change, NULL));
    fflush(stdout);
}

static void print_confusion(void) {
    size_t *counts = take(times(classes, classes), sizeof *counts);
    for (size_t c = 0; c < classes; c++) memcpy(counts + c * classes, confusion[c], classes * sizeof *counts);
    puts("turned: every frame times an e^(i phi) of its own; change: the most that moved a score");
    printf("%s: test frames that were sent (lines) and what was said\n", row[n_rows - 1].kind);
    print_report(stdout, (const char *const *)class_names, classes, counts);
    free(counts);
}

/* ---- The drawing ---- */

/* The confusion of the last kind: a square for each class that was sent (down) and said (across). */
static void draw_confusion(const drawing *d, double x, double y, double side) {
    double cell = side / (double)classes;
    char turned[64];
    for (size_t c = 0; c < classes; c++) {
        size_t sum = 0;
        for (size_t k = 0; k < classes; k++) sum += confusion[c][k];
        double middle = ((double)c + 0.5) * cell;
        snprintf(turned, sizeof turned, " transform='rotate(-60 %.1f %.1f)'", x + middle, y + side + 14);
        draw_name(d, x - 6, y + middle + 4, "end", "", class_names[c], 16);
        draw_name(d, x + middle, y + side + 14, "end", turned, class_names[c], 16);
        for (size_t k = 0; k < classes; k++) {
            double share = (double)confusion[c][k] / (double)(sum ? sum : 1), left = x + (double)k * cell;
            char shade[16];
            snprintf(shade, sizeof shade, "#%02x%02x%02x", (unsigned)(255 - 224 * share),
                     (unsigned)(255 - 192 * share), (unsigned)(255 - 63 * share));
            draw_rect(d, left, y + (double)c * cell, cell, cell, shade, draw_colour(d, DRAW_GRID));
            if (share >= 0.005)
                draw_text(d, left + cell / 2, y + middle + 4, "middle",
                          share > 0.5 ? " font-size='10px' fill='#fff'" : " font-size='10px'", "%.0f",
                          100 * share);
        }
    }
    draw_rect(d, x, y, side, side, "none", draw_colour(d, DRAW_AXIS));
    snprintf(turned, sizeof turned, " transform='rotate(-90 %.1f %.1f)'", x - 92, y + side / 2);
    draw_text(d, x - 92, y + side / 2, "middle", turned, "class sent");
    draw_text(d, x + side / 2, y + side + 84, "middle", "", "class said");
}

/* Accuracy by level of every kind, the mean of the seeds; with several, from the worst to the best. */
static void fill_accuracy(chart *c, chart_series *series, double *values) {
    for (size_t k = 0; k < n_rows; k++, values += 3 * MOST_LEVELS) {
        for (size_t l = 0; l < n_levels; l++) {
            values[l] = 100 * mean_of(k, offsetof(result, by_level) + l * sizeof(double), NULL);
            values[MOST_LEVELS + l] = INFINITY, values[2 * MOST_LEVELS + l] = -INFINITY;
            for (size_t s = 0; s < n_seeds; s++) {
                double share = 100 * row[k].r[s].by_level[l];
                values[MOST_LEVELS + l] = fmin(values[MOST_LEVELS + l], share);
                values[2 * MOST_LEVELS + l] = fmax(values[2 * MOST_LEVELS + l], share);
            }
        }
        series[k].name = row[k].kind, series[k].n = n_levels, series[k].at = level, series[k].values = values;
        if (n_seeds > 1) series[k].low = values + MOST_LEVELS, series[k].high = values + 2 * MOST_LEVELS;
    }
    c->x.label = "signal over noise (dB)", c->y.label = "accuracy (%)", c->y.most = 100;
    c->series = series, c->n = n_rows;
}

/* Draws accuracy by level on the left, and the confusion of the last kind on the right. */
static int draw(FILE *file, const void *data) {
    enum { LEFT = 70, UP = 84, SIDE = 400, RIGHT = 830 };
    drawing d = {file, 0, 0, 0};
    static chart c;
    static chart_series series[MOST_KINDS];
    static double values[MOST_KINDS][3 * MOST_LEVELS];
    char title[512];
    snprintf(title, sizeof title, "%.400s: signals told apart", draw_base((const char *)data));
    fill_accuracy(&c, series, values[0]);
    draw_open(&d, 1260, 590, title, "Accuracy by level of signal over noise for every kind of attention, and "
              "which classes the last kind takes for which.");
    draw_name(&d, 16, 28, "start", " font-size='16px' font-weight='bold'", title, 200);
    draw_text(&d, LEFT, UP - 12, "start", " font-weight='bold'", "accuracy%s",
              n_seeds > 1 ? ", mean of the seeds; from the worst to the best" : "");
    chart_draw(&d, &c, LEFT, UP, SIDE, SIDE);
    legend_draw(&d, &c, LEFT + SIDE + 16, UP, 1);
    draw_text(&d, RIGHT, UP - 12, "start", " font-weight='bold'", "%s: what was said of a class (%%)",
              row[n_rows - 1].kind);
    draw_confusion(&d, RIGHT, UP, SIDE);
    return draw_close(&d);
}

/* Writes a row for every kind, seed and level; `data` is nothing. */
static int write_rows(FILE *csv, const void *data) {
    unsigned long long seed = ctx.config.seed + 1 - n_seeds; /* the first; ctx has the last */
    (void)data;
    fprintf(csv, "kind,seed,parameters,snr,accuracy\n");
    for (size_t k = 0; k < n_rows; k++)
        for (size_t s = 0; s < n_seeds; s++)
            for (size_t l = 0; l < n_levels; l++)
                fprintf(csv, "%s,%llu,%zu,%g,%.5f\n", row[k].kind, seed + s, row[k].parameters, level[l],
                        row[k].r[s].by_level[l]);
    return !ferror(csv);
}

/* ---- Prediction ---- */

/* Judges a recording frame by frame; what is left at its end is no frame. */
static void predict_file(cmha_model *model, const char *path) {
    size_t frame = (size_t)about[0].value, hop = (size_t)about[1].value, samples = (size_t)about[2].value;
    size_t positions = cmha_frames(NULL, samples, 2, frame, hop, NULL), n, f, i;
    char line[80];
    iq_samples s;
    must(iq_load(&s, path, failure));
    n = s.n / samples;
    if (!n) must(text_fail(failure, "%zu samples, and a frame has %zu: %.200s", s.n, samples, path));
    snprintf(line, sizeof line, "left out: %zu samples behind the last whole frame of ", s.n % samples);
    if (s.n % samples) complain(0, line, path);
    sequences q = {.width = frame, .is_complex = 1, .longest = positions};
    cmha_real *z = take(samples, 2 * sizeof *z);
    q.begin = take(tc.batch + 1, sizeof *q.begin);
    q.label = take(tc.batch, sizeof *q.label);
    q.x = take(times(times(tc.batch, positions), row_of(&q)), sizeof *q.x);
    for (f = 0; f < n; f += q.n) {
        q.n = n - f < tc.batch ? n - f : tc.batch;
        for (i = 0; i < q.n; i++) {
            const float *from = s.z + (f + i) * 2 * samples;
            for (size_t t = 0; t < samples; t++) {
                z[t] = (cmha_real)from[2 * t];
                z[samples + t] = (cmha_real)from[2 * t + 1];
            }
            cmha_frames(z, samples, 2, frame, hop, q.x + q.begin[i] * row_of(&q));
            q.begin[i + 1] = (i + 1) * positions;
        }
        say_of(model, &q, path, f);
    }
    free(z), iq_close(&s), close_sequences(&q);
}

static int predict(const char *const *files, size_t n_files) {
    cmha_model model;
    size_t positions;
    open_known(&model, option[MODEL].value, about, 3);
    for (int i = 0; i < 3; i++)
        if (!about[i].value || about[i].value > 1u << 20) complain(1, "no such number: ", about[i].name);
    positions = cmha_frames(NULL, (size_t)about[2].value, 2, (size_t)about[0].value, (size_t)about[1].value,
                            NULL);
    if (mc.features != about[0].value || !mc.complex_features || mc.max_positions < positions)
        complain(1, "another model than that of the file beside it: ", option[MODEL].value);
    tc.batch = 64;
    make_room(tc.batch, positions, 2 * mc.features);
    return predict_files(&model, files, n_files, predict_file, &option[MODEL]);
}

/* ---- The command line ---- */

/* Ends the program where two of the files that it writes are one. */
static void part_outputs(void) {
    static const char *const ends[] = {"", ".classes", ".last", ".run"}; /* of --save */
    const char *svg = option[SVG].value, *csv = option[CSV].value, *saved = option[SAVE].value;
    char path[4096];
    if (svg && csv && text_same_place(svg, csv)) complain(2, "--svg and --csv are one file: ", svg);
    for (size_t i = 0; saved && i < sizeof ends / sizeof *ends; i++) {
        snprintf(path, sizeof path, "%s%s", saved, ends[i]);
        if (svg && text_same_place(svg, path)) complain(2, "--svg would replace what --save writes: ", svg);
        if (csv && text_same_place(csv, path)) complain(2, "--csv would replace what --save writes: ", csv);
    }
}

static int help(void) {
    const char *kind;
    puts("signal [OPTION...] FILE: learns the modulations in a file of signal_data\n"
         "signal [OPTION...] --model CHECKPOINT --predict RECORDING...: labels recordings\n");
    print_options(option, N_OPTIONS, 12, 9);
    printf("\nKinds of attention:");
    for (size_t i = 0; (kind = cmha_kind_name(i, NULL)) != NULL; i++) printf(" %s", kind);
    printf("\n--compare alone: %s\n", all);
    return end_help("build/signal --compare=cmha,rope --svg signal.svg signal.safetensors");
}

/* The configuration of a kind; `settings` are the arguments of --set. */
static void configure(const char *kind, char **settings, int n_set) {
    const settable both[2] = {{cmha_model_table(), &mc}, {cmha_trainer_table(), &tc}};
    check(cmha_preset(&ctx, "encoder", &mc, &tc));
    check(cmha_config_set_all(&ctx, cmha_model_table(), &mc,
                              "tokens=0 vocabulary=0 complex_features=1 feature_norm=sequence token_types=0 "
                              "delta_init=rope_start n_layers=2 d_model=64 d_ff=128 dropout=0"));
    check(cmha_config_set_all(&ctx, cmha_trainer_table(), &tc, "batch=64 lr=2e-3 weight_decay=0.05"));
    set_kind(kind, &mc);
    mc.causal = 0, mc.classes = classes, mc.features = part[0].width, mc.max_positions = part[0].longest;
    for (int o = BATCH; o <= LR; o++)
        if (option[o].value) set_field(both, 2, option[o].name + 2, option[o].value);
    refuse_settled("--epochs decides it", &option[PARAMETERS], settings, n_set);
    set_fields(both, 2, settings, n_set);
    if (mc.classes != classes || mc.values || mc.features != part[0].width || !mc.complex_features)
        complain(2, "classes, values, features and complex_features are the program's own fields", "");
    tc.length = part[0].longest;
}

/* Configures kind number k, and gives it no more parameters than --parameters or the first kind has. */
static void settle(size_t k, char **settings, int n_set) {
    configure(row[k].kind, settings, n_set);
    row[k].parameters = settle_parameters(&option[PARAMETERS], row[k].kind, k ? row[0].parameters : 0);
}

/* Ends the program where an output cannot be written: now, not after the training. Until that is over the
   old files stay; what is none, as /dev/stdout, is opened then. */
static void check_outputs(void) {
    struct stat there;
    for (int o = SVG; o <= CSV; o++) {
        const char *path = option[o].value;
        if (!path || (!stat(path, &there) && !S_ISREG(there.st_mode) && !S_ISDIR(there.st_mode))) continue;
        must(text_may_save(path, failure));
    }
}

/* Finds the kinds that an option names, or all. They stand in `list`, of `size` bytes. */
static void name_kinds(const setting *o, char *list, size_t size) {
    const char *kinds = *o->value || o != &option[COMPARE] ? o->value : all;
    if (snprintf(list, size, "%s", kinds) >= (int)size) complain(2, "too many kinds: ", kinds);
    for (char *at = strtok(list, ","); at; at = strtok(NULL, ",")) {
        if (n_rows == MOST_KINDS) complain(2, "more than 32 kinds: ", kinds);
        row[n_rows++].kind = at;
    }
    if (!n_rows) complain(2, "no kind of attention is named by ", o->name);
}

/* Names and sizes, before any work. */
static void settle_all(char **settings, int n_set) {
    for (size_t k = 0; k < n_rows; k++) settle(k, settings, n_set);
}

/* The same before there is the file that --synthetic writes. */
static void settle_synthetic(size_t frame, size_t hop, char **settings, int n_set) {
    classes = SYNTHETIC_CLASSES, part[0].width = frame;
    part[0].longest = cmha_frames(NULL, SYNTHETIC_SAMPLES, 2, frame, hop, NULL);
    settle_all(settings, n_set);
    classes = 0; /* which the file says */
}

/* Trains each kind with each seed, from `seed` on, and prints its row. */
static void train_all(char **settings, int n_set, uint64_t most, uint64_t seed) {
    uint64_t patience = whole_of(&option[PATIENCE], 1, 100000);
    for (size_t k = 0; k < n_rows; k++) {
        settle(k, settings, n_set);
        tc.steps = times((part[0].n + tc.batch - 1) / tc.batch, (size_t)most);
        make_room(part[0].n + part[1].n + part[2].n, part[0].longest, row_of(&part[0]));
        for (size_t s = 0; s < n_seeds; s++) {
            ctx.config.seed = seed + s;
            train_kind(k, s, most, patience);
        }
        close_room();
        print_row(k);
    }
    print_confusion();
}

int main(int argc, char **argv) {
    int n_set = 0;
    const char **files;
    size_t n_files;
    start_program(argv);
    argc = take_files(argc, argv, &files, &n_files);
    const uint32_t flags = 1u << COMPARE | 1u << RESUME | 1u << JSON | 1u << LABELLED | 1u << SYNTHETIC |
                           1u << QUIET | 1u << HELP;
    const uint64_t read = 1u << PREDICT | 1u << MODEL | 1u << JSON | 1u << LABELLED | 1u << THREADS |
                          1u << QUIET;
    const char *path = read_options(option, N_OPTIONS, flags, argc, argv, &n_set);
    uint64_t most = whole_of(&option[EPOCHS], 1, 100000), seed = whole_of(&option[SEED], 0, UINT64_MAX / 2);
    whole_of(&option[PATIENCE], 1, 100000);
    number_of(&option[VALIDATE], 0, 1);
    if (!option[HOP].value) option[HOP].value = option[FRAME].value;
    size_t rows = (size_t)whole_of(&option[TAKE], 0, 1000000000);
    size_t frame = (size_t)whole_of(&option[FRAME], 1, 4096), hop = (size_t)whole_of(&option[HOP], 1, 4096);
    char list[1024];
    n_seeds = (size_t)whole_of(&option[SEEDS], 1, MOST_SEEDS);
    open_context(&option[SEED], &option[THREADS], option[HELP].value != NULL);
    if (option[HELP].value) return help();
    check_resume(&option[RESUME], &option[SAVE], n_files, several_asked());
    if (n_files && path) complain(2, "see --help; what is ", path);
    if (n_files) check_untrained(option, N_OPTIONS, read);
    if (n_files) return predict(files, n_files);
    check_unused(&option[MODEL], 3);
    refuse_patience(option, PATIENCE, &option[VALIDATE]);
    if (option[SAVE].value) may_save_known(option[SAVE].value, path);
    if (!path) complain(2, "name a file of signal_data, or one to write with --synthetic; see --help", "");
    for (int o = SVG; o <= CSV; o++) refuse_replacing(option[o].name, option[o].value, &path, 1);
    part_outputs();
    const setting *from = &option[option[COMPARE].value ? COMPARE : ATTENTION];
    if (from != &option[ATTENTION])
        refuse_given(option, 1u << ATTENTION, " is one kind, and --compare names several");
    name_kinds(from, list, sizeof list);
    if (option[SYNTHETIC].value) {
        settle_synthetic(frame, hop, argv + 1, n_set);
        check_outputs();
        synthesise(path);
    }
    read_signals(path, frame, hop);
    if (rows && rows < part[0].n) part[0].n = rows; /* classes and levels alternate from run to run */
    settle_all(argv + 1, n_set);
    check_outputs();
    train_all(argv + 1, n_set, most, seed);
    if (option[SVG].value) must(draw_save(option[SVG].value, draw, path, failure));
    if (option[CSV].value) must(draw_save(option[CSV].value, write_rows, NULL, failure));
    close_signals(), cmha_context_close(&ctx);
    return end_program(0);
}
