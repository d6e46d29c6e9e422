/* Learns spoken digits:
       cc -O3 -march=native -fopenmp -I. examples/spoken.c -o build/spoken -lopenblas -lm
       build/spoken [OPTION...] RECORDINGS                                (--help lists everything)
       build/spoken [OPTION...] --model CHECKPOINT --predict FILE.wav...
   With -DWITH_SOUND and -lsndfile -lsamplerate behind it --predict reads WAV files of any kind.
   RECORDINGS is a folder or a tar archive of files DIGIT_SPEAKER_TAKE.wav, 8 kHz, 16 bits, mono, as in the
   Free Spoken Digit Dataset. By its custom takes 0 to 4 are the test set; --leave SPEAKER tests on a speaker
   whom training has never heard. tools/voices.h says what is heard of a recording (--features mel), and how
   training changes it. To a speaker of many recordings the model then adapts, without labels. Other features:
   a position is the spectrum of 32 ms, a complex number a bin, whose size is log(1 + |z| / e), e a tenth of
   the recording's root mean square. Its angle is half of what the bin has turned since the window before,
   which tells how far the sound's frequency is from the bin's middle: a quarter turn where it is that of the
   next bin. (The phase itself, --features complex, hangs on the moment at which the recording begins.) */
#include <complex.h> /* before cblas.h, which cmha.h includes without its macros */
#define CMHA_IMPLEMENTATION
#include "cmha.h"

#define PROGRAM "spoken"
#include "tools/options.h"
#include "tools/sound.h"
#include "tools/sequences.h"
#include "tools/voices.h"
#include "tools/predict.h"
#include "tools/epochs.h"

#include <dirent.h>
#include <errno.h>

enum {
    ATTENTION, COMPARE, PARAMETERS, LEAVE, FEATURES, WINDOW, SPEED, STRETCH, WARP, NOISE, ECHO_OF, PAD,
    COLOUR, MASKS, HEARINGS, ADAPT, EVEN, EPOCHS, SEED, SEEDS, THREADS, BATCH, LR,
    SAVE, RESUME, PREDICT, MODEL, JSON, LABELLED, ONE_SPEAKER, VALIDATE, PATIENCE, QUIET, HELP, SET, N_OPTIONS
};
static setting option[N_OPTIONS] = {
    {"--attention", NULL, "a kind of the list below; mel cmha, bins rope"},
    {"--compare", NULL, "kinds, KIND,KIND..., each with as many parameters as the first"},
    {"--parameters", NULL, "at most so many, by the width d_ff; with --compare those of the first kind"},
    {"--leave", NULL, "train without this speaker and test on him; all: on each in turn"},
    {"--features", "mel",
     "mel: the power in bands, a rank among the speaker's; of single bins: offset; complex: with the phase "
     "they have; magnitude: real numbers, no phases"},
    {"--window", "256", "samples of a window, a power of 2"},
    {"--speed", NULL, "training plays recordings up to so much faster or slower; mel 0.15, bins 0.12"},
    {"--stretch", NULL, "mel: and up to so much faster or slower at the same pitch, 0.2"},
    {"--warp", NULL, "mel: and with frequencies up to so much higher or lower, 0.15"},
    {"--noise", NULL, "mel: and with noise of up to so much of a recording's root mean square, 0.1"},
    {"--echo", NULL, "mel: and with echoes, each up to so much as loud as the one before, 0.6"},
    {"--pad", NULL, "mel: and up to so many seconds of silence around it, or a tenth of them cut off, 0.1"},
    {"--colour", NULL, "mel: and through other microphones, e^(this) times the power in a band, 2"},
    {"--masks", NULL, "mel: and up to so much of the bands and half as much of the time is hidden, 0.2"},
    {"--hearings", NULL,
     "mel: a recording is judged so many times, with bands a little higher or lower, slower and faster; the "
     "ways that tell most of a speaker's recordings count most, 15"},
    {"--adapt", NULL,
     "mel: to a speaker of 50 recordings or more the model adapts so many times, by what it is surest of; no "
     "label is used, 5"},
    {"--even", NULL, "mel: and it may rely on each digit coming about as often as any other"},
    {"--epochs", NULL, "passes over the training recordings; mel 80, bins 14"},
    {"--seed", "1", "of the weights, the order and the changes of the recordings"},
    {"--seeds", "1", "repeat with so many seeds, from --seed on"},
    {"--threads", "0", "0 = every core"},
    {"--batch", NULL, "recordings per step; mel 16, bins 32"},
    {"--lr", NULL, "peak learning rate; mel 4e-3, bins 5e-3"},
    {"--save", NULL,
     "a checkpoint of what was trained last; what --predict has to know lies in SAVE.classes"},
    {"--resume", NULL,
     "go on with a training of the same options that was stopped: --save keeps its state after each epoch"},
    {"--predict", NULL, "WAV files to label: prints label and probabilities of every piece"},
    {"--model", NULL, "the checkpoint to label with"},
    {"--json", NULL, "lines of JSON instead of CSV"},
    {"--labelled", NULL,
     "names of WAV files begin with their digit, as in 7_ann.wav: says on stderr how many are right"},
    {"--one-speaker", NULL,
     "mel: the files to label are all one speaker's, who is known the better for it; else those are whose "
     "names DIGIT_SPEAKER_TAKE.wav say so"},
    {"--validate", "0.1",
     "share of the training recordings that says which epoch is best and kept, and is not learnt from; 0: "
     "the last is kept"},
    {"--patience", NULL, "stop after so many epochs without a better one; mel 40, bins 8"},
    {"--quiet", NULL, "no progress, only the table"},
    {"--help", NULL, "this page"},
    {"--set", NULL,
     "NAME=VALUE for any field of the model or the training (train_tiny --help lists them); may be "
     "repeated"}};

