/* words.h - the words of a text: counted, made into a WordPiece vocabulary, and searched for by BM25. In the
   manner of text.h: static functions without globals, 1 for success and 0 for failure with one line in
   `error`, and a failed call leaves nothing allocated. A word is what text_next_word says. Without
   libutf8proc (WITH_TOKENIZER is not defined) letters beyond ASCII stay as they are. */
#ifndef WORDS_H
#define WORDS_H

#include "text.h"

#include <math.h>

#ifdef WITH_TOKENIZER
#include <utf8proc.h>
#endif

/* ---- Characters and words ---- */

enum { TEXT_WORD = 100 }; /* most characters of a word that is looked into */

typedef struct text_word {
    char bytes[4 * TEXT_WORD];
    size_t n, characters; /* beyond TEXT_WORD characters, only counted */
} text_word;

static inline size_t text_utf8(uint32_t c, char *s) {
    size_t length = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4, i;
    for (i = length; i-- > 1; c >>= 6) s[i] = (char)(0x80 | (c & 0x3F));
    s[0] = (char)(length == 1 ? c : (0xF00u >> length & 0xFF) | c);
    return length;
}

static inline int text_is_ideograph(uint32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
           (c >= 0x2A700 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

#ifdef WITH_TOKENIZER
static inline int text_is_punctuation(uint32_t c) {
    utf8proc_category_t kind = utf8proc_category((utf8proc_int32_t)c);
    if (c < 128) return c > ' ' && c < 127 && !strchr("abcdefghijklmnopqrstuvwxyz0123456789", (int)(c | 32));
    return kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO;
}

static inline int text_is_space(uint32_t c) {
    return c == '\t' || c == '\n' || c == '\r' ||
           utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_ZS;
}

static inline int text_is_control(uint32_t c) {
    utf8proc_category_t kind = utf8proc_category((utf8proc_int32_t)c);
    return !c || c == 0xFFFD || kind == UTF8PROC_CATEGORY_CC || kind == UTF8PROC_CATEGORY_CF;
}

/* A character in lower case and without its accents: what it decomposes into but marks, 0 to 4 characters. */
static inline size_t text_plain(uint32_t c, uint32_t plain[4]) {
    utf8proc_int32_t parts[16];
    int bound = 0;
    utf8proc_ssize_t n = utf8proc_decompose_char(utf8proc_tolower((utf8proc_int32_t)c), parts, 16,
                                                 UTF8PROC_DECOMPOSE, &bound);
    size_t used = 0;
    for (utf8proc_ssize_t i = 0; i < n && i < 16 && used < 4; i++)
        if (utf8proc_category(parts[i]) != UTF8PROC_CATEGORY_MN) plain[used++] = (uint32_t)parts[i];
    return used;
}
#else
static inline int text_is_punctuation(uint32_t c) {
    return c > ' ' && c < 127 && !(c >= '0' && c <= '9') && !((c | 32) >= 'a' && (c | 32) <= 'z');
}

static inline int text_is_space(uint32_t c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static inline int text_is_control(uint32_t c) { return c < 32 || c == 127; }

static inline size_t text_plain(uint32_t c, uint32_t plain[4]) {
    plain[0] = c >= 'A' && c <= 'Z' ? c + 32 : c;
    return 1;
}
#endif

/* The next word of a text from *at on, which is moved behind it; 0 when there is none. As BERT's uncased
   models read: control characters and what is no UTF-8 dropped, lower case, accents off, ideographs and
   punctuation words of their own. */
static inline int text_next_word(text_slice text, size_t *at, text_word *word) {
    word->n = word->characters = 0;
    while (*at < text.n) {
        uint32_t c, plain[4];
        size_t length = text_decode(text.at + *at, text.n - *at, &c), n = 0, i;
        int space = text_is_space(c), alone = 0;
        if (!space && !text_is_control(c)) n = text_plain(c, plain);
        if (n) alone = text_is_punctuation(plain[0]) || text_is_ideograph(plain[0]);
        if ((space || alone) && word->characters) return 1;
        *at += length;
        for (i = 0; i < n; i++)
            if (word->characters++ < TEXT_WORD) word->n += text_utf8(plain[i], word->bytes + word->n);
        if (alone) return 1;
    }
    return word->characters > 0;
}

/* ---- A bag: different strings, numbered as they come, with counts ---- */

typedef struct text_bag {
    char *bytes;
    size_t *begin, *count; /* [n + 1]: where each string begins in bytes; [n]: how often it was added */
    size_t *slots;         /* hash table of numbers + 1, 0 = free */
    size_t n, n_slots, most_bytes;
} text_bag;

static inline void text_bag_close(text_bag *b) {
    free(b->bytes), free(b->begin), free(b->count), free(b->slots);
    memset(b, 0, sizeof *b);
}

static inline text_slice text_bag_at(const text_bag *b, size_t i) {
    text_slice s;
    s.at = b->bytes + b->begin[i], s.n = b->begin[i + 1] - b->begin[i];
    return s;
}

/* The slot that holds the number + 1 of a string, or where it would be put. */
static inline size_t *text_bag_slot(const text_bag *b, text_slice s) {
    uint64_t hash = 14695981039346656037u;
    size_t i;
    for (i = 0; i < s.n; i++) hash = (hash ^ (unsigned char)s.at[i]) * 1099511628211u;
    for (i = (size_t)(hash ^ hash >> 29) & (b->n_slots - 1); b->slots[i]; i = (i + 1) & (b->n_slots - 1))
        if (text_same(text_bag_at(b, b->slots[i] - 1), s)) break;
    return b->slots + i;
}

/* The number of a string, or b->n if it is not there. */
static inline size_t text_bag_find(const text_bag *b, text_slice s) {
    size_t number = b->n_slots ? *text_bag_slot(b, s) : 0;
    return number ? number - 1 : b->n;
}

/* Twice the slots; numbers and counts grow with them. */
static inline int text_bag_grow(text_bag *b) {
    size_t slots = b->n_slots ? 2 * b->n_slots : 1024, i;
    size_t *begin = (size_t *)text_memory(b->begin, slots / 2 + 1, 1, sizeof *begin), *count, *table;
    if (begin) b->begin = begin;
    count = (size_t *)text_memory(b->count, slots / 2, 1, sizeof *count);
    if (count) b->count = count;
    table = (size_t *)calloc(slots, sizeof *table);
    if (!begin || !count || !table) return free(table), 0;
    free(b->slots);
    b->slots = table, b->n_slots = slots, b->begin[0] = 0;
    for (i = 0; i < b->n; i++) *text_bag_slot(b, text_bag_at(b, i)) = i + 1;
    return 1;
}

/* Adds `times` to the count of a string, new ones from 0; *number (or NULL) is its own.
   After a failure the bag is closed. */
static inline int text_bag_add(text_bag *b, text_slice s, size_t times, size_t *number, char *error) {
    size_t *slot, used;
    if (2 * b->n >= b->n_slots && !text_bag_grow(b))
        return text_bag_close(b), text_fail(error, "no memory for words");
    slot = text_bag_slot(b, s), used = b->begin[b->n];
    if (!*slot) {
        if (used + s.n > b->most_bytes) {
            char *more = (char *)text_memory(b->bytes, b->most_bytes + s.n + 4096, 2, 1);
            if (!more) return text_bag_close(b), text_fail(error, "no memory for words");
            b->bytes = more, b->most_bytes = 2 * (b->most_bytes + s.n + 4096);
        }
        if (s.n) memcpy(b->bytes + used, s.at, s.n);
        b->count[b->n] = 0, b->begin[b->n + 1] = used + s.n, *slot = ++b->n;
    }
    b->count[*slot - 1] += times;
    if (number) *number = *slot - 1;
    return 1;
}

static inline text_slice text_word_slice(const text_word *word) {
    text_slice s;
    s.at = word->bytes, s.n = word->n;
    return s;
}

/* Adds the words of a text, those apart that are too long for WordPiece. */
static inline int text_bag_words(text_bag *b, text_slice text, char *error) {
    text_word word;
    size_t at = 0;
    while (text_next_word(text, &at, &word))
        if (word.characters <= TEXT_WORD && !text_bag_add(b, text_word_slice(&word), 1, NULL, error))
            return 0;
    return 1;
}

/* The numbers of the strings, the most frequent first, equal ones by their bytes: an order that no hashing
   can change. By merging from the bottom up; order [2 n], the first half is the result. */
static inline void text_bag_order(const text_bag *b, size_t *order) {
    size_t run, from, i;
    for (i = 0; i < b->n; i++) order[i] = i;
    for (run = 1; run < b->n; run *= 2) {
        size_t *sorted = order + b->n;
        for (from = 0; from < b->n; from += 2 * run) {
            size_t left = from, mid = from + run < b->n ? from + run : b->n, right = mid,
                   end = mid + run < b->n ? mid + run : b->n;
            for (i = from; i < end; i++) {
                int second = left == mid;
                if (left < mid && right < end) {
                    text_slice x = text_bag_at(b, order[left]), y = text_bag_at(b, order[right]);
                    size_t p = b->count[order[left]], q = b->count[order[right]];
                    int bytes = memcmp(y.at, x.at, x.n < y.n ? x.n : y.n);
                    second = q != p ? q > p : bytes ? bytes < 0 : y.n < x.n;
                }
                sorted[i] = order[second ? right++ : left++];
            }
        }
        memcpy(order, sorted, b->n * sizeof *order);
    }
}

/* ---- Learning a vocabulary ---- */

enum { TEXT_TAIL = 4 }; /* most characters of a learnt ending */

/* Adds "##" + some bytes, or the bytes alone, to a bag. */
static inline int text_add_piece(text_bag *b, int inside, const char *bytes, size_t n, size_t times,
                                 char *error) {
    char piece[4 * TEXT_WORD + 2] = "##";
    text_slice s;
    memcpy(piece + 2, bytes, n);
    s.at = inside ? piece : piece + 2, s.n = inside ? n + 2 : n;
    return text_bag_add(b, s, times, NULL, error);
}

/* Adds the characters of a word as pieces, as the first of a word and, those that can be, behind it; and the
   endings of two to TEXT_TAIL characters, which count once a word. */
static inline int text_add_pieces(text_bag *characters, text_bag *endings, text_slice word, size_t times,
                                  char *error) {
    size_t start[TEXT_WORD], n = 0, at = 0, i;
    while (at < word.n && n < TEXT_WORD) {
        uint32_t c;
        start[n] = at, at += text_decode(word.at + at, word.n - at, &c);
        if (!text_add_piece(characters, 0, word.at + start[n], at - start[n], times, error)) return 0;
        if (!text_is_punctuation(c) && !text_is_ideograph(c) &&
            !text_add_piece(characters, 1, word.at + start[n], at - start[n], times, error)) return 0;
        n++;
    }
    for (i = n > TEXT_TAIL ? n - TEXT_TAIL : 1; i + 1 < n; i++)
        if (!text_add_piece(endings, 1, word.at + start[i], word.n - start[i], 1, error)) return 0;
    return 1;
}

/* Adds the strings of a bag to a list of different ones, the most frequent first, while the list has fewer
   than `most` and they come `least` times or more. */
static inline int text_list(text_bag *list, const text_bag *from, size_t most, size_t least, char *error) {
    size_t *order = (size_t *)text_memory(NULL, from->n + 1, 2, sizeof *order), i;
    int done = 1;
    if (!order) return text_bag_close(list), text_fail(error, "no memory for a vocabulary");
    text_bag_order(from, order);
    for (i = 0; done && i < from->n && list->n < most && from->count[order[i]] >= least; i++)
        done = text_bag_add(list, text_bag_at(from, order[i]), 1, NULL, error);
    free(order);
    return done;
}

/* The strings of a bag as lines, in the order of their numbers; *text is to be freed. */
static inline int text_lines_of(const text_bag *b, char **text, size_t *bytes, char *error) {
    *bytes = 0, *text = (char *)malloc((b->n ? b->begin[b->n] : 0) + b->n + 1);
    if (!*text) return text_fail(error, "no memory for a vocabulary");
    for (size_t i = 0; i < b->n; i++) {
        text_slice s = text_bag_at(b, i);
        memcpy(*text + *bytes, s.at, s.n), *bytes += s.n;
        (*text)[(*bytes)++] = '\n';
    }
    return 1;
}

/* Learns a WordPiece vocabulary of about `size` tokens from the words of texts: [PAD] [UNK] [CLS] [SEP]
   [MASK]; every character of the texts, alone and as "##x", so that every word of these characters can be
   spelled (however small `size` is); up to size / 16 endings such as "##ing"; then the most frequent words
   that come at least twice. The same texts give the same vocabulary, a vocab.txt: *vocabulary, to be freed,
   of *bytes. */
static inline int text_learn(const text_slice *texts, size_t n, size_t size, char **vocabulary, size_t *bytes,
                             char *error) {
    static const char *const special[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    text_bag words, characters, endings, list;
    int done = 1;
    size_t i;
    memset(&words, 0, sizeof words), characters = endings = list = words;
    for (i = 0; done && i < n; i++) done = text_bag_words(&words, texts[i], error);
    for (i = 0; done && i < words.n; i++)
        done = text_add_pieces(&characters, &endings, text_bag_at(&words, i), words.count[i], error);
    for (i = 0; done && i < 5; i++) done = text_bag_add(&list, text_of(special[i]), 1, NULL, error);
    done = done && text_list(&list, &characters, (size_t)-1, 1, error) &&
           text_list(&list, &endings, list.n + size / 16 < size ? list.n + size / 16 : size, 2, error) &&
           text_list(&list, &words, size, 2, error) && text_lines_of(&list, vocabulary, bytes, error);
    text_bag_close(&words), text_bag_close(&characters), text_bag_close(&endings), text_bag_close(&list);
    return done;
}

/* ---- BM25 ---- */

/* How much a word tells that df of n passages have: Lucene's inverse document frequency, never negative. */
static inline double text_idf(size_t n, size_t df) {
    return log(1 + ((double)n - (double)df + 0.5) / ((double)df + 0.5));
}

/* Robertson's weighting of words that question and passage share, with k1 1.2 and b 0.75:
       sum over the question's words  idf tf (k1 + 1) / (tf + k1 (1 - b + b length / mean length)).
   Words are whole, in lower case and without accents; no stemming, no list of stop
   words; punctuation does not count. */
typedef struct text_term { size_t word, times; } text_term;
typedef struct text_bm25 {
    text_bag words;                       /* counts: in how many passages */
    text_term *terms;                     /* of all passages, one after another */
    size_t *start, *length;               /* [n + 1] terms; [n] words */
    size_t n;
    double mean, *weight;                 /* weight [words]: of the question at hand; zeros in between */
} text_bm25;

static inline void text_bm25_close(text_bm25 *m) {
    text_bag_close(&m->words), free(m->terms), free(m->start), free(m->length), free(m->weight);
    memset(m, 0, sizeof *m);
}

/* The next word that is no punctuation */
static inline int text_next_term(text_slice text, size_t *at, text_word *word) {
    uint32_t c = 0;
    do {
        if (!text_next_word(text, at, word)) return 0;
        text_decode(word->bytes, word->n, &c);
    } while (word->characters == 1 && text_is_punctuation(c));
    return 1;
}

/* The terms of passage number p, appended; seen [words]: 1 + the term of the word in
   this passage, if beyond its start. */
static inline int text_bm25_add(text_bm25 *m, size_t p, text_slice text, size_t **seen, size_t *room,
                                size_t *most, char *error) {
    text_word word;
    size_t at = 0, n = m->start[p], number = 0, i;
    for (m->length[p] = 0; text_next_term(text, &at, &word); m->length[p]++) {
        if (!text_bag_add(&m->words, text_word_slice(&word), 0, &number, error)) return 0;
        if (number >= *room) {
            size_t *more = (size_t *)text_memory(*seen, number + 512, 2, sizeof *more);
            if (!more) return text_fail(error, "no memory for the words of %zu passages", m->n);
            for (*seen = more, i = *room; i < 2 * (number + 512); i++) more[i] = 0;
            *room = i;
        }
        if ((*seen)[number] > m->start[p]) {
            m->terms[(*seen)[number] - 1].times++;
            continue;
        }
        if (n == *most) {
            text_term *more = (text_term *)text_memory(m->terms, *most = 2 * n + 4096, 1, sizeof *more);
            if (!more) return text_fail(error, "no memory for the words of %zu passages", m->n);
            m->terms = more;
        }
        m->terms[n].word = number, m->terms[n].times = 1, (*seen)[number] = ++n, m->words.count[number]++;
    }
    m->start[p + 1] = n;
    return 1;
}

static inline int text_bm25_init(text_bm25 *m, const text_slice *passages, size_t n, char *error) {
    size_t *seen = NULL, room = 0, most = 0, p, total = 0;
    int done;
    memset(m, 0, sizeof *m);
    m->n = n, m->start = (size_t *)calloc(n + 1, sizeof *m->start);
    m->length = (size_t *)text_memory(NULL, n + 1, 1, sizeof *m->start);
    done = m->start && m->length ? 1 : text_fail(error, "no memory for the words of %zu passages", n);
    for (p = 0; done && p < n; p++)
        done = text_bm25_add(m, p, passages[p], &seen, &room, &most, error), total += m->length[p];
    m->mean = total ? (double)total / (double)n : 1;
    if (done) m->weight = (double *)calloc(m->words.n + 1, sizeof *m->weight);
    if (done && !m->weight) done = text_fail(error, "no memory for the words of %zu passages", n);
    free(seen);
    if (!done) text_bm25_close(m);
    return done;
}

/* The score of every passage: scores [n]. */
static inline void text_bm25_scores(text_bm25 *m, text_slice question, double *scores) {
    const double k1 = 1.2, b = 0.75;
    text_word word;
    size_t p, i, at, number;
    for (at = 0; text_next_term(question, &at, &word);) {
        number = text_bag_find(&m->words, text_word_slice(&word));
        if (number < m->words.n) m->weight[number] += text_idf(m->n, m->words.count[number]);
    }
    for (p = 0; p < m->n; p++)
        for (scores[p] = 0, i = m->start[p]; i < m->start[p + 1]; i++) {
            double times = (double)m->terms[i].times, weight = m->weight[m->terms[i].word];
            if (weight > 0)
                scores[p] +=
                    weight * times * (k1 + 1) / (times + k1 * (1 - b + b * (double)m->length[p] / m->mean));
        }
    for (at = 0; text_next_term(question, &at, &word);)
        m->weight[text_bag_find(&m->words, text_word_slice(&word))] = 0;
}

/* ---- Lists of passages ---- */

/* The k best of n scores above 0, the best first, equal ones in their order; -1 where there are fewer. */
static inline void text_rank(const double *scores, size_t n, size_t k, int64_t *list) {
    size_t used = 0, i, at;
    for (i = 0; i < n && k; i++) {
        if (!(scores[i] > (used == k ? scores[list[k - 1]] : 0))) continue;
        for (at = used < k ? used++ : k - 1; at && scores[i] > scores[list[at - 1]]; at--)
            list[at] = list[at - 1];
        list[at] = (int64_t)i;
    }
    while (used < k) list[used++] = -1;
}

/* Adds 1 / (60 + place) to the score of every passage of a list, the first in place 1: reciprocal rank fusion
   with the constant of its paper (Cormack, Clarke and Buettcher, SIGIR 2009). */
static inline void text_fuse(const int64_t *list, size_t n, double *scores) {
    for (size_t i = 0; i < n && list[i] >= 0; i++) scores[list[i]] += 1 / (60 + (double)(i + 1));
}

/* Does a text hold these words, capital or small? (ASCII) */
static inline int text_contains(text_slice text, text_slice words) {
    size_t i, j;
    for (i = 0; i + words.n <= text.n; i++) {
        for (j = 0; j < words.n; j++) {
            int a = (unsigned char)text.at[i + j], b = (unsigned char)words.at[j];
            if (a != b && ((a | 32) != (b | 32) || (a | 32) < 'a' || (a | 32) > 'z')) break;
        }
        if (j == words.n) return 1;
    }
    return 0;
}

/* Does passage p of n answer a question? The answer is words that it has to contain, or numbers of passages
   counted from 1: "#12 #57". With p = n: how many numbers there are. */
static inline size_t text_answers(text_slice answer, const text_slice *passages, size_t n, size_t p) {
    size_t count = 0, i = 0;
    if (!answer.n || answer.at[0] != '#') return answer.n && p < n && text_contains(passages[p], answer);
    while (i < answer.n) {
        size_t value = 0, digits = 0;
        if (answer.at[i++] != '#') continue;
        for (; i < answer.n && answer.at[i] >= '0' && answer.at[i] <= '9'; i++, digits++)
            value = 10 * value + (size_t)(answer.at[i] - '0');
        if (digits && p < n && value == p + 1) return 1;
        count += digits > 0;
    }
    return p < n ? 0 : count;
}

#endif
