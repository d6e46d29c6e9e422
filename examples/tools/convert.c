/* Reads models of others and writes ours, or theirs again (--help lists everything):
       cc -O3 -fopenmp -I. examples/tools/convert.c -o build/convert -lopenblas -lutf8proc -lcjson -lm
       build/convert [OPTION...] IN OUT */
#define CMHA_IMPLEMENTATION
#include "cmha.h"

#ifndef WITH_TOKENIZER
#define WITH_TOKENIZER
#endif

#include <signal.h>
#include <sys/stat.h>

#define PROGRAM "convert"
#define NO_ROWS
#include "options.h"
#include "forms.h"
#include "peft.h"
#include "weights.h"
#include "codec.h"
#include "vocabulary.h"
#include "pairs.h"

enum { TO, AS, TYPE, BASE, ATTENTION, TOKENIZER, CONTEXT, CHECK, IDS, HELP, N_OPTIONS };
static setting option[N_OPTIONS] = {
    {"--to", "cmha", "cmha (a checkpoint of ours), hf (a folder as Hugging Face has it), gguf, or peft\n"
     "                   (adapters of ours as a folder of PEFT's, with --base); cmha"},
    {"--as", NULL,
     "of --to hf, gguf and peft, and of adapters: whose form, such as phi3; that of IN, else the\n"
     "                   first that fits"},
    {"--type", "f32",
     "f32, f16, bf16, in gguf also q8_0: how matrices are stored; of a checkpoint also int8,\n"
     "                   int4 or q4_k: packed, as generate --pack has them; f32"},
    {"--base", NULL,
     "a checkpoint of ours, for which adapters are: IN is a folder of adapter_config.json and\n"
     "                   adapter_model.safetensors, or with --to peft what train_tiny --lora saved"},
    {"--attention", NULL,
     "cmha, cmha-shared, cmha-fixed or rope: the same model with that attention, where\n"
     "                   its outputs stay what they are: RoPE is ComplexFormer with delta = 1 and b = 0"},
    {"--tokenizer", NULL, "its tokenizer, where it is not beside IN or inside of it; none: without one"},
    {"--context", "0", "how many tokens it is for; 0 = as IN says"},
    {"--check", NULL,
     "a file of numbers F32 [tokens, vocabulary], the logits that another program got: says how\n"
     "                   far those of IN, a checkpoint of ours, are from them. Of an encoder also its\n"
     "                   states [tokens, d_model], or scores [classes]. No OUT"},
    {"--ids", "",
     "of --check: the tokens, such as '1 403 407'; of a decoder each row's largest is then the next"},
    {"--help", NULL, "this page"}};

/* A model that is read: what it is, and where its tensors are. */
typedef struct input {
    const char *path;
    weights tensors;
    form in;
    cmha_model_config config;
    const char *omega; /* frequencies of its own as a list, or NULL */
    char *made;        /* the same if it was made here */
    char name[32];     /* of the form */
    codec tokens;
    const char **labels; /* names of the classes, or NULL */
    int dynamic;       /* of form_settings */
    double ratio, turned_scale; /* likewise */
    const weights_tensor *held_from; /* the tensor in `held`, which several parameters are parts of */
    float *held;
    int raw; /* rows of Q4_K are read as they are stored, 9 words for 64 numbers */
} input;

/* A parameter of the library's and its row in the table of names. */
typedef struct piece {
    char name[64], ours[64]; /* ours: of the table of names, without number and suffix */
    const char *suffix;     /* ".weight", ".bias" or "" */
    size_t layer, shape[2], count;
    int rank, packed; /* packed: by the library, where it packs */
} piece;
typedef struct pieces { piece *list; size_t n; } pieces;

/* A tensor of the file that is written: a piece, or several one after another. */
typedef struct output {
    char name[96];
    size_t shape[2], first, n, count; /* n = 0: `given` */
    size_t unread;                    /* numbers before the pieces, zeros */
    int rank, turned, by_head;        /* turned: stored as the transposed matrix */
    int packed;                       /* as `packs` says, with a tensor of scales behind it */
    uint32_t as;
    const float *given;
} output;

static cmha_storage packs; /* how a checkpoint's matrices are packed; CMHA_STORAGE_FLOAT: not at all */
static const char *const packed_words[] = {"", "bf16", "int8", "int4", "q4_k"};
static char *volatile unfinished; /* the file that is being written, before it has its name */

/* Takes it away when the program ends or is stopped. */
static void clean_up(void) {
    if (unfinished) (void)unlink(unfinished);
}

static void on_signal(int number) {
    clean_up();
    _exit(128 + number);
}

static void watch_ends(void) {
    (void)atexit(clean_up);
    signal(SIGINT, on_signal), signal(SIGTERM, on_signal);
}

/* Ends the program with a line on the model that is read. */
static void refuse(const input *in, const char *why) {
    char line[TEXT_ERROR + 4];
    snprintf(line, sizeof line, ": %s", why);
    complain(1, in->path, line);
}

/* ---- What parameters a model has ---- */

/* Their name for a piece in the table of tensors; NULL: they have none. */
static const char *theirs(const piece *p, form f) { return form_theirs(p->ours, f); }

/* Appends parameter p of layer `layer`, of a model whose first or second layer it was found in. */
static void add_piece(pieces *all, const cmha_parameter *p, size_t layer, const cmha_model_config *c) {
    piece *one = &all->list[all->n++];
    const char *dot = strrchr(p->name, '.');
    const char *rest = strncmp(p->name, "blocks.", 7) ? NULL : p->name + 9; /* 0. or 1. */
    memset(one, 0, sizeof *one);
    if (rest) snprintf(one->name, sizeof one->name, "blocks.%zu.%s", layer, rest);
    else snprintf(one->name, sizeof one->name, "%s", p->name);
    one->suffix = dot && !strcmp(dot, ".weight") ? ".weight" : dot && !strcmp(dot, ".bias") ? ".bias" : "";
    one->layer = layer;
    snprintf(one->ours, sizeof one->ours, "%s%.*s", rest ? "blocks.%." : "",
             (int)(strlen(rest ? rest : p->name) - strlen(one->suffix)), rest ? rest : p->name);
    if (p->is_complex || p->tensor.rank > 2) complain(1, "this kind of model has no other form: ", p->name);
    one->packed = p->tensor.packed != NULL;
    one->rank = p->tensor.rank, memcpy(one->shape, p->tensor.shape, sizeof one->shape);
    if (!strncmp(one->name, "tok_emb.", 8) || !strncmp(one->name, "head.", 5)) one->shape[0] = c->vocabulary;
    if (!strncmp(one->name, "pos_emb.", 8)) one->shape[0] = c->max_positions;
    one->count = one->rank == 2 ? times(one->shape[0], one->shape[1]) : one->shape[0];
}

/* Where in a list the names no longer begin so, or, `wanted` = 0, where the first does that. */
static size_t past_names(const cmha_parameters *p, size_t at, const char *begin, int wanted) {
    for (; at < p->count; at++)
        if ((strncmp(p->list[at].name, begin, strlen(begin)) == 0) != wanted) break;
    return at;
}

/* Lists the parameters of a model, of which the library is asked for two layers, one token and one position:
   the real family's layers are all alike but for the first one. */
static pieces list_pieces(const cmha_model_config *c) {
    cmha_model_config small = *c;
    cmha_model model;
    pieces all = {NULL, 0};
    size_t bytes, i, first, second, last;
    if (c->family != CMHA_FAMILY_REAL) complain(1, "only models of family = real have forms of others", "");
    check(cmha_model_memory(&ctx, c, 1, 1, &bytes, NULL));
    small.n_layers = c->n_layers < 2 ? 1 : 2, small.max_positions = 1, small.vocabulary = c->vocabulary > 0;
    small.init = CMHA_INIT_XAVIER; /* the quicker one */
    check(cmha_model_init(&model, &ctx, &small));
    if (packs) check(cmha_model_pack(&model, packs));
    const cmha_parameters *p = &model.parameters;
    first = past_names(p, 0, "blocks.", 0);
    second = past_names(p, first, "blocks.0.", 1), last = past_names(p, second, "blocks.1.", 1);
    all.list = take(p->count + times(c->n_layers, last - first), sizeof *all.list);
    for (i = 0; i < first; i++) add_piece(&all, &p->list[i], 0, c);
    for (size_t layer = 0; layer < c->n_layers; layer++) {
        size_t end = layer ? last : second;
        for (i = layer ? second : first; i < end; i++) add_piece(&all, &p->list[i], layer, c);
    }
    for (i = last; i < p->count; i++) add_piece(&all, &p->list[i], 0, c);
    cmha_model_close(&model);
    return all;
}

static const piece *find_piece(const pieces *all, const char *name) {
    for (size_t i = 0; i < all->n; i++)
        if (!strcmp(all->list[i].name, name)) return &all->list[i];
    return NULL;
}

/* Are two pieces parts of one tensor in that form? */
static int same_tensor(const piece *a, const piece *b, form f) {
    const char *x = theirs(a, f), *y = theirs(b, f);
    return x && y && a->layer == b->layer && !strcmp(x, y) && !strcmp(a->suffix, b->suffix);
}

/* Hugging Face's GPT-2 has its matrices transposed ("Conv1D"), but for embeddings. */
static int is_turned(const piece *p, form f) {
    const char *name = f == GPT2 && p->rank == 2 ? theirs(p, f) : NULL;
    return name && *name == 'h';
}

/* GPT-NeoX has queries, keys and values head after head. */
static int is_by_head(const piece *p, form f) {
    return f == NEOX && !strncmp(p->ours, "blocks.%.attn.w", 15) && p->ours[15] != 'o';
}

/* ---- Reading ---- */

/* The tensor of the input that a piece is in, or NULL. Older files call a norm's weights gamma and beta. */
static weights_tensor *tensor_of(const input *in, const piece *p) {
    const char *suffixes[2] = {p->suffix, !strcmp(p->suffix, ".weight") ? ".gamma" : ".beta"};
    weights_tensor *found = NULL;
    char name[128];
    if (in->in == OURS) return weights_find(&in->tensors, p->name);
    if (!theirs(p, in->in)) return NULL;
    for (int i = 0; i < 4 && !found; i++) {
        if (i >= 2 && !(IN(in->in) & IN_ENCODERS)) break;
        form_name(name, sizeof name, in->in, theirs(p, in->in), !(i & 1), p->layer, suffixes[i / 2]);
        found = weights_find(&in->tensors, name);
    }
    return found;
}

static size_t unread_rows(const piece *p, form f) {
    return f == ROBERTA && !strcmp(p->ours, "pos_emb") ? ROBERTA_ROWS : 0;
}

/* Rows of the tensor that `at` is part of, and of these before it, such as RoBERTa's that nothing reads. */
static size_t rows_around(const pieces *all, size_t at, form f, size_t *before) {
    size_t rows = all->list[at].shape[0], i;
    *before = unread_rows(&all->list[at], f);
    for (i = at; i && same_tensor(&all->list[i - 1], &all->list[at], f); i--)
        *before += all->list[i - 1].shape[0];
    for (i = at + 1; i < all->n && same_tensor(&all->list[i], &all->list[at], f); i++)
        rows += all->list[i].shape[0];
    return rows + *before;
}

