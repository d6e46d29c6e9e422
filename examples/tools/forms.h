/* forms.h - models in the forms of others: what Hugging Face's config.json and tensors, and GGUF's values and
   tensors, say in this library's words. Two tables hold it all, one of tensors and one of settings; reading
   and writing walk them. Static functions, after cmha.h; they return 1 for success, or 0 and one line. */
#ifndef FORMS_H
#define FORMS_H

#include "gguf.h"
#include "streams.h"

#include <cjson/cJSON.h>

typedef enum form { OURS, LLAMA, GPT2, BERT, GGUF_LLAMA, GGUF_GPT2, GGUF_BERT, FORMS } form;
enum { IN_LLAMA = 1 << LLAMA, IN_GPT2 = 1 << GPT2, IN_BERT = 1 << BERT, IN_GGUF_LLAMA = 1 << GGUF_LLAMA,
       IN_GGUF_GPT2 = 1 << GGUF_GPT2, IN_GGUF_BERT = 1 << GGUF_BERT,
       IN_GGUF = IN_GGUF_LLAMA | IN_GGUF_GPT2 | IN_GGUF_BERT, IN_JSON = IN_LLAMA | IN_GPT2 | IN_BERT };

/* ---- Tensors ---- */

/* Every tensor by all its names, without ".weight" or ".bias"; % is the layer's number. What begins with / is
   never behind the form's prefix. Rows of one name are one tensor there, one after another. */
static const char *const form_prefixes[FORMS] = {"", "model.", "transformer.", "bert.", "", "", ""};
static const char *const form_tensors[][FORMS] = {
    {"tok_emb", "embed_tokens", "wte", "embeddings.word_embeddings", "token_embd", "token_embd",
     "token_embd"},
    {"pos_emb", NULL, "wpe", "embeddings.position_embeddings", NULL, "position_embd", "position_embd"},
    {"type_emb", NULL, NULL, "embeddings.token_type_embeddings", NULL, NULL, "token_types"},
    {"emb_norm", NULL, NULL, "embeddings.LayerNorm", NULL, NULL, "token_embd_norm"},
    {"blocks.%.ln1", "layers.%.input_layernorm", "h.%.ln_1", "encoder.layer.%.attention.output.LayerNorm",
     "blk.%.attn_norm", "blk.%.attn_norm", "blk.%.attn_output_norm"},
    {"blocks.%.attn.wq", "layers.%.self_attn.q_proj", "h.%.attn.c_attn",
     "encoder.layer.%.attention.self.query", "blk.%.attn_q", "blk.%.attn_qkv", "blk.%.attn_q"},
    {"blocks.%.attn.wk", "layers.%.self_attn.k_proj", "h.%.attn.c_attn",
     "encoder.layer.%.attention.self.key", "blk.%.attn_k", "blk.%.attn_qkv", "blk.%.attn_k"},
    {"blocks.%.attn.wv", "layers.%.self_attn.v_proj", "h.%.attn.c_attn",
     "encoder.layer.%.attention.self.value", "blk.%.attn_v", "blk.%.attn_qkv", "blk.%.attn_v"},
    {"blocks.%.attn.wo", "layers.%.self_attn.o_proj", "h.%.attn.c_proj",
     "encoder.layer.%.attention.output.dense", "blk.%.attn_output", "blk.%.attn_output",
     "blk.%.attn_output"},
    {"blocks.%.attn.delta", NULL, NULL, NULL, NULL, NULL, NULL},
    {"blocks.%.attn.b", NULL, NULL, NULL, NULL, NULL, NULL},
    {"blocks.%.ln2", "layers.%.post_attention_layernorm", "h.%.ln_2", "encoder.layer.%.output.LayerNorm",
     "blk.%.ffn_norm", "blk.%.ffn_norm", "blk.%.layer_output_norm"},
    {"blocks.%.ffn.w1", "layers.%.mlp.gate_proj", "h.%.mlp.c_fc", "encoder.layer.%.intermediate.dense",
     "blk.%.ffn_gate", "blk.%.ffn_up", "blk.%.ffn_up"},
    {"blocks.%.ffn.w3", "layers.%.mlp.up_proj", NULL, NULL, "blk.%.ffn_up", NULL, NULL},
    {"blocks.%.ffn.w2", "layers.%.mlp.down_proj", "h.%.mlp.c_proj", "encoder.layer.%.output.dense",
     "blk.%.ffn_down", "blk.%.ffn_down", "blk.%.ffn_down"},
    {"ln_f", "norm", "ln_f", NULL, "output_norm", "output_norm", NULL},
    {"head_dense", NULL, NULL, "/cls.predictions.transform.dense", NULL, NULL, NULL},
    {"head_norm", NULL, NULL, "/cls.predictions.transform.LayerNorm", NULL, NULL, NULL},
    {"head", "/lm_head", "/lm_head", "/cls.predictions", "output", "output", NULL},
    {"pool", NULL, NULL, "pooler.dense", NULL, NULL, NULL},
    {"class", NULL, NULL, "/classifier", NULL, NULL, NULL}};
enum { FORM_TENSORS = sizeof form_tensors / sizeof *form_tensors };

/* Tensors that may be there besides: what the program computes itself, copies of tied matrices, and (`said` =
   1) heads that the model here does not have, of which a line is printed. */
static const struct form_spare { unsigned forms; int said; const char *name; } form_spares[] = {
    {IN_LLAMA, 0, "layers.%.self_attn.rotary_emb.inv_freq"}, {IN_LLAMA, 0, "rotary_emb.inv_freq"},
    {IN_GPT2, 0, "h.%.attn.bias"}, {IN_GPT2, 0, "h.%.attn.masked_bias"},
    {IN_LLAMA | IN_GPT2, 0, "/lm_head.weight"}, {IN_BERT, 0, "embeddings.position_ids"},
    {IN_BERT, 0, "/cls.predictions.decoder.weight"}, {IN_BERT, 0, "/cls.predictions.decoder.bias"},
    {IN_BERT, 1, "pooler.dense.weight"}, {IN_BERT, 1, "pooler.dense.bias"},
    {IN_BERT, 1, "/cls.seq_relationship.weight"}, {IN_BERT, 1, "/cls.seq_relationship.bias"},
    {IN_GGUF_LLAMA, 0, "rope_freqs.weight"}};

/* Writes a name of the tables with its prefix (or without), the layer's number and what follows it. */
static inline void form_name(char *out, size_t size, form f, const char *row, int prefixed, size_t layer,
                             const char *suffix) {
    size_t before = strcspn(row, "%");
    char number[24] = "";
    if (*row == '/') row++, before--, prefixed = 0;
    if (row[before]) snprintf(number, sizeof number, "%lu", (unsigned long)layer);
    snprintf(out, size, "%s%.*s%s%s%s", prefixed ? form_prefixes[f] : "", (int)before, row, number,
             row[before] ? row + before + 1 : "", suffix);
}

