/* Files: what is written can be read, and nothing that is wrong with a file gets further than a status. */
#define _POSIX_C_SOURCE 200809L
#define _DARWIN_C_SOURCE
#include "check.h"
#include "system.h"

static char folder[64] = "/tmp/cmha-files-XXXXXX";
static check_heap heap;
static cmha_context context;

static const char *path_of(const char *name) {
    static char path[4][128];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static void put(const char *path, const void *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    if (!CHECK(f && fwrite(bytes, 1, n, f) == n)) exit(3);
    fclose(f);
}

static unsigned char *get(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    unsigned char *bytes;
    if (!CHECK_THAT(f != NULL, "%s is not there", path)) exit(3);
    fseek(f, 0, SEEK_END), *n = (size_t)ftell(f), rewind(f);
    bytes = (unsigned char *)check_alloc(*n, 1);
    if (!CHECK(fread(bytes, 1, *n, f) == *n)) exit(3);
    fclose(f);
    return bytes;
}

/* A safetensors file from a header in text and some bytes of data */
static void put_archive(const char *path, const char *header, const void *data, size_t n) {
    size_t length = strlen(header), i;
    unsigned char *bytes = (unsigned char *)check_alloc(8 + length + n, 1);
    for (i = 0; i < 8; i++) bytes[i] = (unsigned char)((uint64_t)length >> (8 * i));
    memcpy(bytes + 8, header, length);
    if (n) memcpy(bytes + 8 + length, data, n);
    put(path, bytes, 8 + length + n);
    free(bytes);
}

/* ----------------------------------------------- archives ----------------------------------------------- */

static void round_trip(void) {
    static const size_t ab[2] = {2, 3}, none[2] = {0, 4}, one[1] = {1};
    static const char *const metadata[] = {"cfg.base", "10000", "words",
                                           "a \"quoted\" back\\slash,\ttab and\nline \xc3\xa9"};
    cmha_real a[6] = {1, -2, 3.25, 1e-30f, -0.0f, 1e30f}, b[1] = {7}, read[6];
    cmha_archive_item items[3] = {{"alpha.weight", a, ab, 2, NULL},
                                  {"empty", a, none, 2, NULL},
                                  {"b", b, one, 1, NULL}};
    cmha_archive r;
    const cmha_archive_tensor *t;
    const char *path = path_of("round.safetensors");
    char left[400];
    CHECK_OK(cmha_archive_write(&context, path, items, 3, metadata, 2));
    CHECK_THAT(!system_left(folder, left, sizeof left), "%s is left behind", left);
    CHECK_THAT(!cmha_archive_open(&r, &context, path), "%s", cmha_error(&context));
    CHECK(r.n_tensors == 3 && r.data_begin % 8 == 0);
    t = cmha_archive_find(&r, "alpha.weight");
    if (CHECK(t && t->rank == 2 && t->shape[0] == 2 && t->shape[1] == 3 && t->count == 6 &&
              !strcmp(t->dtype, sizeof(cmha_real) == 8 ? "F64" : "F32"))) {
        CHECK_OK(cmha_archive_read(&r, t, read));
        CHECK(!memcmp(a, read, sizeof a));
    }
    t = cmha_archive_find(&r, "empty");
    CHECK(t && t->count == 0 && !cmha_archive_read(&r, t, read));
    CHECK(cmha_archive_find(&r, "alpha") == NULL && cmha_archive_metadata(&r, "nothing") == NULL);
    CHECK(cmha_archive_metadata(&r, "cfg.base") && !strcmp(cmha_archive_metadata(&r, "cfg.base"), "10000"));
    CHECK(cmha_archive_metadata(&r, "words") && !strcmp(cmha_archive_metadata(&r, "words"), metadata[3]));
    cmha_archive_close(&r), cmha_archive_close(&r);
}

/* Archives with any number of tensors and of metadata, none included */
static void round_trips_of_few(void) {
    static const size_t one[1] = {1};
    static const char *const metadata[] = {"a", "b", "c", "d"};
    cmha_real x[1] = {7};
    cmha_archive_item items[2] = {{"x", x, one, 1, NULL}, {"y", x, one, 1, NULL}};
    cmha_archive r;
    const char *path = path_of("round.safetensors");
    size_t n, m;
    for (n = 0; n <= 2; n++)
        for (m = 0; m <= 2; m++) {
            CHECK_OK(cmha_archive_write(&context, path, items, n, metadata, m));
            CHECK_THAT(!cmha_archive_open(&r, &context, path), "%zu tensors, %zu pairs: %s", n, m,
                       cmha_error(&context));
            CHECK(r.n_tensors == n && r.n_metadata == m);
            cmha_archive_close(&r);
        }
}

/* More bytes than a size can count, in one tensor or in two: refused before any of them is looked at. */
static void too_much(void) {
    static const size_t half = (size_t)-1 / 2 + 1, wide[2] = {(size_t)-1 / 2 + 1, 2};
    cmha_real little = 0;
    cmha_archive_item items[2] = {{"a", &little, &half, 1, "U8"}, {"b", &little, &half, 1, "U8"}};
    CHECK_IS(cmha_archive_write(&context, path_of("good"), items, 2, NULL, 0), CMHA_ERR_OVERFLOW);
    items[0].shape = wide, items[0].rank = 2;
    CHECK_IS(cmha_archive_write(&context, path_of("good"), items, 1, NULL, 0), CMHA_ERR_OVERFLOW);
}

/* The dtypes a reader meets, with their special values */
static void dtypes(void) {
    static const char header[] = "{\"f64\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[0,16]},\"f32\":"
                                 "{\"dtype\":\"F32\",\"shape\":[2],"
                                 "\"data_offsets\":[16,24]},\"f16\":{\"dtype\":\"F16\",\"shape\":[5],\"data_"
                                 "offsets\":[24,34]},\"bf16\":{\"dtype\":"
                                 "\"BF16\",\"shape\":[3],\"data_offsets\":[34,40]},\"i64\":{\"dtype\":"
                                 "\"I64\",\"shape\":[2,1],\"data_offsets\":[40,56]}"
                                 ",\"u8\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[56,57]}} ";
    unsigned char data[57];
    double f64[2] = {1.5, -1e-3};
    float f32[2] = {2.5f, -3.0f};
    uint16_t f16[5] = {0x3C00, 0xC100, 0x0001, 0x7C00, 0x03FF},
             bf16[3] = {0x3F80, 0xC2F7, 0x0000}; /* 1 -2.5 2^-24 inf 1023 * 2^-24; 1 -123.5 0 */
    int64_t i64[2] = {-5, 1234567}, whole[2];
    cmha_archive r;
    cmha_real x[5];
    const char *path = path_of("types.safetensors");
    system_little_endian(f64, 2, 8), system_little_endian(f32, 2, 4), system_little_endian(f16, 5, 2);
    system_little_endian(bf16, 3, 2), system_little_endian(i64, 2, 8);
    memcpy(data, f64, 16), memcpy(data + 16, f32, 8), memcpy(data + 24, f16, 10), memcpy(data + 34, bf16, 6),
        memcpy(data + 40, i64, 16);
    data[56] = 9;
    put_archive(path, header, data, sizeof data);
    if (!CHECK_THAT(!cmha_archive_open(&r, &context, path), "%s", cmha_error(&context))) return;
    CHECK_OK(cmha_archive_read(&r, cmha_archive_find(&r, "f64"), x));
    CHECK(x[0] == (cmha_real)1.5 && x[1] == (cmha_real)-1e-3);
    CHECK_OK(cmha_archive_read(&r, cmha_archive_find(&r, "f32"), x));
    CHECK(x[0] == (cmha_real)2.5 && x[1] == -3);
    CHECK_OK(cmha_archive_read(&r, cmha_archive_find(&r, "f16"), x));
    CHECK(x[0] == 1 && x[1] == (cmha_real)-2.5 && x[2] == (cmha_real)ldexp(1, -24) && isinf((double)x[3]) &&
          x[4] == (cmha_real)ldexp(1023, -24));
    CHECK_OK(cmha_archive_read(&r, cmha_archive_find(&r, "bf16"), x));
    CHECK(x[0] == 1 && x[1] == (cmha_real)-123.5 && x[2] == 0);
    CHECK_OK(cmha_archive_read(&r, cmha_archive_find(&r, "i64"), x));
    CHECK(x[0] == -5 && x[1] == 1234567);
    CHECK_OK(cmha_archive_read_i64(&r, cmha_archive_find(&r, "i64"), whole));
    CHECK(whole[0] == -5 && whole[1] == 1234567);
    CHECK_IS(cmha_archive_read_i64(&r, cmha_archive_find(&r, "f64"), whole), CMHA_ERR_FORMAT);
    CHECK_IS(cmha_archive_read(&r, cmha_archive_find(&r, "u8"), x), CMHA_ERR_FORMAT);
    cmha_archive_close(&r);
}

static void malformed(void) {
    static const char *const headers[] =
        {"", "{", "[]", "{}{}", "{\"a\"}", "{\"a\":1}", "nonsense",
         "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}",
         "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", /* too few bytes for the shape */
         "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,12]}}", /* too many */
         "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", /* beyond the end */
         "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}",  /* backwards */
         "{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}",
         "{\"a\":{\"dtype\":\"F32\",\"shape\":[2.5],\"data_offsets\":[0,8]}}",
         /* the product wraps to 0 */
         "{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,2],\"data_offsets\":[0,8]}}",
         "{\"a\":{\"dtype\":\"F32\",\"shape\":[18446744073709551618],\"data_offsets\":[0,8]}}",
         "{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]}}", /* rank 9 */
         "{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", "{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}",
         "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}",
         ("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"a\":{\"dtype\":\"F32\","
          "\"shape\":[0],\"data_offsets\":["
          "8,8]}}"), /* twice */
         "{\"__metadata__\":{\"k\":1}}", "{\"__metadata__\":[]}",
         "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},}",
         "{\"a\\u00\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
         "{\"a\":{\"dtype\":F32,\"shape\":[2],\"data_offsets\":[0,8]}}",
         "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["
         "[[[[[[[[[[[[["};
    static const unsigned char huge[8] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f},
                               large[9] = {100, 0, 0, 0, 0, 0, 0, 0, '{'};
    cmha_archive r;
    const char *path = path_of("bad.safetensors");
    cmha_real two[2] = {1, 2};
    float data[2] = {1, 2};
    size_t i, before = heap.bytes;
    (void)two;
    for (i = 0; i < sizeof headers / sizeof *headers; i++) {
        cmha_status s;
        put_archive(path, headers[i], data, sizeof data);
        s = cmha_archive_open(&r, &context, path);
        CHECK_THAT(s == CMHA_ERR_FORMAT, "header %zu, %.60s: \"%s\"", i, headers[i], cmha_status_string(s));
        CHECK_THAT(strstr(cmha_error(&context), "bad.safetensors") != NULL,
                   "header %zu: the error does not name the file: %s", i, cmha_error(&context));
        CHECK_THAT(heap.bytes == before, "header %zu: %zu bytes leak", i, heap.bytes - before);
        if (!s) cmha_archive_close(&r);
    }
    put(path, huge, sizeof huge);
    CHECK_IS(cmha_archive_open(&r, &context, path), CMHA_ERR_FORMAT);
    put(path, large, sizeof large);
    CHECK_IS(cmha_archive_open(&r, &context, path), CMHA_ERR_FORMAT);
    CHECK(heap.bytes == before);
}

