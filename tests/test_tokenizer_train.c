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

/* ---- The whole way ---- */

static char error[TOKENIZER_ERROR];

/* Trains on a text that comes in pieces of `piece` bytes. */
static int train(tokenizer *t, const bpe_options *o, const char *text, size_t n, size_t piece) {
    bpe_trainer b;
    int done = bpe_open(&b, o, error);
    memset(t, 0, sizeof *t);
    for (size_t at = 0; done && at < n; at += piece)
        done = bpe_put(&b, text + at, piece < n - at ? piece : n - at, error);
    done = done && bpe_finish(&b, t, error);
    bpe_close(&b), bpe_close(&b);
    return done;
}

/* The ids of a text and back again */
static void there_and_back(const tokenizer *t, const char *text, size_t n) {
    tokenizer_ids ids = {NULL, 0, 0};
    tokenizer_decoder d;
    char *out = (char *)check_alloc(t->longest + 8, 1);
    size_t at = 0, part, i;
    memset(&d, 0, sizeof d);
    CHECK(tokenizer_encode(t, text, n, 0, &ids, error));
    for (i = 0; i <= ids.n; i++) {
        part = i < ids.n ? tokenizer_decode(t, &d, ids.at[i], out) : tokenizer_decode_end(&d, out);
        CHECK(part <= n - at && !memcmp(out, text + at, part));
        at += part;
    }
    CHECK(at == n);
    tokenizer_ids_free(&ids), free(out);
}

static void whole(void) {
    static const char *const special[] = {"<|endoftext|>", "<|user|>"};
    static const char *const splits[] = {"gpt2", "llama3", "o200k", "none"};
    enum { LONG = 200000 };
    char *text = (char *)check_alloc(LONG, 1);
    for (size_t i = 0; i < LONG; i++)
        text[i] = check_below(60) ? "etaoin shrdlu\nET'1"[check_below(18)] : (char)check_below(256);
    memcpy(text + 1000, "<|endoftext|>", 13), memcpy(text + 65530, "<|endoftext|>", 13);
    for (int i = 0; i < 4; i++) {
        bpe_options o = {600, 2, splits[i], special, 2};
        tokenizer a, b;
        if (!CHECK_THAT(train(&a, &o, text, LONG, LONG), "%s", error)) continue;
        CHECK_THAT(train(&b, &o, text, LONG, 777), "%s", error);
        CHECK_THAT(!strcmp(a.identity, b.identity), "%s in pieces: another tokenizer", splits[i]);
        CHECK(a.size == 600 && a.n_merges == 600 - 258 && a.bos == 0 && a.n_added == 2);
        CHECK(tokenizer_find(&a, "!", 1) == 2 && tokenizer_find(&a, " ", 1) == 2 + 188 + 32);
        for (size_t id = 2; id < a.size; id++) { /* the marks of special tokens were no words */
            const char *mark = strstr(a.bytes + a.begin[id], "endof");
            CHECK(!mark || mark >= a.bytes + a.begin[id + 1]);
        }
        there_and_back(&a, text, LONG);
        tokenizer_close(&a), tokenizer_close(&b);
    }
    free(text);
}

/* Few words, none, and what is refused */
static void edges(void) {
    static const char *const twice[] = {"<a>", "<a>"}, *const letter[] = {"\xC3\x9C"}, *const one[] = {"a"},
                      *const empty[] = {""}, *const wrong[] = {"a\xFF" "b"}, *const blank[] = {"\xC4\xA0the"};
    static const char text[] = "the the the the";
    const bpe_options refused[] = {
        {255, 1, "gpt2", NULL, 0}, {256, 1, "gpt2", twice, 1}, {SIZE_MAX / 2, 1, "gpt2", NULL, 0},
        {300, 1, "gpt3", NULL, 0}, {300, 1, "", NULL, 0},      {300, 1, "gpt2", twice, 2},
        {300, 1, "gpt2", letter, 1}, {300, 1, "gpt2", one, 1}, {300, 1, "gpt2", empty, 1},
        {300, 1, "gpt2", wrong, 1},  {300, 1, "gpt2", blank, 1}};
    bpe_options o = {300, 2, "gpt2", NULL, 0};
    tokenizer t;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        *error = 0;
        CHECK_THAT(!train(&t, &refused[i], text, sizeof text - 1, 5), "%zu was not refused", i);
        CHECK(*error && !strchr(error, '\n'));
    }
    CHECK(train(&t, &o, "", 0, 1) && t.size == 256 && t.n_merges == 0);
    there_and_back(&t, text, sizeof text);
    tokenizer_close(&t);
    CHECK(train(&t, &o, text, sizeof text - 1, 1) && t.size == 259); /* th, the, and with a blank */
    there_and_back(&t, text, sizeof text);
    tokenizer_close(&t);
    o.min_count = 4;
    CHECK(train(&t, &o, text, sizeof text - 1, 1) && t.size == 258);
    tokenizer_close(&t);
    o.min_count = 5;
    CHECK(train(&t, &o, text, sizeof text - 1, 1) && t.size == 256);
    tokenizer_close(&t);
    o.min_count = 2, o.size = 256;
    CHECK(train(&t, &o, text, sizeof text - 1, 1) && t.size == 256);
    tokenizer_close(&t);
}

int main(void) {
    against_the_slow_way();
    whole();
    edges();
    return check_end();
}