/* Is this a name of the tables? % stands for digits. */
static inline int form_matches(const char *row, const char *name) {
    for (row += *row == '/'; *row; row++)
        if (*row == '%' && *name >= '0' && *name <= '9') name += strspn(name, "0123456789");
        else if (*row != *name++) return 0;
    return !*name;
}

/* ---- Settings ---- */

typedef enum form_use {
    FIELD,    /* the value of a field, `value` where it is not there; NULL: it must be */
    ALWAYS,   /* no key: the field always has that value */
    ONLY,     /* the key may have no other value: the model would be another */
    ELSEWHERE /* read by a function below */,
    HARMLESS  /* changes no result of the model */
} form_use;

typedef struct form_key {
    unsigned forms;
    form_use use;
    const char *key, *field, *value;
} form_key;

static const form_key form_keys[] = {
    {IN_LLAMA | IN_BERT, FIELD, "hidden_size", "d_model", NULL},
    {IN_GPT2, FIELD, "n_embd", "d_model", NULL},
    {IN_GGUF, FIELD, "embedding_length", "d_model", NULL},
    {IN_LLAMA | IN_BERT, FIELD, "num_hidden_layers", "n_layers", NULL},
    {IN_GPT2, FIELD, "n_layer", "n_layers", NULL},
    {IN_GGUF, FIELD, "block_count", "n_layers", NULL},
    {IN_LLAMA | IN_BERT, FIELD, "num_attention_heads", "n_heads", NULL},
    {IN_GPT2, FIELD, "n_head", "n_heads", NULL},
    {IN_GGUF, FIELD, "attention.head_count", "n_heads", NULL},
    {IN_LLAMA, FIELD, "num_key_value_heads", "n_kv_heads", "0"},
    {IN_GGUF, FIELD, "attention.head_count_kv", "n_kv_heads", "0"},
    {IN_LLAMA | IN_BERT, FIELD, "intermediate_size", "d_ff", NULL},
    {IN_GPT2, FIELD, "n_inner", "d_ff", ""},
    {IN_GGUF, FIELD, "feed_forward_length", "d_ff", NULL},
    {IN_JSON, FIELD, "vocab_size", "vocabulary", NULL},
    {IN_GGUF, FIELD, "vocab_size", "vocabulary", ""},
    {IN_LLAMA | IN_BERT, FIELD, "max_position_embeddings", "max_positions", NULL},
    {IN_GPT2, FIELD, "n_positions", "max_positions", NULL},
    {IN_GGUF, FIELD, "context_length", "max_positions", NULL},
    {IN_BERT, FIELD, "type_vocab_size", "token_types", "2"},
    {IN_LLAMA, FIELD, "rms_norm_eps", "norm_eps", "1e-6"},
    {IN_GPT2, FIELD, "layer_norm_epsilon", "norm_eps", "1e-5"},
    {IN_BERT, FIELD, "layer_norm_eps", "norm_eps", "1e-12"},
    {IN_GGUF_LLAMA, FIELD, "attention.layer_norm_rms_epsilon", "norm_eps", NULL},
    {IN_GGUF_GPT2 | IN_GGUF_BERT, FIELD, "attention.layer_norm_epsilon", "norm_eps", NULL},
    {IN_LLAMA, FIELD, "rope_theta", "base", "10000"},
    {IN_GGUF_LLAMA, FIELD, "rope.freq_base", "base", "10000"},
    {IN_LLAMA, FIELD, "tie_word_embeddings", "tied", "0"},
    {IN_GPT2, FIELD, "tie_word_embeddings", "tied", "1"},
    {IN_LLAMA, FIELD, "attention_bias", "attention_bias", "0"},
    {IN_LLAMA, FIELD, "mlp_bias", "ffn_bias", "0"},
    {IN_GPT2, FIELD, "activation_function", "activation", "gelu_tanh"},
    {IN_BERT, FIELD, "hidden_act", "activation", "gelu_erf"},
    {IN_BERT, FIELD, "hidden_dropout_prob", "dropout", "0"},
    {IN_GPT2, FIELD, "resid_pdrop", "dropout", "0"},
    {IN_BERT, FIELD, "attention_probs_dropout_prob", "attention_dropout", "0"},
    {IN_GPT2, FIELD, "attn_pdrop", "attention_dropout", "0"},
    {IN_LLAMA, FIELD, "attention_dropout", "attention_dropout", "0"},

    {IN_LLAMA | IN_GGUF_LLAMA, ALWAYS, NULL, "attention", "rope"},
    {IN_LLAMA | IN_GGUF_LLAMA, ALWAYS, NULL, "norm", "rmsnorm"},
    {IN_LLAMA | IN_GGUF_LLAMA, ALWAYS, NULL, "activation", "swiglu"},
    {IN_GPT2 | IN_BERT | IN_GGUF_GPT2 | IN_GGUF_BERT, ALWAYS, NULL, "attention", "dot"},
    {IN_GPT2 | IN_BERT | IN_GGUF_GPT2 | IN_GGUF_BERT, ALWAYS, NULL, "position", "learned"},
    {IN_GPT2 | IN_BERT | IN_GGUF_GPT2 | IN_GGUF_BERT, ALWAYS, NULL, "attention_bias", "1"},
    {IN_GPT2 | IN_BERT | IN_GGUF_GPT2 | IN_GGUF_BERT, ALWAYS, NULL, "ffn_bias", "1"},
    {IN_GGUF_GPT2, ALWAYS, NULL, "activation", "gelu_tanh"},
    {IN_GGUF_BERT, ALWAYS, NULL, "activation", "gelu_erf"},
    {IN_BERT | IN_GGUF_BERT, ALWAYS, NULL, "causal", "0"},
    {IN_BERT | IN_GGUF_BERT, ALWAYS, NULL, "placement", "post"},
    {IN_BERT | IN_GGUF_BERT, ALWAYS, NULL, "embedding_norm", "1"},
    {IN_BERT | IN_GGUF_BERT, ALWAYS, NULL, "tied", "1"},

    {IN_LLAMA, ONLY, "hidden_act", NULL, "silu"},
    {IN_LLAMA, ONLY, "rope_interleaved", NULL, "0"},
    {IN_LLAMA, ONLY, "use_mrope", NULL, "0"},
    {IN_GPT2, ONLY, "scale_attn_weights", NULL, "1"},
    {IN_GPT2, ONLY, "scale_attn_by_inverse_layer_idx", NULL, "0"},
    {IN_BERT, ONLY, "position_embedding_type", NULL, "absolute"},
    {IN_BERT, ONLY, "tie_word_embeddings", NULL, "1"},
    {IN_JSON, ONLY, "is_decoder", NULL, "0"},
    {IN_JSON, ONLY, "is_encoder_decoder", NULL, "0"},
    {IN_JSON, ONLY, "add_cross_attention", NULL, "0"},
    {IN_JSON, ONLY, "tie_encoder_decoder", NULL, "0"},
    {IN_JSON, ONLY, "pruned_heads", NULL, "{}"},
    {IN_GGUF, ONLY, "expert_count", NULL, "0"},
    {IN_GGUF, ONLY, "expert_used_count", NULL, "0"},
    {IN_GGUF_LLAMA, ONLY, "attention.causal", NULL, "1"},
    {IN_GGUF_BERT, ONLY, "attention.causal", NULL, "0"},

    {IN_JSON, ELSEWHERE, "model_type", NULL, NULL}, {IN_JSON, ELSEWHERE, "architectures", NULL, NULL},
    {IN_LLAMA, ELSEWHERE, "head_dim", "d_head", NULL},
    {IN_GGUF_LLAMA, ELSEWHERE, "attention.key_length", "d_head", NULL},
    {IN_GGUF_LLAMA, ELSEWHERE, "attention.value_length", "d_head", NULL},
    {IN_LLAMA, ELSEWHERE, "partial_rotary_factor", "rotary_dims", NULL},
    {IN_GGUF_LLAMA, ELSEWHERE, "rope.dimension_count", "rotary_dims", NULL},
    {IN_LLAMA, ELSEWHERE, "sliding_window", "window", NULL},
    {IN_LLAMA, ELSEWHERE, "use_sliding_window", "window", NULL},
    {IN_LLAMA, ELSEWHERE, "max_window_layers", "window", NULL},
    {IN_LLAMA, ELSEWHERE, "layer_types", "window", NULL},
    {IN_LLAMA, ELSEWHERE, "rope_scaling", "rope_scaling", NULL},
    {IN_LLAMA, ELSEWHERE, "rope_parameters", "rope_scaling", NULL},
    {IN_GGUF_LLAMA, ELSEWHERE, "rope.scaling.type", "rope_scaling", NULL},
    {IN_GGUF_LLAMA, ELSEWHERE, "rope.scaling.factor", "rope_factor", NULL},
    {IN_GGUF_LLAMA, ELSEWHERE, "rope.scaling.original_context_length", "rope_length", NULL},
    {IN_LLAMA, ELSEWHERE, NULL, "rope_factor", NULL}, {IN_LLAMA, ELSEWHERE, NULL, "rope_length", NULL},
    {IN_LLAMA | IN_GGUF_LLAMA, ELSEWHERE, NULL, "rope_fast", NULL},
    {IN_LLAMA | IN_GGUF_LLAMA, ELSEWHERE, NULL, "rope_slow", NULL},
    {IN_LLAMA | IN_GGUF_LLAMA, ELSEWHERE, NULL, "rope_ramp", NULL},
    {IN_LLAMA | IN_GGUF_LLAMA, ELSEWHERE, NULL, "qkv_bias", NULL},
    {IN_LLAMA | IN_GGUF_LLAMA, ELSEWHERE, NULL, "layout", NULL},
    {IN_LLAMA | IN_GGUF_LLAMA, ELSEWHERE, NULL, "score_scale", NULL},
    {IN_GGUF_LLAMA, ELSEWHERE, NULL, "frequency", NULL},
    {IN_GGUF_LLAMA, ELSEWHERE, NULL, "attention_bias", NULL},
    {IN_GGUF_LLAMA, ELSEWHERE, NULL, "ffn_bias", NULL},
    {IN_GGUF, ELSEWHERE, NULL, "tied", NULL},
    {IN_GGUF_BERT, ELSEWHERE, NULL, "token_types", NULL},
    {IN_BERT, ELSEWHERE, NULL, "head_transform", NULL}, {IN_BERT, ELSEWHERE, NULL, "head_bias", NULL},
    {IN_BERT, ELSEWHERE, NULL, "pooler", NULL}, {IN_BERT, ELSEWHERE, NULL, "classes", NULL},

#define HARMLESS_KEY(key) {IN_JSON, HARMLESS, key, NULL, NULL}
    HARMLESS_KEY("torch_dtype"), HARMLESS_KEY("dtype"), HARMLESS_KEY("transformers_version"),
    HARMLESS_KEY("use_cache"), HARMLESS_KEY("_name_or_path"), HARMLESS_KEY("name_or_path"),
    HARMLESS_KEY("bos_token_id"), HARMLESS_KEY("eos_token_id"), HARMLESS_KEY("pad_token_id"),
    HARMLESS_KEY("sep_token_id"), HARMLESS_KEY("cls_token_id"), HARMLESS_KEY("unk_token_id"),
    HARMLESS_KEY("decoder_start_token_id"), HARMLESS_KEY("initializer_range"), HARMLESS_KEY("pretraining_tp"),
    HARMLESS_KEY("gradient_checkpointing"), HARMLESS_KEY("output_attentions"), HARMLESS_KEY("output_past"),
    HARMLESS_KEY("output_hidden_states"), HARMLESS_KEY("return_dict"), HARMLESS_KEY("task_specific_params"),
    HARMLESS_KEY("id2label"), HARMLESS_KEY("label2id"), HARMLESS_KEY("num_labels"),
    HARMLESS_KEY("problem_type"), HARMLESS_KEY("finetuning_task"), HARMLESS_KEY("classifier_dropout"),
    HARMLESS_KEY("summary_activation"), HARMLESS_KEY("summary_first_dropout"), HARMLESS_KEY("n_ctx"),
    HARMLESS_KEY("summary_proj_to_labels"), HARMLESS_KEY("summary_type"), HARMLESS_KEY("summary_use_proj"),
    HARMLESS_KEY("torchscript"), HARMLESS_KEY("use_bfloat16"), HARMLESS_KEY("attn_implementation"),
    HARMLESS_KEY("_attn_implementation"), HARMLESS_KEY("_attn_implementation_autoset"),
    HARMLESS_KEY("chunk_size_feed_forward"), HARMLESS_KEY("reorder_and_upcast_attn"),
    HARMLESS_KEY("embd_pdrop"), HARMLESS_KEY("directionality"), HARMLESS_KEY("pooler_fc_size"),
    HARMLESS_KEY("pooler_num_attention_heads"), HARMLESS_KEY("pooler_num_fc_layers"),
    HARMLESS_KEY("pooler_size_per_head"), HARMLESS_KEY("pooler_type"), HARMLESS_KEY("is_llama_config"),
    HARMLESS_KEY("unsloth_fixed"), HARMLESS_KEY("unsloth_version"), HARMLESS_KEY("tokenizer_class"),
    HARMLESS_KEY("do_sample"), HARMLESS_KEY("temperature"), HARMLESS_KEY("top_p"), HARMLESS_KEY("top_k"),
    HARMLESS_KEY("max_length"), HARMLESS_KEY("min_length"), HARMLESS_KEY("repetition_penalty"),
    HARMLESS_KEY("prefix"), HARMLESS_KEY("_num_labels"), HARMLESS_KEY("transformers.js_config"),
    HARMLESS_KEY("_flash_attn_2_enabled"), HARMLESS_KEY("max_sequence_length"), HARMLESS_KEY("vocab_type"),
    {IN_GGUF, HARMLESS, "rope.scaling.finetuned", NULL, NULL},
    {IN_GGUF_BERT, HARMLESS, "pooling_type", NULL, NULL},
    {IN_GGUF_BERT, HARMLESS, "token_type_count", NULL, NULL},
    {IN_GGUF, HARMLESS, "tensor_data_layout", NULL, NULL}};
