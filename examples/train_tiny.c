/* Trains a ComplexFormer on a text, byte by byte, and prints a sample; --help lists everything.
       cc -O3 -march=native -fopenmp -I. examples/train_tiny.c -o train_tiny -lopenblas -lm
       ./train_tiny [OPTION...] [FILE]
   By mpicc with -DWITH_MPI it is train_mpi (make mpi): several processes, one model. */
#define CMHA_IMPLEMENTATION
#include "cmha.h"

#ifdef WITH_MPI
#define PROGRAM "train_mpi"
#else
#define PROGRAM "train_tiny"
#endif
#include "tools/ranks.h" /* options.h and codec.h with it */
#include "tools/losses.h"
#include "tools/minutes.h"

#include <math.h>
#include <signal.h>

enum { MODEL, ATTENTION, PRESET, STEPS, LR, OPTIMISER, SEQ, BATCH, MINUTES, TOKENIZER, WIDTH, SEED, THREADS,
       FROM, LORA, PAIRS, TEMPLATE, OUT, CSV, PLOT, RESUME, OVERLAP, TIMEOUT, QUIET, HELP, FREEZE, RATE,
       TRAIN, SET, OPTIONS };
static setting option[OPTIONS] = {
    {"--model", NULL, "one of the kinds below"},
    {"--attention", NULL, "the same"},
    {"--preset", "tiny", "tiny | fast | paper | repo | eulerformer | crat"},
    {"--steps", NULL, "optimiser steps"},
    {"--lr", NULL, "peak learning rate"},
    {"--optimiser", NULL, "adamw | muon | lion | sgd; PATTERN=NAME, adamw or this: of some parameters alone"},
    {"--seq", NULL, "tokens per sequence (the field `length`)"},
    {"--batch", NULL, "sequences per forward pass; of train_mpi those of each rank"},
    {"--minutes", NULL, "instead of --steps: as many as take so long, which are printed"},
    {"--tokenizer", NULL, "a tokenizer for FILE, kept beside OUT; else the tokens are bytes"},
    {"--width", "1", "bytes of a token in FILE, else 1; 2 or 4: numbers, little endian, in the vocabulary"},
    {"--seed", "1", "of weights, batches and sample; else 1 or, with --resume, that of the state"},
    {"--threads", "0", "0 = every core"},
    {"--from", NULL, "CHECKPOINT: its weights and configuration are where training begins"},
    {"--lora", NULL,
     "RANK[,ALPHA[,MATRICES]]: adapters, as in 8,16,wq,wv, alone learn; OUT holds them, for\n"
     "               generate --adapter; needs --from"},
    {"--pairs", NULL,
     "FILE: instead of a text, prompts and their answers, which alone are learned: two columns parted by\n"
     "               tabs, or lines of JSON with the fields prompt and answer"},
    {"--template", NULL,
     "how a pair becomes a text, kept beside OUT for generate, as in 'Q: {prompt}\\nA: {answer}'; else\n"
     "               '{prompt}\\n{answer}'"},
    {"--out", "tiny.safetensors",
     "the best checkpoint by validation loss, else tiny.safetensors; the last state goes to OUT.last"},
    {"--csv", "loss.csv", "a row for every step, else loss.csv"},
    {"--plot", NULL, "SVG: losses and learning rate, drawn anew at each validation"},
    {"--resume", NULL,
     "continue exactly where OUT.last stopped, on the same FILE; --resume=PATH: from another state"},
    {"--overlap", NULL, "of train_mpi, 1: sum gradients while the backward goes on; 0: afterwards"},
    {"--timeout", NULL,
     "of train_mpi: seconds of waiting for another rank after which the state is saved and all end;\n"
     "               else they wait for ever"},
    {"--quiet", NULL, "no progress, only the sample"},
    {"--help", NULL, "this page, with the values in effect"},
    {"--freeze", NULL, "PATTERN: parameters that stay as they are, as in 'blocks.0.*'; may be repeated"},
    {"--rate", NULL,
     "PATTERN=X: parameters that learn X times as fast, as in '*.delta=0.1'; may be repeated"},
    {"--train", NULL, "PATTERN[,PATTERN..]: parameters that learn in spite of --freeze and --lora"},
    {"--set", NULL, "NAME=VALUE for any field below; may be repeated"}};