static void tell_shape(char *text, size_t size, const size_t *shape, int rank) {
    size_t used = 0;
    *text = 0;
    for (int i = 0; i < rank && i < 4 && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%zu", i ? ", " : "", shape[i]);
}

/* Every parameter is in the file in its shape, and nothing else that is not known to be spare. */
static void check_tensors(input *in, const pieces *all) {
    char line[TEXT_ERROR], is[96], must[96];
    size_t more = 0, used = 0, before;
    *line = 0;
    for (size_t i = 0; i < all->n; i++) {
        const piece *p = &all->list[i];
        weights_tensor *t = tensor_of(in, p);
        size_t rows = rows_around(all, i, in->in, &before), shape[2];
        int turned = is_turned(p, in->in);
        if (!t) {
            char name[128];
            if (theirs(p, in->in))
                form_name(name, sizeof name, in->in, theirs(p, in->in), 1, p->layer, p->suffix);
            else snprintf(name, sizeof name, "%s", p->name);
            if (used > 200) more++;
            else
                used += (size_t)snprintf(line + used, sizeof line - used, "%s%s",
                                         used ? ", " : ": missing tensors: ", name);
            continue;
        }
        shape[turned] = rows, shape[!turned] = p->shape[1], t->used = 1;
        if (t->rank == p->rank && !memcmp(t->shape, shape, (size_t)p->rank * sizeof *shape)) continue;
        tell_shape(is, sizeof is, t->shape, t->rank), tell_shape(must, sizeof must, shape, p->rank);
        snprintf(line, sizeof line, ": %s is [%s], this model needs [%s]", t->name, is, must);
        complain(1, in->path, line);
    }
    if (more) snprintf(line + used, sizeof line - used, " and %zu more", more);
    if (used) complain(1, in->path, line);
}

/* Is a tensor that no parameter wants known to be spare? Says so, once, where that leaves something out. */
static int is_spare(const input *in, const char *name) {
    const char *prefix = form_prefix(in->in);
    size_t n = strlen(prefix);
    if (in->in == OURS) return !strncmp(name, "optim.", 6);
    for (size_t i = 0; i < sizeof form_spares / sizeof *form_spares; i++) {
        const struct form_spare *s = &form_spares[i];
        int same = form_matches(s->name, name) || (*s->name != '/' && !strncmp(name, prefix, n) &&
                                                   form_matches(s->name, name + n));
        if (!(s->forms >> in->in & 1) || !same) continue;
        if (strstr(s->name, "lm_head") && !in->config.tied) continue;
        if (s->said) fprintf(stderr, "convert: left out: %s\n", name);
        return 1;
    }
    return 0;
}

static int same_numbers(input *in, const weights_tensor *a, const weights_tensor *b) {
    if (a->rank != b->rank || a->count != b->count) return 0;
    float *x = take(a->count, sizeof *x), *y = take(b->count, sizeof *y);
    must(weights_read(&in->tensors, a, x, failure));
    must(weights_read(&in->tensors, b, y, failure));
    int same = !memcmp(x, y, a->count * sizeof *x);
    free(x), free(y);
    return same;
}

/* A head of its own beside tied embeddings is the same matrix, or the model is not what its settings say. */
static void check_tied(input *in, const pieces *all) {
    const piece *tokens = find_piece(all, "tok_emb.weight");
    const weights_tensor *t, *embedding = tokens ? tensor_of(in, tokens) : NULL;
    const char *head = form_theirs("head", in->in);
    char name[128];
    if (!in->config.tied || !embedding || !head || *head != '/' || IN(in->in) & IN_ENCODERS) return;
    form_name(name, sizeof name, in->in, head, 0, 0, ".weight");
    if ((t = weights_find(&in->tensors, name)) == NULL) return;
    if (same_numbers(in, t, embedding)) return;
    complain(1, in->path, ": tie_word_embeddings is true, but lm_head is another matrix than the embeddings");
}

/* Of encoders the head for hidden tokens may be stored a second time, under other names: the same numbers,
   or something would be lost. */
static void check_copies(input *in) {
    static const struct { form of; const char *copy, *what; } rows[] = {
        {ROBERTA, "lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight"},
        {ROBERTA, "lm_head.decoder.bias", "lm_head.bias"},
        {DISTILBERT, "vocab_projector.weight", "distilbert.embeddings.word_embeddings.weight"},
        {MODERNBERT, "decoder.weight", "model.embeddings.tok_embeddings.weight"},
        {BERT, "cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
        {BERT, "cls.predictions.decoder.bias", "cls.predictions.bias"}};
    char line[TEXT_ERROR];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const weights_tensor *a, *b;
        if (rows[i].of != in->in || (a = weights_find(&in->tensors, rows[i].copy)) == NULL ||
            (b = weights_find(&in->tensors, rows[i].what)) == NULL || same_numbers(in, a, b)) continue;
        snprintf(line, sizeof line, ": %s is another tensor than %s", rows[i].copy, rows[i].what);
        complain(1, in->path, line);
    }
}

static void check_others(const input *in) {
    char line[TEXT_ERROR];
    size_t used = 0, more = 0;
    for (size_t i = 0; i < in->tensors.n; i++) {
        const weights_tensor *t = &in->tensors.list[i];
        if (t->used || is_spare(in, t->name)) continue;
        if (used > 200) more++;
        else used += (size_t)snprintf(line + used, sizeof line - used, "%s%.100s",
                                      used ? ", " : ": tensors that are not understood: ", t->name);
    }
    if (more) snprintf(line + used, sizeof line - used, " and %zu more", more);
    if (used) complain(1, in->path, line);
}

static void turn(const float *x, size_t rows, size_t columns, float *y) { /* y [columns, rows] */
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++) y[j * rows + i] = x[i * columns + j];
}

/* Takes part 0, 1 or 2 of every head, its queries, keys or values, out of x, or (back) puts it there. */
static void by_head(const input *in, size_t part, size_t columns, float *x, float *own, int back) {
    size_t n = form_width(&in->config) * columns;
    for (size_t head = 0; head < in->config.n_heads; head++) {
        float *theirs_at = x + (3 * head + part) * n, *ours_at = own + head * n;
        memcpy(back ? theirs_at : ours_at, back ? ours_at : theirs_at, n * sizeof *x);
    }
}

/* Words of a row. */
static size_t width_of(const input *in, const piece *p) {
    if (in->raw) return p->shape[1] / 64 * 9;
    return p->rank == 2 ? p->shape[1] : 1;
}

/* Reads a tensor whole. */
static void read_whole(input *in, const weights_tensor *t, float *out) {
    must(in->raw ? weights_read_bytes(&in->tensors, t, out, failure)
                 : weights_read(&in->tensors, t, out, failure));
}

/* Reads a piece [rows, columns] as it is stored. */
static void read_stored(input *in, const pieces *all, const piece *p, float *out) {
    size_t before, rows = rows_around(all, (size_t)(p - all->list), in->in, &before);
    size_t columns = width_of(in, p);
    weights_tensor *t = tensor_of(in, p);
    int turned = is_turned(p, in->in);
    if (!turned && rows == p->shape[0]) {
        read_whole(in, t, out);
        return;
    }
    if (in->held_from != t) {
        free(in->held);
        in->held = take(t->count, sizeof *in->held), in->held_from = t;
        read_whole(in, t, in->held);
        if (turned) {
            float *x = take(t->count, sizeof *x);
            turn(in->held, columns, rows, x);
            free(in->held), in->held = x;
        }
    }
    if (is_by_head(p, in->in)) by_head(in, before / p->shape[0], columns, in->held, out, 0);
    else memcpy(out, in->held + before * columns, p->shape[0] * columns * sizeof *out);
}

/* Do rows of queries that turn have a factor? */
static int is_scaled(const input *in, const piece *p) {
    return in->turned_scale > 0 && !strcmp(p->ours, "blocks.%.attn.wq");
}

static void read_piece(input *in, const pieces *all, const piece *p, float *out) {
    const size_t width = form_width(&in->config), columns = p->rank == 2 ? p->shape[1] : 1;
    read_stored(in, all, p, out);
    if (!is_scaled(in, p)) return;
    for (size_t i = 0; i < p->count; i++)
        if (i / columns % width < in->config.rotary_dims) out[i] = (float)(out[i] * in->turned_scale);
}

/* ---- Opening ---- */

/* Makes the library's table of frequencies out of what divides them. */
static void divide_frequencies(input *in, const double *factors, size_t n_pairs) {
    cmha_model_config *c = &in->config;
    const size_t all = form_width(c) / 2; /* those behind `n_pairs` do not turn */
    size_t used = 0, room = times(times(c->n_heads, all), 26) + 1;
    double *omega = take(n_pairs, sizeof *omega);
    cmha_frequencies(CMHA_FREQUENCY_ROPE, c->base, n_pairs, NULL, omega);
    in->omega = in->made = take(room, 1);
    for (size_t h = 0; h < c->n_heads; h++)
        for (size_t j = 0; j < all; j++)
            used += (size_t)snprintf(in->made + used, room - used, "%s%.17g", used ? "," : "",
                                     j < n_pairs ? omega[j] / factors[j] : 0);
    c->frequency = CMHA_FREQUENCY_TABLE;
    free(omega);
}

/* longrope: the factors of texts as long as the model is for. */
static void choose_frequencies(input *in, const form_settings *s) {
    size_t context = (size_t)whole_of(&option[CONTEXT], 0, 16777216);
    int is_long = (double)(context ? context : in->config.max_positions) > s->long_from;
    char line[200];
    divide_frequencies(in, s->factors[is_long], s->n_factors);
    in->turned_scale = s->turned_scale;
    snprintf(line, sizeof line, "longrope with %s_factor; --context up to %.0f takes short_factor, above it "
             "long_factor", is_long ? "long" : "short", s->long_from);
    complain(0, "note: ", line);
}

/* Versions of transformers differ in what they scale by, where YaRN's factor and lengths do. */
static void tell_ratio(const input *in) {
    char line[200];
    snprintf(line, sizeof line, "YaRN scales by its factor, %g; some versions of transformers take "
             "max_position_embeddings / original_max_position_embeddings, %g", in->config.rope_factor,
             in->ratio);
    complain(0, "note: ", line);
}

/* Opens a folder of config.json and model.safetensors. */
static void open_folder(input *in) {
    form_settings s;
    size_t n = 0;
    char *path = weights_path(in->path, "config.json");
    char *text = path ? weights_slurp(path, (size_t)1 << 20, &n, failure) : NULL;
    if (!text) complain(1, path ? failure : "no memory for a path", "");
    must(form_read_json(&s, &ctx, text, n, &in->config, failure));
    in->in = s.in, in->dynamic = s.dynamic, in->ratio = s.ratio;
    snprintf(in->name, sizeof in->name, "%s", s.name);
    if (s.n_factors) choose_frequencies(in, &s);
    free(path), free(text);
    must(weights_open_folder(&in->tensors, &ctx, in->path, failure));
}

/* The frequencies that a GGUF file divides. */
static void read_frequencies(input *in) {
    const weights_tensor *t = weights_find(&in->tensors, "rope_freqs.weight");
    cmha_model_config *c = &in->config;
    size_t n_pairs = form_width(c) / 2;
    float *factors;
    double *wide;
    if (!t || !form_row(in->in, "frequency")) return;
    if (c->rotary_dims || c->rope_scaling || t->count != n_pairs)
        refuse(in, "rope_freqs.weight is not as long as a head has pairs, or not all that scales them");
    factors = take(n_pairs, sizeof *factors), wide = take(n_pairs, sizeof *wide);
    must(weights_read(&in->tensors, t, factors, failure));
    for (size_t j = 0; j < n_pairs; j++)
        if (!((wide[j] = (double)factors[j]) > 0))
            refuse(in, "rope_freqs.weight has a number that is not above 0");
    divide_frequencies(in, wide, n_pairs);
    free(factors), free(wide);
}

