/* Options as text. Input: a byte that chooses the table, then "NAME=VALUE NAME=VALUE ...". Whatever is
   accepted is in range, and what is printed of it reads back to the same value. */
#include "fuzz.h"

typedef union configs {
    cmha_model_config model;
    cmha_trainer_config trainer;
    cmha_sampler_config sampler;
} configs;

static void round_trip(cmha_table table, const configs *config) {
    char text[64], back[64];
    configs other;
    size_t i;
    cmha_config_defaults(table, &other);
    NEED(cmha_config_check(&fuzz_context, table, config) == CMHA_OK);
    for (i = 0; i < table.count; i++) {
        cmha_config_get(table, config, table.fields[i].name, text, 33);
        NEED(strlen(text) < 32 && /* a name has 31 characters at most */
             cmha_config_set(&fuzz_context, table, &other, table.fields[i].name, text) == CMHA_OK);
        cmha_config_get(table, &other, table.fields[i].name, back, sizeof back);
        NEED(!strcmp(text, back));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    configs config;
    cmha_table table;
    char *text;
    size_t need = 0;
    if (!fuzz_context.open) fuzz_open_context();
    if (!size) return 0;
    text = (char *)malloc(size);
    memcpy(text, data + 1, size - 1), text[size - 1] = 0;
    table = data[0] % 3 == 0   ? cmha_model_table()
            : data[0] % 3 == 1 ? cmha_trainer_table()
                               : cmha_sampler_table();
    cmha_config_defaults(table, &config);
    if (cmha_config_set_all(&fuzz_context, table, &config, text) == CMHA_OK) {
        round_trip(table, &config);
        if (data[0] % 3 == 0 && config.model.n_layers <= 16)
            NEED(cmha_model_memory(&fuzz_context, &config.model, 1, 1, &need, NULL) != CMHA_OK || need > 0);
    } else {
        NEED(cmha_error(&fuzz_context)[0]);
        /* what came before an error counts */
        NEED(cmha_config_check(&fuzz_context, table, &config) == CMHA_OK);
    }
    if (data[0] & 128)
        (void)!cmha_kind(&fuzz_context, text, &config.model),
            (void)!cmha_preset(NULL, text, &config.model, NULL);
    NEED(fuzz_memory == 0);
    free(text);
    return 0;
}
