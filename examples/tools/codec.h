/* codec.h - what turns text into a model's tokens and tokens into text: a tokenizer (../tokenizer.h), bytes,
   or for other models the bare numbers. Where the libraries of tokenizers are not there (WITH_TOKENIZER is
   not defined), asking for one is answered with a line that names them. Include it after cmha.h.

   Static functions without globals; those that can fail return 1 for success and 0 for failure, and then
   `error` (TEXT_ERROR bytes) holds one line. */
#ifndef CODEC_H
#define CODEC_H

#include "text.h"

#include <signal.h>

#ifdef WITH_TOKENIZER
#include "../tokenizer.h"
#endif

typedef enum codec_kind { CODEC_BYTES, CODEC_NUMBERS, CODEC_TOKENIZER } codec_kind;

typedef struct codec {
    codec_kind kind;
    size_t size;                              /* ids of the model, those of codec_add_specials too */
    int32_t bos, eos, pad, cls, sep, mask, unk; /* -1: there is none */
    int more_seps, one_type;                  /* of pairs: [SEP] between them above one; both of type 0 */
    char identity[32];                        /* of the tokenizer; empty: none */
#ifdef WITH_TOKENIZER
    tokenizer t;
    char *room;                               /* what a token decodes to */
#endif
} codec;

typedef struct codec_ids { int32_t *at; size_t n, room; } codec_ids;

/* What has been read of a text that is shown token by token */
typedef struct codec_text {
    char held[8]; /* of bytes: a character's first ones */
    size_t n_held;
    int special;  /* 1: special tokens are shown too */
    int mute;     /* 1: what is read is not shown */
#ifdef WITH_TOKENIZER
    tokenizer_decoder decoder;
#endif
} codec_text;

static inline void codec_close(codec *c) {
#ifdef WITH_TOKENIZER
    tokenizer_close(&c->t), free(c->room);
#endif
    memset(c, 0, sizeof *c);
}

static inline int codec_missing(char *error) {
    return text_fail(error, "no tokenizers in this build: install libutf8proc and cJSON (Debian, Ubuntu: "
                            "apt-get install libutf8proc-dev libcjson-dev), then make");
}

/* Tokens that are bytes (of 256) or bare numbers. */
static inline void codec_plain(codec *c, size_t size) {
    memset(c, 0, sizeof *c);
    c->kind = size == 256 ? CODEC_BYTES : CODEC_NUMBERS, c->size = size;
    c->bos = c->eos = c->pad = c->cls = c->sep = c->mask = c->unk = -1;
}

/* ---- Where a model's tokenizer lies ---- */

/* The path of what stands beside a checkpoint M.safetensors or M.safetensors.last: M and the ending. Returns
   0 where that is too long. */
static inline int codec_beside(const char *checkpoint, const char *ending, char *path, size_t size) {
    static const char *const cut[] = {".last", ".safetensors"};
    size_t n = strlen(checkpoint);
    for (size_t i = 0; i < 2; i++) {
        size_t m = strlen(cut[i]);
        if (n > m && !strncmp(checkpoint + n - m, cut[i], m)) n -= m;
    }
    return n < size && (size_t)snprintf(path, size, "%.*s%s", (int)n, checkpoint, ending) < size;
}

/* The path of what a state M.safetensors.last has for itself, as what stands beside M is another model's: all
   of it and the ending. Returns 0 where that is too long, no such file is there, or it is no state. */
static inline int codec_own(const char *checkpoint, const char *ending, char *path, size_t size) {
    size_t n = strlen(checkpoint);
    if (n <= 5 || strcmp(checkpoint + n - 5, ".last")) return 0;
    return (size_t)snprintf(path, size, "%s%s", checkpoint, ending) < size && !access(path, F_OK);
}

#ifdef WITH_TOKENIZER
/* Looks for what a state has for itself, for M.tokenizer.json beside a checkpoint, then for tokenizer.json in
   its folder. */
