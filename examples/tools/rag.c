/* Retrieval with CRAT: learns to find the passages of a text, keeps them in a base, and continues questions
   with the base at hand (--help lists everything):
       cc -O3 -march=native -fopenmp -I. examples/tools/rag.c -o build/rag -lopenblas -lm
       build/rag [OPTION...] --text FILE or --folder FOLDER
       build/rag [OPTION...] --model NAME --base FILE --ask "..." */
#define CMHA_IMPLEMENTATION
#include "cmha.h"

#define PROGRAM "rag"
#include "options.h"
#include "sentences.h"
#include "folders.h"

enum {
    TEXT, FOLDER, UPDATE, PARAGRAPHS, PAIRS, ASK, MODEL, SAVE, ENCODER_OF, POOL, BASE, TOKENIZER, VOCAB,
    WORDS, LENGTH, QUESTION, BATCH, STEPS, READ, TOP, TOKENS, SEED, THREADS, TEMPERATURE, HELD_OUT, QUIET,
    HELP, SET, N_OPTIONS
};
static setting option[N_OPTIONS] = {
    {"--text", NULL, "the passages, a line each"},
    {"--folder", NULL, "its .txt and .md files and those of folders in it, cut into passages at empty lines"},
    {"--update", NULL, "such a folder: --base gets what is new or changed there and loses what is gone"},
    {"--paragraphs", NULL, "they are paragraphs, with empty lines between"},
    {"--pairs", NULL,
     "tab-separated questions and answers, to report on; an answer is words that a passage has to contain, "
     "or\n"
     "                           the numbers of passages (lines, counted from 1) that are relevant: #12 #57"},
    {"--ask", NULL, "a question; - = every line of the standard input"},
    {"--model", NULL,
     "take NAME.encoder, NAME.tokenizer.json, NAME.counts and NAME.decoder instead of training; only a "
     "decoder\n"
     "                           that is not there is trained, but not for an --update"},
    {"--save", NULL, "write these after training"},
    {"--encoder", NULL,
     "CHECKPOINT: instead of a model of rag's own, any that makes vectors of texts (build/vectors), such as "
     "one of\n"
     "                           build/convert; passages are compared by cosines, and nothing is trained"},
    {"--pool", "mean", "of --encoder: mean of the tokens' states, cls: the first one's, last; mean"},
    {"--base", NULL, "the base of passages: written where there is a --text or --folder, else read"},
    {"--tokenizer", NULL,
     "a tokenizer, such as BERT's vocab.txt; else one in its manner is learnt from the text"},
    {"--vocab", NULL, "the same"},
    {"--words", "8000", "tokens of a learnt vocabulary"},
    {"--length", "96", "most tokens of a passage that are read; the encoder reads its rarest"},
    {"--question", "32", "most tokens of a question, the rarest"},
    {"--batch", "64", "passages in a step of the encoder; the decoder's has a quarter"},
    {"--steps", "600", "steps of the encoder, which learns to find a passage by a part of it"},
    {"--read", "300",
     "steps of the decoder, which learns to continue passages with the base at hand; 0 = no decoder"},
    {"--top", "5", "passages in each list for a question"},
    {"--tokens", "40", "tokens of a continuation"},
    {"--seed", "1", "of everything that is drawn"},
    {"--threads", "0", "0 = every core"},
    {"--temperature", "0.05", "of the similarities that the encoder learns from"},
    {"--held-out", "0.05", "share of the passages that nothing is trained on, but which are in the base"},
    {"--quiet", NULL, "no progress"},
    {"--help", NULL, "this page"},
    {"--set", NULL,
     "NAME=VALUE for any field of model or training (train_tiny --help lists them); encoder.NAME or "
     "decoder.NAME\n"
     "                           for one of the two; may be repeated"}};

enum { ENCODER, DECODER };
enum { RANKED = 100 }; /* passages of a list that is judged */
/* eps of a mean's phasor in training: its gradient is 1 over the mean's size */
static const cmha_real smooth = (cmha_real)0.1;

typedef struct rows { /* a batch in the making: rows of `width` until it is packed */
    int32_t *ids, *targets;
    unsigned char *mask;
    cmha_real *weight; /* a token's share in the mean of its row */
    size_t width, n, longest;
} rows;

static struct { cmha_model_config mc; cmha_trainer_config tc; cmha_model model; int there; } side[2];
static codec words;
static sentences other; /* of --encoder */
static cmha_knowledge base; /* of all passages */
static struct {
    char *texts;     /* one passage after another; NULL where they lie in a loaded base */
    text_slice *at;  /* [n] */
    uint64_t *begin; /* [n + 1], in texts */
    const int64_t *line; /* [n]: of their files; NULL where they are of no folder */
    int32_t *ids;    /* their tokens, all; NULL where nothing needs them */
    size_t n, *start, *order, used, held; /* order: `used` of them, shuffled; the first `held` are held out */
} passages;
static struct {
    folder_files now, before; /* its files; those of the base that is brought up to date */
    const folder_file **from; /* [now.n]: the file of `before` that this one still is, or NULL */
    folder_texts texts;
    cmha_knowledge old; /* that base */
    char *lines, *old_lines; /* what a base says of its files */
    size_t fresh, changed, gone, encoded; /* files; passages */
} source;
static struct { uint64_t passages; int64_t *of; } counts; /* [vocabulary]: the passages that hold a token */
static int32_t full_stop;  /* its token; -1: there is none */
static double *weight;     /* [vocabulary]: what a token counts in the encoder's mean */
static cmha_real *vectors; /* [passages, d_model] */

/* ---- The command line ---- */

static double number(int o) {
    double value = 0;
    if (!text_number(text_of(option[o].value), &value) || !(value >= 0 && value < 1e9))
        complain(2, "not a number: ", option[o].value);
    return value;
}

static size_t whole(int o) { return (size_t)whole_of(&option[o], 0, 999999999); }

/* The model that makes vectors, and how wide they are. */
static const cmha_model *finder(void) {
    return option[ENCODER_OF].value ? &other.model : &side[ENCODER].model;
}
static size_t width_of_vectors(void) { return finder()->config.d_model; }

/* Sets a field of the encoder, the decoder or both, of the model or, if it has
   none of that name, of the training. */
static void set_side(const char *name, const char *value) {
    int first = strncmp(name, "decoder.", 8) ? ENCODER : DECODER,
        last = strncmp(name, "encoder.", 8) ? DECODER : ENCODER;
    if (first == last) name += 8;
    for (int s = first; s <= last; s++) {
        const settable both[2] = {{cmha_model_table(), &side[s].mc}, {cmha_trainer_table(), &side[s].tc}};
        set_field(both, 2, name, value);
    }
}

/* Small CRAT models. The encoder sees both ways; the decoder has a window into the base in its
   second layer. Wide and shallow finds more than narrow and deep in the same time: the features
   are what passages are told apart by. */
static void preset(void) {
    for (int s = ENCODER; s <= DECODER; s++) {
        cmha_model_config *m = &side[s].mc;
        cmha_trainer_config *t = &side[s].tc;
        cmha_preset(NULL, "crat", m, t);
        m->n_layers = s == ENCODER ? 1 : 2, m->d_model = s == ENCODER ? 256 : 128,
        m->d_ff = s == ENCODER ? 128 : 256;
        m->n_heads = 4, m->real_heads = m->imag_heads = 1, m->dropout = 0.1;
        m->causal = s == DECODER, m->irw_layers = s == DECODER;
        t->lr = 1e-3, t->beta2 = 0.98, t->adam_eps = 1e-8;
        t->steps = s == ENCODER ? whole(STEPS) : whole(READ), t->length = whole(LENGTH),
        t->batch = whole(BATCH);
        if (s == DECODER) t->batch = (t->batch + 3) / 4;
        if (!t->steps) t->steps = 1; /* not taken */
    }
    /* a state near 0 counts for little; the gradient of its phase would drown the others */
    side[ENCODER].mc.complex_eps = 1;
    side[DECODER].mc.complex_eps = 0.3, side[DECODER].mc.irw_tau = 0.03, side[DECODER].tc.lr = 3e-3;
}

