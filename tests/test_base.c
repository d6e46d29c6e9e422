/* The base room: contexts, random numbers, configuration tables, GEMM; and the kernels whose vector
   mathematics is the library's own, against libm. */
#include "check.h"

#include <locale.h>

static cmha_context context;

/* ----------------------------------------------- contexts ----------------------------------------------- */

typedef struct diary {
    int warnings, lines;
    char last[512];
} diary;

static void note(void *user, cmha_log_level level, const char *line) {
    diary *d = (diary *)user;
    d->warnings += level == CMHA_LOG_WARNING, d->lines++;
    snprintf(d->last, sizeof d->last, "%s", line);
    CHECK(line[0] && !strchr(line, '\n'));
}

/* A BLAS below what the CPU can do is reported once, with the remedy; a good one is not talked about. run.sh
   runs this program with OPENBLAS_CORETYPE=Prescott and Haswell too, so that both happen. */
static void blas_report(void) {
    cmha_context c;
    cmha_context_config config;
    diary d;
    const char *remedy = cmha_blas_remedy();
    memset(&config, 0, sizeof config), memset(&d, 0, sizeof d);
    config.log = note, config.log_user = &d;
    CHECK_OK(cmha_context_init(&c, &config));
    CHECK_THAT(d.warnings == (remedy ? 1 : 0), "%d warnings, remedy %s", d.warnings,
               remedy ? remedy : "none");
    CHECK(!remedy || (strchr(remedy, '=') && strstr(d.last, remedy)));
    cmha_context_close(&c);
    if (getenv("CMHA_TEST_REMEDY"))
        CHECK_THAT(remedy != NULL, "an OpenBLAS that is held to an old kernel has no remedy");
#if defined(__AVX512F__) && !defined(CMHA_NO_SIMD)
    if (getenv("CMHA_TEST_REMEDY"))
        CHECK_THAT(strstr(d.last, "the built-in product takes its place"), "an old kernel: %s", d.last);
#endif
}

static void contexts(void) {
    cmha_context c;
    cmha_context_config config;
    char name[64], version[32];
    volatile size_t size = 4; /* volatile: the compiler would warn about the truncation that is tested here */
    int s;
    memset(&config, 0, sizeof config);
    CHECK_OK(cmha_context_init(&c, NULL));
    CHECK(c.threads >= 1 && !strcmp(cmha_error(&c), ""));
    cmha_context_close(&c), cmha_context_close(&c);
    memset(&c, 0, sizeof c), cmha_context_close(&c);
    config.threads = -1;
    CHECK_IS(cmha_context_init(&c, &config), CMHA_ERR_ARGUMENT);
    cmha_context_close(&c);
    config.threads = 1, config.allocator.allocate = check_heap_allocate;
    CHECK_IS(cmha_context_init(&c, &config), CMHA_ERR_ARGUMENT);
    cmha_context_close(&c);
    for (s = 0; s < CMHA_STATUS_COUNT; s++) CHECK(strlen(cmha_status_string((cmha_status)s)) > 4);
    CHECK(cmha_status_string((cmha_status)999) != NULL && cmha_status_string((cmha_status)-1) != NULL);
    snprintf(version, sizeof version, "%d.%d.%d ", CMHA_VERSION_MAJOR, CMHA_VERSION_MINOR,
             CMHA_VERSION_PATCH);
    CHECK(!strncmp(cmha_version(), version, strlen(version)) &&
          strstr(cmha_version(), sizeof(cmha_real) == 8 ? "double" : "float"));
#if defined(__x86_64__) &&                                                                                   \
    !defined(CMHA_NO_SIMD) /* a CPU with half precision once lost the vector mathematics unnoticed */
    CHECK(!strstr(cmha_version(), "no SIMD"));
#endif
    CHECK(cmha_blas_name(name, sizeof name) == name && name[0]);
    memset(name, 'x', sizeof name);
    cmha_blas_name(name, size);
    CHECK(strlen(name) < size && name[size] == 'x');
}

/* -------------------------------------------- random numbers -------------------------------------------- */

static void random_numbers(void) {
    cmha_rng a = cmha_rng_make(5, 1), b = cmha_rng_make(5, 1), other = cmha_rng_make(5, 2), saved;
    double sum = 0, squares = 0, fourth = 0, x, u = 0;
    int i, same = 0, counts[7] = {0}, small = 0, n = 200000;
    for (i = 0; i < 100; i++) same += cmha_rng_next(&a) == cmha_rng_next(&b);
    CHECK(same == 100);
    saved = a;
    x = cmha_rng_normal(&a);
    CHECK(x == cmha_rng_normal(&saved)); /* the two integers are the whole state */
    for (i = same = 0; i < 100; i++) same += cmha_rng_next(&a) == cmha_rng_next(&other);
    CHECK(same == 0);
    for (i = 0; i < n; i++) {
        x = cmha_rng_uniform(&a);
        if (!(x >= 0 && x < 1)) CHECK(0);
        u += x;
        x = cmha_rng_normal(&a);
        sum += x, squares += x * x, fourth += x * x * x * x;
        counts[cmha_rng_below(&a, 7)]++;
    }
    CHECK_NEAR(u / n, 0.5, 0.005);
    CHECK_NEAR(sum / n, 0, 0.01);
    CHECK_NEAR(squares / n, 1, 0.02);
    CHECK_NEAR(fourth / n, 3, 0.15);
    for (i = 0; i < 7; i++) CHECK_NEAR(counts[i] / (double)n, 1 / 7.0, 0.01);
    CHECK(cmha_rng_below(&a, 1) == 0);
    for (i = 0; i < 3000; i++) small += cmha_rng_below(&a, UINT64_C(3) << 62) < UINT64_C(1) << 62;
    CHECK_NEAR(small / 3000.0, 1 / 3.0, 0.04); /* a half, if numbers of 64 bits were folded */
}

