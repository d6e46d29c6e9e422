/* iq.h - complex samples out of files: raw pairs of numbers, .npy, CSV, SigMF and WAV. In the manner of
   text.h: static functions without globals, 1 for success and 0 for failure with one line in `error`. Nothing
   here trusts what it reads. Without the libraries of tokenizers (WITH_TOKENIZER) it does without SigMF, as
   that needs cJSON. */
#ifndef IQ_H
#define IQ_H

#include "audio.h"
#include "text.h"

#ifdef WITH_TOKENIZER
#include <cjson/cJSON.h>
#endif

typedef struct iq_samples {
    float *z; /* [n, 2]: Re, Im */
    size_t n;
} iq_samples;

/* Little-endian numbers: those of SigMF, and of WAV also others, of which those of 8 bits have no sign */
enum { IQ_F32, IQ_F64, IQ_I16, IQ_I8, IQ_SIGMF, IQ_U8 = IQ_SIGMF, IQ_I24, IQ_I32, IQ_NONE };
static const size_t iq_sizes[IQ_NONE] = {4, 8, 2, 1, 1, 3, 4};

static inline void iq_close(iq_samples *s) {
    free(s->z);
    memset(s, 0, sizeof *s);
}

/* Number i of an array; integers become numbers from -1 to 1. */
static inline double iq_number(const unsigned char *bytes, size_t i, int type) {
    uint64_t bits = 0;
    double wide;
    float narrow;
    for (size_t k = iq_sizes[type]; k > 0; k--) bits = bits << 8 | bytes[i * iq_sizes[type] + k - 1];
    uint32_t low = (uint32_t)bits;
    memcpy(&wide, &bits, sizeof wide);
    memcpy(&narrow, &low, sizeof narrow);
    if (type == IQ_F64) return wide;
    if (type == IQ_F32) return (double)narrow;
    double value = (double)bits, half = (double)(UINT64_C(1) << (8 * iq_sizes[type] - 1));
    if (type == IQ_U8) return value / half - 1;
    return (value < half ? value : value - 2 * half) / half;
}

/* Keeps half a sample; 0 where it is NaN, or so large that its square would overflow a float. */
static inline int iq_keep(iq_samples *s, size_t i, double value, const char *name, char *error) {
    if (!(fabs(value) <= 1e15))
        return text_fail(error, "sample %zu is no number up to 1e15: %.200s", i / 2 + 1, name);
    s->z[i] = (float)value;
    return 1;
}

/* Takes memory for n samples. */
static inline int iq_open(iq_samples *s, size_t n, const char *name, char *error) {
    memset(s, 0, sizeof *s);
    if (!n) return text_fail(error, "there are no samples in %.200s", name);
    s->z = (float *)text_memory(NULL, n, 2, sizeof *s->z);
    return s->z || text_fail(error, "no memory for %zu samples", n);
}

/* ---- Raw numbers ---- */

/* The samples of n bytes: Re, Im, Re, Im, .. of one type. */
static inline int iq_raw(iq_samples *s, const unsigned char *bytes, size_t n, int type, const char *name,
                         char *error) {
    size_t pair = 2 * iq_sizes[type], i = 0;
    if (!iq_open(s, n / pair + (n % pair != 0), name, error)) return 0;
    if (n % pair) {
        iq_close(s);
        return text_fail(error, "ends within a sample (%zu bytes, %zu a sample): %.200s", n, pair, name);
    }
    while (i < 2 * (n / pair)) {
        if (!iq_keep(s, i, iq_number(bytes, i, type), name, error)) break;
        i++;
    }
    s->n = n / pair;
    if (i == 2 * s->n) return 1;
    iq_close(s);
    return 0;
}

/* ---- NumPy's .npy ---- */

/* What stands behind 'key': in the header, a text of Python; NULL if it has no such key. */
static inline const char *iq_npy_value(const char *header, const char *key) {
    char quoted[32];
    snprintf(quoted, sizeof quoted, "'%s':", key);
    const char *at = strstr(header, quoted);
    if (!at) return NULL;
    at += strlen(quoted);
    return at + strspn(at, " ");
}

/* How many samples the shape says: (n,), or (n, 2) where Re and Im are numbers of their own; 0 for others. */
static inline uint64_t iq_npy_shape(const char *at, int is_complex) {
    char *end;
    if (*at != '(') return 0;
    uint64_t n = strtoull(at + 1, &end, 10);
    if (end == at + 1) return 0;
    at = end + strspn(end, ", ");
    if (is_complex) return *at == ')' ? n : 0;
    uint64_t two = strtoull(at, &end, 10);
    at = end + strspn(end, ", ");
    return two == 2 && *at == ')' ? n : 0;
}