static void configure(int argc, char **argv) {
    const uint32_t flags = 1u << PARAGRAPHS | 1u << QUIET | 1u << HELP;
    int n_set = 0, o;
    const char *rest = read_options(option, N_OPTIONS, flags, argc, argv, &n_set);
    if (rest) complain(2, "see --help; what is ", rest);
    for (o = WORDS; o < SEED; o++) whole(o);
    for (o = THREADS + 1; o <= HELD_OUT; o++) number(o);
    if (!whole(TOP) || !whole(BATCH) || !whole(QUESTION))
        complain(2, "--top, --batch and --question are 1 or more", "");
    if (whole(LENGTH) < 4 || !(number(TEMPERATURE) > 0))
        complain(2, "--length is 4 or more, --temperature more than 0", "");
    open_context(&option[SEED], &option[THREADS], option[HELP].value != NULL);
    preset();
    for (int i = 1; i <= n_set; i++) {
        if (option[MODEL].value && !strncmp(argv[i], "encoder.", 8))
            complain(2, "--model has its encoder already; what is ", argv[i]);
        if (!whole(READ) && !strncmp(argv[i], "decoder.", 8))
            complain(2, "--read 0 trains no decoder; what is ", argv[i]);
        set_side(argv[i], cut_value(argv[i]));
    }
    side[DECODER].mc.irw_width = side[ENCODER].mc.d_model / 2;
}

/* A file beside saved models; in memory that the next call takes. */
static const char *file_of(const char *name, const char *ending) {
    static char path[4096];
    if ((size_t)snprintf(path, sizeof path, "%s%s", name, ending) >= sizeof path)
        complain(2, "too long a name: ", name);
    return path;
}

static const char *const saved[] = {".encoder", ".decoder", ".counts", ".tokenizer.json"}; /* beside NAME */
enum { SAVED = 4 };

/* Ends the program where a base that is made could not be written, or would replace one of n files that are
   read or one of a model's. */
static void spare_by_base(const char *to, const char *const *in, size_t n) {
    refuse_replacing(option[BASE].name, to, in, n);
    for (int i = 0; i < SAVED; i++) {
        const char *own = option[MODEL].value ? file_of(option[MODEL].value, saved[i]) : NULL;
        refuse_replacing(option[BASE].name, to, &own, 1);
    }
    must(text_may_save(to, failure));
}

/* The same of models that are saved. The tokenizer among them may be the one that was given, last in `in`. */
static void spare_by_models(const char *name, const char *const *in, size_t n) {
    for (int i = 0; i < SAVED; i++)
        refuse_replacing(option[SAVE].name, file_of(name, saved[i]), in, i + 1 < SAVED ? n : n - 1);
    must(text_may_save(file_of(name, saved[0]), failure));
}

/* Ends the program where one file is to be written and read; an --update may replace its base. */
static void spare(void) {
    const char *in[] = {option[TEXT].value, option[PAIRS].value, option[ENCODER_OF].value, NULL,
                        option[TOKENIZER].value ? option[TOKENIZER].value : option[VOCAB].value};
    int makes = option[BASE].value && (option[TEXT].value || option[FOLDER].value);
    if (makes) spare_by_base(option[BASE].value, in, 5);
    else if (option[UPDATE].value) must(text_may_save(option[BASE].value, failure));
    in[3] = option[BASE].value; /* read, or made beside the models */
    if (option[SAVE].value) spare_by_models(option[SAVE].value, in, 5);
}

/* Ends the program where a continuation is asked for and there is no decoder: --tokens 0 asks for none. */
static void refuse_continuing(void) {
    int makes = option[TEXT].value || option[FOLDER].value;
    if (whole(TOKENS) && !side[DECODER].there && !(makes && whole(READ)))
        refuse_given(option, 1u << TOKENS, " is for a decoder, and here is none");
}

/* The same of options for training a decoder: --read 0 asks for none. */
static void refuse_reading(void) {
    const uint64_t reading = 1u << BATCH | 1u << HELD_OUT | 1u << SET | (whole(READ) ? 1u << READ : 0);
    int makes = option[TEXT].value || option[FOLDER].value;
    if (side[DECODER].there || !makes || !whole(READ))
        refuse_given(option, reading, " is for training a decoder, and here none is trained");
}

/* Ends the program where an option is given that what it is called for does not read. */
static void refuse_unread(void) {
    const uint64_t encoder = 1u << WORDS | 1u << STEPS | 1u << TEMPERATURE;
    const uint64_t own = encoder | 1u << LENGTH | 1u << QUESTION | 1u << BATCH | 1u << READ | 1u << TOKENS |
                         1u << HELD_OUT | 1u << SET;
    const uint64_t listing = 1u << TOP | (option[MODEL].value ? 1u << QUESTION : 0);
    if (option[ENCODER_OF].value) refuse_given(option, own, " is for models of rag's own, not for --encoder");
    else refuse_given(option, 1u << POOL, " is for --encoder");
    if (option[MODEL].value) refuse_given(option, encoder, " is for training an encoder, not for --model");
    if (option[TOKENIZER].value || option[VOCAB].value)
        refuse_given(option, 1u << WORDS, " is for a vocabulary that is learnt, not for --tokenizer");
    if (option[TOKENIZER].value) refuse_given(option, 1u << VOCAB, " is --tokenizer, and one is enough");
    if (!option[TEXT].value) refuse_given(option, 1u << PARAGRAPHS, " is for a --text");
    if (option[ASK].value && !option[MODEL].value) refuse_continuing();
    if (option[ASK].value) return;
    if (whole(TOKENS)) refuse_given(option, 1u << TOKENS, " is for continuing a question of --ask");
    if (!option[PAIRS].value) refuse_given(option, listing, " is for questions of --ask and --pairs");
    if (option[PAIRS].value || option[TEXT].value || option[FOLDER].value || option[UPDATE].value ||
        option[SAVE].value)
        return;
    if (option[MODEL].value) refuse_reading();
    complain(2, "nothing is asked of the base: see --ask and --pairs", "");
}

/* Which options belong together */
static void check_options(void) {
    const char *text = option[TEXT].value, *update = option[UPDATE].value, *in = option[FOLDER].value;
    const char *encoder = option[ENCODER_OF].value, *model = encoder ? encoder : option[MODEL].value;
    int own = option[MODEL].value || option[SAVE].value || option[TOKENIZER].value || option[VOCAB].value;
    if (encoder && own)
        complain(2, "--encoder is a model of its own; take no --model, --save or --tokenizer beside it", "");
    if ((text != NULL) + (in != NULL) + (update != NULL) > 1)
        complain(2, "see --help; one of --text, --folder and --update is enough", "");
    if (update && !(model && option[BASE].value))
        complain(2, "see --help; --update needs --model or --encoder, and --base", "");
    if (!text && !in && !(model && option[BASE].value))
        complain(2, "see --help; a --text or a --folder is needed, or --model or --encoder and --base", "");
    static const int readers[] = {TEXT, PAIRS, ASK};
    int streams = 0;
    for (int i = 0; i < 3; i++) {
        const char *path = option[readers[i]].value;
        streams += path && !strcmp(path, "-");
    }
    if (streams > 1) complain(2, "only one of --text, --pairs and --ask can be the standard input", "");
    if (text || (!in && !update)) return;
    if (option[BASE].value && folder_is_text(option[BASE].value))
        complain(2, "this name is one of a text, not of a --base: ", option[BASE].value);
}

static int help(void) {
    puts("rag [OPTION...] --text FILE, or --folder FOLDER: learns to find its passages, then answers --ask "
         "and reports on\n"
         "                                                --pairs\n"
         "rag [OPTION...] --model NAME --text FILE, --folder FOLDER, or --base FILE: the same with what was "
         "trained before\n"
         "rag [OPTION...] --model NAME --base FILE --update FOLDER: brings a base of a folder up to date\n"
         "rag [OPTION...] --encoder CHECKPOINT, in the place of --model NAME: the same with vectors of any "
         "model\n");
    print_options(option, N_OPTIONS, 14, 9);
    return end_help("build/rag --text notes.txt --ask 'Who wrote it?'");
}

/* ---- Passages ---- */

static void add_passage(text_slice s) {
    size_t n = passages.n++;
    if (s.n) memcpy(passages.texts + passages.begin[n], s.at, s.n);
    passages.begin[n + 1] = passages.begin[n] + s.n;
}

/* The lines of the text, empty ones too, so that their numbers are line numbers; or its paragraphs. */
static void read_passages(const char *path) {
    char *text;
    size_t bytes, lines = 2, i;
    int paragraphs = option[PARAGRAPHS].value != NULL;
    must(text_read(path, (size_t)0xFFFFFFFF, &text, &bytes, failure));
    for (i = 0; i < bytes; i++) lines += text[i] == '\n';
    passages.texts = take(bytes, 1), passages.begin = take(lines, sizeof *passages.begin);
    text_slice paragraph = {NULL, 0};
    for (const char *at = text_lines(text, bytes); at;) {
        text_slice line = text_line(&at, text + bytes);
        if (!paragraphs) {
            add_passage(line);
            continue;
        }
        if (line.n && !paragraph.n) paragraph = line;
        else if (line.n) paragraph.n = (size_t)(line.at + line.n - paragraph.at);
        if (paragraph.n && (!line.n || !at)) add_passage(paragraph), paragraph.n = 0;
    }
    free(text);
    if (!passages.n) complain(1, "there are no passages in ", path);
    passages.at = take(passages.n, sizeof *passages.at);
    for (i = 0; i < passages.n; i++) {
        passages.at[i].at = passages.texts + passages.begin[i];
        passages.at[i].n = (size_t)(passages.begin[i + 1] - passages.begin[i]);
    }
}