/* -------------------------------------------- configuration --------------------------------------------- */

static void set_fails(cmha_table table, void *config, const char *name, const char *value, cmha_status want) {
    cmha_status got = cmha_config_set(&context, table, config, name, value);
    CHECK_THAT(got == want, "%s=%s: \"%s\", expected \"%s\"", name, value, cmha_status_string(got),
               cmha_status_string(want));
    CHECK_THAT(strlen(cmha_error(&context)) > 0 && strstr(cmha_error(&context), name),
               "%s=%s: the error does not name it: %s", name, value, cmha_error(&context));
}

static void configurations(void) {
    cmha_model_config m, kept;
    cmha_table table = cmha_model_table();
    memset(&m, 0, sizeof m); /* between the fields as well: memcmp looks there */
    cmha_config_defaults(table, &m);
    CHECK(m.n_layers == 8 && m.d_model == 512 && m.causal == 1 && m.tied == 1 &&
          m.attention == CMHA_ATTENTION_CMHA && m.base == 10000);
    CHECK_OK(cmha_config_check(&context, table, &m));
    CHECK_OK(cmha_config_set(&context, table, &m, "attention", "rope"));
    CHECK_OK(cmha_config_set(&context, table, &m, "dropout", "0.25"));
    CHECK_OK(cmha_config_set(&context, table, &m, "base", "1e5"));
    CHECK_OK(cmha_config_set(&context, table, &m, "d_model", "96"));
    CHECK_OK(cmha_config_set(&context, table, &m, "tied", "0"));
    CHECK(m.attention == CMHA_ATTENTION_ROPE && m.dropout == 0.25 && m.base == 1e5 && m.d_model == 96 &&
          m.tied == 0);
    memcpy(&kept, &m, sizeof m);
    set_fails(table, &m, "no_such_field", "1", CMHA_ERR_NOT_FOUND);
    set_fails(table, &m, "attention", "softmax", CMHA_ERR_ARGUMENT);
    set_fails(table, &m, "attention", "", CMHA_ERR_ARGUMENT);
    set_fails(table, &m, "attention", "rop", CMHA_ERR_ARGUMENT);
    set_fails(table, &m, "attention", "cmha|rope", CMHA_ERR_ARGUMENT);
    set_fails(table, &m, "d_model", "0", CMHA_ERR_ARGUMENT);
    set_fails(table, &m, "d_model", "-4", CMHA_ERR_ARGUMENT);
    set_fails(table, &m, "d_model", "64x", CMHA_ERR_ARGUMENT);
    set_fails(table, &m, "d_model", "", CMHA_ERR_ARGUMENT);
    set_fails(table, &m, "d_model", "1.5", CMHA_ERR_ARGUMENT);
    set_fails(table, &m, "d_model", "99999999999999999999999", CMHA_ERR_ARGUMENT);
    set_fails(table, &m, "dropout", "1", CMHA_ERR_ARGUMENT);
    set_fails(table, &m, "dropout", "nan", CMHA_ERR_ARGUMENT);
    set_fails(table, &m, "dropout", "much", CMHA_ERR_ARGUMENT);
    set_fails(table, &m, "tied", "2", CMHA_ERR_ARGUMENT);
    set_fails(table, &m, "tied", "yes please", CMHA_ERR_ARGUMENT);
    CHECK(!memcmp(&kept, &m, sizeof m)); /* failures leave the field alone */
    m.dropout = NAN;
    CHECK_IS(cmha_config_check(&context, table, &m), CMHA_ERR_ARGUMENT);
    m.dropout = 0, m.attention = 17;
    CHECK_IS(cmha_config_check(&context, table, &m), CMHA_ERR_ARGUMENT);
}

