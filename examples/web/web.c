/* web.c - a model that trains and writes in a web page: the few functions that examples/web/index.html calls.
       make web             build/web/index.html, with emscripten
       make web-speed       the same code natively: tokens a second of its training step, on one thread
   There is one model. Functions return 0 or a status; web_error has its line. A failed call changes nothing.
   Pointers that they return are valid until the next call of the same function. */
#ifndef WEB_TEST /* a test has the library already */
#define CMHA_IMPLEMENTATION
#endif
#include "cmha.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The page calls what is exported; a function of a machine's own program has no need to be. */
#ifdef __wasm__
#define WEB_EXPORT __attribute__((used, visibility("default")))
#else
#define WEB_EXPORT
#endif

/* A byte's values; the most tokens of a step, of a look at the held-out text, and of what is written. */
enum { WEB_BYTES = 256, WEB_STEP = 65536, WEB_JUDGED = 4096, WEB_WRITTEN = 4096 };

/* A model and how it trains. */
typedef struct web_run {
    cmha_model model;
    cmha_trainer trainer;
    cmha_model_config mc;
    cmha_trainer_config tc;
} web_run;

static cmha_context ctx;
static web_run runs[2];    /* the model of the page, and one that is being opened to take its place */
static web_run *run;       /* the first of these; NULL: none yet */
static cmha_tokens text;   /* what it learns, bytes from web_take */
static char line[512];     /* of the last failure */
static double numbers[8];  /* see web_numbers */
static double last_loss, held_loss; /* of a step, of the held-out text; NaN: not yet known */
static unsigned char written[WEB_WRITTEN]; /* by web_generate */
static size_t n_written, n_phases;
static cmha_real *phases; /* see web_phases */
static const char file_name[] = "the checkpoint";
static cmha_buffer files[2] = {{file_name, NULL, 0, NULL, NULL, 0}, {NULL, NULL, 0, NULL, NULL, 0}};

WEB_EXPORT const char *web_error(void) { return line; }
WEB_EXPORT void *web_take(size_t bytes) { return malloc(bytes ? bytes : 1); }
WEB_EXPORT void web_give(void *memory) { free(memory); }

/* Returns the name of kind i of attention, of those that can continue a text; NULL beyond the last. */
WEB_EXPORT const char *web_kind(size_t i) {
    const char *kind, *fields;
    for (size_t k = 0; (kind = cmha_kind_name(k, &fields)) != NULL; k++) {
        if (strstr(fields, "causal=0")) continue;
        if (i == 0) return kind;
        i--;
    }
    return NULL;
}

/* Keeps a line; returns the status. */
static int fail(cmha_status status, const char *what) {
    snprintf(line, sizeof line, "%s", what);
    return (int)status;
}

/* Keeps the library's line, if a call of it failed; returns the status. */
static int told(cmha_status status) {
    const char *what = cmha_error(&ctx);
    return status ? fail(status, *what ? what : cmha_status_string(status)) : 0;
}

/* A seed: JavaScript's numbers are doubles. */
static uint64_t whole(double seed) { return seed >= 0 && seed < 9e15 ? (uint64_t)seed : 0; }

/* Opens the context, once. */
static int start(void) {
    cmha_context_config config = {0};
    if (ctx.threads) return 0;
    config.threads = 1;
    config.seed = 1;
    config.files = cmha_buffers(files);
    return told(cmha_context_init(&ctx, &config));
}

/* Sets a field of the model or, if it has none of that name, of the trainer. */
static cmha_status set_field(web_run *r, const char *name, const char *value) {
    if (!strcmp(name, "preset")) return cmha_preset(&ctx, value, &r->mc, &r->tc);
    if (!strcmp(name, "kind")) return cmha_kind(&ctx, value, &r->mc);
    cmha_status status = cmha_config_set(&ctx, cmha_model_table(), &r->mc, name, value);
    if (status != CMHA_ERR_NOT_FOUND) return status;
    return cmha_config_set(&ctx, cmha_trainer_table(), &r->tc, name, value);
}

