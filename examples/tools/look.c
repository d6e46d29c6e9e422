/* Shows a checkpoint in one HTML page that needs nothing else (--help lists everything):
       cc -O3 -march=native -fopenmp -I. examples/tools/look.c -o build/look -lopenblas -lm
       build/look [OPTION...] CHECKPOINT [TEXT]
   How it was trained, also beside other runs, what its heads do to the complex plane, where they look in a
   text, which experts and which passages the tokens of the text find. */
#define CMHA_IMPLEMENTATION
#include "cmha.h"

#define PROGRAM "look"
#include "options.h"
#include "codec.h"
#include "drawing.h"
#include "mobius_geometry.h"
#include "look_page.h"

enum { WORDS, TOKENS, FRAMES, OUT_FILE, CSV, WITH, FOLLOW, BASE, TOKENIZER, TOLERANCE, THREADS, HELP,
       N_OPTIONS };
static setting option[N_OPTIONS] = {
    {"--text", NULL, "the text itself instead of a file; \\n, \\t, \\xNN as in C"},
    {"--tokens", "0",
     "tokens of the text to show; 0 = as many as make a small page, 128 at the most"},
    {"--frames", NULL,
     "of a model that reads numbers: a file with a line of numbers, commas or blanks between, a frame"},
    {"--out", NULL, "the page; else CHECKPOINT's name with .html"},
    {"--csv", NULL,
     "how it was trained, as train_tiny --csv leaves it; else CHECKPOINT's name with .csv, or\n"
     "                loss.csv in its folder"},
    {"--with", NULL,
     "CHECKPOINT: another run to show beside, its CSV found likewise; may be repeated, 7 times at most"},
    {"--follow", NULL,
     "write the page anew while training goes on, until it ends or Ctrl-C; --follow=SECONDS, else every 5;\n"
     "                the page in the browser renews itself"},
    {"--base", NULL, "the knowledge base of a model with a reflection window (rag --base)"},
    {"--tokenizer", NULL,
     "the model's tokenizer; else CHECKPOINT's .tokenizer.json, or tokenizer.json in its folder"},
    {"--tol", "0.01", "how far a Möbius map may be from a geometry and still count; 0.01"},
    {"--threads", "0", "0 = every core"},
    {"--help", NULL, "this page"}};

enum { PHASE_BINS = 36, SIZE_BINS = 30, LEVELS = 4095, MOST_TOKENS = 2048, USUAL_TOKENS = 128 };
enum { MOST_RECORDS = 4, MOST_FOUND = 5, CURVE = 400, MOST_RUNS = 8 };
enum { MOST_READ = 65536 }; /* bytes of a text: of a book no more need be encoded */
static const size_t usual_bytes = 2 << 20; /* of the attention in a page */

static cmha_model model;
static cmha_model_config as_saved; /* before it was made ready for looking inside */
static cmha_trainer_config trained; /* how, if the checkpoint says so */
static cmha_knowledge base;
static codec words;
static codec_ids text;      /* what is shown; of frames their number alone */
static cmha_real *frames;   /* [text.n, numbers of a frame] or NULL */
static size_t text_tokens;  /* of the whole text, or of what was read of it */
static int text_goes_on;    /* there is more than was read */
static FILE *page;
static char own[4200];      /* the page's file while it is written; empty: there is none */
static unsigned drawings;   /* in the page so far */
static uint64_t renew;      /* seconds after which the page is read again; 0: it stays */
static volatile sig_atomic_t stop; /* the signal that ended --follow */

/* What a pass over the text leaves of a block: its calls of attention in their order, its router's logits and
   the queries to the knowledge base. */
typedef struct seen {
    const cmha_record *attention[MOST_RECORDS], *experts, *retrieve;
    size_t n;
} seen;
static seen *blocks;  /* [n_layers], or NULL: there was no pass */
static cmha_tape tape;

/* The rows of a training's CSV. */
enum { COLUMN_STEP, COLUMN_LOSS, COLUMN_VAL, COLUMN_RATE, COLUMN_NORM, COLUMNS };
typedef struct history { double *x[COLUMNS]; size_t n; char path[4096]; } history;

/* A run: the checkpoint and how it was trained. The first one is `model`, others are those of --with. */
typedef struct run {
    const char *path, *name;
    cmha_model model; /* of others */
    cmha_trainer_config trained;
    history rows; /* n = 0: there are none */
} run;
static run runs[MOST_RUNS];
static size_t n_runs = 1;

/* What is not in the page, a line each. */
static char missing[16][TEXT_ERROR];
static size_t n_missing;

static void miss(const char *what, const char *why) {
    char line[TEXT_ERROR];
    text_fail(line, "%s: %s", what, why);
    for (size_t i = 0; i < n_missing; i++)
        if (!strcmp(missing[i], line)) return;
    if (n_missing < sizeof missing / sizeof *missing) memcpy(missing[n_missing++], line, sizeof line);
}

/* ---- Text in a page: of a model or a file nothing but its characters arrives ---- */

enum { IN_HTML, IN_JSON };