/* Every value of every field survives its text, bit for bit */
static void texts(cmha_table table, void *config, void *copy, size_t size) {
    char text[32];
    size_t i, round;
    for (round = 0; round < 20; round++) {
        cmha_config_defaults(table, config);
        for (i = 0; i < table.count; i++) {
            const cmha_field *f = &table.fields[i];
            char *at = (char *)config + f->offset;
            double x = f->minimum + (check_random() + 1) / 2 * (fmin(f->maximum, 1e6) - f->minimum);
            if (f->type == CMHA_FIELD_SIZE) *(size_t *)(void *)at = (size_t)x;
            if (f->type == CMHA_FIELD_NAME)
                snprintf(at, 32, "%.*s", (int)(round % 32), "a.name-of_31+characters.ABCDEFGH");
            if (f->type == CMHA_FIELD_REAL)
                *(double *)(void *)at = round ? x : nextafter(f->initial, f->maximum);
            if (f->type == CMHA_FIELD_ENUM || f->type == CMHA_FIELD_FLAG)
                *(int *)(void *)at =
                    (int)(f->minimum + (double)(round % (size_t)(f->maximum - f->minimum + 1)));
        }
        memset(copy, 0, size);
        cmha_config_defaults(table, copy);
        for (i = 0; i < table.count; i++) {
            cmha_config_get(table, config, table.fields[i].name, text, sizeof text);
            CHECK_THAT(!cmha_config_set(&context, table, copy, table.fields[i].name, text), "%s",
                       cmha_error(&context));
        }
        for (i = 0; i < table.count; i++) {
            size_t n = table.fields[i].type == CMHA_FIELD_SIZE ? sizeof(size_t)
                       : table.fields[i].type == CMHA_FIELD_REAL ? sizeof(double)
                       : table.fields[i].type == CMHA_FIELD_NAME ? 32 : sizeof(int);
            CHECK_THAT(!memcmp((char *)config + table.fields[i].offset, (char *)copy + table.fields[i].offset,
                               n),
                       "%s does not survive its text", table.fields[i].name);
        }
    }
}

/* Numbers as text are what the C library prints, the shorter of 15 and 17 digits that reads back, and are
   read to the bit, in any locale */
static void numbers(void) {
    static const double special[] = {0, -0.0, 1, 0.1, 1e15, 1e16, 999999999999999.5, 123456, 0.0001, 0.00001,
                                     9.9999999999999995e-5, 5e-324, 2.2250738585072014e-308, DBL_MAX,
                                     -DBL_MAX, 4503599627370497.5, 9007199254740993.0, 1e22, 1e23};
    static const char *const locales[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "ps_AF.UTF-8"};
    static const char *const wrong[] = {"", "-", "+", ".", "1e", "1e-", "1e5.0", "0x1", " 1", "1 ", "--1",
                                        "1..2", "1,5", "nan", "+inf", "e5"};
    static const cmha_field field = {"x", CMHA_FIELD_REAL, 0, 0, -DBL_MAX, DBL_MAX, NULL, "a number"};
    cmha_table table = {&field, 1};
    size_t n = check_quick() ? 20000 : 200000, i, j;
    char text[32], want[64];
    double x, back;
    for (i = 0; i < n; i++) {
        uint64_t bits = (uint64_t)((check_random() + 1) * 2147483648.0) << 32;
        bits |= (uint64_t)((check_random() + 1) * 2147483648.0);
        memcpy(&x, &bits, sizeof x);
        if (i % 2) x = (double)(int)(check_random() * 1e6) / (i % 4 == 1 ? 1000 : 1e9);
        if (i < sizeof special / sizeof *special) x = special[i];
        if (!(fabs(x) <= DBL_MAX)) continue;
        snprintf(want, sizeof want, "%.15g", x);
        if (strtod(want, NULL) - x < 0 || strtod(want, NULL) - x > 0) snprintf(want, sizeof want, "%.17g", x);
        cmha_config_get(table, &x, "x", text, sizeof text);
        CHECK_THAT(!strcmp(text, want), "%s is written as %s", want, text);
        for (j = 0; j < 3 && i % 100 == 0; j++) {
            if (!setlocale(LC_NUMERIC, locales[j])) continue;
            cmha_config_get(table, &x, "x", want, sizeof want);
            CHECK_THAT(!strcmp(text, want), "%s: %s is written as %s", locales[j], text, want);
            CHECK(!cmha_config_set(&context, table, &back, "x", text) && !memcmp(&x, &back, sizeof x));
            setlocale(LC_NUMERIC, "C");
        }
        CHECK_THAT(!cmha_config_set(&context, table, &back, "x", text) && !memcmp(&x, &back, sizeof x),
                   "%s is read as %.17g", text, back);
    }
    for (i = 0; i < sizeof wrong / sizeof *wrong; i++) set_fails(table, &x, "x", wrong[i], CMHA_ERR_ARGUMENT);
    CHECK_OK(cmha_config_set(&context, table, &x, "x", "+2.5E+1"));
    CHECK(x == 25);
    CHECK_IS(cmha_config_set(&context, table, &x, "x", "1e999999999999999999999"), CMHA_ERR_ARGUMENT);
    CHECK_THAT(strstr(cmha_error(&context), "from -1.797693135e+308 to 1.797693135e+308"), "%s",
               cmha_error(&context));
}

