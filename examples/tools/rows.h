/* rows.h - brings rows of a user's own (own_rows.h) into a program: those that are linked, or those of the
   shared object that --rows names. Static functions; streams.h is the only other header that they need. */
#ifndef ROWS_H
#define ROWS_H

#include "own_rows.h"
#include "streams.h"

#if defined(_WIN32) || defined(__wasm__)
#define ROWS_LOAD 0
#elif defined(__GLIBC_PREREQ) && !defined(WITH_DL)
#if __GLIBC_PREREQ(2, 34) /* before it dlopen needs -ldl, and this -DWITH_DL */
#define ROWS_LOAD 1
#endif
#else
#define ROWS_LOAD 1
#endif
#ifndef ROWS_LOAD
#define ROWS_LOAD 0
#endif
#if ROWS_LOAD
#include <dlfcn.h>
#ifdef __linux__
#include <link.h>
#endif
#endif

/* What every program says of the option. */
#define ROWS_HELP "--rows FILE.so brings scores, layers and optimisers of your own (examples/README.md)"

#define ROWS_TEXT_OF(name) #name
#define ROWS_TEXT(name) ROWS_TEXT_OF(name)

/* Are the rows of this version and precision? 0 with a line. */
static inline int own_rows_fit(const own_rows *rows, const char *from, char error[TEXT_ERROR]) {
    if (!rows) return text_fail(error, "%.200s: cmha_own_rows() returns nothing", from);
    if (rows->version / 100 != CMHA_VERSION / 100)
        return text_fail(error, "%.200s was compiled for version %u.%u of cmha.h, this program for %d.%d",
                         from, (unsigned)(rows->version / 10000), (unsigned)(rows->version / 100 % 100),
                         CMHA_VERSION_MAJOR, CMHA_VERSION_MINOR);
    if (rows->real != sizeof(cmha_real))
        return text_fail(error, "%.200s was compiled with numbers of %u bytes, this program with %u "
                         "(CMHA_DOUBLE)", from, (unsigned)rows->real, (unsigned)sizeof(cmha_real));
    if (rows->score != sizeof(cmha_score) || rows->optimiser != sizeof(cmha_optimiser))
        return text_fail(error, "%.200s was compiled for another cmha.h: its rows have other sizes", from);
    if ((rows->n_scores && !rows->scores) || (rows->n_optimisers && !rows->optimisers))
        return text_fail(error, "%.200s: cmha_own_rows() counts rows that are not there", from);
    return 1;
}

#if ROWS_LOAD
/* Is the file as long as its own head says? Of one that was cut the system reads what is not there, and ends
   the program. Only Linux's files are looked at; what is no such file at all is left to the system. */
static inline int own_rows_whole(FILE *file) {
#ifdef __linux__
    ElfW(Ehdr) head;
    ElfW(Phdr) part;
    if (fread(&head, sizeof head, 1, file) != 1) return 0;
    if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_phentsize != sizeof part) return 1;
    if (fseek(file, 0, SEEK_END)) return 0;
    uint64_t bytes = (uint64_t)ftell(file);
    for (unsigned i = 0; i < head.e_phnum; i++) {
        uint64_t at = (uint64_t)head.e_phoff + (uint64_t)i * sizeof part;
        if (at > bytes || fseek(file, (long)at, SEEK_SET)) return 0;
        if (fread(&part, sizeof part, 1, file) != 1) return 0;
        if (part.p_filesz > bytes || part.p_offset > bytes - part.p_filesz) return 0;
    }
#else
    (void)file;
#endif
    return 1;
}

/* Why the system did not load a file, in words for whoever compiled it. */
static inline int own_rows_not_loaded(const char *path, const char *why, char error[TEXT_ERROR]) {
    const char *marks = why ? strstr(why, "_compiled_with") : NULL, *begin = marks;
    if (marks && strstr(why, ROWS_TEXT(CMHA_CONFIGURATION)))
        return text_fail(error, "%.200s finds nothing of cmha.h in this program, which was linked without "
                         "-rdynamic", path);
    while (begin && begin > why && begin[-1] != ' ') begin--;
    if (marks)
        return text_fail(error, "%.200s was compiled for another version or precision of cmha.h (%.60s), "
                         "this program for %s", path, begin, ROWS_TEXT(CMHA_CONFIGURATION));
    return text_fail(error, "cannot load %.150s: %.300s", path, why ? why : "the system does not say why");
}

/* Opens a shared object for ever. A path without a slash is a file of this folder: the system's list of
   folders is not searched. NULL with a line. */
static inline void *own_rows_object(const char *path, char error[TEXT_ERROR]) {
    char here[4096];
    FILE *file = regular_open(path);
    int n = snprintf(here, sizeof here, "%s%s", strchr(path, '/') ? "" : "./", path), whole;
    if (!file) return text_fail(error, "cannot open %.200s%s", path, regular_fault(path)), (void *)NULL;
    whole = own_rows_whole(file);
    fclose(file);
    if (!whole) return text_fail(error, "cannot load %.200s: it is cut", path), (void *)NULL;
    if (n >= (int)sizeof here) return text_fail(error, "too long: %.200s", path), (void *)NULL;
    void *object = dlopen(here, RTLD_NOW | RTLD_LOCAL);
    if (!object) own_rows_not_loaded(path, dlerror(), error);
    return object;
}

