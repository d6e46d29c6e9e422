/* Forecasts time series of many channels out of a CSV:
       cc -O3 -march=native -fopenmp -I. examples/forecast.c -o build/forecast -lopenblas -lm
       build/forecast [OPTION...] FILE.csv                                (--help lists everything)
   A causal model reads a window of steps and says, at each, how far the next steps of all channels lie from
   this one. The first 70 % of the rows train it, the next 10 % choose the best weights, the last 20 % test
   it; mean and deviation of the training rows normalise every channel. Beside it stand the last value again
   and the value of one season before. With --predict a saved model goes on where a CSV ends. */
#define CMHA_IMPLEMENTATION
#include "cmha.h"

#define PROGRAM "forecast"
#include "tools/options.h"
#include "tools/series.h"
#include "tools/sequences.h"
#include "tools/predict.h"

enum { WINDOW, HORIZON, SEASON, ATTENTION, FEATURES, COLUMNS, STEPS, SEED, THREADS, OUT, MODEL, PREDICT,
       QUIET, HELP, SET, N_OPTIONS };
static setting option[N_OPTIONS] = {
    {"--window", "96", "steps that the model reads"},
    {"--horizon", "24", "steps that it forecasts"},
    {"--season", "24", "steps of a season, of the seasonal baseline only"},
    {"--attention", "rope", "a kind of the list below"},
    {"--features", "complex", "real: the values; complex: with their differences from the step before as Im"},
    {"--columns", NULL, "NAME,NAME...: the channels; otherwise the columns with a number in the second line"},
    {"--steps", "400", "of training"},
    {"--seed", "1", "of the weights and the windows"},
    {"--threads", "0", "0 = every core"},
    {"--out", NULL, "writes the model there, and what it has to know beside it, in OUT.columns"},
    {"--model", NULL, "a model that --out wrote, for --predict"},
    {"--predict", NULL, "a CSV with the columns of --model: writes the next steps behind it as CSV"},
    {"--quiet", NULL, "no progress, only the table"},
    {"--help", NULL, "this page"},
    {"--set", NULL,
     "NAME=VALUE for any field of the model or the training (train_tiny --help lists them); may be "
     "repeated"}};

enum { MOST_BYTES = 1 << 28, MOST_CHECKED = 256 };
static series data;
static size_t window, horizon, season; /* in steps */
static int is_complex;
static double *mean, *deviation; /* [channels] */
static cmha_real *x;             /* [steps, channels], normalised */

/* ---- The data ---- */

/* Takes mean and deviation of the first `steps` rows; a channel that never changes has deviation 1. */
static void measure(size_t steps) {
    mean = (double *)take(data.channels, sizeof *mean);
    deviation = (double *)take(data.channels, sizeof *deviation);
    for (size_t c = 0; c < data.channels; c++) {
        double sum = 0, squares = 0, least = INFINITY, most = -INFINITY;
        for (size_t t = 0; t < steps; t++) {
            double value = data.x[t * data.channels + c];
            sum += value / (double)steps, least = fmin(least, value), most = fmax(most, value);
        }
        for (size_t t = 0; t < steps; t++)
            squares += pow(data.x[t * data.channels + c] - sum, 2) / (double)steps;
        mean[c] = sum;
        deviation[c] = most > least && squares > 0 ? sqrt(squares) : 1; /* a mean of equals is rounded */
    }
}

static void normalise(void) {
    size_t n = times(data.steps, data.channels);
    x = (cmha_real *)take(n, sizeof *x);
    for (size_t i = 0; i < n; i++) {
        size_t c = i % data.channels;
        x[i] = (cmha_real)((data.x[i] - mean[c]) / deviation[c]);
        if (!isfinite(x[i]) || !isfinite(mean[c]) || !isfinite(deviation[c]))
            complain(1, "numbers too large to normalise in column ", text_copy(data.names[c]));
    }
}

/* Writes the features of the window that ends before row `end`. Im of a complex feature is the difference
   from the step before, 0 at the first. */
static void write_window(size_t end, cmha_real *to) {
    size_t C = data.channels;
    for (size_t t = 0; t < window; t++) {
        const cmha_real *from = x + (end - window + t) * C, *before = t ? from - C : from;
        for (size_t c = 0; c < C; c++) *to++ = from[c];
        if (!is_complex) continue;
        for (size_t c = 0; c < C; c++) *to++ = from[c] - before[c];
    }
}

