/* text.h - reading matter for programs: tab-separated tables, BERT's WordPiece, batches of encoded texts.

   Everything is a static function; there are no globals. Functions that can fail return 1 for success and 0
   for failure, and then `error` (TEXT_ERROR bytes of the caller's) holds one line; a call that failed leaves
   nothing allocated. Closing twice is fine. */
#ifndef TEXT_H
#define TEXT_H

#include "streams.h"

#include <sys/stat.h>

enum {
    TEXT_COLUMNS = 8,  /* most columns of a table */
    TEXT_WORD = 100    /* most characters of a word that WordPiece looks into */
};

/* Some bytes of a text that lives elsewhere; no NUL at the end, and NULs inside are allowed. */
typedef struct text_slice {
    const char *at;
    size_t n;
} text_slice;

static inline int text_same(text_slice a, text_slice b) {
    return a.n == b.n && (!a.n || !memcmp(a.at, b.at, a.n));
}

static inline text_slice text_of(const char *s) {
    text_slice slice;
    slice.at = s, slice.n = strlen(s);
    return slice;
}

/* The slice as a number, blanks around it allowed; 0 where it is none. */
static inline int text_number(text_slice s, double *value) {
    char digits[64], *end;
    if (!s.n || s.n >= sizeof digits) return 0;
    memcpy(digits, s.at, s.n), digits[s.n] = 0;
    *value = strtod(digits, &end);
    return end != digits && end[strspn(end, " \t")] == 0 && end + strspn(end, " \t") == digits + s.n;
}

/* ---- Tables ---- */

/* A file of at most `limit` bytes in memory of malloc; "-" is the standard input. Other pipes are refused: to
   open one could mean to wait for ever. */
static inline int text_read(const char *path, size_t limit, char **text, size_t *bytes, char *error) {
    int standard = !strcmp(path, "-"), failed;
    struct stat about;
    FILE *file = standard ? stdin : NULL;
    size_t room = 65536, got;
    char *more;
    *text = NULL, *bytes = 0;
    if (!standard && !stat(path, &about) && !S_ISREG(about.st_mode))
        return text_fail(error, "cannot read %s: not a regular file (the standard input is -)", path);
    if (!standard) file = fopen(path, "rb");
    if (!file) return text_fail(error, "cannot open %s", path);
    *text = (char *)malloc(room);
    while (*text && (got = fread(*text + *bytes, 1, room - *bytes, file)) > 0) {
        *bytes += got;
        if (*bytes > limit) break;
        if (*bytes < room) continue;
        more = (char *)text_memory(*text, room, 2, 1);
        room *= 2;
        if (!more) free(*text);
        *text = more;
    }
    failed = ferror(file);
    if (!standard) fclose(file);
    if (*text && !failed && *bytes <= limit) return 1;
    failed = failed ? text_fail(error, "cannot read %s", path)
           : *text  ? text_fail(error, "%s is larger than %.0f MB", path, (double)limit / 1e6)
                    : text_fail(error, "no memory for %s", path);
    free(*text), *text = NULL;
    return failed;
}

/* The wanted columns of a file whose rows are lines and whose columns are separated by tabs. Quotation marks
   are like letters (the GLUE files hold unbalanced ones). A byte order mark and the CR of a CRLF are dropped;
   lines may be of any length. */
typedef struct text_table {
    char *text;
    text_slice *cells;               /* [rows, columns], into text */
    size_t *lines;                   /* [rows]: the line each row stood on, from 1 */
    size_t rows, columns;
    /* lines without all wanted columns make no row: how many (without empty ones), the first */
    size_t skipped, first_skipped;
} text_table;

static inline void text_table_close(text_table *t) {
    free(t->text), free(t->cells), free(t->lines);
    memset(t, 0, sizeof *t);
}

static inline text_slice text_cell(const text_table *t, size_t row, size_t column) {
    return t->cells[row * t->columns + column];
}

/* The line at *at without its end, which is stepped over; *at becomes NULL behind the last one. */
static inline text_slice text_line(const char **at, const char *end) {
    text_slice line;
    const char *stop = (const char *)memchr(*at, '\n', (size_t)(end - *at));
    line.at = *at, line.n = (size_t)((stop ? stop : end) - *at);
    *at = stop && stop + 1 < end ? stop + 1 : NULL;
    if (line.n && line.at[line.n - 1] == '\r') line.n--;
    return line;
}

/* Cuts the first cell off a line; 0 if it was the last one. */
static inline int text_cut_cell(text_slice *line, text_slice *cell) {
    const char *tab = (const char *)memchr(line->at, '\t', line->n);
    *cell = *line;
    if (!tab) return 0;
    cell->n = (size_t)(tab - line->at);
    line->at += cell->n + 1, line->n -= cell->n + 1;
    return 1;
}