static inline int codec_find(const char *checkpoint, const char *identity, char *path, size_t size,
                             char *error) {
    const char *slash = strrchr(checkpoint, '/');
    int folder = slash ? (int)(slash + 1 - checkpoint) : 0;
    if (codec_own(checkpoint, ".tokenizer.json", path, size)) return 1;
    if (codec_beside(checkpoint, ".tokenizer.json", path, size) && !access(path, F_OK)) return 1;
    if ((size_t)snprintf(path, size, "%.*stokenizer.json", folder, checkpoint) < size && !access(path, F_OK))
        return 1;
    if (!codec_beside(checkpoint, ".tokenizer.json", path, size)) *path = 0;
    return text_fail(error, "%.120s speaks the tokens of %s: neither %.120s nor tokenizer.json there; name "
                            "it with --tokenizer", checkpoint, identity, path);
}

/* Takes from a tokenizer's template of pairs how they stand: [CLS] A [SEP].. B [SEP]. Any other is passed
   over. */
static inline void codec_take_pairs(codec *c) {
    const tokenizer_template *pair = &c->t.pair;
    const tokenizer_item *at = pair->at;
    size_t seps = 0;
    if (pair->n < 5 || at[0].text || at[0].id != c->cls || at[1].text != 1) return;
    for (; 2 + seps < pair->n; seps++)
        if (at[2 + seps].text || at[2 + seps].id != c->sep) break;
    if (!seps || seps > 8 || pair->n != seps + 4 || at[seps + 2].text != 2 || at[seps + 3].text ||
        at[seps + 3].id != c->sep)
        return;
    for (size_t i = 0; i < pair->n; i++)
        if (at[i].type != (i >= seps + 2 && at[seps + 2].type == 1)) return;
    c->more_seps = (int)seps - 1, c->one_type = !at[seps + 2].type;
}

/* What a tokenizer says of itself, once it is open. */
static inline int codec_take(codec *c, const char *name, char *error) {
    c->room = (char *)malloc(c->t.longest + 8);
    if (!c->room) return codec_close(c), text_fail(error, "no memory for %s", name);
    c->kind = CODEC_TOKENIZER, c->size = c->t.size;
    c->bos = c->t.bos, c->eos = c->t.eos, c->pad = c->t.pad, c->unk = c->t.unk;
    c->cls = c->t.cls, c->sep = c->t.sep, c->mask = c->t.mask;
    codec_take_pairs(c);
    snprintf(c->identity, sizeof c->identity, "%s", c->t.identity);
    return 1;
}
#endif

/* What the tokenizer's file asks for and is not done, or does not say (0); what the file beside it says else
   (1). Empty: nothing. */
static inline const char *codec_note(const codec *c, int which) {
#ifdef WITH_TOKENIZER
    return which ? c->t.otherwise : c->t.note;
#else
    return (void)c, (void)which, "";
#endif
}

/* Are there tokenizers in this build? */
static inline int codec_can_learn(void) {
#ifdef WITH_TOKENIZER
    return 1;
#else
    return 0;
#endif
}

/* Opens a tokenizer's file that is in memory. */
static inline int codec_read(codec *c, const void *bytes, size_t n, const char *name, char *error) {
    memset(c, 0, sizeof *c);
#ifdef WITH_TOKENIZER
    return tokenizer_read(&c->t, bytes, n, name, error) && codec_take(c, name, error);
#else
    (void)bytes, (void)n, (void)name;
    return codec_missing(error);
#endif
}

/* Writes what codec_read reads: *text [*n], of malloc; NULL where there is no tokenizer. */
static inline int codec_written(const codec *c, char **text, size_t *n, char *error) {
    *text = NULL, *n = 0;
#ifdef WITH_TOKENIZER
    tokenizer_bytes all;
    memset(&all, 0, sizeof all);
    if (c->kind == CODEC_TOKENIZER && !tokenizer_write(&c->t, &all, error)) return free(all.at), 0;
    *text = all.at, *n = all.n;
#endif
    return (void)c, (void)error, 1;
}

/* Opens what a model speaks. given: the file of --tokenizer, or NULL; checkpoint: beside which a tokenizer
   may lie, or NULL; identity: the model's configuration field `tokenizer`, empty for a new model; vocabulary:
   the model's, 0 for a new one. Without a tokenizer the tokens of 256 are bytes, others numbers. */
