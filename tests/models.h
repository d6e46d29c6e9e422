/* What several tests of whole models need: configurations from text, a text to learn, and the check that
   training takes the memory it was said to take. */
#ifndef MODELS_H
#define MODELS_H

#include "check.h"

/* "field=value field=value": sets these fields */
static inline void models_set(cmha_context *context, cmha_model_config *config, const char *options) {
    char text[512], *at, *value;
    snprintf(text, sizeof text, "%s", options);
    for (at = strtok(text, " "); at; at = strtok(NULL, " ")) {
        value = strchr(at, '=');
        if (!CHECK_THAT(value != NULL, "\"%s\" is no option", at)) return;
        *value++ = 0;
        CHECK_THAT(!cmha_config_set(context, cmha_model_table(), config, at, value), "%s",
                   cmha_error(context));
    }
}

/* English-like bytes out of a small grammar: bytes are far from uniform, and the next
   one far from independent of the last */
static inline size_t models_text(unsigned char *text, size_t size) {
    static const char *const nouns[] = {"the cat", "a sailor", "the old house", "my sister", "the river"};
    static const char *const verbs[] = {" sees ", " remembers ", " walks to ", " sings of "};
    static const char *const ends[] = {".\n", ", and then ", "; ", " again.\n"};
    size_t n = 0;
    uint64_t seed = check_seed;
    check_seed = 99;
    while (n + 64 < size)
        n += (size_t)sprintf((char *)text + n, "%s%s%s%s", nouns[check_below(5)], verbs[check_below(4)],
                             nouns[check_below(5)], ends[check_below(4)]);
    check_seed = seed;
    return n;
}

/* cmha_model_memory says what cmha_trainer_init takes, and steps take nothing more: steps
   on `batch` or, if NULL, on a stream */
static inline void models_steps_allocate_nothing(const cmha_model_config *m, const cmha_trainer_config *t,
                                                 const cmha_tokens *stream, const cmha_batch *batch,
                                                 const char *label) {
    check_heap heap;
    cmha_context_config config = check_heap_config(&heap);
    cmha_context c;
    cmha_model model;
    cmha_trainer trainer;
    size_t parameters = 0, training = 0, base, after_model, calls;
    double loss;
    int i;
    CHECK_OK(cmha_context_init(&c, &config));
    CHECK_OK(cmha_model_memory(&c, m, t->batch, t->length, &parameters, &training));
    base = heap.bytes;
    if (!CHECK_THAT(!cmha_model_init(&model, &c, m), "%s: %s", label, cmha_error(&c))) return;
    after_model = heap.bytes - base;
    CHECK(parameters >= model.parameters.size * sizeof(cmha_real) && parameters <= after_model);
    CHECK_OK(cmha_trainer_init(&trainer, &model, t));
    CHECK_THAT(heap.bytes - base == training, "%s: cmha_model_memory said %zu bytes, training holds %zu",
               label, training, heap.bytes - base);
    calls = heap.calls, heap.peak = heap.bytes;
    for (i = 0; i < 3; i++)
        CHECK_THAT(!(batch ? cmha_trainer_step_batch(&trainer, batch, &loss)
                           : cmha_trainer_step(&trainer, stream, &loss)),
                   "%s: %s", label, cmha_error(&c));
    CHECK_THAT(heap.calls == calls && heap.peak - base == training, "%s: steps allocated %zu times", label,
               heap.calls - calls);
    if (!batch) CHECK_OK(cmha_trainer_evaluate(&trainer, stream, &loss));
    CHECK_THAT(heap.calls == calls, "%s: an evaluation allocated %zu times", label, heap.calls - calls);
    cmha_trainer_close(&trainer), cmha_model_close(&model), cmha_context_close(&c);
    CHECK_THAT(check_heap_empty(&heap), "%s: %zu bytes leak, %d sizes are wrong", label, heap.bytes,
               heap.mismatch);
}

#endif