/* The character c, n bytes at s, as HTML or inside a JSON string. What is no UTF-8 comes as 0. */
static void put_character(int where, const char *s, size_t n, uint32_t c) {
    static const char reserved[] = "&<>\"'\\";
    static const char *const entity[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;", "\\"};
    const char *mark = c && c < 128 ? strchr(reserved, (int)c) : NULL;
    int odd = !c || c == 0xFFFE || c == 0xFFFF || (text_steers(c) && c != '\n' && c != '\t');
    if (odd) fputs(where == IN_JSON ? "\\ufffd" : "&#xfffd;", page);
    else if (where == IN_JSON && (mark || c < 32)) fprintf(page, "\\u%04x", (unsigned)c);
    else if (mark) fputs(entity[mark - reserved], page);
    else fwrite(s, 1, n, page);
}

static void put_text(int where, const char *s, size_t n) {
    uint32_t c;
    for (size_t length; n; s += length, n -= length) {
        length = text_decode(s, n, &c);
        put_character(where, s, length, c);
    }
}

static void put_html(const char *s) { put_text(IN_HTML, s, strlen(s)); }

/* A JSON string of a token: its characters, and as \xNN what is none. */
static void put_token(const char *s, size_t n) {
    uint32_t c;
    fputc('"', page);
    for (size_t length; n; s += length, n -= length) {
        length = text_decode(s, n, &c);
        if (!text_steers(c) || c == '\n' || c == '\t') put_character(IN_JSON, s, length, c);
        else for (size_t i = 0; i < length; i++) fprintf(page, "\\\\x%02x", (unsigned)(unsigned char)s[i]);
    }
    fputc('"', page);
}

static void put_number(double x) {
    if (isfinite(x)) fprintf(page, "%.5g", x);
    else fputs("null", page);
}

/* A JSON list of n numbers, `step` apart. */
static void put_reals(const char *name, const cmha_real *x, size_t n, size_t step) {
    fprintf(page, "\"%s\":[", name);
    for (size_t i = 0; i < n; i++) {
        if (i) fputc(',', page);
        put_number((double)x[i * step]);
    }
    fputc(']', page);
}

static void put_counts(const char *name, const unsigned *x, size_t n) {
    fprintf(page, "\"%s\":[", name);
    for (size_t i = 0; i < n; i++) fprintf(page, i ? ",%u" : "%u", x[i]);
    fputc(']', page);
}

/* What a field of a configuration holds. */
static const char *field_text(cmha_table table, const void *config, const char *name) {
    static char value[32];
    cmha_config_get(table, config, name, value, sizeof value);
    return value;
}

static const char *model_field(const char *name) {
    return field_text(cmha_model_table(), &model.config, name);
}

/* ---- The text as tokens ---- */

/* What is shown if there is no text. */
static const char *const speech =
    "To be, or not to be, that is the question:\n"
    "Whether 'tis nobler in the mind to suffer\n"
    "The slings and arrows of outrageous fortune,\n"
    "Or to take arms against a sea of troubles\n"
    "And by opposing end them. To die, to sleep,\n"
    "No more; and by a sleep to say we end\n"
    "The heartache and the thousand natural shocks\n"
    "That flesh is heir to: 'tis a consummation\n"
    "Devoutly to be wished. To die, to sleep.\n";

static int has_numbers(void) { return !model.config.tokens || model.config.features > 0; }

/* Opens what the model speaks; an encoder of bytes also has [CLS] and its like. */
static void open_words(const char *path) {
    const cmha_model_config *c = &model.config;
    int bytes = !c->causal && !*c->tokenizer && c->vocabulary >= 260;
    must(codec_may_be(option[TOKENIZER].value, path, c, failure) &&
         codec_open(&words, option[TOKENIZER].value, path, c->tokenizer, bytes ? 0 : c->vocabulary, failure));
    if (!c->causal && words.kind != CODEC_NUMBERS) {
        size_t size = words.size;
        codec plain = words;
        codec_add_specials(&words);
        if (words.size > c->vocabulary) words = plain, words.size = size;
    }
}

/* The fewer tokens, the smaller the page: n with n^2 numbers of each head (causal: half of them). */
static size_t usual_tokens(void) {
    const cmha_model_config *c = &model.config;
    double heads = (double)c->n_layers * (double)c->n_heads * (c->causal ? 1 : 2);
    double n = floor(sqrt((double)usual_bytes / heads));
    return n < 16 ? 16 : n < USUAL_TOKENS ? (size_t)n : USUAL_TOKENS;
}

/* Cuts the ids to what is shown, an encoder's [SEP] staying at their end. */
static void cut_text(size_t most) {
    const cmha_model_config *c = &model.config;
    if ((c->position == CMHA_POSITION_LEARNED || c->cope_imag == CMHA_COPE_IMAG_LEARNED) &&
        most > c->max_positions)
        most = c->max_positions;
    text_tokens = text.n;
    if (text.n <= most) return;
    if (text.at[text.n - 1] == words.sep && words.sep >= 0) text.at[most - 1] = words.sep;
    text.n = most;
}

/* Numbers of a frame: those of a line of --frames. */
static size_t frame_width(void) {
    return model.config.features * (model.config.complex_features ? 2 : 1);
}

/* Takes over the numbers of a line, which are `width`; 0 if they are not. */
static int read_frame(text_slice line, size_t width, cmha_real *to) {
    size_t n = 0;
    while (line.n) {
        size_t length = 0;
        double value;
        while (length < line.n && (!line.at[length] || !strchr(", \t\r", line.at[length]))) length++;
        text_slice cell = {line.at, length};
        if (length && (n == width || !text_number(cell, &value) || !isfinite((cmha_real)value))) return 0;
        if (length) to[n++] = (cmha_real)value;
        length += length < line.n;
        line.at += length, line.n -= length;
    }
    return n == width;
}

/* Reads the frames, a line each; empty lines are none. */
static void read_frames(const char *file, size_t most) {
    const cmha_model_config *c = &model.config;
    size_t bytes, width = frame_width(), lines = 0, line = 0, room = most ? most : usual_tokens();
    char *all, place[64];
    if (!width || c->tokens) complain(2, "--frames is for models that read numbers alone", "");
    must(text_read(file, (size_t)1 << 26, &all, &bytes, failure));
    if (c->position == CMHA_POSITION_LEARNED && room > c->max_positions) room = c->max_positions;
    frames = take(times(room, width), sizeof *frames);
    for (const char *at = all, *end = all + bytes; at && at < end;) {
        text_slice s = text_line(&at, end);
        size_t blank = 0;
        while (blank < s.n && s.at[blank] && strchr(" \t\r", s.at[blank])) blank++;
        line++;
        if (blank == s.n) continue;
        snprintf(place, sizeof place, "%zu numbers are wanted in line %zu of ", width, line);
        if (lines < room && !read_frame(s, width, frames + lines * width)) complain(1, place, file);
        lines++;
    }
    free(all);
    if (!lines) complain(1, "there are no frames in ", file);
    text_tokens = lines, text.n = lines < room ? lines : room;
}

/* Reads the text, in the file or on the command line, or takes ours; an encoder's stands between [CLS] and
   [SEP]. */
static void read_text(const char *file) {
    char *read = NULL;
    const char *given = option[WORDS].value, *s = given ? given : speech;
    size_t n = strlen(s), most = (size_t)whole_of(&option[TOKENS], 0, MOST_TOKENS);
    int32_t ends[2] = {words.cls, words.sep};
    int specials = !model.config.causal && ends[0] >= 0 && ends[1] >= 0;
    if (option[FRAMES].value) read_frames(option[FRAMES].value, most);
    if (has_numbers() || frames) return;
    if (file) must(text_read(file, (size_t)1 << 26, &read, &n, failure));
    else if (given) read = memcpy(take(n + 1, 1), given, n), n = unescape(read);
    if (read) s = read;
    else if (words.kind == CODEC_NUMBERS) n = 0;
    text_goes_on = n > MOST_READ;
    if (text_goes_on) n = MOST_READ;
    if (specials) must(codec_append(&text, &ends[0], 1, failure));
    must(codec_encode(&words, s, n, !specials && model.config.causal, &text, failure));
    while (!specials && text.n > 1 && (text.at[text.n - 1] == words.eos || text.at[text.n - 1] == words.sep))
        text.n--; /* a decoder's text goes on */
    if (specials) must(codec_append(&text, &ends[1], 1, failure));
    free(read);
    for (size_t i = 0; i < text.n; i++)
        if (text.at[i] < 0 || (size_t)text.at[i] >= model.config.vocabulary)
            complain(1, "the text has a token that the model does not know", "");
    cut_text(most ? most : usual_tokens());
}

/* Ends the program where a model that reads no text is given one. */
static void refuse_text(const char *path, const char *file) {
    const uint64_t frames_too = option[FRAMES].value ? 0 : 1u << TOKENS;
    if (!has_numbers()) return;
    if (file) complain(2, path, ": a model of numbers, which reads no text; see --frames");
    refuse_given(option, 1u << WORDS | 1u << TOKENIZER | frames_too,
                 " is for a text, which a model of numbers does not read; see --frames");
}

/* Names of the tokens that are shown. */
static void put_tokens(void) {
#ifdef WITH_TOKENIZER
    tokenizer_decoder decoder = {0};
#endif
    fputs("\"tokens\":[", page);
    for (size_t i = 0; frames && i < text.n; i++) fprintf(page, i ? ",\"%zu \"" : "\"%zu \"", i);
    for (size_t i = 0; !frames && i < text.n; i++) {
        int32_t id = text.at[i];
        char name[32], *s = name;
        size_t n = (size_t)snprintf(name, sizeof name, "%ld", (long)id);
        if (words.kind == CODEC_BYTES && id < 256) *name = (char)id, n = 1;
        else if (words.kind != CODEC_NUMBERS && id == words.cls) n = (size_t)sprintf(name, "[CLS]");
        else if (words.kind != CODEC_NUMBERS && id == words.sep) n = (size_t)sprintf(name, "[SEP]");
#ifdef WITH_TOKENIZER
        else if (words.kind == CODEC_TOKENIZER) {
            int before = decoder.n_kept; /* bytes of a character that is not whole yet */
            n = tokenizer_decode(&words.t, &decoder, id, words.room), s = words.room;
            if (!n && decoder.n_kept > before)
                memcpy(s, decoder.kept + before, n = (size_t)(decoder.n_kept - before));
        }
#endif
        if (i) fputc(',', page);
        put_token(s, n);
    }
    fputs("],", page);
    fputs("\"ids\":[", page);
    for (size_t i = 0; i < text.n; i++)
        fprintf(page, i ? ",%ld" : "%ld", frames ? (long)i : (long)text.at[i]);
    fputs("]", page);
}

/* ---- A pass over the text ---- */

static cmha_batch text_batch(void) {
    cmha_batch b = {.ids = text.at, .features = frames, .batch = 1, .length = text.n};
    return b;
}

/* Runs the model over the text and finds the operations of every block in the tape. Without gradients nothing
   is recorded, so everything learns here, and nothing is drawn. */
static void look_inside(void) {
    cmha_batch b = text_batch();
    cmha_model_config *c = &model.config;
    if (!text.n) return;
    c->dropout = c->attention_dropout = c->pcl_weight = c->balance = 0, c->recompute = 0;
    cmha_parameters_tune(&model.parameters, "*", CMHA_TUNE_FROZEN, 0, NULL);
    check(cmha_tape_init(&tape, &ctx, 1));
    if (!cmha_model_states(&model, &tape, &b, NULL)) {
        miss("phases and moduli, experts and passages", cmha_error(&ctx));
        return;
    }
    blocks = take(c->n_layers, sizeof *blocks);
    for (const cmha_record *r = tape.last; r; r = r->previous) { /* the newest first */
        seen *s = r->section && r->section <= c->n_layers ? blocks + r->section - 1 : NULL;
        if (!s) continue;
        if (strstr(r->name, "attention") && s->n < MOST_RECORDS) {
            memmove(s->attention + 1, s->attention, s->n++ * sizeof *s->attention);
            s->attention[0] = r;
        } else if (!strcmp(r->name, "experts")) s->experts = r;
        else if (!strcmp(r->name, "retrieve")) s->retrieve = r;
    }
}

/* ---- Heads ---- */

/* What a head does with the plane. */
typedef enum plane {
    PLANE_NONE, PLANE_TURN, PLANE_POLAR, PLANE_PHASOR, PLANE_COMPLEX, PLANE_MOBIUS, PLANE_OWN
} plane;

/* Complex numbers of one head: that of token t and pair j is re[t * token + j * pair], its imaginary part
   `imag` further on; polar: one number, whose softplus is the modulus. */
typedef struct view { const cmha_real *re; size_t token, pair, imag; int polar; } view;

/* A head: what it is, its queries and keys (re NULL: not seen), its delta and b (NULL: 1 and 0) or PoPE's
   beta. */
typedef struct head {
    plane what;
    const char *kind;
    size_t pairs;
    view q, k;
    const cmha_real *delta, *b, *beta;
    double temperature; /* that divides its scores; NAN: none is learned */
    const double *omega; /* [pairs] or NULL */
} head;

static size_t head_width(void) {
    const cmha_model_config *c = &model.config;
    size_t width = c->family == CMHA_FAMILY_CRAT ? c->d_model / 2 : c->d_model;
    return c->d_head && c->family == CMHA_FAMILY_REAL ? c->d_head : width / c->n_heads;
}

/* How many of a layer's heads, the first ones, are plain. */
static size_t plain_heads(size_t layer) {
    const cmha_model_config *c = &model.config;
    const cmha_block *k = model.blocks + layer;
    if (c->family == CMHA_FAMILY_MOBIUS && k->zk_weight)
        return k->qkv_weight ? c->n_heads - c->mobius_heads : 0;
    return c->family == CMHA_FAMILY_CRAT || (c->family == CMHA_FAMILY_COPE && !layer) ? 0 : c->n_heads;
}

/* How many heads of the result a plain query head gives. */
static size_t fan(void) { return model.config.attention == CMHA_ATTENTION_ROPEPP ? 2 : 1; }

/* The learned temperature of a head, the h-th of those whose parameter has that name; NAN: there is none. */
static double temperature(size_t layer, const char *name, size_t h) {
    char full[48];
    snprintf(full, sizeof full, "blocks.%zu.attn.%slog_temp", layer, name);
    const cmha_parameter *p = cmha_parameters_find(&model.parameters, full);
    return p && h < p->tensor.size ? exp((double)p->tensor.data[h]) : NAN;
}

static size_t heads_of(size_t layer) {
    return model.config.n_heads + plain_heads(layer) * (fan() - 1);
}

/* What is learned of the phases of a plain query head, and the frequencies. */
static void see_phases(head *x, size_t layer, size_t h) {
    const cmha_model_config *c = &model.config;
    cmha_tensor *const *score = model.blocks[layer].score;
    x->omega = model.omega + (model.n_omega > 1 ? h * model.P : 0);
    if (x->pairs > model.P) x->pairs = model.P;
    if (!score[0] || score[0]->rank != 2) return; /* a temperature, or nothing */
    if (c->attention != CMHA_ATTENTION_CMHA && c->attention != CMHA_ATTENTION_POPE) return;
    size_t n = score[0]->shape[1], at = score[0]->shape[0] > 1 ? h * n : 0;
    if (x->pairs > n) x->pairs = n;
    if (c->attention == CMHA_ATTENTION_POPE) x->beta = score[0]->data + at;
    else x->delta = score[0]->data + at, x->b = score[1]->data + at;
}

/* Queries and keys of a plain head: pairs, or PoPE's numbers, of a fused real projection. */
static void see_plain(head *x, size_t layer, size_t h) {
    static const char *const two[] = {"plain, Re of q k*", "plain, Im of q k*"};
    const cmha_model_config *c = &model.config;
    size_t heads = plain_heads(layer), d = head_width(), kv = heads, turn = c->rotary_dims;
    int polar = c->attention == CMHA_ATTENTION_POPE;
    const seen *s = blocks ? blocks + layer : NULL;
    const cmha_record *r = s && s->n ? s->attention[s->n - 1] : NULL;
    x->kind = fan() == 2 ? two[h % 2] : "plain", h /= fan();
    x->what = c->attention == CMHA_ATTENTION_DOT ? PLANE_NONE : polar ? PLANE_POLAR : PLANE_TURN;
    if (model.score) x->what = PLANE_OWN, x->kind = "by a score of one's own"; /* only its author knows */
    if (x->what == PLANE_NONE || x->what == PLANE_OWN) return;
    turn = turn && turn < d ? turn : d;
    x->pairs = polar ? turn : turn / 2, see_phases(x, layer, h);
    if (!r || r->in[1] || r->in[0]->rank != 3) return;
    size_t row = r->in[0]->shape[2];
    if (heads == c->n_heads && c->n_kv_heads) kv = c->n_kv_heads;
    if (row != (heads + 2 * kv) * d || r->in[0]->shape[1] != text.n) return;
    view q = {r->in[0]->data + h * d, row, 2, 1, polar}, k;
    if (polar || c->layout == CMHA_LAYOUT_HALF) q.pair = 1, q.imag = turn / 2;
    k = q;
    k.re = r->in[0]->data + (heads + h / (heads / kv)) * d;
    x->q = q, x->k = k;
}

/* Queries and keys of head h of the n complex ones of a call: planes, in one array with values or apart. */
static void see_planes(head *x, const cmha_record *r, size_t h, size_t n) {
    size_t d = head_width();
    x->pairs = d;
    if (!r || r->in[0]->rank != 3 || r->in[0]->shape[1] != text.n) return;
    size_t parts = r->in[1] ? 1 : 3, row = r->in[0]->shape[2];
    if (row != 2 * parts * n * d || (r->in[1] && r->in[1]->shape[2] != row)) return;
    view q = {r->in[0]->data + h * d, row, 1, row / 2, 0}, k = q;
    k.re = r->in[1] ? r->in[1]->data + h * d : q.re + n * d;
    x->q = q, x->k = k;
}

static head head_of(size_t layer, size_t h) {
    const cmha_model_config *c = &model.config;
    const seen *s = blocks ? blocks + layer : NULL;
    const cmha_record *first = s && s->n ? s->attention[0] : NULL;
    size_t plain = plain_heads(layer) * fan(), sizes[3], call = 0;
    head x;
    memset(&x, 0, sizeof x);
    x.temperature = temperature(layer, "", h); /* of all but a Möbius layer's later heads and CRAT's */
    if (h < plain) return see_plain(&x, layer, h), x;
    if (c->family == CMHA_FAMILY_CRAT) {
        static const char *const kinds[] = {"of the real part", "of the imaginary part", "mixed"};
        static const char *const names[] = {"real.", "imag.", "mixed."};
        sizes[0] = c->real_heads, sizes[1] = c->imag_heads, sizes[2] = c->n_heads - sizes[0] - sizes[1];
        int g = 0;
        for (; g < 2 && h >= sizes[g]; g++) h -= sizes[g], call += sizes[g] > 0;
        x.kind = kinds[g], x.temperature = temperature(layer, names[g], h);
        x.what = c->crat_attention == CMHA_CRAT_ATTENTION_DOT ? PLANE_COMPLEX : PLANE_PHASOR;
        see_planes(&x, s && call < s->n ? s->attention[call] : NULL, h, sizes[g]);
        return x;
    }
    x.kind = c->family == CMHA_FAMILY_COPE ? "CoPE" : "Möbius";
    if (model.score) x.kind = "by a score of one's own";
    if (c->family == CMHA_FAMILY_MOBIUS) x.temperature = temperature(layer, "mobius_", h - plain);
    x.what = c->family == CMHA_FAMILY_COPE ? PLANE_COMPLEX : PLANE_MOBIUS;
    see_planes(&x, first, h - plain, heads_of(layer) - plain);
    return x;
}

/* Counts phases of a view, times delta plus b, in PHASE_BINS from -pi to pi. */
static void count_phases(const view *v, size_t pairs, const cmha_real *delta, const cmha_real *b,
                         unsigned *bins) {
    const double pi = 3.14159265358979323846;
    memset(bins, 0, PHASE_BINS * sizeof *bins);
    for (size_t t = 0; t < text.n; t++)
        for (size_t j = 0; j < pairs; j++) {
            const cmha_real *z = v->re + t * v->token + j * v->pair;
            double phase = atan2((double)z[v->imag], (double)z[0]);
            phase = phase * (delta ? (double)delta[j] : 1) + (b ? (double)b[j] : 0);
            phase = (phase + pi) / (2 * pi), phase -= floor(phase);
            if (phase >= 0 && phase <= 1) bins[(size_t)(phase * PHASE_BINS) % PHASE_BINS]++;
        }
}

static double size_of(const view *v, size_t t, size_t j) {
    const cmha_real *z = v->re + t * v->token + j * v->pair;
    double x = (double)z[0];
    if (v->polar) return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)); /* softplus */
    return hypot(x, (double)z[v->imag]);
}

