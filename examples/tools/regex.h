/* regex.h - regular expressions of tokenizers that are not known by heart, by PCRE2 (WITH_PCRE2; link
   -lpcre2-8). They are Oniguruma's: what that reads otherwise than PCRE2 is refused. No pattern takes more
   than its text's share of time, whatever it is.

   Static functions, no globals; a compiled pattern is never written to: threads may share it. */
#ifndef REGEX_H
#define REGEX_H

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* The same line wherever the library is not there */
#define REGEX_MISSING "other patterns need PCRE2 (Debian, Ubuntu: apt-get install libpcre2-dev), then make"

#ifdef WITH_PCRE2

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum { REGEX_WINDOW = 64,           /* places where a match is looked for at once */
       REGEX_STEPS = 20000,         /* steps back from one place; of a place alone so many times as many: */
       REGEX_PATIENCE = 100,
       REGEX_HEAP = 16384,          /* KiB */
       REGEX_PATTERN = 4096 };      /* most bytes of a pattern */

/* What a search needs; begins zeroed. It counts what its texts took. */
typedef struct regex_room {
    pcre2_match_data *match;
    pcre2_match_context *limits;
    double seconds, bytes;
} regex_room;

typedef struct regex_span { size_t from, to; } regex_span;
enum { REGEX_NONE, REGEX_FOUND, REGEX_LONG, REGEX_MEMORY }; /* nothing; a match; too long a search */

static inline void regex_room_close(regex_room *r) {
    pcre2_match_data_free(r->match), pcre2_match_context_free(r->limits);
    memset(r, 0, sizeof *r);
}

static inline void regex_free(void *code) { pcre2_code_free((pcre2_code *)code); }

/* The group (?.. at s: is it one of those that both read alike? */
static inline int regex_group(const char *s) {
    if (strchr(":=!>", *s) && *s) return 1;
    if (*s == '<') return s[1] == '=' || s[1] == '!';
    return (*s == 'i' && (s[1] == ':' || s[1] == ')')) || (s[0] == '-' && s[1] == 'i' && s[2] == ':');
}

/* Where a class in a class ends, at its ], if its members are as good without its brackets: it is neither
   negated nor nested again, has a member, and no range reaches over its ends. NULL: it is something else. */
static inline const char *regex_inner(const char *s) {
    const char *end = s + 1;
    if (s[-1] == '-' || strchr("^:]", *end)) return NULL;
    for (; *end && *end != ']'; end++) {
        if (*end == '[' || *end == '&' || *end == '-') return NULL;
        if (*end == '\\' && !*++end) return NULL;
    }
    return *end && end[1] != '-' ? end : NULL;
}

/* What Oniguruma calls a character of a word: with marks and all connectors, of the numbers digits alone. */
#define REGEX_WORD "\\p{L}\\p{M}\\p{Nd}\\p{Pc}"
#define REGEX_EDGE(before, behind) "(?<" before "[" REGEX_WORD "])(?" behind "[" REGEX_WORD "])"

/* Mongolian's vowel separator is a blank to PCRE2 alone. */
#define REGEX_VOWEL "\\x{180E}"
#define REGEX_BLANKS "\\x09-\\x0D\\x85\\p{Z}"

/* Is it the name of a script? Since 10.40 \p{Han} is in PCRE2 also what more scripts than that one have, such
   as U+3001; \p{sc:Han} is the script alone. */
static inline int regex_is_script(const char *name, size_t n) {
    char pattern[64];
    int number;
    PCRE2_SIZE at;
    pcre2_code *code = NULL;
    if (!n || n > 40) return 0;
    snprintf(pattern, sizeof pattern, "\\p{sc:%.*s}", (int)n, name);
    code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &number, &at, NULL);
    pcre2_code_free(code);
    return code != NULL;
}

/* What stands in PCRE2 for an escape that it reads otherwise, inside a class or outside; NULL: the same. */
static inline const char *regex_escape(char c, int inside) {
    static const struct { char c; const char *outside, *inside; } rows[] = {
        {'w', "[" REGEX_WORD "]", REGEX_WORD}, {'W', "[^" REGEX_WORD "]", NULL}, {'v', "\\x0B", "\\x0B"},
        {'s', "[^\\S" REGEX_VOWEL "]", REGEX_BLANKS}, {'S', "[\\S" REGEX_VOWEL "]", "\\S" REGEX_VOWEL},
        {'b', "(?:" REGEX_EDGE("=", "!") "|" REGEX_EDGE("!", "=") ")", NULL},
        {'B', "(?:" REGEX_EDGE("=", "=") "|" REGEX_EDGE("!", "!") ")", NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].c == c) return inside ? rows[i].inside : rows[i].outside;
    return NULL;
}