enum { FORM_KEYS = sizeof form_keys / sizeof *form_keys };

/* Words of config.json for activations; the first of a meaning is written. */
static const char *const form_activations[][2] = {
    {"gelu_new", "gelu_tanh"}, {"gelu_pytorch_tanh", "gelu_tanh"}, {"gelu", "gelu_erf"}, {"relu", "relu"}};
/* Fields that change no pass of a model that is not trained; and its tokens. */
static const char *const form_training[] = {"max_positions", "delta_init", "delta_std", "delta_value",
    "dropout", "attention_dropout", "init", "init_std", "pcl_tau", "pcl_mask", "pcl_adapted", "pcl_weight",
    "recompute", "share", "tokenizer"};

/* Settings of `ELSEWHERE` and of rope_scaling that are numbers. */
static const char *const form_numbers =
    "head_dim attention.key_length attention.value_length partial_rotary_factor rope.dimension_count "
    "sliding_window max_window_layers rope.scaling.factor rope.scaling.original_context_length factor "
    "original_max_position_embeddings attention_factor beta_fast beta_slow low_freq_factor high_freq_factor "
    "rope_theta mscale mscale_all_dim";

/* ---- Reading settings ---- */

/* Is the word one of a list? */
static inline int form_listed(const char *list, const char *word) {
    size_t length = strlen(word);
    const char *at = length ? strstr(list, word) : NULL;
    for (; at; at = strstr(at + 1, word))
        if ((at == list || at[-1] == ' ') && (!at[length] || at[length] == ' ')) return 1;
    return 0;
}

