/* A vocabulary and a text to be encoded. Input: a byte with the room for tokens, a byte of flags (1: the
   special tokens are put before the vocabulary, 2: bytes instead of a vocabulary), the vocabulary up to the
   first NUL, then the text. */
#include "fuzz.h"

#include "examples/tools/text.h"

static void encode(const text_vocabulary *v, text_slice text, size_t room) {
    /* exactly what text_example asks for, for AddressSanitizer */
    int32_t *ids = (int32_t *)malloc((2 * room + 8) * sizeof *ids);
    size_t n, i, first;
    text_slice half = text;
    n = text_encode(v, text, ids, room);
    NEED(n <= room);
    for (i = 0; i < n; i++) NEED(ids[i] >= 0 && (size_t)ids[i] < v->size);
    half.n /= 2;
    free(ids);
    room += 4, ids = (int32_t *)malloc(2 * room * sizeof *ids);
    n = text_example(v, &text, &half, room, ids, &first);
    NEED(n >= 3 && n <= room && first >= 2 && first < n && ids[0] == v->cls && ids[n - 1] == v->sep);
    for (i = 0; i < n; i++) NEED(ids[i] >= 0 && (size_t)ids[i] < v->size);
    n = text_example(v, &text, NULL, room, ids, &first);
    NEED(n >= 2 && n <= room && first == n);
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char special[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n", *const first = "1";
    const uint8_t *end;
    char *words, *copy, error[TEXT_ERROR];
    size_t length, before;
    text_vocabulary v;
    text_slice text;
    if (size < 2) return 0;
    end = (const uint8_t *)memchr(data + 2, 0, size - 2);
    length = end ? (size_t)(end - data) - 2 : size - 2;
    before = data[1] & 1 ? sizeof special - 1 : 0;
    words = (char *)malloc(before + length + 1);
    memcpy(words, special, before), memcpy(words + before, data + 2, length);
    text.n = end ? size - 3 - length : 0;
    text.at = copy = (char *)malloc(text.n + 1);
    if (text.n) memcpy(copy, end + 1, text.n);
    memset(&v, 0, sizeof v);
    if (data[1] & 2) text_vocabulary_bytes(&v), encode(&v, text, data[0]), free(words);
    else if (text_table_parse(&v.table, words, before + length, "the/file", &first, 1, error) &&
             text_vocabulary_index(&v, "the/file", error))
        encode(&v, text, data[0]), text_vocabulary_close(&v);
    else fuzz_check_line(error);
    free(copy);
    return 0;
}
