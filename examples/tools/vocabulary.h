/* vocabulary.h - a tokenizer (../tokenizer.h) as GGUF has it: the values tokenizer.ggml.*, of byte-level BPE
   ("gpt2"), of BPE with byte fallback ("llama") and of BERT's WordPiece ("bert"). Include it after gguf.h. */
#ifndef VOCABULARY_H
#define VOCABULARY_H

#include "../tokenizer.h"

/* How GGUF numbers kinds of tokens. */
enum { VOCABULARY_NORMAL = 1, VOCABULARY_UNKNOWN, VOCABULARY_CONTROL, VOCABULARY_OWN, VOCABULARY_UNUSED,
       VOCABULARY_BYTE };

static inline int vocabulary_same_steps(const tokenizer_step *a, const tokenizer_step *b, int n) {
    for (; n--; a++, b++)
        if (a->kind != b->kind || a->a != b->a || a->b != b->b || a->c != b->c || a->d != b->d ||
            a->n_from != b->n_from || (a->n_from && memcmp(a->from, b->from, a->n_from)))
            return 0;
    return 1;
}

/* Does a byte-level tokenizer split as GGUF's pre-tokenizer of this row? One that needs PCRE2 where that is
   not there cannot be this one's. */
static inline int vocabulary_splits_as(const tokenizer *t, const tokenizer_pre *row) {
    char why[TOKENIZER_ERROR];
    tokenizer like;
    cJSON *outline = cJSON_CreateObject();
    const cJSON *normalizer, *pre_tokenizer;
    int same;
    memset(&like, 0, sizeof like);
    same = outline && tokenizer_gguf_bytes(outline, row, 0);
    normalizer = tokenizer_field(outline, "normalizer");
    pre_tokenizer = tokenizer_field(outline, "pre_tokenizer");
    same = same && tokenizer_read_steps(0, normalizer, like.normal, &like.n_normal, why) &&
           tokenizer_read_steps(1, pre_tokenizer, like.pre, &like.n_pre, why) &&
           like.n_normal == t->n_normal && like.n_pre == t->n_pre &&
           vocabulary_same_steps(like.normal, t->normal, t->n_normal) &&
           vocabulary_same_steps(like.pre, t->pre, t->n_pre);
    tokenizer_close(&like), cJSON_Delete(outline);
    return same && row->ignore_merges == t->ignore_merges;
}

/* Puts the first of GGUF's names for the way this tokenizer splits texts; 0 where it has none. */
static inline int vocabulary_put_splits(gguf_writer *w, const tokenizer *t) {
    static const char *const key = "tokenizer.ggml.pre";
    size_t n, i = 0;
    const tokenizer_pre *rows = tokenizer_pres(&n);
    if (!t->byte_level) {
        for (int k = 0; k < t->n_normal; k++)
            if (t->normal[k].kind != TOKENIZER_PREPEND && t->normal[k].kind != TOKENIZER_REPLACE) return 0;
        gguf_put_text(w, key, "default", 7);
        return 1;
    }
    while (i < n && !vocabulary_splits_as(t, rows + i)) i++;
    if (i == n || t->prefix || t->suffix) return 0;
    gguf_put_text(w, key, rows[i].names + 1, strcspn(rows[i].names + 1, " "));
    return 1;
}

/* Is it one of the 256 tokens that stand for a byte? */
static inline int vocabulary_is_byte(const tokenizer *t, int32_t id) {
    for (int i = 0; t->byte_fallback && i < 256; i++)
        if (t->fallback[i] == id) return 1;
    return 0;
}

static inline int vocabulary_type(const tokenizer *t, size_t id) {
    if (id >= t->size || !(t->flags[id] & TOKENIZER_THERE)) return VOCABULARY_UNUSED;
    if ((int32_t)id == t->unk && t->byte_fallback) return VOCABULARY_UNKNOWN;
    if (t->flags[id] & TOKENIZER_SPECIAL) return VOCABULARY_CONTROL;
    if (vocabulary_is_byte(t, (int32_t)id)) return VOCABULARY_BYTE;
    return t->flags[id] & TOKENIZER_ADDED ? VOCABULARY_OWN : VOCABULARY_NORMAL;
}

#define VOCABULARY_BLANK "\xE2\x96\x81"

