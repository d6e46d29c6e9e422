/* weights.h - the numbers of models, tensor by tensor, wherever they lie: safetensors files and their shards,
   GGUF, llama2.c's .bin; and files of safetensors and GGUF that are written as the tensors come. No more than
   one tensor is in memory. Static functions, after cmha.h; 1 for success, or 0 and one line in `error`. */
#ifndef WEIGHTS_H
#define WEIGHTS_H

#include "gguf.h"
#include "text.h"

#include <cjson/cJSON.h>

#ifdef CMHA_DOUBLE
#error "weights.h passes numbers on as float"
#endif

typedef struct weights_tensor {
    const char *name;
    size_t shape[4];
    int rank, used;                          /* used: somebody knows what it is */
    size_t count;
    cmha_archive *archive;                   /* one of these three */
    const gguf_tensor *gguf;
    uint64_t place;                          /* in a plain file of F32 */
    const cmha_archive_tensor *in_archive;
} weights_tensor;

typedef struct weights {
    weights_tensor *list; /* in the order of their names */
    size_t n, room;
    cmha_archive *shards;
    size_t n_shards;
    gguf_file gguf;
    FILE *plain;
    char *names; /* of a plain file */
    const char *path;
} weights;

static inline void weights_close(weights *w) {
    for (size_t i = 0; i < w->n_shards; i++) cmha_archive_close(&w->shards[i]);
    if (w->plain) fclose(w->plain);
    gguf_close(&w->gguf);
    free(w->list), free(w->shards), free(w->names);
    memset(w, 0, sizeof *w);
}

static inline int weights_by_name(const void *a, const void *b) {
    return strcmp(((const weights_tensor *)a)->name, ((const weights_tensor *)b)->name);
}

static inline weights_tensor *weights_find(const weights *w, const char *name) {
    weights_tensor wanted;
    memset(&wanted, 0, sizeof wanted), wanted.name = name;
    return w->n ? (weights_tensor *)bsearch(&wanted, w->list, w->n, sizeof wanted, weights_by_name) : NULL;
}

/* Appends a tensor, whose shape the caller fills in; NULL without memory. */
static inline weights_tensor *weights_add(weights *w, const char *name) {
    if (w->n == w->room) {
        weights_tensor *list = (weights_tensor *)text_memory(w->list, 2 * w->room + 64, 1, sizeof *list);
        if (!list) return NULL;
        w->list = list, w->room = 2 * w->room + 64;
    }
    memset(&w->list[w->n], 0, sizeof *w->list);
    w->list[w->n].name = name;
    return &w->list[w->n++];
}

/* Sorts what was found; a name may be there once. */
static inline int weights_sort(weights *w, char *error) {
    if (w->n) qsort(w->list, w->n, sizeof *w->list, weights_by_name);
    for (size_t i = 1; i < w->n; i++)
        if (!weights_by_name(&w->list[i - 1], &w->list[i]))
            return text_fail(error, "%s: %.80s comes twice", w->path, w->list[i].name);
    return 1;
}

/* ---- Files of JSON and of tensors ---- */

/* Reads a small file whole, with an end; NULL and a line where that fails. */
static inline char *weights_slurp(const char *path, size_t most, size_t *n, char *error) {
    FILE *file = regular_open(path);
    char *text = NULL;
    int64_t size = -1;
    if (file && !gguf_seek(file, 0, SEEK_END)) size = gguf_tell(file);
    if (size < 0 || (uint64_t)size > most)
        text_fail(error, size < 0 ? "cannot read %s%s" : "%s is larger than a file of its kind can be%s",
                  path, size < 0 ? regular_fault(path) : "");
    else if (!(text = (char *)malloc((size_t)size + 1))) text_fail(error, "no memory for %s", path);
    else if (gguf_seek(file, 0, SEEK_SET) || fread(text, 1, (size_t)size, file) != (size_t)size)
        text_fail(error, "cannot read %s", path), free(text), text = NULL;
    else text[*n = (size_t)size] = 0;
    if (file) fclose(file);
    return text;
}

