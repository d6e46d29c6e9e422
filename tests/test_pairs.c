/* Pairs of prompt and answer: files of them, templates, what is learned of a pair, the order of an epoch. */
#include "check.h"

#include <unistd.h>

static int sync_fails; /* a disk that fails */
#define fsync(file) (sync_fails ? -1 : (fsync)(file))

#include "../examples/tools/pairs.h"

static char error[TEXT_ERROR];

static int is(text_slice s, const char *want) { return text_same(s, text_of(want)); }

static int parse(pairs_file *f, const char *text) {
    char *copy = (char *)malloc(strlen(text) + 1);
    *error = 0;
    memcpy(copy, text, strlen(text));
    return pairs_file_parse(f, copy, strlen(text), "FILE", error);
}

static int fails(const char *text, const char *line) {
    pairs_file f;
    int failed = !parse(&f, text) && !f.text && !f.prompt && !f.answer;
    if (!CHECK_THAT(failed && !strcmp(error, line), "%s: %s", text, error)) pairs_file_close(&f);
    return failed;
}

static void tables(void) {
    pairs_file f;
    CHECK(parse(&f, "one\ttwo\r\nthree\t\n\tfour\tmore\n"));
    CHECK(f.n == 3 && is(f.prompt[0], "one") && is(f.answer[0], "two") && is(f.answer[1], ""));
    CHECK(is(f.prompt[2], "") && is(f.answer[2], "four"));
    pairs_file_close(&f), pairs_file_close(&f);
    CHECK(parse(&f, "\xEF\xBB\xBFid\tanswer\tprompt\n1\tb\ta\nshort\n"));
    CHECK(f.n == 1 && is(f.prompt[0], "a") && is(f.answer[0], "b"));
    CHECK(f.skipped == 1 && f.first_skipped == 3);
    pairs_file_close(&f);
    fails("", "there are no pairs in FILE");
    fails(" \n\n", "there are no pairs in FILE");
    fails("prompt\tanswer\n", "there are no pairs in FILE");
    fails("a b\n", "FILE: line 1 has not 2 columns; tabs part columns, and it has none, but blanks");
}

static void objects(void) {
    static const char *const wrong[] = {"{\"prompt\":\"a\"}",
                                        "{\"prompt\":\"a\",\"answer\":1}",
                                        "{\"prompt\":\"a\",\"answer\":\"b\"",
                                        "{\"prompt\":\"a\",\"answer\":\"b\"} x",
                                        "{\"prompt\":\"a\",\"answer\":\"b\",}",
                                        "{\"prompt\":\"a\",\"prompt\":\"c\",\"answer\":\"b\"}",
                                        "{\"prompt\":\"\\u0000\",\"answer\":\"b\"}",
                                        "{\"prompt\":\"\\ud83d\",\"answer\":\"b\"}",
                                        "{\"prompt\":\"\\ude00\",\"answer\":\"b\"}",
                                        "{\"prompt\":\"\\u12g4\",\"answer\":\"b\"}",
                                        "{\"prompt\":\"\\x\",\"answer\":\"b\"}",
                                        "{\"prompt\":\"a\\",
                                        "{\"prompt\":\"a\",\"x\":[[1,{\"y\":2},\"answer\":\"b\"}",
                                        "{\"prompt\":\"a\",\"x\":],\"answer\":\"b\"}",
                                        "{\"prompt\":\"a\",\"x\":,\"answer\":\"b\"}",
                                        "{}",
                                        "{"};
    pairs_file f;
    CHECK(parse(&f, "\n {\"prompt\": \"a\\n\\\"\\u00e9\\ud83d\\ude00\\/\", \"answer\": \"b\"}\r\n\n"
                    "{\"id\":[1,{\"a\":[true,null]},\"x,]\"],\"answer\":\"\",\"prompt\":\"c\","
                    "\"no\":-1.5e3}"));
    CHECK(f.n == 2 && is(f.prompt[0], "a\n\"\xC3\xA9\xF0\x9F\x98\x80/") && is(f.answer[0], "b"));
    CHECK(is(f.prompt[1], "c") && is(f.answer[1], "") && !strcmp(f.unread, "id"));
    pairs_file_close(&f);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        fails(wrong[i], "FILE, line 1: not {\"prompt\": \"..\", \"answer\": \"..\"}");
    fails("{\"prompt\":\"a\",\"answer\":\"b\"}\n[]\n",
          "FILE, line 2: not {\"prompt\": \"..\", \"answer\": \"..\"}");
}

static int template_of(pairs_template *t, const char *text, int learns) {
    return pairs_template_read(t, text, strlen(text), learns, error);
}

static void templates(void) {
    static const char *const wrong[] = {"", "{prompt}", "{answer}", "{answer}{prompt}",
                                        "{prompt}{prompt}{answer}", "{prompt}{answer}{answer}",
                                        "{answer}{prompt}{answer}", "{prompt {answer}"};
    pairs_template t;
    CHECK(template_of(&t, "Q: {prompt}\nA: {answer}.", 1));
    CHECK(is(t.front, "Q: ") && is(t.middle, "\nA: ") && is(t.rest, "."));
    pairs_template_close(&t), pairs_template_close(&t);
    CHECK(template_of(&t, "{prompt}{answer}", 1) && !t.front.n && !t.middle.n && !t.rest.n);
    pairs_template_close(&t);
    CHECK(template_of(&t, "a{prompt}b", 0) && is(t.front, "a") && is(t.middle, "b") && !t.rest.n);
    pairs_template_close(&t);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK_THAT(!template_of(&t, wrong[i], 1) && !t.text, "%s", wrong[i]);
}

