/* vocabulary.h - a tokenizer (../tokenizer.h) as GGUF has it: the values tokenizer.ggml.*, of byte-level BPE
   ("gpt2") and of BPE with byte fallback ("llama"). Include it after gguf.h. */
#ifndef VOCABULARY_H
#define VOCABULARY_H

#include "../tokenizer.h"

/* How GGUF numbers kinds of tokens. */
enum { VOCABULARY_NORMAL = 1, VOCABULARY_UNKNOWN, VOCABULARY_CONTROL, VOCABULARY_OWN, VOCABULARY_UNUSED,
       VOCABULARY_BYTE };

/* Names the rule by which a byte-level tokenizer splits texts, as GGUF does; NULL where it has no name. */
static inline const char *vocabulary_splits(const tokenizer *t) {
    if (!strstr(t->outline, "\"Split\"")) return "gpt-2";
    if (strstr(t->outline, "\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|")) return "llama-bpe";
    return strstr(t->outline, "\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|") ? "qwen2" : NULL;
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

/* A token as GGUF has it, where blanks of BPE with byte fallback are U+2581, as in SentencePiece; llama2.c's
   are blanks. */
static inline int vocabulary_put_token(gguf_writer *w, const tokenizer *t, int32_t id,
                                       tokenizer_bytes *text) {
    tokenizer_bytes marked;
    int done = 1;
    text->n = 0;
    if (!tokenizer_put_written(text, t, id)) return 0;
    memset(&marked, 0, sizeof marked);
    for (size_t i = 0; i < text->n && done; i++) {
        int blank = !t->byte_level && text->at[i] == ' ';
        done = tokenizer_put(&marked, blank ? "\xE2\x96\x81" : text->at + i, blank ? 3 : 1);
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

/* Puts a tokenizer among the values of a file, of a model with `size` tokens, t->size or more. */
static inline int vocabulary_put(gguf_writer *w, const tokenizer *t, size_t size, char *error) {
    const struct { const char *key; int32_t id; } ids[] = {
        {"tokenizer.ggml.bos_token_id", t->bos}, {"tokenizer.ggml.eos_token_id", t->eos},
        {"tokenizer.ggml.unknown_token_id", t->unk}, {"tokenizer.ggml.padding_token_id", t->pad}};
    const char *splits = t->byte_level ? vocabulary_splits(t) : "default";
    int prefixed = strstr(t->outline, "\"Prepend\"") || strstr(t->outline, "\"prepend_scheme\":\"always\"") ||
                   strstr(t->outline, "\"prepend_scheme\":\"first\"") ||
                   strstr(t->outline, "\"add_prefix_space\":true");
    if (t->kind != TOKENIZER_BPE || (!t->byte_level && !t->byte_fallback))
        return tokenizer_fail(error, "a tokenizer that is no BPE of bytes has no form in GGUF here");
    if (!splits) return tokenizer_fail(error, "GGUF has no name for the way this tokenizer splits texts");
    gguf_put_text(w, "tokenizer.ggml.model", t->byte_level ? "gpt2" : "llama", t->byte_level ? 4 : 5);
    gguf_put_text(w, "tokenizer.ggml.pre", splits, strlen(splits));
    if (!vocabulary_put_tokens(w, t, size) || !vocabulary_put_merges(w, t, size))
        return tokenizer_no_memory(error);
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (ids[i].id >= 0) gguf_put_whole(w, ids[i].key, (uint32_t)ids[i].id);
    gguf_put_flag(w, "tokenizer.ggml.add_bos_token", vocabulary_has(&t->before, t->bos));
    gguf_put_flag(w, "tokenizer.ggml.add_eos_token", vocabulary_has(&t->after, t->eos));
    if (!t->byte_level) gguf_put_flag(w, "tokenizer.ggml.add_space_prefix", prefixed);
    return 1;
}

#endif
