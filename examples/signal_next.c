/* Predicts how a radio signal goes on, frame by frame:
       cc -O3 -march=native -fopenmp -I. examples/signal_next.c -o build/signal_next -lopenblas -lm
       build/signal_next [OPTION...] FILE                                 (--help lists everything)
   FILE is what examples/signal_data.c writes. A causal model reads frames of complex samples and says the
   next one's mean and variance, sample by sample, Re and Im; it learns by the Gaussian likelihood. Beside it
   stand the last frame again and linear prediction from the last two frames, fitted by least squares to the
   same data. At the end a signal is streamed: one frame at a time into a cache, as a receiver would. */
#define CMHA_IMPLEMENTATION
#include "cmha.h"

#define PROGRAM "signal_next"
#include "tools/options.h"
#include "tools/text.h"
#include "tools/sequences.h"
#include "tools/signals.h"

enum { ATTENTION, FRAME, EPOCHS, SEED, THREADS, SAVE, QUIET, HELP, SET, N_OPTIONS };
static setting option[N_OPTIONS] = {
    {"--attention", "rope", "a kind of the list below"},
    {"--frame", "8", "complex samples of a frame"},
    {"--epochs", "12", "passes over the training signals"},
    {"--seed", "1", "of the weights and the order of the signals"},
    {"--threads", "0", "0 = every core"},
    {"--save", NULL, "writes the model there, as examples/stream.c carries it along"},
    {"--quiet", NULL, "no progress, only the table"},
    {"--help", NULL, "this page"},
    {"--set", NULL,
     "NAME=VALUE for any field of the model or the training (train_tiny --help lists them); may be "
     "repeated"}};

/* ---- Linear prediction: 2 V numbers of the last two frames times a matrix give the V of the next ---- */

/* Solves (A + tiny) X = B for symmetric A [n, n] by Cholesky's decomposition; B [n, m] becomes X. */
static void solve(double *A, double *B, size_t n, size_t m) {
    size_t i, j, k;
    for (i = 0; i < n; i++) A[i * n + i] += 1e-6 * A[i * n + i] + 1e-12;
    for (j = 0; j < n; j++)
        for (i = j; i < n; i++) {
            double sum = A[i * n + j];
            for (k = 0; k < j; k++) sum -= A[i * n + k] * A[j * n + k];
            A[i * n + j] = i == j ? sqrt(fmax(sum, 1e-30)) : sum / A[j * n + j];
        }
    for (i = 0; i < n; i++) /* forward, then back */
        for (k = 0; k < m; B[i * m + k++] /= A[i * n + i])
            for (j = 0; j < i; j++) B[i * m + k] -= A[i * n + j] * B[j * m + k];
    for (i = n; i-- > 0;)
        for (k = 0; k < m; B[i * m + k++] /= A[i * n + i])
            for (j = i + 1; j < n; j++) B[i * m + k] -= A[j * n + i] * B[j * m + k];
}

/* Returns the matrix [2 V, V] that predicts the training signals best. */
static double *fit_linear(const sequences *s, size_t V) {
    size_t n = 2 * V, at, i, j;
    double *A = take(n * n, sizeof *A), *B = take(n * V, sizeof *B);
    for (at = 0; at + 2 < s->begin[s->n]; at++) {
        const cmha_real *x = s->x + at * V; /* two frames, and the next at x + 2 V */
        if (at % s->longest + 2 >= s->longest) continue;
        for (i = 0; i < n; i++) {
            for (j = 0; j <= i; j++) A[i * n + j] += (double)x[i] * (double)x[j];
            for (j = 0; j < V; j++) B[i * V + j] += (double)x[i] * (double)x[n + j];
        }
    }
    for (i = 0; i < n; i++)
        for (j = 0; j < i; j++) A[j * n + i] = A[i * n + j];
    solve(A, B, n, V);
    free(A);
    return B;
}

/* ---- The model ---- */

/* Gives a batch its targets: of each frame the next, of the last none. */
static void add_targets(cmha_batch *b, size_t V, cmha_real *targets) {
    for (size_t i = 0; i < b->batch * b->length * V; i++)
        targets[i] = i / V % b->length + 1 < b->length ? b->features[i + V] : (cmha_real)NAN;
    b->values = targets, b->labels = NULL;
}

static void train(cmha_trainer *trainer, uint64_t epochs, cmha_real *targets) {
    const sequences *s = &part[0];
    double start = seconds(), loss, sum;
    for (uint64_t e = 1; e <= epochs; e++) {
        arrange(s, e), sum = 0;
        for (size_t first = 0; first < s->n; first += tc.batch) {
            cmha_batch b = lay_out(s, first, NULL);
            add_targets(&b, row_of(s), targets);
            check(cmha_trainer_step_batch(trainer, &b, &loss)), sum += loss * (double)b.batch;
        }
        show_progress(&option[QUIET], option[ATTENTION].value, "", e, epochs, sum / (double)s->n, start);
    }
}

/* Prints the mean squared errors on the test signals from their third frame on, over the signals' power, by
   level. */
