/* Continues a prompt with a trained model (--help lists everything):
       cc -O3 -march=native -fopenmp -I. examples/tools/generate.c -o build/generate -lopenblas -lm
       build/generate [OPTION...] CHECKPOINT */
#define CMHA_IMPLEMENTATION
#include "cmha.h"

#define PROGRAM "generate"
#include "options.h"
#include "pairs.h"

#include <math.h>

enum { PROMPT, TEMPLATE, TOKENS, CONTEXT, BATCH, SEPARATOR, TOKENIZER, SPECIAL, ENDLESS, SEED, WEIGHTS,
       CACHE, SCORE, PACK, ROUND, ADAPTER, MERGE, THREADS, VERBOSE, HELP, SET };
enum { N_OPTIONS = SET + 1 };
static setting option[N_OPTIONS] = {
    {"--prompt", NULL,
     "begins the text, and is shown before it; \\n, \\t, \\xNN as in C; - reads the standard input.\n"
     "                   Else <s>, </s> or a newline begins. Of a model without tokenizer whose vocabulary\n"
     "                   is not 256 bytes: the numbers of its tokens"},
    {"--template", NULL,
     "the text around the prompt, as in 'Q: {prompt}\\nA: '; else CHECKPOINT's .template, which\n"
     "                   train_tiny --pairs keeps. {prompt} alone: nothing around it"},
    {"--tokens", "400", "how many to add; 400"},
    {"--context", "0",
     "most tokens the model looks back on; 0 = as many as in training. Older ones go, a quarter\n"
     "                   at a time"},
    {"--batch", "1", "that many continuations at once, each shown when all are complete; 1"},
    {"--separator", NULL,
     "ends each continuation instead of a newline; no prompt and no heading then: samples for score"},
    {"--tokenizer", NULL,
     "the model's tokenizer; else CHECKPOINT's .tokenizer.json, or tokenizer.json in its folder"},
    {"--special", "prompt",
     "prompt: the prompt gets the tokenizer's special tokens; all: they are shown, too; none; prompt"},
    {"--endless", NULL, "do not stop at the tokenizer's end of text"},
    {"--seed", "1", "of the draws; 1"},
    {"--weights", "f32",
     "f32, bf16, int8, int4 or q4_k: how matrices are held; f32, or as a packed checkpoint is"},
    {"--cache", "f32", "f32 or bf16: how keys and values are held; f32"},
    {"--score", NULL,
     "instead of continuing: mean loss in nats per token, perplexity and bits per byte of the\n"
     "                   text's first N tokens (--tokens), each read from the cache by itself, with nothing\n"
     "                   before the first of every --context of them; - reads the standard input. Without a\n"
     "                   tokenizer the file holds bytes or, above a vocabulary of 256, numbers of 2 bytes,\n"
     "                   above 65,536 of 4"},
    {"--pack", "",
     "bf16, int8, int4 or q4_k, then a file: saves the checkpoint packed there instead of continuing"},
    {"--round", NULL,
     "rounds what matrices of 8 and 4 bits multiply to 16 bits a number: faster, and off by\n"
     "                   2^-16 of a row's largest number"},
    {"--adapter", NULL,
     "what a fine-tuning of CHECKPOINT saved apart: adapters (train_tiny --lora), which are read\n"
     "                   onto it"},
    {"--merge", NULL, "a file: saves CHECKPOINT with what --adapter brings merged into its weights there"},
    {"--threads", "0", "0 = every core"},
    {"--verbose", NULL, "speed, on the standard error stream"},
    {"--help", NULL, "this page"},
    {"--set", NULL, "NAME=VALUE for any field of the sampler below; may be repeated"}};
static cmha_sampler_config sampler;
static const char *packed_path; /* the second value of --pack */

static codec words;
static pairs_template shape; /* around the prompt; with one an answer has its own end */
enum { SPECIAL_PROMPT, SPECIAL_ALL, SPECIAL_NONE };

