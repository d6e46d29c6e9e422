/* folders.h - a folder of texts as passages: lists its .txt and .md files, reads them, cuts them into
   passages, and keeps in a few lines what tells later whether a file has changed. In the manner of text.h:
   static functions without globals, 1 for success and 0 for failure with one line in `error`. */
#ifndef FOLDERS_H
#define FOLDERS_H

#include "words.h"

#include <dirent.h>
#include <errno.h>
#include <sys/time.h>
#include <time.h>

enum { FOLDER_PATH = 4096, FOLDER_LEAST = 100, FOLDER_MOST = 200 }; /* bytes; words of a passage */

typedef struct folder_file {
    char *name; /* below the folder, of characters that can be shown */
    uint64_t size, hash; /* of its bytes */
    int64_t seconds, nanoseconds; /* when it was last changed */
    size_t first, passages; /* its passages among those of all files */
    int foreign; /* 1: no UTF-8 text, which has no passages */
} folder_file;

typedef struct folder_files {
    folder_file *files; /* by their names' bytes */
    size_t n, room;
    size_t hidden, links, special; /* what was passed over */
} folder_files;

/* Passages, one after another */
typedef struct folder_texts {
    char *bytes;
    uint64_t *begin; /* [n + 1] */
    int64_t *line; /* [n]: of its file, from 1 */
    size_t n, room, used, most;
} folder_texts;

static inline void folder_close(folder_files *f) {
    for (size_t i = 0; i < f->n; i++) free(f->files[i].name);
    free(f->files);
    memset(f, 0, sizeof *f);
}

static inline void folder_texts_close(folder_texts *t) {
    free(t->bytes);
    free(t->begin);
    free(t->line);
    memset(t, 0, sizeof *t);
}

/* ---- The files of a folder ---- */

/* The path of what has this name below the folder; the folder itself has none. */
static inline int folder_path(char path[FOLDER_PATH], const char *root, const char *name, char *error) {
    const char *slash = *name ? "/" : "";
    if ((size_t)snprintf(path, FOLDER_PATH, "%s%s%s", root, slash, name) < FOLDER_PATH) return 1;
    return text_fail(error, "too long a path: %.100s%s%.200s", root, slash, name);
}

/* Is it called .txt or .md, in capitals or not? */
static inline int folder_is_text(const char *name) {
    static const char *const endings[] = {".txt", ".md"};
    for (size_t e = 0; e < 2; e++) {
        size_t n = strlen(name), m = strlen(endings[e]), same = 0;
        if (n < m) continue;
        for (size_t i = 0; i < m; i++) same += (name[n - m + i] | 32) == (endings[e][i] | 32);
        if (same == m) return 1;
    }
    return 0;
}

/* Is a text UTF-8 without a 0? `shown`: and without control characters? */
static inline int folder_is_utf8(const char *s, size_t n, int shown) {
    uint32_t c;
    for (size_t at = 0; at < n;) {
        at += text_decode(s + at, n - at, &c);
        if (!c || (shown && text_steers(c))) return 0;
    }
    return 1;
}

static inline int folder_add(folder_files *f, const char *name, char *error) {
    size_t bytes = strlen(name) + 1;
    char *copy = (char *)malloc(bytes);
    if (copy && f->n == f->room) {
        folder_file *more = (folder_file *)text_memory(f->files, f->n + 32, 2, sizeof *more);
        if (!more) free(copy);
        if (!more) return text_fail(error, "no memory for a list of %zu files", f->n);
        f->files = more;
        f->room = 2 * (f->n + 32);
    }
    if (!copy) return text_fail(error, "no memory for a list of %zu files", f->n);
    memset(f->files + f->n, 0, sizeof *f->files);
    f->files[f->n++].name = (char *)memcpy(copy, name, bytes);
    return 1;
}