/* Counts moduli in SIZE_BINS from 0 to top; what is larger is in the last. */
static void count_sizes(const view *v, size_t pairs, double top, unsigned *bins) {
    memset(bins, 0, SIZE_BINS * sizeof *bins);
    for (size_t t = 0; t < text.n; t++)
        for (size_t j = 0; j < pairs; j++) {
            double at = size_of(v, t, j) / top * SIZE_BINS;
            if (at >= 0) bins[at < SIZE_BINS ? (size_t)at : SIZE_BINS - 1]++;
        }
}

/* Three root mean squares: nearly all moduli are below. */
static double top_size(const head *x) {
    double sum = 0, n = 0;
    for (int key = 0; key < 2; key++)
        for (size_t t = 0; t < text.n; t++)
            for (size_t j = 0; j < x->pairs; j++) {
                double m = size_of(key ? &x->k : &x->q, t, j);
                if (m < 1e150) sum += m * m, n++;
            }
    return n > 0 && sum > 0 ? 3 * sqrt(sum / n) : 1;
}

/* The histograms of a head: phases as projected and, q2 and k2, after delta and b; moduli. PoPE's phases are
   those of positions alone. */
static void put_histograms(const head *x) {
    unsigned bins[PHASE_BINS];
    double top = top_size(x);
    fputs(",\"bins\":{", page);
    for (int after = 0; !x->q.polar && after < (x->delta ? 2 : 1); after++) {
        const cmha_real *delta = after ? x->delta : NULL;
        count_phases(&x->q, x->pairs, delta, after ? x->b : NULL, bins);
        put_counts(after ? "q2" : "q", bins, PHASE_BINS), fputc(',', page);
        count_phases(&x->k, x->pairs, delta, NULL, bins);
        put_counts(after ? "k2" : "k", bins, PHASE_BINS), fputc(',', page);
    }
    count_sizes(&x->q, x->pairs, top, bins), put_counts("qm", bins, SIZE_BINS), fputc(',', page);
    count_sizes(&x->k, x->pairs, top, bins), put_counts("km", bins, SIZE_BINS);
    fputs(",\"top\":", page), put_number(top), fputc('}', page);
}