/* The samples of an array: complex64 or complex128 [n], float32 or float64 [n, 2]. */
static inline int iq_npy(iq_samples *s, const unsigned char *bytes, size_t n, const char *name,
                         char *error) {
    static const struct { const char *descr; int type, is_complex; } types[] = {
        {"'<c8'", IQ_F32, 1}, {"'<c16'", IQ_F64, 1}, {"'<f4'", IQ_F32, 0}, {"'<f8'", IQ_F64, 0}};
    char header[4096];
    size_t begin = n > 6 && bytes[6] == 1 ? 10 : 12, length, t = 0;
    memset(s, 0, sizeof *s);
    if (n < begin || memcmp(bytes, "\x93NUMPY", 6)) return text_fail(error, "not a .npy file: %.200s", name);
    length = bytes[8] + 256u * bytes[9];
    if (begin == 12) length += 65536u * bytes[10] + 16777216u * (size_t)bytes[11];
    if (length > n - begin || length >= sizeof header)
        return text_fail(error, "a .npy file whose header ends too late: %.200s", name);
    memcpy(header, bytes + begin, length);
    header[length] = 0;
    const char *descr = iq_npy_value(header, "descr"), *order = iq_npy_value(header, "fortran_order");
    const char *shape = iq_npy_value(header, "shape");
    if (!descr || !order || !shape) return text_fail(error, "a .npy file without a shape: %.200s", name);
    while (t < 4) {
        if (!strncmp(descr, types[t].descr, strlen(types[t].descr))) break;
        t++;
    }
    if (t == 4)
        return text_fail(error, "dtype %.*s is not complex64, complex128, float32 or float64, little endian: "
                         "%.200s", (int)strcspn(descr, ",}"), descr, name);
    uint64_t count = iq_npy_shape(shape, types[t].is_complex), size = 2 * iq_sizes[types[t].type];
    if (!count || strncmp(order, "False", 5))
        return text_fail(error, "not a shape of %s in C order: %.200s",
                         types[t].is_complex ? "(n,)" : "(n, 2)", name);
    begin += length;
    if ((n - begin) % size || (n - begin) / size != count)
        return text_fail(error, "its shape asks for another size than it has: %.200s", name);
    return iq_raw(s, bytes + begin, n - begin, types[t].type, name, error);
}

/* ---- CSV ---- */

static inline int iq_edge(char c) { return c == ' ' || c == '\t' || c == '"'; }

/* Cuts the first cell off a line, without blanks and quotation marks around it; 0 if it was the last one. */
static inline int iq_cell(text_slice *line, text_slice *cell) {
    const char *comma = line->n ? (const char *)memchr(line->at, ',', line->n) : NULL;
    *cell = *line;
    if (comma) {
        cell->n = (size_t)(comma - line->at);
        line->at += cell->n + 1;
        line->n -= cell->n + 1;
    }
    while (cell->n) {
        if (!iq_edge(cell->at[0])) break;
        cell->at++;
        cell->n--;
    }
    while (cell->n) {
        if (!iq_edge(cell->at[cell->n - 1])) break;
        cell->n--;
    }
    return comma != NULL;
}

/* The two cells of a row that are wanted; 0 if one is not there. */
static inline int iq_cells(text_slice row, const size_t want[2], text_slice cells[2]) {
    size_t number = 0, found = 0;
    text_slice cell;
    int more;
    do {
        more = iq_cell(&row, &cell);
        for (int c = 0; c < 2; c++)
            if (want[c] == number) {
                cells[c] = cell;
                found++;
            }
        number++;
    } while (more);
    return found == 2;
}

/* Which columns hold Re and Im: i and q, or re and im, or else the first two. */
static inline int iq_header(text_slice line, size_t want[2], const char *name, char *error) {
    static const char *const names[4] = {"i", "q", "re", "im"};
    size_t at[4] = {SIZE_MAX, SIZE_MAX, SIZE_MAX, SIZE_MAX}, number = 0;
    text_slice rest = line, cell, cells[2] = {{NULL, 0}, {NULL, 0}};
    double value;
    int more;
    do {
        more = iq_cell(&rest, &cell);
        for (int k = 0; k < 4; k++) {
            size_t n = strlen(names[k]), same = 0;
            for (size_t c = 0; c < n; c++) same += cell.n == n && (cell.at[c] | 32) == names[k][c];
            if (same == n && at[k] == SIZE_MAX) at[k] = number;
        }
        number++;
    } while (more);
    for (int k = 0; k < 4; k += 2)
        if ((at[k] == SIZE_MAX) != (at[k + 1] == SIZE_MAX))
            return text_fail(error, "of the columns %s and %s one is missing: %.200s", names[k], names[k + 1],
                             name);
    int pair = at[0] == SIZE_MAX ? 2 : 0, named = at[pair] != SIZE_MAX;
    want[0] = named ? at[pair] : 0;
    want[1] = named ? at[pair + 1] : 1;
    if (!iq_cells(line, want, cells))
        return text_fail(error, "the first line names no two columns, such as i,q: %.200s", name);
    if (text_number(cells[0], &value) && text_number(cells[1], &value))
        return text_fail(error, "the first line is no header, such as i,q: %.200s", name);
    return 1;
}