/* A setting of a file: a number, flag or word as text, or (kind 0) what is none of these. */
typedef struct form_entry {
    char key[64], text[96], kind; /* n, f, w; 0: other */
    const cJSON *json;
} form_entry;
typedef struct form_settings {
    form_entry *list;
    size_t n;
    form in;
    const char *file;     /* for error lines */
    cmha_context *context;
    char name[32];        /* of the model: llama, mistral, qwen2 ... */
    int dynamic;          /* the angles of positions are scaled beyond max_positions */
} form_settings;

static inline const form_entry *form_find(const form_settings *s, const char *key) {
    for (size_t i = 0; i < s->n; i++)
        if (!strcmp(s->list[i].key, key)) return &s->list[i];
    return NULL;
}

/* The value of a key; `fallback` where it is not there, NULL where it is no such thing. */
static inline const char *form_text(const form_settings *s, const char *key, const char *fallback) {
    const form_entry *e = form_find(s, key);
    return e && e->kind ? e->text : e ? NULL : fallback;
}

static inline double form_number(const form_settings *s, const char *key, double fallback) {
    const form_entry *e = form_find(s, key);
    return e && e->kind == 'n' ? strtod(e->text, NULL) : fallback;
}

/* Sets a field of the model. */
static inline int form_set(const form_settings *s, cmha_model_config *c, const char *field, const char *value,
                           char *error) {
    cmha_status status = cmha_config_set(s->context, cmha_model_table(), c, field, value);
    if (!status) return 1;
    return text_fail(error, "%s: %.300s", s->file, cmha_error(s->context));
}

static inline int form_set_number(const form_settings *s, cmha_model_config *c, const char *field, double x,
                                  char *error) {
    char text[32];
    snprintf(text, sizeof text, "%.17g", x);
    return form_set(s, c, field, text, error);
}

static inline void form_set_text(form_entry *e, char kind, const char *format, ...) {
    va_list list;
    va_start(list, format);
    e->kind = vsnprintf(e->text, sizeof e->text, format, list) < (int)sizeof e->text ? kind : 0;
    va_end(list);
}

/* Takes the members of an object as settings; null is absent. */
static inline int form_read_object(form_settings *s, const cJSON *object, char *error) {
    const cJSON *item;
    size_t n = 0;
    cJSON_ArrayForEach(item, object) n++;
    if (n > 4096) return text_fail(error, "%s has %zu settings", s->file, n);
    s->list = (form_entry *)text_memory(s->list, s->n + n, 1, sizeof *s->list);
    if (!s->list) return text_fail(error, "no memory for %s", s->file);
    cJSON_ArrayForEach(item, object) {
        form_entry *e = &s->list[s->n];
        memset(e, 0, sizeof *e);
        if (strlen(item->string) >= sizeof e->key)
            return text_fail(error, "%s: %.60s is not understood", s->file, item->string);
        strcpy(e->key, item->string), e->json = item;
        if (form_find(s, e->key)) return text_fail(error, "%s: %s comes twice", s->file, e->key);
        if (cJSON_IsNull(item)) continue;
        if (cJSON_IsNumber(item)) form_set_text(e, 'n', "%.17g", item->valuedouble);
        else if (cJSON_IsBool(item)) form_set_text(e, 'f', "%d", cJSON_IsTrue(item) != 0);
        else if (cJSON_IsString(item)) form_set_text(e, 'w', "%s", item->valuestring);
        else if (cJSON_IsObject(item) && !item->child) strcpy(e->text, "{}"), e->kind = 'w';
        s->n++;
    }
    return 1;
}

/* The shortest decimal that is this number of the file's: 1e-05f is 1e-05. */
static inline void form_set_float(form_entry *e, float x) {
    for (int digits = 6; digits < 10; digits++) {
        form_set_text(e, 'n', "%.*g", digits, (double)x);
        if ((float)strtod(e->text, NULL) >= x && (float)strtod(e->text, NULL) <= x) return;
    }
}

/* Takes the values of a GGUF file behind "ARCHITECTURE." as settings. */
static inline int form_read_values(form_settings *s, const gguf_file *g, char *error) {
    size_t length = strlen(s->name);
    s->list = (form_entry *)text_memory(s->list, g->n_values, 1, sizeof *s->list);
    if (!s->list) return text_fail(error, "no memory for %s", s->file);
    for (size_t i = 0; i < g->n_values; i++) {
        const gguf_value *v = &g->values[i];
        form_entry *e = &s->list[s->n];
        double x;
        if (!strncmp(v->key, "general.", 8) || !strncmp(v->key, "tokenizer.", 10)) continue;
        if (strncmp(v->key, s->name, length) || v->key[length] != '.' ||
            strlen(v->key + length) > sizeof e->key)
            return text_fail(error, "%s: %.80s is not understood", s->file, v->key);
        memset(e, 0, sizeof *e);
        strcpy(e->key, v->key + length + 1);
        if (v->type == GGUF_TEXT)
            form_set_text(e, 'w', "%.*s", (int)(v->count < 255 ? v->count : 255), (const char *)v->at);
        else if (v->type == GGUF_F32) form_set_float(e, gguf_float((uint32_t)gguf_bits(v->at, 4)));
        else if (v->type != GGUF_ARRAY && gguf_element(v, 0, &x))
            form_set_text(e, v->type == GGUF_BOOL ? 'f' : 'n', "%.17g", x);
        s->n++;
    }
    return 1;
}

