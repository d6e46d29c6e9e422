/* tokenizer.h - text to tokens and back, with the tokenizers that other people's models come with:

       tokenizer t;
       tokenizer_ids ids = {0};
       char error[TOKENIZER_ERROR];
       if (!tokenizer_open(&t, "tokenizer.json", error) || !tokenizer_encode(&t, text, n, 1, &ids, error)) ..
       cc app.c -lutf8proc -lcjson

   Kinds: byte-level BPE (GPT-2, Llama 3, Qwen2), BPE with byte fallback (Llama 2), WordPiece (BERT), whole
   words, Unigram (T5, XLM-R). Files: Hugging Face's tokenizer.json, GPT-2's encoder.json + vocab.bpe,
   vocab.json + merges.txt, BERT's vocab.txt, llama2.c's tokenizer.bin, the vocabulary inside a GGUF file.
   Whatever a file asks for that is not known here is refused by its name; nothing is guessed.

   A text may hold any bytes. Byte-level kinds without a normalizer give every text back byte for byte, so
   do those with byte fallback but for what their normalizer does to blanks; elsewhere bytes that are no UTF-8
   become the unknown token, WordPiece with BERT's cleaning drops them.

   Static functions, no globals; C99 and C++11. Those that can fail return 1 for success, or 0 and one line in
   `error` (TOKENIZER_ERROR bytes of the caller's). Closing twice is fine, and a tokenizer that failed to open
   is closed. An open tokenizer is never written to: threads may share it. */
#ifndef TOKENIZER_H
#define TOKENIZER_H

#include "tools/gguf.h"
#include "tools/regex.h"

#include <cjson/cJSON.h>
#include <utf8proc.h>

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    TOKENIZER_ERROR = 512,    /* bytes of an error line */
    TOKENIZER_STEPS = 16,     /* most normalizers, pre-tokenizers, decoders each */
    TOKENIZER_CHUNK = 65536,  /* bytes of a text that are encoded at once */
    TOKENIZER_TEMPLATE = 1,   /* `special`: add what the template adds */
    TOKENIZER_PLAIN = 2,      /* `special`: special tokens in the text are text like any other */
    TOKENIZER_FIT = 4,        /* `special` of tokenizer_encode_texts: cut and fill up as the file asks for */
    TOKENIZER_FILL = 1 << 20  /* most tokens that a file may ask to fill up to */
};

/* Numbers of tokens; begins zeroed, grows by realloc. */
typedef struct tokenizer_ids {
    int32_t *at;
    size_t n, room;
} tokenizer_ids;

typedef struct tokenizer_bytes {
    char *at;
    size_t n, room;
} tokenizer_bytes;

/* A table from strings to numbers: which the caller keeps is looked up through `begin`. */
typedef struct tokenizer_pair { uint64_t key; uint32_t rank; int32_t id; } tokenizer_pair;
typedef struct tokenizer_merge { int32_t left, right, id; } tokenizer_merge;
typedef struct tokenizer_edge { uint64_t key; uint32_t to; } tokenizer_edge; /* key: node * 256 + byte + 1 */

/* A tree of bytes: from a node along a byte to another; node 0 is the root. Linked (tokenizer_trie_link), it
   is the automaton of Aho and Corasick, which finds all its strings in a text in one pass. */
typedef struct tokenizer_trie {
    tokenizer_edge *edges; /* [n_edges, a power of two] */
    int32_t *ids;          /* [nodes]: what ends here, -1: nothing */
    uint32_t *fail, *hit;  /* [nodes]: the longest suffix in the tree; that is a string, 0: none */
    size_t n_edges, nodes, room;
    unsigned char begins[256]; /* does anything begin with this byte? */
} tokenizer_trie;

/* One normalizer, pre-tokenizer or decoder. What the numbers mean is their kind's. */
typedef struct tokenizer_step {
    int kind, a, b, c, d;
    char *from, *to; /* NULL, or of malloc */
    size_t n_from, n_to;
    void *code;      /* a compiled pattern, or NULL */
} tokenizer_step;

/* A token that is found in the text before anything else. */
typedef struct tokenizer_added {
    char *content;
    size_t n, n_found; /* bytes; as it is looked for */
    int32_t id;
    int special, left, right, word, normalized;
} tokenizer_added;

/* What a template is made of: the token `id`, or (text: 1, 2) the first or second text; and the type of its
   tokens, which BERT calls a segment. */
typedef struct tokenizer_item { int32_t id, type; int text; } tokenizer_item;
typedef struct tokenizer_template { tokenizer_item *at; size_t n, room; } tokenizer_template;

/* What `truncation` and `padding` ask for */
enum { TOKENIZER_LONGEST, TOKENIZER_ONLY_FIRST, TOKENIZER_ONLY_SECOND };
typedef struct tokenizer_fit {
    int cuts, which, cut_left;  /* 0: texts are not cut; which of two loses tokens; from the left */
    size_t most;                /* tokens, with those of the template */
    int fills, fill_left;       /* 0: texts are not filled up */
    size_t least, multiple;     /* to so many tokens; to a multiple of that; 0: not */
    int32_t pad, pad_type;
} tokenizer_fit;

enum { TOKENIZER_BPE, TOKENIZER_WORDPIECE, TOKENIZER_UNIGRAM, TOKENIZER_WORDLEVEL };
/* bits of a token: it is there; is in the model's vocabulary; not in the byte alphabet; added; special */
enum { TOKENIZER_THERE = 1, TOKENIZER_MODEL = 2, TOKENIZER_LITERAL = 4, TOKENIZER_ADDED = 8,
       TOKENIZER_SPECIAL = 16 };

typedef struct tokenizer {
    size_t size;                                   /* ids are less */
    int32_t bos, eos, pad, unk, cls, sep, mask;    /* -1: none */
    size_t longest;                                /* most bytes that a token decodes to */
    char identity[32];                             /* "bpe-" and 16 hexadecimal digits */
    /* what follows is this header's */
    int kind, byte_level;
    char *bytes;                                   /* of all tokens, raw where they are byte-level */
    size_t *begin;                                 /* [size + 1] */
    unsigned char *flags;                          /* [size] */
    double *scores;                                /* [size], Unigram */
    uint32_t *slots;                               /* [n_slots]: id + 1 of strings of the model */
    size_t n_slots;
    tokenizer_merge *merges;                       /* [n_merges], first the first */
    size_t n_merges;
    tokenizer_pair *pairs;                         /* [n_pairs, a power of two]; key 0: free */
    size_t n_pairs;
    int ties;                                      /* merges to one token rank alike (SentencePiece) */
    int byte_fallback, fuse_unk, ignore_merges;
    int32_t byte_ids[256], fallback[256];          /* of single bytes; of <0x00> .. ; -1: none */
    char *prefix, *suffix;                         /* "##", "</w>"; NULL: none */
    size_t word_most;                              /* WordPiece: most characters of a word */
    double least_score;
    tokenizer_trie trie;                           /* WordPiece, Unigram: the model's tokens */
    tokenizer_trie inside;                         /* WordPiece: behind "##", backwards */
    tokenizer_added *added;
    size_t n_added, longest_added;
    tokenizer_trie found, found_later;             /* added tokens in the raw text; in the normalized one;
                                                      backwards */
    tokenizer_step normal[TOKENIZER_STEPS], pre[TOKENIZER_STEPS], decode[TOKENIZER_STEPS];
    int n_normal, n_pre, n_decode;
    tokenizer_template single, pair;               /* of one text, of two; n = 0: the texts alone */
    tokenizer_ids before, after;                   /* what the template of one text adds */
    tokenizer_fit fit;
    int cuts;                                      /* may streams cut: 1 before blanks, 2 line ends */
    int apart;                                     /* BPE, Unigram: where words may be cut, a sum of 1: before
                                                      ' ', 2: before U+2581, 4: around what is alone */
    unsigned char reaches[256];                    /* a sum of the blanks behind this byte that a token is
                                                      across, no word ends there; 4: no merge has it */
    char note[160];                                /* what the file asks for and is not done; or empty */
    char otherwise[360];                           /* what the file beside it says else; or empty */
    char *outline;                                 /* tokenizer.json but for vocabulary and merges */
} tokenizer;

/* ---- Errors, memory, characters ---- */

static inline int tokenizer_fail(char *error, const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(error, TOKENIZER_ERROR, format, list);
    va_end(list);
    for (utf8proc_ssize_t n; *error; error += n) { /* nothing that would steer a terminal */
        utf8proc_int32_t c;
        n = utf8proc_iterate((const utf8proc_uint8_t *)error, -1, &c);
        if (n < 1) n = 1, c = 0;
        if (c < 32 || (c >= 127 && c < 160) || c == 0x2028 || c == 0x2029) memset(error, '?', (size_t)n);
    }
    return 0;
}

static inline int tokenizer_no_memory(char *error) {
    return tokenizer_fail(error, "no memory for the tokenizer");
}

/* Makes room for `need` things of `size` bytes. */
static inline int tokenizer_room(void **memory, size_t *room, size_t need, size_t size) {
    size_t more = need + need / 2 + 16;
    void *larger;
    if (need <= *room) return 1;
    if (more < need || more > (size_t)-1 / 2 / size) return 0;
    if (!(larger = realloc(*memory, more * size))) return 0;
    *memory = larger, *room = more;
    return 1;
}

static inline int tokenizer_put_id(tokenizer_ids *ids, int32_t id) {
    void *memory = ids->at;
    if (ids->n == ids->room) {
        if (!tokenizer_room(&memory, &ids->room, ids->n + 1, sizeof *ids->at)) return 0;
        ids->at = (int32_t *)memory;
    }
    ids->at[ids->n++] = id;
    return 1;
}

static inline void tokenizer_ids_free(tokenizer_ids *ids) {
    free(ids->at);
    memset(ids, 0, sizeof *ids);
}

static inline int tokenizer_put_ids(tokenizer_ids *ids, const tokenizer_ids *more) {
    for (size_t i = 0; i < more->n; i++)
        if (!tokenizer_put_id(ids, more->at[i])) return 0;
    return 1;
}

static inline int tokenizer_put(tokenizer_bytes *b, const char *s, size_t n) {
    void *memory = b->at;
    if (b->room - b->n <= n) {
        if (n > (size_t)-1 / 4 || !tokenizer_room(&memory, &b->room, b->n + n + 1, 1)) return 0;
        b->at = (char *)memory;
    }
    if (n) memcpy(b->at + b->n, s, n);
    b->n += n, b->at[b->n] = 0;
    return 1;
}

static inline char *tokenizer_copy(const char *s, size_t n) {
    char *copy = (char *)malloc(n + 1);
    if (copy) memcpy(copy, s, n), copy[n] = 0;
    return copy;
}

/* The character at s and how many bytes it has, n > 0; *c = -1 for a byte that begins none. */
static inline size_t tokenizer_char(const char *s, size_t n, int32_t *c) {
    utf8proc_ssize_t length;
    if (!((unsigned char)*s & 0x80)) return *c = *s, 1;
    length = utf8proc_iterate((const utf8proc_uint8_t *)s, n > 4 ? 4 : (utf8proc_ssize_t)n, c);
    return length > 0 ? (size_t)length : (*c = -1, (size_t)1);
}

static inline size_t tokenizer_utf8(int32_t c, char *s) {
    return (size_t)utf8proc_encode_char(c, (utf8proc_uint8_t *)s);
}