/* Adds the tensors of a safetensors file. */
static inline int weights_add_archive(weights *w, cmha_context *context, const char *path, char *error) {
    cmha_archive *a = &w->shards[w->n_shards];
    if (cmha_archive_open(a, context, path)) return text_fail(error, "%s", cmha_error(context));
    w->n_shards++;
    for (size_t i = 0; i < a->n_tensors; i++) {
        const cmha_archive_tensor *t = &a->tensors[i];
        weights_tensor *own = weights_add(w, t->name);
        if (!own) return text_fail(error, "no memory for the names in %s", path);
        own->rank = t->rank < 5 ? t->rank : 5, own->count = t->count, own->in_archive = t, own->archive = a;
        if (own->rank < 5) memcpy(own->shape, t->shape, (size_t)own->rank * sizeof *own->shape);
    }
    return 1;
}

static inline int weights_open_archive(weights *w, cmha_context *context, const char *path, char *error) {
    memset(w, 0, sizeof *w), w->path = path;
    w->shards = (cmha_archive *)calloc(1, sizeof *w->shards);
    if (!w->shards) return text_fail(error, "no memory for %s", path);
    return weights_add_archive(w, context, path, error) && weights_sort(w, error);
}

/* A file in a folder; NULL without memory. */
static inline char *weights_path(const char *folder, const char *name) {
    size_t n = strlen(folder) + strlen(name) + 2;
    char *path = (char *)malloc(n);
    if (path) snprintf(path, n, "%s/%s", folder, name);
    return path;
}

/* Is it the name of a file beside the index, and nothing more? */
static inline int weights_is_plain(const char *name) {
    return *name && *name != '.' && !strpbrk(name, "/\\:");
}

/* Opens the shards that an index names, each once. */
static inline int weights_open_shards(weights *w, cmha_context *context, const char *folder, const cJSON *map,
                                      char *error) {
    const cJSON *item;
    size_t n = 0;
    int done = 1;
    cJSON_ArrayForEach(item, map) n++;
    w->shards = (cmha_archive *)calloc(n + 1, sizeof *w->shards);
    if (!w->shards) return text_fail(error, "no memory for %zu names of tensors", n);
    cJSON_ArrayForEach(item, map) {
        const char *name = cJSON_IsString(item) ? item->valuestring : "";
        size_t i = 0;
        if (!weights_is_plain(name))
            return text_fail(error, "%s: its index names a shard \"%.80s\", which is no file in that folder",
                             folder, name);
        char *path = weights_path(folder, name);
        if (!path) return text_fail(error, "no memory for a path");
        while (i < w->n_shards && strcmp(w->shards[i].path, path)) i++;
        if (i == w->n_shards && i >= 4096) done = text_fail(error, "%s: more than 4096 shards", folder);
        else if (i == w->n_shards) done = weights_add_archive(w, context, path, error);
        free(path);
        if (!done) return 0;
    }
    if (!weights_sort(w, error)) return 0;
    if (n != w->n)
        return text_fail(error, "%s: its index names %zu tensors, its shards have %zu", folder, n, w->n);
    cJSON_ArrayForEach(item, map) {
        const weights_tensor *t = weights_find(w, item->string);
        const char *file = t ? strrchr(t->archive->path, '/') : NULL;
        if (!t || !file || strcmp(file + 1, item->valuestring))
            return text_fail(error, "%s: %.80s is not in the shard that the index says", folder,
                             item->string);
    }
    return 1;
}

/* The class of transformers that reads a folder with all of its heads: what its config.json names. */
static inline void weights_class(const char *folder, char *name, size_t size) {
    char *path = weights_path(folder, "config.json"), *text, why[TEXT_ERROR];
    size_t n = 0;
    snprintf(name, size, "AutoModelForCausalLM");
    if (path && (text = weights_slurp(path, (size_t)1 << 20, &n, why)) != NULL) {
        cJSON *json = cJSON_ParseWithLength(text, n);
        const cJSON *first = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(json, "architectures"), 0);
        const char *own = cJSON_IsString(first) ? first->valuestring : "";
        size_t letters = strspn(own, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789");
        if (letters && !own[letters] && letters < size) snprintf(name, size, "%s", own);
        cJSON_Delete(json), free(text);
    }
    free(path);
}