static inline void folder_stamp(folder_file *f, const struct stat *about) {
    f->size = (uint64_t)about->st_size;
    f->seconds = (int64_t)about->st_mtime;
#if defined(__APPLE__)
    f->nanoseconds = (int64_t)about->st_mtimespec.tv_nsec;
#elif !defined(_WIN32)
    f->nanoseconds = (int64_t)about->st_mtim.tv_nsec;
#endif
}

static inline int folder_same_stamp(const folder_file *a, const folder_file *b) {
    return a->size == b->size && a->seconds == b->seconds && a->nanoseconds == b->nanoseconds;
}

/* Lists what has this name: a text among the files, a folder in `below`. Links are not followed, so that
   no folder comes twice. */
static inline int folder_see(folder_files *f, folder_files *below, const char *root, const char *name,
                             char *error) {
    char path[FOLDER_PATH];
    struct stat about;
    if (!folder_path(path, root, name, error)) return 0;
#ifdef _WIN32
    int missing = stat(path, &about);
#else
    int missing = lstat(path, &about);
#endif
    if (missing && errno == ENOENT) return 1; /* gone since the folder was read */
    if (missing) return text_fail(error, "cannot look at %s", path);
#ifndef _WIN32
    f->links += S_ISLNK(about.st_mode) != 0;
    if (S_ISLNK(about.st_mode)) return 1;
#endif
    if (!S_ISDIR(about.st_mode) && !folder_is_text(name)) return 1;
    if (!folder_is_utf8(name, strlen(name), 1))
        return text_fail(error, "a name with control characters, or not in UTF-8: %s", path);
    if (S_ISDIR(about.st_mode)) return folder_add(below, name, error);
    f->special += !S_ISREG(about.st_mode);
    if (!S_ISREG(about.st_mode)) return 1;
    if (!folder_add(f, name, error)) return 0;
    folder_stamp(&f->files[f->n - 1], &about);
    return 1;
}

/* Lists what is directly inside a folder below the root. */
static inline int folder_enter(folder_files *f, folder_files *below, const char *root, const char *inside,
                               char *error) {
    char path[FOLDER_PATH], name[FOLDER_PATH];
    int done = 1;
    if (!folder_path(path, root, inside, error)) return 0;
    DIR *all = opendir(path);
    if (!all && (errno == ENOENT || errno == ENOTDIR)) return text_fail(error, "there is no folder %s", path);
    if (!all) return text_fail(error, "cannot read the folder %s", path);
    while (done) {
        errno = 0;
        const struct dirent *entry = readdir(all);
        if (!entry && errno) done = text_fail(error, "cannot read the folder %s", path);
        if (!entry) break;
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        f->hidden += entry->d_name[0] == '.';
        if (entry->d_name[0] == '.') continue;
        done = *inside ? folder_path(name, inside, entry->d_name, error) : 1;
        if (done) done = folder_see(f, below, root, *inside ? name : entry->d_name, error);
    }
    closedir(all);
    return done;
}

static inline int folder_order(const void *a, const void *b) {
    return strcmp(((const folder_file *)a)->name, ((const folder_file *)b)->name);
}

/* Lists the texts of a folder and of those in it, by name. To be closed, also after a failure. */
static inline int folder_list(folder_files *f, const char *root, char *error) {
    folder_files below; /* in the order in which they are looked into */
    memset(&below, 0, sizeof below);
    memset(f, 0, sizeof *f);
    int done = folder_add(&below, "", error);
    for (size_t at = 0; at < below.n; at++)
        if (done) done = folder_enter(f, &below, root, below.files[at].name, error);
    folder_close(&below);
    if (done && f->n) qsort(f->files, f->n, sizeof *f->files, folder_order);
    return done;
}

/* The file of this name, or NULL. */
static inline const folder_file *folder_find(const folder_files *f, const char *name) {
    size_t low = 0, high = f->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(f->files[middle].name, name);
        if (!order) return f->files + middle;
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

/* The file that a passage is of: the last one that does not begin behind it. */
static inline const folder_file *folder_of(const folder_files *f, size_t passage) {
    size_t low = 0, high = f->n;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (f->files[middle].first <= passage) low = middle;
        else high = middle;
    }
    return f->files + low;
}