/* No bit of a header can be flipped so that opening crashes, hangs or leaks */
static void corrupted(void) {
    size_t n, i, before = heap.bytes;
    unsigned char *bytes;
    cmha_archive r;
    cmha_real *x;
    static const size_t shape[2] = {2, 2};
    cmha_real a[4] = {1, 2, 3, 4};
    cmha_archive_item item = {"weight", a, shape, 2, NULL};
    static const char *const metadata[] = {"key", "value"};
    CHECK_OK(cmha_archive_write(&context, path_of("good"), &item, 1, metadata, 1));
    bytes = get(path_of("good"), &n);
    x = check_zeros(4096);
    for (i = 0; i < n * 3; i++) {
        unsigned char kept = bytes[i / 3];
        bytes[i / 3] = (unsigned char)(i % 3 == 0 ? kept ^ 1 : i % 3 == 1 ? kept ^ 0x80 : '9');
        put(path_of("flipped"), bytes, n);
        bytes[i / 3] = kept;
        if (cmha_archive_open(&r, &context, path_of("flipped"))) continue;
        if (r.n_tensors == 1 && r.tensors[0].count <= 4096) (void)!cmha_archive_read(&r, &r.tensors[0], x);
        cmha_archive_close(&r);
    }
    CHECK_THAT(heap.bytes == before, "%zu bytes leak", heap.bytes - before);
    free(bytes), free(x);
}

