/* A trained classifier on a microcontroller: this file is two programs.

   On the desktop (device_train DIR) it trains a small classifier of signals, saves DIR/model.safetensors and
   writes DIR/expected.h: signals it has not seen and what it said of them. On the device (ON_DEVICE, with
   model.h of examples/embed.c) it opens the model from that array in a fixed arena, computes the same, and
   compares. */
#ifdef ON_DEVICE
#define CMHA_IMPLEMENTATION
#endif
#include "cmha.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LENGTH = 16, FRAME = 4, SAMPLES = LENGTH * FRAME, CLASSES = 4, TESTS = 64 };
#ifndef ON_DEVICE

enum { BATCH = 32, STEPS = 400 };

/* Some periods of a wave of any phase, with noise */
static void make_signal(cmha_rng *rng, int kind, cmha_real *x) {
    double turns = 1 + 3 * cmha_rng_uniform(rng), phase = cmha_rng_uniform(rng);
    double size = 0.6 + 0.4 * cmha_rng_uniform(rng);
    int i;
    for (i = 0; i < SAMPLES; i++) {
        double t = phase + turns * i / SAMPLES, part = t - floor(t), y = 2 * cmha_rng_uniform(rng) - 1;
        if (kind == 0) y = sin(6.283185307179586 * t);
        if (kind == 1) y = part < 0.5 ? 1 : -1;
        if (kind == 2) y = 2 * part - 1;
        x[i] = (cmha_real)(size * y + 0.1 * cmha_rng_normal(rng));
    }
}

static int failed(const cmha_context *context) {
    fprintf(stderr, "device_train: %s\n", cmha_error(context));
    return 1;
}

int main(int argc, char **argv) {
    static cmha_real signals[TESTS * SAMPLES], labels[TESTS], scores[TESTS * CLASSES];
    cmha_context context;
    cmha_context_config options;
    cmha_model_config mc;
    cmha_trainer_config tc;
    cmha_model model;
    cmha_trainer trainer;
    cmha_batch batch;
    cmha_rng rng = cmha_rng_make(3, 0);
    char path[512];
    double loss = 0;
    int step, b, right = 0;
    FILE *out;
    if (argc != 2) return fprintf(stderr, "usage: device_train DIR\n"), 2;
    memset(&options, 0, sizeof options), memset(&batch, 0, sizeof batch);
    options.threads = 1, options.seed = 1;
    if (cmha_context_init(&context, &options) || cmha_preset(&context, "encoder", &mc, &tc))
        return failed(&context);
    if (cmha_config_set_all(&context, cmha_model_table(), &mc,
                            "n_layers=2 d_model=32 n_heads=2 d_ff=64 tokens=0 vocabulary=1 features=4 "
                            "token_types=0 classes=4 attention=cmha pool=mean dropout=0 "
                            "attention_dropout=0") ||
        cmha_config_set_all(&context, cmha_trainer_table(), &tc,
                            "batch=32 length=16 steps=400 lr=3e-3 weight_decay=0") ||
        cmha_model_init(&model, &context, &mc) || cmha_trainer_init(&trainer, &model, &tc))
        return failed(&context);
    batch.features = signals, batch.labels = labels, batch.batch = BATCH, batch.length = LENGTH;
    for (step = 0; step < STEPS; step++) {
        for (b = 0; b < BATCH; b++) {
            labels[b] = (cmha_real)(int)cmha_rng_below(&rng, CLASSES);
            make_signal(&rng, (int)labels[b], signals + b * SAMPLES);
        }
        if (cmha_trainer_step_batch(&trainer, &batch, &loss)) return failed(&context);
    }
    for (b = 0; b < TESTS; b++) make_signal(&rng, b % CLASSES, signals + b * SAMPLES);
    batch.batch = TESTS, batch.labels = NULL;
    snprintf(path, sizeof path, "%s/model.safetensors", argv[1]);
    if (cmha_model_save(&model, path) || cmha_model_classify(&model, &batch, scores)) return failed(&context);
    snprintf(path, sizeof path, "%s/expected.h", argv[1]);
    if (!(out = fopen(path, "w"))) return perror(path), 1;
    fprintf(out, "static const float expected_signals[] = {");
    for (b = 0; b < TESTS * SAMPLES; b++) fprintf(out, "%s%.8ef,", b % 8 ? " " : "\n", (double)signals[b]);
    fprintf(out, "\n};\nstatic const float expected_scores[] = {");
    for (b = 0; b < TESTS * CLASSES; b++)
        fprintf(out, "%s%.8ef,", b % CLASSES ? " " : "\n", (double)scores[b]);
    fprintf(out, "\n};\n");
    if (fclose(out)) return perror(path), 1;
    for (b = 0; b < TESTS; b++) {
        int i, best = 0;
        for (i = 1; i < CLASSES; i++)
            if (scores[b * CLASSES + i] > scores[b * CLASSES + best]) best = i;
        right += best == b % CLASSES;
    }
    printf("trained for %d steps: loss %.3f, %d of %d signals right\n", STEPS, loss, right, TESTS);
    cmha_trainer_close(&trainer), cmha_model_close(&model), cmha_context_close(&context);
    return right < TESTS * 3 / 4;
}