/* Where the angles of positions are scaled: settings of an object of their own, or of a GGUF file. */
typedef struct form_rope {
    const char *type;
    double factor, length, fast, slow, attention; /* attention: factor on cosines and sines, 0 = the usual */
} form_rope;

/* Sets what the scaling of rotary embeddings needs, if any. */
static inline int form_set_rope(const form_settings *s, cmha_model_config *c, const form_rope *r,
                                char *error) {
    int linear = !strcmp(r->type, "linear"), yarn = !strcmp(r->type, "yarn");
    int llama3 = !strcmp(r->type, "llama3");
    double usual = 0.1 * log(r->factor) + 1, d = (double)(c->d_head ? c->d_head : c->d_model / c->n_heads);
    if (!strcmp(r->type, "default") || !strcmp(r->type, "none") || !strcmp(r->type, "dynamic")) return 1;
    if (!linear && !yarn && !llama3)
        return text_fail(error, "%s: angles of positions scaled as \"%s\" are not known here", s->file,
                         r->type);
    if (!(r->factor >= 1))
        return text_fail(error, "%s: %s scaling by a factor of %g", s->file, r->type, r->factor);
    if (!form_set(s, c, "rope_scaling", r->type, error) ||
        !form_set_number(s, c, "rope_factor", r->factor, error))
        return 0;
    if (linear) return 1;
    if (!(r->length >= 1))
        return text_fail(error, "%s: %s scaling names no original length", s->file, r->type);
    if (llama3 && !(r->fast > r->slow && r->slow > 0))
        return text_fail(error, "%s: llama3 scaling between factors %g and %g", s->file, r->slow, r->fast);
    if (!form_set_number(s, c, "rope_length", r->length, error) ||
        !form_set_number(s, c, "rope_fast", r->fast, error) ||
        !form_set_number(s, c, "rope_slow", r->slow, error))
        return 0;
    if (!yarn || !(r->attention > 0) || fabs(r->attention - usual) < 1e-12) return 1;
    return form_set_number(s, c, "score_scale", r->attention * r->attention / (usual * usual) / sqrt(d),
                           error);
}

/* rope_scaling, which is older, or rope_parameters of config.json. */
static inline int form_json_rope(form_settings *s, cmha_model_config *c, char *error) {
    static const char *const known[] = {"rope_type", "type", "factor", "original_max_position_embeddings",
        "attention_factor", "beta_fast", "beta_slow", "low_freq_factor", "high_freq_factor", "rope_theta",
        "partial_rotary_factor", "finetuned", "truncate", "mscale", "mscale_all_dim"};
    const form_entry *old = form_find(s, "rope_scaling"), *e = form_find(s, "rope_parameters");
    form_settings in = *s;
    form_rope r;
    double mscale, all;
    int done = 1, llama3;
    if (old && e) return text_fail(error, "%s: rope_scaling beside rope_parameters", s->file);
    if (!e) e = old;
    in.list = NULL, in.n = 0, in.file = "config.json, rope_scaling";
    if (e && strcmp(e->text, "{}")) {
        if (!cJSON_IsObject(e->json)) return text_fail(error, "%s: %s is no object", s->file, e->key);
        done = form_read_object(&in, e->json, error);
    }
    for (size_t i = 0, k; done && i < in.n; i++) {
        for (k = 0; k < sizeof known / sizeof *known && strcmp(known[k], in.list[i].key); k++);
        if (k == sizeof known / sizeof *known || !in.list[i].kind ||
            (in.list[i].kind != 'n' && form_listed(form_numbers, in.list[i].key)))
            done = text_fail(error, "%s: %.60s is not understood", in.file, in.list[i].key);
    }
    r.type = form_text(&in, "rope_type", form_text(&in, "type", "default"));
    if (done && !r.type) done = text_fail(error, "%s: its type is no word", in.file);
    s->dynamic = done && !strcmp(r.type, "dynamic");
    if (done && strcmp(form_text(&in, "truncate", "1"), "1"))
        done = text_fail(error, "%s: truncate is not known here but as true", in.file);
    llama3 = r.type && !strcmp(r.type, "llama3");
    r.factor = form_number(&in, "factor", 1), r.attention = form_number(&in, "attention_factor", 0);
    mscale = form_number(&in, "mscale", 0), all = form_number(&in, "mscale_all_dim", 0);
    if (!(r.attention > 0) && mscale > 0 && all > 0 && r.factor >= 1)
        r.attention = (0.1 * mscale * log(r.factor) + 1) / (0.1 * all * log(r.factor) + 1);
    r.length = form_number(&in, "original_max_position_embeddings", llama3 ? 0 : (double)c->max_positions);
    r.fast = form_number(&in, llama3 ? "high_freq_factor" : "beta_fast", llama3 ? 0 : 32);
    r.slow = form_number(&in, llama3 ? "low_freq_factor" : "beta_slow", llama3 ? 0 : 1);
    if (done && form_find(&in, "rope_theta"))
        done = form_set(s, c, "base", form_text(&in, "rope_theta", ""), error);
    if (done && form_find(&in, "partial_rotary_factor") && form_number(&in, "partial_rotary_factor", 0) < 1)
        done = text_fail(error, "%s: partial_rotary_factor is not known here but beside it", in.file);
    if (done) done = form_set_rope(s, c, &r, error);
    free(in.list);
    return done;
}

/* Which layers have a sliding window: all or none. */
static inline int form_json_window(const form_settings *s, cmha_model_config *c, char *error) {
    const form_entry *types = form_find(s, "layer_types");
    double window = form_number(s, "sliding_window", 0), layers = (double)c->n_layers;
    int qwen = !strcmp(s->name, "qwen2"), some = window > 0, all = some;
    double first = form_number(s, "max_window_layers", qwen ? 28 : 0);
    const char *used = form_text(s, "use_sliding_window", "0");
    if (!used || (strcmp(used, "0") && strcmp(used, "1")))
        return text_fail(error, "%s: use_sliding_window is not understood", s->file);
    if (qwen && !strcmp(used, "0")) some = 0;
    else if (qwen) some = some && first < layers, all = first <= 0;
    if (types) {
        const cJSON *item;
        int slides = 0, n = 0;
        if (!cJSON_IsArray(types->json))
            return text_fail(error, "%s: layer_types is not understood", s->file);
        cJSON_ArrayForEach(item, types->json) {
            const char *word = cJSON_IsString(item) ? item->valuestring : "";
            slides += !strcmp(word, "sliding_attention"), n++;
            if (strcmp(word, "sliding_attention") && strcmp(word, "full_attention"))
                return text_fail(error, "%s: a layer of the type \"%.40s\"", s->file, word);
        }
        some = slides > 0, all = slides == n;
    }
    if (some && !all) return text_fail(error, "%s: some layers have a sliding window, others none", s->file);
    return !some || window <= 0 || form_set_number(s, c, "window", window, error);
}