static inline int codec_open(codec *c, const char *given, const char *checkpoint, const char *identity,
                             size_t vocabulary, char *error) {
    codec_plain(c, vocabulary ? vocabulary : 256);
    if (!given && !*identity) return 1;
#ifdef WITH_TOKENIZER
    char path[4096];
    if (!given && !codec_find(checkpoint, identity, path, sizeof path, error)) return 0;
    struct stat about;
    memset(c, 0, sizeof *c);
    if (!given) given = path;
    if (!stat(given, &about) && !S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode))
        return text_fail(error, "%.300s is neither a file nor a folder", given); /* to wait for for ever */
    if (!tokenizer_open(&c->t, given, error) || !codec_take(c, given, error)) return 0;
    if (*identity && strcmp(identity, c->identity))
        text_fail(error, "%.200s is the tokenizer %s, but the model speaks the tokens of %s",
                  given, c->identity, identity);
    else if (vocabulary && c->size > vocabulary)
        text_fail(error, "%.200s has %zu tokens, the model only %zu", given, c->size, vocabulary);
    else return 1;
    return codec_close(c), 0;
#else
    (void)checkpoint;
    return codec_missing(error);
#endif
}

/* May the tokenizer `given` (or NULL) be that of the model at `path`? Not where that reads bytes: it names no
   tokenizer, and has 256 tokens, as an encoder those of codec_add_specials too. */
static inline int codec_may_be(const char *given, const char *path, const cmha_model_config *c, char *error) {
    const size_t bytes = c->causal ? 256 : 260;
    if (!given || *c->tokenizer || c->vocabulary != bytes) return 1;
    return text_fail(error, "%.200s reads bytes, not the tokens of %.200s", path, given);
}

/* Keeps the tokenizer beside a checkpoint; nothing to do where there is none. */
static inline int codec_save(const codec *c, const char *checkpoint, char *error) {
#ifdef WITH_TOKENIZER
    char path[4096];
    if (c->kind != CODEC_TOKENIZER) return 1;
    if (!codec_beside(checkpoint, ".tokenizer.json", path, sizeof path))
        return text_fail(error, "too long a name: %s", checkpoint);
    return tokenizer_save(&c->t, path, error);
#else
    return (void)c, (void)checkpoint, (void)error, 1;
#endif
}

/* Sees to it that an encoder has [PAD], [CLS], [SEP] and [MASK]. Of a tokenizer <s> and </s> stand for [CLS]
   and [SEP] where it has no such; what it lacks gets ids behind its own, as bytes do. */
static inline void codec_add_specials(codec *c) {
    int32_t *need[4];
    need[0] = &c->pad, need[1] = &c->cls, need[2] = &c->sep, need[3] = &c->mask;
    if (c->cls < 0) c->cls = c->bos;
    if (c->sep < 0) c->sep = c->eos;
#ifdef WITH_TOKENIZER
    if (c->kind == CODEC_TOKENIZER) codec_take_pairs(c); /* <s> and </s> may be what is in the template */
#endif
    for (int i = 0; i < 4; i++)
        if (*need[i] < 0) *need[i] = (int32_t)c->size++;
}

/* ---- Text to tokens ---- */

static inline void codec_ids_free(codec_ids *ids) {
    free(ids->at);
    memset(ids, 0, sizeof *ids);
}

static inline int codec_append(codec_ids *ids, const int32_t *more, size_t n, char *error) {
    if (ids->room - ids->n < n) {
        int32_t *at = (int32_t *)text_memory(ids->at, ids->n + n, 2, sizeof *at);
        if (!at) return text_fail(error, "no memory for so many tokens");
        ids->at = at, ids->room = 2 * (ids->n + n);
    }
    if (n) memcpy(ids->at + ids->n, more, n * sizeof *more);
    ids->n += n;
    return 1;
}

static inline int codec_parts(char c) { return memchr(" ,\t\r\n", c, 5) != NULL; }

