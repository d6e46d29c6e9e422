/* Tells what an encoder expects in the place of [MASK] (--help lists everything):
       cc -O3 -march=native -fopenmp -I. examples/tools/fill.c -o build/fill -lopenblas -lm
       build/fill [OPTION...] CHECKPOINT 'Paris is the [MASK] of France.' */
#define CMHA_IMPLEMENTATION
#include "cmha.h"

#define PROGRAM "fill"
#include "options.h"
#include "sentences.h"

enum { TEXT, TOP, TOKENIZER, THREADS, HELP, N_OPTIONS };
static setting option[N_OPTIONS] = {
    {"--text", NULL,
     "the text, wherever it stands, with [MASK] in it, or the tokenizer's own name of that, once or more"},
    {"--top", "5", "how many of the likeliest tokens; 5"},
    {"--tokenizer", NULL,
     "the model's tokenizer; else CHECKPOINT's .tokenizer.json, or tokenizer.json in its folder"},
    {"--threads", "0", "0 = every core"},
    {"--help", NULL, "this page"}};

/* Copies a text without the blank before each [MASK], which a hidden word of a tokenizer has as its own. */
static char *without_blanks(const sentences *s, const char *text) {
    static const char *const masks[2] = {" [MASK]", " <mask>"};
    char *copy = take(strlen(text) + 1, 1), *to = copy;
    for (; *text; *to++ = *text++)
        for (int i = 0; i < 2; i++)
            if (s->words.kind == CODEC_TOKENIZER && !strncmp(text, masks[i], 7)) text++;
    return copy;
}

/* Appends [CLS] text [SEP]. The tokenizer may know [MASK]; if not it is cut out of the text here. */
static void read_text(const sentences *s, const char *text, codec_ids *ids) {
    int32_t mask = s->words.mask;
    text_slice all = text_of(text);
    size_t first;
    must(text_example(&s->words, &all, NULL, (size_t)1 << 30, ids, &first, failure));
    for (size_t i = 0; i < ids->n; i++) {
        if (ids->at[i] != mask) continue;
        if (ids->n > s->length) complain(1, "the text has more tokens than the model's sentences", "");
        return;
    }
    ids->n = 0;
    must(codec_append(ids, &s->words.cls, 1, failure));
    for (const char *hit; (hit = strstr(text, "[MASK]")) != NULL; text = hit + 6)
        must(codec_encode(&s->words, text, (size_t)(hit - text), 0, ids, failure) &&
             codec_append(ids, &mask, 1, failure));
    must(codec_encode(&s->words, text, strlen(text), 0, ids, failure) &&
         codec_append(ids, &s->words.sep, 1, failure));
    if (ids->n > s->length) complain(1, "the text has more tokens than the model's sentences", "");
}

/* Prints the `top` likeliest tokens of logits [V], which it changes, with their probabilities, for [MASK]
   number n. */
static void tell(const sentences *s, int n, cmha_real *logits, size_t V, size_t top) {
    double most = -INFINITY, sum = 0;
    for (size_t v = 0; v < V; v++) most = fmax(most, (double)logits[v]);
    for (size_t v = 0; v < V; v++) sum += exp((double)logits[v] - most);
    if (!isfinite(sum)) complain(1, "what the model says is no number", "");
    printf("[MASK] %d\n", n);
    while (top--) {
        codec_text shown;
        size_t best = 0;
        memset(&shown, 0, sizeof shown), shown.special = 1;
        for (size_t v = 1; v < V; v++) best = logits[v] > logits[best] ? v : best;
        printf("  %.4f  ", exp((double)logits[best] - most) / sum);
        if (best < s->words.size) codec_show(&s->words, &shown, (int32_t)best);
        codec_show_end(&s->words, &shown);
        putchar('\n');
        logits[best] = (cmha_real)-INFINITY;
    }
}

static int help(void) {
    puts("fill [OPTION...] CHECKPOINT TEXT: the likeliest tokens in the place of each [MASK] of a text, by\n"
         "an encoder\n");
    print_options(option, N_OPTIONS, 16, 0);
    return end_help("build/fill bert.safetensors 'Paris is the [MASK] of France.'");
}

int main(int argc, char **argv) {
    int n_set = 0, n = 0;
    sentences s;
    codec_ids ids = {NULL, 0, 0};
    cmha_batch b;
    start_program(argv);
    const char *bare = take_second(option, N_OPTIONS, 1u << HELP, &argc, argv);
    const char *path = read_options(option, N_OPTIONS, 1u << HELP, argc, argv, &n_set);
    if (bare && option[TEXT].value) complain(2, "one text is enough, what is ", bare);
    if (bare) option[TEXT].value = bare;
    open_context(&(setting){"--seed", "1", NULL}, &option[THREADS], option[HELP].value != NULL);
    if (option[HELP].value) return help();
    if (!path || !option[TEXT].value) complain(2, "see --help; a checkpoint or a text is missing", "");
    sentences_open(&s, path, option[TOKENIZER].value);
    if (s.model.config.causal) complain(1, path, ": no encoder; it continues texts (build/generate)");
    size_t V = s.model.config.vocabulary, top = (size_t)whole_of(&option[TOP], 1, V);
    memset(&b, 0, sizeof b);
    char *text = without_blanks(&s, option[TEXT].value);
    read_text(&s, text, &ids);
    b.ids = ids.at, b.batch = 1, b.length = ids.n;
    cmha_real *logits = take(times(ids.n, V), sizeof *logits);
    check(cmha_model_logits(&s.model, &b, logits));
    for (size_t i = 0; i < ids.n; i++) {
        if (ids.at[i] != s.words.mask) continue;
        tell(&s, ++n, logits + i * V, V, top);
    }
    if (!n) complain(2, "there is no [MASK] in ", option[TEXT].value);
    free(text), free(logits), codec_ids_free(&ids), sentences_close(&s), cmha_context_close(&ctx);
    return end_program(0);
}