enum { MOST_SPEAKERS = 64, MOST_KINDS = 32, MOST_SEEDS = 16, DIGITS = 10 };
enum { OFFSET, COMPLEX, MAGNITUDE, MEL, N_FEATURES };
enum { MEL_SAVED = 4 }; /* the number of mel beside a model; 3 was that of other cepstra */
typedef struct recording {
    float *x;
    size_t n, speaker;
    int digit, take;
} recording;
static recording *recordings;
static size_t n_recordings, n_speakers, n_seeds, window, longest; /* longest: windows of a recording */
static char speakers[MOST_SPEAKERS][48];
static int features;
static voice_strength strength;
static size_t hearings, adaptations;
static size_t confusion[DIGITS][DIGITS]; /* true, said; of what was trained last */
static const char *const digit_names[DIGITS] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
enum { RATE_IS, WINDOW_IS, FEATURES_ARE, HEARINGS_ARE, ABOUT = 7 };
static known about[ABOUT] = {{"rate", AUDIO_RATE}, {"window", 0}, {"features", 0}, {"hearings", 0},
                             {"bands", VOICE_BANDS}, {"context", VOICE_CONTEXT}, {"every", VOICE_EVERY}};
/* How a recording is judged, once after another: frequencies times the first number, and windows so much
   closer or wider, as of a slower or faster speaker. */
#define CLOSEST 0.87
enum { MOST_HEARINGS = 15 };
static const double hearing[MOST_HEARINGS][2] = {
    {1, 1}, {0.95, 1}, {1.05, 1}, {1, CLOSEST}, {1, 1.15}, {0.95, CLOSEST}, {1.05, CLOSEST}, {0.95, 1.15},
    {1.05, 1.15}, {0.9, 1}, {1.1, 1}, {0.9, CLOSEST}, {1.1, CLOSEST}, {0.9, 1.15}, {1.1, 1.15}};
/* Of a speaker so many recordings at least and at most are heard as one voice in training; and one of so many
   alone, as of somebody of whom nothing else is known. */
enum { FEWEST_TOGETHER = 1, MOST_TOGETHER = 120, ONE_ALONE = 4 };
/* To a speaker of so many recordings the model adapts: it learns this share of what it says of them, the
   surest of each digit, in so many epochs at this rate. */
enum { FEWEST_TO_ADAPT = 50, EPOCHS_TO_ADAPT = 3 };
#define SUREST_SHARE 0.6
#define ADAPT_RATE 1e-3

/* ---- Recordings ---- */

/* Does a name end in .wav, in capitals or not? */
static int is_wav(const char *name) {
    static const char end[] = ".wav";
    size_t n = strlen(name), same = 0;
    for (size_t i = 0; n >= 4 && i < 4; i++) same += (name[n - 4 + i] | 32) == (end[i] | 32);
    return same == 4;
}

/* Adds a file of that name if it is a WAV file; its samples become numbers from -1 to 1. */
static void add_recording(const char *name, const unsigned char *bytes, size_t size) {
    const char *base = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
    size_t begin, count, s;
    int digit, take_number, end = 0;
    char speaker[48];
    recording *r;
    if (!is_wav(base)) return;
    if (sscanf(base, "%1d_%47[^_./]_%6d.wav%n", &digit, speaker, &take_number, &end) != 3 || base[end] ||
        digit < 0 || take_number < 0)
        complain(1, "not named DIGIT_SPEAKER_TAKE.wav: ", base);
    must(audio_wav(bytes, size, base, &begin, &count, failure));
    for (s = 0; s < n_speakers && strcmp(speakers[s], speaker); s++) continue;
    if (s == MOST_SPEAKERS) complain(1, "more than 64 speakers", "");
    if (s == n_speakers) snprintf(speakers[n_speakers++], sizeof *speakers, "%s", speaker);
    if ((n_recordings & (n_recordings - 1)) == 0 &&
        !(recordings = text_memory(recordings, n_recordings ? n_recordings : 1, 2, sizeof *recordings)))
        complain(1, "no memory for so much", "");
    r = &recordings[n_recordings++];
    r->x = take(count, sizeof *r->x), r->n = count, r->speaker = s, r->digit = digit, r->take = take_number;
    for (size_t i = 0; i < count; i++)
        r->x[i] = (float)(int16_t)audio_number(bytes + begin + 2 * i, 2) / 32768;
    if (features == MEL) {
        r->n = voice_trim(r->x, r->n, &begin);
        memmove(r->x, r->x + begin, r->n * sizeof *r->x);
    }
}

static unsigned char *read_file(const char *path, size_t *size) {
    FILE *file = regular_open(path);
    unsigned char *bytes = NULL;
    long end;
    if (!file && *regular_fault(path)) complain(1, path, regular_fault(path));
    if (!file || fseek(file, 0, SEEK_END) || (end = ftell(file)) < 0 || fseek(file, 0, SEEK_SET))
        complain(1, "cannot read ", path);
    else if (*size = (size_t)end, bytes = take(*size, 1), fread(bytes, 1, *size, file) != *size)
        complain(1, "cannot read ", path);
    if (file) fclose(file);
    return bytes;
}

/* The most positions that a recording of n samples may have in training. */
static size_t positions_of(size_t n) {
    voice_change c = voice_same();
    c.speed = 1 - strength.speed;
    c.stretch = fmin(1 - strength.stretch, CLOSEST);
    c.before = c.behind = AUDIO_RATE * strength.pad;
    if (features != MEL) return audio_windows((size_t)((double)n / c.speed) + 1, window);
    voice_frames f = voice_frames_of(voice_length(n, &c) + 1, window, &c);
    return voice_positions(f.n);
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Reads the WAV files of a folder by their names: the order of recordings decides what is drawn, and that of
   a folder is another one on every disk. */
static void read_folder(DIR *folder, const char *path) {
    char **names = NULL, name[4352];
    size_t n = 0, size = 0;
    for (struct dirent *e; (e = readdir(folder)) != NULL;) {
        if (!is_wav(e->d_name)) continue;
        if ((n & (n - 1)) == 0 && !(names = text_memory(names, n ? n : 1, 2, sizeof *names)))
            complain(1, "no memory for so much", "");
        names[n++] = strcpy(take(strlen(e->d_name) + 1, 1), e->d_name);
    }
    closedir(folder);
    if (n) qsort(names, n, sizeof *names, by_name);
    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%s/%s", path, names[i]);
        unsigned char *bytes = read_file(name, &size);
        add_recording(names[i], bytes, size);
        free(bytes), free(names[i]);
    }
    free(names);
}

static int by_take(const void *a, const void *b) {
    const recording *x = a, *y = b;
    if (x->speaker != y->speaker) return x->speaker < y->speaker ? -1 : 1;
    if (x->digit != y->digit) return x->digit - y->digit;
    return x->take < y->take ? -1 : x->take > y->take;
}