/* BERT's token: what begins a word has a sign for that, in place of ## before what does not. */
static inline void vocabulary_put_piece(gguf_writer *w, const tokenizer *t, int32_t id,
                                        tokenizer_bytes *text) {
    size_t prefix = strlen(t->prefix), sign = strlen(VOCABULARY_BLANK);
    int control = (t->flags[id] & TOKENIZER_SPECIAL) != 0;
    if (!control && text->n > prefix && !memcmp(text->at, t->prefix, prefix)) {
        gguf_put_string(w, &w->values, text->at + prefix, text->n - prefix);
        return;
    }
    if (!control && tokenizer_put(text, VOCABULARY_BLANK, sign)) {
        memmove(text->at + sign, text->at, text->n - sign);
        memcpy(text->at, VOCABULARY_BLANK, sign);
    }
    gguf_put_string(w, &w->values, text->at, text->n);
}

/* A token as GGUF has it, where blanks of BPE with byte fallback are U+2581, as in SentencePiece; llama2.c's
   are blanks. */
static inline int vocabulary_put_token(gguf_writer *w, const tokenizer *t, int32_t id,
                                       tokenizer_bytes *text) {
    tokenizer_bytes marked;
    int done = 1;
    text->n = 0;
    if (!tokenizer_put_written(text, t, id)) return 0;
    if (t->kind == TOKENIZER_WORDPIECE) return vocabulary_put_piece(w, t, id, text), 1;
    memset(&marked, 0, sizeof marked);
    for (size_t i = 0; i < text->n && done; i++) {
        int blank = !t->byte_level && text->at[i] == ' ';
        done = tokenizer_put(&marked, blank ? VOCABULARY_BLANK : text->at + i, blank ? 3 : 1);
    }
    if (done) gguf_put_string(w, &w->values, marked.n ? marked.at : "", marked.n);
    free(marked.at);
    return done;
}

/* Token by token, up to as many as the model has. */
static inline int vocabulary_put_tokens(gguf_writer *w, const tokenizer *t, size_t size) {
    tokenizer_bytes text;
    int done = 1;
    memset(&text, 0, sizeof text);
    gguf_put_array(w, "tokenizer.ggml.tokens", GGUF_TEXT, size);
    for (size_t id = 0; id < size && done; id++) {
        char unused[32];
        if (vocabulary_type(t, id) == VOCABULARY_UNUSED) {
            snprintf(unused, sizeof unused, "[PAD%zu]", id);
            gguf_put_string(w, &w->values, unused, strlen(unused));
        } else done = vocabulary_put_token(w, t, (int32_t)id, &text);
    }
    free(text.at);
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, size);
    for (size_t id = 0; id < size; id++) gguf_put_number(w, &w->values, (uint64_t)vocabulary_type(t, id), 4);
    return done;
}

/* Merges as "a b", or, where GGUF has none, the score of what they make: the earlier the higher. */
static inline int vocabulary_put_merges(gguf_writer *w, const tokenizer *t, size_t size) {
    tokenizer_bytes text;
    float *scores;
    int done = 1;
    if (!t->byte_level) {
        if (!(scores = (float *)calloc(size + 1, sizeof *scores))) return 0;
        for (size_t id = 0; id < size; id++)
            if (vocabulary_type(t, id) == VOCABULARY_NORMAL) scores[id] = -(float)t->n_merges - 1;
        for (size_t i = t->n_merges; i--;) scores[t->merges[i].id] = -(float)i - 1;
        gguf_put_array(w, "tokenizer.ggml.scores", GGUF_F32, size);
        for (size_t id = 0; id < size; id++) {
            uint32_t bits;
            memcpy(&bits, &scores[id], 4);
            gguf_put_number(w, &w->values, bits, 4);
        }
        return free(scores), 1;
    }
    memset(&text, 0, sizeof text);
    gguf_put_array(w, "tokenizer.ggml.merges", GGUF_TEXT, t->n_merges);
    for (size_t i = 0; i < t->n_merges && done; i++) {
        text.n = 0;
        done = tokenizer_put_written(&text, t, t->merges[i].left) && tokenizer_put(&text, " ", 1) &&
               tokenizer_put_written(&text, t, t->merges[i].right);
        if (done) gguf_put_string(w, &w->values, text.at, text.n);
    }
    free(text.at);
    return done;
}

static inline int vocabulary_has(const tokenizer_ids *ids, int32_t id) {
    for (size_t i = 0; i < ids->n; i++)
        if (ids->at[i] == id) return 1;
    return 0;
}