static void tables(void) {
    cmha_model_config m, m2;
    cmha_trainer_config t, t2;
    cmha_sampler_config s, s2;
    texts(cmha_model_table(), &m, &m2, sizeof m);
    texts(cmha_trainer_table(), &t, &t2, sizeof t);
    texts(cmha_sampler_table(), &s, &s2, sizeof s);
}

/* Each value of a choice has one word, which sets it and is given back */
static void words(void) {
    cmha_table tables[2] = {cmha_model_table(), cmha_trainer_table()};
    cmha_model_config m;
    cmha_trainer_config t;
    size_t which, i;
    for (which = 0; which < 2; which++)
        for (i = 0; i < tables[which].count; i++) {
            const cmha_field *f = &tables[which].fields[i];
            void *config = which ? (void *)&t : (void *)&m;
            char all[256], *word;
            int value = (int)f->minimum;
            if (f->type != CMHA_FIELD_ENUM) continue;
            cmha_config_defaults(tables[which], config);
            CHECK_THAT(!strstr(f->choices, "||") && f->choices[0] != '|', "%s: an empty word", f->name);
            snprintf(all, sizeof all, "%s", f->choices);
            for (word = strtok(all, "|"); word; word = strtok(NULL, "|"), value++) {
                char text[32];
                CHECK_THAT(!cmha_config_set(&context, tables[which], config, f->name, word) &&
                               *(int *)(void *)((char *)config + f->offset) == value,
                           "%s = %s is not %d", f->name, word, value);
                cmha_config_get(tables[which], config, f->name, text, sizeof text);
                CHECK_THAT(!strcmp(text, word), "%s: %s becomes %s", f->name, word, text);
            }
            CHECK_THAT(value == (int)f->maximum + 1, "%s: words up to %d, values to %g", f->name, value - 1,
                       f->maximum);
        }
}

/* Every field of every preset: these, as the papers and their authors' code have them, and defaults else. A
   word that the rows misspell would be passed over. */
static const char *const preset_fields[][3] = {
    {"tiny", "n_layers=4 d_model=128 n_heads=4 d_ff=512 delta_init=rope_start",
     "steps=1500 batch=16 length=128 lr=0.003 min_lr=0.0001 beta2=0.99 adam_eps=1e-8 weight_decay=0.1"},
    {"fast", "n_layers=4 d_model=128 n_heads=4 d_ff=512 delta_init=rope_start qk_norm=rms",
     "steps=550 batch=16 length=128 lr=0.012 beta2=0.99 adam_eps=1e-8 weight_decay=0.1 schedule=linear "
     "optimiser=muon"},
    {"encoder", "n_layers=4 d_model=128 n_heads=4 d_ff=512 attention=rope causal=0 token_types=2 classes=2 "
     "pool=mean dropout=0.1", "batch=32 length=64 lr=0.001 beta2=0.99 adam_eps=1e-8"},
    {"paper", "dropout=0.1 attention_dropout=0.1", ""},
    {"repo", "delta_std=0.17677669529663687 layout=half score_scale=1 norm=rmsnorm activation=swiglu tied=0 "
     "head_bias=1 residual_scale=0.2", ""},
    {"eulerformer", "share=shared delta_init=const delta_value=1 placement=post attention_bias=1 dropout=0.1 "
     "attention_dropout=0.1 pcl_weight=0.01 pcl_adapted=1", ""},
    {"cope", "n_layers=6 d_model=256 vocabulary=30522 max_positions=512 family=cope attention=dot causal=0 "
     "token_types=2 classes=2 placement=post activation=relu output_bias=1 dropout=0.2 "
     "attention_dropout=0.2 init=xavier", "batch=512 length=256 min_lr=1e-5 warmup=0 schedule=linear"},
    {"mobiusbert", "n_layers=11 d_model=768 n_heads=12 d_ff=3072 vocabulary=30522 max_positions=512 "
     "family=mobius attention=dot position=learned causal=0 token_types=2 placement=post attention_bias=1 "
     "head_bias=1 dropout=0.1 attention_dropout=0.1 mobius_heads=6", "length=128 schedule=linear"},
    {"mobroformer", "n_layers=12 d_model=768 n_heads=12 d_ff=3072 vocabulary=30522 max_positions=512 "
     "family=mobius attention=rope position=learned causal=0 token_types=2 placement=post attention_bias=1 "
     "head_bias=1 dropout=0.1 attention_dropout=0.1 mobius_heads=6", "length=128 schedule=linear"},
    {"crat", "n_layers=12 d_model=768 d_ff=1024 family=crat attention=dot position=multifreq real_heads=2 "
     "imag_heads=2 experts=8 experts_top=2 complex_residual=free irw_layers=1 dropout=0.1 phase_reg=1e-4 "
     "mag_reg=1e-4 embedding_scale=1", "clip_mode=tensors"}};