/* Ends the program where a take is there twice, as in an archive that a file was added to again: it would
   count twice, and perhaps be in training and test. */
static void refuse_twice(const char *path) {
    recording *sorted = take(n_recordings, sizeof *sorted);
    char line[TEXT_ERROR];
    memcpy(sorted, recordings, n_recordings * sizeof *sorted);
    qsort(sorted, n_recordings, sizeof *sorted, by_take);
    for (const recording *r = sorted + 1; r < sorted + n_recordings; r++) {
        if (by_take(r - 1, r)) continue;
        text_fail(line, "%d_%s_%d.wav comes more than once in ", r->digit, speakers[r->speaker], r->take);
        complain(1, line, path);
    }
    free(sorted);
}

static void read_recordings(const char *path) {
    DIR *folder = opendir(path);
    unsigned char *bytes;
    size_t size = 0, at = 0, begin = 0, bytes_of = 0;
    char name[4352];
    if (folder) read_folder(folder, path);
    else {
        bytes = read_file(path, &size);
        while (audio_tar(bytes, size, &at, name, &begin, &bytes_of, failure))
            add_recording(name, bytes + begin, bytes_of);
        if (*failure) complain(1, failure, "");
        free(bytes);
    }
    if (!n_recordings) complain(1, "there are no recordings DIGIT_SPEAKER_TAKE.wav in ", path);
    refuse_twice(path);
    for (at = 0; at < n_recordings; at++) {
        size_t n = positions_of(recordings[at].n);
        longest = n > longest ? n : longest;
    }
}

/* ---- Spectra ---- */

/* Compresses a spectrum of n windows and writes what the model sees of it. */
static void write_features(const float *z, size_t n, cmha_real *to) {
    size_t bins = window / 2 + 1, t, i;
    double sum = 0, e;
    for (i = 0; i < n * 2 * bins; i++) sum += (double)z[i] * (double)z[i];
    e = 0.1 * sqrt(sum / (double)(n * bins)) + 1e-9;
    for (t = 0; t < n; t++, z += 2 * bins, to += bins * (features == MAGNITUDE ? 1 : 2))
        for (i = 0; i < bins; i++) {
            double complex c = (double)z[i] + I * (double)z[bins + i], before = 1;
            if (features == OFFSET && t) before = (double)z[i - 2 * bins] + I * (double)z[i - bins];
            double size = log(1 + cabs(c) / e);
            c *= conj(before);
            c = size * (features == OFFSET ? cexp(I * carg(c) / 2) : c / (cabs(c) + 1e-30));
            to[i] = (cmha_real)(features == MAGNITUDE ? size : creal(c));
            if (features != MAGNITUDE) to[bins + i] = (cmha_real)cimag(c);
        }
}

/* How many numbers a position has, complex ones if they are. */
static size_t width_of(void) { return features == MEL ? VOICE_WIDTH : window / 2 + 1; }

/* A recording in bands, as it was changed */
typedef struct changed {
    voice_change change;
    double *bands;
    size_t frames, voice; /* whose it is */
} changed;

/* Says whose each recording is: its speaker's, or with rng one of several voices', as whose a speaker's
   recordings are heard. Returns how many voices there are. */
static size_t share_out(const size_t *chosen, size_t n, cmha_rng *rng, changed *h) {
    size_t *order = take(n, sizeof *order), voices = 0, voice = 0, i, j, s, left;
    for (i = 0; i < n; i++) { /* inside out */
        j = rng ? (size_t)cmha_rng_below(rng, i + 1) : i;
        order[i] = order[j];
        order[j] = i;
    }
    for (s = 0; s < n_speakers; s++)
        for (i = left = 0; i < n; i++) {
            if (recordings[chosen[order[i]]].speaker != s) continue;
            if (rng && !cmha_rng_below(rng, ONE_ALONE)) {
                h[order[i]].voice = voices++;
                continue;
            }
            if (!left) {
                double most = MOST_TOGETHER / FEWEST_TOGETHER;
                voice = voices++;
                left = rng ? (size_t)(FEWEST_TOGETHER * pow(most, cmha_rng_uniform(rng))) : n;
            }
            left--;
            h[order[i]].voice = voice;
        }
    free(order);
    return voices;
}

/* Hears the recordings that are chosen, each voice with changes of its own if there is rng, else all as `how`
   says, and gets to know the voices; a position's numbers are still to be written. */
static voice_known *hear_voices(const size_t *chosen, size_t n, cmha_rng *rng, const double how[2],
                                changed *h) {
    size_t voices = share_out(chosen, n, rng, h), v, i, k, *frames = take(n, sizeof *frames);
    double **bands = take(n, sizeof *bands);
    voice_known *who = take(voices, sizeof *who);
    for (v = 0; v < voices; v++) {
        voice_change voice = rng ? voice_draw(&strength, rng) : voice_same();
        if (!rng) voice.warp = how[0], voice.stretch = how[1];
        for (i = k = 0; i < n; i++) {
            const recording *r = &recordings[chosen[i]];
            if (h[i].voice != v) continue;
            h[i].change = rng ? voice_again(&voice, &strength, rng) : voice;
            bands[k] = voice_bands(r->x, r->n, window, &h[i].change, rng, &frames[k]);
            if (!bands[k]) complain(1, "no memory for so much", "");
            h[i].bands = bands[k];
            h[i].frames = frames[k++];
        }
        if (!voice_know(&who[v], bands, frames, k)) complain(1, "no memory for so much", "");
    }
    free(frames), free(bands);
    return who;
}

/* Makes sequences of the power in bands of the recordings that are chosen. */
static sequences hear_all(const size_t *chosen, size_t n, cmha_rng *rng, const double how[2]) {
    sequences s = {.n = n, .width = VOICE_WIDTH};
    changed *h = take(n, sizeof *h);
    voice_known *who = hear_voices(chosen, n, rng, how, h);
    s.begin = take(n + 1, sizeof *s.begin);
    s.label = take(n, sizeof *s.label);
    for (size_t i = 0; i < n; i++) {
        size_t count = voice_positions(h[i].frames);
        s.begin[i + 1] = s.begin[i] + count;
        s.label[i] = (cmha_real)recordings[chosen[i]].digit;
        s.longest = count > s.longest ? count : s.longest;
    }
    s.x = take(times(s.begin[n], VOICE_WIDTH), sizeof *s.x);
    for (size_t i = 0; i < n; i++) {
        voice_hear(h[i].bands, h[i].frames, &who[h[i].voice], &h[i].change, s.x + s.begin[i] * VOICE_WIDTH);
        free(h[i].bands);
    }
    free(h), free(who);
    return s;
}

