/* Adapters, and other parts of models that a fine-tuning leaves. Input: a byte that says how the disk fails
   (fuzz_fail), two bytes with the size of the data in units of 4 (little endian), a byte, of which the
   remainder by 3 is cmha_model_read's `strict`, then the header of a safetensors file; the data is made here.
   What is read onto a model that stands can be used, saved as a part and read again with the same bits, and
   merged. What is refused leaves it bit for bit as it was. */
#include "fuzz.h"
#include "mutate.h"

enum { LENGTH = 4 };

static cmha_model base, model;
static cmha_model_config config;
static int32_t ids[LENGTH + 1] = {1, 2, 0, 3, 1};

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
    return mutate_archive(data, size, most, seed, 4, size > 4);
}

static void begin(void) {
    fuzz_open_context();
    cmha_config_defaults(cmha_model_table(), &config);
    NEED(!cmha_config_set_all(&fuzz_context, cmha_model_table(), &config,
                              "n_layers=1 d_model=4 n_heads=2 d_ff=4 vocabulary=5 attention=rope lora_rank=2 "
                              "lora_on=wq,wv"));
    NEED(!cmha_model_init(&base, &fuzz_context, &config));
    for (size_t i = 0; i < base.parameters.size; i++) /* a part names its base by these numbers */
        base.parameters.data[i] = (cmha_real)((int)(i % 7) - 3) / 8;
}

static size_t bytes_of(const cmha_model *m) { return m->parameters.size * sizeof *m->parameters.data; }

static void use(void) {
    cmha_batch batch;
    double loss;
    memset(&batch, 0, sizeof batch);
    batch.ids = ids, batch.targets = ids + 1, batch.batch = 1, batch.length = LENGTH;
    (void)!cmha_model_loss(&model, &batch, &loss);
}

/* Saves what learns alone, and reads it onto the model that stood before. */
static void again(void) {
    cmha_model other;
    size_t taken;
    NEED(!cmha_model_save_part(&model, FUZZ_PATH));
    fuzz_put(fuzz_the_disk.written, fuzz_the_disk.n_written);
    NEED(!cmha_model_init(&other, &fuzz_context, &config));
    memcpy(other.parameters.data, model.parameters.data, bytes_of(&model));
    for (size_t i = 0; i < other.parameters.count; i++) { /* all but the base, which a part names */
        cmha_parameter *p = &other.parameters.list[i];
        if (!p->usual_frozen) memset(p->tensor.data, 0, p->tensor.size * sizeof *p->tensor.data);
    }
    NEED(!cmha_model_read(&other, FUZZ_PATH, 2, &taken));
    NEED(!memcmp(other.parameters.data, model.parameters.data, bytes_of(&model)));
    cmha_model_close(&other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t header, bytes, taken = 0, before;
    unsigned char *file;
    cmha_status status;
    if (!base.parameters.data) begin();
    if (size < 4) return 0;
    before = fuzz_peak = fuzz_memory;
    NEED(!cmha_model_init(&model, &fuzz_context, &config));
    memcpy(model.parameters.data, base.parameters.data, bytes_of(&base));
    header = size - 4, bytes = 4 * (data[1] + 256u * data[2]);
    file = (unsigned char *)malloc(8 + header + bytes);
    for (size_t i = 0; i < 8; i++) file[i] = (unsigned char)((uint64_t)header >> (8 * i));
    memcpy(file + 8, data + 4, header);
    for (size_t i = 0; i < bytes; i++) file[8 + header + i] = (unsigned char)(i % 4 == 3 ? 0x3d : i);
    fuzz_put(file, 8 + header + bytes), fuzz_fail(data[0]);
    fuzz_cost_begin();
    status = cmha_model_read(&model, FUZZ_PATH, data[3] % 3, &taken);
    fuzz_cost_end("adapters", size, 16, 256);
    if (status) {
        fuzz_check_line(cmha_error(&fuzz_context));
        NEED(!taken && !memcmp(model.parameters.data, base.parameters.data, bytes_of(&base)));
    } else {
        use(), again();
        NEED(!cmha_model_merge(&model));
        use();
    }
    cmha_model_close(&model);
    NEED(fuzz_memory == before && fuzz_peak - before < ((size_t)64 << 20));
    free(file);
    return 0;
}