/* Copies a pattern into room [size] as PCRE2 has to read it: without the brackets of such classes, and with
   what stands for escapes. 0 where the room is too small. */
static inline int regex_translate(const char *s, char *room, size_t size) {
    const char *end = NULL, *other;
    int inside = 0;
    size_t n = 0, more;
    for (; *s && n + 2 < size; s++) {
        if (*s == '\\' && s[1] && strchr("pP", s[1]) && s[2] == '{') {
            const char *name = s + 3 + (s[3] == '^');
            if (size - n < 16) return 0;
            if (regex_is_script(name, strcspn(name, "}"))) {
                for (; s < name; s++) room[n++] = *s;
                for (other = "sc:"; *other; other++) room[n++] = *other;
                s--;
                continue;
            }
        }
        if (*s == '\\' && s[1]) {
            if ((other = regex_escape(s[1], inside)) == NULL) {
                room[n++] = *s++;
                room[n++] = *s;
                continue;
            }
            more = strlen(other), s++;
            if (more >= size - n) return 0;
            memcpy(room + n, other, more), n += more;
            continue;
        }
        if (s == end) continue;
        if (*s == '[' && inside && (end = regex_inner(s)) != NULL) continue;
        if (*s == '[') inside = 1;
        else if (*s == ']') inside = 0;
        room[n++] = *s;
    }
    room[n] = 0;
    return !*s;
}

/* The first property in a pattern that PCRE2 alone knows: with a key before its name, as in \p{sc:Han} and
   \p{scx=Han}, or of PCRE2's own, as \p{L&} and \p{Xan}. NULL: there is none. */
static inline const char *regex_own_property(const char *s) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 _-";
    for (; *s; s++) {
        if (*s != '\\') continue;
        if (!*++s) break;
        if (!strchr("pP", *s) || s[1] != '{') continue;
        const char *name = s + 2 + (s[2] == '^');
        const size_t n = strcspn(name, "}");
        if (strspn(name, letters) != n) return s - 1;
        if (n == 3 && strchr("Xx", *name)) return s - 1;
    }
    return NULL;
}

/* What in a pattern Oniguruma reads otherwise than PCRE2; NULL: nothing. */
static inline const char *regex_foreign(const char *s) {
    const char *start = s;
    int inside = 0;
    for (; *s; s++) {
        if (*s == '\\') {
            if (!*++s) return "\\";
            if (strchr(inside ? "hHKCRXNGgkyYOoQEWB" : "hHKCRXNGgkyYOoQE", *s)) return s - 1;
            if (strchr("pP", *s) && s[1] != '{') return s - 1;
            if (strchr("pPx", *s) && s[1] == '{') s += strcspn(s, "}") - !strchr(s, '}');
            continue;
        }
        if (inside) {
            if (*s == '[' || !strncmp(s, "&&", 2)) return s;
            if (*s == ']') inside = 0;
            continue;
        }
        if (*s == '[') {
            inside = 1;
            if (s[1] == '^') s++;
            if (s[1] == ']') return s; /* an empty class, or one that has a bracket */
        }
        if (s[0] == '}' && (s[1] == '+' || s[1] == '?')) return s;
        if (s[0] == '{' && s[1] == ',') return s;
        if (s > start && !strncmp(s, "(?i)", 4)) return s; /* how far does it reach? */
        if (s[0] == '(' && (s[1] == '*' || (s[1] == '?' && !regex_group(s + 2)))) return s;
    }
    return NULL;
}

