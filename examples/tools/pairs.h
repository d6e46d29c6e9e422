/* pairs.h - pairs of prompt and answer, of which a model learns to answer: files of them, the template that
   makes a text of a pair, batches whose targets are the answers alone. In the manner of text.h: static
   functions without globals, 1 for success and 0 for failure with one line in `error`, and a failed call
   leaves nothing allocated. Include it after cmha.h. */
#ifndef PAIRS_H
#define PAIRS_H

#include "batches.h"

/* ---- Templates ---- */

/* A text with {prompt} and {answer} in it: what stands in front, between and behind. */
typedef struct pairs_template {
    char *text; /* of malloc; NULL: there is none */
    text_slice front, middle, rest;
} pairs_template;

static inline void pairs_template_close(pairs_template *t) {
    free(t->text);
    memset(t, 0, sizeof *t);
}

/* The place of `word` in n bytes, which come before `end`; NULL: it is not there. */
static inline const char *pairs_find(const char *at, const char *end, const char *word) {
    size_t n = strlen(word);
    for (; (size_t)(end - at) >= n; at++)
        if (!memcmp(at, word, n)) return at;
    return NULL;
}

/* Reads a template of n bytes, which are copied. {answer} may be missing where nothing is learned: then it
   stands at the end. */
static inline int pairs_template_read(pairs_template *t, const char *text, size_t n, int learns,
                                      char *error) {
    const char *end, *prompt, *answer;
    memset(t, 0, sizeof *t);
    t->text = (char *)text_memory(NULL, n + 1, 1, 1);
    if (!t->text) return text_fail(error, "no memory for the template");
    if (n) memcpy(t->text, text, n);
    end = t->text + n, prompt = pairs_find(t->text, end, "{prompt}");
    answer = prompt ? pairs_find(prompt, end, "{answer}") : NULL;
    if (!prompt || (!answer && learns) || pairs_find(prompt + 1, end, "{prompt}") ||
        (answer && pairs_find(answer + 1, end, "{answer}")) || pairs_find(t->text, prompt, "{answer}")) {
        text_fail(error, "a template has {prompt} once and {answer} behind it, not %.*s",
                  n < 200 ? (int)n : 200, text);
        return pairs_template_close(t), 0;
    }
    t->front.at = t->text, t->front.n = (size_t)(prompt - t->text);
    t->middle.at = prompt + 8, t->middle.n = (size_t)((answer ? answer : end) - t->middle.at);
    t->rest.at = answer ? answer + 8 : end, t->rest.n = (size_t)(end - t->rest.at);
    return 1;
}

/* The template that was kept beside a checkpoint (pairs_template_save); none is no failure. */
static inline int pairs_template_find(pairs_template *t, const char *checkpoint, char *error) {
    char path[4096], *text;
    size_t n;
    int done;
    memset(t, 0, sizeof *t);
    if (!codec_own(checkpoint, ".template", path, sizeof path) &&
        (!codec_beside(checkpoint, ".template", path, sizeof path) || access(path, F_OK)))
        return 1;
    if (!text_read(path, 65536, &text, &n, error)) return 0;
    done = pairs_template_read(t, text, n, 0, error);
    return free(text), done;
}

/* Keeps a template beside a checkpoint. Without a template the one of an earlier training goes, as it does
   not belong to this checkpoint. */
static inline int pairs_template_save(const pairs_template *t, const char *checkpoint, char *error) {
    char path[4096];
    size_t n = t->text ? (size_t)(t->rest.at + t->rest.n - t->text) : 0;
    text_file f;
    if (!codec_beside(checkpoint, ".template", path, sizeof path))
        return text_fail(error, "too long a name: %s", checkpoint);
    if (!t->text)
        return access(path, F_OK) || !remove(path) || text_fail(error, "cannot remove %s", path);
    if (!text_begin(&f, path, error)) return 0;
    fwrite(t->text, 1, n, f.file);
    return text_end(&f, 1, error);
}

/* ---- Files of pairs ---- */

/* The pairs of a file, as they stand there; both point into `text`. */
typedef struct pairs_file {
    char *text;
    text_slice *prompt, *answer; /* [n] */
    size_t n;
    size_t skipped, first_skipped; /* lines of a table that are no pair; the first one's number */
    size_t wider, first_wider;     /* lines with more columns than the table has */
    char unread[64];               /* the first other field of a JSON line, or empty */
} pairs_file;

static inline void pairs_file_close(pairs_file *f) {
    free(f->text), free(f->prompt), free(f->answer);
    memset(f, 0, sizeof *f);
}

