/* sound.h - recordings out of WAV files of any rate, width and number of channels, as one channel of
   AUDIO_RATE. libsndfile reads them and libsamplerate changes their rate (WITH_SOUND); without these only
   what audio.h reads itself is read. Functions that fail return 0 and leave one line in `error`. */
#ifndef SOUND_H
#define SOUND_H

#include "audio.h"
#include "text.h"

#ifdef WITH_SOUND
#include <samplerate.h>
#include <sndfile.h>
#endif

/* Does a WAV file hold all the bytes that it says it has? libsndfile would take what is there. */
static inline int sound_whole(const unsigned char *bytes, size_t n, const char *name, char *error) {
    audio_parts p;
    if (!audio_chunks(&p, bytes, n, name, error)) return 0;
    size_t channels = audio_number(p.format + 2, 2), block = audio_number(p.format + 12, 2), size = p.size;
    size_t bits = audio_number(p.format + 14, 2);
    if (!channels) return text_fail(error, "no channels in %.200s", name);
    if (!audio_number(p.format + 4, 4)) return text_fail(error, "no rate in %.200s", name);
    if (audio_number(p.format, 2) == 1 && block && block < channels * ((bits + 7) / 8))
        return text_fail(error, "%zu bytes are too few for %zu samples of %zu bits: %.200s", block, channels,
                         bits, name);
    if (!block) return text_fail(error, "samples of no bytes: %.200s", name);
    if (size < block || size % block) return text_fail(error, "no whole samples: %.200s", name);
    return 1;
}

#ifdef WITH_SOUND
typedef struct sound_memory { /* a file in memory */
    const unsigned char *bytes;
    sf_count_t n, at;
} sound_memory;

static inline sf_count_t sound_length(void *user) { return ((sound_memory *)user)->n; }

static inline sf_count_t sound_tell(void *user) { return ((sound_memory *)user)->at; }

static inline sf_count_t sound_seek(sf_count_t offset, int whence, void *user) {
    sound_memory *m = (sound_memory *)user;
    if (whence == SEEK_CUR) offset += m->at;
    if (whence == SEEK_END) offset += m->n;
    if (offset < 0 || offset > m->n) return -1;
    m->at = offset;
    return offset;
}

static inline sf_count_t sound_get(void *to, sf_count_t count, void *user) {
    sound_memory *m = (sound_memory *)user;
    if (count > m->n - m->at) count = m->n - m->at;
    memcpy(to, m->bytes + m->at, (size_t)count);
    m->at += count;
    return count;
}

static inline sf_count_t sound_put(const void *from, sf_count_t count, void *user) {
    (void)from, (void)count, (void)user;
    return 0;
}

/* Reads all frames into x [frames], the mean of their channels; returns how many there were. */
static inline sf_count_t sound_mix(SNDFILE *file, const SF_INFO *info, float *x) {
    enum { PIECE = 1024 };
    sf_count_t done = 0, got, i;
    float *piece = (float *)text_memory(NULL, PIECE, (size_t)info->channels, sizeof *piece);
    if (!piece) return 0;
    while (done < info->frames) {
        got = sf_readf_float(file, piece, info->frames - done < PIECE ? info->frames - done : PIECE);
        if (got <= 0) break;
        for (i = 0; i < got; i++) {
            double sum = 0;
            for (int c = 0; c < info->channels; c++) sum += (double)piece[i * info->channels + c];
            x[done + i] = (float)(sum / info->channels);
        }
        done += got;
    }
    free(piece);
    return done;
}

