/* bpe.h - learns a byte-level byte pair encoding from texts of any length, as Hugging Face's trainer does it:
   256 bytes first, then again and again the most frequent pair of neighbours becomes a token.

   A text is cut into pieces (words with the blank before them, numbers, signs) as it will be for encoding,
   and only the different pieces and how often each came are held. Of pairs that are equally frequent the one
   of the smaller ids goes first, the left id before the right one, so that the result depends on nothing but
   the text. Special tokens in the text separate what stands around them.

       bpe_trainer trainer;
       bpe_options options = {8192, 2, "gpt2", NULL, 0};
       if (!bpe_open(&trainer, &options, error) || !bpe_put(&trainer, text, n, error) ||
           !bpe_finish(&trainer, &tokenizer, error)) ..
       bpe_close(&trainer);

   Static functions; they return 1, or 0 with one line in `error` (TOKENIZER_ERROR bytes). */
#ifndef BPE_H
#define BPE_H

#include "../tokenizer.h"
#include "streams.h"

/* ---- Words and how often each came ---- */

typedef struct bpe_word {
    uint64_t count;
    size_t at; /* where its bytes begin */
    uint32_t n, hash;
} bpe_word;

typedef struct bpe_words {
    char *bytes; /* of all words, one after another */
    size_t n_bytes, room;
    bpe_word *word;
    size_t n, words_room;
    uint32_t *slots; /* [n_slots, a power of two]: number of a word + 1; 0: free */
    size_t n_slots;
} bpe_words;

static inline void bpe_words_close(bpe_words *w) {
    free(w->bytes), free(w->word), free(w->slots);
    memset(w, 0, sizeof *w);
}

/* Makes room for `need` things of `size` bytes, half as many again as there was. */
static inline int bpe_room(void **memory, size_t *room, size_t need, size_t size) {
    size_t more = *room + *room / 2 + 64;
    void *larger;
    if (need <= *room) return 1;
    if (more < need) more = need;
    if (!(larger = text_memory(*memory, more, 1, size))) return 0;
    *memory = larger, *room = more;
    return 1;
}

static inline uint64_t bpe_mix(uint64_t x) {
    x = (x ^ x >> 32) * 0x9E3779B97F4A7C15u;
    return x ^ x >> 29;
}

static inline uint32_t bpe_hash(const char *s, size_t n) {
    uint64_t hash = n, eight;
    for (; n >= 8; s += 8, n -= 8) memcpy(&eight, s, 8), hash = bpe_mix(hash ^ eight);
    eight = 0;
    if (n) memcpy(&eight, s, n);
    return (uint32_t)bpe_mix(hash ^ eight);
}

/* Doubles the slots and finds every word its new one. */
static inline int bpe_words_spread(bpe_words *w) {
    size_t n = w->n_slots ? 2 * w->n_slots : 1024, i, at;
    uint32_t *slots = n > w->n_slots ? (uint32_t *)calloc(n, sizeof *slots) : NULL;
    if (!slots) return 0;
    for (i = 0; i < w->n; i++) {
        for (at = w->word[i].hash & (n - 1); slots[at]; at = (at + 1) & (n - 1)) {}
        slots[at] = (uint32_t)i + 1;
    }
    free(w->slots), w->slots = slots, w->n_slots = n;
    return 1;
}

