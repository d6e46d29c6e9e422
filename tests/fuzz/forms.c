/* config.json of other people's models, and the values of GGUF files. What is understood makes a
   configuration in range; what it can be told in again, in the forms of others, means the same. */
#include "fuzz.h"
#include "examples/tools/forms.h"

/* Two configurations have the same fields, but for those that only training knows. */
static void same(const cmha_model_config *a, const cmha_model_config *b) {
    cmha_table table = cmha_model_table();
    for (size_t i = 0; i < table.count; i++) {
        char x[40], y[40];
        const char *name = table.fields[i].name;
        cmha_config_get(table, a, name, x, sizeof x), cmha_config_get(table, b, name, y, sizeof y);
        if (strcmp(name, "dropout") && strcmp(name, "score_scale") && strcmp(name, "n_kv_heads") &&
            strcmp(name, "head_bias") && strcmp(name, "rope_factor") && strcmp(name, "rope_length"))
            NEED(!strcmp(x, y));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char error[TEXT_ERROR] = "", *text = NULL;
    cmha_model_config config, again;
    form_settings s, t;
    gguf_file g;
    if (!fuzz_context.open) fuzz_open_context();
    if (size > 4 && !memcmp(data, "GGUF", 4)) {
        if (!gguf_read(&g, data, size, error)) return 0;
        if (!form_read_gguf(&s, &fuzz_context, &g, &config, error)) NEED(*error && !strchr(error, '\n'));
        gguf_close(&g);
        return 0;
    }
    if (!form_read_json(&s, &fuzz_context, (const char *)data, size, &config, error)) {
        NEED(*error && !strchr(error, '\n'));
        return 0;
    }
    NEED(cmha_config_check(&fuzz_context, cmha_model_table(), &config) == CMHA_OK);
    if (form_holds(&config, s.in, error)) {
        NEED((text = form_write_json(&config, s.in, "float32")) != NULL);
        if (form_read_json(&t, &fuzz_context, text, strlen(text), &again, error)) same(&config, &again);
        free(text);
    }
    return 0;
}