/* Says that a folder has no tensors that can be read, and where it has PyTorch's own, how they can be. */
static inline int weights_none(const char *folder, char *error) {
    char *bin = weights_path(folder, "pytorch_model.bin");
    char *parts = weights_path(folder, "pytorch_model.bin.index.json"), own[64];
    int there = bin && parts && (access(bin, F_OK) == 0 || access(parts, F_OK) == 0);
    free(bin), free(parts);
    if (!there)
        return text_fail(error, "%s has neither model.safetensors nor model.safetensors.index.json", folder);
    weights_class(folder, own, sizeof own);
    return text_fail(error, "%s has its weights only as pytorch_model.bin; in that folder: "
                     "python3 -c 'from transformers import %s as M; "
                     "M.from_pretrained(\".\").save_pretrained(\".\")'", folder, own);
}

/* Opens the tensors of a folder as Hugging Face has them: model.safetensors, or the shards of its index. */
static inline int weights_open_folder(weights *w, cmha_context *context, const char *folder, char *error) {
    char *whole = weights_path(folder, "model.safetensors");
    char *index = weights_path(folder, "model.safetensors.index.json"), *text = NULL;
    size_t n = 0;
    int done = whole && index;
    memset(w, 0, sizeof *w), w->path = folder;
    if (!done) text_fail(error, "no memory for a path");
    else if (access(whole, F_OK) == 0) {
        done = weights_open_archive(w, context, whole, error), w->path = folder;
    } else if (access(index, F_OK) != 0) {
        done = weights_none(folder, error);
    } else if ((text = weights_slurp(index, (size_t)1 << 26, &n, error)) == NULL) done = 0;
    else {
        cJSON *json = cJSON_ParseWithLength(text, n);
        const cJSON *map = cJSON_GetObjectItemCaseSensitive(json, "weight_map");
        done = cJSON_IsObject(map) ? weights_open_shards(w, context, folder, map, error)
                                   : text_fail(error, "%s: its index has no weight_map", folder);
        cJSON_Delete(json);
    }
    free(whole), free(index), free(text);
    return done;
}

static inline int weights_open_gguf(weights *w, const char *path, char *error) {
    char why[GGUF_ERROR];
    memset(w, 0, sizeof *w), w->path = path;
    if (!gguf_open(&w->gguf, path, why)) return text_fail(error, "%s: %s", path, why);
    for (size_t i = 0; i < w->gguf.n_tensors; i++) {
        const gguf_tensor *t = &w->gguf.tensors[i];
        weights_tensor *own = weights_add(w, t->name);
        if (!own) return text_fail(error, "no memory for the names in %s", path);
        if (t->count > SIZE_MAX / 8) return text_fail(error, "%s: %.80s is too large", path, t->name);
        own->rank = t->rank, own->count = (size_t)t->count, own->gguf = t;
        for (int j = 0; j < t->rank; j++) own->shape[j] = (size_t)t->shape[j];
    }
    return 1;
}

/* ---- llama2.c ---- */

/* The tensors of such a file, in its order; one kind's are together for all layers. Axes: as below. */
static const struct weights_row { const char *name; char axes[3]; int layers; } weights_rows[] = {
    {"tok_emb.weight", "VD", 0}, {"ln1.weight", "D", 1}, {"attn.wq.weight", "QD", 1},
    {"attn.wk.weight", "KD", 1}, {"attn.wv.weight", "KD", 1}, {"attn.wo.weight", "DQ", 1},
    {"ln2.weight", "D", 1}, {"ffn.w1.weight", "FD", 1}, {"ffn.w2.weight", "DF", 1},
    {"ffn.w3.weight", "FD", 1}, {"ln_f.weight", "D", 0}, {"", "CP", 0}, {"head.weight", "VD", 0}};

