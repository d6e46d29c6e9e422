/* Continues a prompt with a trained model:   build/generate [OPTION...] CHECKPOINT     (--help lists everything) */
#define CMHA_IMPLEMENTATION
#include "cmha.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static cmha_context ctx;

/* What the callback needs to show tokens as they come. */
typedef struct output {
    int bytes;          /* 256 tokens: text; otherwise numbers */
    int escape;         /* on a terminal, control characters are shown as \xNN */
    size_t batch, n;    /* n: tokens so far of each sequence */
    int32_t *kept;      /* [n, batch], of a batch, which is shown when it is complete; NULL for one sequence */
    double first, last; /* when the first and the last token came */
} output;

static double seconds(void) {
    struct timeval t;
    gettimeofday(&t, NULL);
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

/* Ends the program with one line. Status 1: something failed; 2: it was called the wrong way. */
static void die(int status, const char *what, const char *which) {
    fprintf(stderr, "generate: %s%s\n", what, which);
    exit(status);
}

static void check(cmha_status status) {
    if (status) die(1, cmha_error(&ctx), "");
}

static void on_log(void *user, cmha_log_level level, const char *line) {
    (void)user;
    if (level == CMHA_LOG_WARNING) fprintf(stderr, "generate: warning: %s\n", line);
}

static void show(const output *o, int32_t token) {
    if (!o->bytes) printf("%ld ", (long)token);
    else if (o->escape && (token < ' ' || token == 127) && token != '\n' && token != '\t') printf("\\x%02x", (unsigned)token);
    else putchar((int)token);
}

static int on_token(void *user, const int32_t *tokens, size_t batch) {
    output *o = user;
    o->last = seconds();
    if (!o->n) o->first = o->last;
    if (o->kept) memcpy(o->kept + o->n * batch, tokens, batch * sizeof *tokens);
    else show(o, tokens[0]), fflush(stdout);
    o->n++;
    return ferror(stdout); /* whoever read the text has gone */
}

/* A prompt of the command line: \n, \t, \\ and \xNN stand for the bytes they name. Works in place, returns the length. */
static size_t unescape(char *s) {
    size_t n = 0;
    for (const char *p = s; *p; p++) {
        unsigned byte;
        if (*p != '\\' || !p[1]) s[n++] = *p;
        else if (*++p == 'n') s[n++] = '\n';
        else if (*p == 't') s[n++] = '\t';
        else if (*p == 'x' && sscanf(p + 1, "%2x", &byte) == 1 && p[2]) s[n++] = (char)byte, p += 2;
        else s[n++] = *p;
    }
    return n;
}

/* f32, bf16 or, where `most` allows it, int8. */
static cmha_storage storage_of(const char *name, int most) {
    static const char *const names[] = {"f32", "bf16", "int8"}; /* in the order of the enumeration */
    for (int i = 0; i <= most; i++)
        if (!strcmp(name, names[i])) return (cmha_storage)i;
    die(2, most > 1 ? "weights are f32, bf16 or int8, not " : "a cache is f32 or bf16, not ", name);
    return CMHA_STORAGE_FLOAT;
}

/* Nats a token of logits [V] gives to one token. */
static double loss_of(const cmha_real *logits, size_t V, int32_t target) {
    size_t counted;
    return cmha_cross_entropy_forward(logits, &target, 1, V, -1, NULL, &counted);
}

/* Reads tokens one by one through a cache of `window` of them, which begins anew when it is full, and adds up what the next one
 * costs. */
static void score(cmha_model *model, const char *path, size_t most, size_t window, const cmha_cache_options *options) {
    size_t V = model->config.vocabulary, n, i, counted = 0;
    cmha_real *logits = malloc(V * sizeof *logits);
    cmha_tokens tokens;
    cmha_cache cache;
    double sum = 0, start;
    if (!logits) die(1, "no memory for the logits", "");
    check(cmha_tokens_load(&tokens, &ctx, path, V <= 256 ? 1 : V <= 65536 ? 2 : 4));
    check(cmha_cache_init_with(&cache, model, 1, window, 0, options));
    n = tokens.count < most ? tokens.count : most;
    start = seconds();
    for (i = 0; i + 1 < n; i++) {
        int32_t token = cmha_tokens_at(&tokens, i), next = cmha_tokens_at(&tokens, i + 1);
        if (i % cache.capacity == 0) cmha_cache_reset(&cache);
        check(cmha_cache_append(&cache, &token, 1, logits));
        if (next < 0 || (size_t)next >= V) die(1, "a token is outside the vocabulary in ", path);
        sum += loss_of(logits, V, next);
        counted++;
    }
    if (!counted) die(1, "fewer than two tokens in ", path);
    printf("%.5f nats per token, %zu tokens, %.0f tokens/s\n", sum / (double)counted, counted,
           (double)counted / (seconds() - start));
    cmha_cache_close(&cache), cmha_tokens_close(&tokens);
    free(logits);
}

/* All of the standard input. */
static char *slurp(size_t *length) {
    size_t size = 0, room = 4096;
    char *text = malloc(room + 1);
    for (size_t n; text && (n = fread(text + size, 1, room - size, stdin)) > 0;) {
        size += n;
        if (size < room) continue;
        char *more = realloc(text, (room *= 2) + 1);
        if (!more) free(text);
        text = more;
    }
    if (!text) die(1, "no memory for the prompt", "");
    text[*length = size] = 0;
    return text;
}

/* The prompt as tokens: its bytes, or, when the vocabulary is another one, the numbers it lists. */
static int32_t *tokenize(char *text, size_t length, int bytes, size_t *count) {
    int32_t *ids = malloc((length + 1) * sizeof *ids);
    *count = 0;
    if (!ids) die(1, "no memory for the prompt", "");
    if (bytes)
        for (; *count < length; ++*count) ids[*count] = (unsigned char)text[*count];
    else
        for (char *end; *(text += strspn(text, " ,\t\n")); text = end) {
            long id = strtol(text, &end, 10);
            if (end == text || id < 0 || id > INT32_MAX) die(2, "this model's prompt is a list of token numbers, not ", text);
            ids[(*count)++] = (int32_t)id;
        }
    if (!*count) die(2, "the prompt is empty", "");
    return ids;
}

/* Tokens a sequence had in training, which a trainer's checkpoint says; distances beyond are distances the model never saw. */
static size_t trained_length(const char *path) {
    cmha_archive archive;
    check(cmha_archive_open(&archive, &ctx, path));
    const char *length = cmha_archive_metadata(&archive, "trainer.length");
    size_t n = length ? (size_t)strtoull(length, NULL, 10) : 1024;
    cmha_archive_close(&archive);
    return n ? n : 1024;
}

static int help(const cmha_sampler_config *sampler) {
    cmha_table table = cmha_sampler_table();
    puts("generate [OPTION...] CHECKPOINT: continues a prompt with a model that train_tiny or cmha_model_save wrote\n\n"
         "  --prompt TEXT    begins the text, a newline by default; \\n, \\t, \\xNN as in C; - reads the standard input.\n"
         "                   Of a model whose vocabulary is not 256 bytes: the numbers of its tokens\n"
         "  --tokens N       how many to add; 400\n"
         "  --context N      most tokens the model looks back on; 0 = as many as in training. Older ones go, a quarter at a time\n"
         "  --batch N        that many continuations at once, each shown when all are complete; 1\n"
         "  --seed N         of the draws; 1\n"
         "  --weights KIND   f32, bf16 or int8: how the matrices are held that each token reads; f32\n"
         "  --cache KIND     f32 or bf16: how keys and values are held; f32\n"
         "  --score FILE     instead of continuing: mean loss in nats per token of the file's first N tokens (--tokens), each read "
         "from the\n"
         "                   cache by itself, with nothing before the first of every --context of them. Says what a storage costs\n"
         "  --threads N      0 = every core\n"
         "  --verbose        speed, on the standard error stream\n"
         "  --set NAME=VALUE a field of the sampler, may be repeated: name, value, range, meaning");
    for (size_t i = 0; i < table.count; i++) {
        char value[32], range[64];
        cmha_config_get(table, sampler, i, value, sizeof value);
        snprintf(range, sizeof range, "%.10g..%.10g", table.fields[i].minimum, table.fields[i].maximum);
        printf("    %-18s %-6s %-16s %s\n", table.fields[i].name, value, range, table.fields[i].help);
    }
    return 0;
}

int main(int argc, char **argv) {
    enum { TOKENS, CONTEXT, BATCH, SEED, THREADS, PROMPT, SET, WEIGHTS, CACHE, SCORE, N_VALUES };
    static const char *const names[N_VALUES] = {"--tokens", "--context", "--batch",   "--seed",  "--threads",
                                                "--prompt", "--set",     "--weights", "--cache", "--score"};
    unsigned long long number[PROMPT] = {400, 0, 1, 1, 0};
    static char newline[] = "\n"; /* the prompt where none is given */
    char *prompt = newline, *end, **set = argv + 1; /* what --set says, in places already read */
    const char *path = NULL, *text = NULL;
    cmha_storage weights = CMHA_STORAGE_FLOAT;
    cmha_cache_options options = {NULL, CMHA_STORAGE_FLOAT};
    cmha_quantised quantised = {0};
    int n_set = 0, verbose = 0, wants_help = 0, o;
    cmha_context_config cc = {.log = on_log};
    cmha_sampler_config sampler;
    cmha_model model;
    cmha_cache cache;
    cmha_blas_restart(argv); /* an OpenBLAS older than this CPU: start again with the right kernel */

    for (int i = 1; i < argc; i++) {
        size_t n = strcspn(argv[i], "=");
        char *value = argv[i][n] ? argv[i] + n + 1 : NULL;
        for (o = 0; o < N_VALUES && (strncmp(names[o], argv[i], n) || names[o][n]); o++) continue;
        if (o < N_VALUES && !value && !(value = argv[++i])) die(2, "a value is missing after ", names[o]);
        if (o == SET) set[n_set++] = value;
        else if (o == PROMPT) prompt = value;
        else if (o == SCORE) text = value;
        else if (o == WEIGHTS) weights = storage_of(value, 2);
        else if (o == CACHE) options.storage = storage_of(value, 1);
        else if (o < N_VALUES) {
            number[o] = strtoull(value, &end, 10);
            if (*value < '0' || *value > '9' || *end) die(2, "not a whole number: ", value);
        } else if (!strcmp(argv[i], "--verbose")) verbose = 1;
        else if (!strcmp(argv[i], "--help")) wants_help = 1;
        else if (*argv[i] == '-' || path) die(2, "see --help; what is ", argv[i]);
        else path = argv[i];
    }
    cc.seed = number[SEED];
    cc.threads = (int)number[THREADS];
    check(cmha_context_init(&ctx, &cc));
    cmha_config_defaults(cmha_sampler_table(), &sampler);
    for (int i = 0; i < n_set; i++) {
        char *name = strtok(set[i], "="), *value = strtok(NULL, "");
        cmha_status status = cmha_config_set(&ctx, cmha_sampler_table(), &sampler, name ? name : "", value ? value : "");
        if (status) die(2, cmha_error(&ctx), "");
    }
    if (wants_help) return help(&sampler);
    if (!path) die(2, "name a checkpoint, such as tiny.safetensors (build/train_tiny makes one)", "");
    if (!number[BATCH] || number[BATCH] > 65536) die(2, "--batch is 1 to 65536", "");

    /* The model, the prompt for every sequence, and a cache that slides unless positions are learned, which end somewhere. */
    check(cmha_model_load(&model, &ctx, path));
    if (!model.config.causal) die(1, path, ": an encoder, which continues no text");
    if (!number[CONTEXT]) number[CONTEXT] = trained_length(path);
    if (weights) {
        check(cmha_quantise(&quantised, &model, weights));
        options.weights = &quantised;
        if (verbose)
            fprintf(stderr, "generate: %.1f MB of matrices are read as %.1f MB\n", 1e-6 * (double)quantised.saved,
                    1e-6 * (double)quantised.bytes);
    }
    if (text) {
        score(&model, text, (size_t)number[TOKENS], (size_t)number[CONTEXT], &options);
        cmha_quantised_close(&quantised), cmha_model_close(&model), cmha_context_close(&ctx);
        return fflush(stdout) || ferror(stdout) ? 1 : 0;
    }
    size_t length, n_prompt, batch = (size_t)number[BATCH], n_new = (size_t)number[TOKENS], capacity = (size_t)number[CONTEXT];
    int slide = model.config.position != CMHA_POSITION_LEARNED, bytes = model.config.vocabulary == 256;
    if (!bytes && prompt == newline) die(2, "this model's prompt is a list of token numbers: give one with --prompt", "");
    if (!strcmp(prompt, "-")) prompt = slurp(&length);
    else length = unescape(prompt);
    int32_t *ids = tokenize(prompt, length, bytes, &n_prompt);
    if (!slide && capacity > model.config.max_positions) capacity = model.config.max_positions;
    if (slide ? n_prompt > capacity : n_prompt >= capacity) {
        size_t most = slide ? capacity : capacity / 2 + 1; /* without sliding what is new needs room as well */
        fprintf(stderr, "generate: of the prompt's %zu tokens the last %zu are used (see --context)\n", n_prompt, most);
        memmove(ids, ids + n_prompt - most, most * sizeof *ids);
        n_prompt = most;
    }
    if (!slide && n_new > capacity - n_prompt) n_new = capacity - n_prompt;
    if (capacity > n_prompt + n_new) capacity = n_prompt + n_new;
    int32_t *prompts = malloc(batch * n_prompt * sizeof *prompts);
    output out = {.bytes = bytes, .escape = isatty(1), .batch = batch};
    if (batch > 1) out.kept = malloc((n_new ? n_new : 1) * batch * sizeof *out.kept);
    if (!prompts || (batch > 1 && !out.kept)) die(1, "no memory for the batch", "");
    for (size_t b = 0; b < batch; b++) memcpy(prompts + b * n_prompt, ids, n_prompt * sizeof *ids);
    check(cmha_cache_init_with(&cache, &model, batch, capacity, slide, &options));

    double start = seconds();
    cmha_status status = cmha_generate(&cache, prompts, n_prompt, n_new, &sampler, number[SEED], on_token, &out);
    if (status != CMHA_STOPPED) check(status);
    for (size_t b = 0; out.kept && b < batch; b++) {
        printf("%s--- %zu ---\n", b ? "\n" : "", b + 1);
        for (size_t i = 0; i < out.n; i++) show(&out, out.kept[i * batch + b]);
    }
    if (out.escape || !bytes || out.kept) putchar('\n');
    if (verbose && out.n > 1)
        fprintf(stderr, "generate: prompt of %zu tokens in %.0f ms, then %.0f tokens/s\n", n_prompt, 1e3 * (out.first - start),
                (double)((out.n - 1) * batch) / (out.last - out.first));

    cmha_cache_close(&cache);
    cmha_quantised_close(&quantised);
    cmha_model_close(&model);
    cmha_context_close(&ctx);
    free(out.kept), free(prompts), free(ids);
    return fflush(stdout) || ferror(stdout) ? 1 : 0;
}