/* Compiles a pattern; NULL with the line in error [size]. */
static inline void *regex_compile(const char *pattern, char *error, size_t size) {
    char read[4 * REGEX_PATTERN];
    const char *foreign;
    PCRE2_UCHAR why[160];
    PCRE2_SIZE at;
    int number;
    pcre2_code *code;
    if (strlen(pattern) > REGEX_PATTERN)
        return snprintf(error, size, "a pattern of more than %d bytes", REGEX_PATTERN), (void *)NULL;
    if (!regex_translate(pattern, read, sizeof read))
        return snprintf(error, size, "a pattern with too many of \\w, \\b"), (void *)NULL;
    foreign = regex_own_property(pattern);
    if (!foreign) foreign = regex_foreign(read);
    if (foreign) return snprintf(error, size, "%.20s is not known in a pattern", foreign), (void *)NULL;
    code = pcre2_compile((PCRE2_SPTR)read, PCRE2_ZERO_TERMINATED,
                         PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_USE_OFFSET_LIMIT |
                             PCRE2_NEVER_BACKSLASH_C, &number, &at, NULL);
    if (code) return code;
    if (pcre2_get_error_message(number, why, sizeof why) < 0) why[0] = 0;
    return snprintf(error, size, "%s, at byte %zu of a pattern", (char *)why, (size_t)at), (void *)NULL;
}

static inline int regex_ready(regex_room *r) {
    if (!r->match) r->match = pcre2_match_data_create(1, NULL);
    if (!r->limits) r->limits = pcre2_match_context_create(NULL);
    if (r->limits) pcre2_set_heap_limit(r->limits, REGEX_HEAP);
    return r->match && r->limits;
}

/* Seconds of this thread; clock() counts those of all threads. */
static inline double regex_now(void) {
#ifdef CLOCK_THREAD_CPUTIME_ID
    struct timespec now;
    if (!clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now)) return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
#endif
    return (double)clock() / (double)CLOCKS_PER_SEC;
}

/* Looks for a match that begins at a place in [from, last] of a valid text. */
static inline int regex_try(const void *code, regex_room *r, const regex_span *text, const char *s,
                            size_t last) {
    double start = regex_now();
    uint32_t how = PCRE2_NO_UTF_CHECK | (last == text->from ? PCRE2_ANCHORED : 0);
    int found;
    uint32_t steps = (uint32_t)REGEX_STEPS * (how & PCRE2_ANCHORED ? (uint32_t)REGEX_PATIENCE : 1u);
    pcre2_set_match_limit(r->limits, steps);
    pcre2_set_offset_limit(r->limits, last);
    found = pcre2_match((const pcre2_code *)code, (PCRE2_SPTR)s, text->to, text->from, how, r->match,
                        r->limits);
    r->seconds += regex_now() - start;
    if (found == PCRE2_ERROR_MATCHLIMIT || found == PCRE2_ERROR_HEAPLIMIT || found == PCRE2_ERROR_DEPTHLIMIT)
        return REGEX_LONG;
    return found >= 0 ? REGEX_FOUND : found == PCRE2_ERROR_NOMATCH ? REGEX_NONE : REGEX_MEMORY;
}

/* The character's end behind `at`, in valid UTF-8. */
static inline size_t regex_next(const char *s, size_t at, size_t n) {
    for (at++; at < n; at++)
        if (((unsigned char)s[at] & 0xC0) != 0x80) break;
    return at;
}

/* The first match in n bytes of valid UTF-8 from `from` on, as *hit; empty ones too. */
static inline int regex_find(const void *code, regex_room *r, const char *s, size_t n, size_t from,
                             regex_span *hit) {
    int result = REGEX_NONE, slowly = 0;
    if (!regex_ready(r)) return REGEX_MEMORY;
    while (from <= n && !result) {
        size_t last = slowly || n - from < REGEX_WINDOW ? (slowly ? from : n) : from + REGEX_WINDOW;
        const regex_span text = {from, n};
        while (last > from && last < n && ((unsigned char)s[last] & 0xC0) == 0x80) last--;
        result = regex_try(code, r, &text, s, last);
        if (result == REGEX_LONG && last > from) {
            slowly = 1, result = REGEX_NONE;
            continue;
        }
        if (!result && r->seconds > 0.25 + 1e-5 * r->bytes) result = REGEX_LONG;
        if (!result) from = regex_next(s, last, n) + (last >= n);
    }
    if (result != REGEX_FOUND) return result;
    hit->from = pcre2_get_ovector_pointer(r->match)[0], hit->to = pcre2_get_ovector_pointer(r->match)[1];
    return r->seconds > 0.25 + 1e-5 * r->bytes ? REGEX_LONG : REGEX_FOUND;
}

#endif

#endif