/* Cells number want[c] (from 1) of a line; 0 if one is not there. */
static inline int text_cut(text_slice line, const size_t *want, size_t columns, text_slice *cells) {
    size_t number = 1, found = 0, c;
    text_slice cell;
    int more;
    do {
        more = text_cut_cell(&line, &cell);
        for (c = 0; c < columns; c++)
            if (want[c] == number) cells[c] = cell, found++;
    } while (number++, more);
    return found == columns;
}

/* Which columns the names mean. A name of digits is a column's number from 1; any other name is looked for in
   the first line, which is then a header. *header tells. */
static inline int text_header(text_slice line, const char *const *names, size_t columns, size_t *want,
                              int *header, char *error) {
    size_t c, number;
    text_slice rest, cell;
    int more;
    *header = 0;
    for (c = 0; c < columns; c++) {
        want[c] = 0;
        if (names[c][0] && !names[c][strspn(names[c], "0123456789")]) {
            want[c] = (size_t)strtoul(names[c], NULL, 10);
            if (!want[c]) return text_fail(error, "columns are counted from 1");
            continue;
        }
        *header = 1;
        for (rest = line, number = 1, more = 1; more && !want[c]; number++) {
            more = text_cut_cell(&rest, &cell);
            if (text_same(cell, text_of(names[c]))) want[c] = number;
        }
        if (!want[c]) return text_fail(error, "the first line has no column \"%s\"", names[c]);
    }
    return 1;
}

/* The columns called names[columns] of a text of malloc, which the table owns from now on, whatever happens.
   `path` is for the error line. */
static inline int text_table_parse(text_table *t, char *text, size_t bytes, const char *path,
                                   const char *const *names, size_t columns, char *error) {
    size_t want[TEXT_COLUMNS], rows = 1, line, i;
    const char *at = text, *end = text + bytes;
    int header;
    memset(t, 0, sizeof *t);
    t->text = text;
    if (!columns || columns > TEXT_COLUMNS)
        return text_table_close(t),
               text_fail(error, "%s: %zu columns: 1 to %d can be read", path, columns, TEXT_COLUMNS);
    if (bytes >= 3 && !memcmp(at, "\xEF\xBB\xBF", 3)) at += 3;
    for (i = 0; i < bytes; i++) rows += t->text[i] == '\n';
    t->cells = (text_slice *)text_memory(NULL, rows, columns, sizeof *t->cells);
    t->lines = (size_t *)text_memory(NULL, rows, 1, sizeof *t->lines);
    t->columns = columns;
    if (!t->cells || !t->lines) return text_table_close(t), text_fail(error, "no memory for %s", path);
    for (line = 1, at = at < end ? at : NULL; at; line++) {
        text_slice row = text_line(&at, end);
        if (line == 1) {
            char why[TEXT_ERROR - 80];
            if (!text_header(row, names, columns, want, &header, error)) {
                snprintf(why, sizeof why, "%.*s", (int)sizeof why - 1, error);
                return text_table_close(t),
                       text_fail(error, "%s: %s", path + (strlen(path) > 70 ? strlen(path) - 70 : 0), why);
            }
            if (header) continue;
        }
        if (text_cut(row, want, columns, t->cells + t->rows * columns)) t->lines[t->rows++] = line;
        else if (row.n && !t->skipped++) t->first_skipped = line;
    }
    return 1;
}

/* Loads the columns called names[columns] of a file of at most `limit` bytes.
   A file without rows is no failure. */
static inline int text_table_load(text_table *t, const char *path, size_t limit, const char *const *names,
                                  size_t columns, char *error) {
    size_t bytes;
    char *text;
    memset(t, 0, sizeof *t);
    return text_read(path, limit, &text, &bytes, error) &&
           text_table_parse(t, text, bytes, path, names, columns, error);
}

/* ---- Characters ---- */

static inline size_t text_utf8(uint32_t c, char *s) {
    size_t length = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4, i;
    for (i = length; i-- > 1; c >>= 6) s[i] = (char)(0x80 | (c & 0x3F));
    s[0] = (char)(length == 1 ? c : (0xF00u >> length & 0xFF) | c);
    return length;
}

/* Is c in one of n / 2 ascending ranges [first, last]? */
static inline int text_within(uint32_t c, const uint16_t *ranges, size_t n) {
    size_t i;
    for (i = 0; i < n && ranges[i] <= c; i += 2)
        if (c <= ranges[i + 1]) return 1;
    return 0;
}

static inline int text_is_space(uint32_t c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
           c == 0x3000;
}

