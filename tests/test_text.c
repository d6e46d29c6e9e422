/* What the example programs read with: tables, bytes, numbers and tokens, pairs, batches, labels, learnt
   vocabularies, BM25, passages of files. */
#include "check.h"
#include "system.h"

#include <unistd.h>

/* Counts what reaches the disk before it takes its place; a disk that fails */
#ifndef _WIN32
static int synced, sync_fails;
#define fsync(file) (synced++, sync_fails ? -1 : (fsync)(file))
#endif

#include "../examples/tools/batches.h"
#include "../examples/tools/folders.h"

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
    PUT("text\tlabel\ttext\n1\t2\t3\n");
    CHECK(!load(&t, "label", "text") && one_line() && strstr(error, "two columns \"text\""));
    CHECK(load(&t, "label", "3") && is(text_cell(&t, 0, 1), "3"));
    text_table_close(&t);
    PUT("label\ttext\n");
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

/* ------------------------------------------------ tokens ------------------------------------------------ */

/* Encodes a text and compares with ids written as text */
static void gives(const codec *c, text_slice text, const char *want, int line) {
    char got[8192] = "";
    codec_ids ids = {NULL, 0, 0};
    size_t i, at = 0;
    CHECK_THAT(codec_encode(c, text.at, text.n, 0, &ids, error), "%s", error);
    for (i = 0; i < ids.n && at < sizeof got - 16; i++)
        at += (size_t)snprintf(got + at, sizeof got - at, i ? " %d" : "%d", (int)ids.at[i]);
    CHECK_THAT(!strcmp(got, want), "text %d: ids \"%s\", expected \"%s\"", line, got, want);
    codec_ids_free(&ids);
}

static void beside(const char *checkpoint, const char *want) {
    char got[64];
    CHECK_THAT(codec_beside(checkpoint, ".tokenizer.json", got, sizeof got) && !strcmp(got, want), "%s: %s",
               checkpoint, got);
}

/* Bytes, numbers, and what a build without tokenizers says */
static void plain_codecs(void) {
    static const int32_t stream[] = {'a', 'b', 300};
    cmha_tokens tokens = {stream, 3, 4, NULL, 12, 0};
    codec_ids ids = {NULL, 0, 0};
    codec c;
    char narrow[8];
    CHECK(codec_open(&c, NULL, "m.safetensors", "", 256, error) && c.kind == CODEC_BYTES && c.eos == -1);
    gives(&c, text_of("a\xff!"), "97 255 33", 0);
    CHECK(codec_bytes(&c, &tokens, 1, 3) == 2);
    codec_close(&c);
    CHECK(codec_open(&c, NULL, NULL, "", 300, error) && c.kind == CODEC_NUMBERS && c.size == 300);
    gives(&c, text_of("1, 299\n 0"), "1 299 0", 1);
    gives(&c, text_of(" "), "", 2);
    CHECK(codec_bytes(&c, &tokens, 1, 3) == 0);
    CHECK(!codec_encode(&c, "1 300", 5, 0, &ids, error) && one_line() && strstr(error, "below 300"));
    CHECK(!codec_encode(&c, "1 -2", 4, 0, &ids, error) && one_line());
    CHECK(!codec_encode(&c, "99999999999999999999999", 23, 0, &ids, error) && one_line());
    codec_ids_free(&ids), codec_close(&c), codec_close(&c);
    beside("m.safetensors", "m.tokenizer.json"), beside("a/m.safetensors.last", "a/m.tokenizer.json");
    beside("m", "m.tokenizer.json"), beside(".safetensors", ".safetensors.tokenizer.json");
    CHECK(!codec_beside("m.safetensors", ".a-name-that-is-too-long", narrow, sizeof narrow));
    CHECK(!codec_open(&c, "there/is/no/such.file", NULL, "", 0, error) && one_line());
    CHECK(!codec_open(&c, NULL, path, "bpe-0123456789abcdef", 0, error) && one_line());
    codec_close(&c);
}

#ifdef WITH_TOKENIZER
enum { PAD, UNK, CLS, SEP, MASK };

static codec open_codec(const char *file) {
    codec c;
    CHECK_THAT(codec_open(&c, file, NULL, "", 0, error), "%s", error);
    return c;
}

