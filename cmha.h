/* cmha.h - Transformers whose attention works in the complex plane, in one C header.        MIT licence, see the end.

   Train a ComplexFormer (arXiv 2505.10222) on a text, in one file:

       #define CMHA_IMPLEMENTATION            // in exactly one .c file of your program
       #include "cmha.h"
       #include <stdio.h>

       int main(void) {
           cmha_context ctx; cmha_model model; cmha_trainer trainer; cmha_tokens text;
           cmha_model_config mc; cmha_trainer_config tc; double loss; int step;
           cmha_preset("tiny", &mc, &tc);
           if (cmha_context_init(&ctx, NULL) || cmha_tokens_load(&text, &ctx, "cmha.h", 1) ||
               cmha_model_init(&model, &ctx, &mc) || cmha_trainer_init(&trainer, &model, &tc))
               return puts(cmha_error(&ctx)), 1;
           for (step = 0; step < 20; step++) {
               if (cmha_trainer_step(&trainer, &text, &loss)) return puts(cmha_error(&ctx)), 1;
               printf("step %d: %.3f nats per byte\n", step, loss);
           }
           cmha_trainer_close(&trainer); cmha_model_close(&model); cmha_tokens_close(&text); cmha_context_close(&ctx);
           return 0;
       }

   Compile and link
       Linux, BSD     cc -O3 -march=native -fopenmp app.c -lopenblas -lm     (Debian, Ubuntu: apt-get install libopenblas-dev)
       macOS          cc -O3 app.c -framework Accelerate
       MinGW          gcc -O3 -march=native -fopenmp app.c -lopenblas
       nothing there  cc -O3 -march=native -DCMHA_NO_CBLAS app.c -lm         (the built-in GEMM)
       32-bit x86     add -msse2 -mfpmath=sse                                (an x87 gets libm's mathematics, and is slow)
       wasm           emcc -O3 -DCMHA_NO_CBLAS app.c -sALLOW_MEMORY_GROWTH=1 (-sNODERAWFS=1 for node to read and write files)
   The code compiles as C99, C11, C17 and C++11, the declarations as C89 too. -Ofast, -ffast-math and their
   parts may be given for the program's sake: the library keeps to IEEE arithmetic, at its speed, and where
   clang has no way to, an #error names the flag to add. A program that is linked with such a flag starts with
   denormal numbers taken for 0, which the library then does too.

   Configuration macros, all but the first and CMHA_CBLAS_HEADER the same in every file that includes the header
       CMHA_IMPLEMENTATION   this file also gets the code (one file of a program; not needed with CMHA_STATIC)
       CMHA_LINKED           no file gets the code: an object that has it is linked (what our Makefile does, to compile it once)
       CMHA_STATIC           every function is static and the code comes along: several private copies may coexist
       CMHA_DOUBLE           cmha_real is double instead of float (how gradients are checked to 1e-9); a program and a library that
                             differ in it do not link, see CMHA_CONFIGURATION
       CMHA_NO_CBLAS         do not use CBLAS; the built-in blocked GEMM takes its place
       CMHA_CBLAS_HEADER     the header that declares cblas_sgemm, default <cblas.h>; included by the implementation alone
       CMHA_NO_SIMD          keep to scalar mathematics from libm (the reference path of the tests)

   Rules that hold everywhere
     - Arrays are row-major; a comment such as x [B, N, D] gives the shape, last index fastest. Sizes are size_t.
     - A call that can fail returns a cmha_status, and cmha_error(context) has one line that names the operation and the
       sizes. Operations on a tape return a tensor instead, so that they compose: NULL after a failure, the tape keeps the
       first failure, and cmha_backward and cmha_tape_status report it. Passing NULL on is allowed and stays NULL.
     - The library never prints, exits or aborts, has no global state, and allocates through the context's allocator alone.
     - Backward passes accumulate (+=) into gradients.
     - A masked key is absent: it changes nothing (if it is finite), and a query that sees no key gets an
       output of zeros. What padding holds changes no bit of another token's numbers, nor does, in a causal
       model, what later tokens hold. One exception: with experts (CRAT) later tokens and the other sequences
       of a batch change them by rounding, about 1e-7, because a BLAS sums a row in an order that depends on
       how many tokens share an expert. (The built-in product does not.)
     - Complex numbers are pairs of reals; the gradient of z is dL/dRe(z) + i dL/dIm(z).
     - Objects (context, tape, model, trainer, cache, tokens, archive) are opened by _init, _load or _open
       and closed by _close, the context last. Closing twice, or closing a zeroed object, does nothing.
       What was opened on a model or a context that has been closed since, opened again or not, says
       CMHA_ERR_STATE, and can still be closed.
     - Two threads may work at once with two contexts. GCC's OpenMP does not survive fork(): once a
       context has worked with several threads, a child waits for ever in its first call with threads,
       whichever context makes it. So fork before the first such call, or let the child open a context
       with threads = 1, or execute a program.

   Where the papers' equations are (every comment names the equation it is about: search for the paper and "eq")
       ComplexFormer, arXiv 2505.10222    1-4 cmha_euler_forward, 5-8 cmha_rotate_forward, 9 cmha_attention_forward
       CoPE, arXiv 2508.18308             1 cmha_cope_table, 2 and the five scores cmha_cope_args, 10-17 cmha_linear_attention_forward;
                                          3-9 discuss eq 2 (and drop the conjugate of K_proj)
       MöbiusAttention, arXiv 2409.12175  1-4 and Table 1 cmha_mobius_classify, 5-6 cmha_mobius_forward, 7-8 cmha_complex_linear_forward
                                          and cmha_complex_scale_forward, 9 cmha_softmax, 10-27 cmha__mobius_block
       CRAT, crat.maxware.ca              its displayed equations are missing, the numbers are those of a reconstruction:
                                          1 cmha_embedding, 2 cmha_multifreq_forward, 3 cmha_add_rows, 4-5 cmha_linear, 6-7
                                          cmha_complex_rotate_forward, 8 cmha_complex_norm_forward, 9 cmha_gelu_forward, 10
                                          cmha_complex_linear_forward, 11-13 CMHA_ATTENTION_ANGULAR, 14 cmha_lag_attention_forward, 15
                                          cmha_complex_lowrank, 16 cmha__crat_block, 17-19 cmha_irw, 20 cmha_complex_residual_forward,
                                          21 cmha_experts, 22 cmha_componentwise_clip, 23 cmha_phase_reg_forward, 24
                                          cmha_mag_reg_forward, 25 cmha__add_regularisers, 26-27 cmha__final_norm and the head, 28-35
                                          examples/extensions

   Rooms, in this order for the declarations and again for the code:
       Base | Vector mathematics | Tape and engine | Operations | Attention | Models | Training | Inference | Files */

#ifndef CMHA_H
#define CMHA_H

#include <stddef.h>
#include <stdint.h>

#if defined(CMHA_STATIC)
#if defined(__GNUC__) || defined(__clang__)
#define CMHA_DEF static __attribute__((unused))
#else
#define CMHA_DEF static
#endif
#elif defined(__cplusplus)
#define CMHA_DEF extern "C"
#else
#define CMHA_DEF extern
#endif

#ifdef CMHA_DOUBLE
typedef double cmha_real;
#else
typedef float cmha_real;
#endif

/* ======================================================== Base ======================================================== */

#define CMHA_VERSION_MAJOR 0
#define CMHA_VERSION_MINOR 4
#define CMHA_VERSION_PATCH 0
/* For #if: 400 is version 0.4.0. */
#define CMHA_VERSION (CMHA_VERSION_MAJOR * 10000 + CMHA_VERSION_MINOR * 100 + CMHA_VERSION_PATCH)

/* A program must have been compiled for the version (its first two numbers) and the cmha_real of the library it links with, since
   the structs' layouts depend on both. So every file that includes this header refers to a symbol that names them, and a wrong
   pair is refused by the linker (of GCC and clang):
       undefined reference to `cmha_0_4_compiled_with_CMHA_DOUBLE'
   Files under CMHA_STATIC link with nothing. */
#ifndef CMHA_STATIC
#ifdef CMHA_DOUBLE
#define CMHA_CONFIGURATION CMHA_CONFIGURATION_NAME(CMHA_VERSION_MAJOR, CMHA_VERSION_MINOR, with)
#else
#define CMHA_CONFIGURATION CMHA_CONFIGURATION_NAME(CMHA_VERSION_MAJOR, CMHA_VERSION_MINOR, without)
#endif
#define CMHA_CONFIGURATION_NAME(major, minor, real) CMHA_CONFIGURATION_PASTE(major, minor, real)
#define CMHA_CONFIGURATION_PASTE(major, minor, real) cmha_##major##_##minor##_compiled_##real##_CMHA_DOUBLE
CMHA_DEF void CMHA_CONFIGURATION(void); /* does nothing */
#if defined(__wasm__) /* whose linker drops data that no code refers to */
__attribute__((constructor)) static void cmha__configured(void) { CMHA_CONFIGURATION(); }
#elif defined(__GNUC__) || defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wattributes" /* GCC knows retain, which outlives -Wl,--gc-sections, where its target does not */
#if defined(__ELF__) && defined(__has_attribute)
#if __has_attribute(retain)
__attribute__((retain))
#endif
#endif
__attribute__((used)) static void (*const cmha__configuration)(void) = CMHA_CONFIGURATION;
#pragma GCC diagnostic pop
#endif
#endif

/* "0.4.0 (float, CBLAS, OpenMP)": the version and the configuration the implementation was compiled with. */
CMHA_DEF const char *cmha_version(void);

/* name, what cmha_status_string says of it */
#define CMHA_STATUSES(X)                                                  \
    X(CMHA_OK, "no error")                                                \
    X(CMHA_ERR_ARGUMENT, "an argument is missing or out of range")        \
    X(CMHA_ERR_SHAPE, "shapes do not fit together")                       \
    X(CMHA_ERR_MEMORY, "the allocator returned no memory")                \
    X(CMHA_ERR_OVERFLOW, "a size is too large to be represented")         \
    X(CMHA_ERR_IO, "reading or writing a file failed")                    \
    X(CMHA_ERR_FORMAT, "a file is not what its format promises")          \
    X(CMHA_ERR_NOT_FOUND, "a file, tensor or option of that name is not there") \
    X(CMHA_ERR_NOT_FINITE, "a loss or gradient is NaN or infinite")       \
    X(CMHA_ERR_FULL, "the cache has no room for more tokens")             \
    X(CMHA_ERR_TOKEN, "a token lies outside the vocabulary")              \
    X(CMHA_ERR_STATE, "the object is not in a state that allows this")    \
    X(CMHA_STOPPED, "a callback asked to stop")

typedef enum cmha_status {
#define CMHA_STATUS_ENUM(name, text) name,
    CMHA_STATUSES(CMHA_STATUS_ENUM)
#undef CMHA_STATUS_ENUM
    CMHA_STATUS_COUNT
} cmha_status;

/* A constant English phrase for a status; never NULL. */
CMHA_DEF const char *cmha_status_string(cmha_status status);

/* Where memory comes from. Both callbacks or neither (then malloc and free). `bytes` of release is what allocate was asked
   for. Callbacks are only called from the thread that called the library. */
typedef struct cmha_allocator {
    void *(*allocate)(void *user, size_t bytes); /* NULL when there is none */
    void (*release)(void *user, void *memory, size_t bytes);
    void *user;
} cmha_allocator;

typedef enum cmha_log_level { CMHA_LOG_INFO, CMHA_LOG_WARNING } cmha_log_level;

typedef struct cmha_context_config {
    int threads;               /* 0 = every core OpenMP offers; without OpenMP always 1 (fork(): see above) */
    uint64_t seed;             /* of parameter initialisation, dropout and batches; 0 is a seed like any other */
    cmha_allocator allocator;  /* zeroed = malloc and free */
    void (*log)(void *user, cmha_log_level level, const char *line); /* NULL = silence; `line` has no newline */
    void *log_user;
    int keep_blas_threads;     /* 0: an OpenBLAS is set to one thread of its own until the context closes, because the library
                                  splits the work itself; 1: its setting is left alone. With several contexts, close the first
                                  one last */
} cmha_context_config;

/* What every other object borrows: options, threads, the line that explains the last failure. One thread at a time. */
typedef struct cmha_context {
    cmha_context_config config;
    int threads;           /* resolved number of threads, >= 1 */
    int blas_threads;      /* OpenBLAS's own setting before init, 0 = untouched */
    char detail[512];      /* see cmha_error */
    uint32_t open;         /* a mark that init ran and close did not */
    uint64_t models;       /* opened so far */
} cmha_context;

/* Opens a context. config NULL = all defaults. Warns through the log callback about a BLAS that runs a kernel below what
   this CPU can do (see cmha_blas_remedy). Errors: ARGUMENT (negative threads, half an allocator). */
CMHA_DEF cmha_status cmha_context_init(cmha_context *context, const cmha_context_config *config);
CMHA_DEF void cmha_context_close(cmha_context *context);

/* One line about the last failure, e.g. "attention: d_model 65 is not divisible by n_heads 4"; "" if there was none. */
CMHA_DEF const char *cmha_error(const cmha_context *context);

/* What does the matrix products: "OpenBLAS SkylakeX", "CBLAS", "Accelerate" or "built-in". */
CMHA_DEF const char *cmha_blas_name(char *buffer, size_t size);

/* NULL when the BLAS uses this CPU well. Otherwise the environment variable that would mend it, such as
   "OPENBLAS_CORETYPE=SkylakeX": an OpenBLAS older than the CPU takes its SSE3 kernel, four times slower (OpenBLAS issue 4267). */
CMHA_DEF const char *cmha_blas_remedy(void);

/* For programs, first thing in main: puts the environment right and executes the program again, once. That is the remedy above,
   and a short spin for GCC's OpenMP (GOMP_SPINCOUNT): waiting threads otherwise burn milliseconds that, on a busy machine, the
   threads they wait for would need. What the user has set stays. Returns when nothing is to be mended or the system cannot
   do it (only Linux can). */
CMHA_DEF void cmha_blas_restart(char **argv);

/* Counter-based random numbers (the SplitMix64 finaliser over key + counter): the state is two integers, so saving it is
   saving them, and any part of the stream can be reached without the ones before it. */
typedef struct cmha_rng {
    uint64_t key, counter;
} cmha_rng;

CMHA_DEF cmha_rng cmha_rng_make(uint64_t seed, uint64_t stream); /* streams of one seed are independent */
CMHA_DEF uint64_t cmha_rng_next(cmha_rng *rng);                  /* 64 uniform bits */
CMHA_DEF double cmha_rng_uniform(cmha_rng *rng);                 /* in [0, 1), 53 bits */
CMHA_DEF double cmha_rng_normal(cmha_rng *rng);                  /* mean 0, variance 1 */
CMHA_DEF uint64_t cmha_rng_below(cmha_rng *rng, uint64_t n);     /* in [0, n), n > 0 */

/* Fields of a configuration: one row each, from which setting by name, checking, printing, checkpoint metadata and the
   programs' help all come. A config struct is plain data: assign its members or set them by name. */
typedef enum cmha_field_type { CMHA_FIELD_SIZE, CMHA_FIELD_REAL, CMHA_FIELD_FLAG, CMHA_FIELD_ENUM } cmha_field_type;

typedef struct cmha_field {
    const char *name;
    cmha_field_type type;              /* size_t, double, int 0/1, int index into choices */
    size_t offset;                     /* of the member in its struct, in bytes */
    double initial, minimum, maximum;  /* default and closed range */
    const char *choices;               /* ENUM: "cmha|rope|dot", else NULL */
    const char *help;                  /* one line */
} cmha_field;

typedef struct cmha_table {
    const cmha_field *fields;
    size_t count;
} cmha_table;

/* Writes the default of every field. */
CMHA_DEF void cmha_config_defaults(cmha_table table, void *config);
/* Sets one field from text. Errors: NOT_FOUND (no such field), ARGUMENT (not a number, outside the range, not a choice). */
CMHA_DEF cmha_status cmha_config_set(cmha_context *context, cmha_table table, void *config, const char *name, const char *value);
/* Sets "NAME=VALUE NAME=VALUE ..." (blanks between). Errors: those of cmha_config_set. */
CMHA_DEF cmha_status cmha_config_set_all(cmha_context *context, cmha_table table, void *config, const char *text);
/* Writes the value of field i as text that cmha_config_set reads back to the same value, "" if there is no such field.
   size >= 32 is always enough. */
CMHA_DEF void cmha_config_get(cmha_table table, const void *config, size_t i, char *text, size_t size);
/* Every field within its range? Errors: ARGUMENT, naming the first that is not. */
CMHA_DEF cmha_status cmha_config_check(cmha_context *context, cmha_table table, const void *config);

/* ================================================ Tape and engine ================================================= */

enum { CMHA_MAX_RANK = 4, CMHA_MAX_INPUTS = 8 };

/* A dense row-major array. `grad` is NULL until a backward pass needs it. Tensors made by operations live in their tape
   until cmha_tape_reset; parameters live in their model. A struct of the caller's own, filled in by hand, serves as well: with
   needs_grad = 1 and `grad` its own memory it is a parameter that outlives the tape. The gradient of an operation's result is
   recycled as soon as it has been passed on; set needs_grad = 1 on the result before cmha_backward to keep it. */
typedef struct cmha_tensor {
    cmha_real *data, *grad;
    size_t shape[CMHA_MAX_RANK];
    int rank;
    int needs_grad; /* 0: none flows into it; 1: it is kept; 2: passed on and recycled */
    size_t size;    /* product of shape */
} cmha_tensor;

typedef struct cmha_tape cmha_tape;
typedef struct cmha_quantised cmha_quantised;
typedef struct cmha_record cmha_record;

/* Adds the gradient of record->in[] given record->out->grad. Reach the gradient of an input by cmha_grad. */
typedef cmha_status (*cmha_backward_fn)(cmha_tape *tape, cmha_record *record);

/* One operation on the tape. The scalars are the operation's own. */
struct cmha_record {
    const char *name;
    cmha_backward_fn backward;
    cmha_tensor *out, *in[CMHA_MAX_INPUTS];
    int n_in;
    void *user;         /* whatever the operation saved; tape memory or the caller's */
    cmha_record *previous;
};

/* A bump allocator: blocks of memory that are rewound together. */
typedef struct cmha_arena {
    struct cmha_arena_block *block; /* newest */
    size_t used, peak, reserved;    /* bytes */
    int measuring;                  /* 1: hands out addresses that must not be touched, and only counts */
} cmha_arena;

enum { CMHA_MAX_FREE = 32 };

/* Records operations as they are computed and walks them back. Holds activations, gradients of activations and scratch in
   one arena; rewound by cmha_tape_reset, so that from the second step on nothing is allocated. */
struct cmha_tape {
    cmha_context *context;
    cmha_arena memory, records;
    cmha_record *last;
    int recording;          /* 1: operations append records; 0: compute only */
    uint64_t key, draws;    /* dropout: key of this pass (from the context's seed, another after every reset; set it to choose),
                               and number of masks drawn from it */
    cmha_status status;     /* the first failure since the last reset */
    struct { void *memory; size_t bytes; } unused[CMHA_MAX_FREE]; /* gradient buffers free for reuse */
    int n_unused;
    const cmha_quantised *weights; /* linear operations that are not recorded read the packed copies of their weights, where it has
                                             them; NULL = none */
};

CMHA_DEF cmha_status cmha_tape_init(cmha_tape *tape, cmha_context *context, int recording);
CMHA_DEF void cmha_tape_close(cmha_tape *tape);
/* Forgets records, tensors and the failure, keeps the memory. */
CMHA_DEF void cmha_tape_reset(cmha_tape *tape);
/* The first failure since the last reset; cmha_error(context) describes it. */
CMHA_DEF cmha_status cmha_tape_status(const cmha_tape *tape);
/* For operations of the caller's own: a failure with the line that cmha_error is to show, both kept if they are the first. Returns
   NULL, so that an operation can return it. */
CMHA_DEF cmha_tensor *cmha_tape_fail(cmha_tape *tape, cmha_status status, const char *line);

/* A new tensor of zeros, owned by the tape. needs_grad 1: an input whose gradient is wanted; it is kept until the reset. */
CMHA_DEF cmha_tensor *cmha_tensor_new(cmha_tape *tape, int rank, const size_t *shape, int needs_grad);
/* A tensor over the caller's data (and, if not NULL, the caller's gradient, into which backward accumulates). */
CMHA_DEF cmha_tensor *cmha_tensor_wrap(cmha_tape *tape, int rank, const size_t *shape, cmha_real *data, cmha_real *grad);
/* Memory of the tape, until the next reset (also when taken inside a backward callback); 64-byte aligned, not cleared. */
CMHA_DEF void *cmha_tape_alloc(cmha_tape *tape, size_t bytes);

/* Appends an operation of the caller's own: `out` (made by cmha_tensor_new, its data already computed) depends on in[0..n_in).
   `user` is handed to `backward` in the record. Does nothing when not recording or when no input needs a gradient.
   Returns out, or NULL after a failure. A backward that returns another status than CMHA_OK ends the pass with that status; the
   line is its own (cmha_tape_fail), or else names the operation. examples/extensions has seven operations made like this. */
CMHA_DEF cmha_tensor *cmha_push(cmha_tape *tape, const char *name, cmha_tensor *out, cmha_tensor *const *in, int n_in,
                                cmha_backward_fn backward, void *user);
/* Inside a backward callback: the gradient of t to accumulate into, made of zeros if there was none; NULL if t needs none or
   memory ran out (then the tape's status says so). */
CMHA_DEF cmha_real *cmha_grad(cmha_tape *tape, cmha_tensor *t);

/* Walks the records back from `loss` (one element), whose gradient is set to `seed` (1 for the plain gradient), and forgets them:
   a pass is walked once. */
CMHA_DEF cmha_status cmha_backward(cmha_tape *tape, cmha_tensor *loss, cmha_real seed);

/* =================================================== Operations =================================================== */
/* Pure functions over pointers and sizes: no context, no allocation, no threads unless a struct says so.
   Sizes of zero are fine, an array without numbers may be NULL, and nothing is checked: sizes are those
   of arrays that are there. A length that a function returns is SIZE_MAX where it overflows. Unless
   stated otherwise outputs must not overlap inputs, and _backward accumulates into its gradient
   arguments, any of which may be NULL (not wanted). A trailing cotangent dy is dL/dy. */

/* Operations on a tape. Inputs may have any rank unless a shape is given; [.., D] means "all but the last axis are rows".
   Each returns a new tensor of the tape or NULL (see cmha_tape_status). */

/* ---- Common ---- */

/* C [M, N] = alpha op(A) op(B) + beta C. op(A) [M, K], op(B) [K, N]; trans_x = 1: the matrix is stored transposed. ld* are the
   row strides of the matrices as stored. beta = 0 ignores what C held, NaN included. This is the BLAS front; it does not split
   the work, and neither does an OpenBLAS while a context is open. */
CMHA_DEF void cmha_gemm(int trans_a, int trans_b, size_t M, size_t N, size_t K, cmha_real alpha, const cmha_real *A, size_t lda,
                        const cmha_real *B, size_t ldb, cmha_real beta, cmha_real *C, size_t ldc);

/* y [T, D]: row t = weight[ids[t]], weight [V, D]. The caller checks 0 <= ids[t] < V. */
CMHA_DEF void cmha_embedding_forward(const cmha_real *weight, const int32_t *ids, size_t T, size_t D, cmha_real *y);
CMHA_DEF void cmha_embedding_backward(const cmha_real *dy, const int32_t *ids, size_t T, size_t D, cmha_real *dweight);

/* y [T, O] = x [T, I] weight^T + bias; weight [O, I], bias [O] or NULL. */
CMHA_DEF void cmha_linear_forward(const cmha_real *x, const cmha_real *weight, const cmha_real *bias, size_t T, size_t I, size_t O,
                                  cmha_real *y);
CMHA_DEF void cmha_linear_backward(const cmha_real *x, const cmha_real *weight, const cmha_real *dy, size_t T, size_t I, size_t O,
                                   cmha_real *dx, cmha_real *dweight, cmha_real *dbias);

/* y [T, D] = weight * (x - mean) / sqrt(var + eps) + bias per row, biased variance in two passes; bias may be NULL.
   stats [T, 2] gets (mean, 1 / sqrt(var + eps)), which the backward reads. */
CMHA_DEF void cmha_layernorm_forward(const cmha_real *x, const cmha_real *weight, const cmha_real *bias, size_t T, size_t D,
                                     cmha_real eps, cmha_real *y, cmha_real *stats);
CMHA_DEF void cmha_layernorm_backward(const cmha_real *x, const cmha_real *weight, const cmha_real *stats, const cmha_real *dy,
                                      size_t T, size_t D, cmha_real *dx, cmha_real *dweight, cmha_real *dbias);

/* y [T, D] = weight * x / sqrt(mean(x^2) + eps) per row; stats [T] gets 1 / sqrt(mean(x^2) + eps). */
CMHA_DEF void cmha_rmsnorm_forward(const cmha_real *x, const cmha_real *weight, size_t T, size_t D, cmha_real eps, cmha_real *y,
                                   cmha_real *stats);
CMHA_DEF void cmha_rmsnorm_backward(const cmha_real *x, const cmha_real *weight, const cmha_real *stats, const cmha_real *dy,
                                    size_t T, size_t D, cmha_real *dx, cmha_real *dweight);

/* The non-linearity between the two matrices of a feed-forward layer. */
typedef enum cmha_activation {
    CMHA_GELU_ERF,  /* x/2 (1 + erf(x / sqrt 2)) */
    CMHA_GELU_TANH, /* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
    CMHA_SWIGLU,    /* of a row [gate | up]: up * gate * sigmoid(gate), half as wide */
    CMHA_RELU       /* max(x, 0) */
} cmha_activation;

/* y [n] = GELU(x), kind CMHA_GELU_ERF or CMHA_GELU_TANH; CMHA_RELU likewise, its slope at 0 being 0. y may be x. On complex planes
   (2 T D numbers) this acts on real and imaginary parts apart: CRAT's cGELU (eq 9), which does not keep phases. */
CMHA_DEF void cmha_gelu_forward(const cmha_real *x, size_t n, cmha_activation kind, cmha_real *y);
CMHA_DEF void cmha_gelu_backward(const cmha_real *x, const cmha_real *dy, size_t n, cmha_activation kind, cmha_real *dx);

/* y [n] = up * gate * sigmoid(gate). */
CMHA_DEF void cmha_swiglu_forward(const cmha_real *gate, const cmha_real *up, size_t n, cmha_real *y);
CMHA_DEF void cmha_swiglu_backward(const cmha_real *gate, const cmha_real *up, const cmha_real *dy, size_t n, cmha_real *dgate,
                                   cmha_real *dup);

/* y [n] = x * keep / (1 - p), keep a Bernoulli(1 - p) bit that depends on (key, first + index) alone, so that the backward
   (the same call on the cotangent) and any split of the array draw the same bits. 0 <= p < 1. y may be x. */
CMHA_DEF void cmha_dropout_forward(const cmha_real *x, size_t n, cmha_real p, uint64_t key, size_t first, cmha_real *y);

/* Returns the sum over rows with target != ignore of logsumexp(logits) - logits[target]; logits [T, V]. counted (or NULL)
   gets the number of such rows. lse [T, 2] (or NULL) is what the backward reads: each row's largest logit and the logarithm of
   sum exp(logit - largest), apart so that huge logits lose nothing. The caller checks the targets' range. */
CMHA_DEF double cmha_cross_entropy_forward(const cmha_real *logits, const int32_t *targets, size_t T, size_t V, int32_t ignore,
                                           cmha_real *lse, size_t *counted);
/* The same loss, and logits become scale (softmax(logits) - onehot(target)), 0 in rows that are not counted: for logits that are
   not needed again, one exponential each instead of two. */
CMHA_DEF double cmha_cross_entropy_gradient(cmha_real *logits, const int32_t *targets, size_t T, size_t V, int32_t ignore,
                                            cmha_real scale);
/* dlogits += scale (softmax(logits) - onehot(target)) on counted rows. dlogits must not be logits. */
CMHA_DEF void cmha_cross_entropy_backward(const cmha_real *logits, const int32_t *targets, const cmha_real *lse, size_t T, size_t V,
                                          int32_t ignore, cmha_real scale, cmha_real *dlogits);

typedef enum cmha_storage {
    CMHA_STORAGE_FLOAT, /* as they are, cmha_real */
    CMHA_STORAGE_BF16,  /* the upper half of a float, rounded to nearest, ties to even: 8 bits of precision, the range of a float.
                           NaN stays */
    CMHA_STORAGE_INT8   /* scale * code, code a whole number from -127 to 127, one scale a row, that is output channel: its largest
                           |weight| / 127 */
} cmha_storage;

/* A matrix [O, I] as BF16 or INT8. Off by at most half a step: scale / 2, or 1/256 of the weight. A row of zeros stays one; a row
   with a NaN or an infinity is all NaN as INT8. */
typedef struct cmha_packed {
    cmha_storage storage;
    size_t O, I;
    const cmha_real *source; /* what it was packed from; not read again */
    uint32_t *words;         /* groups of 4 rows, in each blocks of 64 columns, in each row by row the 32 (BF16) or 16 (INT8) words;
                                a word has from its lowest bits on columns k, k + 16, ... of the next 32 or 64. Padded with zeros */
    cmha_real *scales;       /* INT8: [O], else NULL */
} cmha_packed;

/* Sizes of the two arrays. */
CMHA_DEF size_t cmha_packed_words(cmha_storage storage, size_t O, size_t I);
CMHA_DEF size_t cmha_packed_scales(cmha_storage storage, size_t O);
/* Fills packed->words and ->scales, which are the caller's, from weight [O, I]; the other members must be set. */
CMHA_DEF void cmha_pack(cmha_packed *packed, const cmha_real *weight);
/* Rows lo .. hi - 1 as numbers again -> weight [hi - lo, I]. */
CMHA_DEF void cmha_unpack(const cmha_packed *packed, size_t lo, size_t hi, cmha_real *weight);
/* y [T, ldy], columns lo .. hi - 1 = x [T, I] W^T, for few rows x (a decoded token's): the weights stream through once, and become
   numbers in registers. A row's sum does not depend on lo and hi. */
CMHA_DEF void cmha_packed_forward(const cmha_packed *packed, const cmha_real *x, size_t T, size_t lo, size_t hi, cmha_real *y,
                                  size_t ldy);

/* y [n, d]: row r is position t = pos0 + r; y[2i] = sin(t base^(-2i/d)), y[2i+1] = cos(t base^(-2i/d)). d even. */
CMHA_DEF void cmha_sinusoidal_table(size_t n, size_t d, double base, size_t pos0, cmha_real *y);

CMHA_DEF cmha_tensor *cmha_add(cmha_tape *tape, cmha_tensor *a, cmha_tensor *b);                    /* same shape */
CMHA_DEF cmha_tensor *cmha_mul(cmha_tape *tape, cmha_tensor *a, cmha_tensor *b);                    /* elementwise, same shape */
CMHA_DEF cmha_tensor *cmha_scale(cmha_tape *tape, cmha_tensor *x, cmha_real factor);
/* a [.., M, K] b [K, N] (one matrix for all) or b [.., K, N] (a batch of the same leading shape) -> [.., M, N];
   trans_b = 1: b is stored [.., N, K]. */
CMHA_DEF cmha_tensor *cmha_matmul(cmha_tape *tape, cmha_tensor *a, cmha_tensor *b, int trans_b);
CMHA_DEF cmha_tensor *cmha_reshape(cmha_tape *tape, cmha_tensor *x, int rank, const size_t *shape); /* same data, same size */
CMHA_DEF cmha_tensor *cmha_concat(cmha_tape *tape, cmha_tensor *a, cmha_tensor *b, int axis);
CMHA_DEF cmha_tensor *cmha_slice(cmha_tape *tape, cmha_tensor *x, int axis, size_t begin, size_t end);
CMHA_DEF cmha_tensor *cmha_sum(cmha_tape *tape, cmha_tensor *x);                                    /* -> [1] */

/* weight [V, D], ids [B, N] -> [B, N, D]. Errors: TOKEN. ids must stay valid until the backward. */
CMHA_DEF cmha_tensor *cmha_embedding(cmha_tape *tape, cmha_tensor *weight, const int32_t *ids, size_t B, size_t N);
/* x [.., I], weight [O, I], bias [O] or NULL -> [.., O] */
CMHA_DEF cmha_tensor *cmha_linear(cmha_tape *tape, cmha_tensor *x, cmha_tensor *weight, cmha_tensor *bias);
/* residual + gain * dropout(act(x) weight^T + bias): the second half of every sublayer as one operation. act: -1 none, else a
   cmha_activation; what it computes is recomputed in the backward instead of being kept. residual NULL = none. */
CMHA_DEF cmha_tensor *cmha_sublayer(cmha_tape *tape, cmha_tensor *x, int act, cmha_tensor *weight, cmha_tensor *bias,
                                    cmha_tensor *residual, cmha_real gain, cmha_real dropout);
CMHA_DEF cmha_tensor *cmha_layernorm(cmha_tape *tape, cmha_tensor *x, cmha_tensor *weight, cmha_tensor *bias, cmha_real eps);
CMHA_DEF cmha_tensor *cmha_rmsnorm(cmha_tape *tape, cmha_tensor *x, cmha_tensor *weight, cmha_real eps);
/* GELU forms keep the shape; SWIGLU takes [.., gate | up] to half the width. */
CMHA_DEF cmha_tensor *cmha_activate(cmha_tape *tape, cmha_tensor *x, cmha_activation kind);
CMHA_DEF cmha_tensor *cmha_dropout(cmha_tape *tape, cmha_tensor *x, cmha_real p); /* identity when not recording or p = 0 */

/* Rows x[index[i]] of x [.., D] -> [n, D]; index must stay valid until the backward. Errors: ARGUMENT (an index beyond the rows). */
CMHA_DEF cmha_tensor *cmha_gather(cmha_tape *tape, cmha_tensor *x, const size_t *index, size_t n);
/* Mean over the tokens of a sequence, x [B, N, D], key_mask [B, N] or NULL -> [B, D]; a sequence without tokens gives 0. */
CMHA_DEF cmha_tensor *cmha_mean_tokens(cmha_tape *tape, cmha_tensor *x, const unsigned char *key_mask);
CMHA_DEF cmha_tensor *cmha_sigmoid(cmha_tape *tape, cmha_tensor *x); /* elementwise */

/* Mean over counted rows of the cross-entropy of logits [.., V] with targets [rows] -> [1]; no row: 0. With class_weights [V] (or
   NULL) the mean is weighted: sum w[target] loss / sum w[target]. Errors: TOKEN. Arrays must stay valid until the backward. */
CMHA_DEF cmha_tensor *cmha_cross_entropy(cmha_tape *tape, cmha_tensor *logits, const int32_t *targets, int32_t ignore,
                                         const cmha_real *class_weights);
/* The same of the logits x weight^T + bias, x [.., I], weight [V, I], bias [V] or NULL, which never exist as a whole: they are
   made, turned into their gradient and spent some rows at a time (16 MiB of floats, but at least 256 rows), in the backward once
   more. With a vocabulary of tens of thousands they would be the largest array of all. Errors: TOKEN, SHAPE. */
CMHA_DEF cmha_tensor *cmha_linear_cross_entropy(cmha_tape *tape, cmha_tensor *x, cmha_tensor *weight, cmha_tensor *bias,
                                                const int32_t *targets, int32_t ignore, const cmha_real *class_weights);
/* Mean of (x - targets)^2 -> [1]; targets [size of x] must stay valid until the backward. */
CMHA_DEF cmha_tensor *cmha_squared_error(cmha_tape *tape, cmha_tensor *x, const cmha_real *targets);

/* ---- ComplexFormer ---- */

/* How a head vector of d_k reals is read as P = d_k/2 complex numbers (ComplexFormer 3.1.1; the paper interleaves). */
typedef enum cmha_layout {
    CMHA_LAYOUT_INTERLEAVED, /* pair j = (x[2j], x[2j+1]) */
    CMHA_LAYOUT_HALF         /* pair j = (x[j], x[j+P]) */
} cmha_layout;

/* The Euler transform of a head vector (ComplexFormer eq 1-4): modulus[j] = sqrt(re^2 + im^2), phase[j] = atan2(im, re) in
   [-pi, pi], 0 where the modulus is 0. x [T, 2P] -> modulus, phase [T, P], each may be NULL. For looking at the phases: the
   attention kernels do not need either (see cmha_rotate_forward). */
CMHA_DEF void cmha_euler_forward(const cmha_real *x, size_t T, size_t P, cmha_layout layout, cmha_real *modulus, cmha_real *phase);
/* dx += dmodulus (re, im)/modulus + dphase (-im, re)/(modulus^2 + 1e-12): the first is 0 at modulus 0, and the second's true
   gradient 1/modulus is bounded by the 1e-12. */
CMHA_DEF void cmha_euler_backward(const cmha_real *x, const cmha_real *dmodulus, const cmha_real *dphase, size_t T, size_t P,
                                  cmha_layout layout, cmha_real *dx);

/* Frequencies omega_j of the P = d_k/2 pairs. The paper's eq 6 prints base^(-2j/(d_k/2)) = base^(-4j/d_k), which leaves half of
   the pairs nearly still over a thousand tokens; its references and its code use RoPE's base^(-2j/d_k), our default. */
typedef enum cmha_frequency {
    CMHA_FREQ_ROPE,    /* base^(-2j/d_k) */
    CMHA_FREQ_LITERAL, /* base^(-4j/d_k) */
    CMHA_FREQ_TABLE    /* the caller's omega */
} cmha_frequency;

CMHA_DEF void cmha_frequencies(cmha_frequency kind, double base, size_t P, double *omega);

/* table [n, 2P]: row r holds cos(t omega_j) for j < P, then sin(t omega_j), t = pos0 + r, formed in double: position 10^6 is as
   exact as position 1. pos0 may be negative. */
CMHA_DEF void cmha_rotation_table(const double *omega, size_t P, size_t n, ptrdiff_t pos0, cmha_real *table);

/* The feature map of ComplexFormer (eq 1-8, factorised) and of RoPE, on n rows of one head:

       y_j = lambda_j exp(i (delta_j theta_j + b_j + t omega_j)) = z_j exp(i ((delta_j - 1) theta_j + b_j)) exp(i t omega_j)

   with z_j = lambda_j exp(i theta_j) the j-th pair of x. Eq 8's score, a sum of cosines over n^2 P terms, is the plain dot
   product of these features, because cos(alpha_m - beta_n) = Re exp(i alpha_m) conj exp(i beta_n); this holds for phase
   differences that are not wrapped to (-pi, pi], which is what the paper writes. The second form needs no modulus, is exact
   at lambda = 0, and its backward has no 1/lambda. For a delta that is no integer, y jumps by 2 lambda |sin(pi delta)| where
   theta crosses the negative real axis: a property of the method.

   x: rows of 2P reals, ldx apart. rotation [n, 2P] from cmha_rotation_table. delta, b [P]; delta NULL: delta = 1, b = 0, which is
   RoPE exactly. b NULL: 0 (keys: the bias is on the query's side only). y: rows [Re y (P) | Im y (P)], ldy apart. */
CMHA_DEF void cmha_rotate_forward(const cmha_real *x, size_t ldx, size_t n, size_t P, cmha_layout layout, const cmha_real *rotation,
                                  const cmha_real *delta, const cmha_real *b, cmha_real *y, size_t ldy);
/* Accumulates into dx (rows ldx apart) and, in double so that long sums stay exact, ddelta, db [P] (each may be NULL). With s = dy
   conj(rotation of z): dx = s + i (delta - 1) e^{i theta} Im(s e^{-i theta}), ddelta = theta Im(s conj z), db = Im(s conj z); theta
   = 0 at z = 0. */
CMHA_DEF void cmha_rotate_backward(const cmha_real *x, size_t ldx, size_t n, size_t P, cmha_layout layout,
                                   const cmha_real *rotation, const cmha_real *delta, const cmha_real *b, const cmha_real *dy,
                                   size_t ldy, cmha_real *dx, double *ddelta, double *db);

/* ---- CoPE ---- */

/* The imaginary part of CoPE's embedding (eq 1): positions. The paper says sinusoidal, its code has sines alone, each frequency
   on two channels, so that position 0 is the number 0. */
typedef enum cmha_cope_imag {
    CMHA_COPE_SIN_DUP, /* sin(t w), w = base^(-2 floor(c/2)/d) */
    CMHA_COPE_SIN_COS, /* even c the same, odd c cos(t w): the table of Vaswani et al. */
    CMHA_COPE_LEARNED  /* a parameter of the caller's */
} cmha_cope_imag;

/* table [n, d]: row r is position t = pos0 + r, without the paper's factor gamma. d may be odd. LEARNED: zeros. */
CMHA_DEF void cmha_cope_table(cmha_cope_imag kind, size_t n, size_t d, double base, size_t pos0, cmha_real *table);

/* ---- MöbiusAttention ---- */

/* Quotients of complex numbers, rows [Re (D) | Im (D)]. MöbiusAttention eq 5 divides without saying what happens at a pole; its
   authors are silent about eps, so REG is our choice (with eps = 1e-3 in float), and so is UNIT, which keeps of the denominator
   its phase alone (an author's earlier code, 5*E, divides by |w| as well, but returns conj(y)). */
typedef enum cmha_quotient_kind {
    CMHA_QUOTIENT_REG,   /* u conj(w) / (|w|^2 + eps^2): |y| <= |u| / (2 eps), smooth where eps > 0 */
    CMHA_QUOTIENT_EXACT, /* u / w, eps is not read; unbounded near w = 0 */
    CMHA_QUOTIENT_UNIT   /* u conj(w) / sqrt(|w|^2 + eps^2): |y| <= |u| */
} cmha_quotient_kind;

/* y [T, 2D] = u over w, both [T, 2D], eps >= 0. No square of w or eps is formed before both are scaled, so that neither a huge
   nor a tiny w is lost. Where w and eps vanish together (below the smallest normal number) y and its gradients are 0: the
   quotient has no value there, and its gradient would be infinite. */
CMHA_DEF void cmha_quotient_forward(const cmha_real *u, const cmha_real *w, size_t T, size_t D, cmha_quotient_kind kind,
                                    cmha_real eps, cmha_real *y);
/* With s = |w|^2 + eps^2. REG: du = dy w/s, dw = -conj(u) (w/s)^2 dy + u (eps/s)^2 conj(dy), EXACT the same with eps = 0. UNIT:
   with q = w/sqrt s, du = dy q, dw = (i q Im(y conj(dy)) + eps^2/s u conj(dy)) / sqrt s. */
CMHA_DEF void cmha_quotient_backward(const cmha_real *u, const cmha_real *w, const cmha_real *dy, size_t T, size_t D,
                                     cmha_quotient_kind kind, cmha_real eps, cmha_real *du, cmha_real *dw);

/* y [T, 2D] = x w, the complex product of each row with w [2, D]: MöbiusAttention's keys and values as its eq 7-8 print them. */
CMHA_DEF void cmha_complex_scale_forward(const cmha_real *x, const cmha_real *w, size_t T, size_t D, cmha_real *y);
CMHA_DEF void cmha_complex_scale_backward(const cmha_real *x, const cmha_real *w, const cmha_real *dy, size_t T, size_t D,
                                          cmha_real *dx, cmha_real *dw);

/* The Möbius map of each channel (MöbiusAttention eq 5): y [T, 2D] = (a rho + b) / (c rho + d), rho [T, 2D], abcd [4, 2, D] = a,
   b, c, d, each (re, im). Kind and eps say how it divides. The sums over T in dabcd are formed in double. */
CMHA_DEF void cmha_mobius_forward(const cmha_real *rho, const cmha_real *abcd, size_t T, size_t D, cmha_quotient_kind kind,
                                  cmha_real eps, cmha_real *y);
CMHA_DEF void cmha_mobius_backward(const cmha_real *rho, const cmha_real *abcd, const cmha_real *dy, size_t T, size_t D,
                                   cmha_quotient_kind kind, cmha_real eps, cmha_real *drho, cmha_real *dabcd);

/* What a Möbius map does to the sphere, by sigma = (a + d)^2 / (ad - bc) (MöbiusAttention Table 1, whose conditions presuppose
   ad - bc = 1, and whose circular maps have two fixed points, not one). */
typedef enum cmha_geometry {
    CMHA_PARABOLIC,  /* sigma = 4: a translation, one fixed point; also every multiple of the identity */
    CMHA_CIRCULAR,   /* sigma = 0: a half turn, the elliptic map of multiplier -1 */
    CMHA_ELLIPTIC,   /* 0 < sigma < 4: a rotation */
    CMHA_HYPERBOLIC, /* sigma > 4: a dilation */
    CMHA_LOXODROMIC, /* everything else: both at once */
    CMHA_GEOMETRY_COUNT
} cmha_geometry;

CMHA_DEF const char *cmha_geometry_name(cmha_geometry geometry); /* "parabolic", ..; "?" for other numbers */

/* One map, in double. Complex numbers are (re, im). */
typedef struct cmha_mobius_class {
    cmha_geometry kind;
    double sigma[2], determinant[2];
    double multiplier[2]; /* k with k + 1/k = sigma - 2 and |k| >= 1: the map is z -> k z seen from its fixed points. |k| is the
                             dilation and arg k the rotation (the paper's text has them the other way round) */
    double fixed[2][2];   /* fixed points, without a tolerance, the one nearer to 0 first; (INFINITY, 0) is the one at infinity */
    int n_fixed;          /* 2; 1 where they coincide, fixed[1] being a copy; 0 where every point is fixed (multiples of 1) */
} cmha_mobius_class;

/* Classifies the D maps of abcd [4, 2, D]. Generic complex maps are all loxodromic, so the answer depends on tol (the paper
   counted by eye; 0.01 is a usual choice). In this order: |Im sigma| > tol (1 + |sigma|) loxodromic; |sigma - 4| <= tol
   parabolic; |sigma| <= tol circular; Re sigma < 0 loxodromic; Re sigma < 4 elliptic; else hyperbolic. A map of determinant 0 is
   constant: loxodromic, sigma and multiplier (INFINITY, 0), its value as the only fixed point (none if a = b = c = d = 0). NaN:
   loxodromic, n_fixed 0. */
CMHA_DEF void cmha_mobius_classify(const cmha_real *abcd, size_t D, double tol, cmha_mobius_class *classes);
/* counts[g] = number of maps of geometry g among n. */
CMHA_DEF void cmha_mobius_count(const cmha_mobius_class *classes, size_t n, size_t counts[CMHA_GEOMETRY_COUNT]);
/* Divides each (a, b, c, d) by sqrt(ad - bc): then ad - bc = 1, and the exact map is the same (REG's and UNIT's is another, since
   eps and |w| do not scale along). Maps of determinant 0 stay as they are. */
CMHA_DEF void cmha_mobius_normalize(cmha_real *abcd, size_t D);

/* Of complex rows [Re (D) | Im (D)], as the kernels say: u over w, of one shape [.., 2D]. Errors: SHAPE, ARGUMENT (eps < 0). */
CMHA_DEF cmha_tensor *cmha_quotient(cmha_tape *tape, cmha_tensor *u, cmha_tensor *w, cmha_quotient_kind kind, cmha_real eps);
/* MöbiusAttention eq 5: rho [.., 2D], abcd [4, 2, D] -> [.., 2D] */
CMHA_DEF cmha_tensor *cmha_mobius(cmha_tape *tape, cmha_tensor *rho, cmha_tensor *abcd, cmha_quotient_kind kind, cmha_real eps);
/* MöbiusAttention eq 7-8 as printed: x [.., 2D] times w [2, D], channel by channel -> [.., 2D] */
CMHA_DEF cmha_tensor *cmha_elementwise_complex(cmha_tape *tape, cmha_tensor *x, cmha_tensor *w);

/* ---- Complex building blocks (CRAT 4.1 to 4.7). Complex arrays are planes: rows [Re (D) | Im (D)], row length 2D. A complex
        weight is [2, O, I], a complex vector [2, D]: real part, then imaginary part. GELU on every number of the planes is
        CRAT's cGELU (eq 9), so cmha_gelu_forward(z, T * 2 * D, CMHA_GELU_ERF, y) is that operation. ---- */

/* y [T, 2O] = W x + b (no conjugate); x [T, 2I], weight [2, O, I], bias [2, O] or NULL. adjoint = 1: y = W^H x + b with weight
   [2, I, O], the conjugate transpose. The weight is never expanded: x is also a real [2T, I] and the weight a real [2O, I], so one
   real product holds all four of Wr xr, Wi xr, Wr xi and Wi xi (the adjoint takes two). scratch [4 T O]. */
CMHA_DEF void cmha_complex_linear_forward(const cmha_real *x, const cmha_real *weight, const cmha_real *bias, size_t T, size_t I,
                                          size_t O, int adjoint, cmha_real *y, cmha_real *scratch);
CMHA_DEF void cmha_complex_linear_backward(const cmha_real *x, const cmha_real *weight, const cmha_real *dy, size_t T, size_t I,
                                           size_t O, int adjoint, cmha_real *dx, cmha_real *dweight, cmha_real *dbias,
                                           cmha_real *scratch);

/* y = z exp(i theta) (CRAT eq 6-7); z, y [T, 2D], theta [T, D] in radians, of any size. dtheta = Im(dy conj y). */
CMHA_DEF void cmha_complex_rotate_forward(const cmha_real *z, const cmha_real *theta, size_t T, size_t D, cmha_real *y);
CMHA_DEF void cmha_complex_rotate_backward(const cmha_real *z, const cmha_real *theta, const cmha_real *dy, size_t T, size_t D,
                                           cmha_real *dz, cmha_real *dtheta);

/* Norms of complex rows over the D features of one token: y = gamma M c + beta, c = z - mean(z), M a symmetric real 2x2 matrix on
   (Re c, Im c) from their covariance V (biased, in two passes):

       CMHA_CLN         M = 1/sqrt(mean|c|^2 + eps), gamma [2, D] complex                              CRAT eq 8
       CMHA_CRMS        the same without subtracting the mean, gamma [D] real: keeps the phases, which CLN, whatever the
                        paper says, does not (the mean and a complex gamma change them)
       CMHA_SPLIT_NORM  two real LayerNorms, one on Re, one on Im, gamma [2, D] their weights
       CMHA_WHITEN      M = (V + eps 1)^(-1/2), gamma [3, D] = (rr, ri, ii), a symmetric matrix a feature (Trabelsi et al. 2018)

   beta [2, D] or NULL (the literature's CRMS has none); gamma NULL = 1. Where eps = 0 meets a variance of 0 (WHITEN: a singular V),
   the inverse root is 0 in that direction, and so is its gradient. */
typedef enum cmha_complex_norm { CMHA_CLN, CMHA_CRMS, CMHA_SPLIT_NORM, CMHA_WHITEN } cmha_complex_norm;

/* stats [T, 5], in double, gets (mean Re, mean Im, V_rr, V_ri, V_ii) for the backward; NULL = not wanted. */
CMHA_DEF void cmha_complex_norm_forward(cmha_complex_norm kind, const cmha_real *z, const cmha_real *gamma, const cmha_real *beta,
                                        size_t T, size_t D, cmha_real eps, cmha_real *y, double *stats);
CMHA_DEF void cmha_complex_norm_backward(cmha_complex_norm kind, const cmha_real *z, const cmha_real *gamma, const double *stats,
                                         const cmha_real *dy, size_t T, size_t D, cmha_real eps, cmha_real *dz, cmha_real *dgamma,
                                         cmha_real *dbeta);

/* The smoothed phasor u = z / r, r = sqrt(|z|^2 + eps^2), z and u [T, 2D]: |u| <= 1 and u(0) = 0 (CRAT 4.3 takes atan2, whose phase
   of 0 is 0). Nothing overflows, however large z. dz = (du - u Re(conj(u) du)) / r grows like 1/|z| down to |z| = eps: keep eps
   (1e-6) where there is a backward. An r below the smallest normal number counts as that, and far below it the gradient is 0. */
CMHA_DEF void cmha_phasor_forward(const cmha_real *z, size_t T, size_t D, cmha_real eps, cmha_real *u);
CMHA_DEF void cmha_phasor_backward(const cmha_real *z, const cmha_real *du, size_t T, size_t D, cmha_real eps, cmha_real *dz);

/* a [T, 2]: the Hermitian products sum_c q_tc conj(k_tc) of the rows of q and k [T, 2D] (CoPE eq 2, a row against its own row). */
CMHA_DEF void cmha_hermitian_forward(const cmha_real *q, const cmha_real *k, size_t T, size_t D, cmha_real *a);
CMHA_DEF void cmha_hermitian_backward(const cmha_real *q, const cmha_real *k, const cmha_real *da, size_t T, size_t D,
                                      cmha_real *dq, cmha_real *dk);

/* Between 2D reals read as D pairs and planes; z, x [T, 2D]. (The half layout is the planes' own: then a copy.) */
CMHA_DEF void cmha_complex_from_pairs_forward(const cmha_real *x, size_t T, size_t D, cmha_layout layout, cmha_real *z);
CMHA_DEF void cmha_complex_from_pairs_backward(const cmha_real *dz, size_t T, size_t D, cmha_layout layout, cmha_real *dx);
CMHA_DEF void cmha_complex_to_pairs_forward(const cmha_real *z, size_t T, size_t D, cmha_layout layout, cmha_real *x);
CMHA_DEF void cmha_complex_to_pairs_backward(const cmha_real *dx, size_t T, size_t D, cmha_layout layout, cmha_real *dz);
/* z [T, 2D] = re + i im of two real [T, D], im NULL = 0; and back, either part NULL = not wanted. */
CMHA_DEF void cmha_complex_join_forward(const cmha_real *re, const cmha_real *im, size_t T, size_t D, cmha_real *z);
CMHA_DEF void cmha_complex_join_backward(const cmha_real *dz, size_t T, size_t D, cmha_real *dre, cmha_real *dim);
CMHA_DEF void cmha_complex_split_forward(const cmha_real *z, size_t T, size_t D, cmha_real *re, cmha_real *im);
CMHA_DEF void cmha_complex_split_backward(const cmha_real *dre, const cmha_real *dim, size_t T, size_t D, cmha_real *dz);

/* Multi-frequency positions (CRAT eq 2): y[r, i] = (1/sqrt K) sum_k sin(omega[k, i] t + delta[k, i]), t = pos0 + r; y [n, d],
   omega and delta [K, d]. Angles and the sums of the gradients in double. */
CMHA_DEF void cmha_multifreq_forward(const cmha_real *omega, const cmha_real *delta, size_t K, size_t n, size_t d, size_t pos0,
                                     cmha_real *y);
CMHA_DEF void cmha_multifreq_backward(const cmha_real *omega, const cmha_real *delta, const cmha_real *dy, size_t K, size_t n,
                                      size_t d, size_t pos0, cmha_real *domega, cmha_real *ddelta);
/* Where omega and delta start; the paper is silent. omega[k, i] = base^(-2 floor(i/2)/d) 2^(k - (K-1)/2), k from 0, and delta = 0
   for even i, pi/2 for odd: with K = 1 the sinusoidal table, with more, octaves around it. */
CMHA_DEF void cmha_multifreq_init(size_t K, size_t d, double base, cmha_real *omega, cmha_real *delta);

/* Phase regularisation (CRAT eq 23): lam * mean over the D channels of 1 - R_j, R_j = |mean over counted tokens of u(z_j)| with
   the phasor u above; for |z| >> eps that is the paper's mean of 1 - cos(phase - mean phase), without an atan2. (Its minimum is
   one phase for all tokens of a channel: keep lam small.) z [T, 2D]; key_mask [T], 0 = not counted, NULL = all; no token: 0.
   direction [2, D], in double, gets the mean phasors over their moduli for the backward; 0 where R_j is 0 but for rounding: no
   gradient there. */
CMHA_DEF double cmha_phase_reg_forward(const cmha_real *z, const unsigned char *key_mask, size_t T, size_t D, cmha_real lam,
                                       cmha_real eps, double *direction);
CMHA_DEF void cmha_phase_reg_backward(const cmha_real *z, const unsigned char *key_mask, size_t T, size_t D, cmha_real lam,
                                      cmha_real eps, const double *direction, cmha_real dloss, cmha_real *dz);
/* Magnitude regularisation (CRAT eq 24): lam * mean of |z|^2 over counted tokens and channels. */
CMHA_DEF double cmha_mag_reg_forward(const cmha_real *z, const unsigned char *key_mask, size_t T, size_t D, cmha_real lam);
CMHA_DEF void cmha_mag_reg_backward(const cmha_real *z, const unsigned char *key_mask, size_t T, size_t D, cmha_real lam,
                                    cmha_real dloss, cmha_real *dz);

/* The sum of x[i]^2, in double. */
CMHA_DEF double cmha_sum_squares(const cmha_real *x, size_t n);

/* Component-wise gradient clipping (CRAT eq 22; the paper does not say of what): real and imaginary parts apart, which turns the
   gradient's direction in the complex plane. */
typedef enum cmha_clip_mode {
    CMHA_CLIP_NORM,   /* each array to a norm of at most `limit` */
    CMHA_CLIP_GLOBAL, /* one norm over all real parts, another over all imaginary parts */
    CMHA_CLIP_VALUE   /* each number into [-limit, limit] */
} cmha_clip_mode;

/* In place on `count` complex arrays: re[i], im[i] with n[i] numbers each; either may be NULL (a real parameter has no imaginary
   part). Zeros stay zeros; a NaN stays where it is and leaves the others (NORM, GLOBAL: of its norm) unclipped. */
CMHA_DEF void cmha_componentwise_clip(cmha_clip_mode mode, cmha_real limit, size_t count, const size_t *n, cmha_real *const *re,
                                      cmha_real *const *im);

/* Complex tensors are planes, [.., 2D]: rows [Re (D) | Im (D)]. cGELU (CRAT eq 9) is cmha_activate(z, CMHA_GELU_ERF); sums of
   complex tensors are cmha_add. Errors: SHAPE (an odd width, parts that do not fit). */
/* re, im [.., D], im NULL = 0 -> [.., 2D]; and the parts again. */
CMHA_DEF cmha_tensor *cmha_complex_join(cmha_tape *tape, cmha_tensor *re, cmha_tensor *im);
CMHA_DEF cmha_tensor *cmha_complex_real(cmha_tape *tape, cmha_tensor *z);
CMHA_DEF cmha_tensor *cmha_complex_imag(cmha_tape *tape, cmha_tensor *z);
/* x [.., 2D], D pairs in either layout, to planes; and back. */
CMHA_DEF cmha_tensor *cmha_complex_from_pairs(cmha_tape *tape, cmha_tensor *x, cmha_layout layout);
CMHA_DEF cmha_tensor *cmha_complex_to_pairs(cmha_tape *tape, cmha_tensor *z, cmha_layout layout);
/* x [.., 2I], weight [2, O, I], bias [2, O] or NULL -> [.., 2O] = W x + b. For a real x [.., I], CRAT's eq 5, reshape the weight
   to [2O, I] and take cmha_linear. */
CMHA_DEF cmha_tensor *cmha_complex_linear(cmha_tape *tape, cmha_tensor *x, cmha_tensor *weight, cmha_tensor *bias);
/* x [.., 2I], u [2, O, r], v [2, I, r], bias [2, O] or NULL -> [.., 2O] = U (V^H x) + b (CRAT eq 15). */
CMHA_DEF cmha_tensor *cmha_complex_lowrank(cmha_tape *tape, cmha_tensor *x, cmha_tensor *u, cmha_tensor *v, cmha_tensor *bias);
/* z [.., 2D], theta [.., D] -> z exp(i theta) (CRAT eq 6-7). */
CMHA_DEF cmha_tensor *cmha_complex_rotate(cmha_tape *tape, cmha_tensor *z, cmha_tensor *theta);
/* gamma [2, D], CRMS [D], WHITEN [3, D], or NULL; beta [2, D] or NULL. */
CMHA_DEF cmha_tensor *cmha_complex_normalize(cmha_tape *tape, cmha_tensor *z, cmha_complex_norm kind, cmha_tensor *gamma,
                                             cmha_tensor *beta, cmha_real eps);
CMHA_DEF cmha_tensor *cmha_phasor(cmha_tape *tape, cmha_tensor *z, cmha_real eps); /* z / sqrt(|z|^2 + eps^2) */
/* q, k [.., 2D] -> [.., 2], the sums over c of q_c conj(k_c). */
CMHA_DEF cmha_tensor *cmha_hermitian(cmha_tape *tape, cmha_tensor *q, cmha_tensor *k);
/* omega, delta [K, d] -> [n, d], rows for positions pos0 .. pos0 + n - 1 (CRAT eq 2). */
CMHA_DEF cmha_tensor *cmha_multifreq(cmha_tape *tape, cmha_tensor *omega, cmha_tensor *delta, size_t n, size_t pos0);
/* x [.., N, D] + rows [N, D], the same rows for every sequence of the batch (CRAT eq 3). */
CMHA_DEF cmha_tensor *cmha_add_rows(cmha_tape *tape, cmha_tensor *x, cmha_tensor *rows);
/* Losses [1] of CRAT eq 23 and 24. key_mask: one byte a row of z, 0 = not counted, NULL = all; it must stay valid until the
   backward. */
CMHA_DEF cmha_tensor *cmha_phase_reg(cmha_tape *tape, cmha_tensor *z, const unsigned char *key_mask, cmha_real lam, cmha_real eps);
CMHA_DEF cmha_tensor *cmha_mag_reg(cmha_tape *tape, cmha_tensor *z, const unsigned char *key_mask, cmha_real lam);

/* ---- Complex residual and mixture of experts (CRAT eq 20-21) ---- */

/* y = (alpha + i beta) z + f (CRAT eq 20); z, f, y [T, 2D] planes; y may be f. The gain of the skip is |alpha + i beta| and its
   rotation the angle of that (the paper calls alpha alone the magnitude). */
CMHA_DEF void cmha_complex_residual_forward(const cmha_real *z, const cmha_real *f, cmha_real alpha, cmha_real beta, size_t T,
                                            size_t D, cmha_real *y);
/* dz += conj(alpha + i beta) dy, df += dy, *dalpha += Re sum conj(z) dy, *dbeta += Im sum conj(z) dy; sums in double. */
CMHA_DEF void cmha_complex_residual_backward(const cmha_real *z, cmha_real alpha, cmha_real beta, const cmha_real *dy, size_t T,
                                             size_t D, cmha_real *dz, cmha_real *df, cmha_real *dalpha, cmha_real *dbeta);

/* logits [T, E] = Re(conj(router_e) . z) + bias_e; z [T, 2D], router [2, E, D], bias [E] or NULL. (The paper has a "complex-valued
   router" and no formula: the real part of the Hermitian product is the one linear score that a common rotation of both leaves
   alone.) */
CMHA_DEF void cmha_router_forward(const cmha_real *z, const cmha_real *router, const cmha_real *bias, size_t T, size_t D, size_t E,
                                  cmha_real *logits);
CMHA_DEF void cmha_router_backward(const cmha_real *z, const cmha_real *router, const cmha_real *dlogits, size_t T, size_t D,
                                   size_t E, cmha_real *dz, cmha_real *drouter, cmha_real *dbias);

/* Which experts each of T tokens goes to: the `top` largest of its logits [T, E], 1 <= top <= E, best first, ties to the lower
   index, NaN before all numbers (so that it shows). gate [T, top] = softmax over the chosen logits. plan [cmha_route_size] has
   the chosen experts [T, top], then the (token, choice) pairs grouped by expert, as the experts read them. */
CMHA_DEF size_t cmha_route_size(size_t T, size_t E, size_t top);
CMHA_DEF void cmha_route_forward(const cmha_real *logits, size_t T, size_t E, size_t top, size_t *plan, cmha_real *gate);
/* dlogits += from dgate [T, top]; the choice carries no gradient, and with top = 1 the gate is 1 and there is none at all. */
CMHA_DEF void cmha_route_backward(const size_t *plan, const cmha_real *gate, const cmha_real *dgate, size_t T, size_t E, size_t top,
                                  cmha_real *dlogits);

/* The mixture of experts itself (CRAT eq 21): y = sum over a token's choices, best first, of gate_e (W2_e cGELU(W1_e z + b1_e) +
   b2_e). Tokens are gathered by expert, so that an expert's work is a few matrix products over its tokens; no token is ever
   dropped, and the work depends on T top, however they spread. The split into pieces does not depend on `threads`, so neither does
   any bit of the result. */
typedef struct cmha_experts_args {
    size_t T, D, F, E, top; /* tokens, complex width, complex hidden width, experts, experts a token */
    int threads;            /* 0 or 1: none */
} cmha_experts_args;

/* Parameters, and in the second struct their gradients (NULL = not wanted); biases NULL = none. */
typedef struct cmha_experts_weights {
    const cmha_real *w1, *b1; /* [2, E, F, D], [2, E, F] */
    const cmha_real *w2, *b2; /* [2, E, D, F], [2, E, D] */
} cmha_experts_weights;
typedef struct cmha_experts_grads {
    cmha_real *w1, *b1, *w2, *b2;
} cmha_experts_grads;

CMHA_DEF size_t cmha_experts_scratch(const cmha_experts_args *args, int backward); /* in cmha_real */
/* z, y [T, 2D]; plan and gate from cmha_route_forward; hidden [T top, 2F] gets W1 z + b1 of the grouped pairs for the backward,
   NULL = not wanted. */
CMHA_DEF void cmha_experts_forward(const cmha_experts_args *args, const cmha_experts_weights *weights, const cmha_real *z,
                                   const size_t *plan, const cmha_real *gate, cmha_real *hidden, cmha_real *y, cmha_real *scratch);
/* dgate [T, top] is what cmha_route_backward takes. */
CMHA_DEF void cmha_experts_backward(const cmha_experts_args *args, const cmha_experts_weights *weights, const cmha_real *z,
                                    const size_t *plan, const cmha_real *gate, const cmha_real *hidden, const cmha_real *dy,
                                    cmha_real *dz, cmha_real *dgate, const cmha_experts_grads *grads, cmha_real *scratch);

/* The load balance of the Switch Transformer (Fedus et al. 2021, eq 4; CRAT has none): E sum_e f_e p_e over logits [T, E], f_e the
   share of the routed (token, choice) pairs that go to expert e, p_e the mean of the full softmax; 1 when both are even. key_mask
   [T], 0 = the token is not counted, NULL = all; no token: 0. Gradient through p alone. share [2 E] gets f, then p. */
CMHA_DEF double cmha_balance_forward(const cmha_real *logits, const unsigned char *key_mask, size_t T, size_t E, size_t top,
                                     double *share);
CMHA_DEF void cmha_balance_backward(const cmha_real *logits, const unsigned char *key_mask, const double *share, size_t T, size_t E,
                                    cmha_real dloss, cmha_real *dlogits);

/* y = (alpha + i beta) z + f (CRAT eq 20); z, f [.., 2D] of one shape, alpha and beta [1], which start at 1 and 0. beta NULL: alpha
   is an angle psi and the factor cos psi + i sin psi, so that the skip turns but cannot grow or shrink (an option of this library).
   Errors: SHAPE. */
CMHA_DEF cmha_tensor *cmha_complex_residual(cmha_tape *tape, cmha_tensor *z, cmha_tensor *f, cmha_tensor *alpha, cmha_tensor *beta);
/* Scores of the experts, Re(conj(router_e) . z) + bias_e: z [.., 2D], router [2, E, D], bias [E] or NULL -> [.., E]. Errors: SHAPE. */
CMHA_DEF cmha_tensor *cmha_router(cmha_tape *tape, cmha_tensor *z, cmha_tensor *router, cmha_tensor *bias);
/* Mixture of complex experts (CRAT eq 21): z [.., 2D], logits [.., E] -> [.., 2D], the sum over the `top` largest logits (ties:
   lower index) of g_e (W2_e cGELU(W1_e z + b1_e) + b2_e), g the softmax over those logits, which sums to 1. w1 [2, E, F, D], b1 [2,
   E, F] or NULL, w2 [2, E, D, F], b2 [2, E, D] or NULL. use [E] or NULL: the number of tokens each expert got is added. The choice
   carries no gradient: with top = 1 the logits learn from cmha_balance alone. Memory depends on the sizes and top, not on the
   routing. Errors: SHAPE, ARGUMENT (top outside 1 .. E). */
CMHA_DEF cmha_tensor *cmha_experts(cmha_tape *tape, cmha_tensor *z, cmha_tensor *logits, size_t top, cmha_tensor *w1, cmha_tensor *b1,
                                   cmha_tensor *w2, cmha_tensor *b2, uint64_t *use);
/* The load-balance loss of cmha_balance_forward -> [1], to be added with a small weight (1e-2). key_mask: one byte a row of logits,
   0 = not counted, NULL = all; it must stay valid until the backward. Errors: ARGUMENT (top outside 1 .. E). */
CMHA_DEF cmha_tensor *cmha_balance(cmha_tape *tape, cmha_tensor *logits, size_t top, const unsigned char *key_mask);

/* ---- Retrieval: CRAT's Imaginary Reflection Window (its 4.4) ---- */

/* Exact search by the angular similarity of CRAT eq 18, (1/d_r) sum_j cos(arg q_j - arg r_j), which is (1/d_r) <u(q), u(r)> of
   the phasors: an ordinary inner product, hence also |u(q) - u(r)|^2 = 2 d_r (1 - similarity), so any index for either serves as
   well. Of each of Q queries [Q, 2 d_r] the min(k, n) documents [n, 2 d_r] of largest similarity, both phasors already
   (cmha_phasor_forward), best first, ties to the lower index (equal documents tie exactly). A similarity below `threshold` does
   not count; -1 = all count. index [Q, k] and similarity [Q, k]; a place without a document gets -1 and 0. A query with a NaN
   finds nothing, its similarities are NaN. Documents go through one GEMM a tile, whatever n is; scratch: cmha_nearest_scratch
   numbers, bounded whatever n is. */
CMHA_DEF size_t cmha_nearest_scratch(size_t Q, size_t n, size_t d_r, size_t k);
CMHA_DEF void cmha_nearest(const cmha_real *queries, const cmha_real *documents, size_t Q, size_t n, size_t d_r, size_t k,
                           cmha_real threshold, int64_t *index, cmha_real *similarity, cmha_real *scratch);

/* The first half of CRAT eq 19: rbar [T, 2 d_r] = sum_m weights_m sum_i p_tmi r_i over the documents r_i = vectors[index[t, m,
   i]] that the M queries of row t found, p the softmax of similarity / tau over them. index, similarity, p [T, M, k], weights
   [M]. A query that found nothing adds 0, one whose similarities are NaN adds NaN. p (what the backward reads) may be similarity.
   found (or NULL) [T]: did any query of the row find a document? */
CMHA_DEF void cmha_retrieve_forward(const cmha_real *vectors, const int64_t *index, const cmha_real *similarity,
                                    const cmha_real *weights, size_t T, size_t M, size_t k, size_t d_r, cmha_real tau, cmha_real *p,
                                    cmha_real *rbar, unsigned char *found);
/* dqueries [T, M, 2 d_r], of the queries' phasors, and dweights [M], through the similarities; the choice of documents carries no
   gradient. features [n, 2 d_r]: the documents' phasors. scratch [k]. */
CMHA_DEF void cmha_retrieve_backward(const cmha_real *vectors, const cmha_real *features, const int64_t *index, const cmha_real *p,
                                     const cmha_real *weights, const cmha_real *drbar, size_t T, size_t M, size_t k, size_t d_r,
                                     cmha_real tau, cmha_real *dqueries, cmha_real *dweights, cmha_real *scratch);

/* What the reflection gate g = sigmoid(gate / tau) does with the state z and the retrieved v. */
typedef enum cmha_fusion {
    CMHA_FUSION_CONVEX,  /* (1 - g) z + g v: the default; the paper's text leaves the form open */
    CMHA_FUSION_ADDITIVE /* z + g v */
} cmha_fusion;

/* The second half of eq 19: y, z, v [T, 2D], gate [T, D], the same g for both planes. Rows with found[t] = 0 stay z bit for bit
   and give v and gate no gradient; found NULL = all found. */
CMHA_DEF void cmha_reflect_forward(const cmha_real *z, const cmha_real *v, const cmha_real *gate, const unsigned char *found,
                                   size_t T, size_t D, cmha_real tau, cmha_fusion fusion, cmha_real *y);
CMHA_DEF void cmha_reflect_backward(const cmha_real *z, const cmha_real *v, const cmha_real *gate, const unsigned char *found,
                                    const cmha_real *dy, size_t T, size_t D, cmha_real tau, cmha_fusion fusion, cmha_real *dz,
                                    cmha_real *dv, cmha_real *dgate);

/* The caller's own search (an index for many millions of vectors, approximate or not): features [Q, 2 d_r] are the queries'
   phasors, index [Q, k] gets the documents of each, in any order, -1 = none. Similarities are computed by the library, which also
   sorts and applies the threshold. Anything but CMHA_OK stops the operation with that status. Called from the thread that called
   the library. */
typedef cmha_status (*cmha_search_fn)(void *user, const cmha_real *features, size_t Q, size_t k, int64_t *index);

/* A knowledge base: documents as complex vectors. Only read once open, so several models and tapes may share one. The paper's "no
   external retriever" is true of the queries: documents still have to be encoded (cmha_model_vectors), and again when the encoder
   changes. */
typedef struct cmha_knowledge {
    cmha_context *context;
    size_t n, d_r;              /* documents; complex features of each */
    const cmha_real *vectors;   /* [n, 2 d_r] planes: the values that are mixed */
    const cmha_real *features;  /* [n, 2 d_r] their phasors z / sqrt(|z|^2 + 1e-12): what is searched */
    const int64_t *ids;         /* [n], the caller's numbers; NULL = 0, 1, ... */
    const char *texts;          /* document i is texts[text_begin[i] .. text_begin[i + 1]); NULL = none */
    const uint64_t *text_begin; /* [n + 1] */
    uint64_t identity;          /* a hash of n, d_r and the vectors (as floats): which base this is */
    cmha_search_fn search;      /* NULL = exact search; set it after opening */
    void *search_user;
    struct { void *memory; size_t bytes; } owned[5]; /* the library's: what close gives back, and the mapped file */
    void *mapping;
    size_t mapped;
} cmha_knowledge;

/* Over the caller's arrays, which must outlive it; n = 0 is an empty base, which changes nothing. ids may be NULL; texts and
   text_begin [n + 1], ascending from 0, both or neither. The features are the library's memory, computed now. Errors: ARGUMENT,
   MEMORY, OVERFLOW, NOT_FINITE (a NaN or an infinity in the vectors), STATE (context not open). */
CMHA_DEF cmha_status cmha_knowledge_init(cmha_knowledge *knowledge, cmha_context *context, size_t n, size_t d_r,
                                         const cmha_real *vectors, const int64_t *ids, const char *texts,
                                         const uint64_t *text_begin);
CMHA_DEF void cmha_knowledge_close(cmha_knowledge *knowledge);
/* The search of cmha_nearest, or the caller's, for queries [Q, 2 d_r] planes (made phasors inside) -> index, similarity [Q, k].
   Threads over queries, or over documents where there are few queries: the same bits for any number of threads. Errors: ARGUMENT
   (also an index beyond n from the caller's search), MEMORY, OVERFLOW, and what the caller's search returned. */
CMHA_DEF cmha_status cmha_knowledge_search(const cmha_knowledge *knowledge, const cmha_real *queries, size_t Q, size_t k,
                                           cmha_real threshold, int64_t *index, cmha_real *similarity);
/* Text of document i, *length bytes, not NUL-terminated; NULL and 0 if there is none. length may be NULL. */
CMHA_DEF const char *cmha_knowledge_text(const cmha_knowledge *knowledge, size_t i, size_t *length);

typedef struct cmha_retrieve_args {
    size_t queries;      /* M per row */
    size_t top;          /* k documents per query */
    cmha_real tau;       /* tau_r, of the softmax over similarities; > 0. The paper names the gate's alone; 1 leaves it out */
    cmha_real threshold; /* a similarity below does not count; -1 = all count */
    cmha_real eps;       /* of the queries' phasors, >= 0; 1e-6 is usual */
    int raw_weights;     /* 1: w_logits are the weights; 0: their softmax */
} cmha_retrieve_args;

/* q [.., 2 M d_r]: rows [Re of M queries one after another | Im]; w_logits [M] -> rbar [.., 2 d_r] = sum_m softmax(w_logits)_m
   sum_i softmax_i(similarity_i / tau) r_i. A query that finds nothing adds 0. found (or NULL) gets one byte a row, tape memory:
   did any query find a document? Gradients reach q and w_logits through the similarities and the mix; the choice of documents has
   none. knowledge NULL is an empty base; its arrays must stay until the backward. A dry run takes what any base takes: n does not
   matter. Errors: SHAPE, ARGUMENT, what the caller's search returned. */
CMHA_DEF cmha_tensor *cmha_retrieve(cmha_tape *tape, const cmha_knowledge *knowledge, const cmha_retrieve_args *args,
                                    cmha_tensor *q, cmha_tensor *w_logits, const unsigned char **found);
/* g = sigmoid(gate / tau); CONVEX (1 - g) z + g v, ADDITIVE z + g v; z, v [.., 2D], gate [.., D]. found: one byte a row, until
   the backward; rows with 0 stay z bit for bit and give v and gate no gradient; NULL = all found. Errors: SHAPE, ARGUMENT (tau <=
   0). */
CMHA_DEF cmha_tensor *cmha_reflect(cmha_tape *tape, cmha_tensor *z, cmha_tensor *v, cmha_tensor *gate, cmha_real tau,
                                   cmha_fusion fusion, const unsigned char *found);

typedef struct cmha_irw_weights {
    cmha_tensor *wm;       /* [2, M d_r, D], complex: W_m of all queries one after another */
    cmha_tensor *bm;       /* [2, M d_r] or NULL */
    cmha_tensor *w_logits; /* [M] */
    cmha_tensor *wv;       /* [2, D, d_r], complex */
    cmha_tensor *wg;       /* [D, 2D + 2 d_r], real, on [Re z | Im z | Re rbar | Im rbar] */
    cmha_tensor *bg;       /* [D] or NULL */
} cmha_irw_weights;

/* The whole window (CRAT eq 17-19) on z [.., 2D]: q^(m) = W_m Im z + b_m, rbar by cmha_retrieve, gate = W_g [z | rbar] + b_g, v =
   W_v rbar, the result by cmha_reflect. (Im z is real, so the M complex projections are one real linear map; complex results, so
   that phases exist.) Only a row's own token is looked at: causal. An empty base, or NULL, gives z itself. */
CMHA_DEF cmha_tensor *cmha_irw(cmha_tape *tape, const cmha_knowledge *knowledge, const cmha_retrieve_args *args, cmha_real gate_tau,
                               cmha_fusion fusion, cmha_tensor *z, const cmha_irw_weights *weights);

/* =================================================== Attention ==================================================== */

/* A strided view of a [B, H, N, d] array: element (b, h, n, i) is data[b * batch + h * head + n * token + i]. Serves
   head-major [B, H, N, d] and token-major [B, N, H * d] storage alike, also a slice of a fused projection. Of a complex array
   that is the real part; the imaginary part lies `imag` numbers further on (0: the array is real). */
typedef struct cmha_heads {
    cmha_real *data;
    size_t batch, head, token, imag;
} cmha_heads;

CMHA_DEF cmha_heads cmha_heads_major(cmha_real *data, size_t H, size_t N, size_t d);    /* [B, H, N, d] */
CMHA_DEF cmha_heads cmha_tokens_major(cmha_real *data, size_t N, size_t row, size_t d); /* [B, N, row], head h at column h * d */
/* The same for d complex numbers a head: [B, H, N, 2d], rows [Re (d) | Im (d)]; and [B, N, row] with the real part of head h at
   column h * d and its imaginary part at column imag + h * d. */
CMHA_DEF cmha_heads cmha_complex_heads_major(cmha_real *data, size_t H, size_t N, size_t d);
CMHA_DEF cmha_heads cmha_complex_tokens_major(cmha_real *data, size_t N, size_t row, size_t d, size_t imag);

typedef enum cmha_attention_kind {
    CMHA_ATTENTION_CMHA,    /* ComplexFormer eq 1-9 */
    CMHA_ATTENTION_ROPE,    /* Su et al. 2021; CMHA with delta = 1, b = 0 */
    CMHA_ATTENTION_DOT,     /* Vaswani et al. 2017 */
    CMHA_ATTENTION_COMPLEX, /* complex q and k: O = sum_j q_j conj(k_j), see cmha_softmax. CoPE, MöbiusAttention */
    CMHA_ATTENTION_ANGULAR  /* the same of the phasors u(z) = z / sqrt(|z|^2 + eps^2): Re O is CRAT eq 12's
                               sum of cosines of phase differences, without any trigonometry. (What the
                               paper calls phase normalisation is atan2 for arctan, which cannot tell z
                               from -z and so gives other scores. That phases lie within +-pi changes
                               nothing inside a cosine. The prose says "averages" where 1/sqrt(d_h) does
                               not average: the caller's scale decides.) */
} cmha_attention_kind;

/* What is done with the complex score O of COMPLEX and ANGULAR (already times scale) and the values. MöbiusAttention does not say
   how softmax(O) of its eq 9 is meant; RI_PRODUCT is its literal reading channel by channel, and the default here. Real values go
   with REAL and SCORE. */
typedef enum cmha_softmax {
    CMHA_SOFTMAX_RI_PRODUCT, /* y = (softmax(Re O) + i softmax(Im O)) v */
    CMHA_SOFTMAX_REAL,       /* y = softmax(Re O) v: CoPE `real`, angular attention, Eilers & Jiang 2023 */
    CMHA_SOFTMAX_RI_SPLIT,   /* y = softmax(Re O) Re v + i softmax(Im O) Im v */
    CMHA_SOFTMAX_YANG8,      /* eight real attentions (Yang et al. 2020): (P_rr + i P_ri + i P_ir - P_ii) v, P_xy = softmax(q_x k_y) */
    CMHA_SOFTMAX_SCORE       /* the Hermitian core: y = softmax(magnitude |O| / max + cosine Re O / sqrt(|O|^2 + eps^2)) v */
} cmha_softmax;

/* SCORE: what the magnitudes are divided by (CoPE `hybrid_norm`), + 1e-12. */
typedef enum cmha_norm_max {
    CMHA_MAX_NONE,
    CMHA_MAX_ROW,   /* largest |O| among the row's permitted keys: causal-safe */
    CMHA_MAX_HEAD,  /* among all permitted pairs of the head: leaks the future where causal */
    CMHA_MAX_GLOBAL /* over the whole batch, masked pairs included: what CoPE's code does; depends on batch mates and padding */
} cmha_norm_max;

/* Which delta and b a head uses: the paper's, its ablation "EulerFormer-MHA (Shared)", or delta = 1, b = 0 without parameters. */
typedef enum cmha_share { CMHA_SHARE_PER_HEAD, CMHA_SHARE_SHARED, CMHA_SHARE_FIXED } cmha_share;

/* Everything about one attention call but the arrays. Zero every member you do not set. */
typedef struct cmha_attention_args {
    size_t batch, heads, kv_heads;   /* kv_heads divides heads: query head h reads key/value head h / (heads / kv_heads) */
    size_t n_q, n_k;                 /* query row i is at position pos0 + i, key row j at pos0 + n_q - n_k + j */
    size_t d_k, d_v;                 /* numbers per head, complex ones for COMPLEX and ANGULAR. d_v 0: only lse is computed */
    cmha_real scale;                 /* factor on the score; not defaulted here. ComplexFormer's eq 8 has none, its prose scales */
    int causal;                      /* key position <= query position */
    size_t window;                   /* with causal: only the last `window` positions, own one included; 0 = all */
    const unsigned char *key_mask;   /* [B, n_k], 0 = absent; NULL = all present */
    const cmha_real *alibi;          /* slopes [H]: score -= slope |m - n| (Press et al. 2022); NULL = none */
    cmha_attention_kind kind;
    cmha_layout layout;
    cmha_share share;                /* CMHA: shape of delta and b, [H, P] per head of the query, [1, P] shared, none fixed */
    const cmha_real *delta, *b;
    const cmha_real *rotation;       /* [n, 2P], n = max(n_q, n_k), first row at position pos0 + n_q - n; from cmha_rotation_table */
    size_t rotation_head;            /* 0, or the distance between the heads' tables (per-head frequencies) */
    cmha_softmax softmax;            /* this and the next: COMPLEX and ANGULAR only */
    int complex_v;                   /* v and y are complex, d_v numbers a head */
    int bilinear;                    /* O = sum_j q_j k_j, no conjugate: MöbiusAttention eq 9 as printed */
    cmha_real magnitude, cosine;     /* SCORE */
    cmha_real eps;                   /* of the phasors (ANGULAR) and of SCORE's cosine, which acts on the O before scale */
    cmha_norm_max norm_max;          /* SCORE */
    int norm_max_grad;               /* 0: that maximum is a constant in the backward; 1: the gradient flows into its entry */
    const unsigned char *query_mask; /* HEAD: [B, n_q], 0 = a query (padding) whose pairs that maximum passes over; NULL = none */
    cmha_real dropout;               /* on the probabilities; the softmaxes of one pair share their bit */
    uint64_t key;                    /* of the dropout bits */
    int threads;                     /* over (batch, kv head); 0 = 1 */
} cmha_attention_args;

/* CoPE's five scores (its 3.2; A = sum_c q_c conj(k_c), C = Re A / |A|, s = 1/sqrt(d_k)). `phase` alone lies within +-s: its
   weights differ by a factor of at most exp(2 s), so such a layer nearly averages. `magnitude` does not tell aligned from opposed. */
typedef enum cmha_cope_score {
    CMHA_COPE_PHASE,      /* s C */
    CMHA_COPE_MAGNITUDE,  /* s |A| */
    CMHA_COPE_REAL,       /* s Re A: ordinary attention of [Re | Im] */
    CMHA_COPE_HYBRID,     /* s (|A| + alpha C) */
    CMHA_COPE_HYBRID_NORM /* s (|A| / (max + 1e-12) + alpha C); the paper leaves open which maximum, its code takes the whole batch's */
} cmha_cope_score;

typedef struct cmha_cope_options {
    cmha_cope_score score;
    cmha_real alpha;        /* 0.2 in the paper */
    cmha_real eps;          /* C = Re A / sqrt(|A|^2 + eps^2): smooth, and 0 at A = 0; neither paper nor code has it. 1e-6 */
    int repo_scale;         /* 1: |A| and Re A times s twice, as the authors' code does */
    cmha_norm_max norm_max; /* HYBRID_NORM */
    int norm_max_grad;
} cmha_cope_options;

/* Fills in what makes args (with d_k set, values real) a CoPE attention: kind, scale, softmax, magnitude, cosine, eps, norm_max. */
CMHA_DEF void cmha_cope_args(cmha_attention_args *args, const cmha_cope_options *options);

/* Slopes of ALiBi, s_h = 2^(-8 (h+1)/H); H need not be a power of two. */
CMHA_DEF void cmha_alibi_slopes(size_t H, cmha_real *slopes);

/* Length of the scratch array (aligned as for double), in cmha_real, for cmha_attention_forward (backward = 0) or _backward (1).
   O(n), never n^2. */
CMHA_DEF size_t cmha_attention_scratch(const cmha_attention_args *args, int backward);

/* y [B, H, n_q, d_v] = softmax(scale Q'K'^T + mask) V over the permitted keys (eq 9), Q' and K' the features of q [B, H, n_q, d_k]
   and k [B, Hkv, n_k, d_k], v [B, Hkv, n_k, d_v]. Tiled, with running maxima; the n_q x n_k scores are never stored. lse [B, H,
   n_q, 2] gets of each row its largest score m and log sum exp(score - m): apart, so that huge scores lose nothing. Their sum is
   the row's log sum exp; both are 0 for a row without keys. (Where products of q and k left the range of the type, the row is
   computed in double, scores beyond 1e30 keep their order only, and the second number is negated.) NULL = not wanted. Forms of
   several softmaxes (RI_PRODUCT, RI_SPLIT, YANG8) leave lse alone: their backward computes each again. */
CMHA_DEF void cmha_attention_forward(const cmha_attention_args *args, cmha_heads q, cmha_heads k, cmha_heads v, cmha_heads y,
                                     cmha_real *lse, cmha_real *scratch);
/* Accumulates into dq, dk (strides those of q, k), dv and into ddelta, db (shape of delta; NULL = not wanted). dlse [B, H, n_q]
   (or NULL) is a cotangent of the rows' log sum exp. Deterministic for any number of threads. */
CMHA_DEF void cmha_attention_backward(const cmha_attention_args *args, cmha_heads q, cmha_heads k, cmha_heads v, cmha_heads y,
                                      const cmha_real *lse, cmha_heads dy, const cmha_real *dlse, cmha_heads dq, cmha_heads dk,
                                      cmha_heads dv, cmha_real *ddelta, cmha_real *db, cmha_real *scratch);

/* Attention over token-major projections: q [B, Nq, H * d_k], k [B, Nk, Hkv * d_k], v [B, Nk, Hkv * d_v] -> [B, Nq, H * d_v]; or k
   and v NULL and q the fused [B, N, (H + 2 Hkv) * d_k]. Of COMPLEX and ANGULAR q and k are planes twice as wide, [Re of all heads |
   Im of all heads]; with complex_v so are v and the result, and the fused form is [Re (q k v) | Im (q k v)]. Everything else of
   `args` is as for cmha_attention_forward; sizes come from the tensors, delta and b from the two tensors (CMHA per head or shared;
   else NULL). Pointers in args must stay valid until the backward. Errors: SHAPE (divisibility, odd d_k for ROPE and CMHA, shape of
   delta), ARGUMENT (no rotation table; a softmax that needs complex values; norm_max of phasors). */
CMHA_DEF cmha_tensor *cmha_attention(cmha_tape *tape, const cmha_attention_args *args, cmha_tensor *q, cmha_tensor *k,
                                     cmha_tensor *v, cmha_tensor *delta, cmha_tensor *b);
/* A rotation table in the tape's memory for positions pos0 .. pos0 + n - 1 (see cmha_rotation_table), one per row of omega
   [n_tables, P]. */
CMHA_DEF const cmha_real *cmha_rotation(cmha_tape *tape, const double *omega, size_t n_tables, size_t P, size_t n, ptrdiff_t pos0);

/* Attention without a softmax, in O(n): with feature rows f(q) [n, F], f(k) [n, F] and values V [n, c],

       y_t = f(q_t) (sum_s f(k_s) v_s^T) / f(q_t) (sum_s f(k_s))

   The sums over the keys are one matrix of F x (c + 1) numbers that never grows: over all keys, or running if causal. It is also
   all that decoding has to remember. q and k are complex, d numbers a head. */
typedef enum cmha_linear_kind {
    CMHA_LINEAR_COPE,   /* CoPE eq 10-17: f(x) = elu(x) + 1 of every real and imaginary part, F = 2d, real values. With the
                           complex f(q), f(k) key s weighs W_ts = sum_j f(q_tj) conj f(k_sj) */
    CMHA_LINEAR_ANGULAR /* CRAT's "linear" path made exact: key s weighs 1 + (1/d) sum_j Re(u(q_j) conj u(k_j)) >= 0, with
                           u(z) = z / sqrt(|z|^2 + eps^2); F = 2d + 1, complex values. A broad kernel (no
                           key weighs more than 2), not the softmax of CRAT eq 12-13 and no approximation of it */
} cmha_linear_kind;

/* What CoPE's linear attention makes of the complex sum Num = sum_s W_ts v_s, channel by channel; C = Re Num / sqrt(|Num|^2 +
   eps^2). REAL is the one to use: a convex average of the values. The others are the paper's text taken literally,
   experimental: here the non-linearity comes after the sum, so they are not the linear form of CoPE's softmax variants.
   MAGNITUDE loses the sign of the values, PHASE their size, and PHASE shrinks like 1/n as Den grows. (Eq 12 prints the sign of
   Im Num for q conj(k), eq 10 for its conjugate: no output depends on it.) */
typedef enum cmha_cope_output {
    CMHA_COPE_OUTPUT_REAL,      /* Re Num / Den, Den = sum_s Re W_ts */
    CMHA_COPE_OUTPUT_MAGNITUDE, /* |Num| / Den, gradient 0 at Num = 0 */
    CMHA_COPE_OUTPUT_PHASE,     /* C / Den */
    CMHA_COPE_OUTPUT_HYBRID     /* (|Num| + alpha C) / Den */
} cmha_cope_output;

/* Everything about one call but the arrays. Zero every member you do not set. */
typedef struct cmha_linear_args {
    size_t batch, heads, n;
    size_t d;                      /* complex numbers of a head of q and k */
    size_t d_v;                    /* numbers of a head of v and y: real for COPE, complex for ANGULAR; 0 = d */
    cmha_linear_kind kind;
    cmha_cope_output output;       /* COPE only */
    int causal;
    cmha_real alpha;               /* of HYBRID; the paper's 0.2 */
    cmha_real eps;                 /* COPE: of C; ANGULAR: of the phasors u, whose gradient is bounded by 1/eps. 1e-6 is usual */
    cmha_real den_eps;             /* ANGULAR: y = num / (den + den_eps); den nears 0 only if every key points exactly away. 1e-6 */
    const unsigned char *key_mask; /* [B, n], 0 = absent; NULL = all present */
    int threads;                   /* over (batch, head); 0 = 1 */
} cmha_linear_args;

CMHA_DEF size_t cmha_linear_attention_scratch(const cmha_linear_args *args, int backward); /* in cmha_real; does not depend on n */
CMHA_DEF size_t cmha_linear_attention_saved(const cmha_linear_args *args); /* B H n (1, or 2 d_v + 1 where experimental) */
CMHA_DEF size_t cmha_linear_attention_state(const cmha_linear_args *args); /* B H F (c + 1), c = d_v or (ANGULAR) 2 d_v */

/* y [B, H, n, d_v] of q, k [B, H, n, d] (complex views) and v [B, H, n, d_v]; v and y are real for COPE, complex for ANGULAR.
   saved (NULL = not wanted) gets what the backward reads: of each row the denominator, for the experimental outputs also Num. */
CMHA_DEF void cmha_linear_attention_forward(const cmha_linear_args *args, cmha_heads q, cmha_heads k, cmha_heads v, cmha_heads y,
                                            cmha_real *saved, cmha_real *scratch);
/* Accumulates into dq, dk, dv (strides of their own, data NULL = not wanted). Nothing of length n is kept: one sweep forwards
   with the running sum of the keys gives dq, one backwards with the running sum of f(q)^T dNum gives dk and dv. */
CMHA_DEF void cmha_linear_attention_backward(const cmha_linear_args *args, cmha_heads q, cmha_heads k, cmha_heads v, cmha_heads y,
                                             const cmha_real *saved, cmha_heads dy, cmha_heads dq, cmha_heads dk, cmha_heads dv,
                                             cmha_real *scratch);
/* Decoding: n more tokens, causal whatever args->causal says, after those that `state` has already seen; state (zeros before
   the first) is brought up to date. Any split of a sequence into calls gives the causal forward, up to rounding; that is this
   call on zeros. */
CMHA_DEF void cmha_linear_attention_append(const cmha_linear_args *args, cmha_heads q, cmha_heads k, cmha_heads v, cmha_heads y,
                                           cmha_real *state, cmha_real *scratch);

/* The discrete Fourier transform of n complex numbers in place, any n: sum_t x[t] exp(-+ 2 pi i f t / n), the inverse (plus
   sign) divided by n. In double. O(n log n): radix 2 for powers of two, Bluestein's algorithm for other lengths. scratch:
   cmha_fft_scratch(n) doubles that cmha_fft_prepare has filled for this n; it serves any number of transforms, one at a time. */
CMHA_DEF size_t cmha_fft_scratch(size_t n);
CMHA_DEF void cmha_fft_prepare(size_t n, double *scratch);
CMHA_DEF void cmha_fft(double *re, double *im, size_t n, int inverse, double *scratch);

/* Mixing by lag, what CRAT's FFT path computes once it is written down. CRAT (eq 14) calls IFFT(FFT(Q) conj
   FFT(K)) a fast approximation of the same attention, under its Table 6 even identical. It is neither: that
   product has n numbers, indexed by the lag between two tokens and summed over all pairs of that lag, where
   attention needs n^2. Made well-defined (zero-padded, so that lags do not wrap round) it is a Toeplitz
   mixing like the auto-correlation of Autoformer (Wu et al. 2021), with weights every query shares:

       N_tau  = number of pairs of tokens t and t - tau that are both present: n - tau without a mask
       R[tau] = 1 / (sqrt(d) N_tau) sum over these pairs, sum_j Re(u(q_tj) conj u(k_{t-tau,j}))      u as for CMHA_LINEAR_ANGULAR
       a      = softmax of temp R over the topk lags of largest R (0: all) among those with N_tau > 0, 0 elsewhere
       y_t    = sum a[tau] v_{t-tau} / sum a[tau] over tau <= t with t - tau present;    0 where there is none, or t is absent

   The weights depend on the whole sequence, so there is no causal form: encoders only. Ties go to the lower lag; lags
   whose R differ by less than rounding, 2^-20 sqrt(d) (in double 2^-32), tie. The choice of lags carries no gradient.
   An absent token takes no part, whatever it holds, and gets no gradient: padding at the end changes nothing, to the bit. */
typedef struct cmha_lag_args {
    size_t batch, heads, n;
    size_t d;                      /* complex numbers of a head of q, k, v and y */
    cmha_real temp;
    size_t topk;
    cmha_real eps;                 /* of the phasors; 1e-6 is usual */
    const unsigned char *key_mask; /* [B, n], 0 = absent; NULL = all present */
    int threads;                   /* over (batch, head); 0 = 1 */
} cmha_lag_args;

CMHA_DEF size_t cmha_lag_attention_scratch(const cmha_lag_args *args); /* in cmha_real, aligned as for double; O(n) per thread */
/* y of q, k, v, all complex views of [B, H, n, d]. lags [B, H, n] gets temp R of the chosen lags and -infinity for the others:
   the backward reads it, and its softmax is what the head mixes by. O(n log n d). */
CMHA_DEF void cmha_lag_attention_forward(const cmha_lag_args *args, cmha_heads q, cmha_heads k, cmha_heads v, cmha_heads y,
                                         cmha_real *lags, cmha_real *scratch);
/* Accumulates into dq, dk, dv (data NULL = not wanted), by correlations that are transforms as well. */
CMHA_DEF void cmha_lag_attention_backward(const cmha_lag_args *args, cmha_heads q, cmha_heads k, cmha_heads v, cmha_heads y,
                                          const cmha_real *lags, cmha_heads dy, cmha_heads dq, cmha_heads dk, cmha_heads dv,
                                          cmha_real *scratch);

/* Linear attention over token-major planes: q, k [B, N, 2 H d] = [Re of all heads | Im of all heads]; v [B, N, H d_v] real for
   CMHA_LINEAR_COPE, planes [B, N, 2 H d_v] for CMHA_LINEAR_ANGULAR; the result is shaped like v. Or, ANGULAR only, k and v NULL
   and q the fused [B, N, 6 H d] = [Re (q | k | v) | Im (q | k | v)]. Of `args` heads, kind, output, causal, alpha, eps, den_eps
   and key_mask are read, sizes come from the tensors. key_mask must stay valid until the backward. Errors: SHAPE. */
CMHA_DEF cmha_tensor *cmha_linear_attention(cmha_tape *tape, const cmha_linear_args *args, cmha_tensor *q, cmha_tensor *k,
                                            cmha_tensor *v);
/* Mixing by lag (see cmha_lag_attention_forward), encoders only. q, k, v planes [B, N, 2 H d], or the fused form, as above; of
   `args` heads, temp, topk, eps and key_mask are read; key_mask must stay valid until the backward. Errors: SHAPE. */
CMHA_DEF cmha_tensor *cmha_lag_attention(cmha_tape *tape, const cmha_lag_args *args, cmha_tensor *q, cmha_tensor *k,
                                         cmha_tensor *v);

/* Phase contrastive learning (ComplexFormer 3.2, after EulerFormer eq 14; the paper gives eps and tau, not the form):

       sim(j, j') = (1/P) sum_r w_r cos(theta[j, r] - keep[j', r] theta[j', r])
       loss = mean over j of ( -sim(j, pos(j))/tau + logsumexp_j' sim(j, j')/tau )

   for one head's phases theta [N, P]. keep [N, P] of 0/1 masks phases to 0 (NULL: all kept); positive [N]
   names each token's positive (NULL: itself); valid [N] of 0/1 leaves out padding (NULL: all). Between
   phasors sim is a matrix product, of which 64 rows are in memory at a time. The loss is formed as log(1 +
   what the others weigh against the positive): it is never negative, however small tau is (unless a
   positive is padding). Returns the loss; lse [N, 2] is kept for the backward. */
typedef struct cmha_pcl_args {
    size_t N, P;
    cmha_real tau;
    const cmha_real *w;             /* [P] */
    const unsigned char *keep;
    const size_t *positive;
    const unsigned char *valid;
} cmha_pcl_args;

CMHA_DEF size_t cmha_pcl_scratch(const cmha_pcl_args *args); /* in cmha_real, for forward and backward */
CMHA_DEF double cmha_pcl_forward(const cmha_pcl_args *args, const cmha_real *theta, cmha_real *lse, cmha_real *scratch);
/* dtheta [N, P] += dloss d loss/d theta through both arguments, dw [P] likewise. */
CMHA_DEF void cmha_pcl_backward(const cmha_pcl_args *args, const cmha_real *theta, const cmha_real *lse, cmha_real dloss,
                                cmha_real *dtheta, cmha_real *dw, cmha_real *scratch);

/* Phase contrastive loss of the queries and keys in a fused projection qkv [B, N, (H + 2 Hkv) * d_k] ->
   [1], the mean over sequences and over the H heads of queries and Hkv of keys, all alike; w [P]. args as
   for cmha_attention; with grouped queries the adapted phase of a key is its first query head's. mask_rate:
   probability that a phase of the second view is masked. adapted 1: of the phases after delta, b and
   position, EulerFormer's choice; 0: of the raw phases theta. */
typedef struct cmha_pcl_options {
    cmha_real tau, mask_rate;
    int adapted;
} cmha_pcl_options;
CMHA_DEF cmha_tensor *cmha_pcl(cmha_tape *tape, const cmha_attention_args *args, cmha_tensor *qkv, cmha_tensor *delta,
                               cmha_tensor *b, cmha_tensor *w, const cmha_pcl_options *options);

/* ======================================================= Models ======================================================= */

typedef enum cmha_position {
    CMHA_POSITION_NONE,
    CMHA_POSITION_LEARNED,
    CMHA_POSITION_SINUSOIDAL,
    CMHA_POSITION_ALIBI,
    CMHA_POSITION_MULTIFREQ /* CRAT eq 2, for the other families too */
} cmha_position;
typedef enum cmha_delta_init { CMHA_DELTA_PAPER, CMHA_DELTA_ROPE_START, CMHA_DELTA_CONST } cmha_delta_init;
typedef enum cmha_norm { CMHA_NORM_LAYER, CMHA_NORM_RMS } cmha_norm;
typedef enum cmha_placement { CMHA_NORM_PRE, CMHA_NORM_POST } cmha_placement;
typedef enum cmha_pool { CMHA_POOL_FIRST, CMHA_POOL_MEAN } cmha_pool;
typedef enum cmha_init { CMHA_INIT_NORMAL, CMHA_INIT_XAVIER } cmha_init;

/* Which paper's model:
     real    x += attention(norm(x)), x += ffn(norm(x)): ComplexFormer and every baseline
     cope    CoPE: the first layer's queries and keys are complex projections of z = token + i gamma position, its score is
             cope_score; the imaginary part is never normed (placement = pre norms the real part alone) and
             goes no further, and the layers above are plain (`attention`)
     mobius  MöbiusAttention: the layers that mobius_wiring names have mobius_heads Möbius heads beside plain ones (its eq 10-19), or
             Möbius heads alone (eq 20-27). Their input is complex: real the layer below, imaginary the position embedding in the
             first layer and the token embedding in later ones (the paper says so of the last layer, and is
             silent on others), as it was before any norm; the layer's own ln1 then norms both
     crat    CRAT: a complex state of d_model/2 features; norm, angular attention and feed-forward layer complex:
             a = attention(norm(z)), a = window(a) in the layers that have one, z = r1 z + a, z = r2 z + ffn(norm(z)) (order ours, the
             paper has none). The window (irw_) mixes documents of a knowledge base in, ffn is a mixture of `experts` or one
             dense layer, r1 and r2 are 1 or learned complex numbers */
typedef enum cmha_family { CMHA_FAMILY_REAL, CMHA_FAMILY_COPE, CMHA_FAMILY_MOBIUS, CMHA_FAMILY_CRAT } cmha_family;

/* MöbiusAttention's ablation: which layers are Möbius layers. */
typedef enum cmha_wiring {
    CMHA_WIRING_FRAMED,     /* the first and the last */
    CMHA_WIRING_TOP,        /* the first */
    CMHA_WIRING_STACKED,    /* the first two */
    CMHA_WIRING_ALTERNATING /* every third, from the first on */
} cmha_wiring;

/* How eq 5-8 are read. Printed, every map is a vector of scalars; the paper's parameter counts and its "T" say otherwise. */
typedef enum cmha_mobius_mode {
    CMHA_MOBIUS_T,      /* "T": a complex linear map, then the Möbius map channel by channel; keys and values complex linear */
    CMHA_MOBIUS_FULL,   /* (A rho + b) / (C rho + d) with matrices A and C; keys and values complex linear */
    CMHA_MOBIUS_LITERAL /* as printed: queries, keys and values channel by channel, of the input's first
                           mobius_heads * d_k channels, d_k = d_model / n_heads; for teaching */
} cmha_mobius_mode;

typedef enum cmha_mobius_init { CMHA_MOBIUS_IDENTITY, CMHA_MOBIUS_ORTHO } cmha_mobius_init;
typedef enum cmha_crat_attention { CMHA_CRAT_ANGULAR, CMHA_CRAT_LINEAR, CMHA_CRAT_LAG, CMHA_CRAT_DOT } cmha_crat_attention;
/* The skip connection of CRAT eq 20, (alpha + i beta) z + f: 1; alpha and beta learned; or of modulus 1, its angle learned. */
typedef enum cmha_residual { CMHA_RESIDUAL_NONE, CMHA_RESIDUAL_FREE, CMHA_RESIDUAL_UNIT } cmha_residual;
enum { CMHA_COPE_LINEAR = 5 }; /* one more value of the field cope_score */

/* SIZE(member, default, minimum, maximum, help), REAL likewise, FLAG(member, default, help), ENUM(member, default, choices, help) */
#define CMHA_MODEL_FIELDS(SIZE, REAL, FLAG, ENUM)                                                                                \
    SIZE(n_layers, 8, 1, 1024, "blocks")                                                                                         \
    SIZE(d_model, 512, 1, 65536, "width of a token; divisible by n_heads")                                                       \
    SIZE(n_heads, 8, 1, 1024, "query heads")                                                                                     \
    SIZE(n_kv_heads, 0, 0, 1024, "key/value heads, a divisor of n_heads; 0 = n_heads")                                           \
    SIZE(d_ff, 1024, 1, 1048576, "width inside the feed-forward layer")                                                          \
    SIZE(vocabulary, 256, 1, 2147483647, "number of tokens; 256 = bytes")                                                        \
    SIZE(max_positions, 1024, 1, 16777216, "positions of the learned embedding; other kinds have no limit")                      \
    ENUM(family, CMHA_FAMILY_REAL, "real|cope|mobius|crat", "whose model, see cmha_family")                                      \
    ENUM(attention, CMHA_ATTENTION_CMHA, "cmha|rope|dot", "the score of plain layers and heads")                                 \
    ENUM(position, CMHA_POSITION_NONE, "none|learned|sinusoidal|alibi|multifreq", "positions outside the score; crat: always multifreq") \
    ENUM(share, CMHA_SHARE_PER_HEAD, "per_head|shared|fixed", "cmha: whose delta and b; fixed = 1 and 0")                        \
    ENUM(delta_init, CMHA_DELTA_PAPER, "paper|rope_start|const", "cmha: N(0, std^2), 1 + N(0, std^2), or delta_value")           \
    REAL(delta_std, 0.02, 0, 100, "cmha: spread of the initial delta")                                                           \
    REAL(delta_value, 1, -100, 100, "cmha: initial delta with delta_init = const")                                               \
    ENUM(layout, CMHA_LAYOUT_INTERLEAVED, "interleaved|half", "how a head is read as complex pairs")                             \
    ENUM(frequency, CMHA_FREQ_ROPE, "rope|literal|table", "base^(-2j/d_k), eq 6 as printed, or cmha_model_set_frequencies")      \
    REAL(base, 10000, 1, 1e12, "base of the frequencies")                                                                        \
    REAL(score_scale, 0, 0, 1e6, "factor on the score of plain, Möbius and angular heads; 0 = 1/sqrt(d_k)")                      \
    SIZE(window, 0, 0, 16777216, "sliding window: a token sees this many, itself included; 0 = all; needs causal")                             \
    FLAG(causal, 1, "a token sees no later one; 0: an encoder")                                                                  \
    SIZE(token_types, 0, 0, 65536, "kinds of tokens with an embedding of their own (sentence A, sentence B); 0 = none")          \
    SIZE(classes, 0, 0, 65536, "classes of a sequence; 1 = a regression; 0 = no such head")                                      \
    ENUM(pool, CMHA_POOL_FIRST, "first|mean", "what the class head sees: the first token ([CLS]) or the mean of all")            \
    REAL(label_range, 0, 0, 1e6, "regression: the value is label_range * sigmoid(logit); 0 = the logit itself")                  \
    ENUM(placement, CMHA_NORM_PRE, "pre|post", "norm before the sublayer, or after the residual sum")                            \
    ENUM(norm, CMHA_NORM_LAYER, "layernorm|rmsnorm", "kind of norm")                                                             \
    REAL(norm_eps, 1e-5, 0, 1, "epsilon of the norm")                                                                            \
    ENUM(activation, CMHA_GELU_ERF, "gelu_erf|gelu_tanh|swiglu|relu", "feed-forward non-linearity")                              \
    FLAG(attention_bias, 0, "biases on the q, k, v projections of plain heads and on the output projection")                     \
    FLAG(output_bias, 0, "a bias on the attention's output projection alone")                                                    \
    FLAG(ffn_bias, 1, "biases in the feed-forward layer")                                                                        \
    FLAG(tied, 1, "the output projection is the token embedding")                                                                \
    FLAG(embedding_scale, 0, "token embeddings times sqrt(d_model), so that sines beside them do not drown them")                \
    FLAG(head_bias, 0, "bias on the logits")                                                                                     \
    REAL(residual_scale, 1, 0, 100, "factor on each sublayer's output")                                                          \
    REAL(dropout, 0, 0, 0.95, "on embeddings and sublayer outputs")                                                              \
    REAL(attention_dropout, 0, 0, 0.95, "on attention probabilities; linear attention and mixing by lag have none")              \
    ENUM(init, CMHA_INIT_NORMAL, "normal|xavier", "weights N(0, init_std^2), or U(+-sqrt(6/(in + out))) and embeddings U(+-0.1)") \
    REAL(init_std, 0.02, 0, 10, "spread of the initial weights; projections into the residual: over sqrt(2 n_layers)")           \
    REAL(pcl_weight, 0, 0, 100, "phase contrastive loss: factor on its mean over layers (epsilon); 0 = off") \
    REAL(pcl_tau, 0.1, 1e-3, 1000, "phase contrastive loss: temperature")                                                        \
    REAL(pcl_mask, 0.5, 0, 0.99, "phase contrastive loss: share of masked phases")                                               \
    FLAG(pcl_adapted, 0, "phase contrastive loss: phases after delta, b and position")                                           \
    FLAG(pcl_learn, 1, "phase contrastive loss: learn the weights w")                                                            \
    REAL(complex_eps, 1e-6, 0, 1, "smoothing of phasors (crat) and of the cosine (cope)")                                        \
    ENUM(cope_score, CMHA_COPE_PHASE, "phase|magnitude|real|hybrid|hybrid_norm|linear", "cope: the first layer's score")         \
    ENUM(cope_imag, CMHA_COPE_SIN_DUP, "sin_dup|sin_cos|learned", "cope: the imaginary part of the embedding")                   \
    REAL(cope_gamma, 1, -1000, 1000, "cope: factor on the imaginary part")                                                       \
    REAL(cope_alpha, 0.2, -1000, 1000, "cope: weight of the cosine in the hybrids")                                              \
    REAL(cope_scale, 1, 0, 1e6, "cope: factor on the score, beside 1/sqrt(d_k): the inverse of a temperature")                   \
    FLAG(cope_repo_scale, 0, "cope: |A| and Re A over d_k, as the authors' code has it")                                         \
    ENUM(cope_max, 0, "row|head|global", "cope: whose maximum hybrid_norm divides by; causal models: row")                       \
    FLAG(cope_max_grad, 0, "cope: the gradient flows through that maximum")                                                      \
    SIZE(mobius_heads, 2, 0, 1024, "mobius: Möbius heads of a Möbius layer, beside plain ones; n_heads = Möbius heads alone")    \
    ENUM(mobius_wiring, CMHA_WIRING_FRAMED, "framed|top|stacked|alternating", "mobius: which layers")                            \
    ENUM(mobius_mode, CMHA_MOBIUS_T, "t|full|literal",                                                       \
         "mobius: what the maps are; literal reads the first mobius_heads * d_k channels")                   \
    ENUM(mobius_softmax, CMHA_SOFTMAX_RI_PRODUCT, "ri_product|real|ri_split|yang8|abs", "mobius: softmax of a complex score")    \
    FLAG(mobius_hermitian, 0, "mobius: q conj(k) instead of the paper's q k")                                                    \
    ENUM(mobius_quotient, CMHA_QUOTIENT_REG, "reg|exact|unit", "mobius: how the maps divide")                                    \
    REAL(mobius_eps, 1e-3, 0, 1e3, "mobius: epsilon of the quotient")                                                            \
    ENUM(mobius_init, CMHA_MOBIUS_IDENTITY, "identity|ortho", "mobius: normal or orthogonal matrices; maps start near identity")  \
    ENUM(crat_attention, CMHA_CRAT_ANGULAR, "angular|linear|lag|dot", "crat: softmax of cosines, its linear kernel, by lag, Re q conj k") \
    SIZE(real_heads, 0, 0, 1024, "crat: heads that see Re z alone")                                                              \
    SIZE(imag_heads, 0, 0, 1024, "crat: heads that see Im z alone; the others see both")                                         \
    ENUM(complex_norm, CMHA_CLN, "cln|crms|split|whiten", "crat: the norm")                                                      \
    SIZE(low_rank, 0, 0, 65536, "crat: rank of the attention's projections U V^H (eq 15); 0 = dense")                            \
    SIZE(pe_terms, 4, 1, 64, "multifreq: sines per channel (K of CRAT eq 2)")                                             \
    FLAG(state_rotation, 1, "crat: rotate the state by angles of its content (eq 6)")                                            \
    FLAG(state_gelu, 0, "crat: cGELU on the rotated state (the paper's stage 2 has a norm in between); it "  \
                        "crowds the phases into one quadrant")                                               \
    REAL(phase_reg, 0, 0, 1000, "crat: phase regularisation of the state before the final norm (lambda_p "   \
                                "of eq 23, the paper's is 1e-4)")                                            \
    REAL(mag_reg, 0, 0, 1000, "crat: magnitude regularisation of the state before the final norm (lambda_m " \
                              "of eq 24, the paper's is 1e-4)")                                              \
    REAL(lag_temp, 1, -1e6, 1e6, "crat, lag: factor on the correlations")                                                        \
    SIZE(lag_topk, 0, 0, 16777216, "crat, lag: the most lags mixed; 0 = all")                                                    \
    ENUM(complex_residual, CMHA_RESIDUAL_NONE, "none|free|unit", "crat: factor on the skip connection: 1, alpha + i beta, e^(i psi)") \
    SIZE(experts, 0, 0, 65536, "crat: experts of a layer (E of eq 21), each as wide as d_ff; 0 = one dense layer")                \
    SIZE(experts_top, 2, 1, 65536, "crat: experts a token goes through; with 1 its share is 1, and only `balance` teaches the router") \
    REAL(balance, 0, 0, 1000, "crat: weight of the load balance loss of each layer; the paper has none, 0.01 is usual")          \
    SIZE(irw_layers, 0, 0, 1024, "crat: layers with a reflection window into a knowledge base; 0 = none")                        \
    SIZE(irw_from, 0, 0, 1024, "crat: the first of them, counted from 1; 0 = the one in the middle of the depth")                \
    SIZE(irw_queries, 3, 1, 1024, "crat: queries a token asks (M of eq 17)")                                                     \
    SIZE(irw_top, 5, 1, 1024, "crat: documents a query finds (k)")                                                               \
    SIZE(irw_width, 0, 0, 65536, "crat: complex features of a document (d_r); 0 = d_model/2")                                    \
    REAL(irw_tau, 1, 1e-6, 1e6, "crat: temperature of the similarities")                                                         \
    REAL(irw_gate_tau, 1, 1e-6, 1e6, "crat: temperature of the reflection gate (tau of eq 19)")                                  \
    REAL(irw_threshold, -1, -1, 1, "crat: least similarity of a document that counts as found")                                  \
    ENUM(irw_fusion, CMHA_FUSION_CONVEX, "convex|additive", "crat: (1 - g) a + g r, or a + g r")                                 \
    FLAG(irw_raw, 0, "crat: the weights of the queries as they are, no softmax")                                                 \
    FLAG(recompute, 0, "training: blocks keep their input alone and run once more in the backward: less memory, a third more time")

enum { CMHA_CLIP_WHOLE }; /* the values after it are those of cmha_clip_mode, plus 1 */

#define CMHA_SIZE_MEMBER(name, initial, minimum, maximum, help) size_t name;
#define CMHA_REAL_MEMBER(name, initial, minimum, maximum, help) double name;
#define CMHA_FLAG_MEMBER(name, initial, help) int name;
#define CMHA_ENUM_MEMBER(name, initial, choices, help) int name;

typedef struct cmha_model_config {
    CMHA_MODEL_FIELDS(CMHA_SIZE_MEMBER, CMHA_REAL_MEMBER, CMHA_FLAG_MEMBER, CMHA_ENUM_MEMBER)
} cmha_model_config;

CMHA_DEF cmha_table cmha_model_table(void);

#define CMHA_TRAINER_FIELDS(SIZE, REAL, FLAG, ENUM)                                                                    \
    SIZE(steps, 1000, 1, 1000000000, "optimiser steps")                                                                \
    SIZE(batch, 8, 1, 1048576, "sequences per forward pass")                                                           \
    SIZE(length, 512, 1, 16777216, "tokens per sequence")                                                              \
    SIZE(accumulate, 1, 1, 1048576, "forward passes per step")                                                         \
    REAL(lr, 1e-4, 0, 100, "peak learning rate")                                                                       \
    REAL(min_lr, 0, 0, 100, "learning rate at the end")                                                                \
    REAL(warmup, 0.05, 0, 1, "share of the steps with a rising rate; step s, from 0, has the rate of s + 1") \
    ENUM(schedule, CMHA_COSINE, "cosine|linear|constant", "shape of the rate after the warm-up")                       \
    REAL(weight_decay, 0.01, 0, 100, "decoupled decay, of matrices and embeddings alone")                    \
    REAL(beta1, 0.9, 0, 0.999999, "decay of the first moment")                                                         \
    REAL(beta2, 0.98, 0, 0.9999999, "decay of the second moment")                                                      \
    REAL(adam_eps, 1e-9, 0, 1, "AdamW's epsilon")                                                                      \
    REAL(clip, 1, 0, 1e9, "largest norm of the gradient, see clip_mode; 0 = no clipping")                              \
    REAL(mask_rate, 0.15, 0, 1, "encoders: share of the tokens to be guessed (masked language model)")                 \
    SIZE(mask_token, 0, 0, 2147483647, "encoders: the token that stands for a hidden one, [MASK]")                     \
    ENUM(clip_mode, CMHA_CLIP_WHOLE, "whole|tensors|global|values",                                                    \
         "whole gradient; or CRAT eq 22, real and imaginary parts apart (Möbius maps: together), by tensor, by all, by value") \
    REAL(held_out, 0.1, 0, 0.9, "share of the tokens kept for validation, at the end of the text")                     \
    SIZE(eval_every, 100, 1, 1000000000, "steps between validations")                                                  \
    SIZE(eval_tokens, 65536, 1, 1000000000, "most tokens of the held-out text per validation")

typedef struct cmha_trainer_config {
    CMHA_TRAINER_FIELDS(CMHA_SIZE_MEMBER, CMHA_REAL_MEMBER, CMHA_FLAG_MEMBER, CMHA_ENUM_MEMBER)
} cmha_trainer_config;

CMHA_DEF cmha_table cmha_trainer_table(void);

/* Fills both configurations (each may be NULL) with a preset:
     tiny         the example: small enough to learn a text in minutes on two cores, starts at RoPE (delta = 1)
     encoder      a small encoder for classification: 4 layers, d 128, token types, RoPE
     paper        ComplexFormer's appendix A: 8 layers, d 512, 8 heads, d_ff 1024, dropout 0.1, AdamW 1e-4, delta ~ N(0, 0.02^2);
                  its optional phase contrastive loss is pcl_weight = 0.01
     repo         choices of the authors' public code: half-split pairs, no score scale, SwiGLU, RMSNorm, untied
     eulerformer  shared delta and b, post-norm, phase contrastive loss on adapted phases
     cope         CoPE's encoder: 6 layers, d 256, 8 heads, d_ff 1024, ReLU, post-norm, dropout 0.2, WordPiece vocabulary
     mobiusbert   MöbiusBERT "H & T": 11 layers, d 768, 12 heads, framed, half of the heads Möbius
     mobroformer  the same with RoPE in the plain heads, 12 layers
     crat         CRAT, all of it: 12 layers, d 768, 8 heads, a quarter of them real, a quarter imaginary, 8 experts of which a token
                  sees 2, learned complex residuals, one reflection window, regularisers 1e-4, component-wise clipping (what is in
                  its Table A1, which is missing, is ours)
   Errors: NOT_FOUND. */
CMHA_DEF cmha_status cmha_preset(const char *name, cmha_model_config *model, cmha_trainer_config *trainer);

/* Kinds of attention by a short name, for programs: kind i is a name and the fields it sets, e.g. "alibi" and "family=real
   attention=dot position=alibi"; NULL when there are no more. `lag` and cope_max other than row are for encoders (causal = 0). */
CMHA_DEF const char *cmha_kind_name(size_t i, const char **fields);
/* Sets the fields of a kind. Errors: NOT_FOUND. */
CMHA_DEF cmha_status cmha_kind(cmha_context *context, const char *name, cmha_model_config *model);

/* A named view into the model's parameter block. */
typedef struct cmha_parameter {
    char name[48];      /* as in a safetensors file: "blocks.0.attn.wq.weight" */
    cmha_tensor tensor;
    int decay;          /* does weight decay apply? Only to matrices and embeddings: norms, biases, delta,
                           b, pcl_w, pe.omega, pe.delta, the skips' alpha, beta and psi, irw.mix, Möbius
                           maps and the factors of keys and values in mobius_mode = literal have none */
    int is_complex;     /* the first axis is (real part, imaginary part) */
    int init;           /* how it starts; the library's own */
} cmha_parameter;

/* The parameters of one block; NULL where the configuration has none. wq, wk, wv lie one after another, so that one GEMM
   serves all three; likewise ffn.w1 (gate) and ffn.w3 (up) of SwiGLU. Complex weights are [2, O, I], complex vectors [2, O]. */
typedef struct cmha_block {
    cmha_tensor *ln1_weight, *ln1_bias, *qkv_weight, *qkv_bias, *wo_weight, *wo_bias, *delta, *b, *pcl_w;
    cmha_tensor *ln2_weight, *ln2_bias, *w1_weight, *w1_bias, *w2_weight, *w2_bias;
    cmha_tensor *ln3_weight, *ln3_bias;                        /* mobius */
    cmha_tensor *zq_weight, *zk_weight, *zv_weight;            /* cope (v real), mobius: complex projections */
    cmha_tensor *zq_bias, *zk_bias, *zv_bias;
    cmha_tensor *mobius, *divisor_weight, *divisor_bias;       /* mobius: maps [4, 2, d_q]; FULL: C and d */
    cmha_tensor *imag_wo_weight, *imag_wo_bias, *imag_w1_weight, *imag_w1_bias, *imag_w2_weight, *imag_w2_bias; /* all-Möbius */
    struct {
        cmha_tensor *weight, *view;                            /* [2, 3 n d_h, D] and the same as a real [2 * 3 n d_h, D] */
        cmha_tensor *u[3], *v[3];                              /* instead of it, low rank: of q, k and v */
    } group[3];                                                /* crat: real, imaginary and mixed heads */
    cmha_tensor *wo_u, *wo_v;
    cmha_tensor *alpha[2], *beta[2];                           /* crat: of the two sums (eq 20) */
    cmha_tensor *router_weight, *router_bias;                  /* crat: of the experts, whose layers are w1 and w2 [2, E, O, I] */
    cmha_irw_weights irw;                                      /* crat: the reflection window */
} cmha_block;

/* A decoder language model, or with causal = 0 an encoder, of any family (the others' blocks: see cmha_family); of the real one
       x = embedding(ids) + positions;  every block: x += attention(norm(x)), x += ffn(norm(x));  logits = norm(x) W^T
   (post-norm: x = norm(x + sublayer(x)), no final norm). */
typedef struct cmha_model {
    cmha_context *context;
    cmha_model_config config;
    cmha_parameter *parameters;
    size_t n_parameters;
    cmha_real *data, *grad;       /* one block each; grad is NULL until the first training pass */
    size_t size;                  /* numbers in each */
    cmha_block *blocks;
    cmha_tensor *fused;           /* the qkv and gate|up views the blocks point to */
    cmha_tensor *token_weight, *position_weight, *type_weight, *final_weight, *final_bias, *head_weight, *head_bias;
    cmha_tensor *class_weight, *class_bias;
    cmha_tensor *pe_omega, *pe_delta, *state_weight, *state_bias, *theta_weight, *theta_bias; /* multifreq; crat, eq 5 and 6 */
    double *omega;                /* [n_omega, d_k/2] */
    size_t n_omega;               /* 1, or n_heads after cmha_model_set_frequencies */
    cmha_real *alibi;             /* [n_heads] or NULL */
    const cmha_knowledge *knowledge; /* see cmha_model_set_knowledge */
    uint64_t knowledge_identity;  /* of the base set last, or that of the file the model was loaded from; 0 = none */
    uint64_t *expert_use;         /* [n_layers, experts]: tokens each got in training passes, but for padding;
                                     the caller may clear it. Or NULL */
    cmha_tape tape;               /* of the model's own passes */
    uint64_t opening;             /* which of the context's models; what was opened on another says STATE */
} cmha_model;

/* Tokens of a batch. Zero every member you do not set. */
typedef struct cmha_batch {
    const int32_t *ids, *targets;   /* [batch, length]; targets -1 are ignored */
    const unsigned char *key_mask;  /* [batch, length], 0 = padding, NULL = none */
    size_t batch, length;
    const int32_t *types;           /* [batch, length], below token_types; NULL = all 0 */
    const cmha_real *labels;        /* [batch]: the sequences' classes, whole numbers below `classes` (else TOKEN), or with classes = 1
                                       their values. Given, they are the objective, not the targets */
    const cmha_real *class_weights; /* [classes] or NULL */
} cmha_batch;

/* Allocates and initialises (normal weights, zero biases, delta by delta_init, from the context's seed). config NULL =
   defaults. Errors: ARGUMENT, SHAPE, OVERFLOW, MEMORY. */
CMHA_DEF cmha_status cmha_model_init(cmha_model *model, cmha_context *context, const cmha_model_config *config);
CMHA_DEF void cmha_model_close(cmha_model *model);
/* NULL if there is none of that name. */
CMHA_DEF cmha_parameter *cmha_model_find(cmha_model *model, const char *name);
/* The caller's frequencies omega [n_heads, d_k/2] in radians per position, copied; the model must have frequency = table. */
CMHA_DEF cmha_status cmha_model_set_frequencies(cmha_model *model, const double *omega);

/* The knowledge base that the windows of family = crat look into, NULL = none (a window then changes nothing). The model keeps the
   pointer; bases may be exchanged at any time between two calls. Errors: STATE (no window), SHAPE (its vectors do not have
   irw_width features). */
CMHA_DEF cmha_status cmha_model_set_knowledge(cmha_model *model, const cmha_knowledge *knowledge);

/* The forward pass as operations on the caller's tape -> logits [batch, length, vocabulary]; for objectives of one's own.
   extra_loss (or NULL) gets the weighted losses beside the objective (phase contrastive; CRAT eq 23-24) [1], or NULL where there
   are none or the tape does not record. */
CMHA_DEF cmha_tensor *cmha_model_forward(cmha_model *model, cmha_tape *tape, const cmha_batch *batch, cmha_tensor **extra_loss);
/* The same up to the final norm -> states [batch, length, d_model]. */
CMHA_DEF cmha_tensor *cmha_model_states(cmha_model *model, cmha_tape *tape, const cmha_batch *batch, cmha_tensor **extra_loss);
/* The class head as an operation -> [batch, classes] logits, or the values of a regression. Errors: STATE (classes = 0). */
CMHA_DEF cmha_tensor *cmha_model_scores(cmha_model *model, cmha_tape *tape, cmha_tensor *states, const unsigned char *key_mask);
/* scores [batch, classes] of the class head, without a tape. Errors: STATE (classes = 0), TOKEN, SHAPE, MEMORY. */
CMHA_DEF cmha_status cmha_model_classify(cmha_model *model, const cmha_batch *batch, cmha_real *scores);
/* Mean loss over targets or, if the batch has them, labels; without a tape. Errors: TOKEN, SHAPE (more positions than a learned
   embedding has), MEMORY. */
CMHA_DEF cmha_status cmha_model_loss(cmha_model *model, const cmha_batch *batch, double *loss);
/* logits [batch, length, vocabulary], without a tape; targets are not read. */
CMHA_DEF cmha_status cmha_model_logits(cmha_model *model, const cmha_batch *batch, cmha_real *logits);
/* Documents for a knowledge base: one vector per sequence, vectors [batch, d_model], read as d_r = d_model / 2 complex features.
   Feature j is the mean over the sequence's counted tokens of the phasors u(z_tj) of the model's states (cmha_model_states, as
   planes [Re | Im], eps complex_eps): a phase that recurs survives the mean, scattered ones cancel. The paper only says "encoded
   as complex vectors". A sequence without tokens gives 0. Without a tape. Errors: those of cmha_model_logits, SHAPE (odd
   d_model). */
CMHA_DEF cmha_status cmha_model_vectors(cmha_model *model, const cmha_batch *batch, cmha_real *vectors);
/* Forward and backward: adds weight * d loss / d parameter to the gradients. key seeds the dropout of this pass.
   *loss is the objective alone, without extra losses; NOT_FINITE (gradients then unspecified) when the total is NaN or infinite. */
CMHA_DEF cmha_status cmha_model_gradient(cmha_model *model, const cmha_batch *batch, double weight, uint64_t key, double *loss);
CMHA_DEF void cmha_model_zero_grad(cmha_model *model);

/* Bytes the allocator is asked for, before anything is allocated: the parameters alone, and the whole of training (parameters,
   gradients, moments, activations) at batch x length. Measured by dry runs of the same code, a step's and an evaluation's, so it is
   exact, with `recompute` and without; with classes > 0 it is that of labels, and hidden tokens (cmha_mask_tokens) take what more they need at their first
   step. Either pointer may be NULL. Errors: those of cmha_model_init. */
CMHA_DEF cmha_status cmha_model_memory(cmha_context *context, const cmha_model_config *config, size_t batch, size_t length,
                                       size_t *parameters, size_t *training);

/* ====================================================== Training ====================================================== */

/* AdamW with decoupled decay (Loshchilov & Hutter 2019) on n numbers: p -= lr wd p; m = beta1 m + (1 - beta1) g; v = beta2 v +
   (1 - beta2) g^2; p -= lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps), g scaled by grad_scale first. t counts from 1. */
typedef struct cmha_adamw_args {
    double lr, beta1, beta2, eps, weight_decay, grad_scale;
    size_t t;
} cmha_adamw_args;

CMHA_DEF void cmha_adamw(const cmha_adamw_args *args, size_t n, cmha_real *p, const cmha_real *g, cmha_real *m, cmha_real *v);

typedef enum cmha_schedule { CMHA_COSINE, CMHA_LINEAR, CMHA_CONSTANT } cmha_schedule;

/* Learning rate of step s = 0, 1, ...: base s/warmup while s < warmup; then from base to minimum along a
   half cosine or a line until `total`, and minimum from there on (CONSTANT: base). A trainer's step number
   s, from 0, takes the rate for s + 1, so that the first one is not lost to a rate of 0. */
CMHA_DEF double cmha_learning_rate(cmha_schedule schedule, double base, double minimum, size_t warmup, size_t total, size_t s);

/* A token stream in memory: width 1, 2 or 4 bytes a token, little endian in files. `data` is the library's after
   cmha_tokens_load, the caller's otherwise. */
typedef struct cmha_tokens {
    const void *data;
    size_t count;
    int width;
    cmha_context *owner; /* who frees data; NULL = the caller's memory */
    size_t bytes;
} cmha_tokens;

/* -1 beyond the end; 32-bit values above 2^31 - 1 come out negative. */
CMHA_DEF int32_t cmha_tokens_at(const cmha_tokens *tokens, size_t i);
/* The part [begin, end) of a stream, as a view, without what lies beyond its end. NULL is an empty stream. */
CMHA_DEF cmha_tokens cmha_tokens_part(const cmha_tokens *tokens, size_t begin, size_t end);

/* ---- Metrics ---- */
/* Scores of predictions over n examples, as GLUE defines them. All are 0 for n = 0. No allocation, no context. */

/* Share of the predicted classes that are the wanted ones. */
CMHA_DEF double cmha_accuracy(const int32_t *predicted, const int32_t *wanted, size_t n);
/* F1 of one class against all others, 2 TP / (2 TP + FP + FN); 0 where that class is neither predicted nor wanted. */
CMHA_DEF double cmha_f1(const int32_t *predicted, const int32_t *wanted, size_t n, int32_t positive);
/* Matthews correlation of classes 0 .. classes - 1, in the form for any number of them (Gorodkin 2004), which for two is
   (TP TN - FP FN) / sqrt((TP + FP) (TP + FN) (TN + FP) (TN + FN)); 0 where a factor is 0. A class outside that range gives NaN. */
CMHA_DEF double cmha_matthews(const int32_t *predicted, const int32_t *wanted, size_t n, size_t classes);
/* Pearson correlation, in [-1, 1]; 0 where x or y is constant (there is none then, and a model that predicts a constant has earned
   nothing). A NaN or an infinity in x or y gives NaN. */
CMHA_DEF double cmha_pearson(const double *x, const double *y, size_t n);
/* Pearson correlation of the ranks; equal values share the average of their ranks, so infinities are welcome. A NaN gives NaN.
   scratch [4 n]. */
CMHA_DEF double cmha_spearman(const double *x, const double *y, size_t n, double *scratch);

/* AdamW training of a model. Batches are drawn at random places that depend on (seed, step) alone, so a resumed run sees
   what the uninterrupted one would have seen. */
typedef struct cmha_trainer {
    cmha_context *context;
    cmha_model *model;
    cmha_trainer_config config;
    cmha_real *moments;       /* [2, size] */
    size_t size;              /* of the model when the trainer was opened */
    uint64_t opening;         /* of the model */
    int32_t *ids;             /* [2, batch * length]: ids, then targets */
    size_t step;              /* steps done */
    uint64_t seed;
    double grad_norm;         /* of the last step, before clipping */
    double lr;                /* of the last step */
    double best;              /* lowest validation loss so far, for programs that keep the best; infinity at first */
} cmha_trainer;

/* config NULL = defaults. Allocates gradients, moments and all activation memory now, so that steps allocate nothing.
   Errors: ARGUMENT, TOKEN (mask_token of an encoder), OVERFLOW, MEMORY. */
CMHA_DEF cmha_status cmha_trainer_init(cmha_trainer *trainer, cmha_model *model, const cmha_trainer_config *config);
CMHA_DEF void cmha_trainer_close(cmha_trainer *trainer);
/* One optimiser step on batches drawn from `tokens`; *loss is their mean cross-entropy: of every next token where the model is
   causal, of hidden tokens (cmha_mask_tokens) where it is not. NOT_FINITE: the loss or the gradient
   was NaN or infinite; parameters and moments are as before, the step is counted, so the next one draws other batches.
   Errors: ARGUMENT (fewer than length + 1 tokens), TOKEN. */
CMHA_DEF cmha_status cmha_trainer_step(cmha_trainer *trainer, const cmha_tokens *tokens, double *loss);
/* One optimiser step on the caller's batch (of at most config.batch x config.length tokens, so that nothing is allocated);
   `accumulate` does not matter. NOT_FINITE as for cmha_trainer_step. Errors: those of cmha_model_gradient. */
CMHA_DEF cmha_status cmha_trainer_fit(cmha_trainer *trainer, const cmha_batch *batch, double *loss);
/* The second half of a step, for an objective of the caller's own: clipping and AdamW on the gradients that cmha_backward over
   cmha_model_states or cmha_model_forward, or cmha_model_gradient, has added up in the model, which are 0 afterwards (call
   cmha_model_zero_grad before the first). *grad_norm (or NULL) is their norm before clipping. Batch and length of the configuration
   are not read: for this alone 1 and 1 will do, the activations being on the caller's tape. NOT_FINITE: the norm is NaN or
   infinite; parameters and moments are as before, the step is counted. Errors: STATE (a closed trainer), MEMORY. */
CMHA_DEF cmha_status cmha_trainer_apply(cmha_trainer *trainer, double *grad_norm);
/* BERT's objective (Devlin et al. 2019) on n tokens: each is chosen with probability `rate`; of the chosen 80 % become mask_token,
   10 % a token drawn from the vocabulary and 10 % stay. targets [n] gets the chosen ones' own ids and -1 elsewhere. A token with
   keep[i] = 0 (padding, [CLS]) is never chosen; keep may be NULL. */
CMHA_DEF void cmha_mask_tokens(int32_t *ids, int32_t *targets, size_t n, const unsigned char *keep, size_t vocabulary,
                               int32_t mask_token, double rate, cmha_rng *rng);
/* Mean loss over the targets (an encoder's hidden tokens) in consecutive windows of `tokens`, at most eval_tokens of them, the
   last window shorter if need be. 0 where no token was hidden. */
CMHA_DEF cmha_status cmha_trainer_evaluate(cmha_trainer *trainer, const cmha_tokens *tokens, double *loss);
/* Splits a stream into training text and its held-out tail by config.held_out. Either result may be NULL (not
   wanted); without a trainer nothing is held out. */
CMHA_DEF void cmha_trainer_split(const cmha_trainer *trainer, const cmha_tokens *all, cmha_tokens *train, cmha_tokens *held_out);

/* ===================================================== Inference ====================================================== */

/* ---- Fewer bytes ---- */

/* The matrices that a decoded token passes, packed once from a model as it is now: projections, feed-forward layers, windows and
   the vocabulary head (also where that is the token embedding, whose rows a token is looked up in stay as they are), of every
   family. What is small or needs its precision stays in the model, which must stay open: embeddings, norms, biases, phases, Möbius
   maps, experts and their routers, and the inner matrices V of low rank. Only read: any number of caches,
   also in several threads, may share it. After training on, make it again. */
struct cmha_quantised {
    cmha_context *context;
    const cmha_model *model;
    uint64_t opening;      /* of the model */
    cmha_storage storage;
    cmha_packed *matrices; /* in the order of the addresses of their sources */
    size_t n_matrices;
    void *memory;
    size_t bytes;          /* all its memory */
    size_t saved;          /* bytes of the matrices in the model that it stands for */
};

/* storage CMHA_STORAGE_BF16 or CMHA_STORAGE_INT8. Errors: ARGUMENT, STATE (a closed model), OVERFLOW, MEMORY. */
CMHA_DEF cmha_status cmha_quantise(cmha_quantised *quantised, const cmha_model *model, cmha_storage storage);
CMHA_DEF void cmha_quantised_close(cmha_quantised *quantised); /* after the caches that read it */

/* What one attention call of one layer keeps of the tokens so far. */
typedef struct cmha_slot {
    size_t key_heads, kv_heads, key_width, value_width; /* tiles of keys, rows of values */
    size_t state;                                       /* linear attention instead: numbers in all, whatever the length */
    size_t keys, values;                                /* where they begin in cmha_cache.memory */
} cmha_slot;

/* Transformed keys and values of the tokens so far, for `batch` sequences of equal length. Keys are kept as features (after
   delta, b and position; phasors; complex planes), transposed in tiles: a decoded token costs what plain attention costs. */
typedef struct cmha_cache {
    cmha_context *context;
    cmha_model *model;
    uint64_t opening;               /* of the model */
    size_t batch, capacity, length; /* sequences; tokens it can hold; tokens held */
    size_t first;                   /* tokens dropped by sliding */
    int slide;                      /* 1: a full cache forgets its oldest quarter and reads the rest again from position 0, which
                                       equals a fresh start with those tokens; 0: it is CMHA_ERR_FULL */
    cmha_slot *slots;               /* in the order of the calls */
    size_t n_slots;
    cmha_real *memory;              /* per slot keys [batch, key_heads, tiles, key_width, 64] and values [batch, kv_heads, tiles * 64,
                                       value_width], or the state */
    size_t size;                    /* in cmha_real */
    int has_state;
    cmha_storage storage;           /* of keys and values. BF16: two in 32 bits as in cmha_packed, a row of values padded to 32 */
    size_t ready;                   /* a pass over so many tokens has the memory it needs */
    int32_t *ids;                   /* [2, batch, capacity]: the tokens held, and the ones being read */
    cmha_tape tape;                 /* of its passes: several caches, also in several threads, may share a model that nobody trains
                                       (failures then share the line of cmha_error) */
} cmha_cache;

/* capacity: most tokens held; at most max_positions where these are learned. Errors: ARGUMENT, OVERFLOW, MEMORY, STATE (not
   causal). */
CMHA_DEF cmha_status cmha_cache_init(cmha_cache *cache, cmha_model *model, size_t batch, size_t capacity, int slide);
/* Zeroed: as cmha_cache_init has it. */
typedef struct cmha_cache_options {
    const cmha_quantised *weights; /* of the same model, read instead of the model's matrices, for prompts as for single tokens;
                                      open as long as the cache. NULL = none */
    cmha_storage storage;          /* of keys and values: FLOAT or BF16. The states of linear attention, sums over all tokens,
                                      stay cmha_real */
} cmha_cache_options;

/* The same with options, NULL = none. Errors: those of cmha_cache_init, ARGUMENT (another storage), STATE (weights that are not
   those of the model). */
CMHA_DEF cmha_status cmha_cache_init_with(cmha_cache *cache, cmha_model *model, size_t batch, size_t capacity, int slide,
                                          const cmha_cache_options *options);
CMHA_DEF void cmha_cache_close(cmha_cache *cache);
CMHA_DEF void cmha_cache_reset(cmha_cache *cache); /* holds no token afterwards */

/* Appends n tokens to each sequence, ids [batch, n], in one pass; logits [batch, vocabulary] of the last
   token (NULL = not wanted). A prompt is one call, each further token another. Of more tokens than a
   sliding cache can hold the last ones are read. Errors: FULL, TOKEN, OVERFLOW, MEMORY, STATE (the model
   or the weights were closed), what the caller's search returned; the cache is then as before. (Where a
   model looks into a knowledge base, the cache is copied for that before it slides and, of linear
   attention, at every call.) */
CMHA_DEF cmha_status cmha_cache_append(cmha_cache *cache, const int32_t *ids, size_t n, cmha_real *logits);

#define CMHA_SAMPLER_FIELDS(SIZE, REAL, FLAG, ENUM)                                                                     \
    REAL(temperature, 0.8, 0, 100, "divides the logits; 0 = greedy")                                                    \
    SIZE(top_k, 0, 0, 2147483647, "sample among the k likeliest; 0 = all")                                              \
    REAL(top_p, 0.95, 0, 1, "sample among the likeliest whose shares reach p (at least one); 1 = all")                  \
    REAL(repetition_penalty, 1, 0.01, 100, "divides positive and multiplies negative logits of recent tokens; 1 = off") \
    SIZE(penalty_window, 64, 0, 1024, "recent tokens the penalty looks at")

typedef struct cmha_sampler_config {
    CMHA_SAMPLER_FIELDS(CMHA_SIZE_MEMBER, CMHA_REAL_MEMBER, CMHA_FLAG_MEMBER, CMHA_ENUM_MEMBER)
} cmha_sampler_config;

CMHA_DEF cmha_table cmha_sampler_table(void);

/* Draws a token from logits [V]. recent [n_recent] feeds the penalty. scratch [2 * V]. NaN logits are never drawn; -1 if there is
   nothing to draw. */
CMHA_DEF int32_t cmha_sample(const cmha_sampler_config *config, const cmha_real *logits, size_t V, const int32_t *recent,
                             size_t n_recent, cmha_rng *rng, cmha_real *scratch);

/* Called with the new token of every sequence, tokens [batch]; anything but 0 stops. */
typedef int (*cmha_token_fn)(void *user, const int32_t *tokens, size_t batch);

/* Appends prompt [batch, n_prompt] (n_prompt > 0), then samples up to n_new tokens per sequence, each sequence from its own stream
   of `seed`, and appends every one but the last: to go on, give that one as the next prompt. sampler NULL = defaults. Errors: those
   of cmha_cache_append; STOPPED when the callback asked for it. */
CMHA_DEF cmha_status cmha_generate(cmha_cache *cache, const int32_t *prompt, size_t n_prompt, size_t n_new,
                                   const cmha_sampler_config *sampler, uint64_t seed, cmha_token_fn on_token, void *user);

/* ================================================ Files ================================================= */
/* Weights and training state are safetensors files (readable by the Python library of that name): 8 bytes of
   header length, a JSON header, then the raw little-endian tensors. */

typedef struct cmha_archive_tensor {
    const char *name;      /* UTF-8 */
    const char *dtype;     /* "F32", "F64", "F16", "BF16", "I64", ... */
    size_t shape[8];
    int rank;              /* 0 for a scalar */
    uint64_t begin, end;   /* bytes, from the first one after the header */
    size_t count;          /* product of shape */
} cmha_archive_tensor;

/* An open safetensors file: its header is checked whole before anything is read. */
typedef struct cmha_archive {
    cmha_context *context;
    char *path;
    cmha_archive_tensor *tensors; /* in the order of their names */
    size_t n_tensors;
    const char **metadata;        /* [2 * n_metadata]: key, value, key, value ... */
    size_t n_metadata;
    uint64_t data_begin;          /* bytes from the start of the file */
    void *file, *memory;
    size_t memory_size;
} cmha_archive;

/* Errors: NOT_FOUND, IO, FORMAT (one line says what is wrong with the header), MEMORY. */
CMHA_DEF cmha_status cmha_archive_open(cmha_archive *archive, cmha_context *context, const char *path);
CMHA_DEF void cmha_archive_close(cmha_archive *archive);
/* Finds a tensor or the value of a key; NULL = none. */
CMHA_DEF const cmha_archive_tensor *cmha_archive_find(const cmha_archive *archive, const char *name);
CMHA_DEF const char *cmha_archive_metadata(const cmha_archive *archive, const char *key);
/* Reads a whole tensor into out [count], converting from F64, F32, F16, BF16 or I64; the second one reads I64
   alone. Errors: FORMAT (another dtype), IO (a part of out may then be written). */
CMHA_DEF cmha_status cmha_archive_read(cmha_archive *archive, const cmha_archive_tensor *tensor,
                                       cmha_real *out);
CMHA_DEF cmha_status cmha_archive_read_i64(cmha_archive *archive, const cmha_archive_tensor *tensor,
                                           int64_t *out);

/* One tensor to be written. */
typedef struct cmha_archive_item {
    const char *name;
    const cmha_real *data;
    const size_t *shape;
    int rank;
    const char *dtype; /* NULL = cmha_real's, F32 or F64; "I64" or "U8": data points at int64_t or bytes */
} cmha_archive_item;

/* Writes a safetensors file, as every save here does: to a file of its own in the folder of `path`, flushed
   to the disk, then renamed over `path`. metadata [2 * n_metadata] of key, value. Errors: IO, MEMORY.
     - A crash leaves the old file or the new one. Of several writers at once the last one's stays, whole.
     - A link at `path` stays; the file that it names is replaced, or made. Only a regular file is replaced,
       and the new one has its permissions. (On Windows links and permissions are not looked at.)
     - A failure leaves nothing behind. A file larger than the process may write (RLIMIT_FSIZE) is a failure,
       not a signal.
     - A process that is killed leaves nothing where files need no name while they are written (Linux, most
       file systems), but for the moment before the renaming; then, and elsewhere at any time, it leaves
       cmha-XXXXXXXX.tmp in that folder, which may be deleted. */
CMHA_DEF cmha_status cmha_archive_write(cmha_context *context, const char *path,
                                        const cmha_archive_item *items, size_t n_items,
                                        const char *const *metadata, size_t n_metadata);

/* Saves parameters under their names, the configuration as metadata "cfg.<field>", and the identity of the
   model's knowledge base as "knowledge". */
CMHA_DEF cmha_status cmha_model_save(cmha_model *model, const char *path);
/* Opens a model from a file written by cmha_model_save or cmha_trainer_save. Every name, dtype and shape is
   checked against the configuration before a weight is read. Errors: NOT_FOUND, IO, FORMAT (a file without a
   configuration, for instance, whose weights may be for cmha_model_read), SHAPE, MEMORY. */
CMHA_DEF cmha_status cmha_model_load(cmha_model *model, cmha_context *context, const char *path);
/* Reads weights, whoever wrote them, into a model that is open: tensors of the parameters' names, F64, F32,
   F16 or BF16. Metadata is not read. *taken (or NULL) = parameters read. On an error the model is bit for bit
   as it was; while it reads, the weights are in memory twice. Errors: NOT_FOUND, IO, FORMAT, SHAPE, MEMORY,
   STATE.
     strict = 1: every parameter must be there in its shape, and no other tensor (but a checkpoint's moments);
                 the error line names them
     strict = 0: takes what fits by name, dtype and shape, which may be nothing; the log gets a warning for
                 every parameter and tensor that is left */
CMHA_DEF cmha_status cmha_model_read(cmha_model *model, const char *path, int strict, size_t *taken);
/* Saves model and training state: moments "optim.m.<name>", "optim.v.<name>", step, seed, best loss. A best
   that is NaN is saved as infinity, which is none. */
CMHA_DEF cmha_status cmha_trainer_save(cmha_trainer *trainer, const char *path);
/* Loads that state into an open trainer whose model has the same configuration. The trainer keeps its own
   configuration; where it is the saved one (metadata "trainer.<field>") and the tokens are the same, the run
   continues bit for bit. A model that looks into another knowledge base than the saved one did is refused
   (FORMAT). On an error trainer and model are bit for bit as before; while it reads, weights and moments are
   in memory twice. Errors: those of cmha_model_load. */
CMHA_DEF cmha_status cmha_trainer_load(cmha_trainer *trainer, const char *path);

/* Saves a knowledge base: vectors and features [n, 2 d_r], and where the base has them ids [n] (I64),
   text_begin [n + 1] (I64) and texts (U8); metadata "identity", a decimal. Errors: IO, MEMORY, STATE. */
CMHA_DEF cmha_status cmha_knowledge_save(const cmha_knowledge *knowledge, const char *path);
/* Opens a base from such a file, checked whole: sizes, order of the texts, finite vectors, features that are
   the vectors' phasors, and the identity, which is computed again. Only `vectors` must be there (F32, F64,
   F16 or BF16): a file from elsewhere needs no more. `search` is NULL afterwards. map = 0: all is read.
   map = 1: vectors and features stay in the file, mapped into memory, where system and file allow it (POSIX,
   little endian, dtype that of cmha_real; else they are read). From the beginning of this call until the base
   is closed nobody may then write into the file. If it gets shorter, the system ends the process (SIGBUS)
   where the base is used, and no status can say so; if its numbers change, the base changes. A save to the
   same path is no such writing: it replaces the file, and the base keeps the old one.
   Errors: NOT_FOUND, IO, FORMAT, NOT_FINITE, MEMORY, OVERFLOW. */
CMHA_DEF cmha_status cmha_knowledge_load(cmha_knowledge *knowledge, cmha_context *context, const char *path,
                                         int map);

/* Reads a file as a token stream of `width` bytes a token (1: text as bytes). Errors: NOT_FOUND, IO, FORMAT
   (an empty file; a size that is not a multiple of width), MEMORY. */
CMHA_DEF cmha_status cmha_tokens_load(cmha_tokens *tokens, cmha_context *context, const char *path,
                                      int width);
CMHA_DEF void cmha_tokens_close(cmha_tokens *tokens);

#endif /* CMHA_H */

/* ----------------------------------------------------------------------------------------------------------
   Stop here if you only want the API. The implementation follows, in the same rooms.
   ---------------------------------------------------------------------------------------------------------- */

#if ((defined(CMHA_IMPLEMENTATION) && !defined(CMHA_LINKED)) || defined(CMHA_STATIC)) &&                     \
    !defined(CMHA_IMPLEMENTATION_ONCE)
#define CMHA_IMPLEMENTATION_ONCE

/* -Ofast, -ffast-math and their parts let a compiler reorder sums and forget NaN and infinity. The code
   depends on both, so that it takes IEEE arithmetic back for itself alone. GCC's macros show every such
   flag; clang's show few, hence clang is always asked. Clang cannot do so on every target, nor, from 17 on,
   for -ffinite-math-only. */
#if defined(__clang__)
#ifdef __apple_build_version__
#define CMHA__CLANG (__clang_major__ + 1) /* Apple's 16 is LLVM's 17 */
#else
#define CMHA__CLANG __clang_major__
#endif
#if defined(__x86_64__) || defined(__i386__) || defined(__s390x__) || \
    (defined(__aarch64__) && CMHA__CLANG >= 16)
#define CMHA__FLOAT_CONTROL
#endif
#elif defined(__GNUC__) && !__GCC_IEC_559
#define CMHA__GCC_FAST
#endif

#if !defined(__cplusplus) && !defined(_MSC_VER) && __STDC_VERSION__ < 199901L
#error "cmha.h: its code is C99; compile the file that defines CMHA_IMPLEMENTATION with -std=c99 or later"
#elif defined(__clang__) && __FINITE_MATH_ONLY__ && CMHA__CLANG >= 17
#error "cmha.h: NaN and infinity are needed; add -fno-finite-math-only after -Ofast or -ffast-math"
#elif defined(__clang__) && (defined(__FAST_MATH__) || __FINITE_MATH_ONLY__) && !defined(CMHA__FLOAT_CONTROL)
#error "cmha.h: on this target clang cannot leave -ffast-math for a part of a file; add -fno-fast-math"
#else

#if defined(CMHA__GCC_FAST)
#pragma GCC push_options
#pragma GCC diagnostic push
#pragma GCC optimize("no-fast-math")
#elif defined(CMHA__FLOAT_CONTROL) && CMHA__CLANG >= 18 && !defined(__FAST_MATH__)
#pragma float_control(push) /* and not precise, which would ask for errno too */
#pragma clang fp reassociate(off) reciprocal(off)
#elif defined(CMHA__FLOAT_CONTROL)
#pragma float_control(precise, on, push)
#endif

/* ======================================================== Base ======================================================== */

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#ifdef _WIN32
#include <io.h>
#include <process.h>
#else
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#endif
#ifdef _OPENMP
#include <omp.h>
#endif

/* OpenBLAS's cblas.h brings <complex.h> along in C, whose `I` and `complex` would break the user's names. */
#ifndef CMHA_NO_CBLAS
#ifdef complex
#define CMHA__HAD_COMPLEX
#endif
#ifdef I
#define CMHA__HAD_I
#endif
#if defined(CMHA_CBLAS_HEADER)
#include CMHA_CBLAS_HEADER
#elif defined(__APPLE__)
#include <Accelerate/Accelerate.h>
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
#ifndef CMHA__HAD_COMPLEX
#undef complex
#endif
#ifndef CMHA__HAD_I
#undef I
#endif
#undef CMHA__HAD_COMPLEX
#undef CMHA__HAD_I
#endif

/* On x86 GCC compares without NaN wherever the command line has -ffinite-math-only, unless a function
   carries this attribute; a pragma for it ends with the first function. It means nothing to data. */
#if defined(CMHA__GCC_FAST) && (defined(__x86_64__) || defined(__i386__))
#pragma GCC diagnostic ignored "-Wattributes"
#define static __attribute__((target("ieee-fp"))) static
#ifndef CMHA_STATIC
#undef CMHA_DEF
#ifdef __cplusplus
#define CMHA_DEF extern "C" __attribute__((target("ieee-fp")))
#else
#define CMHA_DEF extern __attribute__((target("ieee-fp")))
#endif
#endif
#endif

/* -std=c99 hides these. Feature macros would come too late where a program includes system headers first. */
#if !defined(__cplusplus) && defined(__STRICT_ANSI__) && !defined(_WIN32)
extern int fchmod(int fd, mode_t mode);
extern int fsync(int fd);
extern ssize_t readlink(const char *path, char *to, size_t bytes);
extern int setenv(const char *name, const char *value, int replace);
#ifdef __linux__
extern int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags);
#endif
#endif

#if defined(__GNUC__) || defined(__clang__)
#define CMHA__UNUSED __attribute__((unused))
#define CMHA__COLD __attribute__((noinline, cold)) /* for what only numbers at the ends of their range need */
#ifdef _WIN32
#define CMHA__PRINTF(text, first) __attribute__((__format__(__gnu_printf__, text, first)))
#else
#define CMHA__PRINTF(text, first) __attribute__((__format__(__printf__, text, first)))
#endif
#else
#define CMHA__UNUSED
#define CMHA__COLD
#define CMHA__PRINTF(text, first)
#endif

/* The vector mathematics rounds by adding 1.5 * 2^23 and relies on every operation being rounded to float.
   Where it is not (an x87; GCC's -std=c99 on s390x), libm takes its place. 16 is what CPUs with half
   precision in registers say; their floats are floats. */
#if defined(CMHA_NO_SIMD) || (defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD != 0 && FLT_EVAL_METHOD != 16)
#define CMHA__SCALAR
#endif

#define CMHA__TEXT_(x) #x
#define CMHA__TEXT(x) CMHA__TEXT_(x)

/* ---- version, status, errors ---- */

#ifdef CMHA_DOUBLE
#define CMHA__VERSION_REAL "double"
#else
#define CMHA__VERSION_REAL "float"
#endif
#if defined(CMHA_NO_CBLAS)
#define CMHA__VERSION_BLAS ", built-in GEMM"
#elif defined(__APPLE__) && !defined(CMHA_CBLAS_HEADER)
#define CMHA__VERSION_BLAS ", Accelerate"
#else
#define CMHA__VERSION_BLAS ", CBLAS"
#endif
#ifdef _OPENMP
#define CMHA__VERSION_OMP ", OpenMP"
#else
#define CMHA__VERSION_OMP ""
#endif
#ifdef CMHA__SCALAR
#define CMHA__VERSION_SIMD ", no SIMD"
#else
#define CMHA__VERSION_SIMD ""
#endif

CMHA_DEF const char *cmha_version(void) {
    return CMHA__TEXT(CMHA_VERSION_MAJOR) "." CMHA__TEXT(CMHA_VERSION_MINOR) "."
        CMHA__TEXT(CMHA_VERSION_PATCH)
        " (" CMHA__VERSION_REAL CMHA__VERSION_BLAS CMHA__VERSION_OMP CMHA__VERSION_SIMD ")";
}

#ifndef CMHA_STATIC
CMHA_DEF void CMHA_CONFIGURATION(void) {}
#endif

CMHA_DEF const char *cmha_status_string(cmha_status status) {
    switch (status) {
#define CMHA__STATUS_CASE(name, text) case name: return text;
        CMHA_STATUSES(CMHA__STATUS_CASE)
#undef CMHA__STATUS_CASE
    case CMHA_STATUS_COUNT: break;
    }
    return "an unknown status";
}

CMHA__PRINTF(3, 4)
static cmha_status cmha__fail(cmha_context *ctx, cmha_status status, const char *format, ...);
static size_t cmha__utf8_length(const unsigned char *s);

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

/* Writes the context's line. Formats aside first: an argument may be the old line. */
static cmha_status cmha__fail(cmha_context *ctx, cmha_status status, const char *format, ...) {
    char line[sizeof ctx->detail];
    va_list arguments;
    if (!ctx) return status;
    va_start(arguments, format);
    if (vsnprintf(line, sizeof line, format, arguments) < 0) line[0] = 0;
    va_end(arguments);
    cmha__one_line(line);
    memcpy(ctx->detail, line, strlen(line) + 1);
    return status;
}

/* The analyser does not look into functions with variable arguments: it would take the result for any status. */
#ifdef __clang_analyzer__
#define cmha__fail(ctx, status, ...) ((void)cmha__fail(ctx, status, __VA_ARGS__), (status))
#endif

CMHA_DEF const char *cmha_error(const cmha_context *context) {
    return context ? context->detail : "";
}

/* ---- open or closed ---- */

#define CMHA__OPEN UINT32_C(0x636d6861)

static int cmha__is_open(const cmha_context *context) { return context && context->open == CMHA__OPEN; }

static int cmha__model_is_open(const cmha_model *model) { return model && cmha__is_open(model->context); }

/* Tells whether the model is still open in the opening that an object refers to. */
static int cmha__is_opening(const cmha_model *model, const cmha_context *context, uint64_t opening) {
    return cmha__model_is_open(model) && model->context == context && model->opening == opening;
}

/* ---- sizes and memory ---- */

static int cmha__mul(size_t a, size_t b, size_t *out) {
    if (b && a > (size_t)-1 / b) return 0;
    *out = a * b;
    return 1;
}

static int cmha__sum(size_t a, size_t b, size_t *out) {
    if (a > (size_t)-1 - b) return 0;
    *out = a + b;
    return 1;
}

/* Returns an array's length, or the largest size there is where counting it may have wrapped: no allocator has
   that. `about` bounds the length from above. */
static size_t cmha__countable(size_t length, double about) {
    return about < (double)(size_t)-1 ? length : (size_t)-1;
}

static void *cmha__take(cmha_context *ctx, size_t bytes) {
    const cmha_allocator *from = &ctx->config.allocator;
    if (!bytes) return NULL;
    return from->allocate ? from->allocate(from->user, bytes) : malloc(bytes);
}

static void cmha__give(cmha_context *ctx, void *memory, size_t bytes) {
    const cmha_allocator *to = &ctx->config.allocator;
    if (!memory) return;
    if (to->release) to->release(to->user, memory, bytes);
    else free(memory);
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

/* CMHA__FOR_CHUNKS(threads, n, lo, hi) { body } runs the body for each of at most `threads` chunks [lo, hi) of
   [0, n), one a thread. The chunks depend on threads and n alone, so sums kept for each of them are the same
   in every run. */
#define CMHA__PRAGMA(x) _Pragma(#x)
#ifdef _OPENMP
#define CMHA__PARALLEL(threads, n) \
    CMHA__PRAGMA(omp parallel for num_threads(cmha__chunks(threads, n)) if (cmha__chunks(threads, n) > 1))
#else
#define CMHA__PARALLEL(threads, n)
#endif
#define CMHA__FOR_CHUNKS(threads, n, lo, hi)                                                                 \
    CMHA__PARALLEL(threads, n)                                                                               \
    for (int cmha__chunk = 0; cmha__chunk < cmha__chunks(threads, n); cmha__chunk++)                         \
        for (size_t lo = cmha__cut(n, cmha__chunks(threads, n), cmha__chunk),                                \
                    hi = cmha__cut(n, cmha__chunks(threads, n), cmha__chunk + 1), cmha__once = lo < hi;      \
             cmha__once; cmha__once = 0)

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

CMHA_DEF uint64_t cmha_rng_next(cmha_rng *rng) {
    return cmha__mix(rng->key + ++rng->counter * CMHA__GOLDEN);
}

CMHA_DEF double cmha_rng_uniform(cmha_rng *rng) {
    return (double)(cmha_rng_next(rng) >> 11) * (1.0 / 9007199254740992.0);
}

CMHA_DEF double cmha_rng_normal(cmha_rng *rng) {
    double u = 1.0 - cmha_rng_uniform(rng); /* in (0, 1], so that its logarithm is finite */
    double v = cmha_rng_uniform(rng);
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586476925 * v);
}

CMHA_DEF uint64_t cmha_rng_below(cmha_rng *rng, uint64_t n) {
    uint64_t surplus, x;
    if (!n) return 0;
    surplus = (UINT64_C(0) - n) % n; /* 2^64 mod n: this many values would favour the small results */
    do x = cmha_rng_next(rng);
    while (x < surplus);
    return x % n;
}

/* ---- order, without the C library's qsort, which may call malloc ---- */

typedef int (*cmha__compare)(const void *a, const void *b);

static void cmha__sift(const void **items, size_t root, size_t n, cmha__compare compare) {
    const void *moved = items[root];
    size_t child;
    while ((child = 2 * root + 1) < n) {
        if (child + 1 < n && compare(items[child], items[child + 1]) < 0) child++;
        if (compare(moved, items[child]) >= 0) break;
        items[root] = items[child];
        root = child;
    }
    items[root] = moved;
}

static void cmha__sort(const void **items, size_t n, cmha__compare compare) {
    for (size_t i = n / 2; i-- > 0;) cmha__sift(items, i, n, compare);
    for (size_t i = n; i-- > 1;) {
        const void *top = items[0];
        items[0] = items[i];
        items[i] = top;
        cmha__sift(items, 0, i, compare);
    }
}

/* ---- numbers as text, whatever the locale's decimal point ---- */

static size_t cmha__write_u64(uint64_t value, char *text) {
    char digits[24];
    size_t n = 0;
    do digits[n++] = (char)('0' + (int)(value % 10));
    while (value /= 10);
    for (size_t i = 0; i < n; i++) text[i] = digits[n - 1 - i];
    text[n] = 0;
    return n;
}

static int cmha__parse_u64(const char *text, uint64_t *value) {
    uint64_t x = 0;
    if (!*text) return 0;
    for (; *text; text++) {
        unsigned digit = (unsigned)(*text - '0');
        if (*text < '0' || *text > '9' || x > (UINT64_MAX - digit) / 10) return 0;
        x = x * 10 + digit;
    }
    *value = x;
    return 1;
}

/* Reads plain decimal numbers and inf: strtod alone would take blanks, hexadecimal and NaN as well. */
static int cmha__parse_real(const char *text, double *value) {
    char local[96], half[16], *end;
    size_t used = 0, point;
    snprintf(half, sizeof half, "%.1f", 0.5);
    point = strlen(half) - 2;
    if (strcmp(text, "inf") == 0 || strcmp(text, "-inf") == 0) {
        *value = *text == '-' ? -HUGE_VAL : HUGE_VAL;
        return 1;
    }
    for (; *text; text++) {
        if (!strchr("0123456789+-.eE", *text) || used + point + 1 >= sizeof local) return 0;
        if (*text != '.') local[used++] = *text;
        else for (size_t i = 0; i < point; i++) local[used++] = half[1 + i];
    }
    local[used] = 0;
    *value = strtod(local, &end);
    return used > 0 && *end == 0;
}

/* Writes the shorter of 15 and 17 digits that reads back to the same value; text holds 32 bytes. */
static void cmha__write_real(double value, char *text) {
    double back;
    size_t kept = 0;
    for (int digits = 15; digits <= 17; digits += 2) {
        snprintf(text, 32, "%.*g", digits, value);
        back = strtod(text, NULL);
        if (!(back < value) && !(back > value)) break;
    }
    for (size_t i = 0; text[i]; i++) {
        int plain = strchr("0123456789+-einfa", text[i]) != NULL;
        if (plain) text[kept++] = text[i];
        else if (kept && text[kept - 1] != '.') text[kept++] = '.';
    }
    text[kept] = 0;
}

/* ---- configuration tables ---- */

/* A row holds no range for an ENUM: its list of choices is the range. */
#define CMHA__SIZE_ROW(name, initial, minimum, maximum, help)                                          \
    {#name, CMHA_FIELD_SIZE, offsetof(CMHA__OWNER, name), (double)(initial), (double)(minimum),        \
     (double)(maximum), NULL, help},
#define CMHA__REAL_ROW(name, initial, minimum, maximum, help)                                          \
    {#name, CMHA_FIELD_REAL, offsetof(CMHA__OWNER, name), (double)(initial), (double)(minimum),        \
     (double)(maximum), NULL, help},
#define CMHA__FLAG_ROW(name, initial, help) \
    {#name, CMHA_FIELD_FLAG, offsetof(CMHA__OWNER, name), (double)(initial), 0.0, 1.0, NULL, help},
#define CMHA__ENUM_ROW(name, initial, choices, help) \
    {#name, CMHA_FIELD_ENUM, offsetof(CMHA__OWNER, name), (double)(initial), 0.0, 0.0, choices, help},
#define CMHA__TABLE(walk)                                                                                    \
    static const cmha_field rows[] = {walk(CMHA__SIZE_ROW, CMHA__REAL_ROW, CMHA__FLAG_ROW, CMHA__ENUM_ROW)}; \
    cmha_table table;                                                                                        \
    table.fields = rows;                                                                                     \
    table.count = sizeof rows / sizeof *rows;                                                                \
    return table

#define CMHA__OWNER cmha_model_config
CMHA_DEF cmha_table cmha_model_table(void) { CMHA__TABLE(CMHA_MODEL_FIELDS); }
#undef CMHA__OWNER
#define CMHA__OWNER cmha_trainer_config
CMHA_DEF cmha_table cmha_trainer_table(void) { CMHA__TABLE(CMHA_TRAINER_FIELDS); }
#undef CMHA__OWNER
#define CMHA__OWNER cmha_sampler_config
CMHA_DEF cmha_table cmha_sampler_table(void) { CMHA__TABLE(CMHA_SAMPLER_FIELDS); }
#undef CMHA__OWNER

/* Names a table, for the word before the colon of an error line. */
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
    return i < 0 ? 0 : strcspn(choices, "|");
}

static void cmha__field_store(const cmha_field *field, void *config, double value) {
    char *member = (char *)config + field->offset;
    if (field->type == CMHA_FIELD_SIZE) {
        size_t size = (size_t)value;
        memcpy(member, &size, sizeof size);
    } else if (field->type == CMHA_FIELD_REAL) {
        memcpy(member, &value, sizeof value);
    } else { /* converted here alone: a real may be negative or too large for the whole numbers */
        int whole = (int)value;
        memcpy(member, &whole, sizeof whole);
    }
}

static double cmha__field_value(const cmha_field *field, const void *config) {
    const char *member = (const char *)config + field->offset;
    size_t size;
    int whole;
    double value;
    if (field->type == CMHA_FIELD_SIZE) {
        memcpy(&size, member, sizeof size);
        return (double)size;
    }
    if (field->type == CMHA_FIELD_REAL) {
        memcpy(&value, member, sizeof value);
        return value;
    }
    memcpy(&whole, member, sizeof whole);
    return whole;
}

static int cmha__field_fits(const cmha_field *field, double value) {
    const char *begin;
    if (field->type == CMHA_FIELD_ENUM)
        return value >= 0 && value < 4096 && cmha__choice(field->choices, (int)value, &begin) > 0;
    return value >= field->minimum && value <= field->maximum; /* false for NaN */
}

static cmha_status cmha__field_fail(cmha_context *ctx, cmha_table table, const cmha_field *field,
                                    const char *value) {
    const char *of = cmha__table_name(table);
    switch (field->type) {
    case CMHA_FIELD_SIZE:
        return cmha__fail(ctx, CMHA_ERR_ARGUMENT, "%s: %s = %.40s is not a whole number from %.10g to %.10g",
                          of, field->name, value, field->minimum, field->maximum);
    case CMHA_FIELD_REAL:
        return cmha__fail(ctx, CMHA_ERR_ARGUMENT, "%s: %s = %.40s is not a number from %.10g to %.10g", of,
                          field->name, value, field->minimum, field->maximum);
    case CMHA_FIELD_FLAG:
        return cmha__fail(ctx, CMHA_ERR_ARGUMENT, "%s: %s = %.40s is not 0 or 1", of, field->name, value);
    case CMHA_FIELD_ENUM: break;
    }
    return cmha__fail(ctx, CMHA_ERR_ARGUMENT, "%s: %s = %.40s is not one of %s", of, field->name, value,
                      field->choices);
}

static int cmha__parse_flag(const char *text, double *value) {
    static const char *const words[] = {"0", "1", "false", "true", "off", "on"};
    for (int i = 0; i < 6; i++)
        if (strcmp(text, words[i]) == 0) {
            *value = i % 2;
            return 1;
        }
    return 0;
}

static int cmha__parse_choice(const char *choices, const char *text, double *value) {
    const char *begin = choices;
    size_t length;
    for (int i = 0; (length = cmha__choice(choices, i, &begin)) > 0; i++)
        if (strlen(text) == length && memcmp(text, begin, length) == 0) {
            *value = i;
            return 1;
        }
    return 0;
}

static int cmha__parse_field(const cmha_field *field, const char *text, double *value) {
    uint64_t whole;
    switch (field->type) {
    case CMHA_FIELD_SIZE:
        if (!cmha__parse_u64(text, &whole)) return 0;
        *value = (double)whole;
        return 1;
    case CMHA_FIELD_REAL: return cmha__parse_real(text, value);
    case CMHA_FIELD_FLAG: return cmha__parse_flag(text, value);
    case CMHA_FIELD_ENUM: break;
    }
    return cmha__parse_choice(field->choices, text, value);
}

CMHA_DEF void cmha_config_defaults(cmha_table table, void *config) {
    if (!config) return;
    for (size_t i = 0; i < table.count; i++)
        cmha__field_store(&table.fields[i], config, table.fields[i].initial);
}

CMHA_DEF cmha_status cmha_config_set(cmha_context *context, cmha_table table, void *config, const char *name,
                                     const char *value) {
    double number;
    if (!config || !name || !value)
        return cmha__fail(context, CMHA_ERR_ARGUMENT, "config set: config, name or value is NULL");
    for (size_t i = 0; i < table.count; i++) {
        const cmha_field *field = &table.fields[i];
        if (strcmp(field->name, name) != 0) continue;
        if (!cmha__parse_field(field, value, &number) || !cmha__field_fits(field, number))
            return cmha__field_fail(context, table, field, value);
        cmha__field_store(field, config, number);
        return CMHA_OK;
    }
    return cmha__fail(context, CMHA_ERR_NOT_FOUND, "%s: no option named %.60s", cmha__table_name(table),
                      name);
}

CMHA_DEF cmha_status cmha_config_set_all(cmha_context *context, cmha_table table, void *config,
                                         const char *text) {
    char name[64], value[64];
    cmha_status status = CMHA_OK;
    if (!text || !config)
        return cmha__fail(context, CMHA_ERR_ARGUMENT, "config: the text or the configuration is NULL");
    for (text += strspn(text, " "); *text && !status; text += strspn(text, " ")) {
        size_t n = strcspn(text, "= "), m, room = sizeof name - 1;
        const char *after = text + n + (text[n] == '=');
        m = strcspn(after, " ");
        snprintf(name, sizeof name, "%.*s", (int)(n < room ? n : room), text);
        snprintf(value, sizeof value, "%.*s", (int)(m < room ? m : room), after);
        status = n > room || m > room
                     ? cmha__fail(context, CMHA_ERR_ARGUMENT, "%s: %.40s is longer than any option or value",
                                  cmha__table_name(table), n > room ? name : value)
                     : cmha_config_set(context, table, config, name, value);
        text = after + m;
    }
    return status;
}

CMHA_DEF void cmha_config_get(cmha_table table, const void *config, size_t i, char *text, size_t size) {
    const cmha_field *field;
    const char *begin = NULL;
    char line[32];
    double value;
    size_t length, whole;
    if (!text || !size) return;
    text[0] = 0;
    if (i >= table.count || !config) return;
    field = &table.fields[i];
    value = cmha__field_value(field, config);
    if (field->type == CMHA_FIELD_SIZE) {
        memcpy(&whole, (const char *)config + field->offset, sizeof whole);
        cmha__write_u64(whole, line);
    } else cmha__write_real(value, line);
    if (field->type == CMHA_FIELD_ENUM && cmha__field_fits(field, value)) {
        length = cmha__choice(field->choices, (int)value, &begin);
        if (length > sizeof line - 1) length = sizeof line - 1;
        memcpy(line, begin, length);
        line[length] = 0;
    }
    length = strlen(line);
    if (length > size - 1) length = size - 1;
    memcpy(text, line, length);
    text[length] = 0;
}

CMHA_DEF cmha_status cmha_config_check(cmha_context *context, cmha_table table, const void *config) {
    char text[32];
    if (!config) return cmha__fail(context, CMHA_ERR_ARGUMENT, "config: the configuration is NULL");
    for (size_t i = 0; i < table.count; i++) {
        if (cmha__field_fits(&table.fields[i], cmha__field_value(&table.fields[i], config))) continue;
        cmha_config_get(table, config, i, text, sizeof text);
        return cmha__field_fail(context, table, &table.fields[i], text);
    }
    return CMHA_OK;
}

/* ---- which BLAS, and how fast ---- */

/* Weak references, so that a program linked with another CBLAS still links: there they are NULL. */
#if !defined(CMHA_NO_CBLAS) && !defined(__APPLE__) && defined(__ELF__) && defined(__GNUC__)
#define CMHA__OPENBLAS
#ifdef __cplusplus
extern "C" {
#endif
extern char *openblas_get_corename(void) __attribute__((weak));
extern char *openblas_get_config(void) __attribute__((weak));
extern int openblas_get_num_threads(void) __attribute__((weak));
extern void openblas_set_num_threads(int n) __attribute__((weak));
#ifdef __cplusplus
}
#endif
#define CMHA__BLAS_HAS(function) (function != NULL)
#elif !defined(CMHA_NO_CBLAS) && defined(OPENBLAS_VERSION)
#define CMHA__OPENBLAS
#define CMHA__BLAS_HAS(function) 1
#endif

/* Returns the kernel family that OpenBLAS chose, NULL if the BLAS is another. */
static const char *cmha__blas_core(void) {
#ifdef CMHA__OPENBLAS
    if (CMHA__BLAS_HAS(openblas_get_corename)) return openblas_get_corename();
#endif
    return NULL;
}

CMHA_DEF const char *cmha_blas_name(char *buffer, size_t size) {
#if defined(CMHA_NO_CBLAS)
    const char *name = "built-in";
#elif defined(__APPLE__) && !defined(CMHA_CBLAS_HEADER)
    const char *name = "Accelerate";
#else
    const char *name = "CBLAS";
#endif
    const char *core = cmha__blas_core();
    if (!buffer || !size) return "";
    if (core) snprintf(buffer, size, "OpenBLAS %s", core);
    else snprintf(buffer, size, "%s", name);
    return buffer;
}

#if defined(CMHA__OPENBLAS) && defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
/* Ranks a kernel family: 0 SSE, 1 AVX, 2 AVX2, 3 AVX-512; -1 unknown to us. */
static int cmha__core_rank(const char *core) {
    static const char *const names[4] = {
        ("|Katmai|Coppermine|Northwood|Prescott|Banias|Atom|Core2|Penryn|Dunnington|Nehalem|Athlon|Opteron|"
         "Opteron_SSE3|Barcelona|Nano|Bobcat|"),
        "|Sandybridge|Bulldozer|Piledriver|Steamroller|",
        "|Haswell|Zen|Excavator|",
        "|SkylakeX|Cooperlake|SapphireRapids|"};
    char key[40];
    snprintf(key, sizeof key, "|%s|", core);
    for (int rank = 0; rank < 4; rank++)
        if (strstr(names[rank], key)) return rank;
    return -1;
}

static int cmha__cpu_rank(void) {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        return 3;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? 2 : 0;
}
#endif

/* Tells whether OpenBLAS runs a kernel slower than the built-in product, as this code was compiled. Every
   product asks, so the names of the good ones come first. */
CMHA__UNUSED static int cmha__blas_is_behind(void) {
#if defined(CMHA__OPENBLAS) && defined(__AVX2__) && defined(__FMA__) && !defined(CMHA__SCALAR)
    const char *core = cmha__blas_core();
    if (!core || !strcmp(core, "SkylakeX") || !strcmp(core, "Haswell") || !strcmp(core, "Zen")) return 0;
    return cmha__core_rank(core) == 0;
#else
    return 0;
#endif
}

CMHA_DEF const char *cmha_blas_remedy(void) {
#if defined(CMHA__OPENBLAS) && defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
    const char *core = cmha__blas_core();
    int rank = core ? cmha__core_rank(core) : -1, cpu = cmha__cpu_rank();
    if (rank < 0 || rank >= cpu) return NULL;
    if (CMHA__BLAS_HAS(openblas_get_config) && !strstr(openblas_get_config(), "DYNAMIC_ARCH"))
        return NULL; /* has one kernel only and does not read the variable */
    return cpu == 3 ? "OPENBLAS_CORETYPE=SkylakeX" : "OPENBLAS_CORETYPE=Haswell";
#else
    return NULL;
#endif
}

#ifdef __linux__
/* Adds NAME=VALUE to the environment; 0 if the name was there: set by the user, or by us before this exec. */
static int cmha__environment_add(const char *setting) {
    const char *value = strchr(setting, '=') + 1;
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)(value - setting) - 1, setting);
    return !getenv(name) && setenv(name, value, 1) == 0;
}
#endif

CMHA_DEF void cmha_blas_restart(char **argv) {
#ifdef __linux__
    const char *remedy = cmha_blas_remedy();
    int changed = 0;
    if (!argv || !argv[0]) return;
    if (remedy) changed |= cmha__environment_add(remedy);
#ifdef _OPENMP
    if (!getenv("OMP_WAIT_POLICY")) changed |= cmha__environment_add("GOMP_SPINCOUNT=4000");
#endif
    if (changed) execv("/proc/self/exe", argv);
#else
    (void)argv;
#endif
}

/* ---- context ---- */

static int cmha__threads(int wanted) {
#ifdef _OPENMP
    int n = wanted > 0 ? wanted : omp_get_max_threads();
    return n < 1 ? 1 : n > 1024 ? 1024 : n;
#else
    (void)wanted;
    return 1;
#endif
}

static void cmha__blas_single(cmha_context *context) {
#ifdef CMHA__OPENBLAS
    if (!CMHA__BLAS_HAS(openblas_get_num_threads) || !CMHA__BLAS_HAS(openblas_set_num_threads)) return;
    if (openblas_get_num_threads() <= 1) return;
    context->blas_threads = openblas_get_num_threads();
    openblas_set_num_threads(1);
#else
    (void)context;
#endif
}

static void cmha__warn_blas(const cmha_context *context) {
    const char *remedy = cmha_blas_remedy(), *core = cmha__blas_core();
    char line[256];
    if (!remedy || !core || !context->config.log) return;
    snprintf(line, sizeof line,
             "OpenBLAS uses its %s kernel, which leaves this CPU at about a quarter to a half of its speed%s; "
             "set %s in the environment before the program starts",
             core, cmha__blas_is_behind() ? " (so the built-in product takes its place)" : "", remedy);
    context->config.log(context->config.log_user, CMHA_LOG_WARNING, line);
}

CMHA_DEF cmha_status cmha_context_init(cmha_context *context, const cmha_context_config *config) {
    cmha_context_config copy;
    if (!context) return CMHA_ERR_ARGUMENT;
    memset(&copy, 0, sizeof copy);
    if (config) copy = *config;
    memset(context, 0, sizeof *context);
    if (copy.threads < 0)
        return cmha__fail(context, CMHA_ERR_ARGUMENT, "context: threads = %d is negative", copy.threads);
    if (!copy.allocator.allocate != !copy.allocator.release)
        return cmha__fail(context, CMHA_ERR_ARGUMENT, "context: the allocator lacks %s",
                          copy.allocator.allocate ? "release" : "allocate");
    context->config = copy;
    context->threads = cmha__threads(copy.threads);
    context->open = CMHA__OPEN;
    if (!copy.keep_blas_threads) cmha__blas_single(context);
    cmha__warn_blas(context);
    return CMHA_OK;
}

CMHA_DEF void cmha_context_close(cmha_context *context) {
    if (!context || context->open != CMHA__OPEN) return;
#ifdef CMHA__OPENBLAS
    if (context->blas_threads > 0) openblas_set_num_threads(context->blas_threads);
#endif
    context->open = 0; /* the allocator stays, for what is closed too late */
    context->blas_threads = 0;
    context->detail[0] = 0;
}

/* ---- the built-in matrix product: packed panels, one register tile at a time ---- */

#if defined(__GNUC__) && !defined(CMHA__SCALAR)
#define CMHA__GEMM_VECTORS
#if defined(__AVX512F__)
#define CMHA__VECTOR_BYTES 64
#define CMHA__GEMM_MR 12
#elif defined(__AVX__)
#define CMHA__VECTOR_BYTES 32
#define CMHA__GEMM_MR 6
#else
#define CMHA__VECTOR_BYTES 16
#ifdef __aarch64__
#define CMHA__GEMM_MR 8
#else
#define CMHA__GEMM_MR 6
#endif
#endif
#define CMHA__GEMM_LANES (CMHA__VECTOR_BYTES / (int)sizeof(cmha_real))
#define CMHA__GEMM_NR (2 * CMHA__GEMM_LANES)
#define CMHA__ALIGNED __attribute__((aligned(64)))
typedef cmha_real cmha__gemm_lanes __attribute__((vector_size(CMHA__VECTOR_BYTES)));
#else
#define CMHA__GEMM_MR 4
#define CMHA__GEMM_NR 8
#define CMHA__ALIGNED
#endif

/* Depth and width of the packed piece of B: 64 KiB of stack, so that a thread of 128 KiB, which is what musl
   gives, has room for it. Twice as much would be a tenth faster. */
#define CMHA__GEMM_KC 128
#define CMHA__GEMM_NC (64 * 1024 / CMHA__GEMM_KC / (int)sizeof(cmha_real))

/* Under -std=c99 GCC does not fuse a multiplication and an addition, and clang cuts 512-bit vectors in two,
   unless they are asked to. */
#if defined(CMHA__GEMM_VECTORS) && defined(__clang__)
#define CMHA__FUSED __attribute__((min_vector_width(CMHA__VECTOR_BYTES * 8)))
#define CMHA__FUSE _Pragma("STDC FP_CONTRACT ON")
#elif defined(CMHA__GEMM_VECTORS)
#define CMHA__FUSED __attribute__((optimize("fp-contract=fast")))
#define CMHA__FUSE
#else
#define CMHA__FUSED
#define CMHA__FUSE
#endif

/* tile [MR, NR] = sum over k of a [K, MR] b [K, NR] */
CMHA__FUSED static void cmha__gemm_tile(size_t K, const cmha_real *a, const cmha_real *b, cmha_real *tile) {
    CMHA__FUSE
#ifdef CMHA__GEMM_VECTORS
    cmha__gemm_lanes sum[CMHA__GEMM_MR][2], b0, b1;
    int i;
    memset(sum, 0, sizeof sum);
    for (; K > 0; K--, a += CMHA__GEMM_MR, b += CMHA__GEMM_NR) {
        memcpy(&b0, b, sizeof b0);
        memcpy(&b1, b + CMHA__GEMM_LANES, sizeof b1);
        for (i = 0; i < CMHA__GEMM_MR; i++) {
            sum[i][0] = sum[i][0] + a[i] * b0;
            sum[i][1] = sum[i][1] + a[i] * b1;
        }
    }
    memcpy(tile, sum, sizeof sum);
#else
    for (int i = 0; i < CMHA__GEMM_MR * CMHA__GEMM_NR; i++) tile[i] = 0;
    for (; K > 0; K--, a += CMHA__GEMM_MR, b += CMHA__GEMM_NR)
        for (int i = 0; i < CMHA__GEMM_MR; i++)
            for (int j = 0; j < CMHA__GEMM_NR; j++) tile[i * CMHA__GEMM_NR + j] += a[i] * b[j];
#endif
}

/* to [K, width] = from, where lane l of step k is from[l * lane + k * step]; lanes beyond `lanes` are zero.
   Steps that are not contiguous across lanes are taken 8 at a time, so that a line of cache is used while it
   is there. */
static inline void cmha__gemm_pack(const cmha_real *from, size_t lane, size_t step, size_t lanes,
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

/* One product C [M, N] = alpha op(A) op(B) + beta C, as cmha_gemm describes it. */
typedef struct cmha__product {
    int trans_a, trans_b;
    size_t M, N, K, lda, ldb, ldc;
    cmha_real alpha, beta;
    const cmha_real *A, *B;
    cmha_real *C;
} cmha__product;

/* Ignores what C holds? */
static int cmha__gemm_fresh(const cmha__product *p) { return !(p->beta < 0 || p->beta > 0); }

/* C [rows, cols] = alpha tile + beta C, for a piece of the product's C. */
static void cmha__gemm_store(const cmha__product *p, const cmha_real *tile, size_t rows, size_t cols,
                             cmha_real *C) {
    const cmha_real alpha = p->alpha, beta = p->beta;
    const int fresh = cmha__gemm_fresh(p);
    for (size_t i = 0; i < rows; i++, tile += CMHA__GEMM_NR, C += p->ldc) {
        if (fresh)
            for (size_t j = 0; j < cols; j++) C[j] = alpha * tile[j];
        else
            for (size_t j = 0; j < cols; j++) C[j] = alpha * tile[j] + beta * C[j];
    }
}

/* Multiplies all of A by one packed piece of B [K, N]. */
static void cmha__gemm_sweep(const cmha__product *p, const cmha_real *packed) {
    CMHA__ALIGNED cmha_real strip[CMHA__GEMM_KC * CMHA__GEMM_MR];
    CMHA__ALIGNED cmha_real tile[CMHA__GEMM_MR * CMHA__GEMM_NR];
    size_t a_row = p->trans_a ? 1 : p->lda, a_col = p->trans_a ? p->lda : 1;
    for (size_t i = 0; i < p->M; i += CMHA__GEMM_MR) {
        size_t rows = p->M - i < CMHA__GEMM_MR ? p->M - i : CMHA__GEMM_MR;
        cmha__gemm_pack(p->A + i * a_row, a_row, a_col, rows, CMHA__GEMM_MR, p->K, strip);
        for (size_t j = 0; j < p->N; j += CMHA__GEMM_NR) {
            size_t cols = p->N - j < CMHA__GEMM_NR ? p->N - j : CMHA__GEMM_NR;
            cmha_real *C = p->C + i * p->ldc + j;
            cmha__gemm_tile(p->K, strip, packed + j * p->K, tile);
            if (rows == CMHA__GEMM_MR && cols == CMHA__GEMM_NR)
                cmha__gemm_store(p, tile, CMHA__GEMM_MR, CMHA__GEMM_NR, C);
            else
                cmha__gemm_store(p, tile, rows, cols, C);
        }
    }
}

static void cmha__gemm_blocked(const cmha__product *p) {
    CMHA__ALIGNED cmha_real packed[CMHA__GEMM_KC * CMHA__GEMM_NC];
    size_t a_col = p->trans_a ? p->lda : 1, b_row = p->trans_b ? 1 : p->ldb, b_col = p->trans_b ? p->ldb : 1;
    cmha__product piece = *p;
    for (size_t j = 0; j < p->N; j += CMHA__GEMM_NC) {
        piece.C = p->C + j;
        piece.N = p->N - j < CMHA__GEMM_NC ? p->N - j : CMHA__GEMM_NC;
        for (size_t k = 0; k < p->K; k += CMHA__GEMM_KC) {
            piece.A = p->A + k * a_col;
            piece.K = p->K - k < CMHA__GEMM_KC ? p->K - k : CMHA__GEMM_KC;
            piece.beta = k ? (cmha_real)1 : p->beta;
            for (size_t c = 0; c < piece.N; c += CMHA__GEMM_NR)
                cmha__gemm_pack(p->B + k * b_row + (j + c) * b_col, b_col, b_row,
                                piece.N - c < CMHA__GEMM_NR ? piece.N - c : CMHA__GEMM_NR, CMHA__GEMM_NR,
                                piece.K, packed + c * piece.K);
            cmha__gemm_sweep(&piece, packed);
        }
    }
}

/* Small products straight from memory, as the tiles of attention need them: A and B are in the cache already,
   and packing them, or a call to a BLAS, would take as long as the product. beta is 0 or 1. */
#ifdef CMHA__GEMM_VECTORS
#if defined(__AVX512F__) || defined(__aarch64__) /* 32 vector registers, half of them for sums */
#define CMHA__PANEL_VECTORS 4
#else
#define CMHA__PANEL_VECTORS 2
#endif
#define CMHA__PANEL_ROWS 8

/* Computes `rows` rows, `vectors` wide, of a product. Inlined with constants for height and vectors, so that
   the sums are registers. */
static inline CMHA__FUSED __attribute__((always_inline)) void cmha__panel_piece(
    const int height, const int vectors, const cmha__product *p, size_t rows, const cmha_real *A,
    const cmha_real *B, cmha_real *C) {
    CMHA__FUSE
    cmha__gemm_lanes sum[CMHA__PANEL_ROWS][CMHA__PANEL_VECTORS], b[CMHA__PANEL_VECTORS], c;
    const size_t a_row = p->trans_a ? 1 : p->lda, a_col = p->trans_a ? p->lda : 1, ldb = p->ldb, ldc = p->ldc;
    const cmha_real *a[CMHA__PANEL_ROWS], alpha = p->alpha;
    const int fresh = cmha__gemm_fresh(p);
    memset(sum, 0, sizeof sum);
    for (int i = 0; i < height; i++) a[i] = A + ((size_t)i < rows ? (size_t)i : 0) * a_row;
    for (size_t K = p->K; K > 0; K--, B += ldb) {
        for (int w = 0; w < vectors; w++) memcpy(&b[w], B + w * CMHA__GEMM_LANES, sizeof c);
        for (int i = 0; i < height; i++) {
            for (int w = 0; w < vectors; w++) sum[i][w] = sum[i][w] + *a[i] * b[w];
            a[i] += a_col;
        }
    }
    for (int i = 0; i < height; i++, C += ldc) {
        if ((size_t)i >= rows) return;
        for (int w = 0; w < vectors; w++) {
            memcpy(&c, C + w * CMHA__GEMM_LANES, sizeof c);
            c = fresh ? alpha * sum[i][w] : c + alpha * sum[i][w];
            memcpy(C + w * CMHA__GEMM_LANES, &c, sizeof c);
        }
    }
}

/* Computes all rows of a strip of C that is 4, 2 or 1 vectors wide. */
CMHA__FUSED static void cmha__panel_strip(const cmha__product *p, size_t vectors, size_t column) {
    const size_t height = vectors == CMHA__PANEL_VECTORS ? 4 : 8;
    const cmha_real *A = p->A, *B = p->B + column;
    cmha_real *C = p->C + column;
    size_t rows;
    for (size_t i = 0; i < p->M; i += rows, A += rows * (p->trans_a ? 1 : p->lda), C += rows * p->ldc) {
        rows = p->M - i < height ? p->M - i : height;
        if (height == 4) cmha__panel_piece(4, CMHA__PANEL_VECTORS, p, rows, A, B, C);
        else if (vectors == 2) cmha__panel_piece(8, 2, p, rows, A, B, C);
        else cmha__panel_piece(8, 1, p, rows, A, B, C);
    }
}

/* Computes a product whose B is not transposed and N whole vectors wide. */
static void cmha__panel(const cmha__product *p) {
    size_t vectors, left = p->N / CMHA__GEMM_LANES;
    for (size_t j = 0; left > 0; left -= vectors, j += vectors * CMHA__GEMM_LANES) {
        for (vectors = CMHA__PANEL_VECTORS; vectors > left;) vectors /= 2;
        cmha__panel_strip(p, vectors, j);
    }
}
#endif

/* Returns the sum of a[i] b[i]: 64 sums side by side, because the compiler must not reorder one. */
static cmha_real cmha__gemm_dot(size_t n, const cmha_real *a, const cmha_real *b) {
    cmha_real sum[64], total = 0;
    size_t i;
    for (size_t l = 0; l < 64; l++) sum[l] = 0;
    for (i = 0; i + 64 <= n; i += 64)
        for (size_t l = 0; l < 64; l++) sum[l] += a[i + l] * b[i + l];
    for (size_t l = 0; i + l < n; l++) sum[l] += a[i + l] * b[i + l];
    for (size_t l = 0; l < 64; l++) total += sum[l];
    return total;
}

/* Computes a product of one row; A is contiguous. */
static void cmha__gemm_row(const cmha__product *p) {
    int fresh = cmha__gemm_fresh(p);
    cmha_real *C = p->C;
    if (p->trans_b) {
        for (size_t j = 0; j < p->N; j++)
            C[j] = p->alpha * cmha__gemm_dot(p->K, p->A, p->B + j * p->ldb) + (fresh ? 0 : p->beta * C[j]);
        return;
    }
    for (size_t j = 0; j < p->N; j++) C[j] = fresh ? 0 : p->beta * C[j];
    for (size_t k = 0; k < p->K; k++) {
        cmha_real factor = p->alpha * p->A[k];
        const cmha_real *row = p->B + k * p->ldb;
        for (size_t j = 0; j < p->N; j++) C[j] += factor * row[j];
    }
}

static void cmha__gemm_builtin(const cmha__product *p) {
    if (p->M == 1 && (!p->trans_a || p->lda == 1)) {
        cmha__gemm_row(p);
    } else if (p->N == 1 && p->ldc == 1 &&
               (p->trans_b || p->ldb == 1)) { /* the transposed product has one row */
        cmha__product turned = *p;
        turned.trans_b = !p->trans_a, turned.M = 1, turned.N = p->M;
        turned.A = p->B, turned.lda = p->ldb, turned.B = p->A, turned.ldb = p->lda;
        cmha__gemm_row(&turned);
    } else {
        cmha__gemm_blocked(p);
    }
}

/* ---- the BLAS front ---- */

static void cmha__gemm_scale(size_t M, size_t N, cmha_real beta, cmha_real *C, size_t ldc) {
    for (size_t i = 0; i < M; i++)
        for (size_t j = 0; j < N; j++) C[i * ldc + j] = beta < 0 || beta > 0 ? beta * C[i * ldc + j] : 0;
}

#ifndef CMHA_NO_CBLAS
#ifdef CMHA_DOUBLE
#define CMHA__CBLAS_GEMM cblas_dgemm
#define CMHA__CBLAS_GEMV cblas_dgemv
#else
#define CMHA__CBLAS_GEMM cblas_sgemm
#define CMHA__CBLAS_GEMV cblas_sgemv
#endif

/* CBLAS refuses a stride below the number of columns, also where there is one row and the stride is not used.
 */
static int cmha__blas_stride(size_t stride, size_t columns) {
    return (int)(stride > columns ? stride : columns ? columns : 1);
}

/* Hands a product to CBLAS; 0 if a size is beyond its int or its kernel is behind ours. */
static int cmha__gemm_cblas(const cmha__product *p) {
    size_t largest = p->M > p->N ? p->M : p->N;
    if (p->K > largest) largest = p->K;
    if (largest > INT_MAX || p->lda > INT_MAX || p->ldb > INT_MAX || p->ldc > INT_MAX ||
        cmha__blas_is_behind())
        return 0;
    const int M = (int)p->M, N = (int)p->N, K = (int)p->K;
    const int lda = cmha__blas_stride(p->lda, p->trans_a ? p->M : p->K);
    const int ldb = cmha__blas_stride(p->ldb, p->trans_b ? p->K : p->N);
    if (M == 1 &&
        (!p->trans_a || p->lda == 1)) /* a decoded token: up to three times faster than OpenBLAS's gemm */
        CMHA__CBLAS_GEMV(CblasRowMajor, p->trans_b ? CblasNoTrans : CblasTrans, p->trans_b ? N : K,
                         p->trans_b ? K : N, p->alpha, p->B, ldb, p->A, 1, p->beta, p->C, 1);
    else
        CMHA__CBLAS_GEMM(CblasRowMajor, p->trans_a ? CblasTrans : CblasNoTrans,
                         p->trans_b ? CblasTrans : CblasNoTrans, M, N, K, p->alpha, p->A, lda, p->B, ldb,
                         p->beta, p->C, cmha__blas_stride(p->ldc, p->N));
    return 1;
}
#endif

CMHA_DEF void cmha_gemm(int trans_a, int trans_b, size_t M, size_t N, size_t K, cmha_real alpha,
                        const cmha_real *A, size_t lda, const cmha_real *B, size_t ldb, cmha_real beta,
                        cmha_real *C, size_t ldc) {
    cmha__product p;
    p.trans_a = trans_a, p.trans_b = trans_b, p.M = M, p.N = N, p.K = K, p.alpha = alpha, p.beta = beta;
    p.A = A, p.lda = lda, p.B = B, p.ldb = ldb, p.C = C, p.ldc = ldc;
    if (!M || !N) return;
    if (!K || !(alpha < 0 || alpha > 0 || alpha != alpha)) {
        cmha__gemm_scale(M, N, beta, C, ldc);
        return;
    }
#ifndef CMHA_NO_CBLAS
    if (cmha__gemm_cblas(&p)) return;
#endif
    cmha__gemm_builtin(&p);
}

/* Deals cmha_gemm to threads: rows of C, or columns where there are clearly more, cut at multiples of 16. */
static void cmha__gemm(int threads, int ta, int tb, size_t M, size_t N, size_t K, cmha_real alpha,
                       const cmha_real *A, size_t lda, const cmha_real *B, size_t ldb, cmha_real beta,
                       cmha_real *C, size_t ldc) {
    int by_columns = N / 2 > M;
    size_t extent = by_columns ? N : M, workers = threads > 1 ? (size_t)threads : 1;
    size_t unit = extent >= 16 * workers ? 16 : 1, units = extent / unit + (extent % unit != 0);
    if (threads <= 1 || 2.0 * (double)M * (double)N * (double)K < 262144.0) {
        cmha_gemm(ta, tb, M, N, K, alpha, A, lda, B, ldb, beta, C, ldc);
        return;
    }
    CMHA__FOR_CHUNKS(threads, units, first, last) {
        size_t lo = first * unit, hi = last * unit < extent ? last * unit : extent;
        if (by_columns)
            cmha_gemm(ta, tb, M, hi - lo, K, alpha, A, lda, tb ? B + lo * ldb : B + lo, ldb, beta, C + lo,
                      ldc);
        else
            cmha_gemm(ta, tb, hi - lo, N, K, alpha, ta ? A + lo : A + lo * lda, lda, B, ldb, beta,
                      C + lo * ldc, ldc);
    }
}

/* =============================================== Vector mathematics
 * =============================================== */

/* Branch-free, so that a loop over them vectorises without -ffast-math. In double, and under
        CMHA_NO_SIMD, the same names are libm's functions. ---- */

enum { CMHA__LANES = 16 };

#if defined(__GNUC__) || defined(__clang__) || defined(_MSC_VER)
#define CMHA__RESTRICT __restrict /* C99's keyword is none in C++ */
#else
#define CMHA__RESTRICT
#endif

#ifdef CMHA_DOUBLE
#define CMHA__SMALLEST DBL_MIN
#define CMHA__LARGEST DBL_MAX
#define CMHA__EPSILON DBL_EPSILON
#else
#define CMHA__SMALLEST FLT_MIN
#define CMHA__LARGEST FLT_MAX
#define CMHA__EPSILON FLT_EPSILON
#endif

#if defined(CMHA_DOUBLE) || defined(CMHA__SCALAR)
#ifdef CMHA_DOUBLE
#define CMHA__LIBM(name) name
#else
#define CMHA__LIBM(name) name##f
#endif
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
#else
/* At most 2 ulp for -87.3 < x < 88; 0 below, +Inf above, NaN for NaN. */
static inline float cmha__exp(float x) {
    float shifted = x * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: the low bits now hold round(x / ln 2) */
    float n = shifted - 12582912.0f;
    float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 0.00139269266f;
    uint32_t bits;
    float scale;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits - 0x4B400000u + 127u) << 23;
    memcpy(&scale, &bits, sizeof scale);
    p = p * r + 0.00836377387f;
    p = p * r + 0.0416665501f;
    p = p * r + 0.166665734f;
    p = p * r + 0.5f;
    p = p * r * r + r + 1.0f;
    p = x < -87.3f ? 0.0f : p * scale;
    return x > 89.0f ? INFINITY : p;
}

/* At most 4 ulp; the signs of zeros and the branch cut are atan2f's. */
static inline float cmha__atan2(float y, float x) {
    float ax = fabsf(x), ay = fabsf(y);
    float large = ax > ay ? ax : ay, small = ax > ay ? ay : ax;
    float a = small / (large > 0.0f ? large : 1.0f), s = a * a;
    float p = -0.00170116997f;
    p = p * s + 0.0104876489f;
    p = p * s - 0.030351864f;
    p = p * s + 0.0570895552f;
    p = p * s - 0.0834972492f;
    p = p * s + 0.109323415f;
    p = p * s - 0.142600161f;
    p = p * s + 0.199980753f;
    p = p * s - 0.333332763f;
    p = p * s * a + a;
    p = ay > ax ? 1.57079637f - p : p;
    p = copysignf(1.0f, x) < 0.0f ? 3.14159274f - p : p;
    return copysignf(p, y);
}

/* Within 2^-23 of the true values for |x| < 10^4, bounded beyond. Angles that grow with the position never come here: they
   are formed in double (cmha_rotation_table). */
static inline void cmha__sincos(float x, float *sine, float *cosine) {
    float shifted = x * 0.636619772f + 12582912.0f;
    float n = shifted - 12582912.0f;
    float r = ((x - n * 1.5703125f) - n * 4.83751297e-4f) - n * 7.54978995e-8f;
    float s, si, co;
    uint32_t q;
    r = r > 1.0f ? 1.0f : r;
    r = r < -1.0f ? -1.0f : r;
    s = r * r;
    si = ((-0.000194972099f * s + 0.00833198364f) * s - 0.166666497f) * s * r + r;
    co = ((2.45428963e-05f * s - 0.00138882794f) * s + 0.0416666645f) * s * s - 0.5f * s + 1.0f;
    memcpy(&q, &shifted, sizeof q);
    *sine = (q & 1u) ? co : si;
    *cosine = (q & 1u) ? si : co;
    *sine = (q & 2u) ? -*sine : *sine;
    *cosine = ((q + 1u) & 2u) ? -*cosine : *cosine;
}

/* Phi(x) by Abramowitz & Stegun 7.1.26, absolute error 1.5e-7, and the density phi(x) from the same exponential. */
static inline float cmha__normal_cdf(float x, float *density) {
    float e = cmha__exp(-0.5f * x * x);
    float t = 1.0f / (1.0f + 0.3275911f * 0.707106781f * fabsf(x));
    float p = 1.061405429f;
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    p = 0.5f * p * t * e;
    *density = 0.398942280f * e;
    return x < 0.0f ? p : 1.0f - p;
}
#endif

#if defined(CMHA_DOUBLE) || defined(CMHA__SCALAR)
static inline cmha_real cmha__inverse_root(cmha_real x) { return 1 / CMHA__LIBM(sqrt)(x); }
static inline cmha_real cmha__square_root(cmha_real x) { return CMHA__LIBM(sqrt)(x); }
#else
/* 1 / sqrt(x) of a normal x > 0, at most 3 ulp. It vectorises, which libm's sqrt does not, because that may set errno. */
static inline float cmha__inverse_root(float x) {
    float y, half = 0.5f * x;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = 0x5f375a86u - (bits >> 1);
    memcpy(&y, &bits, sizeof y);
    y *= 1.5f - half * y * y;
    y *= 1.5f - half * y * y;
    return y * (1.5f - half * y * y);
}
/* sqrt(x) of x = 0 or a normal x > 0: one more of Newton's steps, away from the inverse root. */
static inline float cmha__square_root(float x) {
    float inverse = cmha__inverse_root(x), root = x * inverse;
    return root + (x - root * root) * inverse / 2;
}
#endif

#ifdef CMHA_DOUBLE
#define CMHA__PHASOR_RANGE 1e150 /* numbers whose squares are normal lie between its inverse and itself */
#define CMHA__PHASOR_SCALE 1e200
#else
#define CMHA__PHASOR_RANGE 1e18f
#define CMHA__PHASOR_SCALE 1e20f
#endif

/* u = z / r, r = sqrt(|z|^2 + eps^2), and 1/r; all 0 where r is. Scaled where a square would leave the range of numbers. */
static inline void cmha__phasor(cmha_real re, cmha_real im, cmha_real eps, cmha_real *u_re, cmha_real *u_im, cmha_real *inverse) {
    cmha_real a = re < 0 ? -re : re, b = im < 0 ? -im : im, big = a > b ? a : b, scale, square, root;
    big = big > eps ? big : eps;
    scale = big > CMHA__PHASOR_RANGE ? 1 / CMHA__PHASOR_SCALE : 1;
    scale = big < 1 / CMHA__PHASOR_RANGE ? CMHA__PHASOR_SCALE * (CMHA__PHASOR_SCALE / CMHA__PHASOR_RANGE) : scale;
    re *= scale, im *= scale, eps *= scale;
    square = re * re + im * im + eps * eps;
    root = big < CMHA__SMALLEST ? 0 : cmha__inverse_root(square); /* subnormal numbers count as 0: 1/r would overflow */
    *u_re = re * root;
    *u_im = im * root;
    *inverse = root * scale;
}

/* dz += (g - u Re(conj(u) g)) / r for one number; g = 0 changes nothing, whatever r. */
static inline void cmha__phasor_backward(cmha_real re, cmha_real im, cmha_real e, cmha_real gr, cmha_real gi,
                                         cmha_real *dre, cmha_real *dim) {
    cmha_real ur, ui, inverse, along;
    cmha__phasor(re, im, e, &ur, &ui, &inverse);
    along = ur * gr + ui * gi;
    *dre += (gr - ur * along) * inverse;
    *dim += (gi - ui * along) * inverse;
}

/* u [d | d] = factor * phasors of one row. */
static inline void cmha__phasor_row(const cmha_real *re, const cmha_real *im, size_t d, cmha_real eps, cmha_real factor,
                                    cmha_real *u_re, cmha_real *u_im) {
    for (size_t j = 0; j < d; j++) {
        cmha_real a, b, inverse;
        cmha__phasor(re[j], im[j], eps, &a, &b, &inverse);
        u_re[j] = a * factor;
        u_im[j] = b * factor;
    }
}

/* Adds the gradient of one row given factor * the cotangent of its phasors. */
static void cmha__phasor_row_backward(const cmha_real *re, const cmha_real *im, size_t d, cmha_real eps, cmha_real factor,
                                      const cmha_real *g_re, const cmha_real *g_im, cmha_real *CMHA__RESTRICT dre,
                                      cmha_real *CMHA__RESTRICT dim) {
    for (size_t j = 0; j < d; j++) cmha__phasor_backward(re[j], im[j], eps, factor * g_re[j], factor * g_im[j], &dre[j], &dim[j]);
}

static inline cmha_real cmha__sigmoid(cmha_real x) { return 1 / (1 + cmha__exp(-x)); }

/* Reductions over lanes of partial sums: they vectorise without reassociating, and give the same bits on every compiler that
   does not contract differently. */
static inline cmha_real cmha__fold(const cmha_real *lanes) {
    cmha_real half[CMHA__LANES / 2], quarter[CMHA__LANES / 4];
    for (int l = 0; l < CMHA__LANES / 2; l++) half[l] = lanes[l] + lanes[l + CMHA__LANES / 2];
    for (int l = 0; l < CMHA__LANES / 4; l++) quarter[l] = half[l] + half[l + CMHA__LANES / 4];
    return (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
}

static cmha_real cmha__dot(const cmha_real *a, const cmha_real *b, size_t n) {
    cmha_real lanes[CMHA__LANES] = {0};
    size_t i = 0;
    for (; i + CMHA__LANES <= n; i += CMHA__LANES)
        for (int l = 0; l < CMHA__LANES; l++) lanes[l] += a[i + (size_t)l] * b[i + (size_t)l];
    for (int l = 0; i < n; i++, l++) lanes[l] += a[i] * b[i];
    return cmha__fold(lanes);
}

static cmha_real cmha__total(const cmha_real *a, size_t n) {
    cmha_real lanes[CMHA__LANES] = {0};
    size_t i = 0;
    for (; i + CMHA__LANES <= n; i += CMHA__LANES)
        for (int l = 0; l < CMHA__LANES; l++) lanes[l] += a[i + (size_t)l];
    for (int l = 0; i < n; i++, l++) lanes[l] += a[i];
    return cmha__fold(lanes);
}

static inline cmha_real cmha__larger(cmha_real a, cmha_real b) { return a > b ? a : b; }

/* The largest of 64 numbers; one lane at a time in the text, so that compilers make vectors of the lanes. */
static inline cmha_real cmha__largest_64(const cmha_real *CMHA__RESTRICT a) {
    cmha_real lanes[CMHA__LANES], half[CMHA__LANES / 2], quarter[CMHA__LANES / 4];
    for (int l = 0; l < CMHA__LANES; l++)
        lanes[l] = cmha__larger(cmha__larger(a[l], a[l + CMHA__LANES]), cmha__larger(a[l + 2 * CMHA__LANES], a[l + 3 * CMHA__LANES]));
    for (int l = 0; l < CMHA__LANES / 2; l++) half[l] = cmha__larger(lanes[l], lanes[l + CMHA__LANES / 2]);
    for (int l = 0; l < CMHA__LANES / 4; l++) quarter[l] = cmha__larger(half[l], half[l + CMHA__LANES / 4]);
    return cmha__larger(cmha__larger(quarter[0], quarter[2]), cmha__larger(quarter[1], quarter[3]));
}

static cmha_real cmha__largest(const cmha_real *a, size_t n) {
    cmha_real most = -(cmha_real)INFINITY;
    size_t i = 0;
    for (; i + 64 <= n; i += 64) most = cmha__larger(cmha__largest_64(a + i), most);
    for (; i < n; i++) most = cmha__larger(a[i], most);
    return most;
}

/* p = exp(s - shift) in place, returns the sum. */
static inline cmha_real cmha__exp_shifted(cmha_real *s, size_t n, cmha_real shift) {
    cmha_real lanes[CMHA__LANES] = {0};
    size_t i = 0, whole = n - n % CMHA__LANES;
    for (; i < whole; i += CMHA__LANES)
        for (size_t l = 0; l < CMHA__LANES; l++) {
            cmha_real e = cmha__exp(s[i + l] - shift);
            s[i + l] = e;
            lanes[l] += e;
        }
    for (; i < n; i++) lanes[i - whole] += s[i] = cmha__exp(s[i] - shift);
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

/* Multiplies x [n] by keep / (1 - p), bit j from (row key, j). */
static void cmha__drop_row(cmha_real *x, size_t n, cmha_real p, uint64_t row, uint32_t first) {
    int32_t threshold = (int32_t)((1 - (double)p) * 16777216.0);
    cmha_real factor = 1 / (1 - p);
    uint32_t low = (uint32_t)row, high = (uint32_t)(row >> 32);
    for (size_t j = 0; j < n; j++) {
        uint32_t h = cmha__hash32((first + (uint32_t)j) * 0x9E3779B9u + low) ^ high;
        x[j] *= (int32_t)(cmha__hash32(h) >> 8) < threshold ? factor : 0;
    }
}

/* ================================================ Tape and engine ================================================= */

/* Blocks are chained from the newest to the oldest; after a reset one block of the peak size takes their place. */
struct cmha_arena_block {
    struct cmha_arena_block *older;
    size_t size, used; /* bytes of `data` */
    size_t taken;      /* bytes asked of the allocator */
    unsigned char *data;
};

typedef struct cmha__mark {
    struct cmha_arena_block *block;
    size_t block_used, used;
} cmha__mark;

static size_t cmha__round64(size_t bytes) { return (bytes + 63) & ~(size_t)63; }

enum { CMHA__BLOCK_OVERHEAD = 128 }; /* the block's own struct and the alignment of its data */

static struct cmha_arena_block *cmha__block_new(cmha_context *context, size_t bytes) {
    struct cmha_arena_block *block = NULL;
    size_t taken;
    if (cmha__sum(bytes, CMHA__BLOCK_OVERHEAD, &taken)) block = (struct cmha_arena_block *)cmha__take(context, taken);
    if (!block) {
        cmha__fail(context, CMHA_ERR_MEMORY, "out of memory: %zu bytes for a tape", bytes);
        return NULL;
    }
    block->older = NULL;
    block->size = bytes;
    block->used = 0;
    block->taken = taken;
    block->data = (unsigned char *)(void *)block + sizeof *block;
    block->data += (64 - (uintptr_t)block->data % 64) % 64;
    return block;
}

static void cmha__arena_close(cmha_context *context, cmha_arena *arena) {
    while (arena->block) {
        struct cmha_arena_block *older = arena->block->older;
        cmha__give(context, arena->block, arena->block->taken);
        arena->block = older;
    }
    arena->used = 0;
}

static int cmha__arena_overflows(const cmha_arena *arena, size_t bytes) {
    return bytes > SIZE_MAX - 64 || !cmha__sum(arena->used, cmha__round64(bytes), &bytes);
}

/* NULL when memory ran out. Growing happens in a first pass only: see cmha__arena_reset. */
static void *cmha__arena_take(cmha_context *context, cmha_arena *arena, size_t bytes) {
    struct cmha_arena_block *block = arena->block;
    void *memory;
    if (cmha__arena_overflows(arena, bytes)) {
        cmha__fail(context, CMHA_ERR_OVERFLOW, "tape: a size overflows");
        return NULL;
    }
    bytes = cmha__round64(bytes);
    if (arena->measuring) {
        memory = (void *)(uintptr_t)(arena->used + 64);
    } else {
        if (!block || block->size - block->used < bytes) {
            size_t size = arena->reserved > arena->used ? arena->reserved - arena->used : arena->used / 4;
            if (size < bytes) size = bytes;
            if (size < 16384) size = 16384;
            block = cmha__block_new(context, size);
            if (!block) return NULL;
            block->older = arena->block;
            arena->block = block;
        }
        memory = block->data + block->used;
        block->used += bytes;
    }
    arena->used += bytes;
    if (arena->used > arena->peak) arena->peak = arena->used;
    return memory;
}

/* Forgets everything; several blocks make room for one of the size that was needed, taken at the next use. */
static void cmha__arena_reset(cmha_context *context, cmha_arena *arena) {
    arena->used = 0;
    if (arena->peak > arena->reserved) arena->reserved = arena->peak;
    if (arena->block && (arena->block->older || arena->block->size < arena->reserved)) cmha__arena_close(context, arena);
    if (arena->block) arena->block->used = 0;
}

/* One block of at least `bytes`, now, so that what follows allocates nothing. */
static cmha_status cmha__arena_reserve(cmha_context *context, cmha_arena *arena, size_t bytes) {
    cmha__arena_reset(context, arena);
    if (arena->block && arena->block->size >= bytes) return CMHA_OK;
    cmha__arena_close(context, arena);
    arena->block = cmha__block_new(context, bytes);
    if (!arena->block) return CMHA_ERR_MEMORY; /* what is reserved stays as it was: smaller passes must go on working */
    arena->reserved = bytes;
    return CMHA_OK;
}

/* The key of the next dropout mask. */
static uint64_t cmha__draw(cmha_tape *tape) { return cmha__mix(cmha__mix(tape->key) + ++tape->draws * CMHA__GOLDEN); }

/* Scratch of one operation lies above a mark and is gone after the rewind. */
static cmha__mark cmha__arena_mark(const cmha_arena *arena) {
    cmha__mark mark;
    mark.block = arena->block;
    mark.block_used = mark.block ? mark.block->used : 0;
    mark.used = arena->used;
    return mark;
}

static void cmha__arena_rewind(cmha_context *context, cmha_arena *arena, cmha__mark mark) {
    while (arena->block != mark.block) {
        struct cmha_arena_block *older = arena->block->older;
        if (!older && !mark.block) break; /* the very first block stays */
        cmha__give(context, arena->block, arena->block->taken);
        arena->block = older;
    }
    if (arena->block) arena->block->used = mark.block_used;
    arena->used = mark.used;
}

static cmha__mark cmha__mark_of(const cmha_tape *tape) { return cmha__arena_mark(&tape->memory); }
static void cmha__rewind(cmha_tape *tape, cmha__mark mark) { cmha__arena_rewind(tape->context, &tape->memory, mark); }

CMHA_DEF cmha_status cmha_tape_init(cmha_tape *tape, cmha_context *context, int recording) {
    if (!tape) return CMHA_ERR_ARGUMENT;
    memset(tape, 0, sizeof *tape);
    if (!cmha__is_open(context)) return tape->status = CMHA_ERR_STATE;
    tape->context = context;
    tape->recording = recording;
    tape->key = cmha__mix(context->config.seed);
    return CMHA_OK;
}

CMHA_DEF void cmha_tape_close(cmha_tape *tape) {
    if (!tape || !tape->context) return;
    cmha__arena_close(tape->context, &tape->memory);
    cmha__arena_close(tape->context, &tape->records);
    memset(tape, 0, sizeof *tape);
    tape->status = CMHA_ERR_STATE; /* of every operation that still comes */
}

CMHA_DEF void cmha_tape_reset(cmha_tape *tape) {
    if (!tape || !tape->context) return;
    cmha__arena_reset(tape->context, &tape->memory);
    cmha__arena_reset(tape->context, &tape->records);
    tape->last = NULL;
    tape->status = CMHA_OK;
    tape->n_unused = 0;
    tape->draws = 0;
    tape->key = cmha__mix(tape->key + CMHA__GOLDEN); /* the next pass draws other masks */
}

CMHA_DEF cmha_status cmha_tape_status(const cmha_tape *tape) { return tape ? tape->status : CMHA_ERR_ARGUMENT; }

/* Keeps the tape's first failure, whose line the context has; returns NULL, which an operation can return. */
static cmha_tensor *cmha__stop(cmha_tape *tape, cmha_status status) {
    if (tape && tape->status == CMHA_OK) tape->status = status;
    return NULL;
}

static cmha_tensor *cmha__reject(cmha_tape *tape, cmha_status status, const char *format, ...) CMHA__PRINTF(3, 4);

/* Keeps the tape's first failure with its line; returns NULL. */
static cmha_tensor *cmha__reject(cmha_tape *tape, cmha_status status, const char *format, ...) {
    char line[256];
    va_list arguments;
    va_start(arguments, format);
    if (vsnprintf(line, sizeof line, format, arguments) < 0) line[0] = 0;
    va_end(arguments);
    if (tape && tape->status == CMHA_OK) cmha__fail(tape->context, status, "%s", line);
    return cmha__stop(tape, status);
}

CMHA_DEF cmha_tensor *cmha_tape_fail(cmha_tape *tape, cmha_status status, const char *line) {
    if (!status) status = CMHA_ERR_STATE;
    return line ? cmha__reject(tape, status, "%s", line) : cmha__stop(tape, status);
}

static int cmha__dry(const cmha_tape *tape) { return tape->memory.measuring; }

/* From one of the tape's arenas; a failure is kept. */
static void *cmha__tape_take(cmha_tape *tape, cmha_arena *arena, size_t bytes) {
    void *memory;
    if (!cmha__is_open(tape->context)) return cmha__stop(tape, CMHA_ERR_STATE);
    memory = cmha__arena_take(tape->context, arena, bytes);
    if (!memory) cmha__stop(tape, cmha__arena_overflows(arena, bytes) ? CMHA_ERR_OVERFLOW : CMHA_ERR_MEMORY);
    return memory;
}

CMHA_DEF void *cmha_tape_alloc(cmha_tape *tape, size_t bytes) {
    return tape && !tape->status ? cmha__tape_take(tape, &tape->memory, bytes) : NULL;
}

static cmha_real *cmha__reals(cmha_tape *tape, size_t n) {
    size_t bytes;
    if (!cmha__mul(n, sizeof(cmha_real), &bytes)) {
        cmha__reject(tape, CMHA_ERR_OVERFLOW, "tape: a size overflows");
        return NULL;
    }
    return (cmha_real *)cmha_tape_alloc(tape, bytes);
}

/* Memory for records and tensors: small, and real also in a dry run. */
static void *cmha__record_alloc(cmha_tape *tape, size_t bytes) {
    void *memory = cmha__tape_take(tape, &tape->records, bytes);
    if (memory) memset(memory, 0, bytes);
    return memory;
}

/* The product of the sizes that are not 0 is limited too, so that no operation needs to fear for what it derives from some of
   them: rows, twice their number, their bytes. */
static cmha_tensor *cmha__tensor_shaped(cmha_tape *tape, int rank, const size_t *shape) {
    cmha_tensor *t;
    size_t extent = 1;
    if (!tape || tape->status) return NULL;
    if (rank < 1 || rank > CMHA_MAX_RANK) return cmha__reject(tape, CMHA_ERR_SHAPE, "tensor: the rank must be 1 to 4");
    if (!shape) return cmha__reject(tape, CMHA_ERR_ARGUMENT, "tensor: its shape is NULL");
    t = (cmha_tensor *)cmha__record_alloc(tape, sizeof *t);
    if (!t) return NULL;
    t->rank = rank;
    t->size = 1;
    for (int i = 0; i < rank; i++) {
        t->shape[i] = shape[i];
        t->size *= shape[i];
        if (!cmha__mul(extent, shape[i] ? shape[i] : 1, &extent) || extent > SIZE_MAX / 64)
            return cmha__reject(tape, CMHA_ERR_OVERFLOW, "tensor: its size overflows");
    }
    return t;
}

/* An operation's result: not cleared, because the operation fills it. */
static cmha_tensor *cmha__result(cmha_tape *tape, int rank, const size_t *shape) {
    cmha_tensor *t = cmha__tensor_shaped(tape, rank, shape);
    if (t) t->data = cmha__reals(tape, t->size);
    return t && t->data ? t : NULL;
}

CMHA_DEF cmha_tensor *cmha_tensor_new(cmha_tape *tape, int rank, const size_t *shape, int needs_grad) {
    cmha_tensor *t = cmha__result(tape, rank, shape);
    if (!t) return NULL;
    if (!cmha__dry(tape)) memset(t->data, 0, t->size * sizeof *t->data);
    t->needs_grad = needs_grad != 0;
    return t;
}

CMHA_DEF cmha_tensor *cmha_tensor_wrap(cmha_tape *tape, int rank, const size_t *shape, cmha_real *data, cmha_real *grad) {
    cmha_tensor *t = cmha__tensor_shaped(tape, rank, shape);
    if (!t) return NULL;
    if (!data && t->size) return cmha__reject(tape, CMHA_ERR_ARGUMENT, "tensor: the data to wrap is NULL");
    t->data = data;
    t->grad = grad;
    t->needs_grad = grad != NULL;
    return t;
}

CMHA_DEF cmha_tensor *cmha_push(cmha_tape *tape, const char *name, cmha_tensor *out, cmha_tensor *const *in, int n_in,
                                cmha_backward_fn backward, void *user) {
    cmha_record *record;
    int wanted = 0;
    if (!tape || tape->status || !out) return NULL;
    if (!cmha__is_open(tape->context)) return cmha__stop(tape, CMHA_ERR_STATE);
    if (n_in < 0 || n_in > CMHA_MAX_INPUTS || (n_in && !in))
        return cmha__reject(tape, CMHA_ERR_ARGUMENT, "push: the inputs are NULL, too many or fewer than none");
    for (int i = 0; i < n_in; i++) wanted |= in[i] && in[i]->needs_grad;
    if (!tape->recording || !wanted || !backward) return out;
    record = (cmha_record *)cmha__record_alloc(tape, sizeof *record);
    if (!record) return NULL;
    record->name = name;
    record->backward = backward;
    record->out = out;
    for (int i = 0; i < n_in; i++) record->in[i] = in[i];
    record->n_in = n_in;
    record->user = user;
    record->previous = tape->last;
    tape->last = record;
    if (!out->grad) out->needs_grad = 2;
    return out;
}

/* Zeros: large arrays by all threads, because one alone does not reach the bandwidth of the memory. */
static void cmha__clear(int threads, cmha_real *x, size_t n) {
    CMHA__FOR_CHUNKS(n > 65536 ? threads : 1, n, lo, hi) { memset(x + lo, 0, (hi - lo) * sizeof *x); }
}

/* A gradient buffer: a recycled one of that size, or new memory. Not cleared. */
static cmha_real *cmha__grad_buffer(cmha_tape *tape, size_t n) {
    size_t bytes = cmha__round64(n * sizeof(cmha_real));
    for (int i = 0; i < tape->n_unused; i++)
        if (tape->unused[i].bytes == bytes) {
            void *memory = tape->unused[i].memory;
            tape->unused[i] = tape->unused[--tape->n_unused];
            return (cmha_real *)memory;
        }
    return cmha__reals(tape, n);
}

static void cmha__grad_release(cmha_tape *tape, cmha_tensor *t) {
    if (!t->grad || t->needs_grad != 2) return;
    if (tape->n_unused < CMHA_MAX_FREE) {
        tape->unused[tape->n_unused].memory = t->grad;
        tape->unused[tape->n_unused++].bytes = cmha__round64(t->size * sizeof(cmha_real));
    }
    t->grad = NULL;
}

/* The gradient of t, and by *fresh whether it is new and still holds rubbish: then the caller writes instead of adding. */
static cmha_real *cmha__grad_fresh(cmha_tape *tape, cmha_tensor *t, int *fresh) {
    *fresh = 0;
    if (!t || !t->needs_grad || !tape || tape->status) return NULL;
    if (!t->grad) {
        t->grad = cmha__grad_buffer(tape, t->size);
        *fresh = 1;
    }
    return t->grad;
}

CMHA_DEF cmha_real *cmha_grad(cmha_tape *tape, cmha_tensor *t) {
    int fresh;
    cmha_real *grad = cmha__grad_fresh(tape, t, &fresh);
    if (grad && fresh && !cmha__dry(tape)) cmha__clear(tape->context->threads, grad, t->size);
    return grad;
}

/* in.grad += out.grad for an input that enters the result unchanged. Hands the buffer over when nobody else needs it, so call
   it last. */
static void cmha__pass_grad(cmha_tape *tape, cmha_tensor *out, cmha_tensor *in) {
    cmha_real *grad;
    if (!in || !in->needs_grad) return;
    if (!in->grad && in->needs_grad == 2 && out->needs_grad == 2 && in->size == out->size) {
        in->grad = out->grad;
        out->grad = NULL;
        return;
    }
    grad = cmha_grad(tape, in);
    if (!grad || cmha__dry(tape)) return;
    CMHA__FOR_CHUNKS(tape->context->threads, in->size, lo, hi) { cmha__axpy(hi - lo, 1, out->grad + lo, grad + lo); }
}

/* Walks the records back and forgets them. */
static cmha_status cmha__walk(cmha_tape *tape) {
    cmha_record *record;
    for (record = tape->last; record; record = record->previous) {
        cmha_status status;
        if (!record->out->grad) continue; /* the loss does not depend on it */
        status = record->backward(tape, record);
        if (status && !tape->status) {
            tape->status = status;
            cmha__fail(tape->context, status, "backward of %s: %s", record->name ? record->name : "an operation",
                       cmha_status_string(status));
        }
        if (tape->status) return tape->status;
        cmha__grad_release(tape, record->out);
    }
    tape->last = NULL;
    return CMHA_OK;
}

CMHA_DEF cmha_status cmha_backward(cmha_tape *tape, cmha_tensor *loss, cmha_real seed) {
    cmha_real *grad;
    if (!tape) return CMHA_ERR_ARGUMENT;
    if (!tape->context) tape->status = CMHA_ERR_STATE;
    if (tape->status) return tape->status;
    if (!loss || loss->size != 1) {
        cmha__reject(tape, CMHA_ERR_SHAPE, "backward: the loss must have one element");
        return tape->status;
    }
    if (!loss->needs_grad) return CMHA_OK; /* depends on nothing that learns */
    grad = cmha_grad(tape, loss);
    if (!grad) return tape->status;
    if (!cmha__dry(tape)) grad[0] = seed;
    return cmha__walk(tape);
}

/* =================================================== Operations =================================================== */

/* ---- Embedding, linear ---- */

CMHA_DEF void cmha_embedding_forward(const cmha_real *weight, const int32_t *ids, size_t T, size_t D, cmha_real *y) {
    for (size_t t = 0; t < T; t++) memcpy(y + t * D, weight + (size_t)ids[t] * D, D * sizeof *y);
}

CMHA_DEF void cmha_embedding_backward(const cmha_real *dy, const int32_t *ids, size_t T, size_t D, cmha_real *dweight) {
    if (dweight)
        for (size_t t = 0; t < T; t++) cmha__axpy(D, 1, dy + t * D, dweight + (size_t)ids[t] * D);
}

static void cmha__fill_rows(const cmha_real *row, size_t T, size_t D, cmha_real *y) {
    for (size_t t = 0; t < T; t++) memcpy(y + t * D, row, D * sizeof *y);
}

/* dbias [D] += sum of rows dy [T, D]. */
static void cmha__sum_rows(const cmha_real *dy, size_t T, size_t D, cmha_real *dbias) {
    for (size_t t = 0; t < T; t++) cmha__axpy(D, 1, dy + t * D, dbias);
}

CMHA_DEF void cmha_linear_forward(const cmha_real *x, const cmha_real *weight, const cmha_real *bias, size_t T, size_t I, size_t O,
                                  cmha_real *y) {
    if (bias) cmha__fill_rows(bias, T, O, y);
    cmha_gemm(0, 1, T, O, I, 1, x, I, weight, I, bias ? 1 : 0, y, O);
}

CMHA_DEF void cmha_linear_backward(const cmha_real *x, const cmha_real *weight, const cmha_real *dy, size_t T, size_t I, size_t O,
                                   cmha_real *dx, cmha_real *dweight, cmha_real *dbias) {
    if (dx) cmha_gemm(0, 0, T, I, O, 1, dy, O, weight, I, 1, dx, I);           /* dx += dy W */
    if (dweight) cmha_gemm(1, 0, O, I, T, 1, dy, O, x, I, 1, dweight, I);      /* dW += dy^T x */
    if (dbias) cmha__sum_rows(dy, T, O, dbias);
}

static cmha_status cmha__add_backward(cmha_tape *tape, cmha_record *r) {
    cmha_real *db = cmha_grad(tape, r->in[1]);
    if (db && !cmha__dry(tape)) cmha__axpy(r->out->size, 1, r->out->grad, db);
    cmha__pass_grad(tape, r->out, r->in[0]);
    return tape->status;
}

static int cmha__same_shape(const cmha_tensor *a, const cmha_tensor *b) {
    return a->rank == b->rank && !memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape);
}

CMHA_DEF cmha_tensor *cmha_add(cmha_tape *tape, cmha_tensor *a, cmha_tensor *b) {
    cmha_tensor *in[2], *y;
    if (!a || !b || !tape || tape->status) return NULL;
    if (!cmha__same_shape(a, b))
        return cmha__reject(tape, CMHA_ERR_SHAPE, "add: sizes %zu and %zu differ in shape", a->size, b->size);
    y = cmha__result(tape, a->rank, a->shape);
    if (!y) return NULL;
    if (!cmha__dry(tape)) {
        memcpy(y->data, a->data, a->size * sizeof *y->data);
        cmha__axpy(a->size, 1, b->data, y->data);
    }
    in[0] = a, in[1] = b;
    return cmha_push(tape, "add", y, in, 2, cmha__add_backward, NULL);
}

static cmha_status cmha__mul_backward(cmha_tape *tape, cmha_record *r) {
    cmha_real *da = cmha_grad(tape, r->in[0]), *db = cmha_grad(tape, r->in[1]);
    if (cmha__dry(tape)) return CMHA_OK;
    if (da)
        for (size_t i = 0; i < r->out->size; i++) da[i] += r->out->grad[i] * r->in[1]->data[i];
    if (db)
        for (size_t i = 0; i < r->out->size; i++) db[i] += r->out->grad[i] * r->in[0]->data[i];
    return tape->status;
}

CMHA_DEF cmha_tensor *cmha_mul(cmha_tape *tape, cmha_tensor *a, cmha_tensor *b) {
    cmha_tensor *in[2], *y;
    if (!a || !b || !tape || tape->status) return NULL;
    if (!cmha__same_shape(a, b))
        return cmha__reject(tape, CMHA_ERR_SHAPE, "mul: sizes %zu and %zu differ in shape", a->size, b->size);
    y = cmha__result(tape, a->rank, a->shape);
    if (!y) return NULL;
    if (!cmha__dry(tape))
        for (size_t i = 0; i < a->size; i++) y->data[i] = a->data[i] * b->data[i];
    in[0] = a, in[1] = b;
    return cmha_push(tape, "mul", y, in, 2, cmha__mul_backward, NULL);
}

static cmha_status cmha__scale_backward(cmha_tape *tape, cmha_record *r) {
    cmha_real *dx = cmha_grad(tape, r->in[0]);
    if (dx && !cmha__dry(tape)) cmha__axpy(r->out->size, *(cmha_real *)r->user, r->out->grad, dx);
    return tape->status;
}

CMHA_DEF cmha_tensor *cmha_scale(cmha_tape *tape, cmha_tensor *x, cmha_real factor) {
    cmha_tensor *y = x ? cmha__result(tape, x->rank, x->shape) : NULL;
    cmha_real *saved = y ? (cmha_real *)cmha__record_alloc(tape, sizeof *saved) : NULL;
    if (!saved) return NULL;
    *saved = factor;
    if (!cmha__dry(tape))
        for (size_t i = 0; i < x->size; i++) y->data[i] = factor * x->data[i];
    return cmha_push(tape, "scale", y, &x, 1, cmha__scale_backward, saved);
}

/* The shape of a matmul: `count` products of [M, K] by [K, N], b advancing by b_step. */
typedef struct cmha__matmul {
    size_t count, M, N, K, b_step;
    int trans_b;
} cmha__matmul;

static cmha_status cmha__matmul_backward(cmha_tape *tape, cmha_record *r) {
    const cmha__matmul *m = (const cmha__matmul *)r->user;
    cmha_real *da = cmha_grad(tape, r->in[0]), *db = cmha_grad(tape, r->in[1]);
    int threads = tape->context->threads;
    if (tape->status || cmha__dry(tape)) return tape->status;
    for (size_t i = 0; i < m->count; i++) {
        const cmha_real *a = r->in[0]->data + i * m->M * m->K, *b = r->in[1]->data + i * m->b_step,
                        *g = r->out->grad + i * m->M * m->N;
        size_t ldb = m->trans_b ? m->K : m->N;
        if (da) cmha__gemm(threads, 0, !m->trans_b, m->M, m->K, m->N, 1, g, m->N, b, ldb, 1, da + i * m->M * m->K, m->K); /* dA = dY B^T */
        if (db && m->trans_b)
            cmha__gemm(threads, 1, 0, m->N, m->K, m->M, 1, g, m->N, a, m->K, 1, db + i * m->b_step, m->K); /* d(B^T) = dY^T A */
        else if (db)
            cmha__gemm(threads, 1, 0, m->K, m->N, m->M, 1, a, m->K, g, m->N, 1, db + i * m->b_step, m->N); /* dB = A^T dY */
    }
    return CMHA_OK;
}

CMHA_DEF cmha_tensor *cmha_matmul(cmha_tape *tape, cmha_tensor *a, cmha_tensor *b, int trans_b) {
    size_t shape[CMHA_MAX_RANK];
    cmha_tensor *in[2], *y;
    cmha__matmul *m;
    if (!a || !b || !tape || tape->status) return NULL;
    if (a->rank < 2 || b->rank < 2) return cmha__reject(tape, CMHA_ERR_SHAPE, "matmul: both need a rank of at least 2");
    m = (cmha__matmul *)cmha__record_alloc(tape, sizeof *m);
    if (!m) return NULL;
    memcpy(shape, a->shape, sizeof shape);
    m->M = a->shape[a->rank - 2];
    m->K = a->shape[a->rank - 1];
    m->N = b->shape[b->rank - (trans_b ? 2 : 1)];
    m->trans_b = trans_b;
    m->count = 1;
    if (m->K != b->shape[b->rank - (trans_b ? 1 : 2)])
        return cmha__reject(tape, CMHA_ERR_SHAPE, "matmul: inner sizes %zu and %zu differ", m->K,
                                b->shape[b->rank - (trans_b ? 1 : 2)]);
    for (int d = 0; d + 2 < a->rank; d++) m->count *= a->shape[d];
    if (b->rank == 2) { /* one matrix for all rows: a single product */
        m->M *= m->count;
        m->count = 1;
    } else if (a->rank != b->rank || memcmp(a->shape, b->shape, (size_t)(a->rank - 2) * sizeof *a->shape)) {
        return cmha__reject(tape, CMHA_ERR_SHAPE, "matmul: batches of sizes %zu and %zu differ in shape", a->size, b->size);
    }
    m->b_step = b->rank == 2 ? 0 : m->K * m->N;
    shape[a->rank - 1] = m->N;
    y = cmha__result(tape, a->rank, shape);
    if (!y) return NULL;
    for (size_t i = 0; i < m->count && !cmha__dry(tape); i++)
        cmha__gemm(tape->context->threads, 0, trans_b, m->M, m->N, m->K, 1, a->data + i * m->M * m->K, m->K,
                   b->data + i * m->b_step, trans_b ? m->K : m->N, 0, y->data + i * m->M * m->N, m->N);
    in[0] = a, in[1] = b;
    return cmha_push(tape, "matmul", y, in, 2, cmha__matmul_backward, m);
}

static cmha_status cmha__reshape_backward(cmha_tape *tape, cmha_record *r) {
    cmha__pass_grad(tape, r->out, r->in[0]);
    return tape->status;
}

CMHA_DEF cmha_tensor *cmha_reshape(cmha_tape *tape, cmha_tensor *x, int rank, const size_t *shape) {
    cmha_tensor *y = x ? cmha__tensor_shaped(tape, rank, shape) : NULL;
    if (!y) return NULL;
    if (y->size != x->size) return cmha__reject(tape, CMHA_ERR_SHAPE, "reshape: %zu elements into %zu", x->size, y->size);
    y->data = x->data;
    return cmha_push(tape, "reshape", y, &x, 1, cmha__reshape_backward, NULL);
}

/* Copies or adds a block of rows: `outer` rows of `width`, strides apart. */
static void cmha__copy_rows(const cmha_real *from, size_t ld_from, size_t outer, size_t width, cmha_real *to, size_t ld_to,
                            int add) {
    for (size_t i = 0; i < outer; i++)
        if (add) cmha__axpy(width, 1, from + i * ld_from, to + i * ld_to);
        else memcpy(to + i * ld_to, from + i * ld_from, width * sizeof *to);
}

/* Around an axis a tensor is `outer` rows of shape[axis] * inner numbers. */
static void cmha__around(const cmha_tensor *t, int axis, size_t *outer, size_t *inner) {
    *outer = *inner = 1;
    for (int d = 0; d < axis; d++) *outer *= t->shape[d];
    for (int d = axis + 1; d < t->rank; d++) *inner *= t->shape[d];
}

static cmha_status cmha__concat_backward(cmha_tape *tape, cmha_record *r) {
    size_t outer, inner, row, at = 0, width;
    int axis = *(int *)r->user, i;
    cmha__around(r->out, axis, &outer, &inner);
    row = r->out->shape[axis] * inner;
    for (i = 0; i < 2; i++, at += width) {
        cmha_real *d = cmha_grad(tape, r->in[i]);
        width = r->in[i]->shape[axis] * inner;
        if (d && !cmha__dry(tape)) cmha__copy_rows(r->out->grad + at, row, outer, width, d, width, 1);
    }
    return tape->status;
}

CMHA_DEF cmha_tensor *cmha_concat(cmha_tape *tape, cmha_tensor *a, cmha_tensor *b, int axis) {
    size_t shape[CMHA_MAX_RANK], outer, inner, wa, wb;
    cmha_tensor *in[2], *y;
    int *saved;
    if (!a || !b || !tape || tape->status) return NULL;
    if (axis < 0 || axis >= a->rank || a->rank != b->rank)
        return cmha__reject(tape, CMHA_ERR_SHAPE, "concat: axis or ranks do not fit");
    memcpy(shape, a->shape, sizeof shape);
    for (int d = 0; d < a->rank; d++)
        if (d != axis && a->shape[d] != b->shape[d])
            return cmha__reject(tape, CMHA_ERR_SHAPE, "concat: sizes %zu and %zu off the axis differ", a->shape[d],
                                    b->shape[d]);
    if (!cmha__sum(a->shape[axis], b->shape[axis], &shape[axis]))
        return cmha__reject(tape, CMHA_ERR_OVERFLOW, "concat: size overflows");
    y = cmha__result(tape, a->rank, shape);
    saved = y ? (int *)cmha__record_alloc(tape, sizeof *saved) : NULL;
    if (!saved) return NULL;
    *saved = axis;
    cmha__around(a, axis, &outer, &inner);
    wa = a->shape[axis] * inner;
    wb = b->shape[axis] * inner;
    if (!cmha__dry(tape)) {
        cmha__copy_rows(a->data, wa, outer, wa, y->data, wa + wb, 0);
        cmha__copy_rows(b->data, wb, outer, wb, y->data + wa, wa + wb, 0);
    }
    in[0] = a, in[1] = b;
    return cmha_push(tape, "concat", y, in, 2, cmha__concat_backward, saved);
}

static cmha_status cmha__slice_backward(cmha_tape *tape, cmha_record *r) {
    const size_t *saved = (const size_t *)r->user; /* axis, begin */
    cmha_real *dx = cmha_grad(tape, r->in[0]);
    size_t outer, inner, width;
    if (!dx || cmha__dry(tape)) return tape->status;
    cmha__around(r->out, (int)saved[0], &outer, &inner);
    width = r->out->shape[saved[0]] * inner;
    cmha__copy_rows(r->out->grad, width, outer, width, dx + saved[1] * inner, r->in[0]->shape[saved[0]] * inner, 1);
    return tape->status;
}

CMHA_DEF cmha_tensor *cmha_slice(cmha_tape *tape, cmha_tensor *x, int axis, size_t begin, size_t end) {
    size_t shape[CMHA_MAX_RANK], outer, inner, *saved;
    cmha_tensor *y;
    if (!x) return NULL;
    if (axis < 0 || axis >= x->rank || begin > end || end > x->shape[axis])
        return cmha__reject(tape, CMHA_ERR_SHAPE, "slice: [%zu, %zu) does not fit the axis", begin, end);
    memcpy(shape, x->shape, sizeof shape);
    shape[axis] = end - begin;
    y = cmha__result(tape, x->rank, shape);
    saved = y ? (size_t *)cmha__record_alloc(tape, 2 * sizeof *saved) : NULL;
    if (!saved) return NULL;
    saved[0] = (size_t)axis;
    saved[1] = begin;
    cmha__around(x, axis, &outer, &inner);
    if (!cmha__dry(tape))
        cmha__copy_rows(x->data + begin * inner, x->shape[axis] * inner, outer, (end - begin) * inner, y->data,
                        (end - begin) * inner, 0);
    return cmha_push(tape, "slice", y, &x, 1, cmha__slice_backward, saved);
}

static cmha_status cmha__sum_backward(cmha_tape *tape, cmha_record *r) {
    cmha_real *dx = cmha_grad(tape, r->in[0]), g;
    if (!dx || cmha__dry(tape)) return tape->status;
    g = r->out->grad[0];
    for (size_t i = 0; i < r->in[0]->size; i++) dx[i] += g;
    return CMHA_OK;
}

CMHA_DEF cmha_tensor *cmha_sum(cmha_tape *tape, cmha_tensor *x) {
    size_t one = 1;
    cmha_tensor *y = x ? cmha__result(tape, 1, &one) : NULL;
    if (!y) return NULL;
    if (!cmha__dry(tape)) y->data[0] = cmha__total(x->data, x->size);
    return cmha_push(tape, "sum", y, &x, 1, cmha__sum_backward, NULL);
}

static cmha_status cmha__embedding_record(cmha_tape *tape, cmha_record *r) {
    size_t D = r->in[0]->shape[1], T = r->out->shape[0] * r->out->shape[1];
    cmha_real *dw = cmha_grad(tape, r->in[0]);
    if (dw && !cmha__dry(tape)) cmha_embedding_backward(r->out->grad, (const int32_t *)r->user, T, D, dw);
    return tape->status;
}

/* Tokens within [0, V), or equal to `ignore` where that is allowed. */
static cmha_status cmha__check_tokens(cmha_tape *tape, const int32_t *ids, size_t n, size_t V, int may_ignore, int32_t ignore) {
    for (size_t i = 0; i < n && !cmha__dry(tape); i++)
        if ((ids[i] < 0 || (size_t)ids[i] >= V) && !(may_ignore && ids[i] == ignore)) {
            cmha__fail(tape->context, CMHA_ERR_TOKEN, "token %ld at index %zu is outside the vocabulary of %zu", (long)ids[i], i,
                       V);
            cmha__stop(tape, CMHA_ERR_TOKEN);
            break;
        }
    return tape->status;
}

CMHA_DEF cmha_tensor *cmha_embedding(cmha_tape *tape, cmha_tensor *weight, const int32_t *ids, size_t B, size_t N) {
    size_t shape[3];
    cmha_tensor *y;
    if (!weight || !tape || tape->status) return NULL;
    if (weight->rank != 2) return cmha__reject(tape, CMHA_ERR_SHAPE, "embedding: the weight must be [V, D]");
    if (!ids) return cmha__reject(tape, CMHA_ERR_ARGUMENT, "embedding: ids is NULL");
    shape[0] = B, shape[1] = N, shape[2] = weight->shape[1];
    y = cmha__result(tape, 3, shape);
    if (!y || cmha__check_tokens(tape, ids, B * N, weight->shape[0], 0, 0)) return NULL;
    if (!cmha__dry(tape)) cmha_embedding_forward(weight->data, ids, B * N, shape[2], y->data);
    return cmha_push(tape, "embedding", y, &weight, 1, cmha__embedding_record, (void *)(uintptr_t)ids);
}

/* ---- Activations ---- */

/* u and du/dx of the argument of the tanh form's sigmoid: (1 + tanh(v))/2 = sigmoid(2 v). */
static inline cmha_real cmha__tanh_argument(cmha_real x, cmha_real *slope) {
    *slope = (cmha_real)1.5957691216057308 * (1 + (cmha_real)0.134145 * x * x);
    return (cmha_real)1.5957691216057308 * x * (1 + (cmha_real)0.044715 * x * x);
}

CMHA_DEF void cmha_gelu_forward(const cmha_real *x, size_t n, cmha_activation kind, cmha_real *y) {
    cmha_real unused;
    if (kind == CMHA_GELU_TANH)
        for (size_t i = 0; i < n; i++) y[i] = x[i] * cmha__sigmoid(cmha__tanh_argument(x[i], &unused));
    else if (kind == CMHA_RELU)
        for (size_t i = 0; i < n; i++) y[i] = x[i] < 0 ? 0 : x[i]; /* NaN stays */
    else
        for (size_t i = 0; i < n; i++) y[i] = x[i] * cmha__normal_cdf(x[i], &unused);
}

CMHA_DEF void cmha_gelu_backward(const cmha_real *x, const cmha_real *dy, size_t n, cmha_activation kind, cmha_real *dx) {
    if (!dx) return;
    if (kind == CMHA_GELU_TANH)
        for (size_t i = 0; i < n; i++) {
            cmha_real slope, s = cmha__sigmoid(cmha__tanh_argument(x[i], &slope));
            cmha_real bend = s * (1 - s);
            dx[i] += dy[i] * (s + (bend > 0 ? x[i] * slope * bend : 0)); /* 0 times an overflown slope is 0 here */
        }
    else if (kind == CMHA_RELU)
        for (size_t i = 0; i < n; i++) dx[i] += x[i] > 0 ? dy[i] : 0;
    else
        for (size_t i = 0; i < n; i++) {
            cmha_real density, cdf = cmha__normal_cdf(x[i], &density);
            dx[i] += dy[i] * (cdf + x[i] * density);
        }
}

/* y = act(x) and its derivative in one go, for a backward that needs both. */
static void cmha__gelu_both(const cmha_real *x, size_t n, cmha_activation kind, cmha_real *CMHA__RESTRICT y,
                            cmha_real *CMHA__RESTRICT slope) {
    if (kind == CMHA_GELU_TANH)
        for (size_t i = 0; i < n; i++) {
            cmha_real steep, s = cmha__sigmoid(cmha__tanh_argument(x[i], &steep)), bend = s * (1 - s);
            y[i] = x[i] * s;
            slope[i] = s + (bend > 0 ? x[i] * steep * bend : 0);
        }
    else if (kind == CMHA_RELU)
        for (size_t i = 0; i < n; i++) {
            y[i] = x[i] < 0 ? 0 : x[i];
            slope[i] = x[i] > 0 ? 1 : 0;
        }
    else
        for (size_t i = 0; i < n; i++) {
            cmha_real density, cdf = cmha__normal_cdf(x[i], &density);
            y[i] = x[i] * cdf;
            slope[i] = cdf + x[i] * density;
        }
}

CMHA_DEF void cmha_swiglu_forward(const cmha_real *gate, const cmha_real *up, size_t n, cmha_real *y) {
    for (size_t i = 0; i < n; i++) y[i] = up[i] * (gate[i] * cmha__sigmoid(gate[i]));
}

CMHA_DEF void cmha_swiglu_backward(const cmha_real *gate, const cmha_real *up, const cmha_real *dy, size_t n, cmha_real *dgate,
                                   cmha_real *dup) {
    if (dgate)
        for (size_t i = 0; i < n; i++) {
            cmha_real s = cmha__sigmoid(gate[i]);
            dgate[i] += dy[i] * up[i] * (s + gate[i] * s * (1 - s));
        }
    if (dup)
        for (size_t i = 0; i < n; i++) dup[i] += dy[i] * (gate[i] * cmha__sigmoid(gate[i]));
}

CMHA_DEF void cmha_dropout_forward(const cmha_real *x, size_t n, cmha_real p, uint64_t key, size_t first, cmha_real *y) {
    size_t i = 0, chunk;
    if (y != x && n) memcpy(y, x, n * sizeof *y);
    if (p <= 0) return;
    for (; i < n; i += chunk) { /* rows of 65536 indices share a 64-bit row key */
        size_t at = first + i, low = at & 65535u;
        chunk = 65536u - low < n - i ? 65536u - low : n - i;
        cmha__drop_row(y + i, chunk, p, cmha__mix(key ^ cmha__mix((uint64_t)(at >> 16))), (uint32_t)low);
    }
}

/* ---- Packed matrices ---- */

/* Rows and columns of a piece of a packed matrix. */
#define CMHA__GROUP ((size_t)4)
#define CMHA__BLOCK ((size_t)64)

static size_t cmha__block_words(cmha_storage storage) { return storage == CMHA_STORAGE_INT8 ? 16 : 32; }
static size_t cmha__blocks(size_t I) { return I / CMHA__BLOCK + (I % CMHA__BLOCK != 0); }
static size_t cmha__groups(size_t O) { return O / CMHA__GROUP + (O % CMHA__GROUP != 0); }

CMHA_DEF size_t cmha_packed_words(cmha_storage storage, size_t O, size_t I) {
    return cmha__countable(cmha__groups(O) * CMHA__GROUP * cmha__blocks(I) * cmha__block_words(storage),
                           ((double)O + CMHA__GROUP) * ((double)I + CMHA__BLOCK));
}

CMHA_DEF size_t cmha_packed_scales(cmha_storage storage, size_t O) { return storage == CMHA_STORAGE_INT8 ? O : 0; }

/* Where a row's block is; the row's next one is CMHA__GROUP blocks further. */
static size_t cmha__block_at(const cmha_packed *p, size_t row, size_t block) {
    size_t words = cmha__block_words(p->storage);
    return ((row / CMHA__GROUP * cmha__blocks(p->I) + block) * CMHA__GROUP + row % CMHA__GROUP) * words;
}

/* The upper half of a float, rounded to nearest, ties to even; a NaN keeps a bit of its mantissa. */
static inline uint32_t cmha__bf16(cmha_real x) {
    float f = (float)x;
    uint32_t bits, rounded;
    memcpy(&bits, &f, sizeof bits);
    rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16 | 0x40) : rounded;
}

static inline cmha_real cmha__bf16_value(uint32_t half) {
    uint32_t bits = half << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return (cmha_real)f;
}

/* Number i of a row of BF16: in word k of 16 the lower half is number k of the next 32, the upper half number k + 16. */
static void cmha__half_put(uint32_t *words, size_t i, cmha_real x) {
    uint32_t *word = words + i / 32 * 16 + i % 16, shift = i / 16 % 2 * 16;
    *word = (*word & 0xffff0000u >> shift) | cmha__bf16(x) << shift;
}

/* to [32 n] = n times 16 words of BF16. */
static void cmha__half_numbers(const uint32_t *words, size_t n, cmha_real *to) {
    for (; n > 0; n--, words += 16, to += 32)
        for (int k = 0; k < 16; k++) to[k] = cmha__bf16_value(words[k] & 0xffff), to[16 + k] = cmha__bf16_value(words[k] >> 16);
}

/* A row's scale: its largest magnitude / 127; NaN where that is no number. */
static cmha_real cmha__row_scale(const cmha_real *row, size_t n) {
    cmha_real most = 0;
    for (size_t i = 0; i < n; i++) {
        cmha_real size = row[i] < 0 ? -row[i] : row[i];
        if (!(size <= CMHA__LARGEST)) return (cmha_real)NAN;
        most = size > most ? size : most;
    }
    return (cmha_real)((double)most / 127);
}

/* The nearest whole number, -127 to 127. */
static uint32_t cmha__code(cmha_real x, cmha_real scale) {
    double steps = scale > 0 ? (double)x / (double)scale : 0; /* a scale that has vanished or is NaN: 0 */
    int code = (int)(steps + (steps < 0 ? -0.5 : 0.5));
    return (uint32_t)(code < -127 ? -127 : code > 127 ? 127 : code) & 255;
}

CMHA_DEF void cmha_pack(cmha_packed *p, const cmha_real *weight) {
    int bytes = p->storage == CMHA_STORAGE_INT8;
    if (p->words) memset(p->words, 0, cmha_packed_words(p->storage, p->O, p->I) * sizeof *p->words);
    p->source = weight;
    for (size_t o = 0; o < p->O; o++, weight += p->I) {
        cmha_real scale = bytes ? cmha__row_scale(weight, p->I) : 1;
        if (bytes) p->scales[o] = scale;
        for (size_t i = 0; i < p->I; i++) {
            uint32_t *block = p->words + cmha__block_at(p, o, i / CMHA__BLOCK);
            if (bytes) block[i % 16] |= cmha__code(weight[i], scale) << i % CMHA__BLOCK / 16 * 8;
            else cmha__half_put(block, i % CMHA__BLOCK, weight[i]);
        }
    }
}

/* to [64] = a block as numbers, without the scale. */
static void cmha__block_numbers(cmha_storage storage, const uint32_t *words, cmha_real *to) {
    if (storage == CMHA_STORAGE_BF16) {
        cmha__half_numbers(words, 2, to);
        return;
    }
    for (int part = 0; part < 4; part++)
        for (int k = 0; k < 16; k++) to[part * 16 + k] = (cmha_real)((int32_t)((words[k] >> part * 8 & 255) ^ 128) - 128);
}

CMHA_DEF void cmha_unpack(const cmha_packed *p, size_t lo, size_t hi, cmha_real *weight) {
    cmha_real block[CMHA__BLOCK];
    size_t n;
    for (size_t o = lo; o < hi; o++)
        for (size_t i = 0; i < p->I; i += n) {
            cmha_real scale = p->scales ? p->scales[o] : 1;
            n = p->I - i < CMHA__BLOCK ? p->I - i : CMHA__BLOCK;
            cmha__block_numbers(p->storage, p->words + cmha__block_at(p, o, i / CMHA__BLOCK), block);
            for (size_t j = 0; j < n; j++) *weight++ = scale * block[j];
        }
}

/* Rows of weights as a product of a few rows x with them streams through: `row` and `block` bytes from one row of a group of 4 and
   one block of 64 columns to the next, `group` from one group to the next. */
typedef struct cmha__stream {
    cmha_storage storage;
    const unsigned char *weights;
    size_t O, I, row, block, group, ahead; /* ahead: bytes by which memory is asked for early */
    const cmha_real *scales;
} cmha__stream;

#if defined(CMHA__GEMM_VECTORS) && !defined(CMHA_DOUBLE)
#define CMHA__STREAMS
#define CMHA__STREAM_LANES (CMHA__VECTOR_BYTES / 4)
#define CMHA__INSIDE CMHA__FUSED __attribute__((always_inline)) static inline
typedef float cmha__floats __attribute__((vector_size(CMHA__VECTOR_BYTES)));
typedef uint32_t cmha__words __attribute__((vector_size(CMHA__VECTOR_BYTES)));
typedef int32_t cmha__ints __attribute__((vector_size(CMHA__VECTOR_BYTES)));
typedef float cmha__quad __attribute__((vector_size(16)));

CMHA__INSIDE cmha__floats cmha__floats_at(const float *from) {
    cmha__floats v;
    memcpy(&v, from, sizeof v);
    return v;
}

CMHA__INSIDE cmha__words cmha__words_at(const void *from) {
    cmha__words v;
    memcpy(&v, from, sizeof v);
    return v;
}

/* sum + the 64 products of a block of weights and x, lane by lane. INT8 codes are converted in the top byte of their word, where a
   mask does for a sign extension: 2^24 times too large. */
CMHA__INSIDE cmha__floats cmha__block_sum(cmha_storage storage, cmha__floats sum, const void *weights, const float *x) {
    CMHA__FUSE
    const uint32_t *words = (const uint32_t *)weights;
    if (storage == CMHA_STORAGE_FLOAT)
        for (int k = 0; k < 64; k += CMHA__STREAM_LANES)
            sum = sum + cmha__floats_at((const float *)weights + k) * cmha__floats_at(x + k);
    else if (storage == CMHA_STORAGE_BF16)
        for (int k = 0; k < 32; k += CMHA__STREAM_LANES) {
            cmha__words w = cmha__words_at(words + k);
            const float *at = x + k + k / 16 * 16;
            sum = sum + (cmha__floats)(w << 16) * cmha__floats_at(at);
            sum = sum + (cmha__floats)(w & 0xffff0000u) * cmha__floats_at(at + 16);
        }
    else
        for (int k = 0; k < 16; k += CMHA__STREAM_LANES) {
            cmha__words w = cmha__words_at(words + k);
            sum = sum + __builtin_convertvector((cmha__ints)(w << 24), cmha__floats) * cmha__floats_at(x + k);
            sum = sum + __builtin_convertvector((cmha__ints)(w << 16 & 0xff000000u), cmha__floats) * cmha__floats_at(x + k + 16);
            sum = sum + __builtin_convertvector((cmha__ints)(w << 8 & 0xff000000u), cmha__floats) * cmha__floats_at(x + k + 32);
            sum = sum + __builtin_convertvector((cmha__ints)(w & 0xff000000u), cmha__floats) * cmha__floats_at(x + k + 48);
        }
    return sum;
}

/* y [4] = the sums of all lanes of four vectors. */
CMHA__INSIDE void cmha__lane_sums(const cmha__floats *sum, float *y) {
    cmha__quad part[CMHA__VECTOR_BYTES / 16];
    float lanes[4];
    for (int r = 0; r < 4; r++) {
        memcpy(part, &sum[r], sizeof part);
        for (int n = CMHA__VECTOR_BYTES / 32; n > 0; n /= 2)
            for (int k = 0; k < n; k++) part[k] = part[k] + part[k + n];
        memcpy(lanes, part, sizeof *part);
        y[r] = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
    }
}

/* y [4] = a group of rows times x. last: the first column of what is left of x and, of floats, the weights, padded with zeros to a
   block. */
CMHA__INSIDE void cmha__stream_group(cmha_storage storage, const cmha__stream *s, const unsigned char *const *rows, const float *x,
                                     const float *x_last, const unsigned char *const *rows_last, float *y) {
    size_t line = storage == CMHA_STORAGE_FLOAT ? 256 : storage == CMHA_STORAGE_BF16 ? 128 : 64, full = s->I / CMHA__BLOCK;
    cmha__floats sum[4];
    memset(sum, 0, sizeof sum);
    for (size_t b = 0; b < full; b++)
        for (int r = 0; r < 4; r++) {
            const unsigned char *at = rows[r] + b * s->block;
            for (size_t l = 0; l < line; l += 64) __builtin_prefetch(at + s->ahead + l);
            sum[r] = cmha__block_sum(storage, sum[r], at, x + b * CMHA__BLOCK);
        }
    for (int r = 0; r < 4 && s->I % CMHA__BLOCK; r++) sum[r] = cmha__block_sum(storage, sum[r], rows_last[r], x_last);
    cmha__lane_sums(sum, y);
}

/* Rows lo .. hi - 1 of the weights times T rows x. */
CMHA__INSIDE void cmha__stream_rows(cmha_storage storage, const cmha__stream *s, const float *x, size_t T, size_t lo, size_t hi,
                                    float *y, size_t ldy) {
    float x_last[CMHA__BLOCK], w_last[4][CMHA__BLOCK], product[4];
    size_t full = s->I / CMHA__BLOCK, left = s->I % CMHA__BLOCK;
    const unsigned char *rows[4], *rows_last[4];
    memset(x_last, 0, sizeof x_last);
    memset(w_last, 0, sizeof w_last);
    for (size_t o = lo / 4 * 4; o < hi; o += 4) {
        for (int r = 0; r < 4; r++) { /* the last group of floats may lack rows */
            size_t row = storage == CMHA_STORAGE_FLOAT && o + (size_t)r >= s->O ? s->O - 1 - o : (size_t)r;
            rows[r] = s->weights + o / 4 * s->group + row * s->row;
            rows_last[r] = rows[r] + full * s->block;
            if (storage != CMHA_STORAGE_FLOAT || !left) continue;
            memcpy(w_last[r], rows_last[r], left * sizeof(float));
            rows_last[r] = (const unsigned char *)w_last[r];
        }
        for (size_t t = 0; t < T; t++) {
            memcpy(x_last, x + t * s->I + full * CMHA__BLOCK, left * sizeof *x);
            cmha__stream_group(storage, s, rows, x + t * s->I, x_last, rows_last, product);
            for (int r = 0; r < 4; r++)
                if (o + (size_t)r >= lo && o + (size_t)r < hi)
                    y[t * ldy + o + (size_t)r] =
                        s->scales ? product[r] * 5.9604644775390625e-8f * s->scales[o + (size_t)r] : product[r];
        }
    }
}

CMHA__FUSED static void cmha__stream_float(const cmha__stream *s, const float *x, size_t T, size_t lo, size_t hi, float *y,
                                           size_t ldy) {
    cmha__stream_rows(CMHA_STORAGE_FLOAT, s, x, T, lo, hi, y, ldy);
}

CMHA__FUSED static void cmha__stream_bf16(const cmha__stream *s, const float *x, size_t T, size_t lo, size_t hi, float *y,
                                          size_t ldy) {
    cmha__stream_rows(CMHA_STORAGE_BF16, s, x, T, lo, hi, y, ldy);
}

CMHA__FUSED static void cmha__stream_int8(const cmha__stream *s, const float *x, size_t T, size_t lo, size_t hi, float *y,
                                          size_t ldy) {
    cmha__stream_rows(CMHA_STORAGE_INT8, s, x, T, lo, hi, y, ldy);
}

/* y [T, ldy], columns lo .. hi - 1 = x [T, I] weight [O, I]^T for few rows x. */
static void cmha__float_forward(const cmha_real *weight, size_t O, size_t I, const cmha_real *x, size_t T, size_t lo, size_t hi,
                                cmha_real *y, size_t ldy) {
    cmha__stream s;
    memset(&s, 0, sizeof s);
    s.weights = (const unsigned char *)weight;
    s.O = O, s.I = I;
    s.row = I * sizeof *weight, s.group = 4 * s.row, s.block = CMHA__BLOCK * sizeof *weight;
    s.ahead = s.group <= 16384 ? s.group : 2048; /* the next group, or further along the row */
    if (lo < hi) cmha__stream_float(&s, x, T, lo, hi, y, ldy);
}

CMHA_DEF void cmha_packed_forward(const cmha_packed *p, const cmha_real *x, size_t T, size_t lo, size_t hi, cmha_real *y,
                                  size_t ldy) {
    cmha__stream s;
    memset(&s, 0, sizeof s);
    s.weights = (const unsigned char *)p->words;
    s.O = p->O, s.I = p->I;
    s.row = cmha__block_words(p->storage) * sizeof *p->words, s.block = 4 * s.row, s.group = cmha__blocks(p->I) * s.block;
    s.ahead = 4096;
    s.scales = p->scales;
    if (p->storage == CMHA_STORAGE_INT8) cmha__stream_int8(&s, x, T, lo, hi, y, ldy);
    else cmha__stream_bf16(&s, x, T, lo, hi, y, ldy);
}
#else
CMHA_DEF void cmha_packed_forward(const cmha_packed *p, const cmha_real *x, size_t T, size_t lo, size_t hi, cmha_real *y,
                                  size_t ldy) {
    cmha_real block[CMHA__BLOCK], sum;
    size_t n;
    for (size_t o = lo; o < hi; o++) {
        for (size_t t = 0; t < T; t++) y[t * ldy + o] = 0;
        for (size_t i = 0; i < p->I; i += n) {
            n = p->I - i < CMHA__BLOCK ? p->I - i : CMHA__BLOCK;
            cmha__block_numbers(p->storage, p->words + cmha__block_at(p, o, i / CMHA__BLOCK), block);
            for (size_t t = 0; t < T; t++) {
                sum = cmha__dot(x + t * p->I + i, block, n);
                y[t * ldy + o] += p->scales ? p->scales[o] * sum : sum;
            }
        }
    }
}
#endif

/* ---- residual + gain * dropout(act(x) W^T + bias) ---- */

typedef struct cmha__sublayer_saved {
    int act;
    cmha_real gain, dropout;
    uint64_t key;
} cmha__sublayer_saved;

static size_t cmha__last(const cmha_tensor *t) { return t->shape[t->rank - 1]; }
static size_t cmha__rows(const cmha_tensor *t) {
    size_t rows = 1;
    for (int i = 0; i + 1 < t->rank; i++) rows *= t->shape[i]; /* not size / last, which may be 0 / 0 */
    return rows;
}

/* y [T, I] = act(x). */
static void cmha__activate_rows(int threads, const cmha_real *x, size_t T, size_t I, int act, cmha_real *y) {
    CMHA__FOR_CHUNKS(threads, T, lo, hi) {
        if (act != CMHA_SWIGLU) cmha_gelu_forward(x + lo * I, (hi - lo) * I, (cmha_activation)act, y + lo * I);
        else
            for (size_t t = lo; t < hi; t++) cmha_swiglu_forward(x + t * 2 * I, x + t * 2 * I + I, I, y + t * I);
    }
}

static void cmha__activate_rows_backward(int threads, const cmha_real *x, const cmha_real *dy, size_t T, size_t I, int act,
                                         cmha_real *dx) {
    CMHA__FOR_CHUNKS(threads, T, lo, hi) {
        if (act != CMHA_SWIGLU) cmha_gelu_backward(x + lo * I, dy + lo * I, (hi - lo) * I, (cmha_activation)act, dx + lo * I);
        else
            for (size_t t = lo; t < hi; t++)
                cmha_swiglu_backward(x + t * 2 * I, x + t * 2 * I + I, dy + t * I, I, dx + t * 2 * I, dx + t * 2 * I + I);
    }
}

/* dbias += column sums, columns dealt to threads. */
static void cmha__bias_backward(int threads, const cmha_real *dy, size_t T, size_t O, cmha_real *dbias) {
    CMHA__FOR_CHUNKS(threads, O, lo, hi) {
        for (size_t t = 0; t < T; t++) cmha__axpy(hi - lo, 1, dy + t * O + lo, dbias + lo);
    }
}

/* gd = gain * dropout(dy), or dy itself where that is the identity. */
static cmha_real *cmha__sublayer_cotangent(cmha_tape *tape, cmha_record *r) {
    const cmha__sublayer_saved *s = (const cmha__sublayer_saved *)r->user;
    size_t n = r->out->size;
    cmha_real *gd;
    if (s->gain == 1 && s->dropout <= 0) return r->out->grad;
    gd = cmha__reals(tape, n);
    if (!gd || cmha__dry(tape)) return gd;
    CMHA__FOR_CHUNKS(tape->context->threads, n, lo, hi) {
        cmha_dropout_forward(r->out->grad + lo, hi - lo, s->dropout, s->key, lo, gd + lo);
        for (size_t i = lo; i < hi; i++) gd[i] *= s->gain;
    }
    return gd;
}

/* h = act(x) for the gradient of the weight; and where the gradient of x is new, it gets the derivative for now. */
static void cmha__sublayer_activate(int threads, const cmha_tensor *x, size_t T, size_t I, int act, cmha_real *h,
                                    cmha_real *slope) {
    if (slope)
        CMHA__FOR_CHUNKS(threads, T * I, lo, hi) {
            cmha__gelu_both(x->data + lo, hi - lo, (cmha_activation)act, h + lo, slope + lo);
        }
    else if (h)
        cmha__activate_rows(threads, x->data, T, I, act, h);
}

/* dx from dh, the gradient of h = act(x), or dx *= dh where it holds the derivative. */
static void cmha__sublayer_deactivate(int threads, const cmha_tensor *x, const cmha_real *dh, size_t T, size_t I, int act,
                                      int holds, cmha_real *dx) {
    if (holds)
        CMHA__FOR_CHUNKS(threads, T * I, lo, hi) {
            for (size_t i = lo; i < hi; i++) dx[i] *= dh[i];
        }
    else
        cmha__activate_rows_backward(threads, x->data, dh, T, I, act, dx);
}

static cmha_status cmha__sublayer_backward(cmha_tape *tape, cmha_record *r) {
    const cmha__sublayer_saved *s = (const cmha__sublayer_saved *)r->user;
    cmha_tensor *x = r->in[0], *w = r->in[1];
    size_t T = cmha__rows(r->out), O = w->shape[0], I = w->shape[1];
    int threads = tape->context->threads, fresh = 0, holds, both = s->act < 0 || (s->act != CMHA_SWIGLU && w->needs_grad);
    cmha_real *dx = both ? cmha__grad_fresh(tape, x, &fresh) : cmha_grad(tape, x);
    cmha_real *dw = cmha_grad(tape, w), *dbias = cmha_grad(tape, r->in[2]), *gd, *h = s->act < 0 ? x->data : NULL, *dh = dx;
    cmha__mark mark = cmha__mark_of(tape);
    holds = s->act >= 0 && dw && dx && fresh;
    gd = cmha__sublayer_cotangent(tape, r);
    if (s->act >= 0 && dw) h = cmha__reals(tape, T * I);
    if (s->act >= 0 && dx) dh = cmha__reals(tape, T * I);
    if (!tape->status && !cmha__dry(tape)) {
        if (s->act >= 0) cmha__sublayer_activate(threads, x, T, I, s->act, h, holds ? dx : NULL);
        if (dw) cmha__gemm(threads, 1, 0, O, I, T, 1, gd, O, h, I, 1, dw, I);                                            /* dW += g^T h */
        if (dbias) cmha__bias_backward(threads, gd, T, O, dbias);
        if (dx) cmha__gemm(threads, 0, 0, T, I, O, 1, gd, O, w->data, I, s->act < 0 && !fresh ? 1 : 0, dh, I);           /* dh = g W */
        if (s->act >= 0 && dx) cmha__sublayer_deactivate(threads, x, dh, T, I, s->act, holds, dx);
    }
    cmha__rewind(tape, mark);
    cmha__pass_grad(tape, r->out, r->in[3]);
    return tape->status;
}

/* y = residual + gain * dropout(y + bias), row by row; y may be the product's own memory. */
static void cmha__sublayer_finish(const cmha_tape *tape, const cmha__sublayer_saved *s, const cmha_real *product,
                                  const cmha_tensor *bias, const cmha_real *residual, size_t T, size_t O, cmha_real *y) {
    if (!bias && !residual && s->gain == 1 && s->dropout <= 0) return;
    CMHA__FOR_CHUNKS(tape->context->threads, T, lo, hi) {
        for (size_t t = lo; t < hi; t++) {
            const cmha_real *p = product + t * O, *base = residual ? residual + t * O : NULL;
            cmha_real *row = y + t * O;
            if (s->dropout > 0) { /* training: product is y */
                if (bias) cmha__axpy(O, 1, bias->data, row);
                cmha_dropout_forward(row, O, s->dropout, s->key, t * O, row);
                for (size_t i = 0; i < O; i++) row[i] = s->gain * row[i] + (base ? base[i] : 0);
            } else if (bias && base) {
                for (size_t i = 0; i < O; i++) row[i] = base[i] + s->gain * (p[i] + bias->data[i]);
            } else if (bias) {
                for (size_t i = 0; i < O; i++) row[i] = s->gain * (p[i] + bias->data[i]);
            } else {
                for (size_t i = 0; i < O; i++) row[i] = s->gain * p[i] + (base ? base[i] : 0);
            }
        }
    }
}

/* A failure of shared options, else OK: a dropout rate in [0, 1), an epsilon of at least 0; both false for NaN. */
static cmha_status cmha__check_dropout(cmha_tape *tape, cmha_real p) {
    if (!(p >= 0) || p >= 1) cmha__reject(tape, CMHA_ERR_ARGUMENT, "dropout: p must be at least 0 and below 1");
    return tape->status;
}

static cmha_status cmha__check_eps(cmha_tape *tape, const char *operation, cmha_real eps) {
    char line[64];
    snprintf(line, sizeof line, "%s: eps must be at least 0", operation);
    if (!(eps >= 0)) cmha__reject(tape, CMHA_ERR_ARGUMENT, "%s", line);
    return tape->status;
}

static const char *cmha__sublayer_misfit(const cmha_tensor *x, int act, const cmha_tensor *w, const cmha_tensor *bias,
                                         const cmha_tensor *residual) {
    if (w->rank != 2) return "linear: the weight must be [O, I]";
    if (cmha__last(x) != w->shape[1] * (act == CMHA_SWIGLU ? 2 : 1)) return "linear: input of width %zu, weight for %zu";
    if (act > CMHA_RELU) return "linear: there is no such activation (input of width %zu, weight for %zu)";
    if (bias && bias->size != w->shape[0]) return "linear: output of width %zu (input of %zu), another in the bias";
    if (residual && (cmha__last(residual) != w->shape[0] || cmha__rows(residual) != cmha__rows(x)))
        return "linear: the residual does not have the shape of the output (input of width %zu, weight for %zu)";
    return NULL;
}

/* ---- Products with weights ---- */

/* The packed copy of a weight [O, I] that the tape may read instead; NULL = none. */
static const cmha_packed *cmha__packed_of(const cmha_tape *tape, const cmha_real *weight, size_t O, size_t I) {
    const cmha_quantised *q = tape->weights;
    size_t lo = 0, hi = q && !tape->recording ? q->n_matrices : 0;
    while (lo < hi) { /* they are sorted by address */
        size_t middle = lo + (hi - lo) / 2;
        if (q->matrices[middle].source < weight) lo = middle + 1;
        else hi = middle;
    }
    if (!q || tape->recording || lo == q->n_matrices) return NULL;
    return q->matrices[lo].source == weight && q->matrices[lo].O == O && q->matrices[lo].I == I ? &q->matrices[lo] : NULL;
}

enum { CMHA__FEW_ROWS = 4 }; /* more of them, and a matrix product is faster than streaming */

/* Rows of a packed matrix that become floats at a time: 256 KiB, at home in a level-2 cache. */
static size_t cmha__unpacked_rows(size_t O, size_t I) {
    size_t rows = (I < 4096 ? 65536 / (I ? I : 1) : 16) / 16 * 16;
    return rows < O ? rows : O;
}

/* y [T, O] = x [T, I] weight^T for a few rows, a decoded token's: as fast as memory gives the weights, faster than a BLAS. */
static void cmha__few_rows(int threads, const cmha_real *weight, const cmha_real *x, size_t T, size_t I, size_t O, cmha_real *y) {
#ifdef CMHA__STREAMS
    CMHA__FOR_CHUNKS(threads, cmha__groups(O), lo, hi) {
        cmha__float_forward(weight, O, I, x, T, lo * CMHA__GROUP, hi * CMHA__GROUP < O ? hi * CMHA__GROUP : O, y, O);
    }
#else
    cmha__gemm(threads, 0, 1, T, O, I, 1, x, I, weight, I, 0, y, O);
#endif
}

/* y [T, O] = x [T, I] weight^T. Many rows of a packed matrix: a piece at a time becomes floats, in `pieces` of the threads. */
static void cmha__unpacked_product(int threads, const cmha_packed *p, const cmha_real *x, size_t T, cmha_real *y,
                                   cmha_real *pieces) {
    size_t rows = cmha__unpacked_rows(p->O, p->I), count = p->O / rows + (p->O % rows != 0);
    CMHA__FOR_CHUNKS(threads, count, first, last) {
        cmha_real *weight = pieces + (size_t)cmha__chunk * rows * p->I;
        size_t lo, hi;
        for (size_t i = first; i < last; i++) {
            lo = i * rows, hi = p->O - lo < rows ? p->O : lo + rows;
            cmha_unpack(p, lo, hi, weight);
            cmha_gemm(0, 1, T, hi - lo, p->I, 1, x, p->I, weight, p->I, 0, y + lo, p->O);
        }
    }
}

/* y [T, O] = x [T, I] weight^T, by the packed copy of the weight where the tape has one. Takes and gives back scratch of the tape,
   also in a dry run, which computes nothing. */
static void cmha__weight_product(cmha_tape *tape, const cmha_real *weight, const cmha_real *x, size_t T, size_t I, size_t O,
                                 cmha_real *y) {
    const cmha_packed *p = cmha__packed_of(tape, weight, O, I);
    int few = T <= CMHA__FEW_ROWS, threads = tape->context->threads;
    cmha__mark mark = cmha__mark_of(tape);
    cmha_real *pieces = p && !few ? cmha__reals(tape, (size_t)threads * cmha__unpacked_rows(O, I) * I) : NULL;
    if (!tape->status && !cmha__dry(tape)) {
        if (few && T * O * I < 65536) threads = 1;
        if (p && !few) {
            cmha__unpacked_product(threads, p, x, T, y, pieces);
        } else if (p) {
            CMHA__FOR_CHUNKS(threads, cmha__groups(O), lo, hi) {
                cmha_packed_forward(p, x, T, lo * CMHA__GROUP, hi * CMHA__GROUP < O ? hi * CMHA__GROUP : O, y, O);
            }
        } else if (few && !tape->recording) {
            cmha__few_rows(threads, weight, x, T, I, O, y);
        } else {
            cmha__gemm(threads, 0, 1, T, O, I, 1, x, I, weight, I, 0, y, O);
        }
    }
    cmha__rewind(tape, mark);
}

/* in_place: outside of a recording, the result may take the residual's memory. */
static cmha_tensor *cmha__sublayer(cmha_tape *tape, cmha_tensor *x, int act, cmha_tensor *weight, cmha_tensor *bias,
                                   cmha_tensor *residual, cmha_real gain, cmha_real dropout, int in_place) {
    size_t shape[CMHA_MAX_RANK], T, I, O;
    cmha_tensor *in[4], *y;
    cmha__sublayer_saved *s;
    cmha_real *h, *product;
    const char *misfit;
    cmha__mark mark;
    if (!x || !weight || !tape || tape->status) return NULL;
    misfit = cmha__sublayer_misfit(x, act, weight, bias, residual);
    if (misfit)
        return cmha__reject(tape, act > CMHA_RELU ? CMHA_ERR_ARGUMENT : CMHA_ERR_SHAPE, misfit, cmha__last(x),
                                weight->shape[weight->rank - 1]);
    if (cmha__check_dropout(tape, dropout)) return NULL;
    T = cmha__rows(x), O = weight->shape[0], I = weight->shape[1];
    memcpy(shape, x->shape, sizeof shape);
    shape[x->rank - 1] = O;
    in_place = in_place && residual && !tape->recording;
    y = in_place ? residual : cmha__result(tape, x->rank, shape);
    s = y ? (cmha__sublayer_saved *)cmha__record_alloc(tape, sizeof *s) : NULL;
    if (!s) return NULL;
    s->act = act;
    s->gain = gain;
    s->dropout = tape->recording ? dropout : 0;
    s->key = s->dropout > 0 ? cmha__draw(tape) : 0;
    mark = cmha__mark_of(tape);
    h = act >= 0 ? cmha__reals(tape, T * I) : x->data;
    product = in_place ? cmha__reals(tape, T * O) : y->data;
    if (act >= 0 && !tape->status && !cmha__dry(tape)) cmha__activate_rows(tape->context->threads, x->data, T, I, act, h);
    cmha__weight_product(tape, weight->data, h, T, I, O, product); /* Y = h W^T */
    if (!tape->status && !cmha__dry(tape))
        cmha__sublayer_finish(tape, s, product, bias, residual ? residual->data : NULL, T, O, y->data);
    cmha__rewind(tape, mark);
    in[0] = x, in[1] = weight, in[2] = bias, in[3] = residual;
    return cmha_push(tape, "sublayer", y, in, 4, cmha__sublayer_backward, s);
}

CMHA_DEF cmha_tensor *cmha_sublayer(cmha_tape *tape, cmha_tensor *x, int act, cmha_tensor *weight, cmha_tensor *bias,
                                    cmha_tensor *residual, cmha_real gain, cmha_real dropout) {
    return cmha__sublayer(tape, x, act, weight, bias, residual, gain, dropout, 0);
}

CMHA_DEF cmha_tensor *cmha_linear(cmha_tape *tape, cmha_tensor *x, cmha_tensor *weight, cmha_tensor *bias) {
    return cmha__sublayer(tape, x, -1, weight, bias, NULL, 1, 0, 0);
}

/* ---- Norms ---- */

/* 1 / sqrt(mean of (x - mean)^2 + eps) of a row whose squares leave the range of the type: in double and over its largest number. A
   row that is not finite has none. */
CMHA__COLD static cmha_real cmha__wide_root(const cmha_real *x, size_t D, double eps, int centred, cmha_real *mean) {
    double top = 0, middle = 0, sum = 0, root, d;
    for (size_t i = 0; i < D; i++) {
        d = fabs((double)x[i]);
        if (!(d <= DBL_MAX)) return (cmha_real)NAN;
        top = d > top ? d : top;
    }
    for (size_t i = 0; centred && i < D; i++) middle += (double)x[i] / top;
    middle /= (double)D;
    for (size_t i = 0; i < D; i++) d = (double)x[i] / top - middle, sum += d * d;
    *mean = (cmha_real)(middle * top);
    root = 1 / (top * sqrt(sum / (double)D + eps / top / top));
    return root <= (double)FLT_MAX ? (cmha_real)root : 0; /* eps = 0 and a constant row */
}

/* The mean of dy weight (x - mean) r^2 where a product of the first three leaves the range of the type. */
CMHA__COLD static cmha_real cmha__wide_cross(const cmha_real *x, const cmha_real *weight, const cmha_real *dy, size_t D, cmha_real mean,
                                             cmha_real r) {
    double sum = 0;
    for (size_t i = 0; i < D; i++) sum += (double)dy[i] * (double)weight[i] * (((double)x[i] - (double)mean) * (double)r);
    return (cmha_real)(sum * (double)r / (double)D);
}

CMHA_DEF void cmha_layernorm_forward(const cmha_real *x, const cmha_real *weight, const cmha_real *bias, size_t T, size_t D,
                                     cmha_real eps, cmha_real *y, cmha_real *stats) {
    for (size_t t = 0; t < T; t++, x += D, y += D) {
        cmha_real mean = cmha__total(x, D) / (cmha_real)D, r, squares;
        for (size_t i = 0; i < D; i++) y[i] = x[i] - mean;
        squares = cmha__dot(y, y, D);
        r = 1 / (cmha_real)sqrt((double)(squares / (cmha_real)D + eps));
        if (r > (cmha_real)FLT_MAX) r = 0; /* eps = 0 and a constant row */
        if (!(squares <= CMHA__LARGEST)) {
            r = cmha__wide_root(x, D, (double)eps, 1, &mean);
            for (size_t i = 0; i < D; i++) y[i] = x[i] - mean;
        }
        for (size_t i = 0; i < D; i++) y[i] = y[i] * r * weight[i];
        if (bias) cmha__axpy(D, 1, bias, y);
        stats[2 * t] = mean;
        stats[2 * t + 1] = r;
    }
}

/* The sums of g = dy weight and of g (x - mean) over a row. The terms of a block are written down first: so all vectorises. */
static void cmha__norm_sums(const cmha_real *x, const cmha_real *weight, const cmha_real *dy, size_t D, cmha_real mean,
                            cmha_real *sum, cmha_real *cross) {
    cmha_real g[256], c[256];
    size_t n;
    *sum = *cross = 0;
    for (size_t at = 0; at < D; at += n) {
        n = D - at < 256 ? D - at : 256;
        for (size_t i = 0; i < n; i++) {
            g[i] = dy[at + i] * weight[at + i];
            c[i] = g[i] * (x[at + i] - mean);
        }
        *sum += cmha__total(g, n);
        *cross += cmha__total(c, n);
    }
}

CMHA_DEF void cmha_layernorm_backward(const cmha_real *x, const cmha_real *weight, const cmha_real *stats, const cmha_real *dy,
                                      size_t T, size_t D, cmha_real *dx, cmha_real *dweight, cmha_real *dbias) {
    for (size_t t = 0; t < T; t++, x += D, dy += D) {
        cmha_real mean = stats[2 * t], r = stats[2 * t + 1];
        if (dx) {
            cmha_real sum, cross;
            cmha__norm_sums(x, weight, dy, D, mean, &sum, &cross);
            sum /= (cmha_real)D;
            cross = cross * r * r / (cmha_real)D;
            if (!(cross <= CMHA__LARGEST && cross >= -CMHA__LARGEST)) cross = cmha__wide_cross(x, weight, dy, D, mean, r);
            for (size_t i = 0; i < D; i++) dx[i] += r * (dy[i] * weight[i] - sum - (x[i] - mean) * cross);
            dx += D;
        }
        if (dweight)
            for (size_t i = 0; i < D; i++) dweight[i] += dy[i] * ((x[i] - mean) * r);
        if (dbias) cmha__axpy(D, 1, dy, dbias);
    }
}

CMHA_DEF void cmha_rmsnorm_forward(const cmha_real *x, const cmha_real *weight, size_t T, size_t D, cmha_real eps, cmha_real *y,
                                   cmha_real *stats) {
    for (size_t t = 0; t < T; t++, x += D, y += D) {
        cmha_real squares = cmha__dot(x, x, D), r = 1 / (cmha_real)sqrt((double)(squares / (cmha_real)D + eps)), none;
        if (r > (cmha_real)FLT_MAX) r = 0; /* eps = 0 and a row of zeros */
        if (!(squares <= CMHA__LARGEST)) r = cmha__wide_root(x, D, (double)eps, 0, &none);
        for (size_t i = 0; i < D; i++) y[i] = x[i] * r * weight[i];
        stats[t] = r;
    }
}

CMHA_DEF void cmha_rmsnorm_backward(const cmha_real *x, const cmha_real *weight, const cmha_real *stats, const cmha_real *dy,
                                    size_t T, size_t D, cmha_real *dx, cmha_real *dweight) {
    for (size_t t = 0; t < T; t++, x += D, dy += D) {
        cmha_real r = stats[t];
        if (dx) {
            cmha_real sum, cross;
            cmha__norm_sums(x, weight, dy, D, 0, &sum, &cross);
            cross = cross * r * r / (cmha_real)D;
            if (!(cross <= CMHA__LARGEST && cross >= -CMHA__LARGEST)) cross = cmha__wide_cross(x, weight, dy, D, 0, r);
            for (size_t i = 0; i < D; i++) dx[i] += r * (dy[i] * weight[i] - x[i] * cross);
            dx += D;
        }
        if (dweight)
            for (size_t i = 0; i < D; i++) dweight[i] += dy[i] * (x[i] * r);
    }
}

/* ---- Norms: LayerNorm and RMSNorm share their record; in[2] (the bias) is NULL and `rms` set for the latter ---- */

typedef struct cmha__norm_saved {
    cmha_real *stats;
    int rms;
} cmha__norm_saved;

static cmha_status cmha__norm_backward(cmha_tape *tape, cmha_record *r) {
    const cmha__norm_saved *s = (const cmha__norm_saved *)r->user;
    cmha_tensor *x = r->in[0], *w = r->in[1];
    size_t D = cmha__last(x), T = cmha__rows(x), threads = (size_t)tape->context->threads, c;
    cmha_real *dx = cmha_grad(tape, x), *dw = cmha_grad(tape, w), *db = cmha_grad(tape, r->in[2]), *partial;
    cmha__mark mark = cmha__mark_of(tape);
    partial = cmha__reals(tape, threads * 2 * D);
    if (!tape->status && !cmha__dry(tape)) {
        memset(partial, 0, threads * 2 * D * sizeof *partial);
        CMHA__FOR_CHUNKS(tape->context->threads, T, lo, hi) {
            cmha_real *pw = partial + (size_t)cmha__chunk * 2 * D;
            if (s->rms)
                cmha_rmsnorm_backward(x->data + lo * D, w->data, s->stats + lo, r->out->grad + lo * D, hi - lo, D,
                                      dx ? dx + lo * D : NULL, pw);
            else
                cmha_layernorm_backward(x->data + lo * D, w->data, s->stats + 2 * lo, r->out->grad + lo * D, hi - lo, D,
                                        dx ? dx + lo * D : NULL, pw, pw + D);
        }
        for (c = 0; c < threads; c++) {
            if (dw) cmha__axpy(D, 1, partial + c * 2 * D, dw);
            if (db) cmha__axpy(D, 1, partial + c * 2 * D + D, db);
        }
    }
    cmha__rewind(tape, mark);
    return tape->status;
}

static cmha_tensor *cmha__norm(cmha_tape *tape, cmha_tensor *x, cmha_tensor *weight, cmha_tensor *bias, cmha_real eps, int rms) {
    cmha_tensor *in[3], *y;
    cmha__norm_saved *s;
    size_t D, T;
    if (!x || !weight || !tape || tape->status) return NULL;
    D = cmha__last(x), T = cmha__rows(x);
    if (weight->size != D || (bias && bias->size != D))
        return cmha__reject(tape, CMHA_ERR_SHAPE, "norm: rows of %zu, weight or bias of %zu", D, weight->size);
    if (cmha__check_eps(tape, "norm", eps)) return NULL;
    y = cmha__result(tape, x->rank, x->shape);
    s = y ? (cmha__norm_saved *)cmha__record_alloc(tape, sizeof *s) : NULL;
    if (!s) return NULL;
    s->rms = rms;
    s->stats = cmha__reals(tape, 2 * T);
    if (!s->stats) return NULL;
    if (!cmha__dry(tape))
        CMHA__FOR_CHUNKS(tape->context->threads, T, lo, hi) {
            if (rms) cmha_rmsnorm_forward(x->data + lo * D, weight->data, hi - lo, D, eps, y->data + lo * D, s->stats + lo);
            else
                cmha_layernorm_forward(x->data + lo * D, weight->data, bias ? bias->data : NULL, hi - lo, D, eps, y->data + lo * D,
                                       s->stats + 2 * lo);
        }
    in[0] = x, in[1] = weight, in[2] = bias;
    return cmha_push(tape, rms ? "rmsnorm" : "layernorm", y, in, 3, cmha__norm_backward, s);
}

CMHA_DEF cmha_tensor *cmha_layernorm(cmha_tape *tape, cmha_tensor *x, cmha_tensor *weight, cmha_tensor *bias, cmha_real eps) {
    return cmha__norm(tape, x, weight, bias, eps, 0);
}

CMHA_DEF cmha_tensor *cmha_rmsnorm(cmha_tape *tape, cmha_tensor *x, cmha_tensor *weight, cmha_real eps) {
    return cmha__norm(tape, x, weight, NULL, eps, 1);
}

static cmha_status cmha__activate_backward(cmha_tape *tape, cmha_record *r) {
    cmha_real *dx = cmha_grad(tape, r->in[0]);
    if (dx && !cmha__dry(tape))
        cmha__activate_rows_backward(tape->context->threads, r->in[0]->data, r->out->grad, cmha__rows(r->out), cmha__last(r->out),
                                     *(int *)r->user, dx);
    return tape->status;
}

CMHA_DEF cmha_tensor *cmha_activate(cmha_tape *tape, cmha_tensor *x, cmha_activation kind) {
    size_t shape[CMHA_MAX_RANK];
    cmha_tensor *y;
    int *saved;
    if (!x || !tape || tape->status) return NULL;
    if ((int)kind < 0 || kind > CMHA_RELU) return cmha__reject(tape, CMHA_ERR_ARGUMENT, "activate: there is no such activation");
    memcpy(shape, x->shape, sizeof shape);
    if (kind == CMHA_SWIGLU) {
        if (cmha__last(x) % 2)
            return cmha__reject(tape, CMHA_ERR_SHAPE, "swiglu: width %zu is odd (%zu numbers)", cmha__last(x), x->size);
        shape[x->rank - 1] /= 2;
    }
    y = cmha__result(tape, x->rank, shape);
    saved = y ? (int *)cmha__record_alloc(tape, sizeof *saved) : NULL;
    if (!saved) return NULL;
    *saved = (int)kind;
    if (!cmha__dry(tape)) cmha__activate_rows(tape->context->threads, x->data, cmha__rows(y), cmha__last(y), (int)kind, y->data);
    return cmha_push(tape, "activate", y, &x, 1, cmha__activate_backward, saved);
}

typedef struct cmha__dropout_saved {
    cmha_real p;
    uint64_t key;
} cmha__dropout_saved;

static cmha_status cmha__dropout_backward(cmha_tape *tape, cmha_record *r) {
    const cmha__dropout_saved *s = (const cmha__dropout_saved *)r->user;
    cmha_real *dx = cmha_grad(tape, r->in[0]), *g;
    cmha__mark mark = cmha__mark_of(tape);
    g = cmha__reals(tape, r->out->size);
    if (dx && g && !cmha__dry(tape)) {
        cmha_dropout_forward(r->out->grad, r->out->size, s->p, s->key, 0, g);
        cmha__axpy(r->out->size, 1, g, dx);
    }
    cmha__rewind(tape, mark);
    return tape->status;
}

CMHA_DEF cmha_tensor *cmha_dropout(cmha_tape *tape, cmha_tensor *x, cmha_real p) {
    cmha__dropout_saved *s;
    cmha_tensor *y;
    if (!x || !tape || tape->status) return NULL;
    if (cmha__check_dropout(tape, p)) return NULL;
    if (p == 0 || !tape->recording) return x;
    y = cmha__result(tape, x->rank, x->shape);
    s = y ? (cmha__dropout_saved *)cmha__record_alloc(tape, sizeof *s) : NULL;
    if (!s) return NULL;
    s->p = p;
    s->key = cmha__draw(tape);
    if (!cmha__dry(tape)) cmha_dropout_forward(x->data, x->size, p, s->key, 0, y->data);
    return cmha_push(tape, "dropout", y, &x, 1, cmha__dropout_backward, s);
}

/* ---- Cross-entropy ---- */

/* What a row of logits is counted from. */
static cmha_real cmha__top_logit(const cmha_real *logits, size_t V) {
    cmha_real top = cmha__largest(logits, V);
    return top > -(cmha_real)INFINITY ? top : logits[0]; /* only NaN and -Inf: let them through */
}

CMHA_DEF double cmha_cross_entropy_forward(const cmha_real *logits, const int32_t *targets, size_t T, size_t V, int32_t ignore,
                                           cmha_real *lse, size_t *counted) {
    double sum = 0;
    size_t n, count = 0;
    for (size_t t = 0; t < T; t++, logits += V) {
        cmha_real some[256], all = 0, top, rest;
        if (lse) lse[2 * t] = lse[2 * t + 1] = 0;
        if (targets[t] == ignore) continue;
        top = cmha__top_logit(logits, V);
        for (size_t i = 0; i < V; i += n) {
            n = V - i < 256 ? V - i : 256;
            memcpy(some, logits + i, n * sizeof *some);
            all += cmha__exp_shifted(some, n, top);
        }
        rest = (cmha_real)log((double)all);
        if (lse) {
            lse[2 * t] = top;
            lse[2 * t + 1] = rest;
        }
        sum += ((double)top - (double)logits[targets[t]]) + (double)rest;
        count++;
    }
    if (counted) *counted = count;
    return sum;
}

CMHA_DEF double cmha_cross_entropy_gradient(cmha_real *logits, const int32_t *targets, size_t T, size_t V, int32_t ignore,
                                            cmha_real scale) {
    double sum = 0;
    for (size_t t = 0; t < T; t++, logits += V) {
        cmha_real top, all, factor;
        if (targets[t] == ignore) {
            memset(logits, 0, V * sizeof *logits);
            continue;
        }
        top = cmha__top_logit(logits, V);
        sum += (double)top - (double)logits[targets[t]];
        all = cmha__exp_shifted(logits, V, top);
        sum += log((double)all);
        factor = scale / all;
        for (size_t i = 0; i < V; i++) logits[i] *= factor;
        logits[targets[t]] -= scale;
    }
    return sum;
}

CMHA_DEF void cmha_cross_entropy_backward(const cmha_real *logits, const int32_t *targets, const cmha_real *lse, size_t T, size_t V,
                                          int32_t ignore, cmha_real scale, cmha_real *dlogits) {
    if (!dlogits) return;
    for (size_t t = 0; t < T; t++, logits += V, dlogits += V) {
        if (targets[t] == ignore) continue;
        for (size_t i = 0; i < V; i++) dlogits[i] += scale * cmha__exp((logits[i] - lse[2 * t]) - lse[2 * t + 1]);
        dlogits[targets[t]] -= scale;
    }
}

/* ---- Losses ---- */

typedef struct cmha__entropy_saved {
    const int32_t *targets;
    const cmha_real *weights; /* of the classes; NULL = 1 each */
    cmha_real *lse;
    double counted;           /* rows, or their weights' sum */
    int32_t ignore;
} cmha__entropy_saved;

/* Weight of a row by its target. */
static double cmha__row_weight(const cmha__entropy_saved *s, size_t t) {
    if (s->targets[t] == s->ignore) return 0;
    return s->weights ? (double)s->weights[s->targets[t]] : 1;
}

static cmha_status cmha__entropy_backward(cmha_tape *tape, cmha_record *r) {
    const cmha__entropy_saved *s = (const cmha__entropy_saved *)r->user;
    size_t V = cmha__last(r->in[0]), T = cmha__rows(r->in[0]);
    cmha_real *d = cmha_grad(tape, r->in[0]), scale;
    if (!d || cmha__dry(tape) || !(s->counted > 0)) return tape->status;
    scale = r->out->grad[0] / (cmha_real)s->counted;
    CMHA__FOR_CHUNKS(tape->context->threads, T, lo, hi) {
        size_t n;
        for (size_t t = lo; t < hi; t += n) { /* rows of different weight one by one */
            n = s->weights ? 1 : hi - lo;
            cmha_cross_entropy_backward(r->in[0]->data + t * V, s->targets + t, s->lse + 2 * t, n, V, s->ignore,
                                        s->weights ? scale * (cmha_real)cmha__row_weight(s, t) : scale, d + t * V);
        }
    }
    return CMHA_OK;
}

CMHA_DEF cmha_tensor *cmha_cross_entropy(cmha_tape *tape, cmha_tensor *logits, const int32_t *targets, int32_t ignore,
                                         const cmha_real *class_weights) {
    size_t one = 1, T, V, threads;
    cmha__entropy_saved *s;
    cmha_tensor *y;
    double *sums;
    if (!logits || !tape || tape->status || !tape->context) return NULL;
    if (!targets) return cmha__reject(tape, CMHA_ERR_ARGUMENT, "cross-entropy: targets is NULL");
    T = cmha__rows(logits), V = cmha__last(logits), threads = (size_t)tape->context->threads;
    y = cmha__result(tape, 1, &one);
    s = y ? (cmha__entropy_saved *)cmha__record_alloc(tape, sizeof *s) : NULL;
    sums = s ? (double *)cmha__record_alloc(tape, 2 * threads * sizeof *sums) : NULL; /* per thread: sum, count */
    if (!sums || cmha__check_tokens(tape, targets, T, V, 1, ignore)) return NULL;
    s->targets = targets;
    s->weights = class_weights;
    s->ignore = ignore;
    s->lse = cmha__reals(tape, 2 * T);
    if (!s->lse) return NULL;
    if (!cmha__dry(tape)) {
        double sum = 0;
        CMHA__FOR_CHUNKS(tape->context->threads, T, lo, hi) {
            size_t n, counted;
            for (size_t t = lo; t < hi; t += n) {
                double weight = class_weights ? cmha__row_weight(s, t) : 1;
                n = class_weights ? 1 : hi - lo;
                sums[2 * cmha__chunk] += weight * cmha_cross_entropy_forward(logits->data + t * V, targets + t, n, V, ignore,
                                                                              s->lse + 2 * t, &counted);
                sums[2 * cmha__chunk + 1] += weight * (double)counted;
            }
        }
        for (size_t c = 0; c < threads; c++) {
            sum += sums[2 * c];
            s->counted += sums[2 * c + 1];
        }
        y->data[0] = s->counted > 0 ? (cmha_real)(sum / s->counted) : 0;
    }
    return cmha_push(tape, "cross_entropy", y, &logits, 1, cmha__entropy_backward, s);
}

/* ---- Cross-entropy of a linear map ---- */

typedef struct cmha__projection {
    cmha__entropy_saved rows;
    double *sums;    /* a thread's part of the loss each */
    cmha_real early; /* the cotangent that the forward pass has already passed on, 0 = none */
} cmha__projection;

/* Rows of logits that are held at a time: of few tokens or a small vocabulary all of them; 256 even if they are long, because
   each chunk reads and writes the gradient of the weight once. */
static size_t cmha__projection_rows(size_t T, size_t V) {
    size_t rows = ((size_t)4 << 20) / (V ? V : 1);
    if (rows < 256) rows = 256;
    return rows < T ? rows : T;
}

/* The losses of n rows of logits from row t on are added up, and with `back` the logits become their gradient. */
static void cmha__projection_losses(int threads, const cmha__projection *p, size_t t, size_t n, size_t V, int back, cmha_real scale,
                                    cmha_real *logits) {
    const int32_t *targets = p->rows.targets + t, ignore = p->rows.ignore;
    CMHA__FOR_CHUNKS(threads, n, lo, hi) {
        size_t m;
        for (size_t i = lo; i < hi; i += m) { /* rows of different weight one by one */
            double weight = p->rows.weights ? cmha__row_weight(&p->rows, t + i) : 1;
            cmha_real *row = logits + i * V;
            m = p->rows.weights ? 1 : hi - lo;
            p->sums[cmha__chunk] +=
                weight * (back ? cmha_cross_entropy_gradient(row, targets + i, m, V, ignore, scale * (cmha_real)weight)
                               : cmha_cross_entropy_forward(row, targets + i, m, V, ignore, NULL, NULL));
        }
    }
}

static void cmha__add_to_rows(int threads, const cmha_real *bias, size_t T, size_t D, cmha_real *y) {
    CMHA__FOR_CHUNKS(threads, T, lo, hi) {
        for (size_t t = lo; t < hi; t++) cmha__axpy(D, 1, bias, y + t * D);
    }
}

/* One sweep over the rows: the losses, and with `back` the gradients of in = x, weight, bias for that cotangent of the mean. */
static void cmha__projection_sweep(cmha_tape *tape, const cmha__projection *p, cmha_tensor *const *in, int back,
                                   cmha_real cotangent) {
    const cmha_tensor *x = in[0], *w = in[1];
    size_t T = cmha__rows(x), V = w->shape[0], I = w->shape[1], rows = cmha__projection_rows(T, V), t, n;
    int threads = tape->context->threads, fresh = 0;
    cmha_real *dx = back ? cmha__grad_fresh(tape, in[0], &fresh) : NULL, *dw = back ? cmha_grad(tape, in[1]) : NULL;
    cmha_real *db = back ? cmha_grad(tape, in[2]) : NULL, *logits, scale = cotangent / (cmha_real)p->rows.counted;
    cmha__mark mark = cmha__mark_of(tape);
    logits = cmha__reals(tape, rows * V);
    for (t = 0; !tape->status && !cmha__dry(tape) && t < T; t += n) {
        const cmha_real *some = x->data + t * I;
        n = T - t < rows ? T - t : rows;
        cmha__gemm(threads, 0, 1, n, V, I, 1, some, I, w->data, I, 0, logits, V);
        if (in[2]) cmha__add_to_rows(threads, in[2]->data, n, V, logits);
        cmha__projection_losses(threads, p, t, n, V, back, scale, logits);
        if (dx) cmha__gemm(threads, 0, 0, n, I, V, 1, logits, V, w->data, I, fresh ? 0 : 1, dx + t * I, I); /* dX += G W */
        if (dw) cmha__gemm(threads, 1, 0, V, I, n, 1, logits, V, some, I, 1, dw, I);                        /* dW += G^T X */
        if (db) cmha__bias_backward(threads, logits, n, V, db);
    }
    cmha__rewind(tape, mark);
}

static cmha_status cmha__projection_backward(cmha_tape *tape, cmha_record *r) {
    const cmha__projection *p = (const cmha__projection *)r->user;
    cmha_real rest = cmha__dry(tape) ? 1 - p->early : r->out->grad[0] - p->early;
    int done = cmha__dry(tape) ? p->early < 0 || p->early > 0 : !(p->rows.counted > 0) || !(rest < 0 || rest > 0 || rest != rest);
    if (!done) cmha__projection_sweep(tape, p, r->in, 1, rest);
    return tape->status;
}

static const char *cmha__projection_misfit(const cmha_tensor *x, const cmha_tensor *weight, const cmha_tensor *bias) {
    if (weight->rank != 2) return "cross-entropy: the weight must be [V, I]";
    if (cmha__last(x) != weight->shape[1]) return "cross-entropy: input of width %zu, weight for %zu";
    if (bias && bias->size != weight->shape[0]) return "cross-entropy: input of width %zu (weight for %zu), a bias of another size";
    return NULL;
}

/* `early`, if not 0, is the cotangent that the backward is going to come with: then the gradients are passed on at once, from the
   logits that are just there, and the backward has nothing left to do. (With another cotangent it makes up for the difference, but
   without a backward the gradients are wrong: for passes of the library's own.) */
static cmha_tensor *cmha__linear_cross_entropy(cmha_tape *tape, cmha_tensor *x, cmha_tensor *weight, cmha_tensor *bias,
                                               const int32_t *targets, int32_t ignore, const cmha_real *class_weights,
                                               cmha_real early) {
    cmha_tensor *in[3], *y;
    cmha__projection *p;
    const char *misfit;
    double sum = 0;
    size_t one = 1, T;
    if (!x || !weight || !tape || tape->status || !tape->context) return NULL;
    if (!targets) return cmha__reject(tape, CMHA_ERR_ARGUMENT, "cross-entropy: targets is NULL");
    misfit = cmha__projection_misfit(x, weight, bias);
    if (misfit) return cmha__reject(tape, CMHA_ERR_SHAPE, misfit, cmha__last(x), weight->shape[weight->rank - 1]);
    T = cmha__rows(x);
    y = cmha__result(tape, 1, &one);
    p = y ? (cmha__projection *)cmha__record_alloc(tape, sizeof *p) : NULL;
    if (p) p->sums = (double *)cmha__record_alloc(tape, (size_t)tape->context->threads * sizeof *p->sums);
    if (!p || !p->sums || cmha__check_tokens(tape, targets, T, weight->shape[0], 1, ignore)) return NULL;
    p->rows.targets = targets;
    p->rows.weights = class_weights;
    p->rows.ignore = ignore;
    for (size_t t = 0; !cmha__dry(tape) && t < T; t++) p->rows.counted += cmha__row_weight(&p->rows, t);
    p->early = tape->recording && (cmha__dry(tape) || p->rows.counted > 0) ? early : 0;
    in[0] = x, in[1] = weight, in[2] = bias;
    cmha__projection_sweep(tape, p, in, p->early < 0 || p->early > 0, p->early);
    if (!cmha__dry(tape)) {
        for (int c = 0; c < tape->context->threads; c++) sum += p->sums[c];
        y->data[0] = p->rows.counted > 0 ? (cmha_real)(sum / p->rows.counted) : 0;
    }
    return cmha_push(tape, "linear_cross_entropy", y, in, 3, cmha__projection_backward, p);
}

CMHA_DEF cmha_tensor *cmha_linear_cross_entropy(cmha_tape *tape, cmha_tensor *x, cmha_tensor *weight, cmha_tensor *bias,
                                                const int32_t *targets, int32_t ignore, const cmha_real *class_weights) {
    return cmha__linear_cross_entropy(tape, x, weight, bias, targets, ignore, class_weights, 0);
}

static cmha_status cmha__squared_backward(cmha_tape *tape, cmha_record *r) {
    const cmha_real *targets = (const cmha_real *)r->user;
    cmha_real *dx = cmha_grad(tape, r->in[0]);
    size_t n = r->in[0]->size;
    if (!dx || cmha__dry(tape)) return tape->status;
    for (size_t i = 0; i < n; i++) dx[i] += r->out->grad[0] * 2 * (r->in[0]->data[i] - targets[i]) / (cmha_real)n;
    return CMHA_OK;
}

CMHA_DEF cmha_tensor *cmha_squared_error(cmha_tape *tape, cmha_tensor *x, const cmha_real *targets) {
    size_t one = 1;
    double sum = 0;
    cmha_tensor *y = x ? cmha__result(tape, 1, &one) : NULL;
    if (!y) return NULL;
    if (!targets) return cmha__reject(tape, CMHA_ERR_ARGUMENT, "squared error: targets is NULL");
    for (size_t i = 0; !cmha__dry(tape) && i < x->size; i++)
        sum += ((double)x->data[i] - (double)targets[i]) * ((double)x->data[i] - (double)targets[i]);
    if (!cmha__dry(tape)) y->data[0] = x->size ? (cmha_real)(sum / (double)x->size) : 0;
    return cmha_push(tape, "squared_error", y, &x, 1, cmha__squared_backward, (void *)(uintptr_t)targets);
}

static cmha_status cmha__sigmoid_backward(cmha_tape *tape, cmha_record *r) {
    cmha_real *dx = cmha_grad(tape, r->in[0]);
    for (size_t i = 0; dx && !cmha__dry(tape) && i < r->out->size; i++) dx[i] += r->out->grad[i] * r->out->data[i] * (1 - r->out->data[i]);
    return tape->status;
}

CMHA_DEF cmha_tensor *cmha_sigmoid(cmha_tape *tape, cmha_tensor *x) {
    cmha_tensor *y = x ? cmha__result(tape, x->rank, x->shape) : NULL;
    for (size_t i = 0; y && !cmha__dry(tape) && i < x->size; i++) y->data[i] = cmha__sigmoid(x->data[i]);
    return y ? cmha_push(tape, "sigmoid", y, &x, 1, cmha__sigmoid_backward, NULL) : NULL;
}

static cmha_status cmha__gather_backward(cmha_tape *tape, cmha_record *r) {
    const size_t *index = (const size_t *)r->user;
    size_t D = cmha__last(r->out), i;
    cmha_real *dx = cmha_grad(tape, r->in[0]);
    for (i = 0; dx && !cmha__dry(tape) && i < r->out->shape[0]; i++) cmha__axpy(D, 1, r->out->grad + i * D, dx + index[i] * D);
    return tape->status;
}

CMHA_DEF cmha_tensor *cmha_gather(cmha_tape *tape, cmha_tensor *x, const size_t *index, size_t n) {
    size_t shape[2];
    cmha_tensor *y;
    if (!x || !tape || tape->status) return NULL;
    if (!index && n) return cmha__reject(tape, CMHA_ERR_ARGUMENT, "gather: index is NULL");
    shape[0] = n, shape[1] = cmha__last(x);
    y = cmha__result(tape, 2, shape);
    for (size_t i = 0; y && !cmha__dry(tape) && i < n; i++) {
        if (index[i] >= cmha__rows(x))
            return cmha__reject(tape, CMHA_ERR_ARGUMENT, "gather: row %zu of %zu", index[i], cmha__rows(x));
        memcpy(y->data + i * shape[1], x->data + index[i] * shape[1], shape[1] * sizeof *y->data);
    }
    return y ? cmha_push(tape, "gather", y, &x, 1, cmha__gather_backward, (void *)(uintptr_t)index) : NULL;
}

/* Adds mean rows (back = 0) or spreads their gradient (1): from [B, N, D] and to [B, D], or the other way round. */
static void cmha__mean_pass(const cmha_real *from, cmha_real *to, const unsigned char *mask, const size_t *shape, int back) {
    size_t B = shape[0], N = shape[1], D = shape[2], n, count;
    for (size_t b = 0; b < B; b++) {
        for (count = n = 0; n < N; n++) count += !mask || mask[b * N + n];
        for (n = 0; n < N; n++) {
            size_t token = (b * N + n) * D;
            if (mask && !mask[b * N + n]) continue;
            cmha__axpy(D, 1 / (cmha_real)count, from + (back ? b * D : token), to + (back ? token : b * D));
        }
    }
}

static cmha_status cmha__mean_backward(cmha_tape *tape, cmha_record *r) {
    cmha_real *dx = cmha_grad(tape, r->in[0]);
    if (dx && !cmha__dry(tape)) cmha__mean_pass(r->out->grad, dx, (const unsigned char *)r->user, r->in[0]->shape, 1);
    return tape->status;
}

CMHA_DEF cmha_tensor *cmha_mean_tokens(cmha_tape *tape, cmha_tensor *x, const unsigned char *key_mask) {
    size_t shape[2];
    cmha_tensor *y;
    if (!x || !tape || tape->status) return NULL;
    if (x->rank != 3) return cmha__reject(tape, CMHA_ERR_SHAPE, "mean: the tensor must be [B, N, D]");
    shape[0] = x->shape[0], shape[1] = x->shape[2];
    y = cmha_tensor_new(tape, 2, shape, 0);
    if (!y) return NULL;
    if (!cmha__dry(tape)) cmha__mean_pass(x->data, y->data, key_mask, x->shape, 0);
    return cmha_push(tape, "mean", y, &x, 1, cmha__mean_backward, (void *)(uintptr_t)key_mask);
}

/* ---- Positions and the Euler transform ---- */

CMHA_DEF void cmha_sinusoidal_table(size_t n, size_t d, double base, size_t pos0, cmha_real *y) {
    for (size_t i = 0; i < d / 2; i++) {
        double omega = pow(base, -2.0 * (double)i / (double)d);
        for (size_t r = 0; r < n; r++) {
            double angle = (double)(pos0 + r) * omega;
            y[r * d + 2 * i] = (cmha_real)sin(angle);
            y[r * d + 2 * i + 1] = (cmha_real)cos(angle);
        }
    }
}

/* Element of pair j: first (part 0, real) or second (part 1, imaginary). */
static inline size_t cmha__pair(cmha_layout layout, size_t P, size_t j, size_t part) {
    return layout == CMHA_LAYOUT_HALF ? j + part * P : 2 * j + part;
}

CMHA_DEF void cmha_frequencies(cmha_frequency kind, double base, size_t P, double *omega) {
    double exponent = kind == CMHA_FREQ_LITERAL ? 2.0 : 1.0; /* base^(-4j/d_k) against base^(-2j/d_k), d_k = 2P */
    for (size_t j = 0; j < P; j++) omega[j] = pow(base, -exponent * (double)j / (double)P);
}

CMHA_DEF void cmha_rotation_table(const double *omega, size_t P, size_t n, ptrdiff_t pos0, cmha_real *table) {
    for (size_t r = 0; r < n; r++, table += 2 * P)
        for (size_t j = 0; j < P; j++) {
            double angle = ((double)pos0 + (double)r) * omega[j];
            table[j] = (cmha_real)cos(angle);
            table[P + j] = (cmha_real)sin(angle);
        }
}

/* sqrt(a^2 + b^2) where neither square may overflow or vanish. The root is one step of Newton's away from the inverse root, since
   libm's would keep the loops from vectorising. */
static inline cmha_real cmha__hypot(cmha_real a, cmha_real b) {
    cmha_real x = a < 0 ? -a : a, y = b < 0 ? -b : b, large = x > y ? x : y, small = x > y ? y : x;
    cmha_real ratio = small / (large > 0 ? large : 1), root = cmha__square_root(1 + ratio * ratio);
    return large > CMHA__LARGEST ? large : large * root;
}

/* ---- The feature map of CMHA and RoPE ---- */

#define CMHA__PAIRS ((size_t)256) /* pairs worked on at a time: the temporaries of a block stay in the L1 cache */

/* re, im [m] from the pairs j0 .. j0 + m - 1 of one head vector. */
static void cmha__split_pairs(const cmha_real *x, size_t P, size_t j0, size_t m, cmha_layout layout, cmha_real *re, cmha_real *im) {
    if (layout == CMHA_LAYOUT_HALF) {
        memcpy(re, x + j0, m * sizeof *re);
        memcpy(im, x + P + j0, m * sizeof *im);
    } else {
        for (size_t j = 0; j < m; j++) {
            re[j] = x[2 * (j0 + j)];
            im[j] = x[2 * (j0 + j) + 1];
        }
    }
}

/* The reverse, added to x. */
static void cmha__add_pairs(const cmha_real *re, const cmha_real *im, size_t P, size_t j0, size_t m, cmha_layout layout,
                            cmha_real *x) {
    if (layout == CMHA_LAYOUT_HALF) {
        cmha__axpy(m, 1, re, x + j0);
        cmha__axpy(m, 1, im, x + P + j0);
    } else {
        for (size_t j = 0; j < m; j++) {
            x[2 * (j0 + j)] += re[j];
            x[2 * (j0 + j) + 1] += im[j];
        }
    }
}

/* ---- The Euler transform ---- */

CMHA_DEF void cmha_euler_forward(const cmha_real *x, size_t T, size_t P, cmha_layout layout, cmha_real *modulus, cmha_real *phase) {
    cmha_real re[CMHA__PAIRS], im[CMHA__PAIRS];
    size_t m;
    for (size_t t = 0; t < T; t++, x += 2 * P)
        for (size_t j0 = 0; j0 < P; j0 += m) {
            m = P - j0 < CMHA__PAIRS ? P - j0 : CMHA__PAIRS;
            cmha__split_pairs(x, P, j0, m, layout, re, im);
            if (modulus)
                for (size_t j = 0; j < m; j++) modulus[t * P + j0 + j] = cmha__hypot(re[j], im[j]);
            if (!phase) continue;
            for (size_t j = 0; j < m; j++) phase[t * P + j0 + j] = cmha__atan2(im[j], re[j]);
            for (size_t j = 0; j < m; j++)
                if (re[j] == 0 && im[j] == 0) phase[t * P + j0 + j] = 0;
        }
}

CMHA_DEF void cmha_euler_backward(const cmha_real *x, const cmha_real *dmodulus, const cmha_real *dphase, size_t T, size_t P,
                                  cmha_layout layout, cmha_real *dx) {
    cmha_real re[CMHA__PAIRS], im[CMHA__PAIRS], g[CMHA__PAIRS], h[CMHA__PAIRS];
    size_t m;
    for (size_t t = 0; t < T; t++, x += 2 * P, dx += 2 * P)
        for (size_t j0 = 0; j0 < P; j0 += m) {
            m = P - j0 < CMHA__PAIRS ? P - j0 : CMHA__PAIRS;
            cmha__split_pairs(x, P, j0, m, layout, re, im);
            for (size_t j = 0; j < m; j++) g[j] = dmodulus ? dmodulus[t * P + j0 + j] : 0;
            for (size_t j = 0; j < m; j++) h[j] = dphase ? dphase[t * P + j0 + j] : 0;
            for (size_t j = 0; j < m; j++) {
                cmha_real lambda = cmha__hypot(re[j], im[j]), some = lambda > 0 ? lambda : 1, square = lambda * lambda + (cmha_real)1e-12;
                cmha_real a = g[j] * (re[j] / some) - h[j] * (im[j] / square), b = g[j] * (im[j] / some) + h[j] * (re[j] / square);
                re[j] = a;
                im[j] = b;
            }
            cmha__add_pairs(re, im, P, j0, m, layout, dx);
        }
}

/* ---- Its product with the rotation ---- */

/* The whole rotation exp(i ((delta - 1) theta + b)) exp(i t omega) of each pair as (c, s); theta [m] is written too. */
static void cmha__rotations(const cmha_real *re, const cmha_real *im, size_t m, const cmha_real *table_c, const cmha_real *table_s,
                            const cmha_real *delta, const cmha_real *b, cmha_real *theta, cmha_real *c, cmha_real *s) {
    for (size_t j = 0; j < m; j++) theta[j] = cmha__atan2(im[j], re[j]);
    for (size_t j = 0; j < m; j++) theta[j] = re[j] == 0 && im[j] == 0 ? 0 : theta[j];
    for (size_t j = 0; j < m; j++) c[j] = (delta[j] - 1) * theta[j];
    if (b) cmha__axpy(m, 1, b, c);
    for (size_t j = 0; j < m; j++) {
        cmha_real si, co;
        cmha__sincos(c[j], &si, &co);
        c[j] = co * table_c[j] - si * table_s[j];
        s[j] = si * table_c[j] + co * table_s[j];
    }
}

CMHA_DEF void cmha_rotate_forward(const cmha_real *x, size_t ldx, size_t n, size_t P, cmha_layout layout, const cmha_real *rotation,
                                  const cmha_real *delta, const cmha_real *b, cmha_real *y, size_t ldy) {
    cmha_real re[CMHA__PAIRS], im[CMHA__PAIRS], theta[CMHA__PAIRS], cs[CMHA__PAIRS], sn[CMHA__PAIRS];
    size_t m;
    for (size_t t = 0; t < n; t++, x += ldx, y += ldy, rotation += 2 * P)
        for (size_t j0 = 0; j0 < P; j0 += m) {
            const cmha_real *c = rotation + j0, *s = rotation + P + j0;
            m = P - j0 < CMHA__PAIRS ? P - j0 : CMHA__PAIRS;
            cmha__split_pairs(x, P, j0, m, layout, re, im);
            if (delta) {
                cmha__rotations(re, im, m, c, s, delta + j0, b ? b + j0 : NULL, theta, cs, sn);
                c = cs;
                s = sn;
            }
            for (size_t j = 0; j < m; j++) {
                y[j0 + j] = re[j] * c[j] - im[j] * s[j];
                y[P + j0 + j] = re[j] * s[j] + im[j] * c[j];
            }
        }
}

/* (gr, gi) = s + i (delta - 1) e^{i theta} Im(s e^{-i theta}) in place, s = (gr, gi); turn gets Im(s conj z). */
static void cmha__bend(const cmha_real *CMHA__RESTRICT re, const cmha_real *CMHA__RESTRICT im, size_t m,
                       const cmha_real *CMHA__RESTRICT delta, cmha_real *CMHA__RESTRICT gr, cmha_real *CMHA__RESTRICT gi,
                       cmha_real *CMHA__RESTRICT turn) {
    for (size_t j = 0; j < m; j++) {
        cmha_real ar = re[j] < 0 ? -re[j] : re[j], ai = im[j] < 0 ? -im[j] : im[j];
        cmha_real large = ar > ai ? ar : ai;
        int tiny = large < CMHA__SMALLEST; /* denormal: its inverse overflows, and it is zero to everything else here */
        cmha_real inverse = 1 / (tiny ? 1 : large);
        cmha_real zr = tiny ? 1 : re[j] * inverse, zi = tiny ? 0 : im[j] * inverse; /* z over its larger part: squares are safe */
        cmha_real e = (delta[j] - 1) * (gi[j] * zr - gr[j] * zi) / (zr * zr + zi * zi);
        turn[j] = gi[j] * re[j] - gr[j] * im[j];
        gr[j] -= e * zi;
        gi[j] += e * zr;
    }
}

CMHA_DEF void cmha_rotate_backward(const cmha_real *x, size_t ldx, size_t n, size_t P, cmha_layout layout,
                                   const cmha_real *rotation, const cmha_real *delta, const cmha_real *b, const cmha_real *dy,
                                   size_t ldy, cmha_real *dx, double *ddelta, double *db) {
    cmha_real re[CMHA__PAIRS], im[CMHA__PAIRS], theta[CMHA__PAIRS], cs[CMHA__PAIRS], sn[CMHA__PAIRS];
    cmha_real gr[CMHA__PAIRS], gi[CMHA__PAIRS], turn[CMHA__PAIRS];
    size_t m;
    for (size_t t = 0; t < n; t++, x += ldx, dy += ldy, dx = dx ? dx + ldx : NULL, rotation += 2 * P)
        for (size_t j0 = 0; j0 < P; j0 += m) {
            const cmha_real *c = rotation + j0, *s = rotation + P + j0;
            m = P - j0 < CMHA__PAIRS ? P - j0 : CMHA__PAIRS;
            if (delta) {
                cmha__split_pairs(x, P, j0, m, layout, re, im);
                cmha__rotations(re, im, m, c, s, delta + j0, b ? b + j0 : NULL, theta, cs, sn);
                c = cs;
                s = sn;
            }
            for (size_t j = 0; j < m; j++) {
                gr[j] = dy[j0 + j] * c[j] + dy[P + j0 + j] * s[j];
                gi[j] = dy[P + j0 + j] * c[j] - dy[j0 + j] * s[j];
            }
            if (delta) {
                cmha__bend(re, im, m, delta + j0, gr, gi, turn);
                if (ddelta)
                    for (size_t j = 0; j < m; j++) ddelta[j0 + j] += (double)(theta[j] * turn[j]);
                if (db)
                    for (size_t j = 0; j < m; j++) db[j0 + j] += (double)turn[j];
            }
            if (dx) cmha__add_pairs(gr, gi, P, j0, m, layout, dx);
        }
}
/* ---- The Möbius map and CoPE's embedding ---- */

/* A block of denominators w, scaled by m = max(|Re w|, |Im w|, eps) before anything is squared. With s = |w|^2 + eps^2:
   q = m w/s, k = m eps/s; of UNIT q = w/sqrt s, k = eps/sqrt s, and m is sqrt s. At a pole q = k = 0, m = 1. Always |q| <= 1. */
typedef struct cmha__denominator {
    cmha_real qr[CMHA__PAIRS], qi[CMHA__PAIRS], k[CMHA__PAIRS], m[CMHA__PAIRS];
} cmha__denominator;

/* The gradients of a block of numerators and denominators. */
typedef struct cmha__quotient_grad {
    cmha_real ur[CMHA__PAIRS], ui[CMHA__PAIRS], wr[CMHA__PAIRS], wi[CMHA__PAIRS];
} cmha__quotient_grad;

static void cmha__denominators(const cmha_real *CMHA__RESTRICT wr, const cmha_real *CMHA__RESTRICT wi, size_t n, int unit,
                               cmha_real eps, cmha__denominator *CMHA__RESTRICT d) {
    for (size_t j = 0; j < n; j++) {
        cmha_real ar = wr[j] < 0 ? -wr[j] : wr[j], ai = wi[j] < 0 ? -wi[j] : wi[j], large = ar > ai ? ar : ai;
        int pole = ar + ai + eps < CMHA__SMALLEST; /* false for NaN, which then comes out of a division */
        cmha_real m = pole ? 1 : large > eps ? large : eps;
        cmha_real pr = wr[j] / m, pi = wi[j] / m, f = pole ? 1 : eps / m, s = pr * pr + pi * pi + f * f;
        cmha_real inverse = unit ? cmha__inverse_root(s) : 1 / s, r = pole ? 0 : inverse;
        d->qr[j] = pr * r;
        d->qi[j] = pi * r;
        d->k[j] = f * r;
        d->m[j] = unit ? m * (s * inverse) : m; /* at a pole 1 */
    }
}

/* y = u conj(w) / s, or over sqrt s. */
static void cmha__divide(const cmha_real *CMHA__RESTRICT ur, const cmha_real *CMHA__RESTRICT ui,
                         const cmha__denominator *CMHA__RESTRICT d, size_t n, int unit, cmha_real *CMHA__RESTRICT yr,
                         cmha_real *CMHA__RESTRICT yi) {
    for (size_t j = 0; j < n; j++) {
        cmha_real m = unit ? 1 : d->m[j];
        yr[j] = (ur[j] * d->qr[j] + ui[j] * d->qi[j]) / m;
        yi[j] = (ui[j] * d->qr[j] - ur[j] * d->qi[j]) / m;
    }
}

/* The backward formulas of cmha_quotient_backward for y = u conj(q) / m: du = g q / m, dw = -conj(y) du + (u k/m) conj(g k/m). */
static void cmha__divide_backward(const cmha_real *CMHA__RESTRICT ur, const cmha_real *CMHA__RESTRICT ui,
                                  const cmha__denominator *CMHA__RESTRICT d, const cmha_real *CMHA__RESTRICT gr,
                                  const cmha_real *CMHA__RESTRICT gi, size_t n, cmha__quotient_grad *CMHA__RESTRICT o) {
    for (size_t j = 0; j < n; j++) {
        cmha_real qr = d->qr[j], qi = d->qi[j], m = d->m[j], k = d->k[j];
        cmha_real yr = (ur[j] * qr + ui[j] * qi) / m, yi = (ui[j] * qr - ur[j] * qi) / m;
        cmha_real hr = (gr[j] * qr - gi[j] * qi) / m, hi = (gr[j] * qi + gi[j] * qr) / m;
        cmha_real vr = ur[j] * k / m, vi = ui[j] * k / m, er = gr[j] * k / m, ei = gi[j] * k / m;
        o->ur[j] = hr;
        o->ui[j] = hi;
        o->wr[j] = (vr * er + vi * ei) - (yr * hr + yi * hi);
        o->wi[j] = (vi * er - vr * ei) - (yr * hi - yi * hr);
    }
}

/* The same for UNIT, y = u conj(q): du = g q, dw = (i q Im(y conj(g)) + k^2 u conj(g)) / m. */
static void cmha__unit_backward(const cmha_real *CMHA__RESTRICT ur, const cmha_real *CMHA__RESTRICT ui,
                                const cmha__denominator *CMHA__RESTRICT d, const cmha_real *CMHA__RESTRICT gr,
                                const cmha_real *CMHA__RESTRICT gi, size_t n, cmha__quotient_grad *CMHA__RESTRICT o) {
    for (size_t j = 0; j < n; j++) {
        cmha_real qr = d->qr[j], qi = d->qi[j], m = d->m[j], k = d->k[j];
        cmha_real ar = ur[j] * gr[j] + ui[j] * gi[j], ai = ui[j] * gr[j] - ur[j] * gi[j], turn = ai * qr - ar * qi;
        o->ur[j] = gr[j] * qr - gi[j] * qi;
        o->ui[j] = gr[j] * qi + gi[j] * qr;
        o->wr[j] = (k * k * ar - qi * turn) / m;
        o->wi[j] = (k * k * ai + qr * turn) / m;
    }
}

static size_t cmha__block_of(size_t D, size_t j0) { return D - j0 < CMHA__PAIRS ? D - j0 : CMHA__PAIRS; }

CMHA_DEF void cmha_quotient_forward(const cmha_real *u, const cmha_real *w, size_t T, size_t D, cmha_quotient_kind kind,
                                    cmha_real eps, cmha_real *y) {
    cmha__denominator d;
    size_t n;
    int unit = kind == CMHA_QUOTIENT_UNIT;
    if (kind == CMHA_QUOTIENT_EXACT) eps = 0;
    for (size_t t = 0; t < T; t++, u += 2 * D, w += 2 * D, y += 2 * D)
        for (size_t j = 0; j < D; j += n) {
            n = cmha__block_of(D, j);
            cmha__denominators(w + j, w + D + j, n, unit, eps, &d);
            cmha__divide(u + j, u + D + j, &d, n, unit, y + j, y + D + j);
        }
}

CMHA_DEF void cmha_quotient_backward(const cmha_real *u, const cmha_real *w, const cmha_real *dy, size_t T, size_t D,
                                     cmha_quotient_kind kind, cmha_real eps, cmha_real *du, cmha_real *dw) {
    cmha__denominator d;
    cmha__quotient_grad g;
    size_t n, at;
    int unit = kind == CMHA_QUOTIENT_UNIT;
    if (kind == CMHA_QUOTIENT_EXACT) eps = 0;
    for (size_t t = 0; t < T; t++)
        for (size_t j = 0; j < D; j += n) {
            n = cmha__block_of(D, j), at = 2 * t * D + j;
            cmha__denominators(w + at, w + at + D, n, unit, eps, &d);
            (unit ? cmha__unit_backward : cmha__divide_backward)(u + at, u + at + D, &d, dy + at, dy + at + D, n, &g);
            if (du) cmha__axpy(n, 1, g.ur, du + at), cmha__axpy(n, 1, g.ui, du + at + D);
            if (dw) cmha__axpy(n, 1, g.wr, dw + at), cmha__axpy(n, 1, g.wi, dw + at + D);
        }
}

/* y = a x + b (b NULL: a x) on a block of columns; the imaginary parts of x, a and b lie D numbers behind their real parts. */
static void cmha__affine(const cmha_real *CMHA__RESTRICT x, const cmha_real *CMHA__RESTRICT a, const cmha_real *CMHA__RESTRICT b,
                         size_t D, size_t n, cmha_real *CMHA__RESTRICT yr, cmha_real *CMHA__RESTRICT yi) {
    for (size_t j = 0; j < n; j++) yr[j] = a[j] * x[j] - a[D + j] * x[D + j];
    for (size_t j = 0; j < n; j++) yi[j] = a[j] * x[D + j] + a[D + j] * x[j];
    if (b) cmha__axpy(n, 1, b, yr), cmha__axpy(n, 1, b + D, yi);
}

/* dx += g conj(a). */
static void cmha__affine_dx(const cmha_real *CMHA__RESTRICT gr, const cmha_real *CMHA__RESTRICT gi,
                            const cmha_real *CMHA__RESTRICT a, size_t D, size_t n, cmha_real *CMHA__RESTRICT dx) {
    for (size_t j = 0; j < n; j++) dx[j] += gr[j] * a[j] + gi[j] * a[D + j];
    for (size_t j = 0; j < n; j++) dx[D + j] += gi[j] * a[j] - gr[j] * a[D + j];
}

/* sums[0], sums[1] += g conj(x): da. */
static void cmha__affine_da(const cmha_real *CMHA__RESTRICT gr, const cmha_real *CMHA__RESTRICT gi,
                            const cmha_real *CMHA__RESTRICT x, size_t D, size_t n, double (*CMHA__RESTRICT sums)[CMHA__PAIRS]) {
    for (size_t j = 0; j < n; j++) sums[0][j] += (double)(gr[j] * x[j] + gi[j] * x[D + j]);
    for (size_t j = 0; j < n; j++) sums[1][j] += (double)(gi[j] * x[j] - gr[j] * x[D + j]);
}

/* sums[0], sums[1] += g: db. */
static void cmha__affine_db(const cmha_real *CMHA__RESTRICT gr, const cmha_real *CMHA__RESTRICT gi, size_t n,
                            double (*CMHA__RESTRICT sums)[CMHA__PAIRS]) {
    for (size_t j = 0; j < n; j++) sums[0][j] += (double)gr[j];
    for (size_t j = 0; j < n; j++) sums[1][j] += (double)gi[j];
}

/* A block's sums into `planes` rows of D numbers. */
static void cmha__add_sums(double (*sums)[CMHA__PAIRS], size_t planes, size_t D, size_t n, cmha_real *to) {
    for (size_t i = 0; i < planes; i++)
        for (size_t j = 0; j < n; j++) to[i * D + j] += (cmha_real)sums[i][j];
}

CMHA_DEF void cmha_complex_scale_forward(const cmha_real *x, const cmha_real *w, size_t T, size_t D, cmha_real *y) {
    for (size_t t = 0; t < T; t++) cmha__affine(x + 2 * t * D, w, NULL, D, D, y + 2 * t * D, y + 2 * t * D + D);
}

CMHA_DEF void cmha_complex_scale_backward(const cmha_real *x, const cmha_real *w, const cmha_real *dy, size_t T, size_t D,
                                          cmha_real *dx, cmha_real *dw) {
    double sums[2][CMHA__PAIRS];
    size_t n;
    for (size_t j = 0; j < D; j += n) {
        n = cmha__block_of(D, j);
        memset(sums, 0, sizeof sums);
        for (size_t t = 0; t < T; t++) {
            const cmha_real *g = dy + 2 * t * D + j;
            if (dx) cmha__affine_dx(g, g + D, w + j, D, n, dx + 2 * t * D + j);
            if (dw) cmha__affine_da(g, g + D, x + 2 * t * D + j, D, n, sums);
        }
        if (dw) cmha__add_sums(sums, 2, D, n, dw + j);
    }
}

/* u = a rho + b and the denominators of c rho + d on a block of columns; rho and abcd point to its first one. */
static void cmha__mobius_parts(const cmha_real *rho, const cmha_real *abcd, size_t D, size_t n, int unit, cmha_real eps,
                               cmha_real *ur, cmha_real *ui, cmha__denominator *d) {
    cmha_real wr[CMHA__PAIRS], wi[CMHA__PAIRS];
    cmha__affine(rho, abcd, abcd + 2 * D, D, n, ur, ui);
    cmha__affine(rho, abcd + 4 * D, abcd + 6 * D, D, n, wr, wi);
    cmha__denominators(wr, wi, n, unit, eps, d);
}

CMHA_DEF void cmha_mobius_forward(const cmha_real *rho, const cmha_real *abcd, size_t T, size_t D, cmha_quotient_kind kind,
                                  cmha_real eps, cmha_real *y) {
    cmha_real ur[CMHA__PAIRS], ui[CMHA__PAIRS];
    cmha__denominator d;
    size_t n;
    int unit = kind == CMHA_QUOTIENT_UNIT;
    if (kind == CMHA_QUOTIENT_EXACT) eps = 0;
    for (size_t t = 0; t < T; t++, rho += 2 * D, y += 2 * D)
        for (size_t j = 0; j < D; j += n) {
            n = cmha__block_of(D, j);
            cmha__mobius_parts(rho + j, abcd + j, D, n, unit, eps, ur, ui, &d);
            cmha__divide(ur, ui, &d, n, unit, y + j, y + D + j);
        }
}

/* A block of columns with all its rows, so that the sums over them stay at hand. */
static void cmha__mobius_columns(const cmha_real *rho, const cmha_real *abcd, const cmha_real *dy, size_t T, size_t D, size_t n,
                                 int unit, cmha_real eps, cmha_real *drho, cmha_real *dabcd) {
    cmha_real ur[CMHA__PAIRS], ui[CMHA__PAIRS];
    double sums[8][CMHA__PAIRS];
    cmha__denominator d;
    cmha__quotient_grad g;
    size_t row;
    memset(sums, 0, sizeof sums);
    for (size_t t = 0; t < T; t++) {
        row = 2 * t * D;
        cmha__mobius_parts(rho + row, abcd, D, n, unit, eps, ur, ui, &d);
        (unit ? cmha__unit_backward : cmha__divide_backward)(ur, ui, &d, dy + row, dy + row + D, n, &g);
        if (drho) {
            cmha__affine_dx(g.ur, g.ui, abcd, D, n, drho + row);
            cmha__affine_dx(g.wr, g.wi, abcd + 4 * D, D, n, drho + row);
        }
        if (dabcd) {
            cmha__affine_da(g.ur, g.ui, rho + row, D, n, sums);
            cmha__affine_db(g.ur, g.ui, n, sums + 2);
            cmha__affine_da(g.wr, g.wi, rho + row, D, n, sums + 4);
            cmha__affine_db(g.wr, g.wi, n, sums + 6);
        }
    }
    if (dabcd) cmha__add_sums(sums, 8, D, n, dabcd);
}

CMHA_DEF void cmha_mobius_backward(const cmha_real *rho, const cmha_real *abcd, const cmha_real *dy, size_t T, size_t D,
                                   cmha_quotient_kind kind, cmha_real eps, cmha_real *drho, cmha_real *dabcd) {
    size_t n;
    if (kind == CMHA_QUOTIENT_EXACT) eps = 0;
    for (size_t j = 0; j < D; j += n) {
        n = cmha__block_of(D, j);
        cmha__mobius_columns(rho + j, abcd + j, dy + j, T, D, n, kind == CMHA_QUOTIENT_UNIT, eps, drho ? drho + j : NULL,
                             dabcd ? dabcd + j : NULL);
    }
}

CMHA_DEF const char *cmha_geometry_name(cmha_geometry geometry) {
    static const char *const names[CMHA_GEOMETRY_COUNT] = {"parabolic", "circular", "elliptic", "hyperbolic", "loxodromic"};
    return (unsigned)geometry < CMHA_GEOMETRY_COUNT ? names[geometry] : "?";
}

/* Complex numbers one at a time, in double: for looking at maps, not for layers. */
typedef struct cmha__z {
    double re, im;
} cmha__z;

static cmha__z cmha__z_of(double re, double im) {
    cmha__z z;
    z.re = re, z.im = im;
    return z;
}
static cmha__z cmha__z_add(cmha__z x, cmha__z y) { return cmha__z_of(x.re + y.re, x.im + y.im); }
static cmha__z cmha__z_sub(cmha__z x, cmha__z y) { return cmha__z_of(x.re - y.re, x.im - y.im); }
static cmha__z cmha__z_mul(cmha__z x, cmha__z y) { return cmha__z_of(x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re); }
static cmha__z cmha__z_scaled(cmha__z x, double factor) { return cmha__z_of(x.re * factor, x.im * factor); }
static double cmha__z_abs(cmha__z x) { return hypot(x.re, x.im); }
static int cmha__z_zero(cmha__z x) { return x.re == 0 && x.im == 0; }

/* x / y on the sphere: (INFINITY, 0) where it is not finite. */
static cmha__z cmha__z_div(cmha__z x, cmha__z y) {
    double m = fabs(y.re) > fabs(y.im) ? fabs(y.re) : fabs(y.im);
    cmha__z p = cmha__z_of(y.re / m, -y.im / m), q;
    if (cmha__z_zero(y)) return cmha__z_of(INFINITY, 0);
    q = cmha__z_scaled(cmha__z_mul(x, p), 1 / (p.re * p.re + p.im * p.im));
    q = cmha__z_of(q.re / m, q.im / m);
    return cmha__z_abs(q) > DBL_MAX ? cmha__z_of(INFINITY, 0) : q;
}

/* The root with a real part >= 0. */
static cmha__z cmha__z_sqrt(cmha__z x) {
    double m = cmha__z_abs(x), big = sqrt(m / 2 + fabs(x.re) / 2), small = big > 0 ? x.im / (2 * big) : 0;
    return x.re < 0 ? cmha__z_of(fabs(small), x.im < 0 ? -big : big) : cmha__z_of(big, small);
}

/* Of x and -x the one that adds to z instead of cancelling. */
static cmha__z cmha__z_along(cmha__z x, cmha__z z) { return x.re * z.re + x.im * z.im < 0 ? cmha__z_scaled(x, -1) : x; }

/* a, b, c, d of channel j over a power of two (returned) that brings the largest to about 1: their products cannot overflow. */
static double cmha__mobius_of(const cmha_real *abcd, size_t D, size_t j, cmha__z map[4]) {
    double largest = 0, unit, x;
    for (size_t i = 0; i < 8; i++) {
        x = fabs((double)abcd[i * D + j]);
        if (x > largest) largest = x;
    }
    unit = largest > 0 && largest <= DBL_MAX ? ldexp(1, ilogb(largest)) : 1;
    for (size_t i = 0; i < 4; i++) map[i] = cmha__z_of((double)abcd[2 * i * D + j] / unit, (double)abcd[(2 * i + 1) * D + j] / unit);
    return unit;
}

static cmha__z cmha__mobius_det(const cmha__z map[4]) {
    return cmha__z_sub(cmha__z_mul(map[0], map[3]), cmha__z_mul(map[1], map[2]));
}

static cmha_geometry cmha__geometry_of(cmha__z sigma, double tol) {
    if (!(fabs(sigma.im) <= tol * (1 + cmha__z_abs(sigma)))) return CMHA_LOXODROMIC; /* NaN too */
    if (cmha__z_abs(cmha__z_of(sigma.re - 4, sigma.im)) <= tol) return CMHA_PARABOLIC;
    if (cmha__z_abs(sigma) <= tol) return CMHA_CIRCULAR;
    if (sigma.re < 0) return CMHA_LOXODROMIC;
    return sigma.re < 4 ? CMHA_ELLIPTIC : CMHA_HYPERBOLIC;
}

/* k + 1/k = sigma - 2: with h = (sigma - 2)/2, k = h +- sqrt(h^2 - 1), and h^2 - 1 = sigma (sigma - 4)/4 loses nothing near 4. */
static cmha__z cmha__multiplier(cmha__z sigma) {
    cmha__z h = cmha__z_scaled(cmha__z_of(sigma.re - 2, sigma.im), 0.5);
    cmha__z root = cmha__z_mul(cmha__z_sqrt(sigma), cmha__z_sqrt(cmha__z_of(sigma.re - 4, sigma.im)));
    return cmha__z_add(h, cmha__z_along(cmha__z_scaled(root, 0.5), h));
}

/* The roots of c z^2 + (d - a) z - b: the farther one z1 = (a - d +- root)/2c with the sign that adds, the other -b/(c z1). */
static int cmha__fixed_points(const cmha__z map[4], cmha__z fixed[2]) {
    cmha__z middle = cmha__z_sub(map[0], map[3]), square = cmha__z_mul(middle, middle), product = cmha__z_mul(map[1], map[2]), q;
    cmha__z root2 = cmha__z_add(square, cmha__z_scaled(product, 4));
    fixed[0] = fixed[1] = cmha__z_of(0, 0);
    if (cmha__z_zero(map[1]) && cmha__z_zero(map[2]) && cmha__z_zero(middle)) return 0;
    if (cmha__z_abs(root2) <= 16 * DBL_EPSILON * (cmha__z_abs(square) + 4 * cmha__z_abs(product))) { /* 0 but for rounding */
        if (!cmha__z_zero(middle) || cmha__z_zero(map[2])) fixed[0] = cmha__z_div(middle, cmha__z_scaled(map[2], 2));
        fixed[1] = fixed[0];
        return 1;
    }
    q = cmha__z_add(middle, cmha__z_along(cmha__z_sqrt(root2), middle));
    fixed[0] = cmha__z_div(cmha__z_scaled(map[1], -2), q);
    fixed[1] = cmha__z_div(q, cmha__z_scaled(map[2], 2));
    return 2;
}

/* A map of determinant 0: everything goes to a/c, which is b/d. */
static int cmha__constant_map(const cmha__z map[4], cmha__z fixed[2]) {
    int by_c = cmha__z_abs(map[0]) + cmha__z_abs(map[2]) >= cmha__z_abs(map[1]) + cmha__z_abs(map[3]);
    fixed[0] = fixed[1] = cmha__z_of(0, 0);
    if (cmha__z_zero(map[by_c ? 0 : 1]) && cmha__z_zero(map[by_c ? 2 : 3])) return 0;
    fixed[0] = fixed[1] = cmha__z_div(map[by_c ? 0 : 1], map[by_c ? 2 : 3]);
    return 1;
}

static void cmha__classify_one(const cmha__z map[4], double unit, double tol, cmha_mobius_class *out) {
    cmha__z det = cmha__mobius_det(map), trace = cmha__z_add(map[0], map[3]), sigma = cmha__z_of(INFINITY, 0), k = sigma, fixed[2];
    int finite = cmha__z_abs(det) <= DBL_MAX, singular = cmha__z_zero(det);
    if (!singular) {
        sigma = finite ? cmha__z_div(cmha__z_mul(trace, trace), det) : cmha__z_of(NAN, NAN);
        k = cmha__multiplier(sigma);
    }
    fixed[0] = fixed[1] = cmha__z_of(NAN, NAN);
    out->n_fixed = singular ? cmha__constant_map(map, fixed) : finite ? cmha__fixed_points(map, fixed) : 0;
    out->kind = singular ? CMHA_LOXODROMIC : cmha__geometry_of(sigma, tol);
    out->sigma[0] = sigma.re, out->sigma[1] = sigma.im;
    out->multiplier[0] = k.re, out->multiplier[1] = k.im;
    out->determinant[0] = det.re * unit * unit, out->determinant[1] = det.im * unit * unit;
    out->fixed[0][0] = fixed[0].re, out->fixed[0][1] = fixed[0].im;
    out->fixed[1][0] = fixed[1].re, out->fixed[1][1] = fixed[1].im;
}

CMHA_DEF void cmha_mobius_classify(const cmha_real *abcd, size_t D, double tol, cmha_mobius_class *classes) {
    cmha__z map[4];
    for (size_t j = 0; j < D; j++) {
        double unit = cmha__mobius_of(abcd, D, j, map);
        cmha__classify_one(map, unit, tol, classes + j);
    }
}

CMHA_DEF void cmha_mobius_count(const cmha_mobius_class *classes, size_t n, size_t counts[CMHA_GEOMETRY_COUNT]) {
    memset(counts, 0, CMHA_GEOMETRY_COUNT * sizeof *counts);
    for (size_t i = 0; i < n; i++) counts[classes[i].kind]++;
}

CMHA_DEF void cmha_mobius_normalize(cmha_real *abcd, size_t D) {
    cmha__z map[4], det;
    for (size_t j = 0; j < D; j++) {
        cmha__mobius_of(abcd, D, j, map);
        det = cmha__mobius_det(map);
        if (!(cmha__z_abs(det) > 0 && cmha__z_abs(det) <= DBL_MAX)) continue;
        for (size_t i = 0; i < 4; i++) {
            cmha__z x = cmha__z_div(map[i], cmha__z_sqrt(det));
            abcd[2 * i * D + j] = (cmha_real)x.re;
            abcd[(2 * i + 1) * D + j] = (cmha_real)x.im;
        }
    }
}

CMHA_DEF void cmha_cope_table(cmha_cope_imag kind, size_t n, size_t d, double base, size_t pos0, cmha_real *table) {
    for (size_t c = 0; c < d; c++) {
        double omega = pow(base, -2.0 * (double)(c / 2) / (double)d);
        int cosine = kind == CMHA_COPE_SIN_COS && c % 2;
        for (size_t r = 0; r < n; r++) {
            double angle = (double)(pos0 + r) * omega;
            table[r * d + c] = (cmha_real)(kind == CMHA_COPE_LEARNED ? 0 : cosine ? cos(angle) : sin(angle));
        }
    }
}

/* ---- The Möbius map and CoPE's embedding ---- */

/* A map of complex rows by a parameter of `planes` rows of D: abcd, or the one vector of a product (scale = 1). */
typedef struct cmha__mobius_saved {
    size_t planes;
    int scale;
    cmha_quotient_kind kind;
    cmha_real eps;
} cmha__mobius_saved;

static cmha_status cmha__mobius_record(cmha_tape *tape, cmha_record *r) {
    const cmha__mobius_saved *s = (const cmha__mobius_saved *)r->user;
    cmha_tensor *x = r->in[0], *w = r->in[1];
    size_t D = cmha__last(x) / 2, T = cmha__rows(x), threads = (size_t)tape->context->threads, n = s->planes * D, c;
    cmha_real *dx = cmha_grad(tape, x), *dw = cmha_grad(tape, w), *partial;
    cmha__mark mark = cmha__mark_of(tape);
    partial = cmha__reals(tape, threads * n);
    if (!tape->status && !cmha__dry(tape)) {
        memset(partial, 0, threads * n * sizeof *partial);
        CMHA__FOR_CHUNKS(tape->context->threads, T, lo, hi) {
            const cmha_real *from = x->data + 2 * lo * D, *g = r->out->grad + 2 * lo * D;
            cmha_real *to = dx ? dx + 2 * lo * D : NULL, *pw = dw ? partial + (size_t)cmha__chunk * n : NULL;
            if (s->scale) cmha_complex_scale_backward(from, w->data, g, hi - lo, D, to, pw);
            else cmha_mobius_backward(from, w->data, g, hi - lo, D, s->kind, s->eps, to, pw);
        }
        for (c = 0; dw && c < threads; c++) cmha__axpy(n, 1, partial + c * n, dw);
    }
    cmha__rewind(tape, mark);
    return tape->status;
}

static cmha_status cmha__check_quotient(cmha_tape *tape, cmha_quotient_kind kind) {
    if ((int)kind < 0 || kind > CMHA_QUOTIENT_UNIT) cmha__reject(tape, CMHA_ERR_ARGUMENT, "quotient: there is no such kind");
    return tape->status;
}

static cmha_tensor *cmha__mobius_map(cmha_tape *tape, cmha_tensor *x, cmha_tensor *w, size_t planes, cmha_quotient_kind kind,
                                     cmha_real eps) {
    cmha_tensor *in[2], *y;
    cmha__mobius_saved *s;
    size_t D;
    if (!x || !w || !tape || tape->status) return NULL;
    if (cmha__last(x) % 2 || w->size % planes || w->size / planes != cmha__last(x) / 2)
        return cmha__reject(tape, CMHA_ERR_SHAPE, "mobius: rows of %zu numbers, a parameter of %zu", cmha__last(x), w->size);
    if (cmha__check_quotient(tape, kind) || cmha__check_eps(tape, "mobius", eps)) return NULL;
    y = cmha__result(tape, x->rank, x->shape);
    s = y ? (cmha__mobius_saved *)cmha__record_alloc(tape, sizeof *s) : NULL;
    if (!s) return NULL;
    s->planes = planes, s->scale = planes == 2, s->kind = kind, s->eps = eps;
    D = cmha__last(x) / 2;
    if (!cmha__dry(tape))
        CMHA__FOR_CHUNKS(tape->context->threads, cmha__rows(x), lo, hi) {
            const cmha_real *from = x->data + 2 * lo * D;
            if (s->scale) cmha_complex_scale_forward(from, w->data, hi - lo, D, y->data + 2 * lo * D);
            else cmha_mobius_forward(from, w->data, hi - lo, D, kind, eps, y->data + 2 * lo * D);
        }
    in[0] = x, in[1] = w;
    return cmha_push(tape, s->scale ? "elementwise_complex" : "mobius", y, in, 2, cmha__mobius_record, s);
}

CMHA_DEF cmha_tensor *cmha_mobius(cmha_tape *tape, cmha_tensor *rho, cmha_tensor *abcd, cmha_quotient_kind kind, cmha_real eps) {
    return cmha__mobius_map(tape, rho, abcd, 8, kind, eps);
}

CMHA_DEF cmha_tensor *cmha_elementwise_complex(cmha_tape *tape, cmha_tensor *x, cmha_tensor *w) {
    return cmha__mobius_map(tape, x, w, 2, CMHA_QUOTIENT_EXACT, 0);
}

static cmha_status cmha__quotient_record(cmha_tape *tape, cmha_record *r) {
    const cmha__mobius_saved *s = (const cmha__mobius_saved *)r->user;
    cmha_tensor *u = r->in[0], *w = r->in[1];
    cmha_real *du = cmha_grad(tape, u), *dw = cmha_grad(tape, w);
    size_t row = cmha__last(u);
    if (tape->status || cmha__dry(tape)) return tape->status;
    CMHA__FOR_CHUNKS(tape->context->threads, cmha__rows(u), lo, hi) {
        cmha_quotient_backward(u->data + lo * row, w->data + lo * row, r->out->grad + lo * row, hi - lo, row / 2, s->kind, s->eps,
                               du ? du + lo * row : NULL, dw ? dw + lo * row : NULL);
    }
    return tape->status;
}

CMHA_DEF cmha_tensor *cmha_quotient(cmha_tape *tape, cmha_tensor *u, cmha_tensor *w, cmha_quotient_kind kind, cmha_real eps) {
    cmha_tensor *in[2], *y;
    cmha__mobius_saved *s;
    size_t row;
    if (!u || !w || !tape || tape->status) return NULL;
    row = cmha__last(u);
    if (!cmha__same_shape(u, w) || row % 2)
        return cmha__reject(tape, CMHA_ERR_SHAPE, "quotient: sizes %zu and %zu differ in shape, or the width is odd", u->size,
                                w->size);
    if (cmha__check_quotient(tape, kind) || cmha__check_eps(tape, "quotient", eps)) return NULL;
    y = cmha__result(tape, u->rank, u->shape);
    s = y ? (cmha__mobius_saved *)cmha__record_alloc(tape, sizeof *s) : NULL;
    if (!s) return NULL;
    s->kind = kind, s->eps = eps;
    if (!cmha__dry(tape))
        CMHA__FOR_CHUNKS(tape->context->threads, cmha__rows(u), lo, hi) {
            cmha_quotient_forward(u->data + lo * row, w->data + lo * row, hi - lo, row / 2, kind, eps, y->data + lo * row);
        }
    in[0] = u, in[1] = w;
    return cmha_push(tape, "quotient", y, in, 2, cmha__quotient_record, s);
}

/* ---- Complex building blocks ---- */

/* Z [2T, 2O] = the four real products of a complex linear map: rows Z[2t] = [Wr xr | Wi xr], Z[2t + 1] = [Wr xi | Wi xi]; of the
   adjoint, with the transposes of Wr and Wi. */
static void cmha__complex_products(int threads, const cmha_real *x, const cmha_real *weight, size_t T, size_t I, size_t O,
                                   int adjoint, cmha_real *Z) {
    if (!adjoint) cmha__gemm(threads, 0, 1, 2 * T, 2 * O, I, 1, x, I, weight, I, 0, Z, 2 * O);
    for (size_t part = 0; adjoint && part < 2; part++)
        cmha__gemm(threads, 0, 0, 2 * T, O, I, 1, x, I, weight + part * I * O, O, 0, Z + part * O, 2 * O);
}

/* y = Wr xr - Wi xi + i (Wr xi + Wi xr) from the four products Z, Wi with the other sign for the adjoint. */
static void cmha__complex_combine(int threads, const cmha_real *Z, const cmha_real *bias, size_t T, size_t O, int adjoint,
                                  cmha_real *y) {
    cmha_real sign = adjoint ? -1 : 1;
    CMHA__FOR_CHUNKS(threads, T, lo, hi) {
        for (size_t t = lo; t < hi; t++) {
            const cmha_real *z = Z + 4 * t * O;
            cmha_real *row = y + 2 * t * O;
            for (size_t j = 0; j < O; j++) row[j] = z[j] - sign * z[3 * O + j];
            for (size_t j = 0; j < O; j++) row[O + j] = z[2 * O + j] + sign * z[O + j];
            if (bias) cmha__axpy(2 * O, 1, bias, row);
        }
    }
}

/* beta: what remains of dx, 1 or, if it holds rubbish, 0. Without the bias, whose gradient is a sum of rows. */
static void cmha__complex_linear_backward(int threads, const cmha_real *x, const cmha_real *weight, const cmha_real *dy, size_t T,
                                          size_t I, size_t O, int adjoint, cmha_real beta, cmha_real *dx, cmha_real *dweight,
                                          cmha_real *Z) {
    cmha_real sign = adjoint ? -1 : 1;
    CMHA__FOR_CHUNKS(threads, T, lo, hi) {
        for (size_t t = lo; t < hi; t++) {
            const cmha_real *g = dy + 2 * t * O;
            cmha_real *z = Z + 4 * t * O;
            for (size_t j = 0; j < O; j++) z[j] = g[j];
            for (size_t j = 0; j < O; j++) z[O + j] = sign * g[O + j];
            for (size_t j = 0; j < O; j++) z[2 * O + j] = g[O + j];
            for (size_t j = 0; j < O; j++) z[3 * O + j] = -sign * g[j];
        }
    }
    if (!adjoint) {
        if (dx) cmha__gemm(threads, 0, 0, 2 * T, I, 2 * O, 1, Z, 2 * O, weight, I, beta, dx, I); /* dx += dZ W */
        if (dweight) cmha__gemm(threads, 1, 0, 2 * O, I, 2 * T, 1, Z, 2 * O, x, I, 1, dweight, I); /* dW += dZ^T x */
        return;
    }
    for (size_t part = 0; part < 2; part++) { /* dx += dZ_part W_part^T, dW_part += x^T dZ_part */
        cmha_real *z = Z + part * O;
        if (dx) cmha__gemm(threads, 0, 1, 2 * T, I, O, 1, z, 2 * O, weight + part * I * O, O, part ? 1 : beta, dx, I);
        if (dweight) cmha__gemm(threads, 1, 0, I, O, 2 * T, 1, x, I, z, 2 * O, 1, dweight + part * I * O, O);
    }
}

CMHA_DEF void cmha_complex_linear_forward(const cmha_real *x, const cmha_real *weight, const cmha_real *bias, size_t T, size_t I,
                                          size_t O, int adjoint, cmha_real *y, cmha_real *scratch) {
    cmha__complex_products(1, x, weight, T, I, O, adjoint, scratch);
    cmha__complex_combine(1, scratch, bias, T, O, adjoint, y);
}

CMHA_DEF void cmha_complex_linear_backward(const cmha_real *x, const cmha_real *weight, const cmha_real *dy, size_t T, size_t I,
                                           size_t O, int adjoint, cmha_real *dx, cmha_real *dweight, cmha_real *dbias,
                                           cmha_real *scratch) {
    if (dx || dweight) cmha__complex_linear_backward(1, x, weight, dy, T, I, O, adjoint, 1, dx, dweight, scratch);
    if (dbias) cmha__sum_rows(dy, T, 2 * O, dbias);
}

/* exp(i theta) for theta of any size: reduced by multiples of 2 pi in double, where cmha__sincos needs that. */
static inline void cmha__turn(cmha_real theta, cmha_real *s, cmha_real *c) {
#if !defined(CMHA_DOUBLE) && !defined(CMHA__SCALAR)
    double turns = (double)theta * 0.15915494309189534 + 6755399441055744.0; /* 1.5 * 2^52: rounds to whole turns */
    turns -= 6755399441055744.0;
    theta = (float)((double)theta - turns * 6.283185307179586);
#endif
    cmha__sincos(theta, s, c);
}

static void cmha__rotate_row(const cmha_real *CMHA__RESTRICT z, const cmha_real *CMHA__RESTRICT theta, size_t D,
                             cmha_real *CMHA__RESTRICT y) {
    for (size_t j = 0; j < D; j++) {
        cmha_real s, c;
        cmha__turn(theta[j], &s, &c);
        y[j] = z[j] * c - z[D + j] * s;
        y[D + j] = z[j] * s + z[D + j] * c;
    }
}

CMHA_DEF void cmha_complex_rotate_forward(const cmha_real *z, const cmha_real *theta, size_t T, size_t D, cmha_real *y) {
    for (size_t t = 0; t < T; t++) cmha__rotate_row(z + 2 * t * D, theta + t * D, D, y + 2 * t * D);
}

CMHA_DEF void cmha_complex_rotate_backward(const cmha_real *z, const cmha_real *theta, const cmha_real *dy, size_t T, size_t D,
                                           cmha_real *dz, cmha_real *dtheta) {
    cmha_real gr[CMHA__PAIRS], gi[CMHA__PAIRS]; /* dy conj(exp(i theta)): the gradient of z, and with conj(z) that of theta */
    size_t m;
    for (size_t t = 0; t < T; t++)
        for (size_t j0 = 0; j0 < D; j0 += m) {
            const cmha_real *re = z + 2 * t * D + j0, *im = re + D, *way = theta + t * D + j0, *g = dy + 2 * t * D + j0;
            m = D - j0 < CMHA__PAIRS ? D - j0 : CMHA__PAIRS;
            for (size_t j = 0; j < m; j++) {
                cmha_real s, c;
                cmha__turn(way[j], &s, &c);
                gr[j] = g[j] * c + g[D + j] * s;
                gi[j] = g[D + j] * c - g[j] * s;
            }
            if (dz) cmha__axpy(m, 1, gr, dz + 2 * t * D + j0), cmha__axpy(m, 1, gi, dz + 2 * t * D + D + j0);
            for (size_t j = 0; dtheta && j < m; j++) dtheta[t * D + j0 + j] += gi[j] * re[j] - gr[j] * im[j];
        }
}

/* Complex numbers in double, a block of a row at a time: what means of rows far from zero and covariances close to singular
   need. */
#define CMHA__WIDE ((size_t)128)
enum { CMHA__WIDE_LANES = 8 };

typedef struct cmha__wide {
    double re[CMHA__WIDE], im[CMHA__WIDE];
} cmha__wide;

static double cmha__wide_dot(const double *a, const double *b, size_t n) {
    double lanes[CMHA__WIDE_LANES] = {0}, sum = 0;
    size_t i = 0;
    for (; i + CMHA__WIDE_LANES <= n; i += CMHA__WIDE_LANES)
        for (int l = 0; l < CMHA__WIDE_LANES; l++) lanes[l] += a[i + (size_t)l] * b[i + (size_t)l];
    for (int l = 0; i < n; i++, l++) lanes[l] += a[i] * b[i];
    for (int l = 0; l < CMHA__WIDE_LANES; l++) sum += lanes[l];
    return sum;
}

static double cmha__wide_total(const double *a, size_t n) {
    double lanes[CMHA__WIDE_LANES] = {0}, sum = 0;
    size_t i = 0;
    for (; i + CMHA__WIDE_LANES <= n; i += CMHA__WIDE_LANES)
        for (int l = 0; l < CMHA__WIDE_LANES; l++) lanes[l] += a[i + (size_t)l];
    for (int l = 0; i < n; i++, l++) lanes[l] += a[i];
    for (int l = 0; l < CMHA__WIDE_LANES; l++) sum += lanes[l];
    return sum;
}

/* c = the numbers j0, j0 + 1, .. of the row z less the mean; returns how many. */
static size_t cmha__wide_load(const cmha_real *z, size_t D, size_t j0, const double *mean, cmha__wide *c) {
    size_t m = D - j0 < CMHA__WIDE ? D - j0 : CMHA__WIDE;
    for (size_t j = 0; j < m; j++) c->re[j] = (double)z[j0 + j] - mean[0];
    for (size_t j = 0; j < m; j++) c->im[j] = (double)z[D + j0 + j] - mean[1];
    return m;
}

/* stats = (mean Re, mean Im, V_rr, V_ri, V_ii) of one row; not centred: the mean counts as 0. */
static void cmha__moments(const cmha_real *z, size_t D, int centred, double *stats) {
    double mean[2] = {0, 0};
    size_t m;
    cmha__wide c;
    memset(stats, 0, 5 * sizeof *stats);
    for (size_t j0 = 0; centred && j0 < D; j0 += m) {
        m = cmha__wide_load(z, D, j0, stats, &c);
        mean[0] += cmha__wide_total(c.re, m) / (double)D;
        mean[1] += cmha__wide_total(c.im, m) / (double)D;
    }
    memcpy(stats, mean, sizeof mean);
    for (size_t j0 = 0; j0 < D; j0 += m) {
        m = cmha__wide_load(z, D, j0, stats, &c);
        stats[2] += cmha__wide_dot(c.re, c.re, m) / (double)D;
        stats[3] += cmha__wide_dot(c.re, c.im, m) / (double)D;
        stats[4] += cmha__wide_dot(c.im, c.im, m) / (double)D;
    }
}

/* The matrix M of a norm by its eigenvalues and the direction of the first: M = f1 e1 e1^T + f2 e2 e2^T, e1 = (c, s), e2 = (-s, c).
   In this form the derivative of an inverse root stays exact next to a singular V. */
typedef struct cmha__root {
    double f1, f2, c, s;
} cmha__root;

static double cmha__inverse_spread(double variance) { return variance == 0 ? 0 : 1 / sqrt(variance); }

static cmha__root cmha__norm_root(cmha_complex_norm kind, const double *V, double eps) {
    double trace = V[0] + V[2], half = (V[0] - V[2]) / 2, det = V[0] * V[2] - V[1] * V[1], first, angle;
    cmha__root root = {0, 0, 1, 0};
    switch (kind) {
    case CMHA_CLN:
    case CMHA_CRMS: root.f1 = root.f2 = cmha__inverse_spread(trace + eps); break;
    case CMHA_SPLIT_NORM:
        root.f1 = cmha__inverse_spread(V[0] + eps);
        root.f2 = cmha__inverse_spread(V[2] + eps);
        break;
    case CMHA_WHITEN: /* the smaller eigenvalue from the determinant, whose part with eps does not cancel */
        first = trace / 2 + hypot(half, V[1]) + eps;
        det = (det > 0 ? det : 0) + eps * (trace + eps);
        angle = atan2(V[1], half) / 2;
        root.f1 = cmha__inverse_spread(first);
        root.f2 = cmha__inverse_spread(first > 0 ? det / first : first);
        root.c = cos(angle);
        root.s = sin(angle);
        break;
    }
    return root;
}

/* (rr, ri, ii) of the symmetric matrix with entries a, e, b in the basis of the root. */
static void cmha__root_matrix(const cmha__root *r, double a, double e, double b, double *matrix) {
    double cc = r->c * r->c, ss = r->s * r->s, cs = r->c * r->s;
    matrix[0] = a * cc + b * ss - 2 * e * cs;
    matrix[1] = (a - b) * cs + e * (cc - ss);
    matrix[2] = a * ss + b * cc + 2 * e * cs;
}

/* matrix = 2/D dL/dV from G = dL/dM = sum of dh c^T (rr, ri, ir, ii): the gradient reaches c as matrix * c. For an inverse root the
   derivative in the eigenbasis has the divided differences of 1/sqrt: -f^3/2 on the diagonal and -f1^2 f2^2/(f1 + f2) off it. */
static void cmha__root_backward(cmha_complex_norm kind, const cmha__root *r, const double *G, size_t D, double *matrix) {
    double cc = r->c * r->c, ss = r->s * r->s, cs = r->c * r->s, both = G[1] + G[2];
    double a = G[0] * cc + both * cs + G[3] * ss, b = G[0] * ss - both * cs + G[3] * cc;
    double e = ((G[3] - G[0]) * cs + both * (cc - ss) / 2), scale = 2 / (double)D;
    double off = r->f1 + r->f2 > 0 ? r->f1 * r->f1 * (r->f2 * r->f2) / (r->f1 + r->f2) : 0;
    if (kind == CMHA_CLN || kind == CMHA_CRMS) a = b = a + b;
    if (kind != CMHA_WHITEN) e = 0;
    cmha__root_matrix(r, -scale * r->f1 * r->f1 * r->f1 / 2 * a, -scale * off * e, -scale * r->f2 * r->f2 * r->f2 / 2 * b, matrix);
}

/* A block of gamma as real 2x2 matrices, g[0..3] = (rr, ri, ir, ii). */
static void cmha__gamma_load(cmha_complex_norm kind, const cmha_real *gamma, size_t D, size_t j0, size_t m,
                             double g[4][CMHA__WIDE]) {
    const cmha_real *first = gamma ? gamma + j0 : NULL, *second = first && kind != CMHA_CRMS ? first + D : first;
    for (size_t j = 0; j < m; j++) g[0][j] = first ? (double)first[j] : 1;
    for (size_t j = 0; j < m; j++) g[3][j] = g[0][j];
    for (size_t j = 0; j < m; j++) g[1][j] = g[2][j] = 0;
    if (!first) return;
    if (kind == CMHA_SPLIT_NORM)
        for (size_t j = 0; j < m; j++) g[3][j] = (double)second[j];
    else if (kind == CMHA_CLN)
        for (size_t j = 0; j < m; j++) g[1][j] = -(g[2][j] = (double)second[j]);
    else if (kind == CMHA_WHITEN)
        for (size_t j = 0; j < m; j++) {
            g[1][j] = g[2][j] = (double)second[j];
            g[3][j] = (double)second[D + j];
        }
}

/* h = M c in place */
static void cmha__wide_apply(const double *M, size_t m, cmha__wide *c) {
    for (size_t j = 0; j < m; j++) {
        double re = M[0] * c->re[j] + M[1] * c->im[j];
        c->im[j] = M[1] * c->re[j] + M[2] * c->im[j];
        c->re[j] = re;
    }
}

CMHA_DEF void cmha_complex_norm_forward(cmha_complex_norm kind, const cmha_real *z, const cmha_real *gamma, const cmha_real *beta,
                                        size_t T, size_t D, cmha_real eps, cmha_real *y, double *stats) {
    double row[5], M[3], g[4][CMHA__WIDE];
    size_t m;
    cmha__root root;
    cmha__wide h;
    for (size_t t = 0; t < T; t++, z += 2 * D, y += 2 * D) {
        cmha__moments(z, D, kind != CMHA_CRMS, row);
        if (stats) memcpy(stats + 5 * t, row, sizeof row);
        root = cmha__norm_root(kind, row + 2, (double)eps);
        cmha__root_matrix(&root, root.f1, 0, root.f2, M);
        for (size_t j0 = 0; j0 < D; j0 += m) {
            m = cmha__wide_load(z, D, j0, row, &h);
            cmha__wide_apply(M, m, &h);
            cmha__gamma_load(kind, gamma, D, j0, m, g);
            for (size_t j = 0; j < m; j++) y[j0 + j] = (cmha_real)(g[0][j] * h.re[j] + g[1][j] * h.im[j]);
            for (size_t j = 0; j < m; j++) y[D + j0 + j] = (cmha_real)(g[2][j] * h.re[j] + g[3][j] * h.im[j]);
        }
        if (beta) cmha__axpy(2 * D, 1, beta, y);
    }
}

/* dgamma += dy h^T as its kind has it, h = M c. */
static void cmha__gamma_backward(cmha_complex_norm kind, const cmha__wide *h, const cmha_real *dy, size_t D, size_t j0, size_t m,
                                 cmha_real *dgamma) {
    const cmha_real *re = dy + j0, *im = dy + D + j0;
    cmha_real *d = dgamma + j0;
    for (size_t j = 0; j < m; j++) {
        double gr = (double)re[j], gi = (double)im[j], rr = gr * h->re[j], ii = gi * h->im[j];
        switch (kind) {
        case CMHA_CRMS: d[j] += (cmha_real)(rr + ii); break;
        case CMHA_CLN:
            d[j] += (cmha_real)(rr + ii);
            d[D + j] += (cmha_real)(gi * h->re[j] - gr * h->im[j]);
            break;
        case CMHA_SPLIT_NORM:
            d[j] += (cmha_real)rr;
            d[D + j] += (cmha_real)ii;
            break;
        case CMHA_WHITEN:
            d[j] += (cmha_real)rr;
            d[D + j] += (cmha_real)(gi * h->re[j] + gr * h->im[j]);
            d[2 * D + j] += (cmha_real)ii;
            break;
        }
    }
}

/* dh = gamma^T dy for one block; returns its length. */
static size_t cmha__norm_cotangent(cmha_complex_norm kind, const cmha_real *gamma, const cmha_real *dy, size_t D, size_t j0,
                                   cmha__wide *dh) {
    static const double zero[2] = {0, 0};
    double g[4][CMHA__WIDE];
    size_t m = cmha__wide_load(dy, D, j0, zero, dh), j;
    cmha__gamma_load(kind, gamma, D, j0, m, g);
    for (j = 0; j < m; j++) {
        double re = g[0][j] * dh->re[j] + g[2][j] * dh->im[j];
        dh->im[j] = g[1][j] * dh->re[j] + g[3][j] * dh->im[j];
        dh->re[j] = re;
    }
    return m;
}

/* dz += M (dh - mean dh) + 2/D dV c, the mean only where the forward subtracts one. */
static void cmha__norm_row_backward(cmha_complex_norm kind, const cmha__root *root, const cmha_real *z, const cmha_real *gamma,
                                    const double *mean, const cmha_real *dy, size_t D, cmha_real *dz) {
    double G[4] = {0, 0, 0, 0}, sum[2] = {0, 0}, M[3], dV[3];
    cmha__wide dh, c;
    size_t m;
    for (size_t j0 = 0; j0 < D; j0 += m) {
        m = cmha__norm_cotangent(kind, gamma, dy, D, j0, &dh);
        cmha__wide_load(z, D, j0, mean, &c);
        G[0] += cmha__wide_dot(dh.re, c.re, m);
        G[1] += cmha__wide_dot(dh.re, c.im, m);
        G[2] += cmha__wide_dot(dh.im, c.re, m);
        G[3] += cmha__wide_dot(dh.im, c.im, m);
        if (kind == CMHA_CRMS) continue;
        sum[0] += cmha__wide_total(dh.re, m) / (double)D;
        sum[1] += cmha__wide_total(dh.im, m) / (double)D;
    }
    cmha__root_matrix(root, root->f1, 0, root->f2, M);
    cmha__root_backward(kind, root, G, D, dV);
    for (size_t j0 = 0; j0 < D; j0 += m) {
        m = cmha__norm_cotangent(kind, gamma, dy, D, j0, &dh);
        cmha__wide_load(z, D, j0, mean, &c);
        for (size_t j = 0; j < m; j++) dh.re[j] -= sum[0];
        for (size_t j = 0; j < m; j++) dh.im[j] -= sum[1];
        cmha__wide_apply(M, m, &dh);
        cmha__wide_apply(dV, m, &c);
        for (size_t j = 0; j < m; j++) dz[j0 + j] += (cmha_real)(dh.re[j] + c.re[j]);
        for (size_t j = 0; j < m; j++) dz[D + j0 + j] += (cmha_real)(dh.im[j] + c.im[j]);
    }
}

CMHA_DEF void cmha_complex_norm_backward(cmha_complex_norm kind, const cmha_real *z, const cmha_real *gamma, const double *stats,
                                         const cmha_real *dy, size_t T, size_t D, cmha_real eps, cmha_real *dz, cmha_real *dgamma,
                                         cmha_real *dbeta) {
    size_t m;
    for (size_t t = 0; t < T; t++, z += 2 * D, dy += 2 * D, stats += 5) {
        cmha__root root = cmha__norm_root(kind, stats + 2, (double)eps);
        if (dz) cmha__norm_row_backward(kind, &root, z, gamma, stats, dy, D, dz + 2 * t * D);
        for (size_t j0 = 0; dgamma && j0 < D; j0 += m) {
            cmha__wide h;
            double M[3];
            m = cmha__wide_load(z, D, j0, stats, &h);
            cmha__root_matrix(&root, root.f1, 0, root.f2, M);
            cmha__wide_apply(M, m, &h);
            cmha__gamma_backward(kind, &h, dy, D, j0, m, dgamma);
        }
        if (dbeta) cmha__axpy(2 * D, 1, dy, dbeta);
    }
}

CMHA_DEF void cmha_phasor_forward(const cmha_real *z, size_t T, size_t D, cmha_real eps, cmha_real *u) {
    for (size_t t = 0; t < T; t++, z += 2 * D, u += 2 * D) cmha__phasor_row(z, z + D, D, eps, 1, u, u + D);
}

CMHA_DEF void cmha_phasor_backward(const cmha_real *z, const cmha_real *du, size_t T, size_t D, cmha_real eps, cmha_real *dz) {
    for (size_t t = 0; dz && t < T; t++, z += 2 * D, du += 2 * D, dz += 2 * D)
        cmha__phasor_row_backward(z, z + D, D, eps, 1, du, du + D, dz, dz + D);
}

CMHA_DEF void cmha_hermitian_forward(const cmha_real *q, const cmha_real *k, size_t T, size_t D, cmha_real *a) {
    for (size_t t = 0; t < T; t++, q += 2 * D, k += 2 * D) {
        a[2 * t] = cmha__dot(q, k, 2 * D);
        a[2 * t + 1] = cmha__dot(q + D, k, D) - cmha__dot(q, k + D, D);
    }
}

/* dq = da k, dk = conj(da) q */
CMHA_DEF void cmha_hermitian_backward(const cmha_real *q, const cmha_real *k, const cmha_real *da, size_t T, size_t D,
                                      cmha_real *dq, cmha_real *dk) {
    for (size_t t = 0; t < T; t++, q += 2 * D, k += 2 * D) {
        cmha_real re = da[2 * t], im = da[2 * t + 1];
        cmha_real *to_q = dq ? dq + 2 * t * D : NULL, *to_k = dk ? dk + 2 * t * D : NULL;
        if (dq) cmha__axpy(2 * D, re, k, to_q), cmha__axpy(D, -im, k + D, to_q), cmha__axpy(D, im, k, to_q + D);
        if (dk) cmha__axpy(2 * D, re, q, to_k), cmha__axpy(D, im, q + D, to_k), cmha__axpy(D, -im, q, to_k + D);
    }
}

/* to[j * to_step] = or += from[j * from_step] */
static void cmha__stride(const cmha_real *from, size_t from_step, size_t n, cmha_real *to, size_t to_step, int add) {
    if (add)
        for (size_t j = 0; j < n; j++) to[j * to_step] += from[j * from_step];
    else
        for (size_t j = 0; j < n; j++) to[j * to_step] = from[j * from_step];
}

/* Planes from pairs or pairs from planes, written or added. */
static void cmha__pairs(const cmha_real *from, size_t T, size_t D, cmha_layout layout, int from_pairs, cmha_real *to, int add) {
    size_t step = layout == CMHA_LAYOUT_HALF ? 1 : 2;
    for (size_t t = 0; t < T; t++, from += 2 * D, to += 2 * D)
        for (size_t part = 0; part < 2; part++) {
            size_t pair = cmha__pair(layout, D, 0, part), plane = part * D;
            if (from_pairs) cmha__stride(from + pair, step, D, to + plane, 1, add);
            else cmha__stride(from + plane, 1, D, to + pair, step, add);
        }
}

CMHA_DEF void cmha_complex_from_pairs_forward(const cmha_real *x, size_t T, size_t D, cmha_layout layout, cmha_real *z) {
    cmha__pairs(x, T, D, layout, 1, z, 0);
}

CMHA_DEF void cmha_complex_from_pairs_backward(const cmha_real *dz, size_t T, size_t D, cmha_layout layout, cmha_real *dx) {
    if (dx) cmha__pairs(dz, T, D, layout, 0, dx, 1);
}

CMHA_DEF void cmha_complex_to_pairs_forward(const cmha_real *z, size_t T, size_t D, cmha_layout layout, cmha_real *x) {
    cmha__pairs(z, T, D, layout, 0, x, 0);
}

CMHA_DEF void cmha_complex_to_pairs_backward(const cmha_real *dx, size_t T, size_t D, cmha_layout layout, cmha_real *dz) {
    if (dz) cmha__pairs(dx, T, D, layout, 1, dz, 1);
}

CMHA_DEF void cmha_complex_join_forward(const cmha_real *re, const cmha_real *im, size_t T, size_t D, cmha_real *z) {
    for (size_t t = 0; t < T; t++, z += 2 * D) {
        memcpy(z, re + t * D, D * sizeof *z);
        if (im) memcpy(z + D, im + t * D, D * sizeof *z);
        else memset(z + D, 0, D * sizeof *z);
    }
}

CMHA_DEF void cmha_complex_join_backward(const cmha_real *dz, size_t T, size_t D, cmha_real *dre, cmha_real *dim) {
    for (size_t t = 0; t < T; t++, dz += 2 * D) {
        if (dre) cmha__axpy(D, 1, dz, dre + t * D);
        if (dim) cmha__axpy(D, 1, dz + D, dim + t * D);
    }
}

CMHA_DEF void cmha_complex_split_forward(const cmha_real *z, size_t T, size_t D, cmha_real *re, cmha_real *im) {
    for (size_t t = 0; t < T; t++, z += 2 * D) {
        if (re) memcpy(re + t * D, z, D * sizeof *z);
        if (im) memcpy(im + t * D, z + D, D * sizeof *z);
    }
}

CMHA_DEF void cmha_complex_split_backward(const cmha_real *dre, const cmha_real *dim, size_t T, size_t D, cmha_real *dz) {
    for (size_t t = 0; dz && t < T; t++, dz += 2 * D) {
        if (dre) cmha__axpy(D, 1, dre + t * D, dz);
        if (dim) cmha__axpy(D, 1, dim + t * D, dz + D);
    }
}

enum { CMHA__EXACT_EVERY = 64 }; /* rows from one angle formed exactly to the next; between them a rotation by omega leads on */

/* wave = exp(i (omega t + delta)) of m columns: exactly, or from the wave of the row before, turned by `step`. delta NULL = 0. */
static void cmha__wave(const cmha_real *omega, const cmha_real *delta, size_t m, double t, const cmha__wide *step,
                       cmha__wide *wave) {
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

/* Columns lo .. hi - 1 of the table: they do not depend on each other, so threads may share them out. */
static void cmha__multifreq_forward(const cmha_real *omega, const cmha_real *delta, size_t K, size_t n, size_t d, size_t pos0,
                                    size_t lo, size_t hi, cmha_real *y) {
    double scale = 1 / sqrt(K ? (double)K : 1);
    cmha__wide wave, step;
    size_t m;
    for (size_t r = 0; lo < hi && r < n; r++) memset(y + r * d + lo, 0, (hi - lo) * sizeof *y);
    for (size_t k = 0; k < K; k++, omega += d, delta += d)
        for (size_t j0 = lo; j0 < hi; j0 += m) {
            m = hi - j0 < CMHA__WIDE ? hi - j0 : CMHA__WIDE;
            cmha__wave(omega + j0, NULL, m, 1, NULL, &step);
            for (size_t r = 0; r < n; r++) {
                cmha__wave(omega + j0, delta + j0, m, (double)pos0 + (double)r, r % CMHA__EXACT_EVERY ? &step : NULL, &wave);
                for (size_t j = 0; j < m; j++) y[r * d + j0 + j] += (cmha_real)(scale * wave.im[j]);
            }
        }
}

static void cmha__multifreq_backward(const cmha_real *omega, const cmha_real *delta, const cmha_real *dy, size_t K, size_t n,
                                     size_t d, size_t pos0, size_t lo, size_t hi, cmha_real *domega, cmha_real *ddelta) {
    double scale = 1 / sqrt(K ? (double)K : 1);
    cmha__wide wave, step, sum; /* sum: of domega and ddelta */
    size_t m;
    for (size_t k = 0; k < K; k++)
        for (size_t j0 = lo; j0 < hi; j0 += m) {
            size_t at = k * d + j0;
            m = hi - j0 < CMHA__WIDE ? hi - j0 : CMHA__WIDE;
            cmha__wave(omega + at, NULL, m, 1, NULL, &step);
            memset(&sum, 0, sizeof sum);
            for (size_t r = 0; r < n; r++) {
                double t = (double)pos0 + (double)r;
                cmha__wave(omega + at, delta + at, m, t, r % CMHA__EXACT_EVERY ? &step : NULL, &wave);
                for (size_t j = 0; j < m; j++) {
                    double g = scale * (double)dy[r * d + j0 + j] * wave.re[j];
                    sum.re[j] += g * t;
                    sum.im[j] += g;
                }
            }
            for (size_t j = 0; domega && j < m; j++) domega[at + j] += (cmha_real)sum.re[j];
            for (size_t j = 0; ddelta && j < m; j++) ddelta[at + j] += (cmha_real)sum.im[j];
        }
}

CMHA_DEF void cmha_multifreq_forward(const cmha_real *omega, const cmha_real *delta, size_t K, size_t n, size_t d, size_t pos0,
                                     cmha_real *y) {
    cmha__multifreq_forward(omega, delta, K, n, d, pos0, 0, d, y);
}

CMHA_DEF void cmha_multifreq_backward(const cmha_real *omega, const cmha_real *delta, const cmha_real *dy, size_t K, size_t n,
                                      size_t d, size_t pos0, cmha_real *domega, cmha_real *ddelta) {
    cmha__multifreq_backward(omega, delta, dy, K, n, d, pos0, 0, d, domega, ddelta);
}

CMHA_DEF void cmha_multifreq_init(size_t K, size_t d, double base, cmha_real *omega, cmha_real *delta) {
    for (size_t k = 0; k < K; k++)
        for (size_t i = 0; i < d; i++) {
            double octave = (double)k - ((double)K - 1) / 2;
            omega[k * d + i] = (cmha_real)(pow(base, -2.0 * (double)(i / 2) / (double)d) * pow(2.0, octave));
            delta[k * d + i] = i % 2 ? (cmha_real)1.57079632679489662 : 0;
        }
}

/* ---- Regularisers and clipping of complex numbers ---- */

static size_t cmha__counted(const unsigned char *key_mask, size_t T) {
    size_t count = 0;
    for (size_t t = 0; t < T; t++) count += !key_mask || key_mask[t];
    return count;
}

/* direction [2, D], columns lo .. hi - 1: where the sum of the counted phasors points; returns the sum of 1 - R_j. */
static double cmha__phase_reg_forward(const cmha_real *z, const unsigned char *key_mask, size_t T, size_t D,
                                                     cmha_real eps, size_t lo, size_t hi, double *direction) {
    double *CMHA__RESTRICT re = direction, *CMHA__RESTRICT im = direction + D, sum = 0, count = (double)cmha__counted(key_mask, T);
    for (size_t j = lo; j < hi; j++) re[j] = im[j] = 0;
    for (size_t t = 0; t < T; t++) {
        const cmha_real *CMHA__RESTRICT row = z + 2 * t * D;
        if (key_mask && !key_mask[t]) continue;
        for (size_t j = lo; j < hi; j++) {
            cmha_real ur, ui, unused;
            cmha__phasor(row[j], row[D + j], eps, &ur, &ui, &unused);
            re[j] += (double)ur;
            im[j] += (double)ui;
        }
    }
    for (size_t j = lo; j < hi && count > 0; j++) {
        double length = sqrt(re[j] * re[j] + im[j] * im[j]), inverse; /* R_j times count */
        inverse = length <= count * (double)CMHA__EPSILON ? 0 : 1 / length;
        sum += 1 - length / count;
        re[j] *= inverse;
        im[j] *= inverse;
    }
    return sum;
}

/* dz -= slope * (gradient of every R_j times count) */
static void cmha__phase_reg_backward(const cmha_real *z, const unsigned char *key_mask, size_t T, size_t D,
                                                    cmha_real eps, const double *direction, double slope, cmha_real *dz) {
    for (size_t t = 0; t < T; t++) {
        const cmha_real *CMHA__RESTRICT row = z + 2 * t * D;
        const double *CMHA__RESTRICT way = direction;
        cmha_real *CMHA__RESTRICT to = dz + 2 * t * D;
        if (key_mask && !key_mask[t]) continue;
        for (size_t j = 0; j < D; j++) {
            cmha_real gr = (cmha_real)(-slope * way[j]), gi = (cmha_real)(-slope * way[D + j]);
            cmha__phasor_backward(row[j], row[D + j], eps, gr, gi, &to[j], &to[D + j]);
        }
    }
}

/* value / (count * D), 0 where nothing is counted: a mean over tokens and channels. */
static double cmha__mean_over(double value, size_t count, size_t D) { return count && D ? value / (double)count / (double)D : 0; }

CMHA_DEF double cmha_phase_reg_forward(const cmha_real *z, const unsigned char *key_mask, size_t T, size_t D, cmha_real lam,
                                       cmha_real eps, double *direction) {
    return (double)lam * cmha__mean_over(cmha__phase_reg_forward(z, key_mask, T, D, eps, 0, D, direction), 1, D);
}

CMHA_DEF void cmha_phase_reg_backward(const cmha_real *z, const unsigned char *key_mask, size_t T, size_t D, cmha_real lam,
                                      cmha_real eps, const double *direction, cmha_real dloss, cmha_real *dz) {
    double slope = cmha__mean_over((double)lam * (double)dloss, cmha__counted(key_mask, T), D);
    if (dz) cmha__phase_reg_backward(z, key_mask, T, D, eps, direction, slope, dz);
}

CMHA_DEF double cmha_sum_squares(const cmha_real *x, size_t n) {
    double lanes[CMHA__WIDE_LANES] = {0};
    size_t i = 0;
    for (; i + CMHA__WIDE_LANES <= n; i += CMHA__WIDE_LANES)
        for (int l = 0; l < CMHA__WIDE_LANES; l++) lanes[l] += (double)x[i + (size_t)l] * (double)x[i + (size_t)l];
    for (int l = 0; i < n; i++, l++) lanes[l] += (double)x[i] * (double)x[i];
    return cmha__wide_total(lanes, CMHA__WIDE_LANES);
}

/* The sum of |z|^2 over counted rows. */
static double cmha__mag_reg_forward(const cmha_real *z, const unsigned char *key_mask, size_t T, size_t D) {
    double sum = 0;
    for (size_t t = 0; t < T; t++)
        if (!key_mask || key_mask[t]) sum += cmha_sum_squares(z + 2 * t * D, 2 * D);
    return sum;
}

static void cmha__mag_reg_backward(const cmha_real *z, const unsigned char *key_mask, size_t T, size_t D, cmha_real slope,
                                   cmha_real *dz) {
    for (size_t t = 0; t < T; t++)
        if (!key_mask || key_mask[t]) cmha__axpy(2 * D, slope, z + 2 * t * D, dz + 2 * t * D);
}

CMHA_DEF double cmha_mag_reg_forward(const cmha_real *z, const unsigned char *key_mask, size_t T, size_t D, cmha_real lam) {
    return (double)lam * cmha__mean_over(cmha__mag_reg_forward(z, key_mask, T, D), cmha__counted(key_mask, T), D);
}

CMHA_DEF void cmha_mag_reg_backward(const cmha_real *z, const unsigned char *key_mask, size_t T, size_t D, cmha_real lam,
                                    cmha_real dloss, cmha_real *dz) {
    double slope = cmha__mean_over(2 * (double)lam * (double)dloss, cmha__counted(key_mask, T), D);
    if (dz) cmha__mag_reg_backward(z, key_mask, T, D, (cmha_real)slope, dz);
}

/* min(1, limit / norm) */
static cmha_real cmha__clip_factor(double squares, cmha_real limit) {
    double norm = sqrt(squares);
    return norm > (double)limit ? (cmha_real)((double)limit / norm) : 1;
}

static void cmha__clip_array(cmha_clip_mode mode, cmha_real limit, cmha_real factor, size_t n, cmha_real *x) {
    if (mode == CMHA_CLIP_NORM) factor = cmha__clip_factor(cmha_sum_squares(x, n), limit);
    if (mode == CMHA_CLIP_VALUE)
        for (size_t i = 0; i < n; i++) x[i] = x[i] > limit ? limit : x[i] < -limit ? -limit : x[i];
    else if (factor < 1)
        for (size_t i = 0; i < n; i++) x[i] *= factor;
}

CMHA_DEF void cmha_componentwise_clip(cmha_clip_mode mode, cmha_real limit, size_t count, const size_t *n, cmha_real *const *re,
                                      cmha_real *const *im) {
    for (size_t part = 0; part < 2; part++) {
        cmha_real *const *x = part ? im : re;
        cmha_real factor = 1;
        double squares = 0;
        if (mode == CMHA_CLIP_GLOBAL) {
            for (size_t i = 0; i < count; i++) squares += x[i] ? cmha_sum_squares(x[i], n[i]) : 0;
            factor = cmha__clip_factor(squares, limit);
        }
        for (size_t i = 0; i < count; i++)
            if (x[i]) cmha__clip_array(mode, limit, factor, n[i], x[i]);
    }
}

/* ---- Complex building blocks ---- */

/* An even last axis? */
static int cmha__is_planes(cmha_tape *tape, const cmha_tensor *z, const char *name) {
    char line[128];
    if (cmha__last(z) % 2 == 0) return 1;
    snprintf(line, sizeof line, "%s: a width of %zu is odd and cannot be read as complex numbers", name, cmha__last(z));
    cmha__reject(tape, CMHA_ERR_SHAPE, "%s", line);
    return 0;
}

CMHA_DEF cmha_tensor *cmha_complex_join(cmha_tape *tape, cmha_tensor *re, cmha_tensor *im) {
    if (!re || !tape || tape->status) return NULL;
    if (!im) im = cmha_tensor_new(tape, re->rank, re->shape, 0);
    return cmha_concat(tape, re, im, re->rank - 1);
}

static cmha_tensor *cmha__complex_part(cmha_tape *tape, cmha_tensor *z, size_t part) {
    if (!z || !tape || tape->status || !cmha__is_planes(tape, z, "complex part")) return NULL;
    return cmha_slice(tape, z, z->rank - 1, part * (cmha__last(z) / 2), (part + 1) * (cmha__last(z) / 2));
}

CMHA_DEF cmha_tensor *cmha_complex_real(cmha_tape *tape, cmha_tensor *z) { return cmha__complex_part(tape, z, 0); }
CMHA_DEF cmha_tensor *cmha_complex_imag(cmha_tape *tape, cmha_tensor *z) { return cmha__complex_part(tape, z, 1); }

typedef struct cmha__pairs_saved {
    cmha_layout layout;
    int from_pairs;
} cmha__pairs_saved;

static cmha_status cmha__pairs_backward(cmha_tape *tape, cmha_record *r) {
    const cmha__pairs_saved *s = (const cmha__pairs_saved *)r->user;
    cmha_real *dx = cmha_grad(tape, r->in[0]);
    size_t W = cmha__last(r->out);
    if (!dx || cmha__dry(tape)) return tape->status;
    CMHA__FOR_CHUNKS(tape->context->threads, cmha__rows(r->out), lo, hi) {
        cmha__pairs(r->out->grad + lo * W, hi - lo, W / 2, s->layout, !s->from_pairs, dx + lo * W, 1);
    }
    return CMHA_OK;
}

static cmha_tensor *cmha__pairs_op(cmha_tape *tape, cmha_tensor *x, cmha_layout layout, int from_pairs) {
    cmha__pairs_saved *s;
    cmha_tensor *y;
    size_t W;
    if (!x || !tape || tape->status || !cmha__is_planes(tape, x, "complex pairs")) return NULL;
    W = cmha__last(x);
    y = cmha__result(tape, x->rank, x->shape);
    s = y ? (cmha__pairs_saved *)cmha__record_alloc(tape, sizeof *s) : NULL;
    if (!s) return NULL;
    s->layout = layout;
    s->from_pairs = from_pairs;
    if (!cmha__dry(tape))
        CMHA__FOR_CHUNKS(tape->context->threads, cmha__rows(x), lo, hi) {
            cmha__pairs(x->data + lo * W, hi - lo, W / 2, layout, from_pairs, y->data + lo * W, 0);
        }
    return cmha_push(tape, "complex_pairs", y, &x, 1, cmha__pairs_backward, s);
}

CMHA_DEF cmha_tensor *cmha_complex_from_pairs(cmha_tape *tape, cmha_tensor *x, cmha_layout layout) {
    return cmha__pairs_op(tape, x, layout, 1);
}

CMHA_DEF cmha_tensor *cmha_complex_to_pairs(cmha_tape *tape, cmha_tensor *z, cmha_layout layout) {
    return cmha__pairs_op(tape, z, layout, 0);
}

/* T, I and O of a complex linear map, the adjoint's weight being [2, I, O]. */
typedef struct cmha__complex_linear_saved {
    size_t T, I, O;
    int adjoint;
} cmha__complex_linear_saved;

static cmha_status cmha__complex_linear_record(cmha_tape *tape, cmha_record *r) {
    const cmha__complex_linear_saved *s = (const cmha__complex_linear_saved *)r->user;
    cmha_tensor *x = r->in[0], *w = r->in[1];
    int threads = tape->context->threads, fresh;
    cmha_real *dx = cmha__grad_fresh(tape, x, &fresh), *dw = cmha_grad(tape, w), *db = cmha_grad(tape, r->in[2]), *scratch;
    cmha__mark mark = cmha__mark_of(tape);
    scratch = cmha__reals(tape, 2 * r->out->size);
    if (!tape->status && !cmha__dry(tape)) {
        if (dx || dw)
            cmha__complex_linear_backward(threads, x->data, w->data, r->out->grad, s->T, s->I, s->O, s->adjoint, fresh ? 0 : 1, dx,
                                          dw, scratch);
        if (db) cmha__bias_backward(threads, r->out->grad, s->T, 2 * s->O, db);
    }
    cmha__rewind(tape, mark);
    return tape->status;
}

static cmha_tensor *cmha__complex_linear(cmha_tape *tape, cmha_tensor *x, cmha_tensor *weight, cmha_tensor *bias, int adjoint) {
    size_t shape[CMHA_MAX_RANK], I;
    cmha__complex_linear_saved *s;
    cmha_tensor *in[3], *y;
    cmha_real *scratch;
    cmha__mark mark;
    if (!x || !weight || !tape || tape->status || !cmha__is_planes(tape, x, "complex linear")) return NULL;
    if (weight->rank != 3 || weight->shape[0] != 2)
        return cmha__reject(tape, CMHA_ERR_SHAPE, "complex linear: the weight must be [2, O, I]");
    I = weight->shape[adjoint ? 1 : 2];
    if (cmha__last(x) != 2 * I)
        return cmha__reject(tape, CMHA_ERR_SHAPE, "complex linear: input of %zu complex numbers, weight for %zu",
                                cmha__last(x) / 2, I);
    s = (cmha__complex_linear_saved *)cmha__record_alloc(tape, sizeof *s);
    if (!s) return NULL;
    s->I = I, s->O = weight->shape[adjoint ? 2 : 1], s->adjoint = adjoint;
    if (bias && bias->size != 2 * s->O)
        return cmha__reject(tape, CMHA_ERR_SHAPE, "complex linear: output of %zu complex numbers, bias of %zu reals", s->O,
                                bias->size);
    memcpy(shape, x->shape, sizeof shape);
    shape[x->rank - 1] = 2 * s->O;
    y = cmha__result(tape, x->rank, shape);
    if (!y) return NULL;
    s->T = cmha__rows(y); /* not of x, whose rows may be empty */
    mark = cmha__mark_of(tape);
    scratch = cmha__reals(tape, 2 * y->size);
    if (!adjoint)
        cmha__weight_product(tape, weight->data, x->data, 2 * s->T, I, 2 * s->O, scratch); /* see cmha__complex_products */
    if (!tape->status && !cmha__dry(tape)) {
        int threads = tape->context->threads;
        if (adjoint) cmha__complex_products(threads, x->data, weight->data, s->T, I, s->O, 1, scratch);
        cmha__complex_combine(threads, scratch, bias ? bias->data : NULL, s->T, s->O, adjoint, y->data);
    }
    cmha__rewind(tape, mark);
    in[0] = x, in[1] = weight, in[2] = bias;
    return cmha_push(tape, "complex_linear", y, in, 3, cmha__complex_linear_record, s);
}

CMHA_DEF cmha_tensor *cmha_complex_linear(cmha_tape *tape, cmha_tensor *x, cmha_tensor *weight, cmha_tensor *bias) {
    return cmha__complex_linear(tape, x, weight, bias, 0);
}

CMHA_DEF cmha_tensor *cmha_complex_lowrank(cmha_tape *tape, cmha_tensor *x, cmha_tensor *u, cmha_tensor *v, cmha_tensor *bias) {
    return cmha__complex_linear(tape, cmha__complex_linear(tape, x, v, NULL, 1), u, bias, 0);
}

static cmha_status cmha__complex_rotate_backward(cmha_tape *tape, cmha_record *r) {
    cmha_tensor *z = r->in[0], *theta = r->in[1];
    cmha_real *dz = cmha_grad(tape, z), *dtheta = cmha_grad(tape, theta);
    size_t D = cmha__last(z) / 2;
    if (tape->status || cmha__dry(tape)) return tape->status;
    CMHA__FOR_CHUNKS(tape->context->threads, cmha__rows(z), lo, hi) {
        cmha_complex_rotate_backward(z->data + lo * 2 * D, theta->data + lo * D, r->out->grad + lo * 2 * D, hi - lo, D,
                                     dz ? dz + lo * 2 * D : NULL, dtheta ? dtheta + lo * D : NULL);
    }
    return CMHA_OK;
}

CMHA_DEF cmha_tensor *cmha_complex_rotate(cmha_tape *tape, cmha_tensor *z, cmha_tensor *theta) {
    cmha_tensor *in[2], *y;
    size_t D;
    if (!z || !theta || !tape || tape->status || !cmha__is_planes(tape, z, "complex rotate")) return NULL;
    D = cmha__last(z) / 2;
    if (cmha__last(theta) != D || theta->size != z->size / 2)
        return cmha__reject(tape, CMHA_ERR_SHAPE, "complex rotate: %zu complex numbers, %zu angles", z->size / 2, theta->size);
    y = cmha__result(tape, z->rank, z->shape);
    if (!y) return NULL;
    if (!cmha__dry(tape))
        CMHA__FOR_CHUNKS(tape->context->threads, cmha__rows(z), lo, hi) {
            cmha_complex_rotate_forward(z->data + lo * 2 * D, theta->data + lo * D, hi - lo, D, y->data + lo * 2 * D);
        }
    in[0] = z, in[1] = theta;
    return cmha_push(tape, "complex_rotate", y, in, 2, cmha__complex_rotate_backward, NULL);
}

typedef struct cmha__complex_norm_saved {
    cmha_complex_norm kind;
    cmha_real eps;
    double *stats;
} cmha__complex_norm_saved;

/* Each thread sums the gradients of gamma (3D) and beta (2D) of its rows for itself. */
static cmha_status cmha__complex_norm_record(cmha_tape *tape, cmha_record *r) {
    const cmha__complex_norm_saved *s = (const cmha__complex_norm_saved *)r->user;
    cmha_tensor *z = r->in[0], *gamma = r->in[1], *beta = r->in[2];
    size_t D = cmha__last(z) / 2, T = cmha__rows(z), threads = (size_t)tape->context->threads, c;
    cmha_real *dz = cmha_grad(tape, z), *dgamma = cmha_grad(tape, gamma), *dbeta = cmha_grad(tape, beta), *partial;
    cmha__mark mark = cmha__mark_of(tape);
    partial = cmha__reals(tape, threads * 5 * D);
    if (!tape->status && !cmha__dry(tape)) {
        memset(partial, 0, threads * 5 * D * sizeof *partial);
        CMHA__FOR_CHUNKS(tape->context->threads, T, lo, hi) {
            cmha_real *own = partial + (size_t)cmha__chunk * 5 * D;
            cmha_complex_norm_backward(s->kind, z->data + lo * 2 * D, gamma ? gamma->data : NULL, s->stats + 5 * lo,
                                       r->out->grad + lo * 2 * D, hi - lo, D, s->eps, dz ? dz + lo * 2 * D : NULL,
                                       dgamma ? own : NULL, dbeta ? own + 3 * D : NULL);
        }
        for (c = 0; c < threads; c++) {
            if (dgamma) cmha__axpy(gamma->size, 1, partial + c * 5 * D, dgamma);
            if (dbeta) cmha__axpy(2 * D, 1, partial + c * 5 * D + 3 * D, dbeta);
        }
    }
    cmha__rewind(tape, mark);
    return tape->status;
}

CMHA_DEF cmha_tensor *cmha_complex_normalize(cmha_tape *tape, cmha_tensor *z, cmha_complex_norm kind, cmha_tensor *gamma,
                                             cmha_tensor *beta, cmha_real eps) {
    size_t D, T, width;
    cmha__complex_norm_saved *s;
    cmha_tensor *in[3], *y;
    if (!z || !tape || tape->status || !cmha__is_planes(tape, z, "complex norm")) return NULL;
    D = cmha__last(z) / 2, T = cmha__rows(z);
    width = kind == CMHA_CRMS ? D : kind == CMHA_WHITEN ? 3 * D : 2 * D;
    if (gamma && gamma->size != width)
        return cmha__reject(tape, CMHA_ERR_SHAPE, "complex norm: gamma needs %zu numbers and has %zu", width, gamma->size);
    if (beta && beta->size != 2 * D)
        return cmha__reject(tape, CMHA_ERR_SHAPE, "complex norm: beta needs %zu numbers and has %zu", 2 * D, beta->size);
    if ((int)kind < 0 || kind > CMHA_WHITEN) return cmha__reject(tape, CMHA_ERR_ARGUMENT, "complex norm: there is no such kind");
    if (cmha__check_eps(tape, "complex norm", eps)) return NULL;
    y = cmha__result(tape, z->rank, z->shape);
    s = y ? (cmha__complex_norm_saved *)cmha__record_alloc(tape, sizeof *s) : NULL;
    if (!s) return NULL;
    s->kind = kind;
    s->eps = eps;
    s->stats = (double *)cmha_tape_alloc(tape, T * 5 * sizeof *s->stats);
    if (!s->stats) return NULL;
    if (!cmha__dry(tape))
        CMHA__FOR_CHUNKS(tape->context->threads, T, lo, hi) {
            cmha_complex_norm_forward(kind, z->data + lo * 2 * D, gamma ? gamma->data : NULL, beta ? beta->data : NULL, hi - lo, D,
                                      eps, y->data + lo * 2 * D, s->stats + 5 * lo);
        }
    in[0] = z, in[1] = gamma, in[2] = beta;
    return cmha_push(tape, "complex_norm", y, in, 3, cmha__complex_norm_record, s);
}

static cmha_status cmha__phasor_record(cmha_tape *tape, cmha_record *r) {
    cmha_tensor *z = r->in[0];
    cmha_real *dz = cmha_grad(tape, z);
    size_t W = cmha__last(z);
    if (!dz || cmha__dry(tape)) return tape->status;
    CMHA__FOR_CHUNKS(tape->context->threads, cmha__rows(z), lo, hi) {
        cmha_phasor_backward(z->data + lo * W, r->out->grad + lo * W, hi - lo, W / 2, *(const cmha_real *)r->user, dz + lo * W);
    }
    return CMHA_OK;
}

CMHA_DEF cmha_tensor *cmha_phasor(cmha_tape *tape, cmha_tensor *z, cmha_real eps) {
    cmha_real *saved;
    cmha_tensor *u;
    size_t W;
    if (!z || !tape || tape->status || !cmha__is_planes(tape, z, "phasor") || cmha__check_eps(tape, "phasor", eps)) return NULL;
    W = cmha__last(z);
    u = cmha__result(tape, z->rank, z->shape);
    saved = u ? (cmha_real *)cmha__record_alloc(tape, sizeof *saved) : NULL;
    if (!saved) return NULL;
    *saved = eps;
    if (!cmha__dry(tape))
        CMHA__FOR_CHUNKS(tape->context->threads, cmha__rows(z), lo, hi) {
            cmha_phasor_forward(z->data + lo * W, hi - lo, W / 2, eps, u->data + lo * W);
        }
    return cmha_push(tape, "phasor", u, &z, 1, cmha__phasor_record, saved);
}

static cmha_status cmha__hermitian_record(cmha_tape *tape, cmha_record *r) {
    cmha_tensor *q = r->in[0], *k = r->in[1];
    cmha_real *dq = cmha_grad(tape, q), *dk = cmha_grad(tape, k);
    size_t W = cmha__last(q);
    if (tape->status || cmha__dry(tape)) return tape->status;
    CMHA__FOR_CHUNKS(tape->context->threads, cmha__rows(q), lo, hi) {
        cmha_hermitian_backward(q->data + lo * W, k->data + lo * W, r->out->grad + 2 * lo, hi - lo, W / 2, dq ? dq + lo * W : NULL,
                                dk ? dk + lo * W : NULL);
    }
    return CMHA_OK;
}

CMHA_DEF cmha_tensor *cmha_hermitian(cmha_tape *tape, cmha_tensor *q, cmha_tensor *k) {
    size_t shape[CMHA_MAX_RANK], W;
    cmha_tensor *in[2], *a;
    if (!q || !k || !tape || tape->status || !cmha__is_planes(tape, q, "hermitian")) return NULL;
    if (!cmha__same_shape(q, k))
        return cmha__reject(tape, CMHA_ERR_SHAPE, "hermitian: sizes %zu and %zu differ in shape", q->size, k->size);
    W = cmha__last(q);
    memcpy(shape, q->shape, sizeof shape);
    shape[q->rank - 1] = 2;
    a = cmha__result(tape, q->rank, shape);
    if (!a) return NULL;
    if (!cmha__dry(tape))
        CMHA__FOR_CHUNKS(tape->context->threads, a->size / 2, lo, hi) {
            cmha_hermitian_forward(q->data + lo * W, k->data + lo * W, hi - lo, W / 2, a->data + 2 * lo);
        }
    in[0] = q, in[1] = k;
    return cmha_push(tape, "hermitian", a, in, 2, cmha__hermitian_record, NULL);
}

static cmha_status cmha__multifreq_record(cmha_tape *tape, cmha_record *r) {
    cmha_tensor *omega = r->in[0], *delta = r->in[1];
    size_t K = omega->shape[0], d = omega->shape[1], pos0 = *(const size_t *)r->user;
    cmha_real *domega = cmha_grad(tape, omega), *ddelta = cmha_grad(tape, delta);
    if (tape->status || cmha__dry(tape)) return tape->status;
    CMHA__FOR_CHUNKS(tape->context->threads, d, lo, hi) {
        cmha__multifreq_backward(omega->data, delta->data, r->out->grad, K, r->out->shape[0], d, pos0, lo, hi, domega, ddelta);
    }
    return CMHA_OK;
}

CMHA_DEF cmha_tensor *cmha_multifreq(cmha_tape *tape, cmha_tensor *omega, cmha_tensor *delta, size_t n, size_t pos0) {
    size_t shape[2], *saved;
    cmha_tensor *in[2], *y;
    if (!omega || !delta || !tape || tape->status) return NULL;
    if (omega->rank != 2 || !cmha__same_shape(omega, delta))
        return cmha__reject(tape, CMHA_ERR_SHAPE, "multifreq: omega and delta must be [K, d]; they hold %zu and %zu numbers",
                                omega->size, delta->size);
    shape[0] = n, shape[1] = omega->shape[1];
    y = cmha__result(tape, 2, shape);
    saved = y ? (size_t *)cmha__record_alloc(tape, sizeof *saved) : NULL;
    if (!saved) return NULL;
    *saved = pos0;
    if (!cmha__dry(tape))
        CMHA__FOR_CHUNKS(tape->context->threads, shape[1], lo, hi) {
            cmha__multifreq_forward(omega->data, delta->data, omega->shape[0], n, shape[1], pos0, lo, hi, y->data);
        }
    in[0] = omega, in[1] = delta;
    return cmha_push(tape, "multifreq", y, in, 2, cmha__multifreq_record, saved);
}

static cmha_status cmha__add_rows_backward(cmha_tape *tape, cmha_record *r) {
    cmha_tensor *rows = r->in[1];
    cmha_real *drows = cmha_grad(tape, rows);
    size_t n = rows->size;
    if (drows && !cmha__dry(tape))
        CMHA__FOR_CHUNKS(tape->context->threads, n, lo, hi) {
            for (size_t at = 0; at < r->out->size; at += n) cmha__axpy(hi - lo, 1, r->out->grad + at + lo, drows + lo);
        }
    cmha__pass_grad(tape, r->out, r->in[0]);
    return tape->status;
}

CMHA_DEF cmha_tensor *cmha_add_rows(cmha_tape *tape, cmha_tensor *x, cmha_tensor *rows) {
    cmha_tensor *in[2], *y;
    size_t n;
    if (!x || !rows || !tape || tape->status) return NULL;
    n = rows->size;
    if (rows->rank != 2 || x->rank < 2 || cmha__last(x) != rows->shape[1] || x->shape[x->rank - 2] != rows->shape[0])
        return cmha__reject(tape, CMHA_ERR_SHAPE, "add_rows: [B, N, D] of %zu and [N, D] of %zu numbers differ", x->size, n);
    y = cmha__result(tape, x->rank, x->shape);
    if (!y) return NULL;
    if (!cmha__dry(tape))
        CMHA__FOR_CHUNKS(tape->context->threads, n, lo, hi) {
            for (size_t at = 0; at < x->size; at += n)
                for (size_t i = lo; i < hi; i++) y->data[at + i] = x->data[at + i] + rows->data[i];
        }
    in[0] = x, in[1] = rows;
    return cmha_push(tape, "add_rows", y, in, 2, cmha__add_rows_backward, NULL);
}

/* What both regularisers save; direction only for the phases. */
typedef struct cmha__complex_reg_saved {
    const unsigned char *key_mask;
    cmha_real lam, eps;
    size_t counted;
    double *direction; /* [2, D] */
    double *sums;      /* a thread's part of the loss each */
} cmha__complex_reg_saved;

static cmha_status cmha__complex_reg_backward(cmha_tape *tape, cmha_record *r) {
    const cmha__complex_reg_saved *s = (const cmha__complex_reg_saved *)r->user;
    cmha_tensor *z = r->in[0];
    cmha_real *dz = cmha_grad(tape, z);
    size_t D = cmha__last(z) / 2;
    double slope;
    if (!dz || cmha__dry(tape)) return tape->status;
    slope = cmha__mean_over((double)s->lam * (double)r->out->grad[0], s->counted, D);
    CMHA__FOR_CHUNKS(tape->context->threads, cmha__rows(z), lo, hi) {
        const unsigned char *mask = s->key_mask ? s->key_mask + lo : NULL;
        const cmha_real *rows = z->data + lo * 2 * D;
        if (s->direction) cmha__phase_reg_backward(rows, mask, hi - lo, D, s->eps, s->direction, slope, dz + lo * 2 * D);
        else cmha__mag_reg_backward(rows, mask, hi - lo, D, (cmha_real)(2 * slope), dz + lo * 2 * D);
    }
    return CMHA_OK;
}

/* The phases' sum is dealt to threads by channel, the magnitudes' by token. */
static double cmha__complex_reg_sum(cmha_tape *tape, const cmha__complex_reg_saved *s, const cmha_tensor *z) {
    size_t D = cmha__last(z) / 2, T = cmha__rows(z);
    int threads = tape->context->threads;
    if (s->direction) {
        CMHA__FOR_CHUNKS(threads, D, lo, hi) {
            s->sums[cmha__chunk] = cmha__phase_reg_forward(z->data, s->key_mask, T, D, s->eps, lo, hi, s->direction);
        }
        return cmha__mean_over(cmha__wide_total(s->sums, (size_t)threads), 1, D);
    }
    CMHA__FOR_CHUNKS(threads, T, lo, hi) {
        s->sums[cmha__chunk] = cmha__mag_reg_forward(z->data + lo * 2 * D, s->key_mask ? s->key_mask + lo : NULL, hi - lo, D);
    }
    return cmha__mean_over(cmha__wide_total(s->sums, (size_t)threads), s->counted, D);
}

static cmha_tensor *cmha__complex_reg(cmha_tape *tape, cmha_tensor *z, const unsigned char *key_mask, cmha_real lam, cmha_real eps,
                                      int phases) {
    cmha__complex_reg_saved *s;
    cmha_tensor *loss;
    size_t one = 1;
    if (!z || !tape || tape->status || !cmha__is_planes(tape, z, phases ? "phase_reg" : "mag_reg")) return NULL;
    loss = cmha__result(tape, 1, &one);
    s = loss ? (cmha__complex_reg_saved *)cmha__record_alloc(tape, sizeof *s) : NULL;
    if (!s) return NULL;
    s->key_mask = key_mask;
    s->lam = lam;
    s->eps = eps;
    s->sums = (double *)cmha__record_alloc(tape, (size_t)tape->context->threads * sizeof *s->sums);
    if (phases) s->direction = (double *)cmha_tape_alloc(tape, cmha__last(z) * sizeof *s->direction);
    if (!s->sums || (phases && !s->direction)) return NULL;
    if (!cmha__dry(tape)) {
        s->counted = cmha__counted(key_mask, cmha__rows(z));
        loss->data[0] = (cmha_real)((double)lam * cmha__complex_reg_sum(tape, s, z));
    }
    return cmha_push(tape, phases ? "phase_reg" : "mag_reg", loss, &z, 1, cmha__complex_reg_backward, s);
}

CMHA_DEF cmha_tensor *cmha_phase_reg(cmha_tape *tape, cmha_tensor *z, const unsigned char *key_mask, cmha_real lam, cmha_real eps) {
    return cmha__complex_reg(tape, z, key_mask, lam, eps, 1);
}

CMHA_DEF cmha_tensor *cmha_mag_reg(cmha_tape *tape, cmha_tensor *z, const unsigned char *key_mask, cmha_real lam) {
    return cmha__complex_reg(tape, z, key_mask, lam, 0, 0);
}

/* ---- Complex residual ---- */

CMHA_DEF void cmha_complex_residual_forward(const cmha_real *z, const cmha_real *f, cmha_real alpha, cmha_real beta, size_t T,
                                            size_t D, cmha_real *y) {
    for (size_t t = 0; t < T; t++, z += 2 * D, f += 2 * D, y += 2 * D) {
        for (size_t j = 0; j < D; j++) y[j] = f[j] + (alpha * z[j] - beta * z[D + j]);
        for (size_t j = 0; j < D; j++) y[D + j] = f[D + j] + (alpha * z[D + j] + beta * z[j]);
    }
}

/* keep: what remains of dz, 1 or, if it holds rubbish, 0. */
static void cmha__complex_residual_turn_back(cmha_real alpha, cmha_real beta, const cmha_real *dy, size_t T, size_t D, int keep,
                                             cmha_real *dz) {
    for (size_t t = 0; t < T; t++, dy += 2 * D, dz += 2 * D) {
        if (!keep) memset(dz, 0, 2 * D * sizeof *dz);
        for (size_t j = 0; j < D; j++) dz[j] += alpha * dy[j] + beta * dy[D + j];
        for (size_t j = 0; j < D; j++) dz[D + j] += alpha * dy[D + j] - beta * dy[j];
    }
}

/* Rows are summed in blocks of this many, so that the order of the sum is the same for any number of threads. */
#define CMHA__RESIDUAL_ROWS ((size_t)64)

/* sum [2] = Re and Im of the sum of conj(z) dy over at most CMHA__RESIDUAL_ROWS rows from row t0. */
static void cmha__complex_residual_sum(const cmha_real *z, const cmha_real *dy, size_t t0, size_t T, size_t D, double *sum) {
    double re[CMHA__WIDE_LANES] = {0}, im[CMHA__WIDE_LANES] = {0};
    size_t end = T - t0 < CMHA__RESIDUAL_ROWS ? T : t0 + CMHA__RESIDUAL_ROWS, j;
    for (size_t t = t0; t < end; t++) {
        const cmha_real *a = z + 2 * t * D, *g = dy + 2 * t * D;
        for (j = 0; j + CMHA__WIDE_LANES <= D; j += CMHA__WIDE_LANES)
            for (int l = 0; l < CMHA__WIDE_LANES; l++) {
                double zr = (double)a[j + (size_t)l], zi = (double)a[D + j + (size_t)l];
                double gr = (double)g[j + (size_t)l], gi = (double)g[D + j + (size_t)l];
                re[l] += zr * gr + zi * gi;
                im[l] += zr * gi - zi * gr;
            }
        for (int l = 0; j < D; j++, l++) {
            re[l] += (double)a[j] * (double)g[j] + (double)a[D + j] * (double)g[D + j];
            im[l] += (double)a[j] * (double)g[D + j] - (double)a[D + j] * (double)g[j];
        }
    }
    sum[0] = cmha__wide_total(re, CMHA__WIDE_LANES);
    sum[1] = cmha__wide_total(im, CMHA__WIDE_LANES);
}

CMHA_DEF void cmha_complex_residual_backward(const cmha_real *z, cmha_real alpha, cmha_real beta, const cmha_real *dy, size_t T,
                                             size_t D, cmha_real *dz, cmha_real *df, cmha_real *dalpha, cmha_real *dbeta) {
    double sum[2] = {0, 0}, part[2];
    if (dz) cmha__complex_residual_turn_back(alpha, beta, dy, T, D, 1, dz);
    if (df) cmha__axpy(2 * T * D, 1, dy, df);
    for (size_t t = 0; (dalpha || dbeta) && t < T; t += CMHA__RESIDUAL_ROWS) {
        cmha__complex_residual_sum(z, dy, t, T, D, part);
        sum[0] += part[0];
        sum[1] += part[1];
    }
    if (dalpha) *dalpha += (cmha_real)sum[0];
    if (dbeta) *dbeta += (cmha_real)sum[1];
}

/* ---- Mixture of experts: the router ---- */

/* Rows of tokens in one piece of work: fixed, so that a result does not depend on how the pieces are dealt to threads. */
#define CMHA__EXPERT_ROWS ((size_t)64)

static size_t cmha__pieces(size_t n, size_t piece) { return n / piece + (n % piece != 0); }

CMHA_DEF void cmha_router_forward(const cmha_real *z, const cmha_real *router, const cmha_real *bias, size_t T, size_t D, size_t E,
                                  cmha_real *logits) {
    if (bias) cmha__fill_rows(bias, T, E, logits);
    cmha_gemm(0, 1, T, E, D, 1, z, 2 * D, router, D, bias ? 1 : 0, logits, E);
    cmha_gemm(0, 1, T, E, D, 1, z + D, 2 * D, router + E * D, D, 1, logits, E);
}

static void cmha__router_backward_rows(const cmha_real *router, const cmha_real *dlogits, size_t T, size_t D, size_t E,
                                       cmha_real *dz) {
    cmha_gemm(0, 0, T, D, E, 1, dlogits, E, router, D, 1, dz, 2 * D);
    cmha_gemm(0, 0, T, D, E, 1, dlogits, E, router + E * D, D, 1, dz + D, 2 * D);
}

/* Columns lo .. hi - 1 of one plane. */
static void cmha__router_backward_columns(const cmha_real *z, const cmha_real *dlogits, size_t T, size_t D, size_t E, size_t plane,
                                          size_t lo, size_t hi, cmha_real *drouter) {
    cmha_gemm(1, 0, E, hi - lo, T, 1, dlogits, E, z + plane * D + lo, 2 * D, 1, drouter + plane * E * D + lo, D);
}

CMHA_DEF void cmha_router_backward(const cmha_real *z, const cmha_real *router, const cmha_real *dlogits, size_t T, size_t D,
                                   size_t E, cmha_real *dz, cmha_real *drouter, cmha_real *dbias) {
    if (dz) cmha__router_backward_rows(router, dlogits, T, D, E, dz);
    for (size_t plane = 0; drouter && plane < 2; plane++) cmha__router_backward_columns(z, dlogits, T, D, E, plane, 0, D, drouter);
    if (dbias) cmha__sum_rows(dlogits, T, E, dbias);
}

/* Does expert a come before expert b? A total order: NaN, then the larger logit, then the lower index. */
static int cmha__expert_ahead(const cmha_real *logits, size_t a, size_t b) {
    int nan_a = logits[a] != logits[a], nan_b = logits[b] != logits[b];
    if (nan_a || nan_b) return nan_a && (!nan_b || a < b);
    return logits[a] > logits[b] || (!(logits[a] < logits[b]) && a < b);
}

/* The first expert after `last` in that order, after E the first of all. Needs no memory, and few experts are chosen. */
static size_t cmha__expert_next(const cmha_real *logits, size_t E, size_t last) {
    size_t best = E;
    for (size_t e = 0; e < E; e++)
        if ((last == E || cmha__expert_ahead(logits, last, e)) && (best == E || cmha__expert_ahead(logits, e, best))) best = e;
    return best;
}

/* A plan: expert [T, top]; pair [P], the (token, choice) pairs grouped by expert, in order of tokens; place [P], where each pair
   is in that list; first [E + 1], where each expert's pairs begin; piece [E + 1], where its pieces of work begin. P = T top. */
typedef struct cmha__route {
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

/* Choices and gates of tokens lo .. hi - 1. */
static void cmha__route_rows(const cmha_real *logits, size_t lo, size_t hi, size_t E, size_t top, size_t *expert, cmha_real *gate) {
    for (size_t t = lo; t < hi; t++) {
        const cmha_real *row = logits + t * E;
        size_t *choice = expert + t * top;
        cmha_real *g = gate + t * top, inverse;
        for (size_t c = 0; c < top; c++) choice[c] = cmha__expert_next(row, E, c ? choice[c - 1] : E);
        for (size_t c = 0; c < top; c++) g[c] = row[choice[c]];
        inverse = 1 / cmha__exp_shifted(g, top, row[choice[0]]);
        for (size_t c = 0; c < top; c++) g[c] *= inverse;
    }
}

/* Groups the chosen pairs by expert: a counting sort. */
static void cmha__route_group(const cmha__route *r, size_t pairs, size_t E) {
    size_t e;
    for (e = 0; e <= E; e++) r->first[e] = 0;
    for (size_t p = 0; p < pairs; p++) r->first[r->expert[p] + 1]++;
    for (r->piece[0] = 0, e = 0; e < E; e++) {
        r->piece[e + 1] = r->piece[e] + cmha__pieces(r->first[e + 1], CMHA__EXPERT_ROWS);
        r->first[e + 1] += r->first[e];
    }
    for (size_t p = 0; p < pairs; p++) { /* first[e] runs ahead to first[e + 1] and is put back below */
        r->place[p] = r->first[r->expert[p]]++;
        r->pair[r->place[p]] = p;
    }
    for (e = E; e > 0; e--) r->first[e] = r->first[e - 1];
    r->first[0] = 0;
}

CMHA_DEF void cmha_route_forward(const cmha_real *logits, size_t T, size_t E, size_t top, size_t *plan, cmha_real *gate) {
    cmha__route r = cmha__route_of(plan, T, E, top);
    cmha__route_rows(logits, 0, T, E, top, r.expert, gate);
    cmha__route_group(&r, T * top, E);
}

CMHA_DEF void cmha_route_backward(const size_t *plan, const cmha_real *gate, const cmha_real *dgate, size_t T, size_t E, size_t top,
                                  cmha_real *dlogits) {
    if (!dlogits) return;
    for (size_t t = 0; t < T; t++, plan += top, gate += top, dgate += top, dlogits += E) {
        cmha_real mean = cmha__dot(gate, dgate, top);
        for (size_t c = 0; top > 1 && c < top; c++) dlogits[plan[c]] += gate[c] * (dgate[c] - mean);
    }
}

/* ---- Mixture of experts: the experts. Rows of planes [n, 2I] are also a real [2n, I], and W x = Wr x + Wi (i x): with a turned copy
        of x, two real products that take the planes of W as they are stored. So an expert with few tokens pays for nothing but one
        reading of its weights. ---- */

/* to [n, 2D] = x i, or with back = 1 x (-i). */
static void cmha__planes_turn(const cmha_real *x, size_t n, size_t D, int back, cmha_real *to) {
    cmha_real sign = back ? -1 : 1;
    for (size_t t = 0; t < n; t++, x += 2 * D, to += 2 * D) {
        for (size_t j = 0; j < D; j++) to[j] = -sign * x[D + j];
        for (size_t j = 0; j < D; j++) to[D + j] = sign * x[j];
    }
}

/* y [n, 2O] = W x + bias from x [n, 2I] and i x; bias NULL = none. */
static void cmha__planes_apply(size_t n, size_t I, size_t O, const cmha_real *const *w, const cmha_real *const *bias,
                               const cmha_real *x, const cmha_real *turned, cmha_real *y) {
    for (size_t t = 0; bias && t < n; t++) {
        memcpy(y + 2 * t * O, bias[0], O * sizeof *y);
        memcpy(y + 2 * t * O + O, bias[1], O * sizeof *y);
    }
    cmha_gemm(0, 1, 2 * n, O, I, 1, x, I, w[0], I, bias ? 1 : 0, y, O);
    cmha_gemm(0, 1, 2 * n, O, I, 1, turned, I, w[1], I, 1, y, O);
}

/* dx [n, 2I] = W^H g = Wr^T g + Wi^T (-i g) from g [n, 2O] and -i g. */
static void cmha__planes_adjoint(size_t n, size_t I, size_t O, const cmha_real *const *w, const cmha_real *g,
                                 const cmha_real *turned, cmha_real *dx) {
    cmha_gemm(0, 0, 2 * n, I, O, 1, g, O, w[0], I, 0, dx, I);
    cmha_gemm(0, 0, 2 * n, I, O, 1, turned, O, w[1], I, 1, dx, I);
}

/* dW += g x^H and dbias += sum of g, over n rows, for output rows lo .. hi - 1. The imaginary part takes g and i x, or -i g and x. */
typedef struct cmha__planes_product {
    size_t n, I, O;
    const cmha_real *g, *x, *g_imag, *x_imag; /* [n, 2O], [n, 2I], and which of them for the imaginary part */
} cmha__planes_product;

static void cmha__planes_outer(const cmha__planes_product *p, size_t lo, size_t hi, cmha_real *const *dw, cmha_real *const *dbias) {
    size_t I = p->I, O = p->O;
    if (dw) {
        cmha_gemm(1, 0, hi - lo, I, 2 * p->n, 1, p->g + lo, O, p->x, I, 1, dw[0] + lo * I, I);
        cmha_gemm(1, 0, hi - lo, I, 2 * p->n, 1, p->g_imag + lo, O, p->x_imag, I, 1, dw[1] + lo * I, I);
    }
    for (size_t t = 0; dbias && t < p->n; t++) {
        cmha__axpy(hi - lo, 1, p->g + 2 * t * O + lo, dbias[0] + lo);
        cmha__axpy(hi - lo, 1, p->g + (2 * t + 1) * O + lo, dbias[1] + lo);
    }
}

/* One piece of work: pairs first .. first + n - 1 of the plan, all of them of one expert. */
typedef struct cmha__expert_piece {
    size_t expert, first, n;
} cmha__expert_piece;

static cmha__expert_piece cmha__expert_piece_of(const cmha__route *r, size_t piece) {
    cmha__expert_piece p;
    p.expert = 0;
    while (r->piece[p.expert + 1] <= piece) p.expert++;
    p.first = r->first[p.expert] + (piece - r->piece[p.expert]) * CMHA__EXPERT_ROWS;
    p.n = r->first[p.expert + 1] - p.first;
    if (p.n > CMHA__EXPERT_ROWS) p.n = CMHA__EXPERT_ROWS;
    return p;
}

/* Both planes of expert e's block of n numbers in an array [2, E, n]; returns NULL without an array. */
static const cmha_real *const *cmha__expert_planes(const cmha_real *array, size_t E, size_t n, size_t e, const cmha_real **plane) {
    plane[0] = array ? array + e * n : NULL;
    plane[1] = array ? plane[0] + E * n : NULL;
    return array ? plane : NULL;
}

static cmha_real *const *cmha__expert_grads(cmha_real *array, size_t E, size_t n, size_t e, cmha_real **plane) {
    plane[0] = array ? array + e * n : NULL;
    plane[1] = array ? plane[0] + E * n : NULL;
    return array ? plane : NULL;
}

/* to [n, W] = the rows of the piece's tokens. */
static void cmha__expert_gather(const cmha__route *r, cmha__expert_piece p, size_t top, const cmha_real *rows, size_t W,
                                cmha_real *to) {
    for (size_t i = 0; i < p.n; i++) memcpy(to + i * W, rows + r->pair[p.first + i] / top * W, W * sizeof *to);
}

/* y [T, W] += or, of `fresh` rows, = the sum over a token's pairs, best choice first, of gate (NULL = 1) times their rows. */
static void cmha__expert_scatter(const cmha_experts_args *a, const cmha__route *r, const cmha_real *gate, const cmha_real *rows,
                                 int fresh, cmha_real *y) {
    size_t W = 2 * a->D;
    CMHA__FOR_CHUNKS(a->threads, a->T, lo, hi) {
        for (size_t t = lo; t < hi; t++) {
            if (fresh) memset(y + t * W, 0, W * sizeof *y);
            for (size_t c = t * a->top; c < (t + 1) * a->top; c++) cmha__axpy(W, gate ? gate[c] : 1, rows + r->place[c] * W, y + t * W);
        }
    }
}

static size_t cmha__expert_workers(const cmha_experts_args *a) { return a->threads > 1 ? (size_t)a->threads : 1; }

/* A thread's own scratch, forward: a piece's tokens, activations and hidden values, the first two with their turned copies. */
static size_t cmha__expert_own(const cmha_experts_args *a, int backward) {
    size_t pairs = a->T * a->top, rows = pairs < CMHA__EXPERT_ROWS ? pairs : CMHA__EXPERT_ROWS;
    return rows * (backward ? 2 * a->F : 4 * a->D + 6 * a->F);
}

CMHA_DEF size_t cmha_experts_scratch(const cmha_experts_args *a, int backward) {
    size_t pairs = a->T * a->top;
    size_t length = pairs * (backward ? 8 * a->D + 4 * a->F : 2 * a->D) +
                    cmha__expert_workers(a) * cmha__expert_own(a, backward);
    double rows = (double)a->T * (double)a->top + (double)cmha__expert_workers(a) * CMHA__EXPERT_ROWS;
    return cmha__countable(length, 8 * rows * ((double)a->D + (double)a->F));
}

/* out [n, 2D] = what the piece's expert makes of its tokens. */
static void cmha__expert_forward(const cmha_experts_args *a, const cmha_experts_weights *w, const cmha_real *z, const cmha__route *r,
                                 cmha__expert_piece p, cmha_real *hidden, cmha_real *own, cmha_real *out) {
    size_t D = a->D, F = a->F, E = a->E, n = p.n;
    const cmha_real *w1[2], *b1[2], *w2[2], *b2[2];
    cmha_real *x = own, *ix = x + 2 * n * D, *act = ix + 2 * n * D, *iact = act + 2 * n * F;
    cmha_real *pre = hidden ? hidden + 2 * p.first * F : iact + 2 * n * F;
    cmha__expert_planes(w->w1, E, F * D, p.expert, w1);
    cmha__expert_planes(w->w2, E, D * F, p.expert, w2);
    cmha__expert_gather(r, p, a->top, z, 2 * D, x);
    cmha__planes_turn(x, n, D, 0, ix);
    cmha__planes_apply(n, D, F, w1, cmha__expert_planes(w->b1, E, F, p.expert, b1), x, ix, pre);
    cmha_gelu_forward(pre, 2 * n * F, CMHA_GELU_ERF, act);
    cmha__planes_turn(act, n, F, 0, iact);
    cmha__planes_apply(n, F, D, w2, cmha__expert_planes(w->b2, E, D, p.expert, b2), act, iact, out);
}

CMHA_DEF void cmha_experts_forward(const cmha_experts_args *a, const cmha_experts_weights *weights, const cmha_real *z,
                                   const size_t *plan, const cmha_real *gate, cmha_real *hidden, cmha_real *y, cmha_real *scratch) {
    cmha__route r = cmha__route_of(plan, a->T, a->E, a->top);
    cmha_real *out = scratch, *shares = out + a->T * a->top * 2 * a->D;
    CMHA__FOR_CHUNKS(a->threads, r.piece[a->E], lo, hi) {
        cmha_real *own = shares + (size_t)cmha__chunk * cmha__expert_own(a, 0);
        for (size_t i = lo; i < hi; i++) {
            cmha__expert_piece p = cmha__expert_piece_of(&r, i);
            cmha__expert_forward(a, weights, z, &r, p, hidden, own, out + 2 * p.first * a->D);
        }
    }
    cmha__expert_scatter(a, &r, gate, out, 1, y);
}

/* What the backward keeps of the grouped pairs: x and i x [P, 2D]; g, the gate times dy, and -i g [P, 2D]; act and dpre [P, 2F]. */
typedef struct cmha__experts_work {
    cmha_real *x, *ix, *g, *ig, *act, *dpre;
} cmha__experts_work;

/* The numbers of the pairs from `first` on, each array having its own width. */
static cmha__experts_work cmha__experts_work_at(const cmha_experts_args *a, const cmha__experts_work *all, size_t first) {
    cmha__experts_work w;
    w.x = all->x + 2 * first * a->D, w.ix = all->ix + 2 * first * a->D;
    w.g = all->g + 2 * first * a->D, w.ig = all->ig + 2 * first * a->D;
    w.act = all->act + 2 * first * a->F, w.dpre = all->dpre + 2 * first * a->F;
    return w;
}

/* Fills the work of one piece, x and ungated g given, and adds to dgate; own [n, 2F]. The gate's gradient needs no output of the
   expert: <dy, W2 act + b2> = <W2^H dy, act> + <dy, b2>. */
static void cmha__expert_backward(const cmha_experts_args *a, const cmha_experts_weights *weights, const cmha__route *r,
                                  cmha__expert_piece p, const cmha_real *gate, const cmha_real *hidden,
                                  const cmha__experts_work *w, cmha_real *own, cmha_real *dgate) {
    size_t D = a->D, F = a->F, E = a->E;
    const cmha_real *w2[2], *b2[2], *const *bias = cmha__expert_planes(weights->b2, E, D, p.expert, b2);
    cmha__expert_planes(weights->w2, E, D * F, p.expert, w2);
    cmha_gelu_forward(hidden, 2 * p.n * F, CMHA_GELU_ERF, w->act);
    cmha__planes_turn(w->x, p.n, D, 0, w->ix);
    cmha__planes_turn(w->g, p.n, D, 1, w->ig);
    cmha__planes_adjoint(p.n, F, D, w2, w->g, w->ig, own);
    for (size_t i = 0; i < p.n; i++) {
        size_t pair = r->pair[p.first + i];
        cmha_real *row = own + 2 * i * F, *g = w->g + 2 * i * D, *ig = w->ig + 2 * i * D;
        if (dgate) dgate[pair] += cmha__dot(row, w->act + 2 * i * F, 2 * F);
        if (dgate && bias) dgate[pair] += cmha__dot(g, bias[0], D) + cmha__dot(g + D, bias[1], D);
        for (size_t j = 0; j < 2 * F; j++) row[j] *= gate[pair];
        for (size_t j = 0; j < 2 * D; j++) g[j] *= gate[pair];
        for (size_t j = 0; j < 2 * D; j++) ig[j] *= gate[pair];
    }
    memset(w->dpre, 0, 2 * p.n * F * sizeof *w->dpre);
    cmha_gelu_backward(hidden, own, 2 * p.n * F, CMHA_GELU_ERF, w->dpre);
}

/* Rows lo .. hi - 1 of the gradients of one expert's first (second = 0) or second weights and biases. */
static void cmha__expert_outer(const cmha_experts_args *a, const cmha__route *r, const cmha__experts_work *all,
                               const cmha_experts_grads *d, size_t e, int second, size_t lo, size_t hi) {
    cmha__experts_work w = cmha__experts_work_at(a, all, r->first[e]);
    cmha__planes_product p;
    cmha_real *dw[2], *db[2];
    p.n = r->first[e + 1] - r->first[e];
    p.I = second ? a->F : a->D, p.O = second ? a->D : a->F;
    p.g = second ? w.g : w.dpre, p.x = second ? w.act : w.x;
    p.g_imag = second ? w.ig : w.dpre, p.x_imag = second ? w.act : w.ix;
    if (p.n)
        cmha__planes_outer(&p, lo, hi, cmha__expert_grads(second ? d->w2 : d->w1, a->E, p.O * p.I, e, dw),
                           cmha__expert_grads(second ? d->b2 : d->b1, a->E, p.O, e, db));
}

/* The gradients of the weights, in pieces of rows: of every expert first those of W1, then those of W2. Dealt out in turns, because
   all tokens may be with one expert. */
static void cmha__experts_outer(const cmha_experts_args *a, const cmha__route *r, const cmha__experts_work *work,
                                const cmha_experts_grads *d) {
    size_t one = cmha__pieces(a->F, CMHA__EXPERT_ROWS), both = one + cmha__pieces(a->D, CMHA__EXPERT_ROWS);
    size_t workers = cmha__expert_workers(a);
    CMHA__FOR_CHUNKS(a->threads, workers, begin, end) {
        for (size_t i = begin; i < a->E * both; i += workers) {
            size_t part = i % both, O = part < one ? a->F : a->D, lo = (part < one ? part : part - one) * CMHA__EXPERT_ROWS;
            cmha__expert_outer(a, r, work, d, i / both, part >= one, lo, O - lo < CMHA__EXPERT_ROWS ? O : lo + CMHA__EXPERT_ROWS);
        }
    }
}

/* dz += W1^H dpre; x, ix and act are not needed any more and serve as scratch. */
static void cmha__experts_input(const cmha_experts_args *a, const cmha_experts_weights *weights, const cmha__route *r,
                                const cmha__experts_work *work, cmha_real *dz) {
    CMHA__FOR_CHUNKS(a->threads, r->piece[a->E], lo, hi) {
        for (size_t i = lo; i < hi; i++) {
            cmha__expert_piece p = cmha__expert_piece_of(r, i);
            cmha__experts_work w = cmha__experts_work_at(a, work, p.first);
            const cmha_real *w1[2];
            cmha__expert_planes(weights->w1, a->E, a->F * a->D, p.expert, w1);
            cmha__planes_turn(w.dpre, p.n, a->F, 1, w.act);
            cmha__planes_adjoint(p.n, a->D, a->F, w1, w.dpre, w.act, w.x);
        }
    }
    cmha__expert_scatter(a, r, NULL, work->x, 0, dz);
}

CMHA_DEF void cmha_experts_backward(const cmha_experts_args *a, const cmha_experts_weights *weights, const cmha_real *z,
                                    const size_t *plan, const cmha_real *gate, const cmha_real *hidden, const cmha_real *dy,
                                    cmha_real *dz, cmha_real *dgate, const cmha_experts_grads *grads, cmha_real *scratch) {
    cmha__route r = cmha__route_of(plan, a->T, a->E, a->top);
    size_t wide = a->T * a->top * 2 * a->D, hide = a->T * a->top * 2 * a->F;
    cmha__experts_work work;
    work.x = scratch, work.ix = work.x + wide, work.g = work.ix + wide, work.ig = work.g + wide;
    work.act = work.ig + wide, work.dpre = work.act + hide;
    CMHA__FOR_CHUNKS(a->threads, r.piece[a->E], lo, hi) {
        cmha_real *own = work.dpre + hide + (size_t)cmha__chunk * cmha__expert_own(a, 1);
        for (size_t i = lo; i < hi; i++) {
            cmha__expert_piece p = cmha__expert_piece_of(&r, i);
            cmha__experts_work w = cmha__experts_work_at(a, &work, p.first);
            cmha__expert_gather(&r, p, a->top, z, 2 * a->D, w.x);
            cmha__expert_gather(&r, p, a->top, dy, 2 * a->D, w.g);
            cmha__expert_backward(a, weights, &r, p, gate, hidden + 2 * p.first * a->F, &w, own, dgate);
        }
    }
    if (grads->w1 || grads->b1 || grads->w2 || grads->b2) cmha__experts_outer(a, &r, &work, grads);
    if (dz) cmha__experts_input(a, weights, &r, &work, dz);
}

/* ---- Mixture of experts: the load balance ---- */

/* The largest logit, and the sum of exp(logit - that). */
static cmha_real cmha__balance_row(const cmha_real *logits, size_t E, cmha_real *top) {
    cmha_real sum = 0;
    *top = cmha__largest(logits, E);
    if (!(*top > -(cmha_real)INFINITY)) *top = E ? logits[0] : 0; /* only NaN and -Inf: let them through */
    for (size_t e = 0; e < E; e++) sum += cmha__exp(logits[e] - *top);
    return sum;
}

CMHA_DEF double cmha_balance_forward(const cmha_real *logits, const unsigned char *key_mask, size_t T, size_t E, size_t top,
                                     double *share) {
    double *p = share + E, loss = 0, count = (double)cmha__counted(key_mask, T);
    for (size_t e = 0; e < 2 * E; e++) share[e] = 0;
    for (size_t t = 0; t < T; t++, logits += E) {
        size_t chosen = E;
        cmha_real most, inverse;
        if (key_mask && !key_mask[t]) continue;
        inverse = 1 / cmha__balance_row(logits, E, &most);
        for (size_t e = 0; e < E; e++) p[e] += (double)(cmha__exp(logits[e] - most) * inverse);
        for (size_t c = 0; c < top; c++) {
            chosen = cmha__expert_next(logits, E, chosen);
            share[chosen] += 1;
        }
    }
    for (size_t e = 0; count > 0 && e < E; e++) {
        share[e] /= count * (double)top;
        p[e] /= count;
        loss += share[e] * p[e];
    }
    return (double)E * loss;
}

/* Rows of `counted` tokens in all. */
static void cmha__balance_backward(const cmha_real *logits, const unsigned char *key_mask, const double *share, size_t T, size_t E,
                                   size_t counted, cmha_real dloss, cmha_real *dlogits) {
    double scale = counted ? (double)dloss * (double)E / (double)counted : 0, mean;
    size_t e;
    for (size_t t = 0; t < T; t++, logits += E, dlogits += E) {
        cmha_real most, inverse;
        if (key_mask && !key_mask[t]) continue;
        inverse = 1 / cmha__balance_row(logits, E, &most);
        for (mean = 0, e = 0; e < E; e++) mean += share[e] * (double)(cmha__exp(logits[e] - most) * inverse);
        for (e = 0; e < E; e++)
            dlogits[e] += (cmha_real)(scale * (share[e] - mean) * (double)(cmha__exp(logits[e] - most) * inverse));
    }
}

CMHA_DEF void cmha_balance_backward(const cmha_real *logits, const unsigned char *key_mask, const double *share, size_t T, size_t E,
                                    cmha_real dloss, cmha_real *dlogits) {
    if (dlogits) cmha__balance_backward(logits, key_mask, share, T, E, cmha__counted(key_mask, T), dloss, dlogits);
}

/* ---- Complex residual and mixture of experts ---- */

static void cmha__complex_residual_factor(const cmha_tensor *alpha, const cmha_tensor *beta, cmha_real *re, cmha_real *im) {
    *re = beta ? alpha->data[0] : (cmha_real)cos((double)alpha->data[0]);
    *im = beta ? beta->data[0] : (cmha_real)sin((double)alpha->data[0]);
}

/* d alpha and d beta; without beta d psi = cos(psi) d beta - sin(psi) d alpha. `sums` has two numbers for every block of rows. */
static void cmha__complex_residual_scalars(int threads, const cmha_tensor *z, const cmha_real *dy, double *sums, cmha_real re,
                                           cmha_real im, int unit, cmha_real *dalpha, cmha_real *dbeta) {
    size_t T = cmha__rows(z), D = cmha__last(z) / 2, blocks = cmha__pieces(T, CMHA__RESIDUAL_ROWS), b;
    double sum[2] = {0, 0};
    CMHA__FOR_CHUNKS(threads, blocks, lo, hi) {
        for (size_t i = lo; i < hi; i++) cmha__complex_residual_sum(z->data, dy, i * CMHA__RESIDUAL_ROWS, T, D, sums + 2 * i);
    }
    for (b = 0; b < blocks; b++) sum[0] += sums[2 * b], sum[1] += sums[2 * b + 1];
    if (unit) sum[0] = (double)re * sum[1] - (double)im * sum[0];
    if (dalpha) *dalpha += (cmha_real)sum[0];
    if (dbeta) *dbeta += (cmha_real)sum[1];
}

static cmha_status cmha__complex_residual_record(cmha_tape *tape, cmha_record *r) {
    cmha_tensor *z = r->in[0], *alpha = r->in[2], *beta = r->in[3];
    size_t W = cmha__last(z), blocks = cmha__pieces(cmha__rows(z), CMHA__RESIDUAL_ROWS);
    int threads = tape->context->threads, fresh;
    cmha_real *dz = cmha__grad_fresh(tape, z, &fresh), *dalpha = cmha_grad(tape, alpha), *dbeta = cmha_grad(tape, beta), re, im;
    cmha__mark mark = cmha__mark_of(tape);
    double *sums = (double *)cmha_tape_alloc(tape, 2 * blocks * sizeof *sums);
    if (!tape->status && !cmha__dry(tape)) {
        cmha__complex_residual_factor(alpha, beta, &re, &im);
        if (dz)
            CMHA__FOR_CHUNKS(threads, cmha__rows(z), lo, hi) {
                cmha__complex_residual_turn_back(re, im, r->out->grad + lo * W, hi - lo, W / 2, !fresh, dz + lo * W);
            }
        if (dalpha || dbeta)
            cmha__complex_residual_scalars(threads, z, r->out->grad, sums, re, im, !beta, dalpha, dbeta);
    }
    cmha__rewind(tape, mark);
    cmha__pass_grad(tape, r->out, r->in[1]);
    return tape->status;
}

CMHA_DEF cmha_tensor *cmha_complex_residual(cmha_tape *tape, cmha_tensor *z, cmha_tensor *f, cmha_tensor *alpha, cmha_tensor *beta) {
    cmha_tensor *in[4], *y;
    cmha_real re, im;
    size_t W;
    if (!z || !f || !alpha || !tape || tape->status || !cmha__is_planes(tape, z, "complex residual")) return NULL;
    if (!cmha__same_shape(z, f))
        return cmha__reject(tape, CMHA_ERR_SHAPE, "complex residual: sizes %zu and %zu differ in shape", z->size, f->size);
    if (alpha->size != 1 || (beta && beta->size != 1))
        return cmha__reject(tape, CMHA_ERR_SHAPE, "complex residual: alpha and beta are one number each, not %zu and %zu",
                                alpha->size, beta ? beta->size : 1);
    W = cmha__last(z);
    y = cmha__result(tape, z->rank, z->shape);
    if (!y) return NULL;
    if (!cmha__dry(tape)) {
        cmha__complex_residual_factor(alpha, beta, &re, &im);
        CMHA__FOR_CHUNKS(tape->context->threads, cmha__rows(z), lo, hi) {
            cmha_complex_residual_forward(z->data + lo * W, f->data + lo * W, re, im, hi - lo, W / 2, y->data + lo * W);
        }
    }
    in[0] = z, in[1] = f, in[2] = alpha, in[3] = beta;
    return cmha_push(tape, "complex_residual", y, in, 4, cmha__complex_residual_record, NULL);
}

/* Columns of the router's planes in one piece, so that the pieces do not depend on the number of threads. */
#define CMHA__ROUTER_COLUMNS ((size_t)64)

static cmha_status cmha__router_record(cmha_tape *tape, cmha_record *r) {
    cmha_tensor *z = r->in[0], *router = r->in[1];
    size_t D = router->shape[2], E = router->shape[1], T = cmha__rows(z), half = cmha__pieces(D, CMHA__ROUTER_COLUMNS);
    cmha_real *dz = cmha_grad(tape, z), *drouter = cmha_grad(tape, router), *dbias = cmha_grad(tape, r->in[2]), *g = r->out->grad;
    int threads = tape->context->threads;
    if (tape->status || cmha__dry(tape)) return tape->status;
    if (dz)
        CMHA__FOR_CHUNKS(threads, cmha__pieces(T, CMHA__EXPERT_ROWS), first, last) {
            for (size_t i = first; i < last; i++) {
                size_t lo = i * CMHA__EXPERT_ROWS, n = T - lo < CMHA__EXPERT_ROWS ? T - lo : CMHA__EXPERT_ROWS;
                cmha__router_backward_rows(router->data, g + lo * E, n, D, E, dz + lo * 2 * D);
            }
        }
    if (drouter)
        CMHA__FOR_CHUNKS(threads, 2 * half, first, last) {
            for (size_t i = first; i < last; i++) {
                size_t lo = i % half * CMHA__ROUTER_COLUMNS, hi = D - lo < CMHA__ROUTER_COLUMNS ? D : lo + CMHA__ROUTER_COLUMNS;
                cmha__router_backward_columns(z->data, g, T, D, E, i / half, lo, hi, drouter);
            }
        }
    if (dbias) cmha__sum_rows(g, T, E, dbias);
    return tape->status;
}

CMHA_DEF cmha_tensor *cmha_router(cmha_tape *tape, cmha_tensor *z, cmha_tensor *router, cmha_tensor *bias) {
    size_t shape[CMHA_MAX_RANK], T, D, E;
    cmha_tensor *in[3], *y;
    if (!z || !router || !tape || tape->status || !cmha__is_planes(tape, z, "router")) return NULL;
    if (router->rank != 3 || router->shape[0] != 2)
        return cmha__reject(tape, CMHA_ERR_SHAPE, "router: its weight must be [2, experts, width]");
    T = cmha__rows(z), E = router->shape[1], D = router->shape[2];
    if (cmha__last(z) != 2 * D)
        return cmha__reject(tape, CMHA_ERR_SHAPE, "router: input of %zu complex numbers, weight for %zu", cmha__last(z) / 2, D);
    if (bias && bias->size != E)
        return cmha__reject(tape, CMHA_ERR_SHAPE, "router: %zu experts, bias of %zu numbers", E, bias->size);
    memcpy(shape, z->shape, sizeof shape);
    shape[z->rank - 1] = E;
    y = cmha__result(tape, z->rank, shape);
    if (!y) return NULL;
    if (!cmha__dry(tape))
        CMHA__FOR_CHUNKS(tape->context->threads, cmha__pieces(T, CMHA__EXPERT_ROWS), first, last) {
            for (size_t i = first; i < last; i++) {
                size_t lo = i * CMHA__EXPERT_ROWS, n = T - lo < CMHA__EXPERT_ROWS ? T - lo : CMHA__EXPERT_ROWS;
                cmha_router_forward(z->data + lo * 2 * D, router->data, bias ? bias->data : NULL, n, D, E, y->data + lo * E);
            }
        }
    in[0] = z, in[1] = router, in[2] = bias;
    return cmha_push(tape, "router", y, in, 3, cmha__router_record, NULL);
}

typedef struct cmha__experts_saved {
    cmha_experts_args args;
    const unsigned char *key_mask; /* [T], 0 = padding; NULL = none is */
    size_t *plan;
    cmha_real *gate, *hidden;
} cmha__experts_saved;

static cmha_experts_weights cmha__experts_weights_of(cmha_tensor *const *in) {
    cmha_experts_weights w;
    w.w1 = in[2]->data, w.b1 = in[3] ? in[3]->data : NULL;
    w.w2 = in[4]->data, w.b2 = in[5] ? in[5]->data : NULL;
    return w;
}

static cmha_status cmha__experts_record(cmha_tape *tape, cmha_record *r) {
    const cmha__experts_saved *s = (const cmha__experts_saved *)r->user;
    const cmha_experts_args *a = &s->args;
    cmha_real *dz = cmha_grad(tape, r->in[0]), *dlogits = cmha_grad(tape, r->in[1]), *dgate, *scratch;
    cmha_experts_grads grads;
    cmha__mark mark;
    grads.w1 = cmha_grad(tape, r->in[2]), grads.b1 = cmha_grad(tape, r->in[3]);
    grads.w2 = cmha_grad(tape, r->in[4]), grads.b2 = cmha_grad(tape, r->in[5]);
    mark = cmha__mark_of(tape);
    dgate = cmha__reals(tape, a->T * a->top);
    scratch = cmha__reals(tape, cmha_experts_scratch(a, 1));
    if (!tape->status && !cmha__dry(tape)) {
        cmha_experts_weights w = cmha__experts_weights_of(r->in);
        memset(dgate, 0, a->T * a->top * sizeof *dgate);
        cmha_experts_backward(a, &w, r->in[0]->data, s->plan, s->gate, s->hidden, r->out->grad, dz, dlogits ? dgate : NULL, &grads,
                              scratch);
        for (size_t t = 0; s->key_mask && t < a->T; t++)
            if (!s->key_mask[t]) memset(dgate + t * a->top, 0, a->top * sizeof *dgate);
        cmha_route_backward(s->plan, s->gate, dgate, a->T, a->E, a->top, dlogits);
    }
    cmha__rewind(tape, mark);
    return tape->status;
}

/* What is wrong with the shapes (a line with two %zu), or NULL and the sizes. */
static const char *cmha__experts_sizes(cmha_experts_args *a, const cmha_tensor *const *in, size_t *one, size_t *two) {
    const cmha_tensor *z = in[0], *logits = in[1], *w1 = in[2], *b1 = in[3], *w2 = in[4], *b2 = in[5];
    *one = (size_t)w1->rank, *two = (size_t)w2->rank;
    if (w1->rank != 4 || w2->rank != 4 || w1->shape[0] != 2 || w2->shape[0] != 2)
        return "experts: the weights must be [2, experts, hidden, width] and [2, experts, width, hidden], not of ranks %zu and %zu";
    a->T = cmha__rows(z), a->E = w1->shape[1], a->F = w1->shape[2], a->D = w1->shape[3];
    *one = cmha__last(z), *two = 2 * a->D;
    if (*one != *two) return "experts: input of width %zu, weights for planes of %zu";
    *one = w1->size, *two = w2->size;
    if (w2->shape[1] != a->E || w2->shape[2] != a->D || w2->shape[3] != a->F)
        return "experts: the first weight (%zu numbers) and the second (%zu) do not fit together";
    *one = cmha__last(logits), *two = a->E;
    if (*one != *two) return "experts: logits for %zu experts, weights for %zu";
    *one = cmha__rows(logits), *two = a->T;
    if (*one != *two) return "experts: %zu rows of logits, %zu tokens";
    *one = b1 ? b1->size : 0, *two = b2 ? b2->size : 0;
    if ((b1 && *one != 2 * a->E * a->F) || (b2 && *two != 2 * a->E * a->D))
        return "experts: biases of %zu and %zu numbers do not fit the weights";
    return NULL;
}

/* Can the bytes that these pairs need be counted? More than any product of sizes in the kernels is 16 pairs (D + F) numbers. */
static int cmha__experts_countable(const cmha_experts_args *a) {
    size_t width, pairs, bytes;
    return cmha__sum(a->D, a->F, &width) && cmha__sum(width, 1, &width) && cmha__mul(a->T, a->top, &pairs) &&
           cmha__mul(pairs, 128, &bytes) && cmha__mul(bytes, width, &bytes);
}

static int cmha__experts_top(cmha_tape *tape, size_t top, size_t E, const char *format) {
    if (top >= 1 && top <= E) return 1;
    cmha__reject(tape, CMHA_ERR_ARGUMENT, format, top, E);
    return 0;
}

/* Sends padding to the first experts, whatever it holds: other tokens then share an expert with as many rows
   as ever, on whose number it depends in which order a BLAS sums. Returns how many tokens that were. */
static size_t cmha__route_padding(const cmha__experts_saved *s, size_t *expert) {
    size_t top = s->args.top, n = 0;
    for (size_t t = 0; s->key_mask && t < s->args.T; t++) {
        if (s->key_mask[t]) continue;
        for (size_t c = 0; c < top; c++) expert[t * top + c] = c, s->gate[t * top + c] = 1 / (cmha_real)top;
        n++;
    }
    return n;
}

/* Routes the tokens, lets the experts work, counts. */
static void cmha__experts_run(const cmha__experts_saved *s, cmha_tensor *const *in, cmha_real *y, cmha_real *scratch,
                              uint64_t *use) {
    const cmha_experts_args *a = &s->args;
    cmha__route r = cmha__route_of(s->plan, a->T, a->E, a->top);
    cmha_experts_weights w = cmha__experts_weights_of(in);
    size_t padding;
    CMHA__FOR_CHUNKS(a->threads, a->T, lo, hi) {
        cmha__route_rows(in[1]->data, lo, hi, a->E, a->top, r.expert, s->gate);
    }
    padding = cmha__route_padding(s, r.expert);
    cmha__route_group(&r, a->T * a->top, a->E);
    cmha_experts_forward(a, &w, in[0]->data, s->plan, s->gate, s->hidden, y, scratch);
    for (size_t e = 0; use && e < a->E; e++) use[e] += r.first[e + 1] - r.first[e] - (e < a->top ? padding : 0);
}

/* cmha_experts of tokens some of which may be padding. */
static cmha_tensor *cmha__experts(cmha_tape *tape, cmha_tensor *z, cmha_tensor *logits, size_t top,
                                  cmha_tensor *w1, cmha_tensor *b1, cmha_tensor *w2, cmha_tensor *b2,
                                  const unsigned char *key_mask, uint64_t *use) {
    cmha__experts_saved *s;
    cmha_tensor *in[6], *y;
    cmha_real *scratch;
    const char *misfit;
    size_t one, two, pairs;
    cmha__mark mark;
    if (!z || !logits || !w1 || !w2 || !tape || tape->status || !cmha__is_planes(tape, z, "experts")) return NULL;
    in[0] = z, in[1] = logits, in[2] = w1, in[3] = b1, in[4] = w2, in[5] = b2;
    s = (cmha__experts_saved *)cmha__record_alloc(tape, sizeof *s);
    if (!s) return NULL;
    s->args.top = top, s->args.threads = tape->context->threads, s->key_mask = key_mask;
    misfit = cmha__experts_sizes(&s->args, (const cmha_tensor *const *)in, &one, &two);
    if (misfit) return cmha__reject(tape, CMHA_ERR_SHAPE, misfit, one, two);
    if (!cmha__experts_top(tape, top, s->args.E, "experts: %zu experts a token out of %zu")) return NULL;
    if (!cmha__experts_countable(&s->args))
        return cmha__reject(tape, CMHA_ERR_OVERFLOW, "experts: %zu tokens with %zu experts each are too many", s->args.T, top);
    y = cmha__result(tape, z->rank, z->shape);
    if (!y) return NULL;
    pairs = s->args.T * top;
    mark = cmha__mark_of(tape);
    s->plan = (size_t *)cmha_tape_alloc(tape, cmha_route_size(s->args.T, s->args.E, top) * sizeof *s->plan);
    s->gate = cmha__reals(tape, pairs);
    if (tape->recording) {
        s->hidden = cmha__reals(tape, pairs * 2 * s->args.F);
        mark = cmha__mark_of(tape);
    }
    scratch = cmha__reals(tape, cmha_experts_scratch(&s->args, 0));
    if (!tape->status && !cmha__dry(tape)) cmha__experts_run(s, in, y->data, scratch, use);
    cmha__rewind(tape, mark);
    return cmha_push(tape, "experts", y, in, 6, cmha__experts_record, s);
}

CMHA_DEF cmha_tensor *cmha_experts(cmha_tape *tape, cmha_tensor *z, cmha_tensor *logits, size_t top,
                                   cmha_tensor *w1, cmha_tensor *b1, cmha_tensor *w2, cmha_tensor *b2,
                                   uint64_t *use) {
    return cmha__experts(tape, z, logits, top, w1, b1, w2, b2, NULL, use);
}

typedef struct cmha__balance_saved {
    const unsigned char *key_mask;
    double *share;
    size_t counted;
} cmha__balance_saved;

static cmha_status cmha__balance_record(cmha_tape *tape, cmha_record *r) {
    const cmha__balance_saved *s = (const cmha__balance_saved *)r->user;
    cmha_tensor *logits = r->in[0];
    cmha_real *dlogits = cmha_grad(tape, logits);
    size_t E = cmha__last(logits);
    if (!dlogits || cmha__dry(tape)) return tape->status;
    CMHA__FOR_CHUNKS(tape->context->threads, cmha__rows(logits), lo, hi) {
        cmha__balance_backward(logits->data + lo * E, s->key_mask ? s->key_mask + lo : NULL, s->share, hi - lo, E, s->counted,
                               r->out->grad[0], dlogits + lo * E);
    }
    return CMHA_OK;
}

CMHA_DEF cmha_tensor *cmha_balance(cmha_tape *tape, cmha_tensor *logits, size_t top, const unsigned char *key_mask) {
    cmha__balance_saved *s;
    cmha_tensor *loss;
    size_t one = 1, E;
    if (!logits || !tape || tape->status) return NULL;
    E = cmha__last(logits);
    if (!cmha__experts_top(tape, top, E, "balance: %zu experts a token out of %zu")) return NULL;
    loss = cmha__result(tape, 1, &one);
    s = loss ? (cmha__balance_saved *)cmha__record_alloc(tape, sizeof *s) : NULL;
    if (!s) return NULL;
    s->key_mask = key_mask;
    s->share = (double *)cmha_tape_alloc(tape, 2 * E * sizeof *s->share);
    if (!s->share) return NULL;
    if (!cmha__dry(tape)) {
        s->counted = cmha__counted(key_mask, cmha__rows(logits));
        loss->data[0] = (cmha_real)cmha_balance_forward(logits->data, key_mask, cmha__rows(logits), E, top, s->share);
    }
    return cmha_push(tape, "balance", loss, &logits, 1, cmha__balance_record, s);
}

/* ---- Retrieval: exact search, the mix of what was found, the gate ---- */

enum {
    CMHA__NEAREST_ROWS = 128,      /* queries and documents of one tile of similarities */
    CMHA__NEAREST_DOCUMENTS = 512,
    CMHA__NEAREST_FEW = 6,         /* up to so many queries take products of one row each */
    CMHA__NEAREST_SPAN = 64        /* similarities looked at together; most spans hold nothing better than what is known */
};

/* Width of a tile among n documents. Every tile of one search has the same, so that equal documents get equal bits. */
static size_t cmha__nearest_width(size_t n) {
    if (n > CMHA__NEAREST_DOCUMENTS) return CMHA__NEAREST_DOCUMENTS;
    return (n + CMHA__NEAREST_SPAN - 1) / CMHA__NEAREST_SPAN * CMHA__NEAREST_SPAN;
}

CMHA_DEF size_t cmha_nearest_scratch(size_t Q, size_t n, size_t d_r, size_t k) {
    size_t rows = Q < CMHA__NEAREST_ROWS ? Q : (size_t)CMHA__NEAREST_ROWS;
    (void)k;
    size_t width = cmha__nearest_width(n);
    return cmha__countable(width * (rows + 2 * d_r), (double)width * ((double)CMHA__NEAREST_ROWS + 2 * (double)d_r));
}

/* Puts document i into a list of the k best so far, ties by index; the caller knows that it belongs there. */
static void cmha__nearest_insert(cmha_real s, int64_t i, size_t k, int64_t *index, cmha_real *similarity) {
    size_t at = k - 1;
    for (; at > 0 && (similarity[at - 1] < s || (similarity[at - 1] <= s && index[at - 1] > i)); at--) {
        similarity[at] = similarity[at - 1];
        index[at] = index[at - 1];
    }
    similarity[at] = s;
    index[at] = i;
}

static inline cmha_real cmha__nearest_limit(cmha_real under, const cmha_real *similarity, size_t k) {
    return similarity[k - 1] > under ? similarity[k - 1] : under;
}

/* Similarities s of documents first .. first + n - 1 in ascending order: those above the k-th best so far are inserted. NaN never
   is. */
static void cmha__nearest_scan(const cmha_real *s, size_t n, size_t first, size_t k, cmha_real under, int64_t *index,
                               cmha_real *similarity) {
    cmha_real limit = cmha__nearest_limit(under, similarity, k);
    size_t m;
    for (size_t i = 0; i < n; i += m) {
        int any = 0;
        m = n - i < CMHA__NEAREST_SPAN ? n - i : (size_t)CMHA__NEAREST_SPAN;
        if (m == CMHA__NEAREST_SPAN)
            for (size_t j = 0; j < CMHA__NEAREST_SPAN; j++) any |= s[i + j] > limit;
        else any = 1;
        for (size_t j = i; any && j < i + m; j++) {
            if (!(s[j] > limit)) continue;
            cmha__nearest_insert(s[j], (int64_t)(first + j), k, index, similarity);
            limit = cmha__nearest_limit(under, similarity, k);
        }
    }
}

/* The number below a threshold, so that "above it" is "at least the threshold". */
static cmha_real cmha__nearest_under(cmha_real threshold) {
    if (!(threshold > -1)) return -(cmha_real)INFINITY; /* rounding may take a similarity below -1 */
#ifdef CMHA_DOUBLE
    return nextafter(threshold, -DBL_MAX);
#else
    return nextafterf(threshold, -FLT_MAX);
#endif
}

static void cmha__nearest_begin(size_t n, int64_t *index, cmha_real *similarity) {
    for (size_t i = 0; i < n; i++) index[i] = -1, similarity[i] = -(cmha_real)INFINITY;
}

/* scores [rows, width] = q u^T / d_r of one tile. A few queries, as in decoding, one by one: the tile stays in the cache, and
   products of few rows are GEMM's weakest. */
static void cmha__nearest_scores(const cmha_real *queries, const cmha_real *tile, size_t rows, size_t width, size_t d_r,
                                 cmha_real *scores) {
    size_t W = 2 * d_r, step = rows <= CMHA__NEAREST_FEW ? 1 : rows;
    for (size_t r = 0; r < rows; r += step)
        cmha_gemm(0, 1, step, width, W, 1 / (cmha_real)d_r, queries + r * W, W, tile, W, 0, scores + r * width, width);
}

/* Brings lists up to date with documents lo .. hi - 1 of n; lo is at the beginning of a tile. */
static void cmha__nearest_range(const cmha_real *queries, const cmha_real *documents, size_t Q, size_t n, size_t lo, size_t hi,
                                size_t d_r, size_t k, cmha_real under, int64_t *index, cmha_real *similarity, cmha_real *scratch) {
    size_t W = 2 * d_r, width = cmha__nearest_width(n), cols, rows, i, r;
    cmha_real *scores = scratch + width * W;
    for (; lo < hi; lo += cols) {
        const cmha_real *tile = documents + lo * W;
        cols = hi - lo < width ? hi - lo : width;
        if (cols < width) { /* the last tile: filled up with zeros */
            memcpy(scratch, tile, cols * W * sizeof *scratch);
            memset(scratch + cols * W, 0, (width - cols) * W * sizeof *scratch);
            tile = scratch;
        }
        for (i = 0; i < Q; i += rows) {
            rows = Q - i < CMHA__NEAREST_ROWS ? Q - i : (size_t)CMHA__NEAREST_ROWS;
            cmha__nearest_scores(queries + i * W, tile, rows, width, d_r, scores);
            for (r = i; r < i + rows; r++)
                cmha__nearest_scan(scores + (r - i) * width, cols, lo, k, under, index + r * k, similarity + r * k);
        }
    }
}

/* Places without a document get similarity 0, of a query with a NaN that NaN. */
static void cmha__nearest_end(const cmha_real *queries, size_t Q, size_t d_r, size_t k, const int64_t *index,
                              cmha_real *similarity) {
    for (size_t q = 0; k && q < Q; q++) {
        cmha_real none = index[q * k] < 0 ? cmha__total(queries + q * 2 * d_r, 2 * d_r) * 0 : 0;
        for (size_t i = q * k; i < (q + 1) * k; i++)
            if (index[i] < 0) similarity[i] = none;
    }
}

CMHA_DEF void cmha_nearest(const cmha_real *queries, const cmha_real *documents, size_t Q, size_t n, size_t d_r, size_t k,
                           cmha_real threshold, int64_t *index, cmha_real *similarity, cmha_real *scratch) {
    if (!k) return;
    cmha__nearest_begin(Q * k, index, similarity);
    cmha__nearest_range(queries, documents, Q, n, 0, n, d_r, k, cmha__nearest_under(threshold), index, similarity, scratch);
    cmha__nearest_end(queries, Q, d_r, k, index, similarity);
}

/* p = softmax of similarity / tau over the documents found, 0 elsewhere; returns their number. */
static size_t cmha__softmax_found(const int64_t *index, const cmha_real *similarity, size_t k, cmha_real tau, cmha_real *p) {
    cmha_real top = -(cmha_real)INFINITY, sum = 0;
    size_t found = 0;
    for (size_t i = 0; i < k; i++) {
        found += index[i] >= 0;
        if (index[i] >= 0 && similarity[i] > top) top = similarity[i];
    }
    for (size_t i = 0; i < k; i++) {
        p[i] = index[i] >= 0 ? cmha__exp((similarity[i] - top) / tau) : 0;
        sum += p[i];
    }
    for (size_t i = 0; found && i < k; i++) p[i] /= sum;
    return found;
}

CMHA_DEF void cmha_retrieve_forward(const cmha_real *vectors, const int64_t *index, const cmha_real *similarity,
                                    const cmha_real *weights, size_t T, size_t M, size_t k, size_t d_r, cmha_real tau, cmha_real *p,
                                    cmha_real *rbar, unsigned char *found) {
    size_t W = 2 * d_r, at;
    for (size_t t = 0; t < T; t++) {
        cmha_real *row = rbar + t * W;
        int any = 0;
        for (size_t j = 0; j < W; j++) row[j] = 0;
        for (size_t m = 0; k && m < M; m++) {
            cmha_real first = similarity[at = (t * M + m) * k];
            if (cmha__softmax_found(index + at, similarity + at, k, tau, p + at)) {
                any = 1;
                for (size_t i = at; i < at + k; i++)
                    if (index[i] >= 0) cmha__axpy(W, weights[m] * p[i], vectors + (size_t)index[i] * W, row);
            } else if (first != first) { /* a NaN must not look like a query that found nothing */
                any = 1;
                for (size_t j = 0; j < W; j++) row[j] = first;
            }
        }
        if (found) found[t] = (unsigned char)any;
    }
}

/* One query: with a_i = <drbar, r_i>, returns the mean of a over p and adds sum_i w p_i (a_i - mean) / (tau d_r) u_i to dquery. */
static cmha_real cmha__retrieve_query_backward(const cmha_real *vectors, const cmha_real *features, const int64_t *index,
                                               const cmha_real *p, cmha_real weight, const cmha_real *drbar, size_t k, size_t d_r,
                                               cmha_real tau, cmha_real *dquery, cmha_real *a) {
    size_t W = 2 * d_r;
    cmha_real mean = 0;
    for (size_t i = 0; i < k; i++) {
        if (index[i] < 0) continue;
        a[i] = cmha__dot(drbar, vectors + (size_t)index[i] * W, W);
        mean += p[i] * a[i];
    }
    for (size_t i = 0; dquery && i < k; i++)
        if (index[i] >= 0)
            cmha__axpy(W, weight * p[i] * (a[i] - mean) / (tau * (cmha_real)d_r), features + (size_t)index[i] * W, dquery);
    return mean;
}

CMHA_DEF void cmha_retrieve_backward(const cmha_real *vectors, const cmha_real *features, const int64_t *index, const cmha_real *p,
                                     const cmha_real *weights, const cmha_real *drbar, size_t T, size_t M, size_t k, size_t d_r,
                                     cmha_real tau, cmha_real *dqueries, cmha_real *dweights, cmha_real *scratch) {
    size_t W = 2 * d_r;
    for (size_t m = 0; m < M; m++) {
        double sum = 0;
        for (size_t t = 0; t < T; t++) {
            size_t at = t * M + m;
            cmha_real *dq = dqueries ? dqueries + at * W : NULL;
            sum += (double)cmha__retrieve_query_backward(vectors, features, index + at * k, p + at * k, weights[m], drbar + t * W,
                                                         k, d_r, tau, dq, scratch);
        }
        if (dweights) dweights[m] += (cmha_real)sum;
    }
}

CMHA_DEF void cmha_reflect_forward(const cmha_real *z, const cmha_real *v, const cmha_real *gate, const unsigned char *found,
                                   size_t T, size_t D, cmha_real tau, cmha_fusion fusion, cmha_real *y) {
    for (size_t t = 0; t < T; t++, z += 2 * D, v += 2 * D, gate += D, y += 2 * D) {
        cmha_real *CMHA__RESTRICT to = y;
        if (found && !found[t]) {
            if (D) memcpy(y, z, 2 * D * sizeof *y);
            continue;
        }
        for (size_t j = 0; j < D; j++) {
            cmha_real g = cmha__sigmoid(gate[j] / tau), keep = fusion == CMHA_FUSION_CONVEX ? 1 - g : 1;
            to[j] = keep * z[j] + g * v[j];
            to[D + j] = keep * z[D + j] + g * v[D + j];
        }
    }
}

/* The gradients of one row that was found, all of them. */
static void cmha__reflect_row_backward(const cmha_real *z, const cmha_real *v, const cmha_real *gate, const cmha_real *dy, size_t D,
                                       cmha_real tau, int convex, cmha_real *CMHA__RESTRICT dz, cmha_real *CMHA__RESTRICT dv,
                                       cmha_real *CMHA__RESTRICT dgate) {
    for (size_t j = 0; j < D; j++) {
        cmha_real g = cmha__sigmoid(gate[j] / tau), keep = convex ? 1 - g : 1, re = dy[j], im = dy[D + j];
        cmha_real a = convex ? v[j] - z[j] : v[j], b = convex ? v[D + j] - z[D + j] : v[D + j];
        if (dz) dz[j] += keep * re, dz[D + j] += keep * im;
        if (dv) dv[j] += g * re, dv[D + j] += g * im;
        if (dgate) dgate[j] += (re * a + im * b) * g * (1 - g) / tau;
    }
}

CMHA_DEF void cmha_reflect_backward(const cmha_real *z, const cmha_real *v, const cmha_real *gate, const unsigned char *found,
                                    const cmha_real *dy, size_t T, size_t D, cmha_real tau, cmha_fusion fusion, cmha_real *dz,
                                    cmha_real *dv, cmha_real *dgate) {
    size_t W = 2 * D;
    for (size_t t = 0; t < T; t++) {
        if (!found || found[t])
            cmha__reflect_row_backward(z + t * W, v + t * W, gate + t * D, dy + t * W, D, tau, fusion == CMHA_FUSION_CONVEX,
                                       dz ? dz + t * W : NULL, dv ? dv + t * W : NULL, dgate ? dgate + t * D : NULL);
        else if (dz) cmha__axpy(W, 1, dy + t * W, dz + t * W);
    }
}

/* ---- Retrieval ---- */

/* Numbers as floats into eight hashes in turn, which vectorises: the same for a base in float and in double. */
static void cmha__hash_reals(const cmha_real *x, size_t n, uint64_t *lanes) {
    float value;
    uint32_t bits;
    for (size_t i = 0; i < n; i += 8)
        for (size_t l = 0; l < 8 && i + l < n; l++) {
#ifdef CMHA_DOUBLE
            value = fabs(x[i + l]) <= FLT_MAX ? (float)x[i + l] : x[i + l] > 0 ? FLT_MAX : -FLT_MAX;
#else
            value = x[i + l];
#endif
            memcpy(&bits, &value, sizeof bits);
            lanes[l] = (lanes[l] ^ bits) * UINT64_C(0xd1342543de82ef95);
            lanes[l] ^= lanes[l] >> 29;
        }
}

static uint64_t cmha__knowledge_identity(size_t n, size_t d_r, const cmha_real *vectors) {
    uint64_t lanes[8], hash = cmha__mix((uint64_t)n + CMHA__GOLDEN);
    hash = cmha__mix(hash ^ (uint64_t)d_r);
    for (size_t i = 0; i < 8; i++) lanes[i] = hash + (uint64_t)i * CMHA__GOLDEN;
    for (size_t i = 0; i < n; i++) cmha__hash_reals(vectors + i * 2 * d_r, 2 * d_r, lanes);
    for (size_t i = 0; i < 8; i++) hash = cmha__mix(hash ^ lanes[i]) + CMHA__GOLDEN;
    return hash;
}

static const cmha_real cmha__feature_eps = (cmha_real)1e-6;

/* Memory that close gives back. */
static void *cmha__knowledge_take(cmha_knowledge *kb, size_t count, size_t width) {
    size_t bytes, i;
    if (!cmha__mul(count, width, &bytes)) {
        cmha__fail(kb->context, CMHA_ERR_OVERFLOW, "knowledge: %zu documents", kb->n);
        return NULL;
    }
    for (i = 0; kb->owned[i].memory;) i++;
    kb->owned[i].memory = cmha__take(kb->context, bytes ? bytes : 1);
    kb->owned[i].bytes = bytes ? bytes : 1;
    if (!kb->owned[i].memory) cmha__fail(kb->context, CMHA_ERR_MEMORY, "knowledge: no memory for %zu bytes", bytes);
    return kb->owned[i].memory;
}

/* The features' memory. */
static cmha_status cmha__knowledge_reserve(cmha_knowledge *kb) {
    size_t count;
    if (!cmha__mul(kb->n, 2 * kb->d_r, &count) || count > SIZE_MAX / sizeof *kb->features)
        return cmha__fail(kb->context, CMHA_ERR_OVERFLOW, "knowledge: %zu documents overflow a size", kb->n);
    kb->features = (const cmha_real *)cmha__knowledge_take(kb, count, sizeof *kb->features);
    return kb->features ? CMHA_OK : CMHA_ERR_MEMORY;
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
        if (sum != 0) return cmha__fail(kb->context, CMHA_ERR_NOT_FINITE, "knowledge: vector %zu holds a NaN or an infinity", i);
    }
    return CMHA_OK;
}

CMHA_DEF cmha_status cmha_knowledge_init(cmha_knowledge *knowledge, cmha_context *context, size_t n, size_t d_r,
                                         const cmha_real *vectors, const int64_t *ids, const char *texts,
                                         const uint64_t *text_begin) {
    cmha_status status;
    if (!knowledge) return cmha__fail(context, CMHA_ERR_ARGUMENT, "knowledge: it is NULL");
    memset(knowledge, 0, sizeof *knowledge);
    if (!cmha__is_open(context)) return CMHA_ERR_STATE;
    if (n && (!vectors || !d_r)) return cmha__fail(context, CMHA_ERR_ARGUMENT, "knowledge: %zu documents without vectors", n);
    if (!texts != !text_begin) return cmha__fail(context, CMHA_ERR_ARGUMENT, "knowledge: texts and text_begin need each other");
    if (d_r > SIZE_MAX / 2) return cmha__fail(context, CMHA_ERR_OVERFLOW, "knowledge: %zu complex features", d_r);
    knowledge->context = context;
    knowledge->n = n, knowledge->d_r = d_r;
    knowledge->vectors = vectors, knowledge->ids = ids, knowledge->texts = texts, knowledge->text_begin = text_begin;
    status = cmha__knowledge_reserve(knowledge); /* first: no array is read whose size cannot be */
    if (!status && texts && !cmha__texts_in_order(text_begin, n, UINT64_MAX))
        status = cmha__fail(context, CMHA_ERR_ARGUMENT, "knowledge: text_begin does not ascend from 0");
    if (!status) status = cmha__knowledge_finite(knowledge);
    if (!status) cmha__knowledge_features(knowledge);
    if (status) cmha_knowledge_close(knowledge);
    else knowledge->identity = cmha__knowledge_identity(n, d_r, vectors);
    return status;
}

CMHA_DEF void cmha_knowledge_close(cmha_knowledge *knowledge) {
    if (!knowledge || !knowledge->context) return;
    for (size_t i = 0; i < sizeof knowledge->owned / sizeof *knowledge->owned; i++)
        cmha__give(knowledge->context, knowledge->owned[i].memory, knowledge->owned[i].bytes);
#ifndef _WIN32
    if (knowledge->mapping) (void)munmap(knowledge->mapping, knowledge->mapped);
#endif
    memset(knowledge, 0, sizeof *knowledge);
}

CMHA_DEF const char *cmha_knowledge_text(const cmha_knowledge *knowledge, size_t i, size_t *length) {
    int there = knowledge && knowledge->texts && i < knowledge->n;
    if (length) *length = there ? (size_t)(knowledge->text_begin[i + 1] - knowledge->text_begin[i]) : 0;
    return there ? knowledge->texts + knowledge->text_begin[i] : NULL;
}

/* Memory of a search, none of whose sizes depends on the number of documents. */
typedef struct cmha__search {
    int threads;
    size_t Q, d_r, k, tiles, lists; /* numbers of one thread's scratch; places of the lists of all threads but the first */
    cmha_real *scratch, *similarity;
    int64_t *index;                 /* [lists]; of the caller's search [Q, k] */
} cmha__search;

/* Blocks of queries beyond which threads always share out queries, so that lists of their own are not needed. */
static size_t cmha__search_blocks(int threads) { return 4 * (size_t)threads; }

static cmha_status cmha__search_sizes(cmha__search *s, int threads, size_t Q, size_t d_r, size_t k) {
    size_t limit = cmha__search_blocks(threads) * CMHA__NEAREST_ROWS, few = Q < limit ? Q : limit;
    memset(s, 0, sizeof *s);
    s->threads = threads, s->Q = Q, s->d_r = d_r, s->k = k;
    s->tiles = cmha_nearest_scratch(Q, SIZE_MAX, d_r, k);
    if (!cmha__mul(few * (size_t)(threads - 1), k, &s->lists) || !cmha__mul(Q, k, &limit) ||
        d_r > SIZE_MAX / 8 / CMHA__NEAREST_DOCUMENTS)
        return CMHA_ERR_OVERFLOW;
    if (s->lists < limit) s->lists = limit;
    return CMHA_OK;
}

/* Cuts along queries or along documents, always at the same places, so that every product is the same for any number of threads. */
static void cmha__search_exact(const cmha__search *s, const cmha_real *queries, const cmha_real *documents, size_t n,
                               cmha_real threshold, int64_t *index, cmha_real *similarity) {
    const size_t B = CMHA__NEAREST_ROWS, width = CMHA__NEAREST_DOCUMENTS, Q = s->Q, k = s->k, W = 2 * s->d_r;
    size_t blocks = Q / B + (Q % B != 0), tiles = n / width + (n % width != 0), lists = Q * k, c, i, q;
    cmha_real under = cmha__nearest_under(threshold);
    cmha__nearest_begin(lists, index, similarity);
    if (blocks > cmha__search_blocks(s->threads) || tiles < 2 * (size_t)s->threads) {
        CMHA__FOR_CHUNKS(s->threads, blocks, lo, hi) {
            size_t begin = lo * B, end = hi * B < Q ? hi * B : Q;
            cmha__nearest_range(queries + begin * W, documents, end - begin, n, 0, n, s->d_r, k, under, index + begin * k,
                                similarity + begin * k, s->scratch + (size_t)cmha__chunk * s->tiles);
        }
    } else {
        cmha__nearest_begin(lists * (size_t)(s->threads - 1), s->index, s->similarity);
        CMHA__FOR_CHUNKS(s->threads, tiles, lo, hi) {
            size_t own = (size_t)cmha__chunk * lists, end = hi * width < n ? hi * width : n;
            cmha__nearest_range(queries, documents, Q, n, lo * width, end, s->d_r, k, under,
                                own ? s->index + (own - lists) : index, own ? s->similarity + (own - lists) : similarity,
                                s->scratch + (size_t)cmha__chunk * s->tiles);
        }
        for (c = 0; c + 1 < (size_t)s->threads; c++)
            for (q = 0; q < Q; q++)
                for (i = (c * Q + q) * k; i < (c * Q + q + 1) * k && s->similarity[i] > similarity[q * k + k - 1]; i++)
                    cmha__nearest_insert(s->similarity[i], s->index[i], k, index + q * k, similarity + q * k);
    }
    cmha__nearest_end(queries, Q, s->d_r, k, index, similarity);
}

/* The caller's search: its documents in order of their similarities, which are ours. */
static cmha_status cmha__search_own(const cmha__search *s, cmha_context *ctx, const cmha_knowledge *kb, const cmha_real *queries,
                                    cmha_real threshold, int64_t *index, cmha_real *similarity) {
    size_t W = 2 * s->d_r, k = s->k;
    cmha_real under = cmha__nearest_under(threshold), one;
    cmha_status status = kb->search(kb->search_user, queries, s->Q, k, s->index);
    if (status) return cmha__fail(ctx, status, "search: the caller's search ended with: %s", cmha_status_string(status));
    cmha__nearest_begin(s->Q * k, index, similarity);
    for (size_t q = 0; q < s->Q; q++)
        for (size_t i = q * k; i < (q + 1) * k; i++) {
            if (s->index[i] < 0) continue;
            if ((uint64_t)s->index[i] >= kb->n)
                return cmha__fail(ctx, CMHA_ERR_ARGUMENT, "search: the caller's search found document %zu of %zu",
                                  (size_t)s->index[i], kb->n);
            one = cmha__dot(queries + q * W, kb->features + (size_t)s->index[i] * W, W) / (cmha_real)s->d_r;
            if (one > under) cmha__nearest_insert(one, s->index[i], k, index + q * k, similarity + q * k);
        }
    cmha__nearest_end(queries, s->Q, s->d_r, k, index, similarity);
    return CMHA_OK;
}

/* Phasors -> index, similarity; the base is not empty, k > 0. */
static cmha_status cmha__search_run(const cmha__search *s, cmha_context *ctx, const cmha_knowledge *kb, const cmha_real *queries,
                                    cmha_real threshold, int64_t *index, cmha_real *similarity) {
    if (kb->search) return cmha__search_own(s, ctx, kb, queries, threshold, index, similarity);
    cmha__search_exact(s, queries, kb->features, kb->n, threshold, index, similarity);
    return CMHA_OK;
}

/* Queries in slabs, so that the memory for their phasors is bounded. */
static cmha_status cmha__knowledge_search(cmha__search *s, const cmha_knowledge *kb, const cmha_real *queries, size_t Q,
                                          cmha_real threshold, int64_t *index, cmha_real *similarity, cmha_real *phasors) {
    size_t slab = s->Q, W = 2 * s->d_r;
    for (size_t q = 0; q < Q; q += s->Q) {
        cmha_status status;
        s->Q = Q - q < slab ? Q - q : slab;
        cmha_phasor_forward(queries + q * W, s->Q, s->d_r, cmha__feature_eps, phasors);
        status = cmha__search_run(s, kb->context, kb, phasors, threshold, index + q * s->k, similarity + q * s->k);
        if (status) return status;
    }
    return CMHA_OK;
}

CMHA_DEF cmha_status cmha_knowledge_search(const cmha_knowledge *knowledge, const cmha_real *queries, size_t Q, size_t k,
                                           cmha_real threshold, int64_t *index, cmha_real *similarity) {
    cmha__search s;
    cmha_context *ctx;
    cmha_status status;
    size_t phasors, numbers, bytes;
    char *memory;
    if (!knowledge || !cmha__is_open(knowledge->context)) return CMHA_ERR_STATE;
    ctx = knowledge->context;
    if (!Q || !k) return CMHA_OK;
    if (!queries || !index || !similarity) return cmha__fail(ctx, CMHA_ERR_ARGUMENT, "search: an array is NULL");
    if (threshold != threshold) return cmha__fail(ctx, CMHA_ERR_ARGUMENT, "search: the threshold is NaN");
    if (!cmha__mul(Q, k, &bytes) || bytes > SIZE_MAX / sizeof *index ||
        !cmha__mul(Q, 2 * knowledge->d_r, &bytes) || bytes > SIZE_MAX / sizeof *queries)
        return cmha__fail(ctx, CMHA_ERR_OVERFLOW, "search: %zu documents for each of %zu queries", k, Q);
    if (!knowledge->n) {
        for (size_t i = 0; i < Q * k; i++) index[i] = -1, similarity[i] = 0;
        return CMHA_OK;
    }
    if (cmha__search_sizes(&s, ctx->threads, Q < 4096 ? Q : 4096, knowledge->d_r, k) || !cmha__mul(s.Q, 2 * s.d_r, &phasors) ||
        !cmha__sum(phasors + (size_t)s.threads * s.tiles, s.lists, &numbers) || numbers > SIZE_MAX / 8 / sizeof *queries)
        return cmha__fail(ctx, CMHA_ERR_OVERFLOW, "search: %zu documents for each of %zu queries", k, Q);
    bytes = s.lists * sizeof *index + numbers * sizeof *queries;
    memory = (char *)cmha__take(ctx, bytes);
    if (!memory) return cmha__fail(ctx, CMHA_ERR_MEMORY, "search: no memory for %zu bytes", bytes);
    s.index = (int64_t *)(void *)memory;
    s.similarity = (cmha_real *)(void *)(memory + s.lists * sizeof *index);
    s.scratch = s.similarity + s.lists;
    status = cmha__knowledge_search(&s, knowledge, queries, Q, threshold, index, similarity,
                                    s.scratch + (size_t)s.threads * s.tiles);
    cmha__give(ctx, memory, bytes);
    return status;
}

typedef struct cmha__retrieve_saved {
    cmha_retrieve_args args;
    size_t T, d_r;
    const cmha_real *vectors, *features; /* of the base that was searched; NULL = nothing was */
    cmha_real *weights, *p;              /* [M], [T, M, k] */
    int64_t *index;                      /* [T, M, k] */
    unsigned char *found;                /* [T] */
} cmha__retrieve_saved;

/* Between rows [Re of M queries | Im of M queries] of q and M rows [Re | Im] each: phasors, or (dq not NULL) their backward. */
static void cmha__retrieve_phasors(const cmha__retrieve_saved *s, const cmha_real *q, size_t lo, size_t hi, cmha_real *u,
                                   cmha_real *dq) {
    size_t M = s->args.queries, d = s->d_r;
    for (size_t t = lo; t < hi; t++)
        for (size_t m = 0; m < M; m++) {
            size_t re = t * 2 * M * d + m * d, im = re + M * d;
            cmha_real *row = u + (t * M + m) * 2 * d;
            if (dq) cmha__phasor_row_backward(q + re, q + im, d, s->args.eps, 1, row, row + d, dq + re, dq + im);
            else cmha__phasor_row(q + re, q + im, d, s->args.eps, 1, row, row + d);
        }
}

/* The gradient of the logits of the queries' weights. */
static void cmha__retrieve_weights_backward(const cmha__retrieve_saved *s, const cmha_real *dweights, cmha_real *dlogits) {
    size_t M = s->args.queries;
    cmha_real mean = 0;
    for (size_t m = 0; !s->args.raw_weights && m < M; m++) mean += s->weights[m] * dweights[m];
    for (size_t m = 0; m < M; m++) dlogits[m] += s->args.raw_weights ? dweights[m] : s->weights[m] * (dweights[m] - mean);
}

static void cmha__retrieve_weights(const cmha__retrieve_saved *s, const cmha_real *logits, cmha_real *out) {
    size_t M = s->args.queries;
    cmha_real sum;
    memcpy(out, logits, M * sizeof *out);
    if (s->args.raw_weights) return;
    sum = cmha__exp_shifted(out, M, cmha__largest(out, M));
    for (size_t m = 0; m < M; m++) out[m] /= sum;
}

static cmha_status cmha__retrieve_record(cmha_tape *tape, cmha_record *r) {
    const cmha__retrieve_saved *s = (const cmha__retrieve_saved *)r->user;
    size_t M = s->args.queries, k = s->args.top, W = 2 * s->d_r, threads = (size_t)tape->context->threads, part, c;
    cmha_real *dq = cmha_grad(tape, r->in[0]), *dl = cmha_grad(tape, r->in[1]), *du, *partial;
    cmha__mark mark = cmha__mark_of(tape);
    part = M + k;
    du = dq ? cmha__reals(tape, s->T * M * W) : NULL;
    partial = cmha__reals(tape, (threads + 1) * part); /* per thread: gradient of the weights, scratch */
    if (!tape->status && !cmha__dry(tape) && s->vectors) {
        memset(partial, 0, (threads + 1) * part * sizeof *partial);
        CMHA__FOR_CHUNKS(tape->context->threads, s->T, lo, hi) {
            cmha_real *own = partial + (size_t)cmha__chunk * part;
            if (du) memset(du + lo * M * W, 0, (hi - lo) * M * W * sizeof *du);
            cmha_retrieve_backward(s->vectors, s->features, s->index + lo * M * k, s->p + lo * M * k, s->weights,
                                   r->out->grad + lo * W, hi - lo, M, k, s->d_r, s->args.tau, du ? du + lo * M * W : NULL, own,
                                   own + M);
            if (du) cmha__retrieve_phasors(s, r->in[0]->data, lo, hi, du, dq);
        }
        for (c = 0; c < threads; c++) cmha__axpy(M, 1, partial + c * part, partial + threads * part);
        if (dl) cmha__retrieve_weights_backward(s, partial + threads * part, dl);
    }
    cmha__rewind(tape, mark);
    return tape->status;
}

static const char *cmha__retrieve_misfit(const cmha_knowledge *kb, const cmha_retrieve_args *a, const cmha_tensor *q,
                                         const cmha_tensor *w_logits, cmha_status *status) {
    *status = CMHA_ERR_ARGUMENT;
    if (!a || !a->queries || a->queries > SIZE_MAX / 2) return "retrieve: no queries (rows of %zu, %zu weights)";
    if (!(a->tau > 0) || !(a->eps >= 0) || a->threshold != a->threshold)
        return "retrieve: tau must be positive, eps not negative, the threshold a number (rows of %zu, %zu weights)";
    *status = CMHA_ERR_SHAPE;
    if (w_logits->size != a->queries || cmha__last(q) % (2 * a->queries))
        return "retrieve: rows of %zu numbers and %zu weights do not fit the number of queries";
    if (kb && kb->n && cmha__last(q) / 2 / a->queries != kb->d_r)
        return "retrieve: rows of %zu numbers for %zu queries, the documents have other widths";
    return NULL;
}

/* Everything between the tensors q, w_logits and rbar. */
static void cmha__retrieve_run(cmha_tape *tape, const cmha_knowledge *kb, const cmha__retrieve_saved *s, cmha__search *search,
                               const cmha_tensor *q, cmha_real *rbar) {
    size_t M = s->args.queries, k = s->args.top, W = 2 * s->d_r;
    cmha_real *u = cmha__reals(tape, s->T * M * W);
    cmha_status status;
    search->similarity = cmha__reals(tape, search->lists);
    search->scratch = cmha__reals(tape, (size_t)search->threads * search->tiles);
    search->index = (int64_t *)cmha_tape_alloc(tape, search->lists * sizeof *search->index);
    if (tape->status || cmha__dry(tape)) return;
    if (!s->vectors) {
        memset(rbar, 0, s->T * W * sizeof *rbar);
        memset(s->found, 0, s->T);
        return;
    }
    CMHA__FOR_CHUNKS(search->threads, s->T, lo, hi) { cmha__retrieve_phasors(s, q->data, lo, hi, u, NULL); }
    status = cmha__search_run(search, tape->context, kb, u, s->args.threshold, s->index, s->p);
    if (status) {
        cmha__stop(tape, status);
        return;
    }
    CMHA__FOR_CHUNKS(search->threads, s->T, lo, hi) {
        cmha_retrieve_forward(s->vectors, s->index + lo * M * k, s->p + lo * M * k, s->weights, hi - lo, M, k, s->d_r, s->args.tau,
                              s->p + lo * M * k, rbar + lo * W, s->found + lo);
    }
}

CMHA_DEF cmha_tensor *cmha_retrieve(cmha_tape *tape, const cmha_knowledge *knowledge, const cmha_retrieve_args *args,
                                    cmha_tensor *q, cmha_tensor *w_logits, const unsigned char **found) {
    size_t shape[CMHA_MAX_RANK], Q, n_lists, M;
    cmha__retrieve_saved *s;
    cmha__search search;
    cmha_tensor *in[2], *y;
    cmha_status status;
    const char *misfit;
    cmha__mark mark;
    if (!q || !w_logits || !tape || tape->status) return NULL;
    misfit = cmha__retrieve_misfit(knowledge, args, q, w_logits, &status);
    if (misfit) return cmha__reject(tape, status, misfit, cmha__last(q), w_logits->size);
    s = (cmha__retrieve_saved *)cmha__record_alloc(tape, sizeof *s);
    if (!s) return NULL;
    s->args = *args, M = args->queries;
    s->T = cmha__rows(q), s->d_r = cmha__last(q) / 2 / M;
    if (!cmha__mul(s->T, M, &Q) || cmha__search_sizes(&search, tape->context->threads, Q, s->d_r, args->top) ||
        !cmha__mul(Q, args->top, &n_lists) || search.lists > SIZE_MAX / 16)
        return cmha__reject(tape, CMHA_ERR_OVERFLOW, "retrieve: %zu rows, %zu queries each", s->T, M);
    memcpy(shape, q->shape, sizeof shape);
    shape[q->rank - 1] = 2 * s->d_r;
    y = cmha__result(tape, q->rank, shape);
    s->weights = cmha__reals(tape, M);
    s->p = cmha__reals(tape, n_lists);
    s->index = (int64_t *)cmha_tape_alloc(tape, n_lists * sizeof *s->index);
    s->found = (unsigned char *)cmha_tape_alloc(tape, s->T);
    if (!y || tape->status) return NULL;
    if (knowledge && knowledge->n && args->top && Q && s->d_r) s->vectors = knowledge->vectors, s->features = knowledge->features;
    if (!cmha__dry(tape)) cmha__retrieve_weights(s, w_logits->data, s->weights);
    mark = cmha__mark_of(tape);
    cmha__retrieve_run(tape, knowledge, s, &search, q, y->data);
    cmha__rewind(tape, mark);
    if (tape->status) return NULL;
    if (found) *found = s->found;
    in[0] = q, in[1] = w_logits;
    return cmha_push(tape, "retrieve", y, in, 2, cmha__retrieve_record, s);
}

typedef struct cmha__reflect_saved {
    cmha_real tau;
    cmha_fusion fusion;
    const unsigned char *found;
} cmha__reflect_saved;

static cmha_status cmha__reflect_record(cmha_tape *tape, cmha_record *r) {
    const cmha__reflect_saved *s = (const cmha__reflect_saved *)r->user;
    cmha_real *dz = cmha_grad(tape, r->in[0]), *dv = cmha_grad(tape, r->in[1]), *dg = cmha_grad(tape, r->in[2]);
    size_t D = cmha__last(r->out) / 2, W = 2 * D;
    if (tape->status || cmha__dry(tape)) return tape->status;
    CMHA__FOR_CHUNKS(tape->context->threads, cmha__rows(r->out), lo, hi) {
        cmha_reflect_backward(r->in[0]->data + lo * W, r->in[1]->data + lo * W, r->in[2]->data + lo * D,
                              s->found ? s->found + lo : NULL, r->out->grad + lo * W, hi - lo, D, s->tau, s->fusion,
                              dz ? dz + lo * W : NULL, dv ? dv + lo * W : NULL, dg ? dg + lo * D : NULL);
    }
    return CMHA_OK;
}

CMHA_DEF cmha_tensor *cmha_reflect(cmha_tape *tape, cmha_tensor *z, cmha_tensor *v, cmha_tensor *gate, cmha_real tau,
                                   cmha_fusion fusion, const unsigned char *found) {
    cmha__reflect_saved *s;
    cmha_tensor *in[3], *y;
    size_t D, W;
    if (!z || !v || !gate || !tape || tape->status || !cmha__is_planes(tape, z, "reflect")) return NULL;
    W = cmha__last(z), D = W / 2;
    if (!(tau > 0)) return cmha__reject(tape, CMHA_ERR_ARGUMENT, "reflect: tau must be positive");
    if (cmha__last(v) != W || v->size != z->size || cmha__last(gate) != D || gate->size != z->size / 2)
        return cmha__reject(tape, CMHA_ERR_SHAPE, "reflect: rows of %zu numbers of z do not fit those of v or a gate of %zu", W,
                                cmha__last(gate));
    y = cmha__result(tape, z->rank, z->shape);
    s = y ? (cmha__reflect_saved *)cmha__record_alloc(tape, sizeof *s) : NULL;
    if (!s) return NULL;
    s->tau = tau, s->fusion = fusion, s->found = found;
    if (!cmha__dry(tape))
        CMHA__FOR_CHUNKS(tape->context->threads, cmha__rows(z), lo, hi) {
            cmha_reflect_forward(z->data + lo * W, v->data + lo * W, gate->data + lo * D, found ? found + lo : NULL, hi - lo, D,
                                 tau, fusion, y->data + lo * W);
        }
    in[0] = z, in[1] = v, in[2] = gate;
    return cmha_push(tape, "reflect", y, in, 3, cmha__reflect_record, s);
}

/* [2, rows, cols] as a real [2 rows, cols]: for a real input the two are one map. */
static cmha_tensor *cmha__stacked(cmha_tape *tape, cmha_tensor *weight) {
    size_t shape[2];
    if (weight->rank != 3 || weight->shape[0] != 2)
        return cmha__reject(tape, CMHA_ERR_SHAPE, "irw: the weight of the queries must be [2, M d_r, D]");
    shape[0] = 2 * weight->shape[1], shape[1] = weight->shape[2];
    return cmha_reshape(tape, weight, 2, shape);
}

CMHA_DEF cmha_tensor *cmha_irw(cmha_tape *tape, const cmha_knowledge *knowledge, const cmha_retrieve_args *args, cmha_real gate_tau,
                               cmha_fusion fusion, cmha_tensor *z, const cmha_irw_weights *weights) {
    const unsigned char *found = NULL;
    cmha_tensor *q, *rbar, *gate;
    if (!z || !weights || !tape || tape->status || !cmha__is_planes(tape, z, "irw")) return NULL;
    if (!weights->wm || !weights->w_logits || !weights->wv || !weights->wg)
        return cmha__reject(tape, CMHA_ERR_ARGUMENT, "irw: a weight is missing");
    if (!cmha__dry(tape) && (!knowledge || !knowledge->n)) return z;
    q = cmha_linear(tape, cmha_complex_imag(tape, z), cmha__stacked(tape, weights->wm), weights->bm);
    rbar = cmha_retrieve(tape, knowledge, args, q, weights->w_logits, &found);
    gate = rbar ? cmha_linear(tape, cmha_concat(tape, z, rbar, z->rank - 1), weights->wg, weights->bg) : NULL;
    return cmha_reflect(tape, z, cmha_complex_linear(tape, rbar, weights->wv, NULL), gate, gate_tau, fusion, found);
}

/* =================================================== Attention ==================================================== */

/* ---- The SDPA core: softmax(scale Q'K'^T + mask) V in tiles of 64 queries by 64 keys. Every kind of attention differs only in
        the features Q' and K' that go in. ---- */

#define CMHA__TILE ((size_t)64)

CMHA_DEF cmha_heads cmha_heads_major(cmha_real *data, size_t H, size_t N, size_t d) {
    cmha_heads view;
    view.data = data;
    view.batch = H * N * d;
    view.head = N * d;
    view.token = d;
    view.imag = 0;
    return view;
}

CMHA_DEF cmha_heads cmha_tokens_major(cmha_real *data, size_t N, size_t row, size_t d) {
    cmha_heads view;
    view.data = data;
    view.batch = N * row;
    view.head = d;
    view.token = row;
    view.imag = 0;
    return view;
}

CMHA_DEF cmha_heads cmha_complex_heads_major(cmha_real *data, size_t H, size_t N, size_t d) {
    cmha_heads view = cmha_heads_major(data, H, N, 2 * d);
    view.imag = d;
    return view;
}

CMHA_DEF cmha_heads cmha_complex_tokens_major(cmha_real *data, size_t N, size_t row, size_t d, size_t imag) {
    cmha_heads view = cmha_tokens_major(data, N, row, d);
    view.imag = imag;
    return view;
}

static cmha_real *cmha__head_at(cmha_heads view, size_t b, size_t h) {
    return view.data ? view.data + b * view.batch + h * view.head : NULL;
}

CMHA_DEF void cmha_alibi_slopes(size_t H, cmha_real *slopes) {
    for (size_t h = 0; h < H; h++) slopes[h] = (cmha_real)pow(2.0, -8.0 * (double)(h + 1) / (double)H);
}

/* SCORE: where a row's largest |O| is, and the gradient of what it is divided by. */
typedef struct cmha__peak {
    double gradient;
    size_t key; /* SIZE_MAX: no key is permitted */
} cmha__peak;

CMHA_DEF void cmha_cope_args(cmha_attention_args *args, const cmha_cope_options *options) {
    cmha_real s = (cmha_real)(1 / sqrt((double)(args->d_k ? args->d_k : 1))), twice = options->repo_scale ? s : 1;
    cmha_cope_score score = options->score;
    int norm = score == CMHA_COPE_HYBRID_NORM, hybrid = norm || score == CMHA_COPE_HYBRID;
    args->kind = CMHA_ATTENTION_COMPLEX;
    args->softmax = score == CMHA_COPE_REAL ? CMHA_SOFTMAX_REAL : CMHA_SOFTMAX_SCORE;
    args->scale = score == CMHA_COPE_REAL ? s * twice : s;
    args->complex_v = args->bilinear = 0;
    args->magnitude = norm ? 1 : hybrid || score == CMHA_COPE_MAGNITUDE ? twice : 0;
    args->cosine = hybrid ? options->alpha : score == CMHA_COPE_PHASE ? 1 : 0;
    args->eps = options->eps;
    args->norm_max = norm ? options->norm_max : CMHA_MAX_NONE;
    args->norm_max_grad = norm && options->norm_max_grad;
}

/* One query head of one sequence, its features ready. Key j of a query row i is at distance i + offset - j. */
typedef struct cmha__head {
    const cmha_attention_args *args;
    size_t dk, dv;               /* numbers in a row of features and of values */
    const cmha_real *q;          /* features [n_q, dk], ldq apart */
    const cmha_real *turned;     /* SCORE: the features that give Im O, [n_q, dk] like q, which then gives Re O; else NULL */
    size_t ldq;
    const cmha_real *keys;       /* features, transposed: tiles [ceil(n_k / 64)][dk][64] */
    const cmha_real *v;          /* [n_k, dv], ldv apart */
    size_t ldv;
    const unsigned char *mask;   /* [n_k] or NULL */
    cmha_real slope;             /* ALiBi, 0 = none */
    uint64_t row_key;            /* dropout: row i draws from row_key + i */
    cmha_real *re, *im;          /* SCORE: O of the tile at work, [64, 64] each */
    const cmha_real *peaks;      /* SCORE: what each row's magnitudes are divided by, [n_q] or NULL */
    int careful;                 /* scores in double: a row whose scores have left the range of the type is at work */
    size_t piece, pieces;        /* at work are tiles piece, piece + pieces, ... of queries in forward, of keys in backward */
} cmha__head;

static size_t cmha__tiles(size_t n) { return (n + CMHA__TILE - 1) / CMHA__TILE; }

/* A product of tiles, beta 0 or 1. What is not as wide as whole vectors is left to the BLAS, which pays off from a few rows on. */
static void cmha__tile_gemm(int trans_a, size_t M, size_t N, size_t K, cmha_real alpha, const cmha_real *A, size_t lda,
                            const cmha_real *B, size_t ldb, cmha_real beta, cmha_real *C, size_t ldc) {
    if (M > 4 || trans_a) {
#ifdef CMHA__GEMM_VECTORS
        if (N % (size_t)CMHA__GEMM_LANES == 0) {
            cmha__product p;
            p.trans_a = trans_a, p.trans_b = 0, p.M = M, p.N = N, p.K = K, p.alpha = alpha, p.beta = beta;
            p.A = A, p.lda = lda, p.B = B, p.ldb = ldb, p.C = C, p.ldc = ldc;
            cmha__panel(&p);
            return;
        }
#endif
        cmha_gemm(trans_a, 0, M, N, K, alpha, A, lda, B, ldb, beta, C, ldc);
        return;
    }
    for (size_t i = 0; i < M; i++) {
        if (beta == 0) memset(C + i * ldc, 0, N * sizeof *C);
        for (size_t k = 0; k < K; k++) cmha__axpy(N, alpha * A[i * lda + k], B + k * ldb, C + i * ldc);
    }
}

/* Keys [begin, end) that query row i may see by position. */
static void cmha__visible(const cmha_attention_args *a, size_t i, size_t *begin, size_t *end) {
    size_t reach = i + a->n_k; /* one past the row's own position, shifted by n_q so that it cannot go below zero */
    *begin = 0;
    *end = a->n_k;
    if (!a->causal) return;
    reach = reach + 1 > a->n_q ? reach + 1 - a->n_q : 0;
    if (reach < *end) *end = reach;
    if (a->window && reach > a->window) *begin = reach - a->window;
}

/* Adds biases and removes what is masked from scores S [rows, 64] of queries i0.. and keys j0... */
static void cmha__mask_tile(const cmha__head *h, cmha_real *S, size_t i0, size_t rows, size_t j0) {
    size_t cols = h->args->n_k - j0 < CMHA__TILE ? h->args->n_k - j0 : CMHA__TILE;
    for (size_t r = 0; r < rows; r++, S += CMHA__TILE) {
        size_t begin, end;
        cmha__visible(h->args, i0 + r, &begin, &end);
        if (h->slope > 0) {
            ptrdiff_t own = (ptrdiff_t)(i0 + r + h->args->n_k) - (ptrdiff_t)h->args->n_q;
            for (size_t j = 0; j < cols; j++) {
                ptrdiff_t distance = own - (ptrdiff_t)(j0 + j);
                S[j] -= h->slope * (cmha_real)(distance < 0 ? -distance : distance);
            }
        }
        if (begin > j0)
            for (size_t j = 0; j < CMHA__TILE && j0 + j < begin; j++) S[j] = -(cmha_real)INFINITY;
        for (size_t j = end > j0 ? end - j0 : 0; j < CMHA__TILE; j++) S[j] = -(cmha_real)INFINITY;
        if (h->mask)
            for (size_t j = 0; j < cols; j++)
                if (!h->mask[j0 + j]) S[j] = -(cmha_real)INFINITY;
    }
}

/* h->re, h->im = O of queries i0.. against the tile of keys that begins at j0. */
static void cmha__products(const cmha__head *h, size_t i0, size_t rows, size_t j0) {
    const cmha_real *keys = h->keys + j0 * h->dk;
    cmha__tile_gemm(0, rows, CMHA__TILE, h->dk, 1, h->q + i0 * h->ldq, h->ldq, keys, CMHA__TILE, 0, h->re, CMHA__TILE);
    cmha__tile_gemm(0, rows, CMHA__TILE, h->dk, 1, h->turned + i0 * h->ldq, h->ldq, keys, CMHA__TILE, 0, h->im, CMHA__TILE);
}

/* The factors on |O| of row i and on the cosine. */
static cmha_real cmha__magnitude_factor(const cmha__head *h, size_t i) {
    cmha_real factor = h->args->scale * h->args->magnitude;
    return h->peaks ? factor / (h->peaks[i] + (cmha_real)1e-12) : factor;
}

/* SCORE: S [rows, 64] from O. */
static void cmha__score_tile(const cmha__head *h, size_t i0, size_t rows, cmha_real *S) {
    cmha_real c = h->args->scale * h->args->cosine, e = h->args->eps;
    for (size_t r = 0; r < rows; r++) {
        cmha_real m = cmha__magnitude_factor(h, i0 + r);
        const cmha_real *re = h->re + r * CMHA__TILE, *im = h->im + r * CMHA__TILE;
        for (size_t j = 0; j < CMHA__TILE; j++) {
            cmha_real size = cmha__hypot(re[j], im[j]), smooth = cmha__hypot(size, e);
            S[r * CMHA__TILE + j] = m * size + c * re[j] / (smooth > 0 ? smooth : 1);
        }
    }
}

/* SCORE: dO from the scores' gradient dS, into h->re and h->im; places [rows] (or NULL) gets that of each row's divisor. */
static void cmha__score_back(const cmha__head *h, size_t i0, size_t rows, const cmha_real *dS, cmha__peak *places) {
    cmha_real c = h->args->scale * h->args->cosine, e = h->args->eps;
    for (size_t r = 0; r < rows; r++) {
        cmha_real m = cmha__magnitude_factor(h, i0 + r), sum = 0;
        cmha_real *re = h->re + r * CMHA__TILE, *im = h->im + r * CMHA__TILE;
        const cmha_real *d = dS + r * CMHA__TILE;
        if (places) {
            for (size_t j = 0; j < CMHA__TILE; j++) sum += d[j] == 0 ? 0 : d[j] * cmha__hypot(re[j], im[j]);
            places[r].gradient -= (double)(sum * m / (h->peaks[i0 + r] + (cmha_real)1e-12));
        }
        for (size_t j = 0; j < CMHA__TILE; j++) {
            cmha_real size = cmha__hypot(re[j], im[j]), smooth = cmha__hypot(size, e), some = size > 0 ? size : 1;
            cmha_real out = 1 / (smooth > CMHA__SMALLEST ? smooth : CMHA__SMALLEST); /* finite for denormals too */
            cmha_real x = re[j] * out, y = im[j] * out, f = e * out, radial = d[j] * m, turn = d[j] * c;
            cmha_real gr = radial * (re[j] / some) + turn * ((y * y + f * f) * out),
                      gi = radial * (im[j] / some) - turn * (x * y * out);
            re[j] = d[j] == 0 ? 0 : gr; /* a masked pair, whose product may have overflown */
            im[j] = d[j] == 0 ? 0 : gi;
        }
    }
}

/* A query's feature row times column j of a tile of keys. Over the largest factors, so that only the result may overflow. */
static double cmha__careful_dot(const cmha_real *q, const cmha_real *keys, size_t dk, size_t j) {
    double a = 0, b = 0, sum = 0;
    for (size_t i = 0; i < dk; i++) {
        double x = fabs((double)q[i]), y = fabs((double)keys[i * CMHA__TILE + j]);
        a = x > a ? x : a;
        b = y > b ? y : b;
    }
    a = a > 0 ? a : 1;
    b = b > 0 ? b : 1;
    for (size_t i = 0; i < dk; i++) sum += (double)q[i] / a * ((double)keys[i * CMHA__TILE + j] / b);
    return sum * a * b;
}

/* A score the type can hold. Beyond 1e30 the scale is logarithmic: a softmax of such scores needs their order alone. NaN stays. */
static cmha_real cmha__careful_score(double score) {
    double limit = 1e30, size = fabs(score);
    if (!(size > limit)) return (cmha_real)score;
    size = limit * (1 + (size <= DBL_MAX ? log(size / limit) : 1000));
    return (cmha_real)(score < 0 ? -size : size);
}

/* The same scores as cmha__scores makes for one query, i0 + r, whatever the size of the products. */
CMHA__COLD static void cmha__careful_row(const cmha__head *h, size_t i0, size_t r, size_t j0, cmha_real *S) {
    const cmha_attention_args *a = h->args;
    const cmha_real *q = h->q + (i0 + r) * h->ldq, *keys = h->keys + j0 * h->dk;
    size_t cols = a->n_k - j0 < CMHA__TILE ? a->n_k - j0 : CMHA__TILE;
    for (size_t j = 0; j < cols; j++) {
        double score = (double)a->scale * cmha__careful_dot(q, keys, h->dk, j);
        if (h->turned) {
            double re = score / (a->scale > 0 || a->scale < 0 ? (double)a->scale : 1), size, smooth, fit;
            double im = cmha__careful_dot(h->turned + (i0 + r) * h->ldq, keys, h->dk, j);
            size = hypot(re, im), smooth = hypot(size, (double)a->eps), fit = size > 1e18 ? 1e18 / size : 1;
            score = (double)cmha__magnitude_factor(h, i0 + r) * size;
            score += (double)(a->scale * a->cosine) * (smooth > 0 ? re / smooth : 0);
            h->re[r * CMHA__TILE + j] = (cmha_real)(re * fit); /* for the gradient, which needs the direction */
            h->im[r * CMHA__TILE + j] = (cmha_real)(im * fit);
        }
        S[j] = cmha__careful_score(score);
    }
    cmha__mask_tile(h, S, i0 + r, 1, j0);
}

/* Does query i see any key? */
static int cmha__sees(const cmha__head *h, size_t i) {
    size_t j, end;
    for (cmha__visible(h->args, i, &j, &end); j < end; j++)
        if (!h->mask || h->mask[j]) return 1;
    return 0;
}

/* S [rows, 64] = masked scores of queries i0.. against the tile of keys that begins at j0. */
static void cmha__scores(const cmha__head *h, size_t i0, size_t rows, size_t j0, cmha_real *S) {
    const cmha_attention_args *a = h->args;
    size_t begin, end, last_begin, last_end;
    if (h->careful) {
        cmha__careful_row(h, i0, 0, j0, S); /* rows = 1 */
        return;
    }
    if (h->turned) {
        cmha__products(h, i0, rows, j0);
        cmha__score_tile(h, i0, rows, S);
    } else {
        cmha__tile_gemm(0, rows, CMHA__TILE, h->dk, a->scale, h->q + i0 * h->ldq, h->ldq, h->keys + j0 * h->dk, CMHA__TILE, 0, S,
                        CMHA__TILE);
    }
    cmha__visible(a, i0, &begin, &end);
    cmha__visible(a, i0 + rows - 1, &last_begin, &last_end);
    if (h->mask || h->slope > 0 || last_begin > j0 || end < j0 + CMHA__TILE) cmha__mask_tile(h, S, i0, rows, j0);
}

/* The same dropout bits in forward and backward: a row's key, then the key index. */
static void cmha__drop_tile(const cmha__head *h, cmha_real *S, size_t i0, size_t rows, size_t j0) {
    for (size_t r = 0; r < rows; r++)
        cmha__drop_row(S + r * CMHA__TILE, CMHA__TILE, h->args->dropout, cmha__mix(h->row_key + i0 + r), (uint32_t)j0);
}

/* One tile of the running softmax: S becomes exp(S - m), the accumulators move to the new maximum. */
static void cmha__softmax_tile(cmha_real *S, size_t rows, size_t dv, cmha_real *m, cmha_real *l, cmha_real *acc) {
    cmha_real shift[CMHA__TILE], move[CMHA__TILE];
    for (size_t r = 0; r < rows; r++) shift[r] = cmha__larger(cmha__largest_64(S + r * CMHA__TILE), m[r]);
    for (size_t r = 0; r < rows; r++) {
        cmha_real old = m[r];
        m[r] = shift[r];
        shift[r] = shift[r] > -(cmha_real)INFINITY ? shift[r] : 0; /* nothing visible yet */
        move[r] = cmha__exp(old - shift[r]);                       /* 1 where the maximum stays */
    }
    for (size_t r = 0; r < rows; r++, S += CMHA__TILE, acc += dv) {
        if (move[r] < 1) {
            l[r] *= move[r];
            for (size_t i = 0; i < dv; i++) acc[i] *= move[r];
        }
        l[r] += cmha__exp_shifted(S, CMHA__TILE, shift[r]);
    }
}

/* y, lse of up to 64 queries from i0. work: S [64, 64], m, l [64], acc [64, dv]. */
static void cmha__forward_rows(const cmha__head *h, size_t i0, size_t rows, cmha_real *y, size_t ldy, cmha_real *lse,
                               cmha_real *work) {
    const cmha_attention_args *a = h->args;
    size_t dv = h->dv, begin, end, none;
    cmha_real *S = work, *m = S + CMHA__TILE * CMHA__TILE, *l = m + CMHA__TILE, *acc = l + CMHA__TILE;
    memset(l, 0, (CMHA__TILE + rows * dv) * sizeof *l);
    for (size_t r = 0; r < rows; r++) m[r] = -(cmha_real)INFINITY;
    cmha__visible(a, i0, &begin, &none);
    cmha__visible(a, i0 + rows - 1, &none, &end);
    for (size_t j0 = begin / CMHA__TILE * CMHA__TILE; j0 < end; j0 += CMHA__TILE) {
        size_t cols = a->n_k - j0 < CMHA__TILE ? a->n_k - j0 : CMHA__TILE;
        cmha__scores(h, i0, rows, j0, S);
        cmha__softmax_tile(S, rows, dv, m, l, acc);
        if (a->dropout > 0) cmha__drop_tile(h, S, i0, rows, j0);
        if (dv) cmha__tile_gemm(0, rows, dv, cols, 1, S, CMHA__TILE, h->v + j0 * h->ldv, h->ldv, 1, acc, dv);
    }
    for (size_t r = 0; r < rows; r++) {
        cmha_real inverse = l[r] > 0 ? 1 / l[r] : l[r]; /* an empty row gives 0; NaN stays NaN */
        for (size_t i = 0; i < dv; i++) y[r * ldy + i] = acc[r * dv + i] * inverse;
        if (lse) {
            lse[2 * (i0 + r)] = l[r] > 0 ? m[r] : 0;
            lse[2 * (i0 + r) + 1] = l[r] > 0 ? (cmha_real)log((double)l[r]) : l[r];
        }
    }
}

/* Rows whose sum l of exponentials is NaN, or 0 although they see a key, once more with care: products of theirs have left the
   range of the type (or are NaN, and stay it). A negative logarithm (or -0) in their lse tells the backward. */
CMHA__COLD static void cmha__forward_lost(const cmha__head *h, size_t i0, size_t rows, cmha_real *y, size_t ldy, cmha_real *lse,
                                          cmha_real *work) {
    const cmha_real *l = work + CMHA__TILE * CMHA__TILE + CMHA__TILE;
    unsigned char lost[CMHA__TILE];
    cmha__head slow = *h;
    size_t r, n = 0;
    slow.careful = 1;
    for (r = 0; r < rows; r++)
        if (l[r] != l[r] || (l[r] == 0 && cmha__sees(h, i0 + r))) lost[n++] = (unsigned char)r;
    while (n > 0) {
        r = lost[--n];
        cmha__forward_rows(&slow, i0 + r, 1, y ? y + r * ldy : NULL, ldy, lse, work);
        if (lse) lse[2 * (i0 + r) + 1] = -lse[2 * (i0 + r) + 1];
    }
}

static void cmha__forward_head(const cmha__head *h, cmha_real *y, size_t ldy, cmha_real *lse, cmha_real *work) {
    const cmha_real *l = work + CMHA__TILE * CMHA__TILE + CMHA__TILE;
    size_t n = h->args->n_q, rows, r;
    for (size_t i0 = h->piece * CMHA__TILE; i0 < n; i0 += h->pieces * CMHA__TILE) {
        rows = n - i0 < CMHA__TILE ? n - i0 : CMHA__TILE;
        cmha__forward_rows(h, i0, rows, y ? y + i0 * ldy : NULL, ldy, lse, work);
        for (r = 0; r < rows && l[r] > 0;) r++;
        if (r < rows) cmha__forward_lost(h, i0, rows, y ? y + i0 * ldy : NULL, ldy, lse, work);
    }
}

/* to [cols, rows] = from [rows, cols]^T. */
static void cmha__transpose(const cmha_real *from, size_t ld_from, size_t rows, size_t cols, cmha_real *to, size_t ld_to) {
    for (size_t c = 0; c < cols; c++)
        for (size_t r = 0; r < rows; r++) to[c * ld_to + r] = from[r * ld_from + c];
}

/* What the backward of one head works with, beside the head itself. */
typedef struct cmha__backward_head {
    const cmha_real *lse, *D;    /* [n_q, 2]; [n_q], D = rowsum(dy * y) - dlse */
    const cmha_real *dy;         /* rows lddy apart */
    size_t lddy;
    cmha_real *dq, *dturned, *dk; /* features [n_q, dk] twice, [n_k, dk], accumulated */
    cmha_real *dv;               /* rows lddv apart, accumulated; may be NULL */
    size_t lddv;
    cmha__peak *places;          /* [n_q] where the gradient of the divisors is wanted, else NULL */
    cmha_real *S, *dS, *k_rows, *v_columns; /* [64, 64] twice, [64, dk], [dv, 64] */
} cmha__backward_head;

/* S = probabilities, dS = gradient of the scores before the scale, of queries i0.. against keys j0... */
static void cmha__backward_scores(const cmha__head *h, const cmha__backward_head *g, size_t i0, size_t rows, size_t j0) {
    const cmha_attention_args *a = h->args;
    cmha_real scale = h->turned ? 1 : a->scale; /* SCORE has it in its own factors */
    const cmha_real tiny = CMHA__SMALLEST * (cmha_real)1e8; /* below it, and as denormals, they would only slow the products, many times over */
    cmha__scores(h, i0, rows, j0, g->S);
    if (h->dv)
        cmha__tile_gemm(0, rows, CMHA__TILE, h->dv, 1, g->dy + i0 * g->lddy, g->lddy, g->v_columns, CMHA__TILE, 0, g->dS,
                        CMHA__TILE);
    else
        memset(g->dS, 0, rows * CMHA__TILE * sizeof *g->dS);
    if (a->dropout > 0) cmha__drop_tile(h, g->dS, i0, rows, j0);
    for (size_t r = 0; r < rows; r++) {
        cmha_real *p = g->S + r * CMHA__TILE, *d = g->dS + r * CMHA__TILE;
        cmha_real top = g->lse[2 * (i0 + r)], rest = g->lse[2 * (i0 + r) + 1], D = g->D[i0 + r];
        if (!(rest > 0) && copysign(1.0, (double)rest) < 0) { /* see cmha__forward_lost */
            cmha__careful_row(h, i0, r, j0, p);
            rest = -rest;
        }
        for (size_t j = 0; j < CMHA__TILE; j++) {
            cmha_real e = cmha__exp((p[j] - top) - rest), slope;
            p[j] = e < tiny ? 0 : e;
            slope = p[j] * (d[j] - D) * scale;
            d[j] = slope < CMHA__SMALLEST && slope > -CMHA__SMALLEST ? 0 : slope;
        }
    }
    if (a->dropout > 0) cmha__drop_tile(h, g->S, i0, rows, j0);
}

/* First and one-past-last query row that sees a key of [j0, j0 + cols). */
static void cmha__seeing(const cmha_attention_args *a, size_t j0, size_t cols, size_t *begin, size_t *end) {
    *begin = 0;
    *end = a->n_q;
    if (!a->causal) return;
    if (j0 + a->n_q > a->n_k) *begin = j0 + a->n_q - a->n_k;
    if (a->window && a->window < a->n_k) {
        size_t last = j0 + cols - 1 + a->window + a->n_q; /* row i sees key j while i + n_k - n_q - j < window */
        last = last > a->n_k ? last - a->n_k : 0;
        if (last < *end) *end = last;
    }
}

/* One set of query features: dQ += dS K and dK += dS^T Q. */
static void cmha__backward_features(const cmha__head *h, const cmha__backward_head *g, const cmha_real *q, const cmha_real *dS,
                                    size_t i0, size_t rows, size_t j0, size_t cols, cmha_real *dq) {
    size_t dk = h->dk;
    cmha__tile_gemm(0, rows, dk, cols, 1, dS, CMHA__TILE, g->k_rows, dk, 1, dq + i0 * dk, dk);
    cmha__tile_gemm(1, cols, dk, rows, 1, dS, CMHA__TILE, q + i0 * h->ldq, h->ldq, 1, g->dk + j0 * dk, dk);
}

static void cmha__backward_tile(const cmha__head *h, const cmha__backward_head *g, size_t j0) {
    const cmha_attention_args *a = h->args;
    size_t cols = a->n_k - j0 < CMHA__TILE ? a->n_k - j0 : CMHA__TILE, dk = h->dk, dv = h->dv, rows, begin, end;
    cmha__transpose(h->keys + j0 * dk, CMHA__TILE, dk, cols, g->k_rows, dk);
    if (dv) memset(g->v_columns, 0, dv * CMHA__TILE * sizeof *g->v_columns);
    if (dv) cmha__transpose(h->v + j0 * h->ldv, h->ldv, cols, dv, g->v_columns, CMHA__TILE);
    cmha__seeing(a, j0, cols, &begin, &end);
    for (size_t i0 = begin / CMHA__TILE * CMHA__TILE; i0 < end; i0 += rows) {
        rows = end - i0 < CMHA__TILE ? end - i0 : CMHA__TILE;
        cmha__backward_scores(h, g, i0, rows, j0);
        if (dv && g->dv) /* dV += P^T dY */
            cmha__tile_gemm(1, cols, dv, rows, 1, g->S, CMHA__TILE, g->dy + i0 * g->lddy, g->lddy, 1, g->dv + j0 * g->lddv,
                            g->lddv);
        if (h->turned) {
            cmha__score_back(h, i0, rows, g->dS, g->places ? g->places + i0 : NULL);
            cmha__backward_features(h, g, h->q, h->re, i0, rows, j0, cols, g->dq);
            cmha__backward_features(h, g, h->turned, h->im, i0, rows, j0, cols, g->dturned);
        } else {
            cmha__backward_features(h, g, h->q, g->dS, i0, rows, j0, cols, g->dq);
        }
    }
}

/* ---- Features of queries and keys ---- */

/* The query head's delta and b (NULL where the kind has none) and its rotation rows. */
typedef struct cmha__feature {
    const cmha_real *delta, *b, *rotation;
    size_t P, first_q, first_k; /* row of the rotation table of query 0 and key 0 */
} cmha__feature;

static cmha__feature cmha__feature_of(const cmha_attention_args *a, size_t head) {
    cmha__feature f;
    size_t n = a->n_q > a->n_k ? a->n_q : a->n_k, own = a->share == CMHA_SHARE_PER_HEAD ? head : 0;
    int learned = a->kind == CMHA_ATTENTION_CMHA && a->share != CMHA_SHARE_FIXED;
    f.P = a->d_k / 2;
    f.delta = learned ? a->delta + own * f.P : NULL;
    f.b = learned ? a->b + own * f.P : NULL;
    f.rotation = a->rotation ? a->rotation + head * a->rotation_head : NULL;
    f.first_q = n - a->n_q;
    f.first_k = n - a->n_k;
    return f;
}

/* Does the feature of a key depend on the query head that sees it? */
static int cmha__own_keys(int kind, int share, int per_head_tables) {
    return (kind == CMHA_ATTENTION_CMHA && (per_head_tables || share == CMHA_SHARE_PER_HEAD)) ||
           (kind == CMHA_ATTENTION_ROPE && per_head_tables);
}

/* Do the query heads of a group see different features of the same key? */
static int cmha__keys_differ(const cmha_attention_args *a) {
    return a->heads != a->kv_heads && cmha__own_keys((int)a->kind, (int)a->share, a->rotation_head != 0);
}

static int cmha__is_complex(const cmha_attention_args *a) {
    return a->kind == CMHA_ATTENTION_COMPLEX || a->kind == CMHA_ATTENTION_ANGULAR;
}

static size_t cmha__key_width(const cmha_attention_args *a) { return cmha__is_complex(a) ? 2 * a->d_k : a->d_k; }
static size_t cmha__value_width(const cmha_attention_args *a) { return cmha__is_complex(a) && a->complex_v ? 2 * a->d_v : a->d_v; }

/* to [n, 2d] = [Re | Im] of n complex rows of a view; and the other way round, added. */
static void cmha__pack(const cmha_real *from, size_t ld, size_t imag, size_t n, size_t d, cmha_real *to) {
    for (size_t i = 0; i < n; i++) {
        memcpy(to + i * 2 * d, from + i * ld, d * sizeof *to);
        memcpy(to + i * 2 * d + d, from + i * ld + imag, d * sizeof *to);
    }
}

static void cmha__add_packed(const cmha_real *rows, size_t n, size_t d, cmha_real *to, size_t ld, size_t imag) {
    for (size_t i = 0; i < n; i++) {
        cmha__axpy(d, 1, rows + i * 2 * d, to + i * ld);
        cmha__axpy(d, 1, rows + i * 2 * d + d, to + i * ld + imag);
    }
}

/* A head's array in one sequence, as rows. */
typedef struct cmha__rows_of {
    cmha_real *data;
    size_t ld, imag;
} cmha__rows_of;

static cmha__rows_of cmha__rows_at(cmha_heads view, size_t b, size_t h) {
    cmha__rows_of rows;
    rows.data = cmha__head_at(view, b, h);
    rows.ld = view.token;
    rows.imag = view.imag;
    return rows;
}

/* y [n, dk] = features of the raw rows from `first` on; b is the query's bias. Not for DOT, whose rows are their own features. */
static void cmha__features(const cmha_attention_args *a, const cmha__feature *f, cmha__rows_of x, size_t first, size_t n,
                           const cmha_real *table, const cmha_real *b, cmha_real *y) {
    const cmha_real *from = x.data + first * x.ld;
    if (!cmha__is_complex(a)) {
        cmha_rotate_forward(from, x.ld, n, f->P, a->layout, table + first * a->d_k, f->delta, b, y, a->d_k);
        return;
    }
    if (a->kind == CMHA_ATTENTION_COMPLEX) cmha__pack(from, x.ld, x.imag, n, a->d_k, y);
    else
        for (; n > 0; n--, from += x.ld, y += 2 * a->d_k) cmha__phasor_row(from, from + x.imag, a->d_k, a->eps, 1, y, y + a->d_k);
}

/* Feature gradients dy [n, dk] back to the raw rows x. */
static void cmha__features_back(const cmha_attention_args *a, const cmha__feature *f, cmha__rows_of x, size_t n,
                                const cmha_real *table, const cmha_real *b, const cmha_real *dy, cmha_real *dx, double *ddelta,
                                double *db) {
    size_t d = a->d_k;
    if (a->kind == CMHA_ATTENTION_CMHA || a->kind == CMHA_ATTENTION_ROPE) {
        cmha_rotate_backward(x.data, x.ld, n, f->P, a->layout, table, f->delta, b, dy, d, dx, ddelta, db);
        return;
    }
    for (size_t i = 0; dx && i < n; i++) {
        const cmha_real *z = x.data + i * x.ld;
        cmha_real *to = dx + i * x.ld;
        if (a->kind == CMHA_ATTENTION_DOT) cmha__axpy(d, 1, dy + i * d, to);
        else if (a->kind == CMHA_ATTENTION_COMPLEX) cmha__add_packed(dy + i * 2 * d, 1, d, to, x.ld, x.imag);
        else cmha__phasor_row_backward(z, z + x.imag, d, a->eps, 1, dy + i * 2 * d, dy + i * 2 * d + d, to, to + x.imag);
    }
}

/* Features of n keys into the transposed tiles, the first at column `at`. rows [64, dk] is scratch. */
static void cmha__write_keys(const cmha_attention_args *a, const cmha__feature *f, cmha__rows_of k, size_t n, size_t at,
                             cmha_real *keys, cmha_real *rows) {
    size_t i, count, column, d = cmha__key_width(a);
    const cmha_real *table = f->rotation ? f->rotation + f->first_k * a->d_k : NULL;
    for (i = 0; i < n; i += count) {
        column = (at + i) % CMHA__TILE;
        count = n - i < CMHA__TILE - column ? n - i : CMHA__TILE - column;
        if (a->kind == CMHA_ATTENTION_DOT) {
            cmha__transpose(k.data + i * k.ld, k.ld, count, d, keys + (at + i - column) * d + column, CMHA__TILE);
            continue;
        }
        cmha__features(a, f, k, i, count, table, NULL, rows);
        cmha__transpose(rows, d, count, d, keys + (at + i - column) * d + column, CMHA__TILE);
    }
}

/* ---- The forms of a complex softmax ---- */

/* One real softmax of a complex attention: its query features are form (Re q, Im q), the key's are (Re k, Im k), and its product o
   with the values enters y as mix (Re o, Im o). Both are 2 x 2 matrices of signs. */
typedef struct cmha__term {
    signed char form[4], mix[4];
} cmha__term;

/* Forms of Re O and Im O, with and without the conjugate of k. */
#define CMHA__RE_HERMITIAN {1, 0, 0, 1}
#define CMHA__IM_HERMITIAN {0, 1, -1, 0}
#define CMHA__RE_BILINEAR {1, 0, 0, -1}
#define CMHA__IM_BILINEAR {0, 1, 1, 0}
#define CMHA__TIMES_1 {1, 0, 0, 1}
#define CMHA__TIMES_I {0, -1, 1, 0}

static const signed char cmha__imaginary[2][4] = {CMHA__IM_HERMITIAN, CMHA__IM_BILINEAR}; /* by `bilinear` */

static const cmha__term *cmha__terms(const cmha_attention_args *a, int *count) {
    static const cmha__term product[2][2] = {{{CMHA__RE_HERMITIAN, CMHA__TIMES_1}, {CMHA__IM_HERMITIAN, CMHA__TIMES_I}},
                                             {{CMHA__RE_BILINEAR, CMHA__TIMES_1}, {CMHA__IM_BILINEAR, CMHA__TIMES_I}}};
    static const cmha__term split[2][2] = {{{CMHA__RE_HERMITIAN, {1, 0, 0, 0}}, {CMHA__IM_HERMITIAN, {0, 0, 0, 1}}},
                                           {{CMHA__RE_BILINEAR, {1, 0, 0, 0}}, {CMHA__IM_BILINEAR, {0, 0, 0, 1}}}};
    static const cmha__term yang[4] = {{{1, 0, 0, 0}, CMHA__TIMES_1},
                                       {{0, 0, 1, 0}, CMHA__TIMES_I},
                                       {{0, 1, 0, 0}, CMHA__TIMES_I},
                                       {{0, 0, 0, 1}, {-1, 0, 0, -1}}};
    int form = a->bilinear != 0;
    *count = 1;
    if (!cmha__is_complex(a)) return product[0];
    if (a->softmax == CMHA_SOFTMAX_YANG8) *count = 4;
    if (a->softmax == CMHA_SOFTMAX_RI_PRODUCT || a->softmax == CMHA_SOFTMAX_RI_SPLIT) *count = 2;
    if (*count > 1 && !a->d_v) *count = 0; /* no values, and no lse either: nothing depends on q and k */
    return a->softmax == CMHA_SOFTMAX_YANG8 ? yang : a->softmax == CMHA_SOFTMAX_RI_SPLIT ? split[form] : product[form];
}

/* to [n, 2d] += or = matrix applied to the two halves of from [n, 2d]; back: its transpose. from may be to unless `add`. */
static void cmha__apply(const signed char *matrix, int back, const cmha_real *from, size_t n, size_t d, cmha_real *to, int add) {
    cmha_real m0 = matrix[0], m1 = matrix[back ? 2 : 1], m2 = matrix[back ? 1 : 2], m3 = matrix[3];
    for (size_t i = 0; i < n; i++, from += 2 * d, to += 2 * d)
        for (size_t j = 0; j < d; j++) {
            cmha_real re = from[j], im = from[d + j];
            to[j] = (add ? to[j] : 0) + m0 * re + m1 * im;
            to[d + j] = (add ? to[d + j] : 0) + m2 * re + m3 * im;
        }
}

/* ---- One head of one sequence ---- */

/* Scratch of one thread. The keys' and values' own in a cache: CMHA__CACHED. */
enum { CMHA__FORWARD, CMHA__BACKWARD, CMHA__CACHED };

typedef struct cmha__unit {
    cmha_real *keys, *values, *q, *turned, *rows, *work, *re, *im, *out;
    cmha_real *dq, *dturned, *dk, *fold, *again, *dvalues, *dout, *D, *v_columns;
    cmha_real *peaks;   /* of a cached pass, which has no shared part */
    cmha__peak *places;
} cmha__unit;

/* The next n numbers of a scratch array; base NULL only counts. */
static cmha_real *cmha__deal(cmha_real *base, size_t *used, size_t n) {
    cmha_real *part = base ? base + *used : NULL;
    *used += (n + 15) / 16 * 16;
    return part;
}

/* Reals that hold this many bytes: on 32-bit x86 a place has 12, which is no multiple of a double. */
static size_t cmha__reals_for(size_t bytes) { return (bytes + sizeof(cmha_real) - 1) / sizeof(cmha_real); }

/* Deals `base` out to the arrays a head needs and returns how much that is. */
static size_t cmha__deal_unit(const cmha_attention_args *a, int mode, cmha_real *base, cmha__unit *u) {
    size_t dk = cmha__key_width(a), dv = cmha__value_width(a), tile = CMHA__TILE * CMHA__TILE, used = 0;
    int packed = cmha__is_complex(a), score = packed && a->softmax == CMHA_SOFTMAX_SCORE, own = mode != CMHA__CACHED;
    u->keys = cmha__deal(base, &used, own ? cmha__tiles(a->n_k) * CMHA__TILE * dk : 0);
    u->values = cmha__deal(base, &used, own && dv > a->d_v ? a->n_k * dv : 0);
    u->q = cmha__deal(base, &used, a->kind == CMHA_ATTENTION_DOT ? 0 : a->n_q * dk);
    u->turned = cmha__deal(base, &used, score ? a->n_q * dk : 0);
    u->rows = cmha__deal(base, &used, CMHA__TILE * dk);
    u->work = cmha__deal(base, &used, CMHA__TILE * (2 * CMHA__TILE + 2 + dv));
    u->re = cmha__deal(base, &used, score ? 2 * tile : 0);
    u->im = score && base ? u->re + tile : NULL;
    u->out = cmha__deal(base, &used, dv > a->d_v ? a->n_q * dv : 0);
    u->peaks = cmha__deal(base, &used, !own && score ? a->n_q : 0);
    u->places = (cmha__peak *)(void *)cmha__deal(base, &used,
                                                 !own && score ? cmha__reals_for(a->n_q * sizeof(cmha__peak)) : 0);
    if (mode != CMHA__BACKWARD) return used;
    u->dq = cmha__deal(base, &used, a->n_q * dk);
    u->dturned = cmha__deal(base, &used, score ? a->n_q * dk : 0);
    u->dk = cmha__deal(base, &used, a->n_k * dk);
    u->fold = cmha__deal(base, &used, packed ? a->n_q * dk : 0);
    u->again = cmha__deal(base, &used, packed ? a->n_q * 2 : 0);
    u->dvalues = cmha__deal(base, &used, dv > a->d_v ? a->n_k * dv : 0);
    u->dout = cmha__deal(base, &used, dv > a->d_v ? a->n_q * dv : 0);
    u->D = cmha__deal(base, &used, a->n_q);
    u->v_columns = cmha__deal(base, &used, CMHA__TILE * dv);
    return used;
}

static void cmha__set_head(cmha__head *h, const cmha_attention_args *a, const cmha__unit *u, size_t batch, size_t head) {
    memset(h, 0, sizeof *h);
    h->args = a;
    h->dk = cmha__key_width(a);
    h->dv = cmha__value_width(a);
    h->mask = a->key_mask ? a->key_mask + batch * a->n_k : NULL;
    h->slope = a->alibi ? a->alibi[head] : 0;
    h->row_key = cmha__mix(a->key) + (batch * a->heads + head) * a->n_q;
    h->re = u->re;
    h->im = u->im;
    h->keys = u->keys;
    h->pieces = 1;
}

/* The head's query features of one term: the raw rows for DOT, else computed into the unit's arrays. */
static void cmha__set_queries(cmha__head *h, const cmha__unit *u, const cmha__feature *f, cmha__rows_of q, const cmha__term *term) {
    const cmha_attention_args *a = h->args;
    const cmha_real *table = f->rotation ? f->rotation + f->first_q * a->d_k : NULL;
    h->q = a->kind == CMHA_ATTENTION_DOT ? q.data : u->q;
    h->ldq = a->kind == CMHA_ATTENTION_DOT ? q.ld : h->dk;
    if (a->kind == CMHA_ATTENTION_DOT) return;
    cmha__features(a, f, q, 0, a->n_q, table, f->b, u->q);
    if (!cmha__is_complex(a)) return;
    if (a->softmax == CMHA_SOFTMAX_SCORE) {
        cmha__apply(cmha__imaginary[a->bilinear != 0], 0, u->q, a->n_q, a->d_k, u->turned, 0);
        h->turned = u->turned;
    }
    cmha__apply(term->form, 0, u->q, a->n_q, a->d_k, u->q, 0);
}

/* The head's values: in place where they are real, else packed. */
static void cmha__set_values(cmha__head *h, const cmha__unit *u, cmha__rows_of v, int fresh) {
    const cmha_attention_args *a = h->args;
    int packed = h->dv > a->d_v;
    if (packed && fresh) cmha__pack(v.data, v.ld, v.imag, a->n_k, a->d_v, u->values);
    h->v = packed ? u->values : v.data;
    h->ldv = packed ? h->dv : v.ld;
}

/* y of a head whose keys and values are set: every term's softmax, mixed. */
static void cmha__forward_terms(cmha__head *h, const cmha__unit *u, const cmha__feature *f, cmha__rows_of q, cmha__rows_of y,
                                cmha_real *lse) {
    const cmha_attention_args *a = h->args;
    int count;
    const cmha__term *terms = cmha__terms(a, &count);
    if (!count) return;
    if (h->dv == a->d_v) {
        cmha__set_queries(h, u, f, q, terms);
        cmha__forward_head(h, y.data, y.ld, lse, u->work);
        return;
    }
    for (size_t i = 0; i < a->n_q; i++) {
        memset(y.data + i * y.ld, 0, a->d_v * sizeof *y.data);
        memset(y.data + i * y.ld + y.imag, 0, a->d_v * sizeof *y.data);
    }
    for (int t = 0; t < count; t++) {
        cmha__set_queries(h, u, f, q, &terms[t]);
        cmha__forward_head(h, u->out, h->dv, count == 1 ? lse : NULL, u->work);
        cmha__apply(terms[t].mix, 0, u->out, a->n_q, a->d_v, u->out, 0);
        cmha__add_packed(u->out, a->n_q, a->d_v, y.data, y.ld, y.imag);
    }
}

/* ---- SCORE's divisors: the largest |O| of every row, head or batch, in a pass of their own before the softmax ---- */

static int cmha__has_peaks(const cmha_attention_args *a) {
    return cmha__is_complex(a) && a->softmax == CMHA_SOFTMAX_SCORE && a->norm_max != CMHA_MAX_NONE;
}

/* peaks [n_q] and places [n_q] of one head. GLOBAL looks at masked pairs too. */
static void cmha__find_peaks(const cmha__head *h, cmha_real *peaks, cmha__peak *places) {
    const cmha_attention_args *a = h->args;
    size_t rows;
    for (size_t i0 = 0; i0 < a->n_q; i0 += rows) {
        rows = a->n_q - i0 < CMHA__TILE ? a->n_q - i0 : CMHA__TILE;
        for (size_t r = 0; r < rows; r++) peaks[i0 + r] = 0, places[i0 + r].key = SIZE_MAX, places[i0 + r].gradient = 0;
        for (size_t j0 = 0; j0 < a->n_k; j0 += CMHA__TILE) {
            size_t cols = a->n_k - j0 < CMHA__TILE ? a->n_k - j0 : CMHA__TILE;
            cmha__products(h, i0, rows, j0);
            for (size_t r = 0; r < rows; r++) {
                size_t begin, end;
                cmha_real *re = h->re + r * CMHA__TILE, *im = h->im + r * CMHA__TILE;
                cmha__visible(a, i0 + r, &begin, &end);
                for (size_t j = 0; j < cols; j++) re[j] = cmha__hypot(re[j], im[j]);
                for (size_t j = 0; j < cols; j++) {
                    int allowed = a->norm_max == CMHA_MAX_GLOBAL ||
                                  (j0 + j >= begin && j0 + j < end && (!h->mask || h->mask[j0 + j]));
                    if (!allowed || (places[i0 + r].key != SIZE_MAX && !(re[j] > peaks[i0 + r]))) continue;
                    peaks[i0 + r] = re[j] == re[j] ? re[j] : (cmha_real)INFINITY; /* inf - inf; a NaN shows in the scores */
                    places[i0 + r].key = j0 + j;
                }
            }
        }
    }
}

/* Rows of padding have no peak to offer. */
static void cmha__drop_peaks(const unsigned char *query_mask, size_t n, cmha__peak *places) {
    for (size_t i = 0; i < n; i++)
        if (!query_mask[i]) places[i].key = SIZE_MAX;
}

/* The row of [begin, end) that holds the largest peak; the first one of equals. SIZE_MAX if no row has one. */
static size_t cmha__highest(const cmha_real *peaks, const cmha__peak *places, size_t begin, size_t end) {
    size_t best = SIZE_MAX;
    for (size_t i = begin; i < end; i++)
        if (places[i].key != SIZE_MAX && (best == SIZE_MAX || peaks[i] > peaks[best])) best = i;
    return best;
}

/* Rows that share one divisor: one, a head's, or all. */
static size_t cmha__peak_group(const cmha_attention_args *a) {
    return a->norm_max == CMHA_MAX_ROW ? 1 : a->norm_max == CMHA_MAX_HEAD ? a->n_q : a->batch * a->heads * a->n_q;
}

/* divisors [B, H, n_q] from peaks of the same shape. */
static void cmha__spread_peaks(const cmha_attention_args *a, const cmha_real *peaks, const cmha__peak *places,
                               cmha_real *divisors) {
    size_t total = a->batch * a->heads * a->n_q, group = cmha__peak_group(a), begin, i;
    for (begin = 0; begin < total; begin += group) {
        size_t best = cmha__highest(peaks, places, begin, begin + group);
        for (i = begin; i < begin + group; i++) divisors[i] = best == SIZE_MAX ? 0 : peaks[best];
    }
}

/* The gradient of a maximum into the pair it was taken from: dO = g O / |O|. */
static void cmha__peak_pair(const cmha_attention_args *a, const cmha__rows_of *q, const cmha__rows_of *k, size_t row, size_t key,
                            double g, cmha_real *dq, cmha_real *dk) {
    const cmha_real *qr = q->data + row * q->ld, *qi = qr + q->imag, *kr = k->data + key * k->ld, *ki = kr + k->imag;
    double sign = a->bilinear ? -1 : 1, re = 0, im = 0, size;
    size_t d = a->d_k;
    for (size_t j = 0; j < d; j++) {
        re += (double)qr[j] * (double)kr[j] + sign * (double)qi[j] * (double)ki[j];
        im += (double)qi[j] * (double)kr[j] - sign * (double)qr[j] * (double)ki[j];
    }
    size = hypot(re, im);
    if (!(size > 0)) return;
    re = re / size * g;
    im = im / size * g;
    for (size_t j = 0; j < d; j++) {
        if (dq) {
            dq[row * q->ld + j] += (cmha_real)(re * (double)kr[j] - sign * im * (double)ki[j]);
            dq[row * q->ld + q->imag + j] += (cmha_real)(im * (double)kr[j] + sign * re * (double)ki[j]);
        }
        if (dk) {
            dk[key * k->ld + j] += (cmha_real)(re * (double)qr[j] + im * (double)qi[j]);
            dk[key * k->ld + k->imag + j] += (cmha_real)(sign * (re * (double)qi[j] - im * (double)qr[j]));
        }
    }
}

/* ---- Attention = feature map, core, and the feature map's backward ---- */

/* How many pieces the tiles of a long head may be dealt out to, so that few heads keep the cores busy too; there is memory for them
   whatever its length. By the shape alone: a number that depended on the threads would change the order of sums. The terms of a
   complex softmax are of a head as a whole. */
static size_t cmha__most_pieces(const cmha_attention_args *a) {
    size_t units = a->batch * a->kv_heads;
    return cmha__is_complex(a) || !units || units > 7 ? 1 : (8 + units - 1) / units;
}

static size_t cmha__head_pieces(const cmha_attention_args *a) {
    return a->n_q < 1024 || a->n_k < 1024 ? 1 : cmha__most_pieces(a);
}

static int cmha__attention_threads(const cmha_attention_args *a) {
    size_t units = a->batch * a->kv_heads * cmha__head_pieces(a);
    int threads = a->threads > 0 ? a->threads : 1;
    return (size_t)threads > units ? (units ? (int)units : 1) : threads;
}

/* A head of sequence b with its keys in the unit; fresh: the unit still holds another key head's. */
static void cmha__open_head(const cmha_attention_args *a, const cmha__unit *u, cmha_heads k, size_t b, size_t head, int fresh,
                            cmha__head *h, cmha__feature *f) {
    size_t kv = head / (a->heads / a->kv_heads);
    *f = cmha__feature_of(a, head);
    cmha__set_head(h, a, u, b, head);
    if (fresh || cmha__keys_differ(a)) cmha__write_keys(a, f, cmha__rows_at(k, b, kv), a->n_k, 0, u->keys, u->rows);
}

/* What all threads share at the head of the scratch: doubles for ddelta and db of every head, peaks and their places. */
typedef struct cmha__shared {
    double *partial;       /* [B, H, 2, P] */
    cmha__peak *places;    /* [B, H, n_q] */
    cmha_real *peaks, *divisors;
    cmha_real *dq, *dk;    /* of heads in pieces: [B, H, pieces, n_q, dk], [B, H, n_k, dk] */
} cmha__shared;

static size_t cmha__deal_shared(const cmha_attention_args *a, int mode, cmha_real *base, cmha__shared *x) {
    size_t heads = a->batch * a->heads, rows = cmha__has_peaks(a) ? heads * a->n_q : 0, used = 0;
    size_t width = cmha__key_width(a), pieces = cmha__most_pieces(a), own = mode == CMHA__BACKWARD && pieces > 1 ? heads : 0;
    int learned = mode == CMHA__BACKWARD && a->kind == CMHA_ATTENTION_CMHA;
    x->partial = (double *)(void *)cmha__deal(base, &used,
                                              cmha__reals_for(learned ? heads * (a->d_k / 2) * 2 * sizeof(double) : 0));
    x->places = (cmha__peak *)(void *)cmha__deal(base, &used, cmha__reals_for(rows * sizeof(cmha__peak)));
    x->peaks = cmha__deal(base, &used, rows);
    x->divisors = cmha__deal(base, &used, rows);
    x->dq = cmha__deal(base, &used, own * pieces * a->n_q * width);
    x->dk = cmha__deal(base, &used, own * a->n_k * width);
    return used;
}

CMHA_DEF size_t cmha_attention_scratch(const cmha_attention_args *args, int backward) {
    cmha__unit unit;
    cmha__shared shared;
    size_t own = cmha__deal_unit(args, backward ? CMHA__BACKWARD : CMHA__FORWARD, NULL, &unit);
    size_t length = cmha__deal_shared(args, backward ? CMHA__BACKWARD : CMHA__FORWARD, NULL, &shared) +
                    own * (size_t)cmha__attention_threads(args) + 1; /* + 1: never empty */
    double threads = args->threads > 1 ? args->threads : 1, heads = (double)args->batch * (double)args->heads;
    double rows = (double)args->n_q + (double)args->n_k + CMHA__TILE, d_k = (double)args->d_k;
    double width = d_k + (double)args->d_v + CMHA__TILE;
    return cmha__countable(length, rows * (32 * threads * width + 8 * heads * (d_k + 1)));
}

/* Fills in the divisors of the whole batch. scratch: the threads' part. */
static void cmha__all_peaks(const cmha_attention_args *a, cmha_heads q, cmha_heads k, const cmha__shared *x, int mode,
                            cmha_real *scratch) {
    cmha__unit none;
    size_t own = cmha__deal_unit(a, mode, NULL, &none), group = a->kv_heads ? a->heads / a->kv_heads : 1;
    int count;
    const cmha__term *terms = cmha__terms(a, &count);
    CMHA__FOR_CHUNKS(cmha__attention_threads(a), a->batch * a->kv_heads, lo, hi) {
        cmha__unit u;
        cmha__deal_unit(a, mode, scratch + (size_t)cmha__chunk * own, &u);
        memset(u.keys, 0, cmha__tiles(a->n_k) * CMHA__TILE * cmha__key_width(a) * sizeof *u.keys);
        for (size_t i = lo * group; i < hi * group; i++) { /* heads of all sequences, those of a group one after another */
            size_t b = i / a->heads, head = i % a->heads, at = i * a->n_q;
            cmha__feature f;
            cmha__head h;
            cmha__open_head(a, &u, k, b, head, i % group == 0, &h, &f);
            cmha__set_queries(&h, &u, &f, cmha__rows_at(q, b, head), terms);
            cmha__find_peaks(&h, x->peaks + at, x->places + at);
            if (a->norm_max == CMHA_MAX_HEAD && a->query_mask)
                cmha__drop_peaks(a->query_mask + b * a->n_q, a->n_q, x->places + at);
        }
    }
    cmha__spread_peaks(a, x->peaks, x->places, x->divisors);
}

CMHA_DEF void cmha_attention_forward(const cmha_attention_args *args, cmha_heads q, cmha_heads k, cmha_heads v, cmha_heads y,
                                     cmha_real *lse, cmha_real *scratch) {
    cmha__unit none;
    cmha__shared x;
    size_t group = args->kv_heads ? args->heads / args->kv_heads : 0, own = cmha__deal_unit(args, CMHA__FORWARD, NULL, &none);
    size_t pieces = cmha__head_pieces(args);
    scratch += cmha__deal_shared(args, CMHA__FORWARD, scratch, &x);
    if (cmha__has_peaks(args)) cmha__all_peaks(args, q, k, &x, CMHA__FORWARD, scratch);
    CMHA__FOR_CHUNKS(cmha__attention_threads(args), args->batch * args->kv_heads * pieces, lo, hi) {
        cmha__unit u;
        cmha__deal_unit(args, CMHA__FORWARD, scratch + (size_t)cmha__chunk * own, &u);
        memset(u.keys, 0, cmha__tiles(args->n_k) * CMHA__TILE * cmha__key_width(args) * sizeof *u.keys); /* columns beyond n_k stay zero */
        for (size_t item = lo; item < hi; item++)
            for (size_t i = item / pieces * group; i < (item / pieces + 1) * group; i++) {
                size_t b = i / args->heads, head = i % args->heads;
                int fresh = i % group == 0 && (item == lo || item % pieces == 0);
                cmha__feature f;
                cmha__head h;
                cmha__open_head(args, &u, k, b, head, fresh, &h, &f);
                cmha__set_values(&h, &u, cmha__rows_at(v, b, head / group), fresh);
                if (cmha__has_peaks(args)) h.peaks = x.divisors + i * args->n_q;
                h.piece = item % pieces, h.pieces = pieces;
                cmha__forward_terms(&h, &u, &f, cmha__rows_at(q, b, head), cmha__rows_at(y, b, head),
                                    lse ? lse + i * args->n_q * 2 : NULL);
            }
    }
}

/* The arrays of cmha_attention_backward, so that one head's part is a function of its own. */
typedef struct cmha__backward_arrays {
    cmha_heads q, k, v, y, dy, dq, dk, dv;
    const cmha_real *lse, *dlse;
    cmha__shared shared;
} cmha__backward_arrays;

/* D [n_q] = rowsum(dy * y) - dlse: what the softmax's backward subtracts from dP. Formed by the same matrix product as dP, as the
   diagonal of dY Y^T: where one key takes all the weight, the two then cancel to the last bit, however large the logits. */
static void cmha__row_products(const cmha__head *h, const cmha__backward_head *g, const cmha_real *y, size_t ldy,
                               const cmha_real *dlse, cmha_real *D) {
    size_t n = h->args->n_q, dv = h->dv, rows;
    for (size_t i0 = 0; i0 < n; i0 += rows) {
        rows = n - i0 < CMHA__TILE ? n - i0 : CMHA__TILE;
        if (dv) {
            memset(g->v_columns, 0, dv * CMHA__TILE * sizeof *g->v_columns);
            cmha__transpose(y + i0 * ldy, ldy, rows, dv, g->v_columns, CMHA__TILE);
            cmha__tile_gemm(0, rows, CMHA__TILE, dv, 1, g->dy + i0 * g->lddy, g->lddy, g->v_columns, CMHA__TILE, 0, g->S,
                            CMHA__TILE);
        }
        for (size_t r = 0; r < rows; r++) {
            D[i0 + r] = dv ? g->S[r * CMHA__TILE + r] : 0;
            if (dlse) D[i0 + r] -= dlse[i0 + r];
        }
    }
}

/* The output and its cotangent as one term sees them: in place where the values are real; else the term's own output, which is y
   itself where there is one term and is computed again where there are several, and the mixed cotangent. */
static void cmha__term_arrays(const cmha__head *h, const cmha__unit *u, cmha__backward_head *g, const cmha__term *term, int count,
                              cmha__rows_of y, cmha__rows_of dy, const cmha_real **out, size_t *ldo) {
    const cmha_attention_args *a = h->args;
    g->dy = dy.data;
    g->lddy = dy.ld;
    *out = y.data;
    *ldo = y.ld;
    if (h->dv == a->d_v) return;
    cmha__pack(dy.data, dy.ld, dy.imag, a->n_q, a->d_v, u->dout);
    cmha__apply(term->mix, 1, u->dout, a->n_q, a->d_v, u->dout, 0);
    if (count == 1) {
        cmha__pack(y.data, y.ld, y.imag, a->n_q, a->d_v, u->out);
    } else {
        cmha__forward_head(h, u->out, h->dv, u->again, u->work);
        g->lse = u->again;
    }
    g->dy = u->dout;
    g->lddy = h->dv;
    *out = u->out;
    *ldo = h->dv;
}

/* One term's backward: into the unit's feature gradients and, folded back to (Re q, Im q), into fold. */
static void cmha__backward_term(cmha__head *h, const cmha__unit *u, cmha__backward_head *g, const cmha__feature *f, cmha__rows_of q,
                                const cmha__term *term, int count, cmha__rows_of y, cmha__rows_of dy, const cmha_real *dlse) {
    const cmha_attention_args *a = h->args;
    const cmha_real *out;
    size_t ldo;
    cmha__set_queries(h, u, f, q, term);
    cmha__term_arrays(h, u, g, term, count, y, dy, &out, &ldo);
    cmha__row_products(h, g, out, ldo, dlse, u->D);
    memset(g->dq, 0, a->n_q * h->dk * sizeof *g->dq);
    if (h->turned) memset(u->dturned, 0, a->n_q * h->dk * sizeof *u->dturned);
    for (size_t j0 = h->piece * CMHA__TILE; j0 < a->n_k; j0 += h->pieces * CMHA__TILE) cmha__backward_tile(h, g, j0);
    if (!cmha__is_complex(a)) return;
    cmha__apply(term->form, 1, u->dq, a->n_q, a->d_k, u->fold, 1);
    if (h->turned) cmha__apply(cmha__imaginary[a->bilinear != 0], 1, u->dturned, a->n_q, a->d_k, u->fold, 1);
}

/* A head's gradients to where the caller wants them: dq (of its features, or folded) and dk. */
static void cmha__collect(const cmha_attention_args *a, const cmha__feature *f, const cmha__backward_arrays *x, size_t b, size_t head,
                          const cmha_real *dq, const cmha_real *dk, const cmha_real *dvalues) {
    size_t kv = head / (a->heads / a->kv_heads);
    double *partial = x->shared.partial ? x->shared.partial + (b * a->heads + head) * 2 * f->P : NULL;
    const cmha_real *table_q = f->rotation ? f->rotation + f->first_q * a->d_k : NULL;
    const cmha_real *table_k = f->rotation ? f->rotation + f->first_k * a->d_k : NULL;
    cmha__rows_of dv = cmha__rows_at(x->dv, b, kv);
    cmha__features_back(a, f, cmha__rows_at(x->q, b, head), a->n_q, table_q, f->b, dq, cmha__head_at(x->dq, b, head), partial,
                        partial ? partial + f->P : NULL);
    cmha__features_back(a, f, cmha__rows_at(x->k, b, kv), a->n_k, table_k, NULL, dk, cmha__head_at(x->dk, b, kv), partial, NULL);
    if (dvalues && dv.data) cmha__add_packed(dvalues, a->n_k, a->d_v, dv.data, dv.ld, dv.imag);
}

/* A head in pieces: their dq in a fixed order, then as above. */
static void cmha__collect_pieces(const cmha_attention_args *a, const cmha__backward_arrays *x, size_t pieces, size_t b, size_t head) {
    size_t unit = b * a->heads + head, n = a->n_q * cmha__key_width(a), i;
    cmha_real *dq = x->shared.dq + unit * pieces * n;
    cmha__feature f = cmha__feature_of(a, head);
    for (i = 1; i < pieces; i++) cmha__axpy(n, 1, dq + i * n, dq);
    cmha__collect(a, &f, x, b, head, dq, x->shared.dk + unit * a->n_k * cmha__key_width(a), NULL);
}

/* One head of one sequence, or one piece of it, which leaves its part for cmha__collect_pieces. */
static void cmha__backward_one(const cmha_attention_args *a, const cmha__backward_arrays *x, const cmha__unit *u, size_t b,
                               size_t head, size_t piece, size_t pieces, int first) {
    cmha__feature f;
    size_t unit = b * a->heads + head, kv = head / (a->heads / a->kv_heads), j0;
    cmha__rows_of q = cmha__rows_at(x->q, b, head), y = cmha__rows_at(x->y, b, head), dy = cmha__rows_at(x->dy, b, head);
    int count;
    const cmha__term *terms = cmha__terms(a, &count);
    cmha__head h;
    cmha__backward_head g;
    cmha__open_head(a, u, x->k, b, head, first, &h, &f);
    cmha__set_values(&h, u, cmha__rows_at(x->v, b, kv), first);
    if (cmha__has_peaks(a)) h.peaks = x->shared.divisors + unit * a->n_q;
    memset(&g, 0, sizeof g);
    g.S = u->work;
    g.dS = u->work + CMHA__TILE * CMHA__TILE;
    g.k_rows = u->rows;
    g.v_columns = u->v_columns;
    g.D = u->D;
    h.piece = piece, h.pieces = pieces;
    g.dq = pieces > 1 ? x->shared.dq + (unit * pieces + piece) * a->n_q * h.dk : u->dq;
    g.dturned = u->dturned;
    g.dk = pieces > 1 ? x->shared.dk + unit * a->n_k * h.dk : u->dk;
    g.lse = x->lse ? x->lse + unit * a->n_q * 2 : NULL;
    g.dv = h.dv > a->d_v ? u->dvalues : cmha__head_at(x->dv, b, kv);
    g.lddv = h.dv > a->d_v ? h.dv : x->dv.token;
    g.places = cmha__has_peaks(a) && a->norm_max_grad ? x->shared.places + unit * a->n_q : NULL;
    for (j0 = piece * CMHA__TILE; j0 < a->n_k; j0 += pieces * CMHA__TILE)
        memset(g.dk + j0 * h.dk, 0, (a->n_k - j0 < CMHA__TILE ? a->n_k - j0 : CMHA__TILE) * h.dk * sizeof *g.dk);
    if (h.dv > a->d_v) memset(u->dvalues, 0, a->n_k * h.dv * sizeof *u->dvalues);
    if (cmha__is_complex(a)) memset(u->fold, 0, a->n_q * h.dk * sizeof *u->fold);
    for (int t = 0; t < count; t++)
        cmha__backward_term(&h, u, &g, &f, q, &terms[t], count, y, dy, x->dlse ? x->dlse + unit * a->n_q : NULL);
    if (pieces == 1)
        cmha__collect(a, &f, x, b, head, cmha__is_complex(a) ? u->fold : u->dq, u->dk, h.dv > a->d_v ? u->dvalues : NULL);
}

/* ddelta and db from the heads' partial sums, in a fixed order whatever the number of threads. */
static void cmha__sum_partial(const cmha_attention_args *a, const double *partial, cmha_real *ddelta, cmha_real *db) {
    size_t P = a->d_k / 2, units = a->batch * a->heads;
    if (a->kind != CMHA_ATTENTION_CMHA || a->share == CMHA_SHARE_FIXED) return;
    for (size_t u = 0; u < units; u++) {
        size_t row = a->share == CMHA_SHARE_PER_HEAD ? u % a->heads : 0;
        for (size_t j = 0; j < P; j++) {
            if (ddelta) ddelta[row * P + j] += (cmha_real)partial[u * 2 * P + j];
            if (db) db[row * P + j] += (cmha_real)partial[u * 2 * P + P + j];
        }
    }
}

/* The gradients of the divisors, each into the one pair its maximum was taken from. */
static void cmha__peak_gradients(const cmha_attention_args *a, const cmha__backward_arrays *x) {
    size_t total = a->batch * a->heads * a->n_q, group = cmha__peak_group(a), begin, i;
    for (begin = 0; begin < total; begin += group) {
        size_t best = cmha__highest(x->shared.peaks, x->shared.places, begin, begin + group), head, b, kv;
        cmha__rows_of q, k;
        double g = 0;
        if (best == SIZE_MAX) continue;
        for (i = begin; i < begin + group; i++) g += x->shared.places[i].gradient;
        head = best / a->n_q % a->heads, b = best / a->n_q / a->heads, kv = head / (a->heads / a->kv_heads);
        q = cmha__rows_at(x->q, b, head), k = cmha__rows_at(x->k, b, kv);
        cmha__peak_pair(a, &q, &k, best % a->n_q, x->shared.places[best].key, g, cmha__head_at(x->dq, b, head),
                        cmha__head_at(x->dk, b, kv));
    }
}

CMHA_DEF void cmha_attention_backward(const cmha_attention_args *args, cmha_heads q, cmha_heads k, cmha_heads v, cmha_heads y,
                                      const cmha_real *lse, cmha_heads dy, const cmha_real *dlse, cmha_heads dq, cmha_heads dk,
                                      cmha_heads dv, cmha_real *ddelta, cmha_real *db, cmha_real *scratch) {
    cmha__unit none;
    size_t group = args->kv_heads ? args->heads / args->kv_heads : 0, own = cmha__deal_unit(args, CMHA__BACKWARD, NULL, &none);
    size_t pieces = cmha__head_pieces(args);
    cmha__backward_arrays x;
    x.q = q, x.k = k, x.v = v, x.y = y, x.dy = dy, x.dq = dq, x.dk = dk, x.dv = dv;
    x.lse = lse, x.dlse = dlse;
    scratch += cmha__deal_shared(args, CMHA__BACKWARD, scratch, &x.shared);
    if (args->kind == CMHA_ATTENTION_CMHA)
        memset(x.shared.partial, 0, args->batch * args->heads * 2 * (args->d_k / 2) * sizeof *x.shared.partial);
    else x.shared.partial = NULL;
    if (cmha__has_peaks(args)) cmha__all_peaks(args, q, k, &x.shared, CMHA__BACKWARD, scratch);
    CMHA__FOR_CHUNKS(cmha__attention_threads(args), args->batch * args->kv_heads * pieces, lo, hi) {
        cmha__unit u;
        cmha__deal_unit(args, CMHA__BACKWARD, scratch + (size_t)cmha__chunk * own, &u);
        memset(u.keys, 0, cmha__tiles(args->n_k) * CMHA__TILE * cmha__key_width(args) * sizeof *u.keys);
        for (size_t item = lo; item < hi; item++)
            for (size_t i = item / pieces * group; i < (item / pieces + 1) * group; i++)
                cmha__backward_one(args, &x, &u, i / args->heads, i % args->heads, item % pieces, pieces,
                                   i % group == 0 && (item == lo || item % pieces == 0));
    }
    if (pieces > 1) { /* heads of a group share dk, so a group is one thread's */
        CMHA__FOR_CHUNKS(args->threads, args->batch * args->kv_heads, from, to) {
            for (size_t i = from * group; i < to * group; i++) cmha__collect_pieces(args, &x, pieces, i / args->heads, i % args->heads);
        }
    }
    cmha__sum_partial(args, x.shared.partial, ddelta, db);
    if (cmha__has_peaks(args) && args->norm_max_grad) cmha__peak_gradients(args, &x);
}

/* ---- Attention ---- */

CMHA_DEF const cmha_real *cmha_rotation(cmha_tape *tape, const double *omega, size_t n_tables, size_t P, size_t n, ptrdiff_t pos0) {
    cmha_real *table;
    size_t size;
    if (!tape || tape->status) return NULL;
    if (!omega && n_tables && P) return (cmha__reject(tape, CMHA_ERR_ARGUMENT, "rotation: omega is NULL"), (cmha_real *)NULL);
    if (!cmha__mul(n_tables, n, &size) || !cmha__mul(size, 2, &size) || !cmha__mul(size, P, &size))
        return (cmha__reject(tape, CMHA_ERR_OVERFLOW, "rotation: the size of its table overflows"), (cmha_real *)NULL);
    table = cmha__reals(tape, size);
    for (size_t i = 0; table && i < n_tables && !cmha__dry(tape); i++)
        cmha_rotation_table(omega + i * P, P, n, pos0, table + i * n * 2 * P);
    return table;
}

typedef struct cmha__attention_saved {
    cmha_attention_args args;
    cmha_real *lse;
    size_t row; /* width of a fused projection, 0 = three tensors */
} cmha__attention_saved;

/* A token-major view of `heads` heads of d numbers, real or complex. */
static cmha_heads cmha__tokens_view(cmha_real *data, size_t N, size_t heads, size_t d, int is_complex) {
    return is_complex ? cmha_complex_tokens_major(data, N, 2 * heads * d, d, heads * d) : cmha_tokens_major(data, N, heads * d, d);
}

/* Views of the queries, keys and values in one fused array or three. */
static void cmha__views(const cmha__attention_saved *s, cmha_real *q, cmha_real *k, cmha_real *v, cmha_heads *view) {
    const cmha_attention_args *a = &s->args;
    int complex_k = cmha__is_complex(a), i;
    if (!s->row) {
        view[0] = cmha__tokens_view(q, a->n_q, a->heads, a->d_k, complex_k);
        view[1] = cmha__tokens_view(k, a->n_k, a->kv_heads, a->d_k, complex_k);
        view[2] = cmha__tokens_view(v, a->n_k, a->kv_heads, a->d_v, complex_k && a->complex_v);
        return;
    }
    for (i = 0; i < 3; i++) {
        size_t before = i == 0 ? 0 : a->heads + (size_t)(i - 1) * a->kv_heads;
        view[i] = cmha_tokens_major(q ? q + before * a->d_k : NULL, a->n_q, s->row, a->d_k);
        view[i].imag = complex_k ? s->row / 2 : 0;
    }
}

static cmha_heads cmha__out_view(const cmha_attention_args *a, cmha_real *y) {
    return cmha__tokens_view(y, a->n_q, a->heads, a->d_v, cmha__is_complex(a) && a->complex_v);
}

static cmha_status cmha__attention_record(cmha_tape *tape, cmha_record *r) {
    const cmha__attention_saved *s = (const cmha__attention_saved *)r->user;
    const cmha_attention_args *a = &s->args;
    cmha_tensor *q = r->in[0], *k = r->in[1], *v = r->in[2];
    cmha_real *dq = cmha_grad(tape, q), *dk = cmha_grad(tape, k), *dv = cmha_grad(tape, v), *scratch;
    cmha_real *ddelta = cmha_grad(tape, r->in[3]), *db = cmha_grad(tape, r->in[4]);
    cmha_heads x[3], d[3];
    cmha__mark mark = cmha__mark_of(tape);
    scratch = cmha__reals(tape, cmha_attention_scratch(a, 1));
    if (!tape->status && !cmha__dry(tape)) {
        cmha__views(s, q->data, k ? k->data : NULL, v ? v->data : NULL, x);
        cmha__views(s, dq, dk, dv, d);
        cmha_attention_backward(a, x[0], x[1], x[2], cmha__out_view(a, r->out->data), s->lse, cmha__out_view(a, r->out->grad), NULL,
                                d[0], d[1], d[2], ddelta, db, scratch);
    }
    cmha__rewind(tape, mark);
    return tape->status;
}

/* Fills in the sizes; returns a line with two %zu when the tensors do not fit, and the two numbers. */
static const char *cmha__attention_sizes(cmha__attention_saved *s, const cmha_tensor *q, const cmha_tensor *k, const cmha_tensor *v,
                                         size_t *one, size_t *two) {
    cmha_attention_args *a = &s->args;
    size_t planes = cmha__is_complex(a) ? 2 : 1, v_planes = cmha__is_complex(a) && a->complex_v ? 2 : 1;
    size_t parts, width = cmha__last(q);
    *one = a->heads, *two = a->kv_heads;
    if (!a->heads || !a->kv_heads || a->heads % a->kv_heads)
        return "attention: %zu heads cannot be grouped over %zu key/value heads";
    *one = width, *two = a->heads;
    if (a->heads > width / planes) return "attention: width %zu is not divisible by %zu heads"; /* so that parts cannot wrap */
    *two = parts = planes * (a->heads + (k ? 0 : 2 * a->kv_heads));
    if (q->rank != 3 || width % parts || !width) return "attention: width %zu is not divisible by %zu heads";
    if (!k != !v || (k && (k->rank != 3 || v->rank != 3))) return "attention: give k and v or neither (q of width %zu, %zu heads)";
    if (!k && planes != v_planes) return "attention: real values cannot be fused with complex queries (q of width %zu, %zu parts)";
    a->batch = q->shape[0];
    a->n_q = a->n_k = q->shape[1];
    a->d_k = a->d_v = width / parts;
    s->row = k ? 0 : width;
    if (!k) return NULL;
    a->n_k = k->shape[1];
    a->d_v = cmha__last(v) / (v_planes * a->kv_heads);
    *one = a->n_k, *two = v->shape[1];
    if (k->shape[0] != a->batch || v->shape[0] != a->batch || v->shape[1] != a->n_k)
        return "attention: keys for %zu tokens, values for %zu";
    *one = cmha__last(k), *two = planes * a->kv_heads * a->d_k;
    if (*one != *two || cmha__last(v) % (v_planes * a->kv_heads))
        return "attention: keys or values of width %zu where %zu is needed";
    return NULL;
}

/* A combination of options that means nothing; NULL if there is none. */
static const char *cmha__attention_options(const cmha_attention_args *a) {
    int needs_complex = a->softmax != CMHA_SOFTMAX_REAL && a->softmax != CMHA_SOFTMAX_SCORE;
    if ((int)a->kind < 0 || a->kind > CMHA_ATTENTION_ANGULAR) return "attention: there is no such kind";
    if (!cmha__is_complex(a)) return a->kind != CMHA_ATTENTION_DOT && !a->rotation ? "attention: no rotation table" : NULL;
    if ((int)a->softmax < 0 || a->softmax > CMHA_SOFTMAX_SCORE) return "attention: there is no such softmax";
    if (needs_complex && !a->complex_v) return "attention: this softmax needs complex values";
    if (cmha__has_peaks(a) && a->kind == CMHA_ATTENTION_ANGULAR) return "attention: norm_max is not for phasors";
    return NULL;
}

/* The same for what the feature map needs. */
static const char *cmha__attention_features(cmha__attention_saved *s, const cmha_tensor *delta, const cmha_tensor *b, size_t *one,
                                            size_t *two) {
    cmha_attention_args *a = &s->args;
    int learned = a->kind == CMHA_ATTENTION_CMHA && a->share != CMHA_SHARE_FIXED;
    *one = a->d_k, *two = a->heads;
    if (a->kind == CMHA_ATTENTION_DOT || cmha__is_complex(a)) return NULL;
    if (a->d_k % 2) return "attention: a head width of %zu is odd and cannot be read as complex pairs (%zu heads)";
    if (!learned) return NULL;
    *one = (a->share == CMHA_SHARE_PER_HEAD ? a->heads : 1) * (a->d_k / 2), *two = delta ? delta->size : 0;
    if (!delta || !b || delta->size != *one || b->size != *one) return "attention: delta and b need %zu numbers, delta has %zu";
    a->delta = delta->data;
    a->b = b->data;
    return NULL;
}

CMHA_DEF cmha_tensor *cmha_attention(cmha_tape *tape, const cmha_attention_args *args, cmha_tensor *q, cmha_tensor *k,
                                     cmha_tensor *v, cmha_tensor *delta, cmha_tensor *b) {
    size_t shape[3], one = 0, two = 0;
    const char *misfit;
    cmha__attention_saved *s;
    cmha_tensor *in[5], *y;
    cmha_heads x[3];
    cmha_real *scratch;
    cmha__mark mark;
    if (!q || !tape || tape->status) return NULL;
    if (!args) return cmha__reject(tape, CMHA_ERR_ARGUMENT, "attention: args is NULL");
    s = (cmha__attention_saved *)cmha__record_alloc(tape, sizeof *s);
    if (!s) return NULL;
    s->args = *args;
    s->args.threads = tape->context->threads;
    misfit = cmha__attention_sizes(s, q, k, v, &one, &two);
    if (!misfit) misfit = cmha__attention_features(s, delta, b, &one, &two);
    if (misfit) return cmha__reject(tape, CMHA_ERR_SHAPE, misfit, one, two);
    misfit = cmha__attention_options(&s->args);
    if (misfit) return cmha__reject(tape, CMHA_ERR_ARGUMENT, "%s", misfit);
    if (cmha__check_dropout(tape, args->dropout)) return NULL;
    if (!tape->recording) s->args.dropout = 0;
    if (s->args.dropout > 0) s->args.key = cmha__draw(tape);
    shape[0] = s->args.batch, shape[1] = s->args.n_q, shape[2] = s->args.heads * cmha__value_width(&s->args);
    y = cmha__result(tape, 3, shape);
    s->lse = y ? cmha__reals(tape, s->args.batch * s->args.heads * s->args.n_q * 2) : NULL;
    if (!s->lse) return NULL;
    mark = cmha__mark_of(tape);
    scratch = cmha__reals(tape, cmha_attention_scratch(&s->args, 0));
    if (!tape->status && !cmha__dry(tape)) {
        cmha__views(s, q->data, k ? k->data : NULL, v ? v->data : NULL, x);
        cmha_attention_forward(&s->args, x[0], x[1], x[2], cmha__out_view(&s->args, y->data), s->lse, scratch);
    }
    cmha__rewind(tape, mark);
    in[0] = q, in[1] = k, in[2] = v, in[3] = delta, in[4] = b;
    return cmha_push(tape, "attention", y, in, 5, cmha__attention_record, s);
}

/* ---- The linear core ---- */

/* One head: F features, C real value channels, W = C + 1 with the column of ones that makes the denominator. CoPE's outputs other
   than REAL also need Im Num, the sum for a second form of the query; its rows stand below those of the first. */
typedef struct cmha__linear_plan {
    size_t F, C, W, forms, half, saved;           /* half: channels before the imaginary ones; saved: numbers a row */
    size_t q, k, columns, v, n, s, state, thread; /* lengths of a thread's scratch, and their sum */
} cmha__linear_plan;

static cmha__linear_plan cmha__linear_plan_of(const cmha_linear_args *a, int backward) {
    int angular = a->kind == CMHA_LINEAR_ANGULAR;
    size_t d_v = a->d_v ? a->d_v : a->d, copies = backward ? 2 : 1;
    cmha__linear_plan p;
    p.F = 2 * a->d + (angular ? 1 : 0);
    p.C = angular ? 2 * d_v : d_v;
    p.half = d_v;
    p.W = p.C + 1;
    p.forms = !angular && a->output != CMHA_COPE_OUTPUT_REAL ? 2 : 1;
    p.saved = p.forms == 2 ? 2 * p.C + 1 : 1;
    p.q = p.forms * CMHA__TILE * p.F;
    p.k = CMHA__TILE * p.F;
    p.columns = CMHA__TILE * (p.F > p.W ? p.F : p.W);
    p.v = CMHA__TILE * p.W;
    p.n = p.forms * CMHA__TILE * p.W;
    p.s = p.forms * CMHA__TILE * CMHA__TILE;
    p.state = p.F * p.W;
    p.thread = copies * (p.q + p.k + p.v) + p.columns + p.n + p.s + p.state;
    p.thread = (p.thread + 15) / 16 * 16;
    return p;
}

static int cmha__linear_threads(const cmha_linear_args *a) {
    return cmha__chunks(a->threads, a->batch * a->heads);
}

CMHA_DEF size_t cmha_linear_attention_scratch(const cmha_linear_args *args, int backward) {
    size_t threads = (size_t)cmha__linear_threads(args);
    size_t length = cmha__linear_plan_of(args, backward).thread * threads;
    double width = 4 * ((double)args->d + (double)args->d_v + CMHA__TILE);
    return cmha__countable(length + 1, 8 * (double)threads * width * width); /* + 1: never empty */
}

CMHA_DEF size_t cmha_linear_attention_saved(const cmha_linear_args *args) {
    size_t length = args->batch * args->heads * args->n * cmha__linear_plan_of(args, 0).saved;
    double rows = (double)args->batch * (double)args->heads * (double)args->n;
    return cmha__countable(length, rows * (4 * ((double)args->d + (double)args->d_v) + 1));
}

CMHA_DEF size_t cmha_linear_attention_state(const cmha_linear_args *args) {
    size_t length = args->batch * args->heads * cmha__linear_plan_of(args, 0).state;
    double width = 2 * ((double)args->d + (double)args->d_v + 1);
    return cmha__countable(length, (double)args->batch * (double)args->heads * width * width);
}

/* The arrays of one head, and a thread's scratch for up to 64 of its rows at a time. */
typedef struct cmha__linear_head {
    const cmha_linear_args *a;
    cmha__linear_plan p;
    cmha_heads q, k, v, y, dy, dq, dk, dv; /* data: of this head */
    const unsigned char *mask;
    cmha_real *saved;
    cmha_real *Q, *K, *columns; /* features [R, F], R = forms * 64, and [64, F]; K or V transposed, [F or W, 64] */
    cmha_real *V, *N, *S;       /* [64, W], [R, W] the sums [Num | Den] or their gradient, [R, 64] weights or their gradient */
    cmha_real *state;           /* [F, W] forwards, [W, F] in the backward */
    cmha_real *dQ, *dK, *dV;
} cmha__linear_head;

static cmha_heads cmha__head_view(cmha_heads view, size_t b, size_t h) {
    view.data = cmha__head_at(view, b, h);
    return view;
}

static void cmha__linear_open(cmha__linear_head *h, const cmha_linear_args *a, const cmha__linear_plan *p, size_t unit,
                              cmha_real *scratch) {
    h->a = a;
    h->p = *p;
    h->mask = a->key_mask ? a->key_mask + unit / a->heads * a->n : NULL;
    h->saved = h->saved ? h->saved + unit * a->n * p->saved : NULL;
    h->Q = scratch;
    h->K = h->Q + p->q;
    h->columns = h->K + p->k;
    h->V = h->columns + p->columns;
    h->N = h->V + p->v;
    h->S = h->N + p->n;
    h->state = h->S + p->s;
    h->dQ = h->state + p->state; /* from here on in the backward only */
    h->dK = h->dQ + p->q;
    h->dV = h->dK + p->k;
}

static size_t cmha__linear_rows(const cmha__linear_head *h, size_t i0) {
    return h->a->n - i0 < CMHA__TILE ? h->a->n - i0 : CMHA__TILE;
}

/* f(x) = elu(x) + 1; the exponential never sees a positive number, and a NaN stays one. */
static void cmha__elu_row(const cmha_real *x, size_t d, cmha_real *f) {
    for (size_t j = 0; j < d; j++) f[j] = (x[j] > 0 ? x[j] : 0) + cmha__exp(x[j] > 0 ? 0 : x[j]);
}

/* f [rows, F] = features of rows i0.. of x; zero, the constant too, where mask has 0. */
static void cmha__linear_features(const cmha__linear_head *h, cmha_heads x, size_t i0, size_t rows, const unsigned char *mask,
                                  cmha_real *f) {
    size_t d = h->a->d;
    cmha_real factor = h->a->kind == CMHA_LINEAR_ANGULAR && d ? (cmha_real)(1 / sqrt((double)d)) : 1;
    for (size_t r = 0; r < rows; r++, f += h->p.F) {
        const cmha_real *re = x.data + (i0 + r) * x.token, *im = re + x.imag;
        if (mask && !mask[i0 + r]) {
            memset(f, 0, h->p.F * sizeof *f);
        } else if (h->a->kind == CMHA_LINEAR_ANGULAR) {
            cmha__phasor_row(re, im, d, h->a->eps, factor, f, f + d);
            f[2 * d] = 1;
        } else {
            cmha__elu_row(re, d, f);
            cmha__elu_row(im, d, f + d);
        }
    }
}

/* dx += the features' gradient g [rows, F]; f are the features themselves. */
static void cmha__linear_features_backward(const cmha__linear_head *h, cmha_heads x, size_t i0, size_t rows,
                                           const unsigned char *mask, const cmha_real *f, const cmha_real *g, cmha_heads dx) {
    size_t d = h->a->d;
    cmha_real factor = d ? (cmha_real)(1 / sqrt((double)d)) : 1;
    for (size_t r = 0; r < rows; r++, f += h->p.F, g += h->p.F) {
        const cmha_real *re = x.data + (i0 + r) * x.token;
        cmha_real *dre = dx.data + (i0 + r) * dx.token, *dim = dre + dx.imag;
        if (mask && !mask[i0 + r]) continue;
        if (h->a->kind == CMHA_LINEAR_ANGULAR) {
            cmha__phasor_row_backward(re, re + x.imag, d, h->a->eps, factor, g, g + d, dre, dim);
            continue;
        }
        for (size_t j = 0; j < d; j++) { /* f' = min(f, 1) */
            dre[j] += g[j] * (f[j] < 1 ? f[j] : 1);
            dim[j] += g[d + j] * (f[d + j] < 1 ? f[d + j] : 1);
        }
    }
}

/* Features of the queries i0.., [q+r | q+i], and below them the second form [q+i | -q+r] if there is one. */
static void cmha__linear_queries(const cmha__linear_head *h, size_t i0, size_t rows) {
    size_t d = h->a->d;
    cmha_real *first = h->Q, *second = h->Q + rows * h->p.F;
    cmha__linear_features(h, h->q, i0, rows, NULL, h->Q);
    for (size_t r = 0; r < rows && h->p.forms == 2; r++, first += h->p.F, second += h->p.F) {
        memcpy(second, first + d, d * sizeof *second);
        for (size_t j = 0; j < d; j++) second[d + j] = -first[j];
    }
}

/* K = features of the keys i0.., V = [their values | 1]; a masked key is zero in both. */
static void cmha__linear_keys(const cmha__linear_head *h, size_t i0, size_t rows) {
    size_t half = h->p.half;
    cmha__linear_features(h, h->k, i0, rows, h->mask, h->K);
    for (size_t r = 0; r < rows; r++) {
        const cmha_real *v = h->v.data + (i0 + r) * h->v.token;
        cmha_real *row = h->V + r * h->p.W;
        memset(row, 0, h->p.W * sizeof *row);
        if (h->mask && !h->mask[i0 + r]) continue;
        memcpy(row, v, half * sizeof *row);
        memcpy(row + half, v + h->v.imag, (h->p.C - half) * sizeof *row);
        row[h->p.C] = 1;
    }
}

/* Zeroes what a causal query must not see in S [forms * rows, 64], queries and keys being the same tokens. */
static void cmha__linear_triangle(const cmha__linear_head *h, cmha_real *S, size_t rows) {
    for (size_t r = 0; r < h->p.forms * rows; r++) memset(S + r * CMHA__TILE + r % rows + 1, 0, (rows - r % rows - 1) * sizeof *S);
}

/* S = Q K^T of the tokens in hand, each against itself and its predecessors. */
static void cmha__linear_weights(const cmha__linear_head *h, size_t rows) {
    cmha__transpose(h->K, h->p.F, rows, h->p.F, h->columns, CMHA__TILE);
    cmha__tile_gemm(0, h->p.forms * rows, rows, h->p.F, 1, h->Q, h->p.F, h->columns, CMHA__TILE, 0, h->S, CMHA__TILE);
    cmha__linear_triangle(h, h->S, rows);
}

/* One channel of CoPE's experimental outputs before the division by Den, and its derivatives. */
static double cmha__cope_channel(const cmha_linear_args *a, double re, double im, double *dre, double *dim) {
    double square = re * re + im * im, e = (double)a->eps, m = sqrt(square), r = sqrt(square + e * e), y = 0;
    double weight = a->output == CMHA_COPE_OUTPUT_PHASE ? 1 : a->output == CMHA_COPE_OUTPUT_HYBRID ? (double)a->alpha : 0;
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

/* 1 / Den; 0 where there is no key, so that the row is zero and passes no gradient on. */
static cmha_real cmha__linear_inverse(cmha_real den) {
    return den < CMHA__SMALLEST && den > -CMHA__SMALLEST ? 0 : 1 / den;
}

/* y of rows i0.. from N = [Num | den]. */
static void cmha__linear_output(const cmha__linear_head *h, size_t i0, size_t rows) {
    size_t C = h->p.C, half = h->p.half;
    for (size_t r = 0; r < rows; r++) {
        const cmha_real *N = h->N + r * h->p.W, *imag = N + rows * h->p.W;
        cmha_real *y = h->y.data + (i0 + r) * h->y.token, *saved = h->saved ? h->saved + (i0 + r) * h->p.saved : NULL;
        cmha_real den = N[C] + (h->a->kind == CMHA_LINEAR_ANGULAR ? h->a->den_eps : 0), inverse = cmha__linear_inverse(den);
        if (saved) saved[0] = den;
        if (h->p.forms == 1) {
            for (size_t c = 0; c < half; c++) y[c] = N[c] * inverse;
            for (size_t c = half; c < C; c++) y[h->y.imag + c - half] = N[c] * inverse;
            continue;
        }
        for (size_t c = 0; c < C; c++) {
            double dre, dim;
            y[c] = (cmha_real)cmha__cope_channel(h->a, (double)N[c], (double)imag[c], &dre, &dim) * inverse;
        }
        if (saved) memcpy(saved + 1, N, C * sizeof *saved);
        if (saved) memcpy(saved + 1 + C, imag, C * sizeof *saved);
    }
}

/* N = gradient of [Num | den] of rows i0... */
static void cmha__linear_cotangent(const cmha__linear_head *h, size_t i0, size_t rows) {
    size_t C = h->p.C, half = h->p.half;
    for (size_t r = 0; r < rows; r++) {
        const cmha_real *y = h->y.data + (i0 + r) * h->y.token, *dy = h->dy.data + (i0 + r) * h->dy.token;
        const cmha_real *saved = h->saved + (i0 + r) * h->p.saved;
        cmha_real *N = h->N + r * h->p.W, *imag = N + rows * h->p.W, inverse = cmha__linear_inverse(saved[0]);
        N[C] = -inverse * (cmha__dot(y, dy, half) + cmha__dot(y + h->y.imag, dy + h->dy.imag, C - half));
        for (size_t c = 0; c < half; c++) N[c] = dy[c] * inverse;
        for (size_t c = half; c < C; c++) N[c] = dy[h->dy.imag + c - half] * inverse;
        if (h->p.forms == 1) continue;
        for (size_t c = 0; c < C; c++) {
            double dre, dim;
            cmha__cope_channel(h->a, (double)saved[1 + c], (double)saved[1 + C + c], &dre, &dim);
            imag[c] = (cmha_real)dim * N[c];
            N[c] *= (cmha_real)dre;
        }
        imag[C] = 0;
    }
}

/* The one forward pass: state [F, W] = sum f(k)^T [v | 1] before it, or (not causal) everything first. */
static void cmha__linear_forward_head(const cmha__linear_head *h, cmha_real *state, int causal) {
    size_t F = h->p.F, W = h->p.W, rows;
    for (int pass = causal ? 1 : 0; pass < 2; pass++)
        for (size_t i0 = 0; i0 < h->a->n; i0 += rows) {
            rows = cmha__linear_rows(h, i0);
            if (pass == 0 || causal) cmha__linear_keys(h, i0, rows);
            if (pass == 1) {
                cmha__linear_queries(h, i0, rows);
                cmha__tile_gemm(0, h->p.forms * rows, W, F, 1, h->Q, F, state, W, 0, h->N, W);
                if (causal) cmha__linear_weights(h, rows);
                if (causal) cmha__tile_gemm(0, h->p.forms * rows, W, rows, 1, h->S, CMHA__TILE, h->V, W, 1, h->N, W);
                cmha__linear_output(h, i0, rows);
            }
            if (pass == 0 || causal) cmha__tile_gemm(1, F, W, rows, 1, h->K, F, h->V, W, 1, state, W);
        }
}

static void cmha__linear_run(const cmha_linear_args *a, cmha_heads q, cmha_heads k, cmha_heads v, cmha_heads y, cmha_real *saved,
                             cmha_real *state, int causal, cmha_real *scratch) {
    cmha__linear_plan p = cmha__linear_plan_of(a, 0);
    CMHA__FOR_CHUNKS(cmha__linear_threads(a), a->batch * a->heads, lo, hi) {
        for (size_t unit = lo; unit < hi; unit++) {
            size_t b = unit / a->heads, head = unit % a->heads;
            cmha__linear_head h;
            memset(&h, 0, sizeof h);
            h.q = cmha__head_view(q, b, head), h.k = cmha__head_view(k, b, head);
            h.v = cmha__head_view(v, b, head), h.y = cmha__head_view(y, b, head);
            h.saved = saved;
            cmha__linear_open(&h, a, &p, unit, scratch + (size_t)cmha__chunk * p.thread);
            if (!state) memset(h.state, 0, p.state * sizeof *h.state);
            cmha__linear_forward_head(&h, state ? state + unit * p.state : h.state, causal);
        }
    }
}

CMHA_DEF void cmha_linear_attention_forward(const cmha_linear_args *args, cmha_heads q, cmha_heads k, cmha_heads v, cmha_heads y,
                                            cmha_real *saved, cmha_real *scratch) {
    cmha__linear_run(args, q, k, v, y, saved, NULL, args->causal, scratch);
}

CMHA_DEF void cmha_linear_attention_append(const cmha_linear_args *args, cmha_heads q, cmha_heads k, cmha_heads v, cmha_heads y,
                                           cmha_real *state, cmha_real *scratch) {
    cmha__linear_run(args, q, k, v, y, NULL, state, 1, scratch);
}

/* dS [R, 64] = dN V^T, into h->S. */
static void cmha__linear_dweights(const cmha__linear_head *h, size_t rows) {
    cmha__transpose(h->V, h->p.W, rows, h->p.W, h->columns, CMHA__TILE);
    cmha__tile_gemm(0, h->p.forms * rows, rows, h->p.W, 1, h->N, h->p.W, h->columns, CMHA__TILE, 0, h->S, CMHA__TILE);
    cmha__linear_triangle(h, h->S, rows);
}

/* dq of rows i0..: dQ = dN state^T, state [W, F] the keys before (or all); causal also through the tokens in hand. */
static void cmha__linear_query_gradient(const cmha__linear_head *h, size_t i0, size_t rows) {
    size_t F = h->p.F, W = h->p.W, R = h->p.forms * rows, d = h->a->d;
    cmha_real *first = h->dQ, *second = h->dQ + rows * F;
    cmha__tile_gemm(0, R, F, W, 1, h->N, W, h->state, F, 0, h->dQ, F);
    if (h->a->causal) {
        cmha__linear_dweights(h, rows);
        cmha__tile_gemm(0, R, F, rows, 1, h->S, CMHA__TILE, h->K, F, 1, h->dQ, F);
    }
    for (size_t r = 0; r < rows && h->p.forms == 2; r++, first += F, second += F)
        for (size_t j = 0; j < d; j++) { /* the second form is [q+i | -q+r] */
            first[j] -= second[d + j];
            first[d + j] += second[j];
        }
    cmha__linear_features_backward(h, h->q, i0, rows, NULL, h->Q, h->dQ, h->dq);
}

/* dk, dv of rows i0..: state [W, F] = sum dN^T Q of the queries behind them (or all). */
static void cmha__linear_key_gradient(const cmha__linear_head *h, size_t i0, size_t rows) {
    size_t F = h->p.F, W = h->p.W, C = h->p.C, R = h->p.forms * rows, half = h->p.half;
    cmha__tile_gemm(0, rows, F, W, 1, h->V, W, h->state, F, 0, h->dK, F);
    cmha_gemm(0, 1, rows, C, F, 1, h->K, F, h->state, F, 0, h->dV, C);
    if (h->a->causal) {
        cmha__linear_weights(h, rows);
        cmha__tile_gemm(1, rows, C, R, 1, h->S, CMHA__TILE, h->N, W, 1, h->dV, C);
        cmha__linear_dweights(h, rows);
        cmha__tile_gemm(1, rows, F, R, 1, h->S, CMHA__TILE, h->Q, F, 1, h->dK, F);
    }
    if (h->dk.data) cmha__linear_features_backward(h, h->k, i0, rows, h->mask, h->K, h->dK, h->dk);
    for (size_t r = 0; r < rows && h->dv.data; r++) {
        cmha_real *dv = h->dv.data + (i0 + r) * h->dv.token;
        cmha__axpy(half, 1, h->dV + r * C, dv);
        cmha__axpy(C - half, 1, h->dV + r * C + half, dv + h->dv.imag);
    }
}

/* Forwards: `state` [W, F] runs over the keys; not causal, all of them are summed before the first query is looked at. */
static void cmha__linear_backward_queries(const cmha__linear_head *h) {
    size_t F = h->p.F, W = h->p.W, rows;
    memset(h->state, 0, h->p.state * sizeof *h->state);
    for (int pass = h->a->causal ? 1 : 0; pass < 2; pass++)
        for (size_t i0 = 0; i0 < h->a->n; i0 += rows) {
            rows = cmha__linear_rows(h, i0);
            if (pass == 0 || h->a->causal) cmha__linear_keys(h, i0, rows);
            if (pass == 1) {
                cmha__linear_queries(h, i0, rows);
                cmha__linear_cotangent(h, i0, rows);
                cmha__linear_query_gradient(h, i0, rows);
            }
            if (pass == 0 || h->a->causal) cmha__tile_gemm(1, W, F, rows, 1, h->V, W, h->K, F, 1, h->state, F);
        }
}

/* Backwards: `state` [W, F] runs over the queries. */
static void cmha__linear_backward_keys(const cmha__linear_head *h) {
    size_t F = h->p.F, W = h->p.W, i0, rows;
    memset(h->state, 0, h->p.state * sizeof *h->state);
    for (int pass = h->a->causal ? 1 : 0; pass < 2; pass++)
        for (size_t tile = cmha__tiles(h->a->n); tile-- > 0;) {
            i0 = tile * CMHA__TILE;
            rows = cmha__linear_rows(h, i0);
            if (pass == 0 || h->a->causal) {
                cmha__linear_queries(h, i0, rows);
                cmha__linear_cotangent(h, i0, rows);
            }
            if (pass == 1) {
                cmha__linear_keys(h, i0, rows);
                cmha__linear_key_gradient(h, i0, rows);
            }
            if (pass == 0 || h->a->causal) cmha__tile_gemm(1, W, F, h->p.forms * rows, 1, h->N, W, h->Q, F, 1, h->state, F);
        }
}

CMHA_DEF void cmha_linear_attention_backward(const cmha_linear_args *args, cmha_heads q, cmha_heads k, cmha_heads v, cmha_heads y,
                                             const cmha_real *saved, cmha_heads dy, cmha_heads dq, cmha_heads dk, cmha_heads dv,
                                             cmha_real *scratch) {
    cmha__linear_plan p = cmha__linear_plan_of(args, 1);
    CMHA__FOR_CHUNKS(cmha__linear_threads(args), args->batch * args->heads, lo, hi) {
        for (size_t unit = lo; unit < hi; unit++) {
            size_t b = unit / args->heads, head = unit % args->heads;
            cmha__linear_head h;
            memset(&h, 0, sizeof h);
            h.q = cmha__head_view(q, b, head), h.k = cmha__head_view(k, b, head), h.v = cmha__head_view(v, b, head);
            h.y = cmha__head_view(y, b, head), h.dy = cmha__head_view(dy, b, head);
            h.dq = cmha__head_view(dq, b, head), h.dk = cmha__head_view(dk, b, head), h.dv = cmha__head_view(dv, b, head);
            h.saved = (cmha_real *)(uintptr_t)saved; /* read only from here on */
            cmha__linear_open(&h, args, &p, unit, scratch + (size_t)cmha__chunk * p.thread);
            if (dq.data) cmha__linear_backward_queries(&h);
            if (dk.data || dv.data) cmha__linear_backward_keys(&h);
        }
    }
}

/* ---- The lag core ---- */

/* Twiddles of all radix-2 stages up to transforms of m numbers: exp(-i pi k / h) for k < h at table[2 h], its sine h further
   on. The table of a shorter transform is the beginning of it. */
static void cmha__fft_table(size_t m, double *table) {
    for (size_t h = 1; h < m; h *= 2)
        for (size_t k = 0; k < h; k++) {
            double angle = 3.14159265358979323846 * (double)k / (double)h;
            table[2 * h + k] = cos(angle);
            table[3 * h + k] = -sin(angle);
        }
}

static void cmha__fft_swap(double *a, double *b, size_t lanes) {
    for (size_t l = 0; l < lanes; l++) {
        double kept = a[l];
        a[l] = b[l];
        b[l] = kept;
    }
}

/* (a, b) = (a + b w, a - b w), w = c + i s. */
static inline void cmha__butterfly(double *CMHA__RESTRICT ar, double *CMHA__RESTRICT ai, double *CMHA__RESTRICT br,
                                   double *CMHA__RESTRICT bi, size_t lanes, double c, double s) {
    for (size_t l = 0; l < lanes; l++) {
        double re = br[l] * c - bi[l] * s, im = br[l] * s + bi[l] * c;
        br[l] = ar[l] - re;
        bi[l] = ai[l] - im;
        ar[l] += re;
        ai[l] += im;
    }
}

/* The stages that join blocks of h = from, 2 from, .. < m rows, of n rows. */
static inline void cmha__fft_stages(double *re, double *im, size_t from, size_t m, size_t n, size_t lanes, const double *table) {
    for (size_t h = from; h < m; h *= 2)
        for (size_t i = 0; i < n; i += 2 * h)
            for (size_t k = i; k < i + h; k++)
                cmha__butterfly(re + k * lanes, im + k * lanes, re + (k + h) * lanes, im + (k + h) * lanes, lanes,
                                table[2 * h + k - i], table[3 * h + k - i]);
}

/* Forward transforms, in place, of `lanes` columns of m (a power of two) rows: a constant number of lanes vectorises every stage.
   Blocks that fit the L1 cache are finished one by one before they are joined. The inverse, times m, is the same call with re
   and im exchanged. */
static inline void cmha__fft_columns(double *re, double *im, size_t m, size_t lanes, const double *table) {
    size_t block = m < 1024 / lanes ? m : 1024 / lanes, i, j, bit;
    for (i = 1, j = 0; i < m; i++) { /* j is i with its bits reversed */
        for (bit = m / 2; j & bit; bit /= 2) j ^= bit;
        j ^= bit;
        if (i >= j) continue;
        cmha__fft_swap(re + i * lanes, re + j * lanes, lanes);
        cmha__fft_swap(im + i * lanes, im + j * lanes, lanes);
    }
    for (i = 0; i < m; i += block) cmha__fft_stages(re + i * lanes, im + i * lanes, 1, block, block, lanes, table);
    cmha__fft_stages(re, im, block, m, m, lanes, table);
}

#define CMHA__FFT_LANES ((size_t)8) /* channels transformed at a time */

static void cmha__fft_one(double *re, double *im, size_t m, const double *table) { cmha__fft_columns(re, im, m, 1, table); }
static void cmha__fft_lanes(double *re, double *im, size_t m, const double *table) {
    cmha__fft_columns(re, im, m, CMHA__FFT_LANES, table);
}

static size_t cmha__power_of_two(size_t n) {
    size_t m = 1;
    while (m < n && m) m *= 2; /* 0 where there is none */
    return m;
}

/* Length of Bluestein's convolution, 0 where n is a power of two (or 0) and needs none. */
static size_t cmha__bluestein(size_t n) { return n & (n - 1) && n ? cmha__power_of_two(2 * n - 1) : 0; }

CMHA_DEF size_t cmha_fft_scratch(size_t n) {
    size_t m = cmha__bluestein(n);
    return cmha__countable(m ? 6 * m + 2 * n : 2 * n + 1, 32.0 * (double)n);
}

/* Bluestein: f t = (f^2 + t^2 - (f - t)^2) / 2, so a transform is a product with the chirp w_t = exp(-i pi t^2 / n), a
   convolution with its conjugate, and the product again. Scratch: table [2m], chirp [2n], the conjugate chirp's spectrum [2m],
   room [2m]. */
CMHA_DEF void cmha_fft_prepare(size_t n, double *scratch) {
    size_t m = cmha__bluestein(n), t;
    double *chirp = scratch + 2 * m, *re = chirp + 2 * n, *im = re + m;
    uint64_t square = 0; /* t^2 modulo 2n, exactly */
    cmha__fft_table(m ? m : n, scratch);
    if (!m) return;
    memset(re, 0, 2 * m * sizeof *re);
    for (t = 0; t < n; t++) {
        double angle = 3.14159265358979323846 * (double)square / (double)n;
        chirp[t] = cos(angle);
        chirp[n + t] = -sin(angle);
        re[t] = re[(m - t) % m] = chirp[t];
        im[t] = im[(m - t) % m] = -chirp[n + t];
        square = (square + 2 * (uint64_t)t + 1) % (2 * (uint64_t)n);
    }
    cmha__fft_one(re, im, m, scratch);
}

/* (re, im) *= (a, b) elementwise. */
static void cmha__fft_multiply(double *re, double *im, const double *a, const double *b, size_t n) {
    for (size_t i = 0; i < n; i++) {
        double x = re[i];
        re[i] = x * a[i] - im[i] * b[i];
        im[i] = x * b[i] + im[i] * a[i];
    }
}

static void cmha__fft_bluestein(double *re, double *im, size_t n, size_t m, double *scratch) {
    const double *chirp = scratch + 2 * m, *spectrum = chirp + 2 * n;
    double *a = scratch + 4 * m + 2 * n, *b = a + m;
    memset(a, 0, 2 * m * sizeof *a);
    memcpy(a, re, n * sizeof *a);
    memcpy(b, im, n * sizeof *b);
    cmha__fft_multiply(a, b, chirp, chirp + n, n);
    cmha__fft_one(a, b, m, scratch);
    cmha__fft_multiply(a, b, spectrum, spectrum + m, m);
    cmha__fft_one(b, a, m, scratch);
    for (size_t t = 0; t < n; t++) {
        re[t] = a[t] / (double)m;
        im[t] = b[t] / (double)m;
    }
    cmha__fft_multiply(re, im, chirp, chirp + n, n);
}

CMHA_DEF void cmha_fft(double *re, double *im, size_t n, int inverse, double *scratch) {
    size_t m = cmha__bluestein(n), t;
    double *first = inverse ? im : re, *second = inverse ? re : im;
    if (m) cmha__fft_bluestein(first, second, n, m, scratch);
    else cmha__fft_one(first, second, n, scratch);
    for (t = 0; inverse && t < n; t++) {
        re[t] /= (double)n;
        im[t] /= (double)n;
    }
}

/* One head and a thread's scratch. m >= 2n, so that no lag wraps round; a spectrum is [2m], a group of channels [2][m][LANES]. */
typedef struct cmha__lag_head {
    const cmha_lag_args *a;
    size_t n;                              /* tokens up to the last one present: padding at the end is as if it were not there */
    const unsigned char *mask;             /* [n]; NULL = all present */
    cmha_heads q, k, v, y, dy, dq, dk, dv; /* data: of this head */
    cmha_real *lags;                       /* [n] */
    double *table, *spectrum, *sum;        /* [2m] each */
    double *x, *z;                         /* groups of channels */
    double *weight, *total, *dlags;        /* [n] each */
    double *pairs, *score;                 /* [n] each: N_tau, and the scores of lags that matter to a row not done */
    unsigned char *done;                   /* [n]: rows that have had their weights */
    size_t hi, left;                       /* rows of the weights in hand lie below hi, rows not done below left */
} cmha__lag_head;

static size_t cmha__lag_thread(const cmha_lag_args *a) {
    size_t m = cmha__power_of_two(2 * a->n);
    return (3 * 2 * m + 2 * 2 * m * CMHA__FFT_LANES + 5 * a->n + a->n / sizeof(double) + 8) / 8 * 8;
}

CMHA_DEF size_t cmha_lag_attention_scratch(const cmha_lag_args *args) {
    size_t threads = (size_t)cmha__chunks(args->threads, args->batch * args->heads);
    return cmha__countable(cmha__lag_thread(args) * threads * (sizeof(double) / sizeof(cmha_real)) + 1,
                           (double)threads * 512 * ((double)args->n + 1));
}

static void cmha__lag_open(cmha__lag_head *h, const cmha_lag_args *a, double *scratch) {
    size_t m = cmha__power_of_two(2 * a->n);
    h->a = a;
    h->table = scratch;
    h->spectrum = h->table + 2 * m;
    h->sum = h->spectrum + 2 * m;
    h->x = h->sum + 2 * m;
    h->z = h->x + 2 * m * CMHA__FFT_LANES;
    h->weight = h->z + 2 * m * CMHA__FFT_LANES;
    h->total = h->weight + a->n;
    h->dlags = h->total + a->n;
    h->pairs = h->dlags + a->n;
    h->score = h->pairs + a->n;
    h->done = (unsigned char *)(h->score + a->n);
    cmha__fft_table(m, h->table);
}

static int cmha__lag_absent(const cmha__lag_head *h, size_t t) { return h->mask && !h->mask[t]; }

static size_t cmha__lag_width(const cmha__lag_head *h, size_t j0) {
    return h->a->d - j0 < CMHA__FFT_LANES ? h->a->d - j0 : CMHA__FFT_LANES;
}

/* The spectrum of channels j0.. of the tokens present in rows [lo, hi) of a view, zero elsewhere, into the group g
   [2][m][LANES]. phasor 1: of u(z); divisor (or NULL): rows are divided by it, and left out where it is 0. */
static void cmha__lag_transform(const cmha__lag_head *h, cmha_heads view, size_t lo, size_t hi, size_t j0, int phasor,
                                const double *divisor, size_t m, double *g) {
    size_t t, l, width = cmha__lag_width(h, j0);
    double *re = g, *im = g + m * CMHA__FFT_LANES;
    memset(g, 0, 2 * m * CMHA__FFT_LANES * sizeof *g);
    for (t = lo; t < hi; t++) {
        const cmha_real *a = view.data + t * view.token + j0, *b = a + view.imag;
        cmha_real u[2 * CMHA__FFT_LANES];
        double scale = 1;
        if (cmha__lag_absent(h, t) || (divisor && divisor[t] == 0)) continue;
        if (divisor) scale = 1 / divisor[t];
        if (phasor) cmha__phasor_row(a, b, width, h->a->eps, 1, u, u + CMHA__FFT_LANES), a = u, b = u + CMHA__FFT_LANES;
        for (l = 0; l < width; l++) {
            re[t * CMHA__FFT_LANES + l] = (double)a[l] * scale;
            im[t * CMHA__FFT_LANES + l] = (double)b[l] * scale;
        }
    }
    cmha__fft_lanes(re, im, m, h->table);
}

/* sum [2][m] += sum over the lanes of x conj(z): the spectrum of their correlation. */
static inline void cmha__lag_correlate(const double *x, const double *z, size_t m, size_t lanes, double *sum) {
    const double *xi = x + m * lanes, *zi = z + m * lanes;
    size_t l, at;
    for (size_t f = 0; f < m; f++) {
        double re = 0, im = 0;
        for (l = 0, at = f * lanes; l < lanes; l++, at++) {
            re += x[at] * z[at] + xi[at] * zi[at];
            im += xi[at] * z[at] - x[at] * zi[at];
        }
        sum[f] += re;
        sum[m + f] += im;
    }
}

/* The group g, a spectrum, times h->spectrum (conj 1: its conjugate, for a correlation instead of a convolution), transformed
   back. */
static void cmha__lag_filter(const cmha__lag_head *h, double *g, size_t m, int conj) {
    double *re = g, *im = g + m * CMHA__FFT_LANES, factor = 1 / (double)m;
    for (size_t f = 0; f < m; f++, re += CMHA__FFT_LANES, im += CMHA__FFT_LANES) {
        double c = h->spectrum[f] * factor, s = (conj ? -h->spectrum[m + f] : h->spectrum[m + f]) * factor;
        for (size_t l = 0; l < CMHA__FFT_LANES; l++) {
            double x = re[l];
            re[l] = x * c - im[l] * s;
            im[l] = x * s + im[l] * c;
        }
    }
    cmha__fft_lanes(g + m * CMHA__FFT_LANES, g, m, h->table);
}

/* h->spectrum = transform of the real x [n]. */
static void cmha__lag_spectrum(const cmha__lag_head *h, const double *x, size_t n, size_t m) {
    memset(h->spectrum, 0, 2 * m * sizeof *h->spectrum);
    memcpy(h->spectrum, x, n * sizeof *x);
    cmha__fft_one(h->spectrum, h->spectrum + m, m, h->table);
}

/* to [2m] = transform of the mask, rows [0, n). */
static void cmha__lag_mask_spectrum(const cmha__lag_head *h, size_t n, size_t m, double *to) {
    memset(to, 0, 2 * m * sizeof *to);
    for (size_t t = 0; t < n; t++) to[t] = h->mask[t] != 0;
    cmha__fft_one(to, to + m, m, h->table);
}

/* The mask of sequence b, and how many pairs of tokens each lag joins. */
static void cmha__lag_sequence(cmha__lag_head *h, size_t b) {
    size_t m, present = 0;
    h->mask = h->a->key_mask ? h->a->key_mask + b * h->a->n : NULL;
    for (h->n = h->a->n; h->n && cmha__lag_absent(h, h->n - 1);) h->n--;
    for (size_t t = 0; t < h->n; t++) present += !cmha__lag_absent(h, t);
    for (size_t t = 0; t < h->n; t++) h->pairs[t] = (double)(h->n - t);
    if (present == h->n) h->mask = NULL;
    if (!h->mask) return;
    m = cmha__power_of_two(2 * h->n);
    cmha__lag_mask_spectrum(h, h->n, m, h->spectrum);
    memset(h->sum, 0, 2 * m * sizeof *h->sum);
    cmha__lag_correlate(h->spectrum, h->spectrum, m, 1, h->sum);
    cmha__fft_one(h->sum + m, h->sum, m, h->table);
    for (size_t t = 0; t < h->n; t++) h->pairs[t] = floor(h->sum[t] / (double)m + 0.5);
}

static void cmha__sift_down(double *heap, size_t n, size_t i) {
    double x = heap[i];
    size_t child;
    for (; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1] > heap[child]) child++;
        if (!(heap[child] > x)) break;
        heap[i] = heap[child];
    }
    heap[i] = x;
}

/* The k-th largest of x [n], 0 < k <= n, which is left as a heap of the rest. */
static double cmha__kth_largest(double *x, size_t n, size_t k) {
    for (size_t i = n / 2; i-- > 0;) cmha__sift_down(x, n, i);
    while (--k) {
        x[0] = x[--n];
        cmha__sift_down(x, n, 0);
    }
    return x[0];
}

#ifdef CMHA_DOUBLE
#define CMHA__LAG_GRID 4294967296.0
#else
#define CMHA__LAG_GRID 1048576.0
#endif

/* R as the choice sees it: on a grid of its range |R| <= sqrt(d) that is wider than the rounding of phasors and transforms, so that
   equal lags, as every periodic signal has them, stay equal. */
static double cmha__lag_rank(double R, double unit) { return floor(R * unit + 0.5); }

/* lags[tau] = -infinity except at the topk largest R, of lags that join any pair. */
static void cmha__lag_choose(const cmha__lag_head *h, const double *R) {
    size_t n = h->n, k = h->a->topk, ties = k, eligible = 0;
    double unit = CMHA__LAG_GRID / sqrt((double)(h->a->d ? h->a->d : 1)), limit;
    for (size_t tau = 0; tau < n; tau++)
        if (h->pairs[tau] > 0) h->total[eligible++] = cmha__lag_rank(R[tau], unit);
    if (!k || k >= eligible) return;
    limit = cmha__kth_largest(h->total, eligible, k);
    for (size_t tau = 0; tau < n; tau++)
        if (h->pairs[tau] > 0 && cmha__lag_rank(R[tau], unit) > limit) ties--;
    for (size_t tau = 0; tau < n; tau++) {
        double rank = cmha__lag_rank(R[tau], unit);
        if (!(h->pairs[tau] > 0)) continue;
        if (rank < limit || (rank == limit && !ties)) h->lags[tau] = -(cmha_real)INFINITY;
        else if (rank == limit) ties--;
    }
}

/* lags [a->n] = temp R of the chosen lags. */
static void cmha__lag_scores(const cmha__lag_head *h) {
    size_t n = h->n, m = cmha__power_of_two(2 * n), j0, tau;
    double root = sqrt((double)(h->a->d ? h->a->d : 1)), *R = h->weight;
    memset(h->sum, 0, 2 * m * sizeof *h->sum);
    for (j0 = 0; j0 < h->a->d; j0 += CMHA__FFT_LANES) {
        cmha__lag_transform(h, h->q, 0, n, j0, 1, NULL, m, h->x);
        cmha__lag_transform(h, h->k, 0, n, j0, 1, NULL, m, h->z);
        cmha__lag_correlate(h->x, h->z, m, CMHA__FFT_LANES, h->sum);
    }
    cmha__fft_one(h->sum + m, h->sum, m, h->table);
    for (tau = 0; tau < h->a->n; tau++) {
        h->lags[tau] = -(cmha_real)INFINITY;
        if (tau >= n || !(h->pairs[tau] > 0)) continue;
        R[tau] = h->sum[tau] / ((double)m * root * h->pairs[tau]);
        h->lags[tau] = (cmha_real)((double)h->a->temp * R[tau]);
    }
    cmha__lag_choose(h, R);
}

/* total[t] = sum of the weights that row t < hi sees: a running sum, or with a mask a convolution with it. */
static void cmha__lag_totals(const cmha__lag_head *h, size_t hi) {
    size_t m = cmha__power_of_two(2 * hi), t;
    double sum = 0;
    for (t = 0; t < hi && !h->mask; t++) h->total[t] = sum += h->weight[t];
    if (!h->mask) return;
    cmha__lag_spectrum(h, h->weight, hi, m);
    cmha__lag_mask_spectrum(h, hi, m, h->sum);
    cmha__fft_multiply(h->sum, h->sum + m, h->spectrum, h->spectrum + m, m);
    cmha__fft_one(h->sum + m, h->sum, m, h->table);
    for (t = 0; t < hi; t++) h->total[t] = h->sum[t] / (double)m;
}

/* Before the first weights of a head. */
static void cmha__lag_begin(cmha__lag_head *h) {
    for (size_t t = 0; t < h->n; t++) h->score[t] = (double)h->lags[t];
    memset(h->done, 0, h->a->n);
    h->left = h->n;
}

/* weight[tau] = exp(score - the largest score) for tau < hi; 0 if no lag is left there. */
static int cmha__lag_exponentials(const cmha__lag_head *h, size_t hi) {
    double most = -(double)INFINITY;
    for (size_t tau = 0; tau < hi; tau++)
        if (most == most && !(h->score[tau] <= most)) most = h->score[tau]; /* a NaN stays */
    if (most < -DBL_MAX) return 0;
    for (size_t tau = 0; tau < hi; tau++) h->weight[tau] = exp(h->score[tau] - most);
    return 1;
}

/* Weights and their totals for some more rows below h->hi, the others' totals being 0; 0 if no row is left that sees a lag. The
   rows of one call share a scale: a transform's rounding error goes with the largest weight, so rows whose own sum is below
   1e-4 of it are left to the next call. Those do not see the lags that weigh more than that (twice that, for rounding), which
   are dropped, so that it scales by weights that they may see. One call does for all rows unless the scores span more. */
static int cmha__lag_weights(cmha__lag_head *h) {
    size_t t, rows = 0;
    while (!rows && (h->hi = h->left) > 0 && cmha__lag_exponentials(h, h->hi)) {
        cmha__lag_totals(h, h->hi);
        for (t = 0, h->left = 0; t < h->hi; t++) {
            int waits = !h->done[t] && !cmha__lag_absent(h, t), light = h->total[t] < 1e-4;
            if (waits && light) h->left = t + 1;
            if (h->weight[t] >= 2e-4) h->score[t] = -(double)INFINITY;
            if (waits && !light) h->done[t] = 1, rows++;
            else h->total[t] = 0;
        }
    }
    return rows > 0;
}

/* The rows that the weights are for: the values convolved with the weights, over the weights' totals. */
static void cmha__lag_mix(const cmha__lag_head *h) {
    size_t hi = h->hi, m = cmha__power_of_two(2 * hi), j0, t, l;
    cmha__lag_spectrum(h, h->weight, hi, m);
    for (j0 = 0; j0 < h->a->d; j0 += CMHA__FFT_LANES) {
        cmha__lag_transform(h, h->v, 0, hi, j0, 0, NULL, m, h->x);
        cmha__lag_filter(h, h->x, m, 0);
        for (t = 0; t < hi; t++) {
            const double *x = h->x + t * CMHA__FFT_LANES;
            cmha_real *y = h->y.data + t * h->y.token + j0;
            if (h->total[t] == 0) continue;
            for (l = 0; l < cmha__lag_width(h, j0); l++) {
                y[l] = (cmha_real)(x[l] / h->total[t]);
                y[h->y.imag + l] = (cmha_real)(x[m * CMHA__FFT_LANES + l] / h->total[t]);
            }
        }
    }
}

CMHA_DEF void cmha_lag_attention_forward(const cmha_lag_args *args, cmha_heads q, cmha_heads k, cmha_heads v, cmha_heads y,
                                         cmha_real *lags, cmha_real *scratch) {
    double *memory = (double *)(void *)scratch; /* the arena's alignment serves doubles */
    CMHA__FOR_CHUNKS(args->threads, args->batch * args->heads, first, last) {
        cmha__lag_head h;
        memset(&h, 0, sizeof h);
        cmha__lag_open(&h, args, memory + (size_t)cmha__chunk * cmha__lag_thread(args));
        for (size_t unit = first; unit < last; unit++) {
            size_t b = unit / args->heads, head = unit % args->heads;
            h.q = cmha__head_view(q, b, head), h.k = cmha__head_view(k, b, head);
            h.v = cmha__head_view(v, b, head), h.y = cmha__head_view(y, b, head);
            h.lags = lags + unit * args->n;
            cmha__lag_sequence(&h, b);
            cmha__lag_scores(&h);
            cmha__lag_begin(&h);
            while (cmha__lag_weights(&h)) cmha__lag_mix(&h);
            for (size_t t = 0; t < args->n; t++) { /* absent, or without a chosen lag to see */
                if (h.done[t]) continue;
                memset(h.y.data + t * h.y.token, 0, args->d * sizeof *scratch);
                memset(h.y.data + t * h.y.token + h.y.imag, 0, args->d * sizeof *scratch);
            }
        }
    }
}

/* Channels j0.. of the tokens present in rows [0, n) of the group g are added to a view; z (or NULL): as a gradient of u(z). */
static void cmha__lag_add(const cmha__lag_head *h, const double *g, size_t m, size_t n, size_t j0, const cmha_heads *z,
                          cmha_heads to) {
    size_t t, l, width = cmha__lag_width(h, j0);
    for (t = 0; t < n; t++) {
        cmha_real u[2 * CMHA__FFT_LANES], *re = to.data + t * to.token + j0, *im = re + to.imag;
        if (cmha__lag_absent(h, t)) continue;
        for (l = 0; l < CMHA__FFT_LANES; l++) {
            u[l] = (cmha_real)g[t * CMHA__FFT_LANES + l];
            u[CMHA__FFT_LANES + l] = (cmha_real)g[(m + t) * CMHA__FFT_LANES + l];
        }
        if (z) {
            const cmha_real *x = z->data + t * z->token + j0;
            cmha__phasor_row_backward(x, x + z->imag, width, h->a->eps, 1, u, u + CMHA__FFT_LANES, re, im);
        } else {
            cmha__axpy(width, 1, u, re);
            cmha__axpy(width, 1, u + CMHA__FFT_LANES, im);
        }
    }
}

/* What each lag's weight gets through the denominators, dtotal[t] = -Re(sum conj(y) dy) / total: for lag tau the sum over the
   rows t >= tau with t - tau present. Without a mask that runs from the end, and overwrites total; with one it is a correlation
   and joins the spectrum h->sum. */
static void cmha__lag_denominators(const cmha__lag_head *h) {
    size_t m = cmha__power_of_two(2 * h->hi), t, j;
    double sum = 0;
    for (t = h->hi; t-- > 0;) {
        const cmha_real *y = h->y.data + t * h->y.token, *dy = h->dy.data + t * h->dy.token;
        double row = 0;
        for (j = 0; h->total[t] != 0 && j < h->a->d; j++)
            row += (double)y[j] * (double)dy[j] + (double)y[h->y.imag + j] * (double)dy[h->dy.imag + j];
        if (h->total[t] != 0) sum -= row / h->total[t];
        h->total[t] = sum;
        if (h->mask) sum = 0;
    }
    if (!h->mask) return;
    cmha__lag_spectrum(h, h->total, h->hi, m);
    cmha__lag_mask_spectrum(h, h->hi, m, h->x);
    cmha__lag_correlate(h->spectrum, h->x, m, 1, h->sum);
    memset(h->total, 0, h->hi * sizeof *h->total);
}

/* The rows that the weights are for back to dv and, because weights enter y through their ratios alone, by weight * dweight to
   the scores. */
static void cmha__lag_mix_backward(const cmha__lag_head *h) {
    size_t hi = h->hi, m = cmha__power_of_two(2 * hi), j0, tau;
    cmha__lag_spectrum(h, h->weight, hi, m);
    memset(h->sum, 0, 2 * m * sizeof *h->sum);
    for (j0 = 0; j0 < h->a->d; j0 += CMHA__FFT_LANES) {
        cmha__lag_transform(h, h->dy, 0, hi, j0, 0, h->total, m, h->x);
        if (h->dq.data || h->dk.data) {
            cmha__lag_transform(h, h->v, 0, hi, j0, 0, NULL, m, h->z);
            cmha__lag_correlate(h->x, h->z, m, CMHA__FFT_LANES, h->sum);
        }
        if (!h->dv.data) continue;
        cmha__lag_filter(h, h->x, m, 1);
        cmha__lag_add(h, h->x, m, hi, j0, NULL, h->dv);
    }
    cmha__lag_denominators(h);
    cmha__fft_one(h->sum + m, h->sum, m, h->table);
    for (tau = 0; tau < hi; tau++)
        h->dlags[tau] += h->weight[tau] * (h->sum[tau] / (double)m + h->total[tau]);
}

/* The scores' gradient back to q and k. */
static void cmha__lag_scores_backward(const cmha__lag_head *h) {
    size_t n = h->n, m = cmha__power_of_two(2 * n), j0, tau;
    double factor = (double)h->a->temp / sqrt((double)(h->a->d ? h->a->d : 1));
    for (tau = 0; tau < n; tau++) h->dlags[tau] *= h->pairs[tau] > 0 ? factor / h->pairs[tau] : 0;
    cmha__lag_spectrum(h, h->dlags, n, m);
    for (j0 = 0; j0 < h->a->d; j0 += CMHA__FFT_LANES) {
        if (h->dq.data) {
            cmha__lag_transform(h, h->k, 0, n, j0, 1, NULL, m, h->z);
            cmha__lag_filter(h, h->z, m, 0);
            cmha__lag_add(h, h->z, m, n, j0, &h->q, h->dq);
        }
        if (h->dk.data) {
            cmha__lag_transform(h, h->q, 0, n, j0, 1, NULL, m, h->x);
            cmha__lag_filter(h, h->x, m, 1);
            cmha__lag_add(h, h->x, m, n, j0, &h->k, h->dk);
        }
    }
}

CMHA_DEF void cmha_lag_attention_backward(const cmha_lag_args *args, cmha_heads q, cmha_heads k, cmha_heads v, cmha_heads y,
                                          const cmha_real *lags, cmha_heads dy, cmha_heads dq, cmha_heads dk, cmha_heads dv,
                                          cmha_real *scratch) {
    double *memory = (double *)(void *)scratch;
    CMHA__FOR_CHUNKS(args->threads, args->batch * args->heads, first, last) {
        cmha__lag_head h;
        memset(&h, 0, sizeof h);
        cmha__lag_open(&h, args, memory + (size_t)cmha__chunk * cmha__lag_thread(args));
        for (size_t unit = first; unit < last; unit++) {
            size_t b = unit / args->heads, head = unit % args->heads;
            h.q = cmha__head_view(q, b, head), h.k = cmha__head_view(k, b, head), h.v = cmha__head_view(v, b, head);
            h.y = cmha__head_view(y, b, head), h.dy = cmha__head_view(dy, b, head);
            h.dq = cmha__head_view(dq, b, head), h.dk = cmha__head_view(dk, b, head), h.dv = cmha__head_view(dv, b, head);
            h.lags = (cmha_real *)(uintptr_t)(lags + unit * args->n); /* read only from here on */
            cmha__lag_sequence(&h, b);
            cmha__lag_begin(&h);
            memset(h.dlags, 0, args->n * sizeof *h.dlags);
            while (cmha__lag_weights(&h)) cmha__lag_mix_backward(&h);
            if (dq.data || dk.data) cmha__lag_scores_backward(&h);
        }
    }
}

/* ---- Linear and lag attention over planes ---- */

/* Sizes that both operations take from their tensors, and where the parts lie. */
typedef struct cmha__planes {
    size_t batch, heads, n, d, d_v;
    int fused, real_values;
} cmha__planes;

/* Fills in the sizes; returns a line with two %zu when the tensors do not fit, and the two numbers. */
static const char *cmha__planes_sizes(cmha__planes *s, const cmha_tensor *q, const cmha_tensor *k, const cmha_tensor *v,
                                      size_t *one, size_t *two) {
    size_t width = cmha__last(q), planes = k ? 2 : 6, parts;
    *one = width, *two = s->heads;
    s->fused = !k;
    if (!k != !v || (s->fused && s->real_values)) return "attention over planes: k and v are missing (q of width %zu, %zu heads)";
    if (!s->heads || s->heads > width / planes || q->rank != 3 || width % (s->heads * planes)) /* in this order: no product wraps */
        return "attention over planes: width %zu does not fit %zu complex heads";
    s->batch = q->shape[0];
    s->n = q->shape[1];
    s->d = s->d_v = width / (s->heads * planes);
    if (s->fused) return NULL;
    *one = k->size, *two = q->size;
    if (!cmha__same_shape(q, k)) return "attention over planes: keys of %zu numbers, queries of %zu, must have one shape";
    *one = cmha__last(v), *two = s->heads;
    parts = s->heads * (s->real_values ? 1 : 2);
    if (v->rank != 3 || *one % parts || !*one) return "attention over planes: values of width %zu do not fit %zu heads";
    s->d_v = *one / parts;
    *one = v->shape[0] * v->shape[1], *two = s->batch * s->n;
    if (v->shape[0] != s->batch || v->shape[1] != s->n) return "attention over planes: values of %zu tokens, queries of %zu";
    return NULL;
}

/* A view of one tensor of planes, or of one real tensor. */
static cmha_heads cmha__planes_view(const cmha__planes *s, cmha_real *data, size_t d, int real) {
    return cmha_complex_tokens_major(data, s->n, s->heads * d * (real ? 1 : 2), d, real ? 0 : s->heads * d);
}

static cmha_heads cmha__planes_output(const cmha__planes *s, cmha_real *data) {
    return cmha__planes_view(s, data, s->d_v, s->real_values);
}

/* Views of queries, keys and values in three arrays or in one. */
static void cmha__planes_views(const cmha__planes *s, cmha_real *q, cmha_real *k, cmha_real *v, cmha_heads *view) {
    size_t Hd = s->heads * s->d;
    view[0] = cmha__planes_view(s, q, s->d, 0);
    view[1] = cmha__planes_view(s, k, s->d, 0);
    view[2] = cmha__planes_view(s, v, s->d_v, s->real_values);
    for (int i = 0; i < 3 && s->fused; i++)
        view[i] = cmha_complex_tokens_major(q ? q + (size_t)i * Hd : NULL, s->n, 6 * Hd, s->d, 3 * Hd);
}

static cmha_tensor *cmha__planes_result(cmha_tape *tape, const cmha__planes *s) {
    size_t shape[3];
    shape[0] = s->batch, shape[1] = s->n, shape[2] = s->heads * s->d_v * (s->real_values ? 1 : 2);
    return cmha__result(tape, 3, shape);
}

/* What a backward callback starts with: the gradients, and views of everything. */
typedef struct cmha__planes_backward {
    cmha_heads x[3], d[3], y, dy;
} cmha__planes_backward;

static void cmha__planes_open(cmha_tape *tape, const cmha__planes *s, cmha_record *r, cmha__planes_backward *p) {
    cmha_tensor *q = r->in[0], *k = r->in[1], *v = r->in[2];
    cmha_real *dq = cmha_grad(tape, q), *dk = cmha_grad(tape, k), *dv = cmha_grad(tape, v);
    cmha__planes_views(s, q->data, k ? k->data : NULL, v ? v->data : NULL, p->x);
    cmha__planes_views(s, dq, dk, dv, p->d);
    p->y = cmha__planes_output(s, r->out->data);
    p->dy = cmha__planes_output(s, r->out->grad);
}

typedef struct cmha__linear_saved {
    cmha_linear_args args;
    cmha__planes planes;
    cmha_real *rows;
} cmha__linear_saved;

static cmha_status cmha__linear_attention_record(cmha_tape *tape, cmha_record *r) {
    const cmha__linear_saved *s = (const cmha__linear_saved *)r->user;
    cmha__planes_backward p;
    cmha__mark mark;
    cmha_real *scratch;
    cmha__planes_open(tape, &s->planes, r, &p);
    mark = cmha__mark_of(tape);
    scratch = cmha__reals(tape, cmha_linear_attention_scratch(&s->args, 1));
    if (!tape->status && !cmha__dry(tape))
        cmha_linear_attention_backward(&s->args, p.x[0], p.x[1], p.x[2], p.y, s->rows, p.dy, p.d[0], p.d[1], p.d[2], scratch);
    cmha__rewind(tape, mark);
    return tape->status;
}

/* state NULL: the whole sequence is there. Else it goes on from a cache's state, outside of a recording. */
static cmha_tensor *cmha__linear_attention(cmha_tape *tape, const cmha_linear_args *args, cmha_tensor *q, cmha_tensor *k,
                                           cmha_tensor *v, cmha_real *state) {
    size_t one = 0, two = 0;
    const char *misfit;
    cmha__linear_saved *s;
    cmha_tensor *in[3], *y;
    cmha_heads x[3], out;
    cmha_real *scratch;
    cmha__mark mark;
    if (!q || !tape || tape->status) return NULL;
    if (!args) return cmha__reject(tape, CMHA_ERR_ARGUMENT, "attention: args is NULL");
    s = (cmha__linear_saved *)cmha__record_alloc(tape, sizeof *s);
    if (!s) return NULL;
    if ((int)args->kind < 0 || args->kind > CMHA_LINEAR_ANGULAR || (int)args->output < 0 || args->output > CMHA_COPE_OUTPUT_HYBRID)
        return cmha__reject(tape, CMHA_ERR_ARGUMENT, "linear attention: there is no such kind or output");
    s->args = *args;
    s->planes.heads = args->heads;
    s->planes.real_values = args->kind == CMHA_LINEAR_COPE;
    misfit = cmha__planes_sizes(&s->planes, q, k, v, &one, &two);
    if (misfit) return cmha__reject(tape, CMHA_ERR_SHAPE, misfit, one, two);
    s->args.batch = s->planes.batch, s->args.n = s->planes.n, s->args.d = s->planes.d, s->args.d_v = s->planes.d_v;
    s->args.threads = tape->context->threads;
    y = cmha__planes_result(tape, &s->planes);
    s->rows = y ? cmha__reals(tape, cmha_linear_attention_saved(&s->args)) : NULL;
    if (!s->rows) return NULL;
    mark = cmha__mark_of(tape);
    scratch = cmha__reals(tape, cmha_linear_attention_scratch(&s->args, 0));
    if (!tape->status && !cmha__dry(tape)) {
        cmha__planes_views(&s->planes, q->data, k ? k->data : NULL, v ? v->data : NULL, x);
        out = cmha__planes_view(&s->planes, y->data, s->planes.d_v, s->planes.real_values);
        if (state) cmha_linear_attention_append(&s->args, x[0], x[1], x[2], out, state, scratch);
        else cmha_linear_attention_forward(&s->args, x[0], x[1], x[2], out, s->rows, scratch);
    }
    cmha__rewind(tape, mark);
    in[0] = q, in[1] = k, in[2] = v;
    return cmha_push(tape, "linear_attention", y, in, 3, cmha__linear_attention_record, s);
}

CMHA_DEF cmha_tensor *cmha_linear_attention(cmha_tape *tape, const cmha_linear_args *args, cmha_tensor *q, cmha_tensor *k,
                                            cmha_tensor *v) {
    return cmha__linear_attention(tape, args, q, k, v, NULL);
}

typedef struct cmha__lag_saved {
    cmha_lag_args args;
    cmha__planes planes;
    cmha_real *lags;
} cmha__lag_saved;

static cmha_status cmha__lag_attention_record(cmha_tape *tape, cmha_record *r) {
    const cmha__lag_saved *s = (const cmha__lag_saved *)r->user;
    cmha__planes_backward p;
    cmha__mark mark;
    cmha_real *scratch;
    cmha__planes_open(tape, &s->planes, r, &p);
    mark = cmha__mark_of(tape);
    scratch = cmha__reals(tape, cmha_lag_attention_scratch(&s->args));
    if (!tape->status && !cmha__dry(tape))
        cmha_lag_attention_backward(&s->args, p.x[0], p.x[1], p.x[2], p.y, s->lags, p.dy, p.d[0], p.d[1], p.d[2], scratch);
    cmha__rewind(tape, mark);
    return tape->status;
}

CMHA_DEF cmha_tensor *cmha_lag_attention(cmha_tape *tape, const cmha_lag_args *args, cmha_tensor *q, cmha_tensor *k,
                                         cmha_tensor *v) {
    size_t one = 0, two = 0;
    const char *misfit;
    cmha__lag_saved *s;
    cmha_tensor *in[3], *y;
    cmha_heads x[3];
    cmha_real *scratch;
    cmha__mark mark;
    if (!q || !tape || tape->status) return NULL;
    if (!args) return cmha__reject(tape, CMHA_ERR_ARGUMENT, "attention: args is NULL");
    s = (cmha__lag_saved *)cmha__record_alloc(tape, sizeof *s);
    if (!s) return NULL;
    s->args = *args;
    s->planes.heads = args->heads;
    misfit = cmha__planes_sizes(&s->planes, q, k, v, &one, &two);
    if (!misfit && s->planes.d_v != s->planes.d) {
        one = s->planes.d_v, two = s->planes.d;
        misfit = "lag attention: values of %zu complex numbers a head, queries of %zu";
    }
    if (misfit) return cmha__reject(tape, CMHA_ERR_SHAPE, misfit, one, two);
    s->args.batch = s->planes.batch, s->args.n = s->planes.n, s->args.d = s->planes.d;
    s->args.threads = tape->context->threads;
    y = cmha__planes_result(tape, &s->planes);
    s->lags = y ? cmha__reals(tape, s->args.batch * s->args.heads * s->args.n) : NULL;
    if (!s->lags) return NULL;
    mark = cmha__mark_of(tape);
    scratch = cmha__reals(tape, cmha_lag_attention_scratch(&s->args));
    if (!tape->status && !cmha__dry(tape)) {
        cmha__planes_views(&s->planes, q->data, k ? k->data : NULL, v ? v->data : NULL, x);
        cmha_lag_attention_forward(&s->args, x[0], x[1], x[2], cmha__planes_output(&s->planes, y->data), s->lags, scratch);
    }
    cmha__rewind(tape, mark);
    in[0] = q, in[1] = k, in[2] = v;
    return cmha_push(tape, "lag_attention", y, in, 3, cmha__lag_attention_record, s);
}

/* ---- Phase contrastive loss ---- */

CMHA_DEF size_t cmha_pcl_scratch(const cmha_pcl_args *args) {
    return cmha__countable((8 * args->P + CMHA__TILE) * args->N, (8 * (double)args->P + CMHA__TILE) * (double)args->N);
}

static cmha_real cmha__pcl_scale(const cmha_pcl_args *a) { return 1 / ((cmha_real)a->P * a->tau); }
static int cmha__pcl_sees(const cmha_pcl_args *a, size_t t) { return !a->valid || a->valid[t]; }
static size_t cmha__pcl_positive(const cmha_pcl_args *a, size_t t) {
    return a->positive ? a->positive[t] : t;
}

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

static size_t cmha__pcl_valid(const cmha_pcl_args *a) {
    size_t count = 0;
    for (size_t t = 0; t < a->N; t++) count += (size_t)cmha__pcl_sees(a, t);
    return count;
}

/* S [rows, N] = sim(j, j') / tau for the tokens j from `first` on; returns rows. */
static size_t cmha__pcl_logits(const cmha_pcl_args *a, const cmha_real *q, const cmha_real *k, size_t first,
                               cmha_real *S) {
    size_t d = 2 * a->P, N = a->N, rows = N - first < CMHA__TILE ? N - first : CMHA__TILE;
    cmha_gemm(0, 1, rows, N, d, 1, q + first * d, d, k, d, 0, S, N);
    return rows;
}

/* Takes padding out of a row of logits. */
static void cmha__pcl_hide(const cmha_pcl_args *a, cmha_real *row) {
    for (size_t j = 0; a->valid && j < a->N; j++)
        if (!a->valid[j]) row[j] = -(cmha_real)INFINITY;
}

/* Turns a row of logits into exp(logit - top), its positive into 0; returns the sum. With the positive
   apart nothing cancels: the loss is log(1 + others), and the gradient of the positive's logit minus the
   others' sum, however small they are. */
static cmha_real cmha__pcl_others(const cmha_pcl_args *a, size_t positive, cmha_real top, cmha_real *row) {
    row[positive] = -(cmha_real)INFINITY;
    return cmha__exp_shifted(row, a->N, top);
}

CMHA_DEF double cmha_pcl_forward(const cmha_pcl_args *args, const cmha_real *theta, cmha_real *lse, cmha_real *scratch) {
    size_t N = args->N, d = 2 * args->P, t = 0, rows, count = cmha__pcl_valid(args);
    cmha_real *q = scratch, *k = q + N * d, *S = k + N * d;
    double sum = 0;
    cmha__phasors(args, theta, q, k);
    while (t < N) {
        cmha_real *row = S;
        for (rows = cmha__pcl_logits(args, q, k, t, S); rows > 0; rows--, t++, row += N) {
            size_t positive = cmha__pcl_positive(args, t);
            double gap = (double)row[positive], own, others;
            lse[2 * t] = lse[2 * t + 1] = 0;
            if (!cmha__pcl_sees(args, t)) continue;
            cmha__pcl_hide(args, row);
            lse[2 * t] = cmha__largest(row, N);
            gap = (double)lse[2 * t] - gap;
            own = cmha__pcl_sees(args, positive) ? exp(-gap) : 0;
            others = (double)cmha__pcl_others(args, positive, lse[2 * t], row);
            others = own == 1 ? log1p(others) : log(own + others);
            lse[2 * t + 1] = (cmha_real)others;
            sum += gap + others;
        }
    }
    return count ? sum / (double)count : 0;
}

/* Turns a row of logits into the gradient of its loss by them, times scale. */
static void cmha__pcl_weights(const cmha_pcl_args *a, size_t t, const cmha_real *lse, cmha_real scale,
                              cmha_real *row) {
    size_t positive = cmha__pcl_positive(a, t), j;
    cmha_real factor = scale * cmha__exp(-lse[2 * t + 1]), others;
    if (!cmha__pcl_sees(a, t)) {
        memset(row, 0, a->N * sizeof *row);
        return;
    }
    cmha__pcl_hide(a, row);
    others = cmha__pcl_others(a, positive, lse[2 * t], row);
    for (j = 0; j < a->N; j++) row[j] *= factor;
    row[positive] = cmha__pcl_sees(a, positive) ? -factor * others : -scale;
}

CMHA_DEF void cmha_pcl_backward(const cmha_pcl_args *args, const cmha_real *theta, const cmha_real *lse, cmha_real dloss,
                                cmha_real *dtheta, cmha_real *dw, cmha_real *scratch) {
    size_t N = args->N, P = args->P, d = 2 * P, t, r, rows, count = cmha__pcl_valid(args);
    cmha_real *q = scratch, *k = q + N * d, *dq = k + N * d, *dk = dq + N * d, *S = dk + N * d;
    cmha_real scale = cmha__pcl_scale(args);
    if (!count) return;
    cmha__phasors(args, theta, q, k);
    for (t = 0; t < N; t += rows) {
        rows = cmha__pcl_logits(args, q, k, t, S);
        for (r = 0; r < rows; r++) cmha__pcl_weights(args, t + r, lse, dloss / (cmha_real)count, S + r * N);
        cmha_gemm(0, 0, rows, d, N, 1, S, N, k, d, 0, dq + t * d, d);
        cmha_gemm(1, 0, N, d, rows, 1, S, N, q + t * d, d, t > 0, dk, d);
    }
    for (t = 0; t < N; t++, q += d, dq += d, dk += d)
        for (r = 0; r < P; r++) {
            cmha_real s, c;
            cmha__sincos(theta[t * P + r], &s, &c);
            if (dw) dw[r] += scale * (c * dq[r] + s * dq[P + r]);
            if (!dtheta) continue;
            dtheta[t * P + r] += scale * args->w[r] * (c * dq[P + r] - s * dq[r]);
            if (!args->keep || args->keep[t * P + r]) dtheta[t * P + r] += c * dk[P + r] - s * dk[r];
        }
}

/* Phase contrastive loss over a fused projection. A unit is one head of queries or of keys of one sequence. */
typedef struct cmha__pcl_saved {
    cmha__attention_saved attention; /* sizes, layout, delta, rotation */
    cmha_pcl_options options;
    uint64_t key;
    cmha_real *lse;                  /* [units, N, 2] */
} cmha__pcl_saved;

static size_t cmha__pcl_units(const cmha__pcl_saved *s) {
    return s->attention.args.batch * (s->attention.args.heads + s->attention.args.kv_heads);
}

/* Scratch of one thread: theta, adapted theta, their gradients [N, P] each, rows of one token, keep bytes, and the kernel's own. */
static size_t cmha__pcl_thread(const cmha__pcl_saved *s, cmha_pcl_args *args) {
    const cmha_attention_args *a = &s->attention.args;
    size_t NP = a->n_q * (a->d_k / 2);
    memset(args, 0, sizeof *args);
    args->N = a->n_q;
    args->P = a->d_k / 2;
    args->tau = s->options.tau;
    return (4 * NP + 2 * a->n_q * a->d_k + NP / sizeof(cmha_real) + 1 + cmha_pcl_scratch(args) + 15) / 16 * 16;
}

/* One unit's arrays, dealt out of a thread's scratch. */
typedef struct cmha__pcl_unit {
    cmha_pcl_args args;
    cmha__feature feature;
    size_t column;               /* of the unit's first number in a row of the projection */
    int is_query;
    size_t row;                  /* of delta and b */
    cmha_real *kernel, *theta, *adapted, *dtheta, *dadapted, *x, *dx;
    unsigned char *keep;
} cmha__pcl_unit;

static void cmha__pcl_open(const cmha__pcl_saved *s, const cmha_real *qkv, const cmha_real *w, size_t unit, cmha_real *scratch,
                           cmha__pcl_unit *u) {
    const cmha_attention_args *a = &s->attention.args;
    size_t per = a->heads + a->kv_heads, b = unit / per, h = unit % per, N = a->n_q, P = a->d_k / 2;
    size_t head = h < a->heads ? h : (h - a->heads) * (a->heads / a->kv_heads); /* a key head uses its group's first delta */
    cmha_rng rng = cmha_rng_make(s->key, unit);
    cmha__pcl_thread(s, &u->args);
    u->is_query = h < a->heads;
    u->column = h * a->d_k;
    u->row = a->share == CMHA_SHARE_PER_HEAD ? head : 0;
    u->feature = cmha__feature_of(a, head);
    u->kernel = scratch;
    u->theta = scratch + cmha_pcl_scratch(&u->args);
    u->adapted = u->theta + N * P;
    u->dtheta = u->adapted + N * P;
    u->dadapted = u->dtheta + N * P;
    u->x = u->dadapted + N * P;
    u->dx = u->x + N * a->d_k;
    u->keep = (unsigned char *)(u->dx + N * a->d_k);
    u->args.w = w;
    u->args.keep = u->keep;
    u->args.valid = a->key_mask ? a->key_mask + b * N : NULL;
    for (size_t t = 0; t < N; t++) memcpy(u->x + t * a->d_k, qkv + (b * N + t) * s->attention.row + u->column, a->d_k * sizeof *u->x);
    for (size_t j = 0; j < N * P; j++) u->keep[j] = cmha_rng_uniform(&rng) >= (double)s->options.mask_rate;
    cmha_euler_forward(u->x, N, P, a->layout, NULL, u->theta);
    memcpy(u->adapted, u->theta, N * P * sizeof *u->theta);
    if (!s->options.adapted || a->kind == CMHA_ATTENTION_DOT) return;
    for (size_t t = 0; t < N; t++)
        for (size_t j = 0; j < P; j++) { /* the angle of the rotation, reduced: only its cosine and sine matter */
            const cmha_real *rotation = u->feature.rotation + t * a->d_k;
            double angle = atan2((double)rotation[P + j], (double)rotation[j]);
            angle += (double)(u->feature.delta ? u->feature.delta[j] : 1) * (double)u->theta[t * P + j];
            if (u->is_query && u->feature.b) angle += (double)u->feature.b[j];
            u->adapted[t * P + j] = (cmha_real)angle;
        }
}

static cmha_status cmha__pcl_backward(cmha_tape *tape, cmha_record *r) {
    const cmha__pcl_saved *s = (const cmha__pcl_saved *)r->user;
    const cmha_attention_args *a = &s->attention.args;
    cmha_tensor *qkv = r->in[0], *w = r->in[3];
    cmha_real *dqkv = cmha_grad(tape, qkv), *ddelta = cmha_grad(tape, r->in[1]), *db = cmha_grad(tape, r->in[2]),
              *dw = cmha_grad(tape, w);
    size_t units = cmha__pcl_units(s), P = a->d_k / 2, N = a->n_q, u, j, per = a->heads + a->kv_heads;
    cmha_pcl_args unused;
    cmha__mark mark = cmha__mark_of(tape);
    cmha_real *partial = cmha__reals(tape, units * 3 * P);
    cmha_real *scratch = cmha__reals(tape, (size_t)tape->context->threads * cmha__pcl_thread(s, &unused));
    if (!tape->status && !cmha__dry(tape) && units) {
        cmha_real scale = r->out->grad[0] / (cmha_real)units;
        memset(partial, 0, units * 3 * P * sizeof *partial);
        CMHA__FOR_CHUNKS(tape->context->threads, units, lo, hi) {
            cmha_pcl_args none;
            cmha_real *own = scratch + (size_t)cmha__chunk * cmha__pcl_thread(s, &none);
            cmha__pcl_unit x;
            for (size_t unit = lo; unit < hi; unit++) {
                cmha_real *part = partial + unit * 3 * P;
                int adapted = s->options.adapted && a->kind != CMHA_ATTENTION_DOT;
                cmha__pcl_open(s, qkv->data, w->data, unit, own, &x);
                memset(x.dadapted, 0, N * P * sizeof *own);
                memset(x.dx, 0, N * a->d_k * sizeof *own);
                cmha_pcl_backward(&x.args, x.adapted, s->lse + unit * N * 2, scale, x.dadapted, part, x.kernel);
                for (size_t i = 0; i < N * P; i++) {
                    cmha_real delta = adapted && x.feature.delta ? x.feature.delta[i % P] : 1;
                    x.dtheta[i] = delta * x.dadapted[i];
                    if (adapted) part[P + i % P] += x.theta[i] * x.dadapted[i];
                    if (adapted && x.is_query) part[2 * P + i % P] += x.dadapted[i];
                }
                cmha_euler_backward(x.x, NULL, x.dtheta, N, P, a->layout, x.dx);
                for (size_t t = 0; dqkv && t < N; t++)
                    cmha__axpy(a->d_k, 1, x.dx + t * a->d_k, dqkv + (unit / per * N + t) * s->attention.row + x.column);
            }
        }
        for (u = 0; u < units; u++) {
            size_t h = u % per, head = h < a->heads ? h : (h - a->heads) * (a->heads / a->kv_heads);
            size_t row = a->share == CMHA_SHARE_PER_HEAD ? head : 0;
            for (j = 0; j < P; j++) {
                if (dw) dw[j] += partial[u * 3 * P + j];
                if (ddelta) ddelta[row * P + j] += partial[u * 3 * P + P + j];
                if (db) db[row * P + j] += partial[u * 3 * P + 2 * P + j];
            }
        }
    }
    cmha__rewind(tape, mark);
    return tape->status;
}

static cmha_status cmha__pcl_run(cmha_tape *tape, cmha__pcl_saved *s, const cmha_tensor *qkv, const cmha_tensor *w,
                                 cmha_real *loss) {
    size_t units = cmha__pcl_units(s), N = s->attention.args.n_q, u;
    cmha_pcl_args unused;
    cmha__mark mark = cmha__mark_of(tape);
    double *losses = (double *)cmha_tape_alloc(tape, (units + 1) * sizeof *losses), sum = 0;
    cmha_real *scratch = cmha__reals(tape, (size_t)tape->context->threads * cmha__pcl_thread(s, &unused));
    if (!tape->status && !cmha__dry(tape)) {
        CMHA__FOR_CHUNKS(tape->context->threads, units, lo, hi) {
            cmha_pcl_args none;
            cmha_real *own = scratch + (size_t)cmha__chunk * cmha__pcl_thread(s, &none);
            cmha__pcl_unit x;
            for (size_t unit = lo; unit < hi; unit++) {
                cmha__pcl_open(s, qkv->data, w->data, unit, own, &x);
                losses[unit] = cmha_pcl_forward(&x.args, x.adapted, s->lse + unit * N * 2, x.kernel);
            }
        }
        for (u = 0; u < units; u++) sum += losses[u];
        *loss = units ? (cmha_real)(sum / (double)units) : 0;
    }
    cmha__rewind(tape, mark);
    return tape->status;
}

CMHA_DEF cmha_tensor *cmha_pcl(cmha_tape *tape, const cmha_attention_args *args, cmha_tensor *qkv, cmha_tensor *delta,
                               cmha_tensor *b, cmha_tensor *w, const cmha_pcl_options *options) {
    size_t one = 0, two = 0, size = 1;
    const char *misfit;
    cmha__pcl_saved *s;
    cmha_tensor *in[4], *y;
    if (!qkv || !w || !tape || tape->status) return NULL;
    if (!args || !options) return cmha__reject(tape, CMHA_ERR_ARGUMENT, "pcl: args or options is NULL");
    s = (cmha__pcl_saved *)cmha__record_alloc(tape, sizeof *s);
    if (!s) return NULL;
    s->attention.args = *args;
    s->options = *options;
    misfit = cmha__attention_sizes(&s->attention, qkv, NULL, NULL, &one, &two);
    if (!misfit && args->kind != CMHA_ATTENTION_DOT) misfit = cmha__attention_features(&s->attention, delta, b, &one, &two);
    if (!misfit && (s->attention.args.d_k % 2 || w->size != s->attention.args.d_k / 2)) misfit = "pcl: w does not fit (%zu, %zu)";
    if (misfit) return cmha__reject(tape, CMHA_ERR_SHAPE, misfit, one, two);
    if (cmha__is_complex(args)) return cmha__reject(tape, CMHA_ERR_ARGUMENT, "pcl: complex queries have no loss of this kind");
    if (!(options->tau > 0)) return cmha__reject(tape, CMHA_ERR_ARGUMENT, "pcl: tau must be positive");
    if (options->adapted && args->kind != CMHA_ATTENTION_DOT && !args->rotation)
        return cmha__reject(tape, CMHA_ERR_ARGUMENT, "pcl: no rotation table");
    s->key = cmha__draw(tape);
    y = cmha__result(tape, 1, &size);
    s->lse = y ? cmha__reals(tape, cmha__pcl_units(s) * s->attention.args.n_q * 2) : NULL;
    if (!s->lse || cmha__pcl_run(tape, s, qkv, w, y->data)) return NULL;
    in[0] = qkv, in[1] = delta, in[2] = b, in[3] = w;
    return cmha_push(tape, "pcl", y, in, 4, cmha__pcl_backward, s);
}

/* ======================================================= Models ======================================================= */

static void cmha__preset_cope(cmha_model_config *m, cmha_trainer_config *t) {
    m->family = CMHA_FAMILY_COPE, m->attention = CMHA_ATTENTION_DOT, m->causal = 0;
    m->n_layers = 6, m->d_model = 256, m->n_heads = 8, m->d_ff = 1024, m->vocabulary = 30522, m->max_positions = 512;
    m->placement = CMHA_NORM_POST, m->activation = CMHA_RELU, m->output_bias = 1, m->dropout = m->attention_dropout = 0.2;
    m->token_types = 2, m->classes = 2, m->init = CMHA_INIT_XAVIER;
    t->batch = 512, t->length = 256, t->schedule = CMHA_LINEAR, t->min_lr = 1e-5, t->warmup = 0;
}

static void cmha__preset_mobius(cmha_model_config *m, cmha_trainer_config *t, int rope) {
    m->family = CMHA_FAMILY_MOBIUS, m->attention = rope ? CMHA_ATTENTION_ROPE : CMHA_ATTENTION_DOT, m->causal = 0;
    m->n_layers = rope ? 12 : 11, m->d_model = 768, m->n_heads = 12, m->d_ff = 3072, m->vocabulary = 30522, m->max_positions = 512;
    m->mobius_heads = 6, m->position = CMHA_POSITION_LEARNED, m->placement = CMHA_NORM_POST, m->attention_bias = 1,
    m->head_bias = 1;
    m->dropout = m->attention_dropout = 0.1, m->token_types = 2;
    t->length = 128, t->schedule = CMHA_LINEAR;
}

/* Everything the paper has, so that each row of its ablation (Table 6) is one field away: family=real (a real-valued transformer of
   dot products with the same positions), crat_attention=dot, irw_layers=0, pe_terms=1, state_rotation=0, complex_norm=split,
   experts=0. d_ff is that of the paper's 125 million parameters with GPT-2's vocabulary. */
static void cmha__preset_crat(cmha_model_config *m, cmha_trainer_config *t) {
    m->family = CMHA_FAMILY_CRAT, m->attention = CMHA_ATTENTION_DOT, m->position = CMHA_POSITION_MULTIFREQ;
    m->n_layers = 12, m->d_model = 768, m->n_heads = 8, m->d_ff = 1024, m->real_heads = m->imag_heads = 2;
    m->experts = 8, m->experts_top = 2, m->complex_residual = CMHA_RESIDUAL_FREE, m->irw_layers = 1;
    m->dropout = 0.1, m->phase_reg = m->mag_reg = 1e-4, m->embedding_scale = 1;
    t->clip_mode = CMHA_CLIP_WHOLE + 1 + CMHA_CLIP_NORM;
}

CMHA_DEF cmha_status cmha_preset(const char *name, cmha_model_config *model, cmha_trainer_config *trainer) {
    cmha_model_config m;
    cmha_trainer_config t;
    cmha_config_defaults(cmha_model_table(), &m); /* the defaults are the paper's */
    cmha_config_defaults(cmha_trainer_table(), &t);
    if (!name) return CMHA_ERR_ARGUMENT;
    if (!strcmp(name, "tiny")) {
        m.n_layers = 4, m.d_model = 128, m.n_heads = 4, m.d_ff = 512;
        m.delta_init = CMHA_DELTA_ROPE_START;
        t.steps = 1500, t.batch = 16, t.length = 128;
        t.lr = 3e-3, t.min_lr = 1e-4, t.beta2 = 0.99, t.adam_eps = 1e-8, t.weight_decay = 0.1;
    } else if (!strcmp(name, "paper")) {
        m.dropout = m.attention_dropout = 0.1;
    } else if (!strcmp(name, "repo")) {
        m.dropout = m.attention_dropout = 0;
        m.layout = CMHA_LAYOUT_HALF, m.score_scale = 1;
        m.activation = CMHA_SWIGLU, m.norm = CMHA_NORM_RMS, m.residual_scale = 0.2, m.tied = 0, m.head_bias = 1;
        m.delta_std = 0.17677669529663687; /* 1/sqrt(d_k/2) at d_k = 64 */
    } else if (!strcmp(name, "eulerformer")) {
        m.dropout = m.attention_dropout = 0.1;
        m.share = CMHA_SHARE_SHARED, m.placement = CMHA_NORM_POST, m.delta_init = CMHA_DELTA_CONST, m.delta_value = 1;
        m.attention_bias = 1, m.pcl_weight = 0.01, m.pcl_adapted = 1;
    } else if (!strcmp(name, "encoder")) {
        m.n_layers = 4, m.d_model = 128, m.n_heads = 4, m.d_ff = 512;
        m.causal = 0, m.attention = CMHA_ATTENTION_ROPE, m.token_types = 2, m.classes = 2, m.pool = CMHA_POOL_MEAN, m.dropout = 0.1;
        t.batch = 32, t.length = 64, t.lr = 1e-3, t.beta2 = 0.99, t.adam_eps = 1e-8;
    } else if (!strcmp(name, "cope")) {
        cmha__preset_cope(&m, &t);
    } else if (!strcmp(name, "mobiusbert") || !strcmp(name, "mobroformer")) {
        cmha__preset_mobius(&m, &t, !strcmp(name, "mobroformer"));
    } else if (!strcmp(name, "crat")) {
        m.family = CMHA_FAMILY_CRAT;
        cmha__preset_crat(&m, &t);
    } else {
        return CMHA_ERR_NOT_FOUND;
    }
    if (model) *model = m;
    if (trainer) *trainer = t;
    return CMHA_OK;
}

CMHA_DEF const char *cmha_kind_name(size_t i, const char **fields) {
    static const char *const kinds[][2] = {
        {"cmha", "family=real attention=cmha share=per_head position=none"},
        {"cmha-shared", "family=real attention=cmha share=shared position=none"},
        {"cmha-fixed", "family=real attention=cmha share=fixed position=none"},
        {"rope", "family=real attention=rope position=none"},
        {"dot", "family=real attention=dot position=none"},
        {"dot+learned", "family=real attention=dot position=learned"},
        {"dot+sinusoidal", "family=real attention=dot position=sinusoidal embedding_scale=1"},
        {"alibi", "family=real attention=dot position=alibi"},
        {"cope-phase", "family=cope cope_score=phase attention=dot position=none"},
        {"cope-magnitude", "family=cope cope_score=magnitude attention=dot position=none"},
        {"cope-real", "family=cope cope_score=real attention=dot position=none"},
        {"cope-hybrid", "family=cope cope_score=hybrid attention=dot position=none"},
        {"cope-hybrid_norm", "family=cope cope_score=hybrid_norm attention=dot position=none"},
        {"cope-linear", "family=cope cope_score=linear attention=dot position=none"},
        {"mobius", "family=mobius attention=dot position=learned placement=post"},
        {"mobius+rope", "family=mobius attention=rope position=learned placement=post"},
        {"angular",
         "family=crat crat_attention=angular activation=gelu_erf attention_bias=0 output_bias=0 position=none placement=pre "
         "embedding_scale=1"},
        {"angular-linear",
         "family=crat crat_attention=linear activation=gelu_erf attention_bias=0 output_bias=0 position=none placement=pre "
         "embedding_scale=1"},
        {"crat",
         "family=crat crat_attention=angular activation=gelu_erf attention_bias=0 output_bias=0 position=none placement=pre "
         "embedding_scale=1 experts=4 experts_top=2 complex_residual=free phase_reg=1e-4 mag_reg=1e-4"},
        {"lag", "family=crat crat_attention=lag activation=gelu_erf attention_bias=0 output_bias=0 position=none placement=pre "
                "embedding_scale=1 causal=0"}};
    if (i >= sizeof kinds / sizeof *kinds) return NULL;
    if (fields) *fields = kinds[i][1];
    return kinds[i][0];
}

CMHA_DEF cmha_status cmha_kind(cmha_context *context, const char *name, cmha_model_config *model) {
    const char *fields, *known;
    for (size_t i = 0; name && (known = cmha_kind_name(i, &fields)) != NULL; i++)
        if (!strcmp(known, name)) return cmha_config_set_all(context, cmha_model_table(), model, fields);
    return cmha__fail(context, CMHA_ERR_NOT_FOUND, "there is no kind of attention \"%s\"", name ? name : "");
}

/* How a parameter starts. MAPS: Möbius maps near the identity; UNIT: 1 + 0i; WHITEN: the matrices that leave variance 1/2 a part. */
enum {
    CMHA__ZEROS,
    CMHA__ONES,
    CMHA__WEIGHT,
    CMHA__RESIDUAL_WEIGHT,
    CMHA__EMBEDDING,
    CMHA__DELTA,
    CMHA__MATRIX_ORTHO,
    CMHA__MAPS,
    CMHA__UNIT,
    CMHA__WHITEN,
    CMHA__PE_OMEGA,
    CMHA__PE_DELTA,
    CMHA__SHARES, /* of the queries of a reflection window */
    CMHA__CLOSED  /* the bias of its gate: sigmoid(-2) = 0.12, so that it starts by listening to the model; the paper is silent */
};

/* Declares parameters in file order: a first pass counts them, a second places them in the block. */
typedef struct cmha__builder {
    cmha_model *model;
    size_t n, size, n_views;
    int overflow;
} cmha__builder;

/* Returns NULL in the counting pass. */
static cmha_tensor *cmha__declare_shape(cmha__builder *b, size_t layer, const char *name, int rank, const size_t *shape, int init) {
    cmha_parameter *p = b->model->parameters ? &b->model->parameters[b->n] : NULL;
    size_t count = 1;
    for (int i = 0; i < rank; i++)
        if (!cmha__mul(count, shape[i], &count)) b->overflow = 1;
    if (p) {
        if (layer == SIZE_MAX) snprintf(p->name, sizeof p->name, "%s", name);
        else snprintf(p->name, sizeof p->name, "blocks.%zu.%s", layer, name);
        p->tensor.rank = rank;
        memcpy(p->tensor.shape, shape, (size_t)rank * sizeof *shape);
        p->tensor.size = count;
        p->tensor.data = b->model->data + b->size;
        p->decay = rank > 1 &&
                   (init == CMHA__WEIGHT || init == CMHA__RESIDUAL_WEIGHT || init == CMHA__EMBEDDING || init == CMHA__MATRIX_ORTHO);
        p->init = init;
    }
    b->n++;
    if (!cmha__sum(b->size, count, &b->size)) b->overflow = 1;
    return p ? &p->tensor : NULL;
}

/* cols 0: a vector of `rows`. */
static cmha_tensor *cmha__declare(cmha__builder *b, size_t layer, const char *name, size_t rows, size_t cols, int init) {
    size_t shape[2];
    shape[0] = rows, shape[1] = cols;
    return cmha__declare_shape(b, layer, name, cols ? 2 : 1, shape, init);
}

static cmha_tensor *cmha__declare_if(cmha__builder *b, int wanted, size_t layer, const char *name, size_t rows, size_t cols,
                                     int init) {
    return wanted ? cmha__declare(b, layer, name, rows, cols, init) : NULL;
}

/* A complex matrix [2, rows, cols], or vector [2, rows]. */
static cmha_tensor *cmha__declare_complex(cmha__builder *b, int wanted, size_t layer, const char *name, size_t rows, size_t cols,
                                          int init) {
    size_t shape[3];
    if (!wanted) return NULL;
    shape[0] = 2, shape[1] = rows, shape[2] = cols;
    if (b->model->parameters) b->model->parameters[b->n].is_complex = 1;
    return cmha__declare_shape(b, layer, name, cols ? 3 : 2, shape, init);
}

enum { CMHA__VIEWS = 8 }; /* the most that one block or the model itself has */

/* One real matrix (or, cols 0, vector) over neighbours in the block, `rows` rows from the first on. */
static cmha_tensor *cmha__view(cmha__builder *b, const cmha_tensor *first, size_t rows, size_t cols) {
    cmha_tensor *t;
    if (!first) return NULL;
    t = &b->model->fused[b->n_views++];
    t->data = first->data;
    t->rank = cols ? 2 : 1;
    t->shape[0] = rows;
    t->shape[1] = cols;
    t->size = rows * (cols ? cols : 1);
    return t;
}

static size_t cmha__kv_heads(const cmha_model_config *c) { return c->n_kv_heads ? c->n_kv_heads : c->n_heads; }
static size_t cmha__head_width(const cmha_model_config *c) { return c->d_model / c->n_heads; }

/* The family whose attention a layer has. */
static cmha_family cmha__layer_family(const cmha_model_config *c, size_t layer) {
    int here = layer == 0;
    if (c->family == CMHA_FAMILY_MOBIUS) {
        if (c->mobius_wiring == CMHA_WIRING_FRAMED) here = layer == 0 || layer + 1 == c->n_layers;
        if (c->mobius_wiring == CMHA_WIRING_STACKED) here = layer < 2;
        if (c->mobius_wiring == CMHA_WIRING_ALTERNATING) here = layer % 3 == 0;
    }
    return here || c->family == CMHA_FAMILY_CRAT ? (cmha_family)c->family : CMHA_FAMILY_REAL;
}

/* Plain heads of a layer. */
static size_t cmha__plain_heads(const cmha_model_config *c, size_t layer) {
    cmha_family family = cmha__layer_family(c, layer);
    if (family == CMHA_FAMILY_MOBIUS) return c->n_heads - c->mobius_heads;
    return family == CMHA_FAMILY_REAL ? c->n_heads : 0;
}

static cmha_tensor *cmha__declare_norm(cmha__builder *b, size_t i, const char *weight, const char *bias, cmha_tensor **bias_out) {
    const cmha_model_config *c = &b->model->config;
    cmha_tensor *w = cmha__declare(b, i, weight, c->d_model, 0, CMHA__ONES);
    *bias_out = cmha__declare_if(b, c->norm == CMHA_NORM_LAYER, i, bias, c->d_model, 0, CMHA__ZEROS);
    return w;
}

/* Projections of the plain heads. */
static void cmha__declare_plain(cmha__builder *b, size_t i, cmha_block *k) {
    const cmha_model_config *c = &b->model->config;
    size_t heads = cmha__plain_heads(c, i), d = c->d_model, width = cmha__head_width(c), q = heads * width;
    size_t kv = heads == c->n_heads ? cmha__kv_heads(c) * width : q;
    if (!heads) return;
    k->qkv_weight = cmha__declare(b, i, "attn.wq.weight", q, d, CMHA__WEIGHT);
    cmha__declare(b, i, "attn.wk.weight", kv, d, CMHA__WEIGHT);
    cmha__declare(b, i, "attn.wv.weight", kv, d, CMHA__WEIGHT);
    k->qkv_bias = cmha__declare_if(b, c->attention_bias, i, "attn.wq.bias", q, 0, CMHA__ZEROS);
    cmha__declare_if(b, c->attention_bias, i, "attn.wk.bias", kv, 0, CMHA__ZEROS);
    cmha__declare_if(b, c->attention_bias, i, "attn.wv.bias", kv, 0, CMHA__ZEROS);
    k->qkv_weight = cmha__view(b, k->qkv_weight, q + 2 * kv, d);
    k->qkv_bias = cmha__view(b, k->qkv_bias, q + 2 * kv, 0);
}

/* delta and b of the plain heads, and the weights of the phase contrastive loss. */
static void cmha__declare_phases(cmha__builder *b, size_t i, cmha_block *k) {
    const cmha_model_config *c = &b->model->config;
    size_t heads = cmha__plain_heads(c, i), P = cmha__head_width(c) / 2, rows = c->share == CMHA_SHARE_PER_HEAD ? heads : 1;
    int learned = heads && c->attention == CMHA_ATTENTION_CMHA && c->share != CMHA_SHARE_FIXED;
    k->delta = cmha__declare_if(b, learned, i, "attn.delta", rows, P, CMHA__DELTA);
    k->b = cmha__declare_if(b, learned, i, "attn.b", rows, P, CMHA__ZEROS);
    k->pcl_w = cmha__declare_if(b, heads && c->pcl_weight > 0 && c->pcl_learn, i, "attn.pcl_w", P, 0, CMHA__ONES);
}

/* Queries, keys and values of the Möbius heads, by mode. */
static void cmha__declare_mobius(cmha__builder *b, size_t i, cmha_block *k) {
    const cmha_model_config *c = &b->model->config;
    size_t d = c->d_model, q = c->mobius_heads * cmha__head_width(c), maps[3];
    int literal = c->mobius_mode == CMHA_MOBIUS_LITERAL, full = c->mobius_mode == CMHA_MOBIUS_FULL, linear = !literal;
    int matrix = c->mobius_init == CMHA_MOBIUS_ORTHO ? CMHA__MATRIX_ORTHO : CMHA__WEIGHT;
    maps[0] = 4, maps[1] = 2, maps[2] = q;
    k->zq_weight = cmha__declare_complex(b, linear, i, "attn.mobius_q.weight", q, d, matrix);
    k->zq_bias = cmha__declare_complex(b, linear, i, "attn.mobius_q.bias", q, 0, CMHA__ZEROS);
    k->divisor_weight = cmha__declare_complex(b, full, i, "attn.mobius_divisor.weight", q, d, matrix);
    k->divisor_bias = cmha__declare_complex(b, full, i, "attn.mobius_divisor.bias", q, 0, CMHA__UNIT);
    k->mobius = full ? NULL : cmha__declare_shape(b, i, "attn.mobius", 3, maps, CMHA__MAPS);
    k->zk_weight = cmha__declare_complex(b, 1, i, "attn.mobius_k.weight", q, linear ? d : 0, linear ? matrix : CMHA__UNIT);
    k->zk_bias = cmha__declare_complex(b, linear, i, "attn.mobius_k.bias", q, 0, CMHA__ZEROS);
    k->zv_weight = cmha__declare_complex(b, 1, i, "attn.mobius_v.weight", q, linear ? d : 0, linear ? matrix : CMHA__UNIT);
    k->zv_bias = cmha__declare_complex(b, linear, i, "attn.mobius_v.bias", q, 0, CMHA__ZEROS);
}

static void cmha__declare_output(cmha__builder *b, size_t i, const char *weight, const char *bias, cmha_tensor **w,
                                 cmha_tensor **w_bias) {
    const cmha_model_config *c = &b->model->config;
    *w = cmha__declare(b, i, weight, c->d_model, c->d_model, CMHA__RESIDUAL_WEIGHT);
    *w_bias = cmha__declare_if(b, c->attention_bias || c->output_bias, i, bias, c->d_model, 0, CMHA__ZEROS);
}

static void cmha__declare_ffn(cmha__builder *b, size_t i, cmha_block *k) {
    const cmha_model_config *c = &b->model->config;
    size_t d = c->d_model, ff = c->d_ff;
    int gated = c->activation == CMHA_SWIGLU;
    k->w1_weight = cmha__declare(b, i, "ffn.w1.weight", ff, d, CMHA__WEIGHT);
    cmha__declare_if(b, gated, i, "ffn.w3.weight", ff, d, CMHA__WEIGHT);
    k->w1_bias = cmha__declare_if(b, c->ffn_bias, i, "ffn.w1.bias", ff, 0, CMHA__ZEROS);
    cmha__declare_if(b, c->ffn_bias && gated, i, "ffn.w3.bias", ff, 0, CMHA__ZEROS);
    k->w2_weight = cmha__declare(b, i, "ffn.w2.weight", d, ff, CMHA__RESIDUAL_WEIGHT);
    k->w2_bias = cmha__declare_if(b, c->ffn_bias, i, "ffn.w2.bias", d, 0, CMHA__ZEROS);
    k->w1_weight = cmha__view(b, k->w1_weight, gated ? 2 * ff : ff, d);
    k->w1_bias = cmha__view(b, k->w1_bias, gated ? 2 * ff : ff, 0);
}

/* The imaginary channel of an all-Möbius layer has an output projection and a feed-forward layer of its own (eq 22-26). */
static void cmha__declare_imag(cmha__builder *b, size_t i, cmha_block *k) {
    const cmha_model_config *c = &b->model->config;
    size_t d = c->d_model, ff = c->d_ff, rows = c->activation == CMHA_SWIGLU ? 2 * ff : ff;
    cmha__declare_output(b, i, "attn.wo_imag.weight", "attn.wo_imag.bias", &k->imag_wo_weight, &k->imag_wo_bias);
    k->imag_w1_weight = cmha__declare(b, i, "ffn.w1_imag.weight", rows, d, CMHA__WEIGHT);
    k->imag_w1_bias = cmha__declare_if(b, c->ffn_bias, i, "ffn.w1_imag.bias", rows, 0, CMHA__ZEROS);
    k->imag_w2_weight = cmha__declare(b, i, "ffn.w2_imag.weight", d, ff, CMHA__RESIDUAL_WEIGHT);
    k->imag_w2_bias = cmha__declare_if(b, c->ffn_bias, i, "ffn.w2_imag.bias", d, 0, CMHA__ZEROS);
}

/* Heads of CRAT's groups: real, imaginary, mixed. */
static size_t cmha__group_heads(const cmha_model_config *c, int group) {
    return group == 0 ? c->real_heads : group == 1 ? c->imag_heads : c->n_heads - c->real_heads - c->imag_heads;
}

static void cmha__declare_group(cmha__builder *b, size_t i, int g, cmha_block *k) {
    static const char *const names[3] = {"real", "imag", "mixed"}, *const parts[3] = {"q", "k", "v"};
    const cmha_model_config *c = &b->model->config;
    size_t D = c->d_model / 2, width = cmha__group_heads(c, g) * (D / c->n_heads), r = c->low_rank;
    char name[48];
    if (!width) return;
    for (int part = 0; r && part < 3; part++) {
        snprintf(name, sizeof name, "attn.%s.w%s.u", names[g], parts[part]);
        k->group[g].u[part] = cmha__declare_complex(b, 1, i, name, width, r, CMHA__WEIGHT);
        snprintf(name, sizeof name, "attn.%s.w%s.v", names[g], parts[part]);
        k->group[g].v[part] = cmha__declare_complex(b, 1, i, name, D, r, CMHA__WEIGHT);
    }
    if (r) return;
    snprintf(name, sizeof name, "attn.%s.wqkv.weight", names[g]);
    k->group[g].weight = cmha__declare_complex(b, 1, i, name, 3 * width, D, CMHA__WEIGHT);
    k->group[g].view = cmha__view(b, k->group[g].weight, 6 * width, D);
}

static cmha_tensor *cmha__declare_complex_norm(cmha__builder *b, size_t i, const char *weight, const char *bias,
                                               cmha_tensor **bias_out) {
    const cmha_model_config *c = &b->model->config;
    size_t D = c->d_model / 2;
    int kind = c->complex_norm;
    cmha_tensor *w;
    if (kind == CMHA_CRMS) w = cmha__declare(b, i, weight, D, 0, CMHA__ONES);
    else if (kind == CMHA_WHITEN) w = cmha__declare(b, i, weight, 3, D, CMHA__WHITEN);
    else w = cmha__declare_complex(b, 1, i, weight, D, 0, kind == CMHA_CLN ? CMHA__UNIT : CMHA__ONES);
    *bias_out = cmha__declare_complex(b, kind != CMHA_CRMS, i, bias, D, 0, CMHA__ZEROS);
    return w;
}

/* Does this layer have a reflection window? */
static int cmha__has_window(const cmha_model_config *c, size_t layer) {
    size_t first = c->irw_from ? c->irw_from - 1 : c->n_layers / 2;
    return c->family == CMHA_FAMILY_CRAT && layer >= first && layer - first < c->irw_layers;
}

static size_t cmha__window_width(const cmha_model_config *c) { return c->irw_width ? c->irw_width : c->d_model / 2; }

/* The reflection window of a layer (CRAT eq 17-19). */
static void cmha__declare_window(cmha__builder *b, size_t i, cmha_block *k) {
    const cmha_model_config *c = &b->model->config;
    size_t D = c->d_model / 2, d_r = cmha__window_width(c), M = c->irw_queries;
    if (!cmha__has_window(c, i)) return;
    k->irw.wm = cmha__declare_complex(b, 1, i, "irw.query.weight", M * d_r, D, CMHA__WEIGHT);
    k->irw.bm = cmha__declare_complex(b, 1, i, "irw.query.bias", M * d_r, 0, CMHA__ZEROS);
    k->irw.w_logits = cmha__declare(b, i, "irw.mix", M, 0, CMHA__SHARES);
    k->irw.wv = cmha__declare_complex(b, 1, i, "irw.value.weight", D, d_r, CMHA__WEIGHT);
    k->irw.wg = cmha__declare(b, i, "irw.gate.weight", D, 2 * D + 2 * d_r, CMHA__WEIGHT);
    k->irw.bg = cmha__declare(b, i, "irw.gate.bias", D, 0, CMHA__CLOSED);
}

/* The factor on a skip connection (CRAT eq 20). */
static void cmha__declare_residual(cmha__builder *b, size_t i, int sum, cmha_block *k) {
    const cmha_model_config *c = &b->model->config;
    static const char *const names[2][3] = {{"res1.alpha", "res1.beta", "res1.psi"}, {"res2.alpha", "res2.beta", "res2.psi"}};
    int free_form = c->complex_residual == CMHA_RESIDUAL_FREE, unit = c->complex_residual == CMHA_RESIDUAL_UNIT;
    k->alpha[sum] = cmha__declare_if(b, free_form, i, names[sum][0], 1, 0, CMHA__ONES);
    k->beta[sum] = cmha__declare_if(b, free_form, i, names[sum][1], 1, 0, CMHA__ZEROS);
    if (unit) k->alpha[sum] = cmha__declare(b, i, names[sum][2], 1, 0, CMHA__ZEROS);
}

/* A layer of the experts, [2, E, O, I], or (I = 0) a bias of it, [2, E, O]. */
static cmha_tensor *cmha__declare_expert(cmha__builder *b, int wanted, size_t i, const char *name, size_t O, size_t I, int init) {
    size_t shape[4];
    if (!wanted) return NULL;
    shape[0] = 2, shape[1] = b->model->config.experts, shape[2] = O, shape[3] = I;
    if (b->model->parameters) b->model->parameters[b->n].is_complex = 1;
    return cmha__declare_shape(b, i, name, I ? 4 : 3, shape, init);
}

/* The feed-forward layer: one, or a router and experts (CRAT eq 21). */
static void cmha__declare_crat_ffn(cmha__builder *b, size_t i, cmha_block *k) {
    const cmha_model_config *c = &b->model->config;
    size_t D = c->d_model / 2, F = c->d_ff / 2;
    if (c->experts) {
        k->router_weight = cmha__declare_complex(b, 1, i, "ffn.router.weight", c->experts, D, CMHA__WEIGHT);
        k->router_bias = cmha__declare(b, i, "ffn.router.bias", c->experts, 0, CMHA__ZEROS);
        k->w1_weight = cmha__declare_expert(b, 1, i, "ffn.experts.w1.weight", F, D, CMHA__WEIGHT);
        k->w1_bias = cmha__declare_expert(b, c->ffn_bias, i, "ffn.experts.w1.bias", F, 0, CMHA__ZEROS);
        k->w2_weight = cmha__declare_expert(b, 1, i, "ffn.experts.w2.weight", D, F, CMHA__RESIDUAL_WEIGHT);
        k->w2_bias = cmha__declare_expert(b, c->ffn_bias, i, "ffn.experts.w2.bias", D, 0, CMHA__ZEROS);
    } else {
        k->w1_weight = cmha__declare_complex(b, 1, i, "ffn.w1.weight", F, D, CMHA__WEIGHT);
        k->w1_bias = cmha__declare_complex(b, c->ffn_bias, i, "ffn.w1.bias", F, 0, CMHA__ZEROS);
        k->w2_weight = cmha__declare_complex(b, 1, i, "ffn.w2.weight", D, F, CMHA__RESIDUAL_WEIGHT);
        k->w2_bias = cmha__declare_complex(b, c->ffn_bias, i, "ffn.w2.bias", D, 0, CMHA__ZEROS);
    }
}

static void cmha__declare_crat(cmha__builder *b, size_t i, cmha_block *k) {
    const cmha_model_config *c = &b->model->config;
    size_t D = c->d_model / 2, r = c->low_rank;
    k->ln1_weight = cmha__declare_complex_norm(b, i, "ln1.weight", "ln1.bias", &k->ln1_bias);
    for (int g = 0; g < 3; g++) cmha__declare_group(b, i, g, k);
    k->wo_u = cmha__declare_complex(b, r > 0, i, "attn.wo.u", D, r, CMHA__WEIGHT);
    k->wo_v = cmha__declare_complex(b, r > 0, i, "attn.wo.v", D, r, CMHA__WEIGHT);
    k->wo_weight = cmha__declare_complex(b, r == 0, i, "attn.wo.weight", D, D, CMHA__RESIDUAL_WEIGHT);
    cmha__declare_window(b, i, k);
    cmha__declare_residual(b, i, 0, k);
    k->ln2_weight = cmha__declare_complex_norm(b, i, "ln2.weight", "ln2.bias", &k->ln2_bias);
    cmha__declare_crat_ffn(b, i, k);
    cmha__declare_residual(b, i, 1, k);
}

static void cmha__declare_block(cmha__builder *b, size_t i) {
    const cmha_model_config *c = &b->model->config;
    cmha_family family = cmha__layer_family(c, i);
    cmha_block k;
    memset(&k, 0, sizeof k);
    b->n_views = i * CMHA__VIEWS;
    if (family == CMHA_FAMILY_CRAT) {
        cmha__declare_crat(b, i, &k);
    } else {
        k.ln1_weight = cmha__declare_norm(b, i, "ln1.weight", "ln1.bias", &k.ln1_bias);
        cmha__declare_plain(b, i, &k);
        if (family == CMHA_FAMILY_MOBIUS && c->mobius_heads) cmha__declare_mobius(b, i, &k);
        if (family == CMHA_FAMILY_COPE) {
            k.zq_weight = cmha__declare_complex(b, 1, i, "attn.wq.weight", c->d_model, c->d_model, CMHA__WEIGHT);
            k.zk_weight = cmha__declare_complex(b, 1, i, "attn.wk.weight", c->d_model, c->d_model, CMHA__WEIGHT);
            k.zv_weight = cmha__declare(b, i, "attn.wv.weight", c->d_model, c->d_model, CMHA__WEIGHT);
        }
        cmha__declare_output(b, i, "attn.wo.weight", "attn.wo.bias", &k.wo_weight, &k.wo_bias);
        cmha__declare_phases(b, i, &k);
        k.ln2_weight = cmha__declare_norm(b, i, "ln2.weight", "ln2.bias", &k.ln2_bias);
        if (family == CMHA_FAMILY_MOBIUS) k.ln3_weight = cmha__declare_norm(b, i, "ln3.weight", "ln3.bias", &k.ln3_bias);
        cmha__declare_ffn(b, i, &k);
        if (family == CMHA_FAMILY_MOBIUS && !cmha__plain_heads(c, i)) cmha__declare_imag(b, i, &k);
    }
    if (b->model->parameters) b->model->blocks[i] = k;
}

/* CRAT's state (eq 5 and 6). */
static void cmha__declare_state(cmha__builder *b) {
    cmha_model *model = b->model;
    const cmha_model_config *c = &model->config;
    size_t d = c->d_model, D = d / 2;
    model->state_weight = cmha__declare_complex(b, 1, SIZE_MAX, "state.weight", D, d, CMHA__WEIGHT);
    model->state_bias = cmha__declare_complex(b, 1, SIZE_MAX, "state.bias", D, 0, CMHA__ZEROS);
    model->theta_weight = cmha__declare_if(b, c->state_rotation, SIZE_MAX, "state.theta.weight", D, d, CMHA__WEIGHT);
    model->theta_bias = cmha__declare_if(b, c->state_rotation, SIZE_MAX, "state.theta.bias", D, 0, CMHA__ZEROS);
    b->n_views = c->n_layers * CMHA__VIEWS;
    model->state_weight = cmha__view(b, model->state_weight, 2 * D, d);
    model->state_bias = cmha__view(b, model->state_bias, 2 * D, 0);
}

static void cmha__declare_all(cmha__builder *b) {
    cmha_model *model = b->model;
    const cmha_model_config *c = &model->config;
    size_t d = c->d_model, none = SIZE_MAX;
    int pre = c->placement == CMHA_NORM_PRE;
    int waves = c->position == CMHA_POSITION_MULTIFREQ || c->family == CMHA_FAMILY_CRAT;
    int positions = c->position == CMHA_POSITION_LEARNED || (c->family == CMHA_FAMILY_COPE && c->cope_imag == CMHA_COPE_LEARNED);
    b->n = b->size = b->n_views = 0;
    b->overflow = 0;
    model->token_weight = cmha__declare(b, none, "tok_emb.weight", c->vocabulary, d, CMHA__EMBEDDING);
    model->position_weight = cmha__declare_if(b, positions, none, "pos_emb.weight", c->max_positions, d, CMHA__EMBEDDING);
    model->type_weight = cmha__declare_if(b, c->token_types > 0, none, "type_emb.weight", c->token_types, d, CMHA__EMBEDDING);
    model->pe_omega = cmha__declare_if(b, waves, none, "pe.omega", c->pe_terms, d, CMHA__PE_OMEGA);
    model->pe_delta = cmha__declare_if(b, waves, none, "pe.delta", c->pe_terms, d, CMHA__PE_DELTA);
    if (c->family == CMHA_FAMILY_CRAT) cmha__declare_state(b);
    for (size_t i = 0; i < c->n_layers; i++) cmha__declare_block(b, i);
    model->final_weight = cmha__declare_if(b, pre, none, "ln_f.weight", d, 0, CMHA__ONES);
    model->final_bias = cmha__declare_if(b, pre && c->norm == CMHA_NORM_LAYER, none, "ln_f.bias", d, 0, CMHA__ZEROS);
    model->head_weight = cmha__declare_if(b, !c->tied, none, "head.weight", c->vocabulary, d, CMHA__WEIGHT);
    model->head_bias = cmha__declare_if(b, c->head_bias, none, "head.bias", c->vocabulary, 0, CMHA__ZEROS);
    model->class_weight = cmha__declare_if(b, c->classes > 0, none, "class.weight", c->classes, d, CMHA__WEIGHT);
    model->class_bias = cmha__declare_if(b, c->classes > 0, none, "class.bias", c->classes, 0, CMHA__ZEROS);
}

/* Semi-orthogonal: the smaller side's vectors become orthonormal, by modified Gram-Schmidt done twice. A [rows, cols] is N(0, 1). */
static void cmha__orthogonalise(cmha_real *A, size_t rows, size_t cols) {
    size_t wide = rows < cols, n = wide ? rows : cols, m = wide ? cols : rows, vec = wide ? cols : 1, step = wide ? 1 : cols;
    for (size_t i = 0; i < n; i++) {
        cmha_real *v = A + i * vec;
        double norm = 0;
        for (int again = 0; again < 2; again++)
            for (size_t j = 0; j < i; j++) {
                const cmha_real *u = A + j * vec;
                double dot = 0;
                for (size_t k = 0; k < m; k++) dot += (double)v[k * step] * (double)u[k * step];
                for (size_t k = 0; k < m; k++) v[k * step] -= (cmha_real)(dot * (double)u[k * step]);
            }
        for (size_t k = 0; k < m; k++) norm += (double)v[k * step] * (double)v[k * step];
        norm = norm > 0 ? 1 / sqrt(norm) : 0;
        for (size_t k = 0; k < m; k++) v[k * step] = (cmha_real)((double)v[k * step] * norm);
    }
}

/* Spread of a normal start, 0 = none. */
static double cmha__start_std(const cmha_model_config *c, int init) {
    if (init == CMHA__WEIGHT || init == CMHA__EMBEDDING) return c->init_std;
    if (init == CMHA__RESIDUAL_WEIGHT) return c->init_std / sqrt(2.0 * (double)c->n_layers);
    if (init == CMHA__DELTA) return c->delta_init == CMHA_DELTA_CONST ? 0 : c->delta_std;
    return init == CMHA__MAPS ? 0.02 : init == CMHA__MATRIX_ORTHO ? 1 : 0;
}

/* What element i of a parameter starts around. */
static double cmha__start_mean(const cmha_model_config *c, const cmha_parameter *p, size_t i) {
    size_t D = p->tensor.shape[p->tensor.rank - 1];
    switch (p->init) {
    case CMHA__ONES: return 1;
    case CMHA__UNIT: return i < p->tensor.size / 2;
    case CMHA__CLOSED: return -2;
    case CMHA__SHARES: return c->irw_raw ? 1 / (double)c->irw_queries : 0;
    case CMHA__WHITEN: return i / D == 1 ? 0 : 0.70710678118654752440;
    case CMHA__MAPS: return i / (2 * D) % 3 == 0 && i / D % 2 == 0; /* a = d = 1, b = c = 0 */
    case CMHA__DELTA: return c->delta_init == CMHA_DELTA_PAPER ? 0 : c->delta_init == CMHA_DELTA_ROPE_START ? 1 : c->delta_value;
    default: return 0;
    }
}

static void cmha__start_uniform(cmha_parameter *p, cmha_rng *rng) {
    size_t in = p->tensor.shape[p->tensor.rank - 1], out = p->tensor.shape[p->tensor.rank - 2];
    double bound = p->init == CMHA__EMBEDDING ? 0.1 : sqrt(6.0 / (double)(in + out));
    for (size_t i = 0; i < p->tensor.size; i++) p->tensor.data[i] = (cmha_real)(bound * (2 * cmha_rng_uniform(rng) - 1));
}

static cmha_status cmha__start_positions(const cmha_model *model, const cmha_parameter *p) {
    cmha_context *ctx = model->context;
    size_t bytes = p->tensor.size * sizeof(cmha_real); /* cmha_multifreq_init writes both, one is wanted */
    cmha_real *other = (cmha_real *)cmha__take(ctx, bytes);
    if (!other) return cmha__fail(ctx, CMHA_ERR_MEMORY, "model: out of memory for its positions");
    cmha_multifreq_init(model->config.pe_terms, model->config.d_model, model->config.base,
                        p->init == CMHA__PE_OMEGA ? p->tensor.data : other, p->init == CMHA__PE_OMEGA ? other : p->tensor.data);
    cmha__give(ctx, other, bytes);
    return CMHA_OK;
}

static cmha_status cmha__start_parameter(const cmha_model *model, size_t index) {
    const cmha_model_config *c = &model->config;
    cmha_parameter *p = &model->parameters[index];
    cmha_rng rng = cmha_rng_make(model->context->config.seed, index);
    double std = cmha__start_std(c, p->init);
    size_t planes = p->is_complex ? 2 : 1, half = p->tensor.size / planes;
    if (p->init == CMHA__PE_OMEGA || p->init == CMHA__PE_DELTA) return cmha__start_positions(model, p);
    if (c->init == CMHA_INIT_XAVIER && p->decay && p->init != CMHA__MATRIX_ORTHO) {
        cmha__start_uniform(p, &rng);
        return CMHA_OK;
    }
    for (size_t i = 0; i < p->tensor.size; i++)
        p->tensor.data[i] = (cmha_real)(cmha__start_mean(c, p, i) + (std > 0 ? std * cmha_rng_normal(&rng) : 0));
    for (size_t i = 0; p->init == CMHA__MATRIX_ORTHO && i < planes; i++)
        cmha__orthogonalise(p->tensor.data + i * half, p->tensor.shape[p->tensor.rank - 2], p->tensor.shape[p->tensor.rank - 1]);
    return CMHA_OK;
}

/* What is wrong with the experts and windows of a CRAT, or NULL. */
static const char *cmha__crat_additions_wrong(const cmha_model_config *c) {
    size_t first = c->irw_from ? c->irw_from - 1 : c->n_layers / 2;
    if (c->experts && c->experts_top > c->experts) return "experts_top is larger than experts";
    if (c->irw_layers && (first >= c->n_layers || c->irw_layers > c->n_layers - first))
        return "the reflection windows (irw_from, irw_layers) go on beyond the last layer";
    return NULL;
}

/* What the complex families ask for. */
static cmha_status cmha__check_family(cmha_context *context, const cmha_model_config *c) {
    const char *problem = NULL;
    int additive = c->position == CMHA_POSITION_LEARNED || c->position == CMHA_POSITION_SINUSOIDAL;
    if (c->family != CMHA_FAMILY_REAL && c->n_kv_heads && c->n_kv_heads != c->n_heads)
        problem = "its heads cannot be grouped (n_kv_heads)";
    if (c->family != CMHA_FAMILY_REAL && c->pcl_weight > 0) problem = "the phase contrastive loss is for family = real";
    if (c->family == CMHA_FAMILY_COPE) {
        if (c->position != CMHA_POSITION_NONE) problem = "the positions of family = cope are cope_imag; position must be none";
        if (c->causal && c->cope_score == CMHA_COPE_HYBRID_NORM && c->cope_max != 0)
            problem = "hybrid_norm would see the future through the maximum of a head or batch; causal models need cope_max = row";
        if (c->window && c->cope_score == CMHA_COPE_LINEAR) problem = "linear attention has no sliding window";
    }
    if (c->family == CMHA_FAMILY_MOBIUS) {
        if (!additive) problem = "family = mobius needs position = learned or sinusoidal for its imaginary channel";
        if (c->mobius_heads > c->n_heads) problem = "mobius_heads is larger than n_heads";
        if (c->mobius_softmax == CMHA_SOFTMAX_YANG8 && c->mobius_hermitian) problem = "yang8 has no Hermitian form";
        if (c->placement != CMHA_NORM_POST) problem = "the layers of family = mobius are post-norm; placement must be post";
    }
    if (c->family == CMHA_FAMILY_CRAT) {
        if (c->d_model % (2 * c->n_heads)) problem = "the complex state has d_model/2 features; n_heads must divide them";
        if (c->d_ff % 2) problem = "d_ff must be even, the complex layer has half as many features";
        if (c->real_heads > c->n_heads || c->imag_heads > c->n_heads - c->real_heads)
            problem = "real_heads + imag_heads is larger than n_heads";
        if (c->position != CMHA_POSITION_NONE && c->position != CMHA_POSITION_MULTIFREQ)
            problem = "the positions of family = crat are multifreq; position must be that or none";
        if (c->causal && c->crat_attention == CMHA_CRAT_LAG) problem = "mixing by lag sees the whole sequence; it needs causal = 0";
        if (c->window) problem = "family = crat has no sliding window";
        if (c->placement != CMHA_NORM_PRE) problem = "the layers of family = crat are pre-norm; placement must be pre";
        if (c->attention_bias || c->output_bias) problem = "the projections of family = crat have no biases";
        if (c->activation != CMHA_GELU_ERF)
            problem = "the feed-forward layer of family = crat is cGELU; activation must be gelu_erf";
    }
    if (c->family == CMHA_FAMILY_CRAT && !problem) problem = cmha__crat_additions_wrong(c);
    return problem ? cmha__fail(context, CMHA_ERR_ARGUMENT, "model: %s", problem) : CMHA_OK;
}

static cmha_status cmha__check_model(cmha_context *context, const cmha_model_config *c) {
    size_t d_k;
    cmha_status status = cmha_config_check(context, cmha_model_table(), c);
    if (status) return status;
    if (c->d_model % c->n_heads)
        return cmha__fail(context, CMHA_ERR_SHAPE, "model: d_model %zu is not divisible by n_heads %zu", c->d_model, c->n_heads);
    if (c->window && !c->causal) return cmha__fail(context, CMHA_ERR_ARGUMENT, "model: window %zu needs causal = 1", c->window);
    if (c->n_heads % cmha__kv_heads(c))
        return cmha__fail(context, CMHA_ERR_SHAPE, "model: n_heads %zu is not divisible by n_kv_heads %zu", c->n_heads,
                          cmha__kv_heads(c));
    d_k = cmha__head_width(c);
    if (d_k % 2 && (c->attention != CMHA_ATTENTION_DOT || c->pcl_weight > 0))
        return cmha__fail(context, CMHA_ERR_SHAPE,
                          "model: a head of %zu numbers (d_model %zu / n_heads %zu) cannot be read as complex pairs", d_k,
                          c->d_model, c->n_heads);
    if (c->position == CMHA_POSITION_SINUSOIDAL && c->d_model % 2)
        return cmha__fail(context, CMHA_ERR_SHAPE, "model: sinusoidal positions need an even d_model, not %zu", c->d_model);
    return cmha__check_family(context, c);
}

/* Counters of expert use. */
static size_t cmha__uses(const cmha_model_config *c) { return c->family == CMHA_FAMILY_CRAT ? c->n_layers * c->experts : 0; }

/* The arrays that describe the model: parameters, blocks, fused views, frequencies. All but the numbers themselves. */
static cmha_status cmha__model_describe(cmha_model *model) {
    const cmha_model_config *c = &model->config;
    cmha_context *context = model->context;
    size_t P = cmha__head_width(c) / 2, n_tables = c->frequency == CMHA_FREQ_TABLE ? c->n_heads : 1, h, uses;
    cmha__builder b;
    b.model = model;
    cmha__declare_all(&b);
    if (b.overflow || b.size > SIZE_MAX / sizeof(cmha_real) / 8)
        return cmha__fail(context, CMHA_ERR_OVERFLOW, "model: the number of parameters overflows");
    model->n_parameters = b.n;
    model->size = b.size;
    model->parameters = (cmha_parameter *)cmha__take(context, b.n * sizeof *model->parameters);
    model->blocks = (cmha_block *)cmha__take(context, c->n_layers * sizeof *model->blocks);
    model->fused = (cmha_tensor *)cmha__take(context, CMHA__VIEWS * (c->n_layers + 1) * sizeof *model->fused);
    model->n_omega = n_tables;
    model->omega = (double *)cmha__take(context, n_tables * (P + 1) * sizeof *model->omega);
    if (c->position == CMHA_POSITION_ALIBI) model->alibi = (cmha_real *)cmha__take(context, c->n_heads * sizeof *model->alibi);
    uses = cmha__uses(c);
    if (uses) model->expert_use = (uint64_t *)cmha__take(context, uses * sizeof *model->expert_use);
    if (!model->parameters || !model->blocks || !model->fused || !model->omega ||
        (c->position == CMHA_POSITION_ALIBI && !model->alibi) || (uses && !model->expert_use))
        return cmha__fail(context, CMHA_ERR_MEMORY, "model: out of memory for the tables of %zu parameters", b.n);
    memset(model->parameters, 0, b.n * sizeof *model->parameters);
    memset(model->fused, 0, CMHA__VIEWS * (c->n_layers + 1) * sizeof *model->fused);
    if (uses) memset(model->expert_use, 0, uses * sizeof *model->expert_use);
    for (h = 0; h < n_tables; h++)
        cmha_frequencies(c->frequency == CMHA_FREQ_LITERAL ? CMHA_FREQ_LITERAL : CMHA_FREQ_ROPE, c->base, P, model->omega + h * P);
    if (model->alibi) cmha_alibi_slopes(c->n_heads, model->alibi);
    return CMHA_OK;
}

CMHA_DEF void cmha_model_close(cmha_model *model) {
    cmha_context *context;
    size_t P;
    if (!model || !model->context) return;
    context = model->context;
    P = cmha__head_width(&model->config) / 2;
    cmha_tape_close(&model->tape);
    cmha__give(context, model->data, model->size * sizeof *model->data);
    cmha__give(context, model->grad, model->size * sizeof *model->grad);
    cmha__give(context, model->parameters, model->n_parameters * sizeof *model->parameters);
    cmha__give(context, model->blocks, model->config.n_layers * sizeof *model->blocks);
    cmha__give(context, model->fused, CMHA__VIEWS * (model->config.n_layers + 1) * sizeof *model->fused);
    cmha__give(context, model->omega, model->n_omega * (P + 1) * sizeof *model->omega);
    cmha__give(context, model->alibi, model->config.n_heads * sizeof *model->alibi);
    cmha__give(context, model->expert_use, cmha__uses(&model->config) * sizeof *model->expert_use);
    memset(model, 0, sizeof *model);
}

/* Everything but the block of numbers. */
static cmha_status cmha__model_open(cmha_model *model, cmha_context *context, const cmha_model_config *config) {
    cmha_status status;
    if (!model) return CMHA_ERR_ARGUMENT;
    memset(model, 0, sizeof *model);
    if (!cmha__is_open(context)) return CMHA_ERR_STATE;
    if (config) model->config = *config;
    else cmha_config_defaults(cmha_model_table(), &model->config);
    status = cmha__check_model(context, &model->config);
    if (status) return status;
    model->context = context;
    model->opening = ++context->models;
    status = cmha__model_describe(model);
    if (!status) status = cmha_tape_init(&model->tape, context, 1);
    if (status) cmha_model_close(model);
    return status;
}

/* Everything but the values of the numbers. */
static cmha_status cmha__model_allocate(cmha_model *model, cmha_context *context, const cmha_model_config *config) {
    cmha__builder b;
    cmha_status status = cmha__model_open(model, context, config);
    if (status) return status;
    model->data = (cmha_real *)cmha__take(context, model->size * sizeof *model->data);
    if (!model->data) {
        status = cmha__fail(context, CMHA_ERR_MEMORY, "model: out of memory for %zu parameters", model->size);
        cmha_model_close(model);
        return status;
    }
    b.model = model;
    cmha__declare_all(&b);
    return CMHA_OK;
}

CMHA_DEF cmha_status cmha_model_init(cmha_model *model, cmha_context *context, const cmha_model_config *config) {
    cmha_status status = cmha__model_allocate(model, context, config);
    for (size_t i = 0; !status && i < model->n_parameters; i++) {
        status = cmha__start_parameter(model, i);
        if (status) cmha_model_close(model);
    }
    return status;
}

CMHA_DEF cmha_parameter *cmha_model_find(cmha_model *model, const char *name) {
    for (size_t i = 0; model && name && i < model->n_parameters; i++)
        if (!strcmp(model->parameters[i].name, name)) return &model->parameters[i];
    return NULL;
}

CMHA_DEF cmha_status cmha_model_set_frequencies(cmha_model *model, const double *omega) {
    size_t count;
    if (!cmha__model_is_open(model)) return CMHA_ERR_STATE;
    if (!omega) return cmha__fail(model->context, CMHA_ERR_ARGUMENT, "model: no frequencies");
    if (model->config.frequency != CMHA_FREQ_TABLE)
        return cmha__fail(model->context, CMHA_ERR_STATE, "model: frequencies can only be set with frequency = table");
    count = model->n_omega * (cmha__head_width(&model->config) / 2);
    for (size_t i = 0; i < count; i++)
        if (!(fabs(omega[i]) <= DBL_MAX))
            return cmha__fail(model->context, CMHA_ERR_ARGUMENT, "model: frequency %zu is not finite", i);
    memcpy(model->omega, omega, count * sizeof *omega);
    return CMHA_OK;
}

CMHA_DEF cmha_status cmha_model_set_knowledge(cmha_model *model, const cmha_knowledge *knowledge) {
    const cmha_model_config *c;
    if (!cmha__model_is_open(model)) return CMHA_ERR_STATE;
    c = &model->config;
    if (knowledge && (c->family != CMHA_FAMILY_CRAT || !c->irw_layers))
        return cmha__fail(model->context, CMHA_ERR_STATE, "model: it has no reflection window (irw_layers = 0) for a knowledge base");
    if (knowledge && knowledge->d_r != cmha__window_width(c))
        return cmha__fail(model->context, CMHA_ERR_SHAPE, "model: the knowledge base has %zu features, its windows %zu",
                          knowledge->d_r, cmha__window_width(c));
    model->knowledge = knowledge;
    model->knowledge_identity = knowledge ? knowledge->identity : 0;
    return CMHA_OK;
}

/* Points every view at its place in the gradient block. */
static void cmha__attach_grad(cmha_model *model) {
    for (size_t i = 0; i < model->n_parameters; i++) {
        cmha_tensor *t = &model->parameters[i].tensor;
        t->grad = model->grad + (t->data - model->data);
        t->needs_grad = 1;
    }
    for (size_t i = 0; i < CMHA__VIEWS * (model->config.n_layers + 1); i++) {
        cmha_tensor *t = &model->fused[i];
        if (!t->data) continue;
        t->grad = model->grad + (t->data - model->data);
        t->needs_grad = 1;
    }
}

static cmha_status cmha__need_grad(cmha_model *model) {
    if (model->grad) return CMHA_OK;
    model->grad = (cmha_real *)cmha__take(model->context, model->size * sizeof *model->grad);
    if (!model->grad) return cmha__fail(model->context, CMHA_ERR_MEMORY, "model: out of memory for %zu gradients", model->size);
    memset(model->grad, 0, model->size * sizeof *model->grad);
    cmha__attach_grad(model);
    return CMHA_OK;
}

CMHA_DEF void cmha_model_zero_grad(cmha_model *model) {
    if (model && model->grad) cmha__clear(model->context->threads, model->grad, model->size);
}

/* ---- Forward pass ---- */

/* What all blocks of one pass share. */
typedef struct cmha__pass {
    cmha_model *model;
    cmha_tape *tape;
    cmha_cache *cache;          /* NULL: every token of the sequences is in this batch */
    const cmha_batch *batch;    /* ids, types and mask of the tokens */
    size_t layer, B, N, first;  /* first: position of the first token */
    size_t slot;                /* of the cache: attention calls so far */
    const cmha_real *rotation;  /* table of the plain heads */
    cmha_tensor *imag, *tokens; /* cope, mobius: the imaginary channel of the next complex layer, and the token embeddings */
    cmha_tensor *extra;         /* losses beside the objective, weighted */
    int again;                  /* a block that is run once more for its gradients: what it counts has been counted */
} cmha__pass;

static cmha_tensor *cmha__cached_attention(cmha__pass *pass, const cmha_attention_args *args, cmha_tensor *q, cmha_tensor *k,
                                           cmha_tensor *v);
static cmha_tensor *cmha__cached_linear(cmha__pass *pass, const cmha_linear_args *args, cmha_tensor *q, cmha_tensor *k,
                                        cmha_tensor *v);

static cmha_tensor *cmha__model_norm(cmha__pass *pass, cmha_tensor *x, cmha_tensor *weight, cmha_tensor *bias) {
    const cmha_model_config *c = &pass->model->config;
    return cmha__norm(pass->tape, x, weight, bias, (cmha_real)c->norm_eps, c->norm == CMHA_NORM_RMS);
}

static void cmha__add_loss(cmha__pass *pass, cmha_tensor *loss, double factor) {
    if (loss && (factor < 1 || factor > 1)) loss = cmha_scale(pass->tape, loss, (cmha_real)factor);
    pass->extra = pass->extra ? cmha_add(pass->tape, pass->extra, loss) : loss;
}

/* ---- The attention calls of a layer, as arguments; the passes and the cache build on the same ones ---- */

/* Plain heads: `attention` of the configuration. */
static void cmha__plain_args(const cmha_model *model, size_t layer, cmha_attention_args *a) {
    const cmha_model_config *c = &model->config;
    size_t d_k = cmha__head_width(c);
    memset(a, 0, sizeof *a);
    a->heads = cmha__plain_heads(c, layer);
    a->kv_heads = a->heads == c->n_heads ? cmha__kv_heads(c) : a->heads;
    a->d_k = a->d_v = d_k;
    a->scale = (cmha_real)(c->score_scale > 0 ? c->score_scale : 1 / sqrt((double)d_k));
    a->causal = c->causal;
    a->window = c->window;
    a->alibi = model->alibi;
    a->kind = (cmha_attention_kind)c->attention;
    a->layout = (cmha_layout)c->layout;
    a->share = (cmha_share)c->share;
    a->dropout = (cmha_real)c->attention_dropout;
    a->threads = model->context->threads;
}

/* Complex heads of a layer: CoPE's, Möbius heads, or group `g` of CRAT's. */
static void cmha__complex_args(const cmha_model *model, size_t layer, int g, cmha_attention_args *a) {
    const cmha_model_config *c = &model->config;
    cmha_cope_options cope;
    cmha__plain_args(model, layer, a);
    a->heads = a->kv_heads = c->n_heads;
    a->eps = (cmha_real)c->complex_eps;
    if (c->family == CMHA_FAMILY_COPE) {
        memset(&cope, 0, sizeof cope);
        cope.score = (cmha_cope_score)c->cope_score;
        cope.alpha = (cmha_real)c->cope_alpha;
        cope.eps = a->eps;
        cope.repo_scale = c->cope_repo_scale;
        cope.norm_max = (cmha_norm_max)(c->cope_max + 1);
        cope.norm_max_grad = c->cope_max_grad;
        cmha_cope_args(a, &cope);
        a->scale *= (cmha_real)c->cope_scale;
    } else if (c->family == CMHA_FAMILY_MOBIUS) {
        a->heads = a->kv_heads = c->mobius_heads;
        a->kind = CMHA_ATTENTION_COMPLEX;
        a->softmax = (cmha_softmax)c->mobius_softmax;
        a->complex_v = 1;
        a->bilinear = !c->mobius_hermitian;
        a->magnitude = 1; /* the form `abs` */
    } else {
        a->heads = a->kv_heads = cmha__group_heads(c, g);
        a->d_k = a->d_v = c->d_model / 2 / c->n_heads;
        a->kind = c->crat_attention == CMHA_CRAT_DOT ? CMHA_ATTENTION_COMPLEX : CMHA_ATTENTION_ANGULAR;
        a->softmax = CMHA_SOFTMAX_REAL;
        a->complex_v = 1;
        a->scale = (cmha_real)(c->score_scale > 0 ? c->score_scale : 1 / sqrt((double)a->d_k)); /* eq 12 */
    }
}

/* The same heads by linear attention; 0 if the layer's attention is not linear. */
static int cmha__linear_args_of(const cmha_model *model, size_t layer, int g, cmha_linear_args *a) {
    const cmha_model_config *c = &model->config;
    cmha_family family = cmha__layer_family(c, layer);
    int cope = family == CMHA_FAMILY_COPE && c->cope_score == CMHA_COPE_LINEAR;
    memset(a, 0, sizeof *a);
    if (!cope && !(family == CMHA_FAMILY_CRAT && c->crat_attention == CMHA_CRAT_LINEAR)) return 0;
    a->heads = cope ? c->n_heads : cmha__group_heads(c, g);
    a->d = a->d_v = cope ? cmha__head_width(c) : c->d_model / 2 / c->n_heads;
    a->kind = cope ? CMHA_LINEAR_COPE : CMHA_LINEAR_ANGULAR;
    a->causal = c->causal;
    a->alpha = (cmha_real)c->cope_alpha;
    a->eps = (cmha_real)c->complex_eps;
    a->den_eps = (cmha_real)1e-6;
    return 1;
}

/* One softmax attention over fused or separate projections, through the cache if there is one. */
static cmha_tensor *cmha__softmax_attention(cmha__pass *pass, cmha_attention_args *a, cmha_tensor *q, cmha_tensor *k,
                                            cmha_tensor *v, cmha_tensor *delta, cmha_tensor *b) {
    a->batch = pass->B;
    a->n_q = a->n_k = pass->N;
    a->key_mask = a->query_mask = pass->batch->key_mask;
    if (a->kind == CMHA_ATTENTION_CMHA || a->kind == CMHA_ATTENTION_ROPE) {
        a->rotation = pass->rotation;
        a->rotation_head = pass->model->n_omega > 1 ? pass->N * a->d_k : 0;
    }
    if (!pass->cache) return cmha_attention(pass->tape, a, q, k, v, delta, b);
    a->delta = delta ? delta->data : NULL;
    a->b = b ? b->data : NULL;
    return cmha__cached_attention(pass, a, q, k, v);
}

static cmha_tensor *cmha__any_linear(cmha__pass *pass, cmha_linear_args *a, cmha_tensor *q, cmha_tensor *k, cmha_tensor *v) {
    a->key_mask = pass->batch->key_mask;
    return pass->cache ? cmha__cached_linear(pass, a, q, k, v) : cmha_linear_attention(pass->tape, a, q, k, v);
}

/* ---- Blocks ---- */

/* The layer's phase contrastive loss. */
static cmha_status cmha__block_pcl(cmha__pass *pass, const cmha_attention_args *args, cmha_tensor *qkv, const cmha_block *k) {
    const cmha_model_config *c = &pass->model->config;
    cmha_attention_args a = *args;
    cmha_pcl_options options;
    size_t P = cmha__head_width(c) / 2, i;
    cmha_tensor *w = k->pcl_w;
    options.tau = (cmha_real)c->pcl_tau;
    options.mask_rate = (cmha_real)c->pcl_mask;
    options.adapted = c->pcl_adapted;
    if (!w) {
        w = cmha_tensor_new(pass->tape, 1, &P, 0);
        for (i = 0; w && !cmha__dry(pass->tape) && i < P; i++) w->data[i] = 1;
    }
    a.rotation = pass->rotation;
    a.rotation_head = pass->model->n_omega > 1 ? pass->N * a.d_k : 0;
    a.key_mask = pass->batch->key_mask;
    cmha__add_loss(pass, cmha_pcl(pass->tape, &a, qkv, k->delta, k->b, w, &options), c->pcl_weight / (double)c->n_layers);
    return pass->tape->status;
}

/* The layer's plain heads on h [B, N, d_model]. */
static cmha_tensor *cmha__plain_attention(cmha__pass *pass, const cmha_block *k, cmha_tensor *h) {
    cmha_tensor *qkv = cmha_linear(pass->tape, h, k->qkv_weight, k->qkv_bias);
    cmha_attention_args a;
    if (!qkv) return NULL;
    cmha__plain_args(pass->model, pass->layer, &a);
    if (pass->model->config.pcl_weight > 0 && pass->tape->recording && cmha__block_pcl(pass, &a, qkv, k)) return NULL;
    return cmha__softmax_attention(pass, &a, qkv, NULL, NULL, k->delta, k->b);
}

/* CoPE's first layer: complex queries and keys of h + i imag, real values of h. */
static cmha_tensor *cmha__cope_attention(cmha__pass *pass, const cmha_block *k, cmha_tensor *h) {
    cmha_tape *tape = pass->tape;
    cmha_tensor *z = cmha_complex_join(tape, h, pass->imag), *q, *key, *v;
    cmha_attention_args a;
    cmha_linear_args linear;
    q = cmha_complex_linear(tape, z, k->zq_weight, NULL);
    key = cmha_complex_linear(tape, z, k->zk_weight, NULL);
    v = cmha_linear(tape, h, k->zv_weight, NULL);
    if (cmha__linear_args_of(pass->model, pass->layer, 0, &linear)) return cmha__any_linear(pass, &linear, q, key, v);
    cmha__complex_args(pass->model, pass->layer, 0, &a);
    return cmha__softmax_attention(pass, &a, q, key, v, NULL, NULL);
}

/* x + gain * dropout(a Wo^T + bo) */
static cmha_tensor *cmha__block_output(cmha__pass *pass, cmha_tensor *a, cmha_tensor *weight, cmha_tensor *bias, cmha_tensor *x) {
    const cmha_model_config *c = &pass->model->config;
    return cmha__sublayer(pass->tape, a, -1, weight, bias, x, (cmha_real)c->residual_scale, (cmha_real)c->dropout, 1);
}

/* x + gain * dropout(attention(h) Wo^T + bo) */
static cmha_tensor *cmha__block_attention(cmha__pass *pass, const cmha_block *k, cmha_tensor *h, cmha_tensor *x) {
    cmha_tensor *a = cmha__layer_family(&pass->model->config, pass->layer) == CMHA_FAMILY_COPE ? cmha__cope_attention(pass, k, h)
                                                                                              : cmha__plain_attention(pass, k, h);
    return cmha__block_output(pass, a, k->wo_weight, k->wo_bias, x);
}

/* x + gain * dropout(act(h W1^T + b1) W2^T + b2) */
static cmha_tensor *cmha__block_ffn(cmha__pass *pass, cmha_tensor *w1, cmha_tensor *b1, cmha_tensor *w2, cmha_tensor *b2,
                                    cmha_tensor *h, cmha_tensor *x) {
    const cmha_model_config *c = &pass->model->config;
    return cmha__sublayer(pass->tape, cmha_linear(pass->tape, h, w1, b1), c->activation, w2, b2, x, (cmha_real)c->residual_scale,
                          (cmha_real)c->dropout, 1);
}

static cmha_tensor *cmha__real_block(cmha__pass *pass, const cmha_block *k, cmha_tensor *x) {
    cmha_tensor *y;
    if (pass->model->config.placement == CMHA_NORM_POST) {
        y = cmha__model_norm(pass, cmha__block_attention(pass, k, x, x), k->ln1_weight, k->ln1_bias);
        y = cmha__block_ffn(pass, k->w1_weight, k->w1_bias, k->w2_weight, k->w2_bias, y, y);
        return cmha__model_norm(pass, y, k->ln2_weight, k->ln2_bias);
    }
    y = cmha__block_attention(pass, k, cmha__model_norm(pass, x, k->ln1_weight, k->ln1_bias), x);
    return cmha__block_ffn(pass, k->w1_weight, k->w1_bias, k->w2_weight, k->w2_bias,
                           cmha__model_norm(pass, y, k->ln2_weight, k->ln2_bias), y);
}

/* Möbius heads on re + i im -> planes [B, N, 2 d_q] (MöbiusAttention eq 5-9). */
static cmha_tensor *cmha__mobius_attention(cmha__pass *pass, const cmha_block *k, cmha_tensor *re, cmha_tensor *im) {
    const cmha_model_config *c = &pass->model->config;
    cmha_tape *tape = pass->tape;
    cmha_quotient_kind quotient = (cmha_quotient_kind)c->mobius_quotient;
    cmha_real eps = (cmha_real)c->mobius_eps;
    size_t width = c->mobius_heads * cmha__head_width(c);
    cmha_tensor *rho, *q, *key, *v;
    cmha_attention_args a;
    cmha__complex_args(pass->model, pass->layer, 0, &a);
    if (c->mobius_mode == CMHA_MOBIUS_LITERAL) {
        if (width < c->d_model) re = cmha_slice(tape, re, 2, 0, width), im = cmha_slice(tape, im, 2, 0, width);
        rho = cmha_complex_join(tape, re, im);
        q = cmha_mobius(tape, rho, k->mobius, quotient, eps);
        key = cmha_elementwise_complex(tape, rho, k->zk_weight);
        v = cmha_elementwise_complex(tape, rho, k->zv_weight);
    } else {
        rho = cmha_complex_join(tape, re, im);
        q = cmha_complex_linear(tape, rho, k->zq_weight, k->zq_bias);
        q = k->mobius ? cmha_mobius(tape, q, k->mobius, quotient, eps)
                      : cmha_quotient(tape, q, cmha_complex_linear(tape, rho, k->divisor_weight, k->divisor_bias), quotient, eps);
        key = cmha_complex_linear(tape, rho, k->zk_weight, k->zk_bias);
        v = cmha_complex_linear(tape, rho, k->zv_weight, k->zv_bias);
    }
    return cmha__softmax_attention(pass, &a, q, key, v, NULL, NULL);
}

/* One channel of an all-Möbius layer after its attention: LN3(FFN(y) + y), y = LN2(a Wo^T + residual). */
static cmha_tensor *cmha__mobius_channel(cmha__pass *pass, const cmha_block *k, cmha_tensor *a, cmha_tensor *residual, int imag) {
    cmha_tensor *y = cmha__block_output(pass, a, imag ? k->imag_wo_weight : k->wo_weight, imag ? k->imag_wo_bias : k->wo_bias,
                                        residual);
    y = cmha__model_norm(pass, y, k->ln2_weight, k->ln2_bias);
    y = imag ? cmha__block_ffn(pass, k->imag_w1_weight, k->imag_w1_bias, k->imag_w2_weight, k->imag_w2_bias, y, y)
             : cmha__block_ffn(pass, k->w1_weight, k->w1_bias, k->w2_weight, k->w2_bias, y, y);
    return cmha__model_norm(pass, y, k->ln3_weight, k->ln3_bias);
}

/* MöbiusAttention eq 10-19 (plain heads beside Möbius heads) and 20-27 (Möbius heads alone). */
static cmha_tensor *cmha__mobius_block(cmha__pass *pass, const cmha_block *k, cmha_tensor *x) {
    cmha_tape *tape = pass->tape;
    cmha_tensor *re = cmha__model_norm(pass, x, k->ln1_weight, k->ln1_bias);
    cmha_tensor *im = cmha__model_norm(pass, pass->imag, k->ln1_weight, k->ln1_bias);
    cmha_tensor *a = k->zk_weight ? cmha__mobius_attention(pass, k, re, im) : NULL;
    cmha_tensor *a_re = a ? cmha_complex_real(tape, a) : NULL, *a_im = a ? cmha_complex_imag(tape, a) : NULL, *plain;
    pass->imag = pass->tokens; /* of the next Möbius layer */
    if (tape->status) return NULL;
    if (!k->qkv_weight)
        return cmha_add(tape, cmha__mobius_channel(pass, k, a_re, re, 0), cmha__mobius_channel(pass, k, a_im, im, 1));
    plain = cmha__plain_attention(pass, k, cmha_add(tape, re, im));
    if (a) plain = cmha_concat(tape, plain, cmha_add(tape, a_re, a_im), 2);
    return cmha__mobius_channel(pass, k, plain, re, 0);
}

/* W x, or U (V^H x) where the rank is limited. */
static cmha_tensor *cmha__crat_linear(cmha__pass *pass, cmha_tensor *x, cmha_tensor *w, cmha_tensor *u, cmha_tensor *v) {
    return u ? cmha_complex_lowrank(pass->tape, x, u, v, NULL) : cmha_complex_linear(pass->tape, x, w, NULL);
}

/* One group of heads on z: real heads see Re z + 0i, imaginary ones Im z + 0i, mixed ones z (CRAT eq 10-13). */
static cmha_tensor *cmha__crat_group(cmha__pass *pass, const cmha_block *k, cmha_tensor *z, int g) {
    const cmha_model_config *c = &pass->model->config;
    cmha_tape *tape = pass->tape;
    cmha_tensor *x = g == 0 ? cmha_complex_real(tape, z) : g == 1 ? cmha_complex_imag(tape, z) : z, *q, *key = NULL, *v = NULL;
    cmha_attention_args a;
    cmha_linear_args linear;
    cmha_lag_args lag;
    if (k->group[g].weight) {
        q = g < 2 ? cmha_linear(tape, x, k->group[g].view, NULL) : cmha_complex_linear(tape, x, k->group[g].weight, NULL);
    } else {
        if (g < 2) x = cmha_complex_join(tape, x, NULL);
        q = cmha__crat_linear(pass, x, NULL, k->group[g].u[0], k->group[g].v[0]);
        key = cmha__crat_linear(pass, x, NULL, k->group[g].u[1], k->group[g].v[1]);
        v = cmha__crat_linear(pass, x, NULL, k->group[g].u[2], k->group[g].v[2]);
    }
    if (cmha__linear_args_of(pass->model, pass->layer, g, &linear)) return cmha__any_linear(pass, &linear, q, key, v);
    cmha__complex_args(pass->model, pass->layer, g, &a);
    if (c->crat_attention != CMHA_CRAT_LAG) return cmha__softmax_attention(pass, &a, q, key, v, NULL, NULL);
    memset(&lag, 0, sizeof lag);
    lag.heads = a.heads;
    lag.temp = (cmha_real)c->lag_temp;
    lag.topk = c->lag_topk;
    lag.eps = (cmha_real)c->complex_eps;
    lag.key_mask = pass->batch->key_mask;
    return cmha_lag_attention(tape, &lag, q, key, v);
}

/* Planes of all groups, head after head: [Re a | Im a] beside [Re b | Im b] is [Re a b | Im a b]. */
static cmha_tensor *cmha__join_planes(cmha__pass *pass, cmha_tensor *a, cmha_tensor *b) {
    size_t shape[3], wa, wb;
    cmha_tensor *joined;
    if (!a || !b) return a ? a : b;
    wa = cmha__last(a) / 2, wb = cmha__last(b) / 2;
    shape[0] = pass->B * pass->N, shape[1] = 2, shape[2] = wa;
    a = cmha_reshape(pass->tape, a, 3, shape);
    shape[2] = wb;
    joined = cmha_concat(pass->tape, a, cmha_reshape(pass->tape, b, 3, shape), 2);
    shape[0] = pass->B, shape[1] = pass->N, shape[2] = 2 * (wa + wb);
    return cmha_reshape(pass->tape, joined, 3, shape);
}

/* (alpha + i beta) z + f (eq 20); sum 0 or 1 of the layer. */
static cmha_tensor *cmha__crat_residual(cmha__pass *pass, const cmha_block *k, int sum, cmha_tensor *z, cmha_tensor *f) {
    const cmha_model_config *c = &pass->model->config;
    f = cmha_dropout(pass->tape, f, (cmha_real)c->dropout);
    if (c->residual_scale < 1 || c->residual_scale > 1) f = cmha_scale(pass->tape, f, (cmha_real)c->residual_scale);
    return k->alpha[sum] ? cmha_complex_residual(pass->tape, z, f, k->alpha[sum], k->beta[sum]) : cmha_add(pass->tape, z, f);
}

/* What the layer's reflection window makes of a [B, N, 2D] (eq 17-19); without a knowledge base: a itself. */
static cmha_tensor *cmha__crat_window(cmha__pass *pass, const cmha_block *k, cmha_tensor *a) {
    const cmha_model_config *c = &pass->model->config;
    cmha_retrieve_args args;
    if (!k->irw.wm || (!pass->model->knowledge && !cmha__dry(pass->tape))) return a;
    memset(&args, 0, sizeof args);
    args.queries = c->irw_queries;
    args.top = c->irw_top;
    args.tau = (cmha_real)c->irw_tau;
    args.threshold = (cmha_real)c->irw_threshold;
    args.eps = (cmha_real)c->complex_eps;
    args.raw_weights = c->irw_raw;
    return cmha_irw(pass->tape, pass->model->knowledge, &args, (cmha_real)c->irw_gate_tau, (cmha_fusion)c->irw_fusion, a, &k->irw);
}

/* W2 cGELU(W1 h + b1) + b2 (eq 9), or the experts (eq 21). */
static cmha_tensor *cmha__crat_ffn(cmha__pass *pass, const cmha_block *k, cmha_tensor *h) {
    const cmha_model_config *c = &pass->model->config;
    cmha_tape *tape = pass->tape;
    cmha_tensor *logits;
    uint64_t *use = tape->recording && !pass->again && c->experts ? pass->model->expert_use + pass->layer * c->experts : NULL;
    if (!c->experts) {
        h = cmha_activate(tape, cmha_complex_linear(tape, h, k->w1_weight, k->w1_bias), CMHA_GELU_ERF);
        return cmha_complex_linear(tape, h, k->w2_weight, k->w2_bias);
    }
    logits = cmha_router(tape, h, k->router_weight, k->router_bias);
    if (tape->recording && c->balance > 0)
        cmha__add_loss(pass, cmha_balance(tape, logits, c->experts_top, pass->batch->key_mask), c->balance);
    return cmha__experts(tape, h, logits, c->experts_top, k->w1_weight, k->w1_bias, k->w2_weight, k->w2_bias,
                         pass->batch->key_mask, use);
}

/* a = window(attention(norm(z))), z = r1 z + a, z = r2 z + ffn(norm(z)). */
static cmha_tensor *cmha__crat_block(cmha__pass *pass, const cmha_block *k, cmha_tensor *z) {
    const cmha_model_config *c = &pass->model->config;
    cmha_complex_norm norm = (cmha_complex_norm)c->complex_norm;
    cmha_tape *tape = pass->tape;
    cmha_tensor *h = cmha_complex_normalize(tape, z, norm, k->ln1_weight, k->ln1_bias, (cmha_real)c->norm_eps), *a = NULL;
    for (int g = 0; g < 3; g++)
        if (cmha__group_heads(c, g)) a = cmha__join_planes(pass, a, cmha__crat_group(pass, k, h, g));
    a = cmha__crat_linear(pass, a, k->wo_weight, k->wo_u, k->wo_v); /* eq 16 */
    z = cmha__crat_residual(pass, k, 0, z, cmha__crat_window(pass, k, a));
    h = cmha_complex_normalize(tape, z, norm, k->ln2_weight, k->ln2_bias, (cmha_real)c->norm_eps);
    return cmha__crat_residual(pass, k, 1, z, cmha__crat_ffn(pass, k, h));
}

/* ---- Blocks that keep their input alone (recompute = 1) ----
   The block is run on the tape as ever; then its result moves down to where it began, and the rest is forgotten, records and all.
   The backward runs it again from the same input with the same dropout keys and walks its records. These reach the gradients of
   what lies outside directly, so every sum is made in the order it would have had anyway: the bits are the same. */

typedef struct cmha__kept {
    cmha__pass pass;            /* as it was before the block */
    cmha_batch batch;           /* the caller's own may be gone by then */
    cmha_tensor *x, *y, *extra; /* extra: the losses up to and with this block's, if it adds any */
    uint64_t key, draws;        /* the tape's */
} cmha__kept;

enum { CMHA__OUTER = 4 }; /* tensors outside of a block that may get a gradient from it, besides parameters */

/* Their gradients that do not exist yet get room below what the block is going to take. */
static void cmha__outer_room(cmha_tape *tape, cmha_tensor *const *outer, cmha_real **room) {
    int j;
    for (int i = 0; i < CMHA__OUTER; i++) {
        room[i] = NULL;
        for (j = 0; j < i && outer[j] != outer[i]; j++) {}
        if (j == i && outer[i] && outer[i]->needs_grad && !outer[i]->grad) room[i] = cmha__grad_buffer(tape, outer[i]->size);
    }
}

static void cmha__free_buffer(cmha_tape *tape, cmha_real *memory, size_t n) {
    if (tape->n_unused == CMHA_MAX_FREE) return;
    tape->unused[tape->n_unused].memory = memory;
    tape->unused[tape->n_unused++].bytes = cmha__round64(n * sizeof *memory);
}

/* Those that now exist move there, unless it is in the result's own gradient, which has been handed on. Returns whether it has. */
static int cmha__outer_settle(cmha_tape *tape, cmha_tensor *const *outer, cmha_real *const *room, const cmha_real *handed) {
    int used = 0;
    for (int i = 0; i < CMHA__OUTER; i++) {
        if (!room[i]) continue;
        if (outer[i]->grad && outer[i]->grad != handed) {
            if (!cmha__dry(tape)) memcpy(room[i], outer[i]->grad, outer[i]->size * sizeof *room[i]);
            outer[i]->grad = room[i];
        } else {
            used |= outer[i]->grad != NULL;
            cmha__free_buffer(tape, room[i], outer[i]->size);
        }
    }
    return used;
}

static cmha_tensor *cmha__run_block(cmha__pass *pass, cmha_tensor *x) {
    const cmha_block *k = &pass->model->blocks[pass->layer];
    cmha_family family = cmha__layer_family(&pass->model->config, pass->layer);
    return family == CMHA_FAMILY_CRAT     ? cmha__crat_block(pass, k, x)
           : family == CMHA_FAMILY_MOBIUS ? cmha__mobius_block(pass, k, x)
                                          : cmha__real_block(pass, k, x);
}

/* The block once more and back, on an empty list of records and of free buffers. */
static cmha_status cmha__rerun_block(cmha_tape *tape, const cmha__kept *kept, cmha_tensor *out) {
    cmha__pass pass = kept->pass;
    cmha_tensor *y;
    tape->recording = 1;
    tape->key = kept->key;
    tape->draws = kept->draws;
    tape->last = NULL;
    tape->n_unused = 0;
    pass.again = 1;
    pass.batch = &kept->batch;
    y = cmha__run_block(&pass, kept->x);
    if (!y) return tape->status;
    y->grad = out->grad;
    y->needs_grad = out->needs_grad;
    if (kept->extra) pass.extra->grad = kept->extra->grad, pass.extra->needs_grad = 1;
    return cmha__walk(tape);
}

static cmha_status cmha__kept_backward(cmha_tape *tape, cmha_record *r) {
    const cmha__kept *kept = (const cmha__kept *)r->user;
    cmha_tensor *outer[CMHA__OUTER];
    cmha_real *room[CMHA__OUTER], *handed = r->out->needs_grad == 2 ? r->out->grad : NULL;
    cmha__mark memory, records;
    cmha_tape before;
    outer[0] = kept->x, outer[1] = kept->pass.imag, outer[2] = kept->pass.tokens, outer[3] = kept->pass.extra;
    cmha__outer_room(tape, outer, room);
    if (tape->status) return tape->status;
    before = *tape;
    memory = cmha__mark_of(tape), records = cmha__arena_mark(&tape->records);
    cmha__rerun_block(tape, kept, r->out);
    tape->recording = before.recording, tape->key = before.key, tape->draws = before.draws, tape->last = before.last;
    memcpy(tape->unused, before.unused, sizeof tape->unused);
    tape->n_unused = before.n_unused;
    if (tape->status) return tape->status;
    if (!cmha__outer_settle(tape, outer, room, handed) && handed) cmha__free_buffer(tape, handed, r->out->size);
    if (handed) r->out->grad = NULL;
    cmha__rewind(tape, memory);
    cmha__arena_rewind(tape->context, &tape->records, records);
    return CMHA_OK;
}

/* The sum of losses keeps its gradient until the block itself is reached, also where nothing else leads there. */
static cmha_status cmha__kept_extra_backward(cmha_tape *tape, cmha_record *r) {
    cmha_grad(tape, r->in[0]);
    return tape->status;
}

/* Appends the block, and the losses it has added, if they need a gradient. */
static cmha_tensor *cmha__push_kept(cmha__pass *pass, cmha__kept *kept, int needs_grad) {
    size_t none = 0;
    cmha_tensor *learns = cmha__tensor_shaped(pass->tape, 1, &none); /* for the parameters in it, too many for a record */
    if (!learns) return NULL;
    learns->needs_grad = needs_grad;
    if (!cmha_push(pass->tape, "block", kept->y, &learns, 1, cmha__kept_backward, kept)) return NULL;
    if (kept->extra && kept->y->needs_grad) {
        cmha_push(pass->tape, "losses of a block", kept->extra, &kept->y, 1, cmha__kept_extra_backward, NULL);
        kept->extra->needs_grad = 1;
    }
    return pass->tape->status ? NULL : kept->y;
}

static cmha_tensor *cmha__kept_block(cmha__pass *pass, cmha_tensor *x) {
    cmha_tape *tape = pass->tape;
    cmha__kept *kept = (cmha__kept *)cmha__record_alloc(tape, sizeof *kept);
    cmha_tensor *y = cmha__result(tape, x->rank, x->shape), *sum, *inner;
    cmha_record *last = tape->last;
    cmha__mark memory, records;
    size_t one = 1;
    int needs_grad;
    sum = cmha__result(tape, 1, &one);
    if (!kept || !y || !sum) return NULL;
    kept->pass = *pass, kept->batch = *pass->batch;
    kept->x = x, kept->y = y;
    kept->key = tape->key, kept->draws = tape->draws;
    memory = cmha__mark_of(tape), records = cmha__arena_mark(&tape->records);
    inner = cmha__run_block(pass, x);
    if (!inner) return NULL;
    if (!cmha__dry(tape)) memcpy(y->data, inner->data, y->size * sizeof *y->data);
    if (pass->extra != kept->pass.extra) {
        if (!cmha__dry(tape)) sum->data[0] = pass->extra->data[0];
        pass->extra = kept->extra = sum;
    }
    needs_grad = inner->needs_grad;
    cmha__rewind(tape, memory);
    cmha__arena_rewind(tape->context, &tape->records, records);
    tape->last = last;
    return cmha__push_kept(pass, kept, needs_grad);
}

/* Outside of a recording x keeps its memory, and all else that the block took is given back. */
static cmha_tensor *cmha__block(cmha__pass *pass, cmha_tensor *x) {
    cmha__mark mark = cmha__mark_of(pass->tape);
    cmha_tensor *y;
    if (pass->tape->recording && pass->model->config.recompute) return cmha__kept_block(pass, x);
    y = cmha__run_block(pass, x);
    if (!y || pass->tape->recording) return y;
    if (y != x && !cmha__dry(pass->tape)) memcpy(x->data, y->data, x->size * sizeof *x->data);
    cmha__rewind(pass->tape, mark);
    return x;
}

/* ---- Embeddings ---- */

/* Rows of an embedding whose ids are given, all 0, or count up from `first` in every sequence -> [B, N, d]. */
static cmha_tensor *cmha__rows_of_embedding(cmha__pass *pass, cmha_tensor *weight, const int32_t *ids, int counting) {
    size_t B = pass->B, N = pass->N;
    if (!ids) {
        int32_t *made = (int32_t *)cmha_tape_alloc(pass->tape, B * N * sizeof *made);
        for (size_t i = 0; made && !cmha__dry(pass->tape) && i < B * N; i++) made[i] = counting ? (int32_t)(pass->first + i % N) : 0;
        ids = made;
    }
    return ids ? cmha_embedding(pass->tape, weight, ids, B, N) : NULL;
}

/* The learned positions [B, N, d]. */
static cmha_tensor *cmha__learned_positions(cmha__pass *pass) {
    cmha_model *model = pass->model;
    if (pass->first + pass->N > model->config.max_positions)
        return cmha__reject(pass->tape, CMHA_ERR_SHAPE, "model: %zu positions, but the learned embedding has %zu",
                                pass->first + pass->N, model->config.max_positions);
    return cmha__rows_of_embedding(pass, model->position_weight, NULL, 1);
}

/* x += factor * table for every sequence: a constant, so in place and without a record. CoPE's table or the sinusoidal one. */
static cmha_tensor *cmha__add_positions(cmha__pass *pass, cmha_tensor *x) {
    const cmha_model_config *c = &pass->model->config;
    size_t N = pass->N, d = c->d_model;
    int cope = c->family == CMHA_FAMILY_COPE;
    cmha__mark mark = cmha__mark_of(pass->tape);
    cmha_real *table = x ? cmha__reals(pass->tape, N * d) : NULL;
    if (table && !cmha__dry(pass->tape)) {
        if (cope) cmha_cope_table((cmha_cope_imag)c->cope_imag, N, d, c->base, pass->first, table);
        else cmha_sinusoidal_table(N, d, c->base, pass->first, table);
        for (size_t i = 0; i < pass->B; i++) cmha__axpy(N * d, cope ? (cmha_real)c->cope_gamma : 1, table, x->data + i * N * d);
    }
    cmha__rewind(pass->tape, mark);
    return x;
}

/* The imaginary channel of the first layer: positions (CoPE eq 1; MöbiusAttention's rho = w + i p). */
static cmha_tensor *cmha__imaginary_positions(cmha__pass *pass) {
    const cmha_model_config *c = &pass->model->config;
    size_t shape[3];
    cmha_tensor *p;
    if (pass->model->position_weight) {
        p = cmha__learned_positions(pass);
        if (c->family == CMHA_FAMILY_COPE && (c->cope_gamma < 1 || c->cope_gamma > 1))
            p = cmha_scale(pass->tape, p, (cmha_real)c->cope_gamma);
    } else {
        shape[0] = pass->B, shape[1] = pass->N, shape[2] = c->d_model;
        p = cmha__add_positions(pass, cmha_tensor_new(pass->tape, 3, shape, 0));
    }
    return cmha_dropout(pass->tape, p, (cmha_real)c->dropout);
}

/* x + multi-frequency positions (CRAT eq 2-3). */
static cmha_tensor *cmha__add_waves(cmha__pass *pass, cmha_tensor *x) {
    const cmha_model *model = pass->model;
    return cmha_add_rows(pass->tape, x, cmha_multifreq(pass->tape, model->pe_omega, model->pe_delta, pass->N, pass->first));
}

/* CRAT's state of token embeddings e [B, N, d] -> planes [B, N, d] (eq 2-7). */
static cmha_tensor *cmha__crat_state(cmha__pass *pass, cmha_tensor *e) {
    cmha_model *model = pass->model;
    cmha_tape *tape = pass->tape;
    cmha_tensor *h = cmha__add_waves(pass, e), *z;
    h = cmha_dropout(tape, h, (cmha_real)model->config.dropout);
    z = cmha_linear(tape, h, model->state_weight, model->state_bias);
    if (model->theta_weight) z = cmha_complex_rotate(tape, z, cmha_linear(tape, h, model->theta_weight, model->theta_bias));
    return model->config.state_gelu ? cmha_activate(tape, z, CMHA_GELU_ERF) : z;
}

/* Token embeddings plus token types and positions; or CRAT's state. */
static cmha_tensor *cmha__model_embed(cmha__pass *pass) {
    cmha_model *model = pass->model;
    cmha_tape *tape = pass->tape;
    cmha_family family = (cmha_family)model->config.family;
    int apart = family == CMHA_FAMILY_COPE || family == CMHA_FAMILY_MOBIUS; /* positions are the imaginary channel */
    cmha_tensor *x = cmha_embedding(tape, model->token_weight, pass->batch->ids, pass->B, pass->N);
    if (model->config.embedding_scale) x = cmha_scale(tape, x, (cmha_real)sqrt((double)model->config.d_model));
    if (x && model->type_weight) x = cmha_add(tape, x, cmha__rows_of_embedding(pass, model->type_weight, pass->batch->types, 0));
    if (x && family == CMHA_FAMILY_CRAT) return cmha__crat_state(pass, x);
    if (x && !apart && model->position_weight) x = cmha_add(tape, x, cmha__learned_positions(pass));
    if (x && !apart && model->config.position == CMHA_POSITION_SINUSOIDAL) x = cmha__add_positions(pass, x);
    if (x && !apart && model->config.position == CMHA_POSITION_MULTIFREQ) x = cmha__add_waves(pass, x);
    x = x ? cmha_dropout(tape, x, (cmha_real)model->config.dropout) : NULL;
    if (x && apart) {
        pass->imag = cmha__imaginary_positions(pass);
        if (family == CMHA_FAMILY_MOBIUS && !tape->recording) { /* blocks then overwrite x, so the tokens need a copy of their own */
            pass->tokens = cmha__result(tape, x->rank, x->shape);
            if (pass->tokens && !cmha__dry(tape)) memcpy(pass->tokens->data, x->data, x->size * sizeof *x->data);
        } else {
            pass->tokens = x;
        }
    }
    return x;
}

/* Phase and magnitude regularisation of CRAT's last state (eq 23-25; the paper does not say of which). */
static cmha_tensor *cmha__add_regularisers(cmha__pass *pass, cmha_tensor *z) {
    const cmha_model_config *c = &pass->model->config;
    const unsigned char *mask = pass->batch->key_mask;
    if (!pass->tape->recording) return z;
    if (c->phase_reg > 0)
        cmha__add_loss(pass, cmha_phase_reg(pass->tape, z, mask, (cmha_real)c->phase_reg, (cmha_real)c->complex_eps), 1);
    if (c->mag_reg > 0) cmha__add_loss(pass, cmha_mag_reg(pass->tape, z, mask, (cmha_real)c->mag_reg), 1);
    return z;
}

/* Embedding and blocks -> [B, N, d_model]. */
static cmha_tensor *cmha__model_body(cmha__pass *pass) {
    const cmha_model_config *c = &pass->model->config;
    cmha_tensor *x;
    if (c->family != CMHA_FAMILY_CRAT && c->attention != CMHA_ATTENTION_DOT)
        pass->rotation = cmha_rotation(pass->tape, pass->model->omega, pass->model->n_omega, cmha__head_width(c) / 2, pass->N,
                                       (ptrdiff_t)pass->first);
    x = cmha__model_embed(pass);
    for (pass->layer = 0; x && pass->layer < c->n_layers; pass->layer++) x = cmha__block(pass, x);
    return x && c->family == CMHA_FAMILY_CRAT ? cmha__add_regularisers(pass, x) : x;
}

static cmha_tensor *cmha__final_norm(cmha__pass *pass, cmha_tensor *x) {
    return pass->model->final_weight ? cmha__model_norm(pass, x, pass->model->final_weight, pass->model->final_bias) : x;
}

static cmha_tensor *cmha__vocabulary_head(cmha_model *model, cmha_tape *tape, cmha_tensor *x) {
    return cmha_linear(tape, x, model->head_weight ? model->head_weight : model->token_weight, model->head_bias);
}

CMHA_DEF cmha_tensor *cmha_model_states(cmha_model *model, cmha_tape *tape, const cmha_batch *batch, cmha_tensor **extra_loss) {
    cmha__pass pass;
    cmha_tensor *x;
    if (extra_loss) *extra_loss = NULL;
    if (!tape || tape->status) return NULL;
    if (!cmha__model_is_open(model) || !batch)
        return cmha__reject(tape, CMHA_ERR_ARGUMENT, "model: it or the batch is missing");
    if (tape->recording && !cmha__dry(tape) && cmha__need_grad(model)) return cmha__stop(tape, CMHA_ERR_MEMORY);
    memset(&pass, 0, sizeof pass);
    pass.model = model;
    pass.tape = tape;
    pass.batch = batch;
    pass.B = batch->batch;
    pass.N = batch->length;
    x = cmha__final_norm(&pass, cmha__model_body(&pass));
    if (extra_loss) *extra_loss = x ? pass.extra : NULL;
    return x;
}

CMHA_DEF cmha_tensor *cmha_model_forward(cmha_model *model, cmha_tape *tape, const cmha_batch *batch, cmha_tensor **extra_loss) {
    cmha_tensor *x = cmha_model_states(model, tape, batch, extra_loss);
    return x ? cmha__vocabulary_head(model, tape, x) : NULL;
}

CMHA_DEF cmha_tensor *cmha_model_scores(cmha_model *model, cmha_tape *tape, cmha_tensor *states, const unsigned char *key_mask) {
    const cmha_model_config *c;
    cmha_tensor *x;
    size_t *first;
    if (!states || !tape || tape->status) return NULL;
    if (!cmha__model_is_open(model))
        return cmha__reject(tape, CMHA_ERR_ARGUMENT, "scores: the model is missing");
    c = &model->config;
    if (!model->class_weight) return cmha__reject(tape, CMHA_ERR_STATE, "scores: the model has no class head (classes = 0)");
    if (states->rank != 3 || !states->shape[1])
        return cmha__reject(tape, CMHA_ERR_SHAPE, "scores: there is no token to look at");
    if (c->pool == CMHA_POOL_MEAN) {
        x = cmha_mean_tokens(tape, states, key_mask);
    } else {
        first = (size_t *)cmha__record_alloc(tape, (states->shape[0] + 1) * sizeof *first);
        for (size_t b = 0; first && b < states->shape[0]; b++) first[b] = b * states->shape[1];
        x = first ? cmha_gather(tape, states, first, states->shape[0]) : NULL;
    }
    x = cmha_linear(tape, x, model->class_weight, model->class_bias);
    return c->classes == 1 && c->label_range > 0 ? cmha_scale(tape, cmha_sigmoid(tape, x), (cmha_real)c->label_range) : x;
}

/* ---- Objectives ---- */

/* Loss of a batch with labels: cross-entropy of classes, or the squared error of a regression. */
static cmha_tensor *cmha__label_loss(cmha_model *model, cmha_tape *tape, const cmha_batch *batch, cmha_tensor *states) {
    cmha_tensor *scores = cmha_model_scores(model, tape, states, batch->key_mask);
    int32_t *targets;
    if (model->config.classes == 1) return cmha_squared_error(tape, scores, batch->labels);
    targets = (int32_t *)cmha__record_alloc(tape, (batch->batch + 1) * sizeof *targets);
    for (size_t b = 0; targets && !cmha__dry(tape) && b < batch->batch; b++) {
        double label = (double)batch->labels[b];
        targets[b] = label >= 0 && label < 65536 ? (int32_t)label : -2; /* -2 is refused as outside the classes; NaN is, and 1.5 */
        if (label - (double)targets[b] > 0) targets[b] = -2;
    }
    return targets ? cmha_cross_entropy(tape, scores, targets, -1, batch->class_weights) : NULL;
}

/* Of an encoder only the hidden tokens go through the vocabulary, which may be the larger part of the work. How many there are
   differs from batch to batch, so gradients of that size are not recycled: a dry run, where every token is hidden, would reuse
   them for tensors of all tokens, and a batch with fewer hidden ones would then need more memory than was measured. */
static cmha_tensor *cmha__token_loss(cmha_model *model, cmha_tape *tape, const cmha_batch *batch, cmha_tensor *states,
                                     cmha_real weight) {
    const int32_t *targets = batch->targets;
    size_t total = batch->batch * batch->length, n = 0;
    if (!targets) return cmha__reject(tape, CMHA_ERR_ARGUMENT, "loss: the batch has neither targets nor labels");
    if (!model->config.causal) {
        size_t *index = (size_t *)cmha_tape_alloc(tape, (total + 1) * sizeof *index);
        int32_t *wanted = (int32_t *)cmha_tape_alloc(tape, (total + 1) * sizeof *wanted);
        for (size_t i = 0; wanted && !cmha__dry(tape) && i < total; i++)
            if (targets[i] != -1) index[n] = i, wanted[n++] = targets[i];
        if (cmha__dry(tape)) n = total; /* the most there can be */
        states = wanted ? cmha_gather(tape, states, index, n) : NULL;
        targets = wanted;
        if (states) states->needs_grad = tape->recording != 0;
    }
    return cmha__linear_cross_entropy(tape, states, model->head_weight ? model->head_weight : model->token_weight, model->head_bias,
                                      targets, -1, NULL, weight);
}

/* weight: the cotangent of the backward that follows. */
static cmha_tensor *cmha__objective(cmha_model *model, cmha_tape *tape, const cmha_batch *batch, cmha_real weight,
                                    cmha_tensor **extra) {
    cmha_tensor *states = cmha_model_states(model, tape, batch, extra);
    if (!states) return NULL;
    return batch->labels ? cmha__label_loss(model, tape, batch, states) : cmha__token_loss(model, tape, batch, states, weight);
}

/* Starts a pass on the model's own tape. */
static cmha_status cmha__own_pass(cmha_model *model, int recording, uint64_t key) {
    if (!cmha__model_is_open(model)) return CMHA_ERR_STATE;
    cmha_tape_reset(&model->tape);
    model->tape.recording = recording;
    model->tape.key = key;
    return CMHA_OK;
}

CMHA_DEF cmha_status cmha_model_loss(cmha_model *model, const cmha_batch *batch, double *loss) {
    cmha_tensor *y;
    cmha_status status = cmha__own_pass(model, 0, 0);
    if (!status && (!batch || !loss))
        status = cmha__fail(model->context, CMHA_ERR_ARGUMENT, "loss: the batch or the result is NULL");
    if (status) return status;
    y = cmha__objective(model, &model->tape, batch, 0, NULL);
    if (y && !cmha__dry(&model->tape)) *loss = (double)y->data[0];
    return model->tape.status;
}

CMHA_DEF cmha_status cmha_model_logits(cmha_model *model, const cmha_batch *batch, cmha_real *logits) {
    cmha_tensor *y;
    cmha_status status = cmha__own_pass(model, 0, 0);
    if (!status && (!batch || !logits))
        status = cmha__fail(model->context, CMHA_ERR_ARGUMENT, "logits: the batch or the result is NULL");
    if (status) return status;
    y = cmha_model_forward(model, &model->tape, batch, NULL);
    if (y) memcpy(logits, y->data, y->size * sizeof *logits);
    return model->tape.status;
}

/* vectors [B, W] = mean phasors of the counted rows of states [B, N, W]; u [W] is scratch. */
static void cmha__mean_phasors(const cmha_tensor *states, const unsigned char *mask, cmha_real eps, cmha_real *u,
                               cmha_real *vectors) {
    size_t B = states->shape[0], N = states->shape[1], W = states->shape[2], n, count;
    for (size_t b = 0; b < B; b++) {
        cmha_real *to = vectors + b * W;
        for (size_t j = 0; j < W; j++) to[j] = 0;
        for (count = n = 0; n < N; n++) {
            if (mask && !mask[b * N + n]) continue;
            cmha_phasor_forward(states->data + (b * N + n) * W, 1, W / 2, eps, u);
            cmha__axpy(W, 1, u, to);
            count++;
        }
        for (size_t j = 0; count && j < W; j++) to[j] /= (cmha_real)count;
    }
}

CMHA_DEF cmha_status cmha_model_vectors(cmha_model *model, const cmha_batch *batch, cmha_real *vectors) {
    cmha_tensor *y;
    cmha_real *u;
    cmha_status status = cmha__own_pass(model, 0, 0);
    if (!status && (!batch || !vectors))
        status = cmha__fail(model->context, CMHA_ERR_ARGUMENT, "vectors: the batch or the result is NULL");
    if (!status && model->config.d_model % 2)
        status = cmha__fail(model->context, CMHA_ERR_SHAPE, "vectors: d_model %zu is odd", model->config.d_model);
    if (status) return status;
    y = cmha_model_states(model, &model->tape, batch, NULL);
    u = y ? cmha__reals(&model->tape, model->config.d_model) : NULL;
    if (u) cmha__mean_phasors(y, batch->key_mask, (cmha_real)model->config.complex_eps, u, vectors);
    return model->tape.status;
}

CMHA_DEF cmha_status cmha_model_classify(cmha_model *model, const cmha_batch *batch, cmha_real *scores) {
    cmha_tensor *y;
    cmha_status status = cmha__own_pass(model, 0, 0);
    if (!status && (!batch || !scores))
        status = cmha__fail(model->context, CMHA_ERR_ARGUMENT, "classify: the batch or the result is NULL");
    if (status) return status;
    y = cmha_model_scores(model, &model->tape, cmha_model_states(model, &model->tape, batch, NULL), batch->key_mask);
    if (y) memcpy(scores, y->data, y->size * sizeof *scores);
    return model->tape.status;
}

CMHA_DEF cmha_status cmha_model_gradient(cmha_model *model, const cmha_batch *batch, double weight, uint64_t key, double *loss) {
    cmha_tape *tape;
    cmha_tensor *extra, *objective, *total;
    cmha_status status = cmha__own_pass(model, 1, key);
    if (!status && (!batch || !loss))
        status = cmha__fail(model->context, CMHA_ERR_ARGUMENT, "gradient: the batch or the result is NULL");
    if (!status) status = cmha__need_grad(model);
    if (status) return status;
    tape = &model->tape;
    objective = cmha__objective(model, tape, batch, (cmha_real)weight, &extra);
    total = extra ? cmha_add(tape, objective, extra) : objective;
    if (!total) return tape->status;
    if (!cmha__dry(tape)) {
        *loss = (double)objective->data[0];
        if (!(fabs((double)total->data[0]) <= (double)FLT_MAX))
            return cmha__fail(model->context, CMHA_ERR_NOT_FINITE, "gradient: the loss is %g", (double)total->data[0]);
    }
    return cmha_backward(tape, total, (cmha_real)weight);
}

/* Passes that compute nothing but count what they would take: bytes of the two arenas' single blocks. A step, and an evaluation, which
   takes more than a step in small models whose blocks run twice. */
static cmha_status cmha__measure(const cmha_model *like, size_t batch, size_t length, size_t *memory, size_t *records) {
    cmha_model dry = *like;
    cmha_batch b;
    double loss;
    cmha_status status = CMHA_OK;
    static const int32_t none = 0; /* never read */
    static const cmha_real no_label = 0;
    memset(&b, 0, sizeof b);
    b.ids = b.targets = &none;
    b.batch = batch;
    b.length = length;
    if (like->config.classes) b.labels = &no_label; /* what the class head is for; hidden tokens then find their memory at the first step */
    *memory = *records = 0;
    for (int training = 1; training >= 0 && !status; training--) {
        status = cmha_tape_init(&dry.tape, like->context, 1);
        if (status) return status;
        dry.tape.memory.measuring = 1;
        status = training ? cmha_model_gradient(&dry, &b, 1, 0, &loss) : cmha_model_loss(&dry, &b, &loss);
        if (dry.tape.memory.peak > *memory) *memory = dry.tape.memory.peak;
        if (dry.tape.records.peak > *records) *records = dry.tape.records.peak;
        cmha_tape_close(&dry.tape);
    }
    return status;
}

/* An allocator in front of the caller's that counts. */
typedef struct cmha__counter {
    cmha_context *inner;
    size_t bytes;
} cmha__counter;

static void *cmha__count_take(void *user, size_t bytes) {
    cmha__counter *c = (cmha__counter *)user;
    void *memory = cmha__take(c->inner, bytes);
    if (memory) c->bytes += bytes;
    return memory;
}

static void cmha__count_give(void *user, void *memory, size_t bytes) {
    cmha__counter *c = (cmha__counter *)user;
    c->bytes -= bytes;
    cmha__give(c->inner, memory, bytes);
}

CMHA_DEF cmha_status cmha_model_memory(cmha_context *context, const cmha_model_config *config, size_t batch, size_t length,
                                       size_t *parameters, size_t *training) {
    cmha__counter counter;
    cmha__builder b;
    cmha_context counting;
    cmha_model model;
    cmha_status status;
    size_t memory = 0, records = 0, tables, unit = sizeof(cmha_real);
    if (!cmha__is_open(context)) return CMHA_ERR_STATE;
    counter.inner = context;
    counter.bytes = 0;
    counting = *context;
    counting.config.allocator.allocate = cmha__count_take;
    counting.config.allocator.release = cmha__count_give;
    counting.config.allocator.user = &counter;
    status = cmha__model_open(&model, &counting, config);
    if (!status) {
        tables = counter.bytes;
        if (parameters) *parameters = tables + model.size * unit;
        if (training) {
            model.data = model.grad = (cmha_real *)(uintptr_t)64; /* never touched in a dry run */
            b.model = &model;
            cmha__declare_all(&b);
            cmha__attach_grad(&model);
            status = cmha__measure(&model, batch, length, &memory, &records);
            model.data = model.grad = NULL;
            if (!status && !(cmha__sum(tables + 4 * model.size * unit + 2 * CMHA__BLOCK_OVERHEAD, memory, training) &&
                             cmha__sum(*training, records, training) &&
                             cmha__sum(*training, 2 * batch * length * sizeof(int32_t), training)))
                status = cmha__fail(&counting, CMHA_ERR_OVERFLOW, "model memory: training takes more bytes than a size_t holds");
        }
        cmha_model_close(&model);
    }
    if (status) memcpy(context->detail, counting.detail, sizeof context->detail);
    return status;
}

/* ====================================================== Training ====================================================== */

/* ---- Optimiser ---- */

CMHA_DEF void cmha_adamw(const cmha_adamw_args *args, size_t n, cmha_real *p, const cmha_real *g, cmha_real *m,
                                        cmha_real *v) {
    cmha_real b1 = (cmha_real)args->beta1, b2 = (cmha_real)args->beta2, scale = (cmha_real)args->grad_scale;
    cmha_real a1 = (cmha_real)(1 - args->beta1), a2 = (cmha_real)(1 - args->beta2), eps = (cmha_real)args->eps;
    cmha_real step = (cmha_real)(args->lr / (1 - pow(args->beta1, (double)args->t)));
    cmha_real unbias = (cmha_real)(1 / (1 - pow(args->beta2, (double)args->t)));
    cmha_real decay = (cmha_real)(args->lr * args->weight_decay);
    for (size_t i = 0; i < n; i++) {
        cmha_real x = g[i] * scale, root;
        m[i] = b1 * m[i] + a1 * x;
        v[i] = b2 * v[i] + a2 * x * x;
        root = cmha__square_root(v[i] * unbias) + eps;
        p[i] = (p[i] - decay * p[i]) - (root > 0 ? step * m[i] / root : 0); /* eps = 0 and never a gradient */
    }
}

CMHA_DEF double cmha_learning_rate(cmha_schedule schedule, double base, double minimum, size_t warmup, size_t total, size_t s) {
    double progress;
    if (s < warmup) return base * (double)s / (double)warmup;
    if (schedule == CMHA_CONSTANT) return base;
    progress = total > warmup ? (double)(s - warmup) / (double)(total - warmup) : (double)(s - warmup);
    if (progress > 1) progress = 1;
    if (schedule == CMHA_LINEAR) return base + (minimum - base) * progress;
    return minimum + (base - minimum) / 2 * (1 + cos(3.14159265358979323846 * progress));
}
/* ---- Metrics ---- */

static double cmha__agreements(const int32_t *predicted, const int32_t *wanted, size_t n) {
    size_t right = 0;
    for (size_t i = 0; i < n; i++) right += predicted[i] == wanted[i];
    return (double)right;
}

CMHA_DEF double cmha_accuracy(const int32_t *predicted, const int32_t *wanted, size_t n) {
    return n ? cmha__agreements(predicted, wanted, n) / (double)n : 0;
}

CMHA_DEF double cmha_f1(const int32_t *predicted, const int32_t *wanted, size_t n, int32_t positive) {
    size_t both = 0, either = 0, i; /* TP; 2 TP + FP + FN */
    for (i = 0; i < n; i++) {
        both += predicted[i] == positive && wanted[i] == positive;
        either += (size_t)(predicted[i] == positive) + (size_t)(wanted[i] == positive);
    }
    return either ? 2 * (double)both / (double)either : 0;
}

/* With p_k and t_k how often class k is predicted and wanted, and c how often they agree:
   (c n - sum p_k t_k) / sqrt((n^2 - sum p_k^2) (n^2 - sum t_k^2)). One class is counted at a time, which needs no memory. */
CMHA_DEF double cmha_matthews(const int32_t *predicted, const int32_t *wanted, size_t n, size_t classes) {
    double all = (double)n, right = cmha__agreements(predicted, wanted, n), pt = 0, pp = 0, tt = 0, p_all = 0, t_all = 0;
    for (size_t k = 0; k < classes && (p_all < all || t_all < all); k++) { /* until all are counted */
        size_t p = 0, t = 0;
        for (size_t i = 0; i < n; i++) {
            p += predicted[i] >= 0 && (size_t)predicted[i] == k;
            t += wanted[i] >= 0 && (size_t)wanted[i] == k;
        }
        pt += (double)p * (double)t, pp += (double)p * (double)p, tt += (double)t * (double)t;
        p_all += (double)p, t_all += (double)t;
    }
    if (p_all < all || t_all < all) return (double)NAN;
    if (pp >= all * all || tt >= all * all) return 0;
    return (right * all - pt) / (sqrt(all * all - pp) * sqrt(all * all - tt));
}

/* Mean and spread of x / scale, scale the largest |x|: nothing overflows, and a constant x has a spread of exactly 0.
   Returns 0 where x is not finite. */
static int cmha__spread(const double *x, size_t n, double *scale, double *mean, double *spread) {
    *scale = *mean = *spread = 0;
    for (size_t i = 0; i < n; i++) {
        if (!(fabs(x[i]) <= DBL_MAX)) return 0;
        if (fabs(x[i]) > *scale) *scale = fabs(x[i]);
    }
    if (!(*scale > 0)) *scale = 1;
    for (size_t i = 0; i < n; i++) *mean += x[i] / *scale;
    if (n) *mean /= (double)n;
    for (size_t i = 0; i < n; i++) *spread += (x[i] / *scale - *mean) * (x[i] / *scale - *mean);
    *spread = sqrt(*spread);
    return 1;
}

CMHA_DEF double cmha_pearson(const double *x, const double *y, size_t n) {
    double x_scale, x_mean, x_spread, y_scale, y_mean, y_spread, r = 0;
    if (!cmha__spread(x, n, &x_scale, &x_mean, &x_spread) || !cmha__spread(y, n, &y_scale, &y_mean, &y_spread)) return (double)NAN;
    if (!(x_spread > 0 && y_spread > 0)) return 0;
    for (size_t i = 0; i < n; i++) r += (x[i] / x_scale - x_mean) / x_spread * ((y[i] / y_scale - y_mean) / y_spread);
    return r < -1 ? -1 : r > 1 ? 1 : r;
}

static int cmha__compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* rank [n]: the place of each x in their order, counted from 1, equal ones at the average of theirs. Returns 0 where one is NaN. */
static int cmha__ranks(const double *x, size_t n, double *rank, const void **order) {
    size_t same;
    for (size_t i = 0; i < n; i++) {
        if (x[i] != x[i]) return 0;
        order[i] = x + i;
    }
    cmha__sort(order, n, cmha__compare_doubles);
    for (size_t i = 0; i < n; i = same) {
        for (same = i + 1; same < n && !cmha__compare_doubles(order[i], order[same]);) same++;
        for (size_t j = i; j < same; j++) rank[(const double *)order[j] - x] = 0.5 * (double)(i + 1 + same);
    }
    return 1;
}

CMHA_DEF double cmha_spearman(const double *x, const double *y, size_t n, double *scratch) {
    const void **order = (const void **)(void *)(scratch + 2 * n); /* n pointers are at most 2 n doubles */
    if (!cmha__ranks(x, n, scratch, order) || !cmha__ranks(y, n, scratch + n, order)) return (double)NAN;
    return cmha_pearson(scratch, scratch + n, n);
}

/* ---- The trainer ---- */

CMHA_DEF void cmha_trainer_close(cmha_trainer *trainer) {
    if (!trainer || !trainer->context) return;
    cmha__give(trainer->context, trainer->moments, 2 * trainer->size * sizeof *trainer->moments);
    cmha__give(trainer->context, trainer->ids, 2 * trainer->config.batch * trainer->config.length * sizeof *trainer->ids);
    memset(trainer, 0, sizeof *trainer);
}

static int cmha__trainer_open(const cmha_trainer *trainer) {
    return trainer && cmha__is_opening(trainer->model, trainer->context, trainer->opening);
}

/* Tokens that can be read? A count without data, or a width that nobody set, would lead outside of the memory. */
static cmha_status cmha__check_stream(const cmha_trainer *trainer, const char *call, const cmha_tokens *tokens) {
    if (tokens && tokens->data && (tokens->width == 1 || tokens->width == 2 || tokens->width == 4)) return CMHA_OK;
    return cmha__fail(trainer->context, CMHA_ERR_ARGUMENT, "%s: no tokens, or their width is not 1, 2 or 4", call);
}

/* Memory of every later step, taken now: gradients first, because the dry run needs them attached. */
static cmha_status cmha__trainer_reserve(cmha_trainer *trainer) {
    cmha_model *model = trainer->model;
    size_t memory, records, tokens;
    cmha_status status = cmha__need_grad(model);
    if (!status) status = cmha__measure(model, trainer->config.batch, trainer->config.length, &memory, &records);
    if (!status) status = cmha__arena_reserve(model->context, &model->tape.memory, memory);
    if (!status) status = cmha__arena_reserve(model->context, &model->tape.records, records);
    if (status) return status;
    cmha_tape_reset(&model->tape);
    tokens = 2 * trainer->config.batch * trainer->config.length; /* no overflow: the dry run has multiplied them */
    trainer->moments = (cmha_real *)cmha__take(model->context, 2 * model->size * sizeof *trainer->moments);
    trainer->ids = (int32_t *)cmha__take(model->context, tokens * sizeof *trainer->ids);
    if (!trainer->moments || !trainer->ids)
        return cmha__fail(model->context, CMHA_ERR_MEMORY, "trainer: out of memory for the moments of %zu parameters", model->size);
    memset(trainer->moments, 0, 2 * model->size * sizeof *trainer->moments);
    return CMHA_OK;
}

CMHA_DEF cmha_status cmha_trainer_init(cmha_trainer *trainer, cmha_model *model, const cmha_trainer_config *config) {
    cmha_status status;
    if (!trainer) return CMHA_ERR_ARGUMENT;
    memset(trainer, 0, sizeof *trainer);
    if (!cmha__model_is_open(model)) return CMHA_ERR_STATE;
    if (config) trainer->config = *config;
    else cmha_config_defaults(cmha_trainer_table(), &trainer->config);
    status = cmha_config_check(model->context, cmha_trainer_table(), &trainer->config);
    if (status) return status;
    if (!model->config.causal && trainer->config.mask_token >= model->config.vocabulary)
        return cmha__fail(model->context, CMHA_ERR_TOKEN, "trainer: mask_token %zu is outside the vocabulary of %zu",
                          trainer->config.mask_token, model->config.vocabulary);
    trainer->context = model->context;
    trainer->model = model;
    trainer->size = model->size;
    trainer->opening = model->opening;
    trainer->seed = model->context->config.seed;
    trainer->best = (double)INFINITY;
    status = cmha__trainer_reserve(trainer);
    if (status) cmha_trainer_close(trainer);
    return status;
}

CMHA_DEF void cmha_mask_tokens(int32_t *ids, int32_t *targets, size_t n, const unsigned char *keep, size_t vocabulary,
                               int32_t mask_token, double rate, cmha_rng *rng) {
    for (size_t i = 0; i < n; i++) {
        double chosen = cmha_rng_uniform(rng), fate = cmha_rng_uniform(rng);
        targets[i] = -1;
        if (chosen >= rate || (keep && !keep[i])) continue;
        targets[i] = ids[i];
        if (fate < 0.8) ids[i] = mask_token;
        else if (fate < 0.9) ids[i] = (int32_t)cmha_rng_below(rng, vocabulary);
    }
}

/* Fills one row of ids and targets from the stream: the next tokens, or an encoder's hidden ones as `draw` chooses them. */
static void cmha__fill_row(const cmha_trainer *trainer, const cmha_tokens *tokens, size_t start, size_t n, uint64_t draw,
                           int32_t *ids, int32_t *targets) {
    const cmha_model_config *c = &trainer->model->config;
    cmha_rng rng = cmha_rng_make(trainer->seed, cmha__mix(draw));
    for (size_t i = 0; i < n; i++) {
        ids[i] = cmha_tokens_at(tokens, start + i);
        targets[i] = c->causal ? cmha_tokens_at(tokens, start + i + 1) : -1;
    }
    if (!c->causal)
        cmha_mask_tokens(ids, targets, n, NULL, c->vocabulary, (int32_t)trainer->config.mask_token, trainer->config.mask_rate,
                         &rng);
}

static cmha_batch cmha__trainer_batch(const cmha_trainer *trainer, size_t batch, size_t length) {
    cmha_batch b;
    memset(&b, 0, sizeof b);
    b.ids = trainer->ids;
    b.targets = trainer->ids + batch * length;
    b.batch = batch;
    b.length = length;
    return b;
}

static double cmha__grad_norm(const cmha_model *model, double *partial) {
    int threads = model->context->threads;
    double sum = 0;
    for (int c = 0; c < threads; c++) partial[c] = 0;
    CMHA__FOR_CHUNKS(threads, model->size, lo, hi) {
        size_t n;
        for (size_t i = lo; i < hi; i += n) { /* blocks, so that a float sum of squares stays exact enough */
            n = hi - i < 4096 ? hi - i : 4096;
            partial[cmha__chunk] += (double)cmha__dot(model->grad + i, model->grad + i, n);
        }
    }
    for (int c = 0; c < threads; c++) sum += partial[c];
    return sqrt(sum);
}

/* AdamW over all parameters, those without decay apart. */
static void cmha__trainer_update(cmha_trainer *trainer, double grad_scale) {
    const cmha_trainer_config *c = &trainer->config;
    cmha_model *model = trainer->model;
    cmha_adamw_args args;
    args.lr = trainer->lr;
    args.beta1 = c->beta1;
    args.beta2 = c->beta2;
    args.eps = c->adam_eps;
    args.grad_scale = grad_scale;
    args.t = trainer->step + 1;
    for (size_t i = 0; i < model->n_parameters; i++) {
        const cmha_parameter *p = &model->parameters[i];
        size_t at = (size_t)(p->tensor.data - model->data);
        args.weight_decay = p->decay ? c->weight_decay : 0;
        CMHA__FOR_CHUNKS(p->tensor.size > 16384 ? model->context->threads : 1, p->tensor.size, lo, hi) {
            cmha_adamw(&args, hi - lo, p->tensor.data + lo, p->tensor.grad + lo, trainer->moments + at + lo,
                       trainer->moments + model->size + at + lo);
        }
    }
}

/* Adds the gradients of `accumulate` batches. */
static cmha_status cmha__trainer_gradient(cmha_trainer *trainer, const cmha_tokens *tokens, double *loss) {
    const cmha_trainer_config *c = &trainer->config;
    cmha_batch batch = cmha__trainer_batch(trainer, c->batch, c->length);
    cmha_model_zero_grad(trainer->model);
    *loss = 0;
    for (size_t part = 0; part < c->accumulate; part++) {
        uint64_t draw = (uint64_t)trainer->step * c->accumulate + part;
        double mean = 0;
        cmha_status status;
        for (size_t row = 0; row < c->batch; row++) {
            cmha_rng rng = cmha_rng_make(trainer->seed, 0x6261746368ull + draw * c->batch + row);
            size_t start = (size_t)cmha_rng_below(&rng, tokens->count - c->length);
            cmha__fill_row(trainer, tokens, start, c->length, 0x6d61736bull + draw * c->batch + row, trainer->ids + row * c->length,
                           trainer->ids + (c->batch + row) * c->length);
        }
        status = cmha_model_gradient(trainer->model, &batch, 1 / (double)c->accumulate,
                                     cmha__mix(trainer->seed ^ cmha__mix(draw + 1)), &mean);
        *loss += mean / (double)c->accumulate;
        if (status) return status;
    }
    return CMHA_OK;
}

/* CRAT eq 22: the parts of complex parameters clipped apart; a real parameter has no imaginary part. */
static void cmha__clip_components(const cmha_trainer *trainer) {
    const cmha_model *model = trainer->model;
    cmha_clip_mode mode = (cmha_clip_mode)(trainer->config.clip_mode - 1);
    cmha_real limit = (cmha_real)trainer->config.clip;
    double squares[2] = {0, 0};
    for (size_t sweep = mode == CMHA_CLIP_GLOBAL ? 0 : 1; sweep < 2; sweep++)
        for (size_t i = 0; i < model->n_parameters; i++) {
            const cmha_parameter *p = &model->parameters[i];
            size_t parts = p->is_complex ? 2 : 1, n = p->tensor.size / parts;
            for (size_t part = 0; part < parts; part++) {
                cmha_real *g = p->tensor.grad + part * n;
                if (!sweep) squares[part] += cmha_sum_squares(g, n);
                else cmha__clip_array(mode, limit, cmha__clip_factor(squares[part], limit), n, g);
            }
        }
}

/* The second half of a step: the norm, the clipping and the update. */
static cmha_status cmha__trainer_finish(cmha_trainer *trainer, cmha_status status) {
    const cmha_trainer_config *c = &trainer->config;
    cmha_model *model = trainer->model;
    double *partial;
    if (!status) {
        partial = (double *)cmha_tape_alloc(&model->tape, (size_t)model->context->threads * sizeof *partial);
        if (!partial) return model->tape.status;
        trainer->grad_norm = cmha__grad_norm(model, partial);
        if (!(trainer->grad_norm <= (double)FLT_MAX))
            status = cmha__fail(model->context, CMHA_ERR_NOT_FINITE, "step: the norm of the gradient is %g", trainer->grad_norm);
    }
    if (status) {
        if (status == CMHA_ERR_NOT_FINITE) trainer->step++;
        return status;
    }
    trainer->lr = cmha_learning_rate((cmha_schedule)c->schedule, c->lr, c->min_lr, (size_t)(c->warmup * (double)c->steps + 0.5),
                                     c->steps, trainer->step + 1);
    if (c->clip > 0 && c->clip_mode != CMHA_CLIP_WHOLE) cmha__clip_components(trainer);
    cmha__trainer_update(trainer, c->clip > 0 && c->clip_mode == CMHA_CLIP_WHOLE && trainer->grad_norm > c->clip
                                      ? c->clip / trainer->grad_norm
                                      : 1);
    trainer->step++;
    return CMHA_OK;
}

CMHA_DEF cmha_status cmha_trainer_step(cmha_trainer *trainer, const cmha_tokens *tokens, double *loss) {
    const cmha_trainer_config *c;
    double mean = 0;
    cmha_status status;
    if (!cmha__trainer_open(trainer)) return CMHA_ERR_STATE;
    status = cmha__check_stream(trainer, "step", tokens);
    if (status) return status;
    c = &trainer->config;
    if (tokens->count <= c->length)
        return cmha__fail(trainer->model->context, CMHA_ERR_ARGUMENT, "step: %zu tokens are too few for sequences of %zu",
                          tokens->count, c->length);
    status = cmha__trainer_gradient(trainer, tokens, &mean);
    if (loss) *loss = mean;
    return cmha__trainer_finish(trainer, status);
}

CMHA_DEF cmha_status cmha_trainer_fit(cmha_trainer *trainer, const cmha_batch *batch, double *loss) {
    double mean = 0;
    cmha_status status;
    if (!cmha__trainer_open(trainer)) return CMHA_ERR_STATE;
    cmha_model_zero_grad(trainer->model);
    status = cmha_model_gradient(trainer->model, batch, 1, cmha__mix(trainer->seed ^ cmha__mix((uint64_t)trainer->step + 1)),
                                 &mean);
    if (loss) *loss = mean;
    return cmha__trainer_finish(trainer, status);
}

CMHA_DEF cmha_status cmha_trainer_apply(cmha_trainer *trainer, double *grad_norm) {
    cmha_status status;
    if (!cmha__trainer_open(trainer)) return CMHA_ERR_STATE;
    cmha_tape_reset(&trainer->model->tape); /* whose memory the norm takes */
    status = cmha__trainer_finish(trainer, CMHA_OK);
    cmha_model_zero_grad(trainer->model);
    if (grad_norm) *grad_norm = trainer->grad_norm;
    return status;
}

CMHA_DEF cmha_status cmha_trainer_evaluate(cmha_trainer *trainer, const cmha_tokens *tokens, double *loss) {
    const cmha_trainer_config *c;
    size_t total, done = 0, counted = 0;
    double sum = 0;
    cmha_status status;
    if (!cmha__trainer_open(trainer)) return CMHA_ERR_STATE;
    if (!loss) return cmha__fail(trainer->context, CMHA_ERR_ARGUMENT, "evaluate: no result");
    status = cmha__check_stream(trainer, "evaluate", tokens);
    if (status) return status;
    c = &trainer->config;
    if (tokens->count < 2)
        return cmha__fail(trainer->model->context, CMHA_ERR_ARGUMENT, "evaluate: %zu tokens are too few", tokens->count);
    total = tokens->count - 1 < c->eval_tokens ? tokens->count - 1 : c->eval_tokens;
    while (done < total) {
        size_t length = total - done < c->length ? total - done : c->length, rows = (total - done) / length;
        cmha_batch batch;
        double mean = 0;
        size_t targets = 0;
        if (rows > c->batch) rows = c->batch;
        batch = cmha__trainer_batch(trainer, rows, length);
        for (size_t row = 0; row < rows; row++)
            cmha__fill_row(trainer, tokens, done + row * length, length, done + row * length, trainer->ids + row * length,
                           trainer->ids + (rows + row) * length);
        status = cmha_model_loss(trainer->model, &batch, &mean);
        if (status) return status;
        for (size_t i = 0; i < rows * length; i++) targets += batch.targets[i] != -1;
        sum += mean * (double)targets;
        counted += targets;
        done += rows * length;
    }
    *loss = counted ? sum / (double)counted : 0;
    return CMHA_OK;
}

CMHA_DEF void cmha_trainer_split(const cmha_trainer *trainer, const cmha_tokens *all, cmha_tokens *train, cmha_tokens *held_out) {
    size_t count = all ? all->count : 0, cut = count;
    if (trainer) cut -= (size_t)((double)count * trainer->config.held_out);
    if (train) *train = cmha_tokens_part(all, 0, cut);
    if (held_out) *held_out = cmha_tokens_part(all, cut, count);
}

/* ===================================================== Inference ====================================================== */

/* ---- Packed weights ---- */

/* Declares the matrices: a first pass counts them, a second one places them in the memory. */
typedef struct cmha__packer {
    cmha_quantised *q;
    size_t n, words, scales;
    int overflow;
} cmha__packer;

static void cmha__pack_declare(cmha__packer *b, const cmha_tensor *t, int complex_form) {
    cmha_packed *p;
    size_t I, O, words;
    if (!t || t->rank < (complex_form ? 3 : 2) || !t->size) return; /* a literal Möbius projection is a vector */
    I = t->shape[t->rank - 1], O = t->size / I;
    if (!cmha__mul(cmha__groups(O) * CMHA__GROUP, cmha__blocks(I), &words) || !cmha__mul(words, 32, &words) ||
        !cmha__sum(b->words, cmha_packed_words(b->q->storage, O, I), &b->words) ||
        !cmha__sum(b->scales, cmha_packed_scales(b->q->storage, O), &b->scales))
        b->overflow = 1;
    if (b->q->matrices && !b->overflow) {
        p = &b->q->matrices[b->n];
        /* Insert it by its address: they come nearly in order. */
        for (; p > b->q->matrices && p[-1].source > t->data; p--) *p = p[-1];
        p->storage = b->q->storage, p->O = O, p->I = I, p->source = t->data;
    }
    b->n++;
}

static void cmha__pack_block(cmha__packer *b, const cmha_block *k) {
    int g, part, experts = k->router_weight != NULL; /* stay floats: their op has kernels of its own */
    cmha__pack_declare(b, k->qkv_weight, 0);
    cmha__pack_declare(b, k->wo_weight, 0);
    cmha__pack_declare(b, experts ? NULL : k->w1_weight, 0);
    cmha__pack_declare(b, experts ? NULL : k->w2_weight, 0);
    cmha__pack_declare(b, k->zq_weight, 1);
    cmha__pack_declare(b, k->zk_weight, 1);
    cmha__pack_declare(b, k->zv_weight, k->zv_weight && k->zv_weight->shape[0] == 2); /* real in CoPE */
    cmha__pack_declare(b, k->divisor_weight, 1);
    cmha__pack_declare(b, k->imag_wo_weight, 0);
    cmha__pack_declare(b, k->imag_w1_weight, 0);
    cmha__pack_declare(b, k->imag_w2_weight, 0);
    for (g = 0; g < 3; g++) {
        cmha__pack_declare(b, k->group[g].view, 0);
        for (part = 0; part < 3; part++) cmha__pack_declare(b, k->group[g].u[part], 1);
    }
    cmha__pack_declare(b, k->wo_u, 1);
    cmha__pack_declare(b, k->irw.wm, 1);
    cmha__pack_declare(b, k->irw.wv, 1);
    cmha__pack_declare(b, k->irw.wg, 0);
}

static void cmha__pack_all(cmha__packer *b) {
    const cmha_model *model = b->q->model;
    b->n = b->words = b->scales = 0;
    cmha__pack_declare(b, model->head_weight ? model->head_weight : model->token_weight, 0);
    cmha__pack_declare(b, model->state_weight, 0);
    cmha__pack_declare(b, model->theta_weight, 0);
    for (size_t i = 0; i < model->config.n_layers; i++) cmha__pack_block(b, &model->blocks[i]);
}

/* Gives the matrices their part of the memory and packs them. */
static void cmha__pack_matrices(cmha_quantised *q, uint32_t *words, cmha_real *scales) {
    int threads = q->context->threads;
    for (size_t i = 0; i < q->n_matrices; i++) {
        cmha_packed *p = &q->matrices[i];
        p->words = words, p->scales = q->storage == CMHA_STORAGE_INT8 ? scales : NULL;
        words += cmha_packed_words(q->storage, p->O, p->I);
        scales += cmha_packed_scales(q->storage, p->O);
        q->saved += p->O * p->I * sizeof(cmha_real);
    }
    CMHA__FOR_CHUNKS(threads, q->n_matrices, lo, hi) {
        for (size_t j = lo; j < hi; j++) cmha_pack(&q->matrices[j], q->matrices[j].source);
    }
}

CMHA_DEF void cmha_quantised_close(cmha_quantised *q) {
    if (!q || !q->context) return;
    cmha__give(q->context, q->memory, q->bytes);
    memset(q, 0, sizeof *q);
}

CMHA_DEF cmha_status cmha_quantise(cmha_quantised *q, const cmha_model *model, cmha_storage storage) {
    cmha__packer b;
    size_t list, words, scales, bytes;
    if (!q) return CMHA_ERR_ARGUMENT;
    memset(q, 0, sizeof *q);
    if (!cmha__model_is_open(model)) return CMHA_ERR_STATE;
    if (storage != CMHA_STORAGE_BF16 && storage != CMHA_STORAGE_INT8)
        return cmha__fail(model->context, CMHA_ERR_ARGUMENT, "quantise: the storage must be BF16 or INT8");
    memset(&b, 0, sizeof b);
    b.q = q;
    q->model = model, q->opening = model->opening;
    q->storage = storage;
    cmha__pack_all(&b);
    list = b.n, q->n_matrices = b.n;
    if (b.overflow || !cmha__mul(list, sizeof *q->matrices, &list) || !cmha__mul(b.words, sizeof(uint32_t), &words) ||
        !cmha__mul(b.scales, sizeof(cmha_real), &scales) || !cmha__sum(list, words, &bytes) || !cmha__sum(bytes, scales, &bytes) ||
        !cmha__sum(bytes, 128, &bytes)) {
        memset(q, 0, sizeof *q);
        return cmha__fail(model->context, CMHA_ERR_OVERFLOW, "quantise: the sizes overflow");
    }
    q->memory = cmha__take(model->context, bytes);
    if (!q->memory) {
        memset(q, 0, sizeof *q);
        return cmha__fail(model->context, CMHA_ERR_MEMORY, "quantise: out of memory for %zu bytes", bytes);
    }
    q->context = model->context;
    q->bytes = bytes;
    q->matrices = (cmha_packed *)q->memory;
    memset(q->matrices, 0, list);
    cmha__pack_all(&b);
    list = cmha__round64((uintptr_t)q->memory + list) - (uintptr_t)q->memory; /* so that a block of weights is a line of cache */
    cmha__pack_matrices(q, (uint32_t *)(void *)((char *)q->memory + list), (cmha_real *)(void *)((char *)q->memory + list + words));
    return CMHA_OK;
}

/* ---- Cache ---- */

CMHA_DEF void cmha_cache_close(cmha_cache *cache) {
    cmha_context *context;
    if (!cache || !cache->context) return;
    context = cache->context;
    cmha_tape_close(&cache->tape);
    cmha__give(context, cache->ids, 2 * cache->batch * cache->capacity * sizeof *cache->ids);
    cmha__give(context, cache->memory, cache->size * sizeof *cache->memory);
    cmha__give(context, cache->slots, cache->n_slots * sizeof *cache->slots);
    memset(cache, 0, sizeof *cache);
}

CMHA_DEF void cmha_cache_reset(cmha_cache *cache) {
    if (cache) cache->length = cache->first = 0;
}

/* Open, its model and its weights as well? */
static int cmha__cache_open(const cmha_cache *cache) {
    const cmha_quantised *weights = cache ? cache->tape.weights : NULL;
    return cache && cmha__is_opening(cache->model, cache->context, cache->opening) &&
           (!weights || weights->opening == cache->opening);
}

/* Numbers from one token's values to the next. */
static size_t cmha__value_row(const cmha_cache *cache, const cmha_slot *slot) {
    return cache->storage == CMHA_STORAGE_BF16 ? (slot->value_width + 31) / 32 * 32 : slot->value_width;
}

/* Places the next slot, if there is an array for it; 0 when a size overflows. */
static int cmha__place_slot(cmha_cache *cache, const cmha_slot *like) {
    size_t tokens = cmha__tiles(cache->capacity) * CMHA__TILE, keys, values;
    cmha_slot slot = *like;
    if (!cmha__mul(tokens, cache->batch, &tokens) || !cmha__mul(tokens, slot.key_heads * slot.key_width, &keys) ||
        !cmha__mul(tokens, slot.kv_heads * cmha__value_row(cache, &slot), &values))
        return 0;
    if (cache->storage == CMHA_STORAGE_BF16) keys = cmha__reals_for(keys / 2 * 4), values = cmha__reals_for(values / 2 * 4);
    slot.keys = cache->size;
    if (slot.state) keys = slot.state, values = 0, cache->has_state = 1;
    if (!cmha__sum(cache->size, keys, &slot.values) || !cmha__sum(slot.values, values, &cache->size)) return 0;
    if (cache->slots) cache->slots[cache->n_slots] = slot;
    cache->n_slots++;
    return 1;
}

static int cmha__place_softmax(cmha_cache *cache, const cmha_attention_args *a) {
    int own = cmha__own_keys((int)a->kind, (int)a->share, cache->model->n_omega > 1);
    cmha_slot slot;
    memset(&slot, 0, sizeof slot);
    slot.key_heads = own ? a->heads : a->kv_heads;
    slot.kv_heads = a->kv_heads;
    slot.key_width = cmha__key_width(a);
    slot.value_width = cmha__value_width(a);
    return cmha__place_slot(cache, &slot);
}

/* The attention calls of a layer, in the order in which its block makes them. */
static int cmha__place_layer(cmha_cache *cache, size_t layer) {
    const cmha_model *model = cache->model;
    const cmha_model_config *c = &model->config;
    cmha_family family = cmha__layer_family(c, layer);
    cmha_attention_args a;
    cmha_linear_args linear;
    int ok = 1;
    for (int g = 0; family != CMHA_FAMILY_REAL && g < (family == CMHA_FAMILY_CRAT ? 3 : 1); g++) {
        if (family == CMHA_FAMILY_CRAT ? !cmha__group_heads(c, g) : family == CMHA_FAMILY_MOBIUS && !c->mobius_heads) continue;
        if (cmha__linear_args_of(model, layer, g, &linear)) {
            cmha_slot slot;
            memset(&slot, 0, sizeof slot);
            linear.batch = 1;
            ok = ok && cmha__mul(cmha_linear_attention_state(&linear), cache->batch, &slot.state) && cmha__place_slot(cache, &slot);
        } else {
            cmha__complex_args(model, layer, g, &a);
            ok = ok && cmha__place_softmax(cache, &a);
        }
    }
    if (!cmha__plain_heads(c, layer)) return ok;
    cmha__plain_args(model, layer, &a);
    return ok && cmha__place_softmax(cache, &a);
}

static int cmha__place_all(cmha_cache *cache) {
    int ok = 1;
    cache->n_slots = cache->size = 0;
    for (size_t layer = 0; ok && layer < cache->model->config.n_layers; layer++) ok = cmha__place_layer(cache, layer);
    return ok;
}

CMHA_DEF cmha_status cmha_cache_init(cmha_cache *cache, cmha_model *model, size_t batch, size_t capacity, int slide) {
    return cmha_cache_init_with(cache, model, batch, capacity, slide, NULL);
}

static cmha_status cmha__check_options(cmha_context *context, const cmha_model *model, const cmha_cache_options *o) {
    if (o->storage != CMHA_STORAGE_FLOAT && o->storage != CMHA_STORAGE_BF16)
        return cmha__fail(context, CMHA_ERR_ARGUMENT, "cache: keys and values are stored as FLOAT or BF16");
    if (o->weights && (o->weights->model != model || o->weights->opening != model->opening))
        return cmha__fail(context, CMHA_ERR_STATE, "cache: the quantised weights are closed, or those of another model");
    return CMHA_OK;
}

CMHA_DEF cmha_status cmha_cache_init_with(cmha_cache *cache, cmha_model *model, size_t batch, size_t capacity, int slide,
                                          const cmha_cache_options *options) {
    const cmha_model_config *c;
    cmha_context *context;
    cmha_status wrong = CMHA_OK;
    size_t slots, bytes, ids;
    if (!cache) return CMHA_ERR_ARGUMENT;
    memset(cache, 0, sizeof *cache);
    if (!cmha__model_is_open(model)) return CMHA_ERR_STATE;
    context = model->context;
    if (options) wrong = cmha__check_options(context, model, options);
    if (wrong) return wrong;
    if (!batch || !capacity)
        return cmha__fail(context, CMHA_ERR_ARGUMENT, "cache: batch %zu and capacity %zu must be positive", batch, capacity);
    c = &model->config;
    if (model->position_weight && capacity > c->max_positions) capacity = c->max_positions;
    if (!c->causal) return cmha__fail(context, CMHA_ERR_STATE, "cache: a bidirectional model cannot continue a sequence");
    cache->context = context;
    cache->model = model, cache->opening = model->opening;
    cache->batch = batch;
    cache->capacity = capacity;
    cache->slide = slide;
    cache->storage = options ? options->storage : CMHA_STORAGE_FLOAT;
    if (!cmha__sum(capacity, CMHA__TILE - 1, &slots) || !cmha__place_all(cache) ||
        !cmha__mul(cache->size, sizeof(cmha_real), &bytes) || !cmha__mul(batch, capacity, &ids) ||
        !cmha__mul(ids, 2 * sizeof *cache->ids, &ids)) {
        memset(cache, 0, sizeof *cache);
        return cmha__fail(context, CMHA_ERR_OVERFLOW, "cache: %zu sequences of %zu tokens overflow a size", batch, capacity);
    }
    cache->slots = (cmha_slot *)cmha__take(context, cache->n_slots * sizeof *cache->slots);
    cache->memory = cache->slots ? (cmha_real *)cmha__take(context, bytes) : NULL;
    cache->ids = cache->memory ? (int32_t *)cmha__take(context, ids) : NULL;
    if (!cache->ids) {
        cmha_cache_close(cache);
        return cmha__fail(context, CMHA_ERR_MEMORY, "cache: out of memory for %zu bytes", bytes);
    }
    cmha__place_all(cache);
    memset(cache->memory, 0, bytes);
    cmha_tape_init(&cache->tape, context, 0);
    cache->tape.weights = options ? options->weights : NULL;
    return CMHA_OK;
}

/* Where a head's keys and values of one sequence lie. */
static void *cmha__cache_part(const cmha_cache *cache, size_t place, size_t numbers) {
    if (cache->storage == CMHA_STORAGE_BF16) return (uint32_t *)(void *)(cache->memory + place) + numbers / 2;
    return cache->memory + place + numbers;
}

static void *cmha__cache_keys(const cmha_cache *cache, const cmha_slot *slot, size_t b, size_t head) {
    size_t tokens = cmha__tiles(cache->capacity) * CMHA__TILE;
    return cmha__cache_part(cache, slot->keys, (b * slot->key_heads + head) * tokens * slot->key_width);
}

static void *cmha__cache_values(const cmha_cache *cache, const cmha_slot *slot, size_t b, size_t kv) {
    size_t tokens = cmha__tiles(cache->capacity) * CMHA__TILE;
    return cmha__cache_part(cache, slot->values, (b * slot->kv_heads + kv) * tokens * cmha__value_row(cache, slot));
}

/* What one thread needs beside cmha__unit: the scores of one query, and of a BF16 cache a tile of keys on their way in and a head's
   keys and values as numbers again. */
typedef struct cmha__reader {
    cmha_real *scores, *tile, *keys, *values;
} cmha__reader;

static size_t cmha__deal_reader(const cmha_cache *cache, const cmha_slot *slot, cmha_real *base, cmha__reader *r) {
    size_t tokens = cmha__tiles(cache->capacity) * CMHA__TILE, used = 0;
    int halves = cache->storage == CMHA_STORAGE_BF16;
    r->scores = cmha__deal(base, &used, tokens);
    r->tile = cmha__deal(base, &used, halves ? CMHA__TILE * slot->key_width : 0);
    r->keys = cmha__deal(base, &used, halves ? tokens * slot->key_width : 0);
    r->values = cmha__deal(base, &used, halves ? tokens * cmha__value_row(cache, slot) : 0);
    return used;
}

/* New values into a head's part of the cache. */
static void cmha__store_values(const cmha_cache *cache, const cmha_slot *slot, const cmha_attention_args *a, cmha__rows_of v,
                               void *values, cmha_real *row) {
    size_t dv = slot->value_width, width = cmha__value_row(cache, slot), t, i;
    for (t = 0; t < a->n_q; t++) {
        size_t at = (cache->length + t) * width;
        cmha_real *to = cache->storage == CMHA_STORAGE_BF16 ? row : (cmha_real *)values + at;
        if (dv > a->d_v) cmha__pack(v.data + t * v.ld, v.ld, v.imag, 1, a->d_v, to);
        else if (dv) memcpy(to, v.data + t * v.ld, dv * sizeof *to);
        for (i = 0; to == row && i < dv; i++) cmha__half_put((uint32_t *)values + at / 2, i, row[i]);
    }
}

/* New keys into a head's part of the cache, as features; into a BF16 cache by way of a tile of numbers. */
static void cmha__store_keys(const cmha_cache *cache, const cmha_slot *slot, const cmha_attention_args *a, cmha__feature f,
                             cmha__rows_of k, void *keys, const cmha__unit *u, const cmha__reader *r) {
    size_t width = slot->key_width, n = a->n_q, count;
    if (cache->storage != CMHA_STORAGE_BF16) {
        cmha__write_keys(a, &f, k, n, cache->length, (cmha_real *)keys, u->rows);
        return;
    }
    for (size_t t = 0; t < n; t += count, k.data += count * k.ld, f.first_k += count) {
        size_t at = (cache->length + t) % CMHA__TILE;
        uint32_t *words = (uint32_t *)keys + (cache->length + t - at) * width / 2;
        count = n - t < CMHA__TILE - at ? n - t : CMHA__TILE - at;
        cmha__write_keys(a, &f, k, count, at, r->tile, u->rows);
        for (size_t i = 0; i < width; i++)
            for (size_t c = at; c < at + count; c++) cmha__half_put(words + i * CMHA__TILE / 2, c, r->tile[i * CMHA__TILE + c]);
    }
}

/* ---- One query: keys and values stream through once ---- */

/* A head's keys and values as they lie. */
typedef struct cmha__past {
    cmha_storage storage;
    const void *keys, *values;
    size_t row; /* numbers from one token's values to the next */
} cmha__past;

#ifdef CMHA__STREAMS
enum { CMHA__PART = CMHA__VECTOR_BYTES > 16 ? 64 : 32 }; /* columns whose sums registers can hold */

/* Numbers i, i + 1, ... of a row; i + 32 would have another word, but not another half. */
CMHA__INSIDE cmha__floats cmha__lanes_at(cmha_storage storage, const void *row, int i) {
    cmha__words w;
    if (storage == CMHA_STORAGE_FLOAT) return cmha__floats_at((const float *)row + i);
    w = cmha__words_at((const uint32_t *)row + i / 32 * 16 + i % 16);
    return (cmha__floats)(i / 16 % 2 ? w & 0xffff0000u : w << 16);
}

/* sum [columns] = the sum over n rows, `stride` bytes apart, of factor times row, from the row's beginning on. */
CMHA__INSIDE void cmha__weighted_rows(cmha_storage storage, int columns, const float *factor, size_t n, const unsigned char *rows,
                                      size_t stride, float *sum) {
    CMHA__FUSE
    cmha__floats lanes[CMHA__PART / CMHA__STREAM_LANES];
    int bytes = storage == CMHA_STORAGE_FLOAT ? columns * 4 : columns * 2;
    memset(lanes, 0, sizeof lanes);
    for (size_t r = 0; r < n; r++, rows += stride) {
        for (int line = 0; line < bytes; line += 64) __builtin_prefetch(rows + line + 4096);
        for (int i = 0; i < columns; i += CMHA__STREAM_LANES)
            lanes[i / CMHA__STREAM_LANES] = lanes[i / CMHA__STREAM_LANES] + factor[r] * cmha__lanes_at(storage, rows, i);
    }
    memcpy(sum, lanes, (size_t)columns * sizeof *sum);
}

/* y [width] = the sum over n rows of factor times row. A row of floats ends with it, one of BF16 with a multiple of 32. */
CMHA__INSIDE void cmha__mix_rows(cmha_storage storage, const float *factor, size_t n, const unsigned char *rows, size_t stride,
                                 size_t width, float *y) {
    size_t size = storage == CMHA_STORAGE_FLOAT ? 4 : 2, c;
    float last[32];
    for (c = 0; c + CMHA__PART <= width; c += CMHA__PART)
        cmha__weighted_rows(storage, CMHA__PART, factor, n, rows + c * size, stride, y + c);
    for (; c + 32 <= width; c += 32) cmha__weighted_rows(storage, 32, factor, n, rows + c * size, stride, y + c);
    if (c == width) return;
    if (storage == CMHA_STORAGE_BF16) {
        cmha__weighted_rows(storage, 32, factor, n, rows + c * size, stride, last);
        memcpy(y + c, last, (width - c) * sizeof *y);
        return;
    }
    for (size_t i = c; i < width; i++) y[i] = 0;
    for (size_t r = 0; r < n; r++)
        for (size_t i = c; i < width; i++) y[i] += factor[r] * ((const float *)(const void *)(rows + r * stride))[i];
}

CMHA__FUSED static void cmha__mix_floats(const float *factor, size_t n, const void *rows, size_t row, size_t width, float *y) {
    cmha__mix_rows(CMHA_STORAGE_FLOAT, factor, n, (const unsigned char *)rows, row * 4, width, y);
}

CMHA__FUSED static void cmha__mix_halves(const float *factor, size_t n, const void *rows, size_t row, size_t width, float *y) {
    cmha__mix_rows(CMHA_STORAGE_BF16, factor, n, (const unsigned char *)rows, row * 2, width, y);
}

/* y [dv] of the head's one query. 0: its scores need more care (see cmha__forward_lost), y then holds rubbish. */
static int cmha__stream_head(const cmha__head *h, const cmha__past *past, cmha_real *S, cmha_real *y) {
    void (*mix)(const float *, size_t, const void *, size_t, size_t, float *) =
        past->storage == CMHA_STORAGE_BF16 ? cmha__mix_halves : cmha__mix_floats;
    size_t n = h->args->n_k, size = past->storage == CMHA_STORAGE_BF16 ? 2 : 4, begin, end, from, count;
    cmha_real top, total;
    cmha__visible(h->args, 0, &begin, &end);
    from = begin / CMHA__TILE * CMHA__TILE, count = cmha__tiles(n - from) * CMHA__TILE;
    for (size_t j = 0; j < count; j += CMHA__TILE)
        mix(h->q, h->dk, (const unsigned char *)past->keys + (from + j) * h->dk * size, CMHA__TILE, CMHA__TILE, S + j);
    for (size_t j = 0; j < count; j++) S[j] *= h->args->scale;
    for (size_t j = 0; h->slope > 0 && j < count; j++) S[j] -= h->slope * (cmha_real)((ptrdiff_t)(n - 1 - from) - (ptrdiff_t)j);
    for (size_t j = 0; j < begin - from; j++) S[j] = -(cmha_real)INFINITY;
    for (size_t j = end - from; j < count; j++) S[j] = -(cmha_real)INFINITY;
    top = cmha__largest(S, count);
    total = cmha__exp_shifted(S, count, top > -(cmha_real)INFINITY ? top : 0);
    if (!(total > 0)) return 0;
    mix(S + (begin - from), end - begin, (const unsigned char *)past->values + begin * past->row * size, past->row, h->dv, y);
    for (size_t i = 0; i < h->dv; i++) y[i] *= 1 / total;
    return 1;
}
#else
static int cmha__stream_head(const cmha__head *h, const cmha__past *past, cmha_real *S, cmha_real *y) {
    (void)h, (void)past, (void)S, (void)y;
    return 0;
}
#endif

/* cmha__forward_terms of one query, where its scores are products and in range; else 0. */
static int cmha__stream_terms(cmha__head *h, const cmha__unit *u, const cmha__feature *f, cmha__rows_of q, cmha__rows_of y,
                              const cmha__past *past, cmha_real *scores) {
    const cmha_attention_args *a = h->args;
    int count;
    const cmha__term *terms = cmha__terms(a, &count);
    if (a->n_q != 1 || !h->dv || h->mask || (cmha__is_complex(a) && a->softmax == CMHA_SOFTMAX_SCORE)) return 0;
    if (h->dv == a->d_v) {
        cmha__set_queries(h, u, f, q, terms);
        return cmha__stream_head(h, past, scores, y.data);
    }
    memset(y.data, 0, a->d_v * sizeof *y.data);
    memset(y.data + y.imag, 0, a->d_v * sizeof *y.data);
    for (int t = 0; t < count; t++) {
        cmha__set_queries(h, u, f, q, &terms[t]);
        if (!cmha__stream_head(h, past, scores, u->out)) return 0;
        cmha__apply(terms[t].mix, 0, u->out, 1, a->d_v, u->out, 0);
        cmha__add_packed(u->out, 1, a->d_v, y.data, y.ld, y.imag);
    }
    return 1;
}

/* The head's keys and values as the core wants them. */
static void cmha__set_past(cmha__head *h, const cmha__past *past, const cmha__reader *r) {
    size_t n = h->args->n_k;
    h->keys = (const cmha_real *)past->keys;
    h->v = (const cmha_real *)past->values;
    h->ldv = past->row;
    if (past->storage != CMHA_STORAGE_BF16) return;
    cmha__half_numbers((const uint32_t *)past->keys, cmha__tiles(n) * h->dk * 2, r->keys);
    for (size_t t = 0; t < n; t++)
        cmha__half_numbers((const uint32_t *)past->values + t * past->row / 2, past->row / 32, r->values + t * past->row);
    h->keys = r->keys;
    h->v = r->values;
}

/* One (sequence, kv head): new keys and values into the cache, then the group's queries against all of it. */
static void cmha__cached_unit(const cmha_cache *cache, const cmha_slot *slot, const cmha_attention_args *a, const cmha_heads *view,
                              cmha_heads y, size_t b, size_t kv, const cmha__unit *u, const cmha__reader *r) {
    size_t group = a->heads / a->kv_heads;
    cmha__past past;
    int own = slot->key_heads == a->heads;
    past.storage = cache->storage;
    past.row = cmha__value_row(cache, slot);
    past.values = cmha__cache_values(cache, slot, b, kv);
    cmha__store_values(cache, slot, a, cmha__rows_at(view[2], b, kv), (void *)(uintptr_t)past.values, u->work);
    for (size_t g = 0; g < group; g++) {
        size_t head = kv * group + g;
        cmha__rows_of q = cmha__rows_at(view[0], b, head);
        void *keys = cmha__cache_keys(cache, slot, b, own ? head : kv);
        cmha__feature f = cmha__feature_of(a, head);
        cmha__head h;
        f.first_q = f.first_k = 0; /* the rotation table covers the new tokens only */
        cmha__set_head(&h, a, u, b, head);
        if (own || g == 0) cmha__store_keys(cache, slot, a, f, cmha__rows_at(view[1], b, kv), keys, u, r);
        past.keys = keys;
        if (cmha__stream_terms(&h, u, &f, q, cmha__rows_at(y, b, head), &past, r->scores)) continue;
        cmha__set_past(&h, &past, r);
        if (cmha__has_peaks(a)) {
            int count;
            cmha__set_queries(&h, u, &f, q, cmha__terms(a, &count));
            cmha__find_peaks(&h, u->peaks, u->places);
            h.peaks = u->peaks;
        }
        cmha__forward_terms(&h, u, &f, q, cmha__rows_at(y, b, head), NULL);
    }
}

static cmha_tensor *cmha__cached_attention(cmha__pass *pass, const cmha_attention_args *args, cmha_tensor *q, cmha_tensor *k,
                                           cmha_tensor *v) {
    const cmha_slot *slot = &pass->cache->slots[pass->slot++];
    cmha__attention_saved s;
    cmha_attention_args *a = &s.args;
    cmha__unit none;
    cmha__reader nothing;
    cmha_heads view[3];
    size_t shape[3], own, more;
    cmha_tensor *y;
    cmha_real *scratch;
    int threads;
    if (!q || (!k != !v)) return NULL;
    s.args = *args;
    s.row = k ? 0 : cmha__last(q);
    cmha__views(&s, q->data, k ? k->data : NULL, v ? v->data : NULL, view); /* of the new tokens alone */
    a->n_k = pass->cache->length + pass->N;
    a->dropout = 0;
    threads = cmha__attention_threads(a);
    shape[0] = pass->B, shape[1] = pass->N, shape[2] = a->heads * cmha__value_width(a);
    y = cmha__result(pass->tape, 3, shape);
    own = cmha__deal_unit(a, CMHA__CACHED, NULL, &none);
    more = cmha__deal_reader(pass->cache, slot, NULL, &nothing);
    scratch = y ? cmha__reals(pass->tape, (own + more) * (size_t)threads) : NULL;
    if (!scratch || cmha__dry(pass->tape)) return scratch ? y : NULL;
    CMHA__FOR_CHUNKS(threads, a->batch * a->kv_heads, lo, hi) {
        cmha_real *part = scratch + (size_t)cmha__chunk * (own + more);
        cmha__unit u;
        cmha__reader r;
        cmha__deal_unit(a, CMHA__CACHED, part, &u);
        cmha__deal_reader(pass->cache, slot, part + own, &r);
        for (size_t unit = lo; unit < hi; unit++)
            cmha__cached_unit(pass->cache, slot, a, view, cmha__out_view(a, y->data), unit / a->kv_heads, unit % a->kv_heads, &u,
                              &r);
    }
    return y;
}

/* The same of linear attention: its state is all that is kept. */
static cmha_tensor *cmha__cached_linear(cmha__pass *pass, const cmha_linear_args *args, cmha_tensor *q, cmha_tensor *k,
                                        cmha_tensor *v) {
    const cmha_slot *slot = &pass->cache->slots[pass->slot++];
    cmha_real *state = pass->cache->memory + slot->keys;
    if (!pass->cache->length && !cmha__dry(pass->tape)) memset(state, 0, slot->state * sizeof *state);
    return cmha__linear_attention(pass->tape, args, q, k, v, state);
}

/* The last token's row of each sequence. */
static cmha_tensor *cmha__last_rows(cmha__pass *pass, const cmha_tensor *x) {
    size_t shape[2];
    cmha_tensor *y;
    shape[0] = pass->B;
    shape[1] = x ? cmha__last(x) : 0;
    y = x ? cmha__result(pass->tape, 2, shape) : NULL;
    for (size_t b = 0; y && !cmha__dry(pass->tape) && b < pass->B; b++)
        memcpy(y->data + b * shape[1], x->data + ((b + 1) * pass->N - 1) * shape[1], shape[1] * sizeof *y->data);
    return y;
}

/* A pass over n tokens of each sequence, ids [batch, n] -> logits [batch, vocabulary] of the last, or (wanted = 0) anything. */
static cmha_tensor *cmha__cache_pass(cmha_cache *cache, const int32_t *ids, size_t n, int wanted) {
    cmha__pass pass;
    cmha_batch batch;
    cmha_tensor *x;
    memset(&pass, 0, sizeof pass);
    memset(&batch, 0, sizeof batch);
    batch.ids = ids;
    pass.batch = &batch;
    pass.model = cache->model;
    pass.tape = &cache->tape;
    pass.cache = cache;
    pass.B = cache->batch;
    pass.N = n;
    pass.first = cache->length;
    x = cmha__model_body(&pass);
    return wanted ? cmha__vocabulary_head(cache->model, pass.tape, cmha__final_norm(&pass, cmha__last_rows(&pass, x))) : x;
}

/* The memory of a pass over up to n tokens, now, before any token is forgotten or any state moves on: what a pass needs depends on
   its own tokens alone, so a dry one tells. */
static cmha_status cmha__cache_reserve(cmha_cache *cache, size_t n) {
    cmha_cache dry = *cache;
    cmha_status status;
    if (n <= cache->ready) return CMHA_OK;
    cmha_tape_init(&dry.tape, cache->context, 0);
    dry.tape.memory.measuring = 1;
    dry.tape.weights = cache->tape.weights;
    dry.length = 0;
    cmha__cache_pass(&dry, cache->ids, n, 1);
    status = dry.tape.status;
    if (!status) status = cmha__arena_reserve(cache->context, &cache->tape.memory, dry.tape.memory.peak);
    if (!status) status = cmha__arena_reserve(cache->context, &cache->tape.records, dry.tape.records.peak);
    cmha_tape_close(&dry.tape);
    cache->ready = status ? 0 : n;
    return status;
}

/* n tokens of each sequence, rows `stride` apart, for which there is room and memory. */
static cmha_status cmha__cache_read(cmha_cache *cache, const int32_t *ids, size_t stride, size_t n, cmha_real *logits) {
    cmha_tensor *x;
    int32_t *staged = cache->ids + cache->batch * cache->capacity;
    for (size_t b = 0; b < cache->batch; b++) memcpy(staged + b * n, ids + b * stride, n * sizeof *ids);
    cmha_tape_reset(&cache->tape);
    x = cmha__cache_pass(cache, staged, n, logits != NULL);
    if (!x) return cache->tape.status;
    if (logits) memcpy(logits, x->data, x->size * sizeof *logits);
    for (size_t b = 0; b < cache->batch; b++) memcpy(cache->ids + b * cache->capacity + cache->length, staged + b * n, n * sizeof *ids);
    cache->length += n;
    return CMHA_OK;
}

/* How many of the tokens held are read again when n more make a full cache slide. */
static size_t cmha__cache_kept(const cmha_cache *cache, size_t n) {
    size_t keep = cache->capacity - cache->capacity / 4;
    return n < keep ? keep - n : 0;
}

/* Forgets the oldest tokens and reads the others again from position 0, so that three quarters are held once the n new ones are
   in. Keeping the old keys instead would be cheaper, but what they hold was computed from the tokens that are gone, and
   models that lose their first token that way fall apart. */
static cmha_status cmha__cache_slide(cmha_cache *cache, size_t n) {
    size_t old = cmha__cache_kept(cache, n), from = cache->length - old;
    cache->first += from;
    cache->length = 0;
    return old ? cmha__cache_read(cache, cache->ids + from, cache->capacity, old, NULL) : CMHA_OK;
}

/* Slides if need be, and reads the last n - skip tokens. */
static cmha_status cmha__cache_advance(cmha_cache *cache, const int32_t *ids, size_t n, size_t skip,
                                       int sliding, cmha_real *logits) {
    cmha_status status = sliding ? cmha__cache_slide(cache, n) : CMHA_OK;
    if (status) return status;
    cache->first += skip;
    return cmha__cache_read(cache, ids + skip, n, n - skip, logits);
}

/* The same with a copy to go back to. */
static cmha_status cmha__cache_attempt(cmha_cache *cache, const int32_t *ids, size_t n, size_t skip,
                                       int sliding, cmha_real *logits) {
    size_t numbers = cache->size * sizeof *cache->memory;
    size_t tokens = cache->batch * cache->capacity * sizeof *ids;
    size_t bytes = numbers + tokens, length = cache->length, first = cache->first;
    char *copy = (char *)cmha__take(cache->context, bytes);
    cmha_status status;
    if (!copy) return cmha__fail(cache->context, CMHA_ERR_MEMORY, "append: no memory for %zu bytes", bytes);
    memcpy(copy, cache->memory, numbers);
    memcpy(copy + numbers, cache->ids, tokens);
    status = cmha__cache_advance(cache, ids, n, skip, sliding, logits);
    if (status) {
        memcpy(cache->memory, copy, numbers);
        memcpy(cache->ids, copy + numbers, tokens);
        cache->length = length, cache->first = first;
    }
    cmha__give(cache->context, copy, bytes);
    return status;
}

CMHA_DEF cmha_status cmha_cache_append(cmha_cache *cache, const int32_t *ids, size_t n, cmha_real *logits) {
    cmha_model *model;
    cmha_status status;
    size_t keep, skip, most, total, bytes;
    int sliding;
    if (!cmha__cache_open(cache)) return CMHA_ERR_STATE;
    model = cache->model;
    if (!ids || !n) return cmha__fail(model->context, CMHA_ERR_ARGUMENT, "append: no tokens");
    if (n > cache->capacity - cache->length && !cache->slide) /* before any token is looked at: a wrong n has no tokens */
        return cmha__fail(model->context, CMHA_ERR_FULL, "cache: %zu tokens held of %zu, no room for %zu more", cache->length,
                          cache->capacity, n);
    if (!cmha__mul(cache->batch, n, &total) || !cmha__mul(total, sizeof *ids, &bytes))
        return cmha__fail(model->context, CMHA_ERR_OVERFLOW, "append: %zu tokens of %zu sequences overflow a size", n, cache->batch);
    cmha_tape_reset(&cache->tape);
    if (cmha__check_tokens(&cache->tape, ids, total, model->config.vocabulary, 0, 0)) return CMHA_ERR_TOKEN;
    sliding = n > cache->capacity - cache->length;
    keep = sliding ? cache->capacity - cmha__cache_kept(cache, n) : n; /* new tokens there is room for; of more, the end */
    skip = n > keep ? n - keep : 0;
    most = sliding && cmha__cache_kept(cache, n) > n - skip ? cmha__cache_kept(cache, n) : n - skip;
    status = cmha__cache_reserve(cache, most);
    if (status) return status;
    /* With its memory there, a pass fails in a search alone. New keys lie beyond those held, where nobody
       looks; but states have then moved on and what has slid is gone. */
    if (model->knowledge && (sliding || cache->has_state))
        return cmha__cache_attempt(cache, ids, n, skip, sliding, logits);
    return cmha__cache_advance(cache, ids, n, skip, sliding, logits);
}

/* ---- Sampling ---- */

typedef struct cmha__candidate {
    cmha_real p;
    int32_t id;
} cmha__candidate;

static int cmha__likelier(const cmha__candidate *a, const cmha__candidate *b) {
    return a->p > b->p || (a->p >= b->p && a->id < b->id);
}

/* Restores a heap, likeliest on top, below its node i. */
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

/* A token counts once however often it occurred. NaN becomes -Inf. */
static void cmha__penalise(const cmha_sampler_config *config, const cmha_real *logits, size_t V, const int32_t *recent,
                           size_t n_recent, cmha__candidate *c) {
    cmha_real penalty = (cmha_real)config->repetition_penalty;
    for (size_t i = 0; i < V; i++) {
        c[i].p = logits[i] == logits[i] ? logits[i] : -(cmha_real)INFINITY;
        c[i].id = (int32_t)i;
    }
    if (penalty == 1 || !recent) return;
    if (n_recent > config->penalty_window) {
        recent += n_recent - config->penalty_window;
        n_recent = config->penalty_window;
    }
    for (size_t i = 0; i < n_recent; i++) {
        cmha__candidate *x;
        if (recent[i] < 0 || (size_t)recent[i] >= V) continue;
        x = &c[recent[i]];
        if (x->id < 0) continue; /* seen before */
        x->p = x->p > 0 ? x->p / penalty : x->p * penalty;
        x->id = -1;
    }
    for (size_t i = 0; i < V; i++) c[i].id = (int32_t)i;
}

CMHA_DEF int32_t cmha_sample(const cmha_sampler_config *config, const cmha_real *logits, size_t V, const int32_t *recent,
                             size_t n_recent, cmha_rng *rng, cmha_real *scratch) {
    cmha__candidate *c = (cmha__candidate *)(void *)scratch; /* 2 V reals hold V candidates */
    size_t i, n = config->top_k && config->top_k < V ? config->top_k : V, best = 0;
    double total = 0, kept = 0, target;
    cmha_real top;
    cmha__penalise(config, logits, V, recent, n_recent, c);
    for (i = 1; i < V; i++)
        if (c[i].p > c[best].p) best = i;
    if (!V || !(c[best].p > -(cmha_real)INFINITY)) return -1;
    if (config->temperature <= 0 || config->top_k == 1 || !((double)c[best].p <= (double)FLT_MAX)) return (int32_t)best;
    top = c[best].p;
    for (i = 0; i < V; i++) {
        c[i].p = (cmha_real)exp((double)(c[i].p - top) / config->temperature);
        total += (double)c[i].p;
    }
    if (n < V || config->top_p < 1) {
        for (i = V / 2; i-- > 0;) cmha__sink(c, V, i);
        if (n < V) /* shares are those among the k likeliest */
            for (total = 0, i = 0; i < n; i++) total += (double)cmha__pop(c, V - i)->p;
        for (i = 0; i < n; i++) {
            kept += (double)(n < V ? &c[V - 1 - i] : cmha__pop(c, V - i))->p;
            if (kept >= config->top_p * total) break;
        }
        n = i < n ? i + 1 : n;
        total = kept;
        c += V - n;
    }
    target = cmha_rng_uniform(rng) * total;
    for (i = 0; i + 1 < n; i++) {
        target -= (double)c[i].p;
        if (target < 0) break;
    }
    return c[i].id;
}

/* The arrays of a generation: logits [B, V], scratch [2 V], recent [B, window], tokens [B], rng [B]. */
typedef struct cmha__generation {
    cmha_real *logits, *scratch;
    int32_t *recent, *tokens;
    cmha_rng *rng;
    size_t bytes, window, n_recent;
    void *memory;
} cmha__generation;

static cmha_status cmha__generation_open(cmha__generation *g, cmha_cache *cache, const cmha_sampler_config *sampler,
                                         uint64_t seed) {
    size_t B = cache->batch, V = cache->model->config.vocabulary, reals, ints;
    g->window = sampler->penalty_window + 1;
    if (!cmha__mul(B + 2, V, &reals) || !cmha__mul(reals, sizeof(cmha_real), &reals) ||
        !cmha__mul(B * sizeof(int32_t), g->window + 1, &ints) || !cmha__sum(reals, ints + B * sizeof(cmha_rng) + 16, &g->bytes))
        return cmha__fail(cache->model->context, CMHA_ERR_OVERFLOW, "generate: a size overflows");
    g->memory = cmha__take(cache->model->context, g->bytes);
    if (!g->memory) return cmha__fail(cache->model->context, CMHA_ERR_MEMORY, "generate: out of memory for %zu bytes", g->bytes);
    g->rng = (cmha_rng *)g->memory;
    g->logits = (cmha_real *)(void *)(g->rng + B);
    g->scratch = g->logits + B * V;
    g->recent = (int32_t *)(void *)(g->scratch + 2 * V);
    g->tokens = g->recent + B * g->window;
    g->n_recent = 0;
    for (size_t b = 0; b < B; b++) g->rng[b] = cmha_rng_make(seed, b);
    return CMHA_OK;
}

/* Appends a token to each sequence's list of recent ones. ids [B], stride apart. */
static void cmha__remember(cmha__generation *g, size_t B, const int32_t *ids, size_t stride) {
    size_t keep = g->window - 1;
    if (!keep) return;
    for (size_t b = 0; b < B; b++) {
        int32_t *recent = g->recent + b * g->window;
        if (g->n_recent == keep) memmove(recent, recent + 1, (keep - 1) * sizeof *recent);
        recent[g->n_recent == keep ? keep - 1 : g->n_recent] = ids[b * stride];
    }
    if (g->n_recent < keep) g->n_recent++;
}

static cmha_status cmha__generate(cmha__generation *g, cmha_cache *cache, const int32_t *prompt, size_t n_prompt, size_t n_new,
                                  const cmha_sampler_config *sampler, cmha_token_fn on_token, void *user) {
    size_t B = cache->batch, V = cache->model->config.vocabulary;
    cmha_status status = cmha_cache_append(cache, prompt, n_prompt, g->logits);
    for (size_t i = 0; !status && i < n_prompt; i++) cmha__remember(g, B, prompt + i, n_prompt);
    for (size_t i = 0; !status && i < n_new; i++) {
        for (size_t b = 0; b < B; b++) {
            g->tokens[b] = cmha_sample(sampler, g->logits + b * V, V, g->recent + b * g->window, g->n_recent, &g->rng[b],
                                       g->scratch);
            if (g->tokens[b] < 0)
                return cmha__fail(cache->model->context, CMHA_ERR_NOT_FINITE, "generate: the logits are not numbers");
        }
        cmha__remember(g, B, g->tokens, 1);
        if (on_token && on_token(user, g->tokens, B)) return CMHA_STOPPED;
        if (i + 1 < n_new) status = cmha_cache_append(cache, g->tokens, 1, g->logits);
    }
    return status;
}

CMHA_DEF cmha_status cmha_generate(cmha_cache *cache, const int32_t *prompt, size_t n_prompt, size_t n_new,
                                   const cmha_sampler_config *sampler, uint64_t seed, cmha_token_fn on_token, void *user) {
    cmha_sampler_config config;
    cmha__generation g;
    cmha_status status;
    if (!cmha__cache_open(cache)) return CMHA_ERR_STATE;
    if (sampler) config = *sampler;
    else cmha_config_defaults(cmha_sampler_table(), &config);
    status = cmha_config_check(cache->model->context, cmha_sampler_table(), &config);
    if (status) return status;
    memset(&g, 0, sizeof g);
    status = cmha__generation_open(&g, cache, &config, seed);
    if (status) return status;
    status = cmha__generate(&g, cache, prompt, n_prompt, n_new, &config, on_token, user);
    cmha__give(cache->model->context, g.memory, g.bytes);
    return status;
}

/* ================================================ Files ================================================= */

/* ---- the operating system: plain descriptors, so that a FIFO is refused instead of waited for ---- */

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
#ifdef __cplusplus
extern "C"
#endif
__declspec(dllimport) int __stdcall MoveFileExA(const char *from, const char *to, unsigned long flags);
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
#if defined(__linux__) && defined(O_TMPFILE)
#define CMHA__NAMELESS O_TMPFILE
#elif defined(__linux__) && defined(__O_TMPFILE) /* glibc has the other name only under _GNU_SOURCE */
#define CMHA__NAMELESS __O_TMPFILE
#endif
enum { CMHA__HERE = -100, CMHA__FOLLOW = 0x400 }; /* AT_FDCWD and AT_SYMLINK_FOLLOW, which -std=c99 hides */
#endif

enum { CMHA__FILE_PIECE = 1 << 26 }; /* one read or write asks for no more: systems limit it */

/* Turns errno into a status and an error line. */
static cmha_status cmha__io_fail(cmha_context *ctx, const char *what) {
    int number = errno;
    cmha_status status = number == ENOENT || number == ENOTDIR ? CMHA_ERR_NOT_FOUND : CMHA_ERR_IO;
    return cmha__fail(ctx, status, "%s: %s", what, number ? strerror(number) : "the file ended early");
}

/* Cuts a path that is too long for an error line to its end. */
static const char *cmha__path_end(const char *path) {
    size_t length = strlen(path);
    return length > 100 ? path + length - 100 : path;
}

/* Puts the file's name before an error line that lacks it. Public calls end here; inner lines lack it. */
static cmha_status cmha__blame(cmha_context *ctx, const char *path, cmha_status status) {
    char name[104];
    if (status == CMHA_OK) return status;
    snprintf(name, sizeof name, "%s: ", cmha__path_end(path));
    cmha__one_line(name); /* as it stands in a line */
    if (strncmp(ctx->detail, name, strlen(name)) == 0) return status;
    return cmha__fail(ctx, status, "%s%s", name, ctx->detail);
}

/* Opens a regular file for reading and measures it. */
static cmha_status cmha__file_open(cmha_context *ctx, const char *path, int *fd, uint64_t *size) {
    struct CMHA__STAT(stat) about;
    int regular;
    *size = 0; /* GCC does not see that no caller looks at it after a failure */
    *fd = CMHA__SYSTEM(open)(path, O_RDONLY | CMHA__FILE_FLAGS);
    if (*fd < 0) return cmha__io_fail(ctx, "cannot be opened");
    regular = CMHA__STAT(fstat)(*fd, &about) == 0 && S_ISREG(about.st_mode);
    if (regular) *size = (uint64_t)CMHA__SEEK_FILE(*fd, 0, SEEK_END);
    if (regular && *size != (uint64_t)-1) return CMHA_OK;
    CMHA__SYSTEM(close)(*fd);
    return cmha__fail(ctx, CMHA_ERR_IO, "cannot be read: not a regular file");
}

/* Reads or writes all bytes where the file stands: 1 = done. On 0 errno says why, 0 being the file's end. */
static int cmha__file_move(int fd, unsigned char *at, size_t bytes, int writing) {
    while (bytes) {
        unsigned piece = bytes < CMHA__FILE_PIECE ? (unsigned)bytes : (unsigned)CMHA__FILE_PIECE;
        long long moved;
        errno = 0;
        moved = writing ? CMHA__SYSTEM(write)(fd, at, piece) : CMHA__SYSTEM(read)(fd, at, piece);
        if (moved < 0 && errno == EINTR) continue;
        if (moved <= 0) {
            if (writing && !errno) errno = ENOSPC;
            return 0;
        }
        at += moved;
        bytes -= (size_t)moved;
    }
    return 1;
}

static cmha_status cmha__file_read(cmha_context *ctx, int fd, uint64_t offset, void *to, size_t bytes) {
    CMHA__FILE_PLACE place = (CMHA__FILE_PLACE)offset;
    errno = 0;
    if ((uint64_t)place == offset && CMHA__SEEK_FILE(fd, place, SEEK_SET) >= 0 &&
        cmha__file_move(fd, (unsigned char *)to, bytes, 0))
        return CMHA_OK;
    return cmha__io_fail(ctx, "reading failed");
}

/* ---- numbers as the file holds them, whatever this machine's byte order ---- */

static int cmha__little_endian(void) {
    const unsigned one = 1;
    return *(const unsigned char *)&one == 1;
}

static uint64_t cmha__bytes_get(const unsigned char *from, size_t n) {
    uint64_t x = 0;
    while (n-- > 0) x = x << 8 | from[n];
    return x;
}

static float cmha__float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float cmha__half_of(uint32_t bits) {
    uint32_t sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31, mantissa = bits & 1023;
    float x;
    if (exponent == 31) return cmha__float_of(sign | 0x7f800000u | mantissa << 13);
    if (exponent) return cmha__float_of(sign | (exponent + 112) << 23 | mantissa << 13);
    x = (float)mantissa * (1.0f / 16777216.0f); /* subnormal: units of 2^-24 */
    return sign ? -x : x;
}

/* Swaps the bytes of words in place, both ways; does nothing on little-endian machines. */
static void cmha__swap_words(void *words, size_t n, size_t width) {
    unsigned char *at = (unsigned char *)words, other[8];
    if (!words || width == 1 || cmha__little_endian()) return; /* no words are NULL */
    for (size_t i = 0; i < n; i++, at += width) {
        for (size_t j = 0; j < width; j++) other[j] = at[width - 1 - j];
        memcpy(at, other, width);
    }
}

enum { CMHA__AS_F64, CMHA__AS_F32, CMHA__AS_F16, CMHA__AS_BF16, CMHA__AS_I64 }; /* rows of cmha__dtypes */
enum { CMHA__AS_REAL = sizeof(cmha_real) == 8 ? CMHA__AS_F64 : CMHA__AS_F32 };

/* Types of numbers and their bytes. The first rows, in the order of the enumeration, can be read as reals. */
static const struct { char name[12]; unsigned char width; } cmha__dtypes[] = {
    {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8}, {"U64", 8}, {"C64", 8}, {"I32", 4},
    {"U32", 4}, {"I16", 2}, {"U16", 2}, {"I8", 1}, {"U8", 1}, {"BOOL", 1}, {"F8_E5M2", 1}, {"F8_E4M3", 1},
    {"F8_E8M0", 1}, {"F8_E5M2FNUZ", 1}, {"F8_E4M3FNUZ", 1}, {"", 0}};

/* Finds the row of a type; the last one stands for all others. */
static int cmha__dtype(const char *name) {
    int i = 0;
    while (cmha__dtypes[i].width && strcmp(cmha__dtypes[i].name, name) != 0) i++;
    return i;
}

static cmha_real cmha__decode(const unsigned char *from, int dtype) {
    uint64_t bits;
    double wide;
    int64_t whole;
    switch (dtype) {
    case CMHA__AS_F32: return cmha__float_of((uint32_t)cmha__bytes_get(from, 4));
    case CMHA__AS_F16: return cmha__half_of((uint32_t)cmha__bytes_get(from, 2));
    case CMHA__AS_BF16: return cmha__bf16_value((uint32_t)cmha__bytes_get(from, 2));
    default: bits = cmha__bytes_get(from, 8);
    }
    memcpy(&wide, &bits, sizeof wide), memcpy(&whole, &bits, sizeof whole);
    return dtype == CMHA__AS_F64 ? (cmha_real)wide : (cmha_real)whole;
}

/* ---- the header: JSON of one fixed shape, so that rules are never deeper than four ---- */

typedef struct cmha__header {
    cmha_archive *archive;      /* its arrays have room for all that a header of this length can hold */
    const char *begin;
    char *at;                   /* the text ends in a NUL, which no rule accepts */
    uint64_t data_bytes;
    int seen_metadata;
    cmha_archive_tensor tensor; /* the one that is being read, bits for its fields, and a list */
    int seen, n;
    uint64_t list[8];
} cmha__header;

/* Reads one thing. */
typedef cmha_status (*cmha__rule)(cmha__header *h);

static cmha_status cmha__header_fail(cmha__header *h, const char *problem) {
    return cmha__fail(h->archive->context, CMHA_ERR_FORMAT, "safetensors header, byte %zu: %s",
                      (size_t)(h->at - h->begin), problem);
}

static cmha_status cmha__tensor_fail(const cmha_archive *archive, const char *name, const char *problem) {
    return cmha__fail(archive->context, CMHA_ERR_FORMAT, "tensor %.60s: %s", name, problem);
}

static void cmha__skip_blanks(cmha__header *h) { h->at += strspn(h->at, " \t\n\r"); }

/* Steps past a character: 1, if it comes next. */
static int cmha__accept(cmha__header *h, char c) {
    cmha__skip_blanks(h);
    if (*h->at != c) return 0;
    h->at++;
    return 1;
}

/* Reads things between two brackets and commas. */
static cmha_status cmha__read_all(cmha__header *h, const char *brackets, cmha__rule rule) {
    cmha_status status;
    if (!cmha__accept(h, brackets[0]))
        return cmha__header_fail(h, *brackets == '[' ? "a list is expected" : "an object is expected");
    if (cmha__accept(h, brackets[1])) return CMHA_OK;
    do {
        if ((status = rule(h)) != CMHA_OK) return status;
    } while (cmha__accept(h, ','));
    return cmha__accept(h, brackets[1]) ? CMHA_OK : cmha__header_fail(h, "a list or an object is not closed");
}

/* Measures a well-formed UTF-8 character (of which a NUL ends the text); 0 = it is malformed. */
static size_t cmha__utf8_length(const unsigned char *s) {
    size_t n = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f)) return 0; /* surrogates; too long */
    if ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f)) return 0; /* beyond Unicode */
    return n;
}

/* Reads the four digits of a \u escape; 0, which no text may hold, where they are not. */
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
    size_t n;
    if (!c || (c >= 0xdc00 && c < 0xe000)) return 0;
    h->at += plain ? 2 : 6;
    if (c >= 0xd800 && c < 0xdc00) { /* the first half of a surrogate pair */
        low = cmha__hex4(h->at);
        if (low < 0xdc00 || low >= 0xe000) return 0;
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        h->at += 6;
    }
    n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6) (*out)[i] = (char)(0x80 | (c & 63));
    (*out)[0] = (char)(lead[n] | c);
    *out += n;
    return 1;
}

/* Reads a string and decodes it in place: its text never grows. */
static cmha_status cmha__read_string(cmha__header *h, const char **text) {
    char *out;
    if (!cmha__accept(h, '"')) return cmha__header_fail(h, "a string is expected");
    *text = out = h->at;
    while (*h->at != '"') {
        size_t n = cmha__utf8_length((const unsigned char *)h->at);
        if ((unsigned char)*h->at < 32)
            return cmha__header_fail(h, "a string is not closed or holds a control character");
        if (!n) return cmha__header_fail(h, "a string is not UTF-8");
        if (*h->at == '\\') {
            if (!cmha__unescape(h, &out)) return cmha__header_fail(h, "a bad escape in a string");
            continue;
        }
        memmove(out, h->at, n);
        out += n;
        h->at += n;
    }
    h->at++;
    *out = 0;
    return CMHA_OK;
}

static cmha_status cmha__read_key(cmha__header *h, const char **key) {
    cmha_status status = cmha__read_string(h, key);
    return status || cmha__accept(h, ':') ? status : cmha__header_fail(h, "a colon is expected");
}

static cmha_status cmha__read_number(cmha__header *h) {
    char text[24] = "";
    size_t digits;
    cmha__skip_blanks(h);
    digits = strspn(h->at, "0123456789");
    if (digits < sizeof text) memcpy(text, h->at, digits);
    if (h->n == 8) return cmha__header_fail(h, "a list is too long");
    if (!cmha__parse_u64(text, &h->list[h->n++]) || (digits > 1 && *text == '0'))
        return cmha__header_fail(h, "a whole number of 64 bits, without zeros before it, is expected");
    h->at += digits;
    return CMHA_OK;
}

/* "key": "value" */
static cmha_status cmha__read_pair(cmha__header *h) {
    const char **pair = h->archive->metadata + 2 * h->archive->n_metadata;
    cmha_status status = cmha__read_key(h, &pair[0]);
    if (!status) status = cmha__read_string(h, &pair[1]);
    if (!status) h->archive->n_metadata++;
    return status;
}

/* "dtype": "F32" or "shape": [2, 3] or "data_offsets": [0, 24] */
static cmha_status cmha__read_field(cmha__header *h) {
    cmha_archive_tensor *t = &h->tensor;
    const char *key;
    cmha_status status = cmha__read_key(h, &key);
    int bit;
    if (status) return status;
    bit = !strcmp(key, "dtype") ? 1 : !strcmp(key, "shape") ? 2 : !strcmp(key, "data_offsets") ? 4 : 0;
    if (!bit || h->seen & bit) return cmha__header_fail(h, "a field of a tensor is unknown or comes twice");
    h->seen |= bit, h->n = 0;
    if (bit == 1) return cmha__read_string(h, &t->dtype);
    status = cmha__read_all(h, "[]", cmha__read_number);
    if (bit == 4 && h->n == 2) t->begin = h->list[0], t->end = h->list[1], h->seen |= 8;
    if (bit == 4) return status;
    t->rank = h->n, t->count = 1;
    for (int i = 0; i < h->n && !status; i++) {
        t->shape[i] = (size_t)h->list[i];
        if (t->shape[i] != h->list[i] || !cmha__mul(t->count, t->shape[i], &t->count))
            status = cmha__tensor_fail(h->archive, t->name, "its shape is too large");
    }
    return status;
}

/* "name": {fields in any order} or "__metadata__": {pairs} */
static cmha_status cmha__read_entry(cmha__header *h) {
    cmha_archive_tensor *t = &h->tensor;
    const char *problem = NULL;
    size_t width, bytes;
    cmha_status status;
    memset(t, 0, sizeof *t);
    if ((status = cmha__read_key(h, &t->name)) != CMHA_OK) return status;
    if (strcmp(t->name, "__metadata__") == 0)
        return h->seen_metadata++ ? cmha__header_fail(h, "__metadata__ comes twice")
                                  : cmha__read_all(h, "{}", cmha__read_pair);
    h->seen = 0;
    if ((status = cmha__read_all(h, "{}", cmha__read_field)) != CMHA_OK) return status;
    width = h->seen & 1 ? cmha__dtypes[cmha__dtype(t->dtype)].width : 0;
    if (h->seen != 15) problem = "it lacks a dtype, a shape or two data_offsets";
    else if (!width) problem = "its dtype is not known";
    else if (t->begin > t->end || t->end > h->data_bytes) problem = "its data_offsets lie outside the file";
    else if (!cmha__mul(t->count, width, &bytes) || bytes != t->end - t->begin)
        problem = "its data_offsets do not fit its shape and dtype";
    if (problem) return cmha__tensor_fail(h->archive, t->name, problem);
    h->archive->tensors[h->archive->n_tensors++] = *t;
    return CMHA_OK;
}

static int cmha__compare_places(const void *a, const void *b) {
    const cmha_archive_tensor *p = (const cmha_archive_tensor *)a, *q = (const cmha_archive_tensor *)b;
    if (p->begin != q->begin) return p->begin < q->begin ? -1 : 1;
    return p->end < q->end ? -1 : p->end > q->end;
}

/* Compares things whose first member is their name. */
static int cmha__compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorts things by their names and returns a name that comes twice, or NULL. */
static const char *cmha__repeated(const void **things, size_t n) {
    cmha__sort(things, n, cmha__compare_names);
    for (size_t i = 1; i < n; i++)
        if (cmha__compare_names(things[i - 1], things[i]) == 0) return *(const char *const *)things[i];
    return NULL;
}

/* Sorts the tensors by name. Names must be unique, and the data a row without holes or overlaps. */
static cmha_status cmha__arrange(cmha_archive *archive, uint64_t data_bytes) {
    cmha_context *ctx = archive->context;
    size_t n = archive->n_tensors, m = archive->n_metadata, i;
    size_t bytes = n * sizeof *archive->tensors + ((n > m ? n : m) + 1) * sizeof(void *);
    cmha_archive_tensor *copy = (cmha_archive_tensor *)cmha__take(ctx, bytes);
    const void **order;
    const char *twice, *hole = NULL;
    uint64_t end = 0;
    if (!copy) return cmha__fail(ctx, CMHA_ERR_MEMORY, "no memory to sort %zu tensors", n);
    memcpy(copy, archive->tensors, n * sizeof *copy);
    order = (const void **)(void *)(copy + n);
    for (i = 0; i < m; i++) order[i] = &archive->metadata[2 * i];
    twice = cmha__repeated(order, m);
    for (i = 0; i < n; i++) order[i] = &copy[i];
    cmha__sort(order, n, cmha__compare_places);
    for (i = 0; i < n && !hole; i++) {
        const cmha_archive_tensor *t = (const cmha_archive_tensor *)order[i];
        if (t->begin != end) hole = t->name;
        end = t->end;
    }
    if (!twice) twice = cmha__repeated(order, n);
    for (i = 0; i < n && !twice; i++) archive->tensors[i] = *(const cmha_archive_tensor *)order[i];
    cmha__give(ctx, copy, bytes);
    if (hole) return cmha__tensor_fail(archive, hole, "there is a hole or an overlap before its data");
    if (twice) return cmha__fail(ctx, CMHA_ERR_FORMAT, "%.60s comes twice in the header", twice);
    return end == data_bytes ? CMHA_OK : cmha__fail(ctx, CMHA_ERR_FORMAT, "the tensors do not fill the file");
}

/* ---- archives ---- */

static int cmha__archive_fd(const cmha_archive *archive) {
    return (int)(intptr_t)archive->file - 1; /* so that a zeroed archive has no file */
}

/* Reads a file's header into one block of memory and checks it whole. */
static cmha_status cmha__load_header(cmha_archive *archive, const char *path) {
    enum { TENSOR = 49, PAIR = 6 }; /* bytes: "":{"dtype":"U8","shape":[],"data_offsets":[0,0]} and "":"", */
    cmha_context *ctx = archive->context;
    cmha__header h;
    unsigned char raw[8];
    uint64_t size, length;
    size_t tensors, pairs, name = strlen(path) + 1;
    int fd;
    cmha_status status = cmha__file_open(ctx, path, &fd, &size);
    if (status) return status;
    archive->file = (void *)((intptr_t)fd + 1);
    if (size < 8) return cmha__fail(ctx, CMHA_ERR_FORMAT, "not a safetensors file: shorter than 8 bytes");
    if ((status = cmha__file_read(ctx, fd, 0, raw, 8)) != CMHA_OK) return status;
    length = cmha__bytes_get(raw, 8);
    if (length > 100000000 || length > size - 8)
        return cmha__fail(ctx, CMHA_ERR_FORMAT, "not a safetensors file: its header exceeds it or 100 MB");
    tensors = (size_t)length / TENSOR, pairs = (size_t)length / PAIR + 1; /* at most */
    archive->memory_size = tensors * sizeof *archive->tensors + 2 * pairs * sizeof *archive->metadata;
    archive->memory_size += name + (size_t)length + 1;
    archive->memory = cmha__take(ctx, archive->memory_size);
    if (!archive->memory) return cmha__fail(ctx, CMHA_ERR_MEMORY, "no memory for its header");
    archive->tensors = (cmha_archive_tensor *)archive->memory;
    archive->metadata = (const char **)(void *)(archive->tensors + tensors);
    archive->path = (char *)(archive->metadata + 2 * pairs);
    archive->data_begin = 8 + length;
    memcpy(archive->path, path, name);
    memset(&h, 0, sizeof h);
    h.archive = archive, h.begin = h.at = archive->path + name, h.data_bytes = size - archive->data_begin;
    if ((status = cmha__file_read(ctx, fd, 8, h.at, (size_t)length)) != CMHA_OK) return status;
    h.at[length] = 0;
    if (*h.at != '{') return cmha__header_fail(&h, "it does not begin with {");
    status = cmha__read_all(&h, "{}", cmha__read_entry);
    cmha__skip_blanks(&h);
    if (!status && h.at != h.begin + length) status = cmha__header_fail(&h, "something follows its end");
    return status ? status : cmha__arrange(archive, h.data_bytes);
}

CMHA_DEF cmha_status cmha_archive_open(cmha_archive *archive, cmha_context *context, const char *path) {
    cmha_status status;
    if (archive) memset(archive, 0, sizeof *archive);
    if (!archive || !context || !path)
        return cmha__fail(context, CMHA_ERR_ARGUMENT, "archive open: archive, context or path is NULL");
    if (!cmha__is_open(context)) return CMHA_ERR_STATE;
    archive->context = context;
    status = cmha__load_header(archive, path);
    if (status) cmha_archive_close(archive);
    return cmha__blame(context, path, status);
}

CMHA_DEF void cmha_archive_close(cmha_archive *archive) {
    if (!archive || !archive->context) return;
    if (archive->file) CMHA__SYSTEM(close)(cmha__archive_fd(archive));
    cmha__give(archive->context, archive->memory, archive->memory_size);
    memset(archive, 0, sizeof *archive);
}

CMHA_DEF const cmha_archive_tensor *cmha_archive_find(const cmha_archive *archive, const char *name) {
    size_t low = 0, high = archive && name ? archive->n_tensors : 0;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int side = strcmp(archive->tensors[middle].name, name);
        if (side == 0) return &archive->tensors[middle];
        if (side < 0) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

CMHA_DEF const char *cmha_archive_metadata(const cmha_archive *archive, const char *key) {
    for (size_t i = 0; archive && key && i < archive->n_metadata; i++)
        if (strcmp(archive->metadata[2 * i], key) == 0) return archive->metadata[2 * i + 1];
    return NULL;
}

/* Reads n words of the data from byte `from` on, in this machine's order; single bytes stay as they are. */
static cmha_status cmha__read_words(cmha_archive *archive, uint64_t from, void *out, size_t n, size_t width) {
    int fd = cmha__archive_fd(archive);
    cmha_status status = cmha__file_read(archive->context, fd, archive->data_begin + from, out, n * width);
    cmha__swap_words(out, n, width);
    return cmha__blame(archive->context, archive->path, status);
}

/* Reads a tensor as cmha_real or, whole = 1, as int64_t. */
static cmha_status cmha__read_tensor(cmha_archive *archive, const cmha_archive_tensor *t, void *out,
                                     int whole) {
    cmha_context *ctx = archive ? archive->context : NULL;
    unsigned char piece[8192];
    cmha_status status = CMHA_OK;
    size_t n, width;
    int dtype;
    if (!ctx) return CMHA_ERR_STATE;
    if (!t || (!out && t->count))
        return cmha__fail(ctx, CMHA_ERR_ARGUMENT, "archive read: tensor or out is NULL");
    dtype = cmha__dtype(t->dtype), width = cmha__dtypes[dtype].width;
    if (whole ? dtype != CMHA__AS_I64 : dtype > CMHA__AS_I64) {
        status = cmha__fail(ctx, CMHA_ERR_FORMAT, "tensor %.60s: %s is not %s", t->name, t->dtype,
                            whole ? "I64" : "F64, F32, F16, BF16 or I64");
        return cmha__blame(ctx, archive->path, status);
    }
    if (whole || dtype == CMHA__AS_REAL) return cmha__read_words(archive, t->begin, out, t->count, width);
    for (size_t done = 0; !status && done < t->count; done += n) {
        n = t->count - done < sizeof piece / width ? t->count - done : sizeof piece / width;
        status = cmha__read_words(archive, t->begin + done * width, piece, n * width, 1);
        for (size_t i = 0; !status && i < n; i++)
            ((cmha_real *)out)[done + i] = cmha__decode(piece + i * width, dtype);
    }
    return status;
}

CMHA_DEF cmha_status cmha_archive_read(cmha_archive *archive, const cmha_archive_tensor *tensor,
                                       cmha_real *out) {
    return cmha__read_tensor(archive, tensor, out, 0);
}

CMHA_DEF cmha_status cmha_archive_read_i64(cmha_archive *archive, const cmha_archive_tensor *tensor,
                                           int64_t *out) {
    return cmha__read_tensor(archive, tensor, out, 1);
}

/* ---- writing an archive ---- */

enum { CMHA__PATH = 4096, CMHA__LINKS = 40 }; /* systems open no longer paths and follow no more links */

typedef struct cmha__output cmha__output;

/* Tells what a file holds: all metadata by cmha__tell_note, then all tensors by cmha__tell_tensor. */
typedef void (*cmha__contents)(cmha__output *o, const void *of);

/* Holds a file that is being written. Its contents are told three times: to measure the header, to compose it
   and to write the data. Until it is whole, it lies in the folder of the one that it replaces: without a name
   where the system has such files, of which nothing is left when the process dies, else under its own. */
struct cmha__output {
    cmha__contents contents;
    const void *of;
    char *header;                                   /* NULL while it is measured */
    size_t used, room, notes, tensors, bytes;       /* of the header; of what it tells; of their data */
    int fd, error;                                  /* -1 = the header is told; errno of the first failure */
    int mode, replaces;                             /* permissions; 1 = those of an old file */
    size_t folder;                                  /* characters of the folder, with which both begin: */
    char path[CMHA__PATH], beside[CMHA__PATH + 32]; /* what is replaced; the file under its own name */
};

static void cmha__emit(cmha__output *o, const char *format, ...) CMHA__PRINTF(2, 3);

/* Appends to the header, or only counts. */
static void cmha__emit(cmha__output *o, const char *format, ...) {
    char *at = o->header ? o->header + o->used : NULL;
    va_list arguments;
    if (o->fd >= 0) return;
    va_start(arguments, format);
    o->used += (size_t)vsnprintf(at, at ? o->room - o->used : 0, format, arguments);
    va_end(arguments);
}

static void cmha__emit_string(cmha__output *o, const char *text) {
    cmha__emit(o, "\"");
    for (; *text; text++) {
        unsigned c = (unsigned char)*text;
        cmha__emit(o, c < 32 ? "\\u%04x" : c == '"' || c == '\\' ? "\\%c" : "%c", c);
    }
    cmha__emit(o, "\"");
}

static void cmha__tell_key(cmha__output *o, const char *key) {
    cmha__emit(o, "%s", o->notes++ ? "," : "\"__metadata__\":{");
    cmha__emit_string(o, key);
    cmha__emit(o, ":");
}

static void cmha__tell_note(cmha__output *o, const char *key, const char *value) {
    cmha__tell_key(o, key);
    cmha__emit_string(o, value);
}

/* Writes n words in the file's byte order, unless something has failed before. */
static void cmha__write_words(cmha__output *o, const void *data, size_t n, size_t width) {
    unsigned char piece[8192], *at = (unsigned char *)(uintptr_t)data;
    int swaps = width > 1 && !cmha__little_endian();
    for (size_t part; n && !o->error; n -= part, at += part * width) {
        part = swaps && n > sizeof piece / width ? sizeof piece / width : n;
        if (swaps) memcpy(piece, at, part * width), cmha__swap_words(piece, part, width);
        if (!cmha__file_move(o->fd, swaps ? piece : at, part * width, 1)) o->error = errno;
    }
}

static int cmha__item_dtype(const cmha_archive_item *item) {
    return item->dtype ? cmha__dtype(item->dtype) : CMHA__AS_REAL;
}

static void cmha__tell_tensor(cmha__output *o, const cmha_archive_item *item) {
    int dtype = cmha__item_dtype(item);
    size_t width = cmha__dtypes[dtype].width, n = 1;
    for (int i = 0; i < item->rank; i++) n *= item->shape[i];
    if (o->fd >= 0) cmha__write_words(o, item->data, n, width);
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

/* Copies `path` or, where it is a link, what the last link names, so that links stay. 0 = see errno. */
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

/* Finds what is to be replaced, which must be a regular file, and its permissions. */
static cmha_status cmha__output_find(cmha__output *o, cmha_context *ctx, const char *path) {
    struct CMHA__STAT(stat) about;
    o->replaces = CMHA__STAT(stat)(path, &about) == 0;
    if (o->replaces && !S_ISREG(about.st_mode))
        return cmha__fail(ctx, CMHA_ERR_IO, "cannot be replaced: not a regular file");
    if ((!o->replaces && errno != ENOENT) || !cmha__output_follow(o, path))
        return cmha__io_fail(ctx, "cannot be written");
    o->mode = o->replaces ? (int)(about.st_mode & 0777) : CMHA__FILE_MODE;
    memcpy(o->beside, o->path, o->folder);
    o->beside[o->folder] = 0;
    return CMHA_OK;
}

/* Gives a file a name in its folder that nothing has, no link either: the open file fd or, fd = -1, a new
   one. Returns its descriptor; -1 leaves the reason in errno. */
static int cmha__output_name(cmha__output *o, int fd) {
    cmha_rng rng = cmha_rng_make((uint64_t)CMHA__SYSTEM(getpid)(), (uint64_t)(uintptr_t)o);
    char *name = o->beside + o->folder;
    int got = -1, tries = 0;
    do {
        snprintf(name, 32, "cmha-%08lx.tmp", (unsigned long)(cmha_rng_next(&rng) >> 32));
        if (fd < 0)
            got = CMHA__SYSTEM(open)(o->beside, O_WRONLY | O_CREAT | O_EXCL | CMHA__FILE_FLAGS, o->mode);
#ifdef CMHA__NAMELESS
        else {
            char self[32];
            snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
            got = linkat(CMHA__HERE, self, CMHA__HERE, o->beside, CMHA__FOLLOW) == 0 ? fd : -1;
        }
#endif
    } while (got < 0 && errno == EEXIST && ++tries < 1000);
    if (got < 0) *name = 0;
    return got;
}

/* Writes the file, flushes it to the disk, gives it a name if it has none, and closes it: 1 = done. Else no
   file is left, and errno has the reason; -1 = only the name failed. */
static int cmha__output_fill(cmha__output *o, int fd) {
    uint64_t length = o->used;
    int unnamed;
#ifndef _WIN32
    if (o->replaces) (void)!fchmod(fd, (mode_t)o->mode); /* some of which the umask has taken */
#endif
    o->fd = fd, o->error = 0;
    cmha__write_words(o, &length, 1, 8);
    cmha__write_words(o, o->header, o->used, 1);
    o->contents(o, o->of);
    if (!o->error && CMHA__FLUSH_FILE(fd) != 0) o->error = errno;
    unnamed = !o->error && !o->beside[o->folder] && cmha__output_name(o, fd) < 0;
    if (unnamed) o->error = errno;
    if (CMHA__SYSTEM(close)(fd) != 0 && !o->error) o->error = errno;
    if (o->error && o->beside[o->folder]) (void)remove(o->beside);
    errno = o->error;
    return unnamed ? -1 : !o->error;
}

/* Writes the whole file and puts it in its place. 0 leaves the reason in errno, and no file beside. */
static int cmha__output_put(cmha__output *o) {
    int fd, done = -1;
#ifndef _WIN32
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        8 + (uint64_t)o->used + o->bytes > (uint64_t)limit.rlim_cur)
        return errno = EFBIG, 0; /* a signal (SIGXFSZ) would end the process at the limit */
#endif
#ifdef CMHA__NAMELESS
    fd = open(o->folder ? o->beside : ".", CMHA__NAMELESS | O_WRONLY | CMHA__FILE_FLAGS, o->mode);
    if (fd >= 0) done = cmha__output_fill(o, fd); /* without /proc it gets no name */
#endif
    if (done < 0 && (fd = cmha__output_name(o, -1)) >= 0) done = cmha__output_fill(o, fd);
    if (done <= 0) return 0;
#ifdef _WIN32
    if (MoveFileExA(o->beside, o->path, 1 | 8)) return 1; /* REPLACE_EXISTING, WRITE_THROUGH */
    o->error = EACCES;
#else
    if (rename(o->beside, o->path) == 0) {
        o->beside[o->folder] = 0;
        fd = open(o->folder ? o->beside : ".", O_RDONLY | CMHA__FILE_FLAGS);
        if (fd >= 0) (void)fsync(fd), close(fd); /* the renaming lasts, where a folder can be flushed */
        return 1;
    }
    o->error = errno;
#endif
    (void)remove(o->beside);
    return errno = o->error, 0;
}

/* Writes a file of these contents. */
static cmha_status cmha__write_file(cmha_context *ctx, const char *path, cmha__contents contents,
                                    const void *of) {
    cmha__output o;
    cmha_status status;
    if (!cmha__is_open(ctx)) return CMHA_ERR_STATE;
    if (!path) return cmha__fail(ctx, CMHA_ERR_ARGUMENT, "archive write: path is NULL");
    memset(&o, 0, sizeof o);
    o.contents = contents, o.of = of, o.fd = -1;
    cmha__tell_header(&o);
    o.room = o.used + 1;
    o.header = (char *)cmha__take(ctx, o.room);
    if (!o.header) status = cmha__fail(ctx, CMHA_ERR_MEMORY, "no memory for its header");
    else if (o.used > 100000000) status = cmha__fail(ctx, CMHA_ERR_OVERFLOW, "its header exceeds 100 MB");
    else {
        cmha__tell_header(&o);
        status = cmha__output_find(&o, ctx, path);
        if (!status && !cmha__output_put(&o)) status = cmha__io_fail(ctx, "writing failed");
        if (status == CMHA_ERR_NOT_FOUND) status = CMHA_ERR_IO; /* no such folder */
    }
    cmha__give(ctx, o.header, o.room);
    return cmha__blame(ctx, path, status);
}

/* The caller's arrays. */
typedef struct cmha__arrays {
    const cmha_archive_item *items;
    const char *const *metadata;
    size_t n_items, n_metadata;
} cmha__arrays;

static void cmha__tell_arrays(cmha__output *o, const void *of) {
    const cmha__arrays *a = (const cmha__arrays *)of;
    for (size_t i = 0; i < a->n_metadata; i++) cmha__tell_note(o, a->metadata[2 * i], a->metadata[2 * i + 1]);
    for (size_t i = 0; i < a->n_items; i++) cmha__tell_tensor(o, &a->items[i]);
}

static int cmha__is_utf8(const char *text) {
    size_t n;
    for (; text && *text; text += n)
        if (!(n = cmha__utf8_length((const unsigned char *)text))) return 0;
    return text != NULL;
}

/* Checks an item and adds its bytes to the total. */
static cmha_status cmha__check_item(cmha_context *ctx, const cmha_archive_item *item, size_t *total) {
    size_t bytes = cmha__dtypes[cmha__item_dtype(item)].width;
    const char *problem = NULL;
    int countable = 1;
    if (!cmha__is_utf8(item->name) || strcmp(item->name, "__metadata__") == 0)
        return cmha__fail(ctx, CMHA_ERR_ARGUMENT,
                          "archive write: the name of a tensor is missing, reserved or not UTF-8");
    if (item->rank < 0 || item->rank > 8 || (item->rank && !item->shape)) problem = "its rank is not 0 to 8";
    else if (item->dtype && strcmp(item->dtype, "I64") != 0 && strcmp(item->dtype, "U8") != 0)
        problem = "its dtype is not I64 or U8";
    for (int i = 0; !problem && i < item->rank; i++) countable &= cmha__mul(bytes, item->shape[i], &bytes);
    if (!problem && countable && bytes && !item->data) problem = "it has no data";
    if (!problem && countable && cmha__sum(*total, bytes, total)) return CMHA_OK;
    return cmha__fail(ctx, problem ? CMHA_ERR_ARGUMENT : CMHA_ERR_OVERFLOW, "archive write: tensor %.60s: %s",
                      item->name, problem ? problem : "more bytes than can be counted");
}

CMHA_DEF cmha_status cmha_archive_write(cmha_context *context, const char *path,
                                        const cmha_archive_item *items, size_t n_items,
                                        const char *const *metadata, size_t n_metadata) {
    size_t most = n_items > n_metadata ? n_items : n_metadata, bytes = 0, total = 0, i;
    cmha__arrays a;
    const void **order;
    const char *twice;
    cmha_status status = CMHA_OK;
    if (!context || !path || (n_items && !items) || (n_metadata && !metadata))
        return cmha__fail(context, CMHA_ERR_ARGUMENT, "archive write: context, path or an array is NULL");
    if (!cmha__is_open(context)) return CMHA_ERR_STATE;
    for (i = 0; i < n_items && !status; i++) status = cmha__check_item(context, &items[i], &total);
    if (status) return status;
    for (i = 0; i < 2 * n_metadata; i++)
        if (!cmha__is_utf8(metadata[i]))
            return cmha__fail(context, CMHA_ERR_ARGUMENT, "archive write: metadata is NULL or not UTF-8");
    order = cmha__mul(most + 1, sizeof *order, &bytes) ? (const void **)cmha__take(context, bytes) : NULL;
    if (!order) return cmha__fail(context, CMHA_ERR_MEMORY, "archive write: no memory for %zu names", most);
    for (i = 0; i < n_items; i++) order[i] = &items[i];
    twice = cmha__repeated(order, n_items);
    for (i = 0; i < n_metadata && !twice; i++) order[i] = &metadata[2 * i];
    if (!twice) twice = cmha__repeated(order, n_metadata);
    cmha__give(context, (void *)order, bytes);
    if (twice) return cmha__fail(context, CMHA_ERR_ARGUMENT, "archive write: %.60s comes twice", twice);
    a.items = items, a.n_items = n_items, a.metadata = metadata, a.n_metadata = n_metadata;
    return cmha__write_file(context, path, cmha__tell_arrays, &a);
}

/* ---- saving models and training state ---- */

enum { CMHA__NAME = 64 }; /* room for "optim.m." and a parameter's name, "trainer." and an option's */

/* A tensor of a training state: a parameter, then the first moments of all, then the second ones. */
typedef struct cmha__named {
    char name[CMHA__NAME];
    const cmha_tensor *like; /* the parameter */
    size_t place;            /* among the numbers of all three */
} cmha__named;

static cmha__named cmha__name(const cmha_model *model, size_t i) {
    static const char *const prefixes[3] = {"", "optim.m.", "optim.v."};
    size_t n = model->n_parameters, block = i < n ? 0 : i < 2 * n ? 1 : 2;
    const cmha_parameter *p = &model->parameters[i - block * n];
    cmha__named named;
    snprintf(named.name, sizeof named.name, "%s%s", prefixes[block], p->name);
    named.like = &p->tensor;
    named.place = block * model->size + (size_t)(p->tensor.data - model->data);
    return named;
}

/* Counts the frequencies of the caller's own, which no other option tells. */
static size_t cmha__own_omega(const cmha_model *model) {
    const cmha_model_config *c = &model->config;
    return c->frequency == CMHA_FREQ_TABLE ? c->n_heads * (cmha__head_width(c) / 2) : 0;
}

static void cmha__tell_u64(cmha__output *o, const char *key, uint64_t value) {
    char digits[24];
    cmha__write_u64(value, digits);
    cmha__tell_note(o, key, digits);
}

static void cmha__tell_table(cmha__output *o, const char *prefix, cmha_table table, const void *config) {
    char key[CMHA__NAME], value[32];
    for (size_t i = 0; i < table.count; i++) {
        cmha_config_get(table, config, i, value, sizeof value);
        snprintf(key, sizeof key, "%s%s", prefix, table.fields[i].name);
        cmha__tell_note(o, key, value);
    }
}

/* Tells a training state; a trainer without moments is a model alone. */
static void cmha__tell_state(cmha__output *o, const void *of) {
    const cmha_trainer *t = (const cmha_trainer *)of;
    const cmha_model *model = t->model;
    size_t n = cmha__own_omega(model);
    char text[48];
    snprintf(text, sizeof text, "%d.%d.%d", CMHA_VERSION_MAJOR, CMHA_VERSION_MINOR, CMHA_VERSION_PATCH);
    cmha__tell_note(o, "format", "cmha");
    cmha__tell_note(o, "cmha.version", text);
    cmha__tell_table(o, "cfg.", cmha_model_table(), &model->config);
    if (n) cmha__tell_key(o, "omega");
    for (size_t i = 0; i < n; i++) {
        cmha__write_real(model->omega[i], text);
        cmha__emit(o, "%s%s%s", i ? "," : "\"", text, i + 1 < n ? "" : "\"");
    }
    if (model->knowledge_identity) cmha__tell_u64(o, "knowledge", model->knowledge_identity);
    if (t->moments) {
        cmha__tell_table(o, "trainer.", cmha_trainer_table(), &t->config);
        cmha__tell_u64(o, "state.step", t->step);
        cmha__tell_u64(o, "state.seed", t->seed);
        cmha__write_real(t->best <= (double)INFINITY ? t->best : (double)INFINITY, text);
        cmha__tell_note(o, "state.best", text);
    }
    for (size_t i = 0; i < model->n_parameters * (t->moments ? 3 : 1); i++) {
        cmha__named named = cmha__name(model, i);
        size_t at = named.place, size = model->size;
        cmha_archive_item item = {named.name, NULL, named.like->shape, named.like->rank, NULL};
        item.data = at < size ? model->data + at : t->moments + (at - size);
        cmha__tell_tensor(o, &item);
    }
}

/* Stands for the training state of a model alone. */
static cmha_trainer cmha__no_trainer(cmha_model *model) {
    cmha_trainer none;
    memset(&none, 0, sizeof none);
    none.model = model;
    return none;
}

CMHA_DEF cmha_status cmha_model_save(cmha_model *model, const char *path) {
    cmha_trainer none = cmha__no_trainer(model);
    if (!cmha__model_is_open(model)) return CMHA_ERR_STATE;
    return cmha__write_file(model->context, path, cmha__tell_state, &none);
}

CMHA_DEF cmha_status cmha_trainer_save(cmha_trainer *trainer, const char *path) {
    if (!cmha__trainer_open(trainer)) return CMHA_ERR_STATE;
    return cmha__write_file(trainer->context, path, cmha__tell_state, trainer);
}

/* ---- loading them ---- */

/* Reads the model's configuration from the metadata. An option that is not there has its default, one of a
   later version is refused, and a file without any is not ours. */
static cmha_status cmha__archive_config(const cmha_archive *archive, cmha_model_config *config) {
    cmha_table table = cmha_model_table();
    size_t found = 0;
    cmha_config_defaults(table, config);
    for (size_t i = 0; i < archive->n_metadata; i++) {
        const char *key = archive->metadata[2 * i], *value = archive->metadata[2 * i + 1];
        if (strncmp(key, "cfg.", 4) != 0) continue;
        found++;
        if (cmha_config_set(archive->context, table, config, key + 4, value)) return CMHA_ERR_FORMAT;
    }
    if (found) return CMHA_OK;
    return cmha__fail(archive->context, CMHA_ERR_FORMAT,
                      "it holds no configuration of ours (metadata cfg.*); another program wrote it");
}

/* Reads a whole number up to `most` from the metadata; 0 where there is none. */
static cmha_status cmha__archive_u64(const cmha_archive *archive, const char *key, uint64_t most,
                                     uint64_t *value) {
    const char *text = cmha_archive_metadata(archive, key);
    *value = 0;
    if (!text || (cmha__parse_u64(text, value) && *value <= most)) return CMHA_OK;
    return cmha__fail(archive->context, CMHA_ERR_FORMAT, "%s = %.24s: not a number in its range", key, text);
}

/* Reads the frequencies of the caller's own into the model or, same = 1, compares them with the model's. */
static cmha_status cmha__archive_omega(const cmha_archive *archive, cmha_model *model, int same) {
    const char *text = cmha_archive_metadata(archive, "omega"), *problem = NULL;
    size_t n = cmha__own_omega(model), length;
    int differ = same && n && !text;
    if (text && !n) problem = "it has an omega but not frequency = table";
    for (size_t i = 0; text && i < n && !problem; i++, text += length + 1) {
        char one[40] = "";
        double value;
        length = strcspn(text, ",");
        if (length < sizeof one) memcpy(one, text, length);
        if (!cmha__parse_real(one, &value) || fabs(value) > DBL_MAX || text[length] != (i + 1 < n ? ',' : 0))
            problem = "omega is not a list of as many finite numbers as the model needs";
        else if (!same) model->omega[i] = value;
        else differ |= value < model->omega[i] || value > model->omega[i];
    }
    if (!problem && differ) problem = "omega is another in the file than in the model";
    return problem ? cmha__fail(archive->context, CMHA_ERR_FORMAT, "%s", problem) : CMHA_OK;
}

/* Refuses a file that would make us allocate much more than it brings: its parameters may be as narrow as
   2 bytes, ours are up to 8. */
static cmha_status cmha__check_appetite(const cmha_archive *archive, const cmha_model_config *config) {
    const cmha_archive_tensor *t = archive->tensors;
    uint64_t have = archive->data_begin;
    size_t need = 0;
    cmha_status status = cmha_model_memory(archive->context, config, 1, 1, &need, NULL);
    for (size_t i = 0; i < archive->n_tensors; i++) have += t[i].end - t[i].begin;
    if (status || need / 16 <= have + 65536) return status;
    return cmha__fail(archive->context, CMHA_ERR_FORMAT,
                      "its configuration needs %zu bytes of parameters, the file is smaller", need);
}

/* A list of names for an error line: as many as fit, then how many more there are. */
typedef struct cmha__names {
    char text[190];
    size_t used, more;
} cmha__names;

static void cmha__add_name(cmha__names *list, const char *title, const char *name) {
    size_t room = sizeof list->text - 32 - list->used;
    char *end = list->text + list->used;
    if (list->more || room < 64) snprintf(end, 32, " and %zu more", ++list->more);
    else list->used += (size_t)snprintf(end, room, "%s%.60s", list->used ? ", " : title, name);
}

static void cmha__shape_text(const size_t *shape, int rank, char *text, size_t room) {
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < rank && used < room; i++)
        used += (size_t)snprintf(text + used, room - used, i ? ", %zu" : "%zu", shape[i]);
}

/* Compares a tensor of the file, or NULL, with the parameter that it is for. */
static cmha_status cmha__fits(const cmha_archive_tensor *found, const cmha_tensor *wanted) {
    size_t bytes = (size_t)wanted->rank * sizeof *wanted->shape;
    if (!found) return CMHA_ERR_NOT_FOUND;
    if (cmha__dtype(found->dtype) >= CMHA__AS_I64) return CMHA_ERR_FORMAT;
    if (found->rank != wanted->rank || memcmp(found->shape, wanted->shape, bytes) != 0) return CMHA_ERR_SHAPE;
    return CMHA_OK;
}

/* Says in the log what stays as it is or is left unread. */
static void cmha__say_left(const cmha_archive *archive, const char *what, const char *name, const char *why) {
    const cmha_context_config *config = &archive->context->config;
    char line[sizeof archive->context->detail];
    if (!config->log) return;
    snprintf(line, sizeof line, "%s: %s %.60s %s", cmha__path_end(archive->path), what, name, why);
    cmha__one_line(line);
    config->log(config->log_user, CMHA_LOG_WARNING, line);
}

/* Compares the file's tensors with the first n of a training state. strict = 1: fails on one that does not
   fit, and if any is missing or unknown; 0: logs a line for each. known [n_tensors] holds zeros. */
static cmha_status cmha__compare_state(const cmha_archive *archive, const cmha_model *model, size_t n,
                                       int strict, char *known) {
    cmha__names missing, strange;
    memset(&missing, 0, sizeof missing), memset(&strange, 0, sizeof strange);
    for (size_t i = 0; i < 3 * model->n_parameters; i++) {
        cmha__named named = cmha__name(model, i);
        const cmha_archive_tensor *found = cmha_archive_find(archive, named.name);
        cmha_status status = i < n ? cmha__fits(found, named.like) : CMHA_OK;
        char why[250] = "is not in the file and stays as it is", theirs[80], ours[80];
        if (found) known[found - archive->tensors] = 1;
        if (!status) continue;
        if (found) {
            cmha__shape_text(found->shape, found->rank, theirs, sizeof theirs);
            cmha__shape_text(named.like->shape, named.like->rank, ours, sizeof ours);
            snprintf(why, sizeof why, "is %s of shape [%s], the model needs [%s] of F64, F32, F16 or BF16",
                     found->dtype, theirs, ours);
        }
        if (!strict) cmha__say_left(archive, found ? "tensor" : "parameter", named.name, why);
        else if (!found) cmha__add_name(&missing, "missing tensors: ", named.name);
        else return cmha__fail(archive->context, status, "tensor %s %s", named.name, why);
    }
    for (size_t i = 0; i < archive->n_tensors; i++) {
        if (known[i]) continue;
        if (strict) cmha__add_name(&strange, "tensors unknown to the model: ", archive->tensors[i].name);
        else cmha__say_left(archive, "tensor", archive->tensors[i].name, "is unknown to the model");
    }
    if (!missing.used && !strange.used) return CMHA_OK;
    return cmha__fail(archive->context, CMHA_ERR_FORMAT, "%s%s%s", missing.text,
                      missing.used && strange.used ? "; " : "", strange.text);
}

/* Reads a training state or, without moments, a model: all of it (strict = 1), or what fits. over = 1: into
   memory of its own first, so that a disk that fails half-way leaves all as it was. *taken = tensors read. */
static cmha_status cmha__read_state(cmha_archive *archive, cmha_trainer *t, int strict, int over,
                                    size_t *taken) {
    cmha_model *model = t->model;
    cmha_real *into = model->data;
    size_t blocks = t->moments ? 3 : 1, n = blocks * model->n_parameters, size = model->size * sizeof *into;
    size_t staged = over ? blocks * size : 0, bytes = staged + archive->n_tensors + 1; /* size leaves room */
    char *memory = (char *)cmha__take(model->context, bytes), *known;
    cmha_status status = CMHA_OK;
    *taken = 0;
    if (!memory) return cmha__fail(model->context, CMHA_ERR_MEMORY, "no memory to read %zu tensors", n);
    known = (char *)memset(memory + staged, 0, archive->n_tensors);
    if (over) into = (cmha_real *)memcpy(memory, model->data, size);
    if (t->moments) memcpy(into + model->size, t->moments, 2 * size);
    if (strict) status = cmha__compare_state(archive, model, n, 1, known);
    for (size_t i = 0; i < n && !status; i++) {
        cmha__named named = cmha__name(model, i);
        const cmha_archive_tensor *found = cmha_archive_find(archive, named.name);
        if (cmha__fits(found, named.like)) continue;
        status = cmha_archive_read(archive, found, into + named.place);
        ++*taken;
    }
    if (!status && over) memcpy(model->data, into, size);
    if (!status && t->moments) memcpy(t->moments, into + model->size, 2 * size);
    if (!status && !strict) status = cmha__compare_state(archive, model, n, 0, known);
    if (status) *taken = 0;
    cmha__give(model->context, memory, bytes);
    return status;
}

CMHA_DEF cmha_status cmha_model_load(cmha_model *model, cmha_context *context, const char *path) {
    cmha_trainer none = cmha__no_trainer(model);
    cmha_model_config config;
    cmha_archive archive;
    cmha_status status;
    size_t taken;
    if (!model) return cmha__fail(context, CMHA_ERR_ARGUMENT, "model load: model is NULL");
    memset(model, 0, sizeof *model);
    if ((status = cmha_archive_open(&archive, context, path)) != CMHA_OK) return status;
    status = cmha__archive_config(&archive, &config);
    if (!status) status = cmha__check_appetite(&archive, &config);
    if (!status) status = cmha__model_allocate(model, context, &config);
    if (!status) status = cmha__archive_omega(&archive, model, 0);
    if (!status) status = cmha__archive_u64(&archive, "knowledge", UINT64_MAX, &model->knowledge_identity);
    if (!status) status = cmha__read_state(&archive, &none, 1, 0, &taken);
    if (status == CMHA_ERR_ARGUMENT) status = CMHA_ERR_FORMAT; /* the argument came from the file */
    if (status) cmha_model_close(model);
    cmha_archive_close(&archive);
    return cmha__blame(context, path, status);
}

CMHA_DEF cmha_status cmha_model_read(cmha_model *model, const char *path, int strict, size_t *taken) {
    cmha_trainer none = cmha__no_trainer(model);
    cmha_archive archive;
    cmha_status status;
    size_t n = 0;
    if (taken) *taken = 0;
    if (!cmha__model_is_open(model)) return CMHA_ERR_STATE;
    if ((status = cmha_archive_open(&archive, model->context, path)) != CMHA_OK) return status;
    status = cmha__read_state(&archive, &none, strict, 1, &n);
    if (taken) *taken = n;
    cmha_archive_close(&archive);
    return cmha__blame(model->context, path, status);
}

/* Refuses a resumption where file and model differ in an option: it would be another run. */
static cmha_status cmha__check_same_config(const cmha_archive *archive, const cmha_model *model) {
    cmha_table table = cmha_model_table();
    cmha_model_config config;
    char ours[32], theirs[32];
    cmha_status status = cmha__archive_config(archive, &config);
    for (size_t i = 0; i < table.count && !status; i++) {
        cmha_config_get(table, &config, i, theirs, sizeof theirs);
        cmha_config_get(table, &model->config, i, ours, sizeof ours);
        if (strcmp(ours, theirs) != 0)
            status = cmha__fail(archive->context, CMHA_ERR_FORMAT, "%s is %s in the file, %s in the model",
                                table.fields[i].name, theirs, ours);
    }
    return status;
}

/* Reads step, seed and best loss. */
static cmha_status cmha__archive_progress(const cmha_archive *archive, cmha_trainer *t) {
    static const char step_key[] = "state.step", seed_key[] = "state.seed";
    const char *best = cmha_archive_metadata(archive, "state.best");
    uint64_t step;
    cmha_status status;
    if (!best || !cmha_archive_metadata(archive, step_key) || !cmha_archive_metadata(archive, seed_key))
        return cmha__fail(archive->context, CMHA_ERR_FORMAT, "it has weights but no training state");
    status = cmha__archive_u64(archive, step_key, SIZE_MAX / 2, &step); /* the next one must not be 0 */
    t->step = (size_t)step;
    if (!status) status = cmha__archive_u64(archive, seed_key, UINT64_MAX, &t->seed);
    if (status || cmha__parse_real(best, &t->best)) return status;
    return cmha__fail(archive->context, CMHA_ERR_FORMAT, "state.best = %.24s: not a number", best);
}

CMHA_DEF cmha_status cmha_trainer_load(cmha_trainer *trainer, const char *path) {
    cmha_model *model = trainer ? trainer->model : NULL;
    cmha_archive archive;
    cmha_trainer loaded;
    cmha_status status;
    uint64_t knowledge = 0;
    size_t taken;
    if (!cmha__trainer_open(trainer)) return CMHA_ERR_STATE;
    if ((status = cmha_archive_open(&archive, model->context, path)) != CMHA_OK) return status;
    loaded = *trainer;
    status = cmha__archive_progress(&archive, &loaded);
    if (!status) status = cmha__check_same_config(&archive, model);
    if (!status) status = cmha__archive_omega(&archive, model, 1);
    if (!status) status = cmha__archive_u64(&archive, "knowledge", UINT64_MAX, &knowledge);
    if (!status && knowledge && model->knowledge && knowledge != model->knowledge_identity)
        status = cmha__fail(model->context, CMHA_ERR_FORMAT,
                            "it learned with another knowledge base; set this one after loading to use it");
    if (!status) status = cmha__read_state(&archive, trainer, 1, 1, &taken);
    if (!status) *trainer = loaded;
    if (!status && !model->knowledge) model->knowledge_identity = knowledge;
    cmha_archive_close(&archive);
    return cmha__blame(model->context, path, status);
}

/* ---- knowledge bases ---- */

/* A tensor of a file and the base's pointer to it: real numbers in rows (dtype NULL), or others in a line. */
typedef struct cmha__knowledge_row {
    const char *name, *dtype;
    size_t member;
} cmha__knowledge_row;

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
        shape[0] = i == 4 ? (size_t)kb->text_begin[kb->n] : kb->n + (i == 3), shape[1] = 2 * kb->d_r;
        cmha__tell_tensor(o, &item);
    }
}

CMHA_DEF cmha_status cmha_knowledge_save(const cmha_knowledge *knowledge, const char *path) {
    if (!knowledge || !knowledge->context) return CMHA_ERR_STATE;
    return cmha__write_file(knowledge->context, path, cmha__tell_knowledge, knowledge);
}

/* Finds the tensors of a file and checks them against each other; there must be none besides. */
static cmha_status cmha__knowledge_find(cmha_knowledge *kb, const cmha_archive *archive,
                                        const cmha_archive_tensor **t) {
    size_t known = 0;
    for (size_t i = 0; i < 5; i++) {
        const cmha__knowledge_row *row = &cmha__knowledge_rows[i];
        const cmha_archive_tensor *found = t[i] = cmha_archive_find(archive, row->name);
        if (!i && !found) return cmha__tensor_fail(archive, row->name, "missing: not a knowledge base");
        if (!found) continue;
        known++;
        if (row->dtype ? strcmp(found->dtype, row->dtype) != 0 : cmha__dtype(found->dtype) >= CMHA__AS_I64)
            return cmha__tensor_fail(archive, row->name, "not of the dtype that it has in a knowledge base");
        if (!i) kb->n = found->shape[0], kb->d_r = found->shape[1] / 2;
        if (found->rank != (row->dtype ? 1 : 2) || (i < 4 && found->shape[0] != kb->n + (i == 3)) ||
            (i < 2 && (found->shape[1] != 2 * kb->d_r || kb->n >= SIZE_MAX / 16 || (kb->n && !kb->d_r))))
            return cmha__tensor_fail(archive, row->name, "not the shape of one for vectors [n, 2 d_r]");
    }
    if (!t[3] != !t[4]) return cmha__tensor_fail(archive, cmha__knowledge_rows[t[3] ? 4 : 3].name, "missing");
    if (known == archive->n_tensors) return CMHA_OK;
    return cmha__fail(archive->context, CMHA_ERR_FORMAT, "it has %zu tensors, a knowledge base %zu of these",
                      archive->n_tensors, known);
}

/* Maps the file where real tensors can be used as they lie there. */
static void cmha__knowledge_map(cmha_knowledge *kb, const cmha_archive *archive,
                                const cmha_archive_tensor **t) {
#ifdef _WIN32
    (void)kb, (void)archive, (void)t;
#else
    uint64_t begin = archive->data_begin, end = begin;
    void *mapping;
    for (size_t i = 0; i < 2; i++)
        if (!t[i] || cmha__dtype(t[i]->dtype) != CMHA__AS_REAL || (begin + t[i]->begin) % sizeof(cmha_real))
            return;
    for (size_t i = 0; i < archive->n_tensors; i++)
        if (begin + archive->tensors[i].end > end) end = begin + archive->tensors[i].end;
    if (!cmha__little_endian() || !t[0]->count || (size_t)end != end) return;
    mapping = mmap(NULL, (size_t)end, PROT_READ, MAP_PRIVATE, cmha__archive_fd(archive), 0);
    if (mapping == MAP_FAILED) return;
    kb->mapping = mapping;
    kb->mapped = (size_t)end;
    kb->vectors = (const cmha_real *)(const void *)((const char *)mapping + begin + t[0]->begin);
    kb->features = (const cmha_real *)(const void *)((const char *)mapping + begin + t[1]->begin);
#endif
}

/* Compares features with the phasors of the vectors: 1 = equal but for rounding (of an F16, at worst). */
static int cmha__knowledge_phasors(const cmha_knowledge *kb) {
    cmha_real u[2 * CMHA__PAIRS];
    size_t d = kb->d_r, m;
    int same = 1;
    for (size_t i = 0; i < kb->n && same; i++)
        for (size_t j = 0; j < d; j += m) {
            const cmha_real *z = kb->vectors + i * 2 * d + j, *f = kb->features + i * 2 * d + j;
            m = cmha__block_of(d, j);
            cmha__phasor_row(z, z + d, m, cmha__feature_eps, 1, u, u + m);
            for (size_t l = 0; l < m; l++) {
                cmha_real a = f[l] - u[l], b = f[d + l] - u[m + l];
                same &= a * a + b * b <= (cmha_real)1e-4;
            }
        }
    return same;
}

static cmha_status cmha__knowledge_open(cmha_knowledge *kb, cmha_archive *archive, int map) {
    const cmha_archive_tensor *t[5];
    uint64_t identity;
    cmha_status status = cmha__knowledge_find(kb, archive, t);
    if (!status && map) cmha__knowledge_map(kb, archive, t);
    for (size_t i = kb->mapping ? 2 : 0; i < 5 && !status; i++) {
        const cmha__knowledge_row *row = &cmha__knowledge_rows[i];
        size_t width = row->dtype ? cmha__dtypes[cmha__dtype(row->dtype)].width : sizeof(cmha_real);
        void *data = t[i] ? cmha__knowledge_take(kb, t[i]->count, width) : NULL;
        memcpy((char *)kb + row->member, &data, sizeof data);
        if (!t[i]) continue;
        if (!data) status = CMHA_ERR_MEMORY;
        else if (row->dtype) status = cmha__read_words(archive, t[i]->begin, data, t[i]->count, width);
        else status = cmha_archive_read(archive, t[i], (cmha_real *)data);
    }
    if (!status && t[3] && !cmha__texts_in_order(kb->text_begin, kb->n, t[4]->count)) /* -1 is huge */
        status = cmha__tensor_fail(archive, "text_begin", "out of order or range");
    if (!status) status = cmha__knowledge_finite(kb);
    if (!status && !t[1]) status = cmha__knowledge_reserve(kb);
    if (!status && !t[1]) cmha__knowledge_features(kb);
    if (!status && t[1] && !cmha__knowledge_phasors(kb))
        status = cmha__tensor_fail(archive, "features", "not the phasors of the vectors");
    if (!status) status = cmha__archive_u64(archive, "identity", UINT64_MAX, &identity);
    if (status) return status;
    kb->identity = cmha__knowledge_identity(kb->n, kb->d_r, kb->vectors);
    if (identity == kb->identity || !cmha_archive_metadata(archive, "identity")) return CMHA_OK;
    return cmha__fail(archive->context, CMHA_ERR_FORMAT, "its vectors are not those of its identity");
}

CMHA_DEF cmha_status cmha_knowledge_load(cmha_knowledge *knowledge, cmha_context *context, const char *path,
                                         int map) {
    cmha_archive archive;
    cmha_status status;
    if (!knowledge) return cmha__fail(context, CMHA_ERR_ARGUMENT, "knowledge load: knowledge is NULL");
    memset(knowledge, 0, sizeof *knowledge);
    if (!cmha__is_open(context)) return CMHA_ERR_STATE;
    if ((status = cmha_archive_open(&archive, context, path)) != CMHA_OK) return status;
    knowledge->context = context;
    status = cmha__knowledge_open(knowledge, &archive, map);
    if (status) cmha_knowledge_close(knowledge);
    cmha_archive_close(&archive);
    return cmha__blame(context, path, status);
}

/* ---- token streams ---- */

CMHA_DEF cmha_status cmha_tokens_load(cmha_tokens *tokens, cmha_context *context, const char *path,
                                      int width) {
    cmha_status status;
    uint64_t size;
    void *data = NULL;
    int fd;
    if (tokens) memset(tokens, 0, sizeof *tokens);
    if (!tokens || !context || !path)
        return cmha__fail(context, CMHA_ERR_ARGUMENT, "tokens load: tokens, context or path is NULL");
    if (!cmha__is_open(context)) return CMHA_ERR_STATE;
    if (width != 1 && width != 2 && width != 4)
        return cmha__fail(context, CMHA_ERR_ARGUMENT, "tokens load: width %d is not 1, 2 or 4", width);
    status = cmha__file_open(context, path, &fd, &size);
    if (status) return cmha__blame(context, path, status);
    tokens->owner = context, tokens->width = width;
    tokens->bytes = (size_t)size, tokens->count = tokens->bytes / (size_t)width;
    if (!size) status = cmha__fail(context, CMHA_ERR_FORMAT, "it is empty");
    else if (size % (uint64_t)width)
        status = cmha__fail(context, CMHA_ERR_FORMAT, "its size is not a multiple of %d bytes", width);
    else if (size > SIZE_MAX / 2 || (tokens->data = data = cmha__take(context, tokens->bytes)) == NULL)
        status = cmha__fail(context, CMHA_ERR_MEMORY, "no memory for its tokens");
    else status = cmha__file_read(context, fd, 0, data, tokens->bytes);
    CMHA__SYSTEM(close)(fd);
    cmha__swap_words(data, tokens->count, (size_t)width);
    if (status) cmha_tokens_close(tokens);
    return cmha__blame(context, path, status);
}

CMHA_DEF void cmha_tokens_close(cmha_tokens *tokens) {
    if (!tokens) return;
    if (tokens->owner) cmha__give(tokens->owner, (void *)(uintptr_t)tokens->data, tokens->bytes);
    memset(tokens, 0, sizeof *tokens);
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
    cmha_tokens part;
    memset(&part, 0, sizeof part);
    if (!tokens) return part;
    if (end > tokens->count) end = tokens->count;
    if (begin > end) begin = end;
    part.width = tokens->width, part.count = end - begin, part.bytes = part.count * (size_t)part.width;
    part.data = tokens->data;
    if (begin && part.data) part.data = (const char *)part.data + begin * (size_t)part.width;
    return part;
}

#if defined(CMHA__GCC_FAST)
#undef static
#pragma GCC diagnostic pop
#pragma GCC pop_options
#elif defined(CMHA__FLOAT_CONTROL)
#pragma float_control(pop)
#endif
#endif
#endif /* the implementation */

/* MIT License

   Copyright (c) 2026 the cmha.h authors

   Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation
   files (the "Software"), to deal in the Software without restriction, including without limitation the rights to use, copy,
   modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the
   Software is furnished to do so, subject to the following conditions:

   The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
   Software.

   THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
   WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
   COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE,
   ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE. */