static void load_passages(const char *path) {
    /* read: a mapped file that shrinks would end the program */
    check(cmha_knowledge_open(&base, &ctx, path, 0));
    if (!base.n || !base.texts) complain(1, "a base without passages: ", path);
    passages.n = base.n, passages.at = take(base.n, sizeof *passages.at);
    for (size_t i = 0; i < base.n; i++) passages.at[i].at = cmha_knowledge_text(&base, i, &passages.at[i].n);
}

/* ---- Passages of a folder ---- */

/* Takes a file's passages over from the base. */
static void keep_file(folder_file *f, const folder_file *same) {
    f->hash = same->hash;
    f->foreign = same->foreign;
    for (size_t p = same->first; p < same->first + same->passages; p++) {
        text_slice text;
        text.at = cmha_knowledge_text(&source.old, p, &text.n);
        must(folder_put(&source.texts, text, source.old.ids[p], failure));
    }
}

/* Finds the passages of file i: those of the base if size and time are the same, or the contents. */
static void read_file(const char *root, size_t i) {
    folder_file *f = source.now.files + i;
    const folder_file *before = folder_find(&source.before, f->name);
    char *text = NULL;
    int same = before ? folder_same_stamp(f, before) : 0;
    f->first = source.texts.n;
    if (!same) {
        must(folder_read(root, f, &text, failure));
        f->hash = folder_hash(UINT64_C(0xCBF29CE484222325), text, (size_t)f->size);
        if (before) same = before->size == f->size && before->hash == f->hash;
    }
    if (same) {
        source.from[i] = before;
        keep_file(f, before);
    } else {
        text_slice all = {text, (size_t)f->size};
        f->foreign = !folder_is_utf8(text, all.n, 0);
        if (!f->foreign) must(folder_cut(&source.texts, all, failure));
        source.fresh += !f->foreign && !before;
        source.changed += before != NULL;
    }
    f->passages = source.texts.n - f->first;
    free(text);
}

static void read_folder(const char *root) {
    char line[TEXT_ERROR];
    must(folder_list(&source.now, root, failure));
    source.from = take(source.now.n, sizeof *source.from);
    for (size_t i = 0; i < source.now.n; i++) read_file(root, i);
    for (size_t i = 0; i < source.before.n; i++) {
        const folder_file *f = source.before.files + i;
        source.gone += !f->foreign && !folder_find(&source.now, f->name);
    }
    if (!source.texts.n) complain(1, "there is no text in .txt or .md files in ", root);
    must(folder_write(&source.now, &source.lines, failure));
    folder_skipped(&source.now, line);
    if (*line) complain(0, "skipped: ", line);
    passages.n = source.texts.n;
    passages.line = source.texts.line;
    passages.texts = source.texts.bytes;
    passages.begin = source.texts.begin;
    passages.at = take(passages.n, sizeof *passages.at);
    for (size_t i = 0; i < passages.n; i++) {
        passages.at[i].at = passages.texts + passages.begin[i];
        passages.at[i].n = (size_t)(passages.begin[i + 1] - passages.begin[i]);
    }
}

/* ---- Tokens ---- */

/* A token's weight is the root of its inverse document frequency: question and passage both weigh a token
   that they share, so that it counts in their similarity as in BM25. */
static void weigh(void) {
    weight = take(words.size, sizeof *weight);
    for (size_t i = 0; i < words.size; i++)
        weight[i] = sqrt(text_idf((size_t)counts.passages, (size_t)counts.of[i]));
    if (words.unk >= 0) weight[words.unk] = 0; /* any word may be behind it */
}

/* Their tokens; and the weights, unless a model brought its counts along. */
static void encode_passages(void) {
    size_t n = passages.n, i, *last = take(words.size, sizeof *last);
    int64_t *count = take(words.size, sizeof *count);
    codec_ids ids = {NULL, 0, 0};
    passages.start = take(n + 1, sizeof *passages.start);
    for (size_t p = 0; p < n; p++) {
        must(codec_encode(&words, passages.at[p].at, passages.at[p].n, 0, &ids, failure));
        passages.start[p + 1] = ids.n;
        for (i = passages.start[p]; i < ids.n; i++)
            if (last[ids.at[i]] != p + 1) last[ids.at[i]] = p + 1, count[ids.at[i]]++;
    }
    passages.ids = ids.at;
    free(last);
    if (counts.of) {
        free(count);
        return;
    }
    counts.passages = n;
    counts.of = count;
    weigh();
}

/* ---- Batches ---- */

static rows make_rows(size_t n, size_t width) {
    rows r = {.width = width};
    times(n, width); /* ends the program where that is too much */
    r.ids = take(n * width, sizeof *r.ids), r.targets = take(n * width, sizeof *r.targets),
    r.mask = take(n * width, 1);
    r.weight = take(n * width, sizeof *r.weight);
    return r;
}

static void close_rows(rows *r) { free(r->ids), free(r->targets), free(r->mask), free(r->weight); }

static void put(rows *r, size_t i, int32_t id) {
    size_t at = (r->n - 1) * r->width + i;
    r->ids[at] = id, r->mask[at] = 1;
    if (i >= r->longest) r->longest = i + 1;
}

/* A row of the tokens of most weight, in their order, each left out with probability `drop`. */
static void add_row(rows *r, const int32_t *ids, size_t n, double drop, cmha_rng *rng) {
    size_t at = r->n++ * r->width, used = 0, i;
    double *tells = take(n, sizeof *tells), sum = 0;
    int64_t *best = take(r->width, sizeof *best);
    memset(r->mask + at, 0, r->width), memset(r->weight + at, 0, r->width * sizeof *r->weight);
    for (i = 0; i < n; i++) tells[i] = drop > 0 && cmha_rng_uniform(rng) < drop ? 0 : weight[ids[i]];
    text_rank(tells, n, r->width, best);
    for (i = 0; i < r->width && best[i] >= 0; i++) sum += tells[best[i]], tells[best[i]] *= -1;
    for (i = 0; i < n; i++)
        if (tells[i] < 0) r->weight[at + used] = (cmha_real)(-tells[i] / sum), put(r, used++, ids[i]);
    free(tells), free(best);
}

/* A row for the decoder: [CLS] and what follows, with the next token as target; ends
   with [SEP] where it ends the passage. */
static void add_text_row(rows *r, const int32_t *ids, size_t n) {
    size_t at = r->n * r->width, i;
    memset(r->mask + at, 0, r->width), r->n++;
    for (i = 0; i < r->width; i++) r->targets[at + i] = i < n ? ids[i] : i == n ? words.sep : -1;
    for (i = 0; i < r->width && i <= n; i++) put(r, i, i ? ids[i - 1] : words.cls);
}

/* The rows as a batch, as long as the longest; empties r for the next one. */
static cmha_batch pack(rows *r) {
    cmha_batch b = {.ids = r->ids, .targets = r->targets, .key_mask = r->mask, .batch = r->n};
    b.length = r->longest ? r->longest : 1;
    for (size_t i = 0; i < r->n; i++) {
        memmove(r->ids + i * b.length, r->ids + i * r->width, b.length * sizeof *r->ids);
        memmove(r->targets + i * b.length, r->targets + i * r->width, b.length * sizeof *r->ids);
        memmove(r->mask + i * b.length, r->mask + i * r->width, b.length);
        memmove(r->weight + i * b.length, r->weight + i * r->width, b.length * sizeof *r->weight);
    }
    for (size_t i = 0; i < r->n * b.length; i++)
        if (!r->mask[i]) r->ids[i] = words.pad;
    r->n = r->longest = 0;
    return b;
}

/* ---- The encoder ---- */

/* What cmha_model_vectors computes, by the tokens' weights and on a tape -> [rows, d_model]; empties r. */
static cmha_tensor *mean_phasors(cmha_tape *tape, rows *r) {
    cmha_batch b = pack(r);
    cmha_model *model = &side[ENCODER].model;
    size_t tokens[3] = {b.batch, 1, b.length}, means[2] = {b.batch, model->config.d_model};
    cmha_tensor *w = cmha_tensor_wrap(tape, 3, tokens, r->weight, NULL);
    cmha_tensor *z = cmha_model_states(model, tape, &b, NULL);
    z = cmha_phasor(tape, z, (cmha_real)model->config.complex_eps);
    return cmha_reshape(tape, cmha_matmul(tape, w, z, 0), 2, means);
}