/* The number of a word, which is added where it is new; UINT32_MAX: no memory, or too much. */
static inline uint32_t bpe_word_of(bpe_words *w, const char *s, size_t n) {
    uint32_t hash = bpe_hash(s, n);
    bpe_word *word;
    size_t at;
    if (2 * w->n >= w->n_slots && !bpe_words_spread(w)) return UINT32_MAX;
    for (at = hash & (w->n_slots - 1); w->slots[at]; at = (at + 1) & (w->n_slots - 1)) {
        word = w->word + w->slots[at] - 1;
        if (word->hash == hash && word->n == n && !memcmp(w->bytes + word->at, s, n)) return w->slots[at] - 1;
    }
    if (n >= UINT32_MAX / 2 || w->n >= UINT32_MAX / 2 || w->n_bytes + n < n ||
        !bpe_room((void **)&w->bytes, &w->room, w->n_bytes + n, 1) ||
        !bpe_room((void **)&w->word, &w->words_room, w->n + 1, sizeof *w->word))
        return UINT32_MAX;
    word = w->word + w->n;
    word->count = 0, word->at = w->n_bytes, word->n = (uint32_t)n, word->hash = hash;
    if (n) memcpy(w->bytes + w->n_bytes, s, n);
    w->n_bytes += n, w->slots[at] = (uint32_t)++w->n;
    return (uint32_t)w->n - 1;
}

/* Counts a piece of the text; 0 where memory is short. */
static inline int bpe_count(bpe_words *w, const char *s, size_t n) {
    uint32_t number = n ? bpe_word_of(w, s, n) : 0;
    if (n && number != UINT32_MAX) w->word[number].count++;
    return number != UINT32_MAX;
}

/* ---- Pairs ----

   All different words lie one after another in `symbols`, which has a place for every byte: the id of a token
   stands on its first byte and on its last, so that both neighbours of a token are one look away, whatever
   has been merged. A pair keeps the places where it was seen; those where it no longer stands are passed over
   when its turn comes. So a merge costs what it changes, also in words of megabytes.

   A token always comes about in one way: what becomes it has stood between the same two ends from the start,
   and the same merges happened within. So both tokens of a pair are older than the pair, all its places are
   found in one step, from left to right, and once merged it never meets again. */

#define BPE_INNER UINT32_MAX      /* no end of a token */
#define BPE_EDGE (UINT32_MAX - 1) /* between two words */
#define BPE_NONE UINT32_MAX       /* end of a list */

typedef struct bpe_pair {
    uint32_t a, b;
    uint32_t head, tail; /* its places */
    uint64_t count;
} bpe_pair;

typedef struct bpe_place {
    uint32_t at, next;
} bpe_place;

typedef struct bpe_turn { /* a pair waits for its turn */
    uint64_t count;
    uint32_t pair;
} bpe_turn;

typedef struct bpe_merge {
    uint32_t a, b, id;
} bpe_merge;

typedef struct bpe_merges {
    bpe_words tokens; /* their bytes, by id */
    bpe_merge *at;
    size_t n, room;
} bpe_merges;

typedef struct bpe_learner {
    const bpe_words *words;
    bpe_merges *merges;
    uint32_t *symbols, *owner; /* [n_symbols]: see above; number of the word */
    size_t n_symbols;
    bpe_pair *pairs;
    size_t n_pairs, pairs_room;
    uint32_t *slots; /* [n_slots]: number of a pair + 1 */
    size_t n_slots;
    bpe_place *places;
    size_t n_places, places_room;
    uint32_t spare; /* places to be used again */
    bpe_turn *heap; /* the most frequent first */
    size_t n_heap, heap_room;
} bpe_learner;

static inline void bpe_merges_close(bpe_merges *m) {
    bpe_words_close(&m->tokens), free(m->at);
    memset(m, 0, sizeof *m);
}

static inline void bpe_learner_close(bpe_learner *l) {
    free(l->symbols), free(l->owner), free(l->pairs), free(l->slots), free(l->places), free(l->heap);
    memset(l, 0, sizeof *l);
}

static inline uint32_t bpe_length(const bpe_learner *l, uint32_t id) {
    return l->merges->tokens.word[id].n;
}

/* Does the pair x come before y? */
static inline int bpe_first(const bpe_learner *l, bpe_turn x, bpe_turn y) {
    const bpe_pair *p = l->pairs + x.pair, *q = l->pairs + y.pair;
    if (x.count != y.count) return x.count > y.count;
    return p->a != q->a ? p->a < q->a : p->b < q->b;
}

