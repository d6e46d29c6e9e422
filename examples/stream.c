/* Follows a sound or a radio signal without an end, frame by frame, by a model that it carries along:
       build/signal --synthetic --quiet --epochs 1 build/wave.safetensors
       build/signal_next --epochs 8 --set window=16 --save build/next.safetensors build/wave.safetensors
       build/embed build/next.safetensors model_bytes > build/stream_model.h
       cc -O3 -march=native -I. -Ibuild examples/stream.c -o build/stream -lm
       build/stream FILE.wav                        (or - for standard input; --tone N: N frames of its own)

   It opens no file but the sound, allocates nothing (a fixed arena) and says of every second how well it knew
   the next frame; at the end the real-time factor, the median and the worst frame. The model is any that
   reads features alone, a frame a position, and says the next one's numbers (signal_next trains such).
   FILE.wav has 16 bits; or it is bare samples of 16 bits, at --rate. Complex features are two channels, I and
   Q. A model with a `window` or a state is exact for ever, others forget token by token (CMHA_SLIDE_FORGET).

   The same file runs on a microcontroller (-DON_DEVICE), where it follows its own tone; for a Cortex-M7 under
   qemu, with build/stream_model.h as above:
       arm-none-eabi-gcc -O2 -mcpu=cortex-m7 -mthumb -mfloat-abi=hard -mfpu=fpv5-sp-d16 -ffunction-sections \
           -fdata-sections -DON_DEVICE -I. -Ibuild examples/stream.c -o build/stream.elf \
           --specs=rdimon.specs -T tests/device.ld -Wl,--gc-sections -lm
       qemu-system-arm -M mps2-an500 -nographic -semihosting-config enable=on,target=native \
           -kernel build/stream.elf */
#define _POSIX_C_SOURCE 200809L
#define CMHA_IMPLEMENTATION
#define CMHA_INFERENCE_ONLY
#define CMHA_NO_FILES
#define CMHA_NO_CBLAS
#define CMHA_NO_DISPATCH
#include "cmha.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "stream_model.h" /* of examples/embed.c: model_bytes */

#ifndef ARENA_BYTES
#define ARENA_BYTES (2 << 20)
#endif
enum { MOST = 1024, SINKS = 4, PROMPT = 8 }; /* numbers of a frame; first frames that stay; frames a pass */

/* ---- Memory from one array; what is given back last-in first-out is used again ---- */

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

/* ---- Samples ---- */

static struct {
    FILE *file; /* NULL: the tone */
    size_t frames; /* of the tone, left */
    unsigned channels, rate;
    unsigned char head[4]; /* of bare samples, what was looked at */
    size_t looked;
    unsigned long long left; /* bytes of the samples; what comes behind them is none */
} sound = {NULL, 0, 0, 8000, {0}, 0, ~0ull};

static int complain(const char *what, const char *of) {
    fprintf(stderr, "stream: %s%s\n", what, of);
    return 2;
}

#ifndef ON_DEVICE
static unsigned little(const unsigned char *at, int bytes) {
    unsigned value = 0;
    while (bytes--) value = value << 8 | at[bytes];
    return value;
}

/* Finds the samples of a WAV file; one that does not begin so is bare samples, if `bare` allows it. NULL, or
   what is wrong. */
static const char *begin_sound(int bare) {
    unsigned char at[16];
    unsigned size, skipped;
    int format = 0;
    sound.looked = fread(sound.head, 1, 4, sound.file);
    if (sound.looked < 4 || memcmp(sound.head, "RIFF", 4))
        return bare ? NULL : "no WAV file, and without --rate no bare samples of 16 bits either: ";
    sound.looked = 0;
    if (fread(at, 1, 8, sound.file) != 8 || memcmp(at + 4, "WAVE", 4)) return "not a WAV file: ";
    while (fread(at, 1, 8, sound.file) == 8) {
        size = little(at + 4, 4);
        if (!memcmp(at, "data", 4)) {
            if (size && size < 0xFFFFFFFEu) sound.left = size; /* else a stream, whose length nobody knew */
            return format ? NULL : "no format before the samples of ";
        }
        skipped = 0;
        if (!memcmp(at, "fmt ", 4)) {
            if (size < 16 || fread(at, 1, 16, sound.file) != 16) return "a cut format in ";
            if (little(at, 2) != 1 || little(at + 14, 2) != 16) return "not 16 bits, uncompressed: ";
            sound.channels = little(at + 2, 2), sound.rate = little(at + 4, 4);
            if (!sound.rate) return "no rate in ";
            if (!sound.channels) return "no channels in ";
            format = 1, skipped = 16;
        }
        for (size += size % 2; skipped < size; skipped++)
            if (getc(sound.file) == EOF) return "a cut part in ";
    }
    return "no samples in ";
}
#endif