/* A tokenizer is kept beside a checkpoint, found there, and another one is refused. */
static void identities(void) {
    static char name[sizeof path + 16], kept[sizeof path + 16], folder[] = "/tmp/cmha-codec-XXXXXX";
    codec c = open_codec("tests/wordpiece_vocab.txt"), again, other;
    char first[32];
    snprintf(name, sizeof name, "%s.safetensors", path);
    snprintf(kept, sizeof kept, "%s.tokenizer.json", path);
    memcpy(first, c.identity, sizeof first);
    CHECK(c.identity[0] && c.pad == PAD && c.unk == UNK && c.cls == CLS && c.sep == SEP && c.mask == MASK);
    CHECK_THAT(codec_save(&c, name, error), "%s", error);
    CHECK_THAT(codec_open(&again, NULL, name, first, c.size, error), "%s", error);
    CHECK(!strcmp(again.identity, first) && again.size == c.size);
    gives(&again, text_of("[MASK]"), "4", 0);
    codec_close(&again);
    CHECK(!codec_open(&again, NULL, name, first, c.size - 1, error) && one_line()); /* more than the model */
    PUT("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nother");
    other = open_codec(path);
    CHECK(strcmp(other.identity, first) != 0);
    CHECK(!codec_open(&again, path, name, first, 0, error) && one_line() && strstr(error, first) &&
          strstr(error, other.identity));
    CHECK(!codec_open(&again, NULL, name, other.identity, 0, error) && one_line());
    codec_close(&other), codec_close(&c);
    if (CHECK(mkdtemp(folder) != NULL)) { /* tokenizer.json in the model's folder */
        snprintf(name, sizeof name, "%s/m", folder), snprintf(first, sizeof first, "none-0");
        CHECK(!codec_open(&again, NULL, name, first, 0, error) && one_line() &&
              strstr(error, "m.tokenizer.json") && strstr(error, "--tokenizer"));
        CHECK(rmdir(folder) == 0);
    }
    remove(kept);
}

/* A file of cases: text TAB ids, the text up to the last tab of its line */
static void cases_of(const char *words, const char *cases) {
    codec c = open_codec(words);
    char *text, *at, *end, *tab, want[4096];
    size_t bytes, n;
    int line = 0;
    if (!CHECK_THAT(text_read(cases, 1 << 24, &text, &bytes, error), "%s", error)) return;
    for (at = text; at < text + bytes; at = end + 1) {
        text_slice s;
        end = (char *)memchr(at, '\n', (size_t)(text + bytes - at));
        if (!end) end = text + bytes;
        for (tab = end; tab > at && tab[-1] != '\t';) tab--;
        n = (size_t)(end - tab), line++;
        if (!CHECK_THAT(tab > at && n < sizeof want, "%s:%d is no case", cases, line)) continue;
        memcpy(want, tab, n), want[n] = 0;
        s.at = at, s.n = (size_t)(tab - 1 - at);
        gives(&c, s, want, line);
    }
    CHECK(line > 0);
    free(text), codec_close(&c);
}
#endif

/* ---------------------------------------------- characters ---------------------------------------------- */

static void characters(void) {
    static const char *const broken[] = {"\xC0\x80",         "\xE0\x9F\xBF",
                                         "\xED\xA0\x80",     "\xF4\x90\x80\x80",
                                         "\xF0\x8F\xBF\xBF", "\x80",
                                         "\xE2\x82",         "\xFE"};
    char s[4];
    uint32_t c, back, plain[4], twice[4];
    size_t i, n;
    for (c = 1; c < 0x110000; c += c < 0x3000 ? 1 : 97) {
        if (c >= 0xD800 && c < 0xE000) continue;
        if (text_decode(s, text_utf8(c, s), &back) != text_utf8(c, s) || back != c)
            CHECK_THAT(0, "U+%04X", (unsigned)c);
        for (n = text_plain(c, plain), i = 0; i < n; i++)
            if (text_plain(plain[i], twice) != 1 || twice[0] != plain[i])
                CHECK_THAT(0, "U+%04X in lower case is not", (unsigned)c);
    }
    for (i = 0; i < sizeof broken / sizeof *broken; i++)
        CHECK(text_decode(broken[i], strlen(broken[i]), &c) == 1 && c == 0);
    CHECK(text_is_punctuation('$') && text_is_punctuation('~') && !text_is_punctuation(' '));
    CHECK(!text_is_punctuation('a') && !text_is_punctuation('0') && !text_is_punctuation(0xB0) &&
          !text_is_punctuation(0x20AC));
#ifdef WITH_TOKENIZER
    CHECK(text_is_punctuation(0x2014) && text_is_punctuation(0x3002));
#endif
}

