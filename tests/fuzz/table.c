/* A table of tab-separated columns, its labels and their weights. Input: the columns' names, separated by
   commas, up to the first NUL or newline, then the file. */
#include "fuzz.h"

#include "examples/tools/text.h"

static void check_line(const char *error) {
    const unsigned char *at = (const unsigned char *)error;
    NEED(*at && strlen(error) < TEXT_ERROR);
    for (; *at; at++) NEED(*at >= 32 && *at != 127);
}

static void use(const text_table *t, size_t column, const char *names) {
    char error[TEXT_ERROR];
    text_labels labels;
    size_t row, *order = (size_t *)calloc(t->rows + 1, sizeof *order);
    double *values = (double *)calloc(t->rows + 1, sizeof *values), weights[17];
    for (row = 0; row < t->rows; row++) {
        text_slice cell = text_cell(t, row, column);
        order[row] = row;
        NEED(!memchr(cell.at, '\t', cell.n) && !memchr(cell.at, '\n', cell.n));
        NEED(t->lines[row] > (row ? t->lines[row - 1] : 0));
    }
    if (!text_values(t, column, NULL, "the/file", values, error)) check_line(error);
    if (text_labels_collect(&labels, t, column, 16, error)) {
        NEED(text_values(t, column, &labels, "the/file", values, error) && labels.n <= 16);
        NEED(text_weights("balanced", values, order, t->rows, labels.n, weights, error));
        if (!text_weights(names, values, order, t->rows, labels.n, weights, error)) check_line(error);
        text_labels_close(&labels);
    } else check_line(error);
    free(order), free(values);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *names[TEXT_COLUMNS + 2];
    char line[256], error[TEXT_ERROR], *text, *at;
    size_t length, columns = 0, c;
    text_table t;
    for (length = 0; length < size && length < sizeof line - 1 && data[length] && data[length] != '\n';
         length++)
        line[length] = (char)data[length];
    line[length] = 0;
    for (at = line; at && columns < TEXT_COLUMNS + 2; columns++) {
        names[columns] = at;
        at = strchr(at, ',');
        if (at) *at++ = 0;
    }
    length += length < size;
    text = (char *)malloc(size - length + 1);
    memcpy(text, data + length, size - length); /* the byte behind it stays undefined */
    if (text_table_parse(&t, text, size - length, "the/file", names, columns, error)) {
        for (c = 0; c < t.columns; c++) use(&t, c, names[0]);
        text_table_close(&t);
    } else check_line(error), NEED(!t.text && !t.cells);
    return 0;
}
