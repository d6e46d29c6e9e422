/* Trains a ComplexFormer on a text, byte by byte:   build/train_tiny [OPTION...] [FILE]     (--help lists everything) */
#define CMHA_IMPLEMENTATION
#include "cmha.h"

#define PROGRAM "train_tiny"
#include "options.h"

#include <signal.h>
#include <sys/time.h>

enum { MODEL, ATTENTION, PRESET, STEPS, LR, SEQ, BATCH, WIDTH, SEED, THREADS, OUT, CSV, RESUME, QUIET, HELP,
       SET, N_OPTIONS };
static setting option[N_OPTIONS] = {
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
    {"--out", "tiny.safetensors", "the best checkpoint by validation loss, else tiny.safetensors; the last state goes to OUT.last"},
    {"--csv", "loss.csv", "a row for every step, else loss.csv"},
    {"--resume", NULL, "continue exactly where OUT.last stopped, on the same FILE; --resume=PATH: from another state"},
    {"--quiet", NULL, "no progress, only the sample"},
    {"--help", NULL, "this page, with the values in effect"},
    {"--set", NULL, "NAME=VALUE for any field below; may be repeated"}};
static cmha_model_config mc;
static cmha_trainer_config tc;
static volatile sig_atomic_t stop; /* the signal that asked to stop */
static char last[4096];            /* where the state of the run is kept */
static struct { char held[8]; size_t n; } sample; /* bytes of a character that is not complete */

static void on_signal(int sig) {
    stop = sig;
    signal(sig, SIG_DFL); /* a second Ctrl-C does not wait */
}

static double seconds(void) {
    struct timeval t;
    gettimeofday(&t, NULL);
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

/* Sets a field of the model or, if it has none of that name, of the trainer. */
static void set(const char *name, const char *value) {
    const place both[2] = {{cmha_model_table(), &mc}, {cmha_trainer_table(), &tc}};
    set_field(both, 2, name, value);
}

/* Takes over the configuration that a checkpoint was trained with, so that --resume needs no other option. */
static void recall(const char *path) {
    cmha_archive archive;
    check(cmha_archive_open(&archive, &ctx, path));
    for (const char **m = archive.metadata; m < archive.metadata + 2 * archive.n_metadata; m += 2)
        if (!strncmp(*m, "cfg.", 4) || !strncmp(*m, "trainer.", 8)) set(strchr(*m, '.') + 1, m[1]);
    cmha_archive_close(&archive);
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
        for (const cmha_field *f = table.fields; f < table.fields + table.count; f++) {
            char value[32], range[64];
            cmha_config_get(table, t ? (void *)&tc : (void *)&mc, (size_t)(f - table.fields), value, sizeof value);
            snprintf(range, sizeof range, "%.10g..%.10g", f->minimum, f->maximum);
            printf("  %-17s %-11s %-29s %s\n", f->name, value, f->choices ? f->choices : range, f->help);
        }
    }
    return end_program(0);
}

/* Reads the command line into `option`, opens the context and settles the configuration; returns FILE or NULL. */
static const char *configure(int argc, char **argv) {
    int n_set = 0, o;
    const uint32_t flags = 1u << RESUME | 1u << QUIET | 1u << HELP;
    const char *file = read_options(option, N_OPTIONS, flags, argc, argv, &n_set);
    open_context(&option[SEED], &option[THREADS], option[HELP].value != NULL);
    if (cmha_preset(option[PRESET].value, &mc, &tc)) complain(2, "see --help; there is no preset ", option[PRESET].value);
    snprintf(last, sizeof last, "%s.last", option[OUT].value);
    if (option[RESUME].value) recall(*option[RESUME].value ? option[RESUME].value : last);
    for (o = MODEL; o <= ATTENTION; o++)
        if (option[o].value && cmha_kind(&ctx, option[o].value, &mc)) complain(2, cmha_error(&ctx), "; see --help");
    for (o = STEPS; o <= BATCH; o++)
        if (option[o].value) set(o == SEQ ? "length" : option[o].name + 2, option[o].value);
    for (int i = 1; i <= n_set; i++) set(argv[i], cut_value(argv[i]));
    if (!mc.causal) complain(2, "an encoder (causal=0) continues no text; build/classify trains those", "");
    if (whole_of(&option[WIDTH], 1, 4) == 1 && mc.vocabulary > 256)
        complain(2, "FILE is read as bytes, 256 tokens; for more, which are numbers, add --width 2 or 4", "");
    return file;
}

/* Prints a byte of the sample, once its character is complete, or with `user` the number of a wider token. */
static int show(void *user, const int32_t *token, size_t batch) {
    (void)batch;
    if (user) return printf("%ld ", (long)*token), stop;
    sample.held[sample.n++] = (char)*token;
    size_t shown = text_show(sample.held, sample.n, 0);
    memmove(sample.held, sample.held + shown, sample.n -= shown);
    return stop;
}