/* Opens a .bin of llama2.c: seven numbers of 32 bits, then F32. Its tensors get this library's names. */
static inline int weights_open_plain(weights *w, cmha_context *context, const char *path,
                                     cmha_model_config *c, char *error) {
    enum { ROWS = sizeof weights_rows / sizeof *weights_rows, NAME = 48 };
    static const char *const fields[7] =
        {"d_model", "d_ff", "n_layers", "n_heads", "n_kv_heads", "vocabulary", "max_positions"};
    unsigned char head[28];
    uint64_t at = sizeof head, size;
    char text[32];
    memset(w, 0, sizeof *w), w->path = path;
    if (!(w->plain = regular_open(path)) || fread(head, 1, sizeof head, w->plain) != sizeof head ||
        gguf_seek(w->plain, 0, SEEK_END))
        return text_fail(error, "%s: neither safetensors nor GGUF nor llama2.c", path);
    if (!memcmp(head, "PK\3\4", 4) || !memcmp(head, "\x80\2\x8a\n", 4))
        return text_fail(error, "%s holds PyTorch's own objects; name its folder", path);
    size = (uint64_t)gguf_tell(w->plain);
    cmha_config_defaults(cmha_model_table(), c);
    if (cmha_config_set_all(context, cmha_model_table(), c, "attention=rope norm=rmsnorm activation=swiglu "
                                                            "ffn_bias=0"))
        return text_fail(error, "%s", cmha_error(context));
    for (int i = 0; i < 7; i++) {
        int64_t n = (int32_t)gguf_bits(head + 4 * i, 4);
        if (i == 5) c->tied = n > 0, n = n < 0 ? -n : n;
        snprintf(text, sizeof text, "%lld", (long long)n);
        if (n < 1 || cmha_config_set(context, cmha_model_table(), c, fields[i], text))
            return text_fail(error, "%s: neither safetensors nor GGUF nor llama2.c", path);
    }
    if (c->d_model % c->n_heads) return text_fail(error, "%s: its width is not divisible by its heads", path);
    const size_t per_head = c->d_model / c->n_heads;
    const struct { char axis; size_t n; } axes[] = {
        {'V', c->vocabulary}, {'D', c->d_model}, {'Q', c->d_model}, {'K', c->n_kv_heads * per_head},
        {'F', c->d_ff}, {'C', c->max_positions}, {'P', per_head}};
    if (!(w->names = (char *)malloc((c->n_layers + 1) * ROWS * NAME)))
        return text_fail(error, "no memory for %s", path);
    for (size_t row = 0; row < ROWS - (size_t)c->tied; row++)
        for (size_t layer = 0; layer < (weights_rows[row].layers ? c->n_layers : 1); layer++) {
            char *name = w->names + (layer * ROWS + row) * NAME;
            if (weights_rows[row].layers)
                snprintf(name, NAME, "blocks.%zu.%s", layer, weights_rows[row].name);
            else snprintf(name, NAME, "%s", weights_rows[row].name);
            weights_tensor *t = weights_add(w, name);
            if (!t) return text_fail(error, "no memory for %s", path);
            t->place = at, t->count = 1;
            for (const char *a = weights_rows[row].axes; *a; a++)
                for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
                    if (axes[i].axis == *a) t->shape[t->rank++] = axes[i].n, t->count *= axes[i].n;
            at += 4 * (uint64_t)t->count;    /* at most 2^31 2^20 numbers: no overflow */
            t->used = !*name;                /* tables of cosines and sines */
        }
    if (at != size)
        return text_fail(error, "%s: as a model of llama2.c it would have %llu bytes, not %llu", path,
                         (unsigned long long)at, (unsigned long long)size);
    return weights_sort(w, error);
}

/* ---- Reading and writing numbers ---- */