/* Sets how many of a head's d numbers turn by position: 0 would be all of them. */
static inline int form_set_turned(const form_settings *s, cmha_model_config *c, double turned, double d,
                                  char *error) {
    if (turned == d) return 1;
    if (!(turned >= 1 && turned < d))
        return text_fail(error, "%s: %g of %g numbers of a head turn by position", s->file, turned, d);
    return form_set_number(s, c, "rotary_dims", turned, error);
}

/* What a Llama's config.json says in more than one key. */
static inline int form_json_llama(form_settings *s, cmha_model_config *c, char *error) {
    double per_head = (double)(c->n_heads ? c->d_model / c->n_heads : 0);
    double d = form_number(s, "head_dim", per_head);
    double share = form_number(s, "partial_rotary_factor", 1);
    int qwen = !strcmp(s->name, "qwen2");
    if (strcmp(s->name, "llama") && !form_find(s, "num_key_value_heads"))
        return text_fail(error, "%s has no num_key_value_heads", s->file);
    if (d != per_head && !form_set_number(s, c, "d_head", d, error)) return 0;
    if (share != 1 && !form_set_turned(s, c, floor(d * share), d, error)) return 0;
    /* Qwen2 reads no attention_bias: q, k and v have biases, o none */
    if (qwen && (!form_set(s, c, "qkv_bias", "1", error) || !form_set(s, c, "attention_bias", "0", error)))
        return 0;
    c->layout = CMHA_LAYOUT_HALF;
    return form_json_window(s, c, error) && form_json_rope(s, c, error);
}

/* The same of a GGUF file. */
static inline int form_gguf_llama(const form_settings *s, cmha_model_config *c, char *error) {
    double per_head = (double)(c->n_heads ? c->d_model / c->n_heads : 0);
    double d = form_number(s, "attention.key_length", per_head);
    double turned = form_number(s, "rope.dimension_count", d);
    double length = form_number(s, "rope.scaling.original_context_length", (double)c->max_positions);
    form_rope r = {form_text(s, "rope.scaling.type", "none"), form_number(s, "rope.scaling.factor", 1),
                   length, 32, 1, 0};
    if (form_number(s, "attention.value_length", per_head) != d)
        return text_fail(error, "%s: keys and values of different widths", s->file);
    if (d != per_head && !form_set_number(s, c, "d_head", d, error)) return 0;
    if (!form_set_turned(s, c, turned, d, error)) return 0;
    c->layout = strcmp(s->name, "qwen2") ? CMHA_LAYOUT_INTERLEAVED : CMHA_LAYOUT_HALF;
    if (!r.type || !strcmp(r.type, "llama3"))
        return text_fail(error, "%s: rope.scaling.type is not understood", s->file);
    return form_set_rope(s, c, &r, error);
}

/* Sets one field as a row of the table says. */
static inline int form_read_key(const form_settings *s, const form_key *k, cmha_model_config *c,
                                char *error) {
    const char *value = form_text(s, k->key, k->value);
    int known = strcmp(k->field, "activation") != 0;
    if (!value)
        return text_fail(error, form_find(s, k->key) ? "%s: %s is not understood" : "%s has no %s", s->file,
                         k->key);
    for (size_t i = 0;
         form_find(s, k->key) && i < sizeof form_activations / sizeof *form_activations && !known; i++)
        if (!strcmp(form_activations[i][0], value)) value = form_activations[i][1], known = 1;
    if (!known && form_find(s, k->key))
        return text_fail(error, "%s: an activation \"%s\" is not known here", s->file, value);
    if (!*value) return 1;
    return form_set(s, c, k->field, value, error);
}

/* The configuration of a model out of its settings: every one of them is understood, or named. */
static inline int form_read(form_settings *s, cmha_model_config *c, char *error) {
    unsigned bit = 1u << s->in;
    cmha_config_defaults(cmha_model_table(), c);
    for (size_t i = 0, k; i < s->n; i++) {
        const form_entry *e = &s->list[i];
        for (k = 0; k < FORM_KEYS; k++)
            if (form_keys[k].forms & bit && form_keys[k].key && !strcmp(form_keys[k].key, e->key)) break;
        if (k == FORM_KEYS ||
            (form_keys[k].use == ELSEWHERE && e->kind != 'n' && form_listed(form_numbers, e->key)))
            return text_fail(error, "%s: %s is not understood", s->file, e->key);
        if (form_keys[k].use == ONLY && (!e->kind || strcmp(e->text, form_keys[k].value)))
            return text_fail(error, "%s: %s is not known here but as %s", s->file, e->key,
                             form_keys[k].value);
    }
    for (size_t k = 0; k < FORM_KEYS; k++) {
        const form_key *row = &form_keys[k];
        if (!(row->forms & bit)) continue;
        if (row->use == ALWAYS && !form_set(s, c, row->field, row->value, error)) return 0;
        if (row->use == FIELD && !form_read_key(s, row, c, error)) return 0;
    }
    if (s->in == GPT2 && !form_find(s, "n_inner")) c->d_ff = 4 * c->d_model;
    if (s->in == LLAMA) return form_json_llama(s, c, error);
    return s->in == GGUF_LLAMA ? form_gguf_llama(s, c, error) : 1;
}

/* Classes of transformers whose tensors are all that they compute with. */
static const struct form_class { const char *type, *architectures; form in; } form_classes[] = {
    {"llama", "LlamaForCausalLM LlamaModel LLaMAForCausalLM", LLAMA},
    {"mistral", "MistralForCausalLM MistralModel", LLAMA},
    {"qwen2", "Qwen2ForCausalLM Qwen2Model", LLAMA},
    {"gpt2", "GPT2LMHeadModel GPT2Model", GPT2},
    {"bert", "BertModel BertForMaskedLM BertForPreTraining BertForSequenceClassification", BERT}};

