/* Recordings: complex samples (raw, .npy, CSV, SigMF's description, WAV), WAV files of sound and archives of
   them. Input: a byte that says which, then the file. */
#define WITH_TOKENIZER
#include "fuzz.h"

#include "examples/tools/iq.h"
#include "examples/tools/sound.h"

enum { NPY = IQ_NONE, TABLE, META, WAV, TAR, PAIRS, KINDS }; /* PAIRS: a WAV file of I and Q */

static void check_line(const char *error) {
    const unsigned char *at = (const unsigned char *)error;
    NEED(*at && strlen(error) < TEXT_ERROR);
    for (; *at; at++) NEED(*at >= 32 && *at != 127);
}

static int read_samples(iq_samples *s, int kind, const unsigned char *bytes, size_t n, char *error) {
    int type = kind;
    if (kind == NPY) return iq_npy(s, bytes, n, "the/file", error);
    if (kind == TABLE) return iq_csv(s, (const char *)bytes, n, "the/file", error);
    if (kind == PAIRS) return iq_wav(s, bytes, n, "the/file", error);
    if (kind == META) {
        if (!iq_sigmf((const char *)bytes, n, &type, "the/file", error)) return 0;
        NEED(type >= 0 && type < IQ_SIGMF);
    }
    return iq_raw(s, bytes, n, type, "the/file", error);
}

static void use_samples(int kind, const unsigned char *bytes, size_t n) {
    char error[TEXT_ERROR] = "";
    iq_samples s;
    memset(&s, 0, sizeof s);
    if (!read_samples(&s, kind, bytes, n, error)) {
        check_line(error);
        NEED(!s.z && !s.n);
        return;
    }
    NEED(s.n > 0 && s.n <= n);
    for (size_t i = 0; i < 2 * s.n; i++) NEED(fabsf(s.z[i]) < 2e15f);
    iq_close(&s);
}

static void use_sound(const unsigned char *bytes, size_t n) {
    char error[TEXT_ERROR] = "";
    size_t count;
    float *x;
    if (!sound_read(bytes, n, "the/file", &x, &count, error)) {
        check_line(error);
        NEED(!x && !count);
        return;
    }
    NEED(count > 0 && count <= n / 2);
    for (size_t i = 0; i < count; i++) NEED(fabsf(x[i]) <= 1);
    free(x);
}

static void use_archive(const unsigned char *bytes, size_t n) {
    char error[TEXT_ERROR] = "", name[101];
    size_t at = 0, begin, size, files = 0;
    while (audio_tar(bytes, n, &at, name, &begin, &size, error)) {
        NEED(size <= n && begin <= n - size && at <= n && ++files <= n / 512);
        use_sound(bytes + begin, size);
    }
    if (*error) check_line(error);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size) return 0;
    unsigned char *copy = (unsigned char *)malloc(size); /* so that a byte beyond it is noticed */
    memcpy(copy, data + 1, size - 1);
    unsigned char *bytes = (unsigned char *)realloc(copy, size - 1 ? size - 1 : 1);
    int kind = data[0] % KINDS;
    if (kind == WAV) use_sound(bytes, size - 1);
    else if (kind == TAR) use_archive(bytes, size - 1);
    else use_samples(kind, bytes, size - 1);
    free(bytes);
    return 0;
}