/* What the callback needs to show tokens as they come. */
typedef struct output {
    codec_text text;
    size_t batch, n, ended; /* n: tokens so far of each sequence; ended: sequences that met the end of text */
    int32_t *kept;          /* [n, batch], of a batch, which is shown when it is complete; NULL for one */
    unsigned char *over;    /* [batch]: the sequence has ended */
    double first, last;     /* when the first and the last token came */
} output;

static size_t whole(int o) { return (size_t)whole_of(&option[o], 0, SIZE_MAX); }

/* What --special says */
static int special(void) {
    static const char *const names[] = {"prompt", "all", "none"}; /* in the order of the enumeration */
    for (int i = 0; i <= SPECIAL_NONE; i++)
        if (!strcmp(option[SPECIAL].value, names[i])) return i;
    complain(2, "--special is prompt, all or none, not ", option[SPECIAL].value);
    return 0;
}

static int ends(int32_t token) {
    int32_t end = shape.text ? pairs_end(&words) : words.eos;
    return end >= 0 && token == end && !option[ENDLESS].value;
}

/* Shows tokens of one sequence, `step` apart, up to the end of text. */
static void show(output *o, const int32_t *tokens, size_t n, size_t step) {
    for (size_t i = 0; i < n && !ends(tokens[i * step]); i++) codec_show(&words, &o->text, tokens[i * step]);
}

static void show_end(output *o) {
    static char newline[] = "\n";
    codec_show_end(&words, &o->text);
    const char *given = option[SEPARATOR].value;
    char *separator = given ? strcpy(take(strlen(given) + 1, 1), given) : newline;
    fwrite(separator, 1, given ? unescape(separator) : 1, stdout);
    if (given) free(separator);
}

static int on_token(void *user, const int32_t *tokens, size_t batch) {
    output *o = user;
    o->last = seconds();
    if (!o->n) o->first = o->last;
    o->n++;
    for (size_t b = 0; b < batch; b++)
        if (!o->over[b] && ends(tokens[b])) o->over[b] = 1, o->ended++;
    if (o->kept) memcpy(o->kept + (o->n - 1) * batch, tokens, batch * sizeof *tokens);
    else show(o, tokens, 1, 1), fflush(stdout), line_open = isatty(1);
    return ferror(stdout) || o->ended == batch; /* whoever read the text has gone, or there is no more */
}

/* f32, bf16 or, where `most` allows it, int8, int4 and q4_k. */
static cmha_storage storage_of(const char *name, int most) {
    static const char *const names[] = {"f32", "bf16", "int8", "int4", "q4_k"}; /* as cmha_storage */
    for (int i = 0; i <= most; i++)
        if (!strcmp(name, names[i])) return (cmha_storage)i;
    complain(2, most > 1 ? "weights are f32, bf16, int8, int4 or q4_k, not " : "a cache is f32 or bf16, not ",
             name);
    return CMHA_STORAGE_FLOAT;
}

/* Nats a token of logits [V] gives to one token. */
static double loss_of(const cmha_real *logits, size_t V, int32_t target) {
    const cmha_cross_entropy_args one = {1, V, &target, -1};
    return cmha_cross_entropy_forward(&one, logits, NULL, NULL);
}

/* The tokens of a file: of a text what the tokenizer makes of it, in *ids. */
static cmha_tokens open_tokens(const char *path, codec_ids *ids) {
    size_t V = words.size, bytes;
    cmha_tokens tokens = {0};
    int standard = !strcmp(path, "-");
    if (standard && words.kind == CODEC_NUMBERS)
        complain(2, "--score: this model's tokens are numbers, which are read from a file, not from ", path);
    if (!standard && words.kind != CODEC_TOKENIZER) {
        check(cmha_tokens_open(&tokens, &ctx, path, V <= 256 ? 1 : V <= 65536 ? 2 : 4));
        return tokens;
    }
    char *text;
    must(text_read(path, SIZE_MAX / 16, &text, &bytes, failure));
    must(codec_encode(&words, text, bytes, special() != SPECIAL_NONE, ids, failure));
    tokens.data = ids->at, tokens.count = ids->n, tokens.width = 4;
    free(text);
    return tokens;
}

/* Reads tokens one by one through a cache of `window` of them or of all, which begins anew when it is full,
   and adds up what the next one costs. */