/* Writes the targets of that window: of each step, how far the next `horizon` ones are from it. */
static void write_targets(size_t end, cmha_real *to) {
    size_t C = data.channels;
    for (size_t t = end - window; t < end; t++)
        for (size_t h = 1; h <= horizon; h++)
            for (size_t c = 0; c < C; c++) *to++ = x[(t + h) * C + c] - x[t * C + c];
}

/* ---- Forecasts ---- */

/* Errors over windows, steps and channels, in deviations */
enum { OF_MODEL, OF_LAST, OF_SEASON, N_METHODS };
typedef struct errors { double squares[N_METHODS], amounts[N_METHODS], n; } errors;

static void add_errors(errors *e, size_t end, const cmha_real *said) {
    size_t C = data.channels, m;
    for (size_t i = 0; i < horizon * C; i++) {
        size_t h = i / C, c = i % C;
        double last = (double)x[(end - 1) * C + c], guess[N_METHODS];
        guess[OF_MODEL] = last + (double)said[i];
        guess[OF_LAST] = last;
        guess[OF_SEASON] = (double)x[(end + h % season - season) * C + c];
        for (m = 0; m < N_METHODS; m++) {
            double apart = guess[m] - (double)x[(end + h) * C + c];
            e->squares[m] += apart * apart;
            e->amounts[m] += fabs(apart);
        }
        e->n++;
    }
}

/* The errors of the forecasts that begin at the rows from `first` on, every stride-th, all of whose rows lie
   before `past`. */
static errors judge_windows(cmha_model *model, size_t first, size_t past, size_t stride) {
    size_t V = mc.values, size = window * mc.features * (is_complex ? 2 : 1), i;
    cmha_real *features = (cmha_real *)take(times(tc.batch, size), sizeof *features);
    cmha_real *said = (cmha_real *)take(times(times(tc.batch, window), V), sizeof *said);
    errors e;
    memset(&e, 0, sizeof e);
    for (size_t at = first; at + horizon <= past;) {
        cmha_batch b;
        size_t begin = at;
        memset(&b, 0, sizeof b);
        b.features = features;
        b.length = window;
        while (b.batch < tc.batch) {
            if (at + horizon > past) break;
            write_window(at, features + b.batch++ * size);
            at += stride;
        }
        check(cmha_model_predict(model, &b, said));
        for (i = 0; i < b.batch; i++)
            add_errors(&e, begin + i * stride, said + ((i + 1) * window - 1) * V);
    }
    free(features);
    free(said);
    return e;
}

/* Trains on random windows of the rows before `train`; the best weights on those up to `test` stay. */
static void learn_windows(cmha_trainer *trainer, cmha_model *model, size_t train, size_t test) {
    size_t V = mc.values, size = window * mc.features * (is_complex ? 2 : 1), i, n = model->parameters.size;
    cmha_real *features = (cmha_real *)take(times(tc.batch, size), sizeof *features);
    cmha_real *targets = (cmha_real *)take(times(times(tc.batch, window), V), sizeof *targets);
    cmha_real *best = (cmha_real *)take(n, sizeof *best);
    uint64_t every = tc.steps > 20 ? tc.steps / 20 : 1, kept = 0;
    double start = seconds(), loss, least = INFINITY;
    cmha_rng rng = cmha_rng_make(ctx.config.seed, 1);
    size_t stride = 1 + (test - train - horizon) / MOST_CHECKED;
    for (uint64_t step = 1; step <= tc.steps; step++) {
        cmha_batch b;
        memset(&b, 0, sizeof b);
        b.features = features;
        b.values = targets;
        b.batch = tc.batch;
        b.length = window;
        for (i = 0; i < b.batch; i++) {
            size_t end = window + (size_t)cmha_rng_below(&rng, train - window - horizon + 1);
            write_window(end, features + i * size);
            write_targets(end, targets + i * window * V);
        }
        check(cmha_trainer_step_batch(trainer, &b, &loss));
        if (step % every && step < tc.steps) continue;
        errors e = judge_windows(model, train, test, stride);
        double error = e.squares[OF_MODEL] / e.n;
        if (!option[QUIET].value)
            printf("%s: step %llu/%llu  loss %.4f  validation MSE %.4f  %.0f s\n", option[ATTENTION].value,
                   (unsigned long long)step, (unsigned long long)tc.steps, loss, error, seconds() - start);
        fflush(stdout);
        if (!(error < least)) continue;
        least = error;
        kept = step;
        memcpy(best, model->parameters.data, n * sizeof *best);
    }
    if (!kept) complain(1, "the errors are no numbers; lower lr", "");
    memcpy(model->parameters.data, best, n * sizeof *best);
    if (!option[QUIET].value)
        printf("step %llu is kept: validation MSE %.4f\n", (unsigned long long)kept, least);
    free(features);
    free(targets);
    free(best);
}