/* ---- Attention ---- */

/* Names of what one head may have more than one of: the softmaxes of a complex score. */
static const char *softmax_name(int next, int count) {
    static const char *const two[] = {"softmax of Re O", "softmax of Im O"};
    static const char *const four[] = {"Re q, Re k", "Re q, Im k", "Im q, Re k", "Im q, Im k"};
    return count == 4 ? four[next] : count == 2 ? two[next] : "attention weights";
}

static int softmaxes(const head *x) {
    int kind = model.config.mobius_softmax;
    if (x->what != PLANE_MOBIUS) return 1;
    if (kind == CMHA_SOFTMAX_YANG8) return 4;
    return kind == CMHA_SOFTMAX_RI_PRODUCT || kind == CMHA_SOFTMAX_RI_SPLIT ? 2 : 1;
}

/* Writes weights [n, n] as two letters each, of 4095 levels from low to high; the last pair of letters is
   NaN. Of a causal model row i has i + 1 of them. */
static void put_weights(const char *name, const cmha_real *w, size_t n, int causal) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    double low = 0, high = 1;
    for (size_t i = 0; i < n * n; i++) {
        double v = (double)w[i];
        if (isfinite(v) && (!causal || i % n <= i / n)) low = fmin(low, v), high = fmax(high, v);
    }
    if (high - low < 1.001) high = low + 1;
    fprintf(page, "{\"name\":\"%s\",\"low\":%.9g,\"high\":%.9g,\"w\":\"", name, low, high);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < (causal ? i + 1 : n); j++) {
            double v = (double)w[i * n + j];
            unsigned level = LEVELS;
            if (isfinite(v)) level = (unsigned)floor((v - low) / (high - low) * (LEVELS - 1) + 0.5);
            if (level > LEVELS) level = LEVELS;
            fputc(letters[level >> 6], page), fputc(letters[level & 63], page);
        }
    fputs("\"}", page);
}

static void put_attention(const head *x, size_t layer, size_t h, cmha_real *room) {
    int count = softmaxes(x), written = 0;
    cmha_batch b = text_batch();
    fputs(",\"see\":[", page);
    for (int next = 0; room && next < count; next++) {
        if (cmha_model_attention(&model, &b, layer, h, next * CMHA_SEE_NEXT, room)) {
            miss("some of the attention", cmha_error(&ctx));
            continue;
        }
        if (written++) fputc(',', page);
        put_weights(softmax_name(next, count), room, text.n, model.config.causal);
    }
    fputc(']', page);
}

/* ---- Experts and passages ---- */

/* The experts of every token, the best first, and its gates. */
static void put_experts(const cmha_record *r) {
    const cmha_tensor *logits = r->in[1];
    size_t E = model.config.experts, top = model.config.experts_top, T = text.n;
    if (logits->size != T * E || !E || top > E) return;
    size_t *plan = take(cmha_route_size(T, E, top), sizeof *plan);
    cmha_real *gate = take(times(T, top), sizeof *gate);
    const cmha_route_args route = {T, 0, E, top, NULL, 1};
    cmha_route_forward(&route, logits->data, plan, gate);
    fprintf(page, ",\"experts\":{\"n\":%zu,\"top\":%zu,\"choice\":[", E, top);
    for (size_t i = 0; i < T * top; i++) fprintf(page, i ? ",%zu" : "%zu", plan[i]);
    fputs("],", page);
    put_reals("gate", gate, T * top, 1);
    fputc('}', page);
    free(plan), free(gate);
}

/* One document and what it has of the mix at a token. */
typedef struct share { int64_t document; double share, similarity; } share;

static void add_share(share *all, size_t *n, int64_t document, double part, double similarity) {
    size_t i = 0;
    while (i < *n && all[i].document != document) i++;
    if (i == *n) all[(*n)++] = (share){document, 0, similarity};
    all[i].share += part, all[i].similarity = fmax(all[i].similarity, similarity);
}

static int by_share(const void *a, const void *b) {
    double x = ((const share *)a)->share, y = ((const share *)b)->share;
    return (x < y) - (x > y);
}

/* Softmax of n numbers times factor, in place. */
static void soften(double *x, size_t n, double factor) {
    double top = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++) top = fmax(top, x[i] * factor);
    for (size_t i = 0; i < n; i++) sum += x[i] = exp(x[i] * factor - top);
    for (size_t i = 0; i < n; i++) x[i] /= sum;
}

/* What the queries of one token find: q [M, 2 d_r] planes, weights [M]. Writes the largest shares. */
static void put_found(const cmha_real *q, const double *weights, unsigned char *mentioned) {
    const cmha_model_config *c = &model.config;
    size_t M = c->irw_queries, k = c->irw_top, n = 0;
    int64_t *index = take(times(M, k), sizeof *index);
    cmha_real *similarity = take(times(M, k), sizeof *similarity);
    share *all = take(times(M, k), sizeof *all);
    double *part = take(k, sizeof *part);
    check(cmha_knowledge_search(&base, q, M, k, (cmha_real)c->irw_threshold, index, similarity));
    for (size_t m = 0; m < M; m++) {
        size_t found = 0;
        while (found < k && index[m * k + found] >= 0)
            part[found] = (double)similarity[m * k + found], found++;
        soften(part, found, 1 / c->irw_tau);
        for (size_t i = 0; i < found; i++)
            add_share(all, &n, index[m * k + i], weights[m] * part[i], (double)similarity[m * k + i]);
    }
    qsort(all, n, sizeof *all, by_share);
    fputc('[', page);
    for (size_t i = 0; i < n && i < MOST_FOUND; i++) {
        mentioned[all[i].document] = 1;
        fprintf(page, i ? ",[%lld," : "[%lld,", (long long)all[i].document);
        put_number(all[i].share), fputc(',', page), put_number(all[i].similarity), fputc(']', page);
    }
    fputc(']', page);
    free(index), free(similarity), free(all), free(part);
}

/* Of every token the passages that a layer's window finds. */
static void put_retrieved(const cmha_record *r, unsigned char *mentioned) {
    const cmha_model_config *c = &model.config;
    size_t M = c->irw_queries, d = base.d_r;
    const cmha_real *q = r->in[0]->data, *w = r->in[1]->data;
    if (r->in[0]->size != text.n * 2 * M * d || r->in[1]->size != M) return;
    double *weights = take(M, sizeof *weights);
    cmha_real *rows = take(times(M, 2 * d), sizeof *rows);
    for (size_t m = 0; m < M; m++) weights[m] = (double)w[m];
    if (!c->irw_raw) soften(weights, M, 1);
    fputs(",\"found\":[", page);
    for (size_t t = 0; t < text.n; t++, q += 2 * M * d) {
        for (size_t m = 0; m < M; m++) {
            memcpy(rows + 2 * m * d, q + m * d, d * sizeof *q);
            memcpy(rows + (2 * m + 1) * d, q + (M + m) * d, d * sizeof *q);
        }
        if (t) fputc(',', page);
        put_found(rows, weights, mentioned);
    }
    fputc(']', page);
    free(weights), free(rows);
}

/* The beginnings of the passages that were found. */
static void put_passages(const unsigned char *mentioned) {
    int some = 0;
    fputs(",\"passages\":{", page);
    for (size_t i = 0; i < base.n; i++) {
        size_t n;
        const char *s = mentioned[i] ? cmha_knowledge_text(&base, i, &n) : NULL;
        if (!s) continue;
        size_t shown = n < 300 ? n : 300;
        while (shown < n && shown > 290 && (s[shown] & 0xC0) == 0x80) shown--; /* no half characters */
        fprintf(page, some++ ? ",\"%zu\":\"" : "\"%zu\":\"", i);
        put_text(IN_JSON, s, shown), fputs(shown < n ? " ..\"" : "\"", page);
    }
    fputc('}', page);
}

/* ---- Möbius maps ---- */