/* Cross-entropy of finding, among the passages of a batch, that of each question, and the other way round.
   *found: how many questions have theirs in the first place. */
static cmha_tensor *contrast(cmha_tape *tape, rows *question, rows *text, const int32_t *own, double *found) {
    size_t n = question->n;
    cmha_tape_reset(tape);
    cmha_tensor *q = cmha_phasor(tape, mean_phasors(tape, question), smooth), *x, *y;
    cmha_tensor *p = cmha_phasor(tape, mean_phasors(tape, text), smooth);
    cmha_real scale = (cmha_real)(2 / (number(TEMPERATURE) * (double)side[ENCODER].mc.d_model));
    x = cmha_scale(tape, cmha_matmul(tape, q, p, 1), scale),
    y = cmha_scale(tape, cmha_matmul(tape, p, q, 1), scale);
    *found = 0;
    for (size_t i = 0, j; x && i < n; i++) {
        for (j = 0; j < n && !(j != i && x->data[i * n + j] >= x->data[i * n + i]); j++) continue;
        *found += j == n;
    }
    x = cmha_add(tape, cmha_cross_entropy(tape, x, own, -1, NULL),
                 cmha_cross_entropy(tape, y, own, -1, NULL));
    return cmha_scale(tape, x, (cmha_real)0.5);
}

/* Two views of a passage: its first sentence (of a passage of one: its first half) or a span of 8 to 40
   tokens, and the rest; every tenth rest keeps it, so that words which are the same are worth something.
   Without rng: the first sentence, nothing dropped. */
static void add_views(rows *question, rows *text, size_t p, cmha_rng *rng) {
    const int32_t *ids = passages.ids + passages.start[p];
    size_t n = passages.start[p + 1] - passages.start[p], first = 0, span = 0, begin = 0;
    int keep = rng && cmha_rng_uniform(rng) < 0.1;
    while (span < n && ids[span] != full_stop) span++;
    if (span + 2 > n) span = (n + 1) / 2;
    if (rng && cmha_rng_uniform(rng) < 0.5) {
        span = 8 + (size_t)cmha_rng_below(rng, 33);
        if (span > n / 2) span = (n + 1) / 2;
        first = (size_t)cmha_rng_below(rng, n - span + 1);
    }
    add_row(question, ids + first, span, rng ? 0.1 : 0, rng);
    int32_t *rest = take(n, sizeof *rest);
    size_t m = keep ? 0 : span;
    memcpy(rest, ids, (m ? first : n) * sizeof *rest);
    if (m) memcpy(rest + first, ids + first + span, (n - first - span) * sizeof *rest);
    if (rng && n - m > text->width && cmha_rng_uniform(rng) < 0.5)
        begin = (size_t)cmha_rng_below(rng, n - m - text->width + 1);
    add_row(text, rest + begin, n - m - begin, rng ? 0.1 : 0, rng);
    free(rest);
}

/* The mean loss and share of questions found on held-out passages, a batch of them at a time. */
static void measure_encoder(cmha_tape *tape, rows *question, rows *text, const int32_t *own, size_t batch) {
    double loss = 0, found = 0, right, n = 0;
    tape->recording = 0;
    for (size_t at = 0; at < passages.held;) {
        for (; at < passages.held && question->n < batch; at++)
            add_views(question, text, passages.order[at], NULL);
        size_t rows_now = question->n;
        cmha_tensor *x = contrast(tape, question, text, own, &right);
        check(cmha_tape_status(tape));
        loss += (double)x->data[0] * (double)rows_now, found += right, n += (double)rows_now;
    }
    tape->recording = 1;
    if (n > 0) printf(", held out: %.3f, %.0f of %.0f found in their batches", loss / n, found, n);
    else printf(", nothing is held out");
    puts("");
}

static void learn_to_find(void) {
    cmha_trainer trainer;
    cmha_tape tape;
    cmha_model *model = &side[ENCODER].model;
    size_t *order = passages.order + passages.held, n = passages.used - passages.held,
           batch = side[ENCODER].tc.batch, at = n;
    double start = seconds(), loss = 0, found;
    if (batch > n) batch = n;
    rows question = make_rows(batch, whole(QUESTION)), text = make_rows(batch, whole(LENGTH));
    int32_t *own = take(batch, sizeof *own);
    for (size_t i = 0; i < batch; i++) own[i] = (int32_t)i;
    side[ENCODER].tc.batch = side[ENCODER].tc.length = 1; /* the activations are on the tape */
    check(cmha_trainer_init(&trainer, model, &side[ENCODER].tc)), check(cmha_tape_init(&tape, &ctx, 1));
    for (size_t step = 0; step < side[ENCODER].tc.steps; step++) {
        cmha_rng rng = cmha_rng_make(ctx.config.seed, 1000 + step);
        if (at + batch > n) text_shuffle(order, n, (ctx.config.seed << 32) + step), at = 0;
        for (size_t i = 0; i < batch; i++) add_views(&question, &text, order[at++], &rng);
        cmha_tensor *x = contrast(&tape, &question, &text, own, &found);
        check(cmha_tape_backward(&tape, x, 1));
        loss = loss > 0 ? 0.95 * loss + 0.05 * (double)x->data[0] : (double)x->data[0];
        cmha_status status = cmha_trainer_apply(&trainer, NULL);
        if (status == CMHA_ERR_NOT_FINITE) complain(0, "step skipped: ", cmha_error(&ctx));
        else check(status);
        if (option[QUIET].value || ((step + 1) % 50 && step + 1 < side[ENCODER].tc.steps)) continue;
        printf("encoder: step %zu/%zu  %.0f s  loss %.3f (guessing: %.3f)", step + 1, side[ENCODER].tc.steps,
               seconds() - start, loss, log((double)batch));
        measure_encoder(&tape, &question, &text, own, batch), fflush(stdout);
    }
    cmha_trainer_close(&trainer), cmha_tape_close(&tape), close_rows(&question), close_rows(&text), free(own);
}

/* ---- What makes vectors ---- */

static uint64_t hash_number(uint64_t hash, uint64_t number) {
    char bytes[8];
    for (size_t i = 0; i < 8; i++) bytes[i] = (char)(unsigned char)(number >> 8 * i & 255);
    return folder_hash(hash, bytes, 8);
}

/* A hash of the encoder */
static uint64_t encoder_identity(void) {
    const cmha_parameters *p = &finder()->parameters;
    const char *identity = option[ENCODER_OF].value ? other.words.identity : words.identity;
    uint64_t hash = folder_hash(width_of_vectors(), identity, strlen(identity));
    for (size_t i = 0; i < p->size; i++) {
        float x = (float)p->data[i];
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        hash = hash_number(hash, bits);
    }
    return hash;
}

/* The same with all else that vectors depend on: two bases of equal passages and identity are equal. */
static void encoding_identity(char text[24]) {
    uint64_t hash = hash_number(encoder_identity(), whole(LENGTH));
    if (option[ENCODER_OF].value)
        hash = hash_number(hash, (uint64_t)sentences_pool_named(option[POOL].value));
    hash = hash_number(hash, counts.passages);
    for (size_t i = 0; i < words.size && counts.of; i++) hash = hash_number(hash, (uint64_t)counts.of[i]);
    snprintf(text, 24, "%016llx", (unsigned long long)hash);
}

/* That of the encoder alone, as files name it */
static void encoder_name(char text[24]) {
    snprintf(text, 24, "%016llx", (unsigned long long)encoder_identity());
}

static void save_counts(const char *path) {
    char passages_text[24], encoder[24];
    const char *notes[6] = {"format", "rag counts", "passages", passages_text, "encoder", encoder};
    cmha_archive_item item = {"counts", (const cmha_real *)(const void *)counts.of, &words.size, 1, "I64"};
    snprintf(passages_text, sizeof passages_text, "%llu", (unsigned long long)counts.passages);
    encoder_name(encoder);
    check(cmha_archive_write(&ctx, path, &item, 1, notes, 3));
}

/* Opens the counts beside a model, which are of its encoder. 0: the model is of a release that did not keep
   them. */
static int open_counts(cmha_archive *file, const char *path) {
    char encoder[24];
    cmha_status status = cmha_archive_open(file, &ctx, path);
    if (status == CMHA_ERR_NOT_FOUND) return 0;
    check(status);
    const char *own = cmha_archive_metadata(file, "encoder");
    encoder_name(encoder);
    if (!own) complain(1, "these are no counts of the model's tokens: ", path);
    else if (strcmp(own, encoder)) complain(1, "another encoder's counts: ", path);
    return 1;
}