/* ---------------------------------------- models and checkpoints ---------------------------------------- */

static cmha_model_config tiny_config(void) {
    cmha_model_config m = check_model_config();
    m.n_layers = 1, m.d_model = 4, m.n_heads = 2, m.d_ff = 4, m.vocabulary = 5;
    m.base = 1234.5678901234567, m.dropout = 0.1, m.activation = CMHA_ACTIVATION_SWIGLU,
    m.layout = CMHA_LAYOUT_HALF, m.attention_bias = 1, m.tied = 0;
    return m;
}

/* Field by field: between the fields there is padding */
static void same_config(const cmha_model_config *a, const cmha_model_config *b) {
    cmha_table table = cmha_model_table();
    char ta[32], tb[32];
    size_t i;
    for (i = 0; i < table.count; i++) {
        cmha_config_get(table, a, table.fields[i].name, ta, sizeof ta),
            cmha_config_get(table, b, table.fields[i].name, tb, sizeof tb);
        CHECK_THAT(!strcmp(ta, tb), "%s was %s and comes back as %s", table.fields[i].name, ta, tb);
    }
    CHECK(a->base == b->base && a->dropout == b->dropout);
}

static void model_round_trip(void) {
    static const char *const names[] = {"tok_emb.weight",
                                        "blocks.0.ln1.weight",
                                        "blocks.0.ln1.bias",
                                        "blocks.0.attn.wq.weight",
                                        "blocks.0.attn.wk.weight",
                                        "blocks.0.attn.wv.weight",
                                        "blocks.0.attn.wo.weight",
                                        "blocks.0.attn.delta",
                                        "blocks.0.attn.b",
                                        "blocks.0.ffn.w1.weight",
                                        "blocks.0.ffn.w2.weight",
                                        "ln_f.weight",
                                        "head.weight"};
    cmha_model_config m = tiny_config();
    cmha_model a, b;
    cmha_archive r;
    int32_t ids[4] = {1, 2, 3, 4};
    cmha_batch batch = {ids, ids, NULL, 1, 4, NULL, NULL, NULL, NULL, NULL};
    double la, lb;
    size_t i;
    CHECK_OK(cmha_model_init(&a, &context, &m));
    CHECK_OK(cmha_model_save(&a, path_of("model.safetensors")));
    CHECK_THAT(!cmha_model_open(&b, &context, path_of("model.safetensors")), "%s", cmha_error(&context));
    same_config(&a.config, &b.config);
    CHECK(a.parameters.size == b.parameters.size &&
          !memcmp(a.parameters.data, b.parameters.data, a.parameters.size * sizeof *a.parameters.data));
    CHECK_OK(cmha_model_loss(&a, &batch, &la));
    CHECK_OK(cmha_model_loss(&b, &batch, &lb));
    CHECK(la == lb);
    CHECK_OK(cmha_archive_open(&r, &context, path_of("model.safetensors")));
    for (i = 0; i < sizeof names / sizeof *names; i++)
        CHECK_THAT(cmha_archive_find(&r, names[i]), "the file has no %s", names[i]);
    CHECK(r.n_tensors == a.parameters.count && cmha_archive_metadata(&r, "cfg.n_layers") &&
          !strcmp(cmha_archive_metadata(&r, "cfg.n_layers"), "1"));
    cmha_archive_close(&r), cmha_model_close(&a), cmha_model_close(&b);
}