/* Makes sequences of the spectra of recordings that are chosen. With rng each is played at a speed of its
   own, from a sample of its own on. */
static sequences make_spectra(const size_t *chosen, size_t n, cmha_rng *rng) {
    sequences s = {.n = n, .width = window / 2 + 1, .is_complex = features < MAGNITUDE};
    double *rate = take(2 * n, sizeof *rate), *start = rate + n;
    size_t most = 0, i, j, count;
    s.begin = take(n + 1, sizeof *s.begin), s.label = take(n, sizeof *s.label);
    for (i = 0; i < n; i++) {
        const recording *r = &recordings[chosen[i]];
        rate[i] = rng ? 1 + strength.speed * (2 * cmha_rng_uniform(rng) - 1) : 1;
        start[i] = rng ? cmha_rng_uniform(rng) * 0.5 * (double)(r->n < window ? r->n : window) : 0;
        count = (size_t)(((double)r->n - start[i]) / rate[i]);
        s.begin[i + 1] = s.begin[i] + audio_windows(count, window), s.label[i] = (cmha_real)r->digit;
        most = count > most ? count : most;
    }
    s.x = take(times(s.begin[n], row_of(&s)), sizeof *s.x);
    float *x = take(most, sizeof *x);
    float *z = take(times(audio_windows(most, window), window + 2), sizeof *z);
    for (i = 0; i < n; i++) {
        const recording *r = &recordings[chosen[i]];
        count = (size_t)(((double)r->n - start[i]) / rate[i]);
        for (j = 0; j < count; j++) { /* linear between two samples */
            double at = start[i] + rate[i] * (double)j, part = at - floor(at);
            size_t k = (size_t)at < r->n ? (size_t)at : r->n - 1;
            x[j] = (float)((1 - part) * (double)r->x[k] + part * (double)r->x[k + 1 < r->n ? k + 1 : k]);
        }
        size_t windows = s.begin[i + 1] - s.begin[i];
        audio_spectra(x, count, window, z);
        write_features(z, windows, s.x + s.begin[i] * row_of(&s));
        s.longest = windows > s.longest ? windows : s.longest;
    }
    free(x), free(z), free(rate);
    return s;
}

static sequences make_sequences(const size_t *chosen, size_t n, cmha_rng *rng) {
    return features == MEL ? hear_all(chosen, n, rng, hearing[0]) : make_spectra(chosen, n, rng);
}

/* Makes probabilities of scores [n, classes]. */
static void shares_of(const cmha_real *scores, size_t n, double *shares) {
    for (size_t i = 0; i < n; i++, scores += DIGITS, shares += DIGITS) {
        double sum = 0, most = (double)scores[best_of(scores, DIGITS)];
        for (size_t c = 0; c < DIGITS; c++) sum += shares[c] = exp((double)scores[c] - most);
        for (size_t c = 0; c < DIGITS; c++) shares[c] /= sum;
    }
}

/* How much a hearing counts, by what it tells of a speaker's recordings: the entropy of all that is said less
   the mean one of what is said of a recording. Of one recording that is 0, and all hearings are alike. */
static double weight_of(const double *shares, size_t n) {
    double all[DIGITS] = {0}, told_of = 0;
    for (size_t i = 0; i < n * DIGITS; i++) {
        all[i % DIGITS] += shares[i];
        told_of += shares[i] * log(shares[i] + 1e-30);
    }
    for (size_t c = 0; c < DIGITS; c++) told_of -= all[c] * log(all[c] / (double)n + 1e-30);
    return exp(fmin(1, 100 / (double)n) * told_of);
}

/* Weighs the scores [n, DIGITS] of a speaker's recordings until each digit has as much of them as another. */
static void even_out(cmha_real *scores, size_t n) {
    double *shares = take(times(n, DIGITS), sizeof *shares);
    for (size_t turn = 0; turn < 30; turn++) {
        double all[DIGITS] = {0};
        shares_of(scores, n, shares);
        for (size_t i = 0; i < n * DIGITS; i++) all[i % DIGITS] += shares[i];
        for (size_t i = 0; i < n * DIGITS; i++)
            scores[i] = (cmha_real)log(fmax(shares[i] / fmax(all[i % DIGITS], 1e-30), 1e-30));
    }
    free(shares);
}

/* Writes the class scores of n >= 1 recordings of one speaker, scores [n, classes]; where there are several
   hearings the logarithms of their mean probabilities, weighed. */
static void listen(cmha_model *model, const size_t *chosen, size_t n, cmha_real *scores) {
    size_t all = times(n, DIGITS), h, i;
    double *sum = take(all, sizeof *sum), *shares = take(all, sizeof *shares);
    for (h = 0; h < hearings; h++) {
        sequences heard = h ? hear_all(chosen, n, NULL, hearing[h]) : make_sequences(chosen, n, NULL);
        judge(model, &heard, NULL, scores);
        close_sequences(&heard);
        shares_of(scores, n, shares);
        double weight = weight_of(shares, n);
        for (i = 0; i < all; i++) sum[i] += weight * shares[i];
    }
    for (i = 0; i < all; i++)
        if (hearings > 1) scores[i] = (cmha_real)log(fmax(sum[i], 1e-30));
    if (option[EVEN].value && n >= FEWEST_TO_ADAPT) even_out(scores, n);
    free(sum), free(shares);
}

/* ---- Adapting ---- */

