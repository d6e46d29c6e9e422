/* Hostile files: whatever a file is, every reader answers with a status and one line, keeps no memory, and
   leaves what was loaded before bit for bit as it was; and a save that fails leaves the old file. Everything
   is made here, in a temporary folder. */
#ifdef __linux__
#define _GNU_SOURCE /* unshare */
#else
#define _POSIX_C_SOURCE 200809L
#define _DARWIN_C_SOURCE
#endif
#include "check.h"
#include "system.h"

#include "examples/tools/text.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sched.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>
#endif

static char folder[64] = "/tmp/cmha-hostile-XXXXXX";
static check_heap heap;
static cmha_context context;
static cmha_model model; /* what was loaded before */
static cmha_trainer trainer;
static cmha_real *kept;   /* its weights and moments */
static size_t said;       /* lines in the log */
static char log_text[8192];
/* is cut to cut_at bytes at the allocation number cut_call: a file that shrinks while it is read */
static const char *cut_file;
static size_t cut_call, cut_at;

static const char *path_of(const char *name) {
    static char path[4][512];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static void put(const char *path, const void *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    if (!CHECK_THAT(f && fwrite(bytes, 1, n, f) == n, "cannot write %s", path)) exit(3);
    fclose(f);
}

static unsigned char *get(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    unsigned char *bytes;
    if (!CHECK_THAT(f != NULL, "%s is not there", path)) exit(3);
    fseek(f, 0, SEEK_END), *n = (size_t)ftell(f), rewind(f);
    bytes = (unsigned char *)check_alloc(*n + 1, 1);
    if (!CHECK(fread(bytes, 1, *n, f) == *n)) exit(3);
    fclose(f);
    return bytes;
}

/* A safetensors file */
static void put_archive(const char *path, const char *header, size_t length, const void *data, size_t n) {
    size_t i;
    unsigned char *bytes = (unsigned char *)check_alloc(8 + length + n, 1);
    for (i = 0; i < 8; i++) bytes[i] = (unsigned char)((uint64_t)length >> (8 * i));
    memcpy(bytes + 8, header, length);
    if (n) memcpy(bytes + 8 + length, data, n);
    put(path, bytes, 8 + length + n);
    free(bytes);
}

static void on_log(void *user, cmha_log_level level, const char *line) {
    (void)user, (void)level;
    said++;
    if (strlen(log_text) + strlen(line) + 2 < sizeof log_text) strcat(log_text, line), strcat(log_text, "\n");
}

static void *allocate(void *user, size_t bytes) {
    check_heap *h = (check_heap *)user;
    if (cut_file && h->calls + 1 == cut_call && truncate(cut_file, (off_t)cut_at)) return NULL;
    return check_heap_allocate(user, bytes);
}

/* ---- what was loaded before ---- */

static const char tiny[] = "n_layers=1 d_model=4 n_heads=2 d_ff=4 vocabulary=5 tied=0";

static void open_model(void) {
    cmha_model small;
    cmha_model_config m;
    cmha_trainer_config t;
    size_t i;
    cmha_config_defaults(cmha_model_table(), &m), cmha_config_defaults(cmha_trainer_table(), &t);
    CHECK_OK(cmha_config_set_all(&context, cmha_model_table(), &m, tiny));
    t.batch = 1, t.length = 4;
    CHECK_OK(cmha_model_init(&model, &context, &m));
    CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    for (i = 0; i < 2 * model.parameters.size; i++) model.parameters.moments[i] = (cmha_real)i;
    CHECK_OK(cmha_model_save(&model, path_of("model")));
    CHECK_OK(cmha_trainer_save(&trainer, path_of("whole")));
    CHECK_OK(cmha_model_open(&small, &context, path_of("model")));
    CHECK_OK(cmha_model_pack(&small, CMHA_STORAGE_INT8));
    CHECK_OK(cmha_model_save(&small, path_of("packed")));
    cmha_model_close(&small);
    CHECK_OK(cmha_model_open(&small, &context, path_of("model")));
    CHECK_OK(cmha_model_pack(&small, CMHA_STORAGE_Q4_K));
    CHECK_OK(cmha_model_save(&small, path_of("q4_k")));
    cmha_model_close(&small);
    kept = check_zeros(3 * model.parameters.size);
    /* not what the files hold */
    check_fill(model.parameters.data, model.parameters.size, 1),
        check_fill(model.parameters.moments, 2 * model.parameters.size, 1);
    memcpy(kept, model.parameters.data, model.parameters.size * sizeof *kept);
    memcpy(kept + model.parameters.size, model.parameters.moments, 2 * model.parameters.size * sizeof *kept);
    trainer.step = 11, trainer.seed = 12, trainer.best = 13;
}

static int unchanged(void) {
    return !memcmp(kept, model.parameters.data, model.parameters.size * sizeof *kept) &&
           !memcmp(kept + model.parameters.size, model.parameters.moments,
                   2 * model.parameters.size * sizeof *kept) &&
           trainer.step == 11 && trainer.seed == 12 && trainer.best >= 13 && trainer.best <= 13;
}

static void put_back(void) {
    memcpy(model.parameters.data, kept, model.parameters.size * sizeof *kept);
    memcpy(model.parameters.moments, kept + model.parameters.size, 2 * model.parameters.size * sizeof *kept);
    trainer.step = 11, trainer.seed = 12, trainer.best = 13;
}

/* ---- every reader behind one face: 1 = read, 0 = refused, and then `error` is the line ---- */

static char error[TEXT_ERROR];

static int library(cmha_status status) {
    snprintf(error, sizeof error, "%s", status ? cmha_error(&context) : "");
    return status == CMHA_OK;
}

static int read_archive(const char *path) {
    cmha_archive a;
    int good = library(cmha_archive_open(&a, &context, path));
    cmha_archive_close(&a);
    return good;
}

static int read_model(const char *path) {
    cmha_model other;
    int good = library(cmha_model_open(&other, &context, path));
    cmha_model_close(&other);
    return good;
}

static int read_strict(const char *path) { return library(cmha_model_read(&model, path, 1, NULL)); }
static int read_loose(const char *path) { return library(cmha_model_read(&model, path, 0, NULL)); }
static int read_trainer(const char *path) { return library(cmha_trainer_read(&trainer, path)); }

static int read_tokens(const char *path) {
    cmha_tokens t;
    int good = library(cmha_tokens_open(&t, &context, path, 4));
    cmha_tokens_close(&t);
    return good;
}

static int read_table(const char *path) {
    static const char *const names[] = {"label", "2"};
    text_table t;
    int good = text_table_load(&t, path, 1 << 24, names, 2, error);
    if (good) text_table_close(&t);
    return good;
}

static int read_labels(const char *path) {
    text_labels l;
    int good = text_labels_load(&l, path, error);
    if (good) text_labels_close(&l);
    return good;
}

static const struct reader {
    const char *name;
    int (*read)(const char *path);
} readers[] = {{"cmha_archive_open", read_archive},      {"cmha_model_open", read_model},
               {"cmha_model_read, strict", read_strict}, {"cmha_trainer_read", read_trainer},
               {"cmha_model_read", read_loose},          {"cmha_tokens_open", read_tokens},
               {"text_table_load", read_table},          {"text_labels_load", read_labels}};
/* of archives; of those that need all weights */
enum { ARCHIVES = 5, WEIGHTS = 4, READERS = sizeof readers / sizeof *readers };

/* One line, and it names the file by the end of its path */
static int one_line(const char *path) {
    const char *name = strrchr(path, '/');
    const unsigned char *at;
    for (at = (const unsigned char *)error; *at; at++)
        if (*at < 32 || *at == 127) return 0;
    return error[0] && strlen(error) < sizeof error - 1 &&
           strstr(error, name && name[1] ? name + 1 : path) != NULL;
}

/* The file is refused by readers [first, last), each with one line, and nothing has changed. */
static void refused(const char *what, const char *path, size_t first, size_t last) {
    size_t i, before = heap.bytes;
    for (i = first; i < last; i++) {
        error[0] = 0;
        CHECK_THAT(!readers[i].read(path), "%s: %s takes it", what, readers[i].name);
        CHECK_THAT(one_line(path), "%s: %s says \"%s\"", what, readers[i].name, error);
        CHECK_THAT(unchanged(), "%s: %s has changed the model", what, readers[i].name);
        CHECK_THAT(heap.bytes == before, "%s: %s keeps memory", what, readers[i].name);
        put_back();
    }
}

/* ---- headers ---- */

#define T(name, dtype, shape, offsets)                                                                       \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define A T("a", "F32", "[2]", "[0,8]")

static const struct header {
    const char *what, *text;
    size_t data; /* bytes after it */
} headers[] =
    {{"no header", "", 8},
     {"only blanks", "        ", 8},
     {"a list", "[]", 0},
     {"a number", "12345678", 0},
     {"null", "null", 0},
     {"a blank before the brace", " {" A "}", 8},
     {"a byte order mark", "\xEF\xBB\xBF{" A "}", 8},
     {"not closed", "{" A, 8},
     {"cut within a name", "{\"a", 8},
     {"cut after a colon", "{\"a\":", 8},
     {"cut within an escape", "{\"a\\", 8},
     {"cut within \\u", "{\"a\\u00", 8},
     {"cut within a surrogate pair", "{\"a\\ud83d\\u", 8},
     {"cut within a character", "{\"\xE2\x82", 8},
     {"a comma too many", "{" A ",}", 8},
     {"a comma too few", "{" A " " T("b", "U8", "[0]", "[8,8]") "}", 8},
     {"a comma first", "{," A "}", 8},
     {"no comma in a shape", "{" T("a", "F32", "[1 2]", "[0,8]") "}", 8},
     {"a comma after a shape", "{" T("a", "F32", "[2,]", "[0,8]") "}", 8},
     {"no colon", "{\"a\"{}}", 8},
     {"a name without quotes", "{a:{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8},
     {"single quotes", "{'a':{'dtype':'F32','shape':[2],'data_offsets':[0,8]}}", 8},
     {"something behind", "{" A "}x", 8},
     {"two headers", "{" A "}{" A "}", 8},
     {"a control character in a name", "{" T("a\nb", "F32", "[2]", "[0,8]") "}", 8},
     {"an unknown escape", "{" T("a\\x41", "F32", "[2]", "[0,8]") "}", 8},
     {"an escaped NUL", "{" T("a\\u0000", "F32", "[2]", "[0,8]") "}", 8},
     {"half a surrogate pair", "{" T("\\ud83d", "F32", "[2]", "[0,8]") "}", 8},
     {"the other half", "{" T("\\ude00", "F32", "[2]", "[0,8]") "}", 8},
     {"a pair of two first halves", "{" T("\\ud83d\\ud83d", "F32", "[2]", "[0,8]") "}", 8},
     {"Latin-1", "{" T("caf\xE9", "F32", "[2]", "[0,8]") "}", 8},
     {"an overlong form", "{" T("\xC0\xAF", "F32", "[2]", "[0,8]") "}", 8},
     {"a surrogate in UTF-8", "{" T("\xED\xA0\x80", "F32", "[2]", "[0,8]") "}", 8},
     {"beyond Unicode", "{" T("\xF4\x90\x80\x80", "F32", "[2]", "[0,8]") "}", 8},
     {"a tensor that is a number", "{\"a\":1}", 8},
     {"a tensor that is a list", "{\"a\":[]}", 8},
     {"a tensor that is null", "{\"a\":null}", 8},
     {"an empty tensor object", "{\"a\":{}}", 8},
     {"no dtype", "{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8},
     {"no shape", "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8},
     {"no offsets", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8},
     {"a field that is unknown",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"more\":1}}", 8},
     {"two dtypes", "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8},
     {"an unknown dtype", "{" T("a", "F33", "[2]", "[0,8]") "}", 8},
     {"an empty dtype", "{" T("a", "", "[2]", "[0,8]") "}", 8},
     {"a dtype in lower case", "{" T("a", "f32", "[2]", "[0,8]") "}", 8},
     {"a dtype with bars", "{" T("a", "|F32|", "[2]", "[0,8]") "}", 8},
     {"two dtypes in one", "{" T("a", "U32|F32", "[2]", "[0,8]") "}", 8},
     {"a dtype that is a number", "{\"a\":{\"dtype\":32,\"shape\":[2],\"data_offsets\":[0,8]}}", 8},
     {"a shape that is a number", "{" T("a", "F32", "2", "[0,8]") "}", 8},
     {"a shape of texts", "{" T("a", "F32", "[\"2\"]", "[0,8]") "}", 8},
     {"a shape in a shape", "{" T("a", "F32", "[[2]]", "[0,8]") "}", 8},
     {"a negative shape", "{" T("a", "F32", "[-2]", "[0,8]") "}", 8},
     {"a broken shape", "{" T("a", "F32", "[2.5]", "[0,8]") "}", 8},
     {"a shape of 2.0", "{" T("a", "F32", "[2.0]", "[0,8]") "}", 8},
     {"a shape with an exponent", "{" T("a", "F32", "[2e0]", "[0,8]") "}", 8},
     {"a shape with a leading 0", "{" T("a", "F32", "[02]", "[0,8]") "}", 8},
     {"a shape beyond 64 bits", "{" T("a", "F32", "[18446744073709551618]", "[0,8]") "}", 8},
     {"a product that wraps to 0", "{" T("a", "F32", "[4294967296,4294967296]", "[0,0]") "}", 0},
     {"a product that wraps to 2", "{" T("a", "F32", "[9223372036854775809,2]", "[0,8]") "}", 8},
     {"bytes that wrap", "{" T("a", "F64", "[2305843009213693953]", "[0,8]") "}", 8},
     {"too many dimensions", "{" T("a", "F32", "[1,1,1,1,1,1,1,1,2]", "[0,8]") "}", 8},
     {"a shape too small", "{" T("a", "F32", "[1]", "[0,8]") "}", 8},
     {"a shape too large", "{" T("a", "F32", "[3]", "[0,8]") "}", 8},
     {"a dtype too wide", "{" T("a", "F64", "[2]", "[0,8]") "}", 8},
     {"one offset", "{" T("a", "F32", "[2]", "[8]") "}", 8},
     {"three offsets", "{" T("a", "F32", "[2]", "[0,8,8]") "}", 8},
     {"offsets backwards", "{" T("a", "F32", "[2]", "[8,0]") "}", 8},
     {"offsets beyond the end", "{" T("a", "F32", "[2]", "[8,16]") "}", 8},
     {"offsets beyond 2^63", "{" T("a", "U8", "[8]", "[18446744073709551608,18446744073709551615]") "}", 8},
     {"negative offsets", "{" T("a", "F32", "[2]", "[-8,0]") "}", 8},
     {"a hole before", "{" T("a", "F32", "[1]", "[4,8]") "}", 8},
     {"a hole between", "{" T("a", "U8", "[2]", "[0,2]") "," T("b", "U8", "[2]", "[6,8]") "}", 8},
     {"an overlap", "{" T("a", "U8", "[5]", "[0,5]") "," T("b", "U8", "[5]", "[3,8]") "}", 8},
     {"one in another", "{" T("a", "U8", "[8]", "[0,8]") "," T("b", "U8", "[2]", "[3,5]") "}", 8},
     {"twice the same place", "{" T("a", "F32", "[2]", "[0,8]") "," T("b", "F32", "[2]", "[0,8]") "}", 8},
     {"data behind the last tensor", "{" A "}", 9},
     {"data without tensors", "{}", 8},
     {"data missing", "{" A "}", 7},
     {"a name twice", "{" A "," T("a", "F32", "[2]", "[8,16]") "}", 16},
     {"a name twice, once escaped", "{" A "," T("\\u0061", "F32", "[2]", "[8,16]") "}", 16},
     {"metadata that are a list", "{\"__metadata__\":[]," A "}", 8},
     {"metadata that are a text", "{\"__metadata__\":\"x\"," A "}", 8},
     {"metadata of a number", "{\"__metadata__\":{\"k\":1}," A "}", 8},
     {"metadata in metadata", "{\"__metadata__\":{\"k\":{\"k\":\"v\"}}," A "}", 8},
     {"metadata twice", "{\"__metadata__\":{},\"__metadata__\":{}," A "}", 8},
     {"a key twice", "{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}," A "}", 8},
     {"metadata not closed", "{\"__metadata__\":{\"k\":\"v\"", 8}};

static void broken_headers(void) {
    unsigned char data[16] = {0};
    size_t i;
    for (i = 0; i < sizeof headers / sizeof *headers; i++) {
        put_archive(path_of("header"), headers[i].text, strlen(headers[i].text), data, headers[i].data);
        refused(headers[i].what, path_of("header"), 0, ARCHIVES);
    }
    put_archive(path_of("header"), "{" A "}\0\0", sizeof "{" A "}\0\0" - 1, data, 8);
    refused("NULs behind the header", path_of("header"), 0, ARCHIVES);
    put_archive(path_of("header"), "{\"a\0\":1}", 8, data, 8);
    refused("a NUL in a name", path_of("header"), 0, ARCHIVES);
}

/* What opens: nothing here is wrong, only unusual */
static void unusual_headers(void) {
    static const struct header good[] = {
        {"no tensors", "{}", 0},
        {"blanks everywhere",
         "{ \"a\" : { \"shape\" :\t[ 2 ] ,\n\"data_offsets\":[ 0 , 8 ],\r\"dtype\" : \"F32\" } } \n", 8},
        {"a scalar", "{" T("a", "F32", "[]", "[0,4]") "}", 4},
        {"tensors without numbers", "{" T("a", "F32", "[0]", "[0,0]") "," T("b", "I8", "[3,0]", "[0,0]") "}",
         0},
        {"not in the data's order", "{" T("a", "U8", "[4]", "[4,8]") "," T("b", "U8", "[4]", "[0,4]") "}", 8},
        {"metadata in between", "{" A ",\"__metadata__\":{\"k\":\"v\"}," T("b", "U8", "[0]", "[8,8]") "}", 8},
        {"an empty name", "{" T("", "F32", "[2]", "[0,8]") "}", 8},
        {"escapes", "{" T("\\\"\\\\\\/\\b\\f\\n\\r\\t\\u20ac\\uD83D\\uDE00", "F32", "[2]", "[0,8]") "}", 8}};
    unsigned char data[16] = {0};
    size_t i;
    for (i = 0; i < sizeof good / sizeof *good; i++) {
        put_archive(path_of("header"), good[i].text, strlen(good[i].text), data, good[i].data);
        CHECK_THAT(read_archive(path_of("header")), "%s: %s", good[i].what, error);
        refused(good[i].what, path_of("header"), 1, WEIGHTS);
        CHECK_THAT(!read_model(path_of("header")) && strstr(error, "no configuration of ours"), "%s: %s",
                   good[i].what, error);
    }
}

static void depths_and_lengths(void) {
    static const uint64_t lengths[] = {(uint64_t)1 << 63, UINT64_MAX, UINT64_MAX - 7, ((uint64_t)1 << 63) - 1,
                                       (uint64_t)1 << 32, 100000001, 17, 9};
    unsigned char bytes[16];
    char *deep = (char *)check_alloc(1 << 20, 1);
    size_t i, k;
    for (i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        for (k = 0; k < 8; k++) bytes[k] = (unsigned char)(lengths[i] >> (8 * k));
        memset(bytes + 8, '{', 8);
        put(path_of("length"), bytes, 16);
        refused("a wrong header length", path_of("length"), 0, ARCHIVES);
    }
    for (i = 0; i < 8; i++)
        put(path_of("length"), bytes, i), refused("shorter than a length", path_of("length"), 0, ARCHIVES);
    for (i = 0; i < 5; i++) { /* a million levels */
        static const char *const open[] = {"[", "{\"a\":", "{\"a\":[", "{\"__metadata__\":{\"a\":[",
                                           "{\"a\":{\"shape\":["};
        for (k = 0; k < 1 << 20; k++) deep[k] = open[i][k % strlen(open[i])];
        put_archive(path_of("deep"), deep, 1 << 20, NULL, 0);
        refused("a million levels", path_of("deep"), 0, ARCHIVES);
    }
    memset(deep, 'x', 1 << 20), memcpy(deep, "{\"", 2);
    put_archive(path_of("deep"), deep, 1 << 20, NULL, 0);
    refused("a name without end", path_of("deep"), 0, ARCHIVES);
    memset(deep, '9', 1 << 20), memcpy(deep, "{\"a\":{\"shape\":[", 15);
    put_archive(path_of("deep"), deep, 1 << 20, NULL, 0);
    refused("a number without end", path_of("deep"), 0, ARCHIVES);
    free(deep);
}

/* Many tensors of long names take no quadratic time, and an error line stays one. */
static void crowds(void) {
    enum { MANY = 50000 };
    char *header = (char *)check_alloc(MANY, 160), *at = header;
    clock_t start = clock();
    size_t i;
    at += sprintf(at, "{");
    for (i = 0; i < MANY; i++)
        at +=
            sprintf(at,
                    "%s\"tensor.\\n\\u2028.%s.%zu\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}",
                    i ? "," : "", "a.name.that.is.so.long.that.a.line.cannot.hold.many", i * 7919 % MANY);
    at += sprintf(at, "}");
    put_archive(path_of("crowd"), header, (size_t)(at - header), NULL, 0);
    CHECK(read_archive(path_of("crowd")));
    refused("a crowd", path_of("crowd"), 1, WEIGHTS);
    CHECK(!read_strict(path_of("crowd")) && strstr(error, "more") && strstr(error, "tok_emb.weight"));
    CHECK_THAT((double)(clock() - start) / CLOCKS_PER_SEC < 60, "%d tensors take minutes", MANY);
    free(header);
}

/* ---- files of models in which one thing is wrong ---- */

/* The header of a saved file with `from` replaced by `to`; the data may be shorter or longer by `more`
   bytes. */
static void put_altered(const char *saved, const char *from, const char *to, long more) {
    size_t n, length, header, before;
    unsigned char *bytes = get(path_of(saved), &n), *data;
    char *text, *place;
    header = bytes[0] + 256u * bytes[1];
    text = (char *)check_alloc(header + strlen(to) + 1, 1), data = (unsigned char *)check_alloc(n + 1000, 1);
    memcpy(text, bytes + 8, header);
    place = strstr(text, from);
    if (!CHECK_THAT(place != NULL, "there is no %s in the header", from)) exit(3);
    before = (size_t)(place - text), length = strlen(to);
    memcpy(text + before, to, length);
    memcpy(text + before + length, bytes + 8 + before + strlen(from), header - before - strlen(from));
    memcpy(data, bytes + 8 + header, n - 8 - header);
    put_archive(path_of("altered"), text, header + length - strlen(from), data,
                n - 8 - header + (size_t)more);
    free(bytes), free(text), free(data);
}

static void wrong_models(void) {
    static const struct alteration {
        const char *what, *from, *to;
        size_t first, last;  /* the readers that must refuse it */
        const char *names;   /* the line must hold this */
        /* parameters that cmha_model_read with strict off leaves; -1: it refuses the file too */
        int left;
    } rows[] =
        {{"a parameter under another name", "\"ln_f.weight\"", "\"ln_f.wei_ht\"", 1, 4, "ln_f.wei", 1},
         {"a name that only begins like a moment", "\"ln_f.bias\"", "\"optim.x.y\"", 1, 4, "optim.x.y", 1},
         {"a moment of no parameter", "\"ln_f.bias\"", "\"optim.m.nobody\"", 1, 4, "optim.m.nobody", 1},
         {"an axis more", "\"shape\":[4]", "\"shape\":[4,1]", 1, 4, "[4, 1]", 1},
         {"another shape of the same size", "\"head.weight\":{\"dtype\":\"F32\",\"shape\":[5,4]",
          "\"head.weight\":{\"dtype\":\"F32\",\"shape\":[4,5]", 1, 4, "[4, 5], the model needs [5, 4]", 1},
         {"whole numbers", "\"head.weight\":{\"dtype\":\"F32\"", "\"head.weight\":{\"dtype\":\"I32\"", 1, 4,
          "I32", 1},
         {"a configuration of another width", "\"cfg.d_model\":\"4\"", "\"cfg.d_model\":\"8\"", 1, 2, "needs",
          0},
         {"a configuration of more layers", "\"cfg.n_layers\":\"1\"", "\"cfg.n_layers\":\"2\"", 1, 2,
          "missing tensors: blocks.1", 0},
         {"a configuration beyond all memory", "\"cfg.d_model\":\"4\"", "\"cfg.d_model\":\"65536\"", 1, 2,
          "parameters", 0},
         {"a configuration out of range", "\"cfg.n_layers\":\"1\"", "\"cfg.n_layers\":\"1000000\"", 1, 2,
          "n_layers", 0},
         {"heads that do not divide", "\"cfg.n_heads\":\"2\"", "\"cfg.n_heads\":\"3\"", 1, 2, "divisible", 0},
         {"no heads", "\"cfg.n_heads\":\"2\"", "\"cfg.n_heads\":\"0\"", 1, 2, "n_heads", 0},
         {"an option of a later version", "\"cfg.n_heads\"", "\"cfg.n_horns\"", 1, 2, "n_horns", 0},
         {"no number", "\"cfg.dropout\":\"0\"", "\"cfg.dropout\":\"nan\"", 1, 2, "dropout", 0},
         {"a number without end", "\"cfg.dropout\":\"0\"",
          "\"cfg.dropout\":\"0."
          "0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000\"",
          1, 2, "dropout", 0},
         {"no choice", "\"cfg.attention\":\"cmha\"", "\"cfg.attention\":\"tel\\nepathy\"", 1, 2, "attention",
          0},
         {"frequencies nobody asked for", "\"cfg.dropout\":\"0\"", "\"cfg.dropout\":\"0\",\"omega\":\"1,2\"",
          1, 2, "omega", 0},
         {"too few frequencies", "\"cfg.frequency\":\"rope\"", "\"cfg.frequency\":\"table\",\"omega\":\"1\"",
          1, 2, "omega", 0},
         {"infinite frequencies", "\"cfg.frequency\":\"rope\"",
          "\"cfg.frequency\":\"table\",\"omega\":\"1,inf\"", 1, 2, "finite", 0},
         {"frequencies beyond all numbers", "\"cfg.frequency\":\"rope\"",
          "\"cfg.frequency\":\"table\",\"omega\":\"1,1e999\"", 1, 2, "finite", 0},
         {"data beyond the end", "\"shape\":[5,4]", "\"shape\":[9,4]", 0, 5, "data_offsets", -1}};
    size_t i, taken, before;
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct alteration *r = &rows[i];
        const char *path = path_of("altered");
        put_altered("model", r->from, r->to, 0);
        refused(r->what, path, r->first, r->last);
        (void)!readers[r->first].read(path);
        CHECK_THAT(strstr(error, r->names) != NULL, "%s: \"%s\" does not say %s", r->what, error, r->names);
        if (r->left < 0) continue;
        before = heap.bytes, said = 0, log_text[0] = 0;
        CHECK_THAT(!cmha_model_read(&model, path, 0, &taken), "%s: %s", r->what, cmha_error(&context));
        CHECK_THAT(taken + (size_t)r->left == model.parameters.count, "%s: %zu of %zu parameters taken",
                   r->what, taken, model.parameters.count);
        CHECK_THAT((said > 0) == (taken < model.parameters.count) && heap.bytes == before,
                   "%s: %zu lines in the log", r->what, said);
        put_back();
    }
    refused("weights without a training state", path_of("model"), 3, 4);
}

/* A packed model's file in which one thing is wrong; what is packed is also refused by those that learn. */
static void wrong_packed(void) {
    static const char *const rows[][3] = {
        {"\"packed\":\"int8\"", "\"packed\":\"int3\"", "int3"},
        {"\"packed\":\"int8\"", "\"packed\":\"bf16\"", "I8"},
        {"\"packed\":\"int8\"", "\"pucked\":\"int8\"", "I8"},
        {"\"scale.head.weight\"", "\"scalx.head.weight\"", "scalx.head.weight"},
        {"\"scale.head.weight\"", "\"scale.ln_f.weight\"", "missing tensors: scale.head.weight"},
        {"\"scale.head.weight\":{\"dtype\":\"F32\",\"shape\":[5]",
         "\"scale.head.weight\":{\"dtype\":\"F32\",\"shape\":[5,1]", "[5, 1], the model needs [5]"},
        {"\"scale.head.weight\":{\"dtype\":\"F32\"", "\"scale.head.weight\":{\"dtype\":\"I32\"", "I32"},
        {"\"head.weight\":{\"dtype\":\"I8\"", "\"head.weight\":{\"dtype\":\"U8\"", "[5, 4] of I8"},
        {"\"head.weight\":{\"dtype\":\"I8\",\"shape\":[5,4]",
         "\"head.weight\":{\"dtype\":\"I8\",\"shape\":[20]", "[20], the model needs [5, 4]"},
        {"\"cfg.tied\":\"0\"", "\"cfg.tied\":\"1\"", "unknown"}};
    static const char *const four[][3] = {
        {"\"packed\":\"q4_k\"", "\"packed\":\"q4_x\"", "q4_x: not int8, int4, q4_k or bf16"},
        {"\"packed\":\"q4_k\"", "\"packed\":\"int4\"", "U16"},
        {"\"scale.head.weight\":{\"dtype\":\"U16\",\"shape\":[40]",
         "\"scale.head.weight\":{\"dtype\":\"U16\",\"shape\":[4,10]", "the model needs [40]"},
        {"\"scale.head.weight\":{\"dtype\":\"U16\"", "\"scale.head.weight\":{\"dtype\":\"F16\"",
         "[40] of U16"}};
    size_t i;
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        put_altered("packed", rows[i][0], rows[i][1], 0);
        refused(rows[i][1], path_of("altered"), 1, 4);
        (void)!read_model(path_of("altered"));
        CHECK_THAT(strstr(error, rows[i][2]) != NULL, "%s: \"%s\" does not say %s", rows[i][1], error,
                   rows[i][2]);
    }
    CHECK(read_model(path_of("packed")));
    refused("a packed model", path_of("packed"), 2, 4);
    for (i = 0; i < sizeof four / sizeof *four; i++) {
        put_altered("q4_k", four[i][0], four[i][1], 0);
        (void)!read_model(path_of("altered"));
        CHECK_THAT(strstr(error, four[i][2]) != NULL, "%s: \"%s\" does not say %s", four[i][1], error,
                   four[i][2]);
    }
    CHECK(read_model(path_of("q4_k")));
    refused("a packed model", path_of("q4_k"), 2, 4);
}

static void wrong_states(void) {
    static const char *const rows[][4] = {
        /* what, from, to, what the line must hold */
        {"no step", "\"state.step\"", "\"state.stop\"", "no training state"},
        {"a step that is no number", "\"state.step\":\"0\"", "\"state.step\":\"0x10\"", "not a number"},
        {"a negative step", "\"state.step\":\"0\"", "\"state.step\":\"-1\"", "not a number"},
        {"a step before 0", "\"state.step\":\"0\"", "\"state.step\":\"18446744073709551615\"",
         "not a number"},
        {"a step beyond 64 bits", "\"state.step\":\"0\"", "\"state.step\":\"18446744073709551616\"",
         "not a number"},
        {"a best loss that is none", "\"state.best\":\"inf\"", "\"state.best\":\"nan\"", "not a number"},
        {"another width", "\"cfg.d_ff\":\"4\"", "\"cfg.d_ff\":\"5\"",
         "d_ff is 5 in the file, 4 in the model"},
        {"a moment missing", "\"optim.m.ln_f.bias\"", "\"optim.m.ln_f.bits\"",
         "missing tensors: optim.m.ln_f.bias; "},
        {"a second moment missing", "\"optim.v.head.weight\"", "\"optim.w.head.weight\"",
         "optim.v.head.weight"},
        {"a moment of integers", "\"optim.v.ln_f.bias\":{\"dtype\":\"F32\"",
         "\"optim.v.ln_f.bias\":{\"dtype\":\"U32\"", "U32"}};
    size_t i;
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        put_altered("whole", rows[i][1], rows[i][2], 0);
        refused(rows[i][0], path_of("altered"), 3, 4);
        CHECK(!read_trainer(path_of("altered")));
        CHECK_THAT(strstr(error, rows[i][3]) != NULL, "%s: \"%s\" does not say %s", rows[i][0], error,
                   rows[i][3]);
    }
}

/* Whatever the best loss is, a saved state is read again; no number is no best loss. */
static void best_losses(void) {
    const double best[] = {0, -1.5, 5e-324, DBL_MAX, HUGE_VAL, -HUGE_VAL, (double)NAN, -(double)NAN};
    size_t i;
    for (i = 0; i < sizeof best / sizeof *best; i++) {
        double want = best[i] == best[i] ? best[i] : HUGE_VAL;
        trainer.best = best[i];
        CHECK_OK(cmha_trainer_save(&trainer, path_of("altered")));
        trainer.best = 13;
        CHECK_THAT(read_trainer(path_of("altered")), "a best loss of %g: %s", best[i], error);
        CHECK_THAT(trainer.best >= want && trainer.best <= want, "a best loss of %g comes back as %g",
                   best[i], trainer.best);
        put_back();
    }
}

/* strict off: what fits is taken, the rest stays, and the log tells */
static void intersection(void) {
    cmha_model full;
    cmha_parameter *p;
    size_t taken, i, same = 0;
    CHECK_OK(cmha_model_open(&full, &context, path_of("model")));
    put_altered("model", "\"ln_f.weight\"", "\"ln\\n_x.weight\"", 0);
    said = 0, log_text[0] = 0;
    CHECK_OK(cmha_model_read(&model, path_of("altered"), 0, &taken));
    CHECK(taken == model.parameters.count - 1 && said == 2);
    CHECK_THAT(strstr(log_text, "parameter ln_f.weight is not in the file") &&
                   strstr(log_text, "tensor ln?_x.weight is unknown"),
               "the log says: %s", log_text);
    for (i = 0; i < model.parameters.count; i++) {
        p = &model.parameters.list[i];
        same = (size_t)(p->tensor.data - model.parameters.data);
        CHECK_THAT(!memcmp(p->tensor.data,
                           strcmp(p->name, "ln_f.weight") ? full.parameters.data + same : kept + same,
                           p->tensor.size * sizeof *kept),
                   "%s", p->name);
    }
    put_back();
    CHECK_OK(cmha_model_read(&model, path_of("whole"), 1, &taken)); /* moments are no strangers */
    CHECK(taken == model.parameters.count &&
          !memcmp(model.parameters.data, full.parameters.data, model.parameters.size * sizeof *kept));
    put_back();
    put_archive(path_of("altered"), "{}", 2, NULL, 0);
    CHECK(!cmha_model_read(&model, path_of("altered"), 0, &taken) && taken == 0 && unchanged());
    CHECK_IS(cmha_model_read(NULL, path_of("model"), 1, &taken), CMHA_ERR_STATE);
    CHECK_IS(cmha_model_read(&model, NULL, 1, &taken), CMHA_ERR_ARGUMENT);
    cmha_model_close(&full);
}

/* ---- every byte ---- */

static void truncations(void) {
    size_t n, cut, step = check_quick() ? 37 : 1;
    unsigned char *bytes = get(path_of("packed"), &n);
    put(path_of("cut"), bytes, n);
    for (cut = 1; cut <= n; cut += step) {
        if (truncate(path_of("cut"), (off_t)(n - cut))) exit(3);
        refused("a packed file cut short", path_of("cut"), 0, ARCHIVES);
    }
    free(bytes), bytes = get(path_of("whole"), &n);
    put(path_of("cut"), bytes, n);
    for (cut = 1; cut <= n; cut += step) {
        if (truncate(path_of("cut"), (off_t)(n - cut))) exit(3);
        refused("a file cut short", path_of("cut"), 0, ARCHIVES);
    }
    for (cut = 1; cut <= 64; cut *= 2) {
        put(path_of("cut"), bytes, n);
        if (truncate(path_of("cut"), (off_t)(n + cut))) exit(3);
        refused("zeros at the end", path_of("cut"), 0, ARCHIVES);
    }
    free(bytes);
}

/* Every bit of the header, one at a time. What still loads must be the model that was
   saved: nothing has lost its check. */
static void flips(const char *saved_as) {
    size_t n, header, at, bad = 0, wrong = 0, odd = 0, before = heap.bytes, step = check_quick() ? 11 : 1;
    unsigned char *bytes = get(path_of(saved_as), &n), flipped;
    cmha_real *saved = check_zeros(model.parameters.size);
    FILE *f;
    int bit;
    header = 8 + bytes[0] + 256u * bytes[1];
    CHECK(read_strict(path_of("model")));
    memcpy(saved, model.parameters.data, model.parameters.size * sizeof *saved), put_back();
    put(path_of("flipped"), bytes, n);
    if (!(f = fopen(path_of("flipped"), "r+b"))) exit(3);
    setvbuf(f, NULL, _IONBF, 0);
    for (at = 0; at < header; at += step) {
        for (bit = 0; bit < 9; bit++) { /* the last one flips them all */
            flipped = (unsigned char)(bytes[at] ^ (bit < 8 ? 1 << bit : 255));
            fseek(f, (long)at, SEEK_SET), fwrite(&flipped, 1, 1, f);
            if (!read_model(path_of("flipped"))) odd += !one_line("flipped");
            if (!read_strict(path_of("flipped"))) odd += !one_line("flipped"), wrong += !unchanged();
            else bad += memcmp(saved, model.parameters.data, model.parameters.size * sizeof *saved) != 0;
            put_back();
        }
        fseek(f, (long)at, SEEK_SET), fwrite(bytes + at, 1, 1, f);
    }
    fclose(f);
    CHECK_THAT(!bad, "%zu flipped files load as another model", bad);
    CHECK_THAT(!wrong, "%zu flipped files change the model", wrong);
    CHECK_THAT(!odd, "%zu flipped files get no clear line", odd);
    CHECK_THAT(heap.bytes == before, "%zu bytes leak", heap.bytes - before);
    free(bytes), free(saved);
}

/* ---- files that change, memory that ends ---- */

/* The file is cut while a reader is at work: at its call number k of the
   allocator, for every k, to several lengths. */
static void shrinking(void) {
    static const char *const saved[ARCHIVES] = {"whole", "packed", "model", "whole", "model"};
    /* bytes: from the last tensor alone to the whole file */
    static const size_t lost[] = {1, 40, 400, 2000, (size_t)-1};
    size_t n, reader, k, part, before = heap.bytes, ends = 0;
    for (reader = 0; reader < READERS; reader++) {
        unsigned char *bytes = get(path_of(reader < ARCHIVES ? saved[reader] : "model"), &n);
        n -= n % 4; /* of tokens */
        for (k = 1; k < 64; k++)
            for (part = 0; part < sizeof lost / sizeof *lost; part++) {
                int good;
                put(path_of("shrinks"), bytes, reader < ARCHIVES ? n + n % 4 : n);
                heap.calls = 0, cut_call = k, cut_at = n > lost[part] ? n - lost[part] : 0,
                cut_file = path_of("shrinks");
                good = readers[reader].read(path_of("shrinks"));
                cut_file = NULL;
                if (!good) {
                    ends++;
                    CHECK_THAT(one_line("shrinks"), "%s: it shrinks: \"%s\"", readers[reader].name, error);
                    CHECK_THAT(unchanged(), "%s has changed the model, cut at call %zu to %zu",
                               readers[reader].name, k, cut_at);
                }
                CHECK_THAT(heap.bytes == before, "%s keeps memory", readers[reader].name);
                put_back();
                if (heap.calls < k) k = 64; /* the next ones are never reached */
            }
        free(bytes);
    }
    CHECK(ends > 20);
}

/* Tensors of an archive that is open already, and then shorter */
static void shrunk_later(void) {
    cmha_archive a;
    cmha_real *x = check_zeros(4096);
    size_t n, i, failures = 0;
    unsigned char *bytes = get(path_of("whole"), &n);
    put(path_of("shrinks"), bytes, n);
    CHECK_OK(cmha_archive_open(&a, &context, path_of("shrinks")));
    if (truncate(path_of("shrinks"), (off_t)(n / 2))) exit(3);
    for (i = 0; i < a.n_tensors; i++) {
        cmha_status s = cmha_archive_read(&a, &a.tensors[i], x);
        failures += s != CMHA_OK;
        CHECK_THAT(!s || (library(s), s == CMHA_ERR_IO && one_line("shrinks")), "%s", error);
    }
    CHECK(failures > 0);
    cmha_archive_close(&a);
    free(bytes), free(x);
}

static int is_base(const cmha_knowledge *base, const cmha_knowledge *loaded) {
    size_t bytes = base->n * 2 * base->d_r * sizeof *base->vectors;
    return loaded->n == base->n && !memcmp(loaded->vectors, base->vectors, bytes) &&
           !memcmp(loaded->features, base->features, bytes) && !memcmp(loaded->texts, base->texts, base->n);
}

/* Knowledge bases that shrink while they are read: a status, like all others. One that is mapped must not
   shrink, but a save over its file leaves it as it is. */
static void knowledge(void) {
    enum { N = 40, D = 6 };
    static const size_t lost[] = {1, 30, 800, 3000, (size_t)-1};
    cmha_real *v = check_array(2 * N * 2 * D, 1);
    cmha_knowledge base[2], loaded;
    uint64_t begin[N + 1];
    char letters[N];
    size_t n, k, part, before = heap.bytes, held, ends = 0;
    unsigned char *bytes;
    for (k = 0; k < N; k++) begin[k] = k, letters[k] = (char)('a' + k % 26);
    begin[N] = N;
    for (k = 0; k < 2; k++)
        CHECK_OK(cmha_knowledge_init(&base[k], &context, N, D, v + k * N * 2 * D, NULL, letters, begin));
    CHECK_OK(cmha_knowledge_save(&base[0], path_of("base")));
    bytes = get(path_of("base"), &n);
    for (k = 1; k < 64; k++)
        for (part = 0; part < sizeof lost / sizeof *lost; part++) {
            cmha_status status;
            put(path_of("shrinks"), bytes, n);
            held = heap.bytes, heap.calls = 0;
            cut_call = k, cut_at = n > lost[part] ? n - lost[part] : 0, cut_file = path_of("shrinks");
            status = cmha_knowledge_open(&loaded, &context, path_of("shrinks"), 0);
            cut_file = NULL;
            if (library(status)) CHECK(is_base(&base[0], &loaded));
            else ends++, CHECK_THAT(one_line("shrinks"), "a base that shrinks: \"%s\"", error);
            if (heap.calls < k) k = 64; /* the next ones are never reached */
            cmha_knowledge_close(&loaded);
            CHECK(heap.bytes == held);
        }
    CHECK(ends > 5);
    for (k = 0; k < 2; k++) {
        CHECK_OK(cmha_knowledge_save(&base[0], path_of("base")));
        CHECK_OK(cmha_knowledge_open(&loaded, &context, path_of("base"), (int)k));
        CHECK_OK(cmha_knowledge_save(&base[1], path_of("base")));
        CHECK_THAT(is_base(&base[0], &loaded), "map = %zu: a save changes a base that is in use", k);
        if (!k) CHECK(!truncate(path_of("base"), 0) && is_base(&base[0], &loaded));
        cmha_knowledge_close(&loaded);
    }
    cmha_knowledge_close(&base[0]), cmha_knowledge_close(&base[1]);
    CHECK(heap.bytes == before);
    free(bytes), free(v);
}

static void little_memory(void) {
    static const char *const saved[6] = {"whole", "packed", "model", "whole", "model", "tokens"};
    size_t reader, k, before = heap.bytes;
    put(path_of("tokens"), "12345678", 8);
    for (reader = 0; reader < 6; reader++)
        for (k = 1;; k++) {
            int good;
            heap.calls = 0, heap.fail_at = k;
            good = readers[reader].read(path_of(saved[reader]));
            heap.fail_at = 0;
            CHECK_THAT(heap.bytes == before, "%s keeps memory", readers[reader].name);
            if (good) { /* all it takes, or fewer: a weight without its reader would be wrong */
                put_back();
                if (k > heap.calls) break;
                continue;
            }
            CHECK_THAT(one_line(saved[reader]), "%s without memory: \"%s\"", readers[reader].name, error);
            CHECK_THAT(unchanged(), "%s has changed the model when memory ended at call %zu",
                       readers[reader].name, k);
        }
}

/* ---- places ---- */

/* Root may do what others may not: these tests are then done as nobody. */
static int as_nobody(void) { return geteuid() != 0 || seteuid(65534) == 0; }
static void as_ourselves(void) {
    if (getuid() == 0 && seteuid(0)) exit(3);
}

static void places(void) {
    static const char *const devices[] = {"/dev/null", "/dev/zero", "/dev/full"};
    char name[300];
    size_t i, n;
    unsigned char *bytes = get(path_of("whole"), &n);
    alarm(60); /* nothing may wait for anybody */
    refused("a file that is not there", path_of("nowhere"), 0, READERS);
    refused("a folder that is not there", path_of("no/where"), 0, READERS);
    refused("a file as a folder", path_of("whole/model"), 0, READERS);
    refused("a folder", folder, 0, READERS);
    refused("no name at all", "", 0, ARCHIVES + 1);
    memset(name, 'x', sizeof name - 1), name[sizeof name - 1] = 0;
    error[0] = 0;
    for (i = 0; i < READERS; i++) CHECK(!readers[i].read(path_of(name)) && error[0]);
    if (!mkfifo(path_of("fifo"), 0666)) refused("a FIFO", path_of("fifo"), 0, READERS);
    for (i = 0; i < 3; i++)
        if (!access(devices[i], R_OK)) refused("a device", devices[i], 0, READERS);
    CHECK(!symlink("itself", path_of("itself")) && !symlink("nobody", path_of("dangling")) &&
          !symlink("fifo", path_of("piped")));
    refused("a link to itself", path_of("itself"), 0, READERS);
    refused("a link to nothing", path_of("dangling"), 0, READERS);
    refused("a link to a FIFO", path_of("piped"), 0, READERS);
    put(path_of("two\nlines"), "x", 1); /* a name with a line end, which must not get into the error line */
    for (i = 0; i < READERS - 1; i++)
        CHECK_THAT(!readers[i].read(path_of("two\nlines")) && one_line("two?lines"), "%s: %s",
                   readers[i].name, error);
    put(path_of("secret"), bytes, n);
    chmod(path_of("secret"), 0), chmod(folder, 0755);
    if (as_nobody()) refused("a file we may not read", path_of("secret"), 0, READERS);
    as_ourselves();
    alarm(0);
    free(bytes);
}

/* A file as large as they get, almost none of it on the disk */
static void holes(void) {
    static const char header[] = "{" T("a", "U8", "[1099511627776]", "[0,1099511627776]") "}";
    FILE *f = fopen(path_of("hole"), "wb");
    if (f) fclose(f);
    if (sizeof(off_t) < 8) return;
    if (truncate(path_of("hole"), (off_t)((int64_t)1 << 40))) return; /* not on this disk */
    refused("a terabyte of zeros", path_of("hole"), 0, ARCHIVES);
    put_archive(path_of("hole"), header, sizeof header - 1, NULL, 0);
    CHECK(!truncate(path_of("hole"), (off_t)((int64_t)1 << 40) + 8 + (off_t)sizeof header - 1) &&
          read_archive(path_of("hole")));
    refused("a terabyte of a tensor", path_of("hole"), 1, WEIGHTS);
    remove(path_of("hole"));
}

/* The saved model with its header altered is smaller than what it says it holds, which is not asked for. */
static void too_small(const char *from, const char *to) {
    cmha_model other;
    size_t before = heap.bytes;
    put_altered("model", from, to, 0);
    heap.peak = heap.bytes;
    CHECK_IS(cmha_model_open(&other, &context, path_of("altered")), CMHA_ERR_FORMAT);
    CHECK_THAT(strstr(cmha_error(&context), "the file is smaller") && heap.peak - before < 1 << 20,
               "%.30s: %zu bytes for a small file: %s", to, heap.peak - before, cmha_error(&context));
    CHECK(heap.bytes == before);
}

/* What a file claims to hold is refused, with a reason of its own, before memory of that size is asked for.
   The longest header there may be is asked for, and refused here. */
static void appetites(void) {
    static const size_t longest = 100000000;
    static char many[120000];
    cmha_archive a;
    size_t length, i;
    unsigned char bytes[8] = {0};
    for (length = longest; length <= longest + 1; length++) {
        for (i = 0; i < 8; i++) bytes[i] = (unsigned char)((uint64_t)length >> (8 * i));
        put(path_of("hole"), bytes, 8);
        if (truncate(path_of("hole"), (off_t)(8 + length))) break; /* not on this disk */
        heap.calls = 0, heap.most = 1 << 20;
        CHECK_IS(cmha_archive_open(&a, &context, path_of("hole")),
                 length > longest ? CMHA_ERR_FORMAT : CMHA_ERR_MEMORY);
        CHECK_THAT(heap.calls == (length <= longest), "a header of %zu bytes: %zu requests", length,
                   heap.calls);
        heap.most = 0;
    }
    remove(path_of("hole"));
    too_small("\"cfg.d_model\":\"4\"", "\"cfg.d_model\":\"512\""); /* needs 4 MB */
    /* as many bytes as numbers, but not as names: their table would take 4 MB, too */
    snprintf(many, sizeof many, "\"cfg.n_layers\":\"1024\",\"note\":\"%*s\"", (int)sizeof many - 100, "");
    too_small("\"cfg.n_layers\":\"1\"", many);
}

/* ---- tokens, tables ---- */

static void texts(void) {
    static const struct {
        const char *what, *bytes;
        size_t n;
    } tables[] = {{"an empty file", "", 0},         {"no such column", "a\tb\nc\td\n", 8},
                  {"NULs", "\0\0\0\0", 4},          {"a lone CR", "\r", 1},
                  {"only tabs", "\t\t\t\t", 4},     {"a mark and an end", "\xEF\xBB\xBF\n", 4},
                  {"half a mark", "\xEF\xBB", 2},   {"no UTF-8", "\xFF\xFElabel\n", 8},
                  {"another case", "Label\ta\n", 8}};
    size_t i, n = 4 << 20;
    char *big = (char *)check_alloc(n, 1);
    text_table t;
    static const char *const names[] = {"label", "2"};
    clock_t start = clock();
    for (i = 0; i < sizeof tables / sizeof *tables; i++) {
        put(path_of("table"), tables[i].bytes, tables[i].n);
        if (tables[i].n) refused(tables[i].what, path_of("table"), 6, 7);
        else CHECK(read_table(path_of("table"))); /* no rows, which is no failure */
    }
    put(path_of("odd"), "", 0);
    refused("no tokens", path_of("odd"), 5, 6);
    for (i = 1; i < 8; i++) {
        put(path_of("odd"), tables[1].bytes, i);
        if (i % 4) refused("tokens cut short", path_of("odd"), 5, 6);
        else CHECK(read_tokens(path_of("odd")));
    }
    memset(big, '\t', n); /* a line of millions of columns */
    put(path_of("table"), big, n);
    refused("a line of tabs", path_of("table"), 6, 7);
    memset(big, '\n', n), memcpy(big, "label\tx\n", 8);
    put(path_of("table"), big, n);
    CHECK(text_table_load(&t, path_of("table"), n, names, 2, error) && t.rows == 0 && t.skipped == 0);
    text_table_close(&t);
    CHECK(!text_table_load(&t, path_of("table"), n - 1, names, 2, error) && one_line("table"));
    CHECK_THAT((double)(clock() - start) / CLOCKS_PER_SEC < 30, "large tables take minutes");
    free(big);
}

/* ---- writing ---- */

/* Is there a file in the folder of `path` that a save has left? */
static int left_beside(const char *path) {
    char at[600], found[900];
    char *slash;
    snprintf(at, sizeof at, "%s", path);
    if ((slash = strrchr(at, '/')) == NULL) return 0; /* the current folder is not this test's */
    slash[slash == at] = 0;
    return system_left(at, found, sizeof found);
}

/* A save to `path` fails with one line; the old file, if there is one, and the folder stay as they are. */
static void cannot_save(const char *what, const char *path, cmha_status (*save)(const char *path),
                        const char *old) {
    size_t n = 0, m = 0, before = heap.bytes;
    unsigned char *bytes = old ? get(old, &n) : NULL, *after;
    cmha_status s = save(path);
    snprintf(error, sizeof error, "%s", cmha_error(&context));
    CHECK_THAT(s == CMHA_ERR_IO && one_line(path), "%s: \"%s\", %s", what, cmha_status_string(s), error);
    CHECK_THAT(!left_beside(path), "%s: a temporary file is left", what);
    CHECK_THAT(heap.bytes == before && unchanged(), "%s: memory is kept, or the model has changed", what);
    if (!old) return;
    after = get(old, &m);
    CHECK_THAT(n == m && !memcmp(bytes, after, n), "%s: the old file has changed", what);
    free(bytes), free(after);
}

static cmha_status save_model(const char *path) { return cmha_model_save(&model, path); }
static cmha_status save_trainer(const char *path) { return cmha_trainer_save(&trainer, path); }

static rlim_t file_limit;
static cmha_status save_with_limit(const char *path) {
    struct rlimit old, small;
    cmha_status s;
    getrlimit(RLIMIT_FSIZE, &old);
    small = old, small.rlim_cur = file_limit;
    if (setrlimit(RLIMIT_FSIZE, &small)) exit(3);
    s = cmha_trainer_save(&trainer, path);
    setrlimit(RLIMIT_FSIZE, &old); /* before anything is printed */
    return s;
}

static cmha_status save_as_nobody(const char *path) {
    cmha_status s = as_nobody() ? cmha_model_save(&model, path) : CMHA_OK;
    as_ourselves();
    return s;
}

/* A disk of 64 KB, in a name space of its own, which goes with the process. */
static void full_disk(void) {
#ifdef __linux__
    int status = 0;
    pid_t child;
    mkdir(path_of("disk"), 0777);
    fflush(stdout);
    if (!(child = fork())) {
        char filler[1 << 12] = {0};
        FILE *f;
        long size;
        int pages = 0;
        if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) _exit(77);
        if (mount("tmpfs", path_of("disk"), "tmpfs", 0, "size=64k")) _exit(77);
        check_passed = check_failed = 0;
        CHECK_OK(cmha_model_save(&model, path_of("disk/model")));
        f = fopen(path_of("disk/filler"), "wb");
        setvbuf(f, NULL, _IONBF, 0);
        while (fwrite(filler, 1, sizeof filler, f) == sizeof filler) continue;
        for (size = ftell(f); size > 0 && size > (24 << 10); size -= 4096) { /* room for nothing, a page .. */
            if (truncate(path_of("disk/filler"), (off_t)size)) _exit(3);
            if (cmha_trainer_save(&trainer, path_of("disk/new")) == CMHA_OK) break;
            cannot_save("a full disk", path_of("disk/model"), save_trainer, path_of("disk/model"));
            cannot_save("a full disk, no old file", path_of("disk/new"), save_trainer, NULL);
            pages++;
        }
        fclose(f);
        CHECK_THAT(pages > 1, "the disk was full %d times", pages);
        fflush(stdout);
        _exit(check_failed ? 1 : 0);
    }
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        printf("SKIP there is no small disk to fill: mounting is refused\n");
    else CHECK_THAT(WIFEXITED(status) && !WEXITSTATUS(status), "a full disk");
    rmdir(path_of("disk"));
#endif
}

/* Saves to `path`; the file there is then the whole model. */
static void saves(const char *what, const char *path) {
    struct stat about;
    CHECK_THAT(!cmha_trainer_save(&trainer, path), "%s: %s", what, cmha_error(&context));
    CHECK_THAT(!stat(path, &about) && S_ISREG(about.st_mode), "%s: there is no regular file", what);
    CHECK_THAT(!cmha_trainer_read(&trainer, path) && unchanged(), "%s: another model comes back", what);
    CHECK_THAT(!left_beside(path), "%s: a temporary file is left", what);
}

static int is_link(const char *path, const char *to) {
    char text[600];
    ssize_t n = readlink(path, text, sizeof text - 1);
    return n >= 0 && (text[n] = 0, !strcmp(text, to));
}

/* A link stays one, whatever it leads to, and the file at its end gets what is saved; the disk's other names
   are not touched. */
static void links(void) {
    static const struct {
        const char *link, *to, *file; /* what the file at the end is called */
    } rows[] = {{"link", "file", "file"},          {"chain", "link", "file"},
                {"up", "sub/../file", "file"},     {"sub/down", "../file", "file"},
                {"into", "sub/inner", "sub/inner"}, {"way", "sub", NULL},
                {"new", "sub/fresh", "sub/fresh"}, {"newer", "new", "sub/fresh"},
                {"whole-way", NULL, "file"}}; /* NULL: the whole path */
    char absolute[300];
    size_t i;
    mkdir(path_of("sub"), 0755);
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *to = rows[i].to ? rows[i].to : absolute;
        snprintf(absolute, sizeof absolute, "%s", path_of("file"));
        remove(path_of("sub/fresh")), put(path_of("file"), "x", 1), put(path_of("sub/inner"), "x", 1);
        CHECK(!symlink(to, path_of(rows[i].link)));
        if (!rows[i].file) { /* a link to a folder: refused as itself, a way for others */
            cannot_save("a link to a folder", path_of(rows[i].link), save_model, NULL);
            saves("through a link to a folder", path_of("way/inner"));
            continue;
        }
        saves(rows[i].link, path_of(rows[i].link));
        CHECK_THAT(is_link(path_of(rows[i].link), to), "%s is no link any more", rows[i].link);
        CHECK_THAT(readlink(path_of(rows[i].file), absolute, 1) < 0, "%s is a link", rows[i].file);
        saves(rows[i].file, path_of(rows[i].file));
        CHECK(!left_beside(path_of("sub/x")));
    }
    for (i = sizeof rows / sizeof *rows; i-- > 0;) CHECK(!remove(path_of(rows[i].link)));
    cannot_save("a link to itself", path_of("itself"), save_model, NULL);
    CHECK(is_link(path_of("itself"), "itself"));
    CHECK(!symlink("no/where", path_of("astray")));
    cannot_save("a link into a folder that is not there", path_of("astray"), save_model, NULL);
    cannot_save("a link to a FIFO", path_of("piped"), save_model, NULL);
    CHECK(is_link(path_of("astray"), "no/where") && !remove(path_of("astray")) && !remove(path_of("file")));
    CHECK(!remove(path_of("sub/inner")) && !rmdir(path_of("sub")));
}

