/* What spoken.c reads with: WAV files, of other rates and kinds too, tar archives, spectra. */
#include "check.h"

#include "../examples/tools/sound.h"

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
    at = 0, memset(file + 124, '7', 12); /* larger than any memory */
    CHECK(!audio_tar(file, whole, &at, name, &from, &size, error) && one_line());
    at = 0, length = 0, header("x", 0777777, '0');
    CHECK(!audio_tar(file, whole, &at, name, &from, &size, error) && strstr(error, "beyond"));
    at = 0, file[0] ^= 1;
    CHECK(!audio_tar(file, whole, &at, name, &from, &size, error) && strstr(error, "no header"));
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

int main(void) {
    wav(), tar(), spectra(), kinds(), damaged();
    return check_end();
}