static void preset_rows(void) {
    cmha_model_config m, want_m;
    cmha_trainer_config t, want_t;
    memset(&m, 0, sizeof m), memset(&want_m, 0, sizeof m); /* between the fields as well */
    memset(&t, 0, sizeof t), memset(&want_t, 0, sizeof t);
    for (size_t i = 0; i < sizeof preset_fields / sizeof *preset_fields; i++) {
        const char *const *row = preset_fields[i];
        const char *name = cmha_preset_name(i);
        CHECK_THAT(name && !strcmp(name, row[0]), "preset %zu is no %s", i, row[0]);
        CHECK_OK(cmha_preset(NULL, row[0], &m, &t));
        cmha_config_defaults(cmha_model_table(), &want_m);
        cmha_config_defaults(cmha_trainer_table(), &want_t);
        CHECK_OK(cmha_config_set_all(&context, cmha_model_table(), &want_m, row[1]));
        CHECK_OK(cmha_config_set_all(&context, cmha_trainer_table(), &want_t, row[2]));
        CHECK_THAT(!memcmp(&m, &want_m, sizeof m), "%s: a field of the model", row[0]);
        CHECK_THAT(!memcmp(&t, &want_t, sizeof t), "%s: a field of the trainer", row[0]);
    }
}

static void presets(void) {
    const char *name;
    cmha_model_config m;
    cmha_trainer_config t;
    size_t i;
    for (i = 0; (name = cmha_preset_name(i)) != NULL; i++) {
        CHECK_OK(cmha_preset(NULL, name, &m, &t));
        CHECK_OK(cmha_config_check(&context, cmha_model_table(), &m));
        CHECK_OK(cmha_config_check(&context, cmha_trainer_table(), &t));
    }
    CHECK(i == 10);
    preset_rows();
    CHECK_OK(cmha_preset(NULL, "paper", &m, &t));
    CHECK(m.n_layers == 8 && m.d_model == 512 && m.n_heads == 8 && m.d_ff == 1024 && m.dropout == 0.1 &&
          t.lr == 1e-4 && m.delta_std == 0.02);
    CHECK_OK(cmha_preset(NULL, "tiny", NULL, &t));
    CHECK_IS(cmha_preset(NULL, "huge", &m, &t), CMHA_ERR_NOT_FOUND);
}

/* ------------------------------------------------- GEMM ------------------------------------------------- */

static double naive(int ta, int tb, size_t K, const cmha_real *A, size_t lda, const cmha_real *B, size_t ldb,
                    size_t i, size_t j) {
    double sum = 0;
    size_t k;
    for (k = 0; k < K; k++)
        sum +=
            (double)(ta ? A[k * lda + i] : A[i * lda + k]) * (double)(tb ? B[j * ldb + k] : B[k * ldb + j]);
    return sum;
}

static void gemm(int ta, int tb, size_t M, size_t N, size_t K, double alpha, double beta, size_t pad) {
    size_t lda = (ta ? M : K) + pad, ldb = (tb ? K : N) + pad, ldc = N + pad, rows = ta ? K : M, i, j;
    cmha_real *A = check_array(rows * lda + 1, 1), *B = check_array((tb ? N : K) * ldb + 1, 1),
              *C = check_array(M * ldc + 1, 1);
    cmha_real *old = check_zeros(M * ldc + 1);
    double worst = 0, want, d, kept = 0;
    memcpy(old, C, (M * ldc + 1) * sizeof *C);
    if (beta == 0)
        for (i = 0; i < M; i++)
            for (j = 0; j < N; j++) C[i * ldc + j] = (cmha_real)NAN;
    cmha_gemm(ta, tb, M, N, K, (cmha_real)alpha, A, lda, B, ldb, (cmha_real)beta, C, ldc);
    for (i = 0; i < M; i++)
        for (j = 0; j < ldc; j++) {
            want = j < N ? alpha * naive(ta, tb, K, A, lda, B, ldb, i, j) +
                               (beta == 0 ? 0 : beta * (double)old[i * ldc + j])
                         : (double)old[i * ldc + j];
            d = fabs(want - (double)C[i * ldc + j]);
            if (j >= N) kept = fmax(kept, d);
            worst = d <= worst ? worst : d == d ? d : HUGE_VAL;
        }
    CHECK_THAT(worst <= check_tolerance(1e-13, 1e-6) * (1 + (double)K) && kept == 0,
               "gemm %d%d %zu x %zu x %zu alpha %g beta %g pad %zu: off by %.3g", ta, tb, M, N, K, alpha,
               beta, pad, worst);
    free(A), free(B), free(C), free(old);
}

static void gemms(void) {
    static const size_t sizes[] = {1, 2, 3, 7, 8, 15, 17, 33, 64, 65, 100};
    static const double factors[] = {0, 1, -0.5};
    int ta, tb;
    size_t i;
    for (ta = 0; ta < 2; ta++)
        for (tb = 0; tb < 2; tb++) {
            for (i = 0; i < 60; i++)
                gemm(ta, tb, sizes[check_below(11)], sizes[check_below(11)], sizes[check_below(11)],
                     factors[check_below(3)], factors[check_below(3)], check_below(2) * 3);
            gemm(ta, tb, 131, 70, 300, 1, 1, 1), gemm(ta, tb, 5, 260, 513, 2, 0, 0),
                gemm(ta, tb, 3, 4, 0, 1, 0.5, 0);
            gemm(ta, tb, 3, 4, 0, 1, 0, 0), gemm(ta, tb, 0, 4, 3, 1, 0, 0), gemm(ta, tb, 4, 0, 3, 1, 0, 0),
                gemm(ta, tb, 4, 5, 3, 0, 0, 2);
        }
}

