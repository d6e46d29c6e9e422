/* What spoken.c reads with: WAV files, of other rates and kinds too, tar archives, spectra, and what it hears
   of a recording, with every change that training makes. */
#include "check.h"

#include "../examples/tools/sound.h"
#include "../examples/tools/voices.h"

static char error[TEXT_ERROR];
static unsigned char file[40000];
static size_t length;

static void put(const void *bytes, size_t n) { memcpy(file + length, bytes, n), length += n; }

static void number(uint32_t value, int bytes) {
    for (; bytes--; value >>= 8) file[length++] = (unsigned char)value;
}

/* Begins a WAV file with a format; what follows are chunks. */
static void begin(uint32_t format, uint32_t channels, uint32_t rate, uint32_t bits) {
    length = 0;
    put("RIFF", 4), number(1000, 4), put("WAVE", 4);
    put("fmt ", 4), number(16, 4), number(format, 2), number(channels, 2), number(rate, 4);
    number(rate * channels * bits / 8, 4), number(channels * bits / 8, 2), number(bits, 2);
}

/* Adds a chunk that says it has `said` bytes and has n, counted up from 0. */
static void chunk(const char *name, uint32_t said, size_t n) {
    put(name, 4), number(said, 4);
    for (size_t i = 0; i < n; i++) file[length++] = (unsigned char)i;
}

static int one_line(void) { return error[0] && strlen(error) < TEXT_ERROR && !strchr(error, '\n'); }

/* Parses a copy of exactly that size, so that a byte beyond it is noticed under a sanitizer. */
static int parse(size_t n, size_t *at, size_t *count) {
    unsigned char *copy = (unsigned char *)check_alloc(n, 1);
    int done;
    memcpy(copy, file, n), error[0] = 0;
    done = audio_wav(copy, n, "a\nname", at, count, error);
    CHECK(done ? *count > 0 && *at + 2 * *count <= n : one_line());
    free(copy);
    return done;
}

static void wav(void) {
    static const uint32_t wrong[][4] = {{3, 1, 8000, 16}, {1, 2, 8000, 16}, {1, 1, 44100, 16},
                                        {1, 1, 8000, 8}, {0xFFFE, 1, 8000, 16}, {0, 0, 0, 0}};
    static const uint32_t sizes[] = {0, 1, 3, 9, 200, 0x7FFFFFFF, 0x80000000, 0xFFFFFFF7, 0xFFFFFFFF};
    size_t at, count, i, whole;
    begin(1, 1, 8000, 16), chunk("data", 8, 8);
    CHECK(parse(length, &at, &count) && at == 44 && count == 4);
    CHECK(audio_number(file + at, 2) == 0x0100 && audio_number(file + at + 6, 2) == 0x0706);
    begin(1, 1, 8000, 16), chunk("LIST", 5, 6), chunk("data", 8, 8), chunk("more", 1, 1);
    CHECK(parse(length, &at, &count) && at == 58 && count == 4); /* an odd chunk is filled up */
    for (i = 0, whole = length; i < whole; i++) /* cut anywhere */
        CHECK_THAT(parse(i, &at, &count) == (i >= 66), "cut at %zu", i);
    for (i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        begin(wrong[i][0], wrong[i][1], wrong[i][2], wrong[i][3]), chunk("data", 8, 8);
        CHECK_THAT(!parse(length, &at, &count) && strstr(error, "not 8 kHz"), "format %zu", i);
    }
    for (i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        begin(1, 1, 8000, 16), chunk("data", sizes[i], 8);
        CHECK_THAT(!parse(length, &at, &count), "size %zu", i);
        begin(1, 1, 8000, 16), chunk("junk", sizes[i], 8), chunk("junk", 0, 0);
        CHECK_THAT(!parse(length, &at, &count), "junk %zu", i);
    }
    begin(1, 1, 8000, 16), file[16] = 15, chunk("data", 8, 8);
    CHECK(!parse(length, &at, &count));
    begin(1, 1, 8000, 16), memcpy(file + 12, "fmt_", 4), chunk("data", 8, 8);
    CHECK(!parse(length, &at, &count) && strstr(error, "before their format"));
    begin(1, 1, 8000, 16), chunk("odd ", 7, 7); /* the last, without the byte that makes it even */
    CHECK(!parse(length, &at, &count) && strstr(error, "no samples"));
    for (i = 0; i < 2000; i++) { /* any byte may be anything */
        begin(1, 1, 8000, 16), chunk("LIST", 5, 6), chunk("data", 8, 8);
        file[check_below(length)] = (unsigned char)check_below(256);
        file[check_below(length)] = (unsigned char)check_below(256);
        parse(length, &at, &count);
    }
}