static cmha_model_config mc;
static cmha_trainer_config tc;
static codec words;                /* what turns FILE into tokens */
static pairs_template shape;       /* of the texts that pairs become */
static volatile sig_atomic_t stop; /* the signal that asked to stop */
static char last[4096];            /* where the state of the run is kept */
static int has_best;               /* above 0: OUT has the best weights of the run */

static void on_signal(int sig) {
    stop = sig;
    signal(sig, SIG_DFL); /* a second Ctrl-C does not wait */
}

static uint64_t whole(int o, uint64_t least, uint64_t most) { return whole_of(&option[o], least, most); }

/* Sets a field of the model or, if it has none of that name, of the trainer. */
static void set(const char *name, const char *value) {
    const settable both[2] = {{cmha_model_table(), &mc}, {cmha_trainer_table(), &tc}};
    set_field(both, 2, name, value);
}

/* The checkpoint where this run begins, or NULL. */
static const char *origin(void) {
    const char *resume = option[RESUME].value;
    return !resume ? option[FROM].value : *resume ? resume : last;
}

/* Takes over the model that a checkpoint holds and, for --resume, which then needs no other option, how it
   was trained: all fields, for a file leaves out some that are as usual, and a preset may set these. */
static void recall(const char *path) {
    refuse_foreign(path);
    check(cmha_config_read(&ctx, path, &mc, option[RESUME].value ? &tc : NULL));
}

static int help(void) {
    puts(PROGRAM " [OPTION...] [FILE]: trains a ComplexFormer on the text of FILE, else on the project's\n"
         "header, and prints a sample; on a terminal control characters and non-UTF-8 show as \\xNN\n");
    print_options(option, OPTIONS, 12, 0);
    puts("\nKinds of attention, and the fields they set (causal=0: for encoders only)");
    const char *kind, *fields;
    for (size_t i = 0; (kind = cmha_kind_name(i, &fields)) != NULL; i++) printf("  %-17s %s\n", kind, fields);
    print_fields("Model", cmha_model_table(), &mc);
    print_fields("Training", cmha_trainer_table(), &tc);
    return end_help("build/" PROGRAM " --attention cmha --steps 200 --plot loss.svg text.txt");
}

/* Without --batch a state's batch, that of all ranks, is divided among these. */
static void divide(size_t batch) {
    char line[160];
    snprintf(line, sizeof line, "the state's batch of %zu does not divide among %zu ranks; --batch says what "
             "each one takes", batch, ranks.ranks);
    if (batch % ranks.ranks) complain(2, line, "");
    tc.batch = batch / ranks.ranks;
}

/* Opens the tokenizer of the command line or of the checkpoint; else tokens are bytes or `numbers`. */
static void speak(int numbers) {
    const char *given = option[TOKENIZER].value, *state = origin();
    if (state && given && !*mc.tokenizer) complain(1, "--tokenizer: none belongs to the model of ", state);
    must(ranks.rank || codec_open(&words, given, state ? state : last, mc.tokenizer,
                                  *mc.tokenizer ? mc.vocabulary : 0, failure));
    ranks_speak(&words);
    if (words.kind == CODEC_TOKENIZER && !state) mc.vocabulary = words.size;
    if (words.kind == CODEC_TOKENIZER) memcpy(mc.tokenizer, words.identity, sizeof mc.tokenizer);
    else if (numbers) codec_plain(&words, SIZE_MAX);
}

/* Opens FILE as tokens of `width` bytes; of a text the tokenizer writes them into a file beside OUT first.
   --pairs become tokens in memory. */
static void open_text(lessons *from, const char *file, int width) {
    char path[4096];
    if (option[PAIRS].value) {
        lessons_read(from, file, &words, &shape, tc.length);
        return;
    }
    if (words.kind == CODEC_TOKENIZER && width == 1) {
        if (!codec_beside(option[OUT].value, ".ids", path, sizeof path)) complain(2, "too long: ", path);
        for (size_t turn = 0; turn < ranks.ranks; turn++)
            if (ranks_lack(turn, path) && !codec_encode_file(&words, file, path, &stop, failure))
                complain(stop ? 128 + stop : 1, failure, "");
        file = path, width = codec_id_width(&words);
    }
    check(cmha_tokens_open(&from->text, &ctx, file, width));
}