static void score(cmha_model *model, const char *path, size_t most, size_t window,
                  const cmha_cache_options *options) {
    size_t V = model->config.vocabulary, n, i;
    cmha_real *logits = take(V, sizeof *logits);
    codec_ids ids = {NULL, 0, 0};
    cmha_tokens tokens = open_tokens(path, &ids);
    cmha_cache cache;
    double sum = 0, start;
    n = tokens.count < most ? tokens.count : most;
    if (n < 2) complain(1, "fewer than two tokens in ", path);
    if (window > n) window = n;
    check(cmha_cache_init(&cache, model, 1, window, 0, options));
    start = seconds();
    for (i = 0; i + 1 < n; i++) {
        int32_t token = cmha_tokens_at(&tokens, i), next = cmha_tokens_at(&tokens, i + 1);
        if (i % cache.capacity == 0) cmha_cache_reset(&cache);
        check(cmha_cache_append(&cache, &token, 1, logits));
        if (next < 0 || (size_t)next >= V) complain(1, "a token is outside the vocabulary in ", path);
        sum += loss_of(logits, V, next);
    }
    double mean = sum / (double)(n - 1), bytes = codec_bytes(&words, &tokens, 1, n);
    if (!isfinite(mean)) complain(1, "what the model says is no number, of ", path);
    printf("%.5f nats per token, perplexity %.3f, ", mean, exp(mean));
    if (bytes > 0) printf("%.5f bits per byte, ", sum / log(2.0) / bytes);
    printf("%zu tokens, %.0f tokens/s\n", n - 1, (double)(n - 1) / (seconds() - start));
    cmha_cache_close(&cache), cmha_tokens_close(&tokens), codec_ids_free(&ids);
    free(logits);
}

/* All of the standard input. */
static char *slurp(size_t *length) {
    size_t size = 0, room = 4096;
    char *text = take(room, 1);
    for (size_t n; (n = fread(text + size, 1, room - 1 - size, stdin)) > 0;) {
        size += n;
        if (size + 1 < room) continue;
        text = text_memory(text, room, 2, 1), room *= 2;
        if (!text) complain(1, "no memory for the prompt", "");
    }
    if (ferror(stdin)) complain(1, "cannot read the standard input", "");
    text[*length = size] = 0;
    return text;
}

static int help(void) {
    puts("generate [OPTION...] CHECKPOINT: continues a prompt with a model that was saved\n\n"
         "Tokens that are bytes are printed as they are, those of a tokenizer as text, others as numbers;\n"
         "each text ends with a newline.\n"
         "On a terminal control characters and bytes that are no UTF-8 show as \\xNN.\n");
    print_options(option, N_OPTIONS, 16, 0);
    print_fields("Sampler", cmha_sampler_table(), &sampler);
    return end_help("build/generate --prompt 'Once upon a time' --tokens 100 tiny.safetensors");
}

/* Takes the second value of --pack out of the command line. */
static int take_packed_path(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        int at = i + (argv[i][0] && argv[i][strcspn(argv[i], "=")] ? 1 : 2);
        if (strncmp(argv[i], "--pack", 6) || (argv[i][6] && argv[i][6] != '=') || at >= argc) continue;
        packed_path = argv[at];
        memmove(argv + at, argv + at + 1, (size_t)(argc - at) * sizeof *argv);
        return argc - 1;
    }
    return argc;
}

/* Reads the command line and opens the context; returns the path of the checkpoint. */
static const char *configure(int argc, char **argv) {
    int n_set = 0;
    argc = take_packed_path(argc, argv);
    const uint32_t flags = 1u << ENDLESS | 1u << ROUND | 1u << VERBOSE | 1u << HELP;
    const char *path = read_options(option, N_OPTIONS, flags, argc, argv, &n_set);
    settable all = {cmha_sampler_table(), &sampler};
    special(), whole(TOKENS), whole(CONTEXT), whole_of(&option[BATCH], 1, 65536);
    open_context(&option[SEED], &option[THREADS], option[HELP].value != NULL);
    cmha_config_defaults(cmha_sampler_table(), &sampler);
    for (int i = 1; i <= n_set; i++) set_field(&all, 1, argv[i], cut_value(argv[i]));
    return path;
}