static int surer(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* Moves the surest of what is said of n recordings to the front of order [n], a share of each digit and all
   that are as sure, and returns how many they are. */
static size_t find_surest(const cmha_real *scores, size_t n, size_t *order) {
    double *shares = take(times(n, DIGITS), sizeof *shares), *sure = take(n, sizeof *sure);
    size_t count = 0;
    shares_of(scores, n, shares);
    for (size_t d = 0; d < DIGITS; d++) {
        size_t said = 0;
        for (size_t i = 0; i < n; i++)
            if (best_of(scores + i * DIGITS, DIGITS) == d) sure[said++] = shares[i * DIGITS + d];
        if (!said) continue;
        qsort(sure, said, sizeof *sure, surer);
        double least = sure[(size_t)(SUREST_SHARE * (double)(said - 1))];
        for (size_t i = 0; i < n; i++)
            if (best_of(scores + i * DIGITS, DIGITS) == d && shares[i * DIGITS + d] >= least)
                order[count++] = i;
    }
    free(shares), free(sure);
    return count;
}

/* Learns what the scores of n recordings of one speaker are surest of, changed as in training; `turn` counts
   from 0. */
static void adapt(cmha_model *model, const size_t *chosen, size_t n, const cmha_real *scores, uint64_t turn,
                  cmha_rng *rng) {
    cmha_trainer trainer;
    size_t *sure = take(2 * n, sizeof *sure), *recorded = sure + n, count = 0, i;
    const size_t found = find_surest(scores, n, sure);
    const int limited = mc.position == CMHA_POSITION_LEARNED || mc.family == CMHA_FAMILY_COPE;
    for (i = 0; i < found; i++) { /* a long one may become longer than positions are learned */
        size_t most = positions_of(recordings[chosen[sure[i]]].n);
        if (limited && most > mc.max_positions) continue;
        sure[count] = sure[i];
        recorded[count++] = chosen[sure[i]];
    }
    tc.lr = ADAPT_RATE;
    if (!count) {
        free(sure);
        return;
    }
    tc.steps = (count + tc.batch - 1) / tc.batch * EPOCHS_TO_ADAPT;
    check(cmha_trainer_init(&trainer, model, &tc));
    for (uint64_t e = 1; e <= EPOCHS_TO_ADAPT; e++) {
        sequences s = hear_all(recorded, count, rng, hearing[0]);
        for (i = 0; i < count; i++) s.label[i] = (cmha_real)best_of(scores + sure[i] * DIGITS, DIGITS);
        learn(&trainer, &s, turn * EPOCHS_TO_ADAPT + e);
        close_sequences(&s);
    }
    cmha_trainer_close(&trainer);
    free(sure);
}

/* Judges n recordings of one speaker. To many the model adapts before it judges again; then it is what it
   was. */
static void judge_speaker(cmha_model *model, const size_t *chosen, size_t n, cmha_real *scores) {
    const cmha_trainer_config usual = tc;
    const size_t size = model->parameters.size;
    cmha_real *weights = take(size, sizeof *weights);
    cmha_rng rng = cmha_rng_make(ctx.config.seed, (1u << 30) + 3);
    static int told_few;
    if (option[EVEN].value && n < FEWEST_TO_ADAPT && !told_few++)
        complain(0, "--even is for 50 recordings of a speaker or more; of one there are fewer", "");
    memcpy(weights, model->parameters.data, size * sizeof *weights);
    listen(model, chosen, n, scores);
    for (size_t turn = 0; turn < adaptations && features == MEL && n >= FEWEST_TO_ADAPT; turn++) {
        adapt(model, chosen, n, scores, turn, &rng);
        listen(model, chosen, n, scores);
    }
    memcpy(model->parameters.data, weights, size * sizeof *weights);
    tc = usual;
    free(weights);
}

/* ---- A kind of attention ---- */

static void save(cmha_model *model) {
    about[WINDOW_IS].value = window;
    about[FEATURES_ARE].value = features == MEL ? MEL_SAVED : (uint64_t)features;
    about[HEARINGS_ARE].value = hearings;
    check(cmha_model_save(model, option[SAVE].value));
    save_known(option[SAVE].value, about, ABOUT, digit_names, DIGITS);
}

/* Puts a share of n recordings, drawn by the seed, behind the others; returns how many they are. */
static size_t hold_out(size_t *chosen, size_t n) {
    double share = number_of(&option[VALIDATE], 0, 0.5);
    size_t held = (size_t)ceil(share * (double)n), i, j, swap;
    cmha_rng rng = cmha_rng_make(ctx.config.seed, (1u << 30) + 1);
    if (held >= n) held = 0;
    for (i = held ? n : 0; i > 1; i--) {
        j = (size_t)cmha_rng_below(&rng, i);
        swap = chosen[j];
        chosen[j] = chosen[i - 1];
        chosen[i - 1] = swap;
    }
    return held;
}

/* Judges the test recordings, speaker by speaker, and returns the share that is right. */
static double test_model(cmha_model *model, const size_t *test, size_t n) {
    cmha_real *scores = take(times(n, DIGITS), sizeof *scores);
    size_t *his = take(n, sizeof *his), right = 0;
    memset(confusion, 0, sizeof confusion);
    for (size_t s = 0, i; s < n_speakers; s++) {
        size_t count = 0;
        for (i = 0; i < n; i++)
            if (recordings[test[i]].speaker == s) his[count++] = test[i];
        if (count) judge_speaker(model, his, count, scores);
        for (i = 0; i < count; i++) {
            size_t said = best_of(scores + i * DIGITS, DIGITS), is = (size_t)recordings[his[i]].digit;
            confusion[is][said]++;
            right += said == is;
        }
    }
    free(scores), free(his);
    return (double)right / (double)n;
}

static const char *several_asked(void) {
    if (option[LEAVE].value && !strcmp(option[LEAVE].value, "all")) return "--leave all";
    return several_of(&option[ATTENTION], &option[COMPARE], &option[SEEDS]);
}

/* A training, which only where it is the one of its run keeps its state. */
static epochs open_run(void) {
    epochs run = {.path = several_asked() ? NULL : option[SAVE].value, .options = option, .data = 1};
    static const int own[] = {EPOCHS, SEED, VALIDATE, PATIENCE};
    for (int o = LEAVE; o <= MASKS; o++) run.own |= UINT64_C(1) << o;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) run.own |= UINT64_C(1) << own[i];
    for (size_t i = 0; run.path && i < n_recordings; i++) {
        const recording *r = &recordings[i];
        const size_t about_it[3] = {r->speaker, (size_t)r->digit, (size_t)r->take};
        run.data = fingerprint(run.data, about_it, sizeof about_it);
        run.data = fingerprint(run.data, r->x, r->n * sizeof *r->x);
    }
    run.data = fingerprint(run.data, speakers, sizeof speakers);
    run.rng = cmha_rng_make(ctx.config.seed, 1u << 30);
    return run;
}