static inline int bpe_push(bpe_learner *l, uint32_t pair) {
    bpe_turn turn;
    size_t at = l->n_heap, up;
    turn.count = l->pairs[pair].count, turn.pair = pair;
    if (!bpe_room((void **)&l->heap, &l->heap_room, at + 1, sizeof turn)) return 0;
    for (l->n_heap++; at && bpe_first(l, turn, l->heap[up = (at - 1) / 2]); at = up)
        l->heap[at] = l->heap[up];
    l->heap[at] = turn;
    return 1;
}

/* Takes the first turn of a heap that is not empty. */
static inline bpe_turn bpe_pop(bpe_learner *l) {
    bpe_turn first = l->heap[0], last = l->heap[--l->n_heap];
    size_t at = 0, down;
    for (; (down = 2 * at + 1) < l->n_heap; at = down) {
        if (down + 1 < l->n_heap && bpe_first(l, l->heap[down + 1], l->heap[down])) down++;
        if (!bpe_first(l, l->heap[down], last)) break;
        l->heap[at] = l->heap[down];
    }
    l->heap[at] = last;
    return first;
}

static inline size_t bpe_slot(const bpe_learner *l, uint32_t a, uint32_t b) {
    return (size_t)bpe_mix((uint64_t)a << 32 | b) & (l->n_slots - 1);
}

static inline int bpe_pairs_spread(bpe_learner *l) {
    size_t n = l->n_slots ? 2 * l->n_slots : 4096, i, at;
    uint32_t *slots = n > l->n_slots ? (uint32_t *)calloc(n, sizeof *slots) : NULL;
    if (!slots) return 0;
    free(l->slots), l->slots = slots, l->n_slots = n;
    for (i = 0; i < l->n_pairs; i++) {
        for (at = bpe_slot(l, l->pairs[i].a, l->pairs[i].b); slots[at]; at = (at + 1) & (n - 1)) {}
        slots[at] = (uint32_t)i + 1;
    }
    return 1;
}

/* The pair of two neighbours, new if need be; NULL: no memory for a new one. */
static inline bpe_pair *bpe_pair_of(bpe_learner *l, uint32_t a, uint32_t b) {
    bpe_pair *p;
    size_t at;
    for (at = bpe_slot(l, a, b); l->slots[at]; at = (at + 1) & (l->n_slots - 1)) {
        p = l->pairs + l->slots[at] - 1;
        if (p->a == a && p->b == b) return p;
    }
    if (l->n_pairs >= UINT32_MAX - 1 ||
        !bpe_room((void **)&l->pairs, &l->pairs_room, l->n_pairs + 1, sizeof *p))
        return NULL;
    p = l->pairs + l->n_pairs;
    p->a = a, p->b = b, p->head = p->tail = BPE_NONE, p->count = 0;
    l->slots[at] = (uint32_t)++l->n_pairs;
    return 2 * l->n_pairs <= l->n_slots || bpe_pairs_spread(l) ? p : NULL;
}

/* Two neighbours have met at a place, `count` times. */
static inline int bpe_meet(bpe_learner *l, uint32_t a, uint32_t b, size_t place, uint64_t count) {
    bpe_pair *p = bpe_pair_of(l, a, b);
    uint32_t at = l->spare;
    if (!p) return 0;
    if (at != BPE_NONE) l->spare = l->places[at].next;
    else if (l->n_places >= UINT32_MAX - 1 ||
             !bpe_room((void **)&l->places, &l->places_room, l->n_places + 1, sizeof *l->places)) return 0;
    else at = (uint32_t)l->n_places++;
    l->places[at].at = (uint32_t)place, l->places[at].next = BPE_NONE;
    if (p->head == BPE_NONE) p->head = at;
    else l->places[p->tail].next = at;
    p->tail = at, p->count += count;
    return 1;
}

