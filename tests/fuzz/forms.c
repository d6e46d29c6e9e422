/* config.json of other people's models, and the values of GGUF files. What is understood makes a
   configuration in range; what it can be told in again, in the forms of others, means the same. */
#include "fuzz.h"
#include "mutate.h"
#include "examples/tools/peft.h"

#include <float.h>

static const char *const pieces[] = {
    "{\"type\":\"linear\",\"factor\":2.0}", "{\"rope_type\":\"dynamic\",\"factor\":2.0}",
    "{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
    "\"original_max_position_embeddings\":16}",
    "{\"rope_type\":\"yarn\",\"factor\":4.0,\"beta_fast\":32,\"beta_slow\":1,\"attention_factor\":1.2,"
    "\"mscale\":1.0,\"mscale_all_dim\":0.5,\"original_max_position_embeddings\":16}",
    "{\"type\":\"longrope\",\"short_factor\":[1,1.5],\"long_factor\":[2,8],\"attention_factor\":1.1}",
    "{\"0\":\"no\",\"1\":\"yes\"}", "[\"LlamaForCausalLM\"]", "[\"BertForSequenceClassification\"]",
    "[\"sliding_attention\",\"full_attention\"]", "[\"q_proj\"]",
    "{\"full_attention\":{\"rope_type\":\"default\",\"rope_theta\":100},\"sliding_attention\":"
    "{\"rope_type\":\"default\",\"rope_theta\":10}}", NULL};
static const char *const words[] = {
    "architectures", "model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size",
    "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_act", "max_position_embeddings",
    "rms_norm_eps", "rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor",
    "tie_word_embeddings", "attention_bias", "mlp_bias", "sliding_window", "use_sliding_window",
    "max_window_layers", "layer_types", "n_embd", "n_layer", "n_head", "n_inner", "n_positions", "id2label",
    "label2id", "num_labels", "problem_type", "type_vocab_size", "position_embedding_type", "is_decoder",
    "activation_function", "layer_norm_eps", "scale_attn_weights", "score_scale", "rope_type", "factor",
    "llama", "mistral", "qwen2", "gpt2", "bert", "silu", "gelu", "gelu_new", "relu", "absolute", "yarn",
    "linear", "llama3", "default", "GPT2LMHeadModel", "MistralForCausalLM", "Qwen2ForCausalLM",
    "qwen3", "gemma2", "gemma3_text", "gemma3", "olmo2", "phi3", "smollm3", "granite", "stablelm", "phi",
    "gpt_neox", "gptj", "rotary_pct", "rotary_dim", "sliding_window_pattern", "no_rope_layers",
    "rope_local_base_freq", "query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping",
    "logits_scaling", "attention_multiplier", "use_parallel_residual", "hidden_activation", "use_qkv_bias",
    "BertForMaskedLM", "general.architecture", "llama.rope.scaling.type", "llama.attention.key_length",
    "llama.attention.causal", "gpt2.context_length", "bert.pooling_type", "peft_type",
    "LORA", "r", "lora_alpha", "use_rslora", "bias", "none", "fan_in_fan_out", "target_modules",
    "init_lora_weights", "rank_pattern", "modernbert", "nomic_bert", "local_attention", "local_rope_theta",
    "global_rope_theta", "global_attn_every_n_layers", "norm_bias", "decoder_bias", "classifier_activation",
    "full_attention", "sliding_attention", "rotary_emb_fraction", "rotary_scaling_factor",
    "max_trained_positions", "mlp_fc1_bias", "mlp_fc2_bias", "qkv_proj_bias", "swiglu", "geglu",
    "modern-bert", "nomic-bert", "modern-bert.attention.sliding_window_pattern",
    "modern-bert.rope.freq_base_swa",
    "modern-bert.attention.sliding_window", "modern-bert.hidden_activation",
    "nomic-bert.rope.dimension_count",
    "gemma3.attention.sliding_window_pattern", "gemma3.rope.freq_base_swa",
    "llama.rope.scaling.yarn_beta_fast", "llama.rope.scaling.yarn_attn_factor", NULL};

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
    static const mutate_language language = {pieces, words, NULL};
    return mutate_whole(data, size, most, seed, &language);
}

/* Two configurations have the same fields, but for those that only training knows; numbers to as many digits
   as the file holds: GGUF's are floats, of which one, Granite's, is the inverse of ours. */