static void print_errors(const errors *e) {
    static const char *const of[N_METHODS] = {"the model", "the last value again", "one season before"};
    printf("Errors of %zu steps on, %.0f numbers, in deviations\n%-22s %8s %8s\n", horizon, e->n, "", "MSE",
           "MAE");
    for (int m = 0; m < N_METHODS; m++)
        printf("%-22s %8.4f %8.4f\n", of[m], e->squares[m] / e->n, e->amounts[m] / e->n);
}

/* ---- The file beside a model ---- */

enum { KNOWN = 4 }; /* lines before those of the columns */

static void beside_path(const char *model, char path[4096]) {
    if (snprintf(path, 4096, "%s.columns", model) >= 4096) complain(1, "too long a path: ", model);
}

/* Ends the program, before it trains, where the model could not be saved or would replace what it reads. */
static void check_out(const char *model, const char *csv) {
    char path[4096];
    beside_path(model, path);
    refuse_replacing(option[OUT].name, model, &csv, 1);
    refuse_replacing(option[OUT].name, path, &csv, 1);
    must(text_may_save(model, failure) && text_may_save(path, failure));
}

/* Ends the program, before it trains, where a name could not be saved. */
static void check_names(void) {
    char line[80];
    snprintf(line, sizeof line, "more than %d columns cannot be saved; see --columns", (int)SERIES_NAMED);
    if (data.channels > SERIES_NAMED) complain(1, line, "");
    for (size_t c = 0; c < data.channels; c++) {
        text_slice name = data.names[c];
        if (name.n > 256 || (name.n && memchr(name.at, '\t', name.n)))
            complain(1, "to save, a column's name has no tab and at most 256 bytes: ", text_copy(name));
    }
}

/* Writes four columns: what, its value, and of a channel, mean and deviation. */
static void save_columns(const char *model) {
    text_labels lines;
    char path[4096], *text = (char *)take(KNOWN + data.channels, 400);
    memset(&lines, 0, sizeof lines);
    lines.n = KNOWN + data.channels;
    lines.names = (text_slice *)take(lines.n, sizeof *lines.names);
    snprintf(text, 400, "program\t" PROGRAM "\t0\t0");
    snprintf(text + 400, 400, "window\t%zu\t0\t0", window);
    snprintf(text + 800, 400, "horizon\t%zu\t0\t0", horizon);
    snprintf(text + 1200, 400, "features\t%s\t0\t0", is_complex ? "complex" : "real");
    for (size_t c = 0; c < data.channels; c++) {
        text_slice name = data.names[c];
        snprintf(text + (KNOWN + c) * 400, 400, "column\t%.*s\t%.17g\t%.17g", (int)name.n, name.at, mean[c],
                 deviation[c]);
    }
    for (size_t i = 0; i < lines.n; i++) lines.names[i] = text_of(text + i * 400);
    beside_path(model, path);
    must(text_labels_save(&lines, path, failure));
    free(text);
    text_labels_close(&lines);
}

