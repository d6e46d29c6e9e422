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

enum { POOL, WEIGH, RAW, FORMAT, SIMILARITY, COLUMNS, LEARN, OUT, EPOCHS, LR, LENGTH, BATCH, TOKENIZER, SEED,
       THREADS, HELP, N_OPTIONS };
static setting option[N_OPTIONS] = {
    {"--pool", "mean", "mean of the tokens' states, cls: that of the first, last: that of the last; mean"},
    {"--weigh", NULL,
     "a text: in a mean each token counts by how few of its lines it is in (the logarithm of\n"
     "                   lines over those), and the mean vector of the lines is taken off: what\n"
     "                   sentences have in common hardly counts"},
    {"--raw", NULL, "leave the vectors as long as they are; else each has length 1"},
    {"--format", "json", "json: a line [x, ..] for each, or npy: NumPy's, of floats [lines, d_model]; json"},
    {"--similarity", NULL,
     "a file of pairs with scores, as of STS-B: prints how well the cosines of their vectors\n"
     "                   go with the scores, by Pearson and Spearman, instead of vectors"},
    {"--columns", "score,sentence1,sentence2", "of that file, by name or number"},
    {"--learn", NULL,
     "such a file: trains the model until the cosines of pairs are their scores, the least of which\n"
     "                   stands for 0 and the largest for 1; prints no vectors"},
    {"--out", "vectors.safetensors", "the checkpoint that --learn writes; vectors.safetensors"},
    {"--epochs", "4", "of --learn: passes over the pairs; 4"},
    {"--lr", "3e-4", "of --learn: peak learning rate; 3e-4"},
    {"--length", "0", "most tokens of a sentence; 0: as many as in training"},
    {"--batch", "16", "sentences at a time; 16"},
    {"--tokenizer", NULL,
     "the model's tokenizer; else CHECKPOINT's .tokenizer.json, or tokenizer.json in its folder"},
    {"--seed", "1", "of --learn: of the order of the pairs, and dropout; 1"},
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
    for (const char *at = text_lines(text, bytes); at;) texts[n++] = text_line(&at, text + bytes);
    float *x = vectors_of(texts, n);
    if (is_npy()) write_npy(x, n, encoder.model.config.d_model);
    else write_lines(x, n, encoder.model.config.d_model);
    free(x), free(texts), free(text);
}

/* Pairs of sentences with scores. */
typedef struct scored {
    text_table t;
    text_slice *texts; /* [2 rows]: both of a row, one after the other */
    double *score;     /* [rows] */
    double least, most; /* of them, which differ */
} scored;

static void read_pairs(scored *p, const char *path) {
    const char *given = option[COLUMNS].value;
    char *list = strcpy(take(strlen(given) + 1, 1), given), *names[3] = {NULL, NULL, NULL}, *at = list;
    for (int i = 0; i < 3 && at; i++) {
        names[i] = at, at = strchr(at, ',');
        if (at) *at++ = 0;
    }
    if (!names[2] || at) complain(2, "--columns are three: score,sentence,sentence; not ", given);
    const char *const columns[3] = {names[0], names[1], names[2]};
    must(text_table_load(&p->t, path, (size_t)1 << 31, columns, 3, failure));
    free(list);
    if (text_table_left(&p->t, path, failure)) complain(0, "warning, left out: ", failure);
    if (p->t.rows < 2) complain(1, "fewer than two pairs in ", path);
    p->score = take(p->t.rows, sizeof *p->score), p->texts = take(times(p->t.rows, 2), sizeof *p->texts);
    must(text_values(&p->t, 0, NULL, path, p->score, failure));
    p->least = p->most = p->score[0];
    for (size_t i = 1; i < p->t.rows; i++)
        p->least = fmin(p->least, p->score[i]), p->most = fmax(p->most, p->score[i]);
    if (!(p->most > p->least)) complain(1, "all scores are the same, so nothing goes with them, in ", path);
    for (size_t i = 0; i < 2 * p->t.rows; i++) p->texts[i] = text_cell(&p->t, i / 2, 1 + i % 2);
}

static void close_pairs(scored *p) { free(p->texts), free(p->score), text_table_close(&p->t); }