/* Reads a tensor whole into x [count]. */
static inline int weights_read(weights *w, const weights_tensor *t, float *x, char *error) {
    char why[GGUF_ERROR];
    if (t->archive) {
        if (cmha_archive_read(t->archive, t->in_archive, x))
            return text_fail(error, "%s: %s", w->path, cmha_error(t->archive->context));
        return 1;
    }
    if (t->gguf)
        return gguf_read_tensor(&w->gguf, t->gguf, x, why) || text_fail(error, "%s: %s", w->path, why);
    if (gguf_seek(w->plain, (int64_t)t->place, SEEK_SET) || fread(x, 4, t->count, w->plain) != t->count)
        return text_fail(error, "cannot read %s in %s", t->name, w->path);
    gguf_decode(GGUF_AS_F32, (const unsigned char *)x, t->count, x); /* in place: bytes of little endian */
    return 1;
}

/* Is it stored as Q4_K, and reads its bytes as they are. */
static inline int weights_is_k(const weights_tensor *t) {
    return t && t->gguf && t->gguf->as == GGUF_AS_Q4_K;
}
static inline int weights_read_bytes(weights *w, const weights_tensor *t, void *bytes, char *error) {
    char why[GGUF_ERROR];
    return gguf_read_bytes(&w->gguf, t->gguf, bytes, why) || text_fail(error, "%s: %s", w->path, why);
}

/* Returns the code of a number in a packed matrix: its block of 64 has a row's codes in words[16] (INT8) or
   words[8] (4 bits), and four rows of 4 bits have their scales behind them. */
static inline uint32_t weights_code(const cmha_packed *p, size_t row, size_t i) {
    const size_t eight = p->storage == CMHA_STORAGE_INT8, n = eight ? 16 : 8, c = i % 64;
    const size_t line = row / 4 * cmha_packed_words(p->storage, 4, p->n_in);
    const size_t shift = c / 16 * 4 + c / 8 % 2 * 16;
    const uint32_t word = p->words[line + i / 64 * (eight ? 64 : 36) + row % 4 * n + c % n];
    return eight ? word >> c / 16 * 8 & 255 : word >> shift & 15;
}

static inline uint32_t weights_scale(const cmha_packed *p, size_t row, size_t i) {
    const size_t line = row / 4 * cmha_packed_words(p->storage, 4, p->n_in), blocks = (p->n_in + 63) / 64;
    const size_t at = i / 64 < blocks ? i / 64 * 36 + 32 : 32 * blocks + i / 64 * 4;
    return p->words[line + at + row % 4] >> i / 32 % 2 * 16 & 65535;
}

/* How many bytes the codes and the scales of a matrix [O, I] take in a checkpoint. */
static inline size_t weights_code_bytes(cmha_storage storage, size_t O, size_t I) {
    return storage == CMHA_STORAGE_INT8 ? O * I : O * I / 2 + O * I % 2;
}
static inline size_t weights_scale_bytes(cmha_storage storage, size_t O, size_t I) {
    if (storage == CMHA_STORAGE_Q4_K) return 16 * O * ((I + 255) / 256);
    return storage == CMHA_STORAGE_INT8 ? 4 * O : 2 * O * ((I + 31) / 32);
}

/* Can a packed matrix hold n blocks of GGUF's Q4_K? Their factors are finite. */
static inline int weights_can_pack_k(const unsigned char *at, size_t n) {
    for (size_t k = 0; k < 2 * n; k++)
        if ((at[k / 2 * 144 + k % 2 * 2 + 1] & 0x7C) == 0x7C) return 0;
    return 1;
}

/* Writes them likewise, each number what it is: codes less 8, and for each 32 of them a half of 6 bits of
   scale, 6 of minimum and 4 of the block's two factors. */
static inline int weights_write_k(text_file *f, const unsigned char *at, size_t n, char *error) {
    unsigned char codes[128], halves[16];
    int done = 1;
    for (size_t k = 0; k < 2 * n && done; k++) { /* first all codes */
        const unsigned char *block = at + k % n * 144;
        for (int i = 0; i < 128; i++) { /* numbers 2 i and 2 i + 1 */
            const unsigned char *pair = block + 16 + i / 32 * 32 + i % 16 * 2;
            const int high = i / 16 % 2 * 4;
            codes[i] = (unsigned char)(((pair[0] >> high & 15) | (pair[1] >> high & 15) << 4) ^ 136);
        }
        for (int j = 0; j < 8; j++) {
            const uint32_t six = gguf_k_six(block + 4, j), factors = (uint32_t)gguf_bits(block, 4);
            gguf_store(halves + 2 * j, six | (factors >> 4 * j & 15) << 12, 2);
        }
        const size_t bytes = k < n ? sizeof codes : sizeof halves;
        done = fwrite(k < n ? codes : halves, 1, bytes, f->file) == bytes;
    }
    return done ? 1 : text_fail(error, "cannot write %s", f->path);
}

