/* What the example programs read with: tables, WordPiece, pairs, batches, labels, learnt vocabularies,
   BM25. */
#include "check.h"
#include "system.h"

#include <unistd.h>

#include "../examples/tools/words.h"

static char error[TEXT_ERROR];
static char path[] = "/tmp/cmha-text-XXXXXX";

static void put(const char *bytes, size_t n) {
    FILE *file = fopen(path, "wb");
    CHECK(file && fwrite(bytes, 1, n, file) == n);
    if (file) CHECK(fclose(file) == 0);
}

#define PUT(literal) put(literal, sizeof(literal) - 1)

static int load(text_table *t, const char *one, const char *two) {
    const char *names[2];
    names[0] = one, names[1] = two;
    return text_table_load(t, path, 1 << 20, names, two ? 2 : 1, error);
}

static int is(text_slice s, const char *want) { return text_same(s, text_of(want)); }

static int one_line(void) { return error[0] && strlen(error) < TEXT_ERROR && !strchr(error, '\n'); }

/* ------------------------------------------------ tables ------------------------------------------------ */

static void tables(void) {
    text_table t;
    PUT("\xEF\xBB\xBFlabel\tid\ttext\r\n1\t7\tan \"unbalanced quote\r\n\r\nno "
        "columns\r\n0\t8\t\t\r\n2\t9\tlast");
    CHECK(load(&t, "text", "label"));
    CHECK(t.rows == 3 && t.columns == 2 && t.skipped == 1 && t.first_skipped == 4);
    CHECK(is(text_cell(&t, 0, 0), "an \"unbalanced quote") && is(text_cell(&t, 0, 1), "1") &&
          t.lines[0] == 2);
    CHECK(is(text_cell(&t, 1, 0), "") && is(text_cell(&t, 1, 1), "0") && t.lines[1] == 5);
    CHECK(is(text_cell(&t, 2, 0), "last") && t.lines[2] == 6);
    text_table_close(&t), text_table_close(&t);
    CHECK(load(&t, "label", "2")); /* a name makes the first line a header, whatever the other column is */
    CHECK(t.rows == 3 && is(text_cell(&t, 2, 1), "9"));
    text_table_close(&t);
    CHECK(load(&t, "3", "1")); /* numbers alone: no header */
    CHECK(t.rows == 4 && is(text_cell(&t, 0, 0), "text") && is(text_cell(&t, 0, 1), "label"));
    text_table_close(&t);
    CHECK(load(&t, "1", NULL)); /* one column: every line is a row, the empty one too */
    CHECK(t.rows == 6 && is(text_cell(&t, 2, 0), "") && is(text_cell(&t, 3, 0), "no columns"));
    text_table_close(&t);
    CHECK(load(&t, "1", "1") && is(text_cell(&t, 5, 1), "2"));
    text_table_close(&t);
}

static void odd_tables(void) {
    static const char *const nine[9] = {"1", "1", "1", "1", "1", "1", "1", "1", "1"};
    text_table t;
    char *text;
    size_t bytes, i;
    PUT("");
    CHECK(load(&t, "1", NULL) && t.rows == 0);
    text_table_close(&t);
    PUT("\n");
    CHECK(load(&t, "1", NULL) && t.rows == 1);
    text_table_close(&t);
    PUT("label\ttext\n");
    CHECK(!load(&t, "nothing", NULL) && one_line() && strstr(error, "nothing") && strstr(error, path));
    CHECK(!load(&t, "0", NULL) && one_line());
    CHECK(!load(&t, "", NULL) && one_line());
    CHECK(!text_table_load(&t, path, 5, nine, 1, error) && one_line());
    CHECK(!text_table_load(&t, path, 1 << 20, nine, 9, error) && one_line());
    CHECK(!text_table_load(&t, path, 1 << 20, nine, 0, error) && one_line());
    CHECK(!text_table_load(&t, "there/is/no/such.file", 1 << 20, nine, 1, error) && one_line());
    CHECK(!text_table_load(&t, ".", 1 << 20, nine, 1, error) && one_line());
    text_table_close(&t);
    put("a\0b\tc\0\nd\te", 10);
    CHECK(load(&t, "1", "2"));
    CHECK(t.rows == 2 && text_cell(&t, 0, 0).n == 3 && !memcmp(text_cell(&t, 0, 0).at, "a\0b", 3) &&
          text_cell(&t, 0, 1).n == 2);
    text_table_close(&t);
    text = (char *)check_alloc(300001, 1), bytes = 300001; /* longer than what is read at once */
    for (i = 0; i < bytes; i++) text[i] = i == 200000 ? '\t' : (char)('a' + i % 26);
    put(text, bytes);
    CHECK(load(&t, "2", "1") && t.rows == 1 && text_cell(&t, 0, 0).n == 100000 &&
          text_cell(&t, 0, 1).n == 200000);
    text_table_close(&t), free(text);
}