/* Unicode's classes Cc and Cf, the replacement character, and the tags beyond U+E0000 */
static inline int text_is_control(uint32_t c) {
    static const uint16_t ranges[] = {0x0,    0x1F,   0x7F,   0x9F,   0xAD,   0xAD,   0x600,  0x605,  0x61C,
                                      0x61C,  0x6DD,  0x6DD,  0x70F,  0x70F,  0x890,  0x891,  0x8E2,  0x8E2,
                                      0x180E, 0x180E, 0x200B, 0x200F, 0x202A, 0x202E, 0x2060, 0x2064, 0x2066,
                                      0x206F, 0xFEFF, 0xFEFF, 0xFFF9, 0xFFFB, 0xFFFD, 0xFFFD};
    return text_within(c, ranges, sizeof ranges / sizeof *ranges) || (c >= 0xE0000 && c < 0xE0200);
}

/* ASCII's signs, whether or not Unicode calls them so, and Unicode's classes P* but for
   the scripts from Thai to Mongolian */
static inline int text_is_punctuation(uint32_t c) {
    static const uint16_t ranges[] = {33,     47,     58,     64,     91,     96,     123,    126,    0xA1,
                                      0xA1,   0xA7,   0xA7,   0xAB,   0xAB,   0xB6,   0xB7,   0xBB,   0xBB,
                                      0xBF,   0xBF,   0x37E,  0x37E,  0x387,  0x387,  0x55A,  0x55F,  0x589,
                                      0x58A,  0x5BE,  0x5BE,  0x5C0,  0x5C0,  0x5C3,  0x5C3,  0x5C6,  0x5C6,
                                      0x5F3,  0x5F4,  0x609,  0x60A,  0x60C,  0x60D,  0x61B,  0x61B,  0x61D,
                                      0x61F,  0x66A,  0x66D,  0x6D4,  0x6D4,  0x700,  0x70D,  0x7F7,  0x7F9,
                                      0x830,  0x83E,  0x85E,  0x85E,  0x964,  0x965,  0x970,  0x970,  0x9FD,
                                      0x9FD,  0xA76,  0xA76,  0xAF0,  0xAF0,  0xC77,  0xC77,  0xC84,  0xC84,
                                      0xDF4,  0xDF4,  0x2010, 0x2027, 0x2030, 0x2043, 0x2045, 0x2051, 0x2053,
                                      0x205E, 0x207D, 0x207E, 0x208D, 0x208E, 0x2308, 0x230B, 0x2329, 0x232A,
                                      0x2768, 0x2775, 0x27C5, 0x27C6, 0x27E6, 0x27EF, 0x2983, 0x2998, 0x29D8,
                                      0x29DB, 0x29FC, 0x29FD, 0x2CF9, 0x2CFC, 0x2CFE, 0x2CFF, 0x2D70, 0x2D70,
                                      0x2E00, 0x2E2E, 0x2E30, 0x2E4F, 0x2E52, 0x2E5D, 0x3001, 0x3003, 0x3008,
                                      0x3011, 0x3014, 0x301F, 0x3030, 0x3030, 0x303D, 0x303D, 0x30A0, 0x30A0,
                                      0x30FB, 0x30FB, 0xFD3E, 0xFD3F, 0xFE10, 0xFE19, 0xFE30, 0xFE52, 0xFE54,
                                      0xFE61, 0xFE63, 0xFE63, 0xFE68, 0xFE68, 0xFE6A, 0xFE6B, 0xFF01, 0xFF03,
                                      0xFF05, 0xFF0A, 0xFF0C, 0xFF0F, 0xFF1A, 0xFF1B, 0xFF1F, 0xFF20, 0xFF3B,
                                      0xFF3D, 0xFF3F, 0xFF3F, 0xFF5B, 0xFF5B, 0xFF5D, 0xFF5D, 0xFF5F, 0xFF65};
    return text_within(c, ranges, sizeof ranges / sizeof *ranges);
}

/* Accents that stand as characters of their own: class Mn of the scripts of Europe and the
   Near East, of kana, and variations */
static inline int text_is_mark(uint32_t c) {
    static const uint16_t ranges[] = {0x300,  0x36F,  0x483,  0x487,  0x591,  0x5BD,  0x5BF,  0x5BF,
                                      0x5C1,  0x5C2,  0x5C4,  0x5C5,  0x5C7,  0x5C7,  0x610,  0x61A,
                                      0x64B,  0x65F,  0x670,  0x670,  0x6D6,  0x6DC,  0x6DF,  0x6E4,
                                      0x6E7,  0x6E8,  0x6EA,  0x6ED,  0x1AB0, 0x1ABD, 0x1ABF, 0x1ACE,
                                      0x1DC0, 0x1DFF, 0x20D0, 0x20DC, 0x20E1, 0x20E1, 0x20E5, 0x20F0,
                                      0x2CEF, 0x2CF1, 0x2D7F, 0x2D7F, 0x2DE0, 0x2DFF, 0x302A, 0x302D,
                                      0x3099, 0x309A, 0xFB1E, 0xFB1E, 0xFE00, 0xFE0F, 0xFE20, 0xFE2F};
    return text_within(c, ranges, sizeof ranges / sizeof *ranges);
}