static void open_gguf(input *in) {
    form_settings s;
    cmha_model_config *c = &in->config;
    const weights_tensor *t;
    must(weights_open_gguf(&in->tensors, in->path, failure));
    if (!form_read_gguf(&s, &ctx, &in->tensors.gguf, c, failure)) refuse(in, failure);
    in->in = s.in, snprintf(in->name, sizeof in->name, "%s", s.name);
    if ((t = weights_find(&in->tensors, "token_embd.weight")) != NULL && t->rank == 2)
        c->vocabulary = t->shape[0];
    if (IN(in->in) & IN_GGUF_POST && (t = weights_find(&in->tensors, "token_types.weight")) != NULL)
        c->token_types = t->shape[0];
    if (!(IN(in->in) & IN_GGUF_ENCODERS)) c->tied = !weights_find(&in->tensors, "output.weight");
    if (form_row(in->in, "qkv_bias")) {
        c->attention_bias = weights_find(&in->tensors, "blk.0.attn_output.bias") != NULL;
        c->qkv_bias = !c->attention_bias && (weights_find(&in->tensors, "blk.0.attn_q.bias") ||
                                             weights_find(&in->tensors, "blk.0.attn_qkv.bias"));
    }
    if (in->in == GGUF_LLAMA) c->ffn_bias = weights_find(&in->tensors, "blk.0.ffn_gate.bias") != NULL;
    read_frequencies(in);
}

static void open_ours(input *in) {
    const char *packed;
    must(weights_open_archive(&in->tensors, &ctx, in->path, failure));
    packed = cmha_archive_metadata(&in->tensors.shards[0], "packed");
    if (!cmha_archive_metadata(&in->tensors.shards[0], "cfg.d_model"))
        complain(1, in->path, " is no checkpoint of ours; of other models name the folder with config.json");
    if (packed && strcmp(packed, "bf16"))
        complain(1, in->path, " is packed in 8 or 4 bits; convert the checkpoint it was made from");
    check(cmha_config_read(&ctx, in->path, &in->config, NULL));
    in->omega = cmha_archive_metadata(&in->tensors.shards[0], "omega");
    snprintf(in->name, sizeof in->name, "ours");
}

static int in_folder(const char *folder, const char *name) {
    char *path = weights_path(folder, name);
    int found = path && !access(path, F_OK);
    free(path);
    return found;
}

/* Is there a tokenizer in a folder? */
static int has_tokenizer(const char *folder) {
    static const char *const names[] = {"tokenizer.json", "encoder.json", "vocab.json", "vocab.txt"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (in_folder(folder, names[i])) return 1;
    return 0;
}

/* Ends the program where a folder has its tokenizer only as SentencePiece's own file. */
static void refuse_pieces(const char *folder) {
    static const char *const names[] = {"tokenizer.model", "spiece.model", "sentencepiece.bpe.model"};
    char line[TEXT_ERROR];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!in_folder(folder, names[i])) continue;
        snprintf(line, sizeof line, "%.200s has its tokenizer only as %s; in that folder: python3 -c 'from "
                 "transformers import AutoTokenizer as T; T.from_pretrained(\".\").save_pretrained(\".\")' "
                 "(--tokenizer none goes without)", folder, names[i]);
        complain(1, line, "");
    }
}

/* Opens the tokenizer that is named, or lies in the folder, in the file or beside it; or none. */
static void open_tokens(input *in) {
    const char *given = option[TOKENIZER].value, *identity = in->config.tokenizer;
    int none = given && !strcmp(given, "none");
    if (in->in == OURS && !none) must(codec_may_be(given, in->path, &in->config, failure));
    if (!given && in->tensors.gguf.n_values && gguf_find(&in->tensors.gguf, "tokenizer.ggml.tokens"))
        given = in->path;
    if (!given && in->in != OURS && !in->tensors.gguf.n_values) {
        if (has_tokenizer(in->path)) given = in->path;
        else refuse_pieces(in->path);
    }
    if (!codec_open(&in->tokens, none ? NULL : given, in->path, none ? "" : identity, in->config.vocabulary,
                    failure)) {
        char line[TEXT_ERROR];
        snprintf(line, sizeof line, "%.400s (--tokenizer none goes without)", failure);
        complain(1, line, "");
    }
    for (int i = 0; i < 2; i++)
        if (*codec_note(&in->tokens, i)) complain(0, "note: ", codec_note(&in->tokens, i));
    memcpy(in->config.tokenizer, in->tokens.identity, sizeof in->config.tokenizer);
}

/* A tensor of an encoder's head by our name, or NULL. */
static const weights_tensor *find_head(const input *in, const char *ours, const char *suffix) {
    const char *name = form_theirs(ours, in->in);
    char whole[128];
    if (!name) return NULL;
    form_name(whole, sizeof whole, in->in, name, 0, 0, suffix);
    return weights_find(&in->tensors, whole);
}

/* What heads a BERT has, its tensors say. */
static void find_heads(input *in) {
    cmha_model_config *c = &in->config;
    const weights_tensor *t;
    if (!(IN(in->in) & IN_ENCODERS)) return;
    t = find_head(in, "class", ".weight");
    c->head_transform = find_head(in, "head_dense", ".weight") != NULL;
    if (in->in == MODERNBERT) c->head_bias &= c->head_transform; /* its settings say whether there is one */
    else c->head_bias = find_head(in, "head", ".bias") != NULL;
    if (t && t->rank == 2) c->classes = t->shape[0], c->pooler = 1;
}

/* Opens a model by what IN is. */
static void open_input(input *in, const char *path) {
    unsigned char head[9] = {0};
    struct stat about;
    uint64_t length;
    FILE *file;
    memset(in, 0, sizeof *in), in->path = path;
    if (stat(path, &about)) complain(1, "cannot read ", path);
    if (S_ISDIR(about.st_mode)) open_folder(in);
    else {
        if (!(file = regular_open(path))) complain(1, "cannot read ", path);
        size_t n = fread(head, 1, sizeof head, file);
        fclose(file), length = gguf_bits(head, 8);
        if (!memcmp(head, "GGUF", 4)) open_gguf(in);
        else if (n == sizeof head && head[8] == '{' && length < (uint64_t)about.st_size) open_ours(in);
        else {
            must(weights_open_plain(&in->tensors, &ctx, path, &in->config, failure));
            snprintf(in->name, sizeof in->name, "llama2.c");
        }
    }
    find_heads(in);
}

/* JSON in a folder; NULL: there is none. */
static cJSON *json_of(const char *folder, const char *name) {
    char *path = weights_path(folder, name), *text;
    cJSON *json = NULL;
    size_t n = 0;
    if (path && !access(path, F_OK)) {
        if (!(text = weights_slurp(path, (size_t)1 << 20, &n, failure))) complain(1, failure, "");
        if (!(json = cJSON_ParseWithLength(text, n))) complain(1, "no JSON: ", path);
        free(text);
    }
    free(path);
    return json;
}

/* ---- Names of classes ---- */

/* Takes a name for class i, which classify keeps as a line of a file. */
static void take_label(input *in, size_t i, const char *name, size_t n) {
    char line[200];
    int plain = n > 0;
    for (size_t k = 0; k < n; k++) plain &= (unsigned char)name[k] >= 32 && name[k] != 127;
    snprintf(line, sizeof line, "the name of class %zu %s, which no line of a file can be", i,
             n ? "has a control character" : "is empty");
    if (!plain) refuse(in, line);
    in->labels[i] = memcpy(take(n + 1, 1), name, n);
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Every class has a name of its own, or what classify prints would not tell them apart. */
static void check_labels(const input *in) {
    const size_t n = in->config.classes;
    const char **sorted = memcpy(take(n, sizeof *sorted), in->labels, n * sizeof *sorted);
    char line[200];
    qsort(sorted, n, sizeof *sorted, by_name);
    for (size_t i = 1; i < n; i++) {
        if (strcmp(sorted[i], sorted[i - 1])) continue;
        snprintf(line, sizeof line, "two classes have the name %.80s", sorted[i]);
        refuse(in, line);
    }
    free(sorted);
}

/* Takes the names in id2label of config.json, one for each class. */
static void take_id2label(input *in, const cJSON *names) {
    const size_t classes = in->config.classes;
    const cJSON *one;
    char line[200];
    if (!cJSON_IsObject(names)) refuse(in, "id2label of config.json is no object");
    cJSON_ArrayForEach(one, names) {
        char *end;
        const char *name = cJSON_GetStringValue(one);
        unsigned long i = strtoul(one->string, &end, 10);
        const int number = *one->string >= '0' && *one->string <= '9' && !*end;
        const int known = number && i < classes && name;
        snprintf(line, sizeof line, "%.60s of id2label is no class from 0 to %zu with a name", one->string,
                 classes - 1);
        if (!known) refuse(in, line);
        snprintf(line, sizeof line, "id2label names class %lu twice", i);
        if (in->labels[i]) refuse(in, line);
        take_label(in, (size_t)i, name, strlen(name));
    }
    for (size_t i = 0; i < classes; i++) {
        if (in->labels[i]) continue;
        snprintf(line, sizeof line, "id2label has no name for class %zu of %zu", i, classes);
        refuse(in, line);
    }
}

/* Takes the names that stand beside a checkpoint of ours; returns whether there are any. */
static int take_lines(input *in) {
    char path[4096], line[200];
    text_labels lines;
    if ((size_t)snprintf(path, sizeof path, "%s.labels", in->path) >= sizeof path) return 0;
    if (access(path, F_OK)) return 0;
    must(text_labels_load(&lines, path, failure));
    snprintf(line, sizeof line, "it has %zu classes, but .labels beside it %zu names", in->config.classes,
             lines.n);
    if (lines.n != in->config.classes) refuse(in, line);
    for (size_t i = 0; i < lines.n; i++) take_label(in, i, lines.names[i].at, lines.names[i].n);
    text_labels_close(&lines);
    return 1;
}

/* Says what is done with the scores of classes that classify does not: several may be true, or (of
   sentence-transformers' pairs) a function makes them numbers from 0 to 1. */
static void tell_scores(const cJSON *json) {
    const cJSON *sentences = cJSON_GetObjectItemCaseSensitive(json, "sentence_transformers");
    const char *kind = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "problem_type"));
    const char *made = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(sentences, "activation_fn"));
    if (!made)
        made = cJSON_GetStringValue(
            cJSON_GetObjectItemCaseSensitive(json, "sbert_ce_default_activation_function"));
    if (kind && !strcmp(kind, "multi_label_classification"))
        complain(0, "note: its classes go together (multi_label_classification), but ",
                 "classify prints the likeliest alone");
    if (made && !strstr(made, "Identity")) complain(0, "left out: what its scores go through, ", made);
}

/* Finds the names of the classes; those that have none get transformers' usual ones. */
static void open_labels(input *in) {
    const size_t classes = in->config.classes;
    const int folder = in->in != OURS;
    cJSON *json = folder && classes ? json_of(in->path, "config.json") : NULL;
    const cJSON *names = cJSON_GetObjectItemCaseSensitive(json, "id2label");
    tell_scores(json);
    if (classes > 1 && in->config.vocabulary) { /* one is a value, which has no name */
        in->labels = take(classes, sizeof *in->labels);
        if (names && !cJSON_IsNull(names)) take_id2label(in, names);
        else if (folder || !take_lines(in))
            for (size_t i = 0; i < classes; i++) {
                char label[32];
                form_usual_label(label, sizeof label, i);
                take_label(in, i, label, strlen(label));
            }
        check_labels(in);
    }
    cJSON_Delete(json);
}

static void close_labels(input *in) {
    for (size_t i = 0; in->labels && i < in->config.classes; i++) free((char *)(uintptr_t)in->labels[i]);
    free(in->labels);
}

/* Writes the names of the classes beside a checkpoint, a line each, as classify does. */
static void save_labels(const input *in, const char *to) {
    const size_t classes = in->config.classes;
    char path[4096];
    text_labels lines;
    if (!in->labels) return;
    if ((size_t)snprintf(path, sizeof path, "%s.labels", to) >= sizeof path)
        complain(1, "too long a name: ", to);
    memset(&lines, 0, sizeof lines), lines.n = classes;
    lines.names = take(classes, sizeof *lines.names);
    for (size_t i = 0; i < classes; i++) lines.names[i] = text_of(in->labels[i]);
    must(text_labels_save(&lines, path, failure));
    text_labels_close(&lines);
}

