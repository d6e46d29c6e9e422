/* streams.h - what stands between a program and the world: memory of checked size, hashes, whole numbers,
   UTF-8, texts that a terminal can bear, standard streams that are open and complete. Static functions. */
#ifndef STREAMS_H
#define STREAMS_H

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "regular.h"

enum { TEXT_ERROR = 512 }; /* bytes of an error line */

/* Takes memory for n * m things of `size` bytes as realloc does; NULL also where the product is too large,
   and then `old` stays. */
static inline void *text_memory(void *old, size_t n, size_t m, size_t size) {
    const size_t most = (size_t)-1 / 2 / size;
    return m && n > most / m ? NULL : realloc(old, n && m ? n * m * size : 1);
}

/* Goes on with a hash, FNV-1a of 64 bits. */
static inline uint64_t fingerprint(uint64_t hash, const void *data, size_t n) {
    const unsigned char *bytes = (const unsigned char *)data;
    for (size_t i = 0; i < n; i++) hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* Reads decimal digits and nothing else; 0 where there are none, something else, or more than 64 bits. */
static inline int text_whole(const char *s, uint64_t *n) {
    for (*n = 0; *s >= '0' && *s <= '9'; s++) {
        unsigned digit = (unsigned)(*s - '0');
        if (*n > (UINT64_MAX - digit) / 10) return 0;
        *n = *n * 10 + digit;
        if (!s[1]) return 1;
    }
    return 0;
}

/* How many bytes the character has that begins with this one; 0 where none does. */
static inline size_t text_length(char first) {
    unsigned char u = (unsigned char)first;
    return u < 0x80 ? 1 : u < 0xC2 ? 0 : u < 0xE0 ? 2 : u < 0xF0 ? 3 : u < 0xF5 ? 4 : 0;
}

/* Counts those of a character's `length` bytes that are there; the text may end, or go on otherwise. */
static inline size_t text_present(const char *s, size_t n, size_t length) {
    size_t i = 1;
    while (i < length && i < n && (s[i] & 0xC0) == 0x80) i++;
    return i;
}

/* The character at s and its length; 0 for bytes that are no UTF-8, one at a time. */
static inline size_t text_decode(const char *s, size_t n, uint32_t *c) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *u = (const unsigned char *)s;
    size_t length = text_length(s[0]), i;
    *c = 0;
    if (!length || text_present(s, n, length) < length) return 1;
    *c = length == 1 ? u[0] : (uint32_t)(u[0] & (0xFF >> (length + 1)));
    for (i = 1; i < length; i++) *c = *c << 6 | (u[i] & 0x3F);
    if (*c >= least[length] && *c <= 0x10FFFF && (*c < 0xD800 || *c > 0xDFFF)) return length;
    *c = 0;
    return 1;
}

/* Would a terminal do something else with this character than show it? Bytes that are no UTF-8 come as 0. */
static inline int text_steers(uint32_t c) {
    return c < 32 || (c >= 127 && c < 160) || c == 0x2028 || c == 0x2029;
}

/* Names out of files are printed: what steers a terminal or is no UTF-8 becomes question marks. */
static inline char *text_shown(char *name) {
    size_t at, n, left;
    uint32_t c;
    for (at = 0, left = strlen(name); left; at += n, left -= n) {
        n = text_decode(name + at, left, &c);
        if (text_steers(c)) memset(name + at, '?', n);
    }
    return name;
}

/* What files and paths hold may stand in an error. */
static inline int text_fail(char *error, const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(error, TEXT_ERROR, format, list);
    va_end(list);
    text_shown(error);
    return 0;
}

/* First thing in main. Opens what the caller has closed of the standard streams, before any file takes its
   number and gets its text: reading finds nothing there, and writing fails as it would without. A file larger
   than allowed becomes an error of writing. */
static inline void text_open_streams(void) {
#ifdef _WIN32
    const char *nothing = "NUL";
#else
    const char *nothing = "/dev/null";
#endif
    int fd;
    do fd = open(nothing, O_RDONLY);
    while (fd >= 0 && fd < 3);
    if (fd >= 0) close(fd);
#ifdef SIGXFSZ
    signal(SIGXFSZ, SIG_IGN);
#endif
}

/* Has everything that was printed arrived? Closes the standard output. */
static inline int text_close_output(void) {
    int failed = ferror(stdout);
    return fclose(stdout) == 0 && !failed;
}

/* Prints a text that is not ours. Elsewhere than on a terminal that is its bytes. On a terminal control
   characters but \n and \t, and bytes that are no UTF-8, show as \xNN; a character whose last bytes are
   missing waits for them unless the text ends here (`last`). Returns how many bytes were printed; the caller
   keeps the others, which come again before those that follow. */
static inline size_t text_show(const char *s, size_t n, int last) {
    size_t at = 0, length, i;
    uint32_t c;
    if (!isatty(1)) return fwrite(s, 1, n, stdout), n;
    for (; at < n; at += length) {
        length = text_length(s[at]);
        if (!last && length > n - at && text_present(s + at, n - at, length) == n - at) break;
        length = text_decode(s + at, n - at, &c);
        if (!text_steers(c) || c == '\n' || c == '\t') fwrite(s + at, 1, length, stdout);
        else for (i = 0; i < length; i++) printf("\\x%02x", (unsigned)(unsigned char)s[at + i]);
    }
    return at;
}

#endif
