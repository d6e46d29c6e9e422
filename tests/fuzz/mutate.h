/* Structured mutation: a valid file with something of it changed. mutate_json changes the tree of a JSON
   text, mutate_gguf the fields of a GGUF file, whose counts and lengths stay right unless they are what is
   changed. Both return the new size, or 0 where the bytes are no such file or the result does not fit; then
   libFuzzer's own mutation of bytes is what is left (mutate_bytes). Random numbers come from the seed. */
#ifndef MUTATE_H
#define MUTATE_H

#include <cjson/cJSON.h>
#include <sanitizer/lsan_interface.h>

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);

/* What a kind of file is made of: pieces of JSON that may stand anywhere, and words; lists end with NULL.
   `mend`, or NULL, makes right again what follows from the rest of a tree. */
typedef struct mutate_language {
    const char *const *pieces, *const *words;
    void (*mend)(cJSON *root);
} mutate_language;

typedef struct mutate_state {
    uint64_t random;
    const mutate_language *language;
} mutate_state;

static inline mutate_state mutate_begin(unsigned seed, const mutate_language *language) {
    mutate_state m;
    m.random = seed * 0x9E3779B97F4A7C15u + 1;
    m.language = language;
    return m;
}

/* A number below n > 0 */
static inline size_t mutate_below(mutate_state *m, size_t n) {
    m->random ^= m->random << 13;
    m->random ^= m->random >> 7;
    m->random ^= m->random << 17;
    return (size_t)(m->random >> 11) % n;
}

static inline const char *mutate_among(mutate_state *m, const char *const *list) {
    size_t n = 0;
    while (list[n]) n++;
    return n ? list[mutate_below(m, n)] : "";
}

static inline size_t mutate_bytes(uint8_t *data, size_t size, size_t most) {
    return LLVMFuzzerMutate(data, size, most);
}

/* ---- JSON ---- */

/* Values at the limits of what numbers, texts and lists can be, as they stand in a file */
static const char *const mutate_limits[] = {
    "0", "-0", "1", "-1", "2", "0.5", "-0.5", "3", "15", "16", "17", "255", "256", "65535", "65536", "65537",
    "16777217", "2147483646", "2147483647", "2147483648", "-2147483648", "-2147483649", "4294967295",
    "4294967296", "9007199254740993", "9223372036854775807", "9223372036854775808", "18446744073709551616",
    "-9223372036854775809", "1e-400", "1e-45", "1e-7", "1e10", "1e30", "-1e30", "1e38", "1e39", "-1e39",
    "1e300", "-1e300", "1.7976931348623157e308", "1e999", "-1e999", "NaN", "Infinity", "null", "true",
    "false",
    "\"\"", "\" \"", "[]", "{}", "[[]]", "[{}]", "{\"\":0}", "[\"x\"]", "[null]", "\"\\u0000\"",
    "\"a\\u0000b\"", "\"\\n\"", "\"\\ud800\"", "\"\\uFFFF\"", "\"\xEF\xBF\xBD\"", "\"\xE2\x96\x81\"",
    "\"\xFF\xFE\"", "\"0\"", "\"1\"", "\"-1\"", "\"inf\"", "\"nan\"", "\"1e999\"", "\"true\"", "\"%s%n\"",
    "\"../x\"", "[0,0]", "[-1]", "[1e999]", "[2147483648,2147483648]", NULL};

typedef struct mutate_place {
    cJSON *parent, *item;
} mutate_place;

enum { MUTATE_PLACES = 4096 };

/* Lists every item below one, each with what holds it. Numbers that JSON cannot tell again are kept as they
   can be: cJSON would write null. */
static inline size_t mutate_list(cJSON *parent, mutate_place *places, size_t n) {
    for (cJSON *item = parent->child; item; item = item->next) {
        if (n == MUTATE_PLACES) break;
        if (cJSON_IsNumber(item) && !isfinite(item->valuedouble)) {
            item->type = cJSON_Raw;
            item->valuestring = strdup(item->valuedouble > 0 ? "1e999" : "-1e999");
        }
        places[n].parent = parent;
        places[n++].item = item;
        n = mutate_list(item, places, n);
    }
    return n;
}