static void header(const char *name, size_t size, char kind) {
    unsigned sum = 0, i;
    unsigned char *head = file + length;
    memset(head, 0, 512);
    strcpy((char *)head, name), head[156] = (unsigned char)kind;
    snprintf((char *)head + 124, 12, "%011zo", size);
    memset(head + 148, ' ', 8);
    for (i = 0; i < 512; i++) sum += head[i];
    snprintf((char *)head + 148, 8, "%06o", sum), length += 512;
}

static void tar(void) {
    char name[101];
    size_t at = 0, from, size, i, whole;
    length = 0, memset(file, 0, sizeof file);
    header("folder/", 0, '5'), header("folder/a.wav", 3, '0');
    put("abc", 3), length += 509;
    header("b", 512, '0'), length += 512, header("empty", 0, 0);
    CHECK(audio_tar(file, length, &at, name, &from, &size, error) && !strcmp(name, "folder/a.wav"));
    CHECK(size == 3 && !memcmp(file + from, "abc", 3));
    CHECK(audio_tar(file, length, &at, name, &from, &size, error) && !strcmp(name, "b") && size == 512);
    CHECK(audio_tar(file, length, &at, name, &from, &size, error) && !strcmp(name, "empty") && size == 0);
    CHECK(!audio_tar(file, length, &at, name, &from, &size, error) && !error[0]);
    for (i = 0, whole = length; i < whole; i += 13) { /* cut: ends, or says so */
        unsigned char *copy = (unsigned char *)check_alloc(i, 1);
        memcpy(copy, file, i), at = 0;
        while (audio_tar(copy, i, &at, name, &from, &size, error)) CHECK(from + size <= i && at <= i);
        CHECK(!error[0] || one_line());
        free(copy);
    }
    at = 0;
    CHECK(!audio_tar(file, 300, &at, name, &from, &size, error) && strstr(error, "within the header at"));
    at = 0, memset(file + 124, '7', 12); /* larger than any memory */
    CHECK(!audio_tar(file, whole, &at, name, &from, &size, error) && one_line());
    at = 0, length = 0, header("x", 0777777, '0');
    CHECK(!audio_tar(file, whole, &at, name, &from, &size, error) && strstr(error, "beyond"));
    at = 0, file[0] ^= 1;
    CHECK(!audio_tar(file, whole, &at, name, &from, &size, error) && strstr(error, "no header"));
}