/* ---- What a model's vectors are ---- */

/* Says how vectors are made of states, where it is not the mean, as our programs have it of themselves. */
static void tell_pooling(const char *how) {
    if (!strcmp(how, "mean") || !strcmp(how, "none")) return;
    if (!strcmp(how, "cls") || !strcmp(how, "last"))
        complain(0, "note: its vectors are made by --pool ", how);
    else complain(0, "left out: how its vectors are made, ", how);
}

/* What the settings of a pooling say: one way of several that are true, or a word. */
static void tell_pooling_of(const cJSON *json) {
    static const char *const names[][2] = {{"pooling_mode_cls_token", "cls"},
                                           {"pooling_mode_mean_tokens", "mean"},
                                           {"pooling_mode_lasttoken", "last"}};
    const char *how = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "pooling_mode"));
    const cJSON *item;
    cJSON_ArrayForEach(item, json) {
        if (!item->string || strncmp(item->string, "pooling_mode_", 13) || !cJSON_IsTrue(item)) continue;
        how = how ? "in several ways" : item->string;
        for (size_t i = 0; i < 3; i++)
            if (!strcmp(how, names[i][0])) how = names[i][1];
    }
    if (how) tell_pooling(!strcmp(how, "lasttoken") ? "last" : how);
    if (cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(json, "include_prompt")))
        complain(0, "left out: include_prompt = false, ", "which takes a prompt's states out of the mean");
}

/* Says what sentence-transformers puts before texts: of several prompts, the one that is the default. */
static void tell_prompts(const input *in) {
    cJSON *json = json_of(in->path, "config_sentence_transformers.json");
    const cJSON *prompts = cJSON_GetObjectItemCaseSensitive(json, "prompts"), *one;
    const char *usual = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "default_prompt_name"));
    char list[400];
    size_t used = 0, more = 0;
    int found = 0;
    cJSON_ArrayForEach(one, prompts) {
        const char *text = cJSON_GetStringValue(one), *name = one->string ? one->string : "without a name";
        if (usual && strcmp(usual, name)) continue;
        found = 1;
        if (!text || !*text) continue;
        if (used > 200) more++;
        else
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%.60s \"%.100s\"", used ? ", " : "",
                                     name, text);
    }
    if (more) snprintf(list + used, sizeof list - used, " and %zu more", more);
    if (usual && !found) complain(0, "left out: default_prompt_name, which is none of the prompts: ", usual);
    else if (used && usual) complain(0, "left out: the prompt that vectors wants before each line, ", list);
    else if (used) complain(0, "left out: prompts, of which vectors wants one before a line, ", list);
    cJSON_Delete(json);
}

/* Says what sentence-transformers does besides with the model of a folder. */
static void tell_sentences(const input *in) {
    cJSON *modules = json_of(in->path, "modules.json"), *texts, *pooling;
    const cJSON *module;
    char line[200];
    int is_raw = cJSON_GetArraySize(modules) > 0;
    cJSON_ArrayForEach(module, modules) {
        const char *type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(module, "type"));
        const char *place = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(module, "path"));
        const char *dot = type ? strrchr(type, '.') : NULL;
        const char *name = dot ? dot + 1 : type ? type : "without a type";
        is_raw &= strcmp(name, "Normalize") != 0;
        if (!strcmp(name, "Transformer") || !strcmp(name, "Normalize")) continue;
        if (strcmp(name, "Pooling") || !place || !weights_is_plain(place)) {
            complain(0, "left out: a module of its vectors, ", name);
            continue;
        }
        snprintf(line, sizeof line, "%.150s/config.json", place);
        pooling = json_of(in->path, line);
        tell_pooling_of(pooling);
        cJSON_Delete(pooling);
    }
    if (is_raw) complain(0, "note: its vectors keep their length, ", "as with --raw");
    tell_prompts(in);
    texts = modules ? json_of(in->path, "sentence_bert_config.json") : NULL;
    const cJSON *most = cJSON_GetObjectItemCaseSensitive(texts, "max_seq_length");
    if (cJSON_IsNumber(most) && most->valuedouble < (double)in->config.max_positions) {
        snprintf(line, sizeof line, "%g tokens, as with --length %g", most->valuedouble, most->valuedouble);
        complain(0, "note: its texts are cut at ", line);
    }
    if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(texts, "do_lower_case")))
        complain(0, "left out: do_lower_case of sentence_bert_config.json", "");
    cJSON_Delete(modules), cJSON_Delete(texts);
}

static void tell_vectors(const input *in) {
    static const char *const words[] = {"none", "mean", "cls", "last", "rank"};
    char key[64];
    double x = 0;
    snprintf(key, sizeof key, "%s.pooling_type", in->name);
    if (gguf_element(gguf_find(&in->tensors.gguf, key), 0, &x))
        tell_pooling(x >= 0 && x < 5 ? words[(size_t)x] : "another way");
    if (in->in != OURS && !in->tensors.gguf.n_values) tell_sentences(in);
}

/* Says which token ends texts besides the tokenizer's own; returns whether there is one. */
static int tell_end(const input *in, const cJSON *ends) {
    const cJSON *one = cJSON_IsArray(ends) ? ends->child : ends;
    char line[100];
    for (; one; one = one->next) {
        if (!cJSON_IsNumber(one) || (int32_t)one->valueint == in->tokens.eos) continue;
        snprintf(line, sizeof line, "%d (eos_token_id) as well, which generate does not know", one->valueint);
        complain(0, "note: texts end at the token ", line);
        return 1;
    }
    return 0;
}

/* Says what stands beside or in IN for texts and goes no further: more ends, and the form of talks. */
static void tell_texts(const input *in, int target) {
    static const char *const names[] = {"generation_config.json", "config.json", "tokenizer_config.json"};
    const int gguf = in->tensors.gguf.n_values > 0;
    int talks = gguf && target != 2 && gguf_find(&in->tensors.gguf, "tokenizer.chat_template"), said = 0;
    if (in->in == OURS || in->tokens.kind != CODEC_TOKENIZER) return;
    for (size_t i = 0; i < 3 && !gguf; i++) {
        cJSON *json = json_of(in->path, names[i]);
        const cJSON *talk = cJSON_GetObjectItemCaseSensitive(json, "chat_template");
        if (i < 2 && !said && in->config.causal)
            said = tell_end(in, cJSON_GetObjectItemCaseSensitive(json, "eos_token_id"));
        talks |= i == 2 && talk && !cJSON_IsNull(talk);
        cJSON_Delete(json);
    }
    if (!gguf) talks |= in_folder(in->path, "chat_template.jinja");
    if (talks) complain(0, "left out: its chat_template; give generate a --template", "");
}

/* Ends the program where writing `to` would replace what is read. */
static void spare_input(const input *in, const char *to) {
    char *inside = weights_path(to, "model.safetensors"), labels[4096];
    int same = text_same_file(in->path, to);
    snprintf(labels, sizeof labels, "%.4000s.labels", to);
    same |= text_same_file(in->path, labels);
    for (size_t i = 0; i < in->tensors.n_shards && inside; i++)
        same |= text_same_file(in->tensors.shards[i].path, to) ||
                text_same_file(in->tensors.shards[i].path, inside);
    free(inside);
    if (same) complain(2, to, " is what is read; name another OUT");
}

/* ---- Another attention ---- */

/* Is every delta 1 and every b 0? Else names the first head that has moved. */
static void require_start(input *in, const pieces *all) {
    char line[200];
    float *x = NULL;
    for (size_t i = 0; i < all->n; i++) {
        const piece *p = &all->list[i];
        int delta = strstr(p->name, "attn.delta") != NULL;
        if (!delta && strcmp(p->ours, "blocks.%.attn.b")) continue;
        x = take(p->count, sizeof *x);
        read_piece(in, all, p, x);
        for (size_t j = 0; j < p->count; j++)
            if (x[j] < (float)delta || x[j] > (float)delta || x[j] != x[j]) {
                snprintf(line, sizeof line,
                         ": no longer RoPE: layer %zu, head %zu has moved, %s of pair %zu is %g", p->layer,
                         j / p->shape[1], delta ? "delta" : "b", j % p->shape[1], (double)x[j]);
                complain(1, in->path, line);
            }
        free(x);
    }
}

/* Zero frequencies: with them the phases of a ComplexFormer are those of plain products. */
static void still_frequencies(input *in, cmha_model_config *c) {
    size_t n = times(c->n_heads, form_width(c) / 2);
    char *list = in->made = take(times(n, 2), 1);
    for (size_t i = 0; i < n; i++) list[2 * i] = '0', list[2 * i + 1] = i + 1 < n ? ',' : 0;
    in->omega = list, c->frequency = CMHA_FREQUENCY_TABLE;
}

/* Changes the kind of attention, where weights stay what they are. */
static void change_attention(input *in, const pieces *all, const char *kind, cmha_model_config *c) {
    static const char *const kinds[] = {"cmha", "cmha-shared", "cmha-fixed", "rope"}; /* share: their order */
    size_t k = 0;
    int moves = c->attention == CMHA_ATTENTION_CMHA && c->share != CMHA_SHARE_FIXED;
    cmha_model_config any = *c;
    while (k < 4 && strcmp(kinds[k], kind)) k++;
    check(cmha_kind(&ctx, kind, &any));
    if (k == 4)
        complain(1, kind, ": no weights of another kind are an exact start of it; of cmha and rope they are");
    if (c->attention > CMHA_ATTENTION_DOT)
        complain(1, kind, ": weights of pope and ropepp are no exact start of another kind");
    if (c->attention == CMHA_ATTENTION_DOT && k > 1)
        complain(1, kind, ": this model's scores have no positions; only cmha and cmha-shared start there");
    if (c->attention == CMHA_ATTENTION_DOT) still_frequencies(in, c);
    if (moves && (k >= 2 || (int)k != c->share) && !(k == 0 && c->share == CMHA_SHARE_SHARED))
        require_start(in, all);
    c->attention = k == 3 ? CMHA_ATTENTION_ROPE : CMHA_ATTENTION_CMHA;
    c->share = k == 3 ? CMHA_SHARE_PER_HEAD : (int)k;
    c->delta_init = CMHA_DELTA_INIT_CONST, c->delta_value = 1;
}

/* ---- Writing ---- */

/* Moves the rows of a head from one layout of its pairs to the other: (2j, 2j + 1) or (j, j + half). */
static void change_layout(float *x, const piece *p, const cmha_model_config *c, int to_half) {
    size_t columns = p->rank == 2 ? p->shape[1] : 1, width = form_width(c), turned = form_turned(c);
    float *copy = take(times(turned, columns), sizeof *copy);
    for (size_t head = 0; head < p->shape[0] / width; head++, x += width * columns) {
        memcpy(copy, x, turned * columns * sizeof *x);
        for (size_t j = 0; j < turned; j++) {
            size_t half = j / 2 + j % 2 * (turned / 2), from = to_half ? j : half, to = to_half ? half : j;
            memcpy(x + to * columns, copy + from * columns, columns * sizeof *x);
        }
    }
    free(copy);
}

/* Is it the gain of a norm? */
static int is_gain(const piece *p) {
    return p->rank == 1 && (strstr(p->ours, "ln") || strstr(p->ours, "norm"));
}