/* A layer's maps: of each channel a, b, c, d (8 numbers), its geometry, fixed points and multiplier. */
static void put_maps(const cmha_tensor *maps) {
    size_t D = maps->shape[maps->rank - 1];
    mobius_class *classes = take(D, sizeof *classes);
    mobius_classify(maps->data, D, number_of(&option[TOLERANCE], 0, 1e9), classes);
    fputs(",\"maps\":[", page);
    for (size_t j = 0; j < D; j++) {
        const mobius_class *m = classes + j;
        const double more[6] = {m->fixed[0][0], m->fixed[0][1], m->fixed[1][0],
                                m->fixed[1][1], m->multiplier[0], m->multiplier[1]};
        fputs(j ? ",{" : "{", page);
        put_reals("m", maps->data + j, 8, D);
        fprintf(page, ",\"kind\":\"%s\",\"n\":%d,\"f\":[", mobius_name(m->kind), m->n_fixed);
        for (int i = 0; i < 6; i++) {
            if (i) fputc(',', page);
            put_number(more[i]);
        }
        fputs("]}", page);
    }
    fputc(']', page);
    free(classes);
}

/* ---- The data of the script ---- */

/* What is learned of a head's phases, and the frequencies */
static void put_phases(const head *x) {
    if (x->omega) {
        fputs(",\"omega\":[", page);
        for (size_t j = 0; j < x->pairs; j++) {
            if (j) fputc(',', page);
            put_number(x->omega[j]);
        }
        fputc(']', page);
    }
    if (x->delta) fputc(',', page), put_reals("delta", x->delta, x->pairs, 1);
    if (x->delta) fputc(',', page), put_reals("b", x->b, x->pairs, 1);
    if (x->beta) fputc(',', page), put_reals("beta", x->beta, x->pairs, 1);
}

static void put_head(size_t layer, size_t h, cmha_real *room) {
    static const char *const planes[] = {"none", "turn", "polar", "phasor", "complex", "mobius", "own"};
    head x = head_of(layer, h);
    fprintf(page, "{\"plane\":\"%s\",\"kind\":\"%s\",\"pairs\":%zu", planes[x.what], x.kind, x.pairs);
    put_phases(&x);
    if (isfinite(x.temperature)) fprintf(page, ",\"temperature\":%.5g", x.temperature);
    if (x.q.re) put_histograms(&x);
    put_attention(&x, layer, h, room);
    fputc('}', page);
}

/* What is learned of the phases in the other runs, layer by layer and head by head. Heads are read of
   `model`, whose place the others therefore take meanwhile. */
static void put_other_runs(void) {
    cmha_model shown = model;
    seen *were = blocks;
    blocks = NULL;
    fputs(",\n\"runs\":[", page);
    for (const run *r = runs + 1; r < runs + n_runs; r++) {
        model = r->model;
        fputs(r > runs + 1 ? ",\n{\"name\":\"" : "\n{\"name\":\"", page);
        put_text(IN_JSON, r->name, strlen(r->name)), fputs("\",\"layers\":[", page);
        for (size_t l = 0; l < model.config.n_layers; l++) {
            fputs(l ? ",[" : "[", page);
            for (size_t h = 0; h < heads_of(l); h++) {
                head x = head_of(l, h);
                fprintf(page, h ? ",{\"pairs\":%zu" : "{\"pairs\":%zu", x.pairs);
                put_phases(&x);
                fputc('}', page);
            }
            fputc(']', page);
        }
        fputs("]}", page);
    }
    fputc(']', page);
    model = shown, blocks = were;
}

static void put_data(void) {
    const cmha_model_config *c = &model.config;
    cmha_real *room = text.n ? take(times(text.n, text.n), sizeof *room) : NULL;
    unsigned char *mentioned = take(base.n, 1);
    fprintf(page, "<script type=\"application/json\" id=\"data\">\n{\"causal\":%d,", c->causal);
    fprintf(page, "\"of\":%zu,\"more\":%d,", text_tokens, text_goes_on);
    fprintf(page, "\"eps\":%g,\"atan\":%d,", c->complex_eps, c->angle);
    fprintf(page, "\"quotient\":\"%s\",", model_field("mobius_quotient"));
    put_tokens();
    fputs(",\"layers\":[", page);
    for (size_t l = 0; l < c->n_layers; l++) {
        const seen *s = blocks ? blocks + l : NULL;
        fputs(l ? ",\n{\"heads\":[" : "\n{\"heads\":[", page);
        for (size_t h = 0; h < heads_of(l); h++) {
            if (h) fputc(',', page);
            put_head(l, h, room);
        }
        fprintf(page, "],\"plain\":%zu", plain_heads(l) * fan());
        if (model.blocks[l].mobius) put_maps(model.blocks[l].mobius);
        if (s && s->experts) put_experts(s->experts);
        if (s && s->retrieve && base.n) put_retrieved(s->retrieve, mentioned);
        fputc('}', page);
    }
    fputc(']', page);
    put_passages(mentioned), put_other_runs();
    fprintf(page, ",\"renew\":%llu", (unsigned long long)renew);
    fputs("}\n</script>\n", page);
    free(room), free(mentioned);
}

/* ---- Charts ---- */

/* Writes a chart for the page, under an empty title of its own where the page has one. */
static void put_chart(const chart *c, double wide, const char *description) {
    figure f;
    memset(&f, 0, sizeof f);
    f.charts = c, f.n = 1, f.wide = wide, f.html = 1, f.id = ++drawings, f.description = description;
    f.apart = 1;
    fputs("<div class=\"chart\">", page);
    figure_write(page, &f), legend_page(page, &f);
    fputs("</div>\n", page);
}

static const char *const csv_names[COLUMNS] = {"step", "loss", "val_loss", "lr", "grad_norm"};

/* Cuts the first cell off a line of a CSV; 0 where there is none. */
static int cut_comma(text_slice *line, text_slice *cell) {
    if (!line->at) return 0;
    const char *comma = memchr(line->at, ',', line->n);
    *cell = *line;
    if (comma) cell->n = (size_t)(comma - line->at), line->n -= cell->n + 1, line->at = comma + 1;
    else line->at = NULL;
    return 1;
}

/* Takes a row over. A run that was killed and resumed has some steps twice: the later ones hold. */
static void add_row(history *h, text_slice line, const int *column) {
    double row[COLUMNS], value;
    text_slice cell;
    for (int i = 0; i < COLUMNS; i++) row[i] = NAN;
    for (int c = 0; cut_comma(&line, &cell); c++)
        for (int i = 0; i < COLUMNS; i++)
            if (column[i] == c && text_number(cell, &value)) row[i] = value;
    if (!isfinite(row[COLUMN_STEP])) return;
    while (h->n && h->x[COLUMN_STEP][h->n - 1] >= row[COLUMN_STEP]) h->n--;
    for (int i = 0; i < COLUMNS; i++) h->x[i][h->n] = row[i];
    h->n++;
}

/* Reads the CSV, if it is there and has these columns. */
static int read_history(history *h) {
    char *all;
    size_t bytes, lines = 1;
    int column[COLUMNS];
    if (!text_read(h->path, (size_t)1 << 28, &all, &bytes, failure)) return 0;
    const char *at = bytes ? all : NULL, *end = all + bytes;
    for (size_t i = 0; i < bytes; i++) lines += all[i] == '\n';
    for (int i = 0; i < COLUMNS; i++) column[i] = -1, h->x[i] = take(lines, sizeof(double));
    text_slice line = {NULL, 0}, cell;
    if (at) line = text_line(&at, end);
    for (int c = 0; cut_comma(&line, &cell); c++)
        for (int i = 0; i < COLUMNS; i++)
            if (text_same(cell, text_of(csv_names[i]))) column[i] = c;
    while (at) add_row(h, text_line(&at, end), column);
    free(all);
    if (column[COLUMN_STEP] >= 0 && column[COLUMN_LOSS] >= 0) return 1;
    return text_fail(failure, "%s has no columns step and loss", h->path);
}

/* Finds it: what --csv names (`given`), else what lies beside the checkpoint. */
static int find_history(history *h, const char *path, const char *given) {
    const char *slash = strrchr(path, '/');
    if (given) return snprintf(h->path, sizeof h->path, "%s", given) < (int)sizeof h->path;
    if (codec_beside(path, ".csv", h->path, sizeof h->path) && !access(h->path, R_OK)) return 1;
    int folder = slash ? (int)(slash + 1 - path) : 0;
    return snprintf(h->path, sizeof h->path, "%.*sloss.csv", folder, path) < (int)sizeof h->path &&
           !access(h->path, R_OK);
}

/* Means of CURVE stretches at most, each at its middle: what a line of that many pixels can show. Where a
   stretch holds no number there is no point. Returns how many there are. */
static size_t thin_out(const history *h, int column, double *at, double *value) {
    size_t n = 0, parts = h->n < CURVE ? h->n : CURVE;
    for (size_t i = 0; i < parts; i++) {
        double sum = 0, where = 0, count = 0;
        for (size_t j = i * h->n / parts; j < (i + 1) * h->n / parts; j++)
            if (isfinite(h->x[column][j])) sum += h->x[column][j], where += h->x[COLUMN_STEP][j], count++;
        if (count > 0) at[n] = where / count, value[n++] = sum / count;
    }
    return n;
}

