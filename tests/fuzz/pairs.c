/* Pairs of prompt and answer. Input: a byte with the longest text, the template up to the first NUL, then the
   file. What is read must become tokens, all of it or a line. */
#include "fuzz.h"

#include "examples/tools/pairs.h"

static void check_line(const char *error) {
    const unsigned char *at = (const unsigned char *)error;
    NEED(*at && strlen(error) < TEXT_ERROR);
    for (; *at; at++) NEED(*at >= 32 && *at != 127);
}

static void use(const pairs_file *f, const pairs_template *t, size_t length) {
    char error[TEXT_ERROR];
    codec words;
    pairs p;
    int32_t *row = (int32_t *)calloc(length, 2 * sizeof *row);
    unsigned char *mask = (unsigned char *)calloc(length, 1);
    codec_plain(&words, 256);
    if (pairs_encode(&p, &words, t, f, length, error)) {
        NEED(p.n == f->n && p.longest <= length + 1 && p.start[p.n] == p.ids.n);
        for (size_t i = 0; i < p.n; i++) {
            size_t learned = 0;
            NEED(p.start[i] < p.answer[i] && p.answer[i] < p.start[i + 1]);
            pairs_row(&p, i, length, row, row + length, mask);
            for (size_t k = 0; k < length; k++) learned += row[length + k] >= 0;
            NEED(learned == p.start[i + 1] - p.answer[i]);
        }
        NEED(pairs_drawn(&p, p.n, p.ids.n, 1) < p.n);
        pairs_close(&p);
    } else check_line(error), NEED(!p.start && !p.ids.at);
    free(row), free(mask);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *end = size > 1 ? (const uint8_t *)memchr(data + 1, 0, size - 1) : NULL;
    char error[TEXT_ERROR], *text;
    size_t n, at;
    pairs_template t;
    pairs_file f;
    if (!end) return 0;
    at = (size_t)(end - data) + 1, n = size - at;
    text = (char *)malloc(n + !n);
    if (n) memcpy(text, data + at, n);
    if (!pairs_file_parse(&f, text, n, "the/file", error)) return check_line(error), NEED(!f.text), 0;
    for (size_t i = 0; i < f.n; i++) {
        NEED(f.prompt[i].at >= f.text);
        NEED(f.prompt[i].at + f.prompt[i].n <= f.text + n);
    }
    if (pairs_template_read(&t, (const char *)data + 1, at - 2, 1, error)) use(&f, &t, 1u + data[0]);
    else check_line(error), NEED(!t.text);
    pairs_template_close(&t), pairs_file_close(&f);
    return 0;
}