/* ---------------------------------------- pairs, batches, labels ---------------------------------------- */

/* An example of these slices: its tokens, and the first of type 1 */
static size_t example(const codec *c, text_slice a, const text_slice *b, size_t length, int32_t *out,
                      size_t *first) {
    codec_ids ids = {NULL, 0, 0};
    size_t n;
    CHECK(text_example(c, &a, b, length, &ids, first, error));
    n = ids.n, memcpy(out, ids.at, n * sizeof *out);
    codec_ids_free(&ids);
    return n;
}

static codec bytes_codec(void) {
    codec c;
    codec_plain(&c, 256), codec_add_specials(&c);
    return c;
}

static void pairs(void) {
    codec c = bytes_codec();
    text_slice a = text_of("aaaaa"), b = text_of("bbb"), none = text_of("");
    static const int32_t whole[] = {257, 'a', 'a', 'a', 'a', 'a', 258, 'b', 'b', 'b', 258};
    static const int32_t cut[] = {257, 'a', 'a', 'a', 258, 'b', 'b', 258};
    int32_t ids[64];
    size_t first, length;
    CHECK(c.size == 260 && c.pad == 256 && c.cls == 257 && c.sep == 258 && c.mask == 259);
    CHECK(example(&c, a, &b, 32, ids, &first) == 11 && first == 7 && !memcmp(ids, whole, sizeof whole));
    CHECK(example(&c, a, &b, 11, ids, &first) == 11 && first == 7 && !memcmp(ids, whole, sizeof whole));
    CHECK(example(&c, a, &b, 8, ids, &first) == 8 && first == 5 && !memcmp(ids, cut, sizeof cut));
    CHECK(example(&c, b, &a, 8, ids, &first) == 8 && first == 5 && ids[1] == 'b' && ids[5] == 'a');
    CHECK(example(&c, a, NULL, 32, ids, &first) == 7 && first == 7 && ids[6] == 258);
    CHECK(example(&c, a, NULL, 4, ids, &first) == 4 && first == 4 && ids[2] == 'a' && ids[3] == 258);
    CHECK(example(&c, none, &none, 4, ids, &first) == 3 && first == 2);
    for (length = 4; length < 32; length++) {
        size_t n = example(&c, a, &b, length, ids, &first);
        CHECK(n == (length < 11 ? length : 11) && first + 1 <= n && ids[first - 1] == 258 &&
              ids[n - 1] == 258);
    }
    /* what stands for [CLS] and [SEP], and what is new */
    codec_plain(&c, 300), c.bos = 1, c.eos = 2, codec_add_specials(&c);
    CHECK(c.cls == 1 && c.sep == 2 && c.pad == 300 && c.mask == 301 && c.size == 302);
}

#ifdef WITH_TOKENIZER
/* Pairs stand as the tokenizer's template has them: two </s> between them, all of type 0; or as BERT's. */
static void pairs_of_templates(void) {
    static const struct { const char *post; size_t n, first; } rows[] = {
        {"{'type':'RobertaProcessing','cls':['<s>',0],'sep':['</s>',1]}", 7, 7},
        {"{'type':'BertProcessing','cls':['<s>',0],'sep':['</s>',1]}", 6, 4},
        {"{'type':'TemplateProcessing','single':[{'Sequence':{'id':'A'}}],'pair':["
         "{'SpecialToken':{'id':'s'}},{'Sequence':{'id':'A'}},{'SpecialToken':{'id':'e'}},"
         "{'SpecialToken':{'id':'e'}},{'SpecialToken':{'id':'e'}},{'Sequence':{'id':'B','type_id':1}},"
         "{'SpecialToken':{'id':'e','type_id':1}}],'special_tokens':{'s':{'ids':[0]},'e':{'ids':[1]}}}",
         8, 6},
        {"{'type':'TemplateProcessing','single':[{'Sequence':{'id':'A'}}],'pair':["
         "{'Sequence':{'id':'A'}},{'Sequence':{'id':'B'}}],'special_tokens':{}}", 6, 4},
        {"null", 6, 4}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        static const int32_t two[] = {0, 2, 2, 1, 1, 3, 1};
        char json[1200];
        int32_t ids[64];
        size_t first, n;
        codec c;
        text_slice a = text_of("aa"), b = text_of("b");
        n = (size_t)snprintf(json, sizeof json, "{'model':{'type':'BPE',"
                             "'vocab':{'<s>':0,'</s>':1,'a':2,'b':3},'merges':[]},'added_tokens':["
                             "{'id':0,'content':'<s>','special':true},"
                             "{'id':1,'content':'</s>','special':true}],'post_processor':%s}", rows[i].post);
        for (char *at = json; *at; at++)
            if (*at == '\'') *at = '"';
        if (!CHECK_THAT(codec_read(&c, json, n, "test", error), "%s", error)) return;
        codec_add_specials(&c);
        n = example(&c, a, &b, 32, ids, &first);
        CHECK_THAT(n == rows[i].n && first == rows[i].first, "template %zu: %zu of %zu", i, first, n);
        CHECK(i || !memcmp(ids, two, sizeof two));
        CHECK(example(&c, a, &b, 6, ids, &first) == 6 && ids[0] == 0 && ids[5] == 1);
        CHECK(example(&c, a, NULL, 6, ids, &first) == 4 && first == 4);
        codec_close(&c);
    }
}
#endif