static void same(const cmha_model_config *a, const cmha_model_config *b, int floats) {
    cmha_table table = cmha_model_table();
    for (size_t i = 0; i < table.count; i++) {
        char x[40], y[40], what[160];
        const char *name = table.fields[i].name;
        int equal;
        double left, right;
        cmha_config_get(table, a, name, x, sizeof x), cmha_config_get(table, b, name, y, sizeof y);
        if (!strcmp(name, "dropout") || !strcmp(name, "score_scale") || !strcmp(name, "n_kv_heads") ||
            !strcmp(name, "head_bias") || !strcmp(name, "rope_factor") || !strcmp(name, "rope_length"))
            continue;
        equal = !strcmp(x, y);
        if (table.fields[i].type == CMHA_FIELD_REAL) {
            left = strtod(x, NULL), right = strtod(y, NULL);
            equal = fabs(left - right) <= (floats ? FLT_EPSILON * fabs(left) + FLT_MIN : 0);
        }
        if (equal) continue;
        snprintf(what, sizeof what, "%s: %s == %s", name, x, y);
        fuzz_stop(__FILE__, __LINE__, what);
    }
}

/* The same as settings of adapters: what is understood means the same when it is written. */
static void adapters(const char *data, size_t size) {
    static const char *const modules[] = {"self_attn.q_proj"};
    char error[TEXT_ERROR] = "", *text;
    peft_settings s, again;
    if (!peft_read(&s, data, size, error)) {
        NEED(*error && !strchr(error, '\n'));
        return;
    }
    NEED(s.rank >= 1 && s.rank <= 65536 && s.alpha > 0 && s.alpha <= 1e6);
    text = peft_write(&s, LLAMA, modules, 1);
    NEED(text && peft_read(&again, text, strlen(text), error));
    NEED(again.rank == s.rank && !(again.alpha < s.alpha) && !(again.alpha > s.alpha));
    free(text);
}

/* What a GGUF file of these settings holds is read as the same settings. */
static void again_as_gguf(const form_settings *s, const cmha_model_config *config) {
    char error[TEXT_ERROR] = "", *bytes = NULL;
    cmha_model_config again;
    gguf_writer w;
    gguf_file g;
    form_settings t;
    size_t n = 0;
    FILE *file;
    if (!form_holds(config, s->in, error)) {
        NEED(*error && !strchr(error, '\n'));
        return;
    }
    if (config->local_base > 0 && config->local_base < 1) return; /* no model takes it */
    memset(&w, 0, sizeof w);
    form_write_gguf(config, s->in, &w);
    NEED((file = open_memstream(&bytes, &n)) != NULL && gguf_put_head(&w, file) && !fclose(file));
    NEED(gguf_read(&g, (const unsigned char *)bytes, n, error));
    if (form_read_gguf(&t, &fuzz_context, &g, &again, error)) {
        again.layout = config->layout; /* Qwen2's is written as Llama's, whose pairs lie otherwise */
        same(config, &again, 1);
    }
    gguf_close(&g), free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const int32_t none[3] = {-1, -1, -1};
    char error[TEXT_ERROR] = "", *text = NULL;
    cmha_model_config config, again;
    form_settings s, t;
    gguf_file g;
    if (!fuzz_context.open) fuzz_open_context();
    adapters((const char *)data, size);
    if (size > 4 && !memcmp(data, "GGUF", 4)) {
        if (!gguf_read(&g, data, size, error)) return 0;
        if (!form_read_gguf(&s, &fuzz_context, &g, &config, error)) NEED(*error && !strchr(error, '\n'));
        else again_as_gguf(&s, &config);
        gguf_close(&g);
        return 0;
    }
    if (!form_read_json(&s, &fuzz_context, (const char *)data, size, &config, error)) {
        NEED(*error && !strchr(error, '\n'));
        return 0;
    }
    NEED(cmha_config_check(&fuzz_context, cmha_model_table(), &config) == CMHA_OK);
    if (s.in == MODERNBERT) config.head_bias = 0; /* whether its head is there, tensors say */
    NEED(s.n_factors <= FORM_PAIRS);
    if (!s.n_factors && form_holds(&config, s.in, error)) {
        NEED((text = form_write_json(&config, s.in, "float32", none, NULL)) != NULL);
        if (form_read_json(&t, &fuzz_context, text, strlen(text), &again, error)) same(&config, &again, 0);
        free(text);
    }
    return 0;
}
