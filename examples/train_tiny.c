/* Trains a ComplexFormer on a text, byte by byte, and prints a sample; --help lists everything.
       cc -O3 -march=native -fopenmp -I. examples/train_tiny.c -o train_tiny -lopenblas -lm
       ./train_tiny [OPTION...] [FILE] */
#define CMHA_IMPLEMENTATION
#include "cmha.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>
#include <wchar.h>
#include <wctype.h>

enum { MODEL, ATTENTION, PRESET, STEPS, LR, SEQ, BATCH, WIDTH, SEED, THREADS, OUT, CSV, RESUME, QUIET, HELP,
       FREEZE, RATE, SET, N_OPTIONS };
static struct { const char *name, *value, *what;
} option[N_OPTIONS] = {
    {"--model", NULL, "one of the kinds below"},
    {"--attention", NULL, "the same"},
    {"--preset", "tiny", "tiny | paper | repo | eulerformer | crat"},
    {"--steps", NULL, "optimiser steps"},
    {"--lr", NULL, "peak learning rate"},
    {"--seq", NULL, "tokens per sequence (the field `length`)"},
    {"--batch", NULL, "sequences per forward pass"},
    {"--width", "1", "bytes of a token in FILE, else 1; 2 or 4: numbers, little endian, in the vocabulary"},
    {"--seed", "1", "of the weights, the batches and the sample; else 1"},
    {"--threads", "0", "0 = every core"},
    {"--out", "tiny.safetensors",
     "the best checkpoint by validation loss, else tiny.safetensors; the last state goes to OUT.last"},
    {"--csv", "loss.csv", "a row for every step, else loss.csv"},
    {"--resume", NULL,
     "continue exactly where OUT.last stopped, on the same FILE; --resume=PATH: from another state"},
    {"--quiet", NULL, "no progress, only the sample"},
    {"--help", NULL, "this page, with the values in effect"},
    {"--freeze", NULL, "PATTERN: parameters that stay as they are, as in 'blocks.0.*'; may be repeated"},
    {"--rate", NULL,
     "PATTERN=X: parameters that learn X times as fast, as in '*.delta=0.1'; may be repeated"},
    {"--set", NULL, "NAME=VALUE for any field below; may be repeated"}};
static char *tuned[64]; /* patterns of --freeze; those of --rate with =X */
static int n_tuned;
static cmha_context ctx;
static cmha_model_config mc;
static cmha_trainer_config tc;
static volatile sig_atomic_t stop; /* the signal that asked to stop */
static char last[4096];            /* where the state of the run is kept */
static int line_open;              /* the terminal's cursor stands behind something */

static void on_signal(int sig) {
    stop = sig;
    signal(sig, SIG_DFL); /* a second Ctrl-C does not wait */
}