/* Sets all of "NAME=VALUE NAME=VALUE ..", in this order. */
static int set_fields(web_run *r, const char *words) {
    char word[128];
    for (words += strspn(words, " \t\r\n"); *words; words += strspn(words, " \t\r\n")) {
        size_t n = strcspn(words, " \t\r\n");
        if (n >= sizeof word) return fail(CMHA_ERR_ARGUMENT, "a setting is NAME=VALUE, of at most 127 bytes");
        memcpy(word, words, n);
        word[n] = 0;
        words += n;
        char *value = strchr(word, '=');
        if (!value) {
            snprintf(line, sizeof line, "a setting is NAME=VALUE, not %.60s", word);
            return CMHA_ERR_ARGUMENT;
        }
        *value = 0;
        int status = told(set_field(r, word, value + 1));
        if (status) return status;
    }
    return 0;
}

/* Says what this page does not do. */
static int check_run(const web_run *r) {
    if (!r->mc.causal) return fail(CMHA_ERR_ARGUMENT, "an encoder (causal=0) continues no text");
    if (!r->mc.tokens || r->mc.features)
        return fail(CMHA_ERR_ARGUMENT, "a model of this page reads tokens (tokens=1 features=0)");
    if (r->mc.vocabulary != WEB_BYTES) {
        snprintf(line, sizeof line, "tokens are bytes: the vocabulary is %d, not %zu", WEB_BYTES,
                 r->mc.vocabulary);
        return CMHA_ERR_ARGUMENT;
    }
    if (r->tc.batch <= WEB_STEP / r->tc.length / r->tc.accumulate) return 0;
    snprintf(line, sizeof line, "a step of %zu times %zu sequences of %zu tokens has more than %d tokens",
             r->tc.accumulate, r->tc.batch, r->tc.length, WEB_STEP);
    return CMHA_ERR_ARGUMENT;
}

static void close_run(web_run *r) {
    cmha_trainer_close(&r->trainer);
    cmha_model_close(&r->model);
}

/* The place for a model that is being opened. */
static web_run *other_run(void) {
    web_run *r = run == &runs[0] ? &runs[1] : &runs[0];
    memset(r, 0, sizeof *r);
    return r;
}

/* Makes r the model of the page or, if it could not be opened, closes what there is of it. */
static int settle(web_run *r, int status) {
    web_run *old = status ? r : run;
    if (old) close_run(old);
    if (status) return status;
    run = r;
    last_loss = held_loss = (double)NAN;
    return 0;
}

/* Makes a new model by "preset=tiny kind=cmha NAME=VALUE ..": fields of the model and of the training. */
WEB_EXPORT int web_make(const char *words, double seed) {
    web_run *r = other_run();
    int status = start();
    if (!status) status = told(cmha_preset(&ctx, "tiny", &r->mc, &r->tc));
    if (!status) status = set_fields(r, words);
    if (!status) status = check_run(r);
    if (status) return status;
    ctx.config.seed = whole(seed);
    status = told(cmha_model_init(&r->model, &ctx, &r->mc));
    if (!status) status = told(cmha_trainer_init(&r->trainer, &r->model, &r->tc));
    return settle(r, status);
}

/* Gives the text to learn: n bytes from web_take, which are then ours. */
WEB_EXPORT int web_text(void *bytes, size_t n) {
    if (n < 2) {
        free(bytes);
        snprintf(line, sizeof line, "the text has %zu bytes; there is nothing to learn from fewer than 2", n);
        return CMHA_ERR_ARGUMENT;
    }
    free((void *)(uintptr_t)text.data);
    memset(&text, 0, sizeof text);
    text.data = bytes;
    text.count = n;
    text.width = 1;
    return 0;
}

/* Splits the text into what is learned and what is held out. */
static int split(cmha_tokens *train, cmha_tokens *held_out) {
    if (!run) return fail(CMHA_ERR_STATE, "there is no model yet");
    if (!text.count) return fail(CMHA_ERR_STATE, "there is no text yet");
    cmha_trainer_split(&run->trainer, &text, train, held_out);
    if (train->count > run->tc.length) return 0;
    snprintf(line, sizeof line, "the text has %zu bytes to learn from, not the %zu of one sequence and its "
             "last target (length=%zu)", train->count, run->tc.length + 1, run->tc.length);
    return CMHA_ERR_ARGUMENT;
}