/* Names too long for a header, of which the last 100 bytes are read */
static void tar_names(void) {
    static const struct { char kind; const char *part, *name; } parts[] = {
        {'L', "long/7_ann_0.wav", "long/7_ann_0.wav"},
        {'x', "20 mtime=1700000000\n25 path=long/7_ann_0.wav\n", "long/7_ann_0.wav"},
        {'x', "20 mtime=1700000000\n", "7_"},      {'x', "99 path=a\n", "7_"},
        {'x', "7 path=", "7_"},                    {'x', "25path=long/7_ann_0.wav\n", "7_"},
        {'x', "18446744073709551625 path=a\n", "7_"}, {'x', "6 a=b\n9 path=a\n", "a"},
        {'x', "", "7_"},                           {'L', "", "7_"},
        {'x', "0 path=a\n", "7_"},                 {'g', "9 path=a\n", "7_"}};
    char name[101], many[160];
    size_t at, from, size, i;
    for (i = 0; i < sizeof parts / sizeof *parts; i++) {
        at = length = 0, memset(file, 0, sizeof file);
        header("part", strlen(parts[i].part), parts[i].kind);
        put(parts[i].part, strlen(parts[i].part)), length += 511, length -= length % 512;
        header("7_", 3, '0'), put("abc", 3), length += 509, header("next", 0, '0');
        CHECK(audio_tar(file, length, &at, name, &from, &size, error) && !memcmp(file + from, "abc", 3));
        CHECK_THAT(!strcmp(name, parts[i].name), "part %zu: %s", i, name);
        CHECK(audio_tar(file, length, &at, name, &from, &size, error) && !strcmp(name, "next"));
    }
    memset(many, 'x', sizeof many), memcpy(many + 149, "/7_b_0.wav", 11);
    at = length = 0, memset(file, 0, sizeof file);
    header("part", sizeof many, 'L'), put(many, sizeof many), length += 512 - sizeof many;
    header("x", 0, '5'), header("7_", 0, '0');
    CHECK(audio_tar(file, length, &at, name, &from, &size, error) && !strcmp(name, "7_")); /* a folder's */
    at = 0, memset(file + 1024, 0, 1024), length = 1024, header("7_", 0, '0');
    CHECK(audio_tar(file, length, &at, name, &from, &size, error) && strlen(name) == 100);
    CHECK(!strcmp(name + 90, "/7_b_0.wav"));
}

static void spectra(void) {
    enum { N = 32, COUNT = 100 };
    double re[N], im[N], x[N], y[N], worst = 0;
    float tone[COUNT], out[6 * 2 * (N / 2 + 1)];
    size_t f, t;
    for (t = 0; t < N; t++) re[t] = x[t] = check_random(), im[t] = y[t] = check_random();
    audio_fft(N, re, im);
    for (f = 0; f < N; f++) {
        double a = 0, b = 0;
        for (t = 0; t < N; t++) {
            double angle = -6.283185307179586 * (double)(f * t) / N;
            a += x[t] * cos(angle) - y[t] * sin(angle), b += x[t] * sin(angle) + y[t] * cos(angle);
        }
        worst = fmax(worst, fmax(fabs(a - re[f]), fabs(b - im[f])));
    }
    CHECK_NEAR(worst, 0, 1e-12);
    CHECK(audio_windows(0, N) == 1 && audio_windows(N, N) == 1 && audio_windows(N + 1, N) == 2);
    CHECK(audio_windows(N + N / 2, N) == 2 && audio_windows(COUNT, N) == 6);
    /* A tone in the middle of bin 5: all of it in bins 4 to 6, with one phase in all whole windows */
    for (t = 0; t < COUNT; t++) tone[t] = (float)cos(6.283185307179586 * 5 * (double)t / N + 0.7);
    audio_spectra(tone, COUNT, N, out);
    for (t = 0; t < 5; t++) {
        const float *row = out + t * 2 * (N / 2 + 1);
        CHECK_NEAR(atan2((double)row[N / 2 + 1 + 5], (double)row[5]), 0.7, 1e-2);
        CHECK_NEAR(hypot((double)row[5], (double)row[N / 2 + 1 + 5]), N / 4.0, 1e-2);
        CHECK_NEAR(hypot((double)row[9], (double)row[N / 2 + 1 + 9]), 0, 1e-2);
    }
}

/* ---- WAV files of any kind ---- */

/* Reads a copy of exactly that size. */
static int listen(size_t n, float **x, size_t *count) {
    unsigned char *copy = (unsigned char *)check_alloc(n, 1);
    memcpy(copy, file, n), error[0] = 0;
    int done = sound_read(copy, n, "a\nname", x, count, error);
    CHECK(done ? *x && *count > 0 : !*x && !*count && one_line());
    free(copy);
    return done;
}