/* Ends the program where an option is given that what it is called for does not read. */
static void refuse_unread(void) {
    const uint64_t drawing = 1u << PROMPT | 1u << TEMPLATE | 1u << BATCH | 1u << SEPARATOR | 1u << ENDLESS |
                             1u << SEED | 1u << SET;
    const uint64_t running = drawing | 1u << TOKENS | 1u << CONTEXT | 1u << SPECIAL | 1u << WEIGHTS |
                             1u << CACHE | 1u << SCORE | 1u << ROUND;
    if (*option[PACK].value) refuse_given(option, running, " is for a model that runs, not for --pack");
    if (option[MERGE].value) refuse_given(option, running, " is for a model that runs, not for --merge");
    if (option[SCORE].value) refuse_given(option, drawing, " is for continuing a text, not for --score");
    if (!option[PROMPT].value) refuse_given(option, 1u << TEMPLATE, " is for a --prompt, and here is none");
}

/* Puts a prompt into the template, without the line end that the standard input has behind it. */
static int ask(const char *text, size_t n, codec_ids *ids) {
    text_slice prompt = {text, n};
    if (!strcmp(option[PROMPT].value, "-") && n && text[n - 1] == '\n')
        prompt.n -= n > 1 && text[n - 2] == '\r' ? 2 : 1;
    return pairs_ask(&words, &shape, prompt, special() != SPECIAL_NONE, ids, failure);
}

/* Opens the template of the command line, or the one beside the checkpoint at `path`. */
static void open_template(const char *path) {
    const char *given = option[TEMPLATE].value;
    if (given) {
        char *text = strcpy(take(strlen(given) + 1, 1), given);
        if (!pairs_template_read(&shape, text, unescape(text), 0, failure)) complain(2, failure, "");
        free(text);
    } else must(pairs_template_find(&shape, path, failure));
    if (shape.text && words.kind == CODEC_NUMBERS && given)
        complain(2, "--template: this model's prompt is a list of token numbers", "");
    if (shape.text && words.kind == CODEC_NUMBERS) pairs_template_close(&shape);
}

/* The prompt as tokens. Where none is given, what begins a text. */
static codec_ids read_prompt(void) {
    static char newline[] = "\n";
    const char *given = option[PROMPT].value;
    int32_t begin = special() == SPECIAL_NONE ? -1 : words.bos >= 0 ? words.bos : words.eos;
    codec_ids ids = {NULL, 0, 0};
    char *text = newline;
    size_t length = 1;
    if (!given && words.kind == CODEC_NUMBERS)
        complain(2, "this model's prompt is a list of token numbers: give one with --prompt", "");
    if (given && !strcmp(given, "-")) text = slurp(&length);
    else if (given) text = strcpy(take(strlen(given) + 1, 1), given), length = unescape(text);
    if (given && shape.text) must(ask(text, length, &ids));
    else if (!given && begin >= 0) must(codec_append(&ids, &begin, 1, failure));
    else must(codec_encode(&words, text, length, special() != SPECIAL_NONE, &ids, failure));
    while (ids.n > 1 && (ids.at[ids.n - 1] == words.eos || ids.at[ids.n - 1] == words.sep)) ids.n--;
    if (text != newline) free(text);
    if (!ids.n) complain(2, "the prompt is empty", "");
    return ids;
}

/* Shows a text of tokens [n], `step` apart, behind its prompt. */
static void show_text(output *o, const codec_ids *prompt, const int32_t *tokens, size_t n, size_t step) {
    o->text.mute = !option[PROMPT].value || option[SEPARATOR].value;
    for (size_t i = 0; i < prompt->n; i++) codec_show(&words, &o->text, prompt->at[i]);
    o->text.mute = 0;
    show(o, tokens, n, step);
}