/* Lines up the pairs from number `first` on. */
static inline int bpe_queue(bpe_learner *l, size_t first) {
    for (; first < l->n_pairs; first++)
        if (l->pairs[first].count && !bpe_push(l, (uint32_t)first)) return 0;
    return 1;
}

/* Lays the words out as bytes, whose ids are ids[byte], and lets all neighbours meet. */
static inline int bpe_lay_out(bpe_learner *l, const uint32_t *ids) {
    const bpe_words *w = l->words;
    size_t i, j, at = 1;
    l->n_symbols = w->n_bytes + w->n + 1, l->spare = BPE_NONE;
    if (l->n_symbols >= UINT32_MAX - 1) return 0;
    l->symbols = (uint32_t *)text_memory(NULL, l->n_symbols, 1, sizeof *l->symbols);
    l->owner = (uint32_t *)text_memory(NULL, l->n_symbols, 1, sizeof *l->owner);
    if (!l->symbols || !l->owner || !bpe_pairs_spread(l)) return 0;
    l->symbols[0] = BPE_EDGE;
    for (i = 0; i < w->n; i++, l->symbols[at++] = BPE_EDGE)
        for (j = 0; j < w->word[i].n; j++, at++) {
            l->symbols[at] = ids[(unsigned char)w->bytes[w->word[i].at + j]], l->owner[at] = (uint32_t)i;
            if (j && !bpe_meet(l, l->symbols[at - 1], l->symbols[at], at - 1, w->word[i].count)) return 0;
        }
    return bpe_queue(l, 0);
}

/* Makes a and b at a place one token, if they still stand there. */
static inline int bpe_merge_at(bpe_learner *l, bpe_merge m, size_t at) {
    size_t middle = at + bpe_length(l, m.a), end = middle + bpe_length(l, m.b);
    uint32_t left, right;
    uint64_t count;
    if (l->symbols[at] != m.a || l->symbols[middle] != m.b) return 1;
    left = l->symbols[at - 1], right = l->symbols[end], count = l->words->word[l->owner[at]].count;
    l->symbols[middle - 1] = l->symbols[middle] = BPE_INNER;
    l->symbols[at] = l->symbols[end - 1] = m.id;
    if (left != BPE_EDGE) {
        bpe_pair_of(l, left, m.a)->count -= count; /* they have met: it is there */
        if (!bpe_meet(l, left, m.id, at - bpe_length(l, left), count)) return 0;
    }
    if (right == BPE_EDGE) return 1;
    bpe_pair_of(l, m.b, right)->count -= count;
    return bpe_meet(l, m.id, right, at, count);
}

/* The bytes of two tokens together: a new token; UINT32_MAX: no memory */
static inline uint32_t bpe_join(bpe_words *tokens, uint32_t a, uint32_t b) {
    size_t n = tokens->word[a].n, m = tokens->word[b].n;
    uint32_t id = UINT32_MAX;
    char *both = (char *)text_memory(NULL, n + m, 1, 1);
    if (!both) return id;
    memcpy(both, tokens->bytes + tokens->word[a].at, n);
    memcpy(both + n, tokens->bytes + tokens->word[b].at, m);
    id = bpe_word_of(tokens, both, n + m);
    free(both);
    return id;
}

/* Merges a pair wherever it stands. */
static inline int bpe_merge_pair(bpe_learner *l, uint32_t pair) {
    size_t n_pairs = l->n_pairs;
    bpe_pair p = l->pairs[pair];
    bpe_merge m;
    uint32_t at;
    m.a = p.a, m.b = p.b, m.id = bpe_join(&l->merges->tokens, p.a, p.b);
    if (m.id == UINT32_MAX) return 0;
    for (at = p.head; at != BPE_NONE; at = l->places[at].next)
        if (!bpe_merge_at(l, m, l->places[at].at)) return 0;
    l->places[p.tail].next = l->spare, l->spare = p.head;
    l->pairs[pair].count = 0;
    if (!bpe_queue(l, n_pairs)) return 0;
    if (!bpe_room((void **)&l->merges->at, &l->merges->room, l->merges->n + 1, sizeof m)) return 0;
    l->merges->at[l->merges->n++] = m;
    return 1;
}