/* A random place: any of them, or one of the few near the root. */
static inline mutate_place mutate_pick(mutate_state *m, cJSON *root, const mutate_place *places, size_t n) {
    mutate_place at = places[mutate_below(m, n)];
    if (mutate_below(m, 3) == 0) return at;
    at.parent = root;
    for (;;) {
        int children = cJSON_GetArraySize(at.parent);
        at.item = cJSON_GetArrayItem(at.parent, (int)mutate_below(m, (size_t)children));
        if (!at.item->child || mutate_below(m, 4) == 0) return at;
        at.parent = at.item;
    }
}

static inline cJSON *mutate_text(const char *text) {
    return cJSON_CreateRaw(text);
}

/* A string with something of it changed. */
static inline cJSON *mutate_string(mutate_state *m, const char *s) {
    static const char *const odd[] = {" ", "\n", "\xE2\x96\x81", "\xFF", "##", "</w>", "\xCC\x81", "a",
                                      "<0x0A>",
                                      "\xC4\xA0", "\xF0\x9F\x98\x80", NULL};
    size_t n = strlen(s), times = 2 + mutate_below(m, 30), at = mutate_below(m, n + 1);
    const char *more = mutate_below(m, 2) ? mutate_among(m, odd) : mutate_among(m, m->language->words);
    char *text;
    cJSON *item;
    if (mutate_below(m, 4) == 0) return cJSON_CreateString(more);
    if (n > 256 || !(text = (char *)malloc(n * times + strlen(more) + 1))) return NULL;
    strcpy(text, s);
    switch (mutate_below(m, 4)) {
    case 0: /* again and again */
        for (size_t i = 1; i < times; i++) memcpy(text + i * n, s, n + 1);
        break;
    case 1: text[at] = 0; break;
    case 2: strcpy(text, s + at); break;
    default: strcpy(text + at, more), strcat(text, s + at);
    }
    item = cJSON_CreateString(text);
    free(text);
    return item;
}

/* What stands in the place of an item: a limit, a neighbour of its value, another part, a piece. */
static inline cJSON *mutate_value(mutate_state *m, const cJSON *old, const cJSON *other) {
    switch (mutate_below(m, 8)) {
    case 0: case 1: return mutate_text(mutate_among(m, mutate_limits));
    case 2: return cJSON_Duplicate(other, 1);
    case 3: return cJSON_CreateString(mutate_among(m, m->language->words));
    case 4: return mutate_text(mutate_among(m, m->language->pieces));
    default: break;
    }
    if (cJSON_IsNumber(old)) {
        double x = old->valuedouble;
        const double near[] = {x + 1, x - 1, -x, 2 * x, x / 2, x * 1000};
        return cJSON_CreateNumber(near[mutate_below(m, 6)]);
    }
    if (cJSON_IsBool(old)) return cJSON_CreateBool(!cJSON_IsTrue(old));
    if (cJSON_IsString(old)) return mutate_string(m, old->valuestring);
    return cJSON_Duplicate(other, 1);
}

static inline void mutate_replace(cJSON *parent, cJSON *old, cJSON *item) {
    if (!item) return;
    free(item->string);
    item->string = old->string ? strdup(old->string) : NULL;
    cJSON_ReplaceItemViaPointer(parent, old, item);
}

/* Puts an item behind one, in an object under a name. */
static inline void mutate_put(cJSON *parent, const char *name, cJSON *item) {
    if (!item) return;
    if (cJSON_IsObject(parent)) cJSON_AddItemToObject(parent, name ? name : "x", item);
    else if (cJSON_IsArray(parent)) cJSON_AddItemToArray(parent, item);
    else cJSON_Delete(item);
}