/* Reads n numbers from -1 to 1; 0 at the end. */
static int samples(float *x, size_t n) {
    static double phase, noise = 1;
    size_t i;
    if (!sound.file) { /* a tone that glides, and noise */
        if (!sound.frames) return 0;
        for (i = 0, sound.frames--; i < n; i++) {
            noise = fmod(noise * 16807, 2147483647);
            phase = fmod(phase + 0.15 + 0.1 * sin((double)sound.frames / 97), 6.283185307179586);
            x[i] = (float)(0.5 * sin(phase + (i % 2 ? 1.57 : 0)) + 0.05 * (noise / 1073741824 - 1));
        }
        return 1;
    }
    for (i = 0; i < n; i++) {
        int c[2];
        if (sound.left < 2) return 0;
        for (int k = 0; k < 2; k++) {
            if (sound.looked) c[k] = sound.head[4 - sound.looked--];
            else c[k] = getc(sound.file);
        }
        if (c[0] == EOF || c[1] == EOF) return 0;
        sound.left -= 2;
        int value = c[0] | c[1] << 8;
        x[i] = (float)(value < 32768 ? value : value - 65536) / 32768;
    }
    return 1;
}

/* ---- Time ---- */

static double now(void) {
#if defined(CLOCK_PROCESS_CPUTIME_ID) && !defined(ON_DEVICE)
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
#else
    return (double)clock() / CLOCKS_PER_SEC;
#endif
}

enum { STEPS = 64 };                   /* of a doubling of time */
static unsigned long count[40 * STEPS]; /* of frames that took 2^(i / STEPS) ns */

static void counted(double time) {
    double i = STEPS * log2(time > 1e-9 ? 1e9 * time : 1);
    count[i < 40 * STEPS - 1 ? (size_t)i : 40 * STEPS - 1]++;
}

/* The time within which that share of frames was. */
static double within(double share, unsigned long frames) {
    double below = 0;
    size_t i = 0;
    for (; i < 40 * STEPS - 1; i++) {
        below += (double)count[i];
        if (below >= share * (double)frames) break;
    }
    return 1e-9 * pow(2, ((double)i + 0.5) / STEPS);
}

/* ---- The stream ---- */

static cmha_context context;
static cmha_model model;
static cmha_cache cache;

static int failed(void) { return complain(cmha_error(&context), ""); }

static int begin(void) {
    static cmha_buffer files[2] = {{"model", model_bytes, sizeof model_bytes, 0, 0, 0}, {0}};
    cmha_context_config config;
    cmha_cache_options options;
    memset(&config, 0, sizeof config), memset(&options, 0, sizeof options);
    config.files = cmha_buffers(files);
    config.allocator.allocate = take, config.allocator.release = give;
    config.threads = 1;
    if (cmha_context_init(&context, &config) || cmha_model_open(&model, &context, "model")) return failed();
    const cmha_model_config *c = &model.config;
    if (c->tokens || !c->features || !c->values || !c->causal || c->features > MOST / 2 || c->values > MOST)
        return complain("the model does not read frames alone, or says no numbers of the next", "");
    int slide = c->window ? CMHA_SLIDE : CMHA_SLIDE_FORGET;
    if (!c->window) options.sinks = SINKS;
    options.prompt = PROMPT;
    size_t capacity = c->window ? c->window + c->sinks : c->max_positions; /* as many as it was trained on */
    if (options.sinks >= capacity) options.sinks = capacity / 2;
    cmha_status status = cmha_cache_init(&cache, &model, 1, capacity, slide, &options);
    if (status == CMHA_ERR_ARGUMENT) { /* a state keeps no sinks */
        options.sinks = 0;
        status = cmha_cache_init(&cache, &model, 1, capacity, slide, &options);
    }
    return status ? failed() : 0;
}