/* Learns merges until there are `size` tokens or no pair came `least` times. m->tokens has the 256 bytes;
   ids: which of them each byte is. */
static inline int bpe_learn(bpe_merges *m, const bpe_words *words, const uint32_t *ids, size_t size,
                            uint64_t least) {
    bpe_learner l;
    int fine;
    memset(&l, 0, sizeof l);
    l.words = words, l.merges = m;
    fine = bpe_lay_out(&l, ids);
    while (fine && m->tokens.n < size && l.n_heap) {
        bpe_turn turn = bpe_pop(&l);
        uint64_t now = l.pairs[turn.pair].count;
        if (turn.count != now) fine = !now || bpe_push(&l, turn.pair);
        else if (now < least) break;
        else fine = bpe_merge_pair(&l, turn.pair);
    }
    bpe_learner_close(&l);
    return fine;
}

/* ---- From texts to a tokenizer ---- */

typedef struct bpe_options {
    size_t size;                /* tokens wanted: the special ones, 256 bytes, merges */
    uint64_t min_count;         /* a pair seen less often is not merged */
    const char *split;          /* gpt2, llama3, qwen2, o200k, tekken: as there; none: lines are words */
    const char *const *special; /* [n_special], the first ids */
    size_t n_special;
} bpe_options;

typedef struct bpe_trainer {
    const bpe_options *options;
    tokenizer bytes;            /* of special tokens and bytes alone: it cuts the texts */
    tokenizer_stream stream;
    tokenizer_ids found;        /* special tokens in the text */
    bpe_words words;
} bpe_trainer;

static inline void bpe_close(bpe_trainer *b) {
    tokenizer_stream_close(&b->stream), tokenizer_ids_free(&b->found);
    bpe_words_close(&b->words), tokenizer_close(&b->bytes);
    memset(b, 0, sizeof *b);
}

/* The tokenizer.json of such a split and such special tokens, without vocabulary. NULL: no memory, or no such
   split, which *known tells. */
static inline cJSON *bpe_outline(const bpe_options *o, int *known) {
    static const char *const names[] = {"gpt2", "llama3", "qwen2", "o200k", "tekken", "none", NULL};
    size_t n, i;
    const tokenizer_pattern *patterns = tokenizer_patterns(&n), *pattern = NULL;
    int gpt2 = !strcmp(o->split, "gpt2"), alone = gpt2 || !strcmp(o->split, "none"), fine; /* no Split */
    char text[1024];
    cJSON *outline;
    for (i = 0; i < n; i++)
        if (!strcmp(patterns[i].name, o->split)) pattern = patterns + i;
    if (!(*known = tokenizer_among(o->split, names) >= 0)) return NULL;
    snprintf(text, sizeof text,
             "{'version':'1.0','truncation':null,'padding':null,'added_tokens':[],'normalizer':%s,"
             "'pre_tokenizer':%s{'type':'ByteLevel','add_prefix_space':false,'trim_offsets':true,"
             "'use_regex':%s}%s,'post_processor':null,'decoder':{'type':'ByteLevel','add_prefix_space':false,"
             "'trim_offsets':true,'use_regex':true},'model':{'type':'BPE','dropout':null,'unk_token':null,"
             "'continuing_subword_prefix':null,'end_of_word_suffix':null,'fuse_unk':false,"
             "'byte_fallback':false,'ignore_merges':false}}",
             strcmp(o->split, "qwen2") ? "null" : "{'type':'NFC'}",
             alone ? "" : "{'type':'Sequence','pretokenizers':[{'type':'Split','pattern':{},"
                          "'behavior':'Isolated','invert':false},",
             gpt2 ? "true" : "false", alone ? "" : "]}");
    outline = tokenizer_outline(text), fine = outline != NULL;
    if (fine && !alone) {
        const cJSON *list = tokenizer_field(tokenizer_field(outline, "pre_tokenizer"), "pretokenizers");
        cJSON *split = cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(list, 0), "pattern");
        fine = cJSON_AddStringToObject(split, "Regex", pattern->text) != NULL;
    }
    for (i = 0; fine && i < o->n_special; i++)
        fine = tokenizer_outline_token(outline, (int32_t)i, o->special[i]);
    if (!fine) cJSON_Delete(outline);
    return fine ? outline : NULL;
}