#else

static const char *const class_names[CLASSES] = {"sine", "square", "saw", "noise"};

#include "expected.h"
#include "model.h"

/* What runs first: the processor reads the stack and this function from the beginning of the memory. */
extern char stack_top[], data_begin[], data_end[], data_from[];
extern void _start(void);
void reset(void) {
    *(volatile uint32_t *)(uintptr_t)0xE000ED88 |= 15u << 20; /* CPACR: the floating-point unit */
    memcpy(data_begin, data_from, (size_t)(data_end - data_begin));
    _start(); /* newlib's: clears what is zero, calls main, ends the emulator */
}
__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {stack_top, (void *)reset};

/* Memory from one array; what is given back last-in first-out is used again */
static struct {
    _Alignas(64) unsigned char memory[ARENA_BYTES];
    size_t used, peak;
} arena;

static void *take(void *user, size_t bytes) {
    size_t room = (bytes + 63) / 64 * 64;
    unsigned char *at = arena.memory + arena.used;
    (void)user;
    if (room > sizeof arena.memory - arena.used) return NULL;
    arena.used += room;
    if (arena.used > arena.peak) arena.peak = arena.used;
    return at;
}

static void give(void *user, void *memory, size_t bytes) {
    size_t room = (bytes + 63) / 64 * 64;
    (void)user;
    if ((unsigned char *)memory + room == arena.memory + arena.used) arena.used -= room;
}

static int check(int ok, const char *what) {
    if (!ok) printf("FAIL %s\n", what);
    return ok ? 1 : 0;
}

enum { PAINT = 0x55, DEEP = 1 << 18 }; /* marks where the stack below main has not been */

static void paint(volatile char *top) {
    volatile char *at;
    for (at = top - DEEP; at < top - 256; at++) *at = PAINT;
}

int main(void) {
    cmha_buffer files[2];
    cmha_context_config options;
    cmha_context context;
    cmha_model_config config;
    cmha_model model;
    cmha_trainer trainer;
    cmha_batch batch;
    cmha_real scores[CLASSES];
    char *top = (char *)__builtin_frame_address(0), *deepest = top - DEEP;
    double worst = 0;
    int passed = 0, all = 6, b, i, same = 0, status;
    paint(top);
    memset(files, 0, sizeof files), memset(&options, 0, sizeof options), memset(&batch, 0, sizeof batch);
    memset(&trainer, 0, sizeof trainer);
    files[0].name = "model", files[0].data = model_file, files[0].size = sizeof model_file;
    options.files = cmha_buffers(files);
    options.allocator.allocate = take, options.allocator.release = give;
    status = cmha_context_init(&context, &options);
    if (!status) status = cmha_config_read(&context, "model", &config, NULL);
    passed += check(!status && config.classes == CLASSES, "the configuration");
    passed += check(cmha_model_open(&model, &context, "elsewhere") == CMHA_ERR_NOT_FOUND &&
                        !strncmp(cmha_error(&context), "elsewhere: ", 11), "a file that is not there");
    if (cmha_model_open(&model, &context, "model")) return printf("%s\n", cmha_error(&context)), 1;
    passed += check(cmha_trainer_init(&trainer, &model, NULL) == CMHA_ERR_STATE, "no training");
    batch.batch = 1, batch.length = LENGTH;
    for (b = 0, status = 0; b < TESTS && !status; b++) {
        int best = 0, wanted = 0;
        const float *want = expected_scores + b * CLASSES;
        batch.features = expected_signals + b * SAMPLES;
        status = cmha_model_classify(&model, &batch, scores);
        for (i = 0; i < CLASSES; i++) {
            double apart = fabs((double)scores[i] - (double)want[i]);
            if (!(apart <= worst)) worst = apart;
            if (scores[i] > scores[best]) best = i;
            if (want[i] > want[wanted]) wanted = i;
        }
        same += best == wanted;
        if (b < CLASSES) printf("signal %d: %s\n", b, class_names[best]);
    }
    passed += check(!status, cmha_error(&context));
    passed += check(same == TESTS, "the desktop's classes");
    passed += check(worst <= 1e-5, "the desktop's logits within 1e-5");
    while (*deepest == PAINT) deepest++;
    printf("%s: logits at most %.2g from the desktop's; ", cmha_version(), worst);
    printf("most memory %u bytes, stack %u bytes\n", (unsigned)arena.peak, (unsigned)(top - deepest));
    cmha_model_close(&model), cmha_context_close(&context);
    printf("%d passed, %d failed\n", passed, all - passed);
    return passed != all;
}

#endif
