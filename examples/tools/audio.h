/* audio.h - recordings out of WAV files and tar archives, and their short-time spectra. Nothing here trusts
   what it reads: a function that fails returns 0 and leaves one line in `error` (see streams.h). */
#ifndef AUDIO_H
#define AUDIO_H

#include "streams.h"

#include <math.h>

enum { AUDIO_RATE = 8000, AUDIO_MOST = 1024 }; /* Hz; samples of a window */

/* Reads little-endian numbers of `n` bytes. */
static inline uint32_t audio_number(const unsigned char *bytes, int n) {
    uint32_t value = 0;
    while (n--) value = value << 8 | bytes[n];
    return value;
}

/* Of a WAV file: what its samples are, format_size >= 16 bytes, and the bytes of the samples */
typedef struct audio_parts {
    const unsigned char *format, *data;
    size_t format_size, size;
} audio_parts;

/* Finds these in a file of n bytes. */
static inline int audio_chunks(audio_parts *p, const unsigned char *bytes, size_t n, const char *name,
                               char *error) {
    size_t at = 12, size;
    memset(p, 0, sizeof *p);
    if (n < 12 || memcmp(bytes, "RIFF", 4) || memcmp(bytes + 8, "WAVE", 4))
        return text_fail(error, "not a WAV file: %.200s", name);
    for (; n - at >= 8; at += size + (size & 1)) { /* chunks: a name, a size, an even number of bytes */
        const unsigned char *chunk = bytes + at;
        size = audio_number(chunk + 4, 4), at += 8;
        if (size > n - at)
            return text_fail(error, "a part of %zu bytes ends beyond the file's end: %.200s", size, name);
        if (!memcmp(chunk, "fmt ", 4) && size >= 16) p->format = chunk + 8, p->format_size = size;
        if (!memcmp(chunk, "data", 4)) {
            p->data = bytes + at, p->size = size;
            return p->format || text_fail(error, "samples before their format: %.200s", name);
        }
        if (size == n - at) break; /* without the byte that makes it even */
    }
    return text_fail(error, "no samples in %.200s", name);
}

/* Finds the samples of a WAV file of n bytes, which must be 8 kHz, 16 bits, mono, uncompressed: *begin is
   where their bytes begin, *count how many they are. */
static inline int audio_wav(const unsigned char *bytes, size_t n, const char *name, size_t *begin,
                            size_t *count, char *error) {
    audio_parts p;
    *begin = *count = 0;
    if (!audio_chunks(&p, bytes, n, name, error)) return 0;
    if (audio_number(p.format, 2) != 1 || audio_number(p.format + 2, 2) != 1 ||
        audio_number(p.format + 4, 4) != AUDIO_RATE || audio_number(p.format + 14, 2) != 16)
        return text_fail(error, "not 8 kHz, 16 bits, mono and uncompressed: %.200s", name);
    if (p.size < 2 || p.size % 2) return text_fail(error, "no whole samples: %.200s", name);
    *begin = (size_t)(p.data - bytes), *count = p.size / 2;
    return 1;
}

/* Finds the name of the next file where it is too long for a header and stands in a part of n bytes before:
   that is all of it (GNU's tar, 'L') or has a line "LENGTH path=NAME" (POSIX, 'x'). Keeps its end. */
static inline void audio_tar_name(int kind, const unsigned char *part, size_t n, char name[101]) {
    size_t from = 0, end = 0, at, i, line;
    while (kind == 'L' && end < n && part[end]) end++;
    for (at = 0; kind == 'x' && at < n; at += line) {
        for (i = at, line = 0; i < n && line < n && part[i] >= '0' && part[i] <= '9'; i++)
            line = line * 10 + part[i] - '0';
        if (!line || line > n - at) break;
        if (at + line > i + 6 && !memcmp(part + i, " path=", 6)) from = i + 6, end = at + line - 1;
    }
    if (end == from) return;
    if (end - from > 100) from = end - 100;
    memcpy(name, part + from, end - from), name[end - from] = 0;
}

/* Steps to the next file of a tar archive in memory: *at is 0 at first, and what the call left afterwards.
   Returns 1 with its name (of a longer one the last 100 bytes), first byte and size; 0 at the end, with an
   empty line in `error`, or on a failure. Folders, links and the like are passed over. */