/* Appends bytes in GPT-2's letters for them. */
static inline int bpe_put_letters(tokenizer_bytes *out, const char *s, size_t n) {
    char letter[4];
    for (size_t i = 0; i < n; i++) {
        int32_t c = tokenizer_letter_of((unsigned char)s[i]);
        if (!tokenizer_put(out, letter, tokenizer_utf8(c, letter))) return 0;
    }
    return 1;
}

/* Is a special token written like one that is learnt? */
static inline const char *bpe_clash(const bpe_options *o, const size_t *begin, const char *letters,
                                    size_t n) {
    for (size_t i = 0; i < o->n_special; i++)
        for (size_t j = 0, length = strlen(o->special[i]); j < n; j++)
            if (begin[j + 1] - begin[j] == length && !memcmp(letters + begin[j], o->special[i], length))
                return o->special[i];
    return NULL;
}

/* A tokenizer of the special tokens, and tokens and merges of m. */
static inline int bpe_build(tokenizer *t, const bpe_options *o, const bpe_merges *m, char *error) {
    int known, done;
    cJSON *outline = bpe_outline(o, &known);
    size_t n = m->tokens.n, i, *begin = (size_t *)text_memory(NULL, n + 1, 1, sizeof *begin);
    const char *clash;
    tokenizer_bytes letters;
    tokenizer_parts parts;
    memset(&letters, 0, sizeof letters), memset(&parts, 0, sizeof parts), memset(t, 0, sizeof *t);
    done = outline && begin;
    for (i = 0; done && i < n; i++) {
        const bpe_word *token = m->tokens.word + i;
        begin[i] = letters.n, done = bpe_put_letters(&letters, m->tokens.bytes + token->at, token->n);
    }
    if (done) begin[n] = letters.n;
    for (i = 0; done && i < o->n_special; i++)
        done = tokenizer_put_entry(&parts, o->special[i], strlen(o->special[i]), (int32_t)i, 0);
    for (i = 0; done && i < n; i++)
        done = tokenizer_put_entry(&parts, letters.at + begin[i], begin[i + 1] - begin[i],
                                   (int32_t)(o->n_special + i), 0);
    for (i = 0; done && i < m->n; i++) {
        size_t a = m->at[i].a, b = m->at[i].b;
        done = tokenizer_put_rule(&parts, letters.at + begin[a], begin[a + 1] - begin[a],
                                  letters.at + begin[b], begin[b + 1] - begin[b]);
    }
    if (done && (clash = bpe_clash(o, begin, letters.at, n)) != NULL)
        done = tokenizer_fail(error, "the special token %.100s is written like one that was learnt", clash);
    else if (done) done = tokenizer_build(t, outline, &parts, "the trained tokenizer", error);
    else if (!known) tokenizer_fail(error, "there is no split %.100s", o->split);
    else tokenizer_no_memory(error);
    tokenizer_parts_close(&parts), cJSON_Delete(outline), free(letters.at), free(begin);
    return done;
}

/* The 256 bytes in the order of their letters; ids[byte]: its number. */
static inline int bpe_alphabet(bpe_merges *m, uint32_t *ids) {
    memset(m, 0, sizeof *m);
    for (int32_t c = 0; c < 512; c++) {
        char byte = (char)tokenizer_byte_of(c);
        if (tokenizer_byte_of(c) < 0) continue;
        if ((ids[(unsigned char)byte] = bpe_word_of(&m->tokens, &byte, 1)) == UINT32_MAX) return 0;
    }
    return 1;
}