/* Saves the state of the run, also as OUT if it is the best; until one is, OUT has the best before a stop.
   The tokenizer goes beside OUT no sooner: what is there may be another model's. Of NULL nothing. Returns how
   often it has saved. */
static int keep(cmha_trainer *trainer, int best) {
    static int kept;
    const char *out = option[OUT].value;
    if (ranks.rank || !trainer) return kept;
    if (!kept && option[RESUME].value && !best) has_best = losses_bring(trainer, origin(), out);
    if (best) check(losses_save(trainer, out)), has_best++;
    if (!kept++ || (best && has_best == 1)) losses_speak(&words, &shape, out, last, has_best);
    check(cmha_trainer_save(trainer, last));
    return kept;
}

/* Opens the context and settles the configuration; returns FILE or NULL. */
static const char *configure(int argc, char **argv) {
    const uint32_t flags = 1u << RESUME | 1u << QUIET | 1u << HELP;
    size_t batch = 0;
    int n_set = 0, o;
    const char *file = read_options(option, OPTIONS, flags, argc, argv, &n_set);
    ranks_patience(&option[TIMEOUT], keep);
    ranks_same_options(option, OPTIONS, 1u << THREADS | 1u << OUT | 1u << CSV | 1u << PLOT | 1u << QUIET);
    open_context(&option[SEED], &option[THREADS], option[HELP].value != NULL);
    set_preset(option[PRESET].value, &mc, &tc);
    snprintf(last, sizeof last, "%s.last", option[OUT].value);
    if (option[RESUME].value && (option[FROM].value || option[LORA].value || n_tuned))
        complain(2, "--from, --lora, --freeze, --rate, --train: with --resume those of the state hold", "");
    if (option[MINUTES].value && (option[RESUME].value || option[STEPS].value || ranks.ranks > 1))
        complain(2, "--minutes chooses the steps: it is not for --resume, --steps or several ranks", "");
    if (origin()) ranks_bring(origin()), recall(origin());
    if (option[RESUME].value) batch = tc.batch, tc.batch = 0;
    if (option[MODEL].value) refuse_given(option, 1u << ATTENTION, " is --model, and one is enough");
    for (o = MODEL; o <= ATTENTION; o++)
        if (option[o].value) set_kind(option[o].value, &mc);
    for (o = STEPS; o <= BATCH; o++)
        if (option[o].value) set(o == SEQ ? "length" : option[o].name + 2, option[o].value);
    if (option[LORA].value) set_adapters(set, option[LORA].value);
    if (option[LORA].value && (!mc.lora_rank || !option[FROM].value))
        complain(2, "see --help; --lora needs a rank and --from", "");
    if (option[LORA].value && text_same_file(option[FROM].value, option[OUT].value))
        complain(2, "the adapters need --from; name another --out than ", option[OUT].value);
    for (int i = 1; i <= n_set; i++) set(argv[i], cut_value(argv[i]));
    if (!tc.batch) divide(batch);
    if (!mc.causal) complain(2, "an encoder (causal=0) continues no text; build/classify trains those", "");
    speak(whole(WIDTH, 1, 4) > 1);
    lessons_template(&shape, option[TEMPLATE].value, option[PAIRS].value != NULL, origin());
    if (option[PAIRS].value && (file || whole(WIDTH, 1, 4) > 1))
        complain(2, "--pairs stands instead of a FILE and of --width", "");
    if (whole(WIDTH, 1, 4) == 1 && words.kind == CODEC_BYTES && mc.vocabulary > 256)
        complain(2, "FILE is read as bytes, 256 tokens; for more, name a --tokenizer or, for numbers, "
                    "add --width 2 or 4", "");
    return file ? file : option[PAIRS].value;
}