static void numbers(void) {
    static const char *const bad[] = {"", " ", "x", "1x", "1 2", "--1", "1\t\n",
                                      "00000000000000000000000000000000000000000000000000000000000000001"};
    double value = 0;
    size_t i;
    CHECK(text_number(text_of("-2.5e1"), &value) && value == -25);
    CHECK(text_number(text_of(" 3 "), &value) && value == 3);
    for (i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_THAT(!text_number(text_of(bad[i]), &value), "\"%s\"", bad[i]);
}

/* ---------------------------------------------- WordPiece ----------------------------------------------- */

/* Encodes a text and compares with ids written as text */
static void gives(const text_vocabulary *v, text_slice text, const char *want, int line) {
    int32_t ids[1024];
    char got[4096] = "";
    size_t n = text_encode(v, text, ids, 1024), i, at = 0, j;
    for (i = 0; i < n && at < sizeof got - 16; i++)
        at += (size_t)snprintf(got + at, sizeof got - at, i ? " %d" : "%d", (int)ids[i]);
    CHECK_THAT(!strcmp(got, want), "text %d: ids \"%s\", expected \"%s\"", line, got, want);
    for (i = 0; i < n; i += 1 + i / 3) { /* less room: the same ids, fewer */
        int32_t less[1024];
        less[i] = -7;
        CHECK(text_encode(v, text, less, i) == i && less[i] == -7);
        for (j = 0; j < i; j++) CHECK(less[j] == ids[j]);
    }
}

enum {
    PAD, UNK, CLS, SEP, MASK, UN, AFF, ABLE, HUG, S, EXCLAMATION, CAFE, TSCHUNG, A, AA, OMEGA, ZHE, TWICE = 19
};
static const char vocabulary[] =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nun\n##aff\n##able\nhug\n##s\n!\ncafe\n\xE4\xB8\xAD\na\n##a\n"
    "\xCF\x89\n\xD0\xB6\ntwice\n\ntwice";

static void pieces(void) {
    static const struct { const char *text, *ids; } cases[] = {
        {"unaffable hugs!", "5 6 7 8 9 10"},
        {"  HUGS\t!!\r\n un ", "8 9 10 10 5"},
        /* no such piece as "mask"; brackets are punctuation */
        {"hug[MASK]", "8 1 1 1"},
        /* a word that cannot be put together is one [UNK] */
        {"unx hug", "1 8"},
        /* an accented letter, a combining accent, a soft hyphen */
        {"Caf\xC3\xA9 CAFE\xCC\x81 c\xC2\xAD" "afe", "11 11 11"},
        {"hug\xE4\xB8\xADhug", "8 12 8"},                           /* an ideograph stands alone */
        {"\xCE\xA9\xCF\x8E \xD0\x96", "1 16"},                      /* Omega, omega with tonos; Zhe */
        /* omega of antiquity; full-width A, which stays wide */
        {"\xE1\xBD\xA0 \xCE\xA9 \xEF\xBC\xA1", "15 15 1"},
        {"h\xFFug h\xC3ug \xE4\xB8", "8 8"},                        /* what is no UTF-8 is skipped */
        {"hug\xC2\xA0hug\xE3\x80\x80hug", "8 8 8"},                 /* spaces of other widths */
        /* a space of no width is a control character */
        {"hug\xE2\x80\x8Bs", "8 9"},
        {"twice", "19"},                                            /* the last of equal lines */
        {"", ""}, {" \n ", ""}, {"\xCC\x81", ""}};
    text_vocabulary v;
    char word[102];
    size_t i;
    put(vocabulary, sizeof vocabulary - 1);
    if (!CHECK(text_vocabulary_load(&v, path, error))) return;
    CHECK(v.size == 20 && v.pad == PAD && v.unk == UNK && v.cls == CLS && v.sep == SEP && v.mask == MASK);
    for (i = 0; i < sizeof cases / sizeof *cases; i++)
        gives(&v, text_of(cases[i].text), cases[i].ids, (int)i);
    memset(word, 'a', sizeof word);
    word[100] = ' ', word[101] = 'a';
    {
        int32_t ids[128];
        text_slice s;
        s.at = word, s.n = 102;
        CHECK(text_encode(&v, s, ids, 128) == 101 && ids[0] == A && ids[99] == AA && ids[100] == A);
        word[100] = 'a'; /* more than 100 characters: unknown */
        CHECK(text_encode(&v, s, ids, 128) == 1 && ids[0] == UNK);
        s.at = "hu\0g", s.n = 4;
        gives(&v, s, "8", 99);
    }
    text_vocabulary_close(&v), text_vocabulary_close(&v);
    PUT("[PAD]\n[UNK]\n[CLS]\n[MASK]\n");
    CHECK(!text_vocabulary_load(&v, path, error) && one_line() && strstr(error, "[SEP]"));
    PUT("");
    CHECK(!text_vocabulary_load(&v, path, error) && one_line());
    CHECK(!text_vocabulary_load(&v, "there/is/no/such.file", error) && one_line());
}

/* A file of cases: text TAB ids, the text up to the last tab of its line */
static void cases_of(const char *words, const char *cases) {
    text_vocabulary v;
    char *text, *at, *end, *tab, want[4096];
    size_t bytes, n;
    int line = 0;
    FILE *there = fopen(cases, "rb");
    if (!there) {
        printf("note: %s is not there, its cases are left out\n", cases);
        return;
    }
    fclose(there);
    if (!CHECK_THAT(text_vocabulary_load(&v, words, error) && text_read(cases, 1 << 24, &text, &bytes, error),
                    "%s", error))
        return;
    for (at = text; at < text + bytes; at = end + 1) {
        text_slice s;
        end = (char *)memchr(at, '\n', (size_t)(text + bytes - at));
        if (!end) end = text + bytes;
        for (tab = end; tab > at && tab[-1] != '\t';) tab--;
        n = (size_t)(end - tab), line++;
        if (!CHECK_THAT(tab > at && n < sizeof want, "%s:%d is no case", cases, line)) continue;
        memcpy(want, tab, n), want[n] = 0;
        s.at = at, s.n = (size_t)(tab - 1 - at);
        gives(&v, s, want, line);
    }
    CHECK(line > 0);
    free(text), text_vocabulary_close(&v);
}

/* The public golden texts, where they lie beside the repository: texts between
   marker lines, a line of ids for each */
static void golden(void) {
    static const char *const marker = "\n__ggml_vocab_test__\n", *const folder = "../shared/data/tokenizers";
    char name[3][256], *texts = NULL, *ids = NULL, *text, *next, *line, *end;
    text_vocabulary v;
    size_t bytes;
    int n = 0;
    snprintf(name[0], sizeof name[0], "%s/bert/vocab.txt", folder);
    snprintf(name[1], sizeof name[1], "%s/ggml-vocab-bert-bge.gguf.inp", folder);
    snprintf(name[2], sizeof name[2], "%s/ggml-vocab-bert-bge.gguf.out", folder);
    if (!text_vocabulary_load(&v, name[0], error)) return;
    if (text_read(name[1], 1 << 20, &texts, &bytes, error)) texts[bytes] = 0;
    if (text_read(name[2], 1 << 20, &ids, &bytes, error)) ids[bytes] = 0;
    for (text = texts, line = ids; ids && text && line && *line; text = next, line = end + 1, n++) {
        text_slice s;
        next = strstr(text, marker), end = strchr(line, '\n');
        if (!end) break;
        s.at = text, s.n = next ? (size_t)(next - text) : strlen(text);
        *end = 0;
        gives(&v, s, line + (*line == ' '), n);
        if (next) next += strlen(marker);
    }
    free(texts), free(ids), text_vocabulary_close(&v);
}

/* ---------------------------------------------- characters ---------------------------------------------- */

static void characters(void) {
    static const char *const broken[] = {"\xC0\x80",         "\xE0\x9F\xBF",
                                         "\xED\xA0\x80",     "\xF4\x90\x80\x80",
                                         "\xF0\x8F\xBF\xBF", "\x80",
                                         "\xE2\x82",         "\xFE"};
    char s[4];
    uint32_t c, back;
    size_t i;
    for (c = 1; c < 0x110000; c += c < 0x3000 ? 1 : 97) {
        if (c >= 0xD800 && c < 0xE000) continue;
        if (text_decode(s, text_utf8(c, s), &back) != text_utf8(c, s) || back != c)
            CHECK_THAT(0, "U+%04X", (unsigned)c);
        if (text_plain(text_plain(c)) != text_plain(c))
            CHECK_THAT(0, "U+%04X in lower case is not", (unsigned)c);
    }
    for (i = 0; i < sizeof broken / sizeof *broken; i++)
        CHECK(text_decode(broken[i], strlen(broken[i]), &c) == 1 && c == 0);
    CHECK(text_is_punctuation('$') && text_is_punctuation('~') && text_is_punctuation(0x2014) &&
          text_is_punctuation(0x3002));
    CHECK(!text_is_punctuation('a') && !text_is_punctuation('0') && !text_is_punctuation(0xB0) &&
          !text_is_punctuation(0x20AC));
}

/* ---------------------------------------- pairs, batches, labels ---------------------------------------- */

static void pairs(void) {
    text_vocabulary v;
    text_slice a = text_of("aaaaa"), b = text_of("bbb"), none = text_of("");
    static const int32_t whole[] = {257, 'a', 'a', 'a', 'a', 'a', 258, 'b', 'b', 'b', 258};
    static const int32_t cut[] = {257, 'a', 'a', 'a', 258, 'b', 'b', 258};
    int32_t ids[64];
    size_t first, length;
    text_vocabulary_bytes(&v);
    CHECK(v.size == 260 && v.pad == 256 && v.cls == 257 && v.sep == 258 && v.mask == 259);
    CHECK(text_example(&v, &a, &b, 32, ids, &first) == 11 && first == 7 && !memcmp(ids, whole, sizeof whole));
    CHECK(text_example(&v, &a, &b, 11, ids, &first) == 11 && first == 7 && !memcmp(ids, whole, sizeof whole));
    CHECK(text_example(&v, &a, &b, 8, ids, &first) == 8 && first == 5 && !memcmp(ids, cut, sizeof cut));
    CHECK(text_example(&v, &b, &a, 8, ids, &first) == 8 && first == 5 && ids[1] == 'b' && ids[5] == 'a');
    CHECK(text_example(&v, &a, NULL, 32, ids, &first) == 7 && first == 7 && ids[6] == 258);
    CHECK(text_example(&v, &a, NULL, 4, ids, &first) == 4 && first == 4 && ids[2] == 'a' && ids[3] == 258);
    CHECK(text_example(&v, &none, &none, 4, ids, &first) == 3 && first == 2);
    for (length = 4; length < 32; length++) {
        size_t n = text_example(&v, &a, &b, length, ids, &first);
        CHECK(n == (length < 11 ? length : 11) && first + 1 <= n && ids[first - 1] == 258 &&
              ids[n - 1] == 258);
    }
}

/* Every example once, in another order, those of a pool by length */
static void arrangement(const text_vocabulary *v) {
    enum { N = 101, BATCH = 3 };
    size_t order[N], turn[N], seen[N] = {0}, again[N], turned[N], i, moved = 0;
    text_slice cells[N];
    text_table t;
    text_examples e;
    memset(&t, 0, sizeof t);
    t.cells = cells, t.rows = N, t.columns = 1;
    for (i = 0; i < N; i++)
        cells[i].at = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", cells[i].n = check_below(32),
        order[i] = again[i] = i;
    if (!CHECK(text_examples_encode(&e, v, &t, 0, -1, 64, error))) return;
    CHECK(text_arrange(&e, order, N, BATCH, 5, turn) == 34 &&
          text_arrange(&e, again, N, BATCH, 5, turned) == 34);
    for (i = 0; i < N; i++) seen[order[i]]++, moved += order[i] != i;
    for (i = 0; i < 34; i++) seen[turn[i]] += 2;
    for (i = 0; i < N; i++)
        CHECK(seen[i] == (i < 34 ? 3 : 1) && order[i] == again[i] && (i >= 34 || turn[i] == turned[i]));
    for (i = 1; i < N; i++) CHECK(i % 48 == 0 || cells[order[i - 1]].n <= cells[order[i]].n);
    CHECK(moved > N / 2 && text_arrange(&e, order, 0, BATCH, 5, turn) == 0);
    text_examples_close(&e);
}

static void batches(void) {
    static const size_t order[] = {2, 0};
    text_table t;
    text_vocabulary v;
    text_examples e;
    int32_t ids[32], types[32];
    unsigned char mask[32];
    PUT("ab\tc\nx\ty\n\tlong\n");
    text_vocabulary_bytes(&v);
    CHECK(load(&t, "1", "2") && text_examples_encode(&e, &v, &t, 0, 1, 16, error));
    CHECK(e.n == 3 && e.start[1] == 6 && e.start[3] == 18 && e.first[0] == 4 && e.first[2] == 2);
    CHECK(text_batch(&e, order, 2, 8, 16, v.pad, ids, types, mask) == 8);
    CHECK(ids[0] == 257 && ids[2] == 'l' && ids[6] == 258 && ids[7] == 256 && ids[8] == 257 &&
          ids[12] == 'c' && ids[15] == 256);
    CHECK(types[1] == 0 && types[2] == 1 && types[6] == 1 && types[7] == 0 && types[11] == 0 &&
          types[12] == 1);
    CHECK(mask[0] && mask[6] && !mask[7] && mask[13] && !mask[14]);
    /* not beyond the most there may be */
    CHECK(text_batch(&e, order, 2, 8, 7, v.pad, ids, types, mask) == 7 && ids[7] == 257);
    CHECK(text_batch(&e, order, 2, 1, 16, v.pad, ids, types, mask) == 7);
    text_examples_close(&e), text_examples_close(&e);
    arrangement(&v);
    CHECK(text_examples_encode(&e, &v, &t, 1, -1, 4, error) && e.start[3] == 3 + 3 + 4 && e.first[2] == 4);
    text_examples_close(&e);
    CHECK(!text_examples_encode(&e, &v, &t, 0, 1, 3, error) && one_line());
    text_examples_close(&e), text_table_close(&t);
}

/* A save that cannot be leaves what was there, be it a file, a folder or a link that names nothing. */
static void labels_unsaved(const text_labels *l) {
    char link[sizeof path + 4], folder[] = "/tmp/cmha-text-XXXXXX";
    snprintf(link, sizeof link, "%s.to", path);
    CHECK(system_folder(folder) && !text_labels_save(l, folder, error) && one_line() && rmdir(folder) == 0);
    CHECK(!text_labels_save(l, "there/is/no/such.file", error) && one_line());
    if (!system_link("/there/is/no/such.file", link)) return;
    CHECK(!text_labels_save(l, link, error) && one_line() && remove(link) == 0);
}

/* A link stays one and its file gets the names; that file keeps its permissions. What lies in the way
   stays. */
static void labels_linked(const text_labels *l) {
    char link[sizeof path + 4], planted[sizeof path + 40];
    text_labels again;
    struct stat about;
    snprintf(link, sizeof link, "%s.to", path);
    snprintf(planted, sizeof planted, "%s.%lx.0.tmp", path, (unsigned long)getpid());
    if (!system_link(path, link) || !system_link(link, planted)) return;
    CHECK(chmod(path, 0600) == 0 && text_labels_save(l, link, error));
    CHECK(stat(path, &about) == 0 && (about.st_mode & 0777) == 0600);
    CHECK(system_is_link(link) && system_is_link(planted));
    CHECK(text_labels_load(&again, link, error) && again.n == l->n && is(again.names[0], "-1"));
    text_labels_close(&again);
    CHECK(remove(link) == 0 && remove(planted) == 0);
}

static void labels(void) {
    text_table t;
    text_labels l, again;
    double value[8];
    PUT("10\n9\nno\n9\n-1\nyes\n\nno\n");
    CHECK(load(&t, "1", NULL) && text_labels_collect(&l, &t, 0, 6, error));
    CHECK(l.n == 6 && is(l.names[0], "-1") && is(l.names[1], "9") && is(l.names[2], "10") &&
          is(l.names[3], ""));
    CHECK(is(l.names[4], "no") && is(l.names[5], "yes"));
    CHECK(text_label(&l, text_of("no")) == 4 && text_label(&l, text_of("nobody")) == -1);
    CHECK(!text_labels_collect(&again, &t, 0, 5, error) && one_line());
    CHECK(text_values(&t, 0, &l, "F", value, error) && value[0] == 2 && value[4] == 0 && value[7] == 4);
    CHECK(!text_values(&t, 0, NULL, "F", value, error) && value[1] == 9 &&
          !strcmp(error, "F, line 3: \"no\" is no number"));
    l.n = 4;
    CHECK(!text_values(&t, 0, &l, "F", value, error) && one_line() && strstr(error, "line 3"));
    l.n = 6;
    CHECK(text_labels_save(&l, path, error) && text_labels_load(&again, path, error));
    CHECK(again.n == 6 && is(again.names[2], "10") && is(again.names[3], "") && is(again.names[5], "yes"));
    labels_unsaved(&l), labels_linked(&l);
    text_labels_close(&again), text_labels_close(&again), text_labels_close(&l), text_table_close(&t);
    CHECK(!text_labels_load(&l, "there/is/no/such.file", error) && one_line());
}

static void weights(void) {
    static const double class_of[] = {0, 2, 2, 0, 2, 1};
    static const size_t order[] = {1, 2, 3, 4, 0};
    static const char *const bad[] = {"",     "1",      "1,2",     "1,2,3,4", "1,2,3,",
                                      "1,,3", "1,-2,3", "1,nan,3", "1 2 3",   "balance"};
    double w[3];
    size_t i;
    CHECK(text_weights("balanced", class_of, order, 5, 3, w, error)); /* 5 rows: 2, 0, 3 */
    CHECK_NEAR(w[0], 5.0 / 6, 1e-15);
    CHECK_NEAR(w[1], 5.0 / 3, 1e-15);
    CHECK_NEAR(w[2], 5.0 / 9, 1e-15);
    CHECK(text_weights("1,2.5,0", class_of, order, 5, 3, w, error) && w[0] == 1 && w[1] == 2.5 && w[2] == 0);
    for (i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(!text_weights(bad[i], class_of, order, 5, 3, w, error) && one_line());
}

/* ------------------------------------------------ words ------------------------------------------------ */

static void bags(void) {
    text_bag b;
    size_t i, number, *order = (size_t *)check_alloc(2 * 5003, sizeof *order);
    char name[16];
    memset(&b, 0, sizeof b);
    CHECK(text_bag_find(&b, text_of("nothing")) == 0);
    for (i = 0; i < 10000; i++) { /* past several growths; every string twice, but for three odd ones */
        snprintf(name, sizeof name, "w%zu", i % 5000);
        CHECK(text_bag_add(&b, text_of(name), 1, &number, error) && number == i % 5000);
    }
    CHECK(text_bag_add(&b, text_of(""), 3, &number, error) && number == 5000);
    CHECK(text_bag_add(&b, text_of("w"), 2, &number, error) && number == 5001);
    CHECK(text_bag_add(&b, text_of("zz"), 1, &number, error) && number == 5002);
    CHECK(b.n == 5003 && text_bag_find(&b, text_of("w4999")) == 4999 &&
          text_bag_find(&b, text_of("w5000")) == b.n);
    text_bag_order(&b, order);
    CHECK(order[0] == 5000 && order[1] == 5001 && order[2] == 0 && order[3] == 1 && order[4] == 10 &&
          order[5002] == 5002);
    for (i = 3; i < 5002; i++) {
        text_slice x = text_bag_at(&b, order[i - 1]), y = text_bag_at(&b, order[i]);
        int bytes = memcmp(x.at, y.at, x.n < y.n ? x.n : y.n);
        CHECK(bytes < 0 || (!bytes && x.n < y.n));
    }
    text_bag_close(&b), text_bag_close(&b), free(order);
}

/* Learns from one text; with `want`, the tokens in their order, one blank between them */
static text_vocabulary learn(text_slice text, size_t size, const char *want) {
    text_vocabulary v;
    char got[1024] = "";
    size_t i, at = 0;
    CHECK(text_vocabulary_learn(&v, &text, 1, size, error));
    for (i = 0; want && i < v.size && at < sizeof got - 80; i++) {
        text_slice token = text_cell(&v.table, i, 0);
        at += (size_t)snprintf(got + at, sizeof got - at, "%s%.*s", i ? " " : "", (int)token.n, token.at);
    }
    CHECK_THAT(!want || !strcmp(got, want), "learnt \"%s\", expected \"%s\"", got, want);
    return v;
}

static void learning(void) {
#define SPECIAL "[PAD] [UNK] [CLS] [SEP] [MASK]"
    static char long_words[3 * 250];
    static const char bytes[] = "ok \xff\xfe \xc3 ok\xe2\x82 \x80 na\xc3\xafve na\xc3\xafve \xe4\xb8\xad";
    text_slice slice = {bytes, sizeof bytes - 1};
    text_vocabulary v = learn(text_of(""), 100, SPECIAL), again;
    int32_t ids[64];
    size_t i;
    gives(&v, text_of("word"), "1", 0);
    text_vocabulary_close(&v);
    v = learn(text_of("The cat, the CAT; a dog."), 100, /* characters by count, words that come twice */
              SPECIAL " ##t t ##a a ##c ##e ##h c e h ##d ##g ##o , . ; d g o cat the");
    gives(&v, text_of("The cat, a dog; toga"), "25 24 18 8 21 17 16 20 6 17 16 7", 1);
    text_vocabulary_close(&v);
    v = learn(text_of("aa aa bb bb"), 0, SPECIAL " ##a ##b a b"); /* characters, whatever the size */
    gives(&v, text_of("abba c abc"), "7 6 6 5 1 1", 2);
    text_vocabulary_close(&v);
    /* endings of several words, before words */
    v = learn(text_of("going running sing sing sting"), 64, NULL);
    CHECK(*text_slot(&v, "", text_of("##ing")) >= 0 &&
          *text_slot(&v, "", text_of("sing")) > *text_slot(&v, "", text_of("##ing")));
    CHECK(*text_slot(&v, "", text_of("sting")) < 0 && *text_slot(&v, "", text_of("##ning")) < 0);
    text_vocabulary_close(&v);
    v = learn(slice, 100, NULL); /* what is no UTF-8 is not there, accents are off, an ideograph is a word */
    CHECK(*text_slot(&v, "", text_of("ok")) >= 0 && *text_slot(&v, "", text_of("naive")) >= 0);
    CHECK(*text_slot(&v, "", text_of("\xe4\xb8\xad")) >= 0 &&
          *text_slot(&v, "##", text_of("\xe4\xb8\xad")) < 0);
    for (i = 5; i < v.size; i++) CHECK(text_cell(&v.table, i, 0).n > 0);
    text_vocabulary_close(&v);
    /* of more characters than are looked into: [UNK], not learnt */
    memset(long_words, 'x', sizeof long_words);
    long_words[249] = long_words[499] = ' ';
    slice.at = long_words, slice.n = sizeof long_words;
    v = learn(slice, 100, SPECIAL);
    CHECK(text_encode(&v, slice, ids, 64) == 3 && ids[0] == v.unk);
    text_vocabulary_close(&v);
    slice.n = TEXT_WORD; /* the longest word there is */
    v = learn(slice, 100, SPECIAL " ##x x");
    CHECK(text_encode(&v, slice, ids, 64) == 64 && ids[0] == 6 && ids[63] == 5);
    CHECK(text_vocabulary_save(&v, path, error) && text_vocabulary_load(&again, path, error));
    CHECK(again.size == 7 && again.mask == 4 && is(text_cell(&again.table, 5, 0), "##x"));
    text_vocabulary_close(&again), text_vocabulary_close(&v);
    CHECK(text_vocabulary_learn(&v, NULL, 0, 100, error) && v.size == 5);
    CHECK(!text_vocabulary_save(&v, "there/is/no/such.file", error) && one_line());
    text_vocabulary_close(&v);
}

/* A real text: twice the same, and every word of it is spelled */
static void learning_from_text(void) {
    text_vocabulary v, w;
    text_word word;
    text_slice text;
    char *memory;
    int32_t ids[4 * TEXT_WORD];
    size_t bytes, at = 0, i, n, words = 0, pieces = 0, unknown = 0;
    if (!CHECK(text_read("cmha.h", 1 << 24, &memory, &bytes, error))) return;
    text.at = memory, text.n = bytes;
    v = learn(text, 600, NULL), w = learn(text, 600, NULL);
    CHECK(v.size == 600 && w.size == v.size);
    for (i = 0; i < v.size; i++) CHECK(text_same(text_cell(&v.table, i, 0), text_cell(&w.table, i, 0)));
    while (text_next_word(text, &at, &word)) {
        n = text_pieces(&v, &word, ids, 4 * TEXT_WORD);
        for (words++, pieces += n, i = 0; i < n; i++) unknown += ids[i] == v.unk;
    }
    CHECK_THAT(!unknown && words > 1000 && pieces < 3 * words, "%zu words, %zu pieces, %zu unknown", words,
               pieces, unknown);
    text_vocabulary_close(&v), text_vocabulary_close(&w), free(memory);
}

static void bm25(void) {
    static const char *const texts[] = {"The cat sat on the mat.", "A dog, a dog!", "", "cat dog bird"};
    text_slice passages[4];
    text_bm25 m;
    double scores[4], idf, mean = 13 / 4.0;
    size_t i;
    for (i = 0; i < 4; i++) passages[i] = text_of(texts[i]);
    CHECK(text_bm25_init(&m, passages, 4, error));
    CHECK(m.n == 4 && m.length[0] == 6 && m.length[1] == 4 && m.length[2] == 0 && m.mean == mean &&
          m.start[4] == 5 + 2 + 0 + 3);
    for (i = 0; i < 2; i++) { /* twice: no question leaves anything behind */
        text_bm25_scores(&m, text_of("DOG? dog unicorn"), scores);
        idf = 2 * log(1 + (4 - 2 + 0.5) / (2 + 0.5));
        CHECK(scores[0] == 0 && scores[2] == 0);
        CHECK_NEAR(scores[1], idf * 2 * 2.2 / (2 + 1.2 * (0.25 + 0.75 * 4 / mean)), 1e-12);
        CHECK_NEAR(scores[3], idf * 1 * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 3 / mean)), 1e-12);
        text_bm25_scores(&m, text_of("..."), scores);
        CHECK(scores[0] == 0 && scores[1] == 0 && scores[3] == 0);
    }
    text_bm25_close(&m), text_bm25_close(&m);
    CHECK(text_bm25_init(&m, NULL, 0, error));
    text_bm25_scores(&m, text_of("anything"), scores);
    text_bm25_close(&m);
}