/* Continues the prompt, looking back on `capacity` tokens. */
static void continue_prompt(cmha_model *model, size_t capacity, const cmha_cache_options *options) {
    size_t batch = whole(BATCH), n_new = whole(TOKENS), most;
    int slide = model->config.position != CMHA_POSITION_LEARNED; /* else positions end somewhere */
    output out = {.batch = batch, .over = take(batch, 1)};
    char line[120];
    cmha_cache cache;
    codec_ids prompt = read_prompt();
    int32_t *ids = prompt.at, *prompts;
    size_t n_prompt = prompt.n;
    out.text.special = special() == SPECIAL_ALL;
    if (!slide && capacity > model->config.max_positions) capacity = model->config.max_positions;
    if (slide ? n_prompt > capacity : n_prompt >= capacity) {
        most = slide ? capacity : capacity / 2 + 1; /* without sliding what is new needs room as well */
        fprintf(stderr, "generate: of the prompt's %zu tokens the last %zu are used (see --context)\n",
                n_prompt, most);
        ids += n_prompt - most, n_prompt = most;
    }
    if (!slide && n_new > capacity - n_prompt) {
        n_new = capacity - n_prompt;
        snprintf(line, sizeof line, "only %zu tokens are added: there are positions for %zu", n_new,
                 capacity);
        complain(0, line, capacity < model->config.max_positions ? " (see --context)" : "");
    }
    if (capacity - n_prompt > n_new) capacity = n_prompt + n_new;
    prompts = take(times(batch, n_prompt), sizeof *prompts);
    if (batch > 1 || option[SEPARATOR].value) out.kept = take(times(n_new, batch), sizeof *out.kept);
    for (size_t b = 0; b < batch; b++) memcpy(prompts + b * n_prompt, ids, n_prompt * sizeof *ids);
    check(cmha_cache_init(&cache, model, batch, capacity, slide, options));

    double start = seconds();
    if (!out.kept) show_text(&out, &prompt, NULL, 0, 1), fflush(stdout);
    cmha_status status =
        cmha_generate(&cache, prompts, n_prompt, n_new, &sampler, ctx.config.seed, on_token, &out);
    if (status != CMHA_STOPPED) check(status);
    for (size_t b = 0; out.kept && b < batch; b++) {
        if (!option[SEPARATOR].value) printf("--- %zu ---\n", b + 1);
        show_text(&out, &prompt, out.kept + b, out.n, batch), show_end(&out);
    }
    if (!out.kept) show_end(&out);
    fflush(stdout), line_open = 0;
    if (option[VERBOSE].value && out.n > 1)
        fprintf(stderr, "generate: prompt of %zu tokens in %.0f ms, then %.0f tokens/s\n", n_prompt,
                1e3 * (out.first - start), (double)(out.n - 1) * (double)batch / (out.last - out.first));
    cmha_cache_close(&cache);
    free(out.kept), free(out.over), free(prompts), codec_ids_free(&prompt);
}

/* Ends the program where a file is no part of a model: a whole one would take the place of the checkpoint. */
static void refuse_whole(const char *path) {
    cmha_archive file;
    check(cmha_archive_open(&file, &ctx, path));
    int part = cmha_archive_metadata(&file, "part") != NULL;
    cmha_archive_close(&file);
    if (!part) complain(1, path, ": a whole model, not what a fine-tuning saved apart (train_tiny --lora)");
}

/* Opens the checkpoint, and reads onto it what --adapter names. */
static void open_model(cmha_model *model, const char *path) {
    const char *adapter = option[ADAPTER].value;
    cmha_model_config config;
    if (adapter) {
        refuse_foreign(path), refuse_foreign(adapter), refuse_whole(adapter);
        check(cmha_config_read(&ctx, adapter, &config, NULL)), check(cmha_model_init(model, &ctx, &config));
        check(cmha_model_read(model, path, 2, NULL)), check(cmha_model_read(model, adapter, 2, NULL));
    } else open_checkpoint(model, path);
}

/* Saves the model that was packed or merged, and beside it the tokenizer of the one at `path` and the
   template of what was learned last. */