/* Writes "2 hidden, 1 linked", .. into a line, which stays empty where nothing was passed over. */
static inline void folder_skipped(const folder_files *f, char line[TEXT_ERROR]) {
    size_t count[4] = {f->hidden, f->links, f->special, 0}, used = 0;
    static const char *const what[4] = {"hidden", "linked", "not regular", "not UTF-8 text"};
    for (size_t i = 0; i < f->n; i++) count[3] += f->files[i].foreign != 0;
    *line = 0;
    for (size_t i = 0; i < 4; i++)
        if (count[i]) used += (size_t)snprintf(line + used, TEXT_ERROR - used, "%s%zu %s", used ? ", " : "",
                                               count[i], what[i]);
}

/* ---- Their contents ---- */

static inline uint64_t folder_hash(uint64_t hash, const char *bytes, size_t n) {
    return fingerprint(hash, bytes, n);
}

/* A second change within one tick of the file system's clock would not show in the time: waits until the
   tick of the last change is over. What is listed first is old once a later file was waited for. */
static inline void folder_settle(const folder_file *f) {
    struct timeval now;
    gettimeofday(&now, NULL);
    double tick = f->nanoseconds ? 0.05 : 2;
    double age = (double)((int64_t)now.tv_sec - f->seconds);
    age += 1e-6 * (double)now.tv_usec - 1e-9 * (double)f->nanoseconds;
    if (age < 0 || age >= tick) return;
    struct timespec rest;
    rest.tv_sec = (time_t)(tick - age);
    rest.tv_nsec = (long)(1e9 * (tick - age - (double)rest.tv_sec));
    nanosleep(&rest, NULL);
}

/* Reads a listed file, which must still be as it was then: *text [size], to be freed. */
static inline int folder_read(const char *root, const folder_file *f, char **text, char *error) {
    char path[FOLDER_PATH];
    struct stat about;
    folder_file now = *f;
    *text = NULL;
    if (!folder_path(path, root, f->name, error)) return 0;
    if (f->size > 0xFFFFFFFF) return text_fail(error, "%s is larger than 4295 MB", path);
    folder_settle(f);
    FILE *file = regular_open(path);
    if (!file) return text_fail(error, "cannot open %s", path);
    size_t size = (size_t)f->size, got = 0;
    *text = (char *)text_memory(NULL, size + 1, 1, 1);
    if (*text) got = fread(*text, 1, size + 1, file);
    int failed = ferror(file), gone = fstat(fileno(file), &about);
    fclose(file);
    if (!*text) return text_fail(error, "no memory for %s", path);
    if (!gone) folder_stamp(&now, &about);
    if (!failed && !gone && got == size && folder_same_stamp(f, &now)) return 1;
    free(*text);
    *text = NULL;
    return text_fail(error, failed ? "cannot read %s" : "%s changes while it is read", path);
}

/* ---- Passages ---- */

static inline int folder_put(folder_texts *t, text_slice s, int64_t line, char *error) {
    if (t->used + s.n > t->most || !t->bytes) {
        char *more = (char *)text_memory(t->bytes, t->used + s.n + 4096, 2, 1);
        if (!more) return text_fail(error, "no memory for %zu passages", t->n);
        t->bytes = more;
        t->most = 2 * (t->used + s.n + 4096);
    }
    if (t->n == t->room) {
        size_t room = 2 * (t->n + 512);
        uint64_t *begin = (uint64_t *)text_memory(t->begin, room + 1, 1, sizeof *begin);
        if (begin) t->begin = begin;
        int64_t *lines = begin ? (int64_t *)text_memory(t->line, room, 1, sizeof *lines) : NULL;
        if (!lines) return text_fail(error, "no memory for %zu passages", t->n);
        t->line = lines;
        t->room = room;
    }
    memcpy(t->bytes + t->used, s.at, s.n);
    t->begin[t->n] = t->used;
    t->line[t->n++] = line;
    t->used += s.n;
    t->begin[t->n] = t->used;
    return 1;
}