static void compare(cmha_model *model, const double *linear) {
    const sequences *s = &part[2];
    size_t V = row_of(s), L = s->longest, first, i, t, j, k, l;
    double error[MOST_LEVELS][3] = {{0}}, power[MOST_LEVELS] = {0};
    cmha_real *said = take(tc.batch * L * 2 * V, sizeof *said);
    for (first = 0; first < s->n; first += tc.batch) {
        for (i = first; i < s->n && i < first + tc.batch; i++) room.order[i] = i;
        cmha_batch b = lay_out(s, first, NULL);
        check(cmha_model_predict(model, &b, said));
        for (i = 0; i < b.batch; i++) {
            for (l = 0; level[l] < (double)levels[first + i];) l++;
            for (t = 1; t + 1 < L; t++)
                for (j = 0; j < V; j++) {
                    const cmha_real *x = b.features + (i * L + t) * V;
                    double next = (double)x[V + j], guess = 0;
                    for (k = 0; k < 2 * V; k++) guess += linear[k * V + j] * (double)*(x - V + k);
                    error[l][0] += pow((double)said[(i * L + t) * 2 * V + j] - next, 2);
                    error[l][1] += pow(guess - next, 2), error[l][2] += pow((double)x[j] - next, 2);
                    power[l] += next * next;
                }
        }
    }
    printf("Error of the next frame in dB, against the power of signal and noise\n%-22s", "signal to noise");
    static const char *const of[] = {"the model", "linear prediction", "the last frame again"};
    for (l = 0; l < n_levels; l++) printf(" %6.4g", level[l]);
    for (k = 0; k < 3; k++) {
        printf("\n%-22s", of[k]);
        for (l = 0; l < n_levels; l++) printf(" %6.2f", 10 * log10(error[l][k] / power[l]));
    }
    puts("");
    free(said);
}

/* Reads the first test signal frame by frame and says how far that is from reading it at once. A layer of the
   user's own may need all of it. */
static void stream(cmha_model *model) {
    if (model->score && model->score->whole) {
        complain(0, "not streamed: it needs a cache, which does not serve ", model->score->name);
        return;
    }
    const sequences *s = &part[2];
    size_t V = row_of(s), L = s->longest, t, j;
    cmha_cache cache;
    cmha_batch b = {.features = s->x, .batch = 1, .length = L};
    cmha_real *whole = take((L + 1) * 2 * V, sizeof *whole), *one = whole + L * 2 * V;
    double apart = 0, start, sum = 0;
    check(cmha_model_predict(model, &b, whole));
    check(cmha_cache_init(&cache, model, 1, L, 0, NULL));
    for (t = 0; t < L; t++) {
        start = seconds();
        check(cmha_cache_append_features(&cache, NULL, s->x + t * V, 1, one));
        sum += seconds() - start;
        for (j = 0; j < 2 * V; j++) apart = fmax(apart, fabs((double)(one[j] - whole[t * 2 * V + j])));
    }
    printf("Streamed, %zu frames one by one: within %.1e of all at once, %.0f us each\n", L, apart,
           1e6 * sum / (double)L);
    cmha_cache_close(&cache), free(whole);
}

int main(int argc, char **argv) {
    const settable both[2] = {{cmha_model_table(), &mc}, {cmha_trainer_table(), &tc}};
    const char *kind;
    int n_set = 0;
    start_program(argv);
    const char *path = read_options(option, N_OPTIONS, 1u << QUIET | 1u << HELP, argc, argv, &n_set);
    uint64_t epochs = whole_of(&option[EPOCHS], 1, 100000);
    size_t frame = (size_t)whole_of(&option[FRAME], 1, 1024);
    open_context(&option[SEED], &option[THREADS], option[HELP].value != NULL);
    if (option[HELP].value) {
        puts("signal_next [OPTION...] FILE: predicts how radio signals go on\n");
        print_options(option, N_OPTIONS, 12, 9), printf("\nKinds of attention:");
        for (size_t i = 0; (kind = cmha_kind_name(i, NULL)) != NULL; i++) printf(" %s", kind);
        puts("");
        return end_help("build/signal_next --attention cmha signal.safetensors");
    }
    if (!path) complain(2, "name a file of signal_data; see --help", "");
    refuse_replacing(option[SAVE].name, option[SAVE].value, &path, 1);
    if (option[SAVE].value) must(text_may_save(option[SAVE].value, failure));
    read_signals(path, frame, frame);
    if (part[0].longest < 3) complain(2, "--frame leaves fewer than three frames of a signal in ", path);
    check(cmha_preset(&ctx, "tiny", &mc, &tc));
    check(cmha_config_set_all(&ctx, cmha_model_table(), &mc, "tokens=0 vocabulary=0 complex_features=1 "
                              "gaussian=1 n_layers=2 d_model=64 d_ff=128"));
    check(cmha_config_set_all(&ctx, cmha_trainer_table(), &tc, "batch=64 lr=2e-3 weight_decay=0.05"));
    set_kind(option[ATTENTION].value, &mc);
    mc.features = frame, mc.values = 2 * frame, mc.max_positions = tc.length = part[0].longest;
    refuse_settled("--epochs decides it", NULL, argv + 1, n_set);
    set_fields(both, 2, argv + 1, n_set);
    if (!mc.causal) complain(2, "an encoder (causal=0) sees what it should predict", "");
    if (!mc.gaussian || !mc.complex_features || mc.classes || mc.values != 2 * frame || mc.features != frame)
        complain(2, "gaussian, classes, values, features and complex_features are the program's own fields",
                 "");
    tc.steps = times((part[0].n + tc.batch - 1) / tc.batch, (size_t)epochs);

    cmha_model model;
    cmha_trainer trainer;
    size_t V = row_of(&part[0]);
    make_room(part[0].n > part[2].n ? part[0].n : part[2].n, part[0].longest, V);
    cmha_real *targets = take(tc.batch * part[0].longest * V, sizeof *targets);
    check(cmha_model_init(&model, &ctx, &mc)), check(cmha_trainer_init(&trainer, &model, &tc));
    train(&trainer, epochs, targets);
    if (option[SAVE].value) check(cmha_model_save(&model, option[SAVE].value));
    double *linear = fit_linear(&part[0], V);
    compare(&model, linear), stream(&model);
    free(linear), free(targets), close_room(), close_signals();
    cmha_trainer_close(&trainer), cmha_model_close(&model), cmha_context_close(&ctx);
    return end_program(0);
}