/* Reads the piece that a model to be written has, from the one that was read. */
static void make_piece(input *in, const pieces *all, const piece *wanted, const cmha_model_config *c,
                       float *x) {
    const piece *p = find_piece(all, wanted->name);
    const size_t columns = width_of(in, wanted), count = wanted->shape[0] * columns;
    piece moved = *wanted;
    int rotates = strstr(wanted->name, ".attn.wq.") || strstr(wanted->name, ".attn.wk.");
    if (p) read_piece(in, all, p, x);
    else for (size_t i = 0; i < wanted->count; i++) x[i] = strstr(wanted->name, "attn.delta") ? 1.0f : 0.0f;
    for (size_t i = p ? p->shape[0] * columns : count; i < count; i++)
        x[i] = x[i - p->shape[0] * columns]; /* to every head */
    moved.shape[1] = columns;
    if (rotates && in->config.layout != c->layout) change_layout(x, &moved, c, c->layout == CMHA_LAYOUT_HALF);
    if (in->config.norm != c->norm && is_gain(wanted)) /* 1 + w, or that sum */
        for (size_t i = 0; i < wanted->count; i++) x[i] += c->norm == CMHA_NORM_RMS ? 1.0f : -1.0f;
}

static const char CANNOT_HOLD[] = "%s has a number that %s cannot hold";

/* How a tensor is stored where the matrices are `as`. In GGUF rows that are no multiple of 32 stay F32: Q8_0
   has no such, and llama.cpp has multiplied such rows of F16 wrongly. */
static uint32_t storage_of(const piece *p, form f, uint32_t as) {
    int small = p->rank == 1 || !*p->suffix;
    int gguf = (IN(f) & IN_GGUF) != 0;
    if (gguf && p->shape[p->rank - 1] % GGUF_BLOCK) small = 1;
    return small && (f == OURS || gguf) ? (uint32_t)GGUF_AS_F32 : as;
}

/* Lists the tensors of the file to be written; room for what GGUF has besides: two, and two a layer. */
static output *list_outputs(const pieces *all, form f, uint32_t as, size_t *n) {
    output *list = take(2 * all->n + 2, sizeof *list);
    *n = 0;
    for (size_t i = 0, before; i < all->n; i++) {
        const piece *p = &all->list[i];
        if (f != OURS && !theirs(p, f)) complain(1, p->name, " has no name there");
        if (i && same_tensor(p, p - 1, f)) {
            list[*n - 1].n++;
            continue;
        }
        output *o = &list[(*n)++];
        o->first = i, o->n = 1, o->rank = p->rank, o->turned = is_turned(p, f);
        o->by_head = o->rank && is_by_head(p, f), o->packed = f == OURS && p->packed;
        if (f == OURS) snprintf(o->name, sizeof o->name, "%s", p->name);
        else form_name(o->name, sizeof o->name, f, theirs(p, f), 1, p->layer, p->suffix);
        size_t rows = rows_around(all, i, f, &before);
        o->shape[o->turned] = rows, o->shape[!o->turned] = p->rank == 2 ? p->shape[1] : 1;
        o->unread = unread_rows(p, f) * o->shape[1];
        o->as = storage_of(p, f, as), o->count = p->rank == 2 ? times(rows, p->shape[1]) : rows;
    }
    return list;
}

/* Writes a piece that is packed as its file's Q4_K has it, without ever being numbers. */
static int write_raw(text_file *file, input *in, const pieces *from, const piece *p,
                     const cmha_model_config *c) {
    const size_t blocks = p->count / 256;
    float *x = take(times(blocks, 36), sizeof *x);
    in->raw = 1, in->held_from = NULL;
    make_piece(in, from, p, c, x);
    in->raw = 0, in->held_from = NULL;
    const unsigned char *bytes = (const unsigned char *)x;
    int done = weights_can_pack_k(bytes, blocks) ? weights_write_k(file, bytes, blocks, failure)
                                                 : text_fail(failure, CANNOT_HOLD, p->name, "q4_k");
    free(x);
    return done;
}

/* Writes the numbers of one tensor; in GGUF filled up to 32 bytes. */
static int write_output(text_file *file, input *in, const pieces *from, const pieces *all, const output *o,
                        const cmha_model_config *c, int padded) {
    static const unsigned char zeros[GGUF_ALIGNMENT];
    const piece *p = o->n == 1 ? find_piece(from, all->list[o->first].name) : NULL;
    const int k = p && o->packed && packs == CMHA_STORAGE_Q4_K && !is_scaled(in, p);
    if (k && weights_is_k(tensor_of(in, p)))
        return write_raw(file, in, from, &all->list[o->first], c);
    float *x = take(o->count, sizeof *x), *y = x + o->unread;
    size_t pad = padded ? gguf_padding(gguf_size(o->as, o->count)) : 0;
    int done;
    for (size_t i = o->first; i < o->first + o->n; y += all->list[i++].count)
        make_piece(in, from, &all->list[i], c, y);
    if (!o->n) memcpy(x, o->given, o->count * sizeof *x);
    if (o->by_head) {
        y = take(o->count, sizeof *y);
        for (size_t part = 0; part < 3; part++)
            by_head(in, part, o->rank == 2 ? o->shape[1] : 1, y, x + part * (o->count / 3), 1);
        free(x), x = y;
    }
    if (o->turned) {
        y = take(o->count, sizeof *y);
        turn(x, o->shape[1], o->shape[0], y);
        free(x), x = y;
    }
    done = (o->packed ? weights_can_pack(packs, x, o->count) : weights_fit(o->as, x, o->count)) ||
           text_fail(failure, CANNOT_HOLD, o->name,
                     o->packed ? packed_words[packs] : gguf_storage(o->as));
    if (done && o->packed)
        done = weights_write_packed(file, packs, x, o->shape[0], o->shape[1], failure);
    else done = done && weights_write(file, o->as, x, o->count, failure);
    if (done && fwrite(zeros, 1, pad, file->file) != pad)
        done = text_fail(failure, "cannot write %s", file->path);
    free(x);
    return done;
}

/* Adds a tensor to the header of a safetensors file; *at moves behind its bytes. */
static void add_tensor(cJSON *json, const char *name, const char *dtype, const double *shape, int rank,
                       double bytes, double *at) {
    double offsets[2];
    cJSON *t = cJSON_AddObjectToObject(json, name);
    offsets[0] = *at, offsets[1] = *at += bytes;
    cJSON_AddStringToObject(t, "dtype", dtype);
    cJSON_AddItemToObject(t, "shape", cJSON_CreateDoubleArray(shape, rank));
    cJSON_AddItemToObject(t, "data_offsets", cJSON_CreateDoubleArray(offsets, 2));
}

/* Adds the codes and the scales of a packed matrix. */
static void add_packed(cJSON *json, const output *o, double *at) {
    const size_t codes = weights_code_bytes(packs, o->shape[0], o->shape[1]);
    const size_t scales = weights_scale_bytes(packs, o->shape[0], o->shape[1]);
    const int eight = packs == CMHA_STORAGE_INT8;
    const double numbers[2] = {(double)o->shape[0], (double)o->shape[1]}, nibbles = (double)codes;
    const double factors = (double)(scales / (eight ? 4 : 2));
    char name[sizeof o->name + 8];
    snprintf(name, sizeof name, "scale.%s", o->name);
    add_tensor(json, o->name, eight ? "I8" : "U8", eight ? numbers : &nibbles, eight ? 2 : 1, (double)codes,
               at);
    const char *dtype = eight ? "F32" : packs == CMHA_STORAGE_INT4 ? "F16" : "U16";
    add_tensor(json, name, dtype, &factors, 1, (double)scales, at);
}

/* The header of a safetensors file: tensors as they follow, and texts. */
static char *safetensors_header(const output *list, size_t n, const cJSON *texts) {
    cJSON *json = cJSON_CreateObject();
    double at = 0;
    char *text;
    if (texts && json) cJSON_AddItemReferenceToObject(json, "__metadata__", (cJSON *)(uintptr_t)texts);
    for (size_t i = 0; i < n && json; i++) {
        const output *o = &list[i];
        double shape[2] = {(double)o->shape[0], (double)o->shape[1]};
        if (o->packed) add_packed(json, o, &at);
        else add_tensor(json, o->name, gguf_storage(o->as), shape, o->rank,
                        (double)gguf_size(o->as, o->count), &at);
    }
    text = cJSON_PrintUnformatted(json);
    cJSON_Delete(json);
    return text;
}

/* Writes a safetensors file. */
static int write_safetensors(text_file *file, input *in, const pieces *from, const pieces *all,
                             output *list, size_t n, const cmha_model_config *c, const cJSON *texts) {
    char *header = safetensors_header(list, n, texts);
    size_t length = header ? strlen(header) : 0, pad = (size_t)(-(uint64_t)length % 8);
    unsigned char head[8];
    int done;
    gguf_store(head, length + pad, 8);
    done = header && fwrite(head, 1, 8, file->file) == 8 && fwrite(header, 1, length, file->file) == length &&
           fwrite("        ", 1, pad, file->file) == pad;
    if (!done) text_fail(failure, "cannot write %s", file->path);
    free(header);
    for (size_t i = 0; i < n && done; i++) done = write_output(file, in, from, all, &list[i], c, 0);
    return done;
}

/* The factors that GGUF's readers divide frequencies by, in place of llama3's scaling. */
static float *rope_factors(const cmha_model_config *c) {
    cmha_rope_options o = {c->rotary_dims, (cmha_rope_scaling)c->rope_scaling, c->rope_factor,
                           (double)c->rope_length, c->rope_fast, c->rope_slow, (cmha_rope_ramp)c->rope_ramp};
    size_t n_pairs = form_turned(c) / 2;
    double *scaled = take(n_pairs, sizeof *scaled), *plain = take(n_pairs, sizeof *plain);
    float *factors = take(n_pairs, sizeof *factors);
    cmha_frequencies(CMHA_FREQUENCY_ROPE, c->base, n_pairs, &o, scaled);
    cmha_frequencies(CMHA_FREQUENCY_ROPE, c->base, n_pairs, NULL, plain);
    for (size_t i = 0; i < n_pairs; i++) factors[i] = (float)(plain[i] / scaled[i]);
    free(scaled), free(plain);
    return factors;
}

/* Puts the tokenizer among the values: that of a GGUF file as it is there. */
static int put_tokens(gguf_writer *w, const input *in, size_t vocabulary) {
    if (in->tensors.gguf.n_values && !option[TOKENIZER].value) {
        for (size_t i = 0; i < in->tensors.gguf.n_values; i++)
            if (!strncmp(in->tensors.gguf.values[i].key, "tokenizer.", 10) &&
                strcmp(in->tensors.gguf.values[i].key, "tokenizer.ggml.token_type_count"))
                gguf_put_value(w, &in->tensors.gguf.values[i]);
        return 1;
    }
    if (in->tokens.kind != CODEC_TOKENIZER) {
        gguf_put_text(w, "tokenizer.ggml.model", "no_vocab", 8);
        return 1;
    }
    const tokenizer *t = &in->tokens.t;
    for (size_t i = 0; i < t->n_added; i++)
        if (t->added[i].left || t->added[i].right || t->added[i].word)
            fprintf(stderr, "convert: left out: lstrip, rstrip or single_word of the token %s\n",
                    t->added[i].content);
    return vocabulary_put(w, t, vocabulary, failure);
}

/* Appends zeros by their name in a layer. */
static void add_zeros(output *list, size_t *n, const char *row, size_t layer, size_t count,
                      const float *zeros) {
    output *o = &list[(*n)++];
    form_name(o->name, sizeof o->name, GGUF_NEOX, row, 0, layer, ".bias");
    o->rank = 1, o->shape[0] = o->count = count, o->given = zeros;
}

/* What llama.cpp asks for besides: in place of tied embeddings a copy of them as the output matrix, and of
   GPT-NeoX biases. Returns the zeros that these are, or NULL. */