/* A device that a wrong library may replace without harm: root gets one in the test's folder, others may not
   write to the system's folder. NULL = there is none. */
static const char *device(void) {
#ifdef __linux__
    if (!mknod(path_of("device"), S_IFCHR | 0666, makedev(1, 3)) || errno == EEXIST) return path_of("device");
#endif
    return geteuid() ? "/dev/null" : NULL;
}

/* What is no regular file is never replaced. */
static void devices(void) {
    struct stat after;
    if (device()) {
        cannot_save("a device", device(), save_model, NULL);
        CHECK(!stat(device(), &after) && S_ISCHR(after.st_mode));
        CHECK(!symlink(device(), path_of("nothing")));
        cannot_save("a link to a device", path_of("nothing"), save_model, NULL);
        CHECK(!stat(path_of("nothing"), &after) && S_ISCHR(after.st_mode));
        CHECK(is_link(path_of("nothing"), device()) && !remove(path_of("nothing")));
    } else printf("SKIP there is no right to make a device to save to\n");
    cannot_save("a FIFO", path_of("fifo"), save_model, NULL);
    CHECK(!stat(path_of("fifo"), &after) && S_ISFIFO(after.st_mode));
    cannot_save("a folder", folder, save_model, NULL);
    cannot_save("a way into a folder", path_of(""), save_model, NULL);
}