/* Appends the numbers that a text lists, with blanks or commas between. */
static inline int codec_numbers(const codec *c, const char *text, size_t n, codec_ids *ids, char *error) {
    uint64_t value = 0;
    size_t first = 0; /* of the number */
    int inside = 0;
    for (size_t i = 0; i <= n; i++) {
        int digit = i < n && text[i] >= '0' && text[i] <= '9';
        if (!inside) first = i;
        if (digit) value = inside ? value * 10 + (uint64_t)(text[i] - '0') : (uint64_t)(text[i] - '0');
        if ((!digit && i < n && !codec_parts(text[i])) || (digit && value >= c->size)) {
            size_t end = first;
            while (end < n && end - first < 40 && !codec_parts(text[end])) end++;
            return text_fail(error, "this model's tokens are numbers below %zu, not %.*s", c->size,
                             (int)(end - first), text + first);
        }
        if (inside && !digit) {
            int32_t id = (int32_t)value;
            if (!codec_append(ids, &id, 1, error)) return 0;
        }
        inside = digit;
    }
    return 1;
}

/* Appends the ids of a text; special = 1: with what the tokenizer's template puts around it. */
static inline int codec_encode(const codec *c, const char *text, size_t n, int special, codec_ids *ids,
                               char *error) {
    if (c->kind == CODEC_NUMBERS) return codec_numbers(c, text, n, ids, error);
#ifdef WITH_TOKENIZER
    if (c->kind == CODEC_TOKENIZER) {
        tokenizer_ids all;
        all.at = ids->at, all.n = ids->n, all.room = ids->room;
        int done = tokenizer_encode(&c->t, text, n, special ? TOKENIZER_TEMPLATE : 0, &all, error);
        ids->at = all.at, ids->n = all.n, ids->room = all.room;
        return done;
    }
#endif
    (void)special;
    for (size_t i = 0; i < n; i++) {
        int32_t byte = (unsigned char)text[i];
        if (!codec_append(ids, &byte, 1, error)) return 0;
    }
    return 1;
}

/* ---- Files of tokens ---- */

#ifdef WITH_TOKENIZER
/* Writes ids of 2 or 4 bytes, little endian. */
static inline int codec_write(FILE *file, const int32_t *ids, size_t n, int width) {
    for (size_t i = 0; i < n; i++)
        for (int byte = 0; byte < width; byte++)
            if (putc((int)((uint32_t)ids[i] >> 8 * byte & 0xFF), file) == EOF) return 0;
    return 1;
}

/* Encodes what `text` holds into `file`, a piece at a time, until *stop. */
static inline int codec_stream(const codec *c, FILE *text, FILE *file, int width,
                               const volatile sig_atomic_t *stop, char *error) {
    char piece[65536];
    tokenizer_stream stream;
    tokenizer_ids ids;
    size_t n;
    int done = 1, more = 1, any = 0;
    memset(&ids, 0, sizeof ids);
    tokenizer_stream_open(&stream, &c->t, 0);
    for (; done && more; ids.n = 0) {
        n = fread(piece, 1, sizeof piece, text), more = n > 0;
        done = more ? tokenizer_stream_put(&stream, piece, n, &ids, error)
                    : tokenizer_stream_end(&stream, &ids, error);
        if (done && !codec_write(file, ids.at, ids.n, width)) done = text_fail(error, "the file is full");
        any |= ids.n > 0;
        if (*stop) done = text_fail(error, "stopped");
    }
    if (done && ferror(text)) done = text_fail(error, "cannot be read");
    if (done && !any) done = text_fail(error, "the text gives no tokens");
    tokenizer_stream_close(&stream), tokenizer_ids_free(&ids);
    return done;
}
#endif

/* Bytes of an id in such a file: 2, or 4 where there are too many */
static inline int codec_id_width(const codec *c) { return c->size <= 65536 ? 2 : 4; }

/* Encodes a text of any length into a file of ids. It is written beside and renamed; a signal that sets *stop
   ends that. */