static float *add_asked(output *list, size_t *n, const pieces *all, const cmha_model_config *c, form f,
                        uint32_t as) {
    static const form_bits untied = IN(GGUF_OLMO2) | IN(GGUF_STABLELM) | IN(GGUF_PHI2) | IN(GGUF_NEOX);
    const piece *tokens = find_piece(all, "tok_emb.weight");
    float *zeros;
    if (c->tied && IN(f) & untied && tokens) {
        output *o = &list[(*n)++];
        form_name(o->name, sizeof o->name, f, "output", 0, 0, ".weight");
        o->rank = 2, memcpy(o->shape, tokens->shape, sizeof o->shape), o->count = tokens->count;
        o->first = (size_t)(tokens - all->list), o->n = 1, o->as = storage_of(tokens, f, as);
    }
    if (f != GGUF_NEOX || c->attention_bias) return NULL;
    zeros = take(times(c->d_model, 3), sizeof *zeros); /* of zeros */
    for (size_t i = 0; i < c->n_layers; i++) {
        if (!c->qkv_bias) add_zeros(list, n, "blk.%.attn_qkv", i, 3 * c->d_model, zeros);
        add_zeros(list, n, "blk.%.attn_output", i, c->d_model, zeros);
    }
    return zeros;
}

static int write_gguf(text_file *file, input *in, const pieces *from, const pieces *all, output *list,
                      size_t n, const cmha_model_config *c, form f, uint32_t as) {
    static const struct { uint32_t as, number; } types[] = {
        {GGUF_AS_F32, 0}, {GGUF_AS_F16, 1}, {GGUF_AS_Q8_0, 7}, {GGUF_AS_BF16, 32}};
    gguf_writer w;
    float *factors = NULL, *zeros = add_asked(list, &n, all, c, f, as);
    int done = 1;
    memset(&w, 0, sizeof w);
    form_write_gguf(c, f, &w);
    done = put_tokens(&w, in, c->vocabulary);
    for (size_t i = 0; i < 4; i++)
        if (types[i].as == as) gguf_put_whole(&w, "general.file_type", types[i].number);
    gguf_put_whole(&w, "general.quantization_version", 2);
    if (c->rope_scaling == CMHA_ROPE_SCALING_LLAMA3) {
        output *o = &list[n++];
        snprintf(o->name, sizeof o->name, "rope_freqs.weight");
        o->rank = 1, o->shape[0] = o->count = form_turned(c) / 2, o->given = factors = rope_factors(c);
    }
    for (size_t i = 0; i < n; i++) gguf_put_tensor(&w, list[i].name, list[i].shape, list[i].rank, list[i].as);
    if (!gguf_put_head(&w, file->file) && done) done = text_fail(failure, "cannot write %s", file->path);
    for (size_t i = 0; i < n && done; i++) done = write_output(file, in, from, all, &list[i], c, 1);
    free(factors), free(zeros);
    return done;
}

/* The texts of a checkpoint of ours. */
static cJSON *checkpoint_texts(const input *in, const cmha_model_config *c) {
    cmha_table table = cmha_model_table();
    cJSON *texts = cJSON_CreateObject();
    char key[64], value[40];
    for (size_t i = 0; i < table.count; i++) {
        snprintf(key, sizeof key, "cfg.%s", table.fields[i].name);
        cmha_config_get(table, c, table.fields[i].name, value, sizeof value);
        cJSON_AddStringToObject(texts, key, value);
    }
    const char *trained = in->in == OURS && !whole_of(&option[CONTEXT], 0, 16777216)
                              ? cmha_archive_metadata(&in->tensors.shards[0], "trainer.length") : NULL;
    snprintf(value, sizeof value, "%zu", c->max_positions);
    cJSON_AddStringToObject(texts, "trainer.length", trained ? trained : value);
    if (packs) cJSON_AddStringToObject(texts, "packed", packed_words[packs]);
    if (c->frequency == CMHA_FREQUENCY_TABLE && in->omega) cJSON_AddStringToObject(texts, "omega", in->omega);
    return texts;
}

/* Ends the program with the line in `failure` after a file that could not be written whole. */
static void finish(text_file *file, int done) {
    char why[TEXT_ERROR];
    memcpy(why, failure, sizeof why);
    if (!text_end(file, done, failure)) complain(1, done ? failure : why, "");
}

static void write_text(const char *path, const char *text) {
    text_file file;
    must(text_begin(&file, path, failure));
    int done = fputs(text, file.file) >= 0 && putc('\n', file.file) != EOF;
    if (!done) text_fail(failure, "cannot write %s", path);
    finish(&file, done);
}

/* Writes tokenizer.json and config.json into the folder at `path`. */
static void write_settings(input *in, const cmha_model_config *c, form f, uint32_t as, const char *path) {
    const char *dtype = as == GGUF_AS_F32 ? "float32" : as == GGUF_AS_F16 ? "float16" : "bfloat16";
    char *tokens = weights_path(path, "tokenizer.json"), *config = weights_path(path, "config.json");
    const int32_t ids[3] = {in->tokens.bos, in->tokens.eos, in->tokens.pad};
    char *text = form_write_json(c, f, dtype, ids, in->labels);
    if (!tokens || !config || !text) complain(1, "no memory for config.json", "");
    if (in->tokens.kind == CODEC_TOKENIZER) must(tokenizer_save(&in->tokens.t, tokens, failure));
    write_text(config, text);
    free(tokens), free(config), free(text);
}

/* A checkpoint that answers prompts takes its template along. */
static void keep_template(const input *in, const char *path) {
    pairs_template shape;
    memset(&shape, 0, sizeof shape);
    if (in->in == OURS) must(pairs_template_find(&shape, in->path, failure));
    must(pairs_template_save(&shape, path, failure));
    pairs_template_close(&shape);
}

/* Writes the model, and what stands beside it. */
static void write_model(input *in, const pieces *from, const cmha_model_config *c, form f, uint32_t as,
                        const char *path) {
    pieces all = list_pieces(c);
    size_t n, numbers = 0;
    output *list = list_outputs(&all, f, as, &n);
    int gguf = (IN(f) & IN_GGUF) != 0, folder = f != OURS && !gguf, made = 0, done;
    char *own = folder ? weights_path(path, "model.safetensors") : NULL;
    text_file file;
    if (folder) made = mkdir(path, 0777) == 0;
    if (!text_begin(&file, own ? own : path, failure)) {
        if (made) rmdir(path);
        complain(1, failure, "");
    }
    unfinished = strcpy(take(strlen(file.name) + 1, 1), file.name);
    cJSON *texts = f == OURS ? checkpoint_texts(in, c) : cJSON_CreateObject();
    if (folder) cJSON_AddStringToObject(texts, "format", "pt");
    done = gguf ? write_gguf(&file, in, from, &all, list, n, c, f, as)
                : write_safetensors(&file, in, from, &all, list, n, c, texts);
    if (!done && made) text_end(&file, 0, NULL), rmdir(path), complain(1, failure, "");
    if (done && f == OURS) {
        must(codec_save(&in->tokens, path, failure));
        keep_template(in, path);
        save_labels(in, path);
    }
    if (done && folder) write_settings(in, c, f, as, path);
    finish(&file, done); /* last: where something cannot be written, no new weights stand beside it */
    char *finished = unfinished;
    unfinished = NULL, free(finished);
    for (size_t i = 0; i < all.n; i++) numbers += all.list[i].count;
    printf("%s: %zu layers of %zu, %zu heads of %zu, vocabulary %zu, %zu numbers\n", path, c->n_layers,
           c->d_model, c->n_heads, form_width(c), c->vocabulary, numbers);
    cJSON_Delete(texts), free(list), free(all.list), free(own);
}

/* GGUF has encoders without their heads: says what is left out, of their own pooling as well. */
static void leave_heads(cmha_model_config *c) {
    if (c->head_transform || c->head_bias) complain(0, "left out: ", "the head for hidden tokens");
    if (c->pooler && !c->classes) complain(0, "left out: ", "the pooler"), c->pooler = 0;
    c->head_transform = c->head_bias = 0;
}

/* The form of a file to be written, in whose terms *c then is, or the end: a ComplexFormer goes as the RoPE
   model that it still is. */
static form take_form(input *in, const pieces *all, cmha_model_config *c, int target) {
    const char *as = option[AS].value, *name = as ? as : in->in == OURS ? "" : in->name;
    form f = OURS;
    if (target == 0) return OURS;
    if (target == 2 && !c->causal) leave_heads(c);
    if (c->attention == CMHA_ATTENTION_CMHA) change_attention(in, all, "rope", c);
    if (*name) f = form_by_name(c, name, target == 2, failure);
    if (as && f == OURS) refuse(in, failure);
    if (f == OURS) f = form_fitting(c, target == 2, failure);
    if (f == OURS) refuse(in, failure);
    if (IN(f) & (IN_ROTARY | IN_GGUF_ROTARY)) c->layout = form_layout(f);
    if (f == GGUF_PHI3 && c->window)
        complain(0, "note: ", "of a phi3 llama.cpp leaves out the window: beyond it, it computes otherwise");
    return f;
}

/* ---- Adapters ---- */

/* Adapters and the base that they stand beside. */
typedef struct adapters {
    const char *path;        /* a folder of PEFT's, or a file of ours */
    weights tensors;         /* in it */
    input base;
    pieces all;              /* of the base */
    form in;                 /* whose names PEFT has for the base's matrices */
    peft_settings settings;
    cmha_model_config there; /* the base in that form's terms */
    cmha_model model;        /* the base with the adapters */
} adapters;

/* Ends the program with a line on the adapters. */
static void refuse_adapters(const adapters *a, const char *what, const char *why) {
    char line[2 * TEXT_ERROR];
    snprintf(line, sizeof line, ": %.*s%s", TEXT_ERROR - 8, what, why);
    complain(1, a->path, line);
}

/* Is IN a folder of adapters? */
static int is_peft(const char *path) {
    char *config = weights_path(path, PEFT_CONFIG);
    int found = config && !access(config, F_OK);
    free(config);
    return found;
}

/* Opens --base, and finds whose names its matrices have: --as, or the first form that holds it. */
static void open_base(adapters *a, const char *to) {
    const char *path = option[BASE].value, *as = option[AS].value;
    static const int of_models[] = {ATTENTION, TOKENIZER, CONTEXT};
    for (int i = 0; i < 3; i++)
        if (option[of_models[i]].value && strcmp(option[of_models[i]].value, "0"))
            complain(2, option[of_models[i]].name, " is for models, not for adapters");
    if (!path) complain(2, a->path, ": adapters need the checkpoint that they are for, --base CHECKPOINT");
    open_input(&a->base, path), spare_input(&a->base, to);
    if (a->base.in != OURS || a->base.tensors.plain)
        refuse(&a->base, "the base of adapters is a checkpoint of ours; first: build/convert IN OUT");
    if (a->base.config.lora_rank)
        refuse(&a->base, "it has adapters of its own; first: build/generate --merge");
    a->all = list_pieces(&a->base.config);
    check_tensors(&a->base, &a->all);
    a->there = a->base.config;
    if (a->there.attention == CMHA_ATTENTION_CMHA) check(cmha_kind(&ctx, "rope", &a->there));
    a->in = as ? form_by_name(&a->there, as, 0, failure) : form_fitting(&a->there, 0, failure);
    if (a->in == OURS) refuse(&a->base, failure);
    if (IN(a->in) & IN_ROTARY) a->there.layout = form_layout(a->in);
}

static void close_adapters(adapters *a) {
    weights_close(&a->tensors), weights_close(&a->base.tensors);
    cmha_model_close(&a->model);
    free(a->all.list), free(a->base.held), free(a->base.made);
    cmha_context_close(&ctx);
}

/* Is a piece a matrix of a block that has a name there? */
static int can_adapt(const piece *p, form f) {
    return p->rank == 2 && !strcmp(p->suffix, ".weight") && !strncmp(p->ours, "blocks.%.", 9) && theirs(p, f);
}