int main(int argc, char **argv) {
    cmha_model model, best = {0}, *sampled = &model; cmha_trainer trainer; cmha_cache cache;
    cmha_tokens text, train, held_out;
    char path[4096], blas[64], seen[32];
    start_program(argv); /* with an OpenBLAS older than this CPU once more, with the right kernel */
    const char *file = configure(argc, argv), *slash = strrchr(argv[0], '/'), *resume = option[RESUME].value;
    if (option[HELP].value) return help();

    /* Without a FILE, a text that is always there: cmha.h, in this folder or above the program's. */
    snprintf(path, sizeof path, "%.*s../cmha.h", slash ? (int)(slash - argv[0] + 1) : 0, argv[0]);
    if (!file) file = access("cmha.h", R_OK) ? path : "cmha.h";
    int width = (int)whole_of(&option[WIDTH], 1, 4);
    check(cmha_tokens_load(&text, &ctx, file, width));
    check(cmha_model_init(&model, &ctx, &mc)), check(cmha_trainer_init(&trainer, &model, &tc));
    if (resume) check(cmha_trainer_load(&trainer, *resume ? resume : last));
    cmha_trainer_split(&trainer, &text, &train, &held_out);
    FILE *csv = fopen(option[CSV].value, resume ? "a" : "w");
    if (!csv) complain(1, "cannot write ", option[CSV].value);
    if (!resume || (!fseek(csv, 0, SEEK_END) && !ftell(csv)))
        fputs("step,loss,val_loss,lr,grad_norm,tokens_per_s\n", csv);
    if (fflush(csv)) complain(1, "cannot write ", option[CSV].value);
    int bad = 0, terminal = isatty(1), quiet = option[QUIET].value != NULL;
    cmha_blas_name(blas, sizeof blas);
    if (!quiet)
        printf("%s, %zu %s; %zu parameters; %s, %d threads\n", file, text.count,
               width > 1 ? "tokens" : "bytes", model.size, blas, ctx.threads);
    signal(SIGINT, on_signal), signal(SIGTERM, on_signal);

    double loss, val, start = seconds();
    for (size_t first = trainer.step; trainer.step < tc.steps && !stop;) {
        double before = seconds();
        cmha_status status = cmha_trainer_step(&trainer, &train, &loss);
        bad = status == CMHA_ERR_NOT_FINITE ? bad + 1 : 0;
        if (bad && bad < 10) { complain(0, "step skipped: ", cmha_error(&ctx)); continue; }
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
        if (fflush(csv)) complain(1, "cannot write ", option[CSV].value);
        if (measure) {
            if (val < trainer.best) trainer.best = val, sampled = &best, check(cmha_trainer_save(&trainer, option[OUT].value));
            check(cmha_trainer_save(&trainer, last));
        }
        if (quiet || !(terminal || measure || trainer.step % 20 == 0)) continue;
        int eta = (int)((seconds() - start) / (double)(trainer.step - first) * (double)(tc.steps - trainer.step));
        printf("%sstep %zu/%zu  loss %.4f%s%s  %.0f tokens/s  ETA %d:%02d:%02d  %s", terminal ? "\r" : "",
               trainer.step, tc.steps, loss, measure ? "  validation " : "", seen, speed, eta / 3600,
               eta / 60 % 60, eta % 60, measure || !terminal ? "\n" : "");
        fflush(stdout);
        line_open = terminal && !measure;
    }
    if (fclose(csv)) complain(1, "cannot write ", option[CSV].value);
    if (stop) check(cmha_trainer_save(&trainer, last)), complain(128 + stop, "stopped; --resume continues", "");

    /* A sample of this run's best checkpoint. It looks back as far as training did: further is further than the model has seen. */
    if (sampled == &best) check(cmha_model_load(&best, &ctx, option[OUT].value));
    size_t n = sampled->position_weight && tc.length < 600 ? tc.length : 600;
    check(cmha_cache_init(&cache, sampled, 1, tc.length, !sampled->position_weight));
    int32_t begin = width == 1 && mc.vocabulary > '\n' ? '\n' : cmha_tokens_at(&text, 0);
    cmha_status status =
        cmha_generate(&cache, &begin, 1, n - 1, NULL, ctx.config.seed, show, width > 1 ? &sample : NULL);
    if (status != CMHA_STOPPED) check(status);
    text_show(sample.held, sample.n, 1), putchar('\n');
    cmha_cache_close(&cache), cmha_model_close(&best);
    cmha_trainer_close(&trainer), cmha_model_close(&model), cmha_tokens_close(&text), cmha_context_close(&ctx);
    return end_program(stop ? 128 + stop : 0);
}