static inline int audio_tar(const unsigned char *tar, size_t n, size_t *at, char name[101], size_t *begin,
                            size_t *size, char *error) {
    char known[101] = ""; /* before its header */
    *error = 0;
    while (n - *at >= 512 && tar[*at]) {
        const unsigned char *head = tar + *at;
        size_t i, pad, sum = 256; /* its own eight bytes count as blanks */
        unsigned long long bytes = 0, said = 0;
        for (i = 0; i < 512; i++) sum += i >= 148 && i < 156 ? 0 : head[i];
        for (i = 148; i < 156 && head[i] >= '0' && head[i] <= '7'; i++) said = said * 8 + head[i] - '0';
        if (said != sum) return text_fail(error, "tar: no header at byte %zu", *at);
        for (i = 124; i < 136 && head[i] >= '0' && head[i] <= '7'; i++) bytes = bytes * 8 + head[i] - '0';
        if (bytes > n - *at - 512)
            return text_fail(error, "tar: a file of %llu bytes ends beyond the archive's end", bytes);
        memcpy(name, head, 100), name[100] = 0;
        if (*known) memcpy(name, known, sizeof known);
        *begin = *at + 512, *size = (size_t)bytes;
        *at = *begin + *size, pad = (512 - *size % 512) % 512;
        *at += pad < n - *at ? pad : n - *at;
        if (head[156] == '0' || !head[156]) return 1;
        if (!strchr("LKx", head[156])) *known = 0; /* it was that of a folder, or the like */
        audio_tar_name(head[156], tar + *begin, *size, known);
    }
    return *at < n && tar[*at] ? text_fail(error, "tar: ends within the header at byte %zu", *at) : 0;
}

/* Gives the cosine and sine of -2 pi m / AUDIO_MOST, m < AUDIO_MOST / 2, worked out once. */
static inline const double (*audio_turns(void))[2] {
    static double turns[AUDIO_MOST / 2][2];
    for (size_t m = turns[0][0] > 0 ? AUDIO_MOST : 0; m < AUDIO_MOST / 2; m++) {
        double angle = -6.283185307179586 * (double)m / AUDIO_MOST;
        turns[m][0] = cos(angle);
        turns[m][1] = sin(angle);
    }
    return (const double (*)[2])turns;
}

/* Replaces z, planes of n = 2^k <= AUDIO_MOST numbers, by sum_t z_t e^(-2 pi i f t / n). */
static inline void audio_fft(size_t n, double *re, double *im) {
    const double (*turns)[2] = audio_turns();
    size_t i, j = 0, m, half;
    for (i = 1; i < n; i++) { /* bit-reversed order */
        for (m = n / 2; j & m; m /= 2) j ^= m;
        j ^= m;
        if (i >= j) continue;
        double swap = re[i];
        re[i] = re[j], re[j] = swap, swap = im[i], im[i] = im[j], im[j] = swap;
    }
    for (half = 1; half < n; half *= 2)
        for (m = 0; m < half; m++) {
            double c = turns[m * (AUDIO_MOST / 2 / half)][0], s = turns[m * (AUDIO_MOST / 2 / half)][1];
            for (i = m; i < n; i += 2 * half) {
                double x = c * re[i + half] - s * im[i + half], y = s * re[i + half] + c * im[i + half];
                re[i + half] = re[i] - x, im[i + half] = im[i] - y, re[i] += x, im[i] += y;
            }
        }
}

/* Returns how many windows of `window` samples, half a window apart, `count` samples fill; the last one may
   be filled with zeros. */
static inline size_t audio_windows(size_t count, size_t window) {
    return count <= window ? 1 : 1 + (count - window + window / 2 - 1) / (window / 2);
}

/* Writes the spectra of these windows under Hann's, bins 0 to window/2: out [windows, 2 (window/2 + 1)],
   planes. Phases are those against the first sample, so that a tone in the middle of a bin keeps its phase
   from window to window. window = 2^k <= AUDIO_MOST. */
static inline void audio_spectra(const float *x, size_t count, size_t window, float *out) {
    double re[AUDIO_MOST], im[AUDIO_MOST];
    size_t bins = window / 2 + 1, n = audio_windows(count, window), t, i;
    for (t = 0; t < n; t++, out += 2 * bins) {
        for (i = 0; i < window; i++) {
            size_t at = t * (window / 2) + i;
            double hann = 0.5 - 0.5 * cos(6.283185307179586 * ((double)i + 0.5) / (double)window);
            re[i] = at < count ? hann * (double)x[at] : 0, im[i] = 0;
        }
        audio_fft(window, re, im);
        for (i = 0; i < bins; i++) { /* half a window later bin i has turned by pi i */
            double sign = i & t & 1 ? -1 : 1;
            out[i] = (float)(sign * re[i]), out[bins + i] = (float)(sign * im[i]);
        }
    }
}

#endif