/* A (b = 0) or B of a piece in PEFT's folder, or NULL: of a model with its head, or of one without. */
static weights_tensor *peft_tensor(const adapters *a, const piece *p, int b) {
    weights_tensor *found = NULL;
    char name[192];
    for (int prefixed = 1; prefixed >= 0 && !found; prefixed--) {
        peft_name(name, sizeof name, a->in, theirs(p, a->in), prefixed, p->layer, b);
        found = weights_find(&a->tensors, name);
    }
    return found;
}

/* A (b = 0) or B of a piece in the model, or NULL. */
static cmha_tensor *own_factor(const adapters *a, const piece *p, int b) {
    char name[80];
    if (strcmp(p->suffix, ".weight")) return NULL;
    snprintf(name, sizeof name, "%.*s.lora_%c", (int)(strlen(p->name) - strlen(p->suffix)), p->name, "ab"[b]);
    cmha_parameter *found = cmha_parameters_find(&a->model.parameters, name);
    return found ? &found->tensor : NULL;
}

/* Has a piece adapters in PEFT's folder? They are two, in their shapes. */
static int check_factors(adapters *a, size_t at) {
    const piece *p = &a->all.list[at];
    size_t before, r = a->settings.rank, rows = rows_around(&a->all, at, a->in, &before);
    const size_t shapes[2][2] = {{r, p->shape[1]}, {rows, r}};
    weights_tensor *two[2] = {peft_tensor(a, p, 0), peft_tensor(a, p, 1)};
    char is[96], needs[96], line[TEXT_ERROR];
    if (!two[0] && !two[1]) return 0;
    if (!two[0] || !two[1])
        refuse_adapters(a, two[!two[0]]->name, two[0] ? " has no lora_B" : " has no lora_A");
    for (int b = 0; b < 2; b++) {
        two[b]->used = 1;
        if (two[b]->rank == 2 && !memcmp(two[b]->shape, shapes[b], sizeof shapes[b])) continue;
        tell_shape(is, sizeof is, two[b]->shape, two[b]->rank), tell_shape(needs, sizeof needs, shapes[b], 2);
        snprintf(line, sizeof line, " is [%s], rank %zu beside this base needs [%s]", is, r, needs);
        refuse_adapters(a, two[b]->name, line);
    }
    return 1;
}

/* Sets the fields of a model with the adapters that PEFT's folder has: *c is the base's. */
static void adapter_fields(adapters *a, cmha_model_config *c) {
    size_t used = 0;
    c->lora_rank = a->settings.rank, c->lora_alpha = a->settings.alpha;
    for (size_t i = 0; i < a->all.n; i++) {
        const piece *p = &a->all.list[i];
        const char *end = strrchr(p->ours, '.');
        if (!can_adapt(p, a->in) || !check_factors(a, i) || strstr(c->lora_on, end + 1)) continue;
        used += (size_t)snprintf(c->lora_on + used, sizeof c->lora_on - used, "%s%s", used ? "," : "",
                                 end + 1);
        if (used >= sizeof c->lora_on) refuse_adapters(a, "too many kinds of matrices have adapters", "");
    }
    for (size_t i = 0; i < a->tensors.n; i++)
        if (!a->tensors.list[i].used) refuse_adapters(a, a->tensors.list[i].name, " is not understood");
    if (!used) refuse_adapters(a, "no adapter is in it", "");
}

/* Reads a tensor of PEFT's folder, all numbers finite. */
static void read_factor(adapters *a, const weights_tensor *t, float *x) {
    must(weights_read(&a->tensors, t, x, failure));
    for (size_t i = 0; i < t->count; i++)
        if (!isfinite(x[i])) refuse_adapters(a, t->name, " has a number that is not finite");
}

/* Does a piece's B have its rows in another order there? */
static int moves_rows(const adapters *a, const piece *p) {
    int rotates = strstr(p->name, ".attn.wq.") || strstr(p->name, ".attn.wk.");
    return rotates && a->there.layout != a->base.config.layout;
}

/* B [rows, rank] of a piece as a matrix of its own. */
static piece piece_of_b(const adapters *a, const piece *p) {
    piece b = *p;
    b.shape[1] = a->settings.rank;
    return b;
}

/* Reads A and B of a piece into the model. Pieces of one matrix there have one A. */
static void read_factors(adapters *a, size_t at) {
    const piece *p = &a->all.list[at], rows = piece_of_b(a, p);
    const weights_tensor *A = peft_tensor(a, p, 0), *B = peft_tensor(a, p, 1);
    cmha_tensor *own = own_factor(a, p, 1);
    size_t before, r = a->settings.rank;
    if (!A || !B) return; /* B begins as zeros */
    (void)rows_around(&a->all, at, a->in, &before);
    read_factor(a, A, own_factor(a, p, 0)->data);
    float *x = take(B->count, sizeof *x);
    read_factor(a, B, x);
    if (is_by_head(p, a->in)) by_head(&a->base, before / p->shape[0], r, x, own->data, 0);
    else memcpy(own->data, x + before * r, own->size * sizeof *x);
    if (moves_rows(a, p))
        change_layout(own->data, &rows, &a->base.config, a->base.config.layout == CMHA_LAYOUT_HALF);
    free(x);
}

static int tell_adapters(const adapters *a, const char *to, size_t matrices) {
    printf("%s: adapters of %zu matrices, rank %zu, alpha %g\n", to, matrices, a->settings.rank,
           a->settings.alpha);
    return end_program(0);
}

/* Reads adapters of PEFT's, and writes them as train_tiny --lora does. */
static int read_peft(const char *path, const char *to) {
    adapters a;
    cmha_model_config c;
    size_t n = 0, matrices = 0;
    char *config = weights_path(path, PEFT_CONFIG), *file = weights_path(path, PEFT_TENSORS);
    memset(&a, 0, sizeof a), a.path = path;
    open_base(&a, to), c = a.base.config;
    char *text = config && file ? weights_slurp(config, (size_t)1 << 20, &n, failure) : NULL;
    if (!text) complain(1, config && file ? failure : "no memory for a path", "");
    if (!peft_read(&a.settings, text, n, failure)) refuse_adapters(&a, failure, "");
    if (access(file, F_OK)) refuse_adapters(&a, "it has no ", PEFT_TENSORS);
    if (text_same_file(file, to)) complain(2, to, " is what is read; name another OUT");
    must(weights_open_archive(&a.tensors, &ctx, file, failure));
    adapter_fields(&a, &c);
    check(cmha_model_init(&a.model, &ctx, &c));
    check(cmha_model_read(&a.model, option[BASE].value, 2, NULL));
    for (size_t i = 0; i < a.all.n; i++)
        if (can_adapt(&a.all.list[i], a.in) && peft_tensor(&a, &a.all.list[i], 0)) {
            read_factors(&a, i), matrices++;
        }
    check(cmha_model_save_part(&a.model, to));
    free(config), free(file), free(text), close_adapters(&a);
    return tell_adapters(&a, to, matrices);
}

/* Makes A and B of the pieces from `at` to `end`, which are one matrix there, into two outputs. */
static void join_factors(adapters *a, size_t at, size_t end, output *two) {
    const piece *p = &a->all.list[at];
    const cmha_tensor *A = own_factor(a, p, 0);
    size_t before, r = a->settings.rank, rows = rows_around(&a->all, at, a->in, &before);
    const size_t shapes[2][2] = {{r, p->shape[1]}, {rows, r}};
    float *x = take(times(rows, r), sizeof *x), *y = take(times(rows, r), sizeof *y), *first = x;
    for (size_t i = at; i < end; i++) {
        const piece *q = &a->all.list[i], b = piece_of_b(a, q);
        const cmha_tensor *other = own_factor(a, q, 0), *own = own_factor(a, q, 1);
        if (!A || !other || memcmp(A->data, other->data, A->size * sizeof *A->data))
            refuse_adapters(a, q->name, " is part of a joined matrix there, whose adapter has one A for all "
                                        "of its parts; theirs differ");
        memcpy(x, own->data, own->size * sizeof *x);
        if (moves_rows(a, q)) change_layout(x, &b, &a->base.config, a->there.layout == CMHA_LAYOUT_HALF);
        if (is_by_head(q, a->in)) by_head(&a->base, i - at, r, y, x, 1);
        x += own->size;
    }
    two[1].given = is_by_head(p, a->in) ? y : first;
    free(is_by_head(p, a->in) ? first : y);
    first = take(A->size, sizeof *first), memcpy(first, A->data, A->size * sizeof *first);
    two[0].given = first;
    for (int b = 0; b < 2; b++) {
        peft_name(two[b].name, sizeof two[b].name, a->in, theirs(p, a->in), 1, p->layer, b);
        two[b].rank = 2, memcpy(two[b].shape, shapes[b], sizeof shapes[b]);
        two[b].count = times(shapes[b][0], shapes[b][1]);
    }
}

/* Makes the tensors of PEFT's folder; their modules go to `modules`, each once. */
static output *peft_outputs(adapters *a, size_t *n, const char **modules, size_t *n_modules) {
    output *list = take(2 * a->all.n + 1, sizeof *list);
    for (size_t i = 0, end; i < a->all.n; i = end) {
        const piece *p = &a->all.list[i];
        size_t m = 0;
        int some = 0;
        for (end = i; end < a->all.n; end++) {
            if (end > i && !same_tensor(&a->all.list[end], p, a->in)) break;
            some |= own_factor(a, &a->all.list[end], 0) != NULL;
        }
        if (!some) continue;
        if (!can_adapt(p, a->in)) refuse_adapters(a, p->name, " has an adapter, but no name there");
        join_factors(a, i, end, list + *n), *n += 2;
        while (m < *n_modules && strcmp(modules[m], peft_module(theirs(p, a->in)))) m++;
        if (m == *n_modules) modules[(*n_modules)++] = peft_module(theirs(p, a->in));
    }
    return list;
}

/* Opens a file of adapters beside its base. */
static void open_adapters(adapters *a, const char *to) {
    cmha_model_config c;
    open_base(a, to);
    must(weights_open_archive(&a->tensors, &ctx, a->path, failure));
    check(cmha_config_read(&ctx, a->path, &c, NULL));
    if (!c.lora_rank) refuse_adapters(a, "it has no adapters; train_tiny --lora makes them", "");
    for (size_t i = 0; i < a->tensors.n; i++)
        if (!strstr(a->tensors.list[i].name, ".lora_"))
            refuse_adapters(a, a->tensors.list[i].name, " is no adapter, and has no place there");
    a->settings.rank = c.lora_rank;
    a->settings.alpha = c.lora_alpha > 0 ? c.lora_alpha : (double)c.lora_rank;
    check(cmha_model_init(&a->model, &ctx, &c));
    check(cmha_model_read(&a->model, option[BASE].value, 2, NULL));
    check(cmha_model_read(&a->model, a->path, 2, NULL));
}

/* Reads adapters of ours, and writes a folder as PEFT has it. */
static int write_peft(const char *path, const char *to, uint32_t as) {
    adapters a;
    text_file file;
    size_t n = 0, n_modules = 0;
    const char *modules[32];
    memset(&a, 0, sizeof a), a.path = path;
    open_adapters(&a, to);
    output *list = peft_outputs(&a, &n, modules, &n_modules);
    char *tensors = weights_path(to, PEFT_TENSORS), *config = weights_path(to, PEFT_CONFIG);
    char *text = peft_write(&a.settings, a.in, modules, n_modules);
    if (!tensors || !config || !text) complain(1, "no memory for ", to);
    if (text_same_file(path, tensors)) complain(2, to, " is what is read; name another OUT");
    for (size_t i = 0; i < n; i++) list[i].as = as;
    int made = mkdir(to, 0777) == 0, done;
    if (!text_begin(&file, tensors, failure)) {
        if (made) rmdir(to);
        complain(1, failure, "");
    }
    unfinished = strcpy(take(strlen(file.name) + 1, 1), file.name);
    cJSON *texts = cJSON_CreateObject();
    cJSON_AddStringToObject(texts, "format", "pt");
    done = write_safetensors(&file, &a.base, &a.all, &a.all, list, n, &a.there, texts);
    if (!done && made) text_end(&file, 0, NULL), rmdir(to), complain(1, failure, "");
    if (done) write_text(config, text);
    finish(&file, done);
    char *finished = unfinished;
    unfinished = NULL, free(finished);
    for (size_t i = 0; i < n; i++) free((float *)(uintptr_t)list[i].given);
    cJSON_Delete(texts), free(list), free(tensors), free(config), free(text), close_adapters(&a);
    return tell_adapters(&a, to, n / 2);
}