/* The template that was kept beside a checkpoint is the same; without one it goes. */
static void kept(void) {
    char folder[] = "/tmp/cmha-pairs-XXXXXX", path[100], file[100];
    pairs_template t, again, none;
    memset(&none, 0, sizeof none);
    if (!CHECK(mkdtemp(folder) != NULL)) return;
    snprintf(path, sizeof path, "%s/m.safetensors", folder);
    snprintf(file, sizeof file, "%s/m.template", folder);
    CHECK(pairs_template_find(&again, path, error) && !again.text);
    CHECK(template_of(&t, "\\{prompt}\n\x01{answer}\n", 1) && pairs_template_save(&t, path, error));
    CHECK(pairs_template_find(&again, path, error) && is(again.front, "\\") && is(again.middle, "\n\x01"));
    CHECK(is(again.rest, "\n"));
    pairs_template_close(&again), pairs_template_close(&t);
#ifndef _WIN32
    sync_fails = 1;
    CHECK(template_of(&t, "{prompt}{answer}", 1) && !pairs_template_save(&t, path, error));
    CHECK(!strncmp(error, "cannot write ", 13) && pairs_template_find(&again, path, error));
    CHECK(is(again.front, "\\")); /* the old one */
    pairs_template_close(&again), pairs_template_close(&t), sync_fails = 0;
#endif
    CHECK(pairs_template_save(&none, path, error) && access(file, F_OK));
    CHECK(pairs_template_save(&none, path, error)); /* nothing to remove */
    CHECK(!rmdir(folder));
    CHECK(template_of(&t, "{prompt}{answer}", 1) && !pairs_template_save(&t, path, error));
    pairs_template_close(&t);
}

/* What a row learns: the answer and its end, whatever the length. */
static void rows(void) {
    pairs_file f;
    pairs_template t;
    pairs p;
    codec words;
    int32_t ids[12], targets[12];
    unsigned char mask[12];
    codec_plain(&words, 256);
    CHECK(template_of(&t, "<{prompt}={answer}>", 1) && parse(&f, "ab\tcd\nx\t\n"));
    CHECK(pairs_encode(&p, &words, &t, &f, 100, error) && p.n == 2 && p.longest == 8 && !p.cut);
    CHECK(p.ids.n == 13 && !memcmp(&p.start[1], &(size_t){8}, sizeof(size_t)));
    pairs_row(&p, 0, 12, ids, targets, mask);
    static const int want[12] = {'<', 'a', 'b', '=', 'c', 'd', '>'}, aim[12] = {-1, -1, -1, 'c', 'd', '>', 0};
    for (int i = 0; i < 12; i++) {
        CHECK(mask[i] == (i < 7) && ids[i] == want[i]);
        CHECK(targets[i] == (i < 7 ? aim[i] : -1));
    }
    pairs_row(&p, 1, 4, ids, targets, mask);
    CHECK(ids[3] == '>' && targets[1] == -1 && targets[2] == '>' && targets[3] == 0 && mask[3]);
    pairs_close(&p), pairs_close(&p);

    /* one that is too long loses the prompt's first tokens, then the answer's last */
    CHECK(pairs_encode(&p, &words, &t, &f, 5, error) && p.cut == 1 && p.longest == 6);
    CHECK(p.ids.at[0] == 'b' && p.ids.at[1] == '=' && p.ids.at[5] == 0 && p.answer[0] == 2);
    pairs_close(&p);
    CHECK(pairs_encode(&p, &words, &t, &f, 2, error) && p.cut == 2 && p.longest == 3 && p.start[1] == 3);
    CHECK(p.ids.at[0] == '=' && p.ids.at[1] == 'c' && p.ids.at[2] == 'd' && p.answer[0] == 1);
    CHECK(p.answer[1] == 4 && p.ids.at[4] == '>' && p.ids.at[5] == 0);
    pairs_close(&p), pairs_file_close(&f), pairs_template_close(&t);

    CHECK(template_of(&t, "{prompt}{answer}", 1) && parse(&f, "a\tb\n\tc\n"));
    CHECK(!pairs_encode(&p, &words, &t, &f, 100, error) && !p.start && !p.ids.at);
    CHECK(!strcmp(error, "pair 2: nothing stands before the answer"));
    pairs_file_close(&f);
    CHECK(parse(&f, "a\tb\nc\td\n"));
    f.answer[0].n = 1, ((char *)f.text)[2] = 0;
    CHECK(!pairs_encode(&p, &words, &t, &f, 100, error));
    CHECK(!strcmp(error, "pair 1: it has a zero byte, which ends answers"));
    words.kind = CODEC_TOKENIZER, words.kind = CODEC_NUMBERS;
    CHECK(!pairs_encode(&p, &words, &t, &f, 100, error));
    pairs_file_close(&f), pairs_template_close(&t);
}

/* An epoch takes each pair once; another takes them otherwise; and any can be asked for at any time. */
static void epochs(void) {
    enum { N = 40 };
    pairs p;
    size_t first[2 * N], order[N];
    int seen[2][N] = {{0}}, differ = 0;
    memset(&p, 0, sizeof p), p.order = order;
    for (size_t i = 0; i < 2 * N; i++) first[i] = pairs_drawn(&p, N, i, 7), seen[i / N][first[i]]++;
    for (size_t i = 0; i < N; i++) {
        CHECK(seen[0][i] == 1 && seen[1][i] == 1);
        differ += first[i] != first[N + i];
    }
    CHECK(differ > N / 2);
    for (size_t i = 2 * N; i > 13; i -= 13) CHECK(pairs_drawn(&p, N, i - 1, 7) == first[i - 1]);
    CHECK(pairs_drawn(&p, 1, 5, 7) == 0);
}

int main(void) {
    tables();
    objects();
    templates();
    kept();
    rows();
    epochs();
    return check_end();
}
