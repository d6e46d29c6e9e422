/* A CSV of time series. Input: the columns' names, separated by commas, up to the first NUL or newline (none:
   the file's second line tells them), then the file. */
#include "fuzz.h"

#include "examples/tools/series.h"

enum { NAMES = 8 };

static void check_line(const char *error) {
    const unsigned char *at = (const unsigned char *)error;
    NEED(*at && strlen(error) < TEXT_ERROR);
    for (; *at; at++) NEED(*at >= 32 && *at != 127);
}

static void use(const series *s, size_t bytes) {
    NEED(s->channels && s->steps && s->steps <= bytes);
    for (size_t c = 0; c < s->channels; c++) {
        NEED(s->want[c] >= 1 && s->want[c] <= s->columns);
        NEED(s->names[c].at >= s->text && s->names[c].at + s->names[c].n <= s->text + bytes);
    }
    for (size_t i = 0; i < s->steps * s->channels; i++) NEED(isfinite(s->x[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char line[256], error[TEXT_ERROR], *text;
    text_slice names[NAMES];
    size_t length = 0, n = 0, at = 0, bytes;
    series s;
    while (length < size && length < sizeof line - 1) {
        if (!data[length] || data[length] == '\n') break;
        line[length] = (char)data[length];
        length++;
    }
    line[length] = 0;
    while (n < NAMES && at < length) {
        names[n].at = line + at;
        names[n].n = strcspn(line + at, ",");
        at += names[n++].n + 1;
    }
    length += length < size;
    bytes = size - length;
    text = (char *)malloc(bytes + 1);
    memcpy(text, data + length, bytes); /* the byte behind it stays undefined */
    if (series_parse(&s, text, bytes, "the/file", n ? names : NULL, n, error)) {
        use(&s, bytes);
        series_close(&s);
    } else {
        check_line(error);
        NEED(!s.text && !s.x && !s.names && !s.want);
    }
    return 0;
}