/* A WAV file of a tone, of which channel c has c times as much as the first. */
static void tone(uint32_t format, uint32_t channels, uint32_t rate, uint32_t bits, size_t n) {
    begin(format, channels, rate, bits);
    put("data", 4), number((uint32_t)(n * channels * bits / 8), 4);
    for (size_t t = 0; t < n; t++)
        for (uint32_t c = 0; c < channels; c++) {
            double loud = 0.3 / (channels > 1 ? 1.5 : 1) * (c + 1);
            double value = loud * sin(6.283185307179586 * 500 * (double)t / rate);
            float narrow = (float)value;
            uint32_t word;
            memcpy(&word, &narrow, 4);
            if (format == 1) word = (uint32_t)(int32_t)floor(value * pow(2, bits - 1));
            number(bits == 8 ? word ^ 128 : word, (int)bits / 8);
        }
}

#ifdef WITH_SOUND
/* The tone at 8 kHz, whatever the file was; the ends are those of a filter. */
static void kinds(void) {
    static const uint32_t form[][4] = {{1, 1, 8000, 16}, {1, 2, 8000, 16}, {1, 1, 16000, 16},
                                       {1, 2, 44100, 24}, {1, 1, 22050, 8}, {3, 2, 48000, 32},
                                       {1, 1, 4000, 32}, {3, 1, 8000, 32}};
    float *x;
    size_t count, i, t;
    for (i = 0; i < sizeof form / sizeof *form; i++) {
        double worst = 0, near_by = form[i][3] == 8 ? 0.02 : 2e-3;
        tone(form[i][0], form[i][1], form[i][2], form[i][3], form[i][2] / 10);
        CHECK_THAT(listen(length, &x, &count), "form %zu: %s", i, error);
        CHECK_THAT(count + 2 >= 800 && count <= 802, "form %zu: %zu samples", i, count);
        for (t = 100; t < 700 && t < count; t++)
            worst = fmax(worst, fabs((double)x[t] - 0.3 * sin(6.283185307179586 * 500 * (double)t / 8000)));
        CHECK_THAT(worst < near_by, "form %zu: off by %g", i, worst);
        free(x);
    }
}
#else
static void kinds(void) {
    float *x;
    size_t count;
    tone(1, 1, 8000, 16, 100);
    CHECK(listen(length, &x, &count) && count == 100);
    CHECK_NEAR(x[4], 0.3, 1e-3), free(x);
    tone(1, 2, 44100, 16, 100);
    CHECK(!listen(length, &x, &count) && strstr(error, "apt-get install libsndfile1-dev"));
}
#endif

/* Cut anywhere, of no kind, with samples that are no numbers, and with any byte changed */
static void damaged(void) {
    float *x, none = (float)NAN, large = 1e30f;
    size_t count, i, whole;
    tone(1, 1, 8000, 16, 50);
    for (i = 0, whole = length; i < whole; i++) CHECK_THAT(!listen(i, &x, &count), "cut at %zu", i);
    CHECK(listen(whole, &x, &count) && count == 50), free(x);
    file[8] = 'w';
    CHECK(!listen(whole, &x, &count) && strstr(error, "not a WAV file"));
    begin(1, 1, 8000, 16), chunk("data", 0, 0);
    CHECK(!listen(length, &x, &count) && strstr(error, "no whole samples"));
    begin(1, 2, 8000, 16), chunk("data", 6, 6);
    CHECK(!listen(length, &x, &count) && strstr(error, "no whole samples"));
#ifdef WITH_SOUND
    tone(3, 1, 8000, 32, 50), memcpy(file + 44 + 40, &none, 4);
    CHECK(!listen(length, &x, &count) && strstr(error, "sample 11 is no number"));
    tone(3, 1, 8000, 32, 50), memcpy(file + 44, &large, 4);
    CHECK(!listen(length, &x, &count) && strstr(error, "sample 1 is no number"));
    tone(1, 1, 1, 16, 50);
    CHECK(!listen(length, &x, &count) && strstr(error, "1 Hz"));
#else
    (void)none, (void)large;
#endif
    for (i = 0; i < 500; i++) {
        tone(1, 1, 8000, 16, 50);
        file[check_below(44)] = (unsigned char)check_below(256);
        file[check_below(44)] = (unsigned char)check_below(256);
        if (listen(length, &x, &count)) free(x);
    }
}