/* Before the first training, but behind what may refuse to go on with it. */
static void print_heading(void) {
    static int printed;
    if (printed++) return;
    if (!option[QUIET].value) printf("%zu recordings of %zu speakers\n", n_recordings, n_speakers);
    printf("%-15s %10s  test, mean of the seeds and largest less least, in %%\n", "", "parameters");
}

/* Trains with a seed and returns the share of the test recordings that is right. `leave`: a speaker, or
   n_speakers for the split by takes. */
static double train_kind(const char *kind, size_t leave, uint64_t most, size_t *parameters) {
    size_t *train = take(2 * n_recordings, sizeof *train), *test = train + n_recordings, i;
    size_t n_train = 0, n_test = 0, held;
    uint64_t patience = whole_of(&option[PATIENCE], 1, 100000);
    cmha_model model;
    cmha_trainer trainer;
    epochs run = open_run();
    cmha_rng *rng = features == MEL || strength.speed > 0 ? &run.rng : NULL;
    double start = seconds(), loss = 0;
    for (i = 0; i < n_recordings; i++) {
        int is_test = leave < n_speakers ? recordings[i].speaker == leave : recordings[i].take < 5;
        if (is_test) test[n_test++] = i;
        else train[n_train++] = i;
    }
    if (!n_train || !n_test) complain(1, "nothing to train on, or nothing to test on", "");
    held = hold_out(train, n_train);
    n_train -= held;
    /* Changed, recordings that are held out are more like those of strangers. */
    cmha_rng other = cmha_rng_make(ctx.config.seed, (1u << 30) + 2);
    sequences held_out = make_sequences(train + n_train, held, features == MEL ? &other : NULL);
    tc.steps = times((n_train + tc.batch - 1) / tc.batch, (size_t)most);
    make_room(n_recordings, longest, width_of() * (features < MAGNITUDE ? 2 : 1));
    check(cmha_model_init(&model, &ctx, &mc)), check(cmha_trainer_init(&trainer, &model, &tc));
    *parameters = model.parameters.size;
    begin_epochs(&run, &trainer, option[RESUME].value != NULL, &option[QUIET]);
    print_heading();
    while (!epochs_over(&run, most, held ? patience : 0)) {
        uint64_t e = run.now.epoch + 1;
        sequences s = make_sequences(train, n_train, rng);
        loss = learn(&trainer, &s, e);
        close_sequences(&s);
        show_progress(&option[QUIET], kind, "", e, most, loss, start);
        end_epoch(&run, &trainer, &held_out);
    }
    take_best(&run.best, &model, &option[QUIET], run.now.epoch);
    cmha_trainer_close(&trainer);
    double share = test_model(&model, test, n_test);
    if (option[SAVE].value) save(&model);
    drop_epochs(&run);
    close_sequences(&held_out), close_room(), free(train);
    cmha_model_close(&model);
    return share;
}

/* ---- Prediction ---- */

/* The most samples that the model reads at once */
static size_t longest_piece(void) {
    size_t frames = times(mc.max_positions, VOICE_EVERY);
    if (features == MEL) return (size_t)(CLOSEST * (double)times(frames - 1, voice_step(window))) + window;
    return times(mc.max_positions - 1, window / 2) + window;
}

/* Adds a file's pieces, as long as the model reads, to the recordings, and returns how many they are; a last
   one shorter than a window is left out. */
static size_t load_pieces(const char *path) {
    size_t piece = longest_piece(), count, n, i, begin = 0;
    float *x;
    must(sound_load(path, &x, &count, failure));
    if (features == MEL) count = voice_trim(x, count, &begin);
    n = count / piece;
    n += !n || count % piece >= window;
    recordings = text_memory(recordings, n_recordings + n, 1, sizeof *recordings);
    if (!recordings) complain(1, "no memory for so much", "");
    for (i = 0; i < n; i++) {
        recording *r = &recordings[n_recordings++];
        memset(r, 0, sizeof *r);
        r->n = count - i * piece < piece ? count - i * piece : piece;
        r->x = take(r->n, sizeof *r->x);
        memcpy(r->x, x + begin + i * piece, r->n * sizeof *r->x);
    }
    free(x);
    return n;
}

/* Judges the recordings, which are one speaker's, and forgets them: returns their scores. */
static cmha_real *judge_pieces(cmha_model *model) {
    size_t n = n_recordings, *chosen = take(n, sizeof *chosen), most = mc.max_positions, i;
    cmha_real *scores = take(times(n, DIGITS), sizeof *scores);
    for (i = 0; i < n; i++) {
        size_t positions = features == MEL ? positions_of(recordings[i].n) : 0;
        chosen[i] = i;
        most = positions > most ? positions : most;
    }
    make_room(n, most, mc.features * (mc.complex_features ? 2 : 1));
    judge_speaker(model, chosen, n, scores);
    close_room();
    for (i = 0; i < n; i++) free(recordings[i].x);
    free(recordings), free(chosen);
    recordings = NULL;
    n_recordings = 0;
    return scores;
}

/* Are two files of one speaker's: by --one-speaker, or by names DIGIT_SPEAKER_TAKE.wav as in training? */
static int one_speaker(const char *a, const char *b) {
    char x[48], y[48];
    int end = 0;
    if (option[ONE_SPEAKER].value) return 1;
    a += text_folder(a), b += text_folder(b);
    if (sscanf(a, "%*1d_%47[^_./]_%*6d.wav%n", x, &end) != 1 || !end || a[end]) return 0;
    end = 0;
    if (sscanf(b, "%*1d_%47[^_./]_%*6d.wav%n", y, &end) != 1 || !end || b[end]) return 0;
    return !strcmp(x, y);
}

/* Labels files, a speaker's together. */
static void label_files(cmha_model *model, const char *const *files, size_t n) {
    size_t *pieces = take(n, sizeof *pieces), *with = take(n, sizeof *with), i, j, at;
    cmha_real **scores = take(n, sizeof *scores);
    n_speakers = 1;
    for (i = 0; i < n; i++) {
        if (option[LABELLED].value) class_of_name(files[i]);
        for (with[i] = 0; with[i] < i; with[i]++) /* the first file of the same speaker */
            if (features == MEL && one_speaker(files[with[i]], files[i])) break;
    }
    for (i = 0; i < n; i++) {
        if (with[i] != i) continue;
        for (j = i; j < n; j++)
            if (with[j] == i) pieces[j] = load_pieces(files[j]);
        cmha_real *all = judge_pieces(model);
        for (j = i, at = 0; j < n; j++) {
            if (with[j] != i) continue;
            scores[j] = take(times(pieces[j], DIGITS), sizeof **scores);
            memcpy(scores[j], all + at, pieces[j] * DIGITS * sizeof **scores);
            at += pieces[j] * DIGITS;
        }
        free(all);
    }
    for (i = 0; i < n; i++) {
        say_scores(scores[i], pieces[i], files[i], 0);
        free(scores[i]);
    }
    free(pieces), free(with), free(scores);
}

