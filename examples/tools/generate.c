/* Continues a prompt with a trained model (--help lists everything):
       cc -O3 -march=native -fopenmp -I. examples/tools/generate.c -o build/generate -lopenblas -lm
       build/generate [OPTION...] CHECKPOINT */
#define CMHA_IMPLEMENTATION
#include "cmha.h"

#define PROGRAM "generate"
#include "options.h"

enum { PROMPT, TOKENS, CONTEXT, BATCH, SEED, WEIGHTS, CACHE, SCORE, PACK, THREADS, VERBOSE, HELP, SET };
enum { N_OPTIONS = SET + 1 };
static setting option[N_OPTIONS] = {
    {"--prompt", NULL,
     "begins the text, a newline by default; \\n, \\t, \\xNN as in C; - reads the standard\n"
     "                   input. Of a model whose vocabulary is not 256 bytes: the numbers of its tokens"},
    {"--tokens", "400", "how many to add; 400"},
    {"--context", "0",
     "most tokens the model looks back on; 0 = as many as in training. Older ones go, a quarter\n"
     "                   at a time"},
    {"--batch", "1", "that many continuations at once, each shown when all are complete; 1"},
    {"--seed", "1", "of the draws; 1"},
    {"--weights", "f32", "f32, bf16 or int8: how matrices are held; f32, or as a packed checkpoint has them"},
    {"--cache", "f32", "f32 or bf16: how keys and values are held; f32"},
    {"--score", NULL,
     "instead of continuing: mean loss in nats per token of the file's first N tokens (--tokens),\n"
     "                   each read from the cache by itself, with nothing before the first of every\n"
     "                   --context of them. Says what a storage costs. Above a vocabulary of 256 the file\n"
     "                   holds numbers of 2 bytes, above 65,536 of 4"},
    {"--pack", "", "bf16 or int8, then a file: saves the checkpoint packed there instead of continuing"},
    {"--threads", "0", "0 = every core"},
    {"--verbose", NULL, "speed, on the standard error stream"},
    {"--help", NULL, "this page"},
    {"--set", NULL, "NAME=VALUE, a field of the sampler, may be repeated: name, value, range, meaning"}};
static cmha_sampler_config sampler;
static const char *packed_path; /* the second value of --pack */

/* What the callback needs to show tokens as they come. */
typedef struct output {
    int bytes;          /* 256 tokens: text; otherwise numbers */
    char held[8];       /* the first bytes of a character whose others have not come yet */
    size_t n_held;
    size_t batch, n;    /* n: tokens so far of each sequence */
    /* [n, batch], of a batch, which is shown when it is complete; NULL for one sequence */
    int32_t *kept;
    double first, last; /* when the first and the last token came */
} output;

static size_t whole(int o) { return (size_t)whole_of(&option[o], 0, SIZE_MAX); }

/* Shows a token: its byte, with those that waited for it, or its number. */
static void show(output *o, int32_t token) {
    size_t shown;
    if (!o->bytes) {
        printf("%ld ", (long)token);
        return;
    }
    o->held[o->n_held++] = (char)token;
    shown = text_show(o->held, o->n_held, 0), o->n_held -= shown;
    memmove(o->held, o->held + shown, o->n_held);
}

/* Ends a text, and its line. */
static void show_end(output *o) {
    text_show(o->held, o->n_held, 1), o->n_held = 0;
    putchar('\n');
}

static int on_token(void *user, const int32_t *tokens, size_t batch) {
    output *o = user;
    o->last = seconds();
    if (!o->n) o->first = o->last;
    if (o->kept) memcpy(o->kept + o->n * batch, tokens, batch * sizeof *tokens);
    else show(o, tokens[0]), fflush(stdout), line_open = isatty(1);
    o->n++;
    return ferror(stdout); /* whoever read the text has gone */
}

/* f32, bf16 or, where `most` allows it, int8. */
static cmha_storage storage_of(const char *name, int most) {
    static const char *const names[] = {"f32", "bf16", "int8"}; /* in the order of the enumeration */
    for (int i = 0; i <= most; i++)
        if (!strcmp(name, names[i])) return (cmha_storage)i;
    complain(2, most > 1 ? "weights are f32, bf16 or int8, not " : "a cache is f32 or bf16, not ", name);
    return CMHA_STORAGE_FLOAT;
}