/* In how many passages each token was as the model learned, so that an equal passage has an equal vector
   whatever else there is. Returns as open_counts. */
static int load_counts(const char *path) {
    cmha_archive file;
    if (!open_counts(&file, path)) return 0;
    const cmha_archive_tensor *t = cmha_archive_find(&file, "counts");
    const char *n = cmha_archive_metadata(&file, "passages");
    if (!t || t->count != words.size || !n || !text_whole(n, &counts.passages) || counts.passages > INT64_MAX)
        complain(1, "these are no counts of the model's tokens: ", path);
    counts.of = take(words.size, sizeof *counts.of);
    check(cmha_archive_read_i64(&file, t, counts.of));
    for (size_t i = 0; i < words.size; i++)
        if (counts.of[i] < 0 || (uint64_t)counts.of[i] > counts.passages)
            complain(1, "these are no counts of the model's tokens: ", path);
    cmha_archive_close(&file);
    weigh();
    return 1;
}

/* ---- The base ---- */

/* What a base says of the files of its passages, to be freed; NULL: it is not one of a folder. `encoding`
   gets the identity of what made its vectors, of a text that of the encoder alone; empty: it is of a release
   that did not keep that. */
static char *files_of_base(const char *path, char encoding[24]) {
    cmha_archive file;
    char *copy = NULL;
    check(cmha_archive_open(&file, &ctx, path));
    const char *lines = cmha_archive_metadata(&file, "rag.files");
    const char *by = cmha_archive_metadata(&file, lines ? "rag.encoding" : "rag.encoder");
    snprintf(encoding, 24, "%s", by ? by : "");
    if (lines) {
        size_t bytes = strlen(lines) + 1;
        copy = take(bytes, 1);
        memcpy(copy, lines, bytes);
    }
    cmha_archive_close(&file);
    return copy;
}

/* Reads that; the base must be of this encoder. */
static void open_files(folder_files *files, const cmha_knowledge *of, const char *lines,
                       const char *encoding) {
    const char *path = option[BASE].value;
    char own[24], line[TEXT_ERROR];
    int done = of->ids && of->texts ? folder_parse(files, lines, of->n, line)
                                    : text_fail(line, "a list of files without their lines or texts");
    for (size_t i = 0; i < of->n; i++)
        if (done && of->ids[i] < 1) done = text_fail(line, "lines are counted from 1");
    if (!done) must(text_fail(failure, "the base %s is damaged: %s", path, line));
    encoding_identity(own);
    if (strcmp(own, encoding) || of->d_r != width_of_vectors() / 2)
        complain(1, "another encoder, --length, --pool or NAME.counts made the base ", path);
}

static int is_blank(text_slice s) {
    size_t i = 0;
    while (i < s.n && folder_is_blank(s.at[i])) i++;
    return i == s.n;
}

/* Makes vectors [n, width] of texts with --encoder, each of length 1; of a blank one, for which a model may
   have no token, zeros, which are like nothing. */
static void vectors_by_other(const text_slice *texts, size_t n, cmha_real *out) {
    size_t width = width_of_vectors(), used = 0, i, j;
    text_slice *some = take(n, sizeof *some);
    float *x = take(times(n, width), sizeof *x), *from = x;
    for (i = 0; i < n; i++)
        if (!is_blank(texts[i])) some[used++] = texts[i];
    sentences_vectors(&other, some, used, 16, sentences_pool_named(option[POOL].value), 0, x);
    for (i = 0; i < n; i++) {
        int blank = is_blank(texts[i]);
        for (j = 0; j < width; j++) out[i * width + j] = blank ? 0 : (cmha_real)from[j];
        from += blank ? 0 : width;
    }
    free(some);
    free(x);
}

/* vectors [n, d_model] of tokens ids[start[i] .. start[i + 1]) */
static void find_vectors(const int32_t *ids, const size_t *start, size_t n, size_t width, cmha_real *out) {
    rows r = make_rows(64, width);
    cmha_tape tape;
    check(cmha_tape_init(&tape, &ctx, 0));
    for (size_t i = 0; i < n; i++) {
        add_row(&r, ids + start[i], start[i + 1] - start[i], 0, NULL);
        if (r.n < 64 && i + 1 < n) continue;
        cmha_tape_reset(&tape);
        cmha_tensor *v = mean_phasors(&tape, &r);
        check(cmha_tape_status(&tape));
        memcpy(out, v->data, v->size * sizeof *out), out += v->size;
    }
    cmha_tape_close(&tape), close_rows(&r);
}

/* The vectors of a folder's passages, those of a file together: their last bits may depend on what shares a
   batch, and a base is the same whether a file was there before or not. */
static void encode_files(void) {
    size_t d = width_of_vectors();
    for (size_t i = 0; i < source.now.n; i++) {
        const folder_file *f = source.now.files + i, *same = source.from[i];
        cmha_real *out = vectors + f->first * d;
        size_t *start;
        codec_ids ids = {NULL, 0, 0};
        if (!f->passages) continue;
        if (same) {
            memcpy(out, source.old.vectors + same->first * d, f->passages * d * sizeof *out);
            continue;
        }
        source.encoded += f->passages;
        if (option[ENCODER_OF].value) {
            vectors_by_other(passages.at + f->first, f->passages, out);
            continue;
        }
        start = take(f->passages + 1, sizeof *start);
        for (size_t p = 0; p < f->passages; p++) {
            text_slice text = passages.at[f->first + p];
            must(codec_encode(&words, text.at, text.n, 0, &ids, failure));
            start[p + 1] = ids.n;
        }
        find_vectors(ids.at, start, f->passages, whole(LENGTH), out);
        codec_ids_free(&ids);
        free(start);
    }
}

static void build_base(void) {
    size_t d = width_of_vectors();
    vectors = take(times(passages.n, d), sizeof *vectors);
    if (passages.line) encode_files();
    else if (option[ENCODER_OF].value) vectors_by_other(passages.at, passages.n, vectors);
    else find_vectors(passages.ids, passages.start, passages.n, whole(LENGTH), vectors);
    if (option[ENCODER_OF].value) sentences_tell_cut(&other, "passages", "");
    check(cmha_knowledge_init(&base, &ctx, passages.n, d / 2, vectors, passages.line, passages.texts,
                              passages.begin));
}

/* A loaded base must be by the encoder that is here, and hold what this makes of its first passages. */
static void check_base(const char *path, const char *encoder) {
    size_t d = width_of_vectors(), n = base.n < 64 ? base.n : 64;
    cmha_real *own = take(n * d, sizeof *own);
    double apart = 0, size = 0;
    char name[24];
    encoder_name(name);
    if (base.d_r != d / 2 || (*encoder && strcmp(encoder, name)))
        complain(1, "another encoder made the base ", path);
    if (!*encoder) complain(0, "note: it names no encoder, so a few vectors are compared: ", path);
    if (option[ENCODER_OF].value) vectors_by_other(passages.at, n, own);
    else find_vectors(passages.ids, passages.start, n, whole(LENGTH), own);
    other.cut = 0; /* who made the base was told */
    for (size_t i = 0; i < n * d; i++) {
        if (is_blank(passages.at[i / d])) continue; /* a base of before has other vectors of these */
        apart += fabs((double)own[i] - (double)base.vectors[i]);
        size += fabs((double)own[i]);
    }
    if (!(apart <= 0.01 * size)) complain(1, "another encoder, rag, --length or --pool made the base ", path);
    free(own);
}

static void save_base(const char *path) {
    char identity[24], encoding[24];
    int files = source.lines != NULL;
    const char *notes[8] = {"format", "cmha knowledge", "identity", identity,
                            files ? "rag.encoding" : "rag.encoder", encoding, "rag.files", source.lines};
    size_t shape[2] = {base.n, 2 * base.d_r}, begins = base.n + 1, bytes = (size_t)base.text_begin[base.n];
    cmha_archive_item items[5] = {
        {"vectors", base.vectors, shape, 2, NULL},
        {"features", base.features, shape, 2, NULL},
        {"ids", (const cmha_real *)(const void *)base.ids, shape, 1, "I64"},
        {"text_begin", (const cmha_real *)(const void *)base.text_begin, &begins, 1, "I64"},
        {"texts", (const cmha_real *)(const void *)base.texts, &bytes, 1, "U8"}};
    snprintf(identity, sizeof identity, "%llu", (unsigned long long)base.identity);
    if (files) encoding_identity(encoding);
    else encoder_name(encoding);
    if (!base.ids) memmove(items + 2, items + 3, 2 * sizeof *items); /* only files have lines */
    check(cmha_archive_write(&ctx, path, items, base.ids ? 5 : 4, notes, files ? 4 : 3));
}