/* A checkpoint cut at any byte is an error without a leak, for models and
   trainers, and leaves the trainer as it was */
static void truncated(void) {
    cmha_model_config m = tiny_config();
    cmha_trainer_config t;
    cmha_model model, loaded;
    cmha_trainer trainer;
    cmha_real *kept;
    unsigned char *bytes;
    size_t n, less, step, before, bad = 0, changed = 0, leaked = 0;
    cmha_config_defaults(cmha_trainer_table(), &t);
    t.batch = 1, t.length = 4;
    CHECK_OK(cmha_model_init(&model, &context, &m));
    CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    CHECK_OK(cmha_trainer_save(&trainer, path_of("whole")));
    bytes = get(path_of("whole"), &n);
    put(path_of("cut"), bytes, n);
    free(bytes);
    kept = check_zeros(model.parameters.size);
    memcpy(kept, model.parameters.data, model.parameters.size * sizeof *kept);
    before = heap.bytes, step = check_quick() ? 37 : 1;
    for (less = 1; less <= n; less += step) {
        if (truncate(path_of("cut"), (off_t)(n - less))) exit(3);
        if (!cmha_model_open(&loaded, &context, path_of("cut"))) bad++, cmha_model_close(&loaded);
        if (!cmha_trainer_read(&trainer, path_of("cut"))) bad++;
        changed += memcmp(kept, model.parameters.data, model.parameters.size * sizeof *kept) != 0;
        leaked += heap.bytes != before;
    }
    CHECK_THAT(bad == 0, "%zu truncated checkpoints were loaded", bad);
    CHECK_THAT(changed == 0, "%zu truncated checkpoints changed the model", changed);
    CHECK_THAT(leaked == 0, "%zu truncated checkpoints leak", leaked);
    CHECK_OK(cmha_trainer_read(&trainer, path_of("whole")));
    CHECK_OK(cmha_model_open(&loaded, &context, path_of("whole"))); /* weights out of a training state */
    CHECK(!memcmp(kept, loaded.parameters.data, loaded.parameters.size * sizeof *kept));
    cmha_trainer_close(&trainer), cmha_model_close(&loaded), cmha_model_close(&model);
    free(kept);
}