typedef struct folder_span { size_t begin, end, line, words; } folder_span; /* of a text */

static inline int folder_is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* The next word from *at on, which is moved behind it: what blanks part, and every ideograph. *breaks counts
   the line ends before it. Its end is 0 where there is none. */
static inline folder_span folder_word(text_slice text, size_t *at, size_t *breaks) {
    folder_span word = {0, 0, 0, 1};
    uint32_t c;
    for (*breaks = 0; *at < text.n; ++*at) {
        if (!folder_is_blank(text.at[*at])) break;
        *breaks += text.at[*at] == '\n';
    }
    for (word.begin = *at; *at < text.n; word.end = *at) {
        if (folder_is_blank(text.at[*at])) break;
        size_t length = text_decode(text.at + *at, text.n - *at, &c);
        int alone = text_is_ideograph(c);
        if (alone && word.end) break;
        *at += length;
        if (alone) return word.end = *at, word;
    }
    return word;
}

/* The next paragraph: words without an empty line between. line: that of *at, moved along. */
static inline folder_span folder_paragraph(text_slice text, size_t *at, size_t *line) {
    folder_span all = {0, 0, 0, 0};
    for (;;) {
        size_t next = *at, breaks;
        folder_span word = folder_word(text, &next, &breaks);
        if (!word.end || (all.words && breaks > 1)) return all;
        *at = next;
        *line += breaks;
        if (!all.words) all.line = *line;
        if (!all.words) all.begin = word.begin;
        all.end = word.end;
        all.words++;
    }
}

/* What a cut goes through: a passage waits for a rest that is too short to stand alone. */
typedef struct folder_cutter { text_slice text; folder_texts *to; folder_span waiting; } folder_cutter;

static inline int folder_emit(folder_cutter *c, folder_span next, char *error) {
    folder_span s = c->waiting;
    text_slice text;
    c->waiting = next;
    if (!s.words) return 1;
    text.at = c->text.at + s.begin;
    text.n = s.end - s.begin;
    return folder_put(c->to, text, (int64_t)s.line, error);
}

/* Cuts a paragraph of too many words into equal pieces. */
static inline int folder_divide(folder_cutter *c, folder_span whole, char *error) {
    size_t pieces = (whole.words + FOLDER_MOST - 1) / FOLDER_MOST;
    size_t at = whole.begin, line = whole.line, used = 0, breaks;
    for (size_t p = 1; p <= pieces; p++) {
        folder_span piece = {0, 0, 0, 0};
        size_t until = (size_t)((double)whole.words * (double)p / (double)pieces + 0.5);
        for (; used < until; used++) {
            folder_span word = folder_word(c->text, &at, &breaks);
            line += breaks;
            if (!piece.words++) {
                piece.begin = word.begin;
                piece.line = line;
            }
            piece.end = word.end;
        }
        if (!folder_emit(c, piece, error)) return 0;
    }
    return 1;
}

/* Appends the passages of a text: paragraphs together until they have FOLDER_LEAST words, no more than
   FOLDER_MOST, and parts of those that are longer. Never cuts a word. */
static inline int folder_cut(folder_texts *to, text_slice text, char *error) {
    folder_cutter c;
    folder_span none = {0, 0, 0, 0}, now = none, next;
    size_t at = 0, line = 1;
    if (text.n >= 3 && !memcmp(text.at, "\xEF\xBB\xBF", 3)) at = 3;
    c.text = text;
    c.to = to;
    c.waiting = none;
    for (next = folder_paragraph(text, &at, &line); next.words; next = folder_paragraph(text, &at, &line)) {
        if (now.words && now.words + next.words > FOLDER_MOST) {
            if (!folder_emit(&c, now, error)) return 0;
            now = none;
        }
        if (next.words > FOLDER_MOST) {
            if (!folder_divide(&c, next, error)) return 0;
            continue;
        }
        if (!now.words) now = next;
        else now.words += next.words;
        now.end = next.end;
        if (now.words < FOLDER_LEAST) continue;
        if (!folder_emit(&c, now, error)) return 0;
        now = none;
    }
    if (now.words && c.waiting.words && c.waiting.words + now.words <= FOLDER_MOST) {
        c.waiting.end = now.end;
        now = none;
    }
    return folder_emit(&c, now, error) && folder_emit(&c, none, error);
}