/* Takes a step; its loss is web_numbers()[2]. */
WEB_EXPORT int web_step(void) {
    cmha_tokens train, held_out;
    int status = split(&train, &held_out);
    return status ? status : told(cmha_trainer_step(&run->trainer, &train, &last_loss));
}

/* Computes the loss on the first 4096 bytes of the text that is held out, web_numbers()[3]; NaN: none is. */
WEB_EXPORT int web_judge(void) {
    cmha_tokens train, held_out = {0};
    int status = split(&train, &held_out);
    if (!status && held_out.count < 2) {
        held_loss = (double)NAN;
        return 0;
    }
    held_out = cmha_tokens_part(&held_out, 0, WEB_JUDGED + 1);
    return status ? status : told(cmha_trainer_evaluate(&run->trainer, &held_out, &held_loss));
}

/* Returns steps done, steps in all, loss, held-out loss, bytes a step, parameters, layers, heads. */
WEB_EXPORT const double *web_numbers(void) {
    memset(numbers, 0, sizeof numbers);
    if (!run) return numbers;
    const size_t counts[8] = {run->trainer.step, run->tc.steps, 0, 0, run->tc.batch * run->tc.length
        * run->tc.accumulate, run->model.parameters.size, run->mc.n_layers, run->mc.n_heads};
    for (int i = 0; i < 8; i++) numbers[i] = (double)counts[i];
    numbers[2] = last_loss;
    numbers[3] = held_loss;
    return numbers;
}

static int keep_byte(void *user, const int32_t *token, size_t batch) {
    (void)user;
    (void)batch;
    if (n_written < WEB_WRITTEN) written[n_written++] = (unsigned char)*token;
    return 0;
}

/* Continues a prompt by at most n bytes: those of web_written, web_written_bytes of them. A model with
   learned positions stops at the last one. */
WEB_EXPORT int web_generate(const unsigned char *prompt, size_t n_prompt, size_t n, double temperature,
        double seed) {
    cmha_sampler_config sampler;
    cmha_cache cache;
    int32_t ids[WEB_WRITTEN];
    if (!run) return fail(CMHA_ERR_STATE, "there is no model yet");
    if (!n_prompt || n_prompt > WEB_WRITTEN)
        return fail(CMHA_ERR_ARGUMENT, "the beginning has 1 to 4096 bytes");
    if (!(temperature >= 0 && temperature <= 100))
        return fail(CMHA_ERR_ARGUMENT, "the temperature is a number from 0 to 100");
    for (size_t i = 0; i < n_prompt; i++) ids[i] = prompt[i];
    cmha_config_defaults(cmha_sampler_table(), &sampler);
    sampler.temperature = temperature;
    n_written = 0;
    size_t capacity = run->tc.length;
    const int learned = run->model.position_weight != NULL;
    if (learned && capacity > run->mc.max_positions) capacity = run->mc.max_positions;
    if (learned && n_prompt <= capacity && n > capacity - n_prompt + 1) n = capacity - n_prompt + 1;
    if (n > WEB_WRITTEN) n = WEB_WRITTEN;
    int status = told(cmha_cache_init(&cache, &run->model, 1, capacity, !learned, NULL));
    if (status) return status;
    status = told(cmha_generate(&cache, ids, n_prompt, n, &sampler, whole(seed), keep_byte, NULL));
    cmha_cache_close(&cache);
    return status;
}
WEB_EXPORT const unsigned char *web_written(void) { return written; }
WEB_EXPORT size_t web_written_bytes(void) { return n_written; }

/* Returns omega, delta and b of each pair of a head, [web_pairs, 3]; NULL: this attention has none, or the
   memory is short. */