/* ---- What is heard ---- */

enum { WORD = 3000, HEAR_WINDOW = 256 };
static float word[WORD];

/* Two tones with a pause, so that bands and times differ. */
static void make_word(void) {
    for (size_t t = 0; t < WORD; t++) {
        double loud = t > 1200 && t < 1600 ? 0.01 : 0.3, hertz = t < 1300 ? 500 + 0.2 * (double)t : 1700;
        word[t] = (float)(loud * sin(6.283185307179586 * hertz * (double)t / AUDIO_RATE));
    }
}

/* Hears n samples of a speaker of whom nothing else is known; all that comes is finite and not large. */
static cmha_real *hear(const float *x, size_t n, const voice_change *c, cmha_rng *rng, size_t *positions) {
    size_t frames = 0;
    double *bands = voice_bands(x, n, HEAR_WINDOW, c, rng, &frames);
    voice_known known;
    CHECK(bands && frames >= 1 && voice_know(&known, &bands, &frames, 1));
    *positions = voice_positions(frames);
    cmha_real *heard = (cmha_real *)check_alloc(*positions * VOICE_WIDTH, sizeof *heard);
    voice_hear(bands, frames, &known, c, heard);
    free(bands);
    for (size_t i = 0; i < *positions * VOICE_WIDTH; i++)
        CHECK_THAT(fabs((double)heard[i]) < 1000, "number %zu is %g", i, (double)heard[i]);
    return heard;
}

/* Is the word heard with these changes as it is without one? */
static int heard_the_same(const voice_change *c, uint64_t noise) {
    voice_change none = voice_same();
    cmha_rng rng = cmha_rng_make(noise, 0);
    size_t a, b;
    cmha_real *x = hear(word, WORD, &none, NULL, &a), *y = hear(word, WORD, c, &rng, &b);
    int same = a == b && !memcmp(x, y, a * VOICE_WIDTH * sizeof *x);
    free(x), free(y);
    return same;
}

/* Each strength alone: 0 changes nothing; more does, within its bounds, and the same for the same seed. */
static void strengths(void) {
    enum { STRENGTHS = sizeof(voice_strength) / sizeof(double) };
    double each[STRENGTHS];
    voice_strength s;
    size_t i, k, a, b;
    memset(each, 0, sizeof each), memcpy(&s, each, sizeof s);
    for (k = 0; k < 20; k++) {
        cmha_rng rng = cmha_rng_make(k, 1);
        voice_change c = voice_draw(&s, &rng);
        CHECK(heard_the_same(&c, k));
    }
    for (i = 0; i < STRENGTHS; i++) {
        size_t changed = 0;
        memset(each, 0, sizeof each), each[i] = 0.4, memcpy(&s, each, sizeof s);
        for (k = 0; k < 20; k++) {
            cmha_rng rng = cmha_rng_make(k, 1), again = rng, noise = cmha_rng_make(k, 2), same = noise;
            voice_change c = voice_draw(&s, &rng), d = voice_draw(&s, &again);
            CHECK(!memcmp(&c, &d, sizeof c));
            CHECK(fabs(c.speed - 1) <= 0.4 && fabs(c.stretch - 1) <= 0.4 && fabs(c.warp - 1) <= 0.4);
            CHECK(c.noise >= 0 && c.noise <= 0.4);
            CHECK(fabs(c.before) <= 0.4 * AUDIO_RATE && fabs(c.behind) <= 0.4 * AUDIO_RATE);
            CHECK(c.echo >= 0 && c.echo <= 0.4 && c.delay >= 80 && c.delay <= 240 && c.floor > 0);
            CHECK(c.band + c.bands <= VOICE_BANDS && c.frame >= 0 && c.frame + c.frames <= 1);
            cmha_real *x = hear(word, WORD, &c, &noise, &a), *y = hear(word, WORD, &d, &same, &b);
            CHECK(a == b && !memcmp(x, y, a * VOICE_WIDTH * sizeof *x));
            free(x), free(y);
            changed += !heard_the_same(&c, k);
        }
        CHECK_THAT(changed >= 15, "strength %zu changes %zu of 20", i, changed);
    }
}