/* Nats a token of logits [V] gives to one token. */
static double loss_of(const cmha_real *logits, size_t V, int32_t target) {
    size_t counted;
    return cmha_cross_entropy_forward(logits, &target, 1, V, -1, NULL, &counted);
}

/* Reads tokens one by one through a cache of `window` of them, which begins anew when it is full, and adds up
   what the next one costs. */
static void score(cmha_model *model, const char *path, size_t most, size_t window,
                  const cmha_cache_options *options) {
    size_t V = model->config.vocabulary, n, i, counted = 0;
    cmha_real *logits = take(V, sizeof *logits);
    cmha_tokens tokens;
    cmha_cache cache;
    double sum = 0, start;
    check(cmha_tokens_open(&tokens, &ctx, path, V <= 256 ? 1 : V <= 65536 ? 2 : 4));
    check(cmha_cache_init(&cache, model, 1, window, 0, options));
    n = tokens.count < most ? tokens.count : most;
    start = seconds();
    for (i = 0; i + 1 < n; i++) {
        int32_t token = cmha_tokens_at(&tokens, i), next = cmha_tokens_at(&tokens, i + 1);
        if (i % cache.capacity == 0) cmha_cache_reset(&cache);
        check(cmha_cache_append(&cache, &token, 1, logits));
        if (next < 0 || (size_t)next >= V) complain(1, "a token is outside the vocabulary in ", path);
        sum += loss_of(logits, V, next);
        counted++;
    }
    if (!counted) complain(1, "fewer than two tokens in ", path);
    printf("%.5f nats per token, %zu tokens, %.0f tokens/s\n", sum / (double)counted, counted,
           (double)counted / (seconds() - start));
    cmha_cache_close(&cache), cmha_tokens_close(&tokens);
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

/* The prompt as tokens: its bytes, or, when the vocabulary is another one, the numbers it lists. */
static int32_t *tokenize(char *text, size_t length, int bytes, size_t *count) {
    int32_t *ids = take(length + 1, sizeof *ids);
    *count = 0;
    if (bytes)
        for (; *count < length; ++*count) ids[*count] = (unsigned char)text[*count];
    else
        for (char *end; *(text += strspn(text, " ,\t\n")); text = end) {
            long id = strtol(text, &end, 10);
            if (end == text || id < 0 || id > INT32_MAX)
                complain(2, "this model's prompt is a list of token numbers, not ", text);
            ids[(*count)++] = (int32_t)id;
        }
    if (!*count) complain(2, "the prompt is empty", "");
    return ids;
}

static int help(void) {
    cmha_table table = cmha_sampler_table();
    puts("generate [OPTION...] CHECKPOINT: continues a prompt with a model that was saved\n\n"
         "Tokens that are bytes are printed as they are, others as numbers; each text ends with a newline.\n"
         "On a terminal control characters and bytes that are no UTF-8 show as \\xNN.\n");
    print_options(option, N_OPTIONS, 16, 0);
    for (size_t i = 0; i < table.count; i++) {
        char value[32], range[64];
        cmha_config_get(table, &sampler, table.fields[i].name, value, sizeof value);
        snprintf(range, sizeof range, "%.10g..%.10g", table.fields[i].minimum, table.fields[i].maximum);
        printf("    %-18s %-6s %-16s %s\n", table.fields[i].name, value, range, table.fields[i].help);
    }
    return end_program(0);
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
    const char *path = read_options(option, N_OPTIONS, 1u << VERBOSE | 1u << HELP, argc, argv, &n_set);
    place all = {cmha_sampler_table(), &sampler};
    whole(TOKENS), whole(CONTEXT), whole_of(&option[BATCH], 1, 65536);
    open_context(&option[SEED], &option[THREADS], option[HELP].value != NULL);
    cmha_config_defaults(cmha_sampler_table(), &sampler);
    for (int i = 1; i <= n_set; i++) set_field(&all, 1, argv[i], cut_value(argv[i]));
    return path;
}

/* The prompt as tokens, *count of them. */
static int32_t *read_prompt(int bytes, size_t *count) {
    static char newline[] = "\n"; /* the prompt where none is given */
    const char *given = option[PROMPT].value;
    char *text = newline;
    size_t length = 1;
    if (!given && !bytes)
        complain(2, "this model's prompt is a list of token numbers: give one with --prompt", "");
    if (given && !strcmp(given, "-")) text = slurp(&length);
    else if (given) text = strcpy(take(strlen(given) + 1, 1), given), length = unescape(text);
    int32_t *ids = tokenize(text, length, bytes, count);
    if (text != newline) free(text);
    return ids;
}

/* Continues the prompt, looking back on `capacity` tokens. */
static void continue_prompt(cmha_model *model, size_t capacity, const cmha_cache_options *options) {
    size_t n_prompt, batch = whole(BATCH), n_new = whole(TOKENS), most;
    int slide = model->config.position != CMHA_POSITION_LEARNED; /* else positions end somewhere */
    output out = {.bytes = model->config.vocabulary == 256, .batch = batch};
    cmha_cache cache;
    int32_t *ids = read_prompt(out.bytes, &n_prompt), *prompts;
    if (!slide && capacity > model->config.max_positions) capacity = model->config.max_positions;
    if (slide ? n_prompt > capacity : n_prompt >= capacity) {
        most = slide ? capacity : capacity / 2 + 1; /* without sliding what is new needs room as well */
        fprintf(stderr, "generate: of the prompt's %zu tokens the last %zu are used (see --context)\n",
                n_prompt, most);
        memmove(ids, ids + n_prompt - most, most * sizeof *ids);
        n_prompt = most;
    }
    if (!slide && n_new > capacity - n_prompt) n_new = capacity - n_prompt;
    if (capacity - n_prompt > n_new) capacity = n_prompt + n_new;
    prompts = take(times(batch, n_prompt), sizeof *prompts);
    if (batch > 1) out.kept = take(times(n_new, batch), sizeof *out.kept);
    for (size_t b = 0; b < batch; b++) memcpy(prompts + b * n_prompt, ids, n_prompt * sizeof *ids);
    check(cmha_cache_init(&cache, model, batch, capacity, slide, options));

    double start = seconds();
    cmha_status status =
        cmha_generate(&cache, prompts, n_prompt, n_new, &sampler, ctx.config.seed, on_token, &out);
    if (status != CMHA_STOPPED) check(status);
    for (size_t b = 0; out.kept && b < batch; b++) {
        printf("--- %zu ---\n", b + 1);
        for (size_t i = 0; i < out.n; i++) show(&out, out.kept[i * batch + b]);
        show_end(&out);
    }
    if (!out.kept) show_end(&out);
    fflush(stdout), line_open = 0;
    if (option[VERBOSE].value && out.n > 1)
        fprintf(stderr, "generate: prompt of %zu tokens in %.0f ms, then %.0f tokens/s\n", n_prompt,
                1e3 * (out.first - start), (double)(out.n - 1) * (double)batch / (out.last - out.first));
    cmha_cache_close(&cache);
    free(out.kept), free(prompts), free(ids);
}

int main(int argc, char **argv) {
    cmha_cache_options options = {CMHA_STORAGE_FLOAT, 0, NULL, 0};
    cmha_model model;
    start_program(argv);
    const char *path = configure(argc, argv);
    if (option[HELP].value) return help();
    if (!path) complain(2, "name a checkpoint, such as tiny.safetensors (build/train_tiny makes one)", "");
    const char *packs = option[PACK].value, *held = *packs ? packs : option[WEIGHTS].value;
    cmha_storage weights = storage_of(held, 2);
    options.storage = storage_of(option[CACHE].value, 1);
    if (*packs && (!weights || !packed_path))
        complain(2, "--pack takes bf16 or int8, then the file to write", "");

    check(cmha_model_open(&model, &ctx, path));
    if (weights && model.packed.storage != weights) check(cmha_model_pack(&model, weights));
    if (option[VERBOSE].value && model.packed.bytes)
        fprintf(stderr, "generate: %.1f MB of matrices are held as %.1f MB\n",
                1e-6 * (double)model.packed.saved, 1e-6 * (double)model.packed.bytes);
    if (*packs) {
        check(cmha_model_save(&model, packed_path));
        cmha_model_close(&model), cmha_context_close(&ctx);
        return end_program(0);
    }
    if (!model.config.causal) complain(1, path, ": an encoder, which continues no text");
    size_t context = whole(CONTEXT) ? whole(CONTEXT) : trained_length(path);
    if (option[SCORE].value) score(&model, option[SCORE].value, whole(TOKENS), context, &options);
    else continue_prompt(&model, context, &options);
    cmha_model_close(&model), cmha_context_close(&ctx);
    return end_program(0);
}