/* Prints a token of the sample; `user` is its text so far. */
static int show(void *user, const int32_t *token, size_t batch) {
    (void)batch;
    if (shape.text && *token == pairs_end(&words)) return 1;
    codec_show(&words, user, *token);
    return stop;
}

/* Prints what the model says, looking back as far as training did: further away it has not seen anything. */
static void sample(cmha_model *model, const lessons *from) {
    cmha_cache cache;
    codec_text shown = {0};
    check(cmha_cache_init(&cache, model, 1, tc.length, !model->position_weight, NULL));
    int newline = words.kind == CODEC_BYTES && mc.vocabulary > '\n' && !from->rows.n;
    codec_ids begin = lessons_begin(from, newline ? '\n' : cmha_tokens_at(&from->text, 0));
    size_t most = begin.n + 599, n = model->position_weight && tc.length < most ? tc.length : most;
    for (size_t i = 0; i < begin.n && !newline; i++) show(&shown, begin.at + i, 1);
    cmha_status status = n > begin.n ? cmha_generate(&cache, begin.at, begin.n, n - begin.n, NULL,
                                                     ctx.config.seed, show, &shown) : CMHA_OK;
    if (status != CMHA_STOPPED) check(status);
    codec_show_end(&words, &shown), putchar('\n');
    cmha_cache_close(&cache), codec_ids_free(&begin);
}