/* The samples of a table whose first line names the columns and whose columns are separated by commas. */
static inline int iq_csv(iq_samples *s, const char *text, size_t bytes, const char *name, char *error) {
    size_t lines = 1, line = 1, want[2] = {0, 1};
    const char *at = text, *end = text + bytes;
    text_slice cells[2] = {{NULL, 0}, {NULL, 0}};
    double value[2];
    memset(s, 0, sizeof *s);
    if (bytes >= 3 && !memcmp(at, "\xEF\xBB\xBF", 3)) at += 3;
    if (at == end) return text_fail(error, "an empty file: %.200s", name);
    if (!iq_header(text_line(&at, end), want, name, error)) return 0;
    for (size_t i = 0; i < bytes; i++) lines += text[i] == '\n';
    if (!iq_open(s, lines, name, error)) return 0;
    for (line = 2; at; line++) {
        text_slice row = text_line(&at, end);
        if (!row.n) continue;
        if (!iq_cells(row, want, cells) || !text_number(cells[0], value) ||
            !text_number(cells[1], value + 1)) {
            iq_close(s);
            return text_fail(error, "line %zu has no two numbers in columns %zu and %zu: %.200s", line,
                             want[0] + 1, want[1] + 1, name);
        }
        if (!iq_keep(s, 2 * s->n, value[0], name, error) || !iq_keep(s, 2 * s->n + 1, value[1], name, error))
            return iq_close(s), 0;
        s->n++;
    }
    if (s->n) return 1;
    iq_close(s);
    return text_fail(error, "there are no samples in %.200s", name);
}

/* ---- SigMF ---- */

#ifdef WITH_TOKENIZER
/* A number of an object, 0 where it is not there, -1 where it is something else. */
static inline double iq_sigmf_number(const cJSON *object, const char *name) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    if (!item) return 0;
    return cJSON_IsNumber(item) ? item->valuedouble : -1;
}

/* The type of the samples that a .sigmf-meta describes: one channel from the first byte to the last. */
static inline int iq_sigmf_form(const cJSON *root, int *type, const char *name, char *error) {
    static const char *const types[IQ_SIGMF] = {"cf32_le", "cf64_le", "ci16_le", "ci8"};
    const cJSON *global = cJSON_GetObjectItemCaseSensitive(root, "global"), *capture;
    const cJSON *said = cJSON_GetObjectItemCaseSensitive(global, "core:datatype");
    if (!cJSON_IsString(said)) return text_fail(error, "no core:datatype: %.200s", name);
    for (*type = 0; *type < IQ_SIGMF; ++*type)
        if (!strcmp(types[*type], said->valuestring)) break;
    if (*type == IQ_SIGMF)
        return text_fail(error, "core:datatype %.40s is not cf32_le, cf64_le, ci16_le or ci8: %.200s",
                         said->valuestring, name);
    double channels = iq_sigmf_number(global, "core:num_channels");
    double skipped = fabs(iq_sigmf_number(global, "core:trailing_bytes"));
    cJSON_ArrayForEach(capture, cJSON_GetObjectItemCaseSensitive(root, "captures")) {
        skipped += fabs(iq_sigmf_number(capture, "core:header_bytes"));
    }
    if (skipped > 0) return text_fail(error, "bytes between the samples: %.200s", name);
    if (channels < 0 || channels > 1) return text_fail(error, "more than one channel: %.200s", name);
    return 1;
}
#endif

/* The same for the file's text. */
static inline int iq_sigmf(const char *text, size_t bytes, int *type, const char *name, char *error) {
#ifdef WITH_TOKENIZER
    cJSON *root = cJSON_ParseWithLength(text, bytes);
    int done = root ? iq_sigmf_form(root, type, name, error) : text_fail(error, "no JSON: %.200s", name);
    cJSON_Delete(root);
    return done;
#else
    (void)text, (void)bytes, (void)type;
    return text_fail(error, "built without libcjson, which SigMF needs (Debian, Ubuntu: apt-get install "
                     "libutf8proc-dev libcjson-dev): %.200s", name);
#endif
}