/* How this kind of features is learnt, but for what options say */
static void usual_training(void) {
    check(cmha_preset(&ctx, "encoder", NULL, &tc));
    const char *usual = features == MEL ? "batch=16 lr=4e-3" : "batch=32 lr=5e-3";
    check(cmha_config_set_all(&ctx, cmha_trainer_table(), &tc, "length=64 weight_decay=0.1"));
    check(cmha_config_set_all(&ctx, cmha_trainer_table(), &tc, usual));
}

/* Ends the program where an option is given that prediction reads of voices alone. */
static void refuse_voices(void) {
    static const int of_voices[] = {SPEED, STRETCH, WARP, NOISE, ECHO_OF, PAD, COLOUR, MASKS, ADAPT, EVEN,
                                    ONE_SPEAKER};
    for (size_t i = 0; i < sizeof of_voices / sizeof *of_voices; i++)
        if (options_given >> of_voices[i] & 1)
            complain(2, "only for --features mel is ", option[of_voices[i]].name);
}

static int predict(const char *const *files, size_t n_files) {
    cmha_model model;
    const known mine[ABOUT - HEARINGS_ARE - 1] = {about[4], about[5], about[6]};
    open_known(&model, option[MODEL].value, about, ABOUT);
    if (about[FEATURES_ARE].value == MEL)
        complain(1, "its features are those of an older version; train it again: ", option[MODEL].value);
    int known_window = about[WINDOW_IS].value >= 4 && about[WINDOW_IS].value <= AUDIO_MOST;
    int heard = about[HEARINGS_ARE].value >= 1 && about[HEARINGS_ARE].value <= MOST_HEARINGS;
    for (int i = 0; i < 3; i++) heard = heard && about[4 + i].value == mine[i].value;
    window = (size_t)about[WINDOW_IS].value;
    features = about[FEATURES_ARE].value == MEL_SAVED ? MEL : (int)(about[FEATURES_ARE].value & 3);
    hearings = (size_t)about[HEARINGS_ARE].value;
    if (about[RATE_IS].value != AUDIO_RATE || !known_window || window & (window - 1) || !heard ||
        about[FEATURES_ARE].value > MEL_SAVED || mc.features != width_of() || told.classes != DIGITS ||
        mc.complex_features != (features < MAGNITUDE) || (features != MEL && hearings > 1))
        complain(1, "another model than that of the file beside it: ", option[MODEL].value);
    if (features != MEL) refuse_voices();
    usual_training();
    label_files(&model, files, n_files);
    return end_predict(&model, &option[MODEL]);
}

/* ---- The command line ---- */

static int help(void) {
    const char *kind;
    puts("spoken [OPTION...] RECORDINGS: learns spoken digits from a folder or a tar archive of WAV files\n"
         "spoken [OPTION...] --model CHECKPOINT --predict FILE.wav...: labels recordings\n");
    print_options(option, N_OPTIONS, 12, 9);
    printf("\nKinds of attention:");
    for (size_t i = 0; (kind = cmha_kind_name(i, NULL)) != NULL; i++) printf(" %s", kind);
    puts("");
    return end_help("build/spoken --attention cmha recordings.tar");
}

/* The configuration of a kind; `settings` are the arguments of --set. */
static void configure(const char *kind, char **settings, int n_set) {
    const settable both[2] = {{cmha_model_table(), &mc}, {cmha_trainer_table(), &tc}};
    usual_training();
    check(cmha_preset(&ctx, "encoder", &mc, NULL));
    check(cmha_config_set_all(&ctx, cmha_model_table(), &mc, "tokens=0 vocabulary=0 token_types=0 classes=10 "
                              "delta_init=rope_start n_layers=2 d_model=64 d_ff=128 dropout=0.05"));
    if (features == MEL) check(cmha_config_set_all(&ctx, cmha_model_table(), &mc, "n_heads=2"));
    set_kind(kind, &mc);
    mc.causal = 0, mc.features = width_of(), mc.complex_features = features < MAGNITUDE;
    mc.max_positions = longest;
    for (int o = BATCH; o <= LR; o++)
        if (option[o].value) set_field(both, 2, option[o].name + 2, option[o].value);
    refuse_settled("--epochs decides it", &option[PARAMETERS], settings, n_set);
    set_fields(both, 2, settings, n_set);
    if (mc.classes != DIGITS || mc.values || mc.features != width_of() ||
        !mc.complex_features != !(features < MAGNITUDE))
        complain(2, "classes, values, features and complex_features are the program's own fields", "");
}

/* Configures a kind; returns how many parameters it has. `first`: see settle_parameters. */
static size_t settle(const char *kind, char **settings, int n_set, size_t first) {
    configure(kind, settings, n_set);
    return settle_parameters(&option[PARAMETERS], kind, first);
}

/* The first and the last of the speakers that --leave names. */
static void choose_speakers(size_t leave[2]) {
    const char *name = option[LEAVE].value;
    if (!name) return;
    for (leave[0] = 0; leave[0] < n_speakers; leave[0]++)
        if (!strcmp(name, "all") || !strcmp(speakers[leave[0]], name)) break;
    if (leave[0] == n_speakers) complain(1, "there is no speaker ", name);
    leave[1] = strcmp(name, "all") ? leave[0] : n_speakers - 1;
}