/* Follows the sound to its end. */
static int follow(void) {
    static float raw[MOST], x[MOST], said[2 * MOST];
    const cmha_model_config *c = &model.config;
    size_t planes = c->complex_features ? 2 : 1, F = c->features, W = F * planes, i;
    unsigned long frames = 0, told = 0; /* seconds */
    double worst = 0, total = 0, error = 0, power = 1e-30, all[2] = {0, 1e-30};
    for (; samples(raw, W); frames++) {
        for (i = 0; i < W; i++) x[i % planes * F + i / planes] = raw[i];
        for (i = 0; frames && i < W && i < c->values; i++) {
            error += pow((double)said[i] - (double)x[i], 2);
            power += pow((double)x[i], 2);
        }
        double start = now(), time;
        if (cmha_cache_append_features(&cache, NULL, x, 1, said)) return failed();
        time = now() - start;
        total += time;
        if (frames) { /* the first one meets an empty cache of the processor */
            counted(time);
            if (time > worst) worst = time;
        }
        unsigned long heard = (unsigned long)((double)(frames + 1) * (double)F / sound.rate);
        if (heard == told) continue;
        told = heard;
        printf("%6lu s: the next frame within %.2f dB of its power\n", told,
               10 * log10(error / power + 1e-30));
        all[0] += error, all[1] += power, error = 0, power = 1e-30;
    }
    if (sound.file && ferror(sound.file)) return complain("the sound cannot be read", "");
    if (frames < 2) return complain("less than two frames", "");
    all[0] += error, all[1] += power;
    double seconds = (double)frames * (double)F / sound.rate;
    printf("%lu frames of %u samples, %.1f s: next frames within %.2f dB of their power\n", frames,
           (unsigned)F, seconds, 10 * log10(all[0] / all[1] + 1e-30));
    printf("%s; real-time factor %.5f (computing / sound)\n",
           cache.exact ? "exact without an end" : "forgets token by token", total / seconds);
    double usual = within(0.5, frames - 1);
    printf("a frame %.1f us (median), 99.9 %% within %.2f times that, the worst %.2f times; arena %u bytes\n",
           1e6 * usual, within(0.999, frames - 1) / usual, worst / usual, (unsigned)arena.peak);
    return 0;
}

#ifdef ON_DEVICE
/* What runs first: the processor reads the stack and this function from the beginning of the memory. */
extern char stack_top[], data_begin[], data_end[], data_from[];
extern void _start(void);
void reset(void) {
    *(volatile uint32_t *)(uintptr_t)0xE000ED88 |= 15u << 20; /* CPACR: the floating-point unit */
    memcpy(data_begin, data_from, (size_t)(data_end - data_begin));
    _start(); /* newlib's: clears what is zero, calls main, ends the emulator */
}
__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {stack_top, (void *)reset};

enum { PAINT = 0x55, DEEP = 1 << 18 }; /* marks where the stack below main has not been */

static void paint(volatile char *top) {
    volatile char *at;
    for (at = top - DEEP; at < top - 256; at++) *at = PAINT;
}

/* The stack of calls of the cache alone: printing takes some of its own. */
static int calls(size_t n) {
    static float x[PROMPT * MOST], said[2 * MOST];
    while (n--)
        if (cmha_cache_append_features(&cache, NULL, x, n % 2 ? 1 : PROMPT, said)) return failed();
    return 0;
}

int main(void) {
    char *top = (char *)__builtin_frame_address(0), *deepest = top - DEEP;
    int status = begin();
    if (status) return status;
    paint(top);
    status = calls(100);
    while (deepest < top && *deepest == PAINT) deepest++;
    cmha_cache_reset(&cache);
    sound.frames = 2000;
    if (!status) status = follow();
    printf("a call takes at most %u bytes of stack\n", (unsigned)(top - deepest));
    return status;
}
#else
enum { LONGEST = 1 << 20 };