/* Rewrites a saved model with one thing changed: drop, rename, add or reshape a
   tensor, or change a metadata value */
static cmha_status altered(const char *drop, const char *add, const char *reshape, const char *key,
                           const char *value) {
    cmha_archive r;
    cmha_archive_item items[64];
    const char *metadata[512];
    size_t i, n = 0, flat[64];
    cmha_model model;
    cmha_status s;
    CHECK_OK(cmha_archive_open(&r, &context, path_of("model.safetensors")));
    for (i = 0; i < r.n_tensors; i++) {
        const cmha_archive_tensor *t = &r.tensors[i];
        cmha_real *data = check_zeros(t->count);
        CHECK_OK(cmha_archive_read(&r, t, data));
        items[n].name = t->name, items[n].data = data, items[n].shape = t->shape, items[n].rank = t->rank;
        items[n].dtype = NULL;
        if (reshape && !strcmp(t->name, reshape))
            flat[i] = t->count, items[n].shape = &flat[i], items[n].rank = 1;
        if (drop && !strcmp(t->name, drop)) free(data);
        else n++;
    }
    if (add) items[n] = items[0], items[n].data = check_array(64, 1), items[n++].name = add;
    for (i = 0; i < r.n_metadata; i++) {
        metadata[2 * i] = r.metadata[2 * i];
        metadata[2 * i + 1] = key && !strcmp(key, r.metadata[2 * i]) ? value : r.metadata[2 * i + 1];
    }
    CHECK_OK(cmha_archive_write(&context, path_of("altered"), items, n, metadata, r.n_metadata));
    for (i = 0; i < n; i++) free((void *)(uintptr_t)items[i].data);
    cmha_archive_close(&r);
    s = cmha_model_open(&model, &context, path_of("altered"));
    if (!s) cmha_model_close(&model);
    else CHECK(strlen(cmha_error(&context)) > 0);
    return s;
}