/* Compares the cosines of pairs with their scores. */
static void compare(const char *path) {
    size_t width = encoder.model.config.d_model;
    scored p;
    read_pairs(&p, path);
    double *cosine = take(p.t.rows, sizeof *cosine), *scratch = take(times(p.t.rows, 4), sizeof *scratch);
    float *x = vectors_of(p.texts, 2 * p.t.rows);
    for (size_t i = 0; i < p.t.rows; i++) {
        const float *a = x + 2 * i * width, *b = a + width;
        double ab = 0, aa = 0, bb = 0;
        for (size_t j = 0; j < width; j++) {
            double u = (double)a[j], v = (double)b[j];
            ab += u * v, aa += u * u, bb += v * v;
        }
        cosine[i] = aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
    }
    printf("%zu pairs: pearson %.4f, spearman %.4f\n", p.t.rows, metrics_pearson(cosine, p.score, p.t.rows),
           metrics_spearman(cosine, p.score, p.t.rows, scratch));
    free(x), free(cosine), free(scratch), close_pairs(&p);
}

/* ---- Learning ---- */

/* Fills in [batch, length, d_model] with the weights of tokens; returns it. */
static cmha_real *weigh(const cmha_batch *b, cmha_real *weights) {
    const size_t d = encoder.model.config.d_model;
    for (size_t i = 0; i < b->batch * b->length * d; i++)
        weights[i] = (cmha_real)encoder.weights[b->ids[i / d]];
    return weights;
}

/* The mean squared distance of cosines of texts i and n + i from wanted [n]; recorded on the tape. `ones`
   [d_model], `mean` [d_model]: 1 and 1/d_model; `weights`: room for those of tokens, or NULL. */
static cmha_tensor *apart(cmha_tape *tape, const cmha_batch *b, cmha_real *ones, cmha_real *mean,
                          cmha_real *weights, const cmha_real *wanted) {
    size_t n = b->batch / 2, d = encoder.model.config.d_model, row[2] = {d, 1};
    cmha_tensor *gain = cmha_tensor_wrap(tape, 1, row, ones, NULL);
    cmha_tensor *sum = cmha_tensor_wrap(tape, 2, row, mean, NULL);
    cmha_tensor *x = cmha_model_states(&encoder.model, tape, b, NULL);
    if (weights) x = cmha_mul(tape, x, cmha_tensor_wrap(tape, 3, x->shape, weigh(b, weights), NULL));
    if (pool() == SENTENCES_MEAN) x = cmha_mean_tokens(tape, x, b->key_mask);
    else {
        size_t both[2] = {b->batch, d};
        x = cmha_reshape(tape, cmha_slice(tape, x, 1, 0, 1), 2, both);
    }
    x = cmha_rmsnorm(tape, x, gain, (cmha_real)1e-12); /* the mean of products is then a cosine */
    x = cmha_mul(tape, cmha_slice(tape, x, 0, 0, n), cmha_slice(tape, x, 0, n, 2 * n));
    return cmha_squared_error(tape, cmha_matmul(tape, x, sum, 0), wanted);
}

/* Texts and scores of the pairs order[0 .. n), the first ones of all pairs before the second ones. */
static void gather_pairs(const scored *p, const size_t *order, size_t n, text_slice *texts,
                         cmha_real *wanted) {
    for (size_t i = 0; i < n; i++) {
        texts[i] = p->texts[2 * order[i]], texts[n + i] = p->texts[2 * order[i] + 1];
        wanted[i] = (cmha_real)((p->score[order[i]] - p->least) / (p->most - p->least));
    }
}

static cmha_trainer_config learning(const scored *p, size_t batch) {
    cmha_trainer_config t;
    cmha_config_defaults(cmha_trainer_table(), &t);
    check(cmha_config_set(&ctx, cmha_trainer_table(), &t, "lr", option[LR].value));
    t.steps = times(whole_of(&option[EPOCHS], 1, 100000), (p->t.rows + batch - 1) / batch);
    t.batch = t.length = 1; /* the activations are on a tape of their own */
    return t;
}

