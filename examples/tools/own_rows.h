/* own_rows.h - rows of one's own for every program here: scores, whole layers of attention, optimisers.
   A file includes cmha.h and this, ends with OWN_ROWS, and is

       make own ROWS=my_rows.c                            linked into all programs, which go to build/own; or
       cc -O2 -shared -fPIC -I. my_rows.c -o my_rows.so   named by --rows my_rows.so

   examples/rows/my_rows.c is such a file. */
#ifndef OWN_ROWS_H
#define OWN_ROWS_H

/* What the function returns. The first four say what the file was compiled for; a program that was compiled
   for something else refuses it. */
typedef struct own_rows {
    uint32_t version, real, score, optimiser; /* CMHA_VERSION; sizes in bytes */
    const cmha_score *scores; /* [n_scores], as in cmha_context_config; they outlive the program's context */
    size_t n_scores;
    const cmha_optimiser *optimisers; /* [n_optimisers], likewise */
    size_t n_optimisers;
} own_rows;

#if defined(__GNUC__) && !defined(_WIN32)
#define OWN_ROWS_SEEN __attribute__((visibility("default")))
#else
#define OWN_ROWS_SEEN
#endif
#ifdef __cplusplus
extern "C"
#else
extern
#endif
    OWN_ROWS_SEEN const own_rows *cmha_own_rows(void);

/* Defines the function; what there is none of is NULL, 0. */
#define OWN_ROWS(scores, n_scores, optimisers, n_optimisers) \
    const own_rows *cmha_own_rows(void) { \
        static const own_rows rows = { \
            CMHA_VERSION, sizeof(cmha_real), sizeof(cmha_score), sizeof(cmha_optimiser), scores, n_scores, \
            optimisers, n_optimisers}; \
        return &rows; \
    }

#endif