/* No sample, one, less than a window, silence: with all changes at once */
static void little(void) {
    static const size_t lengths[] = {0, 1, 2, 79, 80, 255, 256, 257, 1000};
    static const voice_strength strong = {0.5, 0.5, 0.5, 1, 0.9, 1, 4, 1};
    static float silence[1000];
    size_t i, k, n, begin;
    for (i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        float *x = (float *)check_alloc(lengths[i], sizeof *x); /* no sample beyond it is read */
        for (k = 0; k < lengths[i]; k++) x[k] = word[k];
        for (k = 0; k < 50; k++) {
            cmha_rng rng = cmha_rng_make(k, i);
            voice_change c = voice_draw(&strong, &rng);
            free(hear(x, lengths[i], &c, &rng, &n));
            cmha_real *none = hear(silence, lengths[i], &c, &rng, &n);
            for (size_t at = 0; at < n * VOICE_WIDTH; at++) CHECK(none[at] == 0);
            free(none);
        }
        n = voice_trim(x, lengths[i], &begin);
        CHECK(begin + n <= lengths[i] && (n > 0 || !lengths[i]));
        CHECK(voice_trim(silence, lengths[i], &begin) == lengths[i] && begin == 0);
        free(x);
    }
}

/* Loudness and silence around it are not heard; a warp is heard as another tone. */
static void hearing(void) {
    static float padded[WORD + 4000], tone_at[2][2000], played[2 * WORD];
    static double bands[200 * VOICE_BANDS], other[200 * VOICE_BANDS], place[HEAR_WINDOW / 2 + 1];
    voice_change c = voice_same();
    voice_frames f = voice_frames_of(2000, HEAR_WINDOW, &c);
    cmha_rng rng = cmha_rng_make(3, 3);
    size_t a, b, i, t, n;
    double sum = 0, whole = 0;
    for (t = 0; t < WORD; t++) padded[2000 + t] = word[t] / 8;
    n = voice_trim(padded, WORD + 4000, &i);
    CHECK(i <= 2000 && i + 240 > 2000 && i + n >= 2000 + WORD && i + n <= 2000 + WORD + 240);
    cmha_real *x = hear(word, WORD, &c, NULL, &a), *y = hear(padded + 2000, WORD, &c, NULL, &b);
    CHECK(a == b);
    for (i = 0; i < a * VOICE_WIDTH; i++) CHECK_NEAR(x[i], y[i], 1e-3);
    free(x), free(y);
    CHECK(voice_length(WORD, &c) == WORD);
    voice_play(word, WORD, &c, played);
    CHECK(!memcmp(played, word, sizeof word));
    c.speed = 2, c.before = 100;
    CHECK(voice_length(WORD, &c) == (WORD + 100) / 2);
    voice_play(word, WORD, &c, played);
    CHECK(played[49] == 0 && played[50] == word[0] && played[150] == word[200]);
    c = voice_same(), c.noise = 0.5, c.dull = 0.9;
    for (t = 0; t < WORD; t++) played[t] = word[t];
    voice_noise(played, WORD, &c, &rng);
    for (t = 0; t < WORD; t++) {
        sum += pow((double)played[t] - (double)word[t], 2);
        whole += pow((double)word[t], 2);
    }
    CHECK_NEAR(sqrt(sum / whole), 0.5, 0.1);
    for (t = 0; t < 2000; t++)
        for (i = 0; i < 2; i++)
            tone_at[i][t] = (float)sin(6.283185307179586 * (i ? 1200 : 1000) * (double)t / AUDIO_RATE);
    c = voice_same();
    voice_powers(tone_at[1], 2000, &f, &c, other);
    c.warp = 1.2;
    voice_powers(tone_at[0], 2000, &f, &c, bands);
    for (t = 0, a = b = 0; t < VOICE_BANDS; t++) {
        a = bands[t] > bands[a] ? t : a;
        b = other[t] > other[b] ? t : b;
    }
    CHECK(a == b);
    for (i = 0; i < 40; i++) { /* every bin keeps its order and stays where there are bands */
        static const voice_strength warped = {0, 0, 0.5, 0, 0, 0, 0, 0};
        c = voice_draw(&warped, &rng);
        c.bend = c.fold = 0;
        voice_places(HEAR_WINDOW, &c, place);
        CHECK_NEAR(place[HEAR_WINDOW / 2], VOICE_BANDS + 1, 1e-6);
        for (t = 1; t <= HEAR_WINDOW / 2; t++) CHECK(place[t] >= place[t - 1]);
    }
}

