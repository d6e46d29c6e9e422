/* Measures generated texts: their perplexity under a judge, how varied and how repetitive they are (--help
   lists everything):
       cc -O3 -march=native -fopenmp -I. examples/tools/score.c -o build/score -lopenblas -lm
       build/score [OPTION...] SAMPLES */
#define CMHA_IMPLEMENTATION
#include "cmha.h"

#define PROGRAM "score"
#include "options.h"
#include "codec.h"
#include "text_metrics.h"

#include <math.h>

enum { JUDGE, HUMAN, SEPARATOR, TOKENIZER, WIDTH, LENGTH, END, PAD, DIST, REP, CONTEXT, THREADS, HELP };
enum { N_OPTIONS = HELP + 1 };
static setting option[N_OPTIONS] = {
    {"--judge", NULL, "a decoder's checkpoint: perplexity and bits a byte under it, and its tokens"},
    {"--human", NULL, "a text of people, cut into as many samples of the same lengths, measured beside"},
    {"--separator", "\\n", "what ends a sample, else a newline; \\n, \\t, \\xNN as in C"},
    {"--tokenizer", NULL, "a tokenizer for the texts, else that of the judge; without either bytes"},
    {"--width", "1", "2 or 4: SAMPLES and the text of people hold ids of that many bytes, little endian"},
    {"--length", "0", "then: ids of a sample"},
    {"--eos", "-1", "the id that ends a sample; -1 = none"},
    {"--pad", "-1", "the id that is none of the text; -1 = none"},
    {"--dist", "ngrams", "ngrams or tokens: what the different n-grams are divided by"},
    {"--rep", "mean", "mean or pooled: Rep-4 of each sample averaged, or of all 4-grams together"},
    {"--context", "0", "most tokens the judge looks back on; 0 = as many as in training"},
    {"--threads", "0", "0 = every core"},
    {"--help", NULL, "this page"}};
static codec words;
static cmha_model judge;
static int judged; /* there is one */

typedef struct samples {
    int32_t *ids;
    size_t *begin, n; /* [n + 1]: sample i is ids[begin[i] .. begin[i + 1]) */
} samples;

typedef struct measures {
    text_metrics variety;
    double nats, scored, bytes; /* of the judge: summed over the tokens that were scored, and their bytes */
} measures;

static size_t whole(int o, uint64_t most) { return (size_t)whole_of(&option[o], 0, most); }

/* An id, or -1 for none */
static int32_t id_of(int o) {
    return strcmp(option[o].value, "-1") ? (int32_t)whole_of(&option[o], 0, INT32_MAX) : -1;
}

static int chosen(int o, const char *first, const char *second) {
    if (strcmp(option[o].value, first) && strcmp(option[o].value, second)) {
        char line[80];
        snprintf(line, sizeof line, "%s is %s or %s, not ", option[o].name, first, second);
        complain(2, line, option[o].value);
    }
    return !strcmp(option[o].value, second);
}

/* Ends the program where an option is given that nothing reads here. */
static void refuse_unread(void) {
    if (whole(WIDTH, 4) > 1) refuse_given(option, 1u << SEPARATOR, " is for texts, not for ids (--width)");
    else refuse_given(option, 1u << LENGTH, " is for ids, which need --width 2 or 4");
    if (!option[JUDGE].value) refuse_given(option, 1u << CONTEXT, " is for a --judge");
}

/* ---- Samples ---- */

static void close_samples(samples *s) {
    free(s->ids), free(s->begin);
    memset(s, 0, sizeof *s);
}

/* A file of text as samples: one after every separator, of lines without the CR of a CRLF. A last one that is
   empty is none. */
static samples read_texts(const char *path, const char *separator, size_t length) {
    char *text;
    size_t bytes, room = 2, at = 0, end;
    samples s = {NULL, NULL, 0};
    codec_ids ids = {NULL, 0, 0};
    int lines = length && !(options_given >> SEPARATOR & 1);
    must(text_read(path, SIZE_MAX / 16, &text, &bytes, failure));
    for (size_t i = 0; length && i < bytes; i++) room += text[i] == *separator;
    s.begin = take(room, sizeof *s.begin);
    for (; at < bytes; at = end + length) {
        for (end = at; end < bytes; end++)
            if (length && bytes - end >= length && !memcmp(text + end, separator, length)) break;
        size_t n = end - at;
        n -= lines && n && text[end - 1] == '\r';
        must(codec_encode(&words, text + at, n, 0, &ids, failure));
        s.begin[++s.n] = ids.n;
    }
    free(text);
    s.ids = ids.at ? ids.at : take(1, sizeof *s.ids);
    return s;
}