WEB_EXPORT const cmha_real *web_phases(size_t layer, size_t head) {
    n_phases = 0;
    if (!run || layer >= run->mc.n_layers || head >= run->mc.n_heads) return NULL;
    if (run->mc.family != CMHA_FAMILY_REAL || run->mc.attention != CMHA_ATTENTION_CMHA) return NULL;
    const cmha_model *m = &run->model;
    cmha_tensor *const *score = m->blocks[layer].score;
    if (!score[0] || !score[1] || score[0]->rank != 2) return NULL;
    size_t pairs = score[0]->shape[1], row = score[0]->shape[0] > 1 ? head * pairs : 0;
    const double *omega = m->omega + (m->n_omega > 1 ? head * m->P : 0);
    if (pairs > m->P) pairs = m->P;
    free(phases);
    phases = (cmha_real *)malloc(pairs * 3 * sizeof *phases);
    for (size_t j = 0; phases && j < pairs; j++) {
        phases[3 * j] = (cmha_real)omega[j];
        phases[3 * j + 1] = score[0]->data[row + j];
        phases[3 * j + 2] = score[1]->data[row + j];
    }
    n_phases = phases ? pairs : 0;
    return phases;
}
WEB_EXPORT size_t web_pairs(void) { return n_phases; }

/* Saves model and training: the bytes of web_file, web_file_bytes of them. */
WEB_EXPORT int web_save(void) {
    if (!run) return fail(CMHA_ERR_STATE, "there is no model yet");
    return told(cmha_trainer_save(&run->trainer, file_name));
}
WEB_EXPORT const void *web_file(void) { return files[0].taken; }
WEB_EXPORT size_t web_file_bytes(void) { return files[0].taken ? files[0].size : 0; }

/* Opens what is at file_name as r; *continues: it has the state of a training. */
static int open_run(web_run *r, int *continues) {
    cmha_archive archive;
    int status = told(cmha_archive_open(&archive, &ctx, file_name));
    if (status) return status;
    *continues = cmha_archive_metadata(&archive, "trainer.steps") != NULL;
    cmha_archive_close(&archive);
    status = told(cmha_config_read(&ctx, file_name, &r->mc, &r->tc));
    if (!status && *r->mc.tokenizer)
        status = fail(CMHA_ERR_ARGUMENT, "the checkpoint's tokens are a tokenizer's; here they are bytes");
    if (!status) status = check_run(r);
    if (!status) status = told(cmha_model_open(&r->model, &ctx, file_name));
    if (!status) status = told(cmha_trainer_init(&r->trainer, &r->model, &r->tc));
    if (!status && *continues) status = told(cmha_trainer_read(&r->trainer, file_name));
    return status;
}

/* Opens a checkpoint, n bytes from web_take, which are then ours, in place of the model. A file that has no
   state of a training begins a new one. */
WEB_EXPORT int web_load(void *bytes, size_t n) {
    web_run *r = other_run();
    int continues = 0, status = start();
    free(files[0].taken);
    files[0].taken = NULL;
    files[0].data = bytes;
    files[0].size = n;
    if (!status) status = open_run(r, &continues);
    status = settle(r, status);
    free(bytes);
    files[0].data = NULL;
    files[0].size = 0;
    return status;
}

#ifdef WEB_SPEED
#include <time.h>

static double seconds(void) { return (double)clock() / CLOCKS_PER_SEC; } /* of the one thread */

/* Measures steps of the model that WEB_SPEED describes, as in web_make, on a made-up text. */
int main(int argc, char **argv) {
    char blas[64];
    size_t n = 65536;
    long steps = argc > 1 ? atol(argv[1]) : 50;
    if (argc > 2 || steps < 1) return puts("web_speed [STEPS]: a number from 1 up, 50 by itself"), 2;
    unsigned char *bytes = (unsigned char *)web_take(n);
    for (size_t i = 0; i < n; i++) bytes[i] = (unsigned char)(32 + i * i % 89);
    if (web_make(WEB_SPEED, 1) || web_text(bytes, n) || web_step()) return puts(line), 1;
    double best = 0, each = web_numbers()[4];
    for (long i = 0; i < steps; i++) {
        double before = seconds();
        if (web_step()) return puts(line), 1;
        double speed = each / (seconds() - before);
        if (speed > best) best = speed;
    }
    printf("%.0f tokens/s (the fastest of %ld steps), one thread, %s, %s\n", best, steps,
           cmha_blas_name(blas, sizeof blas), cmha_instructions(NULL));
    close_run(run);
    cmha_context_close(&ctx);
    free((void *)(uintptr_t)text.data);
    return 0;
}
#endif
