/* Models and training states. Input: a byte that says how the disk fails (fuzz_fail), two bytes with the size
   of the data in units of 4 (little endian), a byte that says what is done with the file, then its header.
   The data is made here. A file that is refused must leave model and trainer bit for bit as they were. */
#include "fuzz.h"
#include "mutate.h"

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
    return mutate_archive(data, size, most, seed, 4, size > 4);
}

#include <math.h>

enum { LENGTH = 4, MOST = 65536 * 4 };

static cmha_model model;
static cmha_trainer trainer;
static cmha_real *kept; /* weights, then moments */
static int32_t ids[LENGTH + 1] = {1, 2, 0, 3, 1};

static void begin(void) {
    cmha_model_config m;
    cmha_trainer_config t;
    fuzz_open_context();
    cmha_config_defaults(cmha_model_table(), &m), cmha_config_defaults(cmha_trainer_table(), &t);
    NEED(!cmha_config_set_all(
        &fuzz_context, cmha_model_table(), &m,
        "n_layers=1 d_model=4 n_heads=2 d_ff=4 vocabulary=5 activation=swiglu frequency=table"));
    t.batch = 1, t.length = LENGTH, t.steps = 10;
    NEED(!cmha_model_init(&model, &fuzz_context, &m) && !cmha_trainer_init(&trainer, &model, &t));
    kept = (cmha_real *)malloc(3 * model.parameters.size * sizeof *kept);
    NEED(kept != NULL);
    memcpy(kept, model.parameters.data, model.parameters.size * sizeof *kept);
    memcpy(kept + model.parameters.size, model.parameters.moments,
           2 * model.parameters.size * sizeof *kept);
}

static void put_back(void) { /* all learn again, whatever a state that was read has frozen */
    NEED(!cmha_parameters_tune(&model.parameters, "*", CMHA_TUNE_FROZEN, 0, NULL));
    memcpy(model.parameters.data, kept, model.parameters.size * sizeof *kept);
    memcpy(model.parameters.moments, kept + model.parameters.size,
           2 * model.parameters.size * sizeof *kept);
    trainer.step = 0, trainer.seed = 7, trainer.best = HUGE_VAL;
}

static void need_unchanged(void) {
    NEED(!memcmp(kept, model.parameters.data, model.parameters.size * sizeof *kept));
    NEED(!memcmp(kept + model.parameters.size, model.parameters.moments,
                 2 * model.parameters.size * sizeof *kept));
    NEED(trainer.step == 0 && trainer.seed == 7 && trainer.best > 1e300);
}

/* A model of its own; one that was loaded can be used and saved, and then loads again. */
static cmha_status load(void) {
    cmha_model other, same;
    cmha_batch batch;
    double loss;
    cmha_status status = cmha_model_open(&other, &fuzz_context, FUZZ_PATH);
    if (status) return status;
    memset(&batch, 0, sizeof batch);
    batch.ids = ids, batch.targets = ids + 1, batch.batch = 1, batch.length = LENGTH;
    (void)!cmha_model_loss(&other, &batch, &loss);
    NEED(!cmha_model_save(&other, FUZZ_PATH));
    fuzz_put(fuzz_the_disk.written, fuzz_the_disk.n_written);
    NEED(!cmha_model_open(&same, &fuzz_context, FUZZ_PATH) && same.parameters.size == other.parameters.size);
    NEED(!memcmp(same.parameters.data, other.parameters.data,
                 same.parameters.size * sizeof *same.parameters.data));
    cmha_model_close(&same), cmha_model_close(&other);
    return CMHA_OK;
}

static cmha_status resume(void) {
    cmha_tokens tokens;
    double loss;
    cmha_status status = cmha_trainer_read(&trainer, FUZZ_PATH);
    if (status) return status;
    memset(&tokens, 0, sizeof tokens);
    tokens.data = ids, tokens.count = LENGTH + 1, tokens.width = 4, tokens.bytes = sizeof ids;
    (void)!cmha_trainer_step(&trainer, &tokens, &loss);
    return CMHA_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    unsigned char *file;
    size_t header, bytes, before, taken, i;
    cmha_status status;
    if (!kept) begin();
    if (size < 4) return 0;
    header = size - 4, bytes = 4 * (data[1] + 256u * data[2]);
    file = (unsigned char *)malloc(8 + header + bytes);
    for (i = 0; i < 8; i++) file[i] = (unsigned char)((uint64_t)header >> (8 * i));
    memcpy(file + 8, data + 4, header);
    for (i = 0; i < bytes; i++) file[8 + header + i] = (unsigned char)(i % 4 == 3 ? 0x3d : i);
    put_back(), fuzz_put(file, 8 + header + bytes), fuzz_fail(data[0]);
    before = fuzz_peak = fuzz_memory;
    if (data[3] % 4 == 0) status = load();
    else if (data[3] % 4 == 1) status = resume();
    else {
        status = cmha_model_read(&model, FUZZ_PATH, data[3] % 4 == 2, &taken);
        NEED(taken <= model.parameters.count && (!status || !taken) &&
             (status || data[3] % 4 == 3 || taken == model.parameters.count));
    }
    if (status) fuzz_check_line(cmha_error(&fuzz_context)), need_unchanged();
    /* a small file does not ask for much */
    NEED(fuzz_memory == before && fuzz_peak - before < ((size_t)64 << 20));
    free(file);
    return 0;
}