int main(int argc, char **argv) {
    cmha_model model; cmha_trainer trainer; lessons from = {0};
    char path[4096], blas[64], seen[32], bits[24], seen_bits[24];
    int bad = 0;
    start_program(argv), ranks_start(on_signal);
    const char *file = configure(argc, argv), *slash = strrchr(argv[0], '/'), *resume = option[RESUME].value;
    int terminal = isatty(1) && ranks.ranks == 1; /* mpirun pretends to be one */
    int quiet = option[QUIET].value != NULL, folder = slash ? (int)(slash - argv[0] + 1) : 0;
    if (option[HELP].value) return help();

    /* Without a FILE, a text that is always there: cmha.h, here, above the program's folder or installed. */
    snprintf(path, sizeof path, "%.*s../cmha.h", folder, argv[0]);
    if (access(path, R_OK)) snprintf(path, sizeof path, "%.*s../include/cmha.h", folder, argv[0]);
    if (!file) file = access("cmha.h", R_OK) ? path : "cmha.h";
    signal(SIGINT, on_signal), signal(SIGTERM, on_signal);
    losses_spare(&words, file, &option[OUT], &option[FROM], &option[TOKENIZER], last);
    open_text(&from, file, (int)whole(WIDTH, 1, 4));
    check(cmha_model_init(&model, &ctx, &mc)), tune(&model, tc.optimiser);
    if (option[FROM].value) read_weights(&model, option[FROM].value);
    check(cmha_trainer_init(&trainer, &model, &tc));
    if (resume) check(cmha_trainer_read(&trainer, origin()));
    if (options_given & 1u << SEED && trainer.seed != ctx.config.seed)
        complain(2, "--seed: with --resume that of the state holds, not ", option[SEED].value);
    ctx.config.seed = trainer.seed; /* of the sample, too */
    lessons_split(&from, &trainer, file);
    double held_bytes = lessons_bytes(&from, &words, &trainer);
    if (option[MINUTES].value) tc.steps = minutes_steps(&option[MINUTES], quiet, &trainer, &from);
    ranks_bring(NULL), ranks_share(&trainer, &option[OVERLAP]);
    must(ranks.rank || text_may_save(option[OUT].value, failure));
    losses plot = {ranks.rank ? NULL : option[PLOT].value, draw_base(file), tc.steps, held_bytes, NULL, 0, 0};
    losses_open(&plot, option[CSV].value, trainer.step);
    ranks_same_start(&trainer, &from.text);
    if (ranks_stop(&stop)) complain(128 + stop, "stopped before the first step", "");
    FILE *csv = losses_csv(ranks.rank ? "/dev/null" : option[CSV].value, resume != NULL);
    cmha_blas_name(blas, sizeof blas);
    if (!quiet)
        printf("%s, %zu %s; %zu parameters, %zu of them learn; %s, %d threads\n", file, from.text.count,
               words.kind == CODEC_BYTES ? "bytes" : "tokens", model.parameters.size,
               model.parameters.learning, blas, ctx.threads);
    if (!quiet && ranks.ranks > 1)
        printf("%zu ranks, each with %zu of a batch's %zu sequences\n", ranks.ranks, tc.batch,
               ranks.ranks * tc.batch);

    double loss, val, start = seconds();
    ranks_savable(&trainer);
    for (size_t first = trainer.step; !ranks_stop(&stop) && trainer.step < tc.steps;) {
        double before = seconds();
        cmha_status status = lessons_step(&from, &trainer, &ranks, &loss);
        bad = status == CMHA_ERR_NOT_FINITE ? bad + 1 : 0;
        if (bad && bad < 10) complain(0, "step skipped: ", cmha_error(&ctx));
        else ranks_check(status);
        if (bad && trainer.step < tc.steps) continue; /* the last is measured and kept all the same */
        double tokens = (double)(ranks.ranks * tc.batch) * (double)from.length * (double)tc.accumulate;
        double speed = tokens / (seconds() - before);
        int measure = trainer.step % tc.eval_every == 0 || trainer.step == tc.steps;
        double bytes = from.rows.n ? 0 : codec_batch_bytes(&words, trainer.ids, tc.batch, tc.length);
        bytes = ranks_mean(bytes);
        *seen = *seen_bits = 0;
        losses_bits(bits, "%.5f", loss, bytes);
        if (measure) status = losses_judge(&trainer, &from, &val);
        if (measure && !status)
            snprintf(seen, sizeof seen, "%.5f", val), losses_bits(seen_bits, "%.5f", val, held_bytes);
        fprintf(csv, "%zu,%.6f,%s,%.4e,%.4f,%.0f,%s,%s\n", trainer.step, loss, seen, trainer.lr,
                trainer.grad_norm, speed, bits, seen_bits);
        if (fflush(csv)) complain(1, "cannot write ", option[CSV].value); /* whole rows, if it is killed */
        ranks_check(status); /* a saved state has the rows of its steps */
        if (measure) ranks_same_weights(&trainer);
        losses_add(&plot, trainer.step, loss, measure ? &val : NULL, trainer.lr);
        int best = measure && val < trainer.best;
        if (best) trainer.best = val;
        if (measure) keep(&trainer, best);
        if (quiet || !(terminal || measure || trainer.step % 20 == 0)) continue;
        double each = (seconds() - start) / (double)(trainer.step - first);
        int eta = (int)fmin(each * (double)(tc.steps - trainer.step), 1e9);
        losses_bits(bits, " (%.3f bits/byte)", loss, bytes);
        losses_bits(seen_bits, measure ? " (%.3f bits/byte)" : "", val, held_bytes);
        printf("%sstep %zu/%zu  loss %.4f%s%s%s%s  %.0f tokens/s  ETA %d:%02d:%02d  %s", terminal ? "\r" : "",
               trainer.step, tc.steps, loss, bits, measure ? "  validation " : "", seen, seen_bits, speed,
               eta / 3600, eta / 60 % 60, eta % 60, measure || !terminal ? "\n" : "");
        fflush(stdout);
        line_open = terminal && !measure;
    }
    if (losses_close(&plot), fclose(csv)) complain(1, "cannot write ", option[CSV].value);
    if (!quiet && ranks.ranks > 1)
        printf("%.1f %% of this time went into sums over ranks\n", 100 * ranks_spent() / (seconds() - start));
    if (ranks_stop(&stop)) keep(&trainer, 0), complain(128 + stop, "stopped; --resume continues", "");

    if (resume && !keep(NULL, 0)) keep(&trainer, 0); /* there was no step left */
    if (!ranks.rank) losses_take(&model, has_best ? option[OUT].value : NULL, resume ? origin() : NULL);
    if (!ranks.rank && continues(&model)) sample(&model, &from);
    codec_close(&words), cmha_trainer_close(&trainer), cmha_model_close(&model);
    lessons_close(&from), pairs_template_close(&shape), cmha_context_close(&ctx);
    return end_program(stop ? 128 + stop : 0);
}