/* Four hexadecimal digits, or -1. */
static inline long pairs_hex(const char *at, const char *end) {
    long value = 0;
    if (end - at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        char c = at[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 87 : -1;
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* Writes a character as UTF-8; returns how many bytes it has. */
static inline size_t pairs_utf8(long c, char *out) {
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char first[5] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = n; i-- > 1; c >>= 6) out[i] = (char)(0x80 | (c & 0x3F));
    return out[0] = (char)(first[n] | c), n;
}

/* Reads \uXXXX, or two of them that are one character, behind the u; returns the character, -1 where it is
   none, with *at behind it. */
static inline long pairs_escaped(const char **at, const char *end) {
    long c = pairs_hex(*at, end), low;
    if (c <= 0) return -1;
    *at += 4;
    if (c < 0xD800 || c > 0xDFFF) return c;
    if (c > 0xDBFF || end - *at < 6 || (*at)[0] != '\\' || (*at)[1] != 'u') return -1;
    low = pairs_hex(*at + 2, end);
    if (low < 0xDC00 || low > 0xDFFF) return -1;
    *at += 6;
    return 0x10000 + (c - 0xD800) * 1024 + (low - 0xDC00);
}

/* Reads a JSON string whose opening mark *at stands on, in place; 0 where it is none. */
static inline int pairs_string(char **at, const char *end, text_slice *string) {
    static const char names[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
    const char *in = *at + 1;
    char *out = *at;
    if (*at >= end || **at != '"') return 0;
    string->at = out;
    while (in < end && *in != '"') {
        const char *name;
        long c;
        if ((unsigned char)*in < 32) return 0;
        if (*in != '\\') {
            *out++ = *in++;
            continue;
        }
        if (++in == end) return 0;
        if (*in == 'u') {
            in++;
            if ((c = pairs_escaped(&in, end)) < 0) return 0;
            out += pairs_utf8(c, out);
        } else {
            if (!*in || (name = strchr(names, *in)) == NULL) return 0;
            *out++ = bytes[name - names], in++;
        }
    }
    if (in == end) return 0;
    string->n = (size_t)(out - string->at);
    *at += in + 1 - *at;
    return 1;
}

static inline void pairs_blanks(char **at, const char *end) {
    while (*at < end && (**at == ' ' || **at == '\t' || **at == '\r')) ++*at;
}

/* Steps over a value that nothing reads, however deep its lists are; 0 where it has no end. */
static inline int pairs_skip(char **at, const char *end) {
    size_t depth = 0;
    text_slice ignored;
    do {
        pairs_blanks(at, end);
        if (*at == end) return 0;
        if (**at == '"') {
            if (!pairs_string(at, end, &ignored)) return 0;
        } else if (**at == '{' || **at == '[') depth++, ++*at;
        else if (**at == '}' || **at == ']') {
            if (!depth--) return 0;
            ++*at;
        } else if (depth && (**at == ',' || **at == ':')) ++*at;
        else {
            size_t n = 0;
            while (*at + n < end && !strchr(" \t\r,:\"[]{}", (*at)[n])) n++;
            if (!n) return 0;
            *at += n;
        }
    } while (depth);
    return 1;
}

/* Reads {"prompt": "..", "answer": ".."}, a line of a file; 0 where it is something else. */
static inline int pairs_object(char *at, const char *end, pairs_file *f) {
    text_slice name, *slots[2];
    int seen[2] = {0, 0}, which;
    slots[0] = &f->prompt[f->n], slots[1] = &f->answer[f->n];
    pairs_blanks(&at, end);
    if (at == end || *at++ != '{') return 0;
    for (;;) {
        pairs_blanks(&at, end);
        if (!pairs_string(&at, end, &name)) return 0;
        pairs_blanks(&at, end);
        if (at == end || *at++ != ':') return 0;
        pairs_blanks(&at, end);
        which = text_same(name, text_of("prompt")) ? 0 : text_same(name, text_of("answer")) ? 1 : -1;
        if (which >= 0 && (seen[which]++ || !pairs_string(&at, end, slots[which]))) return 0;
        if (which < 0 && !pairs_skip(&at, end)) return 0;
        if (which < 0 && !*f->unread)
            snprintf(f->unread, sizeof f->unread, "%.*s", name.n < 60 ? (int)name.n : 60, name.at);
        pairs_blanks(&at, end);
        if (at < end && *at == ',') at++;
        else break;
    }
    if (at == end || *at++ != '}' || !seen[0] || !seen[1]) return 0;
    pairs_blanks(&at, end);
    return at == end;
}

static inline int pairs_objects(pairs_file *f, size_t bytes, const char *path, char *error) {
    const char *at = f->text, *end = f->text + bytes;
    for (size_t line = 1; at; line++) {
        text_slice one = text_line(&at, end);
        char *begin = f->text + (one.at - f->text), *stop = begin + one.n;
        pairs_blanks(&begin, stop);
        if (begin == stop) continue;
        if (!pairs_object(begin, stop, f))
            return text_fail(error, "%.200s, line %zu: not {\"prompt\": \"..\", \"answer\": \"..\"}", path,
                             line);
        f->n++;
    }
    return 1;
}

/* Counts the lines of a table that have more than so many columns. */
static inline void pairs_wider(pairs_file *f, size_t bytes, size_t columns) {
    const char *at = f->text, *end = f->text + bytes;
    for (size_t line = 1; at; line++) {
        text_slice one = text_line(&at, end);
        size_t n = 1;
        for (size_t i = 0; i < one.n; i++) n += one.at[i] == '\t';
        if (n > columns && !f->wider++) f->first_wider = line;
    }
}

/* A table of two columns, or of columns named prompt and answer in its first line. */
static inline int pairs_table(pairs_file *f, size_t bytes, const char *path, char *error) {
    static const char *const named[] = {"prompt", "answer"}, *const numbered[] = {"1", "2"};
    const char *at = f->text, *end = f->text + bytes;
    text_slice line = text_line(&at, end), cell;
    text_table t;
    int found[2] = {0, 0}, more = 1, header;
    size_t columns = 0;
    while (more) {
        more = text_cut_cell(&line, &cell), columns++;
        for (int i = 0; i < 2; i++) found[i] |= text_same(cell, text_of(named[i]));
    }
    header = found[0] && found[1];
    pairs_wider(f, bytes, header ? columns : 2);
    if (!text_table_parse(&t, f->text, bytes, path, header ? named : numbered, 2, error))
        return f->text = NULL, 0;
    for (; f->n < t.rows; f->n++)
        f->prompt[f->n] = text_cell(&t, f->n, 0), f->answer[f->n] = text_cell(&t, f->n, 1);
    f->skipped = t.skipped, f->first_skipped = t.first_skipped;
    t.text = NULL; /* f's */
    return text_table_close(&t), 1;
}

/* Reads pairs from a text of malloc, which is the file's from now on, whatever happens: JSON lines if it
   begins with {, else a table. `path` is for the error line. */
static inline int pairs_file_parse(pairs_file *f, char *text, size_t bytes, const char *path, char *error) {
    size_t lines = 2, skip = 0;
    int done;
    memset(f, 0, sizeof *f);
    f->text = text;
    if (bytes >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3)) memmove(text, text + 3, bytes -= 3);
    for (size_t i = 0; i < bytes; i++) lines += text[i] == '\n';
    f->prompt = (text_slice *)text_memory(NULL, lines, 1, sizeof *f->prompt);
    f->answer = (text_slice *)text_memory(NULL, lines, 1, sizeof *f->answer);
    if (!f->prompt || !f->answer) return pairs_file_close(f), text_fail(error, "no memory for %s", path);
    while (skip < bytes && strchr(" \t\r\n", text[skip]) && text[skip]) skip++;
    if (skip == bytes) return pairs_file_close(f), text_fail(error, "there are no pairs in %s", path);
    done = text[skip] == '{' ? pairs_objects(f, bytes, path, error) : pairs_table(f, bytes, path, error);
    if (done && !f->n) done = text_fail(error, "there are no pairs in %s", path);
    return done || (pairs_file_close(f), 0);
}

static inline int pairs_file_load(pairs_file *f, const char *path, char *error) {
    size_t bytes;
    char *text;
    memset(f, 0, sizeof *f);
    return text_read(path, (size_t)1 << 31, &text, &bytes, error) &&
           pairs_file_parse(f, text, bytes, path, error);
}

/* ---- Pairs as tokens ---- */

/* The tokens of all pairs, one after another. */
typedef struct pairs {
    codec_ids ids;
    size_t *start, *answer; /* [n + 1], [n]: where each pair begins, and its answer, among the ids */
    size_t n, longest, cut; /* pairs; most tokens of one; those of which tokens were cut off */
    size_t *order;          /* [n]: the pairs as an epoch takes them */
    uint64_t epoch;         /* that the order is of, from 1; 0: of none */
} pairs;

static inline void pairs_close(pairs *p) {
    codec_ids_free(&p->ids);
    free(p->start), free(p->answer), free(p->order);
    memset(p, 0, sizeof *p);
}

/* The token that ends an answer: the tokenizer's end of text, of bytes the zero byte; -1: there is none. */
static inline int32_t pairs_end(const codec *c) { return c->kind == CODEC_BYTES ? 0 : c->eos; }

/* Appends a template's text up to the answer, with the prompt in it, as a model is asked; special = 1: with
   what the tokenizer puts in front, but without what it puts behind. */
static inline int pairs_ask(const codec *c, const pairs_template *t, text_slice prompt, int special,
                            codec_ids *ids, char *error) {
    size_t n = t->front.n + prompt.n + t->middle.n, first = ids->n;
    char *text = (char *)text_memory(NULL, n + 1, 1, 1), *at = text;
    const text_slice parts[3] = {t->front, prompt, t->middle};
    int done;
    if (!text) return text_fail(error, "no memory for a prompt of %zu bytes", n);
    for (int i = 0; i < 3; i++) {
        if (parts[i].n) memcpy(at, parts[i].at, parts[i].n);
        at += parts[i].n;
    }
    done = codec_encode(c, text, n, special, ids, error);
    while (done && ids->n > first + 1) {
        if (ids->at[ids->n - 1] != c->eos && ids->at[ids->n - 1] != c->sep) break;
        ids->n--;
    }
    return free(text), done;
}

/* Appends pair number p->n in at most `length` + 1 tokens, 2 or more: of one that is longer the first tokens
   of the prompt go, then the last of the answer. */
static inline int pairs_put(pairs *p, const codec *c, const pairs_template *t, const text_slice pair[2],
                            size_t length, char *error) {
    codec_ids *ids = &p->ids;
    size_t begin = ids->n, over = 0, most;
    int32_t end = pairs_end(c);
    if (c->kind == CODEC_BYTES && (memchr(pair[0].at, 0, pair[0].n) || memchr(pair[1].at, 0, pair[1].n)))
        return text_fail(error, "it has a zero byte, which ends answers");
    if (!pairs_ask(c, t, pair[0], 1, ids, error)) return 0;
    if (ids->n == begin) return text_fail(error, "nothing stands before the answer");
    p->start[p->n] = begin, p->answer[p->n] = ids->n;
    if (!codec_encode(c, pair[1].at, pair[1].n, 0, ids, error) ||
        !codec_encode(c, t->rest.at, t->rest.n, 0, ids, error) ||
        (end >= 0 && !codec_append(ids, &end, 1, error))) return 0;
    if (ids->n == p->answer[p->n])
        return text_fail(error, "the answer is empty, and the tokenizer has no end of text");
    if (ids->n - begin > length + 1) over = ids->n - begin - (length + 1);
    if (over) {
        p->cut++, most = p->answer[p->n] - begin - 1; /* one token asks */
        if (over > most) ids->n -= over - most, over = most;
        memmove(ids->at + begin, ids->at + begin + over, (ids->n - begin - over) * sizeof *ids->at);
        ids->n -= over, p->answer[p->n] -= over;
    }
    if (ids->n - begin > p->longest) p->longest = ids->n - begin;
    p->start[++p->n] = ids->n;
    return 1;
}

/* Makes tokens of all pairs of a file, each at most `length` + 1. */
static inline int pairs_encode(pairs *p, const codec *c, const pairs_template *t, const pairs_file *f,
                               size_t length, char *error) {
    char why[TEXT_ERROR];
    memset(p, 0, sizeof *p);
    p->start = (size_t *)text_memory(NULL, f->n + 1, 1, sizeof *p->start);
    p->answer = (size_t *)text_memory(NULL, f->n + 1, 1, sizeof *p->answer);
    p->order = (size_t *)text_memory(NULL, f->n + 1, 1, sizeof *p->order);
    if (!p->start || !p->answer || !p->order)
        return pairs_close(p), text_fail(error, "no memory for %zu pairs", f->n);
    for (size_t i = 0; i < f->n; i++) {
        const text_slice pair[2] = {f->prompt[i], f->answer[i]};
        if (!pairs_put(p, c, t, pair, length, why))
            return pairs_close(p), text_fail(error, "pair %zu: %.400s", i + 1, why);
    }
    return 1;
}

/* The pair that comes as number `which` of a training that draws from the first n: every epoch takes each
   once, in an order of its own. */
static inline size_t pairs_drawn(pairs *p, size_t n, uint64_t which, uint64_t seed) {
    uint64_t epoch = which / n + 1;
    if (p->epoch != epoch) {
        for (size_t i = 0; i < n; i++) p->order[i] = i;
        text_shuffle(p->order, n, seed ^ epoch * 0x9E3779B97F4A7C15u);
        p->epoch = epoch;
    }
    return p->order[which % n];
}

/* Lays a pair out in a row of a batch of `length`: its tokens, and as targets those of the answer. */
static inline void pairs_row(const pairs *p, size_t which, size_t length, int32_t *ids, int32_t *targets,
                             unsigned char *mask) {
    const size_t begin = p->start[which], n = p->start[which + 1] - begin - 1;
    for (size_t i = 0; i < length; i++) {
        ids[i] = i < n ? p->ids.at[begin + i] : 0;
        targets[i] = i < n && begin + i + 1 >= p->answer[which] ? p->ids.at[begin + i + 1] : -1;
        mask[i] = i < n;
    }
}

#endif