static void lists(void) {
    static const double scores[] = {0.5, 2, 0.5, -1, 2, 0};
    static const int64_t all[] = {1, 4, 0, 2, -1, -1, -1, -1}, other[] = {3, 4, -1, 0};
    double fused[6] = {0};
    text_slice p[2];
    int64_t list[8];
    size_t k, i;
    for (k = 0; k <= 8; k++) {
        for (i = 0; i < 8; i++) list[i] = -7;
        text_rank(scores, 6, k, list);
        for (i = 0; i < 8; i++) CHECK(list[i] == (i < k ? all[i] : -7));
    }
    text_fuse(all, 8, fused), text_fuse(other, 4, fused), text_fuse(NULL, 0, fused);
    CHECK(fused[0] == 1 / 63.0 && fused[1] == 1 / 61.0 && fused[2] == 1 / 64.0 && fused[3] == 1 / 61.0);
    CHECK(fused[4] == 1 / 62.0 + 1 / 62.0 && fused[5] == 0);
    text_rank(fused, 6, 3, list);
    CHECK(list[0] == 4 && list[1] == 1 && list[2] == 3); /* in both lists comes before first in one */
    CHECK(text_contains(text_of("In the Year 1066"), text_of("year 1066")) &&
          text_contains(text_of("abc"), text_of("ABC")));
    CHECK(!text_contains(text_of("abc"), text_of("abcd")) && !text_contains(text_of(""), text_of("a")));
    CHECK(text_contains(text_of("a\xc3\xa9"), text_of("\xc3\xa9")) &&
          !text_contains(text_of("\xc3\xa9"), text_of("\xc3\xa8")));
    p[0] = text_of("Rollo, in 911"), p[1] = text_of("#2");
    CHECK(text_answers(text_of("rollo"), p, 2, 0) && !text_answers(text_of("rollo"), p, 2, 1) &&
          !text_answers(text_of(""), p, 2, 0));
    CHECK(text_answers(text_of("#2 #12"), p, 2, 1) && !text_answers(text_of("#2 #12"), p, 2, 0) &&
          !text_answers(text_of("#"), p, 2, 0));
    CHECK(text_answers(text_of("#2 #12 # #x"), p, 2, 2) == 2 && text_answers(text_of("rollo"), p, 2, 2) == 0);
}

int main(void) {
    int file = mkstemp(path);
    if (!CHECK(file >= 0 && close(file) == 0)) return check_end();
    tables();
    odd_tables();
    numbers();
    characters();
    pieces();
    cases_of("tests/wordpiece_vocab.txt", "tests/wordpiece_cases.txt");
    golden();
    pairs();
    batches();
    labels();
    weights();
    bags(), learning(), learning_from_text(), bm25(), lists();
    remove(path);
    return check_end();
}
