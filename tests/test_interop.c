/* safetensors between this library and Python: interop.py, a reader and writer of its own
   (and the Python library, where it is installed), reads what is written here, number by
   number, and writes what is read here. */
#define _POSIX_C_SOURCE 200809L
#define _DARWIN_C_SOURCE
#include "check.h"

#include <unistd.h>

static char folder[64] = "/tmp/cmha-interop-XXXXXX";
static cmha_context context;

static const char *path_of(const char *name) {
    static char path[4][512];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

/* As in interop.py */
static double value(size_t i) { return ((double)(i % 16) - 7) * (i % 3 ? 0.5 : 8.0); }

/* The same of complex numbers [4, 3], number i / 2's real part or, i odd, the other one, as planes. */
static size_t plane_place(size_t i) { return i / 6 * 6 + i % 2 * 3 + i / 2 % 3; }

static void write_ours(void) {
    static const size_t matrix[2] = {4, 6}, three[1] = {3}, none[2] = {2, 0}, complex_shape[2] = {4, 3};
    static const char *const metadata[] =
        {"key", "value", "odd \"key\"\\",
         "tab\t, line\n, \xC3\xA9, \xE2\x82\xAC, \xF0\x9F\x98\x80, \x01, \x7F"};
    cmha_real x[24], z[24];
    cmha_archive_item items[5] = {{"matrix", x, matrix, 2, NULL},
                                  {"caf\xC3\xA9 \"quoted\"", x, three, 1, NULL},
                                  {"none", x, none, 2, NULL},
                                  {"scalar", x, NULL, 0, NULL},
                                  {"complex", z, complex_shape, 2, "C64"}};
    size_t i;
    for (i = 0; i < 24; i++) x[i] = z[plane_place(i)] = (cmha_real)value(i);
    CHECK_OK(cmha_archive_write(&context, path_of("ours.safetensors"), items, 5, metadata, 2));
}

/* Tensor `name` is [4, 6] or as many numbers in another shape, and holds value(i) times `factor`. */
static void holds(const char *file, const char *name, double factor) {
    cmha_archive a;
    const cmha_archive_tensor *t;
    cmha_real x[24];
    int64_t whole[24];
    size_t i;
    if (!CHECK_THAT(!cmha_archive_open(&a, &context, path_of(file)), "%s", cmha_error(&context))) return;
    t = cmha_archive_find(&a, name);
    if (CHECK_THAT(t && t->count == 24, "%s: no %s of 24 numbers", file, name)) {
        CHECK_THAT(!cmha_archive_read(&a, t, x), "%s", cmha_error(&context));
        for (i = 0; i < 24; i++)
            CHECK_NEAR(x[strcmp(t->dtype, "C64") ? i : plane_place(i)], factor * value(i), 0);
        if (!strcmp(t->dtype, "I64")) {
            CHECK_OK(cmha_archive_read_i64(&a, t, whole));
            for (i = 0; i < 24; i++) CHECK_NEAR(whole[i], factor * value(i), 0);
        }
    }
    cmha_archive_close(&a);
}

static void read_theirs(void) {
    static const char *const dtypes[] = {"F64", "F32", "F16", "BF16", "I64"};
    char name[64];
    cmha_archive a;
    size_t i;
    for (i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "%s.safetensors", dtypes[i]);
        holds(name, dtypes[i], i == 4 ? 8 : 1);
        if (!access(path_of("library.safetensors"), F_OK))
            holds("library.safetensors", dtypes[i], i == 4 ? 8 : 1);
    }
    holds("blanks.safetensors", "z", 1), holds("C64.safetensors", "C64", 1);
    if (!CHECK_THAT(!cmha_archive_open(&a, &context, path_of("blanks.safetensors")), "%s",
                    cmha_error(&context)))
        return;
    CHECK(cmha_archive_find(&a, "\xE2\x82\xAC") && !strcmp(cmha_archive_metadata(&a, "\xC3\xA9"), "\n"));
    cmha_archive_close(&a);
}

/* Two files hold the same tensors, whatever their dtypes. */
static void same(const char *one, const char *other) {
    cmha_archive a, b;
    size_t i;
    if (!CHECK_THAT(!cmha_archive_open(&a, &context, one), "%s", cmha_error(&context))) return;
    if (CHECK_THAT(!cmha_archive_open(&b, &context, other), "%s", cmha_error(&context))) {
        CHECK(a.n_tensors == b.n_tensors && a.n_metadata == b.n_metadata);
        for (i = 0; i < a.n_tensors; i++) {
            const cmha_archive_tensor *t = &a.tensors[i], *u = cmha_archive_find(&b, t->name);
            cmha_real *x = check_zeros(t->count), *y = check_zeros(t->count);
            if (CHECK_THAT(u && u->rank == t->rank && u->count == t->count, "%s", t->name)) {
                CHECK_OK(cmha_archive_read(&a, t, x)), CHECK_OK(cmha_archive_read(&b, u, y));
                CHECK_THAT(!memcmp(x, y, t->count * sizeof *x), "%s: the numbers differ", t->name);
            }
            free(x), free(y);
        }
        cmha_archive_close(&b);
    }
    cmha_archive_close(&a);
}

static void clean_up(void) {
    static const char *const names[] = {"ours", "F64",    "F32",     "F16",    "BF16",
                                        "I64",  "blanks", "library", "again0", "again1",
                                        "C64"};
    char name[64];
    size_t i;
    for (i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(name, sizeof name, "%s.safetensors", names[i]);
        remove(path_of(name));
    }
    remove(path_of("log"));
    CHECK(!rmdir(folder));
}

int main(int argc, char **argv) {
    /* by the Python library */
    static const char *const given[] = {"../shared/data/weights/safetensors/mnist.safetensors",
                                        "tests/cases/own_linear_17_to_9.safetensors"};
    char command[2048], again[32];
    const char *found[2];
    size_t n = 0, i;
    (void)argc;
    cmha_blas_restart(argv);
    if (!mkdtemp(folder)) return 3;
    check_context(&context, 1, 1);
    write_ours();
    for (i = 0; i < 2; i++)
        if (!access(given[i], R_OK)) found[n++] = given[i];
    if (access("tests/interop.py", R_OK) || system("python3 -c pass 2> /dev/null"))
        printf("SKIP there is no python3\n");
    else {
        snprintf(command, sizeof command, "python3 tests/interop.py %s %s %s > %s 2>&1", folder,
                 n > 0 ? found[0] : "", n > 1 ? found[1] : "", path_of("log"));
        if (CHECK_THAT(!system(command), "interop.py fails")) {
            read_theirs();
            for (i = 0; i < n; i++)
                snprintf(again, sizeof again, "again%zu.safetensors", i), same(found[i], path_of(again));
        } else if (snprintf(command, sizeof command, "tail -n 3 %s", path_of("log")) < 0 || system(command))
            return 3;
    }
    cmha_context_close(&context);
    clean_up();
    return check_end();
}