/* An old file's permissions stay, and a new one has what the umask leaves. */
static void permissions(void) {
    static const mode_t modes[] = {0600, 0640, 0666, 0444, 0755, 0200}, masks[] = {022, 077, 0, 0777};
    struct stat about;
    mode_t mask = umask(0);
    size_t i, k;
    for (k = 0; k < sizeof masks / sizeof *masks; k++) {
        umask(masks[k]);
        CHECK_OK(cmha_trainer_save(&trainer, path_of("fresh")));
        CHECK_THAT(!stat(path_of("fresh"), &about) && (about.st_mode & 07777) == (0666 & ~masks[k]),
                   "umask %03o: a new file has %03o", (unsigned)masks[k], (unsigned)about.st_mode & 07777);
        for (i = 0; i < sizeof modes / sizeof *modes; i++) {
            CHECK(!chmod(path_of("fresh"), modes[i]));
            CHECK_OK(cmha_trainer_save(&trainer, path_of("fresh")));
            CHECK_THAT(!stat(path_of("fresh"), &about) && (about.st_mode & 07777) == modes[i],
                       "%03o becomes %03o", (unsigned)modes[i], (unsigned)about.st_mode & 07777);
        }
        remove(path_of("fresh"));
    }
    umask(mask);
}

static void writing(void) {
    size_t n, i;
    unsigned char *bytes = get(path_of("whole"), &n);
    char name[260];
    put(path_of("old"), bytes, n);
    signal(SIGXFSZ, SIG_DFL); /* which would end this test: no save may bring it about */
    for (i = 0; i < 12; i++) {
        static const size_t limits[12] = {0, 1, 7, 8, 9, 100, 1000, 4095, 4096, 4097};
        file_limit = (rlim_t)(i < 10 ? limits[i] : i == 10 ? n - 1 : n / 2);
        cannot_save("a file that may not grow", path_of("old"), save_with_limit, path_of("old"));
        cannot_save("a new file that may not grow", path_of("new"), save_with_limit, NULL);
        CHECK(access(path_of("new"), F_OK) != 0);
    }
    mkdir(path_of("closed"), 0755), put(path_of("closed/old"), bytes, n), chmod(path_of("closed"), 0555);
    cannot_save("a folder that is closed", path_of("closed/old"), save_as_nobody, path_of("closed/old"));
    cannot_save("a folder that is closed, a new file", path_of("closed/new"), save_as_nobody, NULL);
    chmod(path_of("closed"), 0755), remove(path_of("closed/old")), rmdir(path_of("closed"));
    cannot_save("a folder that is not there", path_of("no/where"), save_model, NULL);
    cannot_save("a file as a folder", path_of("whole/model"), save_model, path_of("whole"));
    cannot_save("no name at all", "", save_model, NULL);
    memset(name, 'x', 256), name[256] = 0;
    CHECK_IS(cmha_model_save(&model, path_of(name)), CMHA_ERR_IO);
    name[255] = 0; /* the longest there is */
    saves("a long name", path_of(name));
    remove(path_of(name));
    devices(), links(), permissions(), full_disk();
    CHECK_OK(cmha_trainer_save(&trainer, path_of("old")));
    CHECK_OK(cmha_trainer_read(&trainer, path_of("old")));
    CHECK(unchanged());
    free(bytes);
}