/* ---- Comparing ---- */

/* The numbers in --ids; NULL is none. */
static int32_t *read_ids(size_t *n) {
    const char *at = option[IDS].value;
    int32_t *ids = take(strlen(at) + 1, sizeof *ids);
    for (char *end; *(at += strspn(at, " ,\t\n")); at = end) {
        long id = strtol(at, &end, 10);
        if (end == at || id < 0 || id > INT32_MAX)
            complain(2, "--ids is a list of numbers of tokens, not ", at);
        ids[(*n)++] = (int32_t)id;
    }
    if (!*n) complain(2, "--check needs at least the first token, --ids '1'", "");
    return ids;
}

static size_t largest(const float *x, size_t n) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* Numbers that another program got: rows of `width` F32. */
typedef struct expected {
    const char *path;
    char *bytes;
    size_t n_bytes, width, same; /* same: rows whose largest number is the same */
    double most;                 /* how far numbers are apart */
    float *row;
} expected;

/* Compares row i with ours. */
static void compare_row(expected *e, size_t i, const cmha_real *got) {
    gguf_decode(GGUF_AS_F32, (const unsigned char *)e->bytes + i * e->width * 4, e->width, e->row);
    for (size_t j = 0; j < e->width; j++) {
        double apart = fabs(got[j] - e->row[j]);
        if (!(apart <= e->most)) e->most = apart >= 0 ? apart : HUGE_VAL; /* NaN stays the worst, too */
    }
    e->same += largest(got, e->width) == largest(e->row, e->width);
}

/* Reads a decoder's tokens one by one, through its cache: those given, then each row's largest. Returns how
   many there are. */
static size_t compare_decoder(cmha_model *model, expected *e, const int32_t *ids, size_t given) {
    size_t n, V = e->width = model->config.vocabulary;
    int32_t next = ids[0];
    cmha_cache cache;
    n = e->n_bytes / 4 / (V ? V : 1);
    if (!V || !n || n * V * 4 != e->n_bytes)
        complain(1, e->path, " is no rows of as many F32 as the model has tokens");
    if (given > n) complain(2, "there are fewer rows than tokens in --ids: ", e->path);
    e->row = take(V, sizeof *e->row);
    cmha_real *got = take(V, sizeof *got);
    check(cmha_cache_init(&cache, model, 1, n, 0, NULL));
    for (size_t i = 0; i < n; i++) {
        check(cmha_cache_append(&cache, &next, 1, got));
        compare_row(e, i, got);
        next = i + 1 < given ? ids[i + 1] : (int32_t)largest(e->row, V);
    }
    cmha_cache_close(&cache), free(got);
    return n;
}

/* What an encoder computes from n tokens at once; by its size the file has logits of each, states of each, or
   scores of classes. Returns their name. */
static const char *compare_encoder(cmha_model *model, expected *e, const int32_t *ids, size_t n) {
    const size_t widths[3] = {model->config.vocabulary, model->config.d_model, model->config.classes};
    static const char *const names[3] = {"logits", "states", "scores"};
    size_t kind = 0, rows = n;
    cmha_batch b;
    cmha_tape tape;
    while (kind < 3 && (kind == 2 ? 1 : n) * widths[kind] * 4 != e->n_bytes) kind++;
    if (kind == 3)
        complain(1, e->path, ": of an encoder these are F32 of every token in --ids, its logits [vocabulary] "
                             "or states [d_model], or once scores [classes]");
    if (kind == 2) rows = 1;
    e->width = widths[kind], e->row = take(e->width, sizeof *e->row);
    cmha_real *got = take(times(rows, e->width), sizeof *got);
    memset(&b, 0, sizeof b), b.ids = ids, b.batch = 1, b.length = n;
    check(cmha_tape_init(&tape, &ctx, 0));
    if (kind == 0) check(cmha_model_logits(model, &b, got));
    else if (kind == 2) check(cmha_model_classify(model, &b, got));
    else {
        cmha_tensor *states = cmha_model_states(model, &tape, &b, NULL);
        if (!states) check(cmha_tape_status(&tape));
        memcpy(got, states->data, rows * e->width * sizeof *got);
    }
    for (size_t i = 0; i < rows; i++) compare_row(e, i, got + i * e->width);
    cmha_tape_close(&tape), free(got);
    return names[kind];
}

/* Compares what a model computes with numbers in a file. */
static int compare(const char *path, const char *with) {
    size_t given = 0, n;
    int32_t *ids = read_ids(&given);
    const char *what = "logits";
    cmha_model model;
    expected e;
    memset(&e, 0, sizeof e), e.path = with;
    e.bytes = weights_slurp(with, (size_t)1 << 31, &e.n_bytes, failure);
    if (!e.bytes) complain(1, failure, "");
    open_checkpoint(&model, path);
    n = given;
    if (model.config.causal) n = compare_decoder(&model, &e, ids, given);
    else what = compare_encoder(&model, &e, ids, given);
    printf("%s: %zu tokens, %s at most %.3g apart, the largest the same in %zu\n", path, n, what, e.most,
           e.same);
    cmha_model_close(&model);
    free(e.row), free(e.bytes), free(ids);
    cmha_context_close(&ctx);
    return end_program(0);
}

/* ---- The command line ---- */

/* One of some words, from 0 on. */
static int word_of(int o, const char *const *words, int n) {
    int i = 0;
    while (i < n && strcmp(words[i], option[o].value)) i++;
    if (i == n) {
        char what[64];
        snprintf(what, sizeof what, "%s has no value", option[o].name);
        no_such(what, option[o].value, words, (size_t)n);
    }
    return i;
}

/* Takes the first argument that is no option out of the command line, where two are given. */
static const char *take_input(int *argc, char **argv) {
    const char *path = NULL;
    int at[2], n = 0;
    for (int i = 1; i < *argc; i++) {
        const setting *o = find_option(option, N_OPTIONS, argv[i]);
        if (o && !strchr(argv[i], '=') && o != &option[HELP]) i++;
        else if (!o && *argv[i] != '-' && n < 2) at[n++] = i;
    }
    if (n < 2) return NULL;
    path = argv[at[0]];
    memmove(argv + at[0], argv + at[0] + 1, (size_t)(--*argc - at[0]) * sizeof *argv);
    return path;
}

static int help(void) {
    puts("convert [OPTION...] IN OUT: a model of others as a checkpoint of ours, or back\n\n"
         "IN: a folder with config.json and model.safetensors or its shards (Llama, Mistral, Qwen2 and 3,\n"
         "Gemma 2 and 3, OLMo 2, Phi-2 and 3, SmolLM3, Granite, StableLM, GPT-NeoX, GPT-J, GPT-2, BERT,\n"
         "RoBERTa, DistilBERT, ModernBERT, nomic-bert), a file of GGUF (F32, F16, BF16, Q4_0 to Q8_0, Q4_K\n"
         "to Q6_K) or of llama2.c (.bin), a checkpoint of ours, or a folder of PEFT's adapters. OUT: a\n"
         "file, with --to hf and peft a folder. A tokenizer in or beside IN goes along, for M.safetensors\n"
         "as M.tokenizer.json. What is not understood of a model is named, and nothing is written.\n");
    print_options(option, N_OPTIONS, 16, 0);
    return end_help("build/convert gpt2/ gpt2.safetensors");
}

int main(int argc, char **argv) {
    static const char *const targets[] = {"cmha", "hf", "gguf", "peft"};
    static const char *const types[] = {"f32", "f16", "bf16", "q8_0", "int8", "int4", "q4_k"};
    static const uint32_t storages[] = {GGUF_AS_F32, GGUF_AS_F16, GGUF_AS_BF16, GGUF_AS_Q8_0, GGUF_AS_F32,
                                        GGUF_AS_F32, GGUF_AS_F32};
    const setting seed = {"", "1", ""}, threads = {"", "0", ""};
    int n_set = 0;
    input in;
    start_program(argv);
    watch_ends();
    const char *path = take_input(&argc, argv);
    const char *to = read_options(option, N_OPTIONS, 1u << HELP, argc, argv, &n_set);
    if (option[HELP].value) return help();
    const uint64_t writing = 1u << TO | 1u << AS | 1u << TYPE | 1u << BASE | 1u << ATTENTION |
                             1u << TOKENIZER | 1u << CONTEXT;
    if (option[CHECK].value) refuse_given(option, writing, " is for what is written, not for --check");
    if (option[CHECK].value && to && !path) {
        open_context(&seed, &threads, 0);
        return compare(to, option[CHECK].value);
    }
    if (option[CHECK].value && path) complain(2, "--check reads IN and writes nothing, so what is ", to);
    if (!option[CHECK].value && *option[IDS].value) complain(2, "only --check has ", "--ids");
    if (!path || !to) complain(2, "name what to read and what to write; see --help", "");
    int target = word_of(TO, targets, 4), type = word_of(TYPE, types, 7);
    size_t context = (size_t)whole_of(&option[CONTEXT], 0, 16777216);
    if (type == 3 && target != 2) complain(2, "--type q8_0 needs --to gguf", "");
    if (type > 3 && (target || is_peft(path)))
        complain(2, "only checkpoints of whole models are packed: --type ", types[type]);
    if (type && is_peft(path)) complain(2, "adapters are read as they are; leave out --type ", types[type]);
    if (option[AS].value && !target && !is_peft(path))
        complain(2, "a checkpoint of ours has one form; --to hf, gguf and peft have ", "--as");
    if (type > 3) packs = (cmha_storage)(CMHA_STORAGE_INT8 + type - 4);
    open_context(&seed, &threads, 1);
    if (target == 3) return write_peft(path, to, storages[type]);
    if (is_peft(path) && target) complain(2, "adapters of PEFT's become adapters of ours, --to cmha", "");
    if (is_peft(path)) return read_peft(path, to);
    if (option[BASE].value) complain(2, "--base is for adapters; no folder of them is ", path);

    open_input(&in, path), spare_input(&in, to);
    pieces all = list_pieces(&in.config);
    check_tensors(&in, &all);
    check_others(&in);
    check_tied(&in, &all);
    check_copies(&in);
    tell_vectors(&in);
    open_labels(&in);
    open_tokens(&in);
    tell_texts(&in, target);
    if (target == 1 && in.tokens.kind != CODEC_TOKENIZER && has_tokenizer(to))
        complain(2, to, " has a tokenizer already, which would be taken for this model's; name another OUT");
    cmha_model_config c = in.config;
    if (option[ATTENTION].value) change_attention(&in, &all, option[ATTENTION].value, &c);
    form f = take_form(&in, &all, &c, target);
    if (context && c.position == CMHA_POSITION_LEARNED && context != c.max_positions)
        refuse(&in, "it has learned as many positions as it has, so --context cannot change");
    if (in.dynamic && context > c.max_positions)
        refuse(&in, "its angles are scaled dynamically beyond its own context, which is not known here");
    if (in.dynamic) complain(0, "left out: dynamic rope_scaling, nothing within its context", "");
    if (in.ratio > 0) tell_ratio(&in);
    if (context) c.max_positions = context;
    write_model(&in, &all, &c, f, storages[type], to);
    weights_close(&in.tensors), codec_close(&in.tokens), free(all.list), free(in.held), free(in.made);
    close_labels(&in);
    cmha_context_close(&ctx);
    return end_program(0);
}