/* A base of the passages order[from], order[from + by], ..; *rows gets its vectors. */
static void part_of_base(cmha_knowledge *part, cmha_real **room, size_t from, size_t by) {
    size_t d = side[ENCODER].mc.d_model, n = 0;
    *room = take(times(passages.used, d), sizeof **room);
    for (size_t i = from; i < passages.used; i += by, n++)
        memcpy(*room + n * d, vectors + passages.order[i] * d, d * sizeof **room);
    check(cmha_knowledge_init(part, &ctx, n, d / 2, *room, NULL, NULL, NULL));
}

/* ---- The decoder ---- */

/* Exchanges the base of the decoder, if it has a window at all: with --set decoder.irw_layers=0 or
   decoder.family=real it has none. */
static void look_into(const cmha_knowledge *knowledge) {
    const cmha_model_config *c = &side[DECODER].mc;
    if (c->family == CMHA_FAMILY_CRAT && c->irw_layers)
        check(cmha_model_set_knowledge(&side[DECODER].model, knowledge));
}

/* Nats per token on the held-out passages, from their beginnings */
static double measure_decoder(const cmha_knowledge *knowledge, rows *r) {
    cmha_model *model = &side[DECODER].model;
    double sum = 0, n = 0, loss = 0;
    look_into(knowledge);
    for (size_t at = 0; at < passages.held;) {
        for (; at < passages.held && r->n < side[DECODER].tc.batch; at++) {
            size_t p = passages.order[at], begin = passages.start[p];
            add_text_row(r, passages.ids + begin, passages.start[p + 1] - begin);
        }
        cmha_batch b = pack(r);
        size_t targets = 0;
        for (size_t i = 0; i < b.batch * b.length; i++) targets += b.targets[i] >= 0;
        check(cmha_model_loss(model, &b, &loss));
        sum += loss * (double)targets, n += (double)targets;
    }
    return n > 0 ? sum / n : 0;
}

/* What the base is worth to the decoder: held-out passages, with a base of those trained on. */
static void report_decoder(rows *r) {
    cmha_knowledge training, shuffled;
    cmha_real *room, *moved;
    size_t d = side[ENCODER].mc.d_model, n = passages.used - passages.held, *order = take(n, sizeof *order);
    part_of_base(&training, &room, passages.held, 1);
    moved = take(times(n, d), sizeof *moved);
    shuffled = training; /* found by their own features, other passages' vectors come */
    for (size_t i = 0; i < n; i++) order[i] = i;
    text_shuffle(order, n, ctx.config.seed);
    for (size_t i = 0; i < n; i++) memcpy(moved + i * d, room + order[i] * d, d * sizeof *moved);
    shuffled.vectors = moved;
    printf("decoder: held-out passages, nats per token: %.4f with the base of the others,",
           measure_decoder(&training, r));
    printf(" %.4f without a base, %.4f with its vectors shuffled,", measure_decoder(NULL, r),
           measure_decoder(&shuffled, r));
    printf(" %.4f with the base that holds them too\n", measure_decoder(&base, r));
    cmha_knowledge_close(&training), free(room), free(moved), free(order);
}

/* A passage is never read with a base that holds it: two halves, each with the other's
   base; every fourth step without one. */
static void learn_to_read(void) {
    cmha_trainer trainer;
    cmha_knowledge half[2];
    cmha_real *room[2];
    cmha_model *model = &side[DECODER].model;
    size_t n = passages.used - passages.held, batch = side[DECODER].tc.batch;
    double start = seconds(), sum = 0, loss = 0;
    rows r = make_rows(batch, whole(LENGTH));
    for (size_t h = 0; h < 2; h++) part_of_base(&half[h], &room[h], passages.held + h, 2);
    check(cmha_trainer_init(&trainer, model, &side[DECODER].tc));
    for (size_t step = 0; step < side[DECODER].tc.steps; step++) {
        cmha_rng rng = cmha_rng_make(ctx.config.seed, 2000000 + step);
        size_t own = n > 1 ? step % 2 : 0;
        for (size_t i = 0; i < batch; i++) {
            size_t p =
                passages.order[passages.held + own + 2 * (size_t)cmha_rng_below(&rng, (n + 1 - own) / 2)];
            size_t begin = passages.start[p], tokens = passages.start[p + 1] - begin;
            size_t skip = tokens > r.width && cmha_rng_uniform(&rng) < 0.5
                              ? (size_t)cmha_rng_below(&rng, tokens - r.width + 1)
                              : 0;
            add_text_row(&r, passages.ids + begin + skip, tokens - skip);
        }
        cmha_batch b = pack(&r);
        look_into(step / 2 % 4 == 3 ? NULL : &half[1 - own]);
        cmha_status status = cmha_trainer_step_batch(&trainer, &b, &loss);
        if (status == CMHA_ERR_NOT_FINITE) complain(0, "step skipped: ", cmha_error(&ctx));
        else check(status);
        sum += loss;
        if (option[QUIET].value || ((step + 1) % 50 && step + 1 < side[DECODER].tc.steps)) continue;
        printf("decoder: step %zu/%zu  %.0f s  loss %.3f\n", step + 1, side[DECODER].tc.steps,
               seconds() - start, sum / (double)(step % 50 + 1));
        sum = 0, fflush(stdout);
    }
    if (passages.held) report_decoder(&r);
    for (size_t h = 0; h < 2; h++) cmha_knowledge_close(&half[h]), free(room[h]);
    cmha_trainer_close(&trainer), close_rows(&r);
}

/* ---- Searching ---- */

enum { LEARNED, LEXICAL, FUSED, CHANCE, LISTS };
static const char *searcher[] = {"CRAT encoder", "BM25, k1 1.2, b 0.75", "both, by reciprocal rank",
                                       "random"};
static struct {
    text_bm25 bm25;
    size_t depth; /* of the lists, -1 where no more was found */
    size_t tell;  /* tokens of the last question that tell something; of --encoder 0 */
    int64_t *list[LISTS];
    double *score[LISTS]; /* [passages] */
} hits;

static void open_search(void) {
    size_t top = whole(TOP) < passages.n ? whole(TOP) : passages.n;
    hits.depth = top < RANKED ? RANKED : top;
    for (int l = 0; l < LISTS; l++) {
        hits.list[l] = take(hits.depth, sizeof **hits.list);
        hits.score[l] = take(passages.n, sizeof **hits.score);
    }
    must(text_bm25_init(&hits.bm25, passages.at, passages.n, failure));
}

static void close_search(void) {
    for (int l = 0; l < LISTS; l++) free(hits.list[l]), free(hits.score[l]);
    text_bm25_close(&hits.bm25);
}

/* Lists what rag's encoder finds. */
static void search_by_own(text_slice question) {
    const cmha_real like = (cmha_real)1e-6;
    size_t start[2] = {0, 0}, i;
    hits.tell = 0;
    codec_ids ids = {NULL, 0, 0};
    cmha_real *features = take(side[ENCODER].mc.d_model, sizeof *features);
    cmha_real *similarity = take(hits.depth, sizeof *similarity);
    must(codec_encode(&words, question.at, question.n, 0, &ids, failure));
    start[1] = ids.n;
    for (i = 0; i < ids.n; i++) hits.tell += weight[ids.at[i]] > 0;
    find_vectors(ids.at, start, 1, whole(QUESTION), features);
    check(cmha_knowledge_search(&base, features, 1, hits.depth, like, hits.list[LEARNED], similarity));
    for (i = 0; i < passages.n; i++) hits.score[LEARNED][i] = 0;
    for (i = 0; i < hits.depth && hits.list[LEARNED][i] >= 0; i++)
        hits.score[LEARNED][hits.list[LEARNED][i]] = (double)similarity[i];
    codec_ids_free(&ids), free(features), free(similarity);
}

/* Lists what --encoder finds: by cosines, as its vectors have length 1. */
static void search_by_other(text_slice question) {
    size_t d = width_of_vectors();
    cmha_real *x = take(d, sizeof *x);
    vectors_by_other(&question, 1, x);
    for (size_t p = 0; p < passages.n; p++) {
        double sum = 0;
        for (size_t j = 0; j < d; j++) sum += (double)x[j] * (double)base.vectors[p * d + j];
        hits.score[LEARNED][p] = sum;
    }
    text_rank(hits.score[LEARNED], passages.n, hits.depth, hits.list[LEARNED]);
    free(x);
}

