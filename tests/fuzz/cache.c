/* What a cache holds. Input: a byte that says how the disk fails (fuzz_fail), a byte that chooses a cache (a
   ring, forgetting with sinks, one that reads again, a state) and, if it is odd, a saved file with changes:
   each two bytes of place (little endian), one to add; else the file itself. What is refused must leave the
   cache as it was; what is read must be usable. */
#include "fuzz.h"

enum { KINDS = 4, CAPACITY = 12 };
static cmha_model model[KINDS];
static cmha_cache cache[KINDS];
static unsigned char *saved[KINDS], *file;
static size_t sizes[KINDS], most;

static void feed(cmha_cache *c, size_t n) {
    cmha_real logits[5];
    for (size_t i = 0; i < n; i++) {
        int32_t id = (int32_t)(i % 5);
        NEED(!cmha_cache_append(c, &id, 1, logits));
    }
}

static void begin(void) {
    static const char *const options[KINDS] = {"attention=rope window=3", "attention=cmha",
        "attention=dot position=learned max_positions=12",
        "family=crat crat_attention=linear real_heads=1 imag_heads=1"};
    static const int slides[KINDS] = {CMHA_SLIDE, CMHA_SLIDE_FORGET, CMHA_SLIDE, CMHA_SLIDE};
    fuzz_open_context();
    for (int i = 0; i < KINDS; i++) {
        cmha_model_config m;
        cmha_cache_options o;
        memset(&o, 0, sizeof o);
        o.sinks = i == 1 ? 2 : 0;
        if (i == 1) o.storage = CMHA_STORAGE_BF16;
        cmha_config_defaults(cmha_model_table(), &m);
        NEED(!cmha_config_set_all(&fuzz_context, cmha_model_table(), &m,
                                  "n_layers=1 d_model=4 n_heads=2 d_ff=4 vocabulary=5"));
        NEED(!cmha_config_set_all(&fuzz_context, cmha_model_table(), &m, options[i]));
        NEED(!cmha_model_init(&model[i], &fuzz_context, &m));
        NEED(!cmha_cache_init(&cache[i], &model[i], 1, CAPACITY, slides[i], &o));
        feed(&cache[i], 30);
        NEED(!cmha_cache_save(&cache[i], FUZZ_PATH));
        sizes[i] = fuzz_the_disk.n_written;
        saved[i] = (unsigned char *)malloc(sizes[i]);
        NEED(saved[i] != NULL);
        memcpy(saved[i], fuzz_the_disk.written, sizes[i]);
        if (sizes[i] > most) most = sizes[i];
    }
    file = (unsigned char *)malloc(most);
    NEED(file != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!file) begin();
    if (size < 2) return 0;
    int i = data[1] / 2 % KINDS, changes = data[1] % 2;
    cmha_cache *c = &cache[i];
    size_t held = (size_t)((char *)c->slots - (char *)c->memory), length = c->length, first = c->first;
    unsigned char *before = (unsigned char *)malloc(held);
    NEED(before != NULL);
    memcpy(before, c->memory, held), memcpy(file, saved[i], sizes[i]);
    for (size_t at = 2; changes && at + 3 <= size; at += 3)
        file[(data[at] | (size_t)data[at + 1] << 8) % sizes[i]] ^= data[at + 2];
    fuzz_put(changes ? file : data + 2, changes ? sizes[i] : size - 2);
    fuzz_fail(data[0]);
    if (cmha_cache_read(c, FUZZ_PATH)) {
        NEED(*cmha_error(&fuzz_context) && !strchr(cmha_error(&fuzz_context), '\n'));
        NEED(!memcmp(before, c->memory, held) && c->length == length && c->first == first);
    } else {
        NEED(c->length <= c->capacity);
        feed(c, 3);
    }
    free(before);
    return 0;
}