/* Trains the model on pairs, and saves it. */
static void learn(const char *path) {
    size_t batch = (size_t)whole_of(&option[BATCH], 1, 4096), d = encoder.model.config.d_model, at = 0;
    scored p;
    cmha_tape tape;
    cmha_trainer trainer;
    double sum = 0;
    read_pairs(&p, path);
    const char *in[] = {path, option[SIMILARITY].value, option[WEIGH].value, option[TOKENIZER].value};
    refuse_replacing(option[OUT].name, option[OUT].value, in, sizeof in / sizeof *in);
    must(text_may_save(option[OUT].value, failure));
    const cmha_trainer_config config = learning(&p, batch);
    sentences_room room = sentences_make_room(&encoder, 2 * batch);
    text_slice *texts = take(2 * batch, sizeof *texts);
    size_t *order = take(p.t.rows, sizeof *order), n_seen = 0;
    cmha_real *wanted = take(batch, sizeof *wanted);
    cmha_real *ones = take(d, sizeof *ones), *mean = take(d, sizeof *mean), *weights = NULL;
    if (encoder.weights) weights = take(times(times(2 * batch, encoder.length), d), sizeof *weights);
    for (size_t i = 0; i < p.t.rows; i++) order[i] = i;
    for (size_t i = 0; i < d; i++) ones[i] = 1, mean[i] = 1 / (cmha_real)d;
    check(cmha_trainer_init(&trainer, &encoder.model, &config)), check(cmha_tape_init(&tape, &ctx, 1));
    cmha_parameters_zero_grad(&encoder.model.parameters);
    encoder.cut = 0; /* of the file of --weigh */
    for (uint64_t step = 0, epoch = 0; step < config.steps; step++) {
        if (!at) text_shuffle(order, p.t.rows, (ctx.config.seed << 32) + ++epoch), sum = 0, n_seen = 0;
        size_t n = p.t.rows - at < batch ? p.t.rows - at : batch;
        gather_pairs(&p, order + at, n, texts, wanted);
        cmha_batch b = sentences_batch(&encoder, texts, 2 * n, &room);
        cmha_tensor *x = apart(&tape, &b, ones, mean, weights, wanted);
        check(cmha_tape_status(&tape)), check(cmha_tape_backward(&tape, x, 1));
        sum += (double)x->data[0] * (double)n, n_seen += n;
        check(cmha_trainer_apply(&trainer, NULL)), cmha_tape_reset(&tape);
        at = at + n < p.t.rows ? at + n : 0;
        if (!at)
            printf("epoch %llu: mean squared error %.4f\n", (unsigned long long)epoch, sum / (double)n_seen),
                fflush(stdout);
        if (!at && epoch == 1) sentences_tell_cut(&encoder, "sentences of the pairs", " (see --length)");
    }
    check(cmha_model_save(&encoder.model, option[OUT].value));
    must(codec_save(&encoder.words, option[OUT].value, failure));
    cmha_trainer_close(&trainer), cmha_tape_close(&tape), sentences_free_room(&room), close_pairs(&p);
    free(texts), free(order), free(wanted), free(ones), free(mean), free(weights);
}

/* Ends the program where an option is given that what it is called for does not read. */
static void refuse_unread(void) {
    const uint64_t learning = 1u << OUT | 1u << EPOCHS | 1u << LR | 1u << SEED;
    const uint64_t printing = 1u << RAW | 1u << FORMAT;
    if (!option[LEARN].value) refuse_given(option, learning, " is for --learn");
    if (option[LEARN].value) refuse_given(option, printing, " is for vectors, which --learn does not print");
    else if (option[SIMILARITY].value)
        refuse_given(option, printing, " is for vectors, which --similarity does not print");
    else refuse_given(option, 1u << COLUMNS, " is for --similarity and --learn");
    if (option[WEIGH].value && !strcmp(option[WEIGH].value, "-")) /* the weights, then the mean vector */
        complain(2, "the file of --weigh is read twice: it cannot be the standard input", "");
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
    refuse_unread();
    sentences_open(&encoder, path, option[TOKENIZER].value);
    uint64_t length = whole_of(&option[LENGTH], 0, 1 << 20);
    if (length && length < 4) complain(2, "--length is 4 at least, for [CLS] and [SEP] too", "");
    if (encoder.model.config.position == CMHA_POSITION_LEARNED && length > encoder.model.config.max_positions)
        complain(2, "--length is beyond the positions of ", path);
    if (length) encoder.length = (size_t)length;
    if (option[WEIGH].value && pool() != SENTENCES_MEAN) complain(2, "--weigh is for --pool mean", "");
    if (option[WEIGH].value) sentences_weigh(&encoder, option[WEIGH].value);
    if (option[LEARN].value && pool() == SENTENCES_LAST) complain(2, "--learn is for --pool mean or cls", "");
    if (option[LEARN].value) learn(option[LEARN].value);
    if (option[WEIGH].value) sentences_center(&encoder, option[WEIGH].value, 64);
    encoder.cut = 0; /* of the files before */
    if (option[SIMILARITY].value) compare(option[SIMILARITY].value);
    else if (!option[LEARN].value) write_vectors();
    sentences_tell_cut(&encoder, option[SIMILARITY].value ? "sentences" : "lines", " (see --length)");
    sentences_close(&encoder), cmha_context_close(&ctx);
    return end_program(0);
}
