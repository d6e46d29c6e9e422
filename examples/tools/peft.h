/* peft.h - adapters (LoRA) as PEFT keeps them, in a folder of adapter_config.json and
   adapter_model.safetensors: what their settings say, and how their tensors are called. Static functions,
   after forms.h; they return 1 for success, or 0 and one line. */
#ifndef PEFT_H
#define PEFT_H

#include "forms.h"

#define PEFT_CONFIG "adapter_config.json"
#define PEFT_TENSORS "adapter_model.safetensors"

/* What adapters add to W x is alpha / rank B A x. */
typedef struct peft_settings { size_t rank; double alpha; } peft_settings;

typedef enum peft_use {
    PEFT_READ, /* read by a function below */
    PEFT_NONE, /* must be null, false or empty: the adapters would be others */
    PEFT_ANY   /* changes nothing of what the tensors say */
} peft_use;

static const struct peft_key { const char *key; peft_use use; } peft_keys[] = {
    {"peft_type", PEFT_READ}, {"r", PEFT_READ}, {"lora_alpha", PEFT_READ}, {"use_rslora", PEFT_READ},
    {"bias", PEFT_READ}, {"init_lora_weights", PEFT_READ}, {"fan_in_fan_out", PEFT_READ},
    {"target_modules", PEFT_READ},
    {"alpha_pattern", PEFT_NONE}, {"rank_pattern", PEFT_NONE}, {"modules_to_save", PEFT_NONE},
    {"use_dora", PEFT_NONE}, {"use_qalora", PEFT_NONE}, {"lora_bias", PEFT_NONE},
    {"layer_replication", PEFT_NONE}, {"loftq_config", PEFT_NONE}, {"eva_config", PEFT_NONE},
    {"corda_config", PEFT_NONE}, {"lora_ga_config", PEFT_NONE}, {"arrow_config", PEFT_NONE},
    {"kasa_config", PEFT_NONE}, {"monteclora_config", PEFT_NONE}, {"velora_config", PEFT_NONE},
    {"use_bdlora", PEFT_NONE},
    {"target_parameters", PEFT_NONE}, {"trainable_token_indices", PEFT_NONE},
    {"alora_invocation_tokens", PEFT_NONE}, {"megatron_config", PEFT_NONE},
    {"base_model_name_or_path", PEFT_ANY}, {"auto_mapping", PEFT_ANY}, {"exclude_modules", PEFT_ANY},
    {"inference_mode", PEFT_ANY}, {"layers_pattern", PEFT_ANY}, {"layers_to_transform", PEFT_ANY},
    {"lora_dropout", PEFT_ANY}, {"megatron_core", PEFT_ANY}, {"peft_version", PEFT_ANY},
    {"qalora_group_size", PEFT_ANY}, {"revision", PEFT_ANY}, {"runtime_config", PEFT_ANY},
    {"task_type", PEFT_ANY}, {"ensure_weight_tying", PEFT_ANY}};
enum { PEFT_KEYS = sizeof peft_keys / sizeof *peft_keys };

/* Is it null, false, an empty list or an empty object? */
static inline int peft_is_none(const cJSON *item) {
    if (cJSON_IsObject(item) || cJSON_IsArray(item)) return !item->child;
    return cJSON_IsNull(item) || cJSON_IsFalse(item);
}

/* Every key is known, comes once, and asks for nothing that is not known here. */
static inline int peft_check_keys(const cJSON *json, char *error) {
    int seen[PEFT_KEYS] = {0};
    const cJSON *item;
    cJSON_ArrayForEach(item, json) {
        size_t k = 0;
        while (k < PEFT_KEYS && strcmp(peft_keys[k].key, item->string)) k++;
        if (k == PEFT_KEYS) return text_fail(error, PEFT_CONFIG ": %.60s is not understood", item->string);
        if (seen[k]++) return text_fail(error, PEFT_CONFIG ": %s comes twice", item->string);
        if (peft_keys[k].use == PEFT_NONE && !peft_is_none(item))
            return text_fail(error, PEFT_CONFIG ": %s is not known here but as null", item->string);
    }
    return 1;
}

/* Is the word of a key this one, or the key not there? */
static inline int peft_is(const cJSON *json, const char *key, const char *word) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
    return !item || (cJSON_IsString(item) && !strcmp(item->valuestring, word));
}

/* Reads a flag, which is 0 where it is not there. */
static inline int peft_flag(const cJSON *json, const char *key, int *flag, char *error) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
    *flag = cJSON_IsTrue(item) != 0;
    if (!item || cJSON_IsNull(item) || cJSON_IsBool(item)) return 1;
    return text_fail(error, PEFT_CONFIG ": %s is neither true nor false", key);
}