/* Wraps an item into lists or objects, up to 1000 of them. */
static inline cJSON *mutate_wrapped(mutate_state *m, const cJSON *item) {
    static const size_t depths[] = {1, 1, 1, 2, 16, 17, 998, 1001};
    size_t depth = depths[mutate_below(m, 8)];
    int list = mutate_below(m, 2) == 0;
    cJSON *inner = cJSON_Duplicate(item, 1);
    for (size_t i = 0; i < depth; i++) {
        cJSON *outer = list ? cJSON_CreateArray() : cJSON_CreateObject();
        mutate_put(outer, item->string, inner);
        inner = outer;
    }
    return inner;
}

/* One change to the tree. */
static inline void mutate_tree(mutate_state *m, cJSON *root) {
    static const size_t counts[] = {1, 1, 1, 2, 13, 14, 15, 16, 17, 40, 300};
    mutate_place *places = (mutate_place *)malloc(MUTATE_PLACES * sizeof *places), at;
    size_t n = mutate_list(root, places, 0), times = counts[mutate_below(m, 11)];
    const cJSON *other = n ? places[mutate_below(m, n)].item : root;
    cJSON *item;
    if (!n) {
        free(places);
        mutate_put(root, "model", mutate_text(mutate_among(m, m->language->pieces)));
        return;
    }
    at = mutate_pick(m, root, places, n);
    free(places);
    switch (mutate_below(m, 12)) {
    case 0: cJSON_Delete(cJSON_DetachItemViaPointer(at.parent, at.item)); break;
    case 1: /* the same again, many times */
        for (size_t i = 0; i < times; i++)
            mutate_put(at.parent, at.item->string, cJSON_Duplicate(at.item, 1));
        break;
    case 2: /* another order */
        item = cJSON_DetachItemViaPointer(at.parent, at.item);
        if (cJSON_IsArray(at.parent)) cJSON_InsertItemInArray(at.parent, (int)mutate_below(m, 8), item);
        else mutate_put(at.parent, item->string, cJSON_Duplicate(item, 1)), cJSON_Delete(item);
        break;
    case 3: /* another name */
        mutate_put(at.parent,
                   mutate_below(m, 2) || !other->string ? mutate_among(m, m->language->words) : other->string,
                   cJSON_DetachItemViaPointer(at.parent, at.item));
        break;
    case 4: mutate_replace(at.parent, at.item, mutate_wrapped(m, at.item)); break;
    case 5: case 6: /* a chain of one piece or of several */
        for (size_t i = 0; i < times; i++)
            mutate_put(at.item->child ? at.item : at.parent, at.item->string,
                       i && mutate_below(m, 4) ? cJSON_Duplicate(cJSON_GetArrayItem(
                                                     at.item->child ? at.item : at.parent, 0), 1)
                                               : mutate_text(mutate_among(m, m->language->pieces)));
        break;
    default: mutate_replace(at.parent, at.item, mutate_value(m, at.item, other));
    }
}

/* Changes a JSON text, which has `size` bytes in a place for `most`. */
static inline size_t mutate_json(mutate_state *m, uint8_t *data, size_t size, size_t most) {
    cJSON *root = cJSON_ParseWithLength((const char *)data, size), *again;
    size_t changes = 1 + mutate_below(m, 3), n = 0;
    char *text;
    if (!root || (!cJSON_IsObject(root) && !cJSON_IsArray(root))) return cJSON_Delete(root), (size_t)0;
    for (size_t i = 0; i < changes; i++) {
        mutate_tree(m, root);
        if (m->language->mend && mutate_below(m, 4)) m->language->mend(root);
        text = cJSON_PrintUnformatted(root); /* what was put in as text becomes part of the tree */
        if (!text) break;
        n = strlen(text);
        if (n <= most) memcpy(data, text, n);
        again = n <= most ? cJSON_ParseWithLength(text, n) : NULL;
        free(text);
        cJSON_Delete(root);
        if ((root = again) == NULL) break;
    }
    cJSON_Delete(root);
    return n <= most ? n : 0;
}