/* Reads it again, and the CSV's columns that it names. */
static void open_columns(const char *model, const char *csv) {
    static const char *const columns[4] = {"1", "2", "3", "4"};
    static const char *const words[KNOWN] = {"program", "window", "horizon", "features"};
    char path[4096];
    text_table t;
    double number[2] = {0, 0};
    size_t C, i;
    int fine;
    beside_path(model, path);
    if (!text_table_load(&t, path, 1u << 24, columns, 4, failure))
        complain(1, PROGRAM " --out leaves a file beside a model: ", failure);
    fine = t.rows > KNOWN && !t.skipped && text_same(text_cell(&t, 0, 1), text_of(PROGRAM));
    for (i = 0; fine && i < KNOWN; i++) fine = text_same(text_cell(&t, i, 0), text_of(words[i]));
    for (i = 1; fine && i < 3; i++)
        fine = text_number(text_cell(&t, i, 1), &number[i - 1]) && number[i - 1] >= 1 && number[i - 1] < 1e6;
    if (!fine) complain(1, "not what " PROGRAM " --out leaves: ", path);
    window = (size_t)number[0];
    horizon = (size_t)number[1];
    is_complex = text_same(text_cell(&t, 3, 1), text_of("complex"));
    C = t.rows - KNOWN;
    text_slice *names = (text_slice *)take(C, sizeof *names);
    mean = (double *)take(C, sizeof *mean);
    deviation = (double *)take(C, sizeof *deviation);
    for (i = 0; i < C; i++) {
        names[i] = text_cell(&t, KNOWN + i, 1);
        if (!text_number(text_cell(&t, KNOWN + i, 2), &mean[i]) || !isfinite(mean[i]) ||
            !text_number(text_cell(&t, KNOWN + i, 3), &deviation[i]) || !isfinite(deviation[i]) ||
            !(deviation[i] > 0))
            complain(1, "mean or deviation of a column is no number in ", path);
    }
    must(series_load(&data, csv, MOST_BYTES, names, C, failure));
    free(names);
    text_table_close(&t);
}

/* Prints a CSV of the steps behind the data, which lie so far from its last row [horizon, channels]. */
static void print_steps(const cmha_real *apart) {
    size_t C = data.channels, i;
    printf("step");
    for (i = 0; i < C; i++) {
        text_slice from = data.names[i];
        char *name = (char *)take(from.n + 1, 1), *to = name;
        for (size_t k = 0; k < from.n; k++) { /* a doubled quotation mark of the CSV is one */
            *to++ = from.at[k];
            k += from.at[k] == '"' && k + 1 < from.n && from.at[k + 1] == '"';
        }
        putchar(',');
        print_cell(name);
        free(name);
    }
    for (i = 0; i < horizon * C; i++) {
        double from = (double)x[(data.steps - 1) * C + i % C];
        if (i % C == 0) printf("\n%zu", i / C + 1);
        printf(",%.7g", (from + (double)apart[i]) * deviation[i % C] + mean[i % C]);
    }
    putchar('\n');
}

/* Says what comes behind a CSV, in its units. */
static void predict(const char *csv) {
    cmha_model model;
    cmha_batch b;
    char line[160];
    const char *path = option[MODEL].value;
    check(cmha_model_open(&model, &ctx, path));
    open_columns(path, csv);
    mc = model.config;
    size_t C = data.channels, i;
    if (mc.tokens || mc.features != C || mc.values / C != horizon || mc.values % C ||
        (mc.complex_features != 0) != is_complex || mc.gaussian)
        complain(1, "another model than that of its file .columns: ", path);
    snprintf(line, sizeof line, "%zu rows are too few for a window of %zu: ", data.steps, window);
    if (data.steps < window) complain(1, line, csv);
    normalise();
    cmha_real *features = (cmha_real *)take(times(times(window, C), 2), sizeof *features);
    cmha_real *said = (cmha_real *)take(times(window, mc.values), sizeof *said), *last;
    memset(&b, 0, sizeof b);
    b.features = features;
    b.batch = 1;
    b.length = window;
    write_window(data.steps, features);
    check(cmha_model_predict(&model, &b, said));
    last = said + (window - 1) * mc.values;
    for (i = 0; i < mc.values; i++)
        if (!isfinite(last[i])) complain(1, "what the model says is no number, of ", csv);
    print_steps(last);
    free(features);
    free(said);
    cmha_model_close(&model);
}

/* ---- The program ---- */

static int help(void) {
    const char *kind;
    puts("forecast [OPTION...] FILE.csv: forecasts time series of many channels\n"
         "forecast [OPTION...] --model OUT --predict FILE.csv: writes the steps behind a file\n");
    print_options(option, N_OPTIONS, 12, 9);
    printf("\nKinds of attention:");
    for (size_t i = 0; (kind = cmha_kind_name(i, NULL)) != NULL; i++) printf(" %s", kind);
    puts("");
    return end_help("build/forecast --attention cmha --out build/ett.safetensors ETTh1.csv");
}

