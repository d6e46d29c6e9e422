/* Learning a byte pair encoding: against one that counts all pairs anew for every merge, on texts made to
   have ties and runs of one letter. */
#include "check.h"
#include "../examples/tools/bpe.h"

enum { TOKENS = 400, LETTERS = 4000 };

/* ---- The slow way ---- */

typedef struct slow {
    uint32_t letters[LETTERS], word[LETTERS]; /* all words, one after another; which word, for its count */
    uint64_t count[LETTERS];
    size_t n;
    char token[TOKENS][64];
    size_t length[TOKENS], tokens;
    uint32_t a[TOKENS], b[TOKENS], id[TOKENS];
    size_t merges;
} slow;

/* The most frequent pair of neighbours, of equals that of the smaller ids. */
static uint64_t slow_best(const slow *s, uint32_t *a, uint32_t *b) {
    static uint64_t counts[TOKENS][TOKENS];
    uint64_t best = 0;
    uint32_t i, j;
    memset(counts, 0, sizeof counts);
    for (i = 0; i + 1 < s->n; i++)
        if (s->word[i] == s->word[i + 1]) counts[s->letters[i]][s->letters[i + 1]] += s->count[s->word[i]];
    for (i = 0; i < s->tokens; i++)
        for (j = 0; j < s->tokens; j++)
            if (counts[i][j] > best) best = counts[i][j], *a = i, *b = j;
    return best;
}

static uint32_t slow_token(slow *s, uint32_t a, uint32_t b) {
    char both[128];
    size_t n = s->length[a] + s->length[b];
    uint32_t i;
    memcpy(both, s->token[a], s->length[a]), memcpy(both + s->length[a], s->token[b], s->length[b]);
    for (i = 0; i < s->tokens; i++)
        if (s->length[i] == n && !memcmp(s->token[i], both, n)) return i;
    memcpy(s->token[i], both, n), s->length[i] = n, s->tokens++;
    return i;
}

static void slow_learn(slow *s, size_t size, uint64_t least) {
    uint32_t a = 0, b = 0, id;
    size_t i, to;
    uint64_t best;
    while (s->tokens < size && (best = slow_best(s, &a, &b)) > 0 && best >= least) {
        id = slow_token(s, a, b);
        for (i = to = 0; i < s->n; to++)
            if (i + 1 < s->n && s->letters[i] == a && s->letters[i + 1] == b && s->word[i] == s->word[i + 1])
                s->word[to] = s->word[i], s->letters[to] = id, i += 2;
            else s->word[to] = s->word[i], s->letters[to] = s->letters[i], i++;
        s->n = to;
        s->a[s->merges] = a, s->b[s->merges] = b, s->id[s->merges++] = id;
    }
}

/* ---- Both ---- */

/* Gives all bytes an id, so that their order differs from that of their values. */
static void bytes(bpe_merges *m, uint32_t *ids) {
    uint32_t i;
    memset(m, 0, sizeof *m);
    for (i = 0; i < 256; i++) {
        char byte = (char)((i * 7 + 31) % 256);
        ids[(unsigned char)byte] = bpe_word_of(&m->tokens, &byte, 1);
        CHECK(ids[(unsigned char)byte] == i);
    }
}

static void both_ways(size_t words, size_t longest, size_t letters, size_t size, uint64_t least) {
    static slow s;
    bpe_words w;
    bpe_merges m;
    uint32_t ids[256], i;
    size_t j, word;
    memset(&s, 0, sizeof s), memset(&w, 0, sizeof w);
    bytes(&m, ids);
    for (i = 0; i < 256; i++) s.token[ids[i]][0] = (char)i, s.length[ids[i]] = 1;
    s.tokens = 256;
    for (word = 0; word < words && s.n + longest <= LETTERS; word++) {
        char text[64];
        size_t n = 1 + check_below(longest), times = 1 + check_below(3);
        for (j = 0; j < n; j++, s.n++) {
            text[j] = (char)('a' + check_below(letters));
            s.letters[s.n] = ids[(unsigned char)text[j]], s.word[s.n] = (uint32_t)word;
        }
        for (s.count[word] = times; times; times--) CHECK(bpe_count(&w, text, n));
    }
    slow_learn(&s, size, least);
    CHECK(bpe_learn(&m, &w, ids, size, least));
    CHECK_THAT(m.n == s.merges && m.tokens.n == s.tokens, "%zu merges and %zu tokens, not %zu and %zu", m.n,
               m.tokens.n, s.merges, s.tokens);
    for (j = 0; j < m.n && j < s.merges; j++)
        if (!CHECK_THAT(m.at[j].a == s.a[j] && m.at[j].b == s.b[j] && m.at[j].id == s.id[j],
                        "merge %zu: %u %u -> %u, not %u %u -> %u", j, m.at[j].a, m.at[j].b, m.at[j].id,
                        s.a[j], s.b[j], s.id[j])) break;
    for (j = 0; j < m.tokens.n && j < s.tokens; j++)
        CHECK(m.tokens.word[j].n == s.length[j] &&
              !memcmp(m.tokens.bytes + m.tokens.word[j].at, s.token[j], s.length[j]));
    bpe_words_close(&w), bpe_merges_close(&m);
}

static void against_the_slow_way(void) {
    int i;
    for (i = 0; i < (check_quick() ? 5 : 20); i++) {
        both_ways(60, 12, 3, 340, 1);
        both_ways(30, 30, 2, 330, 2);
        both_ways(100, 6, 5, 330, 3);
        both_ways(8, 30, 1, 320, 1);
    }
    both_ways(0, 1, 1, 300, 1);
    both_ways(5, 1, 3, 300, 1); /* no pair at all */
    both_ways(9, 9, 3, 256, 1); /* nothing wanted */
}

int main(void) {
    against_the_slow_way();
    return check_end();
}