/* ---- GGUF ---- */

/* A number or text of a GGUF file that can be changed: where it is and what. */
typedef enum mutate_kind {
    MUTATE_COUNT, MUTATE_LENGTH, MUTATE_TYPE, MUTATE_NUMBER, MUTATE_BYTES
} mutate_kind;
typedef struct mutate_field {
    size_t at, n; /* of MUTATE_BYTES, the length stands in the 8 bytes before */
    mutate_kind kind;
} mutate_field;
typedef struct mutate_record { size_t begin, end; int tensor; } mutate_record;

enum { MUTATE_FIELDS = 2048, MUTATE_RECORDS = 512 };
typedef struct mutate_gguf_file {
    const uint8_t *data;
    size_t size, at, n_fields, n_records;
    mutate_field fields[MUTATE_FIELDS];
    mutate_record records[MUTATE_RECORDS];
} mutate_gguf_file;

static inline uint64_t mutate_get(const uint8_t *at, size_t n) {
    uint64_t x = 0;
    while (n--) x = x << 8 | at[n];
    return x;
}

static inline void mutate_set(uint8_t *at, size_t n, uint64_t x) {
    for (size_t i = 0; i < n; i++) at[i] = (uint8_t)(x >> 8 * i);
}

/* Notes the field of n bytes that begins here and goes behind it; 0 where the file ends before that. */
static inline int mutate_note(mutate_gguf_file *g, mutate_kind kind, size_t n) {
    if (n > g->size - g->at) return 0;
    if (g->n_fields < MUTATE_FIELDS) {
        g->fields[g->n_fields].at = g->at;
        g->fields[g->n_fields].n = n;
        g->fields[g->n_fields++].kind = kind;
    }
    g->at += n;
    return 1;
}

static inline int mutate_note_text(mutate_gguf_file *g) {
    size_t at = g->at;
    if (!mutate_note(g, MUTATE_LENGTH, 8)) return 0;
    return mutate_note(g, MUTATE_BYTES, (size_t)mutate_get(g->data + at, 8));
}