/* Writes a matrix x [O, I] as INT8 or in 4 bits, the same bytes as cmha_model_save's of a packed model: its
   codes, then its scales. */
static inline int weights_write_packed(text_file *f, cmha_storage storage, const float *x, size_t O,
                                       size_t I, char *error) {
    const size_t codes = weights_code_bytes(storage, O, I), scales = weights_scale_bytes(storage, O, I);
    unsigned char *bytes = (unsigned char *)calloc(codes + scales + 1, 1);
    cmha_packed p;
    memset(&p, 0, sizeof p), p.storage = storage, p.n_out = O, p.n_in = I;
    p.words = (uint32_t *)malloc(cmha_packed_words(storage, O, I) * sizeof *p.words + 1);
    p.scales = storage == CMHA_STORAGE_INT8 ? (float *)malloc(O * sizeof *p.scales + 1) : NULL;
    int done = bytes && p.words && (p.scales || storage != CMHA_STORAGE_INT8);
    if (!done) text_fail(error, "no memory for a packed matrix");
    else cmha_pack(&p, x);
    for (size_t row = 0, at = 0; row < O && done; row++)
        for (size_t i = 0; i < I; i++, at++) {
            uint32_t code = weights_code(&p, row, i);
            if (p.scales) bytes[at] = (unsigned char)code;
            else bytes[at / 2] = (unsigned char)(bytes[at / 2] | code << at % 2 * 4);
        }
    if (done && p.scales) gguf_encode(GGUF_AS_F32, p.scales, O, bytes + codes);
    unsigned char *to = bytes + codes;
    for (size_t row = 0; row < O && done && !p.scales; row++)
        for (size_t i = 0; i < (storage == CMHA_STORAGE_INT4 ? I : (I + 255) / 256 * 256); i += 32)
            to = gguf_store(to, weights_scale(&p, row, i), 2);
    if (done && fwrite(bytes, 1, codes + scales, f->file) != codes + scales)
        done = text_fail(error, "cannot write %s", f->path);
    free(bytes), free(p.words), free(p.scales);
    return done;
}

/* Can a packed matrix hold these numbers? Scales of 4 bits end at 65504, of Q4_K at 63 times that. */
static inline int weights_can_pack(cmha_storage storage, const float *x, size_t n) {
    const double most = storage == CMHA_STORAGE_INT4 ? 524160 : storage == CMHA_STORAGE_Q4_K ? 4e6 : 3.4e38;
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)x[i]) < most)) return 0;
    return 1;
}

/* Can these numbers be stored so? F16 ends at 65504, and a block of Q8_0 at 127 times that. */
static inline int weights_fit(uint32_t as, const float *x, size_t n) {
    const float most = as == GGUF_AS_F16 ? 65519.99f : 65504.0f * 127;
    if (as == GGUF_AS_F32 || as == GGUF_AS_BF16) return 1;
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(x[i]) <= most)) return 0;
    return 1;
}

/* Writes numbers, in pieces. */
static inline int weights_write(text_file *f, uint32_t as, const float *x, size_t n, char *error) {
    enum { PIECE = 16384 };
    unsigned char bytes[PIECE * 4];
    for (size_t i = 0, m; i < n; i += m) {
        m = n - i < PIECE ? n - i : (size_t)PIECE;
        gguf_encode(as, x + i, m, bytes);
        if (fwrite(bytes, 1, (size_t)gguf_size(as, m), f->file) != (size_t)gguf_size(as, m))
            return text_fail(error, "cannot write %s", f->path);
    }
    return 1;
}

#endif