static void clean_up(void) {
    static const char *const names[] = {"model",   "whole",    "header",  "length",     "deep",   "crowd",
                                        "altered", "cut",      "flipped", "shrinks",    "tokens", "fifo",
                                        "itself",  "dangling", "piped",   "two\nlines", "secret", "table",
                                        "odd",      "old",     "hole",       "base",   "device",
                                        "packed", "q4_k"};
    size_t i;
    for (i = 0; i < sizeof names / sizeof *names; i++) remove(path_of(names[i]));
    /* a temporary file, for instance */
    CHECK_THAT(!rmdir(folder), "something was left behind in %s", folder);
}

int main(int argc, char **argv) {
    cmha_context_config config;
    (void)argc;
    cmha_blas_restart(argv);
    if (!mkdtemp(folder)) return 3;
    config = check_heap_config(&heap);
    config.allocator.allocate = allocate, config.log = on_log;
    CHECK_OK(cmha_context_init(&context, &config));
    open_model();
    broken_headers(), unusual_headers(), depths_and_lengths(), crowds();
    wrong_models(), wrong_packed(), wrong_states(), best_losses(), intersection();
    truncations(), flips("model"), flips("packed"), flips("q4_k");
    shrinking(), shrunk_later(), knowledge(), little_memory();
    places(), holes(), appetites(), texts(), writing();
    cmha_trainer_close(&trainer), cmha_model_close(&model), cmha_context_close(&context);
    CHECK(check_heap_empty(&heap));
    free(kept);
    clean_up();
    return check_end();
}