/* ------------------------------------------ vector mathematics ------------------------------------------ */

/* |got - want| in units of the result's size, plus a floor where the result underflows */
/* Rows of a linear map by one thread and by three: the built-in product has one order of each sum. */
static void linear_rows(size_t T, size_t O, size_t I) {
    const size_t xs[2] = {T, I}, ws[2] = {O, I};
    cmha_real *x = check_array(T * I, 1), *w = check_array(O * I, 1), *first = check_zeros(T * O);
    double worst = 0;
    int run;
    for (run = 0; run < 2; run++) {
        cmha_context own;
        cmha_tape tape;
        check_context(&own, run ? 3 : 1, 0);
        CHECK_OK(cmha_tape_init(&tape, &own, 0));
        cmha_tensor *y = cmha_linear(&tape, cmha_tensor_wrap(&tape, 2, xs, x, NULL),
                                     cmha_tensor_wrap(&tape, 2, ws, w, NULL), NULL);
        if (CHECK(y && y->size == T * O) && !run) memcpy(first, y->data, T * O * sizeof *first);
        else if (y)
            CHECK_THAT(!memcmp(first, y->data, T * O * sizeof *first),
                       "linear %zu x %zu x %zu by three threads", T, O, I);
        cmha_tape_close(&tape), cmha_context_close(&own);
    }
    for (size_t i = 0; i < T; i++)
        for (size_t j = 0; j < O; j++) {
            double d = fabs((double)first[i * O + j] - naive(0, 1, I, x, I, w, I, i, j));
            worst = d <= worst ? worst : d == d ? d : HUGE_VAL;
        }
    CHECK_THAT(worst <= check_tolerance(1e-13, 1e-6) * (1 + (double)I),
               "linear %zu x %zu x %zu: off by %.3g", T, O, I, worst);
    free(x), free(w), free(first);
}

static void near_all(const char *what, const cmha_real *got, const double *want, size_t n, double relative,
                     double floor_) {
    double worst = 0, d;
    size_t i, at = 0;
    for (i = 0; i < n; i++) {
        d = fabs((double)got[i] - want[i]) / (fabs(want[i]) * relative + floor_);
        if (!(d <= worst)) worst = d == d ? d : HUGE_VAL, at = i;
    }
    CHECK_THAT(worst <= 1, "%s[%zu]: %.9g, expected %.9g (%.1f of the tolerance)", what, at, (double)got[at],
               want[at], worst);
}

static void activations(void) {
    enum { N = 4001 };
    static cmha_real x[N], y[N], dx[N], one[N];
    static double want[N], slope[N];
    double r = check_tolerance(1e-13, 1e-6), f = check_tolerance(1e-15, 1e-7);
    size_t i;
    /* -20 .. 20 */
    for (i = 0; i < N; i++) x[i] = (cmha_real)(((double)i - 2000) / 100), one[i] = 1, dx[i] = 0;
    for (i = 0; i < N; i++) {
        want[i] = (double)x[i] / 2 * erfc(-(double)x[i] * sqrt(0.5));
        slope[i] = 0.5 * erfc(-(double)x[i] * sqrt(0.5)) +
                   (double)x[i] * exp(-(double)x[i] * (double)x[i] / 2) * 0.3989422804014327;
    }
    cmha_activation_forward(x, N, CMHA_ACTIVATION_GELU_ERF, y);
    near_all("gelu_erf", y, want, N, r, 5 * f); /* 1 + erf cancels on the far left */
    cmha_activation_backward(x, one, N, CMHA_ACTIVATION_GELU_ERF, dx);
    near_all("gelu_erf'", dx, slope, N, 4 * r, 4 * f);
    for (i = 0; i < N; i++) {
        double z = (double)x[i];
        want[i] = z / 2 * (1 + tanh(0.7978845608028654 * (z + 0.044715 * z * z * z)));
    }
    cmha_activation_forward(x, N, CMHA_ACTIVATION_GELU_TANH, y);
    near_all("gelu_tanh", y, want, N, r, 4 * f);
    for (i = 0; i < N; i++) want[i] = (double)x[i] * 5 / (1 + exp(-(double)x[i] * 5)), dx[i] = x[i] * 5;
    cmha_gated_forward(dx, one, N, CMHA_ACTIVATION_SWIGLU, y);
    near_all("swiglu", y, want, N, 4 * r, f);
    for (i = 0; i < N; i++) x[i] = (cmha_real)(-20 - (double)i / 100);
    for (i = 0; i < N; i++) want[i] = (double)x[i] / (1 + exp(-(double)x[i]));
    cmha_gated_forward(x, one, N, CMHA_ACTIVATION_SWIGLU, y); /* far on the left it is x exp(x) */
    near_all("exp", y, want, N, r, 0);
    x[0] = (cmha_real)1e30, x[1] = (cmha_real)-1e30;
    cmha_activation_forward(x, 2, CMHA_ACTIVATION_GELU_ERF, y);
    CHECK(y[0] == x[0] && y[1] == 0);
    cmha_activation_forward(x, 2, CMHA_ACTIVATION_GELU_TANH, y);
    CHECK(y[0] == x[0] && y[1] == 0);
    cmha_gated_forward(x, one, 2, CMHA_ACTIVATION_SWIGLU, y);
    CHECK(y[0] == x[0] && y[1] == 0);
    x[0] = (cmha_real)NAN; /* no maths that loses a NaN */
    cmha_activation_forward(x, 1, CMHA_ACTIVATION_GELU_ERF, y);
    CHECK(y[0] != y[0]);
    cmha_gated_forward(x, one, 1, CMHA_ACTIVATION_SWIGLU, y);
    CHECK(y[0] != y[0]);
}