/* A file of ids as samples of `length`; what is left over is none, and gets a line. */
static samples read_numbers(const char *path, int width, size_t length) {
    samples s = {NULL, NULL, 0};
    cmha_tokens tokens;
    char line[120];
    check(cmha_tokens_open(&tokens, &ctx, path, width));
    s.n = tokens.count / length;
    size_t over = tokens.count % length;
    snprintf(line, sizeof line, "the last %zu ids are no whole sample and left out of ", over);
    if (!s.n && over) complain(1, "fewer ids than a sample has (see --length) are in ", path);
    if (over) complain(0, line, path);
    s.begin = take(s.n + 1, sizeof *s.begin), s.ids = take(times(s.n, length), sizeof *s.ids);
    for (size_t i = 0; i < s.n * length; i++)
        if ((s.ids[i] = cmha_tokens_at(&tokens, i)) < 0) complain(1, "an id is out of range in ", path);
    for (size_t i = 0; i < s.n; i++) s.begin[i + 1] = (i + 1) * length;
    cmha_tokens_close(&tokens);
    return s;
}

/* Takes out of every sample what is no text. */
static void trim(samples *s, int32_t eos, int32_t pad) {
    size_t at = 0, from = 0;
    for (size_t i = 0; i < s->n; i++) {
        size_t n = s->begin[i + 1] - from;
        at += text_metrics_cut(s->ids + from, n, eos, pad, s->ids + at);
        from = s->begin[i + 1], s->begin[i + 1] = at;
    }
}

/* As many samples of a longer text, each as long as its model in `like`, evenly from its beginning to its
   end. */
static void cut_alike(samples *text, const samples *like, const char *path) {
    size_t all = text->begin[text->n], wanted = like->begin[like->n], spare, at = 0;
    int32_t *ids = take(wanted, sizeof *ids);
    size_t *begin = take(like->n + 1, sizeof *begin);
    if (all < wanted) {
        char line[160];
        snprintf(line, sizeof line, "%zu tokens are needed for as many samples, %zu are in ", wanted, all);
        complain(1, line, path);
    }
    spare = like->n ? (all - wanted) / like->n : 0;
    for (size_t i = 0; i < like->n; i++) {
        size_t n = like->begin[i + 1] - like->begin[i];
        memcpy(ids + like->begin[i], text->ids + at, n * sizeof *ids);
        begin[i + 1] = like->begin[i + 1], at += n + spare;
    }
    close_samples(text);
    text->ids = ids, text->begin = begin, text->n = like->n;
}

/* ---- The judge ---- */

enum { WINDOWS = 16 }; /* sequences of a pass */

/* Adds the loss of the windows laid out so far, [n, width] of which -1 are no targets. */
static void score_windows(measures *m, int32_t *ids, size_t n, size_t width) {
    cmha_batch b = {.ids = ids, .targets = ids + WINDOWS * width, .batch = n, .length = width};
    double mean = 0, counted = 0;
    for (size_t i = 0; i < n * width; i++) counted += b.targets[i] >= 0;
    if (!(counted > 0)) return;
    check(cmha_model_loss(&judge, &b, &mean));
    if (!isfinite(mean)) complain(1, "what the judge says is no number: ", option[JUDGE].value);
    m->nats += mean * counted, m->scored += counted;
}

/* Scores every token after `start`, or where that is -1 every token but the first; of a sample longer than
   `width` each window looks back to its own beginning alone. */
static void score_samples(measures *m, const samples *s, int32_t start, size_t width) {
    int32_t *ids = take(times(2 * WINDOWS, width), sizeof *ids), *targets = ids + WINDOWS * width;
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        const int32_t *x = s->ids + s->begin[i];
        size_t length = s->begin[i + 1] - s->begin[i], shift = start >= 0;
        cmha_tokens view = {.data = x, .count = length, .width = 4};
        if (length > !shift) m->bytes += codec_bytes(&words, &view, !shift, length);
        for (size_t at = 0; at + 1 < length + shift; at += width) {
            for (size_t j = 0; j < width; j++) { /* the sequence is start, if there is one, then x */
                size_t p = at + j;
                int there = p + 1 < length + shift;
                ids[n * width + j] = !there ? x[0] : shift && !p ? start : x[p - shift];
                targets[n * width + j] = there ? x[p + 1 - shift] : -1;
            }
            if (++n == WINDOWS) score_windows(m, ids, n, width), n = 0;
        }
    }
    score_windows(m, ids, n, width);
    free(ids);
}

/* The longest window that is any use: that of the judge, or the longest sample. */
static size_t window_of(const samples *s) {
    size_t most = whole(CONTEXT, SIZE_MAX / 4), longest = 1;
    if (!most) most = trained_length(option[JUDGE].value);
    if (judge.config.position == CMHA_POSITION_LEARNED && most > judge.config.max_positions)
        most = judge.config.max_positions;
    for (size_t i = 0; i < s->n; i++) {
        size_t n = s->begin[i + 1] - s->begin[i];
        longest = n > longest ? n : longest;
    }
    return longest < most ? longest : most;
}

static measures measure(const samples *s) {
    measures m;
    memset(&m, 0, sizeof m);
    if (!text_metrics_count(&m.variety, s->ids, s->begin, s->n, NULL)) complain(1, "no memory", "");
    if (judged) score_samples(&m, s, words.bos >= 0 ? words.bos : words.eos, window_of(s));
    return m;
}