static inline int text_is_ideograph(uint32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
           (c >= 0x2A700 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

/* Letters U+00C0 to U+024F and U+1E00 to U+1EFF in lower case without accents; '.' for those
   that are no accented ASCII letter */
static inline uint32_t text_plain_latin(uint32_t c) {
    static const char low[] =
        "aaaaaa.ceeeeiiii.nooooo..uuuuy..aaaaaa.ceeeeiiii.nooooo..uuuuy.yaaaaaaccccccccdd..eeeeeeeeeegggggggg"
        "hh..iiiiiiiii...jjkk.llllll....nnnnnn...oooooo..rrrrrrsssssssstttt..uuuuuuuuuuuuwwyyyzzzzzz........."
        "........................oo.............uu............................aaiioouuuuuuuuuu.aaaa....ggkkoo"
        "oo..j...gg..nnaa....aaaaeeeeiiiioooorrrruuuusstt..hh......aaeeooooooooyy..........................."
        ".";
    static const char high[] =
        "aabbbbbbccddddddddddeeeeeeeeeeffgghhhhhhhhhhiiiikkkkkkllllllllmmmmmmnnnnnnnnoooooooopppprrrrrrrrssss"
        "ssssssttttttttuuuuuuuuuuvvvvwwwwwwwwwwxxxxyyzzzzzzhtwy......aaaaaaaaaaaaaaaaaaaaaaaaeeeeeeeeeeeeeeee"
        "iiiioooooooooooooooooooooooouuuuuuuuuuuuuuyyyyyyyy......";
    char letter = c >= 0xC0 && c <= 0x24F      ? low[c - 0xC0]
                  : c >= 0x1E00 && c <= 0x1EFF ? high[c - 0x1E00]
                                               : '.';
    return letter == '.' ? c : (uint32_t)letter;
}

/* Greek U+1F00 to U+1FFF (ancient accents) likewise, by the letters of `name` */
static inline uint32_t text_plain_greek(uint32_t c) {
    static const char name[] = "aehioruw", table[] =
        "aaaaaaaaaaaaaaaaeeeeee..eeeeee..hhhhhhhhhhhhhhhhiiiiiiiiiiiiiiiioooooo..oooooo..uuuuuuuu.u.u.u.uwwww"
        "wwwwwwwwwwwwaaeehhiioouuww..aaaaaaaaaaaaaaaahhhhhhhhhhhhhhhhwwwwwwwwwwwwwwwwaaaaa.aaaaaaa.i...hhh.hh"
        "eehhh...iiii..iiiiii....uuuurruuuuuur.....www.wwoowww...";
    static const uint16_t letter[] = {0x3B1, 0x3B5, 0x3B7, 0x3B9, 0x3BF, 0x3C1, 0x3C5, 0x3C9};
    char which = c >= 0x1F00 && c <= 0x1FFF ? table[c - 0x1F00] : '.';
    return which == '.' ? c : letter[strchr(name, which) - name];
}

/* A character in lower case and without its accent: Latin and Greek as above, Cyrillic,
   full-width; others stay as they are. */
static inline uint32_t text_plain(uint32_t c) {
    /* Latin capitals with a stroke or joined; accents of Greek, Cyrillic (lowered before) and Arabic */
    static const uint16_t pairs[] = {0x110, 0x111, 0x126, 0x127, 0x132, 0x133, 0x13F, 0x140, 0x141,  0x142,
                                     0x14A, 0x14B, 0x152, 0x153, 0x166, 0x167, 0x1E2, 0xE6,  0x1E3,  0xE6,
                                     0x1FC, 0xE6,  0x1FD, 0xE6,  0x1FE, 0xF8,  0x1FF, 0xF8,  0x1E9E, 0xDF,
                                     0x386, 0x3B1, 0x388, 0x3B5, 0x389, 0x3B7, 0x38A, 0x3B9, 0x38C,  0x3BF,
                                     0x38E, 0x3C5, 0x38F, 0x3C9, 0x390, 0x3B9, 0x3AC, 0x3B1, 0x3AD,  0x3B5,
                                     0x3AE, 0x3B7, 0x3AF, 0x3B9, 0x3B0, 0x3C5, 0x3CA, 0x3B9, 0x3CB,  0x3C5,
                                     0x3CC, 0x3BF, 0x3CD, 0x3C5, 0x3CE, 0x3C9, 0x439, 0x438, 0x450,  0x435,
                                     0x451, 0x435, 0x453, 0x433, 0x457, 0x456, 0x45C, 0x43A, 0x45D,  0x438,
                                     0x45E, 0x443, 0x622, 0x627, 0x623, 0x627, 0x624, 0x648, 0x625,  0x627,
                                     0x626, 0x64A};
    size_t i;
    if (c < 0xC0) return c >= 'A' && c <= 'Z' ? c + 32 : c;
    c = text_plain_greek(text_plain_latin(c));
    if (c >= 0xC0 && c <= 0xDE && c != 0xD7) c += 32;
    else if ((c >= 0x391 && c <= 0x3AB) || (c >= 0x410 && c <= 0x42F) || (c >= 0xFF21 && c <= 0xFF3A))
        c += 32;
    else if (c >= 0x400 && c <= 0x40F) c += 80;
    for (i = 0; i < sizeof pairs / sizeof *pairs; i += 2)
        if (pairs[i] == c) return pairs[i + 1];
    return c;
}

/* ---- Vocabularies ---- */

/* WordPiece's, or the 256 bytes with [PAD] 256, [CLS] 257, [SEP] 258, [MASK] 259 */
typedef struct text_vocabulary {
    text_table table;                  /* of vocab.txt: row = id */
    int32_t *slots;                    /* hash table of ids, -1 = free; NULL: bytes */
    size_t n_slots, longest, size;     /* slots, a power of 2; bytes of the longest token; number of tokens */
    int32_t pad, unk, cls, sep, mask;
} text_vocabulary;

static inline void text_vocabulary_close(text_vocabulary *v) {
    text_table_close(&v->table), free(v->slots);
    memset(v, 0, sizeof *v);
}

static inline void text_vocabulary_bytes(text_vocabulary *v) {
    memset(v, 0, sizeof *v);
    v->size = 260, v->pad = 256, v->unk = -1, v->cls = 257, v->sep = 258, v->mask = 259;
}

/* The slot of the token `prefix` + piece: its id, or -1 where it would be put. */
static inline int32_t *text_slot(const text_vocabulary *v, const char *prefix, text_slice piece) {
    uint32_t hash = 2166136261u;
    size_t marks = strlen(prefix), i;
    for (i = 0; i < marks + piece.n; i++)
        hash = (hash ^ (unsigned char)(i < marks ? prefix[i] : piece.at[i - marks])) * 16777619u;
    for (i = hash & (v->n_slots - 1); v->slots[i] >= 0; i = (i + 1) & (v->n_slots - 1)) {
        text_slice token = text_cell(&v->table, (size_t)v->slots[i], 0), rest = token;
        if (token.n != marks + piece.n || memcmp(token.at, prefix, marks)) continue;
        rest.at += marks, rest.n -= marks;
        if (text_same(rest, piece)) break;
    }
    return v->slots + i;
}

/* Makes v->table, one token a row, a vocabulary; of equal tokens the last one counts. `name` is for the error
   line. Closes v after a failure. */
static inline int text_vocabulary_index(text_vocabulary *v, const char *name, char *error) {
    static const char *const special[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    int32_t id[5];
    size_t i;
    v->size = v->table.rows;
    for (v->n_slots = 16; v->n_slots < 2 * v->size; v->n_slots *= 2) continue;
    v->slots = (int32_t *)text_memory(NULL, v->n_slots, 1, sizeof *v->slots);
    if (!v->slots) return text_vocabulary_close(v), text_fail(error, "no memory for %s", name);
    for (i = 0; i < v->n_slots; i++) v->slots[i] = -1;
    for (i = 0; i < v->size; i++) {
        text_slice token = text_cell(&v->table, i, 0);
        *text_slot(v, "", token) = (int32_t)i;
        if (token.n > v->longest) v->longest = token.n;
    }
    for (i = 0; i < 5; i++) {
        id[i] = *text_slot(v, "", text_of(special[i]));
        if (id[i] < 0)
            return text_vocabulary_close(v), text_fail(error, "%s: there is no %s", name, special[i]);
    }
    v->pad = id[0], v->unk = id[1], v->cls = id[2], v->sep = id[3], v->mask = id[4];
    return 1;
}

/* Loads a vocab.txt: one token a line, its id the line's number from 0; of equal lines the last one
   counts. */
static inline int text_vocabulary_load(text_vocabulary *v, const char *path, char *error) {
    static const char *const first = "1";
    memset(v, 0, sizeof *v);
    return text_table_load(&v->table, path, (size_t)1 << 24, &first, 1, error) &&
           text_vocabulary_index(v, path, error);
}

/* ---- WordPiece ---- */

typedef struct text_word {
    char bytes[4 * TEXT_WORD];
    size_t n, characters; /* beyond TEXT_WORD characters, only counted */
} text_word;

/* The longest pieces from the left that the vocabulary has, those behind the first with "##"; [UNK] if the
   word cannot be put together. Writes at most `room` ids and returns how many. */
static inline size_t text_pieces(const text_vocabulary *v, const text_word *word, int32_t *ids, size_t room) {
    int32_t piece[4 * TEXT_WORD];
    size_t at = 0, n = 0;
    int known = word->characters <= TEXT_WORD;
    while (known && at < word->n) {
        text_slice rest;
        rest.at = word->bytes + at, rest.n = word->n - at < v->longest ? word->n - at : v->longest;
        while (rest.n && (piece[n] = *text_slot(v, at ? "##" : "", rest)) < 0) rest.n--;
        known = rest.n > 0, at += rest.n, n++;
    }
    if (!known) piece[0] = v->unk, n = 1;
    if (n > room) n = room;
    if (n) memcpy(ids, piece, n * sizeof *ids);
    return n;
}

/* The next word of a text from *at on, which is moved behind it; 0 when there is none. As BERT's uncased
   models read: control characters and what is no UTF-8 dropped, lower case, accents off, ideographs and
   punctuation words of their own. BERT takes apart more than this does: Hangul syllables, voiced kana, marks
   of South Asian scripts, rare Latin and Cyrillic letters. */
static inline int text_next_word(text_slice text, size_t *at, text_word *word) {
    word->n = word->characters = 0;
    while (*at < text.n) {
        uint32_t c;
        size_t length = text_decode(text.at + *at, text.n - *at, &c);
        int space = text_is_space(c), dropped = !space && (text_is_control(c) || text_is_mark(c)), alone;
        c = text_plain(c);
        alone = !space && !dropped && (text_is_punctuation(c) || text_is_ideograph(c));
        if ((space || alone) && word->characters) return 1;
        *at += length;
        if (space || dropped) continue;
        if (word->characters++ < TEXT_WORD) word->n += text_utf8(c, word->bytes + word->n);
        if (alone) return 1;
    }
    return word->characters > 0;
}

/* The ids of a text, at most `room`; returns how many. "[MASK]" and the like are plain text here. */
static inline size_t text_encode(const text_vocabulary *v, text_slice text, int32_t *ids, size_t room) {
    text_word word;
    size_t n = 0, at = 0;
    if (!v->slots) {
        for (; n < text.n && n < room; n++) ids[n] = (unsigned char)text.at[n];
        return n;
    }
    while (n < room && text_next_word(text, &at, &word)) n += text_pieces(v, &word, ids + n, room - n);
    return n;
}

/* [CLS] a [SEP], or with b (NULL: none) [CLS] a [SEP] b [SEP], in at most `length` tokens: while it is too
   long, the longer of the two loses its last token. ids: room for 2 * length, length >= 4. Returns how many
   tokens, *first of them of type 0. */
static inline size_t text_example(const text_vocabulary *v, const text_slice *a, const text_slice *b,
                                  size_t length, int32_t *ids, size_t *first) {
    size_t room = length - (b ? 3 : 2), n = text_encode(v, *a, ids + 1, room),
           m = b ? text_encode(v, *b, ids + 1 + room, room) : 0;
    int32_t *second = ids + 1 + room;
    while (n + m > room) *(n > m ? &n : &m) -= 1;
    ids[0] = v->cls, ids[n + 1] = v->sep, *first = n + 2;
    if (!b) return n + 2;
    memmove(ids + n + 2, second, m * sizeof *ids);
    ids[n + m + 2] = v->sep;
    return n + m + 3;
}

/* ---- Examples and batches ---- */

/* The encoded rows of a table, one after another */
typedef struct text_examples {
    int32_t *ids;
    size_t *start, *first; /* [n + 1]: where each begins; [n]: how many of its tokens are of type 0 */
    size_t n;
} text_examples;

static inline void text_examples_close(text_examples *e) {
    free(e->ids), free(e->start), free(e->first);
    memset(e, 0, sizeof *e);
}

/* Encodes the column a, or the pair of columns a and b (b < 0: none), of every row. */
static inline int text_examples_encode(text_examples *e, const text_vocabulary *v, const text_table *t, int a,
                                       int b, size_t length, char *error) {
    size_t room = 0, row, *start;
    if (length < 4)
        return memset(e, 0, sizeof *e),
               text_fail(error, "a length of %zu tokens is too short, 4 is the least", length);
    e->n = t->rows, e->ids = NULL;
    e->start = start = (size_t *)text_memory(NULL, e->n + 1, 1, sizeof *start);
    e->first = (size_t *)text_memory(NULL, e->n + 1, 1, sizeof *start);
    if (!start || !e->first)
        return text_examples_close(e), text_fail(error, "no memory for %zu examples", t->rows);
    for (start[0] = row = 0; row < e->n; row++) {
        text_slice one = text_cell(t, row, (size_t)a), two = b < 0 ? one : text_cell(t, row, (size_t)b);
        size_t bytes = one.n + (b < 0 ? 0 : two.n), n; /* there are no more tokens than bytes */
        size_t most = length < bytes + 4 ? length : bytes + 4;
        if (room - start[row] < 2 * most) {
            int32_t *more = (int32_t *)text_memory(e->ids, room + most, 2, sizeof *more);
            if (!more) return text_examples_close(e), text_fail(error, "no memory for %zu examples", t->rows);
            e->ids = more, room = 2 * (room + most);
        }
        n = text_example(v, &one, b < 0 ? NULL : &two, most, e->ids + start[row], e->first + row);
        start[row + 1] = start[row] + n;
    }
    return 1;
}

/* Lays out the examples order[0 .. n) as a batch: ids, types and mask [n, N], padded with `pad` to the
   longest, N rounded up to a multiple of `unit` (but never beyond `most`, which no example is). Returns N. */
static inline size_t text_batch(const text_examples *e, const size_t *order, size_t n, size_t unit,
                                size_t most, int32_t pad, int32_t *ids, int32_t *types, unsigned char *mask) {
    size_t longest = 1, length, r, i;
    for (r = 0; r < n; r++) {
        length = e->start[order[r] + 1] - e->start[order[r]];
        if (length > longest) longest = length;
    }
    longest = (longest + unit - 1) / unit * unit;
    if (longest > most) longest = most;
    for (r = 0; r < n; r++, ids += longest, types += longest, mask += longest) {
        length = e->start[order[r] + 1] - e->start[order[r]];
        for (i = 0; i < longest; i++) {
            ids[i] = i < length ? e->ids[e->start[order[r]] + i] : pad;
            types[i] = i < length && i >= e->first[order[r]];
            mask[i] = i < length;
        }
    }
    return longest;
}

/* Uniform bits; the state is a counter that goes through the finaliser of SplitMix64. */
static inline uint64_t text_random(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u, z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static inline void text_shuffle(size_t *x, size_t n, uint64_t seed) {
    for (; n > 1; n--) {
        size_t other = (size_t)(text_random(&seed) % n), moved = x[n - 1];
        x[n - 1] = x[other], x[other] = moved;
    }
}

/* An order to go through n examples in batches: shuffles order[n], then sorts it by length within pools of 16
   batches, as padding costs time; turn [n / batch, rounded up] gets the numbers of the batches, shuffled.
   Returns how many batches there are. */
static inline size_t text_arrange(const text_examples *e, size_t *order, size_t n, size_t batch,
                                  uint64_t seed, size_t *turn) {
    size_t batches = n / batch + (n % batch != 0), i, j;
    text_shuffle(order, n, seed);
    for (i = 0; i < n; i++) {
        size_t moved = order[i], length = e->start[moved + 1] - e->start[moved];
        for (j = i; j % (16 * batch) && e->start[order[j - 1] + 1] - e->start[order[j - 1]] > length; j--)
            order[j] = order[j - 1];
        order[j] = moved;
    }
    for (i = 0; i < batches; i++) turn[i] = i;
    text_shuffle(turn, batches, ~seed);
    return batches;
}

/* ---- Labels ---- */

/* The names of the classes, in the order of their numbers; they point into a table. */
typedef struct text_labels {
    text_slice *names;
    size_t n;
    text_table table; /* of text_labels_load; zeroed otherwise */
} text_labels;

static inline void text_labels_close(text_labels *l) {
    text_table_close(&l->table), free(l->names);
    memset(l, 0, sizeof *l);
}

/* The class of a name; -1 if there is none. */
static inline int32_t text_label(const text_labels *l, text_slice name) {
    size_t i;
    for (i = 0; i < l->n; i++)
        if (text_same(l->names[i], name)) return (int32_t)i;
    return -1;
}

/* Numbers before other names, by value; other names by their bytes */
static inline int text_before(text_slice a, text_slice b) {
    double x = 0, y = 0;
    int p = text_number(a, &x), q = text_number(b, &y), order;
    if (p != q) return p;
    if (p && (x < y || x > y)) return x < y;
    order = memcmp(a.at, b.at, a.n < b.n ? a.n : b.n);
    return order ? order < 0 : a.n < b.n;
}

/* The different names in a column of a table, which must stay; sorted, so that they do
   not depend on the order of the rows. */
static inline int text_labels_collect(text_labels *l, const text_table *t, size_t column, size_t most,
                                      char *error) {
    size_t row, i;
    memset(l, 0, sizeof *l);
    l->names = (text_slice *)text_memory(NULL, most + 1, 1, sizeof *l->names);
    if (!l->names) return text_fail(error, "no memory for %zu labels", most);
    for (row = 0; row < t->rows; row++) {
        text_slice name = text_cell(t, row, column);
        if (text_label(l, name) >= 0) continue;
        if (l->n == most)
            return text_labels_close(l), text_fail(error, "there are more than %zu different labels", most);
        for (i = l->n++; i > 0 && text_before(name, l->names[i - 1]); i--) l->names[i] = l->names[i - 1];
        l->names[i] = name;
    }
    return 1;
}

/* Class numbers, or where l is NULL the numbers themselves, of a column: values
   [rows]. `path` is for the error line. */
static inline int text_values(const text_table *t, size_t column, const text_labels *l, const char *path,
                              double *values, char *error) {
    size_t row;
    for (row = 0; row < t->rows; row++) {
        text_slice cell = text_cell(t, row, column);
        if (l ? (values[row] = text_label(l, cell)) >= 0 : text_number(cell, values + row)) continue;
        return text_fail(error, "%.200s, line %zu: \"%.*s\" is no %s", path, t->lines[row],
                         cell.n < 60 ? (int)cell.n : 60, cell.at,
                         l ? "label that the model knows" : "number");
    }
    return 1;
}

/* Weights of the classes from "balanced" (n / (classes * count), over values[order[0 ..
   n)]) or "1,2.5,..", one for each. */
static inline int text_weights(const char *list, const double *values, const size_t *order, size_t n,
                               size_t classes, double *weights, char *error) {
    const char *at = list;
    size_t i;
    for (i = 0; i < classes; i++) weights[i] = 0;
    if (!strcmp(list, "balanced")) {
        for (i = 0; i < n; i++) weights[(size_t)values[order[i]]]++;
        for (i = 0; i < classes; i++)
            weights[i] = (double)n / ((double)classes * (weights[i] > 0 ? weights[i] : 1));
        return 1;
    }
    for (i = 0; i < classes; i++, at++) {
        char *end;
        weights[i] = strtod(at, &end);
        if (end == at || !(weights[i] >= 0 && weights[i] < 1e30) || *end != (i + 1 < classes ? ',' : 0))
            break;
        at = end;
    }
    return i == classes ? 1 : text_fail(error, "not a weight for each of %zu classes: %.100s", classes, list);
}

/* rename that replaces an old file everywhere: Windows' own refuses to. */
static inline int text_replace(const char *from, const char *to) {
#ifdef _WIN32
    (void)remove(to);
#endif
    return rename(from, to) == 0;
}

/* What a save to `path` replaces, to be freed: the path, or the file that a link there names. NULL where that
   is no regular file. *mode gets the permissions of an old file, 0 of a new one. */
static inline char *text_replaced(const char *path, int *mode) {
    size_t size = strlen(path) + 1;
    struct stat about;
    char *copy;
    *mode = 0;
#ifndef _WIN32
    if ((copy = realpath(path, NULL)) != NULL || (lstat(path, &about) == 0 && S_ISLNK(about.st_mode))) {
        if (copy && stat(copy, &about) == 0 && S_ISREG(about.st_mode))
            return *mode = about.st_mode & 0777, copy;
        return free(copy), NULL;
    }
#else
    if (stat(path, &about) == 0 && !S_ISREG(about.st_mode)) return NULL;
#endif
    copy = (char *)malloc(size);
    return copy ? (char *)memcpy(copy, path, size) : NULL;
}

/* Opens a file that nothing else has, beside the one that it is to replace; `name` gets its path. */
static inline FILE *text_own_file(const char *path, char *name, size_t size, int mode) {
    FILE *file = NULL;
    int fd = -1, tries;
    for (tries = 0; fd < 0 && tries < 1000; tries++) {
        snprintf(name, size, "%s.%lx.%d.tmp", path, (unsigned long)getpid(), tries);
        fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0666);
    }
#ifdef _WIN32
    (void)mode;
#else
    if (fd >= 0 && mode) (void)!fchmod(fd, (mode_t)mode);
#endif
    if (fd >= 0 && !(file = fdopen(fd, "wb"))) close(fd), (void)remove(name);
    return file;
}

/* Writes a line for each name, in a file of its own that is then renamed: a run that is stopped leaves the
   old file or the new one, and of several at once the last one's stays. Links and permissions stay. */
static inline int text_labels_save(const text_labels *l, const char *path, char *error) {
    int mode, bad;
    char *target = text_replaced(path, &mode);
    size_t size = target ? strlen(target) + 40 : 0, i;
    char *name = (char *)malloc(size + 1);
    FILE *file = target && name ? text_own_file(target, name, size, mode) : NULL;
    bad = !file;
    for (i = 0; file && i < l->n; i++)
        bad |= fwrite(l->names[i].at, 1, l->names[i].n, file) != l->names[i].n || putc('\n', file) == EOF;
    if (file) {
        bad |= fclose(file) != 0;
        bad = bad || !text_replace(name, target);
        if (bad) (void)remove(name);
    }
    free(name), free(target);
    return bad ? text_fail(error, "cannot write %s", path) : 1;
}

static inline int text_labels_load(text_labels *l, const char *path, char *error) {
    static const char *const first = "1";
    size_t i;
    memset(l, 0, sizeof *l);
    if (!text_table_load(&l->table, path, (size_t)1 << 24, &first, 1, error)) return 0;
    l->names = (text_slice *)text_memory(NULL, l->table.rows + 1, 1, sizeof *l->names);
    if (!l->names) return text_labels_close(l), text_fail(error, "no memory for %s", path);
    for (l->n = l->table.rows, i = 0; i < l->n; i++) l->names[i] = text_cell(&l->table, i, 0);
    return 1;
}

#endif