static void phases(void) {
    enum { N = 720, SPECIAL = 9 };
    static cmha_real x[2 * (N + SPECIAL)], modulus[N + SPECIAL], phase[N + SPECIAL];
    static double want[N + SPECIAL], length[N + SPECIAL];
    static const double special[SPECIAL][2] = {{0, 0},  {-0.0, 0},  {-1, 0},        {1, 0},        {0, 1},
                                               {0, -1}, {-1, -0.0}, {-3e-5, 1e-12}, {1e-18, 1e-18}};
    const cmha_euler_args rows = {N + SPECIAL, 1, CMHA_LAYOUT_INTERLEAVED};
    size_t i;
    for (i = 0; i < N + SPECIAL; i++) {
        double radius = pow(10, check_random() * 5), angle = 2 * 3.14159265358979 * (double)i / (double)N;
        x[2 * i] = (cmha_real)(i < N ? radius * cos(angle) : special[i - N][0]);
        x[2 * i + 1] = (cmha_real)(i < N ? radius * sin(angle) : special[i - N][1]);
        length[i] = hypot((double)x[2 * i], (double)x[2 * i + 1]);
        want[i] = length[i] == 0 ? 0 : atan2((double)x[2 * i + 1], (double)x[2 * i]);
    }
    cmha_euler_forward(&rows, x, modulus, phase);
    near_all("phase", phase, want, N + SPECIAL, check_tolerance(1e-14, 5e-7), 1e-300);
    near_all("modulus", modulus, length, N + SPECIAL - 1, check_tolerance(1e-14, 5e-7), 1e-300);
    CHECK(phase[N + 2] > 0 && phase[N + 1] == 0);
}

static void entropy(void) {
    cmha_real logits[12] = {1, 2, 3, 1e4f, -1e4f, 0, -500, -500, -500, 0, 0, 0}, lse[8];
    int32_t targets[4] = {2, 0, 1, -1};
    size_t counted;
    const cmha_cross_entropy_args args = {4, 3, targets, -1}, none = {0, 3, targets, -1};
    double loss = cmha_cross_entropy_forward(&args, logits, lse, &counted);
    CHECK(counted == 3);
    CHECK_NEAR(loss, log(exp(-2) + exp(-1) + 1) + 0 + log(3), 1e-6);
    CHECK_NEAR(cmha_cross_entropy_forward(&args, logits, NULL, NULL), loss, 0);
    CHECK(cmha_cross_entropy_forward(&none, logits, NULL, &counted) == 0 && counted == 0);
}

static void dropout(void) {
    enum { N = 100000 };
    static cmha_real x[N], y[N], z[N];
    double sum = 0, p = 0.3;
    size_t i, dropped = 0;
    for (i = 0; i < N; i++) x[i] = 1;
    cmha_dropout_forward(x, N, (cmha_real)p, 9, 0, y);
    for (i = 0; i < N; i++) sum += y[i], dropped += y[i] == 0;
    CHECK_NEAR((double)dropped / (double)N, p, 0.01);
    CHECK_NEAR(sum / (double)N, 1, 0.01);
    cmha_dropout_forward(x, 777, (cmha_real)p, 9, 0, z),
        cmha_dropout_forward(x, N - 777, (cmha_real)p, 9, 777, z + 777);
    CHECK(!memcmp(y, z, sizeof y)); /* any split draws the same bits */
    cmha_dropout_forward(x, N, (cmha_real)p, 10, 0, z);
    CHECK(memcmp(y, z, sizeof y));
    cmha_dropout_forward(x, N, 0, 9, 0, z);
    CHECK(!memcmp(x, z, sizeof x));
    cmha_dropout_forward(x, N, (cmha_real)p, 9, 0, x);
    CHECK(!memcmp(x, y, sizeof x)); /* in place */
}

static double rate_at(cmha_schedule schedule, double base, double minimum, size_t warmup, size_t total,
                      size_t s) {
    const cmha_rate rate = {schedule, base, minimum, warmup, total, 0.25};
    return cmha_learning_rate(&rate, s);
}