static double last_number(const double *x, size_t n) {
    while (n && !isfinite(x[n - 1])) n--;
    return n ? x[n - 1] : NAN;
}

/* A chart over the steps: one or two columns of one run or, of several runs, one column each. */
static void put_curves(const char *title, const char *unit, int column, int other) {
    static double at[MOST_RUNS][CURVE], value[MOST_RUNS][CURVE];
    char description[400];
    chart_series line[MOST_RUNS];
    chart c;
    size_t n = 0, lines = n_runs > 1 ? n_runs : other >= 0 ? 2 : 1, steps = 0;
    memset(line, 0, sizeof line), memset(&c, 0, sizeof c);
    for (size_t i = 0; i < lines; i++) {
        const run *r = &runs[n_runs > 1 ? i : 0];
        chart_series *s = &line[n];
        s->n = r->rows.n ? thin_out(&r->rows, n_runs == 1 && i ? other : column, at[n], value[n]) : 0;
        s->at = at[n], s->values = value[n];
        if (n_runs > 1) s->look = i ? (int)i + 3 : 1; /* 2 and 3 are in the grid of the plane */
        if (n_runs > 1) s->name = r->name, s->bold = !i;
        else if (other >= 0) s->name = i ? "validation" : "training", s->bold = i > 0;
        if (r->rows.n > steps) steps = r->rows.n;
        n += s->n > 0;
    }
    c.n = n;
    c.title = title, c.series = line, c.high = 220, c.x.label = "step", c.y.label = unit;
    snprintf(description, sizeof description, "%s of %zu steps%s%s", title, steps,
             n_runs > 1 ? ", a line a run; the table has the ends" : "",
             steps > CURVE ? ". Each point is the mean of a stretch" : "");
    if (n_runs == 1 && n) {
        size_t length = strlen(description);
        snprintf(description + length, sizeof description - length, "; at the end %.4g",
                 last_number(runs->rows.x[column], runs->rows.n));
    }
    if (n) put_chart(&c, other >= 0 || n_runs > 1 ? 400 : 340, description);
}

/* The numbers of the curves, for whoever does not see them. */
static void put_curve_table(const history *h) {
    size_t rows = h->n < 12 ? h->n : 12;
    fputs("<details><summary>Numbers</summary><div class=\"wide\"><table><tr><th>step<th>training loss"
          "<th>validation loss<th>rate<th>gradient norm", page);
    for (size_t i = 0; i < rows; i++) {
        size_t at = rows > 1 ? i * (h->n - 1) / (rows - 1) : 0;
        fputs("\n<tr>", page);
        for (int c = 0; c < COLUMNS; c++) {
            double x = c == COLUMN_VAL ? last_number(h->x[c], at + 1) : h->x[c][at];
            fprintf(page, isfinite(x) ? "<td>%.5g" : "<td>-", x);
        }
    }
    fputs("</table></div></details>\n", page);
}

/* Says in the page why a run has no rows; of a file that the user named, on stderr as well. A page that is
   renewed may still get them: there the last one says it. */
static void miss_rows(const run *r, const char *what, const char *why) {
    miss(what, why);
    if (r == runs && option[CSV].value && !renew) complain(0, "warning: --csv: ", why);
}

/* Reads the CSVs of all runs; says where there is none. */
static void read_histories(void) {
    for (run *r = runs; r < runs + n_runs; r++) {
        char what[200] = "loss and rate";
        if (n_runs > 1) snprintf(what, sizeof what, "loss and rate of %.150s", r->name);
        history *h = &r->rows;
        if (!find_history(h, r->path, r == runs ? option[CSV].value : NULL))
            miss(what, r == runs ? "no CSV of the training; name it with --csv"
                                 : "no CSV of the training beside the checkpoint");
        else if (!read_history(h)) h->n = 0, miss_rows(r, what, failure);
        else if (!h->n) miss_rows(r, what, "the CSV has no rows");
    }
}

static double least_number(const double *x, size_t n) {
    double least = NAN;
    for (size_t i = 0; i < n; i++)
        if (isfinite(x[i]) && !(x[i] >= least)) least = x[i];
    return least;
}

/* A row of the table of runs: a name, then a cell for each. */
static void put_run_numbers(const char *name, int column, int last) {
    fprintf(page, "\n<tr><th class=\"word\">%s", name);
    for (const run *r = runs; r < runs + n_runs; r++) {
        const double *x = r->rows.n ? r->rows.x[column] : NULL;
        double value = !x ? NAN : last ? last_number(x, r->rows.n) : least_number(x, r->rows.n);
        fprintf(page, isfinite(value) ? "<td>%.5g" : "<td>-", value);
    }
}

/* The fields of a table that are not the same in all runs. */
static void put_run_fields(const char *of, cmha_table table, const void *(*config)(const run *)) {
    for (size_t i = 0; i < table.count; i++) {
        const char *name = table.fields[i].name;
        char first[32], value[32];
        int differs = 0;
        cmha_config_get(table, config(runs), name, first, sizeof first);
        for (const run *r = runs + 1; r < runs + n_runs; r++) {
            cmha_config_get(table, config(r), name, value, sizeof value);
            differs |= strcmp(value, first) != 0;
        }
        if (!differs) continue;
        fprintf(page, "\n<tr><th class=\"word\">%s%s", of, name);
        for (const run *r = runs; r < runs + n_runs; r++) {
            cmha_config_get(table, config(r), name, value, sizeof value);
            fputs("<td>", page), put_html(*value ? value : "-");
        }
    }
}

static const void *model_config_of(const run *r) { return r == runs ? &as_saved : &r->model.config; }
static const void *trainer_config_of(const run *r) { return r == runs ? &trained : &r->trained; }

static void put_run_table(void) {
    fputs("<h3>What differs</h3>\n<div class=\"wide\"><table class=\"runs\"><tr><th>", page);
    for (const run *r = runs; r < runs + n_runs; r++) fputs("<th>", page), put_html(r->name);
    put_run_numbers("last step", COLUMN_STEP, 1), put_run_numbers("last training loss", COLUMN_LOSS, 1);
    put_run_numbers("last validation loss", COLUMN_VAL, 1);
    put_run_numbers("least validation loss", COLUMN_VAL, 0);
    fputs("\n<tr><th class=\"word\">parameters", page);
    for (const run *r = runs; r < runs + n_runs; r++)
        fprintf(page, "<td>%zu", r == runs ? model.parameters.size : r->model.parameters.size);
    put_run_fields("", cmha_model_table(), model_config_of);
    put_run_fields("training: ", cmha_trainer_table(), trainer_config_of);
    fputs("</table></div>\n", page);
}

static void put_training(void) {
    int some = 0;
    read_histories();
    for (const run *r = runs; r < runs + n_runs; r++) some |= r->rows.n > 0;
    if (!some && n_runs == 1) return;
    fputs("<section id=\"training\"><h2>Training</h2>\n<p class=\"note\">", page);
    if (n_runs == 1) {
        fputs("From <code>", page), put_html(draw_base(runs->rows.path));
        fprintf(page, "</code>: %zu steps. ", runs->rows.n);
    }
    fputs("Validation is on text that is held out.</p>\n<div class=\"row\">\n", page);
    if (n_runs == 1) put_curves("Loss", "nats a token", COLUMN_LOSS, COLUMN_VAL);
    else {
        put_curves("Validation loss", "nats a token", COLUMN_VAL, -1);
        put_curves("Training loss", "nats a token", COLUMN_LOSS, -1);
    }
    put_curves("Learning rate", "rate of a step", COLUMN_RATE, -1);
    put_curves("Gradient", "norm before clipping", COLUMN_NORM, -1);
    fputs("</div>\n", page);
    if (n_runs > 1) put_run_table();
    else put_curve_table(&runs->rows);
    fputs("</section>\n", page);
}

/* How many tokens of the text each expert of each layer gets. */
static void put_expert_chart(void) {
    const cmha_model_config *c = &model.config;
    size_t E = c->experts, top = c->experts_top, T = text.n, n = 0;
    double *use = take(times(c->n_layers, E), sizeof *use);
    char(*names)[32] = take(c->n_layers, sizeof *names);
    chart_series *s = take(c->n_layers, sizeof *s);
    size_t *plan = take(cmha_route_size(T, E, top), sizeof *plan);
    cmha_real *gate = take(times(T, top), sizeof *gate);
    const cmha_route_args route = {T, 0, E, top, NULL, 1};
    for (size_t l = 0; l < c->n_layers; l++) {
        const cmha_record *r = blocks[l].experts;
        if (!r || r->in[1]->size != T * E) continue;
        cmha_route_forward(&route, r->in[1]->data, plan, gate);
        for (size_t i = 0; i < T * top; i++) use[n * E + plan[i]] += 100 / (double)(T * top);
        snprintf(names[n], sizeof *names, "layer %zu", l);
        s[n].name = names[n], s[n].n = E, s[n].values = use + n * E, s[n].mark = CHART_BARS, n++;
    }
    char(*labels)[24] = take(E, sizeof *labels);
    const char **label = take(E, sizeof *label);
    for (size_t e = 0; e < E; e++) snprintf(labels[e], sizeof *labels, "%zu", e), label[e] = labels[e];
    chart bars;
    memset(&bars, 0, sizeof bars);
    if (E <= 32) bars.x.names = label, bars.x.n_names = E;
    bars.title = "How the choices are shared";
    bars.x.label = "expert", bars.y.label = "% of the choices", bars.series = s, bars.n = n, bars.high = 220;
    chart_rule even = {100 / (double)E, 0, "even"};
    bars.rules = &even, bars.n_rules = 1;
    if (n) put_chart(&bars, 760, "How often each expert is chosen, by layer; the table has the numbers");
    fputs("<details><summary>Numbers</summary><div class=\"wide\"><table><tr><th>expert", page);
    for (size_t e = 0; e < E; e++) fprintf(page, "<th>%zu", e);
    for (size_t l = 0; l < n; l++) {
        fprintf(page, "\n<tr><th>%s", names[l]);
        for (size_t e = 0; e < E; e++) fprintf(page, "<td>%.1f %%", use[l * E + e]);
    }
    fputs("</table></div></details>\n", page);
    free(use), free(names), free(s), free(plan), free(gate), free(labels), free(label);
}