/* ---- What is kept of the files ---- */

/* Writes a line for each file, "size seconds nanoseconds hash passages name"; of a foreign one the passages
   are x. *lines ends with a NUL and is to be freed. */
static inline int folder_write(const folder_files *f, char **lines, char *error) {
    size_t room = 1, used = 0;
    for (size_t i = 0; i < f->n; i++) room += strlen(f->files[i].name) + 120;
    *lines = (char *)text_memory(NULL, room, 1, 1);
    if (!*lines) return text_fail(error, "no memory for a list of %zu files", f->n);
    **lines = 0;
    for (size_t i = 0; i < f->n; i++) {
        const folder_file *x = f->files + i;
        char passages[24] = "x";
        if (!x->foreign) snprintf(passages, sizeof passages, "%zu", x->passages);
        used += (size_t)snprintf(*lines + used, room - used, "%llu %lld %lld %016llx %s %s\n",
                                 (unsigned long long)x->size, (long long)x->seconds,
                                 (long long)x->nanoseconds, (unsigned long long)x->hash, passages, x->name);
    }
    return 1;
}

/* Takes such a line apart; 0 where it is none. */
static inline int folder_parse_line(folder_file *x, char *line) {
    char *at = line, *words[5];
    for (size_t i = 0; i < 5; i++) {
        words[i] = at;
        at = strchr(at, ' ');
        if (!at) return 0;
        *at++ = 0;
    }
    uint64_t nanoseconds = 0, passages = 0;
    char *ends[2];
    x->name = at;
    x->foreign = !strcmp(words[4], "x");
    x->seconds = (int64_t)strtoll(words[1], &ends[0], 10);
    x->hash = (uint64_t)strtoull(words[3], &ends[1], 16);
    if (!text_whole(words[0], &x->size) || !text_whole(words[2], &nanoseconds)) return 0;
    if (!x->foreign && !text_whole(words[4], &passages)) return 0;
    if (*ends[0] || *ends[1] || nanoseconds >= 1000000000 || passages > SIZE_MAX / 2) return 0;
    x->nanoseconds = (int64_t)nanoseconds;
    x->passages = (size_t)passages;
    return *x->name && folder_is_utf8(x->name, strlen(x->name), 1);
}

/* Reads such lines: of files in order, with as many passages as the base has. To be closed, also after a
   failure. */
static inline int folder_parse(folder_files *f, const char *lines, size_t passages, char *error) {
    char line[FOLDER_PATH + 120];
    size_t first = 0;
    memset(f, 0, sizeof *f);
    while (*lines) {
        folder_file x;
        size_t n = strcspn(lines, "\n");
        memset(&x, 0, sizeof x);
        snprintf(line, sizeof line, "%.*s", n < sizeof line ? (int)n : 0, lines);
        int fits = lines[n] && folder_parse_line(&x, line) && x.passages <= passages - first;
        if (fits && f->n) fits = strcmp(f->files[f->n - 1].name, x.name) < 0;
        if (!fits) return text_fail(error, "its list of files is damaged");
        if (!folder_add(f, x.name, error)) return 0;
        x.name = f->files[f->n - 1].name;
        x.first = first;
        f->files[f->n - 1] = x;
        first += x.passages;
        lines += n + 1;
    }
    return first == passages && f->n ? 1 : text_fail(error, "its list of files is not that of its passages");
}

#endif