/* ---- The table ---- */

static void print_row(const char *name, const double *value, int columns, int digits) {
    printf("%-22s", name);
    for (int i = 0; i < columns; i++) printf(" %12.*f", digits, value[i]);
    putchar('\n');
}

static void report(const measures *m, int columns, size_t n) {
    int tokens = chosen(DIST, "ngrams", "tokens"), pooled = chosen(REP, "mean", "pooled");
    double row[7][2] = {{0}};
    for (int i = 0; i < columns; i++) {
        row[0][i] = (double)n, row[1][i] = (double)m[i].variety.total[0];
        row[2][i] = exp(m[i].nats / m[i].scored), row[3][i] = m[i].nats / m[i].bytes / log(2.0);
        for (int k = 1; k <= 2; k++) row[3 + k][i] = text_metrics_dist(&m[i].variety, k, tokens);
        row[6][i] = text_metrics_rep4(&m[i].variety, pooled);
    }
    printf("%-22s %12s%s\n", "", "samples", columns > 1 ? "        human" : "");
    print_row("samples", row[0], columns, 0), print_row("tokens", row[1], columns, 0);
    if (judged && m->scored > 0) print_row("perplexity (gen-PPL)", row[2], columns, 3);
    if (judged && m->bytes > 0) print_row("bits a byte", row[3], columns, 4);
    print_row("Dist-1", row[4], columns, 4), print_row("Dist-2", row[5], columns, 4);
    print_row("Rep-4", row[6], columns, 4);
}

/* ---- From start to end ---- */

static int help(void) {
    puts("score [OPTION...] SAMPLES: measures generated texts, one a line\n\n"
         "Perplexity is e to the mean loss of a token, over the tokens of all samples. The judge reads each\n"
         "sample behind its tokenizer's <s> or </s>; where there is none, the first token is not scored.\n"
         "Dist-n: different n-grams by all n-grams; it falls with the amount of text, so compare as many\n"
         "samples of the same length. Rep-4: 4-grams that equal an earlier one of their sample, by all.\n");
    print_options(option, N_OPTIONS, 12, 8);
    return end_help("build/score --judge gpt2.safetensors --human text.txt samples.txt");
}

static samples read_samples(const char *path, int human) {
    size_t width = whole(WIDTH, 4), length = whole(LENGTH, SIZE_MAX / 16);
    if (width > 1) return read_numbers(path, (int)width, human ? 1 : length);
    char *separator = strcpy(take(strlen(option[SEPARATOR].value) + 1, 1), option[SEPARATOR].value);
    size_t n = human ? 0 : unescape(separator);
    samples s = read_texts(path, separator, n);
    free(separator);
    return s;
}

static void open_judge(void) {
    size_t width = whole(WIDTH, 4);
    const char *path = option[JUDGE].value;
    memset(&judge, 0, sizeof judge);
    if (path) open_checkpoint(&judge, path), judged = 1;
    if (judged && (!judge.config.causal || !judge.config.tokens))
        complain(1, path, ": an encoder, or of numbers; it judges no text");
    if (width > 1 && !option[TOKENIZER].value && !judge.config.tokenizer[0]) codec_plain(&words, SIZE_MAX);
    else
        must((!judged || codec_may_be(option[TOKENIZER].value, path, &judge.config, failure)) &&
             codec_open(&words, option[TOKENIZER].value, path, judge.config.tokenizer,
                        judge.config.vocabulary, failure));
}

int main(int argc, char **argv) {
    int n_set = 0;
    start_program(argv);
    const char *path = read_options(option, N_OPTIONS, 1u << HELP, argc, argv, &n_set);
    open_context(&(setting){"--seed", "1", NULL}, &option[THREADS], option[HELP].value != NULL);
    if (option[HELP].value) return help();
    int32_t eos = id_of(END), pad = id_of(PAD);
    size_t width = whole(WIDTH, 4);
    chosen(DIST, "ngrams", "tokens"), chosen(REP, "mean", "pooled");
    if (!path) complain(2, "name a file of samples; see --help", "");
    if (width < 1 || width == 3) complain(2, "--width is 1, 2 or 4", "");
    refuse_unread();
    if (width > 1 && !whole(LENGTH, SIZE_MAX / 16)) complain(2, "--width 2 and 4 need --length", "");
    open_judge();

    samples text[2];
    measures m[2];
    int columns = option[HUMAN].value ? 2 : 1;
    for (int i = 0; i < columns; i++) {
        const char *from = i ? option[HUMAN].value : path;
        text[i] = read_samples(from, i), trim(&text[i], i && width == 1 ? -1 : eos, pad);
        if (!text[i].begin[text[i].n]) complain(1, "there is no text in ", from);
        if (i) cut_alike(&text[1], &text[0], from);
        m[i] = measure(&text[i]);
    }
    report(m, columns, text[0].n);
    for (int i = 0; i < columns; i++) close_samples(&text[i]);
    cmha_model_close(&judge), codec_close(&words), cmha_context_close(&ctx);
    return end_program(0);
}