static inline int mutate_note_value(mutate_gguf_file *g) {
    static const uint8_t widths[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    uint64_t type, count = 1;
    if (!mutate_note_text(g) || !mutate_note(g, MUTATE_TYPE, 4)) return 0;
    type = mutate_get(g->data + g->at - 4, 4);
    if (type == 9) {
        if (!mutate_note(g, MUTATE_TYPE, 4) || !mutate_note(g, MUTATE_COUNT, 8)) return 0;
        type = mutate_get(g->data + g->at - 12, 4);
        count = mutate_get(g->data + g->at - 8, 8);
    }
    if (type > 12 || type == 9) return 0;
    for (uint64_t i = 0; i < count; i++)
        if (!(type == 8 ? mutate_note_text(g) : mutate_note(g, MUTATE_NUMBER, widths[type]))) return 0;
    return 1;
}

static inline int mutate_note_tensor(mutate_gguf_file *g) {
    uint64_t rank;
    if (!mutate_note_text(g) || !mutate_note(g, MUTATE_COUNT, 4)) return 0;
    rank = mutate_get(g->data + g->at - 4, 4);
    for (uint64_t i = 0; i < rank; i++)
        if (!mutate_note(g, MUTATE_NUMBER, 8)) return 0;
    return mutate_note(g, MUTATE_TYPE, 4) && mutate_note(g, MUTATE_NUMBER, 8);
}

/* Finds the fields and records of a file, as far as it is one. */
static inline void mutate_look(mutate_gguf_file *g, const uint8_t *data, size_t size) {
    uint64_t n[2];
    memset(g, 0, sizeof *g);
    g->data = data;
    g->size = size;
    if (size < 24 || memcmp(data, "GGUF", 4)) return;
    n[1] = mutate_get(data + 8, 8);
    n[0] = mutate_get(data + 16, 8);
    g->at = 4;
    mutate_note(g, MUTATE_NUMBER, 4);
    mutate_note(g, MUTATE_COUNT, 8);
    mutate_note(g, MUTATE_COUNT, 8);
    for (int tensor = 0; tensor < 2; tensor++)
        for (uint64_t i = 0; i < n[tensor]; i++) {
            size_t begin = g->at;
            if (g->n_records == MUTATE_RECORDS) return;
            if (!(tensor ? mutate_note_tensor(g) : mutate_note_value(g))) return;
            g->records[g->n_records].begin = begin;
            g->records[g->n_records].end = g->at;
            g->records[g->n_records++].tensor = tensor;
        }
}

/* Puts `n` bytes in the place of the `old` ones at `at`; the new size, or 0. */
static inline size_t mutate_splice(uint8_t *data, size_t size, size_t most, size_t at, size_t old,
                                   const void *bytes, size_t n) {
    if (size - old + n > most) return 0;
    memmove(data + at + n, data + at + old, size - at - old);
    if (n) memcpy(data + at, bytes, n);
    return size - old + n;
}

/* A number at a limit, in n bytes: whole ones or, of 4 and 8, those of real ones. */
static inline uint64_t mutate_bits(mutate_state *m, size_t n, uint64_t old) {
    static const uint64_t whole[] = {0, 1, 2, 3, 4, 7, 8, 16, 31, 32, 33, 255, 65536, 0x7FFFFFFF, 0x80000000,
                                     0xFFFFFFFF, 0x100000000, 0x7FFFFFFFFFFFFFFF, 0x8000000000000000,
                                     0xFFFFFFFFFFFFFFFF, 0x2000000000000001, 0x4000000000000000};
    static const double real[] = {HUGE_VAL, -HUGE_VAL, 1e38, -1e38, 1e-45, -1, 0.5, 1e30, -1e30, -0.0};
    double x = mutate_below(m, 11) ? real[mutate_below(m, 10)] : NAN;
    float single = (float)x;
    uint32_t bits;
    uint64_t long_bits;
    switch (mutate_below(m, 4)) {
    case 0: return old + 1 - 2 * mutate_below(m, 2);
    case 1:
        memcpy(&bits, &single, 4);
        memcpy(&long_bits, &x, 8);
        return n == 8 ? long_bits : bits;
    default: return whole[mutate_below(m, sizeof whole / sizeof *whole)];
    }
}

/* Another text in the place of one, its length right. */
static inline size_t mutate_gguf_text(mutate_state *m, const mutate_gguf_file *g, const mutate_field *f,
                                      uint8_t *data, size_t most) {
    const mutate_field *other = &g->fields[mutate_below(m, g->n_fields)];
    const char *word = mutate_among(m, m->language->words);
    uint8_t bytes[512];
    size_t n = f->n < 256 ? f->n : 256, size, times = 1 + mutate_below(m, 3);
    memcpy(bytes, data + f->at, n);
    switch (mutate_below(m, 6)) {
    case 0: n = 0; break;
    case 1: /* what another text is */
        if (other->kind != MUTATE_BYTES) break;
        n = other->n < 256 ? other->n : 256;
        memcpy(bytes, data + other->at, n);
        break;
    case 2: case 3: n = strlen(word) < 256 ? strlen(word) : 256, memcpy(bytes, word, n); break;
    case 4: /* a zero, and as many bytes again */
        if (n) bytes[mutate_below(m, n)] = 0;
        else bytes[n++] = 0;
        break;
    default:
        for (size_t i = 0; i < times; i++) bytes[n++] = (uint8_t)mutate_below(m, 256);
    }
    if (n < 200 && mutate_below(m, 8) == 0) {
        memset(bytes + n, 'A', 200 - n);
        n = 200;
    }
    size = mutate_splice(data, g->size, most, f->at, f->n, bytes, n);
    if (size) mutate_set(data + f->at - 8, 8, n);
    return size;
}

/* A value or tensor gone, twice, or elsewhere; the count in the head right, but for one time in eight. */
static inline size_t mutate_gguf_record(mutate_state *m, const mutate_gguf_file *g, uint8_t *data,
                                        size_t most) {
    const mutate_record *r = &g->records[mutate_below(m, g->n_records)],
                        *to = &g->records[mutate_below(m, g->n_records)];
    size_t n = r->end - r->begin, size, head = r->tensor ? 8 : 16, copies = 1 + mutate_below(m, 3);
    uint64_t count = mutate_get(data + head, 8);
    uint8_t *copy = (uint8_t *)malloc(n + 1);
    memcpy(copy, data + r->begin, n);
    if (mutate_below(m, 2)) {
        size = mutate_splice(data, g->size, most, r->begin, n, NULL, 0);
        count--;
        if (mutate_below(m, 2) && to->begin >= r->end && to->tensor == r->tensor) {
            size = mutate_splice(data, size, most, to->begin - n, 0, copy, n);
            count++;
        }
    } else {
        size_t at = to->tensor == r->tensor ? to->begin : r->begin;
        size = g->size;
        for (size_t i = 0; i < copies; i++) {
            size_t more = mutate_splice(data, size, most, at, 0, copy, n);
            if (!more) break;
            size = more;
            count++;
        }
    }
    free(copy);
    if (size && mutate_below(m, 8)) mutate_set(data + head, 8, count);
    return size;
}

static inline size_t mutate_gguf(mutate_state *m, uint8_t *data, size_t size, size_t most) {
    static mutate_gguf_file g;
    size_t changes = 1 + mutate_below(m, 3);
    for (size_t i = 0; i < changes; i++) {
        size_t more = 0;
        mutate_look(&g, data, size);
        if (!g.n_fields) return 0;
        const mutate_field *f = &g.fields[mutate_below(m, g.n_fields)];
        if (g.n_records && mutate_below(m, 3) == 0) more = mutate_gguf_record(m, &g, data, most);
        else if (f->kind == MUTATE_BYTES) more = mutate_gguf_text(m, &g, f, data, most);
        else {
            uint64_t bits = mutate_bits(m, f->n, mutate_get(data + f->at, f->n));
            if (f->kind == MUTATE_TYPE && mutate_below(m, 4)) bits = mutate_below(m, 14);
            mutate_set(data + f->at, f->n < 8 ? f->n : 8, bits);
            more = size;
        }
        if (more) size = more;
    }
    return size;
}

/* A file of either kind, or bytes. */
static inline size_t mutate_file(mutate_state *m, uint8_t *data, size_t size, size_t most) {
    uint8_t *copy = (uint8_t *)malloc(most + 1);
    size_t n = 0;
    if (mutate_below(m, 8)) {
        __lsan_disable(); /* what a change of the tree loses is not the parser's */
        memcpy(copy, data, size);
        n = size > 4 && !memcmp(data, "GGUF", 4) ? mutate_gguf(m, copy, size, most)
                                                 : mutate_json(m, copy, size, most);
        if (n) memcpy(data, copy, n);
        __lsan_enable();
    }
    free(copy);
    return n ? n : mutate_bytes(data, size, most);
}

/* The file from `begin` to `end` of an input, what stands around it as it is; the new size of all. */
static inline size_t mutate_part(mutate_state *m, uint8_t *data, size_t size, size_t most, size_t begin,
                                 size_t end) {
    size_t n, rest = size - end;
    uint8_t *behind = (uint8_t *)malloc(rest + 1);
    memcpy(behind, data + end, rest);
    n = mutate_file(m, data + begin, end - begin, most - begin - rest);
    memcpy(data + begin + n, behind, rest);
    free(behind);
    return begin + n + rest;
}

/* A file that is the whole input */
static inline size_t mutate_whole(uint8_t *data, size_t size, size_t most, unsigned seed,
                                  const mutate_language *language) {
    mutate_state m = mutate_begin(seed, language);
    return mutate_file(&m, data, size, most);
}

/* ---- safetensors ---- */

static const char *const mutate_archive_pieces[] = {
    "{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}",
    "{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[0,8]}",
    "{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[0,2]}",
    "{\"dtype\":\"I64\",\"shape\":[0],\"data_offsets\":[8,8]}",
    "{\"dtype\":\"C64\",\"shape\":[1,1,1,1,1,1,1,1],\"data_offsets\":[0,8]}",
    "{\"cfg.lora_rank\":\"2\",\"tune.frozen.*\":\"1\",\"part\":\"0\"}", "[0,4]", "[4,0]", "[2,2]", NULL};
static const char *const mutate_archive_words[] = {
    "__metadata__", "dtype", "shape", "data_offsets",
    "F64", "F32", "F16", "BF16", "I64", "I32", "U8", "BOOL", "C64", "F8_E4M3",
    "cfg.lora_rank", "cfg.lora_on", "cfg.lora_alpha", "cfg.n_layers", "cfg.d_model", "cfg.n_heads",
    "cfg.vocabulary", "cfg.attention", "cfg.tied", "part", "knowledge", "omega", "features",
    "trainer.step", "trainer.seed", "trainer.best", "trainer.length",
    "optim.m.tok_emb.weight", "optim.v.tok_emb.weight", "tok_emb.weight", "blocks.0.attn.wq.weight",
    "blocks.0.attn.wq.lora_a", "blocks.0.attn.wq.lora_b", "blocks.0.attn.wv.lora_a",
    "tune.frozen.tok_emb.weight", "tune.rate.tok_emb.weight", "tune.decay.tok_emb.weight",
    "0", "1", "2", "-1", "inf", "nan", "1e999", "18446744073709551615", "18446744073709551616",
    "rope", "dot", "none", "wq", "wq,wv", NULL};

/* Lets the data of each tensor lie behind those of the one before, as long as type and shape say. */
static inline void mutate_lay_out(cJSON *root) {
    static const struct { const char *name; double bytes; } types[] = {
        {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},
        {"I32", 4}, {"U8", 1}, {"BOOL", 1}, {"C64", 8}};
    double at = 0;
    for (cJSON *item = root->child; item; item = item->next) {
        const cJSON *type = cJSON_GetObjectItemCaseSensitive(item, "dtype");
        const cJSON *shape = cJSON_GetObjectItemCaseSensitive(item, "shape"), *axis;
        cJSON *place = cJSON_GetObjectItemCaseSensitive(item, "data_offsets");
        double bytes = 0;
        for (size_t i = 0; i < sizeof types / sizeof *types; i++)
            if (cJSON_IsString(type) && !strcmp(type->valuestring, types[i].name)) bytes = types[i].bytes;
        cJSON_ArrayForEach(axis, shape) bytes *= axis->valuedouble;
        if (!(fabs(bytes) < 1e15) || !cJSON_IsArray(place) || cJSON_GetArraySize(place) != 2) continue;
        cJSON_ReplaceItemInArray(place, 0, cJSON_CreateNumber(at));
        at += bytes;
        cJSON_ReplaceItemInArray(place, 1, cJSON_CreateNumber(at));
    }
}

/* A safetensors file whose header begins at `begin`: JSON alone, where `known`, up to a zero or the end. */
static inline size_t mutate_archive(uint8_t *data, size_t size, size_t most, unsigned seed, size_t begin,
                                    int known) {
    static const mutate_language language = {mutate_archive_pieces, mutate_archive_words, mutate_lay_out};
    mutate_state m = mutate_begin(seed, &language);
    const uint8_t *end = known ? (const uint8_t *)memchr(data + begin, 0, size - begin) : NULL;
    if (!known || mutate_below(&m, 6) == 0) return mutate_bytes(data, size, most);
    return mutate_part(&m, data, size, most, begin, end ? (size_t)(end - data) : size);
}

#endif