/* ---- WAV ---- */

/* The type of a WAV file's numbers, IQ_NONE where it is none of these. The extensible format says behind its
   own fields which one it extends. */
static inline int iq_wav_type(const audio_parts *p) {
    static const unsigned char extends[14] = {0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xAA, 0, 0x38, 0x9B, 0x71};
    static const int whole[4] = {IQ_U8, IQ_I16, IQ_I24, IQ_I32};
    uint32_t form = audio_number(p->format, 2), bits = audio_number(p->format + 14, 2);
    if (form == 0xFFFE && p->format_size >= 40 && !memcmp(p->format + 26, extends, sizeof extends))
        form = audio_number(p->format + 24, 2);
    if (form == 3 && bits == 32) return IQ_F32;
    return form == 1 && bits && bits <= 32 && bits % 8 == 0 ? whole[bits / 8 - 1] : IQ_NONE;
}

/* The samples of a recording whose two channels are I and Q, at any rate. */
static inline int iq_wav(iq_samples *s, const unsigned char *bytes, size_t n, const char *name,
                         char *error) {
    audio_parts p;
    memset(s, 0, sizeof *s);
    if (!audio_chunks(&p, bytes, n, name, error)) return 0;
    unsigned channels = audio_number(p.format + 2, 2);
    int type = iq_wav_type(&p);
    if (channels != 2)
        return text_fail(error, "two channels are needed, I and Q, and there %s %u: %.200s",
                         channels == 1 ? "is" : "are", channels, name);
    if (type == IQ_NONE || audio_number(p.format + 12, 2) != 2 * iq_sizes[type])
        return text_fail(error, "a WAV file of neither 8, 16, 24 or 32 bits nor float of 32: %.200s", name);
    return iq_raw(s, p.data, p.size, type, name, error);
}

/* ---- Files ---- */

/* Does a path end so? */
static inline int iq_ends(const char *path, const char *end) {
    size_t n = strlen(path), m = strlen(end);
    return n > m && !strcmp(path + n - m, end);
}

/* Loads the .sigmf-data beside a .sigmf-meta; either may be named. */
static inline int iq_load_sigmf(iq_samples *s, const char *path, size_t limit, char *error) {
    char name[4096], *text;
    size_t n = strlen(path) - 4, bytes;
    int type = IQ_NONE;
    if (n + 5 > sizeof name) return text_fail(error, "a path that is too long: %.200s", path);
    snprintf(name, sizeof name, "%.*smeta", (int)n, path);
    if (!text_read(name, limit, &text, &bytes, error)) return 0;
    int done = iq_sigmf(text, bytes, &type, name, error);
    free(text);
    snprintf(name, sizeof name, "%.*sdata", (int)n, path);
    if (!done || !text_read(name, limit, &text, &bytes, error)) return 0;
    done = iq_raw(s, (const unsigned char *)text, bytes, type, name, error);
    free(text);
    return done;
}

/* Loads a file; its name's end says what it is. */
static inline int iq_load(iq_samples *s, const char *path, char *error) {
    const size_t limit = (size_t)1 << 31;
    int raw = iq_ends(path, ".cf32"), npy = iq_ends(path, ".npy"), wav = iq_ends(path, ".wav"), done;
    char *text;
    size_t bytes;
    memset(s, 0, sizeof *s);
    if (iq_ends(path, ".sigmf-meta") || iq_ends(path, ".sigmf-data"))
        return iq_load_sigmf(s, path, limit, error);
    if (!raw && !npy && !wav && !iq_ends(path, ".csv"))
        return text_fail(error, "not called .cf32, .npy, .csv, .wav or .sigmf-meta: %.200s", path);
    if (!text_read(path, limit, &text, &bytes, error)) return 0;
    const unsigned char *u = (const unsigned char *)text;
    if (raw && bytes > 6 && (!memcmp(text, "RIFF", 4) || !memcmp(text, "\x93NUMPY", 6)))
        done = text_fail(error, "not raw samples but another kind of file: %.200s", path);
    else if (raw) done = iq_raw(s, u, bytes, IQ_F32, path, error);
    else if (wav) done = iq_wav(s, u, bytes, path, error);
    else done = npy ? iq_npy(s, u, bytes, path, error) : iq_csv(s, text, bytes, path, error);
    free(text);
    return done;
}

#endif