static double seconds(void) {
    struct timeval t;
    gettimeofday(&t, NULL);
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

/* Prints one line on stderr; then ends the program unless status is 0. 1: it failed, 2: wrong usage. */
static void complain(int status, const char *format, ...) {
    char line[512];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    for (char *c = line; *c; c++) *c = (unsigned char)*c < 32 || *c == 127 ? '?' : *c;
    fprintf(stderr, "%strain_tiny: %s\n", line_open ? "\n" : "", line);
    line_open = 0;
    if (status) exit(status);
}

static void check(cmha_status status) {
    if (status) complain(1, "%s", cmha_error(&ctx));
}

static void on_log(void *user, cmha_log_level level, const char *line) {
    (void)user;
    if (level == CMHA_LOG_WARNING) complain(0, "warning: %s", line);
}

/* Counts the letters that two names share at both ends, less those of the longer one that they do not. */
static int likeness(const char *a, const char *b) {
    int n = (int)strlen(a), m = (int)strlen(b), begin = 0, end = 0;
    while (begin < n && a[begin] == b[begin]) begin++;
    while (end < n - begin && end < m - begin && a[n - 1 - end] == b[m - 1 - end]) end++;
    return 2 * (begin + end) - (n > m ? n : m);
}

/* Complains of a name that is none, and tells the nearest option or field. */
static void unknown(const char *what, const char *wrong) {
    const cmha_table table[2] = {cmha_model_table(), cmha_trainer_table()};
    const char *nearest = "";
    for (int t = 0, most = 0; t < 3; t++)
        for (size_t i = 0; i < (t < 2 ? table[t].count : N_OPTIONS); i++) {
            const char *name = t < 2 ? table[t].fields[i].name : option[i].name;
            if (likeness(wrong, name) > most) most = likeness(wrong, name), nearest = name;
        }
    complain(2, "%s %.60s%s%s; see --help", what, wrong, *nearest ? ", the nearest is " : "", nearest);
}

/* Sets a field of the model or, if it has none of that name, of the trainer. */
static void set(const char *name, const char *value) {
    cmha_status status = cmha_config_set(&ctx, cmha_model_table(), &mc, name, value);
    if (status == CMHA_ERR_NOT_FOUND)
        status = cmha_config_set(&ctx, cmha_trainer_table(), &tc, name, value);
    if (status == CMHA_ERR_NOT_FOUND) unknown("neither model nor training has a field", name);
    if (status) complain(2, "%s", cmha_error(&ctx));
}

/* The value of an option that is a whole number from `least` to `most`. */
static uint64_t whole(int o, uint64_t least, uint64_t most) {
    const char *value = option[o].value;
    char *end;
    errno = 0;
    uint64_t n = strtoull(value, &end, 10);
    if (*value < '0' || *value > '9' || *end || errno || n < least || n > most)
        complain(2, "%s is a whole number from %llu to %llu, not %.40s", option[o].name,
                 (unsigned long long)least, (unsigned long long)most, value);
    return n;
}

/* Takes over the configuration that a checkpoint was trained with, so that --resume needs no other option. */
static void recall(const char *path) {
    cmha_archive archive;
    check(cmha_archive_open(&archive, &ctx, path));
    for (const char **m = archive.metadata; m < archive.metadata + 2 * archive.n_metadata; m += 2)
        if (!strncmp(*m, "cfg.", 4) || !strncmp(*m, "trainer.", 8)) set(strchr(*m, '.') + 1, m[1]);
    cmha_archive_close(&archive);
}

/* Does what --freeze and --rate ask for. */
static void tune(cmha_model *model) {
    for (int i = 0; i < n_tuned; i++) {
        char *sign = strchr(tuned[i], '='), *end;
        double rate = sign ? *sign = 0, strtod(sign + 1, &end) : 1;
        if (sign && (end == sign + 1 || *end)) complain(2, "--rate %s=X: X is no number", tuned[i]);
        check(cmha_parameters_tune(&model->parameters, tuned[i], sign ? CMHA_TUNE_RATE : CMHA_TUNE_FROZEN,
                                   rate, NULL));
    }
}

/* Last thing: what was printed has to have arrived. */
static int end(int status) {
    int failed = ferror(stdout);
    if (fclose(stdout) || failed) complain(1, "cannot write to the standard output");
    return status;
}

static int help(void) {
    puts("train_tiny [OPTION...] [FILE]: trains a ComplexFormer on the bytes of FILE, else on the project's\n"
         "header, and prints a sample; on a terminal control characters and non-UTF-8 show as \\xNN\n");
    for (int o = 0; o < N_OPTIONS; o++) printf("  %-12s %s\n", option[o].name, option[o].what);
    puts("\nKinds of attention, and the fields they set (causal=0: for encoders only)");
    const char *kind, *fields;
    for (size_t i = 0; (kind = cmha_kind_name(i, &fields)) != NULL; i++) printf("  %-17s %s\n", kind, fields);
    for (int t = 0; t < 2; t++) {
        cmha_table table = t ? cmha_trainer_table() : cmha_model_table();
        printf("\n%s: field, value, range, meaning\n", t ? "Training" : "Model");
        for (size_t f = 0; f < table.count; f++) {
            const cmha_field *field = &table.fields[f];
            char value[32], range[64];
            cmha_config_get(table, t ? (void *)&tc : (void *)&mc, field->name, value, sizeof value);
            snprintf(range, sizeof range, "%.10g..%.10g", field->minimum, field->maximum);
            printf("  %-17s %-11s %-29s %s\n", field->name, value, field->choices ? field->choices : range,
                   field->help);
        }
    }
    return end(0);
}

/* Reads the command line into `option`; the arguments of --set gather in argv[1 ..], *n_set of them. Returns
   FILE or NULL. */
static const char *read_options(int argc, char **argv, int *n_set) {
    const char *file = NULL;
    for (int i = 1, o; i < argc; i++) {
        size_t n = strcspn(argv[i], "=");
        for (o = 0; o < N_OPTIONS; o++)
            if (!strncmp(option[o].name, argv[i], n) && !option[o].name[n]) break;
        if (o == N_OPTIONS && (file || *argv[i] == '-')) {
            argv[i][n] = 0;
            unknown(*argv[i] == '-' ? "there is no option" : "one file is enough, what is", argv[i]);
        } else if (o == N_OPTIONS) {
            file = argv[i];
            continue;
        }
        int flag = o == RESUME || o == QUIET || o == HELP;
        char *value = argv[i][n] ? argv[i] + n + 1 : flag ? argv[i] + n : argv[++i];
        if (!value) complain(2, "a value is missing after %s", option[o].name);
        if ((o == FREEZE || o == RATE) && (n_tuned == 64 || (strchr(value, '=') != NULL) != (o == RATE)))
            complain(2, "%s: %s", option[o].name, n_tuned == 64 ? "64 are enough" : option[o].what);
        if (o == SET) argv[1 + (*n_set)++] = value;
        else if (o == FREEZE || o == RATE) tuned[n_tuned++] = value;
        else option[o].value = value;
    }
    return file;
}

/* Opens the context and settles the configuration; returns FILE or NULL. */
static const char *configure(int argc, char **argv) {
    const char *kernel = getenv("OPENBLAS_CORETYPE");
    cmha_context_config config = {0};
    int n_set = 0, o;
    const char *file = read_options(argc, argv, &n_set);
    config.seed = whole(SEED, 0, UINT64_MAX), config.threads = (int)whole(THREADS, 0, 1024);
    /* Warn of a slow kernel, but not who chose it, nor where nothing is computed. */
    if (!option[HELP].value && !(kernel && *kernel)) config.log = on_log;
    check(cmha_context_init(&ctx, &config));
    if (cmha_preset(NULL, option[PRESET].value, &mc, &tc))
        complain(2, "see --help; there is no preset %s", option[PRESET].value);
    snprintf(last, sizeof last, "%s.last", option[OUT].value);
    if (option[RESUME].value) recall(*option[RESUME].value ? option[RESUME].value : last);
    for (o = MODEL; o <= ATTENTION; o++)
        if (option[o].value && cmha_kind(&ctx, option[o].value, &mc))
            complain(2, "%s; see --help", cmha_error(&ctx));
    for (o = STEPS; o <= BATCH; o++)
        if (option[o].value) set(o == SEQ ? "length" : option[o].name + 2, option[o].value);
    for (int i = 1; i <= n_set; i++) {
        char *sign = strchr(argv[i], '=');
        if (sign) *sign = 0;
        set(argv[i], sign ? sign + 1 : "");
    }
    if (!mc.causal) complain(2, "an encoder (causal=0) continues no text; build/classify trains those");
    if (whole(WIDTH, 1, 4) == 1 && mc.vocabulary > 256)
        complain(2, "FILE is read as bytes, 256 tokens; for more, which are numbers, add --width 2 or 4");
    return file;
}

/* Prints the tokens of the sample as they come; `user`: as numbers. NULL ends it. On a terminal control
   characters and bytes that are no UTF-8 show as \xNN, and a character waits for its last byte. */
static int show(void *user, const int32_t *token, size_t batch) {
    static char held[8];
    static size_t n;
    (void)batch;
    if (user && token) printf("%ld ", (long)*token);
    else if (token) held[n++] = (char)*token;
    while (n) {
        wchar_t c = 0;
        size_t length = mbrtowc(&c, held, n, &(mbstate_t){0});
        if (length == (size_t)-2 && token && isatty(1)) break;
        int plain = length <= n && (!iswcntrl((wint_t)c) || c == '\n' || c == '\t');
        if (length > n || !length) length = 1;
        for (size_t i = 0; i < length; i++)
            printf(plain || !isatty(1) ? "%c" : "\\x%02x", (unsigned char)held[i]);
        memmove(held, held + length, n -= length);
    }
    return stop;
}

int main(int argc, char **argv) {
    cmha_model model, best = {0}, *sampled = &model; cmha_trainer trainer; cmha_cache cache;
    cmha_tokens text, train, held_out;
    char path[4096], blas[64], seen[32];
    int bad = 0, terminal = isatty(1), fd;
    do fd = open("/dev/null", O_RDONLY); /* in the place of standard streams that the caller has closed */
    while (fd >= 0 && fd < 3);
    close(fd);
    if (!setlocale(LC_CTYPE, "C.UTF-8")) setlocale(LC_CTYPE, "");
    cmha_blas_restart(argv); /* with an OpenBLAS older than this CPU once more, with the right kernel */
    const char *file = configure(argc, argv), *slash = strrchr(argv[0], '/'), *resume = option[RESUME].value;
    int quiet = option[QUIET].value != NULL;
    if (option[HELP].value) return help();

    /* Without a FILE, a text that is always there: cmha.h, in this folder or above the program's. */
    snprintf(path, sizeof path, "%.*s../cmha.h", slash ? (int)(slash - argv[0] + 1) : 0, argv[0]);
    if (!file) file = access("cmha.h", R_OK) ? path : "cmha.h";
    int width = (int)whole(WIDTH, 1, 4);
    check(cmha_tokens_open(&text, &ctx, file, width));
    if (resume && n_tuned) complain(2, "--freeze, --rate: with --resume they are those of the state");
    check(cmha_model_init(&model, &ctx, &mc)), tune(&model), check(cmha_trainer_init(&trainer, &model, &tc));
    if (resume) check(cmha_trainer_read(&trainer, *resume ? resume : last));
    cmha_trainer_split(&trainer, &text, &train, &held_out);
    FILE *csv = fopen(option[CSV].value, resume ? "a" : "w");
    if (!csv) complain(1, "cannot write %s", option[CSV].value);
    if (!resume || (!fseek(csv, 0, SEEK_END) && !ftell(csv)))
        fputs("step,loss,val_loss,lr,grad_norm,tokens_per_s\n", csv);
    if (fflush(csv)) complain(1, "cannot write %s", option[CSV].value);
    cmha_blas_name(blas, sizeof blas);
    if (!quiet)
        printf("%s, %zu %s; %zu parameters, %zu of them learn; %s, %d threads\n", file, text.count,
               width > 1 ? "tokens" : "bytes", model.parameters.size, model.parameters.learning, blas,
               ctx.threads);
    signal(SIGINT, on_signal), signal(SIGTERM, on_signal);

    double loss, val, start = seconds();
    for (size_t first = trainer.step; trainer.step < tc.steps && !stop;) {
        double before = seconds();
        cmha_status status = cmha_trainer_step(&trainer, &train, &loss);
        bad = status == CMHA_ERR_NOT_FINITE ? bad + 1 : 0;
        if (bad && bad < 10) { complain(0, "step skipped: %s", cmha_error(&ctx)); continue; }
        check(status);
        double speed = (double)tc.batch * (double)tc.length * (double)tc.accumulate / (seconds() - before);
        int measure = trainer.step % tc.eval_every == 0 || trainer.step == tc.steps;
        *seen = 0;
        if (measure) {
            check(cmha_trainer_evaluate(&trainer, held_out.count > 1 ? &held_out : &train, &val));
            snprintf(seen, sizeof seen, "%.5f", val);
        }
        fprintf(csv, "%zu,%.6f,%s,%.4e,%.4f,%.0f\n", trainer.step, loss, seen, trainer.lr, trainer.grad_norm,
                speed);
        /* in whole rows, should the run be killed */
        if (fflush(csv)) complain(1, "cannot write %s", option[CSV].value);
        if (measure) {
            if (val < trainer.best)
                trainer.best = val, sampled = &best, check(cmha_trainer_save(&trainer, option[OUT].value));
            check(cmha_trainer_save(&trainer, last));
        }
        if (quiet || !(terminal || measure || trainer.step % 20 == 0)) continue;
        double each = (seconds() - start) / (double)(trainer.step - first);
        int eta = (int)(each * (double)(tc.steps - trainer.step));
        printf("%sstep %zu/%zu  loss %.4f%s%s  %.0f tokens/s  ETA %d:%02d:%02d  %s", terminal ? "\r" : "",
               trainer.step, tc.steps, loss, measure ? "  validation " : "", seen, speed, eta / 3600,
               eta / 60 % 60, eta % 60, measure || !terminal ? "\n" : "");
        fflush(stdout);
        line_open = terminal && !measure;
    }
    if (fclose(csv)) complain(1, "cannot write %s", option[CSV].value);
    if (stop)
        check(cmha_trainer_save(&trainer, last)), complain(128 + stop, "stopped; --resume continues", "");

    /* A sample of this run's best checkpoint. It looks back as far as training did: further is
       further than the model has seen. */
    if (sampled == &best) check(cmha_model_open(&best, &ctx, option[OUT].value));
    size_t n = sampled->position_weight && tc.length < 600 ? tc.length : 600;
    check(cmha_cache_init(&cache, sampled, 1, tc.length, !sampled->position_weight, NULL));
    int32_t begin = width == 1 && mc.vocabulary > '\n' ? '\n' : cmha_tokens_at(&text, 0);
    cmha_status status =
        cmha_generate(&cache, &begin, 1, n - 1, NULL, ctx.config.seed, show, width > 1 ? &width : NULL);
    if (status != CMHA_STOPPED) check(status);
    show(NULL, NULL, 1), putchar('\n');
    cmha_cache_close(&cache), cmha_model_close(&best);
    cmha_trainer_close(&trainer), cmha_model_close(&model);
    cmha_tokens_close(&text), cmha_context_close(&ctx);
    return end(stop ? 128 + stop : 0);
}