/* How many channels of every head do what. */
static void put_map_table(void) {
    const cmha_model_config *c = &model.config;
    fputs("<details><summary>All heads: channels by geometry</summary><div class=\"wide\"><table>"
          "<tr><th>layer<th>head", page);
    for (int g = 0; g < MOBIUS_GEOMETRIES; g++) fprintf(page, "<th>%s", mobius_name((mobius_geometry)g));
    for (size_t l = 0; l < c->n_layers; l++) {
        const cmha_tensor *maps = model.blocks[l].mobius;
        if (!maps) continue;
        size_t D = maps->shape[maps->rank - 1], plain = plain_heads(l), heads = c->n_heads - plain;
        mobius_class *classes = take(D, sizeof *classes);
        mobius_classify(maps->data, D, number_of(&option[TOLERANCE], 0, 1e9), classes);
        for (size_t h = 0; heads && h < heads; h++) {
            size_t counts[MOBIUS_GEOMETRIES];
            mobius_count(classes + h * (D / heads), D / heads, counts);
            fprintf(page, "\n<tr><td>%zu<td>%zu", l, plain * fan() + h);
            for (int g = 0; g < MOBIUS_GEOMETRIES; g++) fprintf(page, "<td>%zu", counts[g]);
        }
        free(classes);
    }
    fputs("</table></div></details>\n", page);
}

/* ---- The page ---- */

static void put_lines(const char *const *lines) {
    for (; *lines; lines++) fputs(*lines, page), fputc('\n', page);
}

static void put_fact(const char *name, const char *format, ...) {
    char value[200];
    va_list list;
    va_start(list, format);
    vsnprintf(value, sizeof value, format, list);
    va_end(list);
    fprintf(page, "<div><dt>%s</dt><dd>", name), put_html(value), fputs("</dd></div>\n", page);
}

/* What a configuration sets otherwise than usual. */
static void put_settings(const char *name, cmha_table table, const void *config) {
    union { cmha_model_config model; cmha_trainer_config trainer; } usual;
    int some = 0;
    cmha_config_defaults(table, &usual);
    fprintf(page, "<p>%s:", name);
    for (size_t i = 0; i < table.count; i++) {
        char is[32], was[32];
        cmha_config_get(table, config, table.fields[i].name, is, sizeof is);
        cmha_config_get(table, &usual, table.fields[i].name, was, sizeof was);
        if (!strcmp(is, was)) continue;
        fputs(" <code>", page), some = 1;
        put_html(table.fields[i].name), fputc('=', page), put_html(is), fputs("</code>", page);
    }
    fputs(some ? "</p>\n" : " all as usual</p>\n", page);
}

static void put_facts(const cmha_model_config *c) {
    fputs("<dl>\n", page);
    put_fact("family", "%s%s", model_field("family"), c->causal ? ", decoder" : ", encoder");
    if (c->family == CMHA_FAMILY_CRAT) put_fact("attention", "%s", model_field("crat_attention"));
    else if (c->family == CMHA_FAMILY_COPE) put_fact("score", "%s", model_field("cope_score"));
    else put_fact("attention", "%s", model_field(model.score ? "score" : "attention"));
    put_fact("layers", "%zu", c->n_layers), put_fact("heads", "%zu, %zu wide", c->n_heads, head_width());
    put_fact("width", "%zu", c->d_model), put_fact("vocabulary", "%zu", c->vocabulary);
    put_fact("parameters", "%.4g million", 1e-6 * (double)model.parameters.size);
    const cmha_parameter *gamma = cmha_parameters_find(&model.parameters, "cope.gamma");
    if (gamma) put_fact("gamma", "%.4g, learned", (double)gamma->tensor.data[0]);
    if (c->experts) put_fact("experts", "%zu, %zu a token", c->experts, c->experts_top);
    fputs("</dl>\n", page);
}

/* The head of the page: its title, its colours in the light and in the dark. */
static void put_head_of_page(const char *path) {
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>", page);
    put_html(draw_base(path));
    if (renew) fprintf(page, " (live)");
    fputs(" - look</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>\n:root{", page);
    draw_css(page, 0);
    fputs("}\n@media (prefers-color-scheme:dark){:root{", page), draw_css(page, 1);
    fputs("}}\n:root.light{", page), draw_css(page, 0);
    fputs("}\n:root.dark{", page), draw_css(page, 1), fputs("}\n", page);
    put_lines(look_style);
    fputs("</style>\n</head>\n<body>\n", page);
}

static void put_header(const char *path, const cmha_model_config *c) {
    fputs("<header><h1>", page), put_html(draw_base(path)), fputs("</h1>\n", page);
    if (renew)
        fprintf(page, "<p id=\"live\">In training: this page is written anew and renews itself every %llu "
                "seconds. <button type=\"button\" id=\"hold\">Hold</button></p>\n",
                (unsigned long long)renew);
    put_facts(c);
    fputs("<details><summary>Settings other than the defaults</summary>\n", page);
    put_settings("Model", cmha_model_table(), c), put_settings("Training", cmha_trainer_table(), &trained);
    fputs("</details></header>\n", page);
}

/* The figures that the script draws, as far as the model has what they show. */
static void put_figures(void) {
    const cmha_model_config *c = &model.config;
    int phases = 0, maps = 0, planes = 0;
    for (size_t l = 0; l < c->n_layers; l++) {
        maps |= model.blocks[l].mobius != NULL;
        for (size_t h = 0; h < heads_of(l); h++) {
            head x = head_of(l, h);
            phases |= x.delta || x.beta, planes |= x.q.re != NULL;
        }
    }
    fputs("<div class=\"bar\" role=\"group\" aria-label=\"What is shown\">\n", page);
    put_lines(look_bar), fputs("</div>\n", page);
    if (text.n) fprintf(page, "%s\n", look_attention[0]);
    if (frames) put_lines(look_frames);
    if (text.n) put_lines(look_attention + 1);
    fputs("<div class=\"pair\">\n", page);
    if (phases) put_lines(look_phases);
    else miss("delta and b", "this model's attention has none");
    put_lines(look_plane);
    if (maps) put_map_table();
    fputs(phases ? "</section></div>\n" : "</section>\n", page);
    if (planes) put_lines(look_histograms);
    else if (text.n && blocks) miss("phases and moduli", "no head has complex queries and keys");
    if (!phases) fputs("</div>\n", page);
}

static void put_experts_and_passages(void) {
    const cmha_model_config *c = &model.config;
    if (c->experts && blocks) {
        fputs("<section id=\"experts\"><h2>Experts</h2>\n<p class=\"note\">Where the router sends the tokens "
              "of the text. Choose a token above to see its own experts.</p>\n", page);
        put_expert_chart(), fputs("</section>\n", page);
    }
    if (c->irw_layers && base.n && blocks) put_lines(look_passages);
    else if (c->irw_layers) miss("passages", "no knowledge base; name it with --base");
}

static void put_missing(void) {
    fputs("<footer>\n", page);
    if (n_missing) {
        fputs("<h2>Not shown</h2>\n<ul>\n", page);
        for (size_t i = 0; i < n_missing; i++) fputs("<li>", page), put_html(missing[i]), fputc('\n', page);
        fputs("</ul>\n", page);
    }
    if (text.n < text_tokens || text_goes_on)
        fprintf(page, "<p>The %s cut: the first %zu of %s%zu %s are shown.</p>\n",
                frames ? "file is" : "text is", text.n, text_goes_on ? "more than " : "", text_tokens,
                frames ? "frames" : "tokens");
    fprintf(page, "<p>cmha.h %s. Weights are rounded to 1/%d of their range.</p>\n</footer>\n",
            cmha_version(), LEVELS - 1);
}

static void put_page(const char *path, const cmha_model_config *c) {
    put_head_of_page(path), put_header(path, c);
    fputs("<noscript><p>The figures of heads need the script of this page.</p></noscript>\n<main>\n", page);
    put_training(), put_figures(), put_experts_and_passages();
    fputs("</main>\n", page);
    put_data(), put_missing();
    fputs("<script>\n", page), put_lines(look_script), fputs("</script>\n</body>\n</html>\n", page);
}