/* Which form a config.json has. */
static inline int form_json_class(form_settings *s, char *error) {
    const form_entry *type = form_find(s, "model_type"), *classes = form_find(s, "architectures");
    const cJSON *item = classes ? classes->json->child : NULL;
    const char *word = type && type->kind == 'w' ? type->text : "";
    size_t i, n = sizeof form_classes / sizeof *form_classes;
    for (i = 0; i < n && strcmp(form_classes[i].type, word); i++);
    if (i == n && !*word) return text_fail(error, "%s names no model_type", s->file);
    if (i == n)
        return text_fail(error,
                         "%s: models of the type \"%s\" are not known here; llama, mistral, qwen2, gpt2 "
                         "and bert are",
                         s->file, word);
    if (item && !(cJSON_IsString(item) && form_listed(form_classes[i].architectures, item->valuestring)))
        return text_fail(error, "%s: the architecture \"%.60s\" is not known here", s->file,
                         cJSON_IsString(item) ? item->valuestring : "");
    s->in = form_classes[i].in;
    snprintf(s->name, sizeof s->name, "%s", form_classes[i].type);
    return 1;
}

/* Reads config.json from memory. */
static inline int form_read_json(form_settings *s, cmha_context *context, const char *text, size_t n,
                                 cmha_model_config *c, char *error) {
    cJSON *json = cJSON_ParseWithLength(text, n);
    int done;
    memset(s, 0, sizeof *s), s->file = "config.json", s->context = context;
    if (!cJSON_IsObject(json)) done = text_fail(error, "config.json is no JSON object");
    else done = form_read_object(s, json, error) && form_json_class(s, error) && form_read(s, c, error);
    free(s->list), s->list = NULL, s->n = 0;
    cJSON_Delete(json);
    return done;
}

/* Reads the values of a GGUF file. */
static inline int form_read_gguf(form_settings *s, cmha_context *context, const gguf_file *g,
                                 cmha_model_config *c, char *error) {
    static const struct { const char *name; form in; } known[] = {
        {"llama", GGUF_LLAMA}, {"qwen2", GGUF_LLAMA}, {"gpt2", GGUF_GPT2}, {"bert", GGUF_BERT}};
    const gguf_value *v = gguf_find(g, "general.architecture");
    size_t i;
    int done;
    memset(s, 0, sizeof *s), s->file = "its values", s->context = context;
    if (v && v->type == GGUF_TEXT)
        snprintf(s->name, sizeof s->name, "%.*s", (int)(v->count < 32 ? v->count : 31), (const char *)v->at);
    for (i = 0; i < sizeof known / sizeof *known && strcmp(known[i].name, s->name); i++);
    if (i == sizeof known / sizeof *known)
        return text_fail(
            error, "models of the architecture \"%s\" are not known here; llama, qwen2, gpt2 and bert are",
            s->name);
    s->in = known[i].in;
    done = form_read_values(s, g, error) && form_read(s, c, error);
    free(s->list), s->list = NULL, s->n = 0;
    return done;
}

/* ---- Writing settings ---- */

/* A field's place in the table of settings of a form, or NULL. */
static inline const form_key *form_row(form f, const char *field) {
    for (size_t k = 0; k < FORM_KEYS; k++)
        if (form_keys[k].forms >> f & 1 && form_keys[k].field && !strcmp(form_keys[k].field, field))
            return &form_keys[k];
    return NULL;
}

/* Can a model be told in that form? Each field has a key there, the value that it always has there, no
   meaning but in training, or its default. */
static inline int form_holds(const cmha_model_config *c, form f, char *error) {
    cmha_table table = cmha_model_table();
    cmha_model_config usual;
    cmha_config_defaults(table, &usual);
    for (size_t i = 0, t; i < table.count; i++) {
        const char *name = table.fields[i].name;
        const form_key *row = form_row(f, name);
        char is[40], must[40];
        for (t = 0; t < sizeof form_training / sizeof *form_training && strcmp(form_training[t], name); t++);
        if (t < sizeof form_training / sizeof *form_training || (row && row->use != ALWAYS)) continue;
        cmha_config_get(table, c, name, is, sizeof is);
        cmha_config_get(table, &usual, name, must, sizeof must);
        if (row) snprintf(must, sizeof must, "%s", row->value);
        if (strcmp(is, must))
            return text_fail(error, "%s = %s has no form there, only %s has", name, is, must);
    }
    if (c->rope_scaling == CMHA_ROPE_SCALING_NTK)
        return text_fail(error, "rope_scaling = ntk has no form there");
    if (c->rope_scaling == CMHA_ROPE_SCALING_YARN && c->rope_ramp)
        return text_fail(error, "rope_ramp = rotations has no form there");
    if (c->frequency) return text_fail(error, "frequencies of its own have no form there");
    if (c->score_scale > 0 && (f == GGUF_LLAMA || c->rope_scaling != CMHA_ROPE_SCALING_YARN))
        return text_fail(error, "score_scale = %g has no form there", c->score_scale);
    if (f == LLAMA && c->qkv_bias && !c->attention_bias && c->ffn_bias)
        return text_fail(error, "qkv_bias beside ffn_bias has no form there");
    if (f == LLAMA && c->window && (c->attention_bias || c->ffn_bias)) /* Mistral's form, which has none */
        return text_fail(error, "window beside attention_bias or ffn_bias has no form there");
    return 1;
}

/* Width of a head, and how much of it rotates. */
static inline size_t form_width(const cmha_model_config *c) {
    return c->d_head ? c->d_head : c->d_model / c->n_heads;
}
static inline size_t form_turned(const cmha_model_config *c) {
    return c->rotary_dims ? c->rotary_dims : form_width(c);
}

/* The share of a head that rotates, which times its width is not less than as many numbers. */
static inline double form_share(const cmha_model_config *c) {
    double turned = (double)c->rotary_dims, width = (double)form_width(c), share = turned / width;
    return floor(share * width) < turned ? (turned + 0.5) / width : share;
}

/* What the values of a form are told to, as text; `number`: SIZE, REAL, FLAG, or NAME for a word. */
typedef void (*form_tell)(void *to, const char *key, cmha_field_type number, const char *value);

static inline void form_tell_number(form_tell tell, void *to, const char *key, cmha_field_type type,
                                    double x) {
    char text[40];
    snprintf(text, sizeof text, "%.15g", x);
    if (strtod(text, NULL) < x || strtod(text, NULL) > x) snprintf(text, sizeof text, "%.17g", x);
    tell(to, key, type, text);
}

/* Tells all keys that are fields. */
static inline void form_fields(const cmha_model_config *c, form f, form_tell tell, void *to) {
    cmha_table table = cmha_model_table();
    for (size_t k = 0; k < FORM_KEYS; k++) {
        const form_key *row = &form_keys[k];
        char text[40];
        size_t i = 0;
        if (!(row->forms >> f & 1) || row->use != FIELD) continue;
        while (strcmp(table.fields[i].name, row->field)) i++;
        cmha_config_get(table, c, row->field, text, sizeof text);
        if (!strcmp(row->field, "n_kv_heads") && !c->n_kv_heads)
            snprintf(text, sizeof text, "%zu", c->n_heads);
        for (size_t a = 0; a < sizeof form_activations / sizeof *form_activations; a++)
            if (!strcmp(row->field, "activation") && !strcmp(form_activations[a][1], text)) {
                snprintf(text, sizeof text, "%s", form_activations[a][0]);
                break;
            }
        tell(to, row->key, table.fields[i].type == CMHA_FIELD_ENUM ? CMHA_FIELD_NAME : table.fields[i].type,
             text);
    }
}