/* Lists what the encoder finds, what BM25 finds, and both fused; a passage unlike the question is in none. */
static void search(text_slice question) {
    if (option[ENCODER_OF].value) search_by_other(question);
    else search_by_own(question);
    for (size_t i = 0; i < passages.n; i++) hits.score[FUSED][i] = 0;
    text_bm25_scores(&hits.bm25, question, hits.score[LEXICAL]);
    text_rank(hits.score[LEXICAL], passages.n, hits.depth, hits.list[LEXICAL]);
    text_fuse(hits.list[LEARNED], hits.depth, hits.score[FUSED]);
    text_fuse(hits.list[LEXICAL], hits.depth, hits.score[FUSED]);
    text_rank(hits.score[FUSED], passages.n, hits.depth, hits.list[FUSED]);
}

/* ---- Judging ---- */

enum { AT_1, AT_5, AT_20, MRR, SHARE, MEASURES };

/* Adds what a list of RANKED passages is worth to measures; was anything found? */
static int judge(text_slice answer, const int64_t *list, double *measure) {
    size_t first = RANKED, right = 0, wanted = text_answers(answer, passages.at, passages.n, passages.n);
    for (size_t i = 0; i < RANKED; i++) {
        if (list[i] < 0 || !text_answers(answer, passages.at, passages.n, (size_t)list[i])) continue;
        if (i < first) first = i;
        right += i < 20;
    }
    measure[AT_1] += first < 1, measure[AT_5] += first < 5, measure[AT_20] += first < 20;
    measure[MRR] += first < RANKED ? 1 / (double)(first + 1) : 0;
    if (wanted) measure[SHARE] += (double)right / (double)wanted;
    return first < RANKED;
}

/* Has any passage the answer? */
static int has_answer(text_slice answer) {
    size_t p = 0;
    while (p < passages.n && !text_answers(answer, passages.at, passages.n, p)) p++;
    return p < passages.n;
}

static void print_measures(const char *name, const double *measure, size_t n, int share) {
    printf("%-36s", name);
    for (int i = 0; i < MEASURES - !share; i++) printf("  %9.3f", measure[i] / (double)n);
    puts("");
}

static void report(const char *path) {
    static const char *const columns[2] = {"1", "2"};
    text_table t;
    double measure[LISTS][MEASURES] = {{0}};
    size_t cut = 0, without = 0;
    must(text_table_load(&t, path, (size_t)1 << 31, columns, 2, failure));
    if (text_table_left(&t, path, failure)) complain(0, "warning, left out: ", failure);
    if (!t.rows) complain(1, "there are no questions with answers in ", path);
    cmha_rng rng = cmha_rng_make(ctx.config.seed, 3);
    int share = text_cell(&t, 0, 1).n && text_cell(&t, 0, 1).at[0] == '#';
    for (size_t q = 0; q < t.rows; q++) {
        search(text_cell(&t, q, 0));
        cut += hits.tell > whole(QUESTION);
        for (size_t p = 0; p < passages.n; p++) hits.score[CHANCE][p] = cmha_rng_uniform(&rng);
        text_rank(hits.score[CHANCE], passages.n, RANKED, hits.list[CHANCE]);
        int found = 0;
        for (int l = 0; l < LISTS; l++) found |= judge(text_cell(&t, q, 1), hits.list[l], measure[l]);
        if (!found) without += !has_answer(text_cell(&t, q, 1));
    }
    snprintf(failure, sizeof failure, "%zu questions have more than %zu tokens, of which the rarest are read",
             cut, whole(QUESTION));
    if (cut) complain(0, failure, " (see --question)");
    snprintf(failure, sizeof failure, "of %zu questions %zu have an answer that no passage has", t.rows,
             without);
    if (without) complain(0, failure, ", and count as not found");
    if (option[ENCODER_OF].value) sentences_tell_cut(&other, "questions", "");
    snprintf(failure, sizeof failure, "%zu questions, %zu passages", t.rows, passages.n);
    printf("%-36s   recall@1   recall@5  recall@20        MRR%s\n", failure, share ? "   found@20" : "");
    for (int l = 0; l < LISTS; l++) print_measures(searcher[l], measure[l], t.rows, share);
    printf("recall@k: share of questions with a relevant passage among the first k; MRR: mean of 1 / the "
           "place of the\n"
           "first, 0 beyond %d",
           RANKED);
    puts(share ? "; found@20: mean share of a question's relevant passages among the first 20" : "");
    text_table_close(&t);
}

/* ---- Asking ---- */

static int show_token(void *user, const int32_t *token, size_t batch) {
    (void)batch;
    if (*token == words.sep || *token < 0) return 1;
    codec_show(&words, user, *token);
    return 0;
}

static void continue_text(text_slice question, const cmha_knowledge *knowledge, const char *label) {
    cmha_cache cache;
    codec_text text = {.mute = 1};
    codec_ids prompt = {NULL, 0, 0};
    char line[160];
    size_t most = whole(LENGTH) - 1, tokens = whole(TOKENS);
    must(codec_append(&prompt, &words.cls, 1, failure) &&
         codec_encode(&words, question.at, question.n, 0, &prompt, failure));
    snprintf(line, sizeof line, "of the question's %zu tokens the first %zu are continued (see --length)",
             prompt.n - 1, most - 1);
    if (prompt.n > most && knowledge) complain(0, line, ""); /* which is not so the second time */
    if (prompt.n > most) prompt.n = most;
    look_into(knowledge);
    check(cmha_cache_init(&cache, &side[DECODER].model, 1, prompt.n + tokens, 0, NULL));
    printf("%s:", label);
    for (size_t i = 0; i < prompt.n; i++) codec_show(&words, &text, prompt.at[i]);
    text.mute = 0;
    cmha_status status =
        cmha_generate(&cache, prompt.at, prompt.n, tokens, NULL, ctx.config.seed, show_token, &text);
    if (status != CMHA_STOPPED) check(status);
    codec_show_end(&words, &text), putchar('\n');
    cmha_cache_close(&cache), codec_ids_free(&prompt);
}

static void show_passage(size_t p) {
    text_slice s = passages.at[p];
    printf("#%zu  ", p + 1);
    size_t shown = s.n < 150 ? s.n : 150;
    while (shown < s.n && shown > 146 && (s.at[shown] & 0xC0) == 0x80) shown--; /* no half characters */
    text_show(s.at, shown, 1), puts(s.n > 150 ? " .." : "");
}

/* A passage of a file: where it begins, and its first characters in one line. */
static void show_place(size_t p) {
    char line[150];
    text_slice s = passages.at[p];
    size_t at = 0, n = 0, length;
    uint32_t c;
    for (; at < s.n; at += length) {
        int blank = folder_is_blank(s.at[at]);
        length = text_decode(s.at + at, s.n - at, &c);
        if (n + length > sizeof line) break;
        if (blank && (n ? line[n - 1] == ' ' : 1)) continue;
        memcpy(line + n, blank ? " " : s.at + at, length);
        n += length;
    }
    printf("%s:%lld  ", folder_of(&source.now, p)->name, (long long)passages.line[p]);
    text_show(line, n, 1);
    puts(at < s.n ? " .." : "");
}

/* Prints a line where the question that was searched for last has more tokens than are read. */
static void tell_cut(void) {
    char line[160];
    snprintf(line, sizeof line, "of the question's %zu tokens the rarest %zu are looked for (see --question)",
             hits.tell, whole(QUESTION));
    if (hits.tell > whole(QUESTION)) complain(0, line, "");
    if (option[ENCODER_OF].value) sentences_tell_cut(&other, "questions", "");
}

static void ask(text_slice question) {
    search(question);
    tell_cut();
    text_show(question.at, question.n, 1), putchar('\n');
    for (int l = LEARNED; l <= FUSED; l++) {
        printf("%s:%s\n", searcher[l], hits.list[l][0] < 0 ? " nothing" : "");
        for (size_t i = 0; i < whole(TOP) && i < hits.depth && hits.list[l][i] >= 0; i++) {
            int64_t p = hits.list[l][i];
            printf("  %-7.4f  ", hits.score[l][p]);
            if (passages.line) show_place((size_t)p);
            else show_passage((size_t)p);
        }
    }
    if (side[DECODER].there && whole(TOKENS))
        continue_text(question, &base, "  with the base"), continue_text(question, NULL, "  without it");
    fflush(stdout);
}

static void ask_all(const char *question) {
    input_line line = {NULL, 0, 0};
    if (strcmp(question, "-")) {
        ask(text_of(question));
        return;
    }
    while (next_line(&line)) {
        const text_slice text = {line.at, line.n};
        if (text.n) ask(text);
    }
    free(line.at);
}

/* ---- All of it ---- */