static void save_model(cmha_model *model, const char *path, const char *to) {
    must(codec_may_be(option[TOKENIZER].value, path, &model->config, failure));
    check(cmha_model_save(model, to));
    if (!codec_open(&words, option[TOKENIZER].value, path, model->config.tokenizer, model->config.vocabulary,
                    failure))
        complain(0, "no tokenizer was saved: ", failure);
    else must(codec_save(&words, to, failure));
    must(pairs_template_find(&shape, option[ADAPTER].value ? option[ADAPTER].value : path, failure));
    must(pairs_template_save(&shape, to, failure));
    codec_close(&words), pairs_template_close(&shape);
    /* cmha_model_save leaves out the length of training */
    size_t trained = trained_length(path), said = trained_length(to);
    if (trained != said) {
        char line[120];
        snprintf(line, sizeof line, " looks back %zu tokens, not the %zu of training; give --context %zu",
                 said, trained, trained);
        complain(0, to, line);
    }
}

int main(int argc, char **argv) {
    cmha_cache_options options = {CMHA_STORAGE_FLOAT, 0, NULL, 0, 0};
    cmha_model model;
    start_program(argv);
    const char *path = configure(argc, argv);
    if (option[HELP].value) return help();
    if (!path) complain(2, "name a checkpoint, such as tiny.safetensors (build/train_tiny makes one)", "");
    refuse_unread();
    const char *packs = option[PACK].value, *held = *packs ? packs : option[WEIGHTS].value;
    cmha_storage weights = storage_of(held, 4);
    options.storage = storage_of(option[CACHE].value, 1);
    if (*packs && (!weights || !packed_path || *packed_path == '-')) /* that is an option */
        complain(2, "--pack takes bf16, int8, int4 or q4_k, then the file to write", "");
    if (option[MERGE].value && (weights || !option[ADAPTER].value))
        complain(2, "--merge takes --adapter along, and packs nothing; --pack then packs its file", "");
    const char *to = *packs ? packed_path : option[MERGE].value;
    const char *in[] = {path, option[ADAPTER].value, option[TOKENIZER].value};
    refuse_replacing(option[*packs ? PACK : MERGE].name, to, in, sizeof in / sizeof *in);
    if (to) must(text_may_save(to, failure));

    open_model(&model, path);
    if (!weights && options_given & 1u << WEIGHTS && model.packed.storage)
        complain(1, path, " is packed, so its weights cannot be f32");
    if (weights && model.packed.storage != weights) check(cmha_model_pack(&model, weights));
    if (option[ROUND].value) check(cmha_model_round(&model, 1));
    if (option[VERBOSE].value && model.packed.bytes)
        fprintf(stderr, "generate: %.1f MB of matrices are held as %.1f MB\n",
                1e-6 * (double)model.packed.saved, 1e-6 * (double)model.packed.bytes);
    if (option[MERGE].value && model.config.lora_rank) check(cmha_model_merge(&model));
    if (to) {
        save_model(&model, path, to);
        cmha_model_close(&model), cmha_context_close(&ctx);
        return end_program(0);
    }
    if (!model.config.causal) complain(1, path, ": an encoder, which continues no text");
    if (!model.config.tokens || model.config.features)
        complain(1, path, ": a model of numbers, which continues no text");
    must(codec_may_be(option[TOKENIZER].value, path, &model.config, failure) &&
         codec_open(&words, option[TOKENIZER].value, path, model.config.tokenizer, model.config.vocabulary,
                    failure));
    if (words.kind != CODEC_TOKENIZER)
        refuse_given(option, 1u << SPECIAL, " is for a model with a tokenizer, and this one has none");
    open_template(option[ADAPTER].value ? option[ADAPTER].value : path);
    size_t context = whole(CONTEXT) ? whole(CONTEXT) : trained_length(path);
    if (model.config.position == CMHA_POSITION_LEARNED && whole(CONTEXT) > model.config.max_positions)
        complain(2, "--context is beyond the positions of ", path);
    if (option[SCORE].value) score(&model, option[SCORE].value, whole(TOKENS), context, &options);
    else continue_prompt(&model, context, &options);
    codec_close(&words), pairs_template_close(&shape), cmha_model_close(&model), cmha_context_close(&ctx);
    return end_program(0);
}