static void schedules(void) {
    cmha_rate wsd = {CMHA_SCHEDULE_WSD, 1, 0.1, 10, 100, 0.25};
    CHECK_NEAR(cmha_learning_rate(&wsd, 5), 0.5, 1e-15);
    CHECK_NEAR(cmha_learning_rate(&wsd, 75), 1, 0);
    CHECK_NEAR(cmha_learning_rate(&wsd, 85), 0.64, 1e-15);
    CHECK_NEAR(cmha_learning_rate(&wsd, 100), 0.1, 1e-15);
    CHECK_NEAR(cmha_learning_rate(&wsd, 5000), 0.1, 1e-15);
    wsd.share = 0; /* it never falls */
    CHECK_NEAR(cmha_learning_rate(&wsd, 5000), 1, 0);
    wsd.share = 1, wsd.warmup = 0; /* a line */
    CHECK_NEAR(cmha_learning_rate(&wsd, 50), 0.55, 1e-15);
    wsd.share = 1, wsd.warmup = 80; /* the warm-up goes first */
    CHECK_NEAR(cmha_learning_rate(&wsd, 40), 0.5, 1e-15);
    CHECK_NEAR(cmha_learning_rate(&wsd, 80), 0.28, 1e-15);
    CHECK_NEAR(rate_at(CMHA_SCHEDULE_COSINE, 1, 0.1, 10, 100, 0), 0, 0);
    CHECK_NEAR(rate_at(CMHA_SCHEDULE_COSINE, 1, 0.1, 10, 100, 5), 0.5, 1e-15);
    CHECK_NEAR(rate_at(CMHA_SCHEDULE_COSINE, 1, 0.1, 10, 100, 10), 1, 1e-15);
    CHECK_NEAR(rate_at(CMHA_SCHEDULE_COSINE, 1, 0.1, 10, 100, 55), 0.55, 1e-12);
    CHECK_NEAR(rate_at(CMHA_SCHEDULE_LINEAR, 1, 0.1, 10, 100, 55), 0.55, 1e-12);
    CHECK_NEAR(rate_at(CMHA_SCHEDULE_LINEAR, 1, 0.1, 10, 100, 28), 0.82, 1e-12);
    CHECK_NEAR(rate_at(CMHA_SCHEDULE_COSINE, 1, 0.1, 10, 100, 5000), 0.1, 1e-15);
    CHECK_NEAR(rate_at(CMHA_SCHEDULE_LINEAR, 1, 0.1, 10, 100, 5000), 0.1, 1e-15);
    CHECK_NEAR(rate_at(CMHA_SCHEDULE_CONSTANT, 1, 0.1, 10, 100, 5000), 1, 0);
    CHECK_NEAR(rate_at(CMHA_SCHEDULE_CONSTANT, 1, 0.1, 10, 100, 1), 0.1, 1e-15);
    CHECK_NEAR(rate_at(CMHA_SCHEDULE_COSINE, 1, 0.1, 0, 0, 0), 1, 0.91);
}

/* Sizes of zero are fine everywhere */
static void nothing(void) {
    const cmha_norm_args layer = {CMHA_NORM_LAYER, 0, 1, 1}, rms = {CMHA_NORM_RMS, 0, 1, 1};
    const cmha_euler_args euler = {0, 1, CMHA_LAYOUT_HALF};
    cmha_real x = 5, y = 7;
    cmha_norm_forward(&layer, &x, &x, NULL, &y, &y), cmha_norm_forward(&rms, &x, &x, NULL, &y, &y);
    cmha_activation_forward(&x, 0, CMHA_ACTIVATION_GELU_ERF, &y);
    cmha_gated_forward(&x, &x, 0, CMHA_ACTIVATION_SWIGLU, &y);
    cmha_dropout_forward(&x, 0, 0.5, 1, 0, &y);
    cmha_embedding_forward(&x, NULL, 0, 1, &y), cmha_euler_forward(&euler, &x, &y, &y);
    cmha_cope_table(CMHA_COPE_IMAG_SIN_COS, 0, 2, 10000, 0, &y), cmha_rotation_table(NULL, 0, 3, 0, &y);
    CHECK(y == 7);
}

int main(int argc, char **argv) {
    (void)argc;
    cmha_blas_restart(argv);
    contexts(), blas_report();
    check_context(&context, 1, 0);
    random_numbers();
    configurations(), numbers(), tables(), words(), presets();
    gemms();
    linear_rows(64, 32, 32), linear_rows(131, 65, 33), linear_rows(97, 128, 150), linear_rows(70, 33, 384);
    linear_rows(200, 64, 129);
#ifdef CMHA_NO_CBLAS /* columns in pieces, then depth beyond one */
    linear_rows(80, 300, 260), linear_rows(66, 130, 2100);
#endif
    activations(), phases(), entropy(), dropout(), schedules(), nothing();
    cmha_context_close(&context);
    return check_end();
}