/* Trains a kind with each seed, from `seed` on, without each of these speakers, and prints its rows. */
static void train_all(const char *kind, const size_t speaker[2], uint64_t most, uint64_t seed) {
    size_t parameters = 0, l, s;
    double all = 0;
    for (l = speaker[0]; l <= speaker[1]; l++) {
        double sum = 0, low = 1, high = 0, share;
        for (s = 0; s < n_seeds; s++) {
            ctx.config.seed = seed + s;
            share = train_kind(kind, l, most, &parameters);
            sum += share;
            low = fmin(low, share);
            high = fmax(high, share);
        }
        const char *of = l < n_speakers ? speakers[l] : "takes 0 to 4";
        printf("%-15s %10zu  ", kind, parameters), text_show(of, strlen(of), 1);
        printf(": %.2f (%.2f)\n", 100 * sum / (double)n_seeds, 100 * (high - low));
        fflush(stdout);
        all += sum / (double)n_seeds / (double)(speaker[1] - speaker[0] + 1);
    }
    if (speaker[1] > speaker[0])
        printf("%-15s %10zu  mean of the speakers: %.2f\n", kind, parameters, 100 * all);
}

/* Gives options that were not named the values that are usual with these features, and reads those of the
   changes; of bins there is but the speed. */
static void take_usual(void) {
    static const struct { int option; const char *mel, *bins; double most, *value; } usual[] = {
        {ATTENTION, "cmha", "rope", 0, NULL},
        {SPEED, "0.15", "0.12", 0.5, &strength.speed}, {STRETCH, "0.2", NULL, 0.5, &strength.stretch},
        {WARP, "0.15", NULL, 0.5, &strength.warp},     {NOISE, "0.1", NULL, 1, &strength.noise},
        {ECHO_OF, "0.6", NULL, 0.9, &strength.echo},   {PAD, "0.1", NULL, 1, &strength.pad},
        {COLOUR, "2", NULL, 4, &strength.colour},      {MASKS, "0.2", NULL, 0.9, &strength.masks},
        {HEARINGS, "15", NULL, MOST_HEARINGS, NULL},   {ADAPT, "5", NULL, 100, NULL},
        {EPOCHS, "80", "14", 0, NULL},                 {PATIENCE, "40", "8", 0, NULL}};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        setting *o = &option[usual[i].option];
        const char *value = features == MEL ? usual[i].mel : usual[i].bins;
        if (o->value && !value) complain(2, "only for --features mel is ", o->name);
        if (!o->value) o->value = value;
        if (o->value && usual[i].value) *usual[i].value = number_of(o, 0, usual[i].most);
    }
    if (option[EVEN].value && features != MEL)
        complain(2, "only for --features mel is ", option[EVEN].name);
    hearings = features == MEL ? (size_t)whole_of(&option[HEARINGS], 1, MOST_HEARINGS) : 1;
    adaptations = features == MEL ? (size_t)whole_of(&option[ADAPT], 0, 100) : 0;
}

int main(int argc, char **argv) {
    static const char *const kinds_of[] = {"offset", "complex", "magnitude", "mel"};
    int n_set = 0;
    char list[1024];
    const char **files;
    size_t n_files;
    start_program(argv);
    argc = take_files(argc, argv, &files, &n_files);
    const uint64_t one = 1;
    const uint64_t flags = one << RESUME | one << EVEN | one << JSON | one << LABELLED | one << ONE_SPEAKER |
        one << QUIET | one << HELP;
    uint64_t read = one << PREDICT | one << MODEL | one << JSON | one << LABELLED | one << ONE_SPEAKER |
        one << EVEN | one << ADAPT | one << SEED | one << THREADS | one << QUIET;
    for (int o = SPEED; o <= MASKS; o++) read |= one << o; /* of the changes it adapts with */
    const char *path = read_options(option, N_OPTIONS, flags, argc, argv, &n_set);
    while (features < N_FEATURES && strcmp(kinds_of[features], option[FEATURES].value)) features++;
    if (features == N_FEATURES)
        no_such("there are no --features", option[FEATURES].value, kinds_of, N_FEATURES);
    take_usual();
    uint64_t seed = whole_of(&option[SEED], 0, UINT64_MAX / 2);
    uint64_t most_epochs = whole_of(&option[EPOCHS], 1, 100000);
    n_seeds = (size_t)whole_of(&option[SEEDS], 1, MOST_SEEDS);
    window = (size_t)whole_of(&option[WINDOW], 4, 1024);
    whole_of(&option[PATIENCE], 1, 100000), number_of(&option[VALIDATE], 0, 0.5);
    if (window & (window - 1)) complain(2, "--window is a power of 2, not ", option[WINDOW].value);
    open_context(&option[SEED], &option[THREADS], option[HELP].value != NULL);
    if (option[HELP].value) return help();
    check_resume(&option[RESUME], &option[SAVE], n_files, several_asked());
    if (n_files && path) complain(2, "see --help; what is ", path);
    if (n_files) check_untrained(option, N_OPTIONS, read);
    if (n_files) return predict(files, n_files);
    check_unused(&option[MODEL], 4);
    refuse_patience(option, PATIENCE, &option[VALIDATE]);
    if (option[SAVE].value) may_save_known(option[SAVE].value, path);
    if (!path) complain(2, "name a folder or a tar archive of recordings; see --help", "");
    read_recordings(path);
    size_t leave[2] = {n_speakers, n_speakers}; /* the speakers to leave out in turn */
    choose_speakers(leave);
    const int from = option[COMPARE].value ? COMPARE : ATTENTION;
    if (from == COMPARE) refuse_given(option, 1u << ATTENTION, " is one kind, and --compare names several");
    const char *kinds = option[from].value;
    if (snprintf(list, sizeof list, "%s", kinds) >= (int)sizeof list) complain(2, "too many kinds: ", kinds);
    const char *kind[MOST_KINDS];
    size_t n_kinds = 0, first = 0, k;
    for (char *at = strtok(list, ","); at; kind[n_kinds++] = at, at = strtok(NULL, ","))
        if (n_kinds == MOST_KINDS) complain(2, "more than 32 kinds: ", kinds);
    if (!n_kinds) complain(2, "no kind of attention is named by ", option[from].name);
    for (k = 0; k < n_kinds; k++) { /* names and sizes, before any work */
        size_t parameters = settle(kind[k], argv + 1, n_set, first);
        if (!k) first = parameters;
    }
    for (k = 0; k < n_kinds; k++) {
        settle(kind[k], argv + 1, n_set, k ? first : 0);
        train_all(kind[k], leave, most_epochs, seed);
    }
    puts("Test recordings of what was trained last: what they are (lines) and what was said");
    print_report(stdout, digit_names, DIGITS, confusion[0]);
    for (size_t i = 0; i < n_recordings; i++) free(recordings[i].x);
    free(recordings), cmha_context_close(&ctx);
    return end_program(0);
}