/* Opens the tokenizer that was given, that of saved models, one learnt from the passages, or bytes. */
static void open_words(const char *name, const char *identity) {
    const char *given = option[TOKENIZER].value ? option[TOKENIZER].value : option[VOCAB].value;
    codec_ids stop = {NULL, 0, 0};
    if (name) must(codec_may_be(given, name, &side[ENCODER].model.config, failure));
    if (given || name || !codec_can_learn()) must(codec_open(&words, given, name, identity, 0, failure));
    else {
        char *vocabulary;
        size_t bytes;
        must(text_learn(passages.at, passages.n, whole(WORDS), &vocabulary, &bytes, failure));
        must(codec_read(&words, vocabulary, bytes, "the learnt vocabulary", failure));
        free(vocabulary);
    }
    codec_add_specials(&words);
    must(codec_encode(&words, ".", 1, 0, &stop, failure));
    full_stop = stop.n == 1 ? stop.at[0] : -1;
    codec_ids_free(&stop);
    for (int s = ENCODER; s <= DECODER; s++)
        memcpy(side[s].mc.tokenizer, words.identity, sizeof words.identity);
}

static void load_models(const char *name) {
    check(cmha_model_open(&side[ENCODER].model, &ctx, file_of(name, ".encoder")));
    cmha_status status = cmha_model_open(&side[DECODER].model, &ctx, file_of(name, ".decoder"));
    cmha_archive file;
    if (status != CMHA_ERR_NOT_FOUND) check(status), side[DECODER].there = 1;
    open_words(name, side[ENCODER].model.config.tokenizer);
    if (open_counts(&file, file_of(name, ".counts"))) cmha_archive_close(&file);
    side[ENCODER].mc = side[ENCODER].model.config, side[DECODER].mc.irw_width = side[ENCODER].mc.d_model / 2;
    if (side[DECODER].there) side[DECODER].mc = side[DECODER].model.config;
    for (int s = ENCODER; s <= DECODER - !side[DECODER].there; s++)
        if (side[s].mc.vocabulary != words.size)
            complain(1, "see --tokenizer: this is not that of ", name);
}

/* Opens --encoder. */
static void open_other(const char *path) {
    sentences_open(&other, path, NULL);
    if (other.model.config.d_model % 2)
        complain(1, path, ": its vectors have an odd width, a base an even one");
    searcher[LEARNED] = "encoder, by cosines";
}

/* Which passages are trained on: those of a few tokens have no two views. */
static void choose_passages(void) {
    passages.order = take(passages.n, sizeof *passages.order);
    for (size_t p = 0; p < passages.n; p++)
        if (passages.start[p + 1] - passages.start[p] >= 4) passages.order[passages.used++] = p;
    if (passages.used < 4)
        complain(1, "too few passages to learn from: ", option[option[TEXT].value ? TEXT : FOLDER].value);
    text_shuffle(passages.order, passages.used, ctx.config.seed);
    passages.held = (size_t)(number(HELD_OUT) * (double)passages.used);
    if (passages.held + 2 > passages.used) complain(2, "too much is held out: ", option[HELD_OUT].value);
}

static void train_decoder(void) {
    side[DECODER].mc.vocabulary = words.size;
    check(cmha_model_init(&side[DECODER].model, &ctx, &side[DECODER].mc));
    side[DECODER].there = 1;
    if (!option[QUIET].value) printf("decoder of %zu parameters\n", side[DECODER].model.parameters.size);
    learn_to_read();
}

static void train_models(void) {
    open_words(NULL, "");
    encode_passages(), choose_passages();
    side[ENCODER].mc.vocabulary = words.size;
    check(cmha_model_init(&side[ENCODER].model, &ctx, &side[ENCODER].mc));
    /* CRAT adds sines of size 1 to the embeddings. Tokens larger than these make passages with
       the same words similar at once. */
    cmha_tensor *tokens = side[ENCODER].model.token_weight;
    for (size_t i = 0; i < tokens->size; i++) tokens->data[i] *= 30;
    if (!option[QUIET].value)
        printf("%zu passages, %zu tokens of a vocabulary of %zu; encoder of %zu parameters; %d threads\n",
               passages.n, passages.start[passages.n], words.size, side[ENCODER].model.parameters.size,
               ctx.threads);
    if (whole(STEPS)) learn_to_find();
    build_base();
    if (whole(READ)) train_decoder();
}

static void save_models(void) {
    check(cmha_model_save(&side[ENCODER].model, file_of(option[SAVE].value, ".encoder")));
    if (side[DECODER].there) {
        look_into(&base); /* the file keeps its identity */
        check(cmha_model_save(&side[DECODER].model, file_of(option[SAVE].value, ".decoder")));
    }
    const char *decoder = file_of(option[SAVE].value, ".decoder");
    if (!side[DECODER].there && !remove(decoder))
        complain(0, "removed, as it was made with another encoder: ", decoder);
    must(codec_save(&words, option[SAVE].value, failure));
    save_counts(file_of(option[SAVE].value, ".counts"));
}

/* Brings the base up to date: what did not change keeps its vectors. */
static void update_base(const char *root, const char *path) {
    char encoding[24];
    if (option[MODEL].value && !load_counts(file_of(option[MODEL].value, ".counts")))
        complain(1, "no update without what --folder and --save write: ",
                 file_of(option[MODEL].value, ".counts"));
    check(cmha_knowledge_open(&source.old, &ctx, path, 0));
    source.old_lines = files_of_base(path, encoding);
    if (!source.old_lines) complain(1, "not the base of a folder: ", path);
    open_files(&source.before, &source.old, source.old_lines, encoding);
    read_folder(root);
    build_base();
    if (option[QUIET].value) return;
    printf("files: %zu new, %zu changed, %zu gone; %zu of %zu passages encoded\n", source.fresh,
           source.changed, source.gone, source.encoded, passages.n);
}

/* Opens a base that was written before. */
static void use_base(const char *path) {
    char encoding[24];
    source.lines = files_of_base(path, encoding);
    if (option[MODEL].value && (!source.lines || !load_counts(file_of(option[MODEL].value, ".counts"))))
        encode_passages();
    if (!source.lines) {
        check_base(path, encoding);
        return;
    }
    open_files(&source.now, &base, source.lines, encoding);
    passages.line = base.ids;
}

/* The models, trained or read, and the base. */
static void make_all(void) {
    const char *in = option[FOLDER].value;
    if (option[TEXT].value) read_passages(option[TEXT].value);
    else if (in) read_folder(in);
    else if (!option[UPDATE].value) load_passages(option[BASE].value);
    if (!option[MODEL].value && !option[ENCODER_OF].value) {
        train_models();
        return;
    }
    if (option[ENCODER_OF].value) open_other(option[ENCODER_OF].value);
    else {
        load_models(option[MODEL].value);
        refuse_reading();
        refuse_continuing();
    }
    if (option[UPDATE].value) update_base(option[UPDATE].value, option[BASE].value);
    else if (!option[TEXT].value && !in) use_base(option[BASE].value);
    if (!option[TEXT].value && !in) return;
    if (option[ENCODER_OF].value) {
        build_base();
        return;
    }
    if (!in || !load_counts(file_of(option[MODEL].value, ".counts"))) encode_passages();
    build_base();
    if (side[DECODER].there || !whole(READ)) return;
    if (!passages.ids) encode_passages();
    choose_passages();
    train_decoder();
}

static void close_all(void) {
    cmha_model_close(&side[ENCODER].model);
    cmha_model_close(&side[DECODER].model);
    cmha_knowledge_close(&base);
    cmha_knowledge_close(&source.old);
    close_search();
    free(vectors);
    free(weight);
    free(counts.of);
    free(passages.texts);
    free(passages.at);
    free(passages.begin);
    free(passages.ids);
    free(passages.start);
    free(passages.order);
    folder_close(&source.now);
    folder_close(&source.before);
    free(source.from);
    free(source.texts.line);
    free(source.lines);
    free(source.old_lines);
    codec_close(&words);
    if (option[ENCODER_OF].value) sentences_close(&other);
    cmha_context_close(&ctx);
}

int main(int argc, char **argv) {
    start_program(argv);
    configure(argc, argv);
    if (option[HELP].value) return help();
    check_options();
    refuse_unread();
    spare();
    (void)sentences_pool_named(option[POOL].value);
    make_all();
    if (option[SAVE].value) save_models();
    uint64_t identity =
        side[DECODER].there && option[MODEL].value ? side[DECODER].model.knowledge_identity : 0;
    if (identity && identity != base.identity)
        complain(0, "note: the decoder was saved with another base than this one", "");
    int same = source.old_lines ? !strcmp(source.lines, source.old_lines) : 0;
    if (option[BASE].value && (option[TEXT].value || source.texts.n) && !same) save_base(option[BASE].value);
    open_search();
    if (option[PAIRS].value) report(option[PAIRS].value);
    if (option[ASK].value) ask_all(option[ASK].value);
    close_all();
    return end_program(0);
}