static inline const own_rows *own_rows_load(const char *path, char error[TEXT_ERROR]) {
    const own_rows *(*get)(void) = NULL;
    void *object = own_rows_object(path, error), *found;
    if (!object) return NULL;
    found = dlsym(object, "cmha_own_rows");
    if (found) memcpy(&get, &found, sizeof get); /* ISO C has no cast from data to functions */
    else text_fail(error, "%.200s does not define cmha_own_rows(); see examples/tools/own_rows.h", path);
    const own_rows *rows = get ? get() : NULL;
    if (get && own_rows_fit(rows, path, error)) return rows;
    dlclose(object);
    return NULL;
}
#else
static inline const own_rows *own_rows_load(const char *path, char error[TEXT_ERROR]) {
    text_fail(error, "this program cannot load %.200s: link the file, make own ROWS=FILE.c", path);
    return NULL;
}
#endif

/* The rows of the program: of `path` or, if that is NULL, those that are linked, if any are. Returns 0 with a
   line. */
static inline int own_rows_find(const char *path, own_rows *rows, char error[TEXT_ERROR]) {
    const own_rows *found = NULL;
    memset(rows, 0, sizeof *rows);
#ifdef WITH_OWN_ROWS
    if (path)
        return text_fail(error, "--rows: rows are linked into this program already, what is %.200s", path);
    found = cmha_own_rows();
    if (!own_rows_fit(found, "the file of ROWS=", error)) return 0;
#else
    if (path && (found = own_rows_load(path, error)) == NULL) return 0;
#endif
    if (found) *rows = *found;
    return 1;
}

static inline void own_rows_give(const own_rows *rows, cmha_context_config *config) {
    config->scores = rows->scores, config->n_scores = rows->n_scores;
    config->optimisers = rows->optimisers, config->n_optimisers = rows->n_optimisers;
}

/* Is this a name, and not the other? Of equal names the library would take the first. */
static inline int own_rows_name(const char *name, const char *other, const char *what,
                                char error[TEXT_ERROR]) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-";
    size_t n = name ? strlen(name) : 0;
    if (!n || n > 31 || strspn(name, letters) != n)
        return text_fail(error, "own rows: the name of each %s is 1 to 31 letters, digits, - _ . +", what);
    if (other && !strcmp(name, other))
        return text_fail(error, "own rows: there is already an %s %s; choose another name", what, name);
    return 1;
}

/* Is this the name of a kind of attention, or of one of the scores before score n? */
static inline int own_rows_score_name(const cmha_context *context, size_t n, char error[TEXT_ERROR]) {
    const cmha_score *scores = context->config.scores;
    const char *other;
    if (!own_rows_name(scores[n].name, NULL, "attention", error)) return 0;
    for (size_t i = 0; (other = cmha_kind_name(i, NULL)) != NULL; i++)
        if (!own_rows_name(scores[n].name, other, "attention", error)) return 0;
    for (size_t i = 0; i < n; i++)
        if (!own_rows_name(scores[n].name, scores[i].name, "attention", error)) return 0;
    return 1;
}

/* Have all rows of an open context a name of their own? The context lists its own optimisers last. */
static inline int own_rows_names(const cmha_context *context, char error[TEXT_ERROR]) {
    const cmha_context_config *c = &context->config;
    size_t all = 0;
    for (size_t i = 0; i < c->n_scores; i++)
        if (!own_rows_score_name(context, i, error)) return 0;
    for (size_t i = 0; i < c->n_optimisers; i++)
        if (!own_rows_name(c->optimisers[i].name, NULL, "optimiser", error)) return 0;
    while (cmha_optimiser_name(context, all) != NULL) all++;
    for (size_t i = all - c->n_optimisers; i < all; i++)
        for (size_t k = 0; k < i; k++) {
            const char *one = cmha_optimiser_name(context, i), *other = cmha_optimiser_name(context, k);
            if (!own_rows_name(one, other, "optimiser", error)) return 0;
        }
    return 1;
}

/* What to add to the library's line about a score or an optimiser that it does not know. */
static inline const char *own_rows_hint(const char *line, int given) {
    if (!strstr(line, "there is no score ") && !strstr(line, "there is no optimiser ")) return "";
    return given ? "; the rows given have none of that name" : "; --rows names the file that brings it";
}

/* Makes the model one of the score or layer of that name, if the context has it of the user's own; else 0. */
static inline int own_rows_kind(cmha_context *context, const char *name, cmha_model_config *model) {
    char fields[64];
    for (size_t i = 0; i < context->config.n_scores; i++) {
        if (strcmp(context->config.scores[i].name, name) != 0) continue;
        snprintf(fields, sizeof fields, "family=real position=none score=%s", name);
        return !cmha_config_set_all(context, cmha_model_table(), model, fields);
    }
    return 0;
}

#endif