static inline int bpe_count_piece(void *words, const char *s, size_t n) {
    return bpe_count((bpe_words *)words, s, n);
}

/* Begins. The options stay until the trainer is closed. */
static inline int bpe_open(bpe_trainer *b, const bpe_options *o, char *error) {
    bpe_merges m;
    uint32_t ids[256];
    size_t i, j;
    int done;
    memset(b, 0, sizeof *b);
    if (o->size < 256 + o->n_special || o->size > INT32_MAX / 2)
        return tokenizer_fail(error, "%zu tokens are %s", o->size,
                              o->size > INT32_MAX / 2 ? "too many"
                              : o->n_special ? "less than the 256 bytes and the special ones"
                                             : "less than the 256 bytes");
    for (i = 0; i < o->n_special; i++) {
        size_t n = strlen(o->special[i]);
        if (n < 2 || !tokenizer_writable(o->special[i], n))
            return tokenizer_fail(error, "a special token has two letters or more, in UTF-8, not %.100s",
                                  o->special[i]);
        for (j = 0; j < i; j++)
            if (!strcmp(o->special[i], o->special[j]))
                return tokenizer_fail(error, "the special token %.100s is there twice", o->special[i]);
    }
    b->options = o;
    done = bpe_alphabet(&m, ids) ? bpe_build(&b->bytes, o, &m, error) : tokenizer_no_memory(error);
    bpe_merges_close(&m);
    if (!done) return 0;
    tokenizer_stream_open(&b->stream, &b->bytes, 0);
    b->stream.work.piece = bpe_count_piece, b->stream.work.user = &b->words;
    return 1;
}

/* Ends a text: what comes next is another one. */
static inline int bpe_end(bpe_trainer *b, char *error) {
    int done = tokenizer_stream_end(&b->stream, &b->found, error);
    b->found.n = 0;
    return done;
}

/* Counts the pieces of n bytes more of a text. Without a split every line is a text, so that no more than a
   line is held. */
static inline int bpe_put(bpe_trainer *b, const char *text, size_t n, char *error) {
    int lines = !strcmp(b->options->split, "none");
    while (n) {
        const char *end = lines ? (const char *)memchr(text, '\n', n) : NULL;
        size_t part = end ? (size_t)(end - text) + 1 : n;
        if (!tokenizer_stream_put(&b->stream, text, part, &b->found, error)) return 0;
        if (end && !bpe_end(b, error)) return 0;
        text += part, n -= part, b->found.n = 0;
    }
    return 1;
}

/* Learns from what was counted. Fewer tokens than wanted come out where no pair is left that was seen often
   enough. */
static inline int bpe_finish(bpe_trainer *b, tokenizer *t, char *error) {
    const bpe_options *o = b->options;
    bpe_merges m;
    uint32_t ids[256];
    int done;
    memset(t, 0, sizeof *t);
    if (!bpe_end(b, error)) return 0;
    done = bpe_alphabet(&m, ids) && bpe_learn(&m, &b->words, ids, o->size - o->n_special, o->min_count);
    done = done ? bpe_build(t, o, &m, error)
                : tokenizer_fail(error, "no memory for %zu different words", b->words.n);
    bpe_merges_close(&m);
    return done;
}

/* Reads a text to its end, and learns from it. */
static inline int bpe_train(tokenizer *t, FILE *text, const bpe_options *o, char *error) {
    char part[4096];
    bpe_trainer b;
    size_t n;
    int done = bpe_open(&b, o, error);
    memset(t, 0, sizeof *t);
    while (done && (n = fread(part, 1, sizeof part, text)) > 0) done = bpe_put(&b, part, n, error);
    if (done && ferror(text)) done = tokenizer_fail(error, "cannot read the text");
    done = done && bpe_finish(&b, t, error);
    bpe_close(&b);
    return done;
}

#endif