/* Unicode's classes that patterns ask for */
static inline int tokenizer_in(int32_t c, utf8proc_category_t from, utf8proc_category_t to) {
    utf8proc_category_t is;
    if (c < 0) return 0;
    is = utf8proc_category(c);
    return is >= from && is <= to;
}
static inline int tokenizer_letter(int32_t c) {
    if (c < 128) return (c | 32) >= 'a' && (c | 32) <= 'z';
    return tokenizer_in(c, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LO);
}
static inline int tokenizer_number(int32_t c) {
    if (c < 128) return c >= '0' && c <= '9';
    return tokenizer_in(c, UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO);
}
static inline int tokenizer_mark(int32_t c) {
    return c >= 128 && tokenizer_in(c, UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME);
}
static inline int tokenizer_space(int32_t c) {
    if (c < 128) return c == ' ' || (c >= 9 && c <= 13);
    return c == 0x85 || tokenizer_in(c, UTF8PROC_CATEGORY_ZS, UTF8PROC_CATEGORY_ZP);
}
static inline int tokenizer_punctuation(int32_t c) {
    if (c < 128)
        return (c > 32 && c < 48) || (c > 57 && c < 65) || (c > 90 && c < 97) || (c > 122 && c < 127);
    return tokenizer_in(c, UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO);
}
/* \w: letters, marks, numbers that count or are letters, connectors, and the letters among the symbols */
static inline int tokenizer_wordly(int32_t c) {
    utf8proc_category_t is = c < 0 ? UTF8PROC_CATEGORY_CN : utf8proc_category(c);
    return (is >= UTF8PROC_CATEGORY_LU && is <= UTF8PROC_CATEGORY_NL) || is == UTF8PROC_CATEGORY_PC ||
           (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
           (c >= 0x1F170 && c <= 0x1F189);
}
/* What BERT's cleaning drops, with the bytes that are no UTF-8 */
static inline int tokenizer_dropped(int32_t c) {
    if (c == '\t' || c == '\n' || c == '\r') return 0;
    return c <= 0 || c == 0xFFFD || tokenizer_in(c, UTF8PROC_CATEGORY_CC, UTF8PROC_CATEGORY_CO);
}
static inline int tokenizer_ideograph(int32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
           (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) ||
           (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

/* ---- Tables ---- */

static inline uint64_t tokenizer_mix(uint64_t x) {
    x ^= x >> 32, x *= 0x9E3779B97F4A7C15u;
    return x ^ x >> 29;
}

static inline uint64_t tokenizer_hash(const char *s, size_t n) {
    uint64_t hash = n, eight;
    for (; n >= 8; s += 8, n -= 8) memcpy(&eight, s, 8), hash = tokenizer_mix(hash ^ eight);
    for (eight = 0; n; n--) eight = eight << 8 | (unsigned char)s[n - 1];
    return tokenizer_mix(hash ^ eight);
}

/* The least power of two that leaves half of a table free */
static inline size_t tokenizer_slots(size_t n) {
    size_t slots = 16;
    while (slots < 2 * n) slots *= 2;
    return slots;
}

static inline size_t tokenizer_length(const tokenizer *t, int32_t id) {
    return t->begin[id + 1] - t->begin[id];
}

/* The slot of a string, which holds its id + 1, or 0 where it would go. */
static inline uint32_t *tokenizer_slot(const tokenizer *t, const char *s, size_t n) {
    size_t i = (size_t)tokenizer_hash(s, n) & (t->n_slots - 1);
    for (; t->slots[i]; i = (i + 1) & (t->n_slots - 1)) {
        int32_t id = (int32_t)t->slots[i] - 1;
        if (tokenizer_length(t, id) == n && !memcmp(t->bytes + t->begin[id], s, n)) break;
    }
    return t->slots + i;
}

/* The id of a string in the model's vocabulary (raw bytes, of byte-level kinds), or -1. */
static inline int32_t tokenizer_find(const tokenizer *t, const char *s, size_t n) {
    return t->n_slots ? (int32_t)*tokenizer_slot(t, s, n) - 1 : -1;
}

static inline tokenizer_pair *tokenizer_pair_of(const tokenizer *t, int32_t left, int32_t right) {
    uint64_t key = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1;
    size_t i = (size_t)tokenizer_mix(key * 0xD6E8FEB86659FD93u) & (t->n_pairs - 1);
    while (t->pairs[i].key && t->pairs[i].key != key) i = (i + 1) & (t->n_pairs - 1);
    return t->pairs + i;
}

static inline tokenizer_edge *tokenizer_edge_of(const tokenizer_trie *t, uint32_t node, unsigned char byte) {
    uint64_t key = ((uint64_t)node << 8 | byte) + 1;
    size_t i = (size_t)tokenizer_mix(key * 0xD6E8FEB86659FD93u) & (t->n_edges - 1);
    while (t->edges[i].key && t->edges[i].key != key) i = (i + 1) & (t->n_edges - 1);
    return t->edges + i;
}

/* The node behind `node` along a byte, 0 if none is there. */
static inline uint32_t tokenizer_walk(const tokenizer_trie *t, uint32_t node, char byte) {
    return t->n_edges ? tokenizer_edge_of(t, node, (unsigned char)byte)->to : 0;
}

static inline int tokenizer_trie_grow(tokenizer_trie *t) {
    tokenizer_trie old = *t;
    void *ids = t->ids;
    if (!tokenizer_room(&ids, &t->room, t->nodes + 2, sizeof *t->ids)) return 0;
    t->ids = (int32_t *)ids;
    if (!t->nodes) t->ids[t->nodes++] = -1;
    if (2 * (t->nodes + 1) < t->n_edges) return 1;
    t->n_edges = old.n_edges ? 2 * old.n_edges : 64;
    t->edges = (tokenizer_edge *)calloc(t->n_edges, sizeof *t->edges);
    if (!t->edges) return t->edges = old.edges, t->n_edges = old.n_edges, 0;
    for (size_t i = 0; i < old.n_edges; i++)
        if (old.edges[i].key)
            *tokenizer_edge_of(t, (uint32_t)((old.edges[i].key - 1) >> 8),
                               (unsigned char)(old.edges[i].key - 1)) = old.edges[i];
    free(old.edges);
    return 1;
}

/* `back`: from the last byte to the first */
static inline int tokenizer_trie_add(tokenizer_trie *t, const char *s, size_t n, int back, int32_t id) {
    uint32_t node = 0;
    if (!tokenizer_trie_grow(t)) return 0;
    if (n) t->begins[(unsigned char)s[back ? n - 1 : 0]] = 1;
    for (size_t i = 0; i < n; i++) {
        unsigned char byte = (unsigned char)s[back ? n - 1 - i : i];
        tokenizer_edge *edge;
        if (!tokenizer_trie_grow(t)) return 0;
        edge = tokenizer_edge_of(t, node, byte);
        if (!edge->key) {
            edge->key = ((uint64_t)node << 8 | byte) + 1, edge->to = (uint32_t)t->nodes;
            t->ids[t->nodes++] = -1;
        }
        node = edge->to;
    }
    t->ids[node] = id;
    return 1;
}

/* From a node along a byte, in the longest suffix that goes on with it. */
static inline uint32_t tokenizer_trie_step(const tokenizer_trie *t, uint32_t node, char byte) {
    uint32_t next;
    while (!(next = tokenizer_walk(t, node, byte)) && node) node = t->fail[node];
    return next;
}

/* The longest string of the tree that ends at a node, as a node; 0: none. */
static inline uint32_t tokenizer_trie_end(const tokenizer_trie *t, uint32_t node) {
    return t->ids[node] >= 0 ? node : t->hit[node];
}

/* A node while a tree is linked. */
typedef struct tokenizer_link { uint32_t parent, depth, strings; char byte; } tokenizer_link;

/* Fills the links but for `strings`, and the nodes in the order of their depth; `count` [n + 1] is zeroed. */
static inline void tokenizer_trie_sort(const tokenizer_trie *t, tokenizer_link *link, uint32_t *count,
                                       uint32_t *order) {
    size_t n = t->nodes;
    for (size_t i = 0; i < t->n_edges; i++) {
        const tokenizer_edge *e = t->edges + i;
        if (!e->key) continue;
        link[e->to].parent = (uint32_t)((e->key - 1) >> 8);
        link[e->to].byte = (char)(e->key - 1);
    }
    for (size_t i = 1; i < n; i++) { /* a child comes behind its parent */
        link[i].depth = link[link[i].parent].depth + 1;
        count[link[i].depth + 1]++;
    }
    count[1] = 1; /* the root */
    for (size_t d = 1; d <= n; d++) count[d] += count[d - 1];
    for (size_t i = 0; i < n; i++) order[count[link[i].depth]++] = (uint32_t)i;
}

/* Links a tree that gets no more strings. *most: how many of them end at one place of a text at most. */
static inline int tokenizer_trie_link(tokenizer_trie *t, size_t *most) {
    size_t n = t->nodes;
    tokenizer_link *link = (tokenizer_link *)calloc(n + 1, sizeof *link);
    uint32_t *count = (uint32_t *)calloc(n + 2, sizeof *count);
    uint32_t *order = (uint32_t *)calloc(n + 1, sizeof *order);
    t->fail = (uint32_t *)calloc(n + 1, sizeof *t->fail);
    t->hit = (uint32_t *)calloc(n + 1, sizeof *t->hit);
    *most = 0;
    if (link && count && order && t->fail && t->hit) {
        tokenizer_trie_sort(t, link, count, order);
        for (size_t k = 1; k < n; k++) {
            uint32_t node = order[k], parent = link[node].parent, fail = 0;
            if (parent) fail = tokenizer_trie_step(t, t->fail[parent], link[node].byte);
            t->fail[node] = fail;
            t->hit[node] = tokenizer_trie_end(t, fail);
            link[node].strings = link[fail].strings + (t->ids[node] >= 0);
            if (link[node].strings > *most) *most = link[node].strings;
        }
    } else *most = SIZE_MAX;
    free(link), free(count), free(order);
    return *most != SIZE_MAX;
}

static inline void tokenizer_trie_close(tokenizer_trie *t) {
    free(t->edges), free(t->ids), free(t->fail), free(t->hit);
    memset(t, 0, sizeof *t);
}

static inline void tokenizer_step_close(tokenizer_step *step) {
    free(step->from), free(step->to);
#ifdef WITH_PCRE2
    regex_free(step->code);
#endif
}

static inline void tokenizer_close(tokenizer *t) {
    tokenizer_step *const steps[] = {t->normal, t->pre, t->decode};
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < TOKENIZER_STEPS; i++) tokenizer_step_close(&steps[k][i]);
    for (size_t i = 0; i < t->n_added; i++) free(t->added[i].content);
    tokenizer_trie_close(&t->trie), tokenizer_trie_close(&t->inside);
    tokenizer_trie_close(&t->found), tokenizer_trie_close(&t->found_later);
    free(t->bytes), free(t->begin), free(t->flags), free(t->scores), free(t->slots), free(t->merges);
    free(t->single.at), free(t->pair.at);
    free(t->pairs), free(t->prefix), free(t->suffix), free(t->added), free(t->outline);
    tokenizer_ids_free(&t->before), tokenizer_ids_free(&t->after);
    memset(t, 0, sizeof *t);
}

/* ---- Memory of an encoding ---- */

typedef struct tokenizer_span { size_t at, n; } tokenizer_span;
typedef struct tokenizer_spans { tokenizer_span *at; size_t n, room; } tokenizer_spans;

/* A symbol of a word that is being merged; a neighbour outside the word is SIZE_MAX. */
typedef struct tokenizer_symbol { size_t left, right; int32_t id; } tokenizer_symbol;
typedef struct tokenizer_candidate { uint32_t rank; int32_t left, right; size_t at; } tokenizer_candidate;
typedef struct tokenizer_path { double score; size_t from; int32_t id, begins; } tokenizer_path;

/* The longest string of a tree at each place of a text where one begins, the last place first. */
typedef struct tokenizer_hit { size_t at; int32_t id; } tokenizer_hit;
typedef struct tokenizer_hits {
    tokenizer_hit *at;
    size_t n, room;
    int32_t behind; /* the character that the text goes on behind, 0: none */
} tokenizer_hits;

/* A word seen before; most words of a text have been. firm: its ids are these wherever it stands. */
typedef struct tokenizer_cached {
    unsigned char n, n_ids, firm;
    char bytes[21];
    int32_t ids[10];
} tokenizer_cached;
enum { TOKENIZER_CACHE = 1 << 15, TOKENIZER_SHORT = 32 };

typedef struct tokenizer_work {
    tokenizer_bytes text[4];   /* two that normalizers, two that pre-tokenizers write to in turn */
    tokenizer_spans spans[2];  /* pieces of the text, and what a step makes of them */
    tokenizer_symbol *symbols;
    tokenizer_candidate *heap;
    tokenizer_path *paths;
    size_t n_symbols, n_heap, n_paths;
    tokenizer_hits added, later, inside; /* in the raw text, in the normalized one, in a word */
    tokenizer_cached *cache;   /* [TOKENIZER_CACHE] or NULL */
    double sum;                /* Unigram: of the scores from the piece's begin on */
    int firm;                  /* Unigram: the last word would get the same ids at any other place */
    int (*piece)(void *user, const char *s,
                 size_t n); /* gets each piece instead of encoding it; 0: no memory */
    void *user;
#ifdef WITH_PCRE2
    regex_room regex;
#endif
} tokenizer_work;

static inline void tokenizer_work_close(tokenizer_work *w) {
    for (int i = 0; i < 4; i++) free(w->text[i].at);
    free(w->spans[0].at), free(w->spans[1].at), free(w->symbols), free(w->heap), free(w->paths);
    free(w->added.at), free(w->later.at), free(w->inside.at), free(w->cache);
#ifdef WITH_PCRE2
    regex_room_close(&w->regex);
#endif
    memset(w, 0, sizeof *w);
}

static inline int tokenizer_put_span(tokenizer_spans *s, size_t at, size_t n) {
    void *memory = s->at;
    if (!n) return 1;
    if (s->n == s->room) {
        if (!tokenizer_room(&memory, &s->room, s->n + 1, sizeof *s->at)) return 0;
        s->at = (tokenizer_span *)memory;
    }
    s->at[s->n].at = at, s->at[s->n++].n = n;
    return 1;
}

/* Finds the strings of a linked tree of reversed strings in a text, in one pass from its end. */
static inline int tokenizer_find_all(const tokenizer_trie *t, const char *s, size_t n, tokenizer_hits *hits) {
    uint32_t node = 0, end;
    hits->n = 0;
    if (!t->nodes) return 1;
    while (n--) {
        if (!node && !t->begins[(unsigned char)s[n]]) continue;
        node = tokenizer_trie_step(t, node, s[n]);
        if (!(end = tokenizer_trie_end(t, node))) continue;
        if (hits->n == hits->room) {
            void *memory = hits->at;
            if (!tokenizer_room(&memory, &hits->room, hits->n + 1, sizeof *hits->at)) return 0;
            hits->at = (tokenizer_hit *)memory;
        }
        hits->at[hits->n].at = n;
        hits->at[hits->n++].id = t->ids[end];
    }
    return 1;
}

/* Takes the hits in front of a place away; the next one, or NULL. */
static inline const tokenizer_hit *tokenizer_next_hit(tokenizer_hits *hits, size_t from) {
    while (hits->n && hits->at[hits->n - 1].at < from) hits->n--;
    return hits->n ? &hits->at[hits->n - 1] : NULL;
}

/* ---- One word: BPE ---- */

/* Has every one of these bytes a token <0xNN>, to be used where there is none of the whole? */
static inline int tokenizer_falls_back(const tokenizer *t, const char *s, size_t n) {
    if (!t->byte_fallback) return 0;
    for (size_t i = 0; i < n; i++)
        if (t->fallback[(unsigned char)s[i]] < 0) return 0;
    return 1;
}

/* The symbols of a word before any merge: bytes or characters. Returns how many, 0 with the error line. */
static inline int tokenizer_symbols(const tokenizer *t, tokenizer_work *w, const char *s, size_t n,
                                    size_t *count, char *error) {
    char name[64];
    size_t step, used = 0;
    int unknown = 0;
    void *memory = w->symbols;
    if (!tokenizer_room(&memory, &w->n_symbols, n, sizeof *w->symbols)) return tokenizer_no_memory(error);
    w->symbols = (tokenizer_symbol *)memory;
    for (size_t at = 0; at < n; at += step) {
        int32_t c, id;
        if (t->byte_level) step = 1;
        else step = tokenizer_char(s + at, n - at, &c);
        if (!t->prefix && !t->suffix) {
            id = t->byte_level ? t->byte_ids[(unsigned char)s[at]] : tokenizer_find(t, s + at, step);
        } else {
            size_t length = at && t->prefix ? strlen(t->prefix) : 0;
            if (length) memcpy(name, t->prefix, length);
            memcpy(name + length, s + at, step), length += step;
            if (at + step == n && t->suffix) {
                memcpy(name + length, t->suffix, strlen(t->suffix)), length += strlen(t->suffix);
            }
            id = tokenizer_find(t, name, length);
        }
        if (id >= 0) unknown = 0, w->symbols[used++].id = id;
        else if (tokenizer_falls_back(t, s + at, step)) {
            for (size_t i = 0; i < step; i++) w->symbols[used++].id = t->fallback[(unsigned char)s[at + i]];
        } else if (t->unk < 0) {
            return tokenizer_fail(error,
                                  "there is no token for the byte 0x%02X, and none for what is unknown",
                                  (unsigned)(unsigned char)s[at]);
        } else if (!unknown || !t->fuse_unk) unknown = 1, w->symbols[used++].id = t->unk;
    }
    for (size_t i = 0; i < used; i++)
        w->symbols[i].left = i - 1, w->symbols[i].right = i + 1 < used ? i + 1 : SIZE_MAX;
    *count = used;
    return 1;
}

static inline int tokenizer_before(const tokenizer_candidate *a, const tokenizer_candidate *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

/* Pushes the merge of the symbol at `at` with the one behind it, if there is one. */
static inline void tokenizer_push(const tokenizer *t, tokenizer_work *w, size_t *n, size_t at) {
    tokenizer_candidate c;
    size_t i;
    const tokenizer_pair *pair;
    if (at == SIZE_MAX || w->symbols[at].right == SIZE_MAX) return;
    c.at = at, c.left = w->symbols[at].id, c.right = w->symbols[w->symbols[at].right].id;
    if (!(pair = tokenizer_pair_of(t, c.left, c.right))->key) return;
    c.rank = pair->rank;
    for (i = (*n)++; i && tokenizer_before(&c, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = c;
}

static inline tokenizer_candidate tokenizer_pop(tokenizer_work *w, size_t *n) {
    tokenizer_candidate top = w->heap[0], last = w->heap[--*n];
    size_t i = 0, next;
    while ((next = 2 * i + 1) < *n) {
        if (next + 1 < *n && tokenizer_before(&w->heap[next + 1], &w->heap[next])) next++;
        if (!tokenizer_before(&w->heap[next], &last)) break;
        w->heap[i] = w->heap[next], i = next;
    }
    w->heap[i] = last;
    return top;
}

/* Joins the symbol at `at` with the one behind it. */
static inline void tokenizer_join(tokenizer_work *w, size_t at, int32_t id) {
    size_t gone = w->symbols[at].right, behind = w->symbols[gone].right;
    w->symbols[at].id = id, w->symbols[at].right = behind, w->symbols[gone].id = -1;
    if (behind != SIZE_MAX) w->symbols[behind].left = at;
}

/* Merges the pair of the least rank, of several the leftmost, until none is left: through a heap, in
   O(n log n). */
static inline int tokenizer_merge_long(const tokenizer *t, tokenizer_work *w, size_t n, char *error) {
    size_t used = 0;
    void *memory = w->heap; /* each merge takes one symbol away and pushes two candidates */
    if (!tokenizer_room(&memory, &w->n_heap, 3 * n, sizeof *w->heap)) return tokenizer_no_memory(error);
    w->heap = (tokenizer_candidate *)memory;
    for (size_t i = 0; i < n; i++) tokenizer_push(t, w, &used, i);
    while (used) {
        tokenizer_candidate c = tokenizer_pop(w, &used);
        size_t right = w->symbols[c.at].right;
        if (w->symbols[c.at].id != c.left || right == SIZE_MAX || w->symbols[right].id != c.right) continue;
        tokenizer_join(w, c.at, tokenizer_pair_of(t, c.left, c.right)->id);
        tokenizer_push(t, w, &used, w->symbols[c.at].left);
        tokenizer_push(t, w, &used, c.at);
    }
    return 1;
}

/* The same for a short word: looks through all pairs again and again, which is faster there. */
static inline void tokenizer_merge_short(const tokenizer *t, tokenizer_work *w, size_t n) {
    uint32_t rank[TOKENIZER_SHORT];
    int32_t into[TOKENIZER_SHORT];
    tokenizer_symbol *s = w->symbols;
    for (size_t i = 0; i + 1 < n; i++) {
        const tokenizer_pair *pair = tokenizer_pair_of(t, s[i].id, s[i + 1].id);
        rank[i] = pair->key ? pair->rank : UINT32_MAX, into[i] = pair->id;
    }
    for (;;) {
        size_t best = 0, i;
        for (i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best]) best = i;
        if (n < 2 || rank[best] == UINT32_MAX) break;
        s[best].id = into[best];
        for (n--, i = best + 1; i < n; i++)
            s[i].id = s[i + 1].id, rank[i] = rank[i + 1], into[i] = into[i + 1];
        for (i = best ? best - 1 : 0; i <= best && i + 1 < n; i++) {
            const tokenizer_pair *pair = tokenizer_pair_of(t, s[i].id, s[i + 1].id);
            rank[i] = pair->key ? pair->rank : UINT32_MAX, into[i] = pair->id;
        }
    }
    for (size_t i = 0; i < n; i++) s[i].right = i + 1 < n ? i + 1 : SIZE_MAX;
}

static inline int tokenizer_bpe(const tokenizer *t, tokenizer_work *w, const char *s, size_t n,
                                tokenizer_ids *ids, char *error) {
    size_t count = 0;
    if (t->ignore_merges) {
        int32_t whole = tokenizer_find(t, s, n);
        if (whole >= 0) return tokenizer_put_id(ids, whole) ? 1 : tokenizer_no_memory(error);
    }
    if (!tokenizer_symbols(t, w, s, n, &count, error)) return 0;
    if (!count) return 1;
    if (count <= TOKENIZER_SHORT) tokenizer_merge_short(t, w, count);
    else if (!tokenizer_merge_long(t, w, count, error)) return 0;
    for (size_t at = 0; at != SIZE_MAX; at = w->symbols[at].right)
        if (!tokenizer_put_id(ids, w->symbols[at].id)) return tokenizer_no_memory(error);
    return 1;
}

/* ---- One word: WordLevel, WordPiece, Unigram ---- */

/* The token that is the whole word, or the unknown one. */
static inline int tokenizer_wordlevel(const tokenizer *t, const char *s, size_t n, tokenizer_ids *ids,
                                      char *error) {
    int32_t id = tokenizer_find(t, s, n);
    if (id < 0) id = t->unk;
    if (id < 0) return tokenizer_fail(error, "a word is unknown, and there is no token for that");
    return tokenizer_put_id(ids, id) || tokenizer_no_memory(error);
}

/* The longest tokens from the left, those behind the first with the prefix "##"; the unknown token alone if
   the word cannot be put together. */
static inline int tokenizer_wordpiece(const tokenizer *t, tokenizer_work *w, const char *s, size_t n,
                                      tokenizer_ids *ids, char *error) {
    size_t before = ids->n, prefix = t->prefix ? strlen(t->prefix) : 0, characters = 0, at = 0, end;
    uint32_t node = 0;
    int32_t c, id = -1;
    while (at < n && characters <= t->word_most) {
        at += tokenizer_char(s + at, n - at, &c);
        characters++;
    }
    if (characters <= t->word_most && !tokenizer_find_all(&t->inside, s, n, &w->inside))
        return tokenizer_no_memory(error);
    for (at = end = 0; at < n && (node = tokenizer_walk(&t->trie, node, s[at])) != 0;)
        if (at++, t->trie.ids[node] >= 0) id = t->trie.ids[node], end = at;
    for (at = end; characters <= t->word_most && id >= 0;) {
        const tokenizer_hit *next;
        if (!tokenizer_put_id(ids, id)) return tokenizer_no_memory(error);
        if (at == n) return 1;
        next = tokenizer_next_hit(&w->inside, at);
        id = next && next->at == at ? next->id : -1;
        if (id >= 0) at += tokenizer_length(t, id) - prefix;
    }
    ids->n = before;
    if (t->unk < 0) return tokenizer_fail(error, "a word is unknown, and there is no token for that");
    return tokenizer_put_id(ids, t->unk) ? 1 : tokenizer_no_memory(error);
}

/* What was put together from characters without a token: a token after all, its bytes, or one unknown one. */
static inline int tokenizer_unknown(const tokenizer *t, const char *s, size_t n, tokenizer_ids *ids,
                                    char *error) {
    int bytes = tokenizer_falls_back(t, s, n);
    int32_t id = tokenizer_find(t, s, n);
    if (id >= 0) return tokenizer_put_id(ids, id) || tokenizer_no_memory(error);
    if (!bytes && t->unk < 0)
        return tokenizer_fail(error, "a character is unknown, and there is no token for that");
    for (size_t i = 0; i < (bytes ? n : 1); i++)
        if (!tokenizer_put_id(ids, bytes ? t->fallback[(unsigned char)s[i]] : t->unk))
            return tokenizer_no_memory(error);
    return 1;
}

/* Sums of scores are rounded by where they stand in the text. Two that differ by more than the margin come
   out the same way wherever the sum in front is below that magnitude, where no score is above that: in a word
   that is kept, of 21 bytes, two such sums are rounded by 4e-7 at most. */
#define TOKENIZER_MARGIN 1e-6
#define TOKENIZER_MAGNITUDE 1e8
#define TOKENIZER_STEEPEST 1e6

/* Offers a way to the end of a token, of which the best is kept; w->firm falls where it was a close call. */
static inline void tokenizer_offer(tokenizer_work *w, size_t end, size_t from, int32_t id, double score) {
    tokenizer_path *p = w->paths + end;
    double more = score - p->score;
    if (p->from != SIZE_MAX && more < TOKENIZER_MARGIN && more > -TOKENIZER_MARGIN) w->firm = 0;
    if (p->from == SIZE_MAX || score > p->score) p->from = from, p->id = id, p->score = score;
}

/* Finds the best way to each place of a word. */
static inline void tokenizer_find_ways(const tokenizer *t, tokenizer_work *w, const char *s, size_t n) {
    tokenizer_path *p = w->paths;
    size_t at, end, length;
    uint32_t node = 0;
    for (at = 0; at < n; at += length) {
        int32_t c;
        int single = 0;
        length = tokenizer_char(s + at, n - at, &c);
        p[at].begins = 1;
        for (end = at + 1; end <= at + length; end++) { /* the tokens that end here, the longest first */
            uint32_t last = 0;
            node = t->trie.nodes ? tokenizer_trie_step(&t->trie, node, s[end - 1]) : 0;
            if (node) last = tokenizer_trie_end(&t->trie, node);
            for (; last; last = t->trie.hit[last]) {
                int32_t id = t->trie.ids[last];
                size_t from = end - tokenizer_length(t, id);
                if (!p[from].begins) continue;
                single |= from == at && end == at + length;
                tokenizer_offer(w, end, from, id, p[from].score + t->scores[id]);
            }
        }
        if (!single) tokenizer_offer(w, at + length, at, -1, p[at].score + t->least_score - 10);
    }
}

/* The tokens whose scores have the largest sum; a character that is no token costs the least score less 10,
   and neighbours of these are one. The sum goes on from w->sum. */
static inline int tokenizer_unigram(const tokenizer *t, tokenizer_work *w, const char *s, size_t n,
                                    tokenizer_ids *ids, char *error) {
    tokenizer_path *p;
    size_t at, end;
    void *memory = w->paths;
    if (!tokenizer_room(&memory, &w->n_paths, n + 1, sizeof *w->paths)) return tokenizer_no_memory(error);
    w->paths = p = (tokenizer_path *)memory;
    for (at = 0; at <= n; at++) p[at].from = SIZE_MAX, p[at].score = 0, p[at].id = -1, p[at].begins = 0;
    p[0].score = w->sum;
    tokenizer_find_ways(t, w, s, n);
    w->sum = p[n].score;
    for (at = 1; at <= n; at++)
        if (p[at].id == t->unk) p[at].id = -1;
    /* turns the way back into a way forth: from[a] becomes the end of the token that begins at a */
    for (at = n, end = SIZE_MAX; at != SIZE_MAX;) {
        size_t back = p[at].from;
        int32_t id = p[at].id;
        p[at].from = end, end = at;
        if (back != SIZE_MAX) p[at].score = id; /* the score is no longer needed */
        at = at ? back : SIZE_MAX;
    }
    for (at = 0; at < n; at = end) {
        int done;
        int32_t id = (int32_t)p[end = p[at].from].score;
        if (id < 0) w->firm = 0;
        while (id < 0 && end < n && p[p[end].from].score < 0) end = p[end].from;
        done = id < 0 ? tokenizer_unknown(t, s + at, end - at, ids, error)
                      : tokenizer_put_id(ids, id) || tokenizer_no_memory(error);
        if (!done) return 0;
    }
    return 1;
}

/* Where the word ends that begins at `at` in a piece: before a blank that no token is across, around a
   character that is alone. */
static inline size_t tokenizer_word_end(const tokenizer *t, const char *s, size_t n, size_t at) {
    if (!t->apart) return n;
    for (at++; at < n; at++) {
        int blank = s[at] == ' ' ? 1 : 0, before = t->reaches[(unsigned char)s[at - 1]];
        if (s[at] == '\xE2' && n - at >= 3 && s[at + 1] == '\x96' && s[at + 2] == '\x81') blank = 2;
        if (blank & t->apart & ~before) return at;
        if ((t->reaches[(unsigned char)s[at]] | before) & t->apart & 4) return at;
    }
    return n;
}

/* Appends the ids of a word that was kept. */
static inline int tokenizer_put_cached(const tokenizer *t, tokenizer_work *w, const tokenizer_cached *kept,
                                       tokenizer_ids *ids) {
    for (int i = 0; i < kept->n_ids; i++) {
        if (!tokenizer_put_id(ids, kept->ids[i])) return 0;
        if (t->scores && kept->firm) w->sum += t->scores[kept->ids[i]];
    }
    return 1;
}

/* Encodes a word of a piece; alone: which is all of it. */
static inline int tokenizer_encode_word(const tokenizer *t, tokenizer_work *w, const char *s, size_t n,
                                        int alone, tokenizer_ids *ids, char *error) {
    tokenizer_cached *kept = NULL;
    size_t before = ids->n;
    int done, within = w->sum < TOKENIZER_MAGNITUDE && w->sum > -TOKENIZER_MAGNITUDE;
    if (w->cache && n <= sizeof kept->bytes) {
        kept = w->cache + (tokenizer_hash(s, n) & (TOKENIZER_CACHE - 1));
        if (kept->n == n && (alone || (kept->firm && within)) && !memcmp(kept->bytes, s, n))
            return tokenizer_put_cached(t, w, kept, ids) || tokenizer_no_memory(error);
    }
    w->firm = within;
    done = t->kind == TOKENIZER_BPE         ? tokenizer_bpe(t, w, s, n, ids, error)
         : t->kind == TOKENIZER_WORDPIECE   ? tokenizer_wordpiece(t, w, s, n, ids, error)
         : t->kind == TOKENIZER_WORDLEVEL   ? tokenizer_wordlevel(t, s, n, ids, error)
                                            : tokenizer_unigram(t, w, s, n, ids, error);
    if (done && kept && (alone || w->firm) && ids->n - before <= sizeof kept->ids / sizeof *kept->ids) {
        kept->n = (unsigned char)n, kept->n_ids = (unsigned char)(ids->n - before);
        kept->firm = (unsigned char)w->firm;
        memcpy(kept->bytes, s, n);
        memcpy(kept->ids, ids->at + before, kept->n_ids * sizeof *kept->ids);
    }
    return done;
}

/* Encodes one piece of a text, what pre-tokenizers left whole, word by word where that changes nothing. */
static inline int tokenizer_piece(const tokenizer *t, tokenizer_work *w, const char *s, size_t n,
                                  tokenizer_ids *ids, char *error) {
    size_t at = 0, end;
    if (w->piece) return w->piece(w->user, s, n) || tokenizer_no_memory(error);
    for (w->sum = 0; at < n; at = end) {
        end = tokenizer_word_end(t, s, n, at);
        if (!tokenizer_encode_word(t, w, s + at, end - at, !at && end == n, ids, error)) return 0;
    }
    return 1;
}

/* ---- Patterns that split ---- */

/* Letters, numbers, signs, blanks: how a well-known pattern treats them. */
enum { TOKENIZER_ANY_CASE = 1, /* 'S as 's */
       TOKENIZER_ANY_LEAD = 2, /* a word may begin with any sign, not only with a blank */
       TOKENIZER_LINE_ENDS = 4, /* signs take the line ends behind them along; blanks end with line ends */
       TOKENIZER_CASES = 8,    /* a word ends where small letters meet a capital */
       TOKENIZER_ONE = 16, TOKENIZER_THREE = 32, /* most digits of a number */
       TOKENIZER_WHOLE = 64,   /* no 's 't .. behind a word */
       /* patterns that leave something between their matches, so that they do not split everywhere: */
       TOKENIZER_PARTIAL = 256, TOKENIZER_GROUPS = 256, TOKENIZER_TRIPLES, TOKENIZER_KANA, TOKENIZER_DEEPSEEK,
       TOKENIZER_CLIP };

typedef struct tokenizer_pattern { const char *name, *text; int how; } tokenizer_pattern;

static inline const tokenizer_pattern *tokenizer_patterns(size_t *n) {
    static const tokenizer_pattern patterns[] = {
        {"gpt2", "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", 0},
        {"gpt2", "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", 0},
        {"llama3", "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
         " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
         TOKENIZER_ANY_CASE | TOKENIZER_ANY_LEAD | TOKENIZER_LINE_ENDS | TOKENIZER_THREE},
        {"qwen2", "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
         " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
         TOKENIZER_ANY_CASE | TOKENIZER_ANY_LEAD | TOKENIZER_LINE_ENDS | TOKENIZER_ONE},
        {"o200k", "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
         "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+"
         "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}|"
         " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
         TOKENIZER_ANY_CASE | TOKENIZER_ANY_LEAD | TOKENIZER_LINE_ENDS | TOKENIZER_CASES | TOKENIZER_THREE},
        {"tekken",
         "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
         "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|\\p{N}|"
         " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", TOKENIZER_WHOLE |
         TOKENIZER_ANY_LEAD | TOKENIZER_LINE_ENDS | TOKENIZER_CASES | TOKENIZER_ONE},
        {"groups", "\\p{N}{1,3}", TOKENIZER_GROUPS}, {"triples", "[0-9][0-9][0-9]", TOKENIZER_TRIPLES},
        {"kana",
         "[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83\xBF]+", TOKENIZER_KANA},
        {"deepseek", "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?"
         "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+", TOKENIZER_DEEPSEEK},
        {"clip", "<\\|startoftext\\|>|<\\|endoftext\\|>|'s|'t|'re|'ve|'m|'ll|'d|[\\p{L}]+|[\\p{N}]|"
         "[^\\s\\p{L}\\p{N}]+", TOKENIZER_CLIP}};
    *n = sizeof patterns / sizeof *patterns;
    return patterns;
}

/* 's 't 're 've 'm 'll 'd at s; how many bytes, 0: none. U+017F is an S of any case. */
static inline size_t tokenizer_contraction(const char *s, size_t n, int any_case) {
    char a, b;
    if (n < 2 || *s != '\'') return 0;
    if (any_case && n > 2 && s[1] == '\xC5' && s[2] == '\xBF') return 3;
    a = s[1], b = n > 2 ? s[2] : ' ';
    if (any_case && a >= 'A' && a <= 'Z') a = (char)(a | 32);
    if (any_case && b >= 'A' && b <= 'Z') b = (char)(b | 32);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    return (a == 'l' && b == 'l') || ((a == 'v' || a == 'r') && b == 'e') ? 3 : 0;
}

/* Where a run of characters of one sort ends, after `most` of them at the latest. */
static inline size_t tokenizer_run(const char *s, size_t at, size_t n, int (*is)(int32_t), size_t most) {
    int32_t c;
    size_t step;
    for (; at < n && most; at += step, most--) {
        step = tokenizer_char(s + at, n - at, &c);
        if (!is(c)) break;
    }
    return at;
}

static inline int tokenizer_upper(int32_t c) { /* and letters without case, marks */
    return c < 128 ? c >= 'A' && c <= 'Z'
         : (tokenizer_letter(c) && utf8proc_category(c) != UTF8PROC_CATEGORY_LL) || tokenizer_mark(c);
}
static inline int tokenizer_lower(int32_t c) {
    return c < 128 ? c >= 'a' && c <= 'z' : tokenizer_in(c, UTF8PROC_CATEGORY_LL, UTF8PROC_CATEGORY_LL) ||
           tokenizer_in(c, UTF8PROC_CATEGORY_LM, UTF8PROC_CATEGORY_LO) || tokenizer_mark(c);
}
static inline int tokenizer_sign(int32_t c) {
    return !tokenizer_space(c) && !tokenizer_letter(c) && !tokenizer_number(c);
}

/* Capitals, then small letters, where `least` says that there is at least one of the latter: the end, or
   `at`. Letters without case are both. */
static inline size_t tokenizer_cased(const char *s, size_t at, size_t n, int least) {
    size_t capitals = tokenizer_run(s, at, n, tokenizer_upper, SIZE_MAX), step, last = at, i;
    size_t end = tokenizer_run(s, capitals, n, tokenizer_lower, SIZE_MAX);
    int32_t c;
    if (!least) return capitals == at ? at : end;
    if (end > capitals) return end;
    for (i = at; i < capitals; i += step) { /* gives capitals back until one is a small letter as well */
        step = tokenizer_char(s + i, n - i, &c);
        if (tokenizer_lower(c)) last = i + step;
    }
    return last;
}

/* A word as the pattern has it, `lead` bytes in front of it: its end, or 0. */
static inline size_t tokenizer_word(const char *s, size_t n, size_t lead, int how) {
    size_t end;
    if (!(how & TOKENIZER_CASES)) {
        end = tokenizer_run(s, lead, n, tokenizer_letter, SIZE_MAX);
        return end > lead ? end : 0;
    }
    for (int least = 1; least >= 0; least--)
        for (size_t from = lead;; from = 0) {
            end = tokenizer_cased(s, from, n, least);
            if (end > from)
                return how & TOKENIZER_WHOLE ? end : end + tokenizer_contraction(s + end, n - end, 1);
            if (!from) break;
        }
    return 0;
}

/* Blanks at s, which come last: their end as the pattern cuts them. */
static inline size_t tokenizer_blanks(const char *s, size_t n, int how) {
    size_t at = 0, last = 0, line = 0, step;
    int32_t c;
    for (; at < n; last = at, at += step) {
        step = tokenizer_char(s + at, n - at, &c);
        if (!tokenizer_space(c)) break;
        if (c == '\n' || c == '\r') line = at + step;
    }
    if ((how & TOKENIZER_LINE_ENDS) && line) return line;
    return at < n && last ? last : at;
}

static inline int tokenizer_letter_or_mark(int32_t c) { return tokenizer_letter(c) || tokenizer_mark(c); }
static inline int tokenizer_ascii_letter(int32_t c) { return c < 128 && tokenizer_letter(c); }
static inline int tokenizer_drawn(int32_t c) { /* punctuation and symbols */
    if (c < 128) return c > 32 && c < 127 && !tokenizer_letter(c) && !tokenizer_number(c);
    return tokenizer_in(c, UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_SO);
}
static inline int tokenizer_kana(int32_t c) {
    return (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF);
}

/* DeepSeek's pattern at s: the end of its match, 0: none begins here. */
static inline size_t tokenizer_match_deepseek(const char *s, size_t n) {
    int32_t c, next = -1;
    size_t length = tokenizer_char(s, n, &c), end;
    if (length < n) tokenizer_char(s + length, n - length, &next);
    if (c < 128 && tokenizer_drawn(c) && tokenizer_ascii_letter(next))
        return tokenizer_run(s, 1, n, tokenizer_ascii_letter, SIZE_MAX);
    if (tokenizer_letter_or_mark(next) && c != '\r' && c != '\n' && !tokenizer_drawn(c) &&
        !tokenizer_letter(c))
        return tokenizer_run(s, length, n, tokenizer_letter_or_mark, SIZE_MAX);
    if (tokenizer_letter_or_mark(c)) return tokenizer_run(s, 0, n, tokenizer_letter_or_mark, SIZE_MAX);
    if ((end = tokenizer_run(s, c == ' ', n, tokenizer_drawn, SIZE_MAX)) > (size_t)(c == ' ')) {
        while (end < n && (s[end] == '\n' || s[end] == '\r')) end++;
        return end;
    }
    return tokenizer_space(c) ? tokenizer_blanks(s, n, TOKENIZER_LINE_ENDS) : 0;
}

static inline size_t tokenizer_match_clip(const char *s, size_t n) {
    static const char *const texts[] = {"<|startoftext|>", "<|endoftext|>"};
    size_t end;
    for (int i = 0; i < 2; i++)
        if (n >= strlen(texts[i]) && !memcmp(s, texts[i], strlen(texts[i]))) return strlen(texts[i]);
    if ((end = tokenizer_contraction(s, n, 0)) > 0) return end;
    if ((end = tokenizer_run(s, 0, n, tokenizer_letter, SIZE_MAX)) > 0) return end;
    if ((end = tokenizer_run(s, 0, n, tokenizer_number, 1)) > 0) return end;
    return tokenizer_run(s, 0, n, tokenizer_sign, SIZE_MAX);
}

/* The match at s of a pattern that leaves something out: its end, 0: none begins here. */
static inline size_t tokenizer_match_partial(const char *s, size_t n, int how) {
    if (how == TOKENIZER_GROUPS) return tokenizer_run(s, 0, n, tokenizer_number, 3);
    if (how == TOKENIZER_KANA) return tokenizer_run(s, 0, n, tokenizer_kana, SIZE_MAX);
    if (how == TOKENIZER_DEEPSEEK) return tokenizer_match_deepseek(s, n);
    if (how == TOKENIZER_CLIP) return tokenizer_match_clip(s, n);
    for (size_t i = 0; i < 3; i++)
        if (i == n || s[i] < '0' || s[i] > '9') return 0;
    return 3;
}

/* The first match of a well-known pattern in s, which is at its begin; n > 0. */
static inline size_t tokenizer_match(const char *s, size_t n, int how) {
    int32_t c, next = -1;
    size_t length = tokenizer_char(s, n, &c), end, lead = 0;
    if (*s == '\'' && !(how & TOKENIZER_CASES) &&
        (end = tokenizer_contraction(s, n, how & TOKENIZER_ANY_CASE)))
        return end;
    if (length < n) tokenizer_char(s + length, n - length, &next);
    if (how & TOKENIZER_ANY_LEAD) {
        if (c != '\r' && c != '\n' && !tokenizer_letter(c) && !tokenizer_number(c)) lead = length;
    } else if (c == ' ') lead = 1;
    if ((end = tokenizer_word(s, n, lead, how))) return end;
    if (how & (TOKENIZER_ONE | TOKENIZER_THREE)) {
        if (tokenizer_number(c)) return tokenizer_run(s, 0, n, tokenizer_number, how & TOKENIZER_ONE ? 1 : 3);
    } else if (tokenizer_number(c) || (c == ' ' && length < n && tokenizer_number(next))) {
        return tokenizer_run(s, c == ' ', n, tokenizer_number, SIZE_MAX);
    }
    if (tokenizer_space(c) && !(c == ' ' && length < n && tokenizer_sign(next)))
        return tokenizer_blanks(s, n, how);
    end = tokenizer_run(s, c == ' ', n, tokenizer_sign, SIZE_MAX);
    if (how & TOKENIZER_LINE_ENDS)
        while (end < n && (s[end] == '\n' || s[end] == '\r' || (s[end] == '/' && how & TOKENIZER_CASES)))
            end++;
    return end;
}

/* ---- Normalizers ---- */

enum { TOKENIZER_NFC, TOKENIZER_NFD, TOKENIZER_NFKC, TOKENIZER_NFKD, TOKENIZER_LOWERCASE,
       TOKENIZER_STRIP_ACCENTS, TOKENIZER_STRIP, TOKENIZER_PREPEND, TOKENIZER_REPLACE,
       TOKENIZER_REPLACE_BLANKS, TOKENIZER_BERT, TOKENIZER_PRECOMPILED };

/* Where in the text a piece stands: it is the very first; goes on where another ended; another goes on. */
typedef struct tokenizer_place { int first, goes_on, unfinished; } tokenizer_place;

/* Appends a character in lower case: of all letters only U+0130 becomes two. */
static inline int tokenizer_put_lower(tokenizer_bytes *out, int32_t c) {
    char s[4];
    if (c == 0x130) return tokenizer_put(out, "i\xCC\x87", 3);
    return tokenizer_put(out, s, tokenizer_utf8(utf8proc_tolower(c), s));
}

/* Brings marks into the order of their classes, equal ones in theirs. By merging from the bottom up: a text
   may have millions in a row. c, room [n] */
static inline void tokenizer_order_marks(int32_t *c, int32_t *room, size_t n) {
    for (size_t run = 1; run < n; run *= 2) {
        for (size_t from = 0; from < n; from += 2 * run) {
            size_t left = from, mid = n - from < run ? n : from + run, right = mid,
                   end = n - mid < run ? n : mid + run;
            for (size_t i = from; i < end; i++) {
                int second =
                    left == mid || (right < end && utf8proc_get_property(c[right])->combining_class <
                                                       utf8proc_get_property(c[left])->combining_class);
                room[i] = second ? c[right++] : c[left++];
            }
        }
        memcpy(c, room, n * sizeof *c);
    }
}

/* Appends valid UTF-8 in one of the normal forms. */
static inline int tokenizer_put_normal(tokenizer_bytes *out, const char *s, size_t n, int kind) {
    int compat = kind == TOKENIZER_NFKC || kind == TOKENIZER_NFKD, composed = kind == TOKENIZER_NFC ||
        kind == TOKENIZER_NFKC, boundary = UTF8PROC_BOUNDCLASS_START, done = 0;
    utf8proc_option_t options = (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                    (compat ? UTF8PROC_COMPAT : 0));
    size_t used = 0, room = 0, length, i, from;
    utf8proc_ssize_t left;
    int32_t *c = NULL, one;
    void *memory = NULL;
    for (size_t at = 0; at < n; at += length) {
        length = tokenizer_char(s + at, n - at, &one); /* no character becomes more than 18 */
        if (!tokenizer_room(&memory, &room, used + 32, 2 * sizeof *c)) goto end;
        c = (int32_t *)memory;
        left = utf8proc_decompose_char(one, c + used, 32, options, &boundary);
        if (left < 0) goto end;
        used += (size_t)left;
    }
    for (i = 0; i < used; i = from) {
        for (from = i; from < used && utf8proc_get_property(c[from])->combining_class; from++) {}
        if (from - i > 1) tokenizer_order_marks(c + i, c + used, from - i);
        if (from == i) from++;
    }
    options = (utf8proc_option_t)(UTF8PROC_STABLE | (composed ? UTF8PROC_COMPOSE : 0));
    left = used ? utf8proc_normalize_utf32(c, (utf8proc_ssize_t)used, options) : 0;
    for (i = 0, done = left >= 0; done && i < (size_t)left; i++) {
        char bytes[4];
        done = tokenizer_put(out, bytes, tokenizer_utf8(c[i], bytes));
    }
end:
    free(memory);
    return done;
}

/* Where ASCII ends that begins at `at`. */
static inline size_t tokenizer_ascii_end(const char *s, size_t n, size_t at) {
    uint64_t eight;
    for (; n - at >= 8; at += 8) {
        memcpy(&eight, s + at, 8);
        if (eight & 0x8080808080808080u) break;
    }
    while (at < n && !((unsigned char)s[at] & 0x80)) at++;
    return at;
}

/* The normal form of any bytes: those that are no UTF-8 stay. So does ASCII, which joins with nothing but
   marks behind it. */
static inline int tokenizer_normal_form(tokenizer_bytes *out, const char *s, size_t n, int kind) {
    size_t at = 0, from, length = 0;
    int32_t c;
    while (at < n) {
        from = tokenizer_ascii_end(s, n, at);
        if (from < n && from > at) from--; /* the letter that marks may stand behind */
        if (!tokenizer_put(out, s + at, from - at)) return 0;
        for (c = 0, at = from; at < n; at += length) {
            length = tokenizer_char(s + at, n - at, &c);
            if (c < 0 || (c < 128 && at > from)) break;
        }
        if (at > from && !tokenizer_put_normal(out, s + from, at - from, kind)) return 0;
        if (at < n && c < 0 && !tokenizer_put(out, s + at++, 1)) return 0;
    }
    return 1;
}

/* What BERT makes of one character of ASCII: 0 where cleaning leaves nothing. */
static inline char tokenizer_bert_ascii(const tokenizer_step *step, char c) {
    if (step->a && (c < 32 || c == 127)) return c == '\t' || c == '\n' || c == '\r' ? ' ' : 0;
    return step->d && c >= 'A' && c <= 'Z' ? (char)(c | 32) : c;
}

/* The same of any text, with blanks around ideographs (b). */
static inline int tokenizer_bert_clean(tokenizer_bytes *out, const char *s, size_t n,
                                       const tokenizer_step *step) {
    size_t length;
    int32_t c;
    for (size_t at = 0; at < n; at += length) {
        int wide;
        length = tokenizer_char(s + at, n - at, &c);
        if (step->a && tokenizer_dropped(c)) continue;
        wide = step->b && tokenizer_ideograph(c);
        if (step->a && tokenizer_space(c)) {
            if (!tokenizer_put(out, " ", 1)) return 0;
        } else if ((wide && !tokenizer_put(out, " ", 1)) || !tokenizer_put(out, s + at, length) ||
                   (wide && !tokenizer_put(out, " ", 1))) return 0;
    }
    return 1;
}

/* Takes accents off (c), makes letters small (d): appends s to out, by way of `other`. */
static inline int tokenizer_bert_plain(tokenizer_bytes *out, tokenizer_bytes *other, const char *s, size_t n,
                                       const tokenizer_step *step) {
    size_t length;
    int32_t c;
    other->n = 0;
    if (step->c && !tokenizer_normal_form(other, s, n, TOKENIZER_NFD)) return 0;
    if (step->c) s = other->at, n = other->n;
    for (size_t at = 0; at < n; at += length) {
        length = tokenizer_char(s + at, n - at, &c);
        if (step->c && tokenizer_in(c, UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_MN)) continue;
        if (c < 0 || !step->d ? !tokenizer_put(out, s + at, length) : !tokenizer_put_lower(out, c)) return 0;
    }
    return 1;
}

/* BERT: cleans (a), puts blanks around ideographs (b), takes accents off (c), makes letters small (d). ASCII
   goes its short way, but for the letter that marks may stand behind. */
static inline int tokenizer_bert(tokenizer_bytes *out, tokenizer_bytes *rooms, const char *s, size_t n,
                                 const tokenizer_step *step) {
    tokenizer_bytes *cleaned = &rooms[0], *other = &rooms[1];
    size_t at = 0, from, length = 0;
    int32_t c;
    while (at < n) {
        from = tokenizer_ascii_end(s, n, at);
        if (from < n && from > at) from--;
        if (!tokenizer_put(out, s + at, from - at)) return 0; /* room for what comes out */
        for (out->n -= from - at; at < from; at++) {
            out->at[out->n] = tokenizer_bert_ascii(step, s[at]);
            out->n += out->at[out->n] != 0 || (!s[at] && !step->a);
        }
        for (; at < n; at += length) {
            length = tokenizer_char(s + at, n - at, &c);
            if (c >= 0 && c < 128 && at > from && tokenizer_bert_ascii(step, (char)c)) break;
        }
        cleaned->n = 0;
        if (at > from && (!tokenizer_put(cleaned, "", 0) ||
                          !tokenizer_bert_clean(cleaned, s + from, at - from, step) ||
                          !tokenizer_bert_plain(out, other, cleaned->at, cleaned->n, step)))
            return 0;
    }
    return tokenizer_put(out, "", 0);
}

/* SentencePiece's table of characters: 4 bytes of size, a double-array trie of that many bytes, then the
   texts that characters become, each with a 0 behind. A unit of the trie: */
static inline uint32_t tokenizer_unit(const tokenizer_step *step, size_t node) {
    const unsigned char *at = (const unsigned char *)step->from + 4 + 4 * node;
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* Where the children of a node are */
static inline size_t tokenizer_children(size_t node, uint32_t unit) {
    return node ^ ((size_t)(unit >> 10) << ((unit & (1u << 9)) >> 6));
}

/* No entry of a table is longer: files that loop shall not cost more. */
enum { TOKENIZER_ENTRY = 64 };

/* The text of the shortest beginning of s that the table has, with step->b of the longest, then not across a
   blank or line end; *length: of how many bytes. NULL: it has none. */
static inline const char *tokenizer_precompiled(const tokenizer_step *step, const char *s, size_t n,
                                                size_t *length) {
    size_t units = (size_t)step->a, node = 0, most = n < TOKENIZER_ENTRY ? n : TOKENIZER_ENTRY;
    const char *found = NULL;
    *length = 0;
    if (!units) return NULL;
    for (size_t i = 0; i < most; i++) {
        unsigned char byte = (unsigned char)s[i];
        uint32_t unit;
        if (!byte || (step->b && i && (byte == ' ' || byte == '\n'))) break;
        node = tokenizer_children(node, tokenizer_unit(step, node)) ^ byte;
        if (node >= units) break;
        unit = tokenizer_unit(step, node);
        if ((unit & (0x80000000u | 0xFF)) != byte) break;
        if (unit >> 8 & 1) { /* a leaf hangs here: where its text begins */
            size_t leaf = tokenizer_children(node, unit), text;
            if (leaf >= units) break;
            text = (tokenizer_unit(step, leaf) & 0x7FFFFFFF) + 4 + 4 * units;
            if (text >= step->n_from) break;
            found = step->from + text, *length = i + 1;
            if (!step->b) break;
        }
    }
    return found;
}

/* The longest entry at each place, as SentencePiece does. */
static inline int tokenizer_longest_entries(tokenizer_bytes *out, const char *s, size_t n,
                                            const tokenizer_step *step) {
    size_t at = 0, from = 0, length;
    int32_t c;
    while (at < n) {
        const char *text = tokenizer_precompiled(step, s + at, n - at, &length);
        if (!text) {
            at += tokenizer_char(s + at, n - at, &c);
            continue;
        }
        if (!tokenizer_put(out, s + from, at - from) || !tokenizer_put(out, text, strlen(text))) return 0;
        from = at += length;
    }
    return tokenizer_put(out, s + from, n - from);
}

/* Where characters of ASCII end that stay as they are and begin no cluster with what follows. */
static inline size_t tokenizer_unmapped(const tokenizer_step *step, const char *s, size_t n, size_t at) {
    for (; at < n; at++) {
        unsigned char next = at + 1 < n ? (unsigned char)s[at + 1] : 0;
        if ((unsigned char)s[at] & 0x80 || next & 0x80 || !step->to[(int)s[at]]) break;
    }
    return at;
}

/* Cluster by cluster, as Hugging Face's library does; a cluster of 6 bytes or more that is no entry goes
   character by character. */
static inline int tokenizer_charsmap(tokenizer_bytes *out, const char *s, size_t n,
                                     const tokenizer_step *step) {
    size_t at = 0, end, length, i, used;
    if (step->b) return tokenizer_longest_entries(out, s, n, step);
    while (at < n) {
        int32_t c, next, state = 0;
        const char *text;
        end = tokenizer_unmapped(step, s, n, at);
        if (!tokenizer_put(out, s + at, end - at)) return 0;
        if ((at = end) == n) break;
        length = tokenizer_char(s + at, n - at, &c);
        for (end = at + length; c >= 0 && end < n; end += length, c = next) {
            length = tokenizer_char(s + end, n - end, &next);
            if (next < 0 || utf8proc_grapheme_break_stateful(c, next, &state)) break;
        }
        text = end - at < 6 ? tokenizer_precompiled(step, s + at, end - at, &used) : NULL;
        if (text) {
            if (!tokenizer_put(out, text, strlen(text))) return 0;
            at = end;
            continue;
        }
        for (i = at; i < end; i += length) {
            length = tokenizer_char(s + i, n - i, &c);
            text = tokenizer_precompiled(step, s + i, length, &used);
            if (!tokenizer_put(out, text ? text : s + i, text ? strlen(text) : length)) return 0;
        }
        at = end;
    }
    return 1;
}

/* Appends s with every `from` become `to`. */
static inline int tokenizer_put_replaced(tokenizer_bytes *out, const char *s, size_t n,
                                         const tokenizer_step *step) {
    size_t at = 0, from = 0;
    while (n - at >= step->n_from) {
        const char *hit = (const char *)memchr(s + at, step->from[0], n - at - step->n_from + 1);
        if (!hit) break;
        at = (size_t)(hit - s);
        if (memcmp(hit, step->from, step->n_from)) {
            at++;
            continue;
        }
        if (!tokenizer_put(out, s + from, at - from) || !tokenizer_put(out, step->to, step->n_to)) return 0;
        from = at += step->n_from;
    }
    return tokenizer_put(out, s + from, n - from);
}

/* Appends s with every run of two blanks or more, or with `a` of any white space, become `to`. */
static inline int tokenizer_put_narrow(tokenizer_bytes *out, const char *s, size_t n,
                                       const tokenizer_step *step) {
    size_t at = 0, from = 0, end, length = 1;
    while (at < n) {
        for (end = at; end < n; end += length) {
            int32_t c = s[end];
            if (step->a) length = tokenizer_char(s + end, n - end, &c);
            if (step->a ? !tokenizer_space(c) : c != ' ') break;
        }
        if (end - at > 1 || (end > at && step->a)) {
            if (!tokenizer_put(out, s + from, at - from) || !tokenizer_put(out, step->to, step->n_to))
                return 0;
            from = end;
        }
        at = end + length;
    }
    return tokenizer_put(out, s + from, n - from);
}

static inline int tokenizer_normalize_step(tokenizer_work *w, tokenizer_bytes *out, const char *s, size_t n,
                                           const tokenizer_step *step, const tokenizer_place *place) {
    size_t at, length;
    int32_t c;
    switch (step->kind) {
    case TOKENIZER_STRIP:
        for (; step->a && !place->goes_on && n; s += length, n -= length) {
            length = tokenizer_char(s, n, &c);
            if (!tokenizer_space(c)) break;
        }
        while (step->b && !place->unfinished && n) {
            for (at = n - 1; at && ((unsigned char)s[at] & 0xC0) == 0x80; at--) {}
            length = tokenizer_char(s + at, n - at, &c);
            if (!tokenizer_space(c) || at + length < n) break;
            n = at;
        }
        return tokenizer_put(out, s, n);
    case TOKENIZER_PREPEND:
        return (!n || place->goes_on || tokenizer_put(out, step->to, step->n_to)) && tokenizer_put(out, s, n);
    case TOKENIZER_REPLACE: return tokenizer_put_replaced(out, s, n, step);
    case TOKENIZER_REPLACE_BLANKS: return tokenizer_put_narrow(out, s, n, step);
    case TOKENIZER_BERT: return tokenizer_bert(out, &w->text[2], s, n, step);
    case TOKENIZER_PRECOMPILED: return tokenizer_charsmap(out, s, n, step);
    case TOKENIZER_LOWERCASE:
    case TOKENIZER_STRIP_ACCENTS:
        for (at = 0; at < n; at += length) {
            length = tokenizer_char(s + at, n - at, &c);
            if (step->kind == TOKENIZER_STRIP_ACCENTS && tokenizer_mark(c)) continue;
            if (step->kind == TOKENIZER_STRIP_ACCENTS || c < 0 ? !tokenizer_put(out, s + at, length)
                                                               : !tokenizer_put_lower(out, c)) return 0;
        }
        return 1;
    default: return tokenizer_normal_form(out, s, n, step->kind);
    }
}

static inline int tokenizer_ascii(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] & 0x80) return 0;
    return 1;
}

/* Applies the normalizers to *s, *n; the result may lie in w->text[0 or 1]. */
static inline int tokenizer_normalize(const tokenizer *t, tokenizer_work *w, const char **s, size_t *n,
                                      const tokenizer_place *place, char *error) {
    for (int i = 0, turn = 0; i < t->n_normal && *n; i++) {
        const tokenizer_step *step = &t->normal[i];
        tokenizer_bytes *out = &w->text[turn];
        if (step->kind <= TOKENIZER_NFKD && tokenizer_ascii(*s, *n)) continue; /* they leave ASCII alone */
        out->n = 0;
        if (!tokenizer_put(out, "", 0) || !tokenizer_normalize_step(w, out, *s, *n, step, place))
            return tokenizer_no_memory(error);
        *s = out->at, *n = out->n, turn = !turn;
    }
    return 1;
}

/* ---- Pre-tokenizers ---- */

enum { TOKENIZER_BYTES,    /* ByteLevel: a blank in front (a), GPT-2's pattern (b) */
       TOKENIZER_METASPACE, /* `to` for blanks and in front (a: 0 never, 1 first, 2 always), split (b) */
       /* split (a: what to do with what matches, one of TOKENIZER_ALONE ..; b: the other way round): */
       TOKENIZER_PATTERN,  /* a well-known pattern (c: how) */
       TOKENIZER_TEXT,     /* `from` */
       TOKENIZER_SPACES, TOKENIZER_SIGNS, TOKENIZER_NUMBERS, TOKENIZER_WORDS,
       TOKENIZER_REGEX };  /* any other pattern (code) */
enum { TOKENIZER_ALONE, TOKENIZER_REMOVED, TOKENIZER_TO_LEFT, TOKENIZER_TO_RIGHT, TOKENIZER_JOINED };

/* GPT-2's letter for a byte: itself where it can be seen, the others from U+0100 on in their order. */
static inline int32_t tokenizer_letter_of(int byte) {
    if ((byte > 32 && byte < 127) || (byte > 160 && byte != 173)) return byte;
    return 256 + (byte < 33 ? byte : byte < 161 ? byte - 127 + 33 : 67);
}

/* The next stretch of s from its begin on that matches, or that does not: *matches says. Returns its end. */
static inline size_t tokenizer_stretch(const tokenizer_step *step, const char *s, size_t n, int *matches) {
    size_t at = 0, length;
    int32_t c;
    if (step->kind == TOKENIZER_PATTERN && step->c >= TOKENIZER_PARTIAL) {
        for (*matches = 0; at < n; at += tokenizer_char(s + at, n - at, &c))
            if ((length = tokenizer_match_partial(s + at, n - at, step->c)) > 0)
                return at ? at : (*matches = 1, length);
        return at;
    }
    if (step->kind == TOKENIZER_PATTERN) return *matches = 1, tokenizer_match(s, n, step->c);
    if (step->kind == TOKENIZER_TEXT) {
        if ((*matches = n >= step->n_from && !memcmp(s, step->from, step->n_from)) != 0) return step->n_from;
        for (at = 1; at < n && (s[at] != *step->from || n - at < step->n_from ||
                                memcmp(s + at, step->from, step->n_from)); at++) {}
        return at;
    }
    tokenizer_char(s, n, &c);
    if (step->kind == TOKENIZER_WORDS) {
        int word = tokenizer_wordly(c);
        *matches = !tokenizer_space(c);
        for (; at < n; at += length) {
            length = tokenizer_char(s + at, n - at, &c);
            if (tokenizer_space(c) == *matches || (*matches && tokenizer_wordly(c) != word)) break;
        }
        return at;
    }
    for (*matches = 0; at < n; at += length) {
        length = tokenizer_char(s + at, n - at, &c);
        if (step->d) length = 1, c = tokenizer_letter_of((unsigned char)s[at]); /* behind ByteLevel */
        if (step->kind == TOKENIZER_SPACES ? !tokenizer_space(c)
            : step->kind == TOKENIZER_SIGNS ? !tokenizer_punctuation(c) : !tokenizer_number(c)) continue;
        return at ? at : (*matches = 1, length);
    }
    return at;
}

/* A piece while it is split: the part from `begin` on is nothing yet (-1), no match (0), a match (1). */
typedef struct tokenizer_parting { size_t begin; int before; } tokenizer_parting;

/* Adds the stretch [at, end), which matches or not, to the last part or begins another one. */
static inline int tokenizer_part(const tokenizer_step *step, tokenizer_parting *p, tokenizer_span stretch,
                                 int matches, tokenizer_spans *to) {
    size_t at = stretch.at, begin = p->begin;
    int joins, before = p->before;
    if (step->b) matches = !matches;
    if (step->a == TOKENIZER_REMOVED && matches) {
        p->before = -1, p->begin = at + stretch.n;
        return before < 0 || tokenizer_put_span(to, begin, at - begin);
    }
    joins = step->a == TOKENIZER_TO_LEFT  ? matches && !before
          : step->a == TOKENIZER_TO_RIGHT ? !matches && before == 1
          : step->a == TOKENIZER_JOINED   ? matches == before
                                          : 0;
    p->before = matches;
    if (before >= 0 && joins) return 1;
    p->begin = at;
    return before < 0 || tokenizer_put_span(to, begin, at - begin);
}

#ifdef WITH_PCRE2
/* Splits [at, stop), which is UTF-8, at the matches of a pattern; also where one is empty. */
static inline int tokenizer_part_regex(const tokenizer_step *step, regex_room *room, const char *s,
                                       tokenizer_span piece, tokenizer_parting *p, tokenizer_spans *to) {
    size_t at = 0, search = 0;
    regex_span hit;
    int result;
    room->bytes += (double)piece.n;
    while ((result = regex_find(step->code, room, s + piece.at, piece.n, search, &hit)) == REGEX_FOUND) {
        tokenizer_span before = {piece.at + at, hit.from - at};
        tokenizer_span match = {piece.at + hit.from, hit.to - hit.from};
        if ((before.n && !tokenizer_part(step, p, before, 0, to)) || !tokenizer_part(step, p, match, 1, to))
            return REGEX_MEMORY;
        at = hit.to;
        search = hit.to > hit.from ? at : at < piece.n ? regex_next(s + piece.at, at, piece.n) : piece.n + 1;
        if (search > piece.n) break;
    }
    tokenizer_span rest = {piece.at + at, piece.n - at};
    if (result > REGEX_FOUND) return result;
    return rest.n && !tokenizer_part(step, p, rest, 0, to) ? REGEX_MEMORY : REGEX_NONE;
}

/* Splits every piece of `from` by a pattern; bytes that are no UTF-8 match nothing, and nothing across. */
static inline int tokenizer_split_regex(const tokenizer_step *step, tokenizer_work *w, const char *s,
                                        const tokenizer_spans *from, tokenizer_spans *to) {
    int result = REGEX_NONE;
    int32_t c;
    for (size_t i = 0; i < from->n; i++) {
        size_t at = from->at[i].at, stop = at + from->at[i].n, end, bad;
        tokenizer_parting p = {at, -1};
        for (; at < stop && !result; at = bad) {
            for (end = at, c = 0; end < stop && c >= 0;) {
                size_t length = tokenizer_char(s + end, stop - end, &c);
                if (c >= 0) end += length;
            }
            for (bad = end, c = -1; bad < stop && c < 0;) {
                tokenizer_char(s + bad, stop - bad, &c);
                bad += c < 0;
            }
            tokenizer_span valid = {at, end - at}, other = {end, bad - end};
            if (valid.n) result = tokenizer_part_regex(step, &w->regex, s, valid, &p, to);
            if (!result && other.n && !tokenizer_part(step, &p, other, 0, to)) result = REGEX_MEMORY;
        }
        if (result) return result;
        if (p.before >= 0 && !tokenizer_put_span(to, p.begin, stop - p.begin)) return REGEX_MEMORY;
    }
    return REGEX_NONE;
}
#endif

/* Splits every piece of `from` and puts what comes out into `to`. */
static inline int tokenizer_split(const tokenizer_step *step, const char *s, const tokenizer_spans *from,
                                  tokenizer_spans *to) {
    for (size_t i = 0; i < from->n; i++) {
        size_t at = from->at[i].at, stop = at + from->at[i].n;
        tokenizer_parting p = {at, -1};
        while (at < stop) {
            int matches;
            tokenizer_span stretch = {at, tokenizer_stretch(step, s + at, stop - at, &matches)};
            if (!tokenizer_part(step, &p, stretch, matches, to)) return 0;
            at += stretch.n;
        }
        if (p.before >= 0 && !tokenizer_put_span(to, p.begin, stop - p.begin)) return 0;
    }
    return 1;
}

/* The same by whatever step it is, with the error line. */
static inline int tokenizer_split_by(const tokenizer_step *step, tokenizer_work *w, const char *s,
                                     const tokenizer_spans *from, tokenizer_spans *to, char *error) {
#ifdef WITH_PCRE2
    if (step->kind == TOKENIZER_REGEX) {
        int result = tokenizer_split_regex(step, w, s, from, to);
        if (result == REGEX_LONG)
            return tokenizer_fail(error, "the pattern %.200s takes too long on this text", step->from);
        return !result || tokenizer_no_memory(error);
    }
#else
    (void)w;
#endif
    return tokenizer_split(step, s, from, to) || tokenizer_no_memory(error);
}

/* Writes every piece of `from` anew: with a blank in front, or with a sign for each blank and perhaps one in
   front. A piece that goes on where another ended gets nothing in front. */
static inline int tokenizer_rewrite(const tokenizer_step *step, const char *s, const tokenizer_spans *from,
                                    tokenizer_bytes *out, tokenizer_spans *to, int first, int goes_on) {
    tokenizer_step blank = *step;
    const char *front = step->kind == TOKENIZER_BYTES ? " " : step->to;
    size_t n_front = strlen(front);
    char one[] = " ";
    blank.from = one, blank.n_from = 1;
    for (size_t i = 0; i < from->n; i++) {
        const char *p = s + from->at[i].at;
        size_t n = from->at[i].n, begin = out->n;
        int already = *p == ' ' || (n >= n_front && !memcmp(p, front, n_front));
        int wanted =
            !already && !(goes_on && !i) && (step->a == 2 || (step->a == 1 && first && !from->at[i].at));
        if ((wanted && !tokenizer_put(out, front, n_front)) ||
            (step->kind == TOKENIZER_BYTES ? !tokenizer_put(out, p, n)
                                           : !tokenizer_put_replaced(out, p, n, &blank)) ||
            !tokenizer_put_span(to, begin, out->n - begin))
            return 0;
    }
    return 1;
}

/* Splits a normalized text into pieces and encodes each. */
static inline int tokenizer_pieces(const tokenizer *t, tokenizer_work *w, const char *s, size_t n,
                                   const tokenizer_place *place, tokenizer_ids *ids, char *error) {
    tokenizer_spans *from = &w->spans[0], *to = &w->spans[1], *swap;
    int turn = 2, goes_on = place->goes_on, done;
    from->n = 0;
    if (!tokenizer_put_span(from, 0, n)) return tokenizer_no_memory(error);
    for (int i = 0; i < t->n_pre; i++) {
        const tokenizer_step *step = &t->pre[i];
        tokenizer_step split = *step;
        if (step->kind == TOKENIZER_METASPACE || (step->kind == TOKENIZER_BYTES && step->a)) {
            w->text[turn].n = to->n = 0;
            if (!tokenizer_put(&w->text[turn], "", 0) ||
                !tokenizer_rewrite(step, s, from, &w->text[turn], to, place->first, goes_on))
                return tokenizer_no_memory(error);
            s = w->text[turn].at, turn = 5 - turn;
            swap = from, from = to, to = swap;
        }
        if (step->kind <= TOKENIZER_METASPACE && !step->b) continue;
        if (step->kind == TOKENIZER_BYTES) split.kind = TOKENIZER_PATTERN, split.a = split.b = split.c = 0;
        if (step->kind == TOKENIZER_METASPACE) {
            split.kind = TOKENIZER_TEXT, split.a = TOKENIZER_TO_RIGHT, split.b = 0;
            split.from = step->to, split.n_from = step->n_to;
        }
        to->n = 0, goes_on = 0;
        if (!tokenizer_split_by(&split, w, s, from, to, error)) return 0;
        swap = from, from = to, to = swap;
    }
    for (size_t i = 0; i < from->n; i++)
        if (!(done = tokenizer_piece(t, w, s + from->at[i].at, from->at[i].n, ids, error))) return 0;
    return 1;
}

/* ---- Texts with added tokens ---- */

/* A stretch of a text: an added token, or -1 for what lies between. */
typedef struct tokenizer_segment { size_t at, n; int added; } tokenizer_segment;

/* The next added token in s from `from` on that is to be found; its stretch with the blanks that it takes
   along. 0 if there is none. */
static inline int tokenizer_next_added(const tokenizer *t, tokenizer_hits *hits, const char *s, size_t n,
                                       size_t from, int plain, tokenizer_segment *found) {
    size_t at = from, i, end, length, start = from;
    const tokenizer_hit *next;
    int32_t c;
    for (; (next = tokenizer_next_hit(hits, at)) != NULL; at = end) { /* on behind a hit, taken or not */
        const tokenizer_added *a = &t->added[next->id];
        int hit = next->id;
        i = next->at, end = i + a->n_found;
        if (plain && a->special) continue;
        if (a->word) {
            size_t before = i;
            c = hits->behind;
            while (before > 0 && ((unsigned char)s[--before] & 0xC0) == 0x80) {}
            if (i) tokenizer_char(s + before, i - before, &c);
            if (tokenizer_wordly(c)) continue;
            c = ' ';
            if (end < n) tokenizer_char(s + end, n - end, &c);
            if (tokenizer_wordly(c)) continue;
        }
        for (start = i; a->left && start > from; start = i) { /* as far as the blanks in front go */
            for (i = start - 1; i > from && ((unsigned char)s[i] & 0xC0) == 0x80; i--) {}
            length = tokenizer_char(s + i, start - i, &c);
            if (!tokenizer_space(c) || i + length < start) break;
        }
        for (; a->right && end < n; end += length) {
            length = tokenizer_char(s + end, n - end, &c);
            if (!tokenizer_space(c)) break;
        }
        hits->n--;
        found->at = start, found->n = end - start, found->added = hit;
        return 1;
    }
    return 0;
}

/* Encodes what lies between added tokens that are found in the raw text. */
static inline int tokenizer_between(const tokenizer *t, tokenizer_work *w, const char *s, size_t n,
                                    const tokenizer_place *where, int plain, tokenizer_ids *ids,
                                    char *error) {
    tokenizer_place place = *where;
    tokenizer_segment hit;
    size_t at = 0;
    if (!n) return 1;
    if (!tokenizer_normalize(t, w, &s, &n, &place, error)) return 0;
    if (!tokenizer_find_all(&t->found_later, s, n, &w->later)) return tokenizer_no_memory(error);
    while (tokenizer_next_added(t, &w->later, s, n, at, plain, &hit)) {
        if ((hit.at > at && !tokenizer_pieces(t, w, s + at, hit.at - at, &place, ids, error))) return 0;
        if (!tokenizer_put_id(ids, t->added[hit.added].id)) return tokenizer_no_memory(error);
        place.first = place.goes_on = 0, at = hit.at + hit.n;
    }
    return at == n || tokenizer_pieces(t, w, s + at, n - at, &place, ids, error);
}

/* ---- Encoding ---- */

/* A text that comes piece by piece: its ids are those of the whole. Between calls it holds the part behind
   the last place where a cut changes nothing, which is before a blank or a line end behind a letter or
   figure: some 64 KB, more of a text without such places. */
typedef struct tokenizer_stream {
    const tokenizer *t;
    tokenizer_bytes text;
    tokenizer_work work;
    size_t wait; /* bytes of text before a cut is looked for again */
    int special, fronted, begun, goes_on;
} tokenizer_stream;

static inline void tokenizer_stream_close(tokenizer_stream *s) {
    free(s->text.at);
    tokenizer_work_close(&s->work);
    memset(s, 0, sizeof *s);
}

/* Begins a text. special: 0, or a sum of TOKENIZER_TEMPLATE and TOKENIZER_PLAIN. Nothing is allocated yet. */
static inline void tokenizer_stream_open(tokenizer_stream *s, const tokenizer *t, int special) {
    memset(s, 0, sizeof *s);
    s->t = t, s->special = special, s->wait = TOKENIZER_CHUNK;
}

static inline int tokenizer_may_cut(const tokenizer *t, const char *s) {
    char c = s[-1];
    return ((*s == ' ' && t->cuts & 1) || (*s == '\n' && t->cuts & 2)) &&
           ((c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z'));
}

/* Encodes the text that waits; all of it at its end, otherwise up to the last place where a cut changes
   nothing. Added tokens are looked for in all of it, so that none is cut. */
static inline int tokenizer_stream_run(tokenizer_stream *s, int last, tokenizer_ids *ids, char *error) {
    const tokenizer *t = s->t;
    const char *text = s->text.at;
    int plain = s->special & TOKENIZER_PLAIN, done = 1, open = 0;
    size_t n = s->text.n, at = 0, guard = t->longest_added + 64;
    if (!s->work.cache && n >= TOKENIZER_CHUNK / 8) /* without it, it only takes longer */
        s->work.cache = (tokenizer_cached *)calloc(TOKENIZER_CACHE, sizeof *s->work.cache);
    if (!tokenizer_find_all(&t->found, text, n, &s->work.added)) return tokenizer_no_memory(error);
    while (done && !open && at < n) {
        tokenizer_place place;
        tokenizer_segment hit = {0, 0, -1};
        int found = tokenizer_next_added(t, &s->work.added, text, n, at, plain, &hit);
        size_t stop = found ? hit.at : n;
        open = !last && (!found || hit.at + hit.n + guard > n); /* what follows could change it */
        if (open) {
            if (stop + guard > n) stop = n > guard ? n - guard : 0;
            while (stop > at + 1 && !tokenizer_may_cut(t, text + stop)) stop--;
            if (stop <= at + 1) break;
        }
        place.first = !s->begun, place.goes_on = s->goes_on, place.unfinished = open;
        done = tokenizer_between(t, &s->work, text + at, stop - at, &place, plain, ids, error);
        at = stop, s->begun = 1, s->goes_on = open;
        if (!done || open || !found) continue;
        done = tokenizer_put_id(ids, t->added[hit.added].id) || tokenizer_no_memory(error);
        at = hit.at + hit.n;
    }
    if (at) {
        size_t before = at;
        while (--before > 0 && ((unsigned char)text[before] & 0xC0) == 0x80) {}
        tokenizer_char(text + before, at - before, &s->work.added.behind);
        memmove(s->text.at, s->text.at + at, n - at);
    }
    s->text.n = n - at;
    s->wait = s->text.n < TOKENIZER_CHUNK / 2 ? (size_t)TOKENIZER_CHUNK : 2 * s->text.n;
    return done;
}

/* Appends what the template adds in front, once. */
static inline int tokenizer_stream_begin(tokenizer_stream *s, tokenizer_ids *ids, char *error) {
    if (s->fronted || !(s->special & TOKENIZER_TEMPLATE)) return 1;
    s->fronted = 1;
    return tokenizer_put_ids(ids, &s->t->before) || tokenizer_no_memory(error);
}

/* Goes on with n bytes of text; appends what can be said of its ids. */
static inline int tokenizer_stream_put(tokenizer_stream *s, const char *text, size_t n, tokenizer_ids *ids,
                                       char *error) {
    if (!tokenizer_stream_begin(s, ids, error)) return 0;
    while (n) {
        size_t part = s->wait > s->text.n ? s->wait - s->text.n : 1;
        if (part > n) part = n;
        if (!tokenizer_put(&s->text, text, part)) return tokenizer_no_memory(error);
        text += part, n -= part;
        if (s->text.n < s->wait) continue;
        if (!tokenizer_stream_run(s, 0, ids, error)) return 0;
    }
    return 1;
}

/* Ends the text; the next tokenizer_stream_put begins another one. */
static inline int tokenizer_stream_end(tokenizer_stream *s, tokenizer_ids *ids, char *error) {
    int done = tokenizer_stream_begin(s, ids, error) && tokenizer_stream_run(s, 1, ids, error);
    if (done && s->special & TOKENIZER_TEMPLATE)
        done = tokenizer_put_ids(ids, &s->t->after) || tokenizer_no_memory(error);
    s->begun = s->goes_on = s->fronted = 0, s->work.added.behind = 0;
    return done;
}

/* Appends the ids of a text of any n bytes. special: 0, or a sum of TOKENIZER_TEMPLATE (what the template
   adds in front and behind: <s>, [CLS] .. [SEP]) and TOKENIZER_PLAIN. */
static inline int tokenizer_encode(const tokenizer *t, const char *text, size_t n, int special,
                                   tokenizer_ids *ids, char *error) {
    tokenizer_stream s;
    int done;
    tokenizer_stream_open(&s, t, special);
    done = tokenizer_stream_put(&s, text, n, ids, error) && tokenizer_stream_end(&s, ids, error);
    tokenizer_stream_close(&s);
    return done;
}

/* ---- Texts in a template, cut and filled up ---- */

/* One text, or two that a model reads together; b = NULL: one */
typedef struct tokenizer_texts { const char *a, *b; size_t n_a, n_b; } tokenizer_texts;

/* Keeps the first or, from the left, the last `most` ids. */
static inline void tokenizer_keep(tokenizer_ids *ids, size_t most, int left) {
    if (ids->n <= most) return;
    if (left && most) memmove(ids->at, ids->at + ids->n - most, most * sizeof *ids->at);
    ids->n = most;
}

/* Cuts one or two texts so that with `added` tokens they are as many as the file allows. Of the longest
   first: both keep the same, unless the shorter one has less. */
static inline int tokenizer_cut(const tokenizer_fit *f, tokenizer_ids *part, int texts, size_t added,
                                char *error) {
    size_t total = part[0].n + part[1].n, room = f->most - added, less, more;
    tokenizer_ids *one = &part[f->which == TOKENIZER_ONLY_SECOND];
    int second = part[0].n > part[1].n; /* the second text is the shorter one */
    if (added > f->most)
        return tokenizer_fail(error, "truncation to %zu tokens, but the template adds %zu", f->most, added);
    if (total <= room) return 1;
    if (f->which == TOKENIZER_ONLY_SECOND && texts < 2)
        return tokenizer_fail(error, "truncation is of the second text, which there is not");
    if (texts == 2 && f->which == TOKENIZER_LONGEST) {
        less = part[second].n, more = less > room ? less : room - less;
        if (more < less) more = less;
        if (less + more > room) less = room / 2, more = less + room % 2;
        tokenizer_keep(&part[second], less, f->cut_left), tokenizer_keep(&part[!second], more, f->cut_left);
        return 1;
    }
    if (texts == 2 && one->n <= total - room)
        return tokenizer_fail(error, "truncation to %zu tokens: the text to be cut has only %zu of %zu",
                              f->most, one->n, total + added);
    tokenizer_keep(one, one->n - (total - room), f->cut_left);
    return 1;
}

/* Fills a text up that begins at `begin`. */
static inline int tokenizer_fill(const tokenizer *t, tokenizer_ids *ids, size_t begin, int32_t with) {
    size_t n = ids->n - begin, most = n > t->fit.least ? n : t->fit.least, more;
    if (t->fit.multiple) most = (most + t->fit.multiple - 1) / t->fit.multiple * t->fit.multiple;
    more = most - n;
    for (size_t i = 0; i < more; i++)
        if (!tokenizer_put_id(ids, with)) return 0;
    if (!t->fit.fill_left || !more) return 1;
    memmove(ids->at + begin + more, ids->at + begin, n * sizeof *ids->at);
    for (size_t i = 0; i < more; i++) ids->at[begin + i] = with;
    return 1;
}

/* Puts the texts, and with `special` the tokens, where a template has them. */
static inline int tokenizer_lay_out(const tokenizer_template *from, const tokenizer_ids *part, int special,
                                    tokenizer_ids *ids, tokenizer_ids *types) {
    for (size_t i = 0; i < from->n; i++) {
        const tokenizer_item *item = from->at + i;
        size_t n = ids->n;
        if (item->text ? !tokenizer_put_ids(ids, &part[item->text - 1])
                       : special && !tokenizer_put_id(ids, item->id))
            return 0;
        for (; n < ids->n; n++)
            if (!tokenizer_put_id(types, item->type)) return 0;
    }
    return 1;
}

/* Appends the ids of a text or a pair, and the type of each. special: a sum of TOKENIZER_TEMPLATE (what the
   file's template of one text or of two adds), TOKENIZER_PLAIN and TOKENIZER_FIT (cut as the file's
   `truncation` says, filled up as its `padding` says; an error where that cannot be). Types are those of the
   template, without one 0 and 1. */
static inline int tokenizer_encode_texts(const tokenizer *t, const tokenizer_texts *texts, int special,
                                         tokenizer_ids *ids, tokenizer_ids *types, char *error) {
    tokenizer_item plain[] = {{-1, 0, 1}, {-1, 1, 2}};
    tokenizer_template from = texts->b ? t->pair : t->single;
    tokenizer_ids part[2] = {{NULL, 0, 0}, {NULL, 0, 0}};
    size_t added = 0, begin = ids->n, begin_types = types->n;
    int fit = special & TOKENIZER_FIT, done;
    if (!from.n) from.at = plain, from.n = texts->b ? 2 : 1;
    for (size_t i = 0; i < from.n; i++) added += special & TOKENIZER_TEMPLATE && !from.at[i].text;
    done = tokenizer_encode(t, texts->a, texts->n_a, special & TOKENIZER_PLAIN, &part[0], error);
    if (done && texts->b)
        done = tokenizer_encode(t, texts->b, texts->n_b, special & TOKENIZER_PLAIN, &part[1], error);
    if (done && fit && t->fit.cuts) done = tokenizer_cut(&t->fit, part, texts->b ? 2 : 1, added, error);
    if (done && fit && t->fit.fills && (size_t)t->fit.pad >= t->size)
        done = tokenizer_fail(error, "padding is with the token %ld, which there is not", (long)t->fit.pad);
    if (done && !tokenizer_lay_out(&from, part, special & TOKENIZER_TEMPLATE, ids, types))
        done = tokenizer_no_memory(error);
    if (done && fit && t->fit.fills &&
        (!tokenizer_fill(t, ids, begin, t->fit.pad) ||
         !tokenizer_fill(t, types, begin_types, t->fit.pad_type)))
        done = tokenizer_no_memory(error);
    tokenizer_ids_free(&part[0]), tokenizer_ids_free(&part[1]);
    return done;
}

/* ---- Decoding ---- */

enum { TOKENIZER_FROM_BYTES, TOKENIZER_FROM_FALLBACK, TOKENIZER_FUSE, TOKENIZER_CUT, TOKENIZER_EXCHANGE,
       TOKENIZER_FROM_WORDPIECE, TOKENIZER_FROM_METASPACE, TOKENIZER_FROM_BPE };

/* Where in a text of tokens one stands; zeroed before the first. */
typedef struct tokenizer_decoder {
    int skip_special; /* set it to leave special tokens out */
    char kept[4];     /* the first bytes of a character */
    int n_kept, begun, cut, blank;
} tokenizer_decoder;

/* Replaces in s, n bytes with room for what comes out; returns how many there are then. What grows is moved
   to the end of that room first, so that writing never overtakes reading. */
static inline size_t tokenizer_exchange(char *s, size_t n, const tokenizer_step *step) {
    size_t hits = 0, at = 0, more = 0, out = 0;
    while (at + step->n_from <= n) {
        int hit = !memcmp(s + at, step->from, step->n_from);
        hits += (size_t)hit;
        at += hit ? step->n_from : 1;
    }
    if (step->n_to > step->n_from) more = hits * (step->n_to - step->n_from);
    memmove(s + more, s, n);
    for (at = more; at < more + n;) {
        if (at + step->n_from > more + n || memcmp(s + at, step->from, step->n_from)) {
            s[out++] = s[at++];
            continue;
        }
        at += step->n_from;
        memcpy(s + out, step->to, step->n_to);
        out += step->n_to;
    }
    return out;
}

/* The most bytes that n become in a decoder. tokenizer_decode_step keeps to it. */
static inline size_t tokenizer_grown(const tokenizer_step *step, size_t n) {
    int exchanges = step->kind == TOKENIZER_EXCHANGE || step->kind == TOKENIZER_FROM_METASPACE;
    if (step->kind == TOKENIZER_FROM_WORDPIECE || step->kind == TOKENIZER_FROM_BPE) return n + 1;
    if (!exchanges || step->n_to <= step->n_from) return n;
    return n + n / step->n_from * (step->n_to - step->n_from);
}

/* Does WordPiece's clean-up take the blank away that stood before this? */
static inline int tokenizer_clings(const char *s, size_t n) {
    static const char *const clings[] = {".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re"};
    for (size_t i = 0; i < sizeof clings / sizeof *clings; i++)
        if (n >= strlen(clings[i]) && !memcmp(s, clings[i], strlen(clings[i]))) return 1;
    return 0;
}

static inline int tokenizer_hex(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

/* The text of one token at s, n bytes, goes through one decoder; returns how many bytes there are then. */
static inline size_t tokenizer_decode_step(const tokenizer_step *step, tokenizer_decoder *d, char *s,
                                           size_t n, int fused) {
    size_t cut, front = 0;
    switch (step->kind) {
    case TOKENIZER_FROM_FALLBACK:
        if (n == 6 && !memcmp(s, "<0x", 3) && s[5] == '>' && tokenizer_hex(s[3]) >= 0 &&
            tokenizer_hex(s[4]) >= 0)
            return *s = (char)(tokenizer_hex(s[3]) * 16 + tokenizer_hex(s[4])), 1;
        return n;
    case TOKENIZER_CUT: /* up to a characters in front, of the whole text or of each token; up to b behind */
        cut = fused ? (size_t)d->cut : 0;
        while ((int)cut < step->a && n - front >= step->n_from &&
               !memcmp(s + front, step->from, step->n_from)) {
            front += step->n_from;
            cut++;
        }
        n -= front;
        memmove(s, s + front, n);
        if (fused) d->cut = n ? step->a : (int)cut;
        for (cut = 0; !fused && (int)cut < step->b && n >= step->n_from &&
                      !memcmp(s + n - step->n_from, step->from, step->n_from); cut++) n -= step->n_from;
        return n;
    case TOKENIZER_EXCHANGE: return tokenizer_exchange(s, n, step);
    case TOKENIZER_FROM_METASPACE:
        if (!d->begun && step->a) {
            tokenizer_step nothing = *step;
            nothing.n_to = 0;
            return tokenizer_exchange(s, n, &nothing);
        }
        return tokenizer_exchange(s, n, step);
    case TOKENIZER_FROM_WORDPIECE:
        if (!d->begun) return n;
        if (n >= step->n_from && !memcmp(s, step->from, step->n_from))
            return n -= step->n_from, memmove(s, s + step->n_from, n), n;
        if (step->a && tokenizer_clings(s, n)) return n;
        return memmove(s + 1, s, n), *s = ' ', n + 1;
    case TOKENIZER_FROM_BPE: /* the blank of a word's end comes with the next token */
        cut = (size_t)d->blank;
        memmove(s + cut, s, n), n += cut;
        if (cut) *s = ' ';
        d->blank = n >= step->n_from + cut && !memcmp(s + n - step->n_from, step->from, step->n_from);
        return d->blank ? n - step->n_from : n;
    default: return n;
    }
}

/* How many bytes at the end of s may be the beginning of a character. */
static inline size_t tokenizer_unfinished(const char *s, size_t n) {
    for (size_t i = 1; i <= 3 && i <= n; i++) {
        unsigned char u = (unsigned char)s[n - i];
        if ((u & 0xC0) == 0x80) continue;
        return (u >= 0xF0 && u < 0xF5 && i < 4) || (u >= 0xE0 && u < 0xF0 && i < 3) ||
                       (u >= 0xC2 && u < 0xE0 && i < 2)
                   ? i
                   : 0;
    }
    return 0;
}

/* Writes the bytes that a token adds to the text, at most t->longest + 8, and returns how many; a character
   whose last bytes are still to come waits for them. An id that is no token's adds nothing. */
static inline size_t tokenizer_decode(const tokenizer *t, tokenizer_decoder *d, int32_t id, char *out) {
    size_t n, kept = (size_t)d->n_kept, rest;
    char *s = out + kept;
    int fused = 0;
    if (id < 0 || (size_t)id >= t->size || !(t->flags[id] & TOKENIZER_THERE)) return 0;
    if (d->skip_special && t->flags[id] & TOKENIZER_SPECIAL) return 0;
    memcpy(out, d->kept, kept);
    n = tokenizer_length(t, id);
    memcpy(s, t->bytes + t->begin[id], n);
    for (int i = 0; i < t->n_decode; i++) {
        if (t->decode[i].kind == TOKENIZER_FUSE) fused = 1;
        n = tokenizer_decode_step(&t->decode[i], d, s, n, fused);
    }
    if (!t->n_decode && d->begun)
        memmove(s + 1, s, n), *s = ' ', n++; /* no decoder: tokens with blanks between */
    d->begun = 1;
    rest = tokenizer_unfinished(out, n += kept);
    memcpy(d->kept, out + n - rest, rest), d->n_kept = (int)rest;
    return n - rest;
}

/* Ends a text: writes the bytes that waited for the rest of their character, at most 3. */
static inline size_t tokenizer_decode_end(tokenizer_decoder *d, char *out) {
    size_t n = (size_t)d->n_kept;
    int skip = d->skip_special;
    memcpy(out, d->kept, n);
    memset(d, 0, sizeof *d), d->skip_special = skip;
    return n;
}

/* ---- From JSON: steps ---- */

static inline const cJSON *tokenizer_field(const cJSON *node, const char *name) {
    return cJSON_GetObjectItemCaseSensitive(node, name);
}

static inline const char *tokenizer_string(const cJSON *node, const char *name) {
    return cJSON_GetStringValue(tokenizer_field(node, name));
}

static inline int tokenizer_flag(const cJSON *node, const char *name, int otherwise) {
    const cJSON *field = tokenizer_field(node, name);
    return cJSON_IsBool(field) ? cJSON_IsTrue(field) : otherwise;
}

/* A whole number of 0 or more that an id or size can be; -1 where it is none. */
static inline int32_t tokenizer_whole(const cJSON *field) {
    double x = cJSON_IsNumber(field) ? field->valuedouble : -1;
    return x >= 0 && x < 2147483647 && x == (double)(int32_t)x ? (int32_t)x : -1;
}

/* A type of step, what it is here, and its fields, each with a blank behind; another field is refused. */
typedef struct tokenizer_row { const char *type; int kind; const char *fields; } tokenizer_row;

enum { TOKENIZER_NONE = -2, TOKENIZER_SEQUENCE = -1 };

/* Is the name in a list of names, each with a blank behind? */
static inline int tokenizer_listed(const char *names, const char *name) {
    const size_t n = strlen(name);
    const char *at = n ? strstr(names, name) : NULL;
    for (; at; at = strstr(at + 1, name))
        if (at[n] == ' ' && (at == names || at[-1] == ' ')) return 1;
    return 0;
}

/* Checks the fields of a node, `what` and its type, which may be empty: all are among `fields` and, where a
   name is that of a flag or a text wherever it stands, are that; null counts as absent. */
static inline int tokenizer_check_fields(const cJSON *node, const char *what, const char *type,
                                         const char *fields, char *error) {
    static const char flags[] =
        "add_prefix_space byte_fallback clean_text cleanup fuse_unk handle_chinese_chars ignore_merges "
        "individual_digits invert longest lowercase lstrip merges_tie normalized rstrip single_word special "
        "split strip_accents strip_left strip_right trim_offsets use_regex ";
    static const char texts[] =
        "behavior content continuing_subword_prefix delimiter end_of_word_suffix precompiled_charsmap prefix "
        "prepend prepend_scheme replacement str_rep suffix type unk_token ";
    for (const cJSON *field = node->child; field; field = field->next) {
        const char *name = field->string ? field->string : "without a name", *fault = NULL; /* of a list */
        if (!field->string) fault = "is not known";
        else if (cJSON_IsNull(field)) continue;
        else if (!tokenizer_listed(fields, name)) fault = "is not known";
        else if (tokenizer_listed(flags, name) && !cJSON_IsBool(field)) fault = "is neither true nor false";
        else if (tokenizer_listed(texts, name) && !cJSON_IsString(field)) fault = "is no text";
        if (!fault) continue;
        return tokenizer_fail(error, "%s%s%s: the field %.100s %s", what, *type ? " " : "", type, name,
                              fault);
    }
    return 1;
}

static inline int tokenizer_set_text(char **text, size_t *n, const char *s) {
    free(*text);
    *n = strlen(s), *text = tokenizer_copy(s, *n);
    return *text != NULL;
}

/* The index of a string in a list that ends with NULL; -1. */
static inline int tokenizer_among(const char *s, const char *const *names) {
    for (int i = 0; s && names[i]; i++)
        if (!strcmp(s, names[i])) return i;
    return -1;
}

/* Base64 in place; the number of bytes, or -1. */
static inline long tokenizer_base64(char *s) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    long n = 0;
    uint32_t bits = 0;
    int have = 0;
    for (const char *at = s; *at && *at != '='; at++) {
        const char *letter = strchr(letters, *at);
        if (!letter) return -1;
        bits = bits << 6 | (uint32_t)(letter - letters), have += 6;
        if (have >= 8) s[n++] = (char)(bits >> (have -= 8) & 0xFF);
    }
    return n;
}

static inline int tokenizer_read_charsmap(tokenizer_step *step, const char *text, char *error) {
    long n;
    uint32_t size = 0;
    if (!tokenizer_set_text(&step->from, &step->n_from, text)) return tokenizer_no_memory(error);
    n = tokenizer_base64(step->from), step->n_from = n < 0 ? 0 : (size_t)n;
    for (int k = 3; n >= 4 && k >= 0; k--) size = size << 8 | (unsigned char)step->from[k];
    if (n < 0 || (n && (n < 4 || size % 4 || size > (size_t)n - 4)))
        return tokenizer_fail(error, "the charsmap of normalizer Precompiled is damaged");
    if (n) step->from[n] = 0;
    for (size_t at = 4 + (size_t)size, begin = at; at < (size_t)n; at++) {
        if (!step->from[at]) begin = at + 1;
        else if (at - begin >= TOKENIZER_ENTRY)
            return tokenizer_fail(error, "the charsmap of normalizer Precompiled has a text of over %d bytes",
                                  TOKENIZER_ENTRY);
    }
    step->a = (int)(size / 4);
    if (!(step->to = (char *)malloc(128))) return tokenizer_no_memory(error); /* which of ASCII stays */
    for (int c = 0; c < 128; c++) {
        char one = (char)c;
        size_t used;
        step->to[c] = c != '\r' && !tokenizer_precompiled(step, &one, 1, &used);
    }
    return 1;
}

/* Split's pattern: a text, or a regular expression that is known by its own text. */
static inline int tokenizer_read_pattern(tokenizer_step *step, const cJSON *node, char *error) {
    const cJSON *pattern = tokenizer_field(node, "pattern");
    const char *text = tokenizer_string(pattern, "String"), *regex = tokenizer_string(pattern, "Regex");
    size_t n;
    const tokenizer_pattern *known = tokenizer_patterns(&n);
    if (text && *text)
        return step->kind = TOKENIZER_TEXT,
               tokenizer_set_text(&step->from, &step->n_from, text) || tokenizer_no_memory(error);
    for (size_t i = 0; regex && i < n; i++)
        if (!strcmp(regex, known[i].text)) return step->kind = TOKENIZER_PATTERN, step->c = known[i].how, 1;
    if (regex && (!strcmp(regex, "\\s") || !strcmp(regex, "\\d") || !strcmp(regex, "\\p{N}")))
        return step->kind = regex[1] == 's' ? TOKENIZER_SPACES : TOKENIZER_NUMBERS, 1;
    if (!regex || !*regex) return tokenizer_fail(error, "pre-tokenizer Split: there is no pattern");
    step->kind = TOKENIZER_REGEX;
#ifdef WITH_PCRE2
    char why[256];
    if (!tokenizer_set_text(&step->from, &step->n_from, regex)) return tokenizer_no_memory(error);
    step->code = regex_compile(regex, why, sizeof why);
    return step->code || tokenizer_fail(error, "pre-tokenizer Split: %.200s: %.200s", why, regex);
#else
    return tokenizer_fail(error, "pre-tokenizer Split: the pattern %.200s is not known; " REGEX_MISSING,
                          regex);
#endif
}

/* Fills a step of a known kind from its fields. */
static inline int tokenizer_fill_normalizer(tokenizer_step *step, const cJSON *node, char *error) {
    const cJSON *pattern = tokenizer_field(node, "pattern");
    const char *text;
    switch (step->kind) {
    case TOKENIZER_STRIP:
        step->a = tokenizer_flag(node, "strip_left", 1), step->b = tokenizer_flag(node, "strip_right", 1);
        return 1;
    case TOKENIZER_BERT:
        step->a = tokenizer_flag(node, "clean_text", 1),
        step->b = tokenizer_flag(node, "handle_chinese_chars", 1);
        step->d = tokenizer_flag(node, "lowercase", 1),
        step->c = tokenizer_flag(node, "strip_accents", step->d);
        return 1;
    case TOKENIZER_PREPEND:
        if (!(text = tokenizer_string(node, "prepend")))
            return tokenizer_fail(error, "normalizer Prepend: no text");
        return tokenizer_set_text(&step->to, &step->n_to, text) || tokenizer_no_memory(error);
    case TOKENIZER_REPLACE:
        text = tokenizer_string(pattern, "Regex");
        step->a = text && !strcmp(text, "\\s+");
        if (step->a || (text && !strcmp(text, " {2,}"))) step->kind = TOKENIZER_REPLACE_BLANKS;
        else if (text)
            return tokenizer_fail(error, "normalizer Replace: the pattern %.300s is not known", text);
        else if (!(text = tokenizer_string(pattern, "String")) || !*text)
            return tokenizer_fail(error, "normalizer Replace: no pattern");
        if (!tokenizer_string(node, "content"))
            return tokenizer_fail(error, "normalizer Replace: no content");
        return (tokenizer_set_text(&step->from, &step->n_from, text) &&
                tokenizer_set_text(&step->to, &step->n_to, tokenizer_string(node, "content"))) ||
               tokenizer_no_memory(error);
    case TOKENIZER_PRECOMPILED:
        step->b = tokenizer_flag(node, "longest", 0); /* ours: SentencePiece's own way */
        text = tokenizer_string(node, "precompiled_charsmap");
        return tokenizer_read_charsmap(step, text ? text : "", error);
    default: return 1;
    }
}

/* When a Metaspace puts a blank in front of a text: 0 never, 1 at the first, 2 always; -1 with a line. */
static inline int tokenizer_prepends(const cJSON *node, char *error) {
    static const char *const schemes[] = {"never", "first", "always", NULL};
    const char *scheme = tokenizer_string(node, "prepend_scheme");
    const int adds = tokenizer_flag(node, "add_prefix_space", 1), which = tokenizer_among(scheme, schemes);
    if (!scheme) return adds ? 2 : 0;
    if (which > 0 && !adds)
        return tokenizer_fail(error, "Metaspace: prepend_scheme is %s, but add_prefix_space is false",
                              scheme) - 1;
    if (which < 0) tokenizer_fail(error, "Metaspace: the prepend_scheme %.100s is not known", scheme);
    return which;
}

static inline int tokenizer_fill_pre_tokenizer(tokenizer_step *step, const cJSON *node, char *error) {
    static const char *const behaviours[] = {"isolated",         "removed",    "merged_with_previous",
                                             "merged_with_next", "contiguous", NULL};
    static const char *const behaviours_too[] = {"Isolated",       "Removed",    "MergedWithPrevious",
                                                 "MergedWithNext", "Contiguous", NULL};
    const char *text = tokenizer_string(node, "behavior");
    int behaviour = tokenizer_among(text, behaviours);
    if (behaviour < 0) behaviour = tokenizer_among(text, behaviours_too);
    if (text && behaviour < 0)
        return tokenizer_fail(error, "the behavior %.100s of a pre-tokenizer is not known", text);
    switch (step->kind) {
    case TOKENIZER_BYTES:
        step->a = tokenizer_flag(node, "add_prefix_space", 1) ? 2 : 0;
        step->b = tokenizer_flag(node, "use_regex", 1);
        return 1;
    case TOKENIZER_METASPACE:
        if ((step->a = tokenizer_prepends(node, error)) < 0) return 0;
        step->b = tokenizer_flag(node, "split", 1);
        text = tokenizer_string(node, "replacement");
        if (text && !*text) return tokenizer_fail(error, "Metaspace: no replacement");
        return tokenizer_set_text(&step->to, &step->n_to, text ? text : "\xE2\x96\x81") ||
               tokenizer_no_memory(error);
    case TOKENIZER_PATTERN:
        step->a = behaviour < 0 ? TOKENIZER_ALONE : behaviour, step->b = tokenizer_flag(node, "invert", 0);
        return tokenizer_read_pattern(step, node, error);
    case TOKENIZER_TEXT: /* CharDelimiterSplit */
        step->a = TOKENIZER_REMOVED, text = tokenizer_string(node, "delimiter");
        if (!text || !*text) return tokenizer_fail(error, "CharDelimiterSplit: no delimiter");
        return tokenizer_set_text(&step->from, &step->n_from, text) || tokenizer_no_memory(error);
    case TOKENIZER_SPACES: step->a = TOKENIZER_REMOVED; return 1;
    case TOKENIZER_SIGNS: step->a = behaviour < 0 ? TOKENIZER_ALONE : behaviour; return 1;
    case TOKENIZER_NUMBERS:
        step->a = tokenizer_flag(node, "individual_digits", 0) ? TOKENIZER_ALONE : TOKENIZER_JOINED;
        return 1;
    case TOKENIZER_WORDS: step->a = TOKENIZER_REMOVED, step->b = 1; return 1;
    default: return 1;
    }
}

static inline int tokenizer_fill_decoder(tokenizer_step *step, const cJSON *node, char *error) {
    const cJSON *first = tokenizer_field(node, "start"), *last = tokenizer_field(node, "stop");
    const char *from = NULL, *to = NULL;
    int32_t start, stop;
    switch (step->kind) {
    case TOKENIZER_FROM_WORDPIECE:
        from = tokenizer_string(node, "prefix"), from = from ? from : "##";
        step->a = tokenizer_flag(node, "cleanup", 1);
        break;
    case TOKENIZER_FROM_METASPACE:
        start = tokenizer_prepends(node, error), step->a = start > 0;
        if (start < 0) return 0;
        from = tokenizer_string(node, "replacement"), from = from ? from : "\xE2\x96\x81", to = " ";
        break;
    case TOKENIZER_FROM_BPE:
        from = tokenizer_string(node, "suffix"), from = from ? from : "</w>";
        break;
    case TOKENIZER_CUT:
        from = tokenizer_string(node, "content"), from = from ? from : " ";
        start = first ? tokenizer_whole(first) : 0, stop = last ? tokenizer_whole(last) : 0;
        if (start < 0 || stop < 0)
            return tokenizer_fail(error, "decoder Strip: start or stop is no whole number");
        step->a = start, step->b = stop;
        break;
    case TOKENIZER_EXCHANGE:
        from = tokenizer_string(tokenizer_field(node, "pattern"), "String"),
        to = tokenizer_string(node, "content");
        if (!from || !to) return tokenizer_fail(error, "decoder Replace: only texts are known as patterns");
        break;
    default: return 1;
    }
    if (!*from) return tokenizer_fail(error, "a decoder's text is empty");
    return (tokenizer_set_text(&step->from, &step->n_from, from) &&
            (!to || tokenizer_set_text(&step->to, &step->n_to, to))) || tokenizer_no_memory(error);
}

/* What normalizers, pre-tokenizers and decoders are known, how they come in a sequence and are read. */
typedef struct tokenizer_section {
    const char *name, *list;
    const tokenizer_row *rows;
    int (*fill)(tokenizer_step *, const cJSON *, char *);
} tokenizer_section;

static inline tokenizer_section tokenizer_sections(int which) {
    static const tokenizer_row normalizers[] = {
        {"Sequence", TOKENIZER_SEQUENCE, "type normalizers "},
        {"NFC", TOKENIZER_NFC, "type "},
        {"NFD", TOKENIZER_NFD, "type "},
        {"NFKC", TOKENIZER_NFKC, "type "},
        {"NFKD", TOKENIZER_NFKD, "type "},
        {"Lowercase", TOKENIZER_LOWERCASE, "type "},
        {"StripAccents", TOKENIZER_STRIP_ACCENTS, "type "},
        {"Strip", TOKENIZER_STRIP, "type strip_left strip_right "},
        {"Prepend", TOKENIZER_PREPEND, "type prepend "},
        {"Replace", TOKENIZER_REPLACE, "type pattern content "},
        {"BertNormalizer", TOKENIZER_BERT, "type clean_text handle_chinese_chars strip_accents lowercase "},
        {"Precompiled", TOKENIZER_PRECOMPILED, "type precompiled_charsmap longest "},
        {NULL, 0, NULL}};
    static const tokenizer_row pre_tokenizers[] = {
        {"Sequence", TOKENIZER_SEQUENCE, "type pretokenizers "},
        {"ByteLevel", TOKENIZER_BYTES, "type add_prefix_space trim_offsets use_regex "},
        {"Metaspace", TOKENIZER_METASPACE, "type replacement add_prefix_space prepend_scheme split str_rep "},
        {"Split", TOKENIZER_PATTERN, "type pattern behavior invert "},
        {"CharDelimiterSplit", TOKENIZER_TEXT, "type delimiter "},
        {"BertPreTokenizer", TOKENIZER_SPACES, "type "}, {"Whitespace", TOKENIZER_WORDS, "type "},
        {"WhitespaceSplit", TOKENIZER_SPACES, "type "}, {"Punctuation", TOKENIZER_SIGNS, "type behavior "},
        {"Digits", TOKENIZER_NUMBERS, "type individual_digits "}, {NULL, 0, NULL}};
    static const tokenizer_row decoders[] = {
        {"Sequence", TOKENIZER_SEQUENCE, "type decoders "},
        {"ByteLevel", TOKENIZER_FROM_BYTES, "type add_prefix_space trim_offsets use_regex "},
        {"ByteFallback", TOKENIZER_FROM_FALLBACK, "type "},
        {"Fuse", TOKENIZER_FUSE, "type "},
        {"Strip", TOKENIZER_CUT, "type content start stop "},
        {"Replace", TOKENIZER_EXCHANGE, "type pattern content "},
        {"WordPiece", TOKENIZER_FROM_WORDPIECE, "type prefix cleanup "},
        {"Metaspace", TOKENIZER_FROM_METASPACE,
         "type replacement add_prefix_space prepend_scheme split str_rep "},
        {"BPEDecoder", TOKENIZER_FROM_BPE, "type suffix "},
        {NULL, 0, NULL}};
    static const tokenizer_section sections[] = {
        {"normalizer", "normalizers", normalizers, tokenizer_fill_normalizer},
        {"pre-tokenizer", "pretokenizers", pre_tokenizers, tokenizer_fill_pre_tokenizer},
        {"decoder", "decoders", decoders, tokenizer_fill_decoder}};
    return sections[which];
}

/* Reads a step, or the steps of a sequence, behind those that are there. */
static inline int tokenizer_read_steps(int which, const cJSON *node, tokenizer_step *steps, int *n,
                                       char *error) {
    const tokenizer_section section = tokenizer_sections(which);
    const tokenizer_row *row = section.rows;
    const char *type = tokenizer_string(node, "type");
    if (!node || cJSON_IsNull(node)) return 1;
    if (!type) return tokenizer_fail(error, "a %s has no type", section.name);
    while (row->type && strcmp(row->type, type)) row++;
    if (!row->type) return tokenizer_fail(error, "%s %.100s is not known", section.name, type);
    if (!tokenizer_check_fields(node, section.name, type, row->fields, error)) return 0;
    if (row->kind == TOKENIZER_SEQUENCE) {
        const cJSON *list = tokenizer_field(node, section.list), *one;
        if (!cJSON_IsArray(list))
            return tokenizer_fail(error, "%s Sequence: %s is no list", section.name, section.list);
        cJSON_ArrayForEach(one, list) if (!tokenizer_read_steps(which, one, steps, n, error)) return 0;
        return 1;
    }
    if (*n >= TOKENIZER_STEPS - 1) return tokenizer_fail(error, "there are too many %ss", section.name);
    steps[*n].kind = row->kind;
    if (!section.fill(&steps[*n], node, error)) return (*n)++, 0;
    (*n)++;
    if (strcmp(type, "BertPreTokenizer")) return 1;
    steps[*n].kind = TOKENIZER_SIGNS,
    steps[(*n)++].a = TOKENIZER_ALONE; /* it splits at blanks, then at signs */
    return 1;
}

/* ---- From JSON: what the template adds, how texts are cut and filled up ---- */

static inline int tokenizer_put_item(tokenizer_template *to, int32_t id, int text, int32_t type) {
    void *memory = to->at;
    if (!tokenizer_room(&memory, &to->room, to->n + 1, sizeof *to->at)) return 0;
    to->at = (tokenizer_item *)memory;
    to->at[to->n].id = id, to->at[to->n].text = text, to->at[to->n++].type = type;
    return 1;
}

/* Appends the ids of a template's special token. */
static inline int tokenizer_read_special(const cJSON *tokens, const char *name, int32_t type,
                                         tokenizer_template *to, char *error) {
    const cJSON *id, *list = tokenizer_field(tokenizer_field(tokens, name), "ids");
    if (!cJSON_GetArraySize(list))
        return tokenizer_fail(error, "post-processor TemplateProcessing: %.100s has no ids", name);
    cJSON_ArrayForEach(id, list) {
        if (tokenizer_whole(id) < 0)
            return tokenizer_fail(error, "the template's %.100s has a wrong id", name);
        if (!tokenizer_put_item(to, tokenizer_whole(id), 0, type)) return tokenizer_no_memory(error);
    }
    return 1;
}

/* Reads the template of so many texts, each of which is in it once. */
static inline int tokenizer_read_items(const cJSON *node, int texts, tokenizer_template *to, char *error) {
    static const char *const which[] = {"A", "B", NULL}, *const names[] = {"single", "pair"};
    const cJSON *one;
    int seen = 0;
    cJSON_ArrayForEach(one, tokenizer_field(node, names[texts - 1])) {
        const cJSON *special = tokenizer_field(one, "SpecialToken");
        const cJSON *text = tokenizer_field(one, "Sequence");
        const cJSON *number = tokenizer_field(special ? special : text, "type_id");
        const char *name = tokenizer_string(special, "id");
        int32_t type = number ? tokenizer_whole(number) : 0;
        int at = tokenizer_among(tokenizer_string(text, "id"), which);
        if (type < 0 || (!special && (at < 0 || at >= texts || seen & 1 << at)) || (special && !name))
            return tokenizer_fail(error, "post-processor TemplateProcessing: a template of %s is wrong",
                                  texts == 1 ? "one text" : "two texts");
        if (special ? !tokenizer_read_special(tokenizer_field(node, "special_tokens"), name, type, to, error)
                    : !tokenizer_put_item(to, -1, at + 1, type) && !tokenizer_no_memory(error))
            return 0;
        if (!special) seen |= 1 << at;
    }
    return seen == (1 << texts) - 1 || (texts == 2 && !to->n) ||
           tokenizer_fail(error, "post-processor TemplateProcessing: no template for %s",
                          texts == 1 ? "one text" : "two texts");
}

/* BERT's [CLS] A [SEP] B [SEP], where B and what is behind it are of type 1; RoBERTa's
   <s> A </s> </s> B </s>, all of type 0. */
static inline int tokenizer_read_pair(tokenizer *t, const cJSON *node, int roberta, char *error) {
    int32_t cls = tokenizer_whole(cJSON_GetArrayItem(tokenizer_field(node, "cls"), 1));
    int32_t sep = tokenizer_whole(cJSON_GetArrayItem(tokenizer_field(node, "sep"), 1));
    int done = 1;
    if (cls < 0 || sep < 0)
        return tokenizer_fail(error, "the post-processor's %s has no id", cls < 0 ? "cls" : "sep");
    t->cls = cls, t->sep = sep;
    for (int texts = 1; texts <= 2; texts++) {
        tokenizer_template *to = texts == 1 ? &t->single : &t->pair;
        done &= tokenizer_put_item(to, cls, 0, 0) && tokenizer_put_item(to, -1, 1, 0) &&
                tokenizer_put_item(to, sep, 0, 0);
        if (texts == 1) continue;
        done &= (!roberta || tokenizer_put_item(to, sep, 0, 0)) &&
                tokenizer_put_item(to, -1, 2, !roberta) && tokenizer_put_item(to, sep, 0, !roberta);
    }
    return done || tokenizer_no_memory(error);
}

static inline int tokenizer_read_processor(tokenizer *t, const cJSON *node, char *error) {
    static const char *const pairs[] = {"BertProcessing", "RobertaProcessing", NULL};
    const char *type = tokenizer_string(node, "type");
    const cJSON *one;
    if (!node || cJSON_IsNull(node)) return 1;
    if (!type) return tokenizer_fail(error, "a post-processor has no type");
    if (!strcmp(type, "ByteLevel")) return 1; /* it is about offsets */
    if (!strcmp(type, "Sequence")) {
        if (!cJSON_IsArray(tokenizer_field(node, "processors")))
            return tokenizer_fail(error, "post-processor Sequence: processors is no list");
        cJSON_ArrayForEach (one, tokenizer_field(node, "processors"))
            if (!tokenizer_read_processor(t, one, error)) return 0;
        return 1;
    }
    if (t->single.n > 1) return tokenizer_fail(error, "two post-processors add tokens");
    t->single.n = t->pair.n = 0;
    if (!strcmp(type, "TemplateProcessing"))
        return tokenizer_read_items(node, 1, &t->single, error) &&
               tokenizer_read_items(node, 2, &t->pair, error);
    if (tokenizer_among(type, pairs) >= 0)
        return tokenizer_read_pair(t, node, tokenizer_among(type, pairs), error);
    return tokenizer_fail(error, "post-processor %.100s is not known", type);
}

/* Takes what stands around one text out of its template. */
static inline int tokenizer_read_around(tokenizer *t, const cJSON *node, char *error) {
    tokenizer_ids *ids = &t->before;
    if (!tokenizer_read_processor(t, node, error)) return 0;
    for (size_t i = 0; i < t->single.n; i++) {
        if (t->single.at[i].text) ids = &t->after;
        else if (!tokenizer_put_id(ids, t->single.at[i].id)) return tokenizer_no_memory(error);
    }
    return 1;
}

/* Right (0) or Left (1); -1: neither */
static inline int tokenizer_direction(const cJSON *node) {
    static const char *const names[] = {"Right", "Left", NULL};
    const char *name = tokenizer_string(node, "direction");
    return name ? tokenizer_among(name, names) : 0;
}

static inline int tokenizer_read_truncation(tokenizer_fit *f, const cJSON *node, char *error) {
    static const char *const names[] = {"LongestFirst", "OnlyFirst", "OnlySecond", NULL};
    const char *which = tokenizer_string(node, "strategy");
    const cJSON *length = tokenizer_field(node, "max_length");
    int32_t most = tokenizer_whole(length);
    if (!cJSON_IsObject(node)) return 1;
    if (!tokenizer_check_fields(node, "truncation", "", "max_length strategy stride direction ", error))
        return 0;
    f->cuts = !(cJSON_IsNumber(length) && length->valuedouble > 2e9); /* as good as none */
    f->most = most < 0 ? 0 : (size_t)most;
    f->which = which ? tokenizer_among(which, names) : 0, f->cut_left = tokenizer_direction(node);
    if (f->cuts && most < 0) return tokenizer_fail(error, "truncation: max_length is no whole number");
    if (f->which < 0) return tokenizer_fail(error, "truncation: the strategy %.100s is not known", which);
    return f->cut_left >= 0 || tokenizer_fail(error, "truncation: the direction is neither Right nor Left");
}

static inline int tokenizer_read_padding(tokenizer_fit *f, const cJSON *node, char *error) {
    const cJSON *strategy = tokenizer_field(node, "strategy"), *fixed = tokenizer_field(strategy, "Fixed");
    const cJSON *multiple = tokenizer_field(node, "pad_to_multiple_of");
    const cJSON *pad = tokenizer_field(node, "pad_id"), *type = tokenizer_field(node, "pad_type_id");
    static const char fields[] = "strategy direction pad_to_multiple_of pad_id pad_type_id pad_token ";
    const char *name = cJSON_GetStringValue(strategy);
    int32_t least = fixed ? tokenizer_whole(fixed) : 0;
    int32_t unit = cJSON_IsNumber(multiple) ? tokenizer_whole(multiple) : 0;
    if (!cJSON_IsObject(node)) return 1;
    if (!tokenizer_check_fields(node, "padding", "", fields, error)) return 0;
    if (strategy && !fixed && (!name || strcmp(name, "BatchLongest")))
        return tokenizer_fail(error, "padding: the strategy is neither BatchLongest nor Fixed");
    if (least < 0 || least > TOKENIZER_FILL || unit < 0 || unit > TOKENIZER_FILL)
        return tokenizer_fail(error, "padding: a length is no whole number up to %d", TOKENIZER_FILL);
    f->fills = 1, f->fill_left = tokenizer_direction(node);
    f->least = (size_t)least, f->multiple = (size_t)unit;
    f->pad = pad ? tokenizer_whole(pad) : 0, f->pad_type = type ? tokenizer_whole(type) : 0;
    if (f->pad < 0 || f->pad_type < 0)
        return tokenizer_fail(error, "padding: pad_id or pad_type_id is no whole number");
    return f->fill_left >= 0 || tokenizer_fail(error, "padding: the direction is neither Right nor Left");
}

/* ---- Putting a tokenizer together ---- */

/* What a file holds beside its outline, which is a tokenizer.json without vocabulary and merges. Strings are
   the file's and stay until the tokenizer is built; byte-level tokens are in GPT-2's letters for bytes. */
#define TOKENIZER_NEVER (-1e30) /* score of a token that no text becomes */
typedef struct tokenizer_entry { const char *s; size_t n; int32_t id; double score; } tokenizer_entry;
typedef struct tokenizer_rule { const char *left, *right; size_t n_left, n_right; } tokenizer_rule;
typedef struct tokenizer_parts {
    tokenizer_entry *entries;
    tokenizer_rule *rules;
    size_t n, room, n_rules, rules_room;
    int by_score; /* merges follow from scores */
} tokenizer_parts;

static inline void tokenizer_parts_close(tokenizer_parts *p) {
    free(p->entries), free(p->rules);
    memset(p, 0, sizeof *p);
}

static inline int tokenizer_put_entry(tokenizer_parts *p, const char *s, size_t n, int32_t id, double score) {
    void *memory = p->entries;
    if (score < TOKENIZER_NEVER) score = TOKENIZER_NEVER;
    if (p->n == p->room) {
        if (!tokenizer_room(&memory, &p->room, p->n + 1, sizeof *p->entries)) return 0;
        p->entries = (tokenizer_entry *)memory;
    }
    p->entries[p->n].s = s, p->entries[p->n].n = n, p->entries[p->n].id = id,
    p->entries[p->n++].score = score;
    return 1;
}

static inline int tokenizer_put_rule(tokenizer_parts *p, const char *left, size_t n_left, const char *right,
                                     size_t n_right) {
    void *memory = p->rules;
    tokenizer_rule *r;
    if (p->n_rules == p->rules_room) {
        if (!tokenizer_room(&memory, &p->rules_room, p->n_rules + 1, sizeof *p->rules)) return 0;
        p->rules = (tokenizer_rule *)memory;
    }
    r = p->rules + p->n_rules++;
    r->left = left, r->n_left = n_left, r->right = right, r->n_right = n_right;
    return 1;
}

/* The byte of a letter, or -1. */
static inline int tokenizer_byte_of(int32_t c) {
    if (c >= 0 && c < 256) return tokenizer_letter_of((int)c) == c ? (int)c : -1;
    if (c < 256 || c > 256 + 67) return -1;
    c -= 256;
    return c < 33 ? (int)c : c < 67 ? (int)c - 33 + 127 : 173;
}

/* Appends a token's bytes; of a byte-level kind those that its letters stand for, or 0 where one is none. */
static inline int tokenizer_put_token(tokenizer_bytes *out, const char *s, size_t n, int byte_level,
                                      int *literal) {
    size_t begin = out->n, length;
    int32_t c;
    *literal = 0;
    if (!byte_level) return tokenizer_put(out, s, n);
    for (size_t at = 0; at < n; at += length) {
        char byte;
        length = tokenizer_char(s + at, n - at, &c);
        if (tokenizer_byte_of(c) < 0) return *literal = 1, out->n = begin, tokenizer_put(out, s, n);
        byte = (char)tokenizer_byte_of(c);
        if (!tokenizer_put(out, &byte, 1)) return 0;
    }
    return 1;
}

static inline int tokenizer_by_id(const void *a, const void *b) {
    const tokenizer_entry *x = (const tokenizer_entry *)a, *y = (const tokenizer_entry *)b;
    return (x->id > y->id) - (x->id < y->id);
}

/* The added tokens of an outline, which have ids of their own or of the vocabulary. */
static inline int tokenizer_read_added(tokenizer *t, const cJSON *list, char *error) {
    size_t n = (size_t)cJSON_GetArraySize(list);
    const cJSON *one;
    t->added = (tokenizer_added *)calloc(n + 1, sizeof *t->added);
    if (!t->added) return tokenizer_no_memory(error);
    cJSON_ArrayForEach(one, list) {
        tokenizer_added *a = t->added + t->n_added;
        const char *content = tokenizer_string(one, "content");
        static const char fields[] = "id content special lstrip rstrip single_word normalized ";
        a->id = tokenizer_whole(tokenizer_field(one, "id"));
        if (!cJSON_IsObject(one)) return tokenizer_fail(error, "an added token is no object");
        if (!tokenizer_check_fields(one, "an added token", "", fields, error)) return 0;
        if (!content || a->id < 0) return tokenizer_fail(error, "an added token has no content or no id");
        if (!*content) continue; /* never found */
        a->special = tokenizer_flag(one, "special", 0),
        a->normalized = tokenizer_flag(one, "normalized", !a->special);
        a->left = tokenizer_flag(one, "lstrip", 0), a->right = tokenizer_flag(one, "rstrip", 0);
        a->word = tokenizer_flag(one, "single_word", 0);
        if (!tokenizer_set_text(&a->content, &a->n, content)) return tokenizer_no_memory(error);
        if (a->n > t->longest_added) t->longest_added = a->n;
        t->n_added++;
    }
    return 1;
}

/* An added token that the vocabulary has as well has its id, or which one a text gets would be a matter of
   the program. Blanks and letters beyond ASCII are written in another way in byte-level vocabularies. */
static inline int tokenizer_check_added(const tokenizer *t, char *error) {
    for (size_t i = 0; i < t->n_added; i++) {
        const tokenizer_added *a = t->added + i;
        const int32_t id = tokenizer_find(t, a->content, a->n);
        int plain = 1;
        for (size_t k = 0; k < a->n; k++) plain &= a->content[k] > 32 && a->content[k] < 127;
        if (id < 0 || id == a->id || !plain || t->flags[a->id] & TOKENIZER_MODEL) continue;
        return tokenizer_fail(error, "the added token %.100s has the id %ld, in the vocabulary %ld",
                              a->content, (long)a->id, (long)id);
    }
    return 1;
}

/* Builds the trees that find added tokens; those that are normalized are looked for as they become. */
static inline int tokenizer_index_added(tokenizer *t, char *error) {
    tokenizer_work w;
    size_t most;
    int done = 1;
    memset(&w, 0, sizeof w);
    for (size_t i = 0; done && i < t->n_added; i++) {
        tokenizer_added *a = t->added + i;
        tokenizer_place place = {1, 0, 0};
        const char *s = a->content;
        size_t n = a->n;
        if (!t->n_normal) a->normalized = 0;
        if (a->normalized && !(done = tokenizer_normalize(t, &w, &s, &n, &place, error))) break;
        a->n_found = n;
        if (n && !tokenizer_trie_add(a->normalized ? &t->found_later : &t->found, s, n, 1, (int32_t)i))
            done = tokenizer_no_memory(error);
    }
    if (done && (!tokenizer_trie_link(&t->found, &most) || !tokenizer_trie_link(&t->found_later, &most)))
        done = tokenizer_no_memory(error);
    tokenizer_work_close(&w);
    return done;
}

/* Numbers every token: begin, flags, bytes, scores. Entries are then in the order of their ids. */
static inline int tokenizer_number_tokens(tokenizer *t, tokenizer_parts *p, char *error) {
    tokenizer_bytes bytes;
    size_t size = 0, i, at;
    int32_t id;
    int literal;
    memset(&bytes, 0, sizeof bytes);
    if (p->n) qsort(p->entries, p->n, sizeof *p->entries, tokenizer_by_id);
    if (p->n) size = (size_t)p->entries[p->n - 1].id + 1;
    for (i = 0; i < t->n_added; i++)
        if ((size_t)t->added[i].id >= size) size = (size_t)t->added[i].id + 1;
    if (size > 65536 + 4 * (p->n + t->n_added))
        return tokenizer_fail(error, "ids go up to %zu, but there are only %zu tokens", size - 1,
                              p->n + t->n_added);
    t->size = size, t->longest = 0;
    t->begin = (size_t *)calloc(size + 1, sizeof *t->begin);
    t->flags = (unsigned char *)calloc(size + 1, 1);
    if (t->kind == TOKENIZER_UNIGRAM) t->scores = (double *)calloc(size + 1, sizeof *t->scores);
    if (!t->begin || !t->flags || (t->kind == TOKENIZER_UNIGRAM && !t->scores))
        return tokenizer_no_memory(error);
    for (i = t->n_added; i--;) {
        id = t->added[i].id;
        t->flags[id] |= (unsigned char)(TOKENIZER_ADDED | (t->added[i].special ? TOKENIZER_SPECIAL : 0));
        t->begin[id] = i; /* the first of this id, until its bytes are there */
    }
    for (at = 0, id = 0; (size_t)id < size; id++) {
        int done = 1;
        i = t->begin[id];
        t->begin[id] = bytes.n;
        if (at < p->n && p->entries[at].id == id) {
            const tokenizer_entry *e = p->entries + at++;
            if (at < p->n && p->entries[at].id == id)
                return free(bytes.at), tokenizer_fail(error, "two tokens have the id %ld", (long)id);
            if (!(e->score <= -TOKENIZER_NEVER))
                return free(bytes.at),
                       tokenizer_fail(error, "the score of token %ld is no finite number", (long)id);
            done = tokenizer_put_token(&bytes, e->s, e->n, t->byte_level, &literal);
            t->flags[id] |=
                (unsigned char)(TOKENIZER_THERE | TOKENIZER_MODEL | (literal ? TOKENIZER_LITERAL : 0));
            if (t->scores) t->scores[id] = e->score;
        } else if (t->flags[id]) {
            done = tokenizer_put_token(&bytes, t->added[i].content, t->added[i].n, t->byte_level, &literal);
            t->flags[id] |= (unsigned char)(TOKENIZER_THERE | (literal ? TOKENIZER_LITERAL : 0));
        }
        if (!done) return free(bytes.at), tokenizer_no_memory(error);
        if (bytes.n - t->begin[id] > t->longest) t->longest = bytes.n - t->begin[id];
    }
    t->begin[size] = bytes.n;
    if (!tokenizer_put(&bytes, "", 0)) return tokenizer_no_memory(error);
    t->bytes = bytes.at;
    return 1;
}

/* So many Unigram tokens may end at one place of a text: each of them is a way there. */
#define TOKENIZER_NESTED 512

/* Makes the model's tokens be found by their bytes. */
static inline int tokenizer_index_tokens(tokenizer *t, char *error) {
    char name[8];
    size_t prefix = t->prefix ? strlen(t->prefix) : 0, most;
    int bytes = 0;
    t->n_slots = tokenizer_slots(t->size);
    t->slots = (uint32_t *)calloc(t->n_slots, sizeof *t->slots);
    if (!t->slots) return tokenizer_no_memory(error);
    for (int32_t id = 0; (size_t)id < t->size; id++) {
        uint32_t *slot;
        const char *s = t->bytes + t->begin[id];
        size_t length = tokenizer_length(t, id);
        if ((t->flags[id] & (TOKENIZER_MODEL | TOKENIZER_LITERAL)) != TOKENIZER_MODEL) continue;
        if (!*(slot = tokenizer_slot(t, s, length))) *slot = (uint32_t)id + 1;
        if (t->kind == TOKENIZER_BPE || t->kind == TOKENIZER_WORDLEVEL || !length) continue;
        if (t->scores && t->scores[id] <= TOKENIZER_NEVER) continue;
        if (!tokenizer_trie_add(&t->trie, s, length, 0, id)) return tokenizer_no_memory(error);
        if (t->kind != TOKENIZER_WORDPIECE || length <= prefix || (prefix && memcmp(s, t->prefix, prefix)))
            continue;
        if (!tokenizer_trie_add(&t->inside, s + prefix, length - prefix, 1, id))
            return tokenizer_no_memory(error);
    }
    if (!tokenizer_trie_link(&t->inside, &most) || !tokenizer_trie_link(&t->trie, &most))
        return tokenizer_no_memory(error);
    if (t->kind == TOKENIZER_UNIGRAM && most > TOKENIZER_NESTED)
        return tokenizer_fail(error, "model Unigram: %zu tokens end like one another, %d may", most,
                              TOKENIZER_NESTED);
    for (int i = 0; i < 256; i++) {
        name[0] = (char)i, t->byte_ids[i] = tokenizer_find(t, name, 1);
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)i), t->fallback[i] = tokenizer_find(t, name, 6);
        bytes |= t->fallback[i] >= 0;
    }
    t->byte_fallback = t->byte_fallback && bytes;
    return 1;
}

/* The id that a part of a rule names, among the model's tokens; -1 where it can never come up, -2 where it
   is none. */
static inline int32_t tokenizer_rule_part(const tokenizer *t, tokenizer_bytes *room, const char *s,
                                          size_t n) {
    int literal;
    int32_t id;
    room->n = 0;
    if (!tokenizer_put_token(room, s, n, t->byte_level, &literal)) return -2;
    if (literal) return -1;
    id = tokenizer_find(t, room->at, room->n);
    return id < 0 ? -2 : id;
}

static inline int tokenizer_read_rules(tokenizer *t, const tokenizer_parts *p, char *error) {
    tokenizer_bytes left, right;
    size_t n_prefix = t->prefix ? strlen(t->prefix) : 0, i;
    int done = 1;
    memset(&left, 0, sizeof left), right = left;
    t->merges = (tokenizer_merge *)malloc((p->n_rules + 1) * sizeof *t->merges);
    if (!t->merges) return tokenizer_no_memory(error);
    for (i = 0; done && i < p->n_rules; i++) {
        const tokenizer_rule *r = p->rules + i;
        tokenizer_merge *m = t->merges + t->n_merges;
        m->left = tokenizer_rule_part(t, &left, r->left, r->n_left);
        m->right = tokenizer_rule_part(t, &right, r->right, r->n_right);
        if (m->left == -1 || m->right == -1) continue;
        m->id = -2;
        if (m->left >= 0 && m->right >= 0 && right.n >= n_prefix &&
            tokenizer_put(&left, right.at + n_prefix, right.n - n_prefix))
            m->id = tokenizer_find(t, left.at, left.n);
        if (m->id < 0)
            done = tokenizer_fail(error, "merge %zu, of %.*s and %.*s, is not in the vocabulary", i + 1,
                                  r->n_left < 60 ? (int)r->n_left : 60, r->left,
                                  r->n_right < 60 ? (int)r->n_right : 60, r->right);
        t->n_merges++;
    }
    free(left.at), free(right.at);
    return done;
}

/* A merge while those of a vocabulary with scores are collected */
typedef struct tokenizer_scored { tokenizer_merge merge; double score; } tokenizer_scored;

static inline int tokenizer_by_score(const void *a, const void *b) {
    const tokenizer_scored *x = (const tokenizer_scored *)a, *y = (const tokenizer_scored *)b;
    if (x->score > y->score || x->score < y->score) return x->score > y->score ? -1 : 1;
    if (x->merge.id != y->merge.id) return x->merge.id < y->merge.id ? -1 : 1;
    return (x->merge.left > y->merge.left) - (x->merge.left < y->merge.left);
}

/* SentencePiece's BPE: any two tokens merge whose bytes together are a token, that of the best score first.
   So each way to cut a token in two tokens is a merge. */
static inline int tokenizer_score_rules(tokenizer *t, const tokenizer_parts *p, char *error) {
    tokenizer_scored *list = NULL;
    size_t n = 0, room = 0, i, at, step;
    int32_t c, left, right;
    for (i = 0; i < p->n; i++) {
        int32_t id = p->entries[i].id;
        const char *s = t->bytes + t->begin[id];
        size_t length = tokenizer_length(t, id);
        if (length > 1024)
            return free(list), tokenizer_fail(error, "token %ld has more than 1024 bytes", (long)id);
        if (t->flags[id] & TOKENIZER_ADDED || p->entries[i].score <= TOKENIZER_NEVER) continue;
        if (tokenizer_find(t, s, length) != id) continue; /* one of the same bytes came before */
        for (at = length ? tokenizer_char(s, length, &c) : 0; at < length; at += step) {
            void *memory = list;
            step = tokenizer_char(s + at, length - at, &c);
            if ((left = tokenizer_find(t, s, at)) < 0 || (right = tokenizer_find(t, s + at, length - at)) < 0)
                continue;
            if (!tokenizer_room(&memory, &room, n + 1, sizeof *list))
                return free(list), tokenizer_no_memory(error);
            list = (tokenizer_scored *)memory;
            list[n].merge.left = left, list[n].merge.right = right, list[n].merge.id = id;
            list[n++].score = p->entries[i].score;
        }
    }
    t->ties = 1, t->n_merges = n;
    t->merges = (tokenizer_merge *)malloc((n + 1) * sizeof *t->merges);
    if (!t->merges) return free(list), tokenizer_no_memory(error);
    if (n) qsort(list, n, sizeof *list, tokenizer_by_score);
    for (i = 0; i < n; i++) t->merges[i] = list[i].merge;
    free(list);
    return 1;
}

/* Makes merges be found by the two tokens; with ties those to one token rank alike. */
static inline int tokenizer_index_merges(tokenizer *t, char *error) {
    uint32_t rank = 0;
    if (t->n_merges >= UINT32_MAX) return tokenizer_fail(error, "there are too many merges");
    t->n_pairs = tokenizer_slots(t->n_merges);
    t->pairs = (tokenizer_pair *)calloc(t->n_pairs, sizeof *t->pairs);
    if (!t->pairs) return tokenizer_no_memory(error);
    for (size_t i = 0; i < t->n_merges; i++) {
        const tokenizer_merge *m = t->merges + i;
        tokenizer_pair *pair = tokenizer_pair_of(t, m->left, m->right);
        if (!t->ties || !i || m->id != m[-1].id) rank = (uint32_t)i;
        pair->key = ((uint64_t)(uint32_t)m->left << 32 | (uint32_t)m->right) + 1;
        pair->rank = rank, pair->id = m->id;
    }
    return 1;
}

static inline int tokenizer_ends_with(const tokenizer *t, int32_t id, int32_t with) {
    size_t n = tokenizer_length(t, id), m = with < 0 ? 0 : tokenizer_length(t, with);
    return m && n >= m && !memcmp(t->bytes + t->begin[id + 1] - m, t->bytes + t->begin[with], m);
}

/* Merges: the byte in front of the blank that one joins, or any byte where what it joins may stand for
   something else than its bytes. */
static inline void tokenizer_reach_merges(tokenizer *t, const char *blank, size_t n, int bit) {
    for (size_t i = 0; i < t->n_merges; i++) {
        int32_t left = t->merges[i].left, right = t->merges[i].right;
        int any = left < 0 || !tokenizer_length(t, left) || tokenizer_ends_with(t, left, t->unk);
        if (right >= 0 && (tokenizer_length(t, right) < n || memcmp(t->bytes + t->begin[right], blank, n)))
            continue;
        for (int k = 0; k < 256; k++)
            if (!any && t->byte_fallback) any = tokenizer_ends_with(t, left, t->fallback[k]);
        if (any) t->apart &= ~bit;
        else t->reaches[(unsigned char)t->bytes[t->begin[left + 1] - 1]] |= (unsigned char)bit;
    }
}

static inline void tokenizer_reach_tokens(tokenizer *t, const char *blank, size_t n, int bit) {
    for (size_t id = 0; id < t->size; id++) {
        const char *s = t->bytes + t->begin[id];
        size_t length = tokenizer_length(t, (int32_t)id);
        for (size_t i = 1; i + n <= length; i++)
            if (!memcmp(s + i, blank, n)) t->reaches[(unsigned char)s[i - 1]] |= (unsigned char)bit;
    }
}

/* Marks the characters of ASCII that no merge has, such as line ends in Llama's vocabulary: they are a token
   each, or their byte's where no character can be unknown. Without memory there are none. */
static inline void tokenizer_find_alone(tokenizer *t) {
    unsigned char *joins = (unsigned char *)calloc(t->size + 1, 1);
    int all = t->byte_fallback;
    if (!joins) return;
    for (int i = 0; i < 256; i++) all &= t->fallback[i] >= 0;
    for (size_t i = 0; i < t->n_merges; i++) {
        if (t->merges[i].left >= 0) joins[t->merges[i].left] = 1;
        if (t->merges[i].right >= 0) joins[t->merges[i].right] = 1;
    }
    for (int i = 0; i < 128; i++) {
        char c = (char)i;
        int32_t id = tokenizer_find(t, &c, 1);
        if (id < 0 && all) id = t->fallback[i];
        if (id >= 0 && id != t->unk && !joins[id]) t->reaches[i] |= 4, t->apart |= 4;
    }
    free(joins);
}

/* Finds the blanks before which a piece may be cut into words: those that are a token, which nothing that
   ends there joins what begins with it. */
static inline void tokenizer_find_words(tokenizer *t) {
    static const char *const blanks[] = {" ", "\xE2\x96\x81"};
    if (t->kind == TOKENIZER_BPE && (t->byte_level || t->ignore_merges || t->prefix || t->suffix)) return;
    if (t->kind != TOKENIZER_BPE && t->kind != TOKENIZER_UNIGRAM) return;
    for (size_t id = 0; t->scores && id < t->size; id++) {
        double score = t->scores[id];
        if (score > TOKENIZER_STEEPEST || (score < -TOKENIZER_STEEPEST && score > TOKENIZER_NEVER)) return;
    }
    for (int k = 0; k < 2; k++) {
        size_t n = strlen(blanks[k]);
        int32_t id = tokenizer_find(t, blanks[k], n);
        if (t->kind == TOKENIZER_UNIGRAM) { /* of several of the same bytes the one that is found */
            uint32_t node = 0;
            for (size_t i = 0; i < n; i++)
                if (node || !i) node = tokenizer_walk(&t->trie, node, blanks[k][i]);
            id = node ? t->trie.ids[node] : -1;
        }
        if (id < 0 || id == t->unk) continue;
        t->apart |= k + 1;
        if (t->kind == TOKENIZER_BPE) tokenizer_reach_merges(t, blanks[k], n, k + 1);
        else tokenizer_reach_tokens(t, blanks[k], n, k + 1);
    }
    if (t->kind == TOKENIZER_BPE) tokenizer_find_alone(t);
}

/* The added token of one of these names, the first that there is; -1. */
static inline int32_t tokenizer_named(const tokenizer *t, const char *const *names) {
    for (; *names; names++)
        for (size_t i = 0; i < t->n_added; i++)
            if (!strcmp(t->added[i].content, *names)) return t->added[i].id;
    return -1;
}

static inline void tokenizer_name_specials(tokenizer *t) {
    static const char *const bos[] = {"<s>", "<|begin_of_text|>", "<bos>", "<|startoftext|>", "\n<s>\n",
                                      "<|endoftext|>", NULL};
    static const char *const eos[] = {"</s>", "<|end_of_text|>", "<eos>", "\n</s>\n",
                                      "<|endoftext|>", NULL};
    static const char *const pad[] = {"<pad>", "[PAD]", "<|pad|>", NULL}, *const cls[] = {"[CLS]", NULL};
    static const char *const sep[] = {"[SEP]", NULL}, *const mask[] = {"[MASK]", "<mask>", NULL};
    if (t->bos < 0) t->bos = tokenizer_named(t, bos);
    if (t->eos < 0) t->eos = tokenizer_named(t, eos);
    if (t->pad < 0) t->pad = tokenizer_named(t, pad);
    if (t->cls < 0) t->cls = tokenizer_named(t, cls);
    if (t->sep < 0) t->sep = tokenizer_named(t, sep);
    if (t->mask < 0) t->mask = tokenizer_named(t, mask);
}

/* Where the names of the special tokens do not tell which is what, the model has "special_ids". */
enum { TOKENIZER_ROLES = 7 };

static inline int32_t *tokenizer_role(tokenizer *t, int which, const char **name) {
    static const char *const names[] = {"bos", "eos", "pad", "unk", "cls", "sep", "mask"};
    int32_t *const ids[] = {&t->bos, &t->eos, &t->pad, &t->unk, &t->cls, &t->sep, &t->mask};
    *name = names[which];
    return ids[which];
}

static inline void tokenizer_read_roles(tokenizer *t, const cJSON *roles) {
    const char *name;
    for (int i = 0; i < TOKENIZER_ROLES; i++) {
        int32_t *id = tokenizer_role(t, i, &name), given = tokenizer_whole(tokenizer_field(roles, name));
        if (i != 3 && given >= 0 && (size_t)given < t->size) *id = given; /* the unknown one is the model's */
    }
}

/* FNV-1a, which is the same on every machine */
static inline void tokenizer_feed(uint64_t *hash, const char *s, size_t n) {
    for (size_t i = 0; i < n; i++) *hash = (*hash ^ (unsigned char)s[i]) * 0x100000001B3u;
}

static inline void tokenizer_feed_number(uint64_t *hash, uint64_t x) {
    for (int i = 0; i < 8; i++, x >>= 8) *hash = (*hash ^ (x & 255)) * 0x100000001B3u;
}

static inline void tokenizer_feed_text(uint64_t *hash, const char *s, size_t n) {
    tokenizer_feed_number(hash, n), tokenizer_feed(hash, s, n);
}

static inline void tokenizer_feed_steps(uint64_t *hash, const tokenizer_step *s, int n) {
    tokenizer_feed_number(hash, (uint64_t)n);
    for (int i = 0; i < n; i++, s++) {
        const int numbers[] = {s->kind, s->a, s->b, s->c, s->d};
        for (int k = 0; k < 5; k++) tokenizer_feed_number(hash, (uint64_t)numbers[k]);
        tokenizer_feed_text(hash, s->from, s->n_from), tokenizer_feed_text(hash, s->to, s->n_to);
    }
}

/* The name of all that decides which ids a text gets; what decodes is not part of it. */
static inline void tokenizer_identify(tokenizer *t) {
    static const char *const kinds[] = {"bpe", "wordpiece", "unigram", "wordlevel"};
    uint64_t h = 0xCBF29CE484222325u, bits;
    const uint64_t numbers[] = {(uint64_t)t->kind,
                                (uint64_t)t->byte_level,
                                (uint64_t)t->byte_fallback,
                                (uint64_t)t->fuse_unk,
                                (uint64_t)t->ignore_merges,
                                (uint64_t)t->ties,
                                (uint64_t)t->word_most,
                                (uint64_t)t->unk + 1,
                                t->size,
                                t->n_merges,
                                t->n_added,
                                t->before.n,
                                t->after.n};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) tokenizer_feed_number(&h, numbers[i]);
    tokenizer_feed_text(&h, t->prefix, t->prefix ? strlen(t->prefix) : 0);
    tokenizer_feed_text(&h, t->suffix, t->suffix ? strlen(t->suffix) : 0);
    for (size_t i = 0; i < t->size; i++) {
        if (!(t->flags[i] & TOKENIZER_MODEL)) continue;
        tokenizer_feed_number(&h, i),
            tokenizer_feed_text(&h, t->bytes + t->begin[i], t->begin[i + 1] - t->begin[i]);
        if (t->scores) memcpy(&bits, t->scores + i, 8), tokenizer_feed_number(&h, bits);
    }
    for (size_t i = 0; i < t->n_merges; i++)
        tokenizer_feed_number(&h, (uint64_t)(uint32_t)t->merges[i].left << 32 | (uint32_t)t->merges[i].right);
    tokenizer_feed_steps(&h, t->normal, t->n_normal), tokenizer_feed_steps(&h, t->pre, t->n_pre);
    for (size_t i = 0; i < t->n_added; i++) {
        const tokenizer_added *a = t->added + i;
        const int set[] = {(int)a->id, a->special, a->left, a->right, a->word, a->normalized};
        tokenizer_feed_text(&h, a->content, a->n);
        for (int k = 0; k < 6; k++) tokenizer_feed_number(&h, (uint64_t)set[k]);
    }
    for (size_t i = 0; i < t->before.n; i++) tokenizer_feed_number(&h, (uint64_t)t->before.at[i]);
    for (size_t i = 0; i < t->after.n; i++) tokenizer_feed_number(&h, (uint64_t)t->after.at[i]);
    snprintf(t->identity, sizeof t->identity, "%s-%08lx%08lx", kinds[t->kind], (unsigned long)(h >> 32),
             (unsigned long)(h & 0xFFFFFFFFu));
}

/* May an ASCII letter or figure become part of an unknown token that reaches further? */
static inline int tokenizer_joins_unknown(const tokenizer *t) {
    int lower = 0;
    if (t->kind == TOKENIZER_WORDLEVEL) return 1; /* a word is looked up whole, however far it reaches */
    if (t->unk < 0 || (t->kind == TOKENIZER_BPE && !t->fuse_unk)) return 0;
    for (int i = 0; i < t->n_normal; i++)
        lower |= t->normal[i].kind == TOKENIZER_LOWERCASE ||
                 (t->normal[i].kind == TOKENIZER_BERT && t->normal[i].d);
    for (char c = '0'; c <= 'z'; c++) {
        char small = (char)(lower ? c | 32 : c);
        if ((tokenizer_letter(c) || tokenizer_number(c)) && tokenizer_find(t, &small, 1) < 0) return 1;
    }
    return 0;
}

/* Which cuts behind a letter or figure no token is across: before a blank (1), before a line end (2). */
static inline int tokenizer_free_cuts(const tokenizer *t) {
    int cuts = tokenizer_joins_unknown(t) ? 0 : 3;
    for (size_t id = 0; id < t->size && cuts; id++) {
        const char *s = t->bytes + t->begin[id];
        size_t n = t->begin[id + 1] - t->begin[id];
        if (!(t->flags[id] & TOKENIZER_MODEL) || t->flags[id] & TOKENIZER_ADDED) continue;
        for (size_t i = 1; i < n; i++) {
            int32_t c;
            if (s[i - 1] & 0x80 || (!tokenizer_letter(s[i - 1]) && !tokenizer_number(s[i - 1]))) continue;
            tokenizer_char(s + i, n - i, &c);
            if (c == ' ' || c == 0x2581) cuts &= ~1;
            if (c == '\n') cuts &= ~2;
        }
    }
    return cuts;
}

/* May a text be cut between a letter or figure and a blank (1) or line end (2)? Where pre-tokenizers split
   there in any case, or the model would not join the two. */
static inline int tokenizer_find_cuts(const tokenizer *t) {
    int splits = 0, marks = 0, lines = 0, cuts; /* blanks become U+2581; line ends, blanks */
    for (int i = 0; i < t->n_normal; i++) {
        const tokenizer_step *s = &t->normal[i];
        int narrows = s->kind == TOKENIZER_REPLACE_BLANKS;
        int mark = s->to && !strncmp(s->to, "\xE2\x96\x81", 3);
        for (size_t k = 0; s->kind == TOKENIZER_REPLACE && k < s->n_from; k++) {
            if (s->from[k] != ' ' && s->from[k] != '\n') continue;
            if (k || (*s->to != ' ' && !mark)) return 0;
            marks |= mark, lines |= s->from[k] == '\n';
        }
        if (narrows && *s->to != ' ' && !mark) return 0;
        marks |= narrows && mark, lines |= narrows && s->a;
        if (s->kind != TOKENIZER_PRECOMPILED) continue;
        if (!s->to[' ']) return 0;
        lines |= !s->to['\n'];
    }
    for (size_t i = 0; i < t->n_added; i++) {
        const tokenizer_added *a = t->added + i;
        if (a->normalized && (a->right || a->left || strpbrk(a->content, " \t\n\r\xE2"))) return 0;
    }
    for (int i = 0; i < t->n_pre; i++) /* who knows what a pattern looks at */
        if (t->pre[i].kind == TOKENIZER_REGEX) return 0;
    for (int i = 0; i < t->n_pre; i++) {
        const tokenizer_step *s = &t->pre[i];
        if (s->kind == TOKENIZER_METASPACE && s->b) splits |= 1;
        if ((s->kind == TOKENIZER_BYTES && s->b) ||
            (s->kind == TOKENIZER_PATTERN && s->a <= TOKENIZER_REMOVED &&
             (s->c < TOKENIZER_PARTIAL || s->c >= TOKENIZER_DEEPSEEK)) ||
            (s->kind == TOKENIZER_SPACES && !marks) || s->kind == TOKENIZER_WORDS)
            splits = 3;
    }
    cuts = splits == 3 ? 3 : splits | tokenizer_free_cuts(t);
    return lines && !(cuts & 1) ? 0 : cuts;
}

/* Reads what the model is from the outline. */
static inline int tokenizer_read_model(tokenizer *t, const cJSON *model, char *error) {
    static const char *const types[] = {"BPE", "WordPiece", "Unigram", "WordLevel", NULL};
    static const char *const fields[] = {
        ("type dropout unk_token continuing_subword_prefix end_of_word_suffix fuse_unk byte_fallback "
         "ignore_merges merges_tie special_ids "),
        "type unk_token continuing_subword_prefix max_input_chars_per_word special_ids ",
        "type unk_id byte_fallback special_ids ", "type unk_token special_ids "};
    const char *type = tokenizer_string(model, "type"), *text;
    const cJSON *dropout = tokenizer_field(model, "dropout"), *words;
    size_t n;
    int32_t most;
    if (!type) /* files of old */
        type = tokenizer_field(model, "max_input_chars_per_word") ? "WordPiece"
             : tokenizer_field(model, "unk_id")                   ? "Unigram" : "BPE";
    if ((t->kind = tokenizer_among(type, types)) < 0)
        return tokenizer_fail(error, "the model %.100s is not known", type);
    if (!tokenizer_check_fields(model, "model", type, fields[t->kind], error)) return 0;
    if (dropout && !cJSON_IsNumber(dropout) && !cJSON_IsNull(dropout))
        return tokenizer_fail(error, "model BPE: dropout is no number");
    if (cJSON_IsNumber(dropout) && dropout->valuedouble > 0)
        return tokenizer_fail(error,
                              "model BPE: dropout, which makes ids a matter of chance, is not done here");
    t->byte_fallback = tokenizer_flag(model, "byte_fallback", 0),
    t->fuse_unk = tokenizer_flag(model, "fuse_unk", 0);
    t->ignore_merges = tokenizer_flag(model, "ignore_merges", 0),
    t->ties = tokenizer_flag(model, "merges_tie", 0);
    text = tokenizer_string(model, "continuing_subword_prefix");
    if (!text && t->kind == TOKENIZER_WORDPIECE) text = "##";
    if (text && *text && !tokenizer_set_text(&t->prefix, &n, text)) return tokenizer_no_memory(error);
    text = tokenizer_string(model, "end_of_word_suffix");
    if (text && *text && !tokenizer_set_text(&t->suffix, &n, text)) return tokenizer_no_memory(error);
    if ((t->prefix && strlen(t->prefix) > 16) || (t->suffix && strlen(t->suffix) > 16))
        return tokenizer_fail(error, "model %s: a prefix or suffix of more than 16 bytes", type);
    if (t->kind != TOKENIZER_WORDPIECE) return 1;
    words = tokenizer_field(model, "max_input_chars_per_word");
    most = words && !cJSON_IsNull(words) ? tokenizer_whole(words) : 100;
    t->word_most = (size_t)most;
    return most >= 0 || tokenizer_fail(error, "model WordPiece: max_input_chars_per_word is no whole number");
}

/* Finds the unknown token, which the outline names by its text or, for Unigram, by its number. */
static inline int tokenizer_read_unknown(tokenizer *t, const cJSON *model, char *error) {
    const char *text = tokenizer_string(model, "unk_token");
    const cJSON *number = tokenizer_field(model, "unk_id");
    if (t->kind == TOKENIZER_WORDPIECE && !text) text = "[UNK]";
    if (t->kind == TOKENIZER_WORDLEVEL && !text) text = "<unk>";
    if (text && *text) {
        const char *names[2];
        names[0] = text, names[1] = NULL;
        t->unk = tokenizer_find(t, text, strlen(text));
        if (t->unk < 0) t->unk = tokenizer_named(t, names);
        if (t->unk < 0)
            return tokenizer_fail(error, "the unknown token %.100s is not in the vocabulary", text);
    } else if (number && !cJSON_IsNull(number)) {
        t->unk = tokenizer_whole(number);
        if (t->unk < 0 || (size_t)t->unk >= t->size)
            return tokenizer_fail(error, "the unknown token has a wrong id");
    }
    if (t->unk < 0 || t->kind != TOKENIZER_BPE) t->fuse_unk = 0;
    return 1;
}

/* The most bytes that one byte of text becomes in the normalizers and in Metaspace: a small file shall not
   ask for memory and time without bound. Unicode's normal forms have bounds of their own. */
#define TOKENIZER_GROWTH 256
static inline int tokenizer_check_growth(const tokenizer *t, char *error) {
    size_t grown = 1;
    for (int i = 0; i < t->n_normal + t->n_pre; i++) {
        const tokenizer_step *s = i < t->n_normal ? &t->normal[i] : &t->pre[i - t->n_normal];
        int pre = i >= t->n_normal;
        size_t from = 1, more = s->n_to;
        if (pre ? s->kind != TOKENIZER_METASPACE
                : s->kind != TOKENIZER_PREPEND && s->kind != TOKENIZER_REPLACE &&
                      s->kind != TOKENIZER_REPLACE_BLANKS)
            continue;
        if (!pre && s->kind == TOKENIZER_REPLACE) from = s->n_from;
        if (pre || s->kind == TOKENIZER_PREPEND) more++; /* in front of a text of one byte */
        if (more > TOKENIZER_GROWTH * from) grown = TOKENIZER_GROWTH + 1;
        else if (more > from) grown = grown * more / from + (grown * more % from != 0);
        if (grown > TOKENIZER_GROWTH)
            return tokenizer_fail(error, "the normalizers would make a text over %d times as long",
                                  TOKENIZER_GROWTH);
    }
    return 1;
}

static inline int tokenizer_check_steps(tokenizer *t, char *error) {
    int from_bytes = 0, behind = 0;
    size_t grown = t->longest, most = t->longest + ((size_t)1 << 20);
    for (int i = 0; i < t->n_pre; i++)
        if (t->pre[i].kind == TOKENIZER_BYTES) t->byte_level = behind = 1;
        else if (behind) {
            tokenizer_step *s = &t->pre[i];
            s->d = 1;
            if (s->kind != TOKENIZER_NUMBERS && s->kind != TOKENIZER_SIGNS &&
                !(s->kind == TOKENIZER_PATTERN && s->c == TOKENIZER_TRIPLES))
                return tokenizer_fail(error, "pre-tokenizer %d, behind ByteLevel, is not known", i + 1);
        }
    if (t->byte_level && !t->n_decode) /* its tokens are bytes */
        t->decode[t->n_decode++].kind = TOKENIZER_FROM_BYTES;
    for (int i = 0; i < t->n_decode; i++) {
        const tokenizer_step *s = &t->decode[i];
        from_bytes |= s->kind == TOKENIZER_FROM_BYTES;
        if (s->n_to > most) return tokenizer_fail(error, "decoder Replace: texts would become too long");
        grown = tokenizer_grown(s, grown);
        if (grown > most) return tokenizer_fail(error, "the decoders would make a token too long");
        if (s->kind == TOKENIZER_CUT && s->b)
            for (int k = 0; k < i; k++)
                if (t->decode[k].kind == TOKENIZER_FUSE)
                    return tokenizer_fail(error,
                                          "decoder Strip: nothing can be cut off the end of a whole text");
    }
    t->longest = grown + 1; /* without decoders a blank comes in front */
    if (t->byte_level && t->kind != TOKENIZER_BPE)
        return tokenizer_fail(error, "pre-tokenizer ByteLevel is known with the model BPE only");
    if (t->byte_level != from_bytes)
        return tokenizer_fail(error, "%s ByteLevel alone, without the %s, is not known",
                              from_bytes ? "decoder" : "pre-tokenizer",
                              from_bytes ? "pre-tokenizer" : "decoder");
    return 1;
}

/* Notes what the file asks for that tokenizer_encode does not do. */
static inline void tokenizer_note(tokenizer *t) {
    char text[64] = "";
    if (t->fit.cuts) snprintf(text, sizeof text, " truncation to %zu tokens", t->fit.most);
    if (t->fit.cuts || t->fit.fills)
        snprintf(t->note, sizeof t->note, "the file asks for%s%s%s; texts are encoded whole unless that is "
                 "asked for", text, *text && t->fit.fills ? " and" : "", t->fit.fills ? " padding" : "");
}

/* Are the tokens that templates add there? */
static inline int tokenizer_check_template(const tokenizer *t, const tokenizer_template *from, char *error) {
    for (size_t i = 0; i < from->n; i++)
        if (!from->at[i].text && (size_t)from->at[i].id >= t->size)
            return tokenizer_fail(error, "the post-processor adds the token %ld, which there is not",
                                  (long)from->at[i].id);
    return 1;
}

static inline int tokenizer_assemble(tokenizer *t, const cJSON *outline, tokenizer_parts *p, char *error) {
    const cJSON *model = tokenizer_field(outline, "model");
    if (!tokenizer_read_model(t, model, error) ||
        !tokenizer_read_steps(0, tokenizer_field(outline, "normalizer"), t->normal, &t->n_normal, error) ||
        !tokenizer_read_steps(1, tokenizer_field(outline, "pre_tokenizer"), t->pre, &t->n_pre, error) ||
        !tokenizer_read_steps(2, tokenizer_field(outline, "decoder"), t->decode, &t->n_decode, error) ||
        !tokenizer_read_around(t, tokenizer_field(outline, "post_processor"), error) ||
        !tokenizer_read_truncation(&t->fit, tokenizer_field(outline, "truncation"), error) ||
        !tokenizer_read_padding(&t->fit, tokenizer_field(outline, "padding"), error) ||
        !tokenizer_check_growth(t, error) || !tokenizer_check_steps(t, error) ||
        !tokenizer_read_added(t, tokenizer_field(outline, "added_tokens"), error) ||
        !tokenizer_number_tokens(t, p, error) || !tokenizer_check_steps(t, error) ||
        !tokenizer_index_tokens(t, error) || !tokenizer_check_added(t, error) ||
        !tokenizer_read_unknown(t, model, error) ||
        !tokenizer_index_added(t, error)) return 0;
    if (!t->size) return tokenizer_fail(error, "there are no tokens");
    if (t->kind == TOKENIZER_BPE &&
        !(p->by_score ? tokenizer_score_rules(t, p, error) : tokenizer_read_rules(t, p, error)))
        return 0;
    if (t->kind == TOKENIZER_BPE && !tokenizer_index_merges(t, error)) return 0;
    for (size_t i = 0; i < p->n; i++)
        if (p->entries[i].score < t->least_score && p->entries[i].score > TOKENIZER_NEVER)
            t->least_score = p->entries[i].score;
    if (!tokenizer_check_template(t, &t->single, error) || !tokenizer_check_template(t, &t->pair, error))
        return 0;
    tokenizer_name_specials(t);
    tokenizer_read_roles(t, tokenizer_field(model, "special_ids"));
    tokenizer_identify(t);
    t->cuts = tokenizer_find_cuts(t);
    tokenizer_find_words(t);
    tokenizer_note(t);
    t->outline = cJSON_PrintUnformatted(outline);
    return t->outline ? 1 : tokenizer_no_memory(error);
}

/* A zeroed tokenizer without special tokens; builds it from an outline and what goes with that, or leaves it
   closed. `name` stands before the error line. */
static inline int tokenizer_build(tokenizer *t, const cJSON *outline, tokenizer_parts *p, const char *name,
                                  char *error) {
    char line[TOKENIZER_ERROR];
    memset(t, 0, sizeof *t);
    t->bos = t->eos = t->pad = t->unk = t->cls = t->sep = t->mask = -1;
    if (tokenizer_assemble(t, outline, p, line)) return 1;
    tokenizer_close(t);
    return tokenizer_fail(error, "%.200s: %s", name, line);
}

/* ---- tokenizer.json ---- */

/* cJSON ends a string at \u0000; such files are refused. */
static inline int tokenizer_has_zero(const char *s, size_t n) {
    for (size_t i = 0; i + 5 < n; i++) {
        if (s[i] != '\\') continue;
        if (!memcmp(s + i + 1, "u0000", 5)) return 1;
        i++;
    }
    return 0;
}

/* Detaches a field of a model, and further ones of that name that are null: a saved file has its own. */
static inline cJSON *tokenizer_take(cJSON *model, const char *name) {
    cJSON *taken = cJSON_DetachItemFromObjectCaseSensitive(model, name);
    for (cJSON *field = model ? model->child : NULL, *next; field; field = next) {
        next = field->next;
        if (field->string && cJSON_IsNull(field) && !strcmp(field->string, name))
            cJSON_Delete(cJSON_DetachItemViaPointer(model, field));
    }
    return taken;
}

/* Fills the parts from a model; strings are the JSON's. */
static inline int tokenizer_json_parts(const cJSON *vocabulary, const cJSON *merges, tokenizer_parts *p,
                                       char *error) {
    const cJSON *one;
    int32_t id = 0;
    int list = cJSON_IsArray(vocabulary);
    if (!list && !cJSON_IsObject(vocabulary)) return tokenizer_fail(error, "the model has no vocab");
    cJSON_ArrayForEach(one, vocabulary) {
        const cJSON *score = list ? cJSON_GetArrayItem(one, 1) : NULL;
        const char *s = list ? cJSON_GetStringValue(cJSON_GetArrayItem(one, 0)) : one->string;
        if (!list) id = tokenizer_whole(one);
        if (!s || id < 0 || (list && !cJSON_IsNumber(score)))
            return tokenizer_fail(error, "the token %.100s of the vocab has no %s", s ? s : "",
                                  list ? "score" : "id");
        if (!tokenizer_put_entry(p, s, strlen(s), id++, list ? score->valuedouble : 0))
            return tokenizer_no_memory(error);
    }
    cJSON_ArrayForEach(one, merges) {
        const char *left = cJSON_GetStringValue(one), *right = left ? strchr(left, ' ') : NULL;
        size_t n = right ? (size_t)(right++ - left) : 0;
        if (cJSON_IsArray(one) && cJSON_GetArraySize(one) == 2) {
            left = cJSON_GetStringValue(cJSON_GetArrayItem(one, 0)),
            right = cJSON_GetStringValue(cJSON_GetArrayItem(one, 1));
            n = left ? strlen(left) : 0;
        } else if (right && strchr(right, ' ')) right = NULL;
        if (!left || !right || !n || !*right)
            return tokenizer_fail(error, "merge %zu is not of two tokens", p->n_rules + 1);
        if (!tokenizer_put_rule(p, left, n, right, strlen(right))) return tokenizer_no_memory(error);
    }
    return 1;
}

static inline int tokenizer_read_json(tokenizer *t, const char *text, size_t n, const char *name,
                                      char *error) {
    cJSON *json = tokenizer_has_zero(text, n) ? NULL : cJSON_ParseWithLength(text, n), *vocabulary, *merges,
          *model;
    tokenizer_parts p;
    char line[TOKENIZER_ERROR];
    int done;
    memset(&p, 0, sizeof p), memset(t, 0, sizeof *t);
    if (!json)
        return tokenizer_fail(error,
                              tokenizer_has_zero(text, n) ? "%.200s: a token with a zero in it is not known"
                                                          : "%.200s: this is no JSON",
                              name);
    model = cJSON_GetObjectItemCaseSensitive(json, "model");
    vocabulary = tokenizer_take(model, "vocab");
    merges = tokenizer_take(model, "merges");
    done =
        tokenizer_json_parts(vocabulary, merges, &p, line) || tokenizer_fail(error, "%.200s: %s", name, line);
    done = done && tokenizer_build(t, json, &p, name, error);
    tokenizer_parts_close(&p);
    cJSON_Delete(vocabulary), cJSON_Delete(merges), cJSON_Delete(json);
    return done;
}

/* ---- Other files: their outlines, in which ' stands for " ---- */

static inline cJSON *tokenizer_outline(const char *text) {
    char *copy = tokenizer_copy(text, strlen(text));
    cJSON *json = NULL;
    for (char *at = copy; at && *at; at++)
        if (*at == '\'') *at = '"';
    if (copy) json = cJSON_Parse(copy);
    free(copy);
    return json;
}

/* Puts an item into an object, in place of one of its name, or behind a list; if that fails it is gone. */
static inline int tokenizer_json_put(cJSON *node, const char *name, cJSON *item) {
    int done;
    if (!node || !item) return cJSON_Delete(item), 0;
    if (!name) done = cJSON_AddItemToArray(node, item);
    else if (cJSON_GetObjectItemCaseSensitive(node, name))
        done = cJSON_ReplaceItemInObjectCaseSensitive(node, name, item);
    else done = cJSON_AddItemToObject(node, name, item);
    if (!done) cJSON_Delete(item);
    return done;
}

/* Adds a special token to an outline. */
static inline int tokenizer_outline_token(cJSON *outline, int32_t id, const char *content) {
    cJSON *list = cJSON_GetObjectItemCaseSensitive(outline, "added_tokens"), *one;
    if (!list && !(list = cJSON_AddArrayToObject(outline, "added_tokens"))) return 0;
    if (!(one = cJSON_CreateObject()) || !cJSON_AddItemToArray(list, one)) return cJSON_Delete(one), 0;
    return cJSON_AddNumberToObject(one, "id", id) && cJSON_AddStringToObject(one, "content", content) &&
           cJSON_AddFalseToObject(one, "single_word") && cJSON_AddFalseToObject(one, "lstrip") &&
           cJSON_AddFalseToObject(one, "rstrip") && cJSON_AddFalseToObject(one, "normalized") &&
           cJSON_AddTrueToObject(one, "special");
}

/* The next line of a text without its end; 0 behind the last. */
static inline int tokenizer_line(const char **at, const char *end, const char **line, size_t *n) {
    const char *stop;
    if (*at >= end) return 0;
    stop = (const char *)memchr(*at, '\n', (size_t)(end - *at));
    *line = *at, *n = (size_t)((stop ? stop : end) - *at), *at = stop ? stop + 1 : end;
    if (*n && (*line)[*n - 1] == '\r') --*n;
    return 1;
}

/* GPT-2's encoder.json or vocab.json, and vocab.bpe or merges.txt. */
static inline int tokenizer_read_pairs(tokenizer *t, const char *vocabulary, size_t n, const char *merges,
                                       size_t n_merges, const char *name, char *error) {
    cJSON *json = tokenizer_has_zero(vocabulary, n) ? NULL : cJSON_ParseWithLength(vocabulary, n), *end;
    cJSON *outline = tokenizer_outline(
        "{'version':'1.0','truncation':null,'padding':null,'added_tokens':[],'normalizer':null,"
        "'pre_tokenizer':"
        "{'type':'ByteLevel','add_prefix_space':false,'trim_offsets':true,'use_regex':true},'post_processor':"
        "{'type':'ByteLevel','add_prefix_space':true,'trim_offsets':false,'use_regex':true},'decoder':"
        "{'type':'ByteLevel','add_prefix_space':true,'trim_offsets':true,'use_regex':true},"
        "'model':{'type':'BPE',"
        "'dropout':null,'unk_token':null,'continuing_subword_prefix':null,'end_of_word_suffix':null,"
        "'fuse_unk':false,'byte_fallback':false,'ignore_merges':false}}");
    const char *at = merges, *line, *blank;
    char why[TOKENIZER_ERROR];
    size_t length;
    tokenizer_parts p;
    int done = 1;
    memset(&p, 0, sizeof p), memset(t, 0, sizeof *t);
    if (!json || !outline) {
        cJSON_Delete(json), cJSON_Delete(outline);
        return tokenizer_fail(error, "%.200s: this is no JSON", name);
    }
    if (!tokenizer_json_parts(json, NULL, &p, why)) done = tokenizer_fail(error, "%.200s: %s", name, why);
    while (done && tokenizer_line(&at, merges + n_merges, &line, &length)) {
        if (!length || (line == merges && length > 8 && !memcmp(line, "#version", 8))) continue;
        blank = (const char *)memchr(line, ' ', length);
        if (!blank || blank == line || blank + 1 == line + length ||
            memchr(blank + 1, ' ', (size_t)(line + length - blank - 1)))
            done = tokenizer_fail(error, "%.200s: merge %zu is not of two tokens", name, p.n_rules + 1);
        else if (!tokenizer_put_rule(&p, line, (size_t)(blank - line), blank + 1,
                                     (size_t)(line + length - blank - 1)))
            done = tokenizer_no_memory(error);
        if (done && length > 4 && !memcmp(line + length - 4, "</w>", 4))
            done = tokenizer_fail(error, "%.200s: merges with </w> need their tokenizer.json", name);
    }
    end = cJSON_GetObjectItemCaseSensitive(json, "<|endoftext|>");
    if (done && end && !tokenizer_outline_token(outline, tokenizer_whole(end), end->string))
        done = tokenizer_no_memory(error);
    done = done && tokenizer_build(t, outline, &p, name, error);
    tokenizer_parts_close(&p);
    cJSON_Delete(json), cJSON_Delete(outline);
    return done;
}

/* BERT's vocab.txt: a token a line. `lowercase`: 1 or 0, or that + 2 where accents stay just as capitals
   go, or go as these stay; + 4 where what stands beside it asks for more than it can say. */
static inline int tokenizer_read_lines(tokenizer *t, const char *text, size_t n, int lowercase,
                                       const char *name, char *error) {
    static const char *const specials[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", NULL};
    cJSON *outline = tokenizer_outline(
        "{'version':'1.0','truncation':null,'padding':null,'added_tokens':[],"
        "'normalizer':{'type':'BertNormalizer',"
        "'clean_text':true,'handle_chinese_chars':true,'strip_accents':null,'lowercase':true},"
        "'pre_tokenizer':"
        "{'type':'BertPreTokenizer'},'decoder':{'type':'WordPiece','prefix':'##','cleanup':true},'model':"
        "{'type':'WordPiece','unk_token':'[UNK]','continuing_subword_prefix':'##',"
        "'max_input_chars_per_word':100}}");
    cJSON *processor, *pair;
    const char *at = text, *line;
    size_t length;
    int32_t id = 0, found[5] = {-1, -1, -1, -1, -1};
    tokenizer_parts p;
    int done = outline != NULL;
    memset(&p, 0, sizeof p), memset(t, 0, sizeof *t);
    if (lowercase & 4) {
        cJSON_Delete(outline);
        return tokenizer_fail(error, "%.200s: what added_tokens.json or tokenizer_config.json beside it says "
                              "of words needs its tokenizer.json", name);
    }
    if (done && !(lowercase & 1))
        done = tokenizer_json_put(cJSON_GetObjectItemCaseSensitive(outline, "normalizer"), "lowercase",
                                  cJSON_CreateFalse());
    if (done && lowercase & 2)
        done = tokenizer_json_put(cJSON_GetObjectItemCaseSensitive(outline, "normalizer"), "strip_accents",
                                  cJSON_CreateBool(!(lowercase & 1)));
    while (done && id < 0x7FFFFFFF && tokenizer_line(&at, text + n, &line, &length)) {
        for (int k = 0; k < 5; k++)
            if (length == strlen(specials[k]) && !memcmp(line, specials[k], length) && found[k] < 0)
                found[k] = id;
        done = tokenizer_put_entry(&p, line, length, id++, 0);
    }
    for (int k = 0; done && k < 5; k++)
        if (found[k] >= 0) done = tokenizer_outline_token(outline, found[k], specials[k]);
    if (done && found[2] >= 0 && found[3] >= 0) {
        processor = cJSON_AddObjectToObject(outline, "post_processor");
        done = processor && cJSON_AddStringToObject(processor, "type", "BertProcessing");
        for (int k = 3; done && k >= 2; k--) {
            pair = cJSON_AddArrayToObject(processor, k == 3 ? "sep" : "cls");
            done = pair && cJSON_AddItemToArray(pair, cJSON_CreateString(specials[k])) &&
                   cJSON_AddItemToArray(pair, cJSON_CreateNumber(found[k]));
        }
    }
    if (!done) tokenizer_no_memory(error);
    done = done && tokenizer_build(t, outline, &p, name, error);
    tokenizer_parts_close(&p), cJSON_Delete(outline);
    return done;
}

/* ---- llama2.c's tokenizer.bin ---- */

static inline uint32_t tokenizer_u32(const char *s) {
    const unsigned char *u = (const unsigned char *)s;
    return u[0] | (uint32_t)u[1] << 8 | (uint32_t)u[2] << 16 | (uint32_t)u[3] << 24;
}

/* The length of the longest token, then of every token: score, length, bytes. Fills the parts; 0 where these
   bytes are something else. */
static inline int tokenizer_bin_parts(const char *s, size_t n, tokenizer_parts *p) {
    size_t at = 4, length;
    int32_t id = 0;
    uint32_t bits, longest = n < 4 ? 0 : tokenizer_u32(s);
    float score;
    if (!longest || longest > 65536) return 0;
    for (; at < n; at += length) {
        if (n - at < 8 || tokenizer_u32(s + at + 4) > longest || tokenizer_u32(s + at + 4) > n - at - 8)
            return 0;
        bits = tokenizer_u32(s + at), length = tokenizer_u32(s + at + 4), at += 8;
        memcpy(&score, &bits, 4);
        if (!tokenizer_put_entry(p, s + at, length, id++, (double)score)) return 0;
    }
    return id > 0;
}

static inline int tokenizer_read_bin(tokenizer *t, tokenizer_parts *p, const char *name, char *error) {
    static const char *const specials[] = {"\n<s>\n", "\n</s>\n", "<s>", "</s>", NULL};
    cJSON *outline = tokenizer_outline(
        "{'version':'1.0','truncation':null,'padding':null,'added_tokens':[],'normalizer':{'type':'Prepend',"
        "'prepend':' '},'pre_tokenizer':null,'post_processor':{'type':'TemplateProcessing','single':[{"
        "'SpecialToken':{'id':'<s>','type_id':0}},{'Sequence':{'id':'A','type_id':0}}],"
        "'pair':[{'SpecialToken':"
        "{'id':'<s>','type_id':0}},{'Sequence':{'id':'A','type_id':0}},{'Sequence':{'id':'B','type_id':1}}],"
        "'special_tokens':{'<s>':{'id':'<s>','ids':[1],'tokens':['<s>']}}},'decoder':{'type':'Sequence',"
        "'decoders':[{'type':'ByteFallback'},{'type':'Fuse'},{'type':'Strip','content':' ','start':1,"
        "'stop':0}]},"
        "'model':{'type':'BPE','dropout':null,'unk_token':null,'continuing_subword_prefix':null,"
        "'end_of_word_suffix':null,'fuse_unk':false,'byte_fallback':true,'ignore_merges':false}}");
    int done = outline != NULL || tokenizer_no_memory(error);
    for (size_t i = 1; done && i < 3 && i < p->n; i++) {
        char *text = tokenizer_copy(p->entries[i].s, p->entries[i].n);
        done = text &&
               (tokenizer_among(text, specials) < 0 || tokenizer_outline_token(outline, (int32_t)i, text));
        free(text);
        if (!done) tokenizer_no_memory(error);
    }
    p->by_score = 1;
    done = done && tokenizer_build(t, outline, p, name, error);
    cJSON_Delete(outline);
    if (!done) return 0;
    for (int i = 0; i < 256; i++)
        if (t->fallback[i] != i + 3)
            return tokenizer_close(t), tokenizer_fail(error, "%.200s: the token <0x%02X> is not number %d",
                                                      name, (unsigned)i, i + 3);
    return 1;
}

/* ---- GGUF ---- */

/* A tokenizer of GGUF's gpt2 model: how its name for the pre-tokenizer splits, by a pattern that is known by
   name or by several in turn, each on what the ones before left; and what goes along. */
enum { TOKENIZER_SPLITS = 6 };
typedef struct tokenizer_pre {
    const char *names, *pattern;
    int nfc, digits, ignore_merges, bos;
    const char *splits[TOKENIZER_SPLITS + 1];
} tokenizer_pre;

#define TOKENIZER_GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define TOKENIZER_SENTENCE \
    " ?[^(\\s|.,!?\xE2\x80\xA6\xE3\x80\x82\xEF\xBC\x8C\xE3\x80\x81\xE0\xA5\xA4\xDB\x94\xD8\x8C)]+"
#define TOKENIZER_KANJI "[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83\xBF]+"
/* parts of patterns: what follows an apostrophe, words, signs, blanks */
#define TOKENIZER_SHORT "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|"
#define TOKENIZER_LETTERS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define TOKENIZER_SIGNS "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
#define TOKENIZER_BLANKS "\\s+(?!\\S)|\\s+"
#define TOKENIZER_EAST "[\xE4\xB8\x80-\xE9\xBE\xA5\xE0\xA0\x80-\xE4\xB8\x80\xEA\xB0\x80-\xED\x9F\xBF]+"
/* the letters that have a case, as that model has them */
#define TOKENIZER_CASED \
    "\\s?[A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}\\x{1C4}-\\x{293}" \
    "\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}\\x{386}\\x{388}-\\x{38A}" \
    "\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}" \
    "\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}" \
    "\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}" \
    "\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}" \
    "\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}" \
    "\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}" \
    "\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}" \
    "\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}" \
    "\\x{214E}" \
    "\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}" \
    "\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}" \
    "\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}" \
    "\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}" \
    "\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}]+"

static inline const tokenizer_pre *tokenizer_pres(size_t *n) {
    static const tokenizer_pre rows[] = {
        {" gpt-2 phi-2 mpt olmo jais jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code "
         "roberta-bpe gigachat mellum exaone4 a.x-4.0 trillion granite-docling modern-bert ",
         "gpt2", 0, 0, 0, 0, {NULL}},
        {" llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano ",
         "llama3", 0, 0, 1, 1, {NULL}},
        {" smaug-bpe dbrx glm4 chatglm-bpe ", "llama3", 0, 0, 0, 0, {NULL}},
        {" qwen2 deepseek-r1-qwen kormo f2llmv2 ", "qwen2", 1, 0, 0, 0, {NULL}},
        {" stablelm2 megrez hunyuan grok-2 solar-open ", "qwen2", 0, 0, 0, 0, {NULL}},
        {" gpt-4o llama4 kanana2 talkie minimax-m2 ", "o200k", 0, 0, 0, 0, {NULL}},
        {" tekken ", "tekken", 0, 0, 1, 1, {NULL}},
        {" smollm starcoder refact command-r codeshell exaone minerva-7b mellum2 ",
         "gpt2", 0, 1, 0, 0, {NULL}},
        {" default ", NULL, 0, 0, 0, 0,
         {"[\\p{P}\\$\\+<=>\\^~\\|]+", TOKENIZER_GPT2, "\\p{N}+", "[0-9][0-9][0-9]", NULL}},
        {" falcon ", NULL, 0, 0, 0, 0,
         {"[\\p{P}\\$\\+<=>\\^~\\|`]+", TOKENIZER_GPT2, "[0-9][0-9][0-9]", NULL}},
        {" deepseek-coder ", NULL, 0, 0, 0, 0,
         {"[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", TOKENIZER_EAST, "\\p{N}", NULL}},
        {" deepseek-llm ", NULL, 0, 0, 0, 0,
         {"[\r\n]", TOKENIZER_CASED,
          "\\s?[!-/:-~\xEF\xBC\x81-\xEF\xBC\x8F\xEF\xBC\x9A-\xEF\xBD\x9E\xE2\x80\x98-\xE2\x80\x9F"
          "\xE3\x80\x80-\xE3\x80\x82]+", "\\s+$", TOKENIZER_EAST, "\\p{N}+", NULL}},
        {" deepseek-v3 hunyuan-dense joyai-llm hy_v4 ", NULL, 0, 0, 0, 0,
         {"\\p{N}{1,3}", TOKENIZER_KANJI,
          "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
          " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|" TOKENIZER_BLANKS, NULL}},
        {" qwen35 ", NULL, 1, 0, 0, 0,
         {TOKENIZER_SHORT "[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}|"
          " ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|" TOKENIZER_BLANKS, NULL}},
        {" seed-coder ", NULL, 0, 0, 0, 0,
         {TOKENIZER_SHORT TOKENIZER_LETTERS "\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|\\s*[\\r\\n]+|"
          TOKENIZER_BLANKS, NULL}},
        {" bailingmoe bailingmoe2 llada-moe ", NULL, 0, 0, 0, 0,
         {"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|" TOKENIZER_LETTERS
          "\\p{N}" TOKENIZER_SIGNS "\\s*[\\r\\n]|" TOKENIZER_BLANKS, NULL}},
        {" ufakzeka ", NULL, 0, 0, 0, 0,
         {TOKENIZER_LETTERS "\\p{N}" TOKENIZER_SIGNS "\\s*[\\r\\n]+|" TOKENIZER_BLANKS, NULL}},
        {" laguna ", NULL, 0, 0, 0, 0,
         {"[^\\n]+|[\\n]+", TOKENIZER_SHORT TOKENIZER_LETTERS
          "\\p{N}" TOKENIZER_SIGNS "\\s*[\\r\\n]+|" TOKENIZER_BLANKS, NULL}},
        {" minicpm5 ", NULL, 0, 0, 1, 0,
         {"\\p{N}{1,3}", TOKENIZER_SHORT TOKENIZER_LETTERS
          "\\p{N}+" TOKENIZER_SIGNS "\\s*[\\r\\n]+|" TOKENIZER_BLANKS, NULL}},
        {" jais-2 ", NULL, 0, 0, 0, 0,
         {TOKENIZER_SHORT TOKENIZER_LETTERS "\\p{N}{1,3}" TOKENIZER_SIGNS "\\s*[\\r\\n]+|"
          "\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|\\s{64}(?!\\S)|\\s{32}(?!\\S)|\\s{16}(?!\\S)|"
          "\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}", NULL}},
        {" exaone-moe ", NULL, 0, 0, 0, 0,
         {TOKENIZER_SHORT "[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}|"
          " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|" TOKENIZER_BLANKS, NULL}},
        {" tiny_aya cohere2moe ", NULL, 0, 0, 0, 0,
         {"\\d{1,3}(?=(?:\\d{3})*\\b)", "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*"
          "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|"
          "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*"
          "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|\\p{N}{1,3}|"
          " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|" TOKENIZER_BLANKS, NULL}},
        {" bloom gpt3-finnish poro-chat ", NULL, 0, 0, 0, 0, {TOKENIZER_SENTENCE, NULL}},
        {" viking ", NULL, 0, 0, 0, 0, {TOKENIZER_SENTENCE, "\\p{N}", NULL}}};
    *n = sizeof rows / sizeof *rows;
    return rows;
}

static inline const tokenizer_pre *tokenizer_find_pre(const char *name, size_t n) {
    size_t count;
    const tokenizer_pre *rows = tokenizer_pres(&count);
    for (size_t i = 0; i < count; i++)
        for (const char *at = rows[i].names; n && (at = strchr(at, ' ')) != NULL && at[1]; at++)
            if (strcspn(at + 1, " ") == n && !memcmp(at + 1, name, n)) return rows + i;
    return NULL;
}

static inline int32_t tokenizer_gguf_number(const gguf_file *g, const char *key, int32_t otherwise) {
    double x;
    const gguf_value *v = gguf_find(g, key);
    return v && v->type != GGUF_ARRAY && gguf_element(v, 0, &x) && x >= 0 && x < 2147483647 ? (int32_t)x
                                                                                            : otherwise;
}

/* Adds the object {key: text} to a list. */
static inline cJSON *tokenizer_json_add(cJSON *list, const char *type) {
    cJSON *one = cJSON_CreateObject();
    if (one && cJSON_AddStringToObject(one, "type", type) && cJSON_AddItemToArray(list, one)) return one;
    cJSON_Delete(one);
    return NULL;
}

/* The steps of a section of an outline, made a sequence if it is none yet. */
static inline cJSON *tokenizer_json_steps(cJSON *outline, const char *section, const char *list) {
    cJSON *node = cJSON_GetObjectItemCaseSensitive(outline, section), *steps;
    if (!node && (node = cJSON_AddObjectToObject(outline, section)) != NULL)
        cJSON_AddStringToObject(node, "type", "Sequence");
    steps = cJSON_GetObjectItemCaseSensitive(node, list);
    return steps ? steps : cJSON_AddArrayToObject(node, list);
}

/* Adds a Split whose matches stand alone. */
static inline int tokenizer_gguf_split(cJSON *steps, const char *regex) {
    cJSON *one = tokenizer_json_add(steps, "Split");
    cJSON *pattern = one ? cJSON_AddObjectToObject(one, "pattern") : NULL;
    return pattern && cJSON_AddStringToObject(pattern, "Regex", regex) &&
           cJSON_AddStringToObject(one, "behavior", "Isolated") && cJSON_AddFalseToObject(one, "invert");
}

static inline int tokenizer_gguf_bytes(cJSON *outline, const tokenizer_pre *pre, int front) {
    cJSON *steps = tokenizer_json_steps(outline, "pre_tokenizer", "pretokenizers"), *one;
    size_t n, i = 0;
    const tokenizer_pattern *known = tokenizer_patterns(&n);
    const char *const *split = pre->splits;
    while (pre->pattern && strcmp(known[i].name, pre->pattern)) i++;
    if (pre->nfc && !tokenizer_json_add(tokenizer_json_steps(outline, "normalizer", "normalizers"), "NFC"))
        return 0;
    if (pre->digits && (!(one = tokenizer_json_add(steps, "Digits")) ||
                        !cJSON_AddTrueToObject(one, "individual_digits"))) return 0;
    for (; *split; split++)
        if (!tokenizer_gguf_split(steps, *split)) return 0;
    if (pre->pattern && known[i].how && !tokenizer_gguf_split(steps, known[i].text)) return 0;
    one = tokenizer_json_add(steps, "ByteLevel");
    return one && cJSON_AddBoolToObject(one, "add_prefix_space", front) &&
           cJSON_AddTrueToObject(one, "trim_offsets") &&
           cJSON_AddBoolToObject(one, "use_regex", pre->pattern && !known[i].how);
}

/* The template <s> A </s>, each special token where it is wanted; of two texts <s> A B </s>, or (each) both
   as one alone is. */
static inline int tokenizer_json_template(cJSON *outline, int32_t bos, int32_t eos, int each) {
    char text[1024], first[2][64] = {"", ""}, last[2][64] = {"", ""};
    cJSON *node;
    if (bos < 0 && eos < 0) return 1;
    for (int i = 0; i < 2; i++) {
        if (bos >= 0) snprintf(first[i], sizeof first[i], "{'SpecialToken':{'id':'bos','type_id':%d}},", i);
        if (eos >= 0) snprintf(last[i], sizeof last[i], ",{'SpecialToken':{'id':'eos','type_id':%d}}", i);
    }
    snprintf(
        text, sizeof text,
        "{'type':'TemplateProcessing','single':[%s{'Sequence':{'id':'A','type_id':0}}%s],"
        "'pair':[%s{'Sequence':{'id':'A','type_id':0}}%s,%s{'Sequence':{'id':'B','type_id':1}}%s],"
        "'special_tokens':"
        "{'bos':{'id':'bos','ids':[%ld],'tokens':['bos']},'eos':{'id':'eos','ids':[%ld],'tokens':['eos']}}}",
        first[0], last[0], first[0], each ? last[0] : "", each ? first[1] : "", last[each],
        bos < 0 ? 0L : (long)bos, eos < 0 ? 0L : (long)eos);
    node = tokenizer_outline(text);
    return tokenizer_json_put(outline, "post_processor", node);
}

/* T5's outline: its table of characters, blanks in a row and at the ends. */
static inline int tokenizer_gguf_unigram(cJSON *outline, const gguf_file *g) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const gguf_value *map = gguf_find(g, "tokenizer.ggml.precompiled_charsmap");
    cJSON *steps = tokenizer_json_steps(outline, "normalizer", "normalizers"), *one;
    int front = tokenizer_gguf_number(g, "tokenizer.ggml.add_space_prefix", 1) != 0;
    if (map && map->type == GGUF_ARRAY && map->count && gguf_width(map->of) == 1) {
        size_t n = (size_t)map->count, i;
        char *text = (char *)malloc(n / 3 * 4 + 8), *out = text;
        if (!text || !(one = tokenizer_json_add(steps, "Precompiled"))) return free(text), 0;
        for (i = 0; i < n; i += 3) {
            uint32_t bits = (uint32_t)map->at[i] << 16 | (i + 1 < n ? (uint32_t)map->at[i + 1] << 8 : 0) |
                            (i + 2 < n ? map->at[i + 2] : 0u);
            for (int k = 3; k >= 0; k--)
                *out++ = i + (size_t)(3 - k) <= n ? letters[bits >> 6 * k & 63] : '=';
        }
        *out = 0;
        i = cJSON_AddStringToObject(one, "precompiled_charsmap", text) &&
            cJSON_AddTrueToObject(one, "longest");
        free(text);
        if (!i) return 0;
    }
    if (tokenizer_gguf_number(g, "tokenizer.ggml.remove_extra_whitespaces", 0)) {
        cJSON *pattern;
        if (!(one = tokenizer_json_add(steps, "Strip")) || !cJSON_AddTrueToObject(one, "strip_left") ||
            !cJSON_AddTrueToObject(one, "strip_right") || !(one = tokenizer_json_add(steps, "Replace")) ||
            !(pattern = cJSON_AddObjectToObject(one, "pattern")) ||
            !cJSON_AddStringToObject(pattern, "Regex", " {2,}") ||
            !cJSON_AddStringToObject(one, "content", " "))
            return 0;
    }
    if (front &&
        !tokenizer_json_put(steps, NULL, tokenizer_outline("{'type':'Prepend','prepend':'\xE2\x96\x81'}")))
        return 0;
    one = tokenizer_outline("{'type':'Replace','pattern':{'String':' '},'content':'\xE2\x96\x81'}");
    if (!tokenizer_json_put(steps, NULL, one)) return 0;
    one = tokenizer_outline(
        front
            ? "{'type':'Sequence','decoders':[{'type':'Replace','pattern':{'String':'\xE2\x96\x81'},"
              "'content':' '},"
              "{'type':'ByteFallback'},{'type':'Fuse'},{'type':'Strip','content':' ','start':1,'stop':0}]}"
            : "{'type':'Sequence','decoders':[{'type':'Replace','pattern':{'String':'\xE2\x96\x81'},"
              "'content':' '},"
              "{'type':'ByteFallback'},{'type':'Fuse'}]}");
    return tokenizer_json_put(outline, "decoder", one);
}

/* BERT's tokens, which GGUF has with a sign for what begins a word instead of ## for what does not: as the
   lines of a vocab.txt. */
static inline int tokenizer_gguf_bert(tokenizer *t, const gguf_file *g, const gguf_value *tokens,
                                      const char *name, char *error) {
    const unsigned char *at = tokens->at;
    int lower = tokenizer_gguf_number(g, "tokenizer.ggml.normalizer.lowercase", 1) != 0;
    int bare = tokenizer_gguf_number(g, "tokenizer.ggml.normalizer.strip_accents", lower) != 0;
    const gguf_value *types = gguf_find(g, "tokenizer.ggml.token_type");
    tokenizer_bytes lines;
    int done = 1;
    memset(&lines, 0, sizeof lines);
    for (uint64_t i = 0; done && i < tokens->count; i++) {
        double kind = 0;
        size_t n;
        const char *s = gguf_next(&at, &n);
        int begins = n >= 3 && !memcmp(s, "\xE2\x96\x81", 3), special = n > 2 && *s == '[' && s[n - 1] == ']';
        if (types && types->type == GGUF_ARRAY && gguf_element(types, i, &kind) && kind > 2 && kind < 4)
            special = 1; /* a control token */
        if (memchr(s, '\n', n))
            return free(lines.at), tokenizer_fail(error, "%.200s: a token with a line end", name);
        done = (begins || special || tokenizer_put(&lines, "##", 2)) &&
               tokenizer_put(&lines, s + (begins ? 3 : 0), n - (begins ? 3 : 0)) &&
               tokenizer_put(&lines, "\n", 1);
    }
    if (!done) tokenizer_no_memory(error);
    else done = tokenizer_read_lines(t, lines.n ? lines.at : "", lines.n, lower | (bare != lower) << 1, name,
                                     error);
    free(lines.at);
    return done;
}

enum { TOKENIZER_UNKNOWN_TYPE = 2, TOKENIZER_CONTROL = 3, TOKENIZER_DEFINED = 4, TOKENIZER_UNUSED = 5,
       TOKENIZER_BYTE = 6 };

/* The vocabulary of a GGUF file; control and user-defined tokens become added ones. */
static inline int tokenizer_gguf_parts(const gguf_file *g, cJSON *outline, tokenizer_parts *p, char *error) {
    const gguf_value *tokens = gguf_find(g, "tokenizer.ggml.tokens"),
                     *types = gguf_find(g, "tokenizer.ggml.token_type"),
                     *scores = gguf_find(g, "tokenizer.ggml.scores"),
                     *merges = gguf_find(g, "tokenizer.ggml.merges");
    const unsigned char *at = tokens->at;
    for (uint64_t i = 0; i < tokens->count; i++) {
        double kind = 1, score = 0;
        int type;
        size_t n;
        const char *s = gguf_next(&at, &n);
        if (types && types->type == GGUF_ARRAY) gguf_element(types, i, &kind);
        type = kind >= 0 && kind < 16 ? (int)kind : 0;
        if (scores && scores->type == GGUF_ARRAY) gguf_element(scores, i, &score);
        if (type == TOKENIZER_UNUSED || type == TOKENIZER_BYTE) score = TOKENIZER_NEVER;
        if (!tokenizer_put_entry(p, s, n, (int32_t)i, score)) return tokenizer_no_memory(error);
        if (type == TOKENIZER_CONTROL || type == TOKENIZER_DEFINED ||
            type == TOKENIZER_UNKNOWN_TYPE) {
            char *text = tokenizer_copy(s, n);
            int done = text && tokenizer_outline_token(outline, (int32_t)i, text);
            cJSON *list = cJSON_GetObjectItemCaseSensitive(outline, "added_tokens");
            free(text);
            if (done && type == TOKENIZER_DEFINED) /* the last one added */
                done = tokenizer_json_put(list->child->prev, "special", cJSON_CreateFalse());
            if (!done) return tokenizer_no_memory(error);
        }
    }
    if (p->by_score || !merges || merges->type != GGUF_ARRAY || merges->of != GGUF_TEXT) return 1;
    at = merges->at;
    for (uint64_t i = 0; i < merges->count; i++) {
        size_t n;
        const char *s = gguf_next(&at, &n), *blank = n ? (const char *)memchr(s + 1, ' ', n - 1) : NULL;
        if (!blank || blank + 1 == s + n)
            return tokenizer_fail(error, "merge %zu is not of two tokens", (size_t)i + 1);
        if (!tokenizer_put_rule(p, s, (size_t)(blank - s), blank + 1, (size_t)(s + n - blank - 1)))
            return tokenizer_no_memory(error);
    }
    return 1;
}

/* Reads the vocabulary of an open GGUF file; `name` stands before the error line. */
static inline int tokenizer_read_gguf(tokenizer *t, const gguf_file *g, const char *name, char *error) {
    static const char *const models[] = {"gpt2", "llama", "t5", "bert", NULL};
    const gguf_value *model = gguf_find(g, "tokenizer.ggml.model"), *pre = gguf_find(g, "tokenizer.ggml.pre"),
                     *tokens = gguf_find(g, "tokenizer.ggml.tokens");
    const tokenizer_pre *known = NULL;
    char kind[64] = "", line[TOKENIZER_ERROR];
    int which, done = 1;
    int32_t bos = tokenizer_gguf_number(g, "tokenizer.ggml.bos_token_id", -1),
            eos = tokenizer_gguf_number(g, "tokenizer.ggml.eos_token_id", -1), unk;
    tokenizer_parts p;
    cJSON *outline = NULL, *node;
    memset(t, 0, sizeof *t), memset(&p, 0, sizeof p);
    if (!model || model->type != GGUF_TEXT || !tokens || tokens->type != GGUF_ARRAY ||
        tokens->of != GGUF_TEXT)
        return tokenizer_fail(error, "%.200s: there is no tokenizer in this GGUF file", name);
    snprintf(kind, sizeof kind, "%.*s", model->count < 60 ? (int)model->count : 60, (const char *)model->at);
    if ((which = tokenizer_among(kind, models)) < 0)
        return tokenizer_fail(error, "%.200s: the tokenizer %.60s of a GGUF file is not known", name, kind);
    if (tokens->count > 0x7FFFFFFE) return tokenizer_fail(error, "%.200s: there are too many tokens", name);
    if (which == 3) return tokenizer_gguf_bert(t, g, tokens, name, error);
    if (which == 0 && !(known = pre && pre->type == GGUF_TEXT
                                    ? tokenizer_find_pre((const char *)pre->at, (size_t)pre->count)
                                : !pre ? tokenizer_find_pre("default", 7)
                                       : NULL))
        return tokenizer_fail(error, "%.200s: the pre-tokenizer %.*s of a GGUF file is not known", name,
                              pre->type != GGUF_TEXT ? 0 : pre->count < 60 ? (int)pre->count : 60,
                              pre->type == GGUF_TEXT ? (const char *)pre->at : "");
    outline = tokenizer_outline(
        which == 0
            ? "{'version':'1.0','added_tokens':[],'decoder':{'type':'ByteLevel'},'model':{'type':'BPE'}}"
        : which == 2
            ? "{'version':'1.0','added_tokens':[],'model':{'type':'Unigram'}}"
            : "{'version':'1.0','added_tokens':[],'normalizer':{'type':'Sequence','normalizers':[]},"
              "'decoder':{'type':'Sequence','decoders':[{'type':'Replace',"
              "'pattern':{'String':'\xE2\x96\x81'},"
              "'content':' '},{'type':'ByteFallback'},{'type':'Fuse'}]},'model':{'type':'BPE'}}");
    node = cJSON_GetObjectItemCaseSensitive(outline, "model");
    done = outline != NULL;
    if (done && which == 0)
        done = tokenizer_gguf_bytes(outline, known,
                                    tokenizer_gguf_number(g, "tokenizer.ggml.add_space_prefix", 0)) &&
               cJSON_AddBoolToObject(node, "ignore_merges", known->ignore_merges);
    if (done && which == 1) {
        cJSON *steps = tokenizer_json_steps(outline, "normalizer", "normalizers"), *one, *pattern;
        if (tokenizer_gguf_number(g, "tokenizer.ggml.add_space_prefix", 1)) {
            one = tokenizer_outline("{'type':'Strip','content':' ','start':1,'stop':0}");
            done = tokenizer_json_put(tokenizer_json_steps(outline, "decoder", "decoders"), NULL, one) &&
                   (one = tokenizer_json_add(steps, "Prepend")) != NULL &&
                   cJSON_AddStringToObject(one, "prepend", "\xE2\x96\x81");
        }
        done = done && (one = tokenizer_json_add(steps, "Replace")) != NULL &&
               (pattern = cJSON_AddObjectToObject(one, "pattern")) != NULL &&
               cJSON_AddStringToObject(pattern, "String", " ") &&
               cJSON_AddStringToObject(one, "content", "\xE2\x96\x81") &&
               cJSON_AddTrueToObject(node, "byte_fallback") && cJSON_AddTrueToObject(node, "fuse_unk");
        p.by_score = 1;
    }
    if (done && which == 2) done = tokenizer_gguf_unigram(outline, g);
    unk = tokenizer_gguf_number(g, "tokenizer.ggml.unknown_token_id", which == 1 ? 0 : which == 2 ? 2 : -1);
    if (done && which == 2) done = cJSON_AddTrueToObject(node, "byte_fallback") != NULL;
    if (done && which == 2 && unk >= 0) done = cJSON_AddNumberToObject(node, "unk_id", unk) != NULL;
    if (done && which)
        done = tokenizer_json_template(
            outline, tokenizer_gguf_number(g, "tokenizer.ggml.add_bos_token", which == 1) ? bos : -1,
            tokenizer_gguf_number(g, "tokenizer.ggml.add_eos_token", which == 2) ? eos : -1, 0);
    else if (done)
        done = tokenizer_json_template(
            outline, tokenizer_gguf_number(g, "tokenizer.ggml.add_bos_token", known->bos) ? bos : -1,
            tokenizer_gguf_number(g, "tokenizer.ggml.add_eos_token", 0) ? eos : -1, 0);
    done = done || tokenizer_no_memory(line);
    if (done && (done = tokenizer_gguf_parts(g, outline, &p, line)) && which == 1 && unk >= 0 &&
        (size_t)unk < p.n) {
        char *text = tokenizer_copy(p.entries[unk].s, p.entries[unk].n);
        done = (text && cJSON_AddStringToObject(node, "unk_token", text)) || tokenizer_no_memory(line);
        free(text);
    }
    if (!done) tokenizer_fail(error, "%.200s: %s", name, line);
    done = done && tokenizer_build(t, outline, &p, name, error);
    tokenizer_parts_close(&p), cJSON_Delete(outline);
    if (!done) return 0;
    if (bos >= 0 && (size_t)bos < t->size) t->bos = bos;
    if (eos >= 0 && (size_t)eos < t->size) t->eos = eos;
    if (which == 0 && !pre)
        snprintf(t->note, sizeof t->note, "the file names no pre-tokenizer (tokenizer.ggml.pre): it is split "
                 "by llama.cpp's default");
    return 1;
}

/* ---- Opening ---- */

enum { TOKENIZER_MAGIC = 4 };

/* Is there a file that can be read, and no folder? */
static inline int tokenizer_is_file(const char *path) {
    FILE *file = regular_open(path);
    int is = file && (getc(file) != EOF || !ferror(file));
    if (file) fclose(file);
    return is;
}

/* A file in memory of malloc, or NULL; of a GGUF file, which may be large, only the first bytes. */
static inline char *tokenizer_load(const char *path, size_t *n, char *error) {
    FILE *file = regular_open(path);
    tokenizer_bytes bytes;
    char *part = (char *)malloc(TOKENIZER_CHUNK);
    size_t got;
    int bad = 0;
    memset(&bytes, 0, sizeof bytes);
    if (!file || !part) {
        if (file) fclose(file);
        free(part);
        return tokenizer_fail(error, "cannot open %.300s%s", path, regular_fault(path)), (char *)NULL;
    }
    while (!bad && (got = fread(part, 1, TOKENIZER_CHUNK, file)) > 0) {
        if (!bytes.n && got >= TOKENIZER_MAGIC && !memcmp(part, "GGUF", 4)) got = TOKENIZER_MAGIC;
        bad = bytes.n > (size_t)1 << 30 || !tokenizer_put(&bytes, part, got);
        if (got == TOKENIZER_MAGIC) break;
    }
    if (bad) tokenizer_fail(error, "%.300s is too large for a tokenizer", path);
    else if (ferror(file)) bad = !tokenizer_fail(error, "cannot read %.300s", path);
    if (!bad && !tokenizer_put(&bytes, "", 0)) bad = !tokenizer_no_memory(error);
    fclose(file), free(part);
    if (bad) return free(bytes.at), (char *)NULL;
    *n = bytes.n;
    return bytes.at;
}

static inline int tokenizer_read_cased(tokenizer *t, const void *bytes, size_t n, int lowercase,
                                       const char *name, char *error) {
    const char *s = (const char *)bytes;
    char line[TOKENIZER_ERROR];
    size_t at = 0;
    gguf_file g;
    tokenizer_parts p;
    int done;
    memset(t, 0, sizeof *t), memset(&p, 0, sizeof p);
    if (n >= 4 && !memcmp(s, "GGUF", 4)) {
        if (!gguf_read(&g, s, n, line)) return tokenizer_fail(error, "%.200s: %s", name, line);
        done = tokenizer_read_gguf(t, &g, name, error);
        return gguf_close(&g), done;
    }
    if (n >= 3 && !memcmp(s, "\xEF\xBB\xBF", 3)) s += 3, n -= 3;
    while (at < n && (s[at] == ' ' || s[at] == '\n' || s[at] == '\r' || s[at] == '\t')) at++;
    if (at < n && s[at] == '{') return tokenizer_read_json(t, s, n, name, error);
    if (tokenizer_bin_parts(s, n, &p))
        return done = tokenizer_read_bin(t, &p, name, error), tokenizer_parts_close(&p), done;
    tokenizer_parts_close(&p);
    for (at = 0; at + 5 <= n; at++) {
        const char *hit = (const char *)memchr(s + at, '[', n - at - 4);
        if (!hit) break;
        at = (size_t)(hit - s);
        if (!memcmp(hit, "[UNK]", 5)) return tokenizer_read_lines(t, s, n, lowercase, name, error);
    }
    return tokenizer_fail(error, "%.200s: this is no tokenizer that is known here", name);
}

/* Reads a tokenizer from n bytes in memory: tokenizer.json, vocab.txt (as of an uncased BERT), llama2.c's
   .bin, GGUF. `name` stands before the error line. */
static inline int tokenizer_read(tokenizer *t, const void *bytes, size_t n, const char *name, char *error) {
    return tokenizer_read_cased(t, bytes, n, 1, name, error);
}

/* Takes from a tokenizer_config.json which tokens are special for what. */
static inline void tokenizer_take_config(tokenizer *t, const cJSON *config) {
    const char *const names[] = {"bos_token", "eos_token", "pad_token",
                                 "cls_token", "sep_token", "mask_token"};
    int32_t *const ids[] = {&t->bos, &t->eos, &t->pad, &t->cls, &t->sep, &t->mask};
    for (int i = 0; i < 6; i++) {
        const cJSON *field = tokenizer_field(config, names[i]);
        const char *content[2];
        content[0] = cJSON_IsObject(field) ? tokenizer_string(field, "content") : cJSON_GetStringValue(field);
        content[1] = NULL;
        if (!content[0]) continue;
        int32_t id = tokenizer_named(t, content);
        if (id < 0) id = tokenizer_find(t, content[0], strlen(content[0])); /* in the vocabulary alone */
        if (id >= 0) *ids[i] = id;
    }
}

/* Of which add_bos_token (a sum with 1) and add_eos_token (with 2) make a post-processor, where there is none
   that adds tokens: transformers does so for these classes; GPT-2's alone when it reads pairs. */
static inline int tokenizer_class_adds(const cJSON *config, int pairs) {
    static const char *const names[] = {"LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer",
                                        "CohereTokenizer", "GPTNeoXTokenizer", NULL};
    const char *given = tokenizer_string(config, "tokenizer_class");
    size_t n = given ? strlen(given) : 0;
    if (pairs) return 1;
    if (n > 4 && !strcmp(given + n - 4, "Fast")) n -= 4;
    for (int i = 0; names[i]; i++)
        if (n == strlen(names[i]) && !strncmp(names[i], given, n)) return 3;
    return 0;
}

/* Puts the template of these tokens, -1: none, in the place of a post-processor that adds nothing. */
static inline int tokenizer_set_ends(tokenizer *t, int32_t bos, int32_t eos, char *error) {
    cJSON *outline = cJSON_Parse(t->outline);
    int done = outline && tokenizer_json_template(outline, bos, eos, 1);
    char *text = done ? cJSON_PrintUnformatted(outline) : NULL;
    done = text ? tokenizer_read_around(t, tokenizer_field(outline, "post_processor"), error)
                : tokenizer_no_memory(error);
    cJSON_Delete(outline);
    if (!done) return cJSON_free(text), 0;
    free(t->outline), t->outline = text;
    tokenizer_identify(t);
    return 1;
}

static inline int tokenizer_has_id(const tokenizer_ids *ids, int32_t id) {
    for (size_t i = 0; i < ids->n; i++)
        if (ids->at[i] == id) return 1;
    return 0;
}

/* Appends to a list what a tokenizer_config.json says otherwise. */
static inline void tokenizer_put_other(char *list, size_t size, const char *key, const char *value) {
    const size_t used = strlen(list);
    snprintf(list + used, size - used, "%s%s = %.40s", used ? ", " : "", key, value);
}

/* Takes from a tokenizer_config.json whether texts have a first and a last token, where the post-processor
   adds none; where it does, it counts. */
static inline int tokenizer_take_ends(tokenizer *t, const cJSON *config, int pairs, char *list, size_t size,
                                      char *error) {
    static const char *const keys[] = {"add_bos_token", "add_eos_token"};
    const int adds = t->single.n ? 0 : tokenizer_class_adds(config, pairs);
    const int32_t ids[2] = {t->bos, t->eos};
    int32_t put[2] = {-1, -1};
    for (int i = 0; i < 2; i++) {
        const cJSON *flag = tokenizer_field(config, keys[i]);
        const int wanted = cJSON_IsTrue(flag), has = tokenizer_has_id(i ? &t->after : &t->before, ids[i]);
        if (!flag || cJSON_IsNull(flag)) continue;
        if (!cJSON_IsBool(flag))
            return tokenizer_fail(error, "%s of tokenizer_config.json is neither true nor false", keys[i]);
        if (wanted && ids[i] >= 0 && adds >> i & 1) put[i] = ids[i];
        else if (wanted != has) tokenizer_put_other(list, size, keys[i], wanted ? "true" : "false");
    }
    return (put[0] < 0 && put[1] < 0) || tokenizer_set_ends(t, put[0], put[1], error);
}

/* Lists the flags of a tokenizer_config.json that are not those of the normalizer or the pre-tokenizer. */
static inline void tokenizer_compare_steps(const tokenizer *t, const cJSON *config, char *list, size_t size) {
    for (int i = 0; i < t->n_normal + t->n_pre; i++) {
        const int pre = i >= t->n_normal;
        const tokenizer_step *step = pre ? &t->pre[i - t->n_normal] : &t->normal[i];
        const struct { const char *key; int pre, kind, is; } rows[] = {
            {"do_lower_case", 0, TOKENIZER_BERT, step->d}, {"strip_accents", 0, TOKENIZER_BERT, step->c},
            {"tokenize_chinese_chars", 0, TOKENIZER_BERT, step->b},
            {"add_prefix_space", 1, TOKENIZER_BYTES, step->a > 0}};
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
            const int wanted = tokenizer_flag(config, rows[k].key, rows[k].is);
            if (rows[k].pre != pre || rows[k].kind != step->kind || wanted == rows[k].is) continue;
            tokenizer_put_other(list, size, rows[k].key, wanted ? "true" : "false");
        }
    }
}

/* Lists the first token of a tokenizer_config.json that is none of the tokenizer's added ones. */
static inline void tokenizer_compare_added(const tokenizer *t, const cJSON *config, char *list, size_t size) {
    const cJSON *one;
    cJSON_ArrayForEach(one, tokenizer_field(config, "added_tokens_decoder")) {
        const char *content = tokenizer_string(one, "content");
        const unsigned long id = one->string ? strtoul(one->string, NULL, 10) : 0;
        if (!content || (id < t->size && t->flags[id] & TOKENIZER_ADDED)) continue;
        tokenizer_put_other(list, size, "added_tokens_decoder", content);
        return;
    }
}

/* Takes from a tokenizer_config.json what the tokenizer's own file leaves open, and notes what that has
   otherwise: versions of transformers differ in which of the two they follow. */
static inline int tokenizer_take_flags(tokenizer *t, const cJSON *config, int pairs, char *error) {
    char list[240] = "";
    if (!tokenizer_take_ends(t, config, pairs, list, sizeof list, error)) return 0;
    tokenizer_compare_steps(t, config, list, sizeof list);
    tokenizer_compare_added(t, config, list, sizeof list);
    if (*list)
        snprintf(t->otherwise, sizeof t->otherwise, "tokenizer_config.json says %s; the tokenizer's own file "
                 "says otherwise and is followed", list);
    return 1;
}

/* How many bytes a file of that name in the folder of a file has; 0: there is none. */
static inline size_t tokenizer_beside(const char *path, const char *what, char *name, size_t size) {
    size_t folder = strlen(path);
    struct stat about;
    while (folder && path[folder - 1] != '/' && path[folder - 1] != '\\') folder--;
    snprintf(name, size, "%.*s%s", (int)folder, path, what);
    return stat(name, &about) ? 0 : S_ISREG(about.st_mode) ? (size_t)about.st_size : 1;
}

/* The tokenizer_config.json in the folder of the file; *config is NULL where there is none. */
static inline int tokenizer_load_config(const char *path, cJSON **config, char *error) {
    char name[4200], *text;
    size_t n;
    *config = NULL;
    if (!tokenizer_beside(path, "tokenizer_config.json", name, sizeof name)) return 1;
    if (!(text = tokenizer_load(name, &n, error))) return 0;
    *config = cJSON_ParseWithLength(text, n);
    free(text);
    return cJSON_IsObject(*config) || tokenizer_fail(error, "%.300s: this is no JSON object", name);
}

/* What stands beside a vocab.txt as tokenizer_read_lines has it. */
static inline int tokenizer_lines_cased(const cJSON *config, size_t added) {
    const cJSON *strip = tokenizer_field(config, "strip_accents");
    int lower = tokenizer_flag(config, "do_lower_case", 1);
    int more = added || !tokenizer_flag(config, "tokenize_chinese_chars", 1) ||
               !tokenizer_flag(config, "do_basic_tokenize", 1);
    return lower | (cJSON_IsBool(strip) && cJSON_IsTrue(strip) != lower ? 2 : 0) | (more ? 4 : 0);
}

/* Is it a file of that name, in whatever folder? A checkpoint's M.tokenizer.json has its own template. */
static inline int tokenizer_is_named(const char *path, const char *name) {
    size_t n = strlen(path), length = strlen(name);
    if (n < length || strcmp(path + n - length, name)) return 0;
    return n == length || path[n - length - 1] == '/' || path[n - length - 1] == '\\';
}

/* Opens one file, with what stands in the tokenizer_config.json beside it. */
static inline int tokenizer_open_file(tokenizer *t, const char *path, const char *second, char *error) {
    char line[TOKENIZER_ERROR], name[4200], *text, *more = NULL;
    const char *class_name;
    size_t n, n_more = 0, added = tokenizer_beside(path, "added_tokens.json", name, sizeof name);
    cJSON *config;
    gguf_file g;
    int done;
    if (!(text = tokenizer_load(path, &n, error))) return 0;
    if (n == TOKENIZER_MAGIC && !memcmp(text, "GGUF", 4)) {
        free(text);
        if (!gguf_open(&g, path, line)) return tokenizer_fail(error, "%.300s: %s", path, line);
        return done = tokenizer_read_gguf(t, &g, path, error), gguf_close(&g), done;
    }
    if (second && !(more = tokenizer_load(second, &n_more, error))) return free(text), 0;
    if (!tokenizer_load_config(path, &config, error))
        return free(text), free(more), cJSON_Delete(config), 0;
    class_name = tokenizer_string(config, "tokenizer_class");
    added = added > 4; /* {} adds none */
    if (second && ((class_name && strncmp(class_name, "GPT2Tokenizer", 13)) || added)) {
        tokenizer_fail(error, "%.200s: the pairs %s%.60s need their tokenizer.json", path,
                       added ? "beside " : "of a ", added ? "added_tokens.json" : class_name);
        return free(text), free(more), cJSON_Delete(config), 0;
    }
    done = second ? tokenizer_read_pairs(t, text, n, more, n_more, path, error)
                  : tokenizer_read_cased(t, text, n, tokenizer_lines_cased(config, added), path, error);
    if (done && config) tokenizer_take_config(t, config);
    if (done && config && (second || tokenizer_is_named(path, "tokenizer.json"))) {
        done = tokenizer_take_flags(t, config, second != NULL, error);
        if (!done) tokenizer_close(t);
    }
    free(text), free(more), cJSON_Delete(config);
    return done;
}

/* Opens a tokenizer: a file of any known kind; the vocabulary of encoder.json + vocab.bpe or of vocab.json +
   merges.txt; a folder with one of these, tokenizer.json before all. A tokenizer_config.json beside it says
   whether a vocab.txt is cased (do_lower_case, strip_accents), which tokens begin and end texts, and, where
   no post-processor does, whether they are added. */
static inline int tokenizer_open(tokenizer *t, const char *path, char *error) {
    static const char *const files[][2] = {{"tokenizer.json", NULL}, {"encoder.json", "vocab.bpe"},
                                           {"vocab.json", "merges.txt"}, {"vocab.txt", NULL}};
    char name[2][4200];
    const char *fault;
    size_t n = strlen(path), length;
    memset(t, 0, sizeof *t);
    if (n > 4000) return tokenizer_fail(error, "the path of a tokenizer is too long");
    for (size_t i = 1; i < 3; i++) { /* the vocabulary, whose merges stand beside it */
        length = strlen(files[i][0]);
        if (n < length || strcmp(path + n - length, files[i][0])) continue;
        snprintf(name[1], sizeof name[1], "%.*s%s", (int)(n - length), path, files[i][1]);
        return tokenizer_open_file(t, path, name[1], error);
    }
    if (tokenizer_is_file(path)) return tokenizer_open_file(t, path, NULL, error);
    for (size_t i = 0; i < 4; i++) {
        for (int k = 0; k < 2; k++)
            snprintf(name[k], sizeof name[k], "%s/%s", path, files[i][k] ? files[i][k] : "");
        if (!tokenizer_is_file(name[0])) continue;
        return tokenizer_open_file(t, name[0], files[i][1] ? name[1] : NULL, error);
    }
    fault = regular_fault(path);
    return tokenizer_fail(error, "there is no tokenizer at %.300s%s", path,
                          strcmp(fault, REGULAR_FOLDER) ? fault : "");
}

/* ---- Writing tokenizer.json ---- */

/* Appends a text as JSON has it; 0: no memory. */
static inline int tokenizer_put_json(tokenizer_bytes *out, const char *s, size_t n) {
    size_t from = 0;
    char escape[8];
    if (!tokenizer_put(out, "\"", 1)) return 0;
    for (size_t at = 0; at < n; at++) {
        unsigned char c = (unsigned char)s[at];
        if (c >= 32 && c != '"' && c != '\\') continue;
        snprintf(escape, sizeof escape, c < 32 ? "\\u%04x" : "\\%c", c);
        if (!tokenizer_put(out, s + from, at - from) || !tokenizer_put(out, escape, strlen(escape))) return 0;
        from = at + 1;
    }
    return tokenizer_put(out, s + from, n - from) && tokenizer_put(out, "\"", 1);
}

static inline int tokenizer_put_text(tokenizer_bytes *out, const char *s) {
    return tokenizer_put(out, s, strlen(s));
}

/* Appends a token as it is written in files: byte-level ones in GPT-2's letters for bytes. */
static inline int tokenizer_put_written(tokenizer_bytes *out, const tokenizer *t, int32_t id) {
    const char *s = t->bytes + t->begin[id];
    size_t n = tokenizer_length(t, id);
    char letter[4];
    if (!t->byte_level || t->flags[id] & TOKENIZER_LITERAL) return tokenizer_put(out, s, n);
    for (size_t i = 0; i < n; i++)
        if (!tokenizer_put(out, letter, tokenizer_utf8(tokenizer_letter_of((unsigned char)s[i]), letter)))
            return 0;
    return 1;
}

/* Can JSON, as it is read here, hold this? */
static inline int tokenizer_writable(const char *s, size_t n) {
    int32_t c;
    for (size_t at = 0; at < n;) {
        at += tokenizer_char(s + at, n - at, &c);
        if (c <= 0) return 0;
    }
    return 1;
}

/* Appends the vocabulary: a list of tokens and scores, or tokens and ids, one a line. */
static inline int tokenizer_put_vocabulary(tokenizer_bytes *out, const tokenizer *t, char *error) {
    int list = t->kind == TOKENIZER_UNIGRAM, first = 1, done = 1;
    tokenizer_bytes token;
    char number[40];
    memset(&token, 0, sizeof token);
    done = tokenizer_put_text(out, list ? "[" : "{");
    for (int32_t id = 0; done && (size_t)id < t->size; id++) {
        if (!(t->flags[id] & TOKENIZER_MODEL)) continue;
        token.n = 0;
        done = tokenizer_put(&token, "", 0) && tokenizer_put_written(&token, t, id);
        if (done && !tokenizer_writable(token.at, token.n))
            return free(token.at),
                   tokenizer_fail(error, "token %ld is no UTF-8, so JSON cannot hold it", (long)id);
        if (list) snprintf(number, sizeof number, ",%.17g]", t->scores[id]);
        else snprintf(number, sizeof number, ":%ld", (long)id);
        for (char *at = number + 1; list && *at; at++) /* whatever the locale's decimal point is */
            if (*at == ',') *at = '.';
        done = done && tokenizer_put_text(out, first ? "\n" : ",\n") &&
               (!list || tokenizer_put_text(out, "[")) && tokenizer_put_json(out, token.at, token.n) &&
               tokenizer_put_text(out, number);
        first = 0;
    }
    free(token.at);
    return (done && tokenizer_put_text(out, list ? "]" : "}")) || tokenizer_no_memory(error);
}

/* Appends the merges: "a b", or ["a","b"] where tokens have blanks in them. */
static inline int tokenizer_put_merges(tokenizer_bytes *out, const tokenizer *t) {
    int pairs = 0, done = 1;
    tokenizer_bytes rule;
    memset(&rule, 0, sizeof rule);
    for (size_t i = 0; !pairs && !t->byte_level && i < t->begin[t->size]; i++) pairs = t->bytes[i] == ' ';
    for (size_t i = 0; done && i < t->n_merges; i++) {
        const tokenizer_merge *m = t->merges + i;
        rule.n = 0;
        done = tokenizer_put_text(out, i ? ",\n" : "\n") && tokenizer_put_written(&rule, t, m->left);
        if (done && pairs) {
            done = tokenizer_put_text(out, "[") && tokenizer_put_json(out, rule.at, rule.n) &&
                   tokenizer_put_text(out, ",");
            rule.n = 0;
        } else done = done && tokenizer_put_text(&rule, " ");
        done = done && tokenizer_put_written(&rule, t, m->right) &&
               tokenizer_put_json(out, rule.at, rule.n) && (!pairs || tokenizer_put_text(out, "]"));
    }
    free(rule.at);
    return done;
}

/* Appends a node of the outline: its name, then what it is. */
static inline int tokenizer_put_node(tokenizer_bytes *out, const char *name, const cJSON *node,
                                     const char *otherwise) {
    char *text = node ? cJSON_PrintUnformatted(node) : NULL;
    int done = (text || !node) && tokenizer_put_json(out, name, strlen(name)) &&
               tokenizer_put_text(out, ":") && tokenizer_put_text(out, text ? text : otherwise);
    cJSON_free(text);
    return done;
}

/* Appends "special_ids", unless the names of the special tokens say the same. */
static inline int tokenizer_put_roles(tokenizer_bytes *out, const tokenizer *t) {
    tokenizer had = *t, named = *t;
    const char *name;
    char number[64];
    int differ = 0, first = 1;
    for (int i = 0; i < TOKENIZER_ROLES; i++)
        if (i != 3) *tokenizer_role(&named, i, &name) = -1;
    tokenizer_name_specials(&named);
    for (int i = 0; i < TOKENIZER_ROLES; i++)
        differ |= *tokenizer_role(&had, i, &name) >= 0 &&
                  *tokenizer_role(&had, i, &name) != *tokenizer_role(&named, i, &name);
    if (differ && !tokenizer_put_text(out, "\"special_ids\":{")) return 0;
    for (int i = 0; differ && i < TOKENIZER_ROLES; i++) {
        int32_t id = *tokenizer_role(&had, i, &name);
        if (id < 0) continue;
        snprintf(number, sizeof number, "%s\"%s\":%ld", first ? "" : ",", name, (long)id), first = 0;
        if (!tokenizer_put_text(out, number)) return 0;
    }
    return !differ || tokenizer_put_text(out, "},\n");
}

/* Appends the tokenizer as the text of a tokenizer.json. */
static inline int tokenizer_write(const tokenizer *t, tokenizer_bytes *out, char *error) {
    static const char *const names[][2] = {
        {"version", "\"1.0\""}, {"truncation", "null"}, {"padding", "null"}, {"added_tokens", "[]"},
        {"normalizer", "null"}, {"pre_tokenizer", "null"}, {"post_processor", "null"}, {"decoder", "null"}};
    cJSON *outline = cJSON_Parse(t->outline);
    const cJSON *field, *model = tokenizer_field(outline, "model");
    int done = outline != NULL;
    for (size_t i = 0; done && i < sizeof names / sizeof *names; i++)
        done = tokenizer_put_text(out, i ? ",\n" : "{\n") &&
               tokenizer_put_node(out, names[i][0], tokenizer_field(outline, names[i][0]), names[i][1]);
    done = done && tokenizer_put_text(out, ",\n\"model\":{");
    for (field = model ? model->child : NULL; done && field; field = field->next)
        if (strcmp(field->string, "merges_tie") && strcmp(field->string, "special_ids"))
            done = tokenizer_put_node(out, field->string, field, "null") && tokenizer_put_text(out, ",\n");
    if (t->ties) done = done && tokenizer_put_text(out, "\"merges_tie\":true,\n");
    cJSON_Delete(outline);
    done = done && tokenizer_put_roles(out, t);
    if (!done || !tokenizer_put_text(out, "\"vocab\":")) return tokenizer_no_memory(error);
    if (!tokenizer_put_vocabulary(out, t, error)) return 0;
    if (t->kind == TOKENIZER_BPE)
        done = tokenizer_put_text(out, ",\n\"merges\":[") && tokenizer_put_merges(out, t) &&
               tokenizer_put_text(out, "]");
    return (done && tokenizer_put_text(out, "}}\n")) || tokenizer_no_memory(error);
}

/* What a save to `path` replaces, to be freed: the path, or the file that a link there names; NULL where that
   is no regular file. *mode gets the permissions of an old file, 0 of a new one. */
static inline char *tokenizer_replaced(const char *path, int *mode) {
    struct stat about;
    char *target = NULL;
    *mode = 0;
#ifndef _WIN32
    target = realpath(path, NULL);
    if (!target && lstat(path, &about) == 0) return NULL;
    if (target && (stat(target, &about) || !S_ISREG(about.st_mode))) return free(target), (char *)NULL;
    if (target) *mode = about.st_mode & 0777;
#else
    if (stat(path, &about) == 0 && !S_ISREG(about.st_mode)) return NULL;
#endif
    return target ? target : tokenizer_copy(path, strlen(path));
}

/* Writes a file of its own beside the target, which it then replaces. */
static inline int tokenizer_replace(const char *target, int mode, const tokenizer_bytes *text) {
    size_t size = strlen(target) + 40;
    char *name = (char *)malloc(size);
    FILE *file = NULL;
    int fd = -1, done;
    for (int tries = 0; name && fd < 0 && tries < 100; tries++) {
        snprintf(name, size, "%s.%lx.%d.tmp", target, (unsigned long)getpid(), tries);
        fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0666);
    }
#ifdef _WIN32
    (void)mode;
#else
    if (fd >= 0 && mode) (void)!fchmod(fd, (mode_t)mode);
#endif
    if (fd >= 0 && !(file = fdopen(fd, "wb"))) close(fd);
    done = file && fwrite(text->at, 1, text->n, file) == text->n;
    if (file) done &= fclose(file) == 0;
#ifdef _WIN32
    if (done) (void)remove(target);
#endif
    done = done && rename(name, target) == 0;
    if (!done && fd >= 0) (void)remove(name);
    free(name);
    return done;
}

/* Writes a tokenizer.json, whatever the tokenizer was read from; read again it has the same identity.
   The file
   is written beside and renamed, so that there is the old one or the new one at any time. */
static inline int tokenizer_save(const tokenizer *t, const char *path, char *error) {
    tokenizer_bytes text;
    char line[TOKENIZER_ERROR], *target;
    int mode, done;
    memset(&text, 0, sizeof text);
    if (!tokenizer_write(t, &text, line))
        return free(text.at), tokenizer_fail(error, "cannot write %.200s: %s", path, line);
    target = tokenizer_replaced(path, &mode);
    done = target && tokenizer_replace(target, mode, &text);
    free(target), free(text.at);
    return done || tokenizer_fail(error, "cannot write %.300s", path);
}

#endif