/* Gives n samples of a rate at AUDIO_RATE, in memory that takes the place of *x. */
static inline int sound_resample(float **x, size_t *n, int rate, const char *name, char *error) {
    double ratio = (double)AUDIO_RATE / rate;
    if (rate == AUDIO_RATE) return 1;
    if (rate < 1000 || !src_is_valid_ratio(ratio))
        return text_fail(error, "a rate of %d Hz: %.200s", rate, name);
    size_t most = (size_t)((double)*n * ratio) + 16;
    float *y = (float *)text_memory(NULL, most, 1, sizeof *y);
    if (!y) return text_fail(error, "no memory for %zu samples", most);
    SRC_DATA data;
    memset(&data, 0, sizeof data);
    data.data_in = *x;
    data.data_out = y;
    data.input_frames = (long)*n;
    data.output_frames = (long)most;
    data.src_ratio = ratio;
    int failed = src_simple(&data, SRC_SINC_MEDIUM_QUALITY, 1);
    free(*x);
    *x = y;
    *n = failed ? 0 : (size_t)data.output_frames_gen;
    if (failed) return text_fail(error, "%s: %.200s", src_strerror(failed), name);
    return *n > 0 || text_fail(error, "too short: %.200s", name);
}

/* Reads what sound_whole has looked at. */
static inline int sound_decode(const unsigned char *bytes, size_t n, const char *name, float **x,
                               size_t *count, char *error) {
    SF_VIRTUAL_IO io = {sound_length, sound_seek, sound_get, sound_put, sound_tell};
    sound_memory memory = {bytes, (sf_count_t)n, 0};
    SF_INFO info;
    memset(&info, 0, sizeof info);
    SNDFILE *file = sf_open_virtual(&io, SFM_READ, &info, &memory);
    if (!file) return text_fail(error, "%.100s: %.200s", sf_strerror(NULL), name);
    int fits = info.frames > 0 && info.channels > 0 && (uint64_t)info.frames < SIZE_MAX / 2 / sizeof **x;
    *count = fits ? (size_t)info.frames : 0;
    *x = (float *)text_memory(NULL, *count, 1, sizeof **x);
    int whole = *x && fits && sound_mix(file, &info, *x) == info.frames;
    sf_close(file);
    return whole ? sound_resample(x, count, info.samplerate, name, error)
                 : text_fail(error, "cannot read its samples: %.200s", name);
}
#else
static inline int sound_decode(const unsigned char *bytes, size_t n, const char *name, float **x,
                               size_t *count, char *error) {
    size_t begin;
    if (!audio_wav(bytes, n, name, &begin, count, error))
        return text_fail(error, "not 8 kHz, 16 bits, mono; others need libsndfile and libsamplerate (Debian, "
                         "Ubuntu: apt-get install libsndfile1-dev libsamplerate0-dev, and make): %.200s",
                         name);
    *x = (float *)text_memory(NULL, *count, 1, sizeof **x);
    if (!*x) return text_fail(error, "no memory for %zu samples", *count);
    for (size_t i = 0; i < *count; i++) {
        int value = (int)audio_number(bytes + begin + 2 * i, 2);
        (*x)[i] = (float)(value < 32768 ? value : value - 65536) / 32768;
    }
    return 1;
}
#endif

/* The samples of a WAV file of n bytes, from -1 to 1 (of floats also beyond), in memory of malloc. */
static inline int sound_read(const unsigned char *bytes, size_t n, const char *name, float **x,
                             size_t *count, char *error) {
    *x = NULL;
    *count = 0;
    int done = sound_whole(bytes, n, name, error) && sound_decode(bytes, n, name, x, count, error);
    size_t n_good = 0, all = done ? *count : 0;
    for (; n_good < all; n_good++)
        if (!(fabsf((*x)[n_good]) <= 1e9f)) break;
    if (n_good < all)
        done = text_fail(error, "sample %zu is no number up to 1e9: %.200s", n_good + 1, name);
    if (done) return 1;
    free(*x);
    *x = NULL;
    *count = 0;
    return 0;
}

/* The same of a file; "-" is the standard input. */
static inline int sound_load(const char *path, float **x, size_t *count, char *error) {
    char *text;
    size_t n;
    *x = NULL;
    if (!text_read(path, (size_t)1 << 31, &text, &n, error)) return 0;
    int done = sound_read((const unsigned char *)text, n, path, x, count, error);
    free(text);
    return done;
}

#endif