static void mismatches(void) {
    size_t before = heap.bytes;
    CHECK_OK(altered(NULL, NULL, NULL, NULL, NULL));
    CHECK(altered("ln_f.weight", NULL, NULL, NULL, NULL) != CMHA_OK);
    CHECK(altered(NULL, "blocks.9.attn.delta", NULL, NULL, NULL) != CMHA_OK);
    CHECK_IS(altered(NULL, NULL, "blocks.0.attn.wq.weight", NULL, NULL), CMHA_ERR_SHAPE);
    CHECK_IS(altered(NULL, NULL, NULL, "cfg.d_ff", "6"), CMHA_ERR_SHAPE);
    CHECK(altered(NULL, NULL, NULL, "cfg.n_layers", "2") != CMHA_OK);
    CHECK(altered(NULL, NULL, NULL, "cfg.n_layers", "1000000") != CMHA_OK);
    CHECK(altered(NULL, NULL, NULL, "cfg.d_model", "no number") != CMHA_OK);
    CHECK(altered(NULL, NULL, NULL, "cfg.attention", "telepathy") != CMHA_OK);
    CHECK_THAT(heap.bytes == before, "%zu bytes leak", heap.bytes - before);
}

static void wrong_trainer(void) {
    cmha_model_config m = tiny_config();
    cmha_trainer_config t;
    cmha_model model;
    cmha_trainer trainer;
    cmha_config_defaults(cmha_trainer_table(), &t);
    t.batch = 1, t.length = 4, m.d_ff = 6;
    CHECK_OK(cmha_model_init(&model, &context, &m));
    CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    CHECK(cmha_trainer_read(&trainer, path_of("whole")) != CMHA_OK);             /* another width */
    /* weights without a training state */
    CHECK(cmha_trainer_read(&trainer, path_of("model.safetensors")) != CMHA_OK);
    cmha_trainer_close(&trainer), cmha_model_close(&model);
}