/* Every example once, in another order, those of a pool by length */
static void arrangement(const codec *v) {
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
    codec v = bytes_codec();
    text_examples e;
    int32_t ids[32], types[32];
    unsigned char mask[32];
    PUT("ab\tc\nx\ty\n\tlong\n");
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

/* What replaces a file is on the disk before it does; where it does not get there, the old one stays. */
static void labels_synced(const text_labels *l) {
    char folder[] = "/tmp/cmha-text-XXXXXX", file[64], copy[64];
#ifndef _WIN32
    struct stat about;
    synced = 0;
#endif
    if (!CHECK(system_folder(folder))) return;
    snprintf(file, sizeof file, "%s/labels", folder), snprintf(copy, sizeof copy, "%s/copy", folder);
    CHECK(!text_copy_file(folder, copy, error) && one_line() && access(copy, F_OK));
    CHECK(text_labels_save(l, file, error) && text_copy_file(file, copy, error));
#ifndef _WIN32
    CHECK(synced == 2);
    CHECK(stat(copy, &about) == 0);
    const long long before = (long long)about.st_size;
    PUT("others\n"), sync_fails = 1;
    CHECK(!text_copy_file(path, copy, error) && one_line() && strstr(error, "cannot copy "));
    CHECK(stat(copy, &about) == 0 && about.st_size == before);
    CHECK(remove(copy) == 0 && !text_labels_save(l, copy, error) && one_line());
    CHECK(!strncmp(error, "cannot write ", 13) && access(copy, F_OK));
    sync_fails = 0;
#endif
    (void)remove(copy);
    CHECK(remove(file) == 0 && rmdir(folder) == 0); /* nothing is left beside them */
}

/* May this be a value to learn? */
static void number_of(const char *cell, int may) {
    char text[32];
    text_table t;
    double value[2];
    snprintf(text, sizeof text, "1\n%s\n", cell);
    put(text, strlen(text));
    CHECK(load(&t, "1", NULL) && text_values(&t, 0, NULL, "F", value, error) == may);
    CHECK(may || (one_line() && strstr(error, "line 2: ")));
    text_table_close(&t);
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
    number_of("nan", 0), number_of("inf", 0), number_of("-1e999", 0), number_of("-1e99", 1);
    l.n = 4;
    CHECK(!text_values(&t, 0, &l, "F", value, error) && one_line() && strstr(error, "line 3"));
    l.n = 6;
    CHECK(text_labels_save(&l, path, error) && text_labels_load(&again, path, error));
    CHECK(again.n == 6 && is(again.names[2], "10") && is(again.names[3], "") && is(again.names[5], "yes"));
    labels_unsaved(&l), labels_linked(&l), labels_synced(&l);
    text_labels_close(&again), text_labels_close(&again), text_labels_close(&l), text_table_close(&t);
    CHECK(!text_labels_load(&l, "there/is/no/such.file", error) && one_line());
    PUT("no\nyes\nno\n");
    CHECK(!text_labels_load(&l, path, error) && one_line() && strstr(error, "line 3: this class stands"));
    PUT("good\rx\ty\nbad\r\ty\n");
    CHECK(load(&t, "1", NULL) && !text_labels_collect(&l, &t, 0, 6, error));
    CHECK(!strcmp(error, "line 2: a label ends in a carriage return"));
    text_table_close(&t);
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

/* Learns from one text; with `want`, the tokens in their order, one blank between them. *text to be freed */
static text_slice learn(text_slice text, size_t size, const char *want, size_t *count) {
    char *tokens = NULL;
    text_slice v = {NULL, 0};
    size_t i;
    if (!CHECK_THAT(text_learn(&text, 1, size, &tokens, &v.n, error), "%s", error)) exit(1);
    v.at = tokens, *count = 0;
    for (i = 0; i < v.n; i++) *count += tokens[i] == '\n';
    if (!want) return v;
    for (i = 0; i < v.n; i++) tokens[i] = tokens[i] == '\n' ? ' ' : tokens[i];
    CHECK_THAT(v.n == strlen(want) + 1 && !memcmp(tokens, want, v.n - 1), "learnt \"%.*s\", expected \"%s\"",
               (int)v.n, tokens, want);
    for (i = 0; i < v.n; i++) tokens[i] = tokens[i] == ' ' ? '\n' : tokens[i];
    return v;
}

/* The number of a line, or -1 */
static int line_of(text_slice vocabulary, const char *token) {
    const char *at = vocabulary.at, *end = at + vocabulary.n;
    int line = 0;
    for (; at && at < end; line++)
        if (text_same(text_line(&at, end), text_of(token))) return line;
    return -1;
}

/* What a tokenizer of a learnt vocabulary makes of a text */
static void spells(text_slice vocabulary, const char *text, const char *want, int line) {
#ifdef WITH_TOKENIZER
    codec c;
    if (!CHECK_THAT(codec_read(&c, vocabulary.at, vocabulary.n, "learnt", error), "%s", error)) return;
    gives(&c, text_of(text), want, line);
    codec_close(&c);
#else
    (void)vocabulary, (void)text, (void)want, (void)line;
#endif
}

static void learning(void) {
#define SPECIAL "[PAD] [UNK] [CLS] [SEP] [MASK]"
    static char long_words[3 * 250];
    static const char bytes[] = "ok \xff\xfe \xc3 ok\xe2\x82 \x80 naive naive";
    text_slice slice = {bytes, sizeof bytes - 1}, v;
    size_t n;
    v = learn(text_of(""), 100, SPECIAL, &n);
    spells(v, "word", "1", 0), free((char *)v.at);
    v = learn(text_of("The cat, the CAT; a dog."), 100, /* characters by count, words that come twice */
              SPECIAL " ##t t ##a a ##c ##e ##h c e h ##d ##g ##o , . ; d g o cat the", &n);
    spells(v, "The cat, a dog; toga", "25 24 18 8 21 17 16 20 6 17 16 7", 1), free((char *)v.at);
    v = learn(text_of("aa aa bb bb"), 0, SPECIAL " ##a ##b a b", &n); /* characters, whatever the size */
    spells(v, "abba c abc", "7 6 6 5 1 1", 2), free((char *)v.at);
    /* endings of several words, before words */
    v = learn(text_of("going running sing sing sting"), 64, NULL, &n);
    CHECK(line_of(v, "##ing") >= 0 && line_of(v, "sing") > line_of(v, "##ing"));
    CHECK(line_of(v, "sting") < 0 && line_of(v, "##ning") < 0), free((char *)v.at);
    v = learn(slice, 100, NULL, &n); /* what is no UTF-8 is not there */
    CHECK(line_of(v, "ok") >= 0 && line_of(v, "naive") >= 0 && line_of(v, "") < 0), free((char *)v.at);
#ifdef WITH_TOKENIZER /* accents are off, an ideograph is a word */
    v = learn(text_of("na\xc3\xafve na\xc3\xafve \xe4\xb8\xad"), 100, NULL, &n);
    CHECK(line_of(v, "naive") >= 0 && line_of(v, "\xe4\xb8\xad") >= 0 && line_of(v, "##\xe4\xb8\xad") < 0);
    free((char *)v.at);
#endif
    /* of more characters than are looked into: [UNK], not learnt */
    memset(long_words, 'x', sizeof long_words);
    long_words[249] = long_words[499] = ' ';
    slice.at = long_words, slice.n = sizeof long_words;
    v = learn(slice, 100, SPECIAL, &n), free((char *)v.at);
    slice.n = TEXT_WORD; /* the longest word there is */
    v = learn(slice, 100, SPECIAL " ##x x", &n);
    CHECK(n == 7), free((char *)v.at);
}

/* A real text: twice the same, and every word of it is spelled */
static void learning_from_text(void) {
    text_slice text, v, w;
    char *memory;
    size_t bytes, n, m;
    if (!CHECK(text_read("cmha.h", 1 << 24, &memory, &bytes, error))) return;
    text.at = memory, text.n = bytes;
    v = learn(text, 600, NULL, &n), w = learn(text, 600, NULL, &m);
    CHECK(n == 600 && m == n && text_same(v, w));
#ifdef WITH_TOKENIZER
    codec c;
    codec_ids ids = {NULL, 0, 0};
    size_t unknown = 0, words = 0, at = 0;
    text_word word;
    while (text_next_word(text, &at, &word)) words++;
    CHECK(codec_read(&c, v.at, v.n, "learnt", error) && codec_encode(&c, text.at, text.n, 0, &ids, error));
    for (size_t i = 0; i < ids.n; i++) unknown += ids.at[i] == c.unk;
    CHECK_THAT(!unknown && words > 1000 && ids.n < 3 * words, "%zu words, %zu pieces, %zu unknown", words,
               ids.n, unknown);
    codec_ids_free(&ids), codec_close(&c);
#endif
    free((char *)v.at), free((char *)w.at), free(memory);
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

/* ------------------------------------------- passages of files ------------------------------------------ */

/* Appends `n` words, twelve a line. */
static size_t add_words(char *text, size_t at, size_t n) {
    for (size_t i = 0; i < n; i++)
        at += (size_t)sprintf(text + at, "w%zu%s", i, i % 12 == 11 ? "\n" : " ");
    return at + (size_t)sprintf(text + at, "\n \t\n");
}

static size_t words_of(text_slice s) {
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++)
        n += !folder_is_blank(s.at[i]) && (i + 1 == s.n || folder_is_blank(s.at[i + 1]));
    return n;
}

static text_slice passage(const folder_texts *t, size_t p) {
    text_slice s = {t->bytes + t->begin[p], (size_t)(t->begin[p + 1] - t->begin[p])};
    return s;
}

/* Each passage lies in the text, between blanks, where its line begins; all words come once, in order. */
static void cut_right(text_slice text, const folder_texts *t) {
    size_t at = 0, words = 0;
    for (size_t p = 0; p < t->n; p++) {
        text_slice s = passage(t, p);
        size_t line = 1;
        while (at < text.n && folder_is_blank(text.at[at])) at++;
        for (size_t i = 0; i < at; i++) line += text.at[i] == '\n';
        CHECK(s.n && s.n <= text.n - at && !memcmp(text.at + at, s.at, s.n));
        CHECK(t->line[p] == (int64_t)line);
        at += s.n;
        CHECK(at == text.n || folder_is_blank(text.at[at]));
        words += words_of(s);
    }
    CHECK(words == words_of(text));
}

static void cutting(void) {
    static const size_t paragraphs[] = {3, 90, 5, 150, 60, 60, 201, 7, 1000, 30, 199, 1, 40, 40};
    static const size_t expected[] = {98, 150, 120, 101, 100, 7, 200, 200, 200, 200, 200, 30, 199, 81};
    static char room[20000];
    folder_texts t;
    text_slice text = {room, 0}, none = {NULL, 0};
    memset(&t, 0, sizeof t);
    for (size_t i = 0; i < 14; i++) text.n = add_words(room, text.n, paragraphs[i]);
    CHECK(folder_cut(&t, text, error) && t.n == 14);
    for (size_t p = 0; p < t.n; p++) CHECK(words_of(passage(&t, p)) == expected[p]);
    cut_right(text, &t);
    folder_texts_close(&t);
    /* a rest that fits joins the passage before it */
    text.n = add_words(room, add_words(room, 0, 120), 20);
    CHECK(folder_cut(&t, text, error) && t.n == 1 && words_of(passage(&t, 0)) == 140);
    cut_right(text, &t);
    folder_texts_close(&t);
    CHECK(folder_cut(&t, none, error) && folder_cut(&t, text_of(" \n\r\n\t"), error) && t.n == 0);
    CHECK(folder_cut(&t, text_of("\xEF\xBB\xBF\r\none\r\ntwo"), error) && t.n == 1 && t.line[0] == 2);
    CHECK(is(passage(&t, 0), "one\r\ntwo"));
    folder_texts_close(&t);
    /* without blanks, every ideograph is a word */
    for (size_t i = 0; i < 300; i++) memcpy(room + 3 * i, "\xE6\xB5\xB7", 3);
    text.n = 900;
    CHECK(folder_cut(&t, text, error) && t.n == 2 && passage(&t, 0).n == 450 && passage(&t, 1).n == 450);
    folder_texts_close(&t);
}

/* What a base keeps of its files comes back, and nothing else is taken. */
static void lists_of_files(void) {
    static const char *const bad[] = {"1 2 3 4 5 a", "1 2 3 4 5\n", "1 2 3 4 5 \n", "1 2 3 4 6 a\n",
                                      "1 2 3 4 4 a\n", "-1 2 3 4 5 a\n", "1 2x 3 4 5 a\n", "1 2 -3 4 5 a\n",
                                      "1 2 1000000000 4 5 a\n", "1 2 3 4g 5 a\n", "1 2 3 4 5x a\n",
                                      "1 2 3 4 5 a\tb\n", "1 2 3 4 5 \xFF\n", "", "\n",
                                      "1 2 3 4 2 b\n1 2 3 4 3 a\n", "1 2 3 4 2 a\n1 2 3 4 3 a\n",
                                      "1 2 3 4 18446744073709551615 a\n1 2 3 4 6 b\n"};
    const char *good = "7 -2 999999999 00000000000000ab 3 a b.txt\n0 5 0 ffffffffffffffff x c/d.md\n"
                       "9 5 0 0123456789abcdef 2 e.md\n";
    char *lines;
    folder_files f;
    CHECK(folder_parse(&f, good, 5, error) && f.n == 3 && f.files[0].seconds == -2 && f.files[1].foreign);
    CHECK(!strcmp(f.files[0].name, "a b.txt") && f.files[0].hash == 0xab && f.files[2].first == 3);
    CHECK(folder_of(&f, 2) == f.files && folder_of(&f, 3) == f.files + 2 && folder_of(&f, 4) == f.files + 2);
    CHECK(folder_find(&f, "c/d.md") == f.files + 1 && !folder_find(&f, "c") && !folder_find(&f, "z"));
    CHECK(folder_write(&f, &lines, error) && !strcmp(lines, good));
    free(lines), folder_close(&f);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(!folder_parse(&f, bad[i], 5, error) && one_line());
        folder_close(&f);
    }
    CHECK(folder_is_text("a.txt") && folder_is_text("a.b/C.MD") && !folder_is_text("a.txt.gz"));
    CHECK(!folder_is_text("md") && !folder_is_utf8("a\0b", 3, 0) && folder_is_utf8("a\tb", 3, 0));
    CHECK(!folder_is_utf8("a\tb", 3, 1) && !folder_is_utf8("\xC3", 1, 0) && folder_is_utf8("", 0, 1));
}

/* The published values of FNV-1a: files that the programs have written keep such hashes. */
static void hashes(void) {
    const uint64_t begin = UINT64_C(0xcbf29ce484222325);
    CHECK(fingerprint(begin, "", 0) == begin);
    CHECK(fingerprint(begin, "foobar", 6) == UINT64_C(0x85944171f73967e8));
    CHECK(fingerprint(fingerprint(begin, "foo", 3), "bar", 3) == UINT64_C(0x85944171f73967e8));
    CHECK(fingerprint(begin, "\xff", 1) == (begin ^ 255) * UINT64_C(0x100000001b3));
    CHECK(folder_hash(begin, "\xff", 1) == fingerprint(begin, "\xff", 1));
}

int main(void) {
    int file = mkstemp(path);
    if (!CHECK(file >= 0 && close(file) == 0)) return check_end();
    hashes();
    tables();
    odd_tables();
    numbers();
    characters();
    plain_codecs();
#ifdef WITH_TOKENIZER
    identities();
    cases_of("tests/wordpiece_vocab.txt", "tests/wordpiece_cases.txt");
    pairs_of_templates();
#endif
    pairs();
    batches();
    labels();
    weights();
    bags(), learning(), learning_from_text(), bm25(), lists();
    cutting(), lists_of_files();
    CHECK(!strncmp(path, "/tmp/cmha-text-", 15) && !remove(path)); /* which no test has changed */
    return check_end();
}