/* Reads the tone `again` times, keeps the least time of each frame, which leaves out what interrupts a
   machine, and prints how they differ. */
static int steady(size_t frames, size_t again) {
    static float x[MOST], said[2 * MOST], least[LONGEST];
    size_t W = model.config.features * (model.config.complex_features ? 2 : 1), at = 0;
    double worst = 0;
    for (size_t turn = 0; turn < again; turn++) {
        cmha_cache_reset(&cache);
        sound.frames = frames;
        for (size_t i = 0; samples(x, W); i++) {
            double start = now();
            if (cmha_cache_append_features(&cache, NULL, x, 1, said)) return failed();
            double time = now() - start;
            if (!turn || time < (double)least[i]) least[i] = (float)time;
        }
    }
    for (size_t i = 0; i < frames; i++) {
        counted((double)least[i]);
        if ((double)least[i] > worst) worst = (double)least[i], at = i;
    }
    double usual = within(0.5, (unsigned long)frames);
    printf("%zu frames, least times of %zu: %.1f us (median), the worst, frame %zu, %.2f times that\n",
           frames, again, 1e6 * usual, at, worst / usual);
    return 0;
}

int main(int argc, char **argv) {
    const char *path = NULL, *wrong;
    size_t again = 0;
    int i, status, bare = 0, toned = 0;
    int announced = 0; /* a WAV file says how many samples it has */
    for (i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            puts("stream [--rate HZ] FILE.wav|-     follows a sound, or 16-bit samples at HZ (8000)\n"
                 "stream --tone N [--again M]       follows N frames of a tone of its own; M times, to say\n"
                 "                                  how long each takes when nothing interrupts it\n"
                 "Example:\n"
                 "  build/stream sound.wav");
            return fclose(stdout) ? complain("cannot write", "") : 0;
        }
        int rate = !strcmp(argv[i], "--rate"), tone = !strcmp(argv[i], "--tone");
        if (rate || tone || !strcmp(argv[i], "--again")) {
            char *end = NULL;
            double value = i + 1 < argc ? strtod(argv[i + 1], &end) : 0;
            if (!end || *end || !(value >= 1 && value <= 2e9))
                return complain(argv[i], " needs a number from 1 on");
            if ((rate && bare) || (tone && toned) || (!rate && !tone && again))
                return complain(argv[i], " comes twice, and once is enough");
            bare |= rate, toned |= tone;
            if (rate) sound.rate = (unsigned)value;
            else if (tone) sound.frames = (size_t)value;
            else again = (size_t)value;
            i++;
        } else if (argv[i][0] == '-' && argv[i][1]) return complain("there is no option ", argv[i]);
        else if (path) return complain("one sound, please, not also ", argv[i]);
        else path = argv[i];
    }
    if (!path == !sound.frames) return complain("name a sound, or --tone N; see --help", "");
    if (again && (path || sound.frames > LONGEST))
        return complain("--again needs a tone of at most 1048576 frames", "");
    if ((status = begin()) != 0) return status;
    if (path) {
        sound.file = strcmp(path, "-") ? fopen(path, "rb") : stdin;
        if (!sound.file) return complain("cannot open ", path);
        if ((wrong = begin_sound(bare || sound.file == stdin)) != NULL) return complain(wrong, path);
        if (bare && sound.channels) return complain("--rate is for bare samples, not for a WAV file: ", path);
        announced = sound.left < ~0ull;
        unsigned wanted = model.config.complex_features ? 2 : 1;
        if (sound.channels && sound.channels != wanted)
            return complain(wanted == 2 ? "the model wants two channels, I and Q, not those of "
                                        : "the model wants one channel, not those of ", path);
    }
    status = again ? steady(sound.frames, again) : follow();
    if (!status && announced && sound.left > 1) status = complain("has fewer samples than it says: ", path);
    cmha_cache_close(&cache), cmha_model_close(&model), cmha_context_close(&context);
    return fclose(stdout) ? complain("cannot write", "") : status;
}
#endif