static inline int codec_encode_file(const codec *c, const char *from, const char *to,
                                    const volatile sig_atomic_t *stop, char *error) {
#ifdef WITH_TOKENIZER
    char why[TEXT_ERROR] = "cannot be written";
    FILE *text = regular_open(from);
    text_file ids;
    int done = 0;
    if (!text) return text_fail(error, "cannot open %s%s", from, regular_fault(from));
    if (text_same_file(from, to))
        text_fail(error, "%s is where the ids of the text would go; ids need --width", from);
    else if (text_begin(&ids, to, error)) {
        done = codec_stream(c, text, ids.file, codec_id_width(c), stop, why);
        done = text_end(&ids, done, error) || text_fail(error, "%.150s into %.150s: %.150s", from, to, why);
    }
    fclose(text);
    return done;
#else
    (void)c, (void)from, (void)to, (void)stop;
    return codec_missing(error);
#endif
}

/* ---- Tokens to text ---- */

/* Prints a token: its text, whole characters of it, or its number. */
static inline void codec_show(const codec *c, codec_text *s, int32_t id) {
#ifdef WITH_TOKENIZER
    if (c->kind == CODEC_TOKENIZER) {
        s->decoder.skip_special = !s->special;
        size_t n = tokenizer_decode(&c->t, &s->decoder, id, c->room);
        if (!s->mute) text_show(c->room, n, 1);
        return;
    }
#endif
    if (c->kind == CODEC_NUMBERS && !s->mute) printf("%ld ", (long)id);
    if (c->kind == CODEC_NUMBERS || s->mute || id > 255) return;
    s->held[s->n_held++] = (char)id;
    size_t shown = text_show(s->held, s->n_held, 0);
    memmove(s->held, s->held + shown, s->n_held -= shown);
}

/* Ends a text; s is for another one then. */
static inline void codec_show_end(const codec *c, codec_text *s) {
    codec_text next;
    memset(&next, 0, sizeof next);
    next.special = s->special;
#ifdef WITH_TOKENIZER
    if (c->kind == CODEC_TOKENIZER)
        text_show(c->room, tokenizer_decode_end(&s->decoder, c->room), 1);
#endif
    (void)c;
    text_show(s->held, s->n_held, 1);
    *s = next;
}

/* Counts the bytes of text that tokens [begin, end) of a stream stand for, as they follow the one before; 0
   where tokens are numbers. */
static inline double codec_bytes(const codec *c, const cmha_tokens *tokens, size_t begin, size_t end) {
    double bytes = 0;
    if (c->kind == CODEC_BYTES) return (double)(end - begin);
#ifdef WITH_TOKENIZER
    tokenizer_decoder decoder;
    memset(&decoder, 0, sizeof decoder);
    decoder.skip_special = 1;
    for (size_t i = begin ? begin - 1 : 0; c->kind == CODEC_TOKENIZER && i < end; i++) {
        size_t n = tokenizer_decode(&c->t, &decoder, cmha_tokens_at(tokens, i), c->room);
        if (i >= begin) bytes += (double)n;
    }
    if (c->kind == CODEC_TOKENIZER) bytes += (double)tokenizer_decode_end(&decoder, c->room);
#endif
    (void)tokens;
    return bytes;
}

/* Bytes a target of a causal batch [2, rows, length], ids, then targets; 0 where tokens are numbers. */
static inline double codec_batch_bytes(const codec *c, const int32_t *ids, size_t rows, size_t length) {
    double bytes = 0;
    if (c->kind != CODEC_TOKENIZER) return c->kind == CODEC_BYTES;
    int32_t *row = (int32_t *)text_memory(NULL, length + 1, 1, sizeof *row);
    cmha_tokens view = cmha_tokens_part(NULL, 0, 0);
    view.data = row, view.count = length + 1, view.width = 4;
    for (size_t i = 0; row && i < rows; i++) { /* what was read, and the last target */
        memcpy(row, ids + i * length, length * sizeof *row), row[length] = ids[(rows + i + 1) * length - 1];
        bytes += codec_bytes(c, &view, 1, length + 1);
    }
    free(row);
    return bytes / (double)(rows * length);
}

#endif