/* Loads the CSV with the columns that --columns names. */
static void load(const char *path) {
    const char *at = option[COLUMNS].value;
    size_t n = 0, length;
    text_slice *names = at ? (text_slice *)take(strlen(at) + 1, sizeof *names) : NULL;
    while (at) {
        length = strcspn(at, ",");
        names[n].at = at;
        names[n++].n = length;
        at = at[length] ? at + length + 1 : NULL;
    }
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++)
            if (text_same(names[i], names[j]))
                complain(2, "a column comes twice in ", option[COLUMNS].value);
    must(series_load(&data, path, MOST_BYTES, names, n, failure));
    free(names);
}

/* Configures the model for the data. */
static void configure(char *const *settings, int n_set) {
    const settable both[2] = {{cmha_model_table(), &mc}, {cmha_trainer_table(), &tc}};
    check(cmha_preset(&ctx, "tiny", &mc, &tc));
    check(cmha_config_set_all(&ctx, cmha_model_table(), &mc,
                              "tokens=0 vocabulary=0 n_layers=2 d_model=64 d_ff=128"));
    check(cmha_config_set_all(&ctx, cmha_trainer_table(), &tc, "batch=32 lr=2e-3 weight_decay=0.05"));
    set_kind(option[ATTENTION].value, &mc);
    mc.complex_features = is_complex;
    mc.features = data.channels;
    mc.values = times(horizon, data.channels);
    mc.max_positions = tc.length = window;
    tc.steps = whole_of(&option[STEPS], 1, 100000000);
    refuse_settled("--steps decides it", NULL, settings, n_set);
    set_fields(both, 2, settings, n_set);
    if (!mc.causal) complain(2, "an encoder (causal=0) sees what it should predict", "");
    if (mc.gaussian || mc.classes || mc.values != times(horizon, data.channels) ||
        mc.features != data.channels)
        complain(2, "gaussian, classes, values and features are the program's own fields", "");
    is_complex = mc.complex_features != 0;
}

/* Trains, tests and saves. */
static void run(const char *path, char *const *settings, int n_set) {
    cmha_model model;
    cmha_trainer trainer;
    char line[200];
    load(path);
    if (option[OUT].value) check_names();
    size_t n = data.steps, train = n / 10 * 7 + n % 10 * 7 / 10, test = n - n / 5;
    snprintf(line, sizeof line, "%zu rows are too few for window %zu, horizon %zu and season %zu: ", n,
             window, horizon, season);
    if (train < window + horizon || test - train < horizon || n - test < horizon || train < season)
        complain(1, line, path);
    measure(train);
    normalise();
    configure(settings, n_set);
    check(cmha_model_init(&model, &ctx, &mc));
    check(cmha_trainer_init(&trainer, &model, &tc));
    learn_windows(&trainer, &model, train, test);
    errors e = judge_windows(&model, test, n, 1);
    print_errors(&e);
    if (option[OUT].value) {
        save_columns(option[OUT].value);
        check(cmha_model_save(&model, option[OUT].value));
    }
    cmha_trainer_close(&trainer);
    cmha_model_close(&model);
}

int main(int argc, char **argv) {
    int n_set = 0;
    start_program(argv);
    const char *file = read_options(option, N_OPTIONS, 1u << QUIET | 1u << HELP, argc, argv, &n_set);
    window = (size_t)whole_of(&option[WINDOW], 1, 100000);
    horizon = (size_t)whole_of(&option[HORIZON], 1, 100000);
    season = (size_t)whole_of(&option[SEASON], 1, 1000000);
    is_complex = !strcmp(option[FEATURES].value, "complex");
    if (!is_complex && strcmp(option[FEATURES].value, "real"))
        complain(2, "--features is real or complex, not ", option[FEATURES].value);
    open_context(&option[SEED], &option[THREADS], option[HELP].value != NULL);
    if (option[HELP].value) return help();
    if (!option[MODEL].value != !option[PREDICT].value)
        complain(2, "--model and --predict need each other", "");
    if (option[PREDICT].value && (file || option[OUT].value || option[COLUMNS].value || n_set))
        complain(2, "--predict goes with --model alone, and the file follows it; see --help", "");
    if (option[PREDICT].value)
        refuse_given(option, (1u << THREADS) - 1, " is the model's own: not with --predict");
    if (!file && !option[PREDICT].value) complain(2, "name a CSV; see --help", "");
    if (option[OUT].value) check_out(option[OUT].value, file);
    if (option[PREDICT].value) predict(option[PREDICT].value);
    else run(file, argv + 1, n_set);
    free(x);
    free(mean);
    free(deviation);
    series_close(&data);
    cmha_context_close(&ctx);
    return end_program(0);
}