static void places(void) {
    cmha_model_config m = tiny_config();
    cmha_model model, saved;
    cmha_tokens tokens;
    cmha_archive r;
    unsigned char odd[5] = {1, 2, 3, 4, 5}, *before, *after;
    size_t bytes = heap.bytes, n, n2;
    CHECK_IS(cmha_archive_open(&r, &context, path_of("nowhere")), CMHA_ERR_NOT_FOUND);
    CHECK(strstr(cmha_error(&context), "nowhere") != NULL);
    CHECK_IS(cmha_model_open(&model, &context, path_of("nowhere")), CMHA_ERR_NOT_FOUND);
    CHECK_IS(cmha_tokens_open(&tokens, &context, path_of("nowhere"), 1), CMHA_ERR_NOT_FOUND);
    CHECK(cmha_archive_open(&r, &context, folder) != CMHA_OK);
    CHECK(cmha_model_open(&model, &context, folder) != CMHA_OK);
    CHECK(cmha_tokens_open(&tokens, &context, folder, 1) != CMHA_OK);
    if (system_fifo(path_of("fifo"))) { /* must not wait for a writer that never comes */
        CHECK(cmha_archive_open(&r, &context, path_of("fifo")) != CMHA_OK);
        CHECK(cmha_tokens_open(&tokens, &context, path_of("fifo"), 1) != CMHA_OK);
        system_fifo_end();
    }
    put(path_of("odd"), odd, 5);
    CHECK_IS(cmha_tokens_open(&tokens, &context, path_of("odd"), 2), CMHA_ERR_FORMAT);
    CHECK_IS(cmha_tokens_open(&tokens, &context, path_of("odd"), 3), CMHA_ERR_ARGUMENT);
    CHECK_OK(cmha_tokens_open(&tokens, &context, path_of("odd"), 1));
    CHECK(tokens.count == 5 && cmha_tokens_at(&tokens, 4) == 5);
    cmha_tokens_close(&tokens), cmha_tokens_close(&tokens);
    put(path_of("odd"), odd, 4);
    CHECK_OK(cmha_tokens_open(&tokens, &context, path_of("odd"), 2));
    CHECK(tokens.count == 2 && cmha_tokens_at(&tokens, 1) == 3 + 4 * 256);
    cmha_tokens_close(&tokens);
    n = heap.bytes;
    CHECK_OK(cmha_tokens_open(&tokens, &context, path_of("odd"), 2)); /* a mapped file takes no memory */
    CHECK(tokens.mapped ? heap.bytes == n : heap.bytes > n);
    CHECK(remove(path_of("odd")) == 0); /* and lives on while it is open */
    CHECK(tokens.count == 2 && cmha_tokens_at(&tokens, 1) == 3 + 4 * 256 && cmha_tokens_at(&tokens, 2) == -1);
    cmha_tokens_close(&tokens);
    put(path_of("odd"), odd, 4); /* a text may change while it is read */
    CHECK_OK(cmha_tokens_open(&tokens, &context, path_of("odd"), 1));
    put(path_of("odd"), odd, 1);
    CHECK(!tokens.mapped && tokens.count == 4 && cmha_tokens_at(&tokens, 3) == 4);
    cmha_tokens_close(&tokens);
    CHECK_OK(cmha_model_init(&saved, &context, &m));
    before = get(path_of("model.safetensors"), &n);
    CHECK_IS(cmha_model_save(&saved, path_of("no/such/folder/model")), CMHA_ERR_IO);
    CHECK(cmha_model_save(&saved, folder) != CMHA_OK);
    after = get(path_of("model.safetensors"), &n2);
    CHECK(n == n2 && !memcmp(before, after, n));
    cmha_model_close(&saved);
    free(before), free(after);
    CHECK_THAT(heap.bytes == bytes, "%zu bytes leak", heap.bytes - bytes);
}

static void clean_up(void) {
    static const char *const names[] = {"round.safetensors",
                                        "types.safetensors",
                                        "bad.safetensors",
                                        "good",
                                        "flipped",
                                        "model.safetensors",
                                        "whole",
                                        "cut",
                                        "altered",
                                        "fifo",
                                        "odd"};
    size_t i;
    for (i = 0; i < sizeof names / sizeof *names; i++) remove(path_of(names[i]));
    /* a temporary file, for instance */
    CHECK_THAT(!rmdir(folder), "something was left behind in %s", folder);
}

int main(int argc, char **argv) {
    cmha_context_config config;
    (void)argc;
    cmha_blas_restart(argv);
    if (!system_folder(folder)) return 3;
    config = check_heap_config(&heap);
    CHECK_OK(cmha_context_init(&context, &config));
    round_trip(), round_trips_of_few(), too_much(), dtypes(), malformed(), corrupted();
    model_round_trip(), truncated(), mismatches(), wrong_trainer(), places();
    cmha_context_close(&context);
    CHECK(check_heap_empty(&heap));
    clean_up();
    return check_end();
}
