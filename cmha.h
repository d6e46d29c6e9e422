/* cmha.h - Transformers whose attention works in the complex plane, in one C header. MIT licence, at the end.

   Train a ComplexFormer (arXiv 2505.10222) on a text, in one file:

       #define CMHA_IMPLEMENTATION            // in exactly one .c file of your program
       #include "cmha.h"
       #include <stdio.h>

       int main(int argc, char **argv) {
           cmha_context ctx; cmha_model model; cmha_trainer trainer; cmha_tokens text;
           cmha_model_config mc; cmha_trainer_config tc; double loss; int step;
           cmha_blas_restart(argv);           // restarts once with the right OpenBLAS kernel
           cmha_preset(NULL, "tiny", &mc, &tc);
           if (cmha_context_init(&ctx, NULL) ||
               cmha_tokens_open(&text, &ctx, argc > 1 ? argv[1] : "cmha.h", 1) ||
               cmha_model_init(&model, &ctx, &mc) || cmha_trainer_init(&trainer, &model, &tc))
               return puts(cmha_error(&ctx)), 1;
           for (step = 0; step < 20; step++) {
               if (cmha_trainer_step(&trainer, &text, &loss)) return puts(cmha_error(&ctx)), 1;
               printf("step %d: %.3f nats per byte\n", step, loss);
           }
           cmha_trainer_close(&trainer); cmha_model_close(&model);
           cmha_tokens_close(&text); cmha_context_close(&ctx);
           return 0;
       }

   Compile and link
       Linux, BSD     cc -O2 -fopenmp app.c -lopenblas -lm (Debian: libopenblas-dev)
       macOS          cc -O3 app.c -framework Accelerate
       MinGW          gcc -O3 -march=native -fopenmp app.c -lopenblas
       nothing there  cc -O2 -DCMHA_NO_CBLAS app.c -lm (the built-in GEMM)
       32-bit x86     add -msse2 -mfpmath=sse (an x87 gets slow mathematics)
       wasm           emcc -O3 -DCMHA_NO_CBLAS app.c -sALLOW_MEMORY_GROWTH=1 (-sNODERAWFS=1: node's files)
   The code compiles as C99, C11, C17 and C++11, the declarations also as C89. Under -ffast-math, -Ofast and
   their parts the library computes in IEEE arithmetic, as fast; where clang cannot, an #error names the flag
   to add. Linking with such a flag makes a whole program, library included, take denormal numbers for 0.

   Configuration macros; all but IMPLEMENTATION and CBLAS_HEADER must be the same in every file of a program
       CMHA_IMPLEMENTATION   compile the code in this file: exactly one of a program (STATIC: not needed)
       CMHA_LINKED           compile it in no file: an object that has it is linked
       CMHA_STATIC           compile it as static functions in each file: private copies may coexist
       CMHA_DEF              prefix of functions, default extern (C++: extern "C"), or __declspec(dllexport)
       CMHA_DOUBLE           cmha_real is double, not float: gradient checks to 1e-9. See CMHA_CONFIGURATION
       CMHA_NO_CBLAS         do not use CBLAS but the built-in matrix product (GEMM)
       CMHA_CBLAS_HEADER     the header that declares cblas_sgemm, default <cblas.h>; for the code alone
       CMHA_NO_SIMD          use scalar mathematics from libm (the reference path of the tests)
       CMHA_NO_DISPATCH      compile only for the flags' instruction set, not also for AVX2 and AVX-512
       CMHA_NO_OLD_NAMES     leave out names of earlier versions, which warn where they are used
       CMHA_SMALL_STACK      a call of a cache takes at most 16 KB of stack, not 83: pieces of the built-in
         product are smaller, and slower where cores have caches. The default on Cortex-M
       CMHA_NO_FILES         no file system, no stdio: paths lead to the context's callbacks (cmha_buffers)
       CMHA_INFERENCE_ONLY   no backward passes, training or writing (gcc -O2: 620 KB, NO_DISPATCH 395). If
         CMHA_IMPLEMENTATION is defined before this file's first #include, calls of them do not link

   Rules that hold everywhere
     - Arrays are row-major; a comment such as x [B, N, D] gives the shape, last index fastest.
     - A call that can fail returns a cmha_status; cmha_error(context) then names the operation and the sizes
       in one line. Operations on a tape return a tensor, or NULL after a failure or for a NULL input, which
       is no error; cmha_tape_status and cmha_tape_backward return the first failure.
     - Zero the members of a struct that you do not set; a configuration's get their defaults from
       cmha_preset or cmha_config_defaults. "(or NULL)" marks a result that you may not want or an argument
       that you may leave out.
     - The library never prints, exits or aborts, has no global state (but the chosen instruction set) and
       allocates only through the context. Callbacks must not throw.
     - Backward passes add (+=) to gradients.
     - A masked key changes nothing, if it is finite; a query that sees no key gives zeros. What padding and,
       in a causal model, later tokens hold changes no bit of another token's numbers, except with experts:
       the order of a BLAS's sums there depends on how many tokens share one, so that later tokens and other
       sequences make differences of about 1e-7 (not with the built-in product).
     - Complex numbers are pairs of reals; the gradient of z is dL/dRe(z) + i dL/dIm(z).
     - The papers leave much open: examples/PAPERS.md says what, and what is computed here.
     - _init or _open opens an object (context, tape, model, trainer, cache, tokens, archive), _close closes
       it, the context last. Closing a closed or zeroed object does nothing. An object whose model or context
       was closed returns CMHA_ERR_STATE and can still be closed, until that context is opened again.
     - Two threads may work at once with two contexts. In a child of fork() GCC's OpenMP waits for ever: fork
       before the first call, open the child's context with threads = 1, or exec.

   Where the papers' equations are: in these functions, whose comments name them
       ComplexFormer, arXiv 2505.10222
         1-4 cmha_euler_forward, 5-8 cmha_rotate_forward, 9 cmha__forward_rows
       CoPE, arXiv 2508.18308; its 3-9 discuss eq 2 and drop the conjugate of K_proj
         1 cmha_cope_table, 2 cmha__cope, 10-17 cmha__linear_y
       MöbiusAttention, arXiv 2409.12175
         1-4 examples/tools/mobius_geometry.h, 5-6 cmha__quotient_pass,
         7-8 cmha_complex_linear_forward, 9 cmha__terms, 10-27 cmha__mobius_block
       CRAT, crat.maxware.ca; its displayed equations are missing, the numbers are those of a reconstruction
         1 cmha_embedding, 2 cmha__multifreq_walk, 3 cmha__add_rows_numbers, 4-5 cmha_linear,
         6-7 cmha__complex_rotate_pass, 8 cmha_complex_norm_forward, 9 cmha_activation_forward,
         10 cmha_complex_linear_forward, 11-12 cmha__phasor_map, 13 cmha__forward_rows, 14 cmha__lag_scores,
         15 cmha_complex_lowrank, 16 cmha__crat_block, 17 cmha_irw, 18 cmha__search_run,
         19 cmha__retrieve_mix, 20 cmha_complex_residual_forward, 21 cmha__experts_run,
         22 cmha_componentwise_clip, 23-24 cmha__regulariser_sum,
         25 cmha__model_body, 26 cmha__final_norm, 27 cmha_linear_cross_entropy, 28-35 examples/extensions

   Rooms, in this order for declarations and for code:
       Base | Vector mathematics | Tape and engine | Operations |
       Attention | Models | Training | Inference | Files */

#pragma push_macro("I") /* of <complex.h> */
#undef I
#ifndef CMHA_H
#define CMHA_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__) || defined(__clang__)
#define CMHA__OWN static __attribute__((unused))
#else
#define CMHA__OWN static
#endif
#ifdef __cplusplus
#define CMHA__EXTERN extern "C"
#else
#define CMHA__EXTERN extern
#endif
#if defined(CMHA_STATIC)
#undef CMHA_DEF
#define CMHA_DEF CMHA__OWN
#elif defined(CMHA_DEF)
#define CMHA__DEF_GIVEN
#else
#define CMHA_DEF CMHA__EXTERN
#endif
/* Marks what CMHA_INFERENCE_ONLY leaves out: backward passes, training, writing. */
#if defined(CMHA_INFERENCE_ONLY) && defined(CMHA_IMPLEMENTATION) && !defined(CMHA_LINKED)
#define CMHA__FIT CMHA__OWN
#else
#define CMHA__FIT CMHA_DEF
#endif
#if defined(__ARM_ARCH_PROFILE) && __ARM_ARCH_PROFILE == 'M' && !defined(CMHA_SMALL_STACK)
#define CMHA_SMALL_STACK
#endif
#ifdef CMHA_INFERENCE_ONLY
#define CMHA__TRAINS 0
#else
#define CMHA__TRAINS 1
#endif

#ifdef CMHA_DOUBLE
typedef double cmha_real;
#else
typedef float cmha_real;
#endif

/* ================ Base ================ */
#define CMHA_VERSION_MAJOR 1
#define CMHA_VERSION_MINOR 0
#define CMHA_VERSION_PATCH 0
/* For #if: 10000 is version 1.0.0. */
#define CMHA_VERSION (CMHA_VERSION_MAJOR * 10000 + CMHA_VERSION_MINOR * 100 + CMHA_VERSION_PATCH)

/* Makes linkers (GCC's, clang's; not under CMHA_STATIC) refuse objects compiled with another MAJOR.MINOR or
   cmha_real: undefined reference to `cmha_1_0_compiled_with_CMHA_DOUBLE'. */
#ifndef CMHA_STATIC
#ifdef CMHA_DOUBLE
#define CMHA_CONFIGURATION CMHA__CONFIGURATION_NAME(CMHA_VERSION_MAJOR, CMHA_VERSION_MINOR, with)
#else
#define CMHA_CONFIGURATION CMHA__CONFIGURATION_NAME(CMHA_VERSION_MAJOR, CMHA_VERSION_MINOR, without)
#endif
#define CMHA__CONFIGURATION_NAME(major, minor, real) CMHA__CONFIGURATION_PASTE(major, minor, real)
#define CMHA__CONFIGURATION_PASTE(major, minor, real) cmha_##major##_##minor##_compiled_##real##_CMHA_DOUBLE
CMHA_DEF void CMHA_CONFIGURATION(void); /* does nothing */
#if defined(__wasm__) /* whose linker drops data that no code refers to */
__attribute__((constructor)) static void cmha__configured(void) { CMHA_CONFIGURATION(); }
#elif defined(__GNUC__) || defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wattributes" /* GCC knows `retain` where its target does not */
#if defined(__ELF__) && defined(__has_attribute)
#if __has_attribute(retain)
__attribute__((retain))
#endif
#endif
__attribute__((used)) static void (*const cmha__configuration)(void) = CMHA_CONFIGURATION;
#pragma GCC diagnostic pop
#endif
#endif

/* Returns sizeof the struct of that name ("cmha_model"), for callers in other languages; 0: no such struct.
   CMHA_DOUBLE changes some. */
CMHA_DEF size_t cmha_sizeof(const char *name);
CMHA_DEF const char *cmha_version(void); /* of the code: "1.0.0 (float, CBLAS, OpenMP)" */

/* name, text of cmha_status_string */
#define CMHA_STATUSES(X) \
    X(CMHA_OK, "no error") \
    X(CMHA_ERR_ARGUMENT, "an argument is missing or out of range") \
    X(CMHA_ERR_SHAPE, "shapes do not fit together") \
    X(CMHA_ERR_MEMORY, "the allocator returned no memory") \
    X(CMHA_ERR_OVERFLOW, "a size is too large to be represented") \
    X(CMHA_ERR_IO, "reading or writing a file failed") \
    X(CMHA_ERR_FORMAT, "a file is not what its format promises") \
    X(CMHA_ERR_NOT_FOUND, "a file, tensor or option of that name is not there") \
    X(CMHA_ERR_NOT_FINITE, "a loss or gradient is NaN or infinite") \
    X(CMHA_ERR_FULL, "the cache has no room for more tokens") \
    X(CMHA_ERR_TOKEN, "a token lies outside the vocabulary") \
    X(CMHA_ERR_STATE, "the object is not in a state that allows this") \
    X(CMHA_STOPPED, "a callback asked to stop")

typedef enum cmha_status {
#define CMHA__STATUS_ENUM(name, text) name,
    CMHA_STATUSES(CMHA__STATUS_ENUM)
#undef CMHA__STATUS_ENUM
    CMHA_STATUS_COUNT
} cmha_status;

CMHA_DEF const char *cmha_status_string(cmha_status status); /* a constant English phrase; never NULL */
/* Allocates memory, in the calling thread. Set both callbacks or neither (malloc, free). */
typedef struct cmha_allocator {
    void *(*allocate)(void *user, size_t bytes); /* NULL: out of memory */
    void (*release)(void *user, void *memory, size_t bytes); /* bytes: as asked of allocate */
    void *user;
} cmha_allocator;
typedef struct cmha_context cmha_context;
/* Replaces the system's files. Set size and read, write and finish, or neither of a pair: the system's. If a
   callback fails, the call changes nothing and returns the callback's status, with the path in its error
   line. */
typedef struct cmha_files {
    cmha_status (*size)(void *user, cmha_context *context, const char *path, uint64_t *bytes);
    cmha_status (*read)(void *user, cmha_context *context, const char *path, uint64_t offset, void *to,
        size_t bytes);
    /* Gets a new file of `total` bytes in consecutive pieces from offset 0. */
    cmha_status (*write)(void *user, cmha_context *context, const char *path, uint64_t offset,
        const void *from, size_t bytes, uint64_t total);
    /* Ends the writing. whole = 1: the new file replaces the old one; 0: it is discarded. */
    cmha_status (*finish)(void *user, cmha_context *context, const char *path, int whole);
    int system_too; /* 1: after NOT_FOUND of size or the first write, the system's files are tried */
    void *user;
} cmha_files;

/* Holds a file in memory. */
typedef struct cmha_buffer {
    const char *name; /* the path that leads here; NULL ends a list */
    const void *data; /* [size], of any alignment: the caller's or, after a save, `taken` */
    size_t size;
    void *taken; /* NULL or, after a save, `size` bytes of the context's allocator: the caller's to release;
        the next save that succeeds does so */
    void *saving; /* the new file while it is written */
    size_t saving_bytes;
} cmha_buffer;
/* Serves paths from a list of buffers, which must outlive the context; other paths are the system's. */
CMHA_DEF cmha_files cmha_buffers(cmha_buffer *list);
typedef enum cmha_log_level { CMHA_LOG_INFO, CMHA_LOG_WARNING } cmha_log_level;
typedef struct cmha_score cmha_score; /* a program's own kind of attention, see Attention */
typedef struct cmha_optimiser cmha_optimiser; /* a program's own optimiser, see Training */
typedef struct cmha_context_config {
    /* 0 = as many as OpenMP offers; without OpenMP always 1. Beside other programs fewer work where that is
       faster, with the same bits. */
    int threads;
    uint64_t seed; /* of initial parameters, dropout and batches; 0 is an ordinary seed */
    cmha_allocator allocator; /* zeroed = malloc and free */
    cmha_files files; /* zeroed = the system's; cmha_buffers(list) = files in memory */
    void (*log)(void *user, cmha_log_level level, const char *line); /* no newline; NULL = silence */
    void *log_user;
    int keep_blas_threads; /* 0: OpenBLAS has one thread until close (close in reverse order); 1: unchanged */
    const cmha_score *scores; /* [n_scores], outlive the context; a model's field `score` names one */
    size_t n_scores;
    const cmha_optimiser *optimisers; /* [n_optimisers], likewise, for a trainer's field `optimiser` */
    size_t n_optimisers;
} cmha_context_config;

/* Holds what all its objects use: options, threads, the last failure's line. One thread at a time. */
struct cmha_context {
    cmha_context_config config;
    int threads; /* used, >= 1 */
    int blas_threads; /* OpenBLAS's before init, 0 = untouched */
    char detail[512]; /* see cmha_error */
    uint32_t open; /* set by init, cleared by close */
    uint64_t models; /* opened so far */
};

/* Opens a context; config NULL = defaults. Logs a warning if cmha_blas_remedy returns one. Errors: ARGUMENT
   (threads < 0, half of a pair of callbacks). */
CMHA_DEF cmha_status cmha_context_init(cmha_context *context, const cmha_context_config *config);
CMHA_DEF void cmha_context_close(cmha_context *context);
/* Returns the line of the last failure, "attention: width 65 is not divisible by 4 heads"; "" if none. */
CMHA_DEF const char *cmha_error(const cmha_context *context);
/* Writes what multiplies matrices, "OpenBLAS SkylakeX", "CBLAS", "Accelerate" or "built-in", to buffer. */
CMHA_DEF const char *cmha_blas_name(char *buffer, size_t size);
/* Returns the instruction set of the hot loops, "avx512", "avx2", "sse2", elsewhere "base": the CPU's best if
   GCC or clang compiled for every x86-64, else that of the flags. A name chooses that set for the process
   (for tests, while nothing is computed); NULL: it is not available. */
CMHA_DEF const char *cmha_instructions(const char *name);
/* Returns the setting that makes OpenBLAS use this CPU, "OPENBLAS_CORETYPE=SkylakeX"; NULL: not needed. */
CMHA_DEF const char *cmha_blas_remedy(void);
/* Call it first in main (Linux, else it does nothing): adds that setting and a short GOMP_SPINCOUNT (spinning
   of GCC's idle threads) to the environment, unless the user has, and executes the program again, once. */
CMHA_DEF void cmha_blas_restart(char **argv);

/* Draws random numbers by a counter: SplitMix64 from the state `key` on. */
typedef struct cmha_rng { uint64_t key, counter; } cmha_rng;
CMHA_DEF cmha_rng cmha_rng_make(uint64_t seed, uint64_t stream); /* streams of one seed are independent */
CMHA_DEF uint64_t cmha_rng_next(cmha_rng *rng); /* 64 uniform bits */
CMHA_DEF double cmha_rng_uniform(cmha_rng *rng); /* in [0, 1), 53 bits */
CMHA_DEF double cmha_rng_normal(cmha_rng *rng); /* mean 0, variance 1 */
CMHA_DEF uint64_t cmha_rng_below(cmha_rng *rng, uint64_t n); /* in [0, n), n > 0 */

/* Describes a field of a configuration struct, for setting by name, checking, printing and help. */
enum cmha_field_type { CMHA_FIELD_SIZE, CMHA_FIELD_REAL, CMHA_FIELD_FLAG, CMHA_FIELD_ENUM, CMHA_FIELD_NAME };
typedef enum cmha_field_type cmha_field_type;
typedef struct cmha_field {
    const char *name;
    cmha_field_type type; /* size_t, double, int 0/1, int with words, char [32]: letters, digits, -_.+*, */
    size_t offset; /* of the member in its struct, in bytes */
    double initial, minimum, maximum; /* default and closed range */
    const char *choices; /* ENUM: "a|b|c", from minimum to maximum; NAME: "NAME"; else NULL */
    const char *help; /* one line */
} cmha_field;
typedef struct cmha_table { const cmha_field *fields; size_t count; } cmha_table;
CMHA_DEF void cmha_config_defaults(cmha_table table, void *config); /* sets every field */
/* Sets a field from text. context (or NULL): gets the error line. Errors: NOT_FOUND (no such field), ARGUMENT
   (no number or choice, out of range). */
CMHA_DEF cmha_status cmha_config_set(cmha_context *context, cmha_table table, void *config, const char *name,
    const char *value);
/* Sets "NAME=VALUE NAME=VALUE ..." (spaces between) likewise; fields before a wrong one stay set. */
CMHA_DEF cmha_status cmha_config_set_all(cmha_context *context, cmha_table table, void *config,
    const char *text);
/* Writes a field as text for cmha_config_set; "" if there is no such field. 32 bytes are enough. */
CMHA_DEF void cmha_config_get(cmha_table table, const void *config, const char *name, char *text,
    size_t size);
/* Checks every field's range. Errors: ARGUMENT, naming the first outside. */
CMHA_DEF cmha_status cmha_config_check(cmha_context *context, cmha_table table, const void *config);

/* ================ Vector mathematics ================ */
/* Compute y [n] = exp(x) (-87.3 < x < 88; below 0), tanh(x), sqrt(re^2 + im^2), to 4 ulp; in double exp and
   tanh are libm's. y may be x. */
CMHA_DEF void cmha_exp(size_t n, const cmha_real *x, cmha_real *y);
CMHA_DEF void cmha_tanh(size_t n, const cmha_real *x, cmha_real *y);
CMHA_DEF void cmha_modulus(size_t n, const cmha_real *re, const cmha_real *im, cmha_real *y);
/* Computes the soft cap y [n] = cap tanh(x / cap) of Gemma 2 (arXiv 2408.00118), cap > 0, and its derivative
   slope [n] (or NULL). y may be x. */
CMHA_DEF void cmha_softcap_forward(const cmha_real *x, size_t n, cmha_real cap, cmha_real *y,
    cmha_real *slope);

/* ================ Tape and engine ================ */
enum { CMHA_MAX_RANK = 4, CMHA_MAX_INPUTS = 9 };
typedef struct cmha_packed cmha_packed;
/* Holds a dense array, valid until cmha_tape_reset if a tape made it. Filled by hand (the rest zeros), with
   needs_grad = 1 and its own `grad`, it is a parameter that outlives tapes. */
typedef struct cmha_tensor {
    cmha_real *data, *grad; /* grad: NULL until a backward pass needs it */
    size_t shape[CMHA_MAX_RANK];
    int rank;
    int needs_grad; /* 0: no gradient; 1: kept until the reset; 2 (results): freed early, unless set to 1 */
    size_t size; /* product of shape */
    const cmha_packed *packed; /* of a matrix of a packed model: read in place of data, which are NULL */
} cmha_tensor;
typedef struct cmha_tape cmha_tape;
typedef struct cmha_record cmha_record;
/* Adds to the gradients (cmha_tape_grad) of record->in[], given record->out->grad. */
typedef cmha_status (*cmha_backward_fn)(cmha_tape *tape, cmha_record *record);

struct cmha_record {
    const char *name;
    cmha_backward_fn backward;
    cmha_tensor *out, *in[CMHA_MAX_INPUTS];
    int n_in;
    void *user; /* the operation's own; tape memory or the caller's */
    size_t section; /* 0: before the model's blocks; then the block, from 1 on */
    cmha_record *previous;
};

/* Allocates from blocks that are freed together. */
typedef struct cmha_arena {
    struct cmha_arena_block *block; /* newest */
    size_t used, peak, reserved; /* bytes */
    int fixed; /* 1: takes no further block */
    int measuring; /* 1: only counts; its addresses must not be touched */
} cmha_arena;
/* Adds up numbers over the ranks of a training: processes or threads, each with its context and model, that
   make the same calls in the same order. All get the same bits, or all a failure. */
typedef struct cmha_ranks {
    size_t rank, ranks; /* this one, from 0; their number */
    /* Replaces each of n values by its sum over all ranks. */
    cmha_status (*reduce)(void *user, cmha_real *values, size_t n);
    /* Both or NULL: sums during the backward pass. begin starts to sum values, which nobody touches until
       wait(user, 1) ends all sums; wait(user, 0) only lets them make progress. */
    cmha_status (*begin)(void *user, cmha_real *values, size_t n);
    cmha_status (*wait)(void *user, int all);
    void *user;
} cmha_ranks;
/* What a model's tape and trainer know of other ranks (cmha_trainer_share). */
typedef struct cmha_sharing {
    cmha_ranks ranks;
    size_t first; /* of the whole batch: sequences before this rank's */
    cmha_status agreed; /* a failure known to all ranks: this pass sends nothing more */
    int last, begins; /* this is a step's last pass; its backward begins sums */
    size_t left, begun; /* parameters whose sums have not begun; where those that have start */
    struct cmha_parameters *parameters;
} cmha_sharing;
/* Knows how many threads take least time for passes over `rows` rows. */
typedef struct cmha_team {
    size_t rows;
    int threads; /* the best number so far */
    int grows, wins; /* 1: a larger one is tried next; how often in a row it was faster */
    size_t left, pause; /* passes until then; in all */
    double mean; /* seconds of a pass with `threads` */
} cmha_team;
enum { CMHA_MAX_FREE = 32 };
/* Records operations and walks them back. Allocates nothing after two steps of a size. */
struct cmha_tape {
    cmha_context *context;
    cmha_arena memory, records;
    cmha_record *last;
    int recording; /* 1: operations are recorded; 0: only computed */
    uint64_t key, draws; /* of dropout: the pass's key, which you may set and a reset changes; masks drawn */
    cmha_status status;
    struct { void *memory; size_t bytes; } unused[CMHA_MAX_FREE]; /* gradient buffers for reuse */
    int n_unused;
    size_t section;
    struct cmha__probe *probe; /* of cmha_model_attention */
    cmha_sharing shared;
    cmha_team team; /* of decoding and of cmha_model_gradient */
};

/* Opens a tape; recording = 0: operations keep nothing for a backward. Errors: STATE (no open context). */
CMHA_DEF cmha_status cmha_tape_init(cmha_tape *tape, cmha_context *context, int recording);
CMHA_DEF void cmha_tape_close(cmha_tape *tape);
CMHA_DEF void cmha_tape_reset(cmha_tape *tape); /* forgets records, tensors and failure; keeps memory */
CMHA_DEF cmha_status cmha_tape_status(const cmha_tape *tape); /* the first failure since the reset */
/* Returns 1 if the tape only measures memory: tensors then have no numbers. */
CMHA_DEF int cmha_tape_measures(const cmha_tape *tape);
/* Records a failure of the caller's operation and its error line, if it is the first. Returns NULL. */
CMHA_DEF cmha_tensor *cmha_tape_fail(cmha_tape *tape, cmha_status status, const char *line);
/* Makes a tensor of zeros. needs_grad = 1: with a gradient. */
CMHA_DEF cmha_tensor *cmha_tensor_new(cmha_tape *tape, int rank, const size_t *shape, int needs_grad);
/* Makes a tensor of the caller's data and gradient (or NULL). */
CMHA_DEF cmha_tensor *cmha_tensor_wrap(cmha_tape *tape, int rank, const size_t *shape, cmha_real *data,
    cmha_real *grad);
/* Allocates memory until the reset, also in backward callbacks; 64-byte aligned, not cleared. */
CMHA_DEF void *cmha_tape_alloc(cmha_tape *tape, size_t bytes);

/* Appends the caller's operation and returns `out`, which cmha_tensor_new made and the caller computed from
   in[0..n_in). Records nothing if the tape does not record or no input needs a gradient. A failure of
   `backward` ends the pass, with cmha_tape_fail's line or the operation's name. See examples/extensions. */
CMHA_DEF cmha_tensor *cmha_tape_push(cmha_tape *tape, const char *name, cmha_tensor *out,
    cmha_tensor *const *in, int n_in, cmha_backward_fn backward, void *user);
/* Returns, in a backward callback, t's gradient to add to; NULL: it needs none, or no memory. */
CMHA__FIT cmha_real *cmha_tape_grad(cmha_tape *tape, cmha_tensor *t);
/* Walks the records back from `loss`, one element, whose gradient is `seed` (usually 1); forgets them. */
CMHA__FIT cmha_status cmha_tape_backward(cmha_tape *tape, cmha_tensor *loss, cmha_real seed);

/* ================ Operations ================ */
/* Kernels (functions without a context or tape) take pointers and sizes, allocate and check nothing, and use
   threads only where a struct has `threads` (0 = 1). Sizes may be 0, and empty arrays NULL. Functions that
   return a length return SIZE_MAX on overflow; scratch, counted in cmha_real, is aligned as for double.
   Outputs must not overlap inputs unless stated. _backward takes dy = dL/dy and adds to its gradient
   arguments, which may be NULL. Rows are [T, D]; a bias may be NULL.

   Operations return a new tensor of their tape, or NULL. One beside a kernel pair computes the same on [..,
   D], all axes but the last being rows; "Tape:" tells what differs, as inputs -> result. Errors of all
   operations: SHAPE, ARGUMENT (no such kind, an array missing), MEMORY, OVERFLOW; comments name others.
   Arrays must outlive the backward pass. key_mask: a byte a token, 0 = absent; NULL = all present. */

/* ---- Common ---- */
/* Computes C [M, N] = alpha op(A) op(B) + beta C, op(A) [M, K], op(B) [K, N]; trans_x = 1: op transposes.
   ld*: distances of rows as stored. beta = 0 overwrites C, NaN included. */
CMHA_DEF void cmha_gemm(int trans_a, int trans_b, size_t M, size_t N, size_t K, cmha_real alpha,
    const cmha_real *A, size_t lda, const cmha_real *B, size_t ldb, cmha_real beta, cmha_real *C, size_t ldc);
CMHA_DEF cmha_tensor *cmha_add(cmha_tape *tape, cmha_tensor *a, cmha_tensor *b); /* of equal shapes */
/* Multiplies elementwise -> a's shape; b repeats along axes of size 1 and leading axes that it lacks. */
CMHA_DEF cmha_tensor *cmha_mul(cmha_tape *tape, cmha_tensor *a, cmha_tensor *b);
CMHA_DEF cmha_tensor *cmha_scale(cmha_tape *tape, cmha_tensor *x, cmha_real factor);
CMHA_DEF cmha_tensor *cmha_sigmoid(cmha_tape *tape, cmha_tensor *x);
CMHA_DEF cmha_tensor *cmha_exponential(cmha_tape *tape, cmha_tensor *x);
CMHA_DEF cmha_tensor *cmha_softcap(cmha_tape *tape, cmha_tensor *x, cmha_real cap); /* cap tanh(x / cap) */
/* Computes softmax of each row of scores [.., M, K]. causal: row i sees keys 0 .. i + K - M. key_mask [B, K],
   B the first of three or four axes, else 1. A row that sees no key, or only -infinity, becomes 0. */
CMHA_DEF cmha_tensor *cmha_softmax_rows(cmha_tape *tape, cmha_tensor *x, int causal,
    const unsigned char *key_mask);
CMHA_DEF cmha_tensor *cmha_sum(cmha_tape *tape, cmha_tensor *x); /* -> [1] */
/* Multiplies a [.., M, K] by b [K, N] or [.., K, N]; trans_b = 1: b is [.., N, K]. */
CMHA_DEF cmha_tensor *cmha_matmul(cmha_tape *tape, cmha_tensor *a, cmha_tensor *b, int trans_b);
/* Returns x's numbers, not a copy, in another shape of the same size. */
CMHA_DEF cmha_tensor *cmha_reshape(cmha_tape *tape, cmha_tensor *x, int rank, const size_t *shape);
CMHA_DEF cmha_tensor *cmha_transpose(cmha_tape *tape, cmha_tensor *x, int axis_a, int axis_b);
CMHA_DEF cmha_tensor *cmha_concat(cmha_tape *tape, cmha_tensor *a, cmha_tensor *b, int axis);
CMHA_DEF cmha_tensor *cmha_slice(cmha_tape *tape, cmha_tensor *x, int axis, size_t begin, size_t end);
/* Picks rows index[i] of x [.., D] -> [n, D]. Errors: ARGUMENT (no such row). */
CMHA_DEF cmha_tensor *cmha_gather(cmha_tape *tape, cmha_tensor *x, const size_t *index, size_t n);
/* Averages over tokens: x [B, N, D], key_mask [B, N] -> [B, D]; 0 for a sequence without tokens. */
CMHA_DEF cmha_tensor *cmha_mean_tokens(cmha_tape *tape, cmha_tensor *x, const unsigned char *key_mask);

/* Looks up rows y [T, D] of weight [V, D]; 0 <= ids[t] < V. Tape: ids [B, N] -> [B, N, D]. Errors: TOKEN. */
CMHA_DEF void cmha_embedding_forward(const cmha_real *weight, const int32_t *ids, size_t T, size_t D,
    cmha_real *y);
CMHA__FIT void cmha_embedding_backward(const cmha_real *dy, const int32_t *ids, size_t T, size_t D,
    cmha_real *dweight);
CMHA_DEF cmha_tensor *cmha_embedding(cmha_tape *tape, cmha_tensor *weight, const int32_t *ids, size_t B,
    size_t N);
/* Computes x [.., I] weight^T + bias -> [.., O]; weight [O, I], bias [O]. */
CMHA_DEF cmha_tensor *cmha_linear(cmha_tape *tape, cmha_tensor *x, cmha_tensor *weight, cmha_tensor *bias);
/* Computes residual (or NULL) + gain dropout(act(x) weight^T + bias). act: a cmha_activation. */
CMHA_DEF cmha_tensor *cmha_sublayer(cmha_tape *tape, cmha_tensor *x, int act, cmha_tensor *weight,
    cmha_tensor *bias, cmha_tensor *residual, cmha_real gain, cmha_real dropout);

/* Lists norms of real states: ROW(constant, word, the code's pass, numbers of the gain per channel (-1: one
   in all), of the offset (0: none), statistics per row, plus, added to the gain, which starts at 1 -
   plus). */
#define CMHA_NORMS(ROW) \
    ROW(LAYER, "layernorm", cmha__norm_rows, 1, 1, 2, 0) \
    ROW(RMS, "rmsnorm", cmha__norm_rows, 1, 0, 1, 0) \
    ROW(RMS_ONE_PLUS, "rmsnorm_one_plus", cmha__norm_rows, 1, 0, 1, 1) \
    ROW(LAYER_GAIN, "layernorm_gain", cmha__norm_rows, 1, 0, 2, 0)
#define CMHA__NORM_NAME(name, word, pass, gain, offset, kept, plus) CMHA_NORM_##name,
#define CMHA__NORM_WORD(name, word, pass, gain, offset, kept, plus) "|" word
typedef enum cmha_norm { CMHA_NORMS(CMHA__NORM_NAME) CMHA_NORM_COUNT } cmha_norm;
typedef struct cmha_norm_args {
    cmha_norm kind;
    size_t T, D; /* rows, numbers in each */
    cmha_real eps;
} cmha_norm_args;
/* Says where the backward of a norm or map adds the gradients of its input, weight and bias; each (or NULL),
   of the shape of what it belongs to. */
typedef struct cmha_grads { cmha_real *x, *weight, *bias; } cmha_grads;
/* Normalises rows of x [T, D]: y = weight (x - mean) / sqrt(var + eps) + bias, var biased; weight [D], bias
   [D] (or NULL). RMS: mean is 0; RMS_ONE_PLUS (Gemma): likewise, 1 + weight for weight. LAYER_GAIN
   (ModernBERT): LAYER, in models without its bias. stats, for the backward: 1 / sqrt(var + eps) [T]; of LAYER
   and LAYER_GAIN [T, 2], the mean before it. */
CMHA_DEF void cmha_norm_forward(const cmha_norm_args *args, const cmha_real *x, const cmha_real *weight,
    const cmha_real *bias, cmha_real *y, cmha_real *stats);
CMHA__FIT void cmha_norm_backward(const cmha_norm_args *args, const cmha_real *x, const cmha_real *weight,
    const cmha_real *stats, const cmha_real *dy, const cmha_grads *grads);
CMHA_DEF cmha_tensor *cmha_layernorm(cmha_tape *tape, cmha_tensor *x, cmha_tensor *weight, cmha_tensor *bias,
    cmha_real eps);
CMHA_DEF cmha_tensor *cmha_rmsnorm(cmha_tape *tape, cmha_tensor *x, cmha_tensor *weight, cmha_real eps);

/* Lists activations: ROW(constant, word, the code's formula with its slope, gated). Gated ones read rows
   [gate | up] and return up formula(gate), half as wide. */
#define CMHA_ACTIVATIONS(ROW) \
    ROW(GELU_ERF, "gelu_erf", cmha__gelu_erf, 0)    /* x/2 (1 + erf(x / sqrt 2)) */ \
    ROW(GELU_TANH, "gelu_tanh", cmha__gelu_tanh, 0) /* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */ \
    ROW(SWIGLU, "swiglu", cmha__silu, 1)            /* gate * sigmoid(gate) */ \
    ROW(RELU, "relu", cmha__relu, 0)   /* max(x, 0), slope 0 at 0 */ \
    ROW(RELU2, "relu2", cmha__relu2, 0) /* max(x, 0)^2 (So et al. 2021, arXiv 2109.08668) */ \
    ROW(GEGLU_ERF, "geglu_erf", cmha__gelu_erf, 1)    /* gated: Shazeer 2020, arXiv 2002.05202 */ \
    ROW(GEGLU_TANH, "geglu_tanh", cmha__gelu_tanh, 1) /* likewise */
#define CMHA__ACTIVATION_NAME(name, word, formula, gated) CMHA_ACTIVATION_##name,
#define CMHA__ACTIVATION_WORD(name, word, formula, gated) "|" word
typedef enum cmha_activation {
    CMHA_ACTIVATION_NONE = -1, /* only for cmha_sublayer */
    CMHA_ACTIVATIONS(CMHA__ACTIVATION_NAME) CMHA_ACTIVATION_COUNT
} cmha_activation;
/* Computes y [n] = formula(x), NaN if there is no such kind; y may be x. On planes GELU is CRAT's cGELU (eq
   9). Tape: also gated kinds, on rows [gate | up]. */
CMHA_DEF void cmha_activation_forward(const cmha_real *x, size_t n, cmha_activation kind, cmha_real *y);
CMHA__FIT void cmha_activation_backward(const cmha_real *x, const cmha_real *dy, size_t n,
    cmha_activation kind, cmha_real *dx);
CMHA_DEF cmha_tensor *cmha_activate(cmha_tape *tape, cmha_tensor *x, cmha_activation kind);
/* Computes y [n] = up formula(gate). */
CMHA_DEF void cmha_gated_forward(const cmha_real *gate, const cmha_real *up, size_t n, cmha_activation kind,
    cmha_real *y);
CMHA__FIT void cmha_gated_backward(const cmha_real *gate, const cmha_real *up, const cmha_real *dy, size_t n,
    cmha_activation kind, cmha_real *dgate, cmha_real *dup);

/* Computes y [n] = x keep / (1 - p), 0 <= p < 1; y may be x. keep, a Bernoulli(1 - p) bit, depends only on
   key and first + index: the backward is the same call on dy. Tape: x itself if p = 0 or not recording. */
CMHA_DEF void cmha_dropout_forward(const cmha_real *x, size_t n, cmha_real p, uint64_t key, size_t first,
    cmha_real *y);
CMHA_DEF cmha_tensor *cmha_dropout(cmha_tape *tape, cmha_tensor *x, cmha_real p);

typedef struct cmha_cross_entropy_args {
    size_t T, V; /* rows, classes */
    const int32_t *targets; /* [T], 0 <= targets[t] < V or `ignore` */
    int32_t ignore; /* a row of this target does not count */
} cmha_cross_entropy_args;
/* Returns the sum of logsumexp(logits) - logits[target] over counted rows of logits [T, V]. counted (or NULL)
   gets their number; lse [T, 2] (or NULL), for the backward, each row's largest logit and log sum exp(logit -
   largest). */
CMHA_DEF double cmha_cross_entropy_forward(const cmha_cross_entropy_args *args, const cmha_real *logits,
    cmha_real *lse, size_t *counted);
/* Returns the same; replaces logits by scale (softmax(logits) - onehot(target)), 0 in rows not counted. */
CMHA__FIT double cmha_cross_entropy_gradient(const cmha_cross_entropy_args *args, cmha_real *logits,
    cmha_real scale);
/* Adds scale (softmax(logits) - onehot(target)) to counted rows of dlogits. */
CMHA__FIT void cmha_cross_entropy_backward(const cmha_cross_entropy_args *args, const cmha_real *logits,
    const cmha_real *lse, cmha_real scale, cmha_real *dlogits);
/* Averages that loss over counted rows, logits [.., V] -> [1]; 0 without any. With class_weights w [V] (or
   NULL): sum w[target] loss / sum w[target]. Errors, also of the next: TOKEN; of weights, ARGUMENT (one < 0;
   those of the counted rows sum to 0), NOT_FINITE. */
CMHA_DEF cmha_tensor *cmha_cross_entropy(cmha_tape *tape, cmha_tensor *logits, const int32_t *targets,
    int32_t ignore, const cmha_real *class_weights);
/* Averages the loss of logits x weight^T + bias, x [.., I], weight [V, I], bias [V]. Holds only some rows of
   logits at a time (16 MiB of floats, at least 256 rows) and computes them again in the backward. */
CMHA_DEF cmha_tensor *cmha_linear_cross_entropy(cmha_tape *tape, cmha_tensor *x, cmha_tensor *weight,
    cmha_tensor *bias, const int32_t *targets, int32_t ignore, const cmha_real *class_weights);
/* Averages (x - targets)^2 -> [1]; targets [size of x]. */
CMHA_DEF cmha_tensor *cmha_squared_error(cmha_tape *tape, cmha_tensor *x, const cmha_real *targets);

typedef enum cmha_storage {
    CMHA_STORAGE_FLOAT, /* cmha_real as it is */
    CMHA_STORAGE_BF16, /* the upper half of a float, rounded to nearest even; keeps NaN */
    CMHA_STORAGE_INT8, /* scale * code, code -127 to 127; scale of an output row: max |weight| / 127 */
    /* scale * code, code -8 to 7; a scale of 16 bits for 32 weights of a row (GGML's Q4_0): the one with the
       least sum of squared errors, so that a file's numbers of Q4_0 stay what they are */
    CMHA_STORAGE_INT4,
    /* scale * code - minimum, code 0 to 15; both, of 32 weights of a row, are 0 to 63 times a number of 16
       bits of 256 (GGML's Q4_K) */
    CMHA_STORAGE_Q4_K
} cmha_storage;
/* Holds a matrix [O, I], rounded by at most scale / 2 (INT8) or |weight| / 256 (BF16). Zeros stay zeros, in
   Q4_K whole 32; a NaN or infinity makes its row (INT8), its 32 (INT4, as do weights from 524160 on) or 256
   weights (Q4_K, as do those beyond 4e6) NaN. */
struct cmha_packed {
    cmha_storage storage; /* not FLOAT */
    size_t n_out, n_in; /* O, I */
    size_t turned; /* C: the source is [O / C, I, C] and its columns are rows here; 0: it is [O, I] */
    const cmha_real *source; /* what was packed; not read again */
    uint32_t *words; /* groups of 4 rows x blocks of 64 columns, padded with zeros */
    cmha_real *scales; /* INT8: [O], else NULL */
    int rounds; /* INT8 and 4 bits: 1 = a model's products take rounded rows, see cmha_model_round */
};
CMHA_DEF size_t cmha_packed_words(cmha_storage storage, size_t O, size_t I); /* length of `words` */
/* Fills the caller's words and scales from weight [O, I], sets source. Set the members before it first. */
CMHA_DEF void cmha_pack(cmha_packed *packed, const cmha_real *weight);
/* Writes rows lo .. hi - 1 as numbers to weight [hi - lo, I]. */
CMHA_DEF void cmha_unpack(const cmha_packed *packed, size_t lo, size_t hi, cmha_real *weight);
/* Multiplies x [T, I], T small as in decoding, by the transposed rows lo .. hi - 1 -> y [T, hi - lo], rows
   ldy apart. A row's sum does not depend on lo and hi. */
CMHA_DEF void cmha_packed_forward(const cmha_packed *packed, const cmha_real *x, size_t T, size_t lo,
    size_t hi, cmha_real *y, size_t ldy);
/* Holds rows [T, I] as whole numbers of 16 bits times a factor of each row, max |x| / 32767: off by at most
   half a factor. A row with a NaN or infinity is NaN. */
typedef struct cmha_rounded {
    size_t T;
    uint32_t *words; /* [T, 32 ceil(I / 64)]: pairs, in the order that the matrix asks for */
    cmha_real *factors; /* [T] */
} cmha_rounded;
/* Fills the caller's words and factors with rows lo .. hi - 1 of x [T, I], for a matrix of 8 or 4 bits. */
CMHA_DEF void cmha_round_rows(const cmha_packed *packed, const cmha_real *x, size_t lo, size_t hi,
    cmha_rounded *rounded);
/* Multiplies rounded rows, few or many, as cmha_packed_forward does. Codes and rows meet as whole numbers, so
   that INT8 has the same bits on every CPU; others add up 32 columns at a time. */
CMHA_DEF void cmha_rounded_forward(const cmha_packed *packed, const cmha_rounded *rounded, size_t lo,
    size_t hi, cmha_real *y, size_t ldy);

/* ---- ComplexFormer ---- */
/* Orders the P = d_k/2 complex numbers of a head: number j is (x[2j], x[2j+1]); HALF: (x[j], x[j+P]). */
typedef enum cmha_layout { CMHA_LAYOUT_INTERLEAVED, CMHA_LAYOUT_HALF } cmha_layout;
typedef struct cmha_euler_args {
    size_t T, P; /* rows, complex numbers in each */
    cmha_layout layout;
} cmha_euler_args;
/* Splits x [T, 2P] into modulus and phase [T, P], each (or NULL) (ComplexFormer eq 1-4); phases lie in [-pi,
   pi], 0 at modulus 0. dx += dmodulus (re, im)/modulus (0 there) + dphase (-im, re)/(modulus^2 + 1e-12). */
CMHA_DEF void cmha_euler_forward(const cmha_euler_args *args, const cmha_real *x, cmha_real *modulus,
    cmha_real *phase);
CMHA__FIT void cmha_euler_backward(const cmha_euler_args *args, const cmha_real *x, const cmha_real *dmodulus,
    const cmha_real *dphase, cmha_real *dx);

/* Chooses the frequencies omega_j of the pairs. */
typedef enum cmha_frequency {
    CMHA_FREQUENCY_ROPE, /* base^(-2j/d_k); the default */
    CMHA_FREQUENCY_LITERAL, /* base^(-4j/d_k), ComplexFormer eq 6 as printed */
    CMHA_FREQUENCY_TABLE /* the caller's omega, by cmha_model_set_frequencies; until then, RoPE's */
} cmha_frequency;
/* Stretches the frequencies of n pairs for texts f times as long as those trained on. LINEAR: omega/f. NTK:
   omega_j f^(-j/(n-1)), a changed base. YARN (arXiv 2309.00071): omega/f for pairs that turn at most `slow`
   times in `length` tokens, omega for those that turn at least `fast` times, a mixture between; scores times
   (0.1 ln f + 1)^2. LLAMA3 (Llama 3.1): as YARN by ROTATIONS, scores unchanged. */
typedef enum cmha_rope_scaling { CMHA_ROPE_SCALING_NONE, CMHA_ROPE_SCALING_LINEAR, CMHA_ROPE_SCALING_NTK,
    CMHA_ROPE_SCALING_YARN, CMHA_ROPE_SCALING_LLAMA3 } cmha_rope_scaling;
/* YARN's mixture is linear in the pair's index (ends rounded outwards, as in YaRN's code), or in turns. */
typedef enum cmha_rope_ramp { CMHA_ROPE_RAMP_INDEX, CMHA_ROPE_RAMP_ROTATIONS } cmha_rope_ramp;
typedef struct cmha_rope_options {
    size_t rotary_dims; /* leading numbers of a head that rotate, 2n (d_k in the formulas); 0 = all */
    cmha_rope_scaling scaling;
    double factor, length, fast, slow; /* factor: f >= 1; the others are for YARN and LLAMA3 */
    cmha_rope_ramp ramp;
} cmha_rope_options;
/* Writes omega [P], 0 for pairs that do not rotate; options (or NULL). Returns the factor on scores; 0, with
   omega unspecified, if f < 1, length <= 0 or fast <= slow (INDEX: <, or a mixture beyond 0 to 2n - 1). */
CMHA_DEF double cmha_frequencies(cmha_frequency kind, double base, size_t P, const cmha_rope_options *options,
    double *omega);
/* Fills table [n, 2P]: row r has cos(t omega_j), j < P, then sin, t = pos0 + r; angles are in double. */
CMHA_DEF void cmha_rotation_table(const double *omega, size_t P, size_t n, ptrdiff_t pos0, cmha_real *table);

typedef struct cmha_rotate_args {
    size_t P;
    cmha_layout layout;
    const cmha_real *rotation; /* [n, 2P] from cmha_rotation_table */
    const cmha_real *delta, *b; /* [P]. delta NULL: delta = 1, b = 0, which is RoPE; b NULL: 0, as for keys */
    size_t rotary; /* pairs that rotate, laid out by themselves before the others; 0 = P */
    /* 1, PoPE: x has rows of P numbers; y_j = z_j exp(i (t omega_j - b_j)), z_j = softplus(x_j) or, behind
       `rotary`, x_j, where b_j = 0; no delta; b is clamped to [-2 pi, 0]. */
    int polar;
} cmha_rotate_args;
/* Computes the feature map of ComplexFormer (eq 1-8, factorised) and its relatives, on n rows of one head:
       y_j = lambda_j exp(i (delta_j theta_j + b_j + t omega_j))
           = z_j exp(i ((delta_j - 1) theta_j + b_j)) exp(i t omega_j)
   where z_j = lambda_j exp(i theta_j) is the j-th pair of x. The dot product of these features is eq 8's sum
   of cosines, because cos(alpha_m - beta_n) = Re exp(i alpha_m) conj exp(i beta_n); phase differences are not
   wrapped to (-pi, pi]. The second form needs no modulus, is exact at lambda = 0, and its backward has no
   1/lambda. Unless delta is an integer, y jumps by 2 lambda |sin(pi delta)| where theta crosses the negative
   real axis: a property of the method. Rows of x have 2P numbers, rows of y are [Re y (P) | Im y (P)]. */
CMHA_DEF void cmha_rotate_forward(const cmha_rotate_args *args, const cmha_real *x, size_t ldx, size_t n,
    cmha_real *y, size_t ldy);
/* Adds to dx (rows ldx apart) and, in double, to ddelta and db [P]. */
CMHA__FIT void cmha_rotate_backward(const cmha_rotate_args *args, const cmha_real *x, size_t ldx, size_t n,
    const cmha_real *dy, size_t ldy, cmha_real *dx, double *ddelta, double *db);

/* ---- CoPE ---- */
/* Chooses the imaginary part of CoPE's embedding (eq 1), which codes positions. */
typedef enum cmha_cope_imag {
    CMHA_COPE_IMAG_SIN_DUP, /* sin(t w), w = base^(-2 floor(c/2)/d), as in the authors' code */
    CMHA_COPE_IMAG_SIN_COS, /* even c: the same; odd c: cos(t w), as in Vaswani et al. */
    CMHA_COPE_IMAG_LEARNED /* the caller's parameter */
} cmha_cope_imag;
/* Fills table [n, d]: row r is position t = pos0 + r, without the paper's gamma. LEARNED: zeros. */
CMHA_DEF void cmha_cope_table(cmha_cope_imag kind, size_t n, size_t d, double base, size_t pos0,
    cmha_real *table);

/* ---- MöbiusAttention ---- */
/* Chooses the division of MöbiusAttention eq 5, which does not treat poles. eps 1e-3 is usual in float. */
typedef enum cmha_quotient_kind {
    CMHA_QUOTIENT_REG, /* ours: u conj(w) / (|w|^2 + eps^2); |y| <= |u| / (2 eps), smooth for eps > 0 */
    CMHA_QUOTIENT_EXACT, /* u / w, without eps; unbounded near w = 0 */
    CMHA_QUOTIENT_UNIT, /* ours: u conj(w) / sqrt(|w|^2 + eps^2); |y| <= |u| */
    CMHA_QUOTIENT_COUNT
} cmha_quotient_kind;
/* Computes y = u / w, all [T, 2D], rows [Re (D) | Im (D)]. Where w and eps are 0 (or below the smallest
   normal number), y and its gradients are 0. Errors, also of cmha_mobius: ARGUMENT (eps < 0). */
CMHA_DEF void cmha_quotient_forward(const cmha_real *u, const cmha_real *w, size_t T, size_t D,
    cmha_quotient_kind kind, cmha_real eps, cmha_real *y);
CMHA__FIT void cmha_quotient_backward(const cmha_real *u, const cmha_real *w, const cmha_real *dy, size_t T,
    size_t D, cmha_quotient_kind kind, cmha_real eps, cmha_real *du, cmha_real *dw);
CMHA_DEF cmha_tensor *cmha_quotient(cmha_tape *tape, cmha_tensor *u, cmha_tensor *w, cmha_quotient_kind kind,
    cmha_real eps);
/* Multiplies each row of x [T, 2D] by w [2, D] (MöbiusAttention eq 7-8 as printed). */
CMHA_DEF void cmha_elementwise_complex_forward(const cmha_real *x, const cmha_real *w, size_t T, size_t D,
    cmha_real *y);
CMHA__FIT void cmha_elementwise_complex_backward(const cmha_real *x, const cmha_real *w, const cmha_real *dy,
    size_t T, size_t D, cmha_real *dx, cmha_real *dw);
CMHA_DEF cmha_tensor *cmha_elementwise_complex(cmha_tape *tape, cmha_tensor *x, cmha_tensor *w);
/* Computes y [T, 2D] = (a rho + b) / (c rho + d) by channel (MöbiusAttention eq 5-6); abcd [4, 2, D]. */
CMHA_DEF void cmha_mobius_forward(const cmha_real *rho, const cmha_real *abcd, size_t T, size_t D,
    cmha_quotient_kind kind, cmha_real eps, cmha_real *y);
CMHA__FIT void cmha_mobius_backward(const cmha_real *rho, const cmha_real *abcd, const cmha_real *dy,
    size_t T, size_t D, cmha_quotient_kind kind, cmha_real eps, cmha_real *drho, cmha_real *dabcd);
CMHA_DEF cmha_tensor *cmha_mobius(cmha_tape *tape, cmha_tensor *rho, cmha_tensor *abcd,
    cmha_quotient_kind kind, cmha_real eps);

/* ---- Complex building blocks (CRAT 4.1 to 4.7) ---- */
/* A complex array has planes: its rows are [Re (D) | Im (D)]. A weight is [2, O, I], a vector [2, D]: real,
   then imaginary part. Operations refuse an odd width (SHAPE) and eps < 0 (ARGUMENT). */
typedef struct cmha_complex_linear_args {
    size_t T, n_in, n_out; /* rows, complex numbers in (I) and out (O) */
    int adjoint; /* 0: y = W x + b, weight [2, O, I]; 1: y = W^H x + b, weight [2, I, O] */
    int threads, fresh; /* fresh = 1: the backward overwrites the gradient of x */
} cmha_complex_linear_args;
/* Computes y [T, 2O] = W x + b, no conjugate (CRAT eq 10). x [T, 2I], bias [2, O], scratch [4 T O]. For a
   real x [.., I] (CRAT eq 5) use cmha_linear, the weight reshaped to [2O, I]. */
CMHA_DEF void cmha_complex_linear_forward(const cmha_complex_linear_args *args, const cmha_real *x,
    const cmha_real *weight, const cmha_real *bias, cmha_real *y, cmha_real *scratch);
CMHA__FIT void cmha_complex_linear_backward(const cmha_complex_linear_args *args, const cmha_real *x,
    const cmha_real *weight, const cmha_real *dy, const cmha_grads *grads, cmha_real *scratch);
CMHA_DEF cmha_tensor *cmha_complex_linear(cmha_tape *tape, cmha_tensor *x, cmha_tensor *weight,
    cmha_tensor *bias);
/* Computes U (V^H x) + b (CRAT eq 15): x [.., 2I] -> [.., 2O], u [2, O, r], v [2, I, r], b [2, O]. */
CMHA_DEF cmha_tensor *cmha_complex_lowrank(cmha_tape *tape, cmha_tensor *x, cmha_tensor *u, cmha_tensor *v,
    cmha_tensor *bias);
/* Computes y = z exp(i theta) (CRAT eq 6-7). z, y [T, 2D], theta [T, D]. */
CMHA_DEF void cmha_complex_rotate_forward(const cmha_real *z, const cmha_real *theta, size_t T, size_t D,
    cmha_real *y);
CMHA__FIT void cmha_complex_rotate_backward(const cmha_real *z, const cmha_real *theta, const cmha_real *dy,
    size_t T, size_t D, cmha_real *dz, cmha_real *dtheta);
CMHA_DEF cmha_tensor *cmha_complex_rotate(cmha_tape *tape, cmha_tensor *z, cmha_tensor *theta);

/* Lists norms over D complex features: y = gamma M c + beta, c = z - mean(z), M real 2x2, V = cov(c).
   ROW(constant, word, n numbers of gamma per feature, centred, spread: M is the inverse root of V's TRACE,
   AXES or MATRIX, gamma as a real 2x2 matrix (rr, ri, ir, ii): k = its k-th number, -k = that negated, 0). */
#define CMHA_COMPLEX_NORMS(ROW) \
    ROW(CLN, "cln", 2, 1, TRACE, 1, -2, 2, 1) /* M = 1/sqrt(mean|c|^2 + eps), gamma complex: CRAT eq 8 */ \
    ROW(CRMS, "crms", 1, 0, TRACE, 1, 0, 0, 1) /* c = z, gamma real: unlike CLN it keeps phases */ \
    ROW(SPLIT, "split", 2, 1, AXES, 1, 0, 0, 2) /* two real LayerNorms, one on Re, one on Im */ \
    ROW(WHITEN, "whiten", 3, 1, MATRIX, 1, 2, 2, 3) /* M = (V + eps 1)^(-1/2) (Trabelsi et al.) */
#define CMHA__COMPLEX_NORM_NAME(name, word, n, centred, spread, rr, ri, ir, ii) CMHA_COMPLEX_NORM_##name,
#define CMHA__COMPLEX_NORM_WORD(name, word, n, centred, spread, rr, ri, ir, ii) "|" word
typedef enum cmha_complex_norm_kind {
    CMHA_COMPLEX_NORMS(CMHA__COMPLEX_NORM_NAME) CMHA_COMPLEX_NORM_COUNT
} cmha_complex_norm_kind;
typedef struct cmha_complex_norm_args {
    cmha_complex_norm_kind kind;
    size_t T, D; /* rows, complex features */
    cmha_real eps;
} cmha_complex_norm_args;
/* Normalises rows. beta [2, D] (or NULL), gamma [n, D], NULL = 1. Where eps and a variance (WHITEN: an
   eigenvalue of V) are 0, so are M and gradients in its direction. stats [T, 5] (or NULL), for the backward:
   means, V_rr, V_ri, V_ii. Of grads `weight` is gamma's, `bias` beta's. */
CMHA_DEF void cmha_complex_norm_forward(const cmha_complex_norm_args *args, const cmha_real *z,
    const cmha_real *gamma, const cmha_real *beta, cmha_real *y, double *stats);
CMHA__FIT void cmha_complex_norm_backward(const cmha_complex_norm_args *args, const cmha_real *z,
    const cmha_real *gamma, const double *stats, const cmha_real *dy, const cmha_grads *grads);
CMHA_DEF cmha_tensor *cmha_complex_norm(cmha_tape *tape, cmha_tensor *z, cmha_complex_norm_kind kind,
    cmha_tensor *gamma, cmha_tensor *beta, cmha_real eps);

/* Computes the smoothed phasor u = z / r, r = sqrt(|z|^2 + eps^2); 0, as dz, where z and eps are no normal
   numbers. z, u [T, 2D]. dz grows like 1/|z| down to |z| = eps: do not set eps (1e-6) to 0. */
CMHA_DEF void cmha_phasor_forward(const cmha_real *z, size_t T, size_t D, cmha_real eps, cmha_real *u);
CMHA__FIT void cmha_phasor_backward(const cmha_real *z, const cmha_real *du, size_t T, size_t D,
    cmha_real eps, cmha_real *dz);
CMHA_DEF cmha_tensor *cmha_phasor(cmha_tape *tape, cmha_tensor *z, cmha_real eps);
/* Join re, im (im NULL: 0) [.., D] to planes [.., 2D]; return their real (part 0) or imaginary part (1). */
CMHA_DEF cmha_tensor *cmha_complex_join(cmha_tape *tape, cmha_tensor *re, cmha_tensor *im);
CMHA_DEF cmha_tensor *cmha_complex_part(cmha_tape *tape, cmha_tensor *z, int part);

/* Computes positions y [n, d] (CRAT eq 2): y[r, i] = (1/sqrt K) sum_k sin(omega[k, i] t + delta[k, i]), t =
   pos0 + r; omega, delta [K, d]. Angles and gradients' sums are in double. */
CMHA_DEF cmha_tensor *cmha_multifreq(cmha_tape *tape, cmha_tensor *omega, cmha_tensor *delta, size_t n,
    size_t pos0);
/* Writes the parameters that it starts with (not in the paper): omega = base^(-2 floor(i/2)/d)
   2^(k - (K-1)/2), delta = 0 for even i, pi/2 for odd: sinusoidal positions and, if K > 1, octaves around
   them. */
CMHA_DEF void cmha_multifreq_waves(size_t K, size_t d, double base, cmha_real *omega, cmha_real *delta);
/* Adds rows [N, D] to every sequence of x [.., N, D] (CRAT eq 3). */
CMHA_DEF cmha_tensor *cmha_add_rows(cmha_tape *tape, cmha_tensor *x, cmha_tensor *rows);

/* Regularises phases (CRAT eq 23) -> [1]: lam * mean over channels of 1 - R_j, R_j = |mean over present rows
   of u(z_j)|, u the phasor; for |z| >> eps it is the paper's mean of 1 - cos(phase - mean phase). Least when
   all phases are equal: keep lam small. No gradient where R_j = 0. */
CMHA_DEF cmha_tensor *cmha_phase_reg(cmha_tape *tape, cmha_tensor *z, const unsigned char *key_mask,
    cmha_real lam, cmha_real eps);
/* Regularises magnitudes (CRAT eq 24) -> [1]: lam * mean |z|^2 over present rows and channels. */
CMHA_DEF cmha_tensor *cmha_mag_reg(cmha_tape *tape, cmha_tensor *z, const unsigned char *key_mask,
    cmha_real lam);
CMHA_DEF double cmha_sum_squares(const cmha_real *x, size_t n); /* in double */

/* ---- Complex residual and mixture of experts (CRAT eq 20-21) ---- */
typedef struct cmha_complex_residual_args {
    size_t T, D; /* rows, complex numbers in each */
    cmha_real alpha, beta;
} cmha_complex_residual_args;
/* Computes y = (alpha + i beta) z + f (CRAT eq 20). z, f, y [T, 2D]; y may be f. The backward adds to dz,
   dalpha and dbeta, each (or NULL); df is dy. Tape: alpha, beta [1]; beta NULL (ours): the factor is
   cos alpha + i sin alpha, a rotation. */
CMHA_DEF void cmha_complex_residual_forward(const cmha_complex_residual_args *args, const cmha_real *z,
    const cmha_real *f, cmha_real *y);
CMHA__FIT void cmha_complex_residual_backward(const cmha_complex_residual_args *args, const cmha_real *z,
    const cmha_real *dy, cmha_real *dz, double *dalpha, double *dbeta);
CMHA_DEF cmha_tensor *cmha_complex_residual(cmha_tape *tape, cmha_tensor *z, cmha_tensor *f,
    cmha_tensor *alpha, cmha_tensor *beta);

/* Describes how tokens are sent to experts. cmha_router_forward reads T, D, E; cmha_route_forward all but D;
   cmha_balance_forward all but D and threads; their backwards no more. */
typedef struct cmha_route_args {
    size_t T, D, E, top; /* tokens, complex width, experts, experts per token: 1 to E */
    const unsigned char *key_mask; /* [T] (or NULL), 0: the token is absent */
    int threads;
} cmha_route_args;
/* Computes logits [T, E] = Re(conj(router_e) . z) + bias_e (ours); z [T, 2D], router [2, E, D], bias [E] (or
   NULL). Of grads `x` is z's, `weight` the router's. */
CMHA_DEF void cmha_router_forward(const cmha_route_args *args, const cmha_real *z, const cmha_real *router,
    const cmha_real *bias, cmha_real *logits);
CMHA__FIT void cmha_router_backward(const cmha_route_args *args, const cmha_real *z, const cmha_real *router,
    const cmha_real *dlogits, const cmha_grads *grads);
CMHA_DEF cmha_tensor *cmha_router(cmha_tape *tape, cmha_tensor *z, cmha_tensor *router, cmha_tensor *bias);

/* Sends each token to the `top` experts of largest logits [T, E], best first, ties to the lower index, NaN
   first, an absent token to the first `top`. gate [T, top]: softmax of the chosen logits, without gradient
   if top = 1 or the token is absent. plan [cmha_route_size]: experts [T, top], then (token, choice) by
   expert. */
CMHA_DEF size_t cmha_route_size(size_t T, size_t E, size_t top);
CMHA_DEF void cmha_route_forward(const cmha_route_args *args, const cmha_real *logits, size_t *plan,
    cmha_real *gate);
CMHA__FIT void cmha_route_backward(const cmha_route_args *args, const size_t *plan, const cmha_real *gate,
    const cmha_real *dgate, cmha_real *dlogits);
typedef struct cmha_experts_args {
    size_t T, D, F, E, top; /* tokens, complex width, hidden complex width, experts, experts per token */
    int threads;
    const size_t *plan; /* with gate [T, top], of cmha_route_forward */
    const cmha_real *gate;
    cmha_real *hidden; /* [T top, 2F] gets W1 z + b1 for the backward (NULL: there is none) */
} cmha_experts_args;
typedef struct cmha_experts_weights {
    const cmha_real *w1, *b1; /* [2, E, F, D], [2, E, F]; biases or NULL */
    const cmha_real *w2, *b2; /* [2, E, D, F], [2, E, D] */
} cmha_experts_weights;
typedef struct cmha_experts_grads {
    cmha_real *z, *gate, *w1, *b1, *w2, *b2; /* as what they belong to; each (or NULL) */
} cmha_experts_grads;
CMHA_DEF size_t cmha_experts_scratch(const cmha_experts_args *args, int backward);
/* Mixes experts (CRAT eq 21): y [T, 2D] = sum over a token's choices of gate_e (W2_e cGELU(W1_e z + b1_e) +
   b2_e). Drops no token; bits do not depend on `threads`. */
CMHA_DEF void cmha_experts_forward(const cmha_experts_args *args, const cmha_experts_weights *weights,
    const cmha_real *z, cmha_real *y, cmha_real *scratch);
CMHA__FIT void cmha_experts_backward(const cmha_experts_args *args, const cmha_experts_weights *weights,
    const cmha_real *z, const cmha_real *dy, const cmha_experts_grads *grads, cmha_real *scratch);
typedef struct cmha_experts_tensors {
    cmha_tensor *w1, *b1, *w2, *b2; /* of the shapes above; biases or NULL */
} cmha_experts_tensors;
typedef struct cmha_experts_options {
    size_t top;
    const unsigned char *key_mask; /* of the tokens (or NULL) */
    uint64_t *use; /* [E] (or NULL) each expert's present tokens are added */
} cmha_experts_options;
/* Mixes experts on a tape: routes rows of z [.., 2D] by logits [.., E], which learn only from cmha_balance if
   top = 1. Errors: ARGUMENT (top; weights or options NULL). */
CMHA_DEF cmha_tensor *cmha_experts(cmha_tape *tape, cmha_tensor *z, cmha_tensor *logits,
    const cmha_experts_tensors *weights, const cmha_experts_options *options);

/* Returns the load balance loss of the Switch Transformer (Fedus et al. 2021, eq 4; not in CRAT): E sum_e f_e
   p_e over logits [T, E], f_e the share of (token, choice) pairs of expert e, p_e the mean of the full
   softmax; 1 if both are even, 0 without tokens. Only p has a gradient. share [2 E + 1] gets f, p and the
   number of present tokens; the backward may get some of the rows. Tape: -> [1], usually added times 1e-2. */
CMHA_DEF double cmha_balance_forward(const cmha_route_args *args, const cmha_real *logits, double *share);
CMHA__FIT void cmha_balance_backward(const cmha_route_args *args, const cmha_real *logits,
    const double *share, cmha_real dloss, cmha_real *dlogits);
CMHA_DEF cmha_tensor *cmha_balance(cmha_tape *tape, cmha_tensor *logits, size_t top,
    const unsigned char *key_mask);

/* ---- Retrieval: CRAT's Imaginary Reflection Window (its 4.4) ---- */
/* Searches the caller's index: writes index [Q, k], documents in any order, -1 = none, of queries whose
   phasors are features [Q, 2 d_r]. A failure ends the library's call with that status. */
typedef cmha_status (*cmha_search_fn)(void *user, const cmha_real *features, size_t Q, size_t k,
        int64_t *index);

/* Holds documents as complex vectors (cmha_model_vectors; encode anew if the model changes). Only read. */
typedef struct cmha_knowledge {
    cmha_context *context;
    size_t n, d_r; /* documents, complex features of each */
    const cmha_real *vectors; /* [n, 2 d_r] planes, which are mixed */
    const cmha_real *features; /* [n, 2 d_r] their phasors z / sqrt(|z|^2 + 1e-12), which are searched */
    const int64_t *ids; /* [n] the caller's numbers; NULL = 0, 1, ... */
    const char *texts; /* document i is texts[text_begin[i] .. text_begin[i + 1]); NULL = none */
    const uint64_t *text_begin; /* [n + 1] */
    uint64_t identity; /* a hash of n, d_r and the vectors as floats */
    cmha_search_fn search; /* NULL = exact search; set it after opening */
    void *search_user;
    struct { void *memory; size_t bytes; } owned[5]; /* freed by close; mapping: a mapped file */
    void *mapping;
    size_t mapped;
} cmha_knowledge;
/* Opens a base, possibly empty, of arrays that must outlive it. ids (or NULL); texts and text_begin,
   ascending from 0, both or neither. Errors: ARGUMENT, MEMORY, OVERFLOW, NOT_FINITE (vectors), STATE. */
CMHA_DEF cmha_status cmha_knowledge_init(cmha_knowledge *knowledge, cmha_context *context, size_t n,
    size_t d_r, const cmha_real *vectors, const int64_t *ids, const char *texts, const uint64_t *text_begin);
CMHA_DEF void cmha_knowledge_close(cmha_knowledge *knowledge);

/* Searches by the angular similarity of CRAT eq 18: (1/d_r) sum_j cos(arg q_j - arg r_j) = (1/d_r) <u(q),
   u(r)> with phasors u; |u(q) - u(r)|^2 = 2 d_r (1 - similarity), so an index of distances finds the same. Of
   each of queries [Q, 2 d_r], index and similarity [Q, k] get documents of similarity >= threshold (-1: all),
   best first, ties to the lower index, then -1 and 0; NaN for a query with a NaN. Bits do not depend on
   threads, memory does not grow with n. Errors: ARGUMENT (the caller's search beyond n), MEMORY, OVERFLOW. */
CMHA_DEF cmha_status cmha_knowledge_search(const cmha_knowledge *knowledge, const cmha_real *queries,
    size_t Q, size_t k, cmha_real threshold, int64_t *index, cmha_real *similarity);
/* Returns the text of document i, *length (or NULL) bytes without a NUL; NULL and 0 if none. */
CMHA_DEF const char *cmha_knowledge_text(const cmha_knowledge *knowledge, size_t i, size_t *length);

typedef struct cmha_retrieve_args {
    size_t queries, top; /* M per token, k documents per query */
    cmha_real tau; /* > 0: of the softmax over similarities; 1, as in the paper, has no effect */
    cmha_real threshold; /* least similarity that counts; -1 = all */
    cmha_real eps; /* of the queries' phasors; 1e-6 is usual */
    int raw_weights; /* 1: w_logits are the weights; 0: their softmax */
} cmha_retrieve_args;
/* Mixes what queries find (CRAT eq 19, first half): rows q [.., 2 M d_r] = [Re of M queries | Im], w_logits
   [M] -> rbar [.., 2 d_r] = sum_m softmax(w_logits)_m sum_i softmax_i(similarity_i / tau) r_i. A query that
   finds nothing adds 0, one of NaN similarities NaN. *found (or NULL) gets tape memory: a byte a row, 1 if a
   query of it found a document or is NaN. The choice has no gradient. */
CMHA_DEF cmha_tensor *cmha_retrieve(cmha_tape *tape, const cmha_knowledge *knowledge,
    const cmha_retrieve_args *args, cmha_tensor *q, cmha_tensor *w_logits, const unsigned char **found);

/* Chooses what the gate g = sigmoid(gate / tau) makes of z and retrieved v: (1 - g) z + g v, or z + g v. */
typedef enum cmha_fusion { CMHA_FUSION_CONVEX, CMHA_FUSION_ADDITIVE } cmha_fusion;
/* Reflects v in z (CRAT eq 19, second half): z, v [.., 2D], gate [.., D], for both planes. Rows that are 0 in
   found (a byte a row, NULL = all found) keep z's bits and give v and gate no gradient. */
CMHA_DEF cmha_tensor *cmha_reflect(cmha_tape *tape, cmha_tensor *z, cmha_tensor *v, cmha_tensor *gate,
    cmha_real tau, cmha_fusion fusion, const unsigned char *found);

typedef struct cmha_irw_weights {
    cmha_tensor *wm, *bm; /* [2, M d_r, D], [2, M d_r] complex: W_m, b_m of the queries in turn */
    cmha_tensor *w_logits, *wv; /* [M]; [2, D, d_r], complex */
    cmha_tensor *wg, *bg; /* [D, 2D + 2 d_r], real, on [Re z | Im z | Re rbar | Im rbar]; [D] */
} cmha_irw_weights;
/* Computes the reflection window (CRAT eq 17-19) on z [.., 2D]: q^(m) = W_m Im z + b_m, rbar by
   cmha_retrieve, gate = W_g [z | rbar] + b_g, v = W_v rbar, then cmha_reflect. Returns z where `knowledge` is
   NULL or empty. */
CMHA_DEF cmha_tensor *cmha_irw(cmha_tape *tape, const cmha_knowledge *knowledge,
    const cmha_retrieve_args *args, cmha_real gate_tau, cmha_fusion fusion, cmha_tensor *z,
    const cmha_irw_weights *weights);

/* ================ Attention ================ */
/* Describes an array [B, H, N, d] by strides: element (b, h, n, i), or its real part, is data[b batch + h
   head + n token + i]; the imaginary part lies `imag` numbers further on (0: real). */
typedef struct cmha_heads { cmha_real *data; size_t batch, head, token, imag; } cmha_heads;
/* View [B, H, N, d] or, if is_complex, [B, H, N, 2d], rows [Re (d) | Im (d)]; and [B, N, row], with head h
   from column h d on, its imaginary part from imag + h d on (imag 0: real). */
CMHA_DEF cmha_heads cmha_heads_by_head(cmha_real *data, size_t H, size_t N, size_t d, int is_complex);
CMHA_DEF cmha_heads cmha_heads_by_token(cmha_real *data, size_t N, size_t row, size_t d, size_t imag);

/* Holds the arrays of an attention of any kind. A forward reads q, k, v and writes y; its backward reads
   these and dy, and adds to dq, dk, dv (data NULL: not wanted). */
typedef struct cmha_attention_views {
    cmha_heads q, k, v; /* [B, H (ROPEPP: H / 2), n_q, d_k], [B, Hkv, n_k, d_k], [B, Hkv, n_k, d_v] */
    cmha_heads y, dy, dq, dk, dv; /* y, dy: [B, H, n_q, d_v] */
} cmha_attention_views;

/* Lists kinds of plain heads in models: ROW(constant, word of the field `attention`). */
#define CMHA_ATTENTION_KINDS(ROW) \
    ROW(CMHA, "cmha")     /* ComplexFormer eq 1-9 */ \
    ROW(ROPE, "rope")     /* Su et al. 2021; CMHA with delta = 1, b = 0 */ \
    ROW(DOT, "dot")       /* Vaswani et al. 2017 */ \
    ROW(POPE, "pope")     /* scale sum_c softplus(q_c) softplus(k_c) cos((m - n) omega_c - beta_c) */ \
    ROW(ROPEPP, "ropepp") /* head 2h of y is RoPE of query head h, head 2h + 1 RoPE of -i q */
#define CMHA__ATTENTION_NAME(name, word) CMHA_ATTENTION_##name,
#define CMHA__ATTENTION_WORD(name, word) "|" word
typedef enum cmha_attention_kind {
    CMHA_ATTENTION_KINDS(CMHA__ATTENTION_NAME)
    CMHA_ATTENTION_COMPLEX, /* CoPE, MöbiusAttention: O = sum_j q_j conj(k_j), then a cmha_softmax_kind */
    CMHA_ATTENTION_ANGULAR, /* O of phasors u(z) = z / sqrt(|z|^2 + eps^2); Re O: CRAT eq 12 */
    CMHA_ATTENTION_COUNT
} cmha_attention_kind;

/* Chooses what becomes of the scores O (times scale) of COMPLEX and ANGULAR. RI_PRODUCT, the default, is our
   reading of MöbiusAttention's eq 9. Real values need REAL or SCORE. */
typedef enum cmha_softmax_kind {
    CMHA_SOFTMAX_RI_PRODUCT, /* y = (softmax(Re O) + i softmax(Im O)) v */
    CMHA_SOFTMAX_REAL, /* y = softmax(Re O) v: CoPE `real`, angular attention, Eilers & Jiang 2023 */
    CMHA_SOFTMAX_RI_SPLIT, /* y = softmax(Re O) Re v + i softmax(Im O) Im v */
    CMHA_SOFTMAX_YANG8, /* (P_rr + i P_ri + i P_ir - P_ii) v, P_xy = softmax(q_x k_y): Yang et al. */
    CMHA_SOFTMAX_SCORE, /* y = softmax(magnitude |O| / max + cosine Re O / sqrt(|O|^2 + eps^2)) v */
    CMHA_SOFTMAX_COUNT
} cmha_softmax_kind;

/* Normalises a model's queries and keys first: head vectors over sqrt(mean square + norm_eps), with GAIN
   times a learned gain (Henry et al. 2020, arXiv 2010.04245; Qwen3), with ONE_PLUS times 1 + that (Gemma 3);
   WHOLE: all heads' numbers as one vector, with a gain (OLMo 2). */
typedef enum cmha_qk_norm { CMHA_QK_NORM_NONE, CMHA_QK_NORM_RMS, CMHA_QK_NORM_RMS_GAIN,
    CMHA_QK_NORM_RMS_ONE_PLUS, CMHA_QK_NORM_RMS_WHOLE } cmha_qk_norm;

/* Chooses the max of SCORE (CoPE `hybrid_norm`), to which 1e-12 is added. */
typedef enum cmha_norm_max {
    CMHA_NORM_MAX_NONE,
    CMHA_NORM_MAX_ROW, /* of the row's visible keys */
    CMHA_NORM_MAX_HEAD, /* of the head's visible pairs: if causal, later tokens leak in */
    CMHA_NORM_MAX_GLOBAL /* of the batch, with masked pairs, padding and all, as CoPE's code */
} cmha_norm_max;

/* Chooses delta and b (PoPE: beta): per head, shared ("EulerFormer-MHA (Shared)") or fixed at 1 and 0 (0). */
typedef enum cmha_share { CMHA_SHARE_PER_HEAD, CMHA_SHARE_SHARED, CMHA_SHARE_FIXED } cmha_share;
enum { CMHA_MAX_SCORE_PARAMETERS = 8 }; /* 5 without `attend` */
typedef struct cmha_attention_args {
    /* Head h reads query head h (ROPEPP: h / 2) and key/value head h / (heads / kv_heads). kv_heads > 0
       divides the number of query heads (ROPEPP: heads / 2). */
    size_t batch, heads, kv_heads;
    size_t n_q, n_k; /* query i is at position pos0 + i, key j at pos0 + n_q - n_k + j */
    size_t d_k, d_v; /* numbers per head, complex for COMPLEX and ANGULAR; d_v 0: only lse */
    cmha_real scale; /* factor on the score, usually 1/sqrt(d_k) */
    int causal; /* key position <= query position */
    size_t window; /* a query sees the last `window` positions, its own included; not causal: and as many
                      from its own on; 0 = all */
    const unsigned char *key_mask; /* [B, n_k] */
    const cmha_real *alibi; /* slopes [H]: score -= slope |m - n| (Press et al. 2022), or NULL */
    cmha_attention_kind kind;
    cmha_layout layout;
    size_t rotary_dims; /* HALF: as in cmha_rope_options; POPE: the leading numbers that rotate, n */
    const cmha_score *score; /* a score instead of the kind, or NULL; never NULL in callbacks */
    const cmha_real *parameters[CMHA_MAX_SCORE_PARAMETERS]; /* the score's; CMHA: delta, b; POPE: beta */
    cmha_share share; /* delta, b [H, P], beta [H, n] per query head; shared [1, ..]; fixed: none */
    /* 1: one more parameter follows, log_temp [H]; scores are divided by exp(log_temp), clamped to [1e-30,
       1e30]. */
    int temperature;
    /* cmha_rotation_table [n, 2P], n = max(n_q, n_k), its last row for the last query; P = d_k / 2, or d_k
       for complex kinds and POPE. */
    const cmha_real *rotation;
    size_t rotation_head; /* distance between the heads' tables, 0 = one table for all */
    int halves; /* on a tape: each complex head is [Re (d_k) | Im (d_k)] */
    cmha_softmax_kind softmax; /* softmax, complex_v and bilinear: for COMPLEX and ANGULAR */
    int complex_v; /* 1: v and y are complex */
    int bilinear; /* 1: O = sum_j q_j k_j, no conjugate: MöbiusAttention eq 9 as printed */
    cmha_real magnitude, cosine; /* SCORE */
    cmha_real eps; /* of ANGULAR's phasors and SCORE's cosine, there of unscaled O */
    int angle; /* ANGULAR: 0 = atan2; 1 = arctan(Im / Re), CRAT's ablation: -u where Re z < 0 */
    cmha_norm_max norm_max; /* SCORE */
    int norm_max_grad; /* 0: no gradient through that maximum; 1: through its entry */
    const unsigned char *query_mask; /* HEAD: [B, n_q] (or NULL), 0 = padding, which the maximum skips */
    cmha_real dropout; /* of the probabilities; the softmaxes of a pair share a mask */
    uint64_t key; /* of the dropout mask */
    size_t first; /* index of the first sequence in a larger batch, for dropout */
    int threads;
    /* > 0: scaled scores become softcap tanh(score / softcap), before ALiBi, temperature, masks (Gemma 2). */
    cmha_real softcap;
    size_t sinks; /* window: keys 0 .. sinks - 1 stay visible (Xiao et al. 2023, arXiv 2309.17453) */
} cmha_attention_args;

/* Names axes of a score's parameter that depend on the model. */
enum {
    CMHA_AXIS_HEADS = -1, /* first axis, `heads`: each head has its own numbers */
    CMHA_AXIS_SHARE = -2, /* first axis, by `share`: per head, shared or none at all */
    CMHA_AXIS_WIDTH = -3, /* d_k: numbers of a head, complex ones if planes = 2 */
    CMHA_AXIS_PAIRS = -4, /* complex numbers of a head */
    CMHA_AXIS_TURNS = -5, /* numbers of a head that rotate */
    CMHA_AXIS_MODEL = -6, /* d_model; like the next only for `attend` */
    CMHA_AXIS_KEYS = -7 /* numbers of all key heads */
};
/* Declares a parameter of a score: "blocks.I.attn.<name>" in a model. */
typedef struct cmha_score_parameter {
    const char *name; /* 1 to 23 letters, digits, - _ . + */
    int axes[3]; /* sizes or CMHA_AXIS_..; 0 = no more */
    double start, spread; /* starts N(start, spread^2); spread < 0: as weight matrices, by `init` */
    int decay; /* 1: with weight decay */
} cmha_score_parameter;

/* Describes rows of a head: row i begins at data[i ld], its imaginary part `imag` numbers further on. */
typedef struct cmha_rows { cmha_real *data; size_t ld, imag; } cmha_rows;
/* Tells a score's callbacks for which head of a sequence they work. */
typedef struct cmha_score_call {
    const cmha_score *score;
    const cmha_attention_args *args;
    size_t head; /* 0 .. heads - 1; of keys shared by a group its first */
    int is_key; /* the rows are keys */
    const cmha_real *rotation; /* [n, 2P], the part for these rows */
    const cmha_real *parameters[CMHA_MAX_SCORE_PARAMETERS]; /* this head's */
    double *gradients[CMHA_MAX_SCORE_PARAMETERS]; /* backward: add here; NULL = not wanted */
    cmha_real divisor; /* of |O|: the max of cmha_norm_max + 1e-12, else 1 */
    double *ddivisor; /* add its gradient here; NULL = not wanted */
} cmha_score_call;
typedef struct cmha_layer cmha_layer; /* see Models */
/* Describes a score. `map` turns rows of q and k into features; the score is scale times their dot product
   or, with `forward`, a function of the complex product O = sum_j q_j conj(k_j). Callbacks run in several
   threads at once. A contradictory description gives ARGUMENT. */
struct cmha_score {
    const char *name; /* for the field `score`: 1 to 31 letters, digits, - _ . + */
    int planes; /* rows of d_k: 1 = real numbers; 2 = complex ones, features [Re | Im] */
    int rotates; /* 1: reads the rotation table, P = F/2; without map rows turn as RoPE (complex: `halves`) */
    int shared_keys; /* 1: keys have the same features for all query heads, whatever the parameters */
    /* Writes features y [n, F] of rows x, F = planes d_k (or by `features`). NULL: rows are features. */
    void (*map)(const cmha_score_call *call, cmha_rows x, size_t n, cmha_real *y);
    /* Adds to dx (data NULL: not wanted) and call->gradients, given dy [n, F]. */
    void (*map_back)(const cmha_score_call *call, cmha_rows x, size_t n, const cmha_real *dy, cmha_rows dx);
    /* Writes scores s [64], with args->scale, of O = re + i im [64], a query by 64 keys. NULL: scale Re O. */
    void (*forward)(const cmha_score_call *call, const cmha_real *re, const cmha_real *im, cmha_real *s);
    /* Replaces re and im by ds times the score's derivatives by Re O and Im O; adds to call->gradients and
       ddivisor. Where ds = 0, as for masked keys, O is 0: return anything finite. */
    void (*backward)(const cmha_score_call *call, const cmha_real *ds, cmha_real *re, cmha_real *im);
    const cmha_score_parameter *parameters;
    size_t n_parameters;
    /* Builds a layer's whole attention instead, see cmha_layer; map and forward are NULL. */
    cmha_tensor *(*attend)(const cmha_layer *layer, cmha_tensor *h);
    int whole; /* 1: attend needs whole sequences; caches refuse it */
    void *user; /* the program's own */
    int features; /* planes = 1: map makes F = features d_k numbers of d_k, features up to 64; 0 = 1 */
    /* 1, planes = 1: as RoPE++ each query head h gives two heads of y, 2h with scores Re O, 2h + 1 with Im O,
       O = sum_j q_j conj(k_j) of features [Re | Im]. */
    int imaginary;
};

/* Names CoPE's scores (its 3.2): A = sum_c q_c conj(k_c), C = Re A / |A|, s = 1/sqrt(d_k). */
typedef enum cmha_cope_score {
    CMHA_COPE_SCORE_PHASE, /* s C, within +-s: weights are almost equal */
    CMHA_COPE_SCORE_MAGNITUDE, /* s |A|: the same for aligned and opposed */
    CMHA_COPE_SCORE_REAL, /* s Re A: ordinary attention of [Re | Im] */
    CMHA_COPE_SCORE_HYBRID, /* s (|A| + alpha C) */
    CMHA_COPE_SCORE_HYBRID_NORM, /* s (|A| / (max + 1e-12) + alpha C); the paper does not say which max */
    CMHA_COPE_SCORE_LINEAR /* no softmax: cmha_linear_attention, not cmha_cope_set_args */
} cmha_cope_score;
typedef struct cmha_cope_options {
    cmha_cope_score score;
    cmha_real alpha; /* 0.2 in the paper */
    cmha_real eps; /* 1e-6, ours: C = Re A / sqrt(|A|^2 + eps^2), smooth, 0 at A = 0 */
    int repo_scale; /* 1: |A| and Re A times s^2, as in the authors' code */
    cmha_norm_max norm_max; /* HYBRID_NORM */
    int norm_max_grad;
} cmha_cope_options;
/* Sets kind, scale, softmax, magnitude, cosine, eps, norm_max, norm_max_grad of args (d_k set) for CoPE eq 2,
   complex_v and bilinear to 0. */
CMHA_DEF void cmha_cope_set_args(cmha_attention_args *args, const cmha_cope_options *options);
CMHA_DEF void cmha_alibi_slopes(size_t H, cmha_real *slopes); /* 2^(-8 (h+1)/H), any H */

/* Holds a row's log sum exp in two parts, for huge scores. Both are 0 without a key. */
typedef struct cmha_lse {
    cmha_real largest; /* the row's largest score */
    cmha_real log_sum; /* log sum exp(score - largest) */
    int in_double; /* 1: products overflowed; then scores beyond 1e30 keep only their order */
} cmha_lse;
CMHA_DEF size_t cmha_attention_scratch(const cmha_attention_args *args, int backward); /* O(n), not n^2 */
/* Computes y = softmax(scale Q'K'^T + mask) V over visible keys (ComplexFormer eq 9), Q', K' the features of
   q, k. lse [B, H, n_q] (or NULL) is for the backward; RI_PRODUCT, RI_SPLIT and YANG8 do not set it. */
CMHA_DEF void cmha_attention_forward(const cmha_attention_args *args, const cmha_attention_views *views,
    cmha_lse *lse, cmha_real *scratch);
/* Adds to dq, dk (strides of q, k), dv and dparameters, like args->parameters (all or one NULL: not wanted).
   dlse [B, H, n_q] (or NULL): gradient of the rows' log sum exp. The same bits for any number of threads. */
CMHA__FIT void cmha_attention_backward(const cmha_attention_args *args, const cmha_attention_views *views,
    const cmha_lse *lse, const cmha_real *dlse, cmha_real *const *dparameters, cmha_real *scratch);
/* Attends: q [B, Nq, H d_k] (ROPEPP: H / 2 heads), k [B, Nk, Hkv d_k], v [B, Nk, Hkv d_v] -> [B, Nq, H d_v].
   Or k and v are NULL and q is fused, [B, N, (H + 2 Hkv) d_k]. For COMPLEX and ANGULAR q and k are planes,
   [Re of all heads | Im of all heads]; with complex_v also v and the result, and q fused is [Re (q k v) | Im
   (q k v)]. With `halves` each head is [Re | Im] instead, and fused values may be real. Sizes come from the
   tensors, parameters (NULL: none) too. Errors: ARGUMENT (no rotation table; real values where a softmax
   needs complex ones; norm_max of phasors). */
CMHA_DEF cmha_tensor *cmha_attention(cmha_tape *tape, const cmha_attention_args *args, cmha_tensor *q,
    cmha_tensor *k, cmha_tensor *v, cmha_tensor *const *parameters);
/* Makes rotation tables [n_tables, n, 2P] in tape memory, one per row of omega [n_tables, P]. */
CMHA_DEF const cmha_real *cmha_rotation(cmha_tape *tape, const double *omega, size_t n_tables, size_t P,
    size_t n, ptrdiff_t pos0);

/* Names attention without a softmax, in O(n): with features f(q), f(k) [n, F] and values v [n, c],
       y_t = f(q_t) (sum_s f(k_s) v_s^T) / (f(q_t) (sum_s f(k_s)))
   The sums over keys (causal: so far) are F (c + 1) numbers. q, k: d complex numbers. */
typedef enum cmha_linear_kind {
    /* CoPE eq 10-17: f(x) = elu(x) + 1 of real and imaginary parts, F = 2d, real v. Read as complex numbers,
       they weight key s by W_ts = sum_j f(q_tj) conj f(k_sj). */
    CMHA_LINEAR_COPE,
    /* CRAT's "linear" path made exact: weights 1 + (1/d) sum_j Re(u(q_j) conj u(k_j)), 0 to 2, u the phasor;
       F = 2d + 1, complex v. Does not approximate CRAT eq 12-13. */
    CMHA_LINEAR_ANGULAR,
    CMHA_LINEAR_COUNT
} cmha_linear_kind;

/* Chooses the output of CoPE's linear attention, per channel of Num = sum_s W_ts v_s; C = Re Num /
   sqrt(|Num|^2 + eps^2). Use REAL, a convex average of values. The others, experimental, follow the paper
   literally: MAGNITUDE loses the values' sign, PHASE their size. */
typedef enum cmha_cope_output {
    CMHA_COPE_OUTPUT_REAL, /* Re Num / Den, Den = sum_s Re W_ts */
    CMHA_COPE_OUTPUT_MAGNITUDE, /* |Num| / Den; gradient 0 at Num = 0 */
    CMHA_COPE_OUTPUT_PHASE, /* C / Den */
    CMHA_COPE_OUTPUT_HYBRID, /* (|Num| + alpha C) / Den */
    CMHA_COPE_OUTPUT_COUNT
} cmha_cope_output;

typedef struct cmha_linear_attention_args {
    size_t batch, heads, n;
    size_t d; /* complex numbers of a head of q and k */
    size_t d_v; /* numbers of a head of v and y (ANGULAR: complex); 0 = d */
    cmha_linear_kind kind;
    cmha_cope_output output; /* COPE only */
    int causal;
    cmha_real alpha; /* HYBRID: 0.2 in the paper */
    cmha_real eps; /* of C (COPE) or u (ANGULAR), whose gradient is at most 1/eps; 1e-6 */
    cmha_real den_eps; /* ANGULAR, 1e-6: y = num / (den + den_eps); den nears 0 if q and keys oppose */
    const unsigned char *key_mask; /* [B, n] */
    int threads;
} cmha_linear_attention_args;
/* Return lengths: of scratch, saved (B H n (1, or 2 d_v + 1 if experimental)), a state (B H F (c + 1)). */
CMHA_DEF size_t cmha_linear_attention_scratch(const cmha_linear_attention_args *args, int backward);
CMHA_DEF size_t cmha_linear_attention_saved(const cmha_linear_attention_args *args);
CMHA_DEF size_t cmha_linear_attention_state(const cmha_linear_attention_args *args);
/* Computes y (CoPE eq 10-17); q, k [B, H, n, d] complex, v, y [.., d_v]. saved (or NULL): for the
   backward. */
CMHA_DEF void cmha_linear_attention_forward(const cmha_linear_attention_args *args,
    const cmha_attention_views *views, cmha_real *saved, cmha_real *scratch);
CMHA__FIT void cmha_linear_attention_backward(const cmha_linear_attention_args *args,
    const cmha_attention_views *views, const cmha_real *saved, cmha_real *scratch);
/* Decodes n more tokens, always causal; updates `state`, zeros at first. */
CMHA_DEF void cmha_linear_attention_append(const cmha_linear_attention_args *args,
    const cmha_attention_views *views, cmha_real *state, cmha_real *scratch);

/* Mixes by lag, which CRAT's FFT path (eq 14) amounts to: IFFT(FFT(Q) conj FFT(K)) has n numbers, one per
   lag, not n^2. Zero-padded against wrap-around, like Autoformer's auto-correlation (Wu et al. 2021), but all
   queries share the weights:
       N_tau  = number of pairs of tokens t and t - tau that are both present: n - tau without a mask
       R[tau] = 1 / (sqrt(d) N_tau) sum over these pairs, sum_j Re(u(q_tj) conj u(k_{t-tau,j}))
       a      = softmax of temp R over the topk lags (0: all) of largest R among those with N_tau > 0, else 0
       y_t    = sum a[tau] v_{t-tau} / sum a[tau] over tau <= t, t - tau present; 0 if none is, or t is not
   Only for encoders. Ties, up to 2^-20 (in double 2^-32) of the most that |u(q)| and |u(k)| allow, go to the
   lower lag. The choice has no gradient. Absent tokens take no part; padding at the end changes no bit. */
typedef struct cmha_lag_args {
    size_t batch, heads, n;
    size_t d; /* complex numbers of a head of q, k, v and y */
    cmha_real temp;
    size_t topk;
    cmha_real eps; /* of the phasors u; 1e-6 is usual */
    const unsigned char *key_mask; /* [B, n] */
    int threads;
} cmha_lag_args;
CMHA_DEF size_t cmha_lag_attention_scratch(const cmha_lag_args *args); /* O(n) per thread */
/* Computes y (CRAT eq 14), all arrays complex, in O(n log n d). lags [B, H, n], for the backward, gets temp R
   of the chosen lags, -infinity for others; its softmax is a. */
CMHA_DEF void cmha_lag_attention_forward(const cmha_lag_args *args, const cmha_attention_views *views,
    cmha_real *lags, cmha_real *scratch);
CMHA__FIT void cmha_lag_attention_backward(const cmha_lag_args *args, const cmha_attention_views *views,
    const cmha_real *lags, cmha_real *scratch);
/* Attend: q, k [B, N, 2 H d] = [Re of all heads | Im of all heads]; v [B, N, H d_v] real for
   CMHA_LINEAR_COPE, else planes; the result is like v. Or, for complex values, k and v are NULL and q is
   fused, [B, N, 6 H d] = [Re (q | k | v) | Im (q | k | v)]. Of the sizes in args only `heads` is read. */
CMHA_DEF cmha_tensor *cmha_linear_attention(cmha_tape *tape, const cmha_linear_attention_args *args,
    cmha_tensor *q, cmha_tensor *k, cmha_tensor *v);
CMHA_DEF cmha_tensor *cmha_lag_attention(cmha_tape *tape, const cmha_lag_args *args, cmha_tensor *q,
    cmha_tensor *k, cmha_tensor *v);

/* Describes the phase contrastive loss of ComplexFormer 3.2, which gives only eps and tau; the form follows
   EulerFormer eq 14. theta [N, P] are one head's phases.
       sim(j, j') = (1/P) sum_r w_r cos(theta[j, r] - keep[j', r] theta[j', r])
       loss = mean over j of ( -sim(j, pos(j))/tau + logsumexp_j' sim(j, j')/tau )
   Never negative for any tau (unless a positive is padding). Holds 64 rows of sim at a time. */
typedef struct cmha_pcl_args {
    size_t N, P;
    cmha_real tau;
    const cmha_real *w; /* [P] */
    const unsigned char *keep; /* [N, P] (or NULL), 0 sets a phase to 0 */
    const size_t *positive; /* [N] each token's positive; NULL = itself */
    const unsigned char *valid; /* [N] (or NULL), 0 = padding */
} cmha_pcl_args;
CMHA_DEF size_t cmha_pcl_scratch(const cmha_pcl_args *args);
/* Returns the loss. lse [N, 2] is for the backward, which adds to dtheta [N, P] and dw [P]. */
CMHA_DEF double cmha_pcl_forward(const cmha_pcl_args *args, const cmha_real *theta, cmha_real *lse,
    cmha_real *scratch);
CMHA__FIT void cmha_pcl_backward(const cmha_pcl_args *args, const cmha_real *theta, const cmha_real *lse,
    cmha_real dloss, cmha_real *dtheta, cmha_real *dw, cmha_real *scratch);

typedef struct cmha_pcl_options {
    cmha_real tau, mask_rate; /* probability that a phase of the second view is masked */
    int adapted; /* 1: phases after delta, b and position, as EulerFormer; 0: raw phases theta */
} cmha_pcl_options;
/* Averages that loss over sequences and heads, of queries and keys alike, of qkv [B, N, (H + 2 Hkv) d_k] ->
   [1]. w [P]; args as for cmha_attention. A key head's adapted phases are those of its first query head. */
CMHA_DEF cmha_tensor *cmha_pcl(cmha_tape *tape, const cmha_attention_args *args, cmha_tensor *qkv,
    cmha_tensor *delta, cmha_tensor *b, cmha_tensor *w, const cmha_pcl_options *options);

/* ================ Models ================ */
/* Errors of every call from here to Files; comments name others: ARGUMENT (NULL, out of range), STATE (a
   closed object), MEMORY, OVERFLOW (a size). A failed _init or _open leaves a closed object. */

/* MULTIFREQ: CRAT eq 2, for every family. */
typedef enum cmha_position { CMHA_POSITION_NONE, CMHA_POSITION_LEARNED, CMHA_POSITION_SINUSOIDAL,
    CMHA_POSITION_ALIBI, CMHA_POSITION_MULTIFREQ } cmha_position;
typedef enum cmha_delta_init { CMHA_DELTA_INIT_PAPER, CMHA_DELTA_INIT_ROPE_START,
    CMHA_DELTA_INIT_CONST } cmha_delta_init;
/* Places a block's norms: x + f(norm(x)); norm(x + f(x)); x + norm(f(norm(x))) (Gemma 2); x + norm(f(x))
   (OLMo 2). */
typedef enum cmha_placement { CMHA_PLACEMENT_PRE, CMHA_PLACEMENT_POST, CMHA_PLACEMENT_SANDWICH,
    CMHA_PLACEMENT_AFTER } cmha_placement;
typedef enum cmha_parallel { CMHA_PARALLEL_NONE, CMHA_PARALLEL_NORMS, CMHA_PARALLEL_NORM } cmha_parallel;
typedef enum cmha_pool { CMHA_POOL_FIRST, CMHA_POOL_MEAN } cmha_pool;
typedef enum cmha_init { CMHA_INIT_NORMAL, CMHA_INIT_XAVIER } cmha_init;
/* Divides features by nothing, or by their root mean square |f| over a position or a sequence's present
   positions (not in causal models: later ones count). Zeros stay zeros. */
typedef enum cmha_feature_norm { CMHA_FEATURE_NORM_NONE, CMHA_FEATURE_NORM_FRAME,
    CMHA_FEATURE_NORM_SEQUENCE } cmha_feature_norm;
/* Names the paper whose blocks a model has:
     real   ComplexFormer and every baseline: x = embedding(ids) + positions; blocks x += attention(norm(x)),
            x += ffn(norm(x)); logits = norm(x) W^T. (Post-norm: x = norm(x + sublayer(x)), no final norm.)
     cope   The first layer's queries and keys are complex projections of z = token + i gamma position, scored
            by cope_score; no norm touches the imaginary part. The other layers are plain.
     mobius Layers of mobius_wiring have mobius_heads Möbius heads beside plain ones (eq 10-19) or alone (eq
            20-27), on complex inputs: real part from the layer below; imaginary part, before any norm, the
            positions in the first such layer, the tokens in later ones. ln1 norms both.
     crat   The state is d_model/2 complex features; norm, attention and feed-forward layer are complex:
            a = window(attention(norm(z))), z = r1 z + a, z = r2 z + ffn(norm(z)). The window (irw_), in some
            layers, mixes in documents of a knowledge base; ffn is a mixture of `experts` or one dense layer;
            r1 and r2 are 1 or learned complex numbers. */
typedef enum cmha_family { CMHA_FAMILY_REAL, CMHA_FAMILY_COPE, CMHA_FAMILY_MOBIUS,
    CMHA_FAMILY_CRAT } cmha_family;

/* Chooses the Möbius layers: first and last; first; first two; every third from the first on. */
typedef enum cmha_wiring { CMHA_WIRING_FRAMED, CMHA_WIRING_TOP, CMHA_WIRING_STACKED,
    CMHA_WIRING_ALTERNATING } cmha_wiring;
/* Chooses the maps of MöbiusAttention eq 5-8, which are printed as scalars but counted as matrices. */
typedef enum cmha_mobius_mode {
    CMHA_MOBIUS_MODE_T, /* "T": a complex linear map, then the Möbius map by channel; k, v complex linear */
    CMHA_MOBIUS_MODE_FULL, /* (A rho + b) / (C rho + d) with matrices A, C; k, v complex linear */
    CMHA_MOBIUS_MODE_LITERAL /* as printed: by channel, on the first mobius_heads * d_k; for teaching */
} cmha_mobius_mode;
typedef enum cmha_mobius_init { CMHA_MOBIUS_INIT_IDENTITY, CMHA_MOBIUS_INIT_ORTHO } cmha_mobius_init;
typedef enum cmha_crat_attention { CMHA_CRAT_ATTENTION_ANGULAR, CMHA_CRAT_ATTENTION_LINEAR,
    CMHA_CRAT_ATTENTION_LAG, CMHA_CRAT_ATTENTION_DOT } cmha_crat_attention;
/* Chooses alpha + i beta of CRAT eq 20: 1; learned; learned, of modulus 1. */
typedef enum cmha_residual { CMHA_RESIDUAL_NONE, CMHA_RESIDUAL_FREE, CMHA_RESIDUAL_UNIT } cmha_residual;
/* Lists fields: SIZE and REAL(member, default, minimum, maximum, help), FLAG(member, default, help),
   NAME(member, help), ENUM(member, first, last, words, help) with a word per value from first, the default,
   to last. If a help begins "a|b: ", the field is read only if a field that is read is named a or b and not
   0, or has the value a or b. */
#define CMHA__CHOICES(words) (&(words)[1])
#define CMHA_MODEL_FIELDS(SIZE, REAL, FLAG, ENUM, NAME) \
    SIZE(n_layers, 8, 1, 1024, "blocks") \
    SIZE(d_model, 512, 1, 65536, "width of a token; divisible by n_heads where d_head = 0") \
    SIZE(n_heads, 8, 1, 1024, "query heads") \
    SIZE(n_kv_heads, 0, 0, 1024, "key/value heads, a divisor of n_heads; 0 = n_heads") \
    SIZE(d_head, 0, 0, 65536, "real: width of a head (d_k); 0 = d_model / n_heads") \
    SIZE(d_ff, 1024, 1, 1048576, "width inside the feed-forward layer") \
    SIZE(vocabulary, 256, 0, 2147483647, "number of tokens; 256 = bytes; 0 (tokens = 0): no such head") \
    SIZE(max_positions, 1024, 1, 16777216, "positions of the learned embedding; other kinds have no limit") \
    ENUM(family, CMHA_FAMILY_REAL, CMHA_FAMILY_CRAT, "real|cope|mobius|crat", "whose model: cmha_family") \
    ENUM(attention, CMHA_ATTENTION_CMHA, CMHA_ATTENTION_COMPLEX - 1, \
         CMHA__CHOICES(CMHA_ATTENTION_KINDS(CMHA__ATTENTION_WORD)), \
         "real|cope|mobius: score of plain heads; ropepp: query head h gives heads 2h and 2h + 1") \
    ENUM(position, CMHA_POSITION_NONE, CMHA_POSITION_MULTIFREQ, "none|learned|sinusoidal|alibi|multifreq", \
         "positions outside the score; crat: always multifreq") \
    ENUM(share, CMHA_SHARE_PER_HEAD, CMHA_SHARE_FIXED, "per_head|shared|fixed", \
         "cmha|pope: whose delta and b, or beta; fixed = 1 and 0, or 0") \
    ENUM(delta_init, CMHA_DELTA_INIT_PAPER, CMHA_DELTA_INIT_CONST, "paper|rope_start|const", \
         "cmha: N(0, std^2), 1 + N(0, std^2), or delta_value") \
    REAL(delta_std, 0.02, 0, 100, "paper|rope_start: spread of the initial delta") \
    REAL(delta_value, 1, -100, 100, "const: the initial delta") \
    ENUM(layout, CMHA_LAYOUT_INTERLEAVED, CMHA_LAYOUT_HALF, "interleaved|half", \
         "cmha|rope|ropepp|pcl_weight: pairs of a head") \
    ENUM(frequency, CMHA_FREQUENCY_ROPE, CMHA_FREQUENCY_TABLE, "rope|literal|table", \
         "cmha|rope|pope|ropepp: base^(-2j/d_k) (pope: base^(-c/d_k)), eq 6 as printed, or a given table") \
    REAL(base, 10000, 1, 1e12, \
         "cmha|rope|pope|ropepp|crat|sinusoidal|multifreq|sin_dup|sin_cos: of the frequencies") \
    SIZE(rotary_dims, 0, 0, 65536, "cmha|rope|pope|ropepp: leading numbers of a head that rotate; 0 = all") \
    ENUM(rope_scaling, CMHA_ROPE_SCALING_NONE, CMHA_ROPE_SCALING_LLAMA3, "none|linear|ntk|yarn|llama3", \
         "cmha|rope|pope|ropepp: for longer texts, cmha_rope_scaling") \
    REAL(rope_factor, 1, 1, 1e6, "linear|ntk|yarn|llama3: times longer") \
    SIZE(rope_length, 0, 0, 1073741824, "yarn|llama3: tokens that were learned") \
    REAL(rope_fast, 32, 0, 1e9, "yarn|llama3: turns in them from which on a frequency stays") \
    REAL(rope_slow, 1, 0, 1e9, "yarn|llama3: turns up to which it is divided by rope_factor") \
    ENUM(rope_ramp, CMHA_ROPE_RAMP_INDEX, CMHA_ROPE_RAMP_ROTATIONS, "index|rotations", \
         "yarn: what the mixture in between is linear in") \
    REAL(score_scale, 0, 0, 1e6, \
         "real|cope|mobius|angular|dot: factor on it, but for CoPE's own; 0 = 1/sqrt(d_k)") \
    SIZE(window, 0, 0, 16777216, \
         "a token sees this many, itself included; an encoder's to either side; 0 = all") \
    FLAG(causal, 1, "a token sees no later one; 0: an encoder") \
    SIZE(token_types, 0, 0, 65536, "kinds of tokens (sentence A, B), each with an embedding; 0 = none") \
    SIZE(classes, 0, 0, 65536, "classes of a sequence; 1 = a regression; 0 = no such head") \
    ENUM(pool, CMHA_POOL_FIRST, CMHA_POOL_MEAN, "first|mean", \
         "classes: their head sees the first token ([CLS]) or the mean") \
    REAL(label_range, 0, 0, 1e6, "classes: 1 is label_range * sigmoid(logit); 0 = the logit") \
    ENUM(placement, CMHA_PLACEMENT_PRE, CMHA_PLACEMENT_AFTER, "pre|post|sandwich|after", \
         "norm before the sublayer; after the sum; before and after the sublayer; after it alone") \
    ENUM(norm, CMHA_NORM_LAYER, CMHA_NORM_COUNT - 1, CMHA__CHOICES(CMHA_NORMS(CMHA__NORM_WORD)), "the norm") \
    REAL(norm_eps, 1e-5, 0, 1, "epsilon of the norm") \
    ENUM(activation, CMHA_ACTIVATION_GELU_ERF, CMHA_ACTIVATION_COUNT - 1, \
         CMHA__CHOICES(CMHA_ACTIVATIONS(CMHA__ACTIVATION_WORD)), "between w1 and w2") \
    FLAG(attention_bias, 0, "biases on plain heads' q, k, v projections and on the output projection") \
    FLAG(qkv_bias, 0, "biases on plain heads' q, k, v projections alone") \
    FLAG(output_bias, 0, "a bias on the attention's output projection alone") \
    FLAG(ffn_bias, 1, "biases in the feed-forward layer") \
    FLAG(tied, 1, "the output projection is the token embedding") \
    FLAG(embedding_norm, 0, "real: a norm of the embeddings' sum") \
    FLAG(head_transform, 0, "vocabulary: norm(activation(W x + b)) before its head, as BERT has it; of " \
         "GeGLU the GELU, and b where ffn_bias is") \
    FLAG(pooler, 0, "classes: tanh(W x + b) before their head, likewise") \
    FLAG(embedding_scale, 0, "tokens: embeddings times sqrt(d_model), so that sines do not drown them") \
    FLAG(head_bias, 0, "vocabulary: bias on the logits") \
    REAL(residual_scale, 1, 0, 100, "factor on each sublayer's output") \
    REAL(dropout, 0, 0, 0.95, "on embeddings and sublayer outputs") \
    REAL(attention_dropout, 0, 0, 0.95, "real|cope|mobius|angular|dot: on probabilities") \
    ENUM(init, CMHA_INIT_NORMAL, CMHA_INIT_XAVIER, "normal|xavier", \
         "weights N(0, init_std^2), or U(+-sqrt(6/(in + out))) and embeddings U(+-0.1)") \
    REAL(init_std, 0.02, 0, 10, "spread of the weights; before a residual sum: over sqrt(2 n_layers)") \
    REAL(pcl_weight, 0, 0, 100, "phase contrastive loss: factor on its mean over layers (epsilon); 0 = off") \
    REAL(pcl_tau, 0.1, 1e-3, 1000, "pcl_weight: temperature") \
    REAL(pcl_mask, 0.5, 0, 0.99, "pcl_weight: share of masked phases") \
    FLAG(pcl_adapted, 0, "pcl_weight: phases after delta, b and position") \
    FLAG(pcl_learn, 1, "pcl_weight: learn the weights w") \
    REAL(complex_eps, 1e-6, 0, 1, "smoothing of phasors (crat) and of the cosine (cope)") \
    ENUM(cope_score, CMHA_COPE_SCORE_PHASE, CMHA_COPE_SCORE_LINEAR, \
         "phase|magnitude|real|hybrid|hybrid_norm|linear", "cope: the first layer's score") \
    ENUM(cope_imag, CMHA_COPE_IMAG_SIN_DUP, CMHA_COPE_IMAG_LEARNED, "sin_dup|sin_cos|learned", \
         "cope: imaginary embedding") \
    REAL(cope_gamma, 1, -1000, 1000, "cope: factor on the imaginary part") \
    REAL(cope_alpha, 0.2, -1000, 1000, "hybrid|hybrid_norm: weight of the cosine") \
    REAL(cope_scale, 1, 0, 1e6, "cope: factor on the score beside 1/sqrt(d_k), an inverse temperature") \
    FLAG(cope_repo_scale, 0, "cope: |A| and Re A over d_k, as the authors' code has it") \
    ENUM(cope_max, CMHA_NORM_MAX_ROW, CMHA_NORM_MAX_GLOBAL, \
         "row|head|global", "hybrid_norm: its maximum; causal = row") \
    FLAG(cope_max_grad, 0, "hybrid_norm: the gradient flows through that") \
    SIZE(mobius_heads, 2, 0, 1024, "mobius: Möbius heads beside plain ones; n_heads = no others") \
    ENUM(mobius_wiring, CMHA_WIRING_FRAMED, CMHA_WIRING_ALTERNATING, "framed|top|stacked|alternating", \
         "mobius: which layers") \
    ENUM(mobius_mode, CMHA_MOBIUS_MODE_T, CMHA_MOBIUS_MODE_LITERAL, "t|full|literal", \
         "mobius_heads: what the maps are; literal reads the first mobius_heads * d_k channels") \
    ENUM(mobius_softmax, CMHA_SOFTMAX_RI_PRODUCT, CMHA_SOFTMAX_COUNT - 1, \
         "ri_product|real|ri_split|yang8|abs", "mobius_heads: softmax of a complex score") \
    FLAG(mobius_hermitian, 0, "mobius_heads: q conj(k) instead of the paper's q k") \
    ENUM(mobius_quotient, CMHA_QUOTIENT_REG, CMHA_QUOTIENT_COUNT - 1, "reg|exact|unit", \
         "mobius_heads: the division") \
    REAL(mobius_eps, 1e-3, 0, 1e3, "reg|unit: epsilon of the quotient") \
    ENUM(mobius_init, CMHA_MOBIUS_INIT_IDENTITY, CMHA_MOBIUS_INIT_ORTHO, "identity|ortho", \
         "mobius_heads: normal or orthogonal matrices; maps start near the identity") \
    ENUM(crat_attention, CMHA_CRAT_ATTENTION_ANGULAR, CMHA_CRAT_ATTENTION_DOT, "angular|linear|lag|dot", \
         "crat: softmax of cosines, its linear kernel, by lag, Re q conj k") \
    SIZE(real_heads, 0, 0, 1024, "crat: heads that see Re z alone") \
    SIZE(imag_heads, 0, 0, 1024, "crat: heads that see Im z alone; the others see both") \
    ENUM(complex_norm, CMHA_COMPLEX_NORM_CLN, CMHA_COMPLEX_NORM_COUNT - 1, \
         CMHA__CHOICES(CMHA_COMPLEX_NORMS(CMHA__COMPLEX_NORM_WORD)), "crat: the norm") \
    SIZE(low_rank, 0, 0, 65536, "crat: rank of the attention's projections U V^H (eq 15); 0 = dense") \
    SIZE(pe_terms, 4, 1, 64, "crat|multifreq: sines per channel (K of CRAT eq 2)") \
    FLAG(state_rotation, 1, "crat: rotate the state by angles of its content (eq 6)") \
    FLAG(state_gelu, 0, "crat: cGELU on the rotated state; it crowds the phases into one quadrant") \
    REAL(phase_reg, 0, 0, 1000, "crat: phase regularisation of the last state (lambda_p of eq 23)") \
    REAL(mag_reg, 0, 0, 1000, "crat: magnitude regularisation of the last state (lambda_m of eq 24)") \
    REAL(lag_temp, 1, -1e6, 1e6, "lag: factor on the correlations") \
    SIZE(lag_topk, 0, 0, 16777216, "lag: the most lags mixed; 0 = all") \
    ENUM(complex_residual, CMHA_RESIDUAL_NONE, CMHA_RESIDUAL_UNIT, "none|free|unit", \
         "crat: factor on the skip connection: 1, alpha + i beta, e^(i psi)") \
    SIZE(experts, 0, 0, 65536, "crat: experts of a layer (E of eq 21), each as wide as d_ff; 0 = one layer") \
    SIZE(experts_top, 2, 1, 65536, "experts: those of a token; with 1, only `balance` teaches the router") \
    REAL(balance, 0, 0, 1000, "experts: weight of a layer's load balance loss; paper none, 0.01 is usual") \
    SIZE(irw_layers, 0, 0, 1024, "crat: layers with a reflection window into a knowledge base; 0 = none") \
    SIZE(irw_from, 0, 0, 1024, "irw_layers: the first of them, from 1 on; 0 = the middle of the depth") \
    SIZE(irw_queries, 3, 1, 1024, "irw_layers: queries a token asks (M of eq 17)") \
    SIZE(irw_top, 5, 1, 1024, "irw_layers: documents a query finds (k)") \
    SIZE(irw_width, 0, 0, 65536, "irw_layers: complex features of a document (d_r); 0 = d_model/2") \
    REAL(irw_tau, 1, 1e-6, 1e6, "irw_layers: temperature of the similarities") \
    REAL(irw_gate_tau, 1, 1e-6, 1e6, "irw_layers: temperature of the reflection gate (tau of eq 19)") \
    REAL(irw_threshold, -1, -1, 1, "irw_layers: least similarity of a document that counts as found") \
    ENUM(irw_fusion, CMHA_FUSION_CONVEX, CMHA_FUSION_ADDITIVE, "convex|additive", \
         "irw_layers: (1 - g) a + g r, or a + g r") \
    FLAG(irw_raw, 0, "irw_layers: the weights of the queries as they are, no softmax") \
    FLAG(recompute, 0, "in training blocks keep their input alone, run again in the backward: less memory") \
    NAME(score, "real|cope: the program's own instead of attention, or cope_score; empty = none") \
    NAME(tokenizer, "whose tokens the ids are, by its identity; empty = bytes or bare numbers") \
    FLAG(tokens, 1, "ids are embedded; 0: features alone, and the vocabulary's head is untied") \
    SIZE(features, 0, 0, 65536, "numbers of a position, beside ids or instead; 0 = none") \
    FLAG(complex_features, 0, "they are complex; family = real takes their planes as channels") \
    ENUM(feature_norm, CMHA_FEATURE_NORM_NONE, CMHA_FEATURE_NORM_SEQUENCE, "none|frame|sequence", \
         "divides a position's features, or a sequence's, by their RMS") \
    SIZE(values, 0, 0, 65536, "numbers predicted at a position; 0 = no such head") \
    FLAG(gaussian, 0, "values: the mean and the log variance of each; 0: squared error") \
    SIZE(lora_rank, 0, 0, 65536, "rank of adapters (LoRA), which then learn alone; 0 = none") \
    REAL(lora_alpha, 0, 0, 1e6, "lora_rank: they add this / lora_rank times their product; 0 = lora_rank") \
    NAME(lora_on, "lora_rank: matrices, as in wq,wv or ffn.*; empty = what projects q and v, or *") \
    FLAG(beta_uniform, 0, "pope: beta starts anywhere in [-2 pi, 0]; 0: at 0") \
    FLAG(head_temperature, 0, "divides the scores of each head with a softmax by a learned exp(log_temp)") \
    FLAG(cope_gamma_learned, 0, "cope: cope_gamma is learned, from that on") \
    REAL(score_softcap, 0, 0, 1e6, \
         "caps scores: c tanh(score / c), before ALiBi, temperature and masks; 0 = no") \
    REAL(logit_softcap, 0, 0, 1e6, "caps the logits of tokens likewise; 0 = no") \
    ENUM(qk_norm, CMHA_QK_NORM_NONE, CMHA_QK_NORM_RMS_WHOLE, "none|rms|rms_gain|rms_one_plus|rms_whole", \
         "plain and CoPE's heads: queries and keys over their root mean square (norm_eps), with a gain") \
    SIZE(sinks, 0, 0, 16777216, "window: the first tokens, so many, stay visible") \
    FLAG(residual_zero, 0, "matrices that write into the residual sum (wo, w2) begin with zeros") \
    ENUM(angle, 0, 1, "atan2|atan", "angular: a phasor's angle; atan takes z and -z for the same") \
    REAL(z_loss, 0, 0, 1, \
         "vocabulary: adds it times the mean (log sum exp logits)^2 to what is learned; 1e-4 is usual") \
    ENUM(parallel, CMHA_PARALLEL_NONE, CMHA_PARALLEL_NORM, "none|norms|norm", \
         "real|cope: attention and feed-forward layer read the same x, by a norm each or by one") \
    FLAG(value_residual, 0, "real: values are l1 v + l2 (those of the first layer), learned, from 1/2") \
    FLAG(residual_mix, 0, "layers read a x + b (what the first one read), learned, from 1 and 0") \
    NAME(layer_kinds, \
         "real: a letter a layer, over and over: g sees all, l has the window and local_base, n g unturned") \
    REAL(local_base, 0, 0, 1e12, \
         "layer_kinds: of l layers' frequencies, which nothing scales; 0: as in g") \
    REAL(embedding_factor, 1, 1e-6, 1e6, "tokens: factor on embeddings, beside embedding_scale") \
    REAL(head_scale, 1, 1e-6, 1e6, "vocabulary: factor on what its head reads") \
    FLAG(first_norm, 1, "real: the first layer's attention reads a norm, as in others; 0: x itself")

#define CMHA__SIZE_MEMBER(name, initial, minimum, maximum, help) size_t name;
#define CMHA__REAL_MEMBER(name, initial, minimum, maximum, help) double name;
#define CMHA__FLAG_MEMBER(name, initial, help) int name;
#define CMHA__ENUM_MEMBER(name, first, last, words, help) int name;
#define CMHA__NAME_MEMBER(name, help) char name[32];
#define CMHA__MEMBERS(walk) \
    walk(CMHA__SIZE_MEMBER, CMHA__REAL_MEMBER, CMHA__FLAG_MEMBER, CMHA__ENUM_MEMBER, CMHA__NAME_MEMBER)
typedef struct cmha_model_config { CMHA__MEMBERS(CMHA_MODEL_FIELDS) } cmha_model_config;
CMHA_DEF cmha_table cmha_model_table(void);

#define CMHA_TRAINER_FIELDS(SIZE, REAL, FLAG, ENUM, NAME) \
    SIZE(steps, 1000, 1, 1000000000, "optimiser steps") \
    SIZE(batch, 8, 1, 1048576, "sequences per forward pass") \
    SIZE(length, 512, 1, 16777216, "tokens per sequence") \
    SIZE(accumulate, 1, 1, 1048576, "forward passes per step") \
    REAL(lr, 1e-4, 0, 100, "peak learning rate") \
    REAL(min_lr, 0, 0, 100, "cosine|linear|wsd: learning rate at the end") \
    REAL(warmup, 0.05, 0, 1, "share of the steps with a rising rate; step s, from 0, has the rate of s + 1") \
    ENUM(schedule, CMHA_SCHEDULE_COSINE, CMHA_SCHEDULE_COUNT - 1, \
         CMHA__CHOICES(CMHA_SCHEDULES(CMHA__SCHEDULE_WORD)), "the rate after the warm-up") \
    REAL(weight_decay, 0.01, 0, 100, "decoupled decay, of matrices and embeddings alone") \
    REAL(beta1, 0.9, 0, 0.999999, "decay of the first moment") \
    REAL(beta2, 0.98, 0, 0.9999999, "decay of the second moment") \
    REAL(adam_eps, 1e-9, 0, 1, "AdamW's epsilon") \
    REAL(clip, 1, 0, 1e9, "largest norm of the gradient, see clip_mode; 0 = no clipping") \
    REAL(mask_rate, 0.15, 0, 1, "share of an encoder's tokens to be guessed (masked language model)") \
    SIZE(mask_token, 0, 0, 2147483647, "an encoder's token that stands for a hidden one, [MASK]") \
    ENUM(clip_mode, CMHA_CLIP_WHOLE, CMHA_CLIP_COUNT - 1, CMHA__CHOICES(CMHA_CLIPS(CMHA__CLIP_WORD)), \
         "the whole gradient, or real and imaginary parts apart (CRAT eq 22)") \
    REAL(held_out, 0.1, 0, 0.9, "share of the tokens kept for validation, at the end of the text") \
    SIZE(eval_every, 100, 1, 1000000000, "steps between validations") \
    SIZE(eval_tokens, 65536, 1, 1000000000, "most tokens of the held-out text per validation") \
    REAL(momentum, 0.95, 0, 0.999999, "muon|sgd: decay of the sum of gradients") \
    FLAG(nesterov, 1, "muon|sgd: that sum is taken one step ahead") \
    ENUM(update_scale, CMHA_UPDATE_RMS, CMHA_UPDATE_SHAPE, "rms|shape", \
         "muon: updates as large as AdamW's, or times sqrt(max(1, rows / columns))") \
    REAL(decay_share, 0.2, 0, 1, "wsd: share of the steps, the last ones, in which the rate falls") \
    REAL(ema, 0, 0, 0.9999999, \
         "decay a step of a mean of the weights, from the first ones (cmha_trainer_swap); 0 = none") \
    NAME(optimiser, "adamw, muon, lion, sgd or one of the program's own; empty = adamw")
typedef struct cmha_trainer_config { CMHA__MEMBERS(CMHA_TRAINER_FIELDS) } cmha_trainer_config;
CMHA_DEF cmha_table cmha_trainer_table(void);

/* Fills configurations (each or NULL) with a preset: tiny learns a text in minutes, from RoPE (delta = 1),
   fast in less than half the time (Muon, QK-norm); encoder is a small classifier; paper is ComplexFormer's
   appendix A (its optional loss is pcl_weight = 0.01), repo its authors' code; eulerformer; cope; half of
   mobiusbert's heads are Möbius ("H & T"), mobroformer's others RoPE; crat is all of CRAT (its missing Table
   A1 is ours). context (or NULL): gets the error line. Errors: NOT_FOUND. */
CMHA_DEF cmha_status cmha_preset(cmha_context *context, const char *name, cmha_model_config *model,
    cmha_trainer_config *trainer);
/* Return the name of preset i, and of attention kind i; NULL beyond the last. *fields (or NULL): what the
   kind, and cmha_kind, sets, "family=real attention=dot position=alibi". Errors: NOT_FOUND. */
CMHA_DEF const char *cmha_preset_name(size_t i);
CMHA_DEF const char *cmha_kind_name(size_t i, const char **fields);
CMHA_DEF cmha_status cmha_kind(cmha_context *context, const char *name, cmha_model_config *model);

/* Names a part of a block of parameters and how it learns. */
typedef struct cmha_parameter {
    char name[48]; /* as in files: "blocks.0.attn.wq.weight" */
    cmha_tensor tensor;
    int is_complex; /* 1: its first axis is [real part, imaginary part] */
    int frozen; /* 1: it does not learn and has no gradient or moments; set by cmha_parameters_tune */
    int usual_frozen; /* 1: begins frozen: the model has adapters, and it is not one */
    double lr_scale; /* factor on the learning rate, decay included; usually 1; 0: values stay */
    double decay; /* factor on the weight decay: 1 for matrices and embeddings, else 0 */
    int chosen; /* 0: its optimiser decides; 1: AdamW updates it; 2: the optimiser */
    int matrices; /* stacked in it, 3 in fused q, k, v; 0: none; in models also embedding, output head */
    double usual_decay; /* this and the rest are the library's own; decay before tuning */
    size_t place; /* of its gradient in the block of gradients */
    size_t kept[3]; /* of its moments and of its mean, SIZE_MAX: none */
    size_t section; /* of the record with which its gradient is complete */
    int start, form; /* how it starts; its form in memory */
    size_t adapter; /* of a matrix W with adapter B A: index of A, before B; 0 = none */
    cmha_tensor matrix; /* where one product serves several parameters: its matrix, in the last of them */
} cmha_parameter;

/* Holds a model's or hand-built network's parameters, gradients and moments, a block each. */
typedef struct cmha_parameters {
    cmha_context *context;
    cmha_parameter *list;
    size_t count;
    cmha_real *data; /* [size], packed ones excepted */
    cmha_real *grad; /* [learning]; of models NULL until the first training pass */
    cmha_real *moments; /* [kept], of cmha_parameters_step or a trainer; NULL before */
    size_t size, learning; /* numbers that are not packed; those that learn */
    size_t kept; /* first moments, second moments, means, the optimiser's scratch */
    size_t work; /* where that scratch begins */
    const cmha_optimiser *optimiser; /* NULL: AdamW */
    size_t step; /* steps done by cmha_parameters_step */
    double *sums; /* [threads]: scratch of norms */
    void *memory; /* [bytes] of list and sums; NULL: a model's */
    size_t bytes;
    int optimised; /* 1: unfrozen parameters get gradients and moments at once */
    int averages; /* 1: a mean of what learns is kept */
} cmha_parameters;

/* Describes a parameter of a hand-built network. */
typedef struct cmha_parameter_row {
    const char *name; /* 1 to 47 bytes */
    size_t shape[CMHA_MAX_RANK]; /* ends before the first 0 */
    double mean, spread, decay; /* starts N(mean, spread^2), by the seed; decay as in cmha_parameter */
    int is_complex; /* 1: shape[0] must be 2 */
} cmha_parameter_row;
/* Opens parameters described by rows, which it copies, with zero gradients; list[i].tensor, of rows[i], works
   on any tape. Errors: ARGUMENT (also a name twice). */
CMHA_DEF cmha_status cmha_parameters_init(cmha_parameters *p, cmha_context *context,
    const cmha_parameter_row *rows, size_t count);
CMHA_DEF void cmha_parameters_close(cmha_parameters *p);
CMHA_DEF cmha_parameter *cmha_parameters_find(const cmha_parameters *p, const char *name); /* or NULL */
CMHA__FIT void cmha_parameters_zero_grad(cmha_parameters *p);

/* Names a member of cmha_parameter: frozen, 0 or 1; lr_scale and decay, 0 to 1e6; chosen, 0, 1 or 2. */
typedef enum cmha_tuning {
    CMHA_TUNE_FROZEN, CMHA_TUNE_RATE, CMHA_TUNE_DECAY, CMHA_TUNE_OPTIMISER, CMHA_TUNE_COUNT
} cmha_tuning;
/* Sets a member of all parameters whose names match a pattern of "*.delta,*.b", * being any characters. Call
   it between passes, not between swaps: freezing or unfreezing zeroes gradients; moments stay, or are zeros
   if unfrozen. *matched (or NULL) gets their number. Errors: NOT_FOUND (none matches any of the patterns, of
   which blanks are part). */
CMHA_DEF cmha_status cmha_parameters_tune(cmha_parameters *p, const char *pattern, cmha_tuning what,
    double value, size_t *matched);

/* Points to a block's parameters; NULL: none. For one product wq, wk and wv lie one after another, and
   SwiGLU's w1 (gate) and w3 (up). */
typedef struct cmha_block {
    cmha_tensor *ln1_weight, *ln1_bias, *qkv_weight, *qkv_bias, *wo_weight, *wo_bias, *pcl_w;
    cmha_tensor *score[CMHA_MAX_SCORE_PARAMETERS]; /* delta and b, beta, or the program's; then log_temp */
    cmha_tensor *q_norm, *k_norm; /* [d_k], gains of qk_norm; rms_whole [heads d_k] */
    cmha_tensor *ln1_out_weight, *ln1_out_bias, *ln2_out_weight, *ln2_out_bias; /* sandwich, after */
    cmha_tensor *value_mix[2], *mix[2]; /* l1 and l2 of value_residual, a and b of residual_mix */
    cmha_tensor *ln2_weight, *ln2_bias, *w1_weight, *w1_bias, *w2_weight, *w2_bias;
    cmha_tensor *ln3_weight, *ln3_bias; /* mobius */
    cmha_tensor *zq_weight, *zk_weight, *zv_weight; /* complex projections of cope (v real) and mobius */
    cmha_tensor *zq_bias, *zk_bias, *zv_bias, *mobius_temp;
    cmha_tensor *mobius, *divisor_weight, *divisor_bias; /* mobius: maps [4, 2, d_q]; FULL: C and d */
    cmha_tensor *imag_wo_weight, *imag_wo_bias; /* mobius without plain heads (eq 20-27) */
    cmha_tensor *imag_w1_weight, *imag_w1_bias, *imag_w2_weight, *imag_w2_bias;
    struct {
        cmha_tensor *weight; /* mixed [2, 3 n d_h, D]; else real [6 n d_h, D] */
        cmha_tensor *u[3], *v[3]; /* low rank: instead, of q, k, v */
        cmha_tensor *temp;
    } group[3]; /* crat: real, imaginary and mixed heads */
    cmha_tensor *wo_u, *wo_v;
    cmha_tensor *alpha[2], *beta[2]; /* crat: of both sums (eq 20); alpha may be psi */
    cmha_tensor *router_weight, *router_bias; /* crat: of experts, whose w1 and w2 are [2, E, O, I] */
    cmha_irw_weights irw;
} cmha_block;

/* Holds a model of any family, a decoder or, with causal = 0, an encoder. */
typedef struct cmha_model {
    cmha_context *context;
    cmha_model_config config;
    const cmha_score *score; /* the program's, named by config.score, or NULL */
    const cmha_score *plain; /* of plain heads: that one, or the kind's */
    cmha_parameters parameters;
    struct {
        cmha_storage storage; /* FLOAT: not packed */
        cmha_packed *matrices; /* in the order of the parameters */
        size_t n_matrices;
        size_t bytes, saved; /* their memory; memory saved */
    } packed; /* of cmha_model_pack */
    cmha_block *blocks;
    cmha_tensor *token_weight, *position_weight, *type_weight, *final_weight, *final_bias;
    cmha_tensor *head_weight, *head_bias, *class_weight, *class_bias, *value_weight, *value_bias;
    cmha_tensor *feature_weight, *feature_bias, *emb_norm_weight, *emb_norm_bias, *pool_weight, *pool_bias;
    cmha_tensor *head_dense_weight, *head_dense_bias, *head_norm_weight, *head_norm_bias;
    cmha_tensor *pe_omega, *pe_delta, *gamma; /* multifreq; learned cope_gamma */
    cmha_tensor *state_weight, *state_bias, *theta_weight, *theta_bias; /* crat, eq 5 and 6 */
    double *omega; /* [n_omega, P] */
    double *layer_omega; /* layer_kinds: [2, P], of l and n layers */
    double score_factor; /* of heads that rotate: from cmha_frequencies */
    size_t n_omega, P; /* n_omega: 1, or n_heads if frequency = table; P: d_k/2, pope d_k */
    cmha_real *alibi; /* [n_heads], ropepp [2 n_heads], or NULL */
    const cmha_knowledge *knowledge; /* see cmha_model_set_knowledge */
    uint64_t knowledge_identity; /* of the base last set or loaded; 0 = none */
    uint64_t *expert_use; /* [n_layers, experts] or NULL: tokens recorded, by this rank; may be cleared */
    void *tables; /* [table_bytes]: parameters, blocks, omega, alibi, expert_use */
    size_t table_bytes;
    cmha_tape tape; /* of the model's own passes */
    uint64_t opening; /* number among the context's models; objects opened on another return STATE */
    uint64_t trainer; /* of its trainer, 0 = none; older trainers return STATE */
} cmha_model;

/* Tells a score's `attend` the layer whose attention it builds, in place of wq, wk, wv and softmax: h [batch,
   length, d_model], normed -> the same shape, before wo. Its operations must be the same in every pass,
   whatever the numbers (cmha_tape_measures); it fails by cmha_tape_fail. */
struct cmha_layer {
    cmha_tape *tape;
    const cmha_model *model;
    const cmha_score *score;
    size_t index, batch, length; /* index: of the layer, from 0 */
    size_t first; /* position of h's first token, behind those in a cache */
    cmha_tensor *const *parameters; /* of the score, in its order */
    cmha_attention_args args; /* the model's, of kind DOT, to copy and change */
    void *pass; /* the library's own */
};
/* Attends as cmha_attention, in a cache also to the tokens it holds: q, k, v are those of the new tokens, as
   many keys as queries. Errors: STATE (other calls than in the pass that measured). */
CMHA_DEF cmha_tensor *cmha_layer_attention(const cmha_layer *layer, const cmha_attention_args *args,
    cmha_tensor *q, cmha_tensor *k, cmha_tensor *v, cmha_tensor *const *parameters);

/* Holds a batch of tokens, features or both. The loss is that of labels if given, else of values, else of
   targets. Real features f add W f + b ("feature.weight") to the token embeddings. Complex ones enter complex
   attention as C f: cope and mobius add its real part to the tokens, its imaginary part to the imaginary
   channel of the first complex layer; crat adds it to the state or, with tokens = 0, takes it as the state,
   which positions then only rotate (state_rotation). Features times e^(i phi) then rotate that state, and
   under the norms cln (while its bias is 0) and crms the first layer's angular or dot probabilities stay. */
typedef struct cmha_batch {
    const int32_t *ids; /* [batch, length]; NULL if tokens = 0 */
    const int32_t *targets; /* [batch, length]; -1 = ignored. One at padding counts */
    const unsigned char *key_mask; /* [batch, length] (or NULL), 0 = padding */
    size_t batch, length;
    const int32_t *types; /* [batch, length], < token_types; NULL = all 0, or token_types = 0 */
    const cmha_real *labels; /* [batch], integers < classes (else TOKEN); if classes = 1, values */
    const cmha_real *class_weights; /* [classes] (or NULL) */
    /* [batch, length, features or, complex, 2 features], rows [Re | Im]; finite (else NOT_FINITE). Those of
       padding are not read. */
    const cmha_real *features;
    const cmha_real *values; /* [batch, length, values], to be predicted; NaN = ignored */
} cmha_batch;

/* Cuts n samples [planes, n] (2: Re, Im) into frames of `width` samples, one every `hop`: rows of planes *
   width numbers, the last padded with zeros. Returns how many cover all samples. frames NULL: only counts. */
CMHA_DEF size_t cmha_frames(const cmha_real *samples, size_t n, size_t planes, size_t width, size_t hop,
    cmha_real *frames);

/* Opens a model: random weights by the context's seed, zero biases, delta by delta_init; cfg NULL = defaults.
   Logs fields that are set but not read. Errors: SHAPE (configuration), NOT_FOUND (no such `score`). */
CMHA_DEF cmha_status cmha_model_init(cmha_model *model, cmha_context *context, const cmha_model_config *cfg);
CMHA_DEF void cmha_model_close(cmha_model *model);
/* Packs all matrices of products and lookups, not routers and Möbius maps, and frees the numbers. Passes,
   new caches and cmha_model_save use the packed ones. Older caches and trainers return STATE, as does what
   needs numbers: training, cmha_model_read, packing again. Errors: ARGUMENT (FLOAT). */
CMHA_DEF cmha_status cmha_model_pack(cmha_model *model, cmha_storage storage);
/* on = 1: products with matrices of 8 and 4 bits round what they multiply to 16 bits a number (cmha_rounded),
   experts' and Q4_K's with more than 4 rows excepted: faster, and off by 2^-16 of a row's largest number. 0:
   they do not; so a model starts. A file does not keep it. Older caches return STATE. Errors (nothing
   changes): STATE (not packed so). */
CMHA_DEF cmha_status cmha_model_round(cmha_model *model, int on);
/* Adds lora_alpha / lora_rank B A to each matrix with an adapter B A and removes adapters and freezing. Older
   caches and trainers return STATE. Errors (nothing changes): STATE (packed, no adapters). */
CMHA_DEF cmha_status cmha_model_merge(cmha_model *model);
/* Copies omega [n_heads, d_k/2] (pope: d_k), radians per position. Errors: STATE (frequency is not table). */
CMHA_DEF cmha_status cmha_model_set_frequencies(cmha_model *model, const double *omega);
/* Sets the base that CRAT's windows read, which must outlive its use; NULL, or closing it, turns them off.
   Allowed between any two calls. Errors: STATE (no window), SHAPE (not irw_width features). */
CMHA_DEF cmha_status cmha_model_set_knowledge(cmha_model *model, const cmha_knowledge *knowledge);

/* Return logits [batch, length, vocabulary], or states [batch, length, d_model] after the final norm.
   *extra_loss (or NULL): the sum [1] of the weighted additional losses (phase contrastive, load balance, CRAT
   eq 23-24), or NULL if none. Errors of every call with a batch: TOKEN, SHAPE (more positions than learned),
   NOT_FINITE (features, labels), STATE (no such head). */
CMHA_DEF cmha_tensor *cmha_model_forward(cmha_model *model, cmha_tape *tape, const cmha_batch *batch,
    cmha_tensor **extra_loss);
CMHA_DEF cmha_tensor *cmha_model_states(cmha_model *model, cmha_tape *tape, const cmha_batch *batch,
    cmha_tensor **extra_loss);
/* Applies the class head -> logits [batch, classes] or a regression's values. Errors: STATE (classes = 0). */
CMHA_DEF cmha_tensor *cmha_model_scores(cmha_model *model, cmha_tape *tape, cmha_tensor *states,
    const unsigned char *key_mask);
/* Applies the value head to states [.., d_model] -> values [.., values] or, gaussian, [means | log variances]
   [.., 2 values], a log variance being 16 tanh(y / 16) of the head's output y. Errors: STATE (values = 0). */
CMHA_DEF cmha_tensor *cmha_model_values(cmha_model *model, cmha_tape *tape, cmha_tensor *states);
/* Compute on the model's tape class scores [batch, classes]; the mean loss over targets, labels or values,
   without dropout and additional losses; logits [batch, length, vocabulary]; values as above. Errors: of
   class_weights ARGUMENT (one < 0; those that count sum to 0), NOT_FINITE. */
CMHA_DEF cmha_status cmha_model_classify(cmha_model *model, const cmha_batch *batch, cmha_real *scores);
CMHA_DEF cmha_status cmha_model_loss(cmha_model *model, const cmha_batch *batch, double *loss);
CMHA_DEF cmha_status cmha_model_logits(cmha_model *model, const cmha_batch *batch, cmha_real *logits);
CMHA_DEF cmha_status cmha_model_predict(cmha_model *model, const cmha_batch *batch, cmha_real *values);
/* Names what cmha_model_attention shows. Masked pairs have probability 0, score and phase -infinity. */
typedef enum cmha_see {
    CMHA_SEE_PROBABILITIES, /* weights of the values; lag: a[t - s] over their sum */
    CMHA_SEE_SCORES, /* before the softmax; linear: weights before normalisation; lag: temp R[t - s] */
    CMHA_SEE_PHASES, /* arg O, radians, of features (delta, b, position; phasors; elu + 1); dot: none */
    CMHA_SEE_NEXT /* `what` + this: of softmax(Im O); yang8: + 1, 2, 3 times this: of P_ri, P_ir, P_ii */
} cmha_see;
/* Shows a layer's head (numbered as wo reads them: plain, then Möbius; real, imaginary, mixed) -> out
   [batch, queries, keys]. Errors: STATE (it has none). */
CMHA_DEF cmha_status cmha_model_attention(cmha_model *model, const cmha_batch *batch, size_t layer,
    size_t head, int what, cmha_real *out);
/* Encodes documents for a knowledge base -> vectors [batch, d_model] of d_r = d_model / 2 complex features:
   the mean over tokens of cmha_model_states' phasors (eps complex_eps). Errors: SHAPE (odd d_model). */
CMHA_DEF cmha_status cmha_model_vectors(cmha_model *model, const cmha_batch *batch, cmha_real *vectors);
/* Adds weight * d(training loss)/d(parameter) to the gradients; `key` seeds dropout. *loss is without
   additional losses. Errors: those of cmha_model_loss, NOT_FINITE (the total; gradients are unspecified). */
CMHA__FIT cmha_status cmha_model_gradient(cmha_model *model, const cmha_batch *batch, double weight,
    uint64_t key, double *loss);
/* Computes that training loss: additional losses and dropout included. */
CMHA__FIT cmha_status cmha_model_training_loss(cmha_model *model, const cmha_batch *batch, uint64_t key,
    double *loss);
/* Counts the bytes of an open model, and of training in all (gradients, moments, activations) at batch x
   length; each (or NULL). Exact with AdamW and ema = 0 (else cmha_model_training_memory): measures dry runs
   of a step and an evaluation, with labels if classes > 0, else values if values > 0; first steps of
   another objective may allocate more. Errors: SHAPE, STATE (CMHA_INFERENCE_ONLY). */
CMHA_DEF cmha_status cmha_model_memory(cmha_context *context, const cmha_model_config *config, size_t batch,
    size_t length, size_t *parameters, size_t *training);
/* Counts likewise for an open model; frozen parameters need less. */
CMHA_DEF cmha_status cmha_model_training_memory(cmha_model *model, size_t batch, size_t length, size_t *need);

/* ================ Training ================ */
/* Scales Muon's updates [R, C]: RMS, by 0.2 sqrt(max(R, C)) (complex: 0.2 sqrt(2 max(R, C))), gives AdamW's
   root mean square per number, so that its rate and decay fit (Liu et al. 2025, arXiv 2502.16982); SHAPE, by
   sqrt(max(1, R / C)), is for rates near 0.02 (Jordan 2024). Every optimiser reads the trainer's lr,
   weight_decay and clip. */
typedef enum cmha_update_scale { CMHA_UPDATE_RMS, CMHA_UPDATE_SHAPE } cmha_update_scale;
/* Updates n numbers by AdamW with decoupled decay (Loshchilov & Hutter 2019), g being times grad_scale:
       p -= lr weight_decay p; m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2;
       p -= lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) */
typedef struct cmha_adamw_args {
    double lr, beta1, beta2, eps, weight_decay, grad_scale;
    size_t t; /* of the step, from 1 */
    double momentum; /* momentum, nesterov, scale: for other optimisers */
    int nesterov;
    cmha_update_scale scale;
} cmha_adamw_args;
CMHA__FIT void cmha_adamw(const cmha_adamw_args *args, size_t n, cmha_real *p, const cmha_real *g,
    cmha_real *m, cmha_real *v);
/* Updates by Lion (Chen et al. 2023, arXiv 2302.06675), x = grad_scale g: p -= lr (sign(beta1 m + (1 - beta1)
   x) + weight_decay p); m = beta2 m + (1 - beta2) x. Use a third to a tenth of AdamW's rate. */
CMHA__FIT void cmha_lion(const cmha_adamw_args *args, size_t n, cmha_real *p, const cmha_real *g,
    cmha_real *m);
/* Compute SGD's direction, which Muon then makes orthogonal: m = momentum m + x, d = x + momentum m
   (nesterov) or m, d may be g; and the step p -= lr (weight_decay p + d). */
CMHA__FIT void cmha_momentum(const cmha_adamw_args *args, size_t n, cmha_real *d, const cmha_real *g,
    cmha_real *m);
CMHA__FIT void cmha_descend(const cmha_adamw_args *args, size_t n, cmha_real *p, const cmha_real *d);
/* Describes R rows of C numbers, complex if imag > 0, the distance from real to imaginary parts. */
typedef struct cmha_matrix { cmha_real *data; size_t R, C, imag; } cmha_matrix;
/* Makes a direction U nearly orthogonal (complex: unitary) in place (Muon: Jordan 2024): X = U / (|U| +
   1e-7); five times A = X X^H, X = 3.4445 X + (-4.7750 A + 2.0315 A A) X, by the shorter side; then scales
   it. X keeps U's singular vectors; singular values above |U| / 100 become 0.7 to 1.2. scratch
   [cmha_muon_scratch]. */
CMHA__FIT void cmha_muon(cmha_update_scale scale, const cmha_matrix *U, cmha_real *scratch);
CMHA_DEF size_t cmha_muon_scratch(size_t R, size_t C, int is_complex);
/* Averages weights after a step: e = beta e + (1 - beta) w. */
CMHA__FIT void cmha_ema(double beta, size_t n, cmha_real *e, const cmha_real *w);
/* Gives an optimiser n numbers, as cmha_adamw has them; m and v start as zeros, NULL if not kept. */
typedef struct cmha_update {
    const cmha_adamw_args *args;
    size_t n;
    cmha_real *p;
    const cmha_real *g;
    cmha_real *m, *v;
} cmha_update;
/* Describes an optimiser. A contradictory description gives ARGUMENT. */
struct cmha_optimiser {
    const char *name; /* 1 to 31 letters, digits, - _ . + */
    int moments; /* kept of each number: 0, 1 (m) or 2 (m and v) */
    /* Returns whether it updates a parameter (NULL: all); AdamW updates the others. */
    int (*serves)(const cmha_optimiser *optimiser, const cmha_parameter *parameter);
    void (*update)(const cmha_optimiser *optimiser, const cmha_update *u); /* in several threads */
    void *user; /* the program's own */
    /* NULL, or it works on whole matrices (AdamW updates all else): `update`, called with p = g, makes g a
       direction; `direct` changes each of its matrices in place, with `scratch` numbers; cmha_descend
       follows. Ranks share the matrices. */
    void (*direct)(const cmha_optimiser *optimiser, const cmha_adamw_args *args, const cmha_matrix *direction,
        cmha_real *scratch);
    size_t (*scratch)(size_t R, size_t C, int is_complex);
};
/* Chooses the optimiser, adamw (or ""), muon, lion, sgd or one of the context's; zeroes moments and p->step.
   Trainers take that of their field. Errors: NOT_FOUND. */
CMHA__FIT cmha_status cmha_parameters_optimiser(cmha_parameters *p, const char *name);
/* Returns the name of optimiser i, the context's behind the library's; NULL beyond. */
CMHA_DEF const char *cmha_optimiser_name(const cmha_context *context, size_t i);

/* Lists schedules: ROW(constant, word, rate from a = `base` to b = `minimum`). x rises from 0 after the
   warm-up to 1 at `total`, y from 0 at total (1 - share) to 1 (WSD: Hu et al. 2024). */
#define CMHA_SCHEDULES(ROW) \
    ROW(COSINE, "cosine", b + (a - b) / 2 * (1 + cos(3.14159265358979323846 * x))) \
    ROW(LINEAR, "linear", a + (b - a) * x) \
    ROW(CONSTANT, "constant", a) \
    ROW(WSD, "wsd", a + (b - a) * y)
#define CMHA__SCHEDULE_NAME(name, word, rate) CMHA_SCHEDULE_##name,
#define CMHA__SCHEDULE_WORD(name, word, rate) "|" word
typedef enum cmha_schedule { CMHA_SCHEDULES(CMHA__SCHEDULE_NAME) CMHA_SCHEDULE_COUNT } cmha_schedule;
typedef struct cmha_rate {
    cmha_schedule schedule;
    double base, minimum;
    size_t warmup, total; /* steps */
    double share; /* wsd: of the steps, at the end, in which the rate falls; 0 = never */
} cmha_rate;
/* Returns the rate of step s = 0, 1, ...: base s/warmup while s < warmup, then the schedule's until `total`,
   then its last; NaN behind the warm-up: no such schedule. */
CMHA__FIT double cmha_learning_rate(const cmha_rate *rate, size_t s);

/* Lists which norm clips the gradient: ROW(constant, word, whose norm). All but WHOLE clip real and imaginary
   parts of complex parameters apart (CRAT eq 22), which changes the gradient's direction; real parameters and
   Möbius maps count as real parts. */
#define CMHA_CLIPS(ROW) \
    ROW(WHOLE, "whole", ALL)     /* of everything */ \
    ROW(NORM, "tensors", PART)   /* of each part of each parameter */ \
    ROW(GLOBAL, "global", PARTS) /* of all real parts, and of all imaginary parts */ \
    ROW(VALUE, "values", NUMBER) /* each number is clamped to [-limit, limit] */
#define CMHA__CLIP_NAME(name, word, norm) CMHA_CLIP_##name,
#define CMHA__CLIP_WORD(name, word, norm) "|" word
typedef enum cmha_clip_mode { CMHA_CLIPS(CMHA__CLIP_NAME) CMHA_CLIP_COUNT } cmha_clip_mode;
/* Clips gradients in place to limit (0: to 0), frozen ones not; unknown modes do not. Zeros, NaN and what
   shares a norm with a NaN stay. */
CMHA__FIT void cmha_componentwise_clip(cmha_clip_mode mode, cmha_real limit, const cmha_parameter *parameters,
    size_t count);
/* Takes a step of a hand-built network: clips gradients (limit 0: not), updates what is not frozen by the
   optimiser, with its lr_scale and decay, zeroes gradients and counts p->step; args->t is not read.
   *grad_norm (or NULL): the norm before clipping, times args->grad_scale. Errors: STATE (all is frozen),
   NOT_FINITE (the norm; nothing changes). */
CMHA__FIT cmha_status cmha_parameters_step(cmha_parameters *p, const cmha_adamw_args *args,
    cmha_clip_mode mode, double limit, double *grad_norm);

/* Computes the loss for the present parameters; a failure ends the check with its status. */
typedef cmha_status (*cmha_loss_fn)(void *user, double *loss);
/* Compares the gradients in p with fourth-order differences of the loss (4 losses each): every number of
   parameters up to 64, 8 directions of longer ones. *error: the largest deviation, less the losses' rounding,
   relative to its parameter's largest derivative (at least a thousandth of the largest of all); cmha_error
   names it. Right gradients give at most 1e-3 in double (smooth scores 1e-8), 1e-2 in float, unless the loss
   jumps or bends within a step (1e-4, float 1e-2): phases at pi or of small numbers, routers, ReLU, maxima.
   NaN, or only zeros, give infinity. Dropout must be 0. Puts parameters and gradients back. Errors: STATE. */
CMHA__FIT cmha_status cmha_gradient_check(cmha_parameters *p, cmha_loss_fn loss, void *user, double *error);

typedef struct cmha_tokens {
    const void *data;
    size_t count;
    int width; /* bytes per token, 1, 2 or 4; little endian in files */
    cmha_context *owner; /* of data from cmha_tokens_open; NULL = the caller's */
    size_t bytes;
    int mapped; /* 1: data is the mapped file */
} cmha_tokens;
/* Returns token i, -1 beyond the end; 32-bit tokens above 2^31 - 1 are negative. */
CMHA_DEF int32_t cmha_tokens_at(const cmha_tokens *tokens, size_t i);
/* Returns a view of tokens [begin, end), cut at the stream's end; tokens NULL is empty. */
CMHA_DEF cmha_tokens cmha_tokens_part(const cmha_tokens *tokens, size_t begin, size_t end);

/* Trains a model, one trainer at a time: moments are the model's. (seed, step) alone decide where batches are
   drawn, resumed or not. */
typedef struct cmha_trainer {
    cmha_context *context;
    cmha_model *model;
    cmha_trainer_config config;
    uint64_t opening; /* number among the context's */
    int32_t *ids; /* [2, batch * length]: ids, then targets */
    size_t step; /* steps done */
    uint64_t seed;
    double grad_norm, lr; /* of the last step; the norm before clipping */
    double best; /* lowest validation loss, for programs to keep */
    int swapped; /* 1: the model has the mean of its weights */
} cmha_trainer;
/* Opens a trainer; config NULL = defaults. Zeroes moments; later steps allocate nothing (see
   cmha_model_memory); older trainers of the model return STATE. Errors: TOKEN. */
CMHA__FIT cmha_status cmha_trainer_init(cmha_trainer *trainer, cmha_model *model,
    const cmha_trainer_config *config);
CMHA__FIT void cmha_trainer_close(cmha_trainer *trainer);
/* Takes an optimiser step on batches drawn from `tokens`. *loss (or NULL): their mean cross-entropy, of every
   next token or, in encoders, of hidden ones (cmha_mask_tokens). Errors: ARGUMENT (fewer than length + 1
   tokens), TOKEN and, of every kind of step, NOT_FINITE: the loss or gradient was not finite; parameters and
   moments are as before, but the step counts, so that the next one draws other batches. */
CMHA__FIT cmha_status cmha_trainer_step(cmha_trainer *trainer, const cmha_tokens *tokens, double *loss);
/* Takes a step on the caller's batch, whatever `accumulate` is. Likewise up to config.batch sequences of up
   to config.length tokens allocate nothing. Errors: those of cmha_model_gradient. */
CMHA__FIT cmha_status cmha_trainer_step_batch(cmha_trainer *trainer, const cmha_batch *batch, double *loss);
/* Does the second half of a step, for a program's own objective: clips gradients, updates and zeroes them.
   The first half is cmha_tape_backward or cmha_model_gradient, before the first step and after one of the
   kinds above cmha_parameters_zero_grad. *grad_norm (or NULL): the norm before clipping. Works with batch =
   length = 1. */
CMHA__FIT cmha_status cmha_trainer_apply(cmha_trainer *trainer, double *grad_norm);
/* Exchanges the weights that learn and their mean (field ema, cmha_ema), so that evaluations, saves and
   samples are the mean's; a second call brings them back, before which steps and cmha_trainer_save and _read
   say STATE. Where the trainer is closed, or another opened, between the two, the model keeps the mean.
   Errors: STATE (ema = 0). */
CMHA__FIT cmha_status cmha_trainer_swap(cmha_trainer *trainer);
/* Lets ranks train one model: of ranks * config.batch sequences rank r has config.batch from r config.batch
   on (in cmha_trainer_step_batch the last ranks may have fewer). Losses, gradients (summed by
   cmha_trainer_apply), means, dropout, validation and saved states are those of one trainer with all
   sequences, up to the order of sums; equal parameters stay equal to the bit. A failure of one rank ends the
   call on all: NOT_FINITE as such, others as STATE on the other ranks. NULL, or one rank: alone. Errors:
   STATE (cope_max = global). */
CMHA__FIT cmha_status cmha_trainer_share(cmha_trainer *trainer, const cmha_ranks *ranks);
typedef struct cmha_mask_args {
    size_t n, vocabulary; /* tokens, ids */
    const unsigned char *keep; /* [n] (or NULL), 0: never chosen */
    int32_t mask_token;
    double rate; /* probability that a token is chosen */
} cmha_mask_args;
/* Hides tokens of ids [n] as BERT does (Devlin et al. 2019): of those chosen 80 % become mask_token, 10 % a
   random one; targets [n] gets what they were, else -1. */
CMHA__FIT void cmha_mask_tokens(const cmha_mask_args *args, int32_t *ids, int32_t *targets, cmha_rng *rng);
/* Computes the mean loss over targets (in encoders hidden tokens; 0 if none) of consecutive windows, the last
   maybe shorter, of at most eval_tokens. Errors: ARGUMENT (fewer than 2 tokens), TOKEN. */
CMHA__FIT cmha_status cmha_trainer_evaluate(cmha_trainer *trainer, const cmha_tokens *tokens, double *loss);
/* Cuts off the tail config.held_out (trainer NULL: nothing); train and held_out (or NULL). */
CMHA__FIT void cmha_trainer_split(const cmha_trainer *trainer, const cmha_tokens *all, cmha_tokens *train,
    cmha_tokens *held_out);

/* ================ Inference ================ */

/* Says where an attention call keeps what it needs of the tokens so far. */
typedef struct cmha_slot {
    size_t key_heads, kv_heads, key_width, value_width; /* of tiles of keys, rows of values */
    size_t value_row; /* from one token's values to the next */
    size_t state; /* linear attention: numbers of its state, else 0 */
    size_t keys, values; /* where they begin in cmha_cache.memory */
} cmha_slot;

/* Holds keys (features, transposed in tiles) and values of the tokens so far of `batch` sequences of equal
   length. Caches in several threads may share a model that nobody trains (and its context's error line). */
typedef struct cmha_cache {
    cmha_context *context;
    cmha_model *model;
    uint64_t opening; /* of the model */
    size_t batch, capacity, length; /* sequences; room in tokens; tokens held */
    size_t first; /* tokens forgotten by sliding; the next one is token number first + length */
    int slide; /* CMHA_SLIDE_.. */
    int endless, exact; /* 1: it reads nothing again; and says what the model says of all tokens */
    size_t window, sinks; /* endless: what a token sees of keys, in tokens; 0, 0 = there are none */
    size_t ring; /* endless: tokens for which each slot has room beside the sinks */
    cmha_slot *slots; /* in the order of the calls */
    size_t n_slots;
    /* Per slot keys [batch, key_heads, tiles, key_width, 64], values [batch, kv_heads, tiles * 64,
       value_row], or the state. */
    cmha_real *memory;
    size_t size, bytes; /* of memory, in cmha_real; of the block of all arrays */
    void *spare; /* a copy of what it holds, to go back to; or NULL */
    int has_keys, has_state, given; /* given = 1: the block is the caller's */
    cmha_storage storage; /* BF16: pairs as in cmha_packed, rows of values padded to 32 */
    size_t ready; /* tokens of a pass for which there is memory */
    int32_t *ids; /* [2, batch, capacity]: tokens held, tokens being read; endless: [batch, ready] of these */
    cmha_real *features; /* [2, batch, capacity, numbers per position]: likewise */
    cmha_tape tape; /* of its passes */
} cmha_cache;

/* Says what a full cache does. */
enum {
    CMHA_SLIDE_NOT, /* it returns FULL */
    /* It goes on without an end, and exactly, where it can: positions are not learned, and all layers have a
       `window` and capacity is at least window + sinks, or they keep a state alone (linear). Else it forgets
       the oldest quarter and reads the rest again from position 0, in one long call. */
    CMHA_SLIDE,
    /* It forgets token by token, but never the first `sinks`. Where CMHA_SLIDE is exact so is this; else an
       approximation: all is as if the model had the window capacity - sinks, for which it was not trained,
       and sinks are, by rotations and ALiBi, never farther than capacity - 1. */
    CMHA_SLIDE_FORGET
};
/* Sets how a cache stores numbers and where. */
typedef struct cmha_cache_options {
    cmha_storage storage; /* FLOAT or BF16, of keys and values; states stay cmha_real */
    /* Positions that a pass has memory for; 0 = 1. Its stack is constant: CMHA_SMALL_STACK. */
    size_t prompt;
    void *memory; /* all of the cache's, aligned as malloc's; NULL = from the context */
    size_t bytes; /* of memory, at least cmha_cache_memory's */
    size_t sinks; /* CMHA_SLIDE_FORGET in a model without a window: see there (arXiv 2309.17453) */
} cmha_cache_options;
/* Opens a cache of `capacity` tokens, which falls to max_positions if learned; slide: CMHA_SLIDE_..;
   options (or NULL). Set a knowledge base before. Passes of more than `prompt` positions, as when it reads
   again, allocate once. A longer prompt is read in pieces, the same up to rounding: of `prompt` positions,
   but of 512 at least where it may allocate.
   A cache without an end (`endless`) allocates nothing after its opening; it holds window + sinks tokens, to
   which capacity falls, and no call takes longer than another of as many tokens. Its positions grow without
   limit, by angles in double. A state sums up all tokens in cmha_real: of floats, a token among 10^7 adds
   little more than rounding. Errors: STATE (an encoder, a `whole` score; to FORGET with learned positions),
   MEMORY (`bytes` too small). */
CMHA_DEF cmha_status cmha_cache_init(cmha_cache *cache, cmha_model *model, size_t batch, size_t capacity,
    int slide, const cmha_cache_options *options);
/* Counts exactly the bytes of such a cache; options' memory and bytes are not read. Errors: the same. */
CMHA_DEF cmha_status cmha_cache_memory(cmha_model *model, size_t batch, size_t capacity, int slide,
    const cmha_cache_options *options, size_t *bytes);
CMHA_DEF void cmha_cache_close(cmha_cache *cache);
CMHA_DEF void cmha_cache_reset(cmha_cache *cache); /* forgets all tokens */
/* Appends n tokens to each sequence, ids [batch, n]: a prompt, or the next token. logits [batch, vocabulary]
   (or NULL) are those of the last token. A cache that reads again reads only the last tokens it can hold. On
   an error nothing changes. Errors: FULL, TOKEN, OVERFLOW (of positions), the caller's search's. */
CMHA_DEF cmha_status cmha_cache_append(cmha_cache *cache, const int32_t *ids, size_t n, cmha_real *logits);
/* Does so with features, [batch, n, ..] as in cmha_batch; ids NULL if tokens = 0. out (or NULL) gets the last
   position's values (cmha_model_values) or, without values or features, logits. */
CMHA_DEF cmha_status cmha_cache_append_features(cmha_cache *cache, const int32_t *ids,
    const cmha_real *features, size_t n, cmha_real *out);

#define CMHA_SAMPLER_FIELDS(SIZE, REAL, FLAG, ENUM, NAME) \
    REAL(temperature, 0.8, 0, 100, "divides the logits; 0 = greedy") \
    SIZE(top_k, 0, 0, 2147483647, "sample among the k likeliest; 0 = all") \
    REAL(top_p, 0.95, 0, 1, "sample among the likeliest whose shares reach p (at least one); 1 = all") \
    REAL(repetition_penalty, 1, 0.01, 100, \
         "divides positive and multiplies negative logits of recent tokens; 1 = off") \
    SIZE(penalty_window, 64, 0, 1024, "recent tokens the penalty looks at")
typedef struct cmha_sampler_config { CMHA__MEMBERS(CMHA_SAMPLER_FIELDS) } cmha_sampler_config;
CMHA_DEF cmha_table cmha_sampler_table(void);
/* Draws a token from logits [V], not changed; -1: all are NaN or -inf. Penalises the last penalty_window of
   recent [n_recent], each once. scratch [2 * V]. */
CMHA_DEF int32_t cmha_sample(const cmha_sampler_config *config, const cmha_real *logits, size_t V,
    const int32_t *recent, size_t n_recent, cmha_rng *rng, cmha_real *scratch);

/* Gets the new token of every sequence, tokens [batch]; nonzero stops. */
typedef int (*cmha_token_fn)(void *user, const int32_t *tokens, size_t batch);
/* Appends prompt [batch, n_prompt > 0], then draws up to n_new tokens a sequence, each from its own stream of
   `seed`; sampler (or NULL). The last token is not appended: begin the next prompt with it. Errors: those of
   cmha_cache_append, NOT_FINITE (cmha_sample: -1), STOPPED (by on_token). */
CMHA_DEF cmha_status cmha_generate(cmha_cache *cache, const int32_t *prompt, size_t n_prompt, size_t n_new,
    const cmha_sampler_config *sampler, uint64_t seed, cmha_token_fn on_token, void *user);

/* ================ Files ================ */
/* Weights and training state are safetensors files: 8 bytes of header length, a JSON header, raw
   little-endian tensors. Errors of every call: those of Models, IO; of reading also NOT_FOUND, FORMAT. */

typedef struct cmha_archive_tensor {
    const char *name; /* UTF-8 */
    const char *dtype; /* "F32", "F64", "F16", "BF16", "I64", ... */
    size_t shape[8];
    int rank; /* 0 for a scalar */
    uint64_t begin, end; /* in bytes, after the header */
    size_t count; /* numbers: the product of shape, for "C64" twice that */
} cmha_archive_tensor;

typedef struct cmha_archive {
    cmha_context *context;
    char *path;
    cmha_archive_tensor *tensors; /* ordered by name */
    size_t n_tensors;
    const char **metadata; /* [2 * n_metadata]: key, value, ... */
    size_t n_metadata;
    uint64_t data_begin, size; /* in bytes from the start of the file; of the file */
    void *file, *memory; /* file: the system's, NULL = the callbacks have it */
    size_t memory_size;
} cmha_archive;
/* Opens a safetensors file and checks its header. */
CMHA_DEF cmha_status cmha_archive_open(cmha_archive *archive, cmha_context *context, const char *path);
CMHA_DEF void cmha_archive_close(cmha_archive *archive);
/* Return a tensor, or the value of a key; NULL = none. */
CMHA_DEF const cmha_archive_tensor *cmha_archive_find(const cmha_archive *archive, const char *name);
CMHA_DEF const char *cmha_archive_metadata(const cmha_archive *archive, const char *key);
/* Reads a tensor into out [count], from F64, F32, F16, BF16 or I64; _i64 from I64 alone. C64 of shape [.., n]
   gives planes [.., 2 n]. Errors: FORMAT (dtype), IO (out is then half written). */
CMHA_DEF cmha_status cmha_archive_read(cmha_archive *archive, const cmha_archive_tensor *t, cmha_real *out);
CMHA_DEF cmha_status cmha_archive_read_i64(cmha_archive *archive, const cmha_archive_tensor *t, int64_t *out);

typedef struct cmha_archive_item {
    const char *name;
    const cmha_real *data;
    const size_t *shape;
    int rank;
    /* NULL = cmha_real's, F32 or F64; "I64", "U8": data points at int64_t, bytes; "C64" of shape [.., n]:
       data are planes [.., 2 n]. */
    const char *dtype;
} cmha_archive_item;
/* Writes tensors and metadata [2 * n_metadata] (key, value, ...). Errors: ARGUMENT (a name twice, not UTF-8).
   Every save writes a new file in the folder of `path`, flushes it to the disk and renames it to `path`:
     - A crash leaves the old file or the new one, whole. Of several writers the last one's file stays.
     - A link at `path` stays; the file it names is replaced, or made. Only regular files are replaced; the
       new one gets the old one's permissions. (Not on Windows: links, permissions.)
     - A failure, RLIMIT_FSIZE included, leaves nothing behind. A killed process may leave cmha-XXXXXXXX.tmp,
       on most Linux file systems only in the moment before the renaming. */
CMHA__FIT cmha_status cmha_archive_write(cmha_context *context, const char *path,
    const cmha_archive_item *items, size_t n_items, const char *const *metadata, size_t n_metadata);

/* Saves parameters by name and how they are tuned, metadata "tune.<what>.<name>" (frozen, rate, decay or
   optimiser); state = 1: also moments ("optim.m.<name>", "optim.v.<name>") and step. */
CMHA__FIT cmha_status cmha_parameters_save(cmha_parameters *p, const char *path, int state);
/* Reads such a file, which must have every parameter in its shape. state = 1: also moments, step and tuning,
   so that the run continues bit for bit. On an error nothing changes. */
CMHA__FIT cmha_status cmha_parameters_read(cmha_parameters *p, const char *path, int state);
/* Saves a model's parameters likewise, metadata "cfg.<field>" and "knowledge", the base's identity. */
CMHA__FIT cmha_status cmha_model_save(cmha_model *model, const char *path);
/* Saves likewise only what learns, such as adapters, and the identity of the rest, "part"; to read it into
   that, use cmha_model_read, strict = 2. Errors: STATE (packed, or all is frozen). */
CMHA__FIT cmha_status cmha_model_save_part(cmha_model *model, const char *path);
/* Saves what a cache holds, so that a conversation or a stream goes on later, in another process too. The
   file is as long as the cache's memory, BF16 as such. Errors: STATE. */
CMHA_DEF cmha_status cmha_cache_save(const cmha_cache *cache, const char *path);
/* Reads it into a cache opened alike, of the same model: what follows is bit for bit what would have followed
   (if only one has memory given: up to rounding). Meanwhile the file is in memory as well. On an error
   nothing changes. Errors: FORMAT (of another cache or model, altered), TOKEN. */
CMHA_DEF cmha_status cmha_cache_read(cmha_cache *cache, const char *path);
/* Reads a checkpoint's configurations (each or NULL); a trainer's that it lacks is the default. */
CMHA_DEF cmha_status cmha_config_read(cmha_context *context, const char *path, cmha_model_config *model,
    cmha_trainer_config *trainer);
/* Opens a model from a file of cmha_model_save (packed if that was) or cmha_trainer_save; checks everything
   before it reads a weight. Errors: SHAPE, FORMAT (no configuration, for example: use cmha_model_read). */
CMHA_DEF cmha_status cmha_model_open(cmha_model *model, cmha_context *context, const char *path);
/* Reads weights, whoever wrote them, into an open model: tensors of the parameters' names, of F64, F32, F16
   or BF16. *taken (or NULL): parameters read. Meanwhile the weights are in memory twice; on an error the
   model is bit for bit as it was. Errors: SHAPE. strict = 1: the file must have every parameter in its shape,
   and nothing else but a checkpoint's moments (the error line names what is wrong); its set frequencies are
   read; 0: reads what fits by name, dtype and shape, and logs a warning for every other parameter and tensor;
   2: as 1, but parameters that the file lacks stay, as for adapters above a base or a base below a part
   (FORMAT if it is not the part's base). */
CMHA_DEF cmha_status cmha_model_read(cmha_model *model, const char *path, int strict, size_t *taken);
/* Saves model, moments (as above), mean ("optim.mean.<name>"), step, seed, best loss (infinity if NaN). */
CMHA__FIT cmha_status cmha_trainer_save(cmha_trainer *trainer, const char *path);
/* Reads that state, tuning included, into an open trainer of a model of the same configuration. With the
   saved trainer's configuration ("trainer.<field>", not read here; its batch is that of all ranks) and the
   same tokens the run continues bit for bit. Memory and errors as of cmha_model_read; FORMAT: other base. */
CMHA__FIT cmha_status cmha_trainer_read(cmha_trainer *trainer, const char *path);

/* Saves vectors and features [n, 2 d_r], and ids [n], text_begin [n + 1] (I64), texts (U8) if any; metadata
   "identity", a decimal. */
CMHA__FIT cmha_status cmha_knowledge_save(const cmha_knowledge *knowledge, const char *path);
/* Opens a base from such a file, which needs only `vectors` (F32, F64, F16 or BF16). Checks sizes, the texts'
   order, that vectors are finite and features their phasors; sets `search` to NULL. Errors: NOT_FINITE. map =
   1: maps vectors and features where system and file allow it (POSIX, little endian, cmha_real's dtype).
   Until close nobody may then write into the file: a shorter one ends the process (SIGBUS) when the base is
   used, other numbers change the base. Saving to the same path is safe: it replaces the file, not what is
   open. */
CMHA_DEF cmha_status cmha_knowledge_open(cmha_knowledge *knowledge, cmha_context *context, const char *path,
    int map);

/* Opens a file as a stream of `width` bytes a token. Text (width 1) is read; wider tokens are mapped where
   the system can (POSIX, little endian), so that they may exceed the memory; then nobody may write into the
   file until close (cmha_knowledge_open). Errors: FORMAT (empty, or a token cut off). */
CMHA_DEF cmha_status cmha_tokens_open(cmha_tokens *tokens, cmha_context *context, const char *path,
    int width);
CMHA_DEF void cmha_tokens_close(cmha_tokens *tokens);

/* These names of 0.10.0 stay until 2.0: GCC and clang warn where one is used. CMHA_NO_OLD_NAMES: none. */
#ifndef CMHA_NO_OLD_NAMES
#if defined(__GNUC__) || defined(__clang__)
#define CMHA__WARNED(directive) _Pragma(#directive)
#define CMHA__SAID(text) CMHA__WARNED(GCC warning #text)
#define CMHA__OLD(old, new_name) CMHA__SAID(old is now new_name) new_name
#else
#define CMHA__OLD(old, new_name) new_name
#endif
#define cmha_cope_args CMHA__OLD(cmha_cope_args, cmha_cope_set_args)
#define cmha_heads_major CMHA__OLD(cmha_heads_major, cmha_heads_by_head)
#define cmha_linear_args CMHA__OLD(cmha_linear_args, cmha_linear_attention_args)
#define cmha_multifreq_init CMHA__OLD(cmha_multifreq_init, cmha_multifreq_waves)
#define cmha_softmax CMHA__OLD(cmha_softmax, cmha_softmax_kind)
#define cmha_tokens_major CMHA__OLD(cmha_tokens_major, cmha_heads_by_token)
#define cmha_trainer_fit CMHA__OLD(cmha_trainer_fit, cmha_trainer_step_batch)
#endif

#endif /* CMHA_H */

/* --------------------------------
   Stop here if you only want the API. The implementation follows, in the same rooms.
   -------------------------------- */

/* For whoever changes this code

   The corridor. cmha__embed_input makes rows of tokens and frames; a block projects them
   (cmha__weight_product), maps each row to features (an entry of cmha__scores), lets a core mix rows (softmax
   in tiles of 64, linear, lag) and projects back.

   Who may call whom. A room uses only rooms above it. cmha__name is internal, cmha_name public. Operations
   on a tape check shapes, take memory from the tape, call kernels and push a record. Everything from Models
   on uses operations: every value has a gradient.

   The tape. A record keeps its inputs, its result and what its backward needs; cmha_tape_backward walks
   records from the newest. A gradient gets memory with its first contribution and returns it once its record
   is walked. An operation gets a gradient as zeros to add to (cmha_tape_grad), as new memory to write,
   which saves a pass (cmha__grad_fresh), or takes over the result's (cmha__pass_grad).

   The dry run. With tape->memory.measuring = 1 addresses are counted, not allocated; every operation asks
   cmha__dry before it touches data. So a pass measures what no table lists: a step's bytes
   (cmha_model_memory), a cache's slots (an attention call that finds none makes one). An operation must
   take the same memory in the same order in dry and real runs, whatever the data.

   Scratch lies between cmha__mark_of and cmha__rewind. Take what outlives the operation (its result, what the
   backward reads, gradients) before the mark. Nothing allocates after two steps (test_memory).

   Determinism. The same seed and thread count give the same bits. CMHA__FOR_CHUNKS cuts work at places that
   depend only on sizes and threads; each thread has its sums, added in their order; no atomics, dynamic
   schedules or reduction clauses. Where the number of threads must not matter either (experts, search, the
   heads of one sequence), pieces have a fixed size. Random numbers come from (key, index): a backward draws
   its forward's again. Floating point is IEEE, reassociated only in written-out lanes.

   Ranks (cmha_trainer_share). What a training pass counts or averages over its batch goes through
   cmha__over_ranks; random numbers go by the index in the whole batch (cmha__first_number); gradients are
   summed once a step. All ranks send equally many messages, of equal sizes (cmha__sum_over_ranks).

   Failures. cmha__fail writes the context's line and returns the status; cmha__reject does so on a tape and
   returns NULL; the first failure stays. Lines begin with the operation and end with the numbers. Sizes go
   through cmha__mul and cmha__sum before anything is allocated. An object keeps the mark or `opening` of
   those it was opened on, and returns CMHA_ERR_STATE if theirs differ.

   Recipes. Each idea is an entry of a table; look at its neighbours.
   - an operation: a pass over rows (cmha__call), by a kernel pair or for one (cmha__kernel), and a public
     function with its cmha__op; what does not go by rows pushes a record, as cmha__sublayer. Backward kernels
     are CMHA__FIT. Then entries in tests/ops.h and tests/test_arguments.c
   - an activation: an entry of CMHA_ACTIVATIONS and, beside cmha__relu, its formula with its slope, in
     functions that vectorise (cmha__exp, cmha__sigmoid); its word joins the row of ffn.w1_imag in
     tests/README.md
   - a norm: an entry of CMHA_NORMS or CMHA_COMPLEX_NORMS and, if real, the pass it names, which gets gain and
     offset as x[1] and x[2], epsilon as `number`, and statistics in `kept`: see cmha__norm_rows, also for
     squares that overflow. The entry declares gain and offset, cmha__norm_by applies it
   - a score: a cmha_score with map and map_back for features, or forward and backward for a function of O =
     <q, k> over 64 pairs, and its parameters. Caches, decoding, memory and files follow. Ours is an entry of
     CMHA_ATTENTION_KINDS and cmha__scores (delta and b by cmha__phase_parameters, which cmha__turns knows),
     one of cmha__kinds, and its definition in tests/oracle.h; a program's is one of its context
   - an optimiser: a cmha_optimiser with `update` for numbers, as cmha__by_lion, and `direct` for whole
     matrices, as cmha__muon_direct; ours is an entry of cmha__optimisers, a program's one of its context
   - the same for the programs of examples/: a file with cmha_own_rows() (examples/README.md, "Own rows")
   - a parameter: a CMHA__ROW in cmha__declare_layer, _crat, _embeddings or _heads: name, member, start, form,
     axes, of which none is there where one is 0. Counting, starting, decay, clipping, saving and packing
     follow; tests/README.md's table of tensors is held against them
   - a family: an entry of cmha__family, and of cmha_family with its word
   - a field: a last line of CMHA_MODEL_FIELDS, CMHA_TRAINER_FIELDS or CMHA_SAMPLER_FIELDS: setting, checking,
     printing, files and help follow. Words before the colon of a help say who reads it (cmha__is_read); a new
     word joins them where it reads a field, else its users are warned
   - a kind, preset, schedule or way to clip: a line of cmha__kinds, cmha__presets, CMHA_SCHEDULES, CMHA_CLIPS
   - a file's data: a walk (cmha__contents); the reader compares names and shapes before it reads

   `make quick T=grad_words` tests every entry's gradient, cache and file; not that its formula is the one you
   meant, nor a field that is a number: write a test of that (tests/test_parts.c, test_optimisers.c). A new
   form of score needs an entry in tests/scores.h, a new constant `make symbols`.

   Before a change that must not alter results keep the header, then `make bits AGAINST=OLD.h`. */

#if (((defined(CMHA_IMPLEMENTATION) && !defined(CMHA_LINKED)) || defined(CMHA_STATIC)) && \
     !defined(CMHA_IMPLEMENTATION_ONCE)) || defined(CMHA__AGAIN)
#ifndef CMHA__AGAIN
#define CMHA_IMPLEMENTATION_ONCE

/* Sums have an order here, and NaN and infinity a meaning: after -Ofast or -ffast-math the code takes IEEE
   arithmetic back. GCC's macros show every such flag, clang's few, so clang is always asked. */
#ifdef __clang__
#ifdef __apple_build_version__
#define CMHA__CLANG (__clang_major__ + 1) /* Apple's 16 is LLVM's 17 */
#else
#define CMHA__CLANG __clang_major__
#endif
#if defined(__x86_64__) || defined(__i386__) || defined(__s390x__) || \
    (defined(__aarch64__) && CMHA__CLANG >= 16)
#define CMHA__FLOAT_CONTROL
#endif
#elif defined(__GNUC__)
#define CMHA__GCC
#if !__GCC_IEC_559
#define CMHA__GCC_FAST
#endif
#endif
#endif

#if !defined(__cplusplus) && !defined(_MSC_VER) && __STDC_VERSION__ < 199901L
#error "cmha.h: its code is C99; compile the file that defines CMHA_IMPLEMENTATION with -std=c99 or later"
#elif defined(__clang__) && __FINITE_MATH_ONLY__ && CMHA__CLANG >= 17
#error "cmha.h: NaN and infinity are needed; add -fno-finite-math-only after -Ofast or -ffast-math"
#elif defined(__clang__) && (defined(__FAST_MATH__) || __FINITE_MATH_ONLY__) && !defined(CMHA__FLOAT_CONTROL)
#error "cmha.h: on this target clang cannot leave -ffast-math for a part of a file; add -fno-fast-math"
#else
#ifndef CMHA__AGAIN

/* GCC compiles rooms that compute nothing plainly: -O3 takes a tenth more time. */
#if defined(CMHA__GCC) && defined(__OPTIMIZE__) && !defined(__OPTIMIZE_SIZE__) && !defined(CMHA__GCC_FAST)
#define CMHA__PLAIN
#endif

/* A program compiled for any CPU has its hot loops for newer ones too, and chooses as it runs. */
#if defined(__x86_64__) && !(defined(__AVX2__) && defined(__FMA__)) && !defined(CMHA_NO_DISPATCH) && \
    !defined(CMHA_NO_SIMD) && !defined(CMHA__GCC_FAST) && !defined(_WIN32) && defined(__OPTIMIZE__) && \
    !defined(__OPTIMIZE_SIZE__) && (__GNUC__ >= 8 || defined(__clang__)) && defined(__has_include)
#if __has_include("cmha.h") /* the header includes itself, which one of another name cannot */
#define CMHA__DISPATCH
#endif
#endif

/* Only CMHA__FUSED fuses multiplications and additions: elsewhere code has the same bits on every CPU. GCC
   makes vectors of loops with conditions only where arithmetic need not trap. A dispatched program's own set
   serves old CPUs: compiled plainly, but its loops as by -O3; threaded jumps would keep conditions in them.
   Intel's CPUs wait where newer sets lack vzeroupper, of expensive-optimizations. */
#ifdef CMHA__GCC
#pragma GCC push_options
#ifdef CMHA__GCC_FAST
#pragma GCC diagnostic push
#pragma GCC optimize("no-fast-math")
#ifdef CMHA_NO_SIMD
#pragma GCC optimize("no-tree-vectorize") /* libm's vectors round otherwise */
#endif
#endif
#pragma GCC optimize("no-trapping-math", "fp-contract=off")
#ifdef CMHA__DISPATCH
#pragma GCC optimize("O1", "strict-aliasing", "inline-small-functions", "no-thread-jumps")
#pragma GCC optimize("tree-vectorize", "vect-cost-model=dynamic", "expensive-optimizations")
#endif
#elif defined(CMHA__FLOAT_CONTROL) && CMHA__CLANG >= 18 && !defined(__FAST_MATH__)
#pragma float_control(push) /* and not precise, which would ask for errno too */
#pragma clang fp reassociate(off) reciprocal(off) contract(off)
#elif defined(CMHA__FLOAT_CONTROL)
#pragma float_control(precise, on, push)
#pragma clang fp contract(off)
#endif

/* ================ Base ================ */

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#ifndef CMHA_NO_FILES
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>
#ifdef _WIN32
#include <io.h>
#include <process.h>
#else
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif
#endif
#endif
#if defined(__ARM_FEATURE_DOTPROD) && defined(__AARCH64EL__)
#include <arm_neon.h>
#define CMHA__SDOT /* an instruction that multiplies bytes and adds them up */
#endif
#ifdef _OPENMP
#include <omp.h>
#define CMHA__OPENMP_NAME ", OpenMP"
#else
#define CMHA__OPENMP_NAME ""
#endif

/* OpenBLAS's cblas.h brings <complex.h> along in C, whose `complex` would break the user's names. */
#ifdef CMHA_NO_CBLAS
#define CMHA__BLAS_NAME "built-in"
#else
#pragma push_macro("complex")
#ifdef CMHA_CBLAS_HEADER
#include CMHA_CBLAS_HEADER
#elif defined(__APPLE__)
#include <Accelerate/Accelerate.h>
#define CMHA__BLAS_NAME "Accelerate"
#else
#ifdef __clang__
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wc99-extensions" /* OpenBLAS's own header, as C++ */
#endif
#include <cblas.h>
#ifdef __clang__
#pragma clang diagnostic pop
#endif
#endif
#pragma pop_macro("complex")
#undef I
#ifndef CMHA__BLAS_NAME
#define CMHA__BLAS_NAME "CBLAS"
#endif
#endif

/* With -ffinite-math-only GCC compares without NaN on x86 but in functions of this attribute. */
#if defined(CMHA__GCC_FAST) && (defined(__x86_64__) || defined(__i386__))
#pragma GCC diagnostic ignored "-Wattributes"
#define CMHA__IEEE __attribute__((target("ieee-fp")))
#define static CMHA__IEEE static
#else
#define CMHA__IEEE
#endif

/* Public functions are whole pieces of work: GCC would compile copies into every thread's loop. */
#if defined(CMHA__GCC) && !defined(CMHA_STATIC) && !defined(CMHA__DEF_GIVEN)
#undef CMHA_DEF
#define CMHA_DEF CMHA__EXTERN CMHA__IEEE __attribute__((noinline, noclone))
#endif

/* -std=c99 hides these; feature macros come too late where a program includes system headers first. */
#if !defined(__cplusplus) && defined(__STRICT_ANSI__) && !defined(_WIN32) && !defined(CMHA_NO_FILES)
extern int fchmod(int fd, mode_t mode);
extern int fsync(int fd);
extern ssize_t readlink(const char *path, char *to, size_t bytes);
extern int setenv(const char *name, const char *value, int replace);
#ifdef __linux__
extern int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags);
#endif
#endif
#if !defined(__cplusplus) && defined(__linux__) && !defined(__USE_MISC) && !defined(CMHA_NO_FILES)
extern long syscall(long number, ...); /* which every feature macro hides */
#endif

#define CMHA__BACK(function) (CMHA__TRAINS ? function : NULL) /* which is left out where nothing trains */
#define cmha__push(tape, name, out, in, n_in, backward, user) \
    cmha_tape_push(tape, name, out, in, n_in, CMHA__BACK(backward), user)

#if defined(__GNUC__) || defined(__clang__)
#define CMHA__COLD __attribute__((noinline, cold)) /* for what only numbers at the ends of their range need */
#define CMHA__FETCH(address) __builtin_prefetch(address)
#define CMHA__ALWAYS __attribute__((always_inline)) /* or GCC drops calls that only fetch */
#ifdef _WIN32
#define CMHA__PRINTF(text, first) __attribute__((__format__(__gnu_printf__, text, first)))
#else
#define CMHA__PRINTF(text, first) __attribute__((__format__(__printf__, text, first)))
#endif
#else
#define CMHA__COLD
#define CMHA__FETCH(address) (void)(address)
#define CMHA__ALWAYS
#define CMHA__PRINTF(text, first)
#endif

/* The vector mathematics rounds by adding 1.5 * 2^23: where operations are not rounded to float (an x87;
   GCC's -std=c99 on s390x) libm takes its place. 16: a CPU has half precision in registers, and floats. */
#if defined(CMHA_NO_SIMD) || (defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD != 0 && FLT_EVAL_METHOD != 16)
#define CMHA__SCALAR
#define CMHA__SIMD_NAME ", no SIMD"
#else
#define CMHA__SIMD_NAME ""
#endif

#ifdef CMHA_DOUBLE
#define CMHA__REAL_NAME "double"
#define CMHA__LIBM(name) name
#define CMHA__CBLAS(name) cblas_d##name
#define CMHA__SMALLEST DBL_MIN
#define CMHA__LARGEST DBL_MAX
#define CMHA__EPSILON DBL_EPSILON
#define CMHA__PHASOR_RANGE 1e150 /* numbers whose squares are normal lie between its inverse and itself */
#define CMHA__PHASOR_SCALE 1e200
#define CMHA__LAG_GRID 4294967296.0
#else
#define CMHA__REAL_NAME "float"
#define CMHA__LIBM(name) name##f
#define CMHA__CBLAS(name) cblas_s##name
#define CMHA__SMALLEST FLT_MIN
#define CMHA__LARGEST FLT_MAX
#define CMHA__EPSILON FLT_EPSILON
#define CMHA__PHASOR_RANGE 1e18f
#define CMHA__PHASOR_SCALE 1e20f
#define CMHA__LAG_GRID 1048576.0
#endif

#define CMHA__LOWEST (-(cmha_real)INFINITY) /* the score of what is masked or not there */

#define CMHA__COUNT(array) (sizeof(array) / sizeof *(array))
#define CMHA__TEXT_(x) #x
#define CMHA__TEXT(x) CMHA__TEXT_(x)
#define CMHA__VERSION \
    CMHA__TEXT(CMHA_VERSION_MAJOR) "." CMHA__TEXT(CMHA_VERSION_MINOR) "." CMHA__TEXT(CMHA_VERSION_PATCH)

/* ---- text, and numbers in it, whatever the locale's decimal point ---- */

/* Measures a well-formed UTF-8 character (of which a NUL ends the text); 0 = it is malformed. */
static size_t cmha__utf8_length(const unsigned char *s) {
    size_t n = (size_t)1 + (s[0] >= 0xc2) + (s[0] >= 0xe0) + (s[0] >= 0xf0);
    if ((s[0] >= 0x80 && s[0] < 0xc2) || s[0] > 0xf4) return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f)) return 0; /* surrogates; too long */
    if ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f)) return 0; /* beyond Unicode */
    return n;
}

static int cmha__is_utf8(const char *text) {
    size_t n;
    if (text)
        for (; *text; text += n)
            if (!(n = cmha__utf8_length((const unsigned char *)text))) return 0;
    return text != NULL;
}

static size_t cmha__write_u64(uint64_t value, char *text) {
    size_t n = 1;
    for (uint64_t left = value; left /= 10;) n++;
    text[n] = 0;
    for (size_t i = n; i-- > 0; value /= 10) text[i] = (char)('0' + (int)(value % 10));
    return n;
}

static int cmha__parse_u64(const char *text, uint64_t *value) {
    uint64_t x = 0;
    do {
        unsigned digit = (unsigned)(*text - '0');
        if (digit > 9 || x > (UINT64_MAX - digit) / 10) return 0;
        x = x * 10 + digit;
    } while (*++text);
    *value = x;
    return 1;
}

/* Writes the digits of m 2^e, for e < 0 of m 5^-e (m 2^e times 10^-e), the lowest first; returns how many. */
static int cmha__decimal(uint64_t m, int e, char *digits) {
    int n = 0, i, carry, base = e < 0 ? 5 : 2;
    do digits[n++] = (char)(m % 10);
    while (m /= 10);
    for (int left = e < 0 ? -e : e, step; left; left -= step, n = i) {
        int factor = 1;
        step = left < 9 ? left : 9; /* so many at once: 10 times 5^9 is an int */
        for (i = 0; i < step; i++) factor *= base;
        for (carry = 0, i = 0; i < n || carry; carry /= 10, i++) {
            carry += (i < n ? digits[i] : 0) * factor;
            digits[i] = (char)(carry % 10);
        }
    }
    return n;
}

/* Writes a number as printf's %.*g does in the C locale; returns the length. text holds 32 bytes. */
static size_t cmha__write_g(double value, int precision, char *text) {
    char digits[800], *to = text; /* the lowest first; the longest number has 767 */
    uint64_t bits;
    int n, i, rest = 0;
    memcpy(&bits, &value, sizeof bits);
    int exponent = (int)(bits >> 52 & 2047);
    uint64_t mantissa = bits & UINT64_MAX >> 12;
    if (bits >> 63) *to++ = '-';
    if (exponent == 2047) {
        memcpy(to, mantissa ? "nan" : "inf", 4);
        return (size_t)(to - text) + 3;
    }
    if (exponent) mantissa |= UINT64_C(1) << 52;
    else exponent = 1; /* a number below the normal ones, or 0 */
    exponent = mantissa ? exponent - 1075 : 0;
    n = cmha__decimal(mantissa, exponent, digits);
    int point = exponent < 0 ? n + exponent : n, low = n > precision ? n - precision : 0;
    for (i = 0; i + 1 < low; i++) rest |= digits[i];
    if (low && 2 * digits[low - 1] + (rest != 0) + digits[low] % 2 > 10) {
        digits[n] = 0;
        for (i = low; digits[i] == 9; i++) digits[i] = 0;
        digits[i]++;
        if (i == n) {
            n++;
            point++;
        }
    }
    while (low < n && !digits[low]) low++;
    int scientific = point < -3 || point > precision, before = scientific ? 1 : point;
    for (i = before < 1 ? before - 1 : 0; i < n - low || i < before; i++) {
        if (i == before) *to++ = '.';
        *to++ = (char)('0' + (i >= 0 && i < n - low ? digits[n - 1 - i] : 0));
    }
    *to = 0;
    if (!scientific) return (size_t)(to - text);
    i = point < 1 ? 1 - point : point - 1;
    *to++ = 'e';
    *to++ = point < 1 ? '-' : '+';
    if (i < 10) *to++ = '0';
    return (size_t)(to - text) + cmha__write_u64((uint64_t)i, to);
}

/* Writes what fits, and a NUL; returns the whole length. Knows %s %d %zu %g %c %%, precisions of s and g. */
static size_t cmha__vprint(char *to, size_t room, const char *format, va_list arguments) {
    char number[32];
    size_t used = 0;
    for (; *format; format++) {
        const char *piece = format;
        size_t n = 1;
        int precision = -1, whole;
        if (*format == '%') {
            if (*++format == '.') {
                precision = *++format == '*' ? va_arg(arguments, int) : 0;
                format += *format == '*';
                while (*format >= '0' && *format <= '9') precision = precision * 10 + (*format++ - '0');
            }
            piece = *format == '%' ? format : number;
            switch (*format) {
            case 's':
                piece = va_arg(arguments, const char *);
                n = 0;
                while (n < (size_t)precision && piece[n]) n++; /* with a precision it needs no NUL */
                break;
            case 'd':
                whole = va_arg(arguments, int);
                number[0] = '-';
                n = (size_t)(whole < 0);
                n += cmha__write_u64((uint64_t)(whole < 0 ? -(int64_t)whole : whole), number + n);
                break;
            case 'z':
                n = cmha__write_u64(va_arg(arguments, size_t), number);
                format++;
                break;
            case 'g':
                n = cmha__write_g(va_arg(arguments, double), precision < 0 ? 6 : precision, number);
                break;
            case 'c': number[0] = (char)va_arg(arguments, int); break;
            }
        }
        for (; n; n--, piece++, used++)
            if (used + 1 < room) to[used] = *piece;
    }
    if (room) to[used < room ? used : room - 1] = 0;
    return used;
}

CMHA__PRINTF(3, 4) static size_t cmha__print(char *to, size_t room, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    size_t length = cmha__vprint(to, room, format, arguments);
    va_end(arguments);
    return length;
}

/* To an array, which has that room. */
#define cmha__line(array, ...) cmha__print(array, sizeof(array), __VA_ARGS__)

/* Reads plain decimal numbers and inf. strtod gets digits and an exponent: it knows the locale's point. */
static int cmha__parse_real(const char *text, double *value) {
    char local[100];
    size_t used = 0;
    int point = 0, digits = 0, exponent = 0;
    uint64_t power;
    if (strcmp(text, "inf") == 0 || strcmp(text, "-inf") == 0) {
        *value = *text == '-' ? -HUGE_VAL : HUGE_VAL;
        return 1;
    }
    if (*text == '-' || *text == '+') local[used++] = *text++;
    for (size_t left = strspn(text, "0123456789."); left; left--, text++) {
        if (used == 90 || (*text == '.' && point)) return 0;
        if (*text == '.') {
            point = 1;
            continue;
        }
        local[used++] = *text;
        exponent -= point;
        digits = 1;
    }
    if (!digits) return 0;
    if (*text == 'e' || *text == 'E') {
        if (!cmha__parse_u64(text + 1 + (text[1] == '-' || text[1] == '+'), &power)) return 0;
        exponent += (text[1] == '-' ? -1 : 1) * (int)(power < 9999 ? power : 9999);
    } else if (*text) return 0;
    cmha__print(local + used, sizeof local - used, "e%d", exponent);
    *value = strtod(local, NULL);
    return 1;
}

/* Writes the shorter of 15 and 17 digits that reads back to the same value; text holds 32 bytes. */
static void cmha__write_real(double value, char *text) {
    double back = value;
    for (int digits = 15; digits <= 17; digits += 2) {
        cmha__write_g(value, digits, text);
        cmha__parse_real(text, &back);
        if (back == value) return;
    }
}

/* ---- version, status, errors ---- */

CMHA_DEF const char *cmha_version(void) {
    return CMHA__VERSION " (" CMHA__REAL_NAME ", " CMHA__BLAS_NAME CMHA__OPENMP_NAME CMHA__SIMD_NAME ")";
}

#define CMHA__STRUCTS(ROW) \
    ROW(adamw_args) ROW(allocator) ROW(archive) ROW(archive_item) ROW(archive_tensor) ROW(arena) \
    ROW(attention_args) ROW(attention_views) ROW(batch) ROW(block) ROW(buffer) ROW(cache) \
    ROW(cache_options) ROW(complex_linear_args) ROW(complex_norm_args) ROW(complex_residual_args) \
    ROW(context) ROW(context_config) ROW(cope_options) ROW(cross_entropy_args) ROW(euler_args) \
    ROW(experts_args) ROW(experts_grads) ROW(experts_options) ROW(experts_tensors) ROW(experts_weights) \
    ROW(field) ROW(files) ROW(grads) ROW(heads) ROW(irw_weights) ROW(knowledge) ROW(lag_args) ROW(layer) \
    ROW(linear_attention_args) ROW(lse) ROW(mask_args) ROW(matrix) ROW(model) ROW(model_config) \
    ROW(norm_args) ROW(optimiser) ROW(packed) ROW(parameter) ROW(parameter_row) ROW(parameters) \
    ROW(pcl_args) ROW(pcl_options) ROW(ranks) ROW(rate) ROW(record) ROW(retrieve_args) ROW(rng) \
    ROW(rope_options) ROW(rotate_args) ROW(rounded) ROW(route_args) ROW(rows) ROW(sampler_config) \
    ROW(score) ROW(score_call) ROW(score_parameter) ROW(sharing) ROW(slot) ROW(table) ROW(tape) ROW(team) \
    ROW(tensor) ROW(tokens) ROW(trainer) ROW(trainer_config) ROW(update)
CMHA_DEF size_t cmha_sizeof(const char *name) {
#define CMHA__SIZE(name) {"cmha_" #name, sizeof(cmha_##name)},
    static const struct { const char *name; size_t size; } structs[] = {CMHA__STRUCTS(CMHA__SIZE)};
    for (size_t i = 0; name && i < CMHA__COUNT(structs); i++)
        if (!strcmp(structs[i].name, name)) return structs[i].size;
    return 0;
}

#ifndef CMHA_STATIC
CMHA_DEF void CMHA_CONFIGURATION(void) {}
#endif

CMHA_DEF const char *cmha_status_string(cmha_status status) {
#define CMHA__STATUS_TEXT(name, text) text,
    static const char *const texts[] = {CMHA_STATUSES(CMHA__STATUS_TEXT)};
    return (unsigned)status < CMHA_STATUS_COUNT ? texts[status] : "an unknown status";
}

/* Replaces control characters, Unicode's line ends and cut characters, which a file's names may hold. */
static void cmha__one_line(char *line) {
    unsigned char *at = (unsigned char *)line;
    size_t n;
    for (; *at; at += n) {
        int control = *at < 32 || *at == 127 || (at[0] == 0xc2 && at[1] < 0xa0);
        int line_end = at[0] == 0xe2 && at[1] == 0x80 && (at[2] | 1) == 0xa9; /* U+2028, U+2029 */
        n = cmha__utf8_length(at);
        if (control || line_end || !n) memset(at, '?', n ? n : 1);
        n += !n;
    }
}

/* Writes the context's line (CMHA_STATUS_COUNT: a warning to the log), which may be an argument itself. */
CMHA__PRINTF(3, 4)
static cmha_status cmha__fail(cmha_context *ctx, cmha_status status, const char *format, ...) {
    char line[sizeof ctx->detail];
    va_list arguments;
    if (!ctx) return status;
    va_start(arguments, format);
    cmha__vprint(line, sizeof line, format, arguments);
    va_end(arguments);
    cmha__one_line(line);
    if (status != CMHA_STATUS_COUNT) memcpy(ctx->detail, line, strlen(line) + 1);
    else if (ctx->config.log) ctx->config.log(ctx->config.log_user, CMHA_LOG_WARNING, line);
    return status;
}

/* The analyser does not look into functions with variable arguments. */
#ifdef __clang_analyzer__
#define cmha__fail(ctx, status, ...) ((void)cmha__fail(ctx, status, __VA_ARGS__), (status))
#endif
#define CMHA__WRONG(ctx, ...) cmha__fail(ctx, CMHA_ERR_ARGUMENT, __VA_ARGS__)
#define CMHA__REFUSED(ctx, ...) cmha__fail(ctx, CMHA_ERR_STATE, __VA_ARGS__)
#define CMHA__HUGE(ctx, ...) cmha__fail(ctx, CMHA_ERR_OVERFLOW, __VA_ARGS__)
#define cmha__warn(ctx, ...) ((void)cmha__fail(ctx, CMHA_STATUS_COUNT, __VA_ARGS__))

CMHA_DEF const char *cmha_error(const cmha_context *context) { return context ? context->detail : ""; }

static cmha_status cmha__ends(cmha_context *ctx, const char *what, cmha_status status) {
    return status ? cmha__fail(ctx, status, "%s: %s", what, cmha_status_string(status)) : CMHA_OK;
}

static const char *cmha__shape_text(const size_t *shape, int rank, char text[80]) {
    size_t used = 0;
    for (text[0] = 0; rank > 0 && used < 80; rank--)
        used += cmha__print(text + used, 80 - used, used ? ", %zu" : "%zu", *shape++);
    return text;
}

/* ---- open or closed ---- */

#define CMHA__OPEN UINT32_C(0x636d6861)

static int cmha__is_open(const cmha_context *context) { return context && context->open == CMHA__OPEN; }

static int cmha__model_is_open(const cmha_model *model) { return model && cmha__is_open(model->context); }

/* Returns STATE for an object whose model was closed or changed since. An open context gets a line. */
static cmha_status cmha__outdated(cmha_context *context, const char *what) {
    if (!cmha__is_open(context)) return CMHA_ERR_STATE;
    return CMHA__REFUSED(context, "%s: it or its model was closed, or is another since", what);
}

/* ---- sizes and memory ---- */

static int cmha__mul(size_t a, size_t b, size_t *out) {
    if (b && a > SIZE_MAX / b) return 0;
    *out = a * b;
    return 1;
}

/* A product; SIZE_MAX, of which nobody has so many, where it overflows. */
static size_t cmha__times(size_t a, size_t b) {
    size_t product;
    return cmha__mul(a, b, &product) ? product : SIZE_MAX;
}

static size_t cmha__min(size_t a, size_t b) { return a < b ? a : b; }

static int cmha__sum(size_t a, size_t b, size_t *out) {
    if (a > SIZE_MAX - b) return 0;
    *out = a + b;
    return 1;
}

/* Set n numbers, or other things, to zeros; one object; n to those of another array. */
#define cmha__zeros(to, n) (void)((n) != 0 ? memset(to, 0, (n) * sizeof *(to)) : NULL)
#define cmha__zero(object) cmha__zeros(&(object), 1)
#define cmha__copy(to, from, n) (void)((n) != 0 ? memcpy(to, from, (n) * sizeof *(to)) : NULL)
/* An array from a place on, if it is there. */
#define cmha__at(array, i) ((array) ? (array) + (i) : NULL)

/* Returns a length; SIZE_MAX where `about`, its bound from above, says that it may have wrapped. */
static size_t cmha__countable(size_t length, double about) {
    return about < (double)SIZE_MAX ? length : SIZE_MAX;
}

/* For what the caller gives back: the allocator's memory as it is. Much memory asks for large pages. */
static void *cmha__take_plain(cmha_context *ctx, size_t bytes) {
    const cmha_allocator *from = &ctx->config.allocator;
    if (!bytes) return NULL;
    if (from->allocate) return from->allocate(from->user, bytes);
    char *memory = (char *)malloc(bytes);
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    size_t skip = (65536 - (uintptr_t)memory % 65536) % 65536; /* to a page */
    if (memory && bytes >= (size_t)4 << 20) (void)madvise(memory + skip, bytes - skip, MADV_HUGEPAGE);
#endif
    return memory;
}

static void cmha__give_plain(cmha_context *ctx, void *memory, size_t bytes) {
    const cmha_allocator *to = &ctx->config.allocator;
    if (!memory) return;
    if (to->release) to->release(to->user, memory, bytes);
    else free(memory);
}

/* Bytes from a pointer to the next line of cache, 0 to 63. A vector that straddles two costs twice. */
static size_t cmha__to_line(const void *at) { return (64 - (uintptr_t)at % 64) % 64; }

/* Takes memory from a line of cache on; the byte before it says how far the allocator's is. */
static void *cmha__take(cmha_context *ctx, const char *what, size_t bytes) {
    size_t gap = 64;
    unsigned char *at =
        (unsigned char *)(bytes && bytes <= SIZE_MAX - gap ? cmha__take_plain(ctx, bytes + gap) : NULL);
    if (!at) {
        cmha__fail(ctx, CMHA_ERR_MEMORY, "%s: no memory for %zu bytes", what, bytes);
        return NULL;
    }
    gap = 1 + cmha__to_line(at + 1);
    at[gap - 1] = (unsigned char)gap;
    return at + gap;
}

static void cmha__give(cmha_context *ctx, void *memory, size_t bytes) {
    unsigned char *at = (unsigned char *)memory;
    if (at) cmha__give_plain(ctx, at - at[-1], bytes + 64);
}

/* Maps a file (its descriptor + 1) to be read; NULL where the system does not. */
static void *cmha__map_file(const void *file, uint64_t size) {
    void *mapping = NULL;
#if !defined(_WIN32) && !defined(CMHA_NO_FILES)
    if (file && size <= SIZE_MAX)
        mapping = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, (int)(intptr_t)file - 1, 0);
    if (mapping == MAP_FAILED) mapping = NULL;
#endif
    return (void)file, (void)size, mapping;
}

static void cmha__unmap_file(void *mapping, size_t size) {
#if !defined(_WIN32) && !defined(CMHA_NO_FILES)
    if (mapping) (void)munmap(mapping, size);
#endif
    (void)mapping;
    (void)size;
}

/* ---- threads ---- */

/* Return how many chunks n items are cut into, and where chunk c begins. */
static int cmha__chunks(int threads, size_t n) {
    if (threads < 1) threads = 1;
    return n < (size_t)threads ? (int)n : threads;
}

static size_t cmha__cut(size_t n, int chunks, int c) {
    size_t parts = chunks > 0 ? (size_t)chunks : 1, at = (size_t)c;
    return n / parts * at + n % parts * at / parts; /* n * c could overflow */
}

/* CMHA__FOR_CHUNKS(threads, n, lo, hi) { body } runs the body for chunks [lo, hi) of [0, n), one a thread. */
#define CMHA__PRAGMA(x) _Pragma(#x)
#ifdef _OPENMP
/* The most threads of a region that this thread begins; 0: one a chunk. */
static int cmha__most;
#pragma omp threadprivate(cmha__most)
enum { CMHA__TEAM_PAUSE = 8, CMHA__TEAM_LONG = 512 }; /* passes until another number is tried */
static int cmha__members(int threads, size_t n) {
    int chunks = cmha__chunks(threads, n);
    return cmha__most && cmha__most < chunks ? cmha__most : chunks;
}
#define CMHA__PARALLEL(threads, n) \
    CMHA__PRAGMA(omp parallel for num_threads(cmha__members(threads, n)) if (cmha__members(threads, n) > 1))
#else
#define CMHA__PARALLEL(threads, n)
#endif
#define CMHA__FOR_CHUNKS(threads, n, lo, hi) \
    CMHA__PARALLEL(threads, n) \
    for (int cmha__chunk = 0; cmha__chunk < cmha__chunks(threads, n); cmha__chunk++) \
        for (size_t lo = cmha__cut(n, cmha__chunks(threads, n), cmha__chunk), \
            hi = cmha__cut(n, cmha__chunks(threads, n), cmha__chunk + 1), cmha__once = lo < hi; \
             cmha__once; cmha__once = 0)
#define CMHA__FOR_EACH(threads, n, i) /* the same, number by number */ \
    CMHA__FOR_CHUNKS(threads, n, cmha__lo, cmha__hi) \
    for (size_t i = cmha__lo; i < cmha__hi; i++)

/* Walks from 0 on by steps n, until the next is 0; through `total` things by up to `most`. */
#define CMHA__BY_STEPS(at, n, next) for (size_t at = 0, n; (n = next) > 0; at += n)
#define CMHA__IN_PIECES(at, n, total, most) CMHA__BY_STEPS(at, n, cmha__min((total) - at, most))

/* Runs a statement for i = 0 .. n - 1, l = i modulo `lanes`: sums in lanes [l] vectorise, with one order. */
#define CMHA__IN_LANES(lanes, n, STATEMENT) \
    { \
        for (size_t cmha__at = 0; cmha__at < (n) - (n) % lanes; cmha__at += lanes) \
            for (size_t l = 0; l < lanes; l++) { \
                size_t i = cmha__at + l; \
                STATEMENT; \
            } \
        for (size_t i = (n) - (n) % lanes, l = 0; i < (n); i++, l++) STATEMENT; \
    }

/* ---- instruction sets ---- */

/* CMHA__HOT(storage, name, (parameters), (arguments)) { body } defines a function compiled for AVX2
   too, with all it calls, and chosen; CMHA__HOT_OF one of a type. CMHA__HOTTER is compiled for AVX-512, too:
   attention's rows gain by it. */
#define CMHA__JOIN_(name, set) name##_##set
#define CMHA__JOIN(name, set) CMHA__JOIN_(name, set)
#define CMHA__AVX2 target("avx2,fma")
#define CMHA__AVX512 target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")

enum { CMHA__SET_BASE, CMHA__SET_AVX2, CMHA__SET_AVX512, CMHA__SETS };
/* Returns the best set of this CPU, whatever the program was compiled for. */
static int cmha__best_set(void) {
#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return CMHA__SET_BASE;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
        return CMHA__SET_AVX2;
    return CMHA__SET_AVX512;
#else
    return CMHA__SET_BASE;
#endif
}
#ifdef CMHA__DISPATCH
static int cmha__chosen = -1; /* until a thread asks; all find the same */

static int cmha__set(void) {
    int set = __atomic_load_n(&cmha__chosen, __ATOMIC_RELAXED);
    if (set < 0) __atomic_store_n(&cmha__chosen, set = cmha__best_set(), __ATOMIC_RELAXED);
    return set;
}

#define CMHA__CHOOSE(name, arguments) \
    { \
        int cmha__now = cmha__set(); \
        if (cmha__now == CMHA__SET_AVX512) name##_avx512 arguments; \
        else if (cmha__now == CMHA__SET_AVX2) name##_avx2 arguments; \
        else name##_base arguments; \
    }
#define CMHA__HOT_AS(storage, type, returns, name, parameters, arguments) \
    static type name##_base parameters; \
    __attribute__((CMHA__AVX2, flatten)) static type name##_avx2 parameters { \
        returns name##_base arguments; \
    } \
    storage __attribute__((noinline)) type name parameters { \
        if (cmha__set() != CMHA__SET_BASE) returns name##_avx2 arguments; \
        else returns name##_base arguments; \
    } \
    static type name##_base parameters
#define CMHA__HOTTER(name, parameters, arguments) \
    static void name##_base parameters; \
    __attribute__((CMHA__AVX2, flatten)) static void name##_avx2 parameters { name##_base arguments; } \
    __attribute__((CMHA__AVX512, flatten)) static void name##_avx512 parameters { name##_base arguments; } \
    static __attribute__((noinline)) void name parameters { CMHA__CHOOSE(name, arguments) } \
    static void name##_base parameters
#else
static int cmha__set(void) {
#ifdef __AVX512F__
    return CMHA__SET_AVX512;
#elif defined(__AVX2__) && defined(__FMA__)
    return CMHA__SET_AVX2;
#else
    return CMHA__SET_BASE;
#endif
}
#define CMHA__CHOOSE(name, arguments) name##_base arguments;
#define CMHA__HOT_AS(storage, type, returns, name, parameters, arguments) storage type name parameters
#define CMHA__HOTTER(name, parameters, arguments) static void name parameters
#endif

CMHA_DEF const char *cmha_instructions(const char *name) {
    static const char *const names[CMHA__SETS] = {
#ifdef __x86_64__
        "sse2",
#else
        "base",
#endif
        "avx2", "avx512"};
    int set = 0;
    if (!name) return names[cmha__set()];
    while (set < CMHA__SETS && strcmp(name, names[set])) set++;
#ifdef CMHA__DISPATCH
    if (set > cmha__best_set()) return NULL;
    __atomic_store_n(&cmha__chosen, set, __ATOMIC_RELAXED);
    return names[set];
#else
    return set == cmha__set() ? names[set] : NULL;
#endif
}

#define CMHA__HOT(storage, name, parameters, arguments) \
    CMHA__HOT_AS(storage, void, , name, parameters, arguments)
#define CMHA__HOT_OF(storage, type, name, parameters, arguments) \
    CMHA__HOT_AS(storage, type, return, name, parameters, arguments)
#define CMHA__HOT_OP(name) CMHA__HOT(static, name, (const cmha__call *c), (c))

/* ---- random numbers ---- */

static uint64_t cmha__mix(uint64_t x) {
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

#define CMHA__GOLDEN UINT64_C(0x9e3779b97f4a7c15)

CMHA_DEF cmha_rng cmha_rng_make(uint64_t seed, uint64_t stream) {
    cmha_rng rng;
    rng.key = cmha__mix(cmha__mix(seed + CMHA__GOLDEN) + (stream + 1) * UINT64_C(0xd1342543de82ef95));
    rng.counter = 0;
    return rng;
}

CMHA_DEF uint64_t cmha_rng_next(cmha_rng *rng) { return cmha__mix(rng->key + ++rng->counter * CMHA__GOLDEN); }

CMHA_DEF double cmha_rng_uniform(cmha_rng *rng) {
    return (double)(cmha_rng_next(rng) >> 11) * (1.0 / 9007199254740992.0);
}

CMHA_DEF double cmha_rng_normal(cmha_rng *rng) {
    double u = 1.0 - cmha_rng_uniform(rng); /* in (0, 1]: its logarithm is finite */
    double v = cmha_rng_uniform(rng);
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586476925 * v);
}

CMHA_DEF uint64_t cmha_rng_below(cmha_rng *rng, uint64_t n) {
    uint64_t x;
    if (!n) return 0;
    uint64_t surplus = (UINT64_C(0) - n) % n; /* 2^64 mod n: so many values would favour small results */
    do x = cmha_rng_next(rng);
    while (x < surplus);
    return x % n;
}

/* ---- order, without the C library's qsort, which may call malloc ---- */

/* Makes a heap of the largest on top, from the last parent on, then sets top after top behind the rest. */
static void cmha__sort(const void **items, size_t n, int (*compare)(const void *a, const void *b)) {
    for (size_t parents = n / 2; n > 1;) {
        size_t root = 0, child;
        const void *moved;
        if (parents) moved = items[root = --parents];
        else {
            moved = items[--n];
            items[n] = items[0];
        }
        while ((child = 2 * root + 1) < n) {
            if (child + 1 < n && compare(items[child], items[child + 1]) < 0) child++;
            if (compare(moved, items[child]) >= 0) break;
            items[root] = items[child];
            root = child;
        }
        items[root] = moved;
    }
}

/* ---- configuration tables ---- */

#define CMHA__FIELD(name, type, initial, min, max, choices, help) \
    {#name, CMHA_FIELD_##type, offsetof(cmha__owner, name), (double)(initial), (double)(min), (double)(max), \
     choices, help},
#define CMHA__SIZE_ROW(name, initial, min, max, help) CMHA__FIELD(name, SIZE, initial, min, max, NULL, help)
#define CMHA__REAL_ROW(name, initial, min, max, help) CMHA__FIELD(name, REAL, initial, min, max, NULL, help)
#define CMHA__FLAG_ROW(name, initial, help) CMHA__FIELD(name, FLAG, initial, 0, 1, NULL, help)
#define CMHA__ENUM_ROW(name, first, last, choices, help) \
    CMHA__FIELD(name, ENUM, first, first, last, choices, help)
#define CMHA__NAME_ROW(name, help) CMHA__FIELD(name, NAME, 0, 0, 1, "NAME", help)
#define CMHA__EACH_FIELD(field, table) \
    for (const cmha_field *field = (table).fields; field < (table).fields + (table).count; field++)
#define CMHA__TABLE(config, walk) \
    typedef config cmha__owner; \
    static const cmha_field rows[] = {walk(CMHA__SIZE_ROW, CMHA__REAL_ROW, CMHA__FLAG_ROW, CMHA__ENUM_ROW, \
        CMHA__NAME_ROW)}; \
    cmha_table table = {rows, CMHA__COUNT(rows)}; \
    return table

CMHA_DEF cmha_table cmha_model_table(void) { CMHA__TABLE(cmha_model_config, CMHA_MODEL_FIELDS); }
CMHA_DEF cmha_table cmha_trainer_table(void) { CMHA__TABLE(cmha_trainer_config, CMHA_TRAINER_FIELDS); }
CMHA_DEF cmha_table cmha_sampler_table(void) { CMHA__TABLE(cmha_sampler_config, CMHA_SAMPLER_FIELDS); }

static const char *cmha__table_name(cmha_table table) {
    if (table.fields == cmha_model_table().fields) return "model";
    if (table.fields == cmha_trainer_table().fields) return "trainer";
    if (table.fields == cmha_sampler_table().fields) return "sampler";
    return "config";
}

/* Returns the length of choice i of "a|b|c" and where it begins; 0 if there are not so many. */
static size_t cmha__choice(const char *choices, int i, const char **begin) {
    for (; i > 0; i--) {
        choices = strchr(choices, '|');
        if (!choices) return 0;
        choices++;
    }
    *begin = choices;
    return strcspn(choices, "|");
}

enum { CMHA__NAME_ROOM = 32 }; /* of a field that is a name */

static int cmha__is_name(const char *text, size_t most, const char *more) {
    size_t n = 0;
    while (text && n <= most && text[n] && (strchr(more, text[n]) ||
           strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.+", text[n]))) n++;
    return n > 0 && n <= most && !text[n];
}

/* Writes the number that a field holds, of a name "". */
static void cmha__field_store(const cmha_field *field, void *config, double value) {
    char *member = (char *)config + field->offset;
    if (field->type == CMHA_FIELD_NAME) memset(member, 0, CMHA__NAME_ROOM);
    else if (field->type == CMHA_FIELD_SIZE) *(size_t *)(void *)member = (size_t)value;
    else if (field->type == CMHA_FIELD_REAL) *(double *)(void *)member = value;
    else *(int *)(void *)member = (int)value;
}

/* Returns the number that a field holds; of a name 1, 0 if it is "", -1 if it is none. */
static double cmha__field_value(const cmha_field *field, const void *config) {
    const char *member = (const char *)config + field->offset;
    if (field->type == CMHA_FIELD_SIZE) return (double)*(const size_t *)(const void *)member;
    if (field->type == CMHA_FIELD_REAL) return *(const double *)(const void *)member;
    if (field->type != CMHA_FIELD_NAME) return *(const int *)(const void *)member;
    if (!*member) return 0;
    return cmha__is_name(member, CMHA__NAME_ROOM - 1, "*,") ? 1 : -1;
}

static int cmha__field_fits(const cmha_field *field, double value) {
    return value >= field->minimum && value <= field->maximum; /* false for NaN */
}

static cmha_status cmha__field_fail(cmha_context *ctx, cmha_table table, const cmha_field *field,
        const char *value) {
    static const char *const is[] = {"a whole number from ", "a number from ", "", "one of ",
            "a name of at most "};
    char range[64];
    const char *of[] = {range, range, "0 or 1", field->choices, "31 characters"};
    cmha__line(range, "%.10g to %.10g", field->minimum, field->maximum);
    return CMHA__WRONG(ctx, "%s: %s = %.40s is not %s%s", cmha__table_name(table), field->name, value,
        is[field->type], of[field->type]);
}

static int cmha__parse_field(const cmha_field *field, const char *text, double *value) {
    int flag = field->type == CMHA_FIELD_FLAG;
    const char *choices = flag ? "0|1|false|true|off|on" : field->choices, *begin;
    uint64_t whole;
    size_t length;
    if (field->type == CMHA_FIELD_REAL) return cmha__parse_real(text, value);
    if (field->type == CMHA_FIELD_SIZE) {
        if (!cmha__parse_u64(text, &whole)) return 0;
        *value = (double)whole;
        return 1;
    }
    if (field->type == CMHA_FIELD_NAME) {
        *value = *text != 0;
        return !*text || cmha__is_name(text, CMHA__NAME_ROOM - 1, "*,");
    }
    for (int i = 0; (length = cmha__choice(choices, i, &begin)) > 0; i++)
        if (strlen(text) == length && memcmp(text, begin, length) == 0) {
            *value = flag ? i % 2 : field->minimum + i;
            return 1;
        }
    return 0;
}

CMHA_DEF void cmha_config_defaults(cmha_table table, void *config) {
    if (config)
        CMHA__EACH_FIELD(field, table) cmha__field_store(field, config, field->initial);
}

static const cmha_field *cmha__field_of(cmha_table table, const char *name) {
    if (name)
        CMHA__EACH_FIELD(field, table)
            if (!strcmp(field->name, name)) return field;
    return NULL;
}

CMHA_DEF cmha_status cmha_config_set(cmha_context *context, cmha_table table, void *config, const char *name,
        const char *value) {
    const cmha_field *field = cmha__field_of(table, name);
    double number;
    if (!config || !name || !value) return CMHA__WRONG(context, "config set: config, name or value is NULL");
    if (!field)
        return cmha__fail(context, CMHA_ERR_NOT_FOUND, "%s: no option named %.60s",
                cmha__table_name(table), name);
    if (!cmha__parse_field(field, value, &number) || !cmha__field_fits(field, number))
        return cmha__field_fail(context, table, field, value);
    cmha__field_store(field, config, number);
    if (field->type == CMHA_FIELD_NAME) memcpy((char *)config + field->offset, value, strlen(value));
    return CMHA_OK;
}

CMHA_DEF cmha_status cmha_config_set_all(cmha_context *context, cmha_table table, void *config,
        const char *text) {
    char name[64], value[64];
    if (!text || !config) return CMHA__WRONG(context, "config: %s is NULL", text ? "config" : "text");
    while (*(text += strspn(text, " "))) {
        size_t n = strcspn(text, "= "), room = sizeof name - 1;
        const char *after = text + n + (text[n] == '=');
        size_t m = strcspn(after, " ");
        cmha__line(name, "%.*s", (int)cmha__min(n, room), text);
        if (text[n] != '=' && cmha__field_of(table, name))
            return CMHA__WRONG(context, "%s: %s lacks = and a value", cmha__table_name(table), name);
        cmha__line(value, "%.*s", (int)cmha__min(m, room), after);
        if (n > room || m > room)
            return CMHA__WRONG(context, "%s: %.40s is longer than any option or value",
                cmha__table_name(table), n > room ? name : value);
        cmha_status status = cmha_config_set(context, table, config, name, value);
        if (status) return status;
        text = after + m;
    }
    return CMHA_OK;
}

CMHA_DEF void cmha_config_get(cmha_table table, const void *config, const char *name, char *text,
        size_t size) {
    const cmha_field *field = cmha__field_of(table, name);
    char line[32];
    if (!text || !size) return;
    text[0] = 0;
    if (!field || !config) return;
    const char *member = (const char *)config + field->offset, *word = line;
    double value = cmha__field_value(field, config);
    int length = CMHA__NAME_ROOM - 1;
    if (field->type == CMHA_FIELD_SIZE) cmha__write_u64(*(const size_t *)(const void *)member, line);
    else cmha__write_real(value, line);
    if (field->type == CMHA_FIELD_NAME) word = member;
    if (field->type == CMHA_FIELD_ENUM && cmha__field_fits(field, value))
        length = (int)cmha__choice(field->choices, (int)(value - field->minimum), &word);
    cmha__print(text, size, "%.*s", length, word);
}

CMHA_DEF cmha_status cmha_config_check(cmha_context *context, cmha_table table, const void *config) {
    char text[32];
    if (!config) return CMHA__WRONG(context, "config: config is NULL");
    CMHA__EACH_FIELD(field, table) {
        if (cmha__field_fits(field, cmha__field_value(field, config))) continue;
        cmha_config_get(table, config, field->name, text, sizeof text);
        return cmha__field_fail(context, table, field, text);
    }
    return CMHA_OK;
}

/* ---- which BLAS, and how fast ---- */

/* Weak references: a program with another CBLAS still links; there they are NULL. */
#if !defined(CMHA_NO_CBLAS) && !defined(__APPLE__) && defined(__ELF__) && defined(__GNUC__)
#define CMHA__OPENBLAS
CMHA__EXTERN char *openblas_get_corename(void) __attribute__((weak));
CMHA__EXTERN char *openblas_get_config(void) __attribute__((weak));
CMHA__EXTERN int openblas_get_num_threads(void) __attribute__((weak));
CMHA__EXTERN void openblas_set_num_threads(int n) __attribute__((weak));
#define CMHA__BLAS_HAS(function) (function != NULL)
#elif !defined(CMHA_NO_CBLAS) && defined(OPENBLAS_VERSION)
#define CMHA__OPENBLAS
#define CMHA__BLAS_HAS(function) 1
#endif

static const char *cmha__blas_core(void) {
#ifdef CMHA__OPENBLAS
    if (CMHA__BLAS_HAS(openblas_get_corename)) return openblas_get_corename();
#endif
    return NULL;
}

CMHA_DEF const char *cmha_blas_name(char *buffer, size_t size) {
    const char *core = cmha__blas_core();
    if (!buffer || !size) return "";
    cmha__print(buffer, size, "%s%s", core ? "OpenBLAS " : CMHA__BLAS_NAME, core ? core : "");
    return buffer;
}

static const int cmha__set_ranks[CMHA__SETS] = {0, 2, 3};

/* Ranks OpenBLAS's kernels: 0 SSE, 1 AVX, 2 AVX2, 3 AVX-512; -1: unknown, or another BLAS. */
static int cmha__core_rank(void) {
    static const char *const families[4] = {
        ("|Katmai|Coppermine|Northwood|Prescott|Banias|Atom|Core2|Penryn|Dunnington|Nehalem|Athlon|Opteron|"
         "Opteron_SSE3|Barcelona|Nano|Bobcat|"),
        "|Sandybridge|Bulldozer|Piledriver|Steamroller|",
        "|Haswell|Zen|Excavator|",
        "|SkylakeX|Cooperlake|SapphireRapids|"};
    const char *core = cmha__blas_core();
    if (!core || !*core) return -1;
    for (int rank = 3; rank >= 0; rank--)
        for (const char *at = families[rank]; (at = strstr(at + 1, core)) != NULL;)
            if (at[-1] == '|' && at[strlen(core)] == '|') return rank;
    return -1;
}

/* Tells whether OpenBLAS's kernel is for an older instruction set than the built-in product, which then
   computes C of so many rows faster, even of few if it is SSE's. */
static int cmha__blas_is_behind(size_t rows) {
    int rank = -1;
#ifndef CMHA__SCALAR
    if (cmha__set() > CMHA__SET_BASE) rank = cmha__core_rank();
#endif
    return rank == 0 || (rank > 0 && rows >= 16 && rank < cmha__set_ranks[cmha__set()]);
}

CMHA_DEF const char *cmha_blas_remedy(void) {
    int rank = cmha__core_rank(), best = cmha__best_set();
    if (rank < 0 || rank >= cmha__set_ranks[best]) return NULL;
#ifdef CMHA__OPENBLAS
    if (CMHA__BLAS_HAS(openblas_get_config) && !strstr(openblas_get_config(), "DYNAMIC_ARCH"))
        return NULL; /* has one kernel only and does not read the variable */
#endif
    return best == CMHA__SET_AVX512 ? "OPENBLAS_CORETYPE=SkylakeX" : "OPENBLAS_CORETYPE=Haswell";
}

#if defined(__linux__) && !defined(CMHA_NO_FILES)
/* Frees this thread of its place (OMP_PROC_BIND), which an executed program would inherit. 0: it fails. */
static int cmha__unbind(void) {
    int done = 1;
#if defined(_OPENMP) && _OPENMP >= 201511
    enum { WORD = 8 * sizeof(unsigned long), CPUS = 8192 };
    unsigned long allowed[CPUS / WORD] = {0};
    int ids[CPUS], places = omp_get_num_places();
    for (int i = 0; i < places; i++) {
        int n = omp_get_place_num_procs(i);
        if (n > CPUS) return 0;
        omp_get_place_proc_ids(i, ids);
        for (int k = 0; k < n; k++)
            if (ids[k] >= 0 && ids[k] < CPUS) allowed[ids[k] / WORD] |= 1ul << ids[k] % WORD;
    }
    if (places > 0) done = syscall(SYS_sched_setaffinity, 0, sizeof allowed, allowed) == 0;
#endif
    return done;
}

CMHA_DEF void cmha_blas_restart(char **argv) {
    const char *settings[2] = {cmha_blas_remedy(), NULL};
    int changed = 0;
#ifdef _OPENMP
    if (!getenv("OMP_WAIT_POLICY")) settings[1] = "GOMP_SPINCOUNT=4000";
#endif
    if (!argv || !argv[0]) return;
    for (int i = 0; i < 2; i++) {
        char name[32];
        int n = settings[i] ? (int)strcspn(settings[i], "=") : 0;
        cmha__line(name, "%.*s", n, n ? settings[i] : "");
        if (n && !getenv(name)) /* else the user set it, or we did before this exec */
            changed |= setenv(name, settings[i] + n + 1, 1) == 0;
    }
    if (changed && cmha__unbind()) execv("/proc/self/exe", argv);
}
#else
CMHA_DEF void cmha_blas_restart(char **argv) { (void)argv; }
#endif

/* ---- context ---- */

CMHA_DEF cmha_status cmha_context_init(cmha_context *context, const cmha_context_config *config) {
    cmha_context_config copy;
    if (!context) return CMHA_ERR_ARGUMENT;
    cmha__zero(copy);
    if (config) copy = *config;
    cmha__zero(*context);
    if (copy.threads < 0) return CMHA__WRONG(context, "context: threads = %d is negative", copy.threads);
    if (!copy.allocator.allocate != !copy.allocator.release)
        return CMHA__WRONG(context, "context: the allocator lacks %s",
            copy.allocator.allocate ? "release" : "allocate");
    if (!copy.files.size != !copy.files.read || !copy.files.write != !copy.files.finish)
        return CMHA__WRONG(context, "context: the files lack one of %s",
            !copy.files.size != !copy.files.read ? "size and read" : "write and finish");
    context->config = copy;
    context->threads = 1;
#ifdef _OPENMP
    context->threads = copy.threads ? copy.threads : omp_get_max_threads();
    if (context->threads > 1024) context->threads = 1024;
#endif
    context->open = CMHA__OPEN;
#ifdef CMHA__OPENBLAS
    if (!copy.keep_blas_threads && CMHA__BLAS_HAS(openblas_get_num_threads) &&
        CMHA__BLAS_HAS(openblas_set_num_threads) && openblas_get_num_threads() > 1) {
        context->blas_threads = openblas_get_num_threads();
        openblas_set_num_threads(1);
    }
#endif
    const char *remedy = cmha_blas_remedy(), *core = cmha__blas_core();
    if (remedy && core)
        cmha__warn(context, "OpenBLAS uses its %s kernel, which leaves this CPU at about a quarter to a half "
            "of its speed%s; set %s in the environment before the program starts", core,
            cmha__blas_is_behind(16) ? " (so the built-in product takes its place)" : "", remedy);
    return CMHA_OK;
}

CMHA_DEF void cmha_context_close(cmha_context *context) {
    if (!cmha__is_open(context)) return;
#ifdef CMHA__OPENBLAS
    if (context->blas_threads > 0) openblas_set_num_threads(context->blas_threads);
#endif
    context->open = 0; /* the allocator stays, for what is closed too late */
    context->detail[0] = 0;
}

/* ---- products: what all instruction sets share ---- */

typedef struct cmha__product {
    int trans_a, trans_b;
    size_t M, N, K, lda, ldb, ldc;
    cmha_real alpha, beta; /* beta = 0 ignores what C holds */
    const cmha_real *A, *B;
    cmha_real *C;
} cmha__product;

/* Rows of floats or BF16 (halves), `row` numbers apart. */
typedef struct cmha__stored_rows {
    const char *at;
    int halves;
    size_t n, row, width;
} cmha__stored_rows;

/* Depth of the packed pieces of A and B, and B's width: 72 KiB of stack, of 128 that a musl thread has. A
   small stack: 6 KiB, twice that in double. */
#ifdef CMHA_SMALL_STACK
#define CMHA__GEMM_KC 32
#define CMHA__GEMM_NC 32
#define CMHA__GEMM_STRIPS (2 * 1024 / 4 * (int)sizeof(cmha_real))
#else
#define CMHA__GEMM_KC 128
#define CMHA__GEMM_NC (48 * 1024 / CMHA__GEMM_KC / (int)sizeof(cmha_real))
#define CMHA__GEMM_STRIPS (24 * 1024)
#endif

/* Rows and columns of a piece of a packed matrix. */
#define CMHA__GROUP ((size_t)4)
#define CMHA__BLOCK ((size_t)64)
enum { CMHA__AHEAD = 8192 }; /* bytes from what is read to what is fetched */
enum { CMHA__FEW_ROWS = 4 }; /* more of them, and a matrix product is faster than streaming */
enum { CMHA__WHOLE_BLOCKS = 8 }; /* whose codes of 8 bits times numbers of 16 add up in 32 bits */

/* Words of a block of 64 columns in its row, and of four rows' blocks, behind which 4 bits have scales: a
   word a row, the lower half for the first 32 columns. Q4_K: 6 bits of scale, 6 of minimum, 4 of the 32 of
   two factors, which 8 halves have in turn; those that a row lacks to 8 follow its last block. */
static size_t cmha__block_words(cmha_storage storage) {
    static const size_t words[] = {0, 32, 16, 8, 8};
    return words[storage];
}
static size_t cmha__group_words(cmha_storage storage) {
    return CMHA__GROUP * (cmha__block_words(storage) + (storage >= CMHA_STORAGE_INT4));
}
static size_t cmha__blocks(size_t I) { return I / CMHA__BLOCK + (I % CMHA__BLOCK != 0); }
static size_t cmha__groups(size_t O) { return O / CMHA__GROUP + (O % CMHA__GROUP != 0); }
/* Words of four rows; where from a block on, with `left` until the end, the scales of block b are. */
static size_t cmha__line_words(cmha_storage storage, size_t I) {
    const size_t blocks = cmha__blocks(I), lacks = storage == CMHA_STORAGE_Q4_K ? 3 * blocks % 4 : 0;
    return blocks * cmha__group_words(storage) + lacks * CMHA__GROUP;
}
static inline size_t cmha__scales_at(size_t left, size_t b) {
    return b < left ? 36 * b + 32 : 32 * left + 4 * b;
}
/* Returns the block that holds column i of a row. */
static uint32_t *cmha__block_at(const cmha_packed *p, size_t row, size_t i) {
    return p->words + row / CMHA__GROUP * cmha__line_words(p->storage, p->n_in) +
        i / CMHA__BLOCK * cmha__group_words(p->storage) + row % CMHA__GROUP * cmha__block_words(p->storage);
}

#if defined(__GNUC__) && !defined(CMHA__SCALAR)
#define CMHA__GEMM_VECTORS
#define CMHA__ALIGNED __attribute__((aligned(64)))
#else
#define CMHA__ALIGNED
#endif
#if defined(CMHA__GEMM_VECTORS) && !defined(CMHA_DOUBLE)
#define CMHA__STREAMS 1
#else
#define CMHA__STREAMS 0
#endif
#endif /* CMHA__AGAIN */

/* ---- products, compiled for each instruction set ---- */

/* From here to "the end of what is compiled again" the header includes itself once more for each set that
   CMHA__DISPATCH adds. CMHA__THIS(name) is a function of the set being compiled. */
#ifndef CMHA__AGAIN
#define CMHA__SET base
#define CMHA__TARGET
#ifdef __AVX512F__
#define CMHA__VECTOR_BYTES 64
#elif defined(__AVX__)
#define CMHA__VECTOR_BYTES 32
#else
#define CMHA__VECTOR_BYTES 16
#endif
#define CMHA__THIS(name) CMHA__JOIN(name, CMHA__SET)

#ifdef CMHA__GEMM_VECTORS
#ifdef __aarch64__
#define CMHA__REGISTERS 32
#else
#define CMHA__REGISTERS (CMHA__VECTOR_BYTES == 64 ? 32 : 16)
#endif
#define CMHA__GEMM_MR (CMHA__VECTOR_BYTES == 64 ? 12 : CMHA__REGISTERS == 32 ? 8 : 6)
#define CMHA__GEMM_LANES (CMHA__VECTOR_BYTES / (int)sizeof(cmha_real))
#define CMHA__GEMM_NR (2 * CMHA__GEMM_LANES)
#define CMHA__VECTOR(type) type __attribute__((vector_size(CMHA__VECTOR_BYTES)))
#define CMHA__REALS CMHA__VECTOR(cmha_real)
#define CMHA__AT(numbers) (*(const CMHA__THIS(cmha__loose) *)(const void *)(numbers))
#else
#define CMHA__GEMM_MR 4
#define CMHA__GEMM_NR 8
#endif

/* What is compiled for a set; what also fuses multiplications and additions. Clang would halve vectors. */
#if defined(CMHA__GEMM_VECTORS) && defined(__clang__)
#define CMHA__COPY __attribute__((CMHA__TARGET))
#define CMHA__FUSED __attribute__((CMHA__TARGET, min_vector_width(CMHA__VECTOR_BYTES * 8)))
#define CMHA__FUSE _Pragma("STDC FP_CONTRACT ON")
#elif defined(CMHA__GEMM_VECTORS)
/* The target comes last: at -O1 GCC 14 forgets it otherwise. */
#define CMHA__COPY __attribute__((optimize("O3", "fp-contract=off"), CMHA__TARGET))
#define CMHA__FUSED __attribute__((optimize("O3", "fp-contract=fast"), CMHA__TARGET))
#define CMHA__FUSE
#else
#define CMHA__COPY
#define CMHA__FUSED
#define CMHA__FUSE
#endif
#define CMHA__INSIDE CMHA__FUSED __attribute__((always_inline)) static inline

/* Before a loop of few steps: unroll it, whatever the level of optimisation. */
#if !defined(__clang__) && __GNUC__ >= 8 /* clang does so unasked */
#define CMHA__UNROLL _Pragma("GCC unroll 16")
#else
#define CMHA__UNROLL
#endif
#endif /* CMHA__AGAIN */

#ifdef CMHA__GEMM_VECTORS
#define CMHA__PANEL_VECTORS (CMHA__REGISTERS / 8) /* of 16 registers 12 hold sums, of 32 24 */
#define CMHA__PANEL_ROWS 6
#define CMHA__PANEL_REST 4 /* rows at the end */

/* A vector wherever it lies. A memcpy may stay one where a compiler likes short vectors. */
typedef cmha_real CMHA__THIS(cmha__loose)
    __attribute__((vector_size(CMHA__VECTOR_BYTES), aligned(sizeof(cmha_real)), may_alias));

/* Computes `rows` rows, `vectors` wide. Inlined with constants and unrolled: the sums are registers. */
CMHA__INSIDE void CMHA__THIS(cmha__panel_piece)(
    const int height, const int vectors, const int trans, const cmha__product *p, size_t rows,
    const cmha_real *A, const cmha_real *B, cmha_real *C) {
    CMHA__FUSE
    const CMHA__REALS zero = {0};
    CMHA__REALS sum[12][CMHA__PANEL_VECTORS], b[CMHA__PANEL_VECTORS];
    const size_t lda = p->lda, ldb = p->ldb;
    const cmha_real *a[12], alpha = p->alpha;
    const int fresh = p->beta == 0;
    CMHA__UNROLL for (int i = 0; i < height; i++) {
        a[i] = A + ((size_t)i < rows ? (size_t)i : 0) * (trans ? 1 : lda);
        CMHA__UNROLL for (int w = 0; w < vectors; w++) sum[i][w] = zero;
    }
    for (size_t k = 0; k < p->K; k++, B += ldb) {
        CMHA__UNROLL for (int w = 0; w < vectors; w++) b[w] = CMHA__AT(B + w * CMHA__GEMM_LANES);
        CMHA__UNROLL for (int i = 0; i < height; i++) {
            const cmha_real factor = a[i][trans ? 0 : k];
            CMHA__UNROLL for (int w = 0; w < vectors; w++) sum[i][w] = sum[i][w] + factor * b[w];
            if (trans) a[i] += lda;
        }
    }
    CMHA__UNROLL for (int i = 0; i < height; i++) {
        CMHA__THIS(cmha__loose) *c = (CMHA__THIS(cmha__loose) *)(C + (size_t)i * p->ldc);
        if ((size_t)i >= rows) return;
        CMHA__UNROLL for (int w = 0; w < vectors; w++) {
            b[w] = c[w];
            c[w] = fresh ? alpha * sum[i][w] : b[w] + alpha * sum[i][w];
        }
    }
}
#endif

/* C [MR, NR] = a [MR, K] b [K, NR] + beta C, by p K, lda, ldc and beta, 0 or 1. turned: a is transposed. */
CMHA__FUSED static void CMHA__THIS(cmha__gemm_tile)(const cmha__product *p, int turned, const cmha_real *a,
        const cmha_real *b, cmha_real *C) {
#ifdef CMHA__GEMM_VECTORS
    if (turned) CMHA__THIS(cmha__panel_piece)(CMHA__GEMM_MR, 2, 1, p, CMHA__GEMM_MR, a, b, C);
    else CMHA__THIS(cmha__panel_piece)(CMHA__GEMM_MR, 2, 0, p, CMHA__GEMM_MR, a, b, C);
#else
    size_t row = turned ? 1 : p->lda, step = turned ? p->lda : 1;
    for (int i = 0; i < CMHA__GEMM_MR; i++, a += row, C += p->ldc)
        for (size_t j = 0; j < CMHA__GEMM_NR; j++) {
            cmha_real sum = 0;
            for (size_t k = 0; k < p->K; k++) sum += a[k * step] * b[k * CMHA__GEMM_NR + j];
            C[j] = p->beta == 0 ? sum : C[j] + sum;
        }
#endif
}

/* to [K, width] = from, lane l of step k being from[l * lane + k * step], 0 beyond `lanes`; 8 steps of lanes
   not contiguous at a time, to use a line of cache while it is there. */
static inline void CMHA__THIS(cmha__gemm_pack)(const cmha_real *from, size_t lane, size_t step, size_t lanes,
        size_t width, size_t K, cmha_real *to) {
    size_t k;
    if (lane == 1 && lanes == width) {
        for (k = 0; k < K; k++)
            for (size_t l = 0; l < width; l++) to[k * width + l] = from[k * step + l];
        return;
    }
    if (lanes < width) memset(to, 0, K * width * sizeof *to);
    for (k = 0; k + 8 <= K; k += 8)
        for (size_t l = 0; l < lanes; l++)
            for (size_t part = 0; part < 8; part++)
                to[(k + part) * width + l] = from[l * lane + (k + part) * step];
    for (; k < K; k++)
        for (size_t l = 0; l < lanes; l++) to[k * width + l] = from[l * lane + k * step];
}

/* Multiplies A by a packed piece of B, some tiles' rows at a time; contiguous ones are read in place. */
CMHA__COPY static void CMHA__THIS(cmha__gemm_sweep)(const cmha__product *p, const cmha_real *packed) {
    enum { COLUMN = CMHA__GEMM_KC * CMHA__GEMM_MR * (int)sizeof(cmha_real) };
    enum { MB = CMHA__GEMM_STRIPS / COLUMN * CMHA__GEMM_MR };
    CMHA__ALIGNED cmha_real strips[CMHA__GEMM_KC * MB];
    CMHA__ALIGNED cmha_real tile[CMHA__GEMM_MR * CMHA__GEMM_NR];
    size_t a_row = p->trans_a ? 1 : p->lda, a_col = p->trans_a ? p->lda : 1;
    cmha__product one = *p; /* of its tiles */
    const int adds = p->beta != 0, plain = p->alpha == 1 && (!adds || p->beta == 1);
    one.alpha = 1;
    one.ldb = CMHA__GEMM_NR;
    for (size_t i = 0; i < p->M; i += MB) {
        size_t rows = cmha__min(p->M - i, MB), whole = p->trans_a ? 0 : rows / CMHA__GEMM_MR * CMHA__GEMM_MR;
        const cmha_real *A = p->A + i * a_row;
        if (whole < rows)
            CMHA__THIS(cmha__gemm_pack)(A + whole * a_row, a_row, a_col, rows - whole, MB, p->K, strips);
        for (size_t j = 0; j < p->N; j += CMHA__GEMM_NR)
            for (size_t r = 0; r < rows; r += CMHA__GEMM_MR) {
                size_t n = cmha__min(rows - r, CMHA__GEMM_MR), cols = cmha__min(p->N - j, CMHA__GEMM_NR);
                const int direct = plain && n == CMHA__GEMM_MR && cols == CMHA__GEMM_NR, there = r < whole;
                cmha_real *C = p->C + (i + r) * p->ldc + j;
                one.lda = there ? p->lda : (size_t)MB;
                one.ldc = direct ? p->ldc : CMHA__GEMM_NR;
                one.beta = direct && adds;
                CMHA__THIS(cmha__gemm_tile)(&one, !there, there ? A + r * a_row : strips + (r - whole),
                    packed + j * p->K, direct ? C : tile);
                if (direct) continue;
                for (const cmha_real *t = tile; n > 0; n--, t += CMHA__GEMM_NR, C += p->ldc)
                    for (size_t c = 0; c < cols; c++)
                        C[c] = adds ? p->alpha * t[c] + p->beta * C[c] : p->alpha * t[c];
            }
    }
}

/* Packs columns lo to hi of B to [K, width], CMHA__GEMM_KC rows at a time; up to so many need no width. */
CMHA__COPY static void CMHA__THIS(cmha__gemm_pack_columns)(const cmha__product *p, size_t lo, size_t hi,
        size_t width, cmha_real *packed) {
    const size_t row = p->trans_b ? 1 : p->ldb, col = p->trans_b ? p->ldb : 1, end = cmha__min(hi, p->N);
    CMHA__IN_PIECES(k, depth, p->K, CMHA__GEMM_KC)
        for (size_t c = lo; c < end; c += CMHA__GEMM_NR)
            CMHA__THIS(cmha__gemm_pack)(p->B + k * row + c * col, col, row,
                cmha__min(end - c, CMHA__GEMM_NR), CMHA__GEMM_NR, depth, packed + k * width + c * depth);
}

/* Multiplies A, not transposed, by packed B [K, ldb], some rows at a time: their C stays in the cache. */
CMHA__COPY static void CMHA__THIS(cmha__gemm_packed)(const cmha__product *p) {
    cmha__product piece = *p;
    CMHA__IN_PIECES(i, rows, p->M, 8 * CMHA__GEMM_MR) {
        piece.M = rows;
        piece.C = p->C + i * p->ldc;
        CMHA__IN_PIECES(k, depth, p->K, CMHA__GEMM_KC) {
            piece.A = p->A + i * p->lda + k;
            piece.K = depth;
            piece.beta = k ? (cmha_real)1 : p->beta;
            CMHA__THIS(cmha__gemm_sweep)(&piece, p->B + k * p->ldb);
        }
    }
}

CMHA__COPY static void CMHA__THIS(cmha__gemm_blocked)(const cmha__product *p) {
    CMHA__ALIGNED cmha_real packed[CMHA__GEMM_KC * CMHA__GEMM_NC];
    const size_t row = p->trans_b ? 1 : p->ldb, col = p->trans_b ? p->ldb : 1;
    cmha__product piece = *p;
    CMHA__IN_PIECES(j, columns, p->N, CMHA__GEMM_NC) {
        piece.C = p->C + j;
        piece.N = columns;
        CMHA__IN_PIECES(k, depth, p->K, CMHA__GEMM_KC) {
            piece.A = p->A + k * (p->trans_a ? p->lda : 1);
            piece.B = p->B + k * row + j * col;
            piece.K = depth;
            piece.beta = k ? (cmha_real)1 : p->beta;
            CMHA__THIS(cmha__gemm_pack_columns)(&piece, 0, piece.N, 0, packed);
            CMHA__THIS(cmha__gemm_sweep)(&piece, packed);
        }
    }
}

/* Small products straight from memory, for attention's tiles in the cache; beta: 0 or 1. */
#ifdef CMHA__GEMM_VECTORS
/* Computes all rows of a strip of C, 4, 2 or 1 vectors wide. A constant trans is worth 3 % of attention. */
CMHA__INSIDE void CMHA__THIS(cmha__panel_strip)(
    const int trans, const cmha__product *p, size_t vectors, size_t column) {
    const size_t a_row = trans ? 1 : p->lda, full = vectors == CMHA__PANEL_VECTORS;
    const cmha_real *A = p->A, *B = p->B + column;
    cmha_real *C = p->C + column;
    size_t rows, left = p->M;
    for (; left > 0; left -= rows, A += rows * a_row, C += rows * p->ldc) {
        rows = left < CMHA__PANEL_ROWS ? CMHA__PANEL_REST : CMHA__PANEL_ROWS;
        rows = cmha__min(left, full ? rows : 8);
        if (full && rows == CMHA__PANEL_ROWS)
            CMHA__THIS(cmha__panel_piece)(CMHA__PANEL_ROWS, CMHA__PANEL_VECTORS, trans, p, rows, A, B, C);
        else if (full)
            CMHA__THIS(cmha__panel_piece)(CMHA__PANEL_REST, CMHA__PANEL_VECTORS, trans, p, rows, A, B, C);
        else if (vectors == 2) CMHA__THIS(cmha__panel_piece)(8, 2, trans, p, rows, A, B, C);
        else CMHA__THIS(cmha__panel_piece)(8, 1, trans, p, rows, A, B, C);
    }
}

/* Computes a product whose B is not transposed and N whole vectors wide; returns 0 for others. */
CMHA__FUSED static int CMHA__THIS(cmha__panel)(const cmha__product *p) {
    size_t vectors, left = p->N / CMHA__GEMM_LANES;
    if (p->N % CMHA__GEMM_LANES) return 0;
    for (size_t j = 0; left > 0; left -= vectors, j += vectors * CMHA__GEMM_LANES) {
        for (vectors = CMHA__PANEL_VECTORS; vectors > left;) vectors /= 2;
        if (p->trans_a) CMHA__THIS(cmha__panel_strip)(1, p, vectors, j);
        else CMHA__THIS(cmha__panel_strip)(0, p, vectors, j);
    }
    return 1;
}
#endif

#if CMHA__STREAMS
#define CMHA__WORDS CMHA__VECTOR(uint32_t)
#define CMHA__FROM_INTS(words) __builtin_convertvector((CMHA__VECTOR(int32_t))(words), CMHA__REALS)

/* Returns sum + the 64 products of a block of weights and x, lane by lane. INT8 codes are converted in the
   top byte of a word, 2^24 times too large, where a mask extends the sign. Floats come row by row: a chain of
   64-byte sums reads ahead as far as memory gives, further is slower; a chain of shorter ones would be slower
   than the cache. A chain that GCC sees it leaves unfused for some CPUs. */
CMHA__INSIDE CMHA__REALS CMHA__THIS(cmha__block_sum)(cmha_storage storage, CMHA__REALS sum,
        const void *weights, const float *x) {
    CMHA__FUSE
    const uint32_t *words = (const uint32_t *)weights, top = 0xff000000u;
    if (storage == CMHA_STORAGE_FLOAT) {
#if CMHA__VECTOR_BYTES == 64
        __asm__("" : "+v"(sum));
        for (int k = 0; k < 64; k += CMHA__GEMM_LANES) sum = sum + CMHA__AT(words + k) * CMHA__AT(x + k);
#else
        CMHA__REALS part[2] = {{0}, {0}};
        CMHA__UNROLL for (int k = 0; k < 64; k += CMHA__GEMM_LANES) {
            const int to = k / CMHA__GEMM_LANES % 2;
            part[to] = part[to] + CMHA__AT(words + k) * CMHA__AT(x + k);
        }
        sum = sum + (part[0] + part[1]);
#endif
    } else if (storage == CMHA_STORAGE_BF16)
        for (int k = 0; k < 32; k += CMHA__GEMM_LANES) {
            CMHA__WORDS w = (CMHA__WORDS)CMHA__AT(words + k);
            const float *at = x + k + k / 16 * 16;
            sum = sum + (CMHA__REALS)(w << 16) * CMHA__AT(at);
            sum = sum + (CMHA__REALS)(w & 0xffff0000u) * CMHA__AT(at + 16);
        }
    else
        for (int k = 0; k < 16; k += CMHA__GEMM_LANES) {
            CMHA__WORDS w = (CMHA__WORDS)CMHA__AT(words + k);
            sum = sum + CMHA__FROM_INTS(w << 24) * CMHA__AT(x + k);
            sum = sum + CMHA__FROM_INTS(w << 16 & top) * CMHA__AT(x + k + 16);
            sum = sum + CMHA__FROM_INTS(w << 8 & top) * CMHA__AT(x + k + 32);
            sum = sum + CMHA__FROM_INTS(w & top) * CMHA__AT(x + k + 48);
        }
    return sum;
}

/* y [4] = the sums of the lanes of four vectors of so many bytes. */
CMHA__INSIDE void CMHA__THIS(cmha__lane_sums)(const size_t bytes, const void *sum, float *y) {
    float __attribute__((vector_size(16))) part[CMHA__VECTOR_BYTES / 16];
    float lanes[4];
    for (size_t r = 0; r < 4; r++) {
        memcpy(part, (const char *)sum + r * bytes, bytes);
        for (size_t n = bytes / 32; n > 0; n /= 2)
            for (size_t k = 0; k < n; k++) part[k] = part[k] + part[k + n];
        memcpy(lanes, part, sizeof *part);
        y[r] = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
    }
}

/* Multiplies rows lo .. hi - 1 of p, or of the floats at its source, by T rows x. Behind the last whole block
   float x and weights are padded with zeros. */
CMHA__INSIDE void CMHA__THIS(cmha__stream_rows)(cmha_storage storage, const cmha_packed *p, const float *x,
        size_t T, size_t lo, size_t hi, float *y, size_t ldy) {
    int plain = storage == CMHA_STORAGE_FLOAT;
    const unsigned char *weights = plain ? (const unsigned char *)p->source : (const unsigned char *)p->words;
    size_t full = p->n_in / CMHA__BLOCK, left = p->n_in % CMHA__BLOCK;
    size_t line = plain ? 256 : storage == CMHA_STORAGE_BF16 ? 128 : 64; /* bytes of a block in its row */
    size_t row = plain ? p->n_in * sizeof(float) : line; /* bytes to the next one; so of blocks */
    size_t block = plain ? line : 4 * line, group = plain ? 4 * row : cmha__blocks(p->n_in) * block;
    float x_last[CMHA__BLOCK] = {0}, w_last[4][CMHA__BLOCK] = {{0}}, product[4];
    const unsigned char *rows[4], *rows_last[4];
    CMHA__REALS sum[4];
    for (size_t o = lo / 4 * 4; o < hi; o += 4) {
        for (size_t r = 0; r < 4; r++) { /* the last group of floats may lack rows */
            rows[r] = weights + o / 4 * group + (plain && o + r >= p->n_out ? p->n_out - 1 - o : r) * row;
            rows_last[r] = rows[r] + full * block;
            if (!plain || !left) continue;
            memcpy(w_last[r], rows_last[r], left * sizeof(float));
            rows_last[r] = (const unsigned char *)w_last[r];
        }
        for (size_t t = 0; t < T; t++) {
            const float *from = x + t * p->n_in;
            memcpy(x_last, from + full * CMHA__BLOCK, left * sizeof *x);
            memset(sum, 0, sizeof sum);
            for (size_t i = 0; i < (plain ? 4 : full); i++) /* floats by rows: the CPU fetches ahead */
                for (size_t k = 0; k < (plain ? full : 4); k++) {
                    const size_t r = plain ? i : k, b = plain ? k : i;
                    const unsigned char *at = rows[r] + b * block;
                    if (storage == CMHA_STORAGE_INT8) __builtin_prefetch(at + CMHA__AHEAD);
                    sum[r] = CMHA__THIS(cmha__block_sum)(storage, sum[r], at, from + b * CMHA__BLOCK);
                }
            if (left)
                for (int r = 0; r < 4; r++)
                    sum[r] = CMHA__THIS(cmha__block_sum)(storage, sum[r], rows_last[r], x_last);
            CMHA__THIS(cmha__lane_sums)(sizeof *sum, sum, product);
            for (size_t r = 0; r < 4; r++)
                if (o + r >= lo && o + r < hi)
                    y[t * ldy + o + r - lo] =
                        p->scales ? product[r] * 5.9604644775390625e-8f * p->scales[o + r] : product[r];
        }
    }
}

/* Whole numbers and 4 bits: vectors of 32 bytes at most, a block's 8 words in a row. */
#define CMHA__SHORT_BYTES (CMHA__VECTOR_BYTES > 16 ? 32 : 16)
#define CMHA__SHORT_LANES (CMHA__SHORT_BYTES / 4)
#define CMHA__LOOSE(type, name, bytes) \
    typedef type CMHA__THIS(name) __attribute__((vector_size(bytes), aligned(4), may_alias))
CMHA__LOOSE(float, cmha__floats, CMHA__SHORT_BYTES);
CMHA__LOOSE(int32_t, cmha__ints, CMHA__SHORT_BYTES);
CMHA__LOOSE(int16_t, cmha__halves, CMHA__SHORT_BYTES);
#define CMHA__FLOATS CMHA__THIS(cmha__floats)
#define CMHA__INTS CMHA__THIS(cmha__ints)
#define CMHA__HALVES CMHA__THIS(cmha__halves)
#define CMHA__INTS_AT(words) (*(const CMHA__INTS *)(const void *)(words))

/* Returns of each lane the sum of two products of 16 bits by 16. */
CMHA__INSIDE CMHA__INTS CMHA__THIS(cmha__pair_sums)(CMHA__INTS a, CMHA__INTS b) {
#if CMHA__SHORT_BYTES == 32 && (defined(CMHA__AGAIN) || defined(__AVX2__))
    return (CMHA__INTS)__builtin_ia32_pmaddwd256((CMHA__HALVES)a, (CMHA__HALVES)b);
#elif CMHA__SHORT_BYTES == 16 && defined(__SSE2__) && !defined(__wasm__)
    return (CMHA__INTS)__builtin_ia32_pmaddwd128((CMHA__HALVES)a, (CMHA__HALVES)b);
#else
    return (a << 16 >> 16) * (b << 16 >> 16) + (a >> 16) * (b >> 16);
#endif
}

#ifdef CMHA__SDOT
/* Returns of each lane the sum of four products of 8 bits by 16; of the latter a has the first and third, b
   the others. sdot takes signed bytes: 256 high + low is 256 high + (low - 128) + 128. */
CMHA__INSIDE CMHA__INTS CMHA__THIS(cmha__byte_sums)(CMHA__INTS words, CMHA__INTS a, CMHA__INTS b) {
    const int8x16_t code = (int8x16_t)words, even = (int8x16_t)a, odd = (int8x16_t)b, ones = vdupq_n_s8(1);
    const int32x4_t zero = vdupq_n_s32(0);
    int32x4_t sum = vshlq_n_s32(vdotq_s32(zero, code, vtrn2q_s8(even, odd)), 8);
    sum = vaddq_s32(sum, vshlq_n_s32(vdotq_s32(zero, code, ones), 7));
    return (CMHA__INTS)vdotq_s32(sum, code, veorq_s8(vtrn1q_s8(even, odd), vdupq_n_s8(-128)));
}
#endif

/* Returns code `at` of each half of the words, its sign extended over the half. */
CMHA__INSIDE CMHA__INTS CMHA__THIS(cmha__codes)(const int bits, CMHA__INTS words, const int at) {
    return (CMHA__INTS)((CMHA__HALVES)words << (16 - bits * (at + 1)) >> (16 - bits));
}

/* scale [2, 4]: numbers of 16 bits of four words, of the lower halves and of the upper ones. */
CMHA__INSIDE void CMHA__THIS(cmha__four_halves)(const uint32_t *words, float *scale) {
    typedef uint32_t four __attribute__((vector_size(16)));
    typedef float numbers __attribute__((vector_size(16)));
    four both, half;
    memcpy(&both, words, sizeof both);
    for (int i = 0; i < 2; i++) {
        half = i ? both >> 16 : both & 0xffffu;
        numbers x = (numbers)((half & 0x7fffu) << 13) * 5.192296858534828e33f; /* 2^112 */
        half = (four)x | (half & 0x8000u) << 16 | ((four)((half & 0x7c00u) == 0x7c00u) & 0x7f800000u);
        memcpy(scale + 4 * i, &half, sizeof half);
    }
}

/* scale [2, 4]: the scales of the first and the last 32 columns of four rows' block b; Q4_K: behind them what
   is added to them times codes of -8 to 7. Its factors [2, 4] are kept for four blocks. */
CMHA__INSIDE void CMHA__THIS(cmha__four_scales)(cmha_storage storage, const uint32_t *group, size_t b,
        size_t blocks, float *factors, float *scale) {
    typedef int32_t four __attribute__((vector_size(16)));
    typedef float numbers __attribute__((vector_size(16)));
    four at, both = {0};
    numbers by[2];
    if (storage == CMHA_STORAGE_INT4) {
        CMHA__THIS(cmha__four_halves)(group + 32, scale);
        return;
    }
    if (b % 4 == 0) {
        for (size_t k = 4; k-- > 0;) {
            memcpy(&at, group + cmha__scales_at(blocks - b, k), sizeof at);
            both = both << 8 | (at >> 12 & 15) | (at >> 24 & 240);
        }
        CMHA__THIS(cmha__four_halves)((const uint32_t *)(const void *)&both, factors);
    }
    memcpy(by, factors, sizeof by);
    memcpy(&at, group + 32, sizeof at);
    CMHA__UNROLL for (int i = 0; i < 8; i += 4, at >>= 16) {
        const numbers some = by[0] * __builtin_convertvector(at & 63, numbers);
        const numbers added = some * 8 - by[1] * __builtin_convertvector(at >> 6 & 63, numbers);
        memcpy(scale + i, &some, sizeof some);
        memcpy(scale + 8 + i, &added, sizeof added);
    }
}

/* Adds to y [4] the sums of four vectors' lanes, whole numbers, and clears these. */
CMHA__INSIDE void CMHA__THIS(cmha__whole_sums)(CMHA__INTS *sum, float *y) {
    int32_t lanes[4][CMHA__SHORT_LANES];
#if CMHA__SHORT_BYTES == 32 && (defined(CMHA__AGAIN) || defined(__AVX2__))
    CMHA__INTS a = __builtin_ia32_phaddd256(sum[0], sum[1]);
    CMHA__INTS b = __builtin_ia32_phaddd256(sum[2], sum[3]);
    a = __builtin_ia32_phaddd256(a, b); /* [2, row]: of either half */
    memcpy(lanes, &a, sizeof a);
    for (int r = 0; r < 4; r++) y[r] += (float)(lanes[0][r] + lanes[0][4 + r]);
#else
    memcpy(lanes, sum, sizeof lanes);
    for (int r = 0; r < 4; r++) {
        int32_t total = 0;
        for (int l = 0; l < CMHA__SHORT_LANES; l++) total += lanes[r][l];
        y[r] += (float)total;
    }
#endif
    memset(sum, 0, 4 * sizeof *sum);
}

/* y [4] = the products of a group of four rows of 4 bits and a row of numbers; x_last: the rest of it. */
CMHA__INSIDE void CMHA__THIS(cmha__four_bits)(const cmha_packed *p, const uint32_t *group, const float *x,
        const float *x_last, float *y) {
    CMHA__FUSE
    const size_t full = p->n_in / CMHA__BLOCK, blocks = full + (x_last != NULL);
    CMHA__FLOATS sum[4];
    float scale[16], factors[8] = {0};
    memset(sum, 0, sizeof sum);
    for (size_t b = 0; b < blocks; b++, group += 36) {
        const float *from = b < full ? x + b * CMHA__BLOCK : x_last;
        CMHA__FLOATS all[2] = {{0}, {0}};
        for (int line = 0; line < 144; line += 64) __builtin_prefetch(group + (CMHA__AHEAD + line) / 4);
        CMHA__THIS(cmha__four_scales)(p->storage, group, b, blocks, factors, scale);
        CMHA__UNROLL for (int r = 0; r < 4; r++)
            CMHA__UNROLL for (int part = 0; part < 2; part++) {
                CMHA__FLOATS some = {0};
                CMHA__UNROLL for (int k = 0; k < 8; k += CMHA__SHORT_LANES) {
                    const CMHA__INTS words = CMHA__INTS_AT(group + 8 * r + k);
                    CMHA__UNROLL for (int at = 2 * part; at < 2 * part + 2; at++)
                        CMHA__UNROLL for (int h = 0; h < 2; h++) {
                            const CMHA__INTS code = words << (28 - 16 * h - 4 * at) >> 28;
                            some = some + __builtin_convertvector(code, CMHA__FLOATS) *
                                *(const CMHA__FLOATS *)(const void *)(from + k + 16 * at + 8 * h);
                        }
                }
                sum[r] = sum[r] + some * scale[4 * part + r];
            }
        if (p->storage == CMHA_STORAGE_INT4) continue;
        CMHA__UNROLL for (int k = 0; k < 64; k += CMHA__SHORT_LANES)
            all[k / 32] = all[k / 32] + *(const CMHA__FLOATS *)(const void *)(from + k);
        CMHA__UNROLL for (int r = 0; r < 4; r++)
            sum[r] = sum[r] + all[0] * scale[8 + r] + all[1] * scale[12 + r];
    }
    CMHA__THIS(cmha__lane_sums)(sizeof *sum, sum, y);
}

/* y [4] = the products of a group of four rows and a rounded one, without INT8's scales. */
CMHA__INSIDE void CMHA__THIS(cmha__rounded_group)(const int bits, const cmha_packed *p,
        const uint32_t *group, const uint32_t *x, float *y) {
    CMHA__FUSE
    const int words = 2 * bits, codes = 16 / bits, step = bits == 8 ? 64 : 36;
    const size_t blocks = cmha__blocks(p->n_in);
    CMHA__FLOATS sum[4];
    CMHA__INTS whole[4], all[2];
    const CMHA__INTS zero = {0}, ones = zero + 65537;
    float scale[16], factors[8] = {0}, of[4] = {0};
    memset(sum, 0, sizeof sum);
    memset(whole, 0, sizeof whole);
    for (size_t b = 0; b < blocks; b++, group += step, x += 32) {
        for (int line = 0; line < 4 * step; line += 64) __builtin_prefetch(group + (CMHA__AHEAD + line) / 4);
        if (bits == 4) CMHA__THIS(cmha__four_scales)(p->storage, group, b, blocks, factors, scale);
        CMHA__UNROLL for (int r = 0; r < 4; r++) {
            CMHA__INTS part[2] = {{0}, {0}};
            CMHA__UNROLL for (int k = 0; k < words; k += CMHA__SHORT_LANES) {
                const CMHA__INTS w = CMHA__INTS_AT(group + words * r + k);
#ifdef CMHA__SDOT
                if (bits == 8) {
                    part[0] = part[0] + CMHA__THIS(cmha__byte_sums)(w, CMHA__INTS_AT(x + k),
                        CMHA__INTS_AT(x + words + k));
                    continue;
                }
#endif
                CMHA__UNROLL for (int at = 0; at < codes; at++)
                    part[at / 2] = part[at / 2] + CMHA__THIS(cmha__pair_sums)(
                        CMHA__THIS(cmha__codes)(bits, w, at), CMHA__INTS_AT(x + words * at + k));
            }
            if (bits == 8) whole[r] = whole[r] + part[0];
            else
                CMHA__UNROLL for (int i = 0; i < 2; i++)
                    sum[r] = sum[r] + __builtin_convertvector(part[i], CMHA__FLOATS) * scale[4 * i + r];
        }
        if (bits == 4 && p->storage != CMHA_STORAGE_INT4) {
            memset(all, 0, sizeof all);
            CMHA__UNROLL for (int k = 0; k < 32; k += CMHA__SHORT_LANES)
                all[k / 16] = all[k / 16] + CMHA__THIS(cmha__pair_sums)(CMHA__INTS_AT(x + k), ones);
            CMHA__UNROLL for (int i = 0; i < 8; i++)
                sum[i % 4] = sum[i % 4] + __builtin_convertvector(all[i / 4], CMHA__FLOATS) * scale[8 + i];
        }
        if (bits == 4 || (b % CMHA__WHOLE_BLOCKS != CMHA__WHOLE_BLOCKS - 1 && b + 1 < blocks)) continue;
        CMHA__THIS(cmha__whole_sums)(whole, of);
    }
    if (bits == 8) memcpy(y, of, sizeof of);
    else CMHA__THIS(cmha__lane_sums)(sizeof *sum, sum, y);
}

/* Multiplies few rounded rows, many of Q4_K or, of 4 bits and not rounded, rows of numbers. */
CMHA__INSIDE void CMHA__THIS(cmha__group_rows)(const int bits, const int rounded, const cmha_packed *p,
        const cmha_rounded *x, size_t lo, size_t hi, float *y, size_t ldy) {
    const size_t row = 32 * cmha__blocks(p->n_in), left = p->n_in % CMHA__BLOCK;
    float x_last[CMHA__BLOCK] = {0}, product[4];
    for (size_t o = lo / 4 * 4; o < hi; o += 4)
        for (size_t t = 0; t < x->T; t++) {
            const float *from = (const float *)(const void *)x->words + t * p->n_in;
            const float by = rounded ? x->factors[t] : 1;
            const uint32_t *group = cmha__block_at(p, o, 0);
            if (rounded) CMHA__THIS(cmha__rounded_group)(bits, p, group, x->words + t * row, product);
            else {
                memcpy(x_last, from + p->n_in - left, left * sizeof *from);
                CMHA__THIS(cmha__four_bits)(p, group, from, left ? x_last : NULL, product);
            }
            for (size_t r = 0; r < 4; r++)
                if (o + r >= lo && o + r < hi)
                    y[t * ldy + o + r - lo] = product[r] * (p->scales ? p->scales[o + r] * by : by);
        }
}

/* Many rounded rows: as many as have room for their sums in registers, by a panel of two vectors of the
   matrix's rows, 512 columns at a time. */
CMHA__LOOSE(int32_t, cmha__whole_ints, CMHA__VECTOR_BYTES);
#define CMHA__WHOLE_INTS CMHA__THIS(cmha__whole_ints)
#define CMHA__WHOLE_ROWS (CMHA__VECTOR_BYTES == 64 ? 12 : 6)
#define CMHA__WHOLE_WIDTH (2 * CMHA__VECTOR_BYTES / 4)
typedef struct CMHA__THIS(cmha__whole_panel) {
    uint32_t pairs[32 * CMHA__WHOLE_BLOCKS * CMHA__WHOLE_WIDTH]; /* [pair, row] */
    float scale[2 * CMHA__WHOLE_BLOCKS * CMHA__WHOLE_WIDTH]; /* [segment, row] */
    size_t segments, length; /* of which sums are whole; pairs in each */
} CMHA__THIS(cmha__whole_panel);

/* Fills a panel with n rows from o on, `blocks` blocks from the first on. */
CMHA__COPY static void CMHA__THIS(cmha__whole_fill)(const cmha_packed *p, size_t o, size_t n, size_t first,
        size_t blocks, CMHA__THIS(cmha__whole_panel) *panel) {
    enum { WIDTH = CMHA__WHOLE_WIDTH };
    const int bits = p->storage == CMHA_STORAGE_INT8 ? 8 : 4, words = 2 * bits, codes = 16 / bits;
    uint32_t pairs[32];
    float scale[8];
    panel->segments = bits == 8 ? 1 : 2 * blocks;
    panel->length = bits == 8 ? 32 * blocks : 16;
    for (size_t i = 0; i < panel->segments * WIDTH; i++) panel->scale[i] = 1;
    if (n < WIDTH) memset(panel->pairs, 0, sizeof panel->pairs);
    for (size_t c = 0; c < n; c++)
        for (size_t b = 0; b < blocks; b++) {
            const uint32_t *from = cmha__block_at(p, o + c, (first + b) * CMHA__BLOCK);
            const uint32_t *at = from - (o + c) % 4 * (size_t)words;
            for (int v = 0; v < codes; v++)
                for (int k = 0; k < words; k += CMHA__SHORT_LANES) {
                    CMHA__INTS w = CMHA__INTS_AT(from + k);
                    w = bits == 8 ? CMHA__THIS(cmha__codes)(8, w, v) : CMHA__THIS(cmha__codes)(4, w, v);
                    memcpy(pairs + v * words + k, &w, sizeof w);
                }
            for (size_t k = 0; k < 32; k++) panel->pairs[(b * 32 + k) * WIDTH + c] = pairs[k];
            if (bits == 8) continue;
            CMHA__THIS(cmha__four_halves)(at + 32, scale);
            panel->scale[2 * b * WIDTH + c] = scale[(o + c) % 4];
            panel->scale[(2 * b + 1) * WIDTH + c] = scale[4 + (o + c) % 4];
        }
}

/* Returns sum and, of each lane, two products of 16 bits by 16. fused: AVX-512's VNNI does both at once. */
CMHA__INSIDE CMHA__WHOLE_INTS CMHA__THIS(cmha__whole_add)(const int fused, CMHA__WHOLE_INTS sum,
        CMHA__WHOLE_INTS a, CMHA__WHOLE_INTS b) {
#if CMHA__VECTOR_BYTES == 64
    CMHA__WHOLE_INTS product;
    if (fused) {
        __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
        return sum;
    }
    __asm__("vpmaddwd %2, %1, %0" : "=v"(product) : "v"(a), "v"(b));
    return sum + product;
#else
    (void)fused;
    return sum + CMHA__THIS(cmha__pair_sums)(a, b);
#endif
}

/* Adds to sums [WHOLE_ROWS, WIDTH] the products of so many rows x and a panel. */
CMHA__INSIDE void CMHA__THIS(cmha__whole_tile)(const int fused, const uint32_t *const *x,
        const CMHA__THIS(cmha__whole_panel) *panel, float *sums) {
    CMHA__FUSE
    enum { WIDTH = CMHA__WHOLE_WIDTH };
    const uint32_t *b = panel->pairs, *a[CMHA__WHOLE_ROWS];
    const size_t length = panel->length;
    CMHA__UNROLL for (int i = 0; i < CMHA__WHOLE_ROWS; i++) a[i] = x[i];
    for (size_t s = 0; s < panel->segments; s++) {
        CMHA__WHOLE_INTS sum[CMHA__WHOLE_ROWS][2];
        const CMHA__WHOLE_INTS zero = {0};
        CMHA__UNROLL for (int i = 0; i < CMHA__WHOLE_ROWS; i++) sum[i][0] = sum[i][1] = zero;
        for (size_t k = s * length; k < (s + 1) * length; k++, b += WIDTH) {
            const CMHA__WHOLE_INTS *words = (const CMHA__WHOLE_INTS *)(const void *)b;
            const CMHA__WHOLE_INTS left = words[0], right = words[1];
            CMHA__UNROLL for (int i = 0; i < CMHA__WHOLE_ROWS; i++) {
                const CMHA__WHOLE_INTS pair = zero + (int32_t)a[i][k];
                sum[i][0] = CMHA__THIS(cmha__whole_add)(fused, sum[i][0], left, pair);
                sum[i][1] = CMHA__THIS(cmha__whole_add)(fused, sum[i][1], right, pair);
            }
        }
        const float *scale = panel->scale + s * WIDTH;
        CMHA__THIS(cmha__loose) *to = (CMHA__THIS(cmha__loose) *)(void *)sums;
        CMHA__UNROLL for (int i = 0; i < CMHA__WHOLE_ROWS; i++)
            CMHA__UNROLL for (int w = 0; w < 2; w++)
                to[2 * i + w] = to[2 * i + w] +
                    __builtin_convertvector(sum[i][w], CMHA__REALS) * CMHA__AT(scale + w * CMHA__GEMM_LANES);
    }
}

/* y [n] = a row of sums, times the factors when they are complete. */
CMHA__COPY static void CMHA__THIS(cmha__whole_store)(const float *sums, const float *scale, float factor,
        size_t n, float *y) {
    float row[CMHA__WHOLE_WIDTH];
    for (size_t c = 0; c < CMHA__WHOLE_WIDTH; c++) row[c] = scale ? sums[c] * (scale[c] * factor) : sums[c];
    if (n == CMHA__WHOLE_WIDTH) memcpy(y, row, sizeof row);
    else memcpy(y, row, n * sizeof *row);
}

CMHA__FUSED static void CMHA__THIS(cmha__rounded_many)(const cmha_packed *p, const cmha_rounded *x, size_t lo,
        size_t hi, float *y, size_t ldy) {
    enum { WIDTH = CMHA__WHOLE_WIDTH, ROWS = CMHA__WHOLE_ROWS };
    CMHA__THIS(cmha__whole_panel) panel;
    const size_t all = cmha__blocks(p->n_in);
    const uint32_t *rows[ROWS];
    float scale[WIDTH];
#if CMHA__VECTOR_BYTES == 64
    const int fused = __builtin_cpu_supports("avx512vnni") != 0;
#else
    const int fused = 0;
#endif
    for (size_t o = lo, n; o < hi; o += n) {
        n = cmha__min(hi - o, WIDTH);
        for (size_t c = 0; c < WIDTH; c++) scale[c] = p->scales && c < n ? p->scales[o + c] : 1;
        for (size_t b = 0, blocks; b < all || !b; b += blocks) {
            blocks = cmha__min(all - b, CMHA__WHOLE_BLOCKS);
            CMHA__THIS(cmha__whole_fill)(p, o, n, b, blocks, &panel);
            for (size_t t = 0; t < x->T; t += ROWS) {
                float sums[ROWS * WIDTH] = {0}, *to = y + t * ldy + o - lo;
                const size_t height = cmha__min(x->T - t, ROWS);
                for (size_t r = 0; r < ROWS; r++) {
                    rows[r] = x->words + (t + (r < height ? r : 0)) * 32 * all + 32 * b;
                    if (b && r < height) memcpy(sums + r * WIDTH, to + r * ldy, n * sizeof *to);
                }
                if (fused) CMHA__THIS(cmha__whole_tile)(1, rows, &panel, sums);
                else CMHA__THIS(cmha__whole_tile)(0, rows, &panel, sums);
                for (size_t r = 0; r < height; r++)
                    CMHA__THIS(cmha__whole_store)(sums + r * WIDTH, b + blocks == all ? scale : NULL,
                        x->factors[t + r], n, to + r * ldy);
            }
            if (!blocks) break;
        }
    }
}

CMHA__FUSED static void CMHA__THIS(cmha__rounded_rows)(const cmha_packed *p, const cmha_rounded *x,
        size_t lo, size_t hi, float *y, size_t ldy) {
    if (x->T > CMHA__FEW_ROWS && p->storage <= CMHA_STORAGE_INT4)
        CMHA__THIS(cmha__rounded_many)(p, x, lo, hi, y, ldy);
    else if (p->storage == CMHA_STORAGE_INT8) CMHA__THIS(cmha__group_rows)(8, 1, p, x, lo, hi, y, ldy);
    else CMHA__THIS(cmha__group_rows)(4, 1, p, x, lo, hi, y, ldy);
}

CMHA__FUSED static void CMHA__THIS(cmha__packed_rows)(const cmha_packed *p, const cmha_real *x, size_t T,
        size_t lo, size_t hi, cmha_real *y, size_t ldy) {
    const cmha_rounded rows = {T, (uint32_t *)(void *)(uintptr_t)x, NULL};
    if (p->storage >= CMHA_STORAGE_INT4) CMHA__THIS(cmha__group_rows)(4, 0, p, &rows, lo, hi, y, ldy);
    else if (p->storage == CMHA_STORAGE_INT8)
        CMHA__THIS(cmha__stream_rows)(CMHA_STORAGE_INT8, p, x, T, lo, hi, y, ldy);
    else if (p->storage == CMHA_STORAGE_BF16)
        CMHA__THIS(cmha__stream_rows)(CMHA_STORAGE_BF16, p, x, T, lo, hi, y, ldy);
    else CMHA__THIS(cmha__stream_rows)(CMHA_STORAGE_FLOAT, p, x, T, lo, hi, y, ldy);
}

#define CMHA__PART (CMHA__VECTOR_BYTES > 16 ? 64 : 32) /* columns whose sums registers can hold */

/* Computes sum [columns] = the sum over n rows, `stride` bytes apart, of factor times the row's beginning. */
CMHA__INSIDE void CMHA__THIS(cmha__weighted_rows)(cmha_storage storage, int columns, const float *factor,
        size_t n, const char *rows, size_t stride, float *sum) {
    CMHA__FUSE
    CMHA__REALS lanes[CMHA__PART / CMHA__GEMM_LANES];
    int bytes = storage == CMHA_STORAGE_FLOAT ? columns * 4 : columns * 2;
    memset(lanes, 0, sizeof lanes);
    for (size_t r = 0; r < n; r++, rows += stride) {
        const uint32_t *words = (const uint32_t *)(const void *)rows;
        for (int line = 0; line < bytes; line += 64) __builtin_prefetch(rows + line + CMHA__AHEAD);
        for (int i = 0, l = 0; i < columns; i += CMHA__GEMM_LANES, l++) {
            const int at = storage == CMHA_STORAGE_FLOAT ? i : i / 32 * 16 + i % 16;
            CMHA__WORDS w = (CMHA__WORDS)CMHA__AT(words + at);
            if (storage != CMHA_STORAGE_FLOAT) w = i / 16 % 2 ? w & 0xffff0000u : w << 16;
            lanes[l] = lanes[l] + factor[r] * (CMHA__REALS)w;
        }
    }
    memcpy(sum, lanes, (size_t)columns * sizeof *sum);
}

/* Computes y [width] = the sum over rows (BF16: padded) of factor times row. */
CMHA__INSIDE void CMHA__THIS(cmha__mix_stored)(cmha_storage storage, const cmha__stored_rows *from,
        const float *factor, float *y) {
    const size_t n = from->n, width = from->width, size = storage == CMHA_STORAGE_FLOAT ? 4 : 2;
    const size_t stride = from->row * size;
    const char *rows = from->at;
    size_t c;
    float last[32];
    for (c = 0; c + CMHA__PART <= width; c += CMHA__PART)
        CMHA__THIS(cmha__weighted_rows)(storage, CMHA__PART, factor, n, rows + c * size, stride, y + c);
    for (; c + 32 <= width; c += 32)
        CMHA__THIS(cmha__weighted_rows)(storage, 32, factor, n, rows + c * size, stride, y + c);
    const size_t left = width % 32; /* small, as a compiler sees */
    if (left && storage == CMHA_STORAGE_BF16) {
        CMHA__THIS(cmha__weighted_rows)(storage, 32, factor, n, rows + c * size, stride, last);
        memcpy(y + c, last, left * sizeof *y);
        return;
    }
    if (!left) return;
    for (size_t i = 0; i < left; i++) y[c + i] = 0;
    for (size_t r = 0; r < n; r++) {
        const float *row = (const float *)(const void *)(rows + r * stride) + c;
        for (size_t i = 0; i < left; i++) y[c + i] += factor[r] * row[i];
    }
}

CMHA__FUSED static void CMHA__THIS(cmha__mix_rows)(const cmha__stored_rows *r, const float *factor,
        float *y) {
    if (r->halves) CMHA__THIS(cmha__mix_stored)(CMHA_STORAGE_BF16, r, factor, y);
    else CMHA__THIS(cmha__mix_stored)(CMHA_STORAGE_FLOAT, r, factor, y);
}
#endif
#undef CMHA__SET
#undef CMHA__TARGET
#undef CMHA__VECTOR_BYTES

/* ---- the end of what is compiled again ---- */

#ifndef CMHA__AGAIN
#ifdef CMHA__DISPATCH
#define CMHA__AGAIN
#define CMHA__SET avx2
#define CMHA__TARGET CMHA__AVX2
#define CMHA__VECTOR_BYTES 32
#include "cmha.h"
#define CMHA__SET avx512
#define CMHA__TARGET CMHA__AVX512
#define CMHA__VECTOR_BYTES 64
#include "cmha.h"
#undef CMHA__AGAIN
#endif

static void cmha__gemm_blocked(const cmha__product *p) { CMHA__CHOOSE(cmha__gemm_blocked, (p)) }

/* Computes a product of one row; A is contiguous. */
CMHA__HOT(static, cmha__gemm_row, (const cmha__product *p), (p)) {
    int fresh = p->beta == 0;
    cmha_real *C = p->C;
    if (p->trans_b) {
        for (size_t j = 0; j < p->N; j++) {
            const cmha_real *a = p->A, *b = p->B + j * p->ldb;
            cmha_real sum[64] = {0}, total = 0;
            CMHA__IN_LANES(64, p->K, sum[l] += a[i] * b[i])
            for (size_t l = 0; l < 64; l++) total += sum[l];
            C[j] = p->alpha * total + (fresh ? 0 : p->beta * C[j]);
        }
        return;
    }
    for (size_t j = 0; j < p->N; j++) C[j] = fresh ? 0 : p->beta * C[j];
    for (size_t k = 0; k < p->K; k++) {
        cmha_real factor = p->alpha * p->A[k];
        const cmha_real *row = p->B + k * p->ldb;
        for (size_t j = 0; j < p->N; j++) C[j] += factor * row[j];
    }
}

/* ---- the BLAS front ---- */

#ifndef CMHA_NO_CBLAS
/* CBLAS refuses a stride below the number of columns, even of one row. */
static int cmha__blas_stride(size_t stride, size_t columns) {
    return (int)(stride > columns ? stride : columns);
}

/* Hands a product to CBLAS; 0 if a size is beyond its int or its kernel is behind ours. */
static int cmha__gemm_cblas(const cmha__product *p) {
    if (p->M > INT_MAX || p->N > INT_MAX || p->K > INT_MAX || p->lda > INT_MAX || p->ldb > INT_MAX ||
        p->ldc > INT_MAX || cmha__blas_is_behind(p->M))
        return 0;
    const int M = (int)p->M, N = (int)p->N, K = (int)p->K;
    const int lda = cmha__blas_stride(p->lda, p->trans_a ? p->M : p->K);
    const int ldb = cmha__blas_stride(p->ldb, p->trans_b ? p->K : p->N);
    if (M == 1 && (!p->trans_a || p->lda == 1)) /* a decoded token: up to 3 times faster than their gemm */
        CMHA__CBLAS(gemv)(CblasRowMajor, p->trans_b ? CblasNoTrans : CblasTrans, p->trans_b ? N : K,
            p->trans_b ? K : N, p->alpha, p->B, ldb, p->A, 1, p->beta, p->C, 1);
    else
        CMHA__CBLAS(gemm)(CblasRowMajor, p->trans_a ? CblasTrans : CblasNoTrans,
            p->trans_b ? CblasTrans : CblasNoTrans, M, N, K, p->alpha, p->A, lda, p->B, ldb,
            p->beta, p->C, cmha__blas_stride(p->ldc, p->N));
    return 1;
}
#endif

CMHA_DEF void cmha_gemm(int trans_a, int trans_b, size_t M, size_t N, size_t K, cmha_real alpha,
        const cmha_real *A, size_t lda, const cmha_real *B, size_t ldb, cmha_real beta,
        cmha_real *C, size_t ldc) {
    cmha__product p = {trans_a, trans_b, M, N, K, lda, ldb, ldc, alpha, beta, A, B, C};
    if (!M || !N) return;
    if (!K || alpha == 0) {
        for (size_t i = 0; i < M; i++)
            for (size_t j = 0; j < N; j++)
                C[i * ldc + j] = beta == 0 ? 0 : beta * C[i * ldc + j];
        return;
    }
#ifndef CMHA_NO_CBLAS
    if (cmha__gemm_cblas(&p)) return;
#endif
    if (M == 1 && (!trans_a || lda == 1)) cmha__gemm_row(&p);
    else if (N == 1 && ldc == 1 && (trans_b || ldb == 1)) { /* turned, it has one row */
        cmha__product turned = {0, !trans_a, 1, M, K, ldb, lda, ldc, alpha, beta, B, A, C};
        cmha__gemm_row(&turned);
    } else cmha__gemm_blocked(&p);
}

/* Deals cmha_gemm to threads: rows of C, or columns where there are clearly more, cut at multiples of 16. */
static void cmha__gemm(int threads, int ta, int tb, size_t M, size_t N, size_t K, cmha_real alpha,
        const cmha_real *A, size_t lda, const cmha_real *B, size_t ldb, cmha_real beta,
        cmha_real *C, size_t ldc) {
    if (2.0 * (double)M * (double)N * (double)K < 262144.0) threads = 1;
    const int by_columns = N / 2 > M;
    const size_t extent = by_columns ? N : M, unit = extent >= 16 * (size_t)threads ? 16 : 1;
    CMHA__FOR_CHUNKS(threads, extent / unit + (extent % unit != 0), first, last) {
        size_t lo = first * unit, n = cmha__min(last * unit, extent) - lo;
        if (by_columns)
            cmha_gemm(ta, tb, M, n, K, alpha, A, lda, B + lo * (tb ? ldb : 1), ldb, beta, C + lo, ldc);
        else
            cmha_gemm(ta, tb, n, N, K, alpha, A + lo * (ta ? 1 : lda), lda, B, ldb, beta, C + lo * ldc, ldc);
    }
}

/* Columns of B to pack at a time for all rows of A: 256 KiB, for a core's cache. 0: leave the product, of few
   rows or a larger B, to cmha__gemm: a CBLAS is faster. */
static size_t cmha__gemm_width(const cmha__product *p) {
    const size_t all = (p->N + 63) / 64 * 64, fit = (256 * 1024 / sizeof *p->B) / (p->K + !p->K) / 64 * 64;
    if (p->trans_a || p->M < 64 || p->N < 32 || p->K < 32) return 0;
    if (all <= fit) return all;
#ifndef CMHA_NO_CBLAS
    if (!cmha__blas_is_behind(p->M)) return 0;
#endif
    return fit ? fit : 64;
}

/* Does what cmha__gemm does by alpha = 1; room [cmha__gemm_width, K], NULL: by cmha__gemm. */
static void cmha__gemm_in(int threads, const cmha__product *p, cmha_real *room) {
    const size_t width = room ? cmha__gemm_width(p) : 0;
    if (!width) {
        cmha__gemm(threads, p->trans_a, p->trans_b, p->M, p->N, p->K, 1, p->A, p->lda, p->B, p->ldb, p->beta,
            p->C, p->ldc);
        return;
    }
    CMHA__IN_PIECES(j, columns, p->N, width) {
        cmha__product part = *p;
        part.N = columns;
        part.B = p->B + j * (p->trans_b ? p->ldb : 1);
        CMHA__FOR_CHUNKS(threads, width / 64, lo, hi) {
            CMHA__CHOOSE(cmha__gemm_pack_columns, (&part, lo * 64, hi * 64, width, room))
        }
        CMHA__FOR_CHUNKS(threads, p->M, lo, hi) {
            const cmha__product rows = {0, 0, hi - lo, part.N, p->K, p->lda, width, p->ldc, 1, p->beta,
                p->A + lo * p->lda, room, p->C + lo * p->ldc + j};
            CMHA__CHOOSE(cmha__gemm_packed, (&rows))
        }
    }
}

/* ================ Vector mathematics ================ */

/* Branch-free: loops over them vectorise. In double, and under CMHA_NO_SIMD, libm's. */

enum { CMHA__LANES = 16 };

#if defined(__GNUC__) || defined(__clang__) || defined(_MSC_VER)
#define CMHA__RESTRICT __restrict /* C99's keyword is none in C++ */
#else
#define CMHA__RESTRICT
#endif
typedef const cmha_real *CMHA__RESTRICT cmha__in; /* an array that nothing else leads to */
typedef cmha_real *CMHA__RESTRICT cmha__out;

static inline uint32_t cmha__bits_of(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}
static inline float cmha__float_of(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

#if defined(CMHA_DOUBLE) || defined(CMHA__SCALAR)
#define CMHA__BY_LIBM
static inline cmha_real cmha__exp(cmha_real x) { return CMHA__LIBM(exp)(x); }
static inline cmha_real cmha__atan2(cmha_real y, cmha_real x) { return CMHA__LIBM(atan2)(y, x); }
static inline void cmha__sincos(cmha_real x, cmha_real *s, cmha_real *c) {
    *s = CMHA__LIBM(sin)(x);
    *c = CMHA__LIBM(cos)(x);
}
/* Phi(x), the normal distribution function, and its density phi(x). */
static inline cmha_real cmha__normal_cdf(cmha_real x, cmha_real *density) {
    *density = (cmha_real)0.3989422804014326779 * cmha__exp(-x * x / 2);
    return CMHA__LIBM(erfc)(-x * (cmha_real)0.7071067811865475244) / 2;
}
static inline cmha_real cmha__inverse_root(cmha_real x) { return 1 / CMHA__LIBM(sqrt)(x); }
static inline cmha_real cmha__square_root(cmha_real x) { return CMHA__LIBM(sqrt)(x); }
#else
/* exp(x) to 2 ulp for -87.3 < x < 88; 0 below, +Inf above, NaN for NaN. */
static inline float cmha__exp(float x) {
    float shifted = x * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: the low bits now hold round(x / ln 2) */
    float n = shifted - 12582912.0f;
    float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = (((0.00139269266f * r + 0.00836377387f) * r + 0.0416665501f) * r + 0.166665734f) * r + 0.5f;
    float scale = cmha__float_of((cmha__bits_of(shifted) - 0x4B400000u + 127u) << 23);
    p = p * r * r + r + 1.0f;
    p = x < -87.3f ? 0.0f : p * scale;
    return x > 89.0f ? INFINITY : p;
}

/* atan2(y, x) to 4 ulp; the signs of zeros and the branch cut are atan2f's. */
static inline float cmha__atan2(float y, float x) {
    float ax = fabsf(x), ay = fabsf(y);
    float large = ax > ay ? ax : ay, least = ax > ay ? ay : ax;
    float a = least / (large == 0.0f ? 1.0f : large), s = a * a;
    float p = (((-0.00170116997f * s + 0.0104876489f) * s - 0.030351864f) * s + 0.0570895552f) * s;
    p = (((p - 0.0834972492f) * s + 0.109323415f) * s - 0.142600161f) * s;
    p = ((p + 0.199980753f) * s - 0.333332763f) * s * a + a;
    p = ay > ax ? 1.57079637f - p : p;
    p = copysignf(1.0f, x) < 0.0f ? 3.14159274f - p : p;
    return copysignf(p, y);
}

/* sin(x) and cos(x) to 2^-23 for |x| < 10^4, bounded beyond. Positions' angles are formed in double. */
static inline void cmha__sincos(float x, float *sine, float *cosine) {
    float shifted = x * 0.636619772f + 12582912.0f;
    float n = shifted - 12582912.0f;
    float r = ((x - n * 1.5703125f) - n * 4.83751297e-4f) - n * 7.54978995e-8f;
    uint32_t q = cmha__bits_of(shifted);
    r = r > 1.0f ? 1.0f : r;
    r = r < -1.0f ? -1.0f : r;
    float s = r * r;
    float si = ((-0.000194972099f * s + 0.00833198364f) * s - 0.166666497f) * s * r + r;
    float co = ((2.45428963e-05f * s - 0.00138882794f) * s + 0.0416666645f) * s * s - 0.5f * s + 1.0f;
    *sine = (q & 1u) ? co : si;
    *cosine = (q & 1u) ? si : co;
    *sine = (q & 2u) ? -*sine : *sine;
    *cosine = ((q + 1u) & 2u) ? -*cosine : *cosine;
}

/* Phi(x) by Abramowitz & Stegun 7.1.26, absolute error 1.5e-7, and the density phi(x). */
static inline float cmha__normal_cdf(float x, float *density) {
    float e = cmha__exp(-0.5f * x * x);
    float t = 1.0f / (1.0f + 0.3275911f * 0.707106781f * fabsf(x));
    float p = (((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t + 0.254829592f;
    p = 0.5f * p * t * e;
    *density = 0.398942280f * e;
    return x < 0.0f ? p : 1.0f - p;
}

/* 1 / sqrt(x) of a normal x > 0 to 3 ulp. It vectorises; libm's sqrt may set errno. */
static inline float cmha__inverse_root(float x) {
    float half = 0.5f * x, y = cmha__float_of(0x5f375a86u - (cmha__bits_of(x) >> 1));
    y *= 1.5f - half * y * y;
    y *= 1.5f - half * y * y;
    return y * (1.5f - half * y * y);
}
/* sqrt(x) of x = 0 or a normal x > 0: one more step of Newton's, away from the inverse root. */
static inline float cmha__square_root(float x) {
    float inverse = cmha__inverse_root(x), root = x * inverse;
    return root + (x - root * root) * inverse / 2;
}
#endif

/* u = z / r, r = sqrt(|z|^2 + eps^2), and 1/r; all 0 where r is. Scaled lest a square leave the range. */
static inline void cmha__phasor(cmha_real re, cmha_real im, cmha_real eps, cmha_real *u_re, cmha_real *u_im,
        cmha_real *inverse) {
    cmha_real a = re < 0 ? -re : re, b = im < 0 ? -im : im, big = a > b ? a : b;
    big = big > eps ? big : eps;
    cmha_real scale = big > CMHA__PHASOR_RANGE ? 1 / CMHA__PHASOR_SCALE : 1;
    const cmha_real much = CMHA__PHASOR_SCALE * (CMHA__PHASOR_SCALE / CMHA__PHASOR_RANGE);
    scale = big < 1 / CMHA__PHASOR_RANGE ? much : scale;
    re *= scale;
    im *= scale;
    eps *= scale;
    cmha_real root = cmha__inverse_root(re * re + im * im + eps * eps);
    root = big < CMHA__SMALLEST ? 0 : root; /* subnormal numbers count as 0: 1/r would overflow */
    *u_re = re * root;
    *u_im = im * root;
    *inverse = root * scale;
}

/* (g - u Re(conj(u) g)) / r, the gradient of z, for one number and its cotangent g; 0 for g = 0. */
typedef struct { cmha_real re, im; } cmha__number;
static inline cmha__number cmha__phasor_backward(cmha_real re, cmha_real im, cmha_real eps, cmha_real gr,
        cmha_real gi) {
    cmha_real ur, ui, inverse;
    cmha__phasor(re, im, eps, &ur, &ui, &inverse);
    cmha_real along = ur * gr + ui * gi;
    cmha__number dz = {(gr - ur * along) * inverse, (gi - ui * along) * inverse};
    return dz;
}

/* Rows of d phasors u = factor z / r. Imaginary parts lie z, u and dz numbers behind the real ones. */
typedef struct {
    size_t d, z, u, dz;
    cmha_real eps, factor;
    int angle; /* see cmha_attention_args */
} cmha__phasor_form;

static inline void cmha__phasor_row(const cmha__phasor_form *p, const cmha_real *z, cmha_real *u) {
    const cmha_real *im = z + p->z, eps = p->eps, factor = p->factor;
    cmha_real *u_im = u + p->u;
    const int angle = p->angle;
    for (size_t j = 0, d = p->d; j < d; j++) {
        cmha_real a, b, inverse, f = angle && z[j] < 0 ? -factor : factor;
        cmha__phasor(z[j], im[j], eps, &a, &b, &inverse);
        u[j] = a * f;
        u_im[j] = b * f;
    }
}

/* Adds the gradient of one row given factor * the cotangent of its phasors. */
static inline void cmha__phasor_row_backward(const cmha__phasor_form *p, const cmha_real *z,
        const cmha_real *g, cmha_real *dz) {
    const cmha_real *im = z + p->z, *g_im = g + p->u, eps = p->eps, factor = p->factor;
    cmha__out dre = dz, dim = dz + p->dz;
    const int angle = p->angle;
    for (size_t j = 0, d = p->d; j < d; j++) {
        cmha_real f = angle && z[j] < 0 ? -factor : factor;
        cmha__number more = cmha__phasor_backward(z[j], im[j], eps, f * g[j], f * g_im[j]);
        dre[j] += more.re;
        dim[j] += more.im;
    }
}

/* Returns sqrt(a^2 + b^2), where neither square may overflow or vanish. It vectorises, unlike libm's. */
static inline cmha_real cmha__hypot(cmha_real a, cmha_real b) {
    cmha_real x = a < 0 ? -a : a, y = b < 0 ? -b : b, large = x > y ? x : y, least = x > y ? y : x;
    cmha_real ratio = least / (large > 0 ? large : 1), root = cmha__square_root(1 + ratio * ratio);
    return large > CMHA__LARGEST ? large : large * root;
}

static inline cmha_real cmha__sigmoid(cmha_real x) { return 1 / (1 + cmha__exp(-x)); }

/* log(1 + exp(x)) to 3 ulp, and its slope. log(1 + e) = 2 artanh(e / (2 + e)): nothing cancels. */
static inline cmha_real cmha__softplus(cmha_real x, cmha_real *slope) {
    cmha_real e = cmha__exp(x < 0 ? x : -x);
    *slope = (x < 0 ? e : 1) / (1 + e);
#ifdef CMHA__BY_LIBM
    return (x < 0 ? 0 : x) + CMHA__LIBM(log1p)(e);
#else
    float z = e / (2 + e), s = z * z, p = ((0.134337741f * s + 0.14116978f) * s + 0.200038354f) * s;
    return (x < 0 ? 0 : x) + (2 * z + 2 * z * (s * (p + 0.333333198f)));
#endif
}

/* tanh(x) to 4 ulp: a polynomial near 0, where the other form would cancel. */
static inline cmha_real cmha__tanh(cmha_real x) {
#ifdef CMHA__BY_LIBM
    return CMHA__LIBM(tanh)(x);
#else
    float a = x < 0 ? -x : x, z = x * x, big = 1 - 2 / (1 + cmha__exp(2 * a));
    float p = (((-0.00570498872f * z + 0.0206390888f) * z - 0.0537397155f) * z + 0.133314422f) * z;
    p -= 0.333332819f;
    big = x < 0 ? -big : big;
    return a < 0.625f ? p * z * x + x : big;
#endif
}

CMHA__HOT(CMHA_DEF, cmha_exp, (size_t n, const cmha_real *x, cmha_real *y), (n, x, y)) {
    for (size_t i = 0; i < n; i++) y[i] = cmha__exp(x[i]);
}

CMHA__HOT(CMHA_DEF, cmha_tanh, (size_t n, const cmha_real *x, cmha_real *y), (n, x, y)) {
    for (size_t i = 0; i < n; i++) y[i] = cmha__tanh(x[i]);
}

/* The derivative of cap tanh(x / cap); 1 - tanh^2 would cancel. */
static inline cmha_real cmha__softcap_slope(cmha_real x, cmha_real cap) {
    cmha_real u = x / cap, e = cmha__exp(u < 0 ? 2 * u : -2 * u);
    return 4 * e / ((1 + e) * (1 + e));
}

CMHA__HOT(CMHA_DEF, cmha_softcap_forward, (const cmha_real *x, size_t n, cmha_real cap, cmha_real *y,
        cmha_real *slope), (x, n, cap, y, slope)) {
    if (slope)
        for (size_t i = 0; i < n; i++) slope[i] = cmha__softcap_slope(x[i], cap);
    for (size_t i = 0; i < n; i++) y[i] = cap * cmha__tanh(x[i] / cap);
}

CMHA__HOT(CMHA_DEF, cmha_modulus, (size_t n, const cmha_real *re, const cmha_real *im, cmha_real *y),
        (n, re, im, y)) {
    for (size_t i = 0; i < n; i++) y[i] = cmha__hypot(re[i], im[i]);
}

static inline cmha_real cmha__fold(const cmha_real *lanes) {
    cmha_real half[CMHA__LANES / 2], quarter[CMHA__LANES / 4];
    for (int l = 0; l < CMHA__LANES / 2; l++) half[l] = lanes[l] + lanes[l + CMHA__LANES / 2];
    for (int l = 0; l < CMHA__LANES / 4; l++) quarter[l] = half[l] + half[l + CMHA__LANES / 4];
    return (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
}

static cmha_real cmha__dot(const cmha_real *a, const cmha_real *b, size_t n) {
    cmha_real lanes[CMHA__LANES] = {0};
    CMHA__IN_LANES(CMHA__LANES, n, lanes[l] += a[i] * b[i])
    return cmha__fold(lanes);
}

static cmha_real cmha__total(const cmha_real *a, size_t n) {
    cmha_real lanes[CMHA__LANES] = {0};
    CMHA__IN_LANES(CMHA__LANES, n, lanes[l] += a[i])
    return cmha__fold(lanes);
}

static inline cmha_real cmha__larger(cmha_real a, cmha_real b) { return a > b ? a : b; }

/* Returns the largest of 64 numbers, lane by lane so that compilers make vectors. */
static inline cmha_real cmha__largest_64(cmha__in a) {
    cmha_real lanes[CMHA__LANES], half[CMHA__LANES / 2], quarter[CMHA__LANES / 4];
    for (int l = 0; l < CMHA__LANES; l++)
        lanes[l] = cmha__larger(cmha__larger(a[l], a[l + CMHA__LANES]),
            cmha__larger(a[l + 2 * CMHA__LANES], a[l + 3 * CMHA__LANES]));
    for (int l = 0; l < CMHA__LANES / 2; l++) half[l] = cmha__larger(lanes[l], lanes[l + CMHA__LANES / 2]);
    for (int l = 0; l < CMHA__LANES / 4; l++) quarter[l] = cmha__larger(half[l], half[l + CMHA__LANES / 4]);
    return cmha__larger(cmha__larger(quarter[0], quarter[2]), cmha__larger(quarter[1], quarter[3]));
}

static cmha_real cmha__largest(const cmha_real *a, size_t n) {
    cmha_real most = CMHA__LOWEST;
    size_t i = 0;
    for (; i + 64 <= n; i += 64) most = cmha__larger(cmha__largest_64(a + i), most);
    for (; i < n; i++) most = cmha__larger(a[i], most);
    return most;
}

/* s = exp(s - shift); returns the sum. */
static inline cmha_real cmha__exp_shifted(cmha_real *s, size_t n, cmha_real shift) {
    cmha_real lanes[CMHA__LANES] = {0};
    CMHA__IN_LANES(CMHA__LANES, n, lanes[l] += s[i] = cmha__exp(s[i] - shift))
    return cmha__fold(lanes);
}

static void cmha__axpy(size_t n, cmha_real a, const cmha_real *x, cmha_real *y) {
    for (size_t i = 0; i < n; i++) y[i] += a * x[i];
}

/* The 32-bit hash lowbias32 (C. Wellons): enough for dropout bits, and it vectorises. */
static inline uint32_t cmha__hash32(uint32_t x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ (x >> 16);
}

/* Multiplies x [n] by keep / (1 - p), bit j from (row, first + j). */
static void cmha__drop_row(cmha_real *x, size_t n, cmha_real p, uint64_t row, uint32_t first) {
    int32_t threshold = (int32_t)((1 - (double)p) * 16777216.0);
    cmha_real factor = 1 / (1 - p);
    uint32_t low = (uint32_t)row, high = (uint32_t)(row >> 32);
    for (size_t j = 0; j < n; j++) {
        uint32_t h = cmha__hash32((first + (uint32_t)j) * 0x9E3779B9u + low) ^ high;
        x[j] *= (int32_t)(cmha__hash32(h) >> 8) < threshold ? factor : 0;
    }
}

/* ================ Tape and engine ================ */

/* Blocks are chained, the newest first; a reset leaves at most one, of the peak size. */
struct cmha_arena_block {
    struct cmha_arena_block *older;
    size_t size, used; /* bytes of `data` */
    size_t taken; /* bytes asked of the allocator; 0 = the block lies in memory of others */
    unsigned char *data;
};

/* How far an arena was filled: a rewind forgets what was taken since. */
typedef struct {
    struct cmha_arena_block *block;
    size_t block_used, used;
} cmha__mark;

static size_t cmha__round64(size_t bytes) { return (bytes + 63) & ~(size_t)63; }

/* An array in a block of memory: where its pointer is kept, how many things of how many bytes. */
typedef struct {
    void *pointer;
    size_t n, size;
} cmha__array;

#define CMHA__ARRAY(array, n) {&(array), n, sizeof *(array)}

/* Counts the bytes of a block for arrays, each on lines of cache of its own. */
static cmha_status cmha__count_arrays(cmha_context *ctx, const char *what, const cmha__array *arrays,
        size_t n, size_t *bytes) {
    size_t one = 0;
    *bytes = 0;
    for (size_t i = 0; i < n; i++)
        if (!cmha__mul(arrays[i].n, arrays[i].size, &one) || one > SIZE_MAX - 63 ||
            !cmha__sum(*bytes, cmha__round64(one), bytes))
            return CMHA__HUGE(ctx, "%s: %zu of %zu bytes overflow", what, arrays[i].n, arrays[i].size);
    return CMHA_OK;
}

/* Takes such a block, unless it is given with 63 bytes to spare. The first array's pointer is the block's. */
static cmha_status cmha__take_arrays(cmha_context *ctx, const char *what, const cmha__array *arrays, size_t n,
        size_t *bytes, void *given) {
    cmha_status status = cmha__count_arrays(ctx, what, arrays, n, bytes);
    char *block = given || status ? (char *)given : (char *)cmha__take(ctx, what, *bytes);
    if (status) return status;
    if (!block) return CMHA_ERR_MEMORY;
    block += cmha__to_line(block);
    for (size_t i = 0; i < n; i++) {
        memcpy(arrays[i].pointer, &block, sizeof block);
        block += cmha__round64(arrays[i].n * arrays[i].size);
    }
    return CMHA_OK;
}

enum { CMHA__BLOCK_OVERHEAD = 128 }; /* the block's own struct and the alignment of its data */

static struct cmha_arena_block *cmha__block_in(void *memory, size_t bytes, size_t taken) {
    struct cmha_arena_block *block = (struct cmha_arena_block *)memset(memory, 0, sizeof *block);
    block->size = bytes;
    block->taken = taken;
    block->data = (unsigned char *)memory + sizeof *block;
    block->data += cmha__to_line(block->data);
    return block;
}

static struct cmha_arena_block *cmha__block_new(cmha_tape *tape, size_t bytes) {
    size_t taken;
    if (!cmha__sum(bytes, CMHA__BLOCK_OVERHEAD, &taken)) taken = SIZE_MAX;
    struct cmha_arena_block *block = (struct cmha_arena_block *)cmha__take(tape->context, "tape", taken);
    return block ? cmha__block_in(block, bytes, taken) : NULL;
}

static void cmha__arena_pop(cmha_tape *tape, cmha_arena *arena) {
    struct cmha_arena_block *older = arena->block->older;
    if (arena->block->taken) cmha__give(tape->context, arena->block, arena->block->taken);
    arena->block = older;
}

static void cmha__arena_close(cmha_tape *tape, cmha_arena *arena) {
    while (arena->block) cmha__arena_pop(tape, arena);
    arena->used = 0;
}

/* Forgets everything. Several blocks make room for one of the size needed, taken at the next use. */
static void cmha__arena_reset(cmha_tape *tape, cmha_arena *arena) {
    arena->used = 0;
    if (arena->peak > arena->reserved) arena->reserved = arena->peak;
    if (arena->block && (arena->block->older || arena->block->size < arena->reserved))
        cmha__arena_close(tape, arena);
    if (arena->block) arena->block->used = 0;
}

/* Takes a block of at least so many bytes for each arena: what follows allocates nothing. */
static cmha_status cmha__reserve(cmha_tape *tape, size_t memory, size_t records) {
    for (int i = 0; i < 2; i++) {
        cmha_arena *arena = i ? &tape->records : &tape->memory;
        size_t bytes = i ? records : memory;
        cmha__arena_reset(tape, arena);
        if (arena->block && arena->block->size >= bytes) continue;
        cmha__arena_close(tape, arena);
        arena->block = cmha__block_new(tape, bytes);
        if (!arena->block) return CMHA_ERR_MEMORY; /* `reserved` stays: smaller passes must go on working */
        arena->reserved = bytes;
    }
    return CMHA_OK;
}

static cmha__mark cmha__arena_mark(const cmha_arena *arena) {
    cmha__mark mark = {arena->block, arena->block ? arena->block->used : 0, arena->used};
    return mark;
}

static void cmha__arena_rewind(cmha_tape *tape, cmha_arena *arena, cmha__mark mark) {
    while (arena->block != mark.block && (mark.block || arena->block->older)) /* the very first block stays */
        cmha__arena_pop(tape, arena);
    if (arena->block) arena->block->used = mark.block_used;
    arena->used = mark.used;
}

static cmha__mark cmha__mark_of(const cmha_tape *tape) { return cmha__arena_mark(&tape->memory); }
static void cmha__rewind(cmha_tape *tape, cmha__mark mark) {
    cmha__arena_rewind(tape, &tape->memory, mark);
}

static uint64_t cmha__draw(cmha_tape *tape) {
    return cmha__mix(cmha__mix(tape->key) + ++tape->draws * CMHA__GOLDEN);
}

CMHA_DEF cmha_status cmha_tape_init(cmha_tape *tape, cmha_context *context, int recording) {
    if (!tape) return CMHA__WRONG(context, "tape: tape is NULL");
    cmha__zero(*tape);
    if (!cmha__is_open(context)) return tape->status = CMHA_ERR_STATE;
    tape->context = context;
    if (recording && !CMHA__TRAINS)
        return tape->status = CMHA__REFUSED(context, "tape: CMHA_INFERENCE_ONLY, no records");
    tape->recording = recording;
    tape->key = cmha__mix(context->config.seed);
    return CMHA_OK;
}

CMHA_DEF void cmha_tape_close(cmha_tape *tape) {
    if (!tape || !tape->context) return;
    cmha__arena_close(tape, &tape->memory);
    cmha__arena_close(tape, &tape->records);
    cmha__zero(*tape);
    tape->status = CMHA_ERR_STATE; /* of every operation that still comes */
}

CMHA_DEF void cmha_tape_reset(cmha_tape *tape) {
    if (!tape || !tape->context) return;
    cmha__arena_reset(tape, &tape->memory);
    cmha__arena_reset(tape, &tape->records);
    tape->last = NULL;
    tape->status = CMHA_OK;
    tape->n_unused = 0;
    tape->draws = tape->section = 0;
    tape->shared.agreed = CMHA_OK;
    tape->key = cmha__mix(tape->key + CMHA__GOLDEN); /* the next pass draws other masks */
}

/* Do operations leave a record? A constant 0 where nothing trains. */
static int cmha__records(const cmha_tape *tape) { return CMHA__TRAINS && tape->recording; }

CMHA_DEF cmha_status cmha_tape_status(const cmha_tape *tape) {
    return tape ? tape->status : CMHA_ERR_ARGUMENT;
}

/* Keeps the tape's first failure, whose line the context has; returns NULL. */
static cmha_tensor *cmha__stop(cmha_tape *tape, cmha_status status) {
    if (tape && tape->status == CMHA_OK) tape->status = status;
    return NULL;
}

/* Returns the context whose line a first failure writes; else NULL. */
static cmha_context *cmha__unfailed(const cmha_tape *tape) {
    return tape && !tape->status ? tape->context : NULL;
}

#define cmha__reject(tape, ...) cmha__stop(tape, cmha__fail(cmha__unfailed(tape), __VA_ARGS__))

#define CMHA__MISFIT(tape, ...) cmha__reject(tape, CMHA_ERR_SHAPE, __VA_ARGS__)
#define CMHA__MISUSE(tape, ...) cmha__reject(tape, CMHA_ERR_ARGUMENT, __VA_ARGS__)
#define CMHA__UNABLE(tape, ...) cmha__reject(tape, CMHA_ERR_STATE, __VA_ARGS__)
#define CMHA__TOO_MUCH(tape, ...) cmha__reject(tape, CMHA_ERR_OVERFLOW, __VA_ARGS__)

CMHA_DEF cmha_tensor *cmha_tape_fail(cmha_tape *tape, cmha_status status, const char *line) {
    if (!status) status = CMHA_ERR_STATE;
    return line ? cmha__reject(tape, status, "%s", line) : cmha__stop(tape, status);
}

static int cmha__dry(const cmha_tape *tape) { return tape->memory.measuring; }
static int cmha__computes(const cmha_tape *tape) { return !tape->status && !cmha__dry(tape); }

#ifdef _OPENMP
/* Begin and end a pass by as many threads as take least time, beside other programs even one: each of
   a token's 40 regions waits for its slowest thread. Now and then half or twice as many are tried, less often
   while nothing changes; what wins twice stays. Chunks, so bits, do not change. */
static double cmha__team_begin(cmha_tape *tape, size_t rows) {
    cmha_team *t = &tape->team;
    const int all = tape->context->threads;
    if (t->rows != rows) {
        const cmha_team whole = {rows, all, 0, 0, CMHA__TEAM_PAUSE, CMHA__TEAM_PAUSE, 0};
        *t = whole;
    }
    if (t->threads == 1 || t->threads == all) t->grows = t->threads == 1;
    cmha__most = cmha__dry(tape) ? 0 : t->threads;
    if (cmha__most && !t->left) cmha__most = t->grows ? 2 * t->threads : (t->threads + 1) / 2;
    if (cmha__most > all) cmha__most = all;
    return omp_get_wtime();
}
static void cmha__team_end(cmha_tape *tape, double start) {
    cmha_team *t = &tape->team;
    const double seconds = omp_get_wtime() - start;
    const int tried = cmha__most, fresh = t->pause == CMHA__TEAM_PAUSE && t->left + 2 > t->pause;
    cmha__most = 0;
    if (!tried) return;
    if (t->left) {
        t->mean += (seconds - t->mean) / (fresh ? 1 : 8); /* the first pass may have cold caches */
        t->left--;
        return;
    }
    t->wins = seconds < 0.9 * t->mean ? t->wins + 1 : 0;
    if (t->wins == 1) return; /* once more */
    if (t->wins) t->threads = tried;
    else t->grows = !t->grows;
    t->left = t->pause = cmha__min(t->wins ? (size_t)CMHA__TEAM_PAUSE : 4 * t->pause, CMHA__TEAM_LONG);
    t->wins = 0;
}
#else
#define cmha__team_begin(tape, rows) 0.0
#define cmha__team_end(tape, start) ((void)(start))
#endif

CMHA_DEF int cmha_tape_measures(const cmha_tape *tape) { return tape && cmha__dry(tape); }

/* Takes bytes of one of the tape's arenas; NULL is kept as a failure. */
static void *cmha__tape_take(cmha_tape *tape, cmha_arena *arena, size_t bytes) {
    size_t end = 0;
    if (!cmha__is_open(tape->context)) return cmha__stop(tape, CMHA_ERR_STATE);
    if (bytes > SIZE_MAX - 64 || !cmha__sum(arena->used, cmha__round64(bytes), &end))
        return CMHA__TOO_MUCH(tape, "tape: %zu bytes more overflow", bytes);
    bytes = cmha__round64(bytes);
    void *memory = (void *)(uintptr_t)(arena->used + 64);
    if (!arena->measuring) {
        struct cmha_arena_block *block = arena->block;
        if (!block || block->size - block->used < bytes) {
            if (arena->fixed)
                return cmha__reject(tape, CMHA_ERR_MEMORY, "tape: its memory has %zu bytes, it takes %zu",
                    block->size, end);
            size_t size = arena->reserved > arena->used ? arena->reserved - arena->used : arena->used / 4;
            if (size < bytes) size = bytes;
            block = cmha__block_new(tape, size < 16384 ? 16384 : size);
            if (!block) return cmha__stop(tape, CMHA_ERR_MEMORY);
            block->older = arena->block;
            arena->block = block;
        }
        memory = block->data + block->used;
        block->used += bytes;
    }
    arena->used = end;
    if (arena->peak < end) arena->peak = end;
    return memory;
}

CMHA_DEF void *cmha_tape_alloc(cmha_tape *tape, size_t bytes) {
    return tape && !tape->status ? cmha__tape_take(tape, &tape->memory, bytes) : NULL;
}

static cmha_real *cmha__reals(cmha_tape *tape, size_t n) {
    return (cmha_real *)cmha_tape_alloc(tape, cmha__times(n, sizeof(cmha_real)));
}

/* Takes zeroed memory for records and tensors: small, and real also in a dry run. */
static void *cmha__record_alloc(cmha_tape *tape, size_t bytes) {
    void *memory = cmha__tape_take(tape, &tape->records, bytes);
    if (memory) memset(memory, 0, bytes);
    return memory;
}

#define CMHA__NEW(tape, type) ((type *)cmha__record_alloc(tape, sizeof(type)))

/* ---- Ranks that share a batch (cmha_trainer_share) ---- */

static int cmha__among_ranks(const cmha_tape *tape) {
    return tape->shared.ranks.ranks > 1 && cmha__records(tape) && !cmha__dry(tape);
}

/* Returns the status of a callback, after a line where it failed. */
static cmha_status cmha__summed(cmha_tape *tape, cmha_status status) {
    return status ? cmha__fail(tape->context, status, "ranks: a sum over them failed") : CMHA_OK;
}

/* Sums n values over the ranks, in messages of one size that begin with how many ranks failed and how many
   have numbers that are not finite: ranks at different places stop together. Returns what is agreed. */
static cmha_status cmha__sum_over_ranks(cmha_tape *tape, cmha_status status, double *values, size_t n) {
    enum { NEWS = 2, MESSAGE = 64 };
    cmha_sharing *s = &tape->shared;
    size_t i = 0, some;
    if (s->ranks.ranks < 2 || s->agreed) return s->agreed ? s->agreed : status;
    do {
        cmha_real message[MESSAGE] = {0};
        some = cmha__min(n - i, MESSAGE - NEWS);
        message[status == CMHA_ERR_NOT_FINITE] = status != CMHA_OK;
        for (size_t j = 0; j < some; j++) message[NEWS + j] = status ? 0 : (cmha_real)values[i + j];
        s->agreed = cmha__summed(tape, s->ranks.reduce(s->ranks.user, message, MESSAGE));
        if (s->agreed) return s->agreed;
        int failed = message[0] > 0, own = status && status != CMHA_ERR_NOT_FINITE;
        if (failed) s->agreed = own ? status : CMHA_ERR_STATE;
        else if (message[1] > 0) s->agreed = CMHA_ERR_NOT_FINITE;
        if (s->agreed && s->agreed != status)
            cmha__fail(tape->context, s->agreed, "ranks: another one %s",
                failed ? "has failed" : "has numbers that are not finite");
        if (s->agreed) return s->agreed;
        for (size_t j = 0; j < some; j++) values[i + j] = message[NEWS + j];
        i += some;
    } while (i < n);
    return CMHA_OK;
}

/* Makes sums of a rank's part of a batch those of the whole batch. */
static void cmha__over_ranks(cmha_tape *tape, double *values, size_t n) {
    if (cmha__among_ranks(tape) && !tape->status)
        cmha__stop(tape, cmha__sum_over_ranks(tape, CMHA_OK, values, n));
}

/* Returns the index that the first number of x [batch, ..] has in the whole batch. */
static size_t cmha__first_number(const cmha_tape *tape, const cmha_tensor *x) {
    return cmha__among_ranks(tape) && x->shape[0] ? tape->shared.first * (x->size / x->shape[0]) : 0;
}

/* Makes a tensor without data, so small that operations need not check its rows or bytes. */
static cmha_tensor *cmha__tensor_shaped(cmha_tape *tape, int rank, const size_t *shape) {
    size_t extent = 1;
    if (!tape || tape->status) return NULL;
    if (rank < 1 || rank > CMHA_MAX_RANK) return CMHA__MISFIT(tape, "tensor: rank = %d is not 1 to 4", rank);
    if (!shape) return CMHA__MISUSE(tape, "tensor: shape is NULL");
    cmha_tensor *t = CMHA__NEW(tape, cmha_tensor);
    if (!t) return NULL;
    t->rank = rank;
    t->size = 1;
    for (int i = 0; i < rank; i++) {
        t->shape[i] = shape[i];
        t->size *= shape[i];
        if (!cmha__mul(extent, shape[i] ? shape[i] : 1, &extent) || extent > SIZE_MAX / 64)
            return CMHA__TOO_MUCH(tape, "tensor: axis %d of %zu overflows", i, shape[i]);
    }
    return t;
}

static cmha_tensor *cmha__result(cmha_tape *tape, int rank, const size_t *shape) {
    cmha_tensor *t = cmha__tensor_shaped(tape, rank, shape);
    if (t) t->data = cmha__reals(tape, t->size);
    return t && t->data ? t : NULL;
}

CMHA_DEF cmha_tensor *cmha_tensor_new(cmha_tape *tape, int rank, const size_t *shape, int needs_grad) {
    cmha_tensor *t = cmha__result(tape, rank, shape);
    if (!t) return NULL;
    if (!cmha__dry(tape)) cmha__zeros(t->data, t->size);
    t->needs_grad = needs_grad != 0;
    return t;
}

CMHA_DEF cmha_tensor *cmha_tensor_wrap(cmha_tape *tape, int rank, const size_t *shape, cmha_real *data,
        cmha_real *grad) {
    cmha_tensor *t = cmha__tensor_shaped(tape, rank, shape);
    if (!t) return NULL;
    if (!data && t->size) return CMHA__MISUSE(tape, "tensor: data is NULL");
    t->data = data;
    t->grad = grad;
    t->needs_grad = grad != NULL;
    return t;
}

/* Refuses packed inputs but, at the bits of `taken`, matrices as they were packed, turned or not. */
static cmha_status cmha__check_packed(cmha_tape *tape, const char *name, cmha_tensor *const *in, int n,
        int taken, int turned) {
    for (int i = 0; i < n; i++) {
        const cmha_tensor *t = in[i];
        const cmha_packed *p = t ? t->packed : NULL;
        if (!p) continue;
        const size_t last = t->shape[t->rank - 1], C = turned ? last : 0, I = turned ? t->shape[1] : last;
        if (taken >> i & 1 && p->turned == C && p->n_in == I && p->n_out * I == t->size) continue;
        CMHA__UNABLE(tape, "%s: input %d is packed", name, i);
    }
    return tape->status;
}

CMHA_DEF cmha_tensor *cmha_tape_push(cmha_tape *tape, const char *name, cmha_tensor *out,
        cmha_tensor *const *in, int n_in, cmha_backward_fn backward, void *user) {
    int wanted = 0;
    if (!tape || tape->status || !out) return NULL;
    if (!cmha__is_open(tape->context)) return cmha__stop(tape, CMHA_ERR_STATE);
    if (n_in < 0 || n_in > CMHA_MAX_INPUTS || (n_in && !in))
        return CMHA__MISUSE(tape, "push: n_in = %d of 0 to %d%s", n_in, CMHA_MAX_INPUTS,
            in ? "" : ", in is NULL");
    for (int i = 0; i < n_in; i++) wanted |= in[i] && in[i]->needs_grad;
    if (cmha__records(tape) && cmha__check_packed(tape, name ? name : "push", in, n_in, 0, 0)) return NULL;
    if (!cmha__records(tape) || !wanted || !backward) return out;
    cmha_record *record = CMHA__NEW(tape, cmha_record);
    if (!record) return NULL;
    record->name = name;
    record->backward = backward;
    record->user = user;
    record->out = out;
    record->n_in = n_in;
    cmha__copy(record->in, in, (size_t)n_in);
    record->previous = tape->last;
    record->section = tape->section;
    tape->last = record;
    if (!out->grad) out->needs_grad = 2;
    return out;
}

/* Writes zeros: large arrays by all threads, for the bandwidth. */
static void cmha__clear(int threads, cmha_real *x, size_t n) {
    CMHA__FOR_CHUNKS(n > 65536 ? threads : 1, n, lo, hi) { cmha__zeros(x + lo, hi - lo); }
}

/* Returns the gradient of t. A fresh one holds no numbers yet: the caller writes instead of adding. */
static cmha_real *cmha__grad_fresh(cmha_tape *tape, cmha_tensor *t, int *fresh) {
    *fresh = 0;
    if (!t || !t->needs_grad || !tape || tape->status) return NULL;
    if (t->grad) return t->grad;
    *fresh = 1;
    for (int i = 0; i < tape->n_unused; i++)
        if (tape->unused[i].bytes == cmha__round64(t->size * sizeof *t->grad)) {
            t->grad = (cmha_real *)tape->unused[i].memory;
            tape->unused[i] = tape->unused[--tape->n_unused];
            return t->grad;
        }
    return t->grad = cmha__reals(tape, t->size);
}

CMHA__FIT cmha_real *cmha_tape_grad(cmha_tape *tape, cmha_tensor *t) {
    int fresh;
    cmha_real *grad = cmha__grad_fresh(tape, t, &fresh);
    if (grad && fresh && !cmha__dry(tape)) cmha__clear(tape->context->threads, grad, t->size);
    return grad;
}

/* Passes out's gradient to `in` unchanged: moves the buffer if it can, else adds. Call it last. */
static void cmha__pass_grad(cmha_tape *tape, cmha_tensor *out, cmha_tensor *in) {
    if (!in || !in->needs_grad) return;
    if (!in->grad && in->needs_grad == 2 && out->needs_grad == 2 && in->size == out->size) {
        in->grad = out->grad;
        out->grad = NULL;
        return;
    }
    cmha_real *grad = cmha_tape_grad(tape, in);
    if (!grad || cmha__dry(tape)) return;
    CMHA__FOR_CHUNKS(tape->context->threads, in->size, lo, hi) {
        cmha__axpy(hi - lo, 1, out->grad + lo, grad + lo);
    }
}

/* Begins to sum the gradients that are whole where only sections below `section` are left, from the last
   parameter on: on all ranks the same sums, of 65536 numbers or more but the last. */
static cmha_status cmha__begin_sums(cmha_tape *tape, size_t section) {
    cmha_sharing *s = &tape->shared;
    const cmha_parameters *p = s->parameters;
    cmha_status status = CMHA_OK;
    while (s->left && p->list[s->left - 1].section >= section && !status) {
        const cmha_parameter *one = &p->list[--s->left];
        size_t begin = s->left ? one->place : 0, least = s->left ? 65536 : 1;
        if ((one->frozen && s->left) || s->begun - begin < least) continue;
        status = cmha__summed(tape, s->ranks.begin(s->ranks.user, p->grad + begin, s->begun - begin));
        s->begun = begin;
    }
    cmha__stop(tape, status);
    return status;
}

/* Walks the records back and forgets them. Memory of gradients passed on serves again. */
static cmha_status cmha__walk(cmha_tape *tape) {
    const cmha_ranks *ranks = tape->shared.begins ? &tape->shared.ranks : NULL;
    for (cmha_record *record = tape->last; record; record = record->previous) {
        cmha_tensor *out = record->out;
        cmha_status status = ranks ? cmha__begin_sums(tape, record->section + 1) : CMHA_OK;
        if (!status && ranks) status = ranks->wait(ranks->user, 0);
        if (!status && !out->grad) continue; /* the loss does not depend on it */
        if (!status) status = record->backward(tape, record);
        if (status)
            cmha__reject(tape, status, "backward of %s: %s", record->name ? record->name : "an operation",
                cmha_status_string(status));
        if (tape->status) return tape->status;
        if (!out->grad || out->needs_grad != 2) continue;
        if (tape->n_unused < CMHA_MAX_FREE) {
            tape->unused[tape->n_unused].memory = out->grad;
            tape->unused[tape->n_unused++].bytes = cmha__round64(out->size * sizeof *out->grad);
        }
        out->grad = NULL;
    }
    tape->last = NULL;
    return CMHA_OK;
}

CMHA__FIT cmha_status cmha_tape_backward(cmha_tape *tape, cmha_tensor *loss, cmha_real seed) {
    if (!tape) return CMHA_ERR_ARGUMENT;
    if (!tape->context) tape->status = CMHA_ERR_STATE;
    if (!loss) CMHA__MISFIT(tape, "backward: loss is NULL");
    else if (loss->size != 1) CMHA__MISFIT(tape, "backward: loss has %zu numbers, not 1", loss->size);
    if (tape->status) return tape->status;
    if (!loss->needs_grad) return CMHA_OK; /* depends on nothing that learns */
    cmha_real *grad = cmha_tape_grad(tape, loss);
    if (!grad) return tape->status;
    if (!cmha__dry(tape)) grad[0] += seed;
    return cmha__walk(tape);
}

/* ---- The engine of operations ---- */

/* A cmha__op describes an operation on rows one by one, or on all as one piece of work (its `shape` sets
   rows = 1). cmha__run does the rest: NULL and failures, the dry run, the result, threads' rows and sums, the
   record. Other operations push their own (cmha_tape_push). */
typedef struct cmha__call cmha__call;

enum {
    CMHA__PLANES = 1, /* rows of input 0 are [Re (D) | Im (D)]: an odd width is refused, D is half of it */
    CMHA__ALIKE = 2, /* input 1 has the shape of input 0 */
    CMHA__EPS = 4, /* `number` is an epsilon, at least 0 */
    CMHA__NUMBERS = 8, /* every number is a row of its own */
    CMHA__PASSED = 16, /* the gradient of input 0 is the result's, handed over after the backward */
    CMHA__WHOLE = 32, /* pointers stay at their tensors' beginnings: the pass finds its rows */
    CMHA__SCRATCH = 128, /* the pass, all in one, takes scratch of the tape: a dry run asks it to */
    CMHA__FRESH = 256, /* the first gradient that is not passed may hold no numbers yet: see `fresh` */
    CMHA__UNPACKS = 512 /* times 2^i: input i may be packed, where `kind` is not 0 turned */
};

enum { CMHA__OP_INPUTS = 6 };

typedef struct {
    const char *name;
    /* Forward: writes y. Backward (cmha__goes_back): adds to dx, of which some may be NULL, never all. */
    void (*pass)(const cmha__call *call);
    void (*shape)(cmha__call *call); /* changes rank, shape and rows, or rejects. NULL: those of input 0 */
    int needed; /* so many inputs must be there, others may be NULL */
    int flags;
    int kinds; /* `kind` lies below; 0 = not read */
    /* Numbers for each of the D channels of inputs 1 and 2 where all rows share them; -n: n in all; 0: rows
       like input 0. Their gradients are summed by thread, then in order. */
    int shared[2];
    size_t kept; /* of each row, which the forward writes and the backward reads, in bytes */
} cmha__op;

/* One call. A pass gets a copy whose pointers stand at its first row. */
struct cmha__call {
    const cmha__op *op;
    cmha_tape *tape;
    cmha_tensor *in[CMHA__OP_INPUTS], *out;
    int kind; /* options, the operation's own */
    cmha_real number, second;
    size_t count;
    uint64_t key;
    const void *given; /* an array of the caller's, which stays valid until the backward */
    int threads; /* of the context */
    int rank; /* of the result */
    size_t shape[CMHA_MAX_RANK], rows;
    size_t D; /* numbers in a row of input 0, or complex numbers */
    size_t lo, n; /* rows lo .. lo + n - 1 are to be computed */
    const cmha_real *x[CMHA__OP_INPUTS], *dy;
    cmha_real *y, *dx[CMHA__OP_INPUTS];
    int fresh; /* 1: the pass writes that gradient instead of adding to it */
    void *kept;
};

/* Is this the backward? Never where nothing trains: the compiler leaves its code out. */
static inline int cmha__goes_back(const cmha__call *c) { return CMHA__TRAINS && c->dy; }

static size_t cmha__last(const cmha_tensor *t) { return t->shape[t->rank - 1]; }
static size_t cmha__rows(const cmha_tensor *t) {
    size_t rows = 1;
    for (int i = 0; i + 1 < t->rank; i++) rows *= t->shape[i]; /* not size / last, which may be 0 / 0 */
    return rows;
}
static int cmha__same_shape(const cmha_tensor *a, const cmha_tensor *b) {
    return a->rank == b->rank && !memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape);
}

/* Is the tape without a failure, and z there and rows of complex numbers? */
static int cmha__is_planes(cmha_tape *tape, const cmha_tensor *z, const char *name) {
    if (!tape || tape->status || !z) return 0;
    if (cmha__last(z) % 2)
        CMHA__MISFIT(tape, "%s: rows of %zu numbers, odd, are not complex", name, cmha__last(z));
    return !tape->status;
}

/* Refuses a tensor, if it is there, of another size. */
static int cmha__holds(cmha_tape *tape, const char *what, const cmha_tensor *t, size_t need) {
    if (t && t->size != need) CMHA__MISFIT(tape, "%s has %zu numbers, it needs %zu", what, t->size, need);
    return !tape->status;
}

/* Refuses input i for its shape; `must` names the other. */
static void cmha__unfit(const cmha__call *c, const char *name, int i, const char *must, int other) {
    const cmha_tensor *t = c->in[i], *to = c->in[other];
    char its[80], others[80];
    CMHA__MISFIT(c->tape, "%s: %s [%s] %s [%s]", c->op->name, name, cmha__shape_text(t->shape, t->rank, its),
        must, cmha__shape_text(to->shape, to->rank, others));
}

static int cmha__is_shared(const cmha__call *c, int i) { return i > 0 && i < 3 && c->op->shared[i - 1]; }

/* Sets the result's shape, or rejects inputs and options. */
static void cmha__call_shape(cmha__call *c) {
    const cmha__op *op = c->op;
    const cmha_tensor *x = c->in[0], *y = c->in[1];
    size_t width = cmha__last(x);
    c->rank = x->rank;
    memcpy(c->shape, x->shape, sizeof c->shape);
    c->rows = op->flags & CMHA__NUMBERS ? x->size : cmha__rows(x);
    c->D = op->flags & CMHA__PLANES ? width / 2 : width;
    if (op->flags & CMHA__PLANES) cmha__is_planes(c->tape, x, op->name);
    if ((op->flags & CMHA__ALIKE) && !cmha__same_shape(x, y))
        cmha__unfit(c, "an input", 1, "differs in shape from", 0);
    for (int i = 1; i < 3; i++) {
        int shared = op->shared[i - 1];
        size_t need = shared < 0 ? (size_t)-shared : (size_t)shared * c->D;
        if (shared && c->in[i] && c->in[i]->size != need)
            CMHA__MISFIT(c->tape, "%s: input %d has %zu numbers, rows of %zu need %zu", op->name, i,
                c->in[i]->size, width, need);
    }
    if (op->kinds && (c->kind < 0 || c->kind >= op->kinds))
        CMHA__MISUSE(c->tape, "%s: there is no kind %d", op->name, c->kind);
    if ((op->flags & CMHA__EPS) && !(c->number >= 0)) /* NaN too */
        CMHA__MISUSE(c->tape, "%s: eps = %g must be at least 0", op->name, (double)c->number);
    cmha__check_packed(c->tape, op->name, c->in, CMHA__OP_INPUTS, op->flags / CMHA__UNPACKS, c->kind);
    if (op->shape && !c->tape->status) op->shape(c);
}

/* Returns the call for rows lo .. hi - 1 alone. Gradients of shared inputs go to the thread's own sums. */
static cmha__call cmha__call_at(const cmha__call *call, size_t lo, size_t hi, cmha_real *own) {
    cmha__call c = *call;
    size_t at = c.op->flags & CMHA__WHOLE ? 0 : lo, step = c.out->size / c.rows;
    c.lo = lo;
    c.n = hi - lo;
    if (c.y) c.y += at * step;
    if (c.dy) c.dy += at * step;
    if (c.kept) c.kept = (char *)c.kept + at * c.op->kept;
    for (int i = 0; i < CMHA__OP_INPUTS; i++) {
        int shared = cmha__is_shared(&c, i);
        step = c.in[i] && !shared ? c.in[i]->size / c.rows : 0;
        if (c.x[i]) c.x[i] += at * step;
        if (c.dx[i] && shared) {
            c.dx[i] = own;
            own += c.in[i]->size;
        } else if (c.dx[i]) c.dx[i] += at * step;
    }
    return c;
}

/* Runs the pass, rows dealt to threads, unless the work is little and no sum depends on that; a single one
   outside of their loop, where it can use them and take scratch, which is given back. */
static void cmha__call_rows(const cmha__call *c, cmha_real *own, size_t sums) {
    int little = c->out->size < 4096 && !c->op->shared[0] && !c->op->shared[1];
    if (c->tape->status || (cmha__dry(c->tape) && !(c->op->flags & CMHA__SCRATCH))) return;
    if (c->rows == 1) {
        cmha__mark mark = cmha__mark_of(c->tape);
        cmha__call one = cmha__call_at(c, 0, 1, own);
        c->op->pass(&one);
        cmha__rewind(c->tape, mark);
        return;
    }
    CMHA__FOR_CHUNKS(little ? 1 : c->threads, c->rows, lo, hi) {
        cmha__call mine = cmha__call_at(c, lo, hi, cmha__at(own, (size_t)cmha__chunk * sums));
        c->op->pass(&mine);
    }
}

static cmha_status cmha__call_backward(cmha_tape *tape, cmha_record *r) {
    cmha__call c = *(const cmha__call *)r->user;
    int passed = (c.op->flags & CMHA__PASSED) != 0, wanted = 0;
    size_t sums = 0;
    c.dy = r->out->grad;
    for (int i = CMHA__OP_INPUTS; i-- > passed;) { /* the fresh one last */
        int fresh = i == passed && c.op->flags & CMHA__FRESH;
        c.dx[i] = fresh ? cmha__grad_fresh(tape, c.in[i], &c.fresh) : cmha_tape_grad(tape, c.in[i]);
        wanted |= c.dx[i] != NULL;
        if (c.dx[i] && cmha__is_shared(&c, i)) sums += c.in[i]->size;
    }
    cmha__mark mark = cmha__mark_of(tape);
    size_t all = (size_t)c.threads * sums;
    cmha_real *own = all ? cmha__reals(tape, all) : NULL;
    if (!cmha__computes(tape)) all = 0;
    cmha__zeros(own, all);
    if (wanted) cmha__call_rows(&c, own, sums);
    for (size_t at = 0; at < all;)
        for (int i = 1; i < CMHA__OP_INPUTS; i++) {
            if (!c.dx[i] || !cmha__is_shared(&c, i)) continue;
            cmha__axpy(c.in[i]->size, 1, own + at, c.dx[i]);
            at += c.in[i]->size;
        }
    cmha__rewind(tape, mark);
    if (passed) cmha__pass_grad(tape, r->out, c.in[0]);
    return tape->status;
}

/* Computes and records a call. NULL after a failure, or if an input is missing. */
static cmha_tensor *cmha__run(cmha_tape *tape, cmha__call *c) {
    cmha__call *saved = NULL;
    if (!tape || tape->status) return NULL;
    for (int i = 0; i < c->op->needed; i++)
        if (!c->in[i]) return NULL;
    c->tape = tape;
    c->threads = tape->context ? tape->context->threads : 1;
    cmha__call_shape(c);
    c->out = cmha__result(tape, c->rank, c->shape);
    if (c->out && c->op->kept) c->kept = cmha_tape_alloc(tape, c->rows * c->op->kept);
    if (tape->status) return NULL;
    c->y = c->out->data;
    for (int i = 0; i < CMHA__OP_INPUTS; i++) c->x[i] = c->in[i] ? c->in[i]->data : NULL;
    cmha__call_rows(c, NULL, 0);
    if (cmha__records(tape)) saved = CMHA__NEW(tape, cmha__call);
    if (saved) *saved = *c;
    return cmha__push(tape, c->op->name, c->out, c->in, CMHA__OP_INPUTS, cmha__call_backward, saved);
}

static cmha__call cmha__call_of(const cmha__op *op, cmha_tensor *a, cmha_tensor *b, cmha_tensor *c) {
    cmha__call call;
    cmha__zero(call);
    call.op = op;
    call.in[0] = a;
    call.in[1] = b;
    call.in[2] = c;
    return call;
}

/* Runs a call of three inputs whose options are a kind and a number. */
static cmha_tensor *cmha__operate_on(cmha_tape *tape, const cmha__op *op, int kind, cmha_real number,
        cmha_tensor *const *in) {
    cmha__call call = cmha__call_of(op, in[0], in[1], in[2]);
    call.kind = kind;
    call.number = number;
    return cmha__run(tape, &call);
}
static cmha_tensor *cmha__operate(cmha_tape *tape, const cmha__op *op, int kind, cmha_real number,
        cmha_tensor *a, cmha_tensor *b) {
    cmha_tensor *in[3] = {a, b, NULL};
    return cmha__operate_on(tape, op, kind, number, in);
}

/* Runs a call of one input whose options are a kind, a caller's array and a whole number. */
static cmha_tensor *cmha__operate_by(cmha_tape *tape, const cmha__op *op, cmha_tensor *x, int kind,
        const void *given, size_t count) {
    cmha__call call = cmha__call_of(op, x, NULL, NULL);
    call.kind = kind;
    call.given = given;
    call.count = count;
    return cmha__run(tape, &call);
}

/* An operation that has no more than this; the body of one, `run` being one of these three; and a call. */
#define CMHA__OP(name, pass, shape, needed, flags) {name, pass, shape, needed, flags, 0, {0, 0}, 0}
#define CMHA__RUNS(run, name, pass, shape, needed, flags, ...) \
    static const cmha__op op = CMHA__OP(name, pass, shape, needed, flags); \
    return run(tape, &op, __VA_ARGS__)
#define CMHA__CALL(name, pass, shape, needed, flags, a, b, c) \
    static const cmha__op op = CMHA__OP(name, pass, shape, needed, flags); \
    cmha__call call = cmha__call_of(&op, a, b, c)

/* A call of two inputs without a tape, for an operation's kernel pair. */
static cmha__call cmha__kernel(const cmha__op *op, size_t T, size_t D, const cmha_real *a,
        const cmha_real *b) {
    cmha__call c = cmha__call_of(op, NULL, NULL, NULL);
    c.n = T;
    c.D = D;
    c.x[0] = a;
    c.x[1] = b;
    return c;
}

/* Defines such an operation's kernel pair and its function on a tape. Its kind and number are constants or
   among the options, which are parameters behind a comma, or nothing. */
#define CMHA__PAIRED(name, op, options, kind_, number_) \
    CMHA_DEF void name##_forward(const cmha_real *a, const cmha_real *b, size_t T, size_t D options, \
            cmha_real *y) { \
        cmha__call c = cmha__kernel(&op, T, D, a, b); \
        c.kind = kind_; \
        c.number = number_; \
        c.y = y; \
        op.pass(&c); \
    } \
    CMHA__FIT void name##_backward(const cmha_real *a, const cmha_real *b, const cmha_real *dy, size_t T, \
            size_t D options, cmha_real *da, cmha_real *db) { \
        cmha__call c = cmha__kernel(&op, T, D, a, b); \
        c.kind = kind_; \
        c.number = number_; \
        c.dy = dy; \
        c.dx[0] = da; \
        c.dx[1] = db; \
        op.pass(&c); \
    } \
    CMHA_DEF cmha_tensor *name(cmha_tape *tape, cmha_tensor *a, cmha_tensor *b options) { \
        return cmha__operate(tape, &op, kind_, number_, a, b); \
    }
#define CMHA__NO_OPTIONS
#define CMHA__QUOTIENT_OPTIONS , cmha_quotient_kind kind, cmha_real eps

/* ================ Operations ================ */

/* ---- Common: elements, products, shapes ---- */

static void cmha__add_pass(const cmha__call *c) {
    if (cmha__goes_back(c)) cmha__axpy(c->n, 1, c->dy, c->dx[1]);
    else
        for (size_t i = 0; i < c->n; i++) c->y[i] = c->x[0][i] + c->x[1][i];
}

CMHA_DEF cmha_tensor *cmha_add(cmha_tape *tape, cmha_tensor *a, cmha_tensor *b) {
    CMHA__RUNS(cmha__operate, "add", cmha__add_pass, NULL, 2, CMHA__ALIKE | CMHA__NUMBERS | CMHA__PASSED, 0,
            0, a, b);
}

/* Sets how far an index of each axis of `a` moves in b, 0 where b repeats; 0 where b does not fit. */
static int cmha__repeats(const cmha_tensor *a, const cmha_tensor *b, size_t *stride) {
    size_t step = 1;
    if (b->rank > a->rank) return 0;
    for (int d = a->rank - 1, e = b->rank - 1; d >= 0; d--, e--) {
        size_t n = e < 0 ? 1 : b->shape[e];
        if (n != 1 && n != a->shape[d]) return 0;
        stride[d] = n == 1 ? 0 : step;
        step *= n;
    }
    return 1;
}
/* kind: does b repeat? One thread walks all then: rows of `a` add to the same gradients of b. */
static void cmha__mul_shape(cmha__call *c) {
    size_t stride[CMHA_MAX_RANK];
    if (cmha__same_shape(c->in[0], c->in[1])) return;
    if (!cmha__repeats(c->in[0], c->in[1], stride))
        cmha__unfit(c, "b", 1, "does not repeat to a", 0);
    c->kind = 1;
    c->rows = 1;
}
static void cmha__mul_repeated(const cmha__call *c) {
    const cmha_tensor *a = c->in[0];
    const int last = a->rank - 1;
    size_t stride[CMHA_MAX_RANK], T = cmha__rows(a), D = c->D;
    cmha__repeats(a, c->in[1], stride);
    for (size_t t = 0, i = 0; t < T; t++) {
        size_t at = 0, rest = t;
        for (int d = last - 1; d >= 0; d--) {
            at += rest % a->shape[d] * stride[d];
            rest /= a->shape[d];
        }
        for (size_t end = i + D; i < end; i++, at += stride[last]) {
            if (!cmha__goes_back(c)) c->y[i] = c->x[0][i] * c->x[1][at];
            if (c->dx[0]) c->dx[0][i] += c->dy[i] * c->x[1][at];
            if (c->dx[1]) c->dx[1][at] += c->dy[i] * c->x[0][i];
        }
    }
}
CMHA__HOT_OP(cmha__mul_pass) {
    if (c->kind) {
        cmha__mul_repeated(c);
        return;
    }
    if (!cmha__goes_back(c))
        for (size_t i = 0; i < c->n; i++) c->y[i] = c->x[0][i] * c->x[1][i];
    for (int k = 0; k < 2; k++)
        if (c->dx[k])
            for (size_t i = 0; i < c->n; i++) c->dx[k][i] += c->dy[i] * c->x[1 - k][i];
}

CMHA_DEF cmha_tensor *cmha_mul(cmha_tape *tape, cmha_tensor *a, cmha_tensor *b) {
    CMHA__RUNS(cmha__operate, "mul", cmha__mul_pass, cmha__mul_shape, 2, CMHA__NUMBERS, 0, 0, a, b);
}

/* Defines an operation on numbers one by one: y[i] = value; the gradient of x[i] gets `more`. Both are
   expressions of x[i], y[i], dy[i] and the call's number a. */
#define CMHA__ON_NUMBERS(name, shape, value, more) \
    CMHA__HOT_OP(cmha__##name##_pass) { \
        const cmha_real a = c->number, *x = c->x[0], *dy = c->dy; \
        cmha_real *y = c->y, *dx = c->dx[0]; \
        (void)a; \
        if (!cmha__goes_back(c)) \
            for (size_t i = 0; i < c->n; i++) y[i] = value; \
        else \
            for (size_t i = 0; i < c->n; i++) dx[i] += more; \
    } \
    static const cmha__op cmha__##name##_op = CMHA__OP(#name, cmha__##name##_pass, shape, 1, CMHA__NUMBERS);

/* number: the cap */
static void cmha__softcap_shape(cmha__call *c) {
    if (!(c->number > 0 && c->number <= CMHA__LARGEST))
        CMHA__MISUSE(c->tape, "softcap: cap = %g is out of range", (double)c->number);
}
CMHA__ON_NUMBERS(scale, NULL, a * x[i], a * dy[i])
CMHA__ON_NUMBERS(sigmoid, NULL, cmha__sigmoid(x[i]), dy[i] * y[i] * (1 - y[i]))
CMHA__ON_NUMBERS(exponential, NULL, cmha__exp(x[i]), dy[i] * y[i])
CMHA__ON_NUMBERS(tanh, NULL, cmha__tanh(x[i]), dy[i] * (1 - y[i] * y[i]))
CMHA__ON_NUMBERS(softcap, cmha__softcap_shape, a * cmha__tanh(x[i] / a), dy[i] * cmha__softcap_slope(x[i], a))

CMHA_DEF cmha_tensor *cmha_scale(cmha_tape *tape, cmha_tensor *x, cmha_real factor) {
    return cmha__operate(tape, &cmha__scale_op, 0, factor, x, NULL);
}
CMHA_DEF cmha_tensor *cmha_sigmoid(cmha_tape *tape, cmha_tensor *x) {
    return cmha__operate(tape, &cmha__sigmoid_op, 0, 0, x, NULL);
}
CMHA_DEF cmha_tensor *cmha_exponential(cmha_tape *tape, cmha_tensor *x) {
    return cmha__operate(tape, &cmha__exponential_op, 0, 0, x, NULL);
}
CMHA_DEF cmha_tensor *cmha_softcap(cmha_tape *tape, cmha_tensor *x, cmha_real cap) {
    return cmha__operate(tape, &cmha__softcap_op, 0, cap, x, NULL);
}

/* kind: is it causal? given: the mask. */
static void cmha__softmax_shape(cmha__call *c) {
    if (c->rank < 2) CMHA__MISFIT(c->tape, "softmax: scores must be [.., M, K], not of rank %d", c->rank);
}
static void cmha__softmax_pass(const cmha__call *c) {
    const cmha_tensor *x = c->in[0];
    size_t K = c->D, M = x->shape[x->rank - 2];
    for (size_t r = 0; r < c->n; r++) {
        size_t row = c->lo + r, i = row % M, seen = K, batch = x->rank > 2 ? x->shape[0] : 1;
        const unsigned char *mask = (const unsigned char *)c->given;
        if (mask) mask += row / (cmha__rows(x) / batch) * K;
        const cmha_real *s = c->x[0] + r * K;
        cmha_real *y = c->y + r * K, top = -CMHA__LARGEST, sum = 0;
        if (cmha__goes_back(c)) {
            const cmha_real *dy = c->dy + r * K;
            cmha_real along = cmha__dot(y, dy, K), rest = 0; /* what it was rounded by */
            for (size_t j = 0; j < K; j++) rest += y[j] * (dy[j] - along);
            for (size_t j = 0; j < K; j++) c->dx[0][r * K + j] += y[j] * (dy[j] - along - rest);
            continue;
        }
        if (c->kind) seen = i + K >= M ? i + K - M + 1 : 0;
        for (size_t j = 0; j < seen; j++)
            if ((!mask || mask[j]) && s[j] > top) top = s[j];
        for (size_t j = 0; j < K; j++) {
            y[j] = j < seen && (!mask || mask[j]) ? cmha__exp(s[j] - top) : 0;
            sum += y[j];
        }
        for (size_t j = 0; j < K; j++) y[j] /= sum != 0 ? sum : 1;
    }
}

CMHA_DEF cmha_tensor *cmha_softmax_rows(cmha_tape *tape, cmha_tensor *x, int causal,
        const unsigned char *key_mask) {
    CMHA__RUNS(cmha__operate_by, "softmax", cmha__softmax_pass, cmha__softmax_shape, 1, 0, x, causal != 0,
            key_mask, 0);
}

/* kind: is b transposed? count: how many products of [M, K] by [K, N]. One matrix for all is one product. */
static void cmha__matmul_shape(cmha__call *c) {
    const cmha_tensor *a = c->in[0], *b = c->in[1];
    if (a->rank < 2 || b->rank < 2 || c->D != b->shape[b->rank - (c->kind ? 1 : 2)] || (b->rank > 2 &&
        (a->rank != b->rank || memcmp(a->shape, b->shape, (size_t)(a->rank - 2) * sizeof *a->shape)))) {
        cmha__unfit(c, "a", 0, c->kind ? "does not fit transposed b" : "does not fit b", 1);
        return;
    }
    c->shape[c->rank - 1] = b->shape[b->rank - (c->kind ? 2 : 1)];
    c->rows = c->count = 1;
    if (b->rank > 2)
        for (int d = 0; d + 2 < a->rank; d++) c->count *= a->shape[d];
}
static void cmha__matmul_pass(const cmha__call *c) {
    const cmha_tensor *a = c->in[0], *b = c->in[1];
    size_t M = b->rank > 2 ? a->shape[a->rank - 2] : cmha__rows(a), N = cmha__last(c->out), K = c->D;
    size_t ldb = c->kind ? K : N;
    int threads = c->threads, trans_b = c->kind != 0;
    for (size_t i = 0; i < c->count; i++) {
        const cmha_real *A = c->x[0] + i * M * K, *B = c->x[1] + i * K * N;
        const cmha_real *g = cmha__at(c->dy, i * M * N);
        cmha_real *dA = cmha__at(c->dx[0], i * M * K), *dB = cmha__at(c->dx[1], i * K * N);
        if (!g) cmha__gemm(threads, 0, trans_b, M, N, K, 1, A, K, B, ldb, 0, c->y + i * M * N, N);
        if (dA) cmha__gemm(threads, 0, !trans_b, M, K, N, 1, g, N, B, ldb, 1, dA, K); /* dY B^T */
        if (dB && trans_b) cmha__gemm(threads, 1, 0, N, K, M, 1, g, N, A, K, 1, dB, K); /* dY^T A */
        else if (dB) cmha__gemm(threads, 1, 0, K, N, M, 1, A, K, g, N, 1, dB, N); /* A^T dY */
    }
}

CMHA_DEF cmha_tensor *cmha_matmul(cmha_tape *tape, cmha_tensor *a, cmha_tensor *b, int trans_b) {
    CMHA__RUNS(cmha__operate, "matmul", cmha__matmul_pass, cmha__matmul_shape, 2, 0, trans_b, 0, a, b);
}

static cmha_status cmha__reshape_backward(cmha_tape *tape, cmha_record *r) {
    cmha__pass_grad(tape, r->out, r->in[0]);
    return tape->status;
}

CMHA_DEF cmha_tensor *cmha_reshape(cmha_tape *tape, cmha_tensor *x, int rank, const size_t *shape) {
    cmha_tensor *y = x ? cmha__tensor_shaped(tape, rank, shape) : NULL;
    if (!y) return NULL;
    if (y->size != x->size) return CMHA__MISFIT(tape, "reshape: x of %zu, shape of %zu", x->size, y->size);
    y->data = x->data;
    y->packed = x->packed;
    return cmha__push(tape, "reshape", y, &x, 1, cmha__reshape_backward, NULL);
}

/* Counts the rows around an axis, each of shape[axis] * inner numbers; returns inner. */
static size_t cmha__around(const cmha_tensor *t, int axis, size_t *outer) {
    size_t inner = 1;
    *outer = 1;
    for (int d = 0; d < axis; d++) *outer *= t->shape[d];
    for (int d = axis + 1; d < t->rank; d++) inner *= t->shape[d];
    return inner;
}

/* Copies n rows of input k, `step` apart from x on, to the result; or adds their gradients up. */
typedef struct { size_t x, x_step, y, y_step, n, width; } cmha__moved;
static void cmha__move(const cmha__call *c, int k, const cmha__moved *m) {
    for (size_t i = 0; i < m->n; i++) {
        size_t x = m->x + i * m->x_step, y = m->y + i * m->y_step;
        if (!c->dy) cmha__copy(c->y + y, c->x[k] + x, m->width);
        else if (c->dx[k]) cmha__axpy(m->width, 1, c->dy + y, c->dx[k] + x);
    }
}

/* kind and count: the two axes, the earlier first. A row is what the axes before it leave. */
static void cmha__transpose_shape(cmha__call *c) {
    const cmha_tensor *x = c->in[0];
    size_t a = (size_t)c->kind, b = c->count, rank = (size_t)c->rank;
    if (a >= rank || b >= rank) {
        CMHA__MISFIT(c->tape, "transpose: axes %d and %d, x has rank %d", c->kind, (int)b, c->rank);
        return;
    }
    c->shape[a] = x->shape[b];
    c->shape[b] = x->shape[a];
    c->rows = 1;
    for (size_t d = 0; d < a; d++) c->rows *= x->shape[d];
}
/* A row is [P, between, Q, inner] before and [Q, between, P, inner] after. */
static void cmha__transpose_pass(const cmha__call *c) {
    const cmha_tensor *x = c->in[0];
    const size_t P = x->shape[c->kind], Q = x->shape[c->count];
    size_t between = 1, outer, inner = cmha__around(x, (int)c->count, &outer);
    for (int d = c->kind + 1; d < (int)c->count; d++) between *= x->shape[d];
    for (size_t r = 0; r < c->n; r++)
        for (size_t p = 0; p < P; p++)
            for (size_t m = 0; m < between; m++) {
                size_t from = ((r * P + p) * between + m) * Q, to = r * Q * between * P + m * P + p;
                const cmha__moved q = {from * inner, inner, to * inner, between * P * inner, Q, inner};
                cmha__move(c, 0, &q);
            }
}

CMHA_DEF cmha_tensor *cmha_transpose(cmha_tape *tape, cmha_tensor *x, int axis_a, int axis_b) {
    size_t a = (size_t)axis_a, b = (size_t)axis_b;
    if (a == b && x && a < (size_t)x->rank) return tape && !tape->status ? x : NULL;
    CMHA__RUNS(cmha__operate_by, "transpose", cmha__transpose_pass, cmha__transpose_shape, 1, 0, x,
            (int)cmha__min(a, b), NULL, a < b ? b : a);
}

/* kind: the axis. */
static void cmha__concat_shape(cmha__call *c) {
    const cmha_tensor *a = c->in[0], *b = c->in[1];
    int axis = c->kind;
    if (axis < 0 || axis >= a->rank || a->rank != b->rank) {
        CMHA__MISFIT(c->tape, "concat: axis = %d, a has rank %d, b %d", axis, a->rank, b->rank);
        return;
    }
    for (int d = 0; d < a->rank; d++)
        if (d != axis && a->shape[d] != b->shape[d])
            cmha__unfit(c, "b", 1, "differs on another axis from a", 0);
    if (!cmha__sum(a->shape[axis], b->shape[axis], &c->shape[axis]))
        CMHA__TOO_MUCH(c->tape, "concat: axis %d overflows", axis);
    cmha__around(a, axis, &c->rows);
}
static void cmha__concat_pass(const cmha__call *c) {
    for (size_t k = 0, at = 0, width; k < 2; k++, at += width) {
        width = c->in[k]->size / c->rows;
        const cmha__moved part = {0, width, at, c->out->size / c->rows, c->n, width};
        cmha__move(c, (int)k, &part);
    }
}

CMHA_DEF cmha_tensor *cmha_concat(cmha_tape *tape, cmha_tensor *a, cmha_tensor *b, int axis) {
    CMHA__RUNS(cmha__operate, "concat", cmha__concat_pass, cmha__concat_shape, 2, 0, axis, 0, a, b);
}

/* kind: the axis; count and key: where the part begins and ends; afterwards count is its place in a row. */
static void cmha__slice_shape(cmha__call *c) {
    size_t begin = c->count, end = (size_t)c->key;
    char its[80];
    if (c->kind < 0 || c->kind >= c->rank || begin > end || end > c->shape[c->kind]) {
        CMHA__MISFIT(c->tape, "slice: begin %zu, end %zu do not fit axis %d of x [%s]", begin, end, c->kind,
            cmha__shape_text(c->shape, c->rank, its));
        return;
    }
    c->shape[c->kind] = end - begin;
    c->count = begin * cmha__around(c->in[0], c->kind, &c->rows);
}
static void cmha__slice_pass(const cmha__call *c) {
    size_t from = c->in[0]->size / c->rows, to = c->out->size / c->rows;
    const cmha__moved part = {c->count, from, 0, to, c->n, to};
    cmha__move(c, 0, &part);
}

CMHA_DEF cmha_tensor *cmha_slice(cmha_tape *tape, cmha_tensor *x, int axis, size_t begin, size_t end) {
    CMHA__CALL("slice", cmha__slice_pass, cmha__slice_shape, 1, 0, x, NULL, NULL);
    call.kind = axis;
    call.count = begin;
    call.key = end;
    return cmha__run(tape, &call);
}

/* One number comes of the whole input, by one thread. */
static void cmha__one_shape(cmha__call *c) {
    c->rank = 1;
    c->rows = c->shape[0] = 1;
}
static void cmha__sum_pass(const cmha__call *c) {
    size_t n = c->in[0]->size;
    if (!c->dy) c->y[0] = cmha__total(c->x[0], n);
    else
        for (size_t i = 0; i < n; i++) c->dx[0][i] += c->dy[0];
}

CMHA_DEF cmha_tensor *cmha_sum(cmha_tape *tape, cmha_tensor *x) {
    CMHA__RUNS(cmha__operate, "sum", cmha__sum_pass, cmha__one_shape, 1, 0, 0, 0, x, NULL);
}

/* given: `count` indices. One thread walks them: rows may repeat. */
static void cmha__gather_shape(cmha__call *c) {
    if (!c->given && c->count) CMHA__MISUSE(c->tape, "gather: index is NULL");
    c->rank = 2;
    c->shape[0] = c->count;
    c->shape[1] = c->D;
    c->rows = 1;
}
static void cmha__gather_pass(const cmha__call *c) {
    const size_t *index = (const size_t *)c->given, D = c->D, rows = cmha__rows(c->in[0]);
    for (size_t i = 0; i < c->count; i++) {
        const cmha__moved row = {index[i] * D, D, i * D, D, 1, D};
        if (index[i] < rows) cmha__move(c, 0, &row);
        else CMHA__MISUSE(c->tape, "gather: index[%zu] = %zu, x has %zu rows", i, index[i], rows);
    }
}

CMHA_DEF cmha_tensor *cmha_gather(cmha_tape *tape, cmha_tensor *x, const size_t *index, size_t n) {
    CMHA__RUNS(cmha__operate_by, "gather", cmha__gather_pass, cmha__gather_shape, 1, 0, x, 0, index, n);
}

static size_t cmha__counted(const unsigned char *key_mask, size_t T) {
    size_t count = 0;
    for (size_t t = 0; t < T; t++) count += !key_mask || key_mask[t];
    return count;
}

static void cmha__mean_shape(cmha__call *c) {
    if (c->rank != 3) CMHA__MISFIT(c->tape, "mean: x must be [B, N, D], not of rank %d", c->rank);
    c->rank = 2;
    c->rows = c->shape[0];
    c->shape[1] = c->D;
}
/* Writes the mean token of each sequence, or spreads its gradient over the tokens. */
static void cmha__mean_pass(const cmha__call *c) {
    size_t N = c->in[0]->shape[1], D = c->D;
    const unsigned char *mask = cmha__at((const unsigned char *)c->given, c->lo * N);
    if (!c->dy) cmha__zeros(c->y, c->n * D);
    for (size_t b = 0; b < c->n; b++) {
        const cmha_real share = 1 / (cmha_real)cmha__counted(cmha__at(mask, b * N), N);
        for (size_t t = b * N; t < (b + 1) * N; t++) {
            if (mask && !mask[t]) continue;
            if (!c->dy) cmha__axpy(D, share, c->x[0] + t * D, c->y + b * D);
            else cmha__axpy(D, share, c->dy + b * D, c->dx[0] + t * D);
        }
    }
}

CMHA_DEF cmha_tensor *cmha_mean_tokens(cmha_tape *tape, cmha_tensor *x, const unsigned char *key_mask) {
    CMHA__RUNS(cmha__operate_by, "mean", cmha__mean_pass, cmha__mean_shape, 1, 0, x, 0, key_mask, 0);
}

/* Rejects tokens outside [0, V). With `ignore` they are a loss's targets, which may be that. */
static cmha_status cmha__check_tokens(cmha_tape *tape, const int32_t *ids, size_t n, size_t V,
        const int32_t *ignore) {
    if (cmha__dry(tape)) return tape->status;
    for (size_t i = 0; i < n; i++) {
        if ((ids[i] >= 0 && (size_t)ids[i] < V) || (ignore && ids[i] == *ignore)) continue;
        cmha__reject(tape, CMHA_ERR_TOKEN, "%s %d at index %zu is outside the vocabulary of %zu",
                ignore ? "target" : "token", (int)ids[i], i, V);
        break;
    }
    return tape->status;
}

/* ---- Common: activations, dropout ---- */

/* Write y = act(x) and the derivative. In the tanh form (1 + tanh(u))/2 is sigmoid(2u). */
#define CMHA__FORMULA(name) static inline void name(cmha_real x, cmha_real *y, cmha_real *slope)
CMHA__FORMULA(cmha__gelu_erf) {
    cmha_real density, cdf = cmha__normal_cdf(x, &density);
    *y = x * cdf;
    *slope = cdf + x * density;
}
CMHA__FORMULA(cmha__gelu_tanh) {
    cmha_real steep = (cmha_real)1.5957691216057308 * (1 + (cmha_real)0.134145 * x * x);
    cmha_real s = cmha__sigmoid((cmha_real)1.5957691216057308 * x * (1 + (cmha_real)0.044715 * x * x));
    cmha_real change = s * (1 - s);
    *y = x * s;
    *slope = s + (change > 0 ? x * steep * change : 0); /* 0 times an overflown steepness is 0 here */
}
CMHA__FORMULA(cmha__relu) {
    *y = x < 0 ? 0 : x; /* NaN stays */
    *slope = x > 0 ? 1 : 0;
}
CMHA__FORMULA(cmha__relu2) {
    cmha_real above = x < 0 ? 0 : x;
    *y = above * above;
    *slope = 2 * above;
}
CMHA__FORMULA(cmha__silu) {
    cmha_real s = cmha__sigmoid(x);
    *y = x * s;
    *slope = s + x * s * (1 - s);
}
CMHA__FORMULA(cmha__nan) {
    *y = *slope = x * (cmha_real)NAN;
}

#define CMHA__EACH(name, formula, slope) \
    case CMHA_ACTIVATION_##name: \
        for (size_t i = 0; i < n; i++) formula(x[i], &y[i], slope); \
        break;
#define CMHA__VALUE(name, word, formula, gated) CMHA__EACH(name, formula, &slope)
#define CMHA__BOTH(name, word, formula, gated) CMHA__EACH(name, formula, &slope[i])
#define CMHA__ACTIVATED(ROW) \
    switch (kind) { \
        CMHA_ACTIVATIONS(ROW) \
    default: ROW(COUNT, "", cmha__nan, 0) \
    }

/* CRAT eq 9. */
CMHA__HOT(CMHA_DEF, cmha_activation_forward, (const cmha_real *x, size_t n, cmha_activation kind,
        cmha_real *y), (x, n, kind, y)) {
    cmha_real slope;
    CMHA__ACTIVATED(CMHA__VALUE)
}

CMHA__HOT(static, cmha__activation_both, (const cmha_real *x, size_t n, cmha_activation kind, cmha__out y,
        cmha__out slope), (x, n, kind, y, slope)){CMHA__ACTIVATED(CMHA__BOTH)}

/* The rest goes by strips through these two: formulas are long to compile. */
enum { CMHA__STRIP = 256 };

CMHA__HOT(CMHA_DEF, cmha_gated_forward, (const cmha_real *x, const cmha_real *up, size_t n,
        cmha_activation kind, cmha_real *y), (x, up, n, kind, y)) {
    cmha_real value[CMHA__STRIP];
    CMHA__IN_PIECES(at, m, n, CMHA__STRIP) {
        cmha_activation_forward(x + at, m, kind, value);
        for (size_t i = 0; i < m; i++) y[at + i] = up[at + i] * value[i];
    }
}

/* up NULL: not gated; then 0 times any dy is 0. */
CMHA__HOT(CMHA__FIT, cmha_gated_backward, (const cmha_real *x, const cmha_real *up, const cmha_real *dy,
        size_t n, cmha_activation kind, cmha_real *dgate, cmha_real *dup), (x, up, dy, n, kind, dgate, dup)) {
    cmha_real value[CMHA__STRIP], slope[CMHA__STRIP];
    CMHA__IN_PIECES(at, m, n, CMHA__STRIP) {
        cmha__activation_both(x + at, m, kind, value, slope);
        if (dup)
            for (size_t i = 0; i < m; i++) dup[at + i] += dy[at + i] * value[i];
        if (dgate && up)
            for (size_t i = 0; i < m; i++) dgate[at + i] += dy[at + i] * up[at + i] * slope[i];
        else if (dgate)
            for (size_t i = 0; i < m; i++) {
                cmha_real g = dy[at + i];
                dgate[at + i] += slope[i] != 0 ? g * slope[i] : 0;
            }
    }
}
CMHA__FIT void cmha_activation_backward(const cmha_real *x, const cmha_real *dy, size_t n,
        cmha_activation kind, cmha_real *dx) {
    if (dx) cmha_gated_backward(x, NULL, dy, n, kind, dx, NULL);
}

/* Does it read rows [gate | up]? */
static int cmha__is_gated(int act) {
#define CMHA__GATES(name, word, formula, gated) gated,
    static const unsigned char gates[] = {CMHA_ACTIVATIONS(CMHA__GATES)};
    return act >= 0 && gates[act];
}

/* Writes act(x) [T, I] to `to`, x of twice the width where gated; with a dy adds the gradient of x. */
typedef struct { size_t T, I; int act; } cmha__activated;
static void cmha__activate(int threads, const cmha__activated *rows, const cmha_real *x, const cmha_real *dy,
        cmha_real *to) {
    const size_t I = rows->I;
    const cmha_activation kind = (cmha_activation)rows->act;
    if (!CMHA__TRAINS) dy = NULL;
    CMHA__FOR_CHUNKS(threads, rows->T, lo, hi) {
        size_t at = lo * I, n = (hi - lo) * I;
        if (cmha__is_gated(kind))
            for (size_t t = lo; t < hi; t++) {
                const size_t row = 2 * t * I;
                const cmha_real *gate = x + row, *up = gate + I;
                if (dy) cmha_gated_backward(gate, up, dy + t * I, I, kind, to + row, to + row + I);
                else cmha_gated_forward(gate, up, I, kind, to + t * I);
            }
        else if (dy) cmha_activation_backward(x + at, dy + at, n, kind, to + at);
        else cmha_activation_forward(x + at, n, kind, to + at);
    }
}

static void cmha__activate_shape(cmha__call *c) {
    if (!cmha__is_gated(c->kind)) return;
    if (c->D % 2) CMHA__MISFIT(c->tape, "activate: width %zu of [gate | up] is odd", c->D);
    c->shape[c->rank - 1] /= 2;
}
static void cmha__activate_pass(const cmha__call *c) {
    const cmha__activated rows = {c->n, cmha__last(c->out), c->kind};
    cmha__activate(1, &rows, c->x[0], c->dy, c->dy ? c->dx[0] : c->y);
}

CMHA_DEF cmha_tensor *cmha_activate(cmha_tape *tape, cmha_tensor *x, cmha_activation kind) {
    static const cmha__op op = {
        "activate", cmha__activate_pass, cmha__activate_shape, 1, 0, CMHA_ACTIVATION_COUNT, {0, 0}, 0};
    return cmha__operate(tape, &op, (int)kind, 0, x, NULL);
}

CMHA__HOT(CMHA_DEF, cmha_dropout_forward, (const cmha_real *x, size_t n, cmha_real p, uint64_t key,
        size_t first, cmha_real *y), (x, n, p, key, first, y)) {
    if (y != x) cmha__copy(y, x, n);
    if (p <= 0) return;
    for (size_t i = 0, chunk; i < n; i += chunk) { /* rows of 65536 indices share a 64-bit row key */
        size_t at = first + i, low = at & 65535u;
        chunk = cmha__min(65536u - low, n - i);
        cmha__drop_row(y + i, chunk, p, cmha__mix(key ^ cmha__mix((uint64_t)(at >> 16))), (uint32_t)low);
    }
}

static cmha_status cmha__check_dropout(cmha_tape *tape, cmha_real p) {
    if (!(p >= 0) || p >= 1) CMHA__MISUSE(tape, "dropout: p = %g is not in [0, 1)", (double)p);
    return tape->status;
}

static void cmha__dropout_pass(const cmha__call *c) {
    cmha_real piece[256]; /* the backward goes a piece at a time */
    size_t first = c->count + c->lo;
    if (!cmha__goes_back(c)) cmha_dropout_forward(c->x[0], c->n, c->number, c->key, first, c->y);
    else
        CMHA__IN_PIECES(i, n, c->n, 256) {
            cmha_dropout_forward(c->dy + i, n, c->number, c->key, first + i, piece);
            cmha__axpy(n, 1, piece, c->dx[0] + i);
        }
}

CMHA_DEF cmha_tensor *cmha_dropout(cmha_tape *tape, cmha_tensor *x, cmha_real p) {
    CMHA__CALL("dropout", cmha__dropout_pass, NULL, 1, CMHA__NUMBERS, x, NULL, NULL);
    if (!x || !tape || tape->status || cmha__check_dropout(tape, p)) return NULL;
    if (p == 0 || !cmha__records(tape)) return x;
    call.number = p;
    call.key = cmha__draw(tape);
    call.count = cmha__first_number(tape, x);
    return cmha__run(tape, &call);
}

/* ---- Packed matrices ---- */

CMHA_DEF size_t cmha_packed_words(cmha_storage storage, size_t O, size_t I) {
    return cmha__countable(cmha__groups(O) * cmha__line_words(storage, I),
            ((double)O + CMHA__GROUP) * ((double)I + CMHA__BLOCK));
}

/* A code, or BF16's half, in its block: the word, by how much to shift it, a mask of its bits. Halves of a
   word of codes are 32 (INT8) or 8 columns (4 bits) apart. */
typedef struct { uint32_t *word, shift, mask; } cmha__place;
static inline cmha__place cmha__place_in(cmha_storage storage, uint32_t *block, size_t c) {
    const uint32_t shift = (uint32_t)c / 16;
    const cmha__place bf16 = {block + c / 32 * 16 + c % 16, shift % 2 * 16, 65535};
    const cmha__place int8 = {block + c % 16, shift * 8, 255};
    const cmha__place four = {block + c % 8, shift * 4 + (uint32_t)c / 8 % 2 * 16, 15};
    return storage == CMHA_STORAGE_BF16 ? bf16 : storage == CMHA_STORAGE_INT8 ? int8 : four;
}

/* The scale of 32 columns of 4 bits from i on, in a half of a word. */
static cmha__place cmha__scale_place(const cmha_packed *p, size_t row, size_t i) {
    uint32_t *words = cmha__block_at(p, row / CMHA__GROUP * CMHA__GROUP, 0) + row % CMHA__GROUP;
    const cmha__place at = {words + cmha__scales_at(cmha__blocks(p->n_in), i / CMHA__BLOCK),
        (uint32_t)(i / 32 % 2 * 16), 65535};
    return at;
}
static uint32_t cmha__place_bits(cmha__place at) { return *at.word >> at.shift & at.mask; }
static void cmha__place_put(cmha__place at, uint32_t bits) { *at.word |= (bits & at.mask) << at.shift; }

/* Returns a number of 16 bits, 5 of them exponent. */
static float cmha__half_float(uint32_t bits) {
    uint32_t sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31, mantissa = bits & 1023;
    if (exponent) return cmha__float_of(sign | (exponent < 31 ? exponent + 112 : 255) << 23 | mantissa << 13);
    return (float)mantissa * (sign ? -1 : 1) / 16777216; /* subnormal: units of 2^-24 */
}

/* Returns the nearest number of 16 bits, of two the even one; NaN for what is too large or no number. */
static uint32_t cmha__half_bits(double x) {
    int e;
    if (!(fabs(x) < 65520)) return 0x7e00;
    (void)frexp(x, &e);
    e = e > -13 && x != 0 ? e + 13 : 0; /* of 0 and the smallest normal ones 0 */
    double steps = ldexp(fabs(x), 24 - e), below = floor(steps), rest = steps - below;
    uint32_t n = (uint32_t)below;
    if (rest > 0.5 || (!(rest < 0.5) && n % 2)) n++;
    return (x < 0 ? 0x8000 : 0) | (n + (uint32_t)e * 1024);
}

/* Writes number i of a row as BF16; a NaN keeps a bit of its mantissa. Word k of 16 holds numbers k (lower
   half) and k + 16 of the next 32. */
static void cmha__bf16_put(uint32_t *words, size_t i, cmha_real x) {
    uint32_t *word = words + i / 32 * 16 + i % 16, shift = i / 16 % 2 * 16;
    uint32_t bits = cmha__bits_of((float)x);
    if ((bits & 0x7fffffff) > 0x7f800000) bits |= 0x400000;
    else bits += 0x7fff + (bits >> 16 & 1);
    *word = (*word & 0xffff0000u >> shift) | bits >> 16 << shift;
}

/* Writes 16 n words of BF16 as numbers, to [32 n]. */
CMHA__HOT(static, cmha__bf16_numbers, (const uint32_t *words, size_t n, cmha_real *to), (words, n, to)) {
    for (; n > 0; n--, words += 16, to += 32)
        for (int k = 0; k < 16; k++) {
            to[k] = cmha__float_of(words[k] << 16);
            to[16 + k] = cmha__float_of(words[k] & 0xffff0000u);
        }
}

/* Returns the scale with which codes -8 .. 7 come nearest to x [n], n <= 32, the largest first: the least sum
   of squared errors. As a scale falls, codes grow one after another. Each round of the loop is a way to round
   all x, whose best scale is products / squares; it leaves total - products^2 / squares. Gains below 1e-9 do
   not count: the same scale on every CPU. */
static double cmha__four_scale(const double *x, size_t n, double total) {
    double best = 0, scale = x[0] / -8;
    for (int sign = -1; sign < 2; sign += 2) {
        size_t next[8] = {0}; /* the first number whose code has not grown beyond k; only -8 lies beyond 7 */
        double products = 0, squares = 0;
        for (size_t round = 0; round < 8 * n; round++) {
            size_t code = 0;
            double at = 0; /* the scale at which the next code grows */
            while (next[7] < n && x[next[7]] * sign > 0) next[7]++;
            for (size_t k = 0; k < 8; k++) {
                double grows = next[k] < n ? fabs(x[next[k]]) / ((double)k + 0.5) : 0;
                if (grows > at) code = k;
                at = fmax(at, grows);
            }
            double beyond = fmax(fabs(x[0]) - 8 * at, 0); /* of the largest, from here on */
            if (!(at > 0) || beyond * beyond > total - best) break;
            products += fabs(x[next[code]++]);
            squares += (double)(2 * code + 1);
            if (!(products < squares * 65520 && products * products > squares * best * (1 + 1e-9))) continue;
            best = products * products / squares;
            scale = sign * products / squares;
        }
    }
    return scale;
}

/* Packs n <= 32 numbers of a row, `step` apart, from column i on as INT4. */
static void cmha__pack_four(const cmha_packed *p, size_t row, size_t i, const cmha_real *x, size_t step) {
    size_t n = cmha__min(p->n_in - i, 32);
    double sorted[32], total = 0;
    for (size_t j = 0, k; j < n; j++) {
        double one = (double)x[j * step];
        if (!(fabs(one) < 524160)) total = (double)NAN; /* -8 times the largest scale */
        total += one * one;
        for (k = j; k > 0 && fabs(sorted[k - 1]) < fabs(one); k--) sorted[k] = sorted[k - 1];
        sorted[k] = one;
    }
    double scale = total > 0 ? cmha__four_scale(sorted, n, total) : total;
    uint32_t bits = cmha__half_bits(scale);
    scale = (double)cmha__half_float(bits);
    cmha__place_put(cmha__scale_place(p, row, i), bits);
    if (!(scale < 0 || scale > 0)) return; /* all are 0, or NaN: code 0 */
    for (size_t j = 0; j < n; j++) {
        uint32_t *block = cmha__block_at(p, row, i);
        double steps = fmax(-8, fmin((double)x[j * step] / scale, 7));
        int code = (int)(steps + (steps < 0 ? -0.5 : 0.5));
        cmha__place_put(cmha__place_in(p->storage, block, i % CMHA__BLOCK + j), (uint32_t)code);
    }
}

/* Returns the sum of squared errors of x [n] as codes 0 .. 15 times a scale less a minimum, two [2], which
   become those that fit the codes best. */
CMHA__HOT_OF(static, double, cmha__fit_two, (const double *x, size_t n, double *two), (x, n, two)) {
    const double by = two[0] > 0 ? 1 / two[0] : 0;
    double errors = 0, codes = 0, squares = 0, products = 0, total = 0;
    for (size_t j = 0; j < n; j++) {
        double steps = (x[j] + two[1]) * by, code, off;
        steps = steps > 0 ? steps : 0;
        code = (int)((steps < 15 ? steps : 15) + 0.5);
        off = two[0] * code - two[1] - x[j];
        errors += off * off;
        codes += code;
        squares += code * code;
        products += code * x[j];
        total += x[j];
    }
    const double spread = (double)n * squares - codes * codes;
    two[1] = spread > 0 ? fmax((codes * products - squares * total) / spread, 0) : two[1];
    two[0] = squares > 0 ? fmax((products + two[1] * codes) / squares, 0) : 0;
    return errors;
}

/* two [2] = the best scale and minimum for x [n]: of some that are fitted to their codes three times or, with
   units, of those next to *two. Gains below 1e-9 do not count. */
static void cmha__find_two(const double *x, size_t n, const double *unit, double *two) {
    double low = 0, high = x[0], best = (double)INFINITY, from[2] = {two[0], two[1]}, at[2], now[2];
    for (size_t j = 0; j < n; j++) {
        low = fmin(low, x[j]);
        high = fmax(high, x[j]);
    }
    for (int t = 0; t < (unit ? 9 : 32); t++) {
        if (unit)
            for (int k = 0; k < 2; k++) {
                double steps = unit[k] > 0 ? floor(from[k] / unit[k] + 0.5) + (k ? t / 3 : t % 3) - 1 : 0;
                at[k] = unit[k] * fmax(0, fmin(steps, 63));
            }
        else if (t % 4 == 0) {
            at[0] = (high - low) / (14 + t / 8.0);
            at[1] = -low;
        }
        memcpy(now, at, sizeof now);
        double errors = cmha__fit_two(x, n, at);
        if (!(errors < best * (1 - 1e-9))) continue;
        best = errors;
        memcpy(two, now, sizeof now);
    }
}

/* Packs the next 256 numbers of a row, `step` apart, from column i on as Q4_K: units are the largest scale
   and minimum that 32 of them have by themselves, over 63. */
static void cmha__pack_k(const cmha_packed *p, size_t row, size_t i, const cmha_real *x, size_t step) {
    const size_t n = cmha__min(p->n_in - i, 256);
    double all[256], two[8][2] = {{0}}, unit[2] = {0, 0};
    uint32_t halves = 0;
    for (size_t j = 0; j < n; j++) {
        all[j] = (double)x[j * step];
        if (!(fabs(all[j]) < 4e6)) unit[0] = (double)NAN;
    }
    for (size_t j = 0; j < n; j += 32) cmha__find_two(all + j, cmha__min(n - j, 32), NULL, two[j / 32]);
    for (int k = 0; k < 2; k++) {
        for (int j = 0; j < 8; j++) unit[k] = unit[k] < two[j][k] / 63 ? two[j][k] / 63 : unit[k];
        const uint32_t half = cmha__half_bits(unit[k]);
        halves |= half << 16 * k;
        unit[k] = (double)cmha__half_float(half);
    }
    for (size_t j = 0; j < 256; j++) {
        double *is = two[j / 32], code;
        if (j % 32 == 0) {
            if (j < n) cmha__find_two(all + j, cmha__min(n - j, 32), unit, is);
            uint32_t bits = halves >> j / 8 << 12;
            for (int k = 0; k < 2; k++) bits |= unit[k] > 0 ? (uint32_t)(is[k] / unit[k] + 0.5) << 6 * k : 0;
            cmha__place_put(cmha__scale_place(p, row, i + j), bits);
        }
        if (j >= n) continue;
        code = is[0] > 0 ? fmax(0, fmin((all[j] + is[1]) / is[0], 15)) + 0.5 : 0;
        uint32_t *block = cmha__block_at(p, row, i + j);
        cmha__place_put(cmha__place_in(p->storage, block, j % CMHA__BLOCK), (uint32_t)code ^ 8);
    }
}

CMHA_DEF void cmha_pack(cmha_packed *p, const cmha_real *weight) {
    const int bytes = p->storage == CMHA_STORAGE_INT8, four = p->storage >= CMHA_STORAGE_INT4;
    const int int4 = p->storage == CMHA_STORAGE_INT4;
    size_t C = p->turned, step = C ? C : 1;
    if (p->words) cmha__zeros(p->words, cmha_packed_words(p->storage, p->n_out, p->n_in));
    p->source = weight;
    for (size_t o = 0; o < p->n_out; o++) {
        const cmha_real *row = C ? weight + o / C * p->n_in * C + o % C : weight + o * p->n_in;
        cmha_real most = 0; /* the largest magnitude; NaN, which stays, where one is no number */
        double scale = 0; /* one that has vanished or is NaN: code 0 */
        for (size_t i = 0; four && i < p->n_in; i += int4 ? 32 : 256)
            (int4 ? cmha__pack_four : cmha__pack_k)(p, o, i, row + i * step, step);
        if (four) continue;
        if (bytes) {
            for (size_t i = 0; i < p->n_in; i++) {
                cmha_real x = row[i * step], size = x < 0 ? -x : x;
                if (!(size <= CMHA__LARGEST)) most = (cmha_real)NAN;
                else if (size > most) most = size;
            }
            scale = p->scales[o] = (cmha_real)((double)most / 127);
        }
        for (size_t i = 0; i < p->n_in; i++) {
            uint32_t *block = cmha__block_at(p, o, i);
            double steps = scale > 0 ? fmax(-127, fmin(row[i * step] / scale, 127)) : 0;
            int code = (int)(steps + (steps < 0 ? -0.5 : 0.5));
            if (bytes) block[i % 16] |= ((uint32_t)code & 255) << i % CMHA__BLOCK / 16 * 8;
            else cmha__bf16_put(block, i % CMHA__BLOCK, row[i * step]);
        }
    }
}

/* Writes a block of 4 bits as numbers, to [64]. */
static void cmha__four_numbers(const cmha_packed *p, size_t row, size_t i, cmha_real *to) {
    const uint32_t *words = cmha__block_at(p, row, i);
    const int zero = p->storage == CMHA_STORAGE_INT4 ? 8 : 0;
    uint32_t factors = 0;
    if (!zero)
        for (size_t k = 0; k < 8; k++)
            factors |= cmha__place_bits(cmha__scale_place(p, row, i / 256 * 256 + 32 * k)) >> 12 << 4 * k;
    for (size_t part = 0; part < 8; part++) {
        const uint32_t bits = cmha__place_bits(cmha__scale_place(p, row, i + part / 4 * 32));
        cmha_real scale = (cmha_real)cmha__half_float(zero ? bits : factors & 65535), least = 0;
        size_t shift = part / 2 * 4 + part % 2 * 16;
        if (!zero) {
            scale *= (cmha_real)(bits & 63);
            least = (cmha_real)cmha__half_float(factors >> 16) * (cmha_real)(bits >> 6 & 63);
        }
        for (size_t k = 0; k < 8; k++)
            to[part * 8 + k] = scale * (cmha_real)((int)((words[k] >> shift & 15) ^ 8) - zero) - least;
    }
}

/* Writes the block of a row from column i on as numbers, to [64], without INT8's scale. Returns how many of
   them the row has. */
static size_t cmha__block_numbers(const cmha_packed *p, size_t row, size_t i, cmha_real *to) {
    const uint32_t *words = cmha__block_at(p, row, i);
    if (p->storage == CMHA_STORAGE_BF16) cmha__bf16_numbers(words, 2, to);
    else if (p->storage >= CMHA_STORAGE_INT4) cmha__four_numbers(p, row, i, to);
    else
        for (int part = 0; part < 4; part++)
            for (int k = 0; k < 16; k++)
                to[part * 16 + k] = (cmha_real)((int32_t)((words[k] >> part * 8 & 255) ^ 128) - 128);
    return cmha__min(p->n_in - i, CMHA__BLOCK);
}

CMHA__HOT(CMHA_DEF, cmha_unpack, (const cmha_packed *p, size_t lo, size_t hi, cmha_real *weight),
        (p, lo, hi, weight)) {
    cmha_real block[CMHA__BLOCK];
    for (size_t o = lo; o < hi; o++)
        for (size_t i = 0, n; i < p->n_in; i += n) {
            cmha_real scale = p->scales ? p->scales[o] : 1;
            n = cmha__block_numbers(p, o, i, block);
            for (size_t j = 0; j < n; j++) *weight++ = scale * block[j];
        }
}

/* Scales of 4 bits may be denormal floats for a moment, which -ffast-math has CPUs take for 0. */
#if defined(__SSE2__) && !defined(__wasm__)
#define CMHA__EXACTLY(call) \
    { \
        const unsigned mode = p->storage > CMHA_STORAGE_INT8 ? __builtin_ia32_stmxcsr() : 0; \
        if (mode & 64) __builtin_ia32_ldmxcsr(mode ^ 64); \
        call \
        if (mode & 64) __builtin_ia32_ldmxcsr(mode); \
    }
#else
#define CMHA__EXACTLY(call) call
#endif

CMHA_DEF void cmha_packed_forward(const cmha_packed *p, const cmha_real *x, size_t T, size_t lo, size_t hi,
        cmha_real *y, size_t ldy) {
#if CMHA__STREAMS
    CMHA__EXACTLY(CMHA__CHOOSE(cmha__packed_rows, (p, x, T, lo, hi, y, ldy)))
#else
    cmha_real block[CMHA__BLOCK];
    for (size_t o = lo; o < hi; o++) {
        cmha_real scale = p->scales ? p->scales[o] : 1;
        for (size_t t = 0; t < T; t++) y[t * ldy + o - lo] = 0;
        for (size_t i = 0, n; i < p->n_in; i += n) {
            n = cmha__block_numbers(p, o, i, block);
            for (size_t t = 0; t < T; t++)
                y[t * ldy + o - lo] += scale * cmha__dot(x + t * p->n_in + i, block, n);
        }
    }
#endif
}

/* Rounds a row; pair k of a block is the words' code k of each half. */
CMHA__HOT(static, cmha__round_row, (const cmha_packed *p, const cmha_real *x, uint32_t *words,
        cmha_real *factor), (p, x, words, factor)) {
    const int eight = p->storage == CMHA_STORAGE_INT8, run = eight ? 16 : 8, apart = eight ? 32 : 8;
    cmha_real sizes[CMHA__LANES] = {0}, strange[CMHA__LANES] = {0}, most, by;
    int32_t q[CMHA__BLOCK];
    CMHA__IN_LANES(CMHA__LANES, p->n_in, sizes[l] = cmha__larger(x[i] < 0 ? -x[i] : x[i], sizes[l]))
    CMHA__IN_LANES(CMHA__LANES, p->n_in, strange[l] += x[i] * 0)
    most = cmha__fold(strange) != 0 ? (cmha_real)NAN : cmha__largest(sizes, CMHA__LANES);
    by = most > 0 ? 32767 / most : 0;
    if (!(by <= CMHA__LARGEST)) by = 0; /* a row that has all but vanished */
    *factor = by > 0 || most != most ? most / 32767 : 0;
    CMHA__IN_PIECES(i, n, p->n_in, CMHA__BLOCK) {
        if (n < CMHA__BLOCK) cmha__zero(q);
        for (size_t k = 0; k < n; k++) {
            cmha_real steps = by > 0 ? x[i + k] * by : 0;
            q[k] = (int32_t)(steps + (steps < 0 ? (cmha_real)-0.5 : (cmha_real)0.5));
        }
        for (int at = 0; at < 32 / run; at++)
            for (int k = 0; k < run; k++) {
                uint32_t low = (uint32_t)q[16 * at + k] & 65535, high = (uint32_t)q[16 * at + k + apart];
                words[at * run + k] = low | high << 16;
            }
        words += 32;
    }
}

CMHA_DEF void cmha_round_rows(const cmha_packed *p, const cmha_real *x, size_t lo, size_t hi,
        cmha_rounded *rounded) {
    for (size_t t = lo; t < hi; t++)
        cmha__round_row(p, x + t * p->n_in, rounded->words + t * 32 * cmha__blocks(p->n_in),
            rounded->factors + t);
}

#if !CMHA__STREAMS
/* Returns the product of a row and a rounded one, without INT8's scale and the factor. */
static cmha_real cmha__rounded_dot(const cmha_packed *p, size_t row, const uint32_t *x) {
    const int eight = p->storage == CMHA_STORAGE_INT8, run = eight ? 16 : 8, apart = eight ? 32 : 8;
    cmha_real block[CMHA__BLOCK], sum = 0;
    double whole = 0;
    for (size_t b = 1; b <= cmha__blocks(p->n_in); b++, x += 32) {
        (void)cmha__block_numbers(p, row, (b - 1) * CMHA__BLOCK, block);
        for (int k = 0; k < 32; k++) {
            const cmha_real *at = block + k / run * 16 + k % run;
            whole += (double)at[0] * (int16_t)(x[k] & 65535) + (double)at[apart] * (int16_t)(x[k] >> 16);
        }
        if (b % CMHA__WHOLE_BLOCKS && b < cmha__blocks(p->n_in)) continue;
        sum += (cmha_real)whole;
        whole = 0;
    }
    return sum;
}
#endif

CMHA_DEF void cmha_rounded_forward(const cmha_packed *p, const cmha_rounded *x, size_t lo, size_t hi,
        cmha_real *y, size_t ldy) {
#if CMHA__STREAMS
    CMHA__EXACTLY(CMHA__CHOOSE(cmha__rounded_rows, (p, x, lo, hi, y, ldy)))
#else
    for (size_t o = lo; o < hi; o++)
        for (size_t t = 0; t < x->T; t++)
            y[t * ldy + o - lo] = cmha__rounded_dot(p, o, x->words + t * 32 * cmha__blocks(p->n_in)) *
                (p->scales ? p->scales[o] * x->factors[t] : x->factors[t]);
#endif
}

/* ---- Products with weights ---- */

/* Computes y [T, O] = x [T, I] of whole numbers by a packed matrix. Takes scratch, also in a dry run. */
static void cmha__rounded_product(cmha_tape *tape, const cmha_packed *p, const cmha_real *x, size_t T,
        cmha_real *y) {
    const size_t words = T * 32 * cmha__blocks(p->n_in), numbers = words * sizeof(uint32_t) / sizeof *y;
    const int few = T <= CMHA__FEW_ROWS, threads = tape->context->threads;
    cmha_rounded rows = {T, NULL, cmha__reals(tape, T)};
    rows.words = (uint32_t *)(void *)cmha__reals(tape, numbers);
    if (!cmha__computes(tape)) return;
    CMHA__FOR_CHUNKS(few ? 1 : threads, T, lo, hi) { cmha_round_rows(p, x, lo, hi, &rows); }
    CMHA__FOR_CHUNKS(few && T * p->n_out * p->n_in < 65536 ? 1 : threads, (p->n_out + 15) / 16, lo, hi) {
        cmha_rounded_forward(p, &rows, lo * 16, cmha__min(hi * 16, p->n_out), y + lo * 16, p->n_out);
    }
}

/* Computes y [T, O] = x [T, I] weight^T. For few rows, a decoded token's, weights or their packed copy stream
   through, faster than a BLAS; for many a packed copy becomes floats 256 KiB at a time. Takes scratch, also
   in a dry run. turned > 0: the weight is [O / turned, I, turned], read by its columns. */
static void cmha__weight_product(cmha_tape *tape, const cmha_tensor *weight, const cmha_real *x, size_t T,
        size_t turned, cmha_real *y) {
    const size_t I = turned ? weight->shape[1] : cmha__last(weight);
    const size_t O = turned ? weight->shape[0] * turned : cmha__rows(weight);
    const cmha_real *w = weight->data;
    const cmha_packed *packed = weight->packed, plain = {CMHA_STORAGE_FLOAT, O, I, 0, w, NULL, NULL, 0};
    int few = T <= CMHA__FEW_ROWS;
    int stream = few && (packed || (CMHA__STREAMS && !turned && !cmha__records(tape)));
    int threads = few && T * O * I < 65536 ? 1 : tape->context->threads;
    size_t rows = cmha__min((I < 4096 ? 65536 / (I + !I) : 16) / 16 * 16, O + !O);
    cmha__mark mark = cmha__mark_of(tape);
    int rounds = packed && packed->rounds && (few || packed->storage <= CMHA_STORAGE_INT4);
    cmha_real *pieces = packed && !few && !rounds ? cmha__reals(tape, (size_t)threads * rows * I) : NULL;
    cmha__product part = {0, !turned, T, turned ? turned : O, I, I, turned ? turned : I, O, 1, 0, x, w, y};
    cmha_real *room = packed ? NULL : cmha__reals(tape, cmha__gemm_width(&part) * I);
    if (rounds) cmha__rounded_product(tape, packed, x, T, y);
    else if (cmha__computes(tape)) {
        if (stream)
            CMHA__FOR_CHUNKS(threads, cmha__groups(O), lo, hi) {
                size_t at = lo * CMHA__GROUP, end = cmha__min(hi * CMHA__GROUP, O);
                cmha_packed_forward(packed ? packed : &plain, x, T, at, end, y + at, O);
            }
        else if (packed)
            CMHA__FOR_CHUNKS(threads, O / rows + (O % rows != 0), first, last) {
                cmha_real *piece = pieces + (size_t)cmha__chunk * rows * I;
                for (size_t lo = first * rows; lo < cmha__min(last * rows, O); lo += rows) {
                    size_t hi = cmha__min(lo + rows, O);
                    cmha_unpack(packed, lo, hi, piece);
                    cmha_gemm(0, 1, T, hi - lo, I, 1, x, I, piece, I, 0, y + lo, O);
                }
            }
        else
            for (size_t at = 0; at < O; at += part.N) {
                part.B = w + at * I;
                part.C = y + at;
                cmha__gemm_in(threads, &part, room);
            }
    }
    cmha__rewind(tape, mark);
}

/* ---- Common: embedding ---- */

CMHA_DEF void cmha_embedding_forward(const cmha_real *weight, const int32_t *ids, size_t T, size_t D,
        cmha_real *y) {
    for (size_t t = 0; t < T; t++) cmha__copy(y + t * D, weight + (size_t)ids[t] * D, D);
}

CMHA__FIT void cmha_embedding_backward(const cmha_real *dy, const int32_t *ids, size_t T, size_t D,
        cmha_real *dweight) {
    if (dweight)
        for (size_t t = 0; t < T; t++) cmha__axpy(D, 1, dy + t * D, dweight + (size_t)ids[t] * D);
}

/* given: the ids of `count` sequences of `key` tokens. */
static void cmha__embedding_shape(cmha__call *c) {
    if (c->rank != 2) CMHA__MISFIT(c->tape, "embedding: weight must be [V, D], not of rank %d", c->rank);
    else if (!c->given) CMHA__MISUSE(c->tape, "embedding: ids is NULL");
    c->rank = 3;
    c->shape[0] = c->count;
    c->shape[1] = (size_t)c->key;
    c->shape[2] = c->D;
    c->rows = 1;
}
static void cmha__embedding_pass(const cmha__call *c) {
    const int32_t *ids = (const int32_t *)c->given;
    const cmha_packed *p = c->in[0]->packed;
    size_t T = cmha__rows(c->out), D = c->D, V = c->in[0]->shape[0];
    if (cmha__goes_back(c)) cmha_embedding_backward(c->dy, ids, T, D, c->dx[0]);
    else if (cmha__check_tokens(c->tape, ids, T, V, NULL)) return;
    else if (!p) cmha_embedding_forward(c->x[0], ids, T, D, c->y);
    else
        for (size_t t = 0; t < T; t++) cmha_unpack(p, (size_t)ids[t], (size_t)ids[t] + 1, c->y + t * D);
}

/* CRAT eq 1. */
CMHA_DEF cmha_tensor *cmha_embedding(cmha_tape *tape, cmha_tensor *weight, const int32_t *ids, size_t B,
        size_t N) {
    CMHA__CALL("embedding", cmha__embedding_pass, cmha__embedding_shape, 1, CMHA__UNPACKS, weight, NULL,
            NULL);
    call.given = ids;
    call.count = B;
    call.key = N;
    return cmha__run(tape, &call);
}

/* ---- Common: sublayer, residual + gain * dropout(act(x) W^T + bias) ---- */

typedef struct {
    int act;
    cmha_real gain, dropout;
    uint64_t key;
    size_t first; /* of its numbers in dropout's bits */
} cmha__sublayer_saved;

/* dbias += column sums, columns dealt to threads. */
static void cmha__bias_backward(int threads, const cmha_real *dy, size_t T, size_t O, cmha_real *dbias) {
    CMHA__FOR_CHUNKS(threads, O, lo, hi) {
        for (size_t t = 0; t < T; t++) cmha__axpy(hi - lo, 1, dy + t * O + lo, dbias + lo);
    }
}

/* act(x) is computed again; where dW needs it and dx is fresh, that holds the derivative meanwhile. */
static cmha_status cmha__sublayer_backward(cmha_tape *tape, cmha_record *r) {
    const cmha__sublayer_saved *s = (const cmha__sublayer_saved *)r->user;
    cmha_tensor *x = r->in[0], *w = r->in[1];
    size_t T = cmha__rows(r->out), O = w->shape[0], I = w->shape[1];
    int threads = tape->context->threads, act = s->act, fresh = 0;
    const cmha__activated rows = {T, I, act};
    int writes = act < 0 || (!cmha__is_gated(act) && w->needs_grad);
    int identity = s->gain == 1 && s->dropout <= 0;
    cmha_real *dw = cmha_tape_grad(tape, w), *dbias = cmha_tape_grad(tape, r->in[2]);
    cmha_real *dx = writes ? cmha__grad_fresh(tape, x, &fresh) : cmha_tape_grad(tape, x);
    cmha__mark mark = cmha__mark_of(tape);
    cmha_real *gd = identity ? r->out->grad : cmha__reals(tape, r->out->size); /* gain * dropout(dy) */
    cmha_real *h = act >= 0 && dw ? cmha__reals(tape, T * I) : x->data;
    cmha_real *dh = act >= 0 && dx ? cmha__reals(tape, T * I) : dx, adds = act < 0 && !fresh ? 1 : 0;
    const cmha__product back = {0, 0, T, I, O, O, I, I, 1, adds, gd, w->data, dh};
    cmha_real *room = dx ? cmha__reals(tape, cmha__gemm_width(&back) * O) : NULL;
    int holds = act >= 0 && dw && dx && fresh;
    if (cmha__computes(tape)) {
        if (!identity)
            CMHA__FOR_CHUNKS(threads, r->out->size, lo, hi) {
                cmha_dropout_forward(r->out->grad + lo, hi - lo, s->dropout, s->key, s->first + lo, gd + lo);
                for (size_t i = lo; i < hi; i++) gd[i] *= s->gain;
            }
        if (holds)
            CMHA__FOR_CHUNKS(threads, T * I, lo, hi) {
                cmha__activation_both(x->data + lo, hi - lo, (cmha_activation)act, h + lo, dx + lo);
            }
        else if (act >= 0 && dw) cmha__activate(threads, &rows, x->data, NULL, h);
        if (dw) cmha__gemm(threads, 1, 0, O, I, T, 1, gd, O, h, I, 1, dw, I); /* dW += g^T h */
        if (dbias) cmha__bias_backward(threads, gd, T, O, dbias);
        if (dx) cmha__gemm_in(threads, &back, room); /* dh = g W */
        if (holds)
            CMHA__FOR_CHUNKS(threads, T * I, lo, hi) {
                for (size_t i = lo; i < hi; i++) dx[i] *= dh[i];
            }
        else if (act >= 0 && dx) cmha__activate(threads, &rows, x->data, dh, dx);
    }
    cmha__rewind(tape, mark);
    cmha__pass_grad(tape, r->out, r->in[3]);
    return tape->status;
}

/* to [n] = gain * (x + bias) + base, both may be NULL. */
CMHA__HOT(static, cmha__finish_row, (const cmha_real *x, const cmha_real *bias, const cmha_real *base,
        cmha_real gain, size_t n, cmha_real *to), (x, bias, base, gain, n, to)) {
    if (bias && base)
        for (size_t i = 0; i < n; i++) to[i] = gain * (x[i] + bias[i]) + base[i];
    else if (bias)
        for (size_t i = 0; i < n; i++) to[i] = gain * (x[i] + bias[i]) + 0;
    else if (base)
        for (size_t i = 0; i < n; i++) to[i] = gain * x[i] + base[i];
    else
        for (size_t i = 0; i < n; i++) to[i] = gain * x[i] + 0;
}

/* y = residual + gain * dropout(product + bias), row by row; y may be the product's own memory. */
static void cmha__sublayer_finish(const cmha_tape *tape, const cmha__sublayer_saved *s, cmha_real *product,
        const cmha_tensor *bias, const cmha_tensor *residual, cmha_tensor *y) {
    const size_t T = cmha__rows(y), O = cmha__last(y);
    if (!bias && !residual && s->gain == 1 && s->dropout <= 0) return;
    CMHA__FOR_EACH(tape->context->threads, T, t) {
        const cmha_real *base = residual ? residual->data + t * O : NULL;
        cmha_real *p = product + t * O;
        int drops = s->dropout > 0;
        if (bias && drops) cmha__axpy(O, 1, bias->data, p);
        if (drops) cmha_dropout_forward(p, O, s->dropout, s->key, s->first + t * O, p);
        cmha__finish_row(p, bias && !drops ? bias->data : NULL, base, s->gain, O, y->data + t * O);
    }
}

/* in: x, weight, bias, residual */
static cmha_status cmha__check_linear(cmha_tape *tape, const char *name, cmha_tensor *const *in, int act) {
    const cmha_tensor *w = in[1], *bias = in[2];
    size_t W = cmha__last(in[0]), I = cmha__last(w);
    if (act < CMHA_ACTIVATION_COUNT && cmha__is_gated(act)) I *= 2;
    if (w->rank != 2) CMHA__MISFIT(tape, "%s: weight must be [O, I], not of rank %d", name, w->rank);
    else if (act < CMHA_ACTIVATION_NONE || act >= CMHA_ACTIVATION_COUNT)
        CMHA__MISUSE(tape, "%s: act = %d is no activation", name, act);
    else if (W != I) CMHA__MISFIT(tape, "%s: x has a width of %zu, weight needs %zu", name, W, I);
    else if (bias && bias->size != w->shape[0])
        CMHA__MISFIT(tape, "%s: bias has %zu numbers, weight needs %zu", name, bias->size, w->shape[0]);
    return cmha__check_packed(tape, name, in, 4, 2, 0);
}

/* Does what cmha_sublayer does on in = x, weight, bias, residual, with the act, gain and dropout of `form`.
   in_place: outside of a recording the residual's memory may be taken. */
static cmha_tensor *cmha__sublayer(cmha_tape *tape, cmha_tensor *const *in, const cmha__sublayer_saved *form,
        int in_place) {
    cmha_tensor *x = in[0], *weight = in[1], *bias = in[2], *residual = in[3];
    if (!x || !weight || !tape || tape->status) return NULL;
    const int act = form->act;
    if (cmha__check_linear(tape, "linear", in, act) || cmha__check_dropout(tape, form->dropout)) return NULL;
    size_t T = cmha__rows(x), O = weight->shape[0], I = weight->shape[1];
    if (residual && (cmha__last(residual) != O || cmha__rows(residual) != T))
        return CMHA__MISFIT(tape, "linear: residual has %zu rows of %zu, the result %zu of %zu",
            cmha__rows(residual), cmha__last(residual), T, O);
    size_t shape[CMHA_MAX_RANK];
    memcpy(shape, x->shape, sizeof shape);
    shape[x->rank - 1] = O;
    in_place = in_place && residual && !cmha__records(tape);
    cmha_tensor *y = in_place ? residual : cmha__result(tape, x->rank, shape);
    cmha__sublayer_saved *s = y ? CMHA__NEW(tape, cmha__sublayer_saved) : NULL;
    if (!s) return NULL;
    *s = *form;
    if (!cmha__records(tape)) s->dropout = 0;
    s->key = s->dropout > 0 ? cmha__draw(tape) : 0;
    s->first = cmha__first_number(tape, y);
    cmha__mark mark = cmha__mark_of(tape);
    cmha_real *h = act >= 0 ? cmha__reals(tape, T * I) : x->data;
    cmha_real *product = in_place ? cmha__reals(tape, T * O) : y->data;
    const cmha__activated rows = {T, I, act};
    if (act >= 0 && cmha__computes(tape)) cmha__activate(tape->context->threads, &rows, x->data, NULL, h);
    cmha__weight_product(tape, weight, h, T, 0, product); /* Y = h W^T */
    if (cmha__computes(tape)) cmha__sublayer_finish(tape, s, product, bias, residual, y);
    cmha__rewind(tape, mark);
    return cmha__push(tape, "sublayer", y, in, 4, cmha__sublayer_backward, s);
}

CMHA_DEF cmha_tensor *cmha_sublayer(cmha_tape *tape, cmha_tensor *x, int act, cmha_tensor *weight,
        cmha_tensor *bias, cmha_tensor *residual, cmha_real gain, cmha_real dropout) {
    cmha_tensor *in[4] = {x, weight, bias, residual};
    const cmha__sublayer_saved form = {act, gain, dropout, 0, 0};
    return cmha__sublayer(tape, in, &form, 0);
}

/* CRAT eq 4-5. */
CMHA_DEF cmha_tensor *cmha_linear(cmha_tape *tape, cmha_tensor *x, cmha_tensor *weight, cmha_tensor *bias) {
    return cmha_sublayer(tape, x, CMHA_ACTIVATION_NONE, weight, bias, NULL, 1, 0);
}

/* ---- Common: norms. A norm is a kernel pair and its row in CMHA_NORMS ---- */

/* Returns 1 / sqrt(mean of (x - mean)^2 + eps) where squares leave the type's range; NaN of infinite rows. */
CMHA__COLD static cmha_real cmha__wide_root(const cmha_real *x, size_t D, double eps, int centred,
        cmha_real *mean) {
    double top = 0, middle = 0, sum = 0;
    for (size_t i = 0; i < D; i++) {
        double d = fabs((double)x[i]);
        if (!(d <= DBL_MAX)) return (cmha_real)NAN;
        top = d > top ? d : top;
    }
    if (centred)
        for (size_t i = 0; i < D; i++) middle += (double)x[i] / top;
    middle /= (double)D;
    for (size_t i = 0; i < D; i++) {
        double d = (double)x[i] / top - middle;
        sum += d * d;
    }
    *mean = (cmha_real)(middle * top);
    double root = 1 / (top * sqrt(sum / (double)D + eps / top / top));
    return root <= (double)FLT_MAX ? (cmha_real)root : 0; /* eps = 0 and a constant row */
}

/* A normed row: y = (x - mean) r (plus + weight). */
typedef struct { const cmha_real *weight; size_t D; cmha_real plus, mean, r; } cmha__normed;

/* Returns the mean of dy weight (x - mean) r^2 where a product leaves the type's range. */
CMHA__COLD static cmha_real cmha__wide_cross(const cmha__normed *n, const cmha_real *x, const cmha_real *dy) {
    double sum = 0;
    for (size_t i = 0; i < n->D; i++)
        sum += (double)dy[i] * ((double)n->plus + n->weight[i]) * (((double)x[i] - n->mean) * n->r);
    return (cmha_real)(sum * (double)n->r / (double)n->D);
}

/* Returns the mean of g (x - mean) r^2 over a row, g = dy (plus + weight), and g's sum; it vectorises. */
static cmha_real cmha__norm_cross(const cmha__normed *normed, const cmha_real *x, const cmha_real *dy,
        cmha_real *sum) {
    const cmha_real *weight = normed->weight, plus = normed->plus, mean = normed->mean, r = normed->r;
    const size_t D = normed->D;
    cmha_real g[256], c[256], cross = 0;
    *sum = 0;
    CMHA__IN_PIECES(at, n, D, 256) {
        for (size_t i = 0; i < n; i++) {
            g[i] = dy[at + i] * (plus + weight[at + i]);
            c[i] = g[i] * (x[at + i] - mean);
        }
        *sum += cmha__total(g, n);
        cross += cmha__total(c, n);
    }
    cross = cross * r * r / (cmha_real)D;
    if (cross <= CMHA__LARGEST && cross >= -CMHA__LARGEST) return cross;
    return cmha__wide_cross(normed, x, dy);
}

#define CMHA__NORM_PLUS(name, word, pass, gain, offset, kept, plus) plus,
static const unsigned char cmha__norm_plus[] = {CMHA_NORMS(CMHA__NORM_PLUS)};

CMHA__HOT(CMHA_DEF, cmha_norm_forward, (const cmha_norm_args *args, const cmha_real *x,
        const cmha_real *weight, const cmha_real *bias, cmha_real *y, cmha_real *stats), (args, x, weight,
        bias, y, stats)) {
    const size_t T = args->T, D = args->D;
    const cmha_real eps = args->eps, plus = cmha__norm_plus[args->kind];
    const int centred = args->kind == CMHA_NORM_LAYER || args->kind == CMHA_NORM_LAYER_GAIN;
    for (size_t t = 0; t < T; t++, x += D, y += D) {
        const cmha_real *d = centred ? y : x;
        cmha_real mean = centred ? cmha__total(x, D) / (cmha_real)D : 0, r, squares;
        if (centred)
            for (size_t i = 0; i < D; i++) y[i] = x[i] - mean;
        squares = cmha__dot(d, d, D);
        r = 1 / (cmha_real)sqrt((double)(squares / (cmha_real)D + eps));
        if (r > CMHA__LARGEST) r = 0; /* eps = 0 and a constant row */
        if (!(squares <= CMHA__LARGEST)) r = cmha__wide_root(x, D, eps, centred, &mean);
        if (centred)
            for (size_t i = 0; i < D; i++) y[i] = (x[i] - mean) * r * weight[i];
        else
            for (size_t i = 0; i < D; i++) y[i] = x[i] * r * (plus + weight[i]);
        if (bias) cmha__axpy(D, 1, bias, y);
        if (centred) *stats++ = mean;
        *stats++ = r;
    }
}

CMHA__HOT(CMHA__FIT, cmha_norm_backward, (const cmha_norm_args *args, const cmha_real *x,
        const cmha_real *weight, const cmha_real *stats, const cmha_real *dy, const cmha_grads *grads), (args,
        x, weight, stats, dy, grads)) {
    const size_t T = args->T, D = args->D;
    const cmha_real plus = cmha__norm_plus[args->kind];
    const int centred = args->kind == CMHA_NORM_LAYER || args->kind == CMHA_NORM_LAYER_GAIN;
    cmha_real *dx = grads->x, *dweight = grads->weight, *dbias = grads->bias;
    for (size_t t = 0; t < T; t++, x += D, dy += D) {
        cmha_real mean = centred ? *stats++ : 0, r = *stats++;
        if (dx) {
            const cmha__normed normed = {weight, D, plus, mean, r};
            cmha_real sum, cross = cmha__norm_cross(&normed, x, dy, &sum);
            sum = centred ? sum / (cmha_real)D : 0;
            for (size_t i = 0; i < D; i++)
                dx[i] += r * (dy[i] * (plus + weight[i]) - sum - (x[i] - mean) * cross);
            dx += D;
        }
        if (dweight)
            for (size_t i = 0; i < D; i++) dweight[i] += dy[i] * ((x[i] - mean) * r);
        if (dbias) cmha__axpy(D, 1, dy, dbias);
    }
}

/* Defines the pass of a norm by its kernel pair. */
#define CMHA__NORM_PASS(pass, name, kind_type, kept_type) \
    static void pass(const cmha__call *c) { \
        const name##_args args = {(kind_type)c->kind, c->n, c->D, c->number}; \
        const cmha_grads grads = {c->dx[0], c->dx[1], c->dx[2]}; \
        kept_type *stats = (kept_type *)c->kept; \
        if (!cmha__goes_back(c)) name##_forward(&args, c->x[0], c->x[1], c->x[2], c->y, stats); \
        else name##_backward(&args, c->x[0], c->x[1], stats, c->dy, &grads); \
    }
CMHA__NORM_PASS(cmha__norm_rows, cmha_norm, cmha_norm, cmha_real)
#define CMHA__NORM_ROW(name, word, pass, gain, offset, kept, plus) \
    {word, pass, NULL, 2, CMHA__EPS, 0, {gain, offset}, (kept) * sizeof(cmha_real)},
static const cmha__op cmha__norms[] = {CMHA_NORMS(CMHA__NORM_ROW)};

CMHA_DEF cmha_tensor *cmha_layernorm(cmha_tape *tape, cmha_tensor *x, cmha_tensor *weight, cmha_tensor *bias,
        cmha_real eps) {
    cmha_tensor *in[3] = {x, weight, bias};
    return cmha__operate_on(tape, &cmha__norms[CMHA_NORM_LAYER], CMHA_NORM_LAYER, eps, in);
}

CMHA_DEF cmha_tensor *cmha_rmsnorm(cmha_tape *tape, cmha_tensor *x, cmha_tensor *weight, cmha_real eps) {
    return cmha__operate(tape, &cmha__norms[CMHA_NORM_RMS], CMHA_NORM_RMS, eps, x, weight);
}

/* ---- Common: losses ---- */

/* The largest logit of a row, from which its exponentials count. */
static cmha_real cmha__top_logit(const cmha_real *logits, size_t V) {
    cmha_real top = cmha__largest(logits, V);
    return top > CMHA__LOWEST ? top : logits[0]; /* only NaN and -Inf: let them through */
}

CMHA__HOT_OF(CMHA_DEF, double, cmha_cross_entropy_forward,
        (const cmha_cross_entropy_args *args, const cmha_real *logits, cmha_real *lse, size_t *counted),
        (args, logits, lse, counted)) {
    const size_t T = args->T, V = args->V;
    const int32_t *targets = args->targets, ignore = args->ignore;
    double sum = 0;
    size_t count = 0;
    for (size_t t = 0; t < T; t++, logits += V) {
        cmha_real some[256], all = 0;
        if (lse) lse[2 * t] = lse[2 * t + 1] = 0;
        if (targets[t] == ignore) continue;
        cmha_real top = cmha__top_logit(logits, V);
        CMHA__IN_PIECES(i, n, V, 256) {
            cmha__copy(some, logits + i, n);
            all += cmha__exp_shifted(some, n, top);
        }
        cmha_real rest = (cmha_real)log((double)all);
        if (lse) {
            lse[2 * t] = top;
            lse[2 * t + 1] = rest;
        }
        sum += ((double)top - logits[targets[t]]) + rest;
        count++;
    }
    if (counted) *counted = count;
    return sum;
}

CMHA__HOT_OF(CMHA__FIT, double, cmha_cross_entropy_gradient,
        (const cmha_cross_entropy_args *args, cmha_real *logits, cmha_real scale), (args, logits, scale)) {
    const size_t T = args->T, V = args->V;
    const int32_t *targets = args->targets, ignore = args->ignore;
    double sum = 0;
    for (size_t t = 0; t < T; t++, logits += V) {
        if (targets[t] == ignore) {
            cmha__zeros(logits, V);
            continue;
        }
        cmha_real top = cmha__top_logit(logits, V);
        sum += (double)top - logits[targets[t]];
        cmha_real all = cmha__exp_shifted(logits, V, top), factor = scale / all;
        sum += log((double)all);
        for (size_t i = 0; i < V; i++) logits[i] *= factor;
        logits[targets[t]] -= scale;
    }
    return sum;
}

CMHA__HOT(CMHA__FIT, cmha_cross_entropy_backward,
        (const cmha_cross_entropy_args *args, const cmha_real *logits, const cmha_real *lse, cmha_real scale,
        cmha_real *dlogits), (args, logits, lse, scale, dlogits)) {
    const size_t T = args->T, V = args->V;
    const int32_t *targets = args->targets, ignore = args->ignore;
    if (!dlogits) return;
    for (size_t t = 0; t < T; t++, logits += V, dlogits += V) {
        if (targets[t] == ignore) continue;
        for (size_t i = 0; i < V; i++)
            dlogits[i] += scale * cmha__exp((logits[i] - lse[2 * t]) - lse[2 * t + 1]);
        dlogits[targets[t]] -= scale;
    }
}

/* `early`, if not 0, is the cotangent of the backward to come: gradients are passed on at once, while the
   logits are there. The backward makes up for another one; without it they are wrong. */
typedef struct {
    const int32_t *targets;
    int32_t ignore;
    const cmha_real *weights; /* of the classes; NULL = 1 each */
    cmha_real cap, early; /* a soft cap on logits, or 0 */
    cmha_real z, *z_loss; /* gets z times the mean of lse^2, whose gradient joins the loss's; z = 0: not */
} cmha__entropy_options;

typedef struct {
    cmha__entropy_options o;
    size_t V;
    cmha_real *dlogits; /* gets the gradient of logits that are kept; NULL: these become it */
    double *sums; /* for each thread: its part of the loss, of `counted`, and of lse^2 */
    double counted; /* rows, or their weights' sum */
    cmha_real *lse; /* of logits that are kept, else NULL */
    cmha_real *slopes; /* the cap's derivatives of each thread's row */
} cmha__entropy;

static cmha__entropy *cmha__entropy_new(cmha_tape *tape, const cmha__entropy_options *o, size_t T,
        size_t V) {
    if (!o->targets) CMHA__MISUSE(tape, "cross-entropy: targets is NULL");
    if (tape->status) return NULL;
    cmha__entropy *s = CMHA__NEW(tape, cmha__entropy);
    if (s) s->sums = (double *)cmha__record_alloc(tape, 3 * (size_t)tape->context->threads * sizeof *s->sums);
    if (!s || !s->sums || cmha__check_tokens(tape, o->targets, T, V, &o->ignore)) return NULL;
    if (o->weights && !cmha__dry(tape))
        for (size_t i = 0; i < V; i++) {
            double w = (double)o->weights[i];
            cmha_status status = w < 0 ? CMHA_ERR_ARGUMENT : CMHA_ERR_NOT_FINITE;
            if (w >= 0 && w <= FLT_MAX) continue;
            cmha__reject(tape, status, "cross-entropy: class_weights[%zu] is %g", i, w);
            return NULL;
        }
    s->o = *o;
    s->V = V;
    return s;
}

static double cmha__row_weight(const cmha__entropy_options *o, size_t t) {
    if (o->targets[t] == o->ignore) return 0;
    return o->weights ? (double)o->weights[o->targets[t]] : 1;
}

/* Adds lse^2 of a row of logits, 0 where it has no target, to a sum. Returns the factor 2 z lse on the
   probabilities in its gradient. */
static cmha_real cmha__z_row(const cmha__entropy *s, const cmha_real *logits, size_t t, double *sum) {
    const cmha_cross_entropy_args args = {1, s->V, s->o.targets + t, s->o.ignore};
    cmha_real lse[2];
    cmha_cross_entropy_forward(&args, logits, lse, NULL);
    double all = (double)lse[0] + (double)lse[1];
    *sum += cmha__row_weight(&s->o, t) * all * all;
    return (cmha_real)(2 * (double)s->o.z * all);
}

/* Adds the losses of n rows from t on to a thread's sums; with a scale computes their gradient. */
static void cmha__entropy_rows(const cmha__entropy *s, cmha_real *logits, size_t t, size_t n,
        const cmha_real *scale, int thread) {
    const cmha__entropy_options *o = &s->o;
    const size_t V = s->V;
    double *sums = s->sums + 3 * thread;
    size_t m, counted;
    for (size_t end = t + n; t < end; t += m, logits += m * V) {
        double weight = o->weights ? cmha__row_weight(o, t) : 1;
        cmha_real *lse = cmha__at(s->lse, 2 * t), factor = scale ? *scale * (cmha_real)weight : 0;
        cmha_real *slope = o->cap > 0 ? s->slopes + (size_t)thread * V : NULL;
        cmha_real z = 0;
        m = o->weights || slope || o->z > 0 ? 1 : end - t;
        const cmha_cross_entropy_args args = {m, V, o->targets + t, o->ignore};
        if (slope) cmha_softcap_forward(logits, V, o->cap, logits, scale ? slope : NULL);
        if (o->z > 0) z = cmha__z_row(s, logits, t, &sums[2]);
        if (CMHA__TRAINS && s->dlogits)
            cmha_cross_entropy_backward(&args, logits, lse, factor, s->dlogits + t * V);
        else if (scale) {
            sums[0] += weight * cmha_cross_entropy_gradient(&args, logits, factor);
            if (z > 0 || z < 0) { /* from factor (p - 1 at the target) to that + factor z p */
                for (size_t i = 0; i < V; i++) logits[i] *= 1 + z;
                logits[*args.targets] += factor * z;
            }
            if (slope)
                for (size_t i = 0; i < V; i++) logits[i] *= slope[i];
        } else {
            sums[0] += weight * cmha_cross_entropy_forward(&args, logits, lse, &counted);
            sums[1] += weight * (double)counted;
        }
    }
}

static void cmha__entropy_mean(cmha_tape *tape, const cmha__entropy *s, size_t T, cmha_real *mean) {
    double sum = 0, squares = 0;
    size_t rows = 0;
    if (s->o.weights)
        for (size_t t = 0; t < T; t++) rows += s->o.targets[t] != s->o.ignore;
    if (rows && !(s->counted > 0))
        CMHA__MISUSE(tape, "cross-entropy: the class weights of %zu rows sum to 0", rows);
    for (int c = 0; c < tape->context->threads; c++) {
        sum += s->sums[3 * c];
        squares += s->sums[3 * c + 2];
    }
    *mean = s->counted > 0 ? (cmha_real)(sum / s->counted) : 0;
    if (s->o.z > 0) *s->o.z_loss = s->counted > 0 ? (cmha_real)((double)s->o.z * squares / s->counted) : 0;
}

/* given: the options, in this call alone; kept: the loss. */
static void cmha__entropy_shape(cmha__call *c) {
    cmha__entropy *s = cmha__entropy_new(c->tape, (const cmha__entropy_options *)c->given, c->rows, c->D);
    if (s) s->lse = cmha__reals(c->tape, 2 * c->rows);
    c->kept = s;
    c->given = NULL;
    cmha__one_shape(c);
}
static void cmha__entropy_pass(const cmha__call *c) {
    cmha__entropy *s = (cmha__entropy *)c->kept;
    const size_t T = cmha__rows(c->in[0]);
    const int threads = c->threads, back = cmha__goes_back(c);
    s->dlogits = back ? c->dx[0] : NULL;
    cmha_real scale = back ? c->dy[0] / (cmha_real)s->counted : 0;
    CMHA__FOR_CHUNKS(threads, back && !(s->counted > 0) ? 0 : T, lo, hi) {
        cmha__entropy_rows(s, c->in[0]->data + lo * s->V, lo, hi - lo, back ? &scale : NULL, cmha__chunk);
    }
    if (back) return;
    for (int i = 0; i < threads; i++) s->counted += s->sums[3 * i + 1];
    cmha__over_ranks(c->tape, &s->counted, 1);
    cmha__entropy_mean(c->tape, s, T, c->y);
}

CMHA_DEF cmha_tensor *cmha_cross_entropy(cmha_tape *tape, cmha_tensor *logits, const int32_t *targets,
        int32_t ignore, const cmha_real *class_weights) {
    const cmha__entropy_options o = {targets, ignore, class_weights, 0, 0, 0, NULL};
    CMHA__RUNS(cmha__operate_by, "cross_entropy", cmha__entropy_pass, cmha__entropy_shape, 1, 0, logits, 0,
            &o, 0);
}

/* Sweeps once over the rows: the losses, and for a cotangent other than 0 the gradients of in = x, weight,
   bias. 256 rows of logits or more at a time: each time the weight's gradient is read and written. */
static void cmha__projection_sweep(cmha_tape *tape, cmha__entropy *s, cmha_tensor *const *in,
        cmha_real cotangent) {
    const cmha_tensor *x = in[0], *w = in[1], *bias = in[2];
    size_t T = cmha__rows(x), V = s->V, I = w->shape[1], rows = ((size_t)4 << 20) / (V ? V : 1);
    int threads = tape->context->threads, fresh = 0, back = cotangent != 0;
    cmha_real *dw = back ? cmha_tape_grad(tape, in[1]) : NULL;
    cmha_real *db = back ? cmha_tape_grad(tape, in[2]) : NULL;
    cmha_real *dx = back ? cmha__grad_fresh(tape, in[0], &fresh) : NULL;
    cmha_real scale = cotangent / (cmha_real)s->counted, adds = fresh ? 0 : 1;
    cmha__mark mark = cmha__mark_of(tape);
    rows = cmha__min(rows < 256 ? 256 : rows, T);
    cmha_real *logits = cmha__reals(tape, rows * V);
    if (s->o.cap > 0) s->slopes = cmha__reals(tape, (size_t)threads * V);
    if (w->packed && cmha__dry(tape)) cmha__weight_product(tape, w, x->data, rows, 0, logits);
    if (cmha__computes(tape))
        CMHA__IN_PIECES(t, n, T, rows) {
            const cmha_real *some = x->data + t * I;
            if (w->packed) cmha__weight_product(tape, w, some, n, 0, logits);
            else cmha__gemm(threads, 0, 1, n, V, I, 1, some, I, w->data, I, 0, logits, V);
            CMHA__FOR_CHUNKS(threads, n, lo, hi) {
                if (bias)
                    for (size_t i = lo; i < hi; i++) cmha__axpy(V, 1, bias->data, logits + i * V);
                cmha__entropy_rows(s, logits + lo * V, t + lo, hi - lo, back ? &scale : NULL, cmha__chunk);
            }
            if (dx) /* += G W */
                cmha__gemm(threads, 0, 0, n, I, V, 1, logits, V, w->data, I, adds, dx + t * I, I);
            if (dw) cmha__gemm(threads, 1, 0, V, I, n, 1, logits, V, some, I, 1, dw, I); /* += G^T X */
            if (db) cmha__bias_backward(threads, logits, n, V, db);
        }
    cmha__rewind(tape, mark);
}

static cmha_status cmha__projection_backward(cmha_tape *tape, cmha_record *r) {
    cmha__entropy *s = (cmha__entropy *)r->user;
    int dry = cmha__dry(tape);
    cmha_real rest = dry ? s->o.early == 0 : r->out->grad[0] - s->o.early;
    if ((dry || s->counted > 0) && rest != 0) cmha__projection_sweep(tape, s, r->in, rest);
    return tape->status;
}

static cmha_tensor *cmha__linear_cross_entropy(cmha_tape *tape, cmha_tensor *x, cmha_tensor *weight,
        cmha_tensor *bias, const cmha__entropy_options *o) {
    if (!x || !weight || !tape || tape->status) return NULL;
    size_t T = cmha__rows(x), one = 1;
    cmha_tensor *in[4] = {x, weight, bias, NULL}, *y = cmha__result(tape, 1, &one);
    if (o->targets && cmha__check_linear(tape, "cross-entropy", in, CMHA_ACTIVATION_NONE)) return NULL;
    cmha__entropy *s = cmha__entropy_new(tape, o, T, weight->shape[0]);
    if (!s) return NULL;
    if (!cmha__dry(tape))
        for (size_t t = 0; t < T; t++) s->counted += cmha__row_weight(o, t);
    cmha__over_ranks(tape, &s->counted, 1);
    if (!cmha__records(tape) || !(cmha__dry(tape) || s->counted > 0)) s->o.early = 0;
    cmha__projection_sweep(tape, s, in, s->o.early);
    if (!cmha__dry(tape)) cmha__entropy_mean(tape, s, T, y->data);
    return cmha__push(tape, "linear_cross_entropy", y, in, 3, cmha__projection_backward, s);
}

/* CRAT eq 27, and its loss. */
CMHA_DEF cmha_tensor *cmha_linear_cross_entropy(cmha_tape *tape, cmha_tensor *x, cmha_tensor *weight,
        cmha_tensor *bias, const int32_t *targets, int32_t ignore, const cmha_real *class_weights) {
    const cmha__entropy_options o = {targets, ignore, class_weights, 0, 0, 0, NULL};
    return cmha__linear_cross_entropy(tape, x, weight, bias, &o);
}

/* The mean of a loss, or 0. kind = 0: the squared error of x [.., V]; 1: the negative log likelihood of x
   [.., 2V], means and log variances. given: targets [.., V]; count = 1: those that are NaN do not count. */
static void cmha__numbers_shape(cmha__call *c) {
    if (!c->given) CMHA__MISUSE(c->tape, "squared error: targets is NULL");
    cmha__one_shape(c);
}
static void cmha__numbers_pass(const cmha__call *c) {
    const cmha_real *targets = (const cmha_real *)c->given, *x = c->x[0];
    size_t width = c->D, V = c->kind ? width / 2 : width, n = cmha__rows(c->in[0]) * V;
    size_t *counted = (size_t *)c->kept;
    double sum = 0, all = 0;
    if (!c->dy) {
        for (size_t i = 0; i < n; i++) all += !c->count || targets[i] == targets[i];
        cmha__over_ranks(c->tape, &all, 1);
        *counted = (size_t)all;
    }
    cmha_real *d = c->dx[0];
    double scale = c->dy && *counted ? (double)c->dy[0] / (double)*counted : 0;
    for (size_t i = 0, row = 0; i < n; i++, row += i % V ? 0 : width) {
        size_t at = row + i % V;
        cmha_real target = targets[i];
        double off = (double)x[at] - target, log_variance = c->kind ? (double)x[at + V] : 0;
        double precision = c->kind ? exp(-log_variance) : 2, square = precision * off * off;
        if (c->count && target != target) continue;
        sum += ((c->kind ? 1.83787706640934548356 + log_variance : 0) + square) / 2; /* log 2 pi */
        if (!d) continue;
        d[at] += (cmha_real)(scale * precision * off);
        if (c->kind) d[at + V] += (cmha_real)(scale * (1 - square) / 2);
    }
    if (!c->dy) c->y[0] = *counted ? (cmha_real)(sum / (double)*counted) : 0;
}

static cmha_tensor *cmha__number_loss(cmha_tape *tape, cmha_tensor *x, const cmha_real *targets, int gaussian,
        int skips) {
    static const cmha__op op = {
        "squared_error", cmha__numbers_pass, cmha__numbers_shape, 1, 0, 0, {0, 0}, sizeof(size_t)};
    return cmha__operate_by(tape, &op, x, gaussian, targets, (size_t)skips);
}

CMHA_DEF cmha_tensor *cmha_squared_error(cmha_tape *tape, cmha_tensor *x, const cmha_real *targets) {
    return cmha__number_loss(tape, x, targets, 0, 0);
}

/* Bounds the second half of each row, log variances, to +-16: y = 16 tanh(x / 16). */
static void cmha__bound_pass(const cmha__call *c) {
    for (size_t i = 0, V = c->D; i < c->n * 2 * V; i++) {
        int second = i / V % 2 != 0;
        cmha_real y = c->y[i] / 16;
        if (c->dy) c->dx[0][i] += second ? c->dy[i] * (1 - y * y) : c->dy[i];
        else c->y[i] = second ? 32 * cmha__sigmoid(c->x[0][i] / 8) - 16 : c->x[0][i];
    }
}
static const cmha__op cmha__bound_op = CMHA__OP("log variances", cmha__bound_pass, NULL, 1, CMHA__PLANES);

/* ---- Common: positions ---- */

CMHA_DEF double cmha_frequencies(cmha_frequency kind, double base, size_t P, const cmha_rope_options *options,
        double *omega) {
    cmha_rope_options o;
    cmha__zero(o);
    if (options) o = *options;
    size_t pairs = o.rotary_dims ? cmha__min(o.rotary_dims / 2, P) : P;
    int yarn = o.scaling == CMHA_ROPE_SCALING_YARN, mixed = yarn || o.scaling == CMHA_ROPE_SCALING_LLAMA3;
    int by_index = yarn && o.ramp == CMHA_ROPE_RAMP_INDEX;
    double exponent = kind == CMHA_FREQUENCY_LITERAL ? 2.0 : 1.0; /* d_k = 2n */
    double n = (double)pairs, f = o.scaling ? o.factor : 1, from = o.slow, to = o.fast;
    double turns = o.length / 6.283185307179586, rate = n / (exponent * log(base)), root = 0.1 * log(f) + 1;
    if (by_index) { /* 2n - 1, though there are n pairs, and 0.001 as in YaRN's code */
        from = fmin(ceil(rate * log(turns / o.slow)), 2 * n - 1);
        to = fmax(floor(rate * log(turns / o.fast)), 0);
    }
    if (!(f >= 1) || (mixed && !(o.slow <= o.fast && turns > 0 && (by_index ? to <= from : from < to))))
        return 0;
    if (by_index && to >= from) from += 0.001;
    for (size_t j = 0; j < P; j++) {
        double w = j < pairs ? pow(base, -exponent * (double)j / n) : 0;
        double kept = o.scaling == CMHA_ROPE_SCALING_LINEAR ? 0 : 1;
        if (mixed) kept = fmax(0, fmin(1, ((by_index ? (double)j : w * turns) - from) / (to - from)));
        omega[j] = w * (kept + (1 - kept) / f);
        if (o.scaling == CMHA_ROPE_SCALING_NTK && pairs > 1) omega[j] *= pow(f, -(double)j / (n - 1));
    }
    return yarn ? root * root : 1;
}

CMHA_DEF void cmha_rotation_table(const double *omega, size_t P, size_t n, ptrdiff_t pos0, cmha_real *table) {
    for (size_t r = 0; r < n; r++, table += 2 * P)
        for (size_t j = 0; j < P; j++) {
            double at = (double)pos0 + (double)r, angle = at * omega[j], c = cos(angle), s = sin(angle);
            double rest = fma(at, omega[j], -angle); /* what the product was rounded by */
            table[j] = (cmha_real)(c - rest * s);
            table[P + j] = (cmha_real)(s + rest * c);
        }
}

/* CoPE eq 1: the imaginary part. */
CMHA_DEF void cmha_cope_table(cmha_cope_imag kind, size_t n, size_t d, double base, size_t pos0,
        cmha_real *table) {
    for (size_t c = 0; c < d; c++) {
        double omega = pow(base, -2.0 * (double)(c / 2) / (double)d);
        int cosine = kind == CMHA_COPE_IMAG_SIN_COS && c % 2;
        for (size_t r = 0; r < n; r++) {
            double angle = (double)(pos0 + r) * omega;
            double wave = cosine ? cos(angle) : sin(angle);
            table[r * d + c] = kind == CMHA_COPE_IMAG_LEARNED ? 0 : (cmha_real)wave;
        }
    }
}

/* ---- ComplexFormer: the Euler transform ---- */

/* Numbers worked on at a time: temporaries stay in the L1 cache. */
#ifdef CMHA_SMALL_STACK
#define CMHA__PAIRS ((size_t)64)
#else
#define CMHA__PAIRS ((size_t)256)
#endif

/* Some pairs of a head vector: j0 .. j0 + m - 1 of P. */
typedef struct { size_t P, j0, m; cmha_layout layout; } cmha__some_pairs;

/* re, im [m] from them. */
static void cmha__split_pairs(const cmha__some_pairs *s, const cmha_real *x, cmha_real *re, cmha_real *im) {
    const size_t j0 = s->j0, m = s->m;
    if (s->layout == CMHA_LAYOUT_HALF) {
        cmha__copy(re, x + j0, m);
        cmha__copy(im, x + s->P + j0, m);
    } else
        for (size_t j = 0; j < m; j++) {
            re[j] = x[2 * (j0 + j)];
            im[j] = x[2 * (j0 + j) + 1];
        }
}

/* The reverse, added to x. */
static void cmha__add_pairs(const cmha__some_pairs *s, const cmha_real *re, const cmha_real *im,
        cmha_real *x) {
    const size_t j0 = s->j0, m = s->m;
    if (s->layout == CMHA_LAYOUT_HALF) {
        cmha__axpy(m, 1, re, x + j0);
        cmha__axpy(m, 1, im, x + s->P + j0);
    } else
        for (size_t j = 0; j < m; j++) {
            x[2 * (j0 + j)] += re[j];
            x[2 * (j0 + j) + 1] += im[j];
        }
}

/* Writes the angles of complex numbers, 0 for the number 0. */
static void cmha__phases(const cmha_real *re, const cmha_real *im, size_t m, cmha_real *theta) {
    for (size_t j = 0; j < m; j++) theta[j] = cmha__atan2(im[j], re[j]);
    for (size_t j = 0; j < m; j++) theta[j] = re[j] == 0 && im[j] == 0 ? 0 : theta[j];
}

/* ComplexFormer eq 1-4. */
CMHA_DEF void cmha_euler_forward(const cmha_euler_args *args, const cmha_real *x, cmha_real *modulus,
        cmha_real *phase) {
    const size_t T = args->T, P = args->P;
    cmha_real re[CMHA__PAIRS], im[CMHA__PAIRS];
    for (size_t t = 0; t < T; t++, x += 2 * P)
        CMHA__IN_PIECES(j0, m, P, CMHA__PAIRS) {
            const cmha__some_pairs pairs = {P, j0, m, args->layout};
            cmha__split_pairs(&pairs, x, re, im);
            if (modulus) cmha_modulus(m, re, im, modulus + t * P + j0);
            if (phase) cmha__phases(re, im, m, phase + t * P + j0);
        }
}

CMHA__FIT void cmha_euler_backward(const cmha_euler_args *args, const cmha_real *x, const cmha_real *dmodulus,
        const cmha_real *dphase, cmha_real *dx) {
    const size_t T = args->T, P = args->P;
    cmha_real re[CMHA__PAIRS], im[CMHA__PAIRS];
    if (!dx) return;
    for (size_t t = 0; t < T; t++, x += 2 * P, dx += 2 * P)
        CMHA__IN_PIECES(j0, m, P, CMHA__PAIRS) {
            const cmha__some_pairs pairs = {P, j0, m, args->layout};
            size_t at = t * P + j0;
            cmha__split_pairs(&pairs, x, re, im);
            for (size_t j = 0; j < m; j++) {
                cmha_real lambda = cmha__hypot(re[j], im[j]), some = lambda > 0 ? lambda : 1;
                cmha_real square = lambda * lambda + (cmha_real)1e-12;
                cmha_real g = dmodulus ? dmodulus[at + j] : 0, h = dphase ? dphase[at + j] : 0;
                cmha_real a = g * (re[j] / some) - h * (im[j] / square);
                im[j] = g * (im[j] / some) + h * (re[j] / square);
                re[j] = a;
            }
            cmha__add_pairs(&pairs, re, im, dx);
        }
}

/* ---- ComplexFormer: the rotation ---- */

/* Some pairs of some rows, row behind row, and what turns them. */
typedef struct {
    cmha_real re[CMHA__PAIRS], im[CMHA__PAIRS], theta[CMHA__PAIRS], c[CMHA__PAIRS], s[CMHA__PAIRS];
    cmha_real gr[CMHA__PAIRS], gi[CMHA__PAIRS], turn[CMHA__PAIRS]; /* of the backward */
    size_t rows;
    size_t skip; /* pairs laid out by themselves, behind which these are */
    cmha__some_pairs at;
    const cmha_real *b, *cosine, *sine; /* theirs; b or NULL */
    size_t step; /* from cosines to those of the next row */
} cmha__rotated;

/* Rows to turn at a time, of n: a short one alone would have a CPU wait for its arc tangents. */
static size_t cmha__rotated_rows(const cmha_rotate_args *a, size_t n) {
    const size_t rows = CMHA__PAIRS / 4 / (a->P + !a->P);
    return cmha__min(n, rows ? rows : 1);
}

#define CMHA__TURN ((cmha_real)6.283185307179586477)
static inline cmha_real cmha__beta(cmha_real b) {
    if (b > 0) return 0;
    return b < -CMHA__TURN ? -CMHA__TURN : b;
}

/* Writes theta and each pair's rotation exp(i ((delta - 1) theta + b)) exp(i t omega) as (c, s). */
static void cmha__rotations(const cmha_rotate_args *a, size_t j0, size_t m, cmha__rotated *o) {
    const cmha_real *delta = cmha__at(a->delta, j0), *table_c = o->cosine, *table_s = o->sine;
    const size_t n = o->rows * m;
    if (delta) cmha__phases(o->re, o->im, n, o->theta);
    for (size_t i = 0; i < n; i += m) {
        for (size_t j = 0; j < m; j++) o->c[i + j] = delta ? (delta[j] - 1) * o->theta[i + j] : 0;
        if (o->b)
            for (size_t j = 0; j < m; j++) o->c[i + j] += a->polar ? -cmha__beta(o->b[j]) : o->b[j];
    }
    for (size_t i = 0; i < n; i++) cmha__sincos(o->c[i], &o->s[i], &o->c[i]);
    for (size_t i = 0; i < n; i += m, table_c += o->step, table_s += o->step)
        for (size_t j = 0; j < m; j++) {
            cmha_real si = o->s[i + j], co = o->c[i + j];
            o->c[i + j] = co * table_c[j] - si * table_s[j];
            o->s[i + j] = si * table_c[j] + co * table_s[j];
        }
    o->cosine = o->c;
    o->sine = o->s;
    o->step = m;
}

/* Reads pairs from j0 on, or PoPE's sizes, whose slopes are theta. Returns how many a row; 0 at the end. */
static size_t cmha__read_pairs(const cmha_rotate_args *a, const cmha_real *x, size_t ldx, size_t t,
        size_t j0, cmha__rotated *o) {
    const cmha_real *table = a->rotation + t * 2 * a->P + j0;
    size_t rotary = a->rotary ? a->rotary : a->P, skip = j0 < rotary ? 0 : rotary;
    size_t end = skip ? a->P : rotary, m = cmha__min(end - j0, CMHA__PAIRS);
    const cmha__some_pairs at = {end - skip, j0 - skip, m, a->layout};
    o->skip = skip;
    o->at = at;
    o->cosine = table;
    o->sine = table + a->P;
    o->step = 2 * a->P;
    o->b = a->b && (a->polar ? !skip : a->delta != NULL) ? a->b + j0 : NULL;
    for (size_t i = 0; i < o->rows * m; i += m, x += ldx) {
        if (!a->polar) cmha__split_pairs(&at, x + 2 * skip, o->re + i, o->im + i);
        else
            for (size_t j = 0; j < m; j++) {
                o->re[i + j] = cmha__softplus(x[j0 + j], &o->theta[i + j]);
                o->im[i + j] = 0;
                if (skip) {
                    o->re[i + j] = x[j0 + j];
                    o->theta[i + j] = 1;
                }
            }
    }
    if (a->delta || o->b) cmha__rotations(a, j0, m, o);
    return m;
}

/* Asks for the row four below: rows of fused projections lie further apart than a CPU looks ahead. */
static inline CMHA__ALWAYS void cmha__fetch_row(const cmha_real *x, size_t ld, size_t width, size_t rows) {
    if (rows <= 4) return;
    for (size_t i = 0; i < width; i += 64 / sizeof *x) CMHA__FETCH(x + 4 * ld + i);
}

/* ComplexFormer eq 5-8: the feature of a query or key, whose dot product is the score. */
CMHA__HOT(CMHA_DEF, cmha_rotate_forward, (const cmha_rotate_args *args, const cmha_real *x, size_t ldx,
        size_t n, cmha_real *y, size_t ldy), (args, x, ldx, n, y, ldy)) {
    const size_t P = args->P;
    cmha__rotated o;
    for (size_t t = 0; t < n; t += o.rows) {
        const cmha_real *rows = x + t * ldx;
        o.rows = cmha__rotated_rows(args, n - t);
        for (size_t r = t; r < t + o.rows; r++) cmha__fetch_row(x + r * ldx, ldx, 2 * P, n - r);
        CMHA__BY_STEPS(j0, m, cmha__read_pairs(args, rows, ldx, t, j0, &o))
            for (size_t r = 0; r < o.rows; r++) {
                const cmha_real *c = o.cosine + r * o.step, *s = o.sine + r * o.step;
                const cmha_real *re = o.re + r * m, *im = o.im + r * m;
                cmha_real *to = y + (t + r) * ldy + j0;
                for (size_t j = 0; j < m; j++) {
                    to[j] = re[j] * c[j] - im[j] * s[j];
                    to[P + j] = re[j] * s[j] + im[j] * c[j];
                }
            }
    }
}

/* Of m pairs from i on, s = (gr, gi) becomes s + i (delta - 1) e^{i theta} Im(s e^{-i theta}); turn gets
   Im(s conj z). */
static void cmha__rotate_adjoint(cmha__rotated *o, size_t i, size_t m, cmha__in delta) {
    cmha__in re = o->re + i, im = o->im + i;
    cmha__out gr = o->gr + i, gi = o->gi + i, turn = o->turn + i;
    for (size_t j = 0; j < m; j++) {
        cmha_real ar = re[j] < 0 ? -re[j] : re[j], ai = im[j] < 0 ? -im[j] : im[j];
        cmha_real large = ar > ai ? ar : ai;
        int tiny = large < CMHA__SMALLEST; /* denormal: its inverse overflows; it counts as zero */
        cmha_real inverse = 4 / (tiny ? 1 : large); /* z over its larger part: squares are safe. 4 leaves e as
            it is, and no inverse denormal */
        cmha_real zr = tiny ? 1 : re[j] * inverse, zi = tiny ? 0 : im[j] * inverse;
        cmha_real e = (delta[j] - 1) * (gi[j] * zr - gr[j] * zi) / (zr * zr + zi * zi);
        turn[j] = gi[j] * re[j] - gr[j] * im[j];
        gr[j] -= e * zi;
        gi[j] += e * zr;
    }
}

CMHA__HOT(CMHA__FIT, cmha_rotate_backward,
        (const cmha_rotate_args *args, const cmha_real *x, size_t ldx, size_t n, const cmha_real *dy,
        size_t ldy, cmha_real *dx, double *ddelta, double *db), (args, x, ldx, n, dy, ldy, dx, ddelta, db)) {
    const size_t P = args->P;
    cmha__rotated o;
    for (size_t t = 0; t < n; t += o.rows) {
        const cmha_real *rows = x + t * ldx;
        o.rows = cmha__rotated_rows(args, n - t);
        for (size_t r = t; r < t + o.rows; r++) {
            cmha__fetch_row(x + r * ldx, ldx, 2 * P, n - r);
            if (dx) cmha__fetch_row(dx + r * ldx, ldx, 2 * P, n - r);
        }
        CMHA__BY_STEPS(j0, m, cmha__read_pairs(args, rows, ldx, t, j0, &o))
            for (size_t r = 0, i = 0; r < o.rows; r++, i += m) {
                const cmha_real *c = o.cosine + r * o.step, *s = o.sine + r * o.step;
                const cmha_real *g = dy + (t + r) * ldy + j0;
                for (size_t j = 0; j < m; j++) {
                    o.gr[i + j] = g[j] * c[j] + g[P + j] * s[j];
                    o.gi[i + j] = g[P + j] * c[j] - g[j] * s[j];
                }
                if (args->delta) cmha__rotate_adjoint(&o, i, m, args->delta + j0);
                else if (o.b) /* PoPE */
                    for (size_t j = 0; j < m; j++) /* a clamp, whose ends pass */
                        o.turn[i + j] = cmha__beta(o.b[j]) == o.b[j] ? -o.gi[i + j] * o.re[i + j] : 0;
                if (args->delta && ddelta)
                    for (size_t j = 0; j < m; j++)
                        ddelta[j0 + j] += (double)(o.theta[i + j] * o.turn[i + j]);
                if ((args->delta || o.b) && db)
                    for (size_t j = 0; j < m; j++) db[j0 + j] += o.turn[i + j];
                if (!dx) continue;
                cmha_real *to = dx + (t + r) * ldx;
                if (!args->polar) cmha__add_pairs(&o.at, o.gr + i, o.gi + i, to + 2 * o.skip);
                else
                    for (size_t j = 0; j < m; j++) to[j0 + j] += o.gr[i + j] * o.theta[i + j];
            }
    }
}

/* ---- MöbiusAttention: quotients and maps of complex numbers ---- */

/* How to divide by w, scaled by m = max(|Re w|, |Im w|, eps). With s = |w|^2 + eps^2: q = m w/s, k = m eps/s;
   of UNIT q = w/sqrt s, k = eps/sqrt s, m = sqrt s. At a pole q = k = 0, m = 1. */
typedef struct {
    int unit;
    size_t n;
    cmha_real qr[CMHA__PAIRS], qi[CMHA__PAIRS], k[CMHA__PAIRS], m[CMHA__PAIRS];
} cmha__division;

static void cmha__denominators(cmha__in wr, cmha__in wi, size_t n, cmha_quotient_kind kind, cmha_real eps,
        cmha__division *CMHA__RESTRICT d) {
    int unit = kind == CMHA_QUOTIENT_UNIT;
    if (kind == CMHA_QUOTIENT_EXACT) eps = 0;
    d->unit = unit;
    d->n = n;
    for (size_t j = 0; j < n; j++) {
        cmha_real ar = wr[j] < 0 ? -wr[j] : wr[j], ai = wi[j] < 0 ? -wi[j] : wi[j], large = ar > ai ? ar : ai;
        int pole = ar + ai + eps < CMHA__SMALLEST; /* false for NaN, which then comes out of a division */
        cmha_real m = pole ? 1 : large > eps ? large : eps;
        cmha_real ur = wr[j] / m, ui = wi[j] / m, f = pole ? 1 : eps / m, s = ur * ur + ui * ui + f * f;
        cmha_real inverse = unit ? cmha__inverse_root(s) : 1 / s, r = pole ? 0 : inverse;
        d->qr[j] = ur * r;
        d->qi[j] = ui * r;
        d->k[j] = f * r;
        d->m[j] = unit ? m * (s * inverse) : m; /* at a pole 1 */
    }
}

/* y = u conj(w) / s, or over sqrt s. */
static void cmha__divide(cmha__in ur, cmha__in ui, const cmha__division *CMHA__RESTRICT d, cmha__out yr,
        cmha__out yi) {
    const int unit = d->unit;
    for (size_t j = 0, n = d->n; j < n; j++) {
        cmha_real m = unit ? 1 : d->m[j];
        yr[j] = (ur[j] * d->qr[j] + ui[j] * d->qi[j]) / m;
        yi[j] = (ui[j] * d->qr[j] - ur[j] * d->qi[j]) / m;
    }
}

/* The backward of y = u conj(q) / m: du = g q / m, dw = -conj(y) du + (u k/m) conj(g k/m); of UNIT,
   y = u conj(q): du = g q, dw = (i q Im(y conj(g)) + k^2 u conj(g)) / m. o: Re du, Im du, Re dw, Im dw. */
static void cmha__divide_backward(cmha__in ur, cmha__in ui, const cmha__division *CMHA__RESTRICT d,
        cmha__in gr, cmha__in gi, cmha_real (*CMHA__RESTRICT o)[CMHA__PAIRS]) {
    const size_t n = d->n, units = d->unit ? n : 0;
    for (size_t j = units; j < n; j++) {
        cmha_real qr = d->qr[j], qi = d->qi[j], m = d->m[j], k = d->k[j];
        cmha_real yr = (ur[j] * qr + ui[j] * qi) / m, yi = (ui[j] * qr - ur[j] * qi) / m;
        cmha_real hr = (gr[j] * qr - gi[j] * qi) / m, hi = (gr[j] * qi + gi[j] * qr) / m;
        cmha_real vr = ur[j] * k / m, vi = ui[j] * k / m, er = gr[j] * k / m, ei = gi[j] * k / m;
        o[0][j] = hr;
        o[1][j] = hi;
        o[2][j] = (vr * er + vi * ei) - (yr * hr + yi * hi);
        o[3][j] = (vi * er - vr * ei) - (yr * hi - yi * hr);
    }
    for (size_t j = 0; j < units; j++) {
        cmha_real qr = d->qr[j], qi = d->qi[j], m = d->m[j], k = d->k[j];
        cmha_real ar = ur[j] * gr[j] + ui[j] * gi[j], ai = ui[j] * gr[j] - ur[j] * gi[j],
                turn = ai * qr - ar * qi;
        o[0][j] = gr[j] * qr - gi[j] * qi;
        o[1][j] = gr[j] * qi + gi[j] * qr;
        o[2][j] = (k * k * ar - qi * turn) / m;
        o[3][j] = (k * k * ai + qr * turn) / m;
    }
}

/* y = a x on a block of columns; imaginary parts lie D numbers behind the real ones. */
static void cmha__channels(cmha__in x, cmha__in a, size_t D, size_t n, cmha__out yr, cmha__out yi) {
    for (size_t j = 0; j < n; j++) yr[j] = a[j] * x[j] - a[D + j] * x[D + j];
    for (size_t j = 0; j < n; j++) yi[j] = a[j] * x[D + j] + a[D + j] * x[j];
}

/* dx += g conj(a). */
static void cmha__channels_dx(cmha__in gr, cmha__in gi, cmha__in a, size_t D, size_t n, cmha__out dx) {
    for (size_t j = 0; j < n; j++) dx[j] += gr[j] * a[j] + gi[j] * a[D + j];
    for (size_t j = 0; j < n; j++) dx[D + j] += gi[j] * a[j] - gr[j] * a[D + j];
}

/* sums[0], sums[1] += g conj(x): da. */
static void cmha__channel_sums(cmha__in gr, cmha__in gi, cmha__in x, size_t D, size_t n,
        double (*CMHA__RESTRICT sums)[CMHA__PAIRS]) {
    for (size_t j = 0; j < n; j++) sums[0][j] += (double)(gr[j] * x[j] + gi[j] * x[D + j]);
    for (size_t j = 0; j < n; j++) sums[1][j] += (double)(gi[j] * x[j] - gr[j] * x[D + j]);
}

static void cmha__add_sums(double (*sums)[CMHA__PAIRS], size_t planes, size_t D, size_t n, cmha_real *to) {
    for (size_t i = 0; i < planes; i++)
        for (size_t j = 0; j < n; j++) to[i * D + j] += (cmha_real)sums[i][j];
}

/* MöbiusAttention eq 7-8 as printed, by channels. Columns come with all their rows: sums stay at hand. */
static void cmha__elementwise_pass(const cmha__call *c) {
    double sums[2][CMHA__PAIRS];
    const size_t D = c->D;
    const int back = cmha__goes_back(c);
    CMHA__IN_PIECES(j, n, D, CMHA__PAIRS) {
        cmha__zero(sums);
        for (size_t at = j; at < 2 * c->n * D; at += 2 * D) {
            const cmha_real *x = c->x[0] + at, *w = c->x[1] + j, *g = back ? c->dy + at : NULL;
            if (!back) cmha__channels(x, w, D, n, c->y + at, c->y + at + D);
            if (back && c->dx[0]) cmha__channels_dx(g, g + D, w, D, n, c->dx[0] + at);
            if (back && c->dx[1]) cmha__channel_sums(g, g + D, x, D, n, sums);
        }
        if (back && c->dx[1]) cmha__add_sums(sums, 2, D, n, c->dx[1] + j);
    }
}
static const cmha__op cmha__elementwise_op = {
    "elementwise_complex", cmha__elementwise_pass, NULL, 2, CMHA__PLANES, 0, {2, 0}, 0};
CMHA__PAIRED(cmha_elementwise_complex, cmha__elementwise_op, CMHA__NO_OPTIONS, 0, 0)

/* Quotients u / w or, by a shared map (MöbiusAttention eq 5-6), (a rho + b) / (c rho + d), likewise. */
CMHA__HOT_OP(cmha__quotient_pass) {
    cmha_real mapped[4][CMHA__PAIRS], grad[4][CMHA__PAIRS]; /* Re u, Im u, Re w, Im w, and their gradients */
    double sums[8][CMHA__PAIRS];
    cmha__division d;
    const size_t D = c->D;
    const int maps = c->op->shared[0], back = cmha__goes_back(c);
    CMHA__IN_PIECES(j, n, D, CMHA__PAIRS) {
        const cmha_real *map = c->x[1] + j;
        if (back && maps) cmha__zero(sums);
        for (size_t at = j; at < 2 * c->n * D; at += 2 * D) {
            const cmha_real *x = c->x[0] + at, *w = c->x[1] + (maps ? 0 : at);
            const cmha_real *from[4] = {x, x + D, w, w + D};
            for (size_t i = maps ? 0 : 4; i < 4; i++) { /* a, b, c and d lie 2 D numbers apart */
                const cmha_real *a = map + i / 2 * 4 * D;
                if (i % 2 == 0) cmha__channels(x, a, D, n, mapped[i], mapped[i + 1]);
                cmha__axpy(n, 1, a + (2 + i % 2) * D, mapped[i]);
                from[i] = mapped[i];
            }
            cmha__denominators(from[2], from[3], n, (cmha_quotient_kind)c->kind, c->number, &d);
            if (!back) {
                cmha__divide(from[0], from[1], &d, c->y + at, c->y + at + D);
                continue;
            }
            cmha__divide_backward(from[0], from[1], &d, c->dy + at, c->dy + at + D, grad);
            for (size_t k = 0; k < 2; k++) {
                const cmha_real *gr = grad[2 * k], *gi = grad[2 * k + 1];
                cmha_real *to = c->dx[maps ? 0 : k];
                if (to && maps) cmha__channels_dx(gr, gi, map + 4 * k * D, D, n, to + at);
                if (to && !maps) cmha__axpy(n, 1, gr, to + at);
                if (to && !maps) cmha__axpy(n, 1, gi, to + at + D);
                if (!maps || !c->dx[1]) continue;
                cmha__channel_sums(gr, gi, x, D, n, sums + 4 * k);
                for (size_t i = 0; i < n; i++) sums[4 * k + 2][i] += gr[i];
                for (size_t i = 0; i < n; i++) sums[4 * k + 3][i] += gi[i];
            }
        }
        if (back && maps && c->dx[1]) cmha__add_sums(sums, 8, D, n, c->dx[1] + j);
    }
}

static const cmha__op cmha__quotient_op = {"quotient", cmha__quotient_pass, NULL, 2,
        CMHA__PLANES | CMHA__ALIKE | CMHA__EPS, CMHA_QUOTIENT_COUNT, {0, 0}, 0};
CMHA__PAIRED(cmha_quotient, cmha__quotient_op, CMHA__QUOTIENT_OPTIONS, (int)kind, eps)

static const cmha__op cmha__mobius_op = {
    "mobius", cmha__quotient_pass, NULL, 2, CMHA__PLANES | CMHA__EPS, CMHA_QUOTIENT_COUNT, {8, 0}, 0};
CMHA__PAIRED(cmha_mobius, cmha__mobius_op, CMHA__QUOTIENT_OPTIONS, (int)kind, eps)

/* ---- Complex linear maps ---- */

/* y = Wr xr - Wi xi + i (Wr xi + Wi xr) from the products Z [2T, 2O], rows [Wr xr | Wi xr] and [Wr xi | Wi
   xi]; of the adjoint with the transposes of Wr and -Wi. */
static void cmha__complex_combine(const cmha_complex_linear_args *a, const cmha_real *Z,
        const cmha_real *bias, cmha_real *y) {
    size_t O = a->n_out;
    cmha_real sign = a->adjoint ? -1 : 1;
    CMHA__FOR_EACH(a->threads, a->T, t) {
        const cmha_real *z = Z + 4 * t * O;
        cmha_real *row = y + 2 * t * O;
        for (size_t j = 0; j < O; j++) row[j] = z[j] - sign * z[3 * O + j];
        for (size_t j = 0; j < O; j++) row[O + j] = z[2 * O + j] + sign * z[O + j];
        if (bias) cmha__axpy(2 * O, 1, bias, row);
    }
}

/* CRAT eq 10 (MöbiusAttention eq 7-8 with full matrices), and its adjoint. */
CMHA_DEF void cmha_complex_linear_forward(const cmha_complex_linear_args *args, const cmha_real *x,
        const cmha_real *weight, const cmha_real *bias, cmha_real *y, cmha_real *scratch) {
    const int turned = args->adjoint != 0;
    size_t I = args->n_in, O = args->n_out, width = turned ? O : 2 * O;
    for (size_t at = 0; at < 2 * O; at += width)
        cmha__gemm(args->threads, 0, !turned, 2 * args->T, width, I, 1, x, I, weight + at * I, turned ? O : I,
                0, scratch + at, 2 * O);
    cmha__complex_combine(args, scratch, bias, y);
}

/* to [n, 2D] = x i, or with sign = -1 x (-i). */
CMHA__HOT(static, cmha__times_i, (const cmha_real *x, size_t n, size_t D, cmha_real sign, cmha_real *to),
        (x, n, D, sign, to)) {
    for (size_t t = 0; t < n; t++, x += 2 * D, to += 2 * D) {
        for (size_t j = 0; j < D; j++) to[j] = -sign * x[D + j];
        for (size_t j = 0; j < D; j++) to[D + j] = sign * x[j];
    }
}

/* By the cotangents of the products by Wr and by Wi: rows [gr], [gi], which are dy, and [gi], [-gr], of the
   adjoint negated. */
CMHA__FIT void cmha_complex_linear_backward(const cmha_complex_linear_args *a, const cmha_real *x,
        const cmha_real *weight, const cmha_real *dy, const cmha_grads *grads, cmha_real *scratch) {
    cmha_real *dx = grads->x, *dweight = grads->weight, *dbias = grads->bias;
    size_t rows = 2 * a->T, I = a->n_in, O = a->n_out;
    int threads = a->threads, turned = a->adjoint != 0;
    cmha_real *room = scratch + rows * O;
    if (dbias) cmha__bias_backward(threads, dy, a->T, 2 * O, dbias);
    if (!dx && !dweight) return;
    CMHA__FOR_CHUNKS(threads, a->T, lo, hi) {
        cmha__times_i(dy + 2 * lo * O, hi - lo, O, turned ? 1 : -1, scratch + 2 * lo * O);
    }
    for (size_t part = 0; part < 2; part++) { /* dx += dZ W, dW += dZ^T x; or dZ W^T, x^T dZ */
        const cmha_real *z = part ? scratch : dy, *w = weight + part * I * O;
        cmha_real *dw = cmha__at(dweight, part * I * O);
        const cmha__product back = {0, turned, rows, I, O, O, turned ? O : I, I, 1,
            a->fresh && !part ? (cmha_real)0 : 1, z, w, dx};
        if (dx) cmha__gemm_in(threads, &back, cmha__gemm_width(&back) <= rows ? room : NULL);
        if (dw && turned) cmha__gemm(threads, 1, 0, I, O, rows, 1, x, I, z, O, 1, dw, O);
        else if (dw) cmha__gemm(threads, 1, 0, O, I, rows, 1, z, O, x, I, 1, dw, I);
    }
}

/* kind: is it the adjoint? */
static void cmha__complex_map_shape(cmha__call *c) {
    const cmha_tensor *w = c->in[1];
    if (w->rank != 3 || w->shape[0] != 2 || c->D != w->shape[c->kind ? 1 : 2])
        cmha__unfit(c, c->kind ? "v" : "weight", 1, "does not fit x", 0);
    c->rows = 1;
    c->shape[c->rank - 1] = 2 * w->shape[c->kind ? 2 : 1];
    cmha__holds(c->tape, "complex linear: the bias", c->in[2], c->shape[c->rank - 1]);
}
static void cmha__complex_map_pass(const cmha__call *c) {
    cmha_tape *tape = c->tape;
    size_t T = cmha__rows(c->out), O = cmha__last(c->out) / 2;
    cmha_complex_linear_args a = {T, c->D, O, c->kind, c->threads, c->fresh};
    const cmha_grads grads = {c->dx[0], c->dx[1], c->dx[2]};
    const int back = cmha__goes_back(c);
    cmha_real *scratch = cmha__reals(tape, 2 * c->out->size);
    if (!back && O) cmha__weight_product(tape, c->in[1], c->x[0], 2 * T, c->kind ? O : 0, scratch);
    if (!cmha__computes(tape)) return;
    if (back) cmha_complex_linear_backward(&a, c->x[0], c->x[1], c->dy, &grads, scratch);
    else cmha__complex_combine(&a, scratch, c->x[2], c->y);
}

static cmha_tensor *cmha__complex_map(cmha_tape *tape, cmha_tensor *x, cmha_tensor *weight, cmha_tensor *bias,
        int adjoint) {
    cmha_tensor *in[3] = {x, weight, bias};
    CMHA__RUNS(cmha__operate_on, "complex linear", cmha__complex_map_pass, cmha__complex_map_shape, 2,
            CMHA__PLANES | 2 * CMHA__UNPACKS | CMHA__SCRATCH | CMHA__FRESH, adjoint, 0, in);
}

CMHA_DEF cmha_tensor *cmha_complex_linear(cmha_tape *tape, cmha_tensor *x, cmha_tensor *weight,
        cmha_tensor *bias) {
    return cmha__complex_map(tape, x, weight, bias, 0);
}

/* CRAT eq 15 */
CMHA_DEF cmha_tensor *cmha_complex_lowrank(cmha_tape *tape, cmha_tensor *x, cmha_tensor *u, cmha_tensor *v,
        cmha_tensor *bias) {
    return cmha__complex_map(tape, cmha__complex_map(tape, x, v, NULL, 1), u, bias, 0);
}

/* ---- Rotation ---- */

/* exp(i theta), theta reduced in double where cmha__sincos needs that. */
static inline void cmha__turn(cmha_real theta, cmha_real *s, cmha_real *c) {
#ifndef CMHA__BY_LIBM
    double turns = theta * 0.15915494309189534 + 6755399441055744.0; /* 1.5 * 2^52: whole turns */
    turns -= 6755399441055744.0;
    theta = (float)(theta - turns * 6.283185307179586);
#endif
    cmha__sincos(theta, s, c);
}

/* CRAT eq 6-7; backwards dy turns back, to dz and, times conj(z), to dtheta. */
CMHA__HOT_OP(cmha__complex_rotate_pass) {
    cmha_real re[CMHA__PAIRS], im[CMHA__PAIRS];
    const int back = cmha__goes_back(c);
    cmha_real *dz = back ? c->dx[0] : NULL, *dtheta = back ? c->dx[1] : NULL;
    for (size_t t = 0, D = c->D; t < c->n; t++)
        CMHA__IN_PIECES(j0, m, D, CMHA__PAIRS) {
            size_t at = 2 * t * D + j0, angle = t * D + j0;
            const cmha_real *theta = c->x[1] + angle, *z = c->x[0] + at, *turned = back ? c->dy + at : z;
            for (size_t j = 0; j < m; j++) {
                cmha_real sine, cosine;
                cmha__turn(theta[j], &sine, &cosine);
                sine = back ? -sine : sine;
                re[j] = turned[j] * cosine - turned[D + j] * sine;
                im[j] = turned[j] * sine + turned[D + j] * cosine;
            }
            if (!back) {
                cmha__copy(c->y + at, re, m);
                cmha__copy(c->y + at + D, im, m);
            }
            if (dz) {
                cmha__axpy(m, 1, re, dz + at);
                cmha__axpy(m, 1, im, dz + at + D);
            }
            if (dtheta)
                for (size_t j = 0; j < m; j++) dtheta[angle + j] += im[j] * z[j] - re[j] * z[D + j];
        }
}
static void cmha__complex_rotate_fits(cmha__call *c) {
    if (cmha__last(c->in[1]) != c->D || c->in[1]->size != c->in[0]->size / 2)
        cmha__unfit(c, "theta", 1, "has no angle for each pair of z", 0);
}
static const cmha__op cmha__complex_rotate_op =
    CMHA__OP("complex_rotate", cmha__complex_rotate_pass, cmha__complex_rotate_fits, 2, CMHA__PLANES);
CMHA__PAIRED(cmha_complex_rotate, cmha__complex_rotate_op, CMHA__NO_OPTIONS, 0, 0)

/* ---- Complex norms ---- */

/* A block of numbers in double: for means far from 0 and nearly singular covariances. */
#define CMHA__WIDE ((size_t)128)
enum { CMHA__WIDE_LANES = 8 };

typedef struct {
    double re[CMHA__WIDE], im[CMHA__WIDE];
} cmha__wide;

static double cmha__wide_total(const double *a, size_t n) {
    double lanes[CMHA__WIDE_LANES] = {0}, sum = 0;
    CMHA__IN_LANES(CMHA__WIDE_LANES, n, lanes[l] += a[i])
    for (int l = 0; l < CMHA__WIDE_LANES; l++) sum += lanes[l];
    return sum;
}

static double cmha__wide_dot(const double *a, const double *b, size_t n) {
    double lanes[CMHA__WIDE_LANES] = {0};
    CMHA__IN_LANES(CMHA__WIDE_LANES, n, lanes[l] += a[i] * b[i])
    return cmha__wide_total(lanes, CMHA__WIDE_LANES);
}

/* c = the numbers j0, j0 + 1, .. of the row z less the mean; returns how many. */
static size_t cmha__wide_load(const cmha_real *z, size_t D, size_t j0, const double *mean, cmha__wide *c) {
    size_t m = cmha__min(D - j0, CMHA__WIDE);
    for (size_t j = 0; j < m; j++) c->re[j] = (double)z[j0 + j] - mean[0];
    for (size_t j = 0; j < m; j++) c->im[j] = (double)z[D + j0 + j] - mean[1];
    return m;
}

enum { CMHA__SPREAD_TRACE, CMHA__SPREAD_AXES, CMHA__SPREAD_MATRIX };

/* One kind of norm, as CMHA_COMPLEX_NORMS lists it. */
typedef struct {
    cmha__op op; /* its shared[0]: numbers of gamma a feature */
    int centred, spread, entry[4];
} cmha__complex_norm_row;

CMHA__NORM_PASS(cmha__complex_norm_rows, cmha_complex_norm, cmha_complex_norm_kind, double)

#define CMHA__COMPLEX_NORM_ROW(name, word, n, centred, spread, rr, ri, ir, ii) \
    {{"complex_norm", cmha__complex_norm_rows, NULL, 1, CMHA__PLANES | CMHA__EPS, \
      CMHA_COMPLEX_NORM_COUNT, {n, 2}, 5 * sizeof(double)}, \
     centred, CMHA__SPREAD_##spread, {rr, ri, ir, ii}},
static const cmha__complex_norm_row cmha__complex_norms[] = {CMHA_COMPLEX_NORMS(CMHA__COMPLEX_NORM_ROW)};

/* stats = (mean Re, mean Im, V_rr, V_ri, V_ii) of one row; not centred: the mean counts as 0. */
static void cmha__moments(const cmha_real *z, size_t D, int centred, double *stats) {
    double mean[2] = {0, 0};
    cmha__wide c;
    cmha__zeros(stats, 5);
    if (centred)
        CMHA__BY_STEPS(j0, m, cmha__wide_load(z, D, j0, stats, &c)) {
            mean[0] += cmha__wide_total(c.re, m) / (double)D;
            mean[1] += cmha__wide_total(c.im, m) / (double)D;
        }
    memcpy(stats, mean, sizeof mean);
    CMHA__BY_STEPS(j0, m, cmha__wide_load(z, D, j0, stats, &c)) {
        stats[2] += cmha__wide_dot(c.re, c.re, m) / (double)D;
        stats[3] += cmha__wide_dot(c.re, c.im, m) / (double)D;
        stats[4] += cmha__wide_dot(c.im, c.im, m) / (double)D;
    }
}

/* The matrix M of a norm by its eigenvalues, M = f1 e1 e1^T + f2 e2 e2^T, e1 = (c, s), e2 = (-s, c): so the
   derivative of an inverse root stays exact next to a singular V. */
typedef struct {
    double f1, f2, cc, ss, cs; /* c^2, s^2, c s */
    double M[3]; /* its (rr, ri, ii) */
} cmha__root;

static double cmha__inverse_spread(double variance) { return variance == 0 ? 0 : 1 / sqrt(variance); }

/* (rr, ri, ii) of the symmetric matrix (a, e, b) in the root's basis. */
static void cmha__root_matrix(const cmha__root *r, double a, double e, double b, double *matrix) {
    matrix[0] = a * r->cc + b * r->ss - 2 * e * r->cs;
    matrix[1] = (a - b) * r->cs + e * (r->cc - r->ss);
    matrix[2] = a * r->ss + b * r->cc + 2 * e * r->cs;
}

static cmha__root cmha__norm_root(const cmha__complex_norm_row *row, const double *V, double eps) {
    double trace = V[0] + V[2], half = (V[0] - V[2]) / 2, det = V[0] * V[2] - V[1] * V[1];
    cmha__root root = {0, 0, 1, 0, 0, {0, 0, 0}};
    if (row->spread == CMHA__SPREAD_TRACE) {
        root.f1 = root.f2 = cmha__inverse_spread(trace + eps);
    } else if (row->spread == CMHA__SPREAD_AXES) {
        root.f1 = cmha__inverse_spread(V[0] + eps);
        root.f2 = cmha__inverse_spread(V[2] + eps);
    } else { /* the smaller eigenvalue from the determinant, whose part with eps does not cancel */
        double first = trace / 2 + hypot(half, V[1]) + eps, angle = atan2(V[1], half) / 2;
        det = (det > 0 ? det : 0) + eps * (trace + eps);
        root.f1 = cmha__inverse_spread(first);
        root.f2 = cmha__inverse_spread(first > 0 ? det / first : first);
        double c = cos(angle), s = sin(angle);
        root.cc = c * c;
        root.ss = s * s;
        root.cs = c * s;
    }
    cmha__root_matrix(&root, root.f1, 0, root.f2, root.M);
    return root;
}

/* g = m features of gamma as real 2x2 matrices; NULL = the matrix 1. */
static void cmha__gamma_load(const cmha__complex_norm_row *row, const cmha_real *gamma, size_t D, size_t j0,
        size_t m, double g[4][CMHA__WIDE]) {
    for (int e = 0; e < 4; e++) {
        int n = gamma ? row->entry[e] : 0;
        const cmha_real *from = n ? gamma + (size_t)(n < 0 ? -n - 1 : n - 1) * D + j0 : NULL;
        double sign = n < 0 ? -1 : 1, fixed = !gamma && e % 3 == 0 ? 1 : 0;
        if (from)
            for (size_t j = 0; j < m; j++) g[e][j] = sign * (double)from[j];
        else
            for (size_t j = 0; j < m; j++) g[e][j] = fixed;
    }
}

/* dgamma += dy h^T as its kind has it, for m features; h = M c. */
static void cmha__gamma_backward(const cmha__complex_norm_row *row, const cmha__wide *h, const cmha_real *dy,
        size_t D, size_t m, cmha_real *dgamma) {
    for (int n = 1; n <= row->op.shared[0]; n++, dgamma += D) {
        double sum[CMHA__WIDE] = {0};
        for (int e = 0; e < 4; e++) {
            const cmha_real *g = e < 2 ? dy : dy + D;
            const double *with = e % 2 ? h->im : h->re, sign = row->entry[e] < 0 ? -1 : 1;
            if (row->entry[e] != n && row->entry[e] != -n) continue;
            for (size_t j = 0; j < m; j++) sum[j] += sign * ((double)g[j] * with[j]);
        }
        for (size_t j = 0; j < m; j++) dgamma[j] += (cmha_real)sum[j];
    }
}

/* c becomes M c. */
static void cmha__wide_apply(const double *M, size_t m, cmha__wide *c) {
    for (size_t j = 0; j < m; j++) {
        double re = M[0] * c->re[j] + M[1] * c->im[j];
        c->im[j] = M[1] * c->re[j] + M[2] * c->im[j];
        c->re[j] = re;
    }
}

/* CRAT eq 8 */
CMHA__HOT(CMHA_DEF, cmha_complex_norm_forward,
        (const cmha_complex_norm_args *args, const cmha_real *z, const cmha_real *gamma,
        const cmha_real *beta, cmha_real *y, double *stats), (args, z, gamma, beta, y, stats)) {
    const cmha__complex_norm_row *kind = &cmha__complex_norms[args->kind];
    double row[5], g[4][CMHA__WIDE];
    size_t D = args->D;
    cmha__wide h;
    for (size_t t = 0; t < args->T; t++, z += 2 * D, y += 2 * D) {
        cmha__moments(z, D, kind->centred, row);
        if (stats) memcpy(stats + 5 * t, row, sizeof row);
        cmha__root root = cmha__norm_root(kind, row + 2, args->eps);
        CMHA__BY_STEPS(j0, m, cmha__wide_load(z, D, j0, row, &h)) {
            cmha__wide_apply(root.M, m, &h);
            if (!t || D > CMHA__WIDE) cmha__gamma_load(kind, gamma, D, j0, m, g);
            for (size_t j = 0; j < m; j++) y[j0 + j] = (cmha_real)(g[0][j] * h.re[j] + g[1][j] * h.im[j]);
            for (size_t j = 0; j < m; j++) y[D + j0 + j] = (cmha_real)(g[2][j] * h.re[j] + g[3][j] * h.im[j]);
        }
        if (beta) cmha__axpy(2 * D, 1, beta, y);
    }
}

/* dh = gamma^T dy for one block; returns its length. */
static size_t cmha__norm_cotangent(const cmha__complex_norm_row *row, const cmha_real *gamma,
        const cmha_real *dy, size_t D, size_t j0, cmha__wide *dh) {
    static const double zero[2] = {0, 0};
    double g[4][CMHA__WIDE];
    size_t m = cmha__wide_load(dy, D, j0, zero, dh);
    cmha__gamma_load(row, gamma, D, j0, m, g);
    for (size_t j = 0; j < m; j++) {
        double re = g[0][j] * dh->re[j] + g[2][j] * dh->im[j];
        dh->im[j] = g[1][j] * dh->re[j] + g[3][j] * dh->im[j];
        dh->re[j] = re;
    }
    return m;
}

/* dz += M (dh - mean dh) + 2/D dV c, the mean only where the forward subtracts one. */
static void cmha__complex_norm_row_backward(const cmha__complex_norm_row *row, const cmha__root *root,
        const cmha_real *z, const cmha_real *gamma, const double *mean,
        const cmha_real *dy, size_t D, cmha_real *dz) {
    double G[4] = {0, 0, 0, 0}, sum[2] = {0, 0}, dV[3];
    cmha__wide dh, c;
    CMHA__BY_STEPS(j0, m, cmha__norm_cotangent(row, gamma, dy, D, j0, &dh)) {
        cmha__wide_load(z, D, j0, mean, &c);
        G[0] += cmha__wide_dot(dh.re, c.re, m);
        G[1] += cmha__wide_dot(dh.re, c.im, m);
        G[2] += cmha__wide_dot(dh.im, c.re, m);
        G[3] += cmha__wide_dot(dh.im, c.im, m);
        if (!row->centred) continue;
        sum[0] += cmha__wide_total(dh.re, m) / (double)D;
        sum[1] += cmha__wide_total(dh.im, m) / (double)D;
    }
    /* dV = 2/D dL/dV from G = dL/dM = sum of dh c^T (rr, ri, ir, ii): c gets dV * c. In the eigenbasis 1/sqrt
       has the divided differences -f^3/2 and, off the diagonal, -f1^2 f2^2/(f1 + f2). */
    const double f1 = root->f1, f2 = root->f2, both = G[1] + G[2], scale = 2 / (double)D;
    const double cc = root->cc, ss = root->ss, cs = root->cs;
    double a = G[0] * cc + both * cs + G[3] * ss, b = G[0] * ss - both * cs + G[3] * cc;
    double e = row->spread == CMHA__SPREAD_MATRIX ? (G[3] - G[0]) * cs + both * (cc - ss) / 2 : 0;
    double off = f1 + f2 > 0 ? f1 * f1 * (f2 * f2) / (f1 + f2) : 0;
    if (row->spread == CMHA__SPREAD_TRACE) a = b = a + b;
    a *= -scale * f1 * f1 * f1 / 2;
    b *= -scale * f2 * f2 * f2 / 2;
    cmha__root_matrix(root, a, -scale * off * e, b, dV);
    CMHA__BY_STEPS(j0, m, cmha__norm_cotangent(row, gamma, dy, D, j0, &dh)) {
        cmha__wide_load(z, D, j0, mean, &c);
        for (size_t j = 0; j < m; j++) dh.re[j] -= sum[0];
        for (size_t j = 0; j < m; j++) dh.im[j] -= sum[1];
        cmha__wide_apply(root->M, m, &dh);
        cmha__wide_apply(dV, m, &c);
        for (size_t j = 0; j < m; j++) dz[j0 + j] += (cmha_real)(dh.re[j] + c.re[j]);
        for (size_t j = 0; j < m; j++) dz[D + j0 + j] += (cmha_real)(dh.im[j] + c.im[j]);
    }
}

CMHA__HOT(CMHA__FIT, cmha_complex_norm_backward, (const cmha_complex_norm_args *args, const cmha_real *z,
        const cmha_real *gamma, const double *stats, const cmha_real *dy, const cmha_grads *grads), (args, z,
        gamma, stats, dy, grads)) {
    cmha_real *dz = grads->x, *dgamma = grads->weight, *dbeta = grads->bias;
    const cmha__complex_norm_row *kind = &cmha__complex_norms[args->kind];
    size_t D = args->D;
    cmha__wide h;
    for (size_t t = 0; t < args->T; t++, z += 2 * D, dy += 2 * D, stats += 5) {
        cmha__root root = cmha__norm_root(kind, stats + 2, args->eps);
        if (dz) cmha__complex_norm_row_backward(kind, &root, z, gamma, stats, dy, D, dz + 2 * t * D);
        if (dgamma)
            CMHA__BY_STEPS(j0, m, cmha__wide_load(z, D, j0, stats, &h)) {
                cmha__wide_apply(root.M, m, &h);
                cmha__gamma_backward(kind, &h, dy + j0, D, m, dgamma + j0);
            }
        if (dbeta) cmha__axpy(2 * D, 1, dy, dbeta);
    }
}

CMHA_DEF cmha_tensor *cmha_complex_norm(cmha_tape *tape, cmha_tensor *z, cmha_complex_norm_kind kind,
        cmha_tensor *gamma, cmha_tensor *beta, cmha_real eps) {
    int there = (unsigned)kind < CMHA_COMPLEX_NORM_COUNT; /* another is refused by the first */
    cmha_tensor *in[3] = {z, gamma, beta};
    return cmha__operate_on(tape, &cmha__complex_norms[there ? kind : 0].op, (int)kind, eps, in);
}

/* ---- Phasors and parts ---- */

CMHA__HOT(CMHA_DEF, cmha_phasor_forward,
        (const cmha_real *z, size_t T, size_t D, cmha_real eps, cmha_real *u), (z, T, D, eps, u)) {
    const cmha__phasor_form p = {D, D, D, D, eps, 1, 0};
    for (size_t t = 0; t < T; t++) cmha__phasor_row(&p, z + 2 * t * D, u + 2 * t * D);
}

CMHA__HOT(CMHA__FIT, cmha_phasor_backward, (const cmha_real *z, const cmha_real *du, size_t T, size_t D,
        cmha_real eps, cmha_real *dz), (z, du, T, D, eps, dz)) {
    const cmha__phasor_form p = {D, D, D, D, eps, 1, 0};
    if (dz)
        for (size_t at = 0; at < 2 * T * D; at += 2 * D)
            cmha__phasor_row_backward(&p, z + at, du + at, dz + at);
}

static void cmha__phasor_rows(const cmha__call *c) {
    if (!cmha__goes_back(c)) cmha_phasor_forward(c->x[0], c->n, c->D, c->number, c->y);
    else cmha_phasor_backward(c->x[0], c->dy, c->n, c->D, c->number, c->dx[0]);
}

CMHA_DEF cmha_tensor *cmha_phasor(cmha_tape *tape, cmha_tensor *z, cmha_real eps) {
    CMHA__RUNS(cmha__operate, "phasor", cmha__phasor_rows, NULL, 1, CMHA__PLANES | CMHA__EPS, 0, eps, z,
            NULL);
}

CMHA_DEF cmha_tensor *cmha_complex_join(cmha_tape *tape, cmha_tensor *re, cmha_tensor *im) {
    if (!re || !tape || tape->status) return NULL;
    if (!im) im = cmha_tensor_new(tape, re->rank, re->shape, 0);
    if (im && cmha__last(im) != cmha__last(re))
        return CMHA__MISFIT(tape, "complex join: re %zu wide, im %zu", cmha__last(re), cmha__last(im));
    return cmha_concat(tape, re, im, re->rank - 1);
}

CMHA_DEF cmha_tensor *cmha_complex_part(cmha_tape *tape, cmha_tensor *z, int part) {
    if (!cmha__is_planes(tape, z, "complex part")) return NULL;
    if (part & ~1) return CMHA__MISUSE(tape, "complex part: part = %d is not 0 or 1", part);
    size_t D = cmha__last(z) / 2, begin = part ? D : 0;
    return cmha_slice(tape, z, z->rank - 1, begin, begin + D);
}

/* ---- Positions ---- */

/* Rows from one angle formed exactly to the next; between them a rotation by omega leads on. */
enum { CMHA__EXACT_EVERY = 64 };

/* wave = exp(i (omega t + delta)) of m columns, delta NULL = 0: exactly, or by a `step` from the last row. */
static void cmha__wave(const cmha_real *omega, const cmha_real *delta, size_t m, double t,
        const cmha__wide *step, cmha__wide *wave) {
    if (step) {
        for (size_t j = 0; j < m; j++) {
            double re = wave->re[j] * step->re[j] - wave->im[j] * step->im[j];
            wave->im[j] = wave->re[j] * step->im[j] + wave->im[j] * step->re[j];
            wave->re[j] = re;
        }
        return;
    }
    for (size_t j = 0; j < m; j++) {
        double angle = (double)omega[j] * t + (delta ? (double)delta[j] : 0);
        wave->re[j] = cos(angle);
        wave->im[j] = sin(angle);
    }
}

/* Threads share channels, which do not depend on each other. */
static void cmha__multifreq_shape(cmha__call *c) {
    c->shape[0] = c->count;
    c->rows = c->D;
    if (c->rank != 2 || !cmha__same_shape(c->in[0], c->in[1]))
        cmha__unfit(c, "delta", 1, "must be [K, d], as omega", 0);
}

/* CRAT eq 2 for channels lo .. lo + n - 1 at `count` positions from number `key` on, or its gradients. */
static void cmha__multifreq_walk(const cmha__call *c) {
    size_t K = c->in[0]->shape[0], d = c->D, hi = c->lo + c->n, m;
    double scale = 1 / sqrt(K ? (double)K : 1);
    cmha__wide wave, step, sum; /* sum: of domega and ddelta */
    if (!c->dy)
        for (size_t r = 0; r < c->count; r++) cmha__zeros(c->y + r * d + c->lo, c->n);
    for (size_t k = 0; k < K; k++)
        for (size_t j0 = c->lo; (m = cmha__min(hi - j0, CMHA__WIDE)) > 0; j0 += m) {
            const cmha_real *omega = c->x[0] + k * d + j0, *delta = c->x[1] + k * d + j0;
            cmha__wave(omega, NULL, m, 1, NULL, &step);
            cmha__zero(sum);
            for (size_t r = 0; r < c->count; r++) {
                size_t at = r * d + j0;
                double t = (double)c->key + (double)r;
                cmha__wave(omega, delta, m, t, r % CMHA__EXACT_EVERY ? &step : NULL, &wave);
                if (!c->dy)
                    for (size_t j = 0; j < m; j++) c->y[at + j] += (cmha_real)(scale * wave.im[j]);
                else
                    for (size_t j = 0; j < m; j++) {
                        double g = scale * (double)c->dy[at + j] * wave.re[j];
                        sum.re[j] += g * t;
                        sum.im[j] += g;
                    }
            }
            if (c->dx[0])
                for (size_t j = 0; j < m; j++) c->dx[0][k * d + j0 + j] += (cmha_real)sum.re[j];
            if (c->dx[1])
                for (size_t j = 0; j < m; j++) c->dx[1][k * d + j0 + j] += (cmha_real)sum.im[j];
        }
}

CMHA_DEF cmha_tensor *cmha_multifreq(cmha_tape *tape, cmha_tensor *omega, cmha_tensor *delta, size_t n,
        size_t pos0) {
    CMHA__CALL("multifreq", cmha__multifreq_walk, cmha__multifreq_shape, 2, CMHA__WHOLE, omega, delta, NULL);
    call.count = n;
    call.key = pos0;
    return cmha__run(tape, &call);
}

CMHA_DEF void cmha_multifreq_waves(size_t K, size_t d, double base, cmha_real *omega, cmha_real *delta) {
    for (size_t k = 0; k < K; k++)
        for (size_t i = 0; i < d; i++) {
            double octave = (double)k - ((double)K - 1) / 2;
            omega[k * d + i] = (cmha_real)(pow(base, -2.0 * (double)(i / 2) / (double)d) * pow(2.0, octave));
            delta[k * d + i] = i % 2 ? (cmha_real)1.57079632679489662 : 0;
        }
}

/* Threads share the numbers of one sequence, which every sequence gets. */
static void cmha__add_rows_fits(cmha__call *c) {
    const cmha_tensor *x = c->in[0], *rows = c->in[1];
    c->rows = rows->size;
    if (rows->rank != 2 || x->rank < 2 || memcmp(rows->shape, x->shape + (x->rank - 2), 2 * sizeof *x->shape))
        cmha__unfit(c, "rows", 1, "must be [N, D] of x", 0);
}

/* CRAT eq 3 */
static void cmha__add_rows_numbers(const cmha__call *c) {
    for (size_t at = 0; at < c->out->size; at += c->rows)
        if (cmha__goes_back(c)) cmha__axpy(c->n, 1, c->dy + at + c->lo, c->dx[1] + c->lo);
        else
            for (size_t i = c->lo; i < c->lo + c->n; i++) c->y[at + i] = c->x[0][at + i] + c->x[1][i];
}

CMHA_DEF cmha_tensor *cmha_add_rows(cmha_tape *tape, cmha_tensor *x, cmha_tensor *rows) {
    CMHA__RUNS(cmha__operate, "add_rows", cmha__add_rows_numbers, cmha__add_rows_fits, 2,
            CMHA__WHOLE | CMHA__PASSED, 0, 0, x, rows);
}

/* ---- Regularisers and clipping of complex numbers ---- */

CMHA_DEF double cmha_sum_squares(const cmha_real *x, size_t n) {
    double lanes[CMHA__WIDE_LANES] = {0};
    CMHA__IN_LANES(CMHA__WIDE_LANES, n, lanes[l] += (double)x[i] * x[i])
    return cmha__wide_total(lanes, CMHA__WIDE_LANES);
}

/* kind = 1: CRAT eq 23, of phases; 0: CRAT eq 24, of magnitudes. given: the mask; number, second: eps, lam;
   kept: the tokens that count, each thread's part of the loss and, of phases, [2, D] where a channel's sum of
   phasors points, 0 if that is rounding alone. Threads share phases by channel, magnitudes by token. */
static void cmha__regulariser_shape(cmha__call *c) {
    size_t threads = (size_t)c->threads;
    c->kept = cmha_tape_alloc(c->tape, (1 + threads + (c->kind ? 2 * c->D : 0)) * sizeof(double));
    cmha__one_shape(c);
}

/* Writes the sums of the phasors of channels lo .. hi - 1 to `way` (CRAT eq 23) or, if NULL, returns
   the sum of |z|^2 over rows lo .. hi - 1 (CRAT eq 24). */
static double cmha__regulariser_sum(const cmha__call *c, double *CMHA__RESTRICT way, size_t lo, size_t hi) {
    const unsigned char *mask = (const unsigned char *)c->given;
    const size_t D = c->D, first = way ? 0 : lo, end = way ? cmha__rows(c->in[0]) : hi;
    double sum = 0;
    if (way)
        for (size_t j = lo; j < hi; j++) way[j] = way[D + j] = 0;
    for (size_t t = first; t < end; t++) {
        cmha__in row = c->x[0] + 2 * t * D;
        if (mask && !mask[t]) continue;
        if (!way) sum += cmha_sum_squares(row, 2 * D);
        else
            for (size_t j = lo; j < hi; j++) {
                cmha_real ur, ui, unused;
                cmha__phasor(row[j], row[D + j], c->number, &ur, &ui, &unused);
                way[j] += ur;
                way[D + j] += ui;
            }
    }
    return sum;
}

/* value / (count * D), 0 where nothing is counted: a mean over tokens and channels. */
static double cmha__mean_over(double value, double count, size_t D) {
    return count > 0 && D ? value / count / (double)D : 0;
}

static void cmha__regulariser_pass(const cmha__call *c) {
    const unsigned char *mask = (const unsigned char *)c->given;
    const size_t T = cmha__rows(c->in[0]), D = c->D;
    const int threads = c->threads;
    double *counted = (double *)c->kept, *sums = counted + 1, *way = c->kind ? sums + threads : NULL;
    if (cmha__goes_back(c)) {
        double slope = cmha__mean_over((double)c->second * c->dy[0], *counted, D);
        CMHA__FOR_EACH(threads, T, t) {
            cmha__in z = c->x[0] + 2 * t * D;
            cmha__out dz = c->dx[0] + 2 * t * D;
            if (mask && !mask[t]) continue;
            if (!way) cmha__axpy(2 * D, (cmha_real)(2 * slope), z, dz);
            else
                for (size_t j = 0; j < D; j++) { /* dz -= slope * (gradient of every R_j times count) */
                    cmha_real gr = (cmha_real)(-slope * way[j]), gi = (cmha_real)(-slope * way[D + j]);
                    cmha__number more = cmha__phasor_backward(z[j], z[D + j], c->number, gr, gi);
                    dz[j] += more.re;
                    dz[D + j] += more.im;
                }
        }
        return;
    }
    cmha__zeros(sums, (size_t)threads);
    *counted = (double)cmha__counted(mask, T);
    CMHA__FOR_CHUNKS(threads, way ? D : T, lo, hi) {
        sums[cmha__chunk] = cmha__regulariser_sum(c, way, lo, hi);
    }
    cmha__over_ranks(c->tape, counted, 1);
    if (way) cmha__over_ranks(c->tape, way, 2 * D);
    CMHA__FOR_EACH(threads, way && *counted > 0 ? D : 0, j) { /* sums of phasors become directions */
        double length = sqrt(way[j] * way[j] + way[D + j] * way[D + j]); /* R_j times count */
        double inverse = length == 0 ? 0 : 1 / length;
        sums[cmha__chunk] += 1 - length / *counted;
        way[j] *= inverse;
        way[D + j] *= inverse;
    }
    double all = cmha__wide_total(sums, (size_t)threads);
    c->y[0] = (cmha_real)(c->second * cmha__mean_over(all, way ? 1 : *counted, D));
}

static cmha_tensor *cmha__regularise(cmha_tape *tape, cmha_tensor *z, const unsigned char *key_mask,
        cmha_real lam, cmha_real eps, int phases) {
    static const cmha__op ops[2] = {
        CMHA__OP("mag_reg", cmha__regulariser_pass, cmha__regulariser_shape, 1, CMHA__PLANES),
        CMHA__OP("phase_reg", cmha__regulariser_pass, cmha__regulariser_shape, 1, CMHA__PLANES | CMHA__EPS)};
    cmha__call call = cmha__call_of(&ops[phases], z, NULL, NULL);
    call.kind = phases;
    call.given = key_mask;
    call.number = eps;
    call.second = lam;
    return cmha__run(tape, &call);
}

CMHA_DEF cmha_tensor *cmha_phase_reg(cmha_tape *tape, cmha_tensor *z, const unsigned char *key_mask,
        cmha_real lam, cmha_real eps) {
    return cmha__regularise(tape, z, key_mask, lam, eps, 1);
}

CMHA_DEF cmha_tensor *cmha_mag_reg(cmha_tape *tape, cmha_tensor *z, const unsigned char *key_mask,
        cmha_real lam) {
    return cmha__regularise(tape, z, key_mask, lam, 0, 0);
}

/* ---- Complex residual and mixture of experts ---- */

/* Rows, or the router's columns, in a piece of work. */
#define CMHA__PIECE ((size_t)64)

static size_t cmha__pieces(size_t n) { return n / CMHA__PIECE + (n % CMHA__PIECE != 0); }
static size_t cmha__piece_end(size_t at, size_t n) { return at + cmha__min(n - at, CMHA__PIECE); }

/* CRAT eq 20 */
CMHA__HOT(CMHA_DEF, cmha_complex_residual_forward, (const cmha_complex_residual_args *args,
        const cmha_real *z, const cmha_real *f, cmha_real *y), (args, z, f, y)) {
    const size_t T = args->T, D = args->D;
    const cmha_real alpha = args->alpha, beta = args->beta;
    for (size_t t = 0; t < T; t++, z += 2 * D, f += 2 * D, y += 2 * D) {
        for (size_t j = 0; j < D; j++) y[j] = f[j] + (alpha * z[j] - beta * z[D + j]);
        for (size_t j = 0; j < D; j++) y[D + j] = f[D + j] + (alpha * z[D + j] + beta * z[j]);
    }
}

CMHA__HOT(CMHA__FIT, cmha_complex_residual_backward,
        (const cmha_complex_residual_args *args, const cmha_real *z, const cmha_real *dy, cmha_real *dz,
        double *dalpha, double *dbeta), (args, z, dy, dz, dalpha, dbeta)) {
    const size_t T = args->T, D = args->D;
    const cmha_real alpha = args->alpha, beta = args->beta;
    double re[CMHA__WIDE_LANES] = {0}, im[CMHA__WIDE_LANES] = {0};
    for (size_t at = 0; at < 2 * T * D; at += 2 * D) {
        const cmha_real *a = z + at, *b = a + D, *g = dy + at, *h = g + D;
        cmha_real *d = cmha__at(dz, at);
        if (d)
            for (size_t j = 0; j < D; j++) d[j] += alpha * g[j] + beta * h[j];
        if (d)
            for (size_t j = 0; j < D; j++) d[D + j] += alpha * h[j] - beta * g[j];
        if (!dalpha && !dbeta) continue;
        CMHA__IN_LANES(CMHA__WIDE_LANES, D, {
            re[l] += (double)a[i] * g[i] + (double)b[i] * h[i];
            im[l] += (double)a[i] * h[i] - (double)b[i] * g[i];
        })
    }
    if (dalpha) *dalpha += cmha__wide_total(re, CMHA__WIDE_LANES);
    if (dbeta) *dbeta += cmha__wide_total(im, CMHA__WIDE_LANES);
}

/* Inputs are f, z, alpha, beta. kept: sums of alpha's and beta's gradients for each piece of rows. */
static void cmha__residual_shape(cmha__call *c) {
    cmha__holds(c->tape, "complex residual: alpha", c->in[2], 1);
    cmha__holds(c->tape, "complex residual: beta", c->in[3], 1);
    c->kept = cmha_tape_alloc(c->tape, 2 * cmha__pieces(c->rows) * sizeof(double));
    c->rows = 1;
}
/* As the kernels, by pieces; without beta d psi = cos(psi) d beta - sin(psi) d alpha. */
static void cmha__residual_pass(const cmha__call *c) {
    size_t T = cmha__rows(c->out), D = c->D, pieces = cmha__pieces(T);
    double *sums = (double *)c->kept, psi = c->x[2][0], sum[2] = {0, 0};
    cmha_real alpha = c->x[3] ? c->x[2][0] : (cmha_real)cos(psi);
    cmha_real beta = c->x[3] ? c->x[3][0] : (cmha_real)sin(psi);
    CMHA__FOR_EACH(c->threads, pieces, i) {
        size_t row = i * CMHA__PIECE, n = cmha__piece_end(row, T) - row, at = 2 * row * D;
        const cmha_complex_residual_args args = {n, D, alpha, beta};
        const cmha_real *f = c->x[0] + at, *z = c->x[1] + at;
        cmha_real *dz = cmha__at(c->dx[1], at);
        double *re = c->dx[2] || c->dx[3] ? sums + 2 * i : NULL, *im = cmha__at(re, 1);
        if (re) *re = *im = 0;
        if (dz && c->fresh) cmha__zeros(dz, 2 * n * D);
        if (!cmha__goes_back(c)) cmha_complex_residual_forward(&args, z, f, c->y + at);
        else cmha_complex_residual_backward(&args, z, c->dy + at, dz, re, im);
    }
    if (!c->dx[2] && !c->dx[3]) return;
    for (size_t i = 0; i < 2 * pieces; i++) sum[i % 2] += sums[i];
    if (!c->x[3]) sum[0] = (double)alpha * sum[1] - (double)beta * sum[0];
    if (c->dx[2]) *c->dx[2] += (cmha_real)sum[0];
    if (c->dx[3]) *c->dx[3] += (cmha_real)sum[1];
}

CMHA_DEF cmha_tensor *cmha_complex_residual(cmha_tape *tape, cmha_tensor *z, cmha_tensor *f,
        cmha_tensor *alpha, cmha_tensor *beta) {
    CMHA__CALL("complex residual", cmha__residual_pass, cmha__residual_shape, 3,
            CMHA__PLANES | CMHA__ALIKE | CMHA__PASSED | CMHA__FRESH, f, z, alpha);
    call.in[3] = beta;
    return cmha__run(tape, &call);
}

/* ---- Mixture of experts: the router ---- */

CMHA_DEF void cmha_router_forward(const cmha_route_args *args, const cmha_real *z, const cmha_real *router,
        const cmha_real *bias, cmha_real *logits) {
    const size_t T = args->T, D = args->D, E = args->E;
    if (bias)
        for (size_t t = 0; t < T; t++) cmha__copy(logits + t * E, bias, E);
    for (size_t part = 0; part < 2; part++, z += D, router += E * D)
        cmha_gemm(0, 1, T, E, D, 1, z, 2 * D, router, D, part || bias ? 1 : 0, logits, E);
}

CMHA__FIT void cmha_router_backward(const cmha_route_args *args, const cmha_real *z, const cmha_real *router,
        const cmha_real *dlogits, const cmha_grads *grads) {
    const size_t T = args->T, D = args->D, E = args->E;
    cmha_real *dz = grads->x, *drouter = grads->weight;
    for (size_t part = 0; part < 2; part++) {
        size_t at = part * D, w = part * E * D;
        if (dz) cmha_gemm(0, 0, T, D, E, 1, dlogits, E, router + w, D, 1, dz + at, 2 * D);
        if (drouter) cmha_gemm(1, 0, E, D, T, 1, dlogits, E, z + at, 2 * D, 1, drouter + w, D);
    }
    if (grads->bias) cmha__bias_backward(1, dlogits, T, E, grads->bias);
}

/* Threads share pieces of rows. */
static void cmha__router_shape(cmha__call *c) {
    const cmha_tensor *router = c->in[1];
    if (router->rank != 3 || router->shape[0] != 2 || router->shape[2] != c->D)
        cmha__unfit(c, "router", 1, "must be [2, E, D] for a width of 2 D of z", 0);
    else cmha__holds(c->tape, "router: the bias", c->in[2], router->shape[1]);
    c->count = c->rows;
    c->rows = cmha__pieces(c->rows);
    c->shape[c->rank - 1] = router->shape[router->rank > 1];
}
/* A thread takes as large a share of columns' pieces as it has of rows'. */
static void cmha__router_pass(const cmha__call *c) {
    const size_t D = c->D, E = c->in[1]->shape[1], half = cmha__pieces(D), end = c->lo + c->n;
    for (size_t i = c->lo; i < end; i++) {
        size_t lo = i * CMHA__PIECE, n = cmha__piece_end(lo, c->count) - lo, at = lo * 2 * D;
        const cmha_route_args args = {n, D, E, 0, NULL, 1};
        const cmha_grads grads = {cmha__at(c->dx[0], at), NULL, NULL};
        if (!cmha__goes_back(c)) cmha_router_forward(&args, c->x[0] + at, c->x[1], c->x[2], c->y + lo * E);
        else cmha_router_backward(&args, NULL, c->x[1], c->dy + lo * E, &grads);
    }
    if (!cmha__goes_back(c)) return;
    if (c->dx[1])
        for (size_t i = 2 * half * c->lo / c->rows; i < 2 * half * end / c->rows; i++) {
            size_t part = i / half, lo = i % half * CMHA__PIECE, n = cmha__piece_end(lo, D) - lo;
            cmha_gemm(1, 0, E, n, c->count, 1, c->dy, E, c->x[0] + part * D + lo, 2 * D, 1,
                    c->dx[1] + part * E * D + lo, D);
        }
    if (c->dx[2] && !c->lo) cmha__bias_backward(1, c->dy, c->count, E, c->dx[2]);
}

CMHA_DEF cmha_tensor *cmha_router(cmha_tape *tape, cmha_tensor *z, cmha_tensor *router, cmha_tensor *bias) {
    cmha_tensor *in[3] = {z, router, bias};
    CMHA__RUNS(cmha__operate_on, "router", cmha__router_pass, cmha__router_shape, 2,
            CMHA__PLANES | CMHA__WHOLE, 0, 0, in);
}

/* Does expert a come before b? A total order: NaN, the larger logit, the lower index. */
static int cmha__expert_ahead(const cmha_real *logits, size_t a, size_t b) {
    int nan_a = logits[a] != logits[a], nan_b = logits[b] != logits[b];
    if (nan_a || nan_b) return nan_a && (!nan_b || a < b);
    return logits[a] > logits[b] || (!(logits[a] < logits[b]) && a < b);
}

/* The first expert after `last` in that order; after E the first of all. */
static size_t cmha__expert_next(const cmha_real *logits, size_t E, size_t last) {
    size_t best = E;
    for (size_t e = 0; e < E; e++) {
        int left = last == E || cmha__expert_ahead(logits, last, e);
        if (left && (best == E || cmha__expert_ahead(logits, e, best))) best = e;
    }
    return best;
}

/* A plan: expert [T, top]; pair [P = T top], (token, choice) by expert, in order of tokens; place [P], where
   each pair is; first, piece [E + 1], where each expert's pairs and pieces of work begin. */
typedef struct {
    size_t *expert, *pair, *place, *first, *piece;
} cmha__route;

static cmha__route cmha__route_of(const size_t *plan, size_t T, size_t E, size_t top) {
    cmha__route r;
    r.expert = (size_t *)(uintptr_t)plan; /* written by cmha_route_forward alone */
    r.pair = r.expert + T * top;
    r.place = r.pair + T * top;
    r.first = r.place + T * top;
    r.piece = r.first + E + 1;
    return r;
}

CMHA_DEF size_t cmha_route_size(size_t T, size_t E, size_t top) {
    return cmha__countable(3 * T * top + 2 * (E + 1), 3 * (double)T * (double)top + 2 * ((double)E + 1));
}

CMHA_DEF void cmha_route_forward(const cmha_route_args *args, const cmha_real *logits, size_t *plan,
        cmha_real *gate) {
    const size_t T = args->T, E = args->E, top = args->top;
    const unsigned char *key_mask = args->key_mask;
    cmha__route r = cmha__route_of(plan, T, E, top);
    CMHA__FOR_EACH(args->threads, T, t) {
        const cmha_real *row = key_mask && !key_mask[t] ? NULL : logits + t * E;
        size_t *choice = r.expert + t * top;
        cmha_real *g = gate + t * top;
        for (size_t c = 0; c < top; c++) {
            choice[c] = row ? cmha__expert_next(row, E, c ? choice[c - 1] : E) : c;
            g[c] = row ? row[choice[c]] : 0;
        }
        cmha_real inverse = 1 / cmha__exp_shifted(g, top, g[0]);
        for (size_t c = 0; c < top; c++) g[c] *= inverse;
    }
    cmha__zeros(r.first, E + 1); /* pairs are grouped by a counting sort */
    for (size_t p = 0; p < T * top; p++) r.first[r.expert[p] + 1]++;
    for (size_t e = 0; e < E; e++) r.first[e + 1] += r.first[e];
    cmha__copy(r.piece, r.first, E + 1); /* for now where each expert's next pair goes */
    for (size_t p = 0; p < T * top; p++) {
        r.place[p] = r.piece[r.expert[p]]++;
        r.pair[r.place[p]] = p;
    }
    r.piece[0] = 0;
    for (size_t e = 0; e < E; e++) r.piece[e + 1] = r.piece[e] + cmha__pieces(r.first[e + 1] - r.first[e]);
}

CMHA__FIT void cmha_route_backward(const cmha_route_args *args, const size_t *plan, const cmha_real *gate,
        const cmha_real *dgate, cmha_real *dlogits) {
    const size_t T = args->T, E = args->E, top = args->top;
    const unsigned char *key_mask = args->key_mask;
    if (!dlogits) return;
    for (size_t t = 0; t < T; t++, plan += top, gate += top, dgate += top, dlogits += E) {
        if (key_mask && !key_mask[t]) continue;
        cmha_real mean = cmha__dot(gate, dgate, top);
        if (top > 1)
            for (size_t c = 0; c < top; c++) dlogits[plan[c]] += gate[c] * (dgate[c] - mean);
    }
}

/* ---- Mixture of experts: the experts. Rows of planes [n, 2I] are also a real [2n, I]; W x = Wr x + Wi (i x)
        is two real products with a copy of x times i, by planes of W as they lie, each read once. ---- */

/* Map 0 of the experts leads from D to F, map 1 back; x .. ig: for the backward, over the P grouped pairs. */
typedef struct {
    size_t I, O;
    const cmha_real *w, *b; /* [2, E, O, I], [2, E, O] or NULL */
    const cmha_packed *packed; /* forward: instead of w, or NULL */
    cmha_real *x, *ix; /* what goes in, and, of map 0, times i [P, 2I] */
    cmha_real *g, *ig; /* the gradient of what comes out, and times -i [P, 2O] */
} cmha__expert_map;

/* The experts at work, and a piece of work. */
typedef struct {
    const cmha_experts_args *a;
    cmha__expert_map map[2];
    cmha__route r;
    const cmha_real *z, *dy; /* dy: NULL in the forward */
    cmha_real *out; /* forward: what the experts make of their tokens [P, 2D] */
    cmha_real *dgate, *own; /* own: scratch of each thread; in a piece, of its thread */
    cmha_real *pieces; /* likewise: packed rows as numbers */
    size_t expert, first, n; /* the piece: pairs first .. first + n - 1 of the plan */
} cmha__mixture;

static cmha__mixture cmha__mixture_of(const cmha_experts_args *a, const cmha_experts_weights *weights,
        const cmha_real *z) {
    cmha__mixture m;
    cmha__zero(m);
    m.a = a;
    m.r = cmha__route_of(a->plan, a->T, a->E, a->top);
    m.z = z;
    m.map[0].I = m.map[1].O = a->D;
    m.map[0].O = m.map[1].I = a->F;
    m.map[0].w = weights->w1;
    m.map[0].b = weights->b1;
    m.map[1].w = weights->w2;
    m.map[1].b = weights->b2;
    return m;
}

/* y [n, 2O] = W x + bias of a map of the piece's expert, x [n, 2I], by ix, which gets i x; or the adjoint's
   x = W^H y = Wr^T y + Wi^T (-i y), by ix = -i y. */
static void cmha__expert_product(const cmha__mixture *m, int map, int adjoint, const cmha_real *x,
        cmha_real *ix, cmha_real *y) {
    const cmha__expert_map *f = &m->map[map];
    const cmha_packed *p = f->packed;
    const size_t O = f->O, I = f->I, from = adjoint ? O : I, to = adjoint ? I : O, rows = 2 * m->n;
    const cmha_real *bias = adjoint ? NULL : f->b;
    cmha_real *pieces = m->pieces; /* [64, O + I] */
    cmha__times_i(x, m->n, from, adjoint ? -1 : 1, ix);
    if (bias)
        for (size_t i = 0; i < rows; i++) cmha__copy(y + i * O, bias + (i % 2 * m->a->E + m->expert) * O, O);
    for (size_t part = 0; part < 2; part++) {
        const cmha_real *in = part ? ix : x, keep = part || bias ? 1 : 0;
        size_t lo = (part * m->a->E + m->expert) * O;
        if (!p) cmha_gemm(0, !adjoint, rows, to, from, 1, in, from, f->w + lo * I, I, keep, y, to);
        else if (rows > CMHA__FEW_ROWS)
            CMHA__IN_PIECES(at, n, O, CMHA__PIECE) {
                cmha_unpack(p, lo + at, lo + at + n, pieces);
                cmha_gemm(0, 1, rows, n, I, 1, in, I, pieces, I, keep, y + at, O);
            }
        else {
            cmha_packed_forward(p, in, rows, lo, lo + O, pieces, O);
            for (size_t i = 0; i < rows * O; i++) y[i] = pieces[i] + (keep > 0 ? y[i] : 0);
        }
    }
}

static size_t cmha__workers(const cmha_experts_args *a) { return a->threads > 1 ? (size_t)a->threads : 1; }

/* A thread's scratch; forward: tokens and activations of a piece, also times i, and hidden values. */
static size_t cmha__expert_own(const cmha_experts_args *a, int backward) {
    size_t rows = cmha__piece_end(0, a->T * a->top);
    return rows * (backward ? 2 * a->F : 4 * a->D + 6 * a->F);
}

CMHA_DEF size_t cmha_experts_scratch(const cmha_experts_args *a, int backward) {
    size_t pairs = a->T * a->top, workers = cmha__workers(a);
    double rows = (double)a->T * (double)a->top + (double)workers * CMHA__PIECE;
    return cmha__countable(pairs * (backward ? 8 * a->D + 4 * a->F : 2 * a->D) +
            workers * cmha__expert_own(a, backward), 8 * rows * ((double)a->D + (double)a->F));
}

static void cmha__mixture_run(const cmha__mixture *m, void (*work)(const cmha__mixture *)) {
    const size_t *piece = m->r.piece, *first = m->r.first;
    CMHA__FOR_CHUNKS(m->a->threads, piece[m->a->E], lo, hi) {
        cmha__mixture p = *m;
        p.own += (size_t)cmha__chunk * cmha__expert_own(m->a, m->dy != NULL);
        if (p.pieces) p.pieces += (size_t)cmha__chunk * CMHA__PIECE * (m->a->D + m->a->F);
        for (size_t i = lo; i < hi; i++) {
            while (piece[p.expert + 1] <= i) p.expert++;
            p.first = first[p.expert] + (i - piece[p.expert]) * CMHA__PIECE;
            p.n = cmha__piece_end(p.first, first[p.expert + 1]) - p.first;
            work(&p);
        }
    }
}

/* to [n, 2D] = the rows of the piece's tokens. */
static void cmha__gather(const cmha__mixture *m, const cmha_real *rows, cmha_real *to) {
    size_t W = 2 * m->a->D;
    for (size_t i = 0; i < m->n; i++)
        cmha__copy(to + i * W, rows + m->r.pair[m->first + i] / m->a->top * W, W);
}

/* y [T, 2D] = a token's rows, best choice first, times their gate; gate NULL: adds them as they are. */
static void cmha__mixture_scatter(const cmha__mixture *m, const cmha_real *gate, const cmha_real *rows,
        cmha_real *y) {
    size_t W = 2 * m->a->D, top = m->a->top;
    CMHA__FOR_EACH(m->a->threads, m->a->T, t) {
        if (gate) cmha__zeros(y + t * W, W);
        for (size_t c = t * top; c < (t + 1) * top; c++)
            cmha__axpy(W, gate ? gate[c] : 1, rows + m->r.place[c] * W, y + t * W);
    }
}

static void cmha__expert_forward(const cmha__mixture *m) {
    size_t wide = 2 * m->n * m->a->D, hide = 2 * m->n * m->a->F;
    cmha_real *x = m->own, *ix = x + wide, *act = ix + wide, *iact = act + hide;
    cmha_real *pre = m->a->hidden ? m->a->hidden + 2 * m->first * m->a->F : iact + hide;
    cmha__gather(m, m->z, x);
    cmha__expert_product(m, 0, 0, x, ix, pre);
    cmha_activation_forward(pre, hide, CMHA_ACTIVATION_GELU_ERF, act);
    cmha__expert_product(m, 1, 0, act, iact, m->out + 2 * m->first * m->a->D);
}

/* CRAT eq 21. m: the weights, as they are or packed. */
static void cmha__experts_run(cmha__mixture *m, cmha_real *y, cmha_real *scratch) {
    const cmha_experts_args *a = m->a;
    m->out = scratch;
    m->own = scratch + a->T * a->top * 2 * a->D;
    cmha__mixture_run(m, cmha__expert_forward);
    cmha__mixture_scatter(m, a->gate, m->out, y);
}

CMHA_DEF void cmha_experts_forward(const cmha_experts_args *a, const cmha_experts_weights *weights,
        const cmha_real *z, cmha_real *y, cmha_real *scratch) {
    cmha__mixture m = cmha__mixture_of(a, weights, z);
    cmha__experts_run(&m, y, scratch);
}

/* Fills a piece's arrays, adds to dgate <dy, W2 act + b2> = <W2^H dy, act> + <dy, b2>. own gets [n, 2F]. */
static void cmha__expert_backward(const cmha__mixture *m) {
    const cmha__expert_map *in = m->map, *out = in + 1;
    size_t D = m->a->D, F = m->a->F, n = m->n, wide = 2 * m->first * D, hide = 2 * m->first * F;
    const cmha_real *hidden = m->a->hidden + hide, *bias = cmha__at(out->b, m->expert * D);
    cmha_real *act = out->x + hide, *dpre = in->g + hide;
    cmha__gather(m, m->z, in->x + wide);
    cmha__gather(m, m->dy, out->g + wide);
    cmha_activation_forward(hidden, 2 * n * F, CMHA_ACTIVATION_GELU_ERF, act);
    cmha__times_i(in->x + wide, n, D, 1, in->ix + wide);
    cmha__expert_product(m, 1, 1, out->g + wide, out->ig + wide, m->own);
    for (size_t i = 0; i < n; i++) {
        size_t pair = m->r.pair[m->first + i], at = wide + 2 * i * D;
        cmha_real *row = m->own + 2 * i * F, *g = out->g + at, *ig = out->ig + at, gate = m->a->gate[pair];
        if (m->dgate) m->dgate[pair] += cmha__dot(row, act + 2 * i * F, 2 * F);
        if (m->dgate && bias)
            m->dgate[pair] += cmha__dot(g, bias, D) + cmha__dot(g + D, bias + m->a->E * D, D);
        for (size_t j = 0; j < 2 * F; j++) row[j] *= gate;
        for (size_t j = 0; j < 2 * D; j++) g[j] *= gate;
        for (size_t j = 0; j < 2 * D; j++) ig[j] *= gate;
    }
    cmha__zeros(dpre, 2 * n * F);
    cmha_activation_backward(hidden, m->own, 2 * n * F, CMHA_ACTIVATION_GELU_ERF, dpre);
}

/* x = W1^H dpre, in place of the tokens, needed no more. */
static void cmha__expert_input(const cmha__mixture *m) {
    const cmha__expert_map *in = m->map;
    size_t hide = 2 * m->first * m->a->F;
    cmha__expert_product(m, 0, 1, in->g + hide, in->ig + hide, in->x + 2 * m->first * m->a->D);
}

/* Rows lo .. hi - 1 of the gradients of a map and its bias, of one expert: dW += g x^H, dbias += the sum of
   g. The imaginary part takes -i g and x or g and i x, whichever is there. */
static void cmha__expert_outer(const cmha__mixture *m, const cmha_experts_grads *d, size_t e, int map,
        size_t lo, size_t hi) {
    const cmha__expert_map *f = &m->map[map];
    const size_t I = f->I, O = f->O, first = 2 * m->r.first[e], rows = 2 * m->r.first[e + 1] - first;
    cmha_real *dw = map ? d->w2 : d->w1, *db = map ? d->b2 : d->b1;
    for (size_t part = 0; part < 2; part++) {
        const cmha_real *g = part && map ? f->ig : f->g, *x = part && !map ? f->ix : f->x;
        size_t at = (part * m->a->E + e) * O + lo;
        if (dw && rows)
            cmha_gemm(1, 0, hi - lo, I, rows, 1, g + first * O + lo, O, x + first * I, I, 1, dw + at * I, I);
        if (db)
            for (size_t t = first + part; t < first + rows; t += 2)
                cmha__axpy(hi - lo, 1, f->g + t * O + lo, db + at);
    }
}

CMHA__FIT void cmha_experts_backward(const cmha_experts_args *a, const cmha_experts_weights *weights,
        const cmha_real *z, const cmha_real *dy, const cmha_experts_grads *grads, cmha_real *scratch) {
    size_t wide = a->T * a->top * 2 * a->D, hide = a->T * a->top * 2 * a->F, workers = cmha__workers(a);
    size_t one = cmha__pieces(a->F), both = one + cmha__pieces(a->D);
    cmha__mixture m = cmha__mixture_of(a, weights, z);
    cmha__expert_map *in = m.map, *out = in + 1;
    in->x = scratch;
    in->ix = in->x + wide;
    out->g = in->ix + wide;
    out->ig = out->g + wide;
    in->ig = out->x = out->ig + wide; /* activations are not needed any more when ig is */
    in->g = out->x + hide;
    m.own = in->g + hide;
    m.dy = dy;
    m.dgate = grads->gate;
    cmha__mixture_run(&m, cmha__expert_backward);
    /* Threads take the weights' rows in turns: all tokens may be with one expert. */
    CMHA__FOR_CHUNKS(a->threads, workers, begin, end) {
        for (size_t i = begin; i < a->E * both; i += workers) {
            int map = i % both >= one;
            size_t lo = (i % both - (map ? one : 0)) * CMHA__PIECE;
            cmha__expert_outer(&m, grads, i / both, map, lo, cmha__piece_end(lo, m.map[map].O));
        }
    }
    if (!grads->z) return;
    cmha__mixture_run(&m, cmha__expert_input);
    cmha__mixture_scatter(&m, NULL, in->x, grads->z);
}

static int cmha__experts_top(cmha_tape *tape, const char *name, size_t top, size_t E) {
    if (top < 1 || top > E) CMHA__MISUSE(tape, "%s: top = %zu is not 1 to %zu experts", name, top, E);
    return !tape->status;
}

/* z, logits, w1, w2, b1, b2. given: the mask; count: experts of a token; kept: what the kernels take. */
static void cmha__experts_shape(cmha__call *c) {
    const cmha_tensor *logits = c->in[1], *w1 = c->in[2], *w2 = c->in[3];
    const size_t T = c->rows, top = c->count, E = w1->shape[1], F = w1->shape[2], D = w1->shape[3];
    const cmha_experts_args args = {T, D, F, E, top, c->threads, NULL, NULL, NULL};
    cmha_experts_args *a = CMHA__NEW(c->tape, cmha_experts_args);
    const size_t turned[4] = {2, E, D, F};
    if (w1->rank != 4 || w2->rank != 4 || w1->shape[0] != 2 || memcmp(w2->shape, turned, sizeof turned))
        cmha__unfit(c, "w1", 2, "must be [2, E, F, D], w2 [2, E, D, F], not", 3);
    else if (c->D != D) cmha__unfit(c, "w1", 2, "must be [2, E, F, D] for a width of 2 D of z", 0);
    else if (cmha__last(logits) != E || cmha__rows(logits) != T)
        cmha__unfit(c, "logits", 1, "needs the rows of z and E of w1", 2);
    cmha__holds(c->tape, "experts: b1", c->in[4], 2 * E * F);
    cmha__holds(c->tape, "experts: b2", c->in[5], 2 * E * D);
    if (!cmha__experts_top(c->tape, "experts", top, E)) return;
    if (cmha__countable(0, 128 * (double)T * (double)top * ((double)D + (double)F + 1)))
        CMHA__TOO_MUCH(c->tape, "experts: %zu tokens, %zu experts each, are too many", T, top);
    if (c->tape->status) return;
    *a = args;
    a->plan = (size_t *)cmha_tape_alloc(c->tape, cmha_route_size(T, E, top) * sizeof *a->plan);
    a->gate = cmha__reals(c->tape, T * top);
    if (cmha__records(c->tape)) a->hidden = cmha__reals(c->tape, T * top * 2 * F);
    c->kept = a;
    c->rows = 1;
}
static void cmha__experts_pass(const cmha__call *c) {
    cmha_tape *tape = c->tape;
    const cmha_experts_args *a = (const cmha_experts_args *)c->kept;
    const cmha_experts_weights weights = {c->x[2], c->x[4], c->x[3], c->x[5]};
    const cmha_route_args route = {a->T, a->D, a->E, a->top, (const unsigned char *)c->given, a->threads};
    const int back = cmha__goes_back(c);
    size_t pairs = a->T * a->top, pieces = cmha__workers(a) * CMHA__PIECE * (a->D + a->F);
    cmha_real *scratch = cmha__reals(tape, cmha_experts_scratch(a, back)), *more = NULL; /* dgate or pieces */
    if (back || c->in[2]->packed) more = cmha__reals(tape, back ? pairs : pieces);
    if (!cmha__computes(tape)) return;
    if (back) {
        const cmha_experts_grads grads = {
            c->dx[0], c->dx[1] ? more : NULL, c->dx[2], c->dx[4], c->dx[3], c->dx[5]};
        cmha__zeros(more, pairs);
        cmha_experts_backward(a, &weights, c->x[0], c->dy, &grads, scratch);
        cmha_route_backward(&route, a->plan, a->gate, more, c->dx[1]);
        return;
    }
    cmha__mixture m = cmha__mixture_of(a, &weights, c->x[0]);
    m.map[0].packed = c->in[2]->packed;
    m.map[1].packed = c->in[3]->packed;
    m.pieces = more;
    cmha_route_forward(&route, c->x[1], m.r.expert, (cmha_real *)(uintptr_t)a->gate);
    cmha__experts_run(&m, c->y, scratch);
}

CMHA_DEF cmha_tensor *cmha_experts(cmha_tape *tape, cmha_tensor *z, cmha_tensor *logits,
        const cmha_experts_tensors *weights, const cmha_experts_options *options) {
    if (!tape || tape->status) return NULL;
    if (!weights || !options) return CMHA__MISUSE(tape, "experts: weights or options is NULL");
    CMHA__CALL("experts", cmha__experts_pass, cmha__experts_shape, 4,
            CMHA__PLANES | 12 * CMHA__UNPACKS | CMHA__SCRATCH, z, logits, weights->w1);
    call.in[3] = weights->w2;
    call.in[4] = weights->b1;
    call.in[5] = weights->b2;
    call.count = options->top;
    call.given = options->key_mask;
    cmha_tensor *y = cmha__run(tape, &call);
    uint64_t *use = options->use;
    if (!y || !use || cmha__dry(tape)) return y;
    const cmha_experts_args *a = (const cmha_experts_args *)call.kept;
    const size_t *first = cmha__route_of(a->plan, a->T, a->E, a->top).first;
    size_t top = a->top, absent = a->T - cmha__counted(options->key_mask, a->T);
    for (size_t e = 0; e < a->E; e++) use[e] += first[e + 1] - first[e] - (e < top ? absent : 0);
    return y;
}

/* ---- Mixture of experts: the load balance ---- */

/* The largest logit, and 1 / the sum of exp(logit - that): a row's softmax. */
static cmha_real cmha__balance_row(const cmha_real *logits, size_t E, cmha_real *top) {
    cmha_real sum = 0;
    *top = E ? cmha__top_logit(logits, E) : 0;
    for (size_t e = 0; e < E; e++) sum += cmha__exp(logits[e] - *top);
    return 1 / sum;
}

CMHA_DEF double cmha_balance_forward(const cmha_route_args *args, const cmha_real *logits, double *share) {
    const size_t T = args->T, E = args->E, top = args->top;
    const unsigned char *key_mask = args->key_mask;
    double *p = share + E, loss = 0, count = (double)cmha__counted(key_mask, T);
    cmha__zeros(share, 2 * E);
    share[2 * E] = count;
    for (size_t t = 0; t < T; t++, logits += E) {
        if (key_mask && !key_mask[t]) continue;
        cmha_real most, inverse = cmha__balance_row(logits, E, &most);
        for (size_t e = 0; e < E; e++) p[e] += (double)(cmha__exp(logits[e] - most) * inverse);
        for (size_t c = 0, chosen = E; c < top; c++) {
            chosen = cmha__expert_next(logits, E, chosen);
            share[chosen] += 1;
        }
    }
    if (count > 0)
        for (size_t e = 0; e < E; e++) {
            share[e] /= count * (double)top;
            p[e] /= count;
            loss += share[e] * p[e];
        }
    return (double)E * loss;
}

CMHA__FIT void cmha_balance_backward(const cmha_route_args *args, const cmha_real *logits,
        const double *share, cmha_real dloss, cmha_real *dlogits) {
    const size_t T = args->T, E = args->E;
    const unsigned char *key_mask = args->key_mask;
    double scale = share[2 * E] > 0 ? dloss * (double)E / share[2 * E] : 0;
    if (!dlogits) return;
    for (size_t t = 0; t < T; t++, logits += E, dlogits += E) {
        if (key_mask && !key_mask[t]) continue;
        cmha_real most, inverse = cmha__balance_row(logits, E, &most);
        double mean = 0;
        for (size_t e = 0; e < E; e++) mean += share[e] * (double)(cmha__exp(logits[e] - most) * inverse);
        for (size_t e = 0; e < E; e++) {
            double p = (double)(cmha__exp(logits[e] - most) * inverse);
            dlogits[e] += (cmha_real)(scale * (share[e] - mean) * p);
        }
    }
}

/* given: the mask; count: the experts of a token; kept: the shares. */
static void cmha__balance_shape(cmha__call *c) {
    if (!cmha__experts_top(c->tape, "balance", c->count, c->D)) return;
    c->kept = cmha_tape_alloc(c->tape, (2 * c->D + 1) * sizeof(double));
    cmha__one_shape(c);
}
static void cmha__balance_pass(const cmha__call *c) {
    const size_t T = cmha__rows(c->in[0]), E = c->D;
    const cmha_route_args args = {T, 0, E, c->count, (const unsigned char *)c->given, 1};
    double *share = (double *)c->kept;
    if (cmha__goes_back(c)) {
        cmha_balance_backward(&args, c->x[0], share, c->dy[0], c->dx[0]);
        return;
    }
    c->y[0] = (cmha_real)cmha_balance_forward(&args, c->x[0], share);
    if (!cmha__among_ranks(c->tape)) return;
    double own = share[2 * E]; /* means of a rank's part become those of the whole batch */
    for (size_t e = 0; e < 2 * E; e++) share[e] *= own;
    cmha__over_ranks(c->tape, share, 2 * E + 1);
    double all = share[2 * E] > 0 ? share[2 * E] : 1;
    for (size_t e = 0; e < 2 * E; e++) share[e] /= all;
}

CMHA_DEF cmha_tensor *cmha_balance(cmha_tape *tape, cmha_tensor *logits, size_t top,
        const unsigned char *key_mask) {
    CMHA__RUNS(cmha__operate_by, "balance", cmha__balance_pass, cmha__balance_shape, 1, 0, logits, 0,
            key_mask, top);
}

/* ---- Retrieval: the knowledge base ---- */

/* Hashes the sizes, and the numbers as floats. Eight hashes in turn vectorise. */
static uint64_t cmha__knowledge_identity(size_t n, size_t d_r, const cmha_real *vectors) {
    const size_t W = 2 * d_r;
    uint64_t lanes[8], hash = cmha__mix(cmha__mix((uint64_t)n + CMHA__GOLDEN) ^ (uint64_t)d_r);
    for (size_t l = 0; l < 8; l++) lanes[l] = hash + (uint64_t)l * CMHA__GOLDEN;
    for (const cmha_real *x = vectors, *end = x + n * W; x != end; x += W)
        for (size_t i = 0; i < W; i++) {
            cmha_real number = x[i];
            if (sizeof number > sizeof(float) && fabs(number) > FLT_MAX)
                number = number > 0 ? FLT_MAX : -FLT_MAX;
            lanes[i % 8] = (lanes[i % 8] ^ cmha__bits_of((float)number)) * UINT64_C(0xd1342543de82ef95);
            lanes[i % 8] ^= lanes[i % 8] >> 29;
        }
    for (size_t l = 0; l < 8; l++) hash = cmha__mix(hash ^ lanes[l]) + CMHA__GOLDEN;
    return hash;
}

static const cmha_real cmha__feature_eps = (cmha_real)1e-6;

/* Takes memory that close gives back, to the pointer at `to`. */
static cmha_status cmha__knowledge_take(cmha_knowledge *kb, size_t count, size_t width, void *to) {
    size_t bytes, i = 0;
    if (!cmha__mul(count, width, &bytes))
        return CMHA__HUGE(kb->context, "knowledge: %zu documents overflow a size", kb->n);
    if (!bytes) bytes = 1;
    while (kb->owned[i].memory) i++;
    kb->owned[i].memory = cmha__take(kb->context, "knowledge", kb->owned[i].bytes = bytes);
    memcpy(to, &kb->owned[i].memory, sizeof kb->owned[i].memory);
    return kb->owned[i].memory ? CMHA_OK : CMHA_ERR_MEMORY;
}

static cmha_status cmha__knowledge_reserve(cmha_knowledge *kb) {
    return cmha__knowledge_take(kb, cmha__times(kb->n, 2 * kb->d_r), sizeof *kb->features, &kb->features);
}

static void cmha__knowledge_features(cmha_knowledge *kb) {
    cmha_real *features = (cmha_real *)(uintptr_t)kb->features; /* of cmha__knowledge_reserve */
    size_t W = 2 * kb->d_r;
    CMHA__FOR_CHUNKS(kb->context->threads, kb->n, lo, hi) {
        cmha_phasor_forward(kb->vectors + lo * W, hi - lo, kb->d_r, cmha__feature_eps, features + lo * W);
    }
}

/* Do n texts begin at 0, ascend, and end within `bytes`? */
static int cmha__texts_in_order(const uint64_t *begin, size_t n, uint64_t bytes) {
    for (size_t i = 0; i < n; i++)
        if (begin[i + 1] < begin[i]) return 0;
    return begin[0] == 0 && begin[n] <= bytes;
}

static cmha_status cmha__knowledge_finite(const cmha_knowledge *kb) {
    size_t W = 2 * kb->d_r;
    for (size_t i = 0; i < kb->n; i++) {
        const cmha_real *row = kb->vectors + i * W;
        cmha_real sum = 0;
        for (size_t j = 0; j < W; j++) sum += row[j] * 0; /* NaN as soon as one is NaN or infinite */
        if (sum != 0)
            return cmha__fail(kb->context, CMHA_ERR_NOT_FINITE, "knowledge: vector %zu is not finite", i);
    }
    return CMHA_OK;
}

CMHA_DEF cmha_status cmha_knowledge_init(cmha_knowledge *kb, cmha_context *context, size_t n, size_t d_r,
        const cmha_real *vectors, const int64_t *ids, const char *texts, const uint64_t *text_begin) {
    if (!kb) return CMHA__WRONG(context, "knowledge: knowledge is NULL");
    cmha__zero(*kb);
    if (!cmha__is_open(context)) return CMHA_ERR_STATE;
    if (n && (!vectors || !d_r))
        return CMHA__WRONG(context, "knowledge: %zu documents without %s", n, d_r ? "vectors" : "d_r");
    if (!texts != !text_begin)
        return CMHA__WRONG(context, "knowledge: only %s is NULL", texts ? "text_begin" : "texts");
    if (d_r > SIZE_MAX / 2) return CMHA__HUGE(context, "knowledge: d_r = %zu features", d_r);
    kb->context = context;
    kb->n = n;
    kb->d_r = d_r;
    kb->vectors = vectors;
    kb->ids = ids;
    kb->texts = texts;
    kb->text_begin = text_begin;
    cmha_status status = cmha__knowledge_reserve(kb); /* first: every array's size is then possible */
    if (!status && texts && !cmha__texts_in_order(text_begin, n, UINT64_MAX))
        status = CMHA__WRONG(context, "knowledge: text_begin does not ascend from 0");
    if (!status) status = cmha__knowledge_finite(kb);
    if (!status) cmha__knowledge_features(kb);
    if (status) cmha_knowledge_close(kb);
    else kb->identity = cmha__knowledge_identity(n, d_r, vectors);
    return status;
}

CMHA_DEF void cmha_knowledge_close(cmha_knowledge *kb) {
    if (!kb || !kb->context) return;
    for (size_t i = 0; i < CMHA__COUNT(kb->owned); i++)
        cmha__give(kb->context, kb->owned[i].memory, kb->owned[i].bytes);
    cmha__unmap_file(kb->mapping, kb->mapped);
    cmha__zero(*kb);
}

CMHA_DEF const char *cmha_knowledge_text(const cmha_knowledge *kb, size_t i, size_t *length) {
    int there = kb && kb->texts && i < kb->n;
    if (length) *length = there ? (size_t)(kb->text_begin[i + 1] - kb->text_begin[i]) : 0;
    return there ? kb->texts + kb->text_begin[i] : NULL;
}

/* ---- Retrieval: search ---- */

#define CMHA__NEAREST_ROWS ((size_t)128) /* queries and documents of one tile of similarities */
#define CMHA__NEAREST_DOCUMENTS ((size_t)512)
#define CMHA__NEAREST_FEW ((size_t)6) /* up to so many queries take products of one row each */
#define CMHA__NEAREST_SPAN ((size_t)64) /* similarities looked at together: most hold nothing better */
#define CMHA__SEARCH_BLOCKS ((size_t)4) /* of queries a thread, beyond which threads share out queries */

/* A search for Q queries of k documents each, and its memory. */
typedef struct {
    cmha_context *context;
    const cmha_knowledge *base;
    size_t Q, d_r, k;
    cmha_real under; /* what a similarity must lie above; rounding may take one below -1 */
    int64_t *index; /* [Q, k], the answer */
    cmha_real *similarity;
    size_t bytes; /* of all that it takes */
    size_t tile, lists; /* numbers of one thread's scratch; places in own_index and own_similarity */
    cmha_real *phasors; /* [Q, 2 d_r], the queries */
    cmha_real *scratch; /* [threads, tile] */
    cmha_real *own_similarity;
    int64_t *own_index; /* lists of all threads but the first; or what the caller's search finds [Q, k] */
} cmha__search;

/* A search without its memory; `bytes` of it are SIZE_MAX where they overflow. */
static cmha__search cmha__search_of(cmha_context *context, const cmha_knowledge *base, size_t Q, size_t d_r,
        size_t k, cmha_real threshold) {
    const size_t threads = (size_t)context->threads, rows = cmha__min(Q, CMHA__NEAREST_ROWS);
    const size_t shares = cmha__min(Q, CMHA__SEARCH_BLOCKS * threads * CMHA__NEAREST_ROWS) * (threads - 1);
    cmha__search s = {context, base, Q, d_r, k, CMHA__LOWEST, NULL, NULL, 0, 0, 0, NULL, NULL, NULL, NULL};
    if (threshold > -1) /* the number below it: "above" is "at least the threshold" */
        s.under = sizeof threshold == sizeof(float) ? nextafterf((float)threshold, -FLT_MAX)
                : (cmha_real)nextafter((double)threshold, -DBL_MAX);
    s.tile = CMHA__NEAREST_DOCUMENTS * (rows + 2 * d_r);
    s.lists = (shares > Q ? shares : Q) * k;
    double about = ((double)shares + (double)Q) * (double)k * 16 + 16 * (double)Q * (double)d_r +
            8 * (double)threads * (double)CMHA__NEAREST_DOCUMENTS * ((double)rows + 2 * (double)d_r);
    s.bytes = (s.lists + threads * s.tile + Q * 2 * d_r) * sizeof *s.scratch + s.lists * sizeof *s.own_index;
    s.bytes = cmha__countable(s.bytes, about);
    return s;
}

static void cmha__search_place(cmha__search *s, void *memory) {
    s->own_index = (int64_t *)memory;
    s->own_similarity = (cmha_real *)(void *)(s->own_index + s->lists);
    s->phasors = s->own_similarity + s->lists;
    s->scratch = s->phasors + s->Q * 2 * s->d_r;
}

/* Puts document i into query q's list of the k best so far, where it belongs, ties by index. */
static void cmha__nearest_insert(const cmha__search *s, size_t q, cmha_real score, int64_t i) {
    cmha_real *similarity = s->similarity + q * s->k;
    int64_t *index = s->index + q * s->k;
    size_t at = s->k - 1;
    for (; at > 0; at--) {
        if (similarity[at - 1] > score || (similarity[at - 1] >= score && index[at - 1] <= i)) break;
        similarity[at] = similarity[at - 1];
        index[at] = index[at - 1];
    }
    similarity[at] = score;
    index[at] = i;
}

/* Inserts those of n documents from `first` on whose scores, no NaN, are above query q's k-th best. */
static void cmha__nearest_scan(const cmha__search *s, size_t q, const cmha_real *scores, size_t n,
        size_t first) {
    const cmha_real under = s->under, *worst = s->similarity + (q + 1) * s->k - 1;
    cmha_real limit = cmha__larger(*worst, under);
    CMHA__IN_PIECES(i, m, n, CMHA__NEAREST_SPAN) {
        int any = m < CMHA__NEAREST_SPAN;
        if (!any)
            for (size_t j = 0; j < CMHA__NEAREST_SPAN; j++) any |= scores[i + j] > limit;
        if (!any) continue;
        for (size_t j = i; j < i + m; j++) {
            if (!(scores[j] > limit)) continue;
            cmha__nearest_insert(s, q, scores[j], (int64_t)(first + j));
            limit = cmha__larger(*worst, under);
        }
    }
}

/* Empties n places. */
static void cmha__nearest_begin(size_t n, int64_t *index, cmha_real *similarity) {
    for (size_t i = 0; i < n; i++) {
        index[i] = -1;
        similarity[i] = CMHA__LOWEST;
    }
}

/* Adds documents lo .. hi - 1 to the lists, by tiles of one width: equals get equal bits. */
static void cmha__nearest_range(const cmha__search *s, size_t lo, size_t hi, cmha_real *scratch) {
    size_t W = 2 * s->d_r, n = s->base->n, width = CMHA__NEAREST_DOCUMENTS, cols;
    if (n < width) width = (n + CMHA__NEAREST_SPAN - 1) / CMHA__NEAREST_SPAN * CMHA__NEAREST_SPAN;
    cmha_real *filled = scratch, *scores = filled + width * W, scale = 1 / (cmha_real)s->d_r;
    for (; (cols = cmha__min(hi - lo, width)) > 0; lo += cols) {
        const cmha_real *tile = s->base->features + lo * W;
        if (cols < width) { /* the last tile: filled up with zeros */
            cmha__copy(filled, tile, cols * W);
            cmha__zeros(filled + cols * W, (width - cols) * W);
            tile = filled;
        }
        CMHA__IN_PIECES(q, rows, s->Q, CMHA__NEAREST_ROWS) {
            /* A few queries go one by one: products of few rows are GEMM's weakest. */
            size_t step = rows <= CMHA__NEAREST_FEW ? 1 : rows;
            for (size_t r = 0; r < rows; r += step)
                cmha_gemm(0, 1, step, width, W, scale, s->phasors + (q + r) * W, W, tile, W, 0,
                        scores + r * width, width);
            for (size_t r = 0; r < rows; r++) cmha__nearest_scan(s, q + r, scores + r * width, cols, lo);
        }
    }
}

/* Cuts along queries or documents, at the same places for any number of threads. */
static void cmha__search_exact(const cmha__search *s) {
    const size_t Q = s->Q, k = s->k, n = s->base->n, rows = CMHA__NEAREST_ROWS,
            width = CMHA__NEAREST_DOCUMENTS;
    const size_t blocks = Q / rows + (Q % rows != 0), tiles = n / width + (n % width != 0);
    const size_t threads = (size_t)s->context->threads, list = Q * k, others = list * (threads - 1);
    const int by_query = blocks > CMHA__SEARCH_BLOCKS * threads || tiles < 2 * threads;
    if (!by_query) cmha__nearest_begin(others, s->own_index, s->own_similarity);
    CMHA__FOR_CHUNKS(s->context->threads, by_query ? blocks : tiles, lo, hi) {
        cmha__search part = *s;
        size_t own = (size_t)cmha__chunk * list, q = lo * rows;
        if (by_query) {
            part.Q = cmha__min(hi * rows, Q) - q;
            part.phasors += q * 2 * s->d_r;
            part.index += q * k;
            part.similarity += q * k;
        } else if (own) {
            part.index = s->own_index + (own - list);
            part.similarity = s->own_similarity + (own - list);
        }
        cmha__nearest_range(&part, by_query ? 0 : lo * width, by_query ? n : cmha__min(hi * width, n),
                s->scratch + (size_t)cmha__chunk * s->tile);
    }
    if (!by_query)
        for (size_t i = 0; i < others; i++) { /* each list from its best on */
            size_t q = i / k % Q;
            if (s->own_similarity[i] > s->similarity[(q + 1) * k - 1])
                cmha__nearest_insert(s, q, s->own_similarity[i], s->own_index[i]);
        }
}

/* The caller's search: its documents in the order of our similarities. */
static cmha_status cmha__search_callers(const cmha__search *s) {
    const cmha_knowledge *base = s->base;
    size_t W = 2 * s->d_r;
    cmha_status status = base->search(base->search_user, s->phasors, s->Q, s->k, s->own_index);
    if (status) return cmha__ends(s->context, "search: the caller's ended with", status);
    for (size_t i = 0; i < s->Q * s->k; i++) {
        int64_t found = s->own_index[i];
        size_t q = i / s->k;
        if (found < 0) continue;
        if ((uint64_t)found >= base->n)
            return CMHA__WRONG(s->context, "search: the caller's found document %zu of %zu", (size_t)found,
                    base->n);
        cmha_real one = cmha__dot(s->phasors + q * W, base->features + (size_t)found * W, W);
        one /= (cmha_real)s->d_r;
        if (one > s->under) cmha__nearest_insert(s, q, one, found);
    }
    return CMHA_OK;
}

/* CRAT eq 18, k > 0. A place without a document gets 0, or the NaN of its query. */
static cmha_status cmha__search_run(const cmha__search *s) {
    size_t W = 2 * s->d_r, k = s->k;
    cmha_status status = CMHA_OK;
    cmha__nearest_begin(s->Q * k, s->index, s->similarity);
    if (s->base->search && s->base->n) status = cmha__search_callers(s);
    else cmha__search_exact(s);
    for (size_t q = 0; q < s->Q; q++) {
        cmha_real none = s->index[q * k] < 0 ? cmha__total(s->phasors + q * W, W) * 0 : 0;
        for (size_t i = q * k; i < (q + 1) * k; i++)
            if (s->index[i] < 0) s->similarity[i] = none;
    }
    return status;
}

/* Queries go through in slabs, for bounded memory. */
CMHA_DEF cmha_status cmha_knowledge_search(const cmha_knowledge *kb, const cmha_real *queries, size_t Q,
        size_t k, cmha_real threshold, int64_t *index, cmha_real *similarity) {
    const size_t slab = cmha__min(Q, 4096);
    if (!kb || !cmha__is_open(kb->context)) return CMHA_ERR_STATE;
    cmha_context *context = kb->context;
    if (!Q || !k) return CMHA_OK;
    if (!queries || !index || !similarity)
        return CMHA__WRONG(context, "search: queries, index or similarity is NULL");
    if (threshold != threshold) return CMHA__WRONG(context, "search: threshold is NaN");
    cmha__search s = cmha__search_of(context, kb, slab, kb->d_r, k, threshold);
    double callers = 16 * (double)Q * ((double)k + (double)s.d_r); /* bytes of the caller's arrays */
    if (cmha__countable(s.bytes, callers) == SIZE_MAX)
        return CMHA__HUGE(context, "search: %zu documents for each of %zu queries", k, Q);
    void *memory = cmha__take(context, "search", s.bytes);
    if (!memory) return CMHA_ERR_MEMORY;
    cmha__search_place(&s, memory);
    cmha_status status = CMHA_OK;
    CMHA__IN_PIECES(q, rows, Q, slab) {
        s.Q = rows;
        s.index = index + q * k;
        s.similarity = similarity + q * k;
        cmha_phasor_forward(queries + q * 2 * s.d_r, s.Q, s.d_r, cmha__feature_eps, s.phasors);
        status = cmha__search_run(&s);
        if (status) break;
    }
    cmha__give(context, memory, s.bytes);
    return status;
}

/* ---- Retrieval: the mix of what was found, the gate, the window ---- */

typedef struct {
    cmha_retrieve_args args;
    size_t T;
    cmha__search search; /* its index and similarity [T, M, k], of which that becomes each query's softmax */
    const cmha_real *vectors, *features; /* of the base that was searched; NULL = nothing was */
    cmha_real *weights; /* [M] */
    unsigned char *found; /* [T] */
} cmha__retrieval;

/* From rows [Re of M queries | Im] of q to M rows [Re | Im] each: phasors, or with dq their backward. */
static void cmha__retrieve_phasors(const cmha__retrieval *s, const cmha_real *q, size_t lo, size_t hi,
        cmha_real *u, cmha_real *dq) {
    size_t M = s->args.queries, d = s->search.d_r;
    const cmha__phasor_form p = {d, M * d, d, M * d, s->args.eps, 1, 0};
    cmha_real *row = u + lo * M * 2 * d;
    for (size_t query = lo * M; query < hi * M; query++, row += 2 * d) {
        size_t at = (query / M * 2 * M + query % M) * d;
        if (CMHA__TRAINS && dq) cmha__phasor_row_backward(&p, q + at, row, dq + at);
        else cmha__phasor_row(&p, q + at, row);
    }
}

/* Of k places those with a document come first: how many? */
static size_t cmha__documents(const int64_t *index, size_t k) {
    size_t n = 0;
    for (size_t i = 0; i < k; i++) n += index[i] >= 0;
    return n;
}

/* CRAT eq 19, first half, of rows lo .. hi - 1: rbar = sum_m weights_m sum_i p_mi r_i, p a softmax. */
static void cmha__retrieve_mix(const cmha__retrieval *s, size_t lo, size_t hi, cmha_real *rbar) {
    size_t M = s->args.queries, k = s->args.top, W = 2 * s->search.d_r;
    for (size_t query = lo * M; query < hi * M; query++) {
        const int64_t *index = s->search.index + query * k;
        const size_t n = cmha__documents(index, k);
        cmha_real *p = s->search.similarity + query * k, *row = rbar + query / M * W, best = p[0], sum = 0;
        for (size_t i = 0; i < n; i++) {
            p[i] = cmha__exp((p[i] - best) / s->args.tau);
            sum += p[i];
        }
        for (size_t i = 0; i < n; i++) {
            p[i] /= sum;
            cmha__axpy(W, s->weights[query % M] * p[i], s->vectors + (size_t)index[i] * W, row);
        }
        if (best != best)
            for (size_t j = 0; j < W; j++) row[j] = best; /* a NaN shows */
        if (n || best != best) s->found[query / M] = 1;
    }
}

/* Gradients by rows lo .. hi - 1: with a_i = <drbar, r_i> and their mean over p a weight gets the sum of
   means, a phasor sum_i w p_i (a_i - mean) / (tau d_r) u_i. own: dweights [M], a [k]. */
static void cmha__retrieve_back(const cmha__retrieval *s, const cmha_real *drbar, size_t lo, size_t hi,
        cmha_real *du, cmha_real *own) {
    size_t M = s->args.queries, k = s->args.top, W = 2 * s->search.d_r;
    cmha_real *a = own + M, scale = s->args.tau * (cmha_real)s->search.d_r;
    if (du) cmha__zeros(du + lo * M * W, (hi - lo) * M * W);
    for (size_t m = 0; m < M; m++) {
        double sum = 0;
        for (size_t t = lo; t < hi; t++) {
            const int64_t *index = s->search.index + (t * M + m) * k;
            const cmha_real *p = s->search.similarity + (t * M + m) * k;
            const size_t n = cmha__documents(index, k);
            cmha_real mean = 0;
            for (size_t i = 0; i < n; i++) {
                a[i] = cmha__dot(drbar + t * W, s->vectors + (size_t)index[i] * W, W);
                mean += p[i] * a[i];
            }
            for (size_t i = du ? 0 : n; i < n; i++)
                cmha__axpy(W, s->weights[m] * p[i] * (a[i] - mean) / scale,
                        s->features + (size_t)index[i] * W, du + (t * M + m) * W);
            sum += mean;
        }
        own[m] += (cmha_real)sum;
    }
}

static void cmha__retrieve_gradients(const cmha__call *c) {
    const cmha__retrieval *s = (const cmha__retrieval *)c->kept;
    size_t M = s->args.queries, threads = (size_t)c->threads, part = M + s->args.top;
    cmha_real *dq = c->dx[0], *dl = c->dx[1], mean = 0;
    cmha_real *du = dq ? cmha__reals(c->tape, s->T * M * 2 * s->search.d_r) : NULL;
    cmha_real *partial = cmha__reals(c->tape, (threads + 1) * part); /* by thread: dweights, scratch; sum */
    if (!cmha__computes(c->tape) || !s->vectors) return;
    cmha_real *dweights = partial + threads * part;
    cmha__zeros(partial, (threads + 1) * part);
    CMHA__FOR_CHUNKS(c->threads, s->T, lo, hi) {
        cmha__retrieve_back(s, c->dy, lo, hi, du, partial + (size_t)cmha__chunk * part);
        if (du) cmha__retrieve_phasors(s, c->x[0], lo, hi, du, dq);
    }
    for (size_t t = 0; t < threads; t++) cmha__axpy(M, 1, partial + t * part, dweights);
    if (!s->args.raw_weights) /* less the first: where all are equal, the gradient is exactly 0 */
        for (size_t m = M; m--;) mean += s->weights[m] * (dweights[m] -= dweights[0]);
    if (dl)
        for (size_t m = 0; m < M; m++)
            dl[m] += s->args.raw_weights ? dweights[m] : s->weights[m] * (dweights[m] - mean);
}

/* Inputs are q and w_logits. given: the base; kept: the retrieval and its arguments. */
static void cmha__retrieve_shape(cmha__call *c) {
    const cmha_knowledge *kb = (const cmha_knowledge *)c->given;
    cmha__retrieval *s = (cmha__retrieval *)c->kept;
    const cmha_retrieve_args *a = &s->args;
    const size_t M = a->queries, Q = cmha__times(c->rows, M);
    if (!M || M > SIZE_MAX / 2) CMHA__MISUSE(c->tape, "retrieve: queries is 0 or huge");
    else if (!(a->tau > 0) || !(a->eps >= 0) || a->threshold != a->threshold)
        CMHA__MISUSE(c->tape, "retrieve: tau %g, eps %g or threshold %g is out of range", (double)a->tau,
            (double)a->eps, (double)a->threshold);
    else if (c->D % (2 * M) || (kb && kb->n && c->D / 2 / M != kb->d_r))
        CMHA__MISFIT(c->tape, "retrieve: q has rows of %zu numbers for queries = %zu of d_r = %zu", c->D, M,
            kb ? kb->d_r : 0);
    if (!cmha__holds(c->tape, "retrieve: w_logits", c->in[1], M)) return;
    s->search = cmha__search_of(c->tape->context, kb, Q, c->D / 2 / M, a->top, a->threshold);
    if (s->search.bytes == SIZE_MAX)
        CMHA__TOO_MUCH(c->tape, "retrieve: %zu rows, %zu queries each", c->rows, M);
    s->T = c->rows;
    c->rows = 1;
    c->shape[c->rank - 1] = 2 * s->search.d_r;
    s->weights = cmha__reals(c->tape, M);
    s->search.similarity = cmha__reals(c->tape, Q * a->top);
    s->search.index = (int64_t *)cmha_tape_alloc(c->tape, Q * a->top * sizeof *s->search.index);
    s->found = (unsigned char *)cmha_tape_alloc(c->tape, s->T);
    if (!kb || !kb->n || !a->top || !Q || !s->search.d_r) return;
    s->vectors = kb->vectors;
    s->features = kb->features;
}
static void cmha__retrieve_pass(const cmha__call *c) {
    cmha__retrieval *s = (cmha__retrieval *)c->kept;
    const size_t M = s->args.queries;
    if (cmha__goes_back(c)) {
        cmha__retrieve_gradients(c);
        return;
    }
    void *memory = cmha_tape_alloc(c->tape, s->search.bytes);
    if (!cmha__computes(c->tape)) return;
    cmha__copy(s->weights, c->x[1], M);
    if (!s->args.raw_weights) {
        cmha_real sum = cmha__exp_shifted(s->weights, M, cmha__largest(s->weights, M));
        for (size_t m = 0; m < M; m++) s->weights[m] /= sum;
    }
    cmha__zeros(c->y, c->out->size);
    memset(s->found, 0, s->T);
    if (!s->vectors) return;
    cmha__search_place(&s->search, memory);
    CMHA__FOR_CHUNKS(c->threads, s->T, lo, hi) {
        cmha__retrieve_phasors(s, c->x[0], lo, hi, s->search.phasors, NULL);
    }
    cmha__stop(c->tape, cmha__search_run(&s->search));
    CMHA__FOR_CHUNKS(c->threads, c->tape->status ? 0 : s->T, lo, hi) { cmha__retrieve_mix(s, lo, hi, c->y); }
}

CMHA_DEF cmha_tensor *cmha_retrieve(cmha_tape *tape, const cmha_knowledge *kb, const cmha_retrieve_args *args,
        cmha_tensor *q, cmha_tensor *w_logits, const unsigned char **found) {
    CMHA__CALL("retrieve", cmha__retrieve_pass, cmha__retrieve_shape, 2, CMHA__SCRATCH, q, w_logits, NULL);
    if (!tape || tape->status) return NULL;
    if (!args) return CMHA__MISUSE(tape, "retrieve: args is NULL");
    cmha__retrieval *s = CMHA__NEW(tape, cmha__retrieval);
    if (!s) return NULL;
    s->args = *args;
    call.given = kb;
    call.kept = s;
    cmha_tensor *y = cmha__run(tape, &call);
    if (found && y) *found = s->found;
    return y;
}

static void cmha__reflect_fits(cmha__call *c) {
    const cmha_tensor *z = c->in[0], *v = c->in[1], *gate = c->in[2];
    if (!(c->number > 0)) CMHA__MISUSE(c->tape, "reflect: tau = %g must be above 0", (double)c->number);
    else if (cmha__last(v) != 2 * c->D || v->size != z->size)
        cmha__unfit(c, "v", 1, "differs in shape from z", 0);
    else if (cmha__last(gate) != c->D || gate->size != z->size / 2)
        cmha__unfit(c, "gate", 2, "has no number for each pair of z", 0);
}

/* The second half of CRAT eq 19. */
static void cmha__reflect_rows(const cmha__call *c) {
    const unsigned char *found = (const unsigned char *)c->given;
    const int convex = c->kind == CMHA_FUSION_CONVEX, back = cmha__goes_back(c);
    const cmha_real tau = c->number;
    for (size_t t = 0, D = c->D, W = 2 * D; t < c->n; t++) {
        const cmha_real *z = c->x[0] + t * W, *v = c->x[1] + t * W, *gate = c->x[2] + t * D;
        const cmha_real *dy = back ? c->dy + t * W : NULL;
        cmha__out y = c->y + t * W;
        cmha_real *dz = cmha__at(c->dx[0], t * W), *dv = cmha__at(c->dx[1], t * W); /* z may be v */
        cmha__out dgate = cmha__at(c->dx[2], t * D);
        if (found && !found[c->lo + t]) {
            if (!back) cmha__copy(y, z, W);
            else if (dz) cmha__axpy(W, 1, dy, dz);
            continue;
        }
        for (size_t j = 0; j < D; j++) {
            cmha_real g = cmha__sigmoid(gate[j] / tau), keep = convex ? 1 - g : 1;
            if (!back) {
                y[j] = keep * z[j] + g * v[j];
                y[D + j] = keep * z[D + j] + g * v[D + j];
                continue;
            }
            cmha_real re = dy[j], im = dy[D + j];
            cmha_real a = convex ? v[j] - z[j] : v[j], b = convex ? v[D + j] - z[D + j] : v[D + j];
            if (dz) {
                dz[j] += keep * re;
                dz[D + j] += keep * im;
            }
            if (dv) {
                dv[j] += g * re;
                dv[D + j] += g * im;
            }
            if (dgate) dgate[j] += (re * a + im * b) * g * (1 - g) / tau;
        }
    }
}

CMHA_DEF cmha_tensor *cmha_reflect(cmha_tape *tape, cmha_tensor *z, cmha_tensor *v, cmha_tensor *gate,
        cmha_real tau, cmha_fusion fusion, const unsigned char *found) {
    static const cmha__op op = {
        "reflect", cmha__reflect_rows, cmha__reflect_fits, 3, CMHA__PLANES, 2, {0, 0}, 0};
    cmha__call call = cmha__call_of(&op, z, v, gate);
    call.kind = (int)fusion;
    call.number = tau;
    call.given = found;
    return cmha__run(tape, &call);
}

/* CRAT eq 17-19 */
CMHA_DEF cmha_tensor *cmha_irw(cmha_tape *tape, const cmha_knowledge *kb, const cmha_retrieve_args *args,
        cmha_real gate_tau, cmha_fusion fusion, cmha_tensor *z, const cmha_irw_weights *w) {
    const unsigned char *found = NULL;
    if (!cmha__is_planes(tape, z, "irw")) return NULL;
    if (!w) return CMHA__MISUSE(tape, "irw: weights is NULL");
    if (!w->wm || !w->w_logits || !w->wv || !w->wg)
        return CMHA__MISUSE(tape, "irw: weights without%s%s%s%s", w->wm ? "" : " wm",
            w->w_logits ? "" : " w_logits", w->wv ? "" : " wv", w->wg ? "" : " wg");
    if (!cmha__dry(tape) && (!kb || !kb->n)) return z;
    if (w->wm->rank != 3 || w->wm->shape[0] != 2)
        return CMHA__MISFIT(tape, "irw: weights->wm must be [2, M d_r, D], not [%zu, ..] of rank %d",
            w->wm->shape[0], w->wm->rank);
    size_t shape[2] = {2 * w->wm->shape[1], w->wm->shape[2]};
    cmha_tensor *wm = cmha_reshape(tape, w->wm, 2, shape); /* of a real input both parts are one map */
    cmha_tensor *q = cmha_linear(tape, cmha_complex_part(tape, z, 1), wm, w->bm);
    cmha_tensor *rbar = cmha_retrieve(tape, kb, args, q, w->w_logits, &found);
    cmha_tensor *both = cmha_concat(tape, z, rbar, z->rank - 1);
    cmha_tensor *gate = cmha_linear(tape, both, w->wg, w->bg);
    cmha_tensor *v = cmha_complex_linear(tape, rbar, w->wv, NULL);
    return cmha_reflect(tape, z, v, gate, gate_tau, fusion, found);
}

/* ================ Attention ================ */

#define CMHA__TILE ((size_t)64)

CMHA_DEF cmha_heads cmha_heads_by_token(cmha_real *data, size_t N, size_t row, size_t d, size_t imag) {
    cmha_heads view = {data, N * row, d, row, imag};
    return view;
}

CMHA_DEF cmha_heads cmha_heads_by_head(cmha_real *data, size_t H, size_t N, size_t d, int is_complex) {
    size_t row = is_complex ? 2 * d : d;
    return cmha_heads_by_token(data, H * N, row, N * row, is_complex ? d : 0);
}

static cmha_rows cmha__rows_at(cmha_heads view, size_t b, size_t h) {
    cmha_real *data = cmha__at(view.data, b * view.batch + h * view.head);
    cmha_rows rows = {data, view.token, view.imag};
    return rows;
}

/* to [n, 2d] = [Re | Im] of n complex rows. */
static void cmha__complex_rows(cmha_rows from, size_t n, size_t d, cmha_real *to) {
    for (size_t i = 0; i < n; i++, from.data += from.ld, to += 2 * d) {
        cmha__copy(to, from.data, d);
        cmha__copy(to + d, from.data + from.imag, d);
    }
}

static void cmha__zero_rows(cmha_rows to, size_t n, size_t d) {
    for (; n > 0; n--, to.data += to.ld) {
        cmha__zeros(to.data, d);
        cmha__zeros(to.data + to.imag, d);
    }
}

/* Adds rows [n, width] to n rows of d numbers or, width 2d, of [Re | Im]. */
static void cmha__add_rows(const cmha_real *rows, size_t n, size_t d, size_t width, cmha_rows to) {
    if (!to.data) return;
    for (; n > 0; n--, rows += width, to.data += to.ld) {
        cmha__axpy(d, 1, rows, to.data);
        cmha__axpy(width - d, 1, rows + d, to.data + to.imag);
    }
}

/* to [cols, rows] = from [rows, cols]^T. */
CMHA__HOT(static, cmha__transpose, (const cmha_real *from, size_t ld, size_t rows, size_t cols, cmha_real *to,
        size_t ld_to), (from, ld, rows, cols, to, ld_to)) {
    for (size_t c = 0; c < cols; c++)
        for (size_t r = 0; r < rows; r++) to[c * ld_to + r] = from[r * ld + c];
}

static size_t cmha__up16(size_t n) { return (n + 15) / 16 * 16; }

/* Returns the rows or, unless aligned to 64 bytes, a copy in `to` that is. */
static cmha_rows cmha__on_lines(cmha_rows from, size_t n, size_t width, cmha_real *to) {
    cmha_rows copy = {to, cmha__up16(width), 0};
    if (!from.data || (!cmha__to_line(from.data) && from.ld * sizeof *to % 64 == 0)) return from;
    for (size_t i = 0; i < n; i++) cmha__copy(to + i * copy.ld, from.data + i * from.ld, width);
    return copy;
}

/* A part of a scratch array: where its pointer is kept, its length in cmha_real. */
typedef struct { void *pointer; size_t n; } cmha__part;

/* Deals `base` out to n parts and returns how much that is; base NULL only counts. */
static size_t cmha__deal(const cmha__part *parts, size_t n, cmha_real *base) {
    size_t used = 0;
    for (; n > 0; n--, used += cmha__up16(parts++->n)) {
        cmha_real *part = cmha__at(base, used);
        memcpy(parts->pointer, &part, sizeof part);
    }
    return used;
}

/* Rounds bytes up to reals: on 32-bit x86 a peak has 20, no multiple of a double's. */
static size_t cmha__reals_for(size_t bytes) { return (bytes + sizeof(cmha_real) - 1) / sizeof(cmha_real); }

CMHA_DEF void cmha_alibi_slopes(size_t H, cmha_real *slopes) {
    for (size_t h = 0; h < H; h++) slopes[h] = (cmha_real)pow(2.0, -8.0 * (double)(h + 1) / (double)H);
}

/* ---- Scores: a feature map, or a function of the complex product ---- */

/* Numbers of a row of features for a number of a row of one plane. */
static size_t cmha__widens(const cmha_score *score) {
    return score && score->features > 1 ? (size_t)score->features : 1;
}
/* Heads of y that read one query head. */
static size_t cmha__fan(const cmha_score *score) { return score && score->imaginary ? 2 : 1; }

static int cmha__is_complex(const cmha_attention_args *a) { return a->score && a->score->planes == 2; }

static size_t cmha__key_width(const cmha_attention_args *a) {
    return (cmha__is_complex(a) ? 2 : cmha__widens(a->score)) * a->d_k;
}
static size_t cmha__value_width(const cmha_attention_args *a) {
    return cmha__is_complex(a) && a->complex_v ? 2 * a->d_v : a->d_v;
}

static const cmha_score_parameter cmha__phase_parameters[] = {
    {"delta", {CMHA_AXIS_SHARE, CMHA_AXIS_PAIRS, 0}, 1, 0, 0},
    {"b", {CMHA_AXIS_SHARE, CMHA_AXIS_PAIRS, 0}, 0, 0, 0}};
static const cmha_score_parameter cmha__shift_parameters[] = {
    {"beta", {CMHA_AXIS_SHARE, CMHA_AXIS_TURNS, 0}, 0, 0, 0}};

/* The first numbers of delta and beta, where the configuration has a say. */
static double cmha__first_delta(const cmha_model_config *c, cmha_rng *rng) {
    if (c->delta_init == CMHA_DELTA_INIT_CONST) return c->delta_value;
    double mean = c->delta_init == CMHA_DELTA_INIT_ROPE_START;
    return c->delta_std > 0 ? mean + c->delta_std * cmha_rng_normal(rng) : mean;
}
static double cmha__first_beta(const cmha_model_config *c, cmha_rng *rng) {
    return c->beta_uniform ? -(double)CMHA__TURN * cmha_rng_uniform(rng) : 0;
}

/* How rows turn by position and, CMHA's and PoPE's, by what is learned. Two planes lie side by side. */
static cmha_rotate_args cmha__turns(const cmha_score_call *c) {
    const cmha_attention_args *a = c->args;
    int learned = c->score->parameters == cmha__phase_parameters;
    cmha_rotate_args rotate;
    cmha__zero(rotate);
    rotate.P = cmha__key_width(a) / 2;
    rotate.rotation = c->rotation;
    rotate.layout = c->score->planes == 2 ? CMHA_LAYOUT_HALF : a->layout;
    rotate.polar = c->score->parameters == cmha__shift_parameters;
    if (c->score->planes == 1) rotate.rotary = rotate.polar ? a->rotary_dims : a->rotary_dims / 2;
    if (learned) rotate.delta = c->parameters[0];
    if (!c->is_key) rotate.b = learned ? c->parameters[1] : rotate.polar ? c->parameters[0] : NULL;
    return rotate;
}

static void cmha__turned_map(const cmha_score_call *c, cmha_rows x, size_t n, cmha_real *y) {
    cmha_rotate_args rotate = cmha__turns(c);
    cmha_rotate_forward(&rotate, x.data, x.ld, n, y, 2 * rotate.P);
}

static void cmha__turned_map_back(const cmha_score_call *c, cmha_rows x, size_t n, const cmha_real *dy,
        cmha_rows dx) {
    cmha_rotate_args rotate = cmha__turns(c);
    double *db = c->is_key ? NULL : c->gradients[!rotate.polar];
    cmha_rotate_backward(&rotate, x.data, x.ld, n, dy, 2 * rotate.P, dx.data, c->gradients[0], db);
}

static void cmha__planes_map(const cmha_score_call *c, cmha_rows x, size_t n, cmha_real *y) {
    cmha__complex_rows(x, n, c->args->d_k, y);
}

/* Of rows that are their own features, in one plane or two. */
static void cmha__rows_back(const cmha_score_call *c, cmha_rows x, size_t n, const cmha_real *dy,
        cmha_rows dx) {
    (void)x;
    cmha__add_rows(dy, n, c->args->d_k, cmha__key_width(c->args), dx);
}

/* CRAT eq 11-12: between phasors the product is the sum of cosines of phase differences. */
CMHA__HOTTER(cmha__phasor_map, (const cmha_score_call *c, cmha_rows x, size_t n, cmha_real *y),
        (c, x, n, y)) {
    const size_t d = c->args->d_k;
    const cmha__phasor_form p = {d, x.imag, d, 0, c->args->eps, 1, c->args->angle};
    for (size_t i = 0; i < n; i++) cmha__phasor_row(&p, x.data + i * x.ld, y + i * 2 * d);
}

CMHA__HOTTER(cmha__phasor_map_back, (const cmha_score_call *c, cmha_rows x, size_t n,
        const cmha_real *dy, cmha_rows dx), (c, x, n, dy, dx)) {
    const size_t d = c->args->d_k;
    const cmha__phasor_form p = {d, x.imag, d, dx.imag, c->args->eps, 1, c->args->angle};
    if (dx.data)
        for (size_t i = 0; i < n; i++)
            cmha__phasor_row_backward(&p, x.data + i * x.ld, dy + i * 2 * d, dx.data + i * dx.ld);
}

/* CoPE eq 2 in all its scores: s = scale (magnitude |O| / divisor + cosine Re O / sqrt(|O|^2 + eps^2)). */
CMHA__HOTTER(cmha__cope, (const cmha_score_call *call, const cmha_real *re, const cmha_real *im,
        cmha_real *s), (call, re, im, s)) {
    const cmha_attention_args *a = call->args;
    cmha_real m = a->scale * a->magnitude / call->divisor, c = a->scale * a->cosine, e = a->eps;
    for (size_t j = 0; j < CMHA__TILE; j++) {
        cmha_real size = cmha__hypot(re[j], im[j]), smooth = cmha__hypot(size, e);
        s[j] = m * size + c * re[j] / (smooth > 0 ? smooth : 1);
    }
}

CMHA__HOTTER(cmha__cope_back, (const cmha_score_call *call, const cmha_real *ds, cmha_real *re,
        cmha_real *im), (call, ds, re, im)) {
    const cmha_attention_args *a = call->args;
    cmha_real m = a->scale * a->magnitude / call->divisor, c = a->scale * a->cosine, e = a->eps, sum = 0;
    if (call->ddivisor)
        for (size_t j = 0; j < CMHA__TILE; j++) sum += ds[j] * cmha__hypot(re[j], im[j]);
    if (call->ddivisor) *call->ddivisor -= sum * m / call->divisor;
    for (size_t j = 0; j < CMHA__TILE; j++) {
        cmha_real size = cmha__hypot(re[j], im[j]), smooth = cmha__hypot(size, e), some = size > 0 ? size : 1;
        cmha_real out = 1 / cmha__larger(smooth, CMHA__SMALLEST); /* finite for denormals too */
        cmha_real x = re[j] * out, y = im[j] * out, f = e * out, radial = ds[j] * m, turn = ds[j] * c;
        re[j] = radial * (re[j] / some) + turn * ((y * y + f * f) * out);
        im[j] = radial * (im[j] / some) - turn * (x * y * out);
    }
}

/* The library's own rows, by kind; complex kinds have another, with `forward`, for CMHA_SOFTMAX_SCORE.
   contrasts: the phase contrastive loss reads its phases. first: draws a number of its first parameter, or
   NULL: as that says. */
typedef struct {
    int kind, contrasts;
    double (*first)(const cmha_model_config *c, cmha_rng *rng);
    cmha_score score;
} cmha__kind_row;
#define CMHA__PAIR(name) name, CMHA__BACK(name##_back)
#define CMHA__NO_PAIR NULL, NULL
#define CMHA__LEARNED(array) array, CMHA__COUNT(array)
#define CMHA__FIXED NULL, 0
#define CMHA__KIND(kind, contrasts, first, rotates, shared, map, learned, features, imaginary) \
    {CMHA_ATTENTION_##kind, contrasts, first, \
     {#kind, 1, rotates, shared, map, CMHA__NO_PAIR, learned, NULL, 0, NULL, features, imaginary}},
#define CMHA__PLANES_KIND(kind, map) \
    {CMHA_ATTENTION_##kind, 0, NULL, \
     {#kind, 2, 0, 0, map, CMHA__NO_PAIR, CMHA__FIXED, NULL, 0, NULL, 0, 0}}, \
    {CMHA_ATTENTION_##kind, 0, NULL, \
     {#kind, 2, 0, 0, map, CMHA__PAIR(cmha__cope), CMHA__FIXED, NULL, 0, NULL, 0, 0}},
static const cmha__kind_row cmha__scores[] = {
    CMHA__KIND(CMHA, 1, cmha__first_delta, 1, 0, CMHA__PAIR(cmha__turned_map),
            CMHA__LEARNED(cmha__phase_parameters), 0, 0)
    CMHA__KIND(ROPE, 1, NULL, 1, 0, CMHA__NO_PAIR, CMHA__FIXED, 0, 0)
    CMHA__KIND(DOT, 1, NULL, 0, 0, CMHA__NO_PAIR, CMHA__FIXED, 0, 0)
    CMHA__KIND(POPE, 0, cmha__first_beta, 1, 1, CMHA__PAIR(cmha__turned_map), /* queries alone are shifted */
            CMHA__LEARNED(cmha__shift_parameters), 2, 0)
    CMHA__KIND(ROPEPP, 0, NULL, 1, 0, CMHA__NO_PAIR, CMHA__FIXED, 0, 1)
    CMHA__PLANES_KIND(COMPLEX, CMHA__NO_PAIR)
    CMHA__PLANES_KIND(ANGULAR, CMHA__PAIR(cmha__phasor_map))};
enum { CMHA__KIND_ROWS = CMHA_ATTENTION_COUNT + 2 };
typedef char cmha__kinds_have_rows[sizeof cmha__scores == CMHA__KIND_ROWS * sizeof *cmha__scores ? 1 : -1];

/* The row of which `score` is, or NULL. */
static const cmha__kind_row *cmha__kind_row_of(const cmha_score *score) {
    const cmha__kind_row *row = cmha__scores;
    for (; row < cmha__scores + CMHA__KIND_ROWS; row++)
        if (&row->score == score) return row;
    return NULL;
}
static int cmha__contrasts(const cmha_score *score) {
    const cmha__kind_row *row = cmha__kind_row_of(score);
    return row && row->contrasts;
}
static const cmha_score *cmha__row_of_kind(int kind, int softmax) {
    const cmha__kind_row *row = cmha__scores;
    for (; row < cmha__scores + CMHA__KIND_ROWS; row++) {
        int fits = row->score.planes == 1 || (row->score.forward != NULL) == (softmax == CMHA_SOFTMAX_SCORE);
        if (row->kind == kind && fits) return &row->score;
    }
    return NULL;
}

/* A call's options with the row of its score. */
static cmha_attention_args cmha__with_score(const cmha_attention_args *args) {
    cmha_attention_args a = *args;
    if (!a.score) a.score = cmha__row_of_kind((int)a.kind, (int)a.softmax);
    return a;
}

/* Does a map make the features, or does the core read real rows as they are? */
static int cmha__has_map(const cmha_score *score) {
    return score->map || score->rotates || score->planes == 2;
}

static void cmha__map(const cmha_score_call *c, cmha_rows x, size_t n, cmha_real *y) {
    const cmha_score *score = c->score;
    (score->map ? score->map : score->rotates ? cmha__turned_map : cmha__planes_map)(c, x, n, y);
}

/* The length of an axis but heads, of rows of d_k numbers. */
static size_t cmha__axis(const cmha_score *score, int axis, size_t d_k, size_t rotary) {
    if (axis >= 0) return (size_t)axis;
    if (axis == CMHA_AXIS_PAIRS && score->planes == 1) return d_k / 2;
    return axis == CMHA_AXIS_TURNS && rotary ? rotary : d_k;
}

/* Returns the numbers that a head sees of parameter i of a call, 0 if there is none. *step: from one head's
   to the next's, 0 if all share them. log_temp comes last. */
static size_t cmha__own_numbers(const cmha_attention_args *a, size_t i, size_t *step) {
    const cmha_score *score = a->score;
    size_t n = 1;
    *step = 1;
    if (!score || i >= score->n_parameters) return score && i == score->n_parameters && a->temperature;
    const int *axes = score->parameters[i].axes;
    int shares = axes[0] == CMHA_AXIS_SHARE, heads = shares || axes[0] == CMHA_AXIS_HEADS;
    if (shares && a->share == CMHA_SHARE_FIXED) return 0;
    for (int j = heads; j < 3; j++)
        if (axes[j]) n *= cmha__axis(score, axes[j], a->d_k, a->rotary_dims);
    *step = heads && !(shares && a->share == CMHA_SHARE_SHARED) ? n : 0;
    return n;
}

/* Do features of keys depend on the query head? */
static int cmha__own_keys(const cmha_attention_args *a) {
    const cmha_score *score = a->score;
    int own = score->rotates && a->rotation_head;
    size_t step;
    if (score->map)
        for (size_t i = 0; i < score->n_parameters; i++)
            own |= cmha__own_numbers(a, i, &step) && step && !score->shared_keys;
    return own;
}

/* A head's queries or keys, from row `first` of the table on. sums: of the head's gradients, or NULL. */
static cmha_score_call cmha__call_of_head(const cmha_attention_args *a, size_t head, int is_key, size_t first,
        double *sums) {
    cmha_score_call c;
    size_t own, step;
    cmha__zero(c);
    c.score = a->score;
    c.args = a;
    c.head = head;
    c.is_key = is_key;
    c.divisor = 1;
    if (c.score->rotates)
        c.rotation = a->rotation + head / cmha__fan(c.score) * a->rotation_head + first * cmha__key_width(a);
    for (size_t i = 0; i < CMHA_MAX_SCORE_PARAMETERS; i++) {
        if (!(own = cmha__own_numbers(a, i, &step))) continue;
        c.parameters[i] = a->parameters[i] + head * step;
        c.gradients[i] = sums;
        if (sums) sums += own;
    }
    return c;
}

/* Says what is wrong with a row, NULL if nothing is. */
static const char *cmha__score_wrong(const cmha_score *row) {
    size_t most = row->attend ? CMHA_MAX_SCORE_PARAMETERS : CMHA_MAX_INPUTS - 4;
    if (!cmha__is_name(row->name, 31, "")) return "its name must be 1 to 31 letters, digits, - _ . +";
    if (!row->map != !row->map_back || !row->forward != !row->backward) return "a backward is missing";
    if (row->attend && (row->map || row->forward)) return "attend replaces map and forward";
    if (!row->attend && row->planes != 2 && (row->planes != 1 || row->forward))
        return "planes must be 1 or, also for a forward, 2";
    if ((unsigned)row->features > 64 || (row->features > 1 && !row->map) ||
        (row->imaginary && !row->map && !row->rotates) ||
        ((row->features > 1 || row->imaginary) && row->planes != 1))
        return "features must be 0 to 64; more than 1, and imaginary heads, are of a map with planes = 1";
    if (row->n_parameters > most || (row->n_parameters && !row->parameters))
        return "its parameters are NULL or too many";
    for (size_t i = 0; i < row->n_parameters; i++) {
        const cmha_score_parameter *p = row->parameters + i;
        double size = 1;
        if (!cmha__is_name(p->name, 23, ""))
            return "a parameter's name is not 1 to 23 letters, digits, - _ . +";
        for (size_t j = 0; j < i; j++)
            if (!strcmp(row->parameters[j].name, p->name)) return "two parameters have one name";
        for (int j = 0; j < 3; j++) {
            int axis = p->axes[j], least = row->attend ? CMHA_AXIS_KEYS : CMHA_AXIS_TURNS;
            int heads = axis == CMHA_AXIS_HEADS || axis == CMHA_AXIS_SHARE;
            if (axis < least || (heads && j) || (axis ? j && !p->axes[j - 1] : !j))
                return "a parameter's axes are none, unknown or not for it";
            size *= axis > 0 ? axis : 1;
        }
        if (size > 1e9 || !(fabs(p->start) <= 1e30) || !(fabs(p->spread) <= 1e30))
            return "a parameter's size or start is out of range";
    }
    return NULL;
}

CMHA_DEF void cmha_cope_set_args(cmha_attention_args *args, const cmha_cope_options *options) {
    cmha_real s = (cmha_real)(1 / sqrt((double)(args->d_k ? args->d_k : 1)));
    cmha_real twice = options->repo_scale ? s : 1;
    cmha_cope_score score = options->score;
    int norm = score == CMHA_COPE_SCORE_HYBRID_NORM, hybrid = norm || score == CMHA_COPE_SCORE_HYBRID;
    int re = score == CMHA_COPE_SCORE_REAL;
    args->kind = CMHA_ATTENTION_COMPLEX;
    args->softmax = re ? CMHA_SOFTMAX_REAL : CMHA_SOFTMAX_SCORE;
    args->scale = re ? s * twice : s;
    args->complex_v = args->bilinear = 0;
    args->magnitude = hybrid || score == CMHA_COPE_SCORE_MAGNITUDE ? twice : 0;
    if (norm) args->magnitude = 1;
    args->cosine = hybrid ? options->alpha : (cmha_real)(score == CMHA_COPE_SCORE_PHASE);
    args->eps = options->eps;
    args->norm_max = norm ? options->norm_max : CMHA_NORM_MAX_NONE;
    args->norm_max_grad = norm && options->norm_max_grad;
}

/* ---- The softmax core: softmax(scale Q'K'^T + mask) V in tiles of 64 queries by 64 keys ---- */

/* Where a row's largest |O| is, and the gradient of the divisor made of it. */
typedef struct {
    double gradient;
    size_t key, row; /* the pair's key, and the row whose peak is this row's divisor; SIZE_MAX: none */
    cmha_real size; /* |O|, at first of the row, then of the divisor */
} cmha__peak;

/* A call; then a thread's copy, with scratch; then copies of that for query heads of one sequence. */
typedef struct {
    const cmha_attention_args *a;
    const cmha_attention_views *x;
    const cmha_cache *cache; /* has the tokens before, in its slot, and gets the new ones; or NULL */
    const cmha_slot *slot;
    int backward, halves; /* halves: the cache is BF16 */
    size_t dk, dv, pieces; /* numbers in a row of features and of values; see cmha__head_pieces */
    size_t first_q, first_k; /* rows of the rotation table before the first query's and key's */
    size_t numbers, own; /* of the score's parameters that one head sees; of a thread's scratch */
    cmha_real *units; /* the threads' scratch */
    const struct cmha__term *term; /* at work; for cmha__see the one asked for */
    size_t seen; /* the head that it looks at */

    /* Arrays of all heads or NULL; in a head its part of them. */
    cmha_lse *lse; /* [B, H, n_q]; the backward only reads it */
    const cmha_real *dlse;
    cmha__peak *peaks; /* [B, H, n_q]: what each row's magnitudes are divided by */
    double *partial; /* gradients of the score's parameters, [B, H, numbers] */
    double *dlog_temp; /* [B, H, pieces] */
    /* of features, summed up; of heads in pieces [B, H, pieces, n_q, dk], [B, H, n_k, dk], else a thread's */
    cmha_real *dq, *dk_to;

    /* A thread's scratch. own_..: what cannot be read or summed in place, also a BF16 cache as numbers. */
    cmha_real *own_q, *own_keys, *own_v, *own_dq, *own_dk, *own_dv;
    cmha_real *key_rows, *scores, *out; /* features of a tile's keys; a cache's scores of one query; y */
    cmha_real *S, *dS, *re, *im; /* [64, 64] each: scores and their gradient, O of the tile at work */
    cmha_real *slopes; /* [64, 64]: derivatives of a soft cap */
    cmha_real *m, *l, *acc; /* running softmax: [64], [64], [64, dv] */
    cmha_real *turned, *dturned; /* features that give Im O, q then gives Re O; or NULL */
    /* A cache that forgets with sinks: rotations of its queries for scores of sinks, or NULL; features by
       them; [64, 64] of their scores, twice where `turned` */
    const cmha_real *near_rotation;
    cmha_real *own_near, *near_turned, *near_scores;
    cmha_rows near_q;
    cmha_real *fold, *dout, *D, *v_columns, *dv_tile;
    cmha_lse *again;

    size_t unit, batch, head, kv; /* unit: the head among those of all sequences */
    cmha_rows q, v, y; /* features [n_q, dk], values [n_k, dv] */
    const cmha_real *keys; /* features: transposed tiles [ceil(n_k / 64)][dk][64]; NULL: see cmha__set_past */
    void *past_keys, *past_values; /* the head's part of a cache, numbers or BF16 words */
    const unsigned char *mask; /* [n_k] or NULL */
    double cold, scale; /* 1 / temperature, and times the call's scale */
    cmha_real alibi; /* the slope, 0 = none; times `cold` too */
    uint64_t row_key; /* dropout: row i draws from row_key + i */
    cmha_score_call call[2]; /* of its queries, also to a function of O, and keys */
    cmha_rows dy, dv_to; /* dv_to: accumulated; may be NULL */
    cmha_real *seen_to; /* [n_q, n_k]: gets what the forward makes of every visible pair; or NULL */

    int careful; /* in double: at work is a row whose scores have left the type's range */
    size_t piece; /* at work: tiles piece, piece + pieces, ... (backward: of keys) */
    size_t i0, rows, j0, cols; /* the tile at work: queries from i0, keys from j0 */
} cmha__head;

static size_t cmha__tiles(size_t n) { return (n + CMHA__TILE - 1) / CMHA__TILE; }

/* Where a head's keys have key j: in a cache without an end the tiles of sinks stay, others take turns. */
static size_t cmha__held(const cmha__head *h, size_t j) {
    const cmha_cache *c = h->cache;
    if (!c || !c->ring) return j;
    size_t kept = cmha__tiles(c->sinks) * CMHA__TILE;
    return j < kept ? j : kept + (j - kept) % c->ring;
}

/* Rows, or keys, of the tile that begins at i of n. */
static size_t cmha__tile_rows(size_t n, size_t i) { return cmha__min(n - i, CMHA__TILE); }

/* A product of tiles, beta 0 or 1. The BLAS, which pays off from a few rows on, gets what no vectors fill. */
static void cmha__tile_gemm(int trans_a, size_t M, size_t N, size_t K, cmha_real alpha, const cmha_real *A,
        size_t lda, const cmha_real *B, size_t ldb, cmha_real beta, cmha_real *C, size_t ldc) {
    if (M <= 4 && !trans_a) {
        for (size_t i = 0; i < M; i++) {
            if (beta == 0) cmha__zeros(C + i * ldc, N);
            for (size_t k = 0; k < K; k++) cmha__axpy(N, alpha * A[i * lda + k], B + k * ldb, C + i * ldc);
        }
        return;
    }
#ifdef CMHA__GEMM_VECTORS
    cmha__product p = {trans_a, 0, M, N, K, lda, ldb, ldc, alpha, beta, A, B, C};
    int done;
    CMHA__CHOOSE(done = cmha__panel, (&p))
    if (done) return;
#endif
    cmha_gemm(trans_a, 0, M, N, K, alpha, A, lda, B, ldb, beta, C, ldc);
}

typedef struct { size_t begin, end; } cmha__span;

/* The keys that query row i may see by position. */
static cmha__span cmha__visible(const cmha_attention_args *a, size_t i) {
    size_t reach = i + a->n_k + 1, n = a->n_q; /* one past the row's position, plus n, lest it be below 0 */
    size_t window = cmha__min(a->window, SIZE_MAX / 2), sinks = n + cmha__min(a->sinks, a->n_k);
    cmha__span keys = {0, a->n_k};
    if (!a->causal && !window) return keys;
    if (window && reach > n + window) keys.begin = reach - n - window;
    if (!a->causal) reach += window - 1;
    if (!a->causal && reach < sinks) reach = sinks;
    if (reach < keys.end + n) keys.end = reach > n ? reach - n : 0;
    if (keys.begin > keys.end) keys.begin = keys.end;
    return keys;
}

/* By how much nearer sinks are to query i than in the text: as in the cache, as models are trained. */
static size_t cmha__nearer(const cmha__head *h, size_t i) {
    const cmha_cache *c = h->cache;
    if (!c || !c->ring || c->exact || !c->sinks) return 0;
    size_t position = i + h->a->n_k - h->a->n_q;
    return position < c->capacity ? 0 : position - (c->capacity - 1);
}

/* Sinks among the keys of the tile at work, if queries look at them by other rotations. */
static size_t cmha__near_keys(const cmha__head *h) {
    size_t sinks = h->near_rotation ? h->cache->sinks : 0;
    return sinks > h->j0 ? cmha__min(sinks - h->j0, CMHA__TILE) : 0;
}

/* Adds biases to the scores S [64] of the tile's row r and removes what is masked. */
static void cmha__mask_row(const cmha__head *h, size_t r, cmha_real *S) {
    size_t i = h->i0 + r, j0 = h->j0, sinks = h->a->sinks;
    cmha__span seen = cmha__visible(h->a, i);
    if (h->alibi != 0) {
        double own = (double)(i + h->a->n_k) - (double)(h->a->n_q + j0); /* AVX2 converts no ptrdiff_t */
        double nearer = (double)cmha__nearer(h, i);
        int sink = (int)cmha__min(sinks > j0 ? sinks - j0 : 0, CMHA__TILE), cols = (int)h->cols;
        for (int j = 0; j < cols; j++)
            S[j] -= h->alibi * (cmha_real)fabs(own - j - (j < sink ? nearer : 0));
    }
    size_t hidden = seen.begin > j0 ? cmha__min(seen.begin - j0, CMHA__TILE) : 0;
    for (size_t j = sinks > j0 ? sinks - j0 : 0; j < hidden; j++) S[j] = CMHA__LOWEST;
    for (size_t j = seen.end > j0 ? seen.end - j0 : 0; j < CMHA__TILE; j++) S[j] = CMHA__LOWEST;
    if (h->mask)
        for (size_t j = 0; j < h->cols; j++)
            if (!h->mask[j0 + j]) S[j] = CMHA__LOWEST;
}

/* S = the tile's scores or, where these are a function of O, S and im = O, by these features of queries. */
static void cmha__products_of(const cmha__head *h, const cmha_real *q, const cmha_real *turned, cmha_real *S,
        cmha_real *im) {
    const cmha_real *k = h->keys + cmha__held(h, h->j0) * h->dk;
    size_t T = CMHA__TILE, rows = h->rows, dk = h->dk, ld = h->q.ld;
    cmha__tile_gemm(0, rows, T, dk, turned ? 1 : (cmha_real)h->scale, q + h->i0 * ld, ld, k, T, 0, S, T);
    if (turned) cmha__tile_gemm(0, rows, T, dk, 1, turned + h->i0 * ld, ld, k, T, 0, im, T);
}

/* S = the tile's scores or, where these are a function of O, re and im = O. */
static void cmha__products(const cmha__head *h) {
    size_t T = CMHA__TILE, sink = cmha__near_keys(h);
    cmha_real *S = h->turned ? h->re : h->S, *again = h->near_scores;
    cmha__products_of(h, h->q.data, h->turned, S, h->im);
    if (!sink) return;
    cmha__products_of(h, h->near_q.data, h->near_turned, again, again + T * T);
    for (size_t at = 0; at < h->rows * T; at += T) {
        cmha__copy(S + at, again + at, sink);
        if (h->turned) cmha__copy(h->im + at, again + T * T + at, sink);
    }
}

/* Finishes n scores but for biases and masks: caps them, which gives slopes, and divides by temperature. */
static void cmha__finish_scores(const cmha__head *h, cmha_real *S, size_t n) {
    const cmha_real cap = h->a->softcap, cold = (cmha_real)h->cold;
    if (cap > 0) cmha_softcap_forward(S, n, cap, S, h->backward ? h->slopes + (S - h->S) : NULL);
    if (h->a->temperature && (cap > 0 || h->turned))
        for (size_t j = 0; j < n; j++) S[j] *= cold;
}

/* What a function of O is told of row r of the tile. */
static cmha_score_call *cmha__call_of_row(cmha__head *h, size_t r) {
    cmha__peak *peak = cmha__at(h->peaks, h->i0 + r);
    if (peak) h->call[0].divisor = peak->size + (cmha_real)1e-12;
    if (peak && h->backward && h->a->norm_max_grad) h->call[0].ddivisor = &peak->gradient;
    return &h->call[0];
}

/* A feature row times column j of a tile of keys: finite, as is the modulus of two. */
static double cmha__careful_dot(const cmha__head *h, const cmha_real *q, size_t j) {
    const cmha_real *keys = h->keys + cmha__held(h, h->j0) * h->dk + j;
    double a = DBL_MIN, b = a, sum = 0, limit = DBL_MAX / 2;
    for (size_t i = 0; i < h->dk; i++) {
        double x = fabs((double)q[i]), y = fabs((double)keys[i * CMHA__TILE]);
        a = x > a ? x : a;
        b = y > b ? y : b;
    }
    for (size_t i = 0; i < h->dk; i++) sum += (double)q[i] / a * ((double)keys[i * CMHA__TILE] / b);
    sum = sum * a * b;
    if (fabs(sum) > limit) sum = sum > 0 ? limit : -limit;
    return sum;
}

/* A score the type can hold, beyond 1e30 its logarithm: a softmax there needs the order alone. NaN stays. */
static cmha_real cmha__careful_score(double score) {
    double limit = 1e30, size = fabs(score);
    if (!(size > limit)) return (cmha_real)score;
    size = limit * (1 + (size <= DBL_MAX ? log(size / limit) : 1000));
    return (cmha_real)(score < 0 ? -size : size);
}

/* The same scores as cmha__scores_of makes, for row r of the tile, whatever the size of the products. */
CMHA__COLD static void cmha__careful_row(cmha__head *h, size_t r) {
    size_t first = (h->i0 + r) * h->q.ld, T = CMHA__TILE, at = r * T;
    cmha_real *S = h->S + at;
    for (size_t j = 0; j < T; j++) {
        int sink = j < cmha__near_keys(h);
        const cmha_real *q = sink ? h->near_q.data : h->q.data, *turned = sink ? h->near_turned : h->turned;
        double re = cmha__careful_dot(h, q + first, j), im, size, fit;
        S[j] = cmha__careful_score(h->scale * re);
        if (!h->turned) continue;
        im = cmha__careful_dot(h, turned + first, j);
        size = hypot(re, im);
        fit = size > 1e30 ? (double)cmha__careful_score(size) / size : 1;
        h->re[at + j] = (cmha_real)(re * fit);
        h->im[at + j] = (cmha_real)(im * fit);
    }
    if (h->turned) {
        h->a->score->forward(cmha__call_of_row(h, r), h->re + at, h->im + at, S);
        if (!(h->a->softcap > 0))
            for (size_t j = 0; j < T; j++) S[j] = cmha__careful_score(h->cold * (double)S[j]);
    }
    if (h->a->softcap > 0) cmha__finish_scores(h, S, T);
    cmha__mask_row(h, r, S);
}

/* S [rows, 64] = masked scores of the tile. */
static void cmha__scores_of(cmha__head *h) {
    size_t i0 = h->i0, j0 = h->j0, rows = h->rows;
    if (h->careful) {
        cmha__careful_row(h, 0); /* rows = 1 */
        return;
    }
    cmha__products(h);
    if (h->turned)
        for (size_t r = 0, at = 0; r < rows; r++, at += CMHA__TILE)
            h->a->score->forward(cmha__call_of_row(h, r), h->re + at, h->im + at, h->S + at);
    cmha__finish_scores(h, h->S, rows * CMHA__TILE);
    if (h->mask || h->alibi != 0 || cmha__visible(h->a, i0 + rows - 1).begin > j0 ||
        cmha__visible(h->a, i0).end < j0 + CMHA__TILE)
        for (size_t r = 0; r < rows; r++) cmha__mask_row(h, r, h->S + r * CMHA__TILE);
}

/* Dropout's bits: a row's key, then the key index. */
CMHA__HOTTER(cmha__drop_tile, (const cmha__head *h, cmha_real *S), (h, S)) {
    size_t rows = h->a->dropout > 0 ? h->rows : 0;
    for (size_t r = 0; r < rows; r++, S += CMHA__TILE)
        cmha__drop_row(S, CMHA__TILE, h->a->dropout, cmha__mix(h->row_key + h->i0 + r), (uint32_t)h->j0);
}

/* One tile of the running softmax: S becomes exp(S - m), the accumulators move to the new maximum. */
CMHA__HOTTER(cmha__softmax_tile, (const cmha__head *h), (h)) {
    size_t rows = h->rows, dv = h->dv;
    cmha_real shift[CMHA__TILE], move[CMHA__TILE], *S = h->S, *m = h->m, *l = h->l, *acc = h->acc;
    for (size_t r = 0; r < rows; r++) shift[r] = cmha__larger(cmha__largest_64(S + r * CMHA__TILE), m[r]);
    for (size_t r = 0; r < rows; r++) {
        cmha_real old = m[r];
        m[r] = shift[r];
        shift[r] = shift[r] > CMHA__LOWEST ? shift[r] : 0; /* nothing visible yet */
        move[r] = cmha__exp(old - shift[r]); /* 1 where the maximum stays */
    }
    for (size_t r = 0; r < rows; r++, S += CMHA__TILE, acc += dv) {
        if (move[r] < 1) {
            l[r] *= move[r];
            for (size_t i = 0; i < dv; i++) acc[i] *= move[r];
        }
        l[r] += cmha__exp_shifted(S, CMHA__TILE, shift[r]);
    }
}

/* ComplexFormer eq 9, CRAT eq 13: y, lse of the queries at work. */
static void cmha__forward_rows(cmha__head *h) {
    size_t i0 = h->i0, rows = h->rows, dv = h->dv, ld = h->v.ld, T = CMHA__TILE;
    size_t end = cmha__visible(h->a, i0 + rows - 1).end;
    size_t first = cmha__visible(h->a, i0).begin / T * T; /* but for sinks' tiles */
    cmha_real *S = h->S, *m = h->m, *l = h->l, *acc = h->acc;
    cmha__zeros(l, T);
    cmha__zeros(acc, rows * dv);
    for (size_t r = 0; r < rows; r++) m[r] = CMHA__LOWEST;
    for (h->j0 = h->a->sinks ? 0 : first; h->j0 < end; h->j0 += T) {
        if (h->j0 >= h->a->sinks && h->j0 < first) h->j0 = first;
        size_t j0 = h->j0, cols = h->cols = cmha__tile_rows(h->a->n_k, j0);
        cmha__scores_of(h);
        if (h->seen_to)
            for (size_t r = 0; r < rows; r++)
                cmha__copy(h->seen_to + (i0 + r) * h->a->n_k + j0, S + r * T, cols);
        cmha__softmax_tile(h);
        cmha__drop_tile(h, S);
        const cmha_real *v = h->v.data + cmha__held(h, j0) * ld;
        if (dv) cmha__tile_gemm(0, rows, dv, cols, 1, S, T, v, ld, 1, acc, dv);
    }
    for (size_t r = 0; r < rows; r++) {
        cmha_real inverse = l[r] > 0 ? 1 / l[r] : l[r]; /* an empty row gives 0; NaN stays NaN */
        for (size_t i = 0; i < dv; i++) h->y.data[(i0 + r) * h->y.ld + i] = acc[r * dv + i] * inverse;
        if (!h->lse) continue;
        cmha_real log_sum = l[r] > 0 ? (cmha_real)log((double)l[r]) : l[r];
        cmha_lse lse = {l[r] > 0 ? m[r] : 0, log_sum, h->careful};
        h->lse[i0 + r] = lse;
    }
}

/* Computes rows with care whose sum l is NaN, or 0 though they see a key: products left the range. */
CMHA__COLD static void cmha__forward_lost(const cmha__head *h) {
    cmha_real l[CMHA__TILE];
    cmha__head slow = *h;
    memcpy(l, h->l, sizeof l);
    slow.careful = 1;
    slow.rows = 1;
    for (size_t r = 0; r < h->rows; r++, slow.i0++) {
        cmha__span seen = cmha__visible(h->a, slow.i0);
        if (h->a->sinks) seen.begin = 0; /* visible; keys below the window cost a look */
        while (seen.begin < seen.end && h->mask && !h->mask[seen.begin]) seen.begin++;
        if (l[r] != l[r] || (l[r] == 0 && seen.begin < seen.end)) cmha__forward_rows(&slow);
    }
}

static void cmha__forward_head(cmha__head *h) {
    for (h->i0 = h->piece * CMHA__TILE; h->i0 < h->a->n_q; h->i0 += h->pieces * CMHA__TILE) {
        size_t r = 0;
        h->rows = cmha__tile_rows(h->a->n_q, h->i0);
        cmha__forward_rows(h);
        while (r < h->rows && h->l[r] > 0) r++;
        if (r < h->rows) cmha__forward_lost(h);
    }
}

/* v_columns [dv, 64] = the columns of n rows from `first` on, up to 64. */
static void cmha__columns(const cmha__head *h, cmha_rows from, size_t first, size_t n) {
    if (!h->dv) return;
    cmha__zeros(h->v_columns, h->dv * CMHA__TILE);
    cmha__transpose(from.data + first * from.ld, from.ld, n, h->dv, h->v_columns, CMHA__TILE);
}

/* to [rows, 64] = dY of the queries at work times what v_columns holds. */
static void cmha__dy_products(const cmha__head *h, cmha_real *to) {
    size_t ld = h->dy.ld, dv = h->dv, T = CMHA__TILE;
    if (dv) cmha__tile_gemm(0, h->rows, T, dv, 1, h->dy.data + h->i0 * ld, ld, h->v_columns, T, 0, to, T);
    else cmha__zeros(to, h->rows * T);
}

/* The scores p [64] of the tile's query r become probabilities, d [64] the gradient of the scores before the
   scale. A whole row has its own D, the sum of p d, and what that was rounded by: one key may have nearly all
   the weight. */
CMHA__HOTTER(cmha__backward_row, (const cmha__head *h, size_t r, cmha_real scale), (h, r, scale)) {
    const cmha_lse lse = h->lse[h->i0 + r];
    const int whole = h->a->n_k <= CMHA__TILE;
    cmha_real *p = h->S + r * CMHA__TILE, *d = h->dS + r * CMHA__TILE;
    /* Smaller or denormal ones only slow the products. */
    const cmha_real tiny = CMHA__SMALLEST * (cmha_real)1e8;
    for (size_t j = 0; j < CMHA__TILE; j++) {
        cmha_real e = cmha__exp((p[j] - lse.largest) - lse.log_sum), was = d[j];
        p[j] = e < tiny ? 0 : e;
        d[j] = e < tiny ? 0 : was; /* masked ones may overflow; a load here: no vectors */
    }
    cmha_real D = whole ? cmha__dot(p, d, CMHA__TILE) : h->D[h->i0 + r];
    for (size_t j = 0; j < CMHA__TILE; j++) d[j] -= D;
    D = whole ? cmha__dot(p, d, CMHA__TILE) : 0;
    if (h->dlse) D -= h->dlse[h->i0 + r];
    for (size_t j = 0; j < CMHA__TILE; j++) {
        cmha_real slope = p[j] * (d[j] - D) * scale;
        d[j] = slope < CMHA__SMALLEST && slope > -CMHA__SMALLEST ? 0 : slope;
    }
}

/* S = probabilities of the tile, dS = gradient of its scores before the scale. */
static void cmha__backward_scores(cmha__head *h) {
    /* a function of O has the scale in its factors */
    cmha_real scale = (cmha_real)(h->turned ? h->cold : (double)h->a->scale * h->cold);
    cmha_real above[CMHA__TILE];
    size_t T = CMHA__TILE;
    cmha__scores_of(h);
    cmha__dy_products(h, h->dS);
    cmha__drop_tile(h, h->dS);
    for (size_t r = 0; r < h->rows; r++) {
        cmha_real *p = h->S + r * T, *d = h->dS + r * T;
        const cmha_lse lse = h->lse[h->i0 + r];
        if (lse.in_double) cmha__careful_row(h, r);
        if (h->dlog_temp)
            for (size_t j = 0; j < T; j++) above[j] = cmha__larger(p[j] - lse.largest, -CMHA__LARGEST / 2);
        cmha__backward_row(h, r, h->dlog_temp ? 1 : scale);
        if (h->dlog_temp) {
            *h->dlog_temp -= cmha__dot(above, d, T); /* the sum of d is dlse's, see cmha__row_products */
            for (size_t j = 0; j < T; j++) d[j] *= scale;
        }
        if (h->a->softcap > 0)
            for (size_t j = 0; j < T; j++) d[j] = d[j] != 0 ? d[j] * h->slopes[r * T + j] : 0;
    }
    cmha__drop_tile(h, h->S);
}

/* One set of query features: dQ += dS K and dK += dS^T Q. */
static void cmha__backward_features(const cmha__head *h, const cmha_real *q, const cmha_real *dS,
        cmha_real *dq) {
    size_t dk = h->dk, ld = h->q.ld, rows = h->rows, cols = h->cols, T = CMHA__TILE;
    cmha__tile_gemm(0, rows, dk, cols, 1, dS, T, h->key_rows, dk, 1, dq + h->i0 * dk, dk);
    cmha__tile_gemm(1, cols, dk, rows, 1, dS, T, q + h->i0 * ld, ld, 1, h->dk_to + h->j0 * dk, dk);
}

/* re and im of the tile become the gradient of O. */
static void cmha__backward_function(cmha__head *h) {
    for (size_t r = 0; r < h->rows; r++) {
        cmha_real *re = h->re + r * CMHA__TILE, *im = h->im + r * CMHA__TILE;
        const cmha_real *ds = h->dS + r * CMHA__TILE;
        for (size_t j = 0; j < CMHA__TILE; j++)
            if (ds[j] == 0) re[j] = im[j] = 0;
        h->a->score->backward(cmha__call_of_row(h, r), ds, re, im);
    }
}

/* All that the tile of keys at work takes part in. */
static void cmha__backward_tile(cmha__head *h) {
    size_t n_q = h->a->n_q, j0 = h->j0, cols = h->cols, dk = h->dk, dv = h->dv, T = CMHA__TILE;
    cmha_rows to = h->dv_to;
    if (to.data) to.data += j0 * to.ld;
    cmha_rows sum = cmha__on_lines(to, cols, dv, h->dv_tile);
    cmha__transpose(h->keys + j0 * dk, T, dk, cols, h->key_rows, dk);
    cmha__columns(h, h->v, j0, cols);
    for (h->i0 = 0; h->i0 < n_q; h->i0 += T) {
        size_t rows = h->rows = cmha__tile_rows(n_q, h->i0);
        size_t begin = cmha__visible(h->a, h->i0).begin, end = cmha__visible(h->a, h->i0 + rows - 1).end;
        if ((begin >= j0 + cols && j0 >= h->a->sinks) || end <= j0) continue;
        cmha__backward_scores(h);
        if (dv && sum.data) /* dV += P^T dY */
            cmha__tile_gemm(1, cols, dv, rows, 1, h->S, T, h->dy.data + h->i0 * h->dy.ld, h->dy.ld, 1,
                    sum.data, sum.ld);
        if (h->turned) cmha__backward_function(h);
        cmha__backward_features(h, h->q.data, h->turned ? h->re : h->dS, h->dq);
        if (h->turned) cmha__backward_features(h, h->turned, h->im, h->dturned);
    }
    if (sum.data != to.data)
        for (size_t j = 0; j < cols; j++) cmha__copy(to.data + j * to.ld, sum.data + j * sum.ld, dv);
}

/* D [n_q] = rowsum(dy * y), which the softmax's backward subtracts from dP, of rows longer than a tile. By
   dP's matrix product, as the diagonal of dY Y^T: where one key has all the weight, the two cancel to the
   last bit. */
static void cmha__row_products(cmha__head *h) {
    size_t n = h->a->n_q;
    if (h->dlse && h->dlog_temp && !h->piece)
        for (size_t i = 0; i < n; i++) *h->dlog_temp -= (double)h->dlse[i] * h->lse[i].largest;
    if (h->a->n_k <= CMHA__TILE) return;
    for (h->i0 = 0; h->i0 < n; h->i0 += CMHA__TILE) {
        h->rows = cmha__tile_rows(n, h->i0);
        cmha__columns(h, h->y, h->i0, h->rows);
        cmha__dy_products(h, h->S);
        for (size_t r = 0; r < h->rows; r++) h->D[h->i0 + r] = h->S[r * CMHA__TILE + r];
    }
}

/* ---- The forms of a complex softmax ---- */

/* One real softmax of a complex attention: of query features form (Re q, Im q) and keys (Re k, Im k); its
   product o with the values enters y as mix (Re o, Im o). Both are 2 x 2 matrices of signs. */
typedef struct cmha__term { const signed char *form, *mix; } cmha__term;

/* The form of Im O by `bilinear`. */
static const signed char cmha__imaginary[2][4] = {{0, 1, -1, 0}, {0, 1, 1, 0}};

/* MöbiusAttention eq 9, as each cmha_softmax_kind reads it: the real softmaxes of a complex one. */
static const cmha__term *cmha__terms(const cmha_attention_args *a, int *count) {
    static const signed char one[] = {1, 0, 0, 1}, minus[] = {-1, 0, 0, -1}, i[] = {0, -1, 1, 0};
    static const signed char conjugate[] = {1, 0, 0, -1}, e11[] = {1, 0, 0, 0}, e12[] = {0, 1, 0, 0};
    static const signed char e21[] = {0, 0, 1, 0}, e22[] = {0, 0, 0, 1};
    static const cmha__term terms[3][4] = { /* two of O hermitian, two of O bilinear; YANG8 */
        {{one, one}, {cmha__imaginary[0], i}, {conjugate, one}, {cmha__imaginary[1], i}},
        {{one, e11}, {cmha__imaginary[0], e22}, {conjugate, e11}, {cmha__imaginary[1], e22}},
        {{e11, one}, {e21, i}, {e12, i}, {e22, minus}}};
    cmha_softmax_kind softmax = cmha__is_complex(a) && !a->score->forward ? a->softmax : CMHA_SOFTMAX_REAL;
    *count = softmax == CMHA_SOFTMAX_YANG8 ? 4 : 1;
    if (softmax == CMHA_SOFTMAX_RI_PRODUCT || softmax == CMHA_SOFTMAX_RI_SPLIT) *count = 2;
    if (*count > 1 && !a->d_v) *count = 0; /* no values, and no lse either: nothing depends on q and k */
    if (softmax == CMHA_SOFTMAX_YANG8) return terms[2];
    return &terms[softmax == CMHA_SOFTMAX_RI_SPLIT][a->bilinear ? 2 : 0];
}

/* to [n, 2d] = (ADDS: +=) matrix (BACK: its transpose) times the halves of from [n, 2d]; =: may be `to`. */
enum { CMHA__BACK = 1, CMHA__ADDS = 2 };
static void cmha__apply(const signed char *matrix, int how, const cmha_real *from, size_t n, size_t d,
        cmha_real *to) {
    const int back = how & CMHA__BACK, add = how & CMHA__ADDS;
    cmha_real m0 = matrix[0], m1 = matrix[back ? 2 : 1], m2 = matrix[back ? 1 : 2], m3 = matrix[3];
    for (size_t i = 0; i < n; i++, from += 2 * d, to += 2 * d)
        for (size_t j = 0; j < d; j++) {
            cmha_real re = from[j], im = from[d + j];
            to[j] = (add ? to[j] : 0) + m0 * re + m1 * im;
            to[d + j] = (add ? to[d + j] : 0) + m2 * re + m3 * im;
        }
}

/* ---- One head of one sequence ---- */

/* Tokens there is room for, in whole tiles. */
static size_t cmha__cache_tokens(const cmha_cache *c) {
    if (c->ring) return cmha__tiles(c->sinks) * CMHA__TILE + c->ring;
    return cmha__tiles(c->capacity) * CMHA__TILE;
}

/* Returns the pieces of a long head's tiles, so that few heads keep the cores busy too: by the shape, not the
   threads, which would change the order of sums. A complex softmax has terms of a whole head. */
static size_t cmha__head_pieces(const cmha_attention_args *a) {
    size_t units = a->batch * a->kv_heads;
    int whole = a->n_q < 1024 || a->n_k < 1024 || cmha__is_complex(a) || !units || units > 7;
    return whole ? 1 : (8 + units - 1) / units;
}

/* Lays out a thread's scratch, as cmha__deal. */
static size_t cmha__deal_unit(cmha__head *h, cmha_real *base) {
    const cmha_attention_args *a = h->a;
    size_t dk = h->dk, dv = h->dv, T = CMHA__TILE, tile = T * T, fresh = !h->cache;
    size_t turned = a->score->forward ? 1 : 0, capped = a->softcap > 0;
    size_t complex_v = dv > a->d_v, backward = (size_t)h->backward;
    size_t past = fresh ? 0 : cmha__cache_tokens(h->cache), again = h->halves ? past : 0;
    size_t value_row = fresh ? cmha__up16(dv) : h->slot->value_row;
    size_t own_q = cmha__has_map(a->score) || backward ? a->n_q * cmha__up16(dk) : 0;
    size_t sink = h->near_rotation ? 1 : 0;
    const cmha__part parts[] = {
        {&h->own_keys, (fresh * cmha__tiles(a->n_k) * T + again) * dk},
        {&h->own_v, (fresh * (complex_v || !backward) * a->n_k + again) * value_row},
        {&h->scores, past}, {&h->own_q, own_q}, {&h->turned, turned * a->n_q * dk}, {&h->key_rows, T * dk},
        {&h->S, tile}, {&h->m, T}, {&h->l, T}, {&h->acc, T * dv},
        {&h->re, turned * tile}, {&h->im, turned * tile}, {&h->out, complex_v * a->n_q * dv},
        {&h->slopes, capped * tile}, {&h->own_near, sink * own_q},
        {&h->near_turned, sink * turned * a->n_q * dk}, {&h->near_scores, sink * (1 + turned) * tile},
        {&h->dS, tile}, {&h->own_dq, a->n_q * dk}, /* backward: from here */
        {&h->dturned, turned * a->n_q * dk}, {&h->own_dk, a->n_k * dk},
        {&h->fold, a->score->planes == 2 ? a->n_q * dk : 0},
        {&h->again, cmha__reals_for(complex_v * a->n_q * sizeof *h->again)},
        {&h->own_dv, complex_v * a->n_k * dv}, {&h->dout, a->n_q * value_row}, {&h->D, a->n_q},
        {&h->v_columns, T * dv}, {&h->dv_tile, T * value_row}};
    size_t used = cmha__deal(parts, backward ? CMHA__COUNT(parts) : 17, base);
    if (!turned) h->turned = h->near_turned = NULL;
    return used;
}

/* Turns a thread's copy of a call into that of a head, or piece of it. */
static void cmha__set_head(cmha__head *h, size_t unit, size_t piece) {
    const cmha_attention_args *a = h->a;
    size_t row = unit * a->n_q, pieces = cmha__head_pieces(a), part = unit * pieces + piece;
    h->unit = unit;
    h->piece = piece;
    h->batch = unit / a->heads;
    h->head = unit % a->heads;
    h->kv = h->head / (a->heads / a->kv_heads);
    h->mask = cmha__at(a->key_mask, h->batch * a->n_k);
    h->cold = a->temperature ? exp(-(double)a->parameters[a->score->n_parameters][h->head]) : 1;
    if (h->cold > 1e30) h->cold = 1e30;
    if (h->cold < 1e-30) h->cold = 1e-30;
    h->scale = (double)a->scale * (a->softcap > 0 ? 1 : h->cold); /* a cap comes between the two */
    h->alibi = (cmha_real)(a->alibi ? (double)a->alibi[h->head] * h->cold : 0);
    h->row_key = cmha__mix(a->key) + a->first * a->heads * a->n_q + row;
    h->keys = h->own_keys;
    if (h->lse) h->lse += row;
    if (h->dlse) h->dlse += row;
    if (h->peaks) h->peaks += row;
    if (h->partial) h->partial += unit * h->numbers;
    if (h->dlog_temp) h->dlog_temp += part;
    if (h->backward && pieces > 1) {
        h->dq += part * a->n_q * h->dk;
        h->dk_to += unit * a->n_k * h->dk;
    } else {
        h->dq = h->own_dq;
        h->dk_to = h->own_dk;
    }
    h->call[0] = cmha__call_of_head(a, h->head, 0, h->first_q, h->partial);
    h->call[1] = cmha__call_of_head(a, h->head, 1, h->first_k, h->partial);
}

static cmha_rows cmha__query_rows(const cmha__head *h, cmha_heads view) {
    return cmha__rows_at(view, h->batch, h->head / cmha__fan(h->a->score));
}

/* The head's query features of its term: raw rows that are their own features, else in own_q. */
static void cmha__make_queries(cmha__head *h) {
    const cmha_score *score = h->a->score;
    cmha_rows q = cmha__query_rows(h, h->x->q), own = {h->own_q, h->dk, 0};
    size_t n = h->a->n_q, half = h->dk / 2;
    h->q = q;
    if (cmha__has_map(score)) {
        h->q = own;
        cmha__map(&h->call[0], q, n, own.data);
    } else if (h->backward) h->q = cmha__on_lines(q, n, h->dk, own.data);
    if (score->imaginary && h->head % 2) cmha__apply(cmha__imaginary[0], 0, own.data, n, half, own.data);
    if (h->turned) cmha__apply(cmha__imaginary[h->a->bilinear != 0], 0, own.data, n, half, h->turned);
    if (score->planes == 2) cmha__apply(h->term->form, 0, own.data, n, half, own.data);
}

/* Makes them, and once more as sinks see them. */
static void cmha__set_queries(cmha__head *h) {
    cmha__head sink = *h;
    cmha__make_queries(h);
    if (!h->near_rotation) return;
    sink.own_q = h->own_near;
    sink.turned = h->near_turned;
    sink.call[0].rotation = h->near_rotation + (h->call[0].rotation - h->a->rotation);
    cmha__make_queries(&sink);
    h->near_q = sink.q;
}

/* Shows a head its keys and values in a cache, as numbers. */
static void cmha__set_past(cmha__head *h) {
    size_t n = cmha__min(h->a->n_k, cmha__cache_tokens(h->cache));
    h->keys = h->halves ? h->own_keys : (const cmha_real *)h->past_keys;
    h->v.data = h->halves ? h->own_v : (cmha_real *)h->past_values;
    if (!h->halves) return;
    cmha__bf16_numbers((const uint32_t *)h->past_keys, cmha__tiles(n) * h->dk * 2, h->own_keys);
    cmha__bf16_numbers((const uint32_t *)h->past_values, n * (h->v.ld / 32), h->own_v);
}

#if CMHA__STREAMS
static void cmha__mix_rows(const cmha__stored_rows *r, const float *factor, float *y) {
    CMHA__CHOOSE(cmha__mix_rows, (r, factor, y))
}

/* out = the values of keys `begin` to seen.end by their weights: key i's is scores[i], behind the tiles of
   sinks scores[i - gap]. A run of neighbours in the cache at a time. */
static void cmha__stream_values(cmha__head *h, size_t begin, cmha__span seen, size_t gap, cmha_real *out) {
    size_t size = h->halves ? 2 : 4, ld = h->v.ld, kept = cmha__tiles(h->a->sinks) * CMHA__TILE;
    cmha_real *to = out;
    for (size_t at = begin, n; at < seen.end; at += n) {
        if (at >= kept && at < seen.begin) at = seen.begin;
        size_t held = cmha__held(h, at);
        n = seen.end - at;
        if (at < kept) n = cmha__min(n, kept - at);
        else if (h->cache->ring) n = cmha__min(n, cmha__cache_tokens(h->cache) - held);
        const char *values = (const char *)h->past_values + held * ld * size;
        const cmha__stored_rows rows = {values, h->halves, n, ld, h->dv};
        cmha__mix_rows(&rows, h->scores + (at < kept ? at : at - gap), to);
        if (to != out) cmha__axpy(h->dv, 1, to, out);
        to = h->acc;
    }
}

/* One query against a cache, by scores that are products: keys and values stream through once. 0: it is not
   that, or cmha__forward_lost must. */
static int cmha__stream_head(cmha__head *h) {
    cmha_real *S = h->scores, *out = h->y.data;
    size_t size = h->halves ? 2 : 4, T = CMHA__TILE, kept = cmha__tiles(h->a->sinks) * T;
    cmha__span seen = cmha__visible(h->a, 0);
    if (h->a->n_q != 1 || !h->dv || h->mask || h->turned) return 0;
    size_t from = seen.begin / T * T, begin = kept ? 0 : seen.begin;
    h->i0 = 0;
    for (h->j0 = begin / T * T; h->j0 < h->a->n_k; h->j0 += T, S += T) {
        if (h->j0 >= kept && h->j0 < from) h->j0 = from;
        const char *keys = (const char *)h->past_keys + cmha__held(h, h->j0) * h->dk * size;
        const cmha__stored_rows tile = {keys, h->halves, h->dk, T, T};
        h->cols = cmha__tile_rows(h->a->n_k, h->j0);
        cmha__mix_rows(&tile, h->q.data, S);
        if (cmha__near_keys(h)) {
            cmha__mix_rows(&tile, h->near_q.data, h->near_scores);
            cmha__copy(S, h->near_scores, cmha__near_keys(h));
        }
        for (size_t i = 0; i < T; i++) S[i] *= (cmha_real)h->scale;
        cmha__finish_scores(h, S, T);
        cmha__mask_row(h, 0, S);
    }
    size_t count = (size_t)(S - h->scores);
    cmha_real top = cmha__largest(h->scores, count);
    cmha_real total = cmha__exp_shifted(h->scores, count, top > CMHA__LOWEST ? top : 0);
    if (!(total > 0)) return 0;
    cmha__stream_values(h, begin, seen, from > kept ? from - kept : 0, out);
    for (size_t i = 0; i < h->dv; i++) out[i] *= 1 / total;
    return 1;
}
#else
#define cmha__stream_head(h) 0
#endif

/* y of a head whose keys and values are set: every term's softmax, mixed. */
static void cmha__forward_terms(cmha__head *h) {
    cmha_rows y = cmha__rows_at(h->x->y, h->batch, h->head), out = {h->out, h->dv, 0};
    int count, mixed = h->dv > h->a->d_v;
    const cmha__term *terms = cmha__terms(h->a, &count);
    if (count != 1) h->lse = NULL;
    if (mixed) cmha__zero_rows(y, h->a->n_q, h->a->d_v);
    h->y = mixed ? out : y;
    for (h->term = terms; h->term < terms + count; h->term++) {
        cmha__set_queries(h);
        if (!h->cache || !cmha__stream_head(h)) {
            if (!h->keys) cmha__set_past(h);
            cmha__forward_head(h);
        }
        if (!mixed) continue;
        cmha__apply(h->term->mix, 0, h->out, h->a->n_q, h->a->d_v, h->out);
        cmha__add_rows(h->out, h->a->n_q, h->a->d_v, h->dv, y);
    }
}

/* ---- Peaks: the largest |O| of every row, head or batch, found in a pass before the softmax ---- */

/* Looks for row r's peak in the tile; GLOBAL at masked pairs too. */
static void cmha__find_peak(const cmha__head *h, size_t r) {
    cmha__peak *peak = h->peaks + h->i0 + r;
    cmha_real *size = h->re + r * CMHA__TILE, *im = h->im + r * CMHA__TILE;
    for (size_t j = 0; j < h->cols; j++) size[j] = cmha__hypot(size[j], im[j]);
    cmha__zeros(im, CMHA__TILE);
    if (h->a->norm_max != CMHA_NORM_MAX_GLOBAL) cmha__mask_row(h, r, im);
    for (size_t j = 0; j < h->cols; j++) {
        if (im[j] < -CMHA__LARGEST) continue;
        if (peak->key != SIZE_MAX && !(size[j] > peak->size)) continue;
        peak->size = size[j] == size[j] ? size[j] : (cmha_real)INFINITY; /* a NaN shows in the scores */
        peak->key = h->j0 + j;
    }
}

/* Finds the peaks of a head's rows, which padding has not. */
static void cmha__find_peaks(cmha__head *h) {
    const cmha_attention_args *a = h->a;
    const unsigned char *queries = a->norm_max == CMHA_NORM_MAX_HEAD ? a->query_mask : NULL;
    int count, forgets = h->cache && h->cache->ring;
    if (queries) queries += h->batch * a->n_q;
    if (!h->keys) cmha__set_past(h);
    for (size_t i = 0; i < a->n_q; i++) {
        cmha__peak none = {0, SIZE_MAX, i, 0};
        h->peaks[i] = none;
    }
    h->term = cmha__terms(a, &count);
    cmha__set_queries(h);
    for (h->i0 = 0; h->i0 < a->n_q; h->i0 += CMHA__TILE)
        for (h->j0 = 0; h->j0 < a->n_k; h->j0 += CMHA__TILE) {
            size_t first = forgets ? cmha__visible(a, h->i0).begin / CMHA__TILE * CMHA__TILE : 0;
            if (h->j0 >= a->sinks && h->j0 < first) h->j0 = first;
            h->rows = cmha__tile_rows(a->n_q, h->i0);
            h->cols = cmha__tile_rows(a->n_k, h->j0);
            cmha__products(h);
            for (size_t r = 0; r < h->rows; r++)
                if (!queries || queries[h->i0 + r]) cmha__find_peak(h, r);
        }
}

/* Rows that share one divisor: one, a head's, or all. */
static size_t cmha__peak_group(const cmha_attention_args *a) {
    size_t all = a->norm_max == CMHA_NORM_MAX_GLOBAL ? a->batch * a->heads : 1;
    return a->norm_max == CMHA_NORM_MAX_ROW ? 1 : all * a->n_q;
}

/* Adds a divisor's gradient to the pair that it comes from: dO = g O / |O|. */
static void cmha__peak_gradients(const cmha__head *h) {
    const cmha_attention_args *a = h->a;
    size_t total = a->batch * a->heads * a->n_q, group = cmha__peak_group(a);
    double sign = a->bilinear ? -1 : 1;
    for (size_t begin = 0; begin < total; begin += group) {
        size_t best = h->peaks[begin].row;
        double g = 0, re = 0, im = 0;
        if (best == SIZE_MAX) continue;
        for (size_t i = begin; i < begin + group; i++) g += h->peaks[i].gradient;
        cmha__head one = *h;
        cmha__set_head(&one, best / a->n_q, 0);
        size_t row = best % a->n_q, key = h->peaks[best].key, b = one.batch;
        cmha_rows q = cmha__query_rows(&one, h->x->q), dq = cmha__query_rows(&one, h->x->dq);
        cmha_rows k = cmha__rows_at(h->x->k, b, one.kv), dk = cmha__rows_at(h->x->dk, b, one.kv);
        const cmha_real *qr = q.data + row * q.ld, *qi = qr + q.imag;
        const cmha_real *kr = k.data + key * k.ld, *ki = kr + k.imag;
        for (size_t j = 0; j < a->d_k; j++) {
            double x = qr[j], y = qi[j], u = kr[j], v = sign * ki[j];
            re += x * u + y * v;
            im += y * u - x * v;
        }
        double size = hypot(re, im);
        if (!(size > 0)) continue;
        re = re / size * g;
        im = im / size * g;
        if (dq.data) dq.data += row * dq.ld;
        if (dk.data) dk.data += key * dk.ld;
        for (size_t j = 0; j < a->d_k; j++) {
            double x = qr[j], y = qi[j], u = kr[j], v = sign * ki[j];
            if (dq.data) {
                dq.data[j] += (cmha_real)(re * u - im * v);
                dq.data[dq.imag + j] += (cmha_real)(im * u + re * v);
            }
            if (!dk.data) continue;
            dk.data[j] += (cmha_real)(re * x + im * y);
            dk.data[dk.imag + j] += (cmha_real)(sign * (re * y - im * x));
        }
    }
}

/* ---- Attention = feature map, core, and the feature map's backward ---- */

/* A call without a cache, to be dealt out. */
static cmha__head cmha__new_call(const cmha_attention_args *a, const cmha_attention_views *views,
        int backward) {
    cmha__head x;
    cmha__zero(x);
    x.a = a;
    x.x = views;
    x.backward = backward;
    x.dk = cmha__key_width(a);
    x.dv = cmha__value_width(a);
    x.pieces = cmha__head_pieces(a);
    if (a->n_k > a->n_q) x.first_q = a->n_k - a->n_q;
    if (a->n_q > a->n_k) x.first_k = a->n_q - a->n_k;
    return x;
}

/* Deals out to what threads share, and to them. */
static size_t cmha__deal_call(cmha__head *x, cmha_real *base) {
    const cmha_attention_args *a = x->a;
    size_t heads = a->batch * a->heads, rows = heads * a->n_q;
    size_t peaks = a->score->forward && a->norm_max != CMHA_NORM_MAX_NONE ? rows : 0;
    size_t pieced = x->backward && x->pieces > 1;
    size_t temps = x->backward && a->temperature ? heads * x->pieces : 0;
    if (base) base += cmha__to_line(base) / sizeof *base;
    x->numbers = 0;
    if (x->backward)
        for (size_t i = 0, step; i < CMHA_MAX_SCORE_PARAMETERS; i++)
            x->numbers += cmha__own_numbers(a, i, &step);
    const cmha__part parts[] = {{&x->partial, cmha__reals_for(heads * x->numbers * sizeof *x->partial)},
            {&x->peaks, cmha__reals_for(peaks * sizeof *x->peaks)},
            {&x->dq, pieced * x->pieces * rows * x->dk},
            {&x->dk_to, pieced * heads * a->n_k * x->dk},
            {&x->dlog_temp, cmha__reals_for(temps * sizeof *x->dlog_temp)},
            {&x->units, 0}};
    size_t used = cmha__deal(parts, 6, base);
    if (!x->numbers) x->partial = NULL;
    if (!peaks) x->peaks = NULL;
    if (!temps) x->dlog_temp = NULL;
    x->own = cmha__deal_unit(x, NULL);
    return used + x->own * (size_t)cmha__chunks(a->threads, a->batch * a->kv_heads * x->pieces);
}

CMHA_DEF size_t cmha_attention_scratch(const cmha_attention_args *args, int backward) {
    cmha_attention_args a = cmha__with_score(args);
    cmha__head call = cmha__new_call(&a, NULL, backward);
    double threads = a.threads > 1 ? a.threads : 1, heads = (double)a.batch * (double)a.heads;
    double rows = (double)a.n_q + (double)a.n_k + CMHA__TILE;
    double d_k = (double)a.d_k * (double)cmha__widens(a.score);
    double width = d_k + (double)a.d_v + CMHA__TILE;
    size_t used = cmha__deal_call(&call, NULL) + 16; /* to a line of cache */
    double estimate = rows * (40 * threads * width + 8 * heads * (d_k + 1));
    return cmha__countable(used, estimate + 4 * heads * (double)call.numbers);
}

/* Writes a head's keys, in a cache the new ones, as transposed tiles of features: of numbers or, by way of
   own_keys' first tile, words. */
static void cmha__write_keys(const cmha__head *h) {
    size_t d = h->dk, n = h->cache ? h->a->n_q : h->a->n_k, at = h->a->n_k - n;
    cmha_real *keys = h->cache && !h->halves ? (cmha_real *)h->past_keys : h->own_keys;
    cmha_rows k = cmha__rows_at(h->x->k, h->batch, h->kv), rows = {h->key_rows, d, 0};
    cmha_score_call part = h->call[1];
    for (size_t i = 0, count; i < n; i += count, k.data += count * k.ld) {
        size_t column = (at + i) % CMHA__TILE, tile = cmha__held(h, at + i - column) * d;
        count = cmha__min(n - i, CMHA__TILE - column);
        if (cmha__has_map(h->a->score)) cmha__map(&part, k, count, rows.data);
        else rows = k;
        cmha__transpose(rows.data, rows.ld, count, d, keys + (h->halves ? 0 : tile) + column, CMHA__TILE);
        if (h->halves)
            for (size_t f = 0; f < CMHA__TILE * d; f += CMHA__TILE)
                for (size_t j = column; j < column + count; j++)
                    cmha__bf16_put((uint32_t *)h->past_keys + (tile + f) / 2, j, keys[f + j]);
        if (part.rotation) part.rotation += count * d;
    }
}

/* Appends new values to a head's in a cache. */
static void cmha__append_values(const cmha__head *h, cmha_rows v) {
    size_t d_v = h->a->d_v;
    for (size_t t = 0; t < h->a->n_q; t++, v.data += v.ld) {
        size_t first = cmha__held(h, h->a->n_k - h->a->n_q + t) * h->v.ld;
        cmha_real *to = h->halves ? h->acc : (cmha_real *)h->past_values + first;
        if (h->dv > d_v) cmha__complex_rows(v, 1, d_v, to);
        else if (h->dv) cmha__copy(to, v.data, h->dv);
        if (h->halves)
            for (size_t i = 0; i < h->dv; i++)
                cmha__bf16_put((uint32_t *)h->past_values + first / 2, i, to[i]);
    }
}

/* Shows a head keys, its own or (fresh) a new group's, and the group's values; a cache gets them. */
static void cmha__set_rows(cmha__head *h, int fresh, int own) {
    cmha_rows v = cmha__rows_at(h->x->v, h->batch, h->kv), complex_v = {h->own_v, h->dv, 0};
    size_t n = h->a->n_k, d_v = h->a->d_v;
    if (h->cache) {
        const cmha_slot *slot = h->slot;
        size_t row = h->batch * slot->kv_heads + h->kv, key_row = own ? h->unit : row;
        size_t bytes = cmha__cache_tokens(h->cache) * (h->halves ? 2 : sizeof(cmha_real));
        h->past_keys = (char *)(h->cache->memory + slot->keys) + key_row * slot->key_width * bytes;
        h->past_values = (char *)(h->cache->memory + slot->values) + row * slot->value_row * bytes;
        h->keys = NULL;
        h->v.ld = slot->value_row;
    }
    if (fresh || own) cmha__write_keys(h);
    if (!fresh) return;
    if (h->cache) cmha__append_values(h, v);
    else if (h->dv > d_v) {
        cmha__complex_rows(v, n, d_v, h->own_v);
        h->v = complex_v;
    } else h->v = h->backward ? v : cmha__on_lines(v, n, h->dv, h->own_v);
}

/* Runs each head, or piece of it. A group's heads share the thread's keys and values. */
static void cmha__each_head(const cmha__head *x, void (*run)(cmha__head *h)) {
    const cmha_attention_args *a = x->a;
    size_t group = a->kv_heads ? a->heads / a->kv_heads : 1;
    int differ = group > 1 && cmha__own_keys(a);
    CMHA__FOR_CHUNKS(a->threads, a->batch * a->kv_heads * x->pieces, lo, hi) {
        cmha__head unit = *x;
        cmha__deal_unit(&unit, x->units + (size_t)cmha__chunk * x->own);
        /* Columns beyond n_k stay zero. */
        if (!x->cache) memset(unit.own_keys, 0, cmha__tiles(a->n_k) * CMHA__TILE * x->dk * sizeof(cmha_real));
        for (size_t item = lo; item < hi; item++)
            for (size_t i = item / x->pieces * group; i < (item / x->pieces + 1) * group; i++) {
                int fresh = i % group == 0 && (item == lo || item % x->pieces == 0);
                cmha__head h = unit;
                cmha__set_head(&h, i, item % x->pieces);
                if (!differ) h.call[1].head -= i % group;
                cmha__set_rows(&h, fresh, differ);
                unit.v = h.v;
                run(&h);
            }
    }
}

/* Finds the divisors, if the score has any: the largest peak of a group, the first of equals. */
static void cmha__set_peaks(const cmha__head *x) {
    size_t group = cmha__peak_group(x->a), total = x->a->batch * x->a->heads * x->a->n_q;
    cmha__peak *peaks = x->peaks;
    if (!peaks) return;
    cmha__each_head(x, cmha__find_peaks);
    for (size_t begin = 0; begin < total; begin += group) {
        size_t best = SIZE_MAX, end = begin + group;
        for (size_t i = begin; i < end; i++)
            if (peaks[i].key != SIZE_MAX && (best == SIZE_MAX || peaks[i].size > peaks[best].size)) best = i;
        for (size_t i = begin; i < end; i++) {
            peaks[i].row = best;
            peaks[i].size = best == SIZE_MAX ? 0 : peaks[best].size;
        }
    }
}

CMHA_DEF void cmha_attention_forward(const cmha_attention_args *args, const cmha_attention_views *views,
        cmha_lse *lse, cmha_real *scratch) {
    cmha_attention_args a = cmha__with_score(args);
    cmha__head x = cmha__new_call(&a, views, 0);
    cmha__deal_call(&x, scratch);
    cmha__set_peaks(&x);
    x.lse = lse;
    cmha__each_head(&x, cmha__forward_terms);
}

/* One term's backward, into the head's feature gradients and, folded back to (Re q, Im q), into fold. With
   complex values by the term's own output: y of one term, else computed again. */
static void cmha__backward_term(cmha__head *h, int count) {
    const cmha_attention_args *a = h->a;
    cmha_rows out = {h->out, h->dv, 0}, dout = {h->dout, h->dv, 0};
    size_t n = a->n_q, T = CMHA__TILE;
    h->y = cmha__rows_at(h->x->y, h->batch, h->head);
    h->dy = cmha__rows_at(h->x->dy, h->batch, h->head);
    cmha__set_queries(h);
    if (h->dv > a->d_v) {
        cmha__complex_rows(h->dy, n, a->d_v, h->dout);
        cmha__apply(h->term->mix, CMHA__BACK, h->dout, n, a->d_v, h->dout);
        if (count == 1) cmha__complex_rows(h->y, n, a->d_v, h->out);
        h->y = out;
        h->dy = dout;
        if (count > 1) {
            h->lse = h->again;
            cmha__forward_head(h);
        }
    } else h->dy = cmha__on_lines(h->dy, n, h->dv, h->dout);
    cmha__row_products(h);
    cmha__zeros(h->dq, n * h->dk);
    if (h->turned) cmha__zeros(h->dturned, n * h->dk);
    for (h->j0 = h->piece * T; h->j0 < a->n_k; h->j0 += h->pieces * T) {
        h->cols = cmha__tile_rows(a->n_k, h->j0);
        cmha__backward_tile(h);
    }
    if (a->score->planes == 1) return;
    cmha__apply(h->term->form, CMHA__BACK | CMHA__ADDS, h->dq, n, a->d_k, h->fold);
    if (h->turned)
        cmha__apply(cmha__imaginary[a->bilinear != 0], CMHA__BACK | CMHA__ADDS, h->dturned, n, a->d_k,
                h->fold);
}

/* A head's gradients to where the caller wants them, pieces of dq in a fixed order. Heads of a group share
   dk: one thread's. */
static void cmha__collect(cmha__head *h) {
    const cmha_score *score = h->a->score;
    size_t pieces = cmha__head_pieces(h->a), n = h->a->n_q * h->dk, b = h->batch, kv = h->kv;
    cmha_real *dq = score->planes == 2 ? h->fold : h->dq;
    for (size_t piece = 1; piece < pieces; piece++) cmha__axpy(n, 1, dq + piece * n, dq);
    if (h->dlog_temp)
        for (size_t i = 0; i < pieces; i++) h->partial[h->numbers - 1] += h->dlog_temp[i];
    void (*back)(const cmha_score_call *, cmha_rows, size_t, const cmha_real *, cmha_rows) =
        score->map ? score->map_back : score->rotates ? cmha__turned_map_back : cmha__rows_back;
    if (score->imaginary && h->head % 2)
        cmha__apply(cmha__imaginary[0], CMHA__BACK, dq, h->a->n_q, h->dk / 2, dq);
    back(&h->call[0], cmha__query_rows(h, h->x->q), h->a->n_q, dq, cmha__query_rows(h, h->x->dq));
    back(&h->call[1], cmha__rows_at(h->x->k, b, kv), h->a->n_k, h->dk_to, cmha__rows_at(h->x->dk, b, kv));
}

/* One head, or a piece of it, which is left to be collected. */
static void cmha__backward_head(cmha__head *h) {
    const cmha_attention_args *a = h->a;
    cmha_rows dv = cmha__rows_at(h->x->dv, h->batch, h->kv), own_dv = {h->own_dv, h->dv, 0};
    int complex_v = h->dv > a->d_v, count;
    const cmha__term *terms = cmha__terms(a, &count);
    h->dv_to = complex_v ? own_dv : dv;
    for (size_t j0 = h->piece * CMHA__TILE; j0 < a->n_k; j0 += h->pieces * CMHA__TILE)
        cmha__zeros(h->dk_to + j0 * h->dk, cmha__tile_rows(a->n_k, j0) * h->dk);
    if (complex_v) cmha__zeros(h->own_dv, a->n_k * h->dv);
    if (a->score->planes == 2) cmha__zeros(h->fold, a->n_q * h->dk);
    if (h->dlog_temp) *h->dlog_temp = 0;
    for (h->term = terms; h->term < terms + count; h->term++) cmha__backward_term(h, count);
    if (h->pieces > 1) return;
    cmha__collect(h);
    if (complex_v) cmha__add_rows(h->own_dv, a->n_k, a->d_v, h->dv, dv);
}

CMHA__FIT void cmha_attention_backward(const cmha_attention_args *args, const cmha_attention_views *views,
        const cmha_lse *lse, const cmha_real *dlse, cmha_real *const *dparameters, cmha_real *scratch) {
    size_t units = args->batch * args->heads;
    cmha_attention_args a = cmha__with_score(args);
    cmha__head x = cmha__new_call(&a, views, 1);
    cmha__deal_call(&x, scratch);
    x.lse = (cmha_lse *)(uintptr_t)lse;
    x.dlse = dlse;
    if (x.partial) cmha__zeros(x.partial, units * x.numbers);
    cmha__set_peaks(&x);
    cmha__each_head(&x, cmha__backward_head);
    if (x.pieces > 1) {
        x.pieces = 1;
        cmha__each_head(&x, cmha__collect);
    }
    if (x.peaks && a.norm_max_grad) cmha__peak_gradients(&x);
    const double *sum = x.partial;
    if (sum && dparameters)
        for (size_t u = 0; u < units; u++) /* in an order that no thread changes */
            for (size_t i = 0, own, step; i < CMHA_MAX_SCORE_PARAMETERS; i++, sum += own) {
                own = cmha__own_numbers(&a, i, &step);
                if (own && dparameters[i]) /* which has no room for what the score lacks */
                    for (size_t j = 0; j < own; j++)
                        dparameters[i][u % a.heads * step + j] += (cmha_real)sum[j];
            }
}

/* ---- The linear core ---- */

/* A call, and a thread's scratch. CoPE's outputs but REAL need Im Num: a second form of each query, in `rows`
   rows below. */
typedef struct {
    const cmha_linear_attention_args *a;
    const cmha_attention_views *views;
    cmha_real *all_saved; /* or NULL */
    size_t F, C, W, forms; /* features, real value channels, C + 1 with the denominator's ones; 1 or 2 */
    size_t half, row; /* channels before the imaginary ones; numbers saved of each row */
    size_t state_size, scratch;
    int back, causal, appends; /* appends: from a state given on, always causal */
    cmha_attention_views x; /* this and the next four: of the tile at work */
    const unsigned char *mask;
    cmha_real *saved;
    size_t rows, R; /* R = forms * rows */
    cmha_real *Q, *K; /* features [R, F], [rows, F] */
    cmha_real *columns; /* K or V transposed, [F or W, 64] */
    cmha_real *V, *N; /* [rows, W], [R, W]: values, and the sums [Num | Den] or (back) their gradient */
    cmha_real *S; /* [R, 64]: weights or their gradient */
    cmha_real *state; /* [F, W] or (back) [W, F] */
    cmha_real *dQ, *dK, *dV; /* back only */
} cmha__linear_head;

/* Deals `base` out; NULL gives the sizes alone. */
static cmha__linear_head cmha__linear_open(const cmha_linear_attention_args *a, int back, cmha_real *base) {
    int angular = a->kind == CMHA_LINEAR_ANGULAR;
    cmha__linear_head h;
    cmha__zero(h);
    h.a = a;
    h.back = back;
    h.half = a->d_v ? a->d_v : a->d;
    h.C = angular ? 2 * h.half : h.half;
    h.forms = !angular && a->output != CMHA_COPE_OUTPUT_REAL ? 2 : 1;
    h.row = h.forms == 2 ? 2 * h.C + 1 : 1;
    size_t F = h.F = 2 * a->d + (angular ? 1 : 0), W = h.W = h.C + 1, T = CMHA__TILE, R = h.forms * T;
    h.state_size = F * W;
    const cmha__part parts[] = {
        {&h.Q, R * F}, {&h.K, T * F}, {&h.columns, T * (F > W ? F : W)}, {&h.V, T * W}, {&h.N, R * W},
        {&h.S, R * T}, {&h.state, F * W},
        {&h.dQ, R * F}, {&h.dK, T * F}, {&h.dV, T * W}}; /* back: these too */
    h.scratch = cmha__deal(parts, back ? 10 : 7, base);
    return h;
}

CMHA_DEF size_t cmha_linear_attention_scratch(const cmha_linear_attention_args *args, int backward) {
    size_t threads = (size_t)cmha__chunks(args->threads, args->batch * args->heads);
    double width = 4 * ((double)args->d + (double)args->d_v + CMHA__TILE);
    size_t length = cmha__linear_open(args, backward, NULL).scratch * threads + 1; /* + 1: never empty */
    return cmha__countable(length, 8 * (double)threads * width * width);
}

CMHA_DEF size_t cmha_linear_attention_saved(const cmha_linear_attention_args *args) {
    double rows = (double)args->batch * (double)args->heads * (double)args->n;
    return cmha__countable(args->batch * args->heads * args->n * cmha__linear_open(args, 0, NULL).row,
        rows * (4 * ((double)args->d + (double)args->d_v) + 1));
}

CMHA_DEF size_t cmha_linear_attention_state(const cmha_linear_attention_args *args) {
    double width = 2 * ((double)args->d + (double)args->d_v + 1);
    return cmha__countable(args->batch * args->heads * cmha__linear_open(args, 0, NULL).state_size,
        (double)args->batch * (double)args->heads * width * width);
}

/* The views of one head: every array begins at its row t. */
static cmha_attention_views cmha__views_at(const cmha_attention_views *x, size_t b, size_t h, size_t t) {
    cmha_attention_views one = *x;
    cmha_heads *view[8] = {&one.q, &one.k, &one.v, &one.y, &one.dq, &one.dk, &one.dv, &one.dy};
    for (size_t i = 0; i < 8; i++)
        if (view[i]->data) view[i]->data = cmha__rows_at(*view[i], b, h).data + t * view[i]->token;
    return one;
}

/* f(x) = elu(x) + 1, without an exponential of positive numbers; a NaN stays one. */
static void cmha__elu_row(const cmha_real *x, const cmha_real *im, size_t d, cmha_real *f) {
    for (int part = 0; part < 2; part++, x = im, f += d)
        for (size_t j = 0; j < d; j++) f[j] = (x[j] > 0 ? x[j] : 0) + cmha__exp(x[j] > 0 ? 0 : x[j]);
}

/* Q or (is_key) K = features; zero, the constant too, where a key is masked. Queries' second form of [q+r |
   q+i] is [q+i | -q+r]. back: dq or dk += their gradient, given dQ or dK. */
CMHA__HOT(static, cmha__linear_features, (const cmha__linear_head *h, int is_key, int back),
        (h, is_key, back)) {
    cmha_heads x = is_key ? h->x.k : h->x.q, dx = is_key ? h->x.dk : h->x.dq;
    cmha_real *f = is_key ? h->K : h->Q, *g = is_key ? h->dK : h->dQ;
    size_t d = h->a->d;
    int angular = h->a->kind == CMHA_LINEAR_ANGULAR, twice = !is_key && h->forms == 2;
    const cmha_real factor = d ? (cmha_real)(1 / sqrt((double)d)) : 1;
    const cmha__phasor_form p = {d, x.imag, d, dx.imag, h->a->eps, factor, 0};
    if (!CMHA__TRAINS) back = 0;
    if (back && twice)
        cmha__apply(cmha__imaginary[0], CMHA__BACK | CMHA__ADDS, g + h->rows * h->F, h->rows, d, g);
    for (size_t r = 0; r < h->rows; r++, f += h->F) {
        const cmha_real *re = x.data + r * x.token;
        int absent = is_key && h->mask && !h->mask[r];
        if (!back && angular) f[2 * d] = 1;
        if (!back && absent) cmha__zeros(f, h->F);
        if (absent) continue;
        if (!back && angular) cmha__phasor_row(&p, re, f);
        else if (!back) cmha__elu_row(re, re + x.imag, d, f);
        if (!back) continue;
        const cmha_real *df = g + r * h->F;
        cmha_real *dre = dx.data + r * dx.token, *dim = dre + dx.imag;
        if (angular) cmha__phasor_row_backward(&p, re, df, dre);
        else
            for (size_t j = 0; j < d; j++) { /* f' = min(f, 1) */
                dre[j] += df[j] * (f[j] < 1 ? f[j] : 1);
                dim[j] += df[d + j] * (f[d + j] < 1 ? f[d + j] : 1);
            }
    }
    if (!back && twice) cmha__apply(cmha__imaginary[0], 0, h->Q, h->rows, d, f);
}

/* K = features of the keys, V = [their values | 1]; a masked key is zero in both. */
static void cmha__linear_keys(const cmha__linear_head *h) {
    cmha__linear_features(h, 1, 0);
    for (size_t r = 0; r < h->rows; r++) {
        const cmha_real *v = h->x.v.data + r * h->x.v.token;
        cmha_real *row = h->V + r * h->W;
        cmha__zeros(row, h->W);
        if (h->mask && !h->mask[r]) continue;
        cmha__copy(row, v, h->half);
        cmha__copy(row + h->half, v + h->x.v.imag, h->C - h->half);
        row[h->C] = 1;
    }
}

/* S [R, 64] = left times the transpose of right [rows, width], 0 for what a causal query must not see: the
   weights Q K^T, or their gradient dN V^T. */
static void cmha__linear_weights(const cmha__linear_head *h, const cmha_real *left, const cmha_real *right,
        size_t width) {
    const size_t T = CMHA__TILE, rows = h->rows;
    cmha__transpose(right, width, rows, width, h->columns, T);
    cmha__tile_gemm(0, h->R, rows, width, 1, left, width, h->columns, T, 0, h->S, T);
    for (size_t r = 0; r < h->R; r++) cmha__zeros(h->S + r * T + r % rows + 1, rows - r % rows - 1);
}

/* One channel of CoPE's experimental outputs before the division by Den, and its derivatives. */
static double cmha__cope_channel(const cmha_linear_attention_args *a, double re, double im, double *dre,
        double *dim) {
    double square = re * re + im * im, e = a->eps, m = sqrt(square), r = sqrt(square + e * e), y = 0;
    double weight = a->output == CMHA_COPE_OUTPUT_PHASE;
    if (a->output == CMHA_COPE_OUTPUT_HYBRID) weight = a->alpha;
    *dre = *dim = 0;
    if (a->output != CMHA_COPE_OUTPUT_PHASE && m != 0) {
        y = m;
        *dre = re / m;
        *dim = im / m;
    }
    if (weight == 0 || r == 0) return y;
    *dre += weight * (im * im + e * e) / (r * r * r);
    *dim -= weight * re * im / (r * r * r);
    return y + weight * re / r;
}

/* Den, by the sum of a row's weights; 0 if too small to divide by. */
static cmha_real cmha__linear_den(const cmha_linear_attention_args *a, cmha_real sum) {
    if (a->kind == CMHA_LINEAR_ANGULAR) sum += a->den_eps;
    return sum < CMHA__SMALLEST && sum > -CMHA__SMALLEST ? 0 : sum;
}

/* y from N = [Num | Den]. */
static void cmha__linear_output(const cmha__linear_head *h) {
    size_t C = h->C, half = h->half;
    for (size_t r = 0; r < h->rows; r++) {
        cmha_real *N = h->N + r * h->W, *imag = N + h->rows * h->W, *y = h->x.y.data + r * h->x.y.token;
        cmha_real *saved = cmha__at(h->saved, r * h->row);
        cmha_real den = cmha__linear_den(h->a, N[C]), inverse = den != 0 ? 1 / den : 0;
        if (saved) saved[0] = den;
        for (size_t c = 0; c < (h->forms == 2 ? C : 0); c++) {
            double dre, dim;
            if (saved) saved[1 + c] = N[c];
            if (saved) saved[1 + C + c] = imag[c];
            N[c] = (cmha_real)cmha__cope_channel(h->a, N[c], imag[c], &dre, &dim);
        }
        for (size_t c = 0; c < half; c++) y[c] = N[c] * inverse;
        for (size_t c = half; c < C; c++) y[h->x.y.imag + c - half] = N[c] * inverse;
    }
}

/* N = gradient of [Num | Den]. */
static void cmha__linear_cotangent(const cmha__linear_head *h) {
    size_t C = h->C, half = h->half, y_imag = h->x.y.imag, dy_imag = h->x.dy.imag;
    for (size_t r = 0; r < h->rows; r++) {
        const cmha_real *y = h->x.y.data + r * h->x.y.token, *dy = h->x.dy.data + r * h->x.dy.token;
        const cmha_real *saved = h->saved + r * h->row, inverse = saved[0] != 0 ? 1 / saved[0] : 0;
        cmha_real *N = h->N + r * h->W, *imag = N + h->rows * h->W;
        N[C] = -inverse * (cmha__dot(y, dy, half) + cmha__dot(y + y_imag, dy + dy_imag, C - half));
        for (size_t c = 0; c < half; c++) N[c] = dy[c] * inverse;
        for (size_t c = half; c < C; c++) N[c] = dy[dy_imag + c - half] * inverse;
        if (h->forms == 1) continue;
        for (size_t c = 0; c < C; c++) {
            double dre, dim;
            cmha__cope_channel(h->a, saved[1 + c], saved[1 + C + c], &dre, &dim);
            imag[c] = (cmha_real)dim * N[c];
            N[c] *= (cmha_real)dre;
        }
        imag[C] = 0;
    }
}

/* CoPE eq 10-17: y = f(q) state, divided, by N [R, W] = Q [R, F] times the state [F, W] = sum f(k)^T [v | 1]
   of the tokens before (or all); causal also of those in hand, whose V are weighed by Q K^T. Backwards df(q),
   dQ [R, F] = N times the state [W, F] = sum [v | 1]^T f(k), likewise with K and N V^T. */
static void cmha__linear_y(const cmha__linear_head *h) {
    const cmha_real *from = h->back ? h->N : h->Q, *y = h->back ? h->V : h->K, *x = h->back ? h->K : h->V;
    const size_t width = h->back ? h->W : h->F, m = h->back ? h->F : h->W;
    cmha_real *to = h->back ? h->dQ : h->N;
    cmha__tile_gemm(0, h->R, m, width, 1, from, width, h->state, m, 0, to, m);
    if (h->causal) {
        cmha__linear_weights(h, from, y, width);
        cmha__tile_gemm(0, h->R, m, h->rows, 1, h->S, CMHA__TILE, x, m, 1, to, m);
    }
    if (CMHA__TRAINS && h->back) cmha__linear_features(h, 0, 1);
    else cmha__linear_output(h);
}

/* df(k) = [v | 1] state, dv = f(k) state^T; state [W, F] = sum dN^T f(q) of the queries behind (or all). */
static void cmha__linear_dk_dv(const cmha__linear_head *h) {
    size_t F = h->F, W = h->W, C = h->C, rows = h->rows;
    cmha__tile_gemm(0, rows, F, W, 1, h->V, W, h->state, F, 0, h->dK, F);
    cmha_gemm(0, 1, rows, C, F, 1, h->K, F, h->state, F, 0, h->dV, C);
    if (h->causal) {
        cmha__linear_weights(h, h->Q, h->K, F);
        cmha__tile_gemm(1, rows, C, h->R, 1, h->S, CMHA__TILE, h->N, W, 1, h->dV, C);
        cmha__linear_weights(h, h->N, h->V, W);
        cmha__tile_gemm(1, rows, F, h->R, 1, h->S, CMHA__TILE, h->Q, F, 1, h->dK, F);
    }
    if (h->x.dk.data) cmha__linear_features(h, 1, 1);
    cmha__add_rows(h->dV, rows, h->half, C, cmha__rows_at(h->x.dv, 0, 0));
}

/* Walks the tiles of head `unit`. state = sum left^T right, of keys or, if left is N, of queries, from the
   end. Causal, one pass takes a tile's result from the state before the tile is added; else all are added
   first. */
static void cmha__linear_walk(cmha__linear_head *h, size_t unit, void (*result)(const cmha__linear_head *h),
        const cmha_real *left, const cmha_real *right) {
    const cmha_linear_attention_args *a = h->a;
    size_t b = unit / a->heads, n = a->n, tiles = cmha__tiles(n);
    size_t m = h->back ? h->W : h->F, width = h->back ? h->F : h->W;
    int queries = left == h->N;
    if (!h->appends) cmha__zeros(h->state, h->state_size);
    for (int reads = h->causal; reads < 2; reads++)
        for (size_t t = 0; t < tiles; t++) {
            size_t i0 = (queries ? tiles - 1 - t : t) * CMHA__TILE;
            int adds = !reads || h->causal, asks = queries ? adds : reads;
            h->x = cmha__views_at(h->views, b, unit % a->heads, i0);
            h->mask = cmha__at(a->key_mask, b * n + i0);
            h->saved = cmha__at(h->all_saved, (unit * n + i0) * h->row);
            h->rows = cmha__tile_rows(n, i0);
            h->R = h->forms * h->rows;
            if (queries ? reads : adds) cmha__linear_keys(h);
            if (asks) cmha__linear_features(h, 0, 0);
            if (CMHA__TRAINS && asks && h->back) cmha__linear_cotangent(h);
            if (reads) result(h);
            if (adds)
                cmha__tile_gemm(1, m, width, queries ? h->R : h->rows, 1, left, m, right, width, 1, h->state,
                    width);
        }
}

/* Every head, from `state` on if there is one, or backwards. */
static void cmha__linear_run(const cmha_linear_attention_args *a, const cmha_attention_views *x,
        cmha_real *saved, cmha_real *state, int back, cmha_real *scratch) {
    size_t own = cmha__linear_open(a, back, NULL).scratch;
    CMHA__FOR_CHUNKS(a->threads, a->batch * a->heads, lo, hi) {
        cmha__linear_head h = cmha__linear_open(a, back, scratch + (size_t)cmha__chunk * own);
        h.views = x;
        h.all_saved = saved;
        h.appends = state != NULL;
        h.causal = state || a->causal;
        for (size_t unit = lo; unit < hi; unit++) {
            if (state) h.state = state + unit * h.state_size;
            if (!back) cmha__linear_walk(&h, unit, cmha__linear_y, h.K, h.V);
            if (!CMHA__TRAINS || !back) continue;
            if (x->dq.data) cmha__linear_walk(&h, unit, cmha__linear_y, h.V, h.K);
            if (x->dk.data || x->dv.data) cmha__linear_walk(&h, unit, cmha__linear_dk_dv, h.N, h.Q);
        }
    }
}

CMHA_DEF void cmha_linear_attention_forward(const cmha_linear_attention_args *args,
        const cmha_attention_views *views, cmha_real *saved, cmha_real *scratch) {
    cmha__linear_run(args, views, saved, NULL, 0, scratch);
}

CMHA_DEF void cmha_linear_attention_append(const cmha_linear_attention_args *args,
        const cmha_attention_views *views, cmha_real *state, cmha_real *scratch) {
    cmha__linear_run(args, views, NULL, state, 0, scratch);
}

CMHA__FIT void cmha_linear_attention_backward(const cmha_linear_attention_args *args,
        const cmha_attention_views *views, const cmha_real *saved, cmha_real *scratch) {
    cmha__linear_run(args, views, (cmha_real *)(uintptr_t)saved, NULL, 1, scratch); /* saved is only read */
}

/* ---- The lag core ---- */

/* (a, b) = (a + b w, a - b w), w = c + i s. A function: GCC heeds `restrict` of parameters alone. */
typedef struct { double c, s; } cmha__twiddle;
static inline void cmha__butterfly(double *CMHA__RESTRICT ar, double *CMHA__RESTRICT ai,
        double *CMHA__RESTRICT br, double *CMHA__RESTRICT bi, size_t lanes, cmha__twiddle w) {
    for (size_t l = 0; l < lanes; l++) {
        double re = br[l] * w.c - bi[l] * w.s, im = br[l] * w.s + bi[l] * w.c;
        br[l] = ar[l] - re;
        bi[l] = ai[l] - im;
        ar[l] += re;
        ai[l] += im;
    }
}

/* Joins blocks of h = from, 2 from, .. < m rows. */
static inline void cmha__fft_stages(double *re, double *im, size_t from, size_t m, size_t lanes,
        const double *table) {
    for (size_t h = from; h < m; h *= 2)
        for (size_t i = 0; i < m; i += 2 * h)
            for (size_t k = i; k < i + h; k++) {
                const cmha__twiddle w = {table[2 * h + k - i], table[3 * h + k - i]};
                size_t a = k * lanes, b = (k + h) * lanes;
                cmha__butterfly(re + a, im + a, re + b, im + b, lanes, w);
            }
}

/* Transforms `lanes` (a constant vectorises) columns of m = 2^k rows in place. Blocks in the L1
   cache are finished, then joined. The inverse, times m: exchange re and im. */
static inline void cmha__fft_columns(double *re, double *im, size_t m, size_t lanes, const double *table) {
    size_t block = cmha__min(m, 1024 / lanes), i, j, bit;
    for (i = 1, j = 0; i < m; i++) { /* j is i with its bits reversed */
        for (bit = m / 2; j & bit; bit /= 2) j ^= bit;
        j ^= bit;
        if (i >= j) continue;
        for (size_t l = 0; l < lanes; l++) {
            size_t a = i * lanes + l, b = j * lanes + l;
            double x = re[a], y = im[a];
            re[a] = re[b];
            re[b] = x;
            im[a] = im[b];
            im[b] = y;
        }
    }
    for (i = 0; i < m; i += block)
        cmha__fft_stages(re + i * lanes, im + i * lanes, 1, block, lanes, table);
    cmha__fft_stages(re, im, block, m, lanes, table);
}

#define CMHA__FFT_LANES ((size_t)8) /* channels transformed at a time; else 1 */

CMHA__HOT(static, cmha__fft, (double *re, double *im, size_t m, size_t lanes, const double *table),
        (re, im, m, lanes, table)) {
    if (lanes == 1) cmha__fft_columns(re, im, m, 1, table);
    else cmha__fft_columns(re, im, m, CMHA__FFT_LANES, table);
}

/* The length of n tokens' transforms: a power of two from 2n on, as no lag may wrap; 0: none. */
static size_t cmha__fft_length(size_t n) {
    size_t m = 1;
    while (m < 2 * n && m) m *= 2;
    return m;
}

/* One head and a thread's scratch. A spectrum is [2m], a group of channels [2][m][LANES]. */
typedef struct {
    const cmha_lag_args *a;
    size_t n; /* tokens up to the last one present: padding at the end is as if it were not there */
    const unsigned char *mask; /* [n]; NULL = all present */
    cmha_attention_views x; /* data: of this head */
    cmha_real *lags; /* [n] */
    double *table, *spectrum, *sum; /* [2m] each */
    double *g, *z; /* groups of channels */
    double *weight, *total, *dlags; /* [n] each */
    double *pairs, *score; /* [n] each: N_tau, and the scores of lags that matter to a row not done */
    unsigned char *done; /* [n]: rows that have had their weights */
    size_t hi, left; /* rows of the weights in hand lie below hi, rows not done below left */
    size_t first; /* the first lag whose score has a gradient */
    size_t scratch;
} cmha__lag_head;

/* Deals `base` out; NULL gives the size alone. The table has the twiddles of all stages, for shorter
   transforms too: exp(-i pi k / h), k < h, is at 2 h + k, its sine at 3 h + k. */
static cmha__lag_head cmha__lag_open(const cmha_lag_args *a, cmha_real *base) {
    size_t m = cmha__fft_length(a->n), two = sizeof(double) / sizeof(cmha_real), column = 2 * m * two;
    size_t group = column * CMHA__FFT_LANES, n = a->n * two;
    cmha__lag_head h;
    cmha__zero(h);
    h.a = a;
    const cmha__part parts[] = {
        {&h.table, column}, {&h.spectrum, column}, {&h.sum, column}, {&h.g, group}, {&h.z, group},
        {&h.weight, n}, {&h.total, n}, {&h.dlags, n}, {&h.pairs, n}, {&h.score, n},
        {&h.done, cmha__reals_for(a->n)}};
    h.scratch = cmha__deal(parts, 11, base);
    for (size_t i = base ? 1 : m; i < m; i *= 2)
        for (size_t k = 0; k < i; k++) {
            double angle = 3.14159265358979323846 * (double)k / (double)i;
            h.table[2 * i + k] = cos(angle);
            h.table[3 * i + k] = -sin(angle);
        }
    return h;
}

CMHA_DEF size_t cmha_lag_attention_scratch(const cmha_lag_args *args) {
    size_t threads = (size_t)cmha__chunks(args->threads, args->batch * args->heads);
    return cmha__countable(cmha__lag_open(args, NULL).scratch * threads + 1,
        (double)threads * 512 * ((double)args->n + 1));
}

static int cmha__lag_absent(const cmha__lag_head *h, size_t t) { return h->mask && !h->mask[t]; }

/* What a sweep does to rows: takes u(z) of them; filters by the conjugate; divides those read, or written, by
   their totals, and leaves them out where these are 0. */
enum { CMHA__LAG_PHASORS = 1, CMHA__LAG_CONJ = 2, CMHA__LAG_OVER = 4, CMHA__LAG_SHARES = 8 };

/* What a token's row is multiplied by; 0: it takes no part. */
static double cmha__lag_scale(const cmha__lag_head *h, size_t t, int by_total) {
    double total = by_total ? h->total[t] : 1;
    return cmha__lag_absent(h, t) || total == 0 ? 0 : 1 / total;
}

/* Group g = the spectrum of channels j0.. of tokens [0, n) of a view, those absent 0. Returns the sum of
   squares. */
static double cmha__lag_take(const cmha__lag_head *h, double *g, size_t n, size_t j0, int what,
        const cmha_heads *view) {
    const size_t L = CMHA__FFT_LANES, m = cmha__fft_length(n), width = cmha__min(h->a->d - j0, L);
    const cmha__phasor_form p = {width, view->imag, L, 0, h->a->eps, 1, 0};
    double squares = 0;
    cmha__zeros(g, 2 * m * L);
    for (size_t t = 0; t < n; t++) {
        const cmha_real *re = view->data + t * view->token + j0, *im = re + view->imag;
        double scale = cmha__lag_scale(h, t, what & CMHA__LAG_OVER), *row = g + t * L;
        cmha_real u[2 * CMHA__FFT_LANES];
        if (scale == 0) continue;
        if (what & CMHA__LAG_PHASORS) {
            cmha__phasor_row(&p, re, u);
            re = u;
            im = u + L;
        }
        for (size_t l = 0; l < width; l++) {
            row[l] = re[l] * scale;
            row[m * L + l] = im[l] * scale;
            squares += row[l] * row[l] + row[m * L + l] * row[m * L + l];
        }
    }
    cmha__fft(g, g + m * L, m, L, h->table);
    return squares;
}

/* Adds the rows of h->g, of u(z) the gradient if z is given, to channels j0.. of rows [0, n) of a view: of
   queries or keys without a partner it is rounding, which small z would enlarge. */
static void cmha__lag_give(const cmha__lag_head *h, size_t n, size_t j0, int what, const cmha_heads *view,
        const cmha_heads *z) {
    const size_t L = CMHA__FFT_LANES, m = cmha__fft_length(n), width = cmha__min(h->a->d - j0, L);
    for (size_t t = 0; t < n; t++) {
        const double scale = cmha__lag_scale(h, t, what & CMHA__LAG_SHARES), *row = h->g + t * L;
        cmha_real u[2 * CMHA__FFT_LANES], *to = view->data + t * view->token + j0;
        if (scale == 0 || (z && (what & CMHA__LAG_CONJ ? n - t : t + 1) <= h->first)) continue;
        for (size_t l = 0; l < L; l++) {
            u[l] = (cmha_real)(row[l] * scale);
            u[L + l] = (cmha_real)(row[m * L + l] * scale);
        }
        if (CMHA__TRAINS && z) {
            const cmha__phasor_form p = {width, z->imag, L, view->imag, h->a->eps, 1, 0};
            cmha__phasor_row_backward(&p, z->data + t * z->token + j0, u, to);
            continue;
        }
        cmha__axpy(width, 1, u, to);
        cmha__axpy(width, 1, u + L, to + view->imag);
    }
}

/* h->sum [2][m] += sum over the lanes of g conj(z) / m, two groups: the spectrum of their correlation. */
static void cmha__lag_correlate(const cmha__lag_head *h, size_t m) {
    const size_t L = CMHA__FFT_LANES;
    const double *x = h->g, *xi = x + m * L, *z = h->z, *zi = z + m * L;
    for (size_t f = 0; f < m; f++) {
        double re = 0, im = 0;
        for (size_t l = 0, at = f * L; l < L; l++, at++) {
            re += x[at] * z[at] + xi[at] * zi[at];
            im += xi[at] * z[at] - x[at] * zi[at];
        }
        h->sum[f] += re / (double)m;
        h->sum[m + f] += im / (double)m;
    }
}

/* Convolves (conj: correlates) h->g, the spectrum of a group or a column, with h->spectrum; transforms it
   back. */
static inline void cmha__lag_filter(const cmha__lag_head *h, size_t m, size_t lanes, int conj) {
    double *re = h->g, *im = re + m * lanes, factor = 1 / (double)m;
    for (size_t f = 0; f < m; f++, re += lanes, im += lanes) {
        double c = h->spectrum[f] * factor, s = (conj ? -h->spectrum[m + f] : h->spectrum[m + f]) * factor;
        for (size_t l = 0; l < lanes; l++) {
            double x = re[l];
            re[l] = x * c - im[l] * s;
            im[l] = x * s + im[l] * c;
        }
    }
    cmha__fft(h->g + m * lanes, h->g, m, lanes, h->table);
}

/* to [2m] = the spectrum of the real x [n], NULL: of the mask. */
static void cmha__lag_spectrum(const cmha__lag_head *h, const double *x, size_t n, double *to) {
    size_t m = cmha__fft_length(n);
    cmha__zeros(to, 2 * m);
    for (size_t t = 0; t < n; t++) to[t] = x ? x[t] : h->mask[t] != 0;
    cmha__fft(to, to + m, m, 1, h->table);
}

/* to [n] = x [n], NULL: the mask, convolved (conj: correlated) with the mask. */
static void cmha__lag_masked(const cmha__lag_head *h, const double *x, size_t n, int conj, double *to) {
    cmha__lag_spectrum(h, NULL, n, h->spectrum);
    cmha__lag_spectrum(h, x, n, h->g);
    cmha__lag_filter(h, cmha__fft_length(n), 1, conj);
    cmha__copy(to, h->g, n);
}

/* The mask of sequence b, and the pairs of tokens each lag joins. */
static void cmha__lag_sequence(cmha__lag_head *h, size_t b) {
    h->mask = cmha__at(h->a->key_mask, b * h->a->n);
    h->n = h->a->n;
    while (h->n && cmha__lag_absent(h, h->n - 1)) h->n--;
    if (cmha__counted(h->mask, h->n) == h->n) h->mask = NULL;
    for (size_t t = 0; t < h->n; t++) h->pairs[t] = (double)(h->n - t);
    if (h->mask) cmha__lag_masked(h, NULL, h->n, 1, h->pairs);
    for (size_t t = 0; t < h->n; t++) h->pairs[t] = floor(h->pairs[t] + 0.5);
}

/* Sweeps over the channels of rows [0, n) of `from`: h->sum [n] = their correlation with `with`, at most
   what it returns; `to` gets what h->spectrum makes of them, see cmha__lag_give. */
typedef struct { const cmha_heads *from, *with, *z, *to; } cmha__lag_views; /* all but `from` may be NULL */
static double cmha__lag_sweep(const cmha__lag_head *h, size_t n, int what, const cmha__lag_views *x) {
    size_t m = cmha__fft_length(n);
    double from = 0, with = 0;
    if (x->with) cmha__zeros(h->sum, 2 * m);
    for (size_t j0 = 0; j0 < h->a->d; j0 += CMHA__FFT_LANES) {
        from += cmha__lag_take(h, h->g, n, j0, what, x->from);
        if (x->with) {
            with += cmha__lag_take(h, h->z, n, j0, what & CMHA__LAG_PHASORS, x->with);
            cmha__lag_correlate(h, m);
        }
        if (!x->to) continue;
        cmha__lag_filter(h, m, CMHA__FFT_LANES, what & CMHA__LAG_CONJ);
        cmha__lag_give(h, n, j0, what, x->to, x->z);
    }
    if (x->with) cmha__fft(h->sum + m, h->sum, m, 1, h->table);
    return sqrt(from) * sqrt(with);
}

/* The higher rank first, of equals the lower lag. */
static int cmha__compare_ranks(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    if (x > y || x < y) return x > y ? -1 : 1;
    return a < b ? -1 : 1;
}

/* CRAT eq 14, made well-defined: lags [a->n] = temp R of the topk largest R of lags that join any pair, else
   -infinity. R is compared in steps wider than the rounding of phasors and transforms, so that equal lags of
   periodic signals stay equal. */
static void cmha__lag_scores(const cmha__lag_head *h) {
    size_t eligible = 0;
    double root = sqrt((double)(h->a->d ? h->a->d : 1)), *rank = h->total;
    const void **order = (const void **)(void *)h->g;
    const cmha__lag_views q_with_k = {&h->x.q, &h->x.k, NULL, NULL};
    double step = cmha__lag_sweep(h, h->n, CMHA__LAG_PHASORS, &q_with_k) /
                  (CMHA__LAG_GRID * root * (double)cmha__counted(h->mask, h->n));
    for (size_t tau = 0; tau < h->a->n; tau++) {
        h->lags[tau] = CMHA__LOWEST;
        if (tau >= h->n || !(h->pairs[tau] > 0)) continue;
        double R = h->sum[tau] / (root * h->pairs[tau]);
        h->lags[tau] = (cmha_real)((double)h->a->temp * R);
        rank[tau] = step > 0 ? floor(R / step + 0.5) : 0;
        order[eligible++] = rank + tau;
    }
    if (!h->a->topk || h->a->topk >= eligible) return;
    cmha__sort(order, eligible, cmha__compare_ranks);
    for (size_t i = h->a->topk; i < eligible; i++)
        h->lags[(const double *)order[i] - rank] = CMHA__LOWEST;
}

/* weight[tau] = exp(score - the largest), their spectrum, and totals for some more rows below h->hi, of the
   others 0; 0 if no row is left that sees a lag. A transform's rounding error goes with the largest weight,
   so rows whose own sum is below 0.01 of it wait for the next call, without the lags of 0.02 (0.01, but for
   rounding) or more: they see none of these. */
static int cmha__lag_weights(cmha__lag_head *h) {
    size_t rows = 0;
    while (!rows && (h->hi = h->left) > 0) {
        double most = -(double)INFINITY, sum = 0; /* of weights that row t sees; with a mask a convolution */
        for (size_t tau = 0; tau < h->hi; tau++)
            if (most == most && !(h->score[tau] <= most)) most = h->score[tau]; /* a NaN stays */
        if (most < -DBL_MAX) return 0;
        for (size_t tau = 0; tau < h->hi; tau++) h->weight[tau] = exp(h->score[tau] - most);
        if (h->mask) cmha__lag_masked(h, h->weight, h->hi, 0, h->total);
        else for (size_t t = 0; t < h->hi; t++) h->total[t] = sum += h->weight[t];
        h->left = 0;
        for (size_t t = 0; t < h->hi; t++) {
            int waits = !h->done[t] && !cmha__lag_absent(h, t), light = h->total[t] < 0.01;
            if (waits && light) h->left = t + 1;
            if (h->weight[t] >= 0.02) h->score[t] = -(double)INFINITY;
            if (waits && !light) {
                h->done[t] = 1;
                rows++;
            } else h->total[t] = 0;
        }
    }
    if (rows) cmha__lag_spectrum(h, h->weight, h->hi, h->spectrum);
    return rows > 0;
}

/* What each lag's weight gets through the denominators, in total's place: dtotal[t] = -Re(sum conj(y) dy) /
   total, of lag tau summed over rows t >= tau with t - tau present: from the end, or by a correlation. */
static void cmha__lag_denominators(const cmha__lag_head *h) {
    cmha_heads y = h->x.y, dy = h->x.dy;
    double sum = 0;
    for (size_t t = h->hi; t-- > 0;) {
        const cmha_real *a = y.data + t * y.token, *b = dy.data + t * dy.token;
        double row = 0;
        for (size_t j = 0; j < h->a->d; j++)
            row += (double)a[j] * b[j] + (double)a[y.imag + j] * b[dy.imag + j];
        if (h->total[t] != 0) sum -= row / h->total[t];
        h->total[t] = sum;
        if (h->mask) sum = 0;
    }
    if (h->mask) cmha__lag_masked(h, h->total, h->hi, 1, h->total);
}

/* A head's gradients: dv, and dlags = weight dweight (only ratios of weights enter y), whence dq and dk. */
static void cmha__lag_backward(cmha__lag_head *h) {
    double factor = h->a->temp / sqrt((double)(h->a->d ? h->a->d : 1));
    const cmha_attention_views *x = &h->x;
    int scored = x->dq.data || x->dk.data;
    cmha__zeros(h->dlags, h->a->n);
    while (cmha__lag_weights(h)) {
        const cmha__lag_views values = {&x->dy, scored ? &x->v : NULL, NULL, x->dv.data ? &x->dv : NULL};
        cmha__lag_sweep(h, h->hi, CMHA__LAG_OVER | CMHA__LAG_CONJ, &values);
        if (!scored) continue;
        cmha__lag_denominators(h);
        for (size_t tau = 0; tau < h->hi; tau++) h->total[tau] += h->sum[tau];
        /* dweight's mean: rounding, which small z would enlarge. */
        double mean = cmha__wide_dot(h->weight, h->total, h->hi) / cmha__wide_total(h->weight, h->hi);
        for (size_t tau = 0; tau < h->hi; tau++) h->dlags[tau] += h->weight[tau] * (h->total[tau] - mean);
    }
    for (size_t tau = 0; tau < h->n; tau++) h->dlags[tau] *= h->pairs[tau] > 0 ? factor / h->pairs[tau] : 0;
    cmha__lag_spectrum(h, h->dlags, h->n, h->spectrum);
    const cmha__lag_views to_q = {&x->k, NULL, &x->q, &x->dq}, to_k = {&x->q, NULL, &x->k, &x->dk};
    h->first = 0;
    while (h->first < h->n && h->dlags[h->first] == 0) h->first++;
    if (x->dq.data) cmha__lag_sweep(h, h->n, CMHA__LAG_PHASORS, &to_q);
    if (x->dk.data) cmha__lag_sweep(h, h->n, CMHA__LAG_PHASORS | CMHA__LAG_CONJ, &to_k);
}

static void cmha__lag_run(const cmha_lag_args *a, const cmha_attention_views *x, cmha_real *lags, int back,
        cmha_real *scratch) {
    size_t own = cmha__lag_open(a, NULL).scratch;
    CMHA__FOR_CHUNKS(a->threads, a->batch * a->heads, lo, hi) {
        cmha__lag_head h = cmha__lag_open(a, scratch + (size_t)cmha__chunk * own);
        const cmha__lag_views values = {&h.x.v, NULL, NULL, &h.x.y};
        for (size_t unit = lo; unit < hi; unit++) {
            h.x = cmha__views_at(x, unit / a->heads, unit % a->heads, 0);
            h.lags = lags + unit * a->n;
            cmha__lag_sequence(&h, unit / a->heads);
            if (!back) cmha__lag_scores(&h);
            for (size_t t = 0; t < h.n; t++) h.score[t] = h.lags[t];
            memset(h.done, 0, a->n);
            h.left = h.n;
            if (CMHA__TRAINS && back) cmha__lag_backward(&h);
            if (back) continue;
            cmha__zero_rows(cmha__rows_at(h.x.y, 0, 0), a->n, a->d); /* what rows that see no lag keep */
            while (cmha__lag_weights(&h)) cmha__lag_sweep(&h, h.hi, CMHA__LAG_SHARES, &values);
        }
    }
}

CMHA_DEF void cmha_lag_attention_forward(const cmha_lag_args *args, const cmha_attention_views *views,
        cmha_real *lags, cmha_real *scratch) {
    cmha__lag_run(args, views, lags, 0, scratch);
}

CMHA__FIT void cmha_lag_attention_backward(const cmha_lag_args *args, const cmha_attention_views *views,
        const cmha_real *lags, cmha_real *scratch) {
    cmha__lag_run(args, views, (cmha_real *)(uintptr_t)lags, 1, scratch); /* lags are only read */
}

/* ---- Attention on the tape: one call for the three cores ---- */

CMHA_DEF const cmha_real *cmha_rotation(cmha_tape *tape, const double *omega, size_t n_tables, size_t P,
        size_t n, ptrdiff_t pos0) {
    cmha_real *table = NULL;
    size_t size;
    if (!tape || tape->status) return NULL;
    if (!omega && n_tables && P) CMHA__MISUSE(tape, "rotation: omega is NULL");
    else if (!cmha__mul(n_tables, n, &size) || !cmha__mul(size, 2, &size) || !cmha__mul(size, P, &size))
        CMHA__TOO_MUCH(tape, "rotation: %zu tables of %zu x %zu overflow", n_tables, n, P);
    else table = cmha__reals(tape, size);
    if (table && !cmha__dry(tape))
        for (size_t i = 0; i < n_tables; i++)
            cmha_rotation_table(omega + i * P, P, n, pos0, table + i * n * 2 * P);
    return table;
}

enum { CMHA__SOFTMAX, CMHA__LINEAR, CMHA__LAG };

/* One call of a core, kept until the backward. args: the softmax call of the same sizes and scores. */
typedef struct {
    int core;
    cmha_attention_args args;
    cmha_linear_attention_args linear;
    cmha_lag_args lag;
    void *rows; /* what the forward leaves to the backward: lse, denominators or the lags' scores */
    cmha_real *state; /* of a cache, from which linear attention goes on; or NULL */
    size_t row; /* width of a fused projection, 0 = three tensors */
    cmha_tensor *in[CMHA_MAX_INPUTS]; /* q, k, v, parameters */
} cmha__attention_saved;

/* A token-major view of heads of d numbers, real or complex: in planes, or halves of a head. */
static cmha_heads cmha__tokens_view(const cmha_attention_args *a, cmha_real *data, size_t N, size_t heads,
        size_t d, int is_complex) {
    size_t step = is_complex && a->halves ? 2 * d : d, imag = a->halves ? d : heads * d;
    return cmha_heads_by_token(data, N, (is_complex ? 2 : 1) * heads * d, step, is_complex ? imag : 0);
}

/* Views of queries, keys and values, or their gradients, in one fused array or three, and of the result. */
static cmha_attention_views cmha__views(const cmha__attention_saved *s, cmha_real **grad, cmha_real *y) {
    const cmha_attention_args *a = &s->args;
    int complex_k = cmha__is_complex(a), complex_v = complex_k && a->complex_v;
    size_t queries = a->heads / cmha__fan(a->score);
    size_t heads = queries + (s->row ? 2 * a->kv_heads : 0);
    cmha_real *data[3];
    cmha_attention_views x;
    cmha__zero(x);
    for (int i = 0; i < 3; i++) data[i] = grad ? grad[i] : s->in[i] ? s->in[i]->data : NULL;
    x.y = cmha__tokens_view(a, y, a->n_q, a->heads, a->d_v, complex_v);
    x.q = x.k = x.v = cmha__tokens_view(a, data[0], a->n_q, heads, a->d_k, complex_k);
    if (!s->row) {
        x.k = cmha__tokens_view(a, data[1], a->n_k, a->kv_heads, a->d_k, complex_k);
        x.v = cmha__tokens_view(a, data[2], a->n_k, a->kv_heads, a->d_v, complex_v);
    } else if (data[0]) {
        x.k.data += queries * x.q.head;
        x.v.data += (queries + a->kv_heads) * x.q.head;
    }
    return x;
}

/* Fills in sizes and the score's parameters; NULL after an error line. */
static const cmha_tensor *cmha__attention_fits(cmha_tape *tape, cmha__attention_saved *s) {
    cmha_tensor *const *in = s->in;
    const cmha_tensor *q = in[0], *k = in[1], *v = in[2];
    cmha_attention_args *a = &s->args;
    const cmha_score *score = a->score;
    size_t planes = cmha__is_complex(a) ? 2 : 1, v_planes = a->complex_v ? planes : 1;
    size_t fan = cmha__fan(score), queries = a->heads / fan, turning = cmha__widens(score) * planes;
    size_t width = cmha__last(q), parts = planes * (queries + (k ? 0 : 2 * a->kv_heads)), need, step;
    if (!a->heads || !a->kv_heads || a->heads % fan || queries % a->kv_heads)
        return CMHA__MISFIT(tape, "attention: %zu heads cannot share %zu kv_heads", a->heads, a->kv_heads);
    if (queries > width / planes || q->rank != 3 || width % parts) /* in this order: no product wraps */
        return CMHA__MISFIT(tape, "attention: q of rank %d, width %zu must be [B, N, D], D divisible by %zu",
            q->rank, width, parts);
    if (!k != !v || (k && (k->rank != 3 || v->rank != 3)))
        return CMHA__MISFIT(tape, "attention: k has rank %d, v %d: give both, of rank 3, or neither (0)",
            k ? k->rank : 0, v ? v->rank : 0);
    if (!k && planes != v_planes && !a->halves)
        return CMHA__MISFIT(tape, "attention: real values cannot be fused with complex queries");
    a->batch = q->shape[0];
    a->n_q = q->shape[1];
    a->d_k = width / parts;
    a->n_k = k ? k->shape[1] : a->n_q;
    a->d_v = k ? cmha__last(v) / (v_planes * a->kv_heads) : a->d_k * planes / v_planes;
    s->row = k ? 0 : width;
    a->threads = v && v_planes < planes && (v == q || v == k) ? 1 : tape->context->threads; /* no race */
    need = planes * a->kv_heads * a->d_k;
    if (k && (k->shape[0] != a->batch || v->shape[0] != a->batch || v->shape[1] != a->n_k ||
        cmha__last(k) != need || cmha__last(v) % (v_planes * a->kv_heads)))
        return CMHA__MISFIT(tape, "attention: k [%zu, %zu, %zu] must be [%zu, N, %zu], v [%zu, %zu, %zu] "
            "[.., N, %zu d]", k->shape[0], a->n_k, cmha__last(k), a->batch, need, v->shape[0], v->shape[1],
            cmha__last(v), v_planes * a->kv_heads);
    if (score && (score->rotates || score->imaginary) && turning * a->d_k % 2)
        return CMHA__MISFIT(tape, "attention: no complex pairs: head width %zu is odd", a->d_k);
    if (a->rotary_dims * turning % 2 || a->rotary_dims > planes * a->d_k)
        return CMHA__MISFIT(tape, "attention: rotary_dims %zu of %zu cannot turn", a->rotary_dims, a->d_k);
    for (size_t i = 0; i + 3 < CMHA_MAX_INPUTS; i++) {
        const cmha_tensor *parameter = in[3 + i];
        if (!(need = cmha__own_numbers(a, i, &step))) continue;
        if (step) need *= a->heads;
        if (!parameter || parameter->size != need)
            return CMHA__MISFIT(tape, "attention: %s needs %zu numbers, it has %zu",
                i < score->n_parameters ? score->parameters[i].name : "log_temp", need,
                parameter ? parameter->size : 0);
        a->parameters[i] = parameter->data;
    }
    return q;
}

/* Says why a score does not serve here or (fits: the shapes do) which options mean nothing; else NULL. */
static const char *cmha__attention_wrong(const cmha_attention_args *a, int fits) {
    const cmha_score *score = a->score;
    if (!score) return "there is no such kind";
    if (score->attend) return "this score builds whole layers of models";
    if (!(a->softcap >= 0 && a->softcap <= CMHA__LARGEST)) return "softcap must be 0, or above it and finite";
    if ((unsigned)a->layout > CMHA_LAYOUT_HALF || (unsigned)a->norm_max > CMHA_NORM_MAX_GLOBAL ||
        (unsigned)a->softmax >= CMHA_SOFTMAX_COUNT)
        return "there is no such layout, norm_max or softmax";
    if (fits && score->rotates && !a->rotation) return "no rotation table";
    if (!fits || score->planes == 1) return NULL;
    if (score->rotates && !score->map && !a->halves) return "complex rows turn where halves = 1";
    if (score->forward && a->norm_max != CMHA_NORM_MAX_NONE && (score->map || score->rotates))
        return "norm_max is not for phasors";
    if (score->forward || a->softmax == CMHA_SOFTMAX_REAL) return NULL;
    return a->complex_v ? NULL : "this softmax needs complex_v";
}

/* What every call begins with; NULL where there is nothing to do. */
static cmha__attention_saved *cmha__attention_open(cmha_tape *tape, const void *args,
        cmha_tensor *const *qkv) {
    if (!qkv[0] || !tape || tape->status) return NULL;
    if (!args) CMHA__MISUSE(tape, "attention: args is NULL");
    cmha__attention_saved *s = args ? CMHA__NEW(tape, cmha__attention_saved) : NULL;
    if (s) cmha__copy(s->in, qkv, 3);
    return s;
}

/* Opens and checks a call of softmax attention. */
static cmha__attention_saved *cmha__softmax_open(cmha_tape *tape, const cmha_attention_args *args,
        cmha_tensor *q, cmha_tensor *k, cmha_tensor *v, cmha_tensor *const *parameters) {
    cmha_tensor *qkv[3] = {q, k, v};
    cmha__attention_saved *s = cmha__attention_open(tape, args, qkv);
    if (!s) return NULL;
    s->args = cmha__with_score(args);
    const cmha_score *own = args->score;
    const char *wrong = own ? cmha__score_wrong(own) : NULL;
    if (!wrong) wrong = cmha__attention_wrong(&s->args, 0);
    if (parameters && !wrong)
        cmha__copy(s->in + 3, parameters, s->args.score->n_parameters + !!args->temperature);
    if (!wrong && !cmha__attention_fits(tape, s)) return NULL;
    if (!wrong) wrong = cmha__attention_wrong(&s->args, 1);
    if (!wrong) return s;
    CMHA__MISUSE(tape, "attention: %s%.31s%s%s", own ? "score " : "", own && own->name ? own->name : "",
            own ? ": " : "", wrong);
    return NULL;
}

/* Runs a core in the tape's scratch, backwards where y has a gradient. */
static cmha_status cmha__core_run(cmha_tape *tape, const cmha__attention_saved *s, const cmha_tensor *y) {
    cmha_real *grad[CMHA_MAX_INPUTS];
    int back = CMHA__TRAINS && y->grad;
    if (back)
        for (int i = 0; i < CMHA_MAX_INPUTS; i++) grad[i] = cmha_tape_grad(tape, s->in[i]);
    size_t room = s->core == CMHA__LAG ? cmha_lag_attention_scratch(&s->lag)
        : s->core == CMHA__LINEAR ? cmha_linear_attention_scratch(&s->linear, back)
        : cmha_attention_scratch(&s->args, back);
    cmha__mark mark = cmha__mark_of(tape);
    cmha_real *scratch = cmha__reals(tape, room), *saved = s->state ? NULL : (cmha_real *)s->rows;
    cmha_lse *lse = (cmha_lse *)s->rows;
    if (cmha__computes(tape)) {
        cmha_attention_views x = cmha__views(s, NULL, y->data);
        if (back) {
            cmha_attention_views d = cmha__views(s, grad, y->grad);
            x.dq = d.q;
            x.dk = d.k;
            x.dv = d.v;
            x.dy = d.y;
        }
        if (s->core == CMHA__LINEAR) cmha__linear_run(&s->linear, &x, saved, s->state, back, scratch);
        else if (s->core == CMHA__LAG) cmha__lag_run(&s->lag, &x, saved, back, scratch);
        else if (back) cmha_attention_backward(&s->args, &x, lse, NULL, grad + 3, scratch);
        else cmha_attention_forward(&s->args, &x, lse, scratch);
    }
    cmha__rewind(tape, mark);
    return tape->status;
}

/* What cmha_model_attention asks for. Calls take their heads off `head`, until one has it. */
struct cmha__probe {
    size_t layer, at, head; /* at: the layer that runs */
    int what;
    cmha_real *out; /* NULL once it has been written */
};

/* Features whose product is the weight of CoPE's linear attention. */
static void cmha__elu_map(const cmha_score_call *c, cmha_rows x, size_t n, cmha_real *y) {
    size_t d = c->args->d_k;
    for (; n > 0; n--, x.data += x.ld, y += 2 * d) cmha__elu_row(x.data, x.data + x.imag, d, y);
}

/* Makes arg O of O, as if it were the score. */
static void cmha__arg(const cmha_score_call *c, const cmha_real *re, const cmha_real *im, cmha_real *s) {
    (void)c;
    for (size_t j = 0; j < CMHA__TILE; j++) s[j] = cmha__atan2(im[j], re[j]);
}

static void cmha__see_head(cmha__head *h) {
    h->seen_to = h->x->y.data + h->batch * h->a->n_q * h->a->n_k;
    if (h->head != h->seen) return;
    cmha__set_queries(h);
    cmha__forward_head(h);
}

/* Divides weights by what the core does, or the exponentials of scores by their sum. -infinity becomes 0. */
static void cmha__weigh(cmha_real *row, size_t n, const cmha_linear_attention_args *linear) {
    double top = -(double)INFINITY, sum = 0;
    for (size_t j = 0; j < n; j++) top = (double)row[j] > top ? (double)row[j] : top;
    for (size_t j = 0; j < n; j++) {
        if (row[j] < -CMHA__LARGEST) row[j] = 0;
        else if (!linear) row[j] = (cmha_real)exp((double)row[j] - top);
        sum += row[j];
    }
    if (linear) sum = (double)cmha__linear_den(linear, (cmha_real)sum);
    for (size_t j = 0; j < n; j++) row[j] = sum != 0 ? (cmha_real)((double)row[j] / sum) : 0;
}

/* Writes what is looked for, if it is a head of this call, whose core has run: scores come from the softmax
   core in any case, by the call's own row, CoPE's linear kernel or arg O. */
static void cmha__see(cmha_tape *tape, const cmha__attention_saved *s) {
    struct cmha__probe *p = tape->probe;
    int what = p->what % CMHA_SEE_NEXT, next = p->what / CMHA_SEE_NEXT, phases = what == CMHA_SEE_PHASES;
    cmha_attention_args a = s->args;
    int lag = s->core == CMHA__LAG, plain = s->core == CMHA__SOFTMAX, cope = !plain && !a.complex_v, count;
    size_t heads = a.heads, head = p->head, n = a.n_k, rows = a.batch * a.n_q;
    if (p->at != p->layer || !p->out) return;
    if (head >= heads) p->head -= heads;
    if (head >= heads) return;
    cmha_score row = *a.score;
    if (cope) row.map = cmha__elu_map;
    if (phases) {
        row.forward = cmha__arg;
        a.softmax = CMHA_SOFTMAX_REAL;
        a.alibi = NULL;
        a.norm_max = CMHA_NORM_MAX_NONE;
        a.temperature = 0;
        a.softcap = 0;
    }
    const cmha__term *term = cmha__terms(&a, &count) + next;
    a.score = &row;
    a.d_v = 0;
    a.complex_v = 0;
    a.threads = tape->context->threads;
    cmha_attention_views x = cmha__views(s, NULL, p->out);
    cmha_real *scratch = cmha__reals(tape, cmha_attention_scratch(&a, 0)), *out = p->out;
    p->out = NULL;
    if (next >= count || (phases && row.planes == 1 && !row.rotates))
        CMHA__UNABLE(tape, "model attention: the head has no phases, or no softmax %d", next);
    if (!scratch || tape->status) return;
    cmha__head call = cmha__new_call(&a, &x, 0);
    cmha__deal_call(&call, scratch);
    call.seen = head;
    call.term = term;
    for (size_t i = 0; i < rows * n; i++) out[i] = CMHA__LOWEST;
    cmha__set_peaks(&call);
    cmha__each_head(&call, cmha__see_head);
    for (size_t i = 0; i < rows; i++, out += n) {
        const cmha_real *R = lag ? (cmha_real *)s->rows + (i / n * heads + head) * n + i % n : NULL;
        if (!plain && !cope)
            for (size_t j = 0; j < n; j++) {
                if (lag && a.key_mask && !a.key_mask[i]) out[j] = CMHA__LOWEST;
                if (!phases && !(out[j] < -CMHA__LARGEST)) out[j] = lag ? *(R - j) : 1 + out[j];
            }
        if (what == CMHA_SEE_PROBABILITIES) cmha__weigh(out, n, plain || lag ? NULL : &s->linear);
    }
}

static cmha_status cmha__attention_record(cmha_tape *tape, cmha_record *r) {
    return cmha__core_run(tape, (const cmha__attention_saved *)r->user, r->out);
}

/* Calls any core, sizes checked. */
static cmha_tensor *cmha__attend(cmha_tape *tape, cmha__attention_saved *s) {
    static const char *const names[] = {"attention", "linear_attention", "lag_attention"};
    size_t shape[3] = {s->args.batch, s->args.n_q, s->args.heads * cmha__value_width(&s->args)};
    size_t rows = s->args.batch * s->args.heads * s->args.n_q;
    if (s->core == CMHA__SOFTMAX) rows = cmha__reals_for(rows * sizeof(cmha_lse));
    if (s->core == CMHA__LINEAR) rows = cmha_linear_attention_saved(&s->linear);
    cmha_tensor *y = cmha__result(tape, 3, shape);
    s->rows = cmha__reals(tape, rows);
    if (!s->rows) return NULL;
    cmha__core_run(tape, s, y);
    if (tape->probe) cmha__see(tape, s);
    return cmha__push(tape, names[s->core], y, s->in, CMHA_MAX_INPUTS, cmha__attention_record, s);
}

CMHA_DEF cmha_tensor *cmha_attention(cmha_tape *tape, const cmha_attention_args *args, cmha_tensor *q,
        cmha_tensor *k, cmha_tensor *v, cmha_tensor *const *parameters) {
    cmha__attention_saved *s = cmha__softmax_open(tape, args, q, k, v, parameters);
    if (!s || cmha__check_dropout(tape, args->dropout)) return NULL;
    if (!cmha__records(tape)) s->args.dropout = 0;
    if (s->args.dropout > 0) s->args.key = cmha__draw(tape);
    if (cmha__among_ranks(tape)) s->args.first = tape->shared.first;
    return cmha__attend(tape, s);
}

/* Linear or lag attention: queries and keys are the same tokens, complex, of as many heads. state NULL: the
   sequence is whole. Else linear attention goes on from a cache's state, outside of a recording. */
static cmha_tensor *cmha__attend_planes(cmha_tape *tape, const cmha_linear_attention_args *linear,
        const cmha_lag_args *lag, cmha_tensor *const *qkv, cmha_real *state) {
    cmha__attention_saved *s = cmha__attention_open(tape, lag ? (const void *)lag : linear, qkv);
    if (!s) return NULL;
    cmha_attention_args *a = &s->args;
    cmha_linear_attention_args *l = &s->linear;
    s->core = lag ? CMHA__LAG : CMHA__LINEAR;
    s->state = state;
    if (lag) {
        s->lag = *lag;
        l->heads = lag->heads;
        l->kind = CMHA_LINEAR_ANGULAR;
        l->causal = 1;
        l->eps = lag->eps;
        l->key_mask = lag->key_mask;
    } else *l = *linear;
    if ((unsigned)l->kind >= CMHA_LINEAR_COUNT || (unsigned)l->output >= CMHA_COPE_OUTPUT_COUNT)
        return CMHA__MISUSE(tape, "linear attention: there is no kind = %d or output = %d", (int)l->kind,
            (int)l->output);
    a->complex_v = l->kind == CMHA_LINEAR_ANGULAR;
    a->kind = a->complex_v ? CMHA_ATTENTION_ANGULAR : CMHA_ATTENTION_COMPLEX;
    a->softmax = CMHA_SOFTMAX_REAL;
    *a = cmha__with_score(a);
    a->heads = a->kv_heads = l->heads;
    a->causal = l->causal;
    a->eps = l->eps;
    a->key_mask = l->key_mask;
    if (!cmha__attention_fits(tape, s)) return NULL;
    if (a->n_q != a->n_k || !a->d_v)
        return CMHA__MISFIT(tape, "attention: %zu queries, %zu keys, values of %zu", a->n_q, a->n_k, a->d_v);
    if (lag && a->d_v != a->d_k)
        return CMHA__MISFIT(tape, "lag attention: v has %zu numbers a head, q %zu", a->d_v, a->d_k);
    a->scale = a->complex_v ? 1 / (cmha_real)a->d_k : 1;
    l->batch = s->lag.batch = a->batch;
    l->n = s->lag.n = a->n_q;
    l->d = s->lag.d = a->d_k;
    l->d_v = a->d_v;
    l->threads = s->lag.threads = a->threads;
    return cmha__attend(tape, s);
}

CMHA_DEF cmha_tensor *cmha_linear_attention(cmha_tape *tape, const cmha_linear_attention_args *args,
        cmha_tensor *q, cmha_tensor *k, cmha_tensor *v) {
    cmha_tensor *qkv[3] = {q, k, v};
    return cmha__attend_planes(tape, args, NULL, qkv, NULL);
}

CMHA_DEF cmha_tensor *cmha_lag_attention(cmha_tape *tape, const cmha_lag_args *args, cmha_tensor *q,
        cmha_tensor *k, cmha_tensor *v) {
    cmha_tensor *qkv[3] = {q, k, v};
    return cmha__attend_planes(tape, NULL, args, qkv, NULL);
}

/* ---- Phase contrastive loss ---- */

CMHA_DEF size_t cmha_pcl_scratch(const cmha_pcl_args *args) {
    return cmha__countable((8 * args->P + CMHA__TILE) * args->N,
        (8 * (double)args->P + CMHA__TILE) * (double)args->N);
}

static cmha_real cmha__pcl_scale(const cmha_pcl_args *a) { return 1 / ((cmha_real)a->P * a->tau); }
static int cmha__pcl_sees(const cmha_pcl_args *a, size_t t) { return !a->valid || a->valid[t]; }

/* Queries q = [w cos theta | w sin theta] / (P tau), keys k = [cos bar | sin bar], rows of 2P. */
static void cmha__phasors(const cmha_pcl_args *a, const cmha_real *theta, cmha_real *q, cmha_real *k) {
    size_t P = a->P;
    for (size_t t = 0; t < a->N; t++, theta += P, q += 2 * P, k += 2 * P)
        for (size_t r = 0; r < P; r++) {
            cmha_real s, c, w = a->w[r] * cmha__pcl_scale(a);
            int keep = !a->keep || a->keep[t * P + r];
            cmha__sincos(theta[r], &s, &c);
            q[r] = w * c;
            q[P + r] = w * s;
            k[r] = keep ? c : 1;
            k[P + r] = keep ? s : 0;
        }
}

/* Returns the loss of token t; its logits become exp(logit - largest) of the others, not of padding. With the
   positive apart nothing cancels: the loss is log(1 + others). lse gets the largest and the log of the sum.
   Backwards lse has them, `share` (else NULL) is the loss's gradient, and logits become theirs. */
static double cmha__pcl_row(const cmha_pcl_args *a, size_t t, const cmha_real *share, cmha_real *lse,
        cmha_real *row) {
    size_t N = a->N, positive = a->positive ? a->positive[t] : t;
    int counts = cmha__pcl_sees(a, positive);
    double gap = row[positive], own, others;
    if (a->valid)
        for (size_t j = 0; j < N; j++)
            if (!a->valid[j]) row[j] = CMHA__LOWEST;
    if (!share) lse[0] = cmha__largest(row, N);
    row[positive] = CMHA__LOWEST;
    others = cmha__exp_shifted(row, N, lse[0]);
    if (share) {
        cmha_real factor = *share * cmha__exp(-lse[1]);
        for (size_t j = 0; j < N; j++) row[j] *= factor;
        row[positive] = counts ? -factor * (cmha_real)others : -*share;
        return 0;
    }
    gap = (double)lse[0] - gap;
    own = counts ? exp(-gap) : 0;
    others = own == 1 ? log1p(others) : log(own + others);
    lse[1] = (cmha_real)others;
    return gap + others;
}

/* Walks the tokens, 64 rows of logits S [64, N] = sim / tau at a time: returns the sum of their losses or,
   backwards, makes dq and dk, which lie behind q and k. */
static double cmha__pcl_walk(const cmha_pcl_args *a, const cmha_real *theta, const cmha_real *share,
        cmha_real *lse, cmha_real *scratch) {
    size_t N = a->N, d = 2 * a->P;
    cmha_real *q = scratch, *k = q + N * d, *dq = k + N * d, *dk = dq + N * d, *S = dk + N * d;
    double sum = 0;
    cmha__phasors(a, theta, q, k);
    CMHA__IN_PIECES(t, rows, N, CMHA__TILE) {
        cmha_gemm(0, 1, rows, N, d, 1, q + t * d, d, k, d, 0, S, N);
        for (size_t r = 0; r < rows; r++) {
            cmha_real *row = S + r * N, *sums = lse + 2 * (t + r);
            if (cmha__pcl_sees(a, t + r)) sum += cmha__pcl_row(a, t + r, share, sums, row);
            else if (share) cmha__zeros(row, N);
            else sums[0] = sums[1] = 0;
        }
        if (!share) continue;
        cmha_gemm(0, 0, rows, d, N, 1, S, N, k, d, 0, dq + t * d, d);
        cmha_gemm(1, 0, N, d, rows, 1, S, N, q + t * d, d, t > 0, dk, d);
    }
    return sum;
}

CMHA_DEF double cmha_pcl_forward(const cmha_pcl_args *args, const cmha_real *theta, cmha_real *lse,
        cmha_real *scratch) {
    size_t count = cmha__counted(args->valid, args->N);
    double sum = cmha__pcl_walk(args, theta, NULL, lse, scratch);
    return count ? sum / (double)count : 0;
}

CMHA__FIT void cmha_pcl_backward(const cmha_pcl_args *args, const cmha_real *theta, const cmha_real *lse,
        cmha_real dloss, cmha_real *dtheta, cmha_real *dw, cmha_real *scratch) {
    size_t N = args->N, P = args->P, d = 2 * P, count = cmha__counted(args->valid, N);
    const cmha_real *dq = scratch + 2 * N * d, *dk = dq + N * d, scale = cmha__pcl_scale(args);
    if (!count) return;
    dloss /= (cmha_real)count;
    cmha__pcl_walk(args, theta, &dloss, (cmha_real *)(uintptr_t)lse, scratch); /* lse is only read */
    for (size_t t = 0; t < N; t++, dq += d, dk += d)
        for (size_t r = 0; r < P; r++) {
            cmha_real s, c;
            cmha__sincos(theta[t * P + r], &s, &c);
            if (dw) dw[r] += scale * (c * dq[r] + s * dq[P + r]);
            if (!dtheta) continue;
            dtheta[t * P + r] += scale * args->w[r] * (c * dq[P + r] - s * dq[r]);
            if (!args->keep || args->keep[t * P + r]) dtheta[t * P + r] += c * dk[P + r] - s * dk[r];
        }
}

/* The loss over a fused projection: a call of `count` units, each a head of queries or keys of a sequence.
   kind 1: phases are those after delta, b and position. */
typedef struct {
    cmha__attention_saved attention; /* sizes, layout, rotation; rows: the lse [units, N, 2] */
    cmha_pcl_options options;
    double all_units; /* with those of other ranks */
} cmha__pcl_saved;

/* A unit's phases, out of a thread's scratch. */
typedef struct {
    const cmha__pcl_saved *s;
    cmha_pcl_args args;
    cmha_score_call call; /* its head's delta, b (of queries only) and rotation */
    size_t at; /* of the unit's first number in the projection */
    cmha_real *kernel, *theta, *adapted, *dtheta;
    unsigned char *keep;
    size_t scratch;
} cmha__pcl_unit;

/* Deals `base` out; NULL gives the size alone. */
static cmha__pcl_unit cmha__pcl_open(const cmha__pcl_saved *s, cmha_real *base) {
    size_t N = s->attention.args.n_q, P = s->attention.args.d_k / 2, n = N * P;
    cmha__pcl_unit u;
    cmha__zero(u);
    u.s = s;
    u.args.N = N;
    u.args.P = P;
    u.args.tau = s->options.tau;
    const cmha__part parts[] = {
        {&u.kernel, cmha_pcl_scratch(&u.args)}, {&u.theta, n}, {&u.adapted, n}, {&u.dtheta, n},
        {&u.keep, cmha__reals_for(n)}};
    u.scratch = cmha__deal(parts, 5, base);
    u.args.keep = u.keep;
    return u;
}

/* The query head whose delta and b a unit uses: of keys, their group's first. */
static size_t cmha__pcl_head(const cmha_attention_args *a, size_t unit) {
    size_t h = unit % (a->heads + a->kv_heads);
    return h < a->heads ? h : (h - a->heads) * (a->heads / a->kv_heads);
}

static void cmha__pcl_phases(const cmha__call *c, size_t unit, cmha__pcl_unit *u) {
    const cmha_attention_args *a = &u->s->attention.args;
    size_t per = a->heads + a->kv_heads, b = unit / per, h = unit % per, N = a->n_q, d = a->d_k, P = d / 2;
    size_t row = u->s->attention.row;
    const cmha_euler_args row_of = {1, P, a->layout};
    cmha_rng rng = cmha_rng_make(c->key, a->first * per + unit);
    u->at = b * N * row + h * d;
    u->call = cmha__call_of_head(a, cmha__pcl_head(a, unit), h >= a->heads, 0, NULL);
    if (u->call.is_key) u->call.parameters[1] = NULL;
    u->args.w = c->x[3];
    u->args.valid = cmha__at(a->key_mask, b * N);
    for (size_t j = 0; j < N * P; j++) u->keep[j] = cmha_rng_uniform(&rng) >= u->s->options.mask_rate;
    for (size_t t = 0; t < N; t++)
        cmha_euler_forward(&row_of, c->x[0] + u->at + t * row, NULL, u->theta + t * P);
    cmha__copy(u->adapted, u->theta, N * P);
    if (c->kind)
        for (size_t i = 0; i < N * P; i++) {
            const cmha_real *turn = u->call.rotation + i / P * d + i % P;
            const cmha_real *delta = u->call.parameters[0], *offset = u->call.parameters[1];
            /* The angle of the rotation, reduced: only its cosine and sine matter. */
            double angle = atan2((double)turn[P], (double)turn[0]);
            angle += (double)(delta ? delta[i % P] : 1) * u->theta[i];
            if (offset) angle += offset[i % P];
            u->adapted[i] = (cmha_real)angle;
        }
}

/* The unit's gradients: that of the projection, and of delta, b and w into part [3, P]. */
static void cmha__pcl_unit_backward(const cmha__call *c, const cmha__pcl_unit *u, const cmha_real *lse,
        cmha_real *part) {
    const cmha_real *delta = u->call.parameters[0];
    size_t N = u->args.N, P = u->args.P, at = u->at;
    const cmha_euler_args row_of = {1, P, u->s->attention.args.layout};
    cmha_real scale = c->dy[0] / (cmha_real)u->s->all_units, *dqkv = c->dx[0];
    cmha__zeros(u->dtheta, N * P);
    cmha_pcl_backward(&u->args, u->adapted, lse, scale, u->dtheta, part + 2 * P, u->kernel);
    if (c->kind)
        for (size_t i = 0; i < N * P; i++) {
            cmha_real turn = u->dtheta[i];
            part[i % P] += delta ? u->theta[i] * turn : 0;
            part[P + i % P] += u->call.parameters[1] ? turn : 0;
            u->dtheta[i] = (delta ? delta[i % P] : 1) * turn;
        }
    if (dqkv)
        for (size_t t = 0; t < N; t++, at += u->s->attention.row)
            cmha_euler_backward(&row_of, c->x[0] + at, NULL, u->dtheta + t * P, dqkv + at);
}

/* Inputs are the projection, delta, b and w. Walks all units: their mean loss, or the gradients. */
static void cmha__pcl_pass(const cmha__call *c) {
    const cmha__pcl_saved *s = (const cmha__pcl_saved *)c->kept;
    const cmha_attention_args *a = &s->attention.args;
    cmha_tape *tape = c->tape;
    size_t units = c->count, P = a->d_k / 2, back = (size_t)cmha__goes_back(c);
    size_t own = cmha__pcl_open(s, NULL).scratch;
    double *losses = (double *)cmha_tape_alloc(tape, (units + 1) * sizeof *losses), sum = 0;
    cmha_real *parts = cmha__reals(tape, back * units * 3 * P);
    cmha_real *scratch = cmha__reals(tape, (size_t)c->threads * own);
    if (!cmha__computes(tape)) return;
    if (back) cmha__zeros(parts, units * 3 * P);
    CMHA__FOR_CHUNKS(c->threads, units, lo, hi) {
        cmha__pcl_unit u = cmha__pcl_open(s, scratch + (size_t)cmha__chunk * own);
        for (size_t unit = lo; unit < hi; unit++) {
            cmha_real *lse = (cmha_real *)s->attention.rows + unit * a->n_q * 2;
            cmha__pcl_phases(c, unit, &u);
            if (!back) losses[unit] = cmha_pcl_forward(&u.args, u.adapted, lse, u.kernel);
            else cmha__pcl_unit_backward(c, &u, lse, parts + unit * 3 * P);
        }
    }
    for (size_t u = 0; u < units; u++) {
        size_t step, has = cmha__own_numbers(a, 0, &step), at = cmha__pcl_head(a, u) * step;
        if (!back) sum += losses[u];
        for (size_t i = has ? 0 : 2; i < 3 * back; i++)
            if (c->dx[1 + i]) cmha__axpy(P, 1, parts + (3 * u + i) * P, c->dx[1 + i] + (i < 2 ? at : 0));
    }
    if (!back) c->y[0] = units ? (cmha_real)(sum / (double)units) : 0;
}

CMHA_DEF cmha_tensor *cmha_pcl(cmha_tape *tape, const cmha_attention_args *args, cmha_tensor *qkv,
        cmha_tensor *delta, cmha_tensor *b, cmha_tensor *w, const cmha_pcl_options *options) {
    CMHA__CALL("pcl", cmha__pcl_pass, cmha__one_shape, 1, CMHA__SCRATCH, qkv, delta, b);
    if (!qkv || !w || !tape || tape->status) return NULL;
    if (!args || !options) return CMHA__MISUSE(tape, "pcl: %s is NULL", args ? "options" : "args");
    cmha__pcl_saved *s = CMHA__NEW(tape, cmha__pcl_saved);
    if (!s) return NULL;
    cmha_attention_args *a = &s->attention.args;
    *a = cmha__with_score(args);
    a->temperature = 0;
    s->options = *options;
    s->attention.in[0] = qkv;
    s->attention.in[3] = delta;
    s->attention.in[4] = b;
    call.kind = options->adapted && a->score && a->score->rotates;
    const char *wrong = !cmha__contrasts(a->score) ? "it is for kinds CMHA, ROPE and DOT"
        : !(options->tau > 0) ? "tau must be positive"
        : !(options->mask_rate >= 0 && options->mask_rate <= 1) ? "mask_rate must be 0 to 1"
        : call.kind && !args->rotation ? "no rotation table"
        : args->rotary_dims && args->layout ? "rotary_dims of halves"
        : NULL;
    if (wrong) return CMHA__MISUSE(tape, "pcl: %s", wrong);
    if (!cmha__attention_fits(tape, &s->attention)) return NULL;
    if (a->d_k % 2 || w->size != a->d_k / 2)
        return CMHA__MISFIT(tape, "pcl: w of %zu numbers does not fit heads of %zu", w->size, a->d_k);
    call.key = cmha__draw(tape);
    if (cmha__among_ranks(tape)) a->first = tape->shared.first;
    call.count = a->batch * (a->heads + a->kv_heads);
    s->all_units = (double)call.count;
    cmha__over_ranks(tape, &s->all_units, 1);
    s->attention.rows = cmha__reals(tape, call.count * a->n_q * 2);
    call.in[3] = w;
    call.kept = s;
    return cmha__run(tape, &call);
}

/* ================ Models ================ */

#ifdef CMHA__PLAIN
#pragma GCC push_options
#pragma GCC optimize("O1")
#endif

/* ---- Presets and kinds: rows of text ---- */

#define CMHA__MOBIUS_BERT \
    " family=mobius causal=0 d_model=768 n_heads=12 d_ff=3072 vocabulary=30522 max_positions=512 " \
    "mobius_heads=6 position=learned placement=post attention_bias=1 head_bias=1 dropout=0.1 " \
    "attention_dropout=0.1 token_types=2"
/* name, fields of the model, fields of the trainer; the rest are defaults, ComplexFormer's */
static const char *const cmha__presets[][3] = {
    {"tiny", "n_layers=4 d_model=128 n_heads=4 d_ff=512 delta_init=rope_start",
     "steps=1500 batch=16 length=128 lr=3e-3 min_lr=1e-4 beta2=0.99 adam_eps=1e-8 weight_decay=0.1"},
    {"fast", "n_layers=4 d_model=128 n_heads=4 d_ff=512 delta_init=rope_start qk_norm=rms",
     "steps=550 batch=16 length=128 optimiser=muon lr=0.012 schedule=linear beta2=0.99 adam_eps=1e-8 "
     "weight_decay=0.1"},
    {"encoder", "n_layers=4 d_model=128 n_heads=4 d_ff=512 causal=0 attention=rope token_types=2 classes=2 "
     "pool=mean dropout=0.1", "batch=32 length=64 lr=1e-3 beta2=0.99 adam_eps=1e-8"},
    {"paper", "dropout=0.1 attention_dropout=0.1", ""},
    {"repo", "layout=half score_scale=1 activation=swiglu norm=rmsnorm residual_scale=0.2 tied=0 head_bias=1 "
     "delta_std=0.17677669529663687", ""}, /* 1/sqrt(d_k/2) at d_k = 64 */
    {"eulerformer", "dropout=0.1 attention_dropout=0.1 share=shared placement=post delta_init=const "
     "delta_value=1 attention_bias=1 pcl_weight=0.01 pcl_adapted=1", ""},
    {"cope", "family=cope attention=dot causal=0 n_layers=6 d_model=256 n_heads=8 d_ff=1024 vocabulary=30522 "
     "max_positions=512 placement=post activation=relu output_bias=1 dropout=0.2 attention_dropout=0.2 "
     "token_types=2 classes=2 init=xavier", "batch=512 length=256 schedule=linear min_lr=1e-5 warmup=0"},
    {"mobiusbert", "attention=dot n_layers=11" CMHA__MOBIUS_BERT, "length=128 schedule=linear"},
    {"mobroformer", "attention=rope n_layers=12" CMHA__MOBIUS_BERT, "length=128 schedule=linear"},
    /* All the paper has: each row of its ablation (Table 6) is one field away: family=real (dot products, the
       same positions), crat_attention=dot, angle=atan, irw_layers=0, pe_terms=1, state_rotation=0,
       complex_norm=split, experts=0. d_ff is that of its 125 million parameters with GPT-2's vocabulary. */
    {"crat", "family=crat attention=dot position=multifreq n_layers=12 d_model=768 n_heads=8 d_ff=1024 "
     "real_heads=2 imag_heads=2 experts=8 experts_top=2 complex_residual=free irw_layers=1 dropout=0.1 "
     "phase_reg=1e-4 mag_reg=1e-4 embedding_scale=1", "clip_mode=tensors"}};

#define CMHA__COPE_KIND(score) {"cope-" score, "family=cope cope_score=" score " attention=dot position=none"}
#define CMHA__CRAT_KIND(attention) \
    "family=crat crat_attention=" attention " activation=gelu_erf attention_bias=0 output_bias=0 " \
    "qkv_bias=0 position=none placement=pre embedding_scale=1 qk_norm=none"
static const char *const cmha__kinds[][2] = { /* name, fields */
    {"cmha", "family=real attention=cmha share=per_head position=none"},
    {"cmha-shared", "family=real attention=cmha share=shared position=none"},
    {"cmha-fixed", "family=real attention=cmha share=fixed position=none"},
    {"rope", "family=real attention=rope position=none"},
    {"dot", "family=real attention=dot position=none"},
    {"dot+learned", "family=real attention=dot position=learned"},
    {"dot+sinusoidal", "family=real attention=dot position=sinusoidal embedding_scale=1"},
    {"alibi", "family=real attention=dot position=alibi"},
    {"pope", "family=real attention=pope share=per_head position=none"},
    {"ropepp", "family=real attention=ropepp position=none"},
    CMHA__COPE_KIND("phase"), CMHA__COPE_KIND("magnitude"), CMHA__COPE_KIND("real"),
    CMHA__COPE_KIND("hybrid"), CMHA__COPE_KIND("hybrid_norm"), CMHA__COPE_KIND("linear"),
    {"mobius", "family=mobius attention=dot position=learned placement=post"},
    {"mobius+rope", "family=mobius attention=rope position=learned placement=post"},
    {"angular", CMHA__CRAT_KIND("angular angle=atan2")},
    {"angular-atan", CMHA__CRAT_KIND("angular angle=atan")},
    {"angular-linear", CMHA__CRAT_KIND("linear angle=atan2")},
    {"crat", CMHA__CRAT_KIND("angular angle=atan2") " experts=4 experts_top=2 complex_residual=free "
     "phase_reg=1e-4 mag_reg=1e-4"},
    {"lag", CMHA__CRAT_KIND("lag angle=atan2") " causal=0"}};

CMHA_DEF const char *cmha_preset_name(size_t i) {
    return i < CMHA__COUNT(cmha__presets) ? cmha__presets[i][0] : NULL;
}

CMHA_DEF cmha_status cmha_preset(cmha_context *context, const char *name, cmha_model_config *model,
        cmha_trainer_config *trainer) {
    size_t i = 0;
    if (!name) return CMHA__WRONG(context, "preset: its name is NULL");
    while (cmha_preset_name(i) && strcmp(cmha_preset_name(i), name) != 0) i++;
    if (!cmha_preset_name(i))
        return cmha__fail(context, CMHA_ERR_NOT_FOUND, "there is no preset \"%.60s\"", name);
    cmha_config_defaults(cmha_model_table(), model);
    cmha_config_defaults(cmha_trainer_table(), trainer);
    if (model) cmha_config_set_all(NULL, cmha_model_table(), model, cmha__presets[i][1]);
    if (trainer) cmha_config_set_all(NULL, cmha_trainer_table(), trainer, cmha__presets[i][2]);
    return CMHA_OK;
}

CMHA_DEF const char *cmha_kind_name(size_t i, const char **fields) {
    if (i >= CMHA__COUNT(cmha__kinds)) return NULL;
    if (fields) *fields = cmha__kinds[i][1];
    return cmha__kinds[i][0];
}

CMHA_DEF cmha_status cmha_kind(cmha_context *context, const char *name, cmha_model_config *model) {
    const char *fields, *known;
    if (!name) return CMHA__WRONG(context, "kind: its name is NULL");
    for (size_t i = 0; (known = cmha_kind_name(i, &fields)) != NULL; i++)
        if (!strcmp(known, name)) return cmha_config_set_all(context, cmha_model_table(), model, fields);
    return cmha__fail(context, CMHA_ERR_NOT_FOUND, "there is no kind of attention \"%s\"", name);
}

/* ---- Families ---- */

typedef struct cmha__pass cmha__pass;
typedef struct cmha__list cmha__list;

/* One family. The table stands below the blocks, in cmha__family. */
typedef struct {
    cmha_family family;
    int complex_state; /* what blocks hand on is planes [Re | Im] */
    int (*has)(const cmha_model_config *c, size_t layer); /* its own, not a plain one? NULL: all are */
    void (*declare)(cmha__list *to, size_t layer, cmha_block *at); /* parameters of its own layers */
    const char *(*wrong)(const cmha_model_config *c); /* what is, or NULL; NULL: nothing can be */
    cmha_tensor *(*embed)(cmha__pass *pass, cmha_tensor *x); /* token embeddings to the first block's input */
    cmha_tensor *(*block)(cmha__pass *pass, cmha_tensor *x);
    cmha_tensor *(*attend)(cmha__pass *pass, cmha_tensor *h); /* in cmha__transformer_block */
} cmha__family_row;

static const cmha__family_row *cmha__family(int family);

static size_t cmha__kv_heads(const cmha_model_config *c) {
    return c->n_kv_heads ? c->n_kv_heads : c->n_heads;
}
static size_t cmha__head_width(const cmha_model_config *c) {
    return c->d_head ? c->d_head : c->d_model / c->n_heads;
}
static int cmha__complex_state(const cmha_model_config *c) { return cmha__family(c->family)->complex_state; }

static const cmha__family_row *cmha__layer_family(const cmha_model_config *c, size_t layer) {
    const cmha__family_row *own = cmha__family(c->family);
    return !own->has || own->has(c, layer) ? own : cmha__family(CMHA_FAMILY_REAL);
}

static size_t cmha__plain_heads(const cmha_model_config *c, size_t layer) {
    cmha_family family = cmha__layer_family(c, layer)->family;
    if (family == CMHA_FAMILY_REAL) return c->n_heads;
    return family == CMHA_FAMILY_MOBIUS ? c->n_heads - c->mobius_heads : 0;
}

/* The letter of a layer in layer_kinds; 0 where all are alike. */
static char cmha__layer_kind(const cmha_model_config *c, size_t layer) {
    size_t n = strlen(c->layer_kinds);
    return n ? c->layer_kinds[layer % n] : (char)0;
}

/* Which table of angles its heads turn by: the model's, that of local_base, or one of zeros. */
static int cmha__layer_table(const cmha_model_config *c, char kind) {
    if (kind == 'l') return c->local_base > 0 ? 1 : 0;
    return kind == 'n' ? 2 : 0;
}

static int cmha__first_layer(const cmha_model_config *c, size_t layer) { return (void)c, layer == 0; }

static int cmha__mobius_layer(const cmha_model_config *c, size_t layer) {
    if (c->mobius_wiring == CMHA_WIRING_ALTERNATING) return layer % 3 == 0;
    return layer == 0 || (c->mobius_wiring == CMHA_WIRING_FRAMED && layer + 1 == c->n_layers) ||
           (c->mobius_wiring == CMHA_WIRING_STACKED && layer == 1);
}

/* Heads of CRAT's groups: real, imaginary, mixed. */
static size_t cmha__group_heads(const cmha_model_config *c, int group) {
    if (group == 2) return c->n_heads - c->real_heads - c->imag_heads;
    return group ? c->imag_heads : c->real_heads;
}

static size_t cmha__first_window(const cmha_model_config *c) {
    return c->irw_from ? c->irw_from - 1 : c->n_layers / 2;
}
static size_t cmha__window_width(const cmha_model_config *c) {
    return c->irw_width ? c->irw_width : c->d_model / 2;
}

/* ---- Parameters: the list of a model, or of a network built by hand ---- */

#define CMHA__EACH_PARAMETER(one, p) \
    for (cmha_parameter *one = (p)->list; one < (p)->list + (p)->count; one++)

#define CMHA__BY(name, call) \
    static void cmha__by_##name(const cmha_optimiser *optimiser, const cmha_update *u) { \
        (void)optimiser; \
        call; \
    }
CMHA__BY(adamw, cmha_adamw(u->args, u->n, u->p, u->g, u->m, u->v))
CMHA__BY(lion, cmha_lion(u->args, u->n, u->p, u->g, u->m))
CMHA__BY(muon, cmha_momentum(u->args, u->n, u->p, u->g, u->m))
static void cmha__by_sgd(const cmha_optimiser *optimiser, const cmha_update *u) {
    cmha_real d[256];
    (void)optimiser;
    CMHA__IN_PIECES(i, some, u->n, 256) {
        cmha_momentum(u->args, some, d, u->g + i, u->m + i);
        cmha_descend(u->args, some, u->p + i, d);
    }
}
static void cmha__muon_direct(const cmha_optimiser *optimiser, const cmha_adamw_args *args,
        const cmha_matrix *direction, cmha_real *scratch) {
    (void)optimiser;
    cmha_muon(args->scale, direction, scratch);
}
static int cmha__between(const cmha_optimiser *optimiser, const cmha_parameter *one) {
    return (void)optimiser, one->matrices > 0;
}

/* The first is the default, and for what another one does not serve. */
static const cmha_optimiser cmha__optimisers[] = {
    {"adamw", 2, NULL, CMHA__BACK(cmha__by_adamw), NULL, NULL, NULL},
    {"muon", 1, cmha__between, CMHA__BACK(cmha__by_muon), NULL, CMHA__BACK(cmha__muon_direct),
     cmha_muon_scratch},
    {"lion", 1, NULL, CMHA__BACK(cmha__by_lion), NULL, NULL, NULL},
    {"sgd", 1, NULL, CMHA__BACK(cmha__by_sgd), NULL, NULL, NULL}};

static const cmha_optimiser *cmha__optimiser_of(const cmha_parameters *p, const cmha_parameter *one) {
    const cmha_optimiser *row = p->optimiser;
    if (!row || one->chosen == 1) return cmha__optimisers;
    if (row->direct && one->tensor.rank - one->is_complex < 2) return cmha__optimisers;
    return one->chosen == 2 || !row->serves || row->serves(row, one) ? row : cmha__optimisers;
}

/* Returns matrix k of a parameter's numbers at `data`, which are those of several where it is fused or holds
   experts; data NULL beyond the last. */
static cmha_matrix cmha__matrix_at(const cmha_parameter *one, cmha_real *data, size_t k) {
    const cmha_tensor *t = &one->tensor;
    size_t rows = t->shape[t->rank - 2], parts = one->matrices > 1 ? (size_t)one->matrices : 1;
    cmha_matrix m = {NULL, rows % parts ? rows : rows / parts, t->shape[t->rank - 1], 0};
    if (one->is_complex) m.imag = t->size / 2;
    if ((k + 1) * m.R * m.C <= t->size / (one->is_complex ? 2 : 1)) m.data = data + k * m.R * m.C;
    return m;
}

/* Lays all first moments, all second ones, all means, then each thread's scratch. */
static void cmha__lay_moments(cmha_parameters *p) {
    size_t scratch = 0;
    p->kept = 0;
    for (int i = 0; i < 3; i++)
        CMHA__EACH_PARAMETER(one, p) {
            const cmha_optimiser *row = cmha__optimiser_of(p, one);
            int keeps = !one->frozen && (i < 2 ? row->moments > i : p->averages);
            one->kept[i] = keeps ? p->kept : SIZE_MAX;
            if (keeps) p->kept += one->tensor.size;
            if (!row->direct || !row->scratch || one->frozen) continue;
            cmha_matrix m = cmha__matrix_at(one, NULL, 0);
            size_t need = row->scratch(m.R, m.C, one->is_complex);
            if (need > scratch) scratch = need;
        }
    p->work = p->kept;
    if (!cmha__sum(p->kept, cmha__times(scratch, (size_t)p->context->threads), &p->kept)) p->kept = SIZE_MAX;
}

/* Lays the numbers that learn one after another; points tensors at their gradients, grad NULL: at none. One
   product's matrix has a gradient where all its parameters do. */
static void cmha__attach_grad(cmha_parameters *p, cmha_real *grad) {
    cmha__lay_moments(p);
    p->learning = 0;
    CMHA__EACH_PARAMETER(one, p) {
        const cmha_parameter *first = one;
        int learns = grad && !one->frozen;
        one->place = p->learning;
        if (!one->frozen) p->learning += one->tensor.size;
        one->tensor.needs_grad = learns;
        one->tensor.grad = learns ? grad + one->place : NULL;
        while (one->matrix.data && first->tensor.data != one->matrix.data) learns &= !(--first)->frozen;
        one->matrix.needs_grad = learns;
        one->matrix.grad = learns ? grad + first->place : NULL;
    }
}

static cmha_status cmha__take_zeros(const cmha_parameters *p, size_t n, cmha_real **zeros) {
    *zeros = n ? (cmha_real *)cmha__take(p->context, "moments", cmha__times(n, sizeof **zeros)) : NULL;
    if (*zeros) cmha__zeros(*zeros, n);
    return *zeros || !n ? CMHA_OK : CMHA_ERR_MEMORY;
}

/* Begins the means of what learns, in moments, with the weights. */
static void cmha__begin_means(const cmha_parameters *p, cmha_real *moments) {
    CMHA__EACH_PARAMETER(one, p)
        if (one->kept[2] != SIZE_MAX) cmha__copy(moments + one->kept[2], one->tensor.data, one->tensor.size);
}

static cmha_status cmha__holds_numbers(const cmha_parameters *p) {
    CMHA__EACH_PARAMETER(one, p)
        if (one->tensor.packed)
            return CMHA__REFUSED(p->context, "parameters: %s is packed, it stays as it is", one->name);
    return CMHA_OK;
}

static cmha_status cmha__need_grad(cmha_parameters *p) {
    cmha_status status = cmha__holds_numbers(p);
    if (status || p->grad || !p->learning) return status;
    if (!CMHA__TRAINS) return CMHA__REFUSED(p->context, "parameters: CMHA_INFERENCE_ONLY");
    status = cmha__take_zeros(p, p->learning, &p->grad);
    cmha__attach_grad(p, p->grad);
    return status;
}

CMHA__FIT void cmha_parameters_zero_grad(cmha_parameters *p) {
    if (p && p->grad) cmha__clear(p->context->threads, p->grad, p->learning);
}

CMHA_DEF cmha_parameter *cmha_parameters_find(const cmha_parameters *p, const char *name) {
    if (p && name)
        CMHA__EACH_PARAMETER(one, p)
            if (!strcmp(one->name, name)) return one;
    return NULL;
}

CMHA_DEF void cmha_parameters_close(cmha_parameters *p) {
    if (!p || !p->context) return;
    cmha__give(p->context, p->data, p->size * sizeof *p->data);
    cmha__give(p->context, p->grad, p->learning * sizeof *p->grad);
    cmha__give(p->context, p->moments, p->kept * sizeof *p->moments);
    cmha__give(p->context, p->memory, p->bytes);
    cmha__zero(*p);
}

/* Appends axes up to the first 0 to a shape. Returns whether the size fits. */
static int cmha__add_axes(cmha_tensor *t, const size_t *axes, int most) {
    int fits = 1;
    for (int i = 0; i < most; i++) {
        if (!axes[i]) break;
        t->shape[t->rank++] = axes[i];
        fits &= cmha__mul(t->size, axes[i], &t->size);
    }
    return fits;
}

/* Says what is wrong with a row, or NULL; t becomes its tensor. */
static const char *cmha__row_wrong(const cmha_parameters *p, const cmha_parameter_row *row, cmha_tensor *t) {
    size_t length = row->name ? strlen(row->name) : 0;
    t->size = 1;
    int fits = cmha__add_axes(t, row->shape, CMHA_MAX_RANK);
    if (!length || length >= sizeof p->list->name || !cmha__is_utf8(row->name) ||
        !strncmp(row->name, "optim.", 6) || !strcmp(row->name, "__metadata__"))
        return "its name is not 1 to 47 bytes of UTF-8, or a file's own";
    if (cmha_parameters_find(p, row->name)) return "there are two of that name";
    if (!t->rank || (row->is_complex && t->shape[0] != 2)) return "it has no shape, or not 2 parts";
    if (!fits || t->size > SIZE_MAX / sizeof(cmha_real) / 8 - p->size) return "its size overflows";
    if (!(fabs(row->mean) <= FLT_MAX && fabs(row->spread) <= FLT_MAX)) return "its start is not finite";
    return row->decay >= 0 && row->decay <= 1e6 ? NULL : "its decay is out of range";
}

CMHA_DEF cmha_status cmha_parameters_init(cmha_parameters *p, cmha_context *context,
        const cmha_parameter_row *rows, size_t count) {
    if (!p) return CMHA__WRONG(context, "parameters: p is NULL");
    cmha__zero(*p);
    if (!cmha__is_open(context)) return CMHA_ERR_STATE;
    if (!rows || !count) return CMHA__WRONG(context, "parameters: %s", rows ? "count = 0" : "rows is NULL");
    cmha__array arrays[] = {CMHA__ARRAY(p->sums, (size_t)context->threads), CMHA__ARRAY(p->list, count)};
    cmha_status status = cmha__take_arrays(context, "parameters", arrays, 2, &p->bytes, NULL);
    p->context = context;
    if (!status) p->memory = memset(p->sums, 0, p->bytes);
    for (size_t i = 0; !status && i < count; i++) {
        cmha_parameter *one = &p->list[i];
        const char *wrong = cmha__row_wrong(p, &rows[i], &one->tensor);
        if (wrong) status = CMHA__WRONG(context, "parameters: row %zu: %s", i, wrong);
        if (wrong) break;
        memcpy(one->name, rows[i].name, strlen(rows[i].name));
        p->count++;
        p->size += one->tensor.size;
        one->is_complex = rows[i].is_complex != 0;
        one->lr_scale = 1;
        one->decay = one->usual_decay = rows[i].decay;
        one->matrices = one->tensor.rank - one->is_complex >= 2;
    }
    if (!status) p->data = (cmha_real *)cmha__take(context, "parameters", p->size * sizeof *p->data);
    if (!status && !p->data) status = CMHA_ERR_MEMORY;
    if (!status) {
        for (size_t i = 0, at = 0; i < count; at += p->list[i++].tensor.size) {
            cmha_rng rng = cmha_rng_make(context->config.seed, i);
            cmha_real *data = p->list[i].tensor.data = p->data + at;
            for (size_t k = 0; k < p->list[i].tensor.size; k++)
                data[k] = (cmha_real)(rows[i].mean + rows[i].spread * cmha_rng_normal(&rng));
        }
        cmha__attach_grad(p, NULL);
        status = cmha__need_grad(p);
    }
    if (status) cmha_parameters_close(p);
    return status;
}

/* Copies p, with a list of its own, to plan how it learns. */
static cmha_status cmha__plan(const cmha_parameters *p, cmha_parameters *plan) {
    *plan = *p;
    plan->memory = cmha__take(p->context, "tuning", plan->bytes = p->count * sizeof *p->list);
    plan->list = (cmha_parameter *)plan->memory;
    plan->moments = NULL;
    if (!plan->list) return CMHA_ERR_MEMORY;
    memcpy(plan->list, p->list, plan->bytes);
    return CMHA_OK;
}

/* Takes zeros for the plan's gradients, if others are frozen in it, and if wanted for its moments. */
static cmha_status cmha__plan_lay(const cmha_parameters *p, cmha_parameters *plan, int moments) {
    cmha_status status = CMHA_OK;
    int other = 0;
    cmha__attach_grad(plan, NULL);
    for (size_t i = 0; i < p->count; i++) other |= p->list[i].frozen != plan->list[i].frozen;
    if (other && (p->grad || p->memory || p->optimised)) /* a model's may still come */
        status = cmha__take_zeros(p, plan->learning, &plan->grad);
    if (status || !moments) return status;
    status = cmha__take_zeros(p, plan->kept, &plan->moments);
    if (!status) cmha__begin_means(plan, plan->moments);
    return status;
}

/* Makes p learn as planned, or after a failure drops the plan. */
static cmha_status cmha__plan_end(cmha_parameters *p, cmha_parameters *plan, cmha_status status) {
    cmha_parameters drop = status ? *plan : *p; /* what is not needed any more */
    if (!status) {
        memcpy(p->list, plan->list, plan->bytes);
        p->moments = plan->moments;
        cmha__attach_grad(p, p->grad = plan->grad);
    }
    if (drop.grad != p->grad) cmha__give(p->context, drop.grad, drop.learning * sizeof *p->grad);
    cmha__give(p->context, drop.moments, drop.kept * sizeof *p->grad);
    cmha__give(p->context, plan->memory, plan->bytes);
    return status;
}

/* Returns which patterns of a list with commas a name matches (* is any characters): bit i for pattern i.
   suffix = 1: its end is enough. */
static uint64_t cmha__matches(const char *patterns, const char *name, int suffix) {
    uint64_t which = 0;
    for (int i = 0; patterns; i += i < 63) {
        const char *p = patterns, *at = name, *from = name, *after_star = suffix ? p : NULL;
        while (p && *at) {
            if (*p == '*') {
                after_star = ++p;
                from = at;
            } else if (*p == *at && *p != ',') {
                p++;
                at++;
            } else if ((p = after_star) != NULL) at = ++from;
        }
        while (p && *p == '*') p++;
        which |= (uint64_t)(p && p > patterns && (!*p || *p == ',')) << i;
        patterns = strchr(patterns, ',');
        if (patterns) patterns++;
    }
    return which;
}

/* Sets a member of a parameter; returns whether the value is one. */
static int cmha__tune(cmha_parameter *p, cmha_tuning what, double value) {
    static const double most[CMHA_TUNE_COUNT] = {1, 1e6, 1e6, 2};
    if ((unsigned)what >= CMHA_TUNE_COUNT || !(value >= 0 && value <= most[what])) return 0;
    if (what == CMHA_TUNE_RATE) p->lr_scale = value;
    else if (what == CMHA_TUNE_DECAY) p->decay = value;
    else if (what == CMHA_TUNE_OPTIMISER) p->chosen = (int)value;
    else p->frozen = value > 0;
    return most[what] > 2 || value <= floor(value);
}

CMHA_DEF cmha_status cmha_parameters_tune(cmha_parameters *p, const char *pattern, cmha_tuning what,
        double value, size_t *matched) {
    cmha_parameters plan;
    cmha_parameter any;
    size_t n = 0;
    if (matched) *matched = 0;
    if (!p || !cmha__is_open(p->context)) return CMHA_ERR_STATE;
    if (!pattern || !cmha__tune(&any, what, value))
        return CMHA__WRONG(p->context, "tune: %s; value = %g, what = %d",
            pattern ? "out of range" : "pattern is NULL", value, (int)what);
    cmha_status status = cmha__plan(p, &plan);
    if (status) return status;
    for (size_t i = 0; i < p->count; i++)
        if (cmha__matches(pattern, p->list[i].name, 0)) n += (size_t)cmha__tune(&plan.list[i], what, value);
    if (!n) status = cmha__fail(p->context, CMHA_ERR_NOT_FOUND, "tune: no parameter matches %.60s", pattern);
    if (!status) status = cmha__plan_lay(p, &plan, p->optimised);
    if (plan.moments && !status)
        for (size_t i = 0; i < 3 * p->count; i++) {
            const cmha_parameter *now = &plan.list[i / 3], *old = &p->list[i / 3];
            size_t to = now->kept[i % 3], from = old->kept[i % 3];
            if (to == SIZE_MAX || from == SIZE_MAX) continue;
            cmha__copy(plan.moments + to, p->moments + from, now->tensor.size);
        }
    if (!status && matched) *matched = n;
    return cmha__plan_end(p, &plan, status);
}

/* ---- Parameters: one line each, to declare, start, name, decay, clip ---- */

/* How a parameter starts. Those before LORA_A are packed, those before ZEROS decay. */
enum {
    CMHA__WEIGHT, CMHA__EMBEDDING,
    CMHA__INPUT, /* of features of size 1, to results of size 1 */
    CMHA__RESIDUAL_WEIGHT, /* of a projection into the residual */
    CMHA__MATRIX, /* of Möbius heads: a weight, or orthogonal */
    CMHA__LORA_A, /* U(+-1/sqrt(inputs)), as PEFT has it */
    CMHA__LORA_B, /* zeros */
    CMHA__ZEROS, CMHA__ONES, CMHA__HALVES,
    CMHA__MAPS, /* Möbius maps near the identity */
    CMHA__UNIT, /* 1 + 0i */
    CMHA__GAIN, /* of a complex norm: see cmha__complex_norm_row */
    CMHA__WAVES, /* of the multi-frequency positions */
    CMHA__SHARES, /* of the queries of a reflection window */
    CMHA__GAMMA, /* CoPE's, learned */
    CMHA__CLOSED, /* the bias of its gate: sigmoid(-2) = 0.12 listens to the model; the paper is silent */
    CMHA__OF_SCORE /* and the next ones: parameters of the layer's score */
};

/* What a parameter is in memory, and to its block. */
enum {
    CMHA__REAL,
    CMHA__JOINED, /* more rows of the real matrix before it */
    CMHA__COMPLEX, /* a first axis of 2: real part, imaginary part; and these, which differ elsewhere: */
    CMHA__STACKED, /* the block sees one real matrix of twice the rows */
    CMHA__TURNED, /* products read it by its columns */
    CMHA__EXACT /* stays as it is in a packed model, as what does not decay */
};

/* Axes of a parameter, up to the first 0; without any there is no such parameter. */
typedef struct {
    size_t n[3];
} cmha__axes;

static cmha__axes cmha__axes_of(size_t a, size_t b, size_t c) {
    cmha__axes axes = {{a, b, c}};
    return axes;
}

/* A list of parameters in the making, in file order; without a table in the model only counted. */
struct cmha__list {
    cmha_model *model;
    char prefix[32]; /* of the names in a layer */
    const char *sought; /* NULL, or a name; found: a parameter has it, or in another configuration would */
    int found;
    size_t section; /* see cmha_record */
    size_t next[2]; /* places of the next parameter and of the next adapter's, behind all others */
    uint64_t adapted; /* which patterns of lora_on have named a matrix */
};

static size_t cmha__feature_width(const cmha_model_config *c) {
    return c->complex_features ? 2 * c->features : c->features;
}

/* Returns the program's score of a layer's heads; NULL: they are of the kind `plain`. */
static const cmha_score *cmha__layer_score(const cmha_model *m, size_t layer) {
    return (int)cmha__layer_family(&m->config, layer)->family == m->config.family ? m->score : NULL;
}

/* Appends a parameter, if it has axes. *member gets what a block sees. A size that overflows stays SIZE_MAX.
   Returns it, NULL where there is none or no table. */
static cmha_parameter *cmha__append(cmha__list *to, const char *name, cmha_tensor **member, int start,
        int form, cmha__axes axes) {
    cmha_parameters *all = &to->model->parameters;
    cmha_parameter *p = NULL;
    int is_complex = form >= CMHA__COMPLEX, adapts = start == CMHA__LORA_A || start == CMHA__LORA_B;
    size_t *place = &to->next[adapts];
    cmha_tensor t;
    to->found |= to->sought && !strcmp(name, to->sought);
    if (!axes.n[0]) return NULL;
    cmha__zero(t);
    t.rank = is_complex;
    t.size = t.shape[0] = is_complex ? 2 : 1;
    int fits = cmha__add_axes(&t, axes.n, 3);
    if (all->list) {
        p = &all->list[*place];
        cmha_tensor *matrix = &p->matrix;
        cmha__line(p->name, "%s%s", to->prefix, name);
        p->start = start;
        p->form = form;
        p->is_complex = is_complex;
        p->section = to->section;
        p->lr_scale = 1;
        p->decay = p->usual_decay = start < CMHA__ZEROS;
        p->matrices = *to->prefix && axes.n[1] && start <= CMHA__LORA_B;
        p->usual_frozen = to->model->config.lora_rank && !adapts;
        p->frozen = p->usual_frozen;
        p->tensor = t;
        if (form == CMHA__STACKED) {
            *matrix = t;
            matrix->rank--;
            matrix->shape[0] = 2 * t.shape[1];
            matrix->shape[1] = t.shape[2];
        } else if (form == CMHA__JOINED) {
            *matrix = **member;
            matrix->shape[0] += t.shape[0];
            matrix->size += t.size;
        }
        *member = matrix->rank ? matrix : &p->tensor;
    }
    ++*place;
    all->count++;
    if (!fits || !cmha__sum(all->size, t.size, &all->size)) all->size = SIZE_MAX;
    return p;
}

/* Appends it, and the adapter B A of a block's matrix [a, b] that lora_on names: A [rank, b] and B [a, rank],
   complex where it is. Only what cmha__project reads has any: no experts, routers, low ranks and windows. */
static cmha_parameter *cmha__declare(cmha__list *to, const char *name, cmha_tensor **member, int start,
        int form, cmha__axes axes) {
    const cmha_model_config *c = &to->model->config;
    const char *end = strstr(name, ".weight");
    const int forms[2] = {form == CMHA__JOINED ? CMHA__REAL : form,
            form >= CMHA__COMPLEX ? CMHA__COMPLEX : CMHA__REAL};
    char own[48];
    cmha_parameter *p = cmha__append(to, name, member, start, form, axes);
    if (!c->lora_rank || !axes.n[0] || !axes.n[1] || axes.n[2] || !end || !*to->prefix ||
        start > CMHA__MATRIX || form > CMHA__STACKED || !strncmp(name, "irw.", 4)) return p;
    cmha__line(own, "%.*s", (int)(end - name), name);
    uint64_t named = cmha__matches(c->lora_on, own, 1);
    to->adapted |= named;
    if (!named) return p;
    if (p) p->adapter = to->next[1];
    for (int i = 0; i < 2; i++) {
        cmha_tensor *none = NULL;
        cmha__axes factor = axes;
        factor.n[i] = c->lora_rank;
        cmha__line(own, "%.*s.lora_%c", (int)(end - name), name, "ab"[i]);
        cmha__append(to, own, &none, CMHA__LORA_A + i, forms[i], factor);
    }
    return p;
}

/* A parameter of the block or model `at`. */
#define CMHA__ROW(name, member, start, form, a, b) \
    cmha__declare(to, name, &at->member, CMHA__##start, CMHA__##form, cmha__axes_of(a, b, 0))
#define CMHA__BIASED(name, member, has_bias, start, form, a, b) /* a weight and its bias */ \
    CMHA__ROW(name ".weight", member##_weight, start, form, a, b); \
    CMHA__ROW(name ".bias", member##_bias, ZEROS, form, (has_bias) ? (a) : 0, 0)
#define CMHA__NORM(name, m, complex_state) \
    cmha__declare_norm(to, name ".weight", &at->m##_weight, name ".bias", &at->m##_bias, complex_state)

/* The activation of head_transform: GeGLU's without its gate. */
static cmha_activation cmha__head_activation(const cmha_model_config *c) {
    if (c->activation == CMHA_ACTIVATION_GEGLU_ERF) return CMHA_ACTIVATION_GELU_ERF;
    if (c->activation == CMHA_ACTIVATION_GEGLU_TANH) return CMHA_ACTIVATION_GELU_TANH;
    return (cmha_activation)c->activation;
}

/* Declares a norm's gain and offset. */
static void cmha__declare_norm(cmha__list *to, const char *gain, cmha_tensor **weight, const char *offset,
        cmha_tensor **bias, int complex_state) {
    const cmha_model_config *c = &to->model->config;
    const cmha__complex_norm_row *row = complex_state ? &cmha__complex_norms[c->complex_norm] : NULL;
    const int *numbers = row ? row->op.shared : cmha__norms[c->norm].shared;
    int usual = cmha__norm_plus[c->norm] ? CMHA__ZEROS : CMHA__ONES, form = row ? CMHA__COMPLEX : CMHA__REAL;
    cmha__axes one = {{row ? c->d_model / 2 : c->d_model, 0, 0}}, axes = one;
    if (numbers[0] < 0) axes.n[0] = 1;
    if (numbers[0] > 2) axes = cmha__axes_of((size_t)numbers[0], one.n[0], 0);
    cmha__declare(to, gain, weight, row ? CMHA__GAIN : usual, numbers[0] == 2 ? form : CMHA__REAL, axes);
    if (row ? row->centred : numbers[1]) cmha__declare(to, offset, bias, CMHA__ZEROS, form, one);
}

/* Declares a score's parameters; bare: of plain heads; keys: numbers in a token's keys. */
static void cmha__declare_score(cmha__list *to, const cmha_score *score, int bare, size_t heads, size_t keys,
        cmha_block *at) {
    const cmha_model_config *c = &to->model->config;
    size_t width = cmha__head_width(c) / (bare && score->planes == 2 ? 2 : 1); /* complex numbers, or reals */
    size_t share = c->share == CMHA_SHARE_PER_HEAD ? heads : c->share == CMHA_SHARE_SHARED;
    for (size_t i = 0; i < score->n_parameters; i++) {
        const cmha_score_parameter *p = &score->parameters[i];
        cmha__axes axes = {{0, 0, 0}};
        char name[48];
        for (int j = 0; j < 3; j++)
            switch (p->axes[j]) {
            case CMHA_AXIS_HEADS: axes.n[j] = heads; break;
            case CMHA_AXIS_SHARE: axes.n[j] = share; break;
            case CMHA_AXIS_MODEL: axes.n[j] = c->d_model; break;
            case CMHA_AXIS_KEYS: axes.n[j] = keys; break;
            default: axes.n[j] = cmha__axis(score, p->axes[j], width, bare ? c->rotary_dims : 0);
            }
        cmha__line(name, "attn.%s", p->name);
        cmha_parameter *own =
            cmha__declare(to, name, &at->score[i], CMHA__OF_SCORE + (int)i, CMHA__REAL, axes);
        if (!own) continue;
        own->decay = own->usual_decay = p->decay;
        own->matrices = p->spread < 0 && axes.n[1];
    }
}

/* Declares the gains of queries' and keys' norms; q, kv: numbers of all heads. */
static void cmha__declare_qk_norm(cmha__list *to, size_t q, size_t kv, cmha_block *at) {
    const cmha_model_config *c = &to->model->config;
    int start = c->qk_norm == CMHA_QK_NORM_RMS_ONE_PLUS ? CMHA__ZEROS : CMHA__ONES;
    if (c->qk_norm < CMHA_QK_NORM_RMS_GAIN) return;
    if (c->qk_norm != CMHA_QK_NORM_RMS_WHOLE) q = kv = cmha__head_width(c);
    cmha__declare(to, "attn.q_norm.weight", &at->q_norm, start, CMHA__REAL, cmha__axes_of(q, 0, 0));
    cmha__declare(to, "attn.k_norm.weight", &at->k_norm, start, CMHA__REAL, cmha__axes_of(kv, 0, 0));
}

/* Declares Möbius heads, together of `maps` numbers. */
static void cmha__declare_mobius(cmha__list *to, size_t maps, cmha_block *at) {
    int mode = to->model->config.mobius_mode;
    size_t literal = mode == CMHA_MOBIUS_MODE_LITERAL ? maps : 0;
    size_t full = mode == CMHA_MOBIUS_MODE_FULL ? maps : 0, d = to->model->config.d_model;
    CMHA__BIASED("attn.mobius_q", zq, 1, MATRIX, COMPLEX, maps - literal, d);
    CMHA__ROW("attn.mobius_divisor.weight", divisor_weight, MATRIX, COMPLEX, full, d);
    CMHA__ROW("attn.mobius_divisor.bias", divisor_bias, UNIT, COMPLEX, full, 0);
    cmha__declare(to, "attn.mobius", &at->mobius, CMHA__MAPS, CMHA__REAL,
        cmha__axes_of(full ? 0 : 4, 2, maps));
    CMHA__BIASED("attn.mobius_k", zk, 1, MATRIX, COMPLEX, maps - literal, d);
    CMHA__ROW("attn.mobius_k.weight", zk_weight, UNIT, COMPLEX, literal, 0);
    CMHA__BIASED("attn.mobius_v", zv, 1, MATRIX, COMPLEX, maps - literal, d);
    CMHA__ROW("attn.mobius_v.weight", zv_weight, UNIT, COMPLEX, literal, 0);
}

/* Layers of the real family, CoPE and MöbiusAttention. */
static void cmha__declare_layer(cmha__list *to, size_t layer, cmha_block *at) {
    const cmha_model_config *c = &to->model->config;
    const cmha_score *score = cmha__layer_score(to->model, layer);
    const size_t d = c->d_model, ff = c->d_ff, width = cmha__head_width(c), P = width / 2;
    cmha_family family = cmha__layer_family(c, layer)->family;
    int qkv_bias = c->attention_bias || c->qkv_bias;
    int out_bias = c->attention_bias || c->output_bias, mobius = family == CMHA_FAMILY_MOBIUS;
    size_t heads = score && score->attend ? 0 : cmha__plain_heads(c, layer);
    size_t all_keys = cmha__kv_heads(c) * width, q = heads * width, kv = heads == c->n_heads ? all_keys : q;
    size_t gate = cmha__is_gated(c->activation) ? ff : 0;
    size_t results = c->n_heads + heads * (cmha__fan(to->model->plain) - 1); /* heads that wo reads */
    size_t cope = family == CMHA_FAMILY_COPE ? d : 0;
    const cmha_score *row = cope ? score : to->model->plain; /* log_temp comes behind its parameters */
    size_t own = row ? row->n_parameters : 0, temps = heads * cmha__fan(row);
    if (cope && (score || c->cope_score != CMHA_COPE_SCORE_LINEAR)) temps = c->n_heads;
    size_t maps = mobius ? c->mobius_heads * width : 0;
    size_t imag = mobius && !heads ? d : 0; /* the channel of Möbius heads alone */
    int before = c->placement != CMHA_PLACEMENT_AFTER, after = c->placement >= CMHA_PLACEMENT_SANDWICH;
    if (before && (layer || c->first_norm)) CMHA__NORM("ln1", ln1, 0);
    CMHA__ROW("attn.wq.weight", qkv_weight, WEIGHT, REAL, q, d);
    CMHA__ROW("attn.wk.weight", qkv_weight, WEIGHT, JOINED, kv, d);
    CMHA__ROW("attn.wv.weight", qkv_weight, WEIGHT, JOINED, kv, d);
    CMHA__ROW("attn.wq.bias", qkv_bias, ZEROS, REAL, qkv_bias ? q : 0, 0);
    CMHA__ROW("attn.wk.bias", qkv_bias, ZEROS, JOINED, qkv_bias ? kv : 0, 0);
    CMHA__ROW("attn.wv.bias", qkv_bias, ZEROS, JOINED, qkv_bias ? kv : 0, 0);
    if (maps) cmha__declare_mobius(to, maps, at);
    CMHA__ROW("attn.wq.weight", zq_weight, WEIGHT, COMPLEX, cope, cope);
    CMHA__ROW("attn.wk.weight", zk_weight, WEIGHT, COMPLEX, cope, cope);
    CMHA__ROW("attn.wv.weight", zv_weight, WEIGHT, REAL, cope, cope);
    CMHA__BIASED("attn.wo", wo, out_bias, RESIDUAL_WEIGHT, REAL, d, heads ? results * width : d);
    if (heads && !score) cmha__declare_score(to, to->model->plain, 1, heads, all_keys, at);
    CMHA__ROW("attn.log_temp", score[own], ZEROS, REAL, c->head_temperature ? temps : 0, 0);
    if (heads || cope) cmha__declare_qk_norm(to, q, kv, at);
    CMHA__ROW("attn.mobius_log_temp", mobius_temp, ZEROS, REAL, c->head_temperature ? maps / width : 0, 0);
    CMHA__ROW("attn.pcl_w", pcl_w, ONES, REAL, heads && c->pcl_weight > 0 && c->pcl_learn ? P : 0, 0);
    if (after) CMHA__NORM("ln1_out", ln1_out, 0);
    if (before && c->parallel != CMHA_PARALLEL_NORM) CMHA__NORM("ln2", ln2, 0);
    if (mobius) CMHA__NORM("ln3", ln3, 0);
    CMHA__ROW("ffn.w1.weight", w1_weight, WEIGHT, REAL, ff, d);
    CMHA__ROW("ffn.w3.weight", w1_weight, WEIGHT, JOINED, gate, d);
    CMHA__ROW("ffn.w1.bias", w1_bias, ZEROS, REAL, c->ffn_bias ? ff : 0, 0);
    CMHA__ROW("ffn.w3.bias", w1_bias, ZEROS, JOINED, c->ffn_bias ? gate : 0, 0);
    CMHA__BIASED("ffn.w2", w2, c->ffn_bias, RESIDUAL_WEIGHT, REAL, d, ff);
    if (after) CMHA__NORM("ln2_out", ln2_out, 0);
    CMHA__BIASED("attn.wo_imag", imag_wo, out_bias, RESIDUAL_WEIGHT, REAL, imag, d);
    CMHA__BIASED("ffn.w1_imag", imag_w1, c->ffn_bias, WEIGHT, REAL, imag ? ff + gate : 0, d);
    CMHA__BIASED("ffn.w2_imag", imag_w2, c->ffn_bias, RESIDUAL_WEIGHT, REAL, imag, ff);
    if (score)
        cmha__declare_score(to, score, !cope, c->n_heads * cmha__fan(score), all_keys, at);
}

#define CMHA__LOW_RANK(name, g, part) \
    CMHA__ROW(name ".u", group[g].u[part], WEIGHT, COMPLEX, rank ? width[g] : 0, rank); \
    CMHA__ROW(name ".v", group[g].v[part], WEIGHT, TURNED, width[g] ? low : 0, rank)
/* Real and imaginary heads read one real number a channel: one real product takes both planes' rows. */
#define CMHA__CRAT_HEADS(name, g, form) \
    CMHA__LOW_RANK("attn." name ".wq", g, 0); \
    CMHA__LOW_RANK("attn." name ".wk", g, 1); \
    CMHA__LOW_RANK("attn." name ".wv", g, 2); \
    qkv = CMHA__ROW("attn." name ".wqkv.weight", group[g].weight, WEIGHT, form, \
        rank ? 0 : 3 * width[g], half); \
    if (qkv) qkv->matrices = 3; \
    CMHA__ROW("attn." name ".log_temp", group[g].temp, ZEROS, REAL, width[g] / head * tempers, 0)
#define CMHA__SKIP(name, sum) \
    CMHA__ROW(name ".alpha", alpha[sum], ONES, REAL, free, 0); \
    CMHA__ROW(name ".beta", beta[sum], ZEROS, REAL, free, 0); \
    CMHA__ROW(name ".psi", alpha[sum], ZEROS, REAL, unit, 0)
#define CMHA__EXPERTS(name, member, start, a, b) \
    cmha__declare(to, name ".weight", &at->member##_weight, CMHA__##start, CMHA__COMPLEX, \
        cmha__axes_of(c->experts, a, b)); \
    CMHA__ROW(name ".bias", member##_bias, ZEROS, COMPLEX, c->ffn_bias ? c->experts : 0, a)

static void cmha__declare_crat(cmha__list *to, size_t layer, cmha_block *at) {
    const cmha_model_config *c = &to->model->config;
    const size_t half = c->d_model / 2, half_ff = c->d_ff / 2, head = half / c->n_heads;
    size_t first = cmha__first_window(c), found = cmha__window_width(c), asked = c->irw_queries * found;
    size_t free = c->complex_residual == CMHA_RESIDUAL_FREE, unit = c->complex_residual == CMHA_RESIDUAL_UNIT;
    size_t rank = c->low_rank, low = rank ? half : 0, tempers = c->head_temperature != 0;
    size_t width[3] = {c->real_heads * head, c->imag_heads * head, cmha__group_heads(c, 2) * head};
    size_t one_ff = c->experts ? 0 : half_ff, one_out = c->experts ? 0 : half; /* the dense layer */
    cmha_parameter *qkv;
    CMHA__NORM("ln1", ln1, 1);
    CMHA__CRAT_HEADS("real", 0, STACKED);
    CMHA__CRAT_HEADS("imag", 1, STACKED);
    CMHA__CRAT_HEADS("mixed", 2, COMPLEX);
    cmha__declare(to, "attn.wo.u", &at->wo_u, c->residual_zero ? CMHA__RESIDUAL_WEIGHT : CMHA__WEIGHT,
        CMHA__COMPLEX, cmha__axes_of(low, rank, 0));
    CMHA__ROW("attn.wo.v", wo_v, WEIGHT, TURNED, low, rank);
    CMHA__ROW("attn.wo.weight", wo_weight, RESIDUAL_WEIGHT, COMPLEX, half - low, half);
    if (layer >= first && layer - first < c->irw_layers) {
        CMHA__ROW("irw.query.weight", irw.wm, WEIGHT, COMPLEX, asked, half);
        CMHA__ROW("irw.query.bias", irw.bm, ZEROS, COMPLEX, asked, 0);
        CMHA__ROW("irw.mix", irw.w_logits, SHARES, REAL, c->irw_queries, 0);
        CMHA__ROW("irw.value.weight", irw.wv, WEIGHT, COMPLEX, half, found);
        CMHA__ROW("irw.gate.weight", irw.wg, WEIGHT, REAL, half, 2 * half + 2 * found);
        CMHA__ROW("irw.gate.bias", irw.bg, CLOSED, REAL, half, 0);
    }
    CMHA__SKIP("res1", 0);
    CMHA__NORM("ln2", ln2, 1);
    CMHA__ROW("ffn.router.weight", router_weight, WEIGHT, EXACT, c->experts, half);
    CMHA__ROW("ffn.router.bias", router_bias, ZEROS, REAL, c->experts, 0);
    CMHA__EXPERTS("ffn.experts.w1", w1, WEIGHT, half_ff, half);
    CMHA__EXPERTS("ffn.experts.w2", w2, RESIDUAL_WEIGHT, half, half_ff);
    CMHA__BIASED("ffn.w1", w1, c->ffn_bias, WEIGHT, COMPLEX, one_ff, half);
    CMHA__BIASED("ffn.w2", w2, c->ffn_bias, RESIDUAL_WEIGHT, COMPLEX, one_out, half_ff);
    CMHA__SKIP("res2", 1);
}

/* The model's own before its blocks. */
static void cmha__declare_embeddings(cmha__list *to, cmha_model *at) {
    const cmha_model_config *c = &at->config;
    const size_t d = c->d_model, state = cmha__complex_state(c) ? d / 2 : 0; /* crat's */
    int cope = c->family == CMHA_FAMILY_COPE, two = c->complex_features && c->family != CMHA_FAMILY_REAL;
    int learned = c->position == CMHA_POSITION_LEARNED || (cope && c->cope_imag == CMHA_COPE_IMAG_LEARNED);
    size_t channels = two ? 0 : cmha__feature_width(c), complex_in = two ? d - state : 0;
    size_t terms = c->position == CMHA_POSITION_MULTIFREQ || state ? c->pe_terms : 0;
    size_t content = c->tokens || channels ? state : 0, turned = c->state_rotation ? state : 0;
    CMHA__ROW("tok_emb.weight", token_weight, EMBEDDING, REAL, c->tokens ? c->vocabulary : 0, d);
    CMHA__BIASED("feature", feature, 1, INPUT, REAL, channels ? d : 0, channels);
    CMHA__ROW("feature.weight", feature_weight, INPUT, COMPLEX, complex_in, c->features);
    CMHA__ROW("pos_emb.weight", position_weight, EMBEDDING, REAL, learned ? c->max_positions : 0, d);
    CMHA__ROW("type_emb.weight", type_weight, EMBEDDING, REAL, c->token_types, d);
    CMHA__ROW("cope.gamma", gamma, GAMMA, REAL, cope && c->cope_gamma_learned ? 1 : 0, 0);
    if (c->embedding_norm) CMHA__NORM("emb_norm", emb_norm, 0);
    CMHA__ROW("pe.omega", pe_omega, WAVES, REAL, terms, d);
    CMHA__ROW("pe.delta", pe_delta, WAVES, REAL, terms, d);
    CMHA__BIASED("state", state, 1, WEIGHT, STACKED, content, d);
    CMHA__BIASED("state.theta", theta, 1, WEIGHT, REAL, turned, d);
}

/* And behind them. */
static void cmha__declare_heads(cmha__list *to, cmha_model *at) {
    const cmha_model_config *c = &at->config;
    const size_t d = c->d_model, predicted = c->values * (c->gaussian ? 2 : 1);
    size_t transformed = c->head_transform && c->vocabulary ? d : 0, pooled = c->pooler && c->classes ? d : 0;
    if (c->placement != CMHA_PLACEMENT_POST) CMHA__NORM("ln_f", final, 0);
    int dense_bias = c->ffn_bias || !cmha__is_gated(c->activation);
    CMHA__BIASED("head_dense", head_dense, dense_bias, WEIGHT, REAL, transformed, d);
    if (transformed) CMHA__NORM("head_norm", head_norm, 0);
    CMHA__ROW("head.weight", head_weight, WEIGHT, REAL, c->tied && c->tokens ? 0 : c->vocabulary, d);
    CMHA__ROW("head.bias", head_bias, ZEROS, REAL, c->head_bias ? c->vocabulary : 0, 0);
    CMHA__BIASED("pool", pool, 1, WEIGHT, REAL, pooled, d);
    CMHA__BIASED("class", class, 1, WEIGHT, REAL, c->classes, d);
    CMHA__BIASED("value", value, 1, WEIGHT, REAL, predicted, d);
}

/* What mixes a layer's input and values with those of the first one. */
static void cmha__declare_mix(cmha__list *to, cmha_block *at) {
    const cmha_model_config *c = &to->model->config;
    const size_t mixes = (size_t)c->residual_mix, values = (size_t)c->value_residual; /* 0: there is none */
    CMHA__ROW("mix.own", mix[0], ONES, REAL, mixes, 0);
    CMHA__ROW("mix.first", mix[1], ZEROS, REAL, mixes, 0);
    CMHA__ROW("attn.value_own", value_mix[0], HALVES, REAL, values, 0);
    CMHA__ROW("attn.value_first", value_mix[1], HALVES, REAL, values, 0);
}

/* Declares all parameters: at first to count, then to describe them. *others: so many stand before adapters,
   which it counts. */
static cmha_status cmha__declare_all(cmha_model *model, size_t *others) {
    const cmha_model_config *c = &model->config;
    const char *on = c->lora_rank ? c->lora_on : NULL;
    cmha__list to = {model, "", NULL, 0, 0, {0, *others}, 0};
    cmha_block counted;
    model->parameters.count = model->parameters.size = 0;
    cmha__declare_embeddings(&to, model);
    for (size_t i = 0; i < c->n_layers; i++) {
        to.section = i + 1;
        cmha__line(to.prefix, "blocks.%zu.", i);
        cmha_block *block = model->blocks ? &model->blocks[i] : &counted;
        cmha__declare_mix(&to, block);
        cmha__layer_family(c, i)->declare(&to, i, block);
    }
    to.prefix[0] = 0;
    to.section++;
    cmha__declare_heads(&to, model);
    *others = to.next[0];
    for (; on; to.adapted >>= 1, on = strchr(on, ',') ? strchr(on, ',') + 1 : NULL)
        if (!(to.adapted & 1))
            return CMHA__WRONG(model->context, "model: lora_on: \"%.*s\" names no matrix of the blocks that "
                    "can have an adapter", (int)strcspn(on, ","), on);
    return CMHA_OK;
}

/* Points what is not packed at its numbers, and counts these. */
static void cmha__place_numbers(cmha_parameters *p, cmha_real *data) {
    p->data = data;
    p->size = 0;
    CMHA__EACH_PARAMETER(one, p) {
        cmha_tensor *t = &one->tensor;
        t->data = t->packed ? NULL : data + p->size;
        one->matrix.data = one->form == CMHA__JOINED ? one[-1].matrix.data : t->data;
        one->matrix.packed = t->packed;
        if (!t->packed) p->size += t->size;
    }
    cmha__attach_grad(p, NULL);
}

/* Makes the smaller side's vectors orthonormal, by modified Gram-Schmidt twice; A [rows, cols]. */
static void cmha__orthogonalise(cmha_real *A, size_t rows, size_t cols) {
    size_t wide = rows < cols, n = wide ? rows : cols, m = wide ? cols : rows;
    size_t vec = wide ? cols : 1, step = wide ? 1 : cols;
    for (size_t i = 0; i < n; i++) {
        cmha_real *v = A + i * vec;
        double norm = 0;
        for (int again = 0; again < 2; again++)
            for (size_t j = 0; j < i; j++) {
                const cmha_real *u = A + j * vec;
                double dot = 0;
                for (size_t k = 0; k < m; k++) dot += (double)v[k * step] * u[k * step];
                for (size_t k = 0; k < m; k++) v[k * step] -= (cmha_real)(dot * (double)u[k * step]);
            }
        for (size_t k = 0; k < m; k++) norm += (double)v[k * step] * v[k * step];
        norm = norm > 0 ? 1 / sqrt(norm) : 0;
        for (size_t k = 0; k < m; k++) v[k * step] = (cmha_real)((double)v[k * step] * norm);
    }
}

/* Returns the mean of number i of a parameter; of complex gains the matrix 1, or what leaves variance 1/2 a
   part. */
static double cmha__first_value(const cmha_model_config *c, int start, const cmha_tensor *t, size_t i,
    double mean) {
    const cmha__complex_norm_row *norm = &cmha__complex_norms[c->complex_norm];
    size_t row = i / cmha__last(t);
    if (start == CMHA__MAPS) return row / 2 % 3 == 0 && row % 2 == 0; /* a = d = 1 */
    if (start == CMHA__UNIT) return i < t->size / 2;
    if (start != CMHA__GAIN) return mean;
    int n = (int)row + 1, diagonal = norm->entry[0] == n || norm->entry[3] == n;
    return diagonal && norm->spread == CMHA__SPREAD_MATRIX ? 0.70710678118654752440 : diagonal;
}

/* Writes a parameter's first numbers: normal ones around a mean, or by XAVIER uniform ones. */
static void cmha__start_parameter(const cmha_model *model, size_t index) {
    const cmha_model_config *c = &model->config;
    const cmha_parameter *p = &model->parameters.list[index];
    const cmha_tensor *t = &p->tensor;
    cmha_rng rng = cmha_rng_make(model->context->config.seed, index);
    int start = p->start, orthogonal = start == CMHA__MATRIX && c->mobius_init == CMHA_MOBIUS_INIT_ORTHO;
    int weighs = p->usual_decay > 0 && start != CMHA__LORA_B;
    size_t cols = t->shape[t->rank - 1], rows = t->rank > 1 ? t->shape[t->rank - 2] : 1;
    double bound = start == CMHA__EMBEDDING ? 0.1
            : start == CMHA__LORA_A ? 1 / sqrt((double)cols)
            : sqrt(6.0 / (double)(rows + cols));
    double mean = 0, spread = weighs ? c->init_std : 0;
    double (*first)(const cmha_model_config *config, cmha_rng *rng) = NULL;
    if (orthogonal) spread = 1;
    switch (start) {
    case CMHA__INPUT: spread = 1 / sqrt((double)cols); break;
    case CMHA__RESIDUAL_WEIGHT:
        weighs &= !c->residual_zero;
        spread = weighs ? spread / sqrt(2.0 * (double)c->n_layers) : 0;
        break;
    case CMHA__MAPS: spread = 0.02; break;
    case CMHA__ONES: mean = 1; break;
    case CMHA__HALVES: mean = 0.5; break;
    case CMHA__GAMMA: mean = c->cope_gamma; break;
    case CMHA__CLOSED: mean = -2; break;
    case CMHA__SHARES: mean = c->irw_raw ? 1 / (double)c->irw_queries : 0; break;
    case CMHA__WAVES: /* writes both of them, each time the same */
        cmha_multifreq_waves(c->pe_terms, c->d_model, c->base, model->pe_omega->data, model->pe_delta->data);
        return;
    }
    if (start >= CMHA__OF_SCORE) {
        const cmha_score *score = cmha__layer_score(model, p->section - 1);
        const cmha_score_parameter *own = &(score ? score : model->plain)->parameters[start - CMHA__OF_SCORE];
        const cmha__kind_row *row = score ? NULL : cmha__kind_row_of(model->plain);
        if (row && start == CMHA__OF_SCORE) first = row->first;
        weighs = own->spread < 0;
        mean = own->start;
        spread = weighs ? c->init_std : own->spread;
    }
    for (size_t i = 0; i < t->size; i++) {
        double x = first ? first(c, &rng) : cmha__first_value(c, start, t, i, mean);
        if (start == CMHA__LORA_A || (c->init == CMHA_INIT_XAVIER && weighs && !orthogonal))
            x = bound * (2 * cmha_rng_uniform(&rng) - 1);
        else if (spread > 0) x += spread * cmha_rng_normal(&rng);
        t->data[i] = (cmha_real)x;
    }
    if (orthogonal)
        for (size_t at = 0; at < t->size; at += rows * cols)
            cmha__orthogonalise(t->data + at, rows, cols);
}

/* ---- Opening a model ---- */

static const char *cmha__cope_wrong(const cmha_model_config *c) {
    if (c->position != CMHA_POSITION_NONE) return "cope's positions are cope_imag; position must be none";
    if (c->causal && c->cope_score == CMHA_COPE_SCORE_HYBRID_NORM && c->cope_max != CMHA_NORM_MAX_ROW)
        return "hybrid_norm sees the future by the maximum of a head or batch; causal needs cope_max = row";
    if (c->window && c->cope_score == CMHA_COPE_SCORE_LINEAR) return "linear attention has no sliding window";
    return NULL;
}

static const char *cmha__mobius_wrong(const cmha_model_config *c) {
    if (c->position != CMHA_POSITION_LEARNED && c->position != CMHA_POSITION_SINUSOIDAL)
        return "family = mobius needs position = learned or sinusoidal for its imaginary channel";
    if (c->mobius_heads > c->n_heads) return "mobius_heads is larger than n_heads";
    if (c->mobius_softmax == CMHA_SOFTMAX_YANG8 && c->mobius_hermitian) return "yang8 has no Hermitian form";
    if (c->placement != CMHA_PLACEMENT_POST) return "mobius layers are post-norm; placement must be post";
    return NULL;
}

static const char *cmha__crat_wrong(const cmha_model_config *c) {
    size_t first = cmha__first_window(c);
    int lag = c->crat_attention == CMHA_CRAT_ATTENTION_LAG;
    int softmax = !lag && c->crat_attention != CMHA_CRAT_ATTENTION_LINEAR;
    if (c->d_model % (2 * c->n_heads)) return "n_heads must divide the d_model/2 features of the state";
    if (c->d_ff % 2) return "d_ff must be even, the complex layer has half as many features";
    if (c->real_heads > c->n_heads || c->imag_heads > c->n_heads - c->real_heads)
        return "real_heads + imag_heads is larger than n_heads";
    if (c->position != CMHA_POSITION_NONE && c->position != CMHA_POSITION_MULTIFREQ)
        return "the positions of family = crat are multifreq; position must be that or none";
    if (c->causal && lag) return "lag sees the future: causal = 0";
    if (c->window) return "family = crat has no sliding window";
    if (c->placement != CMHA_PLACEMENT_PRE) return "crat layers are pre-norm; placement must be pre";
    if (c->attention_bias || c->qkv_bias || c->output_bias) return "crat's projections have no biases";
    if (c->activation != CMHA_ACTIVATION_GELU_ERF) return "crat's layers are cGELU: activation = gelu_erf";
    if (c->angle && c->crat_attention) return "angle = atan is for crat_attention = angular";
    if ((c->head_temperature || c->score_softcap > 0) && !softmax)
        return "linear and lag have no softmax for head_temperature and score_softcap";
    if (c->qk_norm) return "crat's queries and keys have no qk_norm";
    if (c->experts && c->experts_top > c->experts) return "experts_top is larger than experts";
    if (!c->tokens && c->complex_features && !c->state_rotation)
        return "complex features alone have their positions by state_rotation, which is 0";
    if (c->irw_layers && (first >= c->n_layers || c->irw_layers > c->n_layers - first))
        return "the reflection windows (irw_from, irw_layers) go on beyond the last layer";
    return NULL;
}

static cmha_status cmha__find_score(cmha_context *ctx, cmha_model *model) {
    const cmha_model_config *c = &model->config;
    const cmha_score *row = ctx->config.scores, *end = cmha__at(row, ctx->config.n_scores);
    if (!*c->score) return CMHA_OK;
    while (row < end && !(row->name && !strcmp(row->name, c->score))) row++;
    if (row == end) return cmha__fail(ctx, CMHA_ERR_NOT_FOUND, "model: there is no score %s", c->score);
    int cope = c->family == CMHA_FAMILY_COPE, pairs = row->planes == 2;
    const char *wrong =
        !cope && c->family != CMHA_FAMILY_REAL ? "it is for family = real or cope"
        : cope && (row->attend || row->planes != 2 || row->rotates) ? "cope needs planes = 2 and no rotation"
        : cope && row->map && row->forward && c->cope_score == CMHA_COPE_SCORE_HYBRID_NORM
            ? "hybrid_norm is not for a map"
        : (c->head_temperature || c->qk_norm) && row->attend ? "attend has no head_temperature or qk_norm"
        : cmha__score_wrong(row);
    if (!wrong)
        for (size_t i = 0; i < row->n_parameters * 3; i++)
            pairs |= row->parameters[i / 3].axes[i % 3] == CMHA_AXIS_PAIRS;
    if (!wrong && !cope && pairs && cmha__head_width(c) % 2)
        wrong = "complex pairs need a head of even width";
    for (size_t i = 0; !wrong && i < row->n_parameters; i++) {
        char name[64];
        cmha_block none;
        cmha__list names = {model, "", name, 0, 0, {0, 0}, 0};
        cmha__line(name, "attn.%s", row->parameters[i].name);
        cmha__declare_mix(&names, &none);
        cmha__declare_layer(&names, 0, &none);
        if (names.found || strstr(name, ".lora_")) wrong = "a parameter's name is one of the layer's own";
    }
    model->parameters.count = model->parameters.size = 0; /* they were counted for their names */
    if (wrong) return CMHA__WRONG(ctx, "model: score %s: %s", c->score, wrong);
    model->score = row;
    return CMHA_OK;
}

/* What is wrong with fields that lie in their ranges, or NULL. */
static const char *cmha__model_wrong(const cmha_model *m) {
    const cmha_model_config *c = &m->config;
    const cmha__family_row *family = cmha__family(c->family);
    int beside = c->placement == CMHA_PLACEMENT_PRE || c->placement == CMHA_PLACEMENT_SANDWICH;
    if (c->qk_norm && m->plain->planes == 2) return "qk_norm is not for a score of complex rows";
    if (!c->tokens && !c->features) return "tokens = 0 needs features";
    if (c->tokens && !c->vocabulary) return "vocabulary = 0 needs tokens = 0";
    if (!c->features && (c->complex_features || c->feature_norm))
        return "complex_features and feature_norm need features";
    if (c->causal && c->feature_norm == CMHA_FEATURE_NORM_SEQUENCE)
        return "feature_norm = sequence sees the future; causal needs frame or none";
    if (c->gaussian && !c->values) return "gaussian needs values";
    if (c->value_residual && (family->wrong || m->plain->attend))
        return "value_residual is for the plain heads of family = real";
    if (c->value_residual && c->recompute) return "value_residual is not for recompute = 1";
    if (c->head_transform && cmha__is_gated(cmha__head_activation(c)))
        return "head_transform has one matrix, a gated activation needs two";
    if (c->pcl_weight > 0 && (family->wrong || !cmha__contrasts(m->plain)))
        return "the phase contrastive loss is for family = real, attention = cmha, rope, dot";
    if (c->rotary_dims * cmha__widens(m->plain) % 2 || c->rotary_dims > cmha__head_width(c))
        return "rotary_dims is odd or larger than a head";
    if (c->rotary_dims && c->layout && c->pcl_weight > 0)
        return "the phase contrastive loss has no rotary_dims where layout = half";
    if (c->parallel && !beside) return "parallel needs placement = pre or sandwich";
    if (c->layer_kinds[strspn(c->layer_kinds, "gln")]) return "layer_kinds has letters besides g, l and n";
    if (strchr(c->layer_kinds, 'l') && !c->window) return "the l layers of layer_kinds need a window";
    if (c->local_base > 0 && c->local_base < 1) return "local_base is less than 1";
    if (!c->first_norm && c->placement) return "first_norm = 0 needs placement = pre";
    if (c->qk_norm >= CMHA_QK_NORM_RMS_ONE_PLUS && c->family == CMHA_FAMILY_COPE)
        return "cope's queries and keys have qk_norm = rms or rms_gain";
    if (!family->wrong) return NULL;
    if (cmha__kv_heads(c) != c->n_heads) return "its heads cannot be grouped (n_kv_heads)";
    if (c->d_head || c->embedding_norm || *c->layer_kinds || !c->first_norm)
        return "d_head, embedding_norm, layer_kinds and first_norm are for family = real";
    return family->wrong(c);
}

static cmha_status cmha__check_model(cmha_context *context, cmha_model *model) {
    const cmha_model_config *c = &model->config;
    cmha_status status = cmha_config_check(context, cmha_model_table(), c);
    if (status) return status;
    if (c->d_model % c->n_heads && !c->d_head)
        return cmha__fail(context, CMHA_ERR_SHAPE, "model: d_model %zu is not divisible by n_heads %zu",
                c->d_model, c->n_heads);
    if (c->n_heads % cmha__kv_heads(c))
        return cmha__fail(context, CMHA_ERR_SHAPE, "model: n_heads %zu is not divisible by n_kv_heads %zu",
                c->n_heads, c->n_kv_heads);
    model->plain = cmha__row_of_kind(c->attention, 0);
    if ((status = cmha__find_score(context, model)) != CMHA_OK) return status;
    if (cmha__layer_score(model, 1)) model->plain = model->score;
    int pairs = cmha__widens(model->plain) % 2 && (model->plain->rotates || model->plain->imaginary);
    if (cmha__head_width(c) % 2 && (pairs || c->pcl_weight > 0))
        return cmha__fail(context, CMHA_ERR_SHAPE, "model: a head of %zu is not made of complex pairs",
                cmha__head_width(c));
    if (c->position == CMHA_POSITION_SINUSOIDAL && c->d_model % 2)
        return cmha__fail(context, CMHA_ERR_SHAPE,
                "model: sinusoidal positions need an even d_model, not %zu", c->d_model);
    const char *wrong = cmha__model_wrong(model);
    return wrong ? CMHA__WRONG(context, "model: %s", wrong) : CMHA_OK;
}

/* Takes the tables that describe the model: parameters, blocks, frequencies. file: bytes of the one with its
   numbers, half a byte or more each, and names, 49. */
static cmha_status cmha__model_describe(cmha_model *model, uint64_t file) {
    static const char *const adapted[] = {"wq,wv", "wqkv", "mobius_q,mobius_v", "*"}; /* the first that fit */
    cmha_model_config *c = &model->config;
    cmha_parameters *p = &model->parameters;
    size_t turning = cmha__widens(model->plain), P = model->P = cmha__head_width(c) * turning / 2;
    size_t heads = model->n_omega = c->frequency == CMHA_FREQUENCY_TABLE ? c->n_heads : 1;
    size_t uses = cmha__complex_state(c) ? c->n_layers * c->experts : 0;
    size_t slopes = c->position == CMHA_POSITION_ALIBI ? c->n_heads * cmha__fan(model->plain) : 0;
    size_t others = 0;
    int choices = c->lora_rank && !*c->lora_on ? 4 : 0, next = 0;
    cmha_status status;
    do {
        if (choices) cmha__line(c->lora_on, "%s", adapted[next++]);
        status = cmha__declare_all(model, &others);
    } while (status && next < choices);
    if (status) return status;
    if (p->size > SIZE_MAX / sizeof(cmha_real) / 8)
        return CMHA__HUGE(model->context, "model: %zu parameters overflow", p->size);
    if (p->size / 2 + 49 * p->count > file)
        return cmha__fail(model->context, CMHA_ERR_FORMAT, "model: %zu parameters, the file is smaller",
            p->size);
    size_t kinds = *c->layer_kinds ? 2 : 0;
    cmha__array arrays[] = {CMHA__ARRAY(model->omega, heads * P), CMHA__ARRAY(model->layer_omega, kinds * P),
            CMHA__ARRAY(p->sums, (size_t)model->context->threads), CMHA__ARRAY(model->expert_use, uses),
            CMHA__ARRAY(p->list, p->count), CMHA__ARRAY(model->blocks, c->n_layers),
            CMHA__ARRAY(model->alibi, slopes)};
    status = cmha__take_arrays(model->context, "model", arrays, 7, &model->table_bytes, NULL);
    if (status) return status;
    model->tables = memset(model->omega, 0, model->table_bytes);
    if (!uses) model->expert_use = NULL;
    if (!slopes) model->alibi = NULL;
    if (!kinds) model->layer_omega = NULL;
    cmha_rope_options rope = {c->rotary_dims * turning, (cmha_rope_scaling)c->rope_scaling, c->rope_factor,
            (double)c->rope_length, c->rope_fast, c->rope_slow,
            (cmha_rope_ramp)c->rope_ramp};
    for (size_t h = 0; h < heads; h++)
        model->score_factor =
            cmha_frequencies((cmha_frequency)c->frequency, c->base, P, &rope, model->omega + h * P);
    if (!(model->score_factor > 0))
        return CMHA__WRONG(model->context,
                "model: base %g has no frequencies from rope_slow = %g to rope_fast = %g turns in "
                "rope_length = %zu", c->base, c->rope_slow, c->rope_fast, c->rope_length);
    rope.scaling = CMHA_ROPE_SCALING_NONE;
    if (kinds && c->local_base > 0)
        cmha_frequencies((cmha_frequency)c->frequency, c->local_base, P, &rope, model->layer_omega);
    if (slopes) cmha_alibi_slopes(slopes, model->alibi);
    return cmha__declare_all(model, &others);
}

CMHA_DEF void cmha_model_close(cmha_model *model) {
    if (!model || !model->context) return;
    cmha_tape_close(&model->tape);
    cmha_parameters_close(&model->parameters);
    cmha__give(model->context, model->packed.matrices, model->packed.bytes);
    cmha__give(model->context, model->tables, model->table_bytes);
    cmha__zero(*model);
}

static cmha_status cmha__model_open(cmha_model *model, cmha_context *context, const cmha_model_config *cfg,
        uint64_t file) {
    if (!model) return CMHA__WRONG(context, "model: model is NULL");
    cmha__zero(*model);
    if (!cmha__is_open(context)) return CMHA_ERR_STATE;
    if (cfg) model->config = *cfg;
    else cmha_config_defaults(cmha_model_table(), &model->config);
    cmha_model_config *c = &model->config;
    if (c->lora_rank && !(c->lora_alpha > 0)) c->lora_alpha = (double)c->lora_rank;
    cmha_status status = cmha__check_model(context, model);
    if (status) return status;
    model->context = model->parameters.context = context;
    model->opening = ++context->models;
    status = cmha__model_describe(model, file);
    if (!status) status = cmha_tape_init(&model->tape, context, CMHA__TRAINS);
    if (status) cmha_model_close(model);
    return status;
}

/* Returns what to pack of the matrix that ends with a parameter; of no rows: nothing. */
static cmha_packed cmha__matrix_of(const cmha_parameters *p, size_t i, cmha_storage storage) {
    const cmha_parameter *one = &p->list[i];
    const cmha_tensor *t = one->matrix.rank ? &one->matrix : &one->tensor;
    int turned = one->form == CMHA__TURNED, goes_on = i + 1 < p->count && one[1].form == CMHA__JOINED;
    cmha_packed m;
    cmha__zero(m);
    if (!storage || one->start >= CMHA__LORA_A || one->form == CMHA__EXACT || goes_on) return m;
    m.storage = storage;
    m.source = t->data;
    m.n_in = t->shape[t->rank - 1 - turned];
    m.n_out = t->size / m.n_in;
    m.turned = turned ? t->shape[t->rank - 1] : 0;
    return m;
}

/* Takes memory for numbers, packed ones (zeros) and the rest; after a failure all is as it was. */
static cmha_status cmha__take_numbers(cmha_model *model, cmha_storage storage) {
    cmha_context *context = model->context;
    cmha_parameters *p = &model->parameters;
    cmha_packed *m = NULL;
    uint32_t *words = NULL;
    cmha_real *scales = NULL;
    size_t n = 0, n_words = 0, n_scales = 0, packed = 0, bytes = 0;
    for (size_t i = 0; i < p->count; i++) {
        cmha_packed one = cmha__matrix_of(p, i, storage);
        n += one.n_out > 0;
        packed += one.n_out * one.n_in;
        n_scales += storage == CMHA_STORAGE_INT8 ? one.n_out : 0;
        if (!cmha__sum(n_words, cmha_packed_words(storage, one.n_out, one.n_in), &n_words))
            n_words = SIZE_MAX;
    }
    cmha__array arrays[] = {
        CMHA__ARRAY(m, n), CMHA__ARRAY(words, n_words), CMHA__ARRAY(scales, n_scales)};
    cmha_status status = n ? cmha__take_arrays(context, "model", arrays, 3, &bytes, NULL) : CMHA_OK;
    if (status) return status;
    cmha_real *data = (cmha_real *)cmha__take(context, "model", (p->size - packed) * sizeof *data);
    if (!data) return cmha__give(context, m, bytes), CMHA_ERR_MEMORY;
    if (n) memset(m, 0, bytes);
    model->packed.storage = storage;
    model->packed.matrices = m;
    model->packed.n_matrices = n;
    model->packed.bytes = bytes;
    model->packed.saved = packed * sizeof *data;
    for (size_t i = 0; i < p->count; i++) {
        cmha_packed one = cmha__matrix_of(p, i, storage);
        if (!one.n_out) continue;
        one.words = words;
        words += cmha_packed_words(storage, one.n_out, one.n_in);
        one.scales = n_scales ? scales : NULL;
        if (n_scales) scales += one.n_out;
        *m = one;
        p->list[i].tensor.packed = m;
        for (size_t j = i; p->list[j].form == CMHA__JOINED; j--) p->list[j - 1].tensor.packed = m;
        m++;
    }
    cmha__place_numbers(p, data);
    return CMHA_OK;
}

/* Does a word before the colon of a field's help hold? See CMHA_MODEL_FIELDS. */
static int cmha__is_read(cmha_table table, const void *config, const cmha_field *field) {
    const char *word = field->help, *end = word + strcspn(word, " :");
    if (*end != ':') return 1;
    for (size_t n; word < end; word += n + 1) {
        n = strcspn(word, "|:");
        CMHA__EACH_FIELD(of, table) {
            double value = cmha__field_value(of, config);
            const char *is = of->type == CMHA_FIELD_NAME ? (const char *)config + of->offset : of->name;
            size_t length = value != 0 ? strlen(is) : 0;
            if (of->type == CMHA_FIELD_ENUM)
                length = cmha__choice(of->choices, (int)(value - of->minimum), &is);
            if (of->type == CMHA_FIELD_NAME && *is && strlen(of->name) == n) is = of->name, length = n;
            if (of == field || length != n || memcmp(is, word, n) != 0) continue;
            if (cmha__is_read(table, config, of)) return 1;
        }
    }
    return 0;
}

/* Warns of a model's or trainer's fields that nothing reads, but for defaults and presets' values. */
static void cmha__name_unread(cmha_context *context, const char *what, cmha_table table,
        const void *config) {
    cmha_model_config model;
    cmha_trainer_config trainer;
    const void *preset = *what == 'm' ? (const void *)&model : (const void *)&trainer;
    CMHA__EACH_FIELD(field, table) {
        double value = cmha__field_value(field, config);
        int usual = value == field->initial || cmha__is_read(table, config, field);
        if (usual) continue;
        for (size_t i = 0; !cmha_preset(NULL, cmha_preset_name(i), &model, &trainer); i++)
            usual |= value == cmha__field_value(field, preset);
        if (!usual) cmha__warn(context, "%s: nothing reads %s; %s", what, field->name, field->help);
    }
}

CMHA_DEF cmha_status cmha_model_init(cmha_model *model, cmha_context *context, const cmha_model_config *cfg) {
    cmha_status status = cmha__model_open(model, context, cfg, UINT64_MAX);
    if (!status) status = cmha__take_numbers(model, CMHA_STORAGE_FLOAT);
    if (status) return cmha_model_close(model), status;
    for (size_t i = 0; i < model->parameters.count; i++) cmha__start_parameter(model, i);
    cmha__name_unread(context, "model", cmha_model_table(), &model->config);
    return CMHA_OK;
}

static const char *const cmha__storages[] = {"", "bf16", "int8", "int4", "q4_k"}; /* in their order */

/* Moves a model into new memory, some packed with that storage. *old were its parameters, the caller's
   to close or, after a failure, the model's again. */
static cmha_status cmha__move_numbers(cmha_model *model, cmha_storage storage, const cmha_parameters *old) {
    cmha_parameters *p = &model->parameters;
    p->step = 0;
    p->optimised = p->averages = 0;
    cmha_status status = cmha__take_numbers(model, storage);
    if (status) *p = *old;
    if (status) return status;
    CMHA__FOR_CHUNKS(model->context->threads, model->packed.n_matrices, lo, hi) {
        cmha_packed *m = model->packed.matrices;
        for (size_t i = lo; i < hi; i++) cmha_pack(&m[i], m[i].source);
    }
    for (size_t i = 0, at = 0; i < p->count; at += p->list[i++].tensor.size) {
        const cmha_tensor *t = &p->list[i].tensor;
        if (t->data) cmha__copy(t->data, old->data + at, t->size);
    }
    p->grad = p->moments = NULL;
    model->trainer = 0;
    model->opening = ++model->context->models;
    return CMHA_OK;
}

CMHA_DEF cmha_status cmha_model_pack(cmha_model *model, cmha_storage storage) {
    if (!cmha__model_is_open(model)) return CMHA_ERR_STATE;
    cmha_parameters old = model->parameters;
    if (storage < CMHA_STORAGE_BF16 || storage > CMHA_STORAGE_Q4_K)
        return CMHA__WRONG(model->context, "model pack: storage = %d is not BF16, INT8, INT4 or Q4_K",
            (int)storage);
    if (model->packed.storage)
        return CMHA__REFUSED(model->context, "model pack: it is packed already, as %s",
                cmha__storages[model->packed.storage]);
    cmha_status status = cmha__move_numbers(model, storage, &old);
    if (!status) cmha_parameters_close(&old);
    return status;
}

CMHA_DEF cmha_status cmha_model_round(cmha_model *model, int on) {
    if (!cmha__model_is_open(model)) return CMHA_ERR_STATE;
    if (model->packed.storage < CMHA_STORAGE_INT8)
        return CMHA__REFUSED(model->context, "model round: it is not packed in 8 or 4 bits");
    for (size_t i = 0; i < model->packed.n_matrices; i++) model->packed.matrices[i].rounds = on != 0;
    model->opening = ++model->context->models;
    return CMHA_OK;
}

CMHA_DEF cmha_status cmha_model_merge(cmha_model *model) {
    if (!cmha__model_is_open(model)) return CMHA_ERR_STATE;
    cmha_model_config *c = &model->config;
    cmha_parameters *p = &model->parameters, old = *p;
    if (!c->lora_rank || model->packed.storage)
        return CMHA__REFUSED(model->context, "model merge: it %s",
            c->lora_rank ? "is packed" : "has no adapters (lora_rank = 0)");
    cmha_real scale = (cmha_real)(c->lora_alpha / (double)c->lora_rank);
    for (; p->list[p->count - 1].start == CMHA__LORA_B; p->count -= 2) /* pairs, behind all else */
        p->size -= p->list[p->count - 1].tensor.size + p->list[p->count - 2].tensor.size;
    cmha_status status = cmha__move_numbers(model, CMHA_STORAGE_FLOAT, &old);
    if (status) return status;
    CMHA__EACH_PARAMETER(one, p) {
        const cmha_tensor *A = &p->list[one->adapter].tensor, *B = &p->list[one->adapter + 1].tensor;
        one->frozen = one->usual_frozen = 0;
        if (!one->adapter) continue;
        size_t r = cmha__last(B), O = B->shape[B->rank - 2], I = cmha__last(A);
        for (size_t part = 0; part < (B->rank == 3 ? 4 : 1); part++) { /* as cmha__adapter_parts has them */
            size_t i = part / 2, j = part % 2;
            cmha_gemm(0, 0, O, I, r, part == 3 ? -scale : scale, B->data + i * O * r, r,
                    A->data + j * r * I, I, 1, one->tensor.data + (i ^ j) * O * I, I);
        }
        one->adapter = 0;
    }
    c->lora_rank = 0;
    c->lora_alpha = 0;
    cmha__zero(c->lora_on);
    cmha__attach_grad(p, NULL);
    cmha_parameters_close(&old);
    return CMHA_OK;
}

CMHA_DEF cmha_status cmha_model_set_frequencies(cmha_model *model, const double *omega) {
    if (!cmha__model_is_open(model)) return CMHA_ERR_STATE;
    if (!omega) return CMHA__WRONG(model->context, "model: omega is NULL");
    if (model->config.frequency != CMHA_FREQUENCY_TABLE)
        return CMHA__REFUSED(model->context, "model: frequencies need frequency = table");
    size_t count = model->n_omega * model->P;
    for (size_t i = 0; i < count; i++)
        if (!(fabs(omega[i]) <= DBL_MAX))
            return CMHA__WRONG(model->context, "model: omega[%zu] = %g is not finite", i, omega[i]);
    cmha__copy(model->omega, omega, count);
    return CMHA_OK;
}

CMHA_DEF cmha_status cmha_model_set_knowledge(cmha_model *model, const cmha_knowledge *knowledge) {
    if (!cmha__model_is_open(model)) return CMHA_ERR_STATE;
    const cmha_model_config *c = &model->config;
    size_t width = cmha__window_width(c);
    if (knowledge && !(cmha__complex_state(c) && c->irw_layers))
        return CMHA__REFUSED(model->context, "model: it has no window (irw_layers) for a base");
    if (knowledge && knowledge->d_r != width)
        return cmha__fail(model->context, CMHA_ERR_SHAPE, "model: the base has %zu features, its windows %zu",
                knowledge->d_r, width);
    model->knowledge = knowledge;
    model->knowledge_identity = knowledge ? knowledge->identity : 0;
    return CMHA_OK;
}

/* ---- Forward pass ---- */

struct cmha__pass {
    cmha_model *model;
    cmha_tape *tape;
    cmha_cache *cache; /* NULL: every token of the sequences is in this batch */
    const cmha_batch *batch; /* ids, types and mask of the tokens */
    const cmha_model_config *c; /* of the model */
    const cmha_block *k; /* the weights of the block that runs */
    size_t layer, B, N, first; /* first: position of the first token */
    size_t slot; /* of the cache: attention calls so far */
    const cmha_real *rotation[3]; /* tables of the plain heads; of l and n layers (layer_kinds) */
    const cmha_real *near_rotation[3]; /* likewise, by positions in the cache: see cmha__nearer; or NULL */
    cmha_tensor *imag; /* cope, mobius: imaginary channel of the next complex layer */
    cmha_tensor *tokens; /* mobius: the token embeddings */
    cmha_tensor *first_input, *first_values; /* of the first layer: residual_mix, value_residual */
    cmha_tensor *features; /* complex ones: what joins the imaginary channel or, crat, the state */
    cmha_tensor *extra; /* losses beside the objective, weighted */
    int again; /* 1: a block runs once more for its gradients, and counts no experts */
};

/* Applies a norm where there is one. */
static cmha_tensor *cmha__norm_by(cmha_tape *tape, const cmha_model_config *c, int complex_state,
        cmha_tensor *x, cmha_tensor *gain, cmha_tensor *offset) {
    if (!gain) return x;
    int kind = complex_state ? c->complex_norm : c->norm;
    const cmha__op *op = complex_state ? &cmha__complex_norms[kind].op : &cmha__norms[kind];
    cmha_tensor *in[3] = {x, gain, offset};
    return cmha__operate_on(tape, op, kind, (cmha_real)c->norm_eps, in);
}

/* Applies norm 1, 2 or 3 of the block, or that of its first or second sublayer's output, 4 or 5. */
static cmha_tensor *cmha__ln(cmha__pass *pass, int which, cmha_tensor *x) {
    const cmha_block *k = pass->k;
    cmha_tensor *const norms[5][2] = {
        {k->ln1_weight, k->ln1_bias}, {k->ln2_weight, k->ln2_bias}, {k->ln3_weight, k->ln3_bias},
        {k->ln1_out_weight, k->ln1_out_bias}, {k->ln2_out_weight, k->ln2_out_bias}};
    return cmha__norm_by(pass->tape, pass->c, cmha__complex_state(pass->c), x, norms[which - 1][0],
            norms[which - 1][1]);
}

static cmha_tensor *cmha__scaled(cmha__pass *pass, cmha_tensor *x, double factor) {
    return factor < 1 || factor > 1 ? cmha_scale(pass->tape, x, (cmha_real)factor) : x;
}

static cmha_tensor *cmha__drop(cmha__pass *pass, cmha_tensor *x) {
    return cmha_dropout(pass->tape, x, (cmha_real)pass->c->dropout);
}

static void cmha__add_loss(cmha__pass *pass, cmha_tensor *loss, double factor) {
    loss = cmha__scaled(pass, loss, factor);
    pass->extra = pass->extra ? cmha_add(pass->tape, pass->extra, loss) : loss;
}

/* Hands each parameter that learns its rows of the joined matrix's gradient. */
static cmha_status cmha__joined_backward(cmha_tape *tape, cmha_record *r) {
    for (int i = 0; i < r->n_in; i++) {
        cmha_real *grad = cmha_tape_grad(tape, r->in[i]);
        if (grad && !cmha__dry(tape))
            cmha__axpy(r->in[i]->size, 1, r->out->grad + (r->in[i]->data - r->out->data), grad);
    }
    return tape->status;
}

/* Returns which parameter has a block's tensor. */
static size_t cmha__index_of(const cmha_parameters *p, const cmha_tensor *tensor) {
    return (size_t)((const char *)tensor - (const char *)p->list) / sizeof *p->list;
}

/* Returns a weight or, where only some of a matrix's parameters learn, an operation that joins them, moving
   no number: its gradient is in the tape. */
static cmha_tensor *cmha__joined(cmha__pass *pass, cmha_tensor *weight) {
    const cmha_parameters *all = &pass->model->parameters;
    cmha_tensor *in[CMHA_MAX_INPUTS];
    int n = 0;
    if (!weight || weight->needs_grad || !cmha__records(pass->tape)) return weight;
    size_t i = cmha__index_of(all, weight);
    if (weight != &all->list[i].matrix) return weight;
    do in[n++] = &all->list[i].tensor;
    while (all->list[i--].tensor.data != weight->data);
    cmha_tensor *joined = cmha_tensor_wrap(pass->tape, weight->rank, weight->shape, weight->data, NULL);
    return cmha__push(pass->tape, "joined", joined, in, n, cmha__joined_backward, NULL);
}

/* ---- Products of a block's matrices and their adapters ---- */

/* Adds u B^T to the base's columns of y: part i of B by part j of u to part i ^ j. Or, y being its gradient,
   adds to du and db, the gradients of u and B. in: y, u, B. */
static void cmha__adapter_parts(int threads, const cmha_parameter *base, cmha_tensor *const *in, cmha_real *y,
        cmha_real *du, cmha_real *db) {
    const cmha_tensor *u = in[1], *B = in[2];
    size_t T = cmha__rows(in[0]), W = cmha__last(in[0]), R = cmha__last(u), r = cmha__last(B);
    size_t O = B->shape[B->rank - 2];
    if (base->form == CMHA__JOINED) y += base->matrix.shape[0] - O;
    for (size_t part = 0; part < (B->rank == 3 ? 4 : 1); part++) {
        size_t i = part / 2, j = part % 2;
        cmha_real sign = part == 3 ? -1 : 1, *y_ij = y + (i ^ j) * O;
        const cmha_real *u_j = u->data + j * r, *b_i = B->data + i * O * r;
        if (!du && !db) cmha__gemm(threads, 0, 1, T, O, r, sign, u_j, R, b_i, r, 1, y_ij, W);
        if (du) cmha__gemm(threads, 0, 0, T, r, O, sign, y_ij, W, b_i, r, 1, du + j * r, R);
        if (db) cmha__gemm(threads, 1, 0, O, r, T, sign, y_ij, W, u_j, R, 1, db + i * O * r, r);
    }
}

static cmha_status cmha__adapter_backward(cmha_tape *tape, cmha_record *r) {
    cmha_real *du = cmha_tape_grad(tape, r->in[1]), *db = cmha_tape_grad(tape, r->in[2]);
    if ((du || db) && cmha__computes(tape))
        cmha__adapter_parts(tape->context->threads, (const cmha_parameter *)r->user, r->in, r->out->grad, du,
                db);
    cmha__pass_grad(tape, r->out, r->in[0]);
    return tape->status;
}

/* Adds scale * B A act(x) to a product y = W act(x), in its memory (LoRA, arXiv 2106.09685). */
static cmha_tensor *cmha__adapt(cmha__pass *pass, cmha_tensor *y, cmha_tensor *x, int act,
        cmha_parameter *base) {
    cmha_tape *tape = pass->tape;
    cmha_parameter *p = &pass->model->parameters.list[base->adapter];
    cmha_tensor *A = p->matrix.rank ? &p->matrix : &p->tensor; /* a real x gives Re and Im of A x */
    double scale = pass->c->lora_alpha / (double)pass->c->lora_rank;
    cmha_tensor *u = A->rank == 3 ? cmha__scaled(pass, cmha_complex_linear(tape, x, A, NULL), scale)
            : cmha_sublayer(tape, x, act, A, NULL, NULL, (cmha_real)scale, 0);
    cmha_tensor *in[3] = {y, u, &p[1].tensor};
    if (!y || !u) return NULL;
    if (!cmha__dry(tape)) cmha__adapter_parts(tape->context->threads, base, in, y->data, NULL, NULL);
    if (cmha__records(tape)) y = cmha_tensor_wrap(tape, y->rank, y->shape, y->data, NULL);
    return cmha__push(tape, "adapter", y, in, 3, cmha__adapter_backward, base);
}

/* act(x) W^T + bias, W a block's matrix with its adapters; or residual + factor * dropout(that). */
static cmha_tensor *cmha__project(cmha__pass *pass, cmha_tensor *x, int act, cmha_tensor *weight,
        cmha_tensor *bias, cmha_tensor *residual) {
    const cmha_model_config *c = pass->c;
    cmha_tape *tape = pass->tape;
    const cmha__sublayer_saved form = {act, residual ? (cmha_real)c->residual_scale : 1,
            residual ? (cmha_real)c->dropout : 0, 0, 0};
    if (!x || !weight || tape->status) return NULL;
    const cmha_parameters *all = &pass->model->parameters;
    cmha_parameter *one = &all->list[cmha__index_of(all, weight)]; /* of several in W, the last */
    if (residual && one->adapter) { /* it adds before the dropout */
        cmha_tensor *y = cmha__drop(pass, cmha__project(pass, x, act, weight, bias, NULL));
        return cmha_add(tape, residual, cmha__scaled(pass, y, c->residual_scale));
    }
    weight = cmha__joined(pass, weight);
    bias = cmha__joined(pass, bias);
    cmha_tensor *in[4] = {x, weight, bias, residual};
    cmha_tensor *y = weight && weight->rank == 3 ? cmha_complex_linear(tape, x, weight, bias)
            : cmha__sublayer(tape, in, &form, 1);
    do
        if (one->adapter) y = cmha__adapt(pass, y, x, act, one);
    while ((one--)->form == CMHA__JOINED);
    return y;
}

static cmha_tensor *cmha__linear(cmha__pass *pass, cmha_tensor *x, cmha_tensor *weight, cmha_tensor *bias) {
    return cmha__project(pass, x, CMHA_ACTIVATION_NONE, weight, bias, NULL);
}

/* ---- Attention of a block, also to the tokens in a cache ---- */

/* Finds the slot of a pass's next call, of these widths or this state; a dry run makes it. */
static cmha_status cmha__next_slot(cmha__pass *pass, cmha_slot *slot) {
    cmha_cache *cache = pass->cache;
    size_t tokens = cmha__cache_tokens(cache), keys = 0, values = 0, at = pass->slot++;
    size_t part = cache->storage == CMHA_STORAGE_BF16 ? sizeof(cmha_real) / 2 : 1; /* numbers in one's room */
    int found = at < cache->n_slots, placed = found && cache->slots, dry = cmha__dry(pass->tape);
    if ((placed && memcmp(&cache->slots[at], slot, 5 * sizeof at) != 0) || (!found && !dry))
        CMHA__UNABLE(pass->tape, "attention: call %zu is another than when measured", at);
    else if (placed) *slot = cache->slots[at];
    if (found || pass->tape->status) return pass->tape->status;
    slot->keys = cache->size;
    if (tokens < cache->capacity || !cmha__mul(tokens, cache->batch, &tokens) ||
        !cmha__mul(tokens, slot->key_heads * slot->key_width, &keys) ||
        !cmha__mul(tokens, slot->kv_heads * slot->value_row, &values) ||
        !cmha__mul(slot->state, cache->batch, &slot->state) ||
        !cmha__sum(slot->keys, slot->state + keys / part, &slot->values) ||
        !cmha__sum(slot->values, values / part, &cache->size))
        CMHA__TOO_MUCH(pass->tape, "cache: %zu x %zu tokens overflow a size", cache->batch, cache->capacity);
    cache->has_state |= slot->state > 0;
    cache->has_keys |= slot->key_heads > 0;
    if (cache->slots) cache->slots[at] = *slot;
    cache->n_slots++;
    return pass->tape->status;
}

/* Lets a call see what a cache without an end still holds. */
static cmha_status cmha__forgetful(cmha__pass *pass, cmha_attention_args *a) {
    const cmha_cache *c = pass->cache;
    if (a->window && a->window <= c->window && a->sinks <= c->sinks) return CMHA_OK;
    if (c->exact)
        CMHA__UNABLE(pass->tape, "attention: its window (%zu, sinks %zu) is beyond the cache's (%zu, %zu)",
            a->window, a->sinks, c->window, c->sinks);
    if (!a->window || a->window > c->window) a->window = c->window;
    a->sinks = c->sinks;
    return pass->tape->status;
}

static void cmha__cached_head(cmha__head *h) {
    if (h->peaks) cmha__find_peaks(h);
    cmha__forward_terms(h);
}

/* Runs softmax attention, through the cache if there is one. */
static cmha_tensor *cmha__softmax_heads(cmha__pass *pass, const cmha_attention_args *args, cmha_tensor *q,
        cmha_tensor *k, cmha_tensor *v, cmha_tensor *const *parameters) {
    if (!pass->cache) return cmha_attention(pass->tape, args, q, k, v, parameters);
    cmha__attention_saved *s = cmha__softmax_open(pass->tape, args, q, k, v, parameters);
    if (!s) return NULL;
    cmha_attention_args *a = &s->args;
    int halves = pass->cache->storage == CMHA_STORAGE_BF16;
    size_t key_heads = cmha__own_keys(a) ? a->heads : a->kv_heads;
    size_t dv = cmha__value_width(a), row = halves ? (dv + 31) / 32 * 32 : dv;
    cmha_slot slot = {key_heads, a->kv_heads, cmha__key_width(a), dv, row, 0, 0, 0};
    if (a->batch != pass->B || a->n_q != pass->N || a->n_k != pass->N || !a->causal ||
        a->norm_max > CMHA_NORM_MAX_ROW)
        return CMHA__MISFIT(pass->tape, "attention: a cache needs causal = 1, row maxima, %zu keys", a->n_q);
    size_t shape[3] = {pass->B, pass->N, a->heads * dv};
    cmha_tensor *y = cmha__result(pass->tape, 3, shape);
    if (!y || cmha__next_slot(pass, &slot)) return NULL;
    cmha_attention_views views = cmha__views(s, NULL, y->data); /* the new tokens alone */
    cmha__head call = cmha__new_call(a, &views, 0);
    call.cache = pass->cache;
    call.slot = &slot;
    for (int table = 0; table < 3; table++)
        if (a->score->rotates && a->rotation && a->rotation == pass->rotation[table])
            call.near_rotation = pass->near_rotation[table];
    call.halves = halves;
    call.pieces = 1;
    a->n_k = pass->first + pass->N;
    a->dropout = 0;
    if (pass->cache->ring && cmha__forgetful(pass, a)) return NULL;
    cmha_real *scratch = cmha__reals(pass->tape, cmha__deal_call(&call, NULL));
    if (!scratch || cmha__dry(pass->tape)) return scratch ? y : NULL;
    cmha__deal_call(&call, scratch);
    cmha__each_head(&call, cmha__cached_head);
    return y;
}

/* What all softmax attention of a pass shares: `heads` heads of d numbers. */
static cmha_attention_args cmha__softmax_args(const cmha__pass *pass, size_t heads, size_t d) {
    const cmha_model_config *c = pass->c;
    const char turns = cmha__layer_kind(c, pass->layer);
    const int table = cmha__layer_table(c, turns);
    cmha_attention_args a;
    cmha__zero(a);
    a.batch = pass->B;
    a.n_q = a.n_k = pass->N;
    a.heads = a.kv_heads = heads;
    a.d_k = a.d_v = d;
    a.scale = (cmha_real)(c->score_scale > 0 ? c->score_scale : 1 / sqrt((double)d));
    a.causal = c->causal;
    a.window = turns && turns != 'l' ? 0 : c->window;
    a.key_mask = a.query_mask = pass->batch->key_mask;
    a.alibi = pass->model->alibi;
    a.rotation = pass->rotation[table];
    a.rotation_head = a.rotation && !table && pass->model->n_omega > 1 ? pass->N * 2 * pass->model->P : 0;
    a.eps = (cmha_real)c->complex_eps;
    a.dropout = (cmha_real)c->attention_dropout;
    a.temperature = c->head_temperature;
    a.softcap = (cmha_real)c->score_softcap;
    a.sinks = c->sinks;
    a.share = (cmha_share)c->share;
    a.threads = pass->model->context->threads;
    return a;
}

CMHA_DEF cmha_tensor *cmha_layer_attention(const cmha_layer *layer, const cmha_attention_args *args,
        cmha_tensor *q, cmha_tensor *k, cmha_tensor *v, cmha_tensor *const *parameters) {
    return layer ? cmha__softmax_heads((cmha__pass *)layer->pass, args, q, k, v, parameters) : NULL;
}

/* Runs linear attention of `heads` heads of d numbers, likewise: of it a cache keeps the state alone. */
static cmha_tensor *cmha__linear_heads(cmha__pass *pass, cmha_linear_kind kind, size_t heads, size_t d,
        cmha_tensor *const *qkv) {
    cmha_linear_attention_args a;
    cmha_real *state = NULL;
    cmha__zero(a);
    a.batch = 1;
    a.heads = heads;
    a.d = a.d_v = d;
    a.kind = kind;
    a.causal = pass->c->causal;
    a.alpha = (cmha_real)pass->c->cope_alpha;
    a.eps = (cmha_real)pass->c->complex_eps;
    a.den_eps = (cmha_real)1e-6;
    a.key_mask = pass->batch->key_mask;
    cmha_slot slot = {0, 0, 0, 0, 0, cmha_linear_attention_state(&a), 0, 0};
    if (pass->cache && cmha__next_slot(pass, &slot)) return NULL;
    if (pass->cache && !cmha__dry(pass->tape)) state = pass->cache->memory + slot.keys;
    if (state && !pass->first) cmha__zeros(state, slot.state);
    return cmha__attend_planes(pass->tape, &a, NULL, qkv, state);
}

static cmha_tensor *cmha__ones(cmha_tape *tape, size_t n) {
    cmha_tensor *ones = cmha_tensor_new(tape, 1, &n, 0);
    if (ones && !cmha__dry(tape))
        for (size_t i = 0; i < n; i++) ones->data[i] = 1;
    return ones;
}

/* Divides heads of d numbers (planes = 2: complex ones, in planes of all heads) by their root mean square. */
static cmha_tensor *cmha__norm_heads(cmha__pass *pass, cmha_tensor *x, cmha_tensor *gain, size_t planes,
        size_t d) {
    cmha_tape *tape = pass->tape;
    if (!x) return NULL;
    const cmha_real eps = (cmha_real)pass->c->norm_eps;
    const size_t width = cmha__last(x), heads = width / planes / d, whole[3] = {pass->B, pass->N, width};
    const size_t rows[3] = {pass->B, pass->N * heads, planes * d};
    const size_t apart[4] = {pass->B * pass->N, planes, heads, d};
    const size_t joined[4] = {pass->B * pass->N, heads, planes, d};
    const int kind = pass->c->qk_norm == CMHA_QK_NORM_RMS_ONE_PLUS ? CMHA_NORM_RMS_ONE_PLUS : CMHA_NORM_RMS;
    if (!gain) gain = cmha__ones(tape, d);
    if (planes == 1) {
        x = cmha__operate(tape, &cmha__norms[kind], kind, eps, cmha_reshape(tape, x, 3, rows), gain);
        return cmha_reshape(tape, x, 3, whole);
    }
    x = cmha_reshape(tape, cmha_transpose(tape, cmha_reshape(tape, x, 4, apart), 1, 2), 3, rows);
    x = cmha_reshape(tape, cmha_complex_norm(tape, x, CMHA_COMPLEX_NORM_CRMS, gain, NULL, eps), 4, joined);
    return cmha_reshape(tape, cmha_transpose(tape, x, 1, 2), 3, whole);
}

/* Likewise the queries and keys in rows [q | k | v] of plain heads. */
static cmha_tensor *cmha__norm_queries(cmha__pass *pass, cmha_tensor *qkv, size_t heads, size_t kv_heads) {
    const size_t d = cmha__head_width(pass->c), keys = heads * d, values = keys + kv_heads * d;
    const int whole = pass->c->qk_norm == CMHA_QK_NORM_RMS_WHOLE;
    cmha_tensor *q = cmha_slice(pass->tape, qkv, 2, 0, keys);
    cmha_tensor *k = cmha_slice(pass->tape, qkv, 2, keys, values);
    cmha_tensor *v = cmha_slice(pass->tape, qkv, 2, values, values + kv_heads * d);
    q = cmha__norm_heads(pass, q, pass->k->q_norm, 1, whole ? keys : d);
    k = cmha__norm_heads(pass, k, pass->k->k_norm, 1, whole ? values - keys : d);
    return cmha_concat(pass->tape, cmha_concat(pass->tape, q, k, 2), v, 2);
}

/* Mixes the values in rows [q | k | v] with the first layer's (value residual, arXiv 2410.17897). */
static cmha_tensor *cmha__mix_values(cmha__pass *pass, cmha_tensor *qkv, size_t width) {
    cmha_tape *tape = pass->tape;
    if (!qkv) return NULL;
    const size_t all = cmha__last(qkv), values = all - width;
    cmha_tensor *const *mix = pass->k->value_mix;
    cmha_tensor *v = cmha_slice(tape, qkv, 2, values, all), *first = pass->first_values;
    if (!v) return NULL;
    if (!pass->layer && !first) pass->first_values = first = v;
    else if (!pass->layer && !cmha__dry(tape)) cmha__copy(first->data, v->data, v->size);
    v = cmha_add(tape, cmha_mul(tape, v, mix[0]), cmha_mul(tape, first, mix[1]));
    return cmha_concat(tape, cmha_slice(tape, qkv, 2, 0, values), v, 2);
}

/* The layer's plain heads on h [B, N, d_model]: `attention` of the configuration. */
static cmha_tensor *cmha__plain_attention(cmha__pass *pass, cmha_tensor *h) {
    const cmha_model_config *c = pass->c;
    const cmha_block *k = pass->k;
    size_t heads = cmha__plain_heads(c, pass->layer);
    cmha_attention_args a = cmha__softmax_args(pass, heads, cmha__head_width(c));
    a.score = cmha__layer_score(pass->model, pass->layer);
    a.heads *= cmha__fan(pass->model->plain);
    if (heads == c->n_heads) a.kv_heads = cmha__kv_heads(c);
    a.layout = (cmha_layout)c->layout;
    a.rotary_dims = c->rotary_dims;
    if (a.rotation && a.rotation == pass->rotation[0]) a.scale *= (cmha_real)pass->model->score_factor;
    if (a.score && a.score->attend) { /* builds the whole attention */
        const cmha_score *score = a.score;
        cmha_layer layer = {pass->tape, pass->model, score, pass->layer, pass->B, pass->N, pass->first,
                k->score, a, pass};
        layer.args.score = NULL;
        layer.args.kind = CMHA_ATTENTION_DOT;
        cmha_tensor *y = h ? score->attend(&layer, h) : NULL;
        if (pass->tape->status || (y && cmha__same_shape(y, h))) return y;
        return CMHA__MISFIT(pass->tape, "score %s: attend must return [%zu, %zu, %zu]", score->name, pass->B,
                pass->N, c->d_model);
    }
    cmha_tensor *qkv = cmha__linear(pass, h, k->qkv_weight, k->qkv_bias);
    if (c->qk_norm) qkv = cmha__norm_queries(pass, qkv, heads, a.kv_heads);
    if (c->value_residual) qkv = cmha__mix_values(pass, qkv, a.kv_heads * a.d_k);
    if (a.score && a.score->planes == 2) {
        a.d_k /= 2;
        a.halves = 1;
        a.softmax = CMHA_SOFTMAX_REAL;
    }
    a.kind = (cmha_attention_kind)c->attention;
    if (c->pcl_weight > 0 && cmha__records(pass->tape)) {
        cmha_pcl_options options = {(cmha_real)c->pcl_tau, (cmha_real)c->pcl_mask, c->pcl_adapted};
        cmha_tensor *w = k->pcl_w ? k->pcl_w : cmha__ones(pass->tape, cmha__head_width(c) / 2);
        cmha__add_loss(pass, cmha_pcl(pass->tape, &a, qkv, k->score[0], k->score[1], w, &options),
                c->pcl_weight / (double)c->n_layers);
    }
    return pass->tape->status ? NULL : cmha__softmax_heads(pass, &a, qkv, NULL, NULL, k->score);
}

/* CoPE's first layer: complex queries and keys of h + i imag, real values of h (CoPE eq 2). */
static cmha_tensor *cmha__cope_attention(cmha__pass *pass, cmha_tensor *h) {
    const cmha_model_config *c = pass->c;
    cmha_attention_args a = cmha__softmax_args(pass, c->n_heads, cmha__head_width(c));
    cmha_tensor *z = cmha_complex_join(pass->tape, h, pass->imag);
    cmha_tensor *q = cmha__linear(pass, z, pass->k->zq_weight, NULL);
    cmha_tensor *k = cmha__linear(pass, z, pass->k->zk_weight, NULL);
    cmha_tensor *v = cmha__linear(pass, h, pass->k->zv_weight, NULL);
    if (c->qk_norm) q = cmha__norm_heads(pass, q, pass->k->q_norm, 2, a.d_k);
    if (c->qk_norm) k = cmha__norm_heads(pass, k, pass->k->k_norm, 2, a.d_k);
    cmha_cope_options cope = {(cmha_cope_score)c->cope_score, (cmha_real)c->cope_alpha, a.eps,
            c->cope_repo_scale, (cmha_norm_max)c->cope_max, c->cope_max_grad};
    cmha_tensor *qkv[3] = {q, k, v};
    a.score = pass->model->score;
    if (c->cope_score == CMHA_COPE_SCORE_LINEAR && !a.score)
        return cmha__linear_heads(pass, CMHA_LINEAR_COPE, c->n_heads, a.d_k, qkv);
    cmha_cope_set_args(&a, &cope);
    a.scale *= (cmha_real)c->cope_scale;
    if (a.score) a.softmax = CMHA_SOFTMAX_REAL;
    return cmha__softmax_heads(pass, &a, q, k, v, pass->k->score);
}

/* ---- Blocks of the real family and CoPE ---- */

/* x + gain * dropout(y), y = h Wo^T + bo of the attention's h or, ffn = 1, act(h W1^T + b1) W2^T + b2; where
   the block has norm 4 or 5, of y's norm. */
static cmha_tensor *cmha__block_output(cmha__pass *pass, int ffn, cmha_tensor *h, cmha_tensor *x) {
    const cmha_block *k = pass->k;
    cmha_tensor *sum = (ffn ? k->ln2_out_weight : k->ln1_out_weight) ? NULL : x;
    if (ffn) h = cmha__linear(pass, h, k->w1_weight, k->w1_bias);
    if (ffn) h = cmha__project(pass, h, pass->c->activation, k->w2_weight, k->w2_bias, sum);
    else h = cmha__project(pass, h, CMHA_ACTIVATION_NONE, k->wo_weight, k->wo_bias, sum);
    if (sum) return h;
    h = cmha__drop(pass, cmha__ln(pass, ffn ? 5 : 4, h));
    return cmha_add(pass->tape, x, cmha__scaled(pass, h, pass->c->residual_scale));
}

static cmha_tensor *cmha__transformer_block(cmha__pass *pass, cmha_tensor *x) {
    const cmha__family_row *family = cmha__layer_family(pass->c, pass->layer);
    if (pass->c->placement == CMHA_PLACEMENT_POST) {
        x = cmha__ln(pass, 1, cmha__block_output(pass, 0, family->attend(pass, x), x));
        return cmha__ln(pass, 2, cmha__block_output(pass, 1, x, x));
    }
    const int parallel = pass->c->parallel;
    cmha_tensor *h = cmha__ln(pass, 1, x), *f = h;
    if (parallel == CMHA_PARALLEL_NORMS) f = cmha__ln(pass, 2, x); /* before x is the sum */
    else if (parallel && h == x) f = cmha_scale(pass->tape, x, 1);
    x = cmha__block_output(pass, 0, family->attend(pass, h), x);
    if (!parallel) f = cmha__ln(pass, 2, x);
    return cmha__block_output(pass, 1, f, x);
}

/* ---- MöbiusAttention's block ---- */

/* Möbius heads on re + i im -> planes [B, N, 2 d_q] (MöbiusAttention eq 5-9). */
static cmha_tensor *cmha__mobius_attention(cmha__pass *pass, cmha_tensor *re, cmha_tensor *im) {
    const cmha_model_config *c = pass->c;
    const cmha_block *k = pass->k;
    cmha_tape *tape = pass->tape;
    cmha_quotient_kind quotient = (cmha_quotient_kind)c->mobius_quotient;
    cmha_real eps = (cmha_real)c->mobius_eps;
    size_t width = c->mobius_heads * cmha__head_width(c);
    int literal = c->mobius_mode == CMHA_MOBIUS_MODE_LITERAL;
    cmha_attention_args a = cmha__softmax_args(pass, c->mobius_heads, cmha__head_width(c));
    a.kind = CMHA_ATTENTION_COMPLEX;
    a.softmax = (cmha_softmax_kind)c->mobius_softmax;
    a.complex_v = 1;
    a.bilinear = !c->mobius_hermitian;
    a.magnitude = 1; /* the form `abs` */
    if (literal && width < c->d_model) {
        re = cmha_slice(tape, re, 2, 0, width);
        im = cmha_slice(tape, im, 2, 0, width);
    }
    cmha_tensor *rho = cmha_complex_join(tape, re, im);
    cmha_tensor *q = literal ? rho : cmha__linear(pass, rho, k->zq_weight, k->zq_bias);
    cmha_tensor *d = cmha__linear(pass, rho, k->divisor_weight, k->divisor_bias);
    q = k->mobius ? cmha_mobius(tape, q, k->mobius, quotient, eps) : cmha_quotient(tape, q, d, quotient, eps);
    cmha_tensor *key = literal ? cmha_elementwise_complex(tape, rho, k->zk_weight)
            : cmha__linear(pass, rho, k->zk_weight, k->zk_bias);
    cmha_tensor *v = literal ? cmha_elementwise_complex(tape, rho, k->zv_weight)
            : cmha__linear(pass, rho, k->zv_weight, k->zv_bias);
    return cmha__softmax_heads(pass, &a, q, key, v, &k->mobius_temp);
}

/* One channel of the layer after its attention: LN3(FFN(y) + y), y = LN2(a Wo^T + residual). */
static cmha_tensor *cmha__mobius_channel(cmha__pass *pass, cmha_tensor *a, cmha_tensor *residual) {
    cmha_tensor *y = cmha__ln(pass, 2, cmha__block_output(pass, 0, a, residual));
    return cmha__ln(pass, 3, cmha__block_output(pass, 1, y, y));
}

/* MöbiusAttention eq 10-27: Möbius heads beside plain ones (eq 10-19) or alone (eq 20-27). */
static cmha_tensor *cmha__mobius_block(cmha__pass *pass, cmha_tensor *x) {
    const cmha_block *k = pass->k;
    cmha_tape *tape = pass->tape;
    cmha_tensor *re = cmha__ln(pass, 1, x), *im = cmha__ln(pass, 1, pass->imag);
    cmha_tensor *a = k->zk_weight ? cmha__mobius_attention(pass, re, im) : NULL;
    cmha_tensor *a_re = cmha_complex_part(tape, a, 0);
    cmha_tensor *a_im = cmha_complex_part(tape, a, 1);
    pass->imag = pass->tokens; /* of the next Möbius layer */
    if (tape->status) return NULL;
    if (!k->qkv_weight) {
        cmha_block imag = *k;
        imag.wo_weight = k->imag_wo_weight;
        imag.wo_bias = k->imag_wo_bias;
        imag.w1_weight = k->imag_w1_weight;
        imag.w1_bias = k->imag_w1_bias;
        imag.w2_weight = k->imag_w2_weight;
        imag.w2_bias = k->imag_w2_bias;
        pass->k = &imag;
        im = cmha__mobius_channel(pass, a_im, im);
        pass->k = k;
        re = cmha__mobius_channel(pass, a_re, re);
        return cmha_add(tape, re, im);
    }
    cmha_tensor *plain = cmha__plain_attention(pass, cmha_add(tape, re, im));
    if (a) plain = cmha_concat(tape, plain, cmha_add(tape, a_re, a_im), 2);
    return cmha__mobius_channel(pass, plain, re);
}

/* ---- CRAT's block ---- */

/* One group of heads on z: real heads see Re z, imaginary ones Im z, mixed ones z (CRAT eq 10-15). */
static cmha_tensor *cmha__crat_group(cmha__pass *pass, cmha_tensor *z, int g) {
    const cmha_model_config *c = pass->c;
    const cmha_block *k = pass->k;
    cmha_tensor *w = k->group[g].weight;
    cmha_tape *tape = pass->tape;
    size_t heads = cmha__group_heads(c, g), d = c->d_model / 2 / c->n_heads;
    cmha_attention_args a = cmha__softmax_args(pass, heads, d); /* scale: CRAT eq 12 */
    cmha_tensor *x = g < 2 ? cmha_complex_part(tape, z, g) : z, *qkv[3];
    if (!w && g < 2) x = cmha_complex_join(tape, x, NULL);
    for (int i = 0; i < 3; i++)
        qkv[i] = cmha_complex_lowrank(tape, x, k->group[g].u[i], k->group[g].v[i], NULL);
    if (w) qkv[0] = cmha__linear(pass, x, w, NULL);
    if (c->crat_attention == CMHA_CRAT_ATTENTION_LINEAR)
        return cmha__linear_heads(pass, CMHA_LINEAR_ANGULAR, heads, d, qkv);
    if (c->crat_attention == CMHA_CRAT_ATTENTION_LAG) {
        cmha_lag_args lag;
        cmha__zero(lag);
        lag.heads = heads;
        lag.topk = c->lag_topk;
        lag.temp = (cmha_real)c->lag_temp;
        lag.eps = a.eps;
        lag.key_mask = a.key_mask;
        return cmha_lag_attention(tape, &lag, qkv[0], qkv[1], qkv[2]);
    }
    a.kind = c->crat_attention == CMHA_CRAT_ATTENTION_DOT ? CMHA_ATTENTION_COMPLEX : CMHA_ATTENTION_ANGULAR;
    a.softmax = CMHA_SOFTMAX_REAL;
    a.angle = c->angle;
    a.complex_v = 1;
    return cmha__softmax_heads(pass, &a, qkv[0], qkv[1], qkv[2], &k->group[g].temp);
}

/* (alpha + i beta) z + f (CRAT eq 20); sum 0 or 1 of the layer. */
static cmha_tensor *cmha__crat_residual(cmha__pass *pass, int sum, cmha_tensor *z, cmha_tensor *f) {
    cmha_tensor *alpha = pass->k->alpha[sum], *beta = pass->k->beta[sum];
    f = cmha__scaled(pass, cmha__drop(pass, f), pass->c->residual_scale);
    return alpha ? cmha_complex_residual(pass->tape, z, f, alpha, beta) : cmha_add(pass->tape, z, f);
}

/* W2 cGELU(W1 h + b1) + b2 (CRAT eq 9), or the experts (CRAT eq 21). */
static cmha_tensor *cmha__crat_ffn(cmha__pass *pass, cmha_tensor *h) {
    const cmha_block *k = pass->k;
    const unsigned char *mask = pass->batch->key_mask;
    size_t experts = pass->c->experts, top = pass->c->experts_top;
    cmha_tape *tape = pass->tape;
    if (!experts) {
        h = cmha_activate(tape, cmha__linear(pass, h, k->w1_weight, k->w1_bias), CMHA_ACTIVATION_GELU_ERF);
        return cmha__linear(pass, h, k->w2_weight, k->w2_bias);
    }
    int counts = cmha__records(tape) && !pass->again;
    uint64_t *use = counts ? pass->model->expert_use + pass->layer * experts : NULL;
    cmha_tensor *logits = cmha_router(tape, h, k->router_weight, k->router_bias);
    if (cmha__records(tape) && pass->c->balance > 0)
        cmha__add_loss(pass, cmha_balance(tape, logits, top, mask), pass->c->balance);
    const cmha_experts_tensors weights = {k->w1_weight, k->w1_bias, k->w2_weight, k->w2_bias};
    const cmha_experts_options options = {top, mask, use};
    return cmha_experts(tape, h, logits, &weights, &options);
}

/* a = window(W_o attention(norm(z))) (CRAT eq 16-19), z = r1 z + a, z = r2 z + ffn(norm(z)). A window changes
   nothing without a base. */
static cmha_tensor *cmha__crat_block(cmha__pass *pass, cmha_tensor *z) {
    const cmha_model_config *c = pass->c;
    const cmha_block *k = pass->k;
    const cmha_knowledge *base = pass->model->knowledge;
    cmha_tape *tape = pass->tape;
    cmha_tensor *h = cmha__ln(pass, 1, z), *a = NULL;
    for (int g = 0; g < 3; g++) {
        cmha_tensor *b = cmha__group_heads(c, g) ? cmha__crat_group(pass, h, g) : NULL, *first = a;
        if (!a) a = b;
        if (!first || !b) continue;
        /* Planes head after head: [Re a | Im a] and [Re b | Im b] become [Re a b | Im a b]. */
        size_t n = pass->B * pass->N, wa = cmha__last(a) / 2, wb = cmha__last(b) / 2;
        size_t left[] = {n, 2, wa}, right[] = {n, 2, wb}, both[] = {pass->B, pass->N, 2 * (wa + wb)};
        a = cmha_reshape(tape, a, 3, left);
        b = cmha_reshape(tape, b, 3, right);
        a = cmha_reshape(tape, cmha_concat(tape, a, b, 2), 3, both);
    }
    a = k->wo_u ? cmha_complex_lowrank(tape, a, k->wo_u, k->wo_v, NULL)
            : cmha__linear(pass, a, k->wo_weight, NULL);
    cmha_retrieve_args args = {c->irw_queries, c->irw_top, (cmha_real)c->irw_tau, (cmha_real)c->irw_threshold,
            (cmha_real)c->complex_eps, c->irw_raw};
    if (k->irw.wm && (base || cmha__dry(tape)))
        a = cmha_irw(tape, base, &args, (cmha_real)c->irw_gate_tau, (cmha_fusion)c->irw_fusion, a, &k->irw);
    z = cmha__crat_residual(pass, 0, z, a);
    return cmha__crat_residual(pass, 1, z, cmha__crat_ffn(pass, cmha__ln(pass, 2, z)));
}

/* ---- Blocks that keep their input alone (recompute = 1) ----
   The block runs as ever; its result moves down to where it began, the rest is forgotten. The backward runs
   it again with the same dropout keys and walks its records to the gradients outside: sums keep all bits. */

typedef struct {
    cmha__pass pass; /* as it was before the block */
    cmha_batch batch; /* the caller's own may be gone by then */
    cmha_tensor *x, *extra; /* extra: the losses up to and with this block's, if it adds any */
    uint64_t key, draws; /* the tape's */
} cmha__kept;

static cmha_tensor *cmha__run_block(cmha__pass *pass, cmha_tensor *x) {
    pass->k = &pass->model->blocks[pass->layer];
    if (pass->tape->probe) pass->tape->probe->at = pass->layer;
    return cmha__layer_family(pass->c, pass->layer)->block(pass, x);
}

/* Runs the block once more and back, with no records and free buffers of before. Gradients outside begin as
   zeros below what the block takes. */
static cmha_status cmha__kept_backward(cmha_tape *tape, cmha_record *r) {
    const cmha__kept *kept = (const cmha__kept *)r->user;
    cmha__pass pass = kept->pass;
    cmha_tensor *outer[] = {kept->x, pass.imag, pass.tokens, pass.extra};
    for (int i = 0; i < 4; i++) cmha_tape_grad(tape, outer[i]);
    if (tape->status) return tape->status;
    cmha_tape before = *tape;
    cmha__mark memory = cmha__mark_of(tape), records = cmha__arena_mark(&tape->records);
    tape->recording = 1;
    tape->key = kept->key;
    tape->draws = kept->draws;
    tape->last = NULL;
    tape->n_unused = 0;
    pass.again = 1;
    pass.batch = &kept->batch;
    cmha_tensor *y = cmha__run_block(&pass, kept->x);
    if (y) {
        y->grad = r->out->grad;
        y->needs_grad = r->out->needs_grad;
        if (kept->extra) {
            pass.extra->grad = kept->extra->grad;
            pass.extra->needs_grad = 1;
        }
        cmha__walk(tape);
    }
    before.memory = tape->memory;
    before.records = tape->records;
    before.shared = tape->shared;
    before.status = tape->status;
    *tape = before;
    if (tape->status) return tape->status;
    cmha__rewind(tape, memory);
    cmha__arena_rewind(tape, &tape->records, records);
    return CMHA_OK;
}

/* Keeps the losses' gradient until the block is reached, also where nothing else leads there. */
static cmha_status cmha__kept_extra_backward(cmha_tape *tape, cmha_record *r) {
    cmha_tape_grad(tape, r->in[0]);
    return tape->status;
}

/* Runs the block; appends it and the losses it has added, if they need a gradient. */
static cmha_tensor *cmha__kept_block(cmha__pass *pass, cmha_tensor *x) {
    cmha_tape *tape = pass->tape;
    size_t none = 0, one = 1;
    cmha__kept *kept = CMHA__NEW(tape, cmha__kept);
    cmha_tensor *y = cmha__result(tape, x->rank, x->shape), *sum = cmha__result(tape, 1, &one);
    cmha_record *last = tape->last;
    if (!kept || !y || !sum) return NULL;
    kept->pass = *pass;
    kept->batch = *pass->batch;
    kept->x = x;
    kept->key = tape->key;
    kept->draws = tape->draws;
    cmha__mark memory = cmha__mark_of(tape), records = cmha__arena_mark(&tape->records);
    cmha_tensor *inner = cmha__run_block(pass, x);
    if (!inner) return NULL;
    if (!cmha__dry(tape)) cmha__copy(y->data, inner->data, y->size);
    int needs_grad = inner->needs_grad;
    if (pass->extra != kept->pass.extra) {
        needs_grad |= pass->extra->needs_grad; /* of losses whose block's output learns nothing */
        if (!cmha__dry(tape)) sum->data[0] = pass->extra->data[0];
        pass->extra = kept->extra = sum;
    }
    cmha__rewind(tape, memory);
    cmha__arena_rewind(tape, &tape->records, records);
    tape->last = last;
    cmha_tensor *learns = cmha__tensor_shaped(tape, 1, &none); /* for its many parameters */
    if (!learns) return NULL;
    learns->needs_grad = needs_grad;
    if (!cmha__push(tape, "block", y, &learns, 1, cmha__kept_backward, kept)) return NULL;
    if (kept->extra && y->needs_grad) {
        cmha__push(tape, "losses of a block", sum, &y, 1, cmha__kept_extra_backward, NULL);
        sum->needs_grad = 1;
    }
    return tape->status ? NULL : y;
}

/* Outside of a recording x keeps its memory, and what the block took is given back. */
static cmha_tensor *cmha__block(cmha__pass *pass, cmha_tensor *x) {
    cmha__mark mark = cmha__mark_of(pass->tape);
    if (cmha__records(pass->tape) && pass->c->recompute) return cmha__kept_block(pass, x);
    cmha_tensor *y = cmha__run_block(pass, x);
    if (!y || cmha__records(pass->tape)) return y;
    if (y != x && !cmha__dry(pass->tape)) cmha__copy(x->data, y->data, x->size);
    cmha__rewind(pass->tape, mark);
    return x;
}

/* ---- Embeddings ---- */

/* Rows [B, N, d] of an embedding: of ids or (NULL) of positions from pass->first on, or of 0. */
static cmha_tensor *cmha__rows_of_embedding(cmha__pass *pass, cmha_tensor *weight, const int32_t *ids) {
    size_t N = pass->N, n = pass->B * N;
    if (!ids) {
        int32_t *made = (int32_t *)cmha_tape_alloc(pass->tape, n * sizeof *made);
        if (made && !cmha__dry(pass->tape))
            for (size_t i = 0; i < n; i++)
                made[i] = weight == pass->model->position_weight ? (int32_t)(pass->first + i % N) : 0;
        ids = made;
    }
    return cmha_embedding(pass->tape, weight, ids, pass->B, N);
}

/* x + scale * positions, learned or of a table, which leaves no record; x NULL: those alone. */
static cmha_tensor *cmha__add_positions(cmha__pass *pass, cmha_tensor *x, cmha_cope_imag kind, double scale) {
    size_t N = pass->N, d = pass->c->d_model, shape[] = {pass->B, N, d};
    size_t n = pass->first + N, room = pass->c->max_positions;
    cmha_tensor *weight = pass->model->position_weight;
    if (weight) {
        if (n > room)
            return CMHA__MISFIT(pass->tape, "model: %zu positions, the learned embedding has %zu", n, room);
        cmha_tensor *rows = cmha__rows_of_embedding(pass, weight, NULL);
        rows = cmha__scaled(pass, rows, scale);
        return x ? cmha_add(pass->tape, x, rows) : rows;
    }
    if (!x) x = cmha_tensor_new(pass->tape, 3, shape, 0);
    cmha__mark mark = cmha__mark_of(pass->tape);
    cmha_real *table = x ? cmha__reals(pass->tape, N * d) : NULL;
    if (table && !cmha__dry(pass->tape)) {
        cmha_cope_table(kind, N, d, pass->c->base, pass->first, table);
        for (size_t i = 0; i < pass->B; i++) cmha__axpy(N * d, (cmha_real)scale, table, x->data + i * N * d);
    }
    cmha__rewind(pass->tape, mark);
    return x;
}

/* x + multi-frequency positions (CRAT eq 2-3). */
static cmha_tensor *cmha__add_waves(cmha__pass *pass, cmha_tensor *x) {
    const cmha_model *m = pass->model;
    cmha_tensor *waves = cmha_multifreq(pass->tape, m->pe_omega, m->pe_delta, pass->N, pass->first);
    return cmha_add_rows(pass->tape, x, waves);
}

static cmha_tensor *cmha__real_embed(cmha__pass *pass, cmha_tensor *x) {
    const cmha_model *m = pass->model;
    int where = pass->c->position;
    if (where == CMHA_POSITION_LEARNED || where == CMHA_POSITION_SINUSOIDAL)
        x = cmha__add_positions(pass, x, CMHA_COPE_IMAG_SIN_COS, 1);
    if (where == CMHA_POSITION_MULTIFREQ) x = cmha__add_waves(pass, x);
    return cmha__drop(pass,
        cmha__norm_by(pass->tape, pass->c, 0, x, m->emb_norm_weight, m->emb_norm_bias));
}

/* The first layer's imaginary channel: gamma * positions (CoPE eq 1), and features'. */
static cmha_tensor *cmha__cope_embed(cmha__pass *pass, cmha_tensor *x) {
    const cmha_model_config *c = pass->c;
    cmha_tensor *gamma = pass->model->gamma, *f = gamma ? NULL : pass->features;
    cmha_tape *tape = pass->tape;
    x = cmha__drop(pass, x);
    f = cmha__add_positions(pass, f, (cmha_cope_imag)c->cope_imag, gamma ? 1 : c->cope_gamma);
    if (gamma) { /* a column times a matrix of one number */
        const size_t shape[] = {pass->B, pass->N, c->d_model, 1, 1};
        f = cmha_linear(tape, cmha_reshape(tape, f, 4, shape), cmha_reshape(tape, gamma, 2, shape + 3), NULL);
        f = cmha_reshape(tape, f, 3, shape);
        if (pass->features) f = cmha_add(tape, f, pass->features);
    }
    pass->imag = cmha__drop(pass, f);
    return x;
}

/* The imaginary channels: positions in the first Möbius layer, in later ones the tokens. */
static cmha_tensor *cmha__mobius_embed(cmha__pass *pass, cmha_tensor *x) {
    cmha_tape *tape = pass->tape;
    pass->tokens = x = cmha__drop(pass, x);
    pass->imag = cmha__drop(pass, cmha__add_positions(pass, pass->features, CMHA_COPE_IMAG_SIN_COS, 1));
    if (!x || cmha__records(tape)) return x;
    pass->tokens = cmha__result(tape, x->rank, x->shape); /* a copy of their own: blocks then overwrite x */
    if (pass->tokens && !cmha__dry(tape)) cmha__copy(pass->tokens->data, x->data, x->size);
    return x;
}

/* The state of token embeddings x [B, N, d] -> planes [B, N, d] (CRAT eq 2-7). */
static cmha_tensor *cmha__crat_embed(cmha__pass *pass, cmha_tensor *x) {
    const cmha_model *m = pass->model;
    cmha_tape *tape = pass->tape;
    cmha_tensor *h = cmha__drop(pass, cmha__add_waves(pass, x));
    cmha_tensor *z = cmha_linear(tape, h, m->state_weight, m->state_bias);
    if (pass->features) {
        cmha_tensor *f = cmha__drop(pass, pass->features);
        z = m->state_weight ? cmha_add(tape, z, f) : f;
    }
    if (m->theta_weight)
        z = cmha_complex_rotate(tape, z, cmha_linear(tape, h, m->theta_weight, m->theta_bias));
    return pass->c->state_gelu ? cmha_activate(tape, z, CMHA_ACTIVATION_GELU_ERF) : z;
}

/* ---- The table of families ---- */

static const cmha__family_row *cmha__family(int family) {
    static const cmha__family_row families[] = {
        {CMHA_FAMILY_REAL, 0, NULL, cmha__declare_layer, NULL, cmha__real_embed, cmha__transformer_block,
         cmha__plain_attention},
        {CMHA_FAMILY_COPE, 0, cmha__first_layer, cmha__declare_layer, cmha__cope_wrong, cmha__cope_embed,
         cmha__transformer_block, cmha__cope_attention},
        {CMHA_FAMILY_MOBIUS, 0, cmha__mobius_layer, cmha__declare_layer, cmha__mobius_wrong,
         cmha__mobius_embed, cmha__mobius_block, NULL},
        {CMHA_FAMILY_CRAT, 1, NULL, cmha__declare_crat, cmha__crat_wrong, cmha__crat_embed, cmha__crat_block,
         NULL}};
    const cmha__family_row *row = families;
    while ((int)row->family != family) row++; /* there are none but these */
    return row;
}

/* ---- The model ---- */

/* Rejects numbers that are not finite, n positions of W, unless they are padding. */
static cmha_status cmha__check_finite(cmha_tape *tape, const char *what, const cmha_real *x,
        const unsigned char *mask, size_t n, size_t W) {
    if (cmha__dry(tape)) return tape->status;
    for (size_t i = 0; i < n * W; i++) {
        if ((mask && !mask[i / W]) || fabs((double)x[i]) <= DBL_MAX) continue;
        cmha__reject(tape, CMHA_ERR_NOT_FINITE, "%s: number %zu of position %zu is %g", what, i % W, i / W,
                (double)x[i]);
        break;
    }
    return tape->status;
}

/* Copies the batch's features, normalised, 0 for padding -> [B, N, numbers of a position]. */
static cmha_tensor *cmha__read_features(cmha__pass *pass) {
    const cmha_model_config *c = pass->c;
    const cmha_batch *b = pass->batch;
    size_t W = cmha__feature_width(c), N = pass->N, shape[] = {pass->B, N, W};
    size_t group = c->feature_norm == CMHA_FEATURE_NORM_SEQUENCE ? N : 1; /* positions of one norm */
    cmha_tensor *f = cmha__result(pass->tape, 3, shape);
    if (!f || cmha__check_finite(pass->tape, "features", b->features, b->key_mask, pass->B * N, W))
        return NULL;
    if (!cmha__dry(pass->tape))
        for (size_t t = 0, present = 0; t < pass->B * N; t++) {
            cmha_real *row = f->data + t * W, *first = row - t % group * W;
            int absent = b->key_mask && !b->key_mask[t];
            if (absent) cmha__zeros(row, W);
            else cmha__copy(row, b->features + t * W, W);
            present = (t % group ? present : 0) + !absent;
            if (!c->feature_norm || t % group < group - 1 || !present) continue;
            double rms = sqrt(cmha_sum_squares(first, group * W) / (double)(present * c->features));
            if (rms > 0)
                for (size_t i = 0; i < group * W; i++) first[i] = (cmha_real)((double)first[i] / rms);
        }
    return f;
}

/* Embeds ids and features -> [B, N, d_model]. */
static cmha_tensor *cmha__embed_input(cmha__pass *pass) {
    const cmha_model *m = pass->model;
    const cmha_model_config *c = pass->c;
    cmha_tape *tape = pass->tape;
    cmha_tensor *x = NULL, *f = NULL;
    size_t shape[] = {pass->B, pass->N, c->d_model};
    int complex_in = m->feature_weight && m->feature_weight->rank == 3;
    if (!c->features != !pass->batch->features)
        return CMHA__MISUSE(tape, "model: it reads %zu features a position, batch->features is %sNULL",
            c->features, c->features ? "" : "not ");
    if ((!c->tokens && pass->batch->ids) || (!c->token_types && pass->batch->types))
        return CMHA__MISUSE(tape, "model: it reads no %s, which batch has",
            !c->tokens && pass->batch->ids ? "ids" : "types");
    if (c->tokens) x = cmha_embedding(tape, m->token_weight, pass->batch->ids, pass->B, pass->N);
    double root = c->embedding_scale ? sqrt((double)c->d_model) : 1;
    x = cmha__scaled(pass, x, c->embedding_factor * root);
    if (c->features) f = cmha__read_features(pass);
    f = complex_in ? cmha_complex_linear(tape, f, m->feature_weight, m->feature_bias)
            : cmha_linear(tape, f, m->feature_weight, m->feature_bias);
    if (complex_in) {
        int whole = cmha__complex_state(c);
        pass->features = whole ? f : cmha_complex_part(tape, f, 1);
        f = whole ? NULL : cmha_complex_part(tape, f, 0);
    }
    if (f) x = x ? cmha_add(tape, x, f) : f;
    if (!x) x = cmha_tensor_new(tape, 3, shape, 0);
    if (!m->type_weight) return x;
    return cmha_add(tape, x, cmha__rows_of_embedding(pass, m->type_weight, pass->batch->types));
}

/* a x + b (what the first layer read): in x's memory outside of a recording, as a block. */
static cmha_tensor *cmha__mixed(cmha__pass *pass, cmha_tensor *x) {
    cmha_tape *tape = pass->tape;
    cmha_tensor *const *mix = pass->model->blocks[pass->layer].mix;
    if (!pass->first_input) pass->first_input = x;
    cmha__mark mark = cmha__mark_of(tape);
    cmha_tensor *y = cmha_add(tape, cmha_mul(tape, x, mix[0]), cmha_mul(tape, pass->first_input, mix[1]));
    if (!y || cmha__records(tape)) return y;
    if (!cmha__dry(tape)) cmha__copy(x->data, y->data, x->size);
    cmha__rewind(tape, mark);
    return x;
}

/* Makes the tables of angles that layers turn by; near ones' positions end where the cache does. */
static void cmha__turn_layers(cmha__pass *pass) {
    const cmha_model *m = pass->model;
    const size_t N = pass->N, P = m->P;
    int sink = pass->cache && pass->cache->sinks && !pass->cache->exact;
    for (size_t layer = 0; layer < pass->c->n_layers; layer++) {
        int table = cmha__layer_table(pass->c, cmha__layer_kind(pass->c, layer));
        const double *omega = table ? m->layer_omega + (size_t)(table - 1) * P : m->omega;
        size_t n_omega = table ? 1 : m->n_omega;
        if (pass->rotation[table]) continue;
        pass->rotation[table] = cmha_rotation(pass->tape, omega, n_omega, P, N, (ptrdiff_t)pass->first);
        if (!sink) continue;
        cmha_real *to = cmha__reals(pass->tape, n_omega * N * 2 * P);
        pass->near_rotation[table] = to;
        if (!to || cmha__dry(pass->tape)) continue;
        for (size_t i = 0; i < n_omega * N; i++, to += 2 * P) {
            size_t position = cmha__min(pass->first + i % N, pass->cache->capacity - 1);
            cmha_rotation_table(omega + i / N * P, P, 1, (ptrdiff_t)position, to);
        }
    }
}

/* Embedding and blocks -> [B, N, d_model]. */
static cmha_tensor *cmha__model_body(cmha__pass *pass) {
    const cmha_model *m = pass->model;
    const cmha_model_config *c = pass->c = &m->config;
    const cmha__family_row *family = cmha__family(c->family);
    pass->B = pass->batch->batch;
    pass->N = pass->batch->length;
    const size_t values[3] = {pass->B, pass->N, cmha__kv_heads(c) * cmha__head_width(c)};
    cmha_tape *tape = pass->tape;
    if (!family->complex_state && m->plain->rotates) cmha__turn_layers(pass);
    cmha_tensor *x = family->embed(pass, cmha__embed_input(pass));
    if (x && !cmha__records(tape)) { /* blocks overwrite x: of the first one later ones read a copy */
        if (c->value_residual) pass->first_values = cmha__result(tape, 3, values);
        if (c->residual_mix) pass->first_input = cmha__result(tape, x->rank, x->shape);
        if (pass->first_input && !cmha__dry(tape)) cmha__copy(pass->first_input->data, x->data, x->size);
    }
    for (pass->layer = 0; x && pass->layer < c->n_layers; pass->layer++) {
        tape->section = pass->layer + 1;
        if (c->residual_mix) x = cmha__mixed(pass, x);
        if (x) x = cmha__block(pass, x);
    }
    tape->section = c->n_layers + 1;
    if (!x || !family->complex_state || !cmha__records(tape)) return x;
    const unsigned char *mask = pass->batch->key_mask; /* CRAT eq 23-25 does not say of which state */
    cmha_real phase = (cmha_real)c->phase_reg, mag = (cmha_real)c->mag_reg, eps = (cmha_real)c->complex_eps;
    if (phase > 0) cmha__add_loss(pass, cmha_phase_reg(tape, x, mask, phase, eps), 1);
    if (mag > 0) cmha__add_loss(pass, cmha_mag_reg(tape, x, mask, mag), 1);
    return x;
}

/* A pre-norm model's norm, which takes CRAT's planes as real numbers (CRAT eq 26). */
static cmha_tensor *cmha__final_norm(cmha__pass *pass, cmha_tensor *x) {
    return cmha__norm_by(pass->tape, pass->c, 0, x, pass->model->final_weight, pass->model->final_bias);
}

/* The weight of the vocabulary head; a model without tokens may have none. */
static cmha_tensor *cmha__output_weight(const cmha_model *m, cmha_tape *tape) {
    if (m->config.vocabulary) return m->head_weight ? m->head_weight : m->token_weight;
    return CMHA__UNABLE(tape, "model: it has no vocabulary head (vocabulary = 0)");
}

/* A tensor whose gradient is not recycled (cmha__token_loss). */
static cmha_tensor *cmha__keeping(cmha_tensor *x) {
    if (x) x->needs_grad = !!x->needs_grad;
    return x;
}

/* The vocabulary head's input: states, or their transform. */
static cmha_tensor *cmha__head_input(cmha_model *m, cmha_tape *tape, cmha_tensor *x) {
    const double scale = m->config.head_scale;
    if (scale < 1 || scale > 1) x = cmha__keeping(cmha_scale(tape, x, (cmha_real)scale));
    if (!m->head_dense_weight) return x;
    x = cmha__keeping(cmha_linear(tape, x, m->head_dense_weight, m->head_dense_bias));
    x = cmha__keeping(cmha_activate(tape, x, cmha__head_activation(&m->config)));
    return cmha__keeping(cmha__norm_by(tape, &m->config, 0, x, m->head_norm_weight, m->head_norm_bias));
}

static cmha_tensor *cmha__vocabulary_head(cmha_model *m, cmha_tape *tape, cmha_tensor *x) {
    const cmha_real cap = (cmha_real)m->config.logit_softcap;
    x = cmha_linear(tape, cmha__head_input(m, tape, x), cmha__output_weight(m, tape), m->head_bias);
    return cap > 0 ? cmha_softcap(tape, x, cap) : x;
}

CMHA_DEF cmha_tensor *cmha_model_states(cmha_model *model, cmha_tape *tape, const cmha_batch *batch,
        cmha_tensor **extra_loss) {
    cmha__pass pass;
    if (extra_loss) *extra_loss = NULL;
    if (!tape || tape->status) return NULL;
    if (!model || !batch) return CMHA__MISUSE(tape, "model: %s is NULL", model ? "batch" : "model");
    if (!cmha__model_is_open(model)) return CMHA__UNABLE(tape, "model: it is closed");
    if (cmha__records(tape)) cmha__stop(tape, cmha__need_grad(&model->parameters));
    if (tape->status) return NULL;
    cmha__zero(pass);
    pass.model = model;
    pass.tape = tape;
    pass.batch = batch;
    cmha_tensor *x = cmha__final_norm(&pass, cmha__model_body(&pass));
    if (extra_loss) *extra_loss = x ? pass.extra : NULL;
    return x;
}

CMHA_DEF cmha_tensor *cmha_model_forward(cmha_model *model, cmha_tape *tape, const cmha_batch *batch,
        cmha_tensor **extra_loss) {
    cmha_tensor *x = cmha_model_states(model, tape, batch, extra_loss);
    return x ? cmha__vocabulary_head(model, tape, x) : NULL;
}

CMHA_DEF cmha_tensor *cmha_model_scores(cmha_model *model, cmha_tape *tape, cmha_tensor *states,
        const unsigned char *key_mask) {
    if (!states || !tape || tape->status) return NULL;
    if (!cmha__model_is_open(model))
        return CMHA__MISUSE(tape, "scores: model is %s", model ? "closed" : "NULL");
    if (!model->class_weight)
        return CMHA__UNABLE(tape, "scores: the model has no class head (classes = 0)");
    if (states->rank != 3 || !states->shape[1])
        return CMHA__MISFIT(tape, "scores: no token in states of rank %d", states->rank);
    const cmha_model_config *c = &model->config;
    const size_t shape[2] = {states->shape[0], states->shape[2]};
    cmha_tensor *x = c->pool == CMHA_POOL_MEAN ? cmha_mean_tokens(tape, states, key_mask)
            : cmha_reshape(tape, cmha_slice(tape, states, 1, 0, 1), 2, shape);
    if (model->pool_weight)
        x = cmha__operate(tape, &cmha__tanh_op, 0, 0,
                cmha_linear(tape, x, model->pool_weight, model->pool_bias), NULL);
    x = cmha_linear(tape, x, model->class_weight, model->class_bias);
    if (c->classes > 1 || !(c->label_range > 0)) return x;
    return cmha_scale(tape, cmha_sigmoid(tape, x), (cmha_real)c->label_range);
}

CMHA_DEF cmha_tensor *cmha_model_values(cmha_model *model, cmha_tape *tape, cmha_tensor *states) {
    if (!states || !tape || tape->status) return NULL;
    if (!cmha__model_is_open(model))
        return CMHA__MISUSE(tape, "values: model is %s", model ? "closed" : "NULL");
    if (!model->value_weight)
        return CMHA__UNABLE(tape, "values: the model has no value head (values = 0)");
    cmha_tensor *y = cmha_linear(tape, states, model->value_weight, model->value_bias);
    return model->config.gaussian ? cmha__operate(tape, &cmha__bound_op, 0, 0, y, NULL) : y;
}

CMHA_DEF size_t cmha_frames(const cmha_real *samples, size_t n, size_t planes, size_t width, size_t hop,
        cmha_real *frames) {
    if (!n || !width || !hop) return 0;
    size_t count = n > width ? cmha__min((n - 1) / hop, (n - width - 1) / hop + 1) + 1 : 1;
    if (!frames) return count;
    for (size_t f = 0; f < count; f++)
        for (size_t plane = 0; plane < planes; plane++)
            for (size_t i = 0, at = f * hop; i < width; i++, at++)
                *frames++ = at < n ? samples[plane * n + at] : 0;
    return count;
}

/* ---- Objectives ---- */

/* Of an encoder only the hidden tokens go through the vocabulary. Their number differs by batch, so gradients
   of that size are not recycled: a dry run, where all are hidden, would reuse them for tensors of all tokens
   and measure too little. */
static cmha_tensor *cmha__token_loss(cmha_model *model, const cmha_batch *batch, cmha_tensor *states,
        cmha_real weight, cmha_tensor **extra) {
    cmha_tape *tape = &model->tape;
    cmha_real z = extra && cmha__records(tape) ? (cmha_real)model->config.z_loss : 0;
    const int32_t *targets = batch->targets;
    size_t total = batch->batch * batch->length, n = 0, one = 1;
    if (!targets) return CMHA__MISUSE(tape, "loss: batch->targets, labels and values are NULL");
    if (!model->config.causal) {
        size_t *index = (size_t *)cmha_tape_alloc(tape, (total + 1) * sizeof *index);
        int32_t *wanted = (int32_t *)cmha_tape_alloc(tape, (total + 1) * sizeof *wanted);
        if (wanted && !cmha__dry(tape))
            for (size_t i = 0; i < total; i++)
                if (targets[i] != -1) {
                    index[n] = i;
                    wanted[n++] = targets[i];
                }
        if (cmha__dry(tape)) n = total; /* the most there can be */
        states = cmha__keeping(cmha_gather(tape, states, index, n));
        targets = wanted;
    }
    states = cmha__head_input(model, tape, states);
    cmha_tensor *square = z > 0 ? cmha_tensor_new(tape, 1, &one, 0) : NULL;
    const cmha__entropy_options o = {targets, -1, NULL, (cmha_real)model->config.logit_softcap, weight, z,
            square ? square->data : NULL};
    cmha_tensor *weights = cmha__output_weight(model, tape);
    cmha_tensor *y = cmha__linear_cross_entropy(tape, states, weights, model->head_bias, &o);
    if (square && y) *extra = *extra ? cmha_add(tape, *extra, square) : square;
    return y;
}

/* The loss of tokens, values or labels. weight: the cotangent of the backward that follows. */
static cmha_tensor *cmha__objective(cmha_model *model, const cmha_batch *batch, cmha_real weight,
        cmha_tensor **extra) {
    cmha_tape *tape = &model->tape;
    if (batch->class_weights && !(batch->labels && model->config.classes > 1))
        return CMHA__MISUSE(tape, "loss: class_weights are of labels of several classes");
    cmha_tensor *states = cmha_model_states(model, tape, batch, extra);
    if (!states) return NULL;
    if (!batch->labels && batch->values)
        return cmha__number_loss(tape, cmha_model_values(model, tape, states), batch->values,
                model->config.gaussian, 1);
    if (!batch->labels) return cmha__token_loss(model, batch, states, weight, extra);
    cmha_tensor *scores = cmha_model_scores(model, tape, states, batch->key_mask);
    if (model->config.classes == 1) {
        cmha__check_finite(tape, "labels", batch->labels, NULL, batch->batch, 1);
        return cmha_squared_error(tape, scores, batch->labels);
    }
    int32_t *targets = (int32_t *)cmha__record_alloc(tape, (batch->batch + 1) * sizeof *targets);
    if (targets && !cmha__dry(tape))
        for (size_t b = 0; b < batch->batch; b++) {
            double label = batch->labels[b], classes = (double)model->config.classes;
            targets[b] = label >= 0 && label < classes ? (int32_t)label : -2;
            if (targets[b] < 0 || label > (double)targets[b])
                cmha__reject(tape, CMHA_ERR_TOKEN, "loss: label %g of sequence %zu is not one of %g classes",
                    label, b, classes);
        }
    return cmha_cross_entropy(tape, scores, targets, -1, batch->class_weights);
}

/* Starts a pass of the function `name` on the model's own tape. */
static cmha_status cmha__own_pass(cmha_model *model, const char *name, const cmha_batch *batch,
        const void *result, int recording, uint64_t key) {
    if (!cmha__model_is_open(model)) return CMHA_ERR_STATE;
    cmha_tape_reset(&model->tape);
    model->tape.recording = recording;
    model->tape.key = key;
    if (batch && result) return CMHA_OK;
    return CMHA__WRONG(model->context, "%s: %s is NULL", name, batch ? "the result" : "batch");
}

CMHA_DEF cmha_status cmha_model_loss(cmha_model *model, const cmha_batch *batch, double *loss) {
    cmha_status status = cmha__own_pass(model, "loss", batch, loss, 0, 0);
    if (status) return status;
    cmha_tensor *y = cmha__objective(model, batch, 0, NULL);
    if (y && !cmha__dry(&model->tape)) *loss = y->data[0];
    return model->tape.status;
}

/* Defines a pass to what a head makes of the states x. */
#define CMHA__OWN_OUTPUT(function, name, head) \
    CMHA_DEF cmha_status function(cmha_model *model, const cmha_batch *batch, cmha_real *result) { \
        cmha_status status = cmha__own_pass(model, name, batch, result, 0, 0); \
        if (status) return status; \
        cmha_tensor *x = cmha_model_states(model, &model->tape, batch, NULL); \
        if (x && (x = head) != NULL) cmha__copy(result, x->data, x->size); \
        return model->tape.status; \
    }
CMHA__OWN_OUTPUT(cmha_model_logits, "logits", cmha__vocabulary_head(model, &model->tape, x))
CMHA__OWN_OUTPUT(cmha_model_classify, "classify", cmha_model_scores(model, &model->tape, x, batch->key_mask))
CMHA__OWN_OUTPUT(cmha_model_predict, "predict", cmha_model_values(model, &model->tape, x))

CMHA_DEF cmha_status cmha_model_vectors(cmha_model *model, const cmha_batch *batch, cmha_real *vectors) {
    cmha_status status = cmha__own_pass(model, "vectors", batch, vectors, 0, 0);
    if (status) return status;
    size_t W = model->config.d_model;
    if (W % 2) return cmha__fail(model->context, CMHA_ERR_SHAPE, "vectors: d_model %zu is odd", W);
    cmha_tensor *y = cmha_model_states(model, &model->tape, batch, NULL);
    cmha_real *phasors = cmha__reals(&model->tape, W), eps = (cmha_real)model->config.complex_eps;
    if (phasors)
        for (size_t b = 0; b < batch->batch; b++, vectors += W) {
            size_t count = 0;
            cmha__zeros(vectors, W);
            for (size_t n = b * batch->length; n < (b + 1) * batch->length; n++) {
                if (batch->key_mask && !batch->key_mask[n]) continue;
                cmha_phasor_forward(y->data + n * W, 1, W / 2, eps, phasors);
                cmha__axpy(W, 1, phasors, vectors);
                count++;
            }
            if (count)
                for (size_t j = 0; j < W; j++) vectors[j] /= (cmha_real)count;
        }
    return model->tape.status;
}

CMHA_DEF cmha_status cmha_model_attention(cmha_model *model, const cmha_batch *batch, size_t layer,
        size_t head, int what, cmha_real *out) {
    cmha_status status = cmha__own_pass(model, "model attention", batch, out, 0, 0);
    if (status) return status;
    size_t layers = model->config.n_layers, plain = cmha__plain_heads(&model->config, layer);
    size_t first = model->config.n_heads - plain, heads = first + plain * cmha__fan(model->plain);
    if (layer >= layers || head >= heads || what < 0 || what >= 4 * CMHA_SEE_NEXT)
        return CMHA__WRONG(model->context, "model attention: layer %zu of %zu, head %zu of %zu, what = %d",
                layer, layers, head, heads, what);
    struct cmha__probe probe = {layer, 0, (first + head) % heads, what, out}; /* Möbius heads run first */
    model->tape.probe = &probe;
    cmha_model_states(model, &model->tape, batch, NULL);
    model->tape.probe = NULL;
    if (!model->tape.status && probe.out)
        return CMHA__REFUSED(model->context, "attention: no head %zu in layer %zu", head, layer);
    return model->tape.status;
}

CMHA__FIT cmha_status cmha_model_gradient(cmha_model *model, const cmha_batch *batch, double weight,
        uint64_t key, double *loss) {
    cmha_tensor *extra = NULL;
    cmha_status status = cmha__own_pass(model, "gradient", batch, loss, 1, key);
    if (status) return status;
    cmha_tape *tape = &model->tape;
    const double start = cmha__team_begin(tape, batch->batch * batch->length);
    cmha_tensor *objective = cmha__objective(model, batch, (cmha_real)weight, &extra);
    cmha_tensor *total = extra ? cmha_add(tape, objective, extra) : objective;
    status = tape->status;
    if (total && !cmha__dry(tape)) {
        double sum = total->data[0];
        *loss = objective->data[0];
        if (!(fabs(sum) <= FLT_MAX && fabs(weight) <= FLT_MAX))
            status = cmha__fail(model->context, CMHA_ERR_NOT_FINITE, "gradient: the loss is %g, weighs %g",
                sum, weight);
    }
    if (cmha__among_ranks(tape)) {
        cmha_sharing *s = &tape->shared;
        status = cmha__sum_over_ranks(tape, status, loss, 1);
        s->begins = !status && s->last && s->ranks.begin && !model->config.recompute;
        s->left = s->parameters->count;
        s->begun = s->parameters->learning;
    }
    if (!status) status = cmha_tape_backward(tape, total, (cmha_real)weight);
    cmha__team_end(tape, start);
    return status;
}

CMHA__FIT cmha_status cmha_model_training_loss(cmha_model *model, const cmha_batch *batch, uint64_t key,
        double *loss) {
    cmha_tensor *extra;
    cmha_status status = cmha__own_pass(model, "training loss", batch, loss, 1, key);
    if (status) return status;
    cmha_tensor *objective = cmha__objective(model, batch, 0, &extra);
    if (objective) *loss = (double)objective->data[0] + (extra ? (double)extra->data[0] : 0);
    return model->tape.status;
}

/* Makes a batch for dry runs, of arrays that are never read. */
static cmha_batch cmha__dry_batch(const cmha_model_config *c, size_t batch, size_t length) {
    static const int32_t none = 0;
    static const cmha_real number = 0;
    cmha_batch b = {c->tokens ? &none : NULL, &none, NULL, batch, length, NULL, c->classes ? &number : NULL,
            NULL, c->features ? &number : NULL, c->values ? &number : NULL};
    return b;
}

/* Counts both arenas' bytes by dry runs of a step and of an evaluation (more in small models whose blocks
   run twice). Without a head the objective is the caller's. */
static cmha_status cmha__measure(cmha_model *like, size_t batch, size_t length, size_t *memory,
        size_t *records) {
    cmha_real *nowhere = (cmha_real *)(uintptr_t)64;
    cmha_batch b = cmha__dry_batch(&like->config, batch, length);
    int heads = like->config.vocabulary || like->config.classes || like->config.values;
    cmha_model dry = *like;
    double loss;
    cmha_status status = CMHA_OK;
    *memory = *records = 0;
    if (!dry.parameters.grad) cmha__attach_grad(&dry.parameters, dry.parameters.grad = nowhere);
    for (int training = heads ? 1 : -1; training >= 0; training--) {
        status = cmha_tape_init(&dry.tape, like->context, 1);
        if (status || !CMHA__TRAINS) break;
        dry.tape.memory.measuring = 1;
        status = training ? cmha_model_gradient(&dry, &b, 1, 0, &loss) : cmha_model_loss(&dry, &b, &loss);
        if (dry.tape.memory.peak > *memory) *memory = dry.tape.memory.peak;
        if (dry.tape.records.peak > *records) *records = dry.tape.records.peak;
        cmha_tape_close(&dry.tape);
        if (status) break;
    }
    cmha__attach_grad(&like->parameters, like->parameters.grad);
    return status;
}

CMHA_DEF cmha_status cmha_model_training_memory(cmha_model *model, size_t batch, size_t length,
        size_t *need) {
    size_t memory, records;
    if (!cmha__model_is_open(model)) return CMHA_ERR_STATE;
    if (!need) return CMHA__WRONG(model->context, "model memory: need is NULL");
    cmha_status status = cmha__measure(model, batch, length, &memory, &records);
    const cmha_parameters *p = &model->parameters;
    size_t numbers = (p->size + p->learning + p->kept) * sizeof(cmha_real);
    size_t blocks = 5u + (p->learning > 0) + (p->kept > 0); /* each on a line of cache */
    size_t fixed = model->table_bytes + numbers + 2 * CMHA__BLOCK_OVERHEAD + blocks * 64;
    if (!status && !(cmha__sum(fixed, memory, need) && cmha__sum(*need, records, need) &&
            cmha__sum(*need, cmha__times(cmha__times(batch, length), 2 * sizeof(int32_t)), need)))
        status = CMHA__HUGE(model->context, "model memory: %zu x %zu tokens overflow", batch, length);
    return status;
}

CMHA_DEF cmha_status cmha_model_memory(cmha_context *context, const cmha_model_config *config, size_t batch,
        size_t length, size_t *parameters, size_t *training) {
    cmha_model model;
    cmha_status status = cmha__model_open(&model, context, config, UINT64_MAX);
    if (status) return status;
    if (parameters) *parameters = model.table_bytes + model.parameters.size * sizeof(cmha_real) + 2 * 64;
    if (training) {
        cmha__place_numbers(&model.parameters, (cmha_real *)(uintptr_t)64); /* never touched in a dry run */
        status = cmha_model_training_memory(&model, batch, length, training);
        model.parameters.data = NULL;
    }
    cmha_model_close(&model);
    return status;
}

#ifdef CMHA__PLAIN
#pragma GCC pop_options
#endif

/* ================ Training ================ */

/* ---- Optimiser ---- */

CMHA__HOT(CMHA__FIT, cmha_adamw, (const cmha_adamw_args *args, size_t n, cmha_real *p, const cmha_real *g,
        cmha_real *m, cmha_real *v), (args, n, p, g, m, v)) {
    cmha_real b1 = (cmha_real)args->beta1, b2 = (cmha_real)args->beta2, scale = (cmha_real)args->grad_scale;
    cmha_real a1 = (cmha_real)(1 - args->beta1), a2 = (cmha_real)(1 - args->beta2);
    cmha_real eps = (cmha_real)args->eps, decay = (cmha_real)(args->lr * args->weight_decay);
    cmha_real step = (cmha_real)(args->lr / (1 - pow(args->beta1, (double)args->t)));
    cmha_real unbias = (cmha_real)(1 / (1 - pow(args->beta2, (double)args->t)));
    for (size_t i = 0; i < n; i++) {
        cmha_real x = g[i] * scale, root;
        m[i] = b1 * m[i] + a1 * x;
        v[i] = b2 * v[i] + a2 * x * x;
        root = cmha__square_root(v[i] * unbias) + eps;
        p[i] = (p[i] - decay * p[i]) - (root > 0 ? step * m[i] / root : 0); /* eps = 0 and never a gradient */
    }
}

CMHA__HOT(CMHA__FIT, cmha_lion, (const cmha_adamw_args *args, size_t n, cmha_real *p, const cmha_real *g,
        cmha_real *m), (args, n, p, g, m)) {
    cmha_real b1 = (cmha_real)args->beta1, b2 = (cmha_real)args->beta2, scale = (cmha_real)args->grad_scale;
    cmha_real a1 = (cmha_real)(1 - args->beta1), a2 = (cmha_real)(1 - args->beta2);
    cmha_real step = (cmha_real)args->lr, decay = (cmha_real)args->weight_decay;
    for (size_t i = 0; i < n; i++) {
        cmha_real x = g[i] * scale, c = b1 * m[i] + a1 * x;
        cmha_real sign = (cmha_real)((c > 0) - (c < 0));
        p[i] -= step * (sign + decay * p[i]);
        m[i] = b2 * m[i] + a2 * x;
    }
}

CMHA__HOT(CMHA__FIT, cmha_momentum, (const cmha_adamw_args *args, size_t n, cmha_real *d, const cmha_real *g,
        cmha_real *m), (args, n, d, g, m)) {
    cmha_real mu = (cmha_real)args->momentum, scale = (cmha_real)args->grad_scale;
    for (size_t i = 0; i < n; i++) {
        cmha_real x = g[i] * scale;
        m[i] = mu * m[i] + x;
        d[i] = args->nesterov ? x + mu * m[i] : m[i];
    }
}

CMHA__HOT(CMHA__FIT, cmha_descend, (const cmha_adamw_args *args, size_t n, cmha_real *p, const cmha_real *d),
        (args, n, p, d)) {
    cmha_real step = (cmha_real)args->lr, decay = (cmha_real)(args->lr * args->weight_decay);
    for (size_t i = 0; i < n; i++) p[i] = (p[i] - decay * p[i]) - step * d[i];
}

CMHA__HOT(CMHA__FIT, cmha_ema, (double beta, size_t n, cmha_real *e, const cmha_real *w), (beta, n, e, w)) {
    cmha_real b = (cmha_real)beta, a = (cmha_real)(1 - beta);
    for (size_t i = 0; i < n; i++) e[i] = b * e[i] + a * w[i];
}

CMHA_DEF size_t cmha_muon_scratch(size_t R, size_t C, int is_complex) {
    size_t m = cmha__min(R, C), planes = is_complex ? 2 : 1;
    double about = (double)m * 16 * ((double)R + (double)C);
    return cmha__countable(planes * (2 * R * C + 4 * m * m), about);
}

/* Writes A = X Y^H [m, m], Hermitian, of X, Y [m, K], planes side by side in rows: computes strips up to its
   diagonal and mirrors them. */
static void cmha__hermitian(size_t m, size_t K, size_t planes, const cmha_real *X, const cmha_real *Y,
        cmha_real *A) {
    enum { STRIP = 64, LINE = 16 };
    const size_t ld = planes * K, to = planes * m;
    CMHA__IN_PIECES(i, rows, m, STRIP) {
        const cmha_real *x = X + i * ld;
        cmha_real *re = A + i * to, *im = re + m;
        cmha_gemm(0, 1, rows, i + rows, ld, 1, x, ld, Y, ld, 0, re, to);
        if (planes == 1) continue;
        cmha_gemm(0, 1, rows, i + rows, K, 1, x + K, ld, Y, ld, 0, im, to);
        cmha_gemm(0, 1, rows, i + rows, K, -1, x, ld, Y + K, ld, 1, im, to);
    }
    for (size_t first = 0; first < m; first += LINE) /* whose rows stay in the cache */
        for (size_t i = first + 1; i < m; i++)
            for (size_t j = first; j < cmha__min(first + LINE, i); j++) {
                A[j * to + i] = A[i * to + j];
                if (planes == 2) A[j * to + m + i] = -A[i * to + m + j];
            }
}

/* Moves U times a factor into X, transposed where its columns are fewer; back = 1: X into U. */
static void cmha__muon_move(const cmha_matrix *U, cmha_real factor, cmha_real *X, int back) {
    enum { LINE = 16 };
    const int turned = U->R > U->C;
    const size_t K = turned ? U->R : U->C, ld = U->imag ? 2 * K : K, step = turned ? ld : 1;
    const size_t width = turned ? (size_t)LINE : U->C;
    for (size_t plane = 0; plane <= (U->imag > 0); plane++)
        CMHA__IN_PIECES(first, some, U->C, width)
            for (size_t i = 0; i < U->R; i++) {
                cmha_real *u = U->data + plane * U->imag + i * U->C;
                cmha_real *x = X + plane * K + (turned ? i : i * ld);
                for (size_t j = first; j < first + some; j++)
                    if (back) u[j] = factor * x[j * step];
                    else x[j * step] = factor * u[j];
            }
}

/* Where rows are long, not every pass multiplies X: Q = a + b A + c A A commutes with A, so the next A is
   Q A Q, and P, a product of several Q, is applied at once, after two and after five passes: the rounding of
   small singular values in A, 6e-8, grows by a^2 a pass. */
CMHA__FIT void cmha_muon(cmha_update_scale scale, const cmha_matrix *U, cmha_real *scratch) {
    const cmha_real a = (cmha_real)3.4445, b = (cmha_real)-4.7750, c = (cmha_real)2.0315;
    const size_t m = cmha__min(U->R, U->C), K = U->R > U->C ? U->R : U->C, planes = U->imag ? 2 : 1;
    const size_t ld = planes * K, to = planes * m, square = m * to; /* of X and Y; of all others */
    cmha_real *X = scratch, *Y = X + m * ld, *A = Y + m * ld, *P = A + square, *other = P + square, *last;
    cmha_real *const next = other + square;
    int fresh = 1;
    double sum = cmha_sum_squares(U->data, U->R * U->C), factor;
    if (U->imag) sum += cmha_sum_squares(U->data + U->imag, U->R * U->C);
    cmha__muon_move(U, (cmha_real)(1 / (sqrt(sum) + 1e-7)), X, 0);
    for (int pass = 0; pass < 5; pass++) {
        cmha_real *Q = fresh ? P : next;
        if (fresh) cmha__hermitian(m, K, planes, X, X, A);
        cmha__hermitian(m, m, planes, A, A, Q);
        for (size_t i = 0; i < square; i++) Q[i] = b * A[i] + c * Q[i];
        for (size_t i = 0; i < m; i++) Q[i * to + i] += a;
        if (!fresh) {
            cmha__hermitian(m, m, planes, Q, P, other);
            last = P;
            P = other;
            other = last;
        }
        fresh = K < 2 * m || pass == 1 || pass == 4;
        if (fresh) {
            cmha_gemm(0, 0, m, ld, m, 1, P, to, X, ld, 0, Y, ld); /* Re P times both planes */
            if (planes == 2) {
                cmha_gemm(0, 0, m, K, m, -1, P + m, to, X + K, ld, 1, Y, ld);
                cmha_gemm(0, 0, m, K, m, 1, P + m, to, X, ld, 1, Y + K, ld);
            }
            last = X;
            X = Y;
            Y = last;
        } else {
            cmha__hermitian(m, m, planes, Q, A, other);
            cmha__hermitian(m, m, planes, other, Q, A);
        }
    }
    if (scale == CMHA_UPDATE_RMS) factor = 0.2 * sqrt((double)(planes * K));
    else factor = U->R > U->C ? sqrt((double)U->R / (double)U->C) : 1;
    cmha__muon_move(U, (cmha_real)factor, X, 1);
}

CMHA__FIT double cmha_learning_rate(const cmha_rate *rate, size_t s) {
    const double a = rate->base, b = rate->minimum, total = (double)rate->total, at = (double)s;
    const double corner = total * (1 - rate->share);
    if (s < rate->warmup) return a * at / (double)rate->warmup;
    double x = at - (double)rate->warmup, y = 0;
    if (rate->total > rate->warmup) x /= total - (double)rate->warmup;
    x = fmin(x, 1);
    if (at > corner && rate->share > 0) y = fmin((at - corner) / (total - corner), 1);
#define CMHA__RATE(name, word, rule) \
    if (rate->schedule == CMHA_SCHEDULE_##name) return rule;
    CMHA_SCHEDULES(CMHA__RATE)
    return (double)NAN;
}

/* CRAT eq 22. A sweep for the norms over several parameters, and one that clips. */
CMHA__FIT void cmha_componentwise_clip(cmha_clip_mode mode, cmha_real limit, const cmha_parameter *parameters,
        size_t count) {
    enum { ALL, PARTS, PART, NUMBER };
#define CMHA__CLIP_ROW(name, word, norm) norm,
    static const int norms[] = {CMHA_CLIPS(CMHA__CLIP_ROW)};
    double squares[2] = {0, 0};
    if ((unsigned)mode >= CMHA_CLIP_COUNT) return;
    int norm_of = norms[mode], sums = norm_of <= PARTS;
    for (int sweep = !sums; sweep < 2; sweep++)
        for (size_t i = 0; i < 2 * count; i++) {
            const cmha_parameter *p = &parameters[i / 2];
            size_t part = i % 2, n = p->tensor.size / (p->is_complex ? 2 : 1);
            double *sum = &squares[norm_of == ALL ? 0 : part];
            if ((part && !p->is_complex) || p->frozen || !p->tensor.grad) continue;
            cmha_real *g = p->tensor.grad + part * n;
            if (!sweep) *sum += cmha_sum_squares(g, n);
            else if (norm_of == NUMBER)
                for (size_t j = 0; j < n; j++) {
                    cmha_real below = g[j] > limit ? limit : g[j];
                    g[j] = below < -limit ? -limit : below;
                }
            else {
                double norm = sqrt(sums ? *sum : cmha_sum_squares(g, n));
                cmha_real factor = norm > (double)limit ? (cmha_real)((double)limit / norm) : 1;
                if (factor < 1)
                    for (size_t j = 0; j < n; j++) g[j] *= factor;
            }
        }
}

/* Walks the matrices of directions, in the gradients' place, and returns their work. Changes those
   whose work begins in [lo, hi) or, scratch NULL, makes the others zeros, and gradients between those of
   `all`, which are summed too. */
static size_t cmha__direct_some(cmha_parameters *p, const cmha_adamw_args *args, size_t lo, size_t hi,
        size_t all, cmha_real *scratch) {
    size_t at = 0;
    CMHA__EACH_PARAMETER(one, p) {
        const cmha_optimiser *row = cmha__optimiser_of(p, one);
        cmha_adamw_args own = *args;
        int others = at > 0 && at < all && (at < lo || at >= hi);
        if (others && !row->direct && !one->frozen) cmha__zeros(one->tensor.grad, one->tensor.size);
        if (!row->direct || one->frozen) continue;
        own.lr *= one->lr_scale;
        own.weight_decay *= one->decay;
        for (size_t k = 0;; k++) {
            cmha_matrix m = cmha__matrix_at(one, one->tensor.grad, k);
            size_t size = m.R * m.C, mine = at >= lo && at < hi;
            if (!m.data) break;
            if (mine && scratch) row->direct(row, &own, &m, scratch);
            if (!mine && !scratch)
                for (size_t plane = 0; plane <= (m.imag > 0); plane++)
                    cmha__zeros(m.data + plane * m.imag, size);
            at += (size_t)((double)cmha__min(m.R, m.C) * (double)size / 1024) + 1;
        }
    }
    return at;
}

/* Has optimisers change directions: each rank its share, dealt to threads; then ranks add up theirs and
   zeros. */
static cmha_status cmha__direct(cmha_parameters *p, const cmha_adamw_args *args, cmha_tape *tape) {
    const cmha_ranks *ranks = &tape->shared.ranks;
    int threads = p->context->threads, of = (int)ranks->ranks, rank = (int)ranks->rank;
    size_t all = cmha__direct_some(p, args, 0, SIZE_MAX, 0, NULL);
    size_t each = (p->kept - p->work) / (size_t)threads;
    size_t first = cmha__cut(all, of, rank), mine = cmha__cut(all, of, rank + 1) - first;
    CMHA__FOR_CHUNKS(threads, mine, lo, hi) {
        cmha_real *scratch = each ? p->moments + p->work + (size_t)cmha__chunk * each : p->grad;
        cmha__direct_some(p, args, first + lo, first + hi, 0, scratch);
    }
    if (ranks->ranks < 2 || !all) return CMHA_OK;
    size_t begin = p->learning, end = 0;
    cmha__direct_some(p, args, first, first + mine, all, NULL);
    CMHA__EACH_PARAMETER(one, p) {
        if (one->frozen || !cmha__optimiser_of(p, one)->direct) continue;
        begin = cmha__min(begin, one->place);
        end = one->place + one->tensor.size;
    }
    return cmha__summed(tape, ranks->reduce(ranks->user, p->grad + begin, end - begin));
}

/* Clips the gradients and updates all that learns. Ranks take the first one's norm: others, of more threads,
   may sum in another order. */
static cmha_status cmha__update(cmha_parameters *p, cmha_adamw_args args, cmha_clip_mode mode, double limit,
        cmha_tape *tape, double *grad_norm) {
    int threads = p->context->threads;
    double sum = 0;
    cmha__zeros(p->sums, (size_t)threads);
    CMHA__FOR_CHUNKS(threads, p->learning, lo, hi) {
        for (size_t i = lo; i < hi; i += 4096) /* blocks: a float sum of squares stays exact enough */
            p->sums[cmha__chunk] += cmha__dot(p->grad + i, p->grad + i, cmha__min(hi - i, 4096));
    }
    for (int c = 0; c < threads; c++) sum += p->sums[c];
    if (!(sum <= DBL_MAX)) sum = cmha_sum_squares(p->grad, p->learning); /* floats' squares end at 3e38 */
    double norm = args.grad_scale * sqrt(sum);
    if (tape->shared.ranks.rank) norm = 0;
    cmha_status status = cmha__sum_over_ranks(tape, CMHA_OK, &norm, 1);
    if (status) return status;
    if (grad_norm) *grad_norm = norm;
    if (!p->learning) return CMHA__REFUSED(p->context, "step: every parameter is frozen");
    double most = sizeof(cmha_real) == 8 || (limit > 0 && limit < 1e19) ? FLT_MAX : 1e19; /* has a square */
    if (!(norm <= most))
        return cmha__fail(p->context, CMHA_ERR_NOT_FINITE, "step: the gradient's norm is %g", norm);
    if (limit > 0 && mode != CMHA_CLIP_WHOLE)
        cmha_componentwise_clip(mode, (cmha_real)(limit / args.grad_scale), p->list, p->count);
    else if (limit > 0 && norm > limit) args.grad_scale *= limit / norm;
    for (int last = 0; last < 2 && !status; last++) { /* 0: directions, whose sum may fail; 1: all else */
        CMHA__EACH_PARAMETER(one, p) {
            const cmha_tensor *t = &one->tensor;
            const cmha_optimiser *row = cmha__optimiser_of(p, one);
            cmha_adamw_args own = args;
            if (one->frozen || !(last || row->direct)) continue;
            own.lr *= one->lr_scale;
            own.weight_decay *= one->decay;
            CMHA__FOR_CHUNKS(t->size > 16384 ? threads : 1, t->size, lo, hi) {
                cmha_real *data = t->data + lo, *grad = t->grad + lo;
                cmha_update u = {&own, hi - lo, row->direct ? grad : data, grad, NULL, NULL};
                if (row->moments > 0) u.m = p->moments + one->kept[0] + lo;
                if (row->moments > 1) u.v = p->moments + one->kept[1] + lo;
                if (last && row->direct) cmha_descend(&own, hi - lo, data, grad);
                else row->update(row, &u);
            }
        }
        if (!last) status = cmha__direct(p, &args, tape);
    }
    return status;
}

static const cmha_optimiser *cmha__optimiser_at(const cmha_context *context, size_t i) {
    const size_t ours = CMHA__COUNT(cmha__optimisers);
    if (i < ours) return &cmha__optimisers[i];
    return i - ours < context->config.n_optimisers ? cmha__at(context->config.optimisers, i - ours) : NULL;
}

CMHA_DEF const char *cmha_optimiser_name(const cmha_context *context, size_t i) {
    const cmha_optimiser *row = cmha__is_open(context) ? cmha__optimiser_at(context, i) : NULL;
    return row ? row->name : NULL;
}

/* Chooses an optimiser by name and takes zeros for its moments; after a failure all is as it was. */
static cmha_status cmha__begin_moments(cmha_parameters *p, const char *name, int averages) {
    const cmha_optimiser *row;
    const cmha_parameters old = *p;
    if (!name || !*name) name = cmha__optimisers->name;
    for (size_t i = 0; (row = cmha__optimiser_at(p->context, i)) != NULL; i++)
        if (row->name && !strcmp(row->name, name)) break;
    if (!row) return cmha__fail(p->context, CMHA_ERR_NOT_FOUND, "there is no optimiser %.31s", name);
    if (!cmha__is_name(row->name, 31, "") || !row->update || row->moments < 0 || row->moments > 2)
        return CMHA__WRONG(p->context, "optimiser %.31s: its name, update or moments are wrong", name);
    p->optimiser = row;
    p->averages = averages;
    cmha__lay_moments(p);
    cmha_status status = cmha__take_zeros(p, p->kept, &p->moments);
    if (status) {
        *p = old;
        cmha__lay_moments(p);
        return status;
    }
    cmha__begin_means(p, p->moments);
    cmha__give(p->context, old.moments, old.kept * sizeof *old.moments);
    return CMHA_OK;
}

static cmha_status cmha__need_moments(cmha_parameters *p) {
    cmha_status status = p->moments ? CMHA_OK : cmha__take_zeros(p, p->kept, &p->moments);
    if (!status) p->optimised = 1;
    return status;
}

CMHA__FIT cmha_status cmha_parameters_optimiser(cmha_parameters *p, const char *name) {
    if (!p || !cmha__is_open(p->context)) return CMHA_ERR_STATE;
    cmha_status status = cmha__holds_numbers(p);
    if (!status) status = cmha__begin_moments(p, name, p->averages);
    if (!status) p->step = 0;
    return status;
}

CMHA__FIT cmha_status cmha_parameters_step(cmha_parameters *p, const cmha_adamw_args *args,
        cmha_clip_mode mode, double limit, double *grad_norm) {
    if (!p || !cmha__is_open(p->context)) return CMHA_ERR_STATE;
    if (!args) return CMHA__WRONG(p->context, "step: args is NULL");
    if (!(args->grad_scale > 0) || (unsigned)mode >= CMHA_CLIP_COUNT)
        return CMHA__WRONG(p->context, "step: grad_scale = %g or mode = %d is out of range", args->grad_scale,
            (int)mode);
    if (!(args->lr >= 0 && args->beta1 >= 0 && args->beta2 >= 0 && args->eps >= 0 && limit >= 0) ||
        !(fabs(args->lr + args->eps + args->weight_decay + args->momentum) <= FLT_MAX &&
          fmax(args->beta1, args->beta2) < 1))
        return CMHA__WRONG(p->context,
            "step: wrong lr %g, betas %g, %g, eps %g, weight_decay %g, limit %g or momentum %g",
            args->lr, args->beta1, args->beta2, args->eps, args->weight_decay, limit, args->momentum);
    cmha_adamw_args next = *args;
    cmha_tape alone; /* without ranks */
    next.t = p->step + 1;
    cmha_status status = cmha_tape_init(&alone, p->context, 0);
    if (!status) status = cmha__need_grad(p);
    if (!status) status = cmha__need_moments(p);
    if (!status) status = cmha__update(p, next, mode, limit, &alone, grad_norm);
    if (status) return status;
    p->step++;
    cmha_parameters_zero_grad(p);
    return CMHA_OK;
}

/* ---- Checking gradients ---- */

/* A direction of numbers lo .. hi - 1, which were `kept`: each by 1 or -1 as the key says, of key 0 by 1. */
typedef struct {
    cmha_real *data;
    const cmha_real *kept;
    size_t lo, hi;
    uint64_t key;
} cmha__direction;

static double cmha__side(uint64_t key, size_t i) { return key && cmha__mix(key + i) % 2 ? -1 : 1; }

/* Measures the loss's slope along a direction, and what of it may be four losses' rounding. */
static cmha_status cmha__slope(const cmha__direction *d, cmha_loss_fn loss, void *user, double *slope,
        double *rounding) {
    static const double at[4] = {-2, -1, 1, 2}, factor[4] = {1 / 12., -8 / 12., 8 / 12., -1 / 12.};
    double h = (sizeof(cmha_real) == 8 ? 1e-4 : 1e-2) * (d->key ? 8 / sqrt((double)(d->hi - d->lo)) : 1);
    double value = 0;
    cmha_status status = CMHA_OK;
    *slope = 0;
    for (int s = 0; s < 4; s++) {
        for (size_t i = d->lo; i < d->hi; i++)
            d->data[i] = (cmha_real)(d->kept[i] + cmha__side(d->key, i) * at[s] * h);
        status = loss(user, &value);
        if (status) break;
        *slope += factor[s] / h * value;
    }
    cmha__copy(d->data + d->lo, d->kept + d->lo, d->hi - d->lo);
    *rounding = 8 * (double)CMHA__EPSILON * fabs(value) / h;
    return status;
}

/* Returns the largest derivative of up to 64 numbers, of more their norm, as directions see. */
static double cmha__steepness(const cmha_real *grad, size_t n) {
    double most = 0;
    if (n > 64) return sqrt(cmha_sum_squares(grad, n));
    for (size_t i = 0; i < n; i++) { /* by fmax it would crash GCC 12 for aarch64 at -O3 */
        double one = fabs((double)grad[i]);
        most = one > most ? one : most;
    }
    return most;
}

CMHA__FIT cmha_status cmha_gradient_check(cmha_parameters *p, cmha_loss_fn loss, void *user, double *error) {
    cmha_status status = CMHA_OK;
    double least = 0, worst = -1, slope;
    if (!p || !cmha__is_open(p->context)) return CMHA_ERR_STATE;
    if (!loss || !error)
        return CMHA__WRONG(p->context, "gradient check: %s is NULL", loss ? "error" : "loss");
    if (!p->grad) return CMHA__REFUSED(p->context, "gradient check: there are no gradients");
    size_t size = p->size * sizeof *p->data, bytes = size + p->learning * sizeof *p->grad;
    cmha_real *kept = (cmha_real *)cmha__take(p->context, "gradient check", bytes);
    if (!kept) return CMHA_ERR_MEMORY;
    cmha_real *grads = kept + p->size;
    memcpy(kept, p->data, size);
    memcpy(grads, p->grad, bytes - size);
    cmha__fail(p->context, CMHA_OK, "gradient check");
    CMHA__EACH_PARAMETER(one, p)
        if (!one->frozen) least = fmax(least, 1e-3 * cmha__steepness(grads + one->place, one->tensor.size));
    CMHA__EACH_PARAMETER(one, p) {
        if (one->frozen || status) continue;
        cmha_real *data = one->tensor.data, *was = kept + (data - p->data), *grad = grads + one->place;
        size_t n = one->tensor.size, wide = n > 64;
        double scale = fmax(least, cmha__steepness(grad, n));
        for (size_t k = 0; k < (wide ? 8 : n); k++) {
            const cmha__direction along = {data, was, wide ? 0 : k, wide ? n : k + 1,
                wide ? 2 * cmha__mix(one->place + k) + 1 : 0};
            double told = 0, rounding;
            for (size_t j = along.lo; j < along.hi; j++) told += cmha__side(along.key, j) * grad[j];
            status = cmha__slope(&along, loss, user, &slope, &rounding);
            if (status) break;
            double off = fabs(slope - told);
            off = off <= DBL_MAX && scale > 0 ? fmax(0, off - rounding) / scale : (double)INFINITY;
            if (off <= worst) continue;
            worst = off;
            cmha__fail(p->context, CMHA_OK, "gradient check: %s%s: %.9g by differences, %.9g in the gradient",
                one->name, wide ? ", along a direction" : "", slope, told);
        }
    }
    memcpy(p->data, kept, size);
    memcpy(p->grad, grads, bytes - size);
    cmha__give(p->context, kept, bytes);
    if (status && !strncmp(p->context->detail, "gradient check", 14)) /* it wrote none */
        cmha__ends(p->context, "gradient check: the loss ended with", status);
    if (!status) *error = worst;
    return status;
}

/* ---- The trainer ---- */

static int cmha__trainer_is_open(const cmha_trainer *trainer) {
    const cmha_model *model = trainer ? trainer->model : NULL;
    return cmha__model_is_open(model) && model->context == trainer->context &&
           model->trainer == trainer->opening;
}

static cmha_status cmha__trainer_state(const cmha_trainer *trainer) {
    if (cmha__trainer_is_open(trainer)) return CMHA_OK;
    return cmha__outdated(trainer ? trainer->context : NULL, "trainer");
}

CMHA__FIT void cmha_trainer_close(cmha_trainer *trainer) {
    if (!trainer || !trainer->context) return;
    size_t tokens = 2 * trainer->config.batch * trainer->config.length;
    cmha__give(trainer->context, trainer->ids, tokens * sizeof *trainer->ids);
    if (cmha__trainer_is_open(trainer)) {
        cmha_parameters *p = &trainer->model->parameters;
        cmha__zero(trainer->model->tape.shared);
        cmha__give(p->context, p->moments, p->kept * sizeof *p->moments);
        p->moments = NULL;
        p->step = 0; /* of no moments */
        p->optimised = p->averages = 0;
        cmha__lay_moments(p);
        trainer->model->trainer = 0;
    }
    cmha__zero(*trainer);
}

CMHA__FIT cmha_status cmha_trainer_init(cmha_trainer *trainer, cmha_model *model,
        const cmha_trainer_config *config) {
    if (!trainer) return CMHA__WRONG(model ? model->context : NULL, "trainer: trainer is NULL");
    cmha__zero(*trainer);
    if (!cmha__model_is_open(model)) return CMHA_ERR_STATE;
    cmha_context *context = model->context;
    cmha_parameters *p = &model->parameters;
    cmha_trainer_config *c = &trainer->config;
    if (config) *c = *config;
    else cmha_config_defaults(cmha_trainer_table(), c);
    cmha_status status = cmha_config_check(context, cmha_trainer_table(), c);
    if (status) return status;
    if (!model->config.causal && model->config.tokens && c->mask_token >= model->config.vocabulary)
        return cmha__fail(context, CMHA_ERR_TOKEN, "trainer: mask_token %zu is outside the vocabulary of %zu",
            c->mask_token, model->config.vocabulary);
    trainer->context = context;
    trainer->model = model;
    trainer->opening = ++context->models;
    trainer->seed = context->config.seed;
    trainer->best = (double)INFINITY;
    size_t memory, records;
    size_t tokens = 2 * c->batch * c->length * sizeof *trainer->ids; /* the dry run refuses what overflows */
    status = cmha__need_grad(p);
    if (!status) status = cmha__measure(model, c->batch, c->length, &memory, &records);
    if (!status) status = cmha__reserve(&model->tape, memory, records);
    if (!status) {
        cmha_tape_reset(&model->tape);
        trainer->ids = (int32_t *)cmha__take(context, "trainer", tokens);
        status = trainer->ids ? cmha__begin_moments(p, c->optimiser, c->ema > 0) : CMHA_ERR_MEMORY;
    }
    if (status) return cmha_trainer_close(trainer), status;
    model->trainer = trainer->opening;
    p->optimised = 1;
    cmha__name_unread(context, "trainer", cmha_trainer_table(), c);
    return cmha_trainer_share(trainer, NULL);
}

CMHA__FIT cmha_status cmha_trainer_share(cmha_trainer *trainer, const cmha_ranks *ranks) {
    static const cmha_ranks alone = {0, 1, NULL, NULL, NULL, NULL};
    if (cmha__trainer_state(trainer)) return CMHA_ERR_STATE;
    const cmha_model_config *c = &trainer->model->config;
    cmha_context *context = trainer->context;
    cmha_sharing *s = &trainer->model->tape.shared;
    size_t batch = trainer->config.batch;
    const cmha_ranks *r = ranks ? ranks : &alone;
    if (r->rank >= r->ranks || (r->ranks > 1 && !r->reduce) || !r->begin != !r->wait ||
        r->ranks > 1048576 / batch) /* which the field `batch` of a saved state must hold */
        return CMHA__WRONG(context, "share: rank %zu of %zu with %zu sequences, or no reduce, begin or wait",
            r->rank, r->ranks, batch);
    if (r->ranks > 1 && c->family == CMHA_FAMILY_COPE && c->cope_score == CMHA_COPE_SCORE_HYBRID_NORM &&
        c->cope_max == CMHA_NORM_MAX_GLOBAL)
        return CMHA__REFUSED(context, "share: cope_max = global needs the whole batch");
    cmha__zero(*s);
    s->ranks = *r;
    s->first = r->rank * batch;
    s->parameters = &trainer->model->parameters;
    return CMHA_OK;
}

CMHA__FIT void cmha_mask_tokens(const cmha_mask_args *args, int32_t *ids, int32_t *targets, cmha_rng *rng) {
    for (size_t i = 0; i < args->n; i++) {
        double chosen = cmha_rng_uniform(rng), fate = cmha_rng_uniform(rng);
        targets[i] = -1;
        if (chosen >= args->rate || (args->keep && !args->keep[i])) continue;
        targets[i] = ids[i];
        if (fate < 0.8) ids[i] = args->mask_token;
        else if (fate < 0.9) ids[i] = (int32_t)cmha_rng_below(rng, args->vocabulary);
    }
}

static cmha_status cmha__check_stream(const cmha_trainer *trainer, const char *call,
        const cmha_tokens *tokens, size_t least) {
    int width = tokens && tokens->data ? tokens->width : 0;
    if (trainer->model->config.features)
        return CMHA__REFUSED(trainer->context, "%s: the model reads more than tokens", call);
    if ((width == 1 || width == 2 || width == 4) && tokens->count >= least) return CMHA_OK;
    return CMHA__WRONG(trainer->context, "%s: tokens has %zu of width %d, it takes %zu of 1, 2 or 4", call,
        width ? tokens->count : 0, width, least);
}

/* Fills a row of the trainer's ids and targets from the stream; `draw` hides an encoder's. */
static void cmha__fill_row(const cmha_trainer *trainer, const cmha_batch *b, size_t row,
        const cmha_tokens *tokens, size_t start, uint64_t draw) {
    const cmha_model_config *c = &trainer->model->config;
    int32_t *ids = trainer->ids + row * b->length, *targets = ids + b->batch * b->length;
    const cmha_mask_args mask = {b->length, c->vocabulary, NULL, (int32_t)trainer->config.mask_token,
        trainer->config.mask_rate};
    cmha_rng rng = cmha_rng_make(trainer->seed, cmha__mix(draw));
    for (size_t i = 0; i < b->length; i++) {
        ids[i] = cmha_tokens_at(tokens, start + i);
        targets[i] = c->causal ? cmha_tokens_at(tokens, start + i + 1) : -1;
    }
    if (!c->causal) cmha_mask_tokens(&mask, ids, targets, &rng);
}

static cmha_status cmha__swapped(const cmha_trainer *trainer, const char *call) {
    return CMHA__REFUSED(trainer->context, "%s: the weights are their mean (cmha_trainer_swap)", call);
}

CMHA__FIT cmha_status cmha_trainer_swap(cmha_trainer *trainer) {
    if (cmha__trainer_state(trainer)) return CMHA_ERR_STATE;
    cmha_parameters *p = &trainer->model->parameters;
    if (!p->averages) return CMHA__REFUSED(p->context, "swap: no mean is kept (ema = 0)");
    CMHA__EACH_PARAMETER(one, p) {
        if (one->frozen) continue;
        cmha_real *mean = p->moments + one->kept[2], *data = one->tensor.data;
        for (size_t i = 0; i < one->tensor.size; i++) {
            cmha_real was = data[i];
            data[i] = mean[i];
            mean[i] = was;
        }
    }
    trainer->swapped = !trainer->swapped;
    return CMHA_OK;
}

/* The second half of a step. One that fails by its numbers counts too. */
static cmha_status cmha__trainer_finish(cmha_trainer *trainer, cmha_status status) {
    const cmha_trainer_config *c = &trainer->config;
    cmha_parameters *p = &trainer->model->parameters;
    cmha_tape *tape = &trainer->model->tape;
    cmha_sharing *s = &tape->shared;
    if (!status && trainer->swapped) status = cmha__swapped(trainer, "step");
    if (s->begins) { /* on all ranks: failed or not, each takes part */
        cmha_status sums = cmha__begin_sums(tape, 0);
        cmha_status waited = cmha__summed(tape, s->ranks.wait(s->ranks.user, 1));
        if (!status) status = sums ? sums : waited;
    }
    status = cmha__sum_over_ranks(tape, status, NULL, 0);
    if (!status && !s->begins && s->ranks.ranks > 1 && p->learning)
        status = cmha__summed(tape, s->ranks.reduce(s->ranks.user, p->grad, p->learning));
    size_t warmup = (size_t)(c->warmup * (double)c->steps + 0.5), next = trainer->step + 1;
    cmha_rate rate = {(cmha_schedule)c->schedule, c->lr, c->min_lr, warmup, c->steps, c->decay_share};
    double lr = cmha_learning_rate(&rate, next);
    cmha_adamw_args args = {lr, c->beta1, c->beta2, c->adam_eps, c->weight_decay, 1, next, c->momentum,
        c->nesterov, (cmha_update_scale)c->update_scale};
    if (!status)
        status = cmha__update(p, args, (cmha_clip_mode)c->clip_mode, c->clip, tape, &trainer->grad_norm);
    if (!status) trainer->lr = lr;
    if (!status && p->averages)
        CMHA__EACH_PARAMETER(one, p) {
            if (one->frozen) continue;
            CMHA__FOR_CHUNKS(one->tensor.size > 16384 ? p->context->threads : 1, one->tensor.size, lo, hi) {
                cmha_ema(c->ema, hi - lo, p->moments + one->kept[2] + lo, one->tensor.data + lo);
            }
        }
    if (!status || status == CMHA_ERR_NOT_FINITE) trainer->step++;
    s->agreed = CMHA_OK;
    s->last = s->begins = 0;
    return status;
}

CMHA__FIT cmha_status cmha_trainer_step(cmha_trainer *trainer, const cmha_tokens *tokens, double *loss) {
    if (cmha__trainer_state(trainer)) return CMHA_ERR_STATE;
    cmha_status status = cmha__check_stream(trainer, "step", tokens, trainer->config.length + 1);
    cmha_sharing *s = &trainer->model->tape.shared;
    const cmha_trainer_config *c = &trainer->config;
    cmha_batch batch = {trainer->ids, trainer->ids + c->batch * c->length, NULL, c->batch, c->length, NULL,
        NULL, NULL, NULL, NULL};
    double sum = 0;
    cmha_parameters_zero_grad(&trainer->model->parameters);
    for (size_t part = 0; !status && part < c->accumulate; part++) {
        uint64_t draw = (uint64_t)trainer->step * c->accumulate + part;
        double mean = 0;
        for (size_t row = 0; row < c->batch; row++) {
            uint64_t sequence = draw * s->ranks.ranks * c->batch + s->first + row; /* of all */
            cmha_rng rng = cmha_rng_make(trainer->seed, 0x6261746368ull + sequence);
            size_t start = (size_t)cmha_rng_below(&rng, tokens->count - c->length);
            cmha__fill_row(trainer, &batch, row, tokens, start, 0x6d61736bull + sequence);
        }
        draw = cmha__mix(trainer->seed ^ cmha__mix(draw + 1));
        s->last = part + 1 == c->accumulate;
        status = cmha_model_gradient(trainer->model, &batch, 1 / (double)c->accumulate, draw, &mean);
        sum += mean / (double)c->accumulate;
    }
    if (loss) *loss = sum;
    return cmha__trainer_finish(trainer, status);
}

CMHA__FIT cmha_status cmha_trainer_step_batch(cmha_trainer *trainer, const cmha_batch *batch, double *loss) {
    if (cmha__trainer_state(trainer)) return CMHA_ERR_STATE;
    uint64_t key = cmha__mix(trainer->seed ^ cmha__mix((uint64_t)trainer->step + 1));
    double mean = 0;
    cmha_sharing *s = &trainer->model->tape.shared;
    cmha_status status = CMHA_OK;
    if (s->ranks.ranks > 1 && batch && batch->batch > trainer->config.batch)
        status = CMHA__WRONG(trainer->context, "step: batch has %zu sequences, a rank takes %zu",
            batch->batch, trainer->config.batch);
    cmha_parameters_zero_grad(&trainer->model->parameters);
    s->last = 1;
    if (!status) status = cmha_model_gradient(trainer->model, batch, 1, key, &mean);
    if (loss) *loss = mean;
    return cmha__trainer_finish(trainer, status);
}

CMHA__FIT cmha_status cmha_trainer_apply(cmha_trainer *trainer, double *grad_norm) {
    if (cmha__trainer_state(trainer)) return CMHA_ERR_STATE;
    const cmha_tape *tape = &trainer->model->tape;
    cmha_status failed = tape->shared.ranks.ranks > 1 ? tape->status : CMHA_OK;
    cmha_status status = cmha__trainer_finish(trainer, failed);
    cmha_parameters_zero_grad(&trainer->model->parameters);
    if (grad_norm) *grad_norm = trainer->grad_norm;
    return status;
}

CMHA__FIT cmha_status cmha_trainer_evaluate(cmha_trainer *trainer, const cmha_tokens *tokens, double *loss) {
    if (cmha__trainer_state(trainer)) return CMHA_ERR_STATE;
    cmha_status status = cmha__check_stream(trainer, "evaluate", tokens, 2);
    if (!status && !loss) status = CMHA__WRONG(trainer->context, "evaluate: loss is NULL");
    const cmha_trainer_config *c = &trainer->config;
    cmha_sharing *s = &trainer->model->tape.shared;
    size_t total = status ? 0 : cmha__min(tokens->count - 1, c->eval_tokens), pass = 0;
    double sums[2] = {0, 0}; /* of losses, of targets */
    for (size_t done = 0, rows, length; done < total && !status; done += rows * length) {
        length = cmha__min(total - done, c->length);
        rows = cmha__min((total - done) / length, c->batch);
        if (pass++ % s->ranks.ranks != s->ranks.rank) continue;
        cmha_batch batch = {trainer->ids, trainer->ids + rows * length, NULL, rows, length, NULL, NULL, NULL,
            NULL, NULL};
        double mean = 0, targets = 0;
        for (size_t row = 0; row < rows; row++)
            cmha__fill_row(trainer, &batch, row, tokens, done + row * length, done + row * length);
        status = cmha_model_loss(trainer->model, &batch, &mean);
        for (size_t i = 0; i < rows * length; i++) targets += batch.targets[i] != -1;
        sums[0] += mean * targets;
        sums[1] += targets;
    }
    status = cmha__sum_over_ranks(&trainer->model->tape, status, sums, 2);
    s->agreed = CMHA_OK;
    if (!status) *loss = sums[1] > 0 ? sums[0] / sums[1] : 0;
    return status;
}

CMHA__FIT void cmha_trainer_split(const cmha_trainer *trainer, const cmha_tokens *all, cmha_tokens *train,
        cmha_tokens *held_out) {
    size_t count = all ? all->count : 0, cut = count;
    if (trainer) cut -= (size_t)((double)count * trainer->config.held_out);
    if (train) *train = cmha_tokens_part(all, 0, cut);
    if (held_out) *held_out = cmha_tokens_part(all, cut, count);
}

/* ================ Inference ================ */

/* ---- The cache and its passes ---- */

/* The position of the next token; a cache that reads again begins at 0 again. */
static size_t cmha__cache_position(const cmha_cache *cache) {
    return cache->length + (cache->endless ? cache->first : 0);
}

/* Runs a pass over a batch -> what the head says of the last position; asks = 0: anything. */
static cmha_tensor *cmha__cache_pass(cmha_cache *cache, cmha_tape *tape, const cmha_batch *batch, int asks) {
    cmha__pass pass;
    cmha__zero(pass);
    pass.model = cache->model;
    pass.tape = tape;
    pass.cache = cache;
    pass.batch = batch;
    pass.first = cmha__cache_position(cache);
    cmha_tensor *x = cmha__model_body(&pass);
    if (!x || !asks) return x;
    x = cmha__final_norm(&pass, cmha_slice(tape, x, 1, pass.N - 1, pass.N));
    if (batch->features && cache->model->value_weight) return cmha_model_values(cache->model, tape, x);
    return cmha__vocabulary_head(cache->model, tape, x);
}

/* Runs a dry pass over n tokens: counts slots, for which one sequence does, and, if there is an array, places
   them; or, memory not NULL, measures its arenas. */
static cmha_status cmha__cache_dry(cmha_cache *cache, size_t n, size_t *memory, size_t *records) {
    size_t length = cache->length, first = cache->first;
    cmha_batch batch = cmha__dry_batch(&cache->model->config, memory ? cache->batch : 1, n);
    cmha_tape dry;
    cmha_tape_init(&dry, cache->context, 0);
    dry.memory.measuring = 1;
    if (!memory) cache->n_slots = cache->size = 0;
    cache->length = cache->first = 0;
    cmha__cache_pass(cache, &dry, &batch, 1);
    cache->length = length;
    cache->first = first;
    if (memory) {
        *memory = dry.memory.peak;
        *records = dry.records.peak;
    }
    cmha_status status = dry.status;
    cmha_tape_close(&dry);
    return status;
}

typedef struct {
    size_t batch, capacity;
    int slide;
    const cmha_cache_options *options;
    size_t *bytes;
} cmha__cache_plan;

/* Decides whether a cache goes on without an end, by what its tokens see of keys. */
static cmha_status cmha__cache_endless(cmha_cache *cache, const cmha_cache_options *o) {
    const cmha_model *model = cache->model;
    const char *kinds = model->config.layer_kinds; /* some layers may see all */
    size_t window = kinds[strspn(kinds, "l")] ? 0 : model->config.window;
    size_t own = model->config.window ? model->config.sinks : 0; /* maybe of some layers alone */
    size_t sinks = own > o->sinks ? own : o->sinks, seen = 0, part;
    int forgets = cache->slide == CMHA_SLIDE_FORGET, learned = model->position_weight != NULL;
    if (forgets && learned)
        return CMHA__REFUSED(model->context,
            "cache: CMHA_SLIDE_FORGET needs positions without an end, the model's %zu are learned",
            model->config.max_positions);
    if (o->sinks && (!forgets || window || !cache->has_keys || o->sinks >= cache->capacity))
        return CMHA__WRONG(model->context, "cache: sinks %zu need slide = CMHA_SLIDE_FORGET, a model that "
                "has keys and no window, and a capacity (%zu) beyond them", o->sinks, cache->capacity);
    int exact = !cache->has_keys || (window && cmha__sum(window, sinks, &seen) && seen <= cache->capacity);
    if (!cache->slide || learned || (!exact && !forgets)) return CMHA_OK;
    if (!exact && sinks >= cache->capacity)
        return CMHA__WRONG(model->context, "cache: %zu tokens are no more than the model's sinks, %zu",
            cache->capacity, sinks);
    cache->endless = 1;
    cache->exact = exact;
    if (!cache->has_keys) return CMHA_OK;
    cache->sinks = sinks;
    cache->window = exact ? window : cache->capacity - sinks;
    cache->capacity = cache->window + sinks;
    cache->ready = cmha__min(cache->ready, cache->capacity);
    /* A pass writes all of its keys before its first token looks back. */
    part = cmha__tiles(cache->window + cache->ready - 2) + 1;
    if (!cmha__mul(part, CMHA__TILE, &cache->ring) || !cmha__sum(cache->ring, sinks + CMHA__TILE, &part))
        return CMHA__HUGE(model->context, "cache: a window of %zu overflows", cache->window);
    return CMHA_OK;
}

/* Checks a plan, sets sizes, counts slots (a pass's attention calls) and what a pass takes. */
static cmha_status cmha__cache_plan_of(cmha_cache *cache, cmha_model *model, const cmha__cache_plan *plan,
        cmha_cache_options *o, size_t bytes[2]) {
    size_t batch = plan->batch, capacity = plan->capacity;
    cmha__zero(*cache);
    if (!cmha__model_is_open(model)) return CMHA_ERR_STATE;
    cmha__zero(*o);
    if (plan->options) *o = *plan->options;
    const char *wrong = NULL;
    if ((unsigned)o->storage > CMHA_STORAGE_BF16) wrong = "storage must be FLOAT or BF16";
    else if (!batch || !capacity) wrong = "batch and capacity must be positive";
    else if (!plan->bytes && (uintptr_t)o->memory % sizeof(double))
        wrong = "its memory is not aligned as malloc's is";
    else if ((unsigned)plan->slide > CMHA_SLIDE_FORGET) wrong = "there is no such slide";
    if (wrong) return CMHA__WRONG(model->context, "cache of %zu x %zu: %s", batch, capacity, wrong);
    if (!model->config.causal)
        return CMHA__REFUSED(model->context, "cache: a bidirectional model cannot continue a sequence");
    if (model->score && model->score->whole)
        return CMHA__REFUSED(model->context, "cache: score %s needs the whole sequence", model->score->name);
    if (model->position_weight) capacity = cmha__min(capacity, model->config.max_positions);
    cache->context = model->context;
    cache->model = model;
    cache->opening = model->opening;
    cache->batch = batch;
    cache->capacity = capacity;
    cache->slide = plan->slide;
    cache->storage = o->storage;
    cache->given = o->memory != NULL;
    cache->ready = cmha__min(o->prompt ? o->prompt : 1, capacity);
    cmha_tape_init(&cache->tape, model->context, 0);
    cmha_status status = cmha__cache_dry(cache, 1, NULL, NULL);
    if (!status) status = cmha__cache_endless(cache, o);
    if (!status && cache->endless) status = cmha__cache_dry(cache, 1, NULL, NULL);
    if (!status) status = cmha__cache_dry(cache, cache->ready, &bytes[0], &bytes[1]);
    return status;
}

/* Opens a cache or, bytes not NULL, counts what it takes. Dry passes count slots and what `prompt` positions
   need, another places them. */
static cmha_status cmha__cache_open(cmha_cache *cache, cmha_model *model, const cmha__cache_plan *plan) {
    size_t *bytes = plan->bytes, room[2] = {0, 0}, held = 0, need = 0;
    cmha_cache_options o;
    void *memory = NULL, *records = NULL;
    cmha_status status = cmha__cache_plan_of(cache, model, plan, &o, room);
    if (!cache->context) return status;
    cmha_context *context = cache->context;
    size_t copies = cache->endless ? 1 : 2, positions = cache->endless ? cache->ready : cache->capacity;
    size_t frame = copies * cmha__feature_width(&model->config) * sizeof *cache->features;
    cmha__array arrays[] = {CMHA__ARRAY(cache->memory, cache->size),
        {&cache->ids, positions, copies * cache->batch * sizeof *cache->ids},
        {&cache->features, positions, cmha__times(plan->batch, frame)},
        CMHA__ARRAY(cache->slots, cache->n_slots),
        {&memory, room[0] + CMHA__BLOCK_OVERHEAD, 1},
        {&records, room[1] + CMHA__BLOCK_OVERHEAD, 1},
        {&cache->spare, 0, 1}};
    if (!status) status = cmha__count_arrays(context, "cache", arrays, 3, &held);
    int fails = model->config.irw_layers || (model->score && model->score->attend);
    if (fails && (plan->slide || cache->has_state)) arrays[6].n = held;
    if (!status) status = cmha__count_arrays(context, "cache", arrays, 7, &need);
    need += 64; /* to a line of cache */
    if (!status && bytes) *bytes = need;
    else if (!status && o.memory && o.bytes < need)
        status = cmha__fail(context, CMHA_ERR_MEMORY, "cache: it takes %zu bytes, not %zu", need, o.bytes);
    else if (!status) status = cmha__take_arrays(context, "cache", arrays, 7, &cache->bytes, o.memory);
    if (!status && !bytes) {
        memset(cache->memory, 0, held);
        cache->tape.memory.block = cmha__block_in(memory, room[0], 0);
        cache->tape.records.block = cmha__block_in(records, room[1], 0);
        cache->tape.memory.fixed = cache->tape.records.fixed = cache->given;
        if (!arrays[6].n) cache->spare = NULL;
        status = cmha__cache_dry(cache, 1, NULL, NULL);
    }
    if (status || bytes) cmha_cache_close(cache);
    return status;
}

CMHA_DEF cmha_status cmha_cache_init(cmha_cache *cache, cmha_model *model, size_t batch, size_t capacity,
        int slide, const cmha_cache_options *options) {
    if (!cache) return CMHA__WRONG(model ? model->context : NULL, "cache: cache is NULL");
    const cmha__cache_plan plan = {batch, capacity, slide, options, NULL};
    return cmha__cache_open(cache, model, &plan);
}

CMHA_DEF cmha_status cmha_cache_memory(cmha_model *model, size_t batch, size_t capacity, int slide,
        const cmha_cache_options *options, size_t *bytes) {
    cmha_cache counted;
    if (!bytes) return CMHA__WRONG(model ? model->context : NULL, "cache memory: bytes is NULL");
    const cmha__cache_plan plan = {batch, capacity, slide, options, bytes};
    return cmha__cache_open(&counted, model, &plan);
}

CMHA_DEF void cmha_cache_close(cmha_cache *cache) {
    if (!cache || !cache->context) return;
    cmha_tape_close(&cache->tape);
    if (!cache->given) cmha__give(cache->context, cache->memory, cache->bytes);
    cmha__zero(*cache);
}

CMHA_DEF void cmha_cache_reset(cmha_cache *cache) {
    if (cache) cache->length = cache->first = 0;
}

static cmha_status cmha__cache_state(const cmha_cache *cache) {
    const cmha_model *model = cache ? cache->model : NULL;
    if (cmha__model_is_open(model) && model->context == cache->context && model->opening == cache->opening)
        return CMHA_OK;
    return cmha__outdated(cache ? cache->context : NULL, "cache");
}

/* Copies n positions of each sequence, from `at` on, to the cache's rows of ld from `to` on. */
static void cmha__copy_positions(cmha_cache *cache, const cmha_batch *from, size_t at, size_t n, size_t to,
        size_t ld) {
    size_t W = cmha__feature_width(&cache->model->config);
    for (size_t b = 0; b < cache->batch; b++, at += from->length, to += ld) {
        if (from->ids) cmha__copy(cache->ids + to, from->ids + at, n);
        if (W) cmha__copy(cache->features + to * W, from->features + at * W, n * W);
    }
}

/* Views n positions of the cache's own arrays, from `at` on. */
static cmha_batch cmha__cache_batch(const cmha_cache *cache, size_t at, size_t n) {
    const cmha_model_config *c = &cache->model->config;
    cmha_batch b = cmha__dry_batch(c, cache->batch, n);
    if (b.ids) b.ids = cache->ids + at;
    if (b.features) b.features = cache->features + at * cmha__feature_width(c);
    return b;
}

/* A prompt is read in pieces: a pass's memory does not grow with it. */
#define CMHA__PROMPT_PIECE 512

/* Reads n positions of each sequence, as many at a time as there is memory for. */
static cmha_status cmha__cache_read(cmha_cache *cache, const cmha_batch *from, size_t at, size_t n,
        cmha_real *out) {
    size_t half = cache->endless ? 0 : cache->batch * cache->capacity;
    for (size_t part; n; n -= part, at += part) {
        part = cmha__min(n, cache->ready);
        cmha_batch staged = cmha__cache_batch(cache, half, part);
        cmha__copy_positions(cache, from, at, part, half, part);
        cmha_tape_reset(&cache->tape);
        const double start = part <= CMHA__FEW_ROWS ? cmha__team_begin(&cache->tape, cache->batch * part) : 0;
        cmha_tensor *x = cmha__cache_pass(cache, &cache->tape, &staged, out && part == n);
        cmha__team_end(&cache->tape, start);
        if (!x) return cache->tape.status;
        if (out && part == n) cmha__copy(out, x->data, x->size);
        if (!cache->endless) cmha__copy_positions(cache, &staged, 0, part, cache->length, cache->capacity);
        cache->length += part;
        if (cache->length <= cache->capacity) continue;
        cache->first += cache->length - cache->capacity;
        cache->length = cache->capacity;
    }
    return CMHA_OK;
}

/* Reads the last n - skip of n new tokens. A cache that slides first forgets all but the `kept` newest of its
   own and reads these again from position 0: their keys know the tokens that are gone. A pass that has its
   memory can fail in a search or a score. New keys lie beyond those held; states that have moved on
   and what has slid need a copy to go back to. */
static cmha_status cmha__cache_advance(cmha_cache *cache, const cmha_batch *fresh, size_t skip, int sliding,
        size_t kept, cmha_real *out) {
    size_t bytes = (size_t)((char *)cache->slots - (char *)cache->memory);
    int overwrites = sliding || cache->has_state || (cache->endless && fresh->length > cache->ready);
    int copied = cache->spare && (cache->model->knowledge || cache->model->score) && overwrites;
    cmha_batch held = cmha__cache_batch(cache, 0, cache->capacity);
    size_t length = cache->length, first = cache->first, from = length - kept;
    cmha_status status = CMHA_OK;
    if (copied) memcpy(cache->spare, cache->memory, bytes);
    if (sliding) {
        cache->first += from + skip;
        cache->length = 0;
        if (kept) status = cmha__cache_read(cache, &held, from, kept, NULL);
    }
    if (!status) status = cmha__cache_read(cache, fresh, skip, fresh->length - skip, out);
    if (status && copied) memcpy(cache->memory, cache->spare, bytes);
    if (status) {
        cache->length = length;
        cache->first = first;
    }
    return status;
}

CMHA_DEF cmha_status cmha_cache_append_features(cmha_cache *cache, const int32_t *ids,
        const cmha_real *features, size_t n, cmha_real *out) {
    cmha_batch fresh = {ids, NULL, NULL, 0, n, NULL, NULL, NULL, features, NULL};
    size_t total = 0, bytes = 0;
    if (cmha__cache_state(cache)) return CMHA_ERR_STATE;
    cmha_context *context = cache->context;
    const cmha_model_config *c = &cache->model->config;
    if (!c->features != !features)
        return CMHA__WRONG(context,
            "append: the model reads %zu features a position (cmha_cache_append_features), %s",
            c->features, c->features ? "here are none" : "here are some");
    if (!n) return CMHA__WRONG(context, "append: n = 0");
    if (!c->tokens != !ids) return CMHA__WRONG(context, "append: ids is %sNULL", ids ? "not " : "");
    int sliding = !cache->endless && n > cache->capacity - cache->length;
    if (sliding && !cache->slide) /* before any token is looked at: a wrong n has no tokens */
        return cmha__fail(context, CMHA_ERR_FULL, "cache: %zu tokens held of %zu, no room for %zu more",
            cache->length, cache->capacity, n);
    size_t W = cmha__feature_width(c), position = sizeof *ids + W * sizeof *features;
    if (!cmha__mul(cache->batch, n, &total) || !cmha__mul(total, position, &bytes))
        return CMHA__HUGE(context, "append: %zu x %zu tokens overflow", cache->batch, n);
    if (n > SIZE_MAX / 2 - cmha__cache_position(cache))
        return CMHA__HUGE(context, "append: positions overflow; reset the cache");
    cmha_tape_reset(&cache->tape);
    if ((c->tokens && cmha__check_tokens(&cache->tape, ids, total, c->vocabulary, NULL)) ||
        cmha__check_finite(&cache->tape, "features", features, NULL, total, W))
        return cache->tape.status;
    size_t keep = cache->capacity - cache->capacity / 4; /* then it is three quarters full */
    size_t kept = sliding && n < keep ? keep - n : 0;
    size_t skip = sliding && n > cache->capacity ? n - cache->capacity : 0; /* the last fit */
    size_t longest = cmha__min(kept > n - skip ? kept : n - skip, CMHA__PROMPT_PIECE);
    /* first: without memory no token is forgotten */
    if (longest > cache->ready && !cache->given && !cache->endless) {
        size_t memory, records;
        cmha_status status = cmha__cache_dry(cache, longest, &memory, &records);
        if (!status) status = cmha__reserve(&cache->tape, memory, records);
        cache->ready = status ? 0 : longest;
        if (status) return status;
    }
    return cmha__cache_advance(cache, &fresh, skip, sliding, kept, out);
}

CMHA_DEF cmha_status cmha_cache_append(cmha_cache *cache, const int32_t *ids, size_t n, cmha_real *logits) {
    return cmha_cache_append_features(cache, ids, NULL, n, logits);
}

/* ---- Sampling ---- */

typedef struct {
    cmha_real p;
    int32_t id;
} cmha__candidate;

static int cmha__likelier(const cmha__candidate *a, const cmha__candidate *b) {
    return a->p > b->p || (a->p >= b->p && a->id < b->id);
}

/* Restores a heap, likeliest on top, below node i. */
static void cmha__sink(cmha__candidate *c, size_t n, size_t i) {
    cmha__candidate moving = c[i];
    size_t child;
    while ((child = 2 * i + 1) < n) {
        if (child + 1 < n && cmha__likelier(&c[child + 1], &c[child])) child++;
        if (!cmha__likelier(&c[child], &moving)) break;
        c[i] = c[child];
        i = child;
    }
    c[i] = moving;
}

/* Moves the likeliest of n to c[n - 1]. */
static const cmha__candidate *cmha__pop(cmha__candidate *c, size_t n) {
    cmha__candidate top = c[0];
    c[0] = c[n - 1];
    c[n - 1] = top;
    cmha__sink(c, n - 1, 0);
    return &c[n - 1];
}

CMHA_DEF int32_t cmha_sample(const cmha_sampler_config *config, const cmha_real *logits, size_t V,
        const int32_t *recent, size_t n_recent, cmha_rng *rng, cmha_real *scratch) {
    cmha__candidate *c = (cmha__candidate *)(void *)scratch; /* 2 V reals hold V candidates */
    size_t i, n = config->top_k && config->top_k < V ? config->top_k : V, best = 0;
    double total = 0, kept = 0;
    cmha_real penalty = (cmha_real)config->repetition_penalty;
    for (i = 0; i < V; i++) {
        c[i].p = logits[i] == logits[i] ? logits[i] : CMHA__LOWEST; /* NaN: as unlikely as can be */
        c[i].id = (int32_t)i;
    }
    i = n_recent > config->penalty_window ? n_recent - config->penalty_window : 0;
    if (recent)
        for (; i < n_recent; i++) {
            size_t id = (size_t)recent[i]; /* a negative one is beyond V, too */
            if (id < V && logits[id] == logits[id])
                c[id].p = logits[id] > 0 ? logits[id] / penalty : logits[id] * penalty;
        }
    for (i = 1; i < V; i++)
        if (c[i].p > c[best].p) best = i;
    if (!V || !(c[best].p > CMHA__LOWEST)) return -1;
    if (config->temperature <= 0 || config->top_k == 1 || !((double)c[best].p <= FLT_MAX))
        return (int32_t)best;
    cmha_real top = c[best].p;
    for (i = 0; i < V; i++) {
        c[i].p = (cmha_real)exp((double)(c[i].p - top) / config->temperature);
        total += c[i].p;
    }
    if (n < V || config->top_p < 1) {
        for (i = V / 2; i-- > 0;) cmha__sink(c, V, i);
        if (n < V) /* shares are those among the k likeliest */
            for (total = 0, i = 0; i < n; i++) total += cmha__pop(c, V - i)->p;
        for (i = 0; i < n; i++) {
            kept += (n < V ? &c[V - 1 - i] : cmha__pop(c, V - i))->p;
            if (kept >= config->top_p * total) break;
        }
        n = cmha__min(n, i + 1);
        total = kept;
        c += V - n;
    }
    while (n > 1 && !(c[n - 1].p > 0)) n--; /* rounding may leave a rest */
    double target = cmha_rng_uniform(rng) * total;
    for (i = 0; i + 1 < n; i++) {
        target -= c[i].p;
        if (target < 0) break;
    }
    return c[i].id;
}

CMHA_DEF cmha_status cmha_generate(cmha_cache *cache, const int32_t *prompt, size_t n_prompt, size_t n_new,
        const cmha_sampler_config *sampler, uint64_t seed, cmha_token_fn on_token, void *user) {
    cmha_sampler_config config;
    if (cmha__cache_state(cache)) return CMHA_ERR_STATE;
    cmha_context *context = cache->context;
    if (sampler) config = *sampler;
    else cmha_config_defaults(cmha_sampler_table(), &config);
    cmha_status status = cmha_config_check(context, cmha_sampler_table(), &config);
    if (status) return status;
    size_t B = cache->batch, V = cache->model->config.vocabulary, window = config.penalty_window, bytes;
    cmha_rng *rng = NULL;
    cmha_real *logits = NULL, *scratch = NULL;
    int32_t *recent = NULL, *tokens = NULL; /* a ring of the last tokens; `count` have passed */
    cmha__array arrays[] = {CMHA__ARRAY(rng, B),
        {&logits, V, B * sizeof *logits},
        {&scratch, V, 2 * sizeof *scratch},
        {&recent, window, B * sizeof *recent},
        CMHA__ARRAY(tokens, B)};
    status = cmha__take_arrays(context, "generate", arrays, 5, &bytes, NULL);
    if (status) return status;
    for (size_t b = 0; b < B; b++) rng[b] = cmha_rng_make(seed, b);
    status = cmha_cache_append(cache, prompt, n_prompt, logits);
    for (size_t i = 0, count = 0; !status && i < n_new; i++) {
        const int32_t *newest = i ? tokens : prompt;
        size_t n = i ? 1 : n_prompt;
        if (window)
            for (size_t t = 0; t < n; t++, count++)
                for (size_t b = 0; b < B; b++) recent[b * window + count % window] = newest[b * n + t];
        for (size_t b = 0; b < B; b++) {
            tokens[b] = cmha_sample(&config, logits + b * V, V, recent + b * window,
                cmha__min(count, window), &rng[b], scratch);
            if (tokens[b] >= 0) continue;
            status = cmha__fail(context, CMHA_ERR_NOT_FINITE, "generate: all logits are NaN or -inf");
            break;
        }
        if (!status && on_token && on_token(user, tokens, B))
            status = cmha__fail(context, CMHA_STOPPED, "generate: on_token stopped it");
        else if (!status && i + 1 < n_new) status = cmha_cache_append(cache, tokens, 1, logits);
    }
    cmha__give(context, rng, bytes);
    return status;
}

/* ================ Files ================ */

#ifdef CMHA__PLAIN
#pragma GCC push_options
#pragma GCC optimize("O1")
#endif

/* ---- the operating system: plain descriptors, as a FIFO is refused, not waited for ---- */

#define CMHA__MALFORMED(archive, ...) cmha__fail((archive)->context, CMHA_ERR_FORMAT, __VA_ARGS__)

#ifdef CMHA_NO_FILES
#define cmha__system_open(a) cmha__ends((a)->context, "cannot be opened", CMHA_ERR_NOT_FOUND)
#define cmha__system_read(a, offset, to, bytes) CMHA_ERR_STATE /* of none that was opened */
#define cmha__file_move(fd, at, bytes, writing) 0
#define cmha__system_close(file) (void)(file)
#define cmha__system_save(o) cmha__ends((o)->context, "writing failed", CMHA_ERR_NOT_FOUND)
#else

#ifdef _WIN32
#define CMHA__SYSTEM(call) _##call
#define CMHA__STAT(name) _##name##64 /* plain fstat has 32 bits for the size there */
#define CMHA__SEEK_FILE _lseeki64
#define CMHA__FILE_PLACE long long
#define CMHA__FLUSH_FILE _commit
#define CMHA__FILE_FLAGS (_O_BINARY | _O_NOINHERIT)
#define CMHA__FILE_MODE (_S_IREAD | _S_IWRITE)
#define CMHA__SEPARATORS "/\\:"
#define CMHA__READ_LINK(path, to, n) (-1)
#define CMHA__RENAME(from, to) (MoveFileExA(from, to, 1 | 8) ? 0 : EACCES) /* replaces, flushes */
CMHA__EXTERN __declspec(dllimport) int __stdcall MoveFileExA(const char *from, const char *to,
    unsigned long flags);
#else
#define CMHA__SYSTEM(call) call
#define CMHA__STAT(name) name
#define CMHA__SEEK_FILE lseek
#define CMHA__FILE_PLACE off_t
#define CMHA__FLUSH_FILE fsync
#ifdef O_CLOEXEC
#define CMHA__FILE_FLAGS (O_NONBLOCK | O_CLOEXEC)
#else
#define CMHA__FILE_FLAGS O_NONBLOCK
#endif
#define CMHA__FILE_MODE 0666
#define CMHA__SEPARATORS "/"
#define CMHA__READ_LINK readlink
#define CMHA__RENAME(from, to) (rename(from, to) ? errno : 0)
#if defined(__linux__) && defined(O_TMPFILE)
#define CMHA__NAMELESS O_TMPFILE
#elif defined(__linux__) && defined(__O_TMPFILE) /* glibc has the other name only under _GNU_SOURCE */
#define CMHA__NAMELESS __O_TMPFILE
#endif
enum { CMHA__HERE = -100, CMHA__FOLLOW = 0x400 }; /* AT_FDCWD and AT_SYMLINK_FOLLOW, which -std=c99 hides */
#endif

enum { CMHA__FILE_PIECE = 1 << 26 }; /* one read or write asks for no more: systems limit it */

static cmha_status cmha__io_fail(cmha_context *ctx, const char *what) {
    int number = errno;
    cmha_status status = number == ENOENT || number == ENOTDIR ? CMHA_ERR_NOT_FOUND : CMHA_ERR_IO;
    return cmha__fail(ctx, status, "%s: %s", what, number ? strerror(number) : "the file ended early");
}

static cmha_status cmha__system_open(cmha_archive *a) {
    struct CMHA__STAT(stat) about;
    int fd = CMHA__SYSTEM(open)(a->path, O_RDONLY | CMHA__FILE_FLAGS);
    if (fd < 0) return cmha__io_fail(a->context, "cannot be opened");
    if (CMHA__STAT(fstat)(fd, &about) == 0 && S_ISREG(about.st_mode)) {
        a->size = (uint64_t)about.st_size;
        a->file = (void *)((intptr_t)fd + 1); /* never NULL */
        return CMHA_OK;
    }
    CMHA__SYSTEM(close)(fd);
    return cmha__fail(a->context, CMHA_ERR_IO, "cannot be read: not a regular file");
}

/* Reads or writes all bytes where the file stands. Returns 0, errno, or -1 at its end. */
static int cmha__file_move(int fd, void *first, size_t bytes, int writing) {
    unsigned char *at = (unsigned char *)first;
    while (bytes) {
        unsigned piece = (unsigned)cmha__min(bytes, CMHA__FILE_PIECE);
        errno = 0;
        long long moved = writing ? CMHA__SYSTEM(write)(fd, at, piece) : CMHA__SYSTEM(read)(fd, at, piece);
        if (moved < 0 && errno == EINTR) continue;
        if (moved <= 0 && errno) return errno;
        if (moved <= 0) return writing ? ENOSPC : -1;
        at += moved;
        bytes -= (size_t)moved;
    }
    return 0;
}

static int cmha__descriptor(const void *file) { return (int)(intptr_t)file - 1; }

static void cmha__system_close(void *file) {
    if (file) CMHA__SYSTEM(close)(cmha__descriptor(file));
}

static cmha_status cmha__system_read(const cmha_archive *a, uint64_t offset, void *to, size_t bytes) {
    CMHA__FILE_PLACE place = (CMHA__FILE_PLACE)offset;
    int fd = cmha__descriptor(a->file);
    errno = 0;
    int moves = (uint64_t)place == offset && CMHA__SEEK_FILE(fd, place, SEEK_SET) >= 0;
    if (moves && !cmha__file_move(fd, to, bytes, 0)) return CMHA_OK;
    return cmha__io_fail(a->context, "reading failed");
}
#endif

/* ---- files of the context's callbacks ---- */

/* Returns what an error line has room for. */
static const char *cmha__path_end(const char *path) {
    size_t length = strlen(path);
    return length > 100 ? path + length - 100 : path;
}

/* Puts the file's name before an error line that lacks it. Public calls end here. */
static cmha_status cmha__blame(cmha_context *ctx, const char *path, cmha_status status) {
    char name[104];
    if (status == CMHA_OK) return status;
    cmha__line(name, "%s: ", cmha__path_end(path));
    cmha__one_line(name); /* as it stands in a line */
    if (strncmp(ctx->detail, name, strlen(name)) == 0) return status;
    return cmha__fail(ctx, status, "%s%s", name, ctx->detail);
}

/* Closes a file that was read; the call's error line gets its name. */
static cmha_status cmha__file_end(cmha_archive *a, cmha_status status) {
    status = cmha__blame(a->context, a->path, status);
    cmha_archive_close(a);
    return status;
}

/* Finds and measures a file. */
static cmha_status cmha__file_open(cmha_archive *a, cmha_context *ctx, const char *path) {
    const cmha_files *f = &ctx->config.files;
    cmha__zero(*a);
    a->context = ctx;
    a->path = (char *)(uintptr_t)path;
    cmha_status status = f->size ? f->size(f->user, ctx, path, &a->size) : CMHA_ERR_NOT_FOUND;
    if (status == CMHA_ERR_NOT_FOUND && (f->system_too || !f->size)) return cmha__system_open(a);
    return cmha__ends(ctx, "cannot be opened", status);
}

static cmha_status cmha__file_read(const cmha_archive *a, uint64_t offset, void *to, size_t bytes) {
    const cmha_files *f = &a->context->config.files;
    if (a->file) return cmha__system_read(a, offset, to, bytes);
    cmha_status status = f->read ? CMHA_OK : CMHA_ERR_STATE; /* the context was opened again without them */
    if (!status && bytes) status = (f->read)(f->user, a->context, a->path, offset, to, bytes);
    return cmha__ends(a->context, "reading failed", status);
}

static cmha_buffer *cmha__buffer_of(void *list, const char *path) {
    cmha_buffer *b = (cmha_buffer *)list;
    while (b && b->name && strcmp(b->name, path) != 0) b++;
    return b && b->name ? b : NULL;
}

static cmha_status cmha__buffer_size(void *user, cmha_context *ctx, const char *path, uint64_t *bytes) {
    const cmha_buffer *b = cmha__buffer_of(user, path);
    (void)ctx;
    *bytes = b && b->data ? b->size : 0;
    return b ? CMHA_OK : CMHA_ERR_NOT_FOUND;
}

static cmha_status cmha__buffer_read(void *user, cmha_context *ctx, const char *path, uint64_t offset,
        void *to, size_t bytes) {
    const cmha_buffer *b = cmha__buffer_of(user, path);
    (void)ctx;
    if (!b || !b->data || offset > b->size || bytes > b->size - offset) return CMHA_ERR_IO;
    memcpy(to, (const char *)b->data + offset, bytes);
    return CMHA_OK;
}

static cmha_status cmha__buffer_write(void *user, cmha_context *ctx, const char *path, uint64_t offset,
        const void *from, size_t bytes, uint64_t total) {
    cmha_buffer *b = cmha__buffer_of(user, path);
    if (!b) return CMHA_ERR_NOT_FOUND;
    b->saving_bytes = (size_t)total;
    if (!offset) b->saving = b->saving_bytes == total ? cmha__take_plain(ctx, b->saving_bytes) : NULL;
    if (!b->saving) return CMHA_ERR_MEMORY;
    memcpy((char *)b->saving + offset, from, bytes);
    return CMHA_OK;
}

static cmha_status cmha__buffer_finish(void *user, cmha_context *ctx, const char *path, int whole) {
    cmha_buffer *b = cmha__buffer_of(user, path);
    if (!b) return CMHA_ERR_NOT_FOUND;
    cmha__give_plain(ctx, whole ? b->taken : b->saving, whole ? b->size : b->saving_bytes);
    if (whole) {
        b->data = b->taken = b->saving;
        b->size = b->saving_bytes;
    }
    b->saving = NULL;
    return CMHA_OK;
}

CMHA_DEF cmha_files cmha_buffers(cmha_buffer *list) {
    cmha_files files = {cmha__buffer_size, cmha__buffer_read, cmha__buffer_write, cmha__buffer_finish, 1,
        list};
    return files;
}

/* ---- numbers as files hold them, whatever this machine's byte order ---- */

static int cmha__little_endian(void) {
    const unsigned one = 1;
    return *(const unsigned char *)&one == 1;
}

static uint64_t cmha__bytes_get(const unsigned char *from, size_t n) {
    uint64_t x = 0;
    while (n-- > 0) x = x << 8 | from[n];
    return x;
}

/* Turns words, if any, from this machine's byte order to the file's, or back. */
static void cmha__swap_words(void *words, size_t n, size_t width) {
    unsigned char *at = (unsigned char *)words, other[8];
    if (!words || width == 1 || cmha__little_endian()) return;
    for (size_t i = 0; i < n; i++, at += width) {
        for (size_t j = 0; j < width; j++) other[j] = at[width - 1 - j];
        memcpy(at, other, width);
    }
}

/* The first types below, in this order; all but U8 can be read as reals. */
enum {
    CMHA__AS_F64, CMHA__AS_F32, CMHA__AS_F16, CMHA__AS_BF16, CMHA__AS_I64, CMHA__AS_C64, CMHA__AS_U8,
    CMHA__AS_REAL = sizeof(cmha_real) == 8 ? CMHA__AS_F64 : CMHA__AS_F32
};

/* Types and their bytes; the last one is all others. */
static const struct { char name[12]; unsigned char width; } cmha__dtypes[] = {
    {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8}, {"C64", 8}, {"U8", 1}, {"U64", 8},
    {"I32", 4}, {"U32", 4}, {"I16", 2}, {"U16", 2}, {"I8", 1}, {"BOOL", 1}, {"F8_E5M2", 1}, {"F8_E4M3", 1},
    {"F8_E8M0", 1}, {"F8_E5M2FNUZ", 1}, {"F8_E4M3FNUZ", 1}, {"", 0}};

/* Returns the row of a type; NULL: of reals. */
static int cmha__dtype(const char *name) {
    int i = 0;
    if (!name) return CMHA__AS_REAL;
    while (cmha__dtypes[i].width && strcmp(cmha__dtypes[i].name, name) != 0) i++;
    return i;
}

static cmha_real cmha__decode(uint64_t bits, int dtype) {
    double wide;
    if (dtype == CMHA__AS_F16) return cmha__half_float((uint32_t)bits);
    if (dtype == CMHA__AS_BF16) return cmha__float_of((uint32_t)bits << 16);
    if (dtype == CMHA__AS_F32 || dtype == CMHA__AS_C64) return cmha__float_of((uint32_t)bits);
    memcpy(&wide, &bits, sizeof wide);
    return dtype == CMHA__AS_F64 ? (cmha_real)wide : (cmha_real)(int64_t)bits;
}

/* ---- the header: JSON of one fixed shape, with rules never deeper than four ---- */

typedef struct {
    cmha_archive *archive; /* its arrays have room for all that a header of this length can hold */
    char *at; /* the text ends in a NUL, which no rule accepts */
    int seen_metadata, named; /* named: what is wrong is the tensor */
    cmha_archive_tensor tensor; /* the one being read, bits for its fields, and a list */
    int seen, n;
    uint64_t list[8];
} cmha__header;

/* Reads one thing. All of these return what is wrong, or NULL. */
typedef const char *(*cmha__rule)(cmha__header *h);

static cmha_status cmha__tensor_fail(const cmha_archive *a, const char *name, const char *problem) {
    return CMHA__MALFORMED(a, "tensor %.60s: %s", name, problem);
}

static void cmha__skip_blanks(cmha__header *h) { h->at += strspn(h->at, " \t\n\r"); }

/* Steps past a character if it comes next. */
static int cmha__accept(cmha__header *h, char c) {
    cmha__skip_blanks(h);
    if (*h->at != c) return 0;
    h->at++;
    return 1;
}

static const char *cmha__read_all(cmha__header *h, const char *brackets, cmha__rule rule) {
    const char *wrong;
    if (!cmha__accept(h, *brackets)) return *brackets == '[' ? "a list is expected" : "an object is expected";
    if (cmha__accept(h, brackets[1])) return NULL;
    do {
        if ((wrong = rule(h)) != NULL) return wrong;
    } while (cmha__accept(h, ','));
    return cmha__accept(h, brackets[1]) ? NULL : "a list or an object is not closed";
}

/* Reads a \u escape's digits; 0, which no text may hold, where they are not. */
static uint32_t cmha__hex4(const char *s) {
    char digits[5] = "";
    if (strncmp(s, "\\u", 2) == 0 && strspn(s + 2, "0123456789abcdefABCDEF") >= 4) memcpy(digits, s + 2, 4);
    return (uint32_t)strtoul(digits, NULL, 16);
}

/* Decodes the escape at h->at to *out, which lies before h->at. */
static int cmha__unescape(cmha__header *h, char **out) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    static const unsigned char lead[5] = {0, 0, 0xc0, 0xe0, 0xf0}; /* of UTF-8 */
    const char *plain = h->at[1] ? strchr(from, h->at[1]) : NULL;
    uint32_t c = plain ? (unsigned char)to[plain - from] : cmha__hex4(h->at), low;
    if (!c || (c >= 0xdc00 && c < 0xe000)) return 0;
    h->at += plain ? 2 : 6;
    if (c >= 0xd800 && c < 0xdc00) { /* the first half of a surrogate pair */
        low = cmha__hex4(h->at);
        if (low < 0xdc00 || low >= 0xe000) return 0;
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        h->at += 6;
    }
    size_t n = (size_t)1 + (c >= 0x80) + (c >= 0x800) + (c >= 0x10000);
    for (size_t i = n; i-- > 1; c >>= 6) (*out)[i] = (char)(0x80 | (c & 63));
    (*out)[0] = (char)(lead[n] | c);
    *out += n;
    return 1;
}

/* Reads a string and decodes it in place: its text never grows. */
static const char *cmha__read_string(cmha__header *h, const char **text) {
    char *out;
    if (!cmha__accept(h, '"')) return "a string is expected";
    *text = out = h->at;
    while (*h->at != '"') {
        size_t n = cmha__utf8_length((const unsigned char *)h->at);
        if ((unsigned char)*h->at < 32) return "a string is not closed or holds a control character";
        if (!n) return "a string is not UTF-8";
        if (*h->at == '\\') {
            if (!cmha__unescape(h, &out)) return "a bad escape in a string";
            continue;
        }
        memmove(out, h->at, n);
        out += n;
        h->at += n;
    }
    h->at++;
    *out = 0;
    return NULL;
}

static const char *cmha__read_key(cmha__header *h, const char **key) {
    const char *wrong = cmha__read_string(h, key);
    return wrong || cmha__accept(h, ':') ? wrong : "a colon is expected";
}

static const char *cmha__read_number(cmha__header *h) {
    char text[24] = "";
    cmha__skip_blanks(h);
    size_t digits = strspn(h->at, "0123456789");
    if (digits < sizeof text) memcpy(text, h->at, digits);
    if (h->n == 8) return "a list is too long";
    if (!cmha__parse_u64(text, &h->list[h->n++]) || (digits > 1 && *text == '0'))
        return "a whole number of 64 bits, without zeros before it, is expected";
    h->at += digits;
    return NULL;
}

/* "key": "value" */
static const char *cmha__read_pair(cmha__header *h) {
    const char **pair = h->archive->metadata + 2 * h->archive->n_metadata++;
    const char *wrong = cmha__read_key(h, &pair[0]);
    return wrong ? wrong : cmha__read_string(h, &pair[1]);
}

/* "dtype": "F32" or "shape": [2, 3] or "data_offsets": [0, 24] */
static const char *cmha__read_field(cmha__header *h) {
    cmha_archive_tensor *t = &h->tensor;
    const char *key, *wrong = cmha__read_key(h, &key);
    if (wrong) return wrong;
    int bit = !strcmp(key, "dtype") ? 1 : !strcmp(key, "shape") ? 2 : !strcmp(key, "data_offsets") ? 4 : 0;
    if (!bit || h->seen & bit) return "a field of a tensor is unknown or comes twice";
    h->seen |= bit;
    h->n = 0;
    if (bit == 1) return cmha__read_string(h, &t->dtype);
    wrong = cmha__read_all(h, "[]", cmha__read_number);
    if (bit == 4) {
        t->begin = h->list[0];
        t->end = h->list[1];
        if (h->n == 2) h->seen |= 8;
    }
    if (wrong || bit == 4) return wrong;
    t->rank = h->n;
    t->count = 1;
    for (int i = 0; i < h->n; i++) {
        t->shape[i] = (size_t)h->list[i];
        h->named = t->shape[i] != h->list[i] || !cmha__mul(t->count, t->shape[i], &t->count);
        if (h->named) return "its shape is too large";
    }
    return NULL;
}

/* "name": {fields in any order} or "__metadata__": {pairs} */
static const char *cmha__read_entry(cmha__header *h) {
    cmha_archive_tensor *t = &h->tensor;
    cmha__zero(*t);
    h->seen = 0;
    const char *wrong = cmha__read_key(h, &t->name);
    if (wrong) return wrong;
    if (strcmp(t->name, "__metadata__") == 0)
        return h->seen_metadata++ ? "__metadata__ comes twice" : cmha__read_all(h, "{}", cmha__read_pair);
    if ((wrong = cmha__read_all(h, "{}", cmha__read_field)) != NULL) return wrong;
    h->named = 1;
    if (h->seen != 15) return "it lacks a dtype, a shape or two data_offsets";
    int dtype = cmha__dtype(t->dtype);
    size_t bytes, width = cmha__dtypes[dtype].width;
    if (!width) return "its dtype is not known";
    if (t->begin > t->end || t->end > h->archive->size - h->archive->data_begin)
        return "its data_offsets leave the file";
    if (!cmha__mul(t->count, width, &bytes) || bytes != t->end - t->begin)
        return "its data_offsets do not fit its shape and dtype";
    h->named = 0;
    if (dtype == CMHA__AS_C64) t->count *= 2;
    h->archive->tensors[h->archive->n_tensors++] = *t;
    return NULL;
}

static int cmha__compare_places(const void *a, const void *b) {
    const cmha_archive_tensor *p = (const cmha_archive_tensor *)a, *q = (const cmha_archive_tensor *)b;
    if (p->begin != q->begin) return p->begin < q->begin ? -1 : 1;
    return p->end < q->end ? -1 : p->end > q->end;
}

static int cmha__compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorts n things of `size` bytes by name; returns a name that comes twice, or NULL. */
static const char *cmha__repeated(const void **order, const void *things, size_t n, size_t size) {
    for (size_t i = 0; i < n; i++) order[i] = (const char *)things + i * size;
    cmha__sort(order, n, cmha__compare_names);
    for (size_t i = 1; i < n; i++)
        if (cmha__compare_names(order[i - 1], order[i]) == 0) return *(const char *const *)order[i];
    return NULL;
}

/* Sorts tensors and metadata by name. Refuses names twice, holes and overlaps. */
static cmha_status cmha__arrange(cmha_archive *a) {
    size_t n = a->n_tensors, m = a->n_metadata, bytes;
    cmha_archive_tensor *copy;
    const void **order;
    const char **pairs, *twice, *hole = NULL;
    uint64_t end = 0;
    cmha__array arrays[] = {CMHA__ARRAY(copy, n), CMHA__ARRAY(order, (n > m ? n : m) + 1),
            CMHA__ARRAY(pairs, 2 * m)};
    cmha_status status = cmha__take_arrays(a->context, "header", arrays, 3, &bytes, NULL);
    if (status) return status;
    cmha__copy(copy, a->tensors, n);
    cmha__copy(pairs, a->metadata, 2 * m);
    twice = cmha__repeated(order, pairs, m, 2 * sizeof *pairs);
    for (size_t i = 0; i < m; i++) memcpy(a->metadata + 2 * i, order[i], 2 * sizeof *pairs);
    for (size_t i = 0; i < n; i++) order[i] = &copy[i];
    cmha__sort(order, n, cmha__compare_places);
    for (size_t i = 0; i < n; i++) {
        const cmha_archive_tensor *t = (const cmha_archive_tensor *)order[i];
        if (t->begin != end && !hole) hole = t->name;
        end = t->end;
    }
    if (!twice) twice = cmha__repeated(order, copy, n, sizeof *copy);
    for (size_t i = 0; i < n; i++) a->tensors[i] = *(const cmha_archive_tensor *)order[i];
    cmha__give(a->context, copy, bytes);
    if (hole) return cmha__tensor_fail(a, hole, "there is a hole or an overlap before its data");
    if (twice) return CMHA__MALFORMED(a, "%.60s comes twice in the header", twice);
    if (end == a->size - a->data_begin) return CMHA_OK;
    return CMHA__MALFORMED(a, "the tensors do not fill the file");
}

/* ---- archives ---- */

static cmha_status cmha__load_header(cmha_archive *a, cmha_context *ctx, const char *path) {
    enum { TENSOR = 49, PAIR = 6 }; /* bytes: "":{"dtype":"U8","shape":[],"data_offsets":[0,0]} and "":"", */
    unsigned char raw[8];
    cmha_status status = cmha__file_open(a, ctx, path);
    if (status) return status;
    if (a->size < 8) return CMHA__MALFORMED(a, "not a safetensors file: below 8 bytes");
    if ((status = cmha__file_read(a, 0, raw, 8)) != CMHA_OK) return status;
    uint64_t length = cmha__bytes_get(raw, 8);
    if (length > 100000000 || length > a->size - 8)
        return CMHA__MALFORMED(a, "not a safetensors file: its header exceeds it or 100 MB");
    size_t text = (size_t)length, name = strlen(path) + 1;
    cmha__array arrays[] = {CMHA__ARRAY(a->tensors, text / TENSOR), /* at most */
            {&a->metadata, text / PAIR + 1, 2 * sizeof *a->metadata},
            {&a->path, name + text + 1, 1}};
    status = cmha__take_arrays(ctx, "header", arrays, 3, &a->memory_size, NULL);
    if (status) return status;
    a->memory = a->tensors;
    a->data_begin = 8 + length;
    memcpy(a->path, path, name);
    cmha__header h;
    cmha__zero(h);
    h.archive = a;
    char *begin = h.at = a->path + name;
    if ((status = cmha__file_read(a, 8, begin, text)) != CMHA_OK) return status;
    begin[text] = 0;
    const char *wrong = *begin != '{' ? "it does not begin with {" : NULL;
    if (!wrong) wrong = cmha__read_all(&h, "{}", cmha__read_entry);
    if (!wrong) cmha__skip_blanks(&h);
    if (!wrong && h.at != begin + text) wrong = "something follows its end";
    if (h.named) return cmha__tensor_fail(a, h.tensor.name, wrong);
    if (!wrong) return cmha__arrange(a);
    return CMHA__MALFORMED(a, "safetensors header, byte %zu: %s", (size_t)(h.at - begin), wrong);
}

CMHA_DEF cmha_status cmha_archive_open(cmha_archive *archive, cmha_context *context, const char *path) {
    if (archive) cmha__zero(*archive);
    if (!archive || !context || !path)
        return CMHA__WRONG(context, "archive open: %s is NULL", archive ? "path" : "archive");
    if (!cmha__is_open(context)) return CMHA_ERR_STATE;
    cmha_status status = cmha__load_header(archive, context, path);
    return status ? cmha__file_end(archive, status) : CMHA_OK;
}

CMHA_DEF void cmha_archive_close(cmha_archive *archive) {
    if (!archive || !archive->context) return;
    cmha__system_close(archive->file);
    cmha__give(archive->context, archive->memory, archive->memory_size);
    cmha__zero(*archive);
}

CMHA_DEF const cmha_archive_tensor *cmha_archive_find(const cmha_archive *archive, const char *name) {
    if (!archive || !name || !archive->n_tensors) return NULL;
    return (const cmha_archive_tensor *)bsearch(&name, archive->tensors, archive->n_tensors,
        sizeof *archive->tensors, cmha__compare_names);
}

CMHA_DEF const char *cmha_archive_metadata(const cmha_archive *archive, const char *key) {
    if (!archive || !key || !archive->n_metadata) return NULL;
    const char *const *pair = (const char *const *)bsearch(&key, archive->metadata, archive->n_metadata,
        2 * sizeof *pair, cmha__compare_names);
    return pair ? pair[1] : NULL;
}

/* Reads n words of the data from byte `from` on, in this machine's order. */
static cmha_status cmha__read_words(cmha_archive *a, uint64_t from, void *out, size_t n, size_t width) {
    cmha_status status = cmha__file_read(a, a->data_begin + from, out, n * width);
    cmha__swap_words(out, n, width);
    return cmha__blame(a->context, a->path, status);
}

/* Returns where number i of complex pairs lies among planes with rows of n. */
static size_t cmha__plane_place(size_t i, size_t n) {
    return i / 2 / n * 2 * n + i % 2 * n + i / 2 % n;
}

/* Reads a tensor as cmha_real or, whole = 1, as int64_t. */
static cmha_status cmha__read_tensor(cmha_archive *a, const cmha_archive_tensor *t, void *out, int whole) {
    cmha_context *ctx = a ? a->context : NULL;
    if (!cmha__is_open(ctx)) return CMHA_ERR_STATE;
    if (!t || (!out && t->count)) return CMHA__WRONG(ctx, "archive read: %s is NULL", t ? "out" : "tensor");
    unsigned char piece[8192];
    int dtype = cmha__dtype(t->dtype), planes = dtype == CMHA__AS_C64;
    size_t width = planes ? 4 : cmha__dtypes[dtype].width, row = t->rank ? t->shape[t->rank - 1] : 1;
    if (whole ? dtype != CMHA__AS_I64 : dtype > CMHA__AS_C64)
        return cmha__blame(ctx, a->path, CMHA__MALFORMED(a, "tensor %.60s: %s is not %s", t->name, t->dtype,
            whole ? "I64" : "F64, F32, F16, BF16, I64 or C64"));
    if (whole || dtype == CMHA__AS_REAL) return cmha__read_words(a, t->begin, out, t->count, width);
    CMHA__IN_PIECES(done, n, t->count, sizeof piece / width) {
        cmha_status status = cmha__read_words(a, t->begin + done * width, piece, n * width, 1);
        if (status) return status;
        for (size_t i = 0; i < n; i++)
            ((cmha_real *)out)[planes ? cmha__plane_place(done + i, row) : done + i] =
                cmha__decode(cmha__bytes_get(piece + i * width, width), dtype);
    }
    return CMHA_OK;
}

CMHA_DEF cmha_status cmha_archive_read(cmha_archive *archive, const cmha_archive_tensor *t, cmha_real *out) {
    return cmha__read_tensor(archive, t, out, 0);
}

CMHA_DEF cmha_status cmha_archive_read_i64(cmha_archive *archive, const cmha_archive_tensor *t,
        int64_t *out) {
    return cmha__read_tensor(archive, t, out, 1);
}

/* ---- writing an archive ---- */

#ifdef CMHA_NO_FILES
enum { CMHA__PATH = 1 };
#else
enum { CMHA__PATH = 4096, CMHA__LINKS = 40 }; /* systems open no longer paths and follow no more links */
#endif

typedef struct cmha__output cmha__output;

/* Tells what a file holds: metadata (cmha__tell_note), then tensors (cmha__tell_tensor). */
typedef void (*cmha__contents)(cmha__output *o, const void *of);

/* A file being written. Its contents are told three times: to measure the header, to compose it, to write the
   data. Until it is whole it lies beside the one it replaces, under a name of its own or, so that nothing is
   left if the process dies, without one. */
struct cmha__output {
    cmha_context *context;
    const char *name;
    cmha__contents contents;
    const void *of;
    char *header; /* NULL while it is measured */
    size_t used, room, notes, tensors, bytes; /* of the header; of what it tells; of their data */
    int writing, error; /* 0 = the header is told; first failure, or its errno */
    uint64_t at, total; /* bytes that callbacks have taken; of the whole file */
    int fd; /* the system's; -1 = callbacks write */
    int mode, replaces; /* permissions; 1 = those of an old file */
    size_t folder; /* characters of the folder, with which both begin: */
    char path[CMHA__PATH], beside[CMHA__PATH + 32]; /* what is replaced; the file under its own name */
};

/* Appends to the header; header NULL: only counts. */
CMHA__PRINTF(2, 3) static void cmha__emit(cmha__output *o, const char *format, ...) {
    char *at = cmha__at(o->header, o->used);
    va_list arguments;
    if (o->writing) return;
    va_start(arguments, format);
    o->used += cmha__vprint(at, at ? o->room - o->used : 0, format, arguments);
    va_end(arguments);
}

static void cmha__emit_string(cmha__output *o, const char *text) {
    cmha__emit(o, "\"");
    for (; *text; text++) {
        unsigned c = (unsigned char)*text;
        if (c < 32) cmha__emit(o, "\\u00%d%c", (int)c / 16, "0123456789abcdef"[c % 16]);
        else cmha__emit(o, c == '"' || c == '\\' ? "\\%c" : "%c", (int)c);
    }
    cmha__emit(o, "\"");
}

/* value NULL: the caller emits it. */
static void cmha__tell_note(cmha__output *o, const char *key, const char *value) {
    cmha__emit(o, "%s", o->notes++ ? "," : "\"__metadata__\":{");
    cmha__emit_string(o, key);
    cmha__emit(o, ":");
    if (value) cmha__emit_string(o, value);
}

/* Writes n words in the file's byte order, unless it has failed before. */
static void cmha__write_words(cmha__output *o, const void *data, size_t n, size_t width) {
    const cmha_files *f = &o->context->config.files;
    unsigned char piece[8192], *from = (unsigned char *)(uintptr_t)data;
    int swaps = width > 1 && !cmha__little_endian();
    CMHA__IN_PIECES(done, part, n, swaps ? sizeof piece / width : n) {
        size_t bytes = part * width;
        if (o->error) return;
        if (swaps) from = (unsigned char *)memcpy(piece, (const char *)data + done * width, bytes);
        cmha__swap_words(from, part, width);
        o->error = o->fd >= 0 ? cmha__file_move(o->fd, from, bytes, 1)
            : (int)(f->write)(f->user, o->context, o->name, o->at, from, bytes, o->total);
        if (!o->error) o->at += bytes;
    }
}

static void cmha__tell_tensor(cmha__output *o, const cmha_archive_item *item) {
    int dtype = cmha__dtype(item->dtype);
    size_t width = cmha__dtypes[dtype].width, n = 1;
    for (int i = 0; i < item->rank; i++) n *= item->shape[i];
    int planes = dtype == CMHA__AS_C64;
    size_t row = item->rank ? item->shape[item->rank - 1] : 1, numbers = planes && o->writing ? 2 * n : 0;
    float pairs[1024];
    CMHA__IN_PIECES(i, some, numbers, 1024) {
        for (size_t j = 0; j < some; j++) pairs[j] = (float)item->data[cmha__plane_place(i + j, row)];
        cmha__write_words(o, pairs, some, sizeof *pairs);
    }
    if (o->writing && !planes && item->data) cmha__write_words(o, item->data, n, width);
    cmha__emit(o, "%s", o->tensors++ ? "," : o->notes ? "}," : "");
    cmha__emit_string(o, item->name);
    cmha__emit(o, ":{\"dtype\":\"%s\",\"shape\":[", cmha__dtypes[dtype].name);
    for (int i = 0; i < item->rank; i++) cmha__emit(o, i ? ",%zu" : "%zu", item->shape[i]);
    cmha__emit(o, "],\"data_offsets\":[%zu,%zu]}", o->bytes, o->bytes + n * width);
    o->bytes += n * width;
}

static void cmha__tell_header(cmha__output *o) {
    o->used = o->notes = o->tensors = o->bytes = 0;
    cmha__emit(o, "{");
    o->contents(o, o->of);
    cmha__emit(o, "%s", o->notes && !o->tensors ? "}}" : "}");
    while (o->used % 8) cmha__emit(o, " ");
}

static void cmha__tell_file(cmha__output *o) {
    uint64_t length = o->used;
    o->writing = 1;
    o->error = 0;
    cmha__write_words(o, &length, 1, 8);
    cmha__write_words(o, o->header, o->used, 1);
    o->contents(o, o->of);
}

#ifndef CMHA_NO_FILES
/* Copies `path` or, so that links stay, what its last link names. 0 = see errno. */
static int cmha__output_follow(cmha__output *o, const char *path) {
    size_t n = strlen(path), begin;
    for (int links = 0; links < CMHA__LINKS; links++) {
        begin = path[0] == '/' ? 0 : o->folder; /* a link counts from its folder */
        if (begin + n >= CMHA__PATH) return errno = ENAMETOOLONG, 0;
        memcpy(o->path + begin, path, n);
        o->path[o->folder = begin + n] = 0;
        while (o->folder && !strchr(CMHA__SEPARATORS, o->path[o->folder - 1])) o->folder--;
        n = (size_t)CMHA__READ_LINK(o->path, o->beside, CMHA__PATH);
        if (n == (size_t)-1) return 1;
        path = o->beside;
    }
    return errno = ELOOP, 0;
}

/* Gives the open file fd or, fd = -1, a new one a free name in its folder. Returns its descriptor; -1 leaves
   the reason in errno. */
static int cmha__output_name(cmha__output *o, int fd) {
    cmha_rng rng = cmha_rng_make((uint64_t)CMHA__SYSTEM(getpid)(), (uint64_t)(uintptr_t)o);
    char *name = o->beside + o->folder;
    int got = -1, tries = 0;
    do {
        uint64_t number = cmha_rng_next(&rng);
        memcpy(name, "cmha-00000000.tmp", 18);
        for (int i = 5; i < 13; i++, number >>= 4) name[i] = "0123456789abcdef"[number & 15];
        if (fd < 0)
            got = CMHA__SYSTEM(open)(o->beside, O_WRONLY | O_CREAT | O_EXCL | CMHA__FILE_FLAGS, o->mode);
#ifdef CMHA__NAMELESS
        else {
            char self[32];
            cmha__line(self, "/proc/self/fd/%d", fd);
            got = linkat(CMHA__HERE, self, CMHA__HERE, o->beside, CMHA__FOLLOW) == 0 ? fd : -1;
        }
#endif
    } while (got < 0 && errno == EEXIST && ++tries < 1000);
    if (got < 0) *name = 0;
    return got;
}

/* Writes, flushes, closes and, if it has no name, names the file: 1 = done. Else none is left, and errno has
   the reason; -1 = only the name failed. */
static int cmha__output_fill(cmha__output *o, int fd) {
#ifndef _WIN32
    if (o->replaces) (void)!fchmod(fd, (mode_t)o->mode); /* some of which the umask has taken */
#endif
    o->fd = fd;
    cmha__tell_file(o);
    if (!o->error && CMHA__FLUSH_FILE(fd) != 0) o->error = errno;
    int unnamed = !o->error && !o->beside[o->folder] && cmha__output_name(o, fd) < 0;
    if (unnamed) o->error = errno;
    if (CMHA__SYSTEM(close)(fd) != 0 && !o->error) o->error = errno;
    if (o->error && o->beside[o->folder]) (void)remove(o->beside);
    errno = o->error;
    return unnamed ? -1 : !o->error;
}

/* Writes the file and puts it in its place. 0 leaves the reason in errno, and no file beside. */
static int cmha__output_put(cmha__output *o) {
    int fd, done = -1;
#ifndef _WIN32
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        o->total > (uint64_t)limit.rlim_cur)
        return errno = EFBIG, 0; /* a signal (SIGXFSZ) would end the process at the limit */
#endif
#ifdef CMHA__NAMELESS
    fd = open(o->folder ? o->beside : ".", CMHA__NAMELESS | O_WRONLY | CMHA__FILE_FLAGS, o->mode);
    if (fd >= 0) done = cmha__output_fill(o, fd); /* without /proc it gets no name */
#endif
    if (done < 0 && (fd = cmha__output_name(o, -1)) >= 0) done = cmha__output_fill(o, fd);
    if (done <= 0) return 0;
    o->error = CMHA__RENAME(o->beside, o->path);
    if (o->error) return (void)remove(o->beside), errno = o->error, 0;
#ifndef _WIN32
    o->beside[o->folder] = 0;
    fd = open(o->folder ? o->beside : ".", O_RDONLY | CMHA__FILE_FLAGS);
    if (fd >= 0) (void)fsync(fd), close(fd); /* the renaming lasts, where a folder can be flushed */
#endif
    return 1;
}

/* Replaces a regular file, which keeps its permissions, or makes one. */
static cmha_status cmha__system_save(cmha__output *o) {
    struct CMHA__STAT(stat) about;
    const char *failed = "cannot be written";
    o->replaces = CMHA__STAT(stat)(o->name, &about) == 0;
    if (o->replaces && !S_ISREG(about.st_mode))
        return cmha__fail(o->context, CMHA_ERR_IO, "cannot be replaced: not a regular file");
    if ((o->replaces || errno == ENOENT) && cmha__output_follow(o, o->name)) {
        o->mode = o->replaces ? (int)(about.st_mode & 0777) : CMHA__FILE_MODE;
        memcpy(o->beside, o->path, o->folder);
        o->beside[o->folder] = 0;
        if (cmha__output_put(o)) return CMHA_OK;
        failed = "writing failed";
    }
    (void)cmha__io_fail(o->context, failed);
    return CMHA_ERR_IO; /* also where there is no such folder */
}
#endif

/* Writes a file, by the callbacks or, if these do not know its path, the system. */
static cmha_status cmha__save(cmha_context *ctx, const char *path, cmha__contents contents, const void *of) {
    const cmha_files *f = &ctx->config.files;
    cmha__output o;
    cmha_status status;
    if (!path) return CMHA__WRONG(ctx, "archive write: path is NULL");
    cmha__zero(o);
    o.context = ctx;
    o.name = path;
    o.contents = contents;
    o.of = of;
    o.fd = -1;
    cmha__tell_header(&o);
    o.room = o.used + 1;
    o.header = (char *)cmha__take(ctx, "its header", o.room);
    if (!o.header) status = CMHA_ERR_MEMORY;
    else if (o.used > 100000000) status = CMHA__HUGE(ctx, "its header exceeds 100 MB");
    else {
        cmha__tell_header(&o);
        o.total = 8 + (uint64_t)o.used + o.bytes;
        if (f->write) cmha__tell_file(&o);
        if (!f->write || (!o.at && o.error == CMHA_ERR_NOT_FOUND && f->system_too)) {
            status = cmha__system_save(&o);
        } else {
            status = f->finish(f->user, ctx, path, !o.error);
            status = cmha__ends(ctx, "writing failed", o.error ? (cmha_status)o.error : status);
        }
    }
    cmha__give(ctx, o.header, o.room);
    return cmha__blame(ctx, path, status);
}

typedef struct {
    const cmha_archive_item *items;
    const char *const *metadata;
    size_t n_items, n_metadata;
} cmha__arrays;

static void cmha__tell_arrays(cmha__output *o, const void *of) {
    const cmha__arrays *a = (const cmha__arrays *)of;
    for (size_t i = 0; i < a->n_metadata; i++) cmha__tell_note(o, a->metadata[2 * i], a->metadata[2 * i + 1]);
    for (size_t i = 0; i < a->n_items; i++) cmha__tell_tensor(o, &a->items[i]);
}

static cmha_status cmha__check_item(cmha_context *ctx, const cmha_archive_item *item, size_t *total) {
    int dtype = cmha__dtype(item->dtype), countable = 1;
    size_t bytes = 1;
    const char *problem = NULL;
    if (!cmha__is_utf8(item->name) || strcmp(item->name, "__metadata__") == 0)
        problem = "its name is missing, reserved or not UTF-8";
    else if (item->rank < 0 || item->rank > 8 || (item->rank && !item->shape)) problem = "its rank is bad";
    else if (item->dtype && (dtype < CMHA__AS_I64 || dtype > CMHA__AS_U8))
        problem = "its dtype is not I64, U8 or C64";
    else {
        for (int i = 0; i < item->rank; i++) countable &= cmha__mul(bytes, item->shape[i], &bytes);
        countable &= cmha__mul(bytes, cmha__dtypes[dtype].width, &bytes);
        if (countable && bytes && !item->data) problem = "it has no data";
    }
    if (!problem && countable && cmha__sum(*total, bytes, total)) return CMHA_OK;
    return cmha__fail(ctx, problem ? CMHA_ERR_ARGUMENT : CMHA_ERR_OVERFLOW, "archive write: tensor %.60s: %s",
        item->name ? item->name : "", problem ? problem : "more bytes than can be counted");
}

CMHA__FIT cmha_status cmha_archive_write(cmha_context *context, const char *path,
        const cmha_archive_item *items, size_t n_items, const char *const *metadata, size_t n_metadata) {
    size_t most = n_items > n_metadata ? n_items : n_metadata, total = 0, i;
    if (!context || (n_items && !items) || (n_metadata && !metadata))
        return CMHA__WRONG(context, "archive write: %s is NULL", n_items && !items ? "items" : "metadata");
    if (!cmha__is_open(context)) return CMHA_ERR_STATE;
    for (i = 0; i < n_items; i++) {
        cmha_status status = cmha__check_item(context, &items[i], &total);
        if (status) return status;
    }
    for (i = 0; i < 2 * n_metadata; i++)
        if (!cmha__is_utf8(metadata[i]))
            return CMHA__WRONG(context, "archive write: metadata[%zu] is not UTF-8", i);
    size_t bytes = cmha__times(most + 1, sizeof(void *));
    const void **order = (const void **)cmha__take(context, "archive write", bytes);
    if (!order) return CMHA_ERR_MEMORY;
    const char *twice = cmha__repeated(order, items, n_items, sizeof *items);
    if (!twice) twice = cmha__repeated(order, metadata, n_metadata, 2 * sizeof *metadata);
    cmha__give(context, (void *)order, bytes);
    if (twice) return CMHA__WRONG(context, "archive write: %.60s comes twice", twice);
    cmha__arrays a = {items, metadata, n_items, n_metadata};
    return cmha__save(context, path, cmha__tell_arrays, &a);
}

/* ---- saving models and training state ---- */

enum { CMHA__NAME = 64 }; /* room for "optim.m." and a parameter's name, "trainer." and an option's */

static const char *const cmha__prefixes[] = {"", "optim.m.", "optim.v.", "optim.mean.", "scale."};
enum { CMHA__SCALES = 4, CMHA__PREFIXES };

/* Returns the first row of a packed matrix that is this parameter's: several may share it. */
static size_t cmha__packed_row(const cmha_parameter *p) {
    return p->matrix.rank ? (p->matrix.size - p->tensor.size) / p->tensor.packed->n_in : 0;
}

/* Scales of a row of 4 bits in a file: its pieces of 32 columns, in Q4_K of whole 256. */
static size_t cmha__row_scales(const cmha_packed *p) {
    return p->storage == CMHA_STORAGE_INT4 ? (p->n_in + 31) / 32 : (p->n_in + 255) / 256 * 8;
}

typedef struct { char name[CMHA__NAME]; size_t n; } cmha__label; /* n: a shape, if it needs one */

/* Returns tensor i of a training state: parameters, first moments of all, second ones, means, scales of 8 and
   4 bits. Data are NULL where there are none, as of frozen ones' moments; the words of what is packed. *label
   gets its name. */
static cmha_archive_item cmha__item(const cmha_parameters *p, cmha_real *moments, size_t i,
        cmha__label *label) {
    const cmha_parameter *one = &p->list[i % p->count];
    const cmha_packed *packed = one->tensor.packed;
    size_t block = i / p->count;
    cmha_archive_item item = {label->name, one->tensor.data, one->tensor.shape, one->tensor.rank, NULL};
    cmha__print(label->name, CMHA__NAME, "%s%s", cmha__prefixes[block], one->name);
    if (packed) item.data = (const cmha_real *)(const void *)packed->words;
    if (packed && packed->storage >= CMHA_STORAGE_INT4 && (!block || block == CMHA__SCALES)) {
        item.dtype = !block ? "U8" : packed->storage == CMHA_STORAGE_INT4 ? "F16" : "U16";
        label->n = one->tensor.size / 2 + one->tensor.size % 2;
        if (block) label->n = one->tensor.size / packed->n_in * cmha__row_scales(packed);
        item.shape = &label->n;
        item.rank = 1;
    } else if (block == CMHA__SCALES) {
        item.data = packed && packed->scales ? packed->scales + cmha__packed_row(one) : NULL;
        item.rank = 1;
        if (packed && one->tensor.size == packed->n_out * packed->n_in) item.shape = &packed->n_out;
    } else if (block) {
        item.data = !moments || one->kept[block - 1] == SIZE_MAX ? NULL : moments + one->kept[block - 1];
    } else if (packed) item.dtype = packed->scales ? "I8" : "BF16";
    return item;
}

/* Moves a packed parameter or, scales = 1, those of one of 4 bits from an archive, byte `from` on, or, a
   NULL, to a file: 16, 8 or 4 bits each, the first below, in the order of numbers or of rows and columns. */
static cmha_status cmha__move_packed(const cmha_parameter *one, int scales, cmha__output *o, cmha_archive *a,
        uint64_t from) {
    const cmha_packed *p = one->tensor.packed;
    const size_t bits = scales ? 16 : cmha__block_words(p->storage) / 2, C = scales ? 0 : p->turned;
    const size_t across = scales ? cmha__row_scales(p) : C ? C : p->n_in, first = cmha__packed_row(one);
    const size_t all = scales ? one->tensor.size / p->n_in * across : one->tensor.size;
    size_t row = 0, i = 0;
    unsigned char bytes[8192];
    cmha_status status = CMHA_OK;
    CMHA__IN_PIECES(at, n, all, 8 * sizeof bytes / bits) {
        if (a) status = cmha__read_words(a, from + at * bits / 8, bytes, (n * bits + 7) / 8, 1);
        else cmha__zero(bytes);
        if (status) break;
        for (size_t k = 0, run; k < n; k += run) { /* neighbours in a block; else one */
            size_t to = C ? row / p->n_in * C + i : first + row, c = C ? row % p->n_in : i;
            uint32_t *block = cmha__block_at(p, to, scales ? 0 : c);
            run = C || scales ? 1 : cmha__min(cmha__min(n - k, p->n_in - i), CMHA__BLOCK - c % CMHA__BLOCK);
            for (size_t j = k; j < k + run; j++, c++) {
                cmha__place place = scales ? cmha__scale_place(p, to, c * 32)
                    : cmha__place_in(p->storage, block, c % CMHA__BLOCK);
                unsigned char *cell = bytes + j * bits / 8;
                uint32_t low = (uint32_t)(j * bits % 8), code = (uint32_t)cell[0] >> low;
                if (a) cmha__place_put(place, bits > 8 ? code | (uint32_t)cell[1] << 8 : code);
                code = cmha__place_bits(place) << low;
                cell[0] = (unsigned char)(cell[0] | code);
                if (bits > 8) cell[1] = (unsigned char)(code >> 8);
            }
            i = i + run < across ? i + run : 0;
            row += !i;
        }
        if (CMHA__TRAINS && !a) cmha__write_words(o, bytes, (n * bits + 7) / 8, 1);
    }
    return status;
}

static size_t cmha__own_omega(const cmha_model *m) {
    return m->config.frequency == CMHA_FREQUENCY_TABLE ? m->config.n_heads * m->P : 0;
}

static void cmha__tell_u64(cmha__output *o, const char *key, uint64_t value) {
    char digits[24];
    cmha__write_u64(value, digits);
    cmha__tell_note(o, key, digits);
}

/* Fields behind `recompute` and `eval_tokens` came later and are told if not the default, so that earlier
   versions read files without them. */
static void cmha__tell_table(cmha__output *o, const char *prefix, cmha_table table, const void *config) {
    int model = table.fields == cmha_model_table().fields;
    size_t last = model ? offsetof(cmha_model_config, recompute) : offsetof(cmha_trainer_config, eval_tokens);
    char key[CMHA__NAME], value[32];
    CMHA__EACH_FIELD(field, table) {
        double is = cmha__field_value(field, config), usual = field->initial;
        if (field->offset > last && !(is < usual || is > usual)) continue;
        cmha_config_get(table, config, field->name, value, sizeof value);
        cmha__line(key, "%s%s", prefix, field->name);
        cmha__tell_note(o, key, value);
    }
}

/* Returns how a parameter is tuned, how usually, and the key in metadata. */
static double cmha__tuning(const cmha_parameter *p, size_t what, char *key, double *usual) {
    static const char *const names[CMHA_TUNE_COUNT] = {"frozen", "rate", "decay", "optimiser"};
    const double now[CMHA_TUNE_COUNT] = {p->frozen ? 1.0 : 0.0, p->lr_scale, p->decay, (double)p->chosen};
    const double usually[CMHA_TUNE_COUNT] = {p->usual_frozen ? 1.0 : 0.0, 1, p->usual_decay, 0};
    cmha__print(key, CMHA__NAME, "tune.%s.%s", names[what], p->name);
    *usual = usually[what];
    return now[what];
}

/* What a file of parameters holds; NULL = not that. */
typedef struct {
    const cmha_parameters *parameters;
    const cmha_model *model;
    const cmha_trainer *trainer;
    const size_t *step; /* and with it the moments */
    int part; /* 1: only what is not frozen */
} cmha__state;

/* Returns an identity of what is frozen or, with a file, not in it, by first numbers. */
static uint64_t cmha__rest_identity(const cmha_parameters *p, const cmha_archive *file) {
    uint64_t hash = 0;
    CMHA__EACH_PARAMETER(one, p) {
        size_t pairs = cmha__min(one->tensor.size, 65536) / 2;
        if (file ? !cmha_archive_find(file, one->name) : one->frozen)
            hash = cmha__mix(hash ^ cmha__knowledge_identity(1, pairs, one->tensor.data));
    }
    return hash;
}

static void cmha__tell_state(cmha__output *o, const void *of) {
    const cmha__state *s = (const cmha__state *)of;
    const cmha_parameters *p = s->parameters;
    const cmha_model *model = s->model;
    size_t n = model ? cmha__own_omega(model) : 0;
    char key[CMHA__NAME], text[48];
    cmha__tell_note(o, "format", "cmha");
    cmha__tell_note(o, "cmha.version", CMHA__VERSION);
    if (model) cmha__tell_table(o, "cfg.", cmha_model_table(), &model->config);
    if (n) cmha__tell_note(o, "omega", NULL);
    for (size_t i = 0; i < n; i++) {
        cmha__write_real(model->omega[i], text);
        cmha__emit(o, "%s%s%s", i ? "," : "\"", text, i + 1 < n ? "" : "\"");
    }
    if (model && model->packed.storage)
        cmha__tell_note(o, "packed", cmha__storages[model->packed.storage]);
    if (model && model->knowledge_identity) cmha__tell_u64(o, "knowledge", model->knowledge_identity);
    if (s->part) cmha__tell_u64(o, "part", cmha__rest_identity(p, NULL));
    if (s->trainer) {
        cmha_trainer_config whole = s->trainer->config; /* as one rank would have it */
        whole.batch *= s->model->tape.shared.ranks.ranks;
        cmha__tell_table(o, "trainer.", cmha_trainer_table(), &whole);
    }
    if (s->step) cmha__tell_u64(o, "state.step", *s->step);
    if (s->step && p->optimiser && p->optimiser != cmha__optimisers)
        cmha__tell_note(o, "state.optimiser", p->optimiser->name);
    if (s->trainer) {
        double best = s->trainer->best;
        cmha__tell_u64(o, "state.seed", s->trainer->seed);
        cmha__write_real(best <= (double)INFINITY ? best : (double)INFINITY, text);
        cmha__tell_note(o, "state.best", text);
    }
    for (size_t i = 0; i < CMHA_TUNE_COUNT * p->count; i++) {
        const cmha_parameter *one = &p->list[i / CMHA_TUNE_COUNT];
        double usual, now = cmha__tuning(one, i % CMHA_TUNE_COUNT, key, &usual);
        cmha__write_real(now, text);
        if (now != usual && !(s->part && one->frozen)) cmha__tell_note(o, key, text);
    }
    for (size_t i = 0; i < CMHA__PREFIXES * p->count; i++) {
        cmha__label label;
        const cmha_parameter *one = &p->list[i % p->count];
        cmha_archive_item item = cmha__item(p, s->step ? p->moments : NULL, i, &label);
        if (!item.data || (s->part && one->frozen)) continue;
        if (item.dtype && o->writing) (void)cmha__move_packed(one, i >= p->count, o, NULL, 0);
        if (item.dtype) item.data = NULL; /* written */
        cmha__tell_tensor(o, &item);
    }
}

CMHA__FIT cmha_status cmha_parameters_save(cmha_parameters *p, const char *path, int state) {
    if (!p || !cmha__is_open(p->context)) return CMHA_ERR_STATE;
    cmha_status status = cmha__holds_numbers(p);
    if (!status && state) status = cmha__need_moments(p);
    cmha__state told = {p, NULL, NULL, state ? &p->step : NULL, 0};
    return status ? status : cmha__save(p->context, path, cmha__tell_state, &told);
}

static cmha_status cmha__save_model(const cmha_model *model, const char *path, const cmha_trainer *trainer,
        int part) {
    if (!cmha__model_is_open(model)) return CMHA_ERR_STATE;
    cmha__state told = {&model->parameters, model, trainer, trainer ? &trainer->step : NULL, part};
    if (part && (!model->parameters.learning || model->packed.storage))
        return CMHA__REFUSED(model->context, "model save: %s",
            model->packed.storage ? "it is packed" : "nothing learns");
    return cmha__save(model->context, path, cmha__tell_state, &told);
}

CMHA__FIT cmha_status cmha_model_save(cmha_model *model, const char *path) {
    return cmha__save_model(model, path, NULL, 0);
}

CMHA__FIT cmha_status cmha_model_save_part(cmha_model *model, const char *path) {
    return cmha__save_model(model, path, NULL, 1);
}

CMHA__FIT cmha_status cmha_trainer_save(cmha_trainer *trainer, const char *path) {
    if (cmha__trainer_state(trainer)) return CMHA_ERR_STATE;
    if (trainer->swapped) return cmha__swapped(trainer, "trainer save");
    return cmha__save_model(trainer->model, path, trainer, 0);
}

/* ---- loading them ---- */

/* Reads a configuration from the metadata, else defaults. Refuses options of a later version, and a file
   without the model's, which is not ours. */
static cmha_status cmha__archive_config(const cmha_archive *a, const char *prefix, cmha_table table,
        void *config) {
    size_t found = 0, n = strlen(prefix);
    cmha_config_defaults(table, config);
    for (size_t i = 0; i < a->n_metadata; i++) {
        const char *key = a->metadata[2 * i], *value = a->metadata[2 * i + 1];
        if (strncmp(key, prefix, n) != 0) continue;
        found++;
        if (cmha_config_set(a->context, table, config, key + n, value)) return CMHA_ERR_FORMAT;
    }
    if (found || table.fields != cmha_model_table().fields) return CMHA_OK;
    return CMHA__MALFORMED(a, "it holds no configuration of ours (metadata cfg.*); another program wrote it");
}

CMHA_DEF cmha_status cmha_config_read(cmha_context *context, const char *path, cmha_model_config *model,
        cmha_trainer_config *trainer) {
    cmha_archive a;
    cmha_model_config m;
    cmha_trainer_config t;
    cmha_status status = cmha_archive_open(&a, context, path);
    if (status) return status;
    status = cmha__archive_config(&a, "cfg.", cmha_model_table(), &m);
    if (!status) status = cmha__archive_config(&a, "trainer.", cmha_trainer_table(), &t);
    if (!status && model) *model = m;
    if (!status && trainer) *trainer = t;
    return cmha__file_end(&a, status);
}

/* Reads a whole number up to `most` from the metadata; none is 0 or an error: it has no `lacks`. */
static cmha_status cmha__archive_u64(const cmha_archive *a, const char *key, const char *lacks, uint64_t most,
        uint64_t *value) {
    const char *text = cmha_archive_metadata(a, key);
    *value = 0;
    if (!text && lacks) return CMHA__MALFORMED(a, "it has no %s", lacks);
    if (!text || (cmha__parse_u64(text, value) && *value <= most)) return CMHA_OK;
    return CMHA__MALFORMED(a, "%s = %.24s: not a number in its range", key, text);
}

/* Reads the caller's own frequencies into the model or, same = 1, compares them with its; 2: only checks. */
static cmha_status cmha__archive_omega(const cmha_archive *a, cmha_model *model, int same) {
    const char *text = cmha_archive_metadata(a, "omega"), *problem = NULL;
    size_t n = cmha__own_omega(model), length;
    int differ = same && n && !text;
    if (text && !n) problem = "it has an omega but not frequency = table";
    if (text)
        for (size_t i = 0; i < n && !problem; i++, text += length + 1) {
            char one[40] = "";
            double value;
            length = strcspn(text, ",");
            if (length < sizeof one) memcpy(one, text, length);
            char end = i + 1 < n ? ',' : 0;
            if (!cmha__parse_real(one, &value) || fabs(value) > DBL_MAX || text[length] != end)
                problem = "omega is not a list of as many finite numbers as the model needs";
            else if (!same) model->omega[i] = value;
            else differ |= value < model->omega[i] || value > model->omega[i];
        }
    if (!problem && differ && same == 1) problem = "omega is another in the file than in the model";
    return problem ? CMHA__MALFORMED(a, "%s", problem) : CMHA_OK;
}

/* Names for an error line: as many as fit, then how many more. */
typedef struct {
    char text[190];
    size_t used, more;
} cmha__names;

static void cmha__add_name(cmha__names *list, const char *title, const char *name) {
    size_t room = sizeof list->text - 32 - list->used;
    char *end = list->text + list->used;
    if (list->more || room < 64) cmha__print(end, 32, " and %zu more", ++list->more);
    else list->used += cmha__print(end, room, "%s%.60s", list->used ? ", " : title, name);
}

static cmha_status cmha__fits(const cmha_archive_tensor *found, const cmha_archive_item *wanted) {
    size_t bytes = (size_t)wanted->rank * sizeof *wanted->shape;
    if (!found) return CMHA_ERR_NOT_FOUND;
    if (wanted->dtype ? strcmp(found->dtype, wanted->dtype) != 0 : cmha__dtype(found->dtype) >= CMHA__AS_I64)
        return CMHA_ERR_FORMAT;
    if (found->rank != wanted->rank || memcmp(found->shape, wanted->shape, bytes) != 0) return CMHA_ERR_SHAPE;
    return CMHA_OK;
}

/* Compares the file's tensors with parameters and moments (or NULL). strict = 1: fails if one does not fit,
   is unknown or missing; 2: but for missing ones; 0: logs a line for each. */
static cmha_status cmha__compare_state(const cmha_archive *a, const cmha_parameters *p,
        cmha_real *moments, int strict) {
    cmha__names missing = {"", 0, 0}, strange = {"", 0, 0};
    const char *path = cmha__path_end(a->path);
    for (size_t i = 0; i < CMHA__PREFIXES * p->count; i++) {
        cmha__label label;
        cmha_archive_item item = cmha__item(p, moments, i, &label);
        const cmha_archive_tensor *found = cmha_archive_find(a, label.name);
        cmha_status status = item.data ? cmha__fits(found, &item) : CMHA_OK;
        char why[250] = "is not in the file and stays as it is", theirs[80], ours[80];
        if (!status) continue;
        if (found)
            cmha__line(why, "is %s of shape [%s], the model needs [%s] of %s", found->dtype,
            cmha__shape_text(found->shape, found->rank, theirs),
            cmha__shape_text(item.shape, item.rank, ours), item.dtype ? item.dtype : "F64, F32, F16 or BF16");
        if (!strict)
            cmha__warn(p->context, "%s: %s %.60s %s", path, found ? "tensor" : "parameter", label.name, why);
        else if (found) return cmha__fail(p->context, status, "tensor %s %s", label.name, why);
        else if (strict != 2) cmha__add_name(&missing, "missing tensors: ", label.name);
    }
    for (size_t i = 0; i < a->n_tensors; i++) {
        const char *name = a->tensors[i].name;
        const cmha_parameter *one;
        int known = 0;
        if (strange.more > 98) break; /* each name takes a search */
        for (int j = 0; j < CMHA__PREFIXES; j++) {
            size_t n = strlen(cmha__prefixes[j]);
            if (!strncmp(name, cmha__prefixes[j], n) && (one = cmha_parameters_find(p, name + n)) != NULL)
                known |= j < CMHA__SCALES || one->tensor.packed;
        }
        if (known) continue;
        if (strict) cmha__add_name(&strange, "tensors unknown to the model: ", name);
        else cmha__warn(p->context, "%s: tensor %.60s is unknown to the model", path, name);
    }
    if (!missing.used && !strange.used) return CMHA_OK;
    return CMHA__MALFORMED(a, "%s%s%s", missing.text, missing.used && strange.used ? "; " : "", strange.text);
}

/* Reads parameters and moments (or NULL): all (strict = 1), or what fits. over = 1: into other memory first,
   so that a failing disk leaves them. *taken (or NULL) = tensors read. */
static cmha_status cmha__read_state(cmha_archive *a, const cmha_parameters *p, cmha_real *moments,
        int strict, int over, size_t *taken) {
    size_t bytes = over ? p->size * sizeof *p->data : 0, matched = 0;
    cmha_real *into = bytes ? (cmha_real *)cmha__take(p->context, "parameters", bytes) : p->data;
    if (bytes && !into) return CMHA_ERR_MEMORY;
    if (bytes) memcpy(into, p->data, bytes);
    cmha_status status = cmha__compare_state(a, p, moments, strict);
    for (size_t i = 0; i < CMHA__PREFIXES * p->count && !status; i++) {
        cmha__label label;
        cmha_archive_item item = cmha__item(p, moments, i, &label);
        const cmha_archive_tensor *found = cmha_archive_find(a, label.name);
        if (!item.data || cmha__fits(found, &item)) continue;
        cmha_real *to = (cmha_real *)(uintptr_t)item.data; /* moments and scales are read where they are */
        if (item.dtype)
            status = cmha__move_packed(&p->list[i % p->count], i >= p->count, NULL, a, found->begin);
        else status = cmha_archive_read(a, found, i < p->count ? into + (item.data - p->data) : to);
        matched++;
    }
    if (!status && bytes) memcpy(p->data, into, bytes);
    if (!status && taken) *taken = matched;
    if (bytes) cmha__give(p->context, into, bytes);
    return status;
}

/* Tunes parameters as the file says, all else as usual. */
static cmha_status cmha__read_tuning(const cmha_archive *a, cmha_parameters *p) {
    char key[CMHA__NAME];
    size_t unknown = 0;
    for (size_t i = 0; i < a->n_metadata; i++)
        unknown += strncmp(a->metadata[2 * i], "tune.", 5) == 0;
    for (size_t i = 0; i < CMHA_TUNE_COUNT * p->count; i++) {
        cmha_parameter *one = &p->list[i / CMHA_TUNE_COUNT];
        const cmha_tuning what = (cmha_tuning)(i % CMHA_TUNE_COUNT);
        double value;
        (void)cmha__tuning(one, what, key, &value);
        const char *text = cmha_archive_metadata(a, key);
        int done = !text || cmha__parse_real(text, &value);
        unknown -= text != NULL;
        if (!cmha__tune(one, what, value) || !done)
            return CMHA__MALFORMED(a, "%s = %.24s is out of range", key, text ? text : "usual");
    }
    if (!unknown) return CMHA_OK;
    return CMHA__MALFORMED(a, "it tunes %zu things that the model lacks", unknown);
}

/* Reads the step, what is tuned, parameters and moments; after a failure all is as it was. */
static cmha_status cmha__read_learning(cmha_archive *a, cmha_parameters *p, size_t *step) {
    cmha_parameters plan;
    const char *theirs = cmha_archive_metadata(a, "state.optimiser");
    const char *ours = p->optimiser ? p->optimiser->name : cmha__optimisers->name;
    uint64_t steps;
    cmha_status status = cmha__archive_u64(a, "state.step", "training state", SIZE_MAX / 2, &steps);
    if (status) return status;
    if (!theirs) theirs = cmha__optimisers->name;
    if (strcmp(theirs, ours) != 0)
        return CMHA__MALFORMED(a, "it learned by the optimiser %.31s, not %.31s", theirs, ours);
    for (size_t i = 0; !p->averages && i < a->n_tensors; i++)
        if (!strncmp(a->tensors[i].name, "optim.mean.", 11))
            return CMHA__MALFORMED(a, "it keeps a mean of the weights (ema), this trainer does not");
    if ((status = cmha__plan(p, &plan)) != CMHA_OK) return status;
    status = cmha__read_tuning(a, &plan);
    if (!status) status = cmha__plan_lay(p, &plan, 1);
    if (!status) status = cmha__read_state(a, &plan, plan.moments, 1, 1, NULL);
    if (!status) p->optimised = 1;
    if (!status) *step = (size_t)steps; /* + 1 must not be 0 */
    return cmha__plan_end(p, &plan, status);
}

/* Reads parameters or, state = 1, all that they have learned. strict = 2: those of a model. */
static cmha_status cmha__read_parameters(cmha_parameters *p, const char *path, int state, int strict,
        cmha_model *model, size_t *taken) {
    cmha_archive a;
    uint64_t rest = 0;
    if (!p || !cmha__is_open(p->context)) return CMHA_ERR_STATE;
    cmha_status status = cmha__holds_numbers(p);
    if (!status) status = cmha_archive_open(&a, p->context, path);
    if (status) return status;
    if (strict == 2) status = cmha__archive_u64(&a, "part", NULL, UINT64_MAX, &rest);
    if (rest && rest != cmha__rest_identity(p, &a))
        status = CMHA__MALFORMED(&a, "a part of a model with other numbers in the rest");
    if (!status && strict && model) status = cmha__archive_omega(&a, model, 2);
    if (!status && state) status = cmha__read_learning(&a, p, &p->step);
    else if (!status) status = cmha__read_state(&a, p, NULL, strict, 1, taken);
    if (!status && strict && model) status = cmha__archive_omega(&a, model, 0);
    return cmha__file_end(&a, status);
}

CMHA__FIT cmha_status cmha_parameters_read(cmha_parameters *p, const char *path, int state) {
    return cmha__read_parameters(p, path, state, 1, NULL, NULL);
}

CMHA_DEF cmha_status cmha_model_open(cmha_model *model, cmha_context *context, const char *path) {
    cmha_model_config config;
    cmha_archive a;
    if (!model) return CMHA__WRONG(context, "model load: model is NULL");
    cmha__zero(*model);
    cmha_status status = cmha_archive_open(&a, context, path);
    if (status) return status;
    status = cmha__archive_config(&a, "cfg.", cmha_model_table(), &config);
    if (!status && cmha_archive_metadata(&a, "part"))
        status = CMHA__MALFORMED(&a, "a part of a model, to be read onto the rest");
    const char *packed = cmha_archive_metadata(&a, "packed");
    int storage = packed ? CMHA_STORAGE_Q4_K : CMHA_STORAGE_FLOAT;
    while (storage && strcmp(packed, cmha__storages[storage]) != 0) storage--;
    if (!status && packed && !storage)
        status = CMHA__MALFORMED(&a, "packed = %.24s: not int8, int4, q4_k or bf16", packed);
    if (!status) status = cmha__model_open(model, context, &config, a.size);
    if (!status) status = cmha__take_numbers(model, (cmha_storage)storage);
    if (status == CMHA_ERR_ARGUMENT) status = CMHA_ERR_FORMAT; /* the argument came from the file */
    if (!status) status = cmha__archive_omega(&a, model, 0);
    if (!status) status = cmha__archive_u64(&a, "knowledge", NULL, UINT64_MAX, &model->knowledge_identity);
    if (!status) status = cmha__read_tuning(&a, &model->parameters);
    if (!status) cmha__attach_grad(&model->parameters, NULL);
    if (!status) status = cmha__read_state(&a, &model->parameters, NULL, 1, 0, NULL);
    if (status) cmha_model_close(model);
    return cmha__file_end(&a, status);
}

CMHA_DEF cmha_status cmha_model_read(cmha_model *model, const char *path, int strict, size_t *taken) {
    if (taken) *taken = 0;
    if (cmha__model_is_open(model) && (unsigned)strict > 2)
        return CMHA__WRONG(model->context, "load: strict = %d, not 0, 1 or 2", strict);
    return cmha__read_parameters(model ? &model->parameters : NULL, path, 0, strict, model, taken);
}

CMHA__FIT cmha_status cmha_trainer_read(cmha_trainer *trainer, const char *path) {
    cmha_archive a;
    uint64_t knowledge = 0;
    if (cmha__trainer_state(trainer)) return CMHA_ERR_STATE;
    if (trainer->swapped) return cmha__swapped(trainer, "trainer load");
    cmha_model *model = trainer->model;
    cmha_trainer loaded = *trainer;
    cmha_table table = cmha_model_table();
    cmha_model_config config;
    char ours[32], theirs[32];
    cmha_status status = cmha_archive_open(&a, model->context, path);
    if (status) return status;
    const char *best = cmha_archive_metadata(&a, "state.best");
    status = cmha__archive_u64(&a, "state.seed", "training state", UINT64_MAX, &loaded.seed);
    if (!status && !(best && cmha__parse_real(best, &loaded.best)))
        status = CMHA__MALFORMED(&a, "state.best = %.24s: not a number", best ? best : "");
    if (!status) status = cmha__archive_config(&a, "cfg.", table, &config);
    CMHA__EACH_FIELD(field, table) { /* another option would be another run */
        const char *name = field->name;
        if (status) break;
        cmha_config_get(table, &config, name, theirs, sizeof theirs);
        cmha_config_get(table, &model->config, name, ours, sizeof ours);
        if (strcmp(ours, theirs) != 0)
            status = CMHA__MALFORMED(&a, "%s is %s in the file, %s in the model", name, theirs, ours);
    }
    if (!status) status = cmha__archive_omega(&a, model, 1);
    if (!status) status = cmha__archive_u64(&a, "knowledge", NULL, UINT64_MAX, &knowledge);
    if (!status && knowledge && model->knowledge && knowledge != model->knowledge_identity)
        status = CMHA__MALFORMED(&a,
            "it learned with another knowledge base; set this one after loading to use it");
    if (!status) status = cmha__read_learning(&a, &model->parameters, &loaded.step);
    if (!status) *trainer = loaded;
    if (!status && !model->knowledge) model->knowledge_identity = knowledge;
    return cmha__file_end(&a, status);
}

/* ---- what a cache holds ---- */

/* An array of a cache in a file: n words of 4 or 8 bytes. */
typedef struct {
    size_t next; /* in their order */
    char name[CMHA__NAME];
    const char *dtype;
    void *data;
    size_t n, width, room; /* room: bytes, whole 8 */
} cmha__cache_part;
#define CMHA__EACH_PART(cache, part) \
    for (cmha__cache_part part = {0, "", NULL, NULL, 0, 0, 0}; cmha__part_of_cache(cache, &part);)

/* Describes the next array of a cache, 0 or more words; 0 = there is none. */
static int cmha__part_of_cache(const cmha_cache *c, cmha__cache_part *part) {
    size_t i = part->next++, positions = c->batch * c->capacity, word = sizeof(cmha_real), slot = i / 2 - 1;
    part->dtype = word == 8 ? "F64" : "F32";
    part->width = word;
    if (i >= 2 && slot >= c->n_slots) return 0;
    if (i < 2) { /* what it would read again */
        part->data = i ? (void *)c->features : (void *)c->ids;
        part->n = i ? positions * cmha__feature_width(&c->model->config) : positions;
        if (c->endless || (!i && !c->model->config.tokens)) part->n = 0;
        if (!i) part->width = 4;
        if (!i) part->dtype = "I32";
        cmha__line(part->name, "%s", i ? "features" : "ids");
    } else {
        const cmha_slot *s = &c->slots[slot];
        size_t tokens = cmha__cache_tokens(c) * c->batch;
        part->data = c->memory + (i % 2 ? s->values : s->keys);
        part->n = i % 2 ? tokens * s->kv_heads * s->value_row : tokens * s->key_heads * s->key_width;
        const char *what = s->state ? "state" : "keys";
        cmha__line(part->name, "slot.%zu.%s", slot, i % 2 ? "values" : what);
        if (s->state) part->n = i % 2 ? 0 : s->state;
        else if (c->storage == CMHA_STORAGE_BF16) { /* pairs */
            part->n /= 2;
            part->width = 4;
            part->dtype = "U32";
        }
    }
    part->room = (part->n * part->width + 7) / 8 * 8;
    return 1;
}

static uint64_t cmha__hash_words(uint64_t hash, const void *data, size_t n, size_t width) {
    const unsigned char *at = (const unsigned char *)data;
    for (size_t i = 0; i < n; i++, at += width) {
        uint64_t word = 0;
        uint32_t narrow = 0;
        if (width == 8) memcpy(&word, at, 8);
        else if (width == 4) memcpy(&narrow, at, 4);
        else narrow = *at;
        hash = (hash ^ (word + narrow)) * UINT64_C(0xd1342543de82ef95);
        hash ^= hash >> 29;
    }
    return hash;
}

/* Returns an identity of a model by its configuration and first numbers. */
static uint64_t cmha__model_identity(const cmha_model *m) {
    uint64_t hash = cmha__mix(m->knowledge_identity + m->packed.storage);
    if (m->packed.n_matrices) hash += (uint64_t)m->packed.matrices->rounds;
    cmha_table table = cmha_model_table();
    CMHA__EACH_FIELD(field, table) {
        char text[40];
        cmha_config_get(table, &m->config, field->name, text, sizeof text);
        hash = cmha__hash_words(cmha__mix(hash), text, strlen(text), 1);
    }
    hash = cmha__hash_words(hash, m->omega, cmha__own_omega(m), sizeof *m->omega);
    CMHA__EACH_PARAMETER(one, &m->parameters) {
        const cmha_packed *packed = one->tensor.packed;
        if (packed) hash = cmha__hash_words(hash, packed->words, 16, 4);
        else
            hash = cmha__hash_words(hash, one->tensor.data, cmha__min(one->tensor.size, 65536),
                sizeof *one->tensor.data);
    }
    return hash;
}

/* What a file says of a cache: first what must be the same, then where it is. */
enum { CMHA__CACHE_ALIKE = 9, CMHA__CACHE_NOTES = 12 };
static const char *const cmha__cache_notes[CMHA__CACHE_NOTES] = {
    "cache.model", "cache.real", "cache.batch", "cache.capacity", "cache.slide", "cache.window",
    "cache.sinks", "cache.ring", "cache.storage", "cache.length", "cache.first", "cache.hash"};

/* Begins the hash of a file by its notes and who wrote it. */
static uint64_t cmha__hash_notes(const uint64_t *notes, const char *version) {
    uint64_t hash = cmha__hash_words(0, version, version ? strlen(version) : 0, 1);
    return cmha__hash_words(hash, notes, CMHA__CACHE_NOTES - 1, 8);
}

static void cmha__note_cache(const cmha_cache *c, uint64_t *notes) {
    const uint64_t is[] = {cmha__model_identity(c->model), sizeof(cmha_real), c->batch, c->capacity,
        (uint64_t)c->slide, c->window, c->sinks, c->ring, (uint64_t)c->storage, c->length, c->first};
    memcpy(notes, is, sizeof is);
}

typedef struct {
    const cmha_cache *cache;
    uint64_t notes[CMHA__CACHE_NOTES];
} cmha__cache_told;

static void cmha__tell_cache(cmha__output *o, const void *of) {
    const cmha__cache_told *told = (const cmha__cache_told *)of;
    cmha__tell_note(o, "format", "cmha");
    cmha__tell_note(o, "cmha.version", CMHA__VERSION);
    for (size_t i = 0; i < CMHA__CACHE_NOTES; i++) cmha__tell_u64(o, cmha__cache_notes[i], told->notes[i]);
    CMHA__EACH_PART(told->cache, part) {
        const cmha_archive_item item = {part.name, (const cmha_real *)part.data, &part.n, 1, part.dtype};
        if (part.n) cmha__tell_tensor(o, &item);
    }
}

CMHA_DEF cmha_status cmha_cache_save(const cmha_cache *cache, const char *path) {
    cmha__cache_told told;
    if (cmha__cache_state(cache)) return CMHA_ERR_STATE;
    told.cache = cache;
    cmha__note_cache(cache, told.notes);
    uint64_t hash = cmha__hash_notes(told.notes, CMHA__VERSION);
    CMHA__EACH_PART(cache, part) hash = cmha__hash_words(hash, part.data, part.n, part.width);
    told.notes[CMHA__CACHE_NOTES - 1] = hash;
    return cmha__save(cache->context, path, cmha__tell_cache, &told);
}

/* Checks what a file says of its cache, but for the numbers. */
static cmha_status cmha__fits_cache(const cmha_cache *c, cmha_archive *a, uint64_t *notes) {
    uint64_t here[CMHA__CACHE_NOTES];
    cmha__note_cache(c, here);
    const char *format = cmha_archive_metadata(a, "format");
    if (!format || strcmp(format, "cmha") != 0 || a->n_metadata != CMHA__CACHE_NOTES + 2)
        return CMHA__MALFORMED(a, "it holds no cache");
    for (size_t i = 0; i < CMHA__CACHE_NOTES; i++) {
        const char *name = cmha__cache_notes[i];
        cmha_status status = cmha__archive_u64(a, name, name, UINT64_MAX, &notes[i]);
        if (status) return status;
        if (!i && notes[i] != here[i]) return CMHA__MALFORMED(a, "it is a cache of another model");
        if (i < CMHA__CACHE_ALIKE && notes[i] != here[i])
            return CMHA__MALFORMED(a, "%s is %zu in the file, here %zu", name, (size_t)notes[i],
                (size_t)here[i]);
    }
    uint64_t length = notes[CMHA__CACHE_ALIKE], first = notes[CMHA__CACHE_ALIKE + 1];
    if (length > cmha__min(c->capacity, SIZE_MAX / 2) || first > SIZE_MAX / 2 - length ||
        (c->endless && first && length < c->capacity))
        return CMHA__MALFORMED(a, "%zu tokens held of %zu, %zu forgotten", (size_t)length, c->capacity,
            (size_t)first);
    CMHA__EACH_PART(c, part) {
        const cmha_archive_tensor *t = part.n ? cmha_archive_find(a, part.name) : NULL;
        if (part.n && (!t || t->count != part.n || strcmp(t->dtype, part.dtype) != 0))
            return CMHA__MALFORMED(a, "it has no tensor %s of %zu %s", part.name, part.n, part.dtype);
    }
    return CMHA_OK;
}

/* Moves the arrays of a file into `to`, then, checked, into the cache. */
static cmha_status cmha__take_cache(cmha_cache *c, cmha_archive *a, const uint64_t *notes,
        unsigned char *to) {
    uint64_t hash = cmha__hash_notes(notes, cmha_archive_metadata(a, "cmha.version"));
    unsigned char *at = to;
    CMHA__EACH_PART(c, part) {
        const cmha_archive_tensor *t = part.n ? cmha_archive_find(a, part.name) : NULL;
        cmha_status status = t ? cmha__read_words(a, t->begin, at, part.n, part.width) : CMHA_OK;
        if (status) return status;
        hash = cmha__hash_words(hash, at, part.n, part.width);
        at += part.room;
        cmha_tape_reset(&c->tape);
        if (part.next == 1 && cmha__check_tokens(&c->tape, (const int32_t *)(const void *)to, part.n,
                      c->model->config.vocabulary, NULL))
            return c->tape.status;
    }
    if (hash != notes[CMHA__CACHE_NOTES - 1]) return CMHA__MALFORMED(a, "its numbers were altered");
    at = to;
    CMHA__EACH_PART(c, part) {
        if (part.n) memcpy(part.data, at, part.n * part.width);
        at += part.room;
    }
    c->length = (size_t)notes[CMHA__CACHE_ALIKE];
    c->first = (size_t)notes[CMHA__CACHE_ALIKE + 1];
    return CMHA_OK;
}

CMHA_DEF cmha_status cmha_cache_read(cmha_cache *cache, const char *path) {
    uint64_t notes[CMHA__CACHE_NOTES];
    cmha_archive a;
    size_t bytes = 8;
    if (cmha__cache_state(cache)) return CMHA_ERR_STATE;
    cmha_status status = cmha_archive_open(&a, cache->context, path);
    if (status) return status;
    status = cmha__fits_cache(cache, &a, notes);
    CMHA__EACH_PART(cache, part) bytes += part.room;
    unsigned char *to = status ? NULL : (unsigned char *)cmha__take(cache->context, "cache read", bytes);
    if (!status && !to) status = CMHA_ERR_MEMORY;
    if (!status) status = cmha__take_cache(cache, &a, notes, to);
    cmha__give(cache->context, to, bytes);
    return cmha__file_end(&a, status);
}

/* ---- knowledge bases ---- */

/* A tensor of a file and the base's pointer to it: reals in rows (dtype NULL), or others in a line. */
typedef struct { const char *name, *dtype; size_t member; } cmha__knowledge_row;

static const cmha__knowledge_row cmha__knowledge_rows[5] = {
    {"vectors", NULL, offsetof(cmha_knowledge, vectors)},
    {"features", NULL, offsetof(cmha_knowledge, features)},
    {"ids", "I64", offsetof(cmha_knowledge, ids)},
    {"text_begin", "I64", offsetof(cmha_knowledge, text_begin)},
    {"texts", "U8", offsetof(cmha_knowledge, texts)}};

static void cmha__tell_knowledge(cmha__output *o, const void *of) {
    const cmha_knowledge *kb = (const cmha_knowledge *)of;
    size_t shape[2];
    cmha__tell_note(o, "format", "cmha knowledge");
    cmha__tell_u64(o, "identity", kb->identity);
    for (size_t i = 0; i < 5; i++) {
        const cmha__knowledge_row *row = &cmha__knowledge_rows[i];
        cmha_archive_item item = {row->name, NULL, shape, row->dtype ? 1 : 2, row->dtype};
        memcpy(&item.data, (const char *)kb + row->member, sizeof item.data);
        if (i > 1 && !item.data) continue;
        shape[0] = i == 4 ? (size_t)kb->text_begin[kb->n] : kb->n + (i == 3);
        shape[1] = 2 * kb->d_r;
        cmha__tell_tensor(o, &item);
    }
}

CMHA__FIT cmha_status cmha_knowledge_save(const cmha_knowledge *knowledge, const char *path) {
    if (!knowledge || !cmha__is_open(knowledge->context)) return CMHA_ERR_STATE;
    return cmha__save(knowledge->context, path, cmha__tell_knowledge, knowledge);
}

/* Finds a file's tensors and checks them; there must be no others. */
static cmha_status cmha__knowledge_find(cmha_knowledge *kb, const cmha_archive *a,
        const cmha_archive_tensor **t) {
    size_t known = 0;
    for (size_t i = 0; i < 5; i++) {
        const cmha__knowledge_row *row = &cmha__knowledge_rows[i];
        const cmha_archive_tensor *found = t[i] = cmha_archive_find(a, row->name);
        if (!i && !found) return cmha__tensor_fail(a, row->name, "missing: not a knowledge base");
        if (!found) continue;
        known++;
        if (row->dtype ? strcmp(found->dtype, row->dtype) != 0 : cmha__dtype(found->dtype) >= CMHA__AS_I64)
            return cmha__tensor_fail(a, row->name, "not of the dtype that it has in a knowledge base");
        if (!i) {
            kb->n = found->shape[0];
            kb->d_r = found->shape[1] / 2;
        }
        if (found->rank != (row->dtype ? 1 : 2) || (i < 4 && found->shape[0] != kb->n + (i == 3)) ||
            (i < 2 && (found->shape[1] != 2 * kb->d_r || kb->n >= SIZE_MAX / 16 || (kb->n && !kb->d_r))))
            return cmha__tensor_fail(a, row->name, "not the shape of one for vectors [n, 2 d_r]");
    }
    if (!t[3] != !t[4]) return cmha__tensor_fail(a, cmha__knowledge_rows[t[3] ? 4 : 3].name, "missing");
    if (known == a->n_tensors) return CMHA_OK;
    return CMHA__MALFORMED(a, "it has %zu tensors, a knowledge base %zu of these", a->n_tensors, known);
}

/* Maps the file where real tensors can be used as they lie there. */
static void cmha__knowledge_map(cmha_knowledge *kb, const cmha_archive *a, const cmha_archive_tensor **t) {
    uint64_t begin = a->data_begin;
    for (size_t i = 0; i < 2; i++)
        if (!t[i] || cmha__dtype(t[i]->dtype) != CMHA__AS_REAL || (begin + t[i]->begin) % sizeof(cmha_real))
            return;
    if (!cmha__little_endian() || !t[0]->count) return;
    const char *mapping = (const char *)(kb->mapping = cmha__map_file(a->file, a->size));
    if (!mapping) return;
    kb->mapped = (size_t)a->size;
    kb->vectors = (const cmha_real *)(const void *)(mapping + begin + t[0]->begin);
    kb->features = (const cmha_real *)(const void *)(mapping + begin + t[1]->begin);
}

/* Are features the vectors' phasors, but for rounding (of an F16, at worst)? */
static int cmha__knowledge_phasors(const cmha_knowledge *kb) {
    cmha_real u[2 * CMHA__PAIRS];
    size_t d = kb->d_r;
    for (size_t i = 0; i < kb->n; i++)
        CMHA__IN_PIECES(j, m, d, CMHA__PAIRS) {
            const cmha_real *z = kb->vectors + i * 2 * d + j, *f = kb->features + i * 2 * d + j;
            const cmha__phasor_form p = {m, d, m, 0, cmha__feature_eps, 1, 0};
            cmha__phasor_row(&p, z, u);
            for (size_t l = 0; l < m; l++) {
                cmha_real a = f[l] - u[l], b = f[d + l] - u[m + l];
                if (!(a * a + b * b <= (cmha_real)1e-4)) return 0;
            }
        }
    return 1;
}

static cmha_status cmha__knowledge_open(cmha_knowledge *kb, cmha_archive *a, int map) {
    const cmha_archive_tensor *t[5];
    uint64_t identity;
    cmha_status status = cmha__knowledge_find(kb, a, t);
    if (!status && map) cmha__knowledge_map(kb, a, t);
    for (size_t i = kb->mapping ? 2 : 0; i < 5 && !status; i++) {
        const cmha__knowledge_row *row = &cmha__knowledge_rows[i];
        size_t width = cmha__dtypes[cmha__dtype(row->dtype)].width;
        void *data = NULL;
        if (t[i]) status = cmha__knowledge_take(kb, t[i]->count, width, &data);
        memcpy((char *)kb + row->member, &data, sizeof data);
        if (data && row->dtype) status = cmha__read_words(a, t[i]->begin, data, t[i]->count, width);
        else if (data) status = cmha_archive_read(a, t[i], (cmha_real *)data);
    }
    if (!status && t[3] && !cmha__texts_in_order(kb->text_begin, kb->n, t[4]->count)) /* -1 is huge */
        status = cmha__tensor_fail(a, "text_begin", "out of order or range");
    if (!status) status = cmha__knowledge_finite(kb);
    if (!status && !t[1] && !(status = cmha__knowledge_reserve(kb))) cmha__knowledge_features(kb);
    if (!status && t[1] && !cmha__knowledge_phasors(kb))
        status = cmha__tensor_fail(a, "features", "not the phasors of the vectors");
    if (!status) status = cmha__archive_u64(a, "identity", NULL, UINT64_MAX, &identity);
    if (status) return status;
    kb->identity = cmha__knowledge_identity(kb->n, kb->d_r, kb->vectors);
    if (identity == kb->identity || !cmha_archive_metadata(a, "identity")) return CMHA_OK;
    return CMHA__MALFORMED(a, "its vectors are not those of its identity");
}

CMHA_DEF cmha_status cmha_knowledge_open(cmha_knowledge *knowledge, cmha_context *context, const char *path,
        int map) {
    cmha_archive a;
    if (!knowledge) return CMHA__WRONG(context, "knowledge load: knowledge is NULL");
    cmha__zero(*knowledge);
    cmha_status status = cmha_archive_open(&a, context, path);
    if (status) return status;
    knowledge->context = context;
    status = cmha__knowledge_open(knowledge, &a, map);
    if (status) cmha_knowledge_close(knowledge);
    return cmha__file_end(&a, status);
}

/* ---- token streams ---- */

CMHA_DEF cmha_status cmha_tokens_open(cmha_tokens *tokens, cmha_context *context, const char *path,
        int width) {
    cmha_archive a;
    void *data = NULL;
    if (tokens) cmha__zero(*tokens);
    if (!tokens || !context || !path)
        return CMHA__WRONG(context, "tokens load: %s is NULL", tokens ? "path" : "tokens");
    if (!cmha__is_open(context)) return CMHA_ERR_STATE;
    if (width != 1 && width != 2 && width != 4)
        return CMHA__WRONG(context, "tokens load: width %d is not 1, 2 or 4", width);
    cmha_status status = cmha__file_open(&a, context, path);
    if (status) return cmha__file_end(&a, status);
    tokens->owner = context;
    tokens->width = width;
    tokens->bytes = (size_t)a.size;
    tokens->count = tokens->bytes / (size_t)width;
    if (!a.size) status = CMHA__MALFORMED(&a, "it is empty");
    else if (a.size % (uint64_t)width)
        status = CMHA__MALFORMED(&a, "its size is not a multiple of %d bytes", width);
    else if (width > 1 && cmha__little_endian() && (tokens->data = cmha__map_file(a.file, a.size)) != NULL)
        tokens->mapped = 1;
    else if (a.size > SIZE_MAX / 2) status = cmha__fail(context, CMHA_ERR_MEMORY, "no memory for its tokens");
    else if ((tokens->data = data = cmha__take(context, "tokens", tokens->bytes)) == NULL)
        status = CMHA_ERR_MEMORY;
    else status = cmha__file_read(&a, 0, data, tokens->bytes);
    cmha__swap_words(data, tokens->count, (size_t)width);
    if (status) cmha_tokens_close(tokens);
    return cmha__file_end(&a, status);
}

CMHA_DEF void cmha_tokens_close(cmha_tokens *tokens) {
    if (!tokens) return;
    void *data = (void *)(uintptr_t)tokens->data;
    if (tokens->mapped) cmha__unmap_file(data, tokens->bytes);
    else if (tokens->owner) cmha__give(tokens->owner, data, tokens->bytes);
    cmha__zero(*tokens);
}

CMHA_DEF int32_t cmha_tokens_at(const cmha_tokens *tokens, size_t i) {
    const unsigned char *at = tokens ? (const unsigned char *)tokens->data : NULL;
    uint16_t two;
    int32_t four;
    if (!at || i >= tokens->count) return -1;
    if (tokens->width == 1) return at[i];
    if (tokens->width == 2) return memcpy(&two, at + 2 * i, sizeof two), two;
    return memcpy(&four, at + 4 * i, sizeof four), four;
}

CMHA_DEF cmha_tokens cmha_tokens_part(const cmha_tokens *tokens, size_t begin, size_t end) {
    cmha_tokens part = {NULL, 0, 0, NULL, 0, 0};
    if (!tokens) return part;
    size_t width = (size_t)tokens->width;
    end = cmha__min(end, tokens->count);
    begin = cmha__min(begin, end);
    part.width = tokens->width;
    part.count = end - begin;
    part.bytes = part.count * width;
    if (tokens->data) part.data = (const char *)tokens->data + begin * width;
    return part;
}

#ifdef CMHA__PLAIN
#pragma GCC pop_options
#endif
#ifdef CMHA__GCC_FAST
#undef static
#pragma GCC diagnostic pop
#endif
#ifdef CMHA__GCC
#pragma GCC pop_options
#elif defined(CMHA__FLOAT_CONTROL)
#pragma float_control(pop)
#endif
#endif /* CMHA__AGAIN */
#endif
#endif /* the implementation */
#pragma pop_macro("I")

/* MIT License

   Copyright (c) 2026 the cmha.h authors

   Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
   associated documentation files (the "Software"), to deal in the Software without restriction, including
   without limitation the rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
   copies of the Software, and to permit persons to whom the Software is furnished to do so, subject to the
   following conditions:

   The above copyright notice and this permission notice shall be included in all copies or substantial
   portions of the Software.

   THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT
   LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN
   NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY,
   WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE
   SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE. */