static inline void form_tell_json(void *to, const char *key, cmha_field_type type, const char *value) {
    cJSON *json = (cJSON *)to;
    if (type == CMHA_FIELD_NAME) cJSON_AddStringToObject(json, key, value);
    else if (type == CMHA_FIELD_FLAG) cJSON_AddBoolToObject(json, key, *value == '1');
    else cJSON_AddRawToObject(json, key, value);
}

/* The scaling of rotary embeddings as config.json has it. */
static inline void form_write_rope(const cmha_model_config *c, cJSON *json) {
    static const char *const words[] = {"", "linear", "", "yarn", "llama3"};
    int llama3 = c->rope_scaling == CMHA_ROPE_SCALING_LLAMA3;
    cJSON *r = c->rope_scaling ? cJSON_AddObjectToObject(json, "rope_scaling") : NULL;
    if (!r) return;
    cJSON_AddStringToObject(r, "rope_type", words[c->rope_scaling]);
    form_tell_number(form_tell_json, r, "factor", CMHA_FIELD_REAL, c->rope_factor);
    if (c->rope_scaling == CMHA_ROPE_SCALING_LINEAR) return;
    form_tell_number(form_tell_json, r, "original_max_position_embeddings", CMHA_FIELD_SIZE,
                     (double)c->rope_length);
    form_tell_number(form_tell_json, r, llama3 ? "high_freq_factor" : "beta_fast", CMHA_FIELD_REAL,
                     c->rope_fast);
    form_tell_number(form_tell_json, r, llama3 ? "low_freq_factor" : "beta_slow", CMHA_FIELD_REAL,
                     c->rope_slow);
    if (c->score_scale > 0)
        form_tell_number(form_tell_json, r, "attention_factor", CMHA_FIELD_REAL,
                         sqrt(c->score_scale * sqrt((double)form_width(c))) *
                             (0.1 * log(c->rope_factor) + 1));
}

/* config.json of a model that form_holds; NULL without memory. */
static inline char *form_write_json(const cmha_model_config *c, form f, const char *dtype) {
    int qwen = f == LLAMA && c->qkv_bias && !c->attention_bias, mistral = f == LLAMA && !qwen && c->window;
    int causal = f != BERT, head = f != BERT || c->head_transform;
    const char *type = qwen         ? "qwen2"
                       : mistral    ? "mistral"
                       : f == LLAMA ? "llama"
                       : f == GPT2  ? "gpt2"
                                    : "bert";
    const char *class = qwen         ? "Qwen2ForCausalLM"
                        : mistral    ? "MistralForCausalLM"
                        : f == LLAMA ? "LlamaForCausalLM"
                        : causal     ? "GPT2LMHeadModel"
                        : c->classes ? "BertForSequenceClassification"
                        : head       ? "BertForMaskedLM"
                                     : "BertModel";
    cJSON *json = cJSON_CreateObject(),
          *classes = json ? cJSON_AddArrayToObject(json, "architectures") : NULL;
    char *text = NULL;
    if (classes) cJSON_AddItemToArray(classes, cJSON_CreateString(class));
    cJSON_AddStringToObject(json, "model_type", type);
    form_fields(c, f, form_tell_json, json);
    if (f == LLAMA) {
        cJSON_AddStringToObject(json, "hidden_act", "silu");
        form_tell_number(form_tell_json, json, "head_dim", CMHA_FIELD_SIZE, (double)form_width(c));
        if (c->rotary_dims)
            form_tell_number(form_tell_json, json, "partial_rotary_factor", CMHA_FIELD_REAL,
                             form_share(c));
        if (c->window)
            form_tell_number(form_tell_json, json, "sliding_window", CMHA_FIELD_SIZE, (double)c->window);
        else if (mistral) cJSON_AddNullToObject(json, "sliding_window");
        if (qwen) cJSON_AddBoolToObject(json, "use_sliding_window", c->window > 0);
        if (qwen && c->window) form_tell_json(json, "max_window_layers", CMHA_FIELD_SIZE, "0");
        if (qwen || mistral)
            cJSON_DeleteItemFromObject(json, "attention_bias"), cJSON_DeleteItemFromObject(json, "mlp_bias");
        form_write_rope(c, json);
    }
    if (c->classes) {
        cJSON *labels = cJSON_AddObjectToObject(json, "id2label");
        for (size_t i = 0; labels && i < c->classes; i++) {
            char key[24], label[32];
            snprintf(key, sizeof key, "%zu", i), snprintf(label, sizeof label, "LABEL_%zu", i);
            cJSON_AddStringToObject(labels, key, label);
        }
    }
    cJSON_AddStringToObject(json, "torch_dtype", dtype);
    if (classes) text = cJSON_Print(json);
    cJSON_Delete(json);
    return text;
}

static inline void form_tell_gguf(void *to, const char *key, cmha_field_type type, const char *value) {
    char name[96];
    snprintf(name, sizeof name, "llama.%s", key);
    if (type == CMHA_FIELD_NAME) gguf_put_text((gguf_writer *)to, name, value, strlen(value));
    else if (type == CMHA_FIELD_REAL) gguf_put_real((gguf_writer *)to, name, (float)strtod(value, NULL));
    else gguf_put_whole((gguf_writer *)to, name, (uint32_t)strtoul(value, NULL, 10));
}

/* The values of a GGUF file of the architecture llama. */
static inline void form_write_gguf(const cmha_model_config *c, gguf_writer *to) {
    gguf_put_text(to, "general.architecture", "llama", 5);
    form_fields(c, GGUF_LLAMA, form_tell_gguf, to);
    form_tell_number(form_tell_gguf, to, "rope.dimension_count", CMHA_FIELD_SIZE, (double)form_turned(c));
    form_tell_number(form_tell_gguf, to, "attention.key_length", CMHA_FIELD_SIZE, (double)form_width(c));
    form_tell_number(form_tell_gguf, to, "attention.value_length", CMHA_FIELD_SIZE, (double)form_width(c));
    if (c->rope_scaling != CMHA_ROPE_SCALING_LINEAR && c->rope_scaling != CMHA_ROPE_SCALING_YARN) return;
    form_tell_gguf(to, "rope.scaling.type", CMHA_FIELD_NAME,
                   c->rope_scaling == CMHA_ROPE_SCALING_YARN ? "yarn" : "linear");
    form_tell_number(form_tell_gguf, to, "rope.scaling.factor", CMHA_FIELD_REAL, c->rope_factor);
    if (c->rope_length)
        form_tell_number(form_tell_gguf, to, "rope.scaling.original_context_length", CMHA_FIELD_SIZE,
                         (double)c->rope_length);
}

#endif
