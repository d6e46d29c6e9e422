/* Makes vectors of sentences, one a line, with a trained model (--help lists everything):
       cc -O3 -march=native -fopenmp -I. examples/tools/vectors.c -o build/vectors -lopenblas -lm
       build/vectors [OPTION...] CHECKPOINT < lines
   (build/embed is another program: it writes a model as a C array.) */
#define CMHA_IMPLEMENTATION
#include "cmha.h"

#define PROGRAM "vectors"
#include "options.h"
#include "sentences.h"
#include "metrics.h"

enum { POOL, RAW, FORMAT, SIMILARITY, COLUMNS, LENGTH, BATCH, TOKENIZER, SEED, THREADS, HELP, N_OPTIONS };
static setting option[N_OPTIONS] = {
    {"--pool", "mean", "mean of the tokens' states, cls: that of the first, last: that of the last; mean"},
    {"--raw", NULL, "leave the vectors as long as they are; else each has length 1"},
    {"--format", "json", "json: a line [x, ..] for each, or npy: NumPy's, of floats [lines, d_model]; json"},
    {"--similarity", NULL,
     "a file of pairs with scores, as of STS-B: prints how well the cosines of their vectors\n"
     "                   go with the scores, by Pearson and Spearman, instead of vectors"},
    {"--columns", "score,sentence1,sentence2", "of that file, by name or number"},
    {"--length", "0", "most tokens of a sentence; 0: as many as in training"},
    {"--batch", "16", "sentences at a time; 16"},
    {"--tokenizer", NULL,
     "the model's tokenizer; else CHECKPOINT's .tokenizer.json, or tokenizer.json in its folder"},
    {"--seed", "1", "of nothing here"},
    {"--threads", "0", "0 = every core"},
    {"--help", NULL, "this page"}};
static sentences encoder;

static sentences_pool pool(void) { return sentences_pool_named(option[POOL].value); }

static int is_npy(void) {
    static const char *const formats[] = {"json", "npy"};
    int npy = !strcmp(option[FORMAT].value, "npy");
    if (!npy && strcmp(option[FORMAT].value, "json"))
        no_such("there is no --format", option[FORMAT].value, formats, 2);
    return npy;
}

static float *vectors_of(const text_slice *texts, size_t n) {
    float *vectors = take(times(n, encoder.model.config.d_model), sizeof *vectors);
    size_t batch = (size_t)whole_of(&option[BATCH], 1, 65536);
    sentences_vectors(&encoder, texts, n, batch, pool(), option[RAW].value != NULL, vectors);
    return vectors;
}

/* NumPy's format 1.0: a header of a multiple of 64 bytes, then the numbers, little endian. */
static void write_npy(const float *x, size_t rows, size_t width) {
    char header[128];
    int n = snprintf(header + 10, sizeof header - 10,
                     "{'descr': '<f4', 'fortran_order': False, 'shape': (%zu, %zu), }", rows, width);
    memset(header + 10 + n, ' ', sizeof header - 10 - (size_t)n);
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10), header[127] = '\n';
    fwrite(header, 1, sizeof header, stdout);
    for (size_t i = 0; i < rows * width; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, 4);
        for (int k = 0; k < 4; k++) putchar((int)(bits >> 8 * k & 255));
    }
}

static void write_lines(const float *x, size_t rows, size_t width) {
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < width; j++)
            printf("%s%.7g%s", j ? ", " : "[", (double)x[i * width + j], j + 1 < width ? "" : "]\n");
}

static void write_vectors(void) {
    char *text;
    size_t bytes, n = 0, lines = 1;
    must(text_read("-", (size_t)1 << 31, &text, &bytes, failure));
    for (size_t i = 0; i < bytes; i++) lines += text[i] == '\n';
    text_slice *texts = take(lines, sizeof *texts);
    for (const char *at = bytes ? text : NULL; at;) texts[n++] = text_line(&at, text + bytes);
    float *x = vectors_of(texts, n);
    if (is_npy()) write_npy(x, n, encoder.model.config.d_model);
    else write_lines(x, n, encoder.model.config.d_model);
    free(x), free(texts), free(text);
}

/* Compares the cosines of pairs with their scores. */
static void compare(void) {
    char list[256], *names[3], *at = list;
    size_t width = encoder.model.config.d_model;
    text_table t;
    snprintf(list, sizeof list, "%s", option[COLUMNS].value);
    for (int i = 0; i < 3; i++) {
        if (!at) complain(2, "--columns are three: score,sentence,sentence; not ", option[COLUMNS].value);
        names[i] = at, at = strchr(at, ',');
        if (at) *at++ = 0;
    }
    const char *const columns[3] = {names[0], names[1], names[2]};
    must(text_table_load(&t, option[SIMILARITY].value, (size_t)1 << 31, columns, 3, failure));
    if (t.rows < 2) complain(1, "fewer than two pairs in ", option[SIMILARITY].value);
    double *score = take(t.rows, sizeof *score), *cosine = take(t.rows, sizeof *cosine);
    double *scratch = take(times(t.rows, 4), sizeof *scratch);
    text_slice *texts = take(times(t.rows, 2), sizeof *texts);
    must(text_values(&t, 0, NULL, option[SIMILARITY].value, score, failure));
    for (size_t i = 0; i < 2 * t.rows; i++) texts[i] = text_cell(&t, i / 2, 1 + i % 2);
    float *x = vectors_of(texts, 2 * t.rows);
    for (size_t i = 0; i < t.rows; i++) {
        const float *a = x + 2 * i * width, *b = a + width;
        double ab = 0, aa = 0, bb = 0;
        for (size_t j = 0; j < width; j++) {
            double p = (double)a[j], q = (double)b[j];
            ab += p * q, aa += p * p, bb += q * q;
        }
        cosine[i] = aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
    }
    printf("%zu pairs: pearson %.4f, spearman %.4f\n", t.rows, metrics_pearson(cosine, score, t.rows),
           metrics_spearman(cosine, score, t.rows, scratch));
    free(x), free(texts), free(score), free(cosine), free(scratch), text_table_close(&t);
}

static int help(void) {
    puts("vectors [OPTION...] CHECKPOINT < lines: a vector of each line, made by a model that was saved;\n"
         "an encoder reads [CLS] line [SEP], other models the line as a text begins\n");
    print_options(option, N_OPTIONS, 16, 0);
    return end_help("build/vectors --format npy classify.safetensors < lines > vectors.npy");
}

int main(int argc, char **argv) {
    int n_set = 0;
    start_program(argv);
    const char *path = read_options(option, N_OPTIONS, 1u << RAW | 1u << HELP, argc, argv, &n_set);
    open_context(&option[SEED], &option[THREADS], option[HELP].value != NULL);
    pool(), is_npy();
    if (option[HELP].value) return help();
    if (!path) complain(2, "see --help; a checkpoint is missing", "");
    sentences_open(&encoder, path, option[TOKENIZER].value);
    uint64_t length = whole_of(&option[LENGTH], 0, 1 << 20);
    if (length && length < 4) complain(2, "--length is 4 at least, for [CLS] and [SEP] too", "");
    if (encoder.model.config.position == CMHA_POSITION_LEARNED && length > encoder.model.config.max_positions)
        complain(2, "--length is beyond the positions of ", path);
    if (length) encoder.length = (size_t)length;
    if (option[SIMILARITY].value) compare();
    else write_vectors();
    sentences_close(&encoder), cmha_context_close(&ctx);
    return end_program(0);
}