/* The special tokens, and which of them a text gets: an encoder's first one, such as [CLS], is GGUF's bos. */
static inline void vocabulary_put_specials(gguf_writer *w, const tokenizer *t) {
    int pieces = t->kind == TOKENIZER_WORDPIECE;
    int32_t bos = t->before.n == 1 ? t->before.at[0] : t->bos;
    int32_t eos = t->after.n == 1 ? t->after.at[0] : t->eos;
    const struct { const char *key; int32_t id; } ids[] = {
        {"tokenizer.ggml.bos_token_id", bos}, {"tokenizer.ggml.eos_token_id", eos},
        {"tokenizer.ggml.unknown_token_id", t->unk}, {"tokenizer.ggml.padding_token_id", t->pad},
        {"tokenizer.ggml.seperator_token_id", t->sep}, {"tokenizer.ggml.mask_token_id", t->mask}};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (ids[i].id >= 0) gguf_put_whole(w, ids[i].key, (uint32_t)ids[i].id);
    gguf_put_flag(w, "tokenizer.ggml.add_bos_token", vocabulary_has(&t->before, bos));
    /* "bert" ends with its separator, not with eos */
    gguf_put_flag(w, "tokenizer.ggml.add_eos_token", !pieces && vocabulary_has(&t->after, eos));
    if (t->sep >= 0) gguf_put_flag(w, "tokenizer.ggml.add_sep_token", vocabulary_has(&t->after, t->sep));
}

/* Does a WordPiece tokenizer split as BERT's does? That alone GGUF has. */
static inline int vocabulary_is_bert(const tokenizer *t) {
    return t->word_most == 100 && t->prefix && !strcmp(t->prefix, "##") &&
           strstr(t->outline, "\"BertPreTokenizer\"") && strstr(t->outline, "\"BertNormalizer\"") &&
           strstr(t->outline, "\"clean_text\":true") && strstr(t->outline, "\"handle_chinese_chars\":true");
}

/* BERT's tokens, and whether capitals and accents count. */
static inline int vocabulary_put_bert(gguf_writer *w, const tokenizer *t, size_t size, char *error) {
    int lower = strstr(t->outline, "\"lowercase\":true") != NULL;
    int bare = strstr(t->outline, "\"strip_accents\":true") ? 1
               : strstr(t->outline, "\"strip_accents\":false") ? 0 : lower;
    if (!vocabulary_is_bert(t))
        return tokenizer_fail(error, "a WordPiece tokenizer that splits unlike BERT's has no form in GGUF");
    gguf_put_text(w, "tokenizer.ggml.model", "bert", 4);
    gguf_put_flag(w, "tokenizer.ggml.normalizer.lowercase", lower);
    gguf_put_flag(w, "tokenizer.ggml.normalizer.strip_accents", bare);
    if (!vocabulary_put_tokens(w, t, size)) return tokenizer_no_memory(error);
    vocabulary_put_specials(w, t);
    return 1;
}

/* Puts a tokenizer among the values of a file, of a model with `size` tokens, t->size or more. */
static inline int vocabulary_put(gguf_writer *w, const tokenizer *t, size_t size, char *error) {
    int prefixed = strstr(t->outline, "\"Prepend\"") || strstr(t->outline, "\"prepend_scheme\":\"always\"") ||
                   strstr(t->outline, "\"prepend_scheme\":\"first\"") ||
                   strstr(t->outline, "\"add_prefix_space\":true");
    if (t->kind == TOKENIZER_WORDPIECE) return vocabulary_put_bert(w, t, size, error);
    if (t->kind != TOKENIZER_BPE || (!t->byte_level && !t->byte_fallback))
        return tokenizer_fail(error, "a tokenizer that is no BPE of bytes has no form in GGUF here");
    gguf_put_text(w, "tokenizer.ggml.model", t->byte_level ? "gpt2" : "llama", t->byte_level ? 4 : 5);
    if (!vocabulary_put_splits(w, t))
        return tokenizer_fail(error, "GGUF has no name for the way this tokenizer splits texts");
    if (!vocabulary_put_tokens(w, t, size) || !vocabulary_put_merges(w, t, size))
        return tokenizer_no_memory(error);
    vocabulary_put_specials(w, t);
    if (!t->byte_level) gguf_put_flag(w, "tokenizer.ggml.add_space_prefix", prefixed);
    return 1;
}

#endif