/* Some ways to begin change the base as well: the adapters are then not those of the base that is given. */
static inline int peft_check_start(const cJSON *json, char *error) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, "init_lora_weights");
    if (!item || cJSON_IsNull(item) || cJSON_IsBool(item)) return 1;
    if (peft_is(json, "init_lora_weights", "gaussian") || peft_is(json, "init_lora_weights", "orthogonal"))
        return 1;
    return text_fail(error, PEFT_CONFIG ": init_lora_weights = \"%.40s\" may have changed the base",
                     cJSON_IsString(item) ? item->valuestring : "");
}

static inline int peft_read_object(peft_settings *s, const cJSON *json, char *error) {
    const cJSON *rank = cJSON_GetObjectItemCaseSensitive(json, "r");
    const cJSON *alpha = cJSON_GetObjectItemCaseSensitive(json, "lora_alpha");
    const cJSON *on = cJSON_GetObjectItemCaseSensitive(json, "target_modules");
    double r = cJSON_IsNumber(rank) ? rank->valuedouble : 0;
    int square_root, turned;
    if (!cJSON_IsObject(json)) return text_fail(error, PEFT_CONFIG " is no JSON object");
    if (!cJSON_HasObjectItem(json, "peft_type") || !peft_is(json, "peft_type", "LORA"))
        return text_fail(error, PEFT_CONFIG ": peft_type is not known here but as LORA");
    if (!peft_check_keys(json, error) || !peft_check_start(json, error)) return 0;
    if (!peft_is(json, "bias", "none"))
        return text_fail(error, PEFT_CONFIG ": bias is not known here but as none");
    if (!peft_flag(json, "use_rslora", &square_root, error)) return 0;
    if (!peft_flag(json, "fan_in_fan_out", &turned, error)) return 0; /* B and A lie alike in both cases */
    if (!(r >= 1 && r <= 65536) || floor(r) < r)
        return text_fail(error, PEFT_CONFIG ": r is no whole number from 1 to 65536");
    if (!cJSON_IsString(on) && !(cJSON_IsArray(on) && on->child))
        return text_fail(error, PEFT_CONFIG ": target_modules names nothing");
    s->rank = (size_t)r;
    s->alpha = cJSON_IsNumber(alpha) ? alpha->valuedouble : 0;
    if (square_root) s->alpha *= sqrt(r); /* alpha / sqrt(r) */
    if (s->alpha > 0 && s->alpha <= 1e6) return 1;
    return text_fail(error, PEFT_CONFIG ": lora_alpha is no number above 0 and up to 1e6");
}

/* Reads adapter_config.json from memory. */
static inline int peft_read(peft_settings *s, const char *text, size_t n, char *error) {
    cJSON *json = cJSON_ParseWithLength(text, n);
    int done = peft_read_object(s, json, error);
    cJSON_Delete(json);
    return done;
}

/* The end of a module's name as target_modules has it: what stands behind the layer's number. */
static inline const char *peft_module(const char *theirs) {
    const char *at = strchr(theirs, '%');
    return at ? at + 2 : theirs;
}

/* adapter_config.json of adapters of these modules; NULL without memory. */
static inline char *peft_write(const peft_settings *s, form f, const char *const *modules, size_t n) {
    cJSON *json = cJSON_CreateObject();
    cJSON *on = json ? cJSON_AddArrayToObject(json, "target_modules") : NULL;
    char *text = NULL;
    for (size_t i = 0; i < n && on; i++) cJSON_AddItemToArray(on, cJSON_CreateString(modules[i]));
    cJSON_AddStringToObject(json, "peft_type", "LORA");
    if (!(IN(f) & IN_ENCODERS)) cJSON_AddStringToObject(json, "task_type", "CAUSAL_LM");
    cJSON_AddNullToObject(json, "base_model_name_or_path");
    form_tell_number(form_tell_json, json, "r", CMHA_FIELD_SIZE, (double)s->rank);
    form_tell_number(form_tell_json, json, "lora_alpha", CMHA_FIELD_REAL, s->alpha);
    cJSON_AddNumberToObject(json, "lora_dropout", 0);
    cJSON_AddStringToObject(json, "bias", "none");
    cJSON_AddBoolToObject(json, "fan_in_fan_out", f == GPT2);
    cJSON_AddBoolToObject(json, "use_rslora", 0);
    cJSON_AddBoolToObject(json, "inference_mode", 1);
    if (on) text = cJSON_Print(json);
    cJSON_Delete(json);
    return text;
}

/* Writes the name of A (b = 0) or B of a row of form_tensors; prefixed: of a model with its head. */
static inline void peft_name(char *out, size_t size, form f, const char *row, int prefixed, size_t layer,
                             int b) {
    char name[128];
    form_name(name, sizeof name, f, row, prefixed, layer, b ? ".lora_B.weight" : ".lora_A.weight");
    snprintf(out, size, "base_model.model.%.*s", (int)size - 18, name);
}

#endif