/* ---- From start to end ---- */

static int help(void) {
    puts("look [OPTION...] CHECKPOINT [TEXT]: writes one HTML page that shows what the model does, in the\n"
         "complex plane and with the text (a file; else a text of ours)\n");
    print_options(option, N_OPTIONS, 13, 0);
    return end_help("build/look --out look.html tiny.safetensors text.txt");
}

/* Takes every --with out of the command line. */
static void take_runs(int *argc, char **argv) {
    for (int i = 1; i < *argc; i++) {
        int sign = !strncmp(argv[i], "--with=", 7), n = sign ? 1 : 2;
        if (!sign && strcmp(argv[i], "--with") != 0) continue;
        if (i + n > *argc) complain(2, "a value is missing after ", "--with");
        if (n_runs == MOST_RUNS) complain(2, "--with is for 7 runs at most, what is ", argv[i + n - 1]);
        runs[n_runs++].path = sign ? argv[i] + 7 : argv[i + 1];
        memmove(argv + i, argv + i + n, (size_t)(*argc - i - n + 1) * sizeof *argv);
        *argc -= n, i--;
    }
}

/* Names runs by their files, by their paths where two files have one name. */
static void name_runs(const char *path) {
    runs->path = path;
    for (run *r = runs; r < runs + n_runs; r++) {
        r->name = draw_base(r->path);
        for (const run *other = runs; other < runs + n_runs; other++)
            if (other != r && !strcmp(draw_base(other->path), draw_base(r->path))) r->name = r->path;
    }
}

/* A page that did not become whole goes. */
static void forget(void) {
    if (*own) (void)remove(own);
}

/* Writes the page beside the old one, which it then replaces. Returns its bytes. */
static long write_page(const char *to, const char *path, const cmha_model_config *c) {
    int mode;
    char *target = text_replaced(to, &mode);
    if (target && strlen(target) + 40 < sizeof own) page = text_own_file(target, own, sizeof own, mode);
    if (!page) *own = 0, complain(1, "cannot write ", to);
    put_page(path, c);
    long bytes = ftell(page);
    int bad = ferror(page) != 0;
    bad |= fclose(page) != 0;
    if (bad || !text_replace(own, target)) complain(1, "cannot write ", to);
    *own = 0;
    free(target);
    return bytes;
}

static void open_all(const char *path, const char *file) {
    open_checkpoint(&model, path);
    as_saved = model.config;
    check(cmha_config_read(&ctx, path, NULL, &trained));
    for (run *r = runs + 1; r < runs + n_runs; r++) {
        open_checkpoint(&r->model, r->path);
        check(cmha_config_read(&ctx, r->path, NULL, &r->trained));
    }
    refuse_text(path, file);
    open_words(path);
    read_text(file);
    if (has_numbers() && !frames)
        miss("attention, experts and histograms", "the model reads numbers, not a text; see --frames");
    else if (!text.n)
        miss("attention, experts and histograms",
             words.kind == CODEC_NUMBERS ? "the model reads numbers of tokens; list some in TEXT"
                                         : "the text is empty");
    if (option[BASE].value) {
        check(cmha_knowledge_open(&base, &ctx, option[BASE].value, 0));
        check(cmha_model_set_knowledge(&model, &base));
    }
    look_inside();
}

/* Closes what open_all and a page have opened, so that they can begin again. */
static void close_all(void) {
    free(blocks), blocks = NULL;
    codec_ids_free(&text), codec_close(&words), cmha_tape_close(&tape), cmha_knowledge_close(&base);
    free(frames), frames = NULL, text_tokens = 0;
    for (run *r = runs; r < runs + n_runs; r++) {
        cmha_model_close(&r->model);
        for (int i = 0; i < COLUMNS; i++) free(r->rows.x[i]);
        memset(&r->rows, 0, sizeof r->rows);
    }
    cmha_model_close(&model);
    n_missing = drawings = 0;
}

static void show(const char *to, const char *path, const char *file) {
    open_all(path, file);
    long bytes = write_page(to, path, &as_saved);
    const char *unit = frames ? "frames" : "tokens";
    printf("%s: %ld bytes, ", to, bytes);
    if (text.n < text_tokens || text_goes_on)
        printf("the first %zu of %s%zu %s", text.n, text_goes_on ? "more than " : "", text_tokens, unit);
    else printf("%zu %s", text.n, unit);
    if (renew && runs->rows.n) printf(", step %.0f", runs->rows.x[COLUMN_STEP][runs->rows.n - 1]);
    putchar('\n'), fflush(stdout);
}

/* ---- A model under training ---- */

static void on_signal(int sig) {
    stop = sig;
    signal(sig, SIG_DFL); /* a second Ctrl-C does not wait */
}

/* When and how large the files are that the page is made of: another number after a change. */
static uint64_t stamp_of(const char *path) {
    struct stat about;
    uint64_t stamp = 0;
    history h;
    const char *files[2] = {path, find_history(&h, path, option[CSV].value) ? h.path : NULL};
    for (int i = 0; i < 2; i++) {
        if (!files[i] || stat(files[i], &about)) continue;
        stamp = (stamp ^ (uint64_t)about.st_mtime) * 0x9E3779B97F4A7C15u;
        stamp = (stamp ^ (uint64_t)about.st_size ^ (uint64_t)about.st_ino << 32) * 0x9E3779B97F4A7C15u;
    }
    return stamp;
}

/* Has the last step been trained, as far as the CSV and the checkpoint say? */
static int is_over(void) {
    const history *h = &runs->rows;
    return h->n && trained.steps && h->x[COLUMN_STEP][h->n - 1] >= (double)trained.steps;
}

/* Waits so many seconds, or for a signal. */
static void rest(uint64_t every) {
    for (uint64_t i = 0; !stop && i < 10 * every; i++) usleep(100000);
}

/* Writes the page whenever the files have changed; when the training is over, or after a signal, once more as
   a page that stays. */
static void follow(const char *to, const char *path, const char *file, uint64_t every) {
    uint64_t shown = 0, now;
    int over = 0;
    signal(SIGINT, on_signal), signal(SIGTERM, on_signal);
    if (access(path, R_OK)) printf("waiting for %s\n", path), fflush(stdout);
    while (!stop && access(path, R_OK)) rest(1);
    for (renew = every; !stop && !over; rest(over ? 0 : every)) {
        if ((now = stamp_of(path)) == shown) continue;
        shown = now;
        show(to, path, file), over = is_over();
        close_all();
    }
    renew = 0;
    if (!access(path, R_OK)) show(to, path, file);
}

int main(int argc, char **argv) {
    char beside[4096];
    history rows_of;
    int n_set = 0;
    start_program(argv);
    take_runs(&argc, argv);
    const uint32_t flags = 1u << HELP | 1u << FOLLOW;
    const char *file = take_second(option, N_OPTIONS, flags, &argc, argv);
    const char *path = read_options(option, N_OPTIONS, flags, argc, argv, &n_set);
    open_context(&(setting){"--seed", "1", NULL}, &option[THREADS], option[HELP].value != NULL);
    if (option[HELP].value) return help();
    number_of(&option[TOLERANCE], 0, 1e9), whole_of(&option[TOKENS], 0, MOST_TOKENS);
    if (option[FOLLOW].value && !*option[FOLLOW].value) option[FOLLOW].value = "5";
    uint64_t every = option[FOLLOW].value ? whole_of(&option[FOLLOW], 1, 86400) : 0;
    if (!path) complain(2, "name a checkpoint, such as tiny.safetensors (build/train_tiny makes one)", "");
    if (file && option[WORDS].value) complain(2, "there is a --text; what is ", file);
    if (option[FRAMES].value && (file || option[WORDS].value))
        complain(2, "--frames and a text: one of them is enough", "");
    const char *again = option[FRAMES].value ? option[FRAMES].value : file; /* with every page */
    if (every && again && !strcmp(again, "-"))
        complain(2, "what --follow shows is read again: it cannot be the standard input", "");
    const char *to = option[OUT_FILE].value;
    if (!to && !codec_beside(path, ".html", beside, sizeof beside)) complain(2, "too long: ", path);
    if (!to) to = beside;
    if (option[CSV].value && !every && access(option[CSV].value, R_OK)) /* of --follow it may come later */
        complain(1, "cannot open ", option[CSV].value);
    name_runs(path);
    const char *used[5] = {file, option[FRAMES].value, option[BASE].value, option[TOKENIZER].value, NULL};
    if (find_history(&rows_of, path, option[CSV].value)) used[4] = rows_of.path;
    refuse_replacing(option[OUT_FILE].name, to, used, 5);
    for (const run *r = runs; r < runs + n_runs; r++)
        refuse_replacing(option[OUT_FILE].name, to, &r->path, 1);
    atexit(forget);
    if (every) follow(to, path, file, every);
    else show(to, path, file);
    close_all(), cmha_context_close(&ctx);
    return end_program(0);
}