/* Two recordings make a speaker known, each band by itself: ranks keep the order of what they are of, are
   evenly spread, and the same through another microphone. */
static void speakers(void) {
    enum { FRAMES = 2000 };
    double *bands[2], *coloured[2], last = -9;
    const size_t frames[2] = {FRAMES, FRAMES / 2};
    voice_known known, other;
    size_t i, r, t, b;
    for (i = 0; i < 2; i++) {
        bands[i] = (double *)check_alloc(frames[i] * VOICE_BANDS, sizeof **bands);
        coloured[i] = (double *)check_alloc(frames[i] * VOICE_BANDS, sizeof **bands);
        for (t = 0; t < frames[i] * VOICE_BANDS; t++) {
            bands[i][t] = (double)check_below(100000) / 10000;
            coloured[i][t] = 0.1 * (double)(t % VOICE_BANDS) + 0.5 * bands[i][t];
        }
    }
    CHECK(voice_know(&known, bands, frames, 2) && voice_know(&other, coloured, frames, 2));
    CHECK(!voice_know(&known, bands, frames, 0) && voice_know(&known, bands, frames, 2));
    for (b = 0; b < VOICE_BANDS; b++)
        for (r = 1; r < VOICE_RANKS; r++) CHECK(known.levels[b][r] >= known.levels[b][r - 1]);
    for (t = 0; t < 1200; t++) {
        double now = voice_deviate((double)t / 100 - 1, known.levels[3]);
        CHECK(now >= last && fabs(now) < 3);
        last = now;
    }
    CHECK_NEAR(voice_deviate(5, known.levels[3]), 0, 0.1);
    CHECK_NEAR(voice_deviate(8.413, known.levels[3]), 1, 0.1);
    for (i = 0; i < 2; i++) voice_level(bands[i], frames[i], &known);
    for (i = 0; i < 2; i++) voice_level(coloured[i], frames[i], &other);
    for (t = 0; t < frames[1] * VOICE_BANDS; t++) CHECK_NEAR(bands[1][t], coloured[1][t], 0.4);
    for (b = 0; b < VOICE_BANDS; b++) { /* one level alone is the middle */
        for (r = 0; r < VOICE_RANKS; r++) other.levels[b][r] = 2;
        CHECK(voice_deviate(2, other.levels[b]) == 0);
    }
    for (i = 0; i < 2; i++) free(bands[i]), free(coloured[i]);
}

/* A word of the same voice in the same room: what is the microphone's is the same, the vocal tract's nearly
   so. */
static void again(void) {
    static const voice_strength strong = {0.5, 0.5, 0.5, 1, 0.9, 1, 4, 1};
    cmha_rng rng = cmha_rng_make(7, 7);
    for (size_t i = 0; i < 50; i++) {
        voice_change voice = voice_draw(&strong, &rng), c = voice_again(&voice, &strong, &rng);
        CHECK(c.echo == voice.echo && c.delay == voice.delay && c.turn == voice.turn && c.dull == voice.dull);
        CHECK(fabs(c.warp - voice.warp) <= 0.1 && fabs(c.speed - 1) <= 0.5 && c.warp > 0 && c.floor > 0);
        CHECK(fabs(c.tilt - voice.tilt) <= 0.8 && c.noise <= 2.8 * voice.noise);
    }
}

int main(void) {
    wav(), tar(), tar_names(), spectra(), kinds(), damaged();
    make_word(), strengths(), little(), hearing(), speakers(), again();
    return check_end();
}
